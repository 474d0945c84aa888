"""Further steps after each batch of a stream, with rows that were seen before, by gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..annealing._base import Context
from ..data.units import U, Units
from ..parallel.workers import Workers
from . import gradient, visits
from .kept import joined, sampled, scaled
from .progress import Settings
from .visits import PLAIN

# A new sample is drawn when more than so many times its number of rows are kept.
_ROOM = 1.5


@dataclass(frozen=True)
class Replayed:
    """Rows of a stream, as copies, with which steps are repeated after each batch.

    These are all rows at first. Of longer streams they are a random sample of ``most`` rows, and
    the rows since.
    """

    most: int
    batches: tuple[Any, ...] = ()
    share: float = 1.0  # the share of the weight of the data until then that the first one is
    n_seen: int = 0  # rows of the stream so far
    due: float = 0.0  # rows that are still to be seen again

    @property
    def n_units(self) -> int:
        """Number of rows that are kept."""
        return sum(batch.n_units for batch in self.batches)

    def added(self, batch: Any, n_passes: int, rng: np.random.Generator) -> Replayed:
        """Return what is kept when a batch has come, whose rows a fit sees ``n_passes`` times.

        As many steps follow as a fit makes with so many rows, until the stream is longer than the
        sample. The steps of longer ones grow with the logarithm of their length, until one row is
        seen again for each new one.
        """
        n_seen, due = self.n_seen + batch.n_units, self.due
        if n_passes > 1:
            of_fit = n_passes * min(1.0, self.most / n_seen)
            due += batch.n_units * max(of_fit - 1.0, 1.0)
        batches, is_sample = [*self.batches, joined([batch])], self.share < 1.0
        # A few batches, each of which is much smaller than the one before, take little time to
        # make, and little to draw from.
        while len(batches) > 1 + is_sample and batches[-2].n_units <= 2 * batches[-1].n_units:
            batches[-2:] = [joined(batches[-2:])]
        return replace(self, batches=tuple(batches), n_seen=n_seen, due=due)

    def thinned(self, rng: np.random.Generator) -> Replayed:
        """Return a random sample of the stream so far if more rows are kept than it should have."""
        if self.n_units <= _ROOM * self.most:
            return self
        old, new = self.batches[0], self.batches[1:]
        units = joined([scaled(old, 1.0 / self.share), *new])
        share = self.most / self.n_seen
        return replace(self, batches=(sampled(units, self.most, share, rng),), share=share)

    def drawn(self, size: int, number: int, rng: np.random.Generator) -> Iterator[Units]:
        """Yield ``number`` random batches of some size, with rows as often as they weigh.

        All rows weigh the same in them.
        """
        weights = [
            np.ones(batch.n_units) if batch.weights is None else batch.weights
            for batch in self.batches
        ]
        ends = np.cumsum(np.concatenate([weights[0] / self.share, *weights[1:]]))
        starts = np.cumsum([0, *(len(each) for each in weights)])
        # There is one place in each of equal parts of the weight.
        places = (rng.permutation(size * number) + rng.random(size * number)) / (size * number)
        rows = np.searchsorted(ends[:-1], places * ends[-1], side="right")
        weight = ends[-1] / self.n_seen
        for of_batch in rows.reshape(number, size):
            index = np.sort(of_batch)
            cuts = np.searchsorted(index, starts)
            found = joined(
                [
                    batch.take(index[cuts[i] : cuts[i + 1]] - starts[i])
                    for i, batch in enumerate(self.batches)
                    if cuts[i + 1] > cuts[i]
                ]
            )
            found.weights = None if abs(weight - 1.0) < 1e-6 else np.full(size, weight)
            yield found


def mixed(
    replayed: Replayed, batch: U, settings: Settings, rng: np.random.Generator
) -> tuple[Replayed, U]:
    """Return what is kept, and a batch to which rows that are due were added up to the usual size.

    The gradient of a few rows is mostly noise, and optimizers make steps of one size all the same.
    """
    size = min(settings.batch_size or replayed.n_units, replayed.n_units)
    number = int(min(size - batch.n_units, replayed.due))
    if number <= 0:
        return replayed, batch
    others = next(replayed.drawn(number, 1, rng))
    return replace(replayed, due=replayed.due - number), joined([batch, others])


def replay(ctx: Context, replayed: Replayed, settings: Settings, workers: Workers) -> Replayed:
    """Make the steps that are due, which change the parameters in place; return what is kept."""
    size = min(settings.batch_size or replayed.n_units, replayed.n_units)
    number = int(replayed.due / size)
    gradient.resume(ctx)
    for units in replayed.drawn(size, number, ctx.rng):
        ctx.scale = ctx.summary.weight / units.total_weight
        visited = visits.visit(ctx, PLAIN, units, workers)
        gradient.update(ctx, PLAIN, units, visited, settings, workers, minibatch=True, passes=0.0)
    found = gradient.returned(ctx)
    ctx.q, ctx.state = found.q, found.state
    # All rows of a large batch have been drawn from.
    return replace(replayed, due=replayed.due - number * size).thinned(ctx.rng)
