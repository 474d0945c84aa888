"""Sums over all paths, and best paths, of chains whose states last negative binomial times.

State k is a chain of r_k sub-states with one emission. In every frame the chain stays in its
sub-state or leaves it for the next one, and from the last one it jumps to the first one of another
state. With the message a_t(k, j) of sub-state j, the factors b_t of the emissions, and the factors
of staying, leaving and jumping::

    a_t(k, 1) = (a_{t-1}(k, 1) stay_k + Σ_i a_{t-1}(i, r_i) leave_i jump_ik) b_t(k)
    a_t(k, j) = (a_{t-1}(k, j) stay_k + a_{t-1}(k, j-1) leave_k) b_t(k)

A frame thus costs K² + Σ r_k operations, and not (Σ r_k)². Messages of both directions are divided
by their sums. A sequence whose sums underflow, as those of :mod:`hidden_markov` can, is computed
again with logarithms, by a kernel of its own.
"""

from __future__ import annotations

import numpy as np

from ._compile import copied, helper, kernel
from ._math import exp, log

_SMALLEST = 1e-75


@copied
def _offsets(shapes):
    """Return where the sub-states of each state begin, and their number."""
    first = np.zeros(shapes.shape[0] + 1, np.int64)
    for k in range(shapes.shape[0]):
        first[k + 1] = first[k] + shapes[k]
    return first


@helper
def _longest(pointer):
    longest = 1
    for s in range(pointer.shape[0] - 1):
        longest = max(longest, pointer[s + 1] - pointer[s])
    return longest


@helper
def _highest(values):
    top = values[0]
    for value in values:
        top = max(top, value)
    return top


@kernel(
    "rows pointer vector matrix vector vector pointer vector vector"
    " out2 out1 out2 out1 out1 out2 out1 out1 int out_int",
    dtypes=("float64",),
)
def _scaled(
    log_emission,
    pointer,
    log_start,
    log_jump,
    log_stay,
    log_leave,
    shapes,
    inverse_temperature,
    scale,
    posteriors,
    starts,
    jumps,
    stays,
    leaves,
    ends,
    log_norms,
    energies,
    first_sequence,
    n_done,
):
    """Do what :func:`forward_backward` does, up to the first sequence that needs logarithms."""
    n_states = log_start.shape[0]
    first = _offsets(shapes)
    n_sub = first[n_states]
    longest = _longest(pointer)
    b = np.empty((longest, n_states))
    alpha = np.empty((longest, n_sub))
    c = np.empty(longest)
    beta, v = np.empty(n_sub), np.empty(n_sub)
    start, exits = np.empty(n_states), np.empty((n_states, n_states))
    stay, leave = np.empty(n_states), np.empty(n_states)
    enter = np.empty(n_states)
    own_jumps = np.empty((n_states, n_states))
    own_stays, own_leaves = np.empty(n_states), np.empty(n_states)
    used = -1.0
    n_done[0] = pointer.shape[0] - 1
    for s in range(first_sequence, pointer.shape[0] - 1):
        begin, end = pointer[s], pointer[s + 1]
        n = end - begin
        log_norms[s] = 0.0
        energies[s] = 0.0
        if n == 0:
            continue
        x = inverse_temperature[s if inverse_temperature.shape[0] > 1 else 0]
        weight = scale[s] if scale.shape[0] > 0 else 1.0
        if x != used:
            for i in range(n_states):
                start[i] = exp(x * log_start[i])
                stay[i] = exp(x * log_stay[i])
                leave[i] = exp(x * log_leave[i])
                for j in range(n_states):
                    exits[i, j] = exp(x * log_jump[i, j]) * leave[i]
            used = x
        log_norm = 0.0
        small = False
        for t in range(n):
            top = _highest(log_emission[begin + t])
            for k in range(n_states):
                b[t, k] = exp(x * (log_emission[begin + t, k] - top))
            total = 0.0
            if t == 0:
                for i in range(n_sub):
                    alpha[0, i] = 0.0
                for k in range(n_states):
                    alpha[0, first[k]] = start[k] * b[0, k]
                    total += alpha[0, first[k]]
            else:
                enter[:] = 0.0
                for i in range(n_states):
                    out = alpha[t - 1, first[i + 1] - 1]
                    for k in range(n_states):
                        enter[k] += out * exits[i, k]
                for k in range(n_states):
                    o = first[k]
                    alpha[t, o] = (alpha[t - 1, o] * stay[k] + enter[k]) * b[t, k]
                    total += alpha[t, o]
                    for i in range(o + 1, first[k + 1]):
                        moved = alpha[t - 1, i] * stay[k] + alpha[t - 1, i - 1] * leave[k]
                        alpha[t, i] = moved * b[t, k]
                        total += alpha[t, i]
            # This differs from < if a value is NaN.
            if not (total >= _SMALLEST):
                small = True
                break
            ratio = 1.0 / total
            for i in range(n_sub):
                alpha[t, i] *= ratio
            c[t] = total
            log_norm += x * top + log(total)
        energy = 0.0
        if not small:
            own_jumps[:] = 0.0
            own_stays[:] = 0.0
            own_leaves[:] = 0.0
            for i in range(n_sub):
                beta[i] = 1.0
            for t in range(n - 1, -1, -1):
                overlap = 0.0
                for i in range(n_sub):
                    overlap += alpha[t, i] * beta[i]
                if not (overlap >= _SMALLEST):
                    small = True
                    break
                for k in range(n_states):
                    share = 0.0
                    for i in range(first[k], first[k + 1]):
                        share += alpha[t, i] * beta[i]
                    share /= overlap
                    energy += share * log_emission[begin + t, k]
                    posteriors[begin + t, k] = share * weight
                    # After the loop these are the probabilities of the first states.
                    enter[k] = share
                if t == 0:
                    break
                w = 1.0 / (c[t] * overlap)
                for k in range(n_states):
                    for i in range(first[k], first[k + 1]):
                        v[i] = b[t, k] * beta[i]
                total = 0.0
                for k in range(n_states):
                    last = first[k + 1] - 1
                    out = alpha[t - 1, last] * w
                    ahead = 0.0
                    for j in range(n_states):
                        own_jumps[k, j] += out * v[first[j]]
                        ahead += exits[k, j] * v[first[j]]
                    stayed, left = 0.0, 0.0
                    for i in range(first[k], last):
                        stayed += alpha[t - 1, i] * v[i]
                        left += alpha[t - 1, i] * v[i + 1]
                        beta[i] = stay[k] * v[i] + leave[k] * v[i + 1]
                        total += beta[i]
                    stayed += alpha[t - 1, last] * v[last]
                    beta[last] = stay[k] * v[last] + ahead
                    total += beta[last]
                    own_stays[k] += w * stayed
                    own_leaves[k] += w * left
                if not (total >= _SMALLEST):
                    small = True
                    break
                for i in range(n_sub):
                    beta[i] /= total
        if small:
            n_done[0] = s
            return
        for k in range(n_states):
            own_stays[k] *= stay[k]
            own_leaves[k] *= leave[k]
            for j in range(n_states):
                own_jumps[k, j] *= exits[k, j]
                own_leaves[k] += own_jumps[k, j]
                energy += own_jumps[k, j] * log_jump[k, j]
                jumps[k, j] += weight * own_jumps[k, j]
            energy += enter[k] * log_start[k]
            energy += own_stays[k] * log_stay[k] + own_leaves[k] * log_leave[k]
            starts[k] += weight * enter[k]
            stays[k] += weight * own_stays[k]
            leaves[k] += weight * own_leaves[k]
        if ends.shape[0] > 0:
            for i in range(n_sub):
                ends[s, i] = alpha[n - 1, i]
        log_norms[s] = log_norm
        energies[s] = energy


@helper
def _sum_of_two(a, b):
    """Return log(exp(a) + exp(b))."""
    top = max(a, b)
    return top + log(exp(a - top) + exp(b - top))


@helper
def _normalized(values):
    """Shift logarithms so that their exponentials sum to 1; returns the log of the old sum."""
    top = _highest(values)
    total = 0.0
    for value in values:
        total += exp(value - top)
    norm = top + log(total)
    for i in range(values.shape[0]):
        values[i] -= norm
    return norm


@kernel(
    "rows pointer vector matrix vector vector pointer vector vector"
    " out2 out1 out2 out1 out1 out2 out1 out1 int",
    dtypes=("float64",),
)
def _in_logarithms(
    log_emission,
    pointer,
    log_start,
    log_jump,
    log_stay,
    log_leave,
    shapes,
    inverse_temperature,
    scale,
    posteriors,
    starts,
    jumps,
    stays,
    leaves,
    ends,
    log_norms,
    energies,
    s,
):
    """Do what :func:`forward_backward` does for sequence ``s`` alone, without underflow."""
    n_states = log_start.shape[0]
    first = _offsets(shapes)
    n_sub = first[n_states]
    begin, end = pointer[s], pointer[s + 1]
    n = end - begin
    x = inverse_temperature[s if inverse_temperature.shape[0] > 1 else 0]
    weight = scale[s] if scale.shape[0] > 0 else 1.0
    forward = np.empty((n, n_sub))
    backward, ahead = np.zeros(n_sub), np.empty(n_sub)
    work = np.empty(n_states)
    both = np.empty(n_sub)
    # The terms of all transitions of a frame: jumps, stays, and steps to the next sub-state.
    n_terms = n_states * n_states + 2 * n_sub
    terms = np.empty(n_terms)
    nothing = -1e200
    log_norm = 0.0
    energy = 0.0
    for t in range(n):
        top = _highest(log_emission[begin + t])
        for k in range(n_states):
            emitted = x * (log_emission[begin + t, k] - top)
            o = first[k]
            if t == 0:
                forward[0, o] = x * log_start[k] + emitted
                for i in range(o + 1, first[k + 1]):
                    forward[0, i] = nothing
                continue
            for j in range(n_states):
                work[j] = forward[t - 1, first[j + 1] - 1] + x * (log_leave[j] + log_jump[j, k])
            highest = _highest(work)
            total = 0.0
            for j in range(n_states):
                total += exp(work[j] - highest)
            entered = highest + log(total)
            stayed = forward[t - 1, o] + x * log_stay[k]
            forward[t, o] = _sum_of_two(entered, stayed) + emitted
            for i in range(o + 1, first[k + 1]):
                stayed = forward[t - 1, i] + x * log_stay[k]
                left = forward[t - 1, i - 1] + x * log_leave[k]
                forward[t, i] = _sum_of_two(stayed, left) + emitted
        log_norm += x * top + _normalized(forward[t])
    for t in range(n - 1, -1, -1):
        for i in range(n_sub):
            both[i] = forward[t, i] + backward[i]
        _normalized(both)
        for k in range(n_states):
            share = 0.0
            for i in range(first[k], first[k + 1]):
                share += exp(both[i])
            energy += share * log_emission[begin + t, k]
            posteriors[begin + t, k] = weight * share
            if t == 0:
                energy += share * log_start[k]
                starts[k] += weight * share
        if t == 0:
            break
        top = _highest(log_emission[begin + t])
        for k in range(n_states):
            emitted = x * (log_emission[begin + t, k] - top)
            for i in range(first[k], first[k + 1]):
                ahead[i] = backward[i] + emitted
        at = n_states * n_states
        for k in range(n_states):
            last = first[k + 1] - 1
            for j in range(n_states):
                work[j] = x * (log_leave[k] + log_jump[k, j]) + ahead[first[j]]
                terms[k * n_states + j] = forward[t - 1, last] + work[j]
            highest = _highest(work)
            total = 0.0
            for j in range(n_states):
                total += exp(work[j] - highest)
            jumped = highest + log(total)
            for i in range(first[k], first[k + 1]):
                stayed = x * log_stay[k] + ahead[i]
                terms[at + i] = forward[t - 1, i] + stayed
                left = jumped if i == last else x * log_leave[k] + ahead[i + 1]
                terms[at + n_sub + i] = nothing if i == last else forward[t - 1, i] + left
                backward[i] = _sum_of_two(stayed, left)
        _normalized(terms)
        _normalized(backward)
        for k in range(n_states):
            for j in range(n_states):
                share = exp(terms[k * n_states + j])
                energy += share * (log_leave[k] + log_jump[k, j])
                jumps[k, j] += weight * share
                leaves[k] += weight * share
            for i in range(first[k], first[k + 1]):
                share, left = exp(terms[at + i]), exp(terms[at + n_sub + i])
                energy += share * log_stay[k] + left * log_leave[k]
                stays[k] += weight * share
                leaves[k] += weight * left
    if ends.shape[0] > 0:
        for i in range(n_sub):
            ends[s, i] = exp(forward[n - 1, i])
    log_norms[s] = log_norm
    energies[s] = energy


def forward_backward(log_emission, pointer, *others):
    """Posteriors of the states and of their transitions, at an inverse temperature.

    q(z) of sequence s is proportional to exp{x_s E(z)}, where the energy E(z) of a path of
    sub-states is the sum of the log factors of its start, its stays, its steps, its jumps and its
    frames. Log factors are finite and at most 0, except those of frames, which are finite.

    Parameters
    ----------
    log_emission : array of shape (n, n_states)
    pointer : array of shape (n_sequences + 1,)
        Frames of sequence s are ``pointer[s]`` up to ``pointer[s + 1]``.
    log_start : array of shape (n_states,)
    log_jump : array of shape (n_states, n_states)
        From the last sub-state of the row's state to the first one of the column's state.
    log_stay, log_leave : array of shape (n_states,)
        Those of each sub-state of a state. A jump has the factor of leaving too.
    shapes : array of int64, shape (n_states,)
        Numbers of sub-states.
    inverse_temperature : array of shape (n_sequences,) or (1,)
        x_s, at most 1.
    scale : array of shape (n_sequences,) or (0,)
        Factors of the statistics of the sequences.
    posteriors : array of shape (n, n_states)
        Output: q(z_t is in state k), times the scale.
    starts : array of shape (n_states,)
        The posteriors of first frames are added to it.
    jumps : array of shape (n_states, n_states)
        The expected numbers of jumps, times the scale, are added to it.
    stays, leaves : array of shape (n_states,)
        The expected numbers of frames after which a sub-state is kept, or is left for the next one
        or by a jump, are added to them.
    ends : array of shape (n_sequences, n_sub_states) or (0, 0)
        Output: q(z_n), the probabilities of the sub-states of the last frame.
    log_norms : array of shape (n_sequences,)
        Output: logarithms of the normalisers.
    energies : array of shape (n_sequences,)
        Output: expected energies, without x and scale.
    """
    first, last, n_done = 0, len(pointer) - 1, np.zeros(1, np.int64)
    while first < last:
        _scaled(log_emission, pointer, *others, first, n_done)
        first = int(n_done[0]) + 1
        if first <= last:
            _in_logarithms(log_emission, pointer, *others, first - 1)


@kernel(
    "rows pointer vector matrix vector vector pointer out_int out1",
    dtypes=("float64",),
)
def viterbi(
    log_emission,
    pointer,
    log_start,
    log_jump,
    log_stay,
    log_leave,
    shapes,
    states,
    log_probabilities,
):
    """The most probable path of sub-states of every sequence, and its log probability.

    ``states`` of shape (n,) receives the states of the path. Among equally probable ways to a
    sub-state the one that stays is taken, and then the one from the lowest state.
    """
    n_states = log_start.shape[0]
    first = _offsets(shapes)
    n_sub = first[n_states]
    # -1 where the path stays, else the state that it comes from.
    back = np.empty((_longest(pointer), n_sub), np.int32)
    best, following = np.empty(n_sub), np.empty(n_sub)
    impossible = -1e300
    for s in range(pointer.shape[0] - 1):
        begin, end = pointer[s], pointer[s + 1]
        log_probabilities[s] = 0.0
        if begin == end:
            continue
        for k in range(n_states):
            for i in range(first[k], first[k + 1]):
                best[i] = impossible
            best[first[k]] = log_start[k] + log_emission[begin, k]
        for t in range(begin + 1, end):
            for k in range(n_states):
                o = first[k]
                top = best[o] + log_stay[k]
                origin = -1
                for i in range(n_states):
                    value = best[first[i + 1] - 1] + (log_leave[i] + log_jump[i, k])
                    if value > top:
                        top = value
                        origin = i
                following[o] = top + log_emission[t, k]
                back[t - begin, o] = origin
                for i in range(o + 1, first[k + 1]):
                    stayed = best[i] + log_stay[k]
                    left = best[i - 1] + log_leave[k]
                    back[t - begin, i] = k if left > stayed else -1
                    following[i] = max(stayed, left) + log_emission[t, k]
            for i in range(n_sub):
                best[i] = following[i]
        at, state = 0, 0
        for k in range(n_states):
            for i in range(first[k], first[k + 1]):
                if best[i] > best[at]:
                    at, state = i, k
        log_probabilities[s] = best[at]
        states[end - 1] = state
        for t in range(end - 1, begin, -1):
            origin = back[t - begin, at]
            if origin >= 0:
                if at > first[state]:
                    at -= 1
                else:
                    state = origin
                    at = first[state + 1] - 1
            states[t - 1] = state
