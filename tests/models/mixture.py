"""Mixtures of any columns, described for the common tests by one entry per emission."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from enumeration import mixture_log_evidence
from peer_priors import PEER_OF_COLUMNS
from quadrature import integral_of_density

from models._entry import Entry, ExpectedFailure, has_auto
from sklearn_anneal import AnnealedBayesianMixture

N_CATEGORIES = (3, 2, 3)
BLOCKS = [
    ("binary", "bernoulli", [1]),
    ("categories", "categorical", [0, 4]),
    ("counts", "poisson", [2]),
    ("sizes", "gaussian", [3]),
]


def table(
    emission: Any, holes: float, repeats: int = 1
) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Rows of three overlapping components, of different sizes, with some missing cells.

    There are three columns, or some multiple of them, so that few rows are equal.
    """

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        z = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        corners = np.array([[0.1, 0.8, 0.3], [0.9, 0.3, 0.2], [0.6, 0.2, 0.9]])[z]
        corners = np.tile(corners, repeats)
        size = np.tile(N_CATEGORIES, repeats)

        def categories() -> np.ndarray:
            usual = rng.random(corners.shape) < 0.7
            return np.where(usual, z[:, None] % size, rng.integers(size, size=usual.shape))

        makers = {
            "bernoulli": lambda: (rng.random(corners.shape) < corners).astype(float),
            "categorical": lambda: categories().astype(float),
            "poisson": lambda: rng.poisson(12.0 * corners).astype(float),
            "negative_binomial": lambda: rng.poisson(12.0 * corners * rng.gamma(2.0, 0.5, (n, 3))),
            "zero_inflated_poisson": lambda: (
                rng.poisson(6.0 * corners) * (rng.random((n, 3)) < 0.7)
            ),
            "gaussian": lambda: 10.0 + 4.0 * corners + 0.7 * rng.standard_normal((n, 3)),
        }
        if isinstance(emission, str):
            X = makers[emission]().astype(float)
        else:
            columns = [makers[kind]() for kind in ("categorical", "bernoulli", "poisson")]
            X = np.column_stack(
                [columns[0][:, 0], columns[1][:, 0], columns[2][:, 1], 4.0 * corners[:, 1]]
            )
            X = np.column_stack([X, columns[0][:, 2]])
            X[:, 3] += 0.5 * rng.standard_normal(n)
        X[rng.random(X.shape) < holes] = np.nan
        return X

    return make


def tiny(emission: Any) -> dict[str, Callable[[np.random.Generator], np.ndarray]]:
    """Six rows, of which one has a missing cell and one has nothing else."""

    def make(rng: np.random.Generator) -> np.ndarray:
        X = table(emission, 0.0)(rng, 6)
        X[1, 0] = np.nan
        X[4] = np.nan
        return X

    return {"6 rows": make}


def total_over_categories(estimator: Any) -> float:
    """Σ exp(score_samples) over all rows that are possible."""
    sizes = getattr(estimator, "n_categories_", np.full(estimator.n_features_in_, 2))
    rows = np.array(list(product(*(range(size) for size in sizes))))
    return float(np.exp(estimator.score_samples(rows)).sum())


def total_over_counts(estimator: Any) -> float:
    """Σ exp(score_samples) over all counts of a single column that matter."""
    return float(np.exp(estimator.score_samples(np.arange(20_000)[:, None])).sum())


def mixture(emission: Any, name: str, **fields: Any) -> Entry:
    """The entry of an emission."""
    declared = {
        # All three columns of small data, and the four times as many of others, have 3 at most.
        "categorical": {"n_categories": 3},
        "blocks": {"n_categories": {"categories": [3, 3]}},
    }

    def make(**params: Any) -> AnnealedBayesianMixture:
        settings = {"n_components": 3, "emission": emission, "max_iter": 5, "random_state": 0}
        settings |= {"reg_covar": 0.0, **PEER_OF_COLUMNS, **declared.get(name, {})}
        return AnnealedBayesianMixture(**(settings | params))

    return Entry(
        f"mixture_{name}",
        make=make,
        data=table(emission, 0.1, 4 if name in ("bernoulli", "categorical") else 1),
        tiny=tiny(emission),
        log_evidence=mixture_log_evidence,
        **(
            {
                "exact": (({"n_components": 1}, "6 rows"),),
                "learns": has_auto,
                "common_checks": False,
            }
            | fields
        ),
    )


PRIORS = ("dirichlet_process", "dirichlet_distribution")
WEIGHTS = {
    prior.split("_")[1]: {"weight_concentration_prior_type": prior, "emissionprob_prior": 0.6}
    for prior in PRIORS
}
REFUSED_COUNTS = {
    "tempering": "log partition function",
    "local_tempering": "log partition function",
}

ENTRIES = [
    mixture(
        "bernoulli",
        "bernoulli",
        variants=WEIGHTS
        | {"learned": dict.fromkeys(("emissionprob_prior", "weight_concentration_prior"), "auto")},
        total_probability=total_over_categories,
        spaces={"2³ rows": table("bernoulli", 0.1)},
    ),
    mixture(
        "categorical",
        "categorical",
        variants={
            "process": {},
            "distribution": WEIGHTS["distribution"],
            "learned": {"emissionprob_prior": "auto"},
        },
        total_probability=total_over_categories,
        spaces={"3³ rows": table("categorical", 0.1)},
    ),
    mixture(
        "poisson",
        "poisson",
        variants={
            "default": {"lambdas_prior": 1.4, "lambdas_weight": 0.3},
            "learned": {"lambdas_prior": "auto", "lambdas_weight": "auto"},
        },
        refused=lambda params: REFUSED_COUNTS,
        total_probability=total_over_counts,
        spaces={"counts": lambda rng, n: table("poisson", 0.1)(rng, n)[:, :1]},
    ),
    mixture(
        "negative_binomial",
        "negative_binomial",
        variants={
            "default": {"lambdas_prior": 1.4, "lambdas_weight": 0.3},
            "learned": {"lambdas_prior": "auto", "lambdas_weight": "auto"},
        },
        # The shapes of counts are learned, whatever the priors are.
        learns=lambda params: True,
        refused=lambda params: REFUSED_COUNTS,
        total_probability=total_over_counts,
        spaces={"counts": lambda rng, n: table("negative_binomial", 0.1)(rng, n)[:, :1]},
    ),
    mixture(
        "zero_inflated_poisson",
        "zero_inflated_poisson",
        variants={
            "default": {"lambdas_prior": 1.4, "lambdas_weight": 0.3, "emissionprob_prior": 0.7},
            "learned": dict.fromkeys(
                ("lambdas_prior", "lambdas_weight", "emissionprob_prior"), "auto"
            ),
        },
        # Which zeros have a reason of their own is not independent of the parameters.
        exact=(),
        refused=lambda params: REFUSED_COUNTS,
        total_probability=total_over_counts,
        spaces={"counts": lambda rng, n: table("zero_inflated_poisson", 0.1)(rng, n)[:, :1]},
    ),
    mixture(
        "gaussian",
        "gaussian",
        variants={
            "default": {"beta_prior": 0.7, "dof_prior": 2.5},
            "learned": dict.fromkeys(
                ("means_prior", "beta_prior", "dof_prior", "scale_prior"), "auto"
            ),
        },
        total_probability=integral_of_density,
        spaces={"one column": lambda rng, n: table("gaussian", 0.1)(rng, n)[:, :1]},
        common_checks=True,
        checked_form={"emission": "gaussian"},
        checked=(
            {"n_components": 2, "batch_size": 10, "effort": 0, "max_iter": 10},
            {"n_components": 2, "annealing": "none"},
        ),
        expected_failures={
            "check_sample_weight_equivalence_on_dense_data": ExpectedFailure(
                "A weight of 2 is a second row to every update, but not to the random draws of a "
                "start, of minibatches, or of weights per row: KMeans itself fails this check.",
                lambda est: est.n_components > 1,
            ),
        },
    ),
    mixture(
        BLOCKS,
        "blocks",
        variants={
            "default": {},
            "learned": dict.fromkeys(PEER_OF_COLUMNS, "auto"),
            "full": {"covariance_type": "full"},
        },
        refused=lambda params: REFUSED_COUNTS,
    ),
]
