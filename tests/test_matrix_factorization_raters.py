"""Tests of what the users who rated an item tell about it."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from cases_matrix_factorization import NAN, pairs_of, ratings, rows_of, small
from harness import context_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from sklearn_anneal import Shards
from sklearn_anneal.data.units import Ratings
from sklearn_anneal.models import _rating_raters
from sklearn_anneal.models._rating_raters import Pattern, Raters

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def learning(n_components=2, **params):
    settings = {"hierarchical": True, "implicit_feedback": True, "clip": False}
    return small(n_components, **(settings | params))


def units_of(Y, weights=None, rating_weights=None):
    there = ~np.isnan(Y)
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    columns = np.nonzero(there)[1].astype(np.int32)
    return Ratings(Y[there], columns, indptr, Y.shape[1], weights, rating_weights)


def design_of(Y, rating_weights=None):
    """The coefficients of effects, the last of which all users share, (n_items, n_users + 1)."""
    there = (~np.isnan(Y)).astype(float)
    if rating_weights is not None:
        there[there > 0] = rating_weights
    roots = np.sqrt(there.sum(axis=0))
    own = there / np.where(roots > 0, roots, 1.0)
    return np.vstack([own, np.sqrt(_rating_raters._SHARED) * roots]).T


def updated(raters, x, n, precision, common):
    for _ in range(n):
        raters = raters.updated(x, common, precision, 1.0)
    return raters


@pytest.fixture
def items(rng):
    root = rng.standard_normal((3, 3))
    return rng.standard_normal((6, 3)), root @ root.T + np.eye(3), rng.standard_normal(3)


@pytest.mark.parametrize("weighted", [False, True])
def test_effects_are_those_of_a_linear_regression(weighted, items, rng):
    """At its optimum q(z) is the exact posterior, along the directions that items tell about."""
    x, precision, common = items
    Y = np.where(rng.random((9, 6)) < 0.6, 1.0, NAN)
    Y[0] = NAN
    weights = rng.uniform(0.5, 2.0, int((~np.isnan(Y)).sum())) if weighted else None
    raters = updated(Raters.of(units_of(Y, None, weights), np.ones(3)), x, 1500, precision, common)
    # One more update, of the effects alone, reads the last V.
    last = raters.updated(x, common, precision, 1.0)
    A, V = design_of(Y, weights), raters.covariance
    # The posterior precision of all effects is AᵀA ⊗ Λ + I ⊗ V⁻¹.
    both = np.kron(A.T @ A, precision) + np.kron(np.eye(10), np.linalg.inv(V))
    left = (x - common) @ precision
    exact = np.linalg.solve(both, (A.T @ left).ravel()).reshape(10, 3)
    effects = A.T @ last.sources
    assert_allclose(effects, exact, atol=1e-6)
    assert_allclose(last.offsets, A @ effects, atol=1e-10)
    # There are six of them, as many as items.
    assert last.number == 6
    directions = np.kron(np.linalg.svd(A, full_matrices=False)[2], np.eye(3))
    covariance = np.linalg.inv(both)
    own = directions @ covariance @ directions.T
    within = np.einsum("kakb->ab", own.reshape(6, 3, 6, 3))
    assert_allclose(last.second, within + effects.T @ effects, atol=1e-6)
    assert last.logs == pytest.approx(np.linalg.slogdet(own)[1])
    design = np.kron(A, np.eye(3))
    of_offsets = (design @ covariance @ design.T).reshape(6, 3, 6, 3)
    assert_allclose(last.spread, np.einsum("jajb->ab", of_offsets), atol=1e-8)


def exact_gain(raters, Y, x, common, precision):
    """What effects of known V add to the log density of known items, in nats."""
    A = design_of(Y)
    alone = np.kron(np.eye(len(x)), np.linalg.inv(precision))
    with_ = multivariate_normal(cov=np.kron(A @ A.T, raters.covariance) + alone)
    left = (x - common).ravel()
    return with_.logpdf(left) - multivariate_normal(cov=alone).logpdf(left)


@pytest.mark.parametrize(("dense", "directions"), [(1000, 100), (3, 2), (3, 4)])
def test_bound_is_the_density_of_items_if_all_directions_are_found(
    dense, directions, items, rng, monkeypatch
):
    """With some of them, it is a bound."""
    monkeypatch.setattr(_rating_raters, "_DENSE", dense)
    monkeypatch.setattr(_rating_raters, "_DIRECTIONS", directions)
    x, precision, common = items
    Y = np.where(rng.random((30, 6)) < 0.6, 1.0, NAN)
    raters = Raters.of(units_of(Y), np.ones(3))
    assert raters.number == 6
    assert raters.pattern.variance == pytest.approx(1.0)
    bounds = []
    for _ in range(300):
        raters = raters.updated(x, common, precision, 1.0)
        bounds.append(raters.log_priors(x, common, precision).sum() - raters.kl(precision))
    assert np.diff(bounds).min() > -1e-9
    gap = exact_gain(raters, Y, x, common, precision) - bounds[-1]
    assert abs(gap) < 1e-6 if dense > 6 else 1e-3 < gap < 5.0


def test_users_alike_are_one_user_with_a_weight(items, rng):
    x, precision, common = items
    Y = np.where(rng.random((5, 6)) < 0.6, 1.0, NAN)
    Y[:, 0] = 1.0
    weights = np.array([1.0, 3.0, 1.0, 2.0, 1.0])
    one = updated(Raters.of(units_of(Y, weights), np.ones(3)), x, 600, precision, common)
    twice = np.repeat(np.arange(5), weights.astype(int))
    many = updated(Raters.of(units_of(Y[twice]), np.ones(3)), x, 600, precision, common)
    assert_allclose(one.offsets, many.offsets, atol=1e-6)
    assert_allclose(one.covariance, many.covariance, atol=1e-6)
    assert_allclose(one.spread, many.spread, atol=1e-6)
    assert one.kl(precision) == pytest.approx(many.kl(precision), abs=1e-5)


def test_a_pair_that_occurs_twice_is_one_with_a_weight(items, rng):
    x, precision, common = items
    Y = np.where(rng.random((5, 6)) < 0.6, 1.0, NAN)
    once = units_of(Y, None, rng.choice([1.0, 2.0], int((~np.isnan(Y)).sum())))
    times = once.rating_weights.astype(int)
    indptr = np.concatenate([[0], np.cumsum(times)])[once.indptr]
    # The two occurrences of a pair need not be neighbours.
    order = np.concatenate([rng.permutation(np.arange(*ends)) for ends in pairwise(indptr)])
    twice = Ratings(
        np.repeat(once.values, times)[order], np.repeat(once.columns, times)[order], indptr, 6
    )
    for n in (0, 1, 30):
        a, b = (
            updated(Raters.of(each, np.ones(3)), x, n, precision, common) for each in (once, twice)
        )
        assert_allclose(a.offsets, b.offsets, atol=1e-12)
        assert a.kl(precision) == pytest.approx(b.kl(precision), rel=1e-12)


def test_effects_do_not_depend_on_the_unit_of_weights(items, rng):
    x, precision, common = items
    Y = np.where(rng.random((30, 6)) < 0.6, 1.0, NAN)
    weights = rng.uniform(0.5, 2.0, int((~np.isnan(Y)).sum()))
    for unit in (1e-12, 1e6):
        for n in (0, 1, 30):
            a, b = (
                updated(Raters.of(units_of(Y, None, each), np.ones(3)), x, n, precision, common)
                for each in (weights, unit * weights)
            )
            assert_allclose(b.offsets, a.offsets, atol=1e-9)
            assert_allclose(unit * b.covariance, a.covariance, rtol=1e-9)
            assert_allclose(b.spread, a.spread, rtol=1e-9)
            assert b.kl(precision) == pytest.approx(a.kl(precision), rel=1e-9)


@pytest.mark.parametrize("weight", [1e-308, 1e-318])
def test_the_least_weights_of_ratings_leave_the_bound_finite(weight, rng):
    X, y = pairs_of(ratings(rng, 20, 10))
    est = learning(input="pairs", max_iter=5)
    with pytest.warns(UserWarning, match="less than one observation"):
        est.fit(X, y, sample_weight=np.full(len(y), weight))
    assert np.isfinite(est.lower_bound_)
    assert_allclose(est.predict(X), y.mean(), atol=1e-6)


def test_large_weights_of_ratings_leave_the_prior_of_items_finite(rng):
    Y = ratings(rng, 80, 10)
    X, y = pairs_of(Y)
    est = learning(input="pairs", max_iter=100).fit(X, y, sample_weight=np.full(len(y), 1e4))
    assert np.abs(est.item_prior_cov_).max() < 100.0 * np.nanvar(Y)


@pytest.mark.parametrize("biases", [True, False])
def test_bound_is_a_mean_over_draws_of_all_parameters(biases, rng):
    """E_q[log p(x, z) − log q(z)] of effects and items, at the means of μ and Λ."""
    Y = ratings(rng, 12, 5)
    est = learning(biases=biases, max_iter=30).fit(Y)
    # The fit drops the effects. Updates given its items make them again, and S_i reads the V of the
    # update before the last one.
    model = context_of(est).model
    items, n = rows_of(context_of(est).q, "items"), 200_000
    common, precision = model.hierarchy.expected("items")
    before, raters = (
        updated(Raters.of(units_of(Y), model.variances), items.mean, k, precision, common)
        for k in (4, 5)
    )
    A, size = design_of(Y), model.size
    turned, roots, directions = np.linalg.svd(A, full_matrices=False)
    drawn, terms = np.zeros((len(roots), n, size)), np.zeros(n)
    V = raters.covariance
    for k, direction in enumerate(directions):
        S = np.linalg.inv(np.linalg.inv(before.covariance) + roots[k] ** 2 * precision)
        white = rng.multivariate_normal(np.zeros(size), S, n)
        z = A @ direction @ raters.sources + white
        inner = np.einsum("ni,ij,nj->n", z, np.linalg.inv(V), z) + np.linalg.slogdet(V)[1]
        own = np.einsum("ni,ij,nj->n", white, np.linalg.inv(S), white) + np.linalg.slogdet(S)[1]
        terms += 0.5 * (own - inner)
        drawn[k] = z
    offsets = np.einsum("jk,knd->jnd", turned * roots, drawn)
    for j in range(Y.shape[1]):
        left = items.mean[j] - common - offsets[j]
        terms -= 0.5 * np.einsum("ni,ij,nj->n", left, precision, left)
        left = items.mean[j] - common
        terms += 0.5 * left @ precision @ left
    found = raters.log_priors(items.mean, common, precision).sum() - raters.kl(precision)
    assert abs(found - terms.mean()) < 5 * terms.std() / np.sqrt(n)


def test_an_update_does_not_lower_the_bound_whatever_is_learned(rng):
    Y = ratings(rng, 20, 8)
    weights = rng.choice([0.0, 0.5, 2.0], len(Y))
    for learned in ({}, dict.fromkeys(("noise_variance", "factor_variance"), "auto")):
        for given in (None, weights):
            for scales in (False, True):
                est = learning(max_iter=40, user_scales=scales, **learned)
                est.fit(Y, sample_weight=given)
                assert np.diff(est.lower_bounds_).min() > -1e-9 * abs(est.lower_bound_)


def drawn_by_taste(rng, n_users=300, n_items=80):
    """Ratings, of which each user gives more to items whose bias and factor suit the user."""
    taste = rng.standard_normal(n_users)
    factor, bias = rng.standard_normal(n_items), 0.7 * rng.standard_normal(n_items)
    noise = 0.8 * rng.standard_normal((n_users, n_items))
    Y = 3.0 + np.outer(taste, factor) + bias + noise
    chance = 1.0 / (1.0 + np.exp(2.5 - np.outer(taste, factor) - 1.5 * bias))
    there = rng.random(Y.shape) < chance
    held = there & (rng.random(Y.shape) < 0.2)
    return np.where(there & ~held, Y, NAN), np.where(held, Y, NAN)


def test_choices_tell_about_items(rng):
    Y, held = drawn_by_taste(rng)
    X, y = pairs_of(held)
    found = []
    for given in (False, "auto"):
        est = learning(1, implicit_feedback=given, max_iter=100).fit(Y)
        predicted = est.predict_ratings(*X.T)
        found.append((est.lower_bound_, -np.mean((predicted - y) ** 2)))
    without, with_ = np.array(found)
    assert (with_ > without + [10.0, 0.005]).all()


@pytest.mark.parametrize("input", ["matrix", "pairs"])
def test_both_forms_of_ratings_agree(input, rng):
    Y = ratings(rng)
    est = learning().fit(Y)
    pairs = learning(input="pairs", n_users=len(Y), n_items=Y.shape[1]).fit(*pairs_of(Y))
    assert_allclose(pairs.lower_bound_, est.lower_bound_, rtol=1e-9)
    assert_allclose(pairs.components_, est.components_, atol=1e-7)


def test_a_fit_keeps_nothing_of_its_ratings(rng):
    Y = ratings(rng, 2_000, 6)
    est = learning().fit(Y)
    assert context_of(est).model.raters.pattern is None
    again = pickle.loads(pickle.dumps(est))
    assert_array_equal(again.predict_rows(Y[:5]), est.predict_rows(Y[:5]))
    few, many = (
        len(pickle.dumps(context_of(learning().fit(Y[:n])).model.raters)) for n in (1_000, 2_000)
    )
    assert few == many


def test_streams_and_parts_have_no_implicit_feedback(rng):
    Y = ratings(rng)
    for fit in (lambda est: est.partial_fit(Y), lambda est: est.fit(Shards([Y[:12], Y[12:]]))):
        for given in (True, np.True_):
            with pytest.raises(ValueError, match="are fitted without implicit_feedback"):
                fit(learning(implicit_feedback=given))
        assert context_of(fit(learning(implicit_feedback="auto"))).model.raters is None
    with pytest.raises(ValueError, match="needs hierarchical=True"):
        learning(hierarchical=False).fit(Y)
    assert (
        context_of(learning(hierarchical=False, implicit_feedback="auto").fit(Y)).model.raters
        is None
    )


def test_a_stream_goes_on_from_the_priors_of_a_fit(rng):
    Y = ratings(rng, 60)
    est = learning(implicit_feedback="auto").fit(Y)
    offsets = context_of(est).model.raters.offsets
    assert np.abs(offsets).max() > 0.01
    est.partial_fit(Y[:20])
    assert_array_equal(context_of(est).model.raters.offsets, offsets)


@pytest.mark.parametrize(
    "annealing", ["deterministic", "stochastic", "svi_plus", "structured", "proximity", "tempering"]
)
def test_every_annealing_learns_from_raters(annealing, rng):
    Y, _ = drawn_by_taste(rng, 60, 20)
    est = learning(1, annealing=annealing, max_iter=40).fit(Y)
    assert np.abs(context_of(est).model.raters.offsets).max() > 0.01
    assert np.isfinite(est.lower_bound_)


def test_minibatches_learn_from_all_raters(rng):
    Y, _ = drawn_by_taste(rng, 200, 20)
    whole = learning(1, max_iter=200).fit(Y)
    est = learning(1, batch_size=50, max_iter=200).fit(Y)
    a, b = (context_of(found).model.raters.offsets[:, -1] for found in (whole, est))
    assert np.corrcoef(a, b)[0, 1] > 0.9


def test_small_batches_do_not_read_all_ratings_at_every_update(rng, monkeypatch):
    Y, _ = drawn_by_taste(rng, 200, 20)
    calls, steps = [], Pattern.steps
    monkeypatch.setattr(Pattern, "steps", lambda *given: calls.append(0) or steps(*given))
    est = learning(1, batch_size=4, max_iter=20).fit(Y)
    # A tenth of the data is five batches.
    assert est.n_iter_ < len(calls) <= 10 * est.n_iter_
    whole = learning(1, max_iter=200).fit(Y)
    a, b = (context_of(found).model.raters.offsets[:, -1] for found in (whole, est))
    assert np.corrcoef(a, b)[0, 1] > 0.9


def test_reordered_factors_have_the_same_bound(rng):
    Y = ratings(rng)
    est = learning(3).fit(Y)
    model, raters = context_of(est).model, context_of(est).model.raters
    order = np.array([2, 0, 1, 3])
    _, precision = model.hierarchy.expected("items")
    moved = raters.turned(np.eye(4)[order])
    assert moved.kl(precision[order][:, order]) == pytest.approx(raters.kl(precision))
    assert_array_equal(moved.offsets, raters.offsets[:, order])
