"""Rows of matrices of counts, sparse and dense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from ._base import Units, joined_arrays
from ._documents import Documents
from ._rows import CELLS_AT_A_TIME, Rows

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Number of chunks → smallest number of entries of sparse counts that are divided into as many.
# Chunks have at least so many entries per column, of which each needs statistics.
_SPARSE_COUNT_CHUNKS = {2: 65_536, 4: 131_072, 8: 2_097_152}
_ENTRIES_PER_COLUMN = 12
# Dense counts are cut into at most so many chunks, of at least as many rows and about as many
# cells. Every chunk needs an array of statistics as large as all components.
_COUNT_CHUNKS = 8
_SMALLEST_COUNT_CHUNK, _CELLS_OF_CHUNK = 32, 1 << 16
_LOG_FACTORIALS = gammaln(np.arange(1.0, 257.0))


class SparseCounts(Documents):
    """Rows of a sparse matrix of counts, in which a zero was observed like any other count.

    Parameters
    ----------
    counts, words, indptr, weights
        As in :class:`Documents`.
    log_factorials : ndarray of shape (n_units,) or None, default=None
        Σ_v log x_nv! of each row; None computes it.
    """

    _parts = _SPARSE_COUNT_CHUNKS
    patterns = None
    caches = ("_sorted", "_place")

    def __init__(
        self,
        counts: np.ndarray,
        words: np.ndarray,
        indptr: np.ndarray,
        weights: np.ndarray | None = None,
        log_factorials: np.ndarray | None = None,
    ):
        super().__init__(counts, words, indptr, weights)
        if log_factorials is None:
            log_factorials = np.zeros(self.n_units)
            filled = np.flatnonzero(np.diff(indptr))
            if len(filled):
                terms = _log_factorial(counts[: indptr[-1]])
                log_factorials[filled] = np.add.reduceat(terms, indptr[:-1][filled])
        self.log_factorials = log_factorials
        self._sorted: dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._place: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_sorted": {}, "_place": None}

    @cached_property
    def _most_chunks(self) -> int:
        n_entries = int(self.indptr[-1])
        n_columns = int(self.words[:n_entries].max(initial=0)) + 1
        return max(1, min(super()._most_chunks, n_entries // (_ENTRIES_PER_COLUMN * n_columns)))

    @property
    def is_empty(self) -> bool:
        return self.total_weight == 0

    @property
    def n_filled(self) -> np.ndarray:
        """The number of cells of each row with a count above zero, of shape (n_units,)."""
        filled = np.concatenate([[0], np.cumsum(self.counts[: self.indptr[-1]] > 0)])
        return np.asarray(np.diff(filled[self.indptr]))

    def take(self, index: np.ndarray | slice) -> SparseCounts:
        weights = None if self.weights is None else self.weights[index]
        indptr, part = self._cut(index)
        taken = SparseCounts(
            self.counts[part], self.words[part], indptr, weights, self.log_factorials[index]
        )
        if isinstance(index, slice) and self._place is None:
            # Every pass takes the same chunks, which are therefore sorted once.
            taken._sorted, taken._place = self._sorted, (index.start, index.stop)
        return taken

    def batch(self, index: np.ndarray | slice) -> SparseCounts:
        # No model of these rows needs to find out which columns they have.
        return self if isinstance(index, slice) else self.take(index)

    def by_column(
        self, n_columns: int, dtype: DTypeLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return counts and their rows, column by column, and where each column begins."""
        key = (self._place, n_columns, np.dtype(dtype))
        if key not in self._sorted:
            stop, shape = self.indptr[-1], (self.n_units, n_columns)
            arrays = (self.counts[:stop], self.words[:stop], self.indptr)
            columns = csr_array(arrays, shape=shape).tocsc()
            self._sorted[key] = (
                columns.data.astype(dtype, copy=False),
                columns.indices.astype(np.int32, copy=False),
                columns.indptr.astype(np.int64),
            )
        return self._sorted[key]

    def dense(self, n_columns: int) -> np.ndarray:
        """Return the rows as a dense float64 array."""
        stop = self.indptr[-1]
        arrays = (self.counts[:stop].astype(np.float64), self.words[:stop], self.indptr)
        return csr_array(arrays, shape=(self.n_units, n_columns)).toarray()

    @classmethod
    def joined(  # type: ignore[override]
        cls, parts: Sequence[SparseCounts | DenseCounts]
    ) -> SparseCounts | DenseCounts:
        """Return the rows of several objects, one after another, as copies.

        They are dense if some of them are.
        """
        sparse = [part for part in parts if isinstance(part, SparseCounts)]
        return super().joined(sparse) if len(sparse) == len(parts) else DenseCounts.joined(parts)

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        return Units.subset(self, size, random_state)


class DenseCounts(Rows):
    """Rows of a dense array of counts, in which NaN is a missing cell.

    Parameters
    ----------
    X, weights, patterns
        As in :class:`Rows`.
    sums : ndarray of shape (2, n_units) or None, default=None
        Σ_v x_nv and Σ_v log x_nv! over the observed cells of each row; None computes them.
    """

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        patterns: np.ndarray | None = None,
        sums: np.ndarray | None = None,
    ):
        super().__init__(X, weights, None, patterns)
        if sums is None:
            sums = np.empty((2, len(X)))
            size = max(CELLS_AT_A_TIME // max(X.shape[1], 1), 1)
            for start in range(0, len(X), size):
                part = np.nan_to_num(X[start : start + size], nan=0.0)
                rows = slice(start, start + len(part))
                sums[0, rows] = part.sum(axis=1, dtype=np.float64)
                sums[1, rows] = _log_factorial(part).sum(axis=1)
        self.sums = sums

    @property
    def lengths(self) -> np.ndarray:
        """Σ_v x_nv of each row, of shape (n_units,)."""
        return self.sums[0]

    @cached_property
    def whole_lengths(self) -> np.ndarray:
        """Σ_v ⌈x_nv⌉ of each row, of shape (n_units,)."""
        return self._sums_of_rows(np.ceil)

    @property
    def n_filled(self) -> np.ndarray:
        """The number of cells of each row with a count above zero, of shape (n_units,)."""
        # NaN, a missing cell, is not above zero.
        return self._sums_of_rows(lambda X: X > 0)

    def _sums_of_rows(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Σ_v of a function of the observed cells of each row."""
        sums, size = np.zeros(self.n_units), max(CELLS_AT_A_TIME // max(self.X.shape[1], 1), 1)
        for start in range(0, self.n_units, size):
            values = function(self.X[start : start + size])
            sums[start : start + size] = np.nansum(values, axis=1, dtype=np.float64)
        return sums

    @property
    def log_factorials(self) -> np.ndarray:
        """Σ_v log x_nv! of each row, of shape (n_units,)."""
        return self.sums[1]

    @cached_property
    def n_observations(self) -> float:  # type: ignore[override]
        """Weighted sum of all counts."""
        return self._weighted_sum(self.lengths)

    @property
    def is_empty(self) -> bool:
        return self.total_weight == 0

    def take(self, index: np.ndarray | slice) -> DenseCounts:
        if isinstance(index, slice) and index == slice(0, self.n_units):
            return self
        weights = None if self.weights is None else self.weights[index]
        patterns = None if self.patterns is None else self.patterns[index]
        return DenseCounts(self.X[index], weights, patterns, self.sums[:, index])

    @classmethod
    def joined(  # type: ignore[override]
        cls, parts: Sequence[SparseCounts | DenseCounts]
    ) -> DenseCounts:
        """Return the rows of several objects, one after another, as copies, and as dense ones."""
        numbers = [part.n_units for part in parts]
        n_columns = next(part.X.shape[1] for part in parts if isinstance(part, DenseCounts))
        patterns = [part.patterns for part in parts]
        sums = [np.stack([part.lengths, part.log_factorials]) for part in parts]
        return cls(
            np.concatenate(
                [
                    part.X if isinstance(part, DenseCounts) else part.dense(n_columns)
                    for part in parts
                ]
            ),
            joined_arrays([part.weights for part in parts], numbers, 1.0),
            joined_arrays(patterns, numbers, np.uint64(0)),
            np.concatenate(sums, axis=1),
        )

    def dense(self, n_columns: int) -> np.ndarray:
        """Return the rows as a dense float64 array."""
        return np.ascontiguousarray(self.X, dtype=np.float64)

    def centered(self, summary: object) -> DenseCounts:
        return self

    def chunks(self) -> list[slice]:
        n, n_columns = self.X.shape
        least = max(_SMALLEST_COUNT_CHUNK, _CELLS_OF_CHUNK // max(n_columns, 1))
        size = max(least, -(-n // _COUNT_CHUNKS))
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _log_factorial(counts: np.ndarray) -> np.ndarray:
    """log x! = log Γ(x + 1), quickly where most numbers are small whole ones."""
    result = np.zeros(counts.shape)
    small = (counts < len(_LOG_FACTORIALS)) & (counts == np.floor(counts))
    result[small] = _LOG_FACTORIALS[counts[small].astype(np.intp)]
    others = ~small
    if others.any():
        result[others] = gammaln(counts[others].astype(np.float64) + 1.0)
    return result
