"""Stopping rules: estimators pass one to the loop, which asks it whether a fit has converged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# Number of passes in minibatches whose best bounds are compared.
_WINDOW = 10


class History(NamedTuple):
    """The history of a fit after a pass, from which a rule decides.

    Attributes
    ----------
    bounds : list of float
        The lower bound after each pass, nats; NaN where it was not evaluated.
    initial : float
        The lower bound of the start, nats.
    n_annealed : int
        Number of passes of the annealing schedule.
    n_observations : float
        Weighted number of observations (rows, tokens, frames, ratings) of the data.
    minibatches : bool
        Whether passes are made in minibatches. The bounds are then estimates, which can fall.
    """

    bounds: list[float]
    initial: float
    n_annealed: int
    n_observations: float
    minibatches: bool


@dataclass(frozen=True)
class RiseOfBound:
    """The rule that a fit has converged when its bound hardly rises any more.

    In batch mode, the rule looks at the rise in the last pass. In minibatches, it looks at the
    best bound of the last ten passes minus the best bound of the ten passes before.

    Parameters
    ----------
    tol : float
        A fit has converged when the rise, in nats per observation, is below this value. With 0, a
        fit makes all passes.
    """

    tol: float

    def settled(self, history: History) -> bool:
        """Return whether the bound hardly rises.

        If so, the fit ends, unless local variables start anew at every visit. In that case the
        loop lets them start from their last values from then on, and asks again.
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
        """Return whether the fit ends for another reason, however local variables start."""
        return False

    def worthwhile(self, rise: float, n_observations: float) -> bool:
        """Return whether a rise of the bound, in nats, is more than the rule would stop at."""
        return rise > self.tol * n_observations

    def asks_for_bound(self, n_passes: int) -> bool:
        """Return whether the rule needs the exact bound after a pass in minibatches."""
        return False
