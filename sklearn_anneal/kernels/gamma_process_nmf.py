"""Local steps of gamma-process NMF: expected counts of components, row by row.

Components come as a table with one row per column of X, which :mod:`counts` describes. Row n of X
has activations h_nk ~ Gamma(shape_nk, rate_nk), and an entry x_nv is divided among the components
in proportion to exp{x (E log h_nk + E log θ_k + E log w_kv)}. The factors exp{x (E log θ_k −
log rate_nk) − top} come as arguments, so that the iterations over a row need digamma functions of
its shapes alone.

Sums over rows are float64, whatever the dtype of the data and of the table is.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import (
    deviance,
    digamma,
    digamma_and_log_gamma,
    exp,
    exp_digamma,
    factorial_rest,
    log,
    log_gamma,
)
from .counts import (
    FAR_FROM_ZERO,
    FAR_FROM_ZERO_SINGLE,
    SMALLEST_LOG,
    SMALLEST_SINGLE,
    TINY,
    TINY_SINGLE,
    all_vanish,
    lifted_powers,
    longest_row,
    open_row,
    padded,
)
from .simd.emitter import LANES, ROWS
from .simd.products import (
    add_shares_of_rows,
    add_shares_to_row,
    fetch_rows,
    multiplicative_step,
    ratio_update_of_rows,
    total,
)

# Functions of so many numbers are computed at a time.
_TOGETHER = 256
# This many rows of the next column are prefetched.
_FETCHED = 64
# Newton's method for scales stops after so many steps, or at this relative precision.
_STEPS_OF_SCALES, _PRECISION_OF_SCALES = 100, 1e-12


@helper
def smallest_shape(table):
    """The smallest shape in the dtype of a table: the sparsest priors have smaller ones."""
    return SMALLEST_SINGLE if table.itemsize == 4 else 0.0


@helper
def powers_of(shape, local, out):
    """``out = exp{x ψ(shape)}``."""
    if local == 1.0:
        for k in range(out.shape[0]):
            out[k] = exp_digamma(shape[k])
    else:
        for k in range(out.shape[0]):
            out[k] = out.dtype.type(exp(local * digamma(np.float64(shape[k]))))


@helper
def far_from_zero(numbers):
    """The threshold below which all powers of a row count as 0."""
    return numbers.dtype.type(FAR_FROM_ZERO_SINGLE if numbers.itemsize == 4 else FAR_FROM_ZERO)


@helper
def lift(shape, local, powers):
    """Divide the powers of a row by the largest, if all of them underflow because it is light."""
    n, far, n_small = shape.shape[0], far_from_zero(powers), 0
    while n_small < n and powers[n_small] <= far:
        n_small += 1
    if n_small == n and all_vanish(shape, n, local, far):
        lifted_powers(shape, n, n, local, powers)


@helper
def all_powers(shape, local, out):
    """The same for all rows, so many numbers at a time that vectors have no rest."""
    numbers, found, low = shape.reshape(shape.size), out.reshape(out.size), smallest_shape(out)
    some = np.empty(_TOGETHER, out.dtype)
    for begin in range(0, numbers.shape[0], _TOGETHER):
        n = min(_TOGETHER, numbers.shape[0] - begin)
        for i in range(n):
            some[i] = max(numbers[begin + i], low)
        powers_of(some[:n], local, found[begin : begin + n])
    for d in range(shape.shape[0]):
        lift(shape[d], local, out[d])


@helper
def _activation_sums(shape, log_rate, assigned, weight, noisy_weight, logs, scratch, sums):
    """Add the terms of q(h) of a row to the statistics and to the bound.

    The rows of ``sums`` (7, K) receive the assigned counts n_k, times the two weights, then the
    terms of the bound n_k E log h_k, E log h_k and H[q(h_k)], and the shapes, times the two
    weights. There is one sum per component, because the compiler keeps the order of a sum, and a
    sum over components would have to wait for each addition.
    """
    n_components = assigned.shape[0]
    for k in range(n_components):
        logs[k], scratch[k] = digamma_and_log_gamma(shape[k])
    for k in range(n_components):
        sums[0, k] += weight * assigned[k]
        sums[1, k] += noisy_weight * assigned[k]
        expected_log = logs[k] - log_rate[k]
        sums[2, k] += weight * assigned[k] * expected_log
        sums[3, k] += weight * expected_log
        entropy = scratch[k] + shape[k] - log_rate[k] - (shape[k] - 1.0) * logs[k]
        sums[4, k] += weight * entropy
        sums[5, k] += weight * shape[k]
        sums[6, k] += noisy_weight * shape[k]


@helper
def _extrapolated(base, current, earlier, ahead, terms, lead):
    """Move shapes further in the direction of their last change, and return the next ``lead``.

    With t = ``lead`` updates since momentum began, the share t / (t + 3) of the change is added
    (Nesterov, 1983). Momentum begins anew where an update turns back (O'Donoghue and Candès, 2015).
    ``earlier`` has the result of the update before, and ``ahead`` the shapes from which the last
    one came; both are replaced. Counts are halved at most. ``terms`` is memory.
    """
    size = current.dtype.type
    for k in range(current.shape[0]):
        terms[k] = (current[k] - ahead[k]) * (current[k] - earlier[k])
    if total(terms) < size(0):
        lead = 0.0
    share = size(lead / (lead + 3.0))
    for k in range(current.shape[0]):
        new = current[k]
        moved = new + share * (new - earlier[k])
        earlier[k] = new
        current[k] = max(moved, size(0.5) * (new + base[k]))
        ahead[k] = current[k]
    return lead + 1.0


@kernel(
    "values index pointer rows vector vector vector vector float float float int int int int float "
    "vector vector out2 out_rows out_rows out2 out2 out2 out1"
)
def sparse_step(
    counts,
    indices,
    indptr,
    table,
    largest,
    first_factor,
    factor,
    log_rate,
    local,
    base,
    step,
    given,
    known,
    n_sweeps,
    momentum,
    tol,
    weights,
    noise,
    shape,
    powers,
    dividing,
    out,
    clean_out,
    sums,
    divisions,
):
    """Infer the activations of rows of counts, and add up their statistics.

    ``first_factor`` and ``factor`` are exp{x (E log θ − log rate) − top} with the rates of the
    start and with those of the result. If not ``given``, the first sweep takes E log h = 0.
    ``base`` is the tempered shape of the prior; ``step`` is the factor of the statistics in a row's
    shapes. After sweeps that end when the row has converged, with or without ``momentum``, a last
    one divides the counts as the statistics and the bound have them, and gives the activations that
    belong to this division. It does not change the activations if ``n_sweeps`` is 0.

    ``shape`` (n_rows, K) receives the result, and ``powers`` its exp{x ψ(shape)}. If ``given``,
    ``shape`` also holds the start; if ``known``, ``powers`` does, which saves its computation.
    ``dividing`` (n_rows, K) receives the factors that divided the counts, unless it has no rows.
    ``out`` and ``clean_out`` (n_columns, width) receive Σ_n w_n (x / n_v) u_k with and without
    noise, unless they have no rows. ``divisions[0]`` receives the entropy of the division without
    the term of the components, Σ w [Σ_v x_v (log n_v + x m_v) − Σ_k S_k log u_k]; the other
    ``sums`` are those of :func:`_activation_sums`.
    """
    n_components = shape.shape[1]
    width = table.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    factor_of_counts = size(step)
    low = smallest_shape(table)
    longest = padded(longest_row(indptr), ROWS)
    c = np.zeros(longest, table.dtype)
    norms = np.empty(longest, table.dtype)
    logs = np.empty(longest)
    starts = np.empty(longest, np.int64)
    e = np.zeros(width, table.dtype)
    acc = np.zeros(width, table.dtype)
    base_row = np.full(width, max(base, low)).astype(table.dtype)
    first = np.zeros(width, table.dtype)
    later = np.zeros(width, table.dtype)
    current = np.ones(width, table.dtype)
    earlier, ahead = np.ones(width, table.dtype), np.ones(width, table.dtype)
    terms = np.empty(width, table.dtype)
    for k in range(n_components):
        first[k] = first_factor[k]
        later[k] = factor[k]
    final = np.ones(padded(n_components, LANES))
    assigned = np.zeros(n_components)
    expected_log = np.empty(n_components)
    scratch = np.empty(n_components)
    for d in range(indptr.shape[0] - 1):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        n_entries = padded(n, ROWS)
        for i in range(n):
            c[i] = counts[begin + i]
        for i in range(n, n_entries):
            c[i] = size(0)
        if n > 0:
            for i in range(n_entries):
                starts[i] = np.int64(indices[begin + min(i, n - 1)]) * width
        next_end = indptr[min(d + 2, indptr.shape[0] - 1)]
        fetch_rows(table, indices, begin + n, next_end)
        if out.shape[0] > 0:
            fetch_rows(out, indices, begin, begin + n)
        for k in range(n_components):
            current[k] = size(max(shape[d, k], low)) if given else size(1)
        for k in range(n_components, width):
            current[k] = base_row[k]
        last = first
        row_known = known
        sweep, lead = 0, 0.0
        converged = False
        while True:
            final_sweep = converged or sweep >= n_sweeps - 1
            if sweep == 0 and not given:
                for k in range(n_components):
                    e[k] = first[k]
            else:
                if not row_known:
                    powers_of(current[:n_components], local, powers[d])
                    lift(current[:n_components], local, powers[d])
                for k in range(n_components):
                    e[k] = last[k] * powers[d, k]
            for k in range(width):
                acc[k] = size(0)
            ratio_update_of_rows(e, c, tiny, table, starts, n_entries, norms, acc)
            if n_sweeps == 0:
                for k in range(width):
                    acc[k] *= e[k]
                break
            change = np.float64(
                multiplicative_step(base_row, factor_of_counts, e, acc, current, width)
            )
            last, row_known = later, 0
            if final_sweep:
                break
            converged = change < tol * n_components
            sweep += 1
            if momentum and not (converged or sweep >= n_sweeps - 1):
                lead = _extrapolated(base_row, current, earlier, ahead, terms, lead)
        for k in range(n_components):
            assigned[k] = np.float64(acc[k])
            final[k] = current[k] if n_sweeps > 0 else shape[d, k]
            if n_sweeps > 0 and base < low:
                final[k] = base + step * assigned[k]
            shape[d, k] = final[k]
        if not row_known:
            powers_of(current[:n_components], local, powers[d])
            lift(current[:n_components], local, powers[d])
        weight = weights[d] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[d] if noise.shape[0] > 0 else weight
        for k in range(n_components):
            scratch[k] = assigned[k] * log(max(np.float64(e[k]), SMALLEST_LOG))
        if dividing.shape[0] > 0:
            for k in range(n_components):
                dividing[d, k] = e[k]
        division = 0.0
        for k in range(n_components):
            division -= scratch[k]
        _activation_sums(
            final, log_rate, assigned, weight, noisy_weight, expected_log, scratch, sums
        )  # fmt: skip
        for i in range(n_entries):
            logs[i] = np.float64(c[i]) * log(np.float64(norms[i]))
        for i in range(n):
            logs[i] += np.float64(c[i]) * (local * largest[indices[begin + i]])
        divisions[0] += weight * (division + total(logs[:n_entries]))
        if out.shape[0] > 0 and n > 0:
            add_shares_of_rows(e, c, starts, n_entries, tiny, size(noisy_weight), table, out)
            if clean_out.shape[0] > 0:
                add_shares_of_rows(e, c, starts, n_entries, tiny, size(weight), table, clean_out)


@kernel("rows rows out_rows out_rows matrix float float float int int float out2")
def dense_updates(
    counts, table, e, powers, factor, local, base, step, n_updates, momentum, tol, shape
):
    """Update the activations of dense rows, as :func:`sparse_step` does before its last sweep.

    Products of matrices take as long for cells without counts, which are left out here.

    Parameters
    ----------
    counts : array of shape (n, n_columns)
        NaN is a missing cell.
    table : array of shape (n_columns, width)
    e : array of shape (n, n_components)
        The factors that divide the counts of each row in the first update.
    powers : array of shape (n, n_components)
        Receives exp{x ψ(shape)} of the result.
    factor : array of shape (1 or n, n_components)
        exp{x (E log θ − log rate) − top} with the rates of the result, of all rows or of each.
    local, base, step, momentum, tol
        As in :func:`sparse_step`.
    n_updates : int
        The largest number of updates of a row.
    shape : array of shape (n, n_components)
        The start, and the result.
    """
    n_components = shape.shape[1]
    n_columns, width = table.shape
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    low = smallest_shape(table)
    longest = padded(n_columns, ROWS)
    c = np.zeros(longest, table.dtype)
    norms = np.empty(longest, table.dtype)
    starts = np.zeros(longest, np.int64)
    row = np.zeros(width, table.dtype)
    acc = np.zeros(width, table.dtype)
    base_row = np.full(width, max(base, low)).astype(table.dtype)
    # Padded rows of powers are computed without a rest.
    current, own = np.ones(width, table.dtype), np.empty(width, table.dtype)
    earlier, ahead = np.ones(width, table.dtype), np.ones(width, table.dtype)
    terms = np.empty(width, table.dtype)
    for d in range(counts.shape[0]):
        n = 0
        for v in range(n_columns):
            # The next count takes the place of a zero: no processor could predict a branch.
            c[n], starts[n] = counts[d, v], v * width
            n += counts[d, v] > size(0)
        n_entries = padded(n, ROWS)
        for i in range(n, n_entries):
            c[i] = size(0)
            starts[i] = 0
        for k in range(n_components):
            current[k] = size(max(shape[d, k], low))
            row[k] = e[d, k]
        for k in range(n_components, width):
            current[k] = base_row[k]
        at, lead = d if factor.shape[0] > 1 else 0, 0.0
        for update in range(n_updates):
            if update > 0:
                powers_of(current, local, own)
                lift(current[:n_components], local, own)
                for k in range(n_components):
                    row[k] = size(factor[at, k]) * own[k]
            for k in range(width):
                acc[k] = size(0)
            ratio_update_of_rows(row, c, tiny, table, starts, n_entries, norms, acc)
            change = multiplicative_step(base_row, size(step), row, acc, current, width)
            if np.float64(change) < tol * n_components:
                break
            if momentum and update < n_updates - 1:
                lead = _extrapolated(base_row, current, earlier, ahead, terms, lead)
        for k in range(n_components):
            shape[d, k] = current[k]
        powers_of(current, local, own)
        lift(current[:n_components], local, own)
        for k in range(n_components):
            powers[d, k] = own[k]


@kernel("values index pointer rows rows values out2")
def sparse_counts(counts, rows, indptr, table, e, weights, out):
    """Add up the counts of components at given activations, as :func:`sparse_step` does.

    The counts come column by column, with the rows that they belong to. ``e`` (n_rows, width) has
    the factors of the rows. Going through the columns, a sum stays in the cache until it is
    complete, while sums of a table that is larger than the cache would be read and written at every
    count.
    """
    width = table.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    longest = padded(longest_row(indptr), ROWS)
    starts = np.zeros(longest, np.int64)
    c = np.zeros(longest, table.dtype)
    w = np.zeros(longest, table.dtype)
    for v in range(indptr.shape[0] - 1):
        begin = indptr[v]
        n = indptr[v + 1] - begin
        next_end = indptr[min(v + 2, indptr.shape[0] - 1)]
        fetch_rows(e, rows, begin + n, min(next_end, begin + n + _FETCHED))
        if n == 0:
            continue
        n_entries = padded(n, ROWS)
        for i in range(n_entries):
            row = rows[begin + min(i, n - 1)]
            starts[i] = np.int64(row) * width
            c[i] = counts[begin + i] if i < n else size(0)
            w[i] = weights[row] if weights.shape[0] > 0 else size(1)
        add_shares_to_row(table[v], c, w, starts, n_entries, tiny, e, out[v])


@kernel("out_rows matrix float")
def activation_powers(out, shape, local):
    """``out = exp{x ψ(shape)}``."""
    all_powers(shape, local, out)


@kernel("out_rows rows")
def ratios(predicted, x):
    """Replace predictions by quotients x / prediction; missing cells (NaN) give 0."""
    tiny = predicted.dtype.type(TINY_SINGLE if predicted.itemsize == 4 else TINY)
    for n in range(x.shape[0]):
        for v in range(x.shape[1]):
            value = x[n, v]
            quotient = value / (predicted[n, v] + tiny)
            predicted[n, v] = quotient if value == value else predicted.dtype.type(0)


@kernel("out_rows rows vector out1")
def log_ratios(predicted, x, largest, out):
    """The same, and ``out[n] = Σ_v x_nv (log prediction + x m_v)`` over observed cells.

    ``largest`` has x m_v.
    """
    tiny = predicted.dtype.type(TINY_SINGLE if predicted.itemsize == 4 else TINY)
    nothing = predicted.dtype.type(0)
    n_columns = x.shape[1]
    terms = np.zeros(padded(n_columns, LANES))
    for n in range(x.shape[0]):
        for v in range(n_columns):
            value = x[n, v]
            observed = value == value
            norm = predicted[n, v] + tiny
            term = np.float64(value) * (log(np.float64(norm)) + largest[v])
            predicted[n, v] = value / norm if observed else nothing
            terms[v] = term if observed else 0.0
        out[n] = total(terms)


@kernel("matrix matrix matrix vector vector out2", dtypes=("float64",))
def activation_sums(shape, log_rate, assigned, weights, noise, sums):
    """Add what q(h) of some rows contributes; ``log_rate`` has one row for all, or one for each."""
    n_components = shape.shape[1]
    expected_log = np.empty(n_components)
    scratch = np.empty(n_components)
    for n in range(shape.shape[0]):
        at = n if log_rate.shape[0] > 1 else 0
        weight = weights[n] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[n] if noise.shape[0] > 0 else weight
        _activation_sums(
            shape[n], log_rate[at], assigned[n], weight, noisy_weight, expected_log, scratch, sums
        )  # fmt: skip


@kernel("rows matrix matrix matrix matrix matrix matrix out1", dtypes=("float64",))
def bounds_of_counts(x, dividing, table, rates, excess, means, excess_of_means, out):
    """Compute the terms of the bound from rows of large counts, without terms that cancel.

    The sum of E log p(x, z | h, θ, w) and of the entropy of the division of the counts z is,
    with m = Σ_k E h E θ E w and the shares φ_k of the division and π_k = E h E θ E w / m,

        Σ_v [log Poisson(x; m) + x (Σ_k φ_k δ_k − KL(φ || π))],

    where δ_k is how far E log h + E log θ + E log w is from log E h + log E θ + log E w.

    Parameters
    ----------
    x : array of shape (n, n_columns)
        Counts; NaN is a missing cell.
    dividing : array of shape (n, n_components)
    table : array of shape (n_columns, n_components)
        φ_k is proportional to the products of these two.
    rates, excess : arrays of shape (n, n_components)
        E h E θ, and the part of δ that belongs to h and θ.
    means, excess_of_means : arrays of shape (n_columns, n_components)
        E w, and the part of δ that belongs to w.
    out : array of shape (n,)
    """
    n_components = rates.shape[1]
    terms = np.zeros(padded(n_components, LANES))
    for n in range(x.shape[0]):
        result = 0.0
        for v in range(x.shape[1]):
            count = x[n, v]
            if count != count:
                continue
            norm, mean = TINY, TINY
            for k in range(n_components):
                norm += dividing[n, k] * table[v, k]
                mean += rates[n, k] * means[v, k]
            result -= deviance(count, mean)
            if count == 0.0:
                continue
            result -= factorial_rest(count)
            for k in range(n_components):
                share = dividing[n, k] * table[v, k] / norm
                expected = max(rates[n, k] * means[v, k] / mean, TINY)
                difference = excess[n, k] + excess_of_means[v, k]
                # A share of 0 has no part in the sum, even if its logarithm is infinite.
                term = share * difference if share > 0.0 else 0.0
                terms[k] = term - deviance(share, expected)
            result += count * total(terms)
        out[n] = result


@kernel("rows vector float matrix out1", dtypes=("float64",))
def divergence(shape, rate, prior, of_weights, out):
    """Add up KL(q || p) of the gamma distributions of components and of weights.

    Parameters
    ----------
    shape : array of shape (n_columns, n_components)
    rate : array of shape (n_components,)
    prior : float
        The shape a and the rate of the prior of components.
    of_weights : array of shape (4, n_components)
        The shapes and the rates of the weights, and those of their prior.
    out : array of shape (2,)
        Receives the sum, and the largest of all shapes.
    """
    n_columns, n_components = shape.shape
    logs, gammas = np.empty(n_components), np.empty(n_components)
    totals, sums, found = np.zeros(n_components), np.zeros(n_components), np.zeros(n_components)
    largest = prior
    for v in range(n_columns):
        for k in range(n_components):
            logs[k], gammas[k] = digamma_and_log_gamma(shape[v, k])
        for k in range(n_components):
            value = shape[v, k]
            sums[k] += (value - prior) * logs[k] - gammas[k]
            totals[k] += value
            largest = max(largest, value)
    constant = n_columns * (log_gamma(prior) - prior * log(prior))
    for k in range(n_components):
        own, own_rate, p, p_rate = of_weights[:, k]
        logs[k], gammas[k] = digamma_and_log_gamma(own)
        found[k] = sums[k] + (prior / rate[k] - 1.0) * totals[k]
        found[k] += n_columns * prior * log(rate[k]) + constant
        found[k] += (own - p) * logs[k] - gammas[k] + log_gamma(p)
        found[k] += p * log(own_rate / p_rate) + own * (p_rate / own_rate - 1.0)
        largest = max(largest, own, p)
    out[0] = found.sum()
    out[1] = largest


@kernel("rows out2", dtypes=("float64",))
def log_sums(shape, out):
    """Add Σ_v ψ(s_kv) and Σ_v s_kv to the rows of ``out``, of shape (2, n_components)."""
    n_components = shape.shape[1]
    logs = np.empty(n_components)
    for v in range(shape.shape[0]):
        for k in range(n_components):
            logs[k] = digamma(shape[v, k])
        for k in range(n_components):
            out[0, k] += logs[k]
            out[1, k] += shape[v, k]


@kernel("values values float float float float float float out2", dtypes=("float64",))
def joint_scales(counts, observed, n_rows, n_columns, b, a, concentration, scale, out):
    """Find y = Σ_v E w, z = E θ and x = Σ_n E h of components (:mod:`.models._count_scales`).

    The function of m whose zero is sought, r x y z + m − n, increases and is convex, so that
    Newton's method goes down to it from above.

    Parameters
    ----------
    counts, observed : arrays of shape (n_components,)
        n and r.
    n_rows, n_columns, b, a, concentration, scale : float
        N, V, b, a, α and c.
    out : array of shape (3, n_components)
        Receives y, z and x.
    """
    n_components = counts.shape[0]
    share = 1.0 / n_components
    usual = n_rows * n_columns * share / scale
    for k in range(n_components):
        n, r = counts[k], observed[k]
        m = max(n - r * usual, 0.0)
        for _ in range(_STEPS_OF_SCALES):
            x, y = n_rows + m / b, n_columns + m / a
            z = (share + m / concentration) / scale
            slope = 1.0 + r * (y * z / b + x * z / a + x * y / (concentration * scale))
            step = (r * (x * y * z) + m - n) / slope
            m -= step
            smallest = min(b * n_rows, a * n_columns, concentration * share) + m
            if step <= _PRECISION_OF_SCALES * smallest:
                break
        out[0, k] = n_columns + m / a
        out[1, k] = (share + m / concentration) / scale
        out[2, k] = n_rows + m / b


@kernel("values index pointer rows float int float out2")
def collapsed(counts, indices, indptr, table, prior, n_iter, tol, shape):
    """Divide counts with the activations integrated out, at T = 1 (CVB0).

    The update φ_vk ∝ (n_k − min(x_v, 1) φ_vk + b) B_vk of all counts of a row is done at once, so
    that they do not wait for each other, and momentum acts on n_k = Σ_v x_v φ_vk alone.

    Parameters
    ----------
    counts, indices, indptr : arrays
        The rows, in which counts are positive.
    table : array of shape (n, width)
        B, whose rows ``indices`` has.
    prior : float
        b
    n_iter : int
        The largest number of updates of a row.
    tol : float
        A row ends when the mean change of its n is smaller.
    shape : array of shape (n_rows, n_components)
        Receives b + n.
    """
    (n_rows, n_components), width = shape.shape, table.shape[1]
    size = table.dtype.type
    longest = padded(longest_row(indptr), ROWS)
    rows = np.empty((longest, width), table.dtype)
    phi = np.empty((longest, width), table.dtype)
    c = np.empty(longest, table.dtype)
    held, fresh = np.zeros(width, table.dtype), np.zeros(width, table.dtype)
    earlier, ahead = np.zeros(width, table.dtype), np.zeros(width, table.dtype)
    found, nothing = np.zeros(width, table.dtype), np.zeros(width, table.dtype)
    one, zero, base = size(1), size(0), size(prior)
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    for d in range(n_rows):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        open_row(counts, indices, begin, n, table, rows, c)
        for k in range(width):
            held[k] = zero
        for i in range(n):
            norm = one / max(total(rows[i]), tiny)
            for k in range(width):
                phi[i, k] = rows[i, k] * norm
                held[k] += c[i] * phi[i, k]
        lead = 0.0
        for i_iter in range(n_iter):
            for k in range(width):
                fresh[k] = zero
            for i in range(n):
                removed = min(c[i], one)
                for k in range(width):
                    found[k] = (max(held[k] - removed * phi[i, k], zero) + base) * rows[i, k]
                norm = one / max(total(found), tiny)
                for k in range(width):
                    phi[i, k] = found[k] * norm
                    fresh[k] += c[i] * phi[i, k]
            change = 0.0
            for k in range(width):
                change += np.float64(abs(fresh[k] - held[k]))
                held[k] = fresh[k]
            if change < tol * n_components or i_iter == n_iter - 1:
                break
            lead = _extrapolated(nothing, held, earlier, ahead, found, lead)
        for k in range(n_components):
            shape[d, k] = np.float64(base) + np.float64(held[k])
