"""Rows as points, among which starts measure distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, issparse


def n_distinct(points: Any, most: int) -> int:
    """Return the number of distinct points, or ``most`` if there are more."""
    if issparse(points):
        return _n_distinct_of_sparse(csr_array(points), most)
    # Nearly always, a few points are enough to see it.
    if len(np.unique(points[: 4 * most], axis=0)) >= most:
        return most
    return min(most, len(np.unique(points, axis=0)))


def _n_distinct_of_sparse(points: csr_array, most: int) -> int:
    """Do the same for sparse points; those without coordinates, which are missing, do not count."""
    seen = set()
    for begin, end in zip(points.indptr[:-1], points.indptr[1:], strict=True):
        if end > begin:
            seen.add((points.indices[begin:end].tobytes(), points.data[begin:end].tobytes()))
        if len(seen) >= most:
            return most
    return len(seen)


def beside(parts: list[Any]) -> Any:
    """Return the coordinates of several kinds of columns beside each other.

    They are sparse if some of them are, as those of columns with many categories.
    """
    if any(issparse(part) for part in parts):
        return csr_array(hstack(parts))
    return np.hstack(parts)
