"""Prior concentrations of transitions between frames, as those of jumps and of durations."""

from __future__ import annotations

import numpy as np

from ..families import Natural


def divided(transmat: np.ndarray) -> Natural:
    """Return concentrations of jumps and of durations, given those of transitions, (K, K).

    These are ``transmat`` (K, K) without the diagonal, and ``durations`` (K, 2) with the
    concentrations of leaving a state and of staying. The jump to itself of a state that cannot be
    left has the concentration 1.
    """
    jumps = without_diagonal(transmat)
    leaving = jumps.sum(axis=1)
    lasting = np.flatnonzero(leaving == 0)
    jumps[lasting, lasting] = 1.0
    return {"transmat": jumps, "durations": np.column_stack([leaving, np.diagonal(transmat)])}


def without_diagonal(square: np.ndarray) -> np.ndarray:
    """Return a copy of a matrix with zeros on its diagonal."""
    found = square.copy()
    np.fill_diagonal(found, 0.0)
    return found
