"""Fits by other libraries, each a function that returns what scores the held-out data.

The fit is timed, and the score is not. Libraries are imported by the functions that use them.

The estimates of maximum likelihood have probabilities of exactly zero, by which one unseen category
in one held-out row makes the density of all of them zero. One pseudo-count for each probability is
therefore added before held-out data are scored.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, hstack, identity
from scipy.special import expit, logit, logsumexp
from scipy.stats import multivariate_t
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..suite import data
from ..suite.families import RatingSet, Sequence, Topics, rmse
from ..suite.settings import MAX_ITER, PLAIN, TOL

Score = Callable[[], float]


# Fits whose probabilities are smoothed


def smoothed(probabilities: np.ndarray, counts: Any) -> np.ndarray:
    """Probabilities along the last axis with one pseudo-count each, given the counts behind them.

    Parameters
    ----------
    probabilities : ndarray of shape (..., n)
    counts : float or ndarray of shape (..., 1)
        The expected number of observations from which each distribution was estimated.
    """
    return (counts * probabilities + 1.0) / (counts + probabilities.shape[-1])


def fitted_stepmix(
    train: np.ndarray, emission: str, n_components: int, seed: int, n_init: int
) -> Any:
    """StepMix's mixture, fitted to binary columns or categories, with −1 for missing cells."""
    from stepmix import StepMix

    missing = train < 0
    name = {"bernoulli": "binary", "categorical": "categorical"}[emission]
    fitted = StepMix(
        n_components,
        measurement=f"{name}_nan" if missing.any() else name,
        n_init=n_init,
        random_state=seed,
        abs_tol=TOL,
        max_iter=MAX_ITER,
        progress_bar=0,
    )
    with warnings.catch_warnings(action="ignore"):
        return fitted.fit(np.where(missing, np.nan, train.astype(float)))


def smoothed_density(fitted: Any, train: np.ndarray, test: np.ndarray, emission: str) -> np.ndarray:
    """Log densities of held-out rows under a mixture of StepMix, whose shares are smoothed."""
    counts = len(train) * fitted.weights_
    joint = np.log(smoothed(fitted.weights_, len(train))) + np.zeros((len(test), 1))
    table = fitted.get_parameters()["measurement"]["pis"]
    n_components, n_columns = len(counts), train.shape[1]
    if emission == "bernoulli":
        each = np.stack([1.0 - table, table], axis=-1)
    else:
        each = table.reshape(n_components, n_columns, -1)
    # Levels of a column are those that either part has, as for our estimator.
    levels = np.maximum(train.max(axis=0), test.max(axis=0)).astype(int) + 1
    for column in range(n_columns):
        known = np.zeros((n_components, levels[column] if emission != "bernoulli" else 2))
        n = min(known.shape[1], each.shape[2])
        known[:, :n] = each[:, column, :n]
        logs = np.log(smoothed(known, counts[:, None]))
        there = test[:, column] >= 0
        joint[there] += logs[:, test[there, column].astype(int)].T
    return logsumexp(joint, axis=1)


def fitted_hmm(train: data.Sequences, model: dict[str, Any], seed: int, n_init: int) -> Any:
    """The best of several starts of hmmlearn's EM, with smoothed probabilities.

    Raises
    ------
    NotImplementedError
        If hmmlearn does not have the emission.
    """
    from hmmlearn import hmm

    gaussian = model["emission"] == "gaussian"
    if model["emission"] not in ("gaussian", "categorical"):
        raise NotImplementedError(f"hmmlearn has no EM for {model['emission']!r}.")
    settings = {"n_iter": MAX_ITER, "tol": TOL * len(train.X)}
    kind = hmm.GaussianHMM if gaussian else hmm.CategoricalHMM
    if gaussian:
        settings["covariance_type"] = model.get("covariance_type", "full")
    else:
        settings["n_features"] = model["n_symbols"]
    fits = []
    for restart in range(n_init):
        fitted = kind(model["n_components"], random_state=n_init * seed + restart, **settings)
        fits.append(fitted.fit(train.X, train.lengths))
    best = max(fits, key=lambda fit: np.nan_to_num(fit.monitor_.history[-1], nan=-np.inf))
    occupied = best.predict_proba(train.X, train.lengths).sum(axis=0)[:, None]
    best.startprob_ = smoothed(best.startprob_, len(train))
    best.transmat_ = smoothed(best.transmat_, occupied)
    if not gaussian:
        best.emissionprob_ = smoothed(best.emissionprob_, occupied)
    return best


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


def bnpy_gaussians(family: Any, seed: int, share: float, start: int | None = None) -> Score:
    """bnpy's Dirichlet process mixture with memoized inference and its births and merges."""
    X, n_components = family.train, start or family.model["n_components"]
    moves = "birth,merge,delete,shuffle"
    model = _bnpy(("XData", {"X": X}), "DPMixtureModel", n_components, moves, share, seed)
    q, d = model.obsModel.Post, X.shape[1]
    weights = model.allocModel.get_active_comp_probs()

    def score() -> float:
        joint = []
        for weight, mean, kappa, scatter, nu in zip(
            weights / weights.sum(), q.m, q.kappa, q.B, q.nu, strict=True
        ):
            dof = nu - d + 1
            student = multivariate_t(mean, scatter * (kappa + 1) / (kappa * dof), df=dof)
            joint.append(np.log(weight) + student.logpdf(family.test))
        return float(logsumexp(joint, axis=0).mean())

    return score


def _bnpy(
    given: tuple[str, dict[str, Any]], kind: str, k: int, moves: str, share: float, seed: int
) -> Any:
    """A fit of bnpy to Gaussian data, from k components drawn from the data.

    The prior expects ``share`` of the covariance of the data.
    """
    import bnpy

    name, arrays = given
    with (
        _names_of_older_libraries(),
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        return bnpy.run(
            getattr(bnpy.data, name)(**arrays),
            kind,
            "Gauss",
            "memoVB",
            K=k,
            nLap=MAX_ITER,
            nBatch=1,
            nTask=1,
            taskid=seed + 1,
            moves=moves,
            ECovMat="covdata",
            sF=share,
            output_path=folder,
            printEvery=-1,
            saveEvery=-1,
        )[0]


@contextlib.contextmanager
def _names_of_older_libraries() -> Iterator[None]:
    """Let bnpy 0.1.7 find what Python 3.11 and NumPy 2 have taken away or named anew."""
    older = {
        (inspect, "getargspec"): lambda function: inspect.getfullargspec(function)[:4],
        (np, "bool8"): np.bool_,
        (np, "float"): float,
        (np, "int"): int,
        (np, "bool"): bool,
        (np, "asscalar"): lambda array: array.item(),
        (np, "product"): np.prod,
        (np, "in1d"): np.isin,
    }
    absent = {at: value for at, value in older.items() if not hasattr(*at)}
    for (module, name), value in absent.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name in absent:
            delattr(module, name)


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


def pomegranate(family: Sequence, seed: int) -> Score:
    """EM of pomegranate for sequences of real columns that are equally long."""
    import torch
    from pomegranate.distributions import Normal
    from pomegranate.hmm import DenseHMM

    train, test = (
        torch.tensor(np.stack(np.split(part.X, np.cumsum(part.lengths)[:-1])))
        for part in (family.train, family.test)
    )
    states = [Normal() for _ in range(family.model["n_components"])]
    tol = TOL * len(family.train.X)
    model = DenseHMM(states, max_iter=MAX_ITER, tol=tol, random_state=seed).fit(train)
    return lambda: float(model.log_probability(test).sum()) / len(family.test.X)


def bnpy_chains(family: Sequence, seed: int, share: float) -> Score:
    """bnpy's chain of a hierarchical Dirichlet process, at the means of its posterior."""
    from hmmlearn.hmm import GaussianHMM

    train, test = family.train, family.test
    ends = np.cumsum([0, *train.lengths])
    # Births need restricted steps, which it does not have for chains.
    given, k = {"X": train.X, "doc_range": ends}, family.model["n_components"]
    model = _bnpy(("GroupXData", given), "HDPHMM", k, "merge,shuffle", share, seed)
    q, weights = model.obsModel.Post, model.allocModel
    scored = GaussianHMM(model.obsModel.K, "full")
    at_rest = weights.startTheta[: q.K]
    scored.startprob_ = at_rest / at_rest.sum()
    moves = weights.transTheta[: q.K, : q.K]
    scored.transmat_ = moves / moves.sum(axis=1, keepdims=True)
    scored.means_ = q.m
    scored.covars_ = q.B / (q.nu - train.X.shape[1] - 1)[:, None, None]
    return lambda: scored.score(test.X, test.lengths) / len(test.X)


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
    """cmfrec with the ridge that is best for a tenth of the ratings."""
    order = np.random.default_rng(seed).permutation(len(family.train))
    inner, rest = np.split(order, [len(order) // 10])
    validation, training = family.train.take(np.sort(inner)), family.train.take(np.sort(rest))
    ridges = (1.0, 3.0, 10.0, 30.0, 100.0)
    errors = [_cmfrec_error(family, training, validation, ridge, seed)() for ridge in ridges]
    return _cmfrec_error(family, family.train, family.test, ridges[int(np.argmin(errors))], seed)


def _cmfrec_error(
    family: RatingSet, known: data.Ratings, others: data.Ratings, ridge: float, seed: int
) -> Score:
    """The error on other ratings of a fit to the known ones."""
    from cmfrec import CMF

    model = CMF(
        k=family.instance.n_components,
        lambda_=ridge,
        method="als",
        use_cg=False,
        niter=30,
        nthreads=1,
        random_state=seed,
        verbose=False,
    )
    shape = (family.model["n_users"], family.model["n_items"])
    model.fit(coo_matrix((known.y, tuple(known.X.T)), shape=shape))

    def score() -> float:
        # An item without ratings is predicted by the mean.
        predicted = model.predict(user=others.X[:, 0], item=others.X[:, 1])
        predicted = np.where(np.isnan(predicted), known.y.mean(), predicted)
        return rmse(predicted.clip(known.y.min(), known.y.max()), others.y)

    return score


def myfm(family: RatingSet, seed: int, iterations: int, implicit: str = "") -> Score:
    """Gibbs sampling of a factorisation machine whose features are the user and the item.

    With ``implicit="raters"`` all users who rated the item are features too, and with "both" all
    items that the user rated as well, divided by the roots of their numbers. Features of a user or
    of an item are stored once (``RelationBlock``), which changes no score and takes an eighth of
    the time or less with raters, and a tenth more without.
    """
    from myfm import MyFMRegressor, RelationBlock

    n_users, n_items = family.model["n_users"], family.model["n_items"]
    users, items = family.train.X.T
    rated = csr_matrix((np.ones(len(users)), (users, items)), shape=(n_users, n_items))
    rated.data[:] = 1.0

    def features(others: csr_matrix, used: bool) -> csr_matrix:
        roots = np.sqrt(np.maximum(np.asarray(others.sum(axis=1)), 1.0))
        more = [csr_matrix(others.multiply(1.0 / roots))] if used else []
        return csr_matrix(hstack([identity(others.shape[0]), *more]))

    of_users = features(rated, implicit == "both")
    of_items = features(csr_matrix(rated.T), bool(implicit))
    groups = [n_users, *([n_items] if implicit == "both" else [])]
    groups += [n_items, *([n_users] if implicit else [])]

    def blocks(X: np.ndarray) -> list[Any]:
        return [RelationBlock(X[:, 0], of_users), RelationBlock(X[:, 1], of_items)]

    model = MyFMRegressor(rank=family.model["n_components"], random_seed=seed)
    train = blocks(family.train.X)
    with contextlib.redirect_stderr(io.StringIO()):
        model.fit(None, family.train.y, train, n_iter=iterations, group_shapes=groups)
    low, high = family.train.y.min(), family.train.y.max()

    def score() -> float:
        return rmse(model.predict(None, blocks(family.test.X)).clip(low, high), family.test.y)

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


def accuracy(
    transform: Callable[[np.ndarray], np.ndarray], data: Any, scaled: bool = False
) -> float:
    """The accuracy of a logistic regression on the hidden units of held-out rows."""
    X, y, X_test, y_test = data
    regression = LogisticRegression(max_iter=1000)
    classifier = make_pipeline(StandardScaler(), regression) if scaled else regression
    classifier.fit(transform(X), y)
    return float(classifier.score(transform(X_test), y_test))


# Annealed importance sampling: its chains, and its steps from independent pixels to the machine.
_CHAINS, _STEPS = 200, 2000


def log_probability(rbm: Any, X: np.ndarray, means: np.ndarray, seed: int = 0) -> float:
    """The mean log probability of rows under a ``BernoulliRBM``, nats.

    Annealed importance sampling estimates the constant. The mean of its estimates is right, so that
    their logarithm is rather too small, and the probabilities too large. Chains begin at
    independent pixels with these ``means``.

    References
    ----------
    Salakhutdinov, Murray (2008). On the quantitative analysis of deep belief networks. ICML.
    """
    W, hidden, visible = rbm.components_, rbm.intercept_hidden_, rbm.intercept_visible_
    of_means, rng = logit(means), np.random.default_rng(seed)

    def log_weights(v: np.ndarray, beta: float) -> np.ndarray:
        biases = (1.0 - beta) * of_means + beta * visible
        return v @ biases + np.logaddexp(0.0, beta * (v @ W.T + hidden)).sum(axis=1)

    def drawn(v: np.ndarray, beta: float) -> np.ndarray:
        h = rng.random((len(v), len(hidden))) < expit(beta * (v @ W.T + hidden))
        biases = (1.0 - beta) * of_means + beta * visible
        return (rng.random(v.shape) < expit(beta * (h @ W) + biases)).astype(np.float64)

    v = (rng.random((_CHAINS, len(means))) < means).astype(np.float64)
    log_ratio = np.full(_CHAINS, len(hidden) * np.log(2.0) + np.logaddexp(0.0, of_means).sum())
    for before, beta in pairwise(np.linspace(0.0, 1.0, _STEPS + 1)):
        log_ratio += log_weights(v, beta) - log_weights(v, before)
        v = drawn(v, beta)
    log_constant = logsumexp(log_ratio) - np.log(_CHAINS)
    return float(log_weights(X, 1.0).mean() - log_constant)
