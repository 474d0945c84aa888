"""Gamma noise on the cells of factorised counts: ``dispersion`` of AnnealedGammaProcessNMF."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import plain_gamma_process_nmf as plain
import pytest
from cases_gamma_process_nmf import drawn_counts, nmf, sparse
from harness import context_of, lower_bound, units_of, visit
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln
from scipy.stats import nbinom

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.annealing import NoAnnealing, StructuredVI, SVIPlus
from sklearn_anneal.kernels import load
from sklearn_anneal.kernels.plain import count_noise as plain_noise
from sklearn_anneal.models import _count_bounds
from sklearn_anneal.models._count_noise import _Block, _Cells
from sklearn_anneal.models._count_visits import Activations

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SETTLED = {"max_sweeps": 3000, "sweep_tol": 1e-13}


def noisy_counts(rng, dispersion, n=150, n_columns=20, n_parts=4, missing=0.0):
    """Counts of parts that share no column, whose cells have noise."""
    parts = np.kron(np.eye(n_parts), np.ones(n_columns // n_parts))
    rates = rng.gamma(0.7, 1.0 / 0.7, (n, n_parts)) @ (parts * rng.uniform(4.0, 8.0, parts.shape))
    X = rng.poisson(rates * rng.gamma(1.0 / dispersion, dispersion, rates.shape)).astype(float)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def activations_of(seen):
    shape, rate = (
        np.concatenate([getattr(local, name) for local in seen.local]) for name in ("shape", "rate")
    )
    return shape, rate


# Equations


@pytest.mark.parametrize("dispersion", [0.05, 2.0])
def test_the_bound_has_the_noise_integrated_out(dispersion, rng):
    """At settled activations, log p(x | e) and the terms of e are log E_e e^x exp(−e m)."""
    X, b, a = drawn_counts(rng, n=12, missing=0.2), 0.1, 1.0 / dispersion
    est = nmf(dispersion=dispersion, **SETTLED, max_iter=3).fit(X)
    ctx = replace(context_of(est), exploring=False)
    seen = visit(ctx, NoAnnealing(), units_of(est, X), evaluation=True)
    shape, rate = activations_of(seen)
    logs, h = plain.expectations(shape, rate)
    log_w, w = plain.expectations(ctx.q["components_shape"], ctx.q["components_rate"])
    log_weights, weights = plain.expectations(ctx.q["weights_shape"], ctx.q["weights_rate"])
    log_rates = logs[:, :, None] + (log_w + log_weights[:, None])
    x, m = X, h @ (w * weights[:, None])
    terms = x * np.log(np.exp(log_rates).sum(axis=1)) - gammaln(x + 1.0)
    terms += a * np.log(a) - gammaln(a) + gammaln(a + x) - (a + x) * np.log(a + m)
    expected = np.nansum(terms) - plain.kl_of_gammas(shape, rate, b, b)
    assert seen.step.bound == pytest.approx(expected, rel=1e-9)
    # A cell counts as if it had been observed for E e units of time.
    times = np.where(np.isnan(x), 0.0, (a + x) / (a + m))
    assert_allclose(rate, b + times @ (w * weights[:, None]).T, rtol=1e-9)
    assert_allclose(seen.step.statistics["exposure"], times.T @ h, rtol=1e-9)


def test_slopes_are_differences_of_the_bound(rng):
    counts = drawn_counts(rng, n=9, missing=0.2)
    weights = rng.uniform(0.5, 2.0, 9)
    cells = _Cells.of(_Block(counts, counts), rng.gamma(2.0, size=counts.shape), weights)
    for a in (0.02, 1.3, 400.0):
        heights = np.array([cells.height(a * (1.0 + step)) for step in (-1e-3, 0.0, 1e-3)])
        slope, curvature = cells.slopes(a)
        size = 1e-3 * a
        assert (heights[2] - heights[0]) / (2.0 * size) == pytest.approx(slope, rel=1e-4)
        second = (heights[2] - 2.0 * heights[1] + heights[0]) / size**2
        assert second == pytest.approx(curvature, rel=1e-3)


def test_the_learned_dispersion_has_the_highest_bound(rng):
    X = noisy_counts(rng, 0.4, n=40, n_columns=12, missing=0.1)
    est = nmf(dispersion="auto", max_iter=120, tol=0).fit(X)
    ctx = replace(context_of(est), exploring=False)

    def bound(factor):
        model = copy(ctx.model)
        model.dispersion = ctx.model.dispersion * factor
        return lower_bound(replace(ctx, model=model), units_of(est, X))

    assert est.dispersion_ == ctx.model.dispersion
    assert bound(1.0) > max(bound(0.9), bound(1.1))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_weak_noise_is_none(kind, rng):
    X = drawn_counts(rng)
    X = sparse(X) if kind == "sparse" else X
    without, weak = nmf(**SETTLED).fit(X), nmf(**SETTLED, dispersion=1e-9).fit(X)
    assert_allclose(weak.lower_bounds_, without.lower_bounds_, rtol=1e-6)
    assert_allclose(weak.components_, without.components_, rtol=1e-4, atol=1e-8)


def test_dense_and_sparse_counts_are_the_same_fit(rng):
    X = drawn_counts(rng)
    dense, other = (nmf(dispersion="auto", max_iter=20).fit(Z) for Z in (X, sparse(X)))
    assert_allclose(other.components_, dense.components_, rtol=1e-8)
    assert other.dispersion_ == pytest.approx(dense.dispersion_, rel=1e-8)


def test_single_precision_has_the_bound_of_large_counts(rng):
    X = 1e6 * noisy_counts(rng, 0.5, n=40)
    how = {"dispersion": 0.5, "max_iter": 5}
    one, other = (nmf(**how).fit(X.astype(dtype)) for dtype in (np.float32, np.float64))
    assert one.lower_bound_ == pytest.approx(other.lower_bound_, rel=1e-4)
    assert np.diff(one.lower_bounds_).min() > -1e-3


def test_the_exact_bound_of_large_counts_is_the_usual_one(monkeypatch, rng):
    X = drawn_counts(rng, n=20, missing=0.1)
    bounds = []
    for least in (1e6, 0.0):
        monkeypatch.setattr(_count_bounds, "_LARGE_ROW", least)
        bounds.append(nmf(dispersion=0.3).fit(X).lower_bounds_)
    assert_allclose(*bounds, rtol=1e-10)


def test_huge_counts_have_a_finite_bound_that_does_not_fall(rng):
    X = np.round(1e12 * drawn_counts(rng, n=20))
    est = nmf(dispersion=0.5, max_iter=30, tol=0).fit(X)
    assert np.isfinite(est.lower_bounds_).all()
    # Log probabilities of counts of 1e12 are rounded to 1e-15 of them.
    assert np.diff(est.lower_bounds_[15:]).min() > -1e-14 * X.sum()


# Steps


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("powers", [(1.0, 1.0), (0.7, 0.8)])
def test_compiled_sweeps_are_the_plain_ones(powers, given, rng):
    (n, n_columns, k), (local, step) = (7, 13, 5), powers
    counts = drawn_counts(rng, n, n_columns, missing=0.2)
    table, means = np.zeros((2, 16, 8))
    table[:n_columns, :k], means[:n_columns, :k] = rng.random((2, n_columns, k))
    means[:n_columns, k] = 2.5
    factors = rng.random(k), rng.standard_normal(k), rng.random(k)
    numbers = local, 0.3, 0.2, step, 1.9, 2.5, given, 4, 1e-3, plain_noise.REST
    start = rng.gamma(1.0, 1.0, (2, n, k)) if given else np.ones((2, n, k))
    found = []
    for module in (load("count_noise"), plain_noise):
        shape, rates = start.copy()
        module.noisy_sweeps(counts, table, means, *factors, *numbers, shape, rates)
        found.append(shape / rates)
    assert_allclose(*found, rtol=1e-11)


@pytest.mark.parametrize("module", [load("count_noise"), plain_noise])
def test_sweeps_divide_all_counts_of_light_rows(module, rng):
    (n, n_columns, k), base = (4, 13, 5), 1e-4
    counts, start = 1e-5 * rng.poisson(3.0, (n, n_columns)), np.full((2, n, k), base)
    table, means = np.zeros((2, 16, 8))
    table[:n_columns, :k], means[:n_columns, :k] = rng.random((2, n_columns, k))
    means[:n_columns, k] = 2.5
    factors = rng.random(k), rng.standard_normal(k), rng.random(k)
    numbers = 1.0, base, 0.2, 1.0, 1.9, 2.5, True, 4, 0.0, plain_noise.REST
    module.noisy_sweeps(counts, table, means, *factors, *numbers, *start)
    assert_allclose((start[0] - base).sum(axis=1), counts.sum(axis=1), rtol=1e-8)


def test_steps_are_those_of_em_without_noise_and_stay_at_its_fixed_points(rng):
    shape, product, share = rng.uniform(0.1, 10.0, (3, 50))
    weak = plain_noise.factors(shape, product, 0.0 * shape, plain_noise.REST)
    assert_allclose(weak, shape / product, rtol=1e-14)
    held = shape * share / 10.0
    assert_allclose(plain_noise.factors(shape, shape, held, plain_noise.REST), 1.0, rtol=1e-7)


def test_the_bound_does_not_fall_with_strong_noise():
    """Steps longer than those of EM would lower it by 0.12 nats."""
    X = np.array([[4, 1094], [0, 0], [66, 5], [3, 12], [1, 5], [1, 1]], dtype=float)
    settings = {"n_components": 5, "annealing": "none", "random_state": 88, "max_iter": 60}
    est = AnnealedGammaProcessNMF(**settings, dispersion=57.0, popularity_prior=1.0, tol=1e-13)
    assert np.diff(est.fit(X).lower_bounds_[32:]).min() > -1e-9


def test_parts_of_large_counts_are_not_joined(rng):
    """Steps of EM move by 1 / (1 + d m), and left the parts mixed."""
    parts = np.kron(np.eye(4), np.ones(5))
    rates = 5e3 * rng.gamma(0.7, 1.0, (60, 4)) @ parts
    X = rng.poisson(rates * rng.gamma(4.0, 0.25, rates.shape)).astype(float)
    settings = {"n_components": 4, "activation_prior": 0.7, "max_iter": 40}
    found = nmf(dispersion=0.25, annealing="none", **settings).fit(X).components_
    norms = np.linalg.norm(parts, axis=1)[:, None] * np.linalg.norm(found, axis=1)
    assert (parts @ found.T / norms).max(axis=1).min() > 0.98


# Fits


def test_noise_is_not_taken_for_parts(rng):
    """Poisson parts multiply until they explain the noise; with dispersion the three are found."""
    X = noisy_counts(rng, 0.5, n=80, n_columns=24, n_parts=3)
    settings = {"n_components": 8, "random_state": 0}
    without = AnnealedGammaProcessNMF(**settings, annealing="none").fit(X)
    est = AnnealedGammaProcessNMF(**settings, dispersion="auto", effort=0).fit(X)
    assert without.n_effective_components_ == 8
    assert est.n_effective_components_ == 3
    # q(h) is narrower than the posterior, so that activations explain a part of the noise.
    assert 0.3 < est.dispersion_ < 0.55
    assert est.lower_bound_ > without.lower_bound_ + 500.0


def test_counts_without_noise_have_no_dispersion(rng):
    X = noisy_counts(rng, 1e-9, n=60)
    est = AnnealedGammaProcessNMF(8, dispersion="auto", effort=2, random_state=0).fit(X)
    assert est.dispersion_ < 0.02


@pytest.mark.parametrize("scale", [30, 100])
def test_a_search_finds_parts_of_large_counts(rng, scale):
    """Strong noise at the start would join them all."""
    parts = np.kron(np.eye(4), np.full(5, 6.0))
    rates = scale * rng.gamma(0.7, 1 / 0.7, (150, 4)) @ parts
    X = rng.poisson(rates * rng.gamma(1 / 0.3, 0.3, rates.shape))
    est = AnnealedGammaProcessNMF(8, dispersion="auto", effort=0, random_state=0).fit(X)
    assert 4 <= est.n_effective_components_ <= 5
    assert 0.2 < est.dispersion_ < 0.3


def test_fits_to_large_counts_do_not_end_early(rng):
    """The bound of a large count with noise grows by its logarithm, and not by the count."""
    rates = 2e4 * rng.gamma(0.7, 1 / 0.7, (60, 3)) @ np.kron(np.eye(3), np.ones(4))
    X = rng.poisson(rates * rng.gamma(1 / 0.3, 0.3, rates.shape))
    settings = {"n_components": 3, "dispersion": 0.3, "annealing": "none", "max_iter": 300}
    est, longer = (nmf(**settings, tol=tol).fit(X) for tol in (1e-5, 1e-8))
    assert est.converged_
    assert longer.lower_bound_ - est.lower_bound_ < 5.0


def test_a_search_does_not_begin_with_joined_parts_of_large_counts():
    """A start with strong noise ended with one part, from which no move found the others."""
    rng = np.random.default_rng(0)
    rates = 6e3 * rng.gamma(0.7, 1 / 0.7, (150, 4)) @ np.kron(np.eye(4), np.ones(5))
    X = rng.poisson(rates * rng.gamma(10.0, 0.1, rates.shape))
    est = AnnealedGammaProcessNMF(8, dispersion="auto", random_state=0).fit(X)
    assert est.n_effective_components_ == 4
    assert 0.07 < est.dispersion_ < 0.1


METHODS = ("none", SVIPlus(), SVIPlus(noise="gaussian"), "structured")
OF_LARGE_COUNTS = {"dispersion": "auto", "max_iter": 50, "random_state": 0}


@pytest.fixture(scope="module")
def large_counts():
    """Large counts of parts that share no column, and the score of a fit in batches."""
    rng = np.random.default_rng(0)
    rates = 60.0 * rng.gamma(0.7, 1 / 0.7, (200, 4)) @ np.kron(np.eye(4), np.ones(5))
    X = rng.poisson(rates * rng.gamma(1 / 0.3, 0.3, rates.shape))
    return X, AnnealedGammaProcessNMF(8, **OF_LARGE_COUNTS, annealing="none").fit(X).score(X)


@pytest.mark.parametrize("annealing", METHODS, ids=str)
def test_minibatches_find_parts_of_large_counts(annealing, large_counts):
    """Steps of EM left the parts mixed, which a large dispersion then explained."""
    X, score_of_batches = large_counts
    est = AnnealedGammaProcessNMF(8, **OF_LARGE_COUNTS, annealing=annealing, batch_size=50).fit(X)
    assert 0.2 < est.dispersion_ < 0.3
    assert est.n_effective_components_ <= 6
    assert est.score(X) > score_of_batches - 0.03


def test_exact_gradients_of_draws_go_without_longer_steps(rng):
    """The sum of both left the domain of the parameters."""
    method = StructuredVI(gradient="exact", n_passes=30)
    est = nmf(dispersion=0.3, n_components=4, annealing=method).fit(noisy_counts(rng, 0.3, n=60))
    assert np.isfinite(est.lower_bound_)


def test_a_stream_learns_its_dispersion(rng):
    """After a hundred updates alone it moves from its start, 1, as the parts settle."""
    X, seen = noisy_counts(rng, 5.0, n=20), []
    est = nmf(dispersion="auto", n_components=4).set_params(max_iter=1)
    for batch in np.split(X, 4) * 36:
        seen.append(est.partial_fit(batch).dispersion_)
    assert set(seen[:100]) == {1.0}
    assert seen[-1] > seen[120] > 1.01


@pytest.mark.parametrize("value", [0.0, -1.0, "noise", np.inf])
def test_bad_dispersions_are_refused(value, rng):
    with pytest.raises(ValueError, match="dispersion"):
        nmf(dispersion=value).fit(drawn_counts(rng))


# Predictions


@pytest.fixture
def est(rng):
    settings = {"n_components": 4, "activation_prior": 0.7, "max_iter": 40}
    return nmf(dispersion=0.5, **settings).fit(noisy_counts(rng, 0.5, n=80))


def test_the_score_is_that_of_negative_binomial_counts(est, monkeypatch, rng):
    """Given one half of a cell, of the rate m, the other has the noise Gamma(a + x, a + m)."""
    X = noisy_counts(rng, 0.5, n=9, missing=0.2)
    X[0] = np.nan
    first = np.floor(np.nan_to_num(X) / 2.0)
    module = "sklearn_anneal.estimators._count_predictions.split_documents"
    monkeypatch.setattr(module, lambda counts: (sparse(first), sparse(np.nan_to_num(X) - first)))
    ctx, halves, seen = context_of(est), np.where(np.isnan(X), np.nan, first), ~np.isnan(X)
    h = est._infer(ctx, est._make_units(halves, None), exposure=0.5)
    m, a = 0.5 * h @ est.components_, 2.0
    terms = nbinom.logpmf(np.nan_to_num(X) - first, a + first, (a + m) / (a + 2.0 * m))
    assert est.score(X) == pytest.approx(terms[seen].sum() / seen.sum(), rel=1e-5)


def test_deviations_of_missing_cells_are_those_of_draws(est, rng):
    X = noisy_counts(rng, 0.5, n=25)
    X[:, 3] = np.nan
    means, std = est.impute(X, return_std=True)
    drawn = est.impute(X, n_draws=50, random_state=0)[:, :, 3]
    assert_allclose(drawn.mean(axis=0).mean(), means[:, 3].mean(), rtol=0.2)
    large = means[:, 3] > 2.0
    assert_allclose(np.mean(drawn.std(axis=0)[large] / std[large, 3]), 1.0, atol=0.3)
    # Poisson counts would vary less.
    assert (std[large, 3] ** 2 > means[large, 3] + 0.4 * means[large, 3] ** 2).all()


def test_samples_are_over_dispersed(est):
    X, activations = est.sample(20_000)
    m = activations @ est.components_
    squares = (X - m) ** 2
    assert_allclose(squares.sum(axis=0), (m + 0.5 * m**2).sum(axis=0), rtol=0.2)


def test_one_shape_serves_all_rows_of_a_start(est):
    """Activations that share a row of rates are those of rows of their own."""
    X = noisy_counts(np.random.default_rng(1), 0.5, n=5)
    ctx = context_of(est)
    units = est._make_units(X, None)
    seen = ctx.model.visit(ctx.q, units, evaluation=True)
    shape = np.ones((5, 4))
    found = [
        seen._swept(seen._block(units, slice(0, 5)), Activations(shape, rate), 3)
        for rate in (np.ones((1, 4)), np.ones((5, 4)))
    ]
    assert_array_equal(found[0], found[1])
