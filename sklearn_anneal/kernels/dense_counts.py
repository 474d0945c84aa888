"""Coordinate ascent of gamma-process NMF for dense rows of counts, sixteen of them at a time.

Rows fill the lanes of vector instructions, so that a sum over components is one over vectors. Cells
without counts take as long as others. :mod:`gamma_process_nmf` says what the steps are.
"""

from __future__ import annotations

import numpy as np

from ._compile import called, helper, kernel
from ._math import digamma, digamma_and_log_gamma, exp, log
from .counts import (
    FAR_FROM_ZERO,
    FAR_FROM_ZERO_SINGLE,
    SMALLEST_LOG,
    TINY,
    TINY_SINGLE,
    expected_row,
    padded,
)
from .gamma_process_nmf import lift, powers_of, smallest_shape
from .simd.emitter import ROWS, TOGETHER
from .simd.products import ratio_update_together, ratio_update_together_with_norms

# After so many updates of coordinate passes half of a change is added.
_DELAY = 2.0
# Momentum halves a shape at most.
_LEAST_SHARE_OF_ROOT = 0.5**0.5
# Logarithms of numbers that are far from zero in double and in single precision.
_LOG_FAR = float(np.log(FAR_FROM_ZERO)), float(np.log(FAR_FROM_ZERO_SINGLE))
# So many sums run at a time.
_SUMMED = 256


@helper
def _lanes(n, like):
    """Return memory for n vectors, each of which has a number in all lanes."""
    return np.ones((n, TOGETHER), like.dtype)


@called
def _lift_lanes(shape, local, out):
    """Divide powers by the largest in lanes where all underflow."""
    for i in range(TOGETHER):
        lift(shape[:, i], local, out[:, i])


@helper
def _powers(shape, local, light, out):
    """``out = exp{x ψ(shape)}``, divided by the largest in ``light`` lanes where all underflow."""
    powers_of(shape.reshape(shape.size), local, out.reshape(out.size))
    if light:
        _lift_lanes(shape, local, out)


@helper
def _may_be_light(base, local, table):
    """Whether exp{x ψ(shape)} of shapes of at least ``base`` can underflow."""
    # ψ(s) is above −1/s − 0.58.
    return local * (1.0 / np.float64(base) + 0.58) > -_LOG_FAR[1 if table.itemsize == 4 else 0]


@helper
def _step(base, step, e, acc, shape, going, changes):
    """``shape = base + step * acc * e`` in the lanes that are ``going``.

    ``changes`` receives the sums of |change|.
    """
    zero = shape.dtype.type(0)
    for i in range(TOGETHER):
        changes[i] = zero
    for k in range(shape.shape[0]):
        for i in range(TOGETHER):
            old = shape[k, i]
            new = base + step * (e[k, i] * acc[k, i])
            new = new if going[i] > zero else old
            changes[i] += abs(new - old)
            shape[k, i] = new


@helper
def _extrapolate(base, shape, earlier, ahead, going, lead, shares):
    """Do the same as :func:`gamma_process_nmf._extrapolated` in each lane that is ``going``.

    ``shares`` is memory.
    """
    size = shape.dtype.type
    for i in range(TOGETHER):
        shares[i] = size(0)
    for k in range(shape.shape[0]):
        for i in range(TOGETHER):
            shares[i] += (shape[k, i] - ahead[k, i]) * (shape[k, i] - earlier[k, i])
    for i in range(TOGETHER):
        lead[i] = size(0) if shares[i] < size(0) else lead[i]
        shares[i] = lead[i] / (lead[i] + size(3))
        lead[i] += size(1)
    for k in range(shape.shape[0]):
        for i in range(TOGETHER):
            new = shape[k, i]
            moved = max(new + shares[i] * (new - earlier[k, i]), size(0.5) * (new + base))
            earlier[k, i] = new
            shape[k, i] = moved if going[i] > size(0) else new
            ahead[k, i] = shape[k, i]


@helper
def _copy_counts(counts, begin, out):
    """Copy some rows of counts to the lanes, without missing cells; return the number of rows.

    A branch for each cell that is zero would take much longer: no processor can predict it.
    """
    zero, n = out.dtype.type(0), min(TOGETHER, counts.shape[0] - begin)
    if n < TOGETHER:
        out[:] = zero
    for i in range(n):
        for v in range(counts.shape[1]):
            # NaN is not above zero.
            out[v, i] = max(zero, counts[begin + i, v])
    return n


@helper
def _sweep(c, table, local, base, step, n_updates, momentum, tol, arrays, row, factors, current):
    """Update the activations of the rows in the lanes, each until it has converged.

    Parameters
    ----------
    c : array of shape (n_columns, TOGETHER)
        Counts.
    table : array of shape (n_columns, width)
    local, base, step, n_updates, momentum, tol
        As in :func:`gamma_process_nmf.dense_updates`.
    arrays : tuple
        Memory, from :func:`_memory_of_sweeps`.
    row : array of shape (n_components, TOGETHER)
        The factors that divide the counts in the first update, which are replaced.
    factors : array of shape (n_components, TOGETHER)
        exp{x (E log θ − log rate) − top} with the rates of the result.
    current : array of shape (n_components, TOGETHER)
        The start, and the result.
    """
    own, acc, earlier, ahead, going, lead, scratch = arrays
    size, zero, light = c.dtype.type, c.dtype.type(0), _may_be_light(base, local, table)
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    going[:], lead[:] = size(1), zero
    for update in range(n_updates):
        if update > 0:
            _powers(current, local, light, own)
            for k in range(row.shape[0]):
                for i in range(TOGETHER):
                    row[k, i] = factors[k, i] * own[k, i]
        acc[:] = zero
        ratio_update_together(row, c, 0, tiny, table, acc)
        _step(base, step, row, acc, current, going, scratch)
        n_going = 0
        for i in range(TOGETHER):
            if np.float64(scratch[i]) < tol * row.shape[0]:
                going[i] = zero
            n_going += going[i] > zero
        if n_going == 0:
            break
        if momentum and update < n_updates - 1:
            _extrapolate(base, current, earlier, ahead, going, lead, scratch)


@helper
def _memory_of_sweeps(n_components, like):
    """Return the arrays that :func:`_sweep` needs."""
    own, acc = _lanes(n_components, like), _lanes(n_components, like)
    earlier, ahead = _lanes(n_components, like), _lanes(n_components, like)
    going, lead = np.ones(TOGETHER, like.dtype), np.ones(TOGETHER, like.dtype)
    return own, acc, earlier, ahead, going, lead, np.ones(TOGETHER, like.dtype)


@kernel("rows rows out_rows out_rows matrix float float float int int float out2")
def dense_updates_together(
    counts, table, e, powers, factor, local, base, step, n_updates, momentum, tol, shape
):
    """Do the same as :func:`gamma_process_nmf.dense_updates`, up to rounding."""
    n_rows, n_columns = counts.shape
    n_components = shape.shape[1]
    size = table.dtype.type
    low = smallest_shape(table)
    floor, light = size(max(base, low)), _may_be_light(max(base, low), local, table)
    c = np.zeros((n_columns, TOGETHER), table.dtype)
    row, own = _lanes(n_components, c), _lanes(n_components, c)
    factors, current = _lanes(n_components, c), _lanes(n_components, c)
    arrays = _memory_of_sweeps(n_components, c)
    for begin in range(0, n_rows, TOGETHER):
        n = _copy_counts(counts, begin, c)
        for i in range(TOGETHER):
            d = begin + min(i, n - 1)
            at = d if factor.shape[0] > 1 else 0
            for k in range(n_components):
                current[k, i] = size(max(shape[d, k], low))
                row[k, i] = e[d, k]
                factors[k, i] = size(factor[at, k])
        _sweep(
            c, table, local, floor, size(step), n_updates, momentum, tol, arrays, row, factors,
            current,
        )  # fmt: skip
        _powers(current, local, light, own)
        for i in range(n):
            for k in range(n_components):
                shape[begin + i, k] = current[k, i]
                powers[begin + i, k] = own[k, i]


@helper
def _multiply_by_logs(values, numbers, low):
    """``values *= log(max(numbers, low))``, for one dimension."""
    for j in range(values.shape[0]):
        values[j] *= log(max(np.float64(numbers[j]), low))


@helper
def _divide(row, c, tiny, table, largest, acc, norms, memory, assigned, divisions):
    """Divide the counts of the rows in the lanes among components.

    ``assigned`` receives the counts that each component gets, and ``divisions`` the entropy of the
    division without the term of the components (:func:`gamma_process_nmf.sparse_step`). ``memory``
    has a number for each count, and as many as ``assigned``.
    """
    acc[:] = acc.dtype.type(0)
    ratio_update_together_with_norms(row, c, 0, tiny, table, acc, norms)
    terms, others = memory
    for v in range(c.shape[0]):
        for i in range(TOGETHER):
            terms[v, i] = c[v, i]
    for k in range(row.shape[0]):
        for i in range(TOGETHER):
            assigned[k, i] = np.float64(row[k, i]) * np.float64(acc[k, i])
            others[k, i] = assigned[k, i]
    _multiply_by_logs(terms.reshape(terms.size), norms.reshape(norms.size), 0.0)
    _multiply_by_logs(others.reshape(others.size), row.reshape(row.size), SMALLEST_LOG)
    divisions[:] = 0.0
    for v in range(c.shape[0]):
        for i in range(TOGETHER):
            divisions[i] += terms[v, i] + np.float64(c[v, i]) * largest[v]
    for k in range(row.shape[0]):
        for i in range(TOGETHER):
            divisions[i] -= others[k, i]


@helper
def _digammas_and_log_gammas(numbers, logs, gammas):
    """``logs = ψ(numbers)`` and ``gammas = log Γ(numbers)``, for one dimension."""
    for j in range(numbers.shape[0]):
        logs[j], gammas[j] = digamma_and_log_gamma(numbers[j])


@helper
def _add_to_sums(assigned, shape, log_rate, weights, logs, gammas, sums):
    """Add the terms of q(h) of the rows in the lanes to the seven ``sums`` in the lanes.

    They are those of :func:`gamma_process_nmf._activation_sums`. ``weights`` has the weights
    without noise and with it, and ``logs`` and ``gammas`` are memory.
    """
    _digammas_and_log_gammas(
        shape.reshape(shape.size), logs.reshape(logs.size), gammas.reshape(gammas.size)
    )
    for k in range(shape.shape[0]):
        for i in range(TOGETHER):
            weight, noisy = weights[0, i], weights[1, i]
            value, own = shape[k, i], assigned[k, i]
            expected_log = logs[k, i] - log_rate[k, i]
            entropy = gammas[k, i] + value - log_rate[k, i] - (value - 1.0) * logs[k, i]
            sums[0, k, i] += weight * own
            sums[1, k, i] += noisy * own
            sums[2, k, i] += weight * own * expected_log
            sums[3, k, i] += weight * expected_log
            sums[4, k, i] += weight * entropy
            sums[5, k, i] += weight * value
            sums[6, k, i] += noisy * value


@kernel("rows rows rows out_rows vector matrix float float float int vector vector out2 out2 out1")
def dense_step_together(
    counts,
    table,
    e,
    powers,
    largest,
    log_rate,
    local,
    base,
    step,
    updates,
    weights,
    noise,
    shape,
    sums,
    divisions,
):
    """Make the last sweep over dense rows, as :func:`gamma_process_nmf.sparse_step` does.

    Parameters
    ----------
    counts : array of shape (n, n_columns)
        NaN is a missing cell.
    table : array of shape (n_columns, width)
    e : array of shape (n, n_components)
        The factors that divide the counts of each row.
    powers : array of shape (n, n_components)
        Receives exp{x ψ(shape)} of the result, if the sweep ``updates`` the activations.
    largest : array of shape (n_columns,)
        x m_v.
    log_rate : array of shape (1 or n, n_components)
        Of all rows or of each.
    local, base, step
        As in :func:`gamma_process_nmf.sparse_step`.
    updates : int
        Whether the activations are updated.
    weights, noise : array of shape (n,) or (0,)
    shape : array of shape (n, n_components)
        The start, and the result.
    sums : array of shape (7, n_components)
        Receives the sums of :func:`gamma_process_nmf._activation_sums`.
    divisions : array of shape (1,)
        Receives the entropy of the division of all counts, without the term of the components.
    """
    (n_rows, n_columns), n_components = counts.shape, shape.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    low = smallest_shape(table)
    light = _may_be_light(max(base, low), local, table)
    c = np.zeros((n_columns, TOGETHER), table.dtype)
    norms = np.ones((padded(n_columns, ROWS), TOGETHER), table.dtype)
    row, acc, some = _lanes(n_components, c), _lanes(n_components, c), _lanes(n_components, c)
    of_components = (n_components, TOGETHER)
    current, own, rates = np.ones(of_components), np.ones(of_components), np.ones(of_components)
    logs, gammas = np.zeros(of_components), np.zeros(of_components)
    totals, memory = np.zeros((7, n_components, TOGETHER)), (np.zeros((n_columns, TOGETHER)), logs)
    own_weights, terms = np.zeros((2, TOGETHER)), np.zeros(TOGETHER)
    for begin in range(0, n_rows, TOGETHER):
        n = _copy_counts(counts, begin, c)
        own_weights[:] = 0.0
        for i in range(TOGETHER):
            d = begin + min(i, n - 1)
            at = d if log_rate.shape[0] > 1 else 0
            for k in range(n_components):
                row[k, i], current[k, i], rates[k, i] = e[d, k], shape[d, k], log_rate[at, k]
            if i < n:
                own_weights[0, i] = weights[d] if weights.shape[0] > 0 else 1.0
                own_weights[1, i] = own_weights[0, i] * (noise[d] if noise.shape[0] > 0 else 1.0)
        _divide(row, c, tiny, table, largest, acc, norms, memory, own, terms)
        for i in range(n):
            divisions[0] += own_weights[0, i] * terms[i]
        if updates:
            for k in range(n_components):
                for i in range(TOGETHER):
                    current[k, i] = base + step * own[k, i]
                    some[k, i] = max(current[k, i], low)
            _powers(some, local, light, acc)
            for i in range(n):
                for k in range(n_components):
                    shape[begin + i, k] = current[k, i]
                    powers[begin + i, k] = acc[k, i]
        _add_to_sums(own, current, rates, own_weights, logs, gammas, totals)
    for j in range(7):
        for k in range(n_components):
            for i in range(TOGETHER):
                sums[j, k] += totals[j, k, i]


@kernel("rows rows rows vector out2")
def dense_counts_together(counts, table, e, weights, out):
    """Add Σ_n w_n (x_nv / n_v) e_nk to ``out``, sixteen columns at a time.

    Parameters
    ----------
    counts : array of shape (n, n_columns)
        NaN is a missing cell.
    table : array of shape (n_columns, width)
    e : array of shape (n, n_components)
        The factors of the rows.
    weights : array of shape (n,) or (0,)
    out : array of shape (n_columns, width)
    """
    (n_rows, n_columns), n_components = counts.shape, e.shape[1]
    size = table.dtype.type
    tiny, zero = size(TINY_SINGLE if table.itemsize == 4 else TINY), size(0)
    c = np.zeros((n_rows, TOGETHER), table.dtype)
    row, acc = _lanes(n_components, c), _lanes(n_components, c)
    for begin in range(0, n_columns, TOGETHER):
        n = min(TOGETHER, n_columns - begin)
        for d in range(n_rows):
            weight = size(weights[d] if weights.shape[0] > 0 else 1.0)
            for i in range(TOGETHER):
                c[d, i] = weight * max(zero, counts[d, begin + i] if i < n else zero)
        for i in range(TOGETHER):
            for k in range(n_components):
                row[k, i] = table[begin + min(i, n - 1), k]
        acc[:] = zero
        ratio_update_together(row, c, 0, tiny, e, acc)
        for i in range(n):
            for k in range(n_components):
                out[begin + i, k] += np.float64(acc[k, i])


@called
def _to_lanes(numbers, rest, out):
    """Put rows of numbers into lanes; those without a row get the ``rest``."""
    for group in range(out.shape[0]):
        begin = group * TOGETHER
        n = min(TOGETHER, numbers.shape[0] - begin)
        for i in range(TOGETHER):
            for k in range(out.shape[1]):
                out[group, k, i] = numbers[begin + i, k] if i < n else rest


@called
def _from_lanes(lanes, out):
    """Do the reverse of :func:`_to_lanes`."""
    for group in range(lanes.shape[0]):
        begin = group * TOGETHER
        for i in range(min(TOGETHER, out.shape[0] - begin)):
            for k in range(out.shape[1]):
                out[begin + i, k] = lanes[group, k, i]


@helper
def _moving(numbers, change, base, like):
    """Return shapes in lanes, the roots √(shape − base), those before, and those ahead.

    The roots before are those before the last ``change``. The four are arrays of one dimension.
    """
    n_components, n_groups = numbers.shape[1], padded(numbers.shape[0], TOGETHER) // TOGETHER
    shape = np.empty((n_groups, n_components, TOGETHER), like.dtype)
    earlier = np.empty((n_groups, n_components, TOGETHER), like.dtype)
    _to_lanes(numbers, base, shape)
    _to_lanes(change, 0.0, earlier)
    size, zero = shape.size, like.dtype.type(0)
    shape, earlier = shape.reshape(size), earlier.reshape(size)
    roots, ahead = np.empty(size, like.dtype), np.empty(size, like.dtype)
    for i in range(size):
        root = np.sqrt(max(shape[i] - base, zero))
        roots[i], earlier[i], ahead[i] = root, root - earlier[i], root
    return shape, roots, earlier, ahead


@helper
def _as_lanes(shape, n_components):
    """Return shapes of one dimension as an array of shape (n_groups, n_components, TOGETHER)."""
    return shape.reshape((shape.size // (n_components * TOGETHER), n_components, TOGETHER))


@helper
def _last_change(roots, earlier, ahead, goes_on, out):
    """Set the change of roots in lanes, row by row; with what their update added if it goes on."""
    for i in range(roots.shape[0]):
        own = roots[i] - ahead[i] if goes_on else 0.0
        earlier[i] = roots[i] - earlier[i] + own
    _from_lanes(_as_lanes(earlier, out.shape[1]), out)


@called
def _go_ahead(current, roots, earlier, ahead, base, share):
    """Move shapes beyond the update that has led to them; ``roots`` are their √(shape − base).

    The roots go on by ``share`` times their change since the update before and the change that this
    update made, and shapes are halved at most, but for their ``base``. ``earlier`` has the roots
    after the update before, and ``ahead`` those from which the last one came; both are replaced.
    """
    least = current.dtype.type(_LEAST_SHARE_OF_ROOT)
    for i in range(current.shape[0]):
        root = roots[i]
        moved = root + share * ((root - earlier[i]) + (root - ahead[i]))
        moved = max(moved, least * root)
        earlier[i], ahead[i] = root, moved
        current[i] = base + moved * moved


@called
def _turn(current, roots, earlier, ahead, base, weights):
    """``roots = √(current − base)``; return Σ w (roots − ahead) (roots − earlier).

    The sum is below 0 where updates turn back. ``weights``, of shape (n_groups, TOGETHER), are
    those of the lanes, so that a row of weight 2 counts as two.
    """
    terms, zero = np.zeros(TOGETHER, current.dtype), current.dtype.type(0)
    length = current.shape[0] // weights.shape[0]
    for group in range(weights.shape[0]):
        for begin in range(group * length, (group + 1) * length, TOGETHER):
            for i in range(TOGETHER):
                root = np.sqrt(max(current[begin + i] - base, zero))
                roots[begin + i] = root
                change = (root - ahead[begin + i]) * (root - earlier[begin + i])
                terms[i] += weights[group, i] * change
    return np.float64(terms.sum())


@called
def _set_factors(of_weights, rate_of_weights, rate, out):
    """``out = exp(E log θ − log rate)``, up to a number; the largest factor is 1."""
    top = -np.inf
    for k in range(of_weights.shape[0]):
        out[k] = digamma(of_weights[k]) - log(rate_of_weights[k] * rate[k])
        top = max(top, out[k])
    for k in range(of_weights.shape[0]):
        out[k] = exp(out[k] - top)


@helper
def _to_rows(lanes, factor, out):
    """Put a table in lanes into rows; each component is multiplied by its factor."""
    for group in range(lanes.shape[0]):
        begin = group * TOGETHER
        for i in range(min(TOGETHER, out.shape[0] - begin)):
            for k in range(out.shape[1]):
                out[begin + i, k] = lanes[group, k, i] * out.dtype.type(factor[k])


@helper
def _update_activations(base, weights, counts, table, tiny, arrays, shape, powers, sums):
    """Update the activations of all rows, and compute their exp ψ(shape).

    ``shape`` and ``weights`` are in lanes. ``sums`` receives the counts that each component gets.
    """
    acc, some, e, own = arrays
    low = table.dtype.type(smallest_shape(table))
    light = _may_be_light(max(base, low), 1.0, table)
    own[:] = 0.0
    for group in range(counts.shape[0]):
        begin = group * TOGETHER
        for k in range(shape.shape[1]):
            for i in range(TOGETHER):
                some[k, i] = max(shape[group, k, i], low)
        _powers(some, 1.0, light, e)
        acc[:] = acc.dtype.type(0)
        ratio_update_together(e, counts[group], 0, tiny, table, acc)
        for k in range(shape.shape[1]):
            for i in range(TOGETHER):
                assigned = e[k, i] * acc[k, i]
                own[k, i] += weights[group, i] * np.float64(assigned)
                shape[group, k, i] = base + assigned
                some[k, i] = max(shape[group, k, i], low)
        _powers(some, 1.0, light, e)
        for i in range(min(TOGETHER, powers.shape[0] - begin)):
            for k in range(shape.shape[1]):
                powers[begin + i, k] = e[k, i]
    for k in range(shape.shape[1]):
        sums[k] = own[k].sum()


@helper
def _update_parts(base, x, copied, powers, lanes, factor, tiny, arrays, parts):
    """Update the parts in all columns, which fill the lanes; ``copied`` has the last of them.

    ``lanes`` has their table, and ``factor`` the factors of the components.
    """
    acc, _, e, _ = arrays
    first_copied = parts.shape[0] * TOGETHER - copied.shape[1]
    for group in range(parts.shape[0]):
        begin = group * TOGETHER
        for k in range(parts.shape[1]):
            for i in range(TOGETHER):
                e[k, i] = lanes[group, k, i] * e.dtype.type(factor[k])
        acc[:] = acc.dtype.type(0)
        if begin >= first_copied:
            ratio_update_together(e, copied, begin - first_copied, tiny, powers, acc)
        else:
            ratio_update_together(e, x, begin, tiny, powers, acc)
        for k in range(parts.shape[1]):
            for i in range(TOGETHER):
                parts[group, k, i] = base + e[k, i] * acc[k, i]


@helper
def _in_lanes(x, weights):
    """Return counts and weights with rows in the lanes, and those of columns that are copied.

    The columns of the last group are copied, and all of them, with their weights, if rows have
    weights.
    """
    (n_rows, n_columns), size = x.shape, x.dtype.type
    rows = np.zeros(((n_rows + TOGETHER - 1) // TOGETHER, n_columns, TOGETHER), x.dtype)
    of_rows = np.zeros((rows.shape[0], TOGETHER))
    for group in range(rows.shape[0]):
        for i in range(_copy_counts(x, group * TOGETHER, rows[group])):
            of_rows[group, i] = weights[group * TOGETHER + i] if weights.shape[0] > 0 else 1.0
    n_copied = n_columns if weights.shape[0] > 0 else n_columns % TOGETHER
    copied = np.zeros((n_rows, padded(n_copied, TOGETHER)), x.dtype)
    for d in range(n_rows):
        weight = size(weights[d] if weights.shape[0] > 0 else 1.0)
        for v in range(n_copied):
            copied[d, v] = weight * x[d, n_columns - n_copied + v]
    return rows, of_rows, copied


@helper
def _set_table(parts, n_columns, rate_of_parts, totals, memory, lanes):
    """Compute the table of the parts in lanes, and their expected totals over columns."""
    log_rate, inverse, row, value, out, shapes, values, top = memory
    n_components, smallest = parts.shape[1], np.float64(smallest_shape(lanes))
    totals[:] = 0.0
    for k in range(n_components):
        log_rate[k], inverse[k] = log(rate_of_parts[k]), 1.0 / rate_of_parts[k]
    for group in range(parts.shape[0]):
        n, lowest = min(TOGETHER, n_columns - group * TOGETHER), np.inf
        for k in range(n_components):
            for i in range(TOGETHER):
                shapes[k, i] = parts[group, k, i]
        powers_of(shapes.reshape(shapes.size), 1.0, values.reshape(values.size))
        top[:] = 0.0
        for k in range(n_components):
            for i in range(TOGETHER):
                values[k, i] *= inverse[k]
                top[i] = max(top[i], values[k, i])
        for i in range(TOGETHER):
            lowest = min(lowest, top[i] if i < n else lowest)
            top[i] = 1.0 / max(top[i], FAR_FROM_ZERO) if i < n else 0.0
        for k in range(n_components):
            for i in range(TOGETHER):
                share = values[k, i] * top[i]
                lanes[group, k, i] = share if share > smallest else 0.0
            for i in range(n):
                totals[k] += shapes[k, i]
        if lowest <= FAR_FROM_ZERO:
            for i in range(n):
                for k in range(n_components):
                    value[k] = shapes[k, i]
                expected_row(value, log_rate, inverse, 1.0, row, out)
                for k in range(n_components):
                    lanes[group, k, i] = out[k]
    for k in range(n_components):
        totals[k] *= inverse[k]


@helper
def _memory_of_passes(n_components, n_columns, like):
    """Return the arrays that updates of activations and parts need, and those of the table."""
    of_updates = (
        _lanes(n_components, like),
        _lanes(n_components, like),
        _lanes(n_components, like),
        np.empty((n_components, TOGETHER)),
    )
    of_table = (
        np.empty(n_components),
        np.empty(n_components),
        np.empty(n_components),
        np.empty(n_components),
        np.empty(n_components, like.dtype),
        np.empty((n_components, TOGETHER)),
        np.empty((n_components, TOGETHER)),
        np.empty(TOGETHER),
    )
    n_groups = padded(n_columns, TOGETHER) // TOGETHER
    lanes = np.empty((n_groups, n_components, TOGETHER), like.dtype)
    return of_updates, of_table, lanes, np.empty((n_columns, n_components), like.dtype)


@helper
def _set_rates(activation_prior, of_weights, rate_of_weights, totals, rate):
    """Compute the rates of the activations."""
    for k in range(rate.shape[0]):
        rate[k] = activation_prior + of_weights[k] / rate_of_weights[k] * totals[k]


@helper
def _update_weights(priors, total, activation_prior, totals, rate, sums, of_weights, rates):
    """Update the weights; ``sums`` has the counts of parts, and receives the sums of activations.

    ``total`` is the weight of all rows, and ``rates`` are those of the weights.
    """
    shapes_of_prior, rates_of_prior = priors
    for k in range(rate.shape[0]):
        of_weights[k] = shapes_of_prior[k] + sums[k]
        sums[k] = (total * activation_prior + sums[k]) / rate[k]
        rates[k] = rates_of_prior[k] + sums[k] * totals[k]


@called
def _zero_if_finite(numbers):
    """Return 0 if all numbers are finite, and NaN otherwise."""
    terms = np.zeros(_SUMMED)
    for begin in range(0, numbers.shape[0], _SUMMED):
        for i in range(min(_SUMMED, numbers.shape[0] - begin)):
            terms[i] += 0.0 * numbers[begin + i]
    return terms.sum()


@kernel(
    "rows vector vector vector float float float float int int out1 out1 out1 out1 out1"
    " out2 out2 out2 out2"
)
def coordinate_passes(
    x,
    weights,
    prior_of_weights,
    prior_rate_of_weights,
    activation_prior,
    component_prior,
    component_rate,
    strong,
    n_passes,
    goes_on,
    count,
    of_weights,
    rate_of_weights,
    rate_of_parts,
    rate,
    shape,
    change,
    parts,
    change_of_parts,
):
    """Make passes of coordinate ascent with momentum (:mod:`.models._count_passes`).

    Each updates the activations and the weights, and then the parts.

    Parameters
    ----------
    x : array of shape (n_rows, n_columns)
        Counts, none of which is missing.
    weights : array of shape (n_rows,) or (0,)
        Sample weights; an empty array stands for ones.
    prior_of_weights, prior_rate_of_weights : array of shape (n_components,)
    activation_prior, component_prior, component_rate : float
    strong : float
        Shapes whose prior is larger have no momentum.
    n_passes : int
    goes_on : int
        Whether another call makes the next pass.
    count : array of shape (2,)
        The number of updates since momentum began anew. The second number becomes 0 if all results
        are finite, and NaN otherwise.
    of_weights, rate_of_weights, rate_of_parts : array of shape (n_components,)
        Start, and result.
    rate : array of shape (n_components,)
        Receives the rates of the activations.
    shape : array of shape (n_rows, n_components)
        The shapes of the activations.
    change : array of shape (n_rows, n_components)
        The change of √(shape − prior) in the last update of a call before, and then in that of this
        one. If the latter ``goes_on``, what the update itself has changed counts twice.
    parts, change_of_parts : array of shape (n_columns, n_components)
        The same for the parts.
    """
    (n_rows, n_columns), n_components = x.shape, shape.shape[1]
    size = x.dtype.type
    tiny = size(TINY_SINGLE if x.itemsize == 4 else TINY)
    rows, of_rows, copied = _in_lanes(x, weights)
    arrays, memory, lanes, table = _memory_of_passes(n_components, n_columns, x)
    powers = np.empty((n_rows, n_components), x.dtype)
    factor, sums, totals = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    priors = prior_of_weights, prior_rate_of_weights
    base, base_of_parts = size(activation_prior), size(component_prior)
    moving = _moving(shape, change, base, x)
    moving_parts = _moving(parts, change_of_parts, base_of_parts, x)
    shapes = _as_lanes(moving[0], n_components)
    parts_in_lanes = _as_lanes(moving_parts[0], n_components)
    total = np.float64(n_rows) if weights.shape[0] == 0 else weights.sum()
    in_turn, alike = of_rows.astype(x.dtype), np.ones((lanes.shape[0], TOGETHER), x.dtype)
    for _ in range(n_passes):
        share = size(count[0] / (count[0] + _DELAY))
        if activation_prior <= strong:
            _go_ahead(*moving, base, share)
        if component_prior <= strong:
            _go_ahead(*moving_parts, base_of_parts, share)
        count[0] += 1.0
        _set_table(parts_in_lanes, n_columns, rate_of_parts, totals, memory, lanes)
        _set_rates(activation_prior, of_weights, rate_of_weights, totals, rate)
        _set_factors(of_weights, rate_of_weights, rate, factor)
        _to_rows(lanes, factor, table)
        _update_activations(base, of_rows, rows, table, tiny, arrays, shapes, powers, sums)
        _update_weights(
            priors, total, activation_prior, totals, rate, sums, of_weights, rate_of_weights
        )
        _set_factors(of_weights, rate_of_weights, rate, factor)
        _update_parts(base_of_parts, x, copied, powers, lanes, factor, tiny, arrays, parts_in_lanes)
        for k in range(n_components):
            rate_of_parts[k] = component_rate + of_weights[k] / rate_of_weights[k] * sums[k]
        turn = 0.0
        if activation_prior <= strong:
            turn += _turn(*moving, base, in_turn)
        if component_prior <= strong:
            turn += _turn(*moving_parts, base_of_parts, alike)
        if turn < 0.0:
            count[0] = 0.0
    count[1] = _zero_if_finite(of_weights) + _zero_if_finite(rate_of_weights)
    count[1] += _zero_if_finite(rate_of_parts)
    count[1] += _zero_if_finite(moving[0]) + _zero_if_finite(moving_parts[0])
    _from_lanes(shapes, shape)
    _from_lanes(parts_in_lanes, parts)
    _last_change(*moving[1:], goes_on, change)
    _last_change(*moving_parts[1:], goes_on, change_of_parts)


@kernel("rows vector vector vector float float float int int float out1 out1 out1 out2")
def exploring_passes(
    x,
    weights,
    prior_of_weights,
    prior_rate_of_weights,
    activation_prior,
    component_prior,
    component_rate,
    n_passes,
    n_updates,
    tol,
    of_weights,
    rate_of_weights,
    rate_of_parts,
    parts,
):
    """Make passes of coordinate ascent in which the activations of each row start anew.

    The parameters are those of :func:`coordinate_passes`, and ``n_updates`` and ``tol`` those of
    :func:`gamma_process_nmf.dense_updates`, which comes before the last update of activations.
    """
    (n_rows, n_columns), n_components = x.shape, parts.shape[1]
    size = x.dtype.type
    tiny, low = size(TINY_SINGLE if x.itemsize == 4 else TINY), smallest_shape(x)
    rows, of_rows, copied = _in_lanes(x, weights)
    arrays, memory, lanes, table = _memory_of_passes(n_components, n_columns, x)
    powers = np.empty((n_rows, n_components), x.dtype)
    shape = np.empty((rows.shape[0], n_components, TOGETHER), x.dtype)
    row, factors, current = (
        _lanes(n_components, x),
        _lanes(n_components, x),
        _lanes(n_components, x),
    )
    of_sweeps = _memory_of_sweeps(n_components, x)
    factor, sums, totals = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    first, ones, rate = np.empty(n_components), np.ones(n_components), np.empty(n_components)
    priors, floor = (prior_of_weights, prior_rate_of_weights), size(max(activation_prior, low))
    base, base_of_parts = size(activation_prior), size(component_prior)
    parts_in_lanes = np.empty(lanes.shape, x.dtype)
    _to_lanes(parts, component_prior, parts_in_lanes)
    total = np.float64(n_rows) if weights.shape[0] == 0 else weights.sum()
    for _ in range(n_passes):
        _set_table(parts_in_lanes, n_columns, rate_of_parts, totals, memory, lanes)
        _set_rates(activation_prior, of_weights, rate_of_weights, totals, rate)
        _to_rows(lanes, ones, table)
        _set_factors(of_weights, rate_of_weights, ones, first)
        _set_factors(of_weights, rate_of_weights, rate, factor)
        for group in range(rows.shape[0]):
            for k in range(n_components):
                for i in range(TOGETHER):
                    row[k, i], factors[k, i] = size(first[k]), size(factor[k])
                    current[k, i] = size(1)
            _sweep(
                rows[group], table, 1.0, floor, size(1), n_updates, True, tol, of_sweeps, row,
                factors, current,
            )  # fmt: skip
            for k in range(n_components):
                for i in range(TOGETHER):
                    shape[group, k, i] = current[k, i]
        _to_rows(lanes, factor, table)
        _update_activations(base, of_rows, rows, table, tiny, arrays, shape, powers, sums)
        _update_weights(
            priors, total, activation_prior, totals, rate, sums, of_weights, rate_of_weights
        )
        _set_factors(of_weights, rate_of_weights, rate, factor)
        _update_parts(base_of_parts, x, copied, powers, lanes, factor, tiny, arrays, parts_in_lanes)
        for k in range(n_components):
            rate_of_parts[k] = component_rate + of_weights[k] / rate_of_weights[k] * sums[k]
    _from_lanes(parts_in_lanes, parts)
