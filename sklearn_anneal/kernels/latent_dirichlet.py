"""Local steps of topic models, document by document.

Topics come as a table with one row per word, which :mod:`counts` describes. Sums over documents are
float64, whatever the dtype of the data and of the table is.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._emitter import LANES, ROWS
from ._math import digamma, exp, exp_digamma, log, log_gamma
from ._random import stream_of, uniform
from ._simd import fetch_rows, multiplicative_step, ratio_update, ratio_update_of_rows, total
from .counts import (
    SMALLEST_LOG,
    TINY,
    TINY_SINGLE,
    add_shares,
    longest_row,
    open_row,
    padded,
)

# A topic leaves a document if its number of tokens there is below this share of the mean change of
# γ at which the iterations end: all such topics together have less than the iterations ignore.
_SHARE_OF_TOLERANCE = 0.1
# Where the tolerance does not say how much may be ignored, a topic leaves if its number of tokens
# is below the first of these numbers times α² and below the second: its weight no longer depends
# on them.
_FEW = (1e-6, 1e-10)
_FEW_SINGLE = (1e-3, 1e-6)
# To copy one column costs as much as this many iterations over one column. The first number is that
# of the iterations which the sums and statistics of a document cost; few documents need more
# iterations than the second says.
_COPY_OF_COLUMN = 10
_SUMS_OF_DOCUMENT, _ITERATIONS_LEFT = 3, 16
# The rows of a document's words are copied next to each other if they have at most this many
# topics. Longer ones are read where they are, and prefetched by the processor alone.
_COPIED_WIDTH = 128


@kernel("rows vector out2", dtypes=("float64",))
def dirichlet_sums(concentration, prior, out):
    """Add Σ log Γ(λ_w), Σ (λ_w − η_w) ψ(λ_w) and Σ λ_w of each topic to the rows of ``out``.

    ``concentration`` has shape (n_words, n_topics), ``prior`` (n_words,).
    """
    for w in range(concentration.shape[0]):
        eta = prior[w]
        for k in range(concentration.shape[1]):
            value = concentration[w, k]
            out[0, k] += log_gamma(value)
            out[1, k] += (value - eta) * digamma(value)
            out[2, k] += value


@helper
def _topic_weights(gamma, local, n, out):
    """exp{x ψ(γ)}; the normaliser ψ(Σγ) is left out, because it cancels in φ."""
    if local == 1.0:
        for k in range(n):
            out[k] = exp_digamma(gamma[k])
    else:
        for k in range(n):
            out[k] = exp(local * digamma(np.float64(gamma[k])))


@helper
def _iterate(
    rows, inside, table, starts, n_words, c, base, factor, local, tiny, gamma, e, acc, norms
):
    """Do one iteration over a document; returns Σ |change of γ|.

    ``acc`` then holds the expected tokens of each topic.
    """
    _assign(rows, inside, table, starts, n_words, c, local, tiny, gamma, e, acc, norms)
    return np.float64(multiplicative_step(base, factor, e, acc, gamma))


@helper
def _assign(rows, inside, table, starts, n_words, c, local, tiny, gamma, e, acc, norms):
    """Compute the normalisers n_w of φ given γ.

    The expected tokens of each topic are then ``acc * e``. The rows of the document's words are
    ``rows`` if ``inside``, and else those of the table at ``starts``.
    """
    _topic_weights(gamma, local, e.shape[0], e)
    for k in range(e.shape[0]):
        acc[k] = acc.dtype.type(0)
    if inside:
        ratio_update(e, c, tiny, rows, n_words, norms, acc)
    else:
        ratio_update_of_rows(e, c, tiny, table, starts, n_words, norms, acc)


@helper
def _open_document(counts, indices, begin, n, width, starts, c):
    """Find the rows of a document's words in the table, and its counts; returns its tokens."""
    tokens = 0.0
    for i in range(n):
        starts[i] = np.int64(indices[begin + i]) * width
        c[i] = counts[begin + i]
        tokens += np.float64(c[i])
    for i in range(n, padded(n, ROWS)):
        starts[i] = starts[0]
        c[i] = c.dtype.type(0)
    return tokens


@helper
def _kept(acc, cut, n_topics, chosen):
    """Find which topics of a document have more tokens than ``cut``; returns how many.

    NaN counts as more, so that an overflow is not lost with its topic.
    """
    n = 0
    for k in range(n_topics):
        chosen[n] = k
        n += not acc[k] <= cut[k]
    return n


@helper
def _repays(left, before, after):
    """Whether iterations over fewer columns repay the copy of these columns."""
    saved = (min(left, _ITERATIONS_LEFT) + _SUMS_OF_DOCUMENT) * (before - after)
    return 2 * after <= before and saved > _COPY_OF_COLUMN * after


@helper
def _chosen_columns(rows, indices, begin, n, n_words, chosen, n_chosen, width, memory):
    """Copy the chosen columns of a document's rows, padded with zeros to the given width.

    The rows are those of ``indices[begin : begin + n]``, or the first n if there are no indices.
    """
    small = memory[: n_words * width].reshape((n_words, width))
    zero = memory.dtype.type(0)
    for i in range(n):
        row = rows[indices[begin + i]] if indices.shape[0] > 0 else rows[i]
        for j in range(n_chosen):
            small[i, j] = row[chosen[j]]
        for j in range(n_chosen, width):
            small[i, j] = zero
    for i in range(n, n_words):
        for j in range(width):
            small[i, j] = memory.dtype.type(1)
    return small


@helper
def _document_sums(alpha, gamma, tokens_of_topics, weight, scratch, expected_log, theta, sums):
    """Add Σ n_k E log θ_k, E log p(θ) without its constant, and H[q(θ)]; returns ψ(Σ γ).

    What belongs into an array without entries is not computed.
    """
    if theta.shape[0] == 0 and sums.shape[0] == 0:
        return 0.0
    concentration = 0.0
    n_topics = alpha.shape[0]
    for k in range(n_topics):
        concentration += gamma[k]
    normalizer = digamma(concentration)
    # The loop covers the padding too, because entries that are left over from whole vectors would
    # be processed one by one, which is slow.
    for k in range(gamma.shape[0]):
        expected_log[k] = digamma(gamma[k]) - normalizer
    if sums.shape[0] > 0:
        energy = 0.0
        prior = 0.0
        entropy = -log_gamma(concentration)
        for k in range(gamma.shape[0]):
            scratch[k] = log_gamma(gamma[k])
        for k in range(n_topics):
            energy += tokens_of_topics[k] * expected_log[k]
            prior += (alpha[k] - 1.0) * expected_log[k]
            entropy += scratch[k] - (gamma[k] - 1.0) * expected_log[k]
        sums[1] += weight * energy
        sums[2] += weight * prior
        sums[3] += weight * entropy
    if theta.shape[0] > 0:
        for k in range(n_topics):
            theta[k] += weight * expected_log[k]
        theta[n_topics] += weight
        theta[n_topics + 1] += weight * normalizer
    return normalizer


@helper
def _scratch(n_topics):
    n = padded(n_topics, LANES)
    return np.ones(n), np.ones(n), np.ones(n), np.ones(n)


@helper
def _tempered_prior(alpha, prior):
    # Without a temperature the result must be exactly α. The parameter of the flat density is 1.
    return alpha if prior == 1.0 else 1.0 + prior * (alpha - 1.0)


@helper
def _few_topics_sums(alpha, of_prior, gamma, tokens_of_topics, topics, m, weight, theta, sums):
    """Do what :func:`_document_sums` does for a document that has only m topics.

    The terms of the others are those of the prior, :func:`_sums_of_prior`. What is added to
    ``theta`` is E log θ without ψ of the prior and without the normaliser.
    """
    if theta.shape[0] == 0 and sums.shape[0] == 0:
        return 0.0
    n_topics = alpha.shape[0]
    concentration = of_prior[3, 0]
    for j in range(m):
        concentration += gamma[j] - of_prior[0, topics[j]]
    normalizer = digamma(concentration)
    energy = 0.0
    prior = of_prior[3, 1] - normalizer * of_prior[3, 2]
    entropy = of_prior[3, 3] + normalizer * (concentration - n_topics) - log_gamma(concentration)
    for j in range(m):
        k = topics[j]
        value = digamma(gamma[j])
        change = value - of_prior[1, k]
        if sums.shape[0] > 0:
            energy += tokens_of_topics[j] * (value - normalizer)
            prior += (alpha[k] - 1.0) * change
            entropy += log_gamma(gamma[j]) - (gamma[j] - 1.0) * value - of_prior[2, k]
        if theta.shape[0] > 0:
            theta[k] += weight * change
    if sums.shape[0] > 0:
        sums[1] += weight * energy
        sums[2] += weight * prior
        sums[3] += weight * entropy
    return normalizer


@helper
def _sums_of_prior(alpha, base):
    """The terms of topics that a document does not have, for which γ is ``base``.

    The first three rows are γ, ψ(γ), and log Γ(γ) − (γ − 1) ψ(γ). The last one begins with Σ γ,
    Σ (α − 1) ψ(γ), Σ (α − 1) and the sum of the third row.
    """
    n = alpha.shape[0]
    found = np.zeros((4, max(n, 4)))
    for k in range(n):
        found[0, k] = base[k]
        found[1, k] = digamma(found[0, k])
        found[2, k] = log_gamma(found[0, k]) - (found[0, k] - 1.0) * found[1, k]
        found[3, 0] += found[0, k]
        found[3, 1] += (alpha[k] - 1.0) * found[1, k]
        found[3, 2] += alpha[k] - 1.0
        found[3, 3] += found[2, k]
    return found


@helper
def _add_few_shares(indices, begin, n, c, norms, e, topics, m, weight, out):
    """Do what :func:`add_shares` does for the m topics that a document has."""
    factor = e.dtype.type(weight)
    for i in range(n):
        row = out[indices[begin + i]]
        share = factor * (c[i] / norms[i])
        for j in range(m):
            row[topics[j]] += np.float64(share * e[j])


@helper
def _any_other(acc, e, cut, topics, m, n_topics):
    """Whether a topic that was left out of the document has tokens after all."""
    j = 0
    for k in range(n_topics):
        if j < m and topics[j] == k:
            j += 1
        elif not acc[k] * e[k] <= 10.0 * cut[k]:
            return True
    return False


@helper
def _cuts(base, tol, few, fewest, given, n_topics):
    """The numbers of tokens below which topics leave a document."""
    cut = np.empty(n_topics)
    ignored = 0.0 if given else _SHARE_OF_TOLERANCE * tol
    for k in range(n_topics):
        cut[k] = max(min(few * np.float64(base[k]) ** 2, fewest), ignored)
    return cut


_MEAN_FIELD = (
    "values index pointer rows vector vector float float float int int float vector vector "
    "out2 out2 out2 out1 out1"
)


@kernel(_MEAN_FIELD)
def mean_field(
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
    """Mean-field local step.

    The updates φ_wk ∝ exp{x (E log θ_k + E log β_kw)} and γ = b + y (α − b) + s Σ_w c_w φ_w
    alternate until γ changes by less than ``tol`` on average, or ``n_iter`` times.

    ``gamma`` (n_documents, n_topics) receives the result; if ``given``, it also holds the start.
    ``out`` and ``clean`` (n_words, width) receive Σ_d w_d (c_w / n_w) e_k with and without the
    ``noise``, unless they have no rows. ``theta`` (n_topics + 2,) receives Σ w E log θ, Σ w and
    Σ w ψ(Σ_k γ_k). ``sums`` receives Σ w times each of these: the log of the normaliser of φ,
    Σ_k n_k E log θ_k, E log p(θ) without its constant, and H[q(θ)]. What belongs into an array
    without entries is not computed.
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    step = size(factor)
    few, fewest = _FEW_SINGLE if table.itemsize == 4 else _FEW
    longest = padded(longest_row(indptr), ROWS)
    copied = width <= _COPIED_WIDTH
    rows = np.empty((longest if copied else 0, width), table.dtype)
    starts = np.zeros(longest, np.int64)
    memory = np.empty(longest * (width // 2), table.dtype)
    c = np.zeros(longest, table.dtype)
    norms = np.empty(longest, table.dtype)
    logs = np.empty(longest)
    e = np.zeros(width, table.dtype)
    acc = np.zeros(width, table.dtype)
    base = np.ones(width, table.dtype)
    current = np.ones(width, table.dtype)
    part = np.ones(width, table.dtype)
    part_base = np.ones(width, table.dtype)
    topics = np.empty(width, np.uint32)
    nothing = indices[:0]
    final, assigned, scratch, expected_log = _scratch(n_topics)
    for k in range(n_topics):
        base[k] = _tempered_prior(alpha[k], prior)
    cut = _cuts(base, tol, few, fewest, given, n_topics)
    of_prior = _sums_of_prior(alpha, base)
    few_weight = 0.0
    few_normalizer = 0.0
    for d in range(indptr.shape[0] - 1):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        n_words = padded(n, ROWS)
        if copied:
            tokens = open_row(counts, indices, begin, n, table, rows, c)
        else:
            tokens = _open_document(counts, indices, begin, n, width, starts, c)
        for k in range(n_topics):
            spread = np.float64(base[k]) + factor * tokens / n_topics
            current[k] = gamma[d, k] if given and n > 0 else spread
        left = n_iter
        m = n_topics
        # Every iteration prefetches a part of the rows that will be read later: the topics of the
        # next document's words, and the sums of this document's words.
        end = begin + n
        next_end = indptr[min(d + 2, indptr.shape[0] - 1)]
        topics_from = end
        sums_from = begin
        topics_part = (next_end - end) // max(n_iter, 1) + 1
        sums_part = n // max(n_iter, 1) + 1
        while True:
            # The iterations begin with all topics. They go on with only those that have tokens as
            # soon as this repays the copy of their columns.
            whole = m < n_topics
            m = n_topics
            converged = False
            iteration = 0
            while left > 0:
                left -= 1
                if copied:
                    topics_to = min(topics_from + topics_part, next_end)
                    fetch_rows(table, indices, topics_from, topics_to)
                    topics_from = topics_to
                    if out.shape[0] > 0:
                        sums_to = min(sums_from + sums_part, end)
                        fetch_rows(out, indices, sums_from, sums_to)
                        sums_from = sums_to
                change = _iterate(
                    rows, copied, table, starts, n_words, c, base, step, local, tiny, current, e,
                    acc, norms,
                )  # fmt: skip
                iteration += 1
                converged = change < tol * n_topics
                if converged:
                    break
                if not whole and iteration > 2:
                    m = _kept(acc, cut, n_topics, topics)
                    if _repays(left, width, padded(m, LANES)):
                        break
                    m = n_topics
            if m < n_topics:
                narrow = padded(m, LANES)
                if copied:
                    small = _chosen_columns(rows, nothing, 0, n, n_words, topics, m, narrow, memory)
                else:
                    small = _chosen_columns(
                        table, indices, begin, n, n_words, topics, m, narrow, memory
                    )
                for j in range(narrow):
                    part[j] = current[topics[j]] if j < m else size(1)
                    part_base[j] = base[topics[j]] if j < m else size(1)
                while left > 0 and not converged:
                    left -= 1
                    change = _iterate(
                        small, True, table, starts, n_words, c, part_base[:narrow], step, local,
                        tiny, part[:narrow], e[:narrow], acc[:narrow], norms,
                    )  # fmt: skip
                    converged = change < tol * n_topics
                if converged and left > 0:
                    # Topics that were left out may have tokens by now.
                    for k in range(n_topics):
                        current[k] = base[k]
                    for j in range(m):
                        current[topics[j]] = part[j]
                    _assign(
                        rows, copied, table, starts, n_words, c, local, tiny, current, e, acc, norms
                    )
                    if _any_other(acc, e, cut, topics, m, n_topics):
                        continue
                # Compute φ of the final γ.
                _assign(
                    small, True, table, starts, n_words, c, local, tiny, part[:narrow], e[:narrow],
                    acc[:narrow], norms,
                )  # fmt: skip
            else:
                _assign(
                    rows, copied, table, starts, n_words, c, local, tiny, current, e, acc, norms
                )
            break
        weight = weights[d] if weights.shape[0] > 0 else 1.0
        noisy_weight = weight * noise[d] if noise.shape[0] > 0 else weight
        if m < n_topics:
            for k in range(n_topics):
                gamma[d, k] = base[k]
            for j in range(m):
                final[j] = part[j]
                gamma[d, topics[j]] = final[j]
                assigned[j] = acc[j] * e[j]
            normalizer = _few_topics_sums(
                alpha, of_prior, final, assigned, topics, m, weight, theta, sums
            )
            few_weight += weight
            few_normalizer += weight * normalizer
            if out.shape[0] > 0:
                _add_few_shares(indices, begin, n, c, norms, e, topics, m, noisy_weight, out)
            if clean.shape[0] > 0:
                _add_few_shares(indices, begin, n, c, norms, e, topics, m, weight, clean)
        else:
            for k in range(n_topics):
                final[k] = current[k]
                gamma[d, k] = final[k]
                assigned[k] = acc[k] * e[k]
            normalizer = _document_sums(
                alpha, final, assigned, weight, scratch, expected_log, theta, sums
            )
            if out.shape[0] > 0:
                add_shares(indices, begin, n, c, norms, e, noisy_weight, out)
            if clean.shape[0] > 0:
                add_shares(indices, begin, n, c, norms, e, weight, clean)
        if sums.shape[0] > 0:
            log_norm = -local * normalizer * tokens
            for i in range(n_words):
                logs[i] = log(np.float64(norms[i]))
            for i in range(n):
                log_norm += np.float64(c[i]) * (logs[i] + local * largest[indices[begin + i]])
            sums[0] += weight * log_norm
    if theta.shape[0] > 0:
        for k in range(n_topics):
            theta[k] += few_weight * of_prior[1, k] - few_normalizer
        theta[n_topics] += few_weight
        theta[n_topics + 1] += few_normalizer


@helper
def _powered(value, exponent):
    """value^x, for the few places where a temperature acts on counts."""
    return value if exponent == 1.0 else exp(exponent * log(max(value, SMALLEST_LOG)))


@helper
def _finish_assignments(
    indices, begin, n, c, phi, alpha, base, factor, tokens, weight, noisy_weight, gamma, d, scratch,
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
    _document_sums(alpha, final, assigned, weight, scratch, expected_log, theta, sums)
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


@kernel(_MEAN_FIELD)
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

    The arguments are those of :func:`mean_field`, but the statistics are Σ w c φ themselves, and
    ``sums[0]`` is Σ w H[q(z)].
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    longest = padded(longest_row(indptr), ROWS)
    rows = np.empty((longest, width), table.dtype)
    phi = np.zeros((longest, width), table.dtype)
    c = np.zeros(longest, table.dtype)
    base = np.ones(width, table.dtype)
    found = np.zeros(width, table.dtype)
    held = np.zeros(width, table.dtype)
    fresh = np.zeros(width, table.dtype)
    old = np.zeros(width, table.dtype)
    final, assigned, scratch, expected_log = _scratch(n_topics)
    for k in range(n_topics):
        base[k] = _tempered_prior(alpha[k], prior)
    one = size(1)
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    for d in range(indptr.shape[0] - 1):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        tokens = open_row(counts, indices, begin, n, table, rows, c)
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
            indices, begin, n, c, phi, alpha, base, factor, tokens, weight, noisy_weight, gamma, d,
            scratch, expected_log, final, assigned, out, clean, theta, sums,
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

    φ is the mean over ``n_keep`` sweeps that follow ``n_burn`` others. The fractional part of a
    count is treated as one smaller token. Each document has random numbers of its own, so that the
    result depends on ``seed`` but not on how documents are grouped. The other arguments and the
    results are those of :func:`collapsed`.
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    longest = padded(longest_row(indptr), ROWS)
    most = 0
    for d in range(indptr.shape[0] - 1):
        tokens = 0
        for i in range(indptr[d], indptr[d + 1]):
            tokens += int(np.ceil(counts[i]))
        most = max(most, tokens)
    topic = np.empty(most, np.int32)
    rows = np.empty((longest, width), table.dtype)
    phi = np.zeros((longest, width), table.dtype)
    c = np.zeros(longest, table.dtype)
    base = np.ones(width, table.dtype)
    held = np.zeros(width, table.dtype)
    found = np.zeros(width, table.dtype)
    final, assigned, scratch, expected_log = _scratch(n_topics)
    one = size(1)
    for k in range(n_topics):
        base[k] = _tempered_prior(alpha[k], prior)
    for d in range(indptr.shape[0] - 1):
        begin = indptr[d]
        n = indptr[d + 1] - begin
        n_tokens = open_row(counts, indices, begin, n, table, rows, c)
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
            for j in range(int(np.ceil(c[i]))):
                k = _pick(found, norm, uniform(stream, drawn), n_topics)
                drawn += np.uint64(1)
                topic[t] = k
                held[k] += min(one, c[i] - size(j))
                t += 1
        for sweep in range(n_burn + n_keep):
            t = 0
            for i in range(n):
                for j in range(int(np.ceil(c[i]))):
                    token = min(one, c[i] - size(j))
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
            indices, begin, n, c, phi, alpha, base, factor, n_tokens, weight, noisy_weight, gamma,
            d, scratch, expected_log, final, assigned, out, clean, theta, sums,
        )  # fmt: skip


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
    final, assigned, scratch, expected_log = _scratch(n_topics)
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
                for k in range(n_topics):
                    e[k] = exp(x * digamma(current[k]) - (mean_partition[k] - lowest))
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
            for k in range(n_topics):
                e[k] = exp(x * digamma(current[k]) - (mean_partition[k] - lowest))
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
            for k in range(n_topics):
                root[k] = exp(expected_log[k] / n_grid)
                power[k] = 1.0
            top = -1e300
            for m in range(n_grid):
                volume = 0.0
                for k in range(n_topics):
                    power[k] *= root[k]
                    volume += power[k]
                value = (m + 1) / n_grid * energy - tokens * log(max(volume, SMALLEST_LOG))
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
        entropy -= x * normalizer * tokens
        _document_sums(alpha, final, assigned, weight, scratch, expected_log, theta, sums)
        sums[0] += weight * entropy
        sums[4] += weight * energy
        sums[5] += weight / x
        for i in range(n):
            w = indices[begin + i]
            share = size(noisy_weight * x) * (c[i] / norms[i])
            for k in range(n_topics):
                out[w, k] += np.float64(share * rows[i, k] * e[k])
