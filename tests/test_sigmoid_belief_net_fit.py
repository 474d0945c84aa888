"""Fits of sigmoid belief nets: starts, input, early stopping, the learning curve, streams."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from designs import in_turn
from harness import assert_identical, context_of
from models.sigmoid_belief_net import small_sigmoid_belief_net as net
from models.sigmoid_belief_net import stripes
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from test_checkpoints import interrupted

from sklearn_anneal import AnnealedSigmoidBeliefNet
from sklearn_anneal.annealing import ProximityVI
from sklearn_anneal.inference.gradient import Adam

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# Parameters and data that are refused


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((), "one number per hidden layer"),
        ((3, 0), "positive integers"),
        ((-2,), "positive integers"),
        ((2.5,), "positive integers"),
        ([[3, 2]], "one number per hidden layer"),
        (0, "hidden_layer_sizes"),
    ],
)
def test_sizes_are_checked(sizes, words, rng):
    for fit in (net(hidden_layer_sizes=sizes).fit, net(hidden_layer_sizes=sizes).partial_fit):
        with pytest.raises(ValueError, match=words):
            fit(stripes(rng, 20))


@pytest.mark.parametrize(
    "params",
    [
        {"n_samples": 0},
        {"n_score_samples": 0},
        {"transform_temperature": 0.0},
        {"optimizer": "newton"},
        {"learning_rate_init": 0.0},
        {"learning_rate_decay": -1.0},
        {"weight_decay": -1.0},
        {"binarize": "round"},
        {"init_params": "kmeans"},
        {"init_bias": np.inf},
        {"validation_fraction": 1.0},
        {"n_iter_no_change": 0},
        {"batch_size": 0},
    ],
    ids=str,
)
def test_parameters_are_checked(params, rng):
    (name,) = params
    with pytest.raises(ValueError, match=f"'{name}' parameter"):
        net(**params).fit(stripes(rng, 20))


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_entries_have_to_be_binary(value, rng):
    X = stripes(rng, 20)
    fitted = net().fit(X)
    X[7, 2] = value
    for call in (net().fit, net().partial_fit, fitted.partial_fit, fitted.transform, fitted.score):
        with pytest.raises(ValueError, match=rf"entry {value:g} in row 7 and column 2.*0 and 1"):
            call(X)
    drawn = net(binarize="sample")
    if value == 0.5:
        drawn.fit(X)
    else:
        with pytest.raises(ValueError, match="between 0 and 1"):
            drawn.fit(X)
    net(binarize=0.5).fit(X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("binarize", [None, "sample", 0.5])
def test_missing_and_infinite_entries_are_refused(value, binarize, rng):
    X = stripes(rng, 20)
    fitted = net(binarize=binarize).fit(X)
    X[3, 1] = value
    for call in (net(binarize=binarize).fit, fitted.partial_fit, fitted.score, fitted.reconstruct):
        with pytest.raises(ValueError, match="NaN|infinity"):
            call(X)
    with pytest.raises(ValueError, match=r"[Mm]asked"):
        net().fit(np.ma.masked_equal(stripes(rng, 20), 1))


def test_forms_of_binary_data_are_the_same(rng):
    X = stripes(rng, 40)
    expected = net().fit(X)
    for other in (X.astype(bool), X.astype(np.uint8), np.asfortranarray(X), X.tolist()):
        assert net().fit(other).lower_bound_ == expected.lower_bound_
    threshold = net(binarize=100.0).fit(255 * X)
    np.testing.assert_array_equal(threshold.recognition_coefs_[0].shape, (4, 6))
    np.testing.assert_array_equal(threshold.coefs_[0], expected.coefs_[0])
    np.testing.assert_array_equal(threshold.intercepts_[0], expected.intercepts_[0])


# Starts


def test_random_start_has_the_log_odds_of_columns(rng):
    X = stripes(rng, 200)
    fitted = net(max_iter=0, init_bias=-2.0).fit(X)
    np.testing.assert_allclose(expit(fitted.intercepts_[0]), X.mean(axis=0), atol=0.01)
    for bias in (*fitted.intercepts_[1:], *fitted.recognition_intercepts_):
        np.testing.assert_array_equal(bias, -2.0)
    shapes = [(4, 6), (3, 4)]
    assert [w.shape for w in fitted.coefs_] == shapes
    assert [w.shape for w in fitted.recognition_coefs_] == shapes
    for w, bound in zip(fitted.coefs_, np.sqrt([6 / 10, 6 / 7]), strict=True):
        assert 0.5 * bound < np.abs(w).max() < bound


def test_normal_start_is_bad_on_purpose(rng):
    fitted = net(max_iter=0, init_params="normal", init_bias=-10.0).fit(stripes(rng, 50))
    for array in (*fitted.coefs_, *fitted.intercepts_):
        np.testing.assert_allclose(array, -10.0, atol=0.06)
        assert array.std() > 0
    assert np.abs(fitted.recognition_coefs_[0]).max() < 2
    np.testing.assert_array_equal(fitted.recognition_intercepts_[0], 0.0)


@pytest.mark.parametrize("binarize", [0.5, "sample"])
def test_starts_with_values_that_become_binary(binarize, rng):
    X = 0.8 * stripes(rng, 200) + 0.1
    fitted = net(max_iter=0, binarize=binarize).fit(X)
    expected = (X if binarize == "sample" else X > binarize).mean(axis=0)
    np.testing.assert_allclose(expit(fitted.intercepts_[0]), expected, atol=0.01)


# Learning


@in_turn(optimizer=["adam", "rmsprop", "sgd"], n_samples=[1, 2, 5])
def test_nets_learn(optimizer, n_samples, rng):
    """Stripes of two kinds need a hidden unit; columns alone cannot describe them."""
    X = stripes(rng, 400)
    p = X.mean(axis=0)
    independent = (X * np.log(p) + (1 - X) * np.log(1 - p)).sum(axis=1).mean()
    rate = {"adam": 0.03, "rmsprop": 0.01, "sgd": 0.1}[optimizer]
    fitted = net(
        hidden_layer_sizes=(3,), optimizer=optimizer, n_samples=n_samples, batch_size=50,
        max_iter=60, learning_rate_init=rate, tol=0.0,
    ).fit(X)  # fmt: skip
    assert fitted.score(stripes(rng, 400)) > independent + 0.4


def test_proximity_leaves_a_bad_start(rng):
    """Without it, hidden units are switched off before they have learned anything."""
    X = stripes(rng, 400, d=12)
    settings = {
        "hidden_layer_sizes": (6, 4), "init_params": "normal", "init_bias": -10.0,
        "batch_size": 50, "learning_rate_init": 0.1, "tol": 0.0, "n_samples": 5,
        "weight_decay": 0.0,
    }  # fmt: skip
    plain = net(**settings, max_iter=90).fit(X)
    method = ProximityVI(strength=1e8, lag=20, n_passes=60)
    proximity = net(**settings, annealing=method, max_iter=30).fit(X)
    assert proximity.score(X) > plain.score(X) + 1.0


def test_learning_curve_has_standard_errors(rng):
    X = stripes(rng, 400)
    for size in (None, 50):
        fitted = net(batch_size=size, max_iter=6, tol=0.0).fit(X)
        assert fitted.standard_errors_.shape == fitted.lower_bounds_.shape == (6,)
        # Bounds of rows are some nats, and differ by about one.
        assert (fitted.standard_errors_ / np.sqrt(400) > 0.05).all()
        assert (fitted.standard_errors_ / np.sqrt(400) < 3.0).all()
        assert fitted.validation_scores_.size == 0
    streamed = net().partial_fit(X).partial_fit(X)
    assert np.isnan(streamed.standard_errors_).all() and len(streamed.standard_errors_) == 2


def test_final_bound_can_be_computed_again(rng):
    X = stripes(rng, 300)
    fitted = net(n_score_samples=3, n_samples=3).fit(X)
    assert fitted.lower_bound_ == fitted.lower_bounds_[-1]
    assert fitted.score(X) * 300 == pytest.approx(fitted.lower_bound_, rel=1e-12)


def test_bounds_of_certain_rows_are_not_above_0():
    # Estimates from a few samples can be above the log probability, which is nearly 0 here.
    fitted = AnnealedSigmoidBeliefNet(4, max_iter=20, random_state=0).fit(np.zeros((100, 6)))
    assert -50.0 < fitted.lower_bound_ <= 0.0


ARRAYS = ("coefs_", "intercepts_", "recognition_coefs_", "recognition_intercepts_")


def parameters(fitted):
    """All parameters of both networks in one vector."""
    return np.concatenate([np.ravel(array) for name in ARRAYS for array in getattr(fitted, name)])


@pytest.mark.parametrize("batch_size", [None, 20])
def test_fits_return_the_mean_over_steps(batch_size, rng, monkeypatch):
    """With γ = 0 it is that of the parameters after all steps, from which passes go on."""
    X = stripes(rng, 60)

    monkeypatch.setattr(f"{AnnealedSigmoidBeliefNet.__module__}._AVERAGING", 0.0)

    def after(n_steps, average):
        settings = {"batch_size": batch_size, "tol": 0.0, "n_samples": 2, "average": average}
        est = net(**settings, max_iter=n_steps)
        if batch_size is None:
            return parameters(est.fit(X))
        est.set_params(max_iter=1)
        for i in range(n_steps):
            est.partial_fit(X[batch_size * i : batch_size * (i + 1)])
        return parameters(est)

    last = [after(n, False) for n in (1, 2, 3)]
    found = after(3, True)
    np.testing.assert_allclose(found, np.mean(last, axis=0), rtol=1e-12)
    assert np.abs(found - last[-1]).max() > 1e-3


@pytest.mark.parametrize("early_stopping", [False, True])
def test_warm_starts_go_on_from_the_last_step(early_stopping, rng, monkeypatch):
    """They go on from the parameters themselves that validation has chosen."""
    est = net(max_iter=3, tol=0.0, warm_start=True, early_stopping=early_stopping)
    ctx = context_of(est.fit(stripes(rng, 60)))
    last, mean = ctx.state["optimizer"]["moments"]["last"], ctx.q
    assert all(np.array_equal(last[key], mean[key]) for key in mean) == early_stopping
    # A further step of length 0 changes nothing but the mean.
    monkeypatch.setattr(Adam, "rate", lambda self, n_steps: 0.0)
    found = context_of(est.set_params(max_iter=1).fit(stripes(rng, 60))).q
    for key in mean:
        expected = mean[key] + 11.0 / 14.0 * (last[key] - mean[key])
        np.testing.assert_allclose(found[key], expected, rtol=1e-12, atol=1e-15)


def test_steps_are_smaller_above_many_units_and_in_the_recognition_network(rng):
    """The first step of Adam moves each parameter by the size of the step."""
    X = stripes(rng, 300, d=256)
    how = {"hidden_layer_sizes": (100, 8), "average": False, "weight_decay": 0.0, "tol": 0.0}
    start, moved = (net(**how, learning_rate_init=0.1, max_iter=n).fit(X) for n in (0, 1))
    above_columns, above_100 = 0.1 * (256 / 96) ** -0.7, 0.1 * (100 / 96) ** -0.7
    for name, sizes in {
        "coefs_": (above_columns, above_100),
        "recognition_coefs_": (0.5 * above_columns, 0.5 * above_100),
        "recognition_intercepts_": (0.5 * above_columns, 0.5 * above_100),
    }.items():
        for before, after, size in zip(
            getattr(start, name), getattr(moved, name), sizes, strict=True
        ):
            assert np.median(np.abs(after - before)) == pytest.approx(size, rel=1e-3)
            assert np.abs(after - before).max() <= size * (1 + 1e-9)
    np.testing.assert_allclose(np.abs(moved.intercepts_[2]), above_100, rtol=1e-3)


@pytest.mark.parametrize(("optimizer", "size"), [("adam", 0.15), ("sgd", 0.15), ("rmsprop", 0.1)])
def test_sizes_of_steps_by_default(optimizer, size, rng):
    """They fall with the number of steps, and those of RMSProp are smaller."""
    X = stripes(rng, 60)
    found = net(optimizer=optimizer, learning_rate_init="auto").fit(X)
    assert context_of(found).model.optimizer.rate(1) == size
    assert context_of(found).model.optimizer.rate(2001) == pytest.approx(size / 2.0)
    given = net(optimizer=optimizer, learning_rate_init=size).fit(X)
    assert given.lower_bound_ == found.lower_bound_
    with pytest.raises(ValueError, match="'learning_rate_init' parameter"):
        net(learning_rate_init="adaptive").fit(X)


def test_weights_decay_by_the_share_of_the_batch(rng):
    """A stream whose length is known shrinks them as batches of all its rows would."""
    X = stripes(rng, 100)

    def after(weight_decay, **how):
        how |= {"average": False, "learning_rate_init": 0.1, "max_iter": 1}
        est = net(weight_decay=weight_decay, **how)
        return context_of(est.partial_fit(X)).q

    for how, share in (({}, 1.0), ({"total_samples": 400}, 0.25)):
        kept, shrunk = (after(value, **how) for value in (0.0, 0.5))
        start = context_of(net(max_iter=0).fit(X)).q
        for key in ("W1", "W2", "V1", "V2", "a1", "a2", "b2"):
            of_decay = 0.1 * 0.5 * np.sqrt(share) * start[key] if key[0] in "WV" else 0.0
            np.testing.assert_allclose(kept[key] - shrunk[key], of_decay, atol=1e-12)


def test_nothing_decays_in_a_fit_with_proximity(rng):
    """Neither during its schedule nor afterwards."""
    X, method = stripes(rng, 60), ProximityVI(strength=1e3, lag=2, n_passes=3)
    one, other = (
        parameters(net(annealing=method, tol=0.0, weight_decay=d, batch_size=20).fit(X))
        for d in (0.0, "auto")
    )
    np.testing.assert_array_equal(one, other)
    for given in (method, "proximity"):
        with pytest.raises(ValueError, match="no weight decays"):
            net(annealing=given, weight_decay=0.5).fit(X)


def test_decay_of_weights_keeps_a_net_from_learning_rows_by_heart(rng):
    """Columns without structure leave nothing to learn."""
    X, other = (rng.random((n, 40)) < 0.3 for n in (100, 500))
    how = {"hidden_layer_sizes": (50,), "batch_size": 20, "max_iter": 60, "tol": 0.0}
    fits = [net(**how, learning_rate_init=0.1, weight_decay=d).fit(X) for d in (0.0, 0.3)]
    assert fits[0].score(X) > fits[1].score(X) + 1.0
    assert fits[0].score(other) < fits[1].score(other) - 1.0


def test_learned_decay_serves_columns_with_and_without_structure(rng):
    """It shrinks weights to columns of noise, and leaves those that the data hold up."""
    noise = rng.random((700, 300)) < 0.1
    groups = expit(rng.normal(scale=3.0, size=(5, 300)))[rng.integers(5, size=700)]
    drawn = rng.random((700, 300)) < groups
    how = {"hidden_layer_sizes": (20,), "batch_size": 100, "max_iter": 100, "n_samples": 5}
    how |= {"tol": 0.0, "learning_rate_init": 0.1}
    for X, gain in ((noise, 4.0), (drawn, 0.0)):
        plain, learned = (net(**how, weight_decay=d).fit(X[:200]) for d in (0.16, "auto"))
        assert learned.score(X[200:]) > plain.score(X[200:]) + gain


def test_early_stopping_keeps_the_best_parameters(rng):
    X = stripes(rng, 60)
    settings = {
        "early_stopping": True, "validation_fraction": 0.25, "batch_size": 15, "n_samples": 3,
        "n_score_samples": 3, "learning_rate_init": 0.1, "hidden_layer_sizes": (40, 20),
    }  # fmt: skip
    fitted = net(**settings, n_iter_no_change=5, tol=0.0, max_iter=200).fit(X)
    scores = fitted.validation_scores_
    assert fitted.converged_ and fitted.n_iter_ < 200
    assert len(scores) == fitted.n_iter_
    assert scores[-5:].max() <= scores[:-5].max() == scores.max()
    held_out = np.sort(np.random.RandomState(0).permutation(60)[:15])
    assert fitted.score(X[held_out]) == pytest.approx(scores.max(), rel=1e-12)
    with pytest.raises(ValueError, match="none of positive weight"):
        net(**settings).fit(X[:2], sample_weight=[1.0, 0.0])
    assert not hasattr(net(**settings).fit(X), "_held_out_")


def test_early_stopping_goes_on_after_an_interruption(rng, tmp_path, monkeypatch):
    X = stripes(rng, 60)

    def unfitted():
        return net(early_stopping=True, batch_size=15, n_iter_no_change=2, learning_rate_init=0.2)

    whole = unfitted().fit(X)
    assert whole.n_iter_ > 3
    for n_saved in (1, whole.n_iter_ - 1):
        folder = tmp_path / str(n_saved)
        assert interrupted(monkeypatch, unfitted(), X, folder, n_saved)
        assert_identical(unfitted().fit(X, checkpoint=folder), whole)


def test_verbose_fits_print_their_bounds(rng, capsys):
    net(verbose=1, verbose_interval=2, max_iter=4, tol=0.0, batch_size=15).fit(stripes(rng, 40))
    assert capsys.readouterr().out.count("bound") >= 2


def test_a_fit_that_does_not_converge_warns(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning, match=r"max_iter=2.*learning_rate_init"):
            net(max_iter=2, tol=0.0).fit(stripes(rng, 20))


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_steps_that_explode_are_explained(rng):
    est = net(optimizer="sgd", learning_rate_init=1e200)
    with pytest.raises(ValueError, match="Lower learning_rate_init"):
        est.fit(stripes(rng, 20).astype(np.float32))


def test_streams_learn_and_follow_their_schedule(rng):
    est = net(
        annealing="deterministic", total_samples=3000, hidden_layer_sizes=(3,), max_iter=1,
        learning_rate_init=0.1,
    )  # fmt: skip
    for _ in range(60):
        est.partial_fit(stripes(rng, 50))
    assert est.temperatures_[0] > 1.0 and est.temperatures_[-1] == 1.0
    bounds = est.lower_bounds_ / 3000
    assert bounds[-10:].mean() > bounds[:10].mean() + 0.3
    with pytest.raises(ValueError, match="hidden_layer_sizes"):
        est.set_params(hidden_layer_sizes=(4,)).partial_fit(stripes(rng, 50))


def test_probabilities_are_drawn_anew_at_every_visit(rng):
    X = np.full((200, 6), 0.5)
    est = net(binarize="sample", batch_size=200, max_iter=1)
    model = context_of(est.fit(X)).model
    drawn = [model.binary(X, model.keys_of(X, seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert 0.4 < (drawn[0] != drawn[2]).mean() < 0.6
    assert 0.45 < drawn[0].mean() < 0.55


def test_memory_does_not_grow_with_the_data():
    """Beside the data, a pass needs as much for many rows as for few."""
    import tracemalloc

    rng, peaks = np.random.default_rng(0), []
    est = AnnealedSigmoidBeliefNet((20,), max_iter=1, random_state=0)
    est.fit(stripes(rng, 300, d=200))
    for n in (2_000, 8_000):
        X = stripes(rng, n, d=200).astype(np.float32)
        tracemalloc.start()
        est.fit(X)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The order of the rows is the only thing that grows, by some bytes per row.
    assert peaks[1] - peaks[0] < 60 * 6_000
