"""Matrix factorisation, described for the common tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from peer_priors import PEER_OF_RATINGS
from plain_matrix_factorization import matrix_factorization_log_evidence

from models._entry import Entry, ExpectedFailure, annealing_of, has_auto
from sklearn_anneal import AnnealedPMF


def ratings(
    n_items: int = 12, observed: float = 0.5
) -> Callable[[np.random.Generator, int], np.ndarray]:
    """A users × items matrix, drawn from two factors and biases; unknown ratings are NaN."""

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        factors = 0.7 * rng.standard_normal((n, 2)), 0.7 * rng.standard_normal((n_items, 2))
        biases = 0.5 * rng.standard_normal((n, 1)) + 0.5 * rng.standard_normal(n_items)
        X = 3.0 + factors[0] @ factors[1].T + biases + 0.6 * rng.standard_normal((n, n_items))
        X[rng.random(X.shape) >= observed] = np.nan
        # A user may have no ratings, but a matrix without any rating would be refused.
        X[0, 0] = 2.5
        return X

    return make


def small_factorization(n_components: int = 2, **params: Any) -> AnnealedPMF:
    settings = {"max_iter": 5, "random_state": 0} | PEER_OF_RATINGS | params
    return AnnealedPMF(n_components, **settings)


ENTRIES = [
    Entry(
        "matrix_factorization",
        make=small_factorization,
        data=ratings(),
        variants={
            "biases": {},
            "plain": {"biases": False, "fit_intercept": False},
            "given": {"noise_variance": 0.5, "factor_variance": 1.0, "bias_variance": 0.2},
            "auto": {
                "noise_variance": "auto",
                "factor_variance": "auto",
                "bias_variance": "auto",
            },
            "hierarchical": {"hierarchical": True, "noise_variance": "auto"},
            "scales": {"hierarchical": True, "user_scales": True, "noise_variance": "auto"},
        },
        as_in_parts={"implicit_feedback": False, "gibbs_sweeps": 0},
        learns=lambda params: (
            has_auto(params)
            or params.get("hierarchical", False)
            or params.get("user_scales", False)
        ),
        several_chunks=ratings(40, 0.4),
        # There are no assignments, so that the entropy of a local step is all that of users.
        local_entropy=lambda visit, units: visit.step.entropy,
        tiny={
            "2 x 2": lambda rng: np.array([[4.0, 2.5], [1.0, 3.0]]),
            "3 x 2": lambda rng: np.array([[4.5, 2.0], [np.nan, 3.0], [np.nan, np.nan]]),
        },
        log_evidence=matrix_factorization_log_evidence,
        forms=("likelihood", "posterior"),
        unit_keys=("users_precision", "users_natural_mean"),
        checked_small={"n_components": 2, "effort": 0, "max_iter": 15, "gibbs_sweeps": 0},
        # Fits of equal data in another form end after as many passes, whatever rounding does.
        checked_form={"tol": 0.0},
        checked=(
            {"n_components": 2, "annealing": "none", "batch_size": 10, "max_iter": 10},
            {
                "n_components": 2,
                "annealing": "none",
                "biases": False,
                "fit_intercept": False,
                "clip": False,
                "max_iter": 15,
            },
            {
                "n_components": 2,
                "noise_variance": "auto",
                "factor_variance": "auto",
                "hierarchical": True,
                "user_scales": True,
                "gibbs_sweeps": 0,
                "effort": 0,
            },
        ),
        expected_failures=dict.fromkeys(
            (
                "check_sample_weight_equivalence_on_dense_data",
                "check_sample_weight_equivalence_on_sparse_data",
            ),
            ExpectedFailure(
                "A weight of 2 is a second user to every update, but not to the random draws of "
                "minibatches, of weights per rating, of starts and noise per user, or of Gibbs "
                "sampling.",
                lambda est: (
                    est.batch_size is not None
                    or (est.hierarchical and est.gibbs_sweeps != 0)
                    or annealing_of(est) in ("stochastic", "svi_plus", "proximity")
                ),
            ),
        ),
    ),
]
