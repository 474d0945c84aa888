"""Errors for attributes that an estimator does not have with its parameters, or that are set."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils import Bunch

Attributes = dict[str, Any]
"""Fitted attributes by their names."""
_WHY_NOT = (
    "describes the fitted posterior distribution, which predictions read themselves, so that "
    "setting it would not change them. Change a copy of the array, fit again with other "
    "parameters, priors or random_state, or make an estimator from given parameters: with those "
    "that end in _init, annealing='none' and max_iter=0."
)
_NO_START = (
    "is a result of fit, which does not begin at it but replaces it. Give the parameter {0} in its "
    "place; with annealing='none' and max_iter=0 a fit stays there."
)


class _Fixed(dict):
    """A dictionary whose entries cannot be set; copies and pickles of it are plain ones."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        name = repr(args[0]) if args and isinstance(args[0], str) else "This dictionary"
        raise TypeError(f"{name} {_WHY_NOT}")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return dict, (), None, None, iter(self.items())


class _FixedBunch(_Fixed, Bunch):
    """The same for a Bunch, whose attributes are its entries."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} {_WHY_NOT}", name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        self._refuse(name)

    def __reduce__(self) -> Any:
        return Bunch, (), None, None, iter(self.items())


def plain(value: Any) -> Any:
    """Return the fitted values of blocks as classes that files may name."""
    if isinstance(value, _FixedBunch):
        return Bunch(**value)
    return {name: plain(one) for name, one in value.items()} if type(value) is _Fixed else value


class ExplainedAttributes:
    """Mixin whose errors say which settings have an attribute, and why results cannot be set."""

    # Parameter → attribute → the values of the parameter with which the attribute exists. The value
    # ``list`` stands for all lists, and ``float`` for all numbers.
    _only_with: ClassVar[dict[str, dict[str, tuple[object, ...]]]] = {}
    # Methods of all estimators that have them.
    _only_with_annealing: ClassVar[dict[str, tuple[object, ...]]] = {
        "inverse_temperatures": ("local_tempering",)
    }

    @classmethod
    def _conditional_attributes(cls) -> dict[str, dict[str, tuple[object, ...]]]:
        """The attributes that exist with some values of a parameter alone, as in ``_only_with``."""
        return cls._only_with

    # Type checkers would take every name for an attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name):
            # Python calls this method only for names that it did not find otherwise. It is called
            # for objects without any attributes too, which are being copied or unpickled.
            known = dict(type(self)._conditional_attributes())
            if hasattr(type(self), name):
                known["annealing"] = type(self)._only_with_annealing
            for parameter, attributes in known.items():
                kept = self.__dict__.get("_inference")
                if name in attributes and (kept is not None or parameter in self.__dict__):
                    value = self.__dict__[parameter] if kept is None else kept.fixed[parameter]
                    if not _is_among(value, attributes[name]):
                        raise AttributeError(
                            f"{type(self).__name__!r} object has no attribute {name!r}: it exists "
                            f"with {_described(parameter, attributes[name])}, and this one "
                            f"{'has' if kept is None else 'was fitted with'} "
                            f"{_described(parameter, (value,))}.",
                            name=name,
                            obj=self,
                        )
            # This raises the usual error, or that of a property.
            return object.__getattribute__(self, name)

        def __setattr__(self, name, value):
            if name in self.__dict__.get("_results", ()) and name in self.__dict__:
                raise AttributeError(f"{name} {_WHY_NOT}", name=name, obj=self)
            if name.endswith("_") and (start := self._start_instead_of(name)):
                raise AttributeError(f"{name} {_NO_START.format(start)}", name=name, obj=self)
            super().__setattr__(name, value)

        def _start_instead_of(self, name):
            """Return the parameter at which a first fit begins in its place; None if none."""
            if "_results" in self.__dict__:
                return None
            parameters = type(self)._get_param_names()
            if name in type(self)._conditional_attributes().get("emission", {}):
                return "emission_init" if "emission_init" in parameters else None
            return f"{name}init" if f"{name}init" in parameters else None

    def _describe(self, results: Attributes) -> None:
        """Set attributes that describe the posterior distribution; users cannot change them."""
        self.__dict__.update({name: read_only(value) for name, value in results.items()})
        self.__dict__["_results"] = self.__dict__.get("_results", frozenset()) | results.keys()

    def _protect(self) -> None:
        """Make arrays that describe the posterior distribution read-only, as copies are not."""
        names = self.__dict__.get("_results", frozenset()) & self.__dict__.keys()
        self.__dict__.update({name: read_only(self.__dict__[name]) for name in names})

    def _forget_others(self, fitted: dict[str, object]) -> None:
        """Delete attributes of an earlier fit that do not exist with these parameters."""
        for parameter, attributes in self._conditional_attributes().items():
            for name, values in attributes.items():
                if not _is_among(fitted[parameter], values):
                    self.__dict__.pop(name, None)


def read_only(value: Any) -> Any:
    """Return views of arrays through which they cannot be written; other values are unchanged.

    The arrays can be in lists, tuples and dictionaries, of which copies are returned. Entries of a
    Bunch, and of a dictionary of such, cannot be set.
    """
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if type(value) in (list, tuple):
        return type(value)(map(read_only, value))
    if isinstance(value, Bunch):
        return _FixedBunch(**{name: read_only(one) for name, one in value.items()})
    if type(value) in (dict, _Fixed):
        views = {name: read_only(one) for name, one in value.items()}
        of_blocks = bool(views) and all(isinstance(one, Bunch) for one in views.values())
        return _Fixed(views) if of_blocks else views
    return value


def _is_among(value: object, values: tuple[object, ...]) -> bool:
    if isinstance(value, list):
        return list in values
    if isinstance(value, str | bool | np.bool_):
        return value in values
    # Values of other types are refused by fits.
    return isinstance(value, Real) and float in values


def _described(parameter: str, values: tuple[object, ...]) -> str:
    """Text such as "emission='categorical', 'gaussian' or 'poisson'"."""
    if any(value is list or isinstance(value, list) for value in values):
        return f"a list for {parameter}"
    *others, last = ("a number" if value is float else repr(value) for value in values)
    return f"{parameter}={' or '.join([', '.join(others), last] if others else [last])}"
