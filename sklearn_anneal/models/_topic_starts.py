"""Starts of topics from documents."""

from __future__ import annotations

import numpy as np

from ..inference.units import Documents
from ._topic_summary import Summary

# The share of a topic's first tokens that one document gives; the others are those of the corpus.
_SHARE_OF_DOCUMENT = 0.2


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
    counts, words, indptr = units.arrays(np.float64)
    weights = np.ones(units.n_units) if units.weights is None else units.weights
    # A document of weight 2 is chosen as often as two copies of it.
    ends = np.cumsum(weights * (units.lengths > 0))
    if ends[-1] == 0:
        return
    chosen = np.searchsorted(ends, random_state.uniform(0, ends[-1], len(start)), side="right")
    counted = counts * np.repeat(weights, np.diff(indptr))
    # One more token of each word: a first batch does not have all words of a stream.
    frequencies = np.bincount(words, counted, start.shape[1]) + 1.0
    frequencies /= frequencies.sum()
    tokens = summary.mean_length * summary.weight / len(start)
    start *= (1.0 - _SHARE_OF_DOCUMENT) * tokens * frequencies
    start += topic_word_prior
    for topic, d in zip(start, chosen, strict=True):
        own = slice(indptr[d], indptr[d + 1])
        topic[words[own]] += _SHARE_OF_DOCUMENT * tokens * counts[own] / units.lengths[d]
