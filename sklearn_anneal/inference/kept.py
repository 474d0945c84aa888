"""Data points of a stream that are kept for fits, at its beginning and where the stream changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# A fit is repeated if new rows were predicted worse than those of the last fit by so many nats, and
# by so many standard deviations of a mean over rows of Gaussian columns.
_FALL, _DEVIATIONS = 0.5, 3.0
# New rows are compared with those that are kept once they are so many times as many. A fit reads at
# most so many times the rows of the first one, and the new ones.
_SHARE_OF_NEW, _MOST = 0.5, 4.0
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

    @property
    def n_new(self) -> int:
        """Number of rows since the last fit, or since they were last compared."""
        return sum(batch.n_rows for batch in self.batches[1:])

    def added(self, batch: Any) -> Kept:
        """Return what is kept when a batch has come."""
        n_seen = self.n_seen + batch.n_rows
        return replace(self, batches=(*self.batches, joined([batch])), n_seen=n_seen)

    def fitted(self, units: Any, n_first: int, rng: np.random.Generator) -> Kept:
        """Return what is kept after a fit to some data."""
        n_first = self.n_first or n_first
        batch = _sample(units, int(_MOST * n_first), rng)
        many = self.is_sample or batch.n_rows < units.n_rows
        return Kept((batch,), self.n_seen, n_first, self.n_fits + 1, is_sample=many)

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
        n_rows = self.n_first if self.is_sample else self.batches[0].n_rows
        return self.n_first > 0 and self.n_new >= _SHARE_OF_NEW * n_rows

    def compared(self, n_columns: int, rng: np.random.Generator) -> tuple[bool, Kept]:
        """Return whether a fit may help, and what is kept otherwise.

        Rows that fit worse than those of the last fit say that it had too few rows, or that the
        stream has changed.
        """
        least = _FALL + _DEVIATIONS * np.sqrt(n_columns / (2.0 * self.n_new))
        fall, level = self.level - self.bound / self.n_observations, self.level
        if self.is_sample and self.is_new:
            # No fit predicts new rows as well as its own, and one to more rows is not to be had.
            least += _GENERALIZATION * n_columns
            level -= max(min(fall, least), 0.0)
        allowed = self.n_fits <= _FITS_PER_DOUBLING * np.log2(self.n_seen / self.n_first)
        return bool(fall > least and allowed), replace(self._thinned(rng), level=level)

    def _thinned(self, rng: np.random.Generator) -> Kept:
        """Return a random sample of all data so far."""
        old, new = self.batches[0], joined(self.batches[1:])
        size = int(_MOST * self.n_first)
        if old.n_rows + new.n_rows > size:
            n_new = min(max(round(size * new.n_rows / self.n_seen), 1), size - 1)
            old, new = _sample(old, size - n_new, rng), _sample(new, n_new, rng)
        many = self.is_sample or old.n_rows + new.n_rows < self.n_seen
        kept = replace(self, batches=(joined([old, new]),), bound=0.0, n_observations=0.0)
        return replace(kept, is_sample=many, is_new=False)


def joined(batches: Sequence[Any]) -> Any:
    """Return the data points of several batches, one batch after another, as a copy."""
    return type(batches[0]).joined(batches)


def _sample(units: Any, n_rows: int, rng: np.random.Generator) -> Any:
    """Return random data points with about ``n_rows`` rows; a copy of all if they have no more."""
    if units.n_rows <= n_rows:
        return joined([units])
    size = max(1, round(units.n_units * n_rows / units.n_rows))
    return joined([units.subset(size, np.random.RandomState(rng.integers(2**31)))])
