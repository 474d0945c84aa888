"""Collapsed Gibbs sampling of the topics of tokens."""

from __future__ import annotations

import numpy as np

from ._compile import borrower, kernel
from ._math import digamma
from ._random import stream_of, uniform
from .counts import TINY, TINY_SINGLE
from .document_steps import token_mass, tokens_of
from .simd.emitter import LANES
from .simd.products import drawn_entry, fetch_rows, replace_entry

# Tables have a multiple of so many columns.
COLUMNS = LANES
# So many tokens are better sampled in pairs of documents: what the other one moves in the meantime
# hardly changes the sizes of topics then.
TOKENS_OF_PAIRS = 10_000
# The row of the token that comes so many tokens later is prefetched.
_ROWS_AHEAD = 4


@borrower
def _draw_again(
    topics, t, table, w, mass, moved, u, fresh, alpha, tiny, totals, held, ratios, s, order, sums
):
    """Draw the topic of token t, which is in none of the counts meanwhile.

    Of its document, row s of ``held`` is n_dk and that of ``ratios`` is (n_dk + α_k) / Σ_w λ_kw;
    row w of the table is λ of its word. ``mass`` is its part of n_dk, and ``moved`` its part of λ.
    """
    size = table.dtype.type
    if fresh != 0:
        k = int(u * alpha.shape[0])
    else:
        k = int(topics[t])
        held[s, k] = max(held[s, k] - mass, 0.0)
        totals[k] = max(totals[k] - moved, tiny)
        replace_entry(table, w, k, max(table[w, k] - size(moved), size(tiny)))
        replace_entry(ratios, s, k, size((held[s, k] + alpha[k]) / totals[k]))
    drawn = drawn_entry(ratios, s, table, w, size(u), order, sums)
    # Rounding errors can lead to a topic that has no weight, or beyond the last topic.
    if drawn >= 0 and ratios[s, drawn] * table[w, drawn] > size(0):
        k = drawn
    topics[t] = k
    held[s, k] += mass
    totals[k] += moved
    replace_entry(table, w, k, table[w, k] + size(moved))
    replace_entry(ratios, s, k, size((1.0 if fresh != 0 else held[s, k] + alpha[k]) / totals[k]))


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
    "values index pointer pointer vector int int int int int int vector out_rows out1 out_index "
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
    in_pairs,
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
    in_pairs : bool
        Whether two documents are sampled at a time, a token of one and a token of the other in
        turns. The processor computes both at once, where it would wait for the last draw otherwise.
        A document then sees how Σ_w λ_kw has changed by the other one whenever a token of its own
        joins or leaves topic k.
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
    tiny = TINY_SINGLE if table.itemsize == 4 else TINY
    most = 0
    for d in range(first, last):
        most = max(most, starts[d + 1] - starts[d])
    # Two places for documents, with the tokens that are in the block and how many are left.
    tokens = np.empty((2, most), np.int64)
    words = np.empty(2 * most, np.int32)
    masses = np.empty((2, most), alpha.dtype)
    n_tokens = np.zeros(2, np.int64)
    left = np.zeros(2, np.int64)
    documents = np.full(2, -1)
    streams = np.empty(2, np.uint64)
    shares = np.empty(2, alpha.dtype)
    sizes = np.empty(2, alpha.dtype)
    held = np.empty((2, n_topics), alpha.dtype)
    ratios = np.zeros((2, width), table.dtype)
    sums = np.empty(width, table.dtype)
    others = np.empty(width, table.dtype)
    order = np.empty(width, np.int64)
    for i in range(width):
        order[i] = i % (width // LANES) * LANES + i // (width // LANES)
    of_prior = np.empty(n_topics, alpha.dtype)
    concentration = 0.0
    for k in range(n_topics):
        of_prior[k] = digamma(alpha[k])
        concentration += alpha[k]
    of_all = 0.0
    normalizers = 0.0
    following = first
    while True:
        for s in range(2 if in_pairs != 0 else 1):
            while left[s] == 0:
                d = documents[s]
                if d >= 0:
                    weight = shares[s]
                    for m in range(n_tokens[s]):
                        out[words[s * most + m], topics[tokens[s, m]]] += weight * masses[s, m]
                    if complete != 0:
                        for k in range(n_topics):
                            if held[s, k] > 0.0:
                                gain = digamma(alpha[k] + held[s, k]) - of_prior[k]
                                theta[k] += weight * gain
                        of_all += weight
                        normalizers += weight * digamma(concentration + sizes[s])
                d = following if following < last else -1
                documents[s] = d
                if d < 0:
                    break
                following += 1
                streams[s] = stream_of(seed, d)
                shares[s] = weights[d] if weights.shape[0] > 0 else 1.0
                sizes[s] = 0.0
                for k in range(n_topics):
                    held[s, k] = 0.0
                t = starts[d]
                n = 0
                for i in range(indptr[d], indptr[d + 1]):
                    sizes[s] += np.float64(counts[i])
                    inside = first_row <= indices[i] < last_row
                    for j in range(tokens_of(counts[i])):
                        mass = token_mass(counts[i], j)
                        if topics[t] >= 0:
                            held[s, topics[t]] += mass
                        if inside:
                            tokens[s, n] = t
                            words[s * most + n] = indices[i]
                            masses[s, n] = mass
                            n += 1
                        t += 1
                n_tokens[s] = n
                left[s] = n
                for k in range(n_topics):
                    ratios[s, k] = (1.0 if fresh != 0 else held[s, k] + alpha[k]) / totals[k]
        one = 0 if left[0] > 0 else 1
        both = left[1 - one] > 0
        n = min(left[0], left[1]) if both else left[one]
        if n == 0:
            break
        begun = n_tokens[one] - left[one]
        begun_other = n_tokens[1] - left[1]
        for m in range(begun, begun + n):
            ahead = one * most + min(m + _ROWS_AHEAD, n_tokens[one] - 1)
            fetch_rows(table, words, ahead, ahead + 1)
            t, w, mass = tokens[one, m], words[one * most + m], masses[one, m]
            u = uniform(streams[one], np.uint64(t - starts[documents[one]]))
            moved = shares[one] * mass
            _draw_again(
                topics, t, table, w, mass, moved, u, fresh, alpha, tiny,
                totals, held, ratios, one, order, sums,
            )  # fmt: skip
            if both:
                m2 = m - begun + begun_other
                ahead = most + min(m2 + _ROWS_AHEAD, n_tokens[1] - 1)
                fetch_rows(table, words, ahead, ahead + 1)
                t, w, mass = tokens[1, m2], words[most + m2], masses[1, m2]
                u = uniform(streams[1], np.uint64(t - starts[documents[1]]))
                moved = shares[1] * mass
                _draw_again(
                    topics, t, table, w, mass, moved, u, fresh, alpha, tiny,
                    totals, held, ratios, 1, order, others,
                )  # fmt: skip
        left[one] -= n
        if both:
            left[1] -= n
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
