"""Tests of the kernels for all columns of one kind, against their plain forms."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import plain_empirical_bayes as plain
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, psi

from sklearn_anneal.data.tables import Coded
from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import (
    Beta,
    Dirichlet,
    DirichletColumns,
    Factor,
    Factors,
    Gamma,
    Tempering,
)
from sklearn_anneal.kernels import divergence, empirical_bayes, optimizers
from sklearn_anneal.models._dirichlet_rows import divergence_of_rows, logs_of_rows
from sklearn_anneal.models.components._base import BOUNDS, Joint
from sklearn_anneal.models.components.bernoulli import BernoulliComponents
from sklearn_anneal.models.components.categorical import CategoricalComponents
from sklearn_anneal.models.components.categorical_columns import CategoricalColumns
from sklearn_anneal.models.components.poisson import PoissonComponents

N_LEVELS = (2, 5, 3, 5, 1)
FIRST = np.concatenate([[0], np.cumsum(N_LEVELS)])


def spread(rng, *shape):
    """Positive numbers of very different sizes."""
    return 10.0 ** rng.uniform(-4.0, 6.0, size=shape)


def categorical(k, concentration):
    parts = np.split(concentration, FIRST[1:-1], axis=1)
    return CategoricalColumns(k, N_LEVELS, parts)


def bernoulli(a, b):
    return BernoulliComponents(*a.shape, a, b)


def poisson(shape, rate, names=(), mean=None):
    return PoissonComponents(*shape.shape, shape, rate, names, mean=mean)


# Moments and divergences


def cases(rng, k=3, d=4):
    """Components with parameters of q and of the prior, and their family."""
    levels = spread(rng, k, sum(N_LEVELS)), spread(rng, k, sum(N_LEVELS))
    q, prior = ({"levels": each} for each in levels)
    yield categorical(k, levels[1]), q, prior
    arrays = spread(rng, 4, k, d)
    q, prior = dict(zip("ab", arrays[:2], strict=True)), dict(zip("ab", arrays[2:], strict=True))
    yield bernoulli(arrays[2], arrays[3]), q, prior
    names = ("shape", "rate")
    q, prior = (dict(zip(names, each, strict=True)) for each in (arrays[:2], arrays[2:]))
    yield poisson(arrays[2], arrays[3]), q, prior
    symbols = spread(rng, 2, k, 6)
    q, prior = ({"emissionprob": each} for each in symbols)
    yield CategoricalComponents(k, symbols[1]), q, prior


def test_divergences_are_those_of_the_families(rng):
    for _ in range(5):
        for components, q, prior in cases(rng):
            (factor,) = components.factors
            known = components.known(q, None)
            expected = factor.family.kl(factor.pick(q), factor.pick(prior))
            found = components.kl_given(q, prior, known)
            assert found == pytest.approx(expected, rel=1e-9)
            # The prior itself has no divergence at all.
            assert components.kl_given(prior, prior, components.known(prior, None)) == 0.0


def test_kernels_leave_strong_distributions_to_the_families(rng):
    for components, q, prior in cases(rng):
        strong = {key: 1e9 * value for key, value in q.items()}
        assert components.kl_given(strong, prior, components.known(strong, None)) is None
        assert components.kl_given(q, strong, components.known(q, None)) is None


def test_moments_are_those_of_the_families(rng):
    for components, q, _ in cases(rng):
        known = components.known(q, None)
        found, expected = components.expectations_given(q, known), components.expectations(q)
        if isinstance(components, BernoulliComponents):
            found = found.coefficients
        if isinstance(components, PoissonComponents):
            assert_array_equal(found.large, expected.large)
            assert len(found.large) > 0
            assert_allclose(found.means, expected.means, rtol=1e-12)
            assert_allclose(found.excess, expected.excess, rtol=1e-9, atol=1e-12)
            found, expected = found.coefficients, expected.coefficients
        pairs = (
            zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        )
        for own, other in pairs:
            assert_allclose(own, other, rtol=1e-10, atol=1e-10)


def test_small_rates_have_no_large_columns(rng):
    shape, rate = rng.gamma(2.0, size=(2, 3, 4)) + 0.1
    components, q = poisson(shape, rate), {"shape": shape, "rate": rate}
    found = components.expectations_given(q, components.known(q, None))
    assert len(found.large) == 0
    for own, other in zip(found.coefficients, components.expectations(q).coefficients, strict=True):
        assert_allclose(own, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (4, 4), (3, 1)])
def test_rows_of_chains_are_those_of_the_family(shape, rng):
    q, prior = spread(rng, 2, *shape)
    family, logs = Dirichlet(), logs_of_rows(q)
    expected = family.expectations({"concentration": q})["concentration"]
    assert_allclose(logs.T.reshape(shape), expected, rtol=1e-10, atol=1e-10)
    kl = family.kl({"concentration": q}, {"concentration": prior})
    assert divergence_of_rows(q, prior, logs) == pytest.approx(kl, rel=1e-9, abs=1e-9)
    assert divergence_of_rows(q, prior + 1e9, logs) is None


# Columns of different numbers of levels in one array


def test_columns_are_dirichlet_distributions_side_by_side(rng):
    family, single = DirichletColumns(N_LEVELS), Dirichlet()
    q, p = spread(rng, 2, 3, sum(N_LEVELS))

    def columns(x):
        return [{"concentration": part} for part in np.split(x, FIRST[1:-1], axis=1)]

    def joined(parts):
        return np.concatenate(parts, axis=1)

    one, other = {"concentration": q}, {"concentration": p}
    each = [single.expectations(c)["concentration"] for c in columns(q)]
    assert_allclose(family.expectations(one)["concentration"], joined(each), rtol=1e-12)
    each = np.column_stack([single.log_normalizer(c) for c in columns(q)])
    assert_allclose(family.log_normalizer(one), each, rtol=1e-10, atol=1e-10)
    kl = sum(single.kl(*pair) for pair in zip(columns(q), columns(p), strict=True))
    assert family.kl(one, other) == pytest.approx(kl, rel=1e-10)
    entropy = sum(single.entropy(c) for c in columns(q))
    assert family.entropy(one) == pytest.approx(entropy, rel=1e-9)
    strong = {"concentration": q * 1e10}
    kl = sum(single.kl(*pair) for pair in zip(columns(q * 1e10), columns(p), strict=True))
    assert family.kl(strong, other) == pytest.approx(kl, rel=1e-10)


def test_columns_are_drawn_as_dirichlet_distributions_of_equal_lengths_are(rng):
    q = rng.gamma(2.0, size=(3, sum(N_LEVELS)))
    drawn = DirichletColumns(N_LEVELS).sample({"concentration": q}, np.random.default_rng(5))
    same, again = np.random.default_rng(5), []
    for n in (2, 5, 3, 1):
        chosen = [c for c, m in enumerate(N_LEVELS) if m == n]
        part = np.stack([q[:, FIRST[c] : FIRST[c + 1]] for c in chosen], axis=1)
        found = Dirichlet().sample({"concentration": part}, same)["log_probabilities"]
        again += [(c, found[:, i]) for i, c in enumerate(chosen)]
    for c, logs in again:
        assert_array_equal(drawn["log_probabilities"][:, FIRST[c] : FIRST[c + 1]], logs)


@pytest.mark.parametrize("method", ["implicit_statistics", "exact_gradient_statistics"])
def test_gradients_of_columns_are_those_of_each(method, rng):
    family = DirichletColumns(N_LEVELS)
    q, prior, stats = rng.gamma(2.0, size=(3, 2, sum(N_LEVELS))) + 0.1
    q = q + prior
    drawn = family.sample({"concentration": q}, rng)
    given = [q, prior, stats] if method.startswith("exact") else [q, stats]
    found = getattr(family, method)(drawn, *({"concentration": x} for x in given))
    for first, end in zip(FIRST[:-1], FIRST[1:], strict=True):
        own = {key: x[:, first:end] for key, x in drawn.items()}
        arguments = ({"concentration": x[:, first:end]} for x in given)
        expected = getattr(Dirichlet(), method)(own, *arguments)["concentration"]
        assert_allclose(found["concentration"][:, first:end], expected, rtol=1e-9, atol=1e-9)


def test_columns_are_valid_and_back_off_one_by_one():
    family = DirichletColumns((2, 3))
    q = {"concentration": np.ones((2, 5))}
    change = {"concentration": np.zeros((2, 5))}
    change["concentration"][0, 1] = -3.0
    moved = {"concentration": q["concentration"] + change["concentration"]}
    assert_array_equal(family.valid(moved)[0], [False, False, True, True, True])
    assert family.valid(moved)[1].all()
    change["concentration"][:, 3] = 1.0
    found = family.backoff(q, change, 1.0)["concentration"]
    # The first column of the first row goes a quarter of its way, and all others the whole.
    assert_allclose(found, [[1.0, 0.25, 1.0, 2.0, 1.0], [1.0, 1.0, 1.0, 2.0, 1.0]])


# Empirical Bayes


def shared(values, k=4):
    return np.repeat(np.asarray(values)[None], k, axis=0)


@pytest.mark.parametrize("rho", [1.0, 0.3])
def test_beta_priors_are_those_of_the_plain_form(rho, rng):
    d, k = 30, 4
    prior = shared(10.0 ** rng.uniform(-1.0, 3.0, size=d)), shared(rng.gamma(2.0, size=d) + 0.1)
    added = rng.gamma(0.2, 30.0, size=(2, k, d)) * (rng.random((2, 1, d)) > 0.2)
    a, b = prior[0] + added[0], prior[1] + added[1]
    found = np.empty((k, d)), np.empty((k, d))
    empirical_bayes.learned_betas(a, b, *prior, rho, *BOUNDS, *found)
    total = psi(a + b)
    logs = (psi(a) - total).mean(axis=0), (psi(b) - total).mean(axis=0)
    least = 0.5 / (added.sum(axis=(0, 1)) + 1.0)
    best = np.transpose([plain.permitted_pair(*x, BOUNDS) for x in zip(*logs, least, strict=True)])
    for own, old, goal in zip(found, prior, best, strict=True):
        assert_allclose(own, shared(old[0] * (goal / old[0]) ** rho), rtol=1e-6)


@pytest.mark.parametrize("rho", [1.0, 0.3])
def test_dirichlet_priors_are_those_of_the_plain_form(rho, rng):
    k = 4
    old = 10.0 ** rng.uniform(-1.0, 2.0, size=len(N_LEVELS))
    prior = shared(np.repeat(old, N_LEVELS), k)
    q = prior + rng.gamma(0.3, 30.0, size=prior.shape)
    new = np.empty(prior.shape)
    empirical_bayes.learned_dirichlets(q, prior, FIRST, rho, *BOUNDS, new)
    logs = DirichletColumns(N_LEVELS).expectations({"concentration": q})["concentration"]
    for c, n in enumerate(N_LEVELS):
        of_column = slice(FIRST[c], FIRST[c + 1])
        if n == 1:
            assert_array_equal(new[:, of_column], prior[:, of_column])
            continue
        mean = logs[:, of_column].mean()

        def loss(t, n=n, mean=mean):
            x = np.exp(t)
            return -(gammaln(n * x) - n * gammaln(x) + n * x * mean)

        how = {"bounds": np.log(BOUNDS), "method": "bounded", "options": {"xatol": 1e-10}}
        best = np.exp(minimize_scalar(loss, **how).x)
        assert_allclose(new[:, of_column], old[c] * (best / old[c]) ** rho, rtol=1e-5)


# Which parameters are learned, and whether rates follow shapes.
NAMES = [
    (("shape", "rate"), False),
    (("shape",), False),
    (("shape",), True),
    (("rate",), False),
]


@pytest.mark.parametrize("rho", [1.0, 0.3])
@pytest.mark.parametrize(("names", "follows"), NAMES, ids=str)
def test_gamma_priors_are_those_of_the_plain_form(names, follows, rho, rng):
    d, k = 20, 4
    mean = rng.gamma(1.0, 5.0, size=d) + 0.01
    shape = shared(10.0 ** rng.uniform(-1.0, 2.0, size=d))
    rate = shape / mean
    prior = {"shape": shape, "rate": rate}
    n = rng.gamma(1.0, 20.0, size=(k, 1))
    counts = rng.poisson(n * mean * rng.gamma(1.0, size=(k, d))) * (rng.random((1, d)) > 0.2)
    q = {"shape": shape + counts, "rate": rate + n}
    components = poisson(shape, rate, names, mean=mean)
    components.follows = follows
    learned, new = components._learned(q, prior, rho)
    expected = Gamma().expectations(q)
    means, logs = -expected["rate"].mean(axis=0), expected["shape"]
    of_prior = mean
    if "rate" in names:
        of_prior = np.clip(means, *components._means_allowed(q, prior))
    best = shape[0]
    if "shape" in names:
        if follows or "rate" in names:
            gap = np.log(of_prior) - (logs.mean(axis=0) + 1.0 - means / of_prior)
            slope = lambda x, g: np.log(x) - psi(x) - g  # noqa: E731
        else:
            gap = -(logs + np.log(rate)).mean(axis=0)
            slope = lambda x, g: -psi(x) - g  # noqa: E731
        grid = np.geomspace(*BOUNDS, 200_001)
        best = np.array([grid[np.argmin(np.abs(slope(grid, g)))] for g in gap])
        best = np.where(slope(BOUNDS[1], gap) > 0.0, BOUNDS[1], best)
        best = np.where(slope(BOUNDS[0], gap) < 0.0, BOUNDS[0], best)
    goal = {"shape": shape[0], "rate": rate[0]}
    if "shape" in names:
        goal["shape"] = shape[0] * (best / shape[0]) ** rho
        if follows:
            goal["rate"] = goal["shape"] / mean
    if "rate" in names:
        goal["rate"] = rate[0] * (best / of_prior / rate[0]) ** rho
    for key, value in goal.items():
        assert_allclose(new[key], shared(value), rtol=1e-3)
        assert getattr(learned, key) is new[key]


# Momentum and changes of priors


def test_sums_go_beyond_their_change_as_far_as_is_allowed(rng):
    value, last, prior = rng.gamma(2.0, size=(3, 50))
    found = np.empty(50)
    optimizers.extended(value, last, prior, 0.7, found)
    expected = np.maximum(value + 0.7 * (value - last), 0.5 * (prior + value))
    assert_allclose(found, expected, rtol=1e-14)
    assert (found == 0.5 * (prior + value)).any()


@pytest.mark.parametrize("family", [Beta(), Gamma(), Dirichlet()], ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("size", [0.1, 3.0])
def test_a_change_at_once_is_that_of_single_rows(family, size, rng, monkeypatch):
    """Where some rows may not take the whole change, all are looked at."""
    q = {key: rng.gamma(2.0, size=(6, 4)) for key in family.keys}
    change = {key: size * rng.normal(size=(6, 4)) * value for key, value in q.items()}
    for margin in (0.0, 1e-6, 0.5):
        found = family.backoff(q, change, 1.0, margin)
        with monkeypatch.context() as plainly:
            plainly.setattr(type(family), "are_sums", False)
            expected = family.backoff(q, change, 1.0, margin)
        for key in q:
            assert_allclose(found[key], expected[key], rtol=1e-15)


def test_arrays_in_another_order_move_as_those_in_the_order_of_c(rng):
    q, last, prior = ({"concentration": x.T} for x in rng.gamma(2.0, size=(3, 4, 6)))
    factors = Factors([Factor(Dirichlet(), {"concentration": "concentration"})])

    def rows(arrays):
        return {key: np.ascontiguousarray(value) for key, value in arrays.items()}

    found = factors.extended(q, last, prior, 0.7)["concentration"]
    expected = factors.extended(rows(q), rows(last), rows(prior), 0.7)["concentration"]
    assert_allclose(found, expected, rtol=1e-14)
    change = {"concentration": 0.1 * q["concentration"]}
    found = Dirichlet().backoff(q, change, 1.0)["concentration"]
    assert_allclose(found, 1.1 * q["concentration"], rtol=1e-14)


# Local steps of dense rows


def steps(components, X, rng, t, weights, noise):
    """The step that is made at once, and the sum of what the parts of it find."""
    k = components.n_components
    q = {key: rng.gamma(2.0, size=x.shape) + 0.1 for key, x in components.prior(None).items()}
    rows, log_weights = Rows(X, weights), np.log(rng.dirichlet(np.ones(k)))
    own = components.for_rows(components.expectations_given(q, components.known(q, None)), rows)
    joint = Joint(own, log_weights)
    step = components.local_step(rows, joint, t, noise)
    density = components.log_density(rows, own) + log_weights
    log_r = t.local * density
    log_r -= np.logaddexp.reduce(log_r, axis=1, keepdims=True)
    r, w = np.exp(log_r), np.ones(len(X)) if weights is None else weights
    shares = r * (w * t.statistics * (1.0 if noise is None else noise))[:, None]
    raw = components.zeros(own)
    components.add(Rows(X.copy()), shares, raw, own)
    energy, entropy = w @ (r * density).sum(axis=1), -w @ (r * log_r).sum(axis=1)
    return step, SimpleNamespace(raw=raw, energy=energy, entropy=entropy, rows=shares.sum(axis=0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("holes", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_the_step_of_dense_rows_is_that_of_its_parts(kind, holes, dtype, rng):
    k, d = 3, 5
    one = np.ones((k, d))
    components = bernoulli(one, one) if kind == "bernoulli" else poisson(one, one)
    X = rng.poisson(0.8, size=(150, d)).astype(dtype)
    X = np.minimum(X, 1.0).astype(dtype) if kind == "bernoulli" else X
    X[rng.random(X.shape) < holes] = np.nan
    weights, noise = rng.random((2, 150))
    weights[:20] = 0.0
    for t in (Tempering(), Tempering(local=0.6, statistics=0.4)):
        for given in ((None, None), (weights, None), (weights, noise)):
            step, expected = steps(components, X, rng, t, *given)
            assert step.energy == pytest.approx(expected.energy, rel=1e-10)
            assert step.entropy == pytest.approx(expected.entropy, rel=1e-9)
            assert_allclose(step.statistics["rows"], expected.rows, rtol=1e-10)
            for name, value in vars(expected.raw).items():
                own = getattr(step.statistics["components"], name)
                assert_allclose(own, value, rtol=1e-10, atol=1e-12)


# Rows keep what was read of them


def test_parts_of_rows_are_the_same_until_the_rows_change(rng):
    rows = Rows(rng.normal(size=(40, 3)), rng.random(40))
    part = rows.part(slice(0, 20))
    assert rows.part(slice(0, 20)) is part
    assert rows.part(slice(20, 40)) is not part
    rows.weights = rng.random(40)
    assert_array_equal(rows.part(slice(0, 20)).weights, rows.weights[:20])
    rows.classes = np.zeros(40, dtype=np.intp)
    assert len(rows.part(slice(0, 20)).classes) == 20


def test_pickles_of_rows_have_nothing_that_was_read_of_them(rng):
    X = rng.poisson(2.0, size=(30, 4)).astype(float)
    one = np.ones((2, 4))
    components, rows = poisson(one, one), Rows(X)
    size = len(pickle.dumps(rows))
    own = components.for_rows(components.expectations({"shape": one, "rate": one}), rows)
    components.log_density(rows, own)
    components.points(rows)
    rows.part(slice(0, 10))
    assert {"_cells", "_carriers", "_parts", "_points"} <= vars(rows).keys()
    assert len(pickle.dumps(rows)) == size
    assert components.points(rows) is components.points(rows)


def test_rows_are_centered_once(rng):
    center = rng.normal(size=3)
    rows = Rows(rng.normal(size=(10, 3)))
    moved = rows.centered(SimpleNamespace(center=center))
    assert moved is not rows
    assert moved.center is center
    assert moved.centered(SimpleNamespace(center=center)) is moved
    assert rows.centered(SimpleNamespace(center=None)) is rows
    assert moved.centered(SimpleNamespace(center=None)).center.any() == False  # noqa: E712
    blocks = Rows(rng.normal(size=(10, 3)), center={"a": center})  # type: ignore[arg-type]
    assert blocks.centered(SimpleNamespace(center={"a": center})) is blocks
    assert blocks.centered(SimpleNamespace(center={"a": center + 1.0})) is not blocks


def test_starts_of_complete_columns_read_no_expectations(rng):
    levels = rng.integers(3, size=(50, 2))
    components = CategoricalColumns(2, (3, 3), [np.ones((2, 3))] * 2)
    rows = Rows(Coded.of_chunks([levels], (3, 3), [False] * 2, 2))
    assert components.for_start(rows, components.prior(None)) is None
    shares = rng.random((50, 2))
    found = components.sums(rows, shares, None).levels
    expected = np.hstack([shares.T @ np.equal.outer(x, np.arange(3)) for x in levels.T])
    assert_allclose(found, expected, rtol=1e-12)


def test_divergence_of_gammas_far_from_each_other(rng):
    shape, rate = np.array([[1e-3, 1e5]]), np.array([[1e3, 1e-3]])
    prior_shape, prior_rate = np.array([[5.0, 1e-2]]), np.array([[1e-3, 1e4]])
    logs, negatives, largest, found = np.empty((1, 2)), np.empty((1, 2)), np.empty(1), np.empty(2)
    divergence.gamma_moments(shape, rate, logs, negatives, largest)
    assert largest[0] == pytest.approx(1e8)
    divergence.gamma_divergence(shape, rate, prior_shape, prior_rate, logs, found)
    q, p = {"shape": shape, "rate": rate}, {"shape": prior_shape, "rate": prior_rate}
    assert found[0] == pytest.approx(Gamma().kl(q, p), rel=1e-9)
    assert found[1] == 1e5
