"""Visits to data: a visit is prepared, makes a local step for each chunk, and adds the results."""

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
    """A visit that is over, with its results.

    Attributes
    ----------
    visit : Visit
    step : LocalStep
        The local step of all chunks together.
    draw : object
        The random numbers that the annealing method drew for the visit, or None.
    temperature : float
        The mean temperature T of the visit.
    local : list or None
        The local variables of each chunk, from which the next visit can start; None if the model
        has none, or if they were not kept.
    """

    visit: Visit
    step: LocalStep
    draw: Any
    temperature: float
    local: list[Any] | None

    @property
    def explores(self) -> bool:
        """Whether something is put off until the bound hardly rises (``Context.exploring``)."""
        return self.local is not None or self.visit.learns_late


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
    bound: bool = True,
) -> Visited:
    """Visit some data for the update of a block, by default the first.

    Parameters
    ----------
    ctx : Context
    method : Annealing
    units : Units
    workers : Workers
    local : list or None, default=None
        The local variables of the last visit to the same data, if there was one. The list is
        emptied, and each entry is released once its chunk has been visited, so that old and new
        variables of all chunks are not in memory together.
    known : object
        Results about ``ctx.q`` that the last visit computed (:attr:`Visit.known`).
    block : Block or None, default=None
        The block that is updated after the visit; None for the first block.
    keep : bool, default=True
        Whether to return the local variables.
    evaluation : bool, default=False
        Whether the visit serves to compute the lower bound.
    bound : bool, default=True
        Whether the terms of the lower bound will be read. Without it, they may be NaN.

    Returns
    -------
    visited : Visited
    """
    block = ctx.model.blocks[0] if block is None else block
    prepared = method.visit(
        ctx, units, block=block, evaluation=evaluation, known=known, workers=workers
    )
    if not bound:
        prepared = prepared.without_bound()
    draw = method.draw(ctx, block)
    units = prepared.view(units)
    noise = method.weights(ctx, units)
    before = None if local is None else local[::-1]
    if local is not None:
        local.clear()

    # Tasks are made when a worker is free, and steps are merged as they arrive, because the local
    # variables and statistics of all chunks together can be larger than the data.
    def tasks() -> Iterator[tuple]:
        for index in units.chunks():
            chunk = units.take(index)
            chunk_noise = None if noise is None else noise[units.weight_units(index)]
            start = method.local_start(ctx, prepared, chunk, before.pop() if before else None)
            yield prepared, chunk, chunk_noise, start

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
    """Make the local step of one chunk; workers call this function."""
    return prepared.step(chunk, noise, start)
