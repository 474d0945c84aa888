"""Updates of an estimator with the batches of a stream."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..annealing import Annealing
from ..data.units import Units
from ..inference import loop, streaming
from ..inference.loop import Trace
from ..inference.messages import Messages, described
from ..parallel.workers import Workers
from ..search.problem import prepare
from ..search.search import finite
from ._state import Inference

# Below these numbers of operations per update or pass, threads cost more time than they save.
WORTH_THREADS = {True: 1e7, False: 2e7}  # True: one restart, in chunks; False: several restarts


def update(estimator: Any, X: Any, units: Units) -> None:
    """Update a fitted estimator with one batch of a stream, or begin a stream with it."""
    first = not hasattr(estimator, "_inference")
    weight = units.total_weight
    messages = Messages(int(estimator.verbose), estimator.verbose_interval)
    if estimator.total_samples is not None and weight > estimator.total_samples * (1.0 + 1e-9):
        raise ValueError(
            f"total_samples={estimator.total_samples!r} is the number of data points of the whole "
            f"stream, or the sum of their weights, but this batch alone has {weight:g}. Give the "
            "whole number, or None if it is not known."
        )
    if first:
        inference, method = _opened(estimator, X, units)
        if estimator.verbose:
            what = f"{described(estimator)} · {described(inference.strategy)}"
            messages.say(f"{what} · first batch of {estimator._words_for(units)}")
    elif units.is_empty:
        return
    else:
        inference, method = copy.copy(estimator._inference), estimator.annealing_
        inference.ctx = ctx = inference.context()
        if estimator.total_samples is None:
            inference.strategy = without_schedule(inference.strategy)
        ctx.summary = ctx.summary.merge(ctx.model.summary(units))
        inference.seen += weight
    ctx = inference.ctx
    total = estimator.total_samples or inference.seen
    ctx.summary = replace(ctx.summary, weight=total)
    ctx.scale = total / weight
    # A data point of a stream may be seen only once. Without exploring, its local variables
    # get as many iterations as they need.
    ctx.exploring = False
    worth = ctx.model.operations(units) >= WORTH_THREADS[True]
    with Workers(estimator.n_jobs if worth else 1) as workers:
        bound, temperature = streaming.update(
            ctx,
            inference.strategy,
            units.centered(ctx.summary),
            estimator._settings(units),
            workers,
            share=None if estimator.total_samples is None else weight / estimator.total_samples,
        )
        # Later updates cannot repair parameters that are not finite.
        if not finite(ctx.q):
            raise np.linalg.LinAlgError("parameters that are not finite")
    inference.annealed += inference.strategy.is_annealing(ctx.state)
    nothing = np.empty(0)
    bounds = np.append(nothing if first else estimator.lower_bounds_, [bound])
    temperatures = np.append(nothing if first else estimator.temperatures_, [temperature])
    # If the method did not evaluate the bound at this call, the last value is kept.
    final = bound if first or np.isfinite(bound) else estimator.lower_bound_
    trace = Trace(list(bounds), list(temperatures), final=final)
    estimator._keep(inference, method, trace)
    messages.after_batch(len(bounds), temperature, bound, inference.seen, estimator.total_samples)


def _opened(estimator: Any, X: Any, units: Units) -> tuple[Inference, Annealing]:
    """The start of a stream, and the method for the attribute ``annealing_``."""
    if estimator._chooses_number:
        raise ValueError(
            "n_components='auto' compares fits with several numbers of components, and so needs "
            "all data at once. Give a number of components, or begin with fit."
        )
    # The method is checked with the model of a fit as well, so that a stream is not begun with
    # parameters with which no fit can be made.
    estimator._strategy(estimator._make_model(X, units))
    model = estimator._make_model_of_stream(X, units)
    strategy = estimator._strategy(model)
    estimator._check_first_batch(units, model)
    estimator._load_kernels()
    seen = units.total_weight
    random_state = check_random_state(estimator.random_state)
    total = float(estimator.total_samples or seen)
    unscheduled = estimator.total_samples is None
    runs = without_schedule(strategy) if unscheduled else strategy
    how = model, runs, units, estimator._settings(units), random_state
    given = estimator._start_for(model, runs)
    problem, start = prepare(*how, stream_weight=total, given=given)
    progress = problem.open(0, start)
    inference = Inference(progress.ctx, progress.strategy, seen, estimator._fixed_parameters())
    return inference, strategy if unscheduled else progress.strategy


def without_schedule(strategy: Annealing) -> Annealing:
    """Plain inference, or the method itself if it has no schedule and runs throughout."""
    return loop.PLAIN if strategy.finish else strategy
