"""Activations of a few rows of counts, and quotients of counts and predictions."""

from __future__ import annotations

import numpy as np

from .counts import TINY, Entries


def ratios(predicted: np.ndarray, x: np.ndarray) -> None:
    """Replace predictions by quotients x / prediction; missing cells (NaN) give 0."""
    predicted += predicted.dtype.type(TINY[predicted.itemsize])
    np.divide(x, predicted, out=predicted)
    predicted[np.isnan(x)] = 0.0


def collapsed(entries: Entries, prior: float, n_iter: int, tol: float) -> np.ndarray:
    """Return b + n of rows, as the compiled kernel does, of all rows at once.

    Parameters
    ----------
    entries : Entries
        The counts of the rows, and B, the rows of the table that they belong to.
    prior : float
        b
    n_iter : int
        The largest number of updates of a row.
    tol : float
        A row ends when the mean change of its n is smaller.
    """
    rows, counts = entries.rows, entries.counts[..., None]
    tiny = TINY[rows.itemsize]
    removed = np.minimum(counts, 1.0)
    shares = rows / np.maximum(rows.sum(axis=-1, keepdims=True), tiny)
    held = (counts * shares).sum(axis=1)
    earlier, ahead, lead = held, held, np.zeros((len(held), 1))
    result, active = np.empty(held.shape), np.arange(len(held))
    for i_iter in range(n_iter):
        shares = (np.maximum(held[:, None] - removed * shares, 0.0) + prior) * rows
        shares /= np.maximum(shares.sum(axis=-1, keepdims=True), tiny)
        new = (counts * shares).sum(axis=1)
        result[active] = new
        going_on = np.abs(new - held).sum(axis=1) >= tol * held.shape[1]
        if i_iter == n_iter - 1 or not going_on.any():
            break
        back = ((new - ahead) * (new - earlier)).sum(axis=1, keepdims=True)
        lead[back < 0.0] = 0.0
        ahead = np.maximum(new + lead / (lead + 3.0) * (new - earlier), 0.5 * new)
        earlier, held, lead = new, ahead, lead + 1.0
        if not going_on.all():
            parts = active, rows, counts, removed, shares, held, earlier, ahead, lead
            active, rows, counts, removed, shares, held, earlier, ahead, lead = (
                part[going_on] for part in parts
            )
    return prior + result
