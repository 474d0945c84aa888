"""Backends of joblib that are another machine, as far as can be seen."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from joblib import register_parallel_backend
from joblib.parallel import BACKENDS, ParallelBackendBase


class FarBackend(ParallelBackendBase):
    """Another machine, as far as can be seen: what goes there and comes back is pickled.

    It has no generators and no shared memory, and arrays arrive read-only on both ways.
    """

    supports_sharedmem = False
    uses_threads = False
    default_n_jobs = -1
    calls: list[int] = []

    def effective_n_jobs(self, n_jobs: int) -> int:
        return 3

    def submit(self, func: Any, callback: Any = None) -> Future[Any]:
        sent, arrays = _sent(func)
        self.calls.append(len(sent))
        back, arrays = _sent(pickle.loads(sent, buffers=arrays)())
        future = Future()
        future.get = future.result
        future.set_result(pickle.loads(back, buffers=arrays))
        if callback is not None:
            callback(future)
        return future

    apply_async = submit  # before joblib 1.5


def _sent(thing: Any) -> tuple[bytes, list[bytes]]:
    buffers: list[Any] = []
    head = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return head, [bytes(buffer.raw()) for buffer in buffers]


class RaylikeBackend(FarBackend, type(BACKENDS["multiprocessing"]())):
    """A remote backend whose class derives from one for local processes, as Ray's does."""

    supports_retrieve_callback = False
    configure = ParallelBackendBase.configure
    terminate = ParallelBackendBase.terminate
    abort_everything = ParallelBackendBase.abort_everything


@contextmanager
def far_away(cls: type[FarBackend] = FarBackend) -> Iterator[type[FarBackend]]:
    """Register a remote backend under the name "far"."""
    register_parallel_backend("far", cls)
    FarBackend.calls.clear()
    yield FarBackend
    del BACKENDS["far"]
