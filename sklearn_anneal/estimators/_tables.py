"""Tables as scikit-learn validates them, with the sentences that help where it refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csc_array
from sklearn.utils.validation import validate_data

from ._shards import is_collection

_NUMBERS = (
    "numbers are needed here: sklearn.preprocessing.OneHotEncoder makes columns of 0 and 1 of text "
    "and of pandas categories, and OrdinalEncoder makes integers of them"
)


def validated_table(
    estimator: Any,
    X: Any,
    *,
    text: str = _NUMBERS,
    missing: str = "leave these rows or columns out, or fill the cells in with "
    "sklearn.impute.SimpleImputer",
    unobserved: bool = False,
    **how: Any,
) -> Any:
    """Return a table as ``sklearn.utils.validation.validate_data`` returns it.

    Parameters
    ----------
    estimator : BaseEstimator
    X : array-like or sparse matrix
    text : str
        The way out in the error about a column of text.
    missing : str
        The way out in the error about missing cells.
    unobserved : bool
        Whether cells that a sparse matrix does not store are unobserved, and not 0.
    **how
        The parameters of ``validate_data``.

    Raises
    ------
    ValueError
        If the table is refused: for times, for text, for missing cells where none are allowed, or
        for any other reason that scikit-learn has.
    """
    if is_collection(X):
        raise TypeError(
            "X is a collection of Dask, which this method does not take, because all of it would "
            "have to fit into memory. Call the method for one part after another (X.partitions, or "
            "X.blocks), or for some rows in memory (X.compute())."
        )
    _refuse_times(X)
    X = _without_foreign_fill(X, unobserved)
    try:
        return validate_data(estimator, X, **how)
    except (ValueError, TypeError) as error:
        name = _column_of_text(X)
        if name is not None:
            raise ValueError(f"X has text in the column {name!r}, but {text}: {error}") from None
        if "contains NaN" in str(error):
            raise ValueError(
                f"Input X contains NaN, but {type(estimator).__name__} does not integrate missing "
                f"cells out: {missing}."
            ) from None
        raise


def _dtypes(X: Any) -> list[tuple[Any, Any]]:
    """Return the names and dtypes of the columns of a data frame; of an array, its dtype."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        return list(zip(X.columns, X.dtypes, strict=True))
    return [(None, getattr(X, "dtype", None))]


def _refuse_times(X: Any) -> None:
    for name, dtype in _dtypes(X):
        temporal = getattr(dtype, "is_temporal", None)  # of polars
        kind = getattr(dtype, "kind", None)
        if kind in ("m", "M") if temporal is None else temporal():
            where = "X" if name is None else f"The column {name!r} of X"
            raise ValueError(
                f"{where} has times (of the dtype {dtype}), which have no unit as numbers. Leave "
                "them out, or give the time since a start in a unit of your choice, for example "
                "(t - t.min()) / numpy.timedelta64(1, 'D')."
            )


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


def _column_of_text(X: Any) -> Any:
    """Return the name of the first column of a data frame that has text; None if there is none."""
    if not hasattr(X, "columns"):
        return None
    for j, name in enumerate(X.columns):
        column = X.iloc[:, j] if hasattr(X, "iloc") else X[name]
        if any(isinstance(cell, str) for cell in np.asarray(column, dtype=object)):
            return name
    return None
