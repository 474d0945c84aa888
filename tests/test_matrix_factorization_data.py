"""Tests of the ratings and parameters that are read, and of those that are refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from cases_matrix_factorization import NAN, draw, pairs_of, ratings, small, sparse_of
from designs import in_turn
from harness import assert_identical, fitted_state, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.preprocessing import OrdinalEncoder

from sklearn_anneal import AnnealedPMF, Shards
from sklearn_anneal.annealing import ANNEALING

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# Forms of data


def same_fit(one, other, rtol=1e-12):
    """Equal fits, up to rounding."""
    a, b = fitted_state(one), fitted_state(other)
    for name in (
        "components_", "user_factors_", "lower_bounds_", "intercept_", "noise_variance_",
        "q: items_precision", "q: items_natural_mean",
    ):  # fmt: skip
        size = np.nanmax(np.abs(b[name]))
        assert_allclose(a[name], b[name], rtol=rtol, atol=rtol * size, err_msg=name)


@in_turn(name=ANNEALING, make=(csr_array, csr_matrix, csc_matrix, coo_array))
def test_sparse_is_dense_with_nan(name, make, rng):
    """Bit for bit; the stored zero is a rating."""
    Y = ratings(rng).round()
    Y[1, 2] = 0.0
    X = sparse_of(Y, make)
    assert X.nnz == (~np.isnan(Y)).sum() > np.count_nonzero(X.data)
    params = {"annealing": quick(name), "max_iter": 3}
    dense, sparse = small(**params).fit(Y), small(**params).fit(X)
    assert_identical(dense, sparse)
    for method in ("transform", "predict_rows", "recommend"):
        assert_array_equal(getattr(dense, method)(X), getattr(dense, method)(Y))
    assert dense.score(X) == dense.score(Y)
    assert_identical(dense.partial_fit(Y), sparse.partial_fit(X))


def test_other_sparse_formats(rng):
    Y = ratings(rng)
    expected = small().fit(Y)
    X = sparse_of(Y)
    for form in ("lil", "dok", "csc", "coo"):
        assert_identical(small().fit(X.asformat(form)), expected)
    # Unsorted columns are put in order, and the caller's matrix stays as it is.
    shuffled = csr_array((X.data.copy(), X.indices.copy(), X.indptr), shape=X.shape)
    for i in range(len(Y)):
        part = slice(shuffled.indptr[i], shuffled.indptr[i + 1])
        shuffled.indices[part] = shuffled.indices[part][::-1].copy()
        shuffled.data[part] = shuffled.data[part][::-1].copy()
    shuffled.has_sorted_indices = False
    indices = shuffled.indices.copy()
    assert_identical(small().fit(shuffled), expected)
    assert_array_equal(shuffled.indices, indices)


@pytest.mark.parametrize("name", ["bsr", "dia"])
def test_formats_that_store_what_nobody_rated_are_refused(name):
    """Blocks and diagonals are filled up with zeros, which nobody can tell from ratings of 0."""
    users, items, values = [0, 1, 3, 2, 2], [0, 1, 2, 0, 1], [4.0, 3.0, 5.0, 0.0, 1.0]
    good = csr_array((values, (users, items)), shape=(6, 6))
    X = good.tobsr(blocksize=(2, 2)) if name == "bsr" else good.todia()
    assert X.nnz != good.nnz
    est = small().fit(good)
    message = f"{name.upper()}.*cannot say which ratings are unobserved.*csr_array"
    calls = (est.fit, est.partial_fit, est.transform, est.score, est.recommend)
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call(X)
    with pytest.raises(ValueError, match=f"Part 0.*{message}"):
        small(n_items=6).fit(Shards([X, good]))
    with pytest.raises(ValueError, match=f"exclude is .*{name.upper()}.*which items are excluded"):
        est.recommend_for(np.arange(6), n=2, exclude=X)


def test_dense_without_nan_is_a_fully_observed_matrix(rng):
    Y, _ = draw(rng, 8, 6)
    assert_identical(small().fit(Y), small().fit(csr_array(Y)))
    assert small().fit(Y).rating_range_ == (Y.min(), Y.max())


def test_duplicates_in_a_sparse_matrix_are_refused():
    entries = (np.array([3.0, 4.0, 1.0]), (np.array([0, 0, 1]), np.array([1, 1, 0])))
    coo = coo_array(entries, shape=(2, 2))
    csr = csr_array(
        (entries[0], np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)
    )  # fmt: skip
    good = small().fit(np.array([[1.0, 2.0], [3.0, NAN]]))
    for X in (coo, csr, coo.asformat("coo").copy()):
        assert X.nnz == 3
        for method in (small().fit, small().partial_fit, good.transform, good.score):
            with pytest.raises(ValueError, match='several entries.*input="pairs"'):
                method(X)
    # As pairs they are two observations.
    X, y = np.array([[0, 1], [0, 1], [1, 0]]), entries[0]
    est = small(input="pairs").fit(X, y)
    same = clone(est).fit([[0, 1], [1, 0]], [3.5, 1.0], sample_weight=[2.0, 1.0])
    assert_allclose(same.components_, est.components_, rtol=1e-10)
    once = clone(est).fit([[0, 1], [1, 0]], [3.5, 1.0])
    assert est.predict([[0, 1]], return_std=True)[1] < once.predict([[0, 1]], return_std=True)[1]


def test_stored_nan_is_refused():
    X = csr_array(np.array([[1.0, NAN], [2.0, 3.0]]))
    with pytest.raises(ValueError, match="stored entries that are NaN"):
        small().fit(X)
    with pytest.raises(ValueError, match="infinity"):
        small().fit(np.array([[1.0, np.inf], [2.0, 3.0]]))


def test_y_of_a_matrix_is_ignored(rng):
    Y = ratings(rng)
    assert_identical(small().fit(Y), small().fit(Y, np.arange(3)))
    assert small().fit(Y).score(Y, "anything") == small().fit(Y).score(Y)


@pytest.mark.parametrize("name", ANNEALING)
def test_pairs_are_the_matrix(name, rng):
    """In the order of the matrix bit for bit, in any order up to rounding where all is exact."""
    Y = ratings(rng)
    X, y = pairs_of(Y)
    params = {"annealing": quick(name), "max_iter": 3}
    matrix = small(**params).fit(Y)
    sizes = {"n_users": len(Y), "n_items": Y.shape[1]}
    pairs = small(input="pairs", **sizes, **params).fit(X, y)
    same_fit(pairs, matrix, 1e-10)
    order = rng.permutation(len(y))
    if name != "svi_plus":
        shuffled = small(input="pairs", **sizes, **params).fit(X[order], y[order])
        same_fit(shuffled, matrix, 1e-8)
    users, items = X.T
    assert_allclose(pairs.predict(X), matrix.predict_ratings(users, items), rtol=1e-10)
    assert_allclose(
        pairs.predict(X, return_std=True)[1],
        matrix.predict_ratings(users, items, return_std=True)[1],
        rtol=1e-10,
    )


def test_pairs_without_sizes_end_at_the_largest_id(rng):
    X, y = np.array([[0, 2], [4, 1], [4, 2]]), np.array([1.0, 2.0, 4.0])
    est = small(input="pairs").fit(X, y)
    assert (est.n_users_, est.n_items_) == (5, 3)
    assert est.user_factors_.shape == (5, 2) and est.components_.shape == (2, 3)
    assert est.n_features_in_ == 2
    other = small(input="pairs", n_users=7, n_items=9).fit(X, y)
    assert (other.n_users_, other.n_items_) == (7, 9)
    assert small(n_items=9).fit(sparse_of(ratings(rng, 6, 4))).n_items_ == 9


@pytest.mark.parametrize(
    "X",
    [
        [[0, -1], [1, 0]],
        [[0.5, 1.0], [1.0, 0.0]],
        [["anna", "solaris"], ["bob", "stalker"]],
        np.array([["anna", 1], ["bob", 2]], dtype=object),
    ],
)
def test_ids_are_integers_from_zero(X):
    y = [1.0, 2.0]
    with pytest.raises(ValueError, match="integers from 0 to .*OrdinalEncoder"):
        small(input="pairs").fit(X, y)
    est = small(input="pairs").fit([[0, 0], [1, 1]], y)
    for call in (est.predict, lambda X: est.predict_ratings(np.array(X)[:, 0], [0, 0])):
        if np.array(X)[1, 0] != 1:
            with pytest.raises(ValueError, match="OrdinalEncoder"):
                call(X)
    # The way out.
    encoded = OrdinalEncoder().fit_transform(np.array(X, dtype=object).astype(str))
    assert np.isfinite(small(input="pairs").fit(encoded, y).lower_bound_)


def test_ids_may_be_whole_floats(rng):
    X, y = pairs_of(ratings(rng))
    one = small(input="pairs").fit(X, y)
    for kind in (float, np.float32, np.uint8, object):
        assert_identical(small(input="pairs").fit(X.astype(kind), y), one)
    assert_identical(small(input="pairs").fit(X.tolist(), y.tolist()), one)


def test_pairs_need_y_and_two_columns():
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match="requires y to be passed.*matrix"):
            getattr(small(input="pairs"), method)([[0, 1]])
    with pytest.raises(ValueError, match="two columns, user and item, but it has 3"):
        small(input="pairs").fit([[0, 1, 2]], [1.0])
    with pytest.raises(ValueError, match="y has 1 ratings, but X has 2 pairs"):
        small(input="pairs").fit([[0, 1], [1, 0]], [1.0])
    with pytest.raises(ValueError, match="NaN"):
        small(input="pairs").fit([[0, 1], [1, 0]], [1.0, NAN])


def test_declared_sizes():
    X, y = [[0, 1], [3, 0]], [1.0, 2.0]
    with pytest.raises(ValueError, match="X has the id 3.*n_users=3. Declare n_users=4"):
        small(input="pairs", n_users=3).fit(X, y)
    with pytest.raises(ValueError, match="X has the id 1.*n_items=1. Declare n_items=2"):
        small(input="pairs", n_items=1).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 columns, but n_items=2.*n_items=3"):
        small(n_items=2).fit(np.ones((4, 3)))
    with pytest.raises(ValueError, match='n_users is for input="pairs"'):
        small(n_users=4).fit(np.ones((4, 3)))


def test_methods_of_the_other_form_do_not_exist():
    of_matrix = ("transform", "fit_transform", "inverse_transform", "recommend", "predict_rows")
    for name in of_matrix:
        assert hasattr(small(), name) and not hasattr(small(input="pairs"), name)
    assert hasattr(small(input="pairs"), "predict") and not hasattr(small(), "predict")
    for input in ("matrix", "pairs"):
        assert hasattr(small(input=input), "predict_ratings")
        tags = small(input=input).__sklearn_tags__()
        assert tags.input_tags.allow_nan == tags.input_tags.sparse == (input == "matrix")
        assert tags.input_tags.positive_only == tags.target_tags.required == (input == "pairs")


def test_input_is_not_guessed(rng):
    """A matrix of two columns is a matrix."""
    X = np.array([[0, 1], [1, 0], [2, 1]])
    est = small().fit(X, [1.0, 2.0, 3.0])
    assert (est.n_users_, est.n_items_) == (3, 2)
    assert_identical(est, small().fit(X.astype(float)))


@pytest.mark.parametrize("X", [np.full((3, 2), NAN), csr_array((3, 2)), csr_array((3, 2)).tocoo()])
def test_no_rating_at_all(X):
    for method in (small().fit, small().partial_fit):
        with pytest.raises(ValueError, match="no rating in X"):
            method(X)


# Errors


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("input", "triples"), ("n_components", 0), ("n_users", 0), ("n_items", 0),
        ("noise_variance", 0.0), ("noise_variance", "learn"), ("factor_variance", -1.0),
        ("bias_variance", 0.0), ("biases", "yes"), ("fit_intercept", None), ("clip", "range"),
        ("batch_size", 0),
    ],
)  # fmt: skip
def test_parameters_are_validated(parameter, value, rng):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of AnnealedPMF"):
        small(**{parameter: value}).fit(ratings(rng))


def test_unfitted_and_misshapen(rng):
    Y = ratings(rng)
    for call in (
        lambda est: est.transform(Y),
        lambda est: est.recommend(Y),
        lambda est: est.predict_ratings([0], [0]),
        lambda est: est.score(Y),
        lambda est: est.inverse_transform(np.ones((1, 2))),
    ):
        with pytest.raises(NotFittedError):
            call(small())
    with pytest.raises(NotFittedError):
        small(input="pairs").predict([[0, 0]])
    est = small().fit(Y)
    with pytest.raises(ValueError, match="X has 3 columns, but there are n_components=2"):
        est.inverse_transform(np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1,\)"):
        est.predict_ratings([0, 1], [0])
    with pytest.raises(ValueError, match="9 features"):
        est.transform(Y[:, :9])
    without = small(biases=False).fit(Y)
    assert not hasattr(without, "item_biases_") and not hasattr(without, "bias_variance_")
    for name in ("item_biases_var_", "user_biases_var_"):
        with pytest.raises(AttributeError, match="biases=False"):
            getattr(without, name)


def test_one_rating_is_data():
    est = small().fit([[NAN, 4.0]])
    assert np.isfinite(est.lower_bound_) and est.intercept_ == 4.0
    pairs = small(input="pairs").fit([[0, 1]], [4.0])
    same_fit(pairs, est, 1e-10)


# Edges


@pytest.mark.parametrize(
    "bad", [[[10**12, 1]], [[1e300, 1]], [[2**31, 0]], np.array([[2**63 + 5, 1]], dtype=np.uint64)]
)
def test_ids_that_are_no_small_numbers_are_refused(bad, rng):
    X, y = pairs_of(ratings(rng))
    est = small(input="pairs").fit(X, y)
    for call in (lambda: est.fit(bad, [3.0]), lambda: est.score(bad, [3.0])):
        with pytest.raises(ValueError, match="OrdinalEncoder"):
            call()
    with pytest.raises(ValueError, match="OrdinalEncoder"):
        est.predict_ratings([np.inf], [0])


def test_whole_numbers_among_objects_are_ids(rng):
    X, y = pairs_of(ratings(rng))
    mixed = X.astype(object)
    mixed[:, 1] = mixed[:, 1].astype(float)
    one, other = (small(input="pairs").fit(ids, y) for ids in (X, mixed))
    assert_array_equal(one.components_, other.components_)


def test_a_dense_matrix_of_mostly_zeros_is_no_matrix_of_ratings(rng):
    """Zeros for what nobody rated draw predictions of unrated items towards zero."""
    rated = rng.random((40, 20)) < 0.3
    zeros = np.where(rated, rng.integers(1, 6, (40, 20)), 0.0)
    with pytest.warns(UserWarning, match=r"% of the entries of X are 0.* NaN .*csr_matrix"):
        dense = small().fit(zeros)
    with pytest.warns(UserWarning, match="are 0, and none is missing"):
        small().partial_fit(zeros)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        sparse = small().fit(csr_matrix(zeros))
        marked = small().fit(np.where(rated, zeros, np.nan))
        # Some zeros are ratings like others.
        small().fit(rng.integers(0, 3, (40, 20)).astype(float))
        small().fit(np.where(rated, np.where(rng.random((40, 20)) < 0.7, 0.0, 1.0), np.nan))
        # Predictions say nothing.
        dense.transform(zeros)
    expected = zeros[rated].mean()
    for est in (sparse, marked):
        assert est.intercept_ == pytest.approx(expected)
    assert dense.intercept_ == pytest.approx(zeros.mean())


@pytest.mark.parametrize(("dtype", "size"), [(np.float64, 1e-160), (np.float32, 1e-22)])
@pytest.mark.parametrize("form", ["matrix", "pairs", "stream"])
def test_ratings_whose_squares_underflow_are_refused(form, dtype, size):
    """They seemed to be equal, so that predictions were far from all of them."""
    ratings = (size * np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 1.0]])).astype(dtype)
    pmf = AnnealedPMF(1, input="pairs" if form == "pairs" else "matrix", random_state=0)
    data = (np.argwhere(ratings > 0), ratings.ravel()) if form == "pairs" else (ratings,)
    with pytest.raises(ValueError, match="square underflows.*Rescale"):
        (pmf.partial_fit if form == "stream" else pmf.fit)(*data)
    large = ratings / dtype(size)
    fitted = pmf.fit(*data[:-1], large.ravel() if form == "pairs" else large)
    if form == "matrix":
        assert np.all(np.isfinite(fitted.predict_rows(ratings)))
    equal = np.full_like(ratings, size)
    pmf.fit(*data[:-1], equal.ravel() if form == "pairs" else equal)
