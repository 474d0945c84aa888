"""What the model of topics has to know of the training documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._light_counts import are_fractions, are_light, why_fractions, why_light, why_short
from ._summary import DataSummary


@dataclass
class Summary(DataSummary):
    """The sizes of a corpus that the model needs.

    Attributes
    ----------
    weight : float
        Σ w, the number of documents. In a stream it includes documents that have not arrived yet.
    tokens : float
        Σ w N_d over the documents seen.
    lengths, documents : ndarray of shape (n_lengths,)
        A histogram of the documents seen: numbers of tokens N_d, rounded to three digits, and the
        total weight of the documents of each length.
    whole_tokens : float
        Σ ⌈c⌉ over the counts of the documents seen that have a positive weight: the number of
        tokens if none had a weight, and fractions were whole. 0 unless topics are sampled or a
        prior is learned.
    weighted_whole : float
        Σ w ⌈c⌉, the same with weights.
    """

    weight: float
    tokens: float
    lengths: np.ndarray
    documents: np.ndarray
    whole_tokens: float
    weighted_whole: float

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
