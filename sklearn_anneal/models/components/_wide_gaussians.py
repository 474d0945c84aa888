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
from ...families.wishart import Roots
from ...parallel import kept_memory
from .._base import LOG_2PI
from ._features import Block, Features, FeatureSums

# Number of entries of the rows that are centered at a time, and the least number of these rows for
# each column. With fewer, products would take less time than copies of the matrices.
_ENTRIES, _ROWS = 1 << 19, 2
# Shares below this multiple of the largest one change no digit of the sums over rows.
NO_SHARE = 1e-30
# The share of a component is below exp(−80) where its log density is by so many nats below another.
_GAP = 80.0
# Copies of some rows take as long as products with fewer columns.
_COLUMNS_OF_BOUNDS = 400
# Products of matrices are faster than the kernels if D² is at least so many times the number of
# matrices G: with 10 components from 90 columns on, and with 40 from 180.
SQUARE_PER_MATRIX = 800


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


def has_bounds(features: Features) -> bool:
    """Return whether a few entries of G (x − m) bound the densities of several components.

    The factors of few rows are no triangular matrices.
    """
    k, d = features.terms.mean.shape
    large = k > 1 and d >= _COLUMNS_OF_BOUNDS
    return large and features.layout == "full" and isinstance(features.roots, Roots)


def log_joint_or_bound(x: np.ndarray, features: Features) -> np.ndarray:
    """Return :func:`log_joint`, or a number above it where this is enough, (n_rows, K).

    The first entries of G (x − m) depend on the first columns alone, because G is lower triangular,
    and their squares add up to less than the squared distance. A quarter of them takes a sixteenth
    of the operations. Where the bound is by ``_GAP`` below the density of another component, the
    share of this one changes no digit of any sum.
    """
    (n, d), (mean, constant, _), roots = x.shape, features.terms, features.roots
    first = d // 4
    found, part = np.empty((len(mean), n)), np.ascontiguousarray(x[:, :first])
    some, product = kept_memory.empty(part.shape), kept_memory.empty(x.shape)
    for k in range(len(mean)):
        np.subtract(part, mean[k, :first], out=some)
        found[k] = roots.distances(k, some)
    constant = constant[:, None] - 0.5 * d * LOG_2PI
    found *= -0.5
    found += constant

    def complete(k: int, index: np.ndarray) -> None:
        if len(index) == n:
            np.subtract(x, mean[k], out=product)
            found[k] = constant[k] - 0.5 * roots.distances(k, product)
        elif len(index):
            rows = np.take(x, index, axis=0, out=product[: len(index)], mode="clip")
            rows -= mean[k]
            found[k, index] = constant[k] - 0.5 * roots.distances(k, rows)

    best = found.argmax(axis=0)
    for k in range(len(mean)):
        complete(k, np.flatnonzero(best == k))
    least = found[best, np.arange(n)] - _GAP
    for k in range(len(mean)):
        complete(k, np.flatnonzero((best != k) & (found[k] > least)))
    return found.T


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
