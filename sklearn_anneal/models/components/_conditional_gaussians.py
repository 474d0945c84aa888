"""Draws of the missing cells of rows from Gaussians, given their observed cells."""

from __future__ import annotations

import numpy as np

from ...data.units import Rows
from ._missing_cells import Gaussians

# Entries of the matrices that are factorised at a time.
_ENTRIES = 1 << 20


def drawn_rows(
    rows: Rows, labels: np.ndarray, gaussians: Gaussians, rng: np.random.Generator
) -> np.ndarray:
    """Draw the missing cells of rows from their Gaussians, given the observed cells.

    The missing cells m of a row with the component k are Gaussian given its observed cells o, with
    the precision P_mm of that component and the mean μ_m − P_mm⁻¹ P_mo (x_o − μ_o). A Cholesky
    factor P_mm = L Lᵀ gives the mean, and L⁻ᵀ ε for a draw from the covariance.

    Parameters
    ----------
    rows : Rows
    labels : ndarray of int, shape (n_rows,)
        The component of each row.
    gaussians : Gaussians
        Those of the components, relative to the center of the rows.
    rng : numpy.random.Generator

    Returns
    -------
    drawn : ndarray of shape (n_rows, n_features)
        The rows, in the coordinates of ``X``, with draws in the place of missing cells.
    """
    drawn = np.array(rows.X, dtype=np.float64)
    _, some, blank = rows.by_completeness
    order = np.concatenate([some, blank])
    noise = rng.standard_normal((len(order), drawn.shape[1]))
    if gaussians.diagonal:
        of_row = labels[order]
        values = gaussians.mean[of_row] + noise / np.sqrt(gaussians.precision[of_row])
        drawn[order] = np.where(np.isnan(drawn[order]), values + rows.center, drawn[order])
        return drawn
    if len(order) == 0:
        return drawn
    assert rows.patterns is not None
    # Rows that lack the same cells and have the same component share their matrices.
    order = order[np.lexsort((rows.patterns[order], labels[order]))]
    pairs = np.column_stack([labels[order].astype(np.uint64), rows.patterns[order]])
    new = np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1))
    which = np.cumsum(new) - 1
    firsts = order[new]
    n_pairs = max(_ENTRIES // drawn.shape[1] ** 2, 1)
    for start in range(0, len(firsts), n_pairs):
        batch = firsts[start : start + n_pairs]
        inverse, across = _affine(np.isnan(drawn[batch]), labels[batch], gaussians.precision)
        begin, end = np.searchsorted(which, [start, start + len(batch)])
        for low in range(begin, end, n_pairs):
            part = slice(low, min(low + n_pairs, end))
            own, of_part = which[part] - start, drawn[order[part]]
            mean = gaussians.mean[labels[order[part]]]
            x = of_part - rows.center
            values = _drawn(x, mean, inverse[own], across[own], noise[part])
            drawn[order[part]] = np.where(np.isnan(of_part), values + rows.center, of_part)
    return drawn


def _affine(
    missing: np.ndarray, labels: np.ndarray, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return L⁻ᵀ of P_mm = L Lᵀ and P_mo of each pair, with zeros elsewhere, (n_pairs, D, D).

    The rows and columns of observed cells make up an identity matrix while L is computed.
    """
    own = precision[labels]
    within = missing[:, :, None] & missing[:, None, :]
    roots = np.linalg.cholesky(np.where(within, own, np.eye(missing.shape[1])))
    inverse = np.where(within, np.swapaxes(np.linalg.inv(roots), -1, -2), 0.0)
    return inverse, np.where(missing[:, :, None] & ~missing[:, None, :], own, 0.0)


def _drawn(
    x: np.ndarray, mean: np.ndarray, inverse: np.ndarray, across: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Return μ − P_mm⁻¹ P_mo (x_o − μ_o) + L⁻ᵀ ε of rows, in which only missing cells count."""
    away = np.where(np.isnan(x), 0.0, x - mean)
    pull = across @ away[..., None]
    # P_mm⁻¹ = L⁻ᵀ L⁻¹
    moved = noise[..., None] - np.swapaxes(inverse, -1, -2) @ pull
    found: np.ndarray = mean + (inverse @ moved)[..., 0]
    return found
