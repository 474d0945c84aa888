"""Threads that are ready for the next call, and arrays that they can write to side by side."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import CancelledError
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_anneal.kernels import _team, lazy_columns
from sklearn_anneal.parallel import threads as module
from sklearn_anneal.parallel.kept_memory import zeros_apart
from sklearn_anneal.parallel.threads import Call, Threads
from sklearn_anneal.parallel.workers import Workers


@pytest.fixture(params=["watching", "sleeping"])
def one(request, monkeypatch):
    """One thread; it watches for calls only if there is a processor for it."""
    monkeypatch.setattr(module, "cpu_count", lambda: 2 if request.param == "watching" else 1)
    threads = Threads(1, lambda: None)
    assert threads._watched == (request.param == "watching")
    yield threads
    threads.close()


def test_calls_are_made_in_their_order(one):
    made = []
    calls = [one.submit(made.append, i) for i in range(200)]
    assert all(call.result() is None for call in calls)
    assert made == list(range(200))


def test_results_and_errors_reach_whoever_waits(one):
    ident, quotient = one.submit(threading.get_ident), one.submit(lambda x: 1 / x, 0)
    assert ident.result() != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        quotient.result()
    assert quotient.done()
    assert one.submit(abs, -1).result() == 1


def test_a_thread_that_sleeps_is_woken(one, monkeypatch):
    """It sleeps at once if it does not watch, and after a while if it does."""
    monkeypatch.setattr(module, "_WATCH", 1)
    assert one.submit(abs, -1).result() == 1
    # Nothing can be seen of a thread that sleeps; it has had the time to begin.
    threading.Event().wait(0.05)
    assert one.submit(abs, -2).result() == 2


def test_a_call_is_made_once(one):
    """By the thread, or by the caller, or by nobody if it is taken back before it has begun."""
    begun, release, made = threading.Event(), threading.Event(), []

    def wait():
        begun.set()
        release.wait(20)

    first = one.submit(wait)
    assert begun.wait(20)
    own, back = one.submit(made.append, "own"), one.submit(made.append, "back")
    assert own.run()
    assert own.done()
    assert back.cancel()
    assert not back.run()
    assert back.cancel()
    with pytest.raises(CancelledError):
        back.result()
    assert not first.cancel()
    assert not first.run()
    release.set()
    first.result()
    assert one.submit(made.append, "last").result() is None
    assert made == ["own", "last"]


def test_calls_that_have_not_begun_are_taken_back_at_the_end():
    begun, release, made = threading.Event(), threading.Event(), []

    def wait():
        begun.set()
        release.wait(20)

    threads = Threads(2, lambda: None)
    running = [threads.submit(wait), threads.submit(wait)]
    assert begun.wait(20)
    waiting = [threads.submit(made.append, i) for i in range(5)]
    threading.Timer(0.05, release.set).start()
    threads.close()
    assert not any(thread.is_alive() for thread in threads._threads)
    assert made == []
    # One of the two may not have begun either.
    assert all(call.done() for call in running)
    for call in waiting:
        assert call.cancel()
        assert not call.run()
        with pytest.raises(CancelledError):
            call.result()


class Interrupt(BaseException):
    """Something that is no error of a task, as KeyboardInterrupt is."""


def interrupt():
    raise Interrupt


def test_an_interrupt_ends_what_its_thread_does(one):
    """One of the caller is raised at once; one of a thread reaches whoever waits for the call."""
    begun, release = threading.Event(), threading.Event()
    busy = one.submit(lambda: (begun.set(), release.wait(20)))
    assert begun.wait(20)
    own, other = one.submit(interrupt), one.submit(interrupt)
    with pytest.raises(Interrupt):
        own.run()
    assert own.done()
    release.set()
    assert busy.result()
    with pytest.raises(Interrupt):
        other.result()
    assert one.submit(abs, -1).result() == 1


def test_threads_end_with_the_object():
    threads = Threads(2, lambda: None)
    started, gone = threads._threads, weakref.ref(threads)
    assert threads.submit(abs, -1).result() == 1
    del threads
    gc.collect()
    assert gone() is None
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


def test_no_thread_is_left_if_one_cannot_be_started(monkeypatch):
    started, start = [], threading.Thread.start

    def fail(thread):
        if started:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError):
        Threads(2, lambda: None)
    gc.collect()
    started[0].join(20)
    assert not started[0].is_alive()


def test_every_thread_begins_with_the_initializer():
    local = threading.local()
    threads = Threads(1, partial(setattr, local, "ready", True))
    assert threads.submit(lambda: local.ready).result()
    threads.close()
    assert not hasattr(local, "ready")


@pytest.mark.parametrize("watched", [True, False])
def test_a_call_that_is_over_refers_to_nothing_but_its_result(watched):
    array = np.zeros(3)
    gone = weakref.ref(array)
    call = Call(np.sum, (array,), watched)
    assert call.run()
    del array
    gc.collect()
    assert gone() is None
    assert call.result() == 0


@pytest.mark.parametrize("shape", [(1,), (4,), (2, 50), (3, 8)])
def test_arrays_apart_share_no_pair_of_cache_lines(shape):
    arrays = [zeros_apart(*shape) for _ in range(3)]
    rows = [row for array in arrays for row in np.atleast_2d(array)]
    pairs = []
    for row in rows:
        assert row.flags.c_contiguous
        assert (row == 0).all()
        first = row.__array_interface__["data"][0]
        pairs.append(set(range(first // 128, (first + row.nbytes - 1) // 128 + 1)))
    assert len(set.union(*pairs)) == sum(map(len, pairs))


# Kernels that threads share


def additions(n=40):
    """The arguments of a kernel that adds one to n rows, two rows a part, and the rows."""
    rows = np.zeros((n, 3))
    columns, sums = np.arange(n, dtype=np.int32), np.zeros((n // 2, 3))
    return (rows, np.ones((n, 3)), columns, 1.0, 2, sums), rows


@pytest.mark.parametrize("n_parts", [2, 7, 20])
def test_every_part_of_a_kernel_is_done_once(n_parts, monkeypatch):
    """Whoever takes it: the calling thread from the front, others from the end."""
    monkeypatch.setattr(module, "cpu_count", lambda: 4)
    threads = Threads(3, lambda: None)
    arguments, rows = additions()
    for i in range(500):
        assert threads.share_kernel(lazy_columns.add_to_columns, arguments, 0, 20, n_parts)
        assert_array_equal(rows, i + 1)
    job = int(threads._board[_team.JOB])
    assert (job & 255) + (job >> 8 & 255) == n_parts
    threads.close()


def test_threads_take_a_share_of_a_kernel(monkeypatch):
    monkeypatch.setattr(module, "cpu_count", lambda: 2)
    threads = Threads(1, lambda: None)
    arguments, _ = additions(20_000)
    deadline = time.monotonic() + 20
    helped = 0
    while not helped:
        threads.share_kernel(lazy_columns.add_to_columns, arguments, 0, 10_000, 100)
        helped = int(threads._board[_team.JOB]) & 255
        assert time.monotonic() < deadline, "the thread takes no part"
    threads.close()


def test_a_kernel_is_shared_if_threads_watch(one):
    """If not, the caller is told, and nothing has been done."""
    arguments, rows = additions()
    assert one.share_kernel(lazy_columns.add_to_columns, arguments, 0, 20, 4) == one._watched
    assert_array_equal(rows, int(one._watched))


def test_of_two_kernels_at_a_time_one_is_shared(monkeypatch):
    """The other is done by the thread that calls it, without the board."""
    monkeypatch.setattr(module, "cpu_count", lambda: 2)
    threads = Threads(1, lambda: None)
    arguments, rows = additions()
    with threads._leading:
        assert threads.share_kernel(lazy_columns.add_to_columns, arguments, 0, 20, 4)
    assert_array_equal(rows, 1)
    assert threads._board[_team.JOB] == 0
    threads.close()


def test_workers_share_a_kernel_in_any_case(monkeypatch):
    """Also if the threads cannot take parts by themselves."""
    for tell in (True, False):
        arguments, rows = additions()
        with Workers(2) as workers:
            if not tell:
                monkeypatch.setattr(workers._pool, "share_kernel", lambda *args: False)
            workers.share_kernel(lazy_columns.add_to_columns, arguments, 20, 2)
        assert_array_equal(rows, 1)
    arguments, rows = additions()
    Workers(1).share_kernel(lazy_columns.add_to_columns, arguments, 20, 2)
    assert_array_equal(rows, 1)


def test_a_kernel_counts_no_references_to_arrays_on_a_board():
    """The owner of an array is not on the board, so that no thread touches it."""
    board, (arguments, _) = _team.new_board(), additions()
    lazy_columns.add_to_columns(*arguments, 0, 20, 2, board)
    posted = board[_team._ARGUMENTS : _team._ARGUMENTS + 2]
    assert_array_equal(posted, 0)
