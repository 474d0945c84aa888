"""Collapsed Gibbs sampling of the topics of tokens."""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import digamma
from ._random import stream_of, uniform
from .counts import TINY, TINY_SINGLE, filled
from .document_steps import token_mass, tokens_of
from .simd.emitter import LANES, QUARTERS
from .simd.products import fetch_rows, lane_products

# Tables have a multiple of so many columns.
COLUMNS = LANES * QUARTERS
# The row of the word that comes so many words later is prefetched.
_ROWS_AHEAD = 4


@helper
def _drawn_topic(weights, row, sums, u, n_topics, otherwise):
    """Draw a topic in proportion to ``weights * row``, by a uniform number.

    ``sums`` receives :func:`lane_products`. If no product is positive, the result is ``otherwise``.
    """
    size = row.dtype.type
    lanes = 32 // row.itemsize
    quarter = row.shape[0] // QUARTERS
    lane_products(weights, row, sums)
    total = size(0)
    for q in range(QUARTERS):
        total += sums[QUARTERS * lanes + q]
    if not total > size(0):
        return otherwise
    left = size(u) * total
    q = 0
    while q < QUARTERS - 1 and left >= sums[QUARTERS * lanes + q]:
        left -= sums[QUARTERS * lanes + q]
        q += 1
    lane = 0
    while lane < lanes - 1 and left >= sums[q * lanes + lane]:
        left -= sums[q * lanes + lane]
        lane += 1
    k = q * quarter + lane
    last = k + quarter - lanes
    while k < last:
        left -= weights[k] * row[k]
        if left < size(0):
            break
        k += lanes
    # Rounding errors can lead to a topic that has no weight, or beyond the last topic.
    for _ in range(row.shape[0]):
        if weights[k] * row[k] > size(0):
            return k
        k = k - 1 if k > 0 else n_topics - 1
    return otherwise


@kernel("values index pointer out_int out1")
def count_tokens(counts, indices, indptr, starts, of_rows):
    """Count the tokens that are drawn.

    ``starts`` (n_documents + 1,) receives where the tokens of each document begin, and their
    number. Entry i + 1 of ``of_rows`` (n_rows + 1,) receives the sum of the counts of row i.
    """
    t = 0
    for d in range(indptr.shape[0] - 1):
        starts[d] = t
        for i in range(indptr[d], indptr[d + 1]):
            t += tokens_of(counts[i])
            of_rows[indices[i] + 1] += np.float64(counts[i])
    starts[indptr.shape[0] - 1] = t


@kernel(
    "values index pointer pointer vector int int int int int vector out_rows out1 out_index "
    "int int out2 out1"
)
def sample_topics(
    counts,
    indices,
    indptr,
    starts,
    weights,
    first,
    last,
    first_row,
    last_row,
    complete,
    alpha,
    table,
    totals,
    topics,
    fresh,
    seed,
    out,
    theta,
):
    """Draw the topics of the tokens of a block, given those of all other tokens.

    p(z = k) ∝ (n_dk + α_k) λ_kw / Σ_w λ_kw, where n_dk is the number of the document's other tokens
    of topic k, and λ contains all other tokens. Documents follow one another, and each draw changes
    the counts at once.

    A block has some of the documents, and of their words those of some rows. Blocks that share
    neither can be sampled at once.

    Parameters
    ----------
    counts, indices, indptr
        All documents; ``indices`` are rows of the table.
    starts : (n_documents + 1,)
        Where the tokens of each document begin.
    weights : (n_documents,), or empty
    first, last, first_row, last_row : int
        The block: the first document, the one after the last, and the same of the rows.
    complete : bool
        Whether all other words of these documents have been sampled before.
    alpha : (n_topics,)
    table : (n_rows, width)
        λ of each word. It is changed, as the tokens change their topics.
    totals : (n_topics,)
        Σ_w λ_kw, which is changed too.
    topics : (n_tokens,)
        The topic of each token, before and after; negative if it has none yet.
    fresh : bool
        Whether the tokens have no topics yet, and are not in λ. They are then assigned as if each
        document had equally many tokens of each topic.
    seed : int
        Each document has random numbers of its own.
    out : (n_rows, width)
        Receives the weight of the tokens of each word and topic.
    theta : (n_topics + 2,)
        Receives Σ w (ψ(α_k + n_dk) − ψ(Σ α + N_d)), Σ w and Σ w ψ(Σ α + N_d), if the
        documents are complete.
    """
    n_topics = alpha.shape[0]
    width = table.shape[1]
    size = table.dtype.type
    tiny = size(TINY_SINGLE if table.itemsize == 4 else TINY)
    held = filled(width, 0.0, alpha.dtype)
    ratios = filled(width, 0.0, table.dtype)
    sums = np.empty(QUARTERS * (32 // table.itemsize + 1), table.dtype)
    of_prior = np.empty(n_topics, alpha.dtype)
    concentration = 0.0
    for k in range(n_topics):
        of_prior[k] = digamma(alpha[k])
        concentration += alpha[k]
    of_all = 0.0
    normalizers = 0.0
    for d in range(first, last):
        begin = indptr[d]
        end = indptr[d + 1]
        weight = weights[d] if weights.shape[0] > 0 else 1.0
        stream = stream_of(seed, d)
        for k in range(n_topics):
            held[k] = 0.0
        n_tokens = 0.0
        t = starts[d]
        for i in range(begin, end):
            n_tokens += np.float64(counts[i])
            for j in range(tokens_of(counts[i])):
                if topics[t] >= 0:
                    held[topics[t]] += token_mass(counts[i], j)
                t += 1
        for k in range(n_topics):
            ratios[k] = (1.0 if fresh != 0 else held[k] + alpha[k]) / totals[k]
        t = starts[d]
        for i in range(begin, end):
            if not first_row <= indices[i] < last_row:
                t += tokens_of(counts[i])
                continue
            row = table[indices[i]]
            ahead = min(i + _ROWS_AHEAD, indptr[-1] - 1)
            if first_row <= indices[ahead] < last_row:
                fetch_rows(table, indices, ahead, ahead + 1)
            for j in range(tokens_of(counts[i])):
                mass = token_mass(counts[i], j)
                moved = weight * mass
                u = uniform(stream, np.uint64(t - starts[d]))
                if fresh != 0:
                    k = int(u * n_topics)
                else:
                    k = topics[t]
                    held[k] = max(held[k] - mass, 0.0)
                    totals[k] = max(totals[k] - moved, np.float64(tiny))
                    row[k] = max(row[k] - size(moved), tiny)
                    ratios[k] = (held[k] + alpha[k]) / totals[k]
                k = _drawn_topic(ratios, row, sums, u, n_topics, k)
                topics[t] = k
                held[k] += mass
                totals[k] += moved
                row[k] += size(moved)
                ratios[k] = (1.0 if fresh != 0 else held[k] + alpha[k]) / totals[k]
                t += 1
        t = starts[d]
        for i in range(begin, end):
            if not first_row <= indices[i] < last_row:
                t += tokens_of(counts[i])
                continue
            for j in range(tokens_of(counts[i])):
                out[indices[i], topics[t]] += weight * token_mass(counts[i], j)
                t += 1
        if complete == 0:
            continue
        for k in range(n_topics):
            if held[k] > 0.0:
                theta[k] += weight * (digamma(alpha[k] + held[k]) - of_prior[k])
        of_all += weight
        normalizers += weight * digamma(concentration + n_tokens)
    for k in range(n_topics):
        theta[k] += of_all * of_prior[k] - normalizers
    theta[n_topics] += of_all
    theta[n_topics + 1] += normalizers


@kernel("out_rows rows matrix matrix float", dtypes=("float64",))
def move_traces(out, mean, prior_of_mean, prior, smallest):
    """Give the counts of a word that are below ``smallest`` to its other topics, in proportion.

    ``mean`` is a mean of λ with one row per word, and ``prior_of_mean`` is the same mean of η, with
    as many columns or one; the counts are their difference. A word without a larger count keeps
    its counts. ``out`` is the sum of ``prior`` and the counts.
    """
    last = prior.shape[1] - 1
    for w in range(mean.shape[0]):
        total = 0.0
        kept = 0.0
        for k in range(mean.shape[1]):
            count = mean[w, k] - prior_of_mean[w, min(k, last)]
            total += max(count, 0.0)
            kept += count if count >= smallest else 0.0
        factor = total / kept if kept > 0.0 else 1.0
        least = smallest if kept > 0.0 else 0.0
        for k in range(mean.shape[1]):
            count = mean[w, k] - prior_of_mean[w, min(k, last)]
            out[w, k] = prior[w, min(k, last)] + (factor * count if count >= least else 0.0)
