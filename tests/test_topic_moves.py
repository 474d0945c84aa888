"""Moves of sampled topics: their gains, what they find, and where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from harness import assert_identical, make_threads_worthwhile
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.special import gammaln

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.models.topics import TOPICS, SampledLatentDirichlet, moves, sampled
from sklearn_anneal.models.topics.moves import Tokens, move_topics
from sklearn_anneal.models.topics.sampled import Assignments, DocumentsInFewChunks
from sklearn_anneal.parallel.workers import SEQUENTIAL

N_TOPICS = 4


def drawn_tokens(rng, n_documents=12, n_words=7, weights=None):
    """Tokens of random counts, some with fractions and of words that no document has."""
    counts = csr_matrix(rng.poisson(1.0, (n_documents, n_words)) * rng.choice([1.0, 1.5, 0.25], 1))
    starts = np.append(0, np.cumsum(np.ceil(counts.data)))[counts.indptr].astype(np.int64)
    weights = rng.choice([1.0, 2.0], n_documents) if weights is None else weights
    eta = rng.uniform(0.1, 0.9, n_words)
    documents = counts.data, counts.indices, counts.indptr, starts, weights
    return Tokens.of(documents, (0.3, eta, eta.sum() + 0.5)), counts


def direct_log_joint(tokens, topics):
    """log p(w, z) up to a constant, token by token."""
    words, held = np.zeros((N_TOPICS, len(tokens.eta))), np.zeros((len(tokens.weights), N_TOPICS))
    for d, w, mass, k in zip(tokens.documents, tokens.rows, tokens.masses, topics, strict=True):
        words[k, w] += mass * tokens.weights[d]
        held[d, k] += mass
    found = gammaln(words + tokens.eta).sum()
    found -= gammaln(words.sum(axis=1) + tokens.eta_of_all).sum()
    return found + tokens.weights @ gammaln(held + tokens.alpha).sum(axis=1)


def log_joint(tokens, topics):
    return tokens.log_joint(*tokens.counts(topics, N_TOPICS)).sum()


def test_tokens_are_those_of_the_sampler():
    counts = np.array([2.0, 0.0, 1.25, 2048.0, 0.5])
    starts = np.array([0, 4, 4 + 1024 + 1])
    documents = counts, np.array([0, 1, 2, 0, 2]), np.array([0, 3, 5]), starts, np.empty(0)
    tokens = Tokens.of(documents, (0.1, np.ones(3), 3.0))
    assert_allclose(tokens.masses, [1, 1, 1, 0.25, *[2.0] * 1024, 0.5])
    assert_array_equal(tokens.rows, [0, 0, 2, 2, *[0] * 1024, 2])
    assert_array_equal(tokens.documents, [0] * 4 + [1] * 1025)
    assert_array_equal(tokens.weights, 1.0)
    assert tokens.repeats == pytest.approx(counts.sum() / 4)


def test_log_joints_and_gains_of_merges_are_those_of_counts(rng):
    tokens, counts = drawn_tokens(rng)
    assert tokens.masses.sum() == pytest.approx(counts.sum())
    topics, others = rng.integers(N_TOPICS, size=(2, len(tokens.rows)))
    expected = direct_log_joint(tokens, topics) - direct_log_joint(tokens, others)
    found = log_joint(tokens, topics) - log_joint(tokens, others)
    assert found == pytest.approx(expected, rel=1e-9)
    merges = moves._merges(tokens, *tokens.counts(topics, N_TOPICS))
    assert len(merges) >= N_TOPICS - 1
    assert [gain for gain, *_ in merges] == sorted((gain for gain, *_ in merges), reverse=True)
    for gain, i, j in merges:
        joined = np.where(topics == j, i, topics)
        expected = direct_log_joint(tokens, joined) - direct_log_joint(tokens, topics)
        assert gain == pytest.approx(expected, rel=1e-9)


def test_weights_of_documents_are_copies(rng):
    tokens, _ = drawn_tokens(rng, weights=np.full(12, 2.0))
    twice = Tokens(
        np.concatenate([tokens.documents, tokens.documents + 12]),
        *(np.tile(a, 2) for a in (tokens.rows, tokens.masses)),
        *(np.ones(24), tokens.alpha, tokens.eta, tokens.eta_of_all, 1.0),
    )
    topics = rng.integers(N_TOPICS, size=len(tokens.rows))
    assert log_joint(tokens, topics) == pytest.approx(log_joint(twice, np.tile(topics, 2)))


def two_in_one(rng):
    """Documents of three topics with words of their own; two are one topic, and the third two."""
    true = np.repeat([0, 1, 2], 10)
    words = 5 * true[:, None] + rng.integers(5, size=(30, 40))
    counts = csr_matrix(np.stack([np.bincount(row, minlength=15) for row in words]).astype(float))
    of_tokens = np.repeat(true, 40)
    return counts, np.where(of_tokens < 2, 0, 1 + rng.integers(2, size=1200)).astype(np.int32)


def test_two_topics_in_one_are_divided_and_two_of_one_joined(rng):
    X, topics = two_in_one(rng)
    documents = X.data, X.indices, X.indptr, np.arange(31) * 40, np.empty(0)
    tokens = Tokens.of(documents, (0.1, np.full(15, 0.1), 1.5))
    before = direct_log_joint(tokens, topics)
    assert_array_equal(move_topics(tokens, topics, 3, 0, SEQUENTIAL), [0, 1, 2])
    assert direct_log_joint(tokens, topics) > before + 500
    found = tokens.counts(topics, 3)[1]
    assert_array_equal(np.sort(found, axis=1), np.tile([0, 0, 40], (30, 1)))
    assert_array_equal(found.sum(axis=0), 400)
    assert len(move_topics(tokens, topics, 3, 0, SEQUENTIAL)) == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_visit_moves_parameters_with_the_topics_of_tokens(dtype, rng):
    X, topics = two_in_one(rng)
    units = DocumentsInFewChunks(X.data, X.indices, X.indptr, None)
    model = SampledLatentDirichlet(3, 20, np.full(3, 0.1), np.full(20, 0.1), dtype=dtype)
    counts = np.zeros((3, 20))
    np.add.at(counts, (topics, np.repeat(X.indices, X.data.astype(int))), 1.0)
    visit = model.visit({TOPICS: np.asfortranarray(counts + 0.1)}, units, rng=rng)
    steps = [visit.step(units, local=Assignments(topics, 0, n)).local for n in (39, 40)]
    assert [step.n_visits for step in steps] == [40, 41]
    largest = [
        np.bincount(step.topics[:800].reshape(20, 40)[:10].ravel(), minlength=3).argmax()
        != np.bincount(step.topics[400:800], minlength=3).argmax()
        for step in steps
    ]
    assert largest == [False, True]
    arrays = visit.arrays(units, dtype)
    documents = *arrays, np.arange(31) * 40, np.empty(0)
    table, totals = visit.expected.table.copy(), visit.expected.totals.copy()
    visit.move(documents, topics, 0, table, totals)
    counts = np.zeros((len(table), 3))
    np.add.at(counts, (np.repeat(arrays[1], X.data.astype(int)), topics), 1.0)
    rows = visit.words.rows
    assert_allclose(table[rows, :3], counts[rows] + 0.1, rtol=1e-6)
    assert_allclose(totals, counts.sum(axis=0) + 2.0, rtol=1e-12)


def drawn_documents(seed, n=100, n_words=500, length=100, k=5):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.1), k)
    means = rng.dirichlet(np.full(k, 0.1), n) @ topics
    return csr_matrix(rng.poisson(length * means).astype(float)), topics


def estimator(n_passes=60, **params):
    method = {"learn_priors_after": 1.0} | params.pop("method", {})
    method = StructuredVI(n_passes=n_passes, **method)
    return AnnealedLatentDirichletAllocation(5, annealing=method, **({"random_state": 0} | params))


def n_found(est, topics):
    """The number of topics of which one of the estimator is alike."""
    found = est.components_ / np.linalg.norm(est.components_, axis=1)[:, None]
    alike = topics / np.linalg.norm(topics, axis=1)[:, None] @ found.T
    return int((alike.max(axis=1) > 0.9).sum())


def test_fits_find_all_topics_of_drawn_documents(monkeypatch):
    """Without moves, these fits have two topics in the place of one, and one in that of two."""
    drawn = [drawn_documents(seed) for seed in (4, 19, 32, 34)]
    # The prior is stronger than the default, with which most of them find all topics without moves.
    params = {"method": {"average": False}, "topic_word_prior": 2 / 5**0.75}
    with_moves = [n_found(estimator(**params).fit(X), topics) for X, topics in drawn]
    monkeypatch.setattr(sampled, "_VISITS_BEFORE_MOVES", ())
    without = [n_found(estimator(**params).fit(X), topics) for X, topics in drawn]
    assert with_moves == [5] * 4
    assert max(without) < 5


def test_moves_do_not_depend_on_workers(monkeypatch):
    make_threads_worthwhile(monkeypatch)
    moved = []

    def counted(*arguments):
        moved.append(len(move_topics(*arguments)))
        return np.empty(0, int)

    X, _ = drawn_documents(0)
    monkeypatch.setattr(sampled, "_VISITS_BEFORE_MOVES", (2, 3))
    one, two = (estimator(5, n_jobs=n).fit(X) for n in (1, 2))
    assert_identical(one, two)
    monkeypatch.setattr(sampled, "move_topics", counted)
    estimator(5).fit(X)
    assert max(moved) > 0


@pytest.mark.parametrize(
    ("params", "factor"),
    [
        ({"doc_topic_prior": [0.1, 0.1, 0.1, 0.1, 0.2]}, 1.0),
        ({"topic_word_prior": np.full((5, 500), 0.1)}, 1.0),
        ({"n_components": 2}, 1.0),
        ({"method": {"learn_priors_after": 0.0}}, 1.0),
        ({}, 2000.0),
    ],
)
def test_there_are_no_moves_where_topics_cannot_take_each_others_place(params, factor, monkeypatch):
    made = []
    monkeypatch.setattr(sampled, "_VISITS_BEFORE_MOVES", (2, 3))
    monkeypatch.setattr(sampled, "move_topics", lambda *_: made.append(1) or np.empty(0, int))
    X = drawn_documents(0)[0][:60]
    few = {"local_step": "collapsed_gibbs", "max_iter": 8}
    estimator(4, **few).fit(X)
    assert made == [1]
    made.clear()
    params = dict(params)
    method = params.pop("method", {})
    est = estimator(4, method=method, **few)
    est.set_params(**params).fit(factor * X)
    assert made == []
