"""Tests of updates and bounds of ratings against the plain model."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import plain_matrix_factorization as plain
import pytest
from cases_matrix_factorization import (
    DEFAULT,
    GIVEN,
    NAN,
    TRUTH,
    VARIANTS,
    all_variants,
    assert_rows,
    draw,
    hyper_of,
    items_of,
    pairs_of,
    ratings,
    rows_of,
    small,
    users_of,
)
from designs import pairwise
from harness import (
    FULL_STEPS,
    Fixed,
    context_of,
    largest_difference,
    lower_bound,
    one_update,
    open_run,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import DeterministicAnnealing
from sklearn_anneal.families import Tempering

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

AUTO = dict.fromkeys(GIVEN, "auto")


# Against the plain model


@pairwise(
    variant=VARIANTS,
    weighted=("", "users", "ratings"),
    t=(Tempering(), Tempering(0.4, 0.4, 1.0), Tempering(0.4, 0.4, 0.4)),
)
def test_passes_are_those_of_the_plain_model(variant, weighted, t, rng):
    """λ and the bound, pass by pass, with users as rows of q."""
    Y = ratings(rng)
    X, y = pairs_of(Y)
    W, w, sample_weight = np.ones(Y.shape), np.ones(len(Y)), None
    if weighted == "users":
        sample_weight = w = rng.uniform(0.2, 3.0, len(Y))
        W = np.repeat(w[:, None], Y.shape[1], axis=1)
    elif weighted == "ratings":
        sample_weight = rng.uniform(0.2, 3.0, len(y))
        W[tuple(X.T)] = sample_weight
    est = small(**VARIANTS[variant])
    data = Y
    if weighted == "ratings":
        est.set_params(input="pairs")
        data = est._data(X, y)
    ctx, _, units = open_run(est, data, sample_weight)
    assert ctx.model.holds_users
    known = ~np.isnan(Y)
    if est.fit_intercept:
        assert ctx.model.intercept == pytest.approx(np.average(Y[known], weights=W[known]))
    hyper = hyper_of(ctx.model)
    users, items = rows_of(ctx.q, "users"), rows_of(ctx.q, "items")
    user_weights = None if weighted == "ratings" else w
    # The weight of a user does not change the user's own Gaussian.
    own = W if weighted == "ratings" else None
    for _ in range(4):
        expected = plain.bound(Y, users, items, hyper, W, user_weights)
        before = ctx.q
        seen = one_update(ctx, Fixed(t), units)
        assert seen.step.bound - ctx.model.kl(before, ctx.prior) == pytest.approx(expected)
        users = plain.updated(Y, items, hyper, own, t.statistics, t.prior)
        items = plain.updated(Y.T, users, hyper, W.T, t.statistics, t.prior)
        assert_rows(ctx.q, "users", users)
        assert_rows(ctx.q, "items", items)


@all_variants
def test_local_users_are_those_of_the_plain_model(variant, rng):
    """A minibatch: users exactly, items with N/|S| and ρ; the bound of the visit."""
    Y = ratings(rng)
    est = small(batch_size=9, **VARIANTS[variant])
    ctx, method, units = open_run(est, Y)
    assert not ctx.model.holds_users and set(ctx.q) == {"items_precision", "items_natural_mean"}
    hyper = hyper_of(ctx.model)
    settings = FULL_STEPS._replace(learning_decay=0.6)
    for batch in (np.arange(9), np.arange(9, 18), np.arange(18, 25)):
        items = rows_of(ctx.q, "items")
        users = plain.updated(Y[batch], items, hyper)
        ctx.scale = len(Y) / len(batch)
        rho = settings.learning_rate(ctx.state["updates"])
        q = ctx.q
        seen = one_update(ctx, method, units.take(batch), settings=settings, minibatch=True)
        expected = plain.bound(Y[batch], users, items, hyper)
        assert seen.step.bound - ctx.model.kl(q, ctx.prior) == pytest.approx(expected)
        target = plain.updated(Y[batch].T, users, hyper, np.full(Y[batch].T.shape, ctx.scale))
        mixed = plain.Rows(*(
            (1 - rho) * old + rho * new for old, new in zip(items, target, strict=True)
        ))  # fmt: skip
        assert_rows(ctx.q, "items", mixed)


@pytest.mark.parametrize("jitter", [0.0, 0.2])
@pytest.mark.parametrize("form", ["likelihood", "posterior"])
@all_variants
def test_users_as_rows_of_q_or_as_local_variables_are_the_same(variant, form, jitter, rng):
    Y = ratings(rng)
    method = DeterministicAnnealing(form, 3.0, "geometric", 4, jitter)
    held, resolved, units = open_run(small(annealing=method, **VARIANTS[variant]), Y)
    local = replace(held, model=copy(held.model), state=dict(held.state))
    local.model.holds_users = False
    local.rng = np.random.default_rng(0)
    local.q, local.prior = (
        {key: natural[key] for key in local.model.blocks[0].keys}
        for natural in (held.q, held.prior)
    )
    for _ in range(6):
        one_update(held, resolved, units)
        one_update(local, resolved, units)
        items = {key: held.q[key] for key in local.q}
        assert largest_difference(local.q, items) < 1e-12
        # The bound is that of optimal users, whichever way these are found.
        found = [lower_bound(ctx, units) for ctx in (held, local)]
        assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_start_does_not_depend_on_what_users_are(rng):
    Y = ratings(rng)
    one, _, _ = open_run(small(), Y)
    other, _, _ = open_run(small(batch_size=5), Y)
    for key, value in other.q.items():
        assert_array_equal(value, one.q[key])


@all_variants
def test_bound_is_a_mean_over_draws_of_q(variant, rng):
    """E_q[log p(y, u, v) − log q] of the fitted model, on a tiny problem."""
    Y = ratings(rng, 4, 3)
    est = small(clip=False, **VARIANTS[variant]).fit(Y)
    hyper, n = plain.hyperparameters(est), 40_000
    d, size = est.n_components, est.n_components + est.biases
    prior = np.sqrt(hyper.prior_variances(size))
    terms, drawn = np.zeros(n), []
    for mean, cov in (users_of(est, Y), items_of(est)):
        z = np.empty((n, *mean.shape))
        for i in range(len(mean)):
            root = np.linalg.cholesky(cov[i])
            white = rng.standard_normal((n, size))
            z[:, i] = mean[i] + white @ root.T
            terms -= norm.logpdf(white).sum(axis=1) - np.log(np.diag(root)).sum()
        terms += norm.logpdf(z, 0.0, prior).sum(axis=(1, 2))
        drawn.append(z)
    u, v = drawn
    f = hyper.intercept + np.einsum("nid,njd->nij", u[..., :d], v[..., :d])
    if est.biases:
        f += u[:, :, None, d] + v[:, None, :, d]
    terms += np.nansum(norm.logpdf(Y, f, np.sqrt(hyper.noise)), axis=(1, 2))
    error = terms.std() / np.sqrt(n)
    assert error < 0.05
    assert abs(est.lower_bound_ - terms.mean()) < 4 * error


def test_fitted_attributes_are_those_of_the_plain_model(rng):
    Y = ratings(rng)
    est = small().fit(Y)
    mean, cov = items_of(est)
    assert_allclose(est.components_, mean[:, :2].T, rtol=1e-10)
    assert_allclose(est.components_cov_, cov[:, :2, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.item_biases_, mean[:, 2], rtol=1e-10)
    assert_allclose(est.item_biases_var_, cov[:, 2, 2], rtol=1e-9)
    mean, cov = users_of(est, Y)
    assert_allclose(est.user_factors_, mean[:, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_factors_cov_, cov[:, :2, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_biases_, mean[:, 2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_biases_var_, cov[:, 2, 2], rtol=1e-9)
    known = Y[~np.isnan(Y)]
    assert est.intercept_ == pytest.approx(known.mean())
    assert est.rating_range_ == (known.min(), known.max())
    assert (est.n_users_, est.n_items_) == Y.shape
    items = rows_of(context_of(est).q, "items")
    users = plain.updated(Y, items, plain.hyperparameters(est))
    expected = plain.bound(Y, users, items, plain.hyperparameters(est))
    assert est.lower_bound_ == pytest.approx(expected, rel=1e-10)


def test_default_variances_scale_with_the_ratings(rng):
    Y = ratings(rng)
    est, other = small(**DEFAULT).fit(Y), small(**DEFAULT).fit(10.0 * Y)
    variance = np.nanvar(Y)
    assert est.noise_variance_ == pytest.approx(0.63 * variance)
    assert est.factor_variance_ == pytest.approx(0.089 * np.sqrt(variance))
    assert est.bias_variance_ == pytest.approx(0.237 * variance)
    # The fit is the same for ratings in other units.
    assert_allclose(other.transform(10.0 * Y), np.sqrt(10.0) * est.transform(Y), rtol=1e-8)
    users, items = np.nonzero(~np.isnan(Y))
    for one, ten in zip(
        est.predict_ratings(users, items, return_std=True),
        other.predict_ratings(users, items, return_std=True),
        strict=True,
    ):
        assert_allclose(ten, 10.0 * one, rtol=1e-8)


def test_biases_of_users_have_one_value_per_row(rng):
    Y = ratings(rng)
    est = small().fit(Y)
    for wrong in (np.zeros(1), np.zeros((len(Y), 1)), np.zeros(len(Y) + 1)):
        with pytest.raises(ValueError, match="user_biases has the shape"):
            est.inverse_transform(est.transform(Y), wrong)
    without = small(biases=False).fit(Y)
    with pytest.raises(ValueError, match="the model has no biases"):
        without.inverse_transform(without.transform(Y), np.zeros(len(Y)))


# Weights


# Empirical Bayes


@pytest.mark.parametrize("how", [{}, {"batch_size": 100, "learning_decay": 0.7}])
@pytest.mark.parametrize("name", ["none", "deterministic"])
def test_noise_variance_is_recovered(name, how, rng):
    Y, known = draw(rng, 400, 80, observed=0.4)
    est = small(2, annealing=name, max_iter=60, **AUTO, **how).fit(np.where(known, Y, NAN))
    assert est.noise_variance_ == pytest.approx(TRUTH.noise, rel=0.1)
    if not how:
        # Minibatches come near the others slowly.
        assert est.factor_variance_ == pytest.approx(TRUTH.factor, rel=0.3)
        assert est.bias_variance_ == pytest.approx(TRUTH.bias, rel=0.3)


@pytest.mark.parametrize("annealing", ["none", "deterministic", "stochastic"])
def test_defaults_find_factors_that_explain_most_of_the_ratings(annealing):
    """Two kinds of users and two of items, of which half of the ratings are there."""
    rng = np.random.default_rng(0)
    users, items = rng.choice([-1.5, 1.5], size=(60, 1)), np.resize([1.0, -1.0], 8)
    X = 3.0 + users * items + rng.normal(0.0, 0.4, (60, 8))
    X[rng.random(X.shape) < 0.5] = np.nan
    est = AnnealedPMF(2, annealing=annealing, random_state=0).fit(X)
    # The noise is that of the data, and the products of factors vary as the rest of it.
    assert est.noise_variance_ == pytest.approx(0.4**2, rel=0.3)
    assert np.square(est.user_factors_ @ est.components_).mean() == pytest.approx(1.5**2, rel=0.2)


def test_a_learned_variance_of_factors_stays_above_its_fixed_value(rng):
    X = 3.0 + rng.standard_normal((40, 10))
    est = AnnealedPMF(3, random_state=0).fit(X)
    fixed = AnnealedPMF(3, factor_variance=None, random_state=0).fit(X).factor_variance_
    assert est.factor_variance_ == fixed == pytest.approx(0.089 * X.std(), rel=1e-12)


@pytest.mark.parametrize("learned", ["noise_variance", "factor_variance", "bias_variance"])
def test_learned_variances_are_at_the_maximum_of_the_bound(learned, rng):
    Y = ratings(rng, 60, 20)
    est = small(max_iter=3000, tol=1e-11, **{learned: "auto"}).fit(Y)
    best = getattr(est, f"{learned}_")
    assert best != GIVEN[learned]
    for factor in (0.95, 1.05):
        near = small(max_iter=3000, tol=1e-11, **{learned: factor * best}).fit(Y)
        assert near.lower_bound_ < est.lower_bound_


@pytest.mark.parametrize("batch_size", [None, 20])
def test_given_variances_stay(batch_size, rng):
    est = small(batch_size=batch_size, max_iter=20).fit(ratings(rng))
    for name, value in GIVEN.items():
        assert getattr(est, f"{name}_") == value


@pytest.mark.parametrize("value", [3.5, 3.3, 0.1, 1000000.1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_ratings_leave_nothing_to_explain(value, dtype):
    est = AnnealedPMF(1, random_state=0).fit(np.full((4, 5), value, dtype=dtype))
    assert est.noise_variance_ == pytest.approx(0.63)
    assert est.bias_variance_ == pytest.approx(0.237)
    assert est.predict_ratings([0], [0]) == pytest.approx(value, rel=1e-5)


def test_factors_that_are_off_are_reported(rng):
    noise = 3.0 + rng.standard_normal((40, 15))
    with pytest.warns(ConvergenceWarning, match="All factors are switched off"):
        AnnealedPMF(2, noise_variance=2.0, factor_variance=0.05, max_iter=1000, random_state=0).fit(
            noise
        )
