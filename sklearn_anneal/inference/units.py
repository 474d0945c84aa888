"""What one data point is, and how many of them are taken, cut and weighed.

The loop sees data only as *units*: rows, documents, sequences, or users with ratings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.random import sample_without_replacement

_CHUNKS = 16
_SMALLEST_CHUNK = 1024
_BLOCK = 256
_SHUFFLE_BLOCK = 65_536
# Numbers of parts of a corpus, and the entries from which on there are as many: each part has
# statistics of its own, as large as all topics.
_DOCUMENT_CHUNKS = {2: 65_536, 4: 131_072, 8: 2_097_152}
# Numbers of parts of sequences, and the frames from which on there are as many.
_SEQUENCE_CHUNKS = {2: 4_096, 4: 16_384, 16: 65_536}
# Numbers of parts of users, and the ratings from which on there are as many.
_RATING_CHUNKS = {2: 8_192, 4: 32_768, 8: 524_288, 16: 4_194_304}
# Of so many parts or more the last quarter are halves.
_MANY = 16


class Units(ABC):
    """Data points that the loop can count, weigh and cut.

    Attributes
    ----------
    weights : ndarray of shape (n_units,) or None
        Sample weights; None for ones.
    """

    weights: np.ndarray | None

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Number of data points."""

    @property
    def n_weight_units(self) -> int:
        """Number of entities that get a random weight of their own."""
        return self.n_units

    def weight_units(self, part: slice) -> slice:
        """The entities with random weights that belong to some data points."""
        return part

    @property
    def n_observations(self) -> float:
        """Weighted number of observations (rows, tokens, frames, ratings) for tolerances."""
        return self.total_weight

    @property
    def total_weight(self) -> float:
        """Σ w, the effective number of data points."""
        return float(self.n_units) if self.weights is None else float(self.weights.sum())

    @abstractmethod
    def take(self, index: np.ndarray | slice) -> Units:
        """The data points of an index, copied unless the index is a slice."""

    def chunks(self) -> list[slice]:
        """Contiguous parts for parallel work; a function of the number of units alone."""
        n = self.n_units
        # Whole blocks of the kernels, so that only the last chunk ends with a short one.
        size = max(_SMALLEST_CHUNK, -(-n // (_CHUNKS * _BLOCK)) * _BLOCK)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Units]:
        """One pass over the data in random batches, without an index of all of them.

        Blocks of consecutive data points come in random order, and so do the points of each
        block. A last, smaller batch takes the rest.
        """
        n = self.n_units
        if size >= n:
            yield self
            return
        length = max(_SHUFFLE_BLOCK, 8 * size)
        left = np.empty(0, dtype=np.intp)
        for b in rng.permutation(-(-n // length)):
            block = np.arange(b * length, min((b + 1) * length, n))
            rng.shuffle(block)
            left = np.concatenate([left, block])
            stop = len(left) // size * size
            for start in range(0, stop, size):
                yield self.take(left[start : start + size])
            left = left[stop:]
        if len(left):
            yield self.take(left)

    @abstractmethod
    def centered(self, summary: Any) -> Units:
        """The same data points in the coordinates of a model with this summary."""

    def spread(self, size: int) -> Units:
        """At most ``size`` data points of positive weight, at equal distances."""
        return self._few(size, lambda n: np.arange(size) * n // size)

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        """At most ``size`` random data points of positive weight, in their order."""

        def draw(n: int) -> np.ndarray:
            # In order, so that a memory-mapped array is read from its beginning to its end.
            return np.sort(sample_without_replacement(n, size, random_state=random_state))

        return self._few(size, draw)

    def _few(self, size: int, choose: Callable[[int], np.ndarray]) -> Units:
        """``size`` data points that ``choose`` picks among those of positive weight."""
        if self.n_units <= size:
            return self
        if self.weights is None:
            return self.take(choose(self.n_units))
        positive = np.flatnonzero(self.weights)
        return self.take(positive if len(positive) <= size else positive[choose(len(positive))])


class Rows(Units):
    """Rows of a dense array, seen relative to a center.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        float64 or float32; a memory-mapped array is never copied whole.
    weights : ndarray of shape (n_samples,) or None, default=None
    center : ndarray of shape (n_features,) or None, default=None
        What a model subtracts from every row it reads, so that sums of squares keep their
        digits; None for zero.
    """

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        center: np.ndarray | None = None,
    ):
        self.X = X
        self.weights = weights
        self.center = np.zeros(X.shape[1:]) if center is None else center

    @property
    def n_units(self) -> int:
        return self.X.shape[0]

    def take(self, index: np.ndarray | slice) -> Rows:
        weights = None if self.weights is None else self.weights[index]
        return Rows(self.X[index], weights, self.center)

    def centered(self, summary: Any) -> Rows:
        return Rows(self.X, self.weights, summary.center)

    def contiguous(self) -> np.ndarray:
        """The rows as a C-contiguous array for kernels, copied only where they are not."""
        return np.ascontiguousarray(self.X)


class Ragged(Units):
    """Data points with different numbers of entries, which follow each other in flat arrays.

    Attributes
    ----------
    indptr : ndarray of shape (n_units + 1,)
        Where each data point begins.
    """

    indptr: np.ndarray
    _parts: ClassVar[dict[int, int]]

    @property
    def n_units(self) -> int:
        return len(self.indptr) - 1

    def chunks(self) -> list[slice]:
        """Contiguous parts with about equally many entries; a function of ``indptr`` alone."""
        n_entries = int(self.indptr[-1])
        n = max((n for n, least in self._parts.items() if n_entries >= least), default=1)
        if n == 1:
            return [slice(0, self.n_units)]
        ends = np.linspace(0, n_entries, n + 1)[1:]
        if n >= _MANY:
            # The last quarter in halves, so that workers end at about the same time.
            halves = ends[-(n // 4) :] - 0.5 * n_entries / n
            ends = np.sort(np.append(ends, halves))
        cuts = np.searchsorted(self.indptr, ends[:-1])
        edges = np.unique([0, *cuts.tolist(), self.n_units])
        return [slice(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def _cut(self, index: np.ndarray | slice) -> tuple[np.ndarray, Any]:
        """``indptr`` of the data points of an index, and the index of their entries."""
        if isinstance(index, slice):
            first, last, _ = index.indices(self.n_units)
            indptr = self.indptr[first : max(first, last) + 1]
            return indptr - indptr[0], slice(indptr[0], indptr[-1])
        starts = self.indptr[:-1][index]
        sizes = self.indptr[1:][index] - starts
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        return indptr, np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes)


class Documents(Ragged):
    """Rows of a sparse matrix of counts: bags of words.

    Parameters
    ----------
    counts : ndarray of shape (nnz,)
        Of any real dtype; a part of them is converted when a kernel reads it.
    words : ndarray of shape (nnz,)
        Their columns.
    indptr : ndarray of shape (n_documents + 1,)
        Where each document begins in ``counts`` and ``words``.
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

    def take(self, index: np.ndarray | slice) -> Documents:
        weights = None if self.weights is None else self.weights[index]
        indptr, part = self._cut(index)
        return Documents(self.counts[part], self.words[part], indptr, weights)

    def centered(self, summary: Any) -> Documents:
        return self

    def subset(self, size: int, random_state: np.random.RandomState) -> Documents:
        # Topics do not start from documents: neither a draw nor a copy is spent on choosing some.
        return self

    def arrays(self, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts, words and indptr as kernels read them, copied only where dtypes differ."""
        return (
            np.ascontiguousarray(self.counts, dtype=dtype),
            np.ascontiguousarray(self.words, dtype=np.int32),
            np.ascontiguousarray(self.indptr, dtype=np.int64),
        )


class Sequences(Ragged):
    """Sequences of frames, one after another.

    Parameters
    ----------
    frames : ndarray of shape (n_frames, n_features) or (n_frames,)
        As the emission of a model reads them; finite where frames are missing too.
    indptr : ndarray of int64, shape (n_sequences + 1,)
        Where each sequence begins.
    weights : ndarray of shape (n_sequences,) or None, default=None
    missing : ndarray of bool, shape (n_frames,) or None, default=None
        The frames that were not observed; None: there are none.
    center : ndarray of shape (n_features,) or None, default=None
        As of :class:`Rows`.
    """

    _parts = _SEQUENCE_CHUNKS

    def __init__(
        self,
        frames: np.ndarray,
        indptr: np.ndarray,
        weights: np.ndarray | None = None,
        missing: np.ndarray | None = None,
        center: np.ndarray | None = None,
    ):
        self.frames = frames
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
        return Sequences(self.frames[part], indptr, weights, missing, self.center)

    def parts(self, n_frames: int) -> Iterator[slice]:
        """Contiguous parts of at most ``n_frames`` frames, or of one sequence."""
        begin = 0
        while begin < self.n_units:
            stop = int(np.searchsorted(self.indptr, self.indptr[begin] + n_frames, "right")) - 1
            stop = max(stop, begin + 1)
            yield slice(begin, stop)
            begin = stop

    def centered(self, summary: Any) -> Sequences:
        return Sequences(self.frames, self.indptr, self.weights, self.missing, summary.center)

    def per_frame(self, values: np.ndarray) -> np.ndarray:
        """One value per sequence, repeated for its frames."""
        return np.repeat(values, self.lengths)

    def present(self) -> np.ndarray:
        """The frames that were observed, of sequences of positive weight."""
        if self.missing is None and self.weights is None:
            return self.frames
        chosen = np.ones(len(self.frames), dtype=bool)
        if self.missing is not None:
            chosen &= ~self.missing
        if self.weights is not None:
            chosen &= self.per_frame(self.weights > 0)
        return self.frames[chosen]

    def rows(self) -> Rows:
        """All frames as rows, those that are missing too."""
        return Rows(self.frames, None, self.center)

    def observed(self) -> Rows:
        """The frames that were observed, as rows with weights of their own."""
        weights = None if self.weights is None else self.per_frame(self.weights)
        if self.missing is None:
            return Rows(self.frames, weights, self.center)
        seen = ~self.missing
        return Rows(self.frames[seen], None if weights is None else weights[seen], self.center)


class Ratings(Ragged):
    """Users with the items that they rated, or items with their users.

    Parameters
    ----------
    values : ndarray of shape (n_ratings,)
        float64 or float32.
    columns : ndarray of int32, shape (n_ratings,)
        What was rated, or who rated.
    indptr : ndarray of int64, shape (n_units + 1,)
        Where the ratings of each unit begin.
    n_columns : int
        Number of things to be rated.
    weights : ndarray of shape (n_units,) or None, default=None
    rating_weights : ndarray of shape (n_ratings,) or None, default=None
        Factors of single ratings; None for ones.
    counts_ratings : bool, default=False
        Whether data are measured by their ratings, not by their units.
    known : dict of ndarray or None, default=None
        Statistics of ratings that were seen before, with one row per unit.
    rows : slice or ndarray of int, default=slice(None)
        Which units these are of those that they were taken from.
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
        """The weight of each rating, that of its unit included; None for ones."""
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
        # Factors do not start from users: neither a draw nor a copy is spent on choosing some.
        return self

    @cached_property
    def by_column(self) -> Ratings:
        """The same ratings with the columns as units; their weights become those of ratings."""
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
        """The order of the ratings by column, their units in this order, and its ``indptr``."""
        kind = np.int32 if len(self.values) < 2**31 else np.int64
        positions = np.arange(len(self.values), dtype=kind)
        shape = (self.n_units, self.n_columns)
        matrix = csr_array((positions, self.columns, self.indptr), shape=shape).tocsc()
        return matrix.data, matrix.indices.astype(np.int32, copy=False), matrix.indptr.astype(int)
