"""Visits to data: a visit is prepared, makes a local step for each chunk, and adds the results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..annealing._base import Annealing, Context, RandomWeights
from ..data.units import Units
from ..models._base import Block, Known, LocalStep, Visit
from ..parallel.workers import Workers

PLAIN = Annealing()


class Visited(NamedTuple):
    """A visit that is over, with its results."""

    visit: Visit
    step: LocalStep  # the local step of all chunks together
    draw: Any  # the random numbers that the annealing method drew for the visit, or None
    temperature: float  # the mean temperature T of the visit
    # The local variables from which the next visit can start, as the data keep them: a list with
    # those of each chunk, or where they are. None if there are none, or if they were not kept.
    local: Any

    @property
    def explores(self) -> bool:
        """Whether something is put off until the bound hardly rises (``Context.exploring``)."""
        return self.local is not None or self.visit.learns_late


@dataclass(frozen=True)
class Prepared:
    """A visit on its way to data: everything that it needs besides them."""

    visit: Visit
    exploring: bool
    noise: float  # the arguments of :meth:`Visit.start` that local variables start with
    weights: RandomWeights | None  # the distribution of random factors of the statistics
    keep: bool  # whether local variables are kept

    @property
    def forgets(self) -> bool:
        """Whether local variables start anew, whatever they were at the last visit."""
        return self.visit.forgets(self.exploring, self.noise)

    def __getstate__(self) -> dict[str, object]:
        # ``known`` serves the next visit, and no local step.
        visit = self.visit
        if visit.known is not None:
            visit = replace(visit, known=None)
        return {**vars(self), "visit": visit}


def visit(
    ctx: Context,
    method: Annealing,
    units: Units,
    workers: Workers,
    local: Any = None,
    known: Known | None = None,
    *,
    block: Block | None = None,
    keep: bool = True,
    evaluation: bool = False,
    bound: bool = True,
) -> Visited:
    """Visit some data for the update of a block, by default the first.

    Parameters
    ----------
    ctx : Context
    method : Annealing
    units : Units
    workers : Workers
    local : object, default=None
        The local variables of the last visit to the same data, if there was one. A list is emptied,
        and each entry is released once its chunk has been visited, so that old and new variables
        of all chunks are not in memory together.
    known : object
        Results about ``ctx.q`` that the last visit computed (:attr:`Visit.known`).
    block : Block or None, default=None
        The block that is updated after the visit; None for the first block.
    keep : bool, default=True
        Whether to return the local variables.
    evaluation : bool, default=False
        Whether the visit serves to compute the lower bound of ``ctx.q``, whichever method led to
        these parameters. Local variables then start as they do at the end of a fit.
    bound : bool, default=True
        Whether the terms of the lower bound will be read. Without it, they may be NaN.

    Returns
    -------
    visited : Visited
    """
    block = ctx.model.blocks[0] if block is None else block
    t, options = method.temper(ctx, units), method.visit_options(ctx)
    found = ctx.model.visit(
        *(ctx.q, units, t),
        block=block,
        evaluation=evaluation,
        known=known,
        workers=workers,
        **options,
    )
    if not bound:
        found = found.without_bound()
    elif not method.reads_energy:
        found = found.without_energy()
    draw = method.draw(ctx, block)
    weights = method.weights(ctx, units.n_weight_units)
    exploring, noise = method.local_start(ctx)
    prepared = Prepared(found, exploring and not evaluation, noise, weights, keep)
    step, kept = units.visit(prepared, ctx.rng, local, workers)
    step = found.finish(step)
    if step.temperature is not None:
        temperature = step.temperature / units.total_weight
    else:
        temperature = found.t.temperature
    return Visited(found, step, draw, temperature, kept)


def lower_bound(ctx: Context, units: Units, workers: Workers) -> float:
    """The complete evidence lower bound of ``ctx.q`` at T = 1, in nats."""
    visited = visit(ctx, PLAIN, units, workers, keep=False, evaluation=True)
    kl = ctx.model.kl(ctx.q, ctx.prior, visited.visit.known, workers)
    return visited.step.bound - kl
