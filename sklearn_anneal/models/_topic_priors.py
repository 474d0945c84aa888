"""The priors of topics that are learned."""

from __future__ import annotations

import numpy as np
from scipy.special import psi

# Empirical Bayes keeps Dirichlet parameters between these bounds.
_SMALLEST, _LARGEST = 1e-4, 1e3
# A prior of sampled topics that is learned begins with at most this share of the tokens of a
# document. With more, the tokens of short documents hardly keep together until it is learned. So
# does a prior that would be learned if the counts were no fractions, and stays.
_LARGEST_FIRST = 0.3
# Elsewhere a prior that would be learned begins with 5 tokens. In documents with fewer than twice
# as many it has more than a third of the say, so that their tokens, of which a share goes to every
# topic, do not keep together at all. And each topic has a fraction of a count there, from which
# the prior would be learned too high. It has at most this share of the tokens then, and stays.
_SHORT, _LARGEST_OF_SHORT = 10.0, 0.1


def are_short(mean_length: float) -> bool:
    """Return whether documents have too few tokens to learn α where topics share each of them."""
    return mean_length < _SHORT


def first_of_tokens(
    doc_topic_prior: np.ndarray, mean_length: float, shared: bool = False
) -> np.ndarray:
    """Return α as far as documents of a mean number of tokens bear it.

    ``shared`` says that all topics have a share of every token, unlike tokens that are sampled.
    """
    share = _LARGEST_OF_SHORT if shared else _LARGEST_FIRST
    most = share * mean_length / len(doc_topic_prior)
    return np.minimum(doc_topic_prior, max(most, _SMALLEST))


def fixed_point(
    parameter: np.ndarray, digammas: np.ndarray, normalizers: float, n: float, total: float
) -> np.ndarray:
    """Make one fixed-point step for Pólya samples (Minka 2000, Estimating a Dirichlet, Eq. 55).

    Over the ``n`` samples, ``digammas`` is Σ ψ(parameter + count) and ``normalizers`` is
    Σ ψ(total + size).
    """
    if n == 0:
        return parameter
    up = digammas - n * psi(parameter)
    down = normalizers - n * psi(total)
    # Without any count, both are zero up to rounding, and their ratio would be arbitrary.
    factor = up / down if down > 0 else np.ones_like(up)
    return np.clip(parameter * np.maximum(factor, 0.0), _SMALLEST, _LARGEST)
