"""Ways to train topics that begin with one prior of the topic proportions or another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.estimators._topic_training import TopicTraining
from sklearn_anneal.models.latent_dirichlet import LatentDirichlet

# Number of documents in a batch of a stream.
BATCH = 256


class Way(NamedTuple):
    """A way to train topics, without the topics of tokens that are kept.

    Attributes
    ----------
    words : str
        Its description.
    parameters : dict
        Arguments of the estimator.
    is_stream : bool, default=False
        Whether ``partial_fit`` sees each document once; otherwise ``fit`` runs to its end.
    knows_size : bool, default=False
        Whether a stream is told how many documents will come.
    """

    words: str
    parameters: dict[str, Any]
    is_stream: bool = False
    knows_size: bool = False


class FirstPrior(NamedTuple):
    """A way to train topics, and the prior with which it begins.

    Attributes
    ----------
    way : str
        A key of ``WAYS``.
    first : str
        A key of ``PRIORS``.
    """

    way: str
    first: str

    def settings(self, n_components: int) -> dict[str, Any]:
        """What determines a fit."""
        way = WAYS[self.way]
        recommended = LatentDirichlet.recommended.get(way.parameters.get("annealing", "structured"))
        batch = {"batch": BATCH} if way.is_stream else {}
        size = {"total_samples": "all"} if way.knows_size else {}
        first = {"first": PRIORS[self.first](n_components)}
        return {**(recommended or {}), **way.parameters, **batch, **size, **first}

    def fit(self, X: csr_matrix, k: int, seed: int) -> AnnealedLatentDirichletAllocation:
        """Train K topics."""
        way, alpha = WAYS[self.way], PRIORS[self.first](k)

        def first_prior(training: TopicTraining, n_components: int) -> float:
            return alpha

        lda = AnnealedLatentDirichletAllocation(k, random_state=seed, **way.parameters)
        if way.knows_size:
            lda.set_params(total_samples=X.shape[0])
        names = ("first_prior", "first_prior_of_stream")
        with patch.multiple(TopicTraining, **dict.fromkeys(names, first_prior)):
            if not way.is_stream:
                return lda.fit(X)
            for begin in range(0, X.shape[0], BATCH):
                lda.partial_fit(X[begin : begin + BATCH])
        return lda


WAYS = {
    "stream": Way("`partial_fit` with the default method", {}, is_stream=True),
    "stream of known size": Way(
        "the same with `total_samples`", {}, is_stream=True, knows_size=True
    ),
    "plain stream": Way("`partial_fit` without annealing", {"annealing": "none"}, is_stream=True),
    "plain stream of known size": Way(
        "the same with `total_samples`", {"annealing": "none"}, is_stream=True, knows_size=True
    ),
    "online": Way("`fit` in minibatches with structured inference", {"learning_method": "online"}),
    "deterministic": Way("`fit` with deterministic annealing", {"annealing": "deterministic"}),
}
PRIORS: dict[str, Callable[[int], float]] = {"0.1": lambda k: 0.1, "5 / K": lambda k: 5 / k}


def default_of(way: str, n_components: int) -> str:
    """The prior with which the estimator begins, a key of ``PRIORS``."""
    lda = AnnealedLatentDirichletAllocation(n_components, **WAYS[way].parameters)
    training = lda._training()
    first = training.first_prior_of_stream if WAYS[way].is_stream else training.first_prior
    alpha = first(n_components)
    return next(name for name, prior in PRIORS.items() if prior(n_components) == alpha)
