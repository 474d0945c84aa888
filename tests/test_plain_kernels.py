"""Predictions of few rows need no compiled kernels, and are those that compiled ones make."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import plain_topics
import pytest
from scipy.sparse import csr_matrix, issparse
from test_import import HEAVY, STATEMENTS

import sklearn_anneal
from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
)
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.estimators import _count_predictions, _mixture_predictions
from sklearn_anneal.kernels.plain import latent_dirichlet
from sklearn_anneal.kernels.plain.counts import Entries
from sklearn_anneal.models import _count_activations
from sklearn_anneal.models.topics import predictions as of_topics

CHECK = """
import pickle, sys

def check(what):
    loaded = {heavy!r} & {{name.partition(".")[0] for name in sys.modules}}
    if loaded:
        sys.exit(f"{{what}} imported " + ", ".join(sorted(loaded)))

for statement in {statements!r}:
    exec(statement)
    check(statement)
import numpy as np
with open(sys.argv[1], "rb") as file:
    cases = pickle.load(file)
for est, X, expected in cases:
    for name, value in expected.items():
        found = getattr(est, name)(X)
        if np.abs(found - value).max() > 1e-9:
            sys.exit(f"{{type(est).__name__}}.{{name}} is not what the process of the fit predicts")
        check(f"{{type(est).__name__}}.{{name}}")
import numba
check("the last statement")
"""
SAMPLED = StructuredVI(n_passes=5, evaluate_every=5)
QUICK = {"annealing": "none", "max_iter": 5, "random_state": 0}


def gaussian(covariance_type, missing=False):
    def make(rng):
        X = rng.standard_normal((80, 4)) + 3.0 * rng.integers(0, 3, (80, 1))
        if missing:
            X[rng.random(X.shape) < 0.3] = np.nan
            X[3] = np.nan
        est = AnnealedBayesianGaussianMixture(3, covariance_type=covariance_type, **QUICK)
        return est.fit(X), X

    return make


def columns(emission, form=np.asarray, missing=False, scale=1.0, **params):
    def make(rng):
        X = rng.integers(0, 2 if emission == "bernoulli" else 4, (80, 7)) * scale
        if missing:
            X[rng.random(X.shape) < 0.2] = np.nan
        X = form(X)
        return AnnealedBayesianMixture(3, emission=emission, **params, **QUICK).fit(X), X

    return make


def blocks(rng):
    X = np.hstack([rng.integers(0, 3, (80, 4)), rng.standard_normal((80, 3))])
    emission = [("c", "categorical", slice(0, 4)), ("g", "gaussian", slice(4, 7))]
    est = AnnealedBayesianMixture(3, emission=emission, covariance_type="full", **QUICK)
    return est.fit(X), X


MIXTURES = {
    **{kind: gaussian(kind) for kind in ("full", "tied", "diag", "spherical")},
    **{f"{kind}-missing": gaussian(kind, True) for kind in ("full", "tied", "diag")},
    "bernoulli": columns("bernoulli"),
    "bernoulli-missing": columns("bernoulli", missing=True),
    "bernoulli-sparse": columns("bernoulli", csr_matrix),
    "categorical": columns("categorical"),
    "categorical-missing": columns("categorical", missing=True),
    "poisson-sparse-missing": columns("poisson", csr_matrix, True),
    "negative_binomial": columns("negative_binomial", missing=True),
    "zero_inflated_poisson-sparse": columns("zero_inflated_poisson", csr_matrix, True),
    "poisson-large": columns("poisson", missing=True, scale=1e6),
    "gaussian-full-missing": columns("gaussian", missing=True, covariance_type="full"),
    "blocks": blocks,
}


def counts(rng, n_columns=12):
    """Rows of counts of three patterns, one of which has no count, and one has large ones."""
    patterns = rng.dirichlet(np.full(n_columns, 0.2), size=3)
    X = rng.poisson(20.0 * rng.dirichlet(np.full(3, 0.3), size=30) @ patterns).astype(float)
    X[4], X[5] = 0.0, 1e6 * X[6]
    return X


def factorization(form=np.asarray, missing=False, dtype=np.float64, **params):
    def make(rng):
        X = counts(rng)
        if missing:
            X[rng.random(X.shape) < 0.2] = np.nan
        X = form(X.astype(dtype))
        return AnnealedGammaProcessNMF(3, **params, **QUICK).fit(X), X

    return make


def topics(n_components=3, dtype=np.float64, scale=1.0, **params):
    def make(rng):
        X = csr_matrix((scale * counts(rng)).astype(dtype))
        return AnnealedLatentDirichletAllocation(n_components, **QUICK | params).fit(X), X

    return make


COUNTS = {
    "dense": factorization(),
    "dense-missing": factorization(missing=True),
    "sparse": factorization(csr_matrix),
    "one-sweep": factorization(csr_matrix, max_sweeps=1),
    "single-precision": factorization(csr_matrix, dtype=np.float32),
    "noise-missing": factorization(missing=True, dispersion=0.3),
    "noise-sparse": factorization(csr_matrix, dispersion=0.3),
    "topics": topics(),
    "topics-single-precision": topics(dtype=np.float32),
    # Of many topics, most leave a document early. Some documents converge slowly between two, which
    # amplifies rounding.
    "topics-many": topics(20, doc_topic_prior=0.01, mean_change_tol=1e-6),
    "topics-vanishing": topics(20, doc_topic_prior=1e-5, scale=1e-6, mean_change_tol=1e-9),
    "topics-vanishing-single-precision": topics(20, np.float32, 1e-3, doc_topic_prior=1e-3),
    "topics-sampled": topics(annealing=SAMPLED),
    "topics-sampled-single-precision": topics(annealing=SAMPLED, dtype=np.float32),
    "topics-fractions": topics(annealing=SAMPLED, scale=0.3),
    "topics-cvb0": topics(20, local_step="cvb0", doc_topic_prior=1e-3),
    "topics-cvb0-few-iterations": topics(local_step="cvb0", max_doc_update_iter=2),
    "topics-cvb0-no-iterations": topics(local_step="cvb0", max_doc_update_iter=0),
    "topics-few-iterations": topics(20, doc_topic_prior=0.01, max_doc_update_iter=5),
}
METHODS = ("predict", "predict_proba", "transform", "score_samples", "perplexity", "score")


def predictions(est, X, methods=METHODS):
    return {name: getattr(est, name)(X) for name in methods if hasattr(est, name)}


@cache
def made(name):
    """A fitted estimator and its data."""
    return (MIXTURES | COUNTS)[name](np.random.default_rng(0))


@pytest.mark.parametrize("name", [*MIXTURES, *COUNTS])
def test_few_rows_are_predicted_as_many(name, monkeypatch):
    est, X = made(name)
    methods = METHODS if issparse(X) else (*METHODS, "impute")
    plain = predictions(est, X, methods)
    for module in (_mixture_predictions, _count_predictions):
        monkeypatch.setattr(module, "_MOST_PLAIN", -1)
    for module in (of_topics, _count_activations):
        monkeypatch.setattr(module, "_MOST_PRODUCTS", -1)
    for method, compiled in predictions(est, X, methods).items():
        # Rows of large counts with noise converge slowly, too, and the score of documents of few
        # tokens is divided by these.
        slow = any(part in name for part in ("topics-many", "vanishing", "noise"))
        tolerance = 1e-4 if "single" in name else 1e-8 if slow else 1e-11
        np.testing.assert_allclose(plain[method], compiled, rtol=tolerance, atol=tolerance)


def test_documents_of_many_words_are_few_only_where_all_words_are_updated_at_once(rng):
    est, _ = topics(annealing=SAMPLED)(rng)
    model, q = est._context().model, {"topic_word": np.ones((3, 129))}
    for n_words, few in ((128, True), (129, False)):
        units = est._make_units(csr_matrix(np.ones((1, n_words))), None)
        assert of_topics.are_few(model, units, q, word_by_word=True) is few
        assert of_topics.are_few(model, units, q)


def test_a_topic_that_has_left_a_document_can_return():
    """Its word is another topic's at first, but that one has nothing else to live on."""
    n_topics = 40
    log_beta = np.full((n_topics, 20), -300.0)
    log_beta[0, :19] = -3.0
    log_beta[:3, 19] = -70.0, 0.0, -48.0
    X = np.full((1, 20), 5.0)
    X[0, 19] = 1.0
    alpha, start = np.full(n_topics, 0.02), np.full((1, n_topics), 0.02)
    start[0, 0], start[0, 2] = 95.0, 1e9
    entries = Entries(X, np.exp(log_beta.T)[None])
    settings = 500, 1e-9
    expected = plain_topics.corpus_step(X, log_beta, alpha, start, *settings)
    assert expected.gammas[0, 1] > 0.9
    gamma, *_ = latent_dirichlet.mean_field(entries, alpha, start, *settings)
    np.testing.assert_allclose(gamma, expected.gammas, rtol=1e-6, atol=1e-6)


def test_a_process_that_predicts_few_rows_does_not_import_numba(rng, tmp_path):
    """Neither do the statements that import the package and make estimators.

    The last statement imports numba, so that the check can be seen to work.
    """
    cases = []
    # Of names that differ in a setting alone, the first; missing cells and kinds of topics differ.
    kinds = [*MIXTURES, "dense", "dense-missing", "sparse", "topics", "topics-many"]
    for name in (*kinds, "topics-sampled", "topics-cvb0"):
        est, X = made(name)
        cases.append((est, X, predictions(est, X)))
    pairs = np.argwhere(rng.random((20, 10)) < 0.5)
    est = AnnealedPMF(2, input="pairs", **QUICK).fit(pairs, rng.integers(1, 6, len(pairs)))
    users = np.arange(3)
    cases.append((est, pairs, {"predict": est.predict(pairs)}))
    cases.append((est, users, {"recommend_for": est.recommend_for(users)}))
    path = tmp_path / "cases.pickle"
    path.write_bytes(pickle.dumps(cases))
    found = subprocess.run(
        [sys.executable, "-c", CHECK.format(statements=STATEMENTS, heavy=set(HEAVY)), path],
        capture_output=True,
        text=True,
        check=False,
        # The current directory comes first, so that the subprocess imports this package.
        cwd=Path(sklearn_anneal.__file__).parents[1],
    )
    assert found.stderr == "the last statement imported llvmlite, numba\n"
