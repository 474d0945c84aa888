"""Priors are not learned from fractions of counts, nor from data of almost no weight."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from designs import in_turn
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix
from scipy.special import gammaln
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import adjusted_rand_score

from sklearn_anneal import (
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
    AnnealedLatentDirichletAllocation,
    Shards,
)
from sklearn_anneal.inference import conjugate

METHODS = {
    "sampled": {},
    "cvb0": {"local_step": "cvb0"},
    "gibbs": {"annealing": "none", "local_step": "gibbs", "max_iter": 10},
    "draws": {"local_step": "mean_field"},
    "plain": {"annealing": "none"},
    "annealed": {"annealing": "deterministic"},
    "minibatches": {"annealing": "none", "learning_method": "online", "batch_size": 50},
}
ways = pytest.mark.parametrize("params", METHODS.values(), ids=METHODS)


def warned(call, match):
    """The result of a call, and how many of its warnings contain a text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, sum(match in str(one.message) for one in caught)


@pytest.fixture
def kinds(rng):
    """Documents of three kinds, and the kind of most tokens of each."""
    words = np.kron(np.eye(3), np.ones(8))
    X = rng.poisson(words[rng.integers(0, 3, 150)] * 2 + 0.02).astype(float)
    return X, X.reshape(150, 3, 8).sum(axis=-1).argmax(axis=1)


def rows_to_one(X):
    return X / X.sum(axis=1, keepdims=True)


def tf_idf(X):
    return TfidfTransformer().fit_transform(X)


# Topics


def evidence(counts, alpha):
    """log p of the topics of tokens, of which the counts of each document are given."""
    k = counts.shape[1]
    of_totals = gammaln(k * alpha) - gammaln(k * alpha + counts.sum(axis=1))
    return np.sum(of_totals) + np.sum(gammaln(alpha + counts) - gammaln(alpha))


def test_the_evidence_of_fractions_has_no_inner_optimum(rng):
    """Documents differ as far as they can, and the evidence still asks for equal ones."""
    alphas = np.geomspace(1e-3, 1e3, 61)
    shares = 0.88 * np.eye(3)[rng.integers(0, 3, 200)] + 0.04
    of_fractions = [evidence(shares, alpha) for alpha in alphas]
    assert np.argmax(of_fractions) == 60
    of_counts = [evidence(np.round(50 * shares), alpha) for alpha in alphas]
    assert 0 < np.argmax(of_counts) < 40


@in_turn(way=METHODS, divided=(rows_to_one, tf_idf))
def test_topics_of_fractions_are_found_under_a_prior_that_stays(divided, way, kinds):
    X, kind = divided(kinds[0]), kinds[1]
    lda = AnnealedLatentDirichletAllocation(3, random_state=0, **METHODS[way])
    lda, n = warned(lambda: lda.fit(X), "X holds fractions of counts")
    assert n == 1
    assert adjusted_rand_score(kind, lda.transform(X).argmax(axis=1)) > 0.95
    # It stays at what the documents bear from the start.
    assert len(set(lda.doc_topic_prior_)) == 1
    assert lda.doc_topic_prior_.sum() <= 0.3 * X.sum(axis=1).mean() * (1 + 1e-9)


@ways
def test_priors_of_counts_are_learned_without_a_word(params, kinds):
    lda = AnnealedLatentDirichletAllocation(3, random_state=0, topic_word_prior="auto", **params)
    lda.set_params(max_iter=120)
    lda, n = warned(lambda: lda.fit(kinds[0]), "does not learn")
    assert n == 0
    assert len(set(lda.doc_topic_prior_)) == 3
    assert lda.topic_word_prior_ not in (1 / 3, 2 / 3**0.75)


def test_a_fixed_prior_needs_no_warning(kinds):
    X, kind = rows_to_one(kinds[0]), kinds[1]
    lda = AnnealedLatentDirichletAllocation(3, doc_topic_prior=0.1, random_state=0)
    lda, n = warned(lambda: lda.fit(X), "does not learn")
    assert n == 0
    assert adjusted_rand_score(kind, lda.transform(X).argmax(axis=1)) > 0.95


@pytest.mark.parametrize("name", ["doc_topic_prior", "topic_word_prior"])
def test_the_warning_names_the_priors_and_what_a_token_weighs(name, kinds):
    fixed = {"doc_topic_prior": 0.1, "topic_word_prior": 0.1, name: "auto"}
    lda = AnnealedLatentDirichletAllocation(3, annealing="none", max_iter=3, **fixed)
    with pytest.warns(
        UserWarning, match=rf"weighs 0\.062 on average.* the fit does not learn {name}"
    ):
        lda.fit(np.full((4, 16), 1 / 16))


def test_a_stream_warns_of_fractions_once(kinds, monkeypatch):
    """Its priors would be learned after some updates."""
    monkeypatch.setattr(conjugate, "_UPDATES_BEFORE_LEARNING", 20)
    X, kind = rows_to_one(kinds[0][:60]), kinds[1][:60]
    lda = AnnealedLatentDirichletAllocation(3, annealing="none", random_state=0, total_samples=1e4)

    def stream():
        for _ in range(25):
            lda.partial_fit(X)
        return lda

    _, n = warned(stream, "X holds fractions of counts")
    assert n == 1
    assert len(set(lda.doc_topic_prior_)) == 1
    assert adjusted_rand_score(kind, lda.transform(X).argmax(axis=1)) > 0.95
    counts = AnnealedLatentDirichletAllocation(3, annealing="none", random_state=0)
    for _ in range(25):
        counts.partial_fit(kinds[0][:60])
    assert len(set(counts.doc_topic_prior_)) == 3


def test_parts_and_warm_starts_judge_all_data(kinds):
    """Half of the documents are counts, and weigh more than the fractions of the other half."""
    X = kinds[0]
    lda = AnnealedLatentDirichletAllocation(3, annealing="none", random_state=0)
    _, n = warned(lambda: lda.fit(Shards([X[:75], rows_to_one(X[75:])])), "X holds fractions")
    assert n == 1
    _, n = warned(lambda: lda.fit(Shards([X[:75], X[75:]])), "X holds fractions")
    assert n == 0
    alpha = lda.doc_topic_prior_
    lda.set_params(warm_start=True)
    _, n = warned(lambda: lda.fit(rows_to_one(X)), "X holds fractions")
    assert n == 1
    np.testing.assert_array_equal(lda.doc_topic_prior_, alpha)


def test_weights_are_no_fractions_unless_they_are_tiny(kinds):
    X = kinds[0]
    lda = AnnealedLatentDirichletAllocation(3, annealing="none", random_state=0)
    lda.set_params(topic_word_prior="auto")
    for weight, expected in ((0.5, 0), (1e-3, 1), (1e-6, 1)):
        weights = np.full(len(X), weight)
        _, n = warned(lambda w=weights: lda.fit(X, sample_weight=w), "is far below 1")
        assert n == expected
        assert (len(set(lda.doc_topic_prior_)) == 1) == bool(expected)
        assert (lda.topic_word_prior_ == 1 / 3) == bool(expected)


# Short documents

SHARING = {
    "plain": {"annealing": "none"},
    "annealed": {"annealing": "deterministic"},
    "draws": {"local_step": "mean_field"},
    "minibatches": {"annealing": "none", "learning_method": "online"},
    "cvb0": {"local_step": "cvb0"},
    "gibbs": {"annealing": "none", "local_step": "gibbs", "max_iter": 20},
}


def short_documents(rng, length=5, n=250):
    """Documents drawn from five topics of 40 words with α = 0.1, and their proportions."""
    topics = rng.dirichlet(np.full(40, 0.1), size=5)
    proportions = rng.dirichlet(np.full(5, 0.1), size=n)
    return rng.multinomial(length, proportions @ topics), proportions, topics


def error_of_proportions(lda, X, proportions, topics):
    """Mean distance of the proportions of documents from those of the nearest drawn topics."""
    found = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    distances = np.abs(topics[:, None] - found).sum(axis=-1)
    order = linear_sum_assignment(distances)[1]
    return np.abs(lda.transform(X)[:, order] - proportions).sum(axis=1).mean()


@pytest.mark.parametrize("params", SHARING.values(), ids=SHARING)
def test_topics_of_short_documents_are_those_under_the_prior_that_drew_them(params, rng):
    """Fractions of five tokens would let α be learned too high, and mix all documents."""
    drawn = short_documents(rng)
    lda = AnnealedLatentDirichletAllocation(5, random_state=0, **params)
    known = AnnealedLatentDirichletAllocation(5, random_state=0, doc_topic_prior=0.1, **params)
    lda, n = warned(lambda: lda.fit(drawn[0]), "the fit does not learn doc_topic_prior")
    assert n == 1
    assert_allclose(lda.doc_topic_prior_, 0.1)
    expected = error_of_proportions(known.fit(drawn[0]), *drawn)
    assert error_of_proportions(lda, *drawn) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("params", [SHARING["cvb0"], SHARING["plain"]], ids=["cvb0", "plain"])
def test_documents_of_ten_tokens_determine_their_prior(params, rng):
    lda = AnnealedLatentDirichletAllocation(5, random_state=0, **params)
    for length, expected in ((10, 0), (9, 1)):
        X = short_documents(rng, length, 200)[0]
        _, n = warned(lambda X=X: lda.fit(X), "does not learn")
        assert n == expected
        assert len(set(lda.doc_topic_prior_)) == (1 if expected else 5)


def test_sampled_tokens_of_short_documents_determine_their_prior(rng):
    """They are whole counts. Of 250 documents, other draws have half of the prior or twice that."""
    drawn = short_documents(rng, n=1000)
    lda = AnnealedLatentDirichletAllocation(5, random_state=0)
    _, n = warned(lambda: lda.fit(drawn[0]), "does not learn")
    assert n == 0
    assert 0.3 < lda.doc_topic_prior_.sum() < 0.7  # 0.5 drew them
    known = AnnealedLatentDirichletAllocation(5, random_state=0, doc_topic_prior=0.1)
    expected = error_of_proportions(known.fit(drawn[0]), *drawn)
    assert error_of_proportions(lda, *drawn) < expected + 0.05


def test_topics_of_short_documents_still_learn_the_prior_of_words(rng):
    lda = AnnealedLatentDirichletAllocation(
        5, annealing="none", topic_word_prior="auto", random_state=0
    )
    _, n = warned(
        lambda: lda.fit(short_documents(rng)[0]), "the fit does not learn doc_topic_prior"
    )
    assert n == 1
    assert lda.topic_word_prior_ != 1 / 5


# Factorisation of counts


def counts_of_three_parts(rng):
    return rng.poisson(rng.gamma(0.5, size=(200, 3)) @ rng.gamma(0.3, size=(3, 30)) * 5)


@pytest.mark.parametrize("form", ["dense", "sparse", "missing"])
def test_factors_of_fractions_keep_their_priors(form, rng):
    X = counts_of_three_parts(rng).astype(float)
    X[0, 0] = np.nan if form == "missing" else 1.0
    form_of = csr_matrix if form == "sparse" else np.asarray
    nmf = AnnealedGammaProcessNMF(3, annealing="none", max_iter=200, random_state=0)
    nmf, n = warned(lambda: nmf.fit(form_of(X * 0.03)), "X holds fractions of counts")
    assert n == 1
    priors = nmf.activation_prior_, nmf.component_prior_, nmf.concentration_
    assert priors == (0.1, 0.1, 1.0)
    nmf, n = warned(lambda: nmf.fit(form_of(X)), "X holds fractions of counts")
    assert n == 0
    # Activations and components were drawn with 0.5 and 0.3.
    assert 0.25 < nmf.activation_prior_ < 1.0
    assert 0.1 < nmf.component_prior_ < 0.6


def test_a_spectrogram_of_fractions_has_counts_enough(rng):
    """Rows and columns sum to more than a hundred, although hardly an entry is above one."""
    X = rng.poisson(rng.gamma(0.5, size=(400, 2)) @ rng.gamma(2.0, size=(2, 400))) / 4
    nmf = AnnealedGammaProcessNMF(4, annealing="none", max_iter=20, random_state=0)
    nmf, n = warned(lambda: nmf.fit(X), "X holds fractions of counts")
    assert n == 0
    assert 0.25 < nmf.activation_prior_ < 1.0


# Weights


@pytest.mark.parametrize("emission", ["gaussian", "poisson", "categorical", "bernoulli"])
def test_mixtures_learn_nothing_from_less_than_one_row(emission, rng):
    z = rng.integers(0, 2, 60)
    X = rng.integers(0, 2, (60, 4)) ^ z[:, None]
    if emission == "gaussian":
        X = X + 4.0 * z[:, None]
    names = ["weight_concentration_prior"]
    names += {
        "gaussian": ["means_prior", "beta_prior", "dof_prior", "scale_prior"],
        "poisson": ["lambdas_prior", "lambdas_weight_prior"],
    }.get(emission, ["emissionprob_prior"])
    mixture = AnnealedBayesianMixture(2, emission=emission, annealing="none", random_state=0)
    few = np.full(60, 1e-4)

    def priors(max_iter, weights):
        mixture.set_params(max_iter=max_iter).fit(X, sample_weight=weights)
        return np.concatenate([np.ravel(getattr(mixture, f"{name}_")) for name in names])

    found, n = warned(lambda: priors(50, few), "sample weights sum to 0.006")
    assert n == 1
    np.testing.assert_array_equal(found, priors(0, few))
    found, n = warned(lambda: priors(50, None), "sample weights")
    assert n == 0
    assert not np.array_equal(found, priors(0, None))
