"""The interface between components and the models made of them: mixtures and Markov chains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from ...data.units import Rows
from ...families import Factor, Natural, Tempering, UnitTemperatures, followed
from ...kernels import LOADING
from .._base import Expected, Known, LocalStep, Recommended
from .._known_classes import exclude_others
from .._mixture_steps import locally_tempered_responsibilities_step, responsibilities_step
from .._points import n_distinct
from ._predictive_moments import CellMoments

# Starts by k-means use no more than this many rows.
ROWS_FOR_KMEANS = 20_000
# Bounds of a concentration, or of the shape of a gamma prior, that is learned. With a smaller one,
# a component practically excludes every value that it has not shown so far: such values would be
# predicted too rarely, and the fit would no longer move them between components. If all components
# are the same, the bound is highest at infinity.
BOUNDS = (0.1, 1e4)
# Rows stay in their components if the numbers of rows of these change by no larger share of all
# rows in a pass. Rows that change places are not seen, which costs passes, but never bound.
SHARE_THAT_MOVES = 1e-3
# Vectors of ones for so many rows are kept, and points of so many coordinates in all.
_FEW_ROWS, _FEW_CELLS = 1 << 12, 1 << 18


Profile = dict[str, Any]
"""Parameters of components, by the names of fitted attributes without their underscores."""

Draws = list[dict[str, np.ndarray]]
"""One draw of all parameters, with an entry for each factor."""


def clusterings() -> ModuleType:
    """Return :mod:`sklearn.cluster`.

    It is imported only when a start needs it, because it would take a tenth of the time in which
    the package is imported.
    """
    with LOADING:
        return import_module("sklearn.cluster")


@dataclass(frozen=True)
class RawStatistics:
    """Base class of the raw statistics of components: arrays in the layout of the kernels.

    Those of two sets of rows can be added, and those of a sample be multiplied by the number of
    rows that each of its rows represents.
    """

    # An array scalar that is multiplied by statistics leaves it to them.
    __array_ufunc__ = None

    def __add__(self, other: Self) -> Self:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*[a + b for a, b in pairs])

    def __rmul__(self, factor: float) -> Self:
        return type(self)(*[factor * a for a in vars(self).values()])


class Joint(NamedTuple):
    """E log p(x, z = k) as the local step of a mixture reads it."""

    own: Expected  # the values that :meth:`Components.log_density` reads
    # E log π, (n_components,); None if it is a part of ``own``.
    log_weights: np.ndarray | None = None
    # The class of each component, (n_components,); None if no class of rows is known.
    classes: np.ndarray | None = None
    # The part that adds E log π of single rows, by their covariates; None if all have the same.
    gate: Any = None

    def of(self, rows: Rows, log_density: np.ndarray) -> np.ndarray:
        """Make E log p(x | z = k) of rows, (n_rows, K), the joint density, in place.

        A row whose class is known cannot belong to components of other classes.
        """
        if self.log_weights is not None:
            log_density += self.log_weights
        if self.gate is not None:
            log_density += self.gate.log_weights(rows)
        if rows.classes is not None and self.classes is not None:
            exclude_others(log_density, rows.classes, self.classes)
        return log_density


def column_sums(shares: np.ndarray) -> np.ndarray:
    """Return the sum of each column, by a product, which is faster than a sum for few columns."""
    n = len(shares)
    return (_ones(n) if n <= _FEW_ROWS else np.ones(n)) @ shares


@lru_cache(maxsize=16)
def _ones(n: int) -> np.ndarray:
    """Return n ones, which take longer to make than a product with them takes."""
    found = np.ones(n)
    found.flags.writeable = False
    return found


P = TypeVar("P")
"""The summary of the data that components need; None if they need none."""

R = TypeVar("R", bound=RawStatistics)
"""The raw statistics of components."""


class Next(NamedTuple):
    """Quantities of the next visit that learning the priors has computed.

    Attributes
    ----------
    prior : dict of ndarray or None
        The new prior; None if nothing was computed.
    q : dict of ndarray
        The parameters that follow it.
    moments : tuple or None
        The moments of these.
    raw : object
        The statistics of rows from which the prior was learned.
    exact : bool
        Whether the parameters are known to be the prior plus these statistics.
    """

    prior: Natural | None = None
    q: Natural = {}
    moments: tuple[Any, ...] | None = None
    raw: Any = None
    exact: bool = False


class Components(ABC, Generic[P, R]):
    """The distributions of a row given each of K states; an object holds hyperparameters only.

    :meth:`statistics` converts raw statistics into the shapes of the natural parameters. A mixture
    makes its local steps by :meth:`local_step`, which components override if they have a kernel
    that goes from rows to statistics at once.

    Attributes
    ----------
    n_components : int
        K.
    recommended : dict
        Name of an annealing method → the values of its ``"auto"`` parameters for mixtures.
    starts_like_scikit_learn : bool
        Whether mixtures begin where scikit-learn's do: random numbers are drawn in the same order,
        and k-means looks at all rows, in the units of their columns.
    profile_names : tuple of str
        The names of the fitted attributes that describe a component, without their underscores. A
        start can be given by them (:meth:`posterior_like`).
    learns : bool
        Whether :meth:`learned` changes any hyperparameter.
    usual_effort : float
        The largest effort of a search, unless one is given.
    least_rows : float
        A stream counts rows to come from so many rows on (:meth:`Streamed.least_weight`).
    waits : bool
        Whether learning waits until the bound hardly rises any more. The prior of a table of
        probabilities does, because small concentrations freeze what has not moved yet. The prior
        of a location and a scale does not, because components that are wide at first would have
        swallowed their neighbours before it is learned.
    """

    n_components: int
    recommended: ClassVar[Recommended] = {
        "deterministic": {
            "form": "local",
            "initial_temperature": 3.0,
            "schedule": "geometric",
            "n_passes": 30,
            "jitter": 0.1,
        },
        "stochastic": {
            "initial_noise": 0.05,
            "schedule": "linear",
            "n_passes": 50,
            "start": "init_params",
        },
        "tempering": {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.25, "noise": "dirichlet", "schedule": "linear"},
        "structured": {"gradient": "approximate", "n_passes": 300},
        "proximity": {"strength": 0.003, "lag": 5, "learning_rate": 0.5},
    }
    starts_like_scikit_learn: ClassVar[bool] = False
    profile_names: ClassVar[tuple[str, ...]] = ()
    learns: bool = False
    waits: ClassVar[bool] = True
    usual_effort: float = np.inf
    least_rows: float = 0.0
    # Whether a single component learns its priors from however few rows.
    learns_alone = False
    # Whether statistics of rows that lack cells depend on expectations.
    completes: bool = True

    @property
    def why_no_log_volume(self) -> str | None:
        """The reason why the class does not define :meth:`log_volume`; None if it does."""
        return None

    @property
    def why_no_exact_gradient(self) -> str | None:
        """The reason why its families have no exact gradient; None if all of them have one."""
        return None

    # Data and parameters

    def summary(self, rows: Rows) -> P | None:
        """Return the moments of the rows that priors and starts need; None if they need none."""
        return None

    def resolved(self, summary: P) -> Components:
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

    @property
    def updated_together(self) -> tuple[tuple[str, ...], ...]:
        """The keys of the natural parameters, divided into those that one update changes."""
        return (self.keys,)

    @property
    def shared_keys(self) -> tuple[str, ...]:
        """The keys of the natural parameters that all components share."""
        return ()

    @property
    def shares_means(self) -> bool:
        """Whether statistics that components share are means over them, and not sums."""
        return True

    @abstractmethod
    def prior(self, summary: P) -> Natural:
        """Return λ₀ of all components."""

    def reordered(self, q: Natural, order: np.ndarray) -> Natural:
        """Return the statistics of some components, or parameters of all in another order.

        ``order`` has their numbers.
        """
        k, shared = self.n_components, self.shared_keys
        found: Natural = {}
        for key in self.keys:
            x = q[key]
            if key in shared:
                found[key] = x * (k / len(order)) if self.shares_means else x
            else:
                found[key] = x.reshape(k, -1)[order].reshape(-1, *x.shape[1:])
        return found

    def carried(self, prior: Natural, order: np.ndarray) -> tuple[Components, Natural]:
        """Return the components and their λ₀ after a change of the order of all components.

        Learned parameters of each component go with it, and priors that were given stay.
        """
        return self, {key: prior[key] for key in self.keys}

    def with_priors_of(self, larger: Components, chosen: np.ndarray) -> Components:
        """Return these components with the learned priors of others, some of which they are.

        ``chosen`` has their numbers there. By default, they learn their priors again.
        """
        return self

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        """Return whether components that exchange their numbers have the same given priors."""
        moved, carried = self.reordered(prior, order), self.carried(prior, order)[1]
        return all(np.allclose(moved[key], carried[key], atol=0.0) for key in self.keys)

    def merge_gains(self, q: Natural, prior: Natural, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Return the gain of the bound from the parameters of pairs that become one, in nats.

        Given the responsibilities, the bound has a difference of log normalisers for each
        component, whose natural parameters are those of the prior plus statistics. The statistics
        of a pair are added. ``i`` and ``j`` are the numbers of the components of the pairs, and
        have the shape (n_pairs,), as the result has.
        """
        k = self.n_components
        total = np.zeros(len(i))

        def of(natural: Natural, which: np.ndarray) -> Natural:
            return {
                key: x.reshape(k, -1, *x.shape[1:])[which].reshape(-1, *x.shape[1:])
                for key, x in natural.items()
            }

        for factor in self.factors:
            own, at_rest = factor.pick(q), factor.pick(prior)
            normalizer = factor.family.log_normalizer
            each = (normalizer(own) - normalizer(at_rest)).reshape(k, -1).sum(axis=1)
            first, second = of(own, i), of(own, j)
            rest, given_up = of(at_rest, i), of(at_rest, j)
            both = {key: first[key] + second[key] - given_up[key] for key in first}
            merged = (normalizer(both) - normalizer(rest)).reshape(len(i), -1).sum(axis=1)
            total += merged - each[i] - each[j]
        return total

    @property
    def least_rows_alone(self) -> float:
        """The number of rows from which a single component learns its priors.

        They repeat the data, so that predictions from fewer rows would be too certain.
        """
        return 50.0

    def hyperparameter_kl(self) -> float:
        """Return the divergence of hyperparameters from their priors, in nats."""
        return 0.0

    def learns_from(self, n_rows: float) -> bool:
        """Whether so many rows, all that there are, say anything about the priors."""
        # RawStatistics of weights that differ in their last digits decide the same.
        enough = n_rows >= self.least_rows_alone - 0.5
        return self.n_components > 1 or self.learns_alone or enough

    def compared(self) -> Self:
        """Return components that learn from any number of rows, also if there is one only."""
        components = copy(self)
        components.learns_alone = True
        return components

    @property
    def learns_early(self) -> bool:
        """Whether priors are learned that need not wait (``waits``)."""
        return self.learns and not self.waits

    @property
    def learns_late(self) -> bool:
        """Whether priors are learned that wait until the bound hardly rises (``waits``)."""
        return self.learns and self.waits

    def learned(
        self,
        q: Natural,
        prior: Natural,
        rho: float,
        late: bool,
        rows_stay: bool = False,
        known: Known | None = None,
    ) -> tuple[Components, Natural]:
        """Return the components and their λ₀ after a step of empirical Bayes.

        Hyperparameters that are learned move by the share ρ towards the values that maximise the
        bound given q; all others stay. Those that wait stay unless it is
        ``late`` in the fit. ``rows_stay`` says that the rows have hardly changed components in the
        last pass, so that q may follow the priors as far as that is best. ``known`` is the result
        of :meth:`known` at the last visit; this method may add what helps the next one.
        """
        if not self.learns or (self.waits and not late):
            return self, {key: prior[key] for key in self.keys}
        return self._learned(q, prior, rho)

    def _learned(self, q: Natural, prior: Natural, rho: float) -> tuple[Components, Natural]:
        """Make the step of :meth:`learned`, if any hyperparameter is learned now."""
        raise NotImplementedError

    def following(
        self, q: Natural, prior: Natural, new: Natural, known: Known | None = None
    ) -> Natural:
        """Return the parameters of q that change with the prior, after its change to a new one.

        ``new`` is a result of :meth:`learned` with what is ``known``.
        """
        return followed(q, prior, new)

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
        expected = self.for_start(sample, prior)
        return self.posterior_given(self.sums(sample, responsibilities, expected), prior)

    def posterior_given(self, raw: R, prior: Natural) -> Natural:
        """Return λ₀ + S, the posterior given rows with these raw statistics."""
        return {key: prior[key] + value for key, value in self.statistics(raw).items()}

    def posterior_given_labels(
        self,
        rows: Rows,
        labels: np.ndarray,
        prior: Natural,
        expected: Expected,
        rng: np.random.Generator,
    ) -> Natural:
        """Return the posterior given complete rows and the component of each row.

        Latent variables of cells are drawn given the parameters of ``expected``, which is a result
        of :meth:`expectations` or :meth:`plug_in`.
        """
        shares = np.equal.outer(labels, np.arange(self.n_components)).astype(np.float64)
        expected = self.for_rows(expected, rows)
        raw = self.zeros(expected)
        self.add(rows, shares, raw, expected)
        return self.posterior_given(self.with_drawn_latents(raw, rng), prior)

    def posterior_of_single_rows(
        self, raw: R, prior: Natural, summary: P, n_rows: float
    ) -> Natural:
        """Return the same for a start in which each component has one of ``n_rows`` rows.

        Components that share parameters can let these learn from all rows, by their ``summary``.
        """
        return self.posterior_given(raw, prior)

    def _labels(self, rows: Rows, random_state: np.random.RandomState) -> tuple[np.ndarray, Rows]:
        """Return a sample of the rows, preceded by the cluster of each row of the sample."""
        sample: Any = rows.subset(ROWS_FOR_KMEANS, random_state)
        # Rows can be at equal distances from two centres, as most binary vectors are. In single
        # precision, rounding would decide between these centres.
        points = self.points(sample)
        n_clusters = n_distinct(points, self.n_components)
        means = clusterings().KMeans(n_clusters=n_clusters, n_init=1, random_state=random_state)
        return means.fit(points, sample_weight=sample.weights).labels_, sample

    def expectations_of_start(
        self, rows: Rows, prior: Natural, summary: P | None = None
    ) -> Expected:
        """Return the expectations with which the cells that rows lack are completed in a start.

        ``summary`` is that of all rows, of which these may be a sample.
        """
        return self.expectations(prior)

    def for_start(self, rows: Rows, prior: Natural, summary: P | None = None) -> Expected:
        """Return what :meth:`add` reads beside the rows of a start.

        The arguments are those of :meth:`expectations_of_start`.
        """
        if not self.completes:
            return None
        return self.for_rows(self.expectations_of_start(rows, prior, summary), rows)

    def is_whole(self, profile: Profile) -> bool:
        """Return whether a profile describes the components without any gap."""
        return bool(self.profile_names) and all(name in profile for name in self.profile_names)

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: P,
        prior: Natural,
    ) -> Natural:
        """Return the posterior given rows whose moments are exactly those of a profile.

        Parameters
        ----------
        profile : dict
            Parameters of the components, by the names in ``profile_names``.
        counts : ndarray of shape (n_components,)
            The number of rows of each component.
        q : dict of ndarray
            Parameters whose posterior means replace what the profile lacks; empty if it lacks
            nothing.
        summary : object
        prior : dict of ndarray
        """
        raise NotImplementedError

    @abstractmethod
    def random_natural(
        self, counts: np.ndarray, summary: P, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        """Return the posterior of random components, given the number of rows of each.

        ``counts`` has these numbers, of shape (n_components,).
        """

    @abstractmethod
    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Expected:
        """Return E log p(x | z = k) in the form that :meth:`log_density` reads.

        With ``rng``, return log p(x | z = k) at one draw of the parameters instead.
        """

    def draw(self, q: Natural, rng: np.random.Generator) -> Draws:
        """Return one draw of the parameters, with an entry for each factor."""
        return [factor.family.sample(factor.pick(q), rng) for factor in self.factors]

    def coefficients(self, draws: Draws) -> Expected:
        """Return log p(x | z = k) at one draw, in the form of :meth:`expectations`.

        ``draws`` is the result of :meth:`draw`.
        """
        raise NotImplementedError

    @abstractmethod
    def plug_in(self, q: Natural) -> Expected:
        """Return log p(x | z = k) at the posterior means, in the form of :meth:`expectations`."""

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Return q after a random displacement, which multiplies every count by default."""
        return q | self.multiplied_counts(q, size, rng)

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        """Return the counts of q, each multiplied by exp(size · N(0, 1)).

        The result is empty if the parameters are not counts that can change independently.
        """
        return {}

    @abstractmethod
    def coordinates(self, q: Natural, summary: P) -> np.ndarray:
        """Return coordinates of the components, (n_components, …).

        Components coincide if their coordinates are equal up to a tolerance.
        """

    # Rows

    def n_terms(self, rows: Rows) -> float:
        """Return the number of terms of log densities, by which plain kernels are chosen.

        A term takes as long as a product of two columns.
        """
        X: Any = rows.X
        n_cells = X.nnz if issparse(X) else X.shape[0] * X.shape[1]
        return float(2 * n_cells * self.n_components)

    def for_rows(self, expected: Expected, rows: Rows) -> Expected:
        """Return ``expected`` in the form that suits the way in which these rows are stored.

        :meth:`log_density` and :meth:`add` read this form. It is the same for all parts of a data
        set, so that a visit needs it only once.
        """
        return expected

    def for_several_chunks(self, expected: Expected) -> Expected:
        """Return ``expected`` for a visit to several chunks, in any order and process.

        It has nothing that depends on which chunk was visited last, as results would then.
        """
        return expected

    @abstractmethod
    def log_density(self, rows: Rows, expected: Expected) -> np.ndarray:
        """Return E log p(x_n | z_n = k) in nats, of shape (n_rows, n_components).

        The density is that of the observed cells of a row.
        """

    def log_predictive(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return the log posterior predictive densities in nats, of shape (n_rows, n_components).

        The parameters of a component are integrated out; the density is that of the observed cells
        of one row. With Dirichlet or beta priors it is the density at the posterior means.
        """
        return self.log_density(rows, self.for_rows(self.plug_in(q), rows))

    @abstractmethod
    def zeros(self, expected: Expected) -> R:
        """Return raw statistics of zero rows, to which :meth:`add` adds."""

    @abstractmethod
    def add(self, rows: Rows, shares: np.ndarray, raw: R, expected: Expected) -> None:
        """Add the statistics of rows to ``raw``, in place.

        ``shares`` (n_rows, n_components) has the weight with which a row counts for a component.
        ``expected`` is what :meth:`log_density` read for these rows. It determines the expected
        values of cells that are missing.
        """

    def sums(self, rows: Rows, shares: np.ndarray, expected: Expected) -> R:
        """Return the raw statistics of rows; :meth:`add` explains the arguments."""
        raw = self.zeros(expected)
        self.add(rows, shares, raw, expected)
        return raw

    @abstractmethod
    def statistics(
        self, raw: R, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        """Return raw statistics in the shapes of the natural parameters.

        The result has the given keys; None stands for all of them. If q has several factors for
        the components, the statistics of one factor depend on the current parameters of the
        other, which are read from ``q``.
        """

    def with_drawn_latents(self, raw: R, rng: np.random.Generator) -> R:
        """Return raw statistics in which draws take the places of expected latent variables.

        These are the latent variables of single cells, of which most components have none. ``raw``
        is that of complete rows, each of which has one component.
        """
        return raw

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the most probable levels, or the posterior means, of all cells of some rows.

        ``shares`` (n_rows, n_components) has the posterior probabilities of the components. The
        second result has the standard deviations of ``predictive`` distributions, or of those at
        posterior means; it is None for levels. Both have shape (n_rows, n_features). Only cells
        that are missing have a use for them.
        """
        raise NotImplementedError

    def predictive_moments(self, q: Natural) -> CellMoments | None:
        """Return the moments of the cells of a new row by its posterior predictive density.

        The means are relative to the center of the data. The result is None if cells are numbers
        of levels, which have :meth:`probabilities`.
        """
        return None

    def plug_in_moments(self, q: Natural) -> CellMoments | None:
        """Return the moments of the cells of a new row at the posterior means of the parameters."""
        return None

    def probabilities(self, q: Natural) -> Any:
        """Return the posterior means of the probabilities of cells that are numbers of levels.

        They have shape (n_components, n_levels) for each column, or (n_components, n_features) for
        the ones of binary columns.
        """
        raise NotImplementedError

    def drawn_rows(
        self, rows: Rows, labels: np.ndarray, expected: Expected, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw the missing cells of rows from p(x_m | x_o, z), given their components z.

        Parameters
        ----------
        rows : Rows
        labels : ndarray of int, shape (n_rows,)
            The component of each row.
        expected : object
            log p(x | z = k) at certain parameters: the result of :meth:`expectations` with ``rng``,
            or of :meth:`plug_in`.
        rng : numpy.random.Generator

        Returns
        -------
        drawn : ndarray of shape (n_rows, n_features)
            Float64. Only cells that are missing have a use for their values.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no draws of missing cells: it lacks drawn_rows."
        )

    def points(self, rows: Rows) -> Any:
        """Return the result of :meth:`embedding`, which rows of few cells keep for other moves."""
        kept = vars(rows).get("_points")
        if kept is not None and kept[0] is type(self):
            return kept[1]
        found = self.embedding(rows)
        if isinstance(found, np.ndarray) and found.size <= _FEW_CELLS:
            vars(rows)["_points"] = type(self), found
        return found

    def embedding(self, rows: Rows) -> Any:
        """Return rows as points among which k-means can measure distances, float64.

        The shape is (n_rows, n_coordinates). Missing cells have the means of their columns. The
        result is a sparse array where the rows are sparse or symbols.
        """
        return rows.completed(np.float64)

    @property
    def n_parameters(self) -> int:
        """The number of free parameters of all components, for information criteria."""
        raise NotImplementedError

    # The local step of mixtures

    def operations(self, rows: Rows) -> float:
        """Return how many floating-point operations the local step of some rows takes."""
        return 4.0 * self.n_components * (rows.X.shape[1] + 10.0) * rows.n_units

    def known(self, q: Natural, before: Known | None) -> Known | None:
        """Return values that :meth:`joint_expectations` and :meth:`kl_given` share, or None.

        ``before`` is the result of the visit before, at another q.
        """
        return None

    def joint_expectations(
        self,
        q: Natural,
        log_weights: np.ndarray,
        rng: np.random.Generator | None = None,
        known: Known | None = None,
    ) -> Joint:
        """Return E log p(x, z = k), given E log π as ``log_weights``, or that of one draw of β.

        ``known`` is the result of :meth:`known` at q.
        """
        if known is None:
            return Joint(self.expectations(q, rng), log_weights)
        return Joint(self.expectations_given(q, known), log_weights)

    def expectations_given(self, q: Natural, known: Known) -> Expected:
        """Return the expectations of :meth:`expectations` by what is ``known`` about q."""
        return self.expectations(q)

    def compiled_expectations(self, q: Natural) -> Expected:
        """Return :meth:`expectations` by a kernel, if there is one, as fits read them.

        Predictions of few rows call the other method, because they import no compiler.
        """
        return self.expectations(q)

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        """Return KL(q(β) ‖ p(β)) in nats by what is ``known``; None if that is no help."""
        return None

    def log_joint(self, rows: Rows, joint: Joint) -> np.ndarray:
        """Return E log p(x_n, z_n = k) = E log π_k + E log p(x_n | z_n = k), (n_rows, K), nats."""
        return joint.of(rows, self.log_density(rows, joint.own))

    def local_step(
        self,
        rows: Rows,
        joint: Joint,
        t: Tempering,
        noise: np.ndarray | None = None,
        separate_noise: bool = False,
    ) -> LocalStep:
        """Make the local step of a mixture; :meth:`ConjugateModel.local_step` explains it.

        L_nk = E log p(x_n, z_n = k),  R_nk ∝ exp{x L_nk},  S_k = Σ_n w_n c ε_n R_nk t(x_n), with
        the factors x and c of the tempering ``t``, and the noise ε. The statistics of the step
        have the raw ones of ``components``, and the ``rows`` that these do not count.
        """
        # No kernel reads the classes or the covariates of rows.
        if rows.classes is None and joint.gate is None:
            fused = self.fused_step(rows, joint, t, noise, separate_noise)
            if fused is not None:
                return fused
        log_joint = joint.of(rows, self.log_density(rows, joint.own))
        found = responsibilities_step(log_joint, t, rows.weights, noise, separate_noise)
        last = self.last_sums(joint.own)
        raw = None if last is None else last.of(rows, found.shares)
        if raw is None:
            raw = self.sums(rows, found.shares, joint.own)
            if last is not None:
                last.keep(rows, found.shares, raw)
        elif found.noisy is None:
            last.note(rows, joint.own, log_joint)
        statistics = self._as_statistics(rows, found.shares, raw, joint.gate)
        step = LocalStep(statistics, found.energy, found.entropy)
        if found.noisy is not None:
            raw = self.sums(rows, found.noisy, joint.own)
            step.deviation = self._as_statistics(rows, found.noisy, raw, joint.gate)
        return step

    def last_sums(self, expected: Expected) -> Any:
        """Return the ``LastSums`` of the visit before; None if it is no help."""
        return None

    def fused_step(
        self,
        rows: Rows,
        joint: Joint,
        t: Tempering,
        noise: np.ndarray | None,
        separate_noise: bool,
    ) -> LocalStep | None:
        """Return the local step by one kernel that does all of it; None if rows have no such."""
        return None

    def locally_tempered_step(
        self,
        rows: Rows,
        joint: Joint,
        temperatures: UnitTemperatures,
        noise: np.ndarray | None = None,
    ) -> LocalStep:
        """Make the local step in which every row has a temperature of its own.

        Inverse temperatures lie on the grid m/M, m = 1, …, M.
        """
        log_partition = temperatures.log_partition.of(rows)
        which = None if log_partition.ndim == 1 else np.arange(rows.n_units)
        log_joint = joint.of(rows, self.log_density(rows, joint.own))
        found = locally_tempered_responsibilities_step(
            log_joint, temperatures, log_partition, which, rows.weights, noise
        )
        raw = self.sums(rows, found.shares, joint.own)
        return LocalStep(
            self._as_statistics(rows, found.shares, raw, joint.gate),
            found.energy,
            found.entropy,
            temperature=found.temperature,
            inverse_temperatures=found.inverse_temperatures,
        )

    def _as_statistics(
        self, rows: Rows, shares: np.ndarray, raw: R, gate: Any = None
    ) -> dict[str, Any]:
        others = self.uncounted(rows)
        number = column_sums(shares) if others is None else shares[others].sum(axis=0)
        found: dict[str, Any] = {"components": raw, "rows": number}
        return found if gate is None else found | {"gate": gate.sums(rows, shares)}

    def uncounted(self, rows: Rows) -> np.ndarray | None:
        """Return the numbers of the rows that :meth:`counted` leaves out; None if it has none."""
        return None

    def counted(self, raw: R) -> np.ndarray | float:
        """Return the weight of each component's rows, if raw statistics have it; 0 otherwise."""
        return 0.0

    # Operations that only some annealing methods need

    def partition(self, x: np.ndarray, summary: P) -> Any:
        """Return log c(x) of rows at the moments of the data; None if it depends on q(β)."""
        return None

    def log_volumes(self, x: np.ndarray, summary: P, expected: Expected) -> np.ndarray:
        """Return the terms of :meth:`log_volume` that each column contributes.

        The shape is (len(x), n_components, n_features).
        """
        raise NotImplementedError

    def log_volume(self, x: np.ndarray, summary: P, expected: Expected) -> np.ndarray:
        """Return the log of the sum (or integral) of p(x_n | z_n = k)^x over all values of x_n.

        The result is in nats and has shape (len(x), n_components), ``x`` being inverse
        temperatures. By default columns are independent.
        """
        return self.log_volumes(x, summary, expected).sum(axis=-1)

    def row_volume(self, summary: P) -> Any:
        """Return how :meth:`log_volume` changes if some cells of rows are missing.

        None stands for components that know no missing cells.
        """
        return None


def moved(old: np.ndarray, new: ArrayLike, rho: float) -> np.ndarray:
    """Return positive numbers that have moved by the share ρ, on the scale of their logarithms."""
    if rho == 1.0:
        return np.full(old.shape, new, dtype=np.float64)
    return old * (np.asarray(new, dtype=np.float64) / old) ** rho


def least_mean(n_observed: np.ndarray) -> np.ndarray:
    """Return the smallest mean of a prior of probabilities or rates that is learned.

    It is what the prior of Jeffreys expects after as many observations without an event. Without
    this limit, a single component would exclude what its data do not have. ``n_observed`` has the
    number of observed cells of each column.
    """
    return 0.5 / (np.maximum(n_observed, 0.0) + 1.0)


def log_means(concentration: np.ndarray) -> np.ndarray:
    """Return the logarithms of the means of Dirichlet distributions, one per row."""
    return np.log(concentration) - np.log(concentration.sum(axis=-1, keepdims=True))


def multiplied(counts: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    """Return counts, each multiplied by exp(size · N(0, 1))."""
    return counts * np.exp(size * rng.standard_normal(counts.shape))
