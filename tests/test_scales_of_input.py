"""Scales and codes of columns that do not suit a parameter are named, with what to do."""

from __future__ import annotations

import warnings
from functools import partial

import mpmath
import numpy as np
import pytest
from designs import pairwise
from harness import quick
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
    Shards,
)
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.data.units import Rows
from sklearn_anneal.models.components.gaussian import GaussianComponents

FAST = {"annealing": "none", "max_iter": 3, "random_state": 0}
BLOCKS = [("a", "poisson", [1]), ("b", "gaussian", [2, 0])]
FAMILIES = {
    "mixture": partial(AnnealedBayesianGaussianMixture, n_components=2, **FAST),
    "mixture, diag": partial(
        AnnealedBayesianGaussianMixture, n_components=2, covariance_type="diag", **FAST
    ),
    "mixture, spherical": partial(
        AnnealedBayesianGaussianMixture, n_components=2, covariance_type="spherical", **FAST
    ),
    "columns": partial(AnnealedBayesianMixture, 2, emission="gaussian", **FAST),
    "columns, full": partial(
        AnnealedBayesianMixture, 2, emission="gaussian", covariance_type="full", **FAST
    ),
    "columns, blocks": partial(AnnealedBayesianMixture, 2, emission=BLOCKS, **FAST),
    "chain": partial(AnnealedHMM, 2, **FAST),
    "chain, independent": partial(AnnealedHMM, 2, covariance_type="independent", **FAST),
    "chain, blocks": partial(AnnealedHMM, 2, emission=BLOCKS, **FAST),
}
families = pytest.mark.parametrize("family", FAMILIES)


def small_column(rng, variance, n=100):
    """Three columns, counts in the second; the third has the given variance."""
    X = rng.normal(size=(n, 3))
    X[:, 1] = rng.poisson(9.0, n)
    X[:, 2] *= np.sqrt(variance / X[:, 2].var(ddof=1))
    return X + [0.0, 0.0, 7.0]


def said(call):
    """The warnings of a call that are no ConvergenceWarning, and the call's result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return [w for w in caught if w.category is UserWarning], found


@families
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_regularisation_beside_a_small_variance_is_named(family, method, rng):
    make, X = FAMILIES[family], small_column(rng, 1e-8)
    if family == "mixture, spherical":
        X = (X - X.mean(axis=0)) * 1e-4
        message = r"reg_covar=1e-06 .* columns have the mean variance .*StandardScaler"
    else:
        message = r"reg_covar=1e-06 .* column 2 has the variance 1e-08.* Set reg_covar to 1e-14 "
    if family.endswith("blocks"):
        X[:, 1] = rng.poisson(9.0, len(X))
    (one,), est = said(lambda: getattr(make(), method)(X))
    assert one.filename == __file__
    with pytest.warns(UserWarning, match=message):
        getattr(make(), method)(X)
    # It is said once, and not where the remedy was taken.
    if method == "partial_fit":
        assert said(lambda: est.partial_fit(X))[0] == []
    assert said(lambda: getattr(make(reg_covar=1e-14), method)(X))[0] == []


@families
def test_an_ordinary_regularisation_says_nothing(family, rng):
    X = small_column(rng, 2e-4)
    assert said(lambda: FAMILIES[family]().fit(X))[0] == []
    X[:, 2] = 0.1  # a constant column has no scale
    assert said(lambda: FAMILIES[family]().fit(X))[0] == []


def test_parts_are_told_of_the_regularisation_too(rng):
    X = small_column(rng, 1e-8)
    with pytest.warns(UserWarning, match="column 2 has the variance 1e-08"):
        FAMILIES["mixture"]().fit(Shards([X[:40], X[40:]]))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
@pytest.mark.parametrize(
    "make",
    [
        AnnealedBayesianGaussianMixture,
        AnnealedHMM,
        partial(AnnealedBayesianMixture, emission="gaussian"),
    ],
)
def test_units_of_columns_do_not_matter_without_regularisation(covariance_type, make, rng):
    """The bound of one component changes by the logarithm of the change of units alone."""
    X = rng.multivariate_normal([1.0, 2.0, 3.0], [[1, 0.9, 0], [0.9, 1, 0.2], [0, 0.2, 1]], 200)
    units = np.array([1e-7, 1.0, 1e7])
    est = partial(
        make, n_components=1, covariance_type=covariance_type, reg_covar=0, annealing="none"
    )
    plain, other = est().fit(X), est().fit(X * units)
    expected = plain.lower_bound_ - len(X) * np.log(units).sum()
    assert_allclose(other.lower_bound_, expected, rtol=1e-9)
    assert_allclose(other.score(X * units), plain.score(X) - np.log(units).sum(), rtol=1e-9)


@pairwise(
    annealing=sorted(ANNEALING),
    make=(AnnealedBayesianGaussianMixture, AnnealedHMM),
    missing=(False, True),
)
def test_units_of_columns_do_not_matter_to_any_method(make, missing, annealing):
    """Starts, temperatures and the volume of tempered densities are those of other units.

    Later passes are not compared, because some methods amplify rounding errors, and neither are
    moves, because starts by k-means depend on units.
    """
    rng = np.random.default_rng(0)
    covariance = [[1, 0.9, 0], [0.9, 1, 0.2], [0, 0.2, 1]]
    X = rng.multivariate_normal([1.0, 2.0, 3.0], covariance, 60)
    X[:30] += 6.0
    if missing:
        X[::7, 1] = X[3::9, 0] = np.nan
    units = np.exp2([-24.0, 0.0, 24.0])
    how = {"annealing": quick(annealing, 5), "init_params": "random", "effort": 0}
    est = partial(make, n_components=2, reg_covar=0, **how)
    one, other = (est(random_state=0, max_iter=5).fit(Y) for Y in (X, X * units))
    change = ((~np.isnan(X)).sum(axis=0) * np.log(units)).sum()
    assert_allclose(other.temperatures_[:5], one.temperatures_[:5], rtol=1e-9)
    assert_allclose(other.lower_bounds_[:5], one.lower_bounds_[:5] - change, rtol=1e-9)


@pytest.mark.parametrize("reg_covar", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("units", [[1.0, 1.0, 1.0], [1e-8, 1.0, 1e8], [1.0, 1e5, 1e11]])
def test_the_volume_of_a_tempered_gaussian_has_its_digits_in_all_units(units, reg_covar, rng):
    X = rng.multivariate_normal([1.0, 2, 3], [[1, 0.9, 0], [0.9, 1, 0.2], [0, 0.2, 1]], 50) * units
    c = GaussianComponents(2, 3, "full", reg_covar=reg_covar)
    summary = c.summary(Rows(X))
    with mpmath.workdps(60):
        C = mpmath.matrix(summary.covariance.tolist()) + reg_covar * mpmath.eye(3)
        x = 0.3
        volume = (2 * mpmath.pi) ** 1.5 * mpmath.sqrt(mpmath.det(C))
        expected = float(mpmath.log(volume) * (1 - x) - 1.5 * mpmath.log(x))
    assert_allclose(c.tempered_log_volume(np.array([0.3]), summary), expected, rtol=1e-10)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
@pytest.mark.parametrize("make", [AnnealedBayesianGaussianMixture, AnnealedHMM])
def test_columns_without_variance_are_refused_in_all_units(covariance_type, make, rng):
    X = rng.normal(size=(60, 3)) * [1e-9, 1.0, 1e9]
    est = make(n_components=1, covariance_type=covariance_type, reg_covar=0)
    constant, dependent = X.copy(), X.copy()
    constant[:, 0] = 0.1 * 3
    dependent[:, 0] = 1e-9 * X[:, 1] + 1e-18 * X[:, 2]
    for Y in (constant,) if covariance_type == "diag" else (constant, dependent):
        with pytest.raises(ValueError, match="not positive definite"):
            est.fit(Y)


# Categories coded from 1


@pytest.mark.parametrize("make", [AnnealedBayesianMixture, AnnealedHMM])
def test_categories_coded_from_one_are_named(make, rng):
    X = np.column_stack([rng.integers(1, 4, 60), rng.integers(0, 3, 60), rng.integers(1, 3, 60)])
    if make is AnnealedHMM:
        emission = [("a", "categorical", [0, 1, 2])]
        declare = {"n_symbols": [4, 3, 3]}
    else:
        emission, declare = "categorical", {"n_categories": [4, 3, 3]}
    (name,) = declare
    est = partial(make, 2, emission=emission, **FAST)
    message = f"category 0 does not occur in the columns 0, 2 of X.*OrdinalEncoder.*declare {name}"
    with pytest.warns(UserWarning, match=message):
        fitted = est().fit(X)
    (one,), _ = said(lambda: est().fit(X))
    assert one.filename == __file__
    assert said(lambda: est(**declare).fit(X))[0] == []
    assert said(lambda: est().fit(X - [1, 0, 1]))[0] == []
    assert said(lambda: fitted.predict(X[:3]))[0] == []
    # One parameter too many for each component and column.
    spare = est().fit(X - [1, 0, 1])
    log_n = np.log(len(X))
    surplus = fitted.bic(X) - spare.bic(X - [1, 0, 1])
    likelihoods = -2 * len(X) * (fitted.score(X) - spare.score(X - [1, 0, 1]))
    assert_allclose(surplus - likelihoods, 2 * 2 * log_n, rtol=1e-9)


def test_columns_of_blocks_coded_from_one_have_their_place_in_the_table(rng):
    X = np.column_stack([rng.integers(1, 4, 60), rng.poisson(3.0, 60), rng.integers(1, 3, 60)])
    blocks = [("n", "poisson", [1]), ("b", "categorical", [2]), ("a", "categorical", [0])]
    for make in (AnnealedBayesianMixture, AnnealedHMM):
        est = partial(make, 2, emission=blocks, **FAST)
        with pytest.warns(UserWarning, match="does not occur in the columns 2, 0 of X"):
            est().fit(X)
        declared = {"n_symbols" if make is AnnealedHMM else "n_categories": {"a": 4}}
        with pytest.warns(UserWarning, match="does not occur in the column 2 of X"):
            est(**declared).fit(X)


@pytest.mark.parametrize("middle", [[0], []])
def test_answers_coded_minus_one_are_named(middle, rng):
    """Their −1 is read as missing, which would lose a third or a half of the answers in silence."""
    X = rng.choice([-1, *middle, 1], (60, 3)).astype(float)
    X[:, 1] = rng.integers(0, 2, 60)
    X[4, 2] = np.nan
    blocks = [("b", "bernoulli", [2, 1]), ("n", "gaussian", [0])]
    named = [("bernoulli", "columns 0, 2 of X.*OrdinalEncoder"), (blocks, "column 2 of X")]
    for emission, message in [*named, ("categorical", "columns 0, 2 of X")]:
        est = AnnealedBayesianMixture(2, emission=emission, **FAST)
        with pytest.warns(UserWarning, match=f"−1 and of 1 in the {message}"):
            est.fit(X)
        assert said(lambda est=est: est.predict(X))[0] == []
    marked = np.where(X < 0, np.nan, X)
    assert said(lambda: AnnealedBayesianMixture(2, **FAST).fit(marked))[0] == []
    many = rng.integers(-1, 3, (60, 2))
    assert (
        said(lambda: AnnealedBayesianMixture(2, emission="categorical", **FAST).fit(many))[0] == []
    )


def test_symbols_coded_from_one_are_named(rng):
    X = rng.integers(1, 4, (60, 1)).astype(float)
    X[3] = np.nan
    est = partial(AnnealedHMM, 2, emission="categorical", **FAST)
    with pytest.warns(UserWarning, match="The symbol 0 does not occur, .* declare n_symbols"):
        fitted = est().fit(X)
    (one,), _ = said(lambda: est().fit(X))
    assert one.filename == __file__
    assert said(lambda: est(n_symbols=4).fit(X))[0] == []
    assert said(lambda: est().fit(X - 1))[0] == []
    assert said(lambda: fitted.predict(X))[0] == []


@pytest.mark.parametrize("emission", ["bernoulli", "poisson"])
def test_other_columns_without_zeros_say_nothing(emission, rng):
    X = np.ones((30, 2))
    for make in (AnnealedBayesianMixture, AnnealedHMM):
        assert said(lambda make=make: make(1, emission=emission, **FAST).fit(X))[0] == []


# Searches


def test_warnings_inside_a_search_point_at_the_call_of_the_user(rng):
    X = rng.standard_normal((40, 2))
    search = GridSearchCV(AnnealedBayesianGaussianMixture(max_iter=1), {"n_components": [2]}, cv=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X)
    files = [w.filename for w in caught if issubclass(w.category, ConvergenceWarning)]
    # Two folds and the fit to all rows.
    assert files == [__file__] * 3
