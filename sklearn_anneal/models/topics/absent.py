"""Words of the vocabulary that no document of a fit has, as one column of its parameters.

Such words have no statistics S, so that an update moves all of them alike: λ_w is η_w, or a mixture
of η_w and of what the word started with. A local step reads of them only their part of Σ_w λ_kw. A
fit therefore has one column for all of them together, the last one, which is the sum of theirs, and
its cost depends on the words that occur. Where each of them counts, in the bound, all are taken to
have an equal part of the sum, as they have after an update from all documents. After the fit every
word has a column again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Random values of all words are drawn for so many at a time.
_DRAWN = 4096


@dataclass(frozen=True)
class AbsentWords:
    """The words without documents, as the difference between two vocabularies.

    Parameters
    ----------
    occurring : ndarray of int32, shape (n_occurring,)
        The words that documents have, in ascending order. They are the first columns of a fit.
    n_words : int
        The number of all words.
    """

    occurring: np.ndarray
    n_words: int

    @property
    def n_columns(self) -> int:
        """The number of columns of a fit: those of the words that occur, and one for the others."""
        return len(self.occurring) + 1

    @property
    def number(self) -> int:
        """The number of absent words."""
        return self.n_words - len(self.occurring)

    def columns_of(self, words: np.ndarray) -> np.ndarray:
        """Return the columns of words that occur, given in ascending order."""
        if words is self.occurring or len(words) == len(self.occurring):
            return np.arange(len(words), dtype=np.int32)
        return np.searchsorted(self.occurring, words).astype(np.int32)

    def summed(self, values: np.ndarray) -> np.ndarray:
        """Return values of all words, along the last axis, with the sum of those of absent ones."""
        absent = self._mask()
        total = values[..., absent].sum(axis=-1, keepdims=True)
        return np.concatenate([values[..., self.occurring], total], axis=-1)

    def summed_draws(self, draw: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return random values of all words, with the sum of those of absent ones.

        ``draw`` returns the values of the next n words, (n, n_topics), which are not in memory all
        at once. The result has shape (n_columns, n_topics).
        """
        parts, total = [], 0.0
        for first in range(0, self.n_words, _DRAWN):
            drawn = draw(min(_DRAWN, self.n_words - first))
            begin, end = np.searchsorted(self.occurring, [first, first + len(drawn)])
            own = self.occurring[begin:end] - first
            parts.append(drawn[own])
            drawn[own] = 0.0
            total = total + drawn.sum(axis=0)
        return np.vstack([*parts, total])

    def are_alike(self, values: np.ndarray) -> bool:
        """Return whether the values of absent words, along the last axis, are equal."""
        found = values[..., self._mask()]
        return bool((found == found[..., :1]).all())

    def restored(self, topics: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """Return λ of all words, (n_topics, n_words), given that of a fit, (n_topics, n_columns).

        It is laid out word by word, as that of a fit. An absent word has η, which is the ``prior``,
        (n_words,) or (n_topics, n_words), and its part of what the column of all has beyond it. All
        of them have the same η, so that their rows are copies of one.
        """
        of_absent = np.atleast_2d(prior)[:, self._mask()]
        beyond = topics[:, -1] - of_absent.sum(axis=-1)
        found = np.full((self.n_words, len(topics)), of_absent[:, 0] + beyond / self.number)
        found[self.occurring] = topics[:, :-1].T
        return found.T

    def _mask(self) -> np.ndarray:
        absent = np.ones(self.n_words, dtype=bool)
        absent[self.occurring] = False
        return absent
