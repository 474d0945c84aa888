"""Spike-and-slab factor analysis: bounds, learned priors, missing cells, and what fits find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import context_of, one_update, units_of, visit
from models.spike_slab_factor_analysis import GIVEN, few_factors, small_spike_slab
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis, Shards
from sklearn_anneal.annealing import NoAnnealing
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.models._factor_cells import log_predictive
from sklearn_anneal.models.spike_slab_factor_analysis import SpikeSlabFactorAnalysis

AUTO = dict.fromkeys(GIVEN, "auto")


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_there_are_as_many_factors_as_rows_or_columns(missing, rng):
    """Factors beyond the number of rows explain nothing, and took most of the time."""
    X, _ = drawn(rng, 8, 30, missing=missing)
    X[:2] = np.where(np.isnan(X[:2]), 0.0, X[:2])  # no column is empty
    short = AnnealedSpikeSlabFactorAnalysis(
        effort=0, max_iter=3, annealing="none", random_state=0, loading_variance=np.ones(8)
    )
    assert short.fit(X).components_.shape == (8, 30)
    # Later batches do not count.
    assert short.partial_fit(X[:3]).components_.shape == (8, 30)
    assert short.set_params(loading_variance=1.0).fit(X.T[:, :6]).components_.shape == (6, 6)
    stream = AnnealedSpikeSlabFactorAnalysis(max_iter=1, random_state=0)
    assert stream.partial_fit(X).partial_fit(X[:2]).components_.shape == (30, 30)
    # Equal rows are one row with their weights.
    twice = np.vstack([X, X[:3]])
    assert short.set_params(loading_variance=np.ones(8)).fit(twice).components_.shape == (8, 30)
    # A fit to data in parts counts the rows of all of them.
    parts = Shards([X[:5], X[5:]])
    assert short.fit(parts).components_.shape == (8, 30)


def drawn(rng, n=400, d=12, k=3, missing=0.0):
    """Rows with sparse factors and sparse loadings, and the loadings."""
    loadings = 2.0 * rng.standard_normal((k, d)) * (rng.random((k, d)) < 0.5)
    factors = rng.standard_normal((n, k)) * (rng.random((n, k)) < 0.3)
    X = 5.0 + factors @ loadings + 0.5 * rng.standard_normal((n, d))
    X[rng.random(X.shape) < missing] = np.nan
    return X, loadings


def cosines(found, loadings):
    """The largest |cosine| of each true loading with any found one."""

    def unit(rows):
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    return np.abs(unit(loadings) @ unit(found).T).max(axis=1)


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_the_loadings_of_sparse_factors_are_found(missing, rng):
    """Gaussian factors could be rotated; these cannot. Factors that are not needed drop out."""
    X, loadings = drawn(rng, missing=missing)
    est = AnnealedSpikeSlabFactorAnalysis(6, effort=0, random_state=0).fit(X)
    assert cosines(est.components_, loadings).min() > 0.97
    assert est.n_effective_components_ == 3
    assert_allclose(np.median(est.noise_variance_), 0.25, rtol=0.15)
    assert_allclose(est.mean_, np.nanmean(X, axis=0))


def test_units_of_columns_do_not_matter(rng):
    X, _ = drawn(rng)
    units = rng.uniform(0.01, 100.0, X.shape[1])
    shared = {"n_components": 4, "annealing": "none", "random_state": 0}
    est = AnnealedSpikeSlabFactorAnalysis(**shared).fit(X)
    other = AnnealedSpikeSlabFactorAnalysis(**shared).fit(X * units)
    assert_allclose(other.components_, est.components_ * units, rtol=1e-6, atol=1e-8)
    assert_allclose(other.noise_variance_, est.noise_variance_ * units**2, rtol=1e-6)
    assert_allclose(other.transform(X * units), est.transform(X), rtol=1e-6, atol=1e-8)
    shift = len(X) * np.log(units).sum()
    assert other.lower_bound_ == pytest.approx(est.lower_bound_ - shift, rel=1e-9)


def test_no_missing_cell_is_as_good_as_complete_rows(rng):
    """The form with a covariance per column is that of complete rows, if no cell is missing."""
    X, _ = drawn(rng)
    est = AnnealedSpikeSlabFactorAnalysis(4, annealing="none", random_state=0).fit(X)
    ctx = context_of(est)
    model, prior, q = ctx.model.for_missing_cells(ctx.q)
    assert model.kl(q, prior) == pytest.approx(ctx.model.kl(ctx.q, ctx.prior), rel=1e-9)
    loadings = model.loadings(q).means * np.sqrt(model.noise_variance)
    assert_allclose(loadings, est.components_, rtol=1e-10)
    Y = X.copy()
    Y[0, 0] = np.nan
    assert_allclose(est.transform(Y)[1:], est.transform(X)[1:], rtol=1e-6, atol=1e-8)
    assert_allclose(est.score_samples(Y)[1:], est.score_samples(X)[1:], rtol=1e-9)


def test_a_missing_cell_is_integrated_out(rng):
    """With one component and one start, the bound of a row is that of its observed columns."""
    X, _ = drawn(rng, d=5)
    est = small_spike_slab(n_components=2).fit(X)
    gone = X[:20].copy()
    gone[:, 3] = np.nan
    ctx = context_of(est)
    seen = [0, 1, 2, 4]
    part = SpikeSlabFactorAnalysis(2, 4, **GIVEN)
    part.noise_variance = ctx.model.noise_variance[seen]
    part.loading_variance, part.activation_prior = (
        ctx.model.loading_variance, ctx.model.activation_prior,
    )  # fmt: skip
    q = {**ctx.q, "natural_mean": ctx.q["natural_mean"][:, seen]}
    units = Rows(gone[:, seen], None, est.mean_[seen])
    factors, _, bounds = part.infer(units, q)
    own = Rows(gone, None, est.mean_, cell_patterns(gone))
    assert_allclose(ctx.model.infer(own, ctx.q)[2], bounds, rtol=1e-6)
    assert_allclose(est.score_samples(gone), log_predictive(part, q, units), rtol=1e-6)
    assert_allclose(est.transform(gone), factors, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("name", ["noise_variance", "loading_variance", "activation_prior"])
def test_learned_priors_maximise_the_bound(name, missing, rng):
    """At the optimum of everything, no other value of a prior gives a higher bound."""
    X, _ = drawn(rng, n=150, d=6, missing=missing)
    est = small_spike_slab(
        annealing="none", max_iter=400, tol=1e-9, max_sweeps=300, sweep_tol=1e-10, n_components=2
    ).set_params(**{name: "auto"})
    est.fit(X)
    found = getattr(est, {"activation_prior": "activation_probabilities_"}.get(name, name + "_"))

    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)

    def bound(value):
        values = found.copy()
        values[0] = value
        given = {**GIVEN, name: values, "missing": missing > 0}
        model = SpikeSlabFactorAnalysis(2, 6, **given, max_sweeps=300, sweep_tol=1e-10)
        model = model.resolved(ctx.summary)
        prior = model.prior(None)
        scale = np.sqrt(ctx.model.noise_variance / model.noise_variance)
        natural_mean = ctx.q["natural_mean"] * (scale[:, None] if missing else scale)
        precision = prior["precision"] + ctx.q["precision"] - ctx.prior["precision"]
        q = {"precision": precision, "natural_mean": natural_mean}
        changed = replace(ctx, model=model, prior=prior, q=q, exploring=False)
        seen = visit(changed, NoAnnealing(), units, evaluation=True)
        return seen.step.bound - model.kl(q, prior)

    best = minimize_scalar(
        lambda log: -bound(np.exp(log)),
        bounds=np.log([0.5 * found[0], min(2.0 * found[0], 0.999 if "prior" in name else np.inf)]),
        method="bounded",
        options={"xatol": 1e-4},
    )
    assert np.exp(best.x) == pytest.approx(found[0], rel=0.02)


def test_partition_function_by_quadrature():
    """log c(x) = log Σ_z ∫ (p(y | z s w) p(z) p(s))^x dy ds of one column and one factor."""
    model = SpikeSlabFactorAnalysis(1, 1, noise_variance=0.7, activation_prior=0.3)
    model.noise_variance, model.activation_prior = np.array([0.7]), np.array([0.3])
    x = 0.6

    def normal(y, variance):
        return np.exp(-0.5 * y * y / variance) / np.sqrt(2 * np.pi * variance)

    of_y = quad(lambda y: normal(y, 0.7) ** x, -40, 40)[0]
    of_s = quad(lambda s: normal(s, 1.0) ** x, -40, 40)[0]
    expected = np.log(of_y * of_s * (0.3**x + 0.7**x))
    partition = model.unit_log_partition(np.array([x]), None, {})
    assert partition.of_factors[0] + partition.of_cells[0, 0] == pytest.approx(expected)


def test_a_stream_admits_missing_cells_later(rng):
    found = []
    # Rows of some seeds divide a loading between two of the factors.
    for _ in range(4):
        X, loadings = drawn(rng, n=1200)
        est = small_spike_slab(n_components=6, annealing="none").set_params(**AUTO)
        est.partial_fit(X[:200])
        gone = X.copy()
        gone[rng.random(X.shape) < 0.1] = np.nan
        for _ in range(4):
            for i in range(200, 1200, 100):
                est.partial_fit(gone[i : i + 100])
        found.append(cosines(est.components_, loadings).min())
    assert np.mean(found) > 0.9
    est.partial_fit(X[:100])
    warm = small_spike_slab(n_components=3, annealing="none", warm_start=True).fit(X[:300])
    warm.fit(gone[:300])
    assert np.isfinite(warm.lower_bound_)


def test_one_update_of_a_complete_model_is_that_of_columns(rng):
    X = few_factors(4)(rng, 50)
    est = small_spike_slab(annealing="none", max_iter=3).fit(X)
    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    model, prior, q = ctx.model.for_missing_cells(ctx.q)
    other = replace(ctx, model=model, prior=prior, q=q)
    one_update(ctx, NoAnnealing(), units)
    one_update(other, NoAnnealing(), units)
    _, _, expected = ctx.model.for_missing_cells(ctx.q)
    for key, value in expected.items():
        assert_allclose(other.q[key], value, rtol=1e-9, atol=1e-10)


# What users meet


def test_methods_agree_with_each_other(rng):
    X, _ = drawn(rng)
    est = AnnealedSpikeSlabFactorAnalysis(4, random_state=0).fit(X)
    Z, active = est.transform(X), est.inclusion_probabilities(X)
    assert Z.shape == active.shape == (400, 4)
    assert active.min() >= 0 and active.max() <= 1
    assert_allclose(est.inverse_transform(Z), Z @ est.components_ + est.mean_)
    residual = X - est.inverse_transform(Z)
    assert residual.var() < 0.3
    assert est.score(X) == pytest.approx(est.score_samples(X).mean())
    assert_allclose(est.get_precision() @ est.get_covariance(), np.eye(12), atol=1e-8)
    assert_allclose(np.diagonal(est.get_covariance()), X.var(axis=0), rtol=0.35)
    shares = est.explained_variance_ratio_
    total = np.trace(est.get_covariance())
    assert_allclose(shares.sum(), 1.0 - est.noise_variance_.sum() / total)
    assert list(est.get_feature_names_out()[:1]) == ["annealedspikeslabfactoranalysis0"]


def test_drawn_rows_have_the_moments_of_the_model(rng):
    X, _ = drawn(rng)
    est = AnnealedSpikeSlabFactorAnalysis(3, random_state=0).fit(X)
    rows, factors = est.sample(40_000)
    assert_allclose(rows.mean(axis=0), est.mean_, atol=0.05)
    assert_allclose(np.cov(rows.T), est.get_covariance(), rtol=0.08, atol=0.08)
    assert_allclose((factors != 0).mean(axis=0), est.activation_probabilities_, atol=0.02)
    with pytest.raises(ValueError, match="at least one"):
        est.sample(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_variance": [1.0, 2.0]}, "shape"),
        ({"noise_variance": -1.0}, "noise_variance"),
        ({"loading_variance": [1.0, 0.0, 1.0]}, "positive"),
        ({"activation_prior": 1.1}, "activation_prior"),
        ({"activation_prior": [0.5, 0.5, 1.5]}, "below 1"),
        ({"n_components": 0}, "n_components"),
    ],
)
def test_wrong_parameters_are_refused(change, message, rng):
    with pytest.raises(ValueError, match=message):
        AnnealedSpikeSlabFactorAnalysis(3).set_params(**change).fit(drawn(rng, n=20)[0])


def test_data_without_information_are_refused_or_survived(rng):
    X, _ = drawn(rng, n=60)
    empty = X.copy()
    empty[:, 2] = np.nan
    with pytest.raises(ValueError, match="Column 2 of X has no observed value"):
        small_spike_slab().fit(empty)
    with pytest.raises(ValueError, match="infinity"):
        small_spike_slab().fit(np.where(X > 8, np.inf, X))
    with pytest.raises(ValueError, match="overflow"):
        small_spike_slab().fit(1e200 * X)
    constant = X.copy()
    constant[:, 1] = 3.0
    est = AnnealedSpikeSlabFactorAnalysis(3, random_state=0).fit(constant)
    assert np.isfinite(est.lower_bound_)
    blank = X.copy()
    blank[4] = np.nan
    est = AnnealedSpikeSlabFactorAnalysis(3, random_state=0).fit(blank)
    assert est.score_samples(blank)[4] == pytest.approx(0.0, abs=1e-9)
    assert_allclose(est.transform(blank)[4], 0.0, atol=1e-9)


@pytest.mark.parametrize("solver", ["coordinate", "gradient"])
@pytest.mark.parametrize("value", [0.1, 123456.789, 1e-140])
def test_the_value_of_a_constant_column_does_not_matter(solver, value, rng):
    """The mean of equal values has rounding errors, which are no variance of the column."""
    X, _ = drawn(rng, n=1000)
    bounds = []
    for constant in (0.0, value):
        X[:, 1] = constant
        est = AnnealedSpikeSlabFactorAnalysis(
            2, annealing="none", solver=solver, max_iter=5, random_state=0
        )
        bounds.append(est.fit(X).lower_bound_)
    assert_allclose(bounds[1], bounds[0], rtol=1e-6)


@pytest.mark.parametrize("solver", ["coordinate", "gradient"])
def test_a_stream_needs_what_a_fit_needs(solver, rng):
    """A column gets its mean and its variance from the first batch; later ones may lack it."""
    X, _ = drawn(rng, n=60)
    empty = X.copy()
    empty[:, 2] = np.nan
    errors = []
    for method in ("fit", "partial_fit"):
        est = small_spike_slab(solver=solver, annealing="none")
        with pytest.raises(ValueError, match="Column 2 of X has no observed value") as error:
            getattr(est, method)(empty)
        errors.append(str(error.value))
        assert not hasattr(est, "components_")
    assert errors[0] == errors[1]
    est = small_spike_slab(solver=solver, annealing="none").partial_fit(X).partial_fit(empty)
    assert np.isfinite(est.components_).all()


def test_there_may_be_more_factors_than_columns(rng):
    X, _ = drawn(rng, d=4)
    est = AnnealedSpikeSlabFactorAnalysis(7, random_state=0, max_iter=30).fit(X)
    assert est.components_.shape == (7, 4)
    assert AnnealedSpikeSlabFactorAnalysis(random_state=0, max_iter=5).fit(X).components_.shape == (
        4, 4,
    )  # fmt: skip


def test_an_outlier_with_missing_cells_does_not_free_the_loadings(rng):
    """Learned variances of loadings stay where they explain the mean variance of a column."""
    X = rng.standard_normal((100, 3)) @ rng.standard_normal((3, 20))
    X += 0.3 * rng.standard_normal(X.shape)
    X[0] = 15.0 * rng.standard_normal(20)
    whole = AnnealedSpikeSlabFactorAnalysis(6, annealing="none", random_state=0).fit(X)
    X[0, :6] = np.nan
    est = AnnealedSpikeSlabFactorAnalysis(
        6, annealing="none", activation_prior="learned", max_iter=150, tol=0.0, random_state=0
    ).fit(X)
    share = np.nanvar(X, axis=0) / est.noise_variance_
    assert est.loading_variance_.max() < 1.1 * share.mean() < whole.loading_variance_.max()
    # Rows start anew in the first half of the passes, and are kept from then on.
    bounds = est.lower_bounds_[len(est.lower_bounds_) // 2 :]
    assert np.diff(bounds).min() > -1e-10 * np.abs(bounds).max()
