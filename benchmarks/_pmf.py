"""What the measurements of the speed of matrix factorisation share: ratings, models, passes.

The time of a pass is that of a fit of many passes less that of a fit of few, divided by the
difference, so that what a fit does once is counted of no library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import StructuredVI

from ._measuring import interleaved, processor_seconds

try:
    from cmfrec import CMF
except ImportError:
    CMF = None
try:
    from implicit.cpu.als import AlternatingLeastSquares
except ImportError:
    AlternatingLeastSquares = None

Key = TypeVar("Key", bound=Hashable)

# Drawn ratings have factors too, more or fewer than what is fitted.
_TRUE_FACTORS = 10
_PAIRS = 1 << 20
_NEVER = 10**6
# Noise variance over the prior variance of factors, as our defaults for stars from 1 to 5 have it.
_RIDGE = 8.0


@dataclass(frozen=True)
class Shape:
    """The shape of a set of ratings.

    Attributes
    ----------
    name : str
    n_users, n_items, n_ratings : int
    user_spread, item_spread : float
        Standard deviations of the logarithms of activity and of popularity: √(2 log(mean/median))
        of the numbers of ratings of a user and of an item.
    """

    name: str
    n_users: int
    n_items: int
    n_ratings: int
    user_spread: float
    item_spread: float


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes
    ----------
    shape, large : Shape
        The ratings of all sections but that on large data, and those of that.
    components : tuple of int
        d of the passes.
    many : int
        d of all other sections.
    rounds : int
        Interleaved repetitions.
    passes, large_passes : tuple of int
        Passes of the two fits whose difference is measured.
    large_methods : tuple of str
        Names of ``annealing`` on large data.
    """

    shape: Shape = Shape("MovieLens 1M", 6040, 3706, 1_000_209, 1.05, 1.25)
    large: Shape = Shape("MovieLens 10M", 71_567, 10_681, 10_000_054, 1.2, 1.95)
    components: tuple[int, ...] = (5, 10, 20)
    many: int = 10
    rounds: int = 5
    passes: tuple[int, int] = (2, 12)
    large_passes: tuple[int, int] = (1, 4)
    large_methods: tuple[str, ...] = ("none", "deterministic", "svi_plus")
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
QUICK = Size(
    Shape("a small shape", 300, 120, 6000, 1.0, 1.2),
    Shape("another small shape", 500, 200, 12_000, 1.0, 1.2),
    components=(3,),
    many=3,
    rounds=2,
    passes=(1, 3),
    large_passes=(1, 2),
    large_methods=("svi_plus",),
    quick=True,
)


# Ratings


@cache
def draw(shape: Shape) -> csr_matrix:
    """Stars from 1 to 5 of some users for some items, float64; no pair twice."""
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
    # In order, as a matrix by users has them.
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


# Models

Fit = Callable[[int], Any]


def estimator(d: int, n_passes: int, annealing: str = "none", **parameters: Any) -> AnnealedPMF:
    """An estimator of so many passes in all, without any test of convergence."""
    pmf = AnnealedPMF(d, tol=0, max_iter=n_passes, random_state=0, annealing="none", **parameters)
    if annealing == "none":
        return pmf
    if annealing == "structured":
        # Its bound takes another pass, which is not what is measured.
        made = StructuredVI(n_passes=n_passes, evaluate_every=_NEVER)
        return pmf.set_params(annealing=made, max_iter=0)
    return pmf.set_params(annealing=annealing, annealing__n_passes=n_passes, max_iter=0)


def our_fit(X: csr_matrix, d: int, annealing: str = "none", **parameters: Any) -> Fit:
    return lambda n: estimator(d, n, annealing, **parameters).fit(X)


def cmfrec_fit(X: csr_matrix, d: int) -> Fit:
    """Alternating least squares of explicit ratings, with biases, by Cholesky's method."""
    ratings = X.tocoo()
    model = {
        "k": d,
        "lambda_": _RIDGE,
        "method": "als",
        "use_cg": False,
        "user_bias": True,
        "item_bias": True,
        "center": True,
        "use_float": X.dtype == np.float32,
        "precompute_for_predictions": False,
        "verbose": False,
        "nthreads": 1,
    }
    return lambda n: CMF(niter=n, **model).fit(ratings)


def implicit_fit(X: csr_matrix, d: int) -> Fit:
    """Alternating least squares of implicit feedback, by Cholesky's method."""
    how = {
        "regularization": _RIDGE,
        "dtype": X.dtype.type,
        "use_cg": False,
        "num_threads": 1,
        "random_state": 0,
    }

    def fit(n: int) -> Any:
        model = AlternatingLeastSquares(factors=d, iterations=n, **how)
        model.fit(X, show_progress=False)
        return model

    return fit


PEERS = {"cmfrec": cmfrec_fit, "implicit": implicit_fit}


def installed() -> list[str]:
    """The peers that are installed."""
    found = {"cmfrec": CMF, "implicit": AlternatingLeastSquares}
    return [name for name in PEERS if found[name] is not None]


def peers() -> dict[str, Callable[[csr_matrix, int], Fit]]:
    """Those that are installed, with a message for each of the others."""
    there = installed()
    for name in PEERS:
        if name not in there:
            message = f"Left out: {name}, which is not installed (pip install {name})."
            print(message, file=sys.stderr)
    return {name: PEERS[name] for name in there}


# Passes


def pass_times(
    fits: Mapping[Key, Fit],
    passes: tuple[int, int],
    rounds: int,
    clock: Callable[[Callable[[], object]], float] = processor_seconds,
    others: Mapping[Any, Callable[[], object]] | None = None,
) -> tuple[dict[Key, np.ndarray], dict[Any, np.ndarray]]:
    """Seconds per pass of several fits, one per round, and those of other calls in these rounds."""
    few, many = passes
    runs: dict[Any, Callable[[], object]] = {
        (key, n): (lambda fit=fit, n=n: fit(n)) for key, fit in fits.items() for n in passes
    }
    times = interleaved(runs | dict(others or {}), rounds, clock)
    each = {key: (times[key, many] - times[key, few]) / (many - few) for key in fits}
    return each, {key: times[key] for key in others or {}}


def warm(X: csr_matrix, estimator: AnnealedPMF) -> None:
    """Have the kernels that a fit calls loaded or compiled before it is timed."""
    clone(estimator).fit(X[:200])
