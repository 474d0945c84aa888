"""Counts whose rows and columns are independent, so that a single part explains them."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.stats import poisson

from ..data.units import DenseCounts, SparseCounts
from ._count_allocations import positive_counts

# Tables with more cells are not looked at, and have parts.
_CELLS = 1 << 20
# Counts are those of one part if their likelihood ratio is above its mean under independence by no
# more than so many standard deviations.
_CHANCE = 4.0
# The moments of a cell are interpolated between means of so many sizes, and are those of large
# counts above the largest.
_SIZES, _SMALLEST, _LARGEST = 120, 1e-6, 1e3


def sums_without_parts(units: DenseCounts | SparseCounts, n_columns: int) -> np.ndarray | None:
    """Return the sums of the columns, (n_columns,), if the counts show one part and no more.

    None stands for counts with several parts, and for tables with missing cells or many cells. The
    means of one part are r_n c_d / N, with the sums of rows and of columns. The likelihood ratio of
    independence (G², Bishop, Fienberg and Holland, 1975), 2 Σ x log(x / m), has a mean of about one
    for each cell with a large mean m, and less for those with small ones, for which χ² fails.
    Rows count by their weights.
    """
    if units.n_units * n_columns > _CELLS or units.patterns is not None:
        return None
    counts = positive_counts(units, n_columns)
    weights = np.ones(units.n_units) if units.weights is None else units.weights
    rows = np.repeat(np.arange(units.n_units), np.diff(counts.indptr))
    of_rows = np.bincount(rows, counts.data, units.n_units)
    heavy = weights[rows] * counts.data
    of_columns = np.bincount(counts.indices, heavy, n_columns)
    total, n_rows = float(of_columns.sum()), float(weights.sum())
    # A ratio of few counts says nothing.
    if min(n_rows, n_columns) <= 1.0 or total < n_rows + n_columns:
        return None
    means = of_rows[rows] * of_columns[counts.indices] / total
    ratio = 2.0 * float(heavy @ np.log(counts.data / means))
    sizes, expected, variances = _moments()
    cells = n_rows * n_columns
    if ratio >= cells * expected.max() + _CHANCE * np.sqrt(cells * variances.max()):
        # It is too large whatever the means are.
        return None
    logs = np.log(np.maximum(np.outer(of_rows, of_columns / total), 1e-300))
    number = float(weights @ np.interp(logs, sizes, expected).sum(axis=1))
    variance = float(weights @ np.interp(logs, sizes, variances).sum(axis=1))
    # The margins follow the counts.
    number *= (1.0 - 1.0 / n_rows) * (1.0 - 1.0 / n_columns)
    return of_columns if ratio < number + _CHANCE * np.sqrt(variance) else None


@cache
def _moments() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logarithms of means m, and the moments of 2 (x log(x / m) − x + m) for Poisson counts x."""
    sizes = np.geomspace(_SMALLEST, _LARGEST, _SIZES)
    x = np.arange(int(_LARGEST + 12.0 * np.sqrt(_LARGEST)))
    p = poisson.pmf(x, sizes[:, None])
    ratios = 2.0 * (x * np.log(np.maximum(x, 1) / sizes[:, None]) - x + sizes[:, None])
    expected = (p * ratios).sum(axis=1)
    variances = (p * ratios**2).sum(axis=1) - expected**2
    return np.log(sizes), expected, variances
