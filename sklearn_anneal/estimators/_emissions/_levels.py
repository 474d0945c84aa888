"""Columns whose cells are numbers of levels: their checks, their packed form, and their draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.tables import Coded

# Number of cells that are checked at a time, so that this takes little memory.
CELLS_AT_A_TIME = 1 << 19

# The fitted attributes of emissions with probabilities.
PROBABILITIES = ("emissionprob_", "emissionprob_posterior_", "emissionprob_prior_")


def levels_of(X: Any, what: str, largest: int | None = None) -> list[np.ndarray]:
    """Return levels as small integers, with −1 for missing cells, in chunks of rows.

    ``what`` says in error messages which values are levels, and ``largest`` is the largest one.
    """
    chunks = []
    n_rows = max(CELLS_AT_A_TIME // max(X.shape[1], 1), 1)
    for start in range(0, len(X), n_rows):
        part = X[start : start + n_rows]
        if part.dtype.kind == "f":
            missing = np.isnan(part)
            bad = part != np.floor(part)
            bad &= ~missing
        else:
            missing = np.zeros(part.shape, dtype=bool)
            bad = missing
        if part.dtype.kind != "b":
            bad = bad | (part < -1)
        if bad.any():
            raise ValueError(f"{what}, but X contains {part[bad].flat[0]:g}.")
        most = float(np.max(part, initial=0, where=~missing))
        if largest is not None and most > largest:
            raise ValueError(f"{what}, but X contains {most:g}.")
        if most > np.iinfo(np.int32).max - 1:
            raise ValueError(f"Levels are numbers below 2 ** 31, but X contains {most:g}.")
        dtype = np.min_scalar_type(-int(most) - 1)
        levels = np.where(missing, -1, part) if missing.any() else part
        chunks.append(levels.astype(dtype))
    return chunks


def coded(chunks: list[np.ndarray], n_levels: Any, n_components: int, n_columns: int) -> Coded:
    """Return packed columns from the levels of their rows, as :func:`levels_of` returns them."""
    missing = np.zeros(n_columns, dtype=bool)
    for chunk in chunks:
        missing |= (chunk < 0).any(axis=0)
    return Coded.of_chunks(chunks, n_levels, missing, n_components)


def drawn_levels(
    p: np.ndarray, labels: np.ndarray, random_state: np.random.RandomState
) -> np.ndarray:
    """Draw the level of each row, given the probabilities of the levels of its component.

    ``p`` has shape (n_components, n_levels), and ``labels`` (n_rows,) the components of the rows.
    """
    limits = np.cumsum(p, axis=1)[labels]
    uniform = random_state.random_sample(len(labels))
    # Rounding can leave the last limit below 1.
    return np.minimum((uniform[:, None] > limits).sum(axis=1), p.shape[1] - 1)
