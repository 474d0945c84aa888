"""Tables and loops that models of counts share: topics, and factorisations.

The global parameters come as a table with one row per word (column of the counts),
exp{x (E log β_kw − m_w)}, where m_w is the largest E log β of the word. A factor per word does not
change how its counts are divided among components, and with this one every row has an entry of 1,
however small the priors are. The rows of a document's words are copied next to each other, so that
all iterations over the document run through memory in order. Rows are padded with zeros to a
multiple of ``LANES`` components, and documents with words of count 0 to a multiple of ``ROWS``
words.
"""

from __future__ import annotations

import math

import numpy as np

from ._arrays import vector
from ._compile import called, helper, kernel, shared_kernel
from ._math import digamma, exp, exp_digamma, log
from .simd.emitter import ROWS

# These are added to normalisers, so that none is 0. A normaliser is as small as this only if all
# components of a word are switched off in the document.
TINY = 1e-280
TINY_SINGLE = 1e-33
SMALLEST_LOG = 1e-300
_SMALLEST_NORMAL = 2.3e-308
SMALLEST_SINGLE = 1.2e-38
# Exponentials of minus a logarithm below this could overflow.
_MOST_NEGATIVE = -600.0
# If no number of a row is above this, numbers that matter may have underflowed.
FAR_FROM_ZERO = 1e-200
FAR_FROM_ZERO_SINGLE = 1e-20


@kernel("rows index vector out2 out1", dtypes=("float64",))
def expected_logs(concentration, words, log_normalizer, out, largest):
    """Compute E log β_kw − m_w, and m_w, for some words; topics are columns.

    ``log_normalizer`` (n_topics,) is ψ of the column sums. Columns of ``out`` beyond the topics
    become −1e30. Rows of other words are left as they are, here and below.
    """
    n_topics = concentration.shape[1]
    for w in words:
        for k in range(n_topics):
            out[w, k] = digamma(concentration[w, k]) - log_normalizer[k]
        for k in range(n_topics, out.shape[1]):
            out[w, k] = -1e30
        top = out[w, 0]
        for k in range(1, n_topics):
            top = max(top, out[w, k])
        for k in range(out.shape[1]):
            out[w, k] -= top
        largest[w] = top


@helper
def _smallest(table):
    """The threshold below which numbers are set to 0, because subnormal numbers slow every sum."""
    return SMALLEST_SINGLE if table.itemsize == 4 else _SMALLEST_NORMAL


@kernel("out_rows matrix float")
def exponentiate(table, logs, factor):
    """``table = exp(factor * logs)``; the two can be the same array."""
    smallest = _smallest(table)
    for w in range(table.shape[0]):
        for k in range(table.shape[1]):
            value = exp(factor * logs[w, k])
            table[w, k] = value if value > smallest else 0.0


@helper
def expected_row(value, log_normalizer, inverse, factor, row, out):
    """Compute a row of the table of :func:`expected_table`, and return the m_w of its word.

    ``inverse`` has exp{−log_normalizer}, and ``row`` is memory.
    """
    n_topics, smallest, top = value.shape[0], _smallest(out), 0.0
    if factor == 1.0:
        for k in range(n_topics):
            row[k] = inverse[k] * exp_digamma(value[k])
        for k in range(n_topics):
            top = max(top, row[k])
    if top > FAR_FROM_ZERO:
        for k in range(n_topics):
            row[k] /= top
        largest = log(top)
    else:
        for k in range(n_topics):
            row[k] = digamma(value[k]) - log_normalizer[k]
        top = row[0]
        for k in range(1, n_topics):
            top = max(top, row[k])
        for k in range(n_topics):
            row[k] = exp(factor * (row[k] - top))
        largest = top
    for k in range(n_topics):
        out[k] = row[k] if row[k] > smallest else 0.0
    for k in range(n_topics, out.shape[0]):
        out[k] = 0.0
    return largest


@shared_kernel("out_rows matrix index float vector index vector float out1")
def expected_table(
    table,
    concentration,
    columns,
    scale,
    offsets,
    words,
    log_normalizer,
    factor,
    largest,
    first,
    last,
):
    """Compute exp{x (E log β_kw − m_w)}, and m_w, of the words ``first``, …, ``last`` − 1.

    The concentrations of ``words[i]``, whose row of the table is computed, are ``scale`` times the
    row ``columns[i]`` of ``concentration``, plus ``offsets[i]`` if there are offsets. The other
    arguments are those of :func:`expected_logs`. At x = 1, exp{ψ(λ)} is found without a logarithm.
    """
    n_topics = concentration.shape[1]
    row = vector(n_topics, log_normalizer.dtype)
    value = vector(n_topics, log_normalizer.dtype)
    inverse = vector(n_topics, log_normalizer.dtype)
    lowest = 0.0
    for k in range(n_topics):
        lowest = min(lowest, log_normalizer[k])
    for k in range(n_topics):
        # Rows are computed from logarithms if the factors are 0, because some would overflow.
        inverse[k] = math.exp(-log_normalizer[k]) if lowest > _MOST_NEGATIVE else 0.0
    for i in range(first, last):
        w, c = words[i], columns[i]
        offset = offsets[i] if offsets.shape[0] > 0 else 0.0
        for k in range(n_topics):
            value[k] = scale * concentration[c, k] + offset
        largest[w] = expected_row(value, log_normalizer, inverse, factor, row, table[w])


@shared_kernel("out_rows singles index vector float out1")
def drawn_table(table, logs, words, log_totals, factor, largest, first, last):
    """Compute exp{x (log β_kw − m_w)}, and m_w, from a draw of gamma variables.

    This is done for the words ``first``, …, ``last`` − 1 of the given ones. ``logs``
    (len(words), n_topics) has the logarithms of the variables of the given words, and
    ``log_totals`` (n_topics,) those of their sums over all words.
    """
    size = table.dtype.type
    n_topics = logs.shape[1]
    smallest = size(_smallest(table))
    power = size(factor)
    row, normalizers = np.empty(n_topics, table.dtype), np.empty(n_topics, table.dtype)
    for k in range(n_topics):
        normalizers[k] = log_totals[k]
    for i in range(first, last):
        w = words[i]
        for k in range(n_topics):
            row[k] = size(logs[i, k]) - normalizers[k]
        top = row[0]
        for k in range(1, n_topics):
            top = max(top, row[k])
        for k in range(n_topics):
            row[k] = exp(power * (row[k] - top))
        largest[w] = top
        for k in range(n_topics):
            table[w, k] = row[k] if row[k] > smallest else size(0)
        for k in range(n_topics, table.shape[1]):
            table[w, k] = size(0)


@kernel("rows vector float float int matrix out2 int out1")
def expected_statistics(table, largest, local, factor, multiply, addend, out, n_words, energies):
    """Complete the statistics S after the sum over documents, and compute Σ S E log β.

    At first ``out`` plus the ``addend``, unless that has no rows, holds Σ_d (c_w / n_w) e_k, which
    is multiplied by the table, or the statistics themselves if ``multiply`` is 0. In the end
    ``out`` holds ``factor`` times the statistics. To each of the ``energies``, the sum over
    ``n_words`` words is added, which belongs to the statistics without the factor. If ``largest``
    has no entries, the energies are left as they are.
    """
    n_rows, n_topics = out.shape
    part = np.empty(n_topics)
    for i in range(energies.shape[0]):
        for k in range(n_topics):
            part[k] = 0.0
        for w in range(i * n_words, min((i + 1) * n_words, n_rows)):
            mass = 0.0
            if addend.shape[0] > 0:
                for k in range(n_topics):
                    out[w, k] += addend[w, k]
            for k in range(n_topics):
                mass += abs(out[w, k])
            if mass == 0.0:
                continue
            if largest.shape[0] > 0:
                for k in range(n_topics):
                    weight = max(np.float64(table[w, k]), SMALLEST_LOG)
                    value = out[w, k] * weight if multiply else out[w, k]
                    part[k] += value * (log(weight) / local + largest[w])
                    out[w, k] = factor * value
            else:
                for k in range(n_topics):
                    weight = max(np.float64(table[w, k]), SMALLEST_LOG)
                    value = out[w, k] * weight if multiply else out[w, k]
                    out[w, k] = factor * value
        for k in range(n_topics):
            energies[i] += part[k]


@called
def all_vanish(shape, m, local, far):
    """Whether exp{x ψ(shape)} of m numbers, all of which are small, is far from any number."""
    largest = np.float64(shape[0])
    for k in range(1, m):
        largest = max(largest, np.float64(shape[k]))
    return local * digamma(largest) < log(np.float64(far))


@called
def lifted_powers(shape, n, m, local, out):
    """exp{x ψ(shape) − t} of the first m numbers, where t is the largest x ψ(shape); returns t.

    Rows in which all powers would underflow need them, in which the common factor does not change
    how counts are divided. The other entries up to n become 0.
    """
    largest = np.float64(shape[0])
    for k in range(1, m):
        largest = max(largest, np.float64(shape[k]))
    top = local * digamma(largest)
    for k in range(m):
        out[k] = exp(local * digamma(np.float64(shape[k])) - top)
    for k in range(m, n):
        out[k] = 0.0
    return top


@helper
def padded(n, step):
    """The smallest multiple of ``step`` that is at least n."""
    return (n + step - 1) // step * step


@helper
def filled(n, value, dtype):
    """An array of n equal numbers; numpy's functions for it take longer to compile."""
    array = vector(n, dtype)
    for i in range(n):
        array[i] = value
    return array


@helper
def longest_row(indptr):
    """The largest number of entries of a row."""
    longest = 0
    for d in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[d + 1] - indptr[d])
    return longest


@helper
def open_row(counts, indices, begin, n, table, rows, c):
    """Copy the rows and counts of a document's words; returns its number of tokens."""
    tokens = 0.0
    width = table.shape[1]
    for i in range(n):
        w = indices[begin + i]
        for k in range(width):
            rows[i, k] = table[w, k]
        c[i] = counts[begin + i]
        tokens += np.float64(c[i])
    for i in range(n, padded(n, ROWS)):
        for k in range(width):
            rows[i, k] = table.dtype.type(1)
        c[i] = table.dtype.type(0)
    return tokens
