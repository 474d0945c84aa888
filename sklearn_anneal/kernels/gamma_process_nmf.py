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
from ._math import digamma, exp, exp_digamma, log, log_gamma
from ._simd import LANES, ROWS, fetch_rows, multiplicative_step, ratio_update
from .counts import TINY, TINY_SINGLE, add_shares, longest_row, open_row, padded


@helper
def _weigh(shape, factor, local, out):
    """``out = factor · exp{x ψ(shape)}``."""
    if local == 1.0:
        for k in range(out.shape[0]):
            out[k] = factor[k] * exp_digamma(shape[k])
    else:
        for k in range(out.shape[0]):
            out[k] = factor[k] * out.dtype.type(exp(local * digamma(np.float64(shape[k]))))


@helper
def _activation_sums(
    shape, rate, log_rate, prior, assigned, weight, noisy_weight, logs, scratch, clean, noisy, sums
):
    """Add what q(h) of a row contributes to the bound and to the statistics.

    ``clean`` and ``noisy`` (2, K) receive the assigned counts and E h, times the two weights.
    ``sums`` receives, from its second entry on, Σ_k n_k E log h_k, KL(q(h) ‖ p(h)) without its
    constant, H[q(h)], and Σ_k (E log h_k − E h_k).
    """
    n_components = assigned.shape[0]
    for k in range(n_components):
        logs[k] = digamma(shape[k]) - log_rate[k]
    for k in range(n_components):
        scratch[k] = log_gamma(shape[k])
    energy = 0.0
    log_prior = 0.0
    entropy = 0.0
    evidence = 0.0
    for k in range(n_components):
        mean = shape[k] / rate[k]
        energy += assigned[k] * logs[k]
        log_prior += (prior - 1.0) * logs[k] - prior * mean
        # The entropy, with ψ(shape) = E log h + log rate.
        entropy += scratch[k] + shape[k] - log_rate[k]
        entropy -= (shape[k] - 1.0) * (logs[k] + log_rate[k])
        evidence += logs[k] - mean
        clean[0, k] += weight * assigned[k]
        clean[1, k] += weight * mean
        noisy[0, k] += noisy_weight * assigned[k]
        noisy[1, k] += noisy_weight * mean
    sums[1] += weight * energy
    sums[2] += weight * log_prior
    sums[3] += weight * entropy
    sums[4] += weight * evidence


@kernel(
    "values index pointer rows vector vector vector vector vector float float float float float "
    "float int int float vector vector out2 out2 out2 out2 out2 out1"
)
def sparse_step(
    counts,
    indices,
    indptr,
    table,
    largest,
    first_factor,
    factor,
    rate,
    log_rate,
    top_of_first,
    top,
    local,
    base,
    prior,
    step,
    given,
    n_sweeps,
    tol,
    weights,
    noise,
    shape,
    out,
    clean_out,
    clean,
    noisy,
    sums,
):
    """Infer the activations of rows of counts, and add up their statistics.

    ``first_factor`` and ``factor`` are exp{x (E log θ − log rate) − top} with the rates of the
    start and with those of the result. If not ``given``, the first sweep takes E log h = 0.
    ``base`` is the tempered shape of the prior and ``prior`` the true one; ``step`` is the factor
    of the statistics in a row's shapes.

    ``shape`` (n_rows, K) receives the result; if ``given``, it also holds the start. ``out`` and
    ``clean_out`` (n_columns, width) receive Σ_n w_n (x / n_v) u_k with and without noise, unless
    they have no rows. ``sums[0]`` receives Σ w x log(normaliser of the division); the other sums
    are those of :func:`_activation_sums`.
    """
    n_components = shape.shape[1]
    width = table.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    factor_of_counts = size(step)
    longest = padded(longest_row(indptr), ROWS)
    rows = np.empty((longest, width), table.dtype)
    c = np.zeros(longest, table.dtype)
    norms = np.empty(longest, table.dtype)
    logs = np.empty(longest)
    e = np.zeros(width, table.dtype)
    acc = np.zeros(width, table.dtype)
    base_row = np.full(width, base).astype(table.dtype)
    first = np.zeros(width, table.dtype)
    later = np.zeros(width, table.dtype)
    current = np.ones(width, table.dtype)
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
        mass = open_row(counts, indices, begin, n, table, rows, c)
        next_end = indptr[min(d + 2, indptr.shape[0] - 1)]
        fetch_rows(table, indices, begin + n, next_end)
        if out.shape[0] > 0:
            fetch_rows(out, indices, begin, begin + n)
        for k in range(n_components):
            current[k] = size(shape[d, k]) if given else size(1)
        for k in range(n_components, width):
            current[k] = base_row[k]
        last_top = top_of_first
        swept = False
        for sweep in range(n_sweeps):
            if sweep == 0 and not given:
                for k in range(width):
                    e[k] = first[k]
            elif sweep == 0:
                _weigh(current, first, local, e)
            else:
                _weigh(current, later, local, e)
            for k in range(width):
                acc[k] = size(0)
            ratio_update(e, c, tiny, rows, n_entries, norms, acc)
            change = np.float64(multiplicative_step(base_row, factor_of_counts, e, acc, current))
            swept = True
            if change < tol * n_components:
                break
        if swept:
            _weigh(current, later, local, e)
            last_top = top
        else:
            _weigh(current, first, local, e)
        for k in range(width):
            acc[k] = size(0)
        ratio_update(e, c, tiny, rows, n_entries, norms, acc)
        weight = weights[d] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[d] if noise.shape[0] > 0 else weight
        for k in range(n_components):
            final[k] = current[k] if swept else shape[d, k]
            shape[d, k] = final[k]
            assigned[k] = np.float64(acc[k]) * np.float64(e[k])
        _activation_sums(
            final, rate, log_rate, prior, assigned, weight, noisy_weight, expected_log, scratch,
            clean, noisy, sums,
        )  # fmt: skip
        log_norm = mass * last_top
        for i in range(n_entries):
            logs[i] = log(np.float64(norms[i]))
        for i in range(n):
            log_norm += np.float64(c[i]) * (logs[i] + local * largest[indices[begin + i]])
        sums[0] += weight * log_norm
        if out.shape[0] > 0:
            add_shares(indices, begin, n, c, norms, e, noisy_weight, out)
        if clean_out.shape[0] > 0:
            add_shares(indices, begin, n, c, norms, e, weight, clean_out)


@kernel("out_rows matrix matrix float")
def activation_weights(out, shape, factor, local):
    """``out = factor · exp{x ψ(shape)}``; ``factor`` has one row, or one per row of the shapes."""
    width = out.shape[1]
    row = np.empty(width, out.dtype)
    for n in range(shape.shape[0]):
        at = n if factor.shape[0] > 1 else 0
        for k in range(width):
            row[k] = factor[at, k]
        _weigh(shape[n], row, local, out[n])


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
    logs = np.empty(x.shape[1])
    for n in range(x.shape[0]):
        total = 0.0
        for v in range(x.shape[1]):
            logs[v] = log(np.float64(predicted[n, v] + tiny)) + largest[v]
        for v in range(x.shape[1]):
            value = x[n, v]
            observed = value == value
            quotient = value / (predicted[n, v] + tiny)
            predicted[n, v] = quotient if observed else predicted.dtype.type(0)
            total += np.float64(value) * logs[v] if observed else 0.0
        out[n] = total


@kernel("matrix matrix matrix matrix float vector vector out2 out2 out1", dtypes=("float64",))
def activation_sums(
    shape, rate, log_rate, assigned, prior, weights, noise, clean, noisy, sums
):  # fmt: skip
    """Add what q(h) of some rows contributes; rates have one row, or one per row of the shapes."""
    n_components = shape.shape[1]
    expected_log = np.empty(n_components)
    scratch = np.empty(n_components)
    for n in range(shape.shape[0]):
        at = n if rate.shape[0] > 1 else 0
        weight = weights[n] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[n] if noise.shape[0] > 0 else weight
        _activation_sums(
            shape[n], rate[at], log_rate[at], prior, assigned[n], weight, noisy_weight,
            expected_log, scratch, clean, noisy, sums,
        )  # fmt: skip


@kernel("rows float out2", dtypes=("float64",))
def component_sums(shape, prior, out):
    """Add Σ_v log Γ(s_kv), Σ_v (s_kv − a) ψ(s_kv), Σ_v ψ(s_kv) and Σ_v s_kv to the rows of ``out``.

    ``shape`` has one row per column of X; ``out`` has shape (4, n_components).
    """
    n_components = shape.shape[1]
    logs = np.empty(n_components)
    scratch = np.empty(n_components)
    for v in range(shape.shape[0]):
        for k in range(n_components):
            logs[k] = digamma(shape[v, k])
        for k in range(n_components):
            scratch[k] = log_gamma(shape[v, k])
        for k in range(n_components):
            value = shape[v, k]
            out[0, k] += scratch[k]
            out[1, k] += (value - prior) * logs[k]
            out[2, k] += logs[k]
            out[3, k] += value
