"""Large temporary arrays, whose memory a thread keeps for the next ones."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from sklearn_anneal.parallel import kept_memory
from sklearn_anneal.parallel.kept_memory import empty, memory_kept, zeros
from sklearn_anneal.parallel.workers import Workers

LARGE = (300, 200)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def free_blocks() -> list[np.ndarray]:
    return kept_memory._KEPT.blocks


def test_arrays_are_those_of_numpy():
    with memory_kept():
        for make, dtype in ((empty, np.float32), (zeros, np.float64)):
            array = make(LARGE, dtype)
            assert type(array) is np.ndarray
            assert array.shape == LARGE
            assert array.dtype == dtype
            assert array.flags.c_contiguous
            assert array.flags.writeable


def test_memory_is_used_again_when_no_view_is_left():
    with memory_kept():
        array = empty(LARGE)
        part = array.T[3:5].T[1:]
        first = address(array)
        del array
        # A view keeps the memory, so that another array cannot change what it shows.
        part[:] = 2.0
        other = zeros(LARGE)
        assert address(other) != first
        assert (part == 2.0).all()
        del part
        assert address(empty(LARGE)) == first


def test_zeros_are_zeros_in_memory_that_was_used():
    with memory_kept():
        for _ in range(2):
            array = zeros(LARGE)
            assert not array.any()
            array[:] = 1.0
            del array


def test_blocks_have_room_for_arrays_that_are_a_little_larger():
    with memory_kept():
        first = address(empty((1000, 100)))
        assert address(empty((1050, 100))) == first
        # A far larger one needs another block, and a far smaller one would waste it.
        large = empty((3000, 100))
        assert address(large) != first
        kept = {first, address(large)}
        del large
        assert {address(block) for block in free_blocks()} == kept
        small = empty((100, 100))
        assert {address(block) for block in free_blocks()} == kept
        assert address(small) not in kept


def test_each_thread_has_blocks_of_its_own():
    found, ready, release = {}, threading.Event(), threading.Event()

    def work():
        with memory_kept():
            array = found["array"] = empty(LARGE)
            found["address"] = address(array)
            del array
            ready.set()
            # The memory of a thread that has ended could be anybody's.
            release.wait(20)

    with memory_kept():
        thread = threading.Thread(target=work)
        thread.start()
        assert ready.wait(20)
        del found["array"]
        assert free_blocks() == []
        assert address(empty(LARGE)) != found["address"]
        release.set()
        thread.join()


def test_a_block_returns_to_its_thread_from_any_other():
    with memory_kept():
        arrays = [empty(LARGE)]
        first = address(arrays[0])
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join()
        assert address(empty(LARGE)) == first


def test_little_is_kept(monkeypatch):
    monkeypatch.setattr(kept_memory, "_LARGEST", 1_000_000)
    monkeypatch.setattr(kept_memory, "_MOST_KEPT", 1_000_000)
    with memory_kept():
        arrays = [empty(LARGE) for _ in range(4)]
        for make in (empty, zeros):
            assert make((1000, 200)).base is None
        del arrays[:]
        assert len(free_blocks()) == 1


def test_nothing_is_kept_outside():
    assert free_blocks() is None
    assert empty(LARGE).base is None
    with memory_kept():
        with memory_kept():
            array = empty(LARGE)
        # The inner context ends nothing that the outer one has begun.
        assert free_blocks() == []
        del array
        assert len(free_blocks()) == 1
    assert free_blocks() is None


def test_an_array_can_outlive_the_context():
    with memory_kept():
        array = zeros(LARGE)
    array += 1.0
    gc.collect()
    assert (array == 1.0).all()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_workers_keep_memory_while_they_are_open(n_jobs):
    with Workers(n_jobs) as workers:
        kept = workers.map(lambda i: free_blocks() is not None, ((i,) for i in range(8)))
        assert all(kept)
    assert free_blocks() is None
