"""Spike-and-slab factor analysis by gradients: their values, and what fits reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import context_of, units_of
from models.spike_slab_factor_analysis import GIVEN, few_factors, small_spike_slab
from numpy.testing import assert_allclose
from scipy.stats import norm
from test_spike_slab_model import AUTO, cosines, drawn

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis
from sklearn_anneal.annealing import ProximityVI, VariationalTempering
from sklearn_anneal.families import Tempering
from sklearn_anneal.models.spike_slab_factor_analysis import SpikeSlabFactorAnalysis
from sklearn_anneal.models.spike_slab_gradient import LOGITS, ROWS, SpikeSlabByGradients


def problem(rng, missing, learned, n=7):
    """A model with parameters of rows at a random point, and its rows."""
    X = few_factors(4, missing=missing)(rng, n)
    est = small_spike_slab(solver="gradient", annealing="none")
    units = est._make_units(X, rng.uniform(0.5, 2.0, n))
    given = AUTO if learned else GIVEN
    base = SpikeSlabFactorAnalysis(2, 4, **given, missing=missing > 0)
    model = SpikeSlabByGradients(base, None)
    summary = model.summary(units)
    model = model.resolved(summary, hold_units=True)
    q = model.init(units, summary, {}, np.random.RandomState(0))
    return (
        model,
        units.centered(summary),
        {k: v + 0.5 * rng.normal(size=v.shape) for k, v in q.items()},
    )


def value_of(model, q, units, constraint=None):
    """The lower bound, or the statistic of a constraint."""
    step = model.visit(q, units, constraint=constraint).step(units)
    if constraint is not None:
        return step.constraints[0]
    return step.bound - model.kl(q, {})


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_gradients_are_finite_differences_of_the_bound(missing, learned, rng):
    model, units, q = problem(rng, missing, learned)
    step = model.visit(q, units).step(units)
    of_kl = model.kl_gradient(q, {})
    assert set(q) == set(model.keys) == set(step.statistics)
    for key, start in q.items():
        gradient = step.statistics[key] - of_kl.get(key, 0.0)
        direction = rng.normal(size=start.shape)
        ends = [value_of(model, {**q, key: start + e * direction}, units) for e in (1e-5, -1e-5)]
        expected = (ends[0] - ends[1]) / 2e-5
        assert np.sum(gradient * direction) == pytest.approx(expected, rel=1e-6, abs=1e-6), key


@pytest.mark.parametrize("name", ["entropy", "kl", "mean_variance", "active_units"])
def test_gradients_of_constraints_are_finite_differences(name, rng):
    """Part j of a statistic with parts depends on the entries j of the parameters alone."""
    model, units, q = problem(rng, 0.0, False)
    found = value_of(model, q, units, name)
    for key, gradient in found.gradient.items():
        direction = rng.normal(size=gradient.shape)
        ends = [
            np.asarray(value_of(model, {**q, key: q[key] + e * direction}, units, name).value[key])
            for e in (1e-5, -1e-5)
        ]
        product = gradient * direction
        while product.ndim > ends[0].ndim:
            product = product.sum(axis=-1)
        rtol = 1e-5 if product.ndim else 1e-6
        assert_allclose(product, (ends[0] - ends[1]) / 2e-5, rtol=rtol, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("x", [1.0, 0.3])
def test_rows_that_are_swept_are_at_their_optimum(missing, x, rng):
    """So that the gradient by the loadings is that of the bound with the best rows."""
    model, units, q = problem(rng, missing, True)
    model.base.max_sweeps, model.base.sweep_tol = 3000, 1e-13
    loadings = {key: value for key, value in q.items() if key not in ROWS}
    t = Tempering(x, x, 1.0)
    swept = model.without_rows().visit(loadings, units, t)
    assert LOGITS not in swept.step(units).statistics
    y = units.X - units.center
    cells = ~np.isnan(y)
    hyper = model.hyper(q)
    rows = swept._swept(
        np.where(cells, y, 0.0) / np.sqrt(hyper.noise), cells.astype(float),
        q["loading_means"], np.exp(2.0 * q["loading_log_sds"]), hyper, x,
    )  # fmt: skip
    gradient = model.visit({**loadings, **rows}, units, t).step(units).statistics
    for key in ROWS:
        assert_allclose(gradient[key], 0.0, atol=1e-7, err_msg=key)
    for key in loadings:
        assert_allclose(gradient[key], swept.step(units).statistics[key], rtol=1e-8, atol=1e-7)


def test_the_bound_is_that_of_coordinate_ascent(rng):
    """At rows at their optimum, both solvers have the same lower bound for the same loadings."""
    X, _ = drawn(rng, n=60, d=5, missing=0.1)
    est = small_spike_slab(
        n_components=3, solver="gradient", annealing="none", max_sweeps=3000, sweep_tol=1e-13
    ).fit(X)
    model, prior, q = context_of(est).model.coordinate(context_of(est).q)
    ctx = context_of(est)
    units = units_of(est, X).centered(ctx.summary)
    bounds = model.infer(units, q)[2]
    assert est.lower_bound_ < bounds.sum() - model.kl(q, prior)
    step = ctx.model.visit(ctx.q, units).step(units)
    assert step.bound == pytest.approx(bounds.sum(), rel=1e-9)
    assert ctx.model.kl(ctx.q, {}) == pytest.approx(model.kl(q, prior), rel=1e-9)


@pytest.mark.parametrize("size", [None, 100])
def test_fits_find_the_loadings(size, rng):
    X, loadings = drawn(rng)
    est = AnnealedSpikeSlabFactorAnalysis(
        5, solver="gradient", annealing="none", max_iter=600 if size is None else 150, tol=0,
        random_state=0, batch_size=size, learning_rate_decay=0.01,
    ).fit(X)  # fmt: skip
    assert cosines(est.components_, loadings).min() > 0.95
    assert set(context_of(est).q) >= {"loading_means"} and LOGITS not in context_of(est).q
    peer = AnnealedSpikeSlabFactorAnalysis(5, annealing="none", random_state=0).fit(X)
    assert est.score(X) > peer.score(X) - 1.0
    again = est.set_params(warm_start=True, max_iter=2).fit(X)
    assert np.isfinite(again.lower_bound_)


def test_proximity_holds_the_entropy(rng):
    """While the entropy of the rows falls, that of the loadings is pulled up."""
    X, _ = drawn(rng, n=100)

    def log_sds(strength):
        est = small_spike_slab(
            n_components=3, solver="gradient", max_iter=0, learning_rate_init=0.2,
            annealing=ProximityVI(strength=strength, n_passes=20, lag=1, schedule="linear"),
        ).fit(X)  # fmt: skip
        return context_of(est).q["loading_log_sds"]

    free, held = log_sds(0.0), log_sds(1e4)
    assert held.mean() > free.mean() + 0.3


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_log_partition_is_the_integral_of_the_tempered_likelihood(missing, rng):
    model, units, q = problem(rng, missing, learned=True)
    summary = model.base.summary(units)
    observed = np.isfinite(units.X) if missing else np.ones(units.X.shape)
    cells = units.weights @ observed
    sds = np.sqrt(model.hyper(q).noise)
    points = np.linspace(-60.0, 60.0, 200_001)
    x = np.array([0.1, 0.5, 1.0])
    expected = [
        sum(
            n
            * np.log(np.sum(norm.pdf(points * sd, scale=sd) ** one) * sd * (points[1] - points[0]))
            for n, sd in zip(cells, sds, strict=True)
        )
        for one in x
    ]
    assert_allclose(model.log_partition(x, summary, q), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_likelihood_is_what_temperatures_multiply(missing, rng):
    """The step at T is the gradient of x times the likelihood plus all other terms."""
    model, units, q = problem(rng, missing, learned=True)
    x = 0.3

    def tempered(q):
        step = model.visit(q, units).step(units)
        return step.bound - (1.0 - x) * step.likelihood

    found = model.visit(q, units, Tempering(local=x, statistics=x)).step(units).statistics
    for key, start in q.items():
        direction = rng.normal(size=start.shape)
        up, down = (tempered({**q, key: start + e * direction}) for e in (1e-5, -1e-5))
        expected = (up - down) / 2e-5
        assert np.sum(found[key] * direction) == pytest.approx(expected, rel=1e-5, abs=1e-5), key


@pytest.mark.parametrize("size", [None, 50])
def test_inferred_temperatures_fall_as_the_fit_improves(size, rng):
    X, _ = drawn(rng, n=100)
    est = small_spike_slab(
        n_components=3, solver="gradient", batch_size=size, max_iter=20,
        annealing=VariationalTempering(n_passes=60),
    ).fit(X)  # fmt: skip
    temperatures = est.temperatures_
    assert temperatures[0] > 2.0
    assert temperatures[59] < 0.7 * temperatures[0]
    assert (temperatures[60:] == 1.0).all()
    assert est.lower_bounds_[-1] > est.lower_bounds_[0]


@pytest.mark.parametrize("annealing", ["reheating", "stochastic", "local_tempering", "structured"])
def test_methods_of_conjugate_updates_are_refused(annealing, rng):
    X, _ = drawn(rng, n=30)
    with pytest.raises(ValueError, match="trained by gradients"):
        small_spike_slab(solver="gradient", annealing=annealing).fit(X)


def test_copies_of_contexts_are_not_changed(rng):
    X, _ = drawn(rng, n=50)
    est = small_spike_slab(solver="gradient", annealing="none").fit(X)
    ctx = replace(context_of(est))
    before = {key: value.copy() for key, value in ctx.q.items()}
    est.transform(X)
    for key, value in before.items():
        assert_allclose(ctx.q[key], value, rtol=0)
