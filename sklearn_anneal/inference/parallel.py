"""Parallel work through joblib: chunks and restarts, seeds, and the limit on BLAS threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import ThreadingBackend, get_active_backend
from sklearn import config_context, get_config
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
    that sums do not depend on the number of workers. joblib asks every 10 ms whether a result is
    there, which is as long as a pass over small data: threads are those of a pool that tells. The
    calling thread is one of the workers, because a thread that only waits for the others wakes up
    at every result, and holds the interpreter's lock when they need it.
    """

    def __init__(self, n_jobs: int | None, shared_memory: bool = False):
        how = {"require": "sharedmem"} if shared_memory else {"prefer": "threads"}
        self._parallel = Parallel(n_jobs=n_jobs, return_as="generator", **how)
        self.n_workers = effective_n_jobs(self._parallel.n_jobs)
        backend, _ = get_active_backend(**how)
        self._threads = isinstance(backend, ThreadingBackend)
        self._pool: ThreadPoolExecutor | None = None
        self._running = False

    def __enter__(self) -> Workers:
        if self.n_workers > 1:
            if self._threads:
                self._pool = ThreadPoolExecutor(self.n_workers - 1)
            else:
                self._parallel.__enter__()
            self._running = True
        return self

    @property
    def in_threads(self) -> bool:
        """Whether tasks run in several threads of this process now."""
        return self._pool is not None

    def __exit__(self, *exception: Any) -> None:
        if not self._running:
            return
        self._running = False
        if self._pool is None:
            self._parallel.__exit__(*exception)
        else:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __reduce__(self) -> Any:
        # A pool stays where it is: in another process its tasks run one after another.
        return Workers, (1,)

    def map(self, function: Callable, tasks: Iterable[tuple]) -> list:
        """``[function(*task) for task in tasks]``."""
        return list(self.imap(function, tasks))

    def share(self, function: Callable[[slice], None], n: int, at_least: int) -> None:
        """Call a function that writes into arrays of this process, for all parts of 0, …, n − 1.

        In threads there are two parts for each worker, of ``at_least`` elements or more.
        """
        if self._pool is None or n <= at_least:
            function(slice(0, n))
            return
        size = max(at_least, -(-n // (2 * self.n_workers)))
        self.map(function, ((slice(start, min(start + size, n)),) for start in range(0, n, size)))

    def imap(self, function: Callable, tasks: Iterable[tuple]) -> Iterator[Any]:
        """The same one after another, each as soon as it and all before it are there."""
        if not self._running:
            return (function(*task) for task in tasks)
        if self._pool is not None:
            return _in_order(self._pool, 2 * self.n_workers, function, tasks)
        parent = os.getpid()
        return self._parallel(delayed(_in_worker)(parent, function, *task) for task in tasks)


def _in_order(
    pool: ThreadPoolExecutor, ahead: int, function: Callable, tasks: Iterable[tuple]
) -> Iterator[Any]:
    """Results in order, of tasks that are made when at most ``ahead`` others wait.

    In the place of waiting, the calling thread takes the next task that nobody has begun.
    """
    waiting: deque[tuple[Future, Callable[[], Any]]] = deque()
    config = get_config()

    def first() -> Any:
        while not waiting[0][0].done() and _take_over(waiting):
            pass
        return waiting.popleft()[0].result()

    for task in tasks:
        call = partial(_in_thread, config, function, *task)
        waiting.append((pool.submit(call), call))
        if len(waiting) >= ahead:
            yield first()
    while waiting:
        yield first()


def _take_over(waiting: deque[tuple[Future, Callable[[], Any]]]) -> bool:
    """Do the first task that no thread of the pool has begun; False if there is none."""
    for i, (future, call) in enumerate(waiting):
        if not future.done() and future.cancel():
            done: Future = Future()
            try:
                done.set_result(call())
            except Exception as error:
                done.set_exception(error)
            waiting[i] = done, call
            return True
    return False


def _in_thread(config: dict[str, Any], function: Callable, *task: Any) -> Any:
    """Run a task with the caller's configuration of scikit-learn, which belongs to a thread."""
    with config_context(**config):
        return function(*task)


def _in_worker(parent: int, function: Callable, *task: Any) -> Any:
    """Run a task; in another process, where the caller's limit does not reach, limit BLAS."""
    if os.getpid() == parent:
        return function(*task)
    with one_thread():
        return function(*task)


SEQUENTIAL = Workers(1)
"""Workers that do everything in the calling thread."""


class SharedRows:
    """Arrays with as many rows, into which the tasks of one step write side by side.

    The threads of a process share the arrays, which are made when they are first asked for. A
    task in another process has some of its own, and what it returns is copied.

    Parameters
    ----------
    n_rows : int
    columns : dict of int
        The number of columns of each array.
    dtype : dtype
    """

    def __init__(self, n_rows: int, columns: dict[str, int], dtype: Any):
        self._asked = n_rows, columns, dtype
        self._arrays: dict[str, np.ndarray] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return SharedRows, self._asked

    def _whole(self) -> dict[str, np.ndarray]:
        n_rows, columns, dtype = self._asked
        with self._lock:
            if not self._arrays:
                self._arrays = {key: np.empty((n_rows, n), dtype) for key, n in columns.items()}
        return self._arrays

    def of(self, rows: slice | np.ndarray) -> dict[str, np.ndarray]:
        """Arrays for some rows, to be written: views, or copies if ``rows`` are indices."""
        return {key: array[rows] for key, array in self._whole().items()}

    def joined(self, *parts: tuple[slice, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The rows of consecutive parts, each given as its rows and the arrays of a task."""
        whole = self._whole()
        for rows, part in parts:
            for key, array in whole.items():
                if part[key].base is not array:
                    array[rows] = part[key]
        every = slice(parts[0][0].start, parts[-1][0].stop)
        return {key: array[every] for key, array in whole.items()}
