"""Restarts: the preparation that they share, and the run of one of them."""

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

# Methods are calibrated on no more than this many data points.
ROWS_FOR_CALIBRATION = 10_000
# With minibatches, starts are computed from a sample of this size, or of ten batches.
_ROWS_FOR_STARTS = 20_000


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
    """Run a restart to its end; return None if a callback has asked to stop before it began.

    If ``starts`` is not empty, its last entry is the start of this restart. It is removed from the
    list, so that its memory can be released while the restart runs. With a ``checkpoint``, the
    restart is resumed from its stored progress, if there is any.
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
