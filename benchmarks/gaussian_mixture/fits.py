"""What the experiments with Gaussian mixtures share: fits, starts, sizes, messages."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import (
    DeterministicAnnealing,
    ProximityVI,
    StochasticAnnealing,
    SVIPlus,
)

from .._data import DataNotFoundError

BEGUN = perf_counter()


class DrawnStart:
    """Start from a random pseudo data set, as stochastic annealing does, not by ``init_params``."""

    needs_start = False

    def initial_natural(self, ctx: Any) -> Any:
        return ctx.model.random_natural(ctx.summary, ctx.prior, ctx.rng)


class DrawnSVIPlus(DrawnStart, SVIPlus):
    """SVI+ from a drawn start."""


class DrawnProximityVI(DrawnStart, ProximityVI):
    """Proximity VI from a drawn start."""


class DrawnDeterministicAnnealing(DrawnStart, DeterministicAnnealing):
    """Deterministic annealing from a drawn start."""


def drawn_start() -> StochasticAnnealing:
    """The value of ``annealing`` for plain inference from a drawn start."""
    return StochasticAnnealing(n_passes=0)


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes
    ----------
    seeds, few, n_rows : int
        Repetitions of what is compared with published figures and of what takes long; MNIST rows.
    passes : int
        Passes of the minibatch experiments.
    """

    seeds: int = 20
    few: int = 8
    n_rows: int = 1000
    passes: int = 60
    quick: bool = False


FULL = Size()
QUICK = Size(seeds=2, few=2, n_rows=150, passes=3, quick=True)


def fit(X: np.ndarray, n_components: int, seed: int, annealing: Any, **parameters: Any) -> Any:
    """A fitted mixture with Dirichlet weights, converged where the method allows."""
    settings = {"weight_concentration_prior_type": "dirichlet_distribution", "max_iter": 300}
    mixture = AnnealedBayesianGaussianMixture(
        n_components=n_components, annealing=annealing, random_state=seed, **settings | parameters
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        return mixture.fit(X)


def missing(error: DataNotFoundError) -> None:
    print(f"Left out: {error}", file=sys.stderr)


def progress(what: str) -> None:
    print(f"{perf_counter() - BEGUN:6.0f} s  {what}", file=sys.stderr, flush=True)
