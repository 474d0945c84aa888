"""The equations of gamma-process factorisation: bounds, learned priors, draws, forms of input."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import plain_gamma_process_nmf as plain
import pytest
from cases_gamma_process_nmf import drawn_counts, nmf, sparse
from designs import in_turn, pairwise
from harness import (
    context_of,
    one_update,
    open_run,
    recorded_visits,
    units_of,
    visit,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from sklearn_anneal.annealing import NoAnnealing, StructuredVI
from sklearn_anneal.models.gamma_process_nmf import GammaProcessNMF

PRIORS = ("activation_prior", "component_prior", "concentration")
AUTO = dict.fromkeys(PRIORS, "auto")
TINY = {
    "full": np.array([[3.0, 1.0], [0.0, 4.0], [2.0, 2.0]]),
    "missing": np.array([[3.0, np.nan], [0.0, 4.0], [np.nan, np.nan]]),
}


def activations_of(seen):
    """Shape and rate of q(h) of all rows, both of shape (N, K)."""
    parts = [(local.shape, np.broadcast_to(local.rate, local.shape.shape)) for local in seen.local]
    return (np.concatenate(part) for part in zip(*parts, strict=True))


# The bound


@pytest.mark.parametrize("priors", [(1.5, 1.2, 3.0), (0.3, 0.4, 1.0)])
@pytest.mark.parametrize("data", TINY)
def test_the_bound_is_an_expectation_under_the_posterior(data, priors, rng):
    X = TINY[data]
    est = nmf(**dict(zip(PRIORS, priors, strict=True)), max_iter=20).fit(X)
    ctx = replace(context_of(est), exploring=False)
    seen = visit(ctx, NoAnnealing(), units_of(est, X), evaluation=True)
    shape, rate = activations_of(seen)
    draws = plain.draws_of_bound(
        X, ctx.q, shape, rate, priors, 1.0 / np.nanmean(X), rng, n_draws=40_000
    )
    bound = seen.step.bound - ctx.model.kl(ctx.q, ctx.prior)
    assert abs(draws.mean() - bound) < 4.0 * draws.std() / np.sqrt(len(draws))


@pytest.mark.parametrize(
    "annealing",
    [
        "none",
        "deterministic",
        pytest.param("reheating", marks=pytest.mark.exhaustive),
        pytest.param("stochastic", marks=pytest.mark.exhaustive),
    ],
)
def test_drawn_parts_are_counted_and_found(annealing, rng):
    """Five parts that share no column, in ten components, at the prior that drew the rows."""
    parts = np.kron(np.eye(5), np.ones(4)) * rng.uniform(3.0, 6.0, (5, 20))
    X = rng.poisson(rng.gamma(0.7, 1.0 / 0.7, (150, 5)) @ parts)
    est = nmf(
        n_components=10,
        annealing=annealing,
        activation_prior=0.7,
        max_iter=300,
        effort="auto",
    ).fit(X)
    assert est.n_effective_components_ == 5
    shares = est.components_ / est.components_.sum(axis=1, keepdims=True)
    used = shares[np.argsort(-est.component_weights_)[:5]]
    expected = parts / parts.sum(axis=1, keepdims=True)
    distances = np.abs(used[:, None] - expected).sum(axis=-1).min(axis=0)
    assert distances.max() < 0.05


# Learned priors


def kl_of_prior(ctx, name, value):
    model = GammaProcessNMF(
        ctx.model.n_components,
        ctx.model.n_columns,
        **{other: getattr(ctx.model, other) for other in PRIORS} | {name: value},
    )
    model.scale = ctx.model.scale
    return model.kl(ctx.q, model._prior())


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_learned_priors_maximise_the_bound_at_fixed_posteriors(missing, rng):
    X = drawn_counts(rng, n=80, missing=missing)
    ctx, method, units = open_run(nmf(**AUTO), X)
    for _ in range(5):
        one_update(ctx, method, units)
    seen = visit(replace(ctx, exploring=False), method, units)
    model, prior, q = ctx.model.learned(ctx.q, ctx.prior, seen.step, 1.0, 1.0)
    assert q["components_shape"] is ctx.q["components_shape"]
    # The counts of components stay.
    counts = ctx.model.expected_counts(ctx.q, ctx.prior)
    assert_allclose(model.expected_counts(q, prior), counts)
    # Priors are learned from posteriors with the best scales.
    shape, rate = activations_of(seen)
    scaled, _ = ctx.model._scaled(ctx.q, ctx.prior, seen.step.statistics, 1.0)
    totals = (scaled["components_shape"] / scaled["components_rate"]).sum(axis=1)
    added = ctx.model.component_prior * (totals - X.shape[1]) / ctx.model.activation_prior
    before = (shape / rate).sum(axis=0)
    rate, ctx = rate * before / (len(X) + added), replace(ctx, q=scaled)
    log_h, h = plain.expectations(shape, rate)

    def of_activations(b):
        return -np.sum(b * np.log(b) - gammaln(b) + (b - 1.0) * log_h - b * h)

    for name, loss in (
        ("activation_prior", of_activations),
        ("component_prior", lambda value: kl_of_prior(ctx, "component_prior", value)),
        ("concentration", lambda value: kl_of_prior(ctx, "concentration", value)),
    ):
        best = minimize_scalar(
            lambda log, loss=loss: loss(np.exp(log)), bounds=(-7, 9), method="bounded",
            options={"xatol": 1e-10},
        )  # fmt: skip
        found = getattr(model, name)
        assert found == pytest.approx(np.exp(best.x), rel=1e-4), name
        assert loss(found) <= loss(getattr(ctx.model, name)), name
    assert_allclose(prior["components_shape"], model.component_prior)
    assert_allclose(prior["weights_shape"], model.concentration / 3)


def test_a_damped_step_of_learning_goes_a_part_of_the_way(rng):
    ctx, method, units = open_run(nmf(**AUTO), drawn_counts(rng))
    seen = visit(ctx, method, units)
    whole, half = (
        ctx.model.learned(ctx.q, ctx.prior, seen.step, rho, 1.0)[0] for rho in (1.0, 0.5)
    )
    for name in PRIORS:
        between = np.sqrt(getattr(ctx.model, name) * getattr(whole, name))
        assert getattr(half, name) == pytest.approx(between), name


def test_priors_go_beyond_their_best_values_where_they_moved_in_that_direction_before(rng):
    ctx, method, units = open_run(nmf(**AUTO), drawn_counts(rng, n=80))
    for _ in range(5):
        one_update(ctx, method, units)
    seen = visit(replace(ctx, exploring=False), method, units)
    how = ctx.q, ctx.prior, seen.step, 1.0, 1.0
    best = ctx.model.learned(*how)[0]
    assert set(best.changes) == set(PRIORS)
    model = copy(ctx.model)
    model.changes = best.changes
    ahead = model.learned(*how)[0]
    back = copy(model)
    back.changes = {name: -change for name, change in best.changes.items()}
    for name in PRIORS:
        old, new = getattr(ctx.model, name), getattr(best, name)
        # Steps to much larger values would lower the bound, and end at the best one.
        expected = old * (new / old) ** 1.8 if name == "activation_prior" else new
        assert getattr(ahead, name) == pytest.approx(expected), name
        assert getattr(back.learned(*how)[0], name) == new, name
    # What another step of learning comes after no longer counts.
    assert model.learned(*how, late=False)[0].changes == {}
    assert model.learned(*how[:3], 0.5, 1.0)[0].changes == {}


def test_learned_values_are_near_those_that_drew_the_data(rng):
    parts = rng.gamma(0.5, 2.0, (3, 300))
    X = rng.poisson(30.0 * rng.gamma(0.8, 1.25, (300, 3)) @ parts)
    est = nmf(max_iter=300, tol=1e-8, **AUTO).fit(X)
    assert est.activation_prior_ == pytest.approx(0.8, rel=0.15)
    assert est.component_prior_ == pytest.approx(0.5, rel=0.15)


# Annealing


def test_structured_inference_has_one_draw_per_update(monkeypatch, rng):
    X = drawn_counts(rng)
    found = recorded_visits(monkeypatch)
    nmf(annealing=StructuredVI(n_passes=4)).fit(X)
    draws = [seen.visit.draw for seen in found if seen.visit.draw is not None]
    assert len(draws) == 8
    for first, second in zip(draws[::2], draws[1::2], strict=True):
        assert first is second
    values = [draw["components_shape"]["value"] for draw in draws[::2]]
    assert all(not np.array_equal(a, b) for a, b in zip(values, values[1:], strict=False))


def test_structured_steps_divide_counts_by_the_draw(rng):
    """The draw takes the place of expectations in the local step and in the rates."""
    X = drawn_counts(rng, missing=0.2)
    ctx, method, units = open_run(nmf(annealing=StructuredVI()), X)
    for block in ctx.model.blocks:
        seen = visit(ctx, method, units, block=block)
        draw = seen.visit.draw
        theta, w = draw["weights_shape"], draw["components_shape"]
        table = seen.visit.expected
        logs = np.log(table.table[:, :3]) + table.largest[:, None]
        assert_allclose(logs, w["log_value"].T, rtol=1e-10, atol=1e-10)
        assert_allclose(table.means, w["value"].T)
        assert_array_equal(seen.visit.mean_weights, theta["value"])
        shape, rate = activations_of(seen)
        observed = ~np.isnan(X)
        assert_allclose(rate, 0.1 + (observed @ w["value"].T) * theta["value"], rtol=1e-10)
        means = shape / rate
        stats = ctx.model.block_statistics(block, seen.step.statistics, ctx.q)
        exposure = observed.T @ means
        expected = {
            "weights_rate": (exposure * w["value"].T).sum(axis=0),
            "components_rate": (exposure * theta["value"]).T,
        }
        (name,) = expected.keys() & stats.keys()
        assert_allclose(stats[name], expected[name], rtol=1e-10, err_msg=name)


@in_turn(kind=["dense", "missing", "sparse"], gradient=["approximate", "exact"])
def test_structured_fits_find_parts(kind, gradient, rng):
    X = drawn_counts(rng, n=200, n_columns=12, size=20.0, missing=0.1 if kind == "missing" else 0)
    given = sparse(X) if kind == "sparse" else X
    est = nmf(annealing=StructuredVI(gradient=gradient, n_passes=30)).fit(given)
    start = nmf(max_iter=0).fit(given)
    assert np.isfinite(est.lower_bound_)
    assert est.reconstruction_err_ < 0.6 * start.reconstruction_err_


def test_jitter_changes_counts_by_a_random_factor(rng):
    ctx, *_ = open_run(nmf(), drawn_counts(rng, n_columns=500))
    moved = ctx.model.jitter(ctx.q, 0.2, rng, ctx.prior)["components_shape"]
    floor = ctx.prior["components_shape"]
    ratio = np.log((moved - floor) / (ctx.q["components_shape"] - floor))
    assert ratio.std() == pytest.approx(0.2, rel=0.1)
    assert abs(ratio.mean()) < 0.02
    weights = {key: ctx.q[key] for key in ("weights_shape", "weights_rate")}
    assert ctx.model.jitter(weights, 0.2, rng, ctx.prior) is weights


def test_random_parameters_have_the_counts_of_the_data(rng):
    """The η of stochastic annealing: all counts are spread over components, at random."""
    X = drawn_counts(rng, missing=0.2)
    ctx, *_ = open_run(nmf(), X)
    drawn = [ctx.model.random_natural(ctx.summary, ctx.prior, rng) for _ in range(200)]
    assert all(ctx.model.factors().valid(q) for q in drawn)
    totals = [(q["components_shape"] - 0.1).sum() for q in drawn]
    assert_allclose(totals, np.nansum(X))
    of_weights = np.array([(q["weights_shape"] - 1.0 / 3).sum() for q in drawn])
    assert of_weights.mean() == pytest.approx(np.nansum(X), rel=0.15)


# Summaries


def test_summaries_count_observed_cells(rng):
    X, weights = drawn_counts(rng, missing=0.3), rng.uniform(0.5, 2.0, 60)
    est = nmf().fit(X)
    summary = context_of(est).model.summary(units_of(est, X, weights))
    seen = ~np.isnan(X)
    assert summary.total == pytest.approx(weights @ np.nansum(X, axis=1))
    assert summary.cells == pytest.approx(weights @ seen.sum(axis=1))
    assert summary.mean == pytest.approx(summary.total / summary.cells)
    assert summary.rows == summary.weight == pytest.approx(weights.sum())


# Forms of input


METHODS = ("none", "deterministic", "stochastic", "svi_plus", "proximity")


@pytest.mark.parametrize("annealing", METHODS)
def test_dense_and_sparse_input_are_the_same_fit(annealing, rng):
    X, weights = drawn_counts(rng, n=100), rng.uniform(0.5, 2.0, 100)
    how = {"annealing": annealing, "max_sweeps": 10, "sweep_tol": 0.0, "max_iter": 5}
    dense, compressed = nmf(**how), nmf(**how)
    for est in (dense, compressed):
        if annealing != "none":
            est.set_params(annealing__n_passes=5)
    dense.fit(X, sample_weight=weights)
    compressed.fit(sparse(X), sample_weight=weights)
    assert_allclose(compressed.lower_bounds_, dense.lower_bounds_, rtol=1e-10)
    for name in ("components_", "component_weights_", "reconstruction_err_"):
        assert_allclose(
            getattr(compressed, name), getattr(dense, name), rtol=1e-8, atol=1e-12, err_msg=name
        )
    assert_allclose(compressed.transform(sparse(X)), compressed.transform(X), rtol=1e-10)
    assert compressed.score(sparse(X)) == pytest.approx(compressed.score(X), rel=1e-10)


# Concentrations that have no best value


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pairwise(
    shape=[(8, 5), (5, 3), (60, 8)],
    max_iter=[3, 20, 60],
    annealing=["none", "reheating", "deterministic"],
)
def test_the_only_component_explains_all_counts(shape, max_iter, annealing, rng):
    """One weight says nothing of how weights differ, and a prior of it is no more than the data."""
    X = rng.poisson(rng.gamma(1.0, 1.0, size=(shape[0], 1)) * rng.gamma(1.0, 1.0, size=shape[1]))
    est = nmf(n_components=1, annealing=annealing, max_iter=max_iter, **AUTO).fit(X)
    ctx = context_of(est)
    assert est.n_effective_components_ == 1
    if max_iter > 3:  # the prior has come to its end
        assert_allclose(ctx.model.expected_counts(ctx.q, ctx.prior), X.sum(), rtol=1e-8)
    assert est.concentration_ <= X.sum() * (1 + 1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [8, 20, 60])
def test_equal_components_keep_their_counts(max_iter, rng):
    """All counts are some component's, and both have half of them."""
    X = np.kron(np.eye(2, dtype=int), rng.poisson(3.0, size=(10, 4)))
    est = nmf(n_components=2, annealing="none", max_iter=max_iter, **AUTO).fit(X)
    ctx = context_of(est)
    counts = ctx.model.expected_counts(ctx.q, ctx.prior)
    assert_allclose(counts.sum(), X.sum(), rtol=0.05)
    assert est.n_effective_components_ == 2
    assert est.concentration_ <= X.sum() * (1 + 1e-8)
