"""Differences of log-gamma functions that keep their digits where all of them are huge.

With a prior that counts as 10^12 observations, or with a count of 10^12, log Γ is near 10^13, and
the log probabilities and divergences in which it appears are far below its last digit. The
functions here evaluate them without the huge values: Stirling's formula is subtracted from every
log Γ, and what remains of the formulas is computed from differences of their arguments (the saddle
point form of Loader, 2000, Fast and accurate computation of binomial probabilities).
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, psi, xlogy

# A prior that counts as more observations than this is strong: the difference of two
# log-normalisers would be wrong by more than about 1e-6 nats.
STRONG = 1e8
# Stirling's series with three terms is exact to the last digit from here on.
_LARGE = 64.0
# log Γ of numbers up to this has at least ten digits after the point.
_FEW = 1e5
# A power series with eight terms is exact to the last digit up to here.
_SMALL = 5e-3
_N_TERMS = 8
# The smallest r of which log(1 + r) is finite; differences of very unequal numbers round to -1.
_LEAST = -1.0 + np.finfo(float).epsneg
# ψ(x) = log x − 1 / (2 x) − Σ_j c_j x^(−2 j), which is exact to the last digit from ``_FAR`` on.
_OF_DIGAMMA = (
    1.0 / 12.0,
    -1.0 / 120.0,
    1.0 / 252.0,
    -1.0 / 240.0,
    1.0 / 132.0,
    -691.0 / 32760.0,
    1.0 / 12.0,
)
_FAR = 8
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)
# If the strengths of two distributions have this ratio or a larger one, one is far stronger.
FAR = 100.0


def log1p_excess(r: np.ndarray) -> np.ndarray:
    """Return r - log(1 + r), which is not negative, to full relative precision.

    Parameters
    ----------
    r : ndarray of any shape
        Above -1.
    """
    # r²/2 − r³/3 + r⁴/4 − …
    coefficients = [(-1.0) ** n / n for n in range(2, 2 + _N_TERMS)]
    far = r - np.log1p(np.maximum(r, _LEAST))
    return np.where(np.abs(r) < _SMALL, _series(r, coefficients), far)


def gammaln_divergence(p: np.ndarray | float, q: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Return log Γ(p) - log Γ(q) - (p - q) ψ(q), which is not negative.

    Parameters
    ----------
    p, q : ndarray of shapes that fit together
        Positive.
    difference : ndarray of a shape that fits too
        p - q, which the caller may know more exactly than `p` and `q` give it.

    Returns
    -------
    ndarray
        Bregman's divergence of log Γ. Where both arguments are large it is evaluated by
        Stirling's series, term by term, with what is equal in both left out.
    """
    large = np.minimum(p, q) > _LARGE
    direct = gammaln(p) - gammaln(q) - difference * psi(q)
    p, q = np.where(large, p, _LARGE), np.where(large, q, _LARGE)
    d = np.where(large, difference, 0.0)
    rest = _stirling_rest(p) - _stirling_rest(q) - d * _stirling_rest_slope(q)
    return np.where(large, deviance(q, d) + 0.5 * log1p_excess(d / q) + rest, direct)


def deviance(mean: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Return x log(x / m) - x + m at x = m + d, which is not negative, to full relative precision.

    Parameters
    ----------
    mean : ndarray of any shape
        m, positive.
    difference : ndarray of a shape that fits
        d, at least -m, which the caller may know more exactly than x and m give it.
    """
    r = difference / mean
    # (1 + r) log(1 + r) − r = r²/2 − r³/6 + r⁴/12 − …
    coefficients = [(-1.0) ** n / (n * (n - 1)) for n in range(2, 2 + _N_TERMS)]
    near = np.abs(r) < _SMALL
    # The product is 0 at x = 0, whatever the logarithm is.
    far = (1.0 + r) * np.log1p(np.maximum(r, _LEAST)) - r
    return np.asarray(mean * np.where(near, _series(np.where(near, r, 0.0), coefficients), far))


def log_rising(x: np.ndarray, n: np.ndarray | float) -> np.ndarray:
    """Return log Γ(x + n) - log Γ(x), the logarithm of a rising factorial for whole n.

    Parameters
    ----------
    x, n : ndarray of shapes that fit together
        x and x + n are positive.
    """
    large = np.minimum(x, x + n) > _LARGE
    direct = gammaln(x + n) - gammaln(x)
    if not large.any():
        return direct
    y, d = np.where(large, x, _LARGE), np.where(large, n, 0.0)
    rest = _stirling_rest(y + d) - _stirling_rest(y)
    near = d * np.log(y) + deviance(y, d) - 0.5 * np.log1p(d / y) + rest
    return np.where(large, near, direct)


def log_poisson(x: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return log Poisson(x; m) = x log m - m - log Γ(x + 1), in nats.

    Parameters
    ----------
    x : ndarray of any shape
        Counts, or other numbers that are not negative.
    mean : ndarray of a shape that fits
        m, positive.
    """
    large = x > _LARGE
    y, m = np.where(large, x, _LARGE), np.where(large, mean, _LARGE)
    saddle = -deviance(m, y - m) - _stirling_rest(y) - 0.5 * np.log(y) - _HALF_LOG_2PI
    z = np.where(large, 0.0, x)
    return np.where(large, saddle, xlogy(z, mean) - mean - gammaln(z + 1.0))


def log_negative_binomial(x: np.ndarray, shape: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Return the log probability of a Poisson count whose mean has a gamma distribution, in nats.

    Parameters
    ----------
    x : ndarray of any shape
        Counts, or other numbers that are not negative.
    shape, rate : ndarray of shapes that fit
        a and b of the gamma distribution, positive. The result is log Γ(x + a) - log Γ(a) -
        log Γ(x + 1) + a log(b / (1 + b)) - x log(1 + b).
    """
    large = np.minimum(x, shape) > _LARGE
    y, a = np.where(large, x, _LARGE), np.where(large, shape, _LARGE)
    n = y + a
    # y of the n events are counts, and a are those of the prior. Both differ by this much from
    # their expectations n / (1 + b) and n b / (1 + b).
    d = (y * rate - a) / (1.0 + rate)
    saddle = (
        _stirling_rest(n)
        - _stirling_rest(y)
        - _stirling_rest(a)
        - deviance(n / (1.0 + rate), d)
        - deviance(n * (rate / (1.0 + rate)), -d)
        + 0.5 * np.log(a / n / y)
        - _HALF_LOG_2PI
    )
    x, shape = np.where(large, 1.0, x), np.where(large, 1.0, shape)
    direct = log_multichoose(x, shape) - shape * np.log1p(1.0 / rate) - x * np.log1p(rate)
    return np.where(large, saddle, direct)


def log_multichoose(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Return log Γ(x + a) - log Γ(a) - log Γ(x + 1), which is 0 at x = 0.

    Parameters
    ----------
    x : ndarray of any shape
        Counts, or other numbers that are not negative.
    shape : ndarray of a shape that fits
        a, positive.
    """
    if max(np.max(x, initial=0.0), np.max(shape, initial=0.0)) < _FEW:
        return np.asarray(gammaln(x + shape) - gammaln(shape) - gammaln(x + 1.0))
    # If only one of the two is large, it is the one whose log Γ cancels.
    following = x + 1.0
    counts_are_more = following >= shape
    more, less = np.maximum(following, shape), np.minimum(following, shape)
    rising = log_rising(more, np.where(counts_are_more, shape - 1.0, x))
    return np.asarray(rising - gammaln(less))


def log_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the log of the beta function, also where one parameter is far larger than the other.

    Parameters
    ----------
    a, b : ndarray of shapes that fit together
        Positive.
    """
    less, more = np.minimum(a, b), np.maximum(a, b)
    return np.asarray(gammaln(less) - log_rising(more, less))


def log_beta_negative_binomial(
    x: np.ndarray, shape: np.ndarray, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """Return the log probability of a negative binomial count whose p has a beta distribution.

    Parameters
    ----------
    x : ndarray of any shape
        Counts, or other numbers that are not negative.
    shape, a, b : ndarray of shapes that fit
        r and the parameters of the beta distribution, positive. The result is log Γ(x + r) -
        log Γ(r) - log Γ(x + 1) + log B(a + r, b + x) - log B(a, b), in nats.
    """
    large = np.minimum(np.minimum(x, shape), np.minimum(a, b)) > _LARGE
    y, r, c, d = (np.where(large, each, _LARGE) for each in (x, shape, a, b))
    strength, events = c + d, r + y
    total = strength + events
    # The prior shares p and 1 − p of all events differ by this much from the final ones.
    difference = (r * d - y * c) / strength
    saddle = (
        log_negative_binomial(y, r, c / d)
        + deviance(total * (c / strength), difference)
        + deviance(total * (d / strength), -difference)
        - 0.5 * (np.log1p(r / c) + np.log1p(y / d) - np.log1p(events / strength))
        + (_stirling_rest(c + r) - _stirling_rest(c))
        + (_stirling_rest(d + y) - _stirling_rest(d))
        - (_stirling_rest(total) - _stirling_rest(strength))
    )
    # Factors Γ of large numbers are taken together whose arguments differ by little.
    of_counts = log_rising(a, shape) + log_rising(b, a) - log_rising(b + x, a + shape)
    of_shapes = log_rising(b, x) + log_rising(a, b) - log_rising(a + shape, b + x)
    direct = log_multichoose(x, shape) + np.where(b + x >= a + shape, of_counts, of_shapes)
    return np.where(large, saddle, direct)


def digamma_rising(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return ψ(x + n) - ψ(x) to full relative precision, of positive x and n that is not negative.

    Parameters
    ----------
    x, n : ndarray of shapes that fit together
    """
    result, small = np.zeros(()), x < _FAR
    if small.any():
        y = np.where(small, x, 1.0)
        for _ in range(_FAR):
            result = result + n / (y * (y + n))
            y = y + 1.0
        x, result = np.where(small, y, x), np.where(small, result, 0.0)
    # P(u) − P(v) of the polynomial P of u = 1 / x² and v = 1 / (x + n)² is a multiple of u − v.
    total = x + n
    inverse, other = 1.0 / x, 1.0 / total
    u, v = inverse * inverse, other * other
    value, quotient = np.zeros(()), np.zeros(())
    for coefficient in reversed(_OF_DIGAMMA):
        value, quotient = coefficient + u * value, value + v * quotient
    quotient = value + v * quotient
    step = n * inverse * other
    return np.asarray(result + np.log1p(n * inverse) + step * (0.5 + (inverse + other) * quotient))


def digamma_excess(x: np.ndarray) -> np.ndarray:
    """Return ψ(x) - log x, which is negative, of positive x to full relative precision."""
    large = x > _LARGE
    y, z = np.where(large, x, _LARGE), np.where(large, 1.0, x)
    return np.where(large, _stirling_rest_slope(y) - 0.5 / y, psi(z) - np.log(z))


def gamma_divergence(
    shape: np.ndarray, rate: np.ndarray, prior_shape: np.ndarray, prior_rate: np.ndarray
) -> np.ndarray:
    """Return KL(q || p) of gamma distributions, one of which is far stronger than the other.

    Both can have any parameters, but the result is only exact to about the last digit of 1, so that
    it is of no use where q and p are nearly equal.
    """
    expected = -log_poisson(prior_shape, shape * (prior_rate / rate)) - np.log(prior_shape)
    return expected + _without_growth(prior_shape, shape)


def gammaln_divergence_from_far(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return log Γ(p) - log Γ(q) - (p - q) ψ(q) - q, where q can be far above p.

    A sum of :func:`gammaln_divergence` over the entries of a Dirichlet distribution, minus that of
    their total, does not change if q is subtracted from each. Then it loses no digits.
    """
    return gammaln(p) - p * np.log(q) + _without_growth(p, q)


def is_far(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return where q counts as so many observations, and p as so few, that q is what cancels."""
    return (q > STRONG) & (q > FAR * p)


def _without_growth(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return p log q - log Γ(q) - (p - q) ψ(q) - q, in which terms of the size of q cancel."""
    large = q > _LARGE
    y, z = np.where(large, q, _LARGE), np.where(large, 1.0, q)
    far = 0.5 * np.log(y) - _HALF_LOG_2PI + y * digamma_excess(y) - _stirling_rest(y)
    direct = z * psi(z) - z - gammaln(z)
    return np.where(large, far, direct) - p * digamma_excess(q)


def _series(r: np.ndarray, coefficients: list[float]) -> np.ndarray:
    """Σ_i c_i r^(2 + i)."""
    result = np.zeros_like(r)
    for coefficient in reversed(coefficients):
        result = result * r + coefficient
    return result * r * r


def _stirling_rest(x: np.ndarray) -> np.ndarray:
    """log Γ(x) without (x − 1/2) log x − x + log(2 π) / 2."""
    square = 1.0 / x**2
    return (1.0 / 12.0 - square * (1.0 / 360.0 - square / 1260.0)) / x


def _stirling_rest_slope(x: np.ndarray) -> np.ndarray:
    square = 1.0 / x**2
    return -square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))
