"""The minibatches of a pass: a visit and an update for each, wherever the data are."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..models._base import LocalStep
from ..parallel.workers import Workers
from . import conjugate, gradient, visits
from .progress import Settings

# The kind of update that a model names → the function that updates its parameters.
UPDATES = {"conjugate": conjugate.update, "gradient": gradient.update}


class Seen(NamedTuple):
    """The result of the minibatches of a part of the data."""

    ctx: Context
    data: LocalStep  # the sum of their local steps, without statistics
    heat: float  # Σ w T over the minibatches
    weight: float  # Σ w


class Minibatches(NamedTuple):
    """The minibatches of a pass, as a request that goes to the parts of the data in turn."""

    ctx: Context  # changed by the updates, unless it was copied on the way to another process
    method: Annealing
    total: float  # weight of all the data
    settings: Settings

    def at(self, units: Units, workers: Workers) -> Seen:
        """Visit and update for every minibatch of a part of the data."""
        ctx, method = self.ctx, self.method
        update = UPDATES[ctx.model.update_rule]
        data, heat, warm = LocalStep({}, 0.0, 0.0, squares=0.0), 0.0, 0.0
        batches = units.batches(self.settings.batch_size or units.n_units, ctx.rng)
        for batch in workers.ahead(units.batch, batches):
            weight = batch.total_weight
            share = weight / self.total
            if batch.is_empty:
                # A batch without observations teaches nothing, but still advances the clock.
                ctx.state = {**ctx.state, "passes": ctx.state["passes"] + share}
                continue
            ctx.scale = self.total / weight
            # Local variables are kept for the visits that later blocks need.
            keep = any(block.refresh for block in ctx.model.blocks[1:])
            visited = visits.visit(ctx, method, batch, workers, keep=keep, bound=method.exact_bound)
            data += replace(visited.step, statistics={}, deviation=None, constraints=())
            heat += weight * visited.temperature
            warm += weight
            update(
                *(ctx, method, batch, visited, self.settings, workers),
                minibatch=True,
                passes=share,
            )
        return Seen(ctx, data, heat, warm)
