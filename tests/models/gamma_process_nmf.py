"""Gamma-process factorisation, described for the common tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from enumeration import gamma_process_log_evidence
from scipy.sparse import csr_matrix
from scipy.stats import gamma

from models._entry import Entry, ExpectedFailure, annealing_of, has_auto
from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.inference.visits import Visited

REFUSED = dict.fromkeys(("tempering", "local_tempering"), "log partition function")


def counts(
    n_columns: int = 6, holes: float = 0.1, sparse: bool = False
) -> Callable[[np.random.Generator, int], Any]:
    """Poisson counts of rows that mix three components, with some missing cells."""
    component = np.arange(n_columns) * 3 // n_columns
    components = np.where(component == np.arange(3)[:, None], 4.0, 0.2)

    def make(rng: np.random.Generator, n: int) -> Any:
        X = rng.poisson(rng.gamma([0.5, 1.0, 2.0], size=(n, 3)) @ components)
        if sparse:
            return csr_matrix(X)
        X = X.astype(float)
        X[rng.random(X.shape) < holes] = np.nan
        return X

    return make


def small_factorization(**params: Any) -> AnnealedGammaProcessNMF:
    settings = {"n_components": 3, "max_iter": 5, "effort": 0, "random_state": 0}
    return AnnealedGammaProcessNMF(**(settings | GIVEN | params))


def entropy_of_activations(visit: Visited, units: Any) -> float:
    """Σ w H[q(h)] of the activations that a visit returned, computed by scipy."""
    entropies = np.concatenate(
        [
            gamma(local.shape, scale=1.0 / np.broadcast_to(local.rate, local.shape.shape))
            .entropy()
            .sum(axis=1)
            for local in visit.local
        ]
    )
    return float(
        np.dot(np.ones(len(entropies)) if units.weights is None else units.weights, entropies)
    )


def entropy_with_noise(visit: Visited, units: Any) -> float:
    """Σ w (H[q(h)] + Σ_v H[q(e_v)]) over observed cells, the latter by the formulas of q(e)."""
    seen, h = visit.visit, np.concatenate([local.shape / local.rate for local in visit.local])
    a, t = 1.0 / seen.model.dispersion, seen.t
    X = units.X
    expected = (h * seen.mean_weights) @ seen.expected.means.T
    shape = 1.0 + t.prior * (a - 1.0) + t.statistics * X
    rate = t.prior * a + t.statistics * expected
    entropies = np.nansum(gamma(shape, scale=1.0 / rate).entropy(), axis=1)
    weights = np.ones(len(X)) if units.weights is None else units.weights
    return entropy_of_activations(visit, units) + float(weights @ entropies)


def factorization(
    name: str,
    sparse: bool,
    local_entropy: Callable[[Visited, Any], float] = entropy_of_activations,
    **fields: Any,
) -> Entry:
    """The entry of one kind of input."""
    return Entry(
        name,
        make=small_factorization,
        data=counts(sparse=sparse),
        converged={"max_sweeps": 3000, "sweep_tol": 1e-13},
        settled={"max_sweeps": 3000, "sweep_tol": 1e-13},
        frozen={"max_sweeps": 0},
        one_optimum="above_one",
        learns=lambda params: has_auto(params) or "popularity_prior" in params,
        refused=lambda params: REFUSED,
        several_chunks=counts(120 if sparse else 60, sparse=sparse),
        local_entropy=local_entropy,
        log_evidence=gamma_process_log_evidence,
        **fields,
    )


GIVEN = {"activation_prior": 0.1, "component_prior": 0.1, "concentration": 1.0}
ABOVE_ONE = {"activation_prior": 1.7, "component_prior": 1.3, "concentration": 4.0}
LEARNED = dict.fromkeys(("activation_prior", "component_prior", "concentration"), "auto")
ENTRIES = [
    factorization(
        "gamma_process_nmf",
        sparse=False,
        variants={
            "default": {},
            "above_one": ABOVE_ONE,
            "learned": LEARNED,
            "popularity": {"popularity_prior": 2.0},
        },
        tiny={
            "2 x 2": lambda rng: np.array([[2.0, 1.0], [0.0, 3.0]]),
            "missing": lambda rng: np.array([[2.0, np.nan], [np.nan, np.nan], [1.0, 2.0]]),
        },
        checked_small={"n_components": 2, "effort": 0, "max_iter": 10},
        checked=({"n_components": 2, "annealing": "none", "batch_size": 10, "max_iter": 10},),
        expected_failures=dict.fromkeys(
            (
                "check_sample_weight_equivalence_on_dense_data",
                "check_sample_weight_equivalence_on_sparse_data",
            ),
            ExpectedFailure(
                "A weight of 2 is a second row to every update, but not to the random draws of "
                "minibatches, of weights per row, or of noise per row.",
                lambda est: (
                    est.batch_size is not None
                    or annealing_of(est) in ("stochastic", "svi_plus")
                    or (annealing_of(est) == "reheating" and est.effort != 0)
                ),
            ),
        ),
    ),
    factorization(
        "gamma_process_nmf_sparse",
        sparse=True,
        variants={
            "above_one": ABOVE_ONE,
            "default": {},
            "popularity": {**LEARNED, "popularity_prior": "auto"},
        },
        tiny={"2 x 2": lambda rng: csr_matrix([[2, 1], [0, 3]])},
        common_checks=False,
    ),
    factorization(
        "gamma_process_nmf_noise",
        sparse=False,
        local_entropy=entropy_with_noise,
        variants={"above_one": {**ABOVE_ONE, "dispersion": 0.5}, "learned": {"dispersion": "auto"}},
        tiny={"missing": lambda rng: np.array([[2.0, np.nan], [np.nan, np.nan], [1.0, 2.0]])},
        common_checks=False,
    ),
]
