"""Rows given some of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from ..data.tables import missing_cells
from ..models._draws import drawn_labels
from ._draws import without_names
from ._validation import OVERFLOW, did_you_mean, finite, is_pandas_na

if TYPE_CHECKING:
    from ._base import BaseAnnealed
    from ._mixture_predictions import MixturePredictions


def given_row(estimator: BaseAnnealed, given: Any) -> np.ndarray:
    """Return a row with the given values, and NaN in the columns that are not given.

    They are given by the names or the numbers of their columns, which the index of a pandas Series
    has, or as a row in which NaN is not given. Columns that do not exist, or are given twice, are
    refused.
    """
    n_features: int = estimator.n_features_in_
    if hasattr(given, "items") and getattr(given, "ndim", None) == 1:
        given = dict(given.items())  # The index of a pandas Series has the columns.
    if not isinstance(given, Mapping):
        row = np.asarray(given, dtype=np.float64)
        if row.shape != (n_features,):
            raise ValueError(
                "given should map columns to values, or be one row of shape "
                f"{(n_features,)}, but has shape {row.shape}."
            )
        return row
    row = np.full(n_features, np.nan)
    seen: set[int] = set()
    for column, value in given.items():
        position = _position(estimator, column)
        if position in seen:
            raise ValueError(f"given has the column {column!r} twice, by its name and its number.")
        seen.add(position)
        row[position] = _value(column, value)
    return row


def _value(column: Any, value: Any) -> float:
    if value is None or is_pandas_na(value):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"given has {value!r} for the column {column!r}, but one number for all rows is needed."
        ) from None


def _position(estimator: BaseAnnealed, column: Any) -> int:
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    if isinstance(column, str):
        if column not in names:
            known = "X had no names of columns" if not names else f"not a column of {names}"
            raise ValueError(f"given has {column!r}: {known}.{did_you_mean(column, names)}")
        return names.index(column)
    n_features = estimator.n_features_in_
    if isinstance(column, bool) or not isinstance(column, Integral):
        raise ValueError(f"given has columns by name or by number, but got {column!r}.")
    column = int(column)
    if not 0 <= column < n_features:
        raise ValueError(f"given has the column {column}, but columns are 0 to {n_features - 1}.")
    return column


def conditional_sample(
    estimator: MixturePredictions, n_samples: int, given: Any, order: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows with some given cells, at the posterior means of the parameters.

    The components are drawn from p(z | given), and the other cells from p(x | z, given). The rows,
    sorted by component, are returned with their components. ``order`` has the columns of X in the
    order in which the model has them; None if that is the same.
    """
    row = given_row(estimator, given)
    ctx = estimator._context()
    rows = without_names(estimator)._again(np.tile(row, (n_samples, 1)))[0]
    model, seed = ctx.model, check_random_state(estimator.random_state)
    rng = np.random.default_rng(seed.randint(0, 2**31 - 1, size=4))
    log_joint = finite(model.log_joint_at_means(rows, ctx.q), OVERFLOW)
    labels = np.sort(drawn_labels(log_joint, rng))
    plug_in = model.components.plug_in(ctx.q)
    drawn = model.components.drawn_rows(rows, labels, plug_in, rng)
    mask = missing_cells(rows.X)
    mask = np.zeros(drawn.shape, dtype=bool) if mask is None else mask
    back = slice(None) if order is None else np.argsort(order)
    return np.where(mask[:, back], drawn[:, back], row), labels
