"""Large temporary arrays, whose memory a thread keeps for the next ones.

A minibatch needs arrays of some megabytes for a few milliseconds. Memory allocators give blocks of
this size back to the operating system as soon as they are free. It hands out new pages one after
another, each of them filled with zeros, which can take a good part of the time of a minibatch. Each
thread keeps blocks of its own, because a core that writes into memory which another core has just
written must wait for it.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Allocators keep smaller blocks themselves; those who need larger ones have the time to wait for
# them, bytes.
_SMALLEST, _LARGEST = 2**16, 2**23
# A thread keeps at most this much memory that is not in use, bytes.
_MOST_KEPT = 2**24
# The share by which a block is larger than the first array in it, so that it has space for the next
# one, which may be a little larger; and the number of times that a block may be larger than needed.
_SPARE, _MOST_SPARE = 8, 4
# Numbers between two arrays that have no cache line in common. Processors fetch lines in pairs.
_APART = 16


class _Kept(threading.local):
    """The free blocks of this thread; None if it keeps none."""

    blocks: list[np.ndarray] | None = None


_KEPT = _Kept()


def keep_memory() -> None:
    """Keep memory until this thread ends."""
    _KEPT.blocks = []


@contextmanager
def memory_kept() -> Iterator[None]:
    """Keep memory in this thread during the context, and give it back at its end."""
    before = _KEPT.blocks
    if before is None:
        keep_memory()
    try:
        yield
    finally:
        _KEPT.blocks = before


def empty(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return a new array without initialising it, as :func:`numpy.empty` does.

    Its memory is free for another array of the same thread when no array refers to it any more,
    in whichever thread that happens.
    """
    array = _from_blocks(shape, np.dtype(dtype))
    return np.empty(shape, dtype) if array is None else array


def zeros(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return a new array of zeros, whose memory is that of :func:`empty`."""
    array = _from_blocks(shape, np.dtype(dtype))
    if array is None:
        # The operating system fills the pages of a large array with zeros when they are used.
        return np.zeros(shape, dtype)
    array.fill(0)
    return array


def zeros_apart(*shape: int) -> np.ndarray:
    """Return zeros, float64, whose rows have no cache line in common with any other array.

    Threads that add to small arrays which lie next to each other would wait for each other: a core
    that writes a number takes the whole line from all others.
    """
    *rows, n = shape
    return np.zeros((*rows, n + 2 * _APART))[..., _APART : _APART + n]


def _from_blocks(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    """Return an array in memory that this thread keeps; None if it keeps none of this size."""
    size = math.prod(shape) * dtype.itemsize
    blocks = _KEPT.blocks
    if blocks is None or not _SMALLEST <= size <= _LARGEST:
        return None
    block = _free(blocks, size)
    array = np.frombuffer(block.data, np.uint8, size)
    # Every view of the array refers to this memoryview, and none to an array in between.
    weakref.finalize(array.base, _give_back, blocks, block).atexit = False
    return array.view(dtype).reshape(shape)


def _free(blocks: list[np.ndarray], size: int) -> np.ndarray:
    """Take the smallest free block of at least ``size`` bytes, or make one."""
    # Other threads append blocks meanwhile, and no thread but this one takes any.
    fitting = [(block.nbytes, i) for i, block in enumerate(blocks) if block.nbytes >= size]
    smallest, i = min(fitting, default=(0, 0))
    if fitting and smallest <= _MOST_SPARE * size:
        return blocks.pop(i)
    return np.empty(size + size // _SPARE, np.uint8)


def _give_back(blocks: list[np.ndarray], block: np.ndarray) -> None:
    if sum(other.nbytes for other in blocks) + block.nbytes <= _MOST_KEPT:
        blocks.append(block)
