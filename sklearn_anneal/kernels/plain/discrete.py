"""Log densities of rows of discrete columns, dense or sparse."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array


def log_density(levels: np.ndarray, first_level: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the sums of the table's rows over the columns of each row of levels.

    The compiled kernel reads packed columns, and a table of all values of their codes.

    Parameters
    ----------
    levels : ndarray of int, shape (n, n_columns)
        The levels of the cells; a missing cell is −1 and adds nothing.
    first_level : ndarray of shape (n_columns + 1,)
        Where the levels of each column begin in ``table``.
    table : ndarray of shape (n_levels, n_components)

    Returns
    -------
    ndarray of shape (n, n_components)
    """
    places = levels + first_level[:-1]
    missing = levels < 0
    if missing.any():
        table = np.vstack([table, np.zeros(table.shape[1])])
        places[missing] = len(table) - 1
    # Column by column, so that sums over columns add whole arrays.
    total: np.ndarray = table.take(places.T, axis=0).sum(axis=0)
    return total


def add_sparse_log_density(
    values: np.ndarray,
    columns: np.ndarray,
    indptr: np.ndarray,
    slopes: np.ndarray,
    cells: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add x · slope of all entries of each sparse row to ``out``, as the compiled kernel does."""
    shape = len(out), len(slopes)
    missing = np.isnan(values)
    x = np.where(missing, 0.0, values)
    out += csr_array((x, columns, indptr), shape=shape) @ slopes
    if missing.any():
        out -= csr_array((missing.astype(np.float64), columns, indptr), shape=shape) @ cells
