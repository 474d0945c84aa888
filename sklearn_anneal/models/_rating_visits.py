"""The visits of matrix factorisation.

Users are either local variables, which a :class:`FoldingVisit` infers, or rows of q, for which a
:class:`RowsVisit` collects statistics; items are always rows of q.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import softmax

from ..data.units import Ratings
from ..families import Natural, Tempering
from ._base import LocalStep, Visit
from ._rating_scales import GAINS, gains_of_scales, scaled, scales_of
from ._unit_block import RowsOfSteps

# Entries of temporary tables of rows.
_ENTRIES = 1 << 18
# Key of the statistics from which the hyperparameters of the model are learned.
EVIDENCE = "evidence"


class Moments(NamedTuple):
    """The moments of the rows of one side (users or items), as updates of the other side read them.

    Attributes
    ----------
    mean : ndarray of shape (n_rows, D)
        Means of the factors v and, with biases, of the bias c as the last column. D is
        ``n_components``, plus 1 with biases.
    table : ndarray of shape (n_rows, n_columns)
        Second moments of (v, 1) or, with biases, of (v, 1, c), in the layout of the kernels.
    log_det : ndarray of shape (n_rows,)
        log |P|, P being the precision matrix of the row.
    squares : ndarray of shape (n_rows, 2)
        E‖v‖² and E[c²].
    """

    mean: np.ndarray
    table: np.ndarray
    log_det: np.ndarray
    squares: np.ndarray


def blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield slices of rows, so few in each that a table of them is small."""
    step = max(_ENTRIES // n_columns, 1)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def absorbed(step: LocalStep) -> LocalStep:
    """Return the step with its statistics replaced by those with noise, if it has any."""
    for key, value in (step.deviation or {}).items():
        step.statistics[key][...] = value
    step.deviation = None
    return step


Known = dict[str, tuple[np.ndarray, np.ndarray, Moments]]
"""Name of a side → its natural parameters, and the moments that were computed from them."""


@dataclass(frozen=True)
class FoldingVisit(Visit[Ratings]):
    """A visit to users who are local variables; ``expected`` has the moments of items.

    Parameters
    ----------
    known : dict
        The moments of the rows of q, which the next visit can reuse.
    """

    known: Known = field(default_factory=dict)

    statistics: bool = field(default=True, kw_only=True)

    @property
    def _has_scales(self) -> bool:
        """Whether users have scales. At other temperatures than 1, all precisions τ are 1."""
        annealed = self.unit_temperatures is not None or self.t != Tempering()
        return bool(self.model.user_scales and not annealed)

    def step(
        self, units: Ratings, noise: np.ndarray | None = None, local: None = None
    ) -> LocalStep:
        """Infer the Gaussians of users given items, and add up what items learn from the users.

        Where users have temperatures, which act on their ratings, each round infers q(u) given the
        expected inverse temperatures, and then the distribution of the temperatures given
        E log p of the ratings. After the last round q(u) is inferred once more.
        """
        model, temperatures, n_rounds = self.model, self.unit_temperatures, 0
        sums, _ = model.add_up(units, self.expected, units.rating_weights)
        scales = None
        factor = np.broadcast_to(np.asarray(self.t.statistics, dtype=float), units.n_units)
        if temperatures is not None:
            grid, log_partition, n_rounds = temperatures
            factor = np.full(units.n_units, grid.mean())
        for i in range(n_rounds + 1):
            statistics = model.statistics(sums, factor, model.empty_statistics(sums))
            natural = model.solution(statistics, self.t, units.known)
            own = model.moments_of(natural["precision"], natural["natural_mean"])
            if self._has_scales:
                ratings = model.about_items(sums, units.known)
                scales = scales_of(model, ratings, natural, own.mean)
                own = scaled(model, own, scales)
            energies = model.energies(sums, model.squared_errors(sums, own.table), scales)
            if i < n_rounds:
                of_grid = np.outer(model.n_ratings(sums), log_partition)
                factor = softmax(grid * energies[:, None] - of_grid, axis=1) @ grid

        weights = np.ones(units.n_units) if units.weights is None else units.weights
        energy, entropy = weights @ energies, weights @ model.entropies(own.log_det)
        step = LocalStep({}, float(energy), float(entropy))
        step.log_prior = float(weights @ model.log_priors("users", own, scales))
        of_scales = 0.0
        if scales is not None:
            step.entropy += float(weights @ scales.entropy)
            step.log_prior += float(weights @ scales.log_priors(model.shape))
            of_scales = 0.5 * float(weights @ (model.n_ratings(sums) * scales.log_mean))
        if self.statistics:
            found = self._statistics_of_items(units, own, weights * factor, noise)
            step.statistics, step.deviation = found
            if model.reads_evidence:
                evidence = model.evidence_of_ratings(units, step.energy - of_scales)
                step.statistics[EVIDENCE] = evidence + model.evidence_of_users(own, weights, scales)
        elif model.waiting:
            ratings = model.about_items(sums, units.known)
            step.statistics = {GAINS: gains_of_scales(model, ratings, natural, own.mean, weights)}
        if temperatures is not None:
            each = model.n_ratings(sums) if units.counts_ratings else weights
            step.temperature, step.inverse_temperatures = float(np.sum(each / factor)), factor
        return step if self.separate_noise else absorbed(step)

    def _statistics_of_items(
        self, units: Ratings, own: Moments, factor: np.ndarray, noise: np.ndarray | None
    ) -> tuple[Natural, Natural | None]:
        """Return the statistics of items given users, times a factor per user, and with noise."""
        model, (order, users, indptr) = self.model, units.transposed()
        each = factor[users]
        if units.rating_weights is not None:
            each = each * units.rating_weights[order]
        turned = Ratings(units.values[order], users, indptr, units.n_units)
        sums, noisy = model.add_up(turned, own, each, None if noise is None else noise[order])
        statistics = model.statistics(sums, 1.0, model.empty_statistics(sums, "items_"))
        if noisy is None:
            return statistics, None
        return statistics, model.statistics(noisy, 1.0, model.empty_statistics(noisy, "items_"))


@dataclass(frozen=True)
class RowsVisit(Visit[Ratings]):
    """A visit to one side whose rows are in q; ``expected`` has the moments of the other side.

    Parameters
    ----------
    known : dict
        The moments of the rows of q, which the next visit can reuse.
    side : {"users", "items"}
        The side whose rows the visit collects statistics for.
    own : Moments
        The moments of these rows.
    weights : ndarray of shape (n_users,) or None
        Sample weights of the users; None for ones.
    row_statistics : RowsOfSteps
        The arrays into which local steps write the statistics of these rows.
    """

    known: Known = field(default_factory=dict)
    side: str = ""
    own: Moments | None = None
    weights: np.ndarray | None = None
    row_statistics: RowsOfSteps | None = None

    # The sum gives the bound of the users' current Gaussians in q. The lower bound that a fit
    # reports is that of their optimal Gaussians given the items, which another visit must infer.
    gives_bound: ClassVar[bool] = False

    def view(self, units: Ratings) -> Ratings:
        return units if self.side == "users" else units.by_column

    def step(
        self, units: Ratings, noise: np.ndarray | None = None, local: None = None
    ) -> LocalStep:
        """Add up the statistics of the rows, given the Gaussians of the other side."""
        assert self.own is not None and self.row_statistics is not None
        model, factor, arrays = self.model, self.t.statistics, self.row_statistics
        sums, noisy = model.add_up(units, self.expected, units.rating_weights, noise)
        energies = model.energies(sums, model.squared_errors(sums, self.own.table[units.rows]))
        energy = float(energies.sum() if units.weights is None else units.weights @ energies)
        statistics = model.statistics(sums, factor, arrays.without_noise.of(units.rows))
        if model.reads_evidence and self.side == "items":
            # Hyperparameters are learned after the visit for the last block.
            statistics[EVIDENCE] = model.evidence_of_ratings(units, energy)
        step = LocalStep(statistics, energy, 0.0, rows=units.rows)
        if noisy is not None:
            step.deviation = model.statistics(noisy, factor, arrays.with_noise.of(units.rows))
        return step if self.separate_noise else absorbed(step)

    def merge(self, a: LocalStep, b: LocalStep) -> LocalStep:
        assert self.row_statistics is not None
        return self.row_statistics.merge(a, b)

    def finish(self, step: LocalStep) -> LocalStep:
        """Add the entropy and the log prior of the users, which are rows of q."""
        model, users = self.model, self.own if self.side == "users" else self.expected
        assert users is not None
        weights = np.ones(len(users.mean)) if self.weights is None else self.weights
        step.entropy = float(weights @ model.entropies(users.log_det))
        step.log_prior = float(weights @ model.log_priors("users", users))
        if EVIDENCE in step.statistics:
            of_users = model.evidence_of_users(users, weights)
            step.statistics[EVIDENCE] = step.statistics[EVIDENCE] + of_users
        return step
