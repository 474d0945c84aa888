"""Tests of the memory that fits of topics take."""

from __future__ import annotations

import pickle
import warnings
from itertools import product

import numpy as np
import pytest
from cases_latent_dirichlet import draw_corpus, small
from harness import quick
from scipy.sparse import csr_matrix
from sklearn.base import clone
from test_memory import peak_of

from sklearn_anneal import AnnealedLatentDirichletAllocation


def test_nothing_of_the_size_of_the_corpus_stays(rng):
    X = draw_corpus(rng, n_documents=2000, n_words=30, length=5)
    for params in (
        {},
        {"annealing": "deterministic"},
        {"annealing": "stochastic"},
        {"annealing": "local_tempering"},
        {"annealing": "svi_plus"},
        {"learning_method": "online"},
    ):
        lda = small(4, max_iter=2, **params)
        if params.get("annealing"):
            lda.set_params(annealing__n_passes=2)
        size = len(pickle.dumps(lda.fit(X)))
        # γ alone would be 64 kB, one number per document 16 kB.
        assert size < 14_000, f"{params}: {size} bytes"


def memory(n_documents, n_words, n_topics, *, length=10, stream=False, dtype=float, **params):
    """The memory of a fit in MB."""
    # Every document has one word of each of some parts of the vocabulary.
    rng, width = np.random.default_rng(0), n_words // length
    words = np.arange(length) * width + rng.integers(width, size=(n_documents, length))
    counts = rng.integers(1, 4, size=words.size).astype(dtype)
    indptr = np.arange(0, words.size + 1, length)
    X = csr_matrix((counts, words.astype(np.int32).ravel(), indptr), (n_documents, n_words))
    settings = {"annealing": "none", "max_iter": 2, "max_doc_update_iter": 3, "batch_size": 1000}
    lda = AnnealedLatentDirichletAllocation(n_topics, **settings | params)

    def fit():
        if not stream:
            return lda.fit(X)
        for begin in range(0, n_documents, 1000):
            lda.partial_fit(X[begin : begin + 1000])
        return lda

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Kernels and what libraries load when first used are not the fit's.
        clone(lda).fit(X[:200])
        return peak_of(fit)[1]


@pytest.mark.parametrize(
    "params",
    [
        # It has as many reheats as are needed for what they keep to be in memory.
        {"annealing": quick("deterministic", 2), "effort": 1},
        *(
            pytest.param({"annealing": annealing, "dtype": dtype}, marks=pytest.mark.exhaustive)
            for annealing, dtype in product(
                ("none", quick("stochastic", 2), quick("local_tempering", 2)),
                (np.float64, np.float32),
            )
        ),
    ],
)
def test_a_batch_fit_has_no_array_of_tokens_and_topics(params):
    """It would grow by 19 MB, and one of documents and topics by 0.6 MB."""
    few, many = (memory(n, 1_000, 20, length=30, **params) for n in (4_000, 8_000))
    assert many - few < 8
    assert few < 12


def test_a_stream_has_no_array_of_all_documents():
    """One for each document and topic would grow by 3.8 MB."""
    updates = {"stream": True, "max_iter": 1}
    few, many = (memory(n, 2_000, 120, length=3, **updates) for n in (4_000, 8_000))
    assert many - few < 0.5
    assert few < 14  # a (V, K) float64 array has 1.9 MB, and one of a batch 1 MB


@pytest.mark.exhaustive
def test_a_batch_fit_has_four_numbers_of_each_word_and_topic():
    """λ, its table of exponentials, a sum of statistics and a part of it are alive at once."""
    few, many = (memory(1_000, n_words, 100) for n_words in (4_000, 8_000))
    assert many - few < 4.5 * 8e-6 * 4_000 * 100
