"""Users with their ratings."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ._base import Ragged, joined_arrays

# Number of chunks → smallest number of ratings that are divided into as many.
_RATING_CHUNKS = {2: 8_192, 4: 32_768, 8: 524_288, 16: 4_194_304}


class Ratings(Ragged):
    """Users with the items that they rated, or items with the users who rated them.

    If units are users, columns are items, and the other way round.

    Parameters
    ----------
    values : ndarray of shape (n_ratings,)
        The ratings, float64 or float32.
    columns : ndarray of int32, shape (n_ratings,)
        The number of the item, or of the user, that each rating belongs to.
    indptr : ndarray of int64, shape (n_units + 1,)
        The position in ``values`` and ``columns`` at which the ratings of each unit begin.
    n_columns : int
        Number of items, or of users, including those without ratings.
    weights : ndarray of shape (n_units,) or None, default=None
        Sample weights of the units.
    rating_weights : ndarray of shape (n_ratings,) or None, default=None
        Sample weights of single ratings, which multiply those of their units; None for ones.
    counts_ratings : bool, default=False
        Whether the total weight of the data is that of their ratings, and not of their units.
    known : dict of ndarray or None, default=None
        Statistics of earlier ratings, which are no longer in ``values``, with one row per unit.
    rows : slice or ndarray of int, default=slice(None)
        The positions of these units in the larger data set from which they were taken.
    everyone : Ratings or None, default=None
        All users of a matrix, if those of weight zero are left out here. They have factors too,
        which are computed after a fit.
    ids : ndarray of int, shape (n_units,), or None, default=None
        The ids of units that can come again with other ratings, as users of pairs in a stream can.
    """

    _parts = _RATING_CHUNKS

    def __init__(
        self,
        values: np.ndarray,
        columns: np.ndarray,
        indptr: np.ndarray,
        n_columns: int,
        weights: np.ndarray | None = None,
        rating_weights: np.ndarray | None = None,
        counts_ratings: bool = False,
        known: dict[str, np.ndarray] | None = None,
        rows: slice | np.ndarray = slice(None),
        everyone: Ratings | None = None,
        ids: np.ndarray | None = None,
    ):
        self.values = values
        self.columns = columns
        self.indptr = indptr
        self.n_columns = n_columns
        self.weights = weights
        self.rating_weights = rating_weights
        self.counts_ratings = counts_ratings
        self.known = known
        self.rows = rows
        self.everyone = everyone
        self.ids = ids

    @property
    def n_weight_units(self) -> int:
        """Number of ratings."""
        return len(self.values)

    def weight_units(self, part: slice) -> slice:
        return slice(int(self.indptr[part.start]), int(self.indptr[part.stop]))

    @property
    def n_weighed(self) -> int:
        return len(self.values) if self.counts_ratings else self.n_units

    @property
    def n_rows(self) -> int:
        """Number of rows of what was given: of users, or of pairs with their ratings."""
        return self.n_weighed

    @cached_property
    def n_observations(self) -> float:
        """Weighted number of ratings."""
        weights = self.entry_weights()
        return float(len(self.values) if weights is None else weights.sum())

    @property
    def total_weight(self) -> float:
        return self.n_observations if self.counts_ratings else super().total_weight

    def entry_weights(self) -> np.ndarray | None:
        """Return the weight of each rating times that of its unit; None if all of them are 1."""
        if self.weights is None:
            return self.rating_weights
        each = np.repeat(self.weights, np.diff(self.indptr))
        return each if self.rating_weights is None else each * self.rating_weights

    def take(self, index: np.ndarray | slice) -> Ratings:
        indptr, part = self._cut(index)
        return Ratings(
            self.values[part],
            self.columns[part],
            indptr,
            self.n_columns,
            None if self.weights is None else self.weights[index],
            None if self.rating_weights is None else self.rating_weights[part],
            self.counts_ratings,
            None if self.known is None else {k: v[index] for k, v in self.known.items()},
            index,
            ids=None if self.ids is None else self.ids[index],
        )

    @classmethod
    def joined(cls, parts: Sequence[Ratings]) -> Ratings:
        """Return the units of several objects, one after another, as copies.

        The ratings of units with the same id become those of one unit, in the order in which they
        came. Statistics of earlier ratings are left out, because these ratings are to be there too.
        """
        first, sizes = parts[0], np.concatenate([np.diff(part.indptr) for part in parts])
        numbers, n_ratings = zip(*((part.n_units, part.n_entries) for part in parts), strict=True)
        values = np.concatenate([part.values for part in parts], dtype=first.values.dtype)
        columns = np.concatenate([part.columns for part in parts])
        weights = joined_arrays([part.weights for part in parts], numbers, 1.0)
        of_ratings = joined_arrays([part.rating_weights for part in parts], n_ratings, 1.0)
        ids = joined_arrays([part.ids for part in parts], numbers, -1)
        if ids is not None:
            ids, units = np.unique(ids, return_inverse=True)
            units = np.repeat(units, sizes)
            order = np.argsort(units, kind="stable")
            values, columns = values[order], columns[order]
            of_ratings = None if of_ratings is None else of_ratings[order]
            sizes = np.bincount(units, minlength=len(ids))
        return cls(
            values,
            columns,
            np.concatenate([[0], np.cumsum(sizes)]),
            max(part.n_columns for part in parts),
            weights,
            of_ratings,
            first.counts_ratings,
            ids=ids,
        )

    def centered(self, summary: object) -> Ratings:
        return self

    def subset(self, size: int, random_state: np.random.RandomState) -> Ratings:
        # Subsets serve to compute starts. Factors do not start from users, so that it would be a
        # waste to draw and copy some.
        return self

    def with_columns_in_use(self) -> tuple[slice | np.ndarray, Ratings]:
        """Return the columns with ratings, and the same ratings with these columns alone.

        All columns stay if most of them have ratings.
        """
        occurs = np.zeros(self.n_columns, dtype=bool)
        occurs[self.columns] = True
        if 2 * occurs.sum() > self.n_columns:
            return slice(None), self
        found = copy(self)
        vars(found).pop("by_column", None)
        found.columns = (np.cumsum(occurs) - 1).astype(np.int32)[self.columns]
        found.n_columns = int(occurs.sum())
        return np.flatnonzero(occurs), found

    @cached_property
    def by_column(self) -> Ratings:
        """The same ratings with the columns as units.

        The weights of the former units become weights of their ratings.
        """
        order, users, indptr = self.transposed()
        weights = self.entry_weights()
        return Ratings(
            self.values[order],
            users,
            indptr,
            self.n_units,
            rating_weights=None if weights is None else weights[order],
            counts_ratings=True,
        )

    @property
    def narrow_indptr(self) -> np.ndarray:
        """``indptr`` as int32 if that holds all positions.

        Sparse arrays of scipy have all their numbers in the widest type that they are given.
        """
        return self.indptr.astype(np.int32 if len(self.values) < 2**31 else np.int64, copy=False)

    def transposed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sort the ratings by column.

        Returns the positions of the sorted ratings among the given ones, the unit of each sorted
        rating, and the position at which each column begins.
        """
        shape, indptr = (self.n_units, self.n_columns), self.narrow_indptr
        positions = np.arange(len(self.values), dtype=indptr.dtype)
        matrix = csr_array((positions, self.columns, indptr), shape=shape).tocsc()
        del positions
        return matrix.data, matrix.indices.astype(np.int32, copy=False), matrix.indptr.astype(int)
