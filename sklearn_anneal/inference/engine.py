"""The loop of variational inference. It knows no model and no annealing method by name.

An update is ``λ̂ = λ₀ + (N/|S|) Σ_n w_n E_q[t(x_n, z_n)]`` and ``λ ← (1 − ρ) λ + ρ λ̂``, with a
hook of the annealing method at every place that a method may bend.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..families import Natural, Tempering, posterior
from ..models._base import Block, LocalStep
from .parallel import SEQUENTIAL, Workers
from .units import Units

PLAIN = Annealing()
_PASSES_BEFORE_TEST = 20
_WINDOW = 10
_UPDATES_BEFORE_LEARNING = 100


class Settings(NamedTuple):
    """How the loop runs.

    Attributes
    ----------
    max_iter : int
        Largest number of passes of the finish.
    tol : float
        Rise of the bound per observation and pass, nats, below which a fit has converged.
    batch_size : int or None
        Data points per update; None for all.
    learning_offset, learning_decay : float
        τ and κ of ρ_t = (τ + t)^(−κ).
    evaluate_every : int
        Passes of the finish between two evaluations of the perplexity; 0 for none.
    perplexity_tol : float
        Change of the perplexity between two evaluations below which a fit has converged.
    """

    max_iter: int
    tol: float
    batch_size: int | None
    learning_offset: float
    learning_decay: float
    evaluate_every: int = 0
    perplexity_tol: float = 0.0

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
    final : float
        The bound of the returned parameters.
    evaluated : bool
        Whether ``final`` is that of :func:`lower_bound`, and not of local variables that were kept.
    converged, stopped : bool
    """

    lower_bounds: list[float] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    final: float = -np.inf
    evaluated: bool = True
    converged: bool = False
    stopped: bool = False


Monitor = Callable[[Context, Trace], bool]


class Visit(NamedTuple):
    """A local step over a batch, with the factors and the draw that it saw.

    ``local`` has the local variables of each chunk, for a warm start of the next visit.
    """

    step: LocalStep
    t: Tempering
    draw: Any
    temperature: float
    local: list[Any]


def visit(
    ctx: Context,
    method: Annealing,
    batch: Units,
    workers: Workers,
    before: list[Any] | None = None,
    keep: bool = True,
    block: Block | None = None,
) -> Visit:
    """The local step over a batch, for a block (by default the first): the total of its chunks.

    ``before`` has the local variables of the last visit to the same batch, where there was one;
    ``keep`` says whether to return those of this one.
    """
    model, batch = ctx.model.visiting(block or ctx.model.blocks[0], batch)
    if model is not ctx.model:
        ctx = replace(ctx, model=model)
    if not model.local_variables:
        before = None
    expected, draw = method.expectations(ctx)
    t = method.temper(ctx, batch)
    expected = method.prepared(ctx, expected, t, workers)
    noise = method.weights(ctx, batch)

    # Made and added one after another: local variables and statistics of all chunks together can
    # be larger than the data.
    def tasks():
        for i, index in enumerate(batch.chunks()):
            units = batch.take(index)
            chunk_noise = None if noise is None else noise[batch.weight_units(index)]
            start = method.local_start(ctx, units, None if before is None else before[i])
            yield ctx, units, expected, t, chunk_noise, start

    local = []

    def parts():
        for part in workers.imap(method.local_step, tasks()):
            if keep:
                local.append(part.local)
            yield part

    step = method.completed(ctx, model.total(parts()), expected, t)
    if step.temperature is not None:
        temperature = step.temperature / batch.total_weight
    else:
        temperature = float(np.mean(1.0 / np.asarray(t.local)))
    return Visit(step, t, draw, temperature, local)


def update(
    ctx: Context,
    method: Annealing,
    batch: Units,
    seen: Visit,
    settings: Settings,
    workers: Workers,
    *,
    minibatch: bool,
    passes: float,
) -> None:
    """One update of all blocks of ``ctx.q`` in their order, given the local step of the first.

    ``passes`` is what the update adds to the clock of the schedules.
    """
    rate = settings.learning_rate(ctx.state["updates"])
    rho = rate if minibatch else method.batch_step(rate)
    ctx.q_start = ctx.q
    base = ctx.model.base(ctx.q)
    for i, block in enumerate(ctx.model.blocks):
        if block.refresh and i > 0:
            seen = visit(ctx, method, batch, workers, seen.local, block=block)
        ctx.report = seen.step

        stats = _of_block(ctx, block, seen.step.statistics)
        deviation = seen.step.deviation
        ctx.deviation = None if deviation is None else _of_block(ctx, block, deviation)
        prior = {key: ctx.prior[key] for key in block.keys}
        proposed = posterior(prior, stats, base, seen.t)
        proposed = method.target(ctx, proposed, stats, seen.draw)
        old = {key: ctx.q[key] for key in block.keys}
        ctx.q = {**ctx.q, **method.update(ctx, old, proposed, rho)}
    if _learns(ctx, method, minibatch):
        learned = ctx.model.learned(ctx.q, ctx.prior, seen.step, rho, ctx.scale)
        ctx.model, ctx.prior, ctx.q = learned
    state = method.advance(ctx, seen.step)
    ctx.state = {**state, "updates": state["updates"] + 1, "passes": state["passes"] + passes}
    # Parameters can be as large as the data: what is over is not kept until the next update.
    ctx.q_start, ctx.report, ctx.deviation = {}, None, None


def _of_block(ctx: Context, block: Any, raw: Natural) -> Natural:
    """The statistics of a block for all the data, from those of the batch."""
    if ctx.scale != 1.0:
        raw = {key: ctx.scale * value for key, value in raw.items()}
    return ctx.model.block_statistics(block, raw, ctx.q)


def _learns(ctx: Context, method: Annealing, minibatch: bool) -> bool:
    """Whether it is time for empirical Bayes.

    While components are still alike, it would decide for those that happen to be ahead.
    """
    if not method.finish:
        return method.progress(ctx.state) >= 0.5
    if method.is_annealing(ctx.state):
        return False
    if minibatch:
        return bool(ctx.state["updates"] >= _UPDATES_BEFORE_LEARNING)
    return not (ctx.exploring and ctx.model.local_variables)


def evaluate(ctx: Context, units: Units, workers: Workers) -> Visit:
    """The plain local step over data at ``ctx.q``, whatever it was found with."""
    ctx = replace(ctx, model=ctx.model.evaluator(), exploring=False)
    return visit(ctx, PLAIN, units, workers, keep=False)


def lower_bound(ctx: Context, units: Units, workers: Workers) -> float:
    """The complete evidence lower bound of ``ctx.q`` at T = 1, in nats."""
    return evaluate(ctx, units, workers).step.bound - ctx.model.kl(ctx.q, ctx.prior)


def rehearse(
    ctx: Context, units: Units, settings: Settings, method: Annealing, n_updates: int
) -> Natural:
    """What batch updates of a method would lead to, from ``units`` alone; ``ctx`` stays."""
    trial = replace(ctx, state={"updates": 0, "passes": 0.0}, rng=copy.deepcopy(ctx.rng))
    trial.state |= method.initial_state(trial)
    trial.scale = ctx.summary.weight / units.total_weight
    local = None
    for _ in range(n_updates):
        seen = visit(trial, method, units, SEQUENTIAL, local)
        update(trial, method, units, seen, settings, SEQUENTIAL, minibatch=False, passes=1.0)
        local = seen.local
    return trial.q


def fit(
    ctx: Context,
    strategy: Annealing,
    units: Units,
    settings: Settings,
    workers: Workers,
    monitor: Monitor | None = None,
) -> Trace:
    """Anneal to the end of the schedule, then run plain inference to convergence.

    Parameters
    ----------
    ctx : Context
        With the start in ``q``; on return, the result.
    strategy : Annealing
        Resolved and calibrated.
    units : Units
        The training data.
    settings : Settings
    workers : Workers
    monitor : callable or None, default=None
        Called with ``ctx`` and the trace after every pass; True stops the fit.

    Returns
    -------
    trace : Trace
    """
    small = settings.batch_size is not None and settings.batch_size < units.n_units
    trace = (_fit_minibatches if small else _fit_batch)(
        ctx, strategy, units, settings, workers, monitor
    )
    if not strategy.finish:
        trace.converged = not trace.stopped
    return trace


def _fit_batch(
    ctx: Context,
    strategy: Annealing,
    units: Units,
    settings: Settings,
    workers: Workers,
    monitor: Monitor | None,
) -> Trace:
    n_annealed, n_passes, first_test = _plan(strategy, settings)
    trace, bound, temperature = Trace(), -np.inf, 1.0
    local: list[Any] | None = None
    for p in range(n_passes + 1):
        method = strategy if p < n_annealed else PLAIN
        seen = visit(ctx, method, units, workers, local)
        # The local step tells the bound of the λ that it saw, the result of the pass before.
        previous, bound = bound, _bound(ctx, method, seen.step, units, workers, p)
        if p > 0:
            trace.lower_bounds.append(bound)
            trace.temperatures.append(temperature)
            trace.stopped = monitor is not None and monitor(ctx, trace)
        rise = abs(bound - previous) / units.n_observations
        settled = p >= first_test and rise < settings.tol
        if ctx.model.local_variables and ctx.exploring:
            # From here on local variables are kept between visits and the bound cannot fall.
            ctx.exploring = not (settled or p >= n_annealed + settings.max_iter // 2)
            settled = False
        trace.converged = settled or _evaluated(trace.lower_bounds, p, first_test, settings, units)
        if p == n_passes or trace.converged or trace.stopped:
            break
        temperature = seen.temperature
        update(ctx, method, units, seen, settings, workers, minibatch=False, passes=1.0)
        local = seen.local
        del seen
    trace.evaluated = method is not PLAIN or ctx.model.evaluator() is not ctx.model
    trace.final = lower_bound(ctx, units, workers) if trace.evaluated else bound
    trace.lower_bounds[-1:] = [trace.final] if trace.lower_bounds else []
    return trace


def _fit_minibatches(
    ctx: Context,
    strategy: Annealing,
    units: Units,
    settings: Settings,
    workers: Workers,
    monitor: Monitor | None,
) -> Trace:
    n_annealed, n_passes, first_test = _plan(strategy, settings)
    trace, total = Trace(), units.total_weight
    size = settings.batch_size or units.n_units
    for p in range(n_passes):
        method = strategy if p < n_annealed else PLAIN
        data = LocalStep({}, 0.0, 0.0)
        heat = warm = 0.0
        for batch in units.batches(size, ctx.rng):
            weight = batch.total_weight
            share = weight / total
            if batch.n_observations == 0:
                # Nothing to learn from, but a part of the pass.
                ctx.state = {**ctx.state, "passes": ctx.state["passes"] + share}
                continue
            ctx.scale = total / weight
            seen = visit(ctx, method, batch, workers)
            data.energy += seen.step.energy
            data.entropy += seen.step.entropy
            data.log_prior += seen.step.log_prior
            heat += weight * seen.temperature
            warm += weight
            update(ctx, method, batch, seen, settings, workers, minibatch=True, passes=share)
        ctx.scale = 1.0
        trace.lower_bounds.append(_bound(ctx, method, data, units, workers, p + 1))
        trace.temperatures.append(heat / warm)
        trace.stopped = monitor is not None and monitor(ctx, trace)
        if p >= n_annealed and settings.evaluate_every > 0:
            if (p + 1) % settings.evaluate_every == 0:
                trace.lower_bounds[-1] = lower_bound(ctx, units, workers)
        trace.converged = (
            p + 1 >= first_test
            and _settled(trace.lower_bounds[n_annealed:], settings.tol * units.n_observations)
        ) or _evaluated(trace.lower_bounds, p + 1, first_test, settings, units)
        if trace.converged or trace.stopped:
            break
    trace.final = lower_bound(ctx, units, workers)
    trace.lower_bounds[-1:] = [trace.final] if trace.lower_bounds else []
    return trace


def _plan(strategy: Annealing, settings: Settings) -> tuple[int, int, int]:
    """Passes of the schedule, passes in all, and the first after which to test convergence."""
    n_annealed = strategy.schedule_length()
    n_passes = n_annealed + (settings.max_iter if strategy.finish else 0)
    return n_annealed, n_passes, n_annealed + (_PASSES_BEFORE_TEST if n_annealed else 1)


def _bound(
    ctx: Context, method: Annealing, step: LocalStep, units: Units, workers: Workers, p: int
) -> float:
    """The bound after pass p, from its data's side where the method lets it be read there."""
    if method.exact_bound:
        return step.bound - ctx.model.kl(ctx.q, ctx.prior)
    if p > 0 and p % method.evaluate_every == 0:
        return lower_bound(ctx, units, workers)
    return np.nan


def _evaluated(
    bounds: list[float], p: int, first_test: int, settings: Settings, units: Units
) -> bool:
    """Whether the perplexity has hardly changed since the evaluation before this one."""
    every = settings.evaluate_every
    if every <= 0 or p % every or p < first_test or len(bounds) <= every:
        return False
    with np.errstate(over="ignore"):
        old, new = np.exp(-np.array([bounds[-1 - every], bounds[-1]]) / units.n_observations)
    return bool(abs(new - old) < settings.perplexity_tol)


def _settled(bounds: list[float], tolerance: float) -> bool:
    """Whether the best of the last passes is hardly above the best of those before them."""
    if len(bounds) < 2 * _WINDOW:
        return False
    recent, before = bounds[-_WINDOW:], bounds[-2 * _WINDOW : -_WINDOW]
    # Estimates fall as well as rise; a tolerance of 0 asks for all passes.
    return 0 < tolerance and max(recent) - max(before) < tolerance


def stream(
    ctx: Context,
    strategy: Annealing,
    batch: Units,
    settings: Settings,
    workers: Workers,
    *,
    passes: float,
) -> tuple[float, float]:
    """One update with one batch of a stream.

    Returns
    -------
    lower_bound : float
        Of the parameters that the update found, as this batch estimates it; NaN where a method
        does not evaluate it.
    temperature : float
    """
    method = strategy if strategy.is_annealing(ctx.state) else PLAIN
    seen = visit(ctx, method, batch, workers)
    step = seen.step
    if not method.exact_bound and ctx.state["updates"] % method.evaluate_every == 0:
        step = visit(ctx, PLAIN, batch, workers).step
    elif not method.exact_bound:
        step = LocalStep({}, np.nan, np.nan)
    bound = ctx.scale * step.bound - ctx.model.kl(ctx.q, ctx.prior)
    update(ctx, method, batch, seen, settings, workers, minibatch=True, passes=passes)
    return bound, seen.temperature
