"""Sizes, corpora and models that all measurements of the speed of topic models use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.models.topics import LatentDirichlet

from ..common.priors import PEER_OF_TOPICS
from .data import available

DTYPES = (np.float64, np.float32)


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    rounds : int
        Number of interleaved repetitions.
    topics : tuple of int
        Numbers of topics (K) in the section on the local step.
    online_topics : int
        K in the other sections.
    absent_vocabularies : tuple of int
        V in the section on words that no document has, besides the words of the documents.
    dtypes : tuple of type
        Precisions of the counts.
    """

    rounds: int = 5
    topics: tuple[int, ...] = (20, 50, 100)
    online_topics: int = 50
    absent_vocabularies: tuple[int, ...] = (2**17, 2**20)
    dtypes: tuple[type, ...] = DTYPES
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
QUICK = Size(
    rounds=1,
    topics=(8,),
    online_topics=8,
    absent_vocabularies=(5000,),
    dtypes=(np.float64,),
    quick=True,
)


def names(size: Size, wanted: tuple[str, ...] = ("20 Newsgroups", "AP", "NIPS")) -> list[str]:
    """The corpora of a section whose files are there."""
    return available(["drawn"] if size.quick else wanted)


# Models


def estimator(n_components: int, **parameters: Any) -> AnnealedLatentDirichletAllocation:
    """An estimator without annealing, with the priors and the batches of scikit-learn."""
    usual = {**PEER_OF_TOPICS, "batch_size": 128, "random_state": 0}
    return AnnealedLatentDirichletAllocation(
        n_components, annealing="none", **{**usual, **parameters}
    )


def model_of(
    n_components: int, n_words: int, n_iter: int, dtype: Any, tol: float = 0.0
) -> LatentDirichlet:
    """The model with priors of 1/K and a given number of iterations per document."""
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
