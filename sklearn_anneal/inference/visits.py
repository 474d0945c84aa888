"""One visit to some data: prepared once, one local step per chunk, merged in their order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..models._base import Block, LocalStep, Visit
from .parallel import Workers
from .units import Units


class Visited(NamedTuple):
    """A visit that is over, and what it found.

    Attributes
    ----------
    visit : Visit
    step : LocalStep
        Of all chunks together.
    draw : object
        What the annealing method drew for the visit.
    temperature : float
    local : list or None
        The local variables of each chunk, for a warm start of the next visit; None for models
        without any, and where they were not kept.
    """

    visit: Visit
    step: LocalStep
    draw: Any
    temperature: float
    local: list[Any] | None


def visit(
    ctx: Context,
    method: Annealing,
    units: Units,
    workers: Workers,
    local: list[Any] | None = None,
    known: Any = None,
    *,
    block: Block | None = None,
    keep: bool = True,
    evaluation: bool = False,
) -> Visited:
    """Visit some data for the update of a block, by default the first.

    Parameters
    ----------
    ctx : Context
    method : Annealing
    units : Units
    workers : Workers
    local : list or None, default=None
        The local variables of the last visit to the same data, where there was one. The list is
        emptied, chunk by chunk, so that old and new ones are not in memory together.
    known : object
        What the last visit found of ``ctx.q`` (:attr:`Visit.known`).
    block : Block or None, default=None
    keep : bool, default=True
        Whether to return the local variables.
    evaluation : bool, default=False
        Whether the visit is there to tell the lower bound.
    """
    block = ctx.model.blocks[0] if block is None else block
    prepared = method.visit(
        ctx, units, block=block, evaluation=evaluation, known=known, workers=workers
    )
    draw = method.draw(ctx, block)
    units = prepared.view(units)
    noise = method.weights(ctx, units)
    before = None if local is None else local[::-1]
    if local is not None:
        local.clear()

    # Steps are made and merged one after another: the local variables and statistics of all
    # chunks together can be larger than the data.
    def tasks() -> Iterator[tuple]:
        for index in units.chunks():
            chunk = units.take(index)
            of_chunk = None if noise is None else noise[units.weight_units(index)]
            start = method.local_start(ctx, prepared, chunk, before.pop() if before else None)
            yield prepared, chunk, of_chunk, start

    found: list[Any] = []

    def steps() -> Iterator[LocalStep]:
        for step in workers.imap(_step, tasks()):
            if keep and step.local is not None:
                found.append(step.local)
            yield step

    step = prepared.finish(reduce(prepared.merge, steps()))
    if step.temperature is not None:
        temperature = step.temperature / units.total_weight
    else:
        temperature = float(np.mean(1.0 / np.asarray(prepared.t.local)))
    return Visited(prepared, step, draw, temperature, found or None)


def _step(prepared: Visit, chunk: Units, noise: np.ndarray | None, start: Any) -> LocalStep:
    """One task of the workers."""
    return prepared.step(chunk, noise, start)
