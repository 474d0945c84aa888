"""The visits of matrix factorisation: to users who are local variables, or to rows of q."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..inference.units import Ratings
from ._unit_block import RowsOfSteps
from ._visit import LocalStep, Visit

# Key of what ratings and users say about variances that are learned.
EVIDENCE = "evidence"


class Moments(NamedTuple):
    """What one side's rows are to the other's.

    Attributes
    ----------
    mean : ndarray of shape (n_rows, D)
        D = ``n_components``, and one more with biases.
    table : ndarray of shape (n_rows, n_columns)
        Second moments of (v, 1) or, with biases, of (v, 1, c), as kernels read them.
    log_det : ndarray of shape (n_rows,)
        log |P|.
    squares : ndarray of shape (n_rows, 2)
        E‖v‖² and E[c²].
    """

    mean: np.ndarray
    table: np.ndarray
    log_det: np.ndarray
    squares: np.ndarray


def absorbed(step: LocalStep) -> LocalStep:
    """With the statistics with noise in the place of those without."""
    for key, value in (step.deviation or {}).items():
        step.statistics[key][...] = value
    step.deviation = None
    return step


Known = dict[str, tuple[np.ndarray, np.ndarray, Moments]]
"""Side → its natural parameters, and the moments that were found of them."""


@dataclass(frozen=True)
class FoldingVisit(Visit):
    """A visit to users who are local variables; ``expected`` are the moments of items.

    Parameters
    ----------
    known : dict
        What it found of q.
    """

    known: Known = field(default_factory=dict)  # type: ignore[misc]

    def step(self, units: Ratings, noise: np.ndarray | None = None, local: Any = None) -> LocalStep:
        model = self.model
        if self.unit_temperatures is not None:
            return model.locally_tempered_step(units, self.expected, self.unit_temperatures, noise)
        factor = np.broadcast_to(np.asarray(self.t.statistics, dtype=float), units.n_units)
        solved = model.fold_in(units, self.expected, factor, self.t)
        step = model.items_step(units, solved, factor, noise)
        return step if self.separate_noise else absorbed(step)


@dataclass(frozen=True)
class RowsVisit(Visit):
    """A visit to one side of which q has the rows; ``expected`` are the moments of the other.

    Parameters
    ----------
    known : dict
        What it found of q.
    side : str
    own : Moments
        Of the rows that are visited.
    weights : ndarray of shape (n_users,) or None
        Those of users.
    rooms : RowsOfSteps
    """

    known: Known = field(default_factory=dict)  # type: ignore[misc]
    side: str = ""
    own: Moments | None = None
    weights: np.ndarray | None = None
    rooms: RowsOfSteps | None = None

    # What users, as rows of q, add to the bound is that of their current Gaussians, which the
    # same pass has updated when it visits items.
    tells_bound: ClassVar[bool] = False

    def view(self, units: Ratings) -> Ratings:
        return units if self.side == "users" else units.by_column

    def step(self, units: Ratings, noise: np.ndarray | None = None, local: Any = None) -> LocalStep:
        step = self.model.rows_step(units, self, noise)
        return step if self.separate_noise else absorbed(step)

    def merge(self, a: LocalStep, b: LocalStep) -> LocalStep:
        assert self.rooms is not None
        return self.rooms.merge(a, b)

    def finish(self, step: LocalStep) -> LocalStep:
        """With what users, as rows of q, add to the bound."""
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
