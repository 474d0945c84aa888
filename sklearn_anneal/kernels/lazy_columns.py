"""Columns of natural parameters of which an update changes only some.

Matrices have one row in memory per column, so that the entries of a column follow each other.
"""

from __future__ import annotations

import numpy as np

from ._compile import kernel, shared_kernel


@kernel("out_rows rows index float vector", dtypes=("float64",))
def take_columns(out, stored, columns, factor, offsets):
    """``out[i] = factor * stored[columns[i]] + offsets[i]``, one row per column that is taken."""
    n = stored.shape[1]
    for i in range(len(columns)):
        c, offset = columns[i], offsets[i]
        for k in range(n):
            out[i, k] = factor * stored[c, k] + offset


@shared_kernel("out_rows rows index float int out2", dtypes=("float64",))
def add_to_columns(stored, values, columns, factor, n_columns, sums, first, last):
    """Add ``factor * values[i]`` to ``stored[columns[i]]`` and to ``sums[i // n_columns]``.

    This is done for the rows ``first``, …, ``last`` − 1 of ``sums``, which are 0 at first. Rows of
    ``values`` can be longer than those of ``stored``; what is beyond them is not read.
    """
    n = stored.shape[1]
    total = np.empty(n)
    for part in range(first, last):
        for k in range(n):
            total[k] = 0.0
        for i in range(part * n_columns, min((part + 1) * n_columns, len(columns))):
            c = columns[i]
            for k in range(n):
                added = factor * values[i, k]
                stored[c, k] += added
                total[k] += added
        for k in range(n):
            sums[part, k] += total[k]
