"""The base class of all estimators: their common parameters, and what files of them hold."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions

from .._version import __version__
from ..annealing import ANNEALING, Annealing
from ..data.units import U
from . import _persistence
from ._attributes import plain
from ._fitting import Fits
from ._interface import D, M
from ._reordering import Reorders
from ._streaming import Streams
from ._validation import MOST_WEIGHT, did_you_mean


class BaseAnnealed(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    Fits[D, U, M],
    Streams[D, U, M],
    Reorders[D, U, M],
):
    """Base class of all estimators with a parameter ``annealing``.

    :class:`Interface` has what a subclass defines, :class:`Fits` what ``fit`` does with it,
    :class:`Streams` what ``partial_fit`` does, and :class:`Reorders` other orders of components.
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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def set_params(self, **params: Any) -> Self:
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

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        if "_inference" in state:
            state = {
                **{name: plain(value) for name, value in state.items()},
                "_inference": _persistence.written(state["_inference"]),
                _persistence.VERSION: __version__,
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_inference" in state:
            state = dict(state)
            _persistence.check_version(type(self).__name__, state.pop(_persistence.VERSION, None))
            state["_inference"] = _persistence.read(state["_inference"])
        super().__setstate__(state)
        self._protect()

    def __sklearn_is_fitted__(self) -> bool:
        # Attributes with a trailing underscore do not show that a fit succeeded, because validation
        # sets some of them first.
        return hasattr(self, "_inference")
