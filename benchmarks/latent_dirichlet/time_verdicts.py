"""Verdicts on courses of held-out likelihood against time, computed from their points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# A likelihood counts as not below another if it is below by at most the spread over seeds, and by
# at most this where the spread is smaller, in nats per token.
AS_GOOD = 0.005
# The largest share of the peer's time in which its likelihood is to be reached.
IN_TIME = 0.5


class Curve(NamedTuple):
    """The points of one run.

    Attributes
    ----------
    iterations, seconds, held_out : ndarray of shape (n_points,)
    """

    iterations: np.ndarray
    seconds: np.ndarray
    held_out: np.ndarray

    @classmethod
    def of(cls, result: dict[str, Any]) -> Curve:
        """The curve in a record, in order of time.

        Points of fits that were made anew may be out of order by the noise of their times.
        """
        order = np.argsort(result["curve"]["seconds"], kind="stable")
        return cls(*(np.array(result["curve"][name], float)[order] for name in cls._fields))

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """The likelihood at some times, linear in log time between points; −∞ before the first."""
        return np.interp(np.log(seconds), np.log(self.seconds), self.held_out, left=-np.inf)

    def best_by(self, seconds: np.ndarray) -> np.ndarray:
        """The best likelihood until some times."""
        best = np.maximum.accumulate(self.held_out)
        return self._replace(held_out=best).at(seconds)

    def reaches(self, level: float) -> float:
        """The time at which the likelihood first reaches a level; ∞ if it never does."""
        above = np.flatnonzero(self.held_out >= level)
        if len(above) == 0:
            return np.inf
        last = above[0]
        if last == 0:
            return float(self.seconds[0])
        pair = slice(last - 1, last + 1)
        return float(np.exp(np.interp(level, self.held_out[pair], np.log(self.seconds[pair]))))

    @property
    def per_iteration(self) -> float:
        """Seconds of an iteration at trained topics, those of the later half of the run."""
        later = self.iterations >= self.iterations[-1] / 2
        iterations, seconds = self.iterations[later], self.seconds[later]
        if iterations[-1] == iterations[0]:
            iterations, seconds = self.iterations, self.seconds
        done = iterations[-1] - iterations[0]
        return float((seconds[-1] - seconds[0]) / done) if done > 0 else np.nan


class Comparison(NamedTuple):
    """Our runs against those of a peer, on one corpus with one number of topics.

    Attributes
    ----------
    tolerance : float
        By how much a likelihood may be below and count as not below.
    shortfall : float
        The largest excess of the peer's best likelihood over ours at the same time, at the times of
        our points.
    where : float
        The time of the largest excess, processor seconds.
    ratio : float
        The time in which ours reaches the peer's last likelihood, over the peer's whole time.
    ahead : float
        Our last likelihood less the peer's.
    """

    tolerance: float
    shortfall: float
    where: float
    ratio: float
    ahead: float

    @property
    def never_below(self) -> bool:
        return self.shortfall <= self.tolerance

    @property
    def in_time(self) -> bool:
        return self.ratio <= IN_TIME

    @property
    def ends_above(self) -> bool:
        return self.ahead > 0


def tolerance(ours: Sequence[Curve], peers: Sequence[Curve]) -> float:
    """The standard deviation of last likelihoods over seeds, pooled, or ``AS_GOOD`` if larger."""
    ends = [[curve.held_out[-1] for curve in curves] for curves in (ours, peers)]
    variances = [np.var(end, ddof=1) for end in ends if len(end) > 1]
    return max(AS_GOOD, float(np.sqrt(np.mean(variances))) if variances else 0.0)


def shortfall(ours: Sequence[Curve], peers: Sequence[Curve]) -> tuple[float, float]:
    """How far ours is below at most, and when; both are medians over seeds at the same times.

    The times are those of our points, from the first that all our seeds have to the last of any.
    """
    first = max(curve.seconds[0] for curve in ours)
    times = np.unique(np.concatenate([curve.seconds for curve in ours]))
    times = times[times >= first]
    mine = np.median([curve.at(times) for curve in ours], axis=0)
    theirs = np.median([curve.best_by(times) for curve in peers], axis=0)
    worst = int(np.argmax(theirs - mine))
    return float(theirs[worst] - mine[worst]), float(times[worst])


def time_to_level(curves: Sequence[Curve], peers: Sequence[Curve]) -> float:
    """The median time to the peer's last likelihood, over the median of the peer's times."""
    level = float(np.median([curve.held_out[-1] for curve in peers]))
    time = float(np.median([curve.seconds[-1] for curve in peers]))
    return float(np.median([curve.reaches(level) for curve in curves])) / time


def compare(ours: Sequence[Curve], peers: Sequence[Curve]) -> Comparison:
    """Compare the runs of some seeds."""
    ahead = np.median([c.held_out[-1] for c in ours]) - np.median([c.held_out[-1] for c in peers])
    return Comparison(
        tolerance(ours, peers),
        *shortfall(ours, peers),
        time_to_level(ours, peers),
        float(ahead),
    )
