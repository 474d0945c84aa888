"""Ratings from a file, and drawn ratings of a given shape.

The file is looked for as ``benchmarks/common/data.py`` says: ``movielens_100k.npz`` with ``user``,
``item`` and ``rating``, each (100000,).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.sparse import csr_matrix

from ..common.data import load, present

MOVIELENS = "MovieLens 100K"
FILES = {MOVIELENS: "movielens_100k.npz"}
# Drawn ratings have this number of factors, which may differ from the number that is fitted.
_TRUE_FACTORS = 10


@dataclass(frozen=True)
class Ratings:
    """Ratings as pairs of ids with stars.

    Attributes
    ----------
    X : ndarray of int, shape (n_ratings, 2)
    y : ndarray of shape (n_ratings,)
    """

    X: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: np.ndarray) -> Ratings:
        return Ratings(self.X[index], self.y[index])


@cache
def ratings(name: str) -> Ratings:
    """All ratings of a data set.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    found = load(FILES[name])
    pairs = np.stack([found["user"], found["item"]], axis=1).astype(np.int64)
    return Ratings(pairs, found["rating"].astype(np.float64))


def available(names: Iterable[str]) -> list[str]:
    """The data sets whose files are there; a message is printed for each missing file."""
    return present(names, FILES.get)


# Ratings of a shape


@dataclass(frozen=True)
class Shape:
    """The shape of a set of ratings.

    Attributes
    ----------
    name : str
    n_users, n_items, n_ratings : int
    user_spread, item_spread : float
        Standard deviations of the logarithms of users' activity and of items' popularity. They are
        √(2 log(mean/median)) of the numbers of ratings of a user and of an item.
    """

    name: str
    n_users: int
    n_items: int
    n_ratings: int
    user_spread: float
    item_spread: float


@cache
def draw(shape: Shape) -> csr_matrix:
    """Draw stars from 1 to 5, float64, for distinct pairs of users and items."""
    rng = np.random.default_rng(0)
    n_users, n_items = shape.n_users, shape.n_items
    activity = rng.lognormal(0.0, shape.user_spread, n_users)
    popularity = rng.lognormal(0.0, shape.item_spread, n_items)
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < shape.n_ratings:
        n = 2 * (shape.n_ratings - len(keys))
        users = rng.choice(n_users, n, p=activity / activity.sum())
        items = rng.choice(n_items, n, p=popularity / popularity.sum())
        keys = np.unique(np.concatenate([keys, users * n_items + items]))
    # The pairs are sorted, as the entries of a matrix by users are.
    chosen = np.zeros(len(keys), dtype=bool)
    chosen[rng.permutation(len(keys))[: shape.n_ratings]] = True
    users, items = np.divmod(keys[chosen], n_items)
    indptr = np.searchsorted(users, np.arange(n_users + 1))
    found = (_stars(users, items, shape, rng), items.astype(np.int32), indptr.astype(np.int32))
    return csr_matrix(found, shape=(n_users, n_items))


def _stars(
    users: np.ndarray, items: np.ndarray, shape: Shape, rng: np.random.Generator
) -> np.ndarray:
    u, v = (
        np.sqrt(0.2) * rng.standard_normal((n, _TRUE_FACTORS), dtype=np.float32)
        for n in (shape.n_users, shape.n_items)
    )
    b, c = 0.45 * rng.standard_normal(shape.n_users), 0.5 * rng.standard_normal(shape.n_items)
    mean = 3.6 + b[users] + c[items] + np.einsum("nk,nk->n", u[users], v[items])
    return np.rint(mean + 0.8 * rng.standard_normal(len(mean))).clip(1, 5)
