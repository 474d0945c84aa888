"""When a fit has converged: a rule that an estimator hands to the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_WINDOW = 10


class History(NamedTuple):
    """What a rule sees of a fit after a pass.

    Attributes
    ----------
    bounds : list of float
        The lower bound after each pass, nats; NaN where it was not evaluated.
    initial : float
        The bound of the start.
    n_annealed : int
        Passes of the schedule.
    n_observations : float
        Number of observations (rows, tokens, frames, ratings) of the data.
    minibatches : bool
        Whether the bounds are estimates, which fall as well as rise.
    """

    bounds: list[float]
    initial: float
    n_annealed: int
    n_observations: float
    minibatches: bool


@dataclass(frozen=True)
class RiseOfBound:
    """A fit has converged when its bound hardly rises any more.

    In batch mode the rise is that of the last pass; in minibatches it is the best bound of the
    last ten passes minus the best of the ten before.

    Parameters
    ----------
    tol : float
        Rise per observation, nats, below which a fit has converged; 0 asks for all passes.
    """

    tol: float

    def settled(self, history: History) -> bool:
        """Whether the bound hardly rises.

        Where local variables start anew at every visit, the loop keeps them from then on, and
        asks again; elsewhere the fit ends.
        """
        bounds = history.bounds
        if not history.minibatches:
            before = bounds[-2] if len(bounds) > 1 else history.initial
            return abs(bounds[-1] - before) / history.n_observations < self.tol
        after = bounds[history.n_annealed :]
        if len(after) < 2 * _WINDOW:
            return False
        rise = max(after[-_WINDOW:]) - max(after[-2 * _WINDOW : -_WINDOW])
        return 0 < self.tol and rise < self.tol * history.n_observations

    def converged(self, history: History) -> bool:
        """Whether the fit ends for another reason, whatever local variables do."""
        return False

    def asks_for_bound(self, n_passes: int) -> bool:
        """Whether the rule needs the exact bound after a pass of minibatches."""
        return False
