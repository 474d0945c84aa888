"""Spike-and-slab factor analysis, described for the common tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from plain_spike_slab import log_evidence

from models._entry import Entry, ExpectedFailure, annealing_of, has_auto
from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis

GIVEN = {"noise_variance": 0.4, "loading_variance": 1.5, "activation_prior": 0.4}

GAUSSIAN = {"activation_prior": 1.0}


def few_factors(
    n_features: int, missing: float = 0.0
) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Rows with two factors that are mostly switched off, and with missing cells if asked for."""
    loadings = 2.0 * np.eye(2, n_features) + 0.5 * np.tri(2, n_features)

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        factors = rng.standard_normal((n, 2)) * (rng.random((n, 2)) < [0.5, 0.3])
        X = factors @ loadings + 0.5 * rng.standard_normal((n, n_features))
        gone = rng.random(X.shape) < missing
        gone[0] = False
        X[gone] = np.nan
        return X

    return make


def small_spike_slab_by_gradients(**params: Any) -> AnnealedSpikeSlabFactorAnalysis:
    return small_spike_slab(**({"solver": "gradient", "annealing": "none"} | params))


def small_spike_slab(**params: Any) -> AnnealedSpikeSlabFactorAnalysis:
    settings = {"n_components": 2, "max_iter": 5, "effort": 0, "random_state": 0}
    return AnnealedSpikeSlabFactorAnalysis(**(settings | GIVEN | params))


ENTRIES = [
    Entry(
        "spike_slab_factor_analysis",
        make=small_spike_slab,
        data=few_factors(4),
        variants={
            "given": {},
            "each": {"loading_variance": [1.0, 2.0], "activation_prior": [0.2, 0.7]},
            "auto": dict.fromkeys(GIVEN, "auto"),
            "gaussian": GAUSSIAN,
        },
        converged={"max_sweeps": 2000, "sweep_tol": 1e-14},
        frozen={"max_sweeps": 0},
        learns=has_auto,
        tiny={
            "D=1": lambda rng: few_factors(1)(rng, 2),
            "D=2": lambda rng: few_factors(2)(rng, 2),
        },
        log_evidence=log_evidence,
        checked_small={"n_components": 2, "effort": 0, "max_iter": 15},
        checked=(
            {"n_components": 2, "annealing": "none"},
            {"n_components": 2, "annealing": "none", "solver": "gradient"},
        ),
        expected_failures={
            "check_sample_weight_equivalence_on_dense_data": ExpectedFailure(
                "Random weights are drawn for each row, whatever its weight is; and optimizers add "
                "a small number to the size of a gradient, which counts more for single rows.",
                lambda est: annealing_of(est) == "svi_plus" or est.solver == "gradient",
            )
        },
    ),
    Entry(
        "spike_slab_with_missing_cells",
        make=small_spike_slab,
        data=few_factors(4, missing=0.3),
        variants={
            "given": {},
            "auto": dict.fromkeys(GIVEN, "auto"),
            "gaussian": GAUSSIAN | {"noise_variance": "auto"},
        },
        converged={"max_sweeps": 2000, "sweep_tol": 1e-14},
        frozen={"max_sweeps": 0},
        learns=has_auto,
        tiny={"D=2": lambda rng: few_factors(2, missing=0.4)(rng, 2)},
        log_evidence=log_evidence,
        common_checks=False,
    ),
]

BY_GRADIENTS = [
    Entry(
        "spike_slab_by_gradients",
        make=small_spike_slab_by_gradients,
        data=few_factors(4),
        variants={
            "given": {},
            "auto": dict.fromkeys(GIVEN, "auto") | {"optimizer": "adam"},
        },
        tiny={"D=2": lambda rng: few_factors(2)(rng, 2)},
        log_evidence=log_evidence,
        refused=lambda params: dict.fromkeys(
            ("reheating", "stochastic", "local_tempering", "structured"),
            "conjugate_update",
        ),
        unit_keys=("logits", "slab_means", "slab_log_sds"),
        common_checks=False,
    ),
]
