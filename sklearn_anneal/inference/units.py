"""Data sets of different kinds, with one interface to count, weigh and divide their data points.

The loop of inference knows data points only as *units*, which are rows, documents, sequences, or
users with their ratings.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln
from sklearn.utils.random import sample_without_replacement

from ..kernels import load

# Rows are divided into at most this many chunks. They have at least the given size, and consist
# of whole blocks of the kernels.
_CHUNKS = 16
_SMALLEST_CHUNK = 1024
_BLOCK = 256
# Smallest number of consecutive data points that are shuffled together for random batches.
_SHUFFLE_BLOCK = 65_536
# Number of chunks → smallest number of entries of documents that are divided into as many. Every
# chunk needs an array of statistics as large as the topics of all words that are met, so that there
# are few of them; but a minibatch of short documents should occupy two workers.
_DOCUMENT_CHUNKS = {2: 4_096, 4: 131_072, 8: 2_097_152}
# The same for sparse counts. Chunks have at least so many entries per column, of which each needs
# statistics.
_SPARSE_COUNT_CHUNKS = {2: 65_536, 4: 131_072, 8: 2_097_152}
_ENTRIES_PER_COLUMN = 12
# Number of chunks → smallest number of frames of sequences that are divided into as many.
_SEQUENCE_CHUNKS = {2: 4_096, 4: 16_384, 16: 65_536}
# Number of chunks → smallest number of ratings that are divided into as many.
_RATING_CHUNKS = {2: 8_192, 4: 32_768, 8: 524_288, 16: 4_194_304}
# From this many chunks on, the chunks of the last quarter are halved, to balance the workers.
_HALVED_FROM = 16
# Dense counts are cut into at most so many chunks, of at least as many rows and about as many
# cells. Every chunk needs an array of statistics as large as all components.
_COUNT_CHUNKS = 8
_SMALLEST_COUNT_CHUNK, _CELLS_OF_CHUNK = 32, 1 << 16
_LOG_FACTORIALS = gammaln(np.arange(1.0, 257.0))
# Number of entries of an array that are searched for missing cells at a time.
_CELLS_AT_A_TIME = 1 << 20


def cell_patterns(X: np.ndarray) -> np.ndarray | None:
    """Return a number for each row that says which of its cells are missing, that is NaN.

    The number is 0 where no cell is missing, and not 0 elsewhere. Rows in which the same cells are
    missing have the same number. Different numbers mean different cells, and so do equal numbers
    only with up to 64 columns.

    Returns
    -------
    patterns : ndarray of uint64, shape (n_rows,), or None
        None if no cell of ``X`` is missing, which takes no more than a sum to find out.
    """
    if X.ndim != 2 or X.dtype.kind != "f":
        return None
    n, d = X.shape
    size = max(_CELLS_AT_A_TIME // max(d, 1), 1)
    parts = [X[start : start + size] for start in range(0, n, size)]
    with np.errstate(over="ignore", invalid="ignore"):
        suspects = [bool(np.isnan(part.sum())) for part in parts]
    if not any(suspects):
        return None
    factors = np.random.default_rng(0).integers(1, 2**63, size=d // 64 + 1, dtype=np.uint64)
    factors = 2 * factors + np.uint64(1) if d > 64 else np.ones(1, dtype=np.uint64)
    patterns = np.zeros(n, dtype=np.uint64)
    for i, part in enumerate(parts):
        missing = np.isnan(part) if suspects[i] else None
        if missing is None or not missing.any():
            continue
        packed = np.packbits(missing, axis=1, bitorder="little")
        words = np.zeros((len(part), -(-d // 64) * 8), dtype=np.uint8)
        words[:, : packed.shape[1]] = packed
        codes = (words.view(np.uint64) * factors[: words.shape[1] // 8]).sum(axis=1)
        codes[missing.any(axis=1) & (codes == 0)] = 1
        patterns[i * size : i * size + len(part)] = codes
    return patterns if patterns.any() else None


class Units(ABC):
    """Data points that the loop can count, weigh and divide.

    Attributes
    ----------
    weights : ndarray of shape (n_units,) or None
        Sample weights; None if all of them are 1.
    """

    weights: np.ndarray | None
    in_parts = False
    """Whether the data points are not in the memory of this process."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Number of data points."""

    @property
    def _most_chunks(self) -> int:
        """Largest number of chunks."""
        return _CHUNKS

    @property
    def n_weight_units(self) -> int:
        """Number of weight units, each of which gets a random weight of its own.

        They are the data points, or smaller parts of the data, such as single ratings.
        """
        return self.n_units

    def weight_units(self, part: slice) -> slice:
        """Return the weight units that belong to the data points of a slice."""
        return part

    @property
    def n_observations(self) -> float:
        """Weighted number of observations (rows, tokens, frames, ratings).

        Tolerances are multiplied by it.
        """
        return self.total_weight

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be learned from the data points, so that updates leave them out."""
        return self.n_observations == 0

    @property
    def total_weight(self) -> float:
        """Σ w, the weighted number of data points."""
        return float(self.n_units) if self.weights is None else float(self.weights.sum())

    @abstractmethod
    def take(self, index: np.ndarray | slice) -> Units:
        """Return the data points of an index; they are copied unless the index is a slice."""

    def batch(self, index: np.ndarray | slice) -> Units:
        """Return the data points of an index of :meth:`batches`, ready for a visit."""
        return self if isinstance(index, slice) else self.take(index)

    def chunks(self) -> list[slice]:
        """Return contiguous parts for parallel work.

        They depend only on the number of units, and not on the number of workers, so that results
        do not depend on it either.
        """
        n = self.n_units
        # Chunks consist of whole blocks of the kernels; only the last one may end with a part.
        size = max(_SMALLEST_CHUNK, -(-n // (self._most_chunks * _BLOCK)) * _BLOCK)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray | slice]:
        """Yield indices of random batches, in which all data points occur once.

        The index is a slice if all data points are one batch.

        Blocks of consecutive data points are visited in random order, and the points of each
        block are shuffled, so that no permutation of all data points has to be in memory. The
        last batch has the points that are left, and can be smaller than the others.
        """
        n = self.n_units
        if size >= n:
            yield slice(None)
            return
        length = max(_SHUFFLE_BLOCK, 8 * size)
        left = np.empty(0, dtype=np.intp)
        for b in rng.permutation(-(-n // length)):
            block = np.arange(b * length, min((b + 1) * length, n))
            rng.shuffle(block)
            left = np.concatenate([left, block])
            stop = len(left) // size * size
            for start in range(0, stop, size):
                yield left[start : start + size]
            left = left[stop:]
        if len(left):
            yield left

    def swept(
        self, sweep: Any, rng: np.random.Generator, local: Any, workers: Any
    ) -> tuple[Any, Any]:
        """Return the local step of all data points, and the local variables that are kept.

        ``sweep`` is a :class:`~sklearn_anneal.inference.visits.Sweep`, and ``local`` what the last
        sweep over the same data points has returned.
        """
        return sweep.over(self, rng, local, workers)

    def in_turn(self, rng: np.random.Generator) -> Iterator[Callable[[Any, Any], Any]]:
        """Yield a function for each part of the data that minibatches are drawn from, in turn.

        The function takes an errand and workers, and returns ``errand.at(part, workers)``. Data in
        memory are one part.
        """
        yield lambda errand, workers: errand.at(self, workers)

    @property
    def example(self) -> Units:
        """Data points in memory that show how all are stored: all, or some of data in parts."""
        return self

    def summary(self, model: Any) -> Any:
        """Return the model's summary of all data points."""
        return model.summary(self)

    def total(self, function: Callable[[Units], float]) -> float:
        """Return the sum of a function over the parts of the data; those in memory are one part."""
        return function(self)

    def operations(self, model: Any) -> float:
        """Return the model's estimate of the floating-point operations of one local step."""
        return float(model.operations(self))

    def sample(self, size: int | None, random_state: np.random.RandomState) -> Units:
        """Return data points in memory from which starts are computed: all, or ``size``."""
        return self if size is None else self.subset(size, random_state)

    def together(self, n: int) -> tuple[Units, Any]:
        """Return these data for n restarts that visit them together, and what runs these restarts.

        Only data in parts offer it.
        """
        raise NotImplementedError

    def divided(self, share: float) -> tuple[Units, Units]:
        """Return a share of the data points, at random places, and all others."""
        order = np.random.RandomState(0).permutation(self.n_units)
        n = max(1, round(share * self.n_units))
        return self.take(np.sort(order[:n])), self.take(np.sort(order[n:]))

    def identity(self) -> Any:
        """Return values that differ for other data points, to be hashed."""
        given = {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(type(self), name, None), cached_property)
        }
        return type(self).__name__, sorted(given.items())

    def met(self, n_columns: int) -> np.ndarray:
        """Return the numbers of the columns with an entry, in ascending order.

        They are all columns, unless data points have entries for some columns only.
        """
        return np.arange(n_columns, dtype=np.int32)

    def marked(self) -> Units:
        """Return the same data points, which say of every cell whether it is missing.

        Data points without missing cells need not say it. But if they are a part of data with
        missing cells, they are treated as the others.
        """
        return self

    @abstractmethod
    def centered(self, summary: Any) -> Units:
        """Return the same data points, relative to the center that this summary has, if any."""

    def spread(self, size: int) -> Units:
        """Return at most ``size`` data points of positive weight, at equal distances."""
        return self._choose(size, lambda n: np.arange(size) * n // size)

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        """Return at most ``size`` random data points of positive weight, in their order."""

        def draw(n: int) -> np.ndarray:
            # Sorted numbers let a memory-mapped array be read from its beginning to its end.
            return np.sort(sample_without_replacement(n, size, random_state=random_state))

        return self._choose(size, draw)

    def _choose(self, size: int, choose: Callable[[int], np.ndarray]) -> Units:
        """Return ``size`` data points of positive weight; all data points if they are no more.

        ``choose(n)`` returns the positions of those to take among n data points.
        """
        if self.n_units <= size:
            return self
        if self.weights is None:
            return self.take(choose(self.n_units))
        positive = np.flatnonzero(self.weights)
        return self.take(positive if len(positive) <= size else positive[choose(len(positive))])


class Rows(Units):
    """Rows of a dense array, which models read relative to a center.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        float64 or float32; a memory-mapped array is never copied whole.
    weights : ndarray of shape (n_samples,) or None, default=None
    center : ndarray of shape (n_features,) or None, default=None
        A vector that models subtract from every row when they read it, so that sums of squares
        do not lose digits; None for zeros.
    patterns : ndarray of uint64, shape (n_samples,) or None, default=None
        The result of :func:`cell_patterns` for these rows, or for more rows of which these are a
        part; None if no cell is missing.
    """

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        center: np.ndarray | None = None,
        patterns: np.ndarray | None = None,
    ):
        self.X = X
        self.weights = weights
        self.patterns = patterns
        self.center = np.zeros(X.shape[1:]) if center is None else center

    @property
    def n_units(self) -> int:
        return self.X.shape[0]

    @property
    def _most_chunks(self) -> int:
        return getattr(self.X, "most_chunks", _CHUNKS)

    def take(self, index: np.ndarray | slice) -> Rows:
        weights = None if self.weights is None else self.weights[index]
        patterns = None if self.patterns is None else self.patterns[index]
        return Rows(self.X[index], weights, self.center, patterns)

    def centered(self, summary: Any) -> Rows:
        return Rows(self.X, self.weights, summary.center, self.patterns)

    def marked(self) -> Rows:
        if self.patterns is not None:
            return self
        marked = copy.copy(self)
        marked.patterns = np.zeros(self.n_units, dtype=np.uint64)
        vars(marked).pop("by_completeness", None)
        return marked

    def whole(self, index: np.ndarray | slice) -> Rows:
        """Return the rows of an index, in which no cell may be missing."""
        weights = None if self.weights is None else self.weights[index]
        return Rows(self.X[index], weights, self.center)

    @cached_property
    def by_completeness(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of the rows without missing cells, with some, and with nothing else.

        Rows with the same missing cells follow each other among those with some.
        """
        if self.patterns is None:
            return np.arange(self.n_units), np.empty(0, dtype=int), np.empty(0, dtype=int)
        affected = np.flatnonzero(self.patterns)
        blank = np.isnan(self.X[affected]).all(axis=1)
        some = affected[~blank]
        order = np.argsort(self.patterns[some], kind="stable")
        return np.flatnonzero(self.patterns == 0), some[order], affected[blank]

    def completed(self, dtype: Any = None) -> np.ndarray:
        """Return the rows with the column's mean in the place of missing cells.

        The mean of a column is the weighted one of its observed cells. The result is ``X`` itself
        if no cell is missing and the dtype is right, and a copy otherwise.
        """
        if self.patterns is None:
            return np.asarray(self.X, dtype=dtype)
        X = np.array(self.X, dtype=dtype)
        missing = np.isnan(X)
        X[missing] = 0.0
        weights = np.ones(len(X)) if self.weights is None else self.weights
        observed = np.maximum(weights @ ~missing, np.finfo(np.float64).tiny)
        means = weights @ X / observed
        return np.where(missing, means.astype(X.dtype), X)

    def contiguous(self) -> np.ndarray:
        """Return the rows as a C-contiguous array for kernels; they are copied if necessary."""
        return np.ascontiguousarray(self.X)


class Ragged(Units):
    """Data points with different numbers of entries, whose entries are joined in flat arrays.

    Attributes
    ----------
    indptr : ndarray of shape (n_units + 1,)
        The position at which each data point begins, and as the last entry the end.
    """

    indptr: np.ndarray
    _parts: ClassVar[dict[int, int]]

    @property
    def n_units(self) -> int:
        return len(self.indptr) - 1

    @property
    def _most_chunks(self) -> int:
        """Largest number of chunks, but for those that are halved."""
        n_entries = int(self.indptr[-1])
        return max((n for n, least in self._parts.items() if n_entries >= least), default=1)

    def chunks(self) -> list[slice]:
        """Return contiguous parts with about equal numbers of entries, for parallel work.

        They depend only on the data, and not on the number of workers, so that results do not
        depend on it either.
        """
        n, n_entries = self._most_chunks, int(self.indptr[-1])
        if n == 1:
            return [slice(0, self.n_units)]
        ends = np.arange(1, n + 1) * (n_entries / n)
        if n >= _HALVED_FROM:
            # Smaller parts at the end let all workers finish at about the same time.
            halves = ends[-(n // 4) :] - 0.5 * n_entries / n
            ends = np.sort(np.append(ends, halves))
        cuts = np.searchsorted(self.indptr, ends[:-1])
        edges = sorted({0, *cuts.tolist(), self.n_units})
        return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def _cut(self, index: np.ndarray | slice) -> tuple[np.ndarray, Any]:
        """Return the ``indptr`` of the data points of an index, and the index of their entries."""
        if isinstance(index, slice):
            first, last, _ = index.indices(self.n_units)
            indptr = self.indptr[first : max(first, last) + 1]
            return indptr - indptr[0], slice(indptr[0], indptr[-1])
        starts = self.indptr[:-1][index]
        sizes = self.indptr[1:][index] - starts
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        return indptr, np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes)


def _taken(entries: np.ndarray, starts: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Return the entries of data points that begin at the given positions, one after another."""
    # Entries are copied, whatever they mean, so that a kernel can take numbers of the same size.
    float_type: Any = {4: np.float32, 8: np.float64}.get(entries.itemsize)
    plain = entries.dtype.kind in "iuf" and entries.dtype.isnative and entries.flags.c_contiguous
    if float_type is None or not plain:
        positions = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], np.diff(indptr))
        return entries[positions]
    out = np.empty(indptr[-1], dtype=entries.dtype)
    load("ragged").take_entries(
        *(out.view(float_type), np.asarray(entries).view(float_type)),
        np.ascontiguousarray(starts, dtype=np.int64),
        indptr,
    )
    return out


class Documents(Ragged):
    """Documents as bags of words, which are the rows of a sparse matrix of counts.

    Parameters
    ----------
    counts : ndarray of shape (nnz,)
        The counts, of any real dtype. Each part of them is converted when a kernel reads it.
    words : ndarray of shape (nnz,)
        The number of the word, its column in the matrix, for each of the counts.
    indptr : ndarray of shape (n_documents + 1,)
        The position in ``counts`` and ``words`` at which each document begins.
    weights : ndarray of shape (n_documents,) or None, default=None
    """

    _parts = _DOCUMENT_CHUNKS

    def __init__(
        self,
        counts: np.ndarray,
        words: np.ndarray,
        indptr: np.ndarray,
        weights: np.ndarray | None = None,
    ):
        self.counts = counts
        self.words = words
        self.indptr = indptr
        self.weights = weights

    @cached_property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each document, of shape (n_documents,)."""
        lengths = np.zeros(self.n_units)
        filled = np.flatnonzero(np.diff(self.indptr))
        if len(filled):
            starts = self.indptr[:-1][filled]
            stop = self.indptr[-1]
            lengths[filled] = np.add.reduceat(self.counts[:stop], starts, dtype=np.float64)
        return lengths

    @cached_property
    def _n_tokens(self) -> float:
        lengths = self.lengths
        return float(lengths.sum() if self.weights is None else lengths @ self.weights)

    @property
    def n_observations(self) -> float:
        """Weighted number of tokens."""
        return self._n_tokens

    @property
    def is_empty(self) -> bool:
        if self.weights is None:
            return not self.counts[: self.indptr[-1]].any()
        return super().is_empty

    @cached_property
    def _met(self) -> np.ndarray:
        words = self.words[: self.indptr[-1]]
        met = np.zeros(int(words.max()) + 1 if len(words) else 0, dtype=bool)
        met[words] = True
        return np.flatnonzero(met).astype(np.int32)

    def met(self, n_columns: int) -> np.ndarray:
        return self._met

    def batch(self, index: np.ndarray | slice) -> Documents:
        batch = self if isinstance(index, slice) else self.take(index)
        # A thread can make a batch before it is visited, and then finds its words too.
        _ = batch._met
        return batch

    def take(self, index: np.ndarray | slice) -> Documents:
        weights = None if self.weights is None else self.weights[index]
        if isinstance(index, slice):
            indptr, part = self._cut(index)
            return Documents(self.counts[part], self.words[part], indptr, weights)
        starts = self.indptr[:-1][index]
        indptr = np.zeros(len(starts) + 1, dtype=np.int64)
        np.cumsum(self.indptr[1:][index] - starts, out=indptr[1:])
        counts, words = (_taken(array, starts, indptr) for array in (self.counts, self.words))
        return Documents(counts, words, indptr, weights)

    def centered(self, summary: Any) -> Documents:
        return self

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        # Subsets serve to compute starts. Topics do not start from documents, so that it would be
        # a waste to draw and copy some.
        return self

    def arrays(self, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return counts, words and indptr as kernels read them; they are copied if necessary."""
        return (
            np.ascontiguousarray(self.counts, dtype=dtype),
            np.ascontiguousarray(self.words, dtype=np.int32),
            np.ascontiguousarray(self.indptr, dtype=np.int64),
        )


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

    @cached_property
    def _most_chunks(self) -> int:
        n_entries = int(self.indptr[-1])
        n_columns = int(self.words[:n_entries].max(initial=0)) + 1
        return max(1, min(super()._most_chunks, n_entries // (_ENTRIES_PER_COLUMN * n_columns)))

    @property
    def is_empty(self) -> bool:
        return self.total_weight == 0

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
        # No model of these rows asks which columns they have.
        return self if isinstance(index, slice) else self.take(index)

    def by_column(self, n_columns: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
            size = max(_CELLS_AT_A_TIME // max(X.shape[1], 1), 1)
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

    @property
    def log_factorials(self) -> np.ndarray:
        """Σ_v log x_nv! of each row, of shape (n_units,)."""
        return self.sums[1]

    @property
    def n_observations(self) -> float:
        """Weighted sum of all counts."""
        lengths = self.lengths
        return float(lengths.sum() if self.weights is None else lengths @ self.weights)

    @property
    def is_empty(self) -> bool:
        return self.total_weight == 0

    def take(self, index: np.ndarray | slice) -> DenseCounts:
        weights = None if self.weights is None else self.weights[index]
        patterns = None if self.patterns is None else self.patterns[index]
        return DenseCounts(self.X[index], weights, patterns, self.sums[:, index])

    def centered(self, summary: Any) -> DenseCounts:
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


class Sequences(Ragged):
    """Sequences of frames, which are joined in one array.

    Parameters
    ----------
    frames : ndarray of shape (n_frames, n_features) or (n_frames,)
        The frames in the form in which the emission of a model reads them. Missing frames have
        arbitrary but finite values.
    indptr : ndarray of int64, shape (n_sequences + 1,)
        The position in ``frames`` at which each sequence begins.
    weights : ndarray of shape (n_sequences,) or None, default=None
    missing : ndarray of bool, shape (n_frames,) or None, default=None
        Whether each frame is missing, that is, was not observed; None if no frame is missing.
    center : ndarray of shape (n_features,) or None, default=None
        The vector that models subtract from every frame, as in :class:`Rows`.
    patterns : ndarray of uint64, shape (n_frames,) or None, default=None
        Which cells of each frame are missing, as in :class:`Rows`. It is 0 for frames that are
        missing as a whole.
    states : ndarray of intp, shape (n_frames,) or None, default=None
        The state of each frame where it is known, and −1 elsewhere; None if no state is known.
    """

    _parts = _SEQUENCE_CHUNKS

    def __init__(
        self,
        frames: np.ndarray,
        indptr: np.ndarray,
        weights: np.ndarray | None = None,
        missing: np.ndarray | None = None,
        center: np.ndarray | None = None,
        patterns: np.ndarray | None = None,
        states: np.ndarray | None = None,
    ):
        self.frames = frames
        self.states = states
        self.patterns = patterns
        self.indptr = indptr
        self.weights = weights
        self.missing = missing
        self.center = center

    @property
    def lengths(self) -> np.ndarray:
        """Number of frames of each sequence, of shape (n_sequences,)."""
        return np.diff(self.indptr)

    @cached_property
    def n_observations(self) -> float:
        """Weighted number of frames."""
        lengths = self.lengths
        return float(lengths.sum() if self.weights is None else lengths @ self.weights)

    def take(self, index: np.ndarray | slice) -> Sequences:
        indptr, part = self._cut(index)
        weights = None if self.weights is None else self.weights[index]
        missing = None if self.missing is None else self.missing[part]
        patterns = None if self.patterns is None else self.patterns[part]
        states = None if self.states is None else self.states[part]
        return Sequences(self.frames[part], indptr, weights, missing, self.center, patterns, states)

    def parts(self, n_frames: int) -> Iterator[slice]:
        """Yield contiguous parts of at most ``n_frames`` frames, or of one longer sequence."""
        begin = 0
        while begin < self.n_units:
            stop = int(np.searchsorted(self.indptr, self.indptr[begin] + n_frames, "right")) - 1
            stop = max(stop, begin + 1)
            yield slice(begin, stop)
            begin = stop

    def centered(self, summary: Any) -> Sequences:
        center, also = summary.center, (self.patterns, self.states)
        return Sequences(self.frames, self.indptr, self.weights, self.missing, center, *also)

    def marked(self) -> Sequences:
        if self.patterns is not None:
            return self
        marked = copy.copy(self)
        marked.patterns = np.zeros(len(self.frames), dtype=np.uint64)
        return marked

    def per_frame(self, values: np.ndarray) -> np.ndarray:
        """Return one value per frame, given one value per sequence."""
        return np.repeat(values, self.lengths)

    def present(self) -> np.ndarray:
        """Return the frames that are not missing, of sequences of positive weight."""
        if self.missing is None and self.weights is None:
            return self.frames
        chosen = np.ones(len(self.frames), dtype=bool)
        if self.missing is not None:
            chosen &= ~self.missing
        if self.weights is not None:
            chosen &= self.per_frame(self.weights > 0)
        return self.frames[chosen]

    def rows(self) -> Rows:
        """Return all frames as rows, including missing frames."""
        return Rows(self.frames, None, self.center, self.patterns)

    def observed(self) -> Rows:
        """Return the frames that are not missing as rows, with the weights of their sequences."""
        weights = None if self.weights is None else self.per_frame(self.weights)
        rows = Rows(self.frames, weights, self.center, self.patterns)
        return rows if self.missing is None else rows.take(~self.missing)


class Ratings(Ragged):
    """Users with the items that they rated, or items with the users who rated them.

    If units are users, columns are items, and the other way round.

    Parameters
    ----------
    values : ndarray of shape (n_ratings,)
        The ratings, float64 or float32.
    columns : ndarray of int32, shape (n_ratings,)
        The number of the item, or of the user, that each rating belongs to.
    indptr : ndarray of int64, shape (n_units + 1,)
        The position in ``values`` and ``columns`` at which the ratings of each unit begin.
    n_columns : int
        Number of items, or of users, including those without ratings.
    weights : ndarray of shape (n_units,) or None, default=None
        Sample weights of the units.
    rating_weights : ndarray of shape (n_ratings,) or None, default=None
        Sample weights of single ratings, which multiply those of their units; None for ones.
    counts_ratings : bool, default=False
        Whether the total weight of the data is that of their ratings, and not of their units.
    known : dict of ndarray or None, default=None
        Statistics of earlier ratings, which are no longer in ``values``, with one row per unit.
    rows : slice or ndarray of int, default=slice(None)
        The positions of these units in the larger data set from which they were taken.
    """

    _parts = _RATING_CHUNKS

    def __init__(
        self,
        values: np.ndarray,
        columns: np.ndarray,
        indptr: np.ndarray,
        n_columns: int,
        weights: np.ndarray | None = None,
        rating_weights: np.ndarray | None = None,
        counts_ratings: bool = False,
        known: dict[str, np.ndarray] | None = None,
        rows: slice | np.ndarray = slice(None),
    ):
        self.values = values
        self.columns = columns
        self.indptr = indptr
        self.n_columns = n_columns
        self.weights = weights
        self.rating_weights = rating_weights
        self.counts_ratings = counts_ratings
        self.known = known
        self.rows = rows

    @property
    def n_weight_units(self) -> int:
        """Number of ratings."""
        return len(self.values)

    def weight_units(self, part: slice) -> slice:
        return slice(int(self.indptr[part.start]), int(self.indptr[part.stop]))

    @cached_property
    def n_observations(self) -> float:
        """Weighted number of ratings."""
        weights = self.entry_weights()
        return float(len(self.values) if weights is None else weights.sum())

    @property
    def total_weight(self) -> float:
        return self.n_observations if self.counts_ratings else super().total_weight

    def entry_weights(self) -> np.ndarray | None:
        """Return the weight of each rating times that of its unit; None if all of them are 1."""
        if self.weights is None:
            return self.rating_weights
        each = np.repeat(self.weights, np.diff(self.indptr))
        return each if self.rating_weights is None else each * self.rating_weights

    def take(self, index: np.ndarray | slice) -> Ratings:
        indptr, part = self._cut(index)
        return Ratings(
            self.values[part],
            self.columns[part],
            indptr,
            self.n_columns,
            None if self.weights is None else self.weights[index],
            None if self.rating_weights is None else self.rating_weights[part],
            self.counts_ratings,
            None if self.known is None else {k: v[index] for k, v in self.known.items()},
            index,
        )

    def centered(self, summary: Any) -> Ratings:
        return self

    def subset(self, size: int, random_state: np.random.RandomState) -> Ratings:
        # Subsets serve to compute starts. Factors do not start from users, so that it would be a
        # waste to draw and copy some.
        return self

    @cached_property
    def by_column(self) -> Ratings:
        """The same ratings with the columns as units.

        The weights of the former units become weights of their ratings.
        """
        order, users, indptr = self.transposed()
        weights = self.entry_weights()
        return Ratings(
            self.values[order],
            users,
            indptr,
            self.n_units,
            rating_weights=None if weights is None else weights[order],
            counts_ratings=True,
        )

    def transposed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sort the ratings by column.

        Returns the positions of the sorted ratings among the given ones, the unit of each sorted
        rating, and the position at which each column begins.
        """
        kind = np.int32 if len(self.values) < 2**31 else np.int64
        positions = np.arange(len(self.values), dtype=kind)
        shape = (self.n_units, self.n_columns)
        matrix = csr_array((positions, self.columns, self.indptr), shape=shape).tocsc()
        return matrix.data, matrix.indices.astype(np.int32, copy=False), matrix.indptr.astype(int)
