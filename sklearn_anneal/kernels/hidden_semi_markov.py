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

Best paths are those of states, and segments are their steps (:func:`viterbi`).
"""

from __future__ import annotations

import numpy as np

from ._compile import copied, helper, kernel
from ._math import exp, log, log_gamma

_SMALLEST = 1e-75
# The logarithm of the probability of what no path does.
_NOTHING = -1e300
# Log emissions that are summed up to here lose no digits that matter.
_LARGE = -1e4


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


@copied
def _log_durations(shape, log_stay, log_leave, found):
    """Fill the log probabilities of segments of 0, 1, … frames that end by a jump."""
    ways = 0.0
    for d in range(found.shape[0]):
        if d < shape:
            found[d] = _NOTHING
            continue
        # A segment of d frames has gone through the sub-states in C(d - 1, shape - 1) ways.
        found[d] = ways + shape * log_leave + (d - shape) * log_stay
        ways += log(d / (d - shape + 1.0))


@copied
def _log_at_least(d, shape, log_stay, log_leave):
    """Return the log probability that a segment has at least ``d`` frames.

    It is that of leaving less than ``shape`` sub-states in d - 1 frames: a sum over the number j of
    sub-states that are left, which begins at its largest term.
    """
    n_terms = min(shape, d)
    odds = exp(min(max(log_stay - log_leave, -600.0), 600.0))
    j = n_terms - 1
    while j > 0 and j * odds > d - j:
        j -= 1
    total, term = 1.0, 1.0
    for i in range(j, 0, -1):
        term *= i * odds / (d - i)
        total += term
    term = 1.0
    for i in range(j + 1, n_terms):
        term *= (d - i) / (i * odds)
        total += term
    ways = log_gamma(1.0 * d) - log_gamma(j + 1.0) - log_gamma(1.0 * (d - j))
    return ways + j * log_leave + (d - 1 - j) * log_stay + log(total)


@copied
def _overtaken(begin, value, later, value_of_later, shape, durations, n):
    """Return the first last frame with which a segment that begins later is the better one.

    It is n if there is none. Log probabilities of durations are concave functions. Longer ones of
    two segments therefore lose more by every frame: once the later begin is better, it stays so.
    """
    low, high = later + shape - 1, n - 1
    if low >= n:
        return n
    if value_of_later + durations[low - later + 1] > value + durations[low - begin + 1]:
        return low
    if not (value_of_later + durations[n - later] > value + durations[n - begin]):
        return n
    while high - low > 1:
        middle = (low + high) // 2
        ahead = value_of_later + durations[middle - later + 1]
        if ahead > value + durations[middle - begin + 1]:
            high = middle
        else:
            low = middle
    return high


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
    """The most probable path of states of every sequence, and its log probability.

    The ways in which segments go through sub-states are summed over. With the log probability
    p_k(d) of d frames in state k, and the sums E_k of log emissions, the best segment of state k
    whose last frame is t has the value::

        D_t(k) = max_d B_{t-d+1}(k) + p_k(d) + E_k(t-d+1, …, t)
        B_s(k) = max_j D_{s-1}(j) + jump_jk

    The last segment of a sequence lasts d frames or longer. Begins s that can still become the best
    are in a queue for each state, with the frames at which the next ones overtake them
    (:func:`_overtaken`). A sequence of n frames thus costs n K (K + log n) operations, and
    n Σ r_k for the last segments.

    ``states`` of shape (n,) receives the path. Among equally probable segments the longest one is
    taken, and among equally probable states the lowest one.
    """
    n_states = log_start.shape[0]
    longest = _longest(pointer)
    durations = np.empty((n_states, longest + 1))
    for k in range(n_states):
        _log_durations(shapes[k], log_stay[k], log_leave[k], durations[k])
    # The state before a segment that begins, and the begin of the best segment that ends.
    origins = np.empty((longest, n_states), np.int32)
    begins = np.empty((longest, n_states), np.int32)
    # The queues: begins, their values without the sums of emissions, and when they are overtaken.
    queue = np.empty((n_states, longest), np.int32)
    until = np.empty((n_states, longest), np.int32)
    values = np.empty((n_states, longest))
    heads, tails = np.empty(n_states, np.int64), np.empty(n_states, np.int64)
    emitted = np.empty(n_states)
    # The best last segments.
    last, last_begins = np.empty(n_states), np.empty(n_states, np.int64)
    best, following = np.empty(n_states), np.empty(n_states)
    for s in range(pointer.shape[0] - 1):
        first, n = pointer[s], pointer[s + 1] - pointer[s]
        log_probabilities[s] = 0.0
        if n == 0:
            continue
        heads[:] = 0
        tails[:] = 0
        emitted[:] = 0.0
        last[:] = _NOTHING
        total = 0.0
        for t in range(n):
            top = _highest(log_emission[first + t])
            total += top
            for k in range(n_states):
                entered = log_start[k]
                origin = 0
                if t > 0:
                    entered = best[0] + log_jump[0, k]
                    for j in range(1, n_states):
                        value = best[j] + log_jump[j, k]
                        if value > entered:
                            entered = value
                            origin = j
                origins[t, k] = origin
                head, tail = heads[k], tails[k]
                if entered > 0.5 * _NOTHING:
                    value = entered - emitted[k]
                    overtaken = 0
                    while tail > head:
                        back = tail - 1
                        overtaken = _overtaken(
                            queue[k, back], values[k, back], t, value, shapes[k], durations[k], n
                        )
                        if back == head or overtaken > until[k, back - 1]:
                            break
                        tail = back
                    if tail == head or overtaken < n:
                        if tail > head:
                            until[k, tail - 1] = overtaken
                        queue[k, tail] = t
                        values[k, tail] = value
                        tail += 1
                    value = entered + _log_at_least(n - t, shapes[k], log_stay[k], log_leave[k])
                    if value > last[k]:
                        last[k] = value
                        last_begins[k] = t
                own = log_emission[first + t, k] - top
                last[k] += own
                emitted[k] += own
                # Sums stay small, because differences of large ones have few digits.
                if emitted[k] < _LARGE:
                    for i in range(head, tail):
                        values[k, i] += emitted[k]
                    emitted[k] = 0.0
                while head + 1 < tail and until[k, head] <= t:
                    head += 1
                following[k] = _NOTHING
                if head < tail:
                    begin = queue[k, head]
                    begins[t, k] = begin
                    following[k] = values[k, head] + emitted[k] + durations[k, t - begin + 1]
                heads[k] = head
                tails[k] = tail
            for k in range(n_states):
                best[k] = following[k]
        state = 0
        for k in range(1, n_states):
            if last[k] > last[state]:
                state = k
        log_probabilities[s] = total + last[state]
        begin, end = last_begins[state], n
        while True:
            for t in range(begin, end):
                states[first + t] = state
            if begin == 0:
                break
            end = begin
            state = origins[end, state]
            begin = begins[end - 1, state]
