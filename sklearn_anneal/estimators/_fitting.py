"""Fits: from the data that a user gives to the attributes of the fitted estimator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Generic, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_random_state

from .._compat import with_callbacks
from .._version import __version__
from ..annealing import Annealing, NoAnnealing
from ..data.fingerprints import fingerprint_of
from ..data.parted_units import PartedUnits
from ..data.units import U, Units
from ..inference import loop
from ..inference.callbacks import FitMonitor
from ..inference.checkpoint import Checkpoint
from ..inference.progress import Progress
from ..kernels import COMPILATIONS
from ..parallel.thread_limits import one_thread
from ..parallel.workers import Workers
from ..search.problem import prepare
from ..search.search import Found, Plan, best
from ._interface import D, Interface, M, method_name
from ._number import Choice, Origin
from ._part_fits import opened
from ._part_sources import Inputs
from ._shards import in_parts
from ._state import Inference, described_value, warn_of_light_data, with_absent
from ._streaming import WORTH_THREADS, without_schedule
from ._validation import explained

# Attributes that scikit-learn sets from the first callback of a fit to its teardown.
_OF_CALLBACKS = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
_WARM = "warm_start=True goes on from the last fit"


class Data(NamedTuple, Generic[D, U]):
    """The data of a fit, in memory or in parts, after all checks."""

    X: D  # as the estimator validates it; some rows of data in parts
    units: U | PartedUnits[U]
    example: U  # the units of ``X``, in memory
    observed: tuple  # the arguments of callbacks: the X of the user, y, metadata and the units


class Outcome(NamedTuple):
    """The outcome of a fit."""

    found: Found
    strategy: Annealing  # the method, as it was calibrated
    n_annealed: int  # passes of the history that belong to the schedule
    monitor: FitMonitor | None


class Fits(Interface[D, U, M]):
    """Mixin of estimators that fit: data, search, attributes, warnings."""

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None, *, checkpoint=None):
        """Fit the model: anneal, then plain variational inference to convergence.

        If the fit is refused or interrupted, the estimator remains as it was before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Training data. Parts are :class:`~sklearn_anneal.Shards` or a collection of Dask.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. A row with a weight of 2 counts twice, and one with a weight of 0
            is left out. With data in parts, one array for each part.
        checkpoint : path-like, default=None
            A folder in which the state of the fit is saved after every pass. If it contains the
            state of an interrupted fit to the same data with the same parameters, the fit continues
            from there, and its result is bit for bit that of a fit without interruption.

        Returns
        -------
        self : estimator instance
            The fitted estimator.

        Raises
        ------
        ValueError
            If the data or the parameters are refused, if the result is not finite, or if
            ``checkpoint`` belongs to a fit with other data, parameters or versions.
        """
        with self._all_or_nothing():
            return self._fit(X, y, sample_weight, checkpoint)

    def _fit(
        self,
        X: Any,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        checkpoint: Any = None,
        covariates: ArrayLike | None = None,
    ) -> Self:
        warm = self.warm_start and hasattr(self, "_inference")
        store = None if checkpoint is None else Checkpoint(checkpoint)
        if warm:
            self._checked_inference(_WARM, self._stream_parameters)
        inputs = Inputs(X, y, sample_weight, covariates)
        with self._data_of_fit(inputs, reset=not warm) as data:
            with self._quiet_starts():
                outcome = self._continued(data, store) if warm else self._searched(data, store)
            self._keep_outcome(outcome, data)
            self._warn(outcome.found.kept.ctx, outcome.found.kept.trace)
            warn_of_light_data(self._inference, data.units)
            # All that reads the parameters of a fit is faster before each column has its own.
            self._inference.ctx = with_absent(self._inference.ctx)
        return self

    @contextmanager
    def _data_of_fit(self, inputs: Inputs, reset: bool) -> Iterator[Data[D, U]]:
        """Check and read the data of a fit; those in parts are open for its time."""
        X, y, sample_weight, covariates = inputs
        beside = {"sample_weight": sample_weight, "covariates": covariates}
        metadata = {name: value for name, value in beside.items() if value is not None}
        if in_parts(X):
            with opened(self, inputs, reset=reset) as (example, parted):
                self._check_training(parted.gathered)
                yield Data(example, parted, parted.gathered, (X, y, metadata, parted))
            return
        X = self._validate_data(X, reset=reset)
        all_rows = self._callback_data(inputs.X, X)
        X, weights = self._present(X, self._check_weights(sample_weight, X))
        units = self._make_units(X, weights)
        self._check_training(units)
        yield Data(X, units, units, (all_rows, y, metadata, units))

    def _searched(self, data: Data[D, U], store: Checkpoint | None) -> Outcome:
        """Search for the best optimum of the model, from new starts."""
        X, units = data.X, data.units
        random_state, origin, begun = check_random_state(self.random_state), None, None
        whole = run = None
        self.__dict__.pop("component_results_", None)
        if self._chooses_number:
            self._refuse_number_with(**self._asked_start())
            whole = FitMonitor.of(self, self.n_init, True, *data.observed)
            choice, random_state = self._choose_once(X, units, store, random_state, whole)
            self._number_of_trial, origin, self.component_results_, begun = choice
        model = self._make_model(X, data.example)
        strategy = self._strategy(model)
        plan = self._plan(strategy, units)
        if self._chooses_number and self.max_iter > 0:
            plan = plan._replace(model_of=partial(self._smaller_model, X=X, example=data.example))
        if not self._chooses_number:
            whole = run = self._monitor(data, strategy, plan, plan.allows_moves(model))
        elif whole is not None:
            name = f"n_components={self._number}"
            run = whole.run(name, units, plan.n_init, plan.allows_moves(model))
        how = units, run, store, random_state, origin, begun
        found = self._start_anew(model, strategy, plan, *how)
        if run is not None and run is not whole:
            run.end_run(found.kept)
        return Outcome(found, found.strategy, found.strategy.schedule_length(), whole)

    def _continued(self, data: Data[D, U], store: Checkpoint | None) -> Outcome:
        """Go on from the fitted parameters by plain inference."""
        monitor = self._monitor(data, NoAnnealing(), Plan(), moves=False)
        found = Found.of([self._continue_fit(data.units, monitor, store)])
        trace = found.kept.trace
        trace.lower_bounds[:0] = list(self.lower_bounds_)
        # Without a further pass the result is the old one, whose bound was evaluated anew.
        trace.lower_bounds[-1:] = [trace.final] if trace.lower_bounds else []
        trace.temperatures[:0] = list(self.temperatures_)
        found.n_passes += self.n_passes_
        return Outcome(found, self.annealing_, self._inference.annealed, monitor)

    def _monitor(
        self, data: Data[D, U], strategy: Annealing, plan: Plan, moves: bool
    ) -> FitMonitor | None:
        """Return the monitor that serves callbacks and ``verbose``; None if there are neither.

        ``moves`` says whether moves can follow the restarts.
        """
        monitor = FitMonitor.of(self, plan.n_init, moves, *data.observed)
        if monitor is not None:
            monitor.begin(self._words_for(data.units), strategy, plan.n_init, plan.effort)
        return monitor

    def _keep_outcome(self, outcome: Outcome, data: Data[D, U]) -> None:
        """Set all fitted attributes."""
        found, strategy, n_annealed, monitor = outcome
        ctx, trace = found.kept.ctx, found.kept.trace
        # No search goes on from here, and earlier fits need not stay in memory.
        found.before_end = None
        goes_on, fitted, seen = strategy, ctx.model, data.units.total_weight
        ctx.model = self._model_of_stream(fitted)
        if ctx.model is not fitted:
            goes_on = self._strategy(ctx.model)
        inference = Inference(
            # Calls that continue from this fit run at T = 1, even if a callback stopped the fit.
            *(ctx, without_schedule(goes_on), seen, self._fixed_parameters()),
            annealed=min(n_annealed, len(trace.lower_bounds)),
            checked=seen,
            fitted=True,
        )
        self._keep(inference, strategy, trace, found)
        if self._chooses_number:
            self._number_of_trial = None
        self._complete_fit(ctx, data.units, data.observed[0])
        if monitor is not None:
            monitor.end(found.kept, found.best_restart, found.all_passes)

    def _plan(self, strategy: Annealing, units: Units) -> Plan:
        """How the fit searches for a better optimum than the first one: restarts and moves."""
        reason = None
        if isinstance(strategy, NoAnnealing):
            reason = "annealing='none' is plain inference, which ends at its first optimum"
        elif not strategy.finish:
            reason = (
                f"{type(strategy).__name__} does not end with plain inference, and the lower "
                "bound, by which moves are judged, is not what it is chosen for"
            )
        race = self.restarts == "race"
        if race and self.n_init > 1 and not strategy.finish:
            raise ValueError(
                f"restarts='race' cannot be combined with annealing={self.annealing!r}: "
                f"{type(strategy).__name__} does not end with plain inference, from the passes of "
                "which a race leaves some out. Give restarts='full', or another annealing."
            )
        # In minibatches the bound of every move would cost an extra pass.
        size = self._batch_size_of(units)
        searches = reason is None and not (size is not None and size < units.n_units)
        effort = effort_without_schedule = self.effort
        if effort == "auto":
            effort = self._efforts.get(method_name(strategy), 0.0) if searches else 0.0
            calibrated = searches and strategy.calibrates
            effort_without_schedule = self._efforts["reheating"] * calibrated
        elif effort > 0 and reason is not None:
            raise ValueError(
                f"effort={effort} cannot be combined with annealing={self.annealing!r}: "
                f"{reason}. Give effort='auto' or 0, or another annealing."
            )
        if self.max_iter == 0:  # moves go on by plain inference, which then has no passes
            return Plan(self.n_init, race)
        guards = searches and self.effort != 0
        automatic = self.effort == "auto"
        return Plan(self.n_init, race, effort, effort_without_schedule, guards, automatic)

    def _start_anew(
        self,
        model: M,
        strategy: Annealing,
        plan: Plan,
        units: Units,
        monitor: FitMonitor | None,
        checkpoint: Checkpoint | None,
        random_state: np.random.RandomState,
        origin: Origin | None = None,
        begun: Found | None = None,
    ) -> Found:
        """Run all restarts and moves of a fit.

        The first restart begins at the components of the ``origin`` if there is one. The moves go
        on from a search of the same fit that has ``begun`` with less effort.
        """
        settings = self._settings(units)
        self._load_kernels()
        if checkpoint is not None:
            random_state = self._reopened(checkpoint, units, random_state)
        given = self._start_for(model, strategy)
        problem, start = prepare(model, strategy, units, settings, random_state, given=given)
        if origin is not None:
            start = origin.start(problem)
        drawn = [] if start is None else [start]
        del start
        work, size = units.operations(problem.model), settings.batch_size
        of_update = work if size is None else work * min(1.0, size / units.n_units)

        def workers(restarts: bool) -> Workers:
            worth = work if restarts else of_update
            return Workers(
                self.n_jobs,
                shared_memory=monitor is not None,
                restarts=restarts,
                worth=worth >= WORTH_THREADS[not restarts],
                # The moves that follow several restarts have nothing new to say.
                announce=restarts or plan.n_init == 1,
            )

        return best(problem, drawn, plan, workers, monitor, checkpoint, begun)

    def _choose_once(
        self,
        X: D,
        units: Units,
        store: Checkpoint | None,
        random_state: np.random.RandomState,
        monitor: FitMonitor | None,
    ) -> tuple[Choice, np.random.RandomState]:
        """The number of components, found once for all calls with a checkpoint."""
        if store is None:
            return self._choose_number(X, units, random_state, monitor), random_state
        random_state = self._reopened(store, units, random_state)
        choice = store.load("number")
        if choice is None:
            choice = self._choose_number(X, units, random_state, monitor)
            if monitor is None or not monitor.stopped:
                # The checkpoint stores the passes of the whole fit, which ends with the same bits.
                choice = choice._replace(begun=None)
            store.save("number", choice)
        return choice, random_state

    def _continue_fit(
        self,
        units: Units,
        monitor: FitMonitor | None,
        checkpoint: Checkpoint | None,
    ) -> Progress:
        """Run plain inference from the fitted parameters."""
        kept = self._checked_inference(_WARM, self._stream_parameters)
        ctx = kept.context()
        # It goes on without a given start, which a new fit would need, and later batches check.
        self._start_for(ctx.model, loop.PLAIN)
        ctx.summary = ctx.summary.continued(units.summary(ctx.model))
        self._load_kernels()
        progress, save = Progress(ctx, loop.PLAIN), None
        if checkpoint is not None:
            self._reopened(checkpoint, units, np.random.RandomState(0), kept.identity())
            progress = checkpoint.load("restart-0") or progress
            save = partial(checkpoint.save, "restart-0")
        after_pass = None
        if monitor is not None:
            after_pass = monitor.begin_phase("restart", 0, 0, self.max_iter)
        with Workers(self.n_jobs, shared_memory=monitor is not None) as workers:
            units = units.centered(ctx.summary)
            loop.fit(progress, units, self._settings(units), workers, after_pass, save)
        if monitor is not None:
            monitor.end_phase("restart", 0, progress)
        return progress

    def _reopened(
        self,
        checkpoint: Checkpoint,
        units: Units,
        random_state: np.random.RandomState,
        start: str = "",
    ) -> np.random.RandomState:
        """The initial random state of the fit in the checkpoint, or of a new fit.

        If the checkpoint has no state, it is opened for a new fit, which begins with the given
        random state.
        """
        free = ("n_jobs", "verbose", "verbose_interval")
        identity = {
            "version of sklearn_anneal": __version__,
            "estimator": type(self).__name__,
            # Sparse data points do not say how many columns there are.
            "number of columns": getattr(self, "n_features_in_", None),
            "data": fingerprint_of(units),
            "fitted parameters that it goes on from": start,
        }
        for name, value in self.get_params(deep=False).items():
            if name not in free:
                identity[f"parameter {name}"] = described_value(value)
        state = checkpoint.open(identity, random_state.get_state(legacy=False))
        again = np.random.RandomState()
        again.set_state(state)
        return again

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Run a fit with one thread of BLAS, and restore the estimator after an error."""
        before = dict(self.__dict__)
        telling = (
            COMPILATIONS.announced(partial(print, flush=True)) if self.verbose else nullcontext()
        )
        try:
            with one_thread(), explained(self._advice), telling:
                yield
        except BaseException:
            # scikit-learn itself removes the attributes that it needs to tear callbacks down.
            kept = {name: vars(self)[name] for name in _OF_CALLBACKS if name in vars(self)}
            self.__dict__.clear()
            self.__dict__.update(before | kept)
            raise
