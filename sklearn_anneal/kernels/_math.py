"""Elementary functions in a form that the compiler turns into vector instructions."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ._compile import helper

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# Adding 1.5 · 2^52 rounds to the nearest integer and leaves it in the lowest bits.
_ROUND = 6755399441055744.0
_SMALLEST = -708.0
_ONE_BITS = np.int64(1023)
_MANTISSA = np.int64(52)


@intrinsic
def _float_of_bits(typingctx, value):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def _bits_of_float(typingctx, value):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@helper
def exp(x):
    """Exponential of a float64 x <= 709 to 2 units in the last place; 0 below -708."""
    y = max(x, _SMALLEST)
    t = y * _LOG2_E + _ROUND
    n = t - _ROUND
    r = (y - n * _LN2_HIGH) - n * _LN2_LOW
    # Taylor series on |r| <= ln(2)/2: the first term left out is below 4e-18.
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = _float_of_bits((_bits_of_float(t) + _ONE_BITS) << _MANTISSA)
    return p * power if x > _SMALLEST else 0.0
