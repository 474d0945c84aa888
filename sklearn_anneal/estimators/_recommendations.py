"""Recommendations: the best items of users, by ratings or by counts."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from ._ratings import LARGEST_ID, read_exclusions, read_ids

# Items are ranked for so many users at a time that these have no more ratings than this.
_CELLS = 2**22
# If there are so many times as many items as are to be recommended, the best are found without
# sorting the others.
_TIMES_AS_MANY = 20


def asked_users(
    users: Any, exclude: Any, n_items: int
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Read ids of users, and the items that are not recommended to them.

    Returns
    -------
    users : ndarray of int, shape (n_users,)
    seen : tuple of two ndarrays or None
        The items that are left out, as the ``indptr`` and the ``indices`` of a sparse matrix in CSR
        format.

    Raises
    ------
    ValueError
        If users are no ids in one dimension, or if the items are not those of each user.
    """
    users = read_ids(users, "users", unseen=True)
    if users.ndim != 1:
        raise ValueError(f"users must be ids in one dimension, not of shape {users.shape}.")
    return users, None if exclude is None else read_exclusions(exclude, len(users), n_items)


def highest(ratings: np.ndarray, n: int) -> np.ndarray:
    """Return the columns of the n highest entries of each row, the highest first.

    Of equal entries that of the lower column comes first.
    """
    negative = -ratings
    if _TIMES_AS_MANY * n > ratings.shape[1]:
        return np.argsort(negative, axis=1, kind="stable")[:, :n]
    last = np.partition(negative, n - 1, axis=1)[:, n - 1]
    found = np.empty((len(ratings), n), dtype=np.intp)
    for row, (values, limit) in enumerate(zip(negative, last, strict=True)):
        candidates = np.flatnonzero(values <= limit)
        found[row] = candidates[np.argsort(values[candidates], kind="stable")[:n]]
    return found


def best_items(
    ratings_of: Callable[[slice], np.ndarray],
    shape: tuple[int, int],
    n: Any,
    seen: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the n items with the highest ratings of each user, and these ratings.

    Parameters
    ----------
    ratings_of : callable
        It returns a new array with the ratings of all items by some of the users, which it is
        given as a slice.
    shape : tuple of two ints
        The numbers of users and items.
    n : int
        Number of items for each user, which is checked here.
    seen : tuple of two ndarrays or None
        The items that are left out, as the ``indptr`` and the ``indices`` of a sparse matrix in CSR
        format.

    Returns
    -------
    items : ndarray of int, shape (n_users, n)
        The best first, and -1 where no items are left.
    ratings : ndarray of shape (n_users, n)
        NaN where no items are left.

    Raises
    ------
    ValueError
        If n is no number of items.
    """
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n is the number of items for each user, 1 or more; got {n!r}.")
    if int(n) > LARGEST_ID:
        raise ValueError(f"n is the number of items for each user, at most {LARGEST_ID}.")
    n_users, n_items = shape
    best, scores = np.full((n_users, n), -1), np.full((n_users, n), np.nan)
    step = max(1, _CELLS // n_items)
    for start in range(0, n_users, step):
        block = slice(start, min(start + step, n_users))
        ratings = ratings_of(block)
        if seen is not None:
            indptr, columns = seen
            places = np.repeat(np.arange(len(ratings)), np.diff(indptr)[block])
            ratings[places, columns[indptr[block.start] : indptr[block.stop]]] = -np.inf
        order = highest(ratings, int(n))
        found = np.take_along_axis(ratings, order, axis=1)
        left = ~np.isneginf(found)
        best[block, : order.shape[1]] = np.where(left, order, -1)
        scores[block, : order.shape[1]] = np.where(left, found, np.nan)
    return best, scores
