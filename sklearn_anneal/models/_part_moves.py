"""Swaps of the parts of factorial mixtures: one part is given up, and another one is sought."""

from __future__ import annotations

import numpy as np

# Rounds in which a new part is refined: its rows are those that it explains better than nothing.
_ROUNDS = 5
# Differences of losses below this number of nats per row are left to chance.
_CHANCE = 0.005


def swapped_means(
    means: np.ndarray,
    activations: np.ndarray,
    X: np.ndarray,
    weights: np.ndarray,
    noise_variance: float,
    rng: np.random.Generator,
    guided: bool,
) -> np.ndarray:
    """Return the means of all parts after one of them was replaced by one found in the residuals.

    Parameters
    ----------
    means : ndarray of shape (n_components, n_features)
    activations : ndarray of shape (n_rows, n_components)
        E z of the rows.
    X : ndarray of shape (n_rows, n_features)
        Rows relative to the center of the data.
    weights : ndarray of shape (n_rows,)
    noise_variance : float
    rng : numpy.random.Generator
    guided : bool
        Whether the part that is given up is the one whose loss matters least, up to chance, and
        not any one.
    """
    residuals = X - activations @ means
    k = len(means)
    given_up = int(rng.integers(k))
    if guided:
        lengths = (means**2).sum(axis=1)
        explained = 2.0 * residuals @ means.T + lengths
        losses = weights @ (activations * explained) / (2.0 * noise_variance)
        chance = _CHANCE * weights.sum()
        given_up = int(np.argmin(losses - chance * rng.gumbel(size=k)))
    residuals += np.outer(activations[:, given_up], means[given_up])
    energies = weights * (residuals**2).sum(axis=1)
    total = energies.sum()
    if not (np.isfinite(total) and total > 0):
        return means
    found = residuals[rng.choice(len(X), p=energies / total)]
    for _ in range(_ROUNDS):
        active = (residuals @ found > 0.5 * (found @ found)) * weights
        if not active.any():
            break
        found = active @ residuals / active.sum()
    result = means.copy()
    result[given_up] = found
    return result
