"""Tests of streams whose first batches are kept until they are enough for a fit."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import skops.io
from cases_gaussian_mixture import clusters
from scipy.sparse import csr_array
from sklearn.base import clone

from sklearn_anneal import (
    TRUSTED_TYPES,
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
)


def _equal(one, other):
    """Whether two estimators have the same parameters to the last bit."""
    q, p = one._inference.ctx.q, other._inference.ctx.q
    return q.keys() == p.keys() and all(np.array_equal(q[key], p[key]) for key in q)


def _batches_of_mixtures():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 200)
    X = 3.0 * rng.normal(size=(3, 4))[groups] + rng.standard_normal((200, 4))
    missing = np.where((rng.random(X.shape) < 0.2) & (np.arange(200) > 60)[:, None], np.nan, X)
    levels = (rng.random((200, 4)) < 0.2 + 0.3 * groups[:, None]).astype(float)
    with_gaps = np.where(
        (rng.random(X.shape) < 0.2) & (np.arange(200) > 60)[:, None], np.nan, levels
    )
    mixture = partial(AnnealedBayesianMixture, 3, random_state=0)
    answers = mixture(emission="categorical", n_categories=2)
    blocks = [("size", "gaussian", [0, 1]), ("answer", "categorical", [2, 3])]
    table = np.column_stack([X[:, :2], levels[:, 2:]])
    yield AnnealedBayesianGaussianMixture(3, random_state=0), X
    yield AnnealedBayesianGaussianMixture(3, random_state=0), missing
    yield answers, levels
    yield answers, with_gaps
    yield mixture(emission="bernoulli"), csr_array(levels)
    yield mixture(emission=blocks, n_categories={"answer": [2, 2]}), table


@pytest.mark.parametrize(("mixture", "X"), list(_batches_of_mixtures()))
def test_small_batches_are_kept_until_they_are_enough_for_a_fit(mixture, X, tmp_path):
    """The stream begins anew then, as if all of them had been its first batch."""
    whole = clone(mixture).partial_fit(X[:80]).partial_fit(X[80:])
    stream = clone(mixture)
    for start in range(0, 80, 20):
        stream.partial_fit(X[start : start + 20])
        assert stream._inference.fitted == (start >= 60)
        # The stream goes on after it was stored.
        skops.io.dump(stream, tmp_path / "stream.skops")
        stream = skops.io.load(tmp_path / "stream.skops", trusted=TRUSTED_TYPES)
    stream.partial_fit(X[80:])
    assert len(stream.lower_bounds_) == 5
    assert _equal(stream, whole)


def test_batches_that_are_kept_have_weights_classes_and_covariates_of_their_own():
    X = clusters(0, 200)[0]
    X = X[np.random.default_rng(1).permutation(len(X))[:200]]
    y = np.where(np.arange(200) < 35, -1, (X[:, 0] > 0).astype(int))
    w, Z = np.random.default_rng(0).uniform(0.5, 2.0, 200), X[:, :1] ** 2
    ways = (
        lambda part: {"sample_weight": w[part] if part.start else None},
        lambda part: {"y": y[part], "classes": [0, 1]},
        lambda part: {"covariates": Z[part]},
    )
    weights = np.where(np.arange(200) < 25, 1.0, w)
    also = {"sample_weight": weights}, {"y": y, "classes": [0, 1]}, {"covariates": Z}
    for given, whole, classes in zip(ways, also, (None, 1, None), strict=True):
        per_class = {} if classes is None else {"n_components_per_class": classes}
        mixture = AnnealedBayesianGaussianMixture(2, random_state=0, **per_class)
        stream, batch = clone(mixture), np.empty((25, X.shape[1]))
        for start in range(0, 100, 25):
            part = slice(start, start + 25)
            batch[:] = X[part]  # the caller uses one array for all batches
            stream.partial_fit(batch, **given(part))
        first = slice(0, 50)
        cut = {key: value if key == "classes" else value[first] for key, value in whole.items()}
        assert len(stream.lower_bounds_) == 4
        begun = clone(mixture).partial_fit(X[first], **cut)
        for start in (50, 75):
            begun.partial_fit(X[start : start + 25], **given(slice(start, start + 25)))
        assert stream._inference.fitted
        assert _equal(stream, begun)


@pytest.mark.parametrize("labelled", [slice(0, 20), slice(40, 60), slice(60, 200)])
def test_batches_with_and_without_classes_are_kept_together(labelled):
    """Equal rows of a batch without classes are merged, and those of others are not."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 200)
    X = (rng.random((200, 3)) < np.array([0.1, 0.5, 0.9])[groups, None]).astype(float)
    y = np.full(200, -1)
    y[labelled] = groups[labelled] > 0
    mixture = AnnealedBayesianMixture(
        emission="bernoulli", n_components_per_class={0: 1, 1: 2}, random_state=0
    )
    stream = clone(mixture)
    for start in range(0, 80, 20):
        part = slice(start, start + 20)
        given = {"y": y[part]} if (y[part] >= 0).any() else {}
        stream.partial_fit(X[part], classes=[0, 1], **given)
        assert stream._inference.fitted == (start >= 60)
        kept = stream._inference.kept.batches
        assert sum(batch.total_weight for batch in kept) == start + 20
    # The first rows alone are what a fit sees, and the rest are one update.
    stream.partial_fit(X[80:], y[80:])
    opened = clone(mixture).partial_fit(X[:80], y[:80], classes=[0, 1])
    opened.partial_fit(X[80:], y[80:])
    scores = stream.score_samples(X), opened.score_samples(X)
    assert abs(np.mean(scores[0] - scores[1])) < 0.01


@pytest.mark.parametrize("emission", ["gaussian", "categorical"])
def test_sequences_are_kept_with_their_lengths_weights_gaps_and_states(emission, tmp_path):
    rng = np.random.default_rng(0)
    hidden = np.repeat(rng.integers(0, 2, 50), 4)
    X = 3.0 * hidden[:, None] + rng.standard_normal((200, 2))
    if emission == "categorical":
        X = (X[:, 0] > 1.5).astype(int)
    else:
        X[35:40] = np.nan  # frames that are missing, in the second batch
    lengths = np.full(40, 5)
    weights = np.where(np.arange(200) < 25, 1.0, 2.0)
    states = np.where(np.arange(200) < 15, hidden, -1)
    given = {"sample_weight": weights, "states": states}
    how = {"emission": emission} | ({"n_symbols": 2} if emission == "categorical" else {})
    hmm = AnnealedHMM(2, random_state=0, **how)

    def batch(start, stop):
        part = slice(start, stop)
        own = {key: value[part] for key, value in given.items() if key != "states" or start == 0}
        return {"X": X[part], "lengths": lengths[start // 5 : stop // 5], **own}

    stream, whole = clone(hmm), clone(hmm).partial_fit(**batch(0, 50))
    for start in range(0, 100, 25):
        stream.partial_fit(**batch(start, start + 25))
        assert stream._inference.fitted == (start >= 25)
        skops.io.dump(stream, tmp_path / "stream.skops")
        stream = skops.io.load(tmp_path / "stream.skops", trusted=TRUSTED_TYPES)
    for start in (50, 75):
        whole.partial_fit(**batch(start, start + 25))
    assert _equal(stream, whole)


def test_a_batch_that_is_refused_leaves_the_kept_ones_as_they_are():
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(3, random_state=0).partial_fit(X[:60])
    before = pickle.dumps(mixture)
    with pytest.raises(ValueError, match="infinity"):
        mixture.partial_fit(np.where(X > X.max() - 1e-12, np.inf, X))
    assert pickle.dumps(mixture) == before
    # A fit and a single update keep nothing.
    for begun in (clone(mixture).fit(X[:60]), clone(mixture).set_params(max_iter=1)):
        assert begun.partial_fit(X[:60])._inference.kept is None


@pytest.mark.parametrize(("n_batches", "k", "d", "loss"), [(4, 5, 6, 0.1), (40, 4, 4, 0.15)])
@pytest.mark.parametrize("apart", [4.0, 1.5])
@pytest.mark.parametrize("known", [False, True])
def test_streams_predict_nearly_as_fits_do(n_batches, k, d, loss, apart, known):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = apart * rng.normal(size=(k, d))[rng.integers(0, k, 1500)]
        X += rng.standard_normal(X.shape)
        whole = AnnealedHMM(k, random_state=0).fit(X[:1200])
        stream = clone(whole).set_params(total_samples=n_batches if known else None)
        for batch in np.array_split(X[:1200], n_batches):
            stream.partial_fit(batch)
        assert stream.score(X[1200:]) > whole.score(X[1200:]) - loss


@pytest.mark.parametrize("annealing", ["deterministic", "stochastic", "reheating"])
def test_a_stream_of_unknown_length_gets_no_schedule_if_its_length_is_given_later(annealing):
    X, _ = clusters(0, 200)
    X = X[np.random.default_rng(1).permutation(len(X))[:200]]
    mixture = AnnealedBayesianGaussianMixture(2, annealing=annealing, random_state=0)
    stream = clone(mixture).partial_fit(X[:40]).set_params(total_samples=1000)
    plain = clone(mixture).set_params(annealing="none").partial_fit(X[:40])
    plain.set_params(total_samples=1000)
    for one in (stream, plain):
        one.partial_fit(X[40:120]).partial_fit(X[120:])
    assert stream._inference.fitted
    assert stream.score(X) == pytest.approx(plain.score(X), abs=0.01)


def test_rows_of_tiny_weights_are_not_kept_for_good():
    """A fit to two components begins at a weight of 50, and at most 500 rows are kept for it."""
    X = (np.random.default_rng(0).random((200, 12)) < 0.5).astype(float)
    stream, held = AnnealedBayesianMixture(2, emission="bernoulli", random_state=0), []
    for _ in range(4):
        stream.partial_fit(X, sample_weight=np.full(200, 1e-3))
        kept = stream._inference.kept
        held.append(None if kept is None else len(kept.batches))
    assert held == [1, 2, None, None]
