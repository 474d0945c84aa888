"""Tests of streams that are fitted anew whenever they have grown, above all of counts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import skops.io
from cases_latent_dirichlet import draw_corpus
from harness import assert_identical
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix, vstack
from sklearn.base import clone

from sklearn_anneal import (
    TRUSTED_TYPES,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
)
from sklearn_anneal.data.units import DenseCounts, Documents, SparseCounts

CLASSES = {"topics": AnnealedLatentDirichletAllocation, "counts": AnnealedGammaProcessNMF}


def parts_of_counts(rng, n=300, k=5, width=6, mean=3.0):
    """Rows of a Poisson distribution whose rates are sums of parts with a few columns each."""
    parts = np.kron(np.eye(k), np.ones(width)) + 0.1
    return rng.poisson(rng.gamma(0.3, mean / 0.3, size=(n, k)) @ parts / k)


def streamed(est, X, size=30, start=0):
    for begin in range(start, X.shape[0], size):
        est.partial_fit(X[begin : begin + size])
    return est


def per_token(est, X):
    """log p of the second half of the counts of each row, given the first, per count."""
    if isinstance(est, AnnealedLatentDirichletAllocation):
        return est.score(X)
    rng = np.random.default_rng(0)
    seen = rng.binomial(X, 0.5)
    rates = est.transform(seen) @ est.components_
    held_out = X - seen
    return (held_out * np.log(rates / rates.sum(axis=1, keepdims=True))).sum() / held_out.sum()


@pytest.mark.parametrize("order", ["random", "sorted"])
@pytest.mark.parametrize("model", CLASSES)
def test_a_growing_stream_comes_near_to_a_fit(model, order, rng):
    """Updates alone, which see each row once, were far behind."""
    if model == "topics":
        X = draw_corpus(rng, 500, n_words=120, n_topics=5, length=40)
    else:
        parts = rng.dirichlet(np.full(60, 0.1), size=8)
        X = rng.poisson(rng.gamma(0.3, 100.0, size=(500, 8)) @ parts)
    X, T = X[:300], X[300:]
    est = CLASSES[model](5 if model == "topics" else 8, random_state=0)
    fit = clone(est).fit(X)
    if order == "sorted":
        X = X[np.argsort(fit.transform(X).argmax(axis=1), kind="stable")]
    stream = streamed(clone(est), X)
    updates = streamed(clone(est).set_params(max_iter=1), X)
    assert stream._inference.kept.n_fits >= 4 and updates._inference.kept is None
    losses = [per_token(fit, T) - per_token(other, T) for other in (stream, updates)]
    assert losses[0] < (0.03 if order == "random" else 0.1)
    assert losses[1] > losses[0] + 0.03


def kinds_of_rows(rng):
    X = parts_of_counts(rng, 120)
    missing = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    weights = rng.integers(1, 4, len(X)).astype(float)
    yield "topics", csr_matrix(X), None
    yield "topics", csr_matrix(X), weights
    yield "counts", X, None
    yield "counts", X.astype(np.float32), weights
    yield "counts", csr_matrix(X), weights
    yield "counts", missing, weights


@pytest.mark.parametrize("kind", range(6))
def test_a_fit_of_a_stream_is_one_to_all_rows_so_far(kind, rng, tmp_path):
    """It has the parameters of ``fit``, whose components may have other numbers."""
    model, X, weights = list(kinds_of_rows(rng))[kind]
    est, n_fits = CLASSES[model](4, random_state=0, annealing="none"), []
    stream = clone(est)
    for start in range(0, 120, 20):
        rows = slice(start, start + 20)
        stream.partial_fit(X[rows], sample_weight=None if weights is None else weights[rows])
        n_fits.append(stream._inference.kept.n_fits)
        skops.io.dump(stream, tmp_path / "stream.skops")
        stream = skops.io.load(tmp_path / "stream.skops", trusted=TRUSTED_TYPES)
        if stream._inference.kept.is_fresh or n_fits[-1] > ([0, *n_fits])[-2]:
            seen = slice(0, start + 20)
            of_seen = None if weights is None else weights[seen]
            fit = clone(est).fit(X[seen], sample_weight=of_seen)
            found, expected = (each.components_ for each in (stream, fit))
            order = linear_sum_assignment(expected @ found.T, maximize=True)[1]
            assert_allclose(found[order], expected, rtol=1e-4 if X.dtype == np.float32 else 1e-7)
            # Activations of counts go on from pass to pass of a fit, and begin anew here.
            assert stream.lower_bound_ == pytest.approx(fit.lower_bound_, rel=3e-3)
    assert n_fits == [1, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("model", CLASSES)
def test_components_keep_their_numbers_as_a_stream_grows(model):
    rng = np.random.default_rng(3)
    X = parts_of_counts(rng, 240, mean=10.0)
    stream, n_compared = CLASSES[model](5, random_state=0), 0
    for start in range(0, 240, 20):
        before = stream.transform(X[:start]) if start else None
        n_fits = stream._inference.kept.n_fits if start else 0
        stream.partial_fit(X[start : start + 20])
        if start >= 60 and stream._inference.kept.n_fits > n_fits:
            alike = before.T @ stream.transform(X[:start])
            assert_array_equal(linear_sum_assignment(alike, maximize=True)[1], np.arange(5))
            n_compared += 1
    assert n_compared >= 3


@pytest.mark.parametrize("model", CLASSES)
def test_the_last_fit_of_a_growing_stream_may_be_one_to_the_most_rows(model, rng):
    """A batch that ends there was an update, although documents are divided so that it does."""
    X = csr_matrix(parts_of_counts(rng, 420, k=2))
    est = CLASSES[model](2, annealing="none", random_state=0)
    stream = clone(est).partial_fit(X[:200]).partial_fit(X[200:400])
    assert stream._inference.kept.n_fits == 2 and not stream._inference.kept.batches
    fit = clone(est).fit(X[:400])
    found, expected = (each.transform(X[:400]) for each in (stream, fit))
    order = linear_sum_assignment(expected.T @ found, maximize=True)[1]
    assert_allclose(stream.components_[order], fit.components_, rtol=1e-7)
    if model == "topics":
        divided = clone(est).partial_fit(X[:200]).partial_fit(X[200:])
        assert len(divided.lower_bounds_) == 3
        before = clone(stream).partial_fit(X[:200]).partial_fit(X[200:400])
        assert_allclose(divided.components_, before.partial_fit(X[400:]).components_, rtol=1e-12)
    assert stream.partial_fit(X[400:])._inference.kept is None


@pytest.mark.parametrize("n_first", [3, 30])
def test_a_long_batch_of_counts_is_fitted_whatever_came_before(n_first, rng):
    """A stream that had been fitted to few rows had one update with all that followed."""
    X = csr_matrix(parts_of_counts(rng, 500, k=2))
    est = AnnealedGammaProcessNMF(2, annealing="none", random_state=0)
    stream = clone(est).partial_fit(X[:n_first]).partial_fit(X[n_first:])
    assert stream._inference.kept.is_over and not stream._inference.kept.batches
    assert stream._inference.kept.n_fits == (1 if n_first == 3 else 2)
    assert stream.lower_bound_ == pytest.approx(clone(est).fit(X).lower_bound_, rel=1e-6)


@pytest.mark.parametrize("model", CLASSES)
def test_what_a_growing_stream_keeps_is_bounded(model, rng):
    """After a hundred times the rows of the first fit it consists of updates, and keeps nothing."""
    X, sizes = csr_matrix(parts_of_counts(rng, 700, k=2)), []
    stream = CLASSES[model](2, annealing="none", max_iter=5, random_state=0)
    for start in range(0, 700, 50):
        stream.partial_fit(X[start : start + 50])
        sizes.append(len(pickle.dumps(stream)))
    assert stream._inference.kept is None and stream._inference.fitted
    # Two rows for each component are 4 of the 50 with which the stream was fitted first.
    assert max(sizes[:8]) > 1.5 * sizes[-1]
    assert sizes[-1] < 1.2 * sizes[-2]


def test_documents_beyond_the_last_fit_are_updates_whatever_came_before(rng):
    """A first batch that is too small for a fit made one to all documents of the second."""
    X = csr_matrix(parts_of_counts(rng, 1400, k=2))
    n_calls = []
    for n_first in (3, 30):
        stream = AnnealedLatentDirichletAllocation(2, annealing="none", max_iter=3, random_state=0)
        stream.partial_fit(X[:n_first]).partial_fit(X[n_first:])
        n_calls.append(len(stream.lower_bounds_))
        assert stream._inference.kept is None
    # Each has a call for its first batch, one up to 400 documents, and three for the others.
    assert n_calls == [5, 5]


@pytest.mark.parametrize("model", CLASSES)
def test_parameters_of_a_stream_of_known_length_are_those_of_all_its_data(model, rng):
    X = csr_matrix(parts_of_counts(rng, 60))
    stream = CLASSES[model](5, total_samples=6000, annealing="none", random_state=0)
    stream.partial_fit(X)
    assert stream._inference.kept.n_fits == 1
    if model == "topics":
        assert stream.components_.sum() == pytest.approx(100.0 * X.sum(), rel=0.01)
    again = pickle.loads(pickle.dumps(stream))
    fit = clone(stream).set_params(total_samples=None).fit(X)
    assert_allclose(*(each.transform(X) for each in (stream, again)))
    assert per_token(stream, X.toarray()) > per_token(fit, X.toarray()) - 0.05


def test_smaller_numbers_of_passes_end_the_fits_of_a_growing_stream(rng):
    X = csr_matrix(parts_of_counts(rng, 200))
    stream = streamed(AnnealedLatentDirichletAllocation(3, random_state=0), X[:60])
    n_fits = stream._inference.kept.n_fits
    streamed(stream.set_params(max_iter=1), X, start=60)
    assert stream._inference.kept.n_fits == n_fits
    streamed(stream.set_params(max_iter=10), X[:30])
    assert stream._inference.kept.n_fits == n_fits + 1


@pytest.mark.parametrize(
    "annealing, params",
    [("none", {"effort": 4.0}), ("structured", {"restarts": "race", "n_init": 2})],
)
@pytest.mark.parametrize("model", CLASSES)
def test_a_growing_stream_refuses_what_its_fits_would_refuse(model, annealing, params, rng):
    """Every new fit failed without a word, so that the stream went on with updates alone."""
    X = csr_matrix(parts_of_counts(rng, 60))
    stream = CLASSES[model](5, annealing=annealing, random_state=0).partial_fit(X[:30])
    before = pickle.dumps(stream)
    with pytest.raises(ValueError, match=f"{next(iter(params))}=.* cannot be combined"):
        stream.set_params(**params).partial_fit(X[30:])
    stream.set_params(**pickle.loads(before).get_params())
    assert_identical(stream.partial_fit(X[30:]), pickle.loads(before).partial_fit(X[30:]))
    # Updates alone have nothing to refuse.
    stream.set_params(max_iter=1, **params).partial_fit(X[:5])


def test_a_growing_stream_says_when_it_is_fitted_or_fails(rng, monkeypatch, capsys):
    X = csr_matrix(parts_of_counts(rng, 200))
    stream = AnnealedLatentDirichletAllocation(3, random_state=0, verbose=1, verbose_interval=1)
    streamed(stream, X[:60])
    said = capsys.readouterr().out
    assert "fitted anew to 60 documents" in said and "because the stream has grown" in said

    def fails(*args):
        raise np.linalg.LinAlgError("ill-defined")

    with monkeypatch.context() as patch:
        patch.setattr(AnnealedLatentDirichletAllocation, "_start_anew", fails)
        streamed(stream, X[:120], start=60)
    # The second batch of 30 is too few for another trial.
    assert capsys.readouterr().out.count("a new fit failed, and the update remains") == 1
    assert stream._inference.kept.n_weighed == 120 == stream._inference.kept.n_seen


def test_steps_after_a_fit_are_shares_of_all_rows_so_far(rng):
    X = csr_matrix(parts_of_counts(rng, 100))
    fit = AnnealedLatentDirichletAllocation(3, annealing="none", random_state=0).fit(X[:80])
    before, target = fit.components_.copy(), pickle.loads(pickle.dumps(fit))
    proposed = target.set_params(learning_decay=0.0).partial_fit(X[80:]).components_
    found = fit.partial_fit(X[80:]).components_
    assert_allclose(found, 0.8 * before + 0.2 * proposed, rtol=1e-9)


@pytest.mark.parametrize("how", [{"annealing": "structured"}, {"dispersion": "auto"}])
@pytest.mark.parametrize("total", [1e4, 1e9])
def test_streams_of_known_length_have_components_without_data(how, total, rng):
    """Priors that were learned after the last step made differences from them negative."""
    X = parts_of_counts(rng, 400)
    stream = AnnealedGammaProcessNMF(20, **how, total_samples=total, random_state=0)
    streamed(stream, X, 200)
    assert all(np.all(value > 0.0) for value in stream._inference.ctx.q.values())
    fit = AnnealedGammaProcessNMF(20, **how, random_state=0).fit(X)
    assert per_token(stream, X) > per_token(fit, X) - 0.05


@pytest.mark.parametrize("kind", [csr_matrix, np.asarray])
@pytest.mark.parametrize("model", CLASSES)
def test_a_stream_keeps_the_precision_of_its_rows(model, kind, rng):
    """A later batch of single precision does not make all results single."""
    X, est = kind(parts_of_counts(rng, 40).astype(float)), CLASSES[model](2, annealing="none")
    est.partial_fit(X[:20]).partial_fit(X[20:].astype(np.float32))
    assert est._inference.kept.n_fits == 2
    assert est.components_.dtype == np.float64
    single = clone(est).partial_fit(X.astype(np.float32))
    assert single.components_.dtype == np.float32


def test_joined_rows_are_those_of_their_parts(rng):
    X = parts_of_counts(rng, 50).astype(float)
    sparse = csr_matrix(X)
    weights = rng.random(30)
    first = SparseCounts(*(getattr(sparse[:20], name) for name in ("data", "indices", "indptr")))
    rest = sparse[20:]
    second = SparseCounts(rest.data, rest.indices, rest.indptr, weights)
    both = SparseCounts.joined([first, second])
    assert_array_equal(both.dense(X.shape[1]), X)
    assert_array_equal(both.weights, np.append(np.ones(20), weights))
    whole = SparseCounts(sparse.data, sparse.indices, sparse.indptr)
    assert_allclose(both.log_factorials, whole.log_factorials)
    mixed = SparseCounts.joined([first, DenseCounts(X[20:])])
    assert isinstance(mixed, DenseCounts)
    assert_array_equal(mixed.X, X)
    assert_allclose(mixed.sums, DenseCounts(X).sums)
    documents = Documents.joined([Documents(rest.data, rest.indices, rest.indptr)] * 2)
    assert_array_equal(
        csr_matrix((documents.counts, documents.words, documents.indptr)).toarray(),
        vstack([rest, rest]).toarray(),
    )
    # A copy in a file has nothing that can be computed again.
    assert documents.lengths.sum() == 2 * rest.sum()
    assert vars(pickle.loads(pickle.dumps(documents))).keys() == {
        *("counts", "words", "indptr", "weights")
    }


def test_fits_of_streams_of_sequences_estimate_their_design_effect(rng):
    """Frames of sequences with levels of their own say less about others than they were counted."""
    levels = rng.normal(size=(40, 1, 2))
    X = (levels + 0.3 * rng.normal(size=(40, 10, 2))).reshape(-1, 2)
    lengths, est = np.full(10, 10), AnnealedHMM(2, random_state=0)
    for start in range(0, 400, 100):
        est.partial_fit(X[start : start + 100], lengths=lengths)
    assert est._inference.kept.n_fits >= 2
    # The last of the fits was one to 300 frames or to all.
    fits = [clone(est).fit(X[:n], lengths=np.full(n // 10, 10)) for n in (300, 400)]
    assert est.design_effect_ in [pytest.approx(fit.design_effect_, rel=0.05) for fit in fits]
    assert est.design_effect_ > 2.0
    updates = AnnealedHMM(2, max_iter=1, random_state=0).partial_fit(X[:100], lengths=lengths)
    assert updates.design_effect_ == 1.0
