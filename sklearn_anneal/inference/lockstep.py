"""Restarts that pass over data together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any

from sklearn import config_context, get_config

from .overflow import judged_by_results


class Lockstep:
    """Lets restarts pass over the data together, so that these are read once for all of them.

    Every restart runs in a thread of its own. It waits until all that are still running ask for a
    sweep; then the sweeps of all are made.

    Parameters
    ----------
    n : int
        Number of restarts.
    sweep : callable
        Makes several sweeps.
    """

    def __init__(self, n: int, sweep: Callable[[list[Any]], list[Any]]):
        self._n = n
        self._sweep = sweep
        self._lock = threading.Lock()
        self._waiting: list[tuple[Any, Future[Any]]] = []
        self._over = False

    def pass_with(self, job: Any) -> Any:
        """Wait for the other restarts, and return the result of a sweep."""
        result: Future[Any] = Future()
        with self._lock:
            if self._over:
                raise CancelledError("another restart has failed")
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

    def _batch(self) -> list[tuple[Any, Future[Any]]]:
        """Take all sweeps that wait, if no other is to come before them."""
        if len(self._waiting) < self._n:
            return []
        batch, self._waiting = self._waiting, []
        return batch

    def _run(self, batch: list[tuple[Any, Future[Any]]]) -> None:
        if not batch:
            return
        try:
            found = self._sweep([job for job, _ in batch])
        except BaseException as error:
            for _, result in batch:
                result.set_exception(error)
            return
        for (_, result), value in zip(batch, found, strict=True):
            result.set_result(value)

    def map(self, function: Callable, tasks: list[tuple], common: tuple = ()) -> list:
        """``[function(*common, *task) for task in tasks]``, each in a thread of its own."""
        config = get_config()

        def one(task: tuple) -> Any:
            failed = True
            try:
                with config_context(**config), judged_by_results():
                    value = function(*common, *task)
                failed = False
                return value
            finally:
                self.leave(failed)

        with ThreadPoolExecutor(len(tasks), thread_name_prefix="restart") as pool:
            futures = [pool.submit(one, task) for task in tasks]
            try:
                wait(futures)
            except BaseException:
                self._end()
                raise
        errors = [error for error in (future.exception() for future in futures) if error]
        # A restart that was ended has an error too, which is not the cause.
        for error in sorted(errors, key=lambda error: isinstance(error, CancelledError)):
            raise error
        return [future.result() for future in futures]

    def _end(self) -> None:
        """End all restarts that wait, and those that would."""
        with self._lock:
            self._over, left, self._waiting = True, self._waiting, []
        for _, result in left:
            result.set_exception(CancelledError("another restart has failed, or the fit has ended"))
