"""The interface of estimators to the code that fits, streams and predicts."""

from __future__ import annotations

import copy
import inspect
import re
from abc import ABCMeta, abstractmethod
from dataclasses import replace
from numbers import Real
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._compat import CallbackSupportMixin
from .._stack import warn
from ..annealing import ANNEALING, Annealing, Context, check_capabilities
from ..annealing._documentation import LinkedDocumentation
from ..data.parted_units import PartedUnits
from ..data.units import U, Units
from ..inference import loop
from ..inference.messages import number
from ..inference.progress import Settings, Trace
from ..inference.stopping import RiseOfBound
from ..kernels import load
from ..models._base import Model
from ..models._componentwise import Given
from ..search.moves import Continuation, Extension
from ..search.search import Found
from ._attributes import Attributes, ExplainedAttributes
from ._given_starts import gives_nothing
from ._number import ChoosesNumber
from ._part_predictions import score_of
from ._part_sources import Inputs
from ._shards import Shards, in_parts
from ._state import Inference, warn_of_unfinished_stream, with_absent
from ._validation import check_parameters, checked_weights

M = TypeVar("M", bound=Model)
"""The model of an estimator."""

D = TypeVar("D")
"""The form in which an estimator keeps the X of a user, once it has been validated."""

# Values that the parameter ``learning_decay`` can have where streams begin with a fit. Steps as
# large as those of updates alone would soon replace the fit by the last few batches, so that "auto"
# means two values.
DECAY_OR_AUTO = [Interval(Real, 0.0, 1.0, closed="both"), StrOptions({"auto"})]
EQUAL_RATES = 0.0, 1.0
"""τ and κ of updates after the fit of a stream: the step of a batch is its share of all data."""


class Interface(
    ChoosesNumber,
    LinkedDocumentation,
    ExplainedAttributes,
    CallbackSupportMixin,
    BaseEstimator,
    Generic[D, U, M],
    metaclass=ABCMeta,
):
    """Base class with the methods that a subclass provides, and those that all estimators share.

    A subclass defines its parameters, :meth:`_make_model`, :meth:`_make_units` and
    :meth:`_fitted_attributes`. It names three types: D of data after their validation, U of units
    in memory, and M of models.
    """

    # Part of the error message of a fit whose parameters left their domain: why, and what to do.
    _advice: str = (
        "the parameters left their domain: scales of the data differ too much for floating-point "
        "numbers. Rescale X, or give stronger priors."
    )
    # Part of the warning of a fit that has not converged: what to do.
    _advice_converging: str = "Increase max_iter or tol, or check for degenerate data."
    # Part of the warning of components that coincide: what to do.
    _advice_coinciding: str = (
        "Ask for fewer components, start from another random_state, or, if the method anneals, "
        "lower its initial temperature or give it jitter."
    )

    # Parameters of the estimator that define the model. They must not change while the fitted
    # parameters are kept.
    _model_parameters: tuple[str, ...] = ("n_components",)

    # Further parameters that must not change within a stream. A fit that goes on from the last one
    # reads them anew.
    _stream_parameters: tuple[str, ...] = ("annealing",)

    # The names of the parameters that give a start, or a part of it.
    _start_parameters: tuple[str, ...] = ()

    # Attributes that describe the data of a fit. After a later batch of a stream, those of an
    # earlier fit would belong to other parameters, so that they are removed.
    _attributes_of_fits: tuple[str, ...] = ()

    # The value of learning_decay="auto", and, after the fit of a stream, the values of
    # learning_offset, which None leaves as it is, and of learning_decay.
    _usual_decay: float = 0.6
    _rates_after_fit: tuple[float | None, float] = (None, 0.8)

    # The value of effort="auto", by the name of the annealing method.
    _efforts: dict[str, float] = {"reheating": 4.0}

    # The line of ``verbose`` about the data: their units, and the observations of the units.
    _data_in_words: str = "{observations} rows of {columns} columns"

    # The modules with the compiled kernels of the model. All fits need the first one.
    _kernel_modules: tuple[str, ...] = ()

    # Methods that a subclass provides or may override

    @abstractmethod
    def _validate_data(self, X: Any, *, reset: bool, ensure_min_samples: int = 2) -> D:
        """X as an array that the model can read; ``reset`` is True in the first call of a fit."""

    @abstractmethod
    def _make_model(self, X: D, units: U) -> M:
        """Make the model, and check the hyperparameters whose validity depends on X."""

    @abstractmethod
    def _make_units(self, X: D, sample_weight: np.ndarray | None) -> U:
        """The data points of X."""

    @abstractmethod
    def _fitted_attributes(self, ctx: Context) -> Attributes:
        """The model's own fitted attributes, by name."""

    def _check_parameters(self, X: D, units: U) -> None:
        """Refuse parameters in a later batch of a stream that a first batch would refuse."""
        self._strategy(self._make_model(X, units))

    def _make_model_of_stream(self, X: D, units: U) -> M:
        """Make the model with which a stream begins."""
        return self._make_model(X, units)

    def _model_of_stream(self, model: M) -> M:
        """The model with which a stream goes on, given that of a fit."""
        return model

    def _check_first_batch(self, units: U, model: M) -> None:
        """Refuse a first batch of a stream from which the priors cannot be determined."""

    # Parameters

    def _validate_params(self) -> None:
        check_parameters(self)

    def _strategy(self, model: M) -> Annealing:
        """The annealing method with the model's recommendations filled in."""
        method = self.annealing
        if isinstance(method, str):
            method = ANNEALING[method]()
        check_parameters(method)
        strategy = method.resolve(model.recommended.get(method_name(method), {}))
        check_parameters(strategy)
        check_capabilities(strategy, model, self.annealing, type(self).__name__)
        self._start_for(model, strategy)
        return strategy

    def _batch_size_of(self, units: Units) -> int | None:
        """Number of data points per update, if there are so many in all; None means all."""
        return self.batch_size

    def _stopping_rule(self) -> RiseOfBound:
        """The rule that decides when plain inference has converged."""
        return RiseOfBound(self.tol)

    def _settings(self, units: Units) -> Settings:
        automatic = self.learning_decay == "auto"
        return Settings(
            max_iter=self.max_iter,
            stop=self._stopping_rule(),
            batch_size=self._batch_size_of(units),
            learning_offset=self.learning_offset,
            learning_decay=self._usual_decay if automatic else self.learning_decay,
            rates_after_fit=self._rates_after_fit if automatic else None,
        )

    def _fixed_parameters(self) -> dict[str, object]:
        """The parameters that must stay as they are while the fitted parameters are kept."""
        # They are copied, because setting a nested parameter changes the ``annealing`` instance.
        names = (*self._stream_parameters, *self._model_parameters)
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

    # Starts that users give

    def _given_start(self, model: M) -> Given:
        """Check the given start and return it in the form that the model reads."""
        return {}

    def _asked_start(self) -> Given:
        """The parameters that give a start; a dictionary without any value gives none."""
        asked = {name: getattr(self, name) for name in self._start_parameters}
        return {
            name: None if isinstance(value, dict) and gives_nothing(value) else value
            for name, value in asked.items()
        }

    def _start_for(self, model: M, strategy: Annealing) -> Given | None:
        """The given start, after a check that the fit can begin at it; None if none is given."""
        asked = self._asked_start()
        given = [name for name, value in asked.items() if value is not None]
        if not given:
            return None
        self._refuse_number_with(**asked)
        if not strategy.needs_start:
            raise ValueError(
                f"annealing={self.annealing!r} starts at random parameters, which leaves "
                f"{given[0]} without a use. Give the method start='init_params', or leave "
                f"{given[0]} out."
            )
        return self._given_start(model)

    # Weights

    def _check_weights(
        self, sample_weight: ArrayLike | None, X: Any, allow_nothing: bool = False
    ) -> np.ndarray | None:
        return checked_weights(sample_weight, X, allow_nothing)

    def _present(self, X: D, weights: np.ndarray | None) -> tuple[D, np.ndarray | None]:
        """X, as it was validated, and its weights, without the data points of weight zero.

        A data point of weight zero is absent: it must not even say which values there are. It is
        therefore left out before anything is computed. Nothing is left out if all weights are zero.
        """
        if weights is None or weights.all() or not weights.any():
            return X, weights
        positive = weights > 0
        return self._chosen(X, positive), weights[positive]

    def _chosen(self, X: Any, chosen: np.ndarray) -> D:
        """Those data points of X, as it was validated, that a mask chooses."""
        return X[chosen]

    def _counted(self, X: Any, sample_weight: ArrayLike | None) -> tuple[Any, np.ndarray | None]:
        """X as it was given, and its weights, without the rows of weight zero."""
        if isinstance(X, Shards):
            np.asarray(X)  # refuses data in parts, whose weights are no array
        weights = self._check_weights(sample_weight, X)
        if weights is None or weights.all():
            return X, weights
        rows = X.tocsr() if issparse(X) else X
        return _safe_indexing(rows, np.flatnonzero(weights)), weights[weights > 0]

    # Data

    def _check_training(self, units: U) -> None:
        """Refuse data that the model cannot be fitted to."""

    def _callback_data(self, given: object, X: Any) -> Any:
        """The X that callbacks receive: the one that the user gave, or the validated one."""
        return X

    def _words_for(self, units: Units) -> str:
        """The data in words, for the first line of ``verbose``."""
        text = self._data_in_words.format(
            units=number(units.n_units),
            observations=number(units.n_observations),
            columns=number(getattr(self, "n_features_in_", 0)),
        )
        return re.sub(r"\b1 (\w+)s\b", r"1 \1", text)

    def _complete_fit(self, ctx: Context, units: U | PartedUnits[U], given: Any) -> None:
        """Set the fitted attributes that are computed from the training data again.

        ``given`` is the validated X with its rows of weight zero, which ``units`` lack, or the
        parts that the user gave.
        """

    def _load_kernels(self) -> None:
        if self._kernel_modules:
            load(self._kernel_modules[0])

    # Data in parts

    def _part(self, inputs: Inputs) -> Any:
        """A part, and what is known of its rows, as :meth:`_validate_data` takes them."""
        return inputs.X

    def _weights_of_part(self, weights: ArrayLike | None, X: ArrayLike) -> ArrayLike | None:
        """The sample weights of a part as :meth:`_check_weights` takes them."""
        return weights

    @property
    def _reads_targets(self) -> bool:
        """Whether parts have targets in fits; the y of other estimators is ignored."""
        return False

    @property
    def _scores_targets(self) -> bool:
        """Whether scores of parts read targets."""
        return self._reads_targets

    def _reader(self) -> Self:
        """An estimator with the same parameters, which validates parts for this one."""
        reader = type(self)(**self.get_params(deep=False))
        if self._chooses_number:
            # Categories are packed for a number of components, which an earlier fit may have found.
            reader._number_of_trial = self._number
        return reader

    def _facts_of_part(self, inputs: Inputs) -> Any:
        """Return facts on a part, which has rows, that a fit needs before it begins, or None."""
        return None

    def _know_facts(self, of_parts: list[Any]) -> list[np.ndarray] | None:
        """Note what :meth:`_facts_of_part` returned for each part; it is None without rows.

        Returns the numbers of the rows of each part that starts need, or None if any rows will do.
        """
        return None

    def _keys_of_part(self, X: ArrayLike) -> np.ndarray | None:
        """Return the keys that no two parts may share, such as ids of users; None without keys."""
        return None

    def _check_parts(self) -> None:
        """Refuse parameters without a number that no single part determines."""

    # Results

    @property
    def _n_features_out(self) -> int:
        """Number of columns that ``transform`` returns."""
        n_components: int = self._quiet_context().model.n_components
        return n_components

    def _keep(
        self,
        inference: Inference,
        method: Annealing,
        trace: Trace,
        found: Found | None = None,
    ) -> None:
        """Set the fitted attributes; a stream has no restarts and no moves."""
        ctx = inference.ctx
        self._inference = inference
        self._forget_others(inference.fixed)
        for name in self._attributes_of_fits:
            self.__dict__.pop(name, None)
        self.annealing_ = method
        self.lower_bound_ = trace.final
        self.lower_bounds_ = np.array(trace.lower_bounds)
        self.temperatures_ = np.array(trace.temperatures)
        self.n_iter_ = len(trace.lower_bounds)
        self.converged_ = trace.converged
        self.n_passes_ = self.n_iter_ if found is None else found.all_passes
        restarts = [trace.final] if found is None else found.restart_lower_bounds
        self.restart_lower_bounds_ = np.array(restarts)
        self.best_restart_ = 0 if found is None else found.best_restart
        attempts = [] if found is None else found.attempts
        self.search_results_ = {
            "move": np.array([a.move for a in attempts], dtype=object),
            "n_before": np.array([a.n_before for a in attempts], dtype=int),
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

    def _snapshot(self, ctx: Context, units: U | PartedUnits[U]) -> Attributes:
        """The fitted attributes at one moment of a fit, for callbacks that need them."""
        kept = with_absent(replace(ctx, report=None, known=None, deviation=None))
        inference = Inference(kept, loop.PLAIN, 0.0, self._fixed_parameters())
        # Callbacks set these one by one, in a copy that may have the results of an earlier fit, of
        # which the end of a fit alone computes some.
        return {
            "_results": frozenset(),
            **{name: None for name in self._attributes_of_fits if name in vars(self)},
            "_inference": inference,
            **self._fitted_attributes(kept),
        }

    def _context(self) -> Context:
        """The context of the last fit, with the fitted parameters, for predictions."""
        ctx = self._quiet_context()
        if self._inference.is_annealing:
            warn_of_unfinished_stream(self._inference, self.temperatures_[-1], self.total_samples)
        return ctx

    def _quiet_context(self) -> Context:
        """The context of the last fit, for validation."""
        if "_inference" not in vars(self):
            check_is_fitted(self)
        return self._inference.ctx

    def _score(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None, **beside: Any
    ) -> float:
        """The score of data in memory or in parts, with what else is known of rows."""
        if in_parts(X):
            self._context()
            return score_of(self, Inputs(X, y, sample_weight, **beside))
        return self._scored(X, y, sample_weight, **beside)[0]

    def _scored(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[float, float]:
        """The score of data in memory, which is a mean, and the total weight of its terms."""
        X, weights = self._counted(X, sample_weight)
        scores = self.score_samples(X)
        total = len(scores) if weights is None else weights.sum()
        return float(np.average(scores, weights=weights)), float(total)

    # Warnings

    def _warn(self, ctx: Context, trace: Trace) -> None:
        results = self.search_results_
        if not trace.converged and not trace.stopped and self.max_iter > 0:
            further = np.isin(results["move"], [Continuation.name, Extension.name])
            more = int(results["n_passes"][further].sum())
            nor = f", nor in {more} more" if more else ""
            warn(
                f"The kept fit did not converge in max_iter={self.max_iter} passes at T = 1{nor}. "
                f"{self._advice_converging}",
                ConvergenceWarning,
            )
        # A default that anneals gives way to plain inference without advice to choose otherwise.
        default = inspect.signature(type(self)).parameters["annealing"].default
        plain = (results["kept"] & (results["move"] == "plain")).any()
        if plain and self.annealing != default:
            warn(
                f"Annealing by {type(self.annealing_).__name__} ended below plain inference, "
                "whose optimum was taken instead. Lower its temperature or noise, or give "
                "annealing='reheating'.",
                ConvergenceWarning,
            )
        self._warn_of_coincidence(ctx)
        self._warn_of_scales(ctx.summary)

    def _warn_of_scales(self, summary: Any) -> None:
        """Warn of training data whose scale does not suit a parameter."""

    def _warn_of_coincidence(self, ctx: Context) -> None:
        pairs = ctx.model.coinciding(ctx.q, ctx.summary, ctx.prior)
        if pairs:
            warn(
                f"Components coincide (for example {pairs[0][0]} and {pairs[0][1]}): a "
                f"symmetric solution that plain inference cannot leave. {self._advice_coinciding}",
                ConvergenceWarning,
            )


def method_name(method: Annealing) -> str:
    """The name of an annealing method; empty for a method of the user's own."""
    return next((name for name, cls in ANNEALING.items() if isinstance(method, cls)), "")


def tempers_units(method: Any) -> bool:
    """Whether a method of annealing, or the method of this name, has a temperature per unit."""
    if isinstance(method, str):
        method = ANNEALING.get(method, Annealing)
    return bool(method.has_unit_temperatures)


def has_unit_temperatures(estimator: Interface) -> bool:
    """Whether the annealing of an estimator has one temperature per data point."""
    return tempers_units(getattr(estimator, "annealing_", estimator.annealing))
