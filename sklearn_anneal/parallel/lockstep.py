"""Restarts that pass over data together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from sklearn import get_config

from .overflow import judged_by_results
from .workers import in_thread

_ENDED = "another restart has failed, or the fit has ended"


J = TypeVar("J")
R = TypeVar("R")
V = TypeVar("V")


class Lockstep(Generic[J, R]):
    """Lets restarts pass over the data together, so that these are read once for all of them.

    Every restart runs in a thread of its own. It waits until all that are still running ask for a
    visit; then the visits of all are made.

    Parameters
    ----------
    n : int
        Number of restarts.
    visit_all : callable
        Makes several visits.
    """

    def __init__(self, n: int, visit_all: Callable[[list[J]], list[R]]):
        self._n = n
        self._visit_all = visit_all
        self._lock = threading.Lock()
        self._waiting: list[tuple[J, Future[R]]] = []
        self._over = threading.Event()

    def pass_with(self, job: J) -> R:
        """Wait for the other restarts, and return the result of a visit."""
        result: Future[R] = Future()
        with self._lock:
            if self._over.is_set():
                raise CancelledError(_ENDED)
            self._waiting.append((job, result))
            batch = self._batch()
        self._run(batch)
        return result.result()

    def leave(self, failed: bool) -> None:
        """Go on without a restart that has ended; end all others if it has failed."""
        if failed:
            self._end()
        with self._lock:
            self._n -= 1
            batch = self._batch()
        self._run(batch)

    def _batch(self) -> list[tuple[J, Future[R]]]:
        """Take all visits that wait, if no other is to come before them."""
        if self._over.is_set() or len(self._waiting) < self._n:
            return []
        batch, self._waiting = self._waiting, []
        return batch

    def _run(self, batch: list[tuple[J, Future[R]]]) -> None:
        if not batch:
            return
        jobs, results = zip(*batch, strict=True)
        try:
            found = list(zip(results, self._visit_all(list(jobs)), strict=True))
        except BaseException as error:
            for result in results:
                result.set_exception(error)
            return
        for result, value in found:
            result.set_result(value)

    def map(self, function: Callable[..., V], tasks: list[tuple], common: tuple = ()) -> list[V]:
        """``[function(*common, *task) for task in tasks]``, each in a thread of its own.

        Raises
        ------
        RuntimeError
            If the system cannot start a thread for each of them.
        """
        config = get_config()

        def one(task: tuple) -> V:
            failed = True
            try:
                with judged_by_results():
                    value = in_thread(self._over, config, function, *common, *task)
                failed = False
                return value
            finally:
                self.leave(failed)

        pool = ThreadPoolExecutor(len(tasks), thread_name_prefix="restart")
        try:
            futures = [_begun(pool, len(tasks), one, task) for task in tasks]
            wait(futures)
        finally:
            # After an error or an interrupt some restarts wait for others, which will not come. A
            # second interrupt must not prevent their end.
            try:
                self._end()
            finally:
                self._end()
                pool.shutdown(cancel_futures=True)
        errors = [error for error in (future.exception() for future in futures) if error]
        # A restart that was ended has an error too, which is not the cause.
        for error in sorted(errors, key=lambda error: isinstance(error, CancelledError)):
            raise error
        return [future.result() for future in futures]

    def _end(self) -> None:
        """End all restarts that wait, and those that would; nothing is left to a second call."""
        with self._lock:
            self._over.set()
            for _, result in self._waiting:
                if not result.done():
                    result.set_exception(CancelledError(_ENDED))


def _begun(pool: ThreadPoolExecutor, n: int, function: Callable[..., V], task: tuple) -> Future[V]:
    """Begin one of n restarts."""
    try:
        return pool.submit(function, task)
    except RuntimeError as error:
        raise RuntimeError(
            f"The {n} restarts of a fit to data in parts have a thread each, but the system could "
            f"not start so many ({error}). Lower n_init, or end other threads and processes."
        ) from error
