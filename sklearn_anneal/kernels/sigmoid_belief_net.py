"""Loops over binary units with logits: log probabilities, residuals and draws.

The terms of a row are written to scratch arrays by loops that the compiler turns into vector
instructions, and are added afterwards in a fixed order.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import exp, log
from ._random import uniform
from .simd.products import total

# Vectors have at most this many entries.
_PADDING = 16
# How many times the factors whose logarithm is taken are multiplied in pairs.
_FOLDS = 6


@helper
def _uniforms(key, first, out):
    """Numbers ``first`` and following, in [0, 1), of the stream ``key``."""
    for j in range(len(out)):
        out[j] = uniform(key, first + np.uint64(j))


@helper
def _padded(n):
    """The length of a scratch array of which ``n`` entries are used, in whole vectors."""
    return (n + _PADDING - 1) // _PADDING * _PADDING


@helper
def _log_of_product(factors):
    """Σ_j log of factors between 1 and 2, which are overwritten.

    At most 2^6 of them are multiplied before a logarithm is taken, which cannot overflow.
    """
    n = len(factors)
    for _ in range(_FOLDS):
        half = (n + 1) // 2
        for j in range(n - half):
            factors[j] *= factors[half + j]
        n = half
    for j in range(n):
        factors[j] = log(factors[j])
    result = 0.0
    for j in range(n):
        result += np.float64(factors[j])
    return result


@helper
def _probability(small, positive, one):
    """σ(u), from exp(−|u|) and whether u is positive."""
    return (one if positive else small) / (one + small)


@kernel("rows values out_rows out1")
def log_probabilities(values, bias, logits, out):
    """Add Σ_j log Bernoulli(value_j | logit_j + bias_j) to ``out``.

    The logits become value − probability.

    Parameters
    ----------
    values : (n_values, n_units)
        Zeros and ones. Row i of the logits belongs to row i mod n_values.
    bias : (n_units,)
    logits : (n_rows, n_units)
    out : (n_rows,)
    """
    n_values, n_units = values.shape
    one, zero = values.dtype.type(1), values.dtype.type(0)
    terms, factors = np.zeros(_padded(n_units), values.dtype), np.empty(n_units, values.dtype)
    for i in range(logits.shape[0]):
        x, g = values[i % n_values], logits[i]
        for j in range(n_units):
            u = g[j] + bias[j]
            small = exp(-abs(u))
            terms[j] = x[j] * u - max(u, zero)
            factors[j] = one + small
            g[j] = x[j] - _probability(small, u > zero, one)
        out[i] += np.float64(total(terms)) - _log_of_product(factors)


@kernel("rows pointer int int out_rows out_rows out1 out1")
def draw(logits, keys, offset, stride, values, residuals, log_probability, entropy):
    """Draw units, and add the log probability of the draw and its entropy in nats.

    Row i of the draws is draw number i // n_keys for the data point i mod n_keys. It uses the
    random numbers ``offset`` to ``offset + n_units`` of the part number i // n_keys, of length
    ``stride``, of the data point's stream.

    Parameters
    ----------
    logits : (n_logits, n_units)
        Row i of the draws belongs to row i mod n_logits.
    keys : (n_keys,)
    offset, stride : int
    values : (n_rows, n_units)
        The draws, zeros and ones; written.
    residuals : (n_rows, n_units)
        Value − probability; written.
    log_probability, entropy : (n_rows,)
    """
    n_logits, n_units = logits.shape
    n_keys = len(keys)
    one, zero = logits.dtype.type(1), logits.dtype.type(0)
    padded = _padded(n_units)
    terms, spread = np.zeros(padded, logits.dtype), np.zeros(padded, logits.dtype)
    factors = np.empty(n_units, logits.dtype)
    uniforms = np.empty(n_units)
    for i in range(values.shape[0]):
        u, h, r = logits[i % n_logits], values[i], residuals[i]
        first = np.uint64(i // n_keys) * np.uint64(stride) + np.uint64(offset)
        _uniforms(np.uint64(keys[i % n_keys]), first, uniforms)
        for j in range(n_units):
            size = abs(u[j])
            small = exp(-size)
            factors[j] = one + small
            probability = _probability(small, u[j] > zero, one)
            value = one if uniforms[j] < probability else zero
            h[j] = value
            r[j] = value - probability
            terms[j] = value * u[j] - max(u[j], zero)
            # H = log(1 + exp(−|u|)) + |u| σ(−|u|)
            spread[j] = size * min(probability, one - probability)
        log_factors = _log_of_product(factors)
        log_probability[i] += np.float64(total(terms)) - log_factors
        entropy[i] += log_factors + np.float64(total(spread))


@kernel("rows pointer int out_rows")
def draw_values(probabilities, keys, offset, values):
    """Draw binary values from their probabilities, with the streams of their rows.

    Parameters
    ----------
    probabilities : (n_rows, n_columns)
    keys : (n_rows,)
    offset : int
        The first number of the streams that is used.
    values : (n_rows, n_columns)
        Zeros and ones; written.
    """
    one, zero = probabilities.dtype.type(1), probabilities.dtype.type(0)
    uniforms = np.empty(probabilities.shape[1])
    for i in range(probabilities.shape[0]):
        _uniforms(np.uint64(keys[i]), np.uint64(offset), uniforms)
        p, x = probabilities[i], values[i]
        for j in range(probabilities.shape[1]):
            x[j] = one if uniforms[j] < p[j] else zero


@kernel("values pointer pointer out_values")
def draw_entries(probabilities, keys, columns, values):
    """Draw the stored entries of sparse rows as :func:`draw_values` draws cells, from number 0 on.

    Parameters
    ----------
    probabilities : (n_entries,)
    keys : (n_entries,)
        The stream of the row of each entry.
    columns : (n_entries,)
    values : (n_entries,)
        Zeros and ones; written.
    """
    one, zero = probabilities.dtype.type(1), probabilities.dtype.type(0)
    for i in range(len(probabilities)):
        drawn = uniform(np.uint64(keys[i]), np.uint64(columns[i]))
        values[i] = one if drawn < probabilities[i] else zero
