"""Gaussian vectors, one for each row or column of the data, with matrices as lower triangles.

The triangle of a symmetric matrix of order K is stored row after row: (0, 0), (1, 0), (1, 1), …
Products with it take half the time and the memory of those with the whole matrix.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ._base import compiled

kernels = partial(compiled, "matrix_factorization")

# Sums over observed cells are the sum over all cells less that over the missing ones if at most
# this share is missing, and if triangles have so many entries; products of matrices take less time
# otherwise.
_FEW_MISSING, _MANY_ENTRIES = 0.2, 200
# No less may be left of a sum of squares, because differences of large numbers lose digits.
_LEAST_LEFT = 1e-8


class Moments(NamedTuple):
    """Moments of Gaussian vectors v."""

    means: np.ndarray  # E v, (n, K)
    second: np.ndarray  # E v vᵀ, (n, K (K + 1) / 2)
    log_det: np.ndarray  # log |P| of the precisions, (n,)


def moments(precision: np.ndarray, natural_mean: np.ndarray) -> Moments:
    """Return the moments of N(v; P⁻¹ h, P⁻¹), each from one Cholesky factorisation.

    Parameters
    ----------
    precision : ndarray of shape (n, K (K + 1) / 2)
        P.
    natural_mean : ndarray of shape (n, K)
        h.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a precision is not positive definite.
    """
    n, k = natural_mean.shape
    kernel = kernels()
    means, log_det, unused = np.empty((n, k)), np.empty(n), np.empty((n, 2))
    table = np.empty((n, kernel.n_columns(k, False)))
    arguments = np.ascontiguousarray(precision), np.ascontiguousarray(natural_mean)
    kernel.moments(table, *arguments, k, False, means, log_det, unused)
    if not np.isfinite(log_det).all():
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    return Moments(means, table[:, : precision.shape[1]], log_det)


def observed_sums(observed: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Return ``observed @ triangles``: sums of lower triangles over observed cells.

    Parameters
    ----------
    observed : ndarray of shape (n, m)
        1 where a cell is observed, and 0 where it is missing.
    triangles : ndarray of shape (m, K (K + 1) / 2)
        Those of symmetric matrices without negative eigenvalues.
    """
    size = triangles.shape[1]
    if size < _MANY_ENTRIES or observed.mean() < 1.0 - _FEW_MISSING:
        return np.asarray(observed @ triangles)
    total = np.ones(len(triangles)) @ triangles
    n, m = observed.shape
    places = np.flatnonzero(np.ascontiguousarray(observed == 0.0))
    ends, sums = np.searchsorted(places, m * np.arange(n + 1)), np.empty((n, size))
    # Triangles may be the first columns of a wider table.
    if triangles.strides[1] != triangles.itemsize:
        triangles = np.ascontiguousarray(triangles)
    width = triangles.strides[0] // triangles.itemsize
    flat = as_strided(triangles, ((m - 1) * width + size,), (triangles.itemsize,), writeable=False)
    compiled("spike_slab").subtract_missing(flat, width, total, places % m, ends, sums)
    own = diagonal(int(np.sqrt(2 * size)))
    if (sums[:, own] < _LEAST_LEFT * total[own]).any():
        return np.asarray(observed @ triangles)
    return sums


def column_sums(observed: np.ndarray, triangles: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weighted sums of triangles of rows over the observed cells of each column.

    ``weights`` has one of each row, or the one that all of them have.
    """
    if len(weights) == 1:
        return weights[0] * observed_sums(observed.T, triangles)
    return observed_sums(observed.T, triangles * weights[:, None])


def packed(matrices: np.ndarray) -> np.ndarray:
    """Return the lower triangles of symmetric matrices (..., K, K)."""
    k = matrices.shape[-1]
    lower = np.empty((*matrices.shape[:-2], k * (k + 1) // 2))
    for i in range(k):
        begin = i * (i + 1) // 2
        lower[..., begin : begin + i + 1] = matrices[..., i, : i + 1]
    return lower


def symmetric(lower: np.ndarray, k: int) -> np.ndarray:
    """Return symmetric matrices (..., K, K) given their lower triangles."""
    matrices = np.empty((*lower.shape[:-1], k, k))
    for i in range(k):
        begin = i * (i + 1) // 2
        row = lower[..., begin : begin + i + 1]
        matrices[..., i, : i + 1] = row
        matrices[..., : i + 1, i] = row
    return matrices


def diagonal(k: int) -> np.ndarray:
    """Return the places of the diagonal in a lower triangle."""
    places = np.arange(k)
    return places * (places + 3) // 2


def multiplicity(k: int) -> np.ndarray:
    """Return how often each entry of a lower triangle is in the matrix: twice, or once."""
    often = np.full(k * (k + 1) // 2, 2.0)
    often[diagonal(k)] = 1.0
    return often
