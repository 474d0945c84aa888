"""What one data point is, and how many of them are taken, cut and weighed.

The loop sees data only as *units*: rows, or documents; sequences or users with ratings are further
subclasses of :class:`Units`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.random import sample_without_replacement

_CHUNKS = 16
_SMALLEST_CHUNK = 1024
_BLOCK = 256
_SHUFFLE_BLOCK = 65_536
# Numbers of parts of a corpus, and the entries from which on there are as many: each part has
# statistics of its own, as large as all topics.
_DOCUMENT_CHUNKS = {2: 65_536, 4: 131_072, 8: 2_097_152}


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
    def placed(self, summary: Any) -> Units:
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
        self.center = np.zeros(X.shape[1]) if center is None else center

    @property
    def n_units(self) -> int:
        return self.X.shape[0]

    def take(self, index: np.ndarray | slice) -> Rows:
        weights = None if self.weights is None else self.weights[index]
        return Rows(self.X[index], weights, self.center)

    def placed(self, summary: Any) -> Rows:
        return Rows(self.X, self.weights, summary.center)

    def contiguous(self) -> np.ndarray:
        """The rows as a C-contiguous array for kernels, copied only where they are not."""
        return np.ascontiguousarray(self.X)


class Documents(Units):
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

    @property
    def n_units(self) -> int:
        return len(self.indptr) - 1

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
        if isinstance(index, slice):
            first, last, _ = index.indices(self.n_units)
            indptr = self.indptr[first : max(first, last) + 1]
            part: Any = slice(indptr[0], indptr[-1])
            indptr = indptr - indptr[0]
        else:
            starts = self.indptr[:-1][index]
            sizes = self.indptr[1:][index] - starts
            indptr = np.concatenate([[0], np.cumsum(sizes)])
            part = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes)
        return Documents(self.counts[part], self.words[part], indptr, weights)

    def chunks(self) -> list[slice]:
        """Contiguous parts with about equally many entries."""
        n_entries = int(self.indptr[-1])
        n = max((n for n, least in _DOCUMENT_CHUNKS.items() if n_entries >= least), default=1)
        if n == 1:
            return [slice(0, self.n_units)]
        cuts = np.searchsorted(self.indptr, np.linspace(0, n_entries, n + 1)[1:-1])
        edges = np.unique([0, *cuts.tolist(), self.n_units])
        return [slice(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def placed(self, summary: Any) -> Documents:
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
