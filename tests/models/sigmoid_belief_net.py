"""Sigmoid belief nets, described for the common tests of models that are trained by gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from plain_sigmoid_belief_net import log_likelihoods

from models._entry import Entry, ExpectedFailure
from sklearn_anneal import AnnealedSigmoidBeliefNet

CHANGED = "conjugate_update"


def stripes(rng: np.random.Generator, n: int, d: int = 6) -> np.ndarray:
    """Binary rows with two kinds of stripes, and some noise."""
    kinds = np.array([np.arange(d) % 2, np.arange(d) < d // 2], dtype=float)
    return np.abs(kinds[rng.integers(2, size=n)] - (rng.random((n, d)) < 0.1))


def small_sigmoid_belief_net(**params: Any) -> AnnealedSigmoidBeliefNet:
    settings = {
        "hidden_layer_sizes": (4, 3),
        "n_samples": 3,
        "max_iter": 5,
        "batch_size": None,
        "learning_rate_init": 0.02,
        "random_state": 0,
    }
    return AnnealedSigmoidBeliefNet(**(settings | params))


def log_evidence(estimator: Any, X: np.ndarray) -> float:
    """log p(X) at the fitted parameters, by enumeration of all states of the hidden units."""
    q = {f"W{i + 1}": w for i, w in enumerate(estimator.coefs_)}
    q |= {f"b{i}": b for i, b in enumerate(estimator.intercepts_)}
    sizes = (X.shape[1], *(len(w) for w in estimator.coefs_))
    return float(log_likelihoods(q, X, sizes).sum())


ENTRIES = [
    Entry(
        "sigmoid_belief_net",
        make=small_sigmoid_belief_net,
        data=stripes,
        variants={
            "two_layers": {},
            "one_layer": {"hidden_layer_sizes": 3, "n_samples": 1, "optimizer": "rmsprop"},
            "drawn": {"binarize": "sample", "optimizer": "sgd"},
        },
        tiny={"D=6": lambda rng: stripes(rng, 12)},
        log_evidence=log_evidence,
        checked_small={"hidden_layer_sizes": (2,), "n_samples": 2},
        checked_form={"binarize": 0.0, "learning_rate_init": 0.02},
        checked=({"hidden_layer_sizes": (3, 2), "early_stopping": True, "annealing": "none"},),
        expected_failures={
            f"check_sample_weight_equivalence_on_{form}_data": ExpectedFailure(
                "A row with a weight of 2 has one set of draws, and two equal rows have two.",
                lambda est: True,
            )
            for form in ("dense", "sparse")
        },
        refused=lambda params: (
            dict.fromkeys(("reheating", "stochastic", "local_tempering", "structured"), CHANGED)
            | {"tempering": "log_partition"}
        ),
    ),
]
