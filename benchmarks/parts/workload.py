"""Sizes and models that all measurements of data in parts use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
)

from ..common.priors import PEER_OF_TOPICS
from .data import N_COLUMNS, N_FACTORS, N_STATES, N_TOPICS


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    parts : int
        Number of parts in files.
    rows, documents : int
        Number of rows, and of documents, of a part in a file.
    passes : int
        Number of passes over files.
    format_rows : int
        Number of rows of a part whose formats are compared.
    rounds : int
        Number of interleaved repetitions.
    on_cluster : dict of str to int
        Number of data points of a part on a cluster.
    on_cluster_parts : int
        Number of parts on a cluster, before it is doubled twice.
    many_passes : int
        Number of passes over which tasks are counted.
    groups : tuple of int
        Numbers of parts without work whose visits are timed.
    repeats : int
        Number of repetitions of short calls.
    """

    parts: int = 50
    rows: int = 1_000_000
    documents: int = 200_000
    passes: int = 3
    format_rows: int = 250_000
    rounds: int = 9
    on_cluster: dict[str, int] = field(
        default_factory=lambda: {"rows": 50_000, "documents": 5_000, "counts": 2_000}
    )
    on_cluster_parts: int = 4
    many_passes: int = 100
    groups: tuple[int, ...] = (1, 8, 64, 128)
    repeats: int = 15
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
QUICK = Size(
    parts=2,
    rows=2000,
    documents=300,
    passes=2,
    format_rows=300,
    rounds=1,
    on_cluster={"rows": 300},
    on_cluster_parts=2,
    many_passes=4,
    groups=(1, 4),
    repeats=2,
    quick=True,
)

# Fits without annealing that end after the passes that they are given.
_FIXED = {"annealing": "none", "random_state": 0, "tol": 0}
# So many iterations over every document, as in the other measurements of topics.
_ITERATIONS = 10


def mixture(**parameters: Any) -> AnnealedBayesianGaussianMixture:
    return AnnealedBayesianGaussianMixture(n_components=10, **{**_FIXED, **parameters})


def topics(**parameters: Any) -> AnnealedLatentDirichletAllocation:
    given = {**_FIXED, **PEER_OF_TOPICS, "max_doc_update_iter": _ITERATIONS, **parameters}
    return AnnealedLatentDirichletAllocation(N_TOPICS, **given)


def factorization(**parameters: Any) -> AnnealedGammaProcessNMF:
    return AnnealedGammaProcessNMF(n_components=10, **{**_FIXED, **parameters})


def ratings(**parameters: Any) -> AnnealedPMF:
    return AnnealedPMF(N_FACTORS, **{**_FIXED, **parameters})


def sequences(**parameters: Any) -> AnnealedHMM:
    return AnnealedHMM(N_STATES, **{**_FIXED, **parameters})


MODELS: dict[str, Callable[..., Any]] = {
    "rows": mixture,
    "documents": topics,
    "counts": factorization,
    "ratings": ratings,
    "frames": sequences,
}
NAMES = {
    "rows": f"Gaussian mixture, K = 10, full covariances, D = {N_COLUMNS}",
    "documents": f"topics, K = {N_TOPICS}",
    "counts": "NMF, K = 10",
    "ratings": f"ratings, K = {N_FACTORS}",
    "frames": f"hidden Markov model, K = {N_STATES}, D = {N_COLUMNS}",
}
