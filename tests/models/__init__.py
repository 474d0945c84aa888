"""What the common tests need to know of each model, one module per model.

A new model joins by one file here, which says how its estimator is made, what its data look like
and what its results are compared with, and by one line in ``ENTRIES``. The last entry is the
worked example of the page for developers, which is not a part of the package.
"""

from __future__ import annotations

from models import (
    gaussian_mixture,
    geometric_mixture,
    hidden_markov,
    latent_dirichlet,
    matrix_factorization,
)
from models._entry import Entry

__all__ = ["ENTRIES", "Entry"]

ENTRIES: list[Entry] = [
    *gaussian_mixture.ENTRIES,
    *latent_dirichlet.ENTRIES,
    *hidden_markov.ENTRIES,
    *matrix_factorization.ENTRIES,
    *geometric_mixture.ENTRIES,
]
"""All models, in the order in which the common tests take them."""
