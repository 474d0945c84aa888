"""Data points of a stream that are kept for fits, at its beginning and where the stream changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# A fit is repeated if new rows were predicted worse than those of the last fit by so many nats, and
# by so many standard deviations of a mean over rows of Gaussian columns.
_FALL, _DEVIATIONS = 0.5, 3.0
# Rows are compared when a stream has grown by so much. If it is longer than the sample that is
# kept, which has at most so many times the rows of the first fit, they are as many as these.
_GROWTH, _MOST = 0.5, 8.0
# A sample has at least so many sequences.
_FEWEST = 12
# So many times the rows of the first fit say whether a stream has forgotten old rows.
_SHARE_OF_OLD = 0.5
# The bound of rows that a fit has not seen is lower by up to so many nats per column.
_GENERALIZATION = 0.125
# The number of fits that are allowed for each time that the stream doubles.
_FITS_PER_DOUBLING = 4.0


@dataclass(frozen=True)
class Kept:
    """Data points of a stream, as copies.

    Until the first fit these are all batches. Afterwards they are the data of the last fit, or a
    random sample of the data until then, and the batches since.
    """

    batches: tuple[Any, ...]
    n_seen: int = 0  # rows of the stream so far
    n_new: int = 0  # rows since the last fit, or since they were last compared
    n_first: int = 0  # rows that the first fit needs; 0 before it
    n_fits: int = 0
    level: float = np.nan  # the expected bound of an observation; NaN directly after a fit
    bound: float = 0.0  # Σ bound of the batches since the last fit, of each before its update
    n_observations: float = 0.0  # those of these batches
    is_sample: bool = False  # whether there were more data than are kept
    is_new: bool = True  # whether nothing has been compared with the data of the last fit

    @property
    def n_units(self) -> int:
        """Number of data points."""
        return sum(batch.n_units for batch in self.batches)

    def added(self, batch: Any) -> Kept:
        """Return what is kept when a batch has come."""
        n_seen, n_new = self.n_seen + batch.n_rows, self.n_new + batch.n_rows
        return replace(self, batches=(*self.batches, joined([batch])), n_seen=n_seen, n_new=n_new)

    def fitted(self, units: Any, n_first: int, rng: np.random.Generator) -> Kept:
        """Return what is kept after a fit to some data."""
        n_first = self.n_first or n_first
        batch = _random(units, _n_units([units], _MOST * n_first), rng)
        many = self.is_sample or batch.n_rows < units.n_rows
        return Kept((batch,), self.n_seen, 0, n_first, self.n_fits + 1, is_sample=many)

    @property
    def is_fresh(self) -> bool:
        """Whether no update has followed the last fit."""
        return self.n_fits > 0 and bool(np.isnan(self.level))

    def updated(self, batch: Any, bound: float) -> Kept:
        """Return what is kept after an update, before which the batch had some bound.

        The first update after a fit repeats its last step.
        """
        if self.is_fresh:
            return replace(self, level=bound / batch.n_observations)
        n_observations = self.n_observations + batch.n_observations
        return replace(self, bound=self.bound + bound, n_observations=n_observations)

    @property
    def is_due(self) -> bool:
        """Whether there are enough new data to compare them with what was expected."""
        enough = self.n_first if self.is_sample else _GROWTH * self.batches[0].n_rows
        return self.n_first > 0 and self.n_new >= enough

    def some(self, rng: np.random.Generator) -> Any:
        """Return random data points of those that were kept before the batches since."""
        old = self.batches[0]
        return _random(old, _n_units([old], _SHARE_OF_OLD * self.n_first), rng)

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
        least = [
            _FALL + _DEVIATIONS * np.sqrt(n_columns / (2.0 * n)) for n in (self.n_new, some.n_rows)
        ]
        level = self.level
        if self.is_sample and self.is_new:
            # No fit predicts new rows as well as its own, and one to more rows is not to be had.
            least[0] += _GENERALIZATION * n_columns
            level -= max(min(fall[0], least[0]), 0.0)
        allowed = self.n_fits <= _FITS_PER_DOUBLING * np.log2(self.n_seen / self.n_first)
        falls = fall[0] > least[0] or fall[1] > least[1]
        return bool(falls and allowed), replace(self._thinned(rng), level=level)

    def _thinned(self, rng: np.random.Generator) -> Kept:
        """Return a random sample of all data so far."""
        old, new = self.batches[0], joined(self.batches[1:])
        size = _n_units((old, new), _MOST * self.n_first)
        many = size < old.n_units + new.n_units
        if many:
            # A part of a data point is the probability with which it is taken.
            n_new = int(size * self.n_new / self.n_seen + rng.random())
            old, new = _random(old, size - n_new, rng), _random(new, n_new, rng)
        kept = replace(self, batches=(joined([old, new]),), is_sample=self.is_sample or many)
        return replace(kept, n_new=0, bound=0.0, n_observations=0.0, is_new=False)


def joined(batches: Sequence[Any]) -> Any:
    """Return the data points of several batches, one batch after another, as a copy."""
    return type(batches[0]).joined(batches)


def _n_units(batches: Sequence[Any], n_rows: float) -> int:
    """Return the number of data points that have about ``n_rows`` rows, a dozen at least."""
    n_units = sum(batch.n_units for batch in batches)
    share = n_rows / sum(batch.n_rows for batch in batches)
    return int(min(max(_FEWEST, round(share * n_units)), n_units))


def _random(units: Any, size: int, rng: np.random.Generator) -> Any:
    """Return ``size`` random data points, as copies, or all if there are no more."""
    if size < units.n_units:
        units = units.subset(size, np.random.RandomState(rng.integers(2**31)))
    return joined([units])
