"""The scikit-learn side of every estimator: validation, fitting, streaming, fitted attributes."""

from __future__ import annotations

import copy
import importlib
import sys
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .annealing import ANNEALING, Annealing, Context, check_capabilities
from .families import Natural
from .inference import engine
from .inference.callbacks import FitCallbacks
from .inference.parallel import (
    SEQUENTIAL,
    Workers,
    generator,
    legacy_generator,
    one_blas_thread,
    seed_sequence,
)
from .inference.units import Units
from .models._base import ConjugateModel

_SUBSET = 20_000
_ROWS_FOR_CALIBRATION = 10_000
# Below these numbers of floating-point operations per pass, threads cost more than they give.
_WORTH_THREADS = {True: 5e7, False: 2e7}  # one restart split into chunks; several restarts


class BaseAnnealed(CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta):
    """What all estimators with a parameter ``annealing`` share.

    A subclass gives its parameters, :meth:`_make_model`, :meth:`_make_units` and
    :meth:`_fitted_attributes`; fitting, streaming, restarts and callbacks are here.
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "annealing": [StrOptions(set(ANNEALING)), Annealing],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_offset": [Interval(Real, 0.0, None, closed="left")],
        "learning_decay": [Interval(Real, 0.0, 1.0, closed="both")],
        "total_samples": [Interval(Real, 0.0, None, closed="neither"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
    }

    # What a subclass provides

    @abstractmethod
    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> Any:
        """X as an array that the model can read; ``reset`` in the first call of a fit."""

    @abstractmethod
    def _make_model(self, X: np.ndarray) -> ConjugateModel:
        """The model of these hyperparameters, with those that depend on X checked."""

    @abstractmethod
    def _make_units(self, X: np.ndarray, sample_weight: np.ndarray | None) -> Units:
        """The data points of X."""

    @abstractmethod
    def _fitted_attributes(self, ctx: Context) -> dict[str, Any]:
        """The model's own fitted attributes, by name."""

    def _check_first_batch(self, units: Units) -> None:
        """Refuse a first batch of a stream that cannot fix the priors."""

    # Parameters

    def set_params(self, **params: Any) -> BaseAnnealed:
        """Set parameters; nested ones of ``annealing`` also where it is given by its name.

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
                    )
                params["annealing"] = ANNEALING[method]()
        return super().set_params(**params)

    def _strategy(self, model: ConjugateModel) -> Annealing:
        """The annealing method with the model's recommendations filled in."""
        method = self.annealing
        if isinstance(method, str):
            method = ANNEALING[method]()
        method._validate_params()
        name = next((n for n, cls in ANNEALING.items() if isinstance(method, cls)), "")
        strategy = method.resolve(model.recommended.get(name, {}))
        check_capabilities(strategy, model, self.annealing)
        return strategy

    def _settings(self) -> engine.Settings:
        return engine.Settings(
            max_iter=self.max_iter,
            tol=self.tol,
            batch_size=self.batch_size,
            learning_offset=self.learning_offset,
            learning_decay=self.learning_decay,
        )

    def _check_weights(
        self, sample_weight: Any, X: Any, allow_all_zero: bool = False
    ) -> np.ndarray | None:
        if sample_weight is None:
            return None
        return _check_sample_weight(
            sample_weight,
            X,
            dtype=np.float64,
            ensure_non_negative=True,
            allow_all_zero_weights=allow_all_zero,
        )

    # Fitting

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Fit the model: anneal, then plain variational inference to convergence.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training data.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of 2 counts a row twice.

        Returns
        -------
        self : estimator instance
            The fitted estimator.
        """
        with one_blas_thread():
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> BaseAnnealed:
        warm = self.warm_start and hasattr(self, "_inference")
        X = self._validate_data(X, reset=not warm)
        weights = self._check_weights(sample_weight, X, allow_all_zero=True)
        if weights is not None and not weights.any():
            raise ValueError(
                "All sample weights are zero, so there is nothing to fit. Give a positive weight "
                "to at least one row, or leave sample_weight out."
            )
        units = self._make_units(X, weights)
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        watch = _Watch.of(self, 1 if warm else self.n_init, X, y, metadata)
        results = self._go_on(units, watch) if warm else self._start_anew(X, units, watch)
        bounds = np.array([trace.final for _, _, trace in results])
        best = int(np.argmax(np.where(np.isnan(bounds), -np.inf, bounds)))
        ctx, strategy, trace = results[best]
        if warm:
            trace.lower_bounds[:0] = list(self.lower_bounds_)
            trace.temperatures[:0] = list(self.temperatures_)
        self._keep(_Inference(ctx, strategy, units.total_weight, self.n_components), trace)
        self.restart_lower_bounds_ = bounds
        self.best_restart_ = best
        if watch is not None:
            watch.end(ctx)
        self._warn(ctx, trace)
        return self

    def _start_anew(self, X: Any, units: Units, watch: _Watch | None) -> list[_Result]:
        model = self._make_model(X)
        strategy = self._strategy(model)
        self._load_kernels(model)
        random_state = check_random_state(self.random_state)
        summary = model.summary(units)
        model = model.resolved(summary)
        prior = model.prior(summary)
        units = units.placed(summary)
        sample = units
        if self.batch_size is not None:
            sample = units.subset(max(_SUBSET, 10 * self.batch_size), random_state)
        # The first start makes the draws of the class that this one replaces, in their order;
        # everything else hangs on one number drawn after it.
        start = model.init(sample, summary, prior, random_state) if strategy.needs_start else None
        problem = _Problem(
            model,
            strategy,
            prior,
            summary,
            units,
            sample,
            self._settings(),
            seed_sequence(random_state),
        )
        single = self.n_init == 1
        size = units.n_units
        if single and self.batch_size is not None:
            size = min(size, self.batch_size)
        worth = size * model.operations_per_unit() >= _WORTH_THREADS[single]
        with Workers(self.n_jobs if worth else 1, shared_memory=watch is not None) as workers:
            inner, outer = (workers, SEQUENTIAL) if single else (SEQUENTIAL, workers)
            tasks = [
                (problem, i, start if i == 0 else None, inner, watch) for i in range(self.n_init)
            ]
            results = outer.map(_restart, tasks)
        return [result for result in results if result is not None]

    def _go_on(self, units: Units, watch: _Watch | None) -> list[_Result]:
        """Plain inference from the fitted parameters."""
        kept = self._checked_inference("warm_start=True goes on from a fit")
        ctx = kept.context()
        self._load_kernels(ctx.model)
        monitor = None if watch is None else watch.begin(0, self.max_iter)
        with Workers(self.n_jobs, shared_memory=watch is not None) as workers:
            units = units.placed(ctx.summary)
            trace = engine.fit(ctx, engine.PLAIN, units, self._settings(), workers, monitor)
        return [(ctx, kept.strategy, trace)]

    def _checked_inference(self, what: str) -> _Inference:
        kept = self._inference
        if kept.n_components != self.n_components:
            raise ValueError(
                f"{what} with n_components={kept.n_components}, but n_components="
                f"{self.n_components} now. Restore the number of components, or fit anew with "
                "warm_start=False."
            )
        return kept

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the model with one batch of a stream.

        The first batch fixes the priors that depend on data. A schedule's clock moves on by the
        batch's share of ``total_samples``, or by one pass per call where that is not given.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The batch.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. A batch of weight zero changes nothing.

        Returns
        -------
        self : estimator instance
            The updated estimator.

        Raises
        ------
        ValueError
            If the batch is refused; the estimator is then as it was before.
        """
        before = dict(self.__dict__)
        try:
            with one_blas_thread():
                return self._partial_fit(X, sample_weight)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _partial_fit(self, X: Any, sample_weight: Any) -> BaseAnnealed:
        first = not hasattr(self, "_inference")
        X = self._validate_data(X, reset=first, ensure_min_samples=1)
        # A later batch of weight zero has nothing to say; a first one cannot begin a stream.
        weights = self._check_weights(sample_weight, X, allow_all_zero=not first)
        units = self._make_units(X, weights)
        weight = units.total_weight
        if first:
            inference = self._open_stream(X, units)
            bounds, temperatures = [], []
        elif weight == 0:
            return self
        else:
            inference = copy.copy(self._checked_inference("partial_fit goes on from parameters"))
            inference.ctx = ctx = inference.context()
            summary = ctx.summary.merge(ctx.model.summary(units), inference.seen, weight)
            ctx.summary, inference.seen = summary, inference.seen + weight
            bounds, temperatures = list(self.lower_bounds_), list(self.temperatures_)
        ctx = inference.ctx
        total = self.total_samples or inference.seen
        ctx.summary = replace(ctx.summary, weight=total)
        ctx.scale = total / weight
        passes = 1.0 if self.total_samples is None else weight / self.total_samples
        worth = units.n_units * ctx.model.operations_per_unit() >= _WORTH_THREADS[True]
        with Workers(self.n_jobs if worth else 1) as workers:
            bound, temperature = engine.stream(
                ctx,
                inference.strategy,
                units.placed(ctx.summary),
                self._settings(),
                workers,
                passes=passes,
            )
        trace = engine.Trace([*bounds, bound], [*temperatures, temperature])
        finite = [value for value in trace.lower_bounds if np.isfinite(value)]
        trace.final = float(finite[-1]) if finite else np.nan
        self._keep(inference, trace)
        return self

    def _open_stream(self, X: Any, units: Units) -> _Inference:
        model = self._make_model(X)
        strategy = self._strategy(model)
        self._check_first_batch(units)
        self._load_kernels(model)
        random_state = check_random_state(self.random_state)
        summary = model.summary(units)
        model = model.resolved(summary)
        prior = model.prior(summary)
        seen = units.total_weight
        summary = replace(summary, weight=self.total_samples or seen)
        units = units.placed(summary)
        start = model.init(units, summary, prior, random_state) if strategy.needs_start else None
        problem = _Problem(
            model,
            strategy,
            prior,
            summary,
            units,
            units,
            self._settings(),
            seed_sequence(random_state),
        )
        ctx, strategy = problem.open(0, start)
        return _Inference(ctx, strategy, seen, self.n_components)

    def _keep(self, inference: _Inference, trace: engine.Trace) -> None:
        """Set the fitted attributes."""
        ctx = inference.ctx
        ctx.report = ctx.clean_target = None
        ctx.q_start = {}
        self._inference = inference
        self.annealing_ = inference.strategy
        self.lower_bound_ = trace.final
        self.lower_bounds_ = np.array(trace.lower_bounds)
        self.temperatures_ = np.array(trace.temperatures)
        self.n_iter_ = len(trace.lower_bounds)
        self.converged_ = trace.converged
        for name, value in self._fitted_attributes(ctx).items():
            setattr(self, name, value)

    def _warn(self, ctx: Context, trace: engine.Trace) -> None:
        if not trace.converged and not trace.stopped and self.max_iter > 0:
            warnings.warn(
                f"The kept fit did not converge in max_iter={self.max_iter} passes at T = 1. "
                "Increase max_iter or tol, or check for degenerate data.",
                ConvergenceWarning,
                stacklevel=4,
            )
        pairs = ctx.model.coinciding(ctx.q, ctx.summary, ctx.prior)
        if pairs:
            warnings.warn(
                f"Components coincide (for example {pairs[0][0]} and {pairs[0][1]}): a "
                "symmetric solution that plain inference cannot leave. Lower the initial "
                "temperature or give the annealing jitter, start from another init_params or "
                "random_state, or ask for fewer components.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _load_kernels(self, model: ConjugateModel) -> None:
        name = f"{__package__}.kernels.{model.kernel_module}"
        if self.verbose and name not in sys.modules:
            print(
                f"{type(self).__name__}: loading kernels; the first time on a machine they are "
                "compiled, which takes some seconds.",
                flush=True,
            )
        importlib.import_module(name)

    def __sklearn_is_fitted__(self) -> bool:
        # Validation sets attributes with a trailing underscore before a fit can fail.
        return hasattr(self, "_inference")

    def _context(self) -> Context:
        """The fitted parameters, for prediction."""
        check_is_fitted(self)
        return self._inference.ctx


@dataclass
class _Inference:
    """What a fitted estimator needs to go on: the context, the method, the weight seen."""

    ctx: Context
    strategy: Annealing
    seen: float
    n_components: int

    def context(self) -> Context:
        """A copy of the context that can be changed without touching this one."""
        ctx = copy.copy(self.ctx)
        ctx.rng = copy.deepcopy(ctx.rng)
        ctx.state = dict(ctx.state)
        ctx.scale = 1.0
        return ctx


_Result = tuple[Context, Annealing, engine.Trace]


class _Problem(NamedTuple):
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
            ctx.q = self.model.init(self.sample, self.summary, self.prior, random_state)
        sample = self.sample.spread(_ROWS_FOR_CALIBRATION)
        rehearse = partial(engine.rehearse, ctx, sample, self.settings)
        strategy = self.strategy.calibrate(ctx, sample, rehearse)
        ctx.state |= strategy.initial_state(ctx)
        return ctx, strategy


def _restart(
    problem: _Problem, index: int, start: Natural | None, workers: Workers, watch: _Watch | None
) -> _Result | None:
    if watch is not None and watch.stopped:
        return None
    ctx, strategy = problem.open(index, start)
    monitor = None
    if watch is not None:
        finish = problem.settings.max_iter if strategy.finish else 0
        monitor = watch.begin(index, strategy.schedule_length() + finish)
    trace = engine.fit(ctx, strategy, problem.units, problem.settings, workers, monitor)
    if watch is not None:
        watch.end_restart(index, ctx)
    return ctx, strategy, trace


class _Watch:
    """Who looks on while a fit runs: callbacks, and the printer of ``verbose``."""

    def __init__(self, estimator: BaseAnnealed, callbacks: FitCallbacks | None):
        self.estimator = estimator
        self.callbacks = callbacks

    @classmethod
    def of(
        cls, estimator: BaseAnnealed, n_restarts: int, X: Any, y: Any, metadata: dict[str, Any]
    ) -> _Watch | None:
        """The watch of a fit, None if nobody looks on."""
        callbacks = None
        if getattr(estimator, "_skl_callbacks", []):
            callbacks = FitCallbacks(estimator, n_restarts, X, y, metadata)
        elif not estimator.verbose:
            return None
        return cls(estimator, callbacks)

    @property
    def stopped(self) -> bool:
        return self.callbacks is not None and self.callbacks.stopped

    def begin(self, index: int, max_passes: int) -> engine.Monitor:
        """What the engine calls after every pass of a restart."""
        if self.callbacks is not None:
            self.callbacks.begin_restart(index, max_passes)

        def after_pass(ctx: Context, trace: engine.Trace) -> bool:
            n = len(trace.lower_bounds)
            if self.estimator.verbose and n % self.estimator.verbose_interval == 0:
                print(
                    f"restart {index}, pass {n}: lower bound {trace.lower_bounds[-1]:.6f}, "
                    f"temperature {trace.temperatures[-1]:.4f}",
                    flush=True,
                )
            return self.callbacks is not None and self.callbacks.end_pass(
                index, self._attributes(ctx)
            )

        return after_pass

    def end_restart(self, index: int, ctx: Context) -> None:
        if self.callbacks is not None:
            self.callbacks.end_restart(index, self._attributes(ctx))

    def end(self, ctx: Context) -> None:
        if self.callbacks is not None:
            self.callbacks.end(self._attributes(ctx))

    def _attributes(self, ctx: Context) -> Callable[[], dict[str, Any]]:
        """The fitted attributes of the moment, built only for callbacks that ask."""

        def build() -> dict[str, Any]:
            kept = replace(ctx, report=None, clean_target=None)
            inference = _Inference(kept, engine.PLAIN, 0.0, self.estimator.n_components)
            return {"_inference": inference, **self.estimator._fitted_attributes(kept)}

        return build


def has_unit_temperatures(estimator: BaseAnnealed) -> bool:
    """Whether an estimator's annealing gives every data point a temperature."""
    method: Any = getattr(estimator, "annealing_", estimator.annealing)
    if isinstance(method, str):
        method = ANNEALING.get(method, Annealing)
    return bool(method.has_unit_temperatures)
