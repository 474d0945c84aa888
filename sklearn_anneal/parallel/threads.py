"""Threads that are ready for the next call.

The steps of a minibatch take some tenths of a millisecond each. A thread that sleeps takes almost
as long to wake up, and so does the one that waits for its result. Threads therefore watch for the
next call, or for a result, for a short time before they sleep. Meanwhile they hold no lock, and
help with kernels whose work they can share (:mod:`sklearn_anneal.kernels._team`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import cache, partial
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
from joblib import cpu_count

from ..kernels import load
from .overflow import judged_by_results

# How long to watch before sleeping, in rounds of about ten nanoseconds.
_WATCH = 100_000
# How many rounds a thread lets pass between a call and its beginning. The thread that has made the
# call holds the interpreter's lock until it begins with work of its own. A thread that waits for a
# locked lock goes to sleep.
_BEFORE_CALL = 800
_NO_BOARD = np.empty(0, np.int64)


@cache
def _wait() -> Callable:
    wait: Callable = load("waiting").wait
    return wait


@cache
def _team() -> ModuleType:
    return load("_team")


class _Signal:
    """A number that threads increase, and that others watch."""

    def __init__(self) -> None:
        self.number = np.zeros(1, np.uint32)

    def increase(self) -> None:
        self.number += 1

    def watch(self, value: int, n_more: int = 0, board: np.ndarray = _NO_BOARD) -> None:
        """Wait until the number is no longer this value, but not for long.

        Once it has changed, ``n_more`` further rounds pass. Meanwhile the thread helps with the
        work on a board.
        """
        _wait()(self.number, value, _WATCH, n_more, board, np.ones(1))


class Call:
    """A call of a function, which a thread makes unless it is taken back before.

    Parameters
    ----------
    function : callable
    arguments : tuple
    watched : bool
        Whether to watch for the result before sleeping.
    """

    def __init__(self, function: Callable, arguments: tuple, watched: bool):
        self._function, self._arguments = function, arguments
        self._signal = _Signal() if watched else None
        # Whoever can acquire the first lock makes the call. The second one is held until its end.
        self._begun, self._running = threading.Lock(), threading.Lock()
        self._running.acquire()
        self._cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None

    def cancel(self) -> bool:
        """Take the call back, and return whether it was taken back now or before."""
        if self._begun.acquire(blocking=False):
            self._cancelled = True
            self._error = CancelledError("the call was taken back before it had begun")
            self._end()
        return self._cancelled

    def run(self, everything: bool = False) -> bool:
        """Make the call in this thread; False if it has begun or was taken back.

        An error belongs to the result. An interrupt of this thread is raised here, unless the
        result is to have ``everything``.
        """
        if not self._begun.acquire(blocking=False):
            return False
        try:
            self._result = self._function(*self._arguments)
        except Exception as error:
            self._error = error
        except BaseException as error:
            self._error = error
            if not everything:
                raise
        finally:
            self._end()
        return True

    def _end(self) -> None:
        # The objects to which the function refers can be large.
        self._function, self._arguments = _nothing, ()
        self._running.release()
        if self._signal is not None:
            self._signal.increase()

    def done(self) -> bool:
        """Whether the call is over, or was taken back."""
        return not self._running.locked()

    def result(self) -> Any:
        """Wait for the end of the call; return its result, or raise its error.

        Raises
        ------
        CancelledError
            If the call was taken back.
        """
        if self._signal is not None and not self.done():
            self._signal.watch(0)
        with self._running:
            pass
        if self._error is not None:
            error = self._error
            try:
                raise error
            finally:
                # The error refers to this frame.
                del error
        return self._result


def _nothing() -> None:
    """Do nothing."""


class Threads:
    """Threads that make calls in the order in which they are submitted.

    They watch for calls only if there is a processor for each of them and for the thread that made
    them; otherwise they would take time from those that work. They end when this object does.

    Parameters
    ----------
    n : int
    initializer : callable
        Each thread calls it at first.

    Raises
    ------
    RuntimeError
        If the system cannot start as many threads. Those that it has started end.
    """

    def __init__(self, n: int, initializer: Callable[[], None]):
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._signal = _Signal()
        self._watched = n < cpu_count()
        if self._watched:
            # The kernel is compiled before a thread needs it.
            self._signal.watch(1)
        self._leading = threading.Lock()
        # A thread must not refer to this object, which would then never end.
        common = self._calls, self._signal
        self._asleep: set[int] = set()
        self._board = _team().new_board() if self._watched else _NO_BOARD
        work = (*common, self._watched, self._board, self._asleep, initializer)
        self._threads = [threading.Thread(target=_thread, args=work, daemon=True) for _ in range(n)]
        self._dismiss = partial(_dismiss, *common, n)
        weakref.finalize(self, self._dismiss)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            # The error refers to this object, which lives as long as the error.
            self._dismiss()
            raise

    def submit(self, function: Callable, *arguments: Any) -> Call:
        """Let a thread call ``function(*arguments)``."""
        call = Call(function, arguments, self._watched)
        self._calls.put(call)
        self._signal.increase()
        return call

    def share_kernel(
        self, kernel: Any, arguments: tuple, first: int, last: int, n_parts: int
    ) -> bool:
        """Call a kernel whose work the threads share with the calling thread.

        Returns False, and does nothing, if the threads do not watch for work. If they share the
        work of another call at the moment, the calling thread does all of this one.
        """
        if not self._watched:
            return False
        if not self._leading.acquire(blocking=False):
            kernel.part(arguments, first, last)
            return True
        try:
            for _ in range(len(self._asleep)):
                # A thread that sleeps joins the others when it has made a call.
                self.submit(_nothing)
            kernel(*arguments, first, last, n_parts, self._board)
        finally:
            self._leading.release()
        return True

    def close(self) -> None:
        """Wait for the calls that have begun, take back all others, and end the threads."""
        try:
            self._dismiss()
        except BaseException:
            # The interrupt may have come before all threads were to end.
            self._dismiss()
            raise
        for thread in self._threads:
            thread.join()


def _dismiss(calls: SimpleQueue[Call | None], signal: _Signal, n: int) -> None:
    """Take back all calls that have not begun, and let threads end."""
    try:
        while True:
            call = calls.get_nowait()
            if call is not None:
                call.cancel()
    except Empty:
        pass
    for _ in range(n):
        calls.put(None)
    signal.increase()


def _thread(*work: Any) -> None:
    with judged_by_results():
        _work(*work)


def _work(
    calls: SimpleQueue[Call | None],
    signal: _Signal,
    watched: bool,
    board: np.ndarray,
    asleep: set[int],
    initializer: Callable[[], None],
) -> None:
    """Make calls, in a thread of its own."""
    initializer()
    while True:
        call = None
        value = int(signal.number[0])
        try:
            call = calls.get_nowait()
        except Empty:
            if watched:
                signal.watch(value, _BEFORE_CALL, board)
            asleep.add(threading.get_ident())
            call = calls.get()
            asleep.discard(threading.get_ident())
        if call is None:
            return
        call.run(everything=True)
        # The result can be large.
        del call
