"""What the package does to the threads of others."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import config_context, get_config
from threadpoolctl import ThreadpoolController, threadpool_limits

from sklearn_anneal.inference.parallel import SharedRows, Workers, one_thread
from sklearn_anneal.inference.units import Sequences


def threads(api):
    found = ThreadpoolController().select(user_api=api).info()
    return [library["num_threads"] for library in found]


def test_limits_that_overlap_leave_the_process_as_it_was():
    """The first out must not lift the limit of the other, nor the last one keep it."""
    if not threads("blas"):
        pytest.skip("no BLAS library that threadpoolctl knows")
    before = threads("blas")
    inside, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other():
        with one_thread():
            inside.set()
            leave.wait()
        left.set()

    with one_thread():
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
    during = threads("blas")
    leave.set()
    thread.join()
    assert left.is_set()
    assert during == [1] * len(before)
    assert threads("blas") == before


def test_limit_is_lifted_after_an_error():
    before = threads("blas"), threads("openmp")
    with pytest.raises(RuntimeError), one_thread():
        raise RuntimeError
    assert (threads("blas"), threads("openmp")) == before


@pytest.mark.parametrize("limit", [1, 2])
def test_limit_within_a_limit_of_the_caller(limit):
    before = threads("blas"), threads("openmp")
    with threadpool_limits(limit):
        inside = threads("blas"), threads("openmp")
        with one_thread():
            assert set(threads("blas") + threads("openmp")) <= {1}
        assert (threads("blas"), threads("openmp")) == inside
    assert (threads("blas"), threads("openmp")) == before


def _second(i):
    if i == 1:
        raise ValueError("the second task")
    return i, threading.get_ident(), get_config()["assume_finite"]


def test_threads_work_in_order_with_the_callers_configuration():
    with config_context(assume_finite=True), Workers(2) as workers:
        results = list(workers.imap(_second, ((i,) for i in range(2, 40))))
    assert [result[0] for result in results] == list(range(2, 40))
    assert all(finite for *_, finite in results)
    assert any(thread != threading.get_ident() for _, thread, _ in results)


def test_the_calling_thread_works_where_it_would_wait():
    """Two workers are this thread and another: both are needed for the barrier to open."""
    barrier = threading.Barrier(2, timeout=20)

    def meet(i):
        barrier.wait()
        return i, threading.get_ident()

    with Workers(2) as workers:
        results = workers.map(meet, ((i,) for i in range(6)))
    assert [i for i, _ in results] == list(range(6))
    threads = [thread for _, thread in results]
    assert sorted(map(threads.count, set(threads))) == [3, 3]
    assert threads.count(threading.get_ident()) == 3


def test_error_of_a_task_that_the_calling_thread_took_comes_in_its_turn():
    release = threading.Event()

    def task(i):
        if i == 0:
            release.wait(20)
            return i
        release.set()
        raise ValueError(f"task {i}")

    with Workers(2) as workers:
        results = workers.imap(task, ((i,) for i in range(3)))
        assert next(results) == 0
        with pytest.raises(ValueError, match="task 1"):
            next(results)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_error_of_a_task_reaches_the_caller(backend):
    with parallel_config(backend=backend), Workers(2) as workers:
        with pytest.raises(ValueError, match="the second task"):
            list(workers.imap(_second, ((i,) for i in range(5))))


def test_tasks_are_made_when_they_are_about_to_run():
    """All of them at once could be larger than the data."""
    made = []

    def tasks():
        for i in range(50):
            made.append(i)
            yield (i + 2,)

    with Workers(2) as workers:
        results = workers.imap(_second, tasks())
        next(results)
        assert len(made) <= 2 * workers.n_workers
        assert len(list(results)) == 49


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 99, 100, 101, 1000])
def test_shared_work_covers_everything_once(n, n_jobs):
    counts, parts = np.zeros(n, dtype=int), []

    def count(part):
        counts[part] += 1
        parts.append(part)

    with Workers(n_jobs) as workers:
        workers.share(count, n, 100)
    assert (counts == 1).all()
    assert len(parts) == (min(4, -(-n // 100)) if n_jobs == 2 and n else 1)


def test_parts_of_sequences_follow_each_other_and_the_last_are_halves(rng):
    lengths = rng.integers(0, 300, size=1000)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    sequences = Sequences(np.zeros(indptr[-1]), indptr)
    parts = sequences.chunks()
    assert parts[0].start == 0 and parts[-1].stop == len(lengths)
    assert all(a.stop == b.start for a, b in zip(parts[:-1], parts[1:], strict=True))
    sizes = np.array([sequences.take(part).indptr[-1] for part in parts])
    assert len(parts) == 20
    assert np.abs(sizes[:12] - indptr[-1] / 16).max() <= 300
    assert np.abs(sizes[12:] - indptr[-1] / 32).max() <= 300


@pytest.mark.parametrize("lengths", [[200_000, 1, 1], [1, 200_000, 0, 0], [0] * 30 + [90_000]])
def test_parts_of_sequences_of_very_different_lengths(lengths):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    parts = Sequences(np.zeros(indptr[-1]), indptr).chunks()
    assert all(part.start < part.stop for part in parts)
    assert np.concatenate([np.arange(p.start, p.stop) for p in parts]).tolist() == list(
        range(len(lengths))
    )


def _count(shared, rows):
    part = shared.of(rows)
    for array in part.values():
        array[:] = np.arange(rows.start, rows.stop)[:, None]
    return part


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_rows_of_tasks_come_together(backend):
    """In threads without a copy, from other processes with one."""
    shared = SharedRows(10, {"a": 3, "b": 1}, np.float32)
    parts = [slice(0, 4), slice(4, 5), slice(5, 10)]
    with parallel_config(backend=backend), Workers(2) as workers:
        found = workers.map(_count, ((shared, rows) for rows in parts))
    for rows, part in zip(parts, found, strict=True):
        whole = shared.filled(rows, part)
        assert (part["a"].base is whole["a"]) == (backend == "threading")
    for key, width in (("a", 3), ("b", 1)):
        assert whole[key].dtype == np.float32
        expected = np.repeat(np.arange(10.0)[:, None], width, axis=1)
        np.testing.assert_array_equal(whole[key], expected)


def test_rows_of_indices_are_copied_to_their_place():
    shared = SharedRows(4, {"a": 2}, float)
    part = shared.of(np.array([2, 0]))
    part["a"][:] = 7.0
    whole = shared.filled(slice(1, 3), part)
    np.testing.assert_array_equal(whole["a"][1:3], 7.0)
