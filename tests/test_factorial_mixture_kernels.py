"""The kernels of factorial mixtures against the same equations in plain numpy, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from cases_factorial_mixture import drawn_moments, likelihood_of
from designs import pairwise
from plain_factorial_mixture import enumerated, mean_field

from sklearn_anneal.models._binary_codes import RowBlock

NOISE = 0.7


def problem(rng, k, n, d=5):
    means, gram = drawn_moments(rng, k, d)
    X = rng.normal(size=(n, d)) + (rng.random((n, k)) < 0.4) @ means
    return means, gram, rng.uniform(0.1, 0.9, size=k), X, rng.uniform(0.5, 2.0, size=n)


def inferred(likelihood, X, x, weights, start=None, n_sweeps=100):
    block = RowBlock(slice(0, len(X)), X, None)
    return likelihood.infer(block, x, weights, start, n_sweeps)


# 3, 4 and 9 components, which the loops take in fours, and rows in one group, in several, and in
# several of which the last is not full.
@pairwise(k=(1, 3, 4, 9), n_sweeps=(0, 1, 3, 50), n=(1, 64, 150))
def test_sweeps_are_those_of_the_equations(k, n, n_sweeps, rng):
    means, gram, prior, X, weights = problem(rng, k, n)
    start = rng.normal(size=(k, n))
    temperatures = rng.choice([1.0, 1.7, 30.0], size=n)
    tol = 1e-3
    likelihood = likelihood_of(means, gram, NOISE, prior, "mean_field", tol)
    found = inferred(likelihood, X, 1.0 / temperatures, weights[None], start, n_sweeps)
    second = np.zeros((k, k))
    for i in range(n):
        nu, moments, energy, entropy = mean_field(
            X[i], means, gram, NOISE, prior, temperatures[i], start[:, i], n_sweeps, tol
        )
        np.testing.assert_allclose(found.activations[:, i], nu, rtol=1e-9, atol=1e-12)
        assert found.energies[i] == pytest.approx(energy, rel=1e-10)
        assert found.entropies[i] == pytest.approx(entropy, rel=1e-8, abs=1e-10)
        second += weights[i] * moments
    np.testing.assert_allclose(found.moments[0]["second"], second, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n", [1, 64, 150])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_enumeration_is_that_of_the_equations(k, n, rng):
    means, gram, prior, X, weights = problem(rng, k, n)
    temperatures = rng.choice([1.0, 1.7, 30.0], size=n)
    likelihood = likelihood_of(means, gram, NOISE, prior, "enumerate")
    kinds = np.array([weights, np.ones(n)])
    found = inferred(likelihood, X, 1.0 / temperatures, kinds)
    second = np.zeros((2, k, k))
    for i in range(n):
        nu, moments, energy, entropy = enumerated(X[i], means, gram, NOISE, prior, temperatures[i])
        np.testing.assert_allclose(found.activations[:, i], nu, rtol=1e-9, atol=1e-12)
        assert found.energies[i] == pytest.approx(energy, rel=1e-10)
        assert found.entropies[i] == pytest.approx(entropy, rel=1e-8, abs=1e-10)
        second += kinds[:, i, None, None] * moments
    np.testing.assert_allclose(
        [one["second"] for one in found.moments], second, rtol=1e-9, atol=1e-10
    )


def test_one_temperature_for_all_rows_is_one_for_each(rng):
    means, gram, prior, X, weights = problem(rng, 4, 70)
    for how in ("mean_field", "enumerate"):
        likelihood = likelihood_of(means, gram, NOISE, prior, how, 1e-3)
        start = None if how == "enumerate" else rng.normal(size=(4, 70))
        one = inferred(likelihood, X, 0.3, weights[None], start)
        each = inferred(likelihood, X, np.full(70, 0.3), weights[None], start)
        np.testing.assert_array_equal(one.activations, each.activations)
        np.testing.assert_array_equal(one.energies, each.energies)


def test_a_row_does_not_depend_on_the_others(rng):
    """Rows converge after different numbers of sweeps, and are grouped anew in between."""
    means, gram, prior, X, weights = problem(rng, 8, 200)
    likelihood = likelihood_of(means, gram, 0.05, prior, "mean_field", 1e-3)
    together = inferred(likelihood, X, 1.0, weights[None])
    order = rng.permutation(200)[:90]
    apart = inferred(likelihood, X[order], 1.0, weights[None, order])
    np.testing.assert_allclose(
        apart.activations, together.activations[:, order], rtol=1e-9, atol=1e-12
    )


def test_sweeps_begin_at_a_linear_regression(rng):
    """Without noise, and with as many components as columns, regression finds the activations."""
    means, _ = drawn_moments(rng, 5, 5)
    z = (rng.random((40, 5)) < 0.5).astype(float)
    likelihood = likelihood_of(means, means @ means.T, 1e-6, np.full(5, 0.3), "mean_field")
    start = likelihood._relaxed(likelihood.scaled @ (z @ means).T)
    np.testing.assert_allclose(start.T, z, atol=1e-3)
    found = inferred(likelihood, z @ means, 1.0, np.ones((1, 40)))
    np.testing.assert_allclose(found.activations.T, z, atol=1e-6)


def test_a_start_is_not_changed(rng):
    means, gram, prior, X, weights = problem(rng, 3, 20)
    start = rng.normal(size=(3, 20))
    kept = start.copy()
    inferred(likelihood_of(means, gram, NOISE, prior, "mean_field"), X, 1.0, weights[None], start)
    np.testing.assert_array_equal(start, kept)


@pytest.mark.parametrize("how", ["mean_field", "enumerate"])
def test_certain_activations_have_no_entropy(how, rng):
    """Far beyond the largest logit of the sweeps, and without overflow."""
    means = 1e4 * np.eye(3)
    likelihood = likelihood_of(means, means @ means.T, 1.0, np.full(3, 0.5), how)
    found = inferred(likelihood, np.array([[1e4, 0.0, 1e4]]), 1.0, np.ones((1, 1)))
    np.testing.assert_allclose(found.activations[:, 0], [1.0, 0.0, 1.0], atol=1e-12)
    assert 0.0 <= found.entropies[0] < 1e-10
