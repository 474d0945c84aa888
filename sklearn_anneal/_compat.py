"""The differences between versions of Python and of other packages, in one place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import sklearn
from sklearn.utils.validation import _check_sample_weight

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

try:
    from cloudpickle import CloudPickler
except ImportError:
    # joblib before 1.6 brings a copy of its own.
    from joblib.externals.cloudpickle import CloudPickler

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands for the mixin of scikit-learn 1.9, the first version that has callbacks."""

        def set_callbacks(self, *callbacks: object) -> Self:
            """Refuse callbacks."""
            raise NotImplementedError(
                "Callbacks need scikit-learn 1.9 or later, and this is scikit-learn "
                f"{sklearn.__version__}. Update it, or use verbose to follow a fit."
            )

    def with_callbacks(fit_method: Callable) -> Callable:
        """Return a method that does the same, because there are no callbacks to tear down.

        It has one frame on the stack, as that of scikit-learn 1.9, from which warnings count.
        """

        @wraps(fit_method)
        def fit(*arguments: object, **keywords: object) -> object:
            return fit_method(*arguments, **keywords)

        return fit


__all__ = [
    "PROPERTIES_SHARE_LOCKS",
    "CallbackSupportMixin",
    "CloudPickler",
    "check_sample_weight",
    "has_pass_builders",
    "is_tried_numba",
    "with_callbacks",
]

# The latest version of numba that our compilers have been tried with.
_LATEST_NUMBA = (0, 68)

# Before Python 3.12, a cached property has a lock for all objects of its class together.
PROPERTIES_SHARE_LOCKS = sys.version_info < (3, 12)
_JUDGES_ZEROS = "allow_all_zero_weights" in signature(_check_sample_weight).parameters


def has_pass_builders(numba: ModuleType) -> bool:
    """Return whether this version of numba makes passes for every function, with a builder."""
    return bool(numba.version_info.short >= (0, 62))


def is_tried_numba(numba: ModuleType) -> bool:
    """Return whether our compilers have been tried with this version of numba, a module."""
    return bool(numba.version_info.short <= _LATEST_NUMBA)


def check_sample_weight(sample_weight: ArrayLike | None, X: ArrayLike, **how: Any) -> Any:
    """Return validated weights, which may all be zero; the arguments are those of scikit-learn."""
    if _JUDGES_ZEROS:
        how["allow_all_zero_weights"] = True
    return _check_sample_weight(sample_weight, X, **how)
