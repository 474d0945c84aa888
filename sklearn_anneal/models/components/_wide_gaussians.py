"""Densities and statistics of Gaussians with a covariance of many columns, as matrix products.

The log density of a component is xᵀ Q x + bᵀ x + c, and its statistics are Σ r x xᵀ, Σ r x and Σ r.
With few columns, kernels compute the products x_i x_j of a row once for all components, and a
component costs one product of matrices more (``kernels/gaussian_mixture.py``). With many columns
these products leave the cache before they are used again. Here every component has two products of
matrices of its own, X Q and Xᵀ diag(r) X, which reuse each number as often as there are columns or
rows. Q is upper triangular and the second product is symmetric, so that half of each is left out,
in blocks of columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data.units import Rows
from ._features import Features, FeatureSums

# Number of columns of a block.
_COLUMNS = 96
# Number of entries of the rows that are centered at a time.
_ENTRIES = 1 << 19
# Products of matrices are faster than the kernels if D² is at least so many times the number of
# matrices Q: with 10 components from 90 columns on, and with 40 from 180.
SQUARE_PER_MATRIX = 800


def parts(rows: Rows) -> Iterator[slice]:
    """Yield slices of rows that are small enough to be copied."""
    size = max(_ENTRIES // rows.X.shape[1], 1)
    for start in range(0, rows.n_units, size):
        yield slice(start, start + size)


def centered(rows: Rows, part: slice) -> np.ndarray:
    """Return the rows of a slice relative to the center, in float64."""
    return np.subtract(rows.X[part], rows.center, dtype=np.float64)


def _blocks(n: int) -> Iterator[slice]:
    """Yield the blocks of n columns, which are about equally wide."""
    edges = np.linspace(0, n, -(-n // _COLUMNS) + 1).astype(int)
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        yield slice(start, stop)


def log_joint(
    x: np.ndarray, features: Features, upper: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return xᵀ Q x + bᵀ x + c of rows for each component, (n_rows, n_components).

    Parameters
    ----------
    x : ndarray of float64, shape (n_rows, n_features)
        Rows relative to the center.
    features : Features
        The coefficients; those of the products of columns are the upper triangles of Q.
    upper : tuple of ndarray
        The positions of the upper triangle of a matrix, row by row.
    """
    d = x.shape[1]
    quadratic = features.shared if features.layout == "tied" else features.own[:, : -d - 1]
    found = np.empty((len(quadratic), len(x)))
    matrix = np.zeros((d, d))
    for k, packed in enumerate(quadratic):
        matrix[upper] = packed
        found[k] = sum(
            np.einsum("nd,nd->n", x[:, : part.stop] @ matrix[: part.stop, part], x[:, part])
            for part in _blocks(d)
        )
    return x @ features.own[:, -d - 1 : -1].T + (found.T + features.own[:, -1])


def add(
    x: np.ndarray,
    shares: np.ndarray,
    raw: FeatureSums,
    upper: tuple[np.ndarray, np.ndarray],
) -> None:
    """Add Σ r x xᵀ, Σ r x and Σ r of rows to raw statistics, given their ``shares`` r."""
    d = x.shape[1]
    own, tied = raw.own, raw.layout == "tied"
    own[:, -d - 1 : -1] += shares.T @ x
    own[:, -1] += shares.sum(axis=0)
    second, weighted = np.empty((d, d)), np.empty_like(x)
    columns = shares.sum(axis=1, keepdims=True) if tied else shares
    for k, r in enumerate(columns.T):
        np.multiply(x, r[:, None], out=weighted)
        for part in _blocks(d):
            np.matmul(x[:, part].T, weighted[:, part.start :], out=second[part, part.start :])
        target = raw.shared[0] if tied else own[k, : -d - 1]
        target += second[upper]
