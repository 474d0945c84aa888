"""Log densities and statistics of Gaussians in the layout of the kernels."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from ...families import Natural
from ...kernels.plain.gaussian_mixture import DIAGONAL, FULL, SPHERICAL
from .._base import compiled

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
    terms : Terms or None
        What rows with missing cells need besides; None for statistics.
    """

    layout: str
    own: np.ndarray
    shared: np.ndarray
    terms: Terms | None = None

    def pack(self) -> Natural:
        """Return statistics as a dictionary of arrays, with the layout as the key.

        The arrays of two such dictionaries can be added.
        """
        raw = {self.layout: self.own}
        return raw | ({"shared": self.shared} if self.layout == "tied" else {})


kernels = partial(compiled, "gaussian_mixture")


def feature_kind(layout: str) -> int:
    """Return the number by which kernels know the quadratic features of a layout."""
    return {"diag": DIAGONAL, "spherical": SPHERICAL}.get(layout, FULL)
