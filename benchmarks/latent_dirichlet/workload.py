"""What the measurements of the speed of topic models share: sizes, corpora, models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.models.latent_dirichlet import LatentDirichlet

from .data import available

DTYPES = (np.float64, np.float32)


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes
    ----------
    rounds : int
        Interleaved repetitions.
    online_rounds : int
        The same for whole online fits; each has a seed of its own.
    starts : int
        Fresh interpreters with an empty cache, and as many with a full one.
    topics : tuple of int
        K of the local step.
    many, online_topics : int
        K of the sections on threads and memory, and of the online fits.
    """

    rounds: int = 5
    online_rounds: int = 3
    starts: int = 3
    topics: tuple[int, ...] = (20, 50, 100)
    many: int = 100
    online_topics: int = 50
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n, online_rounds=n, starts=n)


FULL = Size()
QUICK = Size(rounds=2, online_rounds=1, starts=1, topics=(8,), many=16, online_topics=8, quick=True)


def names(size: Size, wanted: tuple[str, ...] = ("20 Newsgroups", "AP", "NIPS")) -> list[str]:
    """The corpora of a section that are there."""
    return available(["drawn"] if size.quick else wanted)


# Models


def estimator(n_components: int, **parameters: Any) -> AnnealedLatentDirichletAllocation:
    """An estimator without annealing."""
    return AnnealedLatentDirichletAllocation(
        n_components, annealing="none", **{"random_state": 0, **parameters}
    )


def model_of(
    n_components: int, n_words: int, n_iter: int, dtype: Any, tol: float = 0.0
) -> LatentDirichlet:
    """The model with priors of 1/K and as many iterations per document as said."""
    share = 1.0 / n_components
    return LatentDirichlet(
        n_components,
        n_words,
        np.full(n_components, share),
        np.full(n_words, share),
        max_doc_update_iter=n_iter,
        mean_change_tol=tol,
        dtype=dtype,
    )
