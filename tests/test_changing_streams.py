"""Tests of streams that are fitted anew, because later rows are unlike the first ones."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import skops.io
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.metrics import confusion_matrix

from sklearn_anneal import (
    TRUSTED_TYPES,
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedFactorialMixture,
    AnnealedHMM,
    AnnealedSpikeSlabFactorAnalysis,
)
from sklearn_anneal.data.units import Rows, Sequences
from sklearn_anneal.inference.kept import Kept, effective_rows, joined

CENTERS = 8.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])


def sorted_rows(seed, n=400, centers=CENTERS):
    """Rows of one group after another."""
    rng = np.random.default_rng(seed)
    return np.repeat(centers, n, axis=0) + rng.standard_normal((n * len(centers), 3))


def streamed(est, X, size=100):
    for start in range(0, len(X), size):
        est.partial_fit(X[start : start + size])
    return est


@pytest.mark.parametrize("size", [40, 150])
@pytest.mark.parametrize("model", ["gaussian mixture", "mixture", "chain", "durations"])
def test_a_stream_of_groups_one_after_another_comes_near_to_a_fit(model, size):
    """Updates cannot give later groups components that the first rows have taken."""
    X, T = sorted_rows(0), sorted_rows(1)
    if model == "mixture":
        levels = np.random.default_rng(0).random((5, 20)) < 0.5
        centers = np.where(levels, 0.9, 0.1).repeat(400, axis=0)
        X, T = (np.random.default_rng(i).random(centers.shape) < centers for i in range(2))
        X, T = X.astype(float), T.astype(float)
    est = {
        "gaussian mixture": AnnealedBayesianGaussianMixture(5, random_state=0),
        "mixture": AnnealedBayesianMixture(5, emission="bernoulli", random_state=0),
        "chain": AnnealedHMM(5, random_state=0),
        "durations": AnnealedHMM(5, duration=3, random_state=0),
    }[model]
    fit = clone(est).fit(X)
    stream = streamed(clone(est), X, size)
    updates = streamed(clone(est).set_params(max_iter=1), X, size)
    assert stream._inference.kept.n_fits > 1
    assert stream.score(T) > fit.score(T) - 0.7
    assert stream.score(T) > updates.score(T) + 0.5


@pytest.mark.parametrize("order", ["random", "sorted"])
@pytest.mark.parametrize("model", ["factorial mixture", "sparse factors"])
def test_a_stream_of_sums_of_components_comes_near_to_a_fit(model, order):
    """Updates alone find few of the components, and never look for others."""
    rng = np.random.default_rng(0)
    if model == "factorial mixture":
        components, noise, est = 2.0 * rng.normal(size=(6, 20)), 0.5, AnnealedFactorialMixture(6)
        factors = (rng.random((2500, 6)) < 0.3).astype(float)
    else:
        components = rng.normal(size=(6, 20)) * (rng.random((6, 20)) < 0.5)
        factors = rng.normal(size=(2500, 6)) * (rng.random((2500, 6)) < 0.3)
        noise, est = 0.3, AnnealedSpikeSlabFactorAnalysis(6)
    X = factors @ components + noise * rng.normal(size=(2500, 20))
    X, T = X[:1500], X[1500:]
    if order == "sorted":
        X = X[np.argsort(X[:, 0])]
    fit = est.set_params(random_state=0).fit(X)
    stream = streamed(clone(est), X)
    updates = streamed(clone(est).set_params(max_iter=1), X)
    losses = [fit.score(T) - other.score(T) for other in (stream, updates)]
    assert losses[1] > 2.0
    assert losses[0] < (0.7 if order == "random" else 0.5 * losses[1])


@pytest.mark.parametrize("model", ["factorial mixture", "sparse factors"])
def test_sums_keep_the_numbers_of_their_components(model, tmp_path):
    """A component is active in the same rows before and after a stream is fitted anew."""
    rng = np.random.default_rng(1)
    components = 3.0 * np.eye(5).repeat(4, axis=1)
    active = (rng.random((1000, 5)) < 0.3) & (np.arange(5) <= np.arange(1000)[:, None] // 250)
    X = active @ components + 0.3 * rng.normal(size=(1000, 20))
    cls = {
        "factorial mixture": AnnealedFactorialMixture,
        "sparse factors": AnnealedSpikeSlabFactorAnalysis,
    }[model]
    stream, n_compared = streamed(cls(5, random_state=0), X[:200], 50), 0
    for start in range(200, 1000, 50):
        n_fits, before = stream._inference.kept.n_fits, stream.transform(X[:start])
        skops.io.dump(stream, tmp_path / "stream.skops")
        stream = skops.io.load(tmp_path / "stream.skops", trusted=TRUSTED_TYPES)
        after = stream.partial_fit(X[start : start + 50]).transform(X[:start])
        if stream._inference.kept.n_fits > n_fits:
            alike = np.abs(before.T @ after)
            alike /= np.outer(*(np.linalg.norm(each, axis=0) + 1e-9 for each in (before, after)))
            best = alike[linear_sum_assignment(alike, maximize=True)].sum()
            assert np.trace(alike) > best - 0.3
            n_compared += 1
    assert n_compared >= 2


def test_fits_to_rows_of_a_stream_are_annealed_like_others():
    """A schedule needs the length of a stream, but not that of the rows that are kept."""
    X = sorted_rows(0, 100)
    X = X[np.random.default_rng(0).permutation(len(X))]
    for annealing in ("deterministic", "stochastic"):
        mixture = AnnealedBayesianGaussianMixture(5, annealing=annealing, random_state=0)
        stream, fit = clone(mixture).partial_fit(X), clone(mixture).fit(X)
        # The bound of a stream is that before the update with the same rows.
        assert stream.lower_bound_ == pytest.approx(fit.lower_bound_, rel=1e-6)
        assert (stream.temperatures_ == 1).all()
        assert not stream._inference.is_annealing


@pytest.mark.parametrize("size", [20, 300])
def test_updates_alone_before_the_first_fit_go_on_as_they_are(size):
    """They began anew with the batch that would have been enough for a fit, and forgot the rest."""
    X = sorted_rows(0)[np.random.default_rng(0).permutation(2000)]
    alone = AnnealedBayesianGaussianMixture(5, max_iter=1, random_state=0)
    stream = clone(alone).set_params(max_iter=100).partial_fit(X[:20]).set_params(max_iter=1)
    alone.partial_fit(X[:20])
    for start in range(20, 2000, size):
        for est in (stream, alone):
            est.partial_fit(X[start : start + size])
        assert_allclose(stream.means_, alone.means_)
    assert stream._inference.kept is None


def test_a_stream_that_drifts_does_not_forget_earlier_rows():
    """Updates follow rows that change slowly, so that new ones are predicted as well as before."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 40.0, (6000, 1)), axis=0) + rng.normal(size=(6000, 2))
    mixture = AnnealedBayesianGaussianMixture(6, random_state=0)
    fit, stream = clone(mixture).fit(X), streamed(clone(mixture), X, 20)
    updates = streamed(clone(mixture).set_params(max_iter=1), X, 20)
    assert stream.score(X) > fit.score(X) - 1.0
    assert updates.score(X) < fit.score(X) - 3.0


def test_groups_keep_their_numbers_when_a_stream_is_fitted_anew():
    n_compared = 0
    for seed in range(3):
        X = sorted_rows(seed)
        stream = streamed(AnnealedBayesianGaussianMixture(5, random_state=seed), X[:400])
        for start in range(400, 2000, 50):
            n_fits, before = stream._inference.kept.n_fits, stream.predict(X[:start])
            after = stream.partial_fit(X[start : start + 50]).predict(X[:start])
            if stream._inference.kept.n_fits > n_fits:
                table = confusion_matrix(before, after, labels=np.arange(5))
                best = table[linear_sum_assignment(table, maximize=True)].sum()
                assert np.trace(table) > best - 0.02 * start
                n_compared += 1
    assert n_compared > 6


def test_an_order_that_was_given_stays_when_a_stream_is_fitted_anew():
    X = sorted_rows(0)
    stream = streamed(AnnealedBayesianGaussianMixture(5, random_state=0), X[:1100], 50)
    n_fits = stream._inference.kept.n_fits
    stream.reorder(np.argsort(stream.predict_proba(CENTERS[1:2])[0]))  # the second group is last
    streamed(stream, X[1100:], 50)
    assert stream._inference.kept.n_fits > n_fits
    assert stream.predict(CENTERS[1:2]) == 4


@pytest.mark.parametrize("annealing", ["reheating", "none"])
def test_a_stream_that_does_not_change_is_fitted_only_while_it_is_short(annealing):
    X = sorted_rows(0, 1000)
    X = X[np.random.default_rng(0).permutation(len(X))]
    stream = streamed(
        AnnealedBayesianGaussianMixture(5, annealing=annealing, random_state=0), X[:1600]
    )
    # Rows grow by a half from 200, to which the first fit is made, up to 1,000 that are kept.
    n_fits = stream._inference.kept.n_fits
    assert n_fits <= 6 and stream._inference.kept.is_sample
    assert streamed(stream, X[1600:])._inference.kept.n_fits == n_fits


@pytest.mark.parametrize("size", [7, 100, 1500])
def test_what_a_stream_keeps_does_not_grow(size):
    """The first fit needs 125 rows, and others read at most 1,000 and the new ones."""
    centers = np.random.default_rng(0).normal(size=(40, 3)) * 20.0
    X, most = sorted_rows(0, 150, centers), 0
    stream = AnnealedBayesianGaussianMixture(5, random_state=0)
    for start in range(0, len(X), size):
        stream.partial_fit(X[start : start + size])
        kept = stream._inference.kept
        assert kept.n_seen == min(start + size, len(X))
        most = max(most, sum(batch.n_rows for batch in kept.batches))
    assert most <= 1000 + 500 + size
    # The stream had as many fits as it may have, about four each time it doubled.
    assert kept.n_fits <= 1 + 4 * np.log2(len(X) / 125)


def test_a_changing_stream_goes_on_after_it_was_stored(tmp_path):
    X = sorted_rows(0)
    whole = streamed(AnnealedBayesianGaussianMixture(5, random_state=0), X)
    stream = streamed(AnnealedBayesianGaussianMixture(5, random_state=0), X[:700])
    skops.io.dump(stream, tmp_path / "stream.skops")
    for same in (
        skops.io.load(tmp_path / "stream.skops", trusted=TRUSTED_TYPES),
        pickle.loads(pickle.dumps(stream)),
    ):
        streamed(same, X[700:])
        assert np.array_equal(same.means_, whole.means_)
        assert same._inference.kept.n_fits == whole._inference.kept.n_fits > 1


def test_a_changing_stream_learns_from_weights_classes_and_gaps():
    y, gains = np.repeat(np.arange(5), 400), []
    for seed in range(3):
        X, rng = sorted_rows(seed), np.random.default_rng(seed)
        known = np.where(rng.random(len(y)) < 0.5, y, -1)
        X[rng.random(X.shape) < 0.1] = np.nan
        weights = rng.uniform(0.5, 1.5, len(X))
        fit = AnnealedBayesianGaussianMixture(n_components_per_class=1, random_state=0)
        stream = clone(fit)
        for start in range(0, len(X), 100):
            part = slice(start, start + 100)
            stream.partial_fit(X[part], known[part], weights[part], classes=np.arange(5))
        assert stream._inference.kept.n_fits > 1
        fit.fit(X, known, weights)
        assert stream.score_samples(X).mean() > fit.score_samples(X).mean() - 0.2
        gains.append(stream.score(X, y) - fit.score(X, y))
    assert np.mean(gains) > -0.01


def test_single_updates_and_streams_that_go_on_from_fits_are_not_fitted_anew():
    X = sorted_rows(0)
    for begun in (
        AnnealedBayesianGaussianMixture(5, random_state=0).fit(X[:400]),
        AnnealedBayesianGaussianMixture(5, random_state=0, max_iter=1).partial_fit(X[:400]),
    ):
        assert streamed(begun, X[400:])._inference.kept is None
    stream = streamed(AnnealedBayesianGaussianMixture(5, random_state=0), X[:400])
    n_fits = stream._inference.kept.n_fits
    stream.set_params(max_iter=1)
    assert streamed(stream, X[400:])._inference.kept.n_fits == n_fits


def test_a_stream_says_when_it_is_fitted(capsys):
    X = sorted_rows(0)
    stream = AnnealedBayesianGaussianMixture(5, random_state=0, verbose=1, verbose_interval=1)
    streamed(stream, X[:100])
    assert "fitted" not in capsys.readouterr().out
    streamed(stream, X[100:200])
    assert "fitted to 200 rows" in capsys.readouterr().out
    streamed(stream, X[200:900])
    assert "fitted anew to" in capsys.readouterr().out


def test_a_fit_that_fails_leaves_the_update_and_says_so(monkeypatch, capsys):
    """A sample of the rows can be ill-defined, and a stream must not end there."""
    X = sorted_rows(0)
    stream = streamed(AnnealedBayesianGaussianMixture(5, random_state=0), X[:500])
    n_fits, calls = stream._inference.kept.n_fits, []

    def fails(*args):
        calls.append(args)
        raise np.linalg.LinAlgError("ill-defined")

    with monkeypatch.context() as patch:
        patch.setattr(AnnealedBayesianGaussianMixture, "_start_anew", fails)
        streamed(stream.set_params(verbose=1), X[500:])
    stream.set_params(verbose=0)
    said = capsys.readouterr().out
    assert said.count("a new fit failed, and the update remains: ill-defined") == len(calls)
    assert len(stream.lower_bounds_) == 20
    assert stream.lower_bound_ == stream.lower_bounds_[-1]
    # They count among the fits that a stream may have.
    assert 1 < len(calls) == stream._inference.kept.n_fits - n_fits
    assert streamed(stream, X).score(X) > -7.0


def test_fits_that_fail_are_tried_again_only_as_the_stream_grows(monkeypatch):
    """Each takes as long as one that succeeds, and rows are not kept until one does."""
    X, calls = sorted_rows(0)[np.random.default_rng(0).permutation(2000)], []
    stream = streamed(AnnealedBayesianGaussianMixture(5, random_state=0), X[:200])

    def fails(*args):
        calls.append(args)
        raise np.linalg.LinAlgError("ill-defined")

    monkeypatch.setattr(AnnealedBayesianGaussianMixture, "_start_anew", fails)
    for start in range(200, 2000, 20):
        stream.partial_fit(X[start : start + 20])
        assert sum(batch.n_rows for batch in stream._inference.kept.batches) <= 1600
    assert 2 <= len(calls) <= 6


def test_a_stream_of_single_updates_from_some_time_on_keeps_a_sample():
    X = sorted_rows(0, 1000)
    stream = streamed(AnnealedBayesianGaussianMixture(5, random_state=0), X[:400])
    n_fits = stream._inference.kept.n_fits
    stream.set_params(max_iter=1)
    for start in range(400, len(X), 100):
        stream.partial_fit(X[start : start + 100])
        assert sum(batch.n_rows for batch in stream._inference.kept.batches) <= 1600
    assert stream._inference.kept.n_fits == n_fits
    stream.set_params(max_iter=100)
    assert streamed(stream, X[:1000])._inference.kept.n_fits > n_fits


def kept_of(batches, n_first, rng):
    """The share of each number of the data in a sample, as a weight of the whole stream."""
    kept = Kept(())
    for batch in batches:
        kept = kept.added(batch)
        if not kept.n_first and kept.n_seen >= n_first:
            kept = replace(kept.fitted(joined(kept.batches), n_first, rng), level=0.0)
        elif kept.is_due:
            kept = kept.reduced(rng)
    return kept.reduced(rng)


@pytest.mark.parametrize("kind", ["equal", "skewed", "heavy", "merged", "sequences", "classes"])
def test_a_sample_has_the_copies_of_the_whole_stream(kind):
    """Ten parts of a stream have their weights in the mean over many samples."""
    n, size, n_samples = 2000, 40, 200
    rng = np.random.default_rng(0)
    weights = {
        "skewed": rng.lognormal(0.0, 1.5, n),
        "heavy": np.where(np.arange(n) % 100 == 0, 500.0, 1.0),
        "merged": rng.integers(1, 100, n).astype(float),
    }.get(kind)
    values = np.arange(n, dtype=float)[:, None]
    classes = np.where(np.arange(n) % 200 == 0, 1, -1) if kind == "classes" else None
    numbers = np.where(np.arange(n) < n // 2, 2, 20)  # of frames
    batches = []
    for start in range(0, n, size):
        part = slice(start, start + size)
        if kind == "sequences":
            indptr = np.append(0, np.cumsum(numbers[part]))
            batches.append(Sequences(np.repeat(values[part], numbers[part], axis=0), indptr))
        else:
            own = None if weights is None else weights[part]
            labels = None if classes is None else classes[part]
            batches.append(Rows(values[part], own, classes=labels))
    true = np.ones(n) if weights is None else weights
    found, most = np.zeros(n), 0
    for seed in range(n_samples):
        kept = kept_of(batches, 50, np.random.default_rng(seed))
        units, share = kept.batches[0], kept.share
        which = units.frames[units.indptr[:-1], 0] if kind == "sequences" else units.X[:, 0]
        own = np.ones(units.n_units) if units.weights is None else units.weights
        np.add.at(found, which.astype(int), own / share / n_samples)
        most = max(most, units.n_units)
        if kind == "classes":
            assert (units.classes >= 0).sum() == 10  # all rows of a class that has few
        elif weights is None:
            assert units.weights is None
    assert most <= 401
    parts = found.reshape(10, -1).sum(1) / true.reshape(10, -1).sum(1)
    tolerance = 0.25 if kind == "sequences" else 0.06
    assert_allclose(parts, 1.0, atol=tolerance)


def test_a_common_row_of_categories_stays_in_the_sample():
    """Equal rows are merged, and were drawn for a sample as if they were one row."""
    rng = np.random.default_rng(0)
    X = (rng.random((6000, 14)) < 0.2).astype(float)
    X[rng.random(6000) < 0.4] = 0.0
    stream = AnnealedBayesianMixture(3, emission="bernoulli", random_state=0)
    for start in range(0, 6000, 500):
        stream.partial_fit(X[start : start + 500])
        kept = stream._inference.kept
        if kept.n_new == 0 and kept.is_sample:
            units = kept.batches[0]
            levels = units.X.levels() if hasattr(units.X, "levels") else units.X
            zero = (np.asarray(levels) == 0).all(axis=1)
            share = units.weights[zero].sum() / units.total_weight
            assert share == pytest.approx((X[: start + 500] == 0).all(axis=1).mean(), abs=0.1)
    assert kept.is_sample


@pytest.mark.parametrize("ordered", [True, False])
def test_a_stream_of_a_few_heavy_rows_comes_near_to_a_fit(ordered):
    """A sample that had few of them made fits that were worse than the updates before."""
    X, T = sorted_rows(0, 1000), sorted_rows(1)
    if not ordered:
        X = X[np.random.default_rng(0).permutation(5000)]
    weights = np.where(np.arange(5000) % 50 == 0, 1000.0, 1.0)
    stream = AnnealedBayesianGaussianMixture(5, random_state=0)
    fit = clone(stream).fit(X, sample_weight=weights)
    for start in range(0, 5000, 50):
        part = slice(start, start + 50)
        stream.partial_fit(X[part], sample_weight=weights[part])
    assert stream.score(T) > fit.score(T) - 0.8


def test_means_of_rows_of_unequal_weights_are_as_certain_as_those_of_fewer():
    X = np.zeros((2000, 3))
    assert effective_rows([Rows(X)]) == 2000
    assert effective_rows([Rows(X, np.full(2000, 3.0))] * 2) == pytest.approx(4000)
    assert effective_rows([Rows(X, np.eye(2000)[0] + 1e-9)]) == pytest.approx(1, abs=0.01)
