"""Whether counts and weights are large enough for priors to be learned from them.

Empirical Bayes learns from how much more counts vary than whole tokens would by chance. Fractions
of counts vary less than that, however documents differ, so that the evidence has no inner optimum
and a prior that is learned runs to its upper bound. Weights far below one do the same to the sums
over documents from which topics are learned.
"""

from __future__ import annotations

from collections.abc import Iterable

# Σ c / Σ ⌈c⌉ below which counts c are fractions. It is 1 for whole counts, and 1/√n for n words
# whose squares sum to 1.
_FRACTION = 0.75
# The mean weight of tokens below which topics have too little of them.
_LIGHT = 0.1


def are_fractions(total: float, whole: float) -> bool:
    """Return whether counts with the sum ``total`` are fractions, given Σ ⌈c⌉."""
    return total < _FRACTION * whole


def are_light(total: float, whole: float) -> bool:
    """Return whether tokens with the total weight ``total`` are light, given their number."""
    return total < _LIGHT * whole


def why_fractions(names: Iterable[str], what: str, total: float, whole: float) -> str:
    """Return why priors are not learned from fractions, and what to do.

    ``names`` has the priors, as parameters of the estimator, and ``what`` is the name of a count in
    the model. The numbers are Σ c and Σ ⌈c⌉.
    """
    listed = " and ".join(names)
    return (
        "X holds fractions of counts, as tf-idf and rows that are divided by their sums do: "
        f"{what} weighs {total / whole:.2g} on average. They do not determine how strong a prior "
        f"is, so that the fit does not learn {listed}. Give counts, from "
        "CountVectorizer for example, or X times a constant that makes it counts, or a number for "
        f"{listed}."
    )


def why_light(names: Iterable[str], total: float, whole: float) -> str:
    """Return why priors are not learned from tokens of little weight, and what to do."""
    listed = " and ".join(names)
    return (
        f"A token weighs {total / whole:.2g} on average, because sample_weight is far below 1. A "
        "weight is a number of copies, and so little data does not determine how strong a prior "
        f"is, so that the fit does not learn {listed}. Multiply sample_weight "
        "by a constant that makes its mean 1."
    )


def why_short(mean_length: float) -> str:
    """Return why α is not learned from documents of few tokens, and what to do."""
    return (
        f"A document has {mean_length:.2g} tokens on average, and each is divided among the topics "
        "by this local_step. So few tokens leave every topic a fraction of a count, and fractions "
        "do not determine how strong a prior is, so that the fit does not learn "
        "doc_topic_prior. The default settings, under which each token is drawn to belong to one "
        "topic, do learn it; or give a number for doc_topic_prior."
    )
