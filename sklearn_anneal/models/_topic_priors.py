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


def first_of_tokens(doc_topic_prior: np.ndarray, mean_length: float) -> np.ndarray:
    """Return α as far as documents of a mean number of tokens bear it."""
    most = _LARGEST_FIRST * mean_length / len(doc_topic_prior)
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
