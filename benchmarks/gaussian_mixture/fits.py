"""Fits of Gaussian mixtures, and annealing methods that begin at a drawn start."""

from __future__ import annotations

import warnings
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

from ..common.priors import PEER_OF_MIXTURES


class DrawnStart:
    """Mixin: start from a random pseudo data set, as stochastic annealing does.

    ``init_params`` of the estimator is not used.
    """

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


def fit(X: np.ndarray, n_components: int, seed: int, annealing: Any, **parameters: Any) -> Any:
    """Fit a mixture with Dirichlet weights, to convergence if the method allows this.

    The fit neither searches nor is it compared with plain inference.
    """
    settings = {
        "weight_concentration_prior_type": "dirichlet_distribution",
        "max_iter": 300,
        "effort": 0,
    }
    mixture = AnnealedBayesianGaussianMixture(
        n_components=n_components,
        annealing=annealing,
        random_state=seed,
        **PEER_OF_MIXTURES | settings | parameters,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        return mixture.fit(X)
