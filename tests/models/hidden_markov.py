"""Hidden Markov models, described for the common tests by one entry per emission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from peer_priors import PEER_OF_SEQUENCES
from plain_hidden_markov import hidden_markov_log_evidence

from models._entry import Entry, ExpectedFailure, has_auto
from sklearn_anneal import AnnealedHMM

N_SYMBOLS = 4
ASYMMETRIC_CHAIN = {
    "startprob_prior": 0.7,
    "transmat_prior": [[0.5, 0.2, 0.8], [1.1, 0.4, 0.3], [0.6, 0.9, 1.3]],
    "sticky": 2.0,
}
FORBIDDING_CHAIN = {
    "startprob_prior": [0.7, 0.0, 0.4],
    "transmat_prior": [[0.5, 0.2, 0.0], [0.0, 0.4, 0.3], [0.6, 0.0, 1.3]],
}
LEARNED_CHAIN = {"startprob_prior": "auto", "transmat_prior": "auto", "sticky": 0.5}


class SequenceList(list):
    """A list of sequences with the method ``astype`` of an array."""

    def astype(self, dtype: Any) -> SequenceList:
        return SequenceList(X.astype(dtype) for X in self)


def frames_of(emission: str, rng: np.random.Generator, states: np.ndarray) -> np.ndarray:
    """Draw one frame for each entry of ``states``, of three states; every tenth is missing."""
    n = len(states)
    missing = rng.random(n) < 0.1
    if emission == "categorical":
        usual = rng.random(n) < 0.7
        symbols = np.where(usual, states, rng.integers(N_SYMBOLS, size=n)).astype(float)
        symbols[missing] = -1.0
        return symbols[:, None]
    centers = np.array([[4.0, 1.0], [1.0, 6.0], [8.0, 8.0]])[states]
    X = {
        "gaussian": lambda: 10.0 + centers + rng.standard_normal((n, 2)),
        "poisson": lambda: rng.poisson(centers).astype(float),
        "negative_binomial": lambda: rng.poisson(centers * rng.gamma(2.0, 0.5, (n, 2))).astype(
            float
        ),
        "zero_inflated_poisson": lambda: (rng.poisson(centers) * (rng.random((n, 2)) < 0.7)).astype(
            float
        ),
        "bernoulli": lambda: (rng.random((n, 2)) < centers / 9.0).astype(float),
    }[emission]()
    X[missing] = np.nan
    return X


def mixed_frames(rng: np.random.Generator, states: np.ndarray) -> np.ndarray:
    """Frames with a column of every kind, of which single cells are missing."""
    columns = [
        frames_of("categorical", rng, states),
        *(frames_of(emission, rng, states)[:, :1] for emission in ("bernoulli", "poisson")),
        frames_of("gaussian", rng, states),
    ]
    X = np.hstack(columns)
    return np.where(X == -1.0, np.nan, X)


BLOCKS = [
    ("symbols", "categorical", [0]),
    ("bits", "bernoulli", [1]),
    ("counts", "poisson", [2]),
    ("sizes", "gaussian", [3, 4]),
]


def chains(
    emission: str, lengths: tuple[int, int] = (1, 6)
) -> Callable[[np.random.Generator, int], SequenceList]:
    """Sequences of three states that stay for some frames."""

    def make(rng: np.random.Generator, n: int) -> SequenceList:
        ends = np.cumsum(rng.integers(lengths[0], lengths[1] + 1, size=n))
        moves = rng.random(ends[-1]) < 0.3
        # At each move a random number is added to the state. The sum modulo 3 is uniform, so that
        # the move draws the state anew.
        states = np.cumsum(np.where(moves, rng.integers(3, size=ends[-1]), 0)) % 3
        frames = mixed_frames(rng, states) if emission == "blocks" else None
        if frames is None:
            frames = frames_of(emission, rng, states)
        return SequenceList(np.split(frames, ends[:-1]))

    return make


def tiny_chains(emission: str) -> dict[str, Callable[[np.random.Generator], SequenceList]]:
    """Six frames in three sequences; one of the frames is missing."""

    def make(rng: np.random.Generator) -> SequenceList:
        frames = frames_of(emission, rng, np.array([0, 0, 1, 1, 2, 0]))
        frames[np.isnan(frames)] = 1.0
        frames[frames < 0] = 1.0
        frames[1] = -1.0 if emission == "categorical" else np.nan
        return SequenceList(np.split(frames, [3, 5]))

    return {"6 frames": make}


def hidden_markov(emission: str, **fields: Any) -> Entry:
    """The entry of an emission; priors that ``variants`` give are for two columns."""
    declared = {"n_symbols": N_SYMBOLS} if emission in ("categorical", "blocks") else {}
    enumerated = emission != "blocks"

    def make(n_components: Any = 3, **params: Any) -> AnnealedHMM:
        # If a test has fewer states than these priors, it uses a part of them.
        for name, shape in (("startprob_prior", 1), ("transmat_prior", 2), ("duration", 1)):
            if np.ndim(params.get(name)) and n_components != "auto":
                params[name] = np.asarray(params[name])[(slice(n_components),) * shape]
        kind = BLOCKS if emission == "blocks" else emission
        settings = {"emission": kind, "max_iter": 5, "random_state": 0, "reg_covar": 0.0}
        settings |= PEER_OF_SEQUENCES | declared | params
        return AnnealedHMM(n_components, **settings)

    return Entry(
        f"hidden_markov_{emission}",
        make=make,
        data=chains(emission),
        several_chunks=chains(emission, (5, 10)),
        tiny=tiny_chains(emission) if enumerated else {},
        log_evidence=hidden_markov_log_evidence if enumerated else None,
        repeat=lambda X, counts: SequenceList(
            X[i] for i in np.repeat(np.arange(len(counts)), counts)
        ),
        row_weights=lambda X, weights: np.repeat(weights, [len(sequence) for sequence in X]),
        **({"learns": has_auto} | fields),
    )


REFUSED_COUNTS = {
    "tempering": "log partition function",
    "local_tempering": "log partition function",
}


def of_counts(
    emission: str,
    exact: tuple[tuple[dict[str, Any], str], ...] = (({"n_components": 1}, "6 frames"),),
    learns: Callable[[dict[str, Any]], bool] = has_auto,
    **priors: float,
) -> Entry:
    """The entry of an emission of counts, with further priors beside that of its rates."""
    learned = ("lambdas_prior", "lambdas_weight", *priors)
    return hidden_markov(
        emission,
        variants={
            "default": {},
            "sticky": ASYMMETRIC_CHAIN | {"lambdas_prior": [2.0, 0.6]} | priors,
            "learned": LEARNED_CHAIN | dict.fromkeys(learned, "auto"),
        },
        exact=exact,
        learns=learns,
        refused=lambda params: REFUSED_COUNTS,
        common_checks=False,
    )


ENTRIES = [
    hidden_markov(
        "gaussian",
        variants={
            **{t: {"covariance_type": t} for t in ("full", "tied", "diag", "spherical")},
            "sticky": ASYMMETRIC_CHAIN | {"beta_prior": 0.3, "dof_prior": 4.0},
            "forbidding": FORBIDDING_CHAIN,
            "learned": LEARNED_CHAIN
            | dict.fromkeys(("means_prior", "beta_prior", "dof_prior", "scale_prior"), "auto"),
        },
        exact=(
            ({"n_components": 1}, "6 frames"),
            ({"n_components": 1, "covariance_type": "tied"}, "6 frames"),
        ),
        checked=(
            {"n_components": 2, "annealing": "none", "batch_size": 10, "max_iter": 10},
            {
                "n_components": 2,
                "covariance_type": "tied",
                "init_params": "random",
                "effort": 0,
                "max_iter": 20,
            },
        ),
        expected_failures=dict.fromkeys(
            (
                "check_sample_weights_not_overwritten",
                "check_sample_weight_equivalence_on_dense_data",
            ),
            ExpectedFailure(
                "The rows of one array are one sequence, and it is sequences that have weights: "
                "rows of different weights are refused.",
                lambda est: True,
            ),
        )
        | dict.fromkeys(
            ("check_methods_sample_order_invariance", "check_methods_subset_invariance"),
            ExpectedFailure(
                "score_samples returns a pair, as hmmlearn's does: the rows of one array are one "
                "sequence, and its log-likelihood is not a sum over rows.",
                lambda est: True,
            ),
        ),
    ),
    hidden_markov(
        "categorical",
        variants={
            "symmetric": {},
            "sticky": ASYMMETRIC_CHAIN | {"emissionprob_prior": [0.3, 0.9, 1.4, 0.6]},
            "forbidding": FORBIDDING_CHAIN,
            "learned": LEARNED_CHAIN | {"emissionprob_prior": "auto"},
            "lasting": LEARNED_CHAIN | {"duration": [2, 1, 2]},
        },
        exact=(({"n_components": 1}, "6 frames"),),
        common_checks=False,
    ),
    of_counts("poisson", lambdas_weight=0.3),
    # The shapes of counts are learned, whatever the priors are.
    of_counts("negative_binomial", lambdas_weight=0.3, learns=lambda params: True),
    of_counts("zero_inflated_poisson", emissionprob_prior=0.7, exact=()),
    hidden_markov(
        "bernoulli",
        variants={
            "uniform": {},
            "sticky": ASYMMETRIC_CHAIN | {"emissionprob_prior": [0.4, 1.7]},
            "learned": LEARNED_CHAIN | {"emissionprob_prior": "auto"},
        },
        exact=(({"n_components": 1}, "6 frames"),),
        common_checks=False,
    ),
    hidden_markov(
        "blocks",
        variants={
            "independent": {"covariance_type": "independent"},
            "full": ASYMMETRIC_CHAIN,
            "learned": LEARNED_CHAIN
            | dict.fromkeys(("emissionprob_prior", "lambdas_prior", "scale_prior"), "auto"),
        },
        refused=lambda params: REFUSED_COUNTS,
        common_checks=False,
    ),
]
