"""Parameters λ of topics of which an update touches only the words of a batch.

A batch of documents contains few words, but the update λ ← (1 − ρ) λ + ρ (η + S) moves the
parameters of all of them. Those of words without statistics S move as they all do, so that three
numbers describe it, λ = a · stored + b · η + c · base. :class:`SparseColumns` is such S,
:class:`SparsePosterior` is η + S, and :class:`LazyColumns` is λ. ``families.posterior`` and
``families.mix`` call methods of S and of η + S. In every other operation the three act as the
arrays that they represent, so that code for arrays remains right.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from ...parallel.workers import SEQUENTIAL, Workers
from .._base import compiled

# Below this, the factor of the stored columns is about to underflow, and all are computed anew.
_SMALLEST_FACTOR = 1e-100
# The sum over all columns has one addend for each part of so many columns.
_COLUMNS = 128
# A task that shares such work has at least so many entries, which take about a tenth of a
# millisecond. With fewer, another thread would take longer to begin than it saves.
_ENTRIES_OF_TASK = 2**17
# A part of work that threads share without the interpreter has at least so many, which take about
# ten microseconds.
_ENTRIES_OF_KERNEL = 2**14

kernels = partial(compiled, "lazy_columns")


class _Represented(NDArrayOperatorsMixin):
    """A matrix that is computed when an operation needs all of it."""

    shape: tuple[int, int]
    ndim = 2
    dtype = np.dtype(np.float64)

    def whole(self) -> np.ndarray:
        """Return the matrix, whose columns are contiguous in memory."""
        raise NotImplementedError

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self.whole() if dtype is None else self.whole().astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [x.whole() if isinstance(x, _Represented) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return self.whole()[index]

    @property
    def T(self) -> np.ndarray:
        """The transpose, an array."""
        return self.whole().T

    def sum(self, axis: int | None = None, **how: Any) -> Any:
        """Return the sum over an axis, or of all entries."""
        return self.whole().sum(axis=axis, **how)


class SparseColumns(_Represented):
    """Statistics that are 0 except in some columns.

    Parameters
    ----------
    columns : ndarray of int32, shape (n_given,)
        The numbers of these columns, in ascending order.
    table : ndarray of shape (n_given, n_rows or more)
        One row per column that is given. Entries beyond the first ``n_rows`` have no meaning.
    n_columns : int
        The number of all columns.
    n_rows : int or None, default=None
        None: every entry of the table counts.
    factor : float, default=1.0
        The statistics are the table times this factor.
    workers : Workers, default=SEQUENTIAL
        They share the work on parameters to which the statistics are added.
    """

    def __init__(
        self,
        columns: np.ndarray,
        table: np.ndarray,
        n_columns: int,
        n_rows: int | None = None,
        factor: float = 1.0,
        workers: Workers = SEQUENTIAL,
    ):
        self.columns = columns
        self.table = table
        self.factor = factor
        self.workers = workers
        self.shape = (table.shape[1] if n_rows is None else n_rows, n_columns)

    @property
    def values(self) -> np.ndarray:
        """The statistics of the columns that are given, of shape (n_given, n_rows)."""
        found = self.table[:, : self.shape[0]]
        return found if self.factor == 1.0 else self.factor * found

    def whole(self) -> np.ndarray:
        found = np.zeros(self.shape[::-1])
        found[self.columns] = self.values
        return found.T

    def head(self, n_rows: int) -> SparseColumns:
        """Return the first rows."""
        return self._with(self.table, n_rows, self.factor)

    def posterior(self, prior: np.ndarray, base: np.ndarray, share: float) -> SparsePosterior:
        """Return base + y (λ₀ − base) + S, for :func:`posterior`."""
        return SparsePosterior(prior, base, share, self)

    def _with(self, table: np.ndarray, n_rows: int | None, factor: float) -> SparseColumns:
        return SparseColumns(self.columns, table, self.shape[1], n_rows, factor, self.workers)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        factors = [x for x in inputs if not isinstance(x, _Represented)]
        if ufunc is np.multiply and method == "__call__" and [np.ndim(f) for f in factors] == [0]:
            return self._with(self.table, self.shape[0], self.factor * float(factors[0]))
        return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)


class SparsePosterior(_Represented):
    """The natural parameters λ̂ = base + y (λ₀ − base) + S of a posterior with sparse statistics.

    Parameters
    ----------
    prior, base : ndarray, broadcastable to the shape of S
    share : float
        y, 1 unless the prior is tempered.
    stats : SparseColumns
    """

    def __init__(self, prior: np.ndarray, base: np.ndarray, share: float, stats: SparseColumns):
        self.prior = prior
        self.base = base
        self.share = share
        self.stats = stats
        self.shape = stats.shape

    def whole(self) -> np.ndarray:
        tempered = self.prior
        if self.share != 1.0:
            tempered = self.base + self.share * (self.prior - self.base)
        return np.asarray(tempered + self.stats.whole())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        first, other = inputs[0], inputs[-1]
        if (
            ufunc in (np.add, np.subtract)
            and first is self
            and isinstance(other, SparseColumns)
            and other.columns is self.stats.columns
        ):
            stats = other._with(ufunc(self.stats.values, other.values), None, 1.0)
            return SparsePosterior(self.prior, self.base, self.share, stats)
        return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def mixed_into(self, start: Any, rho: float) -> Any:
        """Return (1 − ρ) ``start`` + ρ λ̂, for :func:`mix`.

        It costs as much as the columns that S has.

        ``start`` must not be used any more if it is of class :class:`LazyColumns`, because its
        memory is used for the result.
        """
        if rho == 1.0:
            return self.whole()
        if not isinstance(start, LazyColumns) or start.prior is not self.prior:
            start = LazyColumns(np.asarray(start), self.prior, self.base, self.stats.workers)
        return start.moved(self, rho)


class LazyColumns(_Represented):
    """Natural parameters λ = a · stored + b · λ₀ + c · base, of which few columns are touched.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        λ; it is copied.
    prior, base : ndarray, broadcastable to the shape of λ
    workers : Workers, default=SEQUENTIAL
        They share the work on the columns.
    """

    def __init__(
        self,
        values: np.ndarray,
        prior: np.ndarray,
        base: np.ndarray,
        workers: Workers = SEQUENTIAL,
    ):
        self.shape = values.shape
        self.prior = prior
        self._workers = workers
        self._stored = np.empty(values.shape[::-1])
        sums = np.empty((-(-values.shape[1] // _COLUMNS), values.shape[0]))

        def copy(parts: slice) -> None:
            for i in range(parts.start, parts.stop):
                part = slice(_COLUMNS * i, _COLUMNS * (i + 1))
                self._stored[part] = values.T[part]
                self._stored[part].sum(axis=0, out=sums[i])

        workers.share(copy, len(sums), _parts_of_task(values.shape[0]))
        self._stored_sums = sums.sum(axis=0)
        self._factor = 1.0
        of_all = (max(1, prior.shape[0]), values.shape[1])
        self._others = [(0.0, np.broadcast_to(array, of_all)) for array in (prior, base)]
        self._sums = [array.sum(axis=1) for _, array in self._others]

    def _buffer(self) -> np.ndarray:
        if self._stored is None:
            raise RuntimeError("these parameters have been updated; only the result is valid")
        return self._stored

    def whole(self) -> np.ndarray:
        stored = self._buffer()
        found = np.empty_like(stored)

        def compute(columns: slice) -> None:
            np.multiply(stored[columns], self._factor, out=found[columns])
            for weight, array in self._others:
                if weight:
                    found[columns] += weight * array.T[columns]

        self._workers.share(compute, len(stored), _COLUMNS * _parts_of_task(self.shape[0]))
        return found.T

    def in_place(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Return ``stored``, ``rows``, ``factor`` and ``offsets``, from which columns are read.

        Row k of the column ``columns[i]`` is ``factor * stored[rows[i], k] + offsets[i]``, until
        the next update.
        """
        if any(weight and len(array) > 1 for weight, array in self._others):
            rows = np.arange(len(columns), dtype=np.int32)
            return self.take(columns), rows, 1.0, np.zeros(len(columns))
        return self._buffer(), columns, self._factor, self._offsets(columns)

    def take(self, columns: np.ndarray) -> np.ndarray:
        """Return some columns, as an array of shape (n_taken, n_rows)."""
        columns = np.ascontiguousarray(columns, dtype=np.int32)
        out = np.empty((len(columns), self.shape[0]))
        kernels().take_columns(out, self._buffer(), columns, self._factor, self._offsets(columns))
        for weight, array in self._others:
            if weight and len(array) > 1:
                out += weight * array[:, columns].T
        return out

    def _offsets(self, columns: np.ndarray) -> np.ndarray:
        """Return the term of a prior that is the same for all rows in each column."""
        offsets = np.zeros(len(columns))
        for weight, array in self._others:
            if weight and len(array) == 1:
                offsets += weight * array[0, columns]
        return offsets

    def sums(self) -> np.ndarray:
        """Return Σ λ over all columns, of shape (n_rows,).

        It is not summed anew, but kept from update to update.
        """
        self._buffer()
        found = self._factor * self._stored_sums
        for (weight, _), total in zip(self._others, self._sums, strict=True):
            found = found + weight * total
        return found

    def moved(self, target: SparsePosterior, rho: float) -> LazyColumns:
        """Return (1 − ρ) λ + ρ λ̂; this object must not be used any more."""
        new = self
        if (1.0 - rho) * self._factor < _SMALLEST_FACTOR:
            new = LazyColumns(self.whole(), self.prior, self._others[1][1], self._workers)
        result = object.__new__(LazyColumns)
        result.shape, result.prior = new.shape, new.prior
        result._workers = target.stats.workers
        result._stored, result._sums = new._buffer(), new._sums
        result._factor = (1.0 - rho) * new._factor
        shares = (target.share, 1.0 - target.share)
        result._others = [
            ((1.0 - rho) * weight + rho * share, array)
            for share, (weight, array) in zip(shares, new._others, strict=True)
        ]
        stats = target.stats
        table = np.ascontiguousarray(stats.table, dtype=np.float64)
        factor = rho / result._factor * stats.factor
        added = np.zeros((-(-len(stats.columns) // _COLUMNS), self.shape[0]))
        stats.workers.share_kernel(
            kernels().add_to_columns,
            (result._stored, table, stats.columns, factor, _COLUMNS, added),
            len(added),
            max(1, _ENTRIES_OF_KERNEL // (_COLUMNS * self.shape[0])),
        )
        result._stored_sums = new._stored_sums + added.sum(axis=0)
        self._stored = new._stored = None  # type: ignore[assignment]
        return result


def _parts_of_task(n_rows: int) -> int:
    """Return the smallest number of parts of columns that a task has."""
    return max(1, _ENTRIES_OF_TASK // (_COLUMNS * n_rows))
