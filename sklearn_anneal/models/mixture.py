"""The model of mixtures of any components, whose rows may have missing cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import logsumexp

from ..data.tables import missing_cells
from ..data.units import Rows
from ..families import Natural, Tempering, UnitTemperatures
from ._base import Block, LocalStep, Visit
from ._base_mixture import BaseMixture, assigned_rows
from ._mixture_steps import locally_tempered_responsibilities_step, responsibilities_step
from ._summary import DataSummary, merged, whole
from .components._base import ROWS_FOR_KMEANS, Components
from .components._linear import Table, column_sums, scaled, step_of_codes

# Number of rows that starts convert and assign at a time.
_CHUNK = 8192
_NUMBER = "_number"


@dataclass(frozen=True)
class Summary(DataSummary):
    """What priors, starts and temperatures need to know of the training data.

    Attributes
    ----------
    weight : float
        N = Σ w of all data; in a stream, this includes data that have not arrived yet.
    seen : float
        Σ w of the rows that the other attributes describe.
    missing : ndarray of shape (n_features,)
        The weight of the missing cells of each column.
    components : object
        The summary of the components.
    """

    weight: float
    seen: float
    missing: np.ndarray
    components: Any

    @property
    def center(self) -> Any:
        """The origin of the components' coordinates; None if they have none."""
        return getattr(self.components, "center", None)

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both data sets together."""
        seen, components = self.seen + other.seen, merged(self.components, other.components)
        return Summary(seen, seen, self.missing + other.missing, components)

    def whole(self) -> Summary:
        return replace(self, components=whole(self.components))

    def continued(self, other: Summary) -> Summary:
        """Return this summary, as priors and coordinates stay when a fit goes on with new data."""
        return self


class Partition(NamedTuple):
    """log c(x) of rows at M inverse temperatures.

    Attributes
    ----------
    complete : ndarray of shape (M,)
        log c(x) of a row without missing cells.
    columns : ndarray of shape (M, n_features)
        What is subtracted for each cell that is missing.
    """

    complete: np.ndarray
    columns: np.ndarray

    def of(self, rows: Rows) -> np.ndarray:
        """Return log c(x) of rows, (n_rows, M), or (M,) if no cell is missing."""
        mask = missing_cells(rows.X)
        return self.complete if mask is None else self.complete - mask @ self.columns.T


@dataclass(frozen=True)
class DrawnVisit(Visit):
    """A visit whose local steps use one draw of the parameters.

    Parameters
    ----------
    draws : list
        The draw from each factor, in the order of :meth:`Mixture.factors`.
    """

    draws: Any = None

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        result: Natural = {}
        for factor, draw in zip(self.model.factors(), self.draws, strict=True):
            family: Any = factor.family
            given = (factor.pick(arrays) for arrays in (q, prior, stats))
            result |= factor.rename(family.exact_gradient_statistics(draw, *given))
        return result


class Mixture(BaseMixture):
    """Mixture of any components, with Dirichlet or stick-breaking weights.

    The model holds hyperparameters only. Its natural parameters are those of the components and
    those of the weights: ``weight_concentration`` (K,), or ``stick_a`` and ``stick_b`` (K,) for the
    truncated Dirichlet process.

    Missing cells are integrated out: the log density of a row given its component is that of its
    observed cells. This is right if cells are missing at random, that is, if whether a cell is
    missing depends on observed cells only.

    Parameters
    ----------
    components : Components
    weight_prior : {"dirichlet_process", "dirichlet_distribution"}
    init_params : {"random", "kmeans", "k-means++", "random_from_data"}
    weight_concentration_prior : float, "auto" or None
        None stands for 1 / ``n_components``, and ``"auto"`` for a value that is learned.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, section 10.2; Blei and Jordan (2006)
    for the stick-breaking weights; Hoffman and Blei (2015) for mixtures of Bernoullis.
    """

    recommended: ClassVar[dict[str, dict[str, Any]]] = {
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

    def __init__(
        self,
        components: Components,
        weight_prior: str = "dirichlet_process",
        init_params: str = "random_from_data",
        weight_concentration_prior: float | str | None = None,
    ):
        super().__init__(components, weight_prior, init_params, weight_concentration_prior)

    def of_components(self, summary: Summary) -> Any:
        return summary.components

    def capabilities(self) -> dict[str, str | None]:
        can: dict[str, str | None] = dict.fromkeys(("draws", "assignments", "assignment_entropy"))
        volume = ("log_partition", "unit_log_partition", "locally_tempered_step")
        can |= dict.fromkeys(volume, self.components.why_no_log_volume)
        return can | {"exact_gradient_statistics": self.components.why_no_exact_gradient}

    def operations(self, units: Rows) -> float:
        return 4.0 * self.n_components * (units.X.shape[1] + 10.0) * units.n_units

    # Data, prior and starts

    def summary(self, units: Rows) -> Summary:
        missing = np.zeros(units.X.shape[1])
        for start in range(0, units.n_units, _CHUNK):
            chunk = units.take(slice(start, start + _CHUNK))
            mask = missing_cells(chunk.X)
            if mask is not None:
                missing += mask.sum(axis=0) if chunk.weights is None else chunk.weights @ mask
        total = units.total_weight
        return Summary(total, total, missing, self.components.summary(units))

    def init(
        self, units: Rows, summary: Summary, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        rows, shares = self._start(units.centered(summary), random_state)
        return self._posterior_of(rows, shares, summary, prior)

    def _posterior_of(
        self,
        rows: Rows,
        shares: Callable[[slice], np.ndarray],
        summary: Summary,
        prior: Natural,
    ) -> Natural:
        """Return the posterior given responsibilities of rows, for the weight of all data."""
        expected = self.components.for_rows(
            self.components.expectations_of_start(rows, prior), rows
        )
        raw, number = self.components.zeros(expected), np.zeros(self.n_components)
        for start in range(0, rows.n_units, _CHUNK):
            chunk = rows.take(slice(start, start + _CHUNK))
            share = shares(slice(start, start + chunk.n_units))
            if chunk.weights is not None:
                share = share * chunk.weights[:, None]
            number += share.sum(axis=0)
            self.components.add(chunk, np.ascontiguousarray(share, dtype=float), raw, expected)
        scale = summary.weight / rows.total_weight
        scaled = {key: scale * value for key, value in raw.items()}
        return {
            key: prior[key] + value
            for key, value in (
                self.weights.statistics(scale * number) | self.components.statistics(scaled)
            ).items()
        }

    def _start(
        self, units: Rows, random_state: np.random.RandomState
    ) -> tuple[Rows, Callable[[slice], np.ndarray]]:
        """Return some rows, and a function that maps a slice of them to their responsibilities."""
        k = self.n_components
        rows: Any = units.subset(ROWS_FOR_KMEANS, random_state)
        weights, mask = rows.weights, missing_cells(rows.X)
        blank = None if mask is None else np.asarray(mask.sum(axis=1)) == rows.X.shape[1]
        if blank is not None and blank.any():
            # A component that started from a row without cells would be the prior.
            weights = np.ones(rows.n_units) if weights is None else weights.copy()
            weights[blank] = 0.0
        n_weighted = rows.n_units if weights is None else np.count_nonzero(weights)
        if self.init_params == "random" or n_weighted < k:

            def random(rows: slice) -> np.ndarray:
                shares = random_state.standard_exponential(size=(rows.stop - rows.start, k))
                return shares / shares.sum(axis=1, keepdims=True)

            return units, random

        def points() -> Any:
            return scaled(self.components.embedding(rows))

        n_clusters = None
        if self.init_params == "kmeans":
            found = points()
            n_clusters = k if issparse(found) else min(k, len(np.unique(found, axis=0)))
        how = rows.n_units, k, weights, random_state, n_clusters
        return rows, assigned_rows(self.init_params, points, *how)

    def random_natural(
        self,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        block: Block | None = None,
    ) -> Natural:
        """Return the posterior of random components with N Dir(1) rows each."""
        counts = summary.weight * rng.dirichlet(np.ones(self.n_components))
        own = {key: prior[key] for key in self.components.keys}
        weights = self.weights.statistics(counts)
        return {key: prior[key] + value for key, value in weights.items()} | (
            self.components.random_natural(counts, summary.components, own, rng)
        )

    def log_densities(self, units: Rows, q: Natural) -> np.ndarray:
        expected = self.components.for_rows(self.components.expectations(q), units.example)
        return self.components.log_density(units, expected)

    def posterior_given(
        self, responsibilities: np.ndarray, units: Rows, summary: Summary, prior: Natural
    ) -> Natural:
        return self._posterior_of(units, lambda part: responsibilities[part], summary, prior)

    def points(self, units: Rows) -> Any:
        return self.components.embedding(units)

    # The local step

    def visit(
        self,
        q: Natural,
        units: Any,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        **how: Any,
    ) -> Visit:
        late = self.learns_late
        if rng is None or self.components.why_no_exact_gradient is not None:
            expected = self.expectations(q, rng)
            draws = None
        else:
            factor = self.weights.factor
            of_weights = factor.family.sample(factor.pick(q), rng)
            of_components = self.components.draw(q, rng)
            draws = [of_weights, *of_components]
            expected = (
                self.weights.drawn_log_weights(of_weights),
                self.components.coefficients(of_components),
            )
        expected = expected[0], self.components.for_rows(expected[1], units.example)
        args = self, expected, t, unit_temperatures, separate_noise
        if draws is None:
            return Visit(*args, learns_late=late)
        return DrawnVisit(*args, draws=draws, learns_late=late)

    def expectations(
        self, q: Natural, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, Any]:
        """Return E log π and the components' expectations."""
        return self.weights.log_weights(q, rng), self.components.expectations(q, rng)

    def log_joint(self, units: Rows, expected: tuple[np.ndarray, Any]) -> np.ndarray:
        """Return E log p(x_n, z_n = k) of the observed cells in nats, (n_rows, n_components)."""
        log_weights, components = expected
        joint = self.components.log_density(units, components)
        joint += log_weights
        return joint

    def local_step(
        self,
        units: Rows,
        expected: tuple[np.ndarray, Any],
        t: Tempering,
        noise: np.ndarray | None = None,
        separate_noise: bool = False,
    ) -> LocalStep:
        if isinstance(expected[1], Table) and not separate_noise:
            coded = step_of_codes(units, expected[1], expected[0], t, noise)
            components: Any = self.components
            raw = components.zeros(expected[1]) | {_NUMBER: coded.number}
            components.add_levels(coded.levels, coded.number, units.X.packing, raw)  # type: ignore[attr-defined]
            return LocalStep(raw, coded.energy, coded.entropy)
        joint = self.log_joint(units, expected)
        found = responsibilities_step(joint, t, units.weights, noise, separate_noise)
        step = LocalStep(self._raw(units, found.shares, expected), found.energy, found.entropy)
        if found.noisy is not None:
            step.deviation = self._raw(units, found.noisy, expected)
        return step

    def _raw(self, units: Rows, shares: np.ndarray, expected: tuple[np.ndarray, Any]) -> Natural:
        raw = self.components.zeros(expected[1])
        self.components.add(units, shares, raw, expected[1])
        return raw | {_NUMBER: column_sums(shares)}

    def locally_tempered_step(
        self,
        units: Rows,
        expected: tuple[np.ndarray, Any],
        temperatures: UnitTemperatures,
        noise: np.ndarray | None = None,
    ) -> LocalStep:
        """Make the local step with one temperature per row.

        Inverse temperatures lie on the grid m/M, m = 1, …, M.
        """
        log_partition = temperatures.log_partition.of(units)
        which = None if log_partition.ndim == 1 else np.arange(units.n_units)
        found = locally_tempered_responsibilities_step(
            self.log_joint(units, expected),
            temperatures,
            log_partition,
            which,
            units.weights,
            noise,
        )
        return LocalStep(
            self._raw(units, found.shares, expected),
            found.energy,
            found.entropy,
            temperature=found.temperature,
            inverse_temperatures=found.inverse_temperatures,
        )

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        weights = self.weights.statistics(raw[_NUMBER])
        return weights | self.components.statistics(raw, block.keys, q)

    # Operations that only some annealing methods need

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> Partition:
        """Return log c(x) of a row, computed at the current expectations.

        The exponentials of E log β do not sum to 1, so that log c(1) would not be 0; therefore
        x log c(1) is subtracted.
        """
        powers = np.append(x, 1.0)
        log_weights, components = self.expectations(q)
        own = summary.components
        volume = self.components.log_volume(powers, own, components)
        complete = logsumexp(powers[:, None] * log_weights + volume, axis=1)
        columns = self.components.log_volumes(powers, own, components)
        columns = np.einsum("mkd,k->md", columns, self.weights.mean(q))
        return Partition(complete[:-1] - x * complete[-1], columns[:-1] - np.outer(x, columns[-1]))

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) of all rows in nats, of the shape of ``x``."""
        partition = self.unit_log_partition(x, summary, q)
        missing = summary.missing / summary.seen
        return summary.weight * (partition.complete - partition.columns @ missing)
