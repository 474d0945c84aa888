"""Gaussian mixtures, described for the common tests."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from enumeration import gaussian_mixture_log_evidence
from peer_priors import MIXTURE_PRIORS, PEER_OF_MIXTURES
from quadrature import integral_of_density

from models._entry import Entry, ExpectedFailure, annealing_of, has_auto
from sklearn_anneal import AnnealedBayesianGaussianMixture

COVARIANCES = ("full", "tied", "diag", "spherical")
ONE_FULL_COMPONENT = {"n_components": 1, "covariance_type": "full"}


def clusters(n_features: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Rows of three overlapping clusters, of different sizes, far from the origin."""

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        centers = 2.0 * np.eye(3, n_features) + 10.0
        labels = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        return centers[labels] + 0.7 * rng.standard_normal((n, n_features))

    return make


def small_gaussian_mixture(**params: Any) -> AnnealedBayesianGaussianMixture:
    settings = {"n_components": 3, "reg_covar": 0.0, "max_iter": 5, "random_state": 0}
    return AnnealedBayesianGaussianMixture(**(settings | PEER_OF_MIXTURES | params))


def gaussian_mixture_variants() -> dict[str, dict[str, Any]]:
    priors = ("dirichlet_process", "dirichlet_distribution")
    variants = {
        f"{covariance}-{prior.split('_')[1]}-{factorization}": {
            "covariance_type": covariance,
            "weight_concentration_prior_type": prior,
            "factorization": factorization,
        }
        for factorization, covariance, prior in product(
            ("joint", "independent"), COVARIANCES, priors
        )
    }
    learned = variants["full-process-joint"] | dict.fromkeys(MIXTURE_PRIORS, "auto")
    return variants | {"learned": learned}


ENTRIES = [
    Entry(
        "gaussian_mixture",
        make=small_gaussian_mixture,
        data=clusters(3),
        variants=gaussian_mixture_variants(),
        # Each covariance meets both factorizations, and one prior of weights with each.
        seldom=tuple(
            f"{covariance}-{prior}-{factorization}"
            for i, covariance in enumerate(COVARIANCES)
            for prior, factorization in (
                (("distribution", "joint"), ("process", "independent"))
                if i % 2 == 0
                else (("process", "joint"), ("distribution", "independent"))
            )
        ),
        learns=has_auto,
        tiny={"D=1": lambda rng: clusters(1)(rng, 6), "D=2": lambda rng: clusters(2)(rng, 6)},
        log_evidence=gaussian_mixture_log_evidence,
        exact=(
            (ONE_FULL_COMPONENT, "D=2"),
            (
                ONE_FULL_COMPONENT | {"weight_concentration_prior_type": "dirichlet_distribution"},
                "D=2",
            ),
            *(({"n_components": 1, "covariance_type": t}, "D=1") for t in ("tied", "diag")),
            ({"n_components": 1, "covariance_type": "spherical"}, "D=1"),
        ),
        total_probability=integral_of_density,
        spaces={"D=1": clusters(1), "D=2": clusters(2)},
        checked_small={"n_components": 2, "effort": 0, "init_params": "k-means++"},
        checked=(
            {"n_components": 2, "batch_size": 10, "effort": 0, "max_iter": 10},
            {"n_components": 2, "annealing": "none", "batch_size": 10, "max_iter": 10},
            {"n_components": 2, "factorization": "independent", "effort": 0},
            {
                "n_components": 2,
                "covariance_type": "tied",
                "init_params": "k-means++",
                "annealing": "none",
            },
        ),
        expected_failures={
            # Stochastic annealing starts from the moments of the data.
            "check_sample_weight_equivalence_on_dense_data": ExpectedFailure(
                "A weight of 2 is a second row to every update, but not to the random draws of a "
                "start, of minibatches, or of weights per row: KMeans itself fails this check.",
                lambda est: annealing_of(est) != "stochastic" and est.n_components > 1,
            ),
        },
    ),
]
