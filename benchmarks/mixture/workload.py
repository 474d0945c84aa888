"""Sizes, tables and passes that all measurements of the speed of these mixtures use.

The time of a pass is the difference of the times of two fits, one of many and one of few passes,
divided by the difference of their numbers of passes. Work that a fit does once thus does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedBayesianMixture

from ..common.measuring import interleaved, processor_seconds

try:
    from stepmix import StepMix
except ImportError:
    StepMix = None

Make = Callable[[int], Any]
"""A function of a number of passes, which returns an estimator that makes exactly as many."""

OURS, PEER = "ours", "StepMix"


@dataclass(frozen=True)
class Case:
    """A table on which passes are compared.

    Attributes
    ----------
    name : str
    emission : {"bernoulli", "categorical"}
    n_features, n_levels : int
    n_components : int
        K of the fits.
    target : float
        How many times as long a pass of StepMix should take.
    missing : float
        The share of the cells that are missing.
    n_distinct : int or None
        The number of distinct rows; None if there is no limit.
    passes : int
        The number of passes of ours between which the time is taken; StepMix makes three.
    """

    name: str
    emission: str
    n_features: int
    n_levels: int
    n_components: int
    target: float
    missing: float = 0.0
    n_distinct: int | None = None
    passes: int = 20


@dataclass(frozen=True)
class Size:
    """The size of the measurements: rows, tables, and interleaved repetitions."""

    n_rows: int = 50_000
    cases: tuple[Case, ...] = (
        Case("binary", "bernoulli", 100, 2, 20, 10.0),
        Case("binary, 10 % missing", "bernoulli", 100, 2, 20, 5.0, missing=0.1),
        Case("survey, 1,000 distinct rows", "categorical", 20, 4, 10, 20.0, n_distinct=1000),
        Case("four categories", "categorical", 100, 4, 20, 5.0),
    )
    rounds: int = 7
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
QUICK = Size(
    n_rows=300,
    cases=tuple(
        replace(c, n_features=5, n_components=2, n_distinct=c.n_distinct and 50, passes=3)
        for c in FULL.cases
    ),
    rounds=1,
    quick=True,
)


def draw(case: Case, n_rows: int) -> np.ndarray:
    """Draw a table from a mixture of eight components; missing cells are NaN."""
    rng = np.random.default_rng(0)
    n = case.n_distinct or n_rows
    p = rng.dirichlet(np.ones(case.n_levels), size=(8, case.n_features)).cumsum(axis=2)
    limits = p[rng.integers(8, size=n)]
    X = (rng.random((n, case.n_features, 1)) > limits[:, :, :-1]).sum(axis=2).astype(float)
    if case.n_distinct is not None:
        # Every row occurs, so that the number of distinct ones does not depend on chance.
        X = X[np.concatenate([np.arange(n), rng.integers(n, size=n_rows - n)])]
    X[rng.random(X.shape) < case.missing] = np.nan
    return X


def ours(case: Case, annealing: Any = "none", **parameters: Any) -> Make:
    """Our estimator with fixed priors; ``annealing`` may be a function of the number of passes."""

    def make(n: int) -> AnnealedBayesianMixture:
        method, finish = annealing, n
        if annealing != "none":
            method, finish = annealing(n), 0
        settings = {"weight_concentration_prior": None, "emissionprob_prior": None, "tol": 0}
        return AnnealedBayesianMixture(
            case.n_components,
            emission=case.emission,
            annealing=method,
            max_iter=finish,
            random_state=0,
            **{**settings, **parameters},
        )

    return make


def peer(case: Case) -> Make:
    """StepMix's estimator."""
    name = {"bernoulli": "binary", "categorical": "categorical"}[case.emission]

    def make(n: int) -> Any:
        return StepMix(
            case.n_components,
            measurement=f"{name}_nan" if case.missing else name,
            max_iter=n,
            abs_tol=0.0,
            rel_tol=0.0,
            random_state=0,
            progress_bar=0,
        )

    return make


def per_pass(make: Make, X: np.ndarray, passes: int) -> float:
    """Seconds of processor time per pass."""
    short = processor_seconds(lambda: make(1).fit(X))
    return (processor_seconds(lambda: make(1 + passes).fit(X)) - short) / passes


def pass_times(runs: dict[str, tuple[Make, int]], X: np.ndarray, rounds: int) -> dict[str, Any]:
    """Seconds per pass of several estimators in turns, one value of each per round.

    ``runs`` has, by name, a function that makes the estimator and the number of passes.
    """
    calls = {name: lambda make=make, n=n: per_pass(make, X, n) for name, (make, n) in runs.items()}
    # Each of these calls returns the seconds that count.
    return interleaved(calls, rounds, clock=lambda run: run())
