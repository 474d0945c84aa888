"""Tests of streams of ratings, which are fitted anew whenever they have grown."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import skops.io
from cases_matrix_factorization import GIVEN, NAN, TRUTH, draw, pairs_of, sparse_of
from harness import assert_identical, context_of, fitted_state, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import orthogonal_procrustes
from sklearn.base import clone

from sklearn_anneal import TRUSTED_TYPES, AnnealedPMF, Shards
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.data.units import Ratings
from sklearn_anneal.inference import kept as keeping
from sklearn_anneal.models._rating_rotations import turned_towards

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def drawn(rng, n_users=40, n_items=24, observed=0.9, **params):
    """A matrix with gaps, in which every user and every item has a rating."""
    Y, known = draw(rng, n_users, n_items, observed=observed, **params)
    known[np.arange(n_users), np.arange(n_users) % n_items] = True
    return np.where(known, Y, NAN)


def shuffled(rng, Y):
    X, y = pairs_of(Y)
    order = rng.permutation(len(y))
    return X[order], y[order]


def of_pairs(n_components=2, **params):
    return AnnealedPMF(
        n_components,
        **({"input": "pairs", "n_users": 40, "n_items": 24, "random_state": 0} | params),
    )


def streamed(est, X, y, size=60, start=0):
    for begin in range(start, len(y), size):
        est.partial_fit(X[begin : begin + size], y[begin : begin + size])
    return est


def n_fits(est):
    kept = est._inference.kept
    return 0 if kept is None else kept.n_fits


# Against fits


@pytest.mark.parametrize("order", ["random", "by user", "by item"])
def test_a_growing_stream_comes_near_to_a_fit(order):
    """Updates alone, which find factors of users with items as they were, were far behind."""
    rng = np.random.default_rng(0)
    X, y = shuffled(rng, drawn(rng, 150, 60, observed=0.4, d=3))
    (X, T), (y, t) = (np.split(each, [2600]) for each in (X, y))
    if order != "random":
        by = np.argsort(X[:, 0 if order == "by user" else 1], kind="stable")
        X, y = X[by], y[by]
    est = of_pairs(3, n_users=150, n_items=60)
    fit = clone(est).fit(X, y)
    stream, updates = (streamed(clone(est).set_params(max_iter=n), X, y) for n in (100, 1))
    assert n_fits(stream) >= 4 and updates._inference.kept is None
    losses = [fit.score(T, t) - each.score(T, t) for each in (stream, updates)]
    assert losses[0] < 0.03
    assert losses[1] > losses[0] + 0.05


@pytest.mark.parametrize("input", ["matrix", "pairs"])
@pytest.mark.parametrize(
    "params",
    [{}, {"hierarchical": False}, {"user_scales": True}, {"biases": False, "annealing": "none"}],
)
def test_a_fit_of_a_stream_is_one_to_all_ratings_so_far(input, params, rng):
    """Users of pairs have the factors that all their ratings determine, also if none is new."""
    Y = drawn(rng)
    X, y = shuffled(rng, Y)
    est = of_pairs(gibbs_sweeps=0, **params)
    if input == "matrix":
        est.set_params(input="matrix", n_users=None)
    stream, before, found = clone(est), 0, 0
    # The first call is large enough for a fit, since users who rate nothing are users of a fit.
    cuts = [0, 36, 38, 40] if input == "matrix" else [0, 800, 820, len(y)]
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        given = (Y[start:stop],) if input == "matrix" else (X[start:stop], y[start:stop])
        stream.partial_fit(*given)
        if n_fits(stream) == before:
            continue
        before, found = n_fits(stream), found + 1
        fit = clone(est).fit(*((Y[:stop],) if input == "matrix" else (X[:stop], y[:stop])))
        for name in ("components_", "item_biases_", "noise_variance_", "factor_variance_"):
            if hasattr(fit, name):
                assert_allclose(getattr(stream, name), getattr(fit, name), rtol=1e-9, atol=1e-12)
        assert stream.rating_range_ == fit.rating_range_
        assert stream.lower_bound_ == pytest.approx(fit.lower_bound_, rel=1e-9)
        last = slice(start, stop) if input == "matrix" else slice(None)
        users = fit.user_factors_[last]
        assert_allclose(stream.user_factors_, users, rtol=1e-9, atol=1e-12)
        assert_allclose(stream.user_factors_cov_, fit.user_factors_cov_[last], rtol=1e-9)
    assert found == 1 and stream._inference.kept.n_fits == 1
    assert len(stream.lower_bounds_) == 3


@pytest.mark.parametrize("biases", [True, False])
def test_ratings_of_users_are_gathered_from_all_batches(biases, rng):
    """It makes no difference to a fit in which batches the ratings of a user came."""
    Y = drawn(rng)
    X, y = pairs_of(Y)
    est = of_pairs(annealing="none", biases=biases, learning_decay=1.0)
    halves = np.argsort(X[:, 1] % 2, kind="stable")
    whole, split = clone(est).partial_fit(X, y), clone(est)
    for part in np.array_split(halves, 2):
        split.partial_fit(X[part], y[part])
    assert n_fits(whole) == 1 and n_fits(split) == 2
    # A fit does not depend on the order of the ratings of a user, apart from rounding.
    assert split._inference.kept.batches[0].n_units == 40
    assert_allclose(split.predict(X), whole.predict(X), rtol=1e-5)
    matrix = clone(est).set_params(input="matrix", n_users=None).partial_fit(Y)
    assert_allclose(matrix.user_factors_, whole.user_factors_, rtol=1e-5, atol=1e-8)


def test_users_without_new_ratings_follow_the_items_of_a_fit(rng):
    """Updates leave the sums over their ratings, which have moments of items as these were."""
    X, y = pairs_of(drawn(rng))
    stream, first = of_pairs(annealing="none"), X[:, 0] < 30
    stream.partial_fit(X[first], y[first])
    kept = {key: value[:30] for key, value in stream._user_statistics.items()}
    X, y, counts = X[~first], y[~first], [0, 0]
    for start in range(0, 400, 50):
        before, rows = n_fits(stream), np.arange(start, start + 50) % len(y)
        stream.partial_fit(X[rows], y[rows] + 0.5 * rng.standard_normal(50))
        fitted = n_fits(stream) > before
        for key, value in kept.items():
            same = np.array_equal(stream._user_statistics[key][:30], value)
            assert same != fitted or key == "ratings"
        kept = {key: value[:30] for key, value in stream._user_statistics.items()}
        counts[fitted] += 1
    assert counts == [7, 1]


# Weights and forms


@pytest.mark.parametrize("input", ["matrix", "pairs"])
def test_weights_are_copies_in_growing_streams(input, rng):
    Y = drawn(rng, 60)
    X, y = shuffled(rng, Y)
    est = of_pairs(annealing="none", n_users=60)
    if input == "matrix":
        est.set_params(input="matrix", n_users=None)
    n = 60 if input == "matrix" else len(y)
    weights = rng.integers(0, 3, n).astype(float)
    copies = np.repeat(np.arange(n), weights.astype(int))
    weighted, copied = clone(est), clone(est)
    for part in np.array_split(np.arange(n), 8):
        own = copies[np.isin(copies, part)]
        for one, rows, w in ((weighted, part, weights[part]), (copied, own, None)):
            one.partial_fit(
                *((Y[rows],) if input == "matrix" else (X[rows], y[rows])), sample_weight=w
            )
    assert n_fits(weighted) == n_fits(copied) >= 2
    for name in ("components_", "item_biases_", "noise_variance_"):
        assert_allclose(getattr(weighted, name), getattr(copied, name), rtol=1e-5, atol=1e-8)


def test_growing_streams_in_single_precision(rng):
    X, y = shuffled(rng, drawn(rng))
    est = of_pairs(annealing="none")
    double, single = streamed(clone(est), X, y), streamed(clone(est), X, y.astype(np.float32))
    assert n_fits(single) == n_fits(double) >= 2
    assert context_of(single).model.dtype == np.float32
    assert_allclose(single.predict(X), double.predict(X), rtol=5e-3)
    # The first batch decides.
    mixed = clone(est).partial_fit(X[:60], y[:60].astype(np.float32))
    streamed(mixed, X, y, start=60)
    assert context_of(mixed).model.dtype == np.float32
    assert mixed._inference.kept.batches[0].values.dtype == np.float32


def test_parts_are_batches_of_a_growing_stream(rng):
    X, y = shuffled(rng, drawn(rng))
    est = of_pairs(annealing="none")
    cuts = np.arange(150, len(y), 150)
    parts = clone(est).partial_fit(Shards(np.split(X, cuts)), np.split(y, cuts))
    assert_identical(parts, streamed(clone(est), X, y, size=150))
    assert n_fits(parts) >= 1


def test_a_matrix_of_a_stream_can_be_sparse_and_get_more_columns(rng):
    Y = drawn(rng)
    est = AnnealedPMF(2, annealing="none", n_items=24, random_state=0)
    dense, sparse = clone(est), clone(est)
    for start, width in ((0, 20), (10, 24), (20, 24), (30, 24)):
        rows = Y[start : start + 10, :width]
        dense.partial_fit(rows)
        sparse.partial_fit(sparse_of(rows))
    assert n_fits(dense) >= 1 and dense._inference.kept.batches[0].n_columns == 24
    found = fitted_state(sparse)
    for name, value in fitted_state(dense).items():
        assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)


# Goes on


@pytest.mark.parametrize("input", ["matrix", "pairs"])
def test_a_growing_stream_goes_on_from_a_file(input, rng, tmp_path):
    Y = drawn(rng, 60)
    X, y = shuffled(rng, Y)
    weights = rng.integers(1, 3, len(y)).astype(float)
    est = of_pairs(annealing="none", n_users=60, max_iter=20)
    if input == "matrix":
        est.set_params(input="matrix", n_users=None)
    straight, pickled, stored = clone(est), clone(est), clone(est)
    for part in np.array_split(np.arange(60 if input == "matrix" else len(y)), 6):
        given = (
            (Y[part], None, weights[part])
            if input == "matrix"
            else (X[part], y[part], weights[part])
        )
        straight.partial_fit(*given)
        pickled = pickle.loads(pickle.dumps(pickled)).partial_fit(*given)
        skops.io.dump(stored, tmp_path / "stream.skops")
        stored = skops.io.load(tmp_path / "stream.skops", trusted=TRUSTED_TYPES)
        stored.partial_fit(*given)
        assert_identical(straight, pickled)
        assert_identical(straight, stored)
        for batch in straight._inference.kept.batches:
            # Neither statistics of earlier ratings nor what can be computed again is kept.
            assert batch.known is None and batch.everyone is None
            assert "by_column" not in vars(batch)
    assert n_fits(straight) >= 2


@pytest.mark.parametrize("name", ANNEALING)
def test_every_method_makes_growing_streams_of_ratings(name, rng):
    X, y = shuffled(rng, drawn(rng))
    stream = streamed(of_pairs(annealing=quick(name, 5), max_iter=5), X, y)
    assert n_fits(stream) >= 1
    assert np.isfinite(stream.score(X, y)) and len(stream.lower_bounds_) == -(-len(y) // 60)
    ctx = context_of(stream)
    assert set(ctx.q) == {"items_precision", "items_natural_mean"}
    assert not ctx.model.holds_users


@pytest.mark.parametrize("annealing", ["none", "deterministic"])
def test_a_stream_of_known_length_is_fitted_too(annealing, rng):
    X, y = shuffled(rng, drawn(rng, 40, observed=0.8))
    est = of_pairs(annealing=annealing)
    fit = clone(est).fit(X, y)
    stream = streamed(clone(est).set_params(total_samples=len(y)), X, y)
    assert n_fits(stream) >= 2
    assert stream.score(X, y) > fit.score(X, y) - 0.05
    alone = clone(est).set_params(total_samples=len(y), max_iter=1)
    assert streamed(alone, X, y)._inference.kept is None


@pytest.mark.parametrize("params", [{}, {"biases": False}, {"hierarchical": False}])
def test_parameters_of_a_much_longer_stream_are_positive_definite(params, rng):
    """What ratings add is multiplied, and priors are learned after it was added last."""
    X, y = shuffled(rng, drawn(rng))
    est = of_pairs(annealing="none", max_iter=5, total_samples=1e7, n_items=30, **params)
    stream = streamed(est, X, y)
    assert n_fits(stream) == 2
    shorter = streamed(clone(est).set_params(total_samples=None), X, y)
    assert stream.score(X, y) > shorter.score(X, y) - 0.1


def test_what_a_growing_stream_of_ratings_keeps_is_bounded(rng, monkeypatch):
    """Later ratings of a user are added to what updates and fits have known."""
    monkeypatch.setattr(keeping, "_MOST_WITHOUT_SAMPLE", 1.2)
    X, y = shuffled(rng, drawn(rng))
    stream, sizes = of_pairs(annealing="none", max_iter=10), []
    for start in range(0, 840, 60):
        stream.partial_fit(X[start : start + 60], y[start : start + 60])
        sizes.append(len(pickle.dumps(stream)))
        assert stream._user_statistics["ratings"][:, 0].sum() == pytest.approx(start + 60)
    assert stream._inference.kept is None and stream._inference.fitted
    assert sizes[-1] < max(sizes[:8])
    before = stream._user_statistics
    stream.partial_fit(X[:1], y[:1])
    same = np.arange(40) != X[0, 0]
    for key, value in stream._user_statistics.items():
        assert_array_equal(value[same], before[key][same])


def test_ratings_of_tiny_weight_are_not_kept_without_end(rng):
    X, y = np.zeros((500, 2), int), rng.standard_normal(500)
    X[:, 1] = np.arange(500) % 24
    stream = of_pairs(1, annealing="none")
    for _ in range(6):
        stream.partial_fit(X, y, sample_weight=np.full(500, 1e-3))
    assert stream._inference.kept is None


def test_updates_alone_have_no_fit(rng):
    X, y = shuffled(rng, drawn(rng))
    stream = streamed(of_pairs(max_iter=1), X, y)
    assert stream._inference.kept is None and not stream._inference.fitted
    assert np.isinf(stream.user_precision_shape_)


# Refinements and refusals


def test_fits_of_a_stream_have_scales_and_effects_of_raters_but_no_averages(rng):
    """What needs all ratings at once has them there, as long as they are kept."""
    X, y = shuffled(rng, drawn(rng, 40, observed=0.8))
    y = y + np.where(X[:, 0] % 2, 2.0, 0.0) * rng.standard_normal(len(y))
    stream = streamed(of_pairs(), X, y)
    model = context_of(stream).model
    assert n_fits(stream) >= 2
    assert model.user_scales and np.isfinite(stream.user_precision_shape_)
    # They stay with the priors of items; who rated what does not.
    assert model.raters is not None and model.raters.pattern is None
    assert not hasattr(stream, "_averaged")
    none = streamed(of_pairs(implicit_feedback=False, user_scales=False), X, y)
    assert context_of(none).model.raters is None and not context_of(none).model.user_scales


@pytest.mark.parametrize("params", [{"gibbs_sweeps": 5}, {"implicit_feedback": True}])
def test_refinements_of_a_stream_are_refused(params, rng):
    X, y = shuffled(rng, drawn(rng))
    (name,) = params
    with pytest.raises(ValueError, match=f"without {name}"):
        of_pairs(**params).partial_fit(X, y)
    stream = streamed(of_pairs(max_iter=5), X[:300], y[:300]).set_params(**params)
    with pytest.raises(ValueError, match=f"which had {name}='auto', but {name}="):
        stream.partial_fit(X[300:360], y[300:360])


def test_a_stream_has_the_sweeps_of_the_fit_that_it_goes_on_from(rng):
    """They were ignored when they changed in the middle of a stream."""
    X, y = shuffled(rng, drawn(rng))
    fits = [of_pairs(max_iter=5, gibbs_sweeps=5).fit(X[:300], y[:300]) for _ in range(2)]
    one, other = (streamed(fit, X[:480], y[:480], start=300) for fit in fits)
    with pytest.raises(ValueError, match="which had gibbs_sweeps=5, but gibbs_sweeps=6 now"):
        one.set_params(gibbs_sweeps=6).partial_fit(X[480:], y[480:])
    # There are none after updates, which "auto" and 0 say as well.
    for n_sweeps in ("auto", 0):
        one.set_params(gibbs_sweeps=n_sweeps)
        streamed(one, X[480:600], y[480:600])
        streamed(other, X[480:600], y[480:600])
    assert_array_equal(one.components_, other.components_)
    # A fit that goes on from the last one reads the number anew.
    one.set_params(gibbs_sweeps=7, warm_start=True).fit(X, y)
    assert one._averaged is not None


def test_equal_ratings_with_given_variances_are_a_growing_stream(rng):
    X, _ = pairs_of(drawn(rng))
    est = of_pairs(annealing="none", **GIVEN)
    stream = streamed(est, X, np.full(len(X), 3.0))
    assert n_fits(stream) >= 1
    assert_allclose(stream.predict(X), 3.0, atol=1e-6)


def test_a_fit_that_fails_leaves_the_update(rng, monkeypatch, capsys):
    X, y = shuffled(rng, drawn(rng))
    stream = streamed(of_pairs(annealing="none", max_iter=5, verbose=1), X[:420], y[:420])
    assert n_fits(stream) == 1

    def fails(*args):
        raise np.linalg.LinAlgError("ill-defined")

    with monkeypatch.context() as patch:
        patch.setattr(AnnealedPMF, "_start_anew", fails)
        streamed(stream, X[:660], y[:660], start=420)
    assert capsys.readouterr().out.count("a new fit failed, and the update remains") == 1
    known = stream._user_statistics["ratings"][:, 0]
    assert_allclose(known, np.bincount(X[:660, 0], minlength=40))
    kept = stream._inference.kept
    assert kept.n_weighed == 660 == kept.n_seen


def test_a_refused_batch_leaves_a_growing_stream_as_it_was(rng):
    X, y = shuffled(rng, drawn(rng))
    stream = streamed(of_pairs(max_iter=5), X[:420], y[:420])
    assert n_fits(stream) == 1
    before = dict(vars(stream))
    for bad in ((X[420:] + [0, 30], y[420:]), (X[420:], np.full(len(y) - 420, NAN))):
        with pytest.raises(ValueError):
            stream.partial_fit(*bad)
        assert vars(stream) == before


def test_steps_after_a_fit_are_shares_of_all_ratings_so_far(rng):
    X, y = shuffled(rng, drawn(rng))
    fit = of_pairs(annealing="none", hierarchical=False, gibbs_sweeps=0).fit(X[:300], y[:300])
    before = context_of(fit).q
    target = pickle.loads(pickle.dumps(fit)).set_params(learning_decay=0.0)
    proposed = context_of(target.partial_fit(X[300:400], y[300:400])).q
    found = context_of(fit.partial_fit(X[300:400], y[300:400])).q
    for key, value in found.items():
        assert_allclose(value, 0.75 * before[key] + 0.25 * proposed[key], rtol=1e-9, atol=1e-12)


# Units


def test_joined_ratings_are_those_of_their_parts(rng):
    def units(users, items, y, weights=None):
        ids, places = np.unique(users, return_inverse=True)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(places))])
        known = {"precision": np.ones((len(ids), 1))}
        columns = np.asarray(items, np.int32)
        return Ratings(
            *(y, columns, indptr, 4, None, weights, True, known),
            ids=ids,
        )

    first = units([1, 1, 5], [0, 2, 3], np.array([1.0, 2.0, 3.0]))
    second = units([0, 1, 5, 5], [1, 3, 0, 3], np.arange(4.0, 8.0), np.array([2.0, 1.0, 3.0, 1.0]))
    both = Ratings.joined([first, second])
    assert_array_equal(both.ids, [0, 1, 5])
    assert_array_equal(both.indptr, [0, 1, 4, 7])
    assert_array_equal(both.values, [4.0, 1.0, 2.0, 5.0, 3.0, 6.0, 7.0])
    assert_array_equal(both.columns, [1, 0, 2, 3, 3, 0, 3])
    assert_array_equal(both.rating_weights, [2.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0])
    assert both.known is None and both.counts_ratings
    assert both.n_rows == both.n_weighed == 7 and both.total_weight == 10.0
    assert_array_equal(both.take(slice(1, 3)).ids, [1, 5])
    # Users of a matrix do not come again.
    rows = [Ratings(np.ones(2), np.arange(2, dtype=np.int32), np.array([0, 2]), n) for n in (3, 4)]
    rows[1].weights = np.array([2.0])
    joined = Ratings.joined(rows)
    assert joined.n_columns == 4 and joined.ids is None
    assert joined.n_rows == joined.n_weighed == 2
    assert_array_equal(joined.weights, [1.0, 2.0])


# Rotations


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("hierarchical", [True, False])
def test_rotations_change_neither_the_bound_nor_ratings(hierarchical, biases, rng):
    """Fits of a stream turn factors towards those before, in all that a model holds."""
    Y = drawn(rng)
    params = {"hierarchical": hierarchical, "biases": biases, "gibbs_sweeps": 0}
    est = AnnealedPMF(3, annealing="none", max_iter=20, random_state=0, **params).fit(Y)
    ctx = context_of(est)
    assert (ctx.model.raters is None) != hierarchical
    means = ctx.model.expectations(ctx.q).mean
    rotation = np.eye(means.shape[1])
    rotation[:3, :3] = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    model, prior, q = turned_towards(ctx.model, ctx.q, means @ rotation)
    assert_allclose(model.expectations(q).mean, means @ rotation, rtol=1e-9, atol=1e-12)

    def bound(model, prior, q):
        units = sparse_of(Y)
        units = Ratings(units.data, units.indices.astype(np.int32), units.indptr, 24)
        visit = model.visit(q, units, evaluation=True)
        return visit.step(units).bound - model.kl(q, prior)

    assert bound(model, prior, q) == pytest.approx(bound(ctx.model, ctx.prior, ctx.q), rel=1e-10)
    back = turned_towards(model, q, means)
    for one, other in ((back[1], ctx.prior), (back[2], ctx.q)):
        for key, value in other.items():
            assert_allclose(one[key], value, rtol=1e-7, atol=1e-9)


def test_factors_of_a_growing_stream_are_turned_towards_those_before():
    """A generator gives each fit another start, from which it finds other signs and rotations."""
    rng = np.random.default_rng(0)
    X, y = shuffled(rng, drawn(rng, 80, hyper=TRUTH._replace(factor=2.0)))
    stream = of_pairs(n_users=80, annealing="none", random_state=np.random.RandomState(0))
    compared = 0
    for start in range(0, len(y), 100):
        before, n_before = getattr(stream, "components_", None), start and n_fits(stream)
        stream.partial_fit(X[start : start + 100], y[start : start + 100])
        if n_before and n_fits(stream) > n_before:
            # No rotation brings them much nearer to those before.
            left = orthogonal_procrustes(stream.components_.T, before.T)[0]
            assert_allclose(left, np.eye(2), atol=0.05)
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("n_first", [200, 500])
def test_a_long_batch_is_fitted_whatever_came_before(n_first, rng, monkeypatch):
    """A stream that had been fitted to few ratings had one update with all that followed."""
    monkeypatch.setattr(keeping, "_MOST_WITHOUT_SAMPLE", 1.5)
    X, y = shuffled(rng, drawn(rng, 80))
    est = of_pairs(annealing="none", n_users=80)
    stream = clone(est).partial_fit(X[:n_first], y[:n_first])
    assert stream._inference.fitted == (n_first == 500)
    stream.partial_fit(X[n_first:], y[n_first:])
    assert stream._inference.kept.is_over and not stream._inference.kept.batches
    fit = clone(est).set_params(gibbs_sweeps=0).fit(X, y)
    assert_allclose(stream.predict(X), fit.predict(X), rtol=1e-4)
    assert stream.partial_fit(X[:1], y[:1])._inference.kept is None
