"""Parallel work through joblib: chunks and restarts, and seeds."""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, nullcontext
from functools import cached_property
from itertools import chain, islice, pairwise, starmap
from typing import Any, Generic, TypeVar

import numpy as np
from joblib.parallel import LokyBackend, MultiprocessingBackend, get_active_backend
from sklearn import config_context, get_config
from sklearn.utils.parallel import Parallel, delayed

from .._compat import PROPERTIES_SHARE_LOCKS, CloudPickler
from .._stack import warn
from ..kernels import MOST_PARTS
from .kept_memory import keep_memory, memory_kept
from .overflow import judged_by_results
from .thread_limits import one_thread
from .threads import Call, Threads

T = TypeVar("T")
V = TypeVar("V")

# So many parts of work that is shared are made for each worker, so that a slow one takes fewer. A
# kernel takes less time to hand out a part, and has twice as many.
_PARTS = 4
# A part that the interpreter hands out has so many times as much work as one of a kernel.
_TIMES_AS_MUCH = 8


def _renew_locks_of_properties() -> None:
    """In a child process, replace locks that other threads of the parent may have held."""
    package = __name__.partition(".")[0]
    modules = [module for name, module in sys.modules.items() if name.startswith(package)]
    for cls in (value for module in modules for value in list(vars(module).values())):
        for member in vars(cls).values() if isinstance(cls, type) else ():
            if isinstance(member, cached_property):
                member.lock = threading.RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork") and PROPERTIES_SHARE_LOCKS:
    os.register_at_fork(after_in_child=_renew_locks_of_properties)


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
        Whether the tasks must see the objects of this process, as callbacks do.
    restarts : bool, default=False
        Whether the tasks are whole restarts, which may go to other machines. Other tasks are
        chunks of a pass: they take less time than the way there, and stay on this machine.
    worth : bool, default=True
        Whether the work is large enough for more than one worker.
    announce : bool, default=True
        Whether a warning says that the backend of the user's choice is not used.

    Warns
    -----
    UserWarning
        If the user chose a joblib backend of processes or machines, and it will not be used.

    Notes
    -----
    Threads are preferred, since kernels release the interpreter's lock;
    ``joblib.parallel_config(backend=…)`` is honoured. A backend counts as remote if it is none of
    joblib's own for threads and local processes; Dask, Ray and Spark are remote. Results come in
    the order of the tasks, so that sums do not depend on the number of workers.

    Threads are those of this package (:mod:`threads`). joblib looks every 10 ms whether a result
    has arrived, which is as long as a pass over small data takes. The calling thread is one of the
    workers: a thread that only waited for the others would wake up at every result, and hold the
    interpreter's lock when they need it. All these threads keep the memory of large temporary
    arrays (:mod:`kept_memory`) until the pool is closed.
    """

    def __init__(
        self,
        n_jobs: int | None,
        *,
        shared_memory: bool = False,
        restarts: bool = False,
        worth: bool = True,
        announce: bool = True,
    ):
        self.n_workers = 1
        self._running = False
        self._pool: Threads | None = None
        self._ahead: _Ahead | None = None
        self._memory = ExitStack()
        if n_jobs == 1:
            return
        how = {"prefer": "threads"}
        backend, _ = get_active_backend(**how)
        threads = getattr(backend, "supports_sharedmem", False)
        # A class that derives from those of joblib, as Ray's does, is not local.
        remote = not threads and type(backend) not in (LokyBackend, MultiprocessingBackend)
        if remote and n_jobs is None and _in_dask_worker():
            # The task that this code belongs to is one of many that keep the cluster busy.
            return
        asked = Parallel(n_jobs=n_jobs, **how).n_jobs
        if asked == 1:
            return
        reason = None
        if not worth:
            reason = "they are too small for more than one worker to be of use"
        elif shared_memory:
            reason = "callbacks and the messages of verbose need the memory of this process"
        elif remote and not restarts:
            reason = "the chunks of a pass stay on this machine, and only restarts (n_init) travel"
        if reason is not None and not threads:
            if announce:
                _say_that_work_stays(backend, reason)
            how = {"require": "sharedmem"}
            backend, _ = get_active_backend(**how)
            asked = Parallel(n_jobs=n_jobs, **how).n_jobs
            threads, remote = True, False
        if not worth:
            return
        self.n_workers = backend.effective_n_jobs(asked)
        self._threads, self._remote = threads, remote
        if not threads:
            # Some backends can only return all results together.
            self._lazy = not remote and getattr(backend, "supports_return_generator", False)
            self._parallel = Parallel(
                n_jobs=n_jobs, return_as="generator" if self._lazy else "list", **how
            )
            # joblib sends a large argument to a worker of Dask once, and not with every task.
            self._sends_once = type(backend).__module__ == "joblib._dask"

    def __enter__(self) -> Workers:
        try:
            self._memory.enter_context(memory_kept())
            if self.n_workers > 1:
                self._begin()
        except BaseException:
            self._memory.close()
            raise
        return self

    def _begin(self) -> None:
        if self._threads:
            try:
                self._pool = Threads(self.n_workers - 1, keep_memory)
            except RuntimeError as error:
                raise RuntimeError(
                    f"n_jobs permits {self.n_workers} threads, but the system could not start so "
                    f"many ({error}). Lower n_jobs, or end other threads and processes."
                ) from error
        else:
            self._parallel.__enter__()
        self._running = True

    def __exit__(self, *exception: object) -> None:
        self._memory.close()
        if not self._running:
            return
        self._running = False
        pool, self._pool = self._pool, None
        if pool is None:
            self._parallel.__exit__(*exception)
        else:
            pool.close()

    def __reduce__(self) -> tuple:
        # A pool stays where it is: in another process its tasks run one after another.
        return Workers, (1,)

    def map(self, function: Callable, tasks: Iterable[tuple], common: tuple = ()) -> list:
        """``[function(*common, *task) for task in tasks]``.

        The values in ``common`` go to a remote worker once, however many tasks it gets.
        """
        if self._running and not self._threads and self._remote:
            return self._sent(function, list(tasks), common)
        return list(self.imap(function, ((*common, *task) for task in tasks)))

    def _sent(self, function: Callable, tasks: list[tuple], common: tuple) -> list:
        """The results of remote workers, each of which gets its share of the tasks in one go."""
        n = len(tasks) if self._sends_once else min(self.n_workers, len(tasks))
        packed = _Common(common)
        shares = (delayed(_in_worker)(function, tasks[i::n], packed) for i in range(n))
        results: list = [None] * len(tasks)
        for i, found in enumerate(self._parallel(shares)):
            results[i::n] = map(pickle.loads, found)
        return results

    def share(self, function: Callable[[slice], object], n: int, at_least: int) -> None:
        """Call a function that writes into arrays of this process, for all parts of 0, …, n − 1.

        In threads there are up to four parts for each worker, of ``at_least`` elements or more, and
        the number of parts is a multiple of that of workers, unless there are fewer.
        A worker takes another part when it is free, the calling thread from one end and others from
        the other end, so that in consecutive steps over the same rows most rows stay in the cache
        of one core. The calling thread does not wait for workers that have not begun when no part
        is left. This costs far less than a list of tasks, but the function is called without the
        caller's configuration of scikit-learn.
        """
        n_parts = self._n_parts(n, at_least, _PARTS)
        if self._pool is None or n_parts < 2:
            function(slice(0, n))
            return
        edges = [n * i // n_parts for i in range(n_parts + 1)]
        left = deque(slice(*edge) for edge in pairwise(edges))

        def work(following: Callable[[], slice]) -> None:
            while True:
                try:
                    part = following()
                except IndexError:
                    return
                function(part)

        others: list[Call] = []
        try:
            for _ in range(min(self.n_workers, len(left)) - 1):
                others.append(self._pool.submit(work, left.pop))
            work(left.popleft)
            for other in others:
                if not other.cancel():
                    other.result()
        finally:
            # After an error or an interrupt, the others should end as soon as they can.
            left.clear()
            for other in others:
                other.cancel()

    def _n_parts(self, n: int, at_least: int, most: int) -> int:
        """Return in how many parts threads share n elements; there are ``most`` for each worker."""
        if self._pool is None:
            return 1
        n_parts = min(n // at_least, most * self.n_workers, MOST_PARTS)
        return n_parts - n_parts % self.n_workers if n_parts > self.n_workers else n_parts

    def share_kernel(self, kernel: Any, arguments: tuple, n: int, at_least: int) -> None:
        """Call a kernel that is made to be shared, for all parts of 0, …, n − 1.

        It takes the ``arguments``. Threads share the work as by :meth:`share`, but need no
        lock of the interpreter to take a part, so that parts can be small.
        """
        n_parts = self._n_parts(n, at_least, 2 * _PARTS)
        if self._pool is None or n_parts < 2:
            kernel.part(arguments, 0, n)
        elif not self._pool.share_kernel(kernel, arguments, 0, n, n_parts):
            least = _TIMES_AS_MUCH * at_least
            self.share(lambda part: kernel.part(arguments, part.start, part.stop), n, least)

    def ahead(self, function: Callable[[T], V], items: Iterable[T]) -> Iterator[V]:
        """``function(item)`` for each item; a thread makes the next one while one is in use.

        It does so when it has done its share of the next tasks (:meth:`imap`), and then often has
        to wait for others anyway. With one worker, too, an item is requested before the result of
        the last one is in use, so that items which draw random numbers do not depend on the number
        of workers.
        """
        results = _Ahead(self._pool, function, items)
        if self._pool is not None:
            self._ahead = results
        try:
            yield from results
        finally:
            self._ahead = None
            results.close()

    def imap(self, function: Callable[..., V], tasks: Iterable[tuple]) -> Iterator[V]:
        """``function(*task)`` for each task, as soon as it and all before it are there."""
        if not self._running:
            return starmap(function, _while_wanted(tasks))
        if self._pool is not None:
            return _in_order(self._pool, 2 * self.n_workers, function, tasks, self._ahead)
        calls = (delayed(_in_worker)(function, [task]) for task in tasks)
        if self._lazy:
            found = self._parallel(calls)
        else:
            # All results together can be larger than the data.
            groups = iter(lambda: list(islice(calls, 2 * self.n_workers)), [])
            found = chain.from_iterable(map(self._parallel, groups))
        return (pickle.loads(packed) for (packed,) in found)


class _Ahead(Iterator[V], Generic[T, V]):
    """Results of a function for each item, of which a thread can make the next one.

    Parameters
    ----------
    pool : Threads or None
        None makes every result when it is requested.
    function : callable
    items : iterable
    """

    def __init__(
        self,
        pool: Threads | None,
        function: Callable[[T], V],
        items: Iterable[T],
    ):
        self._pool, self._function, self._items = pool, function, iter(items)
        self._next = list(islice(self._items, 1))
        self._call: Call | None = None

    def prepare(self) -> None:
        """Let a thread make the next result when it has made all calls that there are now."""
        if self._pool is not None and self._next and self._call is None:
            self._call = self._pool.submit(self._function, *self._next)

    def __next__(self) -> V:
        if not self._next:
            raise StopIteration
        # A thread that has not begun by now is busy with other work.
        (item,), call = self._next, self._call
        self._next, self._call = [], None
        begun = call is not None and not call.cancel()
        result = call.result() if begun and call is not None else self._function(item)
        self._next = list(islice(self._items, 1))
        return result

    def close(self) -> None:
        """Take back the call that has not begun."""
        self._next = []
        if self._call is not None:
            self._call.cancel()


def _say_that_work_stays(backend: object, reason: str) -> None:
    warn(
        f"joblib's {type(backend).__name__} is not used for these data: {reason}. "
        'parallel_config(backend="threading") does without this warning.',
    )


def _in_dask_worker() -> bool:
    """Whether this is a task of Dask; then Dask is imported already."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


_TASK = threading.local()
"""Its ``over`` is set when nobody waits any longer for the task that this thread runs."""


def _while_wanted(tasks: Iterable[tuple]) -> Iterator[tuple]:
    """Yield the tasks of the calling thread, until nobody waits for them any longer.

    A restart in a thread of a pool passes here with every chunk of its data. It ends here if the
    fit has ended otherwise, because no signal can interrupt that thread.
    """
    for task in tasks:
        over = getattr(_TASK, "over", None)
        if over is not None and over.is_set():
            raise CancelledError("the fit that this task belongs to has ended")
        yield task


def _in_order(
    pool: Threads,
    most: int,
    function: Callable[..., V],
    tasks: Iterable[tuple],
    ahead: _Ahead | None,
) -> Iterator[V]:
    """Results of tasks in their order; a task is made when fewer than ``most`` others wait.

    Where the calling thread would have to wait, it takes the next task that nobody has begun.
    """
    tasks = iter(tasks)
    first_tasks = list(islice(tasks, 2))
    if len(first_tasks) < 2:
        if ahead is not None:
            ahead.prepare()
        # A task that is alone can share its own work among the workers.
        yield from starmap(function, _while_wanted(first_tasks))
        return
    waiting: deque[Call] = deque()
    config, over = get_config(), threading.Event()

    def first() -> V:
        while not waiting[0].done() and any(call.run() for call in waiting):
            pass
        return waiting.popleft().result()

    try:
        for task in chain(first_tasks, tasks):
            waiting.append(pool.submit(in_thread, over, config, function, *task))
            if len(waiting) >= most:
                yield first()
        if ahead is not None:
            ahead.prepare()
        while waiting:
            yield first()
    finally:
        # After an error or an interrupt, tasks that still run should end as soon as they can.
        over.set()
        for call in waiting:
            call.cancel()


def in_thread(
    over: threading.Event, config: dict[str, Any], function: Callable[..., V], *task: Any
) -> V:
    """Run a task with the caller's configuration of scikit-learn, which belongs to a thread."""
    before, _TASK.over = getattr(_TASK, "over", None), over
    try:
        # The calling thread, which is a worker too, has this configuration already.
        with nullcontext() if get_config() == config else config_context(**config):
            return function(*task)
    finally:
        _TASK.over = before


class _Common:
    """The values that all tasks of a map share, as one argument that a worker is sent once.

    joblib's backend for Dask does so with arguments that can be weakly referenced and say that
    they are large.
    """

    def __init__(self, values: tuple):
        self.values = values

    def __sizeof__(self) -> int:
        return self._size

    @cached_property
    def _size(self) -> int:
        buffers: list[pickle.PickleBuffer] = []
        small = io.BytesIO()
        CloudPickler(small, protocol=5, buffer_callback=buffers.append).dump(self.values)
        return small.tell() + sum(buffer.raw().nbytes for buffer in buffers)


def _in_worker(
    function: Callable, tasks: list[tuple], common: _Common | None = None
) -> list[bytes]:
    """Run tasks where the caller's limit on threads may not reach; their results, pickled."""
    values = () if common is None else common.values
    with one_thread(), judged_by_results():
        return [pickled(function(*values, *task)) for task in tasks]


class _Pickler(CloudPickler):
    """A pickler whose arrays can be written when they are read back.

    Backends pass arrays as read-only views of files or messages, and a worker may return a part of
    such an array.
    """

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in (np.ndarray, np.memmap) and not obj.flags.writeable:
            return np.array(obj).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(obj)


def pickled(result: object) -> bytes:
    """Return a pickle in one string of bytes, whose arrays can be written when it is read back."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(result)
    return file.getvalue()


def owned(value: V) -> V:
    """Return a value whose arrays are not views of a message; these may be out of line."""
    return value if callable(value) else pickle.loads(pickled(value))


SEQUENTIAL = Workers(1)
"""Workers that do everything in the calling thread."""
