"""Implicit derivatives of gamma draws, and the exact gradient of structured VI built on them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, gammainccinv, gammaincinv, logsumexp, polygamma, psi

from sklearn_anneal.families import Dirichlet, Gamma
from sklearn_anneal.families._implicit import (
    controlled_statistics,
    inverse_trigamma,
    log_gamma_derivative,
)

# A few dozen comparisons under fixed seeds: a correct mean stays within 5 standard errors.
N_ERRORS = 5.0
FAMILY = Dirichlet()


def difference(function, at, step):
    """Central difference of fourth order."""
    near = function(at + step) - function(at - step)
    far = function(at + 2 * step) - function(at - 2 * step)
    return (8 * near - far) / (12 * step)


def draws(concentration, n, seed=0):
    """n independent draws of one row, and the concentrations of all of them."""
    concentrations = np.tile(np.asarray(concentration, dtype=float), (n, 1))
    natural = {"concentration": concentrations}
    return FAMILY.sample(natural, np.random.default_rng(seed)), natural


def multiplied(draw, natural, statistics):
    statistics = np.broadcast_to(statistics, natural["concentration"].shape)
    return FAMILY.implicit_statistics(draw, natural, {"concentration": statistics})["concentration"]


def hessian(concentration):
    return np.diag(polygamma(1, concentration)) - polygamma(1, concentration.sum())


def assert_mean(values, expected):
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - expected) < N_ERRORS * error).all()


@pytest.mark.parametrize("shape", [0.05, 0.3, 1.0, 2.7, 6.5, 11.9, 12.1, 20.0, 1e2, 1e3, 1e5, 1e7])
@pytest.mark.parametrize("quantile", [gammaincinv, gammainccinv])
def test_derivative_is_that_of_the_quantile_function(shape, quantile):
    # At 1e-6 and shape 1e7, scipy's lower quantile itself is off: by 4% of the probability.
    tail = 1e-9 if shape < 1e6 else 1e-5
    probabilities = np.array([tail, 1e-4, 1e-3, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9])
    values = quantile(shape, probabilities)
    representable = values > 1e-200
    probabilities, values = probabilities[representable], values[representable]
    expected = difference(lambda a: np.log(quantile(a, probabilities)), shape, 0.01 * shape)
    result = log_gamma_derivative(np.log(values), np.full(values.shape, shape))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [1e-3, 1e-2, 0.5, 3.0, 12.0, 40.0])
def test_derivative_of_small_values_is_their_limit(shape):
    """F is G^a / Gamma(a + 1) there, whose quantile can be differentiated by hand."""
    log_value = np.array([-1e5, -1e4, -800.0, -700.0, -100.0, -40.0])
    result = log_gamma_derivative(log_value, np.full(log_value.shape, shape))
    np.testing.assert_allclose(result, (psi(shape + 1.0) - log_value) / shape, rtol=1e-13)


@pytest.mark.parametrize("shape", [1e-3, 0.1, 1.0, 5.0, 11.9, 12.0, 50.0, 1e4])
def test_derivative_is_smooth_in_the_value(shape):
    """It solves dD/dy = (G - a) D + psi(a) - y, also where one formula gives way to another."""
    edges = [shape * np.exp(-1.0), shape * np.exp(1.0), shape + 5.0, (shape + 12.0) * np.exp(-2.5)]
    log_value = np.log(np.concatenate([edges, shape * np.array([0.5, 1.0, 1.5])]))
    shapes = np.full(log_value.shape, shape)
    slope = difference(lambda y: log_gamma_derivative(y, shapes), log_value, 1e-3)
    derivative = log_gamma_derivative(log_value, shapes)
    growth = (np.exp(log_value) - shape) * derivative
    drift = psi(shape) - log_value
    scale = np.abs(slope) + np.abs(growth) + np.abs(drift)
    assert (np.abs(slope - growth - drift) < 1e-6 * scale + 1e-6 * derivative).all()


def test_derivative_keeps_shape_and_memory_order():
    rng = np.random.default_rng(0)
    shape = rng.gamma(1.0, 5.0, size=(4, 3, 2))
    log_value = np.log(rng.gamma(shape))
    expected = log_gamma_derivative(log_value, shape)
    assert expected.shape == (4, 3, 2)
    turned = log_gamma_derivative(np.asfortranarray(log_value), np.asfortranarray(shape))
    mixed = log_gamma_derivative(np.asfortranarray(log_value), shape)
    assert turned.flags.f_contiguous
    np.testing.assert_array_equal(turned, expected)
    np.testing.assert_array_equal(mixed, expected)
    np.testing.assert_array_equal(
        log_gamma_derivative(log_value[1, 1], shape[1, 1]), expected[1, 1]
    )
    assert log_gamma_derivative(np.empty((0, 3)), np.empty((0, 3))).shape == (0, 3)


def test_inverse_trigamma():
    argument = np.logspace(-8, 12, 200)
    inverse, deficit = inverse_trigamma(argument)
    np.testing.assert_allclose(inverse, 1.0 / polygamma(1, argument), rtol=1e-13)
    moderate = argument < 100.0
    naive = argument - 1.0 / polygamma(1, argument)
    np.testing.assert_allclose(deficit[moderate], naive[moderate], rtol=1e-12)
    # 1 / psi'(a) = a - 1/2 + 1 / (12 a) + O(1 / a^2), and the quadratic term is 1/24 or less.
    large = argument[~moderate]
    np.testing.assert_allclose(
        deficit[~moderate], 0.5 - 1 / (12 * large), atol=1 / large.min() ** 2
    )


def test_draw_has_the_gamma_variables_behind_it():
    draw, _ = draws([1e-3, 0.5, 4.0], 50)
    log_gamma = draw["log_gamma"]
    expected = log_gamma - logsumexp(log_gamma, axis=-1, keepdims=True)
    np.testing.assert_allclose(draw["log_probabilities"], expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_v_solves_with_the_hessian(scale):
    rng = np.random.default_rng(0)
    concentration = scale * rng.gamma(1.0, 2.0, size=(3, 6))
    natural = {"concentration": concentration}
    draw = FAMILY.sample(natural, rng)
    statistics = rng.gamma(1.0, 3.0, size=(3, 6))
    result = multiplied(draw, natural, statistics)
    for k in range(3):
        # Rows: log probabilities, columns: concentrations.
        jacobian = np.eye(6) - draw["probabilities"][k]
        jacobian = jacobian * log_gamma_derivative(draw["log_gamma"][k], concentration[k])
        expected = np.linalg.solve(hessian(concentration[k]), jacobian.T @ statistics[k])
        np.testing.assert_allclose(result[k], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision")
def test_v_keeps_its_digits_for_large_concentrations():
    """Against the plain matrix inversion lemma in extended precision."""
    concentration = np.array([3e12, 1e12, 2e11, 5e12])
    natural = {"concentration": concentration}
    draw = FAMILY.sample(natural, np.random.default_rng(0))
    # As far from the expected statistics as the draw is from its expectation.
    statistics = concentration + np.sqrt(concentration) * np.array([1.0, -1.0, 0.5, -1.0])
    result = multiplied(draw, natural, statistics)

    def inverse(a):
        a = np.longdouble(a)
        return 1 / (1 / a + 1 / (2 * a**2) + 1 / (6 * a**3))

    # An array, because NumPy before 2.0 computes with a number of extended precision in float64.
    gamma = np.exp(np.longdouble(draw["log_gamma"]) - draw["log_gamma"].max())
    probabilities = gamma / gamma.sum()
    derivative = log_gamma_derivative(draw["log_gamma"], concentration)
    gradient = derivative * (statistics - probabilities * np.longdouble(statistics).sum())
    r = inverse(concentration)
    gap = inverse(np.longdouble(concentration).sum()) - r.sum()
    expected = r * (gradient + (r * gradient).sum() / gap)
    np.testing.assert_allclose(result, expected.astype(float), rtol=1e-6)


def test_jacobian_is_that_of_the_draw_at_fixed_quantiles():
    """The Hessian takes V S back to the gradient along each path, here by differences."""
    concentration = np.array([0.4, 1.5, 6.0])
    uniform = np.random.default_rng(0).uniform(0.02, 0.98, size=(200, 3))

    def value(shift, v):
        log_gamma = np.log(gammaincinv(concentration + shift * np.eye(3)[v], uniform))
        log_probabilities = log_gamma - logsumexp(log_gamma, axis=-1, keepdims=True)
        return logsumexp(log_probabilities + offsets, axis=-1)

    offsets = np.array([0.3, -1.0, 1.2])
    log_gamma = np.log(gammaincinv(concentration, uniform))
    log_probabilities = log_gamma - logsumexp(log_gamma, axis=-1, keepdims=True)
    draw = {"log_gamma": log_gamma, "probabilities": np.exp(log_probabilities)}
    joint = log_probabilities + offsets
    statistics = np.exp(joint - logsumexp(joint, axis=-1, keepdims=True))
    natural = {"concentration": np.tile(concentration, (200, 1))}
    gradient = multiplied(draw, natural, statistics) @ hessian(concentration)
    for v in range(3):
        expected = difference(lambda shift, v=v: value(shift, v), 0.0, 1e-3)
        np.testing.assert_allclose(gradient[:, v], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_expectation_of_v_is_the_identity(scale):
    draw, natural = draws(scale * np.array([0.3, 1.0, 2.5, 8.0]), 100_000)
    for statistics in (np.array([1.0, 0.0, 4.0, 2.0]), np.array([0.0, 3.0, 0.0, 0.0])):
        assert_mean(multiplied(draw, natural, statistics), statistics)


def test_natural_gradient_of_an_expectation():
    """E[V S] with S the gradient of h is the natural gradient of E[h]; here h is an evidence."""
    concentration, offsets = np.array([0.7, 2.0]), np.array([0.5, 3.0])

    def expectation(a, b):
        def integrand(p):
            log_density = (a - 1) * np.log(p) + (b - 1) * np.log1p(-p) - betaln(a, b)
            return np.exp(log_density) * np.log(
                p * np.exp(offsets[0]) + (1 - p) * np.exp(offsets[1])
            )

        return quad(integrand, 0.0, 1.0, epsabs=1e-11, epsrel=1e-11, limit=200)[0]

    a, b = concentration
    gradient = np.array(
        [
            difference(lambda x: expectation(x, b), a, 0.01),
            difference(lambda x: expectation(a, x), b, 0.01),
        ]
    )
    draw, natural = draws(concentration, 200_000)
    joint = draw["log_probabilities"] + offsets
    statistics = np.exp(joint - logsumexp(joint, axis=-1, keepdims=True))
    result = multiplied(draw, natural, statistics)
    assert_mean(result @ hessian(concentration), gradient)
    # Without V the step points elsewhere: the statistics depend on the draw.
    error = (statistics @ hessian(concentration)).mean(axis=0) - gradient
    assert (np.abs(error) > 0.1 * np.abs(gradient)).any()


def test_control_variate_keeps_the_mean_and_takes_noise_away():
    concentration, prior = np.array([20.0, 35.0, 50.0]), np.full((1, 3), 0.5)
    statistics = np.array([19.8, 34.0, 49.9])
    draw, natural = draws(concentration, 50_000)
    stats = {"concentration": np.tile(statistics, (50_000, 1))}
    result = FAMILY.exact_gradient_statistics(draw, natural, {"concentration": prior}, stats)
    result = result["concentration"]
    assert (result > 0).all()
    assert (result < 4 * (statistics + concentration - 0.5)).all()
    assert_mean(result, statistics)
    raw = multiplied(draw, natural, statistics)
    assert (result.std(axis=0) < 0.5 * raw.std(axis=0)).all()


def test_guard_keeps_the_range():
    rng = np.random.default_rng(0)
    concentration = 0.01 + rng.gamma(0.1, 3.0, size=(20, 50))
    natural = {"concentration": concentration}
    prior = {"concentration": np.full((20, 50), 0.01)}
    statistics = rng.gamma(0.1, 30.0, size=(20, 50)) * (rng.random((20, 50)) < 0.5)
    draw = FAMILY.sample(natural, rng)
    stats = {"concentration": statistics}
    result = FAMILY.exact_gradient_statistics(draw, natural, prior, stats)["concentration"]
    raw = multiplied(draw, natural, statistics)
    assert raw.min() < 0.0
    assert np.isfinite(result).all()
    assert (result >= 0.0).all()
    ceiling = 4 * (statistics + (concentration - 0.01))
    assert (result <= ceiling).all()
    assert ((0.0 < result) & (result < ceiling)).any()


def test_control_is_exact_where_nothing_changes():
    """At a fixed point S = C the noise of V is gone, whatever V is."""
    current = np.array([3.0, 0.0, 1.5])
    result = controlled_statistics(lambda s: 1e6 * s, current, current)
    np.testing.assert_array_equal(result, current)


def test_rows_of_one_entry_are_left_alone():
    draw, natural = draws([2.0], 4)
    np.testing.assert_array_equal(multiplied(draw, natural, np.array([5.0])), np.full((4, 1), 5.0))


# Gamma distributions


def gamma_case(shape, rate, n, seed=0):
    """Natural parameters of one gamma distribution, and n draws from it."""
    natural = {"shape": np.full(n, shape), "rate": np.full(n, rate)}
    return natural, GAMMA.sample(natural, np.random.default_rng(seed))


GAMMA = Gamma()
GAMMAS = pytest.mark.parametrize(
    ("shape", "rate"), [(0.2, 3.0), (0.9, 0.05), (2.5, 1.0), (30.0, 7.0), (900.0, 2.0)]
)


@GAMMAS
def test_matrix_of_gamma_draws_is_that_of_the_quantile_function(shape, rate):
    """V = H⁻¹ Jᵀ: H the Hessian of A, J the derivatives of (log x, −x) at a fixed quantile."""
    probabilities = np.array([0.05, 0.3, 0.5, 0.8, 0.99])
    x = gammaincinv(shape, probabilities) / rate
    natural = {"shape": np.full(5, shape), "rate": np.full(5, rate)}
    draw = {"log_value": np.log(x), "value": x}
    hessian = np.array([[polygamma(1, shape), -1.0 / rate], [-1.0 / rate, shape / rate**2]])
    by_shape = difference(lambda a: gammaincinv(a, probabilities) / rate, shape, 0.01 * shape)
    by_rate = difference(lambda r: gammaincinv(shape, probabilities) / r, rate, 0.01 * rate)
    slopes = np.stack([by_shape, by_rate])
    for statistics in ([1.0, 0.0], [0.0, 1.0], [3.0, -2.0]):
        jacobian = statistics[0] * slopes / x - statistics[1] * slopes
        expected = np.linalg.solve(hessian, jacobian)
        found = GAMMA.implicit_statistics(
            draw, natural, {"shape": np.array(statistics[0]), "rate": np.array(statistics[1])}
        )
        found = np.stack([found["shape"], found["rate"]])
        scale = np.abs(expected).max(axis=1, keepdims=True)
        np.testing.assert_allclose(found / scale, expected / scale, rtol=1e-4, atol=1e-6)


@GAMMAS
def test_matrix_of_gamma_draws_is_the_identity_on_average(shape, rate):
    natural, draw = gamma_case(shape, rate, 400_000)
    for statistics in ([1.0, 0.0], [0.0, rate / shape], [5.0, 2.0]):
        given = {"shape": np.array(statistics[0]), "rate": np.array(statistics[1])}
        found = GAMMA.implicit_statistics(draw, natural, given)
        for key, value in zip(("shape", "rate"), statistics, strict=True):
            assert_mean(found[key], value)


def test_gamma_draws_that_underflow_have_finite_statistics():
    natural, draw = gamma_case(1e-4, 2.0, 1000)
    assert (draw["value"] == 0).any()
    found = GAMMA.implicit_statistics(
        draw, natural, {"shape": np.array(3.0), "rate": np.array(1.0)}
    )
    assert np.isfinite(found["shape"]).all() and np.isfinite(found["rate"]).all()


def test_exact_gradient_of_gammas_stays_in_bounds(rng):
    """Between 0 and four times the sum of the statistics found and those in q."""
    natural, draw = gamma_case(0.3, 2.0, 5000)
    prior = {"shape": np.array(0.1), "rate": np.array(0.5)}
    stats = {"shape": rng.gamma(0.5, size=5000), "rate": rng.gamma(0.5, size=5000)}
    found = GAMMA.exact_gradient_statistics(draw, natural, prior, stats)
    for key, in_q in (("shape", 0.3 - 0.1), ("rate", 2.0 - 0.5)):
        ceiling = 4.0 * (stats[key] + in_q)
        assert (found[key] >= 0).all() and (found[key] <= ceiling).all()
        assert (found[key] == 0).any() and (found[key] == ceiling).any()


def test_exact_gradient_of_gammas_is_exact_where_q_has_the_statistics():
    """The control variate then removes all noise."""
    natural, draw = gamma_case(2.3, 4.0, 100)
    prior = {"shape": np.array([0.3]), "rate": np.array([1.0])}
    stats = {"shape": np.full(100, 2.0), "rate": np.full(100, 3.0)}
    found = GAMMA.exact_gradient_statistics(draw, natural, prior, stats)
    np.testing.assert_allclose(found["shape"], 2.0)
    np.testing.assert_allclose(found["rate"], 3.0)
