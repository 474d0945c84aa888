"""Local steps of topic models that change the topics of one word or token at a time.

Topics come as a table with one row per word, which :mod:`counts` describes. Sums over documents are
float64, whatever the dtype of the data and of the table is.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import exp, log
from ._random import stream_of, uniform
from .counts import SMALLEST_LOG, TINY, TINY_SINGLE, filled, longest_row, open_row, padded
from .document_steps import (
    LOCAL_STEP,
    document_sums,
    scratch_arrays,
    tempered_prior,
    token_mass,
    tokens_of,
)
from .simd.emitter import ROWS
from .simd.products import total


@helper
def _powered(value, exponent):
    """value^x, for the few places where a temperature acts on counts."""
    return value if exponent == 1.0 else exp(exponent * log(max(value, SMALLEST_LOG)))


@helper
def _finish_assignments(
    indices, begin, n, c, phi, alpha, base, factor, weight, noisy_weight, gamma, d, scratch,
    expected_log, final, assigned, out, clean, theta, sums,
):  # fmt: skip
    """Compute the parameters, sums and statistics of a document from a given φ."""
    n_topics = alpha.shape[0]
    for k in range(n_topics):
        assigned[k] = 0.0
    for i in range(n):
        for k in range(n_topics):
            assigned[k] += np.float64(c[i]) * np.float64(phi[i, k])
    if sums.shape[0] > 0:
        entropy = 0.0
        for i in range(n):
            count = np.float64(c[i])
            for k in range(n_topics):
                share = np.float64(phi[i, k])
                entropy -= count * share * log(max(share, SMALLEST_LOG))
        sums[0] += weight * entropy
    for k in range(n_topics):
        final[k] = np.float64(base[k]) + factor * assigned[k]
        gamma[d, k] = final[k]
    document_sums(alpha, final, assigned, weight, scratch, expected_log, theta, sums)
    if out.shape[0] > 0:
        for i in range(n):
            w = indices[begin + i]
            for k in range(n_topics):
                out[w, k] += noisy_weight * np.float64(c[i]) * np.float64(phi[i, k])
    if clean.shape[0] > 0:
        for i in range(n):
            w = indices[begin + i]
            for k in range(n_topics):
                clean[w, k] += weight * np.float64(c[i]) * np.float64(phi[i, k])


@kernel(LOCAL_STEP)
def collapsed(
    counts,
    indices,
    indptr,
    table,
    largest,
    alpha,
    local,
    factor,
    prior,
    given,
    n_iter,
    tol,
    weights,
    noise,
    gamma,
    out,
    clean,
    theta,
    sums,
):
    """Collapsed local step of order zero (CVB0).

    The update φ_wk ∝ (n_k − φ_wk + α_k)^x B_wk is done word after word, and the counts n change in
    place. It takes one token of the word out of the counts, or all of them if the word's count is
    below 1.

    The arguments are those of :func:`latent_dirichlet.mean_field`, but the statistics are Σ w c φ
    themselves, and ``sums[0]`` is Σ w H[q(z)].
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    longest = padded(longest_row(indptr), ROWS)
    rows = np.empty((longest, width), table.dtype)
    phi = np.empty((longest, width), table.dtype)
    c = np.empty(longest, table.dtype)
    base = filled(width, 1.0, table.dtype)
    found = filled(width, 0.0, table.dtype)
    held = filled(width, 0.0, table.dtype)
    fresh = filled(width, 0.0, table.dtype)
    old = filled(width, 0.0, table.dtype)
    final, assigned, scratch, expected_log = scratch_arrays(alpha)
    for k in range(n_topics):
        base[k] = tempered_prior(alpha[k], prior)
    one = size(1)
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    for d in range(indptr.shape[0] - 1):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        open_row(counts, indices, begin, n, table, rows, c)
        for k in range(width):
            held[k] = size(0)
        for i in range(n):
            for k in range(n_topics):
                start = size(gamma[d, k]) if given else one
                found[k] = rows[i, k] * _powered(start, local)
            norm = one / max(total(found), tiny)
            for k in range(width):
                phi[i, k] = found[k] * norm
                held[k] += c[i] * phi[i, k]
        for _ in range(n_iter):
            for k in range(width):
                old[k] = held[k]
                fresh[k] = size(0)
            for i in range(n):
                removed = min(c[i], one)
                for k in range(width):
                    share = held[k] - removed * phi[i, k]
                    found[k] = max(share, size(0)) + base[k]
                if local == 1.0:
                    for k in range(width):
                        found[k] *= rows[i, k]
                else:
                    for k in range(width):
                        found[k] = rows[i, k] * _powered(np.float64(found[k]), local)
                norm = one / max(total(found), tiny)
                for k in range(width):
                    new = found[k] * norm
                    held[k] += c[i] * (new - phi[i, k])
                    fresh[k] += c[i] * new
                    phi[i, k] = new
            for k in range(width):
                # The counts are replaced by a fresh sum, because the rounding errors of many small
                # changes would add up, above all in float32.
                held[k] = fresh[k]
                old[k] = abs(held[k] - old[k])
            if np.float64(total(old)) < tol * n_topics:
                break
        weight = weights[d] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[d] if noise.shape[0] > 0 else weight
        _finish_assignments(
            indices, begin, n, c, phi, alpha, base, factor, weight, noisy_weight, gamma, d, scratch,
            expected_log, final, assigned, out, clean, theta, sums,
        )  # fmt: skip


@helper
def _pick(weights, sum_of_weights, u, n):
    """The index that a uniform number selects."""
    left = u * np.float64(sum_of_weights)
    for k in range(n - 1):
        left -= np.float64(weights[k])
        if left < 0.0:
            return k
    return n - 1


@kernel(
    "values index pointer rows vector vector float float float int int int int vector vector "
    "out2 out2 out2 out1 out1"
)
def gibbs(
    counts,
    indices,
    indptr,
    table,
    largest,
    alpha,
    local,
    factor,
    prior,
    given,
    n_burn,
    n_keep,
    seed,
    weights,
    noise,
    gamma,
    out,
    clean,
    theta,
    sums,
):
    """Collapsed Gibbs sampling of the topics of all tokens, p ∝ (n_k + α_k)^x B_wk.

    φ is the mean over ``n_keep`` sweeps that follow ``n_burn`` others. Counts become tokens by
    :func:`~.document_steps.token_mass`. Each document has random numbers of its own, which depend
    on ``seed`` and on its position among those of the call. The other arguments and the results are
    those of :func:`collapsed`.
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    longest = padded(longest_row(indptr), ROWS)
    most = 0
    for d in range(indptr.shape[0] - 1):
        tokens = 0
        for i in range(indptr[d], indptr[d + 1]):
            tokens += tokens_of(counts[i])
        most = max(most, tokens)
    topic = np.empty(most, np.int32)
    rows = np.empty((longest, width), table.dtype)
    phi = np.zeros((longest, width), table.dtype)
    c = np.zeros(longest, table.dtype)
    base = np.ones(width, table.dtype)
    held = np.zeros(width, table.dtype)
    found = np.zeros(width, table.dtype)
    final, assigned, scratch, expected_log = scratch_arrays(alpha)
    one = size(1)
    for k in range(n_topics):
        base[k] = tempered_prior(alpha[k], prior)
    for d in range(indptr.shape[0] - 1):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        open_row(counts, indices, begin, n, table, rows, c)
        stream, drawn = stream_of(seed, d), np.uint64(0)
        for k in range(width):
            held[k] = size(0)
        t = 0
        for i in range(n):
            for k in range(width):
                phi[i, k] = size(0)
            for k in range(n_topics):
                start = size(gamma[d, k]) if given else one
                found[k] = rows[i, k] * _powered(start, local)
            norm = total(found)
            for j in range(tokens_of(c[i])):
                k = _pick(found, norm, uniform(stream, drawn), n_topics)
                drawn += np.uint64(1)
                topic[t] = k
                held[k] += size(token_mass(c[i], j))
                t += 1
        for sweep in range(n_burn + n_keep):
            t = 0
            for i in range(n):
                for j in range(tokens_of(c[i])):
                    token = size(token_mass(c[i], j))
                    held[topic[t]] = max(held[topic[t]] - token, size(0))
                    if local == 1.0:
                        for k in range(width):
                            found[k] = (held[k] + base[k]) * rows[i, k]
                    else:
                        for k in range(width):
                            level = np.float64(held[k] + base[k])
                            found[k] = rows[i, k] * _powered(level, local)
                    k = _pick(found, total(found), uniform(stream, drawn), n_topics)
                    drawn += np.uint64(1)
                    topic[t] = k
                    held[k] += token
                    t += 1
                    if sweep >= n_burn:
                        phi[i, k] += token
        for i in range(n):
            share = one / (size(n_keep) * c[i]) if c[i] > 0 else size(0)
            for k in range(width):
                phi[i, k] *= share
        weight = weights[d] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[d] if noise.shape[0] > 0 else weight
        _finish_assignments(
            indices, begin, n, c, phi, alpha, base, factor, weight, noisy_weight, gamma,
            d, scratch, expected_log, final, assigned, out, clean, theta, sums,
        )  # fmt: skip
