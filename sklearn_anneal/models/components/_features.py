"""Log densities and statistics of Gaussians in the layout of the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...kernels.plain.gaussian_mixture import DIAGONAL, FULL, SPHERICAL
from .._base import compiled
from ._base import RawStatistics

# Number of rows that a kernel processes at a time.
ROWS_PER_BLOCK = 256


class Terms(NamedTuple):
    """The means, the constants, and the log weights of which these are made, of all components."""

    mean: np.ndarray
    constant: np.ndarray
    log_weights: np.ndarray


class Features(NamedTuple):
    """Coefficients of log p(x, z = k) in the quadratic features [x_i x_j, x, 1] of the kernel.

    Attributes
    ----------
    layout : {"full", "tied", "diag", "spherical"}
        The set of quadratic features. With ``"tied"`` it is the same as with ``"full"``, but all
        components share the coefficients of these features.
    own : ndarray of shape (n_components, n_own)
        The coefficients that each component has for itself.
    shared : ndarray of shape (1, n_shared)
        The coefficients that all components share; empty unless the layout is ``"tied"``.
    terms : Terms
        Further values for rows with missing cells.
    """

    layout: str
    own: np.ndarray
    shared: np.ndarray
    terms: Terms


@dataclass(frozen=True)
class FeatureSums(RawStatistics):
    """Raw statistics: Σ R f(x) of the quadratic features, laid out as :class:`Features` are.

    Attributes
    ----------
    layout : {"full", "tied", "diag", "spherical"}
    own : ndarray of shape (n_components, n_own)
        The sums of the features whose coefficients each component has for itself. The last
        feature is 1, and its sums are Σ R.
    shared : ndarray of shape (1, n_shared)
        The sums over all components of the features whose coefficients they share.
    """

    layout: str
    own: np.ndarray
    shared: np.ndarray

    def __add__(self, other: FeatureSums) -> FeatureSums:
        return FeatureSums(self.layout, self.own + other.own, self.shared + other.shared)

    def __rmul__(self, factor: float) -> FeatureSums:
        return FeatureSums(self.layout, factor * self.own, factor * self.shared)


kernels = partial(compiled, "gaussian_mixture")

FEATURE_KINDS = {"full": FULL, "tied": FULL, "diag": DIAGONAL, "spherical": SPHERICAL}
"""The numbers by which kernels know the quadratic features, by the layout."""
