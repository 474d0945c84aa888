"""Tests of whole fits of topics: priors, starts, streams, annealing."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import plain_topics as plain
import pytest
from cases_latent_dirichlet import (
    FORMS,
    ROOT,
    corpus,  # noqa: F401
    documents,
    draw_corpus,
    evaluation,
    small,
    spread,
)
from designs import in_turn
from harness import make_threads_worthwhile, open_run, quick, visit
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix, vstack
from sklearn.base import clone

from sklearn_anneal import AnnealedLatentDirichletAllocation, Shards
from sklearn_anneal.annealing import (
    ANNEALING,
    NoAnnealing,
    StochasticAnnealing,
    StructuredVI,
)
from sklearn_anneal.data.units import Documents
from sklearn_anneal.data.units import _base as _units
from sklearn_anneal.estimators._priors import prior_of_words
from sklearn_anneal.inspection import TopicsDisplay
from sklearn_anneal.metrics import topic_coherence
from sklearn_anneal.models.topics import corpus as of_corpus
from sklearn_anneal.models.topics import tables
from sklearn_anneal.models.topics.visit import TopicsVisit
from sklearn_anneal.parallel.workers import Workers


def kept_bounds(lda, X, monkeypatch):
    """The bounds of the passes that keep γ, from the last that did not."""
    exploring = []
    start = TopicsVisit.start

    def spy(self, units, local, explore, noise, rng):
        exploring.append(explore)
        return start(self, units, local, explore, noise, rng)

    monkeypatch.setattr(TopicsVisit, "start", spy)
    lda.fit(X)
    monkeypatch.undo()
    first = exploring.index(False)
    # One chunk, hence one start per visit; the bound of visit p is that of pass p - 1.
    assert exploring == [True] * first + [False] * (len(exploring) - first)
    assert len(lda.lower_bounds_) == len(exploring) - 1
    return lda.lower_bounds_[max(first - 2, 0) :]


@in_turn(
    annealing=("none", "deterministic"),
    priors=(
        {},
        {"doc_topic_prior": 0.01, "topic_word_prior": 0.01},
        {"doc_topic_prior": 3.0, "topic_word_prior": 2.0},
        {"doc_topic_prior": "auto"},
        {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
    ),
)
def test_the_bound_never_falls_once_documents_are_kept(priors, annealing, X, monkeypatch):
    lda = small(4, annealing=annealing, max_iter=40, tol=0.0, **priors)
    if annealing == "deterministic":
        lda.set_params(annealing__n_passes=5)
    bounds = kept_bounds(lda, X, monkeypatch)
    assert len(bounds) >= 20
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize("annealing", ["none", "deterministic", "stochastic"])
def test_asymmetric_and_large_priors(annealing, X):
    alpha, eta = np.array([5.0, 0.5, 0.01]), np.linspace(0.1, 4.0, 40)
    lda = small(annealing=annealing, doc_topic_prior=alpha, topic_word_prior=eta, max_iter=30)
    if annealing != "none":
        lda.set_params(annealing__n_passes=5)
    lda.fit(X)
    assert_array_equal(lda.doc_topic_prior_, alpha)
    assert_array_equal(lda.topic_word_prior_, eta)
    assert np.all(lda.components_ >= eta * (1 - 1e-12))
    assert_allclose(lda.components_.sum() - 3 * eta.sum(), X.sum(), rtol=1e-9)
    alpha[:] = 7.0
    assert lda.doc_topic_prior_[0] == 5.0, "the estimator keeps the user's own array"
    scalar = small(doc_topic_prior=2.0, topic_word_prior=1.5).fit(X)
    vector = small(doc_topic_prior=np.full(3, 2.0), topic_word_prior=np.full(40, 1.5)).fit(X)
    assert_array_equal(scalar.components_, vector.components_)
    assert (scalar.doc_topic_prior_, scalar.topic_word_prior_) == (2.0, 1.5)


@pytest.mark.parametrize("names", [("doc_topic_prior",), ("doc_topic_prior", "topic_word_prior")])
def test_learned_priors_raise_the_bound(names, rng):
    X = draw_corpus(rng, n_documents=120, eta=0.05)
    fixed = small(4, max_iter=80, doc_topic_prior=2.0, topic_word_prior=2.0).fit(X)
    given = {"doc_topic_prior": fixed.doc_topic_prior_, "topic_word_prior": fixed.topic_word_prior_}
    auto = dict.fromkeys(names, "auto")
    default = small(4, max_iter=80, **({} if len(names) == 2 else {"topic_word_prior": 2.0}))
    learned = small(4, max_iter=80, **(given | auto)).fit(X)
    assert learned.lower_bound_ > default.fit(X).lower_bound_ + 1.0
    assert learned.doc_topic_prior_.shape == (4,)
    assert np.all(learned.doc_topic_prior_ > 0)
    # At the end α is the best there is: scaling it up or down lowers the bound.
    seen, _ = evaluation(learned, X)
    theta = plain.expected_log(np.concatenate(seen.local)).mean(axis=0)

    def objective(alpha):
        return (alpha - 1) @ theta - plain.log_normaliser(alpha)

    best = objective(learned.doc_topic_prior_)
    for factor in (0.9, 1.1):
        assert objective(factor * learned.doc_topic_prior_) < best


def test_topics_to_start_from(X):
    given = np.random.default_rng(1).gamma(2.0, size=(3, 40))
    start = small(components_init=given, max_iter=0).fit(X)
    assert_array_equal(start.components_, given)
    assert not np.shares_memory(start.components_, given)
    lda = small(components_init=given, max_iter=20).fit(X)
    again = small(components_init=given.tolist(), max_iter=20, random_state=9).fit(X)
    assert_array_equal(lda.components_, again.components_)
    assert lda.lower_bound_ > start.lower_bound_
    # The topics keep their places.
    turned = small(components_init=given[[2, 0, 1]], max_iter=20).fit(X)
    assert_allclose(turned.components_, lda.components_[[2, 0, 1]], rtol=1e-6)
    steps = {"max_iter": 1, "learning_offset": 1e12, "learning_decay": 1.0}
    streamed = small(components_init=given).set_params(**steps)
    assert_allclose(streamed.partial_fit(X).components_, given, rtol=1e-8)


@pytest.mark.parametrize(
    "given", [np.ones((2, 40)), np.ones((3, 39)), np.zeros((3, 40)), -np.ones((3, 40))]
)
def test_topics_to_start_from_that_are_refused(given, X):
    with pytest.raises(ValueError, match=r"components_init.*\(3, 40\)"):
        small(components_init=given).fit(X)


def test_topics_to_start_from_need_a_method_that_starts_there(X):
    given = np.ones((3, 40)) + np.eye(3, 40)
    random = StochasticAnnealing(start="random", n_passes=2)
    with pytest.raises(ValueError, match="init_params"):
        small(components_init=given, annealing=random).fit(X)
    small(components_init=given, annealing="stochastic").set_params(annealing__n_passes=2).fit(X)


@pytest.mark.parametrize("annealing", ["none", "deterministic"])
def test_a_warm_start_goes_on(annealing, X):
    lda = small(annealing=annealing, max_iter=30, tol=0.0, warm_start=True)
    if annealing == "deterministic":
        lda.set_params(annealing__n_passes=5)
    first = lda.fit(X).lower_bounds_
    topics = lda.components_.copy()
    second = lda.fit(X).lower_bounds_
    assert_array_equal(second[: len(first)], first)
    added = second[len(first) :]
    assert len(added) == 30
    assert np.diff(added).min() > -1e-9 * abs(added[-1])
    # Documents start anew, as none of the size of the corpus is kept: hardly lower, or higher.
    assert added[0] > first[-1] - 1e-3 * X.sum()
    assert added[-1] >= first[-1] - 1e-3 * X.sum()
    assert np.any(lda.components_ != topics)
    assert lda.n_iter_ == len(second)


def test_partial_fit_cuts_its_input_into_batches(X):
    updates = {"max_iter": 1, "total_samples": 60}
    whole = small(batch_size=16).set_params(**updates).partial_fit(X)
    parts = small(batch_size=16).set_params(**updates)
    for begin in range(0, X.shape[0], 16):
        parts.partial_fit(X[begin : begin + 16])
    assert len(whole.lower_bounds_) == 4
    assert whole.n_batch_iter_ == parts.n_batch_iter_ == 5
    assert_array_equal(whole.lower_bounds_, parts.lower_bounds_)
    assert_array_equal(whole.components_, parts.components_)
    one = small(batch_size=1000).set_params(**updates).partial_fit(X)
    assert len(one.lower_bounds_) == 1
    # λ after one update: the mean of the start and of the whole corpus at the learning rate.
    rho = 11.0**-0.7
    assert_allclose(
        one.components_.sum(),
        (1 - rho) * small(max_iter=0).fit(X).components_.sum() + rho * (X.sum() + 40.0),
        rtol=1e-9,
    )


def test_top_words(X):
    lda = small().fit(X)
    names = np.array([f"w{i}" for i in range(40)])
    words = lda.top_words(names, 5)
    assert len(words) == 3
    for topic, columns, named in zip(lda.components_, lda.top_words(n=5), words, strict=True):
        assert_array_equal(topic[columns], np.sort(topic)[::-1][:5])
        assert_array_equal(names[columns], named)
    # All words of which a topic has tokens, and no others.
    of_topics = lda.components_ > lda.topic_word_prior_ * (1 + 1e-6)
    everything = lda.top_words(n=100)
    assert [set(each) for each in everything] == [set(np.flatnonzero(row)) for row in of_topics]
    with pytest.raises(ValueError, match="1 or more, got 0"):
        lda.top_words(names, 0)
    with pytest.raises(ValueError, match=r"feature_names.*40.*\(39,\)"):
        lda.top_words(names[1:])


@pytest.mark.parametrize("annealing", ["structured", "none"])
def test_lists_of_words_have_only_words_with_tokens(annealing, rng):
    """No document has the first ten words, with which an alphabetical list would begin."""
    parts = np.kron(np.eye(2), np.full(6, 1 / 6))
    X = np.hstack([np.zeros((80, 10), int), rng.multinomial(30, parts[np.arange(80) % 2])])
    lda = small(12, annealing=annealing, doc_topic_prior=1e-3, topic_word_prior=0.5).fit(X)
    tokens = (lda.components_ - lda.topic_word_prior_).sum(axis=1)
    empty = tokens < 1e-9
    assert 0 < empty.sum() < 12
    with pytest.warns(UserWarning, match=f"{empty.sum()} of 12 topics have no tokens"):
        words = lda.top_words(n=15)
    assert_array_equal([len(each) == 0 for each in words], empty)
    assert all(each.min() >= 10 for each in words if len(each))
    with pytest.warns(UserWarning, match="topics do not have two words"):
        coherence = topic_coherence(lda.components_, X, n_top_words=6)
    assert np.isnan(coherence[empty]).all()
    assert np.isfinite(coherence[tokens > 1]).all()
    drawn = TopicsDisplay.from_estimator(lda, topics=list(range(12)), n_words=15)
    for each, shown in zip(words, drawn.words, strict=True):
        assert_array_equal(each, shown)


def test_random_words_have_a_high_temperature(rng):
    """Words drawn from the whole vocabulary fit no topic; no document was seen by the fit."""
    X = draw_corpus(rng, n_documents=200, n_words=100, n_topics=5, length=60, eta=0.05)
    lda = small(5, annealing="local_tempering", max_iter=20)
    lda.set_params(annealing__n_passes=15).fit(X[40:])
    odd = np.random.default_rng(5).multinomial(60, np.full(100, 0.01), size=40)
    found = lda.inverse_temperatures(vstack([X[:40], csr_matrix(odd)]))
    assert found.shape == (80,)
    assert np.all((found > 0) & (found <= 1))
    assert np.median(found[40:]) < np.median(found[:40]) - 0.05
    assert np.mean(found[40:, None] < found[None, :40]) > 0.9
    assert np.all(lda.temperatures_ >= 1.0)


@in_turn(
    annealing=("none", "structured", "stochastic", "svi_plus"),
    how=(
        {"learning_method": "online", "batch_size": 128},
        {"learning_method": "online", "batch_size": 200},
        {"learning_method": "batch"},
    ),
    dtype=(np.float64, np.float32),
)
def test_threads_share_all_parts_of_an_update_without_changing_a_bit(
    how, annealing, dtype, rng, monkeypatch
):
    """Words, draws, statistics and batches are shared too, also where few words are met."""
    make_threads_worthwhile(monkeypatch)
    monkeypatch.setattr(tables, "_ENTRIES_OF_TASK", 1)
    X = draw_corpus(rng, n_documents=300, n_words=1500, n_topics=8, length=60, eta=1.0)
    X = X.astype(dtype)
    size = how.get("batch_size", 300)
    chunks, met = documents(X[:size]).chunks(), documents(X[:size]).occurring(1500)
    assert len(chunks) >= 2, "one chunk: the test tests nothing"
    assert len(met) > 2 * 512, "one part of the words: the test tests nothing"
    params = {**how, "annealing": quick(annealing, 3), "max_iter": 2, "tol": 0.0}
    one, two = (small(5, **params, n_jobs=n).fit(X) for n in (1, 2))
    assert_array_equal(one.components_, two.components_)
    assert_array_equal(one.lower_bounds_, two.lower_bounds_)
    assert one.lower_bound_ == two.lower_bound_


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("local_step", ["mean_field", "cvb0", "collapsed_gibbs"])
def test_evaluations_find_the_bound_without_statistics(local_step, weighted, X, rng):
    """The bound is that of a visit of plain mean-field inference, whatever the local step is."""
    weights = rng.uniform(0.5, 2.0, X.shape[0]) if weighted else None
    plain_steps = small(annealing="none", local_step="mean_field")
    ctx, method, units = open_run(plain_steps, X, weights)
    # Local variables start as they do at the end of a fit, in an evaluation as well.
    ctx.exploring = False
    whole = visit(ctx, method, units).step
    lda = small(annealing="structured", local_step=local_step)
    of_method, method, units = open_run(lda, X, weights, q=ctx.q)
    of_method.model.doc_topic_prior = ctx.model.doc_topic_prior
    evaluated = visit(of_method, NoAnnealing(), units, evaluation=True).step
    assert evaluated.statistics == {}
    assert whole.statistics["topic_word"].sum() > 0
    assert evaluated.bound == pytest.approx(whole.bound, rel=1e-12)
    assert evaluated.log_prior == whole.log_prior


def test_the_perplexity_ends_a_fit(X, capsys):
    lda = small(4, max_iter=60, tol=0.0, evaluate_every=2, perp_tol=0.5, verbose=1).fit(X)
    assert lda.converged_
    assert "the perplexity of the training set changes by less than perp_tol=0.5" in (
        capsys.readouterr().out
    )
    assert 2 < lda.n_iter_ < 60
    assert lda.n_iter_ % 2 == 0
    before, after = np.exp(-lda.lower_bounds_[[-3, -1]] / X.sum())
    assert abs(after - before) < 0.5
    never = small(4, max_iter=60, tol=0.0, evaluate_every=0, perp_tol=0.5).fit(X)
    assert never.n_iter_ == 60


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_topics_cannot_be_changed_in_place(dtype, X):
    """Predictions read the same memory, and would become those of other topics."""
    lda = small(3).fit(X.astype(dtype))
    before = lda.score(X)
    with pytest.raises(ValueError, match="read-only"):
        lda.components_ /= 2
    assert lda.score(X) == before
    assert lda.partial_fit(X.astype(dtype)).components_.shape == (3, X.shape[1])


def test_sampling_huge_counts_takes_no_longer():
    """A count of a word is at most 1024 tokens, whatever it is."""
    X = np.array([[1e9, 0.0, 3.0], [0.0, 2e12, 1.5]])
    lda = small(2, local_step="gibbs", max_iter=3).fit(X)
    assert_allclose(lda.components_.sum(), X.sum(), rtol=1e-9)


def test_a_number_of_local_iterations_holds_everywhere(X):
    lda = small(max_doc_update_iter=2, mean_change_tol=0.0).fit(X)
    log_beta = plain.expected_log(lda.components_)
    alpha = np.full(3, 1 / 3)
    for n_iter in (0, 2, 5):
        lda.set_params(max_doc_update_iter=n_iter)
        expected = plain.corpus_step(
            X.toarray(), log_beta, alpha, spread(X, alpha, FORMS["none"]), n_iter, 0.0
        )
        fitted = small(max_doc_update_iter=n_iter, mean_change_tol=0.0, max_iter=0)
        fitted.set_params(components_init=lda.components_).fit(X)
        assert_allclose(fitted.transform(X, normalize=False), expected.gammas, rtol=1e-9)
        updated = pickle.loads(pickle.dumps(fitted)).set_params(max_iter=1).fit(X)
        assert_allclose(updated.components_, 1 / 3 + expected.statistics, rtol=1e-9)


GLOBAL = {
    "none": "none",
    "approximate": StructuredVI(gradient="approximate", n_passes=12),
    "exact": StructuredVI(gradient="exact", n_passes=12),
}


@in_turn(method=GLOBAL, local_step=("mean_field", "cvb0", "gibbs"))
def test_three_global_and_three_local_steps(method, local_step, X):
    """Online, as in the paper: each step of either kind learns."""
    lda = small(
        4, annealing=GLOBAL[method], local_step=local_step, learning_method="online",
        batch_size=15, max_iter=12, learning_offset=1.0, doc_topic_prior=0.3, topic_word_prior=0.1,
        init_params="random",
    )  # fmt: skip
    start = lda.set_params(annealing="none", max_iter=0).fit(X)
    before, score = start.lower_bound_, start.score(X)
    lda.set_params(annealing=GLOBAL[method], max_iter=12).fit(X)
    assert lda.lower_bound_ > before
    assert lda.score(X) > score + 0.3
    assert np.all(lda.components_ > 0)
    assert np.isfinite(lda.components_).all()
    assert lda.n_iter_ == 12
    assert_array_equal(pickle.loads(pickle.dumps(lda)).fit(X).components_, lda.components_)


def associated_press():
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.common.data import directory
    except ImportError:
        pytest.skip("the benchmarks are in the repository only")
    finally:
        sys.path.remove(str(ROOT))
    path = directory() / "ap.npz"
    if not path.is_file():
        pytest.skip(f"the AP corpus is not in {directory()}")
    with np.load(path, allow_pickle=False) as archive:
        parts = (archive["data"], archive["indices"], archive["indptr"])
        return csr_matrix(parts, shape=tuple(archive["shape"]))


def test_topics_start_from_documents(X, rng):
    """One fifth of the tokens are those of a document, the others those of the corpus."""
    start = small(5, topic_word_prior=0.1, max_iter=0).fit(X).components_ - 0.1
    dense = np.asarray(X.todense()) if hasattr(X, "todense") else np.asarray(X)
    assert start.sum() == pytest.approx(dense.sum(), rel=0.1)
    smooth = (dense.sum(axis=0) + 1) / (dense.sum() + dense.shape[1])
    for topic in start:
        others = dense.sum() / 5 * 0.8 * smooth
        own = np.maximum(topic - others, 0.0)
        shares = dense / dense.sum(axis=1, keepdims=True)
        closest = np.max(shares @ own / np.linalg.norm(shares, axis=1)) / np.linalg.norm(own)
        assert closest > 0.8
    other = small(5, topic_word_prior=0.1, max_iter=0, random_state=7).fit(X).components_ - 0.1
    assert np.max(np.abs(start - other)) > 1


def test_the_start_from_documents_knows_weights(X):
    """A document of weight 0 is never the start of a topic."""
    weights = np.zeros(X.shape[0])
    weights[[2, 5]] = 1.0
    start = small(4, max_iter=0).fit(X, sample_weight=weights).components_
    alone = small(4, max_iter=0).fit(X[[2, 5]]).components_
    assert_allclose(start, alone)


@pytest.mark.parametrize(
    ("params", "n_documents", "expected"),
    [
        ({}, 3000, None),
        ({"local_step": "mean_field"}, 3000, 750),
        ({"local_step": "mean_field"}, 200, 128),
        ({"local_step": "cvb0"}, 20_000, 1024),
        ({"annealing": "none"}, 3000, None),
        ({"annealing": "none", "local_step": "mean_field"}, 3000, None),
        ({"learning_method": "online"}, 3000, 750),
        ({"annealing": StructuredVI(n_passes=3), "batch_size": 50}, 3000, None),
        ({"learning_method": "online", "batch_size": 50}, 3000, 50),
        ({"learning_method": "batch", "local_step": "mean_field"}, 3000, None),
    ],
)
def test_only_draws_of_topics_work_in_minibatches_by_themselves(params, n_documents, expected):
    lda = AnnealedLatentDirichletAllocation(3, **params)
    X = csr_matrix(np.ones((n_documents, 1)))
    units = lda._make_units(lda._validate_data(X, reset=True), None)
    assert lda._settings(units).batch_size == expected


def test_parts_of_a_stream_are_cut_into_batches_of_the_stream(X):
    X = vstack([X] * 10).tocsr()
    X = csr_matrix(X, dtype=float)
    how = {"max_iter": 1, "random_state": 0}
    for total, sizes in ((None, [150] * 4), (1000, [250, 250, 100]), (50_000, [600])):
        lda = AnnealedLatentDirichletAllocation(3, total_samples=total, **how)
        batches = list(lda._stream_batches(X, lda._make_units(X, None)))
        assert [batch.n_units for batch in batches] == sizes


def test_documents_to_which_a_stream_is_fitted_are_not_cut_into_batches(X):
    X = csr_matrix(vstack([X] * 10), dtype=float)
    for how, sizes in (({}, [600]), ({"batch_size": 400}, [400, 200])):
        lda = AnnealedLatentDirichletAllocation(3, **how, random_state=0)
        batches = list(lda._stream_batches(X, lda._make_units(X, None)))
        assert [batch.n_units for batch in batches] == sizes
    # A thousand documents of 25 words: the first 400, for two topics, are those of the last fit.
    long = vstack([X, X]).tocsr()[:1000]
    lda = AnnealedLatentDirichletAllocation(2, annealing="none", max_iter=3, random_state=0)
    lda.partial_fit(long)
    assert len(lda.lower_bounds_) == 4 and lda._inference.kept is None


def test_the_default_predicts_better_than_plain_inference():
    X = associated_press()
    order = np.random.default_rng(0).permutation(X.shape[0])
    train, test = X[order[:200]], X[order[2000:]]
    lda = AnnealedLatentDirichletAllocation(10, random_state=0)
    plain_score = clone(lda).set_params(annealing="none").fit(train).score(test)
    lda.set_params(annealing=StructuredVI(n_passes=40)).fit(train)
    assert lda.score(test) > plain_score + 0.02


def test_a_stream_reaches_the_quality_of_a_batch():
    X = associated_press()
    order = np.random.default_rng(0).permutation(X.shape[0])
    train, test = X[order[:500]], X[order[2000:]]
    params = {"n_components": 10, "annealing": "none", "random_state": 0, "topic_word_prior": 0.16}
    batch = AnnealedLatentDirichletAllocation(**params).fit(train)
    # As many iterations as the fit makes while its documents start anew at every pass.
    params |= {"max_doc_update_iter": 10}
    stream = AnnealedLatentDirichletAllocation(**params, batch_size=64, total_samples=500)
    shuffle = np.random.default_rng(0).permutation
    for _ in range(5):
        stream.partial_fit(train[shuffle(500)])
    assert stream.score(test) > batch.score(test) - 0.02


def test_inverse_transform_is_the_expected_share_of_each_word(rng):
    X = rng.poisson(1.0, size=(30, 12)).astype(float)
    model = AnnealedLatentDirichletAllocation(3, annealing="none", max_iter=5, random_state=0)
    model.fit(X)
    shares = model.transform(X)
    found = model.inverse_transform(shares)
    assert found.shape == X.shape and found.dtype == shares.dtype
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.inverse_transform(np.eye(3)), topics)
    assert model.inverse_transform(np.eye(3, dtype=np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="one for each of the 3 topics"):
        model.inverse_transform(shares[:, :2])


# Seeds of topics


def seeds(n_topics=3, n_words=40, strength=30.0):
    """A prior in which topic k has the words 2k and 2k + 1 as seeds."""
    prior = np.full((n_topics, n_words), 0.1)
    for k in range(n_topics):
        prior[k, 2 * k : 2 * k + 2] = strength
    return prior


def test_a_prior_with_equal_rows_is_that_of_its_row(X, rng):
    start = rng.gamma(100.0, 0.01, (3, X.shape[1]))
    for annealing in ("none", "structured"):
        fits = [
            small(annealing=annealing, topic_word_prior=prior, components_init=start).fit(X)
            for prior in (np.full(X.shape[1], 0.7), np.full((3, X.shape[1]), 0.7))
        ]
        assert_allclose(fits[1].components_, fits[0].components_, rtol=1e-9)
        assert fits[1].lower_bound_ == pytest.approx(fits[0].lower_bound_, rel=1e-12)
    assert fits[1].topic_word_prior_.shape == (3, X.shape[1])


@pytest.mark.parametrize("annealing", ["none", "deterministic", "reheating"])
def test_seeds_name_the_topics(annealing, rng):
    """Every topic has its own seeds, whatever the random state."""
    n_words = 40
    truth = np.full((3, n_words), 0.01)
    for k in range(3):
        truth[k, 2 * k : 2 * k + 2] = 1.0
        truth[k, 6 + 10 * k : 16 + 10 * k] = 0.5
    truth /= truth.sum(axis=1, keepdims=True)
    X = np.array([rng.multinomial(40, truth[i % 3]) for i in range(90)])
    for seed in range(3):
        est = small(topic_word_prior=seeds(), annealing=annealing, random_state=seed).fit(X)
        found = est.components_ / est.components_.sum(axis=1, keepdims=True)
        assert (found @ truth.T).argmax(axis=1).tolist() == [0, 1, 2]


def test_the_bound_of_seeded_topics_never_falls(X, monkeypatch):
    lda = small(annealing="none", max_iter=40, tol=0.0, topic_word_prior=seeds())
    bounds = kept_bounds(lda, X, monkeypatch)
    assert len(bounds) >= 20
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])


def test_seeds_work_in_streams_and_with_every_method(X):
    for annealing in ANNEALING:
        est = small(topic_word_prior=seeds(n_words=X.shape[1]), annealing=quick(annealing))
        assert np.isfinite(est.fit(X).lower_bound_)
        assert np.isfinite(est.fit(X.astype(np.float32)).lower_bound_)
    est.partial_fit(X).partial_fit(X)
    assert_array_equal(est.topic_word_prior_, seeds(n_words=X.shape[1]))


@pytest.mark.parametrize("prior", [np.ones((2, 40)), np.ones((3, 39)), np.zeros((3, 40))])
def test_seeds_of_another_shape_are_refused(prior, X):
    with pytest.raises(ValueError, match=r"shape \(n_components, n_features\) = \(3, 40\)"):
        small(topic_word_prior=prior).fit(X)


def test_sampled_documents_have_the_moments_of_the_model(X):
    est = small(doc_topic_prior=[0.2, 1.0, 3.0]).fit(X)
    drawn, shares = est.sample(4000, n_tokens=50)
    assert drawn.shape == (4000, 40)
    assert drawn.dtype == np.int64
    assert shares.shape == (4000, 3)
    assert_array_equal(np.asarray(drawn.sum(axis=1)).ravel(), 50)
    assert_allclose(shares.mean(axis=0), np.array([0.2, 1.0, 3.0]) / 4.2, atol=0.02)
    expected = est.inverse_transform(shares).mean(axis=0)
    assert_allclose(np.ravel(drawn.mean(axis=0)) / 50, expected, atol=0.005)
    lengths = [0, 7, 3]
    assert_array_equal(np.asarray(est.sample(3, lengths)[0].sum(axis=1)).ravel(), lengths)
    assert (est.sample(5)[0] != est.sample(5)[0]).nnz == 0
    for bad in (-1, 2.5, [1, -2]):
        with pytest.raises(ValueError, match="n_tokens must be integers of 0 or more"):
            est.sample(2, bad)
    with pytest.raises(ValueError, match="one for each of the 2 documents"):
        est.sample(2, [3, 4, 5])
    for wrong in (0, 2.5, None):
        with pytest.raises(ValueError, match="'n_samples'"):
            est.sample(wrong)
    sparse, shares = small(doc_topic_prior=1e-4).fit(X).sample(500)
    assert (sparse.sum(axis=1) == 100).all()
    assert (shares.max(axis=1) > 0.99).mean() > 0.99


@pytest.mark.parametrize(("n_words", "factor"), [(100, 1.0), (4_000, 1.0), (16_000, 0.5)])
def test_the_scaled_prior_of_words_falls_with_topics_and_large_vocabularies(n_words, factor):
    eta = prior_of_words("scaled", 16, n_words)
    np.testing.assert_allclose(eta, np.full(n_words, factor * 2 / 8), rtol=1e-15)


@pytest.mark.parametrize(
    ("per_word", "factor"), [(1, 0.5), (25, 0.5), (49, 0.7), (100, 1.0), (1e6, 1.0)]
)
def test_the_scaled_prior_of_words_falls_with_few_tokens_of_each_word(per_word, factor):
    eta = prior_of_words("scaled", 16, 50, per_word)
    np.testing.assert_allclose(eta, np.full(50, factor * 2 / 8), rtol=1e-15)


@pytest.mark.parametrize("form", ["whole", "copies", "weights", "parts", "stored zeros"])
def test_the_prior_of_sampled_topics_depends_on_the_tokens_of_words_that_occur(form):
    # Each of six words has 60 tokens, and the last column has none.
    X = csr_matrix(np.tile([6, 6, 6, 6, 6, 6, 0], (10, 1)))
    others = csr_matrix(np.tile([0, 0, 0, 0, 0, 0, 6], (10, 1)))
    forms = {
        "whole": (X, None),
        "copies": (vstack([X, X]), None),
        "weights": (vstack([X, others]), np.repeat([1.0, 0.0], 10)),
        "parts": (Shards([X[:4], X[4:]]), None),
        "stored zeros": (vstack([X, others]), None),
    }
    forms["stored zeros"][0].data[X.nnz :] = 0
    documents, weights = forms[form]
    quick_fit = {"annealing": StructuredVI(n_passes=2)}
    est = AnnealedLatentDirichletAllocation(16, random_state=0, **quick_fit)
    found = est.fit(documents, sample_weight=weights).topic_word_prior_
    factor = 1.0 if form == "copies" else 0.6**0.5
    np.testing.assert_allclose(found, factor * 2 / 8, rtol=1e-12)
    mean_field = est.set_params(local_step="mean_field").fit(documents, sample_weight=weights)
    np.testing.assert_allclose(mean_field.topic_word_prior_, 2 / 8, rtol=1e-12)


def test_minibatches_of_several_blocks_do_not_depend_on_the_number_of_threads(X, monkeypatch):
    """Blocks are shuffled while a thread makes the next batch, and draws use the same generator."""
    make_threads_worthwhile(monkeypatch)
    monkeypatch.setattr(_units, "_SHUFFLE_BLOCK", 8)
    made, original = [], Workers.ahead

    def spy(self, function, items):
        made.append(self.n_workers)
        return original(self, function, items)

    monkeypatch.setattr(Workers, "ahead", spy)
    how = {"learning_method": "online", "batch_size": 1, "max_iter": 2}
    how["annealing"] = quick("structured", 2)
    one, two = (small(n_jobs=n_jobs, **how).fit(X) for n_jobs in (1, 2))
    assert set(made) == {1, 2}
    assert_array_equal(one.components_, two.components_)


def test_a_batch_of_documents_comes_with_its_words(X):
    units = Documents(X.data, X.indices, X.indptr)
    batch = units.batch(np.array([3, 0]))
    assert_array_equal(vars(batch)["_occurring"], np.unique(X[[0, 3]].indices))
    assert units.batch(slice(None)) is units
    none = Documents(X.data[:0], X.indices[:0].astype(np.uint32), np.zeros(2, np.int64))
    assert none.occurring(X.shape[1]).shape == (0,)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_a_start_counts_the_words_of_all_documents_in_parts(dtype, X, rng, monkeypatch):
    monkeypatch.setattr(of_corpus, "_AT_A_TIME", 7)
    given = X.astype(dtype)
    weights = rng.uniform(0.5, 2.0, X.shape[0])
    units = Documents(given.data, given.indices, given.indptr)
    found = of_corpus._tokens_of_words(units, weights, X.shape[1])
    assert_allclose(found, weights @ X.toarray(), rtol=1e-13)


def test_pyldavis_takes_what_it_is_given(rng):
    X = draw_corpus(rng, n_documents=40, n_words=30)
    X = csr_matrix(X.toarray() * (np.arange(30) != 4))
    lda = small(3).fit(X)
    names = [f"w{i}" for i in range(30)]
    prepared = lda.to_pyldavis(X, names)
    # A word that does not occur would have an infinite lift.
    present = X.toarray().sum(axis=0) > 0
    assert prepared["vocab"] == [name for name, there in zip(names, present, strict=True) if there]
    assert_array_equal(prepared["term_frequency"], X.toarray().sum(axis=0)[present])
    assert_array_equal(prepared["doc_lengths"], X.toarray().sum(axis=1))
    for key in ("topic_term_dists", "doc_topic_dists"):
        assert_allclose(prepared[key].sum(axis=1), 1.0)
    expected = lda.components_[:, present]
    expected /= expected.sum(axis=1, keepdims=True)
    assert_allclose(prepared["topic_term_dists"], expected)
    # Single precision is not the precision of the sums.
    many = csr_matrix(np.full((2000, 30), 10001.0 / 3, dtype=np.float32))
    total = lda.to_pyldavis(many)["term_frequency"]
    assert_allclose(total, 2000 * np.float64(np.float32(10001.0 / 3)), rtol=1e-12)
    with pytest.raises(ValueError, match="no token"):
        lda.to_pyldavis(csr_matrix((2, 30)))
    pyLDAvis = pytest.importorskip("pyLDAvis")
    drawn = pyLDAvis.prepare(**prepared, n_jobs=1).topic_coordinates
    assert len(drawn) == 3 and np.isfinite(drawn[["x", "y"]].to_numpy()).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_topics", "alpha", "scale"), [(600, None, 1.0), (3, 1e-5, 1e-6)])
def test_bound_of_documents_of_few_tokens_is_negative_and_rises(n_topics, alpha, scale, dtype, rng):
    X = scale * np.eye(20)[rng.integers(20, size=40)].astype(dtype)
    est = small(n_topics, annealing="none", doc_topic_prior=alpha, max_iter=5, effort=0).fit(X)
    assert est.lower_bound_ < 0
    assert np.diff(est.lower_bounds_).min() > -1e-5 * abs(est.lower_bound_)
    assert est.lower_bounds_[0] < est.lower_bound_
    found = est.transform(X)
    assert_allclose(found.sum(axis=1), 1.0)
