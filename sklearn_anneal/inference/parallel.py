"""Parallel work through joblib: chunks and restarts, seeds, and the limit on BLAS threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController


@cache
def _controller(api: str) -> ThreadpoolController:
    return ThreadpoolController().select(user_api=api)


class _BlasLimit:
    """One BLAS thread for as long as anybody is in; the setting belongs to the whole process.

    Each fit restoring what it found would let the first one out lift the limit of the others,
    and the last one out restore the limit itself. threadpoolctl lets one living thread change the
    setting, so that the changes are made in threads that end at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                _in_passing_thread(self._limit)

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _in_passing_thread(self._limiter.restore_original_limits)

    def _limit(self) -> None:
        self._limiter = _controller("blas").limit(limits=1)


def _in_passing_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


_BLAS_LIMIT = _BlasLimit()


def one_openmp_thread() -> Any:
    """Context in which OpenMP runs one thread; that setting belongs to the calling thread."""
    return _controller("openmp").limit(limits=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which BLAS and OpenMP run one thread: parallelism is this module's task."""
    _BLAS_LIMIT.enter()
    try:
        with ExitStack() as stack:
            stack.enter_context(one_openmp_thread())
            # Where the caller's thread has a limit of its own, only that thread can change it.
            if any(library["num_threads"] != 1 for library in _controller("blas").info()):
                stack.enter_context(_controller("blas").limit(limits=1))
            yield
    finally:
        _BLAS_LIMIT.leave()


def seed_sequence(random_state: np.random.RandomState) -> np.random.SeedSequence:
    """The root of the tree of seeds, from one 128-bit number of ``random_state``."""
    words = random_state.randint(0, 2**32, size=4, dtype=np.uint32)
    return np.random.SeedSequence([int(word) for word in words])


def generator(seed: np.random.SeedSequence, *path: int) -> np.random.Generator:
    """The generator at a place of the tree of seeds."""
    return np.random.default_rng(_descend(seed, path))


def legacy_generator(seed: np.random.SeedSequence, *path: int) -> np.random.RandomState:
    """The same for code that takes a ``RandomState``."""
    return np.random.RandomState(np.random.MT19937(_descend(seed, path)))


def _descend(seed: np.random.SeedSequence, path: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *path))


class Workers:
    """A pool that lives as long as a fit.

    Parameters
    ----------
    n_jobs : int or None
        As in scikit-learn.
    shared_memory : bool, default=False
        Whether the tasks must see the objects of this process.

    Notes
    -----
    Threads are preferred, since kernels release the interpreter's lock;
    ``joblib.parallel_config(backend=…)`` is honoured. Results come in the order of the tasks, so
    that sums do not depend on the number of workers.
    """

    def __init__(self, n_jobs: int | None, shared_memory: bool = False):
        how = {"require": "sharedmem"} if shared_memory else {"prefer": "threads"}
        self._parallel = Parallel(n_jobs=n_jobs, return_as="generator", **how)
        self.n_workers = effective_n_jobs(self._parallel.n_jobs)
        self._running = False

    def __enter__(self) -> Workers:
        if self.n_workers > 1:
            self._parallel.__enter__()
            self._running = True
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._running:
            self._running = False
            self._parallel.__exit__(*exception)

    def __reduce__(self) -> Any:
        # A pool stays where it is: in another process its tasks run one after another.
        return Workers, (1,)

    def map(self, function: Callable, tasks: Iterable[tuple]) -> list:
        """``[function(*task) for task in tasks]``."""
        return list(self.imap(function, tasks))

    def imap(self, function: Callable, tasks: Iterable[tuple]) -> Iterator[Any]:
        """The same one after another, each as soon as it and all before it are there."""
        if not self._running:
            return (function(*task) for task in tasks)
        parent = os.getpid()
        return self._parallel(delayed(_in_worker)(parent, function, *task) for task in tasks)


def _in_worker(parent: int, function: Callable, *task: Any) -> Any:
    """Run a task; in another process, where the caller's limit does not reach, limit BLAS."""
    if os.getpid() == parent:
        return function(*task)
    with one_thread():
        return function(*task)


SEQUENTIAL = Workers(1)
"""Workers that do everything in the calling thread."""
