"""Bounds of models with Gaussian noise, for data of any scale and far from zero.

A bound that is a difference of large numbers can rise above what log p can reach. Fits are chosen
by it, so that they then end in the rounding errors.
"""

from __future__ import annotations

from itertools import product

import mpmath as mp
import numpy as np
import pytest
from cases_factorial_mixture import STEPS
from designs import in_turn, pairwise
from harness import context_of, quick
from plain_factorial_mixture import states
from sklearn.base import clone

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedHMM,
    AnnealedPMF,
    AnnealedSpikeSlabFactorAnalysis,
    Shards,
)
from sklearn_anneal.annealing import ANNEALING

SCALES = (1e-6, 1.0, 1e6)


def groups(rng):
    """Three groups of rows that any mixture separates."""
    return 6.0 * np.eye(3)[np.arange(30) % 3] + rng.normal(size=(30, 3))


def duplicated(rng):
    """Two rows, five times each."""
    return np.repeat(rng.normal(size=(2, 4)), 5, axis=0)


def parts(rng, n=20, offset=0.0):
    """Sums of three parts, with noise of variance 1."""
    means = 4.0 * rng.normal(size=(3, 10))
    return (rng.random((n, 3)) < 0.5) @ means + rng.normal(size=(n, 10)) + offset


def ceiling(fit, n_cells):
    """The largest value of log p of any number of cells, at any parameters but the noise."""
    noise = np.atleast_1d(fit.noise_variance_)
    return -0.5 * n_cells / len(noise) * np.log(2.0 * np.pi * noise).sum()


# A ridge is in units of the data, and so is not learned from them.
def gaussian_mixture(covariance_type):
    return lambda scale: AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        reg_covar=1e-6 * scale**2,
        random_state=0,
    )


def chain(covariance_type):
    return lambda scale: AnnealedHMM(
        3, covariance_type=covariance_type, reg_covar=1e-6 * scale**2, random_state=0
    )


COVARIANCES = ("full", "tied", "diag", "spherical")
INVARIANT = {
    **{f"gaussian_mixture-{name}": gaussian_mixture(name) for name in COVARIANCES},
    **{f"chain-{name}": chain(name) for name in COVARIANCES},
    "columns": lambda scale: AnnealedBayesianMixture(
        3, emission="gaussian", reg_covar=1e-6 * scale**2, random_state=0
    ),
    "spike_slab": lambda scale: AnnealedSpikeSlabFactorAnalysis(2, random_state=0),
    "spike_slab-gradient": lambda scale: AnnealedSpikeSlabFactorAnalysis(
        2, solver="gradient", annealing="proximity", random_state=0
    ),
    "ratings": lambda scale: AnnealedPMF(2, random_state=0),
    **{
        f"parts-{how}": lambda scale, how=how: AnnealedFactorialMixture(
            3, center=True, local_step=how, random_state=0
        )
        for how in STEPS
    },
}


DATA = {"groups": groups, "duplicated": duplicated}
MOVES = {
    "near": ((0.0, 1e6), (1e5, 1e6), (1e8, 1.0)),
    "far": ((1e2, 1e-6), (1e8, 1e-6)),
}


@in_turn(name=INVARIANT, case=[" ".join(each) for each in product(DATA, MOVES)])
def test_bounds_do_not_depend_on_units_and_origin(name, case, rng):
    """log p(s (x + c)) = log p(x) − log s per cell, with priors that are learned from the data.

    A cell of c + x has only the digits of x that c leaves, of which bounds lose some. A search goes
    another way where digits differ, and is left out.
    """
    data, moves = case.split()
    X, how = DATA[data](rng), {"effort": 0}
    how |= {"max_iter": 20} if "gradient" in name else {"annealing": "none", "max_iter": 10}
    expected = INVARIANT[name](1.0).set_params(**how).fit(X).lower_bound_
    for offset, scale in MOVES[moves]:
        fit = INVARIANT[name](scale).set_params(**how).fit(scale * (X + offset))
        found = fit.lower_bound_ + X.size * np.log(scale)
        assert found == pytest.approx(expected, abs=1e-6 + 1e-14 * offset * X.size), (offset, scale)
        if hasattr(fit, "noise_variance_"):
            assert fit.lower_bound_ <= ceiling(fit, X.size)


@pairwise(offset=(0.0, 1e3, 1e5, 1e6), scale=SCALES, local_step=STEPS, data=(parts, duplicated))
def test_no_bound_of_parts_is_above_its_ceiling(local_step, data, offset, scale, rng):
    """Without a center, components are as large as the offset, and differ by the parts."""
    X = scale * (data(rng) + offset)
    fit = AnnealedFactorialMixture(
        3, local_step=local_step, effort=int(scale == 1), random_state=0
    ).fit(X)
    assert fit.lower_bound_ <= ceiling(fit, X.size)
    assert fit.score_samples(X).sum() <= ceiling(fit, X.size)
    assert fit.lower_bound_ == pytest.approx(exact_bound(fit, X), rel=1e-6)


@pairwise(local_step=STEPS, data=(parts, duplicated), offset=(1e7, 1e8))
def test_an_offset_that_leaves_no_digits_keeps_the_ceiling_or_is_refused(
    local_step, data, offset, rng
):
    X = data(rng) + offset
    fit = AnnealedFactorialMixture(3, local_step=local_step, effort=0, random_state=0)
    try:
        fit.fit(X)
    except ValueError as error:
        assert "center=True" in str(error)
    else:
        assert fit.lower_bound_ <= ceiling(fit, X.size)
    centered = clone(fit).set_params(center=True)
    assert centered.fit(X).lower_bound_ <= ceiling(centered, X.size)


@pairwise(name=ANNEALING, local_step=STEPS, batch_size=(None, 20))
def test_no_method_records_a_bound_above_the_ceiling(local_step, name, batch_size, rng):
    """The noise is given, so that all bounds of a fit have one ceiling."""
    X = parts(rng, 40, offset=1e5)
    fit = AnnealedFactorialMixture(
        *(3,),
        annealing=quick(name),
        local_step=local_step,
        noise_variance=0.5,
        batch_size=batch_size,
        effort=1 if name == "reheating" else 0,
        max_iter=20,
        random_state=0,
    ).fit(X)
    found = fit.lower_bounds_[~np.isnan(fit.lower_bounds_)]
    assert len(found) > 0
    assert (found <= ceiling(fit, X.size)).all()


@in_turn(how=("whole", "in_parts", "minibatches", "stream"), local_step=STEPS)
def test_learned_noise_is_the_error_of_the_rows(local_step, how, rng):
    """σ² is E‖x − zᵀμ‖² of a cell at the end of a fit, however the rows arrive."""
    X = parts(rng, 100, offset=1e5)
    params = {"local_step": local_step, "annealing": "none", "random_state": 0, "effort": 0}
    batch = {"batch_size": 25} if how == "minibatches" else {}
    fit = AnnealedFactorialMixture(3, tol=1e-9, max_iter=150, **params, **batch)
    if how == "in_parts":
        fit.fit(Shards([X[:30], X[30:75], X[75:]]))
    elif how == "stream":
        for _ in range(300):
            fit.partial_fit(X)
    else:
        fit.fit(X)
    assert fit.noise_variance_ == pytest.approx(expected_error(fit, X) / X.size, rel=1e-3)


@in_turn(scale=SCALES, local_step=STEPS)
def test_a_constant_far_from_zero_changes_nothing_with_center(local_step, scale, rng):
    X = parts(rng, 100)
    params = {"center": True, "local_step": local_step, "effort": 0, "random_state": 0}
    one, other = (AnnealedFactorialMixture(3, **params).fit(Y) for Y in (X, scale * (X + 1e5)))
    # Rounding can lead the search to the same components in another order.
    here, there = (np.argsort(est.means_[:, 0]) for est in (one, other))
    np.testing.assert_allclose(other.means_[there] / scale, one.means_[here], rtol=1e-6, atol=1e-6)
    assert other.noise_variance_ / scale**2 == pytest.approx(one.noise_variance_, rel=1e-7)
    np.testing.assert_allclose(
        other.transform(scale * (X + 1e5))[:, there], one.transform(X)[:, here], atol=1e-6
    )
    np.testing.assert_allclose(
        *(other.score_samples(scale * (X + 1e5)) + X.shape[1] * np.log(scale),),
        one.score_samples(X),
        rtol=1e-6,
    )


# What is expected, in numbers of fifty digits


def expected_error(fit, X):
    """E‖x − zᵀμ‖² of all rows, in residuals."""
    return float(sum(mp.fsum(p * e for p, e, _ in row) for row in _states_of_rows(fit, X)))


def exact_bound(fit, X):
    """The bound of the parameters of a fit."""
    ctx = context_of(fit)
    k, d = fit.means_.shape
    noise, prior = mp.mpf(fit.noise_variance_), [mp.mpf(p) for p in fit.activation_probabilities_]
    with mp.workdps(50):
        data = mp.mpf(0)
        for row in _states_of_rows(fit, X):
            for p, error, z in row:
                log_prior = mp.fsum(
                    mp.log(a if on else 1 - a) for a, on in zip(prior, z, strict=True)
                )
                loss = error / noise + d * mp.log(2 * mp.pi * noise)
                data += p * (log_prior - loss / 2 - mp.log(p))
        mean, covariance = _exact_q(ctx)
        variance = mp.mpf(fit.mean_variance_)
        squares = mp.fsum(m**2 for m in mean) + d * mp.fsum(covariance[i, i] for i in range(k))
        kl = (squares / variance - k * d + k * d * mp.log(variance)) / 2
        kl -= d * mp.log(mp.det(covariance)) / 2
        return float(data - kl)


def _exact_q(ctx):
    precision = mp.matrix(ctx.q["precision"].tolist())
    covariance = precision**-1
    return covariance * mp.matrix(ctx.q["natural_mean"].tolist()), covariance


def _states_of_rows(fit, X):
    """For each row, q(z), E‖x − zᵀμ‖² and z of all states that have any probability."""
    with mp.workdps(50):
        ctx = context_of(fit)
        mean, covariance = _exact_q(ctx)
        k, d = fit.means_.shape
        every = [[int(on) for on in z] for z in states(k)]
        sums, spread = [], []
        for z in every:
            active = [i for i in range(k) if z[i]]
            sums.append([mp.fsum(mean[i, j] for i in active) for j in range(d)])
            spread.append(d * mp.fsum(covariance[i, j] for i in active for j in active))
        noise = mp.mpf(fit.noise_variance_)
        prior = [mp.mpf(p) for p in fit.activation_probabilities_]
        activations = fit.transform(X)
        for x, nu in zip(X, activations, strict=True):
            errors = [
                mp.fsum((mp.mpf(a) - b) ** 2 for a, b in zip(x, one, strict=True)) + more
                for one, more in zip(sums, spread, strict=True)
            ]
            logs = [
                mp.fsum(mp.log(a if on else 1 - a) for a, on in zip(prior, z, strict=True))
                - error / (2 * noise)
                for z, error in zip(every, errors, strict=True)
            ]
            if fit.local_step == "enumerate":
                weights = [mp.exp(one - max(logs)) for one in logs]
            else:
                nu = [mp.mpf(a) for a in nu]
                weights = [
                    mp.fprod(a if on else 1 - a for a, on in zip(nu, z, strict=True)) for z in every
                ]
            total = mp.fsum(weights)
            yield [
                (w / total, e, z) for w, e, z in zip(weights, errors, every, strict=True) if w > 0
            ]
