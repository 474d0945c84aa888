"""Statistics of words, from what local steps have found for the documents in which they occur."""

from __future__ import annotations

import numpy as np

from ..inference import kept_memory
from ..inference.parallel import Workers
from ._base import compiled
from ._topic_tables import Topics

# Workers share blocks of documents and of words. Every block has sums of its own, so that they do
# not depend on who computes them. A block has at least so many documents, and a step has at most so
# many blocks of documents; a block of words has so many words.
_SMALLEST_BLOCK, _MOST_BLOCKS = 8, 256
_WORDS = 32
# A tile of documents has about so many shares, which stay in the cache while words read them.
_SHARES_OF_TILE = 2**18
# A task has at least so many additions of a share to a sum, which take about a twentieth of a
# millisecond.
_ADDITIONS_OF_TASK = 2**15


def documents_of_block(n_documents: int) -> int:
    """Return the number of documents in a block."""
    return max(_SMALLEST_BLOCK, -(-n_documents // _MOST_BLOCKS))


def blocks_of_tile(n_documents_of_block: int, width: int) -> int:
    """Return the number of blocks in a tile."""
    return max(1, _SHARES_OF_TILE // (n_documents_of_block * width))


def blocks_of_task(n_blocks: int, work: float, work_of_task: int) -> int:
    """Return the smallest number of blocks in a task, given the work of all blocks."""
    return max(1, int(np.ceil(work_of_task * n_blocks / max(work, 1.0))))


class Shares:
    """The shares of topics in the words of some documents, which come as a tile of all documents.

    Parameters
    ----------
    words : ndarray of int32, shape (nnz,)
        The rows of the words in the table of topics, for all documents.
    indptr : ndarray of int64, shape (n_documents + 1,)
        Where the words of each document of the tile begin.
    ratios : ndarray of shape (nnz,)
        Receives c_w / n_w of the words of these documents.
    width : int
        The number of columns of the table.

    Attributes
    ----------
    results : tuple of ndarray
        The arrays that the kernel ``mean_field`` writes: the ratios, the factors e_k of topics, the
        topics of documents that have few, and the number of these topics.
    """

    def __init__(self, words: np.ndarray, indptr: np.ndarray, ratios: np.ndarray, width: int):
        n = len(indptr) - 1
        self._words, self._indptr = words, indptr
        self.results = (
            ratios,
            kept_memory.empty((n, width), ratios.dtype),
            kept_memory.empty((n * width,), np.int32),
            np.empty(n, np.int32),
        )

    def by_word(self, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where each word begins in a list of its occurrences, and this list."""
        begins = np.empty(n_rows + 1, np.int64)
        n_entries = int(self._indptr[-1] - self._indptr[0])
        occurrences = kept_memory.empty((2 * n_entries,), np.uint32)
        compiled("ragged").by_column(occurrences, begins, self._words, self._indptr)
        return begins, occurrences


class WordStatistics:
    """The statistics S of words, added up over tiles of documents.

    Parameters
    ----------
    topics : Topics
        The table is that of the temperature of the visit.
    local, factor : float
        The factors of the log-likelihood and of the statistics by which annealing changes the
        update.
    workers : Workers
        They share the words.
    energy : bool
        Whether Σ S E log β is wanted.

    Attributes
    ----------
    statistics : ndarray of shape (n_rows, width)
        They are uninitialised before the first tile.
    """

    def __init__(self, topics: Topics, local: float, factor: float, workers: Workers, energy: bool):
        n_rows = len(topics.table)
        self._given, self._workers, self._n_blocks = (
            (*topics, local, factor),
            workers,
            -(-n_rows // _WORDS),
        )
        self.statistics = kept_memory.empty(topics.table.shape)
        self._energies = np.zeros(self._n_blocks if energy else 0)
        self._n_tiles = 0

    def add(
        self, shares: Shares, occurrences: tuple[np.ndarray, np.ndarray], weights: np.ndarray
    ) -> None:
        """Add the statistics of a tile, given the weights of its documents unless all are 1."""
        out = self.statistics
        additions = (len(occurrences[1]) / 2 + len(out)) * out.shape[1]
        self._workers.share_kernel(
            compiled("latent_dirichlet").word_statistics,
            (
                *self._given,
                *occurrences,
                *shares.results,
                weights,
                int(self._n_tiles > 0),
                out,
                _WORDS,
                self._energies,
            ),
            self._n_blocks,
            blocks_of_task(self._n_blocks, additions, _ADDITIONS_OF_TASK),
        )
        self._n_tiles += 1

    @property
    def energy(self) -> float:
        """Σ S E log β, without the factor of the statistics; 0 if it is not wanted."""
        return float(self._energies.sum())
