"""Factorial mixtures, described for the common tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from plain_factorial_mixture import factorial_mixture_log_evidence

from models._entry import Entry, has_auto
from sklearn_anneal import AnnealedFactorialMixture

GIVEN = {"noise_variance": 0.3, "mean_variance": 1.5, "activation_prior": 0.4}


def sums_of_parts(n_features: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Rows that are sums of three parts, each of which is there or not."""
    parts = 2.0 * np.eye(3, n_features) + 0.5 * np.tri(3, n_features)

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        activations = rng.random((n, 3)) < [0.5, 0.3, 0.4]
        return activations @ parts + 0.5 * rng.standard_normal((n, n_features))

    return make


def small_factorial_mixture(**params: Any) -> AnnealedFactorialMixture:
    settings = {"n_components": 3, "max_iter": 5, "effort": 0, "random_state": 0}
    prior = params.get("activation_prior")
    if np.ndim(prior):
        params["activation_prior"] = prior[: params.get("n_components", 3)]
    return AnnealedFactorialMixture(**(settings | GIVEN | params))


ENTRIES = [
    Entry(
        "factorial_mixture",
        make=small_factorial_mixture,
        data=sums_of_parts(4),
        variants={
            "mean_field": {},
            "enumerate": {"local_step": "enumerate"},
            "centered": {"center": True, "activation_prior": [0.2, 0.5, 0.7]},
            "auto": dict.fromkeys(GIVEN, "auto"),
            "auto-enumerate": dict.fromkeys(GIVEN, "auto") | {"local_step": "enumerate"},
        },
        converged={"max_sweeps": 2000, "sweep_tol": 1e-14},
        frozen={"max_sweeps": 0},
        one_optimum="enumerate",
        learns=has_auto,
        tiny={
            "D=1": lambda rng: sums_of_parts(1)(rng, 4),
            "D=2": lambda rng: sums_of_parts(2)(rng, 4),
        },
        log_evidence=factorial_mixture_log_evidence,
        # Where every component is active for certain, only the components are unknown, and their
        # posterior is Gaussian.
        exact=tuple(
            ({"n_components": 2, "activation_prior": 1.0 - 1e-13, "local_step": how}, "D=2")
            for how in ("mean_field", "enumerate")
        )
        + (({"n_components": 2, "activation_prior": 1.0 - 1e-13, "center": True}, "D=2"),),
        checked_small={"n_components": 2, "effort": 0, "max_iter": 15},
        checked=(
            {"n_components": 2, "annealing": "none", "local_step": "enumerate", "center": True},
        ),
    ),
]
