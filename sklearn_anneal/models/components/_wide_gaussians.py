"""Densities and statistics of Gaussians with a covariance of many columns, as matrix products.

The log density of a component is c − ½ |G (x − m)|². Its statistics are Σ r x xᵀ, Σ r x and Σ r.
With few columns, kernels compute the products x_i x_j of a row once for all components, and a
component costs one product of matrices more (``kernels/gaussian_mixture.py``). With many columns
these products leave the cache before they are used again. Here every component has two products of
matrices of its own, X Gᵀ and Xᵀ diag(r) X, which reuse each number as often as there are columns or
rows. G is lower triangular and the second product is symmetric, so that BLAS has routines that take
half the time for each. Rows count in the second one only where their shares r do not vanish, and
with many columns most rows have one component.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg.blas import dsyrk

from ...data.units import Rows
from ...families._structure import Triangle
from ...families.normal_wishart import MOST_COLUMNS
from ...parallel import kept_memory
from .._base import LOG_2PI
from ._features import Block, Features, FeatureSums

# Number of entries of the rows that are centered at a time, and the least number of these rows for
# each column. With fewer, products would take less time than copies of the matrices.
_ENTRIES, _ROWS = 1 << 19, 2
# Shares below this multiple of the largest one change no digit of the sums over rows.
NO_SHARE = 1e-30
# Products of matrices are faster than the kernels if D² is at least so many times the number of
# matrices G: up to 64 columns, for which all steps of a pass have kernels, and with more of them.
_SQUARE_PER_MATRIX, _SQUARE_OF_MANY_COLUMNS = 800, 300
# Kernels add products of columns once for all components of equal factors (tied), and are faster
# there up to 56 columns, as if there were so many matrices.
MATRICES_OF_TIED = 4


def takes(n_features: int, n_matrices: int) -> bool:
    """Return whether products of matrices are faster than the kernels."""
    few = n_features <= MOST_COLUMNS
    least = _SQUARE_PER_MATRIX if few else _SQUARE_OF_MANY_COLUMNS
    return n_features**2 >= least * n_matrices


def parts(rows: Rows) -> Iterator[slice]:
    """Yield slices of rows that are small enough to be copied."""
    d = rows.X.shape[1]
    size = max(_ENTRIES // d, _ROWS * d)
    for start in range(0, rows.n_units, size):
        yield slice(start, start + size)


def centered(rows: Rows, part: slice) -> np.ndarray:
    """Return the rows of a slice relative to the center, in float64."""
    x = rows.X[part]
    return np.subtract(x, rows.center, out=kept_memory.empty(x.shape), dtype=np.float64)


def log_joint(x: np.ndarray, features: Features) -> np.ndarray:
    """Return c − D/2 log 2π − ½ (x − m)ᵀ Λ (x − m) of rows for each component, (n_rows, K).

    Parameters
    ----------
    x : ndarray of float64, shape (n_rows, n_features)
        Rows relative to the center.
    features : Features
        The means m, the constants c and the factors of the precision matrices Λ.
    """
    d, (mean, constant, _), roots = x.shape[1], features.terms, features.roots
    found, product = np.empty((len(mean), len(x))), kept_memory.empty(x.shape)
    if features.layout == "tied":
        shared = roots._replace(matrices=roots.matrices.reshape(1, d, d))
        product[:] = x
        shared.turn(0, product)
        turned = mean @ shared.matrices[0].T
        found[:] = np.einsum("nd,nd->n", product, product)
        found += (turned**2).sum(axis=1)[:, None] - 2.0 * (turned @ product.T)
        found *= shared.factors
    else:
        for k in range(len(mean)):
            np.subtract(x, mean[k], out=product)
            found[k] = roots.distances(k, product)
    return (constant - 0.5 * d * LOG_2PI) - 0.5 * found.T


def add(x: np.ndarray, shares: np.ndarray, raw: FeatureSums, upper: Triangle) -> None:
    """Add Σ r x xᵀ, Σ r x and Σ r of rows to raw statistics, given their ``shares`` r."""
    d = x.shape[1]
    own, tied = raw.own, raw.layout == "tied"
    own[:, -d - 1 : -1] += shares.T @ x
    own[:, -1] += shares.sum(axis=0)
    columns = shares.sum(axis=1, keepdims=True) if tied else shares
    copies = kept_memory.empty(x.shape)
    for k, r in enumerate(columns.T):
        target = raw.shared[0] if tied else own[k, : -d - 1]
        least = NO_SHARE * np.abs(r).max()
        # Factors of an annealing method can make shares negative.
        for sign in (1.0, -1.0) if r.min(initial=0.0) < 0.0 else (1.0,):
            some = np.flatnonzero(sign * r > least)
            if len(some):
                weighted = copies[: len(some)]
                chosen = x
                if len(some) < len(x):
                    # If places were checked, numpy would make another copy.
                    chosen = np.take(x, some, axis=0, out=weighted, mode="clip")
                root = np.sqrt(sign * r[some])
                np.multiply(chosen, root[:, None], out=weighted)
                # Its transpose has the upper triangle, in the order of C.
                products = dsyrk(sign, weighted.T, lower=True).T
                target += products.take(upper.entries)
                if raw.kept is not None and raw.kept[k] is not None:
                    raw.keep(k, Block(weighted, root) if sign > 0 else None)
