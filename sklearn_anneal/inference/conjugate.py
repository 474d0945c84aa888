"""The update of conjugate models: λ̂ = λ₀ + (N/|S|) Σ_n w_n E_q[t(x_n, z_n)], λ ← (1 − ρ) λ + ρ λ̂.

There is a hook of the annealing method at every place that a method may bend.
"""

from __future__ import annotations

from typing import Protocol

from ..annealing._base import Annealing, Context
from ..families import Natural, posterior
from ..models._base import Block
from . import visits
from .parallel import Workers
from .units import Units
from .visits import Visited

_UPDATES_BEFORE_LEARNING = 100


class LearningRates(Protocol):
    """Anything that tells the step sizes of minibatches."""

    def learning_rate(self, updates: int) -> float:
        """ρ of the update after ``updates`` others."""


def update(
    ctx: Context,
    method: Annealing,
    units: Units,
    visited: Visited,
    rates: LearningRates,
    workers: Workers,
    *,
    minibatch: bool,
    passes: float,
) -> Visited:
    """One update of all blocks of ``ctx.q`` in their order, given the visit for the first.

    Parameters
    ----------
    ctx : Context
        Its parameters, its state and, where hyperparameters are learned, its model are replaced.
    method : Annealing
    units : Units
    visited : Visited
        The visit for the first block.
    rates : Settings
    workers : Workers
    minibatch : bool
        Whether ``units`` are a part of the data.
    passes : float
        What the update adds to the clock of the schedules.

    Returns
    -------
    visited : Visited
        The last visit.
    """
    rate = rates.learning_rate(ctx.state["updates"])
    rho = rate if minibatch else method.batch_step(rate)
    ctx.q_start = ctx.q
    base = ctx.model.factors().base(ctx.q)
    local = visited.local
    for i, block in enumerate(ctx.model.blocks):
        if block.refresh and i > 0:
            known = visited.visit.known
            visited = visits.visit(ctx, method, units, workers, local, known, block=block)
            local = visited.local
        ctx.report, ctx.known = visited.step, visited.visit.known

        stats = _of_block(ctx, block, visited.step.statistics)
        deviation = visited.step.deviation
        ctx.deviation = None if deviation is None else _of_block(ctx, block, deviation)
        prior = {key: ctx.prior[key] for key in block.keys}
        proposed = posterior(prior, stats, base, visited.visit.t)
        proposed = method.target(ctx, proposed, stats, visited)
        old = {key: ctx.q[key] for key in block.keys}
        ctx.q = {**ctx.q, **method.update(ctx, old, proposed, rho)}
    if _learns(ctx, method, minibatch, visited):
        learned = ctx.model.learned(ctx.q, ctx.prior, visited.step, rho, ctx.scale)
        ctx.model, ctx.prior, ctx.q = learned
    state = method.advance(ctx, visited.step)
    ctx.state = {**state, "updates": state["updates"] + 1, "passes": state["passes"] + passes}
    # Parameters can be as large as the data: what is over is not kept until the next update.
    ctx.q_start, ctx.report, ctx.known, ctx.deviation = {}, None, None, None
    return visited


def _of_block(ctx: Context, block: Block, raw: Natural) -> Natural:
    """The statistics of a block for all the data, from those of the batch."""
    if ctx.scale != 1.0:
        raw = {key: ctx.scale * value for key, value in raw.items()}
    return ctx.model.block_statistics(block, raw, ctx.q)


def _learns(ctx: Context, method: Annealing, minibatch: bool, visited: Visited) -> bool:
    """Whether it is time for empirical Bayes.

    While components are still alike, it would decide for those that happen to be ahead.
    """
    if not method.finish:
        return method.progress(ctx.state) >= 0.5
    if method.is_annealing(ctx.state):
        return False
    if minibatch:
        return bool(ctx.state["updates"] >= _UPDATES_BEFORE_LEARNING)
    return not (ctx.exploring and visited.local is not None)
