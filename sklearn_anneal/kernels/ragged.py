"""Data points with different numbers of entries, which follow each other in flat arrays."""

from __future__ import annotations

import numpy as np

from ._compile import kernel
from .simd.products import fetch_entries

# The entries of a data point are prefetched while those of this many others are copied.
_AHEAD = 4


@kernel("out_values values pointer pointer")
def take_entries(out, entries, starts, indptr):
    """Copy the entries of some data points, which begin at ``starts``, to ``out``.

    Those of data point i go to ``indptr[i]``, …, ``indptr[i + 1] - 1``.
    """
    n = len(starts)
    for i in range(n):
        if i + _AHEAD < n:
            later = starts[i + _AHEAD]
            fetch_entries(entries, later, later + indptr[i + _AHEAD + 1] - indptr[i + _AHEAD])
        shift = starts[i] - indptr[i]
        for j in range(indptr[i], indptr[i + 1]):
            out[j] = entries[j + shift]


@kernel("out_values index", dtypes=("uint8",))
def mark(seen, columns):
    """Set ``seen[column]`` to 1 for each of the columns."""
    for j in range(len(columns)):
        seen[columns[j]] = 1


@kernel("out_values index index", dtypes=("uint32",))
def renumber(out, numbers, columns):
    """``out[j] = numbers[columns[j]]``, where numbers are not negative."""
    for j in range(len(columns)):
        out[j] = numbers[columns[j]]


@kernel("out_values out_int index pointer", dtypes=("uint32",))
def by_column(occurrences, begins, columns, indptr):
    """Find the entries of each column.

    ``begins`` (n_columns + 1,) receives where the entries of a column begin in a list of all
    entries, which is ordered by columns. Entry j of this list is one of data point
    ``occurrences[2 j]``, and in ``columns`` it has the position ``occurrences[2 j + 1]``.
    """
    n = begins.shape[0] - 1
    for c in range(n + 1):
        begins[c] = 0
    for i in range(indptr[0], indptr[-1]):
        begins[columns[i]] += 1
    end = 0
    for c in range(n + 1):
        n_entries = begins[c]
        begins[c] = end
        end += n_entries
    for d in range(indptr.shape[0] - 1):
        for i in range(indptr[d], indptr[d + 1]):
            c = columns[i]
            j = begins[c]
            begins[c] = j + 1
            occurrences[2 * j] = d
            occurrences[2 * j + 1] = i
    for c in range(n, 0, -1):
        begins[c] = begins[c - 1]
    begins[0] = 0


@kernel("values index pointer vector out1")
def add_entries(entries, columns, indptr, weights, out):
    """Add the entries of data points, times the weight of their data point, to their columns."""
    for d in range(indptr.shape[0] - 1):
        for i in range(indptr[d], indptr[d + 1]):
            out[columns[i]] += weights[d] * np.float64(entries[i])
