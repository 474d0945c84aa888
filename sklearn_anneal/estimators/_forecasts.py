"""Forecasts of states and observations after the last frames of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from sklearn.utils import Bunch

from ..families import Natural
from ..models.components._base import Components
from ..models.components._predictive_moments import deviations


def ahead(now: np.ndarray, transitions: np.ndarray, n_steps: int) -> np.ndarray:
    """Return the distributions of states 1, …, n_steps frames later.

    ``now`` has shape (n_sequences, n_states), and the result (n_sequences, n_steps, n_states).
    """
    found = np.empty((len(now), n_steps, now.shape[1]))
    for step in range(n_steps):
        now = now @ transitions
        found[:, step] = now
    return found


def expected_frames(
    components: Components, q: Natural, center: Any, shares: np.ndarray, predictive: bool
) -> Bunch:
    """Return ``mean``, ``std`` and ``probabilities`` of frames whose columns all have one emission.

    ``shares`` has the probabilities of the states, (n_sequences, n_steps, n_components). Moments
    are ``predictive``, or those at posterior means, relative to the ``center`` if there is one.

    ``mean`` and ``std`` have the shape (n_sequences, n_steps, n_features), and are None for columns
    that have probabilities. ``probabilities`` is None for others. It has the shape (n_sequences,
    n_steps, n_features) for binary columns and (n_sequences, n_steps, n_symbols) for symbols, and
    is a list with an array for each column for categories.
    """
    moments = components.predictive_moments(q) if predictive else components.plug_in_moments(q)
    if moments is None:
        return Bunch(mean=None, std=None, probabilities=_mixed(components.probabilities(q), shares))
    rows = shares.reshape(-1, shares.shape[-1])
    std = deviations(rows, moments).reshape(*shares.shape[:2], -1)
    mean = shares @ moments.mean
    return Bunch(mean=mean if center is None else mean + center, std=std, probabilities=None)


def _mixed(probabilities: Any, shares: np.ndarray) -> Any:
    if isinstance(probabilities, list):
        return [shares @ each for each in probabilities]
    return shares @ probabilities


def expected_blocks(
    parts: list[tuple[np.ndarray, Bunch]], shape: tuple[int, int], n_features: int
) -> Bunch:
    """Return the same for a table of blocks, given the columns and the result of each block.

    ``mean`` and ``std`` are NaN in columns that have probabilities, and ``probabilities`` is a
    dictionary with the arrays of these columns by their positions. ``shape`` is that of sequences
    and steps.
    """
    probabilities: dict[int, np.ndarray] = {}
    mean, std = np.full((2, *shape, n_features), np.nan)
    for columns, own in parts:
        if own.mean is not None:
            mean[..., columns], std[..., columns] = own.mean, own.std
        else:
            found = own.probabilities
            each = found if isinstance(found, list) else np.moveaxis(found, -1, 0)
            probabilities |= dict(zip(columns.tolist(), each, strict=True))
    return Bunch(mean=mean, std=std, probabilities=dict(sorted(probabilities.items())))


def long_run_shares(start: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """Return the shares of its time that an endless chain spends in each state.

    This is the stationary distribution if there is only one. Where transitions are forbidden, a
    chain may end in one of several sets of states that it never leaves; the shares are then those
    expected from the start.
    """
    moves = transitions > 0
    _, group = connected_components(moves, connection="strong")
    leaves = (moves & (group[:, None] != group)).any(axis=1)
    passing = np.isin(group, group[leaves])
    lasting = ~passing
    into = start[lasting]
    if passing.any():
        stays = np.eye(passing.sum()) - transitions[np.ix_(passing, passing)]
        times = np.linalg.solve(stays.T, start[passing])
        into = into + times @ transitions[np.ix_(passing, lasting)]
    total, shares = np.zeros(len(start)), np.zeros(len(start))
    total[lasting] = into
    for one in np.unique(group[lasting]):
        members = np.flatnonzero(group == one)
        own = _stationary(transitions[np.ix_(members, members)])
        shares[members] = total[members].sum() * own
    return shares / shares.sum()


def _stationary(transitions: np.ndarray) -> np.ndarray:
    """Return the stationary distribution of an irreducible chain, (n_states,).

    States are eliminated one by one without any subtraction, so that small probabilities keep
    their digits (Grassmann, Taksar and Heyman, 1985).
    """
    a, n = transitions.copy(), len(transitions)
    for k in range(n - 1, 0, -1):
        a[:k, k] /= a[k, :k].sum()
        a[:k, :k] += np.outer(a[:k, k], a[k, :k])
    shares = np.ones(n)
    for k in range(1, n):
        shares[k] = shares[:k] @ a[:k, k]
    return shares / shares.sum()
