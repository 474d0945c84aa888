"""The loop of variational inference. It depends on no model and no annealing method.

In batch mode a pass is one visit to all the data and one update. In minibatches it is one visit
and one update for each minibatch. Between two passes, a :class:`Progress` has everything that the
next pass needs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..families import Natural, settled
from ..models._base import Known, LocalStep
from ..parallel.workers import SEQUENTIAL, Workers
from . import gradient, visits
from .minibatches import UPDATES, Minibatches
from .progress import Momentum, Progress, Settings, Trace
from .stopping import History
from .visits import PLAIN, lower_bound

Monitor = Callable[[Context, Trace], bool]

# A pass to which a model has added others counts as so many more for each of them, when a rule
# looks at the rise of the bound. They learn no priors, and the last ones raise it the least.
_SHARE_OF_FURTHER = 0.25
# A pass that explores is followed by so many, if the model asks for them, or by so many in a fit
# that may pause, which explores briefly.
EXPLORING_PASSES, BRIEF_EXPLORING_PASSES = 5, 2


class _Run(NamedTuple):
    """The arguments and the lengths of a fit, which are the same in all its passes."""

    units: Units
    settings: Settings
    workers: Workers
    monitor: Monitor | None
    n_annealed: int
    n_passes: int
    first_test: int
    minibatches: bool

    def pauses(self, history: History) -> bool:
        """Return whether a fit that has not converged pauses."""
        factor = self.settings.pause_factor * history.factor
        return self.settings.stop.settled(history._replace(factor=factor))

    def history(self, trace: Trace, further: bool = False, factor: float = 1.0) -> History:
        return History(
            trace.lower_bounds,
            trace.initial,
            self.n_annealed,
            self.units.n_observations,
            self.minibatches,
            trace.validation,
            further,
            factor,
        )


def fit(
    progress: Progress,
    units: Units,
    settings: Settings,
    workers: Workers,
    monitor: Monitor | None = None,
    save: Callable[[Progress], None] | None = None,
    minibatches: bool | None = None,
    until: int | None = None,
) -> Progress:
    """Anneal to the end of the schedule, then run plain inference to convergence.

    Parameters
    ----------
    progress : Progress
        The start, or any later state of the same fit. It is changed in place and returned.
    units : Units
        The training data.
    settings : Settings
    workers : Workers
    monitor : callable or None, default=None
        Called with the context and the trace after every pass. If it returns True, the fit stops.
    save : callable or None, default=None
        Called with the progress after every pass.
    minibatches : bool or None, default=None
        Whether passes are cut into minibatches. None: only if the batch size is smaller than the
        data.
    until : int or None, default=None
        The number of passes after which to pause, if the fit has not ended by then; None does not
        pause. A fit that was paused goes on with the next call.

    Returns
    -------
    progress : Progress
        The state at the end of the fit, or at the pause.
    """
    strategy, trace = progress.strategy, progress.trace
    n_annealed = strategy.schedule_length()
    n_passes = n_annealed + (settings.max_iter if strategy.finish else 0)
    first_test = n_annealed + (settings.passes_before_test if n_annealed else 1)
    if minibatches is None:
        minibatches = settings.batch_size is not None and settings.batch_size < units.n_units
    if minibatches:
        strategy.check_minibatches()
    run = _Run(units, settings, workers, monitor, n_annealed, n_passes, first_test, minibatches)
    gives_bound = strategy.exact_bound or strategy.finish
    batch_pass = _batch_pass if gives_bound else _batch_pass_without_bound
    one_pass = _minibatch_pass if minibatches else batch_pass
    if "optimizer" in progress.ctx.state and not progress.finished:
        gradient.resume(progress.ctx)
    while not (progress.finished or progress.paused):
        if until is not None and progress.passes >= until:
            break
        over = one_pass(progress, run)
        if over:
            _end(progress, run)
            if trace.evaluated:
                trace.final = lower_bound(progress.ctx, units, workers)
            trace.lower_bounds[-1:] = [trace.final] if trace.lower_bounds else []
            progress.finished = True
        if save is not None:
            save(progress)
    return progress


def _batch_pass(progress: Progress, run: _Run) -> bool:
    """Visit all the data, record the bound that this yields, and update unless the fit is over."""
    ctx, trace, p = progress.ctx, progress.trace, progress.passes
    method = progress.strategy if p < run.n_annealed else PLAIN
    momentum, exploring = progress.momentum, ctx.exploring
    try:
        visited = visits.visit(ctx, method, run.units, run.workers, progress.local, progress.known)
        # The local step yields the bound of the λ that it was given, the result of the pass before.
        bound = _bound(progress, method, visited.step, run, p, visited.visit.known)
    except np.linalg.LinAlgError:
        if momentum.plain is None:
            raise
        bound = np.nan
    if momentum.plain is not None and not momentum.bound <= bound < np.inf:
        momentum.undo(ctx)
        progress.undone += 1
        visited = visits.visit(ctx, method, run.units, run.workers)
        bound = _bound(progress, method, visited.step, run, p, visited.visit.known)
    if progress.shorter is not None and not trace.last <= bound < np.inf:
        progress.take_back()
        visited = visits.visit(ctx, method, run.units, run.workers, progress.local)
        bound = _bound(progress, method, visited.step, run, p, visited.visit.known)
    if p == 0:
        trace.initial = bound
    else:
        _record(progress, run, bound, progress.temperature, visited.step)
    tested = p + progress.n_explored >= run.first_test
    explores = visited.explores and ctx.exploring
    factor = 1.0 + _SHARE_OF_FURTHER * progress.n_further
    if explores:
        # Passes that explore and are followed by others rise by as much as these together. A fit
        # that may pause goes on sooner, because that raises its bound further in the same time.
        factor = ctx.model.exploring_factor * (1.0 + progress.n_further) * run.settings.pause_factor
    history = run.history(trace, momentum.plain is not None, factor)
    settled = tested and run.settings.stop.settled(history)
    # Others follow the pass that ends exploration if the bound hardly rises, so that the next one
    # does not learn priors from parameters that it has hardly changed.
    goes_further = settled or not explores
    if explores:
        # Once this is False, local variables continue from visit to visit, so that the bound
        # cannot fall, and hyperparameters are learned.
        ctx.exploring = not (settled or p >= run.n_annealed + run.settings.max_iter // 2)
        settled = False
    elif run.settings.pause_factor > 1.0 and tested and not (settled or trace.stopped):
        if run.pauses(history):
            progress.pause(visited, bound)
            return False
    trace.converged = settled or (tested and run.settings.stop.converged(history))
    if p == run.n_passes or trace.converged or trace.stopped:
        is_final = method is PLAIN and visited.visit.gives_bound and progress.as_returned() is ctx
        trace.evaluated, trace.final = not is_final, bound
        return True
    progress.temperature = visited.temperature
    if method is PLAIN and ctx.model.accelerates and run.settings.momentum:
        # The last update is a plain one, and so is the first in which all priors are learned. About
        # the share s of a rise is due to momentum.
        rise = (1.0 - momentum.share) * (bound - momentum.bound)
        wanted = run.settings.stop.worthwhile(rise, run.units.n_observations)
        wanted = wanted and p + 1 < run.n_passes and ctx.exploring == exploring
        ctx.extend = partial(momentum.extend, bound=bound, wanted=wanted)
    given, may_explore, update = [visited], visited.explores, UPDATES[ctx.model.update_rule]
    # The update alone holds the visit then, and releases it once it is used: what the visit has
    # found can be larger than the data. Arguments that are unpacked from a tuple would stay in it.
    del visited
    last = update(
        ctx, method, run.units, given.pop(), run.settings, run.workers, minibatch=False, passes=1.0
    )
    progress.advance(run.workers, last)
    progress.n_further = 0
    if method is PLAIN and may_explore and (goes_further or ctx.exploring):
        n_exploring = EXPLORING_PASSES if run.settings.pause_factor == 1 else BRIEF_EXPLORING_PASSES
        n_left = progress.go_further(run.units, n_exploring if ctx.exploring else 0)
        if n_left:
            _explore_further(progress, run, n_left)
    return False


def _explore_further(progress: Progress, run: _Run, n_passes: int) -> None:
    """Make passes that explore beside the ones that are counted, without looking at their bounds.

    Where one call of the model makes them all, they take less time than here.
    """
    ctx = progress.ctx
    state = ctx.state
    for _ in range(n_passes):
        visited = visits.visit(ctx, PLAIN, run.units, run.workers, progress.local, progress.known)
        how = ctx, PLAIN, run.units, visited, run.settings, run.workers
        last = UPDATES[ctx.model.update_rule](*how, minibatch=False, passes=0.0)
        progress.local, progress.known = last.local, last.visit.known
    ctx.state = state


def _batch_pass_without_bound(progress: Progress, run: _Run) -> bool:
    """Visit all the data and update, for a method whose visits do not yield the bound.

    The pass is then reported without waiting for the next visit.
    """
    p = progress.passes
    if p == run.n_passes:
        return True
    ctx, method = progress.ctx, progress.strategy
    visited = visits.visit(
        *(ctx, method, run.units, run.workers, progress.local, progress.known),
        bound=method.exact_bound,
    )
    last = UPDATES[ctx.model.update_rule](
        ctx, method, run.units, visited, run.settings, run.workers, minibatch=False, passes=1.0
    )
    progress.advance(run.workers, last)
    bound = _bound(progress, method, visited.step, run, p + 1)
    _record(progress, run, bound, visited.temperature, visited.step)
    progress.trace.converged = progress.mean_is_settled(run.units.n_observations)
    return progress.trace.converged or progress.trace.stopped


def _record(
    progress: Progress, run: _Run, bound: float, temperature: float, step: LocalStep
) -> None:
    """Note the history of a pass, with the bound of other data, and report it to the monitor.

    Where the bound is an estimate, its standard error is noted as well.
    """
    trace, held_out = progress.trace, run.settings.validation
    trace.lower_bounds.append(bound)
    trace.temperatures.append(temperature)
    if step.squares is not None:
        weight, mean = run.units.total_weight, step.bound / run.units.total_weight
        variance = max(step.squares / weight - mean * mean, 0.0)
        trace.standard_errors.append(float(np.sqrt(weight * variance)))
    if held_out is not None:
        returned = progress.as_returned()
        seen = visits.visit(*(returned, PLAIN, held_out, run.workers), keep=False, evaluation=True)
        trace.validation.append(seen.step.bound / held_out.total_weight)
        after = trace.validation[run.n_annealed :]
        if after and after[-1] == max(after):
            progress.best = returned.q
    if run.monitor is not None:
        trace.stopped = run.monitor(progress.as_returned(), trace)


def _minibatch_pass(progress: Progress, run: _Run) -> bool:
    """Visit and update for every minibatch, and record the bound that the visits estimate."""
    ctx, trace, p = progress.ctx, progress.trace, progress.passes
    if p == run.n_passes:
        return True
    method = progress.strategy if p < run.n_annealed else PLAIN
    minibatches = Minibatches(ctx, method, run.units.total_weight, run.settings)
    data, heat, warm = LocalStep({}, 0.0, 0.0, squares=0.0), 0.0, 0.0
    for visit_part in run.units.in_turn(ctx.rng, run.workers):
        seen = visit_part(minibatches)
        if seen.ctx is not ctx:
            # The part is in another process, which has changed a copy.
            vars(ctx).update(vars(seen.ctx))
        data, heat, warm = data + seen.data, heat + seen.heat, warm + seen.weight
    ctx.scale, ctx.q = 1.0, settled(ctx.q)
    progress.advance(run.workers)
    _record(progress, run, _bound(progress, method, data, run, p + 1), heat / warm, data)
    stop = run.settings.stop
    if p >= run.n_annealed and stop.asks_for_bound(p + 1):
        trace.lower_bounds[-1] = lower_bound(progress.as_returned(), run.units, run.workers)
    history = run.history(trace)
    tested = p + 1 >= run.first_test
    trace.converged = tested and (stop.settled(history) or stop.converged(history))
    return trace.converged or trace.stopped


def _end(progress: Progress, run: _Run) -> None:
    """Say why the fit ends, set the parameters that it returns, and release what passes need."""
    trace = progress.trace
    if trace.stopped:
        trace.reason = "a callback asked to stop"
    elif trace.converged and not progress.strategy.finish:
        tol = progress.strategy.tol_of_mean
        trace.reason = f"its mean over passes changes by less than tol={tol:g} per observation"
    elif trace.converged:
        trace.reason = run.settings.stop.reason(run.history(trace))
    elif not progress.strategy.finish:
        trace.reason = "its passes are over"
    else:
        trace.reason = f"max_iter={run.settings.max_iter} passes at T = 1 are over"
    found = progress.as_returned()
    if progress.best is not None:
        found, trace.evaluated = gradient.returned(progress.ctx, progress.best), True
    progress.ctx.q, progress.ctx.state = found.q, found.state
    if not progress.strategy.finish:
        trace.converged = not trace.stopped
    progress.local = progress.known = progress.best = progress.shorter = None
    progress.momentum_of_further = None
    progress.mean = progress.prior_of_mean = progress.earlier = None
    progress.momentum = Momentum()


def _bound(
    progress: Progress,
    method: Annealing,
    step: LocalStep,
    run: _Run,
    p: int,
    known: Known | None = None,
) -> float:
    """The bound after pass p, of its local step or of an evaluation; NaN if that is not due."""
    ctx = progress.ctx
    # Visits see the last parameters, and not a mean.
    if not method.exact_bound or progress.mean is not None:
        # That of the result is evaluated when the fit ends.
        if p == 0 or p >= run.n_passes or p % method.evaluate_every:
            return np.nan
        ctx = progress.as_returned()
        seen = visits.visit(ctx, PLAIN, run.units, run.workers, keep=False, evaluation=True)
        step, known = seen.step, seen.visit.known
    return step.bound - ctx.model.kl(ctx.q, ctx.prior, known, run.workers)


def rehearse(
    ctx: Context, units: Units, settings: Settings, method: Annealing, n_updates: int
) -> Natural:
    """The parameters after batch updates of a method with ``units``; ``ctx`` is unchanged."""
    trial = replace(ctx, state={"updates": 0, "passes": 0.0}, rng=copy.deepcopy(ctx.rng))
    trial.state |= method.initial_state(trial)
    trial.scale = ctx.summary.weight / units.total_weight
    local = known = None
    for _ in range(n_updates):
        visited = visits.visit(trial, method, units, SEQUENTIAL, local, known)
        visited = UPDATES[trial.model.update_rule](
            trial, method, units, visited, settings, SEQUENTIAL, minibatch=False, passes=1.0
        )
        local, known = visited.local, visited.visit.known
    return trial.q
