"""What is not accepted is refused in words that help; what looks odd but works, works."""

from __future__ import annotations

import warnings
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
from designs import in_turn, pairwise
from harness import quick
from sklearn.exceptions import NotFittedError

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import (
    ANNEALING,
    DeterministicAnnealing,
)

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
STARTS = ("kmeans", "k-means++", "random", "random_from_data")
READERS = ("predict", "predict_proba", "transform", "score_samples", "score", "partial_fit")

all_covariance_types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
all_methods = pytest.mark.parametrize("annealing", ANNEALING)
all_starts = pytest.mark.parametrize("init_params", STARTS)


def rows(n=30, n_features=2):
    return np.random.default_rng(0).normal(size=(n, n_features))


def mixture(**parameters):
    """Without reheats and with few passes, as most of these tests have no use for more."""
    few = {"random_state": 0, "effort": 0, "max_iter": 5}
    return AnnealedBayesianGaussianMixture(**few | parameters)


@cache
def fitted_once():
    return mixture(n_components=2).fit(rows())


def fitted_to_rows():
    """A fit of its own for each test."""
    return deepcopy(fitted_once())


def assert_sound(fitted, X):
    """The fit is finite, and reads rows."""
    for name in ("weights_", "means_", "covariances_", "precisions_", "lower_bounds_"):
        value = getattr(fitted, name)
        assert not np.any(np.isinf(value)), name
        assert name == "lower_bounds_" or not np.any(np.isnan(value)), name
    assert np.isfinite(fitted.lower_bound_)
    assert fitted.weights_.sum() == pytest.approx(1)
    assert np.all(np.isfinite(fitted.score_samples(X)))
    np.testing.assert_allclose(fitted.transform(X).sum(axis=1), 1)


# X


def test_fewer_rows_than_components():
    with pytest.raises(ValueError, match="n_components = 31, n_samples = 30"):
        mixture(n_components=31).fit(rows())


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (rows()[0], "Expected 2D array, got 1D array instead"),
        (np.empty((0, 2)), r"Found array with 0 sample\(s\).* minimum of 1 is required"),
    ],
)
def test_not_a_batch_of_rows(X, message):
    for estimator in (mixture(), fitted_to_rows()):
        with pytest.raises(ValueError, match=message):
            estimator.partial_fit(X)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@all_covariance_types
def test_values_whose_squares_overflow(covariance_type):
    with pytest.raises(ValueError, match="covariance of X overflows.*Rescale X"):
        mixture(covariance_type=covariance_type).fit(1e200 * rows())


@pytest.mark.parametrize("method", ["predict", "transform", "score", "sample"])
def test_not_fitted(method):
    arguments = () if method == "sample" else (rows(),)
    with pytest.raises(NotFittedError, match="instance is not fitted yet"):
        getattr(mixture(), method)(*arguments)
    with pytest.raises(NotFittedError, match="instance is not fitted yet"):
        mixture(annealing="local_tempering").inverse_temperatures(rows())


# Weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(30), "All sample weights are zero.*Give a positive weight"),
        (-np.ones(30), "Negative values in data passed to `sample_weight`"),
        (np.full(30, np.nan), "sample_weight contains NaN"),
        (np.full(30, np.inf), "sample_weight contains infinity"),
        (np.ones(3), r"sample_weight.shape == \(3,\), expected \(30,\)"),
        (np.ones((30, 2)), "Sample weights must be 1D array or scalar"),
    ],
)
def test_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        mixture().fit(rows(), sample_weight=weights)
    estimator = fitted_to_rows()
    if weights.any():
        with pytest.raises(ValueError, match=message):
            estimator.partial_fit(rows(), sample_weight=weights)
        with pytest.raises(ValueError, match=message):
            estimator.score(rows(), sample_weight=weights)


def test_weights_of_zero_cannot_begin_a_stream_nor_weigh_a_score():
    zeros = np.zeros(30)
    message = "All sample weights are zero.* Give a positive weight"
    with pytest.raises(ValueError, match=message):
        mixture().partial_fit(rows(), sample_weight=zeros)
    with pytest.raises(ValueError, match=message):
        fitted_to_rows().score(rows(), sample_weight=zeros)


@all_starts
@pytest.mark.parametrize("n_positive", [5, 10])
def test_weights_of_zero_in_most_rows(n_positive, init_params):
    weights = (np.arange(30) < n_positive).astype(float)
    X = rows()
    fitted = mixture(n_components=5, init_params=init_params).fit(X, sample_weight=weights)
    assert_sound(fitted, X)
    counts = fitted.mean_precision_ - fitted.mean_precision_prior_
    assert counts.sum() == pytest.approx(n_positive)


@all_starts
@pytest.mark.parametrize("n_positive", [1, 2, 4])
def test_rows_of_weight_zero_do_not_count_as_rows(n_positive, init_params):
    weights = (np.arange(30) < n_positive).astype(float)
    message = f"n_components = 5, n_samples = {n_positive} of positive weight"
    with pytest.raises(ValueError, match=message):
        mixture(n_components=5, init_params=init_params).fit(rows(), sample_weight=weights)


@pytest.mark.usefixtures("few_passes_of_searches")
@all_methods
def test_tiny_and_huge_weights(annealing):
    X = rows()
    priors = {"mean_prior": X.mean(axis=0), "covariance_prior": np.cov(X.T)}
    for scale in (1e-6, 1e6):
        weights = np.full(len(X), scale)
        how = {"annealing": quick(annealing), "effort": "auto", "max_iter": 15}
        fitted = mixture(n_components=2, **how, **priors)
        assert_sound(fitted.fit(X, sample_weight=weights), X)


@pytest.mark.parametrize("total", [1e-3, 1.0, 1.5])
def test_weights_that_sum_to_less_than_two_rows_cannot_give_the_prior(total):
    X = rows()
    weights = np.full(len(X), total / len(X))
    message = r"sum of the sample weights.* numbers of rows.* len\(sample_weight\)"
    with pytest.raises(ValueError, match=message):
        mixture(n_components=2).fit(X, sample_weight=weights)
    with pytest.raises(ValueError, match=message):
        mixture(n_components=2).partial_fit(X, sample_weight=weights)


@pytest.mark.parametrize("change", [{"covariance_type": "diag"}, {"reg_covar": 0.1}])
def test_parameters_of_the_model_cannot_change_while_its_fit_is_kept(change):
    (name,) = change
    message = f"which had {name}=.* now. Restore {name}"
    with pytest.raises(ValueError, match=message):
        mixture(warm_start=True).fit(rows()).set_params(**change).fit(rows())
    with pytest.raises(ValueError, match=message):
        mixture().partial_fit(rows()).set_params(**change).partial_fit(rows())
    with pytest.raises(ValueError, match="which had annealing="):
        mixture().partial_fit(rows()).set_params(annealing="svi_plus").partial_fit(rows())
    mixture(warm_start=True).fit(rows()).set_params(annealing="svi_plus").fit(rows())


def test_nested_parameters_of_the_annealing_cannot_change_within_a_stream():
    stream = mixture(annealing=DeterministicAnnealing(n_passes=5)).partial_fit(rows())
    stream.set_params(annealing__n_passes=5).partial_fit(rows())
    with pytest.raises(ValueError, match="which had annealing="):
        stream.set_params(annealing__n_passes=9).partial_fit(rows())


def test_scales_beyond_floating_point_are_explained():
    X = np.vstack([rows(), [[1e9, 1e9]]])
    prior = {"covariance_prior": 1e-9 * np.eye(2)}
    with pytest.raises(ValueError, match="ill-defined covariances.* increase reg_covar"):
        mixture(n_components=3, annealing="none", reg_covar=0, **prior).fit(X)


def test_rows_too_far_away_to_predict():
    fitted = fitted_to_rows()
    for method in (fitted.predict, fitted.predict_proba, fitted.score_samples):
        with pytest.raises(ValueError, match="squared distances overflow"):
            method([[1e200, 0.0]])


# Priors


@pytest.mark.parametrize("mean", [[0.0, 0.0, 0.0], [[0.0, 0.0]], [0.0]])
def test_shape_of_the_mean_prior(mean):
    with pytest.raises(ValueError, match=r"'mean_prior' should have the shape of \(2,\), but got"):
        mixture(mean_prior=mean).fit(rows())


def test_missing_value_in_the_mean_prior():
    with pytest.raises(ValueError, match="mean_prior contains NaN"):
        mixture(mean_prior=[0.0, np.nan]).fit(rows())


@all_covariance_types
def test_shape_of_the_covariance_prior(covariance_type):
    shape = {"full": "(2, 2)", "tied": "(2, 2)", "diag": "(2,)", "spherical": "()"}
    with pytest.raises(ValueError, match="covariance_prior' should have the shape of") as caught:
        mixture(covariance_type=covariance_type, covariance_prior=np.eye(3)).fit(rows())
    assert f"'{covariance_type} covariance_prior'" in str(caught.value)
    assert f"of {shape[covariance_type]}, but got (3, 3)" in str(caught.value)


@pytest.mark.parametrize(
    ("covariance_type", "prior"),
    [
        ("full", [[1.0, 2.0], [2.0, 1.0]]),
        ("full", [[1.0, 0.5], [0.0, 1.0]]),
        ("full", [[1.0, np.nan], [np.nan, 1.0]]),
        ("tied", -np.eye(2)),
        ("diag", [1.0, 0.0]),
        ("diag", [1.0, np.nan]),
        ("spherical", np.array(-1.0)),
    ],
)
def test_covariance_prior_is_not_positive_definite(covariance_type, prior):
    needed = "symmetric, positive-definite" if np.ndim(prior) == 2 else "positive"
    message = f"'{covariance_type} covariance_prior' should be {needed}"
    with pytest.raises(ValueError, match=message):
        mixture(covariance_type=covariance_type, covariance_prior=prior).fit(rows())


@pytest.mark.parametrize("dof", [0.5, 1.0])
def test_degrees_of_freedom_prior(dof):
    with pytest.raises(
        ValueError, match=f"'degrees_of_freedom_prior' should be greater than 1, but got {dof:.3f}"
    ):
        mixture(degrees_of_freedom_prior=dof).fit(rows())


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("n_components", 0, r"an int in the range \[1, inf\)"),
        ("n_components", 2.5, r"an int in the range \[1, inf\)"),
        ("covariance_type", "block", "'full'"),
        ("init_params", "pca", "'k-means\\+\\+'"),
        ("factorization", "mean-field", "'independent'"),
        ("weight_concentration_prior_type", "uniform", "'dirichlet_process'"),
        ("weight_concentration_prior", 0, r"\(0.0, inf\)"),
        ("mean_precision_prior", -1, r"\(0.0, inf\)"),
        ("degrees_of_freedom_prior", -1, r"\(0.0, inf\)"),
        ("covariance_prior", -1.0, "an array-like"),
        ("reg_covar", -1e-6, r"\[0.0, inf\)"),
        ("tol", -1, r"\[0.0, inf\)"),
        ("max_iter", -1, r"\[0, inf\)"),
        ("n_init", 0, r"\[1, inf\)"),
        ("batch_size", 0, r"\[1, inf\)"),
        ("learning_offset", -1, r"\[0.0, inf\)"),
        ("learning_decay", 1.5, r"\[0.0, 1.0\]"),
        ("total_samples", 0, r"\(0.0, 1e\+30\]"),
        ("n_jobs", 1.5, r"\[1, inf\)"),
        ("n_jobs", 0, r"\(-inf, -1\]"),
    ],
)
def test_parameters_out_of_range(name, value, accepted):
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=f"'{name}' parameter.*{accepted}.*Got"):
            getattr(mixture(**{name: value}), method)(rows())


# Annealing


def test_nested_parameters_that_do_not_exist():
    with pytest.raises(ValueError, match="Invalid parameter 'heat' for estimator Deterministic"):
        mixture(annealing="deterministic").set_params(annealing__heat=3)
    with pytest.raises(ValueError, match="annealing='simulated' has no parameters.*'stochastic'"):
        mixture(annealing="simulated").set_params(annealing__n_passes=3)


# What looks odd but works


@pytest.mark.usefixtures("few_passes_of_searches")
@in_turn(annealing=ANNEALING, covariance_type=COVARIANCE_TYPES)
def test_constant_column(covariance_type, annealing):
    X = np.column_stack([rows(), np.full(30, 3.0)])
    params = {"covariance_type": covariance_type, "annealing": quick(annealing), "effort": "auto"}
    fitted = mixture(n_components=3, max_iter=15, **params).fit(X)
    assert_sound(fitted, X)
    np.testing.assert_allclose(fitted.means_[:, 2], 3.0)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_constant_column_without_regularisation(covariance_type):
    X = np.column_stack([rows(), np.full(30, 3.0)])
    estimator = mixture(n_components=3, covariance_type=covariance_type, reg_covar=0)
    message = "not positive definite.*Give covariance_prior, or set reg_covar above 0"
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(estimator, method)(X)
    prior = np.ones(3) if covariance_type == "diag" else np.eye(3)
    assert_sound(estimator.set_params(covariance_prior=prior).fit(X), X)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_linearly_dependent_columns(covariance_type):
    X = rows()
    X = np.column_stack([X, X.sum(axis=1)])
    estimator = mixture(n_components=3, covariance_type=covariance_type)
    assert_sound(estimator.fit(X), X)
    with pytest.raises(ValueError, match="linearly dependent columns"):
        estimator.set_params(reg_covar=0).fit(X)


@pytest.mark.usefixtures("few_passes_of_searches")
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@in_turn(annealing=ANNEALING, init_params=STARTS)
def test_duplicated_rows(annealing, init_params):
    X = np.repeat(rows(6), 10, axis=0)
    params = {"annealing": quick(annealing), "init_params": init_params, "effort": "auto"}
    fitted = mixture(n_components=3, max_iter=15, **params).fit(X)
    assert_sound(fitted, X)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pairwise(
    annealing=ANNEALING, n_distinct=(1, 3), covariance_type=COVARIANCE_TYPES, init_params=STARTS
)
def test_more_components_than_distinct_rows(annealing, n_distinct, covariance_type, init_params):
    X = np.repeat(rows(n_distinct), 20, axis=0)
    estimator = mixture(
        n_components=8,
        annealing=quick(annealing),
        covariance_type=covariance_type,
        init_params=init_params,
    )
    assert_sound(estimator.fit(X), X)


@in_turn(annealing=ANNEALING, init_params=STARTS)
def test_one_column(annealing, init_params):
    X = rows(40, 1)
    X[::2] += 8
    fits = {
        covariance_type: mixture(
            n_components=2,
            covariance_type=covariance_type,
            annealing=quick(annealing, 10),
            init_params=init_params,
            max_iter=20,
        ).fit(X)
        for covariance_type in ("full", "diag", "spherical")
    }
    for fitted in fits.values():
        assert_sound(fitted, X)
        # In one dimension these are the same model.
        assert fitted.lower_bound_ == pytest.approx(fits["full"].lower_bound_, rel=1e-8)


@all_covariance_types
def test_more_columns_than_rows(covariance_type):
    X = rows(6, 20)
    assert_sound(mixture(n_components=2, covariance_type=covariance_type).fit(X), X)


def test_integers_booleans_and_lists():
    X = np.arange(24).reshape(12, 2) % 7
    expected = mixture(n_components=2).fit(X.astype(float)).lower_bound_
    for other in (X, X.astype(np.int32), X.astype(np.uint8), X.tolist()):
        assert mixture(n_components=2).fit(other).lower_bound_ == expected
    assert_sound(mixture(n_components=2).fit(X > 3), X > 3)


def test_a_good_fit_says_nothing():
    X = rows(200)
    X[::2] += 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixture(n_components=2, max_iter=100).fit(X).score(X)
