"""Draws of gamma variables in log space, for rows of a table of their shapes.

Marsaglia and Tsang's method makes a gamma variable G(s) of a shape s >= 1 from a normal and a
uniform variable, and rejects few of them. A variable of any shape a > 0 is G(a) = G(a + 1) U^(1/a).
The steps work on whole blocks of entries, so that the compiler turns them into vector instructions;
only the few entries that may have to be rejected are examined one by one.
"""

from __future__ import annotations

import math

import numpy as np

from ._compile import helper, kernel, shared_kernel
from ._math import exp, log
from ._random import random_bits, stream_of

# Number of entries in a block, whose scratch arrays stay in the first cache.
_BLOCK = 512
_HALF_OF_64 = np.uint64(32)
# A word of 32 bits is a sign that is not used and a number below 2^31. In a direction, this number
# is whether to swap the two sides, the sign of the larger one, and the angle.
_POSITIVE = np.int32(0x7FFFFFFF)
_SWAP, _SIGN = np.int32(1 << 30), np.int32(1 << 29)
_ANGLE = np.int32((1 << 29) - 1)
_STEP_OF_UNIFORM = 2.0**-31
_STEP_OF_ANGLE = 0.5 * np.pi * 2.0**-29
_MIDDLE = 2.0**28 - 0.5
# Taylor's series for angles of at most π/4, without the first term, which is 1.
_SINE = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(1, 9))
_COSINE = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(1, 9))
# Shapes below this are drawn as if they were this, so that all logarithms are finite.
_SMALLEST, _SMALLEST_SINGLE = 1e-290, 1e-30
# The constant of Marsaglia and Tsang's squeeze, a test without logarithms.
_SQUEEZE = 0.0331


@helper
def _uniform_of(word, like):
    """A number in (0, 1) from the lower 31 bits of a word, in the precision of ``like``."""
    size = like.dtype.type
    return (size(np.int32(word) & _POSITIVE) + size(0.5)) * size(_STEP_OF_UNIFORM)


@helper
def _normals(bits, out):
    """Make two normal deviates from every word of 64 bits, by Box and Muller's transform."""
    size = out.dtype.type
    n = bits.shape[0]
    first, second = out[:n], out[n:]
    a, b, c, d, e, f, g, h = _SINE
    p, q, r, s, t, u, v, w = _COSINE
    for i in range(n):
        direction = np.int32(bits[i])
        radius = np.sqrt(size(-2.0) * log(_uniform_of(bits[i] >> _HALF_OF_64, out)))
        angle = (size(direction & _ANGLE) - size(_MIDDLE)) * size(_STEP_OF_ANGLE)
        z = angle * angle
        if bits.itemsize == out.itemsize:
            sine = (((size(h) * z + size(g)) * z + size(f)) * z + size(e)) * z
            cosine = (((size(w) * z + size(v)) * z + size(u)) * z + size(t)) * z
        else:
            # In single precision these terms are lost in rounding.
            sine = size(0)
            cosine = size(0)
        sine = (((sine + size(d)) * z + size(c)) * z + size(b)) * z + size(a)
        cosine = (((cosine + size(s)) * z + size(r)) * z + size(q)) * z + size(p)
        side = radius * (cosine * z + size(1))
        side = -side if direction & _SIGN else side
        other = radius * angle * (sine * z + size(1))
        first[i] = other if direction & _SWAP else side
        second[i] = side if direction & _SWAP else other


@helper
def _candidates(shape, normal, bits, out, doubtful):
    """Compute log G of each shape as if no variable were rejected, and which may have to be."""
    size = out.dtype.type
    for i in range(out.shape[0]):
        d = shape[i] + size(2.0 / 3.0)
        root = size(3) * np.sqrt(d)
        # One division serves for x / root and for log(U) / a.
        inverse = size(1) / (root * shape[i])
        t = size(1) + normal[i] * (inverse * shape[i])
        cube = max(t * t * t, size(1e-30))
        power = log(_uniform_of(bits[i] >> _HALF_OF_64, out)) * (inverse * root)
        out[i] = log(d * cube) + power
    for i in range(out.shape[0]):
        square = normal[i] * normal[i]
        doubtful[i] = _uniform_of(bits[i], out) >= size(1) - size(_SQUEEZE) * square * square


@helper
def _chosen(flags, entries):
    """Write the numbers of the entries whose flag is set; returns how many there are."""
    count = 0
    for i in range(flags.shape[0]):
        entries[count] = i
        # A branch would be mispredicted at almost every flag that is set.
        count += flags[i]
    return count


@helper
def _rejected(shape, normal, bits, entries, excess):
    """Keep those of some entries whose variables have to be rejected; returns their number.

    The test of Marsaglia and Tsang is computed in double precision, because its terms cancel if
    shapes are large.
    """
    for j in range(entries.shape[0]):
        i = entries[j]
        x = np.float64(normal[i])
        d = np.float64(shape[i]) + 2.0 / 3.0
        t = max(1.0 + x / (3.0 * np.sqrt(d)), 1e-30)
        v = t * t * t
        bound = 0.5 * x * x + d * (1.0 - v + log(v))
        excess[j] = log(_uniform_of(bits[i], excess)) - bound
    count = 0
    for j in range(entries.shape[0]):
        entries[count] = entries[j]
        count += excess[j] >= 0.0
    return count


@helper
def _draw(out, shapes, seed, number):
    """Draw log G for the rows of a table of shapes, with one stream of random numbers."""
    size = out.dtype.type
    smallest = size(_SMALLEST_SINGLE if out.itemsize == 4 else _SMALLEST)
    n = out.shape[1]
    flat = out.reshape(out.size)
    rows_of_block = max(1, _BLOCK // n)
    most = rows_of_block * n
    bits, pairs = np.empty(most, np.uint64), np.empty((most + 1) // 2, np.uint64)
    normal, shape = np.empty(most + 1, out.dtype), np.empty(most, out.dtype)
    value, target = np.empty(most, out.dtype), np.empty(most, np.int64)
    flags, entries = np.empty(most, np.uint8), np.empty(most, np.int64)
    excess = np.empty(most)
    key, counter = stream_of(seed, number), np.uint64(0)
    for begin in range(0, len(shapes), rows_of_block):
        end = min(begin + rows_of_block, len(shapes))
        count = 0
        for i in range(begin, end):
            for j in range(n):
                shape[count + j] = max(size(shapes[i, j]), smallest)
                target[count + j] = i * n + j
            count += n
        while count > 0:
            half = (count + 1) // 2
            for i in range(half):
                pairs[i] = random_bits(key, counter + np.uint64(i))
            counter += np.uint64(half)
            for i in range(count):
                bits[i] = random_bits(key, counter + np.uint64(i))
            counter += np.uint64(count)
            _normals(pairs[:half], normal[: 2 * half])
            _candidates(shape[:count], normal, bits, value[:count], flags)
            for i in range(count):
                flat[target[i]] = value[i]
            doubtful = _chosen(flags[:count], entries)
            count = _rejected(shape, normal, bits, entries[:doubtful], excess)
            for i in range(count):
                shape[i] = shape[entries[i]]
                target[i] = target[entries[i]]


@helper
def _log_sums(logs, out):
    n = logs.shape[1]
    largest, sums = np.empty(n, logs.dtype), np.zeros(n)
    for j in range(n):
        largest[j] = logs[0, j]
    for i in range(1, logs.shape[0]):
        for j in range(n):
            largest[j] = max(largest[j], logs[i, j])
    for i in range(logs.shape[0]):
        for j in range(n):
            sums[j] += exp(np.float64(logs[i, j]) - np.float64(largest[j]))
    for j in range(n):
        out[j] = np.float64(largest[j]) + math.log(sums[j])


@kernel("rows out1")
def log_sums(logs, out):
    """log Σ_i exp(logs_ij) for each column j, in double precision.

    Parameters
    ----------
    logs : (n_rows, n)
        At least one row, of finite numbers.
    out : (n,)
        The result; written.
    """
    _log_sums(logs, out)


@shared_kernel("out_rows matrix index float vector int int out2 out2")
def draw_rows(
    out, shapes, rows, scale, offsets, seed, n_rows, sums, log_sums_of_draws, first, last
):
    """Draw log G of a shape for each entry of some rows of a table.

    Parameters
    ----------
    out : (len(rows), n)
        The draws; written.
    shapes : (n_rows_of_table, n)
        The table.
    rows : (len(rows),)
    scale : float
    offsets : (len(rows),) or empty
        Shapes are the numbers of the table times ``scale``, plus the offset of the row. They must
        be positive.
    seed : int
    n_rows : int
        So many rows are a block. Its number and the seed are those of a stream of random numbers,
        and streams are independent.
    sums, log_sums_of_draws : (n_blocks, n)
        Σ of the shapes of each block, and log Σ G; written.
    first, last : int
        The blocks ``first``, …, ``last`` − 1 are drawn.
    """
    n = out.shape[1]
    given = np.empty((n_rows, n))
    for block in range(first, last):
        begin, end = block * n_rows, min((block + 1) * n_rows, len(rows))
        for j in range(n):
            sums[block, j] = 0.0
        for i in range(begin, end):
            row = rows[i]
            offset = offsets[i] if offsets.shape[0] > 0 else 0.0
            for j in range(n):
                given[i - begin, j] = scale * shapes[row, j] + offset
                sums[block, j] += given[i - begin, j]
        _draw(out[begin:end], given[: end - begin], seed, block)
        _log_sums(out[begin:end], log_sums_of_draws[block])
