"""Updates with the batches of a stream, which come one by one from outside the loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..families import settled
from ..models._base import Model
from ..models._streamed import Streamed
from ..parallel.workers import Workers
from . import gradient, visits
from .kept import Kept
from .minibatches import UPDATES
from .progress import Settings
from .replay import Replayed
from .visits import PLAIN

# The share of a stream in which the schedule runs. The rest is plain inference: every data point
# is seen once only, and parameters that are learned at high temperature are crude. A longer share
# suits some mixtures, but leaves topics of small corpora and ratings too little data to converge in
# one pass.
_ANNEALED_SHARE = 0.1


def _length(strategy: Annealing) -> float:
    """The number of passes that the clock of the schedule counts in one pass over a stream.

    The passes of a method without a finish are spread over the whole stream.
    """
    share = _ANNEALED_SHARE if strategy.finish else 1.0
    return (strategy.schedule_length() / share) or 1.0


def represented_weight(
    model: Model, strategy: Annealing, summary: Any, seen: float, total: float | None
) -> float:
    """Return the weight of the data that the parameters of a stream describe.

    It is that of the whole stream, ``total``, or of the data so far, ``seen``, if the former is not
    known or if these are too few to represent others. Starts that are drawn from the prior, as some
    methods draw them, do not come from few data.
    """
    if total is None:
        return seen
    least = model.least_weight(summary) if isinstance(model, Streamed) else 0.0
    few = strategy.needs_start and seen < least
    return min(seen, float(total)) if few else float(total)


def least_weight_of_fit(model: Model, batch: Units) -> float:
    """Return the weight of the first batches from which on a stream is fitted to these.

    It is infinite if a stream consists of updates alone. A single update leaves components wide,
    and later ones, which are local, never divide those that have covered two groups meanwhile.
    """
    if not isinstance(model, Streamed):
        return np.inf
    summary = batch.summary(model)
    return float(model.resolved(summary).least_weight_of_fit(summary))


def nothing_kept(model: Model, n_seen: int = 0) -> Kept:
    """Return what is kept of a stream before its first fit: nothing of so many rows."""
    return Kept((), not isinstance(model, Streamed) or model.keeps_sample, n_seen)


def nothing_replayed(model: Model, strategy: Annealing) -> Replayed | None:
    """Return what is kept of a stream for replays before its first batch; None if it has none.

    A schedule counts the batches that come.
    """
    if not isinstance(model, Streamed) or strategy.schedule_length() > 0:
        return None
    most = model.rows_of_replays()
    return Replayed(most) if most else None


def bound_of(ctx: Context, units: Units) -> float:
    """Return the part of the lower bound to which some data points contribute, in nats."""
    visited = visits.visit(ctx, PLAIN, units, Workers(1), keep=False, evaluation=True)
    return float(visited.step.bound)


class Updated(NamedTuple):
    """The result of an update."""

    # The lower bound of the parameters before the update, as the batch estimates it, in nats. It is
    # NaN if the method does not evaluate it at this update.
    lower_bound: float
    temperature: float
    bound_of_batch: float  # the part of the bound to which the data points of the batch contribute


def adopt(ctx: Context, units: Units, workers: Workers) -> Updated:
    """Let the parameters of a fit describe the data of a stream, which may be more than its own.

    The parameters are natural ones, to which data add statistics. Those of counts are never
    negative, but they seem to be where there are none and priors have been learned since.
    """
    if ctx.scale != 1.0:
        counts, q = isinstance(ctx.model, Streamed) and ctx.model.adds_counts, {}
        for key, value in ctx.q.items():
            data = value - ctx.prior[key]
            q[key] = ctx.prior[key] + ctx.scale * (np.maximum(data, 0.0) if counts else data)
        ctx.q = q
    visited = visits.visit(ctx, PLAIN, units, workers, keep=False, evaluation=True)
    kl = ctx.model.kl(ctx.q, ctx.prior, visited.visit.known, workers)
    return Updated(ctx.scale * visited.step.bound - kl, visited.temperature, visited.step.bound)


def update(
    ctx: Context,
    strategy: Annealing,
    batch: Units,
    settings: Settings,
    workers: Workers,
    *,
    share: float | None,
    seen: float,
) -> Updated:
    """One update with one batch of a stream.

    Whatever number of passes the schedule has, it runs within the first part of the stream. One
    pass over the data therefore ends at T = 1, and as near to convergence as one pass can.

    Parameters
    ----------
    ctx : Context
        The parameters and the clocks, which the update changes in place.
    strategy : Annealing
    batch : Units
    settings : Settings
    workers : Workers
    share : float or None
        The share of the batch in the whole stream, or None if the size of the stream is not given.
        The batch then counts as one pass of a method without a finish. Other methods have no
        schedule in that case.
    seen : float
        The weight of the data so far, with the batch.

    Returns
    -------
    updated : Updated

    Raises
    ------
    numpy.linalg.LinAlgError
        If the bound was evaluated and is not finite.
    ValueError
        If the settings of the method need updates from all the data.
    """
    strategy.check_minibatches()
    gradient.resume(ctx)
    # The clock is set to the end of the batch before the update. The schedule is therefore over
    # at the last batch of a stream, however large that batch is.
    passes = 1.0 if share is None else share * _length(strategy)
    ctx.state = {**ctx.state, "passes": ctx.state["passes"] + passes}
    method = strategy if strategy.is_annealing(ctx.state) else PLAIN
    visited = visits.visit(ctx, method, batch, workers, bound=method.exact_bound)
    bound = np.nan
    if method.exact_bound or ctx.state["updates"] % method.evaluate_every == 0:
        step = visited.step
        if not method.exact_bound:
            plain = visits.visit(ctx, PLAIN, batch, workers, keep=False, evaluation=True)
            step = plain.step
        kl = ctx.model.kl(ctx.q, ctx.prior, visited.visit.known, workers)
        bound = ctx.scale * step.bound - kl
        if not np.isfinite(bound):
            raise np.linalg.LinAlgError("a lower bound that is not finite")
    rule = UPDATES[ctx.model.update_rule]
    how = (ctx, method, batch, visited, settings, workers)
    rule(*how, minibatch=True, passes=0.0, seen=seen)
    found = gradient.returned(ctx)
    ctx.q, ctx.state = settled(found.q), found.state
    return Updated(bound, visited.temperature, visited.step.bound)
