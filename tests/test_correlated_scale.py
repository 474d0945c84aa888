"""Tests of the prior of covariance priors, which few rows for each column have."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import gammaln, psi
from sklearn.base import clone

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedHMM
from sklearn_anneal.models.components import _correlated_scale, _resolved_gaussians
from sklearn_anneal.models.components._correlated_scale import (
    learned_matrix,
    least_loss,
    log_correlation,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("d", [2, 7, 30])
@pytest.mark.parametrize("each", [-0.001, -0.3, -5.0])
@pytest.mark.parametrize("dof", [2, 120])
def test_losses_are_the_smallest_ones(d, each, dof):
    """They agree with a search over η; half of η is the slope of the loss."""
    below, r, total = 0.5 * np.arange(d), each * d, float(dof * d)

    def loss(x):
        eta = d - 1 + np.exp(x[0])
        a = eta + total
        own = [0.5 * y * d * np.log(0.5 * y) - gammaln(0.5 * y - below).sum() for y in (a, eta)]
        kappa = psi(0.5 * a - below).sum() + d * np.log(2 / a)
        divergence = own[0] - own[1] + 0.5 * (a - eta) * (kappa - d) - 0.5 * eta * r
        return divergence - 0.5 * total * kappa

    how = {"method": "Nelder-Mead", "options": {"fatol": 1e-10, "xatol": 1e-8, "maxiter": 4000}}
    best = min(minimize(loss, [np.log(s * total)], **how).fun for s in (1e-3, 0.1, 1, 30))
    found = least_loss(r, total, d)
    assert found[0] == pytest.approx(best, rel=1e-5)
    change = [least_loss(r * factor, total, d)[0] for factor in (1 + 1e-5, 1 - 1e-5)]
    assert (change[0] - change[1]) / (-2e-5 * r) == pytest.approx(0.5 * found[1], rel=1e-3)


def test_a_diagonal_loses_nothing():
    assert least_loss(log_correlation(np.diag([1.0, 4.0, 9.0])), 10.0, 3) == (0.0, np.inf)


@pytest.mark.parametrize("unit", [1e-150, 1e-90, 1e90, 1e150])
def test_units_do_not_matter_to_correlations(unit, rng):
    """Products of two variances leave the range of numbers."""
    scale = np.cov(rng.normal(size=(4, 20)))
    units = np.multiply.outer([unit, unit, unit, 2.0], [unit, unit, unit, 2.0])
    assert log_correlation(units * scale) == pytest.approx(log_correlation(scale))


def test_steps_end_where_the_slope_is_zero(rng):
    x = rng.normal(size=(3, 30, 5)) @ rng.normal(size=(5, 5))
    scatters, n, dof, eta = np.swapaxes(x, 1, 2) @ x, 30.0, 12.0, 8.0
    scale = scatters.mean(axis=0)
    for _ in range(3000):
        precision = ((dof + n) * np.linalg.inv(scale + scatters)).sum(axis=0)
        scale = learned_matrix(precision, scale, 3 * dof, eta)
    slope = (3 * dof + eta) * np.linalg.inv(scale) - np.diag(eta / np.diagonal(scale))
    assert_allclose(slope, precision, rtol=1e-6)


def factors(n, d=20, seed=0, k=6):
    """Rows of groups in which six factors, common to all, make most of the variance."""
    rng, of_all = np.random.default_rng(seed), np.random.default_rng(1)
    loadings, centers = 2.0 * of_all.normal(size=(6, d)), 30.0 * of_all.normal(size=(k, d))
    return (
        centers[np.arange(n) % k]
        + 0.2 * rng.normal(size=(n, d))
        + rng.normal(size=(n, 6)) @ loadings
    )


MADE = AnnealedBayesianGaussianMixture(6, annealing="none", random_state=0, max_iter=300)
HMM = AnnealedHMM(6, annealing="none", random_state=0, max_iter=300)


@pytest.mark.parametrize("n", [60, 100, 160])
def test_a_matrix_is_learned_where_components_share_covariances(n, monkeypatch):
    """The bound never falls, and other rows are predicted better than with a diagonal."""
    X, others = factors(n), factors(400, seed=7)
    mixture = clone(MADE).fit(X)
    assert np.diff(mixture.lower_bounds_).min() > -1e-6
    assert np.count_nonzero(mixture.covariance_prior_) == 400
    monkeypatch.setattr(_resolved_gaussians, "_singular", lambda *_: True)
    diagonal = clone(MADE).fit(X)
    assert np.count_nonzero(diagonal.covariance_prior_) == 20
    assert mixture.lower_bound_ > diagonal.lower_bound_
    assert mixture.score(others) > diagonal.score(others)


@pytest.mark.parametrize("n", [20, 50, 75])
@pytest.mark.parametrize("model, matrix", [(MADE, "covariance_prior_"), (HMM, "scale_prior_")])
def test_single_components_learn_a_matrix(model, matrix, n):
    """The rows of a single component never move, so that the first pass changes the prior alone."""
    fitted = clone(model).set_params(n_components=1).fit(factors(n, d=8))
    assert np.count_nonzero(getattr(fitted, matrix)) == 64
    assert np.diff(fitted.lower_bounds_).min() > -1e-6


@pytest.mark.parametrize("n", [60, 160])
def test_noise_keeps_the_diagonal(n, rng):
    mixture = clone(MADE).set_params(n_components=2).fit(rng.normal(size=(n, 20)))
    assert np.count_nonzero(mixture.covariance_prior_) == 20


def test_scores_do_not_jump_at_two_rows_for_each_column(rng):
    """A matrix at which the bound is highest would lose ten nats there."""
    X = rng.normal(size=(400, 20))
    X[::2] += 1.0
    scores = [clone(MADE).fit(X[:n]).score(X[200:]) for n in (38, 39, 40, 41, 42)]
    assert np.ptp(scores) < 1.0


def test_weights_are_repeated_rows_where_a_matrix_is_learned(rng):
    X, weights = factors(60), rng.integers(1, 3, size=60)
    weighted = clone(MADE).fit(X, sample_weight=weights)
    repeated = clone(MADE).fit(X.repeat(weights, axis=0))
    assert np.count_nonzero(weighted.covariance_prior_) == 400
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-3)


def test_states_of_hidden_markov_models_share_a_matrix():
    X = factors(100)
    model = clone(HMM).fit(X)
    assert np.count_nonzero(model.scale_prior_) == 2400
    assert np.diff(model.lower_bounds_).min() > -1e-6


def test_a_matrix_is_learned_with_missing_cells(rng):
    X = factors(100)
    X[rng.random(X.shape) < 0.02] = np.nan
    mixture = clone(MADE).fit(X)
    assert np.count_nonzero(mixture.covariance_prior_) == 400
    assert np.diff(mixture.lower_bounds_).min() > -1e-6


def alike(n_components, n_rows, d, loading):
    """Rows of groups that are far apart and share a covariance."""
    rng = np.random.default_rng(n_components)
    n = n_components * n_rows
    root = np.eye(d) + loading / np.sqrt(d) * np.tril(rng.normal(size=(d, d)))
    X = rng.normal(size=(n, d)) @ root.T
    return X + 6.0 * rng.normal(size=(n_components, d))[np.arange(n) % n_components]


def test_a_matrix_is_tried_where_the_value_has_changed_and_settled():
    """At the last try the matrix was 2 nats below the diagonal, whose value was -100."""

    def tries(last, now):
        step = SimpleNamespace(tried=(-100.0, 2.0, last))
        found = _correlated_scale._tries_a_matrix(step, now)
        assert step.tried == (-100.0, 2.0, now), "the next pass compares with another value"
        return found

    assert _correlated_scale._tries_a_matrix(SimpleNamespace(tried=None), -100.0), "the first pass"
    assert not tries(-70.0, -69.9), "a change of 15 differences is too small"
    assert tries(-40.0, -38.0), "it has changed by 31 differences, and by 3 % of that now"
    assert tries(-162.0, -160.0), "a fall is a change too"
    assert not tries(-60.0, -40.0), "a third of the change was in the last pass"


@pytest.mark.parametrize(
    ("groups", "becomes_matrix", "most"),
    [((10, 10, 20, 2.0), True, 2), ((4, 10, 8, 0.5), False, 3), ((5, 15, 20, 0.5), False, 3)],
)
def test_seldom_tries_end_where_tries_in_every_pass_do(groups, becomes_matrix, most, monkeypatch):
    """The first try fails in all of these, because the diagonal has not been learned yet."""
    X, d, rule, tried = alike(*groups), groups[2], _correlated_scale._tries_a_matrix, []

    def noted(step, now):
        tried.append(rule(step, now))
        return tried[-1]

    made = clone(MADE).set_params(n_components=groups[0], effort=0, max_iter=60, tol=0.0)
    monkeypatch.setattr(_correlated_scale, "_tries_a_matrix", noted)
    found = clone(made).fit(X)
    assert tried[:2] == [True, False]
    assert np.count_nonzero(found.covariance_prior_) == (d * d if becomes_matrix else d)
    assert sum(tried) <= most, "each try takes as long as some passes"
    monkeypatch.setattr(_correlated_scale, "_tries_a_matrix", lambda *_: True)
    often = clone(made).fit(X)
    assert found.lower_bound_ == pytest.approx(often.lower_bound_, rel=1e-9)
