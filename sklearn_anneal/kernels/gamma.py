"""The derivative of a gamma variable by its shape at a fixed quantile, and the trigamma function.

Both are computed elementwise.

Let G be a gamma variable of rate 1 and shape a, and y = log G. The derivative D = dy/da at a fixed
quantile is -(dF/da) / (G f). Integration by parts and differentiation of this definition give

    a D(y, a) = G D(y, a + 1) + psi(a + 1) - y,                  (steps in the shape)
    dD/dy = (G - a) D + psi(a) - y.                              (the equation in y)

Large shapes: put w = y - log a and D = sum_k d_k(w) / a^k into the equation in y, which gives
d_1 = w / (e^w - 1) and d_k = (d_{k-1}' - psi_{k-1}) / (e^w - 1), where psi_k are the coefficients
of psi(a) - log a in powers of 1 / a. All d_k are analytic for |w| < 2 pi and are kept as Taylor
polynomials. For smaller shapes the first equation leads up to a large shape and back. These steps
are contractions, or nearly so, as long as G exceeds a by little. For larger G,
D = (y - psi(a)) J + dJ/da, where Legendre's continued fraction gives
J = e^G G^{-a} Gamma(a, G). Both terms are positive there.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ._compile import helper, kernel

# These numbers of terms keep the relative error below 1e-9 for shapes from 1e-3 to 1e7.
_N_STEPS = 12
_N_ORDERS = 9
_N_POWERS = 18
_N_FRACTIONS = 16
_MARGIN = 5.0
# For large shapes the polynomials are used alone if |w| is at most the first number. After steps
# their value has no weight if w is below the second number.
_ALONE = 1.0
_LOWEST = -2.5


def _bernoulli(n: int) -> list[Fraction]:
    """B_0, ..., B_n with B_1 = -1/2."""
    numbers = [Fraction(1)]
    for m in range(1, n + 1):
        known = sum((math.comb(m + 1, j) * numbers[j] for j in range(m)), Fraction(0))
        numbers.append(-known / (m + 1))
    return numbers


def _taylor_coefficients(bernoulli: list[Fraction], psi: list[Fraction]) -> np.ndarray:
    """Coefficients of d_1, d_2, ... in powers of w, one row per order."""
    first = [number / math.factorial(j) for j, number in enumerate(bernoulli)]
    orders = [first]
    for k in range(1, _N_ORDERS):
        slope = [j * coefficient for j, coefficient in enumerate(orders[-1])][1:]
        # d_k'(0) equals psi_k, so that the numerator has the factor w, which cancels the pole of
        # 1 / (e^w - 1).
        assert slope[0] == psi[k - 1]
        numerator = slope[1:]
        orders.append(
            [
                sum((numerator[i] * first[j - i] for i in range(j + 1)), Fraction(0))
                for j in range(len(numerator))
            ]
        )
    return np.array([[float(order[j]) for j in range(_N_POWERS)] for order in orders])


_NUMBERS = _bernoulli(_N_POWERS + 2 * _N_ORDERS)
# psi(a) - log a = -sum_k B_k / (k a^k) with B_1 = +1/2.
_FRACTIONS = [Fraction(-1, 2)] + [-_NUMBERS[k] / k for k in range(2, _N_ORDERS + 1)]
_PSI = np.array([float(value) for value in _FRACTIONS])
_TAYLOR = _taylor_coefficients(_NUMBERS, _FRACTIONS)
# a psi'(a) - 1 = 1 / (2a) + sum_k B_2k / a^2k.
_TRIGAMMA = np.array([float(_NUMBERS[2 * k]) for k in range(1, _N_ORDERS)])


@helper
def _digamma_minus_log(shape):
    """psi(a) - log a for a large shape."""
    inverse = 1.0 / shape
    total = 0.0
    for k in range(_N_ORDERS - 1, -1, -1):
        total = (total + _PSI[k]) * inverse
    return total


@helper
def _expansion(w, shape):
    """The derivative D for a large shape at G = shape · e^w."""
    inverse = 1.0 / shape
    total = 0.0
    for k in range(_N_ORDERS - 1, -1, -1):
        order = 0.0
        # Higher orders weigh less, so that they need fewer powers of w.
        for j in range(_N_POWERS - 2 * k - 1, -1, -1):
            order = order * w + _TAYLOR[k, j]
        total = (total + order) * inverse
    return total


@helper
def _below(y, shape):
    """The derivative D where G exceeds the shape by little or not at all."""
    stepped = shape + _N_STEPS
    log_stepped = math.log(stepped)
    value = math.exp(y)
    derivative = _expansion(max(y - log_stepped, _LOWEST), stepped)
    # The difference is psi(a + j + 1) - y, from the largest shape downwards.
    difference = log_stepped + _digamma_minus_log(stepped) - y
    for j in range(_N_STEPS - 1, -1, -1):
        inverse = 1.0 / (shape + j)
        derivative = (value * derivative + difference) * inverse
        difference -= inverse
    return derivative


@helper
def _above(y, shape):
    """The derivative D far in the upper tail."""
    value = math.exp(y)
    psi = math.log(shape + _N_STEPS) + _digamma_minus_log(shape + _N_STEPS)
    for j in range(_N_STEPS):
        psi -= 1.0 / (shape + j)
    denominator = value + (2 * _N_FRACTIONS + 1) - shape
    slope = -1.0
    for k in range(_N_FRACTIONS, 0, -1):
        ratio = k * (k - shape) / denominator
        slope = -1.0 + (k + ratio * slope) / denominator
        denominator = value + (2 * k - 1) - shape - ratio
    return ((y - psi) - slope / denominator) / denominator


@helper
def _derivative(y, shape):
    if shape >= _N_STEPS:
        w = y - math.log(shape)
        if abs(w) <= _ALONE:
            return _expansion(w, shape)
        return _below(y, shape) if w < 0.0 else _above(y, shape)
    return _below(y, shape) if y < math.log(shape + _MARGIN) else _above(y, shape)


@kernel("rows matrix out2")
def log_gamma_derivative(log_value, shape, out):
    """d log G / d shape at the quantile of G, elementwise.

    Parameters
    ----------
    log_value : ndarray of shape (n, m)
        log G.
    shape : ndarray of float64, shape (n, m)
        Shapes, positive.
    out : ndarray of float64, shape (n, m)
        The result.
    """
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = _derivative(np.float64(log_value[i, j]), shape[i, j])


@helper
def _inverse_trigamma(a):
    """1 / psi'(a) and a - 1 / psi'(a)."""
    stepped = a if a >= _N_STEPS else a + _N_STEPS
    square = 1.0 / (stepped * stepped)
    excess = 0.0
    for k in range(_N_ORDERS - 2, -1, -1):
        excess = (excess + _TRIGAMMA[k]) * square
    excess += 0.5 / stepped
    trigamma = (1.0 + excess) / stepped
    if a >= _N_STEPS:
        return 1.0 / trigamma, excess / trigamma
    for k in range(_N_STEPS):
        step = 1.0 / (a + k)
        trigamma += step * step
    return 1.0 / trigamma, a - 1.0 / trigamma


@kernel("rows out2 out2")
def inverse_trigamma(shape, inverse, deficit):
    """1 / psi'(a) and a - 1 / psi'(a), elementwise, each without cancellation.

    Parameters
    ----------
    shape : ndarray of shape (n, m)
        Arguments a, positive.
    inverse, deficit : ndarray of float64, shape (n, m)
        The results; the deficit lies between 0 and 1/2.
    """
    for i in range(shape.shape[0]):
        for j in range(shape.shape[1]):
            inverse[i, j], deficit[i, j] = _inverse_trigamma(np.float64(shape[i, j]))


@kernel("rows index out2", dtypes=("float64",))
def inverse_trigamma_sums(shape, rows, sums):
    """Add the two functions of :func:`inverse_trigamma` over some rows.

    Parameters
    ----------
    shape : ndarray of shape (n, m)
        Arguments, positive.
    rows : ndarray of shape (n_added,)
    sums : ndarray of shape (2, m)
        The sums of 1 / psi'(a), and of a - 1 / psi'(a), to which they are added.
    """
    for i in rows:
        for j in range(shape.shape[1]):
            inverse, deficit = _inverse_trigamma(shape[i, j])
            sums[0, j] += inverse
            sums[1, j] += deficit
