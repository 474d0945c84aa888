"""Normal deviates from random bits."""

from __future__ import annotations

import numpy as np

from ._compile import kernel
from ._math import log

# The twenty highest bits of a word give the radius, the next two the quadrant, and the last ten the
# angle within it.
_DIRECTION_BITS = np.uint32(12)
_SWAP = np.uint32(1 << 10)
_SIGN = np.uint32(1 << 11)
_ANGLE = np.uint32(_SWAP - 1)
_HALF = np.float32(0.5)
_STEP_OF_UNIFORM = np.float32(2.0**-20)
_STEP_OF_ANGLE = np.float32(0.5 * np.pi * 2.0**-10)
_MIDDLE = np.float32(511.5)
_ONE = np.float32(1.0)
# Taylor's series for angles of at most π/4: the first terms left out are below 3e-8.
_SINE = tuple(np.float32(c) for c in (1 / 362880, -1 / 5040, 1 / 120, -1 / 6))
_COSINE = tuple(np.float32(c) for c in (1 / 40320, -1 / 720, 1 / 24, -1 / 2))


@kernel("out_values words float", dtypes=("float32",))
def normal(out, words, scale):
    """Two independent normal deviates of mean 0 from every word of 32 random bits.

    The method is Box and Muller's transform, with a radius of at most 5.4 times ``scale``. ``out``
    has twice as many elements as there are words; its first half holds the first deviate of each
    word, and its second half the second.
    """
    n = words.shape[0]
    factor = np.float32(-2.0 * scale * scale)
    # Two views are used, because numba lets an index like n + i wrap around if it is negative, and
    # this check keeps the compiler from vectorising the loop.
    first, second = out[:n], out[n:]
    for i in range(n):
        word = words[i]
        uniform = (np.float32(word >> _DIRECTION_BITS) + _HALF) * _STEP_OF_UNIFORM
        radius = np.sqrt(factor * log(uniform))
        angle = (np.float32(word & _ANGLE) - _MIDDLE) * _STEP_OF_ANGLE
        z = angle * angle
        a, b, c, d = _SINE
        sine = angle * ((((a * z + b) * z + c) * z + d) * z + _ONE)
        a, b, c, d = _COSINE
        cosine = (((a * z + b) * z + c) * z + d) * z + _ONE
        side = cosine * radius
        side = -side if word & _SIGN else side
        other = sine * radius
        swapped = word & _SWAP
        first[i] = other if swapped else side
        second[i] = side if swapped else other
