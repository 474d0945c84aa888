"""Tests of streams of ratings."""

from __future__ import annotations

import pickle

import numpy as np
import plain_matrix_factorization as plain
import pytest
from cases_matrix_factorization import (
    NAN,
    TRUTH,
    all_inputs,
    draw,
    full,
    pairs_of,
    ratings,
    rows_of,
    small,
    sparse_of,
)
from harness import (
    assert_identical,
    context_of,
    fitted_state,
    largest_difference,
    quick,
    visit_of,
)
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.data.units import Ratings

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_stream_of_new_users(rng):
    """Matrices: every call brings new users; items may get more columns, up to n_items."""
    Y = ratings(rng, 30, 12)
    est = small(n_items=14, learning_decay=0.6)
    est.partial_fit(Y[:10, :8])
    assert est.n_items_ == 14 and est.components_.shape == (2, 14) and est.n_users_ == 10
    # Nobody has rated the others.
    learned = np.abs(est.components_[:, :8]).min()
    rho = 2.0**-0.6
    assert_allclose(
        full(context_of(est).q["items_precision"])[8:],
        np.broadcast_to(np.diag(1 / TRUTH.prior_variances(3)), (6, 3, 3)), rtol=1e-12,
    )  # fmt: skip
    start = small(n_items=14, max_iter=0).fit(Y[:10, :8]).components_
    assert_allclose(est.components_[:, 8:], (1 - rho) * start[:, 8:], rtol=1e-9)
    assert learned > 0
    est.partial_fit(Y[10:20])
    assert est.n_users_ == 10
    assert_allclose(est.user_factors_, est.transform(Y[10:20]), rtol=1e-9, atol=1e-13)
    est.partial_fit(Y[20:, :5])
    assert est.n_iter_ == 3 and len(est.lower_bounds_) == 3
    before = fitted_state(est)
    with pytest.raises(ValueError, match="X has 15 columns, but n_items=14"):
        est.partial_fit(np.ones((2, 15)))
    for name, value in fitted_state(est).items():
        assert_array_equal(np.asarray(value), np.asarray(before[name]), err_msg=name)


def test_width_is_fixed_without_a_declaration(rng):
    Y = ratings(rng)
    est = small().partial_fit(Y)
    with pytest.raises(ValueError, match="9 features"):
        est.partial_fit(Y[:, :9])


def test_stream_of_new_ratings_of_known_users(rng):
    """Pairs: what a user said before is added to what the user says now."""
    Y = ratings(rng, 12, 8)
    X, y = pairs_of(Y)
    first = X[:, 1] < 4
    est = small(input="pairs", n_items=8).partial_fit(X[first], y[first])
    said = {key: value.copy() for key, value in est._user_statistics.items()}
    est.partial_fit(X[~first], y[~first])
    hyper, items = plain.hyperparameters(est), rows_of(context_of(est).q, "items")
    fresh = plain.updated(np.where(np.arange(8) < 4, NAN, Y), items, hyper)
    expected = plain.Rows(
        fresh.precision + full(said["precision"]) / est.noise_variance_,
        fresh.natural_mean + said["natural_mean"] / est.noise_variance_,
    )
    assert_allclose(est.user_factors_, expected.mean[:, :2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_biases_, expected.mean[:, 2], rtol=1e-9, atol=1e-12)
    assert_allclose(est.user_factors_cov_, expected.cov[:, :2, :2], rtol=1e-9, atol=1e-12)
    # New users are appended, and those between without ratings have the prior.
    est.partial_fit([[20, 1]], [5.0])
    assert est.n_users_ == 21
    assert_array_equal(est.user_factors_[15], [0.0, 0.0])
    assert (est.user_factors_[20] != 0).all()
    old = est.user_factors_[3].copy()
    est.partial_fit([[20, 2]], [1.0])
    assert_array_equal(est.user_factors_[3], old)


def test_known_ratings_enter_the_locally_tempered_step(rng):
    """What a user said before is neither tempered nor forgotten."""
    Y = ratings(rng, 12, 8)
    X, y = pairs_of(Y)
    est = small(input="pairs", n_items=8, annealing="local_tempering").partial_fit(X, y)
    ctx, method = context_of(est), est.annealing_
    units = sparse_of(Y)
    units = Ratings(
        units.data, units.indices, units.indptr, 8, counts_ratings=True, known=est._user_statistics
    )
    visit = visit_of(ctx, method, units)
    step = visit.step(units)
    x = step.inverse_temperatures
    sums, _ = ctx.model.add_up(units, visit.expected, None)
    statistics = ctx.model.statistics(sums, x, ctx.model.empty_statistics(sums))
    solved = ctx.model.solution(statistics, known=units.known)
    own = ctx.model.moments_of(solved["precision"], solved["natural_mean"])
    for key, value in visit._statistics_of_items(units, own, x, None)[0].items():
        assert_array_equal(step.statistics[key], value)
    forgetful = Ratings(units.values, units.columns, units.indptr, 8)
    other = visit.step(forgetful).statistics
    assert largest_difference(other, step.statistics) > 1e-3


def test_ratings_of_weight_zero_have_no_part_in_the_range(rng):
    X, y = pairs_of(ratings(rng, 12, 8))
    more = small(input="pairs", n_items=8)
    more.fit(np.append(X, [[3, 4]], axis=0), np.append(y, 99.0), np.append(np.ones(len(y)), 0.0))
    less = small(input="pairs", n_items=8).fit(X, y)
    assert more.rating_range_ == less.rating_range_ == (y.min(), y.max())
    assert more.intercept_ == pytest.approx(less.intercept_, rel=1e-12)


def test_known_ratings_enter_the_local_step_of_a_stream(rng):
    """With the same ratings once more, a user is as certain as with two of each."""
    X, y = pairs_of(ratings(rng, 12, 8))
    est = small(input="pairs", learning_decay=1.0, learning_offset=1e9).partial_fit(X, y)
    est.partial_fit(X, y)
    # Steps so small that items stay where they are.
    twice = np.vstack([X, X]), np.tile(y, 2)
    once = small(input="pairs", learning_decay=1.0, learning_offset=1e9).partial_fit(*twice)
    assert_allclose(est.user_factors_cov_, once.user_factors_cov_, rtol=1e-5, atol=1e-9)


def test_unknown_items_of_a_stream(rng):
    est = small(input="pairs").partial_fit([[0, 0], [1, 2]], [1.0, 2.0])
    before = dict(vars(est))
    with pytest.raises(ValueError, match="X has the id 3.*n_items=3. Declare n_items=4"):
        est.partial_fit([[0, 3]], [1.0])
    assert vars(est) == before
    est = small(input="pairs", n_items=5, n_users=2).partial_fit([[0, 0], [1, 2]], [1.0, 2.0])
    est.partial_fit([[0, 4]], [1.0])
    assert est.n_items_ == 5 and est.n_users_ == 2
    with pytest.raises(ValueError, match="n_users=2. Declare n_users=3"):
        est.partial_fit([[2, 4]], [1.0])
    # Prediction asks for no declaration.
    assert np.isfinite(est.predict([[9, 9]])).all()


@all_inputs
def test_refused_batch_changes_nothing(input, rng):
    Y = ratings(rng)
    batches = [pairs_of(Y) if input == "pairs" else (Y,) for Y in (Y[:10], Y[10:])]
    est = small(input=input, n_items=10, n_users=25 if input == "pairs" else None)
    est.partial_fit(*batches[0])
    straight = pickle.loads(pickle.dumps(est)).partial_fit(*batches[1])
    bad = (batches[1][0], np.full(len(batches[1][0]), NAN)) if input == "pairs" else (
        np.full((2, 10), np.inf),
    )  # fmt: skip
    before = dict(vars(est))
    with pytest.raises(ValueError):
        est.partial_fit(*bad)
    with pytest.raises(ValueError, match="sample_weight"):
        est.partial_fit(*batches[1], sample_weight=np.ones(3))
    assert vars(est) == before
    assert_identical(est.partial_fit(*batches[1]), straight)


@pytest.mark.parametrize("name", ANNEALING)
def test_stream_of_pairs_goes_on_after_pickling(name, rng):
    Y = ratings(rng)
    X, y = pairs_of(Y)
    parts = np.array_split(rng.permutation(len(y)), 4)
    params = {"input": "pairs", "annealing": quick(name, 3), "n_items": 10}
    straight, resumed = small(**params), small(**params)
    for part in parts:
        straight.partial_fit(X[part], y[part])
        resumed = pickle.loads(pickle.dumps(resumed)).partial_fit(X[part], y[part])
        assert_identical(straight, resumed)
    assert straight.n_iter_ == 4 and np.isfinite(straight.score(X, y))


@all_inputs
def test_batch_without_ratings_changes_nothing(input, rng):
    Y = ratings(rng)
    est = small(input=input, n_items=10)
    data = pairs_of(Y) if input == "pairs" else (Y,)
    est.partial_fit(*data)
    before = fitted_state(est)
    est.partial_fit(*data, sample_weight=np.zeros(len(data[0])))
    if input == "matrix":
        est.partial_fit(np.full((3, 10), NAN))
    for name, value in fitted_state(est).items():
        assert_array_equal(np.asarray(value), np.asarray(before[name]), err_msg=name)


def test_a_stream_learns_what_a_fit_learns(rng):
    Y, known = draw(rng, 200, 20, observed=0.5)
    Y = np.where(known, Y, NAN)
    whole = small(max_iter=30).fit(Y)
    stream = small(total_samples=200)
    for _ in range(5):
        for rows in np.array_split(rng.permutation(200), 5):
            stream.partial_fit(Y[rows])
    batches = small(batch_size=40, max_iter=30).fit(Y)
    nothing = small(max_iter=0).fit(Y)
    for est in (stream, batches):
        gain = (est.score(Y) - nothing.score(Y)) / (whole.score(Y) - nothing.score(Y))
        assert gain > 0.9


def test_first_batch_must_fix_the_variances(rng):
    X, y = pairs_of(ratings(rng))
    with pytest.raises(ValueError, match="its ratings are all equal"):
        AnnealedPMF(2, input="pairs", n_items=20).partial_fit(X[:1], y[:1])
    given = {"noise_variance": 0.5, "factor_variance": 0.1, "bias_variance": 0.3}
    assert AnnealedPMF(2, input="pairs", n_items=20, **given).partial_fit(X[:1], y[:1]).n_users_


def test_earlier_ratings_of_a_stream_follow_the_noise_variance(rng):
    X, y = pairs_of(ratings(rng, 12, 8))
    est = small(input="pairs", n_items=8, noise_variance="auto").partial_fit(X, y)
    precise = np.linalg.inv(est.user_factors_cov_) * est.noise_variance_
    est.partial_fit([[30, 0], [30, 1]], [2.0, 5.0])
    for _ in range(20):
        est.partial_fit([[30, 0], [30, 1]], [3.0, 3.0])
    now = np.linalg.inv(est.user_factors_cov_[:12]) * est.noise_variance_
    prior = est.noise_variance_ / est.factor_variance_
    assert np.linalg.eigvalsh(now)[:, 0].min() > 0.99 * prior
    # Sums over ratings stay; the prior's part has another factor now.
    difference = now - precise
    assert_allclose(difference - difference[:1], 0.0, atol=1e-8 * np.abs(now).max())


def test_batches_of_users_without_ratings_are_parts_of_a_pass(rng):
    Y = np.vstack([ratings(rng, 10, 8), np.full((10, 8), NAN)])
    est = small(batch_size=1, max_iter=2).fit(Y)
    assert_array_equal(est.temperatures_, 1.0)
    annealed = small(batch_size=1, max_iter=1, annealing=quick("deterministic")).fit(Y)
    assert context_of(annealed).state["passes"] == pytest.approx(5)
