"""Moves of spike-and-slab factor analysis, and the scale of its factors."""

from __future__ import annotations

import numpy as np
import pytest
from harness import context_of, units_of, visit
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis
from sklearn_anneal.annealing import NoAnnealing
from sklearn_anneal.inference import loop
from sklearn_anneal.models._factor_moves import Residuals, evidence, given_up, most_alike, sought
from sklearn_anneal.parallel.workers import SEQUENTIAL


def rows(rng, n=300, missing=0.0):
    """Rows with four sparse factors, and their loadings."""
    loadings = 2.0 * rng.standard_normal((4, 12))
    factors = rng.standard_normal((n, 4)) * (rng.random((n, 4)) < 0.3)
    X = factors @ loadings + 0.5 * rng.standard_normal((n, 12))
    X[rng.random(X.shape) < missing] = np.nan
    return X, loadings


def cosine(a, b):
    return abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)


def fitted(X, **params):
    return AnnealedSpikeSlabFactorAnalysis(4, random_state=0).set_params(**params).fit(X)


def test_what_a_factor_brings_is_the_gain_of_log_densities(rng):
    w, r, prior = rng.standard_normal(3), rng.standard_normal((5, 3)), 0.3
    gains, active = evidence(r @ w, np.array([w @ w]), np.log(prior / (1.0 - prior)))
    without = multivariate_normal(np.zeros(3), np.eye(3)).pdf(r)
    on = multivariate_normal(np.zeros(3), np.eye(3) + np.outer(w, w)).pdf(r)
    both = (1.0 - prior) * without + prior * on
    assert_allclose(gains, np.log(both / without), rtol=1e-10)
    assert_allclose(active, prior * on / both, rtol=1e-10)


def test_a_factor_that_no_row_needs_costs_the_divergence_of_its_loadings(rng):
    ctx = context_of(fitted(rows(rng)[0], annealing="none", max_iter=3, loading_variance=0.3))
    standard = ctx.model.standard(ctx.q)
    means, variances = standard["mean"], np.diag(standard["covariance"])[:, None]
    nothing = Residuals(np.zeros((5, means.shape[1])), None, np.zeros(5))
    brought = ctx.model._brought(ctx.q, nothing, np.zeros((5, len(means))))
    divergence = (means**2 + variances) / 0.3 - 1.0 - np.log(variances / 0.3)
    assert_allclose(brought, -0.5 * divergence.sum(axis=1))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_factor_is_found_in_the_residuals(missing, rng):
    """Rows of weight 0 have another factor, which is not found."""
    truth, other = 3.0 * rng.standard_normal((2, 10))
    on = rng.standard_normal(400) * (rng.random(400) < 0.2)
    X = rng.standard_normal((400, 10))
    X += np.where(np.arange(400) < 300, np.outer(truth, on), np.outer(other, 3.0 * on)).T
    weights = (np.arange(400) < 300).astype(float)
    observed = (rng.random(X.shape) > missing).astype(float) if missing else None
    left = Residuals(X if observed is None else X * observed, observed, weights)
    found = max((sought(left, left.drawn(rng), 1.0, 0.5, 1e-4) for _ in range(4)), key=gain)
    assert cosine(found.loadings, truth) > 0.98
    assert 0.1 < found.activation_prior < 0.3
    assert found.gain > 0
    again = sought(left, found.loadings, 1.0, found.activation_prior, 1e-4)
    assert again.gain == pytest.approx(found.gain, rel=0.01)
    shrunk = sought(left, found.loadings, 1e-3, found.activation_prior, None).loadings
    assert np.linalg.norm(shrunk) < 0.5 * np.linalg.norm(truth)


def gain(factor):
    return factor.gain


def test_rows_without_residuals_lead_to_no_factor(rng):
    left = Residuals(np.zeros((5, 3)), None, np.ones(5))
    assert left.drawn(rng) is None


def test_the_factor_that_brings_least_is_given_up_most_often():
    brought = np.array([500.0, 5.0, 300.0, 400.0])
    chosen = [given_up(brought, np.random.default_rng(i), True) for i in range(50)]
    assert np.bincount(chosen, minlength=4)[1] > 40
    drawn = [given_up(brought, np.random.default_rng(i), False) for i in range(50)]
    assert set(drawn) == {0, 1, 2, 3}


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("variance", [1.0, "auto"])
def test_a_swap_finds_the_factor_that_a_start_has_missed(missing, variance, rng):
    """Two factors share the loadings of one, and no factor has those of another."""
    X, loadings = rows(rng, missing=missing)
    start = loadings[[0, 1, 2, 2]] + 0.01 * rng.standard_normal((4, 12))
    shared = {"components_init": start, "loading_variance": variance}
    plain = fitted(X, **shared, annealing="none", max_iter=30)
    ctx = context_of(plain)
    units = units_of(plain, X).centered(ctx.summary)
    q = ctx.model._around(start / np.sqrt(ctx.model.noise_variance), ctx.summary)
    given = ctx.model, units, q, ctx.summary, ctx.prior
    for i in range(3):
        model, prior, moved = given[0].swapped(*given[1:], np.random.default_rng(i), i < 2)
        assert max(cosine(loadings[3], w) for w in start) < 0.7
        after = model.loadings(moved).means * np.sqrt(model.noise_variance)
        assert max(cosine(loadings[3], w) for w in after) > 0.9
        assert_array_equal(model.prior(None)["precision"], prior["precision"])
    searched = fitted(X, **shared)
    best = [max(cosine(row, w) for w in searched.components_) for row in loadings]
    assert min(best) > 0.97
    assert searched.lower_bound_ > plain.lower_bound_ - 1e-6 * abs(plain.lower_bound_)


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_factors_with_the_same_loadings_become_one(missing, rng):
    X, loadings = rows(rng, missing=missing)
    start = np.concatenate([loadings, -loadings[:1]])
    est = fitted(X, n_components=5, components_init=start, annealing="none", max_iter=1)
    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    model, prior, q = ctx.model.merged(units, ctx.q, ctx.summary, ctx.prior, rng)
    merged = model.loadings(q).means * np.sqrt(model.noise_variance)
    lengths = np.linalg.norm(merged, axis=1)
    assert_allclose(min(lengths[[0, 4]]), 0.0, atol=1e-9)
    assert cosine(merged[0 if lengths[0] > 0 else 4], loadings[0]) > 0.97
    assert_allclose(merged[1:4], est.components_[1:4], rtol=1e-6, atol=1e-8)
    assert model.merged(units, q, ctx.summary, prior, rng) is None


def test_alike_are_loadings_in_opposite_directions_too():
    loadings = np.array([[1.0, 2.0], [0.0, 0.0], [2.0, -1.0], [-2.0, -4.1]])
    assert most_alike(loadings, np.array([0, 2, 3])) == (0, 3)
    assert most_alike(loadings, np.array([0, 2])) is None
    assert most_alike(loadings, np.array([2])) is None


def test_one_factor_has_nothing_to_swap(rng):
    X, _ = rows(rng, n=60)
    est = fitted(X, n_components=1)
    assert not any("swap" in move or move == "merge" for move in est.search_results_["move"])


@pytest.mark.parametrize("n_jobs", [2])
def test_workers_do_not_change_a_search_with_swaps(n_jobs, rng):
    X, _ = rows(rng, n=120, missing=0.1)
    weights = rng.integers(1, 4, len(X)).astype(float)
    one, other = (
        AnnealedSpikeSlabFactorAnalysis(3, random_state=0, n_jobs=n, max_iter=30).fit(
            X, sample_weight=weights
        )
        for n in (1, n_jobs)
    )
    assert "guided swap" in one.search_results_["move"]
    assert_array_equal(one.components_, other.components_)
    assert_array_equal(one.search_results_["lower_bound"], other.search_results_["lower_bound"])


# The scale of factors


def of_scale(ctx, q, factor, c):
    """q after the loadings of one factor were divided by c."""
    by = np.ones(ctx.model.n_components)
    by[factor] = c
    grid = np.outer(by, by)
    if ctx.model.missing:
        precision = q["precision"] * grid
        return {"precision": precision, "natural_mean": q["natural_mean"] * by}
    return {"precision": q["precision"] * grid, "natural_mean": q["natural_mean"] * by[:, None]}


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_factors_have_the_scale_of_the_highest_bound(missing, rng):
    """c maximises E log p(s) + H[s] − KL(q(W) ‖ p(W)), where s is multiplied and W divided by c."""
    X, _ = rows(rng, missing=missing)
    est = fitted(X, annealing="none", max_iter=3, loading_variance=0.3, activation_prior=0.3)
    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    stats = visit(ctx, NoAnnealing(), units).step.statistics
    change = ctx.model._best_change(ctx.model.loadings(ctx.q), stats, 1.0, 1.0)
    by = np.diagonal(change)
    assert_array_equal(change, np.diag(by))
    assert np.abs(np.log(by)).max() > 0.05
    for k in range(2):

        def objective(log, k=k):
            c = np.exp(log)
            rows = stats["active"][k] * log - 0.5 * c**2 * stats["slabs"][k]
            return ctx.model.kl(of_scale(ctx, ctx.q, k, c), ctx.prior) - rows

        best = minimize_scalar(objective, bounds=(-2.0, 2.0), method="bounded")
        assert np.exp(best.x) == pytest.approx(by[k], rel=1e-3)


def test_learned_variances_follow_the_scale_at_once(rng):
    """Factors that are on have the mean square 1 after few passes, and the bound is that of q."""
    X, _ = rows(rng)
    est = fitted(X, annealing="none", loading_variance="learned", max_iter=60, tol=1e-7)
    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    stats = visit(ctx, NoAnnealing(), units).step.statistics
    used = stats["active"] > 5
    assert used.any()
    assert_allclose((stats["slabs"] / stats["active"])[used], 1.0, atol=0.01)
    assert loop.lower_bound(ctx, units, SEQUENTIAL) == pytest.approx(est.lower_bound_, rel=1e-6)
