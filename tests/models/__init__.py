"""Descriptions of all models for the common tests, one module per model.

To add a model, write one file here and add one line to ``ENTRIES``. The file says how the estimator
is made, how its data look, and with which exact results it is compared. The last entry is the
worked example of the page for developers, which is not a part of the package.
"""

from __future__ import annotations

from models import (
    factorial_mixture,
    gamma_process_nmf,
    gaussian_mixture,
    geometric_mixture,
    hidden_markov,
    latent_dirichlet,
    matrix_factorization,
    mixture,
    sigmoid_belief_net,
    spike_slab_factor_analysis,
)
from models._entry import Entry

__all__ = ["ENTRIES", "TRAINED_BY_GRADIENTS", "Entry"]

ENTRIES: list[Entry] = [
    *gaussian_mixture.ENTRIES,
    *latent_dirichlet.ENTRIES,
    *hidden_markov.ENTRIES,
    *matrix_factorization.ENTRIES,
    *mixture.ENTRIES,
    *factorial_mixture.ENTRIES,
    *gamma_process_nmf.ENTRIES,
    *spike_slab_factor_analysis.ENTRIES,
    *geometric_mixture.ENTRIES,
]
"""All models, in the order in which the common tests take them."""

TRAINED_BY_GRADIENTS: list[Entry] = [
    *sigmoid_belief_net.ENTRIES,
    *spike_slab_factor_analysis.BY_GRADIENTS,
]
"""Models without a conjugate update, for the tests that need none."""
