"""What the package does to the threads of others."""

from __future__ import annotations

import threading

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from sklearn_anneal.inference.parallel import one_thread


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
