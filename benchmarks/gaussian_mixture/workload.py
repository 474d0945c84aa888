"""Sizes, rows, estimators and passes that all measurements of the speed of mixtures use.

The time of a pass is the difference of the times of two fits, one of many and one of few passes,
divided by the difference of their numbers of passes. Work that a fit does once thus does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture

from ..common.measuring import interleaved, wall_seconds
from ..common.priors import PEER_OF_MIXTURES

FEW, MANY = 2, 12

Make = Callable[[int], Any]
"""A function of a number of passes, which returns an estimator that makes exactly as many."""


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    n_rows : int
        Number of rows in the sections on passes.
    shapes : tuple of (str, int, int)
        Covariance type, D and K of the passes that are compared with scikit-learn's.
    spaces : tuple of (int, int)
        D and K of the other sections on passes.
    restarts : tuple of (int, int, int, int)
        Rows, D, K and passes of the restarts in two threads.
    digits : tuple of int
        Classes of digits on which one fit is compared with ten restarts.
    digit_rows, digit_components : int
        Number of rows of each of these classes, and K.
    rounds, annealed_rounds : int
        Number of interleaved repetitions of plain and of annealed passes.
    learning_rounds : int
        Number of interleaved passes with and without the learning of priors. Their times differ by
        little, so that many are needed.
    seeds : int
        Number of repetitions of one fit against ten restarts, and of all other comparisons in
        seconds.
    """

    n_rows: int = 50_000
    shapes: tuple[tuple[str, int, int], ...] = (
        ("full", 30, 20),
        ("full", 5, 10),
        ("full", 64, 20),
        ("diag", 30, 20),
        ("diag", 5, 10),
        ("tied", 30, 20),
        ("spherical", 30, 20),
    )
    spaces: tuple[tuple[int, int], ...] = ((30, 20), (5, 10), (64, 20))
    restarts: tuple[tuple[int, int, int, int], ...] = (
        (50_000, 30, 20, 20),
        (50_000, 5, 10, 30),
        (2_000, 15, 8, 50),
        (300, 5, 4, 50),
    )
    digits: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    digit_rows: int = 1000
    digit_components: int = 12
    rounds: int = 7
    annealed_rounds: int = 15
    learning_rounds: int = 150
    seeds: int = 5
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n, annealed_rounds=n, learning_rounds=n, seeds=n)


FULL = Size()
QUICK = Size(
    n_rows=500,
    shapes=(("full", 3, 2), ("diag", 3, 2)),
    spaces=((3, 2), (2, 3)),
    restarts=((300, 3, 2, 3),),
    digits=(0,),
    digit_rows=60,
    digit_components=2,
    rounds=1,
    annealed_rounds=1,
    learning_rounds=1,
    seeds=1,
    quick=True,
)


def blobs(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Draw rows of eight round clusters."""
    rng = np.random.default_rng(seed)
    centers = 2.0 * rng.standard_normal((8, d))
    return centers[rng.integers(8, size=n)] + rng.standard_normal((n, d))


def ours(annealing: Any, k: int, **kwargs: Any) -> Make:
    """Our estimator; ``annealing`` is ``"none"`` or a function that takes the number of passes."""

    def make(n: int) -> AnnealedBayesianGaussianMixture:
        method, finish = annealing, n
        if annealing != "none":
            method, finish = annealing(n), 0
        settings = {"n_components": k, "tol": 0, "init_params": "random", "random_state": 0}
        return AnnealedBayesianGaussianMixture(
            annealing=method, max_iter=finish, **{**PEER_OF_MIXTURES, **settings, **kwargs}
        )

    return make


def peer(k: int, **kwargs: Any) -> Make:
    """scikit-learn's estimator."""

    def make(n: int) -> BayesianGaussianMixture:
        return BayesianGaussianMixture(
            n_components=k, max_iter=n, tol=0, init_params="random", random_state=0, **kwargs
        )

    return make


def per_pass(make: Make, X: np.ndarray) -> float:
    """Seconds of wall time per pass."""
    short = wall_seconds(lambda: make(FEW).fit(X))
    return (wall_seconds(lambda: make(MANY).fit(X)) - short) / (MANY - FEW)


def pass_times(first: Make, second: Make, X: np.ndarray, rounds: int) -> tuple[np.ndarray, ...]:
    """Seconds per pass of two estimators in turns, one per round."""
    runs = {"first": lambda: per_pass(first, X), "second": lambda: per_pass(second, X)}
    # Each of these calls returns the seconds that count.
    times = interleaved(runs, rounds, clock=lambda run: run())
    return times["first"], times["second"]
