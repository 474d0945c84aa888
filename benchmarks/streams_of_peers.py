"""Streams of topics and of counts by other libraries, which read the same batches once.

scikit-learn's ``LatentDirichletAllocation`` and ``MiniBatchNMF`` have ``partial_fit``, and gensim's
``LdaModel`` has ``update``. One half of the tokens of each held-out row is predicted from the other
half, for topics by the same code for all libraries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation, MiniBatchNMF

from sklearn_anneal import AnnealedGammaProcessNMF, AnnealedLatentDirichletAllocation
from sklearn_anneal.metrics import split_documents

from .common.peers import is_there
from .peers.libraries import at_topics
from .suite import predictive
from .suite.families import Topics
from .suite.instances import Instance

try:
    from gensim.models import LdaModel
except ImportError:
    LdaModel = None

PEERS = {"gensim": LdaModel}
# The share of the margins of the table in the rates of factorisations without priors.
SMOOTHINGS = (0.0, 0.1)
SMALLEST = 1e-12

Batches = list[csr_matrix]
Score = Callable[[], float]


def _ours(cls: Any, k: int, seed: int, score: Callable[[Any], float], **how: Any) -> Any:
    def stream(batches: Batches) -> Score:
        est = cls(n_components=k, random_state=seed, **how)
        for batch in batches:
            est.partial_fit(batch)
        return lambda: score(est)

    return stream


# Topics


def _sklearn_topics(family: Topics, seed: int, how: dict[str, Any], batches: Batches) -> Score:
    k = family.model["n_components"]
    model = LatentDirichletAllocation(k, random_state=seed, **how)
    for batch in batches:
        model.partial_fit(batch)
    return lambda: at_topics(family, model.components_, model.doc_topic_prior_)()


def _bags(X: csr_matrix) -> list[list[tuple[int, int]]]:
    """The documents as gensim reads them."""
    return [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].astype(int).tolist(), strict=True))
        for a, b in pairwise(X.indptr)
    ]


def _gensim_topics(family: Topics, seed: int, passes: int, batches: Batches) -> Score:
    words = {word: str(word) for word in range(batches[0].shape[1])}
    how = {"alpha": "auto", "eta": "auto", "random_state": seed, "eval_every": None}
    size = max(batch.shape[0] for batch in batches)
    k = family.model["n_components"]
    model = LdaModel(num_topics=k, id2word=words, chunksize=size, passes=passes, **how)
    for batch in batches:
        model.update(_bags(batch))
    return lambda: at_topics(family, model.state.get_lambda(), model.alpha)()


def _of_topics(instance: Instance, seed: int, n: int) -> dict[str, Any]:
    family = Topics(instance)

    def score(est: Any) -> float:
        return float(predictive.topic_likelihood(est, family.test))

    ours = partial(_ours, AnnealedLatentDirichletAllocation, instance.n_components, seed, score)
    found = {
        "ours": ours(),
        "ours, updates alone": ours(max_iter=1),
    }
    # Steps of early batches are short by default, as is right for long streams.
    for name, how in {
        "scikit-learn": {},
        "scikit-learn, total_samples": {"total_samples": n},
        "scikit-learn, total_samples, learning_offset=1": {
            "total_samples": n,
            "learning_offset": 1,
        },
    }.items():
        found[name] = partial(_sklearn_topics, family, seed, how)
    if is_there("gensim", LdaModel):
        found |= {
            f"gensim, {passes} passes": partial(_gensim_topics, family, seed, passes)
            for passes in (1, 10)
        }
    return found


# Counts


def counts_per_token(
    activations: np.ndarray, parts: np.ndarray, held_out: csr_matrix, margins: np.ndarray | None
) -> float:
    """The log-likelihood of held-out counts given the totals of their rows, in nats per token.

    With ``margins``, of shape (n_columns,), a share of each rate is that of the column in the
    whole table; the better share counts.
    """
    held_out = csr_matrix(held_out)
    rows = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    rates = np.einsum("ik,ki->i", activations[rows], parts[:, held_out.indices])
    rates /= np.maximum(activations @ parts.sum(axis=1), SMALLEST)[rows]
    every = (
        [rates]
        if margins is None
        else [(1.0 - share) * rates + share * margins[held_out.indices] for share in SMOOTHINGS]
    )
    scores = [held_out.data @ np.log(np.maximum(each, SMALLEST)) for each in every]
    return float(max(scores) / held_out.sum())


def _sklearn_counts(instance: Instance, seed: int, forget_factor: float, batches: Batches) -> Score:
    k, size = instance.n_components, max(batch.shape[0] for batch in batches)
    how: dict[str, Any] = {"beta_loss": "kullback-leibler", "random_state": seed}
    model = MiniBatchNMF(k, batch_size=size, forget_factor=forget_factor, **how)
    for batch in batches:
        model.partial_fit(batch.astype(np.float64))

    def score() -> float:
        train, test = instance.load()
        seen, rest = split_documents(csr_matrix(test))
        margins = np.asarray(train.sum(axis=0)).ravel() / train.sum()
        activations = model.transform(seen.astype(np.float64))
        return counts_per_token(activations, model.components_, rest, margins)

    return score


def _of_counts(instance: Instance, seed: int) -> dict[str, Any]:
    def score(est: Any) -> float:
        seen, rest = split_documents(csr_matrix(instance.load()[1]))
        return counts_per_token(est.transform(seen), est.components_, rest, None)

    ours = partial(_ours, AnnealedGammaProcessNMF, instance.n_components, seed, score)
    return {
        "ours": ours(),
        "ours, updates alone": ours(max_iter=1),
        "scikit-learn": partial(_sklearn_counts, instance, seed, 0.7),
        "scikit-learn, forget_factor=0.5": partial(_sklearn_counts, instance, seed, 0.5),
    }


def measured(instance: Instance, X: Any, seed: int, size: int) -> dict[str, tuple[float, float]]:
    """The held-out score per token and the seconds of each stream of the rows of X."""
    X = csr_matrix(X)
    n = X.shape[0]
    batches = [X[start : start + size] for start in range(0, n, size)]
    streams = (
        _of_topics(instance, seed, n) if instance.family == "topics" else _of_counts(instance, seed)
    )
    found = {}
    for name, stream in streams.items():
        begun = time.process_time()
        score = stream(batches)
        seconds = time.process_time() - begun
        found[name] = score(), seconds
    return found
