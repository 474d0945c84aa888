"""Mean-field local steps of topic models, document by document, and the divergence of topics.

Topics come as a table with one row per word, which :mod:`counts` describes. Sums over documents are
float64, whatever the dtype of the data and of the table is.
"""

from __future__ import annotations

import numpy as np

from ._arrays import matrix, vector
from ._compile import called, copied, helper, kernel, shared_kernel, with_names
from ._few_topics import FEW, FEW_SINGLE, SHARE_OF_TOLERANCE, repays
from ._math import digamma, exp, exp_digamma, log, log_gamma
from .counts import (
    FAR_FROM_ZERO,
    FAR_FROM_ZERO_SINGLE,
    SMALLEST_LOG,
    TINY,
    TINY_SINGLE,
    all_vanish,
    filled,
    lifted_powers,
    longest_row,
    open_row,
    padded,
)
from .document_steps import tempered_prior
from .simd.emitter import LANES, ROWS
from .simd.products import (
    beginning_as_rows,
    fetch_rows,
    multiplicative_step,
    ratio_update,
    ratio_update_of_rows,
)

# The rows of a document's words are copied next to each other if they have at most this many
# topics. Longer ones are read where they are, and prefetched by the processor alone.
COPIED_WIDTH = 128
# Whether a kernel copies rows.
_COPIED = True
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
def _topic_weights(gamma, n, local, out):
    """exp{x ψ(γ)} of n topics; the normaliser ψ(Σγ) is left out, because it cancels in φ."""
    if local == 1.0:
        for k in range(n):
            out[k] = exp_digamma(gamma[k])
    else:
        for k in range(n):
            out[k] = exp(local * digamma(np.float64(gamma[k])))


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


@copied
def _copy_columns(rows, indices, begin, n, chosen, n_chosen, out):
    """Copy the chosen columns of the rows of a document's n words, and pad them with zeros.

    The rows are those of ``indices[begin : begin + n]``, or the first n if there are no indices.
    """
    zero = out.dtype.type(0)
    for i in range(n):
        row = rows[indices[begin + i]] if indices.shape[0] > 0 else rows[i]
        for j in range(n_chosen):
            out[i, j] = row[chosen[j]]
        for j in range(n_chosen, out.shape[1]):
            out[i, j] = zero
    for i in range(n, out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = out.dtype.type(1)


@called
def _log_functions(x, n, both, digammas, log_gammas):
    """ψ of the first n entries of x, and log Γ if both are wanted.

    The loops cover the padding too, because entries that are left over from whole vectors would be
    processed one by one, which is slow.
    """
    for k in range(padded(n, LANES)):
        digammas[k] = digamma(x[k])
    if both:
        for k in range(padded(n, LANES)):
            log_gammas[k] = log_gamma(x[k])


@helper
def _document_sums(
    alpha, rest, gamma, tokens_of_topics, topics, m, weight, digammas, log_gammas, theta, sums
):
    """Add Σ n_k E log θ_k, E log p(θ) without its constant, and H[q(θ)]; returns ψ(Σ γ).

    The document has the m ``topics``, whose γ are given. If these are not all, ``rest`` is what
    :func:`_sums_of_prior` returns, with the terms of the others, and what is added to ``theta`` is
    E log θ without ψ of the prior and without the normaliser. If they are all, ``rest`` is zero.
    What belongs into an array without entries is not computed.
    """
    if theta.shape[0] == 0 and sums.shape[0] == 0:
        return 0.0
    n_topics = alpha.shape[0]
    concentration = rest[3, 0]
    for j in range(m):
        concentration += gamma[j] - rest[0, topics[j]]
    gamma[m] = concentration
    _log_functions(gamma, m + 1, sums.shape[0] > 0, digammas, log_gammas)
    normalizer = digammas[m]
    of_rest = normalizer if m < n_topics else 0.0
    of_topics = normalizer - of_rest
    energy = 0.0
    prior = rest[3, 1] - of_rest * rest[3, 2]
    entropy = rest[3, 3] + of_rest * (concentration - n_topics) - log_gammas[m]
    for j in range(m):
        k = topics[j]
        energy += tokens_of_topics[j] * (digammas[j] - normalizer)
        prior += (alpha[k] - 1.0) * (digammas[j] - rest[1, k] - of_topics)
        entropy += log_gammas[j] - (gamma[j] - 1.0) * (digammas[j] - of_topics) - rest[2, k]
    if theta.shape[0] > 0:
        for j in range(m):
            theta[topics[j]] += weight * (digammas[j] - rest[1, topics[j]] - of_topics)
    if sums.shape[0] > 0:
        sums[1] += weight * energy
        sums[2] += weight * prior
        sums[3] += weight * entropy
    return normalizer


@helper
def _zeros(n_rows, n_columns):
    found = matrix(n_rows, n_columns, np.float64)
    for i in range(n_rows):
        for j in range(n_columns):
            found[i, j] = 0.0
    return found


@helper
def _sums_of_prior(alpha, base, gamma, digammas, log_gammas):
    """The terms of topics that a document does not have, for which γ is ``base``.

    The first three rows are γ, ψ(γ), and log Γ(γ) − (γ − 1) ψ(γ). The last one begins with Σ γ,
    Σ (α − 1) ψ(γ), Σ (α − 1) and the sum of the third row.
    """
    n = alpha.shape[0]
    found = _zeros(4, max(n, 4))
    for k in range(n):
        gamma[k] = base[k]
    _log_functions(gamma, n, n > 0, digammas, log_gammas)
    for k in range(n):
        found[0, k] = gamma[k]
        found[1, k] = digammas[k]
        found[2, k] = log_gammas[k] - (gamma[k] - 1.0) * digammas[k]
        found[3, 0] += gamma[k]
        found[3, 1] += (alpha[k] - 1.0) * digammas[k]
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
def _cuts(alpha, base, tol, few, fewest, given):
    """The numbers of tokens below which topics leave a document."""
    n_topics = alpha.shape[0]
    cut = vector(n_topics, alpha.dtype)
    ignored = 0.0 if given else SHARE_OF_TOLERANCE * tol
    for k in range(n_topics):
        prior = np.float64(base[k])
        cut[k] = max(min(few * (prior * prior), fewest), ignored)
    return cut


def _mean_field(
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

    A document of few tokens and many topics can have such small γ that all e_k underflow, as its
    normalisers say. They are computed without their largest factor from then on, which cancels in φ
    and is added to the log normalisers.
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    far = size(FAR_FROM_ZERO_SINGLE if table.itemsize == 4 else FAR_FROM_ZERO)
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    step = size(factor)
    few, fewest = FEW_SINGLE if table.itemsize == 4 else FEW
    longest = padded(longest_row(indptr), ROWS)
    rows = matrix(longest if _COPIED else 0, width, table.dtype)
    starts = vector(0 if _COPIED else longest, np.int64)
    memory = vector(longest * (width // 2), table.dtype)
    c = vector(longest, table.dtype)
    norms = vector(longest, table.dtype)
    logs = vector(longest, alpha.dtype)
    e = filled(width, 0.0, table.dtype)
    acc = filled(width, 0.0, table.dtype)
    base = filled(width, 1.0, table.dtype)
    now_base = filled(width, 1.0, table.dtype)
    now = filled(width, 1.0, table.dtype)
    topics = vector(width, np.uint32)
    # One entry more is for the sum of the γ of a document.
    n_numbers = padded(n_topics + 1, LANES)
    final = filled(n_numbers, 1.0, alpha.dtype)
    assigned = vector(n_numbers, alpha.dtype)
    digammas = vector(n_numbers, alpha.dtype)
    log_gammas = vector(n_numbers, alpha.dtype)
    for k in range(n_topics):
        base[k] = tempered_prior(alpha[k], prior)
    cut = _cuts(alpha, base, tol, few, fewest, given)
    of_prior = _sums_of_prior(alpha, base, final, digammas, log_gammas)
    nothing = _zeros(4, of_prior.shape[1])
    for block in range(first, last):
        theta_of_block = theta[block]
        sums_of_block = sums[block]
        few_weight = 0.0
        few_normalizer = 0.0
        for d in range(block * n_documents, min((block + 1) * n_documents, indptr.shape[0] - 1)):
            begin = indptr[d]
            n = indptr[d + 1] - begin
            n_words = padded(n, ROWS)
            if _COPIED:
                tokens = open_row(counts, indices, begin, n, table, rows, c)
            else:
                tokens = _open_document(counts, indices, begin, n, width, starts, c)
            for k in range(n_topics):
                spread = np.float64(base[k]) + factor * tokens / n_topics
                now[k] = gamma[d, k] if given and n > 0 else spread
                now_base[k] = base[k]
            # Every iteration prefetches a part of the topics of the next document's words.
            topics_from = begin + n
            next_end = indptr[min(d + 2, indptr.shape[0] - 1)]
            topics_part = (next_end - topics_from) // max(n_iter, 1) + 1
            # The iterations begin with all topics. They go on with only the m that have tokens as
            # soon as this repays the copy of their columns, unless others have tokens in the end.
            # The first entries of ``now``, ``e`` and ``acc`` then belong to these topics.
            left = n_iter
            iteration = 0
            m, n_columns, narrow = n_topics, width, width
            now_rows = rows
            leaves = converged = is_check = all_stay = is_lifted = False
            top = 0.0
            while True:
                if leaves:
                    leaves = False
                    n_columns = narrow
                    now_rows = beginning_as_rows(memory, n_words, narrow)
                    for j in range(narrow):
                        now[j] = now[topics[j]] if j < m else size(1)
                        now_base[j] = base[topics[j]] if j < m else size(1)
                # Compute φ of the current γ, that is its normalisers: the expected tokens of each
                # topic are then ``acc * e``.
                n_now = n_topics if is_check else m
                if is_lifted:
                    top = lifted_powers(now, n_columns, n_now, local, e)
                else:
                    _topic_weights(now, n_columns, local, e)
                for k in range(n_columns):
                    acc[k] = size(0)
                if _COPIED or n_columns < width:
                    ratio_update(e, c, tiny, now_rows, n_words, norms, acc)
                else:
                    ratio_update_of_rows(e, c, tiny, table, starts, n_words, norms, acc)
                if not is_lifted and n > 0 and norms[0] < far:
                    is_lifted = all_vanish(now, n_now, local, far)
                    if is_lifted:
                        continue
                if is_check:
                    is_check = False
                    if not _any_other(acc, e, cut, topics, m, n_topics):
                        leaves = True
                        continue
                    m = n_topics
                    all_stay = True
                    converged = False
                if converged or left == 0:
                    break
                left -= 1
                if _COPIED and m == n_topics:
                    topics_to = min(topics_from + topics_part, next_end)
                    fetch_rows(table, indices, topics_from, topics_to)
                    topics_from = topics_to
                change = np.float64(multiplicative_step(now_base, step, e, acc, now, n_columns))
                converged = change < tol * n_topics
                iteration += 1
                if m < n_topics:
                    if converged and left > 0:
                        # Topics that were left out may have tokens by now.
                        is_check = True
                        n_columns = width
                        now_rows = rows
                        j = m
                        for k in range(n_topics - 1, -1, -1):
                            now_base[k] = base[k]
                            if j > 0 and topics[j - 1] == k:
                                j -= 1
                                now[k] = now[j]
                            else:
                                now[k] = base[k]
                elif iteration > 2 and not (converged or all_stay):
                    kept = _kept(acc, cut, n_topics, topics)
                    narrow = padded(kept, LANES)
                    if kept > 0 and _repays(left, width, narrow):
                        leaves = True
                        m = kept
                        few_rows = beginning_as_rows(memory, n_words, narrow)
                        if _COPIED:
                            _copy_columns(rows, indices[:0], 0, n, topics, m, few_rows)
                        else:
                            _copy_columns(table, indices, begin, n, topics, m, few_rows)
            weight = weights[d] if weights.shape[0] > 0 else 1.0
            rest = of_prior
            if m == n_topics:
                rest = nothing
                for k in range(n_topics):
                    topics[k] = k
            for k in range(n_topics):
                gamma[d, k] = base[k]
            for j in range(m):
                final[j] = now[j]
                gamma[d, topics[j]] = final[j]
                assigned[j] = acc[j] * e[j]
            normalizer = _document_sums(
                alpha, rest, final, assigned, topics, m, weight, digammas, log_gammas,
                theta_of_block, sums_of_block,
            )  # fmt: skip
            if m < n_topics:
                few_weight += weight
                few_normalizer += weight * normalizer
            elif theta_of_block.shape[0] > 0:
                theta_of_block[n_topics] += weight
                theta_of_block[n_topics + 1] += weight * normalizer
            if ratios.shape[0] > 0:
                for i in range(n):
                    ratios[begin + i] = c[i] / norms[i]
                listed = m < n_topics and _COST_OF_LISTED * m <= width
                n_topics_of[d] = m if listed else 0
                if listed:
                    for j in range(m):
                        topics_of[d * width + j] = topics[j]
                        shares[d, j] = e[j]
                else:
                    for k in range(width):
                        shares[d, k] = size(0)
                    for j in range(m):
                        shares[d, topics[j]] = e[j]
            if sums_of_block.shape[0] > 0:
                log_norm = (top - local * normalizer) * tokens
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


_MEAN_FIELD = (
    "values index pointer rows vector vector float float float int int float vector "
    "out2 out_values out_rows out_index out_index out2 out2 int"
)
mean_field = shared_kernel(_MEAN_FIELD)(_mean_field)
mean_field_of_wide_table = shared_kernel(_MEAN_FIELD)(
    with_names(_mean_field, "of_wide_table", _COPIED=False)
)


def mean_field_of(width):
    """Return the kernel for tables of so many columns."""
    return mean_field if width <= COPIED_WIDTH else mean_field_of_wide_table


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
    """Compute the statistics S of words from the results of :func:`mean_field` for documents.

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
            of_block = 0.0
            for k in range(width):
                of_block += energy[k]
            energies[block] += of_block
