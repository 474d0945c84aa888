"""Draws of what is not observed, given parameters: components of rows, and levels of cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.tables import missing_cells

# The largest expectation from which numpy draws counts. The count itself is rarely more than ten
# standard deviations above it.
_LARGEST_RATE = np.iinfo(np.int64).max - 10.0 * np.sqrt(np.iinfo(np.int64).max)


def drawn_labels(log_joint: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one of the components for each row, (n_rows,), with probabilities ∝ exp(``log_joint``).

    ``log_joint`` has shape (n_rows, n_components).
    """
    shares = np.exp(log_joint - log_joint.max(axis=1, keepdims=True))
    limits = np.cumsum(shares, axis=1)
    # The last limit is left out: rounding could let a number below 1 exceed it.
    found: np.ndarray = (limits[:, :-1] <= rng.random(len(limits))[:, None] * limits[:, -1:]).sum(
        axis=1
    )
    return found


def holes_of(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the columns of the missing cells of a table, column by column."""
    mask = missing_cells(X)
    if mask is None:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    columns, rows = np.nonzero(mask.T)
    return rows, columns


def drawn_counts(rng: np.random.RandomState | np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """Draw counts with the given expectations, as int64."""
    largest = float(rates.max(initial=0.0))
    if not largest <= _LARGEST_RATE:
        raise ValueError(
            f"Counts of the size {largest:g} are expected, but samples are drawn as int64, which "
            f"holds numbers up to {_LARGEST_RATE:.3g}. Divide X by a constant before fitting."
        )
    return np.asarray(rng.poisson(rates))
