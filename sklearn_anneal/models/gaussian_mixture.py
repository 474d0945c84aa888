"""The model of Bayesian Gaussian mixtures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..data.units import Rows
from ..families import (
    Natural,
    Tempering,
    UnitTemperatures,
)
from ._base import Block, LocalStep, Visit
from ._base_mixture import BaseMixture, assigned_rows
from ._mixture_steps import Densities, chosen, mixture_step, partition_polynomials
from .components._features import ROWS_PER_BLOCK, Features, feature_kind, kernels
from .components._missing_cells import RowVolume, tempered_volume
from .components._moments import CHUNK, Summary
from .components.gaussian import GaussianComponents

_NOTHING = np.empty(0)
# The key of raw statistics under which rows without any observed cell are counted. Such rows change
# the weights and not the components.
_BLANK = "blank"
_NO_MATRIX = np.empty((0, 0))


class RowPartition(NamedTuple):
    """log c(x) of rows with and without missing cells, in nats.

    Attributes
    ----------
    x : ndarray of shape (M,)
        The grid of inverse temperatures.
    mixing : ndarray of shape (M,)
        The part of log c(x) that belongs to the weights of the components.
    whole : ndarray of shape (M,)
        log c(x) of a row without missing cells.
    volume : RowVolume
        The other part, for rows with missing cells.
    """

    x: np.ndarray
    mixing: np.ndarray
    whole: np.ndarray
    volume: RowVolume

    def of(self, rows: Rows) -> np.ndarray:
        """Return log c(x) of each row, in which the observed cells count, (n_rows, M)."""
        n_cells, log_det = self.volume.of_rows(rows)
        return tempered_volume(self.x, n_cells[:, None], log_det[:, None]) + self.mixing


class GaussianMixture(BaseMixture):
    """Mixture of Gaussians with Dirichlet or stick-breaking weights.

    The model holds hyperparameters only. Its natural parameters are those of
    :class:`GaussianComponents` and those of the weights: ``weight_concentration`` (K,), or
    ``stick_a`` and ``stick_b`` (K,) for the truncated Dirichlet process.

    Parameters
    ----------
    n_components, n_features : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    weight_prior : {"dirichlet_process", "dirichlet_distribution"}
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}
    weight_concentration_prior : float, "auto" or None
        None stands for 1 / ``n_components``, and ``"auto"`` for a value that is learned.
    **components : dict
        Further parameters of :class:`GaussianComponents`.

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, section 10.2; Blei and Jordan (2006)
    for the stick-breaking weights.
    """

    recommended: ClassVar[dict[str, dict[str, Any]]] = {
        "deterministic": {
            "form": "likelihood",
            "initial_temperature": "auto",
            "schedule": "geometric",
            "n_passes": 50,
            "jitter": 0.0,
        },
        "stochastic": {
            "initial_noise": 0.9,
            "schedule": "linear",
            "n_passes": 50,
            "start": "random",
        },
        "tempering": {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.25, "noise": "dirichlet", "schedule": "linear"},
        "structured": {"gradient": "approximate"},
        "proximity": {"strength": 0.003, "lag": 5, "learning_rate": 0.5},
    }

    def __init__(
        self,
        n_components: int,
        n_features: int,
        covariance_type: str = "full",
        weight_prior: str = "dirichlet_process",
        init_params: str = "kmeans",
        weight_concentration_prior: float | str | None = None,
        **components: Any,
    ):
        own = GaussianComponents(n_components, n_features, covariance_type, **components)
        super().__init__(own, weight_prior, init_params, weight_concentration_prior)

    def of_components(self, summary: Summary) -> Summary:
        return summary

    def capabilities(self) -> dict[str, str | None]:
        can = (
            "draws",
            "log_partition",
            "unit_log_partition",
            "locally_tempered_step",
            "assignments",
            "assignment_entropy",
        )
        return dict.fromkeys(can)

    @property
    def blocks(self) -> tuple[Block, ...]:
        # Means are updated before precisions if the factors are independent, both with the
        # statistics of the same local step.
        weights, *components = (tuple(f.names.values()) for f in self.factors())
        first, *others = components
        return Block(weights + first), *(Block(keys, refresh=False) for keys in others)

    def operations(self, units: Rows) -> float:
        d = self.components.n_features
        quadratic = {"full": d * (d + 1) / 2, "tied": d * (d + 1) / (2 * self.n_components)}
        own = quadratic.get(self.components.covariance_type, d) + d + 1
        return 4.0 * self.n_components * own * units.n_units

    # Data, prior and starts

    def summary(self, units: Rows) -> Summary:
        return self.components.summary(units)

    def init(
        self,
        units: Rows,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        responsibilities = self._initial_responsibilities(units, random_state)
        start = self._statistics_given(responsibilities, units, summary)
        layout = self.components.covariance_type
        if layout == "tied" and self.init_params not in ("kmeans", "random"):
            start["second"] = start["second"] + self._unassigned(start, summary)
        return self._posterior_of(start, prior)

    def _statistics_given(
        self, responsibilities: Callable[[slice], np.ndarray], units: Rows, summary: Summary
    ) -> Natural:
        """Return statistics, for the weight of all data, of rows with these responsibilities."""
        layout = self.components.covariance_type
        raw = self.components.empty_statistics(layout).pack()
        blank = np.zeros(self.n_components)
        expected = None if units.patterns is None else self.components.of_all_rows(summary)
        for begin in range(0, units.n_units, CHUNK):
            chunk = units.take(slice(begin, begin + CHUNK))
            r = responsibilities(slice(begin, begin + chunk.n_units))
            if chunk.weights is not None:
                r = r * chunk.weights[:, None]
            self.components.add(chunk, np.ascontiguousarray(r, dtype=np.float64), raw, expected)
            if chunk.patterns is not None:
                blank += r[chunk.by_completeness[2]].sum(axis=0)
        scale = summary.weight / units.total_weight
        found = self.components.unpack({key: scale * value for key, value in raw.items()})
        return found | {_BLANK: scale * blank}

    def _unassigned(self, start: dict[str, np.ndarray], summary: Summary) -> np.ndarray:
        """Return Σ x xᵀ / K over the rows without a component, about the origin of the data.

        When components start from single rows, all other rows belong to no component. But
        scikit-learn's class includes these rows in the initial shared covariance, so they are
        included here too, in order that both classes start from the same parameters.
        """
        c = summary.center
        shift = np.outer(start["first"].sum(axis=0), c)
        assigned = self.n_components * start["second"] + shift + shift.T
        assigned += start["count"].sum() * np.outer(c, c)
        around = summary.scatter / summary.seen if summary.cells is None else summary.covariance
        every = around + np.outer(summary.mean, summary.mean)
        every = summary.weight * every
        return (every - assigned) / self.n_components

    def _initial_responsibilities(
        self, units: Rows, random_state: np.random.RandomState
    ) -> Callable[[slice], np.ndarray]:
        """Return a function that maps a slice of the rows to their initial responsibilities.

        Random numbers are drawn in the same order as in scikit-learn's class.
        """
        n, k, weights = units.n_units, self.n_components, units.weights
        blank = _NOTHING if units.patterns is None else units.by_completeness[2]
        if len(blank):
            # A component that started from a row without cells would be the prior.
            weights = np.ones(n) if weights is None else weights.copy()
            weights[blank] = 0.0
        # The first batch of a stream may have fewer rows than there are components, if the
        # priors are given. Rows then cannot serve as starts, so that they are assigned at random.
        n_weighted = n if weights is None else np.count_nonzero(weights)
        if self.init_params == "random" or n_weighted < k:

            def uniform(rows: slice) -> np.ndarray:
                r = random_state.uniform(size=(rows.stop - rows.start, k))
                return r / r.sum(axis=1, keepdims=True)

            return uniform
        how = self.init_params, units.completed, n, k, weights, random_state
        return assigned_rows(*how)

    def random_natural(
        self,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        block: Block | None = None,
    ) -> Natural:
        """Return the posterior given a pseudo data set, in which counts are N Dir(1).

        It is the random parameter η of stochastic annealing.
        """
        counts = summary.weight * rng.dirichlet(np.ones(self.n_components))
        return self._posterior_of(self.components.pseudo_data(counts, summary, rng), prior)

    def _posterior_of(self, s: Natural, prior: Natural) -> Natural:
        weights = self.weights.statistics(s["count"] + s.get(_BLANK, 0.0))
        q = {key: prior[key] + value for key, value in weights.items()}
        return q | self.components.posterior_of(s, prior)

    def log_densities(self, units: Rows, q: Natural) -> np.ndarray:
        return self.components.log_density(units, self.components.expectations(q))

    def posterior_given(
        self, responsibilities: np.ndarray, units: Rows, summary: Summary, prior: Natural
    ) -> Natural:
        given = self._statistics_given(lambda part: responsibilities[part], units, summary)
        return self._posterior_of(given, prior)

    def points(self, units: Rows) -> np.ndarray:
        return units.completed(np.float64)

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        stats = self.components.statistics(raw, block.keys, q)
        if block.refresh:
            counts = self.components.counts(raw) + raw.get(_BLANK, 0.0)
            stats |= self.weights.statistics(counts)
        return stats

    # Hyperparameters

    def visit(self, *args: Any, **kwargs: Any) -> Visit:
        visit = super().visit(*args, **kwargs)
        return replace(visit, learns_late=True) if self.learns_late else visit

    # The local step

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Features:
        return self.components.expectations(q, rng, self.weights.log_weights(q, rng))

    def local_step(
        self,
        units: Rows,
        expected: Features,
        t: Tempering,
        noise: np.ndarray | None = None,
        separate_noise: bool = False,
    ) -> LocalStep:
        if units.patterns is not None:
            return self._step_of_cells(units, expected, t, noise, separate_noise)
        if self.components.is_wide(expected.layout):
            return mixture_step(units, self._densities(expected), t, noise, separate_noise)
        out = self.components.empty_statistics(expected.layout)
        noiseless = self.components.empty_statistics(expected.layout) if separate_noise else None
        sums = np.zeros(2)
        kernels().local_step(
            units.contiguous(),
            units.center,
            feature_kind(expected.layout),
            expected.own,
            expected.shared,
            np.atleast_1d(np.asarray(t.local, dtype=np.float64)),
            np.atleast_1d(np.asarray(t.statistics, dtype=np.float64)),
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            ROWS_PER_BLOCK,
            out.own,
            out.shared,
            _NO_MATRIX if noiseless is None else noiseless.own,
            _NO_MATRIX if noiseless is None else noiseless.shared,
            sums,
        )
        step = LocalStep(out.pack(), float(sums[0]), float(sums[1]))
        if noiseless is not None:
            step.statistics, step.deviation = noiseless.pack(), step.statistics
        return step

    def locally_tempered_step(
        self,
        units: Rows,
        expected: Features,
        temperatures: UnitTemperatures,
        noise: np.ndarray | None = None,
    ) -> LocalStep:
        """Make the local step with one temperature per row.

        Inverse temperatures lie on the grid m/M, m = 1, …, M.
        """
        if units.patterns is not None:
            return self._step_of_cells(units, expected, Tempering(), noise, False, temperatures)
        if self.components.is_wide(expected.layout):
            densities = self._densities(expected, temperatures)
            return mixture_step(units, densities, Tempering(), noise, False, temperatures)
        x, log_partition, n_rounds = temperatures
        partition, reference = partition_polynomials(x, log_partition.whole)
        out = self.components.empty_statistics(expected.layout)
        found = np.empty(units.n_units)
        sums = np.zeros(3)
        kernels().locally_tempered_step(
            units.contiguous(),
            units.center,
            feature_kind(expected.layout),
            expected.own,
            expected.shared,
            partition[0],
            float(reference[0]),
            n_rounds,
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            ROWS_PER_BLOCK,
            out.own,
            out.shared,
            found,
            sums,
        )
        return LocalStep(
            out.pack(),
            float(sums[0]),
            float(sums[1]),
            temperature=float(sums[2]),
            inverse_temperatures=found,
        )

    def _densities(
        self,
        expected: Features,
        temperatures: UnitTemperatures | None = None,
        blank: bool = False,
    ) -> Densities:
        """Return the functions of rows that a local step consists of, without a fused kernel.

        ``blank`` is whether rows can be without any cell, which are counted apart.
        """

        def zeros() -> Natural:
            none = {_BLANK: np.zeros(self.n_components)} if blank else {}
            return self.components.zeros(expected) | none

        def add(rows: Rows, shares: np.ndarray, raw: Natural) -> None:
            self.components.add(rows, shares, raw, expected)
            if blank:
                raw[_BLANK] += shares[rows.by_completeness[2]].sum(axis=0)

        return Densities(
            lambda rows: self.components.log_density(rows, expected),
            zeros,
            add,
            None if temperatures is None else temperatures.log_partition.of,
            self.n_components,
        )

    def _step_of_cells(
        self,
        units: Rows,
        expected: Features,
        t: Tempering,
        noise: np.ndarray | None,
        separate_noise: bool,
        temperatures: UnitTemperatures | None = None,
    ) -> LocalStep:
        """Make the local step of rows some of which have missing cells.

        The kernels that make a whole step take those without missing cells.
        """
        densities = self._densities(expected, temperatures, blank=True)
        complete, some, blank = units.by_completeness
        others = np.concatenate([some, blank])
        whole, e = units.whole(complete), chosen(noise, complete)
        if temperatures is None:
            own = Tempering(chosen(t.local, complete), chosen(t.statistics, complete))
            a = self.local_step(whole, expected, own, e, separate_noise)
        else:
            a = self.locally_tempered_step(whole, expected, temperatures, e)
        a.statistics[_BLANK] = np.zeros(self.n_components)
        if a.deviation is not None:
            a.deviation[_BLANK] = np.zeros(self.n_components)
        own = Tempering(chosen(t.local, others), chosen(t.statistics, others))
        e = chosen(noise, others)
        b = mixture_step(units.take(others), densities, own, e, separate_noise, temperatures)
        step = a + b
        if temperatures is not None:
            step.inverse_temperatures = np.empty(units.n_units)
            step.inverse_temperatures[complete] = a.inverse_temperatures
            step.inverse_temperatures[others] = b.inverse_temperatures
        return step

    def log_joint(self, units: Rows, expected: Features) -> np.ndarray:
        """Return E log p(x_n, z_n = k) in nats, of shape (n_rows, n_components)."""
        return self.components.log_density(units, expected)

    # Operations that only some annealing methods need

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> RowPartition:
        """Return log c(x) of rows in nats.

        The value is computed as if all components had equal weights and the covariance of the
        data.
        """
        mixing = (1 - x) * np.log(self.n_components)
        volume = self.components.row_volume(summary)
        return RowPartition(x, mixing, volume.whole(x) + mixing, volume)

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x), the sum of log c(x) over all rows, in nats."""
        partition = self.unit_log_partition(x, summary, q)
        if summary.cells is None:
            return summary.weight * partition.whole
        mean = tempered_volume(x, *partition.volume.mean(summary)) + partition.mixing
        return summary.weight * mean
