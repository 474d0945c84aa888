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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import psi

from ...families._empirical_bayes import maximizer, trigamma

if TYPE_CHECKING:
    from ._joint_steps import JointStep

# The largest factor of the inverse scale in one step.
_LARGEST_FACTOR = 1e100


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
        first = np.clip(first, 0.0, d)
        rest = d - first  # Σ (1 − p)
        below = np.clip(second, first**2 / d, first)
        above = np.clip(rest - first + second, rest**2 / d, rest)  # Σ (1 − p)²
        p_below, q_above = below / np.maximum(first, tiny), above / np.maximum(rest, tiny)
        n_above, n_below = rest / np.maximum(q_above, tiny), first / np.maximum(p_below, tiny)
        return cls(d, n_above, 1.0 - q_above, n_below, p_below)

    def changes(self, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return limits of the changes, and their first two derivatives by log y, at factors y."""
        larger = factors >= 1.0
        n = np.where(larger, self.n_above, self.n_below)
        p = np.where(larger, self.p_above, self.p_below)
        ones = np.where(larger, self.n_features - n, 0.0)
        total = (1.0 - p) + factors * p
        share = factors * p / total
        value = ones * np.log(factors) + n * np.log(total)
        return value, ones + n * share, n * share * (1.0 - share)


class OneScale:
    """The number c by which V is multiplied that maximises the bound, as a function of ν₀.

    Given ν₀, c maximises Σ_k ν₀ D log c − (ν₀ + N_k) log|c s_k V + S_k|, where limits are in the
    place of the determinants.
    """

    def __init__(self, step: JointStep):
        self.step, self.n_features = step, step.components.n_features
        dof = np.broadcast_to(step.components.degrees_of_freedom_prior, step.size.shape)
        self.rows, self.dof = step.q["dof"] - dof, float(dof.mean())
        # A given ν₀ may differ between components.
        self.difference = dof - self.dof
        self.determinants, self.growth = step.determinants, step.growth
        self.own = step.log_det_of_scale
        self.before = psi(self._halves(self.dof)).sum()
        self.factor = 1.0

    def _best_factor(self, dof: float) -> float:
        before = dof + self.difference
        after = before + self.rows

        def slope(c: float) -> tuple[float, float]:
            _, first, second = self.determinants.changes(c * self.growth)
            value = float((self.n_features * before - after * first).sum())
            return value / c, -(value + float((after * second).sum())) / c**2

        self.factor = maximizer(slope, min(self.step.floor, 1.0), _LARGEST_FACTOR, self.factor)
        return self.factor

    def _halves(self, dof: float) -> np.ndarray:
        after = dof + self.difference + self.rows
        return 0.5 * (after[:, None] - np.arange(self.n_features))

    def log_det(self, dof: float) -> tuple[float, float]:
        """Return log|W₀⁻¹| plus the mean change of E log|Λ_k| from q now, and the derivative."""
        c, d, k = self._best_factor(dof), self.n_features, self.growth.size
        halves = self._halves(dof)
        grown, first, second = self.determinants.changes(c * self.growth)
        change = (psi(halves).sum() - self.before) / k - grown.mean()
        derivative = 0.5 * trigamma(halves).sum() / k
        curvature = float((2.0 * halves[:, 0] * second).sum())
        if c > self.step.floor and curvature > 0.0:
            derivative += (d - first).sum() ** 2 / k / curvature
        return self.own + d * float(np.log(c)) + float(change), float(derivative)

    def best(self, dof: float) -> np.ndarray:
        """Return W₀⁻¹."""
        return self._best_factor(dof) * self.step.scale
