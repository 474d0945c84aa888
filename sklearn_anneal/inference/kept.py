"""Data points of a stream that are kept for fits, while it is short and where it changes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.units import ROWS_OF_A_CLASS

# A fit is repeated if new rows were predicted worse than those of the last fit by so many nats, and
# by so many standard deviations of a mean over rows of Gaussian columns.
_FALL, _DEVIATIONS = 0.5, 3.0
# A stream is fitted anew when it has grown by so much. If it is longer than the sample that is
# kept, which has at most so many times the rows of the first fit, as many as these are compared.
_GROWTH, _MOST = 0.5, 8.0
# A sample has at least so many sequences.
_FEWEST = 12
# So many times the rows of the first fit say whether a stream has forgotten old rows.
_SHARE_OF_OLD = 0.5
# The bound of rows that a fit has not seen is lower by up to so many nats per column.
_GENERALIZATION = 0.125
# The number of fits that are allowed for each time that the stream doubles.
_FITS_PER_DOUBLING = 4.0
# A stream that keeps no sample has no more fits after so many times the rows of the first.
_MOST_WITHOUT_SAMPLE = 100.0


@dataclass(frozen=True)
class Kept:
    """Data points of a stream, as copies.

    Until the first fit these are all batches. Afterwards they are the data of the last fit, and the
    batches since, until there are too many. A stream that keeps a sample goes on with a random one
    of its data until then. Data points are drawn for it as their copies would be, so that heavy
    ones are drawn more often, and count less then. Another stream keeps nothing any more, but the
    batch that makes it too long, which is fitted as a first one is.
    """

    batches: tuple[Any, ...]
    keeps_sample: bool = True
    n_seen: int = 0  # rows of the stream so far
    n_new: int = 0  # rows since the last fit, or since they were last compared
    n_first: int = 0  # rows that the first fit needs; 0 before it
    n_fits: int = 0
    level: float = np.nan  # the expected bound of an observation; NaN directly after a fit
    bound: float = 0.0  # Σ bound of the batches since the last fit, of each before its update
    n_observations: float = 0.0  # those of these batches
    share: float = 1.0  # the share of the weight of the data until then that is kept
    is_new: bool = True  # whether nothing has been compared with the data of the last fit

    @property
    def n_weighed(self) -> int:
        """Number of data points, or of parts of them, that have weights."""
        return sum(batch.n_weighed for batch in self.batches)

    def added(self, batch: Any) -> Kept:
        """Return what is kept when a batch has come."""
        n_seen, n_new = self.n_seen + batch.n_rows, self.n_new + batch.n_rows
        return replace(self, batches=(*self.batches, joined([batch])), n_seen=n_seen, n_new=n_new)

    @property
    def is_sample(self) -> bool:
        """Whether there were more data than are kept."""
        return self.share < 1.0

    def fitted(self, units: Any, n_first: int, rng: np.random.Generator) -> Kept:
        """Return what is kept after a fit to some data."""
        n_first, number = self.n_first or n_first, self.n_fits + 1
        if not self.keeps_sample:
            fitted = Kept((), False, self.n_seen, 0, n_first, number)
            return fitted if fitted.is_over else replace(fitted, batches=(joined([units]),))
        size = _n_units(units, _MOST * n_first)
        share = min(size / units.n_units, 1.0)
        kept = sampled(units, size, share, rng)
        return Kept((kept,), True, self.n_seen, 0, n_first, number, share=self.share * share)

    def failed(self, rng: np.random.Generator) -> Kept:
        """Return what is kept after a fit that failed, which counts as others do."""
        # Rows that have been compared are a sample already.
        kept = self if len(self.batches) == 1 else self.reduced(rng)
        return replace(kept, n_fits=self.n_fits + 1)

    @property
    def is_fresh(self) -> bool:
        """Whether the parameters are those of the last fit."""
        return self.n_fits > 0 and bool(np.isnan(self.level))

    @property
    def room(self) -> float:
        """The number of rows that can still come until no fit is made any more."""
        if self.keeps_sample or self.n_first == 0:
            return np.inf
        return max(most_rows_of_fits(self.n_first) - self.n_seen, 0.0)

    @property
    def is_over(self) -> bool:
        """Whether the stream is so long that no fit is made any more."""
        return self.room == 0.0

    def updated(self, batch: Any, bound: float) -> Kept:
        """Return what is kept after an update, before which the batch had some bound.

        Directly after a fit, the batch are its data.
        """
        if self.is_fresh:
            return replace(self, level=bound / batch.n_observations)
        n_observations = self.n_observations + batch.n_observations
        return replace(self, bound=self.bound + bound, n_observations=n_observations)

    @property
    def is_due(self) -> bool:
        """Whether enough new data have come for another fit, or for a comparison with old ones."""
        if self.n_first == 0 or not self.batches:
            return False
        enough = self.n_first if self.is_sample else _GROWTH * self.batches[0].n_rows
        return self.n_new >= enough

    def some(self, rng: np.random.Generator) -> Any:
        """Return random data points of those that were kept before the batches since."""
        old = self.batches[0]
        size = _n_units(old, _SHARE_OF_OLD * self.n_first)
        return sampled(old, size, min(size / old.n_units, 1.0), rng)

    def compared(
        self, some: Any, bound: float, n_columns: int, rng: np.random.Generator
    ) -> tuple[bool, Kept]:
        """Return whether a fit may help, and what is kept otherwise.

        New rows that fit worse than those of the last fit say that it had too few rows, or that
        other groups have come. ``some`` old ones, whose present bound is given, say whether updates
        have forgotten them.
        """
        found = self.bound / self.n_observations, bound / some.n_observations
        fall = self.level - found[0], self.level - found[1]
        numbers = effective_rows(self.batches[1:]), effective_rows([some])
        least = [_FALL + _DEVIATIONS * np.sqrt(n_columns / (2.0 * n)) for n in numbers]
        level = self.level
        if self.is_new:
            # No fit predicts new rows as well as its own, and one to more rows is not to be had.
            least[0] += _GENERALIZATION * n_columns
            level -= max(min(fall[0], least[0]), 0.0)
        allowed = self.n_fits <= _FITS_PER_DOUBLING * np.log2(self.n_seen / self.n_first)
        falls = fall[0] > least[0] or fall[1] > least[1]
        return bool(falls and allowed), replace(self.reduced(rng), level=level)

    def reduced(self, rng: np.random.Generator) -> Kept:
        """Return what is kept if no fit follows now: all data, or a random sample of them."""
        old, new, share = self.batches[0], self.batches[1:], 1.0
        units = joined([scaled(old, 1.0 / self.share), *new])
        size = _n_units(units, _MOST * self.n_first)
        if self.keeps_sample and (self.is_sample or size < units.n_units):
            n_units = old.n_units / self.share + sum(batch.n_units for batch in new)
            # Data points that were left out do not come back where more have a place later.
            share = min(size / n_units, self.share)
            units = sampled(units, share * n_units, share, rng)
        kept = replace(self, batches=(units,), share=share)
        return replace(kept, n_new=0, bound=0.0, n_observations=0.0, is_new=False)


def most_rows_of_fits(n_first: float) -> float:
    """Return up to how many rows fits grow with a stream, given the rows of the first."""
    return _MOST_WITHOUT_SAMPLE * n_first


def joined(batches: Sequence[Any]) -> Any:
    """Return the data points of several batches, one batch after another, as a copy."""
    return type(batches[0]).joined(batches)


def effective_rows(batches: Sequence[Any]) -> float:
    """Return the number of rows of equal weights whose mean is as certain as that of these."""
    total, squares = 0.0, 0.0
    for batch in batches:
        n_rows, weights = float(batch.n_rows), batch.weights
        if getattr(batch, "n_merged", 0):
            n_rows = batch.n_merged
        elif weights is not None:
            n_rows *= (weights.sum() / np.sqrt(weights @ weights)) ** 2 / len(weights)
        total += batch.n_observations
        squares += batch.n_observations**2 / n_rows
    return total**2 / squares


def _n_units(units: Any, n_rows: float) -> int:
    """Return the number of data points that have about ``n_rows`` rows, a dozen at least."""
    share = n_rows / units.n_rows
    return int(min(max(_FEWEST, round(share * units.n_units)), units.n_units))


def scaled(units: Any, factor: float) -> Any:
    """Return data points with other weights."""
    if factor != 1.0:
        units = copy.copy(units)
        units.weights = (
            np.full(units.n_units, factor) if units.weights is None else (factor * units.weights)
        )
    return units


def sampled(units: Any, size: float, share: float, rng: np.random.Generator) -> Any:
    """Return about ``size`` random data points, as copies, that have a share of the weight of all.

    Each is drawn with a probability in proportion to its weight. It is certain for the heaviest, if
    they would otherwise have more than one place.
    """
    weights = np.ones(units.n_units) if units.weights is None else units.weights
    chances = _chances(weights, size, getattr(units, "classes", None))
    order = rng.permutation(len(weights))
    places = np.floor(np.cumsum(np.append(rng.random(), chances[order])) + 1e-9)
    chosen = np.sort(order[np.diff(places) > 0.0])
    found = units.take(chosen)
    own = share * weights[chosen] / chances[chosen]
    found.weights = None if np.allclose(own, 1.0, rtol=0.0, atol=1e-6) else own
    return joined([found])


def _chances(weights: np.ndarray, size: float, classes: np.ndarray | None) -> np.ndarray:
    """Return the probability of each data point to be in a sample of some size."""
    chances = _proportional(weights, size)
    if classes is None:
        return chances
    few = np.zeros(len(weights), dtype=bool)
    for c in np.unique(classes[classes >= 0]):
        own = classes == c
        if chances[own].sum() < ROWS_OF_A_CLASS:
            few |= own
            chances[own] = _proportional(weights[own], ROWS_OF_A_CLASS)
    least = chances[few].sum()
    if few.any() and least < size:
        chances[~few] = _proportional(weights[~few], size - least)
    return chances


def _proportional(weights: np.ndarray, size: float) -> np.ndarray:
    """Return probabilities in proportion to weights, but at most 1, whose sum is ``size``."""
    certain = np.zeros(len(weights), dtype=bool)
    while (left := size - certain.sum()) > 0.0 and not certain.all():
        chances = left * weights / weights[~certain].sum()
        more = ~certain & (chances >= 1.0)
        if not more.any():
            return np.where(certain, 1.0, chances)
        certain |= more
    return certain.astype(float)
