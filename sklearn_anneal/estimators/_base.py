"""The scikit-learn side of every estimator: validation, fitting, fitted attributes."""

from __future__ import annotations

import copy
import re
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._compat import CallbackSupportMixin, with_callbacks
from ..annealing import (
    ANNEALING,
    Annealing,
    Context,
    NoAnnealing,
    check_capabilities,
)
from ..annealing._documentation import LinkedDocumentation
from ..inference import engine
from ..inference.callbacks import FitMonitor
from ..inference.checkpoint import Checkpoint, fingerprint_of
from ..inference.engine import Progress, Settings, Trace
from ..inference.messages import number
from ..inference.parallel import Workers
from ..inference.stopping import RiseOfBound
from ..inference.thread_limits import one_thread
from ..inference.units import Units
from ..kernels import COMPILATIONS, load
from ..models._base import Model
from ..search.problem import prepare
from ..search.search import Found, Plan, best
from . import _persistence
from ._attributes import ExplainedAttributes
from ._number import Choice, ChoosesNumber, Origin
from ._part_fits import opened, stream
from ._part_predictions import score_of
from ._shards import in_parts
from ._state import Inference, described_value
from ._streaming import WORTH_THREADS, update, without_schedule
from ._validation import (
    MOST_WEIGHT,
    CheckedParameters,
    check_parameters,
    checked_weights,
    checks_parameters,
    did_you_mean,
    explained,
)
from ._warnings import warn_of_light_data, warn_of_priors, warn_of_unfinished_stream

# What scikit-learn keeps in an estimator from the first callback of a fit to its teardown.
_OF_CALLBACKS = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
_WARM = "warm_start=True goes on from the last fit"


class BaseAnnealed(
    ChoosesNumber,
    LinkedDocumentation,
    CheckedParameters,
    ExplainedAttributes,
    CallbackSupportMixin,
    BaseEstimator,
    metaclass=ABCMeta,
):
    """Base class of all estimators with a parameter ``annealing``.

    A subclass defines its parameters, :meth:`_make_model`, :meth:`_make_units` and
    :meth:`_fitted_attributes`. This class does the fitting, streaming, restarts and callbacks.
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "annealing": [StrOptions(set(ANNEALING)), Annealing],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "restarts": [StrOptions({"full", "race"})],
        "effort": [Interval(Real, 0.0, None, closed="left"), StrOptions({"auto"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_offset": [Interval(Real, 0.0, None, closed="left")],
        "learning_decay": [Interval(Real, 0.0, 1.0, closed="both")],
        "total_samples": [Interval(Real, 0.0, MOST_WEIGHT, closed="right"), None],
        "n_jobs": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
            None,
        ],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
    }

    # Part of the error message of a fit whose parameters left their domain: why, and what to do.
    _advice: str = (
        "the parameters left their domain: scales of the data differ too much for floating-point "
        "numbers. Rescale X, or give stronger priors."
    )
    # Part of the warning of components that coincide: what to do.
    _advice_coinciding: str = (
        "Lower the initial temperature or give the annealing jitter, start from another "
        "random_state, or ask for fewer components."
    )

    # Parameters of the estimator that define the model. They must not change while the fitted
    # parameters are kept.
    _model_parameters: tuple[str, ...] = ("n_components",)

    # With effort="auto": the effort of the search, by the name of the annealing method.
    _efforts: dict[str, float] = {"reheating": 4.0}

    # What ``verbose`` says of the data: their units, and the observations that the units have.
    _data_in_words: str = "{observations} rows of {columns} columns"

    # The modules with the compiled kernels of the model. All fits need the first one.
    _kernel_modules: tuple[str, ...] = ()

    # Methods that a subclass provides or may override

    @abstractmethod
    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> Any:
        """X as an array that the model can read; ``reset`` is True in the first call of a fit."""

    @abstractmethod
    def _make_model(self, X: Any, units: Units) -> Model:
        """Make the model, and check the hyperparameters whose validity depends on X."""

    @abstractmethod
    def _make_units(self, X: Any, sample_weight: np.ndarray | None) -> Units:
        """The data points of X."""

    @abstractmethod
    def _fitted_attributes(self, ctx: Context) -> dict[str, Any]:
        """The model's own fitted attributes, by name."""

    def _check_parameters(self, X: Any, units: Units) -> None:
        """Refuse parameters in a later batch of a stream that a first batch would refuse."""
        self._strategy(self._make_model(X, units))

    def _make_model_of_stream(self, X: Any, units: Units) -> Model:
        """Make the model with which a stream begins."""
        return self._make_model(X, units)

    def _model_of_stream(self, model: Any) -> Any:
        """The model with which a stream goes on, given that of a fit."""
        return model

    def _check_first_batch(self, units: Units, model: Model) -> None:
        """Refuse a first batch of a stream from which the priors cannot be determined."""

    # Parameters

    def set_params(self, **params: Any) -> BaseAnnealed:
        """Set parameters, including those of ``annealing`` if it is given by its name.

        Parameters
        ----------
        **params : dict
            Estimator parameters. ``annealing__initial_temperature=2`` turns a name such as
            ``"deterministic"`` into an instance of its class.

        Returns
        -------
        self : estimator instance
        """
        if any(name.startswith("annealing__") for name in params):
            method = params.get("annealing", self.annealing)
            if isinstance(method, str):
                if method not in ANNEALING:
                    raise ValueError(
                        f"annealing={method!r} has no parameters: it is not among the names "
                        f"{sorted(ANNEALING)}. Set annealing to one of them first."
                        f"{did_you_mean(method, ANNEALING)}"
                    )
                params["annealing"] = ANNEALING[method]()
            elif isinstance(method, type):
                raise ValueError(
                    f"annealing is the class {method.__name__}, whose instances have parameters: "
                    f"set annealing={method.__name__}() first."
                )
        return super().set_params(**params)

    def _strategy(self, model: Model) -> Annealing:
        """The annealing method with the model's recommendations filled in."""
        method = self.annealing
        if isinstance(method, str):
            method = ANNEALING[method]()
        check_parameters(method)
        strategy = method.resolve(model.recommended.get(_name(method), {}))
        check_parameters(strategy)
        check_capabilities(strategy, model, self.annealing, type(self).__name__)
        return strategy

    def _batch_size_of(self, n_units: float) -> int | None:
        """Number of data points per update, if there are so many in all; None means all."""
        return self.batch_size

    def _stopping_rule(self) -> RiseOfBound:
        """The rule that decides when plain inference has converged."""
        return RiseOfBound(self.tol)

    def _settings(self, units: Units) -> Settings:
        return Settings(
            max_iter=self.max_iter,
            stop=self._stopping_rule(),
            batch_size=self._batch_size_of(units.n_units),
            learning_offset=self.learning_offset,
            learning_decay=self.learning_decay,
        )

    def _check_weights(
        self, sample_weight: Any, X: Any, allow_nothing: bool = False
    ) -> np.ndarray | None:
        return checked_weights(sample_weight, X, allow_nothing)

    def _present(self, X: Any, weights: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """X, as it was validated, and its weights, without the data points of weight zero.

        A data point of weight zero is absent: it must not even say which values there are. It is
        therefore left out before anything is computed. Nothing is left out if all weights are zero.
        """
        if weights is None or weights.all() or not weights.any():
            return X, weights
        positive = weights > 0
        return self._chosen(X, positive), weights[positive]

    def _chosen(self, X: Any, chosen: np.ndarray) -> Any:
        """Those data points of X, as it was validated, that a mask chooses."""
        return X[chosen]

    def _check_training(self, units: Units) -> None:
        """Refuse data that the model cannot be fitted to."""

    # Data in parts

    def _part(self, X: Any, y: Any, weights: Any) -> Any:
        """A part of the data, its targets and weights, as :meth:`_validate_data` takes them."""
        return X

    def _weights_of_part(self, weights: Any, X: Any) -> Any:
        """The sample weights of a part as :meth:`_check_weights` takes them."""
        return weights

    @property
    def _reads_targets(self) -> bool:
        """Whether parts have targets; the y of other estimators is ignored."""
        return False

    def _keys_of_part(self, X: Any) -> np.ndarray | None:
        """What no two parts may have in common, such as the ids of users; None if there is none."""
        return None

    def _check_parts(self) -> None:
        """Refuse parameters with which no part tells what the model needs to know."""

    def _score(self, X: Any, y: Any, sample_weight: Any) -> float:
        """The score of data in memory or in parts."""
        if in_parts(X):
            self._context()
            return score_of(self, X, y, sample_weight)
        return self._scored(X, y, sample_weight)[0]

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
        """The score of data in memory, a mean, and the total weight of what it is the mean of."""
        X, weights = self._counted(X, sample_weight)
        scores = self.score_samples(X)  # type: ignore[attr-defined]
        total = len(scores) if weights is None else weights.sum()
        return float(np.average(scores, weights=weights)), float(total)

    def _counted(self, X: Any, sample_weight: Any) -> tuple[Any, np.ndarray | None]:
        """X as it was given, and its weights, without the rows of weight zero."""
        weights = self._check_weights(sample_weight, X)
        if weights is None or weights.all():
            return X, weights
        rows = X.tocsr() if issparse(X) else X
        return _safe_indexing(rows, np.flatnonzero(weights)), weights[weights > 0]

    # Fitting

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

    def _fit(self, X: Any, y: Any, sample_weight: Any, checkpoint: Any = None) -> BaseAnnealed:
        warm = self.warm_start and hasattr(self, "_inference")
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        store = None if checkpoint is None else Checkpoint(checkpoint)
        if warm:
            self._checked_inference(_WARM, ("annealing",))
        if in_parts(X):
            with opened(self, X, y, sample_weight, reset=not warm) as (example, parted):
                self._check_training(parted.gathered)
                return self._fit_to(example, parted, (X, y, metadata, parted), warm, store)
        given, X = X, self._validate_data(X, reset=not warm)
        all_rows = self._callback_data(given, X)
        X, weights = self._present(X, self._check_weights(sample_weight, X))
        units = self._make_units(X, weights)
        self._check_training(units)
        observed = (all_rows, y, metadata, units)
        return self._fit_to(X, units, observed, warm, store)

    def _fit_to(
        self, X: Any, units: Units, observed: Any, warm: bool, store: Checkpoint | None
    ) -> BaseAnnealed:
        """Fit to data points; X has the validated data, or some rows of data in parts."""
        if warm:
            monitor = FitMonitor.of(self, 1, False, *observed)
            if monitor is not None:
                monitor.begin(self._words_for(units), NoAnnealing(), 1, 0)
            found = Found.of([self._continue_fit(units, monitor, store)])
            strategy = self.annealing_
        else:
            random_state = check_random_state(self.random_state)
            origin = None
            self.__dict__.pop("component_results_", None)
            if self._chooses_number:
                choice, random_state = self._choose_once(X, units, store, random_state)
                self._number_of_trial, origin, self.component_results_ = choice
            model = self._make_model(X, units.example)
            strategy = self._strategy(model)
            plan = self._plan(strategy, units)
            moves = max(plan.effort, plan.effort_without_schedule) > 0 or plan.guards
            monitor = FitMonitor.of(self, plan.n_init, moves, *observed)
            if monitor is not None:
                monitor.begin(self._words_for(units), strategy, plan.n_init, plan.effort)
            how = units, monitor, store, random_state, origin
            found = self._start_anew(model, strategy, plan, *how)
            strategy = found.strategy
        ctx, trace = found.kept.ctx, found.kept.trace
        if warm:
            trace.lower_bounds[:0] = list(self.lower_bounds_)
            # Without a further pass the result is the old one, whose bound was evaluated anew.
            trace.lower_bounds[-1:] = [trace.final] if trace.lower_bounds else []
            trace.temperatures[:0] = list(self.temperatures_)
            found.n_passes += self.n_passes_
        annealed = self._inference.annealed if warm else strategy.schedule_length()
        seen, goes_on = units.total_weight, strategy
        fitted, ctx.model = ctx.model, self._model_of_stream(ctx.model)
        if ctx.model is not fitted:
            goes_on = self._strategy(ctx.model)
        inference = Inference(
            # Calls that continue from this fit run at T = 1, even if a callback stopped the fit.
            *(ctx, without_schedule(goes_on), seen, self._fixed_parameters()),
            annealed=min(annealed, len(trace.lower_bounds)),
            checked=seen,
        )
        self._keep(inference, strategy, trace, found)
        if self._chooses_number:
            self._number_of_trial = None
        self._complete_fit(ctx, units, trace)
        if monitor is not None:
            monitor.end(found.kept, found.best_restart, found.n_passes)
        self._warn(ctx, trace)
        warn_of_light_data(self._inference, units)
        return self

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
            # What scikit-learn needs to tear its callbacks down, it removes itself.
            kept = {name: vars(self)[name] for name in _OF_CALLBACKS if name in vars(self)}
            self.__dict__.clear()
            self.__dict__.update(before | kept)
            raise

    def _words_for(self, units: Units) -> str:
        """The data in words, for the first line of ``verbose``."""
        text = self._data_in_words.format(
            units=number(units.n_units),
            observations=number(units.n_observations),
            columns=number(getattr(self, "n_features_in_", 0)),
        )
        return re.sub(r"\b1 (\w+)s\b", r"1 \1", text)

    def _callback_data(self, given: Any, X: Any) -> Any:
        """The X that callbacks receive: the one that the user gave, or the validated one."""
        return X

    def _complete_fit(self, ctx: Context, units: Units, trace: Trace) -> None:
        """Set the fitted attributes that are computed from the training data again."""

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
        size = self._batch_size_of(units.n_units)
        searches = reason is None and not (size is not None and size < units.n_units)
        effort = without_schedule = self.effort
        if effort == "auto":
            effort = self._efforts.get(_name(strategy), 0.0) if searches else 0.0
            without_schedule = self._efforts["reheating"] * (searches and strategy.calibrates)
        elif effort > 0 and reason is not None:
            raise ValueError(
                f"effort={effort} cannot be combined with annealing={self.annealing!r}: "
                f"{reason}. Give effort='auto' or 0, or another annealing."
            )
        if self.max_iter == 0:  # moves go on by plain inference, which then has no passes
            return Plan(self.n_init, race)
        guards = searches and self.effort != 0
        return Plan(self.n_init, race, effort, without_schedule, guards)

    def _start_anew(
        self,
        model: Model,
        strategy: Annealing,
        plan: Plan,
        units: Units,
        monitor: FitMonitor | None,
        checkpoint: Checkpoint | None,
        random_state: np.random.RandomState,
        origin: Origin | None = None,
    ) -> Found:
        """Run all restarts and moves of a fit.

        The first restart begins at the components of the ``origin`` if there is one.
        """
        settings = self._settings(units)
        self._load_kernels()
        if checkpoint is not None:
            random_state = self._reopened(checkpoint, units, random_state)
        problem, start = prepare(model, strategy, units, settings, random_state)
        if origin is not None:
            start = origin.start(problem.prior)
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

        return best(problem, drawn, plan, workers, monitor, checkpoint)

    def _choose_once(
        self, X: Any, units: Units, store: Checkpoint | None, random_state: np.random.RandomState
    ) -> tuple[Choice, np.random.RandomState]:
        """The number of components, found once for all calls with a checkpoint."""
        if store is None:
            return self._choose_number(X, units, random_state), random_state
        random_state = self._reopened(store, units, random_state)
        choice = store.load("number")
        if choice is None:
            choice = self._choose_number(X, units, random_state)
            store.save("number", choice)
        return choice, random_state

    def _continue_fit(
        self, units: Units, monitor: FitMonitor | None, checkpoint: Checkpoint | None
    ) -> Progress:
        """Run plain inference from the fitted parameters."""
        kept = self._checked_inference(_WARM, ("annealing",))
        ctx = kept.context()
        ctx.summary = ctx.summary.continued(units.summary(ctx.model))
        self._load_kernels()
        progress, save = Progress(ctx, engine.PLAIN), None
        if checkpoint is not None:
            self._reopened(checkpoint, units, np.random.RandomState(0), kept.identity())
            progress = checkpoint.load("restart-0") or progress
            save = partial(checkpoint.save, "restart-0")
        after_pass = None if monitor is None else monitor.begin_restart(0, 0, self.max_iter)
        with Workers(self.n_jobs, shared_memory=monitor is not None) as workers:
            units = units.centered(ctx.summary)
            engine.fit(progress, units, self._settings(units), workers, after_pass, save)
        if monitor is not None:
            monitor.end_restart(0, progress)
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
        from .. import __version__

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

    def _fixed_parameters(self) -> dict[str, Any]:
        """The parameters that must stay as they are while the fitted parameters are kept."""
        # They are copied, because setting a nested parameter changes the ``annealing`` instance.
        names = ("annealing", *self._model_parameters)
        return {name: copy.deepcopy(getattr(self, name)) for name in names}

    def _checked_inference(self, what: str, free: tuple[str, ...] = ()) -> Inference:
        """The result of the last call, after a check that the parameters have not changed."""
        kept = self._inference
        for name, value in self._fixed_parameters().items():
            if name not in free and not self._unchanged(name, kept.fixed[name], value):
                raise ValueError(
                    f"{what}, which had {name}={kept.fixed[name]!r}, but {name}={value!r} now. "
                    f"Restore {name}, or begin anew with fit and warm_start=False."
                )
        return kept

    @checks_parameters
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the model with one batch of a stream.

        The first batch fixes the priors that depend on data. Whatever number of passes the
        annealing schedule has in ``fit``, it runs here within the first tenth of
        ``total_samples``. Plain inference follows, so that one pass over the stream ends at T = 1,
        and further passes are plain. Without ``total_samples`` the end of the stream is not known,
        and all of it is plain inference, as with ``annealing="none"``. The exception is
        ``"structured"``, which has no schedule and runs throughout. If components coincide after
        the schedule, a warning says so; the check is repeated whenever the stream has doubled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            The batch. Parts, which are batches one after another, are
            :class:`~sklearn_anneal.Shards` or a collection of Dask.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. A batch of weight zero changes nothing. With data in parts, one
            array for each part.

        Returns
        -------
        self : estimator instance
            The updated estimator.

        Raises
        ------
        ValueError
            If the batch or a parameter is refused. Both are checked at every call, and the
            estimator remains as it was before the call.
        """
        with self._all_or_nothing():
            if in_parts(X):
                stream(self, X, y, sample_weight)
                return self
            return self._partial_fit(X, sample_weight)

    def _partial_fit(self, X: Any, sample_weight: Any) -> BaseAnnealed:
        first = not hasattr(self, "_inference")
        if not first:
            # A batch is read as the parameters say, which have to be those of the stream.
            self._checked_inference("partial_fit goes on with a stream")
        X = self._validate_data(X, reset=first, ensure_min_samples=1)
        # A later batch of weight zero is skipped, but a stream cannot begin with one.
        weights = self._check_weights(sample_weight, X, allow_nothing=not first)
        X, weights = self._present(X, weights)
        units = self._make_units(X, weights)
        if not first:
            self._check_parameters(X, units)
        for batch in self._stream_batches(units):
            self._update(X, batch)
        self._warn_of_stream()
        if first:
            self._warn_of_scales(self._inference.ctx.summary, stacklevel=5)
        return self

    def _stream_batches(self, units: Units) -> Iterable[Units]:
        """The batches with which one call of ``partial_fit`` updates the model."""
        return (units,)

    def _update(self, X: Any, units: Units) -> None:
        """Update the fitted attributes with one batch of a stream."""
        update(self, X, units)

    def _keep(
        self,
        inference: Inference,
        method: Annealing,
        trace: Trace,
        found: Found | None = None,
    ) -> None:
        """Set the fitted attributes; a stream has no restarts and no moves to tell of."""
        ctx = inference.ctx
        self._inference = inference
        self._forget_others(inference.fixed)
        self.annealing_ = method
        self.lower_bound_ = trace.final
        self.lower_bounds_ = np.array(trace.lower_bounds)
        self.temperatures_ = np.array(trace.temperatures)
        self.n_iter_ = len(trace.lower_bounds)
        self.converged_ = trace.converged
        self.n_passes_ = self.n_iter_ if found is None else found.n_passes
        restarts = [trace.final] if found is None else found.restart_lower_bounds
        self.restart_lower_bounds_ = np.array(restarts)
        self.best_restart_ = 0 if found is None else found.best_restart
        attempts = [] if found is None else found.attempts
        self.search_results_ = {
            "move": np.array([a.move for a in attempts], dtype=object),
            "n_passes": np.array([a.n_passes for a in attempts], dtype=int),
            "lower_bound": np.array([a.lower_bound for a in attempts], dtype=float),
            "kept": np.array([a.kept for a in attempts], dtype=bool),
        }
        results = self._fitted_attributes(ctx)
        for name, value in results.items():
            if (
                getattr(value, "dtype", np.dtype(object)).kind == "f"
                and not np.isfinite(value).all()
            ):
                raise np.linalg.LinAlgError(f"{name} is not finite")
        self._describe(results)

    def _warn(self, ctx: Context, trace: Trace, stacklevel: int = 7) -> None:
        if not trace.converged and not trace.stopped and self.max_iter > 0:
            warnings.warn(
                f"The kept fit did not converge in max_iter={self.max_iter} passes at T = 1. "
                "Increase max_iter or tol, or check for degenerate data.",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        results = self.search_results_
        if (results["kept"] & (results["move"] == "plain")).any():
            warnings.warn(
                f"Annealing by {type(self.annealing_).__name__} ended below plain inference from "
                "the same start, whose optimum was taken instead. Lower its temperature or noise, "
                "or give annealing='reheating'.",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        self._warn_of_coincidence(ctx, stacklevel=stacklevel + 1)
        self._warn_of_scales(ctx.summary, stacklevel=stacklevel + 1)

    def _warn_of_scales(self, summary: Any, stacklevel: int) -> None:
        """Warn of training data whose scale does not suit a parameter."""

    def _warn_of_stream(self) -> None:
        """Warn of components that coincide after the schedule of a stream.

        The check compares all pairs of components, and would take most of the time of calls with
        small batches. It is therefore repeated only when the weight of the data has doubled.
        """
        inference = self._inference
        warn_of_priors(inference)
        if not inference.is_annealing and inference.seen >= 2.0 * inference.checked:
            self._inference = replace(inference, checked=inference.seen)
            self._warn_of_coincidence(inference.ctx, stacklevel=6)

    def _warn_of_coincidence(self, ctx: Context, stacklevel: int) -> None:
        pairs = ctx.model.coinciding(ctx.q, ctx.summary, ctx.prior)
        if pairs:
            warnings.warn(
                f"Components coincide (for example {pairs[0][0]} and {pairs[0][1]}): a "
                f"symmetric solution that plain inference cannot leave. {self._advice_coinciding}",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )

    def _load_kernels(self) -> None:
        if self._kernel_modules:
            load(self._kernel_modules[0])

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "_inference" in state:
            state = {
                **state,
                "_inference": _persistence.written(state["_inference"]),
                _persistence.VERSION: _persistence.this_version(),
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_inference" in state:
            state = dict(state)
            _persistence.check_version(type(self).__name__, state.pop(_persistence.VERSION, None))
            state["_inference"] = _persistence.read(state["_inference"])
        super().__setstate__(state)

    def __sklearn_is_fitted__(self) -> bool:
        # Attributes with a trailing underscore do not show that a fit succeeded, because validation
        # sets some of them first.
        return hasattr(self, "_inference")

    def _snapshot(self, ctx: Context, units: Units) -> dict[str, Any]:
        """The fitted attributes at one moment of a fit, for callbacks that need them."""
        kept = replace(ctx, report=None, known=None, deviation=None)
        inference = Inference(kept, engine.PLAIN, 0.0, self._fixed_parameters())
        # Callbacks set these one by one, in a copy that may have the results of an earlier fit.
        return {
            "_results": frozenset(),
            "_inference": inference,
            **self._fitted_attributes(kept),
        }

    def _context(self) -> Context:
        """The context of the last fit, with the fitted parameters, for predictions."""
        ctx = self._quiet_context()
        if self._inference.is_annealing:
            warn_of_unfinished_stream(self._inference, self.temperatures_[-1])
        return ctx

    def _quiet_context(self) -> Context:
        """The context of the last fit, for validation."""
        if "_inference" not in vars(self):
            check_is_fitted(self)
        return self._inference.ctx


def _name(method: Annealing) -> str:
    """The name of an annealing method; empty for a method of the user's own."""
    return next((name for name, cls in ANNEALING.items() if isinstance(method, cls)), "")


def has_unit_temperatures(estimator: BaseAnnealed) -> bool:
    """Whether the annealing of an estimator has one temperature per data point."""
    method: Any = getattr(estimator, "annealing_", estimator.annealing)
    if isinstance(method, str):
        method = ANNEALING.get(method, Annealing)
    return bool(method.has_unit_temperatures)
