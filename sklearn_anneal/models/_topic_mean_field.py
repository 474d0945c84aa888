"""Mean-field steps of documents: workers share the documents, and then the words in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from ..data.units import Documents
from ..parallel import kept_memory
from ..parallel.workers import Workers
from ._base import compiled
from ._topic_tables import Topics, Words

# Workers share blocks of documents and of words. Every block has sums of its own, so that they do
# not depend on who computes them. A block has at least so many documents, and a step has at most so
# many blocks of documents; a block of words has so many words.
_SMALLEST_BLOCK, _MOST_BLOCKS = 8, 256
_WORDS = 32
# A tile of documents has about so many factors of topics, which stay in the cache while words read
# them.
_FACTORS_OF_TILE = 2**18
# A task has at least so many products of a topic and a word in iterations over documents, or
# additions of such a product to a sum over documents. They take about ten microseconds.
_PRODUCTS_OF_TASK, _ADDITIONS_OF_TASK = 2**17, 2**15

_NOTHING = np.empty(0)

kernels = partial(compiled, "latent_dirichlet")


@dataclass(frozen=True)
class How:
    """What a mean-field step needs besides documents.

    Attributes
    ----------
    topics : Topics
    words : Words
        The words that occur.
    alpha : ndarray of shape (n_topics,)
    factors : tuple of float
        The factors of annealing: of the log-likelihood, of the statistics, and of the prior.
    n_iter : int
    tol : float
        When iterations end.
    bound, theta : bool
        Whether the terms of the lower bound and Σ E log θ are wanted.
    workers : Workers
    """

    topics: Topics
    words: Words
    alpha: np.ndarray
    factors: tuple[float, float, float]
    n_iter: int
    tol: float
    bound: bool
    theta: bool
    workers: Workers

    @property
    def width(self) -> int:
        """The number of columns of the table of topics."""
        return int(self.topics.table.shape[1])


class WordStatistics:
    """The statistics S of words, added up over tiles of documents.

    Parameters
    ----------
    how : How
    weights : ndarray of shape (n_documents,)
        The weights of the documents; none if all are 1.
    energy : bool
        Whether Σ S E log β is wanted.

    Attributes
    ----------
    sums : ndarray of shape (n_rows, width)
        The statistics; they are uninitialised before the first tile.
    """

    def __init__(self, how: How, weights: np.ndarray, energy: bool):
        n_rows = len(how.topics.table)
        self._how, self._weights, self._n_blocks = how, weights, -(-n_rows // _WORDS)
        self.sums = kept_memory.empty(how.topics.table.shape)
        self._energies = np.zeros(self._n_blocks if energy else 0)
        self._n_tiles = 0

    def add(self, tile: slice, occurrences: tuple, results: tuple) -> None:
        """Add the statistics of a tile of documents.

        Parameters
        ----------
        tile : slice
            The documents.
        occurrences : tuple of ndarray
            Where words begin in a list of their occurrences, and this list.
        results : tuple of ndarray
            What :class:`MeanFieldStep` has found for these documents.
        """
        local, factor, _ = self._how.factors
        additions = (len(occurrences[1]) / 2 + len(self.sums)) * self._how.width
        self._how.workers.share_kernel(
            kernels().word_statistics,
            (
                *self._how.topics,
                *(local, factor),
                *occurrences,
                *results,
                self._weights[tile],
                int(self._n_tiles > 0),
                self.sums,
                _WORDS,
                self._energies,
            ),
            self._n_blocks,
            _blocks_of_task(self._n_blocks, additions, _ADDITIONS_OF_TASK),
        )
        self._n_tiles += 1

    @property
    def energy(self) -> float:
        """Σ S E log β, without the factor of the statistics; 0 if it is not wanted."""
        return float(self._energies.sum())


class _Entries(NamedTuple):
    """The words of documents as kernels read them."""

    counts: np.ndarray
    rows: np.ndarray
    indptr: np.ndarray


@dataclass
class MeanFieldStep:
    """The mean-field step of some documents.

    Parameters
    ----------
    how : How
    units : Documents
    gamma : ndarray of shape (n_documents, n_topics)
        Receives γ; it holds the start if that is ``given``.
    given : bool
    statistics : list of WordStatistics
        Receive the statistics of words, of one weighting of the documents each.

    Attributes
    ----------
    theta : ndarray of shape (n_topics + 2,) or (0,)
    sums : ndarray of shape (4,) or (0,)
        The results of the kernel ``mean_field``, added up over all documents.
    """

    how: How
    units: Documents
    gamma: np.ndarray
    given: bool
    statistics: list[WordStatistics] = field(default_factory=list)

    def run(self) -> None:
        """Visit all documents, and then, tile by tile, their words."""
        how, n = self.how, self.units.n_units
        size = max(_SMALLEST_BLOCK, -(-n // _MOST_BLOCKS))
        n_blocks = max(1, -(-n // size))
        n_sums = len(how.alpha) + 2 if how.theta else 0, 4 if how.bound else 0
        theta, sums = (np.zeros((n_blocks, n_columns)) for n_columns in n_sums)
        listed = how.words.listed_by(self.units)
        dtype = how.topics.table.dtype
        counts, words, indptr = self.units.arrays(dtype)
        entries = _Entries(counts, how.words.rows_of(self.units, words), indptr)
        step = n_blocks
        ratios = np.empty(0, dtype)
        if self.statistics:
            step = max(1, _FACTORS_OF_TILE // (size * how.width))
            ratios = kept_memory.empty(entries.counts.shape, dtype)
        for first in range(0, n_blocks, step):
            blocks = slice(first, min(first + step, n_blocks))
            tile = slice(size * blocks.start, min(size * blocks.stop, n))
            results = self._visit(entries, tile, size, ratios, theta[blocks], sums[blocks])
            if self.statistics:
                occurrences = self._by_word(entries, tile, listed and step >= n_blocks)
                for statistics in self.statistics:
                    statistics.add(tile, occurrences, results)
        self.theta, self.sums = theta.sum(axis=0), sums.sum(axis=0)

    def _visit(
        self,
        entries: _Entries,
        tile: slice,
        size: int,
        ratios: np.ndarray,
        theta: np.ndarray,
        sums: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """Make the steps of a tile; returns what the statistics of words need of it."""
        how, indptr = self.how, entries.indptr[tile.start : tile.stop + 1]
        n = tile.stop - tile.start if self.statistics else 0
        results = (
            ratios,
            kept_memory.empty((n, how.width), ratios.dtype),
            kept_memory.empty((n * how.width,), np.int32),
            np.empty(n, np.int32),
        )
        weights = _NOTHING if self.units.weights is None else self.units.weights
        products = float(indptr[-1] - indptr[0]) * how.width * (how.n_iter + 1)
        how.workers.share_kernel(
            kernels().mean_field_of(how.width),
            (
                *(entries.counts, entries.rows, indptr),
                *how.topics,
                how.alpha,
                *how.factors,
                self.given,
                *(how.n_iter, how.tol),
                weights[tile],
                self.gamma[tile],
                *results,
                *(theta, sums),
                size,
            ),
            len(theta),
            _blocks_of_task(len(theta), products, _PRODUCTS_OF_TASK),
        )
        return results

    def _by_word(self, entries: _Entries, tile: slice, known: bool) -> tuple[np.ndarray, ...]:
        """Return where each row begins in a list of its occurrences in a tile, and this list."""
        n_rows = len(self.how.topics.table)
        if not known:
            indptr = entries.indptr[tile.start : tile.stop + 1]
            begins = np.empty(n_rows + 1, np.int64)
            listed = kept_memory.empty((2 * int(indptr[-1] - indptr[0]),), np.uint32)
            compiled("ragged").by_column(listed, begins, entries.rows, indptr)
            return begins, listed
        found = self.units.occurrences
        if self.how.words.few:
            return found.begins, found.listed
        # The table has rows for all words.
        begins = np.zeros(n_rows + 1, np.int64)
        begins[found.met + 1] = np.diff(found.begins)
        return begins.cumsum(), found.listed


def _blocks_of_task(n_blocks: int, work: float, work_of_task: int) -> int:
    """Return the smallest number of blocks in a task, given the work of all blocks."""
    return max(1, int(np.ceil(work_of_task * n_blocks / max(work, 1.0))))
