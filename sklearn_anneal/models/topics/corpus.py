"""Passes over all documents before a fit of topics begins: for a summary, and for the start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...data.units import Documents
from .._base import DataSummary, compiled
from .._light_counts import are_fractions, are_light, why_fractions, why_light, why_short
from .absent import AbsentWords

# The share of a topic's first tokens that one document gives; the others are those of the corpus.
_SHARE_OF_DOCUMENT = 0.2
# The tokens of so many documents are counted at a time.
_AT_A_TIME = 4096

kernels = partial(compiled, "ragged")


@dataclass
class Summary(DataSummary):
    """The sizes of a corpus that the model needs."""

    # Σ w, the number of documents. In a stream it includes documents that have not arrived yet.
    weight: float
    tokens: float  # Σ w N_d over the documents seen
    # A histogram of the documents seen: numbers of tokens N_d, rounded to three digits, and the
    # total weight of the documents of each length, (n_lengths,).
    lengths: np.ndarray
    documents: np.ndarray
    # Σ ⌈c⌉ over the counts of the documents seen that have a positive weight: the number of tokens
    # if none had a weight, and fractions were whole. 0 unless topics are sampled or a prior is
    # learned.
    whole_tokens: float
    weighted_whole: float  # Σ w ⌈c⌉, the same with weights

    @property
    def mean_length(self) -> float:
        """Mean number of tokens of the documents seen."""
        return self.tokens / max(float(self.documents.sum()), 1e-300)

    @property
    def are_light(self) -> bool:
        """Whether counts or weights are too light for priors to be learned from them."""
        return are_fractions(self.tokens, self.weighted_whole) or are_light(
            self.tokens, self.whole_tokens
        )

    def why_not_learned(self, model: Any) -> str | None:
        names = model.learned_names
        if names and are_fractions(self.tokens, self.weighted_whole):
            return why_fractions(names, "a token", self.tokens, self.weighted_whole)
        if names and are_light(self.tokens, self.whole_tokens):
            return why_light(names, self.tokens, self.whole_tokens)
        return None

    def why_kept(self, model: Any) -> str | None:
        reason = self.why_not_learned(model)
        return why_short(self.mean_length) if reason is None and model.keeps_alpha else reason

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both sets of documents together."""
        lengths, documents = histogram(
            np.concatenate([self.lengths, other.lengths]),
            np.concatenate([self.documents, other.documents]),
        )
        weight, tokens = self.weight + other.weight, self.tokens + other.tokens
        whole = self.whole_tokens + other.whole_tokens
        weighted = self.weighted_whole + other.weighted_whole
        return Summary(weight, tokens, lengths, documents, whole, weighted)

    def continued(self, other: Summary) -> Summary:
        """Return the summary of the other documents, because no prior depends on earlier ones."""
        return other


def histogram(lengths: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of documents, rounded to three digits, and the weight of each length."""
    scale = 10.0 ** (np.floor(np.log10(np.maximum(lengths, 1e-300))) - 2)
    values, where = np.unique(np.round(lengths / scale) * scale, return_inverse=True)
    return values, np.bincount(where, weights=weights, minlength=len(values))


def make_like_documents(
    of_topics: tuple[np.ndarray, np.ndarray, AbsentWords | None],
    units: Documents,
    summary: Summary,
    random_state: np.random.RandomState,
) -> None:
    """Give each topic the tokens of a random document, and tokens of the whole corpus.

    Parameters
    ----------
    of_topics : tuple
        Factors with a mean of 1, of shape (n_topics, n_columns), by which the tokens of the corpus
        are multiplied, and which become λ; η of the columns; and the words that share the last
        column, if some do.
    units : Documents
    summary : Summary
    random_state : RandomState
    """
    start, eta, absent = of_topics
    weights = np.ones(units.n_units) if units.weights is None else units.weights
    # A document of weight 2 is chosen as often as two copies of it.
    ends = np.cumsum(weights * (units.lengths > 0))
    if ends[-1] == 0:
        return
    chosen = np.searchsorted(ends, random_state.uniform(0, ends[-1], len(start)), side="right")
    # One more token of each word: a first batch does not have all words of a stream.
    n_words = start.shape[1] if absent is None else absent.n_words
    frequencies = _tokens_of_words(units, weights, n_words) + 1.0
    total = frequencies.sum()
    if absent is not None:
        # Factors of absent words have been summed, and each of the words has one token.
        frequencies = np.append(frequencies[absent.occurring], 1.0)
    frequencies /= total
    tokens = summary.mean_length * summary.weight / len(start)
    start *= (1.0 - _SHARE_OF_DOCUMENT) * tokens * frequencies
    start += eta
    for topic, d in zip(start, chosen, strict=True):
        own = slice(units.indptr[d], units.indptr[d + 1])
        counts, words = units.counts[own].astype(np.float64), units.words[own]
        columns = words if absent is None else np.searchsorted(absent.occurring, words)
        topic[columns] += _SHARE_OF_DOCUMENT * tokens * counts / units.lengths[d]


def _tokens_of_words(units: Documents, weights: np.ndarray, n_words: int) -> np.ndarray:
    """Return the weighted number of tokens of each word, of shape (n_words,)."""
    found = np.zeros(n_words)
    for begin in range(0, units.n_units, _AT_A_TIME):
        part = slice(begin, begin + _AT_A_TIME)
        # The counts are converted a part at a time, because a copy of all may be too large.
        kernels().add_entries(*units.take(part).arrays(np.float64), weights[part], found)
    return found
