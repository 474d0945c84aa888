"""Tests of matrix factorisation among scikit-learn's tools."""

from __future__ import annotations

import numpy as np
import pytest
from cases_matrix_factorization import NAN, all_inputs, draw, pairs_of, ratings, small
from harness import assert_identical, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.utils import estimator_checks

from sklearn_anneal import AnnealedPMF

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# Common checks

# Checks of scikit-learn that bring no data of their own, or data that are refused in good words;
# all others feed rows of continuous features, which are no pairs of ids.
PAIRS_CHECKS = {
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_tag",
    "check_estimator_tags_renamed",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_valid_tag_types",
}


def test_common_checks_of_pairs():
    found = set()
    for estimator, check in estimator_checks.estimator_checks_generator(small(input="pairs")):
        name = getattr(check, "func", check).__name__
        if name in PAIRS_CHECKS:
            check(estimator)
            found.add(name)
    # Older versions lack a check.
    assert found == {name for name in PAIRS_CHECKS if hasattr(estimator_checks, name)}
    assert len(found) >= len(PAIRS_CHECKS) - 1


# scikit-learn's tools


def test_cross_validation_over_ratings(rng):
    Y, known = draw(rng, 80, 30)
    X, y = pairs_of(np.where(known, Y, NAN))
    folds = KFold(3, shuffle=True, random_state=0)
    est = small(input="pairs", max_iter=30)
    scores = cross_val_score(est, X, y, cv=folds, error_score="raise")
    # Better than the ratings' own normal distribution.
    assert scores.min() > norm.logpdf(y, y.mean(), y.std()).mean() + 0.1
    errors = cross_val_score(est, X, y, cv=folds, scoring="neg_root_mean_squared_error")
    assert -errors.max() < 0.85 * y.std()
    by_method = GridSearchCV(est, {"annealing": ["none", quick("svi_plus")]}, cv=folds).fit(X, y)
    assert by_method.predict(X).shape == y.shape


def test_pairs_of_a_table_of_data(rng):
    pandas = pytest.importorskip("pandas")
    X, y = pairs_of(ratings(rng))
    frame = pandas.DataFrame(X, columns=["user", "item"])
    est = small(input="pairs").fit(frame, pandas.Series(y))
    assert_array_equal(est.predict(frame), small(input="pairs").fit(X, y).predict(X))


def test_warm_start_goes_on_from_the_items(rng):
    Y = ratings(rng)
    est = small(max_iter=4).fit(Y)
    going_on = small(max_iter=4, warm_start=True).fit(Y).fit(Y)
    longer = small(max_iter=8).fit(Y)
    assert est.lower_bound_ < going_on.lower_bound_
    assert going_on.lower_bound_ == pytest.approx(longer.lower_bound_, rel=1e-9)
    assert going_on.n_iter_ == 8
    assert_allclose(going_on.components_, longer.components_, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@all_inputs
def test_dtypes(input, dtype, rng):
    """Predictions are float64; factors of new users have the dtype of their ratings."""
    Y = ratings(rng).astype(dtype)
    if input == "matrix":
        est = small().fit(Y)
        assert est.transform(Y).dtype == dtype
        assert est.inverse_transform(est.transform(Y)).dtype == dtype
        assert est.predict_rows(Y).dtype == np.float64
    else:
        X, y = pairs_of(Y)
        est = small(input="pairs").fit(X, y)
        assert est.predict(X).dtype == np.float64
    assert est.components_.dtype == est.user_factors_.dtype == np.float64


@pytest.mark.parametrize("kind", [int, np.int8, np.uint8, bool])
def test_whole_ratings_of_any_dtype(kind, rng):
    Y = rng.integers(0, 2, (8, 5))
    assert_identical(small().fit(Y.astype(kind)), small().fit(Y.astype(float)))
    X, y = pairs_of(Y.astype(float))
    one = small(input="pairs").fit(X, y.astype(kind))
    assert_identical(one, small(input="pairs").fit(X, y))


def test_warm_start_with_other_ratings_has_their_range(rng):
    Y = ratings(rng)
    est = small(warm_start=True).fit(Y)
    other = Y.copy()
    place = tuple(np.argwhere(~np.isnan(Y))[0])
    other[place] = 50.0
    low = est.rating_range_[0]
    assert est.fit(other).rating_range_ == (min(low, np.nanmin(other)), 50.0)


def test_names_of_columns_of_narrower_matrices_are_checked():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame([[1.0, 2, 3], [3, 2, 1]], columns=list("abc"))
    est = AnnealedPMF(1, n_items=4).fit(frame)
    assert est.transform(frame[["a", "b"]]).shape == (2, 1)
    with pytest.raises(ValueError, match="column 'c' where the fit had the item 'a'"):
        est.transform(frame[["c", "b"]])
