"""Further passes over full tables of counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases_gamma_process_nmf import drawn_counts, nmf
from harness import context_of, units_of
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix
from scipy.special import psi

from sklearn_anneal import Shards
from sklearn_anneal.inference import loop, visits
from sklearn_anneal.inference.conjugate import update
from sklearn_anneal.inference.loop import lower_bound
from sklearn_anneal.inference.progress import Progress
from sklearn_anneal.models import _count_passes, _count_visits, gamma_process_nmf
from sklearn_anneal.models._count_passes import (
    PlainPasses,
    ShapeMomentum,
    exploring_passes,
    further_passes,
)
from sklearn_anneal.models._count_visits import Activations
from sklearn_anneal.models.gamma_process_nmf import COMPONENTS, WEIGHTS, GammaProcessNMF
from sklearn_anneal.parallel.workers import SEQUENTIAL


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """No passes that explore are added to those of the loop, so that fits have hardly begun."""
    monkeypatch.setattr(gamma_process_nmf, "SMALL", 0)


def fitted(X, **params):
    """A fit that has hardly begun, its units, and its activations."""
    params = {"annealing": "none", "init_params": "random", "max_iter": 4} | params
    est = nmf(**params).fit(X)
    ctx, units = context_of(est), units_of(est, X)
    means = ctx.model.infer(units, ctx.q, SEQUENTIAL)
    rates = ctx.model.visit(ctx.q, units).rates_of(units)
    return ctx, units, [Activations(means * rates, rates)]


def further(ctx, units, local, momentum=None):
    return ctx.model.further(ctx.q, ctx.prior, units, local, momentum)


@pytest.fixture
def X(rng):
    return drawn_counts(rng, n=80, n_columns=20, size=20.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_they_raise_the_bound_and_keep_all_counts(X):
    ctx, units, local = fitted(X)
    before = lower_bound(ctx, units, SEQUENTIAL)
    ctx.q, (activations,), n_passes, _ = further(ctx, units, local)
    assert n_passes == _count_passes._FURTHER_PASSES
    ctx.model.explores_further = True
    *_, n_passes, _ = further(ctx, units, local)
    assert n_passes == _count_passes._FURTHER_IF_SMALL
    assert lower_bound(ctx, units, SEQUENTIAL) > before
    assert_allclose(ctx.model.expected_counts(ctx.q, ctx.prior).sum(), X.sum(), rtol=1e-12)
    assert_allclose((activations.shape - ctx.model.activation_prior).sum(), X.sum(), rtol=1e-12)


class Momentum:
    """The momentum of some shapes in plain numpy; the earlier roots are those of the start."""

    def __init__(self, shapes, prior):
        self.prior = prior
        self.roots = self.earlier = self.ahead = np.sqrt(np.maximum(shapes - prior, 0.0))

    def go(self, count):
        both = (self.roots - self.earlier) + (self.roots - self.ahead)
        moved = self.roots + count / (count + 2.0) * both
        self.earlier, self.ahead = self.roots, np.maximum(moved, np.sqrt(0.5) * self.roots)
        return self.prior + self.ahead**2

    def turn(self, shapes, weights=1.0):
        self.roots = np.sqrt(np.maximum(shapes - self.prior, 0.0))
        return np.vdot(weights * (self.roots - self.ahead), self.roots - self.earlier)


def plain_passes(X, weights, prior, b, q, shape, n_passes):
    """Return what ``PlainPasses.run`` does at first, and the number of updates in a row."""
    a, of_weights, rate_of_weights = prior["components_shape"][0, 0], *map(q.get, WEIGHTS)
    parts, rate_of_parts, count = q["components_shape"].T, q["components_rate"][:, 0], 0
    moving = Momentum(shape, b), Momentum(parts, a)
    w = np.ones(len(X)) if weights is None else weights
    for _ in range(n_passes):
        shape, parts = (each.go(count) for each in moving)
        count += 1
        table, totals = np.exp(psi(parts)) / rate_of_parts, (parts / rate_of_parts).sum(axis=0)
        rate = b + of_weights / rate_of_weights * totals
        own = table * np.exp(psi(of_weights)) / rate_of_weights / rate
        powers = np.exp(psi(shape))
        shape = b + powers * (X / (powers @ own.T) @ own)
        of_weights = prior["weights_shape"] + w @ (shape - b)
        exposure = w @ shape / rate
        rate_of_weights = prior["weights_rate"] + exposure * totals
        own = table * np.exp(psi(of_weights)) / rate_of_weights / rate
        powers = np.exp(psi(shape))
        parts = a + own * ((w[:, None] * X / (powers @ own.T)).T @ powers)
        rate_of_parts = prior["components_rate"][0, 0] + of_weights / rate_of_weights * exposure
        if moving[0].turn(shape, w[:, None]) + moving[1].turn(parts) < 0.0:
            count = 0
    found = (of_weights, rate_of_weights, parts.T, rate_of_parts[:, None])
    return dict(zip((*WEIGHTS, *COMPONENTS), found, strict=True)), shape, rate[None], count


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n", "n_columns", "k", "n_passes"),
    [(5, 3, 1, 1), (1, 1, 2, 2), (16, 17, 5, 3), (33, 16, 19, 3), (40, 37, 3, 25)],
)
def test_they_are_their_formulas(rng, n, n_columns, k, n_passes, dtype, weighted):
    X = rng.poisson(5.0, (n, n_columns)) + np.eye(n, n_columns)
    weights = rng.uniform(0.5, 2.0, n) if weighted else None
    shapes = ((k,), (k,), (k, n_columns), (k, 1))
    q = {
        key: rng.gamma(5.0, 1.0, size) + 0.5
        for key, size in zip((*WEIGHTS, *COMPONENTS), shapes, strict=True)
    }
    prior = {
        "weights_shape": np.full(k, 0.5),
        "weights_rate": np.full(k, 2.0),
        "components_shape": np.array([[0.3]]),
        "components_rate": np.array([[0.4]]),
    }
    own, momentum = Activations(rng.gamma(5.0, 1.0, (n, k)) + 0.5, np.ones((1, k))), ShapeMomentum()
    expected, shape, rate, count = plain_passes(X, weights, prior, 0.2, q, own.shape, n_passes)
    passes = PlainPasses(X.astype(dtype), weights, prior, 0.2, q, own, momentum)
    found, activations = passes.run(n_passes)
    rtol = 1e-9 if dtype == np.float64 else 3e-3
    for key, value in expected.items():
        assert_allclose(found[key], value, rtol=rtol, err_msg=key)
    assert_allclose(activations.shape, shape, rtol=rtol)
    assert_allclose(activations.rate, rate, rtol=rtol)
    # An update without momentum follows.
    assert momentum.count == count + 1


def test_momentum_goes_on_after_a_pass_between(X):
    """Passes with a bound between them rise further than those that begin anew after each."""
    ctx, units, local = fitted(X)
    bounds = []
    for keeps in (True, False):
        q, own, momentum = ctx.q, local, None
        for _ in range(3):
            q, own, _, momentum = ctx.model.further(q, ctx.prior, units, own, momentum)
            assert momentum.count > 0
            momentum = momentum if keeps else None
        bounds.append(lower_bound(replace(ctx, q=q), units, SEQUENTIAL))
    assert bounds[0] > bounds[1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_large_tables_are_those_of_double_precision(X, monkeypatch):
    """Sweeps and passes in single precision are as precise as that, and keep all counts."""
    ctx, units, local = fitted(X)
    how = X.astype(float), None, ctx.prior, ctx.model.activation_prior, ctx.q, local[0]
    visit = ctx.model.visit(ctx.q, units)
    exploring = visit.start(units, None, True, 0.0, np.random.default_rng(0))
    assert exploring.momentum
    expected, of_double = PlainPasses(*how).run(5), visit.step(units, None, exploring)
    for module in (_count_passes, _count_visits):
        monkeypatch.setattr(module, "LARGE", 0)
    found, of_single = PlainPasses(*how).run(5), visit.step(units, None, exploring)
    assert (found[1].shape != expected[1].shape).any()
    assert_allclose(found[1].shape, expected[1].shape, rtol=1e-3, atol=1e-3)
    assert_allclose(found[0]["weights_shape"], expected[0]["weights_shape"], rtol=1e-4)
    b = ctx.model.activation_prior
    assert_allclose((found[1].shape - b).sum(), X.sum(), rtol=1e-12)
    assert (of_single.local.shape != of_double.local.shape).any()
    assert_allclose(of_single.bound, of_double.bound, rtol=1e-6)
    assert_allclose((of_single.local.shape - b).sum(), X.sum(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_large_counts_of_components_that_hardly_explain_them_are_swept_in_double_precision(
    rng, monkeypatch
):
    """Their factors underflow in single precision, and quotients by these are infinite."""
    X = rng.poisson(np.kron(np.diag(10.0 ** np.arange(1, 12, 2)), np.ones((5, 4)))).astype(float)
    X[0] = 1e12
    names = "activation_prior", "component_prior", "concentration"
    how = {"n_components": 6, "annealing": "none", "max_iter": 15, **dict.fromkeys(names, 1e-3)}
    expected = nmf(**how).fit(X).lower_bound_
    monkeypatch.setattr(_count_visits, "LARGE", 0)
    assert_allclose(nmf(**how).fit(X).lower_bound_, expected, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_passes_that_single_precision_cannot_express_are_made_in_double(rng, monkeypatch):
    """A row of huge counts is far from what components of small ones explain."""
    X = rng.poisson(np.kron(np.diag(10.0 ** np.linspace(0, 14, 6)), np.ones((5, 4)))).astype(float)
    X += rng.poisson(0.4, X.shape)
    X[0] = 1e14
    found = []

    def run(self, n_passes, usual=PlainPasses.run):
        found.append(usual(self, n_passes))
        return found[-1]

    monkeypatch.setattr(PlainPasses, "run", run)
    monkeypatch.setattr(_count_passes, "LARGE", 0)
    fitted(X, n_components=3, max_iter=40)
    assert found[0] is None
    assert found[1] is not None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_of_them_is_a_pass_of_the_loop(X):
    """A single pass is precise: the first pass of a fit with one sweep from the same start."""
    ctx, units, local = fitted(X)
    passes = PlainPasses(X, None, ctx.prior, ctx.model.activation_prior, ctx.q, local[0])
    q, activations = passes.run(1)
    visit = ctx.model.visit(ctx.q, units)
    start = visit.start(units, local[0], False, 0.0, np.random.default_rng(0))
    step = visit.step(units, None, start)
    assert_allclose(activations.shape, step.local.shape, rtol=1e-10)
    sums = (step.local.shape - ctx.model.activation_prior).sum(axis=0)
    assert_allclose(q["weights_shape"], ctx.prior["weights_shape"] + sums, rtol=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_are_numbers_of_rows_and_sparse_tables_are_dense_ones(X):
    ctx, units, local = fitted(X)
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    repeated, (own,) = np.repeat(np.arange(len(X)), weights), local
    how = ctx.prior, ctx.model.activation_prior, ctx.q
    plain = PlainPasses(X[repeated], None, *how, Activations(own.shape[repeated], own.rate))
    weighted = PlainPasses(X, weights.astype(float), *how, own)
    expected, _ = plain.run(5)
    for key, value in weighted.run(5)[0].items():
        assert_allclose(value, expected[key], rtol=1e-4)
    q, *_ = further(ctx, units, local)
    of_sparse = units_of(nmf().fit(X), csr_matrix(X))
    again, *_ = further(ctx, of_sparse, local)
    for key, value in again.items():
        assert_allclose(value, q[key])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [0, 4, 9])
def test_a_weight_counts_where_momentum_begins_anew(seed):
    """Some rows turn back before others, and heavy ones decide for the rest."""
    rng = np.random.default_rng(seed)
    X, weights = drawn_counts(rng, n=12, n_columns=6), np.ones(12, int)
    X[:, 0] += 1.0
    weights[:2] = 400
    priors = {"activation_prior": 0.5, "component_prior": 0.5, "concentration": 1.0}
    ctx = context_of(nmf(n_components=4, max_iter=2, max_sweeps=5, **priors).fit(X))
    shape = 0.5 + rng.gamma(1.0, size=(12, 4))
    ends = []
    for rows, w in ((np.arange(12), weights.astype(float)), (np.repeat(range(12), weights), None)):
        own, counts = Activations(shape[rows], np.ones((1, 4))), []
        for n in range(1, 40):
            momentum = ShapeMomentum()
            PlainPasses(X[rows], w, ctx.prior, 0.5, ctx.q, own, momentum).run(n)
            counts.append(momentum.count)
        ends.append(counts)
    assert ends[0] == ends[1]
    assert np.diff(ends[0]).min() < 0


def test_they_are_for_full_tables_and_the_usual_sweeps(X):
    missing = X.astype(float)
    missing[0, 0] = np.nan
    for table, params in (
        (X * (np.arange(20) < 2), {}),
        (missing, {}),
        (X, {"max_sweeps": 3}),
        (X, {"dispersion": 0.1}),
        (X, {"popularity_prior": 1.0}),
    ):
        assert further(*fitted(table, **params)) is None
    ctx, units, (own,) = fitted(X)
    q = {**ctx.q, "weights_rate": np.full_like(ctx.q["weights_rate"], np.nan)}
    how = units, 20, ctx.model.activation_prior, q, ctx.prior
    with np.errstate(invalid="ignore"):
        assert further_passes(*how, [own], None) is None


def test_passes_that_lower_the_bound_are_taken_back(X, monkeypatch):
    """A fit then goes on without any, and to the end of one that never had them."""
    undone = []

    def worse(self, q, prior, units, local, momentum, exploring=0):
        if exploring:
            return None
        return {**q, "weights_shape": 100.0 * q["weights_shape"]}, list(local), 20, None

    def take_back(self, usual=Progress.take_back):
        usual(self)
        undone.append(self.undone)

    params = {"annealing": "none", "init_params": "random", "tol": 1e-4, "max_iter": 300}
    monkeypatch.setattr(GammaProcessNMF, "further", lambda *_, **__: None)
    expected = nmf(**params).fit(X)
    monkeypatch.setattr(GammaProcessNMF, "further", worse)
    monkeypatch.setattr(Progress, "take_back", take_back)
    est = nmf(**params).fit(X)
    assert undone == [1]
    assert_allclose(est.lower_bounds_, expected.lower_bounds_, rtol=1e-12)


# Passes that explore


class Passes:
    """Exploring passes of the loop, one after another, each from the parameters of the last."""

    def __init__(self, ctx, units):
        self.ctx = replace(ctx, exploring=True, state={"updates": 0, "passes": 0.0})
        self.units, self.local, self.known = units, None, None
        self.settings = loop.Settings(10, None, None, 1.0, 0.6)

    def run(self, n):
        for _ in range(n):
            visited = visits.visit(
                self.ctx, loop.PLAIN, self.units, SEQUENTIAL, self.local, self.known
            )
            how = {"minibatch": False, "passes": 1.0}
            visited = update(
                self.ctx, loop.PLAIN, self.units, visited, self.settings, SEQUENTIAL, **how
            )
            self.local, self.known = visited.local, visited.visit.known
        return self.ctx.q


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("k", [1, 7])
def test_exploring_passes_are_those_of_the_loop(k, single, weighted, X, rng, monkeypatch):
    weights = rng.uniform(0.5, 2.0, len(X)) if weighted else None
    est = nmf(n_components=k, annealing="none", init_params="random", max_iter=2)
    est.fit(X, sample_weight=weights)
    ctx, units = context_of(est), units_of(est, X, weights)
    ctx.model.learns = ()
    expected = Passes(ctx, units).run(3)
    if single:
        monkeypatch.setattr(_count_passes, "LARGE", 0)
    n_updates = ctx.model.n_sweeps(further=False, exploring=True) - 1
    found = exploring_passes(units, ctx.model, ctx.q, ctx.prior, 3, n_updates)
    for key, value in expected.items():
        rtol, atol = (1e-2, 1e-2) if single else (1e-8, 1e-10)
        assert_allclose(found[key], value, rtol=rtol, atol=atol, err_msg=key)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_large_tables_and_missing_cells_have_no_further_exploring_passes(X, monkeypatch):
    missing = X.copy()
    missing[3, 4] = np.nan
    for rows, most, made in ((X, X.size * 3, True), (X, 1, False), (missing, X.size * 3, False)):
        monkeypatch.setattr(gamma_process_nmf, "SMALL", most)
        ctx, units, local = fitted(rows, n_components=3)
        found = ctx.model.further(ctx.q, ctx.prior, units, local, None, exploring=4)
        assert (found is not None and found[2] == 4) == made


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_loop_makes_the_exploring_passes_that_no_call_makes(X, monkeypatch):
    """Data in parts, and rows with weights and copies of them, make the same passes."""
    monkeypatch.setattr(gamma_process_nmf, "SMALL", X.size * 9)
    params = {"n_components": 3, "annealing": "none", "init_params": "random", "max_iter": 4}
    params["tol"] = 0
    weights = np.arange(len(X)) % 3 + 1
    expected, calls = nmf(**params).fit(X, sample_weight=weights), []

    def leave(*args, **kwargs):
        calls.append(args)

    in_parts = nmf(**params).fit(
        Shards([X[:30], X[30:]]), sample_weight=[weights[:30], weights[30:]]
    )
    repeated = nmf(**params).fit(np.repeat(X, weights, axis=0))
    monkeypatch.setattr(gamma_process_nmf, "exploring_passes", leave)
    by_loop = nmf(**params).fit(X, sample_weight=weights)
    assert len(calls) > 0
    # The last pass does not explore, and data in parts have no further passes of that kind.
    for found, n in ((in_parts, 3), (repeated, 4), (by_loop, 4)):
        assert_allclose(found.lower_bounds_[:n], expected.lower_bounds_[:n], rtol=1e-9)
        assert found._inference.ctx.state == expected._inference.ctx.state
    monkeypatch.setattr(gamma_process_nmf, "SMALL", 0)
    assert nmf(**params).fit(X, sample_weight=weights).lower_bounds_[0] < expected.lower_bounds_[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_others_follow_the_pass_after_which_exploration_has_settled(X, monkeypatch):
    """It would learn priors from components that the next pass has hardly changed."""
    asked, further = [], GammaProcessNMF.further

    def listed(*args, exploring=0):
        asked.append(exploring)
        return further(*args, exploring=exploring)

    monkeypatch.setattr(GammaProcessNMF, "further", listed)
    params = {"annealing": "none", "init_params": "random"}
    est = nmf(**params, max_iter=6, tol=1.0).fit(X)
    assert asked == [loop.EXPLORING_PASSES, 0]
    assert (np.diff(est.lower_bounds_) > 0).all()
    asked.clear()
    # The half of max_iter ends it after the third pass, from which the bound may still rise fast.
    nmf(**params, max_iter=4, tol=0).fit(X)
    assert asked == [loop.EXPLORING_PASSES, 0]
