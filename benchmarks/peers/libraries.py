"""Fits by other libraries, each a function that returns what scores the held-out data.

The fit is timed, and the score is not. Libraries are imported by the functions that use them.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import logsumexp
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture

from ..suite.families import RatingSet, Sequence, Topics, rmse
from ..suite.libraries import fitted_hmm, fitted_stepmix, smoothed, smoothed_density
from ..suite.settings import PLAIN

Score = Callable[[], float]


# Mixtures


def em(family: Any, seed: int, n_init: int) -> Score:
    """scikit-learn's maximum likelihood."""
    fitted = GaussianMixture(n_init=n_init, random_state=seed, **family.model).fit(family.train)
    return lambda: float(fitted.score(family.test))


def usual_priors(family: Any, seed: int) -> Score:
    """scikit-learn's ``BayesianGaussianMixture``, the best of ten starts."""
    fitted = family.fit_peer(seed)
    return lambda: family.predictions(fitted)["held_out"]


def stepmix(family: Any, seed: int, n_init: int) -> Score:
    train, test, emission = family.train, family.test, family.model["emission"]
    fitted = fitted_stepmix(train, emission, family.model["n_components"], seed, n_init)
    return lambda: float(smoothed_density(fitted, train, test, emission).mean())


def kmodes(family: Any, seed: int) -> Score:
    """Clusters by their modes; the mixture has the shares of categories of each cluster."""
    from kmodes.kmodes import KModes

    train, test = family.train, family.test
    k = family.model["n_components"]
    labels = KModes(k, n_init=10, random_state=seed).fit_predict(train)
    return lambda: float(density_of_clusters(labels, k, train, test).mean())


def density_of_clusters(
    labels: np.ndarray, k: int, train: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Log densities of rows of categories under the smoothed shares of clusters."""
    of = np.eye(k)[labels]
    sizes = of.sum(axis=0)
    joint = np.log(smoothed(sizes / sizes.sum(), sizes.sum())) + np.zeros((len(test), 1))
    for seen, new in zip(train.T, test.T, strict=True):
        there, known = seen >= 0, new >= 0
        levels = int(max(seen.max(), new.max())) + 1
        counts = of[there].T @ np.eye(levels)[seen[there]]
        total = counts.sum(axis=1, keepdims=True)
        shares = smoothed(counts / np.maximum(total, 1.0), total)
        joint[known] += np.log(shares)[:, new[known]].T
    return logsumexp(joint, axis=1)


# Sequences


def hmmlearn_em(family: Sequence, seed: int, n_init: int) -> Score:
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    fitted = fitted_hmm(family.train, family.model, seed, n_init)
    test = family.test
    return lambda: fitted.score(test.X, test.lengths) / len(test.X)


def dynamax(family: Sequence, seed: int, iterations: int) -> Score:
    """EM of dynamax for sequences of real columns that are equally long."""
    import jax
    from dynamax.hidden_markov_model import GaussianHMM

    train, test = (
        jax.numpy.asarray(np.stack(np.split(part.X, np.cumsum(part.lengths)[:-1])))
        for part in (family.train, family.test)
    )
    model = GaussianHMM(family.model["n_components"], train.shape[2])
    start, trained = model.initialize(jax.random.PRNGKey(seed), method="kmeans", emissions=train)
    fitted, _ = model.fit_em(start, trained, train, num_iters=iterations, verbose=False)

    def score() -> float:
        density = jax.vmap(lambda frames: model.marginal_log_prob(fitted, frames))(test)
        return float(density.sum()) / len(family.test.X)

    return score


# Topics


def at_topics(family: Topics, topics: np.ndarray, doc_topic_prior: Any) -> Score:
    """The score of topics of any library, with its own prior of the proportions.

    Parameters
    ----------
    topics : ndarray of shape (n_topics, n_words)
        Numbers of tokens, the prior included.
    """
    prior = {"doc_topic_prior": np.broadcast_to(doc_topic_prior, len(topics)).astype(np.float64)}
    host = family.fit_ours(0, PLAIN["topics"] | {"max_iter": 0} | prior)
    host._inference.ctx.q = {"topic_word": np.ascontiguousarray(topics, dtype=np.float64)}
    return lambda: family.predictions(host)["held_out"]


def sklearn_topics(family: Topics, seed: int, max_iter: int) -> Score:
    fitted = LatentDirichletAllocation(
        family.model["n_components"], max_iter=max_iter, random_state=seed
    ).fit(family.train)
    return lambda: at_topics(family, fitted.components_, fitted.doc_topic_prior_)()


def tomotopy_topics(family: Topics, seed: int, iterations: int) -> Score:
    import tomotopy

    X = family.train
    k = family.model["n_components"]
    model = tomotopy.LDAModel(k=k, seed=seed)
    for words in _words(X):
        model.add_doc(words)
    model.train(iterations, workers=1)

    def score() -> float:
        topics = np.zeros((k, X.shape[1]))
        tokens = np.asarray(model.get_count_by_topics()) + model.eta * X.shape[1]
        order = np.array([int(word) for word in model.used_vocabs])
        for topic in range(k):
            topics[topic, order] = model.get_topic_word_dist(topic) * tokens[topic]
        return at_topics(family, np.maximum(topics, 1e-10), np.asarray(model.alpha))()

    return score


def _words(X: csr_matrix) -> Iterator[list[str]]:
    """The tokens of each document."""
    names = np.arange(X.shape[1]).astype(str)
    for start, stop in pairwise(X.indptr):
        counts = X.data[start:stop].astype(int)
        yield np.repeat(names[X.indices[start:stop]], counts).tolist()


def gensim_topics(family: Topics, seed: int, passes: int) -> Score:
    from gensim.models import LdaModel

    X = family.train
    bags = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].astype(int).tolist(), strict=True))
        for a, b in pairwise(X.indptr)
    ]
    model = LdaModel(
        bags,
        num_topics=family.model["n_components"],
        id2word={word: str(word) for word in range(X.shape[1])},
        alpha="auto",
        eta="auto",
        passes=passes,
        random_state=seed,
        eval_every=None,
    )
    return lambda: at_topics(family, model.state.get_lambda(), model.alpha)()


# Ratings


def cmfrec(family: RatingSet, seed: int) -> Score:
    predict = family.fit_cmfrec(seed)
    return lambda: rmse(predict(family.test.X), family.test.y)


def myfm(family: RatingSet, seed: int, iterations: int) -> Score:
    """Gibbs sampling of a factorisation machine whose features are the user and the item."""
    from myfm import MyFMRegressor

    n_users, n_items = family.model["n_users"], family.model["n_items"]

    def ones(X: np.ndarray) -> csr_matrix:
        columns = np.column_stack([X[:, 0], n_users + X[:, 1]]).ravel()
        n = len(X)
        return csr_matrix(
            (np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=(n, n_users + n_items)
        )

    model = MyFMRegressor(rank=family.model["n_components"], random_seed=seed)
    with contextlib.redirect_stderr(io.StringIO()):
        model.fit(
            ones(family.train.X),
            family.train.y,
            n_iter=iterations,
            group_shapes=[n_users, n_items],
        )
    low, high = family.train.y.min(), family.train.y.max()

    def score() -> float:
        return rmse(model.predict(ones(family.test.X)).clip(low, high), family.test.y)

    return score


def surprise(family: RatingSet, seed: int) -> Score:
    """Stochastic gradients of surprise, with its own number of factors and passes."""
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    y = family.train.y
    table = pd.DataFrame(family.train.X, columns=["user", "item"]).assign(rating=y)
    data = Dataset.load_from_df(table, Reader(rating_scale=(y.min(), y.max())))
    model = SVD(random_state=seed).fit(data.build_full_trainset())

    def score() -> float:
        predicted = [model.predict(*pair).est for pair in family.test.X]
        return rmse(np.array(predicted), family.test.y)

    return score


# Sparse factors and binary units


def mofapy2(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Rows whose missing cells are those of mofapy2's factors and loadings."""
    from mofapy2.run.entry_point import entry_point

    with contextlib.redirect_stdout(io.StringIO()):
        model = entry_point()
        model.set_data_options()
        model.set_data_matrix([[X.copy()]])
        model.set_model_options(factors=k, spikeslab_weights=True, ard_weights=True)
        model.set_train_options(convergence_mode="medium", seed=seed, verbose=False, quiet=True)
        model.build()
        model.run()
        nodes = model.model.getExpectations()
    loadings, factors = nodes["W"][0], nodes["Z"]
    loadings, factors = (v["E"] if isinstance(v, dict) else v for v in (loadings, factors))
    return factors @ loadings.T + np.nanmean(X, axis=0)


def accuracy(transform: Callable[[np.ndarray], np.ndarray], data: Any) -> float:
    """The accuracy of a logistic regression on the hidden units of held-out rows."""
    X, y, X_test, y_test = data
    classifier = LogisticRegression(max_iter=1000).fit(transform(X), y)
    return float(classifier.score(transform(X_test), y_test))
