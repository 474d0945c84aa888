"""Components that are added: which of them depend on each other, and what rows have in common."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

# Noise in the choice of components, on the scale of logarithms.
_NOISE_OF_CHOICE = 0.3


def correlations(activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the correlations of parts in absolute terms, and 0 of each with itself."""
    centered = activations - np.average(activations, axis=0, weights=weights)
    covariance = (centered.T * weights) @ centered
    deviations = np.sqrt(np.maximum(np.diagonal(covariance), np.finfo(float).tiny))
    found = np.abs(covariance / np.outer(deviations, deviations))
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def in_order(
    wanted: np.ndarray, dependence: np.ndarray, number: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the numbers of some components in the order in which they are chosen, up to chance.

    Each is ``wanted`` for itself, (n_components,), and more so the more its activations depend on
    those of components before it, (n_components, n_components).
    """
    order: list[int] = []
    for _ in range(min(number, len(wanted))):
        keys = np.log(wanted + dependence[order].max(axis=0, initial=0.0) + np.finfo(float).tiny)
        keys += _NOISE_OF_CHOICE * rng.gumbel(size=len(wanted))
        keys[order] = -np.inf
        order.append(int(np.argmax(keys)))
    return np.array(order)


def principal(rows: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest eigenvalues of Σ x xᵀ, and their eigenvectors as rows."""
    transposed = rows.shape[1] > rows.shape[0]
    gram = rows @ rows.T if transposed else rows.T @ rows
    n = len(gram)
    values, vectors = eigh(gram, subset_by_index=[max(n - number, 0), n - 1])
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
    if transposed:
        vectors = vectors @ rows
        lengths = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
        vectors = vectors / np.maximum(lengths, np.finfo(float).tiny)
    # Signs would depend on rounding errors.
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
    return values, np.where(largest < 0.0, -vectors, vectors)


def drawn_rows(
    weights: np.ndarray, key: np.ndarray, number: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the numbers of random rows, which are drawn as often as they weigh.

    Neither the order of the rows nor copies in place of weights make a difference, as rows are in
    the order of a ``key``, (n_rows,).
    """
    order = np.argsort(key, kind="stable")
    ends = np.cumsum(weights[order])
    places = np.searchsorted(ends[:-1], ends[-1] * rng.random(number), side="right")
    return np.asarray(order[places])
