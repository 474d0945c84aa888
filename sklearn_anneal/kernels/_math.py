"""Elementary functions in a form that the compiler turns into vector instructions.

None of them uses branches or tables. The functions that also accept float32 compute in the
precision of their argument, because a single float64 constant would make a whole float32 loop
slower than the float64 one.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from ._compile import helper

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# Adding 1.5 · 2^52 rounds to the nearest integer and leaves it in the lowest bits.
_ROUND = 6755399441055744.0
_SMALLEST = -708.0
_ONE_BITS = np.int64(1023)
_MANTISSA = np.int64(52)

_HALF_LOG_2PI = 0.91893853320467274178
_SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)


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


@intrinsic
def _single_power_of_two(typingctx, rounded):
    """2^n for a float32 that has the integer n in its lowest bits.

    It is written in LLVM instructions, because numba would compute the sum in int64.
    """

    def codegen(context, builder, signature, args):
        word = ir.IntType(32)
        exponent = builder.add(builder.bitcast(args[0], word), ir.Constant(word, 127))
        return builder.bitcast(builder.shl(exponent, ir.Constant(word, 23)), ir.FloatType())

    return types.float32(types.float32), codegen


@helper
def _exp_double(x):
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


_SINGLE_LOG2_E = np.float32(_LOG2_E)
_SINGLE_LN2_HIGH = np.float32(0.693359375)
_SINGLE_LN2_LOW = np.float32(np.log(2.0) - 0.693359375)
_SINGLE_ROUND = np.float32(12582912.0)
_SINGLE_SMALLEST = np.float32(-87.0)
_SINGLE_TAYLOR = tuple(np.float32(1.0 / n) for n in (720.0, 120.0, 24.0, 6.0, 2.0))
_SINGLE_ONE = np.float32(1.0)
_SINGLE_ZERO = np.float32(0.0)


@helper
def _exp_single(x):
    y = max(x, _SINGLE_SMALLEST)
    t = y * _SINGLE_LOG2_E + _SINGLE_ROUND
    n = t - _SINGLE_ROUND
    r = (y - n * _SINGLE_LN2_HIGH) - n * _SINGLE_LN2_LOW
    a, b, c, d, e = _SINGLE_TAYLOR
    p = ((((a * r + b) * r + c) * r + d) * r + e) * r
    p = (p + _SINGLE_ONE) * r + _SINGLE_ONE
    return p * _single_power_of_two(t) if x > _SINGLE_SMALLEST else _SINGLE_ZERO


def exp(x):
    """Exponential, accurate to 2 units in the last place.

    A float64 x must be at most 709, and the result is 0 below -708. A float32 x must be at most
    88, and the result is 0 below -87.
    """
    raise NotImplementedError("for compiled code")


@overload(exp)
def _exp(x):
    if x == types.float32:
        return lambda x: _exp_single(x)
    return lambda x: _exp_double(x)


@intrinsic
def _single_parts(typingctx, x):
    """Split a float32 m 2^n into m in [sqrt(1/2), sqrt(2)) and the integer n, both as float32."""

    def codegen(context, builder, signature, args):
        word = ir.IntType(32)
        bits = builder.bitcast(args[0], word)
        above = builder.sub(bits, ir.Constant(word, 0x3F3504F3))
        n = builder.ashr(above, ir.Constant(word, 23))
        m = builder.sub(bits, builder.shl(n, ir.Constant(word, 23)))
        parts = builder.bitcast(m, ir.FloatType()), builder.sitofp(n, ir.FloatType())
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.float32, 2)(types.float32), codegen


@helper
def _log_double(x):
    bits = _bits_of_float(x)
    # x = m 2^n with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh((m - 1) / (m + 1)).
    n = (bits - _SQRT_HALF_BITS) >> _MANTISSA
    m = _float_of_bits(bits - (n << _MANTISSA))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    # Powers up to s^23 on |s| <= 0.1716: the first term left out is below 1e-20.
    p = 2.0 / 23.0
    p = p * z + 2.0 / 21.0
    p = p * z + 2.0 / 19.0
    p = p * z + 2.0 / 17.0
    p = p * z + 2.0 / 15.0
    p = p * z + 2.0 / 13.0
    p = p * z + 2.0 / 11.0
    p = p * z + 2.0 / 9.0
    p = p * z + 2.0 / 7.0
    p = p * z + 2.0 / 5.0
    p = p * z + 2.0 / 3.0
    exponent = np.float64(n)
    return (exponent * _LN2_LOW + s * z * p + 2.0 * s) + exponent * _LN2_HIGH


_SINGLE_ARTANH = tuple(np.float32(2.0 / n) for n in (9.0, 7.0, 5.0, 3.0))


@helper
def _log_single(x):
    m, n = _single_parts(x)
    s = (m - _SINGLE_ONE) / (m + _SINGLE_ONE)
    z = s * s
    a, b, c, d = _SINGLE_ARTANH
    p = ((a * z + b) * z + c) * z + d
    return (n * _SINGLE_LN2_LOW + s * z * p + (s + s)) + n * _SINGLE_LN2_HIGH


def log(x):
    """Natural logarithm of a positive, normal number, accurate to 2 units in the last place."""
    raise NotImplementedError("for compiled code")


@overload(log)
def _log(x):
    if x == types.float32:
        return lambda x: _log_single(x)
    return lambda x: _log_double(x)


# exp{ψ(u + 1/2)} = u (1 + Σ_j c_j u^(-2j)), the exponential of the asymptotic series
# ψ(u + 1/2) = log u - Σ_j B_2j(1/2) / (2j u^2j) with Bernoulli polynomials B_2j.
_SERIES = (
    1.0 / 24.0,
    -37.0 / 5760.0,
    10313.0 / 2903040.0,
    -5509121.0 / 1393459200.0,
    2709398569.0 / 367873228800.0,
    -499769010050743.0 / 24103053950976000.0,
    47655701498228027.0 / 578473294823424000.0,
)


@helper
def _far_digamma(x):
    """exp{ψ(x + 8)}, with an error of 5e-15, and ψ(x + 8) - ψ(x) = Σ_{i<8} 1 / (x + i)."""
    u = x + 7.5
    # The factors x + i pair up to s, s + 6, s + 10 and s + 12, where s = x (x + 7).
    s = x * (x + 7.0)
    left = s * (s + 6.0)
    right = (s + 10.0) * (s + 12.0)
    product = left * right
    slope = (2.0 * s + 6.0) * right + left * (2.0 * s + 22.0)
    inverse = 1.0 / (u * product)
    v = product * inverse
    w = v * v
    a, b, c, d, e, f, g = _SERIES
    p = ((((((g * w + f) * w + e) * w + d) * w + c) * w + b) * w + a) * v
    return u + p, (2.0 * x + 7.0) * slope * (u * inverse)


@helper
def digamma(x):
    """ψ(x) of a float64 0 < x < 1e33, with an error of 1e-14 max(1, |ψ|)."""
    far, difference = _far_digamma(x)
    return log(far) - difference


@helper
def _exp_digamma_double(x):
    far, difference = _far_digamma(x)
    return far * _exp_double(-difference)


_SINGLE_SERIES = tuple(np.float32(value) for value in _SERIES[:3])
_SINGLE_TWO = np.float32(2.0)
_SINGLE_THREE = np.float32(3.0)
_SINGLE_SHIFT = np.float32(3.5)


@helper
def _exp_digamma_single(x):
    # As above with a shift of 4: s = x (x + 3), factors s and s + 2.
    u = x + _SINGLE_SHIFT
    s = x * (x + _SINGLE_THREE)
    product = s * (s + _SINGLE_TWO)
    v = _SINGLE_ONE / u
    w = v * v
    a, b, c = _SINGLE_SERIES
    far = u + v * ((c * w + b) * w + a)
    slope = _SINGLE_TWO * s + _SINGLE_TWO
    return far * _exp_single(-(_SINGLE_TWO * x + _SINGLE_THREE) * slope / product)


def exp_digamma(x):
    """exp{ψ(x)}, computed without a logarithm; it is 0 where it underflows.

    In float64, 0 < x < 1e33, and the relative error is 5e-15 (1 + 1/x). In float32, 0 < x < 1e9,
    and the relative error is 1e-6 (1 + 1/x).
    """
    raise NotImplementedError("for compiled code")


@overload(exp_digamma)
def _exp_digamma(x):
    if x == types.float32:
        return lambda x: _exp_digamma_single(x)
    return lambda x: _exp_digamma_double(x)


@helper
def log_gamma(x):
    """log Γ(x) of a float64 0 < x < 1e38, with an error of 1e-13 max(1, |log Γ|)."""
    s = x * (x + 7.0)
    product = s * (s + 6.0) * ((s + 10.0) * (s + 12.0))
    y = x + 8.0
    v = 1.0 / y
    w = v * v
    # Stirling's series at y >= 8: the first term left out is below 1e-16.
    p = 1.0 / 156.0
    p = p * w - 691.0 / 360360.0
    p = p * w + 1.0 / 1188.0
    p = p * w - 1.0 / 1680.0
    p = p * w + 1.0 / 1260.0
    p = p * w - 1.0 / 360.0
    p = p * w + 1.0 / 12.0
    return (y - 0.5) * log(y) - y + _HALF_LOG_2PI + p * v - log(product)


def _half_bernoulli(n: int) -> list[Fraction]:
    """B_2j(1/2) for j = 1, ..., n, where B_m(x) are the Bernoulli polynomials."""
    numbers = [Fraction(1)]
    for m in range(1, 2 * n + 1):
        known = sum((comb(m + 1, j) * numbers[j] for j in range(m)), Fraction(0))
        numbers.append(-known / (m + 1))
    return [-(1 - Fraction(2, 4**j)) * numbers[2 * j] for j in range(1, n + 1)]


# ψ(u + 1/2) = log u - Σ_j a_j u^(-2j) and
# log Γ(u + 1/2) = u log u - u + log(2 π) / 2 + Σ_j b_j u^(1 - 2j).
_HALVES = tuple(enumerate(_half_bernoulli(9), start=1))
_OF_DIGAMMA = tuple(float(-b / (2 * j)) for j, b in _HALVES)
_OF_LOG_GAMMA = tuple(float(b / (2 * j * (2 * j - 1))) for j, b in _HALVES)


@helper
def digamma_and_log_gamma(x):
    """ψ(x) and log Γ(x) of a float64 0 < x < 1e33, with an error of 1e-13 max(1, |value|).

    Both together take two logarithms, where one after the other they take three.
    """
    u = x + 7.5
    # The factors x + i pair up as in `_far_digamma`.
    s = x * (x + 7.0)
    left = s * (s + 6.0)
    right = (s + 10.0) * (s + 12.0)
    product = left * right
    slope = (2.0 * s + 6.0) * right + left * (2.0 * s + 22.0)
    inverse = 1.0 / (u * product)
    v = product * inverse
    w = v * v
    log_u = log(u)
    a, b, c, d, e, f, g, h, i = _OF_DIGAMMA
    p = ((((((((i * w + h) * w + g) * w + f) * w + e) * w + d) * w + c) * w + b) * w + a) * w
    psi = (log_u + p) - (2.0 * x + 7.0) * slope * (u * inverse)
    a, b, c, d, e, f, g, h, i = _OF_LOG_GAMMA
    p = ((((((((i * w + h) * w + g) * w + f) * w + e) * w + d) * w + c) * w + b) * w + a) * v
    return psi, u * log_u - u + _HALF_LOG_2PI + p - log(product)


# ψ(x) = log x - 1 / (2 x) - Σ_j c_j x^(-2j), which is exact to the last digit from _FAR on.
_OF_RISING = (
    1.0 / 12.0,
    -1.0 / 120.0,
    1.0 / 252.0,
    -1.0 / 240.0,
    1.0 / 132.0,
    -691.0 / 32760.0,
    1.0 / 12.0,
)
_FAR = 8


@helper
def _artanh_rest(w):
    """(artanh v / v - 1) / w of w = v² <= 0.01, with powers up to v^19.

    The first term left out is below 1e-19 of the sum.
    """
    p = 1.0 / 19.0
    p = p * w + 1.0 / 17.0
    p = p * w + 1.0 / 15.0
    p = p * w + 1.0 / 13.0
    p = p * w + 1.0 / 11.0
    p = p * w + 1.0 / 9.0
    p = p * w + 1.0 / 7.0
    p = p * w + 1.0 / 5.0
    return p * w + 1.0 / 3.0


@helper
def log1p(x):
    """log(1 + x) of a float64 x >= 0, without loss of digits."""
    v = x / (2.0 + x)
    w = v * v
    # The logarithm is 2 artanh v.
    return 2.0 * (v + v * w * _artanh_rest(w)) if w < 0.01 else log(1.0 + x)


@helper
def polygamma_rising(x, n):
    """ψ(x + n) - ψ(x) of x > 0 and n >= 0 without loss of digits, and ψ'(x + n) - ψ'(x).

    The latter, which steers Newton's method, has five digits.
    """
    first = second = 0.0
    if x < _FAR:
        for i in range(_FAR):
            y = x + i
            inverse = 1.0 / (y * (y + n))
            step = n * inverse
            first += step
            second -= step * inverse * (y + (y + n))
        x += _FAR
    inverse, other = 1.0 / x, 1.0 / (x + n)
    step, both = n * inverse * other, inverse + other
    # P(u) - P(v) of the polynomial P of u = 1 / x² and v = 1 / (x + n)² is a multiple of u - v.
    u, v = inverse * inverse, other * other
    a, b, c, d, e, f, g = _OF_RISING
    value, quotient = f + u * g, g
    value, quotient = e + u * value, value + v * quotient
    value, quotient = d + u * value, value + v * quotient
    value, quotient = c + u * value, value + v * quotient
    value, quotient = b + u * value, value + v * quotient
    value, quotient = a + u * value, value + v * quotient
    quotient = value + v * quotient
    first += log1p(n * inverse) + step * (0.5 + both * quotient)
    second -= step * (1.0 + 0.5 * both + (u + inverse * other + v) / 6.0)
    return first, second


# The smallest mean that the following functions take: ratios of smaller ones could overflow.
_SMALLEST_MEAN = 1e-280


@helper
def deviance(x, mean):
    """x log(x / m) - x + m of float64 numbers x >= 0 and m >= 1e-280, without loss of digits."""
    d = x - mean
    v = d / (x + mean)
    w = v * v
    # log(x / m) = 2 artanh v, whose first term is taken out.
    near = d * v + 2.0 * x * v * w * _artanh_rest(w)
    far = x * log(max(x, _SMALLEST_MEAN) / mean) - d
    return near if w < 0.01 else far


@helper
def factorial_rest(x):
    """log x! - x log x + x of a float64 x >= 0.

    With it, log Poisson(x; m) = -deviance(x, m) - rest has no terms that cancel.
    """
    if x > 64.0:
        v = 1.0 / x
        w = v * v
        series = v * (1.0 / 12.0 - w * (1.0 / 360.0 - w / 1260.0))
        return series + 0.5 * log(x) + _HALF_LOG_2PI
    return log_gamma(x + 1.0) - x * log(max(x, _SMALLEST_MEAN)) + x
