"""The state that a fitted estimator keeps, its warnings, and comparisons with earlier values."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Number
from types import FunctionType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from .._stack import warn
from ..annealing import Annealing, Context
from ..data.fingerprints import fingerprint
from ..data.units import Units
from ..inference.kept import Kept
from ..inference.replay import Replayed
from ..models._absent_columns import OmitsColumns


@dataclass
class Inference:
    """The private state of a fitted estimator, with which it predicts and continues."""

    ctx: Context  # at the end of the last fit or call, with the fitted parameters
    strategy: Annealing  # the method with which a stream continues
    seen: float  # weight of the data so far
    fixed: dict[str, object]  # the parameters of the estimator that must not change
    annealed: int = 0  # entries of the history (one per pass or call) that belong to the schedule
    checked: float = 0.0  # weight of the data at the last check for components that coincide
    warned: tuple[str, ...] = ()  # warnings that were given already, and are not repeated
    kept: Kept | None = None  # data points of a stream for its fits, if it will have any
    replayed: Replayed | None = None  # rows of a stream that are seen again, if any are
    fitted: bool = False  # whether a fit has found the parameters that a stream updates

    @property
    def follows_fit(self) -> bool:
        """Whether the next update of a stream repeats the last step of its fit."""
        return self.kept is not None and self.kept.is_fresh

    @property
    def is_annealing(self) -> bool:
        """Whether the schedule of a stream has not ended yet."""
        return bool(self.strategy.finish and self.strategy.is_annealing(self.ctx.state))

    def first_time(self, what: str) -> bool:
        """Whether a warning has not been given yet; from now on it has."""
        first = what not in self.warned
        if first:
            self.warned = (*self.warned, what)
        return first

    def context(self) -> Context:
        """A copy of the context that can be changed without touching this one."""
        ctx = copy.copy(self.ctx)
        ctx.rng = copy.deepcopy(ctx.rng)
        ctx.state = dict(ctx.state)
        ctx.scale = 1.0
        return ctx

    def identity(self) -> str:
        """Return a hash of everything on which the continuation of a fit depends."""
        ctx = self.ctx
        # Views are whole arrays when they are read from a file, and the hash depends on strides.
        arrays = [
            {key: np.array(value, order="C") for key, value in each.items()}
            for each in (ctx.q, ctx.prior)
        ]
        return fingerprint(arrays, ctx.state, ctx.rng.bit_generator.state)


def warn_of_priors(inference: Inference) -> bool:
    """Warn, once, if priors keep their values that the data should have determined.

    Whether they do is returned.
    """
    reason = inference.ctx.summary.why_kept(inference.ctx.model)
    if reason is not None and inference.first_time("priors"):
        warn(reason)
    return reason is not None


def warn_of_light_data(inference: Inference, units: Units) -> None:
    """Warn if the data of a fit weigh too little for the priors that are to be learned."""
    light = units.n_observations < 1 and units.total_weight < 1
    # Optimizers of gradients take steps of one size whatever data weigh.
    if warn_of_priors(inference) or not light or inference.ctx.model.update_rule == "gradient":
        return
    warn(
        f"The sample weights sum to {units.total_weight:.2g}, but a weight is a number of copies: "
        "the fit sees less than one observation, stays near its priors, and learns none of them. "
        "Multiply sample_weight by a constant that makes its mean 1.",
    )


def warn_of_unfinished_stream(
    inference: Inference, temperature: float, total: float | None
) -> None:
    """Warn, once, of the use of a stream whose schedule has not ended.

    If ``total``, its ``total_samples``, is far above the number of data points that come, it never
    ends.
    """
    if inference.first_time("annealing"):
        hot = f" at a temperature of {temperature:.3g}" if temperature > 1 else ""
        total = total or inference.ctx.summary.weight
        warn(
            f"The stream is used{hot} before its annealing schedule has ended: "
            f"{inference.seen:g} of total_samples={total:g} have come, and the schedule ends after "
            "a tenth of them. If no more come, begin anew with "
            "total_samples as the number that do; set_params(total_samples=None) ends the schedule "
            "with the next partial_fit.",
        )


def with_absent(ctx: Context) -> Context:
    """The context with parameters of all columns, also of those that the data do not have."""
    if not isinstance(ctx.model, OmitsColumns):
        return ctx
    model, q, prior = ctx.model.with_absent(ctx.q, ctx.prior)
    return replace(ctx, model=model, q=q, prior=prior)


def described_value(value: Any) -> str:
    """A parameter value as text; two values have the same text only if they are equal."""
    if isinstance(value, BaseEstimator):
        inner = {name: described_value(v) for name, v in value.get_params(deep=False).items()}
        return f"{type(value).__name__}({inner})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(described_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {described_value(one)}' for key, one in value.items())}}}"
    if np.ndim(value):
        return f"an array with the hash {fingerprint(np.asarray(value))}"
    if isinstance(value, np.generic | np.ndarray):
        # The text of an array has eight digits, and that of a number depends on NumPy's version.
        value = value.item()
    if value is None or isinstance(value, str | Number):
        return repr(value)
    if isinstance(value, np.random.RandomState):
        value = value.get_state(legacy=False)
        return f"a RandomState with the hash {fingerprint(value)}"
    return f"an object of class {type(value).__name__} with the hash {fingerprint(value)}"


def same(old: Any, new: Any) -> bool:
    """Whether two values of a parameter are equal.

    They may be numbers, arrays, estimators, lists and dictionaries of all of these, or objects of
    other classes, which are equal if what they hold is: their own ``==`` may compare arrays, which
    has no truth value, or may distinguish copies.
    """
    if old is new:
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, BaseEstimator) and isinstance(new, BaseEstimator):
        return type(old) is type(new) and same(old.get_params(), new.get_params())
    if isinstance(old, str) or isinstance(new, str):
        return type(old) is type(new) and old == new
    if isinstance(old, list | tuple) or isinstance(new, list | tuple):
        if not all(isinstance(v, list | tuple) or np.ndim(v) for v in (old, new)):
            return False
        one, other = (v if isinstance(v, list | tuple) else np.asarray(v) for v in (old, new))
        return len(one) == len(other) and all(map(same, one, other))
    if np.ndim(old) or np.ndim(new) or (isinstance(old, Number) and isinstance(new, Number)):
        one, other = old, new
        old, new = np.asarray(old), np.asarray(new)
        if not old.ndim and not new.ndim and object in (old.dtype, new.dtype):
            # Integers that have no place in an array, and objects that are no array for NumPy.
            numbers = isinstance(one, Number) and isinstance(other, Number)
            return bool(one == other) if numbers else _hold_the_same(one, other)
        if old.dtype != object and new.dtype != object:
            both_float = old.dtype.kind in "fc" and new.dtype.kind in "fc"
            return np.array_equal(old, new, equal_nan=both_float)
        return old.shape == new.shape and all(map(same, old.flat, new.flat))
    return type(old) is type(new) and _hold_the_same(old, new)


def _hold_the_same(old: object, new: object) -> bool:
    try:
        return fingerprint(old) == fingerprint(new)
    except pickle.PicklingError:
        # Functions without a name, which copies of a value share, have no hash.
        return same(_held(old), _held(new))


def _held(value: Any) -> list:
    """Return the constructor of an object and its arguments; for functions, their identity."""
    if isinstance(value, FunctionType):
        return [id(value)]
    made_by, *rest = value.__reduce_ex__(4)
    return [id(made_by), *(part for part in rest if not isinstance(part, Iterator))]
