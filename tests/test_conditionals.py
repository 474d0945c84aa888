"""Rows given some of their columns, and regression by a mixture of X and y."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cases_missing_cells import GAPPED
from models.mixture import BLOCKS, table
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_anneal import (
    TRUSTED_TYPES,
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
    MixtureRegressor,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SETTINGS = {"annealing": "none", "effort": 0, "random_state": 0}
GAUSSIANS = AnnealedBayesianGaussianMixture(2, **SETTINGS)
COLUMNS = AnnealedBayesianMixture(2, max_iter=5, **SETTINGS)


def assert_near(found, expected, deviation, n):
    """Assert that a mean of n draws is within five standard errors of its expectation."""
    assert abs(found - expected) < 5.0 * deviation / np.sqrt(n) + 1e-9, (found, expected)


# Samples


def test_gaussian_rows_have_conditional_moments(rng):
    """Those of each component, and the components their probabilities given the cell."""
    est = clone(GAUSSIANS).fit(GAPPED.data(rng, 90))
    value, n = est.means_[:, 1].mean(), 4000
    X, labels = est.sample(n, given={1: value})
    assert X.shape == (n, 3) and (X[:, 1] == value).all() and (np.diff(labels) >= 0).all()
    mean, cov = est.means_, est.covariances_
    density = [multivariate_normal(mean[k, 1], cov[k, 1, 1]).pdf(value) for k in range(2)]
    shares = est.weights_ * density
    shares /= shares.sum()
    for k, share in enumerate(shares):
        own = X[labels == k]
        assert_near((labels == k).mean(), share, np.sqrt(share * (1 - share)), n)
        for d in (0, 2):
            slope = cov[k, d, 1] / cov[k, 1, 1]
            center = mean[k, d] + slope * (value - mean[k, 1])
            deviation = np.sqrt(cov[k, d, d] - slope * cov[k, 1, d])
            assert_near(own[:, d].mean(), center, deviation, len(own))
            assert own[:, d].std() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("emission", ["bernoulli", "categorical", "poisson", BLOCKS])
def test_discrete_rows_have_the_mixture_of_their_components(emission, rng):
    X = table(emission, 0.2)(rng, 60)
    est = clone(COLUMNS).set_params(emission=emission).fit(X)
    row = np.full(X.shape[1], np.nan)
    row[1], n = 1.0, 3000
    found, labels = est.sample(n, given=row)
    assert (found[:, 1] == 1).all() and not np.isnan(found.astype(float)).any()
    assert found.dtype == est.sample(1)[0].dtype
    assert_array_equal(found, est.sample(n, given={1: 1.0})[0])
    if emission is BLOCKS:
        assert (found[:, [0, 1, 2, 4]] % 1 == 0).all()
        return
    if emission == "bernoulli":
        likelihood, mean = est.emissionprob_[:, 1], est.emissionprob_[:, 0]
    elif emission == "poisson":
        likelihood, mean = est.lambdas_[:, 1] * np.exp(-est.lambdas_[:, 1]), est.lambdas_[:, 0]
    else:
        likelihood = est.emissionprob_[1][:, 1]
        mean = est.emissionprob_[0] @ np.arange(3)
    shares = est.weights_ * likelihood
    shares /= shares.sum()
    assert_near(labels.mean(), shares[1], np.sqrt(shares[0] * shares[1]), n)
    assert_near(found[:, 0].mean(), shares @ mean, found[:, 0].std(), n)


def test_given_columns_have_names(rng):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(GAPPED.data(rng, 40), columns=["a", "b", "c"])
    est = clone(GAUSSIANS).fit(frame)
    named, by_number = est.sample(5, given={"b": 1.0})[0], est.sample(5, given={1: 1.0})[0]
    assert_array_equal(named, by_number)
    with pytest.raises(ValueError, match="twice"):
        est.sample(5, given={"b": 1.0, 1: 1.0})
    with pytest.raises(ValueError, match="not a column of"):
        est.sample(5, given={"d": 1.0})


@pytest.mark.parametrize("n_given", [2, 3])
def test_a_series_gives_values_by_its_index(n_given, rng):
    """Not by their order, also where there are as many values as columns."""
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    est = clone(GAUSSIANS).fit(X)
    given = pd.Series([3.0, None, 1.0], index=["c", "b", "a"], dtype="Float64").iloc[-n_given:]
    values = {"c": 3.0, "a": 1.0} if n_given == 3 else {"a": 1.0}
    for found, expected in zip(
        est.sample(5, given=given), est.sample(5, given=values), strict=True
    ):
        assert_array_equal(found, expected)


def test_what_cannot_be_given_is_refused(rng):
    est = clone(GAUSSIANS).fit(GAPPED.data(rng, 40))
    with pytest.raises(ValueError, match="X had no names of columns"):
        est.sample(2, given={"a": 1.0})
    with pytest.raises(ValueError, match="columns are 0 to 2"):
        est.sample(2, given={3: 1.0})
    with pytest.raises(ValueError, match="by name or by number"):
        est.sample(2, given={1.5: 1.0})
    with pytest.raises(ValueError, match="has shape"):
        est.sample(2, given=[1.0, np.nan])
    with pytest.raises(ValueError, match="infinity"):
        est.sample(2, given={0: np.inf})
    for value in ("high", [1.0, 2.0]):
        with pytest.raises(ValueError, match="for the column 0, but one number"):
            est.sample(2, given={0: value})
    with pytest.raises(ValueError, match="impute"):
        est.sample(2, given={0: 1.0}, predictive=True)


# Regression


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([MixtureRegressor(AnnealedBayesianGaussianMixture(1, **SETTINGS))])
def test_scikit_learn_accepts_the_regressor(estimator, check):
    check(estimator)


def test_one_component_is_bayesian_linear_regression(rng):
    """With many rows, its conditional mean is that of least squares."""
    X = rng.normal(size=(3000, 2))
    y = 1.0 + X @ [2.0, -1.0] + 0.5 * rng.normal(size=3000)
    one = clone(GAUSSIANS).set_params(n_components=1)
    regressor = MixtureRegressor(one).fit(X, y)
    mean, std = regressor.predict(X[:9], return_std=True)
    design = np.column_stack([np.ones(3000), X])
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    assert_allclose(mean, design[:9] @ found, atol=5e-3)
    assert_allclose(std, 0.5, rtol=0.05)
    # Without the second column, the first is what is known.
    alone = regressor.predict([[1.0, np.nan]])
    assert_allclose(alone, 3.0, atol=0.1)


def test_regression_is_the_imputation_of_targets(rng):
    X = GAPPED.data(rng, 80)
    y = np.where(np.isnan(X[:, 1:]), 0.0, X[:, 1:])
    regressor = MixtureRegressor(GAUSSIANS).fit(X[:, :1], y)
    full = np.column_stack([X[:, :1], np.full_like(y, np.nan)])
    expected = regressor.estimator_.impute(full, return_std=True)
    found = regressor.predict(X[:, :1], return_std=True)
    for own, each in zip(found, expected, strict=True):
        assert_array_equal(own, each[:, 1:])
    assert regressor.n_outputs_ == 2 and regressor.n_features_in_ == 1


def test_a_mixture_bends_where_a_line_cannot(rng):
    X = rng.uniform(-2, 2, size=(150, 1))
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=150)
    regressor = MixtureRegressor(GAUSSIANS)
    assert cross_val_score(regressor, X, y, cv=3).min() > 0.8
    search = GridSearchCV(regressor, {"estimator__n_components": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_ == {"estimator__n_components": 2}


def test_mixed_columns_predict_counts(rng):
    z = rng.integers(2, size=80)
    X = np.column_stack([z, rng.normal(size=80) + 5 * z])
    y = rng.poisson(np.where(z, 9.0, 1.0))
    blocks = [("yes", "bernoulli", [0]), ("size", "gaussian", [1]), ("count", "poisson", [2])]
    mixed = clone(COLUMNS).set_params(emission=blocks, max_iter=20)
    regressor = MixtureRegressor(mixed).fit(X, y)
    assert_allclose(regressor.predict([[0, 0.0], [1, 5.0]]), [1.0, 9.0], atol=1.0)
    with pytest.raises(ValueError, match="categories have no mean"):
        MixtureRegressor(mixed).set_params(
            estimator__emission=[("sizes", "gaussian", [0, 1]), ("yes", "bernoulli", [2])]
        ).fit(X[:, [1, 1]] + rng.normal(size=(80, 2)), z)


def test_only_mixtures_are_regressors(rng):
    with pytest.raises(TypeError, match="estimator should be AnnealedBayesian"):
        MixtureRegressor(AnnealedHMM(2)).fit(np.zeros((4, 1)), np.zeros(4))


def test_regressors_are_kept_in_files_of_skops(rng, tmp_path):
    skops = pytest.importorskip("skops.io")
    X = rng.normal(size=(30, 1))
    regressor = MixtureRegressor(GAUSSIANS).fit(X, X[:, 0] ** 2)
    skops.dump(regressor, tmp_path / "regressor.skops")
    other = skops.load(tmp_path / "regressor.skops", trusted=TRUSTED_TYPES)
    assert_array_equal(other.predict(X), regressor.predict(X))
