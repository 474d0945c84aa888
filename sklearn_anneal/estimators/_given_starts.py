"""Starts that users give: parameters at which a fit begins, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..annealing import Annealing
from ..families import COVARIANCE_TYPES, get_structure
from ..models.components._base import Components
from ..models.components.bernoulli import BernoulliComponents
from ..models.components.blocks import BlockComponents
from ..models.components.categorical import CategoricalComponents
from ..models.components.categorical_columns import CategoricalColumns
from ..models.components.gaussian import GaussianComponents
from ..models.components.gaussian_columns import GaussianColumns
from ..models.components.poisson import PoissonComponents
from ._priors import check_shape, numbers_of, refuse_indefinite
from ._validation import did_you_mean


class GivenStarts:
    """Mixin of estimators that can begin a fit at given parameters.

    Attributes
    ----------
    _start_parameters : tuple of str
        The names of the parameters that give a start, or a part of it.
    """

    _start_parameters: ClassVar[tuple[str, ...]] = ()
    annealing: Any
    _refuse_number_with: Callable[..., None]

    def _given_start(self, model: Any) -> dict[str, Any]:
        """Check the given start and return it in the form that the model reads."""
        return {}

    def _start_for(self, model: Any, strategy: Annealing) -> dict[str, Any] | None:
        """The given start, after a check that the fit can begin at it; None if none is given."""
        asked = {name: getattr(self, name) for name in self._start_parameters}
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


# Checks


def given_array(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Check finite numbers of a shape.

    Raises
    ------
    ValueError
        If the value has another shape, or is not finite.
    """
    array = numbers_of(value, name)
    check_shape(array, shape, name)
    return array


def given_in_range(
    value: Any, shape: tuple[int, ...], name: str, least: float = 0.0, most: float = np.inf
) -> np.ndarray:
    """Check numbers of a shape that are in a range.

    Raises
    ------
    ValueError
        If they are not.
    """
    array = given_array(value, shape, name)
    if array.size and (array.min() < least or array.max() > most):
        limits = f"[{least:g}, {most:g}]" if most < np.inf else f"[{least:g}, inf)"
        raise ValueError(
            f"The parameter '{name}' should be in the range {limits}, but got max value "
            f"{array.max():.5f}, min value {array.min():.5f}"
        )
    return array


def given_probabilities(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Check probabilities, which sum to 1 along the last axis.

    Raises
    ------
    ValueError
        If they do not.
    """
    array = given_in_range(value, shape, name, 0.0, 1.0)
    totals = array.sum(axis=-1, keepdims=True)
    wrong = totals[~np.isclose(totals, 1.0)]
    if wrong.size:
        raise ValueError(
            f"The parameter '{name}' should be normalized, but got sum({name}) = {wrong[0]:.5f}"
        )
    return array / totals


def given_matrices(
    value: Any, covariance_type: str, n_components: int, n_features: int, name: str
) -> np.ndarray:
    """Check covariances or precisions of all components in the shape of their type.

    Raises
    ------
    ValueError
        If they have another shape, or are not positive definite.
    """
    k, d = n_components, n_features
    shapes = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
    array = given_array(value, shapes[covariance_type], f"{covariance_type} {name}")
    refuse_indefinite(array, covariance_type, name)
    return array


def given_precisions(
    value: Any, covariance_type: str, n_components: int, n_features: int, name: str
) -> np.ndarray:
    """Check precisions of all components, and return their covariances."""
    precisions = given_matrices(value, covariance_type, n_components, n_features, name)
    return get_structure(covariance_type, COVARIANCE_TYPES, "covariance_type").inverse(precisions)


def _cells(least: float, most: float) -> Callable[[Any, Any, str], np.ndarray]:
    def check(c: Any, value: Any, name: str) -> np.ndarray:
        return given_in_range(value, (c.n_components, c.n_features), name, least, most)

    return check


def _variances(c: GaussianColumns, value: Any, name: str) -> np.ndarray:
    array = given_array(value, (c.n_components, c.n_features), name)
    refuse_indefinite(array, "diag", name, "independent")
    return array


def _covariances(c: GaussianComponents, value: Any, name: str) -> np.ndarray:
    return given_matrices(value, c.covariance_type, c.n_components, c.n_features, name)


def _of_symbols(c: CategoricalComponents, value: Any, name: str) -> np.ndarray:
    return given_probabilities(value, (c.n_components, c.n_symbols), name)


def _of_categories(c: CategoricalColumns, value: Any, name: str) -> list[np.ndarray]:
    if not isinstance(value, list | tuple) or len(value) != c.n_features:
        raise ValueError(
            f"The parameter '{name}' should be a list of one array for each of the "
            f"{c.n_features} columns of categories."
        )
    return [
        given_probabilities(one, (c.n_components, n), f"{name}[{i}]")
        for i, (one, n) in enumerate(zip(value, c.n_levels, strict=True))
    ]


_ANYWHERE = _cells(-np.inf, np.inf)
# The checks of what describes components, by their class and its ``profile_names``.
_CHECKS: dict[type[Components], dict[str, Callable[[Any, Any, str], Any]]] = {
    BernoulliComponents: {"emissionprob": _cells(0.0, 1.0)},
    CategoricalComponents: {"emissionprob": _of_symbols},
    CategoricalColumns: {"emissionprob": _of_categories},
    PoissonComponents: {"lambdas": _cells(0.0, np.inf)},
    GaussianComponents: {"means": _ANYWHERE, "covars": _covariances},
    GaussianColumns: {"means": _ANYWHERE, "covars": _variances},
}


def given_profile(components: Components, value: Any, name: str) -> dict[str, Any]:
    """Check a dictionary of what describes components, by the names of fitted attributes.

    The names are those of the attributes without their underscores. For blocks the dictionary maps
    names of blocks to such dictionaries.

    Raises
    ------
    ValueError
        If a name is not one of the emission, or if a value is refused.
    """
    blocks = isinstance(components, BlockComponents)
    known = tuple(components.parts if blocks else components.profile_names)  # type: ignore[attr-defined]
    if not isinstance(value, dict):
        raise ValueError(f"The parameter '{name}' should be a dictionary, but got {value!r}.")
    for key in value:
        if key not in known:
            what = "blocks of this emission are" if blocks else "emission has"
            raise ValueError(
                f"The parameter '{name}' has the key {key!r}, but the {what} {sorted(known)}."
                f"{did_you_mean(key, known)}"
            )
    if blocks:
        parts: Any = components.parts  # type: ignore[attr-defined]
        return {
            key: given_profile(parts[key], own, f"{name}[{key!r}]")
            for key, own in value.items()
            if own is not None
        }
    checks = _CHECKS[type(components)]
    return {
        key: checks[key](components, own, f"{name}[{key!r}]")
        for key, own in value.items()
        if own is not None
    }
