"""Tests of the M-steps of empirical Bayes, which maximise expected log densities of priors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, minimize_scalar
from scipy.special import betaln, gammaln, multigammaln, polygamma, psi

from sklearn_anneal.families import _empirical_bayes as eb

BOUNDS = (1e-4, 1e4)


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
        found = eb.dirichlet_concentration(logs, start)
        assert found == pytest.approx(best(objective), rel=1e-6)


def test_dirichlet_concentration_stays_finite_at_the_edges():
    flat = np.full((3, 4), -np.log(4))
    assert eb.dirichlet_concentration(flat) == eb.LARGEST
    assert eb.dirichlet_concentration(np.array([[0.0, -1e9]])) == eb.SMALLEST
    assert eb.dirichlet_concentration(np.zeros((5, 1)), start=0.7) == 0.7
    assert eb.dirichlet_concentration(np.empty((0, 3)), start=0.7) == 0.7
    assert eb.dirichlet_concentration(flat, bounds=(0.1, 2.0)) == 2.0


def test_the_concentration_of_a_dirichlet_process_is_in_closed_form():
    log_rest = -np.random.default_rng(1).gamma(0.5, size=6)

    def objective(alpha):
        return 6 * np.log(alpha) + (alpha - 1) * log_rest.sum()

    assert eb.stick_concentration(log_rest) == pytest.approx(best(objective), rel=1e-6)
    assert eb.stick_concentration(np.zeros(3)) == eb.LARGEST
    assert eb.stick_concentration(np.full(3, -1e9)) == eb.SMALLEST


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
        found = eb.gamma_shape_given_rate(2.0, mean_log, start)
        assert found == pytest.approx(best(given_rate), rel=1e-6)


def test_gamma_shapes_stay_finite_at_the_edges():
    assert eb.gamma_shape(2.0, np.log(2.0)) == eb.LARGEST
    assert eb.gamma_shape(1.0, -1e7) == eb.SMALLEST
    assert eb.gamma_shape_given_rate(1.0, 1e3) == eb.LARGEST
    assert eb.gamma_shape_given_rate(1.0, -1e7) == eb.SMALLEST


@pytest.mark.parametrize(("a", "b"), [(0.03, 0.5), (1.0, 1.0), (40.0, 0.2), (300.0, 200.0)])
def test_beta_pair_maximises_the_expected_log_density(a, b):
    v = np.clip(np.random.default_rng(3).beta(a, b, size=40), 1e-12, 1 - 1e-12)
    logs = np.log(v).mean(), np.log1p(-v).mean()

    def loss(t):
        x, y = np.exp(t)
        return betaln(x, y) - (x - 1) * logs[0] - (y - 1) * logs[1]

    wanted = minimize(loss, np.log([a, b]), method="Nelder-Mead", options={"xatol": 1e-9})
    for start in [(1.0, 1.0), (1e-3, 1e3)]:
        found = eb.beta_pair(*logs, start)
        assert np.allclose(found, np.exp(wanted.x), rtol=1e-4)
        assert loss(np.log(found)) <= wanted.fun + 1e-12
        total = psi(sum(found))
        assert np.allclose(psi(found) - total, logs, rtol=1e-8)


def test_beta_pair_is_the_best_pair_between_the_bounds():
    assert eb.beta_pair(np.log(0.5), np.log(0.5)) == (eb.LARGEST, eb.LARGEST)
    a, b = eb.beta_pair(np.log(0.9), np.log(0.1), bounds=(0.01, 5.0))
    assert a == 5.0
    assert psi(b) - psi(a + b) == pytest.approx(np.log(0.1))
    assert eb.beta_pair(-1e-9, -1e9)[1] == eb.SMALLEST


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
