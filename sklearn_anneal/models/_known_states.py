"""Frames of hidden Markov models whose states are known."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

from ..data.units import Sequences
from ..families import Natural
from ._base import compiled
from ._durations import divided
from ._known_classes import IMPOSSIBLE, exclude_others

if TYPE_CHECKING:
    from .hidden_markov import Expected, HiddenMarkov, Summary

# Number of entries of the arrays in which sequences are checked at a time.
_ENTRIES = 320 * 1024

kernels = partial(compiled, "hidden_markov")


def impossible_sequence(
    units: Sequences,
    startprob_prior: np.ndarray,
    transmat_prior: np.ndarray,
    shapes: np.ndarray | None = None,
) -> int | None:
    """Return the number of the first sequence whose known states no allowed path passes through.

    Paths with a start or a transition whose prior is 0 are not allowed, and with numbers of
    sub-states, the ``shapes`` (n_components,), neither are shorter segments. The result is None if
    there is no such sequence.
    """
    priors = {"startprob": startprob_prior, "transmat": transmat_prior}
    free = all((prior > 0).all() for prior in priors.values())
    if units.states is None or (free and (shapes is None or (shapes == 1).all())):
        return None
    viterbi, more = kernels().viterbi, []
    if shapes is not None:
        priors |= divided(transmat_prior)
        leave, stay = np.where(priors.pop("durations") > 0, 0.0, IMPOSSIBLE).T
        more = [np.ascontiguousarray(stay), np.ascontiguousarray(leave), shapes]
        viterbi = compiled("hidden_semi_markov").viterbi
    chain = [np.where(prior > 0, 0.0, IMPOSSIBLE) for prior in priors.values()]
    for part in units.parts(_ENTRIES // len(startprob_prior)):
        some = units.take(part)
        assert some.states is not None
        density = np.zeros((len(some.states), len(startprob_prior)))
        exclude_others(density, some.states, np.arange(len(startprob_prior)))
        best = np.empty(some.n_units)
        path = np.empty(len(some.states), dtype=np.int64)
        viterbi(density, some.indptr, *chain, *more, path, best)
        # Every allowed path of sub-states has the factor 1, and a path of states the sum of them.
        impossible = best < 0.5 * IMPOSSIBLE
        if impossible.any():
            return part.start + int(np.argmax(impossible))
    return None


def start_with_known_states(
    model: HiddenMarkov, q: Natural, units: Sequences, summary: Summary, prior: Natural
) -> Natural:
    """Return the start q after an update of its emissions in which known states are fixed.

    A start numbers its states at random. They are first put into the order in which they agree
    with as many frames of known states as possible. Transitions get the counts of known ones.
    """
    assert units.states is not None
    weights = np.ones(units.n_units) if units.weights is None else units.weights
    expected = model.for_units(model.expectations(q), units)
    states, agreement = np.arange(model.n_components), np.zeros((model.n_components,) * 2)
    raw, total = model.emission.zeros(expected.emission), 0.0
    for part in model.parts(units):
        shares, known, given = _shares(model, units.take(part), expected, weights[part])
        np.add.at(agreement, given, shares[known])
        total += shares.sum()
    order = linear_sum_assignment(agreement, maximize=True)[1]
    for part in model.parts(units):
        some = units.take(part)
        shares, known, given = _shares(model, some, expected, weights[part])
        shares = np.ascontiguousarray(shares[:, order]) * (summary.n_frames / max(total, 1e-300))
        one_hot = np.equal.outer(given, states)
        shares[known] = one_hot * shares[known].sum(axis=1, keepdims=True)
        model.emission.add(some.rows(), shares, raw, expected.emission)
    own = model.emission.posterior_given(raw, prior)
    return q | own | model.with_known_moves(q, units, weights * (summary.weight / weights.sum()))


def _shares(
    model: HiddenMarkov, units: Sequences, expected: Expected, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the posteriors of states given single frames, times weights.

    They do not use the states that are known. The second result has the numbers of the frames
    of such states, and the third one these states.
    """
    assert units.states is not None
    shares = softmax(model.emission.log_density(units.rows(), expected.emission), axis=1)
    shares *= units.per_frame(weights)[:, None]
    if units.missing is not None:
        shares[units.missing] = 0.0
    known = np.flatnonzero(units.states >= 0)
    return shares, known, units.states[known]


def add_known_moves(
    units: Sequences, weights: np.ndarray, start: np.ndarray, transmat: np.ndarray
) -> None:
    """Add the weights of known starts and transitions to numbers of them, in place."""
    assert units.states is not None
    states = units.states
    firsts = units.indptr[:-1][units.lengths > 0]
    follows = np.ones(len(states), dtype=bool)
    follows[firsts] = False
    begun = states[firsts]
    np.add.at(start, begun[begun >= 0], weights[units.lengths > 0][begun >= 0])
    moved = np.flatnonzero(follows & (states >= 0))
    moved = moved[states[moved - 1] >= 0]
    np.add.at(transmat, (states[moved - 1], states[moved]), units.per_frame(weights)[moved])
