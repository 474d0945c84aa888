"""Tables of the topics of words, which local steps read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi

from ..data.units import Documents
from ..families import LazyColumns
from ..parallel import kept_memory
from ..parallel.workers import Workers
from ._base import compiled
from ._topic_draws import TopicsDraw

# Tables are padded to a multiple of this many topics, which kernels process at a time.
_LANES = 8
# The tables of a visit have rows for the words that it meets alone, if these are at most one in so
# many, or if its documents have fewer entries than so many per word: updates of λ then take less
# time, which counts if documents take little.
_FEW_WORDS, _FEW_ENTRIES = 2, 32
# A task of the workers computes at least so many entries of a table, which takes about a tenth of a
# millisecond. With less work, another thread would save less than it takes to begin and to wait for
# entries that the first one has written.
_ENTRIES_OF_TASK = 2**15
# A part of such work that threads share without the interpreter has at least so many entries, which
# take about ten microseconds.
_ENTRIES_OF_KERNEL = 2**12

tables = partial(compiled, "counts")


def width_of(n_components: int) -> int:
    """Return the number of columns of a table."""
    return -(-n_components // _LANES) * _LANES


def words_of_task(width: int) -> int:
    """Return the smallest number of words for a task, given the number of topics."""
    return max(1, _ENTRIES_OF_TASK // width)


def _words_of_kernel(width: int) -> int:
    """Return the smallest number of words for a part of work that threads share in a kernel."""
    return max(1, _ENTRIES_OF_KERNEL // width)


class Concentrations(NamedTuple):
    """The parameters of q(β), from which a visit computes the topics of the words that it meets.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_components)
        They are λ of all words, or of the words that a visit meets.
    totals : ndarray of shape (n_components,)
        Σ_w λ_kw over all words.
    rows : ndarray of int32, shape (n_met,)
        The rows of the words that a visit meets.
    source : LazyColumns or None, default=None
        If given, λ is read from here, and ``values`` have no rows unless :meth:`with_room` has made
        room for what :meth:`fill` takes.
    met : ndarray of int32, shape (n_met,), or None, default=None
        The words that are taken from the source.
    """

    values: np.ndarray
    totals: np.ndarray
    rows: np.ndarray
    source: LazyColumns | None = None
    met: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows of a table of these words."""
        return len(self.values) if self.source is None else len(self.rows)

    @property
    def log_normalizer(self) -> np.ndarray:
        """ψ(Σ_w λ_kw), of shape (n_components,)."""
        return np.asarray(psi(self.totals))

    def in_place(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Return where a kernel reads λ of the words that a visit meets.

        Row i of λ is the row ``columns[i]`` of a matrix times a factor, plus the entry i of
        offsets if there are any: this is the matrix, ``columns``, the factor and the offsets.
        """
        if self.source is not None and self.met is not None:
            found = self.source.in_place(self.met)
            if found is not None:
                stored, factor, offsets = found
                return stored, self.met, factor, offsets
            copied = self.with_room()
            copied.fill()
            return copied.values, self.rows, 1.0, np.empty(0)
        return self.values, self.rows, 1.0, np.empty(0)

    def with_room(self) -> Concentrations:
        """Return these parameters with an array of all values, which have to be filled."""
        if self.source is None:
            return self
        return self._replace(values=kept_memory.empty((len(self.rows), len(self.totals))))

    def fill(self, part: slice = slice(None)) -> None:
        """Make sure that the values of some of the words that a visit meets are there.

        Whoever reads them first calls this method, so that the threads which share that work share
        this work too.
        """
        if self.source is not None and self.met is not None:
            self.source.take(self.met[part], self.values[part])


class Topics(NamedTuple):
    """E log β, or a draw of log β, in the layout of the kernels.

    Attributes
    ----------
    table : ndarray of shape (n_words, width)
        log β_kw − m_w, or exp{x (log β_kw − m_w)} if the table was prepared for a temperature.
        The number of columns is padded to a multiple of 8.
    largest : ndarray of shape (n_words,)
        m_w, the largest log β_kw of each word.

    Notes
    -----
    A visit that meets few words of the vocabulary has rows for these alone. Otherwise it fills only
    their rows, and others are uninitialised.
    """

    table: np.ndarray
    largest: np.ndarray


@dataclass(frozen=True)
class Words:
    """The words that occur in some documents.

    Parameters
    ----------
    met : ndarray of int32, shape (n_met,)
        Their numbers, in ascending order.
    n_words : int
        The number of all words.
    few : bool
        Whether tables have rows for these words alone, and not for all words.
    """

    met: np.ndarray
    n_words: int
    few: bool

    @classmethod
    def of(cls, units: Documents, topics: Any) -> Words:
        """Return the words of some documents, given λ of shape (n_components, n_words).

        If λ is lazy, an update of all words takes less time in that form, too.
        """
        n_words = topics.shape[1]
        met = units.met(n_words)
        lazy = len(met) < n_words or isinstance(topics, LazyColumns)
        few = units.n_entries < _FEW_ENTRIES * n_words and lazy
        return cls(met, n_words, bool(few or _FEW_WORDS * len(met) <= n_words))

    def listed_by(self, units: Documents) -> bool:
        """Whether the documents list where these words, and no others, occur."""
        return units.lists_words and units.met(self.n_words) is self.met

    @cached_property
    def _row_of_word(self) -> np.ndarray:
        rows = np.empty(self.n_words, dtype=np.int32)
        rows[self.met] = np.arange(len(self.met), dtype=np.int32)
        return rows

    def rows_of(self, units: Documents, words: np.ndarray) -> np.ndarray:
        """Return the rows of the words of some documents, which must be among ``met``."""
        if not self.few:
            return words
        if self.listed_by(units):
            return units.occurrences.places
        rows = kept_memory.empty(words.shape, np.int32)
        compiled("ragged").renumber(rows.view(np.uint32), self._row_of_word, words)
        return rows


def concentrations_of(topics: Any, words: Words | None = None) -> Concentrations:
    """Return λ of the words of a visit, or of all words, in the layout of the kernels.

    The result may have to be filled (:meth:`Concentrations.fill`).
    """
    if words is not None and words.few:
        rows = np.arange(len(words.met), dtype=np.int32)
        if isinstance(topics, LazyColumns):
            totals = topics.sums()
            return Concentrations(np.empty((0, len(totals))), totals, rows, topics, words.met)
        return Concentrations(topics.T[words.met], topics.T.sum(axis=0), rows)
    values = np.ascontiguousarray(topics.T)
    rows = np.arange(topics.shape[1], dtype=np.int32) if words is None else words.met
    return Concentrations(values, values.sum(axis=0), rows)


def log_topics(expected: Concentrations) -> Topics:
    """Return E log β."""
    expected = expected.with_room()
    expected.fill()
    topics = _empty_topics(expected, np.float64)
    tables().expected_logs(expected.values, expected.rows, expected.log_normalizer, *topics)
    return topics


def _empty_topics(expected: Concentrations, dtype: Any) -> Topics:
    n_rows = expected.n_rows
    return Topics(
        kept_memory.empty((n_rows, width_of(len(expected.totals))), dtype), np.empty(n_rows)
    )


def expected_topics(expected: Concentrations, dtype: Any, x: float, workers: Workers) -> Topics:
    """Return exp{x (E log β − m)}."""
    topics = _empty_topics(expected, dtype)
    workers.share_kernel(
        tables().expected_table,
        (
            topics.table,
            *expected.in_place(),
            expected.rows,
            expected.log_normalizer,
            x,
            topics.largest,
        ),
        len(expected.rows),
        _words_of_kernel(topics.table.shape[1]),
    )
    return topics


def mean_topics(expected: Concentrations, dtype: Any, workers: Workers) -> Topics:
    """Return E β divided by its largest entry of each word."""
    topics, expected = _empty_topics(expected, dtype), expected.with_room()
    topics.table[:, len(expected.totals) :] = 0.0

    def find(part: slice) -> None:
        expected.fill(part)
        rows = expected.rows[part]
        means = expected.values[rows] / expected.totals
        largest = means.max(axis=1)
        topics.table[rows, : len(expected.totals)] = means / largest[:, None]
        topics.largest[rows] = np.log(largest)

    workers.share(find, len(expected.rows), words_of_task(topics.table.shape[1]))
    return topics


def drawn_topics(
    draw: TopicsDraw, expected: Concentrations, dtype: Any, x: float, workers: Workers
) -> Topics:
    """Return exp{x (log β − m)} of the words of a draw."""
    topics = _empty_topics(expected, dtype)
    workers.share_kernel(
        tables().drawn_table,
        (topics.table, draw.log_gamma, expected.rows, draw.log_total, x, topics.largest),
        len(expected.rows),
        _words_of_kernel(topics.table.shape[1]),
    )
    return topics
