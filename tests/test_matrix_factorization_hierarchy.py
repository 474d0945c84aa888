"""Tests of learned means and covariance matrices of users' and items' rows."""

from __future__ import annotations

import numpy as np
import pytest
from cases_matrix_factorization import (
    NAN,
    all_inputs,
    items_of,
    pairs_of,
    ratings,
    rows_of,
    small,
    users_of,
)
from harness import context_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import norm

from sklearn_anneal.families import NormalWishart
from sklearn_anneal.models._rating_hierarchy import Hierarchy, Rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def hierarchical(n_components=2, **params):
    settings = {"hierarchical": True, "implicit_feedback": False, "gibbs_sweeps": 0, "clip": False}
    return small(n_components, **(settings | params))


def drawn_priors(natural, side, n, rng):
    """Draws of the mean and the precision of one side, each with one row per draw."""
    rows = {key: np.repeat(value[side : side + 1], n, axis=0) for key, value in natural.items()}
    return NormalWishart("full", n, rows["mean_natural"].shape[1]).sample(rows, rng)


def log_densities(x, mean, precision):
    """log N(x | mean, precision⁻¹), with one row of each per draw."""
    shift = x - mean
    quadratic = np.einsum("ni,nij,nj->n", shift, precision, shift)
    log_det = np.linalg.slogdet(precision)[1]
    return 0.5 * (log_det - quadratic - x.shape[1] * np.log(2 * np.pi))


def hierarchy_of(est):
    return context_of(est).model.hierarchy


@pytest.mark.parametrize("biases", [True, False])
def test_bound_is_a_mean_over_draws_of_all_parameters(biases, rng):
    """E_q[log p(y, u, v, μ, Λ) − log q], where q(μ, Λ) is drawn too."""
    Y = ratings(rng, 4, 3)
    est = hierarchical(biases=biases, max_iter=30).fit(Y)
    hierarchy, n, d = hierarchy_of(est), 2_000, 2
    model = context_of(est).model
    items = rows_of(context_of(est).q, "items")
    users = model.solution(model.per_noise(est._user_statistics))
    users = rows_of({f"users_{key}": value for key, value in users.items()}, "users")
    terms, drawn = np.full(n, -hierarchy.kl), []
    for side, rows in enumerate((users, items)):
        z, p = [], drawn_priors(hierarchy.natural, side, n, rng)
        for mean, cov in zip(rows.mean, rows.cov, strict=True):
            x = rng.multivariate_normal(mean, cov, n)
            terms += log_densities(x, p["mean"], p["precision"])
            terms -= log_densities(x, mean, np.linalg.inv(cov)[None])
            z.append(x)
        drawn.append(np.array(z))
    u, v = drawn
    f = est.intercept_ + np.einsum("ink,jnk->nij", u[..., :d], v[..., :d])
    if biases:
        f += u[..., d].T[:, :, None] + v[..., d].T[:, None, :]
    terms += np.nansum(norm.logpdf(Y, f, np.sqrt(est.noise_variance_)), axis=(1, 2))
    error = terms.std() / np.sqrt(n)
    assert error < 0.2
    assert abs(est.lower_bound_ - terms.mean()) < 4 * error


def test_bound_is_below_the_log_evidence(rng):
    """The evidence of two items is a mean over draws of the prior, means and matrices included."""
    Y = np.array([[4.5, 2.0], [NAN, 3.0], [4.0, 1.5]])
    est = hierarchical(1, max_iter=200, tol=1e-9).fit(Y)
    n = 10_000
    of_users, of_items = (drawn_priors(hierarchy_of(est).prior, i, n, rng) for i in (0, 1))
    root = np.linalg.cholesky(np.linalg.inv(of_items["precision"]))
    white = rng.standard_normal((n, 2, 2))
    items = of_items["mean"][:, None] + np.einsum("nij,nkj->nki", root, white)
    # Given the items, the ratings of a user are Gaussian.
    design = np.stack([items[..., 0], np.ones((n, 2))], axis=2)
    mean = est.intercept_ + np.einsum("nki,ni->nk", design, of_users["mean"]) + items[..., 1]
    spread = design @ np.linalg.inv(of_users["precision"]) @ np.swapaxes(design, 1, 2)
    spread += est.noise_variance_ * np.eye(2)
    found = np.zeros(n)
    for row in Y:
        there = ~np.isnan(row)
        precision = np.linalg.inv(spread[:, there][:, :, there])
        found += log_densities(np.tile(row[there], (n, 1)), mean[:, there], precision)
    evidence = logsumexp(found) - np.log(n)
    error = np.exp(found - evidence).std() / np.sqrt(n)
    assert error < 0.2
    # A bound that lacked a normaliser of the normal-Wishart could be above the evidence.
    assert est.lower_bound_ < evidence + 4 * error


@pytest.mark.parametrize("biases", [True, False])
def test_the_distribution_of_priors_is_that_of_the_rows(biases, rng):
    """An update adds the moments of the rows to the natural parameters of the prior."""
    Y = ratings(rng)
    weights = rng.uniform(0.5, 2.0, len(Y))
    # An update reads the new items, and the users of the pass before.
    before, est = (
        hierarchical(biases=biases, max_iter=n).fit(Y, sample_weight=weights) for n in (9, 10)
    )
    hierarchy, ctx = hierarchy_of(est), context_of(est)
    users, _ = context_of(before).model.users_of(before._user_statistics)
    items = rows_of(ctx.q, "items")
    cov = before.user_factors_cov_, items.cov[:, :2, :2]
    for i, (rows, w) in enumerate([(users, weights), (items, np.ones(len(items.mean)))]):
        assert hierarchy.natural["dof"][i] == pytest.approx(2 + ctx.model.size + w.sum())
        assert hierarchy.natural["mean_precision"][i] == pytest.approx(2.0 + w.sum())
        assert_allclose(hierarchy.natural["mean_natural"][i], w @ rows.mean, rtol=1e-9, atol=1e-9)
        scatter = hierarchy.natural["scatter"][i] - hierarchy.prior["scatter"][i]
        expected = np.einsum("n,nij->ij", w, cov[i])
        expected += np.einsum("n,ni,nj->ij", w, rows.mean[:, :2], rows.mean[:, :2])
        assert_allclose(scatter[:2, :2], expected, rtol=1e-9, atol=1e-9)
    for key, value in ctx.model.row_prior("items").items():
        assert_allclose(ctx.prior[f"items_{key}"], value, rtol=1e-12)


def test_an_update_does_not_lower_the_bound_whatever_is_learned(rng):
    Y = ratings(rng, 20, 8)
    weights = rng.choice([0.0, 0.5, 2.0], len(Y))
    for learned in ({}, {"noise_variance": "auto"}, dict.fromkeys(AUTO, "auto")):
        for given in (None, weights):
            est = hierarchical(max_iter=40, **learned).fit(Y, sample_weight=given)
            assert np.diff(est.lower_bounds_).min() > -1e-9 * abs(est.lower_bound_)
        est.fit(Y)
        # More is learned than by one variance for all factors and one for all biases.
        fixed = small(max_iter=40, **learned).fit(Y)
        assert est.lower_bound_ != fixed.lower_bound_


AUTO = ("noise_variance", "factor_variance", "bias_variance")


def drawn_with_means(rng, n_users=60, n_items=25):
    """Ratings of items whose factors have a mean, and a covariance with their biases."""
    users = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.5], [0.5, 0.8]], n_users)
    items = rng.multivariate_normal([1.0, -0.5], [[0.3, 0.2], [0.2, 0.3]], n_items)
    f = 3.0 + users[:, :1] * items[:, 0] + users[:, 1:] + items[:, 1]
    Y = f + 0.5 * rng.standard_normal(f.shape)
    known = rng.random(Y.shape) < 0.2
    return np.where(known, Y, NAN), np.where(known, NAN, f)


def test_means_and_covariances_predict_better_where_rows_have_them(rng):
    Y, others = drawn_with_means(rng, 150, 40)
    errors = []
    for hierarchical in (True, False):
        est = small(
            hierarchical=hierarchical, clip=False, max_iter=60, **dict.fromkeys(AUTO, "auto")
        )
        errors.append(np.nanmean((est.fit(Y).predict_rows(Y) - others) ** 2, axis=1))
    # The mean over users is farther from zero than three of its standard errors.
    better = errors[1] - errors[0]
    assert better.mean() > 3 * better.std() / np.sqrt(len(Y))


@all_inputs
@pytest.mark.parametrize("biases", [True, False])
def test_users_and_items_without_ratings_have_the_mean_of_their_prior(input, biases, rng):
    Y, _ = drawn_with_means(rng)
    Y[3], Y[:, 4] = NAN, NAN
    data = pairs_of(Y) if input == "pairs" else (Y,)
    settings = {"n_users": len(Y), "n_items": Y.shape[1]} if input == "pairs" else {}
    before, est = (
        hierarchical(input=input, biases=biases, max_iter=n, **settings).fit(*data)
        for n in (19, 20)
    )
    d = est.n_components
    u, v = est.user_prior_mean_, est.item_prior_mean_
    assert np.abs(v).max() > 0.1
    assert_allclose(est.user_factors_[3], u[:d], rtol=1e-9, atol=1e-12)
    # The last update of the items has read the prior of the pass before.
    assert_allclose(est.components_[:, 4], before.item_prior_mean_[:d], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_factors_cov_[3], est.user_prior_cov_[:d, :d], rtol=1e-9, atol=1e-12)
    expected = est.intercept_ + u[:d] @ v[:d] + (u[d] + v[d] if biases else 0.0)
    users, items = [3, 9999], [9999, 9999]
    mean, std = est.predict_ratings(users, items, return_std=True)
    assert_allclose(mean, expected, rtol=1e-10)
    assert_allclose(est.predict_ratings(users, items), expected, rtol=1e-10)
    assert_allclose(std, std[0], rtol=1e-8)
    best = est.recommend_for([3, 9999], n=5)
    assert_array_equal(best[0], best[1])
    if input == "matrix":
        row = np.full((1, Y.shape[1]), NAN)
        assert_allclose(est.transform(row)[0], u[:d], rtol=1e-9, atol=1e-12)
        assert_allclose(est.inverse_transform(u[None, :d]), est.predict_rows(row), rtol=1e-9)
        n = 2_000
        drawn, factors = est.sample(n)
        cov, variances = est.user_prior_cov_[:d, :d], est.user_prior_cov_.diagonal()[:d]
        # Means of n draws, and products of deviations, differ by four standard errors at most.
        assert np.all(np.abs(factors.mean(axis=0) - u[:d]) < 4 * np.sqrt(variances / n))
        errors = np.sqrt((np.outer(variances, variances) + cov**2) / n)
        assert np.all(np.abs(np.cov(factors.T) - cov) < 4 * errors)
        shift = np.abs(drawn.mean(axis=0) - est.predict_rows(row)[0])
        assert np.all(shift < 4 * drawn.std(axis=0) / np.sqrt(n))


def test_factors_in_another_order_keep_their_priors(rng):
    Y, _ = drawn_with_means(rng)
    est = hierarchical(3, max_iter=10).fit(Y)
    mean, cov, expected = est.item_prior_mean_, est.item_prior_cov_, est.predict_rows(Y)
    est.reorder([2, 0, 1])
    order = [2, 0, 1, 3]
    assert_allclose(est.item_prior_mean_, mean[order])
    assert_allclose(est.item_prior_cov_, cov[np.ix_(order, order)])
    assert_allclose(est.predict_rows(Y), expected, rtol=1e-9)


def test_expectations_are_those_of_the_family(rng):
    x = rng.standard_normal((9, 2)) + 1.0
    first = Rows(4.0, 4.0, x[:4].sum(axis=0), x[:4].T @ x[:4])
    rows = first, Rows(9.0, 9.0, x.sum(axis=0), x.T @ x)
    hierarchy = Hierarchy.of(np.array([0.5, 2.0])).updated(*rows, 1.0)
    family, natural = hierarchy.family, hierarchy.natural
    assert hierarchy.kl == pytest.approx(family.kl(natural, hierarchy.prior), rel=1e-12)
    expected = family.expectations(natural)
    for i, side in enumerate(("users", "items")):
        found = hierarchy.of_side(side)
        assert_allclose(found.precision, -2.0 * expected["scatter"][i])
        assert_allclose(found.natural_mean, expected["mean_natural"][i])
        # The family has the halves of E log|Λ| and of −E[μᵀ Λ μ].
        assert found.log_det == pytest.approx(2.0 * expected["dof"][i])
        assert found.quadratic == pytest.approx(-2.0 * expected["mean_precision"][i])


def test_shares_of_an_update_add_up(rng):
    hierarchy = Hierarchy.of(np.array([0.5, 2.0]))
    rows = [Rows(n, n, rng.standard_normal(2), n * np.eye(2)) for n in (4.0, 9.0)]
    full, half = (hierarchy.updated(*rows, rho) for rho in (1.0, 0.5))
    for key, value in full.added.items():
        assert_allclose(half.added[key], 0.5 * value)
    assert_allclose(half.updated(*rows, 1.0).natural["dof"], full.natural["dof"])


def test_attributes_of_the_priors_go_with_them(rng):
    Y = ratings(rng)
    est = hierarchical().fit(Y)
    assert est.user_prior_cov_.shape == (3, 3)
    mean, cov = items_of(est)
    assert mean.shape[1] == len(users_of(small().fit(Y), Y)[0][0]) == len(cov[0])
    est.set_params(hierarchical=False).fit(Y)
    assert not hasattr(est, "user_prior_cov_")
