"""Data in parts: files, parts of a collection, or data on a cluster, which no process has whole.

A fit sends its visits to the parts and adds up the results. Within a part, local steps are added in
the order of chunks; the sums of parts are added along a tree over the parts' indices. The result is
therefore a function of the data and their division into parts, and depends neither on the number of
workers, nor on which worker has which part, nor on failures.

Only a :class:`Place` depends on where parts are, and on the process that computes with them. The
place of this module computes with one part after another in the process of the fit; that for Dask
is in :mod:`.cluster`.
"""

from __future__ import annotations

import operator
import pickle
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from sklearn import config_context, get_config

from ..parallel.workers import SEQUENTIAL, Workers, pickled
from .units import Units

Node = tuple[int, int]
"""Level and index of a node of the tree; node (0, i) is part i, and (l + 1, i) the sum of the nodes
(l, 2 i) and (l, 2 i + 1)."""


T = TypeVar("T")
"""The result of a request."""


Found = list[tuple[Node, Any]]
"""Results of some parts, by the nodes whose sums they are."""

Kept = MutableMapping[str, Any]
"""Values that requests leave beside a part, by the tokens of the requests."""


class Sums(Generic[T]):
    """Sums along the tree over parts, to which results are added in the order of the parts.

    Parameters
    ----------
    n_parts : int
    merge : callable
        The sum of two results. None stands for nothing.
    """

    def __init__(self, n_parts: int, merge: Callable[[T, T], T]):
        self._n_parts = n_parts
        self._merge = merge
        self.found: list[tuple[Node, T]] = []

    def add(self, node: Node, value: T) -> None:
        """Add the sum of the next node, and make all sums that it completes."""
        while node != (self._height, 0):
            level, index = node
            if index % 2:
                if not self.found or self.found[-1][0] != (level, index - 1):
                    break
                _, left = self.found.pop()
                if left is not None:
                    value = left if value is None else self._merge(left, value)
            elif index + 1 < -(-self._n_parts // 2**level):
                break  # the other half of the sum is still to come
            node = level + 1, index // 2
        self.found.append((node, value))

    @property
    def _height(self) -> int:
        return (self._n_parts - 1).bit_length()


def copied(token: str) -> str:
    """Return the key under which a part finds a copy of the values that it kept under a token."""
    return f"{token}-copy"


class Part:
    """One part of the data, with the values that the fit keeps beside it.

    Parameters
    ----------
    index : int
    load : callable
        Returns the data points. It is also what requests ask that read a part in another form.
    kept : mapping
        Token of a chain of visits → the number of its last visit, and the local variables which
        that left.
    """

    def __init__(self, index: int, load: Any, kept: Kept):
        self.index = index
        self.kept = kept
        self.load = load
        self._units: Units | None = None

    @property
    def units(self) -> Units:
        """The data points, which are loaded when they are first needed."""
        if self._units is None:
            self._units = self.load()
        return self._units

    def __getstate__(self) -> bytes:
        # Data points are made anew from what they were read from. Arrays in one string of bytes
        # are read back as they were, and not as views of a message, which may be out of line.
        return pickled({**vars(self), "_units": None})

    def __setstate__(self, state: bytes) -> None:
        vars(self).update(pickle.loads(state))

    def __sizeof__(self) -> int:
        return 1000 + _size(self._units) + _size(self.kept)


def _size(value: object) -> int:
    """Return the number of bytes of all arrays in a value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return _size(vars(value)) if hasattr(value, "__dict__") else 0


class Request(ABC, Generic[T]):
    """Something to be done at every part. It can be pickled."""

    reads: ClassVar[bool] = True
    """Whether it needs the data points."""
    ended: tuple[str, ...] = ()
    """The tokens of chains of visits that have ended, so that nobody needs copies of them."""

    @abstractmethod
    def at(self, part: Part, workers: Workers) -> T:
        """Return the result of one part."""

    def merge(self, a: T, b: T) -> T:
        """Return the result of the parts of both; ``a`` comes before ``b``."""
        total: T = operator.add(a, b)
        return total

    def failed(self, result: T) -> bool:
        """Return whether some parts lack values of an earlier request that this one needs."""
        return False

    @property
    def repeated(self) -> tuple[str, ...]:
        """The tokens of chains whose lost values parts make anew."""
        return ()


def run(
    request: Request[T], parts: Iterable[Part], n_parts: int, workers: Workers
) -> list[tuple[Node, T]]:
    """Run a request at some parts; return the sums of the largest nodes that they fill."""
    sums = Sums(n_parts, request.merge)
    for part in parts:
        sums.add((0, part.index), request.at(part, workers))
    return sums.found


class Place(ABC):
    """The place that holds the parts: this process or a cluster, which differ in nothing else."""

    remembers = True
    """Whether what a visit leaves beside a part is still there at the next visit, for certain."""

    def __init__(self) -> None:
        self.n_parts = 0
        self.warm = False
        # The tokens of chains of visits that have ended, whose local variables can be dropped.
        self.ended: list[str] = []

    @abstractmethod
    def put(self, loads: list[Callable[[], Units]]) -> None:
        """Take over the parts, given the functions that load them."""

    @abstractmethod
    def call(self, request: Request, indices: list[int], workers: Workers) -> Any:
        """Begin a request at some parts, and return a handle to its results."""

    @abstractmethod
    def get(self, handles: list) -> list[Found]:
        """Wait for the results of requests, and return the result of :func:`run` for each."""

    def sum(
        self, request: Request[T], workers: Workers = SEQUENTIAL, again: Request[T] | None = None
    ) -> T:
        """Run a request at all parts, and return the sum of its results.

        In groups of parts where it has failed, the request ``again`` takes its place.
        """
        groups = self.groups()
        results = self.get([self.call(request, group, workers) for group in groups])
        nodes = []
        for group, result in zip(groups, results, strict=True):
            found = result
            if again is not None and any(request.failed(value) for _, value in found):
                (found,) = self.get([self.call(again, group, workers)])
            nodes += found
        sums = Sums(self.n_parts, request.merge)
        for node, value in sorted(nodes, key=lambda found: found[0][1] << found[0][0]):
            sums.add(node, value)
        ((_, value),) = sums.found
        return value

    def at(self, index: int, request: Request[list[T]], workers: Workers = SEQUENTIAL) -> T:
        """Run a request that returns a list at one part, and return its only entry."""
        handle = self.call(request, [index], workers)
        ((_, (value,)),) = self.get([handle])[0]
        return value

    def groups(self) -> list[list[int]]:
        """Return the parts that are visited by one call each, in ascending order."""
        return [list(range(self.n_parts))]

    def secure(self, token: str) -> None:
        """Copy the values of parts under a token, so that they outlive the loss of a worker."""
        return

    def warm_up(self, request: Request, units: Units) -> None:
        """Run a request with a few data points where others would compile the same kernels."""
        return

    def close(self) -> None:
        """Release the parts."""
        return


class Here(Place):
    """Parts that the process of the fit loads and visits, one after another.

    Parameters
    ----------
    stay : list of bool
        Whether each part stays in memory. The others are read anew at every visit, and one part is
        read ahead while its predecessor is visited. Values that visits leave beside them are on
        disk.
    """

    def __init__(self, stay: list[bool]):
        super().__init__()
        self._stay = stay
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._kept: list[Kept] = []

    def put(self, loads: list[Callable[[], Units]]) -> None:
        self.n_parts = len(loads)
        self._loads = loads
        if self._folder is not None:
            # That of the first call, which nothing has been written to that counts from now on.
            self._folder.cleanup()
        if not all(self._stay):
            self._folder = tempfile.TemporaryDirectory(prefix="sklearn_anneal-")
        folder = "" if self._folder is None else self._folder.name
        self._kept = [
            {} if stays else _OnDisk(Path(folder) / str(i)) for i, stays in enumerate(self._stay)
        ]
        self._parts = {
            i: Part(i, loads[i], self._kept[i]) for i, stays in enumerate(self._stay) if stays
        }

    def call(self, request: Request, indices: list[int], workers: Workers) -> Any:
        return partial(self._run, request, indices, workers)

    def get(self, handles: list) -> list[Found]:
        return [handle() for handle in handles]

    def _run(self, request: Request, indices: list[int], workers: Workers) -> Found:
        if not request.reads:
            return run(request, map(self._part, indices), self.n_parts, workers)
        with closing(self._loaded(indices)) as parts:
            return run(request, parts, self.n_parts, workers)

    def _loaded(self, indices: list[int]) -> Generator[Part, None, None]:
        if all(self._stay[i] for i in indices):
            yield from map(self._part, indices)
            return
        config = get_config()
        reader = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        try:
            ahead = self._read_ahead(reader, indices[0], config)
            for following in [*indices[1:], None]:
                current = ahead
                if following is not None:
                    ahead = self._read_ahead(reader, following, config)
                yield current()
                del current
        finally:
            # After an error or an interrupt, no other part is to be read.
            reader.shutdown(cancel_futures=True)

    def _read_ahead(
        self, reader: ThreadPoolExecutor, index: int, config: dict[str, object]
    ) -> Callable[[], Part]:
        """Begin to read a part, and return a function that returns it."""
        try:
            return reader.submit(self._read, index, config).result
        except RuntimeError:
            # The system cannot start a thread. Parts are then read when their turn comes.
            reader.shutdown(cancel_futures=True)
            return partial(self._read, index, config)

    def _part(self, index: int) -> Part:
        """Return a part, which may not be loaded yet."""
        if index in self._parts:
            return self._parts[index]
        return Part(index, self._loads[index], self._kept[index])

    def _read(self, index: int, config: dict[str, object]) -> Part:
        part = self._part(index)
        with config_context(**config):
            _ = part.units
        return part

    def close(self) -> None:
        self._parts, self._kept = {}, []
        if self._folder is not None:
            self._folder.cleanup()


class _OnDisk(MutableMapping[str, Any]):
    """A mapping whose values are files."""

    def __init__(self, stem: Path):
        self._stem = stem
        self._keys: set[str] = set()

    def _path(self, key: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}-{key}")

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        with self._path(key).open("rb") as file:
            return pickle.load(file)

    def __setitem__(self, key: str, value: Any) -> None:
        with self._path(key).open("wb") as file:
            pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
        self._keys.add(key)

    def __delitem__(self, key: str) -> None:
        self._keys.remove(key)
        self._path(key).unlink()

    def __iter__(self) -> Iterator[str]:
        return iter(set(self._keys))

    def __len__(self) -> int:
        return len(self._keys)
