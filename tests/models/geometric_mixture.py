"""Mixtures of geometric counts, the model that the page for developers adds to the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from enumeration import geometric_mixture_log_evidence
from geometric_mixture import AnnealedGeometricMixture
from scipy.special import betaln

from models._entry import Entry


def counts(n_features: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Rows of counts of three components, of different sizes, whose means differ."""

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        means = 0.5 + 8.0 * np.eye(3, n_features)
        labels = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        return rng.geometric(1.0 / (1.0 + means[labels])).astype(float) - 1.0

    return make


def small_geometric_mixture(**params: Any) -> AnnealedGeometricMixture:
    return AnnealedGeometricMixture(
        **{"n_components": 3, "max_iter": 5, "random_state": 0, **params}
    )


def sum_of_probabilities(estimator: AnnealedGeometricMixture) -> float:
    """Σ exp(score_samples) over all rows of one column.

    The tail has a closed form: p(x ≥ n | v) = (1 − v)^n, whose expectation is a ratio of two
    beta functions.
    """
    n = 2000
    head = np.exp(estimator.score_samples(np.arange(n, dtype=float)[:, None])).sum()
    q = estimator._context().q
    tail = np.exp(betaln(q["a"], q["b"] + n) - betaln(q["a"], q["b"]))[:, 0]
    return float(head + estimator.weights_ @ tail)


ENTRIES = [
    Entry(
        "geometric_mixture",
        make=small_geometric_mixture,
        data=counts(3),
        variants={"": {}},
        tiny={"D=1": lambda rng: counts(1)(rng, 6), "D=2": lambda rng: counts(2)(rng, 6)},
        log_evidence=geometric_mixture_log_evidence,
        exact=(({"n_components": 1}, "D=2"), ({"n_components": 1, "b_prior": 4.0}, "D=1")),
        total_probability=sum_of_probabilities,
        spaces={"D=1": counts(1)},
        # Its estimator is an example: the checks of scikit-learn are those of the base class.
        common_checks=False,
        refused=lambda params: {"local_tempering": "one temperature for all rows"},
    ),
]
