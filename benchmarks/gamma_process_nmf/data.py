"""Counts for gamma-process factorisation: drawn ones, and texts.

The texts are those of ``benchmarks/latent_dirichlet/data.py``.
"""

from __future__ import annotations

from sklearn_anneal.datasets import make_gamma_process_nmf

from ..latent_dirichlet.data import FILES as TEXTS

NIPS, NEWSGROUPS = "NIPS", "20 Newsgroups"
FILES = {name: TEXTS[name] for name in (NIPS, NEWSGROUPS)}
# The priors of Hoffman and Blei's experiment, from which activations and components are drawn here.
# They took components that resemble spectra of speech.
ACTIVATION_PRIOR, COMPONENT_PRIOR = 0.2, 0.25


def drawn(n_rows: int, n_columns: int, n_components: int, mean: float, seed: int) -> tuple:
    """Counts of a given mean, and the components that they were drawn from."""
    X, _, truth = make_gamma_process_nmf(
        n_rows,
        n_columns,
        n_components=n_components,
        mean_count=mean,
        activation_prior=ACTIVATION_PRIOR,
        component_prior=COMPONENT_PRIOR,
        random_state=seed,
    )
    return X, truth.components
