"""Checks of the parameters at which a user lets a fit begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..families import COVARIANCE_TYPES, get_structure
from ..models._componentwise import Given
from ..models.components._base import Profile
from ._priors import check_shape, numbers_of, refuse_indefinite
from ._validation import did_you_mean

if TYPE_CHECKING:
    from ._emissions import Emission


def gives_nothing(given: Given) -> bool:
    """Whether all values of a dictionary are None, or such dictionaries."""
    return all(
        gives_nothing(value) if isinstance(value, dict) else value is None
        for value in given.values()
    )


def given_array(value: object, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Check that numbers are finite and have a shape, and return them as an array."""
    array = numbers_of(value, name)
    check_shape(array, shape, name)
    return array


def given_in_range(
    value: object, shape: tuple[int, ...], name: str, least: float = 0.0, most: float = np.inf
) -> np.ndarray:
    """Check numbers of a shape that are in a range."""
    array = given_array(value, shape, name)
    if array.size and (array.min() < least or array.max() > most):
        limits = f"[{least:g}, {most:g}]" if most < np.inf else f"[{least:g}, inf)"
        raise ValueError(
            f"The parameter '{name}' should be in the range {limits}, but got max value "
            f"{array.max():.5f}, min value {array.min():.5f}"
        )
    return array


def given_probabilities(value: object, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Check probabilities, which sum to 1 along the last axis."""
    array = given_in_range(value, shape, name, 0.0, 1.0)
    totals = array.sum(axis=-1, keepdims=True)
    wrong = totals[~np.isclose(totals, 1.0)]
    if wrong.size:
        raise ValueError(
            f"The parameter '{name}' should be normalized, but got sum({name}) = {wrong[0]:.5f}"
        )
    return array / totals


def given_chain(asked: Any, priors: dict[str, np.ndarray]) -> Given:
    """Check the probabilities of first states and of transitions at which a fit begins.

    ``asked`` is the estimator with the parameters ``startprob_init`` and ``transmat_init``, and
    ``priors`` has the prior of each, which forbids a probability where it is 0.
    """
    given: Given = {}
    for key, prior in priors.items():
        name = f"{key}_init"
        if (value := getattr(asked, name)) is None:
            continue
        given[key] = given_probabilities(value, prior.shape, name)
        if (given[key][prior == 0] > 0).any():
            raise ValueError(
                f"{name} has a probability above 0 where {key}_prior is 0, which forbids it. Give "
                "0 there, or a prior above 0."
            )
    return given


def given_matrices(
    value: object, covariance_type: str, n_components: int, n_features: int, name: str
) -> np.ndarray:
    """Check covariances or precisions of all components in the shape of their type."""
    k, d = n_components, n_features
    shapes = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
    array = given_array(value, shapes[covariance_type], f"{covariance_type} {name}")
    refuse_indefinite(array, covariance_type, name)
    return array


def given_precisions(
    value: object, covariance_type: str, n_components: int, n_features: int, name: str
) -> np.ndarray:
    """Check precisions of all components, and return their covariances."""
    precisions = given_matrices(value, covariance_type, n_components, n_features, name)
    return get_structure(covariance_type, COVARIANCE_TYPES, "covariance_type").inverse(precisions)


def given_profile(
    components: Any, kinds: type[Emission] | dict[str, type[Emission]], value: object, name: str
) -> Profile:
    """Check a dictionary of the parameters of components, by the names of fitted attributes.

    The names are those of the attributes without their underscores. For blocks the dictionary maps
    names of blocks to such dictionaries. ``kinds`` is the emission of the components, or a
    dictionary with that of each block.
    """
    blocks = isinstance(kinds, dict)
    known = tuple(components.parts if blocks else components.profile_names)
    if not isinstance(value, dict):
        raise ValueError(f"The parameter '{name}' should be a dictionary, but got {value!r}.")
    for key in value:
        if key not in known:
            what = "blocks of this emission are" if blocks else "emission has"
            raise ValueError(
                f"The parameter '{name}' has the key {key!r}, but the {what} {sorted(known)}."
                f"{did_you_mean(key, known)}"
            )
    given = {key: (own, f"{name}[{key!r}]") for key, own in value.items() if own is not None}
    if isinstance(kinds, dict):
        parts = components.parts
        return {key: given_profile(parts[key], kinds[key], *own) for key, own in given.items()}
    return {key: kinds.given(components, key, *own) for key, own in given.items()}
