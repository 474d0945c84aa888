"""Gaussian components of rows with missing cells, when precision matrices are full.

The formulas are those of the compiled kernels. The missing cells of each row are gathered in front
and padded to the largest number of them, so that all rows are worked on at once. Rows are the last
axis of all arrays, which numpy goes through fastest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class _Gathered(NamedTuple):
    """Some rows and their missing cells, for all components.

    Attributes
    ----------
    places : tuple of ndarray of int, shapes (m, n) and (n,)
        The missing columns of each row, and then others, and the numbers of the rows.
    padding : ndarray of bool, shape (m, n)
        Which of them are others.
    residual : ndarray of shape (n_components, n_features, n)
        x − m, with 0 where a cell is missing.
    distance : ndarray of shape (n_components, n)
        (x − m)ᵀ P (x − m) of the observed cells.
    product : ndarray of shape (n_components, m, n)
        v_m, of v = P (x − m), padded with zeros.
    matrix : ndarray of shape (n_components, m, m, n)
        P_mm, padded with the identity.
    """

    places: tuple[np.ndarray, np.ndarray]
    padding: np.ndarray
    residual: np.ndarray
    distance: np.ndarray
    product: np.ndarray
    matrix: np.ndarray

    @classmethod
    def of(
        cls, x: np.ndarray, center: np.ndarray, precision: np.ndarray, mean: np.ndarray
    ) -> _Gathered:
        rows = (x - center).T
        missing = np.isnan(rows)
        residual = rows - mean[:, :, None]
        residual[:, missing] = 0.0
        product = precision.reshape(len(mean), len(rows), len(rows)) @ residual
        distance = np.einsum("kdn,kdn->kn", residual, product)
        columns = np.argsort(~missing, axis=0, kind="stable")[: missing.sum(axis=0).max(initial=0)]
        places = columns, np.arange(len(x))
        padding = ~missing[places]
        precision = precision.reshape(len(mean), len(rows), len(rows))
        matrix = precision[:, columns[:, None], columns]
        if padding.any():
            unit = np.eye(len(columns))[:, :, None]
            matrix = np.where(padding[:, None] | padding, unit, matrix)
        of_missing = product[:, places[0], places[1]]
        of_missing[:, padding] = 0.0
        return cls(places, padding, residual, distance, of_missing, matrix)


def marginals(
    x: np.ndarray,
    center: np.ndarray,
    order: np.ndarray,
    precision: np.ndarray,
    mean: np.ndarray,
    block: int,
    distances: np.ndarray,
    log_dets: np.ndarray,
    halves: np.ndarray,
) -> None:
    """Squared distances of observed cells from the means, and log|P_mm|, as the compiled kernel."""
    for start in range(0, len(order), block):
        part = slice(start, start + block)
        found = _Gathered.of(x[order[part]], center, precision, mean)
        distance, log_det = found.distance, np.zeros(found.distance.shape)
        matrix, product = found.matrix, found.product
        m = matrix.shape[1]
        for a in range(m):
            pivot = matrix[:, a, a]
            log_det += np.log(pivot)
            distance -= product[:, a] ** 2 / pivot
            if a + 1 < m:
                factor = matrix[:, a + 1 :, a] / pivot[:, None]
                product[:, a + 1 :] -= factor * product[:, a, None]
                matrix[:, a + 1 :, a + 1 :] -= factor[:, :, None] * matrix[:, a, None, a + 1 :]
        distances[part] = np.maximum(distance, 0.0).T
        log_dets[part] = log_det.T


def impute(
    x: np.ndarray,
    center: np.ndarray,
    order: np.ndarray,
    precision: np.ndarray,
    mean: np.ndarray,
    shares: np.ndarray,
    factors: np.ndarray,
    reference: np.ndarray,
    block: int,
    means: np.ndarray,
    squares: np.ndarray,
) -> None:
    """Add the moments of the cells of each row, as the compiled kernel does."""
    for start in range(0, len(order), block):
        part = slice(start, start + block)
        found = _Gathered.of(x[order[part]], center, precision, mean)
        inverse = np.linalg.inv(np.moveaxis(found.matrix, 3, 1))
        columns, each = found.places
        deviation, variance = found.residual, np.zeros(found.residual.shape)
        completed = -np.einsum("knab,kbn->kan", inverse, found.product)
        spread = np.einsum("knaa->kan", inverse)
        # The columns that are padding keep what they have.
        kept = deviation[:, columns, each]
        deviation[:, columns, each] = np.where(found.padding, kept, completed)
        variance[:, columns, each] = np.where(found.padding, 0.0, spread)
        r, f = shares[part].T[:, None], factors[part].T[:, None]
        values = deviation + mean[:, :, None]
        means[part] += (r * values).sum(axis=0).T
        squares[part] += (r * (values - reference[part].T) ** 2).sum(axis=0).T
        # Components that a row does not have say nothing, even if their variance is infinite.
        with np.errstate(invalid="ignore"):
            of_missing = np.where((r > 0.0) & (variance > 0.0), r * f * variance, 0.0)
        squares[part] += of_missing.sum(axis=0).T
