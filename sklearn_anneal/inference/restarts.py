"""Restarts: what is prepared for all of them, and one of them from its start to its end."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..families import Natural
from ..models._base import Model
from . import engine
from .callbacks import FitMonitor
from .checkpoint import Checkpoint
from .engine import Progress, Settings
from .parallel import Workers, generator, legacy_generator, one_openmp_thread, seed_sequence
from .units import Units

ROWS_FOR_CALIBRATION = 10_000
_ROWS_FOR_STARTS = 20_000


class Problem(NamedTuple):
    """What all restarts of a fit share; ``sample`` is what starts are computed from."""

    model: Model
    strategy: Annealing
    prior: Natural
    summary: Any
    units: Units
    sample: Units
    settings: Settings
    seed: np.random.SeedSequence

    def open(self, index: int, start: Natural | None) -> Progress:
        """A restart at its start, with the method calibrated to it."""
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
        return Progress(ctx, strategy)


def prepare(
    model: Model,
    strategy: Annealing,
    units: Units,
    settings: Settings,
    random_state: np.random.RandomState,
    stream_weight: float | None = None,
) -> tuple[Problem, Natural | None]:
    """What a fit, or the first batch of a stream, does before the loop.

    Parameters
    ----------
    model : Model
        Of the estimator's hyperparameters.
    strategy : Annealing
        Resolved.
    units : Units
        The training data, or the first batch.
    settings : Settings
    random_state : numpy.random.RandomState
        The first start makes the draws of the class that an estimator replaces, in their order;
        everything else hangs on one number that is drawn after it.
    stream_weight : float or None, default=None
        Of a stream, the total weight of the data that it stands for; None for a fit.

    Returns
    -------
    problem : Problem
    start : dict of ndarray or None
        Where the first restart starts; None for methods that choose their own start.
    """
    size = settings.batch_size
    batch = stream_weight is None and (size is None or size >= units.n_units)
    summary = model.summary(units)
    model = model.resolved(summary, hold_units=batch and strategy.holds_units)
    prior = model.prior(summary)
    if stream_weight is not None:
        summary = replace(summary, weight=stream_weight)
    units = units.centered(summary)
    sample = units
    if stream_weight is None and size is not None:
        sample = units.subset(max(_ROWS_FOR_STARTS, 10 * size), random_state)
    start = model.init(sample, summary, prior, random_state) if strategy.needs_start else None
    seed = seed_sequence(random_state)
    return Problem(model, strategy, prior, summary, units, sample, settings, seed), start


def restart(
    problem: Problem,
    index: int,
    starts: list[Natural],
    workers: Workers,
    monitor: FitMonitor | None,
    checkpoint: Checkpoint | None = None,
) -> Progress | None:
    """One restart; None if a callback has asked to stop before it began.

    ``starts`` has its start, if that has been drawn; it is taken out, so that nothing keeps it
    while the restart runs. With a ``checkpoint``, the restart goes on from there.
    """
    if monitor is not None and monitor.stopped:
        return None
    start = starts.pop() if starts else None
    progress = None if checkpoint is None else checkpoint.load(index)
    if progress is None:
        progress = problem.open(index, start)
    del start
    save = None if checkpoint is None else partial(checkpoint.save, index)
    after_pass = None
    if monitor is not None:
        strategy = progress.strategy
        finish = problem.settings.max_iter if strategy.finish else 0
        after_pass = monitor.begin(index, strategy.schedule_length() + finish)
    engine.fit(progress, problem.units, problem.settings, workers, after_pass, save)
    if monitor is not None:
        monitor.end_restart(index, progress.ctx)
    return progress
