"""Limits of the log-determinants log|y s V + S| of components, as functions of factors y.

The covariance prior of a component has the inverse scale s V, to which its rows add S. With the
eigenvalues p of s V (s V + S)⁻¹, which are between 0 and 1, a factor y of s V changes the
log-determinant by Σ log(1 + (y − 1) p). Few numbers decide how large this sum can be: the number D
of eigenvalues, their sum and the sum of their squares. Gauss–Radau quadrature with one of its two
nodes at an end of the interval is exact for these three, and its error has the sign of the third
derivative by p (Golub and Meurant). For y > 1 the sum is therefore not above that of a number of
eigenvalues 1 and equal other ones, and for y < 1 not above that of some eigenvalues 0 and equal
other ones, which have the same three sums. Both agree with it up to second order at y = 1.

References
----------
Golub and Meurant (2010), Matrices, Moments and Quadrature with Applications, chapter 6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Determinants(NamedTuple):
    """The number and the value of the equal eigenvalues for y > 1 and for y < 1.

    All arrays have the shape (n_components,).
    """

    n_features: int
    n_above: np.ndarray  # the others, D − n_above, are 1
    p_above: np.ndarray
    n_below: np.ndarray  # the others are 0
    p_below: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, n_features: int) -> Determinants:
        """Return those of components whose eigenvalues have these sums and sums of squares.

        Rounding errors must not leave the numbers that are possible.
        """
        d, tiny = n_features, np.finfo(float).tiny
        first = np.minimum(np.maximum(first, 0.0), d)
        rest = d - first  # Σ (1 − p)
        below = np.minimum(np.maximum(second, first**2 / d), first)
        above = np.minimum(np.maximum(rest - first + second, rest**2 / d), rest)  # Σ (1 − p)²
        p_below, q_above = below / np.maximum(first, tiny), above / np.maximum(rest, tiny)
        n_above, n_below = rest / np.maximum(q_above, tiny), first / np.maximum(p_below, tiny)
        return cls(d, n_above, 1.0 - q_above, n_below, p_below)
