"""Data for gamma-process factorisation: drawn counts, texts, and images of digits.

``nips.npz`` and ``newsgroups20.npz`` hold counts as CSR arrays ``data``, ``indices``, ``indptr``
and ``shape``. The digits of 8 × 8 pixels, whose values are counts from 0 to 16, are those of
scikit-learn.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from sklearn_anneal.datasets import make_gamma_process_nmf

from ..latent_dirichlet.data import FILES as TEXTS
from ..latent_dirichlet.data import corpus

DIGITS, NIPS, NEWSGROUPS = "digits 8 × 8", "NIPS", "20 Newsgroups"
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


@cache
def _rows(name: str, n_columns: int) -> Any:
    """All rows of a real data set, with its most frequent columns alone."""
    X = load_digits().data.astype(np.int64) if name == DIGITS else corpus(name)
    frequent = np.sort(np.argsort(-np.asarray(X.sum(axis=0)).ravel(), kind="stable")[:n_columns])
    return X[:, frequent]


def split(name: str, n_train: int, n_test: int, n_columns: int, seed: int) -> tuple:
    """Rows for fitting, for choosing settings, and held out, which the seed draws.

    The rows for choosing are as many as those held out. A column that has no count in the rows for
    fitting is left out.
    """
    X = _rows(name, n_columns)
    order = np.random.default_rng(seed).permutation(X.shape[0])[: n_train + 2 * n_test]
    train = X[order[:n_train]]
    used = np.flatnonzero(np.asarray(train.sum(axis=0)).ravel() > 0)
    chosen, held_out = (X[order[n_train + i * n_test :][:n_test]][:, used] for i in (0, 1))
    return train[:, used], chosen, held_out
