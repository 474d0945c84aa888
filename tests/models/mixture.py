"""Mixtures of any columns, described for the common tests by one entry per emission."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from enumeration import mixture_log_evidence
from peer_priors import PEER_OF_COLUMNS
from quadrature import integral_of_density

from models._entry import Entry, ExpectedFailure, has_auto
from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.estimators._base import BaseAnnealed
from sklearn_anneal.estimators._covariates import LabelledTable, beside_table
from sklearn_anneal.estimators._known_classes import read_labels

N_CATEGORIES = (3, 2, 3)


class GivenByColumn(AnnealedBayesianMixture):
    """A mixture whose data have one more column, in which something is known of the rows.

    The common tests give estimators X alone.
    """

    def _validate_data(self, X: Any, *, reset: bool, **how: Any) -> Any:
        return super()._validate_data(self._divided(X, reset), reset=reset, **how)

    def _divided(self, X: Any, reset: bool) -> LabelledTable:
        raise NotImplementedError

    @property
    def impute(self) -> Any:
        raise AttributeError("The cells of the last column cannot be filled in.")


class GivenCovariate(GivenByColumn):
    """The last column of X is a covariate."""

    def _divided(self, X: Any, reset: bool) -> LabelledTable:
        if reset:
            self._settle_columns((1, ()), goes_on=False)
        return beside_table(X[:, :-1], np.array(X[:, -1:], dtype=float))

    def _with_covariates(self, X: Any, covariates: Any, goes_on: bool) -> Any:
        return X

    def _again(self, X: Any, covariates: Any = None) -> Any:
        return super()._again(X[:, :-1], X[:, -1:])


class GivenLabel(GivenByColumn):
    """The last column of X has the class, 0 or 1, where it is known, and −1 elsewhere."""

    def _divided(self, X: Any, reset: bool) -> LabelledTable:
        if reset:
            self._lay_out(np.array([0.0, 1.0]), goes_on=False)
        numbers = read_labels(X[:, -1]).numbers(self._class_labels)
        return LabelledTable(X[:, :-1], numbers, len(numbers))

    def _labelled(self) -> bool:
        return False

    def _settle_classes_of_parts(self, of_parts: Any, goes_on: bool) -> None:
        return None

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
        return BaseAnnealed._scored(self, X, y, sample_weight)

    def _again(self, X: Any, covariates: Any = None) -> Any:
        return super()._again(X[:, :-1])


BLOCKS = [
    ("binary", "bernoulli", [1]),
    ("categories", "categorical", [0, 4]),
    ("counts", "poisson", [2]),
    ("sizes", "gaussian", [3]),
]


def table(
    emission: Any, holes: float, repeats: int = 1
) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Rows of three overlapping components, of different sizes, with some missing cells.

    There are three columns, or some multiple of them, so that few rows are equal.
    """

    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        z = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        corners = np.array([[0.1, 0.8, 0.3], [0.9, 0.3, 0.2], [0.6, 0.2, 0.9]])[z]
        corners = np.tile(corners, repeats)
        size = np.tile(N_CATEGORIES, repeats)

        def categories() -> np.ndarray:
            usual = rng.random(corners.shape) < 0.7
            return np.where(usual, z[:, None] % size, rng.integers(size, size=usual.shape))

        makers = {
            "bernoulli": lambda: (rng.random(corners.shape) < corners).astype(float),
            "categorical": lambda: categories().astype(float),
            "poisson": lambda: rng.poisson(12.0 * corners).astype(float),
            "negative_binomial": lambda: rng.poisson(12.0 * corners * rng.gamma(2.0, 0.5, (n, 3))),
            "zero_inflated_poisson": lambda: (
                rng.poisson(6.0 * corners) * (rng.random((n, 3)) < 0.7)
            ),
            "gaussian": lambda: 10.0 + 4.0 * corners + 0.7 * rng.standard_normal((n, 3)),
        }
        if isinstance(emission, str):
            X = makers[emission]().astype(float)
        else:
            columns = [makers[kind]() for kind in ("categorical", "bernoulli", "poisson")]
            X = np.column_stack(
                [columns[0][:, 0], columns[1][:, 0], columns[2][:, 1], 4.0 * corners[:, 1]]
            )
            X = np.column_stack([X, columns[0][:, 2]])
            X[:, 3] += 0.5 * rng.standard_normal(n)
        X[rng.random(X.shape) < holes] = np.nan
        return X

    return make


def with_covariate(rng: np.random.Generator, n: int) -> np.ndarray:
    """Binary rows, and a covariate on which they depend."""
    X = table("bernoulli", 0.1, 4)(rng, n)
    return np.column_stack([X, 7.0 + 2.0 * np.nanmean(X, axis=1) + rng.standard_normal(n)])


def with_label(rng: np.random.Generator, n: int) -> np.ndarray:
    """Binary rows, and the classes of half of them."""
    X = table("bernoulli", 0.1, 4)(rng, n)
    y = np.where(rng.random(n) < 0.5, rng.integers(2, size=n), -1)
    y[:2] = [0, 1]
    return np.column_stack([X, y])


def tiny(emission: Any) -> dict[str, Callable[[np.random.Generator], np.ndarray]]:
    """Six rows, of which one has a missing cell and one has nothing else."""

    def make(rng: np.random.Generator) -> np.ndarray:
        X = table(emission, 0.0)(rng, 6)
        X[1, 0] = np.nan
        X[4] = np.nan
        return X

    return {"6 rows": make}


def total_over_categories(estimator: Any) -> float:
    """Σ exp(score_samples) over all rows that are possible."""
    sizes = getattr(estimator, "n_categories_", np.full(estimator.n_features_in_, 2))
    rows = np.array(list(product(*(range(size) for size in sizes))))
    return float(np.exp(estimator.score_samples(rows)).sum())


def total_over_counts(estimator: Any) -> float:
    """Σ exp(score_samples) over all counts of a single column that matter."""
    return float(np.exp(estimator.score_samples(np.arange(20_000)[:, None])).sum())


def mixture(emission: Any, name: str, **fields: Any) -> Entry:
    """The entry of an emission."""
    declared = {
        # All three columns of small data, and the four times as many of others, have 3 at most.
        "categorical": {"n_categories": 3},
        "blocks": {"n_categories": {"categories": [3, 3]}},
    }

    def make(**params: Any) -> AnnealedBayesianMixture:
        settings = {"n_components": 3, "emission": emission, "max_iter": 5, "random_state": 0}
        settings |= {"reg_covar": 0.0, **PEER_OF_COLUMNS, **declared.get(name, {})}
        return AnnealedBayesianMixture(**(settings | params))

    return Entry(
        f"mixture_{name}",
        make=make,
        data=table(emission, 0.1, 4 if name in ("bernoulli", "categorical") else 1),
        tiny=tiny(emission),
        log_evidence=mixture_log_evidence,
        **(
            {
                "exact": (({"n_components": 1}, "6 rows"),),
                "learns": has_auto,
                "common_checks": False,
            }
            | fields
        ),
    )


def given_by_column(
    name: str,
    cls: type[GivenByColumn],
    data: Callable[[np.random.Generator, int], np.ndarray],
    of_tiny: list[float],
    **fields: Any,
) -> Entry:
    """The entry of a mixture of binary columns, and one in which something is known of rows."""

    def make(n_components: int = 3, **params: Any) -> GivenByColumn:
        settings = {"max_iter": 5, "random_state": 0, "reg_covar": 0.0, **PEER_OF_COLUMNS}
        if cls is GivenLabel:
            settings["n_components_per_class"] = {0: max(n_components - 1, 1), 1: 1}
        else:
            settings["weight_concentration_prior"] = "auto"
        return cls(n_components, **(settings | params))

    def few(rng: np.random.Generator) -> np.ndarray:
        return np.column_stack([tiny("bernoulli")["6 rows"](rng), of_tiny])

    return Entry(
        f"mixture_{name}",
        make=make,
        data=data,
        tiny={"6 rows": few},
        **({"learns": has_auto, "common_checks": False} | fields),
    )


PRIORS = ("dirichlet_process", "dirichlet_distribution")
WEIGHTS = {
    prior.split("_")[1]: {"weight_concentration_prior_type": prior, "emissionprob_prior": 0.6}
    for prior in PRIORS
}
REFUSED_COUNTS = {
    "tempering": "log partition function",
    "local_tempering": "log partition function",
}


def of_counts(emission: str, *priors: str, **fields: Any) -> Entry:
    """The entry of an emission of counts, with further priors beside those of its rates."""
    given = {"lambdas_prior": 1.4, "lambdas_weight": 0.3, **dict.fromkeys(priors, 0.7)}
    return mixture(
        emission,
        emission,
        variants={"default": given, "learned": dict.fromkeys(given, "auto")},
        refused=lambda params: REFUSED_COUNTS,
        total_probability=total_over_counts,
        spaces={"counts": lambda rng, n: table(emission, 0.1)(rng, n)[:, :1]},
        **fields,
    )


REFUSED_GIVEN_COVARIATES = dict.fromkeys(REFUSED_COUNTS, "weights of rows depend on covariates")

ENTRIES = [
    mixture(
        "bernoulli",
        "bernoulli",
        variants=WEIGHTS
        | {"learned": dict.fromkeys(("emissionprob_prior", "weight_concentration_prior"), "auto")},
        total_probability=total_over_categories,
        spaces={"2³ rows": table("bernoulli", 0.1)},
    ),
    mixture(
        "categorical",
        "categorical",
        variants={
            "process": {},
            "distribution": WEIGHTS["distribution"],
            "learned": {"emissionprob_prior": "auto"},
        },
        total_probability=total_over_categories,
        spaces={"3³ rows": table("categorical", 0.1)},
    ),
    of_counts("poisson"),
    # The shapes of counts are learned, whatever the priors are.
    of_counts("negative_binomial", learns=lambda params: True),
    # Which zeros have a reason of their own is not independent of the parameters.
    of_counts("zero_inflated_poisson", "emissionprob_prior", exact=()),
    mixture(
        "gaussian",
        "gaussian",
        variants={
            "default": {"beta_prior": 0.7, "dof_prior": 2.5},
            "learned": dict.fromkeys(
                ("means_prior", "beta_prior", "dof_prior", "scale_prior"), "auto"
            ),
        },
        total_probability=integral_of_density,
        spaces={"one column": lambda rng, n: table("gaussian", 0.1)(rng, n)[:, :1]},
        common_checks=True,
        checked_form={"emission": "gaussian"},
        checked=(
            {"n_components": 2, "batch_size": 10, "effort": 0, "max_iter": 10},
            {"n_components": 2, "annealing": "none"},
        ),
        expected_failures={
            "check_sample_weight_equivalence_on_dense_data": ExpectedFailure(
                "A weight of 2 is a second row to every update, but not to the random draws of a "
                "start, of minibatches, or of weights per row: KMeans itself fails this check.",
                lambda est: est.n_components > 1,
            ),
        },
    ),
    mixture(
        BLOCKS,
        "blocks",
        variants={
            "default": {},
            "learned": dict.fromkeys(PEER_OF_COLUMNS, "auto"),
            "full": {"covariance_type": "full"},
        },
        refused=lambda params: REFUSED_COUNTS,
    ),
    given_by_column(
        "labels",
        GivenLabel,
        with_label,
        [0, -1, 1, 0, -1, -1],
        variants=WEIGHTS,
        log_evidence=lambda est, X: mixture_log_evidence(est, X[:, :-1], X[:, -1]),
    ),
    given_by_column(
        "covariates",
        GivenCovariate,
        with_covariate,
        [3.0, 5.0, 4.0, 9.0, 7.0, 2.0],
        variants={"given": {}, "learned": {"coefficients_prior": "auto"}},
        refused=lambda params: REFUSED_GIVEN_COVARIATES,
        log_evidence=lambda est, X: mixture_log_evidence(est, X[:, :-1], covariates=X[:, -1]),
    ),
]
