"""Draws of users and items, and the averages of items over them that predictions read."""

from __future__ import annotations

import numpy as np
import pytest
from cases_matrix_factorization import draw, full, pairs_of, ratings
from harness import context_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from sklearn_anneal import AnnealedPMF, Shards
from sklearn_anneal.annealing import LocalVariationalTempering
from sklearn_anneal.models import _rating_draws

VALUES = ("components_", "components_cov_", "item_biases_", "user_factors_", "user_biases_")


def factorized(n_components=2, **params):
    settings = {"random_state": 0, "max_iter": 30, "effort": 0}
    return AnnealedPMF(n_components, **(settings | params))


def parts_of(est, X, weights=None):
    """The model, and the ratings as its methods read them."""
    data = est._validate_data(X, reset=False)
    return context_of(est).model, est._make_units(data, weights)


def regression(rows, others, seen, biases, d, variance, prior):
    """Mean and covariance matrix of the parameters of a row, given its ratings and the others."""
    mean, covariance = prior
    design, target = others[seen].copy(), rows[seen].copy()
    if biases:
        target -= design[:, d]
        design[:, d] = 1.0
    precision = np.linalg.inv(covariance)
    found = np.linalg.inv(precision + design.T @ design / variance)
    return found @ (precision @ mean + design.T @ target / variance), found


@pytest.mark.parametrize("hierarchical", [True, False])
@pytest.mark.parametrize("biases", [True, False])
def test_rows_are_drawn_from_a_regression(biases, hierarchical, rng, monkeypatch):
    monkeypatch.setattr(_rating_draws, "_ENTRIES", 40)
    X = ratings(rng, 7, 12)
    est = factorized(biases=biases, hierarchical=hierarchical, gibbs_sweeps=0).fit(X)
    model, units = parts_of(est, X)
    d, centred, n = model.n_components, X - model.intercept, 600
    items, users = (rng.standard_normal((m, model.size)) for m in (12, 7))
    drawn = [_rating_draws.drawn_users(model, units, items, rng)[0] for _ in range(n)]
    ones = np.ones(7)
    given_users = [_rating_draws.drawn_items(model, units, users, ones, rng) for _ in range(n)]
    others, means = map(np.array, zip(*given_users, strict=True))
    assert_array_equal(means[0], means[1])
    shifts = np.zeros((12, model.size)) if model.raters is None else model.raters.offsets
    for found, rows, given, side, moved in (
        (np.array(drawn), centred, items, "users", np.zeros((7, model.size))),
        (others, centred.T, users, "items", shifts),
    ):
        mean, covariance = model.prior_of_rows(side)
        for i, row in enumerate(rows):
            m, c = regression(
                row, given, ~np.isnan(row), biases, d, model.noise_variance,
                (mean + moved[i], covariance),
            )  # fmt: skip
            deviations = np.sqrt(np.diagonal(c))
            assert_allclose(found[:, i].mean(axis=0), m, atol=5 * deviations.max() / n**0.5)
            assert_allclose(found[:, i].std(axis=0), deviations, rtol=0.1)
            if side == "items":
                assert_allclose(means[0, i], m, rtol=1e-9, atol=1e-12)


def test_averages_are_those_of_the_exact_posterior(rng):
    """One user and one item, with one rating, by weighted draws of the prior."""
    X = np.array([[3.0]])
    est = factorized(
        1, biases=False, fit_intercept=False, hierarchical=False, user_scales=False,
        noise_variance=1.0, factor_variance=1.0, gibbs_sweeps=2000, clip=False,
    ).fit(X)  # fmt: skip
    u, v = rng.standard_normal((2, 400_000))
    weights = norm.pdf(3.0, u * v)
    # The signs of both factors are not determined, but those of a draw are turned to the start.
    mean = np.average(np.abs(v), weights=weights)
    variance = np.average(v**2, weights=weights) - mean**2
    assert_allclose(np.abs(est.components_[0, 0]), mean, rtol=0.03)
    optimum = AnnealedPMF(**(est.get_params() | {"gibbs_sweeps": 0})).fit(X)
    found = est.components_cov_[0, 0, 0]
    assert optimum.components_cov_[0, 0, 0] < found
    assert_allclose(found, variance, rtol=0.2)


def test_longer_sampling_does_not_lose_the_factors():
    """Factors that are sampled turn, so that their means over many sweeps would be zero."""
    rng = np.random.default_rng(0)
    Y, known = draw(rng, 80, 40, observed=0.5)
    X = np.where(known, Y, np.nan)
    optimum, short, long = (factorized(gibbs_sweeps=n).fit(X) for n in (0, 50, 1000))
    size = np.linalg.norm(optimum.components_)
    for est in (short, long):
        assert 0.9 < np.linalg.norm(est.components_) / size < 1.1
    assert_allclose(long.predict_rows(X), short.predict_rows(X), atol=0.15)


@pytest.mark.parametrize("user_scales", [False, True])
def test_averages_predict_drawn_ratings_no_worse(user_scales):
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        Y, known = draw(rng, 80, 40, observed=0.2)
        X = np.where(known, Y, np.nan)
        # The optimum is that of a search.
        settings = {"user_scales": user_scales, "effort": "auto"}
        found = (factorized(5, gibbs_sweeps=n, **settings).fit(X) for n in (0, 60))
        errors.append([np.square((est.predict_rows(X) - Y)[~known]).mean() for est in found])
    optimum, averaged = np.mean(errors, axis=0)
    assert averaged < 1.003 * optimum


def test_everything_reads_the_averages(rng):
    X = ratings(rng)
    optimum, est = (factorized(gibbs_sweeps=n).fit(X) for n in (0, 20))
    assert est.lower_bound_ == optimum.lower_bound_
    assert_array_equal(est.lower_bounds_, optimum.lower_bounds_)
    for name in VALUES:
        assert np.abs(getattr(est, name) - getattr(optimum, name)).max() > 1e-4, name
    natural = est._averaged
    covariance = np.linalg.inv(full(natural["items_precision"]))
    assert_allclose(est.components_cov_, covariance[:, :2, :2], rtol=1e-8)
    assert_allclose(est.item_biases_var_, covariance[:, 2, 2], rtol=1e-8)
    mean = np.einsum("nij,nj->ni", covariance, natural["items_natural_mean"])
    assert_allclose(est.components_.T, mean[:, :2], rtol=1e-8)
    assert_allclose(est.item_biases_, mean[:, 2], rtol=1e-8)
    # New users are solved for given the same items as those of the fit.
    assert_allclose(est.transform(X), est.user_factors_, rtol=1e-9)
    rows, columns = np.nonzero(np.isnan(X))
    means, deviations = est.predict_rows(X, return_std=True)
    one, other = est.predict_ratings(rows, columns, return_std=True)
    assert_allclose(one, means[rows, columns], rtol=1e-9)
    assert_allclose(other, deviations[rows, columns], rtol=1e-9)


def test_default_is_for_ratings_in_memory_in_a_hierarchical_model(rng, monkeypatch):
    X, asked = ratings(rng), []
    monkeypatch.setattr(
        "sklearn_anneal.estimators._rating_refinements.averaged_items",
        lambda model, q, units, n, *others: asked.append(n) or model.items.factor.rename(
            model.items.factor.pick(q)
        ),
    )  # fmt: skip
    factorized().fit(X)
    factorized(input="pairs").fit(*pairs_of(X))
    factorized(batch_size=5, annealing="none").fit(X)
    assert asked == [100] * 3
    factorized(hierarchical=False, gibbs_sweeps=7).fit(X)
    assert asked[3:] == [7]
    for without in (
        factorized(hierarchical=False),
        factorized(gibbs_sweeps=0),
        factorized(max_iter=0, annealing="none"),
        factorized(annealing="local_tempering"),
    ):
        assert getattr(without.fit(X), "_averaged", None) is None
    assert getattr(factorized().fit(Shards([X[:12], X[12:]])), "_averaged", None) is None
    factorized().partial_fit(X)
    assert asked[4:] == []


def test_a_line_tells_of_the_sweeps(rng, capsys):
    X = ratings(rng)
    factorized(gibbs_sweeps=3, verbose=1).fit(X)
    assert "averaging items over 3 sweeps of Gibbs sampling" in capsys.readouterr().out
    factorized(gibbs_sweeps=3).fit(X)
    factorized(gibbs_sweeps=0, verbose=1).fit(X)
    assert "Gibbs" not in capsys.readouterr().out


def test_sweeps_that_cannot_be_are_refused(rng):
    X = ratings(rng)
    for annealing in ("local_tempering", LocalVariationalTempering()):
        with pytest.raises(ValueError, match="gibbs_sweeps=5 cannot be combined with annealing="):
            factorized(gibbs_sweeps=5, annealing=annealing).fit(X)
    with pytest.raises(ValueError, match="Updates of streams are fitted without gibbs_sweeps"):
        factorized(gibbs_sweeps=5).partial_fit(X)
    with pytest.raises(ValueError, match="Data in parts are fitted without gibbs_sweeps"):
        factorized(gibbs_sweeps=5).fit(Shards([X[:12], X[12:]]))


def test_a_fit_that_goes_on_begins_at_the_optimum(rng):
    X = ratings(rng)
    optimum, est = (factorized(gibbs_sweeps=n, warm_start=True).fit(X) for n in (0, 20))
    for again in (optimum, est):
        again.set_params(max_iter=3).fit(X)
    assert_array_equal(est.lower_bounds_, optimum.lower_bounds_)
    assert est._averaged is not None
    est.set_params(gibbs_sweeps="auto")
    for later in (optimum, est):
        later.partial_fit(X[:10])
    # A stream reads the last items, not averages over draws of earlier ones.
    assert not hasattr(est, "_averaged")
    assert_array_equal(est.components_, optimum.components_)
    assert_array_equal(est.user_factors_, optimum.user_factors_)


def test_averages_depend_on_neither_threads_nor_the_order_of_factors(rng, monkeypatch):
    monkeypatch.setattr(_rating_draws, "_ROWS", 10)
    X = ratings(rng, 60, 30)
    one, several = (factorized(gibbs_sweeps=5, n_jobs=n).fit(X) for n in (1, 2))
    for name in VALUES:
        assert_array_equal(getattr(one, name), getattr(several, name))
    before = one.predict_rows(X, return_std=True)
    several.reorder([1, 0])
    assert_allclose(several.components_, one.components_[[1, 0]], rtol=1e-8)
    assert_allclose(several.user_factors_, one.user_factors_[:, [1, 0]], rtol=1e-8)
    for values, others in zip(several.predict_rows(X, return_std=True), before, strict=True):
        assert_allclose(values, others, rtol=1e-8)


def test_weights_of_ratings_repeat_them(rng):
    X, y = pairs_of(ratings(rng))
    weights = rng.integers(0, 3, len(y))
    sizes = {"n_users": 25, "n_items": 10, "input": "pairs", "tol": 0.0, "gibbs_sweeps": 10}
    weighted = factorized(**sizes).fit(X, y, sample_weight=weights)
    repeated = factorized(**sizes).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert_allclose(weighted.components_, repeated.components_, rtol=1e-6)
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6)


@pytest.mark.parametrize("user_scales", [False, True])
def test_weights_of_users_repeat_them(user_scales):
    """One draw that counts twenty times would make items vary about ten times as much."""
    rng = np.random.default_rng(0)
    Y, known = draw(rng, 40, 20, observed=0.4)
    X = np.where(known, Y, np.nan)
    params = {"user_scales": user_scales, "gibbs_sweeps": 200}
    weighted = factorized(**params).fit(X, sample_weight=np.full(40, 20.0))
    repeated = factorized(**params).fit(np.repeat(X, 20, axis=0))
    assert_allclose(weighted.lower_bound_, repeated.lower_bound_, rtol=1e-6)
    # Sampling the repeated users with other seeds moves predictions by 0.007 to 0.008.
    change = weighted.predict_rows(X) - repeated.predict_rows(X)
    assert np.square(change).mean() < 0.02**2
    sizes = [np.trace(est.components_cov_.mean(axis=0)) for est in (weighted, repeated)]
    assert_allclose(*sizes, rtol=0.3)


def test_nothing_is_sampled_without_a_pass_or_of_equal_ratings(rng):
    X, start = ratings(rng), rng.standard_normal((2, 10))
    est = factorized(annealing="none", max_iter=0, components_init=start).fit(X)
    assert_allclose(est.components_, start)
    same = np.where(np.isnan(X), np.nan, 3.0)
    for params in ({}, {"gibbs_sweeps": 5}, {"hierarchical": False, "gibbs_sweeps": 5}):
        predicted = factorized(clip=False, **params).fit(same).predict_rows(same)
        assert_allclose(predicted, np.full(X.shape, 3.0), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_averages_have_the_scale_of_the_ratings(scale, rng):
    X = ratings(rng)
    usual, other = (factorized(gibbs_sweeps=10).fit(x).predict_rows(x) for x in (X, scale * X))
    assert_allclose(other, scale * usual, rtol=1e-4)
