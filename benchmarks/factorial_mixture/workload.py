"""Rows, models and passes that all measurements of the speed of factorial mixtures use.

The time of a pass is the difference of the times of two fits, one of many and one of few passes,
divided by the difference of their numbers of passes. Work that a fit does once thus does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedFactorialMixture
from sklearn_anneal.annealing import DeterministicAnnealing, StructuredVI

from ..common.measuring import interleaved

_NEVER = 10**6
_NOISE, _ACTIVE, _SHARE = 0.2, 0.3, 0.3
# Rows whose products are in memory at a time, about as many as in the package.
_BLOCK = 1024


@dataclass(frozen=True)
class Shape:
    """Numbers of rows, columns and components."""

    n_rows: int
    n_features: int
    n_components: int

    def __str__(self) -> str:
        return f"{self.n_rows:,} × {self.n_features}"


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    shapes : tuple of Shape
    methods : Shape
    rounds : int
        Number of interleaved repetitions.
    passes : tuple of int
        Numbers of passes of the two fits whose difference is measured.
    """

    shapes: tuple[Shape, ...] = (
        Shape(20_000, 16, 8),
        Shape(20_000, 64, 16),
        Shape(20_000, 64, 32),
        Shape(10_000, 784, 32),
        Shape(10_000, 784, 64),
    )
    methods: Shape = Shape(20_000, 64, 16)
    rounds: int = 5
    passes: tuple[int, int] = (4, 24)
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
_SMALL = Shape(200, 16, 4)
QUICK = Size((_SMALL,), _SMALL, 1, (1, 3), quick=True)


@cache
def rows(shape: Shape) -> np.ndarray:
    """Sums of sparse parts, and noise."""
    rng = np.random.default_rng(0)
    size = (shape.n_components, shape.n_features)
    parts = rng.random(size) * (rng.random(size) < _SHARE)
    active = rng.random((shape.n_rows, shape.n_components)) < _ACTIVE
    return active @ parts + _NOISE * rng.standard_normal((shape.n_rows, shape.n_features))


def estimator(k: int, n_passes: int, annealing: str, **parameters: Any) -> AnnealedFactorialMixture:
    """An estimator that makes a given number of passes, without any test of convergence.

    The priors are given, because the data are drawn from them.
    """
    settings: dict[str, Any] = {
        "noise_variance": _NOISE**2,
        "mean_variance": 0.1,
        "activation_prior": _ACTIVE,
        "random_state": 0,
        "tol": 0,
        "max_iter": 0,
        "effort": 0,
    }
    made = AnnealedFactorialMixture(k, **(settings | parameters))
    if annealing == "none":
        return made.set_params(annealing="none", max_iter=n_passes)
    if annealing == "reheating":
        return made.set_params(annealing="reheating", max_iter=n_passes)
    if annealing == "structured":
        # The evaluation of its bound takes another pass, which must not be measured.
        how = StructuredVI(n_passes=n_passes, evaluate_every=_NEVER)
        return made.set_params(annealing=how)
    if annealing == "deterministic":
        return made.set_params(annealing=DeterministicAnnealing(n_passes=n_passes))
    return made.set_params(annealing=annealing, annealing__n_passes=n_passes)


def our_fit(shape: Shape, annealing: str, **parameters: Any) -> Callable[[int], Any]:
    X = rows(shape)
    return lambda n: estimator(shape.n_components, n, annealing, **parameters).fit(X)


def products(shape: Shape) -> Callable[[], None]:
    """The products E[μ] Xᵀ and E[z] X of a pass, in blocks of rows."""
    X, k = rows(shape), shape.n_components
    means = np.random.default_rng(1).random((k, shape.n_features))

    def run() -> None:
        for begin in range(0, len(X), _BLOCK):
            part = X[begin : begin + _BLOCK]
            (means @ part.T) @ part

    return run


def pass_times(
    fits: Mapping[str, Callable[[int], Any]],
    others: Mapping[str, Callable[[], object]],
    size: Size,
) -> dict[str, np.ndarray]:
    """Seconds of one pass of several fits, and of other calls, once per round."""
    few, many = size.passes
    runs: dict[Any, Callable[[], object]] = dict(others)
    for name, fit in fits.items():
        fit(1)  # loads the kernels
        runs |= {(name, n): (lambda fit=fit, n=n: fit(n)) for n in size.passes}
    times = interleaved(runs, size.rounds)
    each = {name: (times[name, many] - times[name, few]) / (many - few) for name in fits}
    return each | {name: times[name] for name in others}
