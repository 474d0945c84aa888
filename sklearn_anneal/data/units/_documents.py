"""Documents as bags of words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ...kernels import load
from ...parallel.kept_memory import empty
from ._base import Ragged, Units, joined_arrays

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Number of chunks → smallest number of entries of documents that are divided into as many. Every
# chunk needs an array of statistics as large as the topics of all words that occur, so that there
# are few of them; but a minibatch of short documents should occupy two workers.
_DOCUMENT_CHUNKS = {2: 4_096, 4: 131_072, 8: 2_097_152}
# Documents with more entries do not keep the list of where words occur, of twelve bytes per entry.
_MOST_LISTED = 2**19
# Counts are rounded up about so many at a time, because the result takes memory.
_ROUNDED_AT_A_TIME = 2**18


def _taken(entries: np.ndarray, starts: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Return the entries of data points that begin at the given positions, one after another."""
    # Entries are copied, whatever they mean, so that a kernel can take numbers of the same size.
    float_type: Any = {4: np.float32, 8: np.float64}.get(entries.itemsize)
    plain = entries.dtype.kind in "iuf" and entries.dtype.isnative and entries.flags.c_contiguous
    if float_type is None or not plain:
        positions = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], np.diff(indptr))
        return entries[positions]
    out = empty((int(indptr[-1]),), entries.dtype)
    load("ragged").take_entries(
        *(out.view(float_type), np.asarray(entries).view(float_type)),
        np.ascontiguousarray(starts, dtype=np.int64),
        indptr,
    )
    return out


class Occurrences(NamedTuple):
    """An index of the documents and entries in which words occur."""

    occurring: np.ndarray  # the words, in ascending order, (n_occurring,)
    places: np.ndarray  # the place in ``occurring`` of the word of each entry, (nnz,)
    # The first occurrence of each word in the list of all occurrences, (n_occurring + 1,).
    begins: np.ndarray
    # The list: for each occurrence the number of the document, and then that of the entry,
    # (2 * nnz,).
    listed: np.ndarray


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

    def __getstate__(self) -> dict[str, Any]:
        # Files and other processes compute anew what follows from the rest.
        own = vars(type(self)) | vars(Documents)
        return {
            key: value
            for key, value in vars(self).items()
            if not isinstance(own.get(key), cached_property)
        }

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
    def whole_lengths(self) -> np.ndarray:
        """Σ ⌈c⌉ over the counts c of each document, of shape (n_documents,)."""
        if self.counts.dtype.kind in "iub":
            return self.lengths
        sums, first = np.zeros(self.n_units), 0
        while first < self.n_units:
            stop = np.searchsorted(self.indptr, self.indptr[first] + _ROUNDED_AT_A_TIME, "right")
            last = max(first + 1, int(stop) - 1)
            begins = self.indptr[first : last + 1]
            filled = np.flatnonzero(np.diff(begins))
            if len(filled):
                whole = np.ceil(self.counts[begins[0] : begins[-1]])
                starts = begins[filled] - begins[0]
                sums[first + filled] = np.add.reduceat(whole, starts, dtype=np.float64)
            first = last
        return sums

    @cached_property
    def weighted_whole(self) -> float:
        """Σ w ⌈c⌉ over all counts c, the weighted number of tokens if fractions were whole."""
        return self._weighted_sum(self.whole_lengths)

    @cached_property
    def weighted_entries(self) -> float:
        """Σ w over all counts."""
        return self._weighted_sum(np.diff(self.indptr).astype(np.float64))

    @cached_property
    def _n_tokens(self) -> float:
        return self._weighted_sum(self.lengths)

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
    def _occurring(self) -> np.ndarray:
        words = self.words[: self.indptr[-1]]
        occurring = np.zeros(int(words.max()) + 1 if len(words) else 0, dtype=np.uint8)
        load("ragged").mark(occurring, np.ascontiguousarray(words, dtype=np.int32))
        return np.flatnonzero(occurring.view(bool)).astype(np.int32)

    @property
    def lists_words(self) -> bool:
        """Whether there are few enough entries to keep :attr:`occurrences`."""
        return int(self.indptr[-1]) <= _MOST_LISTED

    @cached_property
    def occurrences(self) -> Occurrences:
        """Return the index of the entries in which each word occurs."""
        words = np.ascontiguousarray(self.words, dtype=np.int32)
        indptr, n_entries = np.asarray(self.indptr, dtype=np.int64), int(self.indptr[-1])
        numbers = empty((int(self._occurring[-1]) + 1 if len(self._occurring) else 0,), np.int32)
        numbers[self._occurring] = np.arange(len(self._occurring), dtype=np.int32)
        places = empty((n_entries,), np.int32)
        load("ragged").renumber(places.view(np.uint32), numbers, words[:n_entries])
        begins = np.empty(len(self._occurring) + 1, np.int64)
        listed = empty((2 * n_entries,), np.uint32)
        load("ragged").by_column(listed, begins, places, indptr)
        return Occurrences(self._occurring, places, begins, listed)

    def occurring(self, n_columns: int) -> np.ndarray:
        return self._occurring

    def batch(self, index: np.ndarray | slice) -> Documents:
        batch = self if isinstance(index, slice) else self.take(index)
        # A thread can make a batch before it is visited, and then finds its words too.
        _ = batch.occurrences if batch.lists_words else batch._occurring
        return batch

    def take(self, index: np.ndarray | slice) -> Documents:
        if isinstance(index, slice) and index.indices(self.n_units) == (0, self.n_units, 1):
            return self
        weights = None if self.weights is None else self.weights[index]
        if isinstance(index, slice):
            indptr, part = self._cut(index)
            return Documents(self.counts[part], self.words[part], indptr, weights)
        starts = self.indptr[:-1][index]
        indptr = np.zeros(len(starts) + 1, dtype=np.int64)
        np.cumsum(self.indptr[1:][index] - starts, out=indptr[1:])
        counts, words = (_taken(array, starts, indptr) for array in (self.counts, self.words))
        return Documents(counts, words, indptr, weights)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the documents of several objects, one after another, as copies."""
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        return cls(
            np.concatenate([part.counts[: part.indptr[-1]] for part in parts]),
            np.concatenate([part.words[: part.indptr[-1]] for part in parts]),
            np.concatenate([[0], np.cumsum(sizes)]),
            joined_arrays([part.weights for part in parts], [part.n_units for part in parts], 1.0),
        )

    def centered(self, summary: object) -> Documents:
        return self

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        # Subsets serve to compute starts. Those of topics read the frequencies of words in all
        # documents, and a few documents, so that nothing has to be copied.
        return self

    def arrays(self, dtype: DTypeLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return counts, words and indptr as kernels read them; they are copied if necessary."""
        return (
            np.ascontiguousarray(self.counts, dtype=dtype),
            np.ascontiguousarray(self.words, dtype=np.int32),
            np.ascontiguousarray(self.indptr, dtype=np.int64),
        )
