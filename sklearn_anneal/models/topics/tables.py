"""Tables of the topics of words, which local steps read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import psi

from ...data.units import Documents
from ...parallel import kept_memory
from ...parallel.workers import Workers
from .._base import compiled
from .absent import AbsentWords
from .draws import TopicsDraw
from .lazy_columns import LazyColumns

# Tables are padded to a multiple of this many topics, which kernels process at a time.
_LANES = 8
# Sums over all words have one addend for each part of so many words.
WORDS_OF_PART = 512
# The tables of a visit have rows for its own words alone, if these are at most one in so many, or
# if its documents have fewer entries than so many per word: updates of λ then take less time, which
# counts if documents take little.
_FEW_WORDS, _FEW_ENTRIES = 2, 32
# A task of the workers computes at least so many entries of a table, which takes about a tenth of a
# millisecond. With less work, another thread would save less than it takes to begin and to wait for
# entries that the first one has written.
_ENTRIES_OF_TASK = 2**15
# A part of such work that threads share without the interpreter has at least so many entries, which
# take about ten microseconds.
_ENTRIES_OF_KERNEL = 2**12

_NOTHING = np.empty(0)

tables = partial(compiled, "counts")


def words_of_task(width: int) -> int:
    """Return the smallest number of words for a task, given the number of topics."""
    return max(1, _ENTRIES_OF_TASK // width)


class Concentrations(NamedTuple):
    """λ of the words in a visit, λ_ik = factor · stored[columns[i], k] + offsets[i].

    Kernels read λ in this form, so that it is not computed before.
    """

    stored: np.ndarray  # (n_stored, n_topics)
    columns: np.ndarray  # (n_occurring,)
    factor: float
    offsets: np.ndarray  # without entries, λ is ``stored[columns]``, (n_occurring,)
    totals: np.ndarray  # Σ_w λ_kw over all words, (n_topics,)
    rows: np.ndarray  # the rows of these words in a table, (n_occurring,)
    n_rows: int  # the number of rows of a table

    @classmethod
    def of(cls, topics: Any, words: Words | None = None) -> Concentrations:
        """Return λ of the words of a visit, or of all words.

        Parameters
        ----------
        topics : ndarray or LazyColumns of shape (n_topics, n_words)
            λ.
        words : Words or None, default=None
        """
        if words is None or not words.few:
            stored = np.ascontiguousarray(topics.T)
            rows = np.arange(len(stored), dtype=np.int32) if words is None else words.occurring
            return cls(stored, rows, 1.0, _NOTHING, stored.sum(axis=0), rows, len(stored))
        rows = np.arange(len(words.occurring), dtype=np.int32)
        if isinstance(topics, LazyColumns):
            return cls(*topics.in_place(words.occurring), topics.sums(), rows, len(rows))
        totals = topics.T.sum(axis=0)
        return cls(topics.T[words.occurring], rows, 1.0, _NOTHING, totals, rows, len(rows))

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """The arrays from which kernels read λ."""
        return self.stored, self.columns, self.factor, self.offsets

    def rows_of(self, part: slice) -> slice | np.ndarray:
        """Return the rows of some of the words in a table."""
        # Slices are copied faster than rows that are picked. Rows are in ascending order.
        rows = self.rows
        return part if len(rows) == 0 or rows[-1] < len(rows) else rows[part]

    def values(self, part: slice = slice(None)) -> np.ndarray:
        """Return λ of some of the words, of shape (n_part, n_topics)."""
        columns = self.columns[part]
        if len(self.offsets) == 0:
            return self.stored[self.rows_of(part) if self.columns is self.rows else columns]
        out = kept_memory.empty((len(columns), len(self.totals)))
        compiled("lazy_columns").take_columns(
            out, self.stored, columns, self.factor, self.offsets[part]
        )
        return out


class Topics(NamedTuple):
    """E log β, or a draw of log β, in the layout of the kernels.

    Notes
    -----
    A visit with few words of the vocabulary has rows for these alone. Otherwise it fills only their
    rows, and others are uninitialised.
    """

    # log β_kw − m_w, or exp{x (log β_kw − m_w)} if the table was prepared for a temperature,
    # (n_words, width). The number of columns is padded to a multiple of 8.
    table: np.ndarray
    largest: np.ndarray  # m_w, the largest log β_kw of each word, (n_words,)


@dataclass(frozen=True)
class Words:
    """The words that occur in some documents.

    Parameters
    ----------
    occurring : ndarray of int32, shape (n_occurring,)
        Their columns in λ, in ascending order.
    n_columns : int
        The number of all columns of λ.
    few : bool
        Whether tables have rows for these words alone, and not for all columns.
    names : ndarray of int32, shape (n_occurring,)
        Their numbers in the documents, which are the columns themselves unless words that no
        document has share one.
    """

    occurring: np.ndarray
    n_columns: int
    few: bool
    names: np.ndarray

    @classmethod
    def of(cls, units: Documents, topics: Any, absent: AbsentWords | None = None) -> Words:
        """Return the words of some documents, given λ of shape (n_components, n_columns).

        ``absent`` are the words that share the last column, if some do. If λ is lazy, an update of
        all columns takes less time in that form, too.
        """
        n_columns = topics.shape[1]
        if absent is None:
            names = occurring = units.occurring(n_columns)
        else:
            names = units.occurring(absent.n_words)
            occurring = absent.columns_of(names)
        some = len(occurring) < n_columns - (absent is not None)
        few = units.n_entries < _FEW_ENTRIES * n_columns and (
            some or isinstance(topics, LazyColumns)
        )
        few = few or _FEW_WORDS * len(occurring) <= n_columns
        return cls(occurring, n_columns, bool(few), names)

    def listed_by(self, units: Documents) -> bool:
        """Whether the documents list where these words, and no others, occur."""
        return units.lists_words and units.occurring(self.n_columns) is self.names

    @cached_property
    def _row_of_word(self) -> np.ndarray:
        rows = np.empty(int(self.names[-1]) + 1 if len(self.names) else 0, dtype=np.int32)
        rows[self.names] = self.rows
        return rows

    @property
    def rows(self) -> np.ndarray:
        """The rows of these words in a table."""
        return np.arange(len(self.names), dtype=np.int32) if self.few else self.occurring

    def rows_of(self, units: Documents, words: np.ndarray) -> np.ndarray:
        """Return the rows of the words of some documents, which must be among these."""
        if not self.few and self.names is self.occurring:
            return words
        if self.listed_by(units) and self._are_first:
            return units.occurrences.places
        rows = kept_memory.empty(words.shape, np.int32)
        compiled("ragged").renumber(rows.view(np.uint32), self._row_of_word, words)
        return rows

    @property
    def _are_first(self) -> bool:
        """Whether the rows of these words are 0, 1, 2, …"""
        return self.few or len(self.occurring) == 0 or self.occurring[-1] < len(self.occurring)


def log_topics(expected: Concentrations) -> Topics:
    """Return E log β_kw = ψ(λ_kw) − ψ(Σ_v λ_kv), reduced by m_w."""
    topics = _empty_topics(expected, np.float64)
    # The kernel finds λ in the rows of the table, which may have more words.
    values = expected.stored if len(expected.offsets) == 0 else expected.values()
    tables().expected_logs(values, expected.rows, psi(expected.totals), *topics)
    return topics


def _empty_topics(expected: Concentrations, dtype: DTypeLike) -> Topics:
    shape = expected.n_rows, -(-len(expected.totals) // _LANES) * _LANES
    return Topics(kept_memory.empty(shape, dtype), np.empty(expected.n_rows))


def expected_topics(
    expected: Concentrations, dtype: DTypeLike, x: float, workers: Workers
) -> Topics:
    """Return exp{x (E log β − m)}."""
    topics = _empty_topics(expected, dtype)
    workers.share_kernel(
        tables().expected_table,
        (
            *(topics.table, *expected.arrays, expected.rows, psi(expected.totals), x),
            topics.largest,
        ),
        len(expected.rows),
        max(1, _ENTRIES_OF_KERNEL // topics.table.shape[1]),
    )
    return topics


def mean_topics(expected: Concentrations, dtype: DTypeLike, workers: Workers) -> Topics:
    """Return E β_kw = λ_kw / Σ_v λ_kv, divided by its largest entry of each word."""
    topics, n_topics = _empty_topics(expected, dtype), len(expected.totals)
    topics.table[:, n_topics:] = 0.0

    def find(part: slice) -> None:
        rows = expected.rows[part]
        means = expected.values(part) / expected.totals
        largest = means.max(axis=1)
        topics.table[rows, :n_topics] = means / largest[:, None]
        topics.largest[rows] = np.log(largest)

    workers.share(find, len(expected.rows), words_of_task(topics.table.shape[1]))
    return topics


def drawn_topics(
    draw: TopicsDraw, expected: Concentrations, dtype: DTypeLike, x: float, workers: Workers
) -> Topics:
    """Return exp{x (log β − m)} of the words of a draw."""
    topics = _empty_topics(expected, dtype)
    workers.share_kernel(
        tables().drawn_table,
        (topics.table, draw.log_gamma, expected.rows, draw.log_total, x, topics.largest),
        len(expected.rows),
        max(1, _ENTRIES_OF_KERNEL // topics.table.shape[1]),
    )
    return topics
