"""Streams of nets, whose rows are seen again with each batch."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
import skops.io
from harness import assert_identical, context_of
from models.sigmoid_belief_net import small_sigmoid_belief_net, stripes
from scipy import sparse
from sklearn.datasets import load_digits

from sklearn_anneal import TRUSTED_TYPES, AnnealedSigmoidBeliefNet, Shards
from sklearn_anneal.estimators._streaming import Streams
from sklearn_anneal.inference.replay import Replayed, replay
from sklearn_anneal.models._binary_rows import BinaryRows
from sklearn_anneal.models.sigmoid_belief_net import SigmoidBeliefNet

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def digits(order="random"):
    """Return 600 rows to learn from, in some order, and others."""
    X, y = load_digits(return_X_y=True)
    places = np.random.default_rng(0).permutation(len(X))
    X, y = (X[places] > 8).astype(float), y[places]
    rows = np.arange(600)
    if order == "sorted":
        rows = np.argsort(y[:600], kind="stable")
    return X[rows], X[600:]


def net(**params):
    settings = {"hidden_layer_sizes": (20,), "random_state": 0, "max_iter": 50}
    return AnnealedSigmoidBeliefNet(**(settings | params))


def streamed(est, X, size=50, weights=None):
    for start in range(0, X.shape[0], size):
        rows = slice(start, start + size)
        est.partial_fit(X[rows], sample_weight=None if weights is None else weights[rows])
    return est


@cache
def fitted(order):
    """Return a fit to the rows in some order."""
    return net().fit(digits(order)[0])


def steps(est):
    """Return the number of steps of the optimizer."""
    return context_of(est).state["optimizer"]["n_steps"]


@pytest.mark.parametrize("order", ["random", "sorted"])
@pytest.mark.parametrize("size", [7, 50, 300])
def test_streams_come_near_to_fits(order, size):
    X, other = digits(order)
    fit, stream = fitted(order), streamed(net(), X, size)
    alone = streamed(net(max_iter=1), X, size)
    assert stream.score(other) > fit.score(other) - 0.8
    assert stream.score(other) > alone.score(other) + 1.0
    # A stream costs about as much as a fit.
    assert 0.8 * steps(fit) < steps(stream) < 1.5 * steps(fit)


@pytest.mark.parametrize(
    ("how", "loss"),
    [
        ({"hidden_layer_sizes": (20, 10)}, 1.0),
        ({"binarize": "sample"}, 0.5),
        # A few steps with all rows find a poor fit.
        ({"batch_size": None, "optimizer": "rmsprop", "learning_rate_init": 0.01}, 2.5),
        ({"average": False}, 0.5),
        ({"total_samples": 600}, 0.5),
        ({"early_stopping": True}, 0.5),
    ],
    ids=str,
)
def test_streams_come_near_to_fits_with_other_settings(how, loss):
    X, other = digits("sorted")
    if "binarize" in how:
        X, other = 0.9 * X + 0.05, 0.9 * other + 0.05
    fit, stream = net(**how).fit(X), streamed(net(**how), X)
    alone = streamed(net(**how, max_iter=1), X)
    assert stream.score(other) > fit.score(other) - loss
    assert stream.score(other) > alone.score(other) + 2.0


def test_single_precision_sparse_rows_and_parts_make_the_same_streams():
    X, other = digits()
    X = X[:200]
    stream = streamed(net(max_iter=10), X)
    assert_identical(net(max_iter=10).partial_fit(Shards([X[:50], X[50:]])),
                     net(max_iter=10).partial_fit(X[:50]).partial_fit(X[50:]))  # fmt: skip
    of_sparse = streamed(net(max_iter=10), sparse.csr_matrix(X))
    np.testing.assert_allclose(of_sparse.coefs_[0], stream.coefs_[0], atol=1e-8)
    single = streamed(net(max_iter=10), X.astype(np.float32))
    assert single.coefs_[0].dtype == np.float32
    assert single.score(other) == pytest.approx(stream.score(other), abs=0.2)
    # Dense and sparse batches may alternate.
    both = net(max_iter=10)
    for start in range(0, 200, 50):
        rows = X[start : start + 50]
        both.partial_fit(sparse.csr_array(rows) if start % 100 else rows)
    np.testing.assert_allclose(both.coefs_[0], stream.coefs_[0], atol=1e-8)


def test_streams_go_on_after_they_were_stored(tmp_path):
    X, _ = digits()
    whole = streamed(net(max_iter=10), X[:300], 40)
    stream = streamed(net(max_iter=10), X[:160], 40)
    skops.io.dump(stream, tmp_path / "stream.skops")
    for same in (
        skops.io.load(tmp_path / "stream.skops", trusted=TRUSTED_TYPES),
        pickle.loads(pickle.dumps(stream)),
    ):
        assert_identical(streamed(same, X[160:300], 40), whole)


def test_the_number_of_workers_changes_nothing():
    X, _ = digits()
    one, two = (streamed(net(max_iter=5, n_jobs=n, batch_size=600), X, 300) for n in (1, 2))
    assert_identical(one, two)


def test_max_iter_1_and_schedules_leave_updates_alone(rng):
    X = stripes(rng, 100)
    for how in ({"max_iter": 1}, {"annealing": "svi_plus", "total_samples": 1000}):
        stream = streamed(small_sigmoid_belief_net(**how), X, 10)
        assert stream._inference.replayed is None and steps(stream) == 10
    stream = streamed(small_sigmoid_belief_net(annealing="svi_plus"), X, 10)
    assert steps(stream) > 10
    # Updates of a fit are single ones, too, because its rows are not kept.
    fit = small_sigmoid_belief_net(max_iter=3, tol=0.0).fit(X)
    assert steps(streamed(fit, X, 10)) == 3 + 10
    # The rows are still kept if max_iter changes.
    before = steps(stream)
    streamed(stream.set_params(max_iter=1), X, 10)
    assert steps(stream) == before + 10 and stream._inference.replayed.n_seen == 200


@pytest.mark.parametrize("size", [1, 9, 250])
def test_rows_and_steps_of_long_streams_are_bounded(size, rng, monkeypatch):
    monkeypatch.setattr(SigmoidBeliefNet, "rows_of_replays", lambda self: 100)
    X, stream, counts = stripes(rng, 1000), small_sigmoid_belief_net(batch_size=10, max_iter=20), []
    for start in range(0, len(X), size):
        replayed = stream.partial_fit(X[start : start + size])._inference.replayed
        assert replayed.n_units <= max(150, 100 + size) and len(replayed.batches) <= 9
        assert replayed.n_seen == min(start + size, len(X))
        counts.append(steps(stream))
    assert replayed.share == pytest.approx(100 / 1000, rel=0.5)
    # A fit to the first 100 rows has 200 steps. As many rows are seen again as come at last.
    assert counts[-1] < 200 * (1.5 + np.log(10.0)) + len(X) / min(size, 10)
    assert (counts[-1] - counts[-1 - 200 // size]) * min(size, 10) >= 200 // size * size


def test_later_epochs_repeat_as_many_rows_as_come():
    X, other = digits("sorted")
    stream = streamed(net(total_samples=600, max_iter=30), X)
    first, score = steps(stream), stream.score(other)
    for _ in range(4):
        streamed(stream, X)
    # There are twelve batches of 50 rows in an epoch, which are filled up to the usual 100.
    assert first > 180 and steps(stream) == first + 4 * 12
    assert stream.score(other) > score
    longer = streamed(streamed(net(max_iter=30), X), X)
    assert steps(longer) > 2 * 180


def test_weights_say_how_often_rows_are_seen_again(rng):
    """A sample, and the rows since, are those of the whole stream."""
    X, weights = np.eye(60)[np.arange(600) // 10], rng.uniform(0.0, 2.0, 600)
    weights[300:310], weights[590:] = 0.0, 3.0
    expected = np.bincount(np.arange(600) // 10, weights)
    found = np.zeros(60)
    for _ in range(40):
        replayed = Replayed(100)
        for start in range(0, 600, 40):
            rows = slice(start, start + 40)
            replayed = replayed.added(BinaryRows(X[rows], weights[rows]), 5, rng).thinned(rng)
        assert 0.0 < replayed.share < 0.5 and len(replayed.batches) > 1
        drawn = list(replayed.drawn(20, 30, rng))
        assert all(batch.n_units == 20 for batch in drawn)
        # Rows of all weights have their mean weight.
        total = np.mean([batch.total_weight for batch in drawn])
        assert total == pytest.approx(20 * weights.mean(), rel=0.1)
        found += sum(batch.X.sum(axis=0) for batch in drawn)
    assert found[30] == 0.0
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=0.006)


@pytest.mark.parametrize("most", [30, 1000])
def test_rows_are_seen_again_equally_often(most, rng):
    """Those of a batch that is larger than the sample are, too."""
    replayed = Replayed(most)
    for start in range(0, 120, 30):
        replayed = replayed.added(BinaryRows(np.eye(120)[start : start + 30]), 5, rng)
    assert replayed.due == (4 * 120 if most == 1000 else 30 * (4 + 1.5 + 1 + 1))
    drawn = sum(batch.X.sum(axis=0) for batch in replayed.drawn(40, 12, rng))
    assert drawn.min() >= 3 and drawn.max() <= 5
    assert replayed.thinned(rng).n_units == min(most, 120)


def test_a_call_that_fails_changes_nothing(rng, monkeypatch):
    X = stripes(rng, 60)
    stream = streamed(small_sigmoid_belief_net(), X, 20)
    same = pickle.loads(pickle.dumps(stream))
    with pytest.raises(ValueError, match="0 and 1"):
        stream.partial_fit(X + 0.5)

    def failing(*args):
        replay(*args)
        raise ValueError("after all steps")

    with monkeypatch.context() as patched:
        patched.setattr(f"{Streams.__module__}.replay", failing)
        with pytest.raises(ValueError, match="after all steps"):
            stream.partial_fit(X)
    assert_identical(stream.partial_fit(X), same.partial_fit(X))


def test_batches_of_weight_zero_are_not_kept(rng):
    X = stripes(rng, 60)
    stream = small_sigmoid_belief_net().partial_fit(X)
    before = steps(stream)
    stream.partial_fit(X, sample_weight=np.zeros(60))
    assert stream._inference.replayed.n_seen == 60 and steps(stream) == before
