"""Factorial mixtures as users meet them: what a fit finds, and what it refuses."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from cases_factorial_mixture import PAPER, STEPS, drawn_parts, fitted, n_recovered

from sklearn_anneal import AnnealedFactorialMixture
from sklearn_anneal.annealing import DeterministicAnnealing

each_step = pytest.mark.parametrize("local_step", STEPS)
FAST = {"n_components": 3, "annealing": "none", "max_iter": 3, "random_state": 0}
factorial = partial(AnnealedFactorialMixture, **FAST)


def rows(n=30, d=4):
    return np.random.default_rng(0).normal(size=(n, d))


# What a fit finds


def parts_found(seed, **params):
    X, means, activations = drawn_parts(np.random.default_rng(seed), 1000)
    est = AnnealedFactorialMixture(8, random_state=seed, **PAPER, **params).fit(X)
    return n_recovered(est.means_, means), est, X, means, activations


@each_step
def test_annealing_finds_all_drawn_parts(local_step):
    """The better of two starts does; without annealing it does not."""
    how = {"local_step": local_step, "n_init": 2}
    found, est, X, means, activations = parts_found(0, **how)
    assert found == 8
    order = ((est.means_[:, None] - means) ** 2).mean(axis=-1).argmin(axis=0)
    wrong = (est.transform(X)[:, order] > 0.5) != activations
    assert wrong.mean() < 0.005
    assert np.mean((est.inverse_transform(est.transform(X)) - X) ** 2) < 0.0105
    assert est.n_effective_components_ == 8
    assert parts_found(0, annealing="none", **how)[0] < 8


def test_annealing_in_minibatches_finds_most_drawn_parts():
    annealing = DeterministicAnnealing(n_passes=50)
    found, est, *_ = parts_found(1, batch_size=200, annealing=annealing, max_iter=20)
    assert found >= 7
    assert est.lower_bounds_.shape == (est.n_iter_,)


def test_a_background_is_a_component_or_the_offset(rng):
    """What some rows have in addition can also be what the others have less."""
    background, part = np.array([5.0, 4.0, 3.0, 2.0]), np.array([0.0, 0.0, 3.0, 3.0])
    there = rng.random((300, 1)) < 0.5
    X = background + there * part + 0.1 * rng.normal(size=(300, 4))
    one = AnnealedFactorialMixture(2, random_state=0, max_iter=300).fit(X)
    always, sometimes = np.argsort(-one.activation_probabilities_)
    assert one.activation_probabilities_[always] > 0.99
    np.testing.assert_allclose(np.abs(one.means_[sometimes]), part, atol=0.1)
    np.testing.assert_array_equal(one.offset_, np.zeros(4))
    two = AnnealedFactorialMixture(2, center=True, random_state=0, max_iter=300).fit(X)
    (k,) = np.flatnonzero(np.abs(two.means_).max(axis=1) > 1.0)
    expected = (background, part) if two.means_[k, 2] > 0 else (background + part, -part)
    np.testing.assert_allclose(two.means_[k], expected[1], atol=0.1)
    np.testing.assert_allclose(two.offset_, expected[0], atol=0.2)
    for est in (one, two):
        again = est.inverse_transform(est.transform(X))
        np.testing.assert_allclose(again, background + there * part, atol=0.1)


def test_a_constant_that_is_added_to_the_data_is_their_offset(rng):
    X = rows()
    shift = np.array([1e5, -50.0, 0.0, 7.0])
    est, other = (
        factorial(center=True, annealing="deterministic", max_iter=300).fit(data)
        for data in (X + shift, X)
    )
    assert est.lower_bound_ == pytest.approx(other.lower_bound_, rel=1e-6)
    np.testing.assert_allclose(est.means_, other.means_, atol=1e-5)
    np.testing.assert_allclose(est.offset_ - shift, other.offset_, atol=1e-5)
    np.testing.assert_allclose(est.transform(X + shift), other.transform(X), atol=1e-5)


def test_bars_on_a_background_are_all_found(rng):
    """Eight bars in pictures of 4 x 4 pixels, which nothing but an offset can explain."""
    pixels = np.arange(16)
    lines = [pixels % 4 == k for k in range(4)] + [pixels // 4 == k for k in range(4)]
    bars = 3.0 * np.array(lines)
    background = rng.normal(size=16) + 1e5
    X = (rng.random((600, 8)) < 0.25) @ bars + background + 0.5 * rng.normal(size=(600, 16))
    est = AnnealedFactorialMixture(8, center=True, random_state=0).fit(X)
    distances = ((est.means_[:, None] - bars) ** 2).sum(axis=-1)
    assert (distances.min(axis=0) < 2.0).all()
    np.testing.assert_allclose(est.offset_, background, atol=0.3)


def test_starts_from_rows_and_from_the_prior_differ():
    X = rows()
    bounds = {
        est.fit(X).lower_bounds_[0]
        for start in ("random", "random_from_data")
        for est in (factorial(init_params=start), factorial(init_params=start, random_state=1))
    }
    assert len(bounds) == 4
    weights = np.zeros(30)
    weights[:3] = 1.0
    factorial(init_params="random_from_data").fit(X, sample_weight=weights)


def test_rows_that_are_all_zero_are_fitted():
    est = factorial().fit(np.zeros((20, 4)))
    assert np.isfinite(est.lower_bound_)
    assert np.isfinite(est.transform(np.zeros((2, 4)))).all()


# Predictions


@each_step
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transform_and_back(local_step, dtype, rng):
    est, X = fitted(rng, local_step)
    codes = est.transform(X.astype(dtype))
    assert codes.shape == (60, 3)
    assert codes.dtype == dtype
    assert (codes >= 0).all() and (codes <= 1).all()
    again = est.inverse_transform(codes)
    assert again.shape == X.shape
    assert again.dtype == dtype
    np.testing.assert_allclose(again, codes @ est.means_ + est.offset_, rtol=1e-5)
    np.testing.assert_array_equal(est.fit_transform(X), est.fit(X).transform(X))
    assert list(est.get_feature_names_out()) == [f"annealedfactorialmixture{k}" for k in range(3)]


def test_samples_have_the_moments_of_the_predictive_density(rng):
    est, X = fitted(rng, n=300, max_iter=30)
    est.set_params(random_state=0)
    drawn, codes = est.sample(40_000)
    assert drawn.shape == (40_000, 4)
    assert set(np.unique(codes)) == {0.0, 1.0}
    prior = est.activation_probabilities_
    np.testing.assert_allclose(codes.mean(axis=0), prior, atol=0.01)
    np.testing.assert_allclose(drawn.mean(axis=0), prior @ est.means_, atol=0.05)
    again, _ = est.sample(40_000)
    np.testing.assert_array_equal(drawn, again)
    # Draws from the model have about the density that the model gives to its training data.
    assert est.score(drawn) == pytest.approx(est.score(X), abs=1.0)


def test_score_is_the_weighted_mean_of_scores(rng):
    est, X = fitted(rng)
    weights = rng.random(60)
    expected = np.average(est.score_samples(X), weights=weights)
    assert est.score(X, sample_weight=weights) == pytest.approx(expected)


def test_outliers_have_low_inverse_temperatures(rng):
    est, X = fitted(rng, annealing="local_tempering")
    far = X[:3] + 20.0
    assert est.inverse_temperatures(far).max() < est.inverse_temperatures(X).min()
    assert not hasattr(fitted(rng)[0], "inverse_temperatures")


# Refusals


def test_too_many_states_are_refused():
    with pytest.raises(ValueError, match="n_components=11 .* up to n_components=10"):
        factorial(n_components=11, local_step="enumerate").fit(rows())
    factorial(n_components=10, local_step="enumerate", max_iter=1).fit(rows())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"activation_prior": [0.5, 0.5]}, "activation_prior.* shape"),
        ({"activation_prior": [0.5, 0.5, 1.0]}, "below 1 everywhere"),
        ({"activation_prior": [0.5, 0.5, 0.0]}, "positive everywhere"),
        ({"activation_prior": [0.5, 0.5, np.nan]}, "NaN"),
        ({"activation_prior": 1.0}, "'activation_prior' parameter"),
        ({"noise_variance": 0.0}, "'noise_variance' parameter"),
        ({"noise_variance": 1e-14}, "noise_variance=1e-14 is too small"),
        ({"mean_variance": -1.0}, "'mean_variance' parameter"),
        ({"max_sweeps": 0}, "'max_sweeps' parameter"),
        ({"n_components": 31}, "n_samples >= n_components"),
        (
            {"annealing": DeterministicAnnealing(initial_temperature="auto"), "effort": 0},
            None,
        ),
    ],
)
def test_bad_parameters_are_refused_with_a_sentence(params, message):
    for method in ("fit", "partial_fit"):
        call = getattr(factorial(**params), method)
        if message is None:
            call(rows())
            continue
        if params.get("n_components") == 31 and method == "partial_fit":
            message = "31 distinct rows are needed"
        with pytest.raises(ValueError, match=message):
            call(rows())


def test_numbers_whose_squares_overflow_are_refused():
    with pytest.raises(ValueError, match="their squares overflow"):
        factorial().fit(1e200 * rows())
    est = factorial().fit(rows())
    for call in (est.transform, est.score, est.score_samples):
        with pytest.raises(ValueError, match="squared distances overflow"):
            call(1e200 * rows())
    exact = factorial(local_step="enumerate").fit(rows())
    with pytest.raises(ValueError, match="squared distances overflow"):
        exact.score(1e200 * rows())


def test_codes_of_another_width_are_refused():
    est = factorial().fit(rows())
    with pytest.raises(ValueError, match="X has 4 columns, .* each of the 3 components"):
        est.inverse_transform(rows())


def test_a_first_batch_of_few_rows_needs_given_priors():
    with pytest.raises(ValueError, match="noise_variance, mean_variance and activation_prior"):
        factorial().partial_fit(rows(2))
    given = factorial(noise_variance=1.0, mean_variance=1.0, activation_prior=0.5)
    given.partial_fit(rows(1)).partial_fit(rows(5))
    with pytest.raises(ValueError, match="with center=False"):
        factorial(
            center=True, noise_variance=1.0, mean_variance=1.0, activation_prior=0.5
        ).partial_fit(rows(1))


def test_equal_rows_have_no_noise_to_learn_whatever_rounding_says(rng):
    """The mean of weighted equal rows differs from them in the last bit."""
    row, weights = np.array([[2.86067032, 0.48979234, -0.49106366]]), 1e4 * rng.random(23)
    est = AnnealedFactorialMixture(2, annealing="none", max_iter=13, tol=0, random_state=0)
    bounds = est.fit(np.repeat(row, 23, axis=0), sample_weight=weights).lower_bounds_
    assert np.diff(bounds).min() >= -1e-9 * np.abs(bounds).max()
    assert est.noise_variance_ > 1e-3
