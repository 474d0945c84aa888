"""Tests of what a fitted factorisation predicts, recommends and scores."""

from __future__ import annotations

import numpy as np
import plain_matrix_factorization as plain
import pytest
from cases_matrix_factorization import (
    NAN,
    TRUTH,
    VARIANTS,
    all_inputs,
    all_variants,
    draw,
    items_of,
    pairs_of,
    ratings,
    small,
    users_of,
)
from harness import one_update, open_run, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.stats import norm
from sklearn.base import clone

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.estimators import _recommendations

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# Fold-in and the prior


@all_variants
def test_transform_of_the_training_data_gives_the_fitted_users(variant, rng):
    Y = ratings(rng)
    for how in ({}, {"batch_size": 8}, {"annealing": quick("svi_plus")}):
        est = small(**how, **VARIANTS[variant]).fit(Y)
        assert_allclose(est.transform(Y), est.user_factors_, rtol=1e-10, atol=1e-13)
        # A user's factors depend on nobody else.
        assert_allclose(est.transform(Y[[7, 3]]), est.user_factors_[[7, 3]], rtol=1e-10)


@all_variants
def test_fold_in_is_the_update_of_batch_mode_at_fixed_items(variant, rng):
    Y = ratings(rng)
    ctx, method, units = open_run(small(**VARIANTS[variant]), Y)
    across = ctx.model.expectations(ctx.q)
    folded = ctx.model.solution(ctx.model.per_noise(ctx.model.sums_of_users(units, across)))
    one_update(ctx, method, units)
    for key, value in folded.items():
        assert_allclose(value, ctx.q[f"users_{key}"], rtol=1e-13)


def test_users_without_ratings_have_the_prior(rng):
    Y = ratings(rng)
    est = small().fit(Y)
    nobody = np.full((2, Y.shape[1]), NAN)
    assert_array_equal(est.transform(nobody), np.zeros((2, 2)))
    assert_array_equal(est.user_factors_[0], [0.0, 0.0])
    assert_allclose(est.user_factors_cov_[0], est.factor_variance_ * np.eye(2), rtol=1e-12)
    assert est.user_biases_[0] == 0 and est.user_biases_var_[0] == pytest.approx(est.bias_variance_)
    expected = est.predict_ratings(np.full(10, 99), np.arange(10), return_std=True)
    for found, other in zip(est.predict_rows(nobody, return_std=True), expected, strict=True):
        assert_allclose(found[0], other, rtol=1e-12)
    assert_allclose(est.predict_ratings([0], [3]), est.intercept_ + est.item_biases_[3])


@all_inputs
@pytest.mark.parametrize("biases", [True, False])
def test_ids_never_seen_have_the_prior(input, biases, rng):
    """The mean is μ, the variance that of the prior predictive distribution."""
    Y = ratings(rng)
    Y[:, 4] = NAN
    est = small(input=input, biases=biases)
    est.fit(*(pairs_of(Y) if input == "pairs" else (Y,)))
    c, s2 = est.factor_variance_, est.noise_variance_
    b2 = est.bias_variance_ if biases else 0.0
    mean, std = est.predict_ratings([1000, 1000, 0], [1000, 4, 4], return_std=True)
    assert_allclose(mean, est.intercept_, rtol=1e-12)
    assert_allclose(std**2, s2 + 2 * c**2 + 2 * b2, rtol=1e-12)
    # A known item and an unknown user.
    item_mean, item_cov = items_of(est)
    prior = np.diag(plain.hyperparameters(est).prior_variances(2 + biases))
    expected = plain.predictive(
        np.zeros(2 + biases), prior, item_mean[2], item_cov[2], plain.hyperparameters(est)
    )
    mean, std = est.predict_ratings([1000], [2], return_std=True)
    assert mean[0] == pytest.approx(expected[0]) and std[0] ** 2 == pytest.approx(expected[1])


# Predictions


@all_variants
def test_predictions_are_those_of_the_plain_model(variant, rng):
    Y = ratings(rng)
    est = small(clip=False, **VARIANTS[variant]).fit(Y)
    users, items = users_of(est, Y), items_of(est)
    hyper = plain.hyperparameters(est)
    expected = np.array([
        [plain.predictive(users[0][i], users[1][i], items[0][j], items[1][j], hyper)
         for j in range(Y.shape[1])] for i in range(len(Y))
    ])  # fmt: skip
    rows, columns = np.indices(Y.shape)
    mean, std = est.predict_ratings(rows.ravel(), columns.ravel(), return_std=True)
    assert_allclose(mean, expected[..., 0].ravel(), rtol=1e-9)
    assert_allclose(std**2, expected[..., 1].ravel(), rtol=1e-9)
    mean, std = est.predict_rows(Y, return_std=True)
    assert_allclose(mean, expected[..., 0], rtol=1e-9)
    assert_allclose(std**2, expected[..., 1], rtol=1e-9)
    assert_array_equal(est.predict_rows(Y), mean)
    biases = est.user_biases_ if est.biases else None
    assert_allclose(est.inverse_transform(est.user_factors_, biases), mean, rtol=1e-9)


def test_predictive_moments_are_those_of_draws(rng):
    Y = ratings(rng, 6, 4)
    est = small(clip=False).fit(Y)
    n, i, j = 200_000, 2, 1
    (um, uc), (vm, vc) = users_of(est, Y), items_of(est)
    u = rng.multivariate_normal(um[i], uc[i], size=n)
    v = rng.multivariate_normal(vm[j], vc[j], size=n)
    y = est.intercept_ + (u[:, :2] * v[:, :2]).sum(axis=1) + u[:, 2] + v[:, 2]
    y += np.sqrt(est.noise_variance_) * rng.standard_normal(n)
    mean, std = est.predict_ratings([i], [j], return_std=True)
    assert mean[0] == pytest.approx(y.mean(), abs=4 * std[0] / np.sqrt(n))
    assert std[0] == pytest.approx(y.std(), rel=0.01)


@pytest.mark.parametrize("biases", [True, False])
def test_ninety_percent_intervals_hold_ninety_percent(biases, rng):
    """Of held-out ratings drawn from the model itself."""
    hyper = TRUTH if biases else TRUTH._replace(bias=None)
    Y, known = draw(rng, 400, 80, hyper=hyper, observed=0.25, biases=biases)
    est = AnnealedPMF(
        2, biases=biases, noise_variance=hyper.noise, factor_variance=hyper.factor,
        bias_variance=hyper.bias, clip=False, random_state=0,
    )  # fmt: skip
    est.fit(np.where(known, Y, NAN))
    users, items = np.nonzero(~known)
    mean, std = est.predict_ratings(users, items, return_std=True)
    inside = np.abs(Y[users, items] - mean) < norm.ppf(0.95) * std
    assert 0.88 < inside.mean() < 0.92
    # The uncertainty of the factors adds to the noise, above all for users with few ratings.
    assert (std**2).mean() > 1.1 * hyper.noise


def test_clip(rng):
    Y = ratings(rng)
    free = small(clip=False).fit(Y)
    low, high = free.rating_range_
    factors = np.array([[30.0, 0.0], [0.0, -30.0]])
    wide = free.inverse_transform(factors)
    assert wide.min() < low and wide.max() > high
    assert_array_equal(small().fit(Y).inverse_transform(factors), wide.clip(low, high))
    within = small(clip=(2.9, 3.1)).fit(Y)
    assert_array_equal(within.inverse_transform(factors), wide.clip(2.9, 3.1))
    users, items = np.nonzero(np.isnan(Y))
    expected = free.predict_ratings(users, items)
    assert_array_equal(within.predict_ratings(users, items), expected.clip(2.9, 3.1))
    assert_array_equal(within.predict_rows(Y), free.predict_rows(Y).clip(2.9, 3.1))
    # The standard deviations are not clipped, and the fit is the same.
    assert_array_equal(
        within.predict_ratings(users, items, return_std=True)[1],
        free.predict_ratings(users, items, return_std=True)[1],
    )
    assert within.lower_bound_ == free.lower_bound_ and within.score(Y) == free.score(Y)
    for clip in ((3.0, 3.0), (5.0, 1.0), (NAN, 3.0)):
        with pytest.raises(ValueError, match="is not a range"):
            small(clip=clip).fit(Y)


def test_recommend(rng):
    Y = ratings(rng)
    est = small(clip=False).fit(Y)
    predicted = est.predict_rows(Y)
    found = est.recommend(Y, n=10)
    assert found.shape == (25, 10) and found.dtype.kind == "i"
    for i in range(len(Y)):
        unseen = np.flatnonzero(np.isnan(Y[i]))
        best = unseen[np.argsort(-predicted[i, unseen], kind="stable")]
        assert_array_equal(found[i], np.append(best, np.full(10 - len(best), -1)))
    assert_array_equal(est.recommend(Y, n=3), found[:, :3])
    everything = est.recommend(Y, n=10, exclude_seen=False)
    assert_array_equal(np.sort(everything), np.tile(np.arange(10), (25, 1)))
    assert_array_equal(everything, np.argsort(-predicted, axis=1, kind="stable"))
    more = est.recommend(Y, n=12, exclude_seen=False)
    assert_array_equal(more, np.append(everything, np.full((25, 2), -1), axis=1))
    # Ties go to the lowest column: two items that nobody has rated.
    Y[:, [3, 7]] = NAN
    nobody = np.full((1, 10), NAN)
    order = small().fit(Y).recommend(nobody, n=10)[0].tolist()
    assert order.index(7) == order.index(3) + 1
    with pytest.raises(ValueError, match="1 or more; got 0"):
        est.recommend(Y, n=0)


def test_the_best_of_many_items_are_those_of_sorting_all(rng):
    ratings = rng.integers(0, 5, (30, 200)).astype(float)
    ratings[:, ::7] = -np.inf
    ratings[0, 2:] = -np.inf
    for n in (1, 3, 10, 60, 300):
        expected = np.argsort(-ratings, axis=1, kind="stable")[:, :n]
        assert_array_equal(_recommendations.highest(ratings, n), expected)


def test_predictions_for_few_are_those_for_all(rng):
    """Only those moments are computed that a prediction needs; the means have to be the same."""
    Y = ratings(rng)
    Y[:, 5:] = NAN
    est = small().fit(Y)
    assert_allclose(est.transform(Y[:1]), est.user_factors_[:1], rtol=1e-10)
    n_users, n_items = Y.shape
    users, items = (i.ravel() for i in np.mgrid[-1 : n_users + 2, -1 : n_items + 2])
    mean, std = est.predict_ratings(users, items, return_std=True)
    assert_allclose(est.predict_ratings(users, items), mean, rtol=1e-12)
    for i in range(0, len(users), 7):
        one, own = est.predict_ratings(users[i : i + 1], items[i : i + 1], return_std=True)
        assert_allclose([one[0], own[0]], [mean[i], std[i]], rtol=1e-12)


def test_recommendations_have_scores(rng):
    Y = ratings(rng)
    est = small().fit(Y)
    items, scores = est.recommend(Y, n=10, return_scores=True)
    assert_array_equal(items, est.recommend(Y, n=10))
    left = items >= 0
    assert_array_equal(np.isnan(scores), ~left)
    expected = np.take_along_axis(est.predict_rows(Y), np.maximum(items, 0), axis=1)
    assert_allclose(scores[left], expected[left], rtol=1e-12)


@pytest.mark.parametrize("form", ["matrix", "pairs"])
def test_recommendations_for_known_users_by_their_ids(form, rng, monkeypatch):
    Y = ratings(rng)
    rated = ~np.isnan(Y)
    users, items = np.nonzero(rated)
    est = small(clip=False, input=form)
    est.fit(Y) if form == "matrix" else est.fit(np.column_stack([users, items]), Y[rated])
    some = [3, 0, 3, -1, 10**6]  # the last two were not seen in training
    every, scores = est.recommend_for(some, n=10, return_scores=True)
    assert_array_equal(np.sort(every), np.tile(np.arange(10), (5, 1)))
    assert_array_equal(every[0], every[2])
    assert_array_equal(every[3], every[4])
    expected = est.predict_ratings(np.repeat(some, 10), every.ravel()).reshape(5, 10)
    assert_allclose(scores, expected, rtol=1e-10)
    assert (np.diff(scores, axis=1) <= 1e-12).all()
    # The rated items are left out, in both forms of exclusions.
    known = [3, 0]
    left, of_left = est.recommend_for(
        known, n=10, exclude=csr_matrix(rated[known]), return_scores=True
    )
    for row, user in zip(left, known, strict=True):
        best = [i for i in every[some.index(user)] if not rated[user, i]]
        assert_array_equal(row, best + [-1] * (10 - len(best)))
    assert_array_equal(np.isnan(of_left), left < 0)
    lists = [np.flatnonzero(rated[user]) for user in known]
    assert_array_equal(est.recommend_for(known, n=10, exclude=lists), left)
    assert_array_equal(est.recommend_for(known, n=10, exclude=rated[known]), left)
    for kind in (set, frozenset):
        sets = [kind(items.tolist()) for items in lists]
        assert_array_equal(est.recommend_for(known, n=10, exclude=sets), left)
    # A block of users has no more than so many ratings.
    monkeypatch.setattr(_recommendations, "_CELLS", 25)
    assert_array_equal(est.recommend_for(some, n=10), every)
    assert_array_equal(est.recommend_for(known, n=10, exclude=lists), left)
    if form == "matrix":
        seen = np.where(rated, 1.0, np.nan)[known] * Y[known]
        assert_array_equal(est.recommend(seen, n=4)[:, :2], left[:, :2])


@pytest.mark.parametrize("biases", [True, False])
def test_sampled_ratings_have_the_moments_of_the_model(biases, rng):
    est = small(biases=biases, noise_variance=0.5).fit(ratings(rng))
    drawn, factors = est.sample(20_000)
    assert drawn.shape == (20_000, 10)
    mean = est.intercept_ + (est.item_biases_ if biases else 0.0)
    assert_allclose(drawn.mean(axis=0), np.broadcast_to(mean, 10), atol=0.1)
    spread = est.factor_variance_ * (est.components_**2).sum(axis=0) + 0.5
    spread = spread + (est.bias_variance_ if biases else 0.0)
    assert_allclose(drawn.var(axis=0), spread, rtol=0.06)
    assert_allclose(factors.var(axis=0), est.factor_variance_, rtol=0.06)
    assert_array_equal(est.sample(3)[0], est.sample(3)[0])
    with pytest.raises(ValueError, match="at least one sample"):
        est.sample(0)
    assert not hasattr(small(input="pairs"), "sample")


def test_bad_recommendations_are_refused(rng):
    est = small().fit(ratings(rng))
    for arguments, message in [
        (([0], 0), "1 or more"),
        (([[0]],), "one dimension"),
        (([-2],), "users must be integers"),
        (([0, 1], 3, [[0]]), "lists for 1 users, but users has 2"),
        (([0], 3, np.zeros((1, 10))), "a boolean array of shape"),
        (([0], 3, {0: [1]}), "or a list with the ids"),
        (([0, 1], 3, [3, 1]), "or a list with the ids"),
        (([0], 3, [[True] * 10]), "or a list with the ids"),
        (([0], 3, [[10]]), "item 10, but there are 10 items"),
        (([0], 3, {3, 1}), "or a list with the ids"),
        (([0], 3, [{10}]), "item 10, but there are 10 items"),
        (([0], 3, [{"a"}]), "items in exclude must be integers"),
        (([0], 3, [{True}]), "or a list with the ids"),
        (([0], 3, [[-1]]), "items in exclude must be integers"),
        (([0], 3, csr_matrix((2, 10))), "but there are 1 users and 10 items"),
    ]:
        with pytest.raises(ValueError, match=message):
            est.recommend_for(*arguments)


@pytest.mark.parametrize("kind", [list, np.array])
def test_ranges_may_be_lists_and_arrays(kind, rng):
    Y = ratings(rng)
    est, other = small(clip=kind([2.5, 3.0])), small(clip=(2.5, 3.0))
    found, expected = (e.fit(Y).predict_rows(Y) for e in (est, other))
    assert_array_equal(found, expected)
    assert 2.5 <= found.min() < found.max() <= 3.0
    est.partial_fit(Y)


@pytest.mark.parametrize(
    "clip",
    [(1, 2, 3), (None, 5), ("a", "b"), (5, 1), (), (2, 2), [5, 1], [1], np.ones(3), np.eye(2)]
    + [(1, np.nan), [True, 2]],
)
def test_ranges_that_are_none_are_refused(clip, rng):
    with pytest.raises(ValueError, match="is not a range"):
        small(clip=clip).fit(ratings(rng))


def test_numpy_booleans_switch_clipping_off(rng):
    Y = ratings(rng)
    far = [[9.0, 9.0]]
    one, other = (small(clip=no).fit(Y).inverse_transform(far) for no in (False, np.False_))
    assert_array_equal(one, other)
    assert one.max() > np.nanmax(Y)


def test_fitted_model_decides_and_not_later_parameters(rng):
    Y = ratings(rng)
    est = small(2).fit(Y)
    factors, mean = est.transform(Y), est.inverse_transform(est.transform(Y))
    est.set_params(n_components=3, biases=False)
    assert_array_equal(est.transform(Y), factors)
    assert_array_equal(est.inverse_transform(factors), mean)
    assert est.components_cov_.shape[1:] == (2, 2)
    assert est.item_biases_var_.shape == (Y.shape[1],)


@pytest.mark.parametrize("n", [0, 2.5, None, "a"])
def test_number_of_recommendations_is_a_positive_integer(n, rng):
    Y = ratings(rng)
    with pytest.raises(ValueError, match="1 or more"):
        small().fit(Y).recommend(Y, n)


# Score


def halves_by_hand(Y):
    """Every other known item of each user, in the order of a fixed permutation."""
    keys = np.random.RandomState(0).permutation(Y.shape[1])
    known, predicted = Y.copy(), np.full(Y.shape, NAN)
    for i in range(len(Y)):
        items = np.flatnonzero(~np.isnan(Y[i]))
        chosen = items[np.argsort(keys[items])][::2]
        predicted[i, chosen] = Y[i, chosen]
        known[i, chosen] = NAN
    return known, predicted


@all_variants
def test_score_of_a_matrix_is_that_of_one_half_given_the_other(variant, rng):
    Y = ratings(rng)
    est = small(**VARIANTS[variant]).fit(Y)
    new = ratings(rng, 12)
    known, predicted = halves_by_hand(new)
    (um, uc), (vm, vc) = users_of(est, known), items_of(est)
    densities, of_user = [], []
    for i, j in np.argwhere(~np.isnan(predicted)):
        moments = plain.predictive(um[i], uc[i], vm[j], vc[j], plain.hyperparameters(est))
        densities.append(norm.logpdf(new[i, j], moments[0], np.sqrt(moments[1])))
        of_user.append(i)
    assert est.score(new) == pytest.approx(np.mean(densities), rel=1e-10)
    w = rng.uniform(0.5, 2.0, 12)
    expected = np.average(densities, weights=w[of_user])
    assert est.score(new, sample_weight=w) == pytest.approx(expected, rel=1e-10)
    order = rng.permutation(12)
    assert est.score(new[order]) == pytest.approx(est.score(new), rel=1e-12)


def test_score_of_pairs_is_the_density_of_their_ratings(rng):
    X, y = pairs_of(ratings(rng))
    est = small(input="pairs").fit(X[:90], y[:90])
    # Unknown ids have their priors; any order; twice the same pair.
    new = np.vstack([X[90:], X[90:92], [[500, 2], [3, 500]]])
    values = np.append(y[90:], [2.0, 3.0, 1.0, 4.0])
    order = rng.permutation(len(new))
    new, values, w = new[order], values[order], rng.uniform(0.1, 2.0, len(new))
    mean, std = clone(est).set_params(clip=False).fit(X[:90], y[:90]).predict(new, return_std=True)
    densities = norm.logpdf(values, mean, std)
    assert est.score(new, values) == pytest.approx(densities.mean(), rel=1e-12)
    expected = np.average(densities, weights=w)
    assert est.score(new, values, sample_weight=w) == pytest.approx(expected, rel=1e-12)


def test_score_without_anything_to_predict(rng):
    est = small().fit(ratings(rng))
    with pytest.raises(ValueError, match="no rating to predict"):
        est.score(np.full((2, 10), NAN))


def test_score_needs_ratings_of_positive_weight(rng):
    Y = np.vstack([ratings(rng), np.full((1, ratings(rng).shape[1]), NAN)])
    weights = np.zeros(len(Y))
    weights[-1] = 1.0
    with pytest.raises(ValueError, match="no rating of positive weight"):
        small().fit(Y).score(Y, sample_weight=weights)
