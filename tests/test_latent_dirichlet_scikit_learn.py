"""Tests of topics in the place of scikit-learn's class: bounds, forms of data, refusals."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import plain_topics as plain
import pytest
from cases_latent_dirichlet import (
    corpus,  # noqa: F401
    draw_corpus,
    evaluation,
    small,
)
from harness import context_of
from numpy.testing import assert_allclose, assert_array_equal
from peer_priors import PEER_OF_TOPICS
from scipy.sparse import coo_matrix, csc_matrix, csr_array, csr_matrix, issparse, vstack
from scipy.special import gammaln
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents

# The bound


@pytest.mark.parametrize(("alpha", "eta"), [(None, None), (0.05, 0.01), (1.7, 2.5)])
def test_the_bound_is_that_of_scikit_learn_at_the_same_gamma(alpha, eta, X):
    lda = small(4, doc_topic_prior=alpha, topic_word_prior=eta).fit(X)
    seen, divergence = evaluation(lda, X)
    peer = LatentDirichletAllocation(4)
    peer.components_ = lda.components_
    peer.doc_topic_prior_ = lda.doc_topic_prior_
    peer.topic_word_prior_ = lda.topic_word_prior_
    gamma = np.concatenate(seen.local)
    expected = peer._approx_bound(X, gamma, sub_sampling=False)
    assert_allclose(seen.step.bound - divergence, expected, rtol=1e-8)
    assert_allclose(lda.transform(X, normalize=False), gamma, rtol=1e-12)


def test_perplexity_is_the_bound_of_scikit_learns_documents_at_expected_topics(X):
    """scikit-learn's mean-field step gets E β in the place of exp(E log β)."""
    exact = {"mean_change_tol": 1e-10, "max_doc_update_iter": 2000}
    lda = small(4, doc_topic_prior=0.4, **exact).fit(X)
    topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    peer = LatentDirichletAllocation(4, **exact)
    peer.doc_topic_prior_, peer.exp_dirichlet_component_ = lda.doc_topic_prior_, topics
    peer.random_state_ = np.random.RandomState(0)
    gamma, _ = peer._e_step(X.astype(float), cal_sstats=False, random_init=False)
    log_theta = plain.expected_log(gamma)
    bound = np.sum(X.toarray() * np.log(np.exp(log_theta) @ topics))
    bound -= np.sum(
        [
            -plain.expected_log_density(np.full(4, 0.4), row) - plain.dirichlet_entropy(row)
            for row in gamma
        ]
    )
    assert_allclose(lda.perplexity(X), np.exp(-bound / X.sum()), rtol=1e-8)


def test_perplexity_is_near_that_of_the_exact_likelihood_of_documents(X):
    """log p(w | α, β) of short documents by the sum over the topics of all tokens."""
    lda = small(2, doc_topic_prior=[0.3, 0.8], topic_word_prior=0.2).fit(X)
    topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    documents = [[0, 0, 3], [5, 7, 20, 20], [39], [1, 2, 30, 31, 31, 8]]
    counts = np.array([np.bincount(words, minlength=40) for words in documents])
    alpha, exact = lda.doc_topic_prior_, 0.0
    for words in documents:
        likelihood = 0.0
        for z in product(range(2), repeat=len(words)):
            n = np.bincount(z, minlength=2)
            of_topics = gammaln(alpha.sum()) - gammaln(alpha.sum() + len(words))
            of_topics += np.sum(gammaln(alpha + n) - gammaln(alpha))
            likelihood += np.exp(of_topics) * np.prod(topics[list(z), words])
        exact += np.log(likelihood)
    least = np.exp(-exact / counts.sum())
    assert least < lda.perplexity(counts) < 1.15 * least


def test_perplexity_and_score_rank_numbers_of_topics_alike(rng):
    """Twenty sparse topics of 3,000 words and few documents: each topic lacks most words."""
    beta = rng.dirichlet(np.full(3000, 0.05), size=20)
    theta = rng.dirichlet(np.full(20, 0.1), size=200)
    X = np.array([rng.multinomial(60, row @ beta) for row in theta])
    few, many = (
        AnnealedLatentDirichletAllocation(k, annealing=StructuredVI(n_passes=60), random_state=0)
        for k in (2, 20)
    )
    few.fit(X[:100]), many.fit(X[:100])
    assert many.score(X[100:]) > few.score(X[100:]) + 0.05
    assert many.perplexity(X[100:]) < few.perplexity(X[100:])


@pytest.mark.parametrize("learning_method", ["batch", "online"])
@pytest.mark.parametrize("local_step", ["mean_field", "cvb0", "gibbs"])
def test_bound_is_the_perplexity_of_the_training_set(local_step, learning_method, X):
    lda = small(learning_method=learning_method, local_step=local_step, batch_size=20).fit(X)
    assert_allclose(lda.bound_, lda.perplexity(X), rtol=1e-12)
    assert lda.perplexity(X) == lda.perplexity(X, sub_sampling=True)


@pytest.mark.parametrize("copies", [2, 7])
def test_perplexity_does_not_depend_on_the_number_of_documents(copies, X):
    lda = small().fit(X)
    assert_allclose(lda.perplexity(vstack([X[:9]] * copies)), lda.perplexity(X[:9]), rtol=1e-10)
    peer = LatentDirichletAllocation(3, random_state=0).fit(X)
    assert peer.perplexity(vstack([X[:9]] * copies)) < 0.95 * peer.perplexity(X[:9])


def test_score_is_document_completion(X, rng):
    lda = small().fit(X)
    test = vstack([draw_corpus(rng, 10), csr_matrix(np.eye(1, 40, dtype=int)), X[:3]]).tocsr()
    observed, held_out = split_documents(test)
    topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    each, tokens = document_completion_log_likelihood(held_out, lda.transform(observed), topics)
    long_enough = np.asarray(test.sum(axis=1)).ravel() >= 2
    assert not long_enough[10]
    expected = each[long_enough].sum() / tokens[long_enough].sum()
    assert_allclose(lda.score(test), expected, rtol=1e-12)
    weights = rng.uniform(size=14)
    expected = (weights * each)[long_enough].sum() / (weights * tokens)[long_enough].sum()
    assert_allclose(lda.score(test, sample_weight=weights), expected, rtol=1e-12)
    order = rng.permutation(14)
    assert_allclose(lda.score(test[order]), lda.score(test), rtol=1e-12)
    with pytest.raises(ValueError, match="two tokens"):
        lda.score(np.eye(3, 40))


def test_score_of_fractional_counts_needs_two_words(X, rng):
    """Whole words are split, whatever their sum is; a single one has no other half."""
    lda = small().fit(X)
    test = draw_corpus(rng, 12).toarray() / 1e3
    lonely = 2.5 * np.eye(1, 40)
    observed, held_out = split_documents(test)
    topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    each, tokens = document_completion_log_likelihood(held_out, lda.transform(observed), topics)
    expected = each.sum() / tokens.sum()
    assert_allclose(lda.score(test), expected, rtol=1e-12)
    assert_allclose(lda.score(np.vstack([test, lonely])), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="two distinct words"):
        lda.score(lonely)


def test_a_search_over_rows_of_normalised_counts_has_scores(rng):
    X = draw_corpus(rng, 60).toarray().astype(float)
    X /= X.sum(axis=1, keepdims=True)
    lda = AnnealedLatentDirichletAllocation(annealing="none", max_iter=5, doc_topic_prior=0.1)
    search = GridSearchCV(lda, {"n_components": [2, 4]}, cv=2, error_score="raise").fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# In the place of scikit-learn's class


def test_parameters_and_attributes_of_scikit_learn(X):
    ours, peer = AnnealedLatentDirichletAllocation(), LatentDirichletAllocation()
    theirs = peer.get_params()
    assert theirs.keys() <= ours.get_params().keys()
    different = {name for name, value in theirs.items() if ours.get_params()[name] != value}
    assert different == {
        *("doc_topic_prior", "topic_word_prior", "learning_method", "batch_size"),
        *("max_iter", "total_samples", "max_doc_update_iter", "learning_decay"),
    }, "defaults differ from scikit-learn's without a word in the docstring"
    settings = {"learning_method": "online", "batch_size": 16, "max_iter": 2, "random_state": 0}
    settings |= PEER_OF_TOPICS
    peer = peer.set_params(**settings).fit(X)
    ours = ours.set_params(annealing="none", **settings).fit(X)
    # Ours keeps no generator, because the seeds of all parts of a fit follow from one number.
    for name in vars(peer).keys() - peer.get_params().keys() - {"random_state_"}:
        theirs, found = np.asarray(getattr(peer, name)), np.asarray(getattr(ours, name))
        assert found.shape == theirs.shape, name
        assert found.dtype.kind == theirs.dtype.kind, name
    assert ours.n_batch_iter_ == peer.n_batch_iter_
    assert ours.doc_topic_prior_ == peer.doc_topic_prior_


def test_the_start_is_that_of_scikit_learn(X):
    peer = LatentDirichletAllocation(3, random_state=5)
    peer._init_latent_vars(X.shape[1])
    assert_array_equal(
        small(random_state=5, max_iter=0, init_params="random").fit(X).components_, peer.components_
    )


def test_a_fit_is_as_good_as_that_of_scikit_learn(X):
    """By scikit-learn's own measure, the bound on the corpus with its own local step."""
    peer = LatentDirichletAllocation(4, random_state=0, max_iter=100).fit(X)
    lda = small(4, max_iter=100).fit(X)
    theirs = peer.score(X)
    peer.components_, peer.exp_dirichlet_component_ = (
        lda.components_,
        lda.exp_dirichlet_component_,
    )
    assert peer.score(X) > theirs - 0.02 * X.sum()


FORMATS = {
    "csr int64": lambda X: X.astype(np.int64),
    "csr int32": lambda X: X.astype(np.int32),
    "csr uint8": lambda X: X.astype(np.uint8),
    "csr array": csr_array,
    "csc": csc_matrix,
    "coo": coo_matrix,
    "dense": lambda X: X.toarray(),
    "dense Fortran": lambda X: np.asfortranarray(X.toarray()),
    "dense int": lambda X: X.toarray().astype(int),
    "lists": lambda X: X.toarray().tolist(),
}


def int64_indices(X):
    X = X.copy()
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def with_duplicates(X):
    """Every entry in two parts, and words in reverse order."""
    coo = coo_matrix(X)
    halves = (np.tile(coo.row, 2)[::-1], np.tile(coo.col, 2)[::-1])
    order = np.argsort(halves[0], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(halves[0], minlength=X.shape[0]))])
    data = np.tile(coo.data / 2, 2)[::-1][order]
    return csr_matrix((data, halves[1][order], indptr), shape=X.shape)


FORMATS |= {"int64 indices": int64_indices, "duplicates": with_duplicates}


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_of_the_counts_does_not_matter(name, X):
    X = X.astype(float)
    other = FORMATS[name](X)
    parts = [name for name in ("data", "indices", "indptr") if issparse(other)]
    before = {part: getattr(other, part).copy() for part in parts if hasattr(other, part)}
    expected, found = small(max_iter=3).fit(X), small(max_iter=3).fit(other)
    assert_array_equal(found.components_, expected.components_)
    assert found.components_.dtype == np.float64
    assert_array_equal(found.transform(other), expected.transform(X))
    assert found.perplexity(other) == expected.perplexity(X)
    assert found.score(other) == expected.score(X)
    assert_array_equal(small().partial_fit(other).components_, small().partial_fit(X).components_)
    for part, values in before.items():
        assert_array_equal(getattr(other, part), values, err_msg="the user's matrix was changed")


@pytest.mark.parametrize("local_step", ["mean_field", "cvb0"])
def test_float32_stays_float32(local_step, X):
    single = X.astype(np.float32)
    for learning_method in ("batch", "online"):
        params = {"learning_method": learning_method, "local_step": local_step, "max_iter": 3}
        one, two = small(**params).fit(single), small(**params).fit(X.astype(float))
        for lda, dtype in ((one, np.float32), (two, np.float64)):
            assert lda.components_.dtype == dtype
            assert lda.exp_dirichlet_component_.dtype == dtype
            assert lda.transform(X).dtype == dtype
            assert lda.transform(single, normalize=False).dtype == dtype
            assert context_of(lda).q["topic_word"].dtype == np.float64
        assert_allclose(one.components_, two.components_, rtol=1e-3)
        assert_allclose(one.lower_bound_, two.lower_bound_, rtol=1e-5)


def test_exp_dirichlet_component(X):
    lda = small().fit(X)
    assert_allclose(
        lda.exp_dirichlet_component_, np.exp(plain.expected_log(lda.components_)), rtol=1e-10
    )


def test_names_of_topics_and_data_frames(X):
    pandas = pytest.importorskip("pandas")
    words = [f"word {i}" for i in range(X.shape[1])]
    frame = pandas.DataFrame(X.toarray(), columns=words)
    lda = small(3).set_output(transform="pandas").fit(frame)
    names = [f"annealedlatentdirichletallocation{k}" for k in range(3)]
    assert_array_equal(lda.get_feature_names_out(), names)
    found = lda.transform(frame)
    assert list(found.columns) == names
    assert_allclose(found.to_numpy(), small(3).fit(X).transform(X), rtol=1e-12)
    assert_array_equal(lda.feature_names_in_, words)
    assert set(lda.top_words(n=2)[0]) <= set(words)
    with pytest.raises(ValueError, match="feature names"):
        lda.transform(frame[words[::-1]])


def test_transform_without_normalisation_gives_gamma(X):
    lda = small(doc_topic_prior=[0.2, 0.3, 0.9]).fit(X)
    gamma = lda.transform(X, normalize=False)
    assert_allclose(gamma.sum(axis=1), 1.4 + np.asarray(X.sum(axis=1)).ravel(), rtol=1e-9)
    shares = gamma / gamma.sum(axis=1, keepdims=True)
    assert_allclose(lda.transform(X), shares, rtol=1e-12)
    assert_array_equal(lda.transform(X), lda.transform(X))
    again = small(doc_topic_prior=[0.2, 0.3, 0.9])
    assert_array_equal(again.fit_transform(X), lda.transform(X))
    assert_array_equal(again.fit_transform(X, normalize=False), gamma)
    # A document is read alone: the others do not matter.
    assert_array_equal(lda.transform(X[7]), lda.transform(X)[7:8])


@pytest.mark.parametrize("learning_method", ["batch", "online"])
@pytest.mark.parametrize("local_step", ["mean_field", "cvb0", "gibbs"])
def test_an_empty_document_gets_the_prior(local_step, learning_method, X):
    alpha = np.array([0.2, 0.3, 0.5])
    some = vstack([csr_matrix((2, 40), dtype=int), X, csr_matrix((1, 40), dtype=int)]).tocsr()
    params = {"doc_topic_prior": alpha, "local_step": local_step, "batch_size": 1000}
    lda = small(learning_method=learning_method, **params).fit(some)
    found = lda.transform(some, normalize=False)
    for d in (0, 1, len(found) - 1):
        assert_array_equal(found[d], alpha)
    assert_allclose(lda.transform(some)[0], alpha)
    if local_step != "gibbs":  # whose random numbers belong to the places of documents
        assert_allclose(
            lda.components_,
            small(learning_method=learning_method, **params).fit(X).components_,
            rtol=1e-9,
        )
    assert_allclose(lda.perplexity(some), lda.perplexity(X), rtol=1e-10)


def test_a_batch_without_tokens_changes_nothing(X):
    lda = small().partial_fit(X)
    before = pickle.dumps(lda)
    lda.partial_fit(csr_matrix((3, 40)))
    lda.partial_fit(X, sample_weight=np.zeros(X.shape[0]))
    assert pickle.dumps(lda) == before


# What is refused


def test_a_corpus_of_zero_tokens_is_refused(X):
    nothing = csr_matrix((4, 40))
    weights = np.zeros(X.shape[0])
    weights[0] = 1.0
    only_empty = vstack([nothing[:1], X[1:]]).tocsr()
    for annealing in ("none", "deterministic", "stochastic", "local_tempering"):
        for name in ("fit", "partial_fit"):
            with pytest.raises(ValueError, match="have no words"):
                getattr(small(annealing=annealing), name)(nothing)
            with pytest.raises(ValueError, match="have no words"):
                getattr(small(annealing=annealing), name)(only_empty, sample_weight=weights)
    lda = small().fit(X)
    with pytest.raises(ValueError, match="no words"):
        lda.perplexity(nothing)
    with pytest.raises(ValueError, match="two tokens"):
        lda.score(nothing)
    # An empty document is accepted where nothing is learned and nothing is divided by its tokens.
    assert_allclose(lda.transform(nothing), 1 / 3)


USES = ("transform", "score", "perplexity", "partial_fit", "inverse_temperatures")


@pytest.mark.parametrize("name", USES)
def test_a_wrong_number_of_columns_is_refused(name, X):
    lda = small(annealing="local_tempering")
    lda.set_params(annealing__n_passes=2, max_iter=2).fit(X)
    for wrong in (X[:, :39], csr_matrix((3, 41), dtype=int)):
        with pytest.raises(ValueError, match=rf"{wrong.shape[1]} features.*40"):
            getattr(lda, name)(wrong)
    before = pickle.dumps(lda)
    with pytest.raises(ValueError, match="features"):
        lda.partial_fit(X[:, :39])
    assert pickle.dumps(lda) == before, "a refused batch has changed the estimator"


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    ("value", "message"), [(-1.0, "Negative values"), (np.nan, "NaN"), (np.inf, "infinity")]
)
def test_counts_that_are_none_are_refused(value, message, sparse, X):
    wrong = X.astype(float).toarray()
    wrong[3, 5] = value
    wrong = csr_matrix(wrong) if sparse else wrong
    lda = small(annealing="local_tempering")
    for name in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(lda, name)(wrong)
    lda.set_params(annealing__n_passes=2, max_iter=2).fit(X)
    for name in USES:
        with pytest.raises(ValueError, match=message):
            getattr(lda, name)(wrong)


def test_a_sampler_of_tokens_keeps_fractions(X):
    """What a count has above a whole number is a smaller token: none is lost or made up."""
    for counts in (X / 2, X * 1.25, X * 0.3):
        lda = small(local_step="gibbs", annealing="none", max_iter=1).fit(counts)
        tokens = (lda.components_ - lda.topic_word_prior_).sum(axis=0)
        assert_allclose(tokens, np.asarray(counts.sum(axis=0)).ravel(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"doc_topic_prior": [0.1, 0.2]}, r"doc_topic_prior.*n_components = 3"),
        ({"doc_topic_prior": [0.1, 0.2, 0.0]}, "doc_topic_prior.*smallest entry of 0"),
        ({"doc_topic_prior": [0.1, np.nan, 1.0]}, "doc_topic_prior"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior"),
        ({"doc_topic_prior": "best"}, "doc_topic_prior"),
        ({"topic_word_prior": np.ones(39)}, r"topic_word_prior.*n_features = 40"),
        ({"topic_word_prior": np.ones((2, 40))}, "topic_word_prior"),
        ({"topic_word_prior": -1.0}, "topic_word_prior"),
        ({"local_step": "vb"}, "local_step"),
        ({"learning_method": "stream"}, "learning_method"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"max_doc_update_iter": -1}, "max_doc_update_iter"),
    ],
)
def test_parameters_that_are_refused(params, message, X):
    for name in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(small(**params), name)(X)


def test_before_a_fit(X):
    for name in ("transform", "score", "perplexity"):
        with pytest.raises(NotFittedError):
            getattr(small(), name)(X)
    with pytest.raises(NotFittedError):
        small().top_words()
    assert not hasattr(small(), "components_")
    assert not hasattr(small(), "inverse_temperatures")
