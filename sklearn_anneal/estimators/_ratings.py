"""Reading ratings in any of the forms that users may give, with checks of each form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array
from sklearn.utils.validation import _get_feature_names, column_or_1d, validate_data

from .._stack import warn
from ._tables import validated_table
from ._validation import (
    check_largest_id,
    check_sparse,
    hint_of_one,
    masked_as_nan,
    read_array,
    refuse_masked,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from ._base import BaseAnnealed

_DTYPES = [np.float64, np.float32]
# From this share of zeros on, those of a dense matrix hardly are ratings.
_MOSTLY = 0.5
LARGEST_ID = int(np.iinfo(np.int32).max) - 1
# A dense matrix of three columns looks like a table of ratings if it has at least so many rows and
# its first two columns repeat each value so often on average.
_ROWS_OF_TABLE, _VALUES_PER_ID = 20, 4


@dataclass(frozen=True)
class RatingData:
    """Ratings in the order of their users.

    Attributes
    ----------
    values : ndarray of shape (n_ratings,)
    columns : ndarray of int32, shape (n_ratings,)
        The item of each rating.
    indptr : ndarray of int64, shape (n_users + 1,)
        The ratings of user i are those from ``indptr[i]`` up to ``indptr[i + 1]``.
    n_columns : int
        Number of items, including those that nobody has rated.
    users : ndarray of int, shape (n_users,)
        Ids of the users.
    order : ndarray of int, shape (n_ratings,) or None
        Position of each rating among the pairs that were given; None for a matrix.
    shape : tuple of int
        Shape of the X that was given.
    stream : bool
        Whether these ratings are added to earlier ratings of the same users.
    everyone : RatingData or None
        The ratings of all users of a matrix, if those of weight zero are left out here.
    """

    values: np.ndarray
    columns: np.ndarray
    indptr: np.ndarray
    n_columns: int
    users: np.ndarray
    order: np.ndarray | None
    shape: tuple[int, ...]
    stream: bool = False
    everyone: RatingData | None = None


class Pairs:
    """Pairs (user, item) with their ratings and weights, which have not been checked yet.

    ``stream`` says whether they are added to earlier ratings of the same users.
    """

    def __init__(
        self, X: ArrayLike, y: ArrayLike | None, weights: ArrayLike | None, stream: bool = False
    ):
        self.X = X
        self.y = y
        self.weights = weights
        self.stream = stream

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of pairs; callbacks read the number of pairs from it."""
        return np.shape(self.X)


def read_matrix(estimator: BaseAnnealed, X: Any, *, reset: bool, n_items: int | None) -> RatingData:
    """Check a users × items matrix and return its ratings.

    The ratings are the stored entries of a sparse matrix, and all entries but NaN of a dense one.
    Masked entries of a masked array are unobserved, as NaN is.
    """
    X = masked_as_nan(X)
    check_sparse(X)
    _refuse_filled_formats(X, "X", "which ratings are unobserved")
    stored = X.nnz if issparse(X) else None
    how: dict[str, Any] = {
        "accept_sparse": "csr",
        "dtype": _DTYPES,
        "ensure_all_finite": "allow-nan",
    }
    # If the number of items is declared, a matrix may be narrower or wider than the first one.
    same_width = n_items is None or reset or _width(X) == estimator.n_features_in_
    if not same_width:
        _check_names(estimator, X)
    X = (
        validated_table(estimator, X, unobserved=True, reset=reset, **how)
        if same_width
        else check_array(X, **how)
    )
    n_columns = X.shape[1]
    if n_items is not None and n_columns > n_items:
        raise ValueError(
            f"X has {n_columns} columns, but n_items={n_items} items were declared. Fit with "
            f"n_items={n_columns} or more."
        )
    # If a matrix is narrower than declared, nobody in it has rated the items that it leaves out.
    n_columns = n_items or n_columns
    users = np.arange(X.shape[0])
    if not issparse(X):
        observed = ~np.isnan(X)
        if reset:
            _warn_of_zeros(X, observed)
            _warn_of_triples(X)
        indptr = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
        columns = np.nonzero(observed)[1].astype(np.int32)
        return RatingData(X[observed], columns, indptr, n_columns, users, None, X.shape)
    check_sparse(X)
    if not X.has_sorted_indices:
        X = X.copy()
        X.sort_indices()
    if stored not in (None, X.nnz) or not X.has_canonical_format:
        raise ValueError(
            "X has several entries for one user and item, and the sum of ratings is no rating. "
            'Keep one of them, or give them as pairs with input="pairs".'
        )
    if np.isnan(X.data).any():
        raise ValueError(
            "X has stored entries that are NaN. What a sparse matrix does not store is "
            "unobserved: leave these entries out."
        )
    columns = X.indices.astype(np.int32, copy=False)
    return RatingData(X.data, columns, X.indptr.astype(np.int64), n_columns, users, None, X.shape)


def _warn_of_zeros(X: np.ndarray, observed: np.ndarray) -> None:
    """Warn of a matrix without missing entries of which most are zero."""
    n_zeros = np.count_nonzero(X == 0)
    if observed.all() and n_zeros > _MOSTLY * X.size:
        warn(
            f"{n_zeros / X.size:.0%} of the entries of X are 0, and none is missing. Every 0 of a "
            "dense matrix is read as a rating of 0. If it means that nothing was rated, give NaN "
            "in its place, or a sparse matrix, scipy.sparse.csr_matrix(X), of which only the "
            "stored entries are ratings.",
        )


def _warn_of_triples(X: np.ndarray) -> None:
    """Warn of three columns that are the users, the items and the ratings of a table.

    No pair of ids is repeated in such a table, although every id is. Ratings of two items with u
    and v different values would repeat some pair of values: n rows have n² / (2 u v) repetitions
    by chance, which is at least 8 if a value occurs four times on average.
    """
    n, n_columns = X.shape
    if n_columns != 3 or n < _ROWS_OF_TABLE:
        return
    ids = X[:, :2]
    if not (ids >= 0).all() or (ids != np.floor(ids)).any():
        return
    most = n // _VALUES_PER_ID
    if any(len(np.unique(column)) > most for column in ids.T) or len(np.unique(ids, axis=0)) < n:
        return
    warn(
        "X has three columns, and its first two are whole numbers that often occur, but never "
        'twice together. They are read as the ratings of three items, because of input="matrix". '
        "If a row is a user, an item and a rating, give the first two columns as X and the third "
        'as y, with input="pairs".',
    )


def _refuse_filled_formats(X: Any, name: str, unknown: str) -> None:
    """Refuse formats of sparse matrices that store zeros of their own beside the entries.

    Blocks and diagonals are filled up with zeros, so that a zero may be an entry or none.
    """
    formats = {"bsr": "blocks (BSR)", "dia": "diagonals (DIA)"}
    if issparse(X) and X.format in formats:
        raise ValueError(
            f"{name} is a sparse matrix of {formats[X.format]}, a format that is filled up with "
            f"zeros, so that it cannot say {unknown}. Give a COO, CSR or CSC matrix that is made "
            "from the ids of users and items, for example scipy.sparse.csr_array((values, (users, "
            "items)))."
        )


def _check_names(estimator: BaseAnnealed, X: ArrayLike) -> None:
    """Refuse a column whose name differs from that of the fitted column in the same position."""
    names, fitted = _get_feature_names(X), getattr(estimator, "feature_names_in_", None)
    if names is None or fitted is None:
        return
    for name, expected in zip(names, fitted, strict=False):
        if name != expected:
            raise ValueError(f"X has a column {name!r} where the fit had the item {expected!r}.")


def _width(X: Any) -> int | None:
    shape = np.shape(X) if not issparse(X) else X.shape
    return shape[1] if len(shape) == 2 else None


def read_ids(ids: Any, name: str, unseen: bool = False) -> np.ndarray:
    """Check ids of users or items and return them as integers.

    With ``unseen``, −1 is accepted; it stands for an id that was not seen in training.
    """
    ids = read_array(ids, name)
    if ids.dtype.kind == "O" and all(isinstance(i, Real) for i in ids.ravel()):
        ids = ids.astype(float)
    with np.errstate(invalid="ignore"):
        whole = ids.dtype.kind in "iub" or (ids.dtype.kind == "f" and (ids == np.floor(ids)).all())
    if not whole or (ids.size and (ids.min() < -int(unseen) or ids.max() > LARGEST_ID)):
        raise ValueError(
            f"{name} must be integers from 0 to {LARGEST_ID}"
            + (", or −1 for those that were not seen. " if unseen else ". ")
            + "sklearn.preprocessing.OrdinalEncoder makes such numbers of other ids."
        )
    return ids.astype(np.int64, copy=False)


def read_exclusions(exclude: Any, n_users: int, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the items that are not recommended, as ``indptr`` and ``indices`` of a CSR matrix."""
    if issparse(exclude):
        if exclude.shape != (n_users, n_items):
            raise ValueError(
                f"exclude has shape {exclude.shape}, but there are {n_users} users and {n_items} "
                "items."
            )
        _refuse_filled_formats(exclude, "exclude", "which items are excluded")
        check_sparse(exclude)
        given = exclude.tocsr()
        return given.indptr.astype(np.int64), given.indices.astype(np.int64)
    mask = np.asarray(exclude) if isinstance(exclude, np.ndarray) else None
    if mask is not None and mask.dtype == bool and mask.shape == (n_users, n_items):
        return np.cumsum([0, *mask.sum(axis=1)]), np.nonzero(mask)[1]
    if isinstance(exclude, list | tuple):
        exclude = [
            list(items) if isinstance(items, set | frozenset) else items for items in exclude
        ]
    lists = (
        mask is None
        and not isinstance(exclude, (str, dict, set, frozenset))
        and hasattr(exclude, "__len__")
    )
    ragged = mask is not None and mask.dtype.kind == "O" and mask.ndim == 1
    if not (lists or ragged) or any(
        np.ndim(items) != 1 or np.asarray(items).dtype.kind == "b" for items in exclude
    ):
        raise ValueError(
            "exclude must be a sparse matrix, a boolean array of shape (n_users, n_items) = "
            f"{(n_users, n_items)}, or a list with the ids of items of each user, "
            "each of them a list, a set or an array."
        )
    if len(exclude) != n_users:
        raise ValueError(f"exclude has lists for {len(exclude)} users, but users has {n_users}.")
    of_users = [read_ids(items, "The items in exclude").ravel() for items in exclude]
    indices = np.concatenate([np.empty(0, np.int64), *of_users])
    if indices.size and indices.max() >= n_items:
        raise ValueError(f"exclude has item {indices.max()}, but there are {n_items} items.")
    return np.cumsum([0, *map(len, of_users)]), indices


def check_size_of_ratings(values: np.ndarray, dtype: DTypeLike | None, reset: bool) -> None:
    """Refuse ratings whose squares overflow in the precision of the model.

    Ratings of a fit, those that ``reset`` the model, are also refused if their squares underflow:
    they would seem to be equal.
    """
    most, least = np.sqrt([np.finfo(dtype).max, 100.0 * np.finfo(dtype).tiny]).tolist()
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    largest = max(high, -low)
    if reset and largest < least and values.size and values.min() < values.max():
        raise ValueError(
            f"The largest rating of X has the size {largest:g}, whose square underflows: the "
            f"smallest that a model fitted to {np.dtype(dtype).name} can read is {least:g}. "
            "Rescale the ratings before fitting and predicting."
        )
    if largest > most:
        raise ValueError(
            f"X has a rating of the size {largest:g}, whose square overflows: the largest that a "
            f"model fitted to {np.dtype(dtype).name} can read is {most:g}. Rescale the ratings "
            "before fitting and predicting."
        )


def check_range(limits: Any, name: str) -> None:
    """Refuse a range that does not consist of two numbers, the lower one first."""
    given = list(limits) if np.ndim(limits) == 1 else []
    numbers = [v for v in given if np.ndim(v) == 0 and np.asarray(v).dtype.kind in "iuf"]
    if not (len(given) == len(numbers) == 2 and numbers[0] < numbers[1]):
        raise ValueError(
            f"{name}={limits!r} is not a range: give numbers (low, high) with low < high."
        )


def read_pairs(
    estimator: BaseAnnealed,
    pairs: Pairs,
    *,
    reset: bool,
    n_users: int | None,
    n_items: int | None,
    dense: bool,
    n_known: int = 0,
    unseen: bool = False,
) -> RatingData:
    """Check pairs of ids and their ratings, and return the ratings in the order of their users.

    Ratings of weight zero are left out, unless all are.

    Parameters
    ----------
    reset : bool
        Whether the estimator is fitted anew, so that its attributes about the input are set.
    n_users, n_items : int or None
        The numbers that were declared; None: the pairs determine them.
    dense : bool
        Whether the result has a row for every user up to the largest id, or only for those that
        appear in the pairs.
    n_known : int
        Number of users that the model has already. Larger ids need new rows; they are refused if
        these rows would outgrow the data.
    unseen : bool
        Whether the pairs are only scored: their ids need no rows then, and −1 is accepted.
    """
    if pairs.y is None:
        raise ValueError(
            f'{type(estimator).__name__} with input="pairs" requires y to be passed, but the '
            "target y is None. The ratings are y; give them, or a users × items matrix with "
            'input="matrix".'
        )
    refuse_masked(pairs.X, "X")
    refuse_masked(pairs.y, "y")
    X = validate_data(estimator, pairs.X, reset=reset, dtype=None)
    if X.shape[1] != 2:
        raise ValueError(
            f'With input="pairs" X has two columns, user and item, but it has {X.shape[1]}. '
            "Ratings are y: give fit(X[:, :2], X[:, 2]) if the third column has them."
        )
    X = read_ids(X, "The ids of users and items", unseen)
    y = check_array(
        column_or_1d(pairs.y, warn=True), ensure_2d=False, dtype=_DTYPES, input_name="y"
    )
    if len(y) != len(X):
        raise ValueError(f"y has {len(y)} ratings, but X has {len(X)} pairs.")
    weights = estimator._check_weights(pairs.weights, X, allow_nothing=True)
    given = None if weights is None or weights.all() else np.flatnonzero(weights)
    shape = X.shape
    if given is not None and len(given):
        X, y = X[given], y[given]
    else:
        given = None
    users, items = X.T
    for ids, declared, name in ((users, n_users, "n_users"), (items, n_items, "n_items")):
        if declared is not None and len(ids) and ids.max() >= declared:
            raise ValueError(
                f"X has the id {ids.max()}, but there are {name}={declared}. Declare {name}="
                f"{ids.max() + 1} or more before the first fit."
                + hint_of_one(ids, declared, f"X[:, {0 if name == 'n_users' else 1}]")
            )
        if declared is None and not unseen and ids.max() >= n_known:
            check_largest_id(int(ids.max()), len(ids), "id", "ratings", name)
    if dense:
        rows = np.arange(n_users or users.max() + 1)
    else:
        rows, users = np.unique(users, return_inverse=True)
    n_columns = int(n_items or items.max() + 1)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=len(rows)))])
    order = np.argsort(users, kind="stable")
    if shape[0] < 2**31:
        order = order.astype(np.int32)
    y, items = y[order], items.astype(np.int32)[order]
    order = order if given is None else given.astype(order.dtype)[order]
    return RatingData(y, items, indptr, n_columns, rows, order, shape, pairs.stream)


def look_like_pairs(X: ArrayLike, y: ArrayLike | None) -> bool:
    """Whether a matrix of ratings could be meant as pairs of ids, with their ratings in y."""
    if y is None or issparse(X):
        return False
    try:
        if not hasattr(X, "shape"):
            X = np.asarray(X)
        if len(X.shape) != 2 or X.shape[1] != 2 or np.asarray(y).shape != X.shape[:1]:
            return False
    except ValueError:
        return False
    return np.asarray(X).dtype.kind in "iu"


def halves(data: RatingData) -> tuple[np.ndarray, np.ndarray]:
    """Mark every other rating of each user as observed, and the others as to be predicted.

    The ratings of a user alternate in the order of a fixed permutation of the items, so that they
    depend neither on other users nor on the order of rows. If a user has an odd number of ratings,
    one more is predicted than observed.
    """
    n = len(data.values)
    keys = np.random.RandomState(0).permutation(data.n_columns)[data.columns]
    rows = np.repeat(np.arange(len(data.users)), np.diff(data.indptr))
    order = np.lexsort((keys, rows))
    rank = np.arange(n) - np.repeat(data.indptr[:-1], np.diff(data.indptr))
    predicted = np.empty(n, dtype=bool)
    predicted[order] = rank % 2 == 0
    return ~predicted, predicted


def some_users(data: RatingData, chosen: np.ndarray) -> RatingData:
    """Keep the users of a matrix that a mask chooses."""
    counts = np.diff(data.indptr)
    ratings = np.repeat(chosen, counts)
    return replace(
        data,
        values=data.values[ratings],
        columns=data.columns[ratings],
        indptr=np.concatenate([[0], np.cumsum(counts[chosen])]),
        users=data.users[chosen],
        everyone=data,
    )


def some_ratings(data: RatingData, chosen: np.ndarray) -> RatingData:
    """Keep the chosen ratings; users without any of them keep their empty rows."""
    counts = np.concatenate([[0], np.cumsum(chosen)])
    return RatingData(
        data.values[chosen],
        data.columns[chosen],
        counts[data.indptr],
        data.n_columns,
        data.users,
        None,
        data.shape,
    )
