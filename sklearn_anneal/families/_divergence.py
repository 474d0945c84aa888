"""Differences of log-normalisers that keep their digits where both of them are huge.

With a prior that counts as 10^12 observations, log Γ is near 10^13, and what a few data change in
it is far below its last digit. The functions here evaluate such changes without the huge values.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, psi

# A prior that counts as more observations than this is strong: the difference of two
# log-normalisers would be wrong by more than about 1e-6 nats.
STRONG = 1e8
# Stirling's series with three terms is exact to the last digit from here on.
_LARGE = 64.0
# A power series with eight terms is exact to the last digit up to here.
_SMALL = 5e-3
_N_TERMS = 8


def log1p_excess(r: np.ndarray) -> np.ndarray:
    """Return r - log(1 + r), which is not negative, to full relative precision.

    Parameters
    ----------
    r : ndarray of any shape
        Above -1.
    """
    # r²/2 − r³/3 + r⁴/4 − …
    coefficients = [(-1.0) ** n / n for n in range(2, 2 + _N_TERMS)]
    return np.where(np.abs(r) < _SMALL, _series(r, coefficients), r - np.log1p(r))


def gammaln_divergence(p: np.ndarray | float, q: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Return log Γ(p) - log Γ(q) - (p - q) ψ(q), which is not negative.

    Parameters
    ----------
    p, q : ndarray of shapes that fit together
        Positive.
    difference : ndarray of a shape that fits too
        p - q, which the caller may know more exactly than `p` and `q` tell it.

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
    r = d / q
    # (1 + r) log(1 + r) − r = r²/2 − r³/6 + r⁴/12 − …
    coefficients = [(-1.0) ** n / (n * (n - 1)) for n in range(2, 2 + _N_TERMS)]
    near = np.abs(r) < _SMALL
    leading = q * np.where(near, _series(r, coefficients), (1.0 + r) * np.log1p(r) - r)
    rest = _stirling_rest(p) - _stirling_rest(q) - d * _stirling_rest_slope(q)
    return np.where(large, leading + 0.5 * log1p_excess(r) + rest, direct)


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
