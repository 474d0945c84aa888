"""Parts on the workers of a Dask cluster.

A visit is one task per worker: it takes the parts that this worker has, and returns the sums of the
largest nodes of the tree that they fill. The values that the parts keep from one visit to the next
are beside them, on their worker. If that worker is lost, Dask loads its parts again on another one,
and the local variables are made anew from the visits that the client has logged. No task depends on
a task of an earlier visit, so that the scheduler has as many tasks in the last pass as in the
first.
"""

from __future__ import annotations

import os
import pickle
import platform
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import dask
import numpy as np
from distributed import Client, Future, KilledWorker, get_worker
from joblib import parallel_config

from .._stack import warn
from .._version import __version__
from ..data.parts import Found, Part, Place, Request, copied, run
from ..data.units import Units
from ..parallel.overflow import judged_by_results
from ..parallel.thread_limits import one_thread
from ..parallel.workers import Workers, owned, pickled

# The client sends the parameters of a visit as an argument of a task.
_QUIET = {"distributed.admin.large-graph-warning-threshold": "1 TB"}
# Seconds for which a fit waits for a worker, if there is none.
_PATIENCE = 60
# The workers of each client that have been compared.
_CHECKED: WeakKeyDictionary[Client, list[str]] = WeakKeyDictionary()
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


class OnDask(Place):
    """Parts that the workers of a Dask cluster load and visit.

    Parameters
    ----------
    client : distributed.Client
    """

    remembers = False

    def __init__(self, client: Client):
        super().__init__()
        self._client = client
        self._prefix = f"sklearn_anneal-{uuid4().hex[:12]}"
        self._inputs: dict[int, tuple] = {}
        self._parts: list = []
        # Token → copies of what groups of parts keep, with the numbers of these parts.
        self._copies: dict[str, list[tuple[set[int], Future]]] = {}
        self._where: list[str] = []

    def put(self, loads: list[Callable[[], Units]]) -> None:
        addresses = self._addresses()
        if _CHECKED.get(self._client) != addresses:
            self._check()
            _CHECKED[self._client] = addresses
        self.n_parts = len(loads)
        if not self._where:
            shares = np.array_split(np.arange(self.n_parts), len(addresses))
            self._where = [a for a, share in zip(addresses, shares, strict=True) for _ in share]
        prefix = f"{self._prefix}-{uuid4().hex[:6]}"
        parts = []
        for i, load in enumerate(loads):
            where = {"workers": [self._where[i]], "allow_other_workers": True, "pure": False}
            if i not in self._inputs:
                self._inputs[i] = self._begun(load, where)
            bare = load.without_data()  # type: ignore[attr-defined]
            parts.append(
                self._client.submit(
                    _part, bare, *self._inputs[i], key=f"{prefix}-part-{i}", **where
                )
            )
        self._parts = parts

    def _begun(self, load: Any, where: dict[str, Any]) -> tuple:
        """Return futures of the inputs of a part, or inputs that any worker can read."""
        found: list = []
        for value, lazy in zip(load.inputs, load.lazy, strict=True):
            if isinstance(value, Future):
                found.append(value)
            elif lazy is not None:
                how = {key: where[key] for key in ("workers", "allow_other_workers")}
                found.append(self._client.compute(value, **how))
            elif value is None or isinstance(value, str | os.PathLike) or callable(value):
                found.append(value)
            else:
                # The scheduler keeps what a task is given, so that a lost worker loses no data.
                found.append(self._submit(_given, pickled(value), **where))
        return tuple(found)

    def _submit(self, function: Callable, *args: Any, **how: Any) -> Future:
        with dask.config.set(_QUIET):
            return self._client.submit(function, *args, **how)

    def groups(self) -> list[list[int]]:
        addresses = self._addresses()
        lost = [i for i, address in enumerate(self._where) if address not in addresses]
        if lost:
            # The parts of a lost worker go to the others, in runs of consecutive parts.
            shares = np.array_split(np.array(lost), len(addresses))
            for address, share in zip(addresses, shares, strict=True):
                for i in share.tolist():
                    self._where[i] = address
        groups: dict[str, list[int]] = {}
        for i, address in enumerate(self._where):
            groups.setdefault(address, []).append(i)
        return list(groups.values())

    def call(self, request: Request, indices: list[int], workers: Workers) -> Any:
        parts = [self._parts[i] for i in indices]
        name = type(request).__name__.strip("_").lower()
        future = self._submit(
            _visit,
            pickled(request),
            parts,
            self.n_parts,
            self._copies_for(request, indices),
            key=f"{self._prefix}-{name}-{uuid4().hex}",
            workers=[self._where[indices[0]]],
            allow_other_workers=True,
            pure=False,
        )
        return future, list(indices)

    def secure(self, token: str) -> None:
        addresses = self._addresses()
        if len(addresses) < 2:
            return
        copies = []
        for indices in self.groups():
            where = {"workers": [self._where[indices[0]]], "allow_other_workers": True}
            parts = [self._parts[i] for i in indices]
            future = self._submit(_kept, parts, token, pure=False, **where)
            copies.append((set(indices), future))
        try:
            self._client.replicate([future for _, future in copies], n=2)
        except OSError:
            # A worker was lost meanwhile. Local variables are made anew from the whole log.
            return
        self._copies[token] = copies

    def _copies_for(self, request: Request, indices: list[int]) -> dict[str, list[Future]]:
        """Return the copies of lost values of parts, for a request that is sent again."""
        for token in request.ended:
            self._copies.pop(token, None)
        return {
            token: [f for of, f in self._copies.get(token, ()) if of.intersection(indices)]
            for token in request.repeated
        }

    def get(self, handles: list) -> list[Found]:
        futures = [future for future, _ in handles]
        try:
            return [pickle.loads(found) for found in self._client.gather(futures)]
        except KilledWorker as error:
            at = [i for future, indices in handles for i in indices if future.status == "error"]
            raise ValueError(
                f"Workers died, several times, while they visited the parts {_listed(at)}. Their "
                f"memory may be too small for these parts. Dask says: {error}"
            ) from error
        except ModuleNotFoundError as error:
            raise ValueError(
                f"A worker lacks a package: {error}. Install sklearn_anneal, in the same version, "
                "where the workers run."
            ) from error
        except BaseException:
            if self._client.status == "running":
                self._client.cancel(futures)
            else:
                self._addresses()
            raise

    def close(self) -> None:
        self._parts, self._inputs, self._copies = [], {}, {}

    def _addresses(self) -> list[str]:
        if self._client.status != "running":
            raise ValueError(
                f"The Dask client is {self._client.status}, so that nobody can visit the parts. "
                "Give Shards a client that is connected to a cluster."
            )
        addresses = sorted(self._client.nthreads())
        if addresses:
            return addresses
        # The last worker may have been lost, and another one be about to take its place.
        try:
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ValueError(
                f"The Dask cluster has had no worker for {_PATIENCE} seconds, so that nobody can "
                "visit the parts."
            ) from error
        return sorted(self._client.nthreads())

    def _check(self) -> None:
        """Refuse workers without this package, and warn of those that differ."""
        package = __name__.partition(".")[0]
        question = f"__import__('importlib.util').util.find_spec({package!r}) is not None"
        without = [at for at, has in self._client.run(eval, question).items() if not has]
        if without:
            raise ValueError(
                f"The worker {without[0]} has no {package}. Install it, in the same version, where "
                "the workers run."
            )
        facts = self._client.run(machine)
        for name in next(iter(facts.values())):
            values = {at: fact[name] for at, fact in facts.items()}
            kinds = sorted(set(values.values()))
            if len(kinds) > 1:
                examples = [next(at for at, v in values.items() if v == kind) for kind in kinds]
                warn(
                    f"Workers differ in their {name}: {examples[0]} has {kinds[0]}, and "
                    f"{examples[1]} has {kinds[1]}. The last bits of results can then depend on "
                    "which worker visits which part.",
                )

    def warm_up(self, request: Request, units: Units) -> None:
        # One worker of each host compiles the kernels, and the others read them from its disk.
        hosts = {host: at for at, host in self._client.run(platform.node).items()}
        part = Part(0, partial(_given, pickled(units)), {})
        futures = [
            self._submit(_visit, pickled(request), [part], 1, {}, workers=[at], pure=False)
            for at in hosts.values()
        ]
        self._client.gather(futures, errors="skip")


def machine() -> dict[str, str]:
    """Return the versions and features of the processor on which the bits of results depend."""
    # The module has had a new name since NumPy 2.
    core = "numpy._core" if hasattr(np, "_core") else "numpy.core"
    known = import_module(f"{core}._multiarray_umath").__cpu_features__
    features = [name for name, has in known.items() if has]
    return {
        "version of sklearn_anneal": __version__,
        **{f"version of {name}": version(name) for name in _PACKAGES},
        "processor features": f"{platform.machine()} with {' '.join(sorted(features))}",
    }


def _given(value: bytes) -> Any:
    return pickle.loads(value)


def _part(load: Any, *inputs: Any) -> Part:
    return Part(load.index, load.computed(*map(owned, inputs)), {})


def _kept(parts: list[Part], token: str) -> bytes:
    return pickled({part.index: part.kept[token] for part in parts if token in part.kept})


def _visit(
    request: bytes, parts: list[Part], n_parts: int, copies: dict[str, list[bytes]]
) -> bytes:
    for token, of_groups in copies.items():
        found = {index: kept for one in of_groups for index, kept in pickle.loads(one).items()}
        for part in parts:
            if part.index in found:
                part.kept[copied(token)] = found[part.index]
    n_threads = get_worker().state.nthreads
    with (
        one_thread(),
        judged_by_results(),
        parallel_config(backend="threading"),
        Workers(n_threads) as workers,
    ):
        return pickled(run(pickle.loads(request), parts, n_parts, workers))


def _listed(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:5]))
    return f"{shown}, …" if len(indices) > 5 else shown
