"""Visits to data: a visit is prepared, makes a local step for each chunk, and adds the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context, RandomWeights
from ..data.units import Units
from ..models._base import Block, LocalStep, Visit
from ..parallel.workers import Workers


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
    local : object
        The local variables from which the next visit can start, as the data keep them: a list with
        those of each chunk, or where they are. None if there are none, or if they were not kept.
    """

    visit: Visit
    step: LocalStep
    draw: Any
    temperature: float
    local: Any

    @property
    def explores(self) -> bool:
        """Whether something is put off until the bound hardly rises (``Context.exploring``)."""
        return self.local is not None or self.visit.learns_late


def visit(
    ctx: Context,
    method: Annealing,
    units: Units,
    workers: Workers,
    local: Any = None,
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
    elif not method.reads_energy:
        prepared = prepared.without_energy()
    draw = method.draw(ctx, block)
    weights = method.weights(ctx, units.n_weight_units)
    sweep = Sweep(prepared, *method.local_start(ctx), weights, keep)
    step, found = units.swept(sweep, ctx.rng, local, workers)
    step = prepared.finish(step)
    if step.temperature is not None:
        temperature = step.temperature / units.total_weight
    else:
        temperature = float(np.mean(1.0 / np.asarray(prepared.t.local)))
    return Visited(prepared, step, draw, temperature, found)


@dataclass(frozen=True)
class Sweep:
    """A visit on its way to data: everything that it needs besides them.

    Attributes
    ----------
    prepared : Visit
    exploring : bool
    noise : float
        The arguments of :meth:`Visit.start` that local variables start with.
    weights : RandomWeights or None
        The distribution of random factors of the statistics.
    keep : bool
        Whether local variables are kept.
    """

    prepared: Visit
    exploring: bool
    noise: float
    weights: RandomWeights | None
    keep: bool

    @property
    def forgets(self) -> bool:
        """Whether local variables start anew, whatever they were at the last visit."""
        return self.prepared.forgets(self.exploring, self.noise)

    def __getstate__(self) -> dict[str, Any]:
        # What the visit knows of q serves the next visit, and no local step.
        prepared = self.prepared
        if prepared.known is not None:
            prepared = replace(prepared, known=None)  # type: ignore[call-arg]
        return {**vars(self), "prepared": prepared}

    def over(
        self,
        units: Units,
        rng: np.random.Generator,
        local: list[Any] | None,
        workers: Workers,
        totals: Any = None,
    ) -> tuple[LocalStep, list[Any] | None]:
        """Make the local steps of all chunks, and add them up in their order.

        Parameters
        ----------
        units : Units
        rng : numpy.random.Generator
            The source of random weights and of random starts.
        local : list or None
            The local variables of the last visit to the same data. The list is emptied.
        workers : Workers
        totals : object
            The totals of the random weights of all data, of which these are a part; None if there
            are no others.

        Returns
        -------
        step : LocalStep
        local : list or None
            The local variables of each chunk; None if there are none, or if they are not kept.
        """
        prepared = self.prepared
        units = prepared.view(units)
        noise = None
        if self.weights is not None:
            drawn, own = self.weights.draw(units.n_weight_units, rng)
            noise = self.weights.scaled(drawn, own, own if totals is None else totals)
        before = None if local is None else local[::-1]
        if local is not None:
            local.clear()

        # Tasks are made when a worker is free, and steps are merged as they arrive, because the
        # local variables and statistics of all chunks together can be larger than the data.
        def tasks() -> Iterator[tuple]:
            for index in prepared.chunks(units):
                chunk = units.take(index)
                of_chunk = None if noise is None else noise[units.weight_units(index)]
                last = before.pop() if before else None
                start = prepared.start(chunk, last, self.exploring, self.noise, rng)
                yield prepared, chunk, of_chunk, start

        found: list[Any] = []

        def steps() -> Iterator[LocalStep]:
            for step in workers.imap(_step, tasks()):
                if self.keep and step.local is not None:
                    found.append(step.local)
                yield step

        return reduce(prepared.merge, steps()), found or None


def _step(prepared: Visit, chunk: Units, noise: np.ndarray | None, start: Any) -> LocalStep:
    """Make the local step of one chunk; workers call this function."""
    return prepared.step(chunk, noise, start)
