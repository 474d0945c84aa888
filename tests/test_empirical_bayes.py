"""Tests of the M-steps of empirical Bayes, which maximise expected log densities of priors."""

from __future__ import annotations

import numpy as np
import plain_empirical_bayes as plain
import pytest
from numpy.testing import assert_allclose
from pairs_of_betas import beta_pairs
from scipy.optimize import minimize, minimize_scalar
from scipy.special import betaln, gammaln, multigammaln, polygamma, psi

from sklearn_anneal.families import _empirical_bayes as eb
from sklearn_anneal.kernels import empirical_bayes as kernels
from sklearn_anneal.kernels import mixture_steps

BOUNDS = (1e-4, 1e4)


def concentrations(logs, starts, bounds, first_level):
    """The concentrations of columns, whose levels are the first axis of ``logs``."""
    found = np.array(starts, dtype=float)
    kernels.dirichlet_concentrations(np.ascontiguousarray(logs), first_level, *bounds, found)
    return found


def concentration(logs, start=1.0, bounds=BOUNDS):
    """The concentration of rows of one column."""
    (found,) = concentrations(logs.T, [start], bounds, np.array([0, logs.shape[1]]))
    return found


def gamma_shape(target, with_rate, start=1.0, bounds=BOUNDS):
    """The shape of the gamma prior of one column."""
    found = np.array([start])
    kernels.gamma_shapes(np.array([target]), int(with_rate), *bounds, found)
    return found[0]


def beta_pair(mean_log, mean_log_rest, start=(1.0, 1.0), bounds=BOUNDS):
    """Both parameters of one column."""
    pairs = np.array(start).reshape(2, 1)
    logs = np.array([[mean_log], [mean_log_rest]])
    beta_pairs(logs, np.zeros(1), *bounds, pairs)
    return pairs[0, 0], pairs[1, 0]


def best(objective, lower=BOUNDS[0], upper=BOUNDS[1]):
    """The maximum of a function of one positive number, found by scipy."""
    found = minimize_scalar(
        lambda t: -objective(np.exp(t)),
        bounds=(np.log(lower), np.log(upper)),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return np.exp(found.x)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_maximum_at_a_bound_is_the_bound_itself_from_any_start(sign):
    bounds = (2.0, 7.0)
    for start in (0.1, 2.0, np.nextafter(2.0, 3.0), 3.0, np.nextafter(7.0, 3.0), 7.0, 100.0):
        found = eb.maximizer(lambda x: (sign / x, -sign / x**2), *bounds, start)
        assert found == (bounds[1] if sign > 0 else bounds[0])


def test_the_bounds_are_evaluated_only_where_the_search_leaves_them():
    seen = []

    def slope(x):
        seen.append(x)
        return 3.0 / x - 1.0, -3.0 / x**2

    assert eb.maximizer(slope, 1e-4, 1e4, 2.5) == pytest.approx(3.0, rel=1e-12)
    assert min(seen) > 1.0 and max(seen) < 10.0


@pytest.mark.parametrize("true", [0.01, 0.5, 3.0, 200.0])
@pytest.mark.parametrize("shape", [(1, 7), (6, 3)])
def test_dirichlet_concentration_maximises_the_expected_log_density(true, shape):
    rng = np.random.default_rng(0)
    counts = rng.gamma(true, size=shape) + 0.01
    logs = psi(counts) - psi(counts.sum(axis=1, keepdims=True))
    rows, v = shape

    def objective(alpha):
        return rows * (gammaln(v * alpha) - v * gammaln(alpha)) + (alpha - 1) * logs.sum()

    for start in (1e-4, 1.0, 1e4):
        found = concentration(logs, start)
        assert found == pytest.approx(best(objective), rel=1e-6)


def test_dirichlet_concentration_stays_finite_at_the_edges():
    flat = np.full((3, 4), -np.log(4))
    assert concentration(flat) == eb.LARGEST
    assert concentration(np.array([[0.0, -1e9]])) == eb.SMALLEST
    assert concentration(np.zeros((5, 1)), start=0.7) == 0.7
    assert concentration(np.empty((0, 3)), start=0.7) == 0.7
    assert concentration(flat, bounds=(0.1, 2.0)) == 2.0


def stick_concentration(a, b, alpha):
    """The concentration that follows ``alpha``, given sticks of all components but the last."""
    found, sticks = np.empty(1), (np.append(a, 1.0), np.append(b, 1.0))
    mixture_steps.stick_concentration(*sticks, alpha, eb.SMALLEST, eb.LARGEST, found)
    return found[0]


def test_the_concentration_of_a_dirichlet_process_is_in_closed_form():
    rng = np.random.default_rng(1)
    a, b = 1.0 + rng.gamma(2.0, 5.0, size=(2, 6))
    log_rest = psi(b) - psi(a + b)

    def objective(alpha):
        return 6 * np.log(alpha) + (alpha - 1) * log_rest.sum()

    assert stick_concentration(a, b, 1.0) == pytest.approx(best(objective), rel=1e-6)
    assert stick_concentration(np.ones(3), np.full(3, 1e6), 1.0) == eb.LARGEST
    assert stick_concentration(np.full(3, 50.0), np.full(3, 1e-6), 1e-6) == eb.SMALLEST


@pytest.mark.parametrize("true", [0.05, 1.0, 80.0])
def test_gamma_shapes_maximise_the_expected_log_density(true):
    draws = np.random.default_rng(2).gamma(true, 0.3, size=50)
    mean, mean_log = draws.mean(), np.log(draws).mean()

    def with_rate(shape):
        rate = shape / mean
        return shape * np.log(rate) - gammaln(shape) + (shape - 1) * mean_log - rate * mean

    def given_rate(shape):
        return shape * np.log(2.0) - gammaln(shape) + (shape - 1) * mean_log

    for start in (1e-3, 1e3):
        assert eb.gamma_shape(mean, mean_log, start) == pytest.approx(best(with_rate), rel=1e-6)
        found = gamma_shape(np.log(mean) - mean_log, True, start)
        assert found == pytest.approx(best(with_rate), rel=1e-6)
        found = gamma_shape(np.log(2.0) + mean_log, False, start)
        assert found == pytest.approx(best(given_rate), rel=1e-6)


@pytest.mark.parametrize("old", [1e-3, 0.3, 40.0])
@pytest.mark.parametrize("gap", [0.01, 1.0, 30.0])
def test_over_relaxed_shapes_go_beyond_the_best_one_and_never_lower_the_density(old, gap):
    best = eb.gamma_shape(1.0, -gap, old)

    def log_density(shape):
        return shape * np.log(shape) - gammaln(shape) - shape * (gap + 1.0)

    ahead = eb.over_relaxed(old, best, gap, best - old)
    assert log_density(ahead) >= log_density(old)
    assert abs(np.log(ahead / old)) >= abs(np.log(best / old)) * (1.0 - 1e-12)
    near = best * (old / best) ** 0.01
    assert eb.over_relaxed(near, best, gap, best - near) == pytest.approx(
        near * (best / near) ** eb._OVER_RELAXATION
    )
    # Without a change before, or after one in another direction, the best shape is taken.
    for before in (0.0, old - best):
        assert eb.over_relaxed(old, best, gap, before) == best


def test_gamma_shapes_stay_finite_at_the_edges():
    assert eb.gamma_shape(2.0, np.log(2.0)) == eb.LARGEST
    assert eb.gamma_shape(1.0, -1e7) == eb.SMALLEST
    assert gamma_shape(0.0, True) == eb.LARGEST
    assert gamma_shape(1e7, True) == eb.SMALLEST
    assert gamma_shape(1e3, False) == eb.LARGEST
    assert gamma_shape(-1e7, False) == eb.SMALLEST


@pytest.mark.parametrize(("a", "b"), [(0.03, 0.5), (1.0, 1.0), (40.0, 0.2), (300.0, 200.0)])
def test_beta_pair_maximises_the_expected_log_density(a, b):
    v = np.clip(np.random.default_rng(3).beta(a, b, size=40), 1e-12, 1 - 1e-12)
    logs = np.log(v).mean(), np.log1p(-v).mean()

    def loss(t):
        x, y = np.exp(t)
        return betaln(x, y) - (x - 1) * logs[0] - (y - 1) * logs[1]

    wanted = minimize(loss, np.log([a, b]), method="Nelder-Mead", options={"xatol": 1e-9})
    for start in [(1.0, 1.0), (1e-3, 1e3)]:
        found = beta_pair(*logs, start)
        assert np.allclose(found, np.exp(wanted.x), rtol=1e-4)
        assert loss(np.log(found)) <= wanted.fun + 1e-12
        total = psi(sum(found))
        assert np.allclose(psi(found) - total, logs, rtol=1e-8)


def test_beta_pair_is_the_best_pair_between_the_bounds():
    assert beta_pair(np.log(0.5), np.log(0.5)) == (eb.LARGEST, eb.LARGEST)
    a, b = beta_pair(np.log(0.9), np.log(0.1), bounds=(0.01, 5.0))
    assert a == 5.0
    assert psi(b) - psi(a + b) == pytest.approx(np.log(0.1))
    assert beta_pair(-1e-9, -1e9)[1] == eb.SMALLEST


def expected_logs(counts):
    """E log p of Dirichlet distributions, whose entries are the first axis."""
    return psi(counts) - psi(counts.sum(axis=0))


def parameters(rng, *shape):
    """Parameters of all sizes, some of which occur in many rows."""
    some = 10.0 ** rng.uniform(-8.0, 9.0, size=shape)
    alike = 10.0 ** rng.uniform(-8.0, 9.0, size=(shape[0], *[1] * (len(shape) - 1)))
    return np.where(rng.random((1, *shape[1:])) < 0.3, alike, some)


@pytest.mark.parametrize("n_rows", [1, 2, 7])
@pytest.mark.parametrize("bounds", [BOUNDS, (0.1, 1e4)])
def test_concentrations_of_columns_are_those_of_the_plain_form(n_rows, bounds, rng):
    for _ in range(20):
        n_levels = rng.integers(1, 9, size=rng.integers(1, 12))
        each = [expected_logs(parameters(rng, n, n_rows)) for n in n_levels]
        first = np.concatenate([[0], np.cumsum(n_levels)])
        starts = 10.0 ** rng.uniform(-5.0, 5.0, size=len(n_levels))
        found = concentrations(np.concatenate(each), starts, bounds, first)
        wanted = [
            plain.concentration(logs.mean(), n, start, bounds)
            for logs, n, start in zip(each, n_levels, starts, strict=True)
        ]
        assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.parametrize("n_rows", [1, 2, 7])
@pytest.mark.parametrize("bounds", [BOUNDS, (0.1, 1e4)])
def test_beta_pairs_of_columns_are_those_of_the_plain_form(n_rows, bounds, rng):
    for _ in range(20):
        n = int(rng.integers(1, 12))
        logs = expected_logs(parameters(rng, 2, n_rows, n)).mean(axis=1)
        starts = 10.0 ** rng.uniform(-5.0, 5.0, size=(2, n))
        least = np.where(rng.random(n) < 0.5, 0.0, 10.0 ** rng.uniform(-9.0, -0.4, size=n))
        found = starts.copy()
        beta_pairs(logs, least, *bounds, found)
        wanted = [
            plain.permitted_pair(*log, mean, bounds)
            for log, mean in zip(logs.T, least, strict=True)
        ]
        assert_allclose(found, np.transpose(wanted), rtol=1e-6)


def drawn_totals(rng, n_components, r):
    """Counts of negative binomial columns of given shapes, and what their components count."""
    n_rows = 400
    means = rng.gamma(2.0, 3.0, size=(n_components, len(r)))
    z = rng.integers(n_components, size=n_rows)
    X = rng.poisson(means[z] * rng.gamma(r, 1.0 / r, size=(n_rows, len(r))))
    number = np.bincount(z, minlength=n_components).astype(float)
    sums = np.stack([X[z == k].sum(axis=0) for k in range(n_components)]).astype(float)
    prior_rates, prior_shapes = rng.gamma(2.0, 1.0, size=(2, n_components, len(r)))
    return X, (prior_rates + number[:, None], prior_shapes + sums, prior_rates, prior_shapes)


@pytest.mark.parametrize("n_components", [1, 4])
def test_shapes_of_counts_maximise_their_evidence(n_components, rng):
    r = np.array([0.3, 2.0, 15.0])
    X, totals = drawn_totals(rng, n_components, r)
    found = [np.unique(x[x > 0], return_counts=True) for x in X.T]
    values, weights = (np.concatenate(each).astype(float) for each in zip(*found, strict=True))
    first = np.cumsum([0, *(len(counts) for counts, _ in found)])
    most = np.full(3, 1e4)
    for start in (1e-2, 1.0, 1e3):
        shapes = np.full(3, start)
        kernels.count_shapes(*totals, first, values, weights, 1e-3, most, shapes)
        for d in range(3):
            rate, shape, prior_rate, prior_shape = (x[:, d] for x in totals)

            def evidence(x, d=d, own=(rate, shape, prior_rate, prior_shape)):
                rate, shape, prior_rate, prior_shape = own
                of_components = betaln(x * rate, shape) - betaln(x * prior_rate, prior_shape)
                return (gammaln(X[:, d] + x) - gammaln(x)).sum() + of_components.sum()

            assert shapes[d] == pytest.approx(best(evidence, 1e-3, 1e4), rel=1e-5)


def test_shapes_of_counts_stay_between_their_bounds():
    # The first column has a single cell, and the second one has none.
    each = (2.0, 1.0), (7.0, 1.0), (1.0, 1.0), (1.0, 1.0)
    totals = tuple(np.array([x]) for x in each)
    shapes = np.array([1.0, 1.0])
    counts = np.array([6.0]), np.array([1.0])
    kernels.count_shapes(*totals, np.array([0, 1, 1]), *counts, 0.5, np.full(2, 3.0), shapes)
    assert ((shapes >= 0.5) & (shapes <= 3.0)).all()


@pytest.mark.parametrize("learns", ["rate", "shape given rate", "shape given mean", "both"])
def test_priors_of_scaled_beta_distributions_maximise_the_expected_log_density(learns, rng):
    r = np.array([0.2, 3.0, 80.0])
    a, b = rng.gamma(3.0, 2.0, size=(2, 5, 3)) + 0.1
    logs = np.stack([psi(b) - psi(r * a + b), r * (psi(r * a) - psi(r * a + b))]).mean(axis=1)
    mean = np.full(3, 1.7) if learns == "shape given mean" else np.zeros(3)
    means = np.stack([np.full(3, 1e-6), np.full(3, 1e6), mean])
    code = {"rate": 0, "both": 2}.get(learns, 1)
    for start in ((1.0, 1.0), (20.0, 0.05)):
        found = np.outer(start, np.ones(3))
        # Many turns, since the two of a pair are learned one after the other.
        kernels.scaled_beta_priors(logs, r, means, code, *BOUNDS, 300, found)
        for d in range(3):

            def density(s, w, d=d):
                return s * logs[0, d] + w * logs[1, d] - betaln(r[d] * w, s)

            s, w = found[:, d]
            if learns == "rate":
                assert s == start[0]
                wanted = best(lambda w, s=s: density(s, w), 1e-6, 1e6)
                assert w == pytest.approx(wanted, rel=1e-5)
            elif learns == "shape given rate":
                assert w == start[1]
                assert s == pytest.approx(best(lambda s, w=w: density(s, w)), rel=1e-5)
            elif learns == "shape given mean":
                assert w == pytest.approx(s / 1.7)
                assert s == pytest.approx(best(lambda s: density(s, s / 1.7)), rel=1e-5)
            else:
                near = [density(s * x, w * y) for x in (0.999, 1.001) for y in (0.999, 1.001)]
                assert density(s, w) >= max(near)


@pytest.mark.parametrize("n_features", [1, 4])
def test_wishart_dof_maximises_the_expected_log_density(n_features):
    rng = np.random.default_rng(4)
    roots = rng.normal(size=(5, n_features, n_features + 3))
    matrices = roots @ np.swapaxes(roots, 1, 2)
    log_det = np.linalg.slogdet(matrices)[1].mean()
    mean = matrices.mean(axis=0)

    def objective(dof, scale):
        log_scale = np.linalg.slogdet(scale)[1]
        normalizer = dof / 2 * (n_features * np.log(2) - log_scale)
        normalizer += multigammaln(dof / 2, n_features)
        return (dof / 2) * log_det - np.sum(scale * mean) / 2 - normalizer

    lower, upper = n_features - 1 + 1e-6, 1e4
    fixed = np.linalg.slogdet(3.0 * np.eye(n_features))[1]
    found = eb.wishart_dof(n_features, log_det, lambda _: (fixed, 0.0), 5.0, (lower, upper))
    wanted = best(lambda nu: objective(nu, 3.0 * np.eye(n_features)), lower, upper)
    assert found == pytest.approx(wanted, rel=1e-6)

    log_mean = np.linalg.slogdet(mean)[1]

    def profile(nu):
        return n_features * np.log(nu) - log_mean, n_features / nu

    found = eb.wishart_dof(n_features, log_det, profile, 5.0, (lower, upper))
    wanted = best(lambda nu: objective(nu, nu * np.linalg.inv(mean)), lower, upper)
    assert found == pytest.approx(wanted, rel=1e-6)


def test_trigamma_is_the_derivative_of_the_digamma_function():
    x = np.geomspace(1e-6, 1e12, 2000)
    assert_allclose(eb.trigamma(x.reshape(50, 40)).ravel(), polygamma(1, x), rtol=3e-15)
    assert np.array_equal(eb.trigamma(x[:20]), polygamma(1, x[:20]))


def test_wishart_dof_of_equal_matrices_is_the_upper_bound():
    found = eb.wishart_dof(3, 0.0, lambda nu: (3 * np.log(nu), 3 / nu), 3.0, (3.0, 103.0))
    assert found == 103.0


@pytest.mark.parametrize("n", [-0.5, 0.0, 2.0, 1e6])
def test_roots_of_the_scale_solve_their_equation(n):
    a = np.array([1e-9, 0.3, 1e5])
    y, derivative = eb.scale_root(n, a)
    assert (y > 0).all()
    assert np.allclose(y**2, n * y + a, rtol=1e-9)
    step = 1e-4 * max(1.0, abs(n))
    if n > 1:
        numerical = (eb.scale_root(n + step, a)[0] - eb.scale_root(n - step, a)[0]) / (2 * step)
        assert np.allclose(derivative, numerical, rtol=1e-4)


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 40.0, 1e6])
@pytest.mark.parametrize("start", [1e-4, 1.0, 1e4])
def test_concentration_that_several_rows_share(alpha, start, rng):
    """Sticky rows have more on their diagonal; 1e6 is beyond the largest concentration."""
    excess, n = 5.0 * np.eye(4), 4
    drawn = np.maximum(rng.dirichlet(np.full(n, alpha), 4), 1e-300)
    logs = float(np.log(drawn).sum() + 5.0 * (psi(alpha + 5.0) - psi(alpha)))
    new = np.empty((4, 4))
    kernels.learned_rows(start + excess, logs, 1.0, *BOUNDS, new)
    found = new[0, 1:2]
    assert_allclose(new, found[0] + excess, rtol=1e-12)

    def loss(log_alpha):
        prior = excess + np.exp(log_alpha)
        of_prior = gammaln(prior).sum() - gammaln(prior.sum(axis=1)).sum()
        return of_prior - np.exp(log_alpha) * logs

    how = {"bounds": np.log(BOUNDS), "method": "bounded", "options": {"xatol": 1e-10}}
    best = minimize_scalar(loss, **how)
    assert loss(np.log(found[0])) <= best.fun + 1e-9 * abs(best.fun)
    assert BOUNDS[0] <= found[0] <= BOUNDS[1]
