"""The update of conjugate models: λ̂ = λ₀ + (N/|S|) Σ_n w_n E_q[t(x_n, z_n)], λ ← (1 − ρ) λ + ρ λ̂.

An annealing method changes it through hooks, which are called at every step of the update.
"""

from __future__ import annotations

from copy import copy
from typing import Protocol

import numpy as np

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..families import Natural, posterior, settled
from ..models._base import Block, ConjugateModel
from ..models._streamed import Streamed
from ..parallel.workers import Workers
from . import visits
from .visits import Visited

# Hyperparameters that wait are learned only after this many updates in minibatches.
_UPDATES_BEFORE_LEARNING = 100
# Those of some models wait for so many updates and so many data points of a stream instead. It may
# have no more batches than this, and steps become small. A fit sees its data again, and learns
# better late.
_UPDATES_BEFORE_LEARNING_SOON, _WEIGHT_BEFORE_LEARNING_SOON = 10, 100.0


class LearningRates(Protocol):
    """Any object that defines the step sizes of minibatches."""

    def learning_rate(self, updates: float) -> float:
        """Return ρ of the update that follows ``updates`` others."""


class _Base(dict[str, np.ndarray]):
    """The natural parameters of the flat density, which are computed when one is first read.

    They depend on the shapes of q alone, whose arrays an update replaces meanwhile.
    """

    def __init__(self, ctx: Context):
        self._ctx = ctx

    def __missing__(self, key: str) -> np.ndarray:
        self.update(self._ctx.model.factors().base(self._ctx.q))
        return self[key]


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
    seen: float | None = None,
) -> Visited:
    """Update all blocks of ``ctx.q`` once, in their order, given the visit for the first block.

    Parameters
    ----------
    ctx : Context
        The context of the fit. Its parameters and its state are replaced, and so is its model if
        hyperparameters are learned.
    method : Annealing
    units : Units
        The data of the update.
    visited : Visited
        The visit for the first block.
    rates : LearningRates
    workers : Workers
    minibatch : bool
        Whether ``units`` are only a part of the data.
    passes : float
        The number (or fraction) of passes by which the update advances the schedules.
    seen : float or None, default=None
        The weight of the data of a stream so far; None for a fit.

    Returns
    -------
    visited : Visited
        The last visit.
    """
    # A batch of a stream counts the data before it in batches of its own size.
    earlier = ctx.state["updates"] if seen is None else seen / units.total_weight - 1.0
    rate = rates.learning_rate(earlier)
    rho = method.minibatch_step(rate, 1.0 / ctx.scale) if minibatch else method.batch_step(rate)
    ctx.q_start = ctx.q if method.reads_entropy else {}
    base = _Base(ctx)
    local = visited.local
    for i, block in enumerate(ctx.model.blocks):
        if block.refresh and i > 0:
            known = visited.visit.known
            # A visit empties the list that it is given.
            local = copy(local)
            # Results of the last visit are released before this one, whose own are as large.
            ctx.report = ctx.known = ctx.deviation = None
            del visited
            # The bound is that of the first visit; some methods also read the entropy of others.
            bound = method.reads_entropy or local is None
            visited = visits.visit(
                ctx, method, units, workers, local, known, block=block, bound=bound
            )
            local = visited.local
        ctx.report, ctx.known = visited.step, visited.visit.known

        stats = _of_block(ctx, block, visited.step.statistics)
        deviation = visited.step.deviation
        ctx.deviation = None if deviation is None else _of_block(ctx, block, deviation)
        prior = {key: ctx.prior[key] for key in block.keys}
        overwrite = block.overwrites and type(method).target is Annealing.target
        proposed = posterior(prior, stats, base, visited.visit.t, overwrite=overwrite)
        if visited.visit.extrapolates:
            raw = {key: ctx.scale * value for key, value in visited.step.statistics.items()}
            proposed = visited.visit.extrapolated(ctx.q, proposed, raw)
        proposed = method.target(ctx, proposed, stats, visited)
        old = {key: ctx.q[key] for key in block.keys}
        ctx.q = {**ctx.q, **method.update(ctx, old, proposed, rho)}
        # Parameters and statistics can be as large as the data. Those that are no longer needed
        # are released here rather than at the next update.
        del stats, deviation, proposed, old
    if not minibatch:
        ctx.q = settled(ctx.q)
    late = None
    # A method with a finish learns nothing while it is annealing.
    if not (method.finish and method.is_annealing(ctx.state)) and _determine_priors(units, ctx):
        wait = _updates_before_learning(ctx.model, seen) if minibatch else None
        late = _learns_late(ctx, method, wait, visited)
    undo = None if ctx.extend is None else ctx.extend(ctx, late)
    if late is not None:
        try:
            learned = ctx.model.learned(ctx.q, ctx.prior, visited.step, rho, ctx.scale, late)
            ctx.model, ctx.prior, ctx.q = learned
        except np.linalg.LinAlgError:
            if undo is None:
                raise
            undo(ctx)
    state = method.advance(ctx, visited.step)
    ctx.state = {**state, "updates": state["updates"] + 1, "passes": state["passes"] + passes}
    ctx.q_start, ctx.report, ctx.known, ctx.deviation, ctx.extend = {}, None, None, None, None
    return visited


def _of_block(ctx: Context, block: Block, raw: Natural) -> Natural:
    """Return the statistics of a block, scaled from the batch to all the data."""
    if ctx.scale != 1.0:
        raw = {key: ctx.scale * value for key, value in raw.items()}
    return ctx.model.block_statistics(block, raw, ctx.q)


def _determine_priors(units: Units, ctx: Context) -> bool:
    """Return whether the data can determine hyperparameters that are learned.

    Data that weigh less than one observation, or whose counts are too light, do not.
    """
    enough = units.n_observations * ctx.scale >= 1.0
    return enough and not ctx.summary.why_not_learned(ctx.model)


def _updates_before_learning(model: ConjugateModel, seen: float | None) -> int:
    """Return for how many minibatches, or batches of a stream, hyperparameters wait."""
    enough = seen is not None and seen >= _WEIGHT_BEFORE_LEARNING_SOON
    soon = enough and isinstance(model, Streamed) and model.learns_soon
    return _UPDATES_BEFORE_LEARNING_SOON if soon else _UPDATES_BEFORE_LEARNING


def _learns_late(ctx: Context, method: Annealing, wait: int | None, visited: Visited) -> bool:
    """Return whether the fit is so far that all hyperparameters can be learned.

    In minibatches and streams it is so after ``wait`` updates, which is None in batch mode.
    Many of them are learned late in a fit. While components are still similar, empirical Bayes
    would favour those that have slightly more data by chance.
    """
    if not method.finish:
        return bool(method.progress(ctx.state) >= method.learn_priors_after)
    if wait is not None:
        return bool(ctx.state["updates"] >= wait)
    return not (ctx.exploring and visited.explores)
