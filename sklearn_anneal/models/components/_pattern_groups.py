"""Gaussians of many rows that lack the same cells.

For such rows the log densities are quadratic functions of the observed cells alone, and the
expected values of missing cells are linear functions of them. The kernels for rows without missing
cells therefore serve, at one factorisation for each component.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels.plain.gaussian_mixture import FULL
from ._features import kernels, rows_per_block

_NOTHING = np.empty((1, 0))


class Group(NamedTuple):
    """Rows with the same missing cells, and the Gaussians of these cells."""

    x: np.ndarray  # the observed cells, (n_rows, n_observed)
    center: np.ndarray  # the values that kernels subtract from them, (n_observed,)
    # The columns.
    observed: np.ndarray
    missing: np.ndarray
    # P_oo − P_om P_mm⁻¹ P_mo, the precision of the observed cells,
    # (n_components, n_observed, n_observed).
    schur: np.ndarray
    # −P_mm⁻¹ P_mo, by which expected values of missing cells follow from the observed ones,
    # (n_components, n_missing, n_observed).
    slopes: np.ndarray
    covariance: np.ndarray  # P_mm⁻¹, (n_components, n_missing, n_missing)
    log_det: np.ndarray  # log|P_mm|, (n_components,)

    @classmethod
    def of(cls, x: np.ndarray, center: np.ndarray, precision: np.ndarray) -> Group:
        """Return the group of the rows ``x``, given the precision matrices of all components."""
        gaps = np.isnan(x[0])
        o, m = np.flatnonzero(~gaps), np.flatnonzero(gaps)
        mixed = precision[:, m[:, None], o]
        root = np.linalg.inv(np.linalg.cholesky(precision[:, m[:, None], m]))
        covariance = np.swapaxes(root, 1, 2) @ root
        half = root @ mixed
        schur = precision[:, o[:, None], o] - np.swapaxes(half, 1, 2) @ half
        log_det = -2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        x = np.ascontiguousarray(x[:, o])
        return cls(x, center[o].copy(), o, m, schur, -covariance @ mixed, covariance, log_det)

    def distances(self, mean: np.ndarray) -> np.ndarray:
        """Return the squared distances of the observed cells, (n_rows, n_components)."""
        mean = mean[:, self.observed]
        i, j = np.triu_indices(len(self.observed))
        linear = (self.schur @ mean[..., None])[..., 0]
        quadratic = np.where(i == j, 1.0, 2.0) * self.schur[:, i, j]
        constant = (mean * linear).sum(axis=1, keepdims=True)
        coefficients = np.hstack([quadratic, -2.0 * linear, constant])
        out = np.empty((len(self.x), len(mean)))
        how = FULL, coefficients, _NOTHING, rows_per_block(len(self.observed)), out
        kernels().log_joint(self.x, self.center, *how)
        return np.maximum(out, 0.0, out=out)

    def moments(
        self, mean: np.ndarray, shares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Σ R, Σ R E x and Σ R E x xᵀ of the completed rows, about the center."""
        k, d = mean.shape
        o, m = self.observed, self.missing
        i, j = np.triu_indices(len(o))
        raw = np.zeros((k, len(i) + len(o) + 1))
        shares = np.ascontiguousarray(shares, dtype=np.float64)
        kernels().statistics_of(
            *(self.x, self.center, FULL, shares, rows_per_block(len(o)), raw, np.empty((1, 0)))
        )
        count, total = raw[:, -1], raw[:, -len(o) - 1 : -1]
        square = np.empty((k, len(o), len(o)))
        square[:, i, j] = square[:, j, i] = raw[:, : len(i)]
        # E x_m = intercept + slopes x_o.
        intercept = mean[:, m] - (self.slopes @ mean[:, o, None])[..., 0]
        moved = (self.slopes @ total[..., None])[..., 0]
        first = np.empty((k, d))
        first[:, o] = total
        first[:, m] = count[:, None] * intercept + moved
        mixed = intercept[:, :, None] * total[:, None, :] + self.slopes @ square
        second = np.empty((k, d, d))
        second[:, o[:, None], o] = square
        second[:, m[:, None], o] = mixed
        second[:, o[:, None], m] = np.swapaxes(mixed, 1, 2)
        of_missing = first[:, m, None] * intercept[:, None, :]
        of_missing += mixed @ np.swapaxes(self.slopes, 1, 2)
        of_missing += count[:, None, None] * self.covariance
        second[:, m[:, None], m] = of_missing
        return count, first, second
