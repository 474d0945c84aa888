"""Normal deviates from random bits."""

from __future__ import annotations

import numpy as np

from ._compile import kernel
from ._math import log

_HALF_WORD = np.uint64(32)
_SWAP = np.uint64(1)
_SIGN = np.uint64(2)
# The lower half less its two lowest bits, which choose a quadrant: a signed number of 30 bits.
_ANGLE_BITS = np.int64(34)
_STEP_OF_UNIFORM = 2.0**-32
_STEP_OF_ANGLE = 0.25 * np.pi * 2.0**-29


@kernel("out_values words", dtypes=("float64",))
def standard_normal(out, words):
    """Two independent standard normal deviates from every word of random bits.

    Box and Muller's transform. The upper half of a word gives the radius, of at most 6.8; the
    lower half an angle of at most π/4, and which quadrant it is in. ``out`` has twice as many
    elements as there are words, the second deviates after the first ones.
    """
    n = words.shape[0]
    # Two views, because an index that may wrap around keeps vectors away.
    first, second = out[:n], out[n:]
    for i in range(n):
        word = words[i]
        uniform = (np.float64(np.int64(word >> _HALF_WORD)) + 0.5) * _STEP_OF_UNIFORM
        radius = np.sqrt(-2.0 * log(uniform))
        angle = (np.float64(np.int64(word << _HALF_WORD) >> _ANGLE_BITS) + 0.5) * _STEP_OF_ANGLE
        z = angle * angle
        # Taylor's series: the first terms left out are below 1e-16.
        sine = -1.0 / 1307674368000.0
        sine = sine * z + 1.0 / 6227020800.0
        sine = sine * z - 1.0 / 39916800.0
        sine = sine * z + 1.0 / 362880.0
        sine = sine * z - 1.0 / 5040.0
        sine = sine * z + 1.0 / 120.0
        sine = sine * z - 1.0 / 6.0
        sine = angle * (sine * z + 1.0)
        cosine = 1.0 / 20922789888000.0
        cosine = cosine * z - 1.0 / 87178291200.0
        cosine = cosine * z + 1.0 / 479001600.0
        cosine = cosine * z - 1.0 / 3628800.0
        cosine = cosine * z + 1.0 / 40320.0
        cosine = cosine * z - 1.0 / 720.0
        cosine = cosine * z + 1.0 / 24.0
        cosine = cosine * z - 0.5
        cosine = cosine * z + 1.0
        side = cosine * radius
        side = -side if word & _SIGN else side
        other = sine * radius
        swapped = word & _SWAP
        first[i] = other if swapped else side
        second[i] = side if swapped else other
