"""Restarts: all to their ends, or a race in which only the best one reaches its end."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..families import Natural
from ..inference import loop
from ..inference.callbacks import FitMonitor
from ..inference.checkpoint import Checkpoint
from ..inference.progress import Progress
from ..parallel.workers import SEQUENTIAL, Workers
from .problem import Problem

# The passes at T = 1 of the first round of a race, and the number of restarts that reach its last.
PASSES_OF_FIRST_ROUND = 10
_LAST_ROUND = 3


class Course(NamedTuple):
    """The values that all restarts and moves of a fit share, in the process that runs them."""

    problem: Problem
    monitor: FitMonitor | None
    checkpoint: Checkpoint | None

    def stopped(self) -> bool:
        """Return whether a callback has requested the end of the fit."""
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
                self.monitor.end_phase("restart", i, progress)


def completed(
    course: Course, drawn: list[Natural], n_init: int, workers: Workers
) -> list[Progress | None]:
    """Run all restarts to their ends."""
    found: list[Progress | None] = [None] * n_init
    course.run(list(range(n_init)), found, drawn, None, workers)
    return found


def raced(
    course: Course, drawn: list[Natural], n_init: int, workers: Workers
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
    # In batch mode most methods know the bound of a pass only after the next one. A restart that
    # was resumed from a checkpoint may be further than this round.
    n = progress.strategy.schedule_length() + n_passes - 1
    bounds = [bound for bound in progress.trace.lower_bounds[:n] if np.isfinite(bound)]
    return bounds[-1] if bounds else -np.inf


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
    """Begin a restart or go on with it; return its state if a callback ends the fit.

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
        after_pass = monitor.begin_phase("restart", index, n_annealed, finish, note)
    until = None if n_passes is None else n_annealed + n_passes
    ended = progress.finished
    loop.fit(progress, problem.units, problem.settings, workers, after_pass, save, until=until)
    if monitor is not None and progress.finished and not ended:
        monitor.end_phase("restart", index, progress)
    return progress
