"""Digests of fitted states, to show that a change of the code leaves every number as it was.

Every model is fitted with every annealing method, in batches, in minibatches, as a stream and with
restarts. One line per fit has a digest of all fitted attributes and of the predictions. If two
files are equal, the code of both commits computes the same bits::

    python -m benchmarks.package.digests > before.txt      # in a checkout of one commit
    python -m benchmarks.package.digests > after.txt       # in a checkout of the other
    diff before.txt after.txt
"""

from __future__ import annotations

import argparse
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import sklearn_anneal as models
from sklearn_anneal import annealing

from ..common.priors import (
    PEER_OF_MIXTURES,
    PEER_OF_RATINGS,
    PEER_OF_SEQUENCES,
    PEER_OF_TOPICS,
    VARIANCES_OF_RATINGS,
)

METHODS: dict[str, Callable[[], Any]] = {
    "none": annealing.NoAnnealing,
    "deterministic": lambda: annealing.DeterministicAnnealing(n_passes=6),
    "posterior form": lambda: annealing.DeterministicAnnealing(
        form="posterior", initial_temperature=1.5, jitter=0.1, n_passes=6
    ),
    "local form": lambda: annealing.DeterministicAnnealing(
        form="local", initial_temperature=1.5, n_passes=6
    ),
    "stochastic": lambda: annealing.StochasticAnnealing(n_passes=6),
    "tempering": lambda: annealing.VariationalTempering(n_passes=6),
    "local_tempering": lambda: annealing.LocalVariationalTempering(n_passes=4),
    "svi_plus": lambda: annealing.SVIPlus(n_passes=6),
    "svi_plus dirichlet": lambda: annealing.SVIPlus(
        noise="dirichlet", effective_batch_size=0.5, n_passes=6
    ),
    "svi_plus gaussian": lambda: annealing.SVIPlus(
        noise="gaussian", effective_batch_size=0.5, n_passes=6
    ),
    "structured": lambda: annealing.StructuredVI(n_passes=6, evaluate_every=2),
    "structured exact": lambda: annealing.StructuredVI(
        gradient="exact", n_passes=6, evaluate_every=2
    ),
    "proximity": lambda: annealing.ProximityVI(n_passes=6),
}


def rows(rng: np.random.Generator) -> np.ndarray:
    centers = 3.0 * np.eye(3, 4) + 10.0
    return centers[rng.integers(3, size=2500)] + rng.standard_normal((2500, 4))


def documents(rng: np.random.Generator) -> csr_matrix:
    topics = rng.dirichlet(np.full(60, 0.1), size=4)
    words = rng.dirichlet(np.full(4, 0.3), size=300) @ topics
    return csr_matrix(rng.multinomial(rng.integers(0, 60, size=300), words))


def sequences(emission: str) -> Callable[[np.random.Generator], list[np.ndarray]]:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        result = []
        for length in rng.integers(1, 60, size=120):
            moves = rng.random(length) < 0.2
            states = np.cumsum(np.where(moves, rng.integers(3, size=length), 0)) % 3
            centers = np.array([[4.0, 1.0], [1.0, 6.0], [8.0, 8.0]])[states]
            if emission == "categorical":
                frames = np.where(rng.random(length) < 0.7, states, rng.integers(4, size=length))
                frames = frames[:, None]
            elif emission == "poisson":
                frames = rng.poisson(centers).astype(float)
            elif emission == "bernoulli":
                frames = (rng.random(centers.shape) < centers / 9.0).astype(float)
            else:
                frames = 10.0 + centers + rng.standard_normal(centers.shape)
            missing = rng.random(length) < 0.05
            frames[missing] = -1 if emission == "categorical" else np.nan
            result.append(frames)
        return result

    return make


def with_gaps(rng: np.random.Generator) -> np.ndarray:
    X = rows(rng)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def columns(emission: str) -> Callable[[np.random.Generator], np.ndarray]:
    """Rows of three groups, a tenth of whose cells is missing; categories have 2 to 4 levels."""

    def make(rng: np.random.Generator) -> np.ndarray:
        X = rows(rng)
        if emission == "poisson":
            X = rng.poisson(np.maximum(X - 8.0, 0.1)).astype(float)
        elif emission == "bernoulli":
            X = (X > 11.0).astype(float)
        elif emission == "categorical":
            X = np.clip(np.floor(X - 9.0), 0.0, [1, 2, 3, 3])
        X[rng.random(X.shape) < 0.1] = np.nan
        return X

    return make


def ratings(rng: np.random.Generator) -> np.ndarray:
    users, items = rng.standard_normal((300, 3)), rng.standard_normal((40, 3))
    X = 3.0 + 0.5 * users @ items.T + 0.6 * rng.standard_normal((300, 40))
    X[rng.random(X.shape) < 0.6] = np.nan
    return X


def counts(rng: np.random.Generator) -> np.ndarray:
    components = rng.gamma(0.3, 10.0, size=(4, 30))
    X = rng.poisson(rng.gamma(0.5, 2.0, size=(300, 4)) @ components).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


Case = tuple[str, Callable[[], Any], Callable[[np.random.Generator], Any], dict[str, Any]]


def cases() -> Iterator[Case]:
    """The models: name, estimator, data, and the parameters of a fit in minibatches."""
    shared: dict[str, Any] = {"max_iter": 8, "random_state": 0}
    batches = {"batch_size": 64}
    dirichlet = {"weight_concentration_prior_type": "dirichlet_distribution"}
    mixtures: dict[str, dict[str, Any]] = {
        "full": {},
        "diag": {"covariance_type": "diag", **dirichlet},
        "tied independent": {"covariance_type": "tied", "factorization": "independent"},
        "spherical random": {"covariance_type": "spherical", "init_params": "random"},
    }
    for name, params in mixtures.items():
        settings = PEER_OF_MIXTURES | shared | params
        mixture = partial(models.AnnealedBayesianGaussianMixture, 5, **settings)
        yield f"gaussian_mixture {name}", mixture, rows, batches
    for name in ("full", "tied", "diag", "spherical"):
        mixture = partial(models.AnnealedBayesianGaussianMixture, 5, covariance_type=name, **shared)
        yield f"gaussian_mixture {name} missing", mixture, with_gaps, batches
    emissions = ("gaussian", "categorical", "poisson", "bernoulli")
    dependent = {"emission": "gaussian", "covariance_type": "full"}
    blocks = [("a", "gaussian", [0, 1]), ("b", "gaussian", [2, 3])]
    tables: dict[str, dict[str, Any]] = {name: {"emission": name} for name in emissions}
    tables["categorical"] |= {"n_categories": [2, 3, 4, 4], "init_params": "kmeans"}
    tables["bernoulli"] |= dirichlet
    tables |= {"gaussian full": dependent, "gaussian blocks": dependent | {"emission": blocks}}
    tables["gaussian random"] = {"emission": "gaussian", "init_params": "random"}
    for name, params in tables.items():
        table = partial(models.AnnealedBayesianMixture, 5, **shared, **params)
        yield f"mixture {name}", table, columns(name), batches
    for name in emissions:
        symbols = {"n_symbols": 4} if name == "categorical" else {}
        settings = PEER_OF_SEQUENCES | shared | symbols
        markov = partial(models.AnnealedHMM, 4, emission=name, **settings)
        yield f"hidden_markov {name}", markov, sequences(name), batches
    topics: dict[str, dict[str, Any]] = {
        "mean_field": {},
        "auto": {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
        "cvb0": {"local_step": "cvb0"},
        "gibbs": {"local_step": "gibbs"},
    }
    for name, params in topics.items():
        allocation = partial(
            models.AnnealedLatentDirichletAllocation, 5, **PEER_OF_TOPICS | shared | params
        )
        online = {"learning_method": "online", **batches}
        yield f"latent_dirichlet {name}", allocation, documents, online
    factorizations: dict[str, dict[str, Any]] = {
        "default": {},
        "auto": dict.fromkeys(VARIANCES_OF_RATINGS, "auto"),
        "hierarchical": {"hierarchical": True},
        "scales": {"user_scales": True},
        "no biases": {"biases": False, "fit_intercept": False},
    }
    for name, params in factorizations.items():
        factorization = partial(models.AnnealedPMF, 3, **PEER_OF_RATINGS | shared | params)
        yield f"matrix_factorization {name}", factorization, ratings, batches
    for name in ("mean_field", "enumerate"):
        factorial = partial(models.AnnealedFactorialMixture, 4, local_step=name, **shared)
        yield f"factorial_mixture {name}", factorial, rows, batches
    for name, data in {"": rows, " missing": with_gaps}.items():
        slab = partial(models.AnnealedSpikeSlabFactorAnalysis, 4, **shared)
        yield f"spike_slab_factor_analysis{name}", slab, data, batches
    priors = dict.fromkeys(("activation_prior", "component_prior", "concentration"), "auto")
    kinds = {"missing": (counts, {}), "sparse": (documents, {}), "auto": (counts, priors)}
    kinds["noise"] = counts, {"dispersion": "auto"}
    for name, (kind, params) in kinds.items():
        nmf = partial(models.AnnealedGammaProcessNMF, 6, **shared, **params)
        yield f"gamma_process_nmf {name}", nmf, kind, batches


def digest(estimator: Any, X: Any) -> str:
    """A digest of fitted attributes and of predictions."""
    state = {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and not name.startswith("_") and name != "annealing_"
    }
    state |= {f"annealing_ {k}": v for k, v in estimator.annealing_.get_params().items()}
    state |= {f"q {key}": value for key, value in estimator._inference.ctx.q.items()}
    for name in ("components_", "transform", "predict", "score", "sample", "inverse_temperatures"):
        value = getattr(estimator, name, None)
        if callable(value):
            value = value() if name == "sample" else value(X)
        state[name] = value
    found = hashlib.sha256()
    for name in sorted(state):
        values = state[name] if isinstance(state[name], tuple | list) else (state[name],)
        for value in values:
            array = np.ascontiguousarray(value)
            content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
            found.update(f"{name} {array.dtype} {array.shape} ".encode() + content)
    return found.hexdigest()[:24]


def fits(make: Callable[[], Any], X: Any, minibatch: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name of a mode, and a function that returns an estimator fitted in it."""
    n = len(X) if isinstance(X, list) else X.shape[0]

    def streamed(**params: Any) -> Any:
        estimator = make().set_params(**params)
        for start in range(0, n, -(-n // 5)):
            estimator.partial_fit(X[start : start + -(-n // 5)])
        return estimator

    weights = None if isinstance(X, list) else np.linspace(0.5, 2.0, n)
    yield "batch", lambda **p: make().set_params(**p).fit(X)
    yield "minibatches", lambda **p: make().set_params(**p, **minibatch).fit(X)
    yield "restarts", lambda **p: make().set_params(**p, n_init=3, n_jobs=2).fit(X)
    if weights is not None:
        yield "weights", lambda **p: make().set_params(**p).fit(X, sample_weight=weights)
    yield "stream", streamed
    yield "stream of known size", lambda **p: streamed(**p, total_samples=n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression of the lines to print")
    only = re.compile(parser.parse_args().only)
    warnings.simplefilter("ignore")
    for name, make, data, minibatch in cases():
        X = data(np.random.default_rng(0))
        for mode, fit in fits(make, X, minibatch):
            for method, instance in METHODS.items():
                line = f"{name} | {method} | {mode}"
                if not only.search(line):
                    continue
                try:
                    result = digest(fit(annealing=instance()), X)
                except ValueError:
                    result = "refused"
                print(f"{line} | {result}", flush=True)


if __name__ == "__main__":
    main()
