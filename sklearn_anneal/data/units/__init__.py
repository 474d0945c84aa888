"""Data sets of different kinds, with one interface to count, weigh and divide their data points.

The loop of inference treats all data points as *units*, which are rows, documents, sequences, or
users with their ratings.
"""

from __future__ import annotations

from ._base import Centered, Ragged, U, Units
from ._counts import DenseCounts, SparseCounts
from ._documents import Documents
from ._ratings import Ratings
from ._rows import ROWS_OF_A_CLASS, Rows, cell_patterns
from ._sequences import Sequences

__all__ = [
    "ROWS_OF_A_CLASS",
    "Centered",
    "DenseCounts",
    "Documents",
    "Ragged",
    "Ratings",
    "Rows",
    "Sequences",
    "SparseCounts",
    "U",
    "Units",
    "cell_patterns",
]
