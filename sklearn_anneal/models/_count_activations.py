"""Activations of rows at given components, with the activations themselves integrated out.

Each unit of a count is assigned to a component given all other counts of its row, whose expected
numbers n_k by component stand in the place of h_k (CVB0; Asuncion, Welling, Smyth and Teh 2009, On
smoothing and inference for topic models),

    φ_vk ∝ (n_k − φ_vk + b) E θ_k E w_kv / r_k,    n_k = Σ_v x_v φ_vk,    E h_k = (b + n_k) / r_k,

with the rate r_k = b + E θ_k Σ_v E w_kv of h_k, a sum over the observed cells of the row. Its fixed
points are those of :mod:`.topics.collapsed` with b in the place of α. It predicts better than q(h)
does, whose exp E log h_k leaves too little to components with few counts of a row. All counts of a
row are updated at once, with momentum (Nesterov, 1983), which comes nearer to a fixed point than
updates of one count after another, in a half to a quarter of their time.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ..data.units import DenseCounts, SparseCounts
from ..kernels.plain.counts import Entries
from ._base import compiled

# Tables are padded to a multiple of this many components.
_LANES = 8
# Each count has a row of the table where cells are missing, of so many numbers at a time.
_NUMBERS = 1 << 20
# A prior of fewer counts than this would vanish beside the number that kernels add to normalisers.
_SMALLEST_PRIOR = 1e-200
# Plain kernels take rows with at most so many products of a count and a component, if all were as
# long as the longest.
_MOST_PRODUCTS = 2**13


def are_few(units: DenseCounts | SparseCounts, n_components: int) -> bool:
    """Return whether plain kernels take the rows, so that none has to be compiled."""
    longest = int(units.n_filled.max(initial=0))
    return units.n_units * longest * n_components <= _MOST_PRODUCTS


def collapsed_means(
    counts: csr_array,
    observed: np.ndarray | None,
    parts: np.ndarray,
    b: float,
    how: tuple[int, float],
    plain: bool,
) -> np.ndarray:
    """Return E h of rows, of shape (n_rows, n_components).

    Parameters
    ----------
    counts : csr_array of shape (n_rows, n_columns)
        Positive counts.
    observed : ndarray of bool, shape (n_rows, n_columns), or None
        Which cells are not missing; None if no cell is.
    parts : ndarray of shape (n_columns, n_components)
        E θ_k E w_kv.
    b : float
        The shape and the rate of the prior of activations.
    how : tuple of (int, float)
        The largest number of iterations, and the mean change of n_k at which they end.
    plain : bool
        Whether plain kernels work on the rows.
    """
    n_rows, k = counts.shape[0], parts.shape[1]
    exposures = parts.sum(axis=0)[None]
    if observed is not None:
        # Products depend on the layout of their factors, in the last digits.
        exposures = np.ascontiguousarray(observed, dtype=np.float64) @ parts
    rates, prior = b + exposures, max(b, _SMALLEST_PRIOR)
    indptr = counts.indptr.astype(np.int64)
    if observed is None:
        columns = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]))
        places = np.empty(counts.shape[1], np.int32)
        places[columns] = np.arange(len(columns))
        table = _largest_is_one(parts[columns] / rates)
        of_counts = places[counts.indices]
        return _assigned(counts.data, of_counts, indptr, table, k, prior, how, plain) / rates
    means = np.empty((n_rows, k))
    size = max(1, _NUMBERS // parts.size)
    for start in range(0, n_rows, size):
        block = slice(start, start + size)
        own = indptr[start : start + size + 1]
        stored, own = slice(own[0], own[-1]), own - own[0]
        of_counts = np.repeat(rates[block], np.diff(own), axis=0)
        table = _largest_is_one(parts[counts.indices[stored]] / of_counts)
        places = np.arange(len(table))
        found = _assigned(counts.data[stored], places, own, table, k, prior, how, plain)
        means[block] = found / rates[block]
    return means


def _assigned(
    counts: np.ndarray,
    places: np.ndarray,
    indptr: np.ndarray,
    table: np.ndarray,
    k: int,
    prior: float,
    how: tuple[int, float],
    plain: bool,
) -> np.ndarray:
    """Return b + n of rows, each of whose counts has a row of the table at its place."""
    kernels = compiled("gamma_process_nmf", plain)
    if plain:
        entries = Entries.of(counts, places, indptr, table[:, :k])
        return np.asarray(kernels.collapsed(entries, prior, *how))
    shapes = np.empty((len(indptr) - 1, k))
    kernels.collapsed(counts, places.astype(np.int32), indptr, table, prior, *how, shapes)
    return shapes


def _largest_is_one(parts: np.ndarray) -> np.ndarray:
    """Return rows divided by their largest numbers, padded with zeros."""
    n, k = parts.shape
    table = np.zeros((n, -(-k // _LANES) * _LANES))
    largest = parts.max(axis=1, initial=0.0, keepdims=True)
    np.divide(parts, largest, out=table[:, :k], where=largest > 0)
    return table
