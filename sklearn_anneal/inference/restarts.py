"""Restarts: what they share, and one of them from its start to its end."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..families import Natural
from ..models._base import ConjugateModel
from . import engine
from .callbacks import Watch
from .parallel import Workers, generator, legacy_generator, one_openmp_thread
from .units import Units

ROWS_FOR_CALIBRATION = 10_000

Result = tuple[Context, Annealing, engine.Trace]


class Problem(NamedTuple):
    """What all restarts of a fit share; ``sample`` is what starts are computed from."""

    model: ConjugateModel
    strategy: Annealing
    prior: Natural
    summary: Any
    units: Units
    sample: Units
    settings: engine.Settings
    seed: np.random.SeedSequence

    def open(self, index: int, start: Natural | None) -> tuple[Context, Annealing]:
        """The context of a restart at its start, and the method calibrated to it."""
        rng = generator(self.seed, index, 0)
        ctx = Context(self.model, self.prior, self.summary, rng, q={})
        if not self.strategy.needs_start:
            ctx.q = self.strategy.initial_natural(ctx)
        elif start is not None:
            ctx.q = start
        else:
            random_state = legacy_generator(self.seed, index, 1)
            # The limit of OpenMP's threads does not reach the workers of this process.
            with one_openmp_thread():
                ctx.q = self.model.init(self.sample, self.summary, self.prior, random_state)
        strategy = self.strategy
        if strategy.calibrates:
            sample = self.sample.spread(ROWS_FOR_CALIBRATION)
            rehearse = partial(engine.rehearse, ctx, sample, self.settings)
            strategy = strategy.calibrate(ctx, sample, rehearse)
        ctx.state |= strategy.initial_state(ctx)
        return ctx, strategy


def restart(
    problem: Problem, index: int, starts: list[Natural], workers: Workers, watch: Watch | None
) -> Result | None:
    """One restart; None if a callback has asked to stop before it began.

    ``starts`` has its start, if that has been drawn; it is taken out, so that nothing keeps it
    while the restart runs.
    """
    if watch is not None and watch.stopped:
        return None
    ctx, strategy = problem.open(index, starts.pop() if starts else None)
    monitor = None
    if watch is not None:
        finish = problem.settings.max_iter if strategy.finish else 0
        monitor = watch.begin(index, strategy.schedule_length() + finish)
    trace = engine.fit(ctx, strategy, problem.units, problem.settings, workers, monitor)
    if watch is not None:
        watch.end_restart(index, ctx)
    return ctx, strategy, trace
