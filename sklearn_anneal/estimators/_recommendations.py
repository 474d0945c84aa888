"""Recommendations: the best columns of rows, and those of counts."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from ..data.units import DenseCounts, SparseCounts
from ..models.gamma_process_nmf import GammaProcessNMF
from ._base import BaseAnnealed
from ._ratings import LARGEST_ID, read_exclusions, read_ids
from ._validation import explains, finite

# Items are ranked for so many users at a time that these have no more ratings than this.
_CELLS = 2**22
# If there are so many times as many items as are to be recommended, the best are found without
# sorting the others.
_TIMES_AS_MANY = 20
_OVERFLOW = (
    "Expected counts overflow: X has too large numbers. Divide X by a constant before fitting and "
    "predicting."
)


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


class CountRecommendations(
    BaseAnnealed[np.ndarray | csr_matrix, DenseCounts | SparseCounts, GammaProcessNMF]
):
    """Methods of :class:`AnnealedGammaProcessNMF` that recommend columns to rows."""

    @explains("Prediction")
    def recommend(self, X, n=10, exclude_seen=True, return_scores=False):
        """The items that each user of X would choose most often.

        Rows are users, and columns are items that they clicked on, bought or read so many times.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_users, n_items)
            Counts of these users, new ones or not. NaN marks missing cells of a dense array.
        n : int, default=10
            Number of items for each user.
        exclude_seen : bool, default=True
            Whether to leave out the items of which the user has a count above 0. A missing cell is
            not left out.
        return_scores : bool, default=False
            Whether to return the expected counts of these items too.

        Returns
        -------
        items : ndarray of int, shape (n_users, n)
            Columns of X in the order of expected counts, the largest first; among equal ones the
            lower column comes first. If a user has fewer than n unseen items, the rest is −1.
        scores : ndarray of shape (n_users, n)
            Their expected counts, those of ``inverse_transform(transform(X))``, and NaN where
            ``items`` is −1. Returned only if ``return_scores`` is true.

        See Also
        --------
        recommend_for : The same for users of the training data, by their rows.
        """
        ctx = self._context()
        X = self._validate_data(X, reset=False)
        found = self._best_of(ctx, self._inferred(X), n, _positive(X) if exclude_seen else None)
        return found if return_scores else found[0]

    @explains("Prediction")
    def recommend_for(self, users, n=10, exclude=None, return_scores=False):
        """The items that users of the training data would choose most often.

        Parameters
        ----------
        users : array-like of int, shape (n_users,)
            Rows of the X that ``fit`` was given.
        n : int, default=10
            Number of items for each user.
        exclude : sparse matrix or boolean array of shape (n_users, n_items), or list of \
                array-like or sets, default=None
            Items that are not recommended, for example those that a user has seen: the stored (or
            true) entries of row i, or the ids in ``exclude[i]``, belong to ``users[i]``. The fitted
            estimator does not keep the counts of the training data.
        return_scores : bool, default=False
            Whether to return the expected counts of these items too.

        Returns
        -------
        items : ndarray of int, shape (n_users, n)
            Columns of X in the order of expected counts, the largest first; among equal ones the
            lower column comes first. If fewer than n items are left for a user, the rest is −1.
        scores : ndarray of shape (n_users, n)
            Their expected counts, and NaN where ``items`` is −1. Returned only if
            ``return_scores`` is true.

        Raises
        ------
        ValueError
            If a user was not in the training data, or if the estimator was fitted to data in parts
            or by ``partial_fit``, after which it has no ``activations_``.

        Examples
        --------
        >>> from sklearn_anneal import AnnealedGammaProcessNMF
        >>> X = [[6, 4, 0, 0], [5, 0, 0, 0], [0, 0, 5, 6], [0, 0, 0, 5]] * 20
        >>> nmf = AnnealedGammaProcessNMF(2, random_state=0).fit(X)
        >>> nmf.recommend_for([1, 3], n=1, exclude=[[0], [3]])
        array([[1],
               [2]])
        """
        ctx = self._context()
        users = read_ids(users, "users", unseen=True)
        if users.ndim != 1:
            raise ValueError(f"users must be ids in one dimension, not of shape {users.shape}.")
        own = getattr(self, "activations_", None)
        if own is None:
            raise ValueError(
                "The activations of the rows of a stream, or of data in parts, are not kept. Give "
                "the counts of the users to recommend."
            )
        unknown = users[(users < 0) | (users >= len(own))]
        if unknown.size:
            raise ValueError(
                f"users has {unknown[0]}, but users are the rows 0 to {len(own) - 1} that fit was "
                "given. Give the counts of new users to recommend, which infers their activations; "
                "a row of zeros is a user of whom nothing is known."
            )
        seen = None
        if exclude is not None:
            seen = read_exclusions(exclude, len(users), ctx.model.n_columns)
        found = self._best_of(ctx, own[users], n, seen)
        return found if return_scores else found[0]

    def _best_of(
        self, ctx: Any, activations: np.ndarray, n: Any, seen: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        components = ctx.model.means(ctx.q)

        def expected(block: slice) -> np.ndarray:
            return finite(activations[block].astype(np.float64) @ components, _OVERFLOW)

        return best_items(expected, (len(activations), ctx.model.n_columns), n, seen)


def _positive(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of counts above 0 as ``indptr`` and ``indices`` of a CSR matrix."""
    if issparse(X):
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        rows, columns = rows[X.data > 0], X.indices[X.data > 0]
    else:
        rows, columns = np.nonzero(X > 0)
    return np.cumsum([0, *np.bincount(rows, minlength=X.shape[0])]), columns
