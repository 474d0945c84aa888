"""Stopping rules: estimators pass one to the loop, which asks it whether a fit has converged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

# Number of passes in minibatches whose best bounds are compared.
_WINDOW = 10
# The gain that a converging bound may still have before it, in units of its last rise.
_MORE_RISES = 30.0


class History(NamedTuple):
    """The history of a fit after a pass, from which a rule decides."""

    bounds: list[float]  # the lower bound after each pass, nats; NaN where it was not evaluated
    initial: float  # the lower bound of the start, nats
    n_annealed: int  # number of passes of the annealing schedule
    # Weighted number of observations (rows, tokens, frames, ratings) of the data.
    n_observations: float
    # Whether passes are made in minibatches. The bounds are then estimates, which can fall.
    minibatches: bool
    # The bound of the data for validation after each pass, in nats per unit of weight; empty if
    # there are none.
    validation: list[float] = []
    # Whether the last update went beyond its target. A small rise then does not say that plain
    # updates would hardly raise the bound.
    further: bool = False
    # A bound hardly rises, in batch mode, if it does so by less than this many times the rise at
    # which a fit has converged.
    factor: float = 1.0


class Rule(Protocol):
    """The methods of a stopping rule; :class:`RiseOfBound` says what they return."""

    def settled(self, history: History) -> bool: ...

    def converged(self, history: History) -> bool: ...

    def worthwhile(self, rise: float, n_observations: float) -> bool: ...

    def asks_for_bound(self, n_passes: int) -> bool: ...

    def reason(self, history: History) -> str: ...


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
            if history.further:
                return False
            before = bounds[-2] if len(bounds) > 1 else history.initial
            return abs(bounds[-1] - before) / history.n_observations < self.tol * history.factor
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

    def reason(self, history: History) -> str:
        """Return why a fit that the rule has ended was ended, as a part of a sentence."""
        return f"the bound rises by less than tol={self.tol:g} per observation"


@dataclass(frozen=True)
class RiseOfEstimates(RiseOfBound):
    """The rule for bounds that are estimates from random draws, also of all data at once.

    Two estimates of the same bound differ by more than a small ``tol``, so that neither the rise in
    one pass nor the best of some passes says whether the bound still rises. The rule looks at the
    mean of the last twenty passes minus the mean of the twenty before.
    """

    def settled(self, history: History) -> bool:
        """Return whether the mean of the bound hardly rises."""
        n = 2 * _WINDOW
        after = history.bounds[history.n_annealed :]
        if len(after) < 2 * n:
            return False
        rise = np.mean(after[-n:]) - np.mean(after[-2 * n : -n])
        return bool(0 < self.tol and rise < self.tol * history.n_observations)


@dataclass(frozen=True)
class ChangeOfPerplexity(RiseOfBound):
    """A stopping rule that also ends a fit whose perplexity hardly changes.

    Parameters
    ----------
    tol : float
        Rise of the bound per token below which a fit has converged, as in :class:`RiseOfBound`.
    evaluate_every : int, default=0
        Number of passes between two evaluations of the perplexity. With 0 there are none.
    perp_tol : float, default=0.0
        Change of the perplexity between two evaluations below which a fit has converged.
    """

    evaluate_every: int = 0
    perp_tol: float = 0.0

    def converged(self, history: History) -> bool:
        """Return whether the perplexity hardly changed since it was evaluated before."""
        bounds, every = history.bounds, self.evaluate_every
        if every == 0 or len(bounds) % every or len(bounds) <= every:
            return False
        pair = np.array([bounds[-1 - every], bounds[-1]])
        with np.errstate(over="ignore"):
            old, new = np.exp(-pair / history.n_observations)
        return bool(abs(new - old) < self.perp_tol)

    def reason(self, history: History) -> str:
        """Return why a fit that the rule has ended was ended, as a part of a sentence."""
        if not self.converged(history):
            return super().reason(history)
        return (
            f"the perplexity of the training set changes by less than perp_tol={self.perp_tol:g} "
            f"in evaluate_every={self.evaluate_every} passes"
        )

    def asks_for_bound(self, n_passes: int) -> bool:
        """Return whether the perplexity is evaluated after a pass in minibatches."""
        return self.evaluate_every > 0 and n_passes % self.evaluate_every == 0


@dataclass(frozen=True)
class OutOfReach:
    """A rule that also ends a fit, in batch mode, that will not reach a given bound.

    It assumes that a bound that converges rises by less than thirty times its last rise.

    Parameters
    ----------
    rule : Rule
        The rule that decides when the fit has converged.
    target : float
        The bound to reach, nats.
    after : int, default=1
        Number of passes after the schedule before the fit can be out of reach.
    pace : tuple of float, default=()
        The bounds of another fit after each of its passes. A fit that is behind it after ``after``
        passes, or after twice, four times … as many, is out of reach too.
    """

    rule: Rule
    target: float
    after: int = 1
    pace: tuple[float, ...] = ()

    def settled(self, history: History) -> bool:
        """Return whether the fit has converged, or the target is out of its reach."""
        return self._hopeless(history) or self.rule.settled(history)

    def _hopeless(self, history: History) -> bool:
        bounds = history.bounds
        if history.minibatches or len(bounds) <= max(1, history.n_annealed + self.after - 1):
            return False
        if self._is_behind(len(bounds), bounds[-1]):
            return True
        return bounds[-1] + _MORE_RISES * max(bounds[-1] - bounds[-2], 0.0) < self.target

    def _is_behind(self, n_passes: int, bound: float) -> bool:
        """Return whether the other fit was ahead, if it is time to compare."""
        times, rest = divmod(n_passes, self.after)
        if not self.pace or rest or times & (times - 1):
            return False
        return bound < self.pace[min(n_passes, len(self.pace)) - 1]

    def converged(self, history: History) -> bool:
        """Return what the rule returns."""
        return self.rule.converged(history)

    def asks_for_bound(self, n_passes: int) -> bool:
        """Return what the rule returns."""
        return self.rule.asks_for_bound(n_passes)

    def worthwhile(self, rise: float, n_observations: float) -> bool:
        """Return what the rule returns."""
        return self.rule.worthwhile(rise, n_observations)

    def reason(self, history: History) -> str:
        """Return that the target is out of reach, or what the rule returns."""
        if self._hopeless(history):
            return f"the bound will not reach {self.target:.6f}, the best so far"
        return self.rule.reason(history)


@dataclass(frozen=True)
class FewCountAsMany:
    """A rule that is less strict for few observations.

    A rise of ``tol`` for each of ten rows is 1e-5 nats in all, which the bound of a table without
    structure can exceed for hundreds of passes that raise it by a hundredth of a nat together.

    Parameters
    ----------
    rule : Rule
        The rule that decides when the fit has converged.
    least : float, default=100.0
        The number of observations that the data have at least, for that rule.
    """

    rule: Rule
    least: float = 100.0

    def _counted(self, history: History) -> History:
        return history._replace(n_observations=max(history.n_observations, self.least))

    def settled(self, history: History) -> bool:
        """Return what the rule returns for so many observations."""
        return self.rule.settled(self._counted(history))

    def converged(self, history: History) -> bool:
        """Return what the rule returns."""
        return self.rule.converged(history)

    def worthwhile(self, rise: float, n_observations: float) -> bool:
        """Return what the rule returns for so many observations."""
        return self.rule.worthwhile(rise, max(n_observations, self.least))

    def asks_for_bound(self, n_passes: int) -> bool:
        """Return what the rule returns."""
        return self.rule.asks_for_bound(n_passes)

    def reason(self, history: History) -> str:
        """Return what the rule returns."""
        return self.rule.reason(self._counted(history))


@dataclass(frozen=True)
class NoImprovement(RiseOfBound):
    """The rule that a fit ends when data for validation are no longer described any better.

    Parameters
    ----------
    tol : float
        A bound of the data for validation counts as higher if it is so by more than this, in nats
        per unit of weight.
    patience : int
        Number of passes in a row without a higher bound after which the fit ends.
    """

    patience: int

    def settled(self, history: History) -> bool:
        """Return False, because the bound of the training data does not matter."""
        return False

    def converged(self, history: History) -> bool:
        """Return whether the last passes have brought nothing."""
        after = history.validation[history.n_annealed :]
        before = after[: -self.patience]
        return bool(before) and max(after[-self.patience :]) <= max(before) + self.tol

    def reason(self, history: History) -> str:
        """Return why a fit that the rule has ended was ended, as a part of a sentence."""
        return f"the bound of the data for validation has not risen for {self.patience} passes"
