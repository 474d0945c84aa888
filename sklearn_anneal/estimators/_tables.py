"""Tables as scikit-learn validates them, with the sentences that help where it refuses them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csc_array
from sklearn.utils._set_output import ADAPTERS_MANAGER, _get_output_config
from sklearn.utils.validation import validate_data

from ._shards import in_parts, is_collection

if TYPE_CHECKING:
    from ._base import BaseAnnealed

# The types of times in arrays of objects; those of pandas are among them.
_TIMES = (date, timedelta, np.datetime64, np.timedelta64)
# The way out in the error about a column of text, where no column has categories.
NUMBERS = (
    "numbers are needed here: sklearn.preprocessing.OneHotEncoder makes columns of 0 and 1 of text "
    "and of pandas categories, and OrdinalEncoder makes integers of them"
)


def validated_table(
    estimator: BaseAnnealed,
    X: ArrayLike,
    *,
    text: str = NUMBERS,
    missing: str = "leave these rows or columns out, or fill the cells in with "
    "sklearn.impute.SimpleImputer",
    unobserved: bool = False,
    **how: Any,
) -> Any:
    """Return a table as ``sklearn.utils.validation.validate_data`` returns it.

    ``text`` and ``missing`` are the ways out in the errors about columns of text and about missing
    cells. Cells that a sparse matrix does not store are 0, or ``unobserved``. All other parameters
    are those of ``validate_data``.
    """
    refuse_lazy(X)
    if is_collection(X):
        raise TypeError(
            "X is a collection of Dask, which this method does not take, because all of it would "
            "have to fit into memory. Call the method for one part after another (X.partitions, or "
            "X.blocks), or for some rows in memory (X.compute())."
        )
    _refuse_times(X)
    X = _real_columns(_without_foreign_fill(X, unobserved))
    try:
        # Sums depend on the layout of a table in their last bits, and data frames have another than
        # arrays. Memory-mapped files, which may be too large to be copied, keep theirs.
        order = None if isinstance(X, np.memmap) else "C"
        found = validate_data(estimator, X, order=order, **how)
        # Before version 1.9, scikit-learn lets pandas' own columns of text through.
        return found.astype(np.float64) if found.dtype == object else found
    except (ValueError, TypeError) as error:
        refuse_foreign_cells(X, text, error)
        if "contains NaN" in str(error):
            raise ValueError(
                f"Input X contains NaN, but {type(estimator).__name__} does not integrate missing "
                f"cells out: {missing}."
            ) from None
        raise


def refuse_lazy(X: Any) -> None:
    """Refuse a query of polars whose rows have not been computed."""
    if hasattr(type(X), "collect_schema") and hasattr(type(X), "collect"):
        raise TypeError(
            "X is a LazyFrame, whose rows are not there yet. Give X.collect(), or for data larger "
            "than memory Shards of functions that collect a part each."
        )


def joined_frames(frames: Sequence[Any]) -> Any:
    """Return the rows of several data frames as one frame; None if it is not so simple.

    They have to be of the same class, and to have the same columns.
    """
    first = frames[0]
    library: Any = sys.modules.get(type(first).__module__.partition(".")[0])
    if not (hasattr(first, "columns") and hasattr(library, "concat")):
        return None
    for frame in frames:
        if type(frame) is not type(first) or list(frame.columns) != list(first.columns):
            return None
    # polars joins columns of different types only with this option.
    how = {"how": "vertical_relaxed"} if library.__name__ == "polars" else {}
    return library.concat(frames, **how)


def _dtypes(X: ArrayLike) -> list[tuple]:
    """Return the names and dtypes of the columns of a data frame; of an array, its dtype."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        return list(zip(X.columns, X.dtypes, strict=True))
    return [(None, getattr(X, "dtype", None))]


def _refuse_times(X: ArrayLike) -> None:
    for name, dtype in _dtypes(X):
        temporal = getattr(dtype, "is_temporal", None)  # of polars
        kind = getattr(dtype, "kind", None)
        if kind in ("m", "M") if temporal is None else temporal():
            where = "X" if name is None else f"The column {name!r} of X"
            raise ValueError(_times(where, f"dtype {dtype}"))
    if any(getattr(dtype, "kind", None) == "O" for _, dtype in _dtypes(X)):
        # numpy converts its own scalars of times silently.
        for name, column in _columns(X):
            _refuse_time_among(column, name)


def _refuse_time_among(column: object, name: object) -> None:
    for cell in np.asarray(column, dtype=object):
        if isinstance(cell, _TIMES):
            kind = f"type {type(cell).__name__}"
            raise ValueError(_times(f"The column {name!r} of X", kind)) from None


def _times(where: str, kind: str) -> str:
    return (
        f"{where} has times (of the {kind}), which have no unit as numbers. Leave them out, or "
        "give the time since a start in a unit of your choice, for example "
        "(t - t.min()) / numpy.timedelta64(1, 'D')."
    )


def _real_columns(X: Any) -> Any:
    """Make real numbers of the objects and of the numeric categories of columns with missing cells.

    NumPy makes no numbers of ``pandas.NA`` among objects. Of categories beside integers it would
    make integers, and a huge negative number of each that is missing.
    """
    for i, (_, dtype) in enumerate(_dtypes(X)):
        kind = getattr(getattr(getattr(dtype, "categories", None), "dtype", None), "kind", None)
        objects = isinstance(dtype, np.dtype) and dtype.kind == "O"
        if (objects or kind in ("i", "u", "b")) and hasattr(X, "isetitem") and X.iloc[:, i].hasnans:
            with suppress(TypeError, ValueError):  # text and foreign objects are refused later
                column = X.iloc[:, i].to_numpy(dtype=np.float64, na_value=np.nan)
                X = X.copy(deep=False)
                X.isetitem(i, column)
    return X


def _without_foreign_fill(X: Any, unobserved: bool) -> Any:
    """Return a data frame whose sparse columns scikit-learn can read.

    It reads those in which zeros are not stored. Cells that are not stored may be NaN instead,
    which a sparse matrix can say only where its cells that are not stored are ``unobserved``.
    """
    fills = [getattr(dtype, "fill_value", None) for _, dtype in _dtypes(X)]
    foreign = [fill is not None and not fill == 0 for fill in fills]
    if not any(foreign):
        return X
    if not unobserved or not all(fill is not None and fill != fill for fill in fills):
        return X.astype({
            name: dtype.subtype for (name, dtype), is_foreign
            in zip(_dtypes(X), foreign, strict=True) if is_foreign
        })  # fmt: skip
    columns = [X.iloc[:, j].array for j in range(X.shape[1])]
    rows = [column.sp_index.indices for column in columns]
    values = [np.asarray(column.sp_values, dtype=np.float64) for column in columns]
    indptr = np.concatenate([[0], np.cumsum([len(own) for own in rows])])
    stored = csc_array((np.concatenate(values), np.concatenate(rows), indptr), shape=X.shape)
    return type(X).sparse.from_spmatrix(stored, index=X.index, columns=X.columns)


def refuse_foreign_cells(X: ArrayLike, text: str, error: Exception) -> None:
    """Raise a ValueError about the first cell that is text or a time, if there is one.

    ``text`` is the way out in the error about text, and ``error`` is why the table was refused. In
    an array of strings all cells are text, of which the first that spells no number is named.
    """
    found = None
    for name, column in _columns(X):
        _refuse_time_among(column, name)
        for cell in np.asarray(column, dtype=object):
            if isinstance(cell, str | bytes) and (found is None or not _spells_number(cell)):
                found = f"X has text in the column {name!r}, but {text}: {error}"
                if not _spells_number(cell):
                    raise ValueError(found) from None
    if found is not None:
        raise ValueError(found) from None


def _columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """The columns of a table with their names, or else positions; none if it is no table."""
    if hasattr(X, "columns"):
        for j, name in enumerate(X.columns):
            yield name, X.iloc[:, j] if hasattr(X, "iloc") else X[name]
        return
    try:
        cells = np.asarray(X, dtype=object)
    except ValueError:
        return
    if cells.ndim == 2:
        yield from enumerate(cells.T)


def _spells_number(cell: str | bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# Filled tables as the frames of ``set_output``


def in_frames(impute: Callable) -> Callable:
    """Let a method that fills X in return the containers of ``set_output``.

    If X is a frame of the same library, the result has its columns, index and dtypes, and observed
    cells are those of X. A column whose dtype cannot hold what is filled in, such as means of
    integers, is real. Data in parts have one frame for each part. An array of several tables,
    (n_draws, n_samples, n_features), becomes a list of frames.
    """

    @wraps(impute)
    def call(self: Any, X: Any, *arguments: Any, **keywords: Any) -> Any:
        if keywords.get("n_draws") is not None and in_parts(X):
            raise TypeError(
                "With n_draws, impute takes rows in memory: all rows of a table share one draw of "
                "the parameters, and parts would each draw their own. Give all rows at once, or "
                "n_draws=None for the means of parts."
            )
        found = impute(self, X, *arguments, **keywords)
        library = _get_output_config("transform", self)["dense"]
        arrays = found if isinstance(found, tuple) else (found,)
        if library == "default" or not all(isinstance(array, np.ndarray) for array in arrays):
            return found
        adapter = ADAPTERS_MANAGER.adapters[library]
        given = adapter.is_supported_container(X)
        if given:
            columns = X.columns
        else:
            numbered = [f"x{i}" for i in range(arrays[0].shape[-1])]
            columns = getattr(self, "feature_names_in_", numbered)

        def filled(array: np.ndarray) -> Any:
            if given:
                return _FILLED[library](X, array)
            return adapter.create_container(array, X, columns, inplace=False)

        first, *others = arrays
        if first.ndim == 3:
            return [filled(table) for table in first]
        frames = [adapter.create_container(array, X, columns, inplace=False) for array in others]
        return (filled(first), *frames) if frames else filled(first)

    return call


def _filled_pandas(X: Any, values: np.ndarray) -> Any:
    frame = X.copy(deep=False)
    for i, filled in enumerate(values.T):
        own = X.iloc[:, i]
        try:
            changed = own.to_numpy(dtype=np.float64, na_value=np.nan) != filled
        except (TypeError, ValueError):
            changed = np.ones(len(own), dtype=bool)
        if changed.any():
            dtype = own.dtype
            cells = _as_cells(filled[changed], dtype)
            if cells is None:
                frame.isetitem(i, type(own)(filled, index=own.index))
            else:
                # Cells of a Series of the dtype itself, since others would be converted.
                column = own.copy()
                column.iloc[np.flatnonzero(changed)] = type(own)(cells, dtype=dtype).array
                frame.isetitem(i, column)
    return frame


def _as_cells(filled: np.ndarray, dtype: Any) -> np.ndarray | None:
    """Numbers as cells of a dtype of pandas, or None if it cannot hold them."""
    if getattr(dtype, "categories", None) is not None:
        try:
            codes = np.asarray(dtype.categories, dtype=np.float64)
        except (TypeError, ValueError):
            return None
        places = np.array([np.argmax(codes == code) for code in filled])
        if not np.isin(filled, codes).all():
            return None
        cells: np.ndarray = dtype.categories[places]
        return cells
    kind = getattr(dtype, "kind", "O")
    if kind == "f" and hasattr(dtype, "subtype"):
        return None  # cells of a sparse column cannot be replaced
    if kind == "f":
        return filled
    if kind not in "iub":
        return None
    plain = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    low, high = (0, 1) if kind == "b" else (np.iinfo(plain).min, np.iinfo(plain).max)
    fits = (filled == np.floor(filled)) & (filled >= low) & (filled <= high)
    return filled.astype(plain) if fits.all() else None


def _filled_polars(X: Any, values: np.ndarray) -> Any:
    columns = []
    for name, filled in zip(X.columns, values.T, strict=True):
        own = X[name]
        real = type(own)(name, filled)
        column = real
        # The errors of polars have no base class but Exception.
        with suppress(Exception):
            # Categories are read by their names, and not by their numbers.
            text = own.dtype.base_type().__name__ in ("String", "Categorical", "Enum")
            numbers = (own.cast(str) if text else own).cast(float, strict=False)
            same = numbers.to_numpy() == filled
            if same.all():
                column = own
            elif own.dtype.is_float():
                column = real.cast(own.dtype)
            else:
                cast = real.cast(own.dtype)
                if (cast.cast(float).to_numpy() == filled).all():
                    column = cast
        columns.append(column)
    return X.with_columns(columns)


_FILLED = {"pandas": _filled_pandas, "polars": _filled_polars}
