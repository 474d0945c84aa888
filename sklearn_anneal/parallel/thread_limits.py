"""Limits on the threads of BLAS and OpenMP, because parallelism is the task of the workers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller(api: str) -> ThreadpoolController:
    return ThreadpoolController().select(user_api=api)


class _Holder:
    """One context that sets the limit of :class:`_BlasLimit`."""

    left = False


class _BlasLimit:
    """Limits BLAS to one thread for as long as any context needs the limit.

    The number of BLAS threads belongs to the whole process. If each fit restored what it had
    found, the first fit to end would lift the limit of the others, and the last one would restore
    the limit itself. So the first holder sets the limit, and the last one to leave lifts it.

    Holders are members of a set and are not counted, because an interrupt can come at any moment:
    leaving is right whether or not the holder had entered, and however often it leaves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: set[_Holder] = set()
        self._limiter: Any = None
        # The thread that has set the limit, which alone can change it while it lives.
        self._setter = threading.main_thread()
        if hasattr(os, "register_at_fork"):
            # The lock is held during a fork. The child would otherwise inherit changes that are
            # half made, and a lock whose owner does not exist there.
            os.register_at_fork(
                before=lambda: self._lock.acquire(),
                after_in_parent=lambda: self._lock.release(),
                after_in_child=self._after_fork,
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context in which the limit is set, unless no thread can be started to set it."""
        holder = _Holder()
        try:
            _in_passing_thread(partial(self._enter, holder))
            yield
        finally:
            try:
                self._end(holder)
            except BaseException:
                # The interrupt may have come before the holder had left.
                self._end(holder)
                raise

    def _end(self, holder: _Holder) -> None:
        leave = partial(self._leave, holder)
        if not _in_passing_thread(leave):
            leave()

    def _enter(self, holder: _Holder) -> None:
        with self._lock:
            # After an interrupt, the thread that enters can come later than the one that leaves.
            if holder.left:
                return
            self._holders.add(holder)
            if self._limiter is None:
                self._setter = threading.current_thread()
                self._limiter = _controller("blas").limit(limits=1)

    def _leave(self, holder: _Holder) -> None:
        with self._lock:
            holder.left = True
            self._holders.discard(holder)
            if not self._holders:
                self._lift()

    def _lift(self) -> None:
        if self._limiter is not None:
            # After an interrupt nobody has waited for the end of the thread that set the limit.
            self._setter.join()
            # The end of the context restores the number of threads. It also gives up the right
            # to change that number, which threadpoolctl grants to one thread at a time.
            with self._limiter:
                pass
            self._limiter = None

    def _after_fork(self) -> None:
        """Lift the limit in a child process: the fits that set it run in the parent."""
        self._lock = threading.Lock()
        self._holders = set()
        self._lift()


def _in_passing_thread(function: Callable[[], None]) -> bool:
    """Call a function in a thread that ends at once; False if no thread can be started.

    Interrupts reach the main thread only, so that the function is never cut short. And the thread
    must end, because threadpoolctl lets only one living thread change the number of BLAS threads:
    that right should stay with the user. The end of the interpreter does not wait for the thread.
    """
    thread = threading.Thread(target=function, daemon=True)
    handled = sys.exception()
    try:
        thread.start()
    except RuntimeError as error:
        interrupt = error.__context__
        if interrupt is not None and interrupt is not handled:
            # It came while this thread waited for the start of the other one. The wait then ends
            # with a second error, because it has not got its lock back.
            raise interrupt from None
        return False
    thread.join()
    return True


_BLAS_LIMIT = _BlasLimit()


@contextmanager
def _limited(api: str) -> Iterator[None]:
    """Context in which the calling thread itself sets the limit of one thread."""
    # Without limits, threadpoolctl changes nothing but notes what it has to restore. The limit is
    # set afterwards, so that an interrupt cannot leave it behind.
    before = _controller(api).limit(limits=None)
    try:
        before.__enter__()
        _controller(api).limit(limits=1)
        yield
    finally:
        try:
            before.__exit__(None, None, None)
        except BaseException:
            # The interrupt may have come before everything was restored.
            before.__exit__(None, None, None)
            raise


def one_openmp_thread() -> Any:
    """Context in which OpenMP runs one thread; that setting belongs to the calling thread."""
    return _limited("openmp")


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which BLAS and OpenMP run one thread: parallelism is this module's task."""
    with _BLAS_LIMIT.held(), one_openmp_thread():
        # If the caller's thread has set a limit of its own, no other thread can change it.
        own = any(library["num_threads"] != 1 for library in _controller("blas").info())
        with _limited("blas") if own else nullcontext():
            yield
