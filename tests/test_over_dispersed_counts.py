"""Negative binomial and zero-inflated Poisson counts: shapes, zeros, densities and limits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from harness import context_of, units_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import betaln
from scipy.stats import beta, gamma, nbinom, poisson

from sklearn_anneal import AnnealedBayesianMixture, AnnealedHMM
from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import Tempering
from sklearn_anneal.models.components.negative_binomial import Histogram

BOTH = ("negative_binomial", "zero_inflated_poisson")
AUTO = {"lambdas_prior": "auto", "lambdas_weight": "auto"}
MEANS = np.array([[2.0, 12.0, 5.0], [10.0, 1.0, 5.0]])
SHAPES = np.array([1.0, 3.0, 8.0])
ZEROS = np.array([[0.1, 0.5, 0.3], [0.4, 0.2, 0.3]])


def rows_of(emission, rng, n):
    """Rows of two components, and which of them each row has."""
    z = rng.integers(2, size=n)
    if emission == "negative_binomial":
        return rng.poisson(MEANS[z] * rng.gamma(SHAPES, 1.0 / SHAPES, (n, 3))).astype(float), z
    counts = rng.poisson(MEANS[z]) * (rng.random((n, 3)) >= ZEROS[z])
    return counts.astype(float), z


def plain(emission, n_components=2, **params):
    known = {"annealing": "none", "random_state": 0, "max_iter": 300, "tol": 1e-9}
    return AnnealedBayesianMixture(n_components, emission=emission, **known | params)


def bound_of(ctx, units):
    visit = ctx.model.visit(ctx.q, units)
    step = visit.finish(visit.step(visit.view(units)))
    return step.bound - ctx.model.kl(ctx.q, ctx.prior)


# Shapes of counts


def test_shapes_maximise_the_bound_given_everything_else(rng):
    """The derivative of the bound with respect to log r vanishes, by finite differences."""
    X, _ = rows_of("negative_binomial", rng, 80)
    est = plain("negative_binomial", tol=1e-10, max_iter=400).fit(X)
    ctx, units = context_of(est), units_of(est, X)
    components, best = ctx.model.components, est.count_shapes_
    for d in range(3):
        found = {}
        for step in (-1e-3, 0.0, 1e-3):
            components.count_shapes = best * np.exp(step * np.equal(np.arange(3), d))
            found[step] = bound_of(ctx, units)
        assert found[0.0] >= max(found.values())
        slope = (found[1e-3] - found[-1e-3]) / 2e-3
        curvature = (found[1e-3] + found[-1e-3] - 2 * found[0.0]) / 1e-6
        assert abs(slope / curvature) < 1e-4
    components.count_shapes = best


def test_shapes_and_components_are_recovered(rng):
    X, z = rows_of("negative_binomial", rng, 3000)
    est = AnnealedBayesianMixture(2, emission="negative_binomial", random_state=0, effort=0).fit(X)
    order = np.argsort(est.lambdas_[:, 0])
    assert_allclose(est.lambdas_[order], MEANS, rtol=0.15)
    assert_allclose(est.count_shapes_, SHAPES, rtol=0.3)
    assert (order.argsort()[est.predict(X)] == z).mean() > 0.9
    new, _ = rows_of("negative_binomial", rng, 1000)
    other = AnnealedBayesianMixture(2, emission="poisson", random_state=0, effort=0).fit(X)
    assert est.score(new) > other.score(new) + 0.5


def test_counts_that_vary_less_than_poisson_counts_have_the_poisson_bound(rng):
    X = rng.binomial(8, 0.5, (200, 2)).astype(float)
    found = plain("negative_binomial", 1, **dict.fromkeys(AUTO)).fit(X)
    expected = plain("poisson", 1, **dict.fromkeys(AUTO)).fit(X)
    assert (found.count_shapes_ >= 1e4).all()
    assert found.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-4)
    assert_allclose(found.lambdas_, expected.lambdas_)
    assert_allclose(found.score_samples(X), expected.score_samples(X), rtol=1e-3)


@pytest.mark.parametrize("emission", BOTH)
def test_columns_of_one_value_are_fitted_without_a_warning(emission):
    X = np.column_stack([np.zeros(60), np.full(60, 3.0), np.arange(60) % 2, 10.0 ** np.arange(60)])
    X[:, 3] = np.where(np.arange(60) < 55, 0.0, 1e6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est = plain(emission, max_iter=20, tol=1e-2, **AUTO).fit(X)
        assert np.isfinite(est.lower_bound_) and np.isfinite(est.score_samples(X)).all()
        assert np.isfinite(est.impute(np.full((1, 4), np.nan), return_std=True)).all()


def test_histograms_of_parts_add_up_in_any_order(rng):
    X, _ = rows_of("negative_binomial", rng, 60)
    X[rng.random(X.shape) < 0.2] = np.nan
    weights = rng.integers(1, 4, 60).astype(float)
    cuts = [slice(0, 20), slice(20, 45), slice(45, 60)]
    parts = [Histogram.of(Rows(X[cut], weights[cut])) for cut in cuts]
    whole = Histogram.of(Rows(X, weights))
    for a, b, c in ((0, 1, 2), (2, 0, 1)):
        merged = parts[a].merge(parts[b]).merge(parts[c])
        for one, other in zip(merged, whole, strict=True):
            assert_array_equal(one, other)
    sparse = Histogram.of(Rows(csr_matrix(X), weights))
    for one, other in zip(sparse, whole, strict=True):
        assert_array_equal(one, other)
    assert_allclose(whole.sums(whole.values, 3), weights @ np.nan_to_num(X))


def test_a_stream_learns_shapes_from_its_first_batch(rng):
    """Components keep apart while it goes on, and the shapes follow them."""
    X, _ = rows_of("negative_binomial", rng, 3000)
    est = plain("negative_binomial", batch_size=None, init_params="kmeans")
    for start in range(0, 3000, 500):
        est.partial_fit(X[start : start + 500])
    assert_allclose(est.count_shapes_, SHAPES, rtol=0.5)
    whole = plain("negative_binomial", init_params="kmeans", max_iter=50).fit(X[:500])
    new, _ = rows_of("negative_binomial", rng, 2000)
    assert est.score(new) > whole.score(new) - 0.01


@pytest.mark.parametrize("learned", [("shape",), ("rate",), ("shape", "rate"), "given rate"])
def test_priors_of_probabilities_maximise_the_bound(learned, rng):
    """Compared with a search by Nelder and Mead, for every choice of what is learned."""
    X, _ = rows_of("negative_binomial", rng, 200)
    given = {"lambdas_prior": 1.3, "lambdas_weight": 0.4 if learned == "given rate" else None}
    names = {"shape": "lambdas_prior", "rate": "lambdas_weight"}
    asked = ("shape",) if learned == "given rate" else learned
    params = given | {names[name]: "auto" for name in asked}
    est = plain("negative_binomial", 6, max_iter=20, **params).fit(X)
    ctx = context_of(est)
    components = ctx.model.components
    r, expected = (
        components.count_shapes,
        components.factors[0].family.expectations({key: ctx.q[key] for key in ("shape", "rate")}),
    )
    s, w = components._best_prior(ctx.q, ctx.prior)
    m = components.mean
    for d in range(3):

        def loss(logs, d=d):
            one, two = np.exp(logs) if len(logs) == 2 else (np.exp(logs[0]), None)
            if learned == ("shape",):
                one, two = one, one / m[d]
            elif learned == "given rate":
                one, two = one, 0.4
            elif learned == ("rate",):
                one, two = 1.3, one
            terms = one * expected["shape"][:, d] + two * expected["rate"][:, d]
            return -(terms - betaln(r[d] * two, one)).sum()

        size = 2 if len(asked) == 2 else 1
        found = minimize(loss, np.zeros(size), method="Nelder-Mead", options={"fatol": 1e-10})
        mine = np.log([s[d], w[d]] if size == 2 else [w[d] if learned == ("rate",) else s[d]])
        assert loss(mine) <= found.fun + 1e-3


# Densities


def test_predictive_densities_integrate_over_the_probability(rng):
    X, _ = rows_of("negative_binomial", rng, 30)
    est = plain("negative_binomial", 1).fit(X)
    values = np.array([0.0, 7.0])
    rows = np.full((2, 3), np.nan)
    for d in range(3):
        r = est.count_shapes_[d]
        own = beta(r * est.lambdas_weight_posterior_[0, d], est.lambdas_posterior_[0, d])
        rows[:], rows[:, d] = np.nan, values
        for x, found in zip(values, est.score_samples(rows), strict=True):
            mass, _ = quad(
                lambda p, x=x, r=r, own=own: nbinom.pmf(x, r, p) * own.pdf(p), 0, 1, epsabs=0
            )
            assert np.exp(found) == pytest.approx(mass, rel=1e-6)


def test_predictive_densities_integrate_over_rates_and_zeros(rng):
    X, _ = rows_of("zero_inflated_poisson", rng, 30)
    est = plain("zero_inflated_poisson", 1, max_iter=20).fit(X)
    for d in range(3):
        a, b = est.zeroprob_posterior_[0, d]
        own = gamma(est.lambdas_posterior_[0, d], scale=1.0 / est.lambdas_weight_posterior_[0, d])
        for x in (0.0, 20.0):
            row = np.full((1, 3), np.nan)
            row[0, d] = x
            mass, _ = quad(
                lambda v, x=x, own=own: poisson.pmf(x, v) * own.pdf(v),
                *own.ppf([1e-14, 1 - 1e-14]),
            )
            mass = (a * (x == 0) + b * mass) / (a + b)
            assert np.exp(est.score_samples(row)[0]) == pytest.approx(mass, rel=1e-6)


@pytest.mark.parametrize("emission", BOTH)
def test_imputed_cells_have_the_moments_of_predictive_densities(emission, rng):
    X, _ = rows_of(emission, rng, 200)
    est = plain(emission, 1, max_iter=30).fit(X)
    means, std = est.impute(np.full((1, 3), np.nan), return_std=True)
    grid = np.arange(5000.0)
    for d in range(3):
        rows = np.full((len(grid), 3), np.nan)
        rows[:, d] = grid
        p = np.exp(est.score_samples(rows))
        mean = p @ grid
        assert means[0, d] == pytest.approx(mean, rel=1e-6)
        assert std[0, d] == pytest.approx(np.sqrt(p @ (grid - mean) ** 2), rel=1e-4)


def test_moments_at_the_fitted_means_are_those_of_negative_binomial_counts(rng):
    est = plain("negative_binomial", 1, max_iter=5).fit(rows_of("negative_binomial", rng, 100)[0])
    ctx = est._context()
    found, r = ctx.model.components.plug_in_moments(ctx.q), ctx.model.components.count_shapes
    assert_allclose(found.mean, est.lambdas_)
    assert_allclose(found.variance, nbinom(r, r / (r + found.mean)).var())
    assert ctx.model.components.n_parameters == 3 + 3  # shapes belong to all components


@pytest.mark.parametrize("emission", BOTH)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_sparse_counts_are_dense_counts(emission, missing, rng):
    X, _ = rows_of(emission, rng, 90)
    X[rng.random(X.shape) < missing] = np.nan
    weights = rng.integers(1, 3, 90).astype(float)
    dense = plain(emission, max_iter=15).fit(X, sample_weight=weights)
    sparse = plain(emission, max_iter=15).fit(csr_matrix(X), sample_weight=weights)
    assert_allclose(sparse.lower_bounds_, dense.lower_bounds_, rtol=1e-9)
    assert_allclose(sparse.lambdas_, dense.lambdas_, rtol=1e-5)
    # A row without cells has a log density of 0 up to rounding.
    found = sparse.score_samples(csr_matrix(X))
    assert_allclose(found, dense.score_samples(X), rtol=1e-5, atol=1e-14)


# Zeros


def test_zeros_and_rates_are_recovered(rng):
    X, z = rows_of("zero_inflated_poisson", rng, 3000)
    est = AnnealedBayesianMixture(
        2, emission="zero_inflated_poisson", random_state=0, effort=0
    ).fit(X)
    order = np.argsort(est.lambdas_[:, 0])
    assert_allclose(est.lambdas_[order], MEANS, rtol=0.15)
    assert_allclose(est.zeroprob_[order], ZEROS, atol=0.08)
    assert (order.argsort()[est.predict(X)] == z).mean() > 0.9


def test_temperatures_leave_the_share_of_structural_zeros_of_one_component(rng):
    """They act on the assignments, so that a single component is plain inference in local form."""
    X, _ = rows_of("zero_inflated_poisson", rng, 60)
    est = plain("zero_inflated_poisson", 1, max_iter=20).fit(X)
    ctx, units = context_of(est), units_of(est, X)
    sums = []
    for x in (1.0, 0.2):
        visit = ctx.model.visit(ctx.q, units, Tempering(local=x))
        step = visit.finish(visit.step(visit.view(units)))
        sums.append((step.statistics["components"].structural, step.bound))
    assert_array_equal(sums[0][0], sums[1][0])
    assert sums[0][1] == sums[1][1]


def test_rounds_of_imputation_draw_which_zeros_are_structural(rng):
    X, _ = rows_of("zero_inflated_poisson", rng, 80)
    est = plain("zero_inflated_poisson", 1, max_iter=20).fit(X)
    ctx, units = context_of(est), units_of(est, X)
    model = ctx.model
    expected = model.components.plug_in(ctx.q)
    labels = np.zeros(80, dtype=int)
    zeros, share = (X == 0).sum(axis=0), expected.share[0]
    found = np.array([
        model.posterior_given_components(units, labels, ctx.prior, expected, rng)["a"][0]
        for _ in range(200)
    ]) - ctx.prior["a"][0]  # fmt: skip
    assert_array_equal(found % 1, 0)
    deviation = np.sqrt(zeros * share * (1 - share))
    assert (np.abs(found.mean(axis=0) - zeros * share) < 5 * deviation / np.sqrt(200)).all()
    assert_allclose(found.std(axis=0), deviation, rtol=0.3)
    X[::7, 1] = np.nan
    est = plain("zero_inflated_poisson", max_iter=10).fit(X)
    tables = est.impute(X, n_draws=2, n_rounds=3)
    assert (tables[:, ::7, 1] % 1 == 0).all() and (tables[0] != tables[1]).any()


# Chains


@pytest.mark.parametrize("emission", BOTH)
def test_states_of_chains_are_recovered(emission, rng):
    moves = np.cumsum(rng.random(1500) < 0.05) % 2
    if emission == "negative_binomial":
        means = MEANS[moves] * rng.gamma(SHAPES, 1.0 / SHAPES, (1500, 3))
        X = rng.poisson(means).astype(float)
    else:
        X = rng.poisson(MEANS[moves]) * (rng.random((1500, 3)) >= ZEROS[moves]) * 1.0
    X[::50] = np.nan
    hmm = AnnealedHMM(2, emission=emission, random_state=0, effort=0).fit(X)
    order = np.argsort(hmm.lambdas_[:, 0])
    assert (order.argsort()[hmm.predict(X)] == moves).mean() > 0.95
    assert_allclose(hmm.lambdas_[order], MEANS, rtol=0.2)
    if emission == "negative_binomial":
        assert_allclose(hmm.count_shapes_, SHAPES, rtol=0.4)
    else:
        assert_allclose(hmm.zeroprob_[order], ZEROS, atol=0.15)
    drawn, states = hmm.sample(2000)
    for k in range(2):
        means = hmm.lambdas_[k] * (1 - getattr(hmm, "zeroprob_", np.zeros((2, 3)))[k])
        assert_allclose(drawn[states == k].mean(axis=0), means, rtol=0.25)


@pytest.mark.parametrize(
    ("cls", "form"),
    [
        (AnnealedBayesianMixture, np.asarray),
        (AnnealedBayesianMixture, csr_matrix),
        (AnnealedHMM, np.asarray),
    ],
)
def test_tables_without_any_count_have_small_means(cls, form):
    X = form(np.zeros((30, 3)))
    est = cls(2, emission="negative_binomial", effort=0, random_state=0).fit(X)
    assert np.isfinite(est.lower_bound_)
    assert (est.lambdas_ < 0.1).all()
    assert (est.count_shapes_ > 0.0).all() and np.isfinite(est.count_shapes_).all()
