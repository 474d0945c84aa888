"""Collapsed Gibbs sampling of the topics of tokens: the kernel, its visits and fits with it."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np
import pytest
from cases_latent_dirichlet import corpus, evaluation, small  # noqa: F401
from harness import AfterPass, assert_identical, context_of, make_threads_worthwhile
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.special import gammaln, psi

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.data.units import Documents, _documents
from sklearn_anneal.estimators._topic_training import has_many_counts
from sklearn_anneal.kernels import load
from sklearn_anneal.kernels.simd.emitter import LANES
from sklearn_anneal.kernels.simd.products import (
    add_up,
    drawn_entry,
    entry_beyond,
    multiply_rows,
    replace_entry,
)
from sklearn_anneal.models.topics import (
    TOPICS,
    LatentDirichlet,
    SampledLatentDirichlet,
    sampled,
)
from sklearn_anneal.models.topics.sampled import (
    Assignments,
    DocumentsInFewChunks,
    SampledVisit,
)

each_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
ALPHA, ETA = np.array([0.3, 0.8]), np.array([0.2, 0.7, 0.4])


def sampler(n_passes: int = 3, **params):
    """A small estimator whose topics are sampled, with fixed priors."""
    method = {"learn_priors_after": 1.0, "average": False} | params.pop("method", {})
    settings = {"doc_topic_prior": 0.3, "topic_word_prior": 0.2} | params
    return AnnealedLatentDirichletAllocation(
        **({"n_components": 3, "random_state": 0} | settings),
        annealing=StructuredVI(n_passes=n_passes, **method),
    )


def visited(model, q, X, topics=None, seed=0, weights=None, n_turns=1):
    """The sampler's step of all documents in one chunk."""
    units = DocumentsInFewChunks(X.data, X.indices, X.indptr, weights)
    with pytest.MonkeyPatch.context() as patch:
        in_turns(n_turns, patch)
        return step_of(model, q, units, topics, seed)


def in_turns(n_turns, patch):
    """Let so many documents be sampled at once, however few tokens there are."""
    patch.setattr(sampled, "_TURNS", n_turns)
    patch.setattr(sampled, "_TOKENS_OF_TURNS", 0)


def step_of(model, q, units, topics, seed):
    visit = model.visit(q, units, rng=np.random.default_rng(seed))
    return visit.finish(visit.step(units, local=Assignments(topics, seed)))


def model_of_two_topics(dtype=np.float64):
    return SampledLatentDirichlet(2, 3, ALPHA, ETA, dtype=dtype)


def log_joint(documents, topics):
    """log p(w, z) up to a constant, proportions and topics integrated out."""
    found, t = 0.0, 0
    words = np.zeros((2, 3))
    for document in documents:
        held = np.zeros(2)
        for word in document:
            held[topics[t]] += 1
            words[topics[t], word] += 1
            t += 1
        found += gammaln(held + ALPHA).sum()
    return found + gammaln(words + ETA).sum() - gammaln((words + ETA).sum(axis=1)).sum()


THREE_DOCUMENTS, ONE_DOCUMENT = [(0, 0, 1), (1, 2), (2,)], [(0, 0, 1, 1, 2, 2)]
# Tokens of one word, which hold together more than their proposals know.
REPEATED = [(0, 0, 0, 0), (0, 1)]


@njit
def drawn(x, y, shares, order, sums, found):
    for t in range(len(shares)):
        found[t] = drawn_entry(x, 1, y, np.int32(2), shares[t], order, sums)


@each_dtype
@pytest.mark.parametrize("width", [LANES, 3 * LANES])
def test_entries_are_drawn_in_proportion_to_products(width, dtype, rng):
    """Each share of the sum belongs to one entry, whose part of all shares is its product."""
    x, y = rng.gamma(0.5, size=(2, width)).astype(dtype), rng.gamma(0.5, size=(3, width))
    y = y.astype(dtype)
    y[2, [0, 3, width - 1]] = 0.0
    products = (x[1] * y[2]).astype(float)
    shares = ((np.arange(20_000) + 0.5) / 20_000).astype(dtype)
    order = np.arange(width).reshape(-1, LANES).T.ravel()
    found = np.empty(len(shares), np.int64)
    drawn(x, y, shares, order, np.empty(width, dtype), found)
    parts = np.bincount(found, minlength=width) / len(shares)
    assert_allclose(parts, products / products.sum(), atol=1.1e-4)
    places = np.argsort(order)[found]
    assert (np.diff(places) >= 0).all()
    y[2] = 0.0
    drawn(x, y, shares[:3], order, np.empty(width, dtype), found[:3])
    assert_array_equal(found[:3], -1)


@njit
def drawn_from_sums(x, y, shares, order, sums, found):
    weights, before = np.empty_like(sums), np.empty(LANES, sums.dtype)
    multiply_rows(x, 1, y, np.int32(2), weights)
    total = add_up(weights, sums, before)
    for t in range(len(shares)):
        found[t] = entry_beyond(sums, before, shares[t] * total, order)


@each_dtype
@pytest.mark.parametrize("width", [LANES, 3 * LANES])
def test_several_entries_are_drawn_from_the_same_sums(width, dtype, rng):
    x, y = (rng.gamma(0.5, size=(n, width)).astype(dtype) for n in (2, 3))
    shares = rng.random(2_000).astype(dtype)
    order = np.arange(width).reshape(-1, LANES).T.ravel()
    one_by_one, together = np.empty((2, len(shares)), np.int64)
    drawn(x, y, shares, order, np.empty(width, dtype), one_by_one)
    drawn_from_sums(x, y, shares, order, np.empty(width, dtype), together)
    # Products of which a sum is made at once are not rounded.
    assert (one_by_one != together).sum() <= (0 if dtype == np.float64 else 2)


@njit
def replaced(x):
    replace_entry(x, np.int32(1), 3, x.dtype.type(7.0))
    replace_entry(x, np.int32(0), 2 * LANES - 1, x.dtype.type(8.0))


@each_dtype
def test_one_entry_is_replaced(dtype, rng):
    x = rng.random((2, 2 * LANES)).astype(dtype)
    expected = x.copy()
    expected[1, 3], expected[0, -1] = 7.0, 8.0
    replaced(x)
    assert_array_equal(x, expected)


# The expected distance of 5,000 independent draws is below 0.06, and that of 3,000 below 0.08. Two
# turns of one document are exact. Several documents are sampled at once and do not know each
# other's number of tokens, which matters because there are six.
@pytest.mark.parametrize(
    ("documents", "n_turns", "in_pairs", "largest", "dtype", "n_draws"),
    [
        (THREE_DOCUMENTS, 1, False, 0.08, np.float64, 5_000),
        *(
            pytest.param(
                THREE_DOCUMENTS, 1, False, 0.05, dtype, 20_000, marks=pytest.mark.exhaustive
            )
            for dtype in (np.float64, np.float32)
        ),
        (ONE_DOCUMENT, 2, False, 0.11, np.float64, 3_000),
        (REPEATED, 1, False, 0.11, np.float64, 3_000),
        (REPEATED, 1, True, 0.11, np.float32, 3_000),
        (ONE_DOCUMENT, 1, True, 0.11, np.float32, 3_000),
        (THREE_DOCUMENTS, 2, False, 0.11, np.float32, 3_000),
        (THREE_DOCUMENTS, 1, True, 0.11, np.float64, 3_000),
    ],
)
def test_topics_are_drawn_from_their_posterior_distribution(
    documents, n_turns, in_pairs, largest, dtype, n_draws, monkeypatch
):
    """Visit after visit, assignments occur as often as an enumeration of all of them says."""
    X = csr_matrix([np.bincount(words, minlength=3) for words in documents]).astype(dtype)
    every = list(product(range(2), repeat=6))
    exact = np.array([log_joint(documents, topics) for topics in every])
    exact = np.exp(exact - exact.max())
    exact /= exact.sum()
    model, q, topics = model_of_two_topics(dtype), {TOPICS: np.ones((2, 3)) + ETA}, None
    found = np.zeros(len(every))
    powers = 2 ** np.arange(6)[::-1]
    in_turns(n_turns, monkeypatch)
    if in_pairs:
        monkeypatch.setattr(load("topic_sampler"), "TOKENS_OF_PAIRS", 0)
    units = DocumentsInFewChunks(X.data, X.indices, X.indptr, None)
    for i in range(n_draws):
        step = step_of(model, q, units, topics, seed=i)
        topics = step.local.topics
        q = {
            TOPICS: np.asfortranarray(
                ETA + model.block_statistics(None, step.statistics, q)[TOPICS]
            )
        }
        found[topics @ powers] += 1
    found /= found.sum()
    assert 0.5 * np.abs(found - exact).sum() < largest


@each_dtype
@pytest.mark.parametrize("n_turns", [1, 2, 3])
@pytest.mark.parametrize("n_visits", [1, 2])
def test_statistics_are_those_of_the_topics_of_tokens(n_visits, n_turns, dtype, rng):
    X = csr_matrix(rng.poisson(0.8, size=(20, 3))).astype(dtype)
    # The words of a document need not be in order.
    X.indices[:], X.has_sorted_indices = X.indices[::-1].copy(), False
    X.indptr[:] = X.nnz - X.indptr[::-1]
    weights = rng.uniform(0.5, 2.0, size=20)
    model, topics = model_of_two_topics(dtype), None
    q = {TOPICS: np.ones((2, 3)) + ETA}
    for seed in range(n_visits):
        step = visited(model, q, X, topics, seed, weights, n_turns)
        words = model.block_statistics(None, step.statistics, q)[TOPICS]
        topics, q = step.local.topics, {TOPICS: np.asfortranarray(ETA + words)}
    words, held = np.zeros((2, 3)), np.zeros((20, 2))
    t = 0
    for d in range(20):
        for i in range(X.indptr[d], X.indptr[d + 1]):
            for _ in range(int(X.data[i])):
                words[step.local.topics[t], X.indices[i]] += weights[d]
                held[d, step.local.topics[t]] += 1
                t += 1
    assert t == len(step.local.topics)
    statistics = model.block_statistics(None, step.statistics, None)[TOPICS]
    assert_allclose(statistics, words, rtol=1e-12)
    *expected, n, normalizer = step.statistics["doc_topic"]
    totals = psi(held.sum(axis=1) + ALPHA.sum())
    assert_allclose(expected, weights @ (psi(held + ALPHA) - totals[:, None]), rtol=1e-9)
    assert_allclose([n, normalizer], [weights.sum(), weights @ totals], rtol=1e-9)


def test_fractions_of_counts_and_large_counts_keep_their_mass():
    """A fraction is a smaller token, and a count beyond a thousand is cut into equal ones."""
    X = csr_matrix([[0.25, 2.5, 0.0], [0.0, 1e9, 3.0], [0.0, 0.0, 0.0]])
    model, q, topics = model_of_two_topics(), {TOPICS: np.ones((2, 3)) + ETA}, None
    for n_turns in (1, 1, 2):
        step = visited(model, q, X, topics, n_turns=n_turns)
        assert len(step.local.topics) == 1 + 3 + load("document_steps").MOST_TOKENS + 3
        found = model.block_statistics(None, step.statistics, None)[TOPICS]
        assert_allclose(found.sum(axis=0), np.asarray(X.sum(axis=0)).ravel(), rtol=1e-12)
        topics, q = step.local.topics, {TOPICS: np.asfortranarray(ETA + found)}


def test_a_topic_without_weight_is_never_drawn():
    """Products that underflow to zero leave tokens with topics that have weight."""
    X = csr_matrix(np.full((5, 3), 4.0, dtype=np.float32))
    topics = np.array([[1.0, 1.0, 1.0], [1e-60, 1e-60, 1.0]])
    step = visited(model_of_two_topics(np.float32), {TOPICS: np.asfortranarray(topics)}, X)
    assert (step.local.topics.reshape(5, 3, 4)[:, :2] == 0).all()


@pytest.mark.parametrize("n_passes", [1, 4])
def test_parameters_are_the_prior_and_whole_tokens(n_passes, X):
    est = sampler(n_passes).fit(X)
    counts = est.components_ - 0.2
    assert_allclose(counts, np.round(counts), atol=1e-9)
    assert_allclose(counts.sum(axis=0), np.asarray(X.sum(axis=0)).ravel())


def mean_from_the_eleventh_pass(topics):
    """The mean over passes t = 10, 11, … with weights 5 / (t − 5)."""
    mean = topics[0]
    for t, after in enumerate(topics[1:], start=11):
        mean = mean + 5 / (t - 5) * (after - mean)
    return mean


def without_traces(topics, prior=0.2, smallest=0.1):
    """λ whose counts below a tenth of a token have gone to the other topics of the word."""
    counts = np.maximum(topics - prior, 0)
    large = np.where(counts >= smallest, counts, 0)
    kept = np.where(large.any(axis=0), large, counts)
    return prior + kept * (counts.sum(axis=0) / np.maximum(kept.sum(axis=0), 1e-300))


def test_a_fit_returns_a_mean_that_favours_the_last_passes(X):
    after = [sampler(n).fit(X).components_ for n in (11, 12, 13, 14)]
    est = sampler(14, method={"average": True}).fit(X)
    mean = mean_from_the_eleventh_pass(after)
    assert_allclose(est.components_, without_traces(mean), rtol=1e-12)
    assert (est.components_ == 0.2).sum() > (after[-1] == 0.2).sum() / 2 > 0
    assert (without_traces(mean) != mean).any()
    seen, divergence = evaluation(est, X)
    assert est.lower_bound_ == pytest.approx(seen.step.bound - divergence)


@pytest.mark.parametrize("prior", [ETA, np.array([[0.2, 0.7, 0.4], [1.3, 0.1, 0.1]])])
def test_traces_go_to_the_other_topics_of_a_word(prior):
    counts = np.array([[5.0, 0.09, 0.04], [0.05, 0.3, 0.02]])
    eta = np.atleast_2d(prior)
    mean, before, after = (
        {TOPICS: np.asfortranarray(array)} for array in (counts + 2 * eta, 2 * eta, eta)
    )
    model = SampledLatentDirichlet(2, 3, ALPHA, prior)
    model.mass_of_token = 1.0
    found = model.factors().of_mean(mean, before, after)[TOPICS]
    # The last word has no more than traces, and keeps them.
    assert_allclose(found - eta, [[5.05, 0.0, 0.04], [0.0, 0.39, 0.02]], atol=1e-15)
    assert_array_equal(found[[1, 0], [0, 1]], np.broadcast_to(eta, (2, 3))[[1, 0], [0, 1]])
    others = LatentDirichlet(2, 3, ALPHA, prior).factors().of_mean(mean, before, after)
    assert_array_equal(others[TOPICS], mean[TOPICS])
    assert not np.shares_memory(others[TOPICS], mean[TOPICS])


def test_a_mean_keeps_all_tokens_while_the_prior_of_words_is_learned(X):
    how = {"method": {"average": True, "learn_priors_after": 0.3}, "topic_word_prior": "auto"}
    est = sampler(30, **how).fit(X)
    assert est.topic_word_prior_ != sampler(1, **how).fit(X).topic_word_prior_
    counts = est.components_ - est.topic_word_prior_
    assert_allclose(counts.sum(axis=0), np.asarray(X.sum(axis=0)).ravel(), rtol=1e-10)
    assert counts.min() > -1e-12


def test_traces_are_measured_in_tokens_whatever_these_weigh(X, rng):
    """Weights that scale η and the start along leave the draws as they are."""
    start, few = rng.uniform(1, 2, (3, X.shape[1])), 2.0**-10
    how = {"method": {"average": True}}
    plain = sampler(14, components_init=start, **how).fit(X)
    weights = np.full(X.shape[0], few)
    scaled = sampler(14, components_init=few * start, topic_word_prior=few * 0.2, **how)
    topics = scaled.fit(X, sample_weight=weights).components_
    assert_allclose(topics, few * plain.components_, rtol=1e-12)
    assert (topics == few * 0.2).any()


def test_the_mean_weight_of_a_token(monkeypatch):
    monkeypatch.setattr(_documents, "_ROUNDED_AT_A_TIME", 2)
    model = model_of_two_topics()
    data = np.array([2.0, 0.5, 1.25, 5e6]), np.array([0, 1, 2, 0]), np.array([0, 2, 3, 4])
    units = Documents(*data)
    summary = model.summary(units)
    assert summary.whole_tokens == 2 + 1 + 2 + 5e6
    parts = [model.summary(units.take(slice(i, i + 1))) for i in range(3)]
    assert parts[0].merge(parts[1]).merge(parts[2]).whole_tokens == summary.whole_tokens
    # A count that is sampled as 1024 tokens weighs as many as it has.
    assert model.resolved(summary).mass_of_token == pytest.approx(1.0, rel=1e-6)
    weighted = model.summary(Documents(*data, np.array([0.0, 4.0, -0.0])))
    assert weighted.whole_tokens == 2
    assert model.resolved(weighted).mass_of_token == 4 * 1.25 / 2
    assert LatentDirichlet(2, 3, ALPHA, ETA).summary(units).whole_tokens == 0


def test_the_first_passes_enter_no_mean(X):
    est = sampler(11, method={"average": True}).fit(X)
    assert_allclose(est.components_, sampler(11).fit(X).components_, rtol=1e-14)


def test_means_are_those_of_whole_passes_in_minibatches(X):
    how = {"learning_method": "online", "batch_size": 20, "method": {"learning_rate": 0.5}}
    after = [sampler(n, **how).fit(X).components_ for n in (11, 12, 13)]
    how["method"] = {"learning_rate": 0.5, "average": True}
    topics = sampler(13, **how).fit(X).components_
    assert_allclose(topics, mean_from_the_eleventh_pass(after), rtol=1e-12)


def test_a_callback_sees_the_mean(X):
    """A fit that a callback stops returns what the callback has seen."""
    seen = []

    def thirteenth(fitted):
        seen.append(fitted.components_)
        return len(seen) == 13

    est = sampler(16, method={"average": True}).set_callbacks(AfterPass(thirteenth)).fit(X)
    assert_array_equal(est.components_, seen[-1])
    assert len(est.lower_bounds_) == 13 and np.isfinite(est.lower_bound_)


def test_a_pass_is_reported_before_the_next_visit(X, monkeypatch):
    visits, reported, original = [], [], SampledVisit.step

    def spy(self, *args):
        visits.append(self)
        return original(self, *args)

    monkeypatch.setattr(SampledVisit, "step", spy)
    sampler(3).set_callbacks(AfterPass(lambda fitted: reported.append(len(visits)))).fit(X)
    assert reported == [1, 2, 3]


def test_the_bound_is_evaluated_after_every_pass_if_that_is_asked(X):
    est = sampler(3, method={"evaluate_every": 1}).fit(X)
    assert len(est.lower_bounds_) == 3 and np.isfinite(est.lower_bounds_).all()
    assert est.converged_


def test_results_do_not_depend_on_workers(rng, monkeypatch):
    """Several chunks take several thousand documents each."""
    make_threads_worthwhile(monkeypatch)
    X = csr_matrix(rng.poisson(0.3, size=(9000, 20)))
    one, two = (sampler(3, n_jobs=n).fit(X) for n in (1, 2))
    assert len(one._make_units(X, None).chunks()) > 1
    assert_identical(one, two)


def test_words_are_not_sought_again_at_every_visit():
    X = csr_matrix(np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 4.0]]))
    units = Documents(X.data, X.indices, X.indptr)
    visit = model_of_two_topics().visit(
        {TOPICS: np.ones((2, 3), order="F")}, units, rng=np.random.default_rng(0)
    )
    view = visit.view(units)
    assert isinstance(view, DocumentsInFewChunks)
    assert view.occurring(3) is units.occurring(3)
    assert view.occurrences is units.occurrences
    assert_array_equal(visit.arrays(view, np.float64)[1], [0, 1, 1])


class MeetingKernels:
    """The kernels, of which the sampler waits until two threads go on from topics."""

    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=20)

    def __getattr__(self, name):
        return getattr(load("topic_sampler"), name)

    def sample_topics(self, *arguments):
        *_, fresh, _seed, _out, _theta = arguments
        if not fresh:
            self.barrier.wait()
        load("topic_sampler").sample_topics(*arguments)


def test_two_workers_sample_small_data_in_turns(rng, monkeypatch):
    """Draws depend on the turns, and not on the number of workers."""
    make_threads_worthwhile(monkeypatch)
    X = csr_matrix(rng.poisson(0.5, size=(400, 50)))
    whole = sampler().fit(X)
    monkeypatch.setattr(sampled, "_TOKENS_OF_TURNS", X.sum())
    one = sampler().fit(X)
    kernels = MeetingKernels()
    monkeypatch.setattr(sampled, "kernels", lambda: kernels)
    assert_identical(one, sampler(n_jobs=2).fit(X))
    assert (whole.components_ != one.components_).any()


@pytest.mark.parametrize(
    ("n_documents", "length", "n_turns"), [(8191, 13, 2), (8192, 13, 1), (999, 100, 1)]
)
@pytest.mark.parametrize("first", [True, False])
def test_later_visits_of_single_chunks_of_many_tokens_have_turns(
    first, n_documents, length, n_turns, monkeypatch
):
    words = np.arange(n_documents, dtype=np.int32) % 2
    units = Documents(np.full(n_documents, float(length)), words, np.arange(n_documents + 1))
    cuts, original = [], sampled._cut
    monkeypatch.setattr(sampled, "_cut", lambda *args: cuts.append(args[1]) or original(*args))
    model = SampledLatentDirichlet(2, 2, ALPHA, ETA[:2])
    visit = model.visit({TOPICS: np.ones((2, 2), order="F")}, units, rng=np.random.default_rng(0))
    view = visit.view(units)
    for index in view.chunks():
        chunk = view.take(index)
        topics = None if first else np.zeros(length * chunk.n_units, np.int32)
        visit.step(chunk, local=Assignments(topics, 0))
    n_turns = 1 if first else n_turns
    n_pieces = n_turns * sampled._MEETINGS if n_turns > 1 else 1
    assert cuts == [n_pieces, n_turns] * len(view.chunks())


def test_priors_are_learned_from_whole_tokens(X):
    """The fixed point of α is that of the tokens of each topic in each document."""
    est = sampler(40, doc_topic_prior="auto", method={"learn_priors_after": 0.5}).fit(X)
    assert est.doc_topic_prior_.shape == (3,) and (est.doc_topic_prior_ != 0.1).all()
    fixed = sampler(40, doc_topic_prior="auto").fit(X)
    assert_array_equal(fixed.doc_topic_prior_, 0.1)


def test_a_learned_prior_begins_with_a_share_of_short_documents():
    """Σ α is 0.3 of the mean length, which only a given prior may exceed."""
    X = csr_matrix(np.eye(20)[:, :8] + 1.0)
    length = X.sum() / 20
    est = AnnealedLatentDirichletAllocation
    method = StructuredVI(n_passes=2, learn_priors_after=1.0)
    how = {"annealing": method, "random_state": 0}
    learned = est(40, **how).fit(X)
    assert_allclose(learned.doc_topic_prior_, 0.3 * length / 40, rtol=1e-12)
    assert_array_equal(est(40, doc_topic_prior=0.1, **how).fit(X).doc_topic_prior_, 0.1)


def test_streams_have_mean_field_steps(X):
    """A stream goes on from sampled topics, with the settings of draws of topics."""
    est = AnnealedLatentDirichletAllocation(3, random_state=0).fit(X)
    assert est.annealing_.learning_rate == 1.0
    context = context_of(est)
    assert context.model.local_step_name == "mean_field"
    before = est.score(X)
    for _ in range(3):
        est.partial_fit(X)
    assert est.score(X) > before - 0.1


def test_a_stream_does_not_begin_with_tokens_that_keep_their_topics(X):
    est = AnnealedLatentDirichletAllocation(3, local_step="collapsed_gibbs", random_state=0)
    with pytest.raises(ValueError, match="only once. Give local_step='auto'"):
        est.partial_fit(X)
    est.set_params(annealing=StructuredVI(n_passes=2)).fit(X).partial_fit(X)
    assert context_of(est).model.local_step_name == "mean_field"


@pytest.mark.parametrize("eta", ["scaled", "auto"])
def test_a_stream_with_automatic_steps_is_one_with_mean_field_steps(eta, X):
    params = {"topic_word_prior": eta, "random_state": 0, "batch_size": 20, "max_iter": 1}
    auto, fixed = (
        AnnealedLatentDirichletAllocation(3, local_step=step, **params).partial_fit(X)
        for step in ("auto", "mean_field")
    )
    assert auto.annealing_.learning_rate == 0.5
    assert_array_equal(auto.components_, fixed.components_)
    assert_array_equal(auto.doc_topic_prior_, fixed.doc_topic_prior_)
    assert auto.topic_word_prior_ == fixed.topic_word_prior_


@pytest.mark.parametrize("first", [True, False])
def test_a_stream_remembers_though_sampled_topics_need_a_rate_of_1(first, X):
    """With that rate a batch would replace everything before it."""
    params = {"random_state": 0, "max_doc_update_iter": 5}
    given, auto = (
        AnnealedLatentDirichletAllocation(
            3, annealing=StructuredVI(learning_rate=rate, n_passes=3), **params
        )
        for rate in (1, "auto")
    )
    for est in (given, auto):
        if not first:
            est.fit(X)
            assert est.annealing_.learning_rate == 1
        est.partial_fit(X[:5]).partial_fit(X[5:9])
    assert_array_equal(given.components_, auto.components_)


@pytest.mark.parametrize("step", ["mean_field", "cvb0"])
def test_a_rate_of_1_is_refused_in_minibatches(step, X):
    method = StructuredVI(learning_rate=1, n_passes=2)
    est = small(local_step=step, annealing=method, learning_method="online", batch_size=5)
    with pytest.raises(ValueError, match="keeps nothing of earlier data"):
        est.fit(X)
    with pytest.raises(ValueError, match="keeps nothing of earlier data"):
        est.partial_fit(X)


def test_predictions_integrate_proportions_out(rng):
    """γ is α and the expected tokens at the fixed point of CVB0, at the expected topics."""
    X = csr_matrix(rng.poisson(1.0, size=(40, 12)))
    est = sampler(10, mean_change_tol=1e-10, max_doc_update_iter=500).fit(X)
    topics = est.components_ / est.components_.sum(axis=1, keepdims=True)
    gamma = est.transform(X[:3], normalize=False)
    for d in range(3):
        words = np.repeat(X[d].indices, X[d].data)
        phi = np.full((len(words), 3), 1 / 3)
        for _ in range(500):
            for i, w in enumerate(words):
                phi[i] = (phi.sum(axis=0) - phi[i] + 0.3) * topics[:, w]
                phi[i] /= phi[i].sum()
        assert_allclose(gamma[d], 0.3 + phi.sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"annealing": "deterministic"}, "annealing='structured'"),
        ({"annealing": "none"}, "annealing='structured'"),
        ({"learning_method": "online"}, "learning_method='batch'"),
        ({"annealing": StructuredVI(learning_rate=0.5)}, "learning_rate=1"),
        ({"annealing": StructuredVI(learning_rate="decay")}, "learning_rate=1"),
        ({"annealing": StructuredVI(gradient="exact")}, "mean_field"),
    ],
)
def test_what_makes_no_sense_is_refused(params, words, X):
    with pytest.raises(ValueError, match=words):
        AnnealedLatentDirichletAllocation(3, local_step="collapsed_gibbs", **params).fit(X)


@pytest.mark.parametrize(
    "params",
    [
        {"annealing": StructuredVI(gradient="exact", n_passes=2), "learning_method": "batch"},
        {"annealing": "deterministic", "max_iter": 2},
        {"annealing": StructuredVI(n_passes=2), "learning_method": "online"},
        {"annealing": StructuredVI(n_passes=2, learning_rate=0.5)},
        {"annealing": StructuredVI(n_passes=2, learning_rate="decay")},
        {"annealing": StructuredVI(n_passes=2, gradient="exact")},
    ],
)
def test_where_the_sampler_cannot_work_auto_is_mean_field(params, X):
    auto, fixed = (small(local_step=step, **params).fit(X) for step in ("auto", "mean_field"))
    assert_array_equal(auto.components_, fixed.components_)
    assert_array_equal(auto.transform(X), fixed.transform(X))


# Documents with many counts


def gene_like(n_documents=60, n_words=40, n_tokens=2500, n_topics=3, seed=0):
    """A table of counts with many tokens of each word."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.3), n_topics)
    proportions = rng.dirichlet(np.full(n_topics, 0.4), n_documents)
    return csr_matrix(rng.poisson(n_tokens * proportions @ topics).astype(np.float64))


def components_of(X, **params):
    how = {"n_components": 3, "annealing": "structured", "random_state": 0} | params
    fitted = AnnealedLatentDirichletAllocation(**how).fit(X)
    return fitted.components_


def test_many_counts_get_mean_field_steps_unless_draws_are_asked_for():
    X = gene_like()
    found = components_of(X)
    online = components_of(X, local_step="mean_field", learning_method="online")
    assert_array_equal(found, online)
    few = StructuredVI(n_passes=12)
    drawn = components_of(X, annealing=few, local_step="collapsed_gibbs")
    assert_array_equal(components_of(X, annealing=few, learning_method="batch"), drawn)
    rate = StructuredVI(n_passes=12, learning_rate=1)
    assert_array_equal(components_of(X, annealing=rate), drawn)
    assert not np.array_equal(components_of(X, annealing=few), drawn)


def test_many_counts_have_passes_enough_to_leave_a_worse_optimum():
    rng = np.random.default_rng(11)
    topics = rng.dirichlet(np.full(300, 0.1), 10)
    proportions = rng.dirichlet(np.full(10, 0.1), 300)
    X = csr_matrix([rng.multinomial(10_000, p / p.sum()) for p in proportions @ topics])
    X = X.astype(np.float64)
    fitted = AnnealedLatentDirichletAllocation(10, random_state=11).fit(X[:200])
    early = StructuredVI(n_passes=100)
    before = AnnealedLatentDirichletAllocation(10, annealing=early, random_state=11).fit(X[:200])
    assert fitted.n_passes_ == 300
    assert fitted.score(X[200:]) > before.score(X[200:]) + 0.05
    # Minibatches of texts have as many passes as before, and a number that is given is kept.
    texts = X[:20].copy()
    texts.data[:] = 1.0
    online = {"learning_method": "online", "random_state": 0}
    assert AnnealedLatentDirichletAllocation(2, **online).fit(texts).n_passes_ == 100
    assert before.n_passes_ == 100


@pytest.mark.parametrize("n_words, n_tokens", [(400, 1600), (20, 250)])
def test_tokens_are_drawn_where_counts_are_few_or_documents_short(n_words, n_tokens):
    X, few = gene_like(n_words=n_words, n_tokens=n_tokens), StructuredVI(n_passes=12)
    assert (X.sum() > 8 * X.nnz) != (X.sum() > 100 * 3 * X.shape[0])
    drawn = components_of(X, annealing=few, local_step="collapsed_gibbs")
    assert_array_equal(components_of(X, annealing=few), drawn)


@pytest.mark.parametrize(
    "count, n_words, n_components, many",
    [
        *((8, 38, 3, True), (8, 36, 3, False), (7, 50, 3, False)),
        *((40, 7, 11, True), (39, 7, 10, False), (40, 6, 10, False)),
        *((40, 20, 12, True), (40, 21, 12, False)),
    ],
)
def test_fewer_counts_per_topic_are_many_in_documents_of_few_words(
    count, n_words, n_components, many
):
    X = csr_matrix(np.full((3, n_words), float(count)))
    documents = Documents(X.data, X.indices, X.indptr)
    assert has_many_counts(documents, n_components) == many


def test_a_weight_decides_about_draws_as_copies_do():
    X = csr_matrix(np.array([[9.0, 0.0, 300.0], [1.0, 1.0, 1.0]]))
    for weights in ([1, 3], [3, 1], [1, 60], [2, 7]):
        documents = Documents(X.data, X.indices, X.indptr, np.array(weights, dtype=np.float64))
        Y = X[np.repeat([0, 1], weights)]
        copies = Documents(Y.data, Y.indices, Y.indptr)
        assert has_many_counts(documents, 1) == has_many_counts(copies, 1)
    assert not has_many_counts(copies, 1)
    assert has_many_counts(Documents(X.data, X.indices, X.indptr), 1)
