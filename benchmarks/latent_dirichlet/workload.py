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
    online_rounds : int
        Number of repetitions of whole online fits, each with another seed.
    starts : int
        Number of fresh interpreters with an empty cache, and also of those with a full cache.
    topics : tuple of int
        Numbers of topics (K) in the section on the local step.
    many, online_topics : int
        K in the sections on threads and memory, and in the online fits.
    vocabularies : tuple of int
        Numbers of words (V) into which documents are hashed, from the smallest on.
    hashed_batches : int
        Number of batches of these documents.
    structured_words : int
        V in the section on structured inference.
    absent_vocabularies : tuple of int
        V in the section on words that no document has, besides the words of the documents.
    dtypes : tuple of type
        Precisions of the counts.
    many_documents, passes_of_many : int
        Number of documents out of core, and of passes over them.
    """

    rounds: int = 5
    online_rounds: int = 3
    starts: int = 3
    topics: tuple[int, ...] = (20, 50, 100)
    many: int = 100
    online_topics: int = 50
    vocabularies: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    hashed_batches: int = 20
    structured_words: int = 7000
    absent_vocabularies: tuple[int, ...] = (2**17, 2**20)
    dtypes: tuple[type, ...] = DTYPES
    many_documents: int = 1_000_000
    passes_of_many: int = 5
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n, online_rounds=n, starts=n)


FULL = Size()
QUICK = Size(
    rounds=1,
    online_rounds=1,
    starts=1,
    topics=(8,),
    many=16,
    online_topics=8,
    vocabularies=(500, 5000),
    hashed_batches=5,
    structured_words=500,
    absent_vocabularies=(5000,),
    dtypes=(np.float64,),
    many_documents=200,
    passes_of_many=1,
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
