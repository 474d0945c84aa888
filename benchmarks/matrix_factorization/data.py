"""Ratings from a file, drawn ratings of a given shape, and their splits.

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

MOVIELENS, WEAK = "MovieLens 100K", "weak factors"
FILES = {MOVIELENS: "movielens_100k.npz"}
SHARE_HELD_OUT = 0.1
STARS = (1.0, 5.0)
# Drawn ratings have this number of factors, which may differ from the number that is fitted.
_TRUE_FACTORS = 10
_PAIRS = 1 << 20


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
    """All ratings of a data set; ``"drawn"`` and ``"weak factors"`` need no file.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    if name == "drawn":
        return _drawn()
    if name == WEAK:
        return _weak()
    found = load(FILES[name])
    pairs = np.stack([found["user"], found["item"]], axis=1).astype(np.int64)
    return Ratings(pairs, found["rating"].astype(np.float64))


def _drawn() -> Ratings:
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((60, 2)), rng.standard_normal((40, 2))
    pairs = np.argwhere(rng.random((60, 40)) < rng.beta(1.0, 2.0, (60, 1)))
    means = 3.5 + np.sum(0.7 * u[pairs[:, 0]] * v[pairs[:, 1]], axis=1)
    stars = np.rint(means + 0.7 * rng.standard_normal(len(pairs))).clip(*STARS)
    return Ratings(pairs, stars)


def _weak() -> Ratings:
    """Draw ratings with six weak factors, which a hot start switches off.

    The factors explain half as much variance as the noise.
    """
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((600, 6)), 0.3 * rng.standard_normal((200, 6))
    popularity = rng.lognormal(0.0, 1.0, 200)
    pairs = np.array(
        [
            (user, item)
            for user, n in enumerate(np.geomspace(3, 100, 600).round().astype(int))
            for item in rng.choice(200, n, replace=False, p=popularity / popularity.sum())
        ]
    )
    i, j = pairs.T
    biases = 0.4 * rng.standard_normal(600)[i] + 0.4 * rng.standard_normal(200)[j]
    y = 3.5 + biases + np.sum(u[i] * v[j], axis=1) + 0.7 * rng.standard_normal(len(i))
    return Ratings(pairs, y)


@cache
def split(name: str, seed: int = 0, validation: bool = False) -> tuple[Ratings, Ratings]:
    """Split the ratings into nine tenths and one tenth; the split depends on the seed alone.

    With ``validation``, only the nine tenths are used and split again in this way, so that settings
    can be tuned.
    """
    every = ratings(name)
    rng = np.random.default_rng(seed)
    for _ in range(2 if validation else 1):
        order = rng.permutation(len(every))
        n_held_out = round(SHARE_HELD_OUT * len(order))
        # Both parts keep the order of the file.
        held_out, rest = (np.sort(part) for part in (order[:n_held_out], order[n_held_out:]))
        every, other = every.take(rest), every.take(held_out)
    return every, other


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
    stars = np.empty(len(users))
    for start in range(0, len(users), _PAIRS):
        some = slice(start, start + _PAIRS)
        i, j = users[some], items[some]
        mean = 3.6 + b[i] + c[j] + np.einsum("nk,nk->n", u[i], v[j])
        stars[some] = np.rint(mean + 0.8 * rng.standard_normal(len(i))).clip(1, 5)
    return stars
