"""Data points with different numbers of entries, which follow each other in flat arrays."""

from __future__ import annotations

from ._compile import kernel


@kernel("out_values values pointer pointer")
def take_entries(out, entries, starts, indptr):
    """Copy the entries of some data points, which begin at ``starts``, to ``out``.

    Those of data point i go to ``indptr[i]``, …, ``indptr[i + 1] - 1``.
    """
    for i in range(len(starts)):
        shift = starts[i] - indptr[i]
        for j in range(indptr[i], indptr[i + 1]):
            out[j] = entries[j + shift]
