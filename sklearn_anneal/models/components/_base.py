"""What mixtures and hidden Markov models ask of their components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from ...families import Factor, Natural
from ...inference.units import Rows

_ROWS_FOR_KMEANS = 20_000


class Components(ABC):
    """The distributions of a row given each of K states; hyperparameters only.

    Raw statistics are arrays that add up over rows, in the layout of the kernels;
    :meth:`statistics` brings them into the shapes of the natural parameters.

    Attributes
    ----------
    n_components : int
        K.
    why_no_log_volume : str or None
        Why there is no :meth:`log_volume`; None where there is one.
    """

    n_components: int
    why_no_log_volume: ClassVar[str | None] = None

    # Data and parameters

    def summary(self, rows: Rows) -> Any:
        """What priors and starts need to know of the rows; None where they need nothing."""
        return None

    def resolved(self, summary: Any) -> Components:
        """The components with the priors that depend on data filled in."""
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
        """λ₀ of all components."""

    def start(
        self, rows: Rows, n_rows: float, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """The start by k-means: the posterior of ``n_rows`` rows that are labelled by clusters."""
        labels, sample = self._labels(rows, random_state)
        responsibilities = np.equal.outer(labels, np.arange(self.n_components)).astype(float)
        if sample.weights is not None:
            responsibilities *= sample.weights[:, None]
        responsibilities *= n_rows / max(responsibilities.sum(), 1e-300)
        raw = self.zeros(self.expectations(prior))
        self.add(sample, responsibilities, raw)
        return {key: prior[key] + value for key, value in self.statistics(raw).items()}

    def _labels(self, rows: Rows, random_state: np.random.RandomState) -> tuple[np.ndarray, Rows]:
        """Clusters of some rows, and these rows."""
        sample: Any = rows.subset(_ROWS_FOR_KMEANS, random_state)
        n_clusters = min(self.n_components, len(np.unique(sample.X, axis=0)))
        means = KMeans(n_clusters=n_clusters, n_init=1, random_state=random_state)
        # Rows may tie, of binary vectors most do: rounding must not choose between them.
        rows64 = np.asarray(sample.X, dtype=np.float64)
        return means.fit(rows64, sample_weight=sample.weights).labels_, sample

    @abstractmethod
    def random_natural(
        self, counts: np.ndarray, summary: Any, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        """Posteriors of random components that ``counts`` (n_components,) rows belong to."""

    @abstractmethod
    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Any:
        """E log p(x | z = k) in the form that :meth:`log_density` reads.

        With ``rng``, it is log p(x | z = k) at one draw of the parameters.
        """

    @abstractmethod
    def plug_in(self, q: Natural) -> Any:
        """log p(x | z = k) at the posterior mean parameters, in the same form."""

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        """The counts of q times exp(size · N(0, 1)); nothing where they alone cannot move."""
        return {}

    @abstractmethod
    def coordinates(self, q: Natural, summary: Any) -> np.ndarray:
        """Where the components lie, (n_components, …), to tell those that coincide."""

    # Rows

    @abstractmethod
    def log_density(self, rows: Rows, expected: Any) -> np.ndarray:
        """E log p(x_n | z_n = k) in nats, of shape (n_rows, n_components)."""

    @abstractmethod
    def zeros(self, expected: Any) -> Natural:
        """Raw statistics of no row."""

    @abstractmethod
    def add(self, rows: Rows, shares: np.ndarray, raw: Natural) -> None:
        """Add the statistics of rows with the given shares of the components, in place."""

    @abstractmethod
    def statistics(
        self, raw: Natural, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        """Raw statistics in the shapes of the natural parameters, of some keys or of all.

        ``q`` is what statistics of one factor depend on the current parameters of another for.
        """

    # What only some annealing methods ask for

    def log_volume(self, x: np.ndarray, summary: Any, expected: Any) -> np.ndarray:
        """log of the sum (or integral) of p(x_n | z_n = k)^x over all rows, in nats.

        Its shape is (len(x), n_components), for the inverse temperatures ``x``.
        """
        raise NotImplementedError


class Coefficients(NamedTuple):
    """E log p(x | z = k) = x · slopes_k + constants_k + what all components share."""

    slopes: np.ndarray
    constants: np.ndarray


class LinearComponents(Components):
    """Components of independent columns whose log density is linear in them."""

    def __init__(self, n_components: int, n_features: int):
        self.n_components = n_components
        self.n_features = n_features

    def _carrier(self, X: np.ndarray) -> Any:
        """What the log density of each row has whatever its component is, (n_rows,) or 0."""
        return 0.0

    def log_density(self, rows: Rows, expected: Coefficients) -> np.ndarray:
        X = np.asarray(rows.X, dtype=np.float64)
        carrier = np.asarray(self._carrier(X))
        return X @ expected.slopes.T + expected.constants + carrier.reshape(-1, 1)

    def zeros(self, expected: Coefficients) -> Natural:
        return {"count": np.zeros(self.n_components), "sum": np.zeros(expected.slopes.shape)}

    def add(self, rows: Rows, shares: np.ndarray, raw: Natural) -> None:
        raw["count"] += shares.sum(axis=0)
        raw["sum"] += shares.T @ np.asarray(rows.X, dtype=np.float64)


def log_means(concentration: np.ndarray) -> np.ndarray:
    """The logarithms of the means of Dirichlet distributions, one per row."""
    return np.log(concentration) - np.log(concentration.sum(axis=-1, keepdims=True))


def multiplied(counts: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    """Counts times exp(size · N(0, 1))."""
    return counts * np.exp(size * rng.standard_normal(counts.shape))
