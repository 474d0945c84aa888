"""The visits of matrix factorisation.

Users are either local variables, which a :class:`FoldingVisit` infers, or rows of q, for which a
:class:`RowsVisit` collects statistics; items are always rows of q.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from ..data.units import Ratings
from ._unit_block import RowsOfSteps
from ._visit import LocalStep, Visit

# Key of the statistics from which empirical Bayes computes the variances of the model.
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

    def step(
        self, units: Ratings, noise: np.ndarray | None = None, local: None = None
    ) -> LocalStep:
        model = self.model
        if self.unit_temperatures is not None:
            return model.locally_tempered_step(units, self.expected, self.unit_temperatures, noise)
        factor = np.broadcast_to(np.asarray(self.t.statistics, dtype=float), units.n_units)
        solved = model.fold_in(units, self.expected, factor, self.t)
        step = model.items_step(units, solved, factor, noise)
        return step if self.separate_noise else absorbed(step)


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
        step = self.model.rows_step(units, self, noise)
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
        step.log_prior = float(weights @ model.log_priors(users.squares))
        if model.learns:
            step.statistics[EVIDENCE] = step.statistics[EVIDENCE] + model.evidence_of_users(
                users, weights
            )
        return step
