"""Restarts and reheats: how a fit searches for a better optimum than the first one it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..families import Natural
from ..models._base import Model
from . import engine
from .callbacks import FitMonitor
from .checkpoint import Checkpoint
from .engine import Progress, Settings, Trace
from .parallel import (
    SEQUENTIAL,
    Workers,
    generator,
    legacy_generator,
    seed_sequence,
)
from .stopping import OutOfReach, Rule
from .thread_limits import one_openmp_thread
from .units import Units

# Methods are calibrated on no more than this many data points.
ROWS_FOR_CALIBRATION = 10_000
# With minibatches, starts are computed from a sample of this size, or of ten batches; with data in
# parts from one of this size.
ROWS_FOR_STARTS = 20_000
# The passes at T = 1 of the first round of a race, and the number of restarts that reach its last.
PASSES_OF_FIRST_ROUND = 10
_LAST_ROUND = 3


class Problem(NamedTuple):
    """Everything that the restarts of a fit share.

    Starts are computed from ``sample``, which is ``units`` or a part of them.
    """

    model: Model
    strategy: Annealing
    prior: Natural
    summary: Any
    units: Units
    sample: Units
    settings: Settings
    seed: np.random.SeedSequence

    @property
    def in_minibatches(self) -> bool:
        """Whether passes are cut into minibatches."""
        size = self.settings.batch_size
        return size is not None and size < self.units.n_units

    def open(self, index: int, start: Natural | None) -> Progress:
        """Return the progress of a restart before its first pass.

        The restart begins at ``start``; None draws a start. The method is calibrated to it.
        """
        rng = generator(self.seed, index, 0)
        ctx = Context(self.model, self.prior, self.summary, rng, q={})
        if not self.strategy.needs_start:
            ctx.q = self.strategy.initial_natural(ctx)
        elif start is not None:
            ctx.q = start
        else:
            random_state = legacy_generator(self.seed, index, 1)
            # OpenMP's number of threads is a setting of each thread, which workers do not take
            # over from the thread that calls `fit`. It is therefore limited here again.
            with one_openmp_thread():
                ctx.q = self.model.init(self.sample, self.summary, self.prior, random_state)
        strategy = self.strategy
        if strategy.calibrates:
            sample = self.sample.spread(ROWS_FOR_CALIBRATION)
            rehearse = partial(engine.rehearse, ctx, sample, self.settings)
            strategy = strategy.calibrate(ctx, sample, rehearse)
        ctx.state |= strategy.initial_state(ctx)
        return Progress(ctx, strategy)

    def reheat(self, found: Search, strategy: Annealing) -> Progress:
        """Return the progress of a reheat of the best fit so far, before its first pass."""
        number = len(found.reheat_lower_bounds)
        ctx = replace(
            found.kept.ctx,
            rng=generator(self.seed, found.best_restart, 2 + number),
            state={"updates": 0, "passes": 0.0},
            exploring=True,
        )
        ctx.state |= strategy.initial_state(ctx)
        return Progress(ctx, strategy)


class Plan(NamedTuple):
    """How a fit searches for the best optimum.

    Attributes
    ----------
    n_init : int
        Number of restarts.
    race : bool
        Whether only the best restart runs to its end.
    n_reheats : int
        Largest number of reheats.
    n_without_schedule : int
        Largest number of reheats if the method turns out to have no annealed phase, because it is
        calibrated to an initial temperature of 1. Without reheats the fit would be plain inference.
    methods : tuple of Annealing
        The annealing methods of the reheats, which take turns.
    patience : int
        Number of reheats in a row without a worthwhile rise of the bound after which there are no
        more.
    """

    n_init: int = 1
    race: bool = False
    n_reheats: int = 0
    n_without_schedule: int = 0
    methods: tuple[Annealing, ...] = ()
    patience: int = 1

    def reheats_after(self, strategy: Annealing) -> int:
        """Return the largest number of reheats, given the method as it was calibrated."""
        scheduled = strategy.schedule_length() > 0
        return self.n_reheats if scheduled else max(self.n_reheats, self.n_without_schedule)


def prepare(
    model: Model,
    strategy: Annealing,
    units: Units,
    settings: Settings,
    random_state: np.random.RandomState,
    stream_weight: float | None = None,
) -> tuple[Problem, Natural | None]:
    """Prepare a fit, or a stream given its first batch, up to the loop of inference.

    Parameters
    ----------
    model : Model
        The model with the hyperparameters of the estimator.
    strategy : Annealing
        The annealing method, without any ``"auto"`` parameter that depends on the model.
    units : Units
        The training data, or the first batch.
    settings : Settings
    random_state : numpy.random.RandomState
        The source of all random numbers. The first start draws from it as scikit-learn's class
        does, so that both start alike. Then one number is drawn, which is the seed of everything
        else.
    stream_weight : float or None, default=None
        For a stream, the total weight of all the data that it will have; None for a fit.

    Returns
    -------
    problem : Problem
    start : dict of ndarray or None
        Natural parameters at which the first restart begins; None for methods that choose their
        own start.
    """
    size = settings.batch_size
    batch = stream_weight is None and (size is None or size >= units.n_units)
    # Parameters of single data points stay with data in parts, as local variables.
    batch = batch and not units.in_parts
    summary = units.summary(model)
    model = model.resolved(summary, hold_units=batch and strategy.holds_units)
    prior = model.prior(summary)
    if stream_weight is not None:
        summary = replace(summary, weight=stream_weight)
    units = units.centered(summary)
    largest = None
    if stream_weight is None and size is not None:
        largest = max(ROWS_FOR_STARTS, 10 * size)
    sample = units.sample(largest, random_state)
    start = model.init(sample, summary, prior, random_state) if strategy.needs_start else None
    seed = seed_sequence(random_state)
    return Problem(model, strategy, prior, summary, units, sample, settings, seed), start


def search(
    problem: Problem,
    drawn: list[Natural],
    plan: Plan,
    workers: Callable[[bool], Workers],
    monitor: FitMonitor | None,
    checkpoint: Checkpoint | None = None,
) -> Search:
    """Run the restarts of a fit, and then the reheats of the best of them.

    Parameters
    ----------
    problem : Problem
    drawn : list of dict
        The start of the first restart. The list is emptied, so that the memory of the start can be
        released. It is empty already for methods that choose their own start.
    plan : Plan
    workers : callable
        Returns the workers for whole restarts if it is called with True, and those for the chunks
        of a pass if it is called with False.
    monitor : FitMonitor or None
    checkpoint : Checkpoint or None, default=None
        Where the state is saved after every pass, and from where it is resumed.

    Returns
    -------
    search : Search

    Raises
    ------
    numpy.linalg.LinAlgError
        If the bound or the parameters of the best restart are not finite.
    """
    several = plan.n_init > 1 and not problem.units.in_parts
    course = _Course(problem, monitor, checkpoint)
    with workers(several) as pool:
        found = (_raced if plan.race else _completed)(course, drawn, plan.n_init, pool)
        result = Search.of(found)
        if not several:
            return _reheated(course, result, plan, pool)
    if plan.reheats_after(result.strategy) == 0:
        return result
    with workers(False) as pool:
        return _reheated(course, result, plan, pool)


@dataclass
class Search:
    """The restarts and the reheats of a fit, and the best that they have found.

    Attributes
    ----------
    kept : Progress
        The fit with the highest bound.
    strategy : Annealing
        The method of the restart from which it comes, as that restart resolved it.
    restart_lower_bounds : ndarray of shape (n_init,)
        The bound that each restart reached, nats; NaN for one that a callback prevented.
    best_restart : int
        Index of the restart from which ``kept`` comes.
    n_passes : int
        Number of passes of all restarts and reheats together.
    reheat_lower_bounds : list of float
        The bound that each reheat reached, nats.
    in_vain : int
        Number of reheats since the last one that was worthwhile.
    trial : Progress or None
        The reheat that is running.
    """

    kept: Progress
    strategy: Annealing
    restart_lower_bounds: np.ndarray
    best_restart: int
    n_passes: int
    reheat_lower_bounds: list[float] = field(default_factory=list)
    in_vain: int = 0
    trial: Progress | None = None

    @classmethod
    def of(cls, found: list[Progress | None]) -> Search:
        """Return the state after the restarts; None stands for one that a callback prevented."""
        bounds = np.array([np.nan if p is None else _reached(p.trace) for p in found])
        finished = [p is not None and p.finished for p in found]
        best = int(np.argmax(np.where(finished & np.isfinite(bounds), bounds, -np.inf)))
        kept = found[best]
        if kept is None or not np.isfinite(bounds[best]) or not finite(kept.ctx.q):
            raise np.linalg.LinAlgError("results that are not finite")
        n_passes = sum(p.passes for p in found if p is not None)
        return cls(kept, kept.strategy, bounds, best, n_passes)

    def judge(self, stop: Rule, n_observations: float) -> None:
        """Keep the reheat that has ended if its bound is higher, and throw it away otherwise."""
        trial, before = self.trial, self.kept.trace
        assert trial is not None
        after = trial.trace
        self.trial = None
        self.n_passes += trial.passes
        self.reheat_lower_bounds.append(after.final)
        rise = after.final - before.final
        self.in_vain = 0 if stop.worthwhile(rise, n_observations) else self.in_vain + 1
        if 0 < rise < np.inf and finite(trial.ctx.q):
            after.lower_bounds[:0] = before.lower_bounds
            after.temperatures[:0] = before.temperatures
            after.initial = before.initial
            self.kept = trial


class _Course(NamedTuple):
    """What all restarts and reheats of a fit share, in the process that runs them."""

    problem: Problem
    monitor: FitMonitor | None
    checkpoint: Checkpoint | None

    def stopped(self) -> bool:
        """Return whether a callback has asked to stop."""
        return self.monitor is not None and self.monitor.stopped

    def run(
        self,
        indices: list[int],
        found: list[Progress | None],
        drawn: list[Natural],
        n_passes: int | None,
        workers: Workers,
    ) -> None:
        """Run restarts for a number of passes after their schedules, or to their ends if None."""
        problem, single = self.problem, len(found) == 1
        outer: Any = workers
        inner, outer = (workers, SEQUENTIAL) if single else (SEQUENTIAL, workers)
        if problem.units.in_parts:
            inner, outer = workers, SEQUENTIAL
            if len(indices) > 1 and not problem.in_minibatches:
                # Every pass reads the data once, for all restarts together.
                units, outer = problem.units.together(len(indices))
                problem = problem._replace(units=units)
        rest = (n_passes, inner, self.monitor, self.checkpoint)
        tasks = [(i, found[i], drawn if i == 0 else [], *rest) for i in indices]
        for i, progress in zip(indices, outer.map(restart, tasks, common=(problem,)), strict=True):
            found[i] = progress

    def end(self, indices: list[int], found: list[Progress | None]) -> None:
        """Report the end of restarts that will not go on after a pause."""
        for i in indices:
            progress = found[i]
            if self.monitor is not None and progress is not None and not progress.finished:
                self.monitor.end_restart(i, progress)


def _completed(
    course: _Course, drawn: list[Natural], n_init: int, workers: Workers
) -> list[Progress | None]:
    """Run all restarts to their ends."""
    found: list[Progress | None] = [None] * n_init
    course.run(list(range(n_init)), found, drawn, None, workers)
    return found


def _raced(
    course: _Course, drawn: list[Natural], n_init: int, workers: Workers
) -> list[Progress | None]:
    """Run all restarts for a few passes, the better ones for more, and the best one to its end.

    This is successive halving (Jamieson and Talwalkar, 2016). The schedule of annealing does not
    count: bounds are compared only after all restarts have reached T = 1.
    """
    found: list[Progress | None] = [None] * n_init
    racing, n_passes = list(range(n_init)), PASSES_OF_FIRST_ROUND
    while len(racing) > 1 and not course.stopped():
        if course.monitor is not None:
            names = ", ".join(map(str, racing))
            course.monitor.say(f"race: pass {n_passes} after the schedule for restarts {names}")
        course.run(racing, found, drawn, n_passes, workers)
        standings = {i: _standing(found[i], n_passes) for i in racing}
        ranked = sorted(racing, key=lambda i: (-standings[i], i))
        n_left = 1 if len(ranked) <= _LAST_ROUND else -(-len(ranked) // 2)
        course.end(ranked if course.stopped() else ranked[n_left:], found)
        racing, n_passes = sorted(ranked[:n_left]), 2 * n_passes
    if not course.stopped():
        course.run(racing, found, drawn, None, workers)
    return found


def _standing(progress: Progress | None, n_passes: int) -> float:
    """The bound with which a restart ends a round of the race."""
    if progress is None:
        return -np.inf
    # In batch mode most methods tell the bound of a pass only after the next one. A restart that
    # was resumed from a checkpoint may be further than this round.
    n = progress.strategy.schedule_length() + n_passes - 1
    bounds = [bound for bound in progress.trace.lower_bounds[:n] if np.isfinite(bound)]
    return bounds[-1] if bounds else -np.inf


def _reached(trace: Trace) -> float:
    """The final bound of a restart, or the last one that it reached before the race was over."""
    if np.isfinite(trace.final) or not trace.lower_bounds:
        return trace.final
    return next((b for b in reversed(trace.lower_bounds) if np.isfinite(b)), trace.final)


def restart(
    problem: Problem,
    index: int,
    progress: Progress | None,
    starts: list[Natural],
    n_passes: int | None,
    workers: Workers,
    monitor: FitMonitor | None,
    checkpoint: Checkpoint | None = None,
) -> Progress | None:
    """Begin a restart or go on with it; return its state if a callback has asked to stop.

    If ``starts`` is not empty, its last entry is the start of this restart. It is removed from the
    list, so that its memory can be released while the restart runs. With ``n_passes``, the restart
    pauses this number of passes after its schedule. With a ``checkpoint``, the restart is resumed
    from its stored progress, if there is any.
    """
    if monitor is not None and monitor.stopped:
        return progress
    name = f"restart-{index}"
    if progress is None:
        start = starts.pop() if starts else None
        progress = None if checkpoint is None else checkpoint.load(name)
        if progress is None:
            progress = problem.open(index, start)
        del start
    n_annealed = progress.strategy.schedule_length()
    save = None if checkpoint is None else partial(checkpoint.save, name)
    after_pass = None
    if monitor is not None:
        finish = problem.settings.max_iter if progress.strategy.finish else 0
        note = progress.strategy.note() if progress.passes == 0 else None
        after_pass = monitor.begin_restart(index, n_annealed, finish, note)
    until = None if n_passes is None else n_annealed + n_passes
    ended = progress.finished
    engine.fit(progress, problem.units, problem.settings, workers, after_pass, save, until=until)
    if monitor is not None and progress.finished and not ended:
        monitor.end_restart(index, progress)
    return progress


def _reheated(course: _Course, found: Search, plan: Plan, workers: Workers) -> Search:
    """Reheat the best restart until the plan is fulfilled, or several reheats were in vain."""
    problem, monitor, checkpoint = course
    n_reheats = plan.reheats_after(found.strategy)
    if n_reheats == 0:
        return found
    stored = None if checkpoint is None else checkpoint.load("reheats")
    result: Search = found if stored is None else stored
    settings, stop = problem.settings._replace(passes_before_test=3), problem.settings.stop
    save = None
    if checkpoint is not None:

        def save(_: Progress) -> None:
            checkpoint.save("reheats", result)

    while (
        len(result.reheat_lower_bounds) < n_reheats
        and result.in_vain < plan.patience
        and not course.stopped()
    ):
        number = len(result.reheat_lower_bounds)
        method = plan.methods[number % len(plan.methods)]
        if result.trial is None:
            result.trial = problem.reheat(result, method)
        after_pass = None
        if monitor is not None:
            n_annealed = method.schedule_length()
            after_pass = monitor.begin_reheat(number, n_annealed, settings.max_iter)
        reach = settings._replace(stop=OutOfReach(stop, result.kept.trace.final))
        trial = engine.fit(result.trial, problem.units, reach, workers, after_pass, save)
        if monitor is not None:
            monitor.end_reheat(number, trial)
        result.judge(stop, problem.units.n_observations)
    return result


def finite(q: Natural) -> bool:
    """Return whether all natural parameters are finite."""
    return all(bool(np.isfinite(value).all()) for value in q.values())
