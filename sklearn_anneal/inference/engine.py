"""The loop of variational inference. It knows no model and no annealing method by name.

A pass is a visit to the data and an update, or as many of both as there are minibatches. Between
two passes all that the next one needs is in a :class:`Progress`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..families import Natural
from ..models._base import LocalStep
from . import visits
from .conjugate import update
from .parallel import SEQUENTIAL, Workers
from .stopping import History, RiseOfBound
from .units import Units
from .visits import Visited

PLAIN = Annealing()
# The share of a stream in which a schedule runs. All that follows is plain inference, because what
# is learned at high temperature is crude and a data point may be met once only. Longer shares suit
# some mixtures, but leave topics of small corpora and ratings too little to converge in one pass.
_ANNEALED_SHARE = 0.1
_PASSES_BEFORE_TEST = 20


class Settings(NamedTuple):
    """How the loop runs.

    Attributes
    ----------
    max_iter : int
        Largest number of passes of the finish.
    stop : RiseOfBound
        The rule that says when the finish has converged.
    batch_size : int or None
        Data points per update; None for all.
    learning_offset, learning_decay : float
        τ and κ of ρ_t = (τ + t)^(−κ).
    """

    max_iter: int
    stop: RiseOfBound
    batch_size: int | None
    learning_offset: float
    learning_decay: float

    def learning_rate(self, updates: int) -> float:
        """ρ of the update after ``updates`` others."""
        return float((self.learning_offset + updates + 1) ** -self.learning_decay)


@dataclass
class Trace:
    """The history of a fit, one entry per pass.

    Attributes
    ----------
    lower_bounds : list of float
        The bound after each pass, T = 1, nats; NaN where it was not evaluated.
    temperatures : list of float
    initial : float
        The bound of the start.
    final : float
        The bound of the returned parameters.
    evaluated : bool
        Whether ``final`` is that of :func:`lower_bound`, and not of local variables that were kept.
    converged, stopped : bool
        Whether the stopping rule, or the monitor, has ended the fit.
    """

    lower_bounds: list[float] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    initial: float = -np.inf
    final: float = -np.inf
    evaluated: bool = True
    converged: bool = False
    stopped: bool = False


@dataclass
class Progress:
    """Where a fit stands between two passes: all that the next pass needs besides the data.

    Attributes
    ----------
    ctx : Context
        The parameters, the model, the clocks, the generator.
    strategy : Annealing
        Resolved and calibrated.
    trace : Trace
    passes : int
        Updates of all the data so far.
    temperature : float
        That of the last pass, in batch mode.
    local : list or None
        Local variables that are kept for the next visit.
    finished : bool
    known : object
        What the last visit found of q. It saves work and changes no result; a pickle does
        without.
    """

    ctx: Context
    strategy: Annealing
    trace: Trace = field(default_factory=Trace)
    passes: int = 0
    temperature: float = 1.0
    local: list[Any] | None = None
    finished: bool = False
    known: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "known": None}


Monitor = Callable[[Context, Trace], bool]


class _Run(NamedTuple):
    """What all passes of a fit share."""

    units: Units
    settings: Settings
    workers: Workers
    monitor: Monitor | None
    n_annealed: int
    n_passes: int
    first_test: int
    minibatches: bool

    def stopped(self, progress: Progress) -> bool:
        """Whether the monitor, which is told of a pass, asks to stop."""
        return self.monitor is not None and self.monitor(progress.ctx, progress.trace)

    def history(self, trace: Trace) -> History:
        return History(
            trace.lower_bounds,
            trace.initial,
            self.n_annealed,
            self.units.n_observations,
            self.minibatches,
        )


def fit(
    progress: Progress,
    units: Units,
    settings: Settings,
    workers: Workers,
    monitor: Monitor | None = None,
    save: Callable[[Progress], None] | None = None,
    minibatches: bool | None = None,
) -> Progress:
    """Anneal to the end of the schedule, then run plain inference to convergence.

    Parameters
    ----------
    progress : Progress
        The start, or any later state of the same fit; it is carried on and returned.
    units : Units
        The training data.
    settings : Settings
    workers : Workers
    monitor : callable or None, default=None
        Called with the context and the trace after every pass; True stops the fit.
    save : callable or None, default=None
        Called with the progress between two passes, and after the last.
    minibatches : bool or None, default=None
        Whether passes are of minibatches; None: if they are smaller than the data.

    Returns
    -------
    progress : Progress
    """
    strategy = progress.strategy
    n_annealed = strategy.schedule_length()
    n_passes = n_annealed + (settings.max_iter if strategy.finish else 0)
    first_test = n_annealed + (_PASSES_BEFORE_TEST if n_annealed else 1)
    if minibatches is None:
        minibatches = settings.batch_size is not None and settings.batch_size < units.n_units
    run = _Run(units, settings, workers, monitor, n_annealed, n_passes, first_test, minibatches)
    one_pass = _minibatch_pass if minibatches else _batch_pass
    while not progress.finished:
        one_pass(progress, run)
        if save is not None:
            save(progress)
    return progress


def _batch_pass(progress: Progress, run: _Run) -> None:
    """A visit to all the data, the bound that it tells, and an update unless the fit ends."""
    ctx, trace, p = progress.ctx, progress.trace, progress.passes
    method = progress.strategy if p < run.n_annealed else PLAIN
    visited = visits.visit(ctx, method, run.units, run.workers, progress.local, progress.known)
    # The local step tells the bound of the λ that it saw, the result of the pass before.
    bound = _bound(ctx, method, visited.step, run, p, visited.visit.known)
    if p == 0:
        trace.initial = bound
    else:
        trace.lower_bounds.append(bound)
        trace.temperatures.append(progress.temperature)
        trace.stopped = run.stopped(progress)
    tested = p >= run.first_test
    settled = tested and run.settings.stop.settled(run.history(trace))
    if visited.local is not None and ctx.exploring:
        # From here on local variables are kept between visits and the bound cannot fall.
        ctx.exploring = not (settled or p >= run.n_annealed + run.settings.max_iter // 2)
        settled = False
    trace.converged = settled or (tested and run.settings.stop.converged(run.history(trace)))
    if p == run.n_passes or trace.converged or trace.stopped:
        trace.evaluated = method is not PLAIN or not visited.visit.tells_bound
        _end(progress, run, None if trace.evaluated else bound)
        return
    progress.temperature = visited.temperature
    progress.local = visited.local
    visited = update(
        ctx, method, run.units, visited, run.settings, run.workers, minibatch=False, passes=1.0
    )
    progress.known = visited.visit.known
    progress.passes += 1


def _minibatch_pass(progress: Progress, run: _Run) -> None:
    """A visit and an update for every minibatch, and the bound as they estimate it."""
    ctx, trace, p = progress.ctx, progress.trace, progress.passes
    if p == run.n_passes:
        _end(progress, run)
        return
    method = progress.strategy if p < run.n_annealed else PLAIN
    total = run.units.total_weight
    data, heat, warm = LocalStep({}, 0.0, 0.0), 0.0, 0.0
    for batch in run.units.batches(run.settings.batch_size or run.units.n_units, ctx.rng):
        weight = batch.total_weight
        share = weight / total
        if batch.n_observations == 0:
            # There is nothing to learn from, but a part of the pass is over.
            ctx.state = {**ctx.state, "passes": ctx.state["passes"] + share}
            continue
        ctx.scale = total / weight
        visited = visits.visit(ctx, method, batch, run.workers, keep=False)
        data.energy += visited.step.energy
        data.entropy += visited.step.entropy
        data.log_prior += visited.step.log_prior
        heat += weight * visited.temperature
        warm += weight
        update(ctx, method, batch, visited, run.settings, run.workers, minibatch=True, passes=share)
    ctx.scale = 1.0
    progress.passes += 1
    trace.lower_bounds.append(_bound(ctx, method, data, run, p + 1))
    trace.temperatures.append(heat / warm)
    trace.stopped = run.stopped(progress)
    stop = run.settings.stop
    if p >= run.n_annealed and stop.asks_for_bound(p + 1):
        trace.lower_bounds[-1] = lower_bound(ctx, run.units, run.workers)
    history = run.history(trace)
    tested = p + 1 >= run.first_test
    trace.converged = tested and (stop.settled(history) or stop.converged(history))
    if trace.converged or trace.stopped:
        _end(progress, run)


def _end(progress: Progress, run: _Run, bound: float | None = None) -> None:
    """The bound of the result, which is evaluated unless it is given."""
    trace = progress.trace
    trace.final = lower_bound(progress.ctx, run.units, run.workers) if bound is None else bound
    trace.lower_bounds[-1:] = [trace.final] if trace.lower_bounds else []
    if not progress.strategy.finish:
        trace.converged = not trace.stopped
    progress.local = progress.known = None
    progress.finished = True


def _bound(
    ctx: Context, method: Annealing, step: LocalStep, run: _Run, p: int, known: Any = None
) -> float:
    """The bound after pass p, from its data's side where the method lets it be read there."""
    if method.exact_bound:
        return step.bound - ctx.model.kl(ctx.q, ctx.prior, known)
    if p > 0 and p % method.evaluate_every == 0:
        return lower_bound(ctx, run.units, run.workers)
    return np.nan


def evaluate(ctx: Context, units: Units, workers: Workers) -> Visited:
    """The plain local step over data at ``ctx.q``, whatever it was found with."""
    ctx = replace(ctx, exploring=False)
    return visits.visit(ctx, PLAIN, units, workers, keep=False, evaluation=True)


def lower_bound(ctx: Context, units: Units, workers: Workers) -> float:
    """The complete evidence lower bound of ``ctx.q`` at T = 1, in nats."""
    visited = evaluate(ctx, units, workers)
    return visited.step.bound - ctx.model.kl(ctx.q, ctx.prior, visited.visit.known)


def rehearse(
    ctx: Context, units: Units, settings: Settings, method: Annealing, n_updates: int
) -> Natural:
    """What batch updates of a method would lead to, from ``units`` alone; ``ctx`` stays."""
    trial = replace(ctx, state={"updates": 0, "passes": 0.0}, rng=copy.deepcopy(ctx.rng))
    trial.state |= method.initial_state(trial)
    trial.scale = ctx.summary.weight / units.total_weight
    local = known = None
    for _ in range(n_updates):
        visited = visits.visit(trial, method, units, SEQUENTIAL, local, known)
        local = visited.local
        visited = update(
            trial, method, units, visited, settings, SEQUENTIAL, minibatch=False, passes=1.0
        )
        known = visited.visit.known
    return trial.q


def stream_length(strategy: Annealing) -> float:
    """What the clock of the schedule counts in one pass over a stream.

    A method without a finish has all of the stream for its passes.
    """
    share = _ANNEALED_SHARE if strategy.finish else 1.0
    return (strategy.schedule_length() / share) or 1.0


def stream(
    ctx: Context,
    strategy: Annealing,
    batch: Units,
    settings: Settings,
    workers: Workers,
    *,
    share: float | None,
) -> tuple[float, float]:
    """One update with one batch of a stream.

    The schedule is run within the first part of the stream, whatever number of passes it has, so
    that one pass over the data ends at T = 1 and has converged as far as one pass can.

    Parameters
    ----------
    ctx : Context
        Carried on to the end of the update.
    strategy : Annealing
    batch : Units
    settings : Settings
    workers : Workers
    share : float or None
        The share of the batch in the whole stream. None where its size is not known: the batch
        counts as a pass for methods without a finish, and there is no schedule for others.

    Returns
    -------
    lower_bound : float
        Of the parameters that the update found, as this batch estimates it; NaN where a method
        does not evaluate it.
    temperature : float

    Raises
    ------
    numpy.linalg.LinAlgError
        If the bound was evaluated and is not finite.
    """
    # The clock is that of the end of the batch, so that the last batch of a stream, however large
    # it is, meets a schedule that is over.
    passes = 1.0 if share is None else share * stream_length(strategy)
    ctx.state = {**ctx.state, "passes": ctx.state["passes"] + passes}
    method = strategy if strategy.is_annealing(ctx.state) else PLAIN
    visited = visits.visit(ctx, method, batch, workers)
    step = visited.step
    evaluated = method.exact_bound or ctx.state["updates"] % method.evaluate_every == 0
    if not evaluated:
        step = LocalStep({}, np.nan, np.nan)
    elif not method.exact_bound:
        step = visits.visit(ctx, PLAIN, batch, workers).step
    bound = ctx.scale * step.bound - ctx.model.kl(ctx.q, ctx.prior, visited.visit.known)
    if evaluated and not np.isfinite(bound):
        raise np.linalg.LinAlgError("a lower bound that is not finite")
    update(ctx, method, batch, visited, settings, workers, minibatch=True, passes=0.0)
    return bound, visited.temperature
