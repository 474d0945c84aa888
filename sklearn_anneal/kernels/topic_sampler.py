"""Collapsed Gibbs sampling of the topics of tokens."""

from __future__ import annotations

import numpy as np

from ._compile import borrower, kernel
from ._math import digamma
from ._random import stream_of, uniform
from .counts import TINY, TINY_SINGLE
from .document_steps import MOST_TOKENS, token_mass, tokens_of
from .simd.emitter import LANES
from .simd.products import (
    add_up,
    drawn_entry,
    entry_beyond,
    fetch_entry,
    fetch_rows,
    multiply_rows,
    replace_entry,
)

# Tables have a multiple of so many columns.
COLUMNS = LANES
# So many tokens are better sampled in pairs of documents: what the other one moves in the meantime
# hardly changes the sizes of topics then.
TOKENS_OF_PAIRS = 10_000
# The row of the word that comes so many words later is prefetched.
_ROWS_AHEAD = 4
# Tokens of a document are counted by so many counters of each topic in turn, because one would wait
# for what it has stored just before.
_COUNTERS = 4


@borrower
def _draw_again(
    topics, t, table, w, mass, moved, u, fresh, alpha, tiny, totals, held, ratios, s, order, sums,
    out,
):  # fmt: skip
    """Draw the topic of token t, which is in none of the counts meanwhile.

    Of its document, row s of ``held`` is n_dk and that of ``ratios`` is (n_dk + α_k) / Σ_w λ_kw;
    row w of the table is λ of its word. ``mass`` is its part of n_dk, and ``moved`` its part of λ,
    which is added to ``out`` too.
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
    out[w, k] += moved
    held[s, k] += mass
    totals[k] += moved
    replace_entry(table, w, k, table[w, k] + size(moved))
    replace_entry(ratios, s, k, size((1.0 if fresh != 0 else held[s, k] + alpha[k]) / totals[k]))


@borrower
def _draw_together(
    topics, t, n, count, share, table, w, stream, number, size_of_stream, alpha, tiny, totals, held,
    ratios, s, order, weights, sums, before, drawn, own, out,
):  # fmt: skip
    """Draw the topics of the n tokens of a word in a document, from token t on.

    Each token gets a proposal from the distribution q of its topic given all tokens but these n,
    which is the same for all of them. A proposal k is accepted in place of topic l with the
    probability min(1, p_k q_l / (p_l q_k)), where p is the distribution given all other tokens, as
    they are meanwhile (Metropolis-Hastings). The tokens thus have the same stationary distribution
    as by :func:`_draw_again`, and what does not change costs nothing to put back.

    ``count`` is that of the word, and ``share`` the weight of the document. Its random numbers are
    those of the tokens, from ``number`` on, and as many after the first ``size_of_stream``. ``own``
    has a zero for each topic, before and after. ``weights``, ``sums``, ``before`` and ``drawn`` are
    overwritten.
    """
    size = table.dtype.type
    multiply_rows(ratios, s, table, w, weights)
    for j in range(n):
        # The last token of a topic sees all of them.
        k = topics[t + j]
        own[k] += token_mass(count, j)
        moved = share * own[k]
        level = max(held[s, k] - own[k], 0.0) + alpha[k]
        words = max(np.float64(table[w, k]) - moved, tiny)
        weights[k] = size(level * words / max(totals[k] - moved, tiny))
    total = add_up(weights, sums, before)
    # All proposals come first, so that none waits for a wrong guess whether another is accepted.
    for j in range(n):
        u = uniform(stream, np.uint64(number + j))
        drawn[j] = entry_beyond(sums, before, size(u) * total, order)
    for j in range(n):
        k, new, mass = topics[t + j], drawn[j], token_mass(count, j)
        own[k] = 0.0
        moved = share * mass
        # Rounding errors can lead to a topic that has no weight, or beyond the last topic.
        if new != k and weights[new] > size(0):
            left, of_all = max(held[s, k] - mass, 0.0), max(totals[k] - moved, tiny)
            words = max(table[w, k] - size(moved), size(tiny))
            here = (left + alpha[k]) * words * totals[new] * weights[new]
            there = (held[s, new] + alpha[new]) * table[w, new] * of_all * weights[k]
            if uniform(stream, np.uint64(size_of_stream + number + j)) * here < there:
                held[s, k], totals[k], table[w, k] = left, of_all, words
                held[s, new] += mass
                totals[new] += moved
                table[w, new] += size(moved)
                replace_entry(ratios, s, k, size((left + alpha[k]) / of_all))
                replace_entry(ratios, s, new, size((held[s, new] + alpha[new]) / totals[new]))
                topics[t + j] = k = new
        out[w, k] += moved


@borrower
def _draw_word(
    m, s, documents, starts, n_words, words, tokens, parts, shares, streams, topics, table, fresh,
    alpha, tiny, totals, held, ratios, order, weights, sums, before, drawn, own, out,
):  # fmt: skip
    """Draw the topics of the tokens of word m of the document in place s."""
    first = s * (words.shape[0] // 2)
    ahead = min(m + _ROWS_AHEAD, n_words[s] - 1)
    fetch_rows(table, words, first + ahead, first + ahead + 1)
    fetch_entry(out, words[first + ahead], topics[tokens[s, ahead]])
    w, t, count, share = words[first + m], tokens[s, m], parts[s, m], shares[s]
    n_tokens, begin, end = tokens_of(count), starts[documents[s]], starts[documents[s] + 1]
    if n_tokens > 1 and fresh == 0:
        _draw_together(
            topics, t, n_tokens, count, share, table, w, streams[s], t - begin, end - begin, alpha,
            tiny, totals, held, ratios, s, order, weights, sums, before, drawn, own, out,
        )  # fmt: skip
        return
    for j in range(n_tokens):
        mass = token_mass(count, j)
        u = uniform(streams[s], np.uint64(t + j - begin))
        _draw_again(
            topics, t + j, table, w, mass, share * mass, u, fresh, alpha, tiny, totals, held,
            ratios, s, order, sums, out,
        )  # fmt: skip


@borrower
def _count_topics(topics, first, last, numbers, held, s):
    """Set row s of ``held`` to the numbers of tokens of each topic among some of the tokens."""
    for k in range(held.shape[1]):
        for i in range(_COUNTERS):
            numbers[i, k] = 0
    whole = last - (last - first) % _COUNTERS
    for t in range(first, whole, _COUNTERS):
        for i in range(_COUNTERS):
            numbers[i, topics[t + i]] += 1
    for t in range(whole, last):
        numbers[0, topics[t]] += 1
    for k in range(held.shape[1]):
        total = 0
        for i in range(_COUNTERS):
            total += numbers[i, k]
        held[s, k] = total


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
    the counts at once. Several tokens of a word in a document are drawn by a Metropolis-Hastings
    step each, with the same stationary distribution (:func:`_draw_together`).

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
        Whether two documents are sampled at a time, a word of one and a word of the other in
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
        most = max(most, indptr[d + 1] - indptr[d])
    # Two places for documents, with the words that are in the block, the first token of each, their
    # counts, and how many of them are left.
    words = np.empty(2 * most, np.int32)
    tokens = np.empty((2, most), np.int64)
    parts = np.empty((2, most), alpha.dtype)
    n_words = np.zeros(2, np.int64)
    left = np.zeros(2, np.int64)
    documents = np.full(2, -1)
    streams = np.empty(2, np.uint64)
    shares = np.empty(2, alpha.dtype)
    sizes = np.empty(2, alpha.dtype)
    held = np.empty((2, n_topics), alpha.dtype)
    ratios = np.zeros((2, width), table.dtype)
    sums = np.empty(width, table.dtype)
    others = np.empty(width, table.dtype)
    before = np.empty(LANES, table.dtype)
    weights_of_word = np.empty(width, table.dtype)
    drawn = np.empty(MOST_TOKENS, np.int32)
    own = np.zeros(width, alpha.dtype)
    numbers = np.empty((_COUNTERS, n_topics), np.int64)
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
                if fresh == 0:
                    _count_topics(topics, starts[d], starts[d + 1], numbers, held, s)
                t = starts[d]
                n = 0
                for i in range(indptr[d], indptr[d + 1]):
                    count = np.float64(counts[i])
                    n_tokens = tokens_of(count)
                    sizes[s] += count
                    if fresh == 0 and count != n_tokens:
                        for j in range(n_tokens):
                            held[s, topics[t + j]] += token_mass(count, j) - 1.0
                    if n_tokens > 0 and first_row <= indices[i] < last_row:
                        words[s * most + n] = indices[i]
                        tokens[s, n] = t
                        parts[s, n] = count
                        n += 1
                    t += n_tokens
                n_words[s] = n
                left[s] = n
                for k in range(n_topics):
                    ratios[s, k] = (1.0 if fresh != 0 else held[s, k] + alpha[k]) / totals[k]
        one = 0 if left[0] > 0 else 1
        both = left[1 - one] > 0
        n = min(left[0], left[1]) if both else left[one]
        if n == 0:
            break
        begun = n_words[one] - left[one]
        begun_other = n_words[1] - left[1]
        for m in range(begun, begun + n):
            _draw_word(
                m, one, documents, starts, n_words, words, tokens, parts, shares, streams, topics,
                table, fresh, alpha, tiny, totals, held, ratios, order, weights_of_word, sums,
                before, drawn, own, out,
            )  # fmt: skip
            if both:
                _draw_word(
                    m - begun + begun_other, 1, documents, starts, n_words, words, tokens, parts,
                    shares, streams, topics, table, fresh, alpha, tiny, totals, held, ratios, order,
                    weights_of_word, others, before, drawn, own, out,
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
