"""The local step of spike-and-slab factor analysis against the same equations in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from designs import pairwise
from plain_spike_slab import mean_field

from sklearn_anneal.models._binary_codes import RowBlock
from sklearn_anneal.models._factor_rows import Likelihood, Moments
from sklearn_anneal.models._packed_gaussians import symmetric


def problem(rng, k, n, missing, d=5):
    """Rows, q(w) in units of the noise, the noise and π."""
    means = rng.normal(size=(k, d))
    root = 0.3 * rng.normal(size=(d if missing else 1, k, k))
    covariances = np.broadcast_to(root @ root.transpose(0, 2, 1), (d, k, k))
    psi, prior = rng.uniform(0.3, 3.0, d), rng.uniform(0.1, 0.9, k)
    X = np.sqrt(psi) * (rng.normal(size=(n, k)) @ means + rng.normal(size=(n, d)))
    if missing:
        X[rng.random(X.shape) < 0.3] = np.nan
        X[-1] = np.nan
    return X, means, covariances, psi, prior


def block_of(X, missing):
    there = ~np.isnan(X)
    filled = np.where(there, X, 0.0)
    observed = there.astype(float) if missing else None
    return RowBlock(slice(0, len(X)), filled, observed)


def likelihood_of(means, covariances, psi, prior, missing, tol):
    k, d = means.shape
    squares = np.einsum("kd,ld->dkl", means, means) + covariances
    of_columns = squares[:, *np.tril_indices(k)] if missing else None
    return Likelihood(Moments(means, of_columns, squares.sum(axis=0)), psi, prior, tol)


# 3, 4 and 9 factors, which the loops take in fours; rows in one group, and in two of which the
# last is not full.
@pairwise(k=(1, 3, 4, 9), n_sweeps=(0, 1, 3, 50), n=(1, 64, 70), missing=(False, True))
def test_a_step_is_the_plain_one(k, n, n_sweeps, missing, rng):
    X, means, covariances, psi, prior = problem(rng, k, n, missing)
    start = rng.normal(size=(2, k, n))
    temperatures = rng.choice([1.0, 1.7, 30.0], size=n)
    weights = rng.uniform(0.5, 2.0, n)
    likelihood = likelihood_of(means, covariances, psi, prior, missing, 1e-3)
    found = likelihood.infer(
        block_of(X, missing), 1.0 / temperatures, [weights], tuple(start), n_sweeps
    )
    first, second = np.zeros(means.shape), np.zeros((5, k, k))
    for i, x in enumerate(X):
        nu, m, moments, energy, entropy = mean_field(
            x, np.sqrt(psi) * means, psi[:, None, None] * covariances, psi, prior,
            temperatures[i], start[:, :, i], n_sweeps, 1e-3,
        )  # fmt: skip
        np.testing.assert_allclose(found.activations[:, i], nu, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.local[1][:, i], m, rtol=1e-9, atol=1e-12)
        assert found.energies[i] == pytest.approx(energy, rel=1e-10)
        assert found.entropies[i] == pytest.approx(entropy, rel=1e-8, abs=1e-10)
        seen = ~np.isnan(x)
        first[:, seen] += weights[i] * np.outer(nu * m, (x / np.sqrt(psi))[seen])
        second[seen] += weights[i] * moments
    (sums,) = found.moments
    np.testing.assert_allclose(sums["first"], first, rtol=1e-9, atol=1e-10)
    found_second = symmetric(sums["second"], k) if missing else sums["second"]
    np.testing.assert_allclose(
        np.broadcast_to(found_second, second.shape), second, rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(sums["active"], found.activations @ weights, rtol=1e-12)
