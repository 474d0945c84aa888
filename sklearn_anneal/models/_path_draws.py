"""Draws of the states, the parameters and the missing cells of hidden Markov models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.units import Rows, Sequences, cell_patterns
from ..families import Natural
from ._draws import drawn_labels

if TYPE_CHECKING:
    from .hidden_markov import Expected, HiddenMarkov


def drawn_paths(
    log_density: np.ndarray,
    indptr: np.ndarray,
    start: np.ndarray,
    transitions: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw the path of states of each sequence from p(z | x) (Carter and Kohn, 1994).

    The last state is drawn from its filtered probabilities p(z_T | x_1, …, x_T), and each earlier
    one from p(z_t | z_{t+1}, x_1, …, x_t) ∝ p(z_t | x_1, …, x_t) A[z_t, z_{t+1}]. All sequences
    make the same step at the same time.

    Parameters
    ----------
    log_density : ndarray of shape (n_frames, n_states)
        Log densities of frames, 0 for missing ones.
    indptr : ndarray of int, shape (n_sequences + 1,)
        Where each sequence begins.
    start : ndarray of shape (n_states,)
    transitions : ndarray of shape (n_states, n_states)
    rng : numpy.random.Generator

    Returns
    -------
    states : ndarray of int, shape (n_frames,)
    """
    lengths = np.diff(indptr)
    order = np.argsort(-lengths, kind="stable")
    first, lengths = indptr[:-1][order], lengths[order]
    filtered = np.empty(log_density.shape)
    with np.errstate(divide="ignore"):
        log_start, log_transitions = np.log(start), np.log(transitions)
        for t in range(int(lengths.max(initial=0))):
            frames = first[: np.searchsorted(-lengths, -t)] + t
            before = filtered[frames - 1] @ transitions if t else None
            logs = log_density[frames] + (log_start if before is None else np.log(before))
            shares = np.exp(logs - logs.max(axis=1, keepdims=True))
            filtered[frames] = shares / shares.sum(axis=1, keepdims=True)
        np.log(filtered, out=filtered)
    states = np.empty(len(log_density), dtype=np.intp)
    last = indptr[1:] - 1
    states[last] = drawn_labels(filtered[last], rng)
    for t in range(int(lengths.max(initial=0)) - 2, -1, -1):
        frames = first[: np.searchsorted(-lengths, -t - 1)] + t
        states[frames] = drawn_labels(
            filtered[frames] + log_transitions[:, states[frames + 1]].T, rng
        )
    return states


def paths_given(
    model: HiddenMarkov, units: Sequences, expected: Expected, rng: np.random.Generator
) -> np.ndarray:
    """Draw the states of the Markov chain, which can be sub-states, given parameters."""
    start, transitions = model.chain_of(expected)
    of_states = model.states_of_sub_states
    expected = model.for_units(expected, units)
    found = np.empty(int(units.indptr[-1]), dtype=np.intp)
    for part in model.parts(units):
        some = units.take(part)
        density = model.log_density(some, expected)[:, of_states]
        frames = slice(units.indptr[part.start], units.indptr[part.stop])
        found[frames] = drawn_paths(density, some.indptr, start, transitions, rng)
    return found


def chain_given(model: HiddenMarkov, path: np.ndarray, indptr: np.ndarray) -> Natural:
    """Return the posterior of the chain given the states of the Markov chain of all frames."""
    of_states = model.states_of_sub_states
    states, k = of_states[path], model.n_components
    follows = np.ones(len(path), dtype=bool)
    follows[indptr[:-1]] = False
    now = np.flatnonzero(follows)
    # Only jumps to another state are counted apart from the time in a sub-state.
    counts = {"startprob": np.bincount(states[indptr[:-1]], minlength=k).astype(float)}
    moves = np.bincount(states[now - 1] * k + states[now], minlength=k * k)
    counts["transmat"] = moves.reshape(k, k).astype(float)
    found = model.chain_statistics(counts)
    if "durations" in found:
        kept = path[now - 1] == path[now]
        stays = np.bincount(states[now - 1][kept], minlength=k)
        leaves = np.bincount(states[now - 1][~kept], minlength=k)
        found["durations"] = np.column_stack([leaves, stays]).astype(float)
    return {key: value + found[key] for key, value in model.chain_prior().items()}


def rows_with_holes(units: Sequences) -> Rows:
    """Return all frames as rows in which the cells of missing frames are missing cells."""
    frames: Any = units.frames
    # Symbols and blocks mark what is missing themselves.
    if units.missing is None or not isinstance(frames, np.ndarray) or frames.ndim == 1:
        return units.rows()
    frames = np.where(units.missing[:, None], np.nan, frames.astype(np.float64, copy=False))
    return Rows(frames, None, units.center, cell_patterns(frames))


def drawn_frames(
    model: HiddenMarkov,
    q: Natural,
    prior: Natural,
    units: Sequences,
    n_rounds: int,
    completed: Callable[[np.ndarray], Sequences],
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw all cells of frames given the observed cells of their sequences.

    The parameters are drawn from q, then the paths given them, and then the cells. In a round the
    parameters are drawn again from their posterior given the paths and the completed frames.

    Parameters
    ----------
    model : HiddenMarkov
    q, prior : dict of ndarray
    units : Sequences
    n_rounds : int
    completed : callable
        Makes sequences without missing cells from drawn cells.
    rng : numpy.random.Generator

    Returns
    -------
    cells : ndarray of shape (n_frames, n_features)
        Only cells that are missing have a use for them.
    """
    rows = rows_with_holes(units)
    for left in range(n_rounds, -1, -1):
        expected = model.expectations(q, rng)
        path = paths_given(model, units, expected, rng)
        states = model.states_of_sub_states[path]
        cells = model.emission.drawn_rows(rows, states, expected.emission, rng)
        if left:
            full = completed(cells).rows()
            own = {key: prior[key] for key in model.emission.keys}
            q = chain_given(model, path, units.indptr)
            how = own, expected.emission, rng
            q = q | model.emission.posterior_given_labels(full, states, *how)
    return cells
