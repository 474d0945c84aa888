"""Fits behind the defaults of topics: what each changes, and what it is judged by."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.estimators._priors import prior_of_words
from sklearn_anneal.models import latent_dirichlet

from ..common.reproduction import BaseSpec
from .contestants import in_words, state_of
from .course import Judge
from .data import SHORT, parts
from .first_prior import PRIORS, WAYS, FirstPrior

# For these numbers of words the default η is a part of the key of a fit.
VOCABULARIES = 1_000, 16_000
# One in so many training documents judges.
EVERY = {
    "AP": 8,
    "NIPS": 8,
    "20 Newsgroups": 16,
    "baseball and hockey": 8,
    SHORT: 64,
    "drawn": 4,
}


class Choice(NamedTuple):
    """A way to fit topics.

    Attributes
    ----------
    words : str
        What differs from the default.
    parameters : callable
        ``parameters(n_components)`` returns arguments of the estimator.
    smallest : float or None
        The smallest number of tokens of a word that a topic keeps in the mean; None is the default.
    """

    words: str
    parameters: Callable[[int], dict[str, Any]] = lambda k: {}
    smallest: float | None = None

    def settings(self, n_components: int) -> dict[str, Any]:
        """What determines a fit, with defaults, whose change makes fits run again."""
        etas = [float(prior_of_words("scaled", n_components, v)[0]) for v in VOCABULARIES]
        smallest = latent_dirichlet._SMALLEST_MEAN if self.smallest is None else self.smallest
        return {
            "topic_word_prior": etas,
            **latent_dirichlet._RECOMMENDED_FOR_SAMPLER,
            **self.parameters(n_components),
            "smallest mean": smallest,
        }

    def fit(self, X: csr_matrix, k: int, seed: int) -> AnnealedLatentDirichletAllocation:
        """Fit K topics."""
        changed: Any = nullcontext()
        if self.smallest is not None:
            changed = patch.object(latent_dirichlet, "_SMALLEST_MEAN", self.smallest)
        lda = AnnealedLatentDirichletAllocation(k, random_state=seed, **self.parameters(k))
        with changed:
            return lda.fit(X)


def _of_topics_alone(k: int) -> dict[str, Any]:
    return {"topic_word_prior": 2 * k**-0.75}


def _of_few_passes(k: int) -> dict[str, Any]:
    return {"annealing": StructuredVI(n_passes=60)}


DEFAULT = "default"
CHOICES: dict[str, Choice] = {
    DEFAULT: Choice("nothing"),
    "any vocabulary": Choice("η is 2 / K^(3/4), whatever the number of words is", _of_topics_alone),
    "all fractions": Choice("the mean keeps all fractions of tokens", smallest=0.0),
    "both": Choice("both of these", _of_topics_alone, smallest=0.0),
    "sixty passes": Choice("60 passes instead of 300", _of_few_passes),
}
FIRST_PRIORS = {f"{way}, {first}": FirstPrior(way, first) for way in WAYS for first in PRIORS}
ALL: dict[str, Choice | FirstPrior] = {**CHOICES, **FIRST_PRIORS}


@cache
def prepared(corpus: str) -> tuple[csr_matrix, Judge]:
    """The documents to fit and those that judge, with the words that can be learned."""
    X = parts(corpus)[0].tocsr()
    judging = np.arange(X.shape[0]) % EVERY[corpus] == 3
    known = np.flatnonzero(np.asarray(X[~judging].sum(axis=0)).ravel() > 0)
    fitted = csr_matrix(X[~judging][:, known], dtype=np.float32)
    return fitted, Judge(csr_matrix(X[judging][:, known]))


@cache
def _warm(choice: str) -> None:
    """Load or compile the kernels, before the clock starts."""
    ALL[choice].fit(prepared("drawn")[0], 3, 0)


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a fit."""

    corpus: str
    n_components: int
    choice: str
    settings: str
    seed: int = 0

    @classmethod
    def of(cls, corpus: str, n_components: int, choice: str) -> Spec:
        return cls(corpus, n_components, choice, in_words(ALL[choice].settings(n_components)))

    @property
    def label(self) -> str:
        return f"{self.corpus}, K = {self.n_components}, {self.choice}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        X, judge = prepared(self.corpus)
        _warm(self.choice)
        with threadpool_limits(1):
            begun = time.process_time()
            lda = ALL[self.choice].fit(X, self.n_components, self.seed)
            seconds = time.process_time() - begun
            held_out = judge.log_likelihood(state_of(lda))
        bound = lda.lower_bound_ / float(X.sum())
        return {"held_out": held_out, "bound": bound, "seconds": seconds, "words": X.shape[1]}
