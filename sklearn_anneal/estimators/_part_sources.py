"""Parts on their way to data points: what they are read from, and whether they fit together."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names, _num_samples

from ..data.part_views import NoUnits
from ..data.tables import Blocks, Coded, Packing
from ..data.units import U, Units
from ._shards import FirstReading, described, is_delayed, naming, read

if TYPE_CHECKING:
    from ._base import BaseAnnealed
    from ._interface import D, Interface, M

T = TypeVar("T", bound=Units)


def concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    """Join arrays. Where some have text and others numbers, all entries stay what they are."""
    texts = {array.dtype.kind in "USO" for array in arrays}
    return np.concatenate(arrays, dtype=object if len(texts) > 1 else None)


class Inputs(NamedTuple):
    """The rows of a part, or of all parts, and what is known of each besides; None if not given."""

    X: Any
    y: Any = None
    weights: Any = None
    covariates: Any = None

    def take(self, rows: np.ndarray) -> Inputs:
        """Return the rows with these numbers."""
        inputs = (v.tocsr() if sparse.issparse(v) else v for v in self)
        return Inputs(*(None if v is None else _safe_indexing(v, rows) for v in inputs))

    def present(self) -> Inputs:
        """Return the rows without those of weight zero.

        Weights that are not one number per row are refused later, with the rows; y and covariates,
        whose rows are left out as well, are refused here if they have another number.
        """
        n = _num_samples(self.X)
        refuse_lengths(n, covariates=self.covariates)
        weights = None if self.weights is None else np.asarray(self.weights)
        if weights is None or weights.shape != (n,) or weights.dtype.kind not in "biuf":
            return self
        if weights.all():
            return self
        refuse_lengths(n, y=self.y)
        positive = np.flatnonzero(weights)
        return self.take(positive)._replace(weights=weights[positive])


def refuse_lengths(n_rows: int, **beside: Any) -> None:
    """Refuse what is known of rows if it is not as long as these."""
    for name, values in beside.items():
        if values is not None and _num_samples(values) != n_rows:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: {name} has "
                f"{_num_samples(values)} entries, but X has {n_rows} rows."
            )


@dataclass(frozen=True)
class Source:
    """A part on the way to its data points: what it is read from, and who validates it.

    X, y, weights and covariates are the inputs from which the part and what is known of its rows
    are read; None for none.
    """

    index: int
    estimator: BaseAnnealed  # with the parameters of the fit, and without anything fitted
    X: Any
    y: Any = None
    weights: Any = None
    covariates: Any = None
    dtype: DTypeLike | None = None
    first: FirstReading = field(default_factory=FirstReading)
    # Number and names of the columns that the part should have, and the kind of data; None if no
    # part has been read.
    columns: Any = None
    # The columns of categories that have missing cells in any part (:func:`missing_in`); None if
    # not all parts have been read.
    missing: Any = None

    @property
    def name(self) -> str:
        return described(self.index, self.X)

    @property
    def stays(self) -> bool:
        """Whether the data are in memory, so that they are read once."""
        return not (isinstance(self.X, str | PathLike) or callable(self.X) or is_delayed(self.X))

    @property
    def lazy(self) -> Inputs:
        """The inputs that Dask computes before the part is read; None for the others."""
        return Inputs(*(v if is_delayed(v) else None for v in self.inputs))

    @property
    def inputs(self) -> Inputs:
        """The inputs from which the part is read."""
        return Inputs(self.X, self.y, self.weights, self.covariates)

    def without_data(self) -> Source:
        """Return the source without data, but with the name of the part in errors."""
        X = self.X if isinstance(self.X, str | PathLike) else None
        return replace(self, X=X, y=None, weights=None, covariates=None)

    def computed(self, *values: Any) -> Source:
        """Return the source with the values of its lazy objects, in the order of ``inputs``."""
        found = zip(Inputs._fields, values, strict=True)
        return replace(self, **{name: v for name, v in found if v is not None})

    def raw(self) -> Inputs:
        """Return the part, and what is known of its rows, before any validation."""
        kinds = (self.dtype, None, None, None)
        inputs = Inputs(
            *(
                None if v is None else read(v, kind, self.name)
                for v, kind in zip(self.inputs, kinds, strict=True)
            )
        )
        self.first.compare(inputs.X, self.name)
        return inputs

    def __call__(self) -> Units:
        """Return the data points."""
        inputs = self.raw()
        with naming(self.name):
            return self._units(inputs)

    def _units(self, inputs: Inputs) -> Units:
        if _num_samples(inputs.X) == 0:
            return NoUnits()
        estimator = copy.copy(self.estimator)
        units: Units = validated(estimator, inputs, ensure_min_samples=1)[1]
        if isinstance(units, NoUnits):
            return units
        if self.columns is not None:
            _compare(columns_of(estimator, inputs.X, units), self.columns)
        return repacked(units, self.missing, estimator._number) if self.missing else units


def validated(
    estimator: Interface[D, U, M], inputs: Inputs, reset: bool = True, **how: Any
) -> tuple[D, Any]:
    """Return a part, or rows of several, as the estimator validates them, and the data points."""
    data = estimator._validate_data(estimator._part(inputs), reset=reset, **how)
    weights = inputs.weights
    if weights is not None:
        weights = estimator._weights_of_part(weights, inputs.X)
    weights = estimator._check_weights(weights, data, allow_nothing=True)
    if weights is not None and not weights.any():
        return data, NoUnits()
    data, weights = estimator._present(data, weights)
    return data, estimator._make_units(data, weights)


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
