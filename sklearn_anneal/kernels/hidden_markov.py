"""Sums over all paths of hidden Markov models, and their best paths, sequence by sequence.

Forward and backward messages are each divided by a sum of their own. The two recursions thus do not
wait for each other, and run through a sequence in opposite directions in one loop. With the forward
message a_t, the factors b_t of the emissions, the backward message β_t, v_t = b_t β_t, and
transition factors A::

    a_t = (a_{t-1} A) b_t r_t      β_{t-1} = A v_t s_{t-1}      r_t = 1 / Σ a_{t-2} or 1 in turns
    γ_t ∝ a_t β_t      ξ_t = a_{t-1} A v_t r_t / Σ a_t β_t      log Z = log Σ a_n - Σ log r_t

Every other r_t is 1, which keeps the sizes of the messages from oscillating. The other divisors are
sums of two frames before, so that no step of the recursion waits for the sum and the division of
the step before it.

Numbers that underflow here are below 1e-305 times a divisor. They matter only if the remaining
paths have little weight, that is if a sum or the overlap of both messages is below ``_SMALLEST``.
Such a sequence is computed again with logarithms.

The functions for few states, for many, and for sequences that need logarithms are kernels of their
own, each of which is compiled when it is first needed.
"""

from __future__ import annotations

import numpy as np

from ._compile import Kernel, copied, helper, kernel, with_names
from ._math import exp, log
from .simd.chains import (
    add_outer_products,
    center_rows,
    finish_rows,
    make_add_outer_products,
    make_center_rows,
    make_finish_rows,
    make_steps,
)
from .simd.emitter import DOUBLES
from .simd.products import total

_SMALLEST = 1e-75
# Messages are used twice. Blocks of this many frames are small enough that the messages are still
# in the fastest cache at their second use.
_BLOCK = 128
# Whether a kernel contains what sequences need whose sums underflow.
_WITH_LOGARITHMS = True


@helper
def _padded(n):
    return (n + DOUBLES - 1) // DOUBLES * DOUBLES


@copied
def _longest(pointer):
    longest = 0
    for s in range(pointer.shape[0] - 1):
        longest = max(longest, pointer[s + 1] - pointer[s])
    return longest


@copied
def _exponentiate(values, n):
    for i in range(n):
        values[i] = exp(values[i])


@copied
def _exponential_tables(log_start, log_transition, x, start, table, transposed):
    """Compute the factors of the start and of transitions; the padding is 0 and stays 0."""
    n_states = log_start.shape[0]
    for i in range(n_states):
        start[i] = exp(x * log_start[i])
        for j in range(n_states):
            table[i, j] = exp(x * log_transition[i, j])
    for i in range(n_states):
        for j in range(n_states):
            transposed[j, i] = table[i, j]


def _make_recursions(width=None):
    """Make the recursions for rows with this many columns or, if None, with any number."""
    forward, backward = make_steps(width)

    @helper
    def recursions(n, n_states, start, table, transposed, b, alpha, beta, v, ratios, c, d):
        """Run both recursions and return the number of sums in ``c``.

        ``c`` and ``d`` receive the sums of every other frame, and ``ratios`` (n,) the factors by
        which the forward messages were multiplied. The normaliser is the product of the entries of
        ``c``.
        """
        width = table.shape[0]
        last = (n - 1) * width
        last_b = (n - 1) * n_states
        sum_ = 0.0
        sum_of_v = 0.0
        for k in range(width):
            alpha[k] = start[k] * b[k] if k < n_states else 0.0
            beta[last + k] = 1.0
            v[k] = b[last_b + k] if k < n_states else 0.0
            sum_ += alpha[k]
            sum_of_v += v[k]
        c[0] = sum_
        d[0] = sum_of_v
        ratios[0] = 1.0
        n_pairs = (n - 1) // 2
        for m in range(n_pairs):
            t = 2 * m + 1
            at = t * width
            b_at = t * n_states
            ratios[t] = 1.0
            forward(alpha, at, table, n_states, b, b_at, 1.0)
            backward(v, 0, width, transposed, n_states, b, last_b - b_at, 1.0, beta, last - at)
            t += 1
            at += width
            b_at += n_states
            ratio = 1.0 / sum_
            ratios[t] = ratio
            sum_ = forward(alpha, at, table, n_states, b, b_at, ratio)
            sum_of_v = backward(
                v, width, 0, transposed, n_states, b, last_b - b_at, 1.0 / sum_of_v, beta, last - at
            )
            c[m + 1] = sum_
            d[m + 1] = sum_of_v
        if n_pairs * 2 < n - 1:
            ratios[n - 1] = 1.0
            c[n_pairs] = forward(alpha, last, table, n_states, b, last_b, 1.0)
            backward(v, 0, width, transposed, n_states, b, 0, 1.0, beta, 0)
        return n_pairs + 1

    return recursions


_recursions = _make_recursions()


@helper
def _any_too_small(values, n):
    small = 0
    for t in range(n):
        # This differs from < if a value is NaN, which has to count as too small.
        small += not (values[t] >= _SMALLEST)
    return small > 0


@copied
def _sum_of_logs(values, n, logs):
    for t in range(n):
        logs[t] = log(values[t])
    for t in range(n, _padded(n)):
        logs[t] = 0.0
    return total(logs[: _padded(n)])


@helper
def _log_sum_exp(values):
    top = values[0]
    for k in range(1, values.shape[0]):
        top = max(top, values[k])
    result = 0.0
    for k in range(values.shape[0]):
        result += exp(values[k] - top)
    return top + log(result)


@helper
def _normalize_logs(values):
    """Shift logarithms so that their exponentials sum to 1; returns the log of the old sum."""
    norm = _log_sum_exp(values)
    for k in range(values.shape[0]):
        values[k] -= norm
    return norm


@helper
def _largest(values):
    top = values[0]
    for value in values:
        top = max(top, value)
    return top


@copied
def _log_recursions(log_emission, x, log_start, log_transition, top, forward, backward, work):
    """Compute normalised log messages of all frames; returns the logarithm of the normaliser.

    The part that all states have in common is subtracted before anything is added, because the
    rounding of large sums would lose small differences between states.
    """
    n, n_states = log_emission.shape
    log_norm = 0.0
    for t in range(n):
        if t == 0:
            for j in range(n_states):
                forward[0, j] = x * log_start[j]
        else:
            for j in range(n_states):
                for i in range(n_states):
                    work[i] = forward[t - 1, i] + x * (log_transition[i, j] - top)
                forward[t, j] = _log_sum_exp(work)
            log_norm += x * top
        log_norm += _normalize_logs(forward[t])
        emission = _largest(log_emission[t])
        for j in range(n_states):
            forward[t, j] += x * (log_emission[t, j] - emission)
        log_norm += x * emission + _normalize_logs(forward[t])
    for j in range(n_states):
        backward[n - 1, j] = 0.0
    for t in range(n - 1, 0, -1):
        emission = _largest(log_emission[t])
        for i in range(n_states):
            for j in range(n_states):
                work[j] = x * (log_transition[i, j] - top)
                work[j] += backward[t, j] + x * (log_emission[t, j] - emission)
            backward[t - 1, i] = _log_sum_exp(work)
        _normalize_logs(backward[t - 1])
    return log_norm


@copied
def _in_log_space(log_emission, x, log_start, log_transition, forward, backward, gamma, starts, xi):
    """Posteriors, their sums, energy and log normaliser of one sequence, without underflow."""
    n, n_states = log_emission.shape
    work = np.empty(n_states)
    pairs = np.empty(n_states * n_states)
    top = log_transition[0, 0]
    for i in range(n_states):
        top = max(top, _largest(log_transition[i]))
    log_norm = _log_recursions(
        log_emission, x, log_start, log_transition, top, forward, backward, work
    )
    energy = 0.0
    xi[:] = 0.0
    for t in range(n):
        # log γ_t(k) = log a_t(k) + log β_t(k) + const
        for k in range(n_states):
            work[k] = forward[t, k] + backward[t, k]
        _normalize_logs(work)
        for k in range(n_states):
            gamma[t, k] = exp(work[k])
            energy += gamma[t, k] * log_emission[t, k]
        if t == 0:
            for k in range(n_states):
                starts[k] = gamma[0, k]
            continue
        # log ξ_t(i, j) = log a_{t-1}(i) + x (log A_ij + log b_t(j)) + log β_t(j) + const
        emission = _largest(log_emission[t])
        for i in range(n_states):
            for j in range(n_states):
                into = backward[t, j] + x * (log_emission[t, j] - emission)
                pairs[i * n_states + j] = (
                    forward[t - 1, i] + into + x * (log_transition[i, j] - top)
                )
        _normalize_logs(pairs)
        for i in range(n_states):
            for j in range(n_states):
                xi[i, j] += exp(pairs[i * n_states + j])
    return log_norm, energy


def _forward_backward(
    log_emission,
    pointer,
    log_start,
    log_transition,
    inverse_temperature,
    scale,
    posteriors,
    starts,
    transitions,
    log_norms,
    energies,
    first_sequence,
    n_done,
):
    """Posteriors of the states and of their transitions, at an inverse temperature.

    q(z) of sequence s is proportional to
    exp{x_s (log_start[z_1] + Σ log_transition[z_{t-1}, z_t] + Σ log_emission[t, z_t])}.
    Log probabilities are finite, and at most 0 for the start and the transitions.

    Parameters
    ----------
    log_emission : array of shape (n, n_states)
    pointer : array of shape (n_sequences + 1,)
        Frames of sequence s are ``pointer[s]`` up to ``pointer[s + 1]``.
    log_start : array of shape (n_states,)
    log_transition : array of shape (n_states, n_states)
    inverse_temperature : array of shape (n_sequences,) or (1,)
        x_s, at most 1.
    scale : array of shape (n_sequences,) or (0,)
        Factors of the statistics of the sequences.
    posteriors : array of shape (n, n_states)
        Output: q(z_t = k), times the scale.
    starts : array of shape (n_states,)
        The posteriors of first frames are added to it.
    transitions : array of shape (n_states, n_states)
        Σ_t q(z_{t-1} = i, z_t = j), times the scale, is added to it.
    log_norms : array of shape (n_sequences,)
        Output: logarithms of the normalisers.
    energies : array of shape (n_sequences,)
        Output: expected exponents without x and scale.
    first_sequence : int
        The sequences before this one are left out.
    n_done : array of shape (1,)
        Output: the number of the sequence at which the kernel stopped, because it needs logarithms,
        or the number of sequences. Sums do not contain this sequence.
    """
    n_states = log_start.shape[0]
    width = _padded(n_states)
    longest = max(_longest(pointer), 1)
    # Rows of b have no padding. A vector at the end of a row reads entries of the next row, but
    # these are multiplied by 0.
    b = np.zeros(longest * n_states + DOUBLES)
    alpha = np.empty(longest * width)
    beta = np.empty(longest * width)
    v = np.empty(2 * width)
    c = np.empty(longest // 2 + 1)
    d = np.empty(_padded(longest // 2 + 1))
    ratios = np.empty(longest)
    overlaps = np.empty(longest)
    start = np.zeros(width)
    table = np.zeros((width, width))
    transposed = np.zeros((width, width))
    gamma_1 = np.empty(n_states)
    xi = np.empty((width, width))
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
            _exponential_tables(log_start, log_transition, x, start, table, transposed)
            used = x
        log_norm = x * center_rows(log_emission, begin, n, x, b)
        _exponentiate(b, n * n_states)
        # The entries after the last row are read too. They are set to 0, because an infinite number
        # times 0 would not be 0.
        b[n * n_states : n * n_states + DOUBLES] = 0.0
        n_sums = _recursions(n, n_states, start, table, transposed, b, alpha, beta, v, ratios, c, d)
        for k in range(n_states):
            gamma_1[k] = alpha[k] * beta[k]
        xi[:] = 0.0
        energy = 0.0
        for first in range(0, n, _BLOCK):
            stop = min(first + _BLOCK, n)
            energy += finish_rows(
                alpha, beta, b, first, stop - first, ratios, overlaps, log_emission, posteriors,
                begin + first, weight,
            )  # fmt: skip
            before = max(first - 1, 0)
            add_outer_products(alpha, beta, before, stop - 1 - before, xi)
        if _any_too_small(c, n_sums) or _any_too_small(d, n_sums) or _any_too_small(overlaps, n):
            if not _WITH_LOGARITHMS:
                n_done[0] = s
                return
            log_norm, energy = _in_log_space(
                log_emission[begin:end],
                x,
                log_start,
                log_transition,
                alpha[: n * n_states].reshape((n, n_states)),
                beta[: n * n_states].reshape((n, n_states)),
                posteriors[begin:end],
                gamma_1,
                xi,
            )
            for t in range(begin, end):
                for k in range(n_states):
                    posteriors[t, k] *= weight
        else:
            log_norm += _sum_of_logs(c, n_sums, d)
            for i in range(n_states):
                gamma_1[i] /= overlaps[0]
                for j in range(n_states):
                    xi[i, j] *= table[i, j]
        for i in range(n_states):
            energy += gamma_1[i] * log_start[i]
            starts[i] += weight * gamma_1[i]
            for j in range(n_states):
                energy += xi[i, j] * log_transition[i, j]
                transitions[i, j] += weight * xi[i, j]
        log_norms[s] = log_norm
        energies[s] = energy


def _kernel_of(width: int | None, with_logarithms: bool) -> Kernel:
    """Make the kernel for rows of a width, or of any."""
    names = {
        "center_rows": make_center_rows(width),
        "_recursions": _make_recursions(width),
        "finish_rows": make_finish_rows(width),
        "add_outer_products": make_add_outer_products(width),
        "_WITH_LOGARITHMS": with_logarithms,
    }
    suffix = f"of_{width or 'many'}" + "_with_logarithms" * with_logarithms
    types = "rows pointer vector matrix vector vector out2 out1 out2 out1 out1 int out_int"
    function = with_names(_forward_backward, suffix, **names)
    return kernel(types, dtypes=("float64",))(function)


# Rows with so few columns are processed without loops over states, which is faster. Padding counts
# as states of probability 0.
_WIDTHS = (4, 8, 12)
_KERNELS = {
    (width, with_logarithms): _kernel_of(width, with_logarithms)
    for width in (*_WIDTHS, None)
    for with_logarithms in (False, True)
}


def forward_backward(log_emission, pointer, *others):
    """Do what :func:`_forward_backward` does, whose arguments but the last two it has."""
    n_states = log_emission.shape[1]
    width = next((width for width in _WIDTHS if n_states <= width), None)
    n_done = np.zeros(1, np.int64)
    _KERNELS[width, False](log_emission, pointer, *others, 0, n_done)
    if n_done[0] < len(pointer) - 1:
        _KERNELS[width, True](log_emission, pointer, *others, int(n_done[0]), n_done)


@kernel("rows pointer vector matrix out_int out1", dtypes=("float64",))
def viterbi(log_emission, pointer, log_start, log_transition, states, log_probabilities):
    """The most probable path of every sequence, and its log probability.

    Among equally probable paths the one with the lower states is taken. ``states`` has shape (n,),
    ``log_probabilities`` (n_sequences,).
    """
    n_states = log_start.shape[0]
    back = np.empty((max(_longest(pointer), 1), n_states), np.int32)
    best = np.empty(n_states)
    following = np.empty(n_states)
    into = log_transition.T.copy()
    for s in range(pointer.shape[0] - 1):
        begin, end = pointer[s], pointer[s + 1]
        log_probabilities[s] = 0.0
        if begin == end:
            continue
        for k in range(n_states):
            best[k] = log_start[k] + log_emission[begin, k]
        for t in range(begin + 1, end):
            for j in range(n_states):
                # Every j has local variables, which stay in registers during the loop.
                top = best[0] + into[j, 0]
                origin = 0
                for i in range(1, n_states):
                    value = best[i] + into[j, i]
                    origin = i if value > top else origin
                    top = max(top, value)
                following[j] = top
                back[t - begin, j] = origin
            for j in range(n_states):
                best[j] = following[j] + log_emission[t, j]
        state = 0
        for k in range(1, n_states):
            if best[k] > best[state]:
                state = k
        log_probabilities[s] = best[state]
        states[end - 1] = state
        for t in range(end - 1, begin, -1):
            state = back[t - begin, state]
            states[t - 1] = state


@kernel("rows index out2", dtypes=("float64",))
def categorical_log_density(table, symbols, out):
    """Copy the row of ``table`` (n_symbols, n_states) for every symbol to ``out`` (n, n_states).

    A symbol of −1 is missing; its row of ``out`` is 0.
    """
    for t in range(symbols.shape[0]):
        symbol = symbols[t]
        for k in range(table.shape[1]):
            out[t, k] = table[symbol, k] if symbol >= 0 else 0.0


@kernel("rows index out2", dtypes=("float64",))
def categorical_statistics(posteriors, symbols, out):
    """Add the posteriors (n, n_states) of each frame to the row of its symbol; −1 is missing."""
    for t in range(symbols.shape[0]):
        symbol = symbols[t]
        if symbol >= 0:
            for k in range(posteriors.shape[1]):
                out[symbol, k] += posteriors[t, k]


@kernel("rows rows rows pointer index out2", dtypes=("float64",))
def log_partitions(start, transfer, log_volume, indptr, missing, out):
    """Logarithms of the sums over all paths of tempered chains, in which frames may be missing.

    The result, for each sequence and temperature, has shape (n_sequences, M). ``start`` and
    ``log_volume`` have shape (M, K), ``transfer`` (M K, K). A frame that ``missing`` marks has no
    emission. Volumes are taken relative to the largest one of a state that can be reached, because
    those of states that cannot may be larger than a number can hold in comparison.
    """
    n_temperatures, n_states = start.shape
    state = np.empty(n_states)
    moved = np.empty(n_states)
    for i in range(indptr.shape[0] - 1):
        for m in range(n_temperatures):
            total = 0.0
            for k in range(n_states):
                state[k] = start[m, k]
            for t in range(indptr[i], indptr[i + 1]):
                if t > indptr[i]:
                    moved[:] = 0.0
                    for j in range(n_states):
                        for k in range(n_states):
                            moved[k] += state[j] * transfer[m * n_states + j, k]
                    for k in range(n_states):
                        state[k] = moved[k]
                if missing[t] == 0:
                    top = -np.inf
                    for k in range(n_states):
                        if state[k] > 0.0 and log_volume[m, k] > top:
                            top = log_volume[m, k]
                    for k in range(n_states):
                        if state[k] > 0.0:
                            state[k] *= exp(log_volume[m, k] - top)
                    total += top
                norm = 0.0
                for k in range(n_states):
                    norm += state[k]
                for k in range(n_states):
                    state[k] /= norm
                total += np.log(norm)
            out[i, m] = total
