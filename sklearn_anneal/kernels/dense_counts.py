"""Coordinate ascent of gamma-process NMF for dense rows of counts, sixteen of them at a time.

Rows fill the lanes of vector instructions, so that a sum over components is one over vectors. Cells
without counts take as long as others. :mod:`gamma_process_nmf` says what the steps are.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import digamma, exp, log
from .counts import TINY, TINY_SINGLE, expected_row, padded
from .gamma_process_nmf import all_powers, powers_of, smallest_shape
from .simd.emitter import TOGETHER
from .simd.products import ratio_update_together

# After so many updates of coordinate passes half of a change is added.
_DELAY = 2.0
# Momentum halves a shape at most.
_LEAST_SHARE_OF_ROOT = 0.5**0.5
# So many sums run at a time.
_SUMMED = 256


@helper
def _lanes(n, like):
    """Return memory for n vectors, each of which has a number in all lanes."""
    return np.ones((n, TOGETHER), like.dtype)


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
    """Copy some rows of counts to the lanes, without missing cells; return the number of rows."""
    zero, n = out.dtype.type(0), min(TOGETHER, counts.shape[0] - begin)
    for v in range(counts.shape[1]):
        for i in range(TOGETHER):
            value = counts[begin + i, v] if i < n else zero
            counted = value > zero
            out[v, i] = value if counted else zero
    return n


@kernel("rows rows out_rows out_rows matrix float float float int int float out2")
def dense_updates_together(
    counts, table, e, powers, factor, local, base, step, n_updates, momentum, tol, shape
):
    """Do the same as :func:`gamma_process_nmf.dense_updates`, up to rounding."""
    n_rows, n_columns = counts.shape
    n_components = shape.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    low = smallest_shape(table)
    floor, one, zero = size(max(base, low)), size(1), size(0)
    c = np.zeros((n_columns, TOGETHER), table.dtype)
    row, own, acc = _lanes(n_components, c), _lanes(n_components, c), _lanes(n_components, c)
    factors, current = _lanes(n_components, c), _lanes(n_components, c)
    earlier, ahead = _lanes(n_components, c), _lanes(n_components, c)
    going, lead = np.ones(TOGETHER, c.dtype), np.ones(TOGETHER, c.dtype)
    scratch = np.ones(TOGETHER, c.dtype)
    for begin in range(0, n_rows, TOGETHER):
        n = _copy_counts(counts, begin, c)
        for i in range(TOGETHER):
            d = begin + min(i, n - 1)
            at = d if factor.shape[0] > 1 else 0
            for k in range(n_components):
                current[k, i] = size(max(shape[d, k], low))
                row[k, i] = e[d, k]
                factors[k, i] = size(factor[at, k])
            going[i], lead[i] = one, zero
        for update in range(n_updates):
            if update > 0:
                powers_of(current.reshape(current.size), local, own.reshape(own.size))
                for k in range(n_components):
                    for i in range(TOGETHER):
                        row[k, i] = factors[k, i] * own[k, i]
            acc[:] = zero
            ratio_update_together(row, c, 0, tiny, table, acc)
            _step(floor, size(step), row, acc, current, going, scratch)
            n_going = 0
            for i in range(TOGETHER):
                if np.float64(scratch[i]) < tol * n_components:
                    going[i] = zero
                n_going += going[i] > zero
            if n_going == 0:
                break
            if momentum and update < n_updates - 1:
                _extrapolate(floor, current, earlier, ahead, going, lead, scratch)
        powers_of(current.reshape(current.size), local, own.reshape(own.size))
        for i in range(n):
            for k in range(n_components):
                shape[begin + i, k] = current[k, i]
                powers[begin + i, k] = own[k, i]


@helper
def _go_ahead(current, roots, earlier, ahead, base, share):
    """Move shapes beyond the update that has led to them; ``roots`` are their √(shape − base).

    The roots go on by ``share`` times their change since the update before and the change that this
    update made, and shapes are halved at most, but for their ``base``. ``earlier`` has the roots
    after the update before, and ``ahead`` those from which the last one came; both are replaced.
    """
    for i in range(current.shape[0]):
        root = roots[i]
        moved = root + share * ((root - earlier[i]) + (root - ahead[i]))
        moved = max(moved, _LEAST_SHARE_OF_ROOT * root)
        earlier[i], ahead[i] = root, moved
        current[i] = base + moved * moved


@helper
def _turn(current, roots, earlier, ahead, base):
    """``roots = √(current − base)``; return Σ (roots − ahead) (roots − earlier).

    The sum is below 0 where updates turn back.
    """
    terms = np.zeros(_SUMMED)
    for begin in range(0, current.shape[0], _SUMMED):
        for i in range(min(_SUMMED, current.shape[0] - begin)):
            root = np.sqrt(max(current[begin + i] - base, 0.0))
            roots[begin + i] = root
            terms[i] += (root - ahead[begin + i]) * (root - earlier[begin + i])
    return terms.sum()


@helper
def _set_factors(of_weights, rate_of_weights, rate, out):
    """``out = exp(E log θ − log rate)``, up to a number; the largest factor is 1."""
    top = -np.inf
    for k in range(of_weights.shape[0]):
        out[k] = digamma(of_weights[k]) - log(rate_of_weights[k] * rate[k])
        top = max(top, out[k])
    for k in range(of_weights.shape[0]):
        out[k] = exp(out[k] - top)


@helper
def _multiply_columns(table, factor, out):
    """``out = table * factor``."""
    for v in range(table.shape[0]):
        for k in range(table.shape[1]):
            out[v, k] = table[v, k] * table.dtype.type(factor[k])


@helper
def _update_activations(base, weights, counts, table, tiny, arrays, shape, powers, sums):
    """Update the activations of all rows, and compute their exp ψ(shape).

    ``sums`` receives the counts that each component gets.
    """
    acc, some, e = arrays
    low = smallest_shape(table)
    sums[:] = 0.0
    for group in range(counts.shape[0]):
        begin = group * TOGETHER
        n = min(TOGETHER, shape.shape[0] - begin)
        for i in range(TOGETHER):
            d = begin + min(i, n - 1)
            for k in range(shape.shape[1]):
                some[k, i] = max(shape[d, k], low)
        powers_of(some.reshape(some.size), 1.0, e.reshape(e.size))
        acc[:] = acc.dtype.type(0)
        ratio_update_together(e, counts[group], 0, tiny, table, acc)
        for i in range(n):
            weight = weights[begin + i] if weights.shape[0] > 0 else 1.0
            for k in range(shape.shape[1]):
                own = np.float64(e[k, i]) * np.float64(acc[k, i])
                sums[k] += weight * own
                shape[begin + i, k] = base + own
    all_powers(shape, 1.0, powers)


@helper
def _update_parts(base, x, copied, powers, table, tiny, arrays, parts):
    """Update the parts in all columns, which fill the lanes; ``copied`` has the last of them."""
    acc, _, e = arrays
    first_copied = padded(parts.shape[0], TOGETHER) - copied.shape[1]
    for begin in range(0, parts.shape[0], TOGETHER):
        n = min(TOGETHER, parts.shape[0] - begin)
        for i in range(TOGETHER):
            for k in range(parts.shape[1]):
                e[k, i] = table[begin + min(i, n - 1), k]
        acc[:] = acc.dtype.type(0)
        if begin >= first_copied:
            ratio_update_together(e, copied, begin - first_copied, tiny, powers, acc)
        else:
            ratio_update_together(e, x, begin, tiny, powers, acc)
        for i in range(n):
            for k in range(parts.shape[1]):
                parts[begin + i, k] = base + np.float64(e[k, i]) * np.float64(acc[k, i])


@kernel(
    "rows vector vector vector float float float float int out1 out1 out1 out1 out1"
    " out2 out2 out2 out2 out2 out2 out2 out2"
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
    count,
    of_weights,
    rate_of_weights,
    rate_of_parts,
    rate,
    shape,
    roots,
    earlier,
    ahead,
    parts,
    roots_of_parts,
    earlier_parts,
    ahead_parts,
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
    count : array of shape (1,)
        The number of updates since momentum began anew.
    of_weights, rate_of_weights, rate_of_parts : array of shape (n_components,)
        Start, and result.
    rate : array of shape (n_components,)
        Receives the rates of the activations.
    shape, roots, earlier, ahead : array of shape (n_rows, n_components)
        The shapes of the activations, and the arrays of their momentum.
    parts, roots_of_parts, earlier_parts, ahead_parts : array of shape (n_columns, n_components)
        The same for the parts.
    """
    (n_rows, n_columns), n_components = x.shape, shape.shape[1]
    size = x.dtype.type
    tiny = size(TINY_SINGLE if x.itemsize == 4 else TINY)
    rows = np.zeros(((n_rows + TOGETHER - 1) // TOGETHER, n_columns, TOGETHER), x.dtype)
    for group in range(rows.shape[0]):
        _copy_counts(x, group * TOGETHER, rows[group])
    # The columns of the last group are copied, and all of them if rows have weights.
    n_copied = n_columns if weights.shape[0] > 0 else n_columns % TOGETHER
    copied = np.zeros((n_rows, padded(n_copied, TOGETHER)), x.dtype)
    for d in range(n_rows):
        weight = size(weights[d] if weights.shape[0] > 0 else 1.0)
        for v in range(n_copied):
            copied[d, v] = weight * x[d, n_columns - n_copied + v]
    table = np.empty((n_columns, n_components), x.dtype)
    own_table = np.empty((n_columns, n_components), x.dtype)
    powers = np.empty((n_rows, n_components), x.dtype)
    arrays = _lanes(n_components, x), _lanes(n_components, x), _lanes(n_components, x)
    log_rate, inverse, factor, scratch, sums, totals = np.empty((6, n_components))
    n, m = shape.size, parts.size
    moving = shape.reshape(n), roots.reshape(n), earlier.reshape(n), ahead.reshape(n)
    moving_parts = (
        parts.reshape(m), roots_of_parts.reshape(m), earlier_parts.reshape(m),
        ahead_parts.reshape(m),
    )  # fmt: skip
    total = np.float64(n_rows) if weights.shape[0] == 0 else weights.sum()
    for _ in range(n_passes):
        share = count[0] / (count[0] + _DELAY)
        if activation_prior <= strong:
            _go_ahead(*moving, activation_prior, share)
        if component_prior <= strong:
            _go_ahead(*moving_parts, component_prior, share)
        count[0] += 1.0
        totals[:] = 0.0
        for k in range(n_components):
            log_rate[k], inverse[k] = log(rate_of_parts[k]), 1.0 / rate_of_parts[k]
        for v in range(n_columns):
            expected_row(parts[v], log_rate, inverse, 1.0, scratch, table[v])
            for k in range(n_components):
                totals[k] += parts[v, k]
        for k in range(n_components):
            totals[k] *= inverse[k]
            rate[k] = activation_prior + of_weights[k] / rate_of_weights[k] * totals[k]
        _set_factors(of_weights, rate_of_weights, rate, factor)
        _multiply_columns(table, factor, own_table)
        _update_activations(
            activation_prior, weights, rows, own_table, tiny, arrays, shape, powers, sums
        )
        for k in range(n_components):
            of_weights[k] = prior_of_weights[k] + sums[k]
            sums[k] = (total * activation_prior + sums[k]) / rate[k]
            rate_of_weights[k] = prior_rate_of_weights[k] + sums[k] * totals[k]
        _set_factors(of_weights, rate_of_weights, rate, factor)
        _multiply_columns(table, factor, own_table)
        _update_parts(component_prior, x, copied, powers, own_table, tiny, arrays, parts)
        for k in range(n_components):
            rate_of_parts[k] = component_rate + of_weights[k] / rate_of_weights[k] * sums[k]
        turn = 0.0
        if activation_prior <= strong:
            turn += _turn(*moving, activation_prior)
        if component_prior <= strong:
            turn += _turn(*moving_parts, component_prior)
        if turn < 0.0:
            count[0] = 0.0
