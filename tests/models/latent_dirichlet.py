"""Latent Dirichlet allocation, described for the common tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from enumeration import latent_dirichlet_log_evidence
from scipy.sparse import csr_matrix
from scipy.stats import dirichlet

from models._entry import Entry, ExpectedFailure, annealing_of, has_auto
from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.inference.visits import Visited

N_WORDS = 30


def documents(
    n_words: int = N_WORDS, lengths: tuple[int, int] = (10, 40)
) -> Callable[[np.random.Generator, int], csr_matrix]:
    """Counts of documents that mix three topics; the topics have some words in common."""

    def make(rng: np.random.Generator, n: int) -> csr_matrix:
        block = np.arange(n_words) * 3 // n_words
        topics = np.where(block == np.arange(3)[:, None], 1.0, 0.1)
        words = rng.dirichlet([0.3, 0.5, 0.8], size=n) @ topics
        tokens = rng.integers(lengths[0], lengths[1] + 1, size=n)
        return csr_matrix(rng.multinomial(tokens, words / words.sum(axis=1, keepdims=True)))

    return make


def tiny_documents(*texts: tuple[int, ...]) -> Callable[[np.random.Generator], csr_matrix]:
    """A function of a generator that ignores it and returns documents of the given words."""
    counts = np.array([np.bincount(text, minlength=N_WORDS) for text in texts])
    return lambda rng: csr_matrix(counts)


def small_topics(
    n_components: int = 3, doc_topic_prior: Any = None, **params: Any
) -> AnnealedLatentDirichletAllocation:
    """A small estimator; if priors are given for more topics, only a part of them is used."""
    settings = {
        "topic_word_prior": None,
        "annealing": "deterministic",
        "learning_method": "batch",
        "max_iter": 5,
        "effort": 0,
        "random_state": 0,
    }
    if np.ndim(doc_topic_prior):
        doc_topic_prior = doc_topic_prior[:n_components]
    return AnnealedLatentDirichletAllocation(
        n_components=n_components, doc_topic_prior=doc_topic_prior, **(settings | params)
    )


def entropy_of_proportions(visit: Visited, units: Any) -> float:
    """Σ w H[q(θ)] of the γ that a visit returned, computed by scipy."""
    entropies = [dirichlet(row).entropy() for row in np.concatenate(visit.local)]
    return float(
        np.dot(np.ones(len(entropies)) if units.weights is None else units.weights, entropies)
    )


def refused_by_topics(params: dict[str, Any]) -> dict[str, str]:
    if params.get("local_step", "mean_field") == "mean_field":
        return {}
    return {"local_tempering": "mean-field assignments"}


ENTRIES = [
    Entry(
        "latent_dirichlet",
        make=small_topics,
        data=documents(),
        variants={
            "symmetric": {},
            "asymmetric": {
                "doc_topic_prior": [0.2, 0.5, 0.9],
                "topic_word_prior": np.linspace(0.05, 0.8, N_WORDS).tolist(),
            },
            "above_one": {"doc_topic_prior": 1.5, "topic_word_prior": 2.5},
            "auto": {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
        },
        heuristics={"cvb0": {"local_step": "cvb0"}, "gibbs": {"local_step": "gibbs"}},
        sampled=("gibbs",),
        converged={"max_doc_update_iter": 2000, "mean_change_tol": 1e-13},
        frozen={"max_doc_update_iter": 0},
        one_optimum="above_one",
        learns=has_auto,
        minibatches={"learning_method": "online"},
        steps_of_minibatches={"local_step": "mean_field"},
        refused=refused_by_topics,
        several_chunks=documents(1000, (55, 65)),
        local_entropy=entropy_of_proportions,
        tiny={"V=30": tiny_documents((0, 0, 1), (1, 2, 2, 2), (0, 3))},
        log_evidence=latent_dirichlet_log_evidence,
        exact=tuple(
            ({"n_components": 1} | priors, "V=30")
            for priors in (
                {},
                {"topic_word_prior": np.linspace(0.05, 0.8, N_WORDS).tolist()},
                {"doc_topic_prior": 1.5, "topic_word_prior": 2.5},
            )
        ),
        checked=(
            {
                "n_components": 2,
                "learning_method": "online",
                "batch_size": 10,
                "effort": 0,
                "max_iter": 3,
            },
            {
                "n_components": 2,
                "doc_topic_prior": "auto",
                "topic_word_prior": "auto",
                "max_iter": 15,
                "effort": 0,
            },
            {"n_components": 2, "local_step": "cvb0", "effort": 0, "max_iter": 15},
            {"n_components": 2, "local_step": "gibbs", "effort": 0, "max_iter": 10},
        ),
        checked_small={"n_components": 2, "effort": 0, "init_params": "random", "max_iter": 15},
        expected_failures=dict.fromkeys(
            (
                "check_sample_weight_equivalence_on_dense_data",
                "check_sample_weight_equivalence_on_sparse_data",
            ),
            ExpectedFailure(
                "A weight of 2 is a second document to every update, but not to the random draws "
                "of minibatches, of documents to start from, of weights or starts per document, or "
                "of the topics of tokens.",
                lambda est: (
                    est.init_params == "documents"
                    or annealing_of(est) in ("stochastic", "svi_plus")
                    or est.local_step == "gibbs"
                    or (annealing_of(est) == "structured" and est.local_step == "auto")
                    or est.learning_method == "online"
                ),
            ),
        ),
    ),
]
