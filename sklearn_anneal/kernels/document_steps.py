"""Functions that the local steps of all topic models share: arguments, and sums over documents.

The sums are terms of the lower bound and E log θ, in float64, whatever the dtype of the data is.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper
from ._math import digamma, log_gamma
from .counts import filled, padded
from .simd.emitter import LANES

LOCAL_STEP = (
    "values index pointer rows vector vector float float float int int float vector vector "
    "out2 out2 out2 out1 out1"
)
"""The kinds of the arguments of a local step, which ``latent_dirichlet.mean_field`` explains."""
# A count above this is sampled as so many tokens of equal mass.
MOST_TOKENS = 1024


@helper
def tokens_of(count):
    """The number of tokens that are sampled for a count of a word in a document."""
    return int(np.ceil(min(np.float64(count), np.float64(MOST_TOKENS))))


@helper
def token_mass(count, j):
    """The mass of token j of a count. The fraction of a count is one more, smaller token."""
    whole = np.float64(count)
    return whole / MOST_TOKENS if whole > MOST_TOKENS else min(1.0, whole - j)


@helper
def document_sums(alpha, gamma, tokens_of_topics, weight, scratch, expected_log, theta, sums):
    """Add Σ n_k E log θ_k, E log p(θ) without its constant, and H[q(θ)]; returns ψ(Σ γ).

    What belongs into an array without entries is not computed.
    """
    if theta.shape[0] == 0 and sums.shape[0] == 0:
        return 0.0
    concentration = 0.0
    n_topics = alpha.shape[0]
    for k in range(n_topics):
        concentration += gamma[k]
    normalizer = digamma(concentration)
    # The loop covers the padding too, because entries that are left over from whole vectors would
    # be processed one by one, which is slow.
    for k in range(gamma.shape[0]):
        expected_log[k] = digamma(gamma[k]) - normalizer
    if sums.shape[0] > 0:
        energy = 0.0
        prior = 0.0
        entropy = -log_gamma(concentration)
        for k in range(gamma.shape[0]):
            scratch[k] = log_gamma(gamma[k])
        for k in range(n_topics):
            energy += tokens_of_topics[k] * expected_log[k]
            prior += (alpha[k] - 1.0) * expected_log[k]
            entropy += scratch[k] - (gamma[k] - 1.0) * expected_log[k]
        sums[1] += weight * energy
        sums[2] += weight * prior
        sums[3] += weight * entropy
    if theta.shape[0] > 0:
        for k in range(n_topics):
            theta[k] += weight * expected_log[k]
        theta[n_topics] += weight
        theta[n_topics + 1] += weight * normalizer
    return normalizer


@helper
def scratch_arrays(alpha):
    """Four arrays with an entry for each topic, padded to whole vectors."""
    n = padded(alpha.shape[0], LANES)
    numbers = filled(4 * n, 1.0, alpha.dtype)
    return numbers[:n], numbers[n : 2 * n], numbers[2 * n : 3 * n], numbers[3 * n :]


@helper
def tempered_prior(alpha, prior):
    """b + y (α − b), with the parameter b = 1 of the flat density."""
    # Without a temperature the result must be exactly α.
    return alpha if prior == 1.0 else 1.0 + prior * (alpha - 1.0)
