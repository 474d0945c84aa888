"""The interface between components and the models made of them: mixtures and Markov chains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...families import Factor, Natural
from ...inference.units import Rows
from ...kernels import LOADING

# Starts by k-means look at no more than this many rows.
_ROWS_FOR_KMEANS = 20_000


def clusterings() -> ModuleType:
    """Return :mod:`sklearn.cluster`.

    It is imported only when a start needs it, because it would take a tenth of the time in which
    the package is imported.
    """
    with LOADING:
        return import_module("sklearn.cluster")


class Components(ABC):
    """The distributions of a row given each of K states; an object holds hyperparameters only.

    Raw statistics are arrays in the layout of the kernels, and those of two sets of rows can be
    added. :meth:`statistics` converts them into the shapes of the natural parameters.

    Attributes
    ----------
    n_components : int
        K.
    learns : bool
        Whether :meth:`learned` changes any hyperparameter.
    why_no_log_volume : str or None
        The reason why the class does not define :meth:`log_volume`, for error messages; None if
        it does.
    """

    n_components: int
    learns: bool = False
    why_no_log_volume: ClassVar[str | None] = None

    # Data and parameters

    def summary(self, rows: Rows) -> Any:
        """Return the moments of the rows that priors and starts need; None if they need none."""
        return None

    def resolved(self, summary: Any) -> Components:
        """Return components in which the priors that depend on data have their values."""
        return self

    @property
    @abstractmethod
    def factors(self) -> tuple[Factor, ...]:
        """The factors of q(β)."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all natural parameters."""
        return tuple(name for factor in self.factors for name in factor.names.values())

    @abstractmethod
    def prior(self, summary: Any) -> Natural:
        """Return λ₀ of all components."""

    def learned(self, q: Natural, prior: Natural, rho: float) -> tuple[Components, Natural]:
        """Return the components and their λ₀ after a step of empirical Bayes.

        Hyperparameters that are learned move by the share ρ towards the values that maximise the
        bound given q; all others stay.
        """
        return self, {key: prior[key] for key in self.keys}

    def start(
        self, rows: Rows, n_rows: float, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """Return the start by k-means: the posterior given rows that are labelled by clusters.

        The clusters are those of a sample, whose weights are scaled to a total of ``n_rows``.
        """
        labels, sample = self._labels(rows, random_state)
        responsibilities = np.equal.outer(labels, np.arange(self.n_components)).astype(float)
        if sample.weights is not None:
            responsibilities *= sample.weights[:, None]
        responsibilities *= n_rows / max(responsibilities.sum(), 1e-300)
        expected = self.expectations_of_start(sample, prior)
        raw = self.zeros(expected)
        self.add(sample, responsibilities, raw, expected)
        return {key: prior[key] + value for key, value in self.statistics(raw).items()}

    def _labels(self, rows: Rows, random_state: np.random.RandomState) -> tuple[np.ndarray, Rows]:
        """Return a sample of the rows, preceded by the cluster of each row of the sample."""
        sample: Any = rows.subset(_ROWS_FOR_KMEANS, random_state)
        # Rows can be at equal distances from two centres, as most binary vectors are. In single
        # precision, rounding would decide between these centres.
        rows64 = sample.completed(np.float64)
        n_clusters = min(self.n_components, len(np.unique(rows64, axis=0)))
        means = clusterings().KMeans(n_clusters=n_clusters, n_init=1, random_state=random_state)
        return means.fit(rows64, sample_weight=sample.weights).labels_, sample

    def expectations_of_start(self, rows: Rows, prior: Natural) -> Any:
        """Return the expectations with which the cells that rows lack are completed in a start."""
        return self.expectations(prior)

    @abstractmethod
    def random_natural(
        self, counts: np.ndarray, summary: Any, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        """Return the posterior of random components, given the number of rows of each.

        ``counts`` has these numbers, of shape (n_components,).
        """

    @abstractmethod
    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Any:
        """Return E log p(x | z = k) in the form that :meth:`log_density` reads.

        With ``rng``, return log p(x | z = k) at one draw of the parameters instead.
        """

    @abstractmethod
    def plug_in(self, q: Natural) -> Any:
        """Return log p(x | z = k) at the posterior means, in the form of :meth:`expectations`."""

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        """Return the counts of q, each multiplied by exp(size · N(0, 1)).

        The result is empty if the parameters are not counts that can change independently.
        """
        return {}

    @abstractmethod
    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        """Return coordinates of the components, (n_components, …).

        Components coincide if their coordinates are equal up to a tolerance.
        """

    # Rows

    @abstractmethod
    def log_density(self, rows: Rows, expected: Any) -> np.ndarray:
        """Return E log p(x_n | z_n = k) in nats, of shape (n_rows, n_components)."""

    @abstractmethod
    def zeros(self, expected: Any) -> Natural:
        """Return raw statistics of zero rows, to which :meth:`add` adds."""

    @abstractmethod
    def add(self, rows: Rows, shares: np.ndarray, raw: Natural, expected: Any) -> None:
        """Add the statistics of rows to ``raw``, in place.

        ``shares`` (n_rows, n_components) has the weight with which a row counts for a component.
        ``expected`` is what :meth:`log_density` read for these rows. It determines the expected
        values of cells that are missing.
        """

    @abstractmethod
    def statistics(
        self, raw: Natural, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        """Return raw statistics in the shapes of the natural parameters.

        The result has the given keys; None stands for all of them. If q has several factors for
        the components, the statistics of one factor depend on the current parameters of the
        other, which are read from ``q``.
        """

    # Operations that only some annealing methods need

    def log_volume(self, x: np.ndarray, summary: Any, expected: Any) -> np.ndarray:
        """Return the log of the sum (or integral) of p(x_n | z_n = k)^x over all values of x_n.

        The result is in nats and has shape (len(x), n_components), ``x`` being inverse
        temperatures.
        """
        raise NotImplementedError

    def row_volume(self, summary: Any) -> Any:
        """Return how :meth:`log_volume` changes if some cells of rows are missing.

        None stands for components that know no missing cells.
        """
        return None


class Coefficients(NamedTuple):
    """Coefficients in E log p(x | z = k) = x · slopes_k + constants_k + c(x)."""

    slopes: np.ndarray
    constants: np.ndarray


class LinearComponents(Components):
    """Components with independent columns, whose log density is a linear function of the row.

    A term c(x) that is the same for all components need not be linear.
    """

    def __init__(self, n_components: int, n_features: int):
        self.n_components = n_components
        self.n_features = n_features

    def _carrier(self, X: np.ndarray) -> Any:
        """Return the term c(x) that the log densities of all components share, (n_rows,) or 0."""
        return 0.0

    def log_density(self, rows: Rows, expected: Coefficients) -> np.ndarray:
        X = np.asarray(rows.X, dtype=np.float64)
        carrier = np.asarray(self._carrier(X))
        return X @ expected.slopes.T + expected.constants + carrier.reshape(-1, 1)

    def zeros(self, expected: Coefficients) -> Natural:
        return {"count": np.zeros(self.n_components), "sum": np.zeros(expected.slopes.shape)}

    def add(self, rows: Rows, shares: np.ndarray, raw: Natural, expected: Any) -> None:
        raw["count"] += shares.sum(axis=0)
        raw["sum"] += shares.T @ np.asarray(rows.X, dtype=np.float64)


def moved(old: np.ndarray, new: Any, rho: float) -> np.ndarray:
    """Return positive numbers that have moved by the share ρ, on the scale of their logarithms."""
    result = np.broadcast_to(np.asarray(new, dtype=np.float64), old.shape)
    return result.copy() if rho == 1.0 else old * (result / old) ** rho


def log_means(concentration: np.ndarray) -> np.ndarray:
    """Return the logarithms of the means of Dirichlet distributions, one per row."""
    return np.log(concentration) - np.log(concentration.sum(axis=-1, keepdims=True))


def multiplied(counts: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    """Return counts, each multiplied by exp(size · N(0, 1))."""
    return counts * np.exp(size * rng.standard_normal(counts.shape))
