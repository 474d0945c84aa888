"""Random bits that depend on a key and a counter only.

Numbers of different counters can be computed in any order, so that results do not depend on how
work is divided. Loops over counters become vector instructions.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_SHIFT_TO_53_BITS = np.uint64(11)
_ONE = np.uint64(1)
_UNIT = 2.0**-53


@helper
def random_bits(key, counter):
    """64 random bits: number ``counter`` of the stream ``key``, both of type uint64.

    The generator is splitmix64 (Steele et al., 2014).
    """
    z = key + (counter + _ONE) * _GOLDEN
    z = (z ^ (z >> _SHIFT_1)) * _MIX_1
    z = (z ^ (z >> _SHIFT_2)) * _MIX_2
    return z ^ (z >> _SHIFT_3)


@helper
def uniform(key, counter):
    """A number in [0, 1) with 53 bits: number ``counter`` of the stream ``key``."""
    return np.float64(np.int64(random_bits(key, counter) >> _SHIFT_TO_53_BITS)) * _UNIT


@helper
def stream_of(seed, number):
    """The key of the stream of something with a number, such as a document."""
    return np.uint64(seed) + np.uint64(number) * _MIX_2
