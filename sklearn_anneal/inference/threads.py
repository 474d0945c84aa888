"""Threads that are ready for the next call.

The steps of a minibatch take some tenths of a millisecond each. A thread that sleeps takes almost
as long to wake up, and so does the one that waits for its result. Threads therefore watch for the
next call, or for a result, for a short time before they sleep. Meanwhile they hold no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from joblib import cpu_count

from ..kernels import load

# How long to watch before sleeping, in rounds of about ten nanoseconds.
_WATCH = 25_000
# How long to wait after a call has come. The thread that made it needs the interpreter's lock until
# it begins with work of its own, and a thread that asked for the lock before that would sleep.
_LET_GO = 800


@cache
def _wait() -> Callable:
    return load("waiting").wait  # type: ignore[no-any-return]


class _Signal:
    """A number that one thread increases, and that others watch."""

    def __init__(self) -> None:
        self.number = np.zeros(1, np.uint32)

    def give(self) -> None:
        self.number += 1

    def watch(self, value: int, n_more: int = 0) -> None:
        """Return some rounds after the number has changed, or when this takes too long."""
        _wait()(self.number, value, _WATCH, n_more, np.ones(1))


class Call:
    """A call of a function, which a thread makes unless the caller takes it back before.

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
        self._result: Any = None
        self._error: BaseException | None = None

    def cancel(self) -> bool:
        """Take the call back; False if it has begun."""
        return self._begun.acquire(blocking=False)

    def run(self) -> bool:
        """Make the call in this thread; False if it has begun or was taken back."""
        if not self._begun.acquire(blocking=False):
            return False
        try:
            self._result = self._function(*self._arguments)
        except BaseException as error:
            self._error = error
        finally:
            # What the function refers to can be large.
            self._function, self._arguments = _nothing, ()
            self._running.release()
            if self._signal is not None:
                self._signal.give()
        return True

    def done(self) -> bool:
        """Whether the call is over."""
        return not self._running.locked()

    def result(self) -> Any:
        """Wait for the end of the call; return its result, or raise its error."""
        if self._signal is not None and not self.done():
            self._signal.watch(0)
        with self._running:
            pass
        if self._error is not None:
            error, self._error = self._error, None
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
    them; otherwise they would take time from those that work.

    Parameters
    ----------
    n : int
    initializer : callable
        Each thread calls it at first.
    """

    def __init__(self, n: int, initializer: Callable[[], None]):
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._signal = _Signal()
        self._watched = n < cpu_count()
        if self._watched:
            # The kernel is compiled before a thread needs it.
            self._signal.watch(1)
        self._initializer = initializer
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(n)]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable, *arguments: Any) -> Call:
        """Let a thread call ``function(*arguments)``."""
        call = Call(function, arguments, self._watched)
        self._calls.put(call)
        self._signal.give()
        return call

    def close(self) -> None:
        """Wait for the calls that have begun, take back all others, and end the threads."""
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            if call is not None:
                call.cancel()
        for _ in self._threads:
            self._calls.put(None)
        self._signal.give()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        self._initializer()
        while (call := self._following()) is not None:
            call.run()
            # The result can be large.
            del call

    def _following(self) -> Call | None:
        if self._watched:
            value = int(self._signal.number[0])
            try:
                return self._calls.get_nowait()
            except Empty:
                self._signal.watch(value, _LET_GO)
        return self._calls.get()
