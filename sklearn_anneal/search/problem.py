"""A fit up to the loop of inference: the data, the model, and where a restart begins."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..families import Natural
from ..inference import loop, streaming
from ..inference.progress import Progress, Settings
from ..models._absent_columns import OmitsColumns
from ..models._base import Model
from ..models._componentwise import Componentwise, Given
from ..models._searchable import Searchable
from ..models._whole_data import ReadsWholeData
from ..parallel.thread_limits import one_openmp_thread
from ..parallel.workers import generator, legacy_generator, seed_sequence

# Methods are calibrated on no more than this many data points.
ROWS_FOR_CALIBRATION = 10_000
# Starts are computed from a sample of this size for data in parts, and in minibatches from one of
# this size or of ten batches, whichever is larger.
ROWS_FOR_STARTS = 20_000


# Steps of empirical Bayes from a start, and the data points per component that it must have.
_STEPS_WITHOUT_DATA, _LEAST_PER_COMPONENT = 10, 5


class Problem(NamedTuple):
    """Everything that the restarts and the moves of a fit share.

    Starts are computed from ``sample``, which is ``units`` or a part of them. ``given`` has the
    parameters at which all restarts begin if the user gives them, in the form that
    :meth:`Componentwise.started_at` reads.
    """

    model: Model
    strategy: Annealing
    prior: Natural
    summary: Any
    units: Units
    sample: Units
    settings: Settings
    seed: np.random.SeedSequence
    given: Given | None = None

    @property
    def in_minibatches(self) -> bool:
        """Whether passes are cut into minibatches."""
        size = self.settings.batch_size
        return size is not None and size < self.units.n_units

    def open(
        self, index: int, start: Natural | None, strategy: Annealing | None = None
    ) -> Progress:
        """Return the progress of a restart before its first pass.

        The restart begins at ``start``; None draws a start. The method is calibrated to it. With a
        ``strategy``, this one takes the place of the fit's own. It begins at the same start, or at
        one of the model's if the fit's own method draws its starts from the prior.
        """
        rng = generator(self.seed, index, 0)
        ctx = Context(self.model, self.prior, self.summary, rng, q={})
        strategy = self.strategy if strategy is None else strategy
        if not strategy.needs_start:
            ctx.q = strategy.initial_natural(ctx)
        elif start is not None:
            ctx.q = start
            self._learn_from_start(ctx, self.model, self.given)
        else:
            self.start(ctx, self.model, legacy_generator(self.seed, index, 1), self.given)
        if strategy.calibrates:
            sample = self.sample.spread(ROWS_FOR_CALIBRATION)
            rehearse = partial(loop.rehearse, ctx, sample, self.settings)
            strategy = strategy.calibrate(ctx, sample, rehearse)
        ctx.state |= strategy.initial_state(ctx)
        return Progress(ctx, strategy)

    def start(
        self,
        ctx: Context,
        model: Model,
        random_state: np.random.RandomState,
        given: Given | None = None,
    ) -> None:
        """Set the parameters of a context to a start of the model, or to a given one."""
        # OpenMP's number of threads is a setting of each thread, which workers do not take over
        # from the thread that calls `fit`. It is therefore limited here again.
        with one_openmp_thread():
            ctx.q = _started(model, self.sample, self.summary, self.prior, random_state, given)
        self._learn_from_start(ctx, model, given)

    def _learn_from_start(self, ctx: Context, model: Model, given: Given | None) -> None:
        """Learn the priors that need not wait from a start that assigns all data points.

        One that is given counts the data points of each component too.

        The usual priors expect components as wide as all data together, so that the first passes
        would merge groups that are apart.
        """
        assigned = isinstance(model, Searchable) and model.starts_assigned
        if given and isinstance(model, Componentwise):
            assigned = assigned or model.assigns_all(given)
        # A row of weight 2 counts as two rows.
        if not (assigned and self.sample.total_weight >= _LEAST_PER_COMPONENT * model.n_components):
            return
        self.learn(ctx)

    def learn(self, ctx: Context, late: bool = False) -> None:
        """Learn the priors without a pass over the data: those that need not wait, or all."""
        if self.summary.why_not_learned(ctx.model):
            return
        for _ in range(_STEPS_WITHOUT_DATA):
            ctx.model, ctx.prior, ctx.q = ctx.model.learned(
                ctx.q, ctx.prior, None, 1.0, 1.0, late=late
            )


def prepare(
    model: Model,
    strategy: Annealing,
    units: Units,
    settings: Settings,
    random_state: np.random.RandomState,
    stream: tuple[float, float | None] | None = None,
    given: Given | None = None,
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
    stream : tuple or None, default=None
        For a stream, the weight of the first batch, and that of all the data that it will have, or
        None if it is not known. None for a fit.
    given : dict or None, default=None
        The parameters at which the fit begins, as :meth:`Componentwise.started_at` reads
        them; None for the model's own start.

    Returns
    -------
    problem : Problem
    start : dict of ndarray or None
        Natural parameters at which the first restart begins; None for methods that choose their
        own start.
    """
    size = settings.batch_size
    batch = stream is None and (size is None or size >= units.n_units)
    # Parameters of single data points stay with data in parts, as local variables.
    batch = batch and not units.in_parts
    summary = units.summary(model)
    model = model.resolved(summary, hold_units=batch and strategy.holds_units)
    if isinstance(model, ReadsWholeData) and stream is None:
        model = model.with_whole_data(units)
    if isinstance(model, OmitsColumns) and stream is None and not given:
        model = model.without_absent(units) if strategy.moves_absent_alike else model
    prior = model.prior(summary)
    if stream is not None:
        weight = streaming.represented_weight(model, strategy, summary, *stream)
        summary = replace(summary, weight=weight)
    units = units.centered(summary)
    largest = None
    if stream is None and size is not None:
        largest = max(ROWS_FOR_STARTS, 10 * size)
    sample = units.sample(largest, random_state)
    start = None
    if strategy.needs_start:
        start = _started(model, sample, summary, prior, random_state, given)
    seed = seed_sequence(random_state)
    return Problem(model, strategy, prior, summary, units, sample, settings, seed, given), start


def _started(
    model: Model,
    sample: Units,
    summary: Any,
    prior: Natural,
    random_state: np.random.RandomState,
    given: Given | None,
) -> Natural:
    """Return the model's own start, or the one that is given as a whole or in part."""
    usual = partial(model.init, sample, summary, prior, random_state)
    if not given:
        return usual()
    assert isinstance(model, Componentwise)
    return model.started_at(given, usual, summary, prior)
