"""One entry per model: what the tests of all models × methods need to know of it.

A new model joins by one line in ``ENTRIES`` (its factory and its references beside it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from enumeration import gaussian_mixture_log_evidence, latent_dirichlet_log_evidence
from plain_hidden_markov import hidden_markov_log_evidence
from plain_matrix_factorization import matrix_factorization_log_evidence
from quadrature import integral_of_density
from scipy.sparse import csr_matrix
from scipy.stats import dirichlet

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
)
from sklearn_anneal.annealing import ANNEALING, Context
from sklearn_anneal.inference import engine
from sklearn_anneal.inference.parallel import SEQUENTIAL


@dataclass(frozen=True)
class Entry:
    """A model as the common tests see it.

    Attributes
    ----------
    name : str
    make : callable
        ``make(**params)``, a small estimator without what falsifies bounds (regularisation), in
        which every number of passes is small.
    data : callable
        ``data(rng, n)``, n units.
    variants : mapping
        Id → parameters of each form of the model that has equations of its own. The first one
        stands for the model where a property is about the loop and not about equations.
    heuristics : mapping
        Id → parameters of forms whose local step ascends no bound. They have all other properties.
    sampled : tuple of str
        Those of them whose local step is random.
    converged : mapping
        Parameters with which the iterations over local parameters run to their end.
    frozen : mapping
        Attributes of the model that keep local parameters where they start.
    one_optimum : str
        Id of a variant whose iterations over local parameters then end at one point wherever
        they start; empty for models without any.
    learns : callable
        ``learns(params)``, whether the fit changes the prior.
    minibatches : mapping
        Parameters that ``fit`` needs besides ``batch_size`` to work in minibatches.
    several_chunks : callable or None
        ``several_chunks(rng)``, 2500 units that are cut into several chunks, and 1200 of them
        too if the number of observations decides; None: 2500 units of ``data``.
    local_entropy : callable
        ``local_entropy(visit, units)``, H[q] of local parameters with a prior of their own, a
        part of the entropy of a local step; nats.
    tiny : mapping
        Id → ``tiny[id](rng)``, data so small that ``log_evidence`` can enumerate.
    log_evidence : callable or None
        ``log_evidence(estimator, X)``, exact, from the fitted priors; nats.
    exact : tuple of (parameters, id of tiny data)
        Where the exact posterior lies in the variational family.
    total_probability : callable or None
        ``total_probability(estimator)``, sum or integral of exp(score_samples).
    spaces : mapping
        Id → ``spaces[id](rng, n)``: data in spaces small enough for ``total_probability``.
    common_checks : bool
        Whether scikit-learn's common checks are run. They know no data of symbols or counts.
    checked : tuple of dict
        Parameters with which scikit-learn's common checks are run, besides the defaults and every
        value of ``annealing``.
    forms : tuple of str
        Forms of deterministic annealing that mean something for the model; others are refused.
    unit_keys : tuple of str
        Natural parameters in batch mode that have one row per unit.
    refused : callable
        ``refused(params)``, name of annealing → what the refusal says is missing.
    repeat : callable
        ``repeat(X, counts)``, unit i ``counts[i]`` times.
    row_weights : callable
        ``row_weights(X, weights)``, ``sample_weight`` of the given weights of units.
    """

    name: str
    make: Callable[..., Any]
    data: Callable[[np.random.Generator, int], Any]
    variants: Mapping[str, dict[str, Any]]
    heuristics: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    sampled: tuple[str, ...] = ()
    converged: Mapping[str, Any] = field(default_factory=dict)
    frozen: Mapping[str, Any] = field(default_factory=dict)
    one_optimum: str = ""
    learns: Callable[[dict[str, Any]], bool] = lambda params: False
    minibatches: Mapping[str, Any] = field(default_factory=dict)
    several_chunks: Callable[[np.random.Generator], Any] | None = None
    local_entropy: Callable[[engine.Visit, Any], float] = lambda visit, units: 0.0
    tiny: Mapping[str, Callable[[np.random.Generator], Any]] = field(default_factory=dict)
    log_evidence: Callable[[Any, Any], float] | None = None
    exact: tuple[tuple[dict[str, Any], str], ...] = ()
    total_probability: Callable[[Any], float] | None = None
    spaces: Mapping[str, Callable[[np.random.Generator, int], Any]] = field(default_factory=dict)
    common_checks: bool = True
    checked: tuple[dict[str, Any], ...] = ()
    forms: tuple[str, ...] = ("likelihood", "posterior", "local")
    unit_keys: tuple[str, ...] = ()
    refused: Callable[[dict[str, Any]], Mapping[str, str]] = lambda params: {}
    repeat: Callable[[Any, np.ndarray], Any] = lambda X, counts: X[
        np.repeat(np.arange(len(counts)), counts)
    ]
    row_weights: Callable[[Any, np.ndarray], np.ndarray] = lambda X, weights: weights

    @property
    def first(self) -> dict[str, Any]:
        """Parameters of the variant that stands for the model."""
        return next(iter(self.variants.values()))

    @property
    def unambiguous(self) -> dict[str, Any]:
        """Parameters with which local parameters have one value, whatever they start from."""
        return {**self.variants.get(self.one_optimum, {}), **self.converged}

    def in_batches(self, size: int) -> dict[str, Any]:
        """Parameters of a fit with ``size`` units per update."""
        return {**self.minibatches, "batch_size": size}

    def many(self, rng: np.random.Generator) -> Any:
        """2500 units in several chunks."""
        return self.data(rng, 2500) if self.several_chunks is None else self.several_chunks(rng)


def clusters(n_features: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Rows of three overlapping clusters, of different sizes, far from the origin."""

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        centers = 2.0 * np.eye(3, n_features) + 10.0
        labels = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        return centers[labels] + 0.7 * rng.standard_normal((n, n_features))

    return make


def small_gaussian_mixture(**params: Any) -> AnnealedBayesianGaussianMixture:
    settings = {"n_components": 3, "reg_covar": 0.0, "max_iter": 5, "random_state": 0}
    return AnnealedBayesianGaussianMixture(**(settings | params))


def gaussian_mixture_variants() -> dict[str, dict[str, Any]]:
    types = ("full", "tied", "diag", "spherical")
    priors = ("dirichlet_process", "dirichlet_distribution")
    return {
        f"{covariance}-{prior.split('_')[1]}-{factorization}": {
            "covariance_type": covariance,
            "weight_concentration_prior_type": prior,
            "factorization": factorization,
        }
        for factorization, covariance, prior in product(("joint", "independent"), types, priors)
    }


N_WORDS = 30


def documents(
    n_words: int = N_WORDS, lengths: tuple[int, int] = (10, 40)
) -> Callable[[np.random.Generator, int], csr_matrix]:
    """Counts of documents that mix three topics, and share some words."""

    def make(rng: np.random.Generator, n: int) -> csr_matrix:
        block = np.arange(n_words) * 3 // n_words
        topics = np.where(block == np.arange(3)[:, None], 1.0, 0.1)
        words = rng.dirichlet([0.3, 0.5, 0.8], size=n) @ topics
        tokens = rng.integers(lengths[0], lengths[1] + 1, size=n)
        return csr_matrix(rng.multinomial(tokens, words / words.sum(axis=1, keepdims=True)))

    return make


def tiny_documents(*texts: tuple[int, ...]) -> Callable[[np.random.Generator], csr_matrix]:
    """Documents of the given words, whatever the generator is."""
    counts = np.array([np.bincount(text, minlength=N_WORDS) for text in texts])
    return lambda rng: csr_matrix(counts)


def small_topics(
    n_components: int = 3, doc_topic_prior: Any = None, **params: Any
) -> AnnealedLatentDirichletAllocation:
    """Priors of more topics than ``n_components`` are cut."""
    settings = {"max_iter": 5, "random_state": 0}
    if np.ndim(doc_topic_prior):
        doc_topic_prior = doc_topic_prior[:n_components]
    return AnnealedLatentDirichletAllocation(
        n_components=n_components, doc_topic_prior=doc_topic_prior, **(settings | params)
    )


def entropy_of_proportions(visit: engine.Visit, units: Any) -> float:
    """Σ w H[q(θ)], from the γ that a visit left, by scipy."""
    entropies = [dirichlet(row).entropy() for row in np.concatenate(visit.local)]
    return float(
        np.dot(np.ones(len(entropies)) if units.weights is None else units.weights, entropies)
    )


def refused_by_topics(params: dict[str, Any]) -> dict[str, str]:
    if params.get("local_step", "mean_field") == "mean_field":
        return {}
    return {"local_tempering": "mean-field assignments"}


def has_auto(params: dict[str, Any]) -> bool:
    return any(isinstance(value, str) and value == "auto" for value in params.values())


class SequenceList(list):
    """A list of sequences, of any dtype."""

    def astype(self, dtype: Any) -> SequenceList:
        return SequenceList(X.astype(dtype) for X in self)


N_SYMBOLS = 4


def frames_of(emission: str, rng: np.random.Generator, states: np.ndarray) -> np.ndarray:
    """One frame for each state of three; every tenth is missing."""
    n = len(states)
    missing = rng.random(n) < 0.1
    if emission == "categorical":
        usual = rng.random(n) < 0.7
        symbols = np.where(usual, states, rng.integers(N_SYMBOLS, size=n)).astype(float)
        symbols[missing] = -1.0
        return symbols[:, None]
    centers = np.array([[4.0, 1.0], [1.0, 6.0], [8.0, 8.0]])[states]
    X = {
        "gaussian": lambda: 10.0 + centers + rng.standard_normal((n, 2)),
        "poisson": lambda: rng.poisson(centers).astype(float),
        "bernoulli": lambda: (rng.random((n, 2)) < centers / 9.0).astype(float),
    }[emission]()
    X[missing] = np.nan
    return X


def chains(
    emission: str, lengths: tuple[int, int] = (1, 6)
) -> Callable[[np.random.Generator, int], SequenceList]:
    """Sequences of three states that stay for some frames."""

    def make(rng: np.random.Generator, n: int) -> SequenceList:
        ends = np.cumsum(rng.integers(lengths[0], lengths[1] + 1, size=n))
        moves = rng.random(ends[-1]) < 0.3
        # Where a state is drawn anew, the sum over all draws so far is uniform modulo 3.
        states = np.cumsum(np.where(moves, rng.integers(3, size=ends[-1]), 0)) % 3
        return SequenceList(np.split(frames_of(emission, rng, states), ends[:-1]))

    return make


def tiny_chains(emission: str) -> dict[str, Callable[[np.random.Generator], SequenceList]]:
    """Six frames in three sequences; one of them is missing."""

    def make(rng: np.random.Generator) -> SequenceList:
        frames = frames_of(emission, rng, np.array([0, 0, 1, 1, 2, 0]))
        frames[np.isnan(frames)] = 1.0
        frames[frames < 0] = 1.0
        frames[1] = -1.0 if emission == "categorical" else np.nan
        return SequenceList(np.split(frames, [3, 5]))

    return {"6 frames": make}


def hidden_markov(emission: str, **fields: Any) -> Entry:
    """The entry of an emission; priors given in ``variants`` are of two columns."""
    declared = {"n_symbols": N_SYMBOLS} if emission == "categorical" else {}

    def make(n_components: int = 3, transmat_prior: Any = None, **params: Any) -> AnnealedHMM:
        # Priors of more states than ``n_components`` are cut.
        if np.ndim(transmat_prior):
            transmat_prior = np.asarray(transmat_prior)[:n_components, :n_components]
        settings = {"emission": emission, "max_iter": 5, "random_state": 0, "reg_covar": 0.0}
        settings |= {"transmat_prior": transmat_prior, **declared, **params}
        return AnnealedHMM(n_components, **settings)

    return Entry(
        f"hidden_markov_{emission}",
        make=make,
        data=chains(emission),
        several_chunks=lambda rng: chains(emission, (5, 10))(rng, 2500),
        tiny=tiny_chains(emission),
        log_evidence=hidden_markov_log_evidence,
        repeat=lambda X, counts: SequenceList(
            X[i] for i in np.repeat(np.arange(len(counts)), counts)
        ),
        row_weights=lambda X, weights: np.repeat(weights, [len(sequence) for sequence in X]),
        **fields,
    )


def ratings(
    n_items: int = 12, observed: float = 0.5
) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Users × items, from two factors and biases; NaN where nothing is known."""

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        factors = 0.7 * rng.standard_normal((n, 2)), 0.7 * rng.standard_normal((n_items, 2))
        biases = 0.5 * rng.standard_normal((n, 1)) + 0.5 * rng.standard_normal(n_items)
        X = 3.0 + factors[0] @ factors[1].T + biases + 0.6 * rng.standard_normal((n, n_items))
        X[rng.random(X.shape) >= observed] = np.nan
        # A user without ratings is a user; a matrix without any is no data.
        X[0, 0] = 2.5
        return X

    return make


def small_factorization(n_components: int = 2, **params: Any) -> AnnealedPMF:
    settings = {"max_iter": 5, "random_state": 0} | params
    return AnnealedPMF(n_components, **settings)


ASYMMETRIC_CHAIN = {
    "startprob_prior": 0.7,
    "transmat_prior": [[0.5, 0.2, 0.8], [1.1, 0.4, 0.3], [0.6, 0.9, 1.3]],
    "sticky": 2.0,
}
ONE_FULL_COMPONENT = {"n_components": 1, "covariance_type": "full"}
ENTRIES = [
    Entry(
        "gaussian_mixture",
        make=small_gaussian_mixture,
        data=clusters(3),
        variants=gaussian_mixture_variants(),
        tiny={"D=1": lambda rng: clusters(1)(rng, 6), "D=2": lambda rng: clusters(2)(rng, 6)},
        log_evidence=gaussian_mixture_log_evidence,
        exact=(
            (ONE_FULL_COMPONENT, "D=2"),
            (ONE_FULL_COMPONENT | {"weight_concentration_prior_type": "dirichlet_distribution"},
             "D=2"),
            *(({"n_components": 1, "covariance_type": t}, "D=1") for t in ("tied", "diag")),
            ({"n_components": 1, "covariance_type": "spherical"}, "D=1"),
        ),
        total_probability=integral_of_density,
        spaces={"D=1": clusters(1), "D=2": clusters(2)},
        checked=(
            {"n_components": 2, "batch_size": 10},
            {"n_components": 2, "annealing": "none", "batch_size": 10},
            {"n_components": 2, "factorization": "independent"},
            {"n_components": 2, "covariance_type": "tied", "init_params": "k-means++"},
        ),
    ),
    Entry(
        "latent_dirichlet",
        make=small_topics,
        data=documents(),
        variants={
            "symmetric": {},
            "asymmetric": {
                "doc_topic_prior": [0.2, 0.5, 0.9],
                "topic_word_prior": np.linspace(0.05, 0.8, N_WORDS).tolist(),
            },
            "above_one": {"doc_topic_prior": 1.5, "topic_word_prior": 2.5},
            "auto": {"doc_topic_prior": "auto", "topic_word_prior": "auto"},
        },
        heuristics={"cvb0": {"local_step": "cvb0"}, "gibbs": {"local_step": "gibbs"}},
        sampled=("gibbs",),
        converged={"max_doc_update_iter": 2000, "mean_change_tol": 1e-13},
        frozen={"max_doc_update_iter": 0},
        one_optimum="above_one",
        learns=has_auto,
        minibatches={"learning_method": "online"},
        refused=refused_by_topics,
        several_chunks=lambda rng: documents(1000, (55, 65))(rng, 2500),
        local_entropy=entropy_of_proportions,
        tiny={"V=30": tiny_documents((0, 0, 1), (1, 2, 2, 2), (0, 3))},
        log_evidence=latent_dirichlet_log_evidence,
        exact=tuple(
            ({"n_components": 1} | priors, "V=30")
            for priors in (
                {},
                {"topic_word_prior": np.linspace(0.05, 0.8, N_WORDS).tolist()},
                {"doc_topic_prior": 1.5, "topic_word_prior": 2.5},
            )
        ),
        checked=(
            {"n_components": 2, "learning_method": "online", "batch_size": 10},
            {"n_components": 2, "doc_topic_prior": "auto", "topic_word_prior": "auto"},
            *(
                {"n_components": 2, "annealing": name, "local_step": local_step}
                for local_step in ("cvb0", "gibbs")
                for name in ANNEALING.keys() - {"local_tempering"}
            ),
        ),
    ),
    hidden_markov(
        "gaussian",
        variants={
            **{t: {"covariance_type": t} for t in ("full", "tied", "diag", "spherical")},
            "sticky": ASYMMETRIC_CHAIN | {"beta_prior": 0.3, "dof_prior": 4.0},
        },
        exact=(
            ({"n_components": 1}, "6 frames"),
            ({"n_components": 1, "covariance_type": "tied"}, "6 frames"),
        ),
        checked=(
            {"n_components": 2, "annealing": "none", "batch_size": 10},
            {"n_components": 2, "covariance_type": "tied", "init_params": "random"},
        ),
    ),
    hidden_markov(
        "categorical",
        variants={
            "symmetric": {},
            "sticky": ASYMMETRIC_CHAIN | {"emissionprob_prior": [0.3, 0.9, 1.4, 0.6]},
        },
        exact=(({"n_components": 1}, "6 frames"),),
        common_checks=False,
    ),
    hidden_markov(
        "poisson",
        variants={
            "default": {},
            "sticky": ASYMMETRIC_CHAIN | {"lambdas_prior": [2.0, 0.6], "lambdas_weight": 0.3},
        },
        exact=(({"n_components": 1}, "6 frames"),),
        refused=lambda params: {
            "tempering": "log partition function",
            "local_tempering": "log partition function",
        },
        common_checks=False,
    ),
    hidden_markov(
        "bernoulli",
        variants={
            "uniform": {},
            "sticky": ASYMMETRIC_CHAIN | {"emissionprob_prior": [0.4, 1.7]},
        },
        exact=(({"n_components": 1}, "6 frames"),),
        common_checks=False,
    ),
    Entry(
        "matrix_factorization",
        make=small_factorization,
        data=ratings(),
        variants={
            "biases": {},
            "plain": {"biases": False, "fit_intercept": False},
            "given": {"noise_variance": 0.5, "factor_variance": 1.0, "bias_variance": 0.2},
            "auto": {
                "noise_variance": "auto", "factor_variance": "auto", "bias_variance": "auto",
            },
        },
        learns=has_auto,
        several_chunks=lambda rng: ratings(40, 0.4)(rng, 2500),
        # There are no assignments: all entropy of a local step is that of users.
        local_entropy=lambda visit, units: visit.step.entropy,
        tiny={
            "2 x 2": lambda rng: np.array([[4.0, 2.5], [1.0, 3.0]]),
            "3 x 2": lambda rng: np.array([[4.5, 2.0], [np.nan, 3.0], [np.nan, np.nan]]),
        },
        log_evidence=matrix_factorization_log_evidence,
        forms=("likelihood", "posterior"),
        unit_keys=("users_precision", "users_natural_mean"),
        checked=(
            {"n_components": 2, "annealing": "none", "batch_size": 10},
            {"n_components": 2, "annealing": "none", "biases": False, "fit_intercept": False,
             "clip": False},
            {"n_components": 2, "noise_variance": "auto", "factor_variance": "auto"},
        ),
    ),
]  # fmt: skip


class ExpectedFailure(NamedTuple):
    """Why a common check of scikit-learn must fail, and for which estimators."""

    reason: str
    concerns: Callable[[Any], bool]


EXPECTED_FAILURES: dict[str, dict[str, ExpectedFailure]] = {
    "gaussian_mixture": {
        # Stochastic annealing starts from the moments of the data, not from single rows.
        "check_sample_weight_equivalence_on_dense_data": ExpectedFailure(
            "A weight of 2 is a second row to every update, but not to the random draws of a "
            "start, of minibatches, or of weights per row: KMeans itself fails this check.",
            lambda est: est.n_components > 1 and est.annealing != "stochastic",
        ),
    },
    "latent_dirichlet": dict.fromkeys(
        (
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        ),
        ExpectedFailure(
            "A weight of 2 is a second document to every update, but not to the random draws of "
            "minibatches, of weights or starts per document, or of the topics of tokens.",
            lambda est: (
                est.annealing in ("stochastic", "svi_plus")
                or est.local_step == "gibbs"
                or est.learning_method == "online"
            ),
        ),
    ),
    "matrix_factorization": dict.fromkeys(
        (
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        ),
        ExpectedFailure(
            "A weight of 2 is a second user to every update, but not to the random draws of "
            "minibatches, of weights per rating, or of starts and noise per user.",
            lambda est: (
                est.batch_size is not None
                or est.annealing in ("stochastic", "svi_plus", "proximity")
            ),
        ),
    ),
    "hidden_markov_gaussian": dict.fromkeys(
        (
            "check_sample_weights_not_overwritten",
            "check_sample_weight_equivalence_on_dense_data",
        ),
        ExpectedFailure(
            "The rows of one array are one sequence, and it is sequences that have weights: rows "
            "of different weights are refused.",
            lambda est: True,
        ),
    )
    | {
        "check_estimators_pickle": ExpectedFailure(
            "Rows of NaN are allowed and marginalised, but this check strews single ones.",
            lambda est: True,
        ),
    },
}
"""Entry → common check → why it fails. Nothing else may fail, and all of these must."""


def expected_failures(estimator: Any) -> dict[str, str]:
    """The checks that this estimator is expected to fail, with their reasons."""
    return {
        check: expected.reason
        for entry in ENTRIES
        if type(estimator) is type(entry.make())
        for check, expected in EXPECTED_FAILURES.get(entry.name, {}).items()
        if expected.concerns(estimator)
    }


def models() -> list[Any]:
    """All entries, for ``pytest.mark.parametrize("entry", …)``."""
    return [pytest.param(entry, id=entry.name) for entry in ENTRIES]


def variants(
    heuristics: bool = False, sampled: bool = True, of: Callable[[Entry], Any] = lambda entry: True
) -> list[Any]:
    """All variants of all entries, for ``parametrize(("entry", "params"), …)``.

    Where ``heuristics``, those too whose local step ascends no bound, be it random only where
    ``sampled``; entries only where ``of``.
    """
    return [
        pytest.param(entry, params, id=f"{entry.name}-{name}")
        for entry in ENTRIES
        if of(entry)
        for name, params in (entry.variants | _heuristics(entry, heuristics, sampled)).items()
    ]


def forms(sampled: bool = True) -> list[Any]:
    """What the loop has to tell apart, for ``parametrize(("entry", "params"), …)``.

    Of every entry the first variant and the heuristics.
    """
    return [
        pytest.param(entry, params, id="-".join(filter(None, (entry.name, name))))
        for entry in ENTRIES
        for name, params in ({"": entry.first} | _heuristics(entry, True, sampled)).items()
    ]


def unambiguous() -> list[Any]:
    """Entries with local parameters, with what makes those unique."""
    return [
        pytest.param(entry, entry.unambiguous, id=entry.name)
        for entry in ENTRIES
        if entry.one_optimum
    ]


def _heuristics(entry: Entry, any_of_them: bool, sampled: bool) -> dict[str, dict[str, Any]]:
    return {
        name: params
        for name, params in entry.heuristics.items()
        if any_of_them and (sampled or name not in entry.sampled)
    }


def crossed(pairs: list[Any], names: Any = None) -> list[Any]:
    """Entries with parameters × names of annealing that work, for ``("entry", "params", "name")``.

    ``pairs`` is a result of :func:`variants` or :func:`forms`.
    """
    return [
        pytest.param(entry, params, name, id=f"{pair.id}-{name}")
        for pair in pairs
        for entry, params in [pair.values]
        for name in (ANNEALING if names is None else names)
        if name not in entry.refused(params)
    ]


def combinations(names: Any = None, sampled: bool = True) -> list[Any]:
    """All :func:`forms`, :func:`crossed` with names of annealing."""
    return crossed(forms(sampled), names)


def quick(name: str, n_passes: int = 4, **params: Any) -> Any:
    """The method of a name with few passes, and with more than that set if asked."""
    method = ANNEALING[name]()
    if "n_passes" in method.get_params():
        params = {"n_passes": n_passes} | params
    return method.set_params(**params)


def model_of(estimator: Any, X: Any) -> Any:
    """The model that an estimator would fit to X."""
    X = estimator._validate_data(X, reset=True)
    return estimator._make_model(X, estimator._make_units(X, None))


def units_of(estimator: Any, X: Any, weights: np.ndarray | None = None) -> Any:
    """The units of X as a fitted estimator sees them."""
    return estimator._make_units(estimator._validate_data(X, reset=False), weights)


def open_run(
    estimator: Any, X: Any, sample_weight: np.ndarray | None = None, q: Any = None, seed: int = 0
) -> tuple[Context, Any, Any]:
    """The context of a fit at its start (or at ``q``), its method, and its units.

    What ``fit`` does before the loop, so that tests can drive single updates.
    """
    X = estimator._validate_data(X, reset=True)
    units = estimator._make_units(X, sample_weight)
    model = estimator._make_model(X, units)
    method = estimator._strategy(model)
    estimator._load_kernels(model)
    batch = estimator._batch_size is None or estimator._batch_size >= units.n_units
    model = model.holding(batch and method.holds_units)
    summary = model.summary(units)
    model = model.resolved(summary)
    prior = model.prior(summary)
    units = units.placed(summary)
    ctx = Context(model, prior, summary, np.random.default_rng(seed), q={})
    if q is None:
        q = model.init(units, summary, prior, np.random.RandomState(seed))
    ctx.q = q
    method = method.calibrate(ctx, units, partial(engine.rehearse, ctx, units, FULL_STEPS))
    ctx.state |= method.initial_state(ctx)
    return ctx, method, units


FULL_STEPS = engine.Settings(
    max_iter=0, tol=0.0, batch_size=None, learning_offset=1.0, learning_decay=0.0
)


def one_update(
    ctx: Context, method: Any, units: Any, *, settings: Any = FULL_STEPS, minibatch: bool = False
) -> engine.Visit:
    """One visit of all units and one update of ``ctx``; the visit of the λ before the update."""
    seen = engine.visit(ctx, method, units, SEQUENTIAL)
    engine.update(ctx, method, units, seen, settings, SEQUENTIAL, minibatch=minibatch, passes=1.0)
    return seen


def largest_difference(a: Any, b: Any) -> float:
    """Largest difference of two sets of natural parameters, relative to each array's size."""
    assert a.keys() == b.keys()
    return max(
        float(np.max(np.abs(a[key] - b[key])) / max(np.max(np.abs(b[key])), 1e-300)) for key in a
    )


def fitted_state(estimator: Any) -> dict[str, Any]:
    """Everything that a fit leaves behind, as arrays, the settings of its method included."""
    state = {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and not name.startswith("_") and name != "annealing_"
    }
    ctx = estimator._inference.ctx
    state |= {f"q: {key}": value for key, value in ctx.q.items()}
    state |= {f"state: {key}": value for key, value in ctx.state.items()}
    state |= {f"annealing_: {k}": v for k, v in estimator.annealing_.get_params().items()}
    return state


def assert_identical(a: Any, b: Any) -> None:
    """Two fitted estimators are equal bit for bit."""
    one, other = fitted_state(a), fitted_state(b)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(other[name]), err_msg=name)
