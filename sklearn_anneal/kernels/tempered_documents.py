"""Local steps of topic models in which every document has a temperature of its own.

Topics come as a table of logarithms with one row per word, which :mod:`counts` describes.
"""

from __future__ import annotations

import numpy as np

from ._compile import called, kernel
from ._math import digamma, exp, log
from .counts import FAR_FROM_ZERO, SMALLEST_LOG, TINY, TINY_SINGLE, longest_row, open_row, padded
from .document_steps import document_sums, scratch_arrays
from .simd.emitter import ROWS
from .simd.products import ratio_update


@kernel("rows int out2", dtypes=("float64",))
def tempered_topic_sums(table, n_temperatures, out):
    """Σ_w exp{x_m log_table_wk} on the grid x_m = m/M, of shape (M, width).

    The exponentials are powers of the entries of ``table``, which are exp{E log β_kw / M}.
    """
    width = table.shape[1]
    power = np.empty(width)
    for w in range(table.shape[0]):
        for k in range(width):
            power[k] = 1.0
        for m in range(n_temperatures):
            for k in range(width):
                power[k] *= table[w, k]
                out[m, k] += power[k]


@called
def _topic_weights(gamma, n_topics, x, partition, lowest, e):
    """exp{x ψ(γ_k) − (a_k − a_min)}, less a common factor if all underflow; returns its log."""
    top = 0.0
    for k in range(n_topics):
        e[k] = exp(x * digamma(gamma[k]) - (partition[k] - lowest))
        top = max(top, np.float64(e[k]))
    if top > FAR_FROM_ZERO:
        return 0.0
    top = x * digamma(gamma[0]) - (partition[0] - lowest)
    for k in range(1, n_topics):
        top = max(top, x * digamma(gamma[k]) - (partition[k] - lowest))
    for k in range(n_topics):
        e[k] = exp(x * digamma(gamma[k]) - (partition[k] - lowest) - top)
    return top


@kernel(
    "values index pointer rows vector vector matrix int int int float vector vector "
    "out2 out2 out1 out1 out1"
)
def locally_tempered(
    counts,
    indices,
    indptr,
    log_table,
    largest,
    alpha,
    log_partition,
    n_rounds,
    given,
    n_iter,
    tol,
    weights,
    noise,
    gamma,
    out,
    found,
    theta,
    sums,
):
    """Mean-field local step with a temperature for every document, x_m = m/M.

    A round computes φ ∝ exp{x̄ (E log θ + E log β) − Σ_m r_m a_k(x_m)} and γ = α + x̄ n at the
    current r, and then r_m ∝ exp{x_m A − Σ_k n_k a_k(x_m) − N b(x_m)}. After the last r, φ and γ
    are computed once more, so that everything that is returned belongs to the same r.

    ``log_table`` holds E log β − m_w (n_words, width), and ``log_partition`` a_k(x_m) of shape
    (M, n_topics). ``out`` receives Σ w x̄ c φ, and ``found`` the x̄ of each document. ``sums``
    receives Σ w H[q(z)], Σ n_k E log θ_k, E log p(θ) without its constant, H[q(θ)], the energy A,
    and Σ w/x̄.
    """
    n_topics = alpha.shape[0]
    width = log_table.shape[1]
    size = log_table.dtype.type
    tiny = size(TINY_SINGLE if log_table.itemsize == 4 else TINY)
    n_grid = log_partition.shape[0]
    longest = padded(longest_row(indptr), ROWS)
    logs = np.empty((longest, width), log_table.dtype)
    rows = np.empty((longest, width), log_table.dtype)
    c = np.zeros(longest, log_table.dtype)
    norms = np.empty(longest, log_table.dtype)
    e = np.zeros(width, log_table.dtype)
    acc = np.zeros(width, log_table.dtype)
    current = np.ones(width)
    mean_partition = np.zeros(width)
    final, assigned, scratch, expected_log = scratch_arrays(alpha)
    r = np.empty(n_grid)
    power = np.empty(n_topics)
    root = np.empty(n_topics)
    for d in range(indptr.shape[0] - 1):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        n_words = padded(n, ROWS)
        tokens = open_row(counts, indices, begin, n, log_table, logs, c)
        for m in range(n_grid):
            r[m] = 1.0 / n_grid
        for k in range(n_topics):
            spread = alpha[k] + tokens / n_topics
            current[k] = gamma[d, k] if given and n > 0 else spread
        x = 1.0
        energy = 0.0
        lifted = 0.0
        shift = 0.0
        for i in range(n):
            shift += np.float64(c[i]) * largest[indices[begin + i]]
        for round in range(n_rounds + 1):
            x = 0.0
            for k in range(n_topics):
                mean_partition[k] = 0.0
            for m in range(n_grid):
                x += r[m] * (m + 1) / n_grid
                for k in range(n_topics):
                    mean_partition[k] += r[m] * log_partition[m, k]
            lowest = mean_partition[0]
            for k in range(1, n_topics):
                lowest = min(lowest, mean_partition[k])
            for i in range(n_words):
                for k in range(width):
                    rows[i, k] = exp(size(x) * logs[i, k])
            for _ in range(n_iter):
                _topic_weights(current, n_topics, x, mean_partition, lowest, e)
                for k in range(width):
                    acc[k] = size(0)
                ratio_update(e, c, tiny, rows, n_words, norms, acc)
                change = 0.0
                for k in range(n_topics):
                    new = alpha[k] + x * np.float64(acc[k]) * np.float64(e[k])
                    change += abs(new - current[k])
                    current[k] = new
                if change < tol * n_topics:
                    break
            # Compute φ of the final γ, and its energy.
            lifted = _topic_weights(current, n_topics, x, mean_partition, lowest, e)
            for k in range(width):
                acc[k] = size(0)
            ratio_update(e, c, tiny, rows, n_words, norms, acc)
            concentration = 0.0
            for k in range(n_topics):
                concentration += current[k]
            normalizer = digamma(concentration)
            energy = shift
            for k in range(n_topics):
                assigned[k] = np.float64(e[k]) * np.float64(acc[k])
                expected_log[k] = digamma(current[k]) - normalizer
                energy += assigned[k] * expected_log[k]
            for i in range(n):
                ratio = c[i] / norms[i]
                for k in range(n_topics):
                    share = np.float64(ratio * rows[i, k] * e[k])
                    energy += share * np.float64(logs[i, k])
            if round == n_rounds:
                break
            # Sums of exp{x E log θ_k} are computed without a common factor if all underflow.
            common = expected_log[0]
            for k in range(1, n_topics):
                common = max(common, expected_log[k])
            common = common if exp(common) < FAR_FROM_ZERO else 0.0
            for k in range(n_topics):
                root[k] = exp((expected_log[k] - common) / n_grid)
                power[k] = 1.0
            top = -1e300
            for m in range(n_grid):
                volume = 0.0
                for k in range(n_topics):
                    power[k] *= root[k]
                    volume += power[k]
                log_volume = log(max(volume, SMALLEST_LOG)) + (m + 1) / n_grid * common
                value = (m + 1) / n_grid * energy - tokens * log_volume
                for k in range(n_topics):
                    value -= assigned[k] * log_partition[m, k]
                r[m] = value
                top = max(top, value)
            norm = 0.0
            for m in range(n_grid):
                r[m] = exp(max(r[m] - top, -700.0))
                norm += r[m]
            for m in range(n_grid):
                r[m] /= norm
        found[d] = x
        weight = weights[d] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[d] if noise.shape[0] > 0 else weight
        # H[q(z)] = Σ c log n_w − Σ_k n_k log e_k − Σ c φ x (logs), where e lacks its common factor.
        entropy = -x * (energy - shift)
        for k in range(n_topics):
            final[k] = current[k]
            gamma[d, k] = final[k]
            entropy += assigned[k] * (mean_partition[k] - lowest)
        for i in range(n):
            entropy += np.float64(c[i]) * log(np.float64(norms[i]))
        entropy += (lifted - x * normalizer) * tokens
        document_sums(alpha, final, assigned, weight, scratch, expected_log, theta, sums)
        sums[0] += weight * entropy
        sums[4] += weight * energy
        sums[5] += weight / x
        for i in range(n):
            w = indices[begin + i]
            share = size(noisy_weight * x) * (c[i] / norms[i])
            for k in range(n_topics):
                out[w, k] += np.float64(share * rows[i, k] * e[k])
