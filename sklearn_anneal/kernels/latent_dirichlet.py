"""Mean-field local steps of topic models, document by document, and the divergence of topics.

Topics come as a table with one row per word, which :mod:`counts` describes. Sums over documents are
float64, whatever the dtype of the data and of the table is.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel, shared_kernel
from ._emitter import LANES, ROWS
from ._few_topics import FEW, FEW_SINGLE, SHARE_OF_TOLERANCE, repays
from ._math import digamma, exp, exp_digamma, log, log_gamma
from ._simd import fetch_rows, multiplicative_step, ratio_update, ratio_update_of_rows
from .counts import SMALLEST_LOG, TINY, TINY_SINGLE, longest_row, open_row, padded
from .document_steps import document_sums, scratch_arrays, tempered_prior

# The rows of a document's words are copied next to each other if they have at most this many
# topics. Longer ones are read where they are, and prefetched by the processor alone.
_COPIED_WIDTH = 128
# To add the share of a topic that is one of a list costs as much as to add those of this many
# topics that follow each other.
_COST_OF_LISTED = 8


_repays = helper(repays)


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
def _few_topics_sums(alpha, of_prior, gamma, tokens_of_topics, topics, m, weight, theta, sums):
    """Do what :func:`document_sums` does for a document that has only m topics.

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
    ignored = 0.0 if given else SHARE_OF_TOLERANCE * tol
    for k in range(n_topics):
        cut[k] = max(min(few * np.float64(base[k]) ** 2, fewest), ignored)
    return cut


@shared_kernel(
    "values index pointer rows vector vector float float float int int float vector "
    "out2 out_values out_rows out_index out_index out2 out2 int"
)
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
    gamma,
    ratios,
    shares,
    topics_of,
    n_topics_of,
    theta,
    sums,
    n_documents,
    first,
    last,
):
    """Mean-field local step of the blocks ``first``, …, ``last`` − 1 of ``n_documents`` each.

    The updates φ_wk ∝ exp{x (E log θ_k + E log β_kw)} and γ = b + y (α − b) + s Σ_w c_w φ_w
    alternate until γ changes by less than ``tol`` on average, or ``n_iter`` times.

    ``gamma`` (n_documents, n_topics) receives the result; if ``given``, it also holds the start.
    :func:`word_statistics` needs e_k = exp{x E log θ_k} of the final γ, which ``shares``
    (n_documents, width) receives, and c_w / n_w, which ``ratios`` receives for each of the
    ``counts``, unless it has no entries. If a document has few topics, ``n_topics_of`` is their
    number m and not 0, row d of ``shares`` begins with their e_k, and entry d · width of
    ``topics_of`` begins the list of these topics.

    Each block has a row of ``theta`` (n_topics + 2 entries), which receives Σ w E log θ,
    Σ w and Σ w ψ(Σ_k γ_k), and a row of ``sums``, which receives Σ w times each of these: the log
    of the normaliser of φ, Σ_k n_k E log θ_k, E log p(θ) without its constant, and H[q(θ)]. What
    belongs into a row without entries is not computed.
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    step = size(factor)
    few, fewest = FEW_SINGLE if table.itemsize == 4 else FEW
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
    final, assigned, scratch, expected_log = scratch_arrays(n_topics)
    for k in range(n_topics):
        base[k] = tempered_prior(alpha[k], prior)
    cut = _cuts(base, tol, few, fewest, given, n_topics)
    of_prior = _sums_of_prior(alpha, base)
    for block in range(first, last):
        theta_of_block = theta[block]
        sums_of_block = sums[block]
        few_weight = 0.0
        few_normalizer = 0.0
        for d in range(block * n_documents, min((block + 1) * n_documents, indptr.shape[0] - 1)):
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
            # Every iteration prefetches a part of the topics of the next document's words.
            topics_from = begin + n
            next_end = indptr[min(d + 2, indptr.shape[0] - 1)]
            topics_part = (next_end - topics_from) // max(n_iter, 1) + 1
            while True:
                # The iterations begin with all topics. They go on with only those that have tokens
                # as soon as this repays the copy of their columns.
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
                    change = _iterate(
                        rows, copied, table, starts, n_words, c, base, step, local, tiny, current,
                        e, acc, norms,
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
                        small = _chosen_columns(
                            rows, nothing, 0, n, n_words, topics, m, narrow, memory
                        )
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
                            small, True, table, starts, n_words, c, part_base[:narrow], step,
                            local, tiny, part[:narrow], e[:narrow], acc[:narrow], norms,
                        )  # fmt: skip
                        converged = change < tol * n_topics
                    if converged and left > 0:
                        # Topics that were left out may have tokens by now.
                        for k in range(n_topics):
                            current[k] = base[k]
                        for j in range(m):
                            current[topics[j]] = part[j]
                        _assign(
                            rows, copied, table, starts, n_words, c, local, tiny, current, e, acc,
                            norms,
                        )  # fmt: skip
                        if _any_other(acc, e, cut, topics, m, n_topics):
                            continue
                    # Compute φ of the final γ.
                    _assign(
                        small, True, table, starts, n_words, c, local, tiny, part[:narrow],
                        e[:narrow], acc[:narrow], norms,
                    )  # fmt: skip
                else:
                    _assign(
                        rows, copied, table, starts, n_words, c, local, tiny, current, e, acc, norms
                    )
                break
            weight = weights[d] if weights.shape[0] > 0 else 1.0
            if m < n_topics:
                for k in range(n_topics):
                    gamma[d, k] = base[k]
                for j in range(m):
                    final[j] = part[j]
                    gamma[d, topics[j]] = final[j]
                    assigned[j] = acc[j] * e[j]
                normalizer = _few_topics_sums(
                    alpha, of_prior, final, assigned, topics, m, weight, theta_of_block,
                    sums_of_block,
                )  # fmt: skip
                few_weight += weight
                few_normalizer += weight * normalizer
            else:
                for k in range(n_topics):
                    final[k] = current[k]
                    gamma[d, k] = final[k]
                    assigned[k] = acc[k] * e[k]
                normalizer = document_sums(
                    alpha, final, assigned, weight, scratch, expected_log, theta_of_block,
                    sums_of_block,
                )  # fmt: skip
            if ratios.shape[0] > 0:
                for i in range(n):
                    ratios[begin + i] = c[i] / norms[i]
                listed = m < n_topics and _COST_OF_LISTED * m <= width
                n_topics_of[d] = m if listed else 0
                if listed:
                    for j in range(m):
                        topics_of[d * width + j] = topics[j]
                        shares[d, j] = e[j]
                elif m < n_topics:
                    for k in range(width):
                        shares[d, k] = size(0)
                    for j in range(m):
                        shares[d, topics[j]] = e[j]
                else:
                    for k in range(width):
                        shares[d, k] = e[k]
            if sums_of_block.shape[0] > 0:
                log_norm = -local * normalizer * tokens
                for i in range(n_words):
                    logs[i] = log(np.float64(norms[i]))
                for i in range(n):
                    log_norm += np.float64(c[i]) * (logs[i] + local * largest[indices[begin + i]])
                sums_of_block[0] += weight * log_norm
        if theta_of_block.shape[0] > 0:
            for k in range(n_topics):
                theta_of_block[k] += few_weight * of_prior[1, k] - few_normalizer
            theta_of_block[n_topics] += few_weight
            theta_of_block[n_topics + 1] += few_normalizer


@shared_kernel(
    "rows vector float float pointer words values rows index index vector int out2 int out1"
)
def word_statistics(
    table,
    largest,
    local,
    factor,
    begins,
    occurrences,
    ratios,
    shares,
    topics_of,
    n_topics_of,
    weights,
    add,
    out,
    n_words,
    energies,
    first,
    last,
):
    """Compute the statistics S of words from what :func:`mean_field` has found for documents.

    They are s β̃_kw Σ_d w_d (c_dw / n_dw) e_dk, where β̃ is the table and s the ``factor``. The work
    is done word by word, so that a sum is in the cache while it grows, for the blocks ``first``, …,
    ``last`` − 1 of ``n_words`` words each. :func:`ragged.by_column` says where a word occurs.

    ``out`` (n_rows, width) receives the statistics, or they are added to it if ``add``. To each of
    the ``energies``, the sum of S E log β over a block is added, which belongs to the statistics
    without the factor; it is not computed if there are no energies.
    """
    n_rows, width = out.shape
    size = table.dtype.type
    flat = shares.reshape(shares.size)
    total = np.empty(width)
    energy = np.empty(width)
    for block in range(first, last):
        for k in range(width):
            energy[k] = 0.0
        for w in range(block * n_words, min((block + 1) * n_words, n_rows)):
            if begins[w] == begins[w + 1]:
                if not add:
                    for k in range(width):
                        out[w, k] = 0.0
                continue
            for k in range(width):
                total[k] = 0.0
            for j in range(begins[w], begins[w + 1]):
                d = np.int64(occurrences[2 * j])
                ratio = ratios[np.int64(occurrences[2 * j + 1])]
                if weights.shape[0] > 0:
                    ratio *= size(weights[d])
                m = n_topics_of[d]
                if m == 0:
                    for k in range(width):
                        total[k] += np.float64(ratio * shares[d, k])
                else:
                    for i in range(d * width, d * width + m):
                        total[topics_of[i]] += np.float64(ratio * flat[i])
            if energies.shape[0] > 0:
                for k in range(width):
                    weight = max(np.float64(table[w, k]), SMALLEST_LOG)
                    total[k] *= weight
                    energy[k] += total[k] * (log(weight) / local + largest[w])
            else:
                for k in range(width):
                    total[k] *= max(np.float64(table[w, k]), SMALLEST_LOG)
            if add:
                for k in range(width):
                    out[w, k] += factor * total[k]
            else:
                for k in range(width):
                    out[w, k] = factor * total[k]
        if energies.shape[0] > 0:
            energies[block] += energy.sum()
