"""Helpers that the modules test_latent_dirichlet_*.py share: data, estimators, comparisons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import plain_topics as plain
import pytest
from harness import context_of, units_of, visit
from peer_priors import PEER_OF_TOPICS
from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import NoAnnealing
from sklearn_anneal.data.units import Documents

ROOT = Path(__file__).resolve().parents[1]
FORMS = {
    "none": (1.0, 1.0, 1.0),
    "likelihood": (0.5, 0.5, 1.0),
    "posterior": (0.5, 0.5, 0.5),
    "local": (0.5, 1.0, 1.0),
    "all_different": (0.6, 0.8, 0.3),
}
"""x, s, y: inverse temperatures of the local step, the statistics and the prior."""


def draw_corpus(rng, n_documents=60, n_words=40, n_topics=4, length=30, eta=0.1):
    """Counts drawn from the model, with documents of very different lengths."""
    beta = rng.dirichlet(np.full(n_words, eta), size=n_topics)
    theta = rng.dirichlet(np.full(n_topics, 0.3), size=n_documents)
    lengths = rng.poisson(length, size=n_documents) + 1
    return csr_matrix(rng.multinomial(lengths, theta @ beta))


def documents(X, weights=None):
    X = csr_matrix(X)
    return Documents(X.data, X.indices, X.indptr, weights)


def small(n_components=3, **params):
    settings = {
        **PEER_OF_TOPICS,
        "annealing": "none",
        "learning_method": "batch",
        "effort": 0,
        "max_iter": 8,
        "random_state": 0,
    }
    return AnnealedLatentDirichletAllocation(n_components, **(settings | params))


@pytest.fixture(name="X")
def corpus(rng):
    """The argument ``X`` of the tests in every module that imports this fixture."""
    return draw_corpus(rng)


def spread(X, alpha, form):
    """The default start of documents: their tokens are spread evenly over all topics."""
    _, s, y = form
    lengths = np.asarray(X.sum(axis=1), dtype=float).reshape(-1, 1)
    return plain.tempered_prior(np.asarray(alpha), y) + s * lengths / len(alpha)


def evaluation(lda, X):
    """The plain local step at the fitted topics, and the divergence of these from their prior."""
    ctx = context_of(lda)
    seen = visit(replace(ctx, exploring=False), NoAnnealing(), units_of(lda, X))
    return seen, ctx.model.kl(ctx.q, ctx.prior)
