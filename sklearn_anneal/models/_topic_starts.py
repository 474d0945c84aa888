"""Starts of topics from documents."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..data.units import Documents
from ._base import compiled
from ._topic_summary import Summary

# The share of a topic's first tokens that one document gives; the others are those of the corpus.
_SHARE_OF_DOCUMENT = 0.2
# The tokens of so many documents are counted at a time.
_AT_A_TIME = 4096

kernels = partial(compiled, "ragged")


def make_like_documents(
    start: np.ndarray,
    units: Documents,
    summary: Summary,
    topic_word_prior: np.ndarray,
    random_state: np.random.RandomState,
) -> None:
    """Give each topic the tokens of a random document, and tokens of the whole corpus.

    Parameters
    ----------
    start : ndarray of shape (n_topics, n_words)
        Factors with a mean of 1, by which the tokens of the corpus are multiplied. It becomes λ.
    units : Documents
    summary : Summary
    topic_word_prior : ndarray of shape (n_words,)
        η.
    random_state : RandomState
    """
    weights = np.ones(units.n_units) if units.weights is None else units.weights
    # A document of weight 2 is chosen as often as two copies of it.
    ends = np.cumsum(weights * (units.lengths > 0))
    if ends[-1] == 0:
        return
    chosen = np.searchsorted(ends, random_state.uniform(0, ends[-1], len(start)), side="right")
    # One more token of each word: a first batch does not have all words of a stream.
    frequencies = _tokens_of_words(units, weights, start.shape[1]) + 1.0
    frequencies /= frequencies.sum()
    tokens = summary.mean_length * summary.weight / len(start)
    start *= (1.0 - _SHARE_OF_DOCUMENT) * tokens * frequencies
    start += topic_word_prior
    for topic, d in zip(start, chosen, strict=True):
        own = slice(units.indptr[d], units.indptr[d + 1])
        counts = units.counts[own].astype(np.float64)
        topic[units.words[own]] += _SHARE_OF_DOCUMENT * tokens * counts / units.lengths[d]


def _tokens_of_words(units: Documents, weights: np.ndarray, n_words: int) -> np.ndarray:
    """Return the weighted number of tokens of each word, of shape (n_words,)."""
    found = np.zeros(n_words)
    for begin in range(0, units.n_units, _AT_A_TIME):
        part = slice(begin, begin + _AT_A_TIME)
        # The counts are converted a part at a time, because a copy of all may be too large.
        kernels().add_entries(*units.take(part).arrays(np.float64), weights[part], found)
    return found
