"""Maximisation of the bound over the parameters of priors: the M-steps of empirical Bayes.

Each function takes expectations under q of the variables that share a prior, and returns those
parameters of the prior under which the expected log density is highest. As q stays fixed, a lower
bound that contains this expected log density cannot fall. The expected log density can be highest
at infinity, for example if all variables are equal. All results are therefore kept between bounds;
as every function here has a single maximum, the nearest bound is then the best permitted value.

References
----------
Bishop (2006), Pattern Recognition and Machine Learning, section 3.5 for empirical Bayes and
appendix B for the expectations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import psi, zeta

SMALLEST, LARGEST = 1e-4, 1e4
"""Default bounds of concentrations and shapes that are learned."""

# Steps of over-relaxation are so many times as long as the way to the best value, on the scale of
# the logarithm. Twice the way leads to a value that is about as bad as the old one.
_OVER_RELAXATION = 1.8
# Newton's method and bisection stop at this relative precision, or after so many steps.
_PRECISION, _STEPS = 1e-13, 200
# From so many numbers on, the series of ψ′(x) is quicker; it has the Bernoulli numbers B16 to B2.
_MANY = 200
_SERIES = (-3617 / 510, 7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)


def trigamma(x: Any) -> Any:
    """Return ψ′(x) of positive numbers.

    ``scipy.special.zeta`` is quicker than ``polygamma``, which evaluates ψ(x) as well. For many
    numbers the asymptotic series at x + 8 and eight steps back from there are quicker still.
    """
    if np.size(x) < _MANY:
        return zeta(2.0, x)
    inverse = 1.0 / (x + len(_SERIES))
    square, total = inverse**2, np.zeros(np.shape(x))
    for coefficient in _SERIES:
        total += coefficient
        total *= square
    total += 1.0 + 0.5 * inverse
    total *= inverse
    for step in range(len(_SERIES)):
        total += 1.0 / np.square(x + step)
    return total


def maximizer(
    slope: Callable[[float], tuple[float, float]],
    lower: float,
    upper: float,
    start: float,
    precision: float = _PRECISION,
) -> float:
    """Return where a function of one positive number has its maximum between two bounds.

    Newton's method searches for the zero of the slope on the scale of the logarithm. It is
    bracketed, and where a step would leave the bracket the bracket is halved instead.

    Parameters
    ----------
    slope : callable
        Maps x to the derivative of the function and the derivative of that. The derivative
        changes its sign at most once, from plus to minus.
    lower, upper : float
        Bounds of x, which are positive.
    start : float
        The first guess.
    precision : float
        Where to stop, relative to x.

    Returns
    -------
    float
        The zero of the slope, or the bound next to it if there is no zero between the bounds.
    """
    least, most = lower, upper
    x = min(max(start, least), most)
    for _ in range(_STEPS):
        value, curvature = slope(x)
        if value >= 0:
            lower = x
        if value <= 0:
            upper = x
        # The slope with respect to log x is x f', and its derivative is x (f' + x f'').
        decline = -(value + x * curvature)
        log_step = value / decline if decline > 0 else np.inf
        new = x * np.exp(log_step) if abs(log_step) < 50 else np.inf
        closed = upper - lower <= precision * upper
        if closed or not lower < new < upper:
            # If the slope has the same sign at the bound on this side, the bound is the maximum.
            if value > 0 and upper == most and slope(most)[0] >= 0:
                return most
            if value < 0 and lower == least and slope(least)[0] <= 0:
                return least
            if closed:
                break
            new = float(np.sqrt(lower * upper))
        if abs(new - x) <= precision * x:
            return float(new)
        x = new
    return float(x)


def damped(old: float, new: float, rho: float, above: float = 0.0) -> float:
    """Return a number that has moved by the share ρ, on the scale of log(x − ``above``)."""
    if rho == 1.0:
        return new
    return float(above + (old - above) * ((new - above) / (old - above)) ** rho)


def over_relaxed(old: float, best: float, gap: float, before: float) -> float:
    """Return a shape beyond the best one given q, which q has not followed yet.

    A prior and q follow each other, so that the prior makes a part of the way that is left in every
    pass. A step of 1.8 times the way to the best value leaves far less of it, and the bound cannot
    fall, because the step is taken only where the expected log density is no lower than before.

    Parameters
    ----------
    old, best : float
        The shape a of a prior Gamma(a, a) of numbers λ, and its best value given q.
    gap : float
        E λ − E log λ − 1, the mean over the numbers.
    before : float
        The last change of the shape. If that had another direction, or if there was none (0), the
        best value is returned.

    Returns
    -------
    float
        A shape from ``SMALLEST`` to ``LARGEST``.
    """
    if (best - old) * before <= 0.0:
        return best
    new = min(max(old * (best / old) ** _OVER_RELAXATION, SMALLEST), LARGEST)

    def log_density(a: float) -> float:
        return a * math.log(a) - math.lgamma(a) - a * (gap + 1.0)

    return new if log_density(new) >= log_density(old) else best


def gamma_shape(
    mean: float,
    mean_log: float,
    start: float = 1.0,
    bounds: tuple[float, float] = (SMALLEST, LARGEST),
) -> float:
    """Return the shape of the gamma prior of positive numbers λ, if its rate is learned as well.

    Parameters
    ----------
    mean, mean_log : float
        The means of E λ and of E log λ over all numbers with this prior.
    start : float, default=1.0
        The first guess.
    bounds : tuple of float
        The smallest and the largest permitted value.

    Returns
    -------
    float
        The shape a with log a − ψ(a) = log E λ − E log λ. The rate is a / E λ.
    """
    gap = np.log(mean) - mean_log

    def slope(shape: float) -> tuple[float, float]:
        return np.log(shape) - psi(shape) - gap, 1.0 / shape - trigamma(shape)

    return maximizer(slope, *bounds, start)


def wishart_dof(
    n_features: int,
    log_det: float,
    log_det_scale: Callable[[float], tuple[float, float]],
    start: float,
    bounds: tuple[float, float],
) -> float:
    """Return the degrees of freedom of the Wishart prior of precision matrices Λ.

    Parameters
    ----------
    n_features : int
        D.
    log_det : float
        The mean of E log|Λ| over all matrices with this prior.
    log_det_scale : callable
        Maps ν to log|W⁻¹| of the prior and its derivative, where W⁻¹ is the best inverse scale
        for ν degrees of freedom, or a fixed one.
    start : float
        The first guess.
    bounds : tuple of float
        The smallest and the largest permitted value, both above D − 1.

    Returns
    -------
    float
        The ν with Σ_i ψ((ν + 1 − i) / 2) + D log 2 − log|W⁻¹| = E log|Λ|.
    """
    constant = log_det - n_features * np.log(2.0)
    below = np.arange(n_features)

    def slope(dof: float) -> tuple[float, float]:
        halves = 0.5 * (dof - below)
        value, derivative = log_det_scale(dof)
        return (
            float(constant + value - psi(halves).sum()),
            float(derivative - 0.5 * trigamma(halves).sum()),
        )

    return maximizer(slope, *bounds, start)


def scale_root(dof: float, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive roots y of y² − n y − a = 0 and their derivatives with respect to n.

    The best inverse scale of a Wishart prior has these eigenvalues in the coordinates in which
    the expected precision is the identity, n being its degrees of freedom. The numbers a are zero,
    and y = n, unless the inverse scale is also the covariance of a Gaussian prior: then n is
    reduced by 1 and a ≥ 0 has the eigenvalues of the expected squares of the Gaussian variables.
    """
    # Squares of huge degrees of freedom would overflow.
    root = np.hypot(dof, 2.0 * np.sqrt(spread))
    # For negative n, the sum n + root would lose its digits.
    y = 0.5 * (dof + root) if dof >= 0 else 2.0 * spread / np.maximum(root - dof, 1e-300)
    return y, y / np.maximum(root, 1e-300)
