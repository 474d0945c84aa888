"""Parts on their way to data points: what they are read from, and whether they fit together."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names, _num_samples

from ..data.part_views import NoUnits
from ..data.tables import Blocks, Coded, Packing
from ..data.units import Units
from ._shards import FirstReading, described, is_delayed, naming, read

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..data.units import U
    from ._base import BaseAnnealed
    from ._given_starts import M
    from ._interface import D, Interface

T = TypeVar("T", bound=Units)


@dataclass(frozen=True)
class Source:
    """A part on the way to its data points: what it is read from, and who validates it.

    Attributes
    ----------
    index : int
    estimator : BaseAnnealed
        An estimator with the parameters of the fit, and without anything fitted.
    X, y, weights : object
        The inputs from which the part, its targets and its sample weights are read; None for none.
    dtype : dtype or None
    first : FirstReading
        The size of the part at its first reading.
    columns : tuple or None
        Number and names of the columns that the part should have, and the kind of data; None if no
        part has been read.
    missing : dict or None
        The columns of categories that have missing cells in any part (:func:`missing_in`); None if
        not all parts have been read.
    """

    index: int
    estimator: BaseAnnealed
    X: Any
    y: Any = None
    weights: Any = None
    dtype: DTypeLike | None = None
    first: FirstReading = field(default_factory=FirstReading)
    columns: Any = None
    missing: Any = None

    @property
    def name(self) -> str:
        return described(self.index, self.X)

    @property
    def stays(self) -> bool:
        """Whether the data are in memory, so that they are read once."""
        return not (isinstance(self.X, str | PathLike) or callable(self.X) or is_delayed(self.X))

    @property
    def lazy(self) -> tuple[Any, Any, Any]:
        """The inputs that Dask computes before the part is read; None for the others."""
        X, y, weights = (v if is_delayed(v) else None for v in (self.X, self.y, self.weights))
        return X, y, weights

    @property
    def inputs(self) -> tuple[Any, Any, Any]:
        """The three inputs from which the part is read."""
        return self.X, self.y, self.weights

    def without_data(self) -> Source:
        """Return the source without data, but with the name of the part in errors."""
        return replace(
            self, X=self.X if isinstance(self.X, str | PathLike) else None, y=None, weights=None
        )

    def computed(self, X: Any, y: Any, weights: Any) -> Source:
        """Return the source with the values of its lazy objects."""
        found = {"X": X, "y": y, "weights": weights}
        return replace(self, **{name: v for name, v in found.items() if v is not None})

    def raw(self) -> tuple[Any, Any, Any]:
        """Return the part, its targets and its weights, before any validation."""
        kinds = (self.dtype, None, None)
        of = (self.X, self.y, self.weights)
        X, y, weights = (
            None if v is None else read(v, kind, self.name)
            for v, kind in zip(of, kinds, strict=True)
        )
        self.first.compare(X, self.name)
        return X, y, weights

    def __call__(self) -> Units:
        """Return the data points."""
        X, y, weights = self.raw()
        with naming(self.name):
            return self._units(X, y, weights)

    def _units(self, X: ArrayLike, y: ArrayLike | None, weights: ArrayLike | None) -> Units:
        if _num_samples(X) == 0:
            return NoUnits()
        estimator = copy.copy(self.estimator)
        units: Units = validated(estimator, X, y, weights, ensure_min_samples=1)[1]
        if isinstance(units, NoUnits):
            return units
        if self.columns is not None:
            _compare(columns_of(estimator, X, units), self.columns)
        return repacked(units, self.missing, estimator.n_components) if self.missing else units


def validated(
    estimator: Interface[D, U, M], X: Any, y: Any, weights: Any, reset: bool = True, **how: Any
) -> tuple[D, Any]:
    """Return a part, or rows of several, as the estimator validates them, and the data points."""
    data = estimator._validate_data(estimator._part(X, y, weights), reset=reset, **how)
    if weights is not None:
        weights = estimator._weights_of_part(weights, X)
    weights = estimator._check_weights(weights, data, allow_nothing=True)
    if weights is not None and not weights.any():
        return data, NoUnits()
    data, weights = estimator._present(data, weights)
    return data, estimator._make_units(data, weights)


def present_rows(
    X: ArrayLike, y: ArrayLike | None, weights: ArrayLike | None
) -> tuple[Any, Any, Any]:
    """Return a part, its targets and its weights without the rows of weight zero.

    Weights that are not one number per row are refused later, with the rows.
    """
    given = None if weights is None else np.asarray(weights)
    if given is None or given.shape != (_num_samples(X),) or given.dtype.kind not in "biuf":
        return X, y, weights
    if given.all():
        return X, y, weights
    positive = np.flatnonzero(given)
    kept = _safe_indexing(X, positive), None if y is None else _safe_indexing(y, positive)
    return *kept, given[positive]


def columns_of(estimator: Interface, X: ArrayLike, units: Units) -> tuple[Any, ...]:
    """Number and names of the columns of X, and the kind and dtype of its data points."""
    _, values = _table_of(units)
    dtype = getattr(values, "dtype", None)
    n = getattr(units, "n_columns", None) or getattr(estimator, "n_features_in_", None)
    stored = "sparse" if sparse.issparse(values) else "dense"
    if type(units).__name__.startswith("Sparse"):
        stored = "sparse"
    return n, names_of(X), stored, None if dtype is None else dtype.name


def names_of(X: ArrayLike) -> tuple[str, ...] | None:
    first = X[0] if isinstance(X, list | tuple) else X
    names = _get_feature_names(first)
    return None if names is None else tuple(names)


def _table_of(units: Units) -> tuple[str, Any]:
    """Return the name of the attribute with the table of data points, and the table."""
    name = next((name for name in ("X", "frames", "values") if hasattr(units, name)), "")
    return name, getattr(units, name, None)


def _compare(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    if found[0] != expected[0]:
        raise ValueError(f"it has {found[0]} columns, but others have {expected[0]}.")
    if found[1] != expected[1]:
        raise ValueError(named_columns(found[1], expected[1]))
    if found[2] != expected[2]:
        raise ValueError(
            f"its data are {found[2]}, but those of others {expected[2]}. All parts are either "
            "dense or sparse."
        )
    if found[3] != expected[3]:
        raise ValueError(
            f"its dtype is {found[3]}, but that of others {expected[3]}. Give Shards a dtype."
        )


def named_columns(found: Any, expected: Any) -> str:
    named = [
        "without names" if names is None else f"named {', '.join(names)}"
        for names in (found, expected)
    ]
    return f"its columns are {named[0]}, but those of others are {named[1]}."


# Columns of categories are packed into codes, in which only columns with missing cells have a
# digit for these. All parts have to be packed alike, whichever part a cell is missing in.


def missing_in(units: Units) -> dict[str, np.ndarray]:
    """Return the name of each block of categories, and which of its columns have missing cells."""
    _, table = _table_of(units)
    parts = table.parts if isinstance(table, Blocks) else {"": table}
    return {n: np.array(p.packing.missing) for n, p in parts.items() if isinstance(p, Coded)}


def repacked(units: T, missing: dict[str, np.ndarray], n_components: int) -> T:
    """Return data points whose columns of categories are packed for these missing cells."""

    def packed(name: str, part: Coded) -> Coded:
        if name not in missing or tuple(missing[name]) == part.packing.missing:
            return part
        packing = Packing.of(part.packing.n_levels, missing[name], n_components)
        return Coded(packing.pack(part.levels()), packing)

    name, table = _table_of(units)
    units = copy.copy(units)
    if isinstance(table, Blocks):
        setattr(units, name, Blocks({n: packed(n, part) for n, part in table.parts.items()}))
    else:
        setattr(units, name, packed("", table))
    return units
