"""The interface of data points to the loop of inference, and their chunks and batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import methodcaller
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from sklearn.utils.random import sample_without_replacement

from ...parallel.workers import Workers

# Smallest number of consecutive data points that are shuffled together for random batches.
_SHUFFLE_BLOCK = 65_536
# From this many chunks on, the chunks of the last quarter are halved, to balance the workers.
_HALVED_FROM = 16


class Centered(Protocol):
    """Objects with a center: summaries of data, and views of data in parts."""

    @property
    def center(self) -> Any:
        """A value for each column; a dictionary of such arrays for blocks of columns."""


class Units(ABC):
    """Data points that the loop can count, weigh and divide.

    Attributes
    ----------
    weights : ndarray of shape (n_units,) or None
        Sample weights; None if all of them are 1.
    """

    weights: np.ndarray | None
    in_parts = False
    """Whether the data points are not in the memory of this process."""
    plain = False
    """Whether kernels in numpy read the data points, so that none has to be compiled."""
    copies_are_one: ClassVar[bool] = False
    """Whether equal data points repeat one observation, so that they are left out together."""
    caches: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that hold what was computed from the others."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Number of data points."""

    @property
    def n_weight_units(self) -> int:
        """Number of weight units, each of which gets a random weight of its own.

        They are the data points, or smaller parts of the data, such as single ratings.
        """
        return self.n_units

    def weight_units(self, part: slice) -> slice:
        """Return the weight units that belong to the data points of a slice."""
        return part

    @property
    def n_observations(self) -> float:
        """Weighted number of observations (rows, tokens, frames, ratings).

        Tolerances are multiplied by it.
        """
        return self.total_weight

    @property
    def n_rows(self) -> int:
        """Number of rows: of the data points, or of the frames of sequences."""
        return self.n_units

    @property
    def n_weighed(self) -> int:
        """Number of data points, or of parts of them, whose weights ``total_weight`` sums."""
        return self.n_units

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be learned from the data points, so that updates leave them out."""
        return self.n_observations == 0

    @property
    def total_weight(self) -> float:
        """Σ w, the weighted number of data points."""
        weights = self.weights
        if weights is None:
            return float(self.n_units)
        # A pass asks for it several times, and each sum takes as long as the kernel of a few rows.
        kept = vars(self).get("_sum_of_weights")
        if kept is None or kept[0] is not weights:
            kept = self._sum_of_weights = weights, float(weights.sum())
        return kept[1]

    def _weighted_sum(self, values: np.ndarray) -> float:
        """Return Σ w x for one value of each data point."""
        return float(values.sum() if self.weights is None else values @ self.weights)

    @abstractmethod
    def take(self, index: np.ndarray | slice) -> Units:
        """Return the data points of an index; they are copied unless the index is a slice."""

    def part(self, index: slice) -> Units:
        """Return consecutive data points, which may be the same object at the next call.

        Data points keep what was read of them, which saves work at the next visit.
        """
        return self.take(index)

    def batch(self, index: np.ndarray | slice) -> Units:
        """Return the data points of an index of :meth:`batches`, ready for a visit."""
        return self if isinstance(index, slice) else self.take(index)

    def chunks(self) -> list[slice]:
        """Return contiguous parts for parallel work; by default one has all data points.

        They depend only on the number of units, and not on the number of workers, so that results
        do not depend on it either.
        """
        return [slice(0, self.n_units)] if self.n_units else []

    @property
    def are_one_chunk(self) -> bool:
        """Whether all data points are in the memory of this process and visited together."""
        return not self.in_parts and len(self.chunks()) == 1

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray | slice]:
        """Yield indices of random batches, in which all data points occur once.

        The index is a slice if all data points are one batch.

        Blocks of consecutive data points are visited in random order, and the points of each
        block are shuffled, so that no permutation of all data points has to be in memory. The
        last batch has the points that are left, and can be smaller than the others.
        """
        n = self.n_units
        if size >= n:
            yield slice(None)
            return
        length = max(_SHUFFLE_BLOCK, 8 * size)
        left = np.empty(0, dtype=np.intp)
        for b in rng.permutation(-(-n // length)):
            block = np.arange(b * length, min((b + 1) * length, n))
            rng.shuffle(block)
            left = np.concatenate([left, block])
            stop = len(left) // size * size
            for start in range(0, stop, size):
                yield left[start : start + size]
            left = left[stop:]
        if len(left):
            yield left

    def visit(
        self,
        prepared: Any,
        rng: np.random.Generator,
        local: Any,
        workers: Workers,
        totals: Any = None,
    ) -> tuple[Any, Any]:
        """Make the local steps of all chunks, and add them up in their order.

        Parameters
        ----------
        prepared : Prepared
            The visit (:class:`sklearn_anneal.inference.visits.Prepared`).
        rng : numpy.random.Generator
            The source of random weights and of random starts.
        local : object
            The result of the last visit to the same data points; None at the first visit. A list is
            emptied.
        workers : Workers
        totals : object
            The totals of the random weights of all data, of which these are a part; None if there
            are no others.

        Returns
        -------
        step : LocalStep
        local : object
            The local variables of each chunk; None if there are none, or if they are not kept.
        """
        visit, weights, found = prepared.visit, prepared.weights, []
        units, noise = visit.view(self), None
        if weights is not None:
            drawn, own = weights.draw(units.n_weight_units, rng)
            noise = weights.scaled(drawn, own, own if totals is None else totals)
        before = None if local is None else local[::-1]
        if local is not None:
            local.clear()

        indices = visit.chunks(units)
        if len(indices) == 1:
            # Another process would not have what the last visit to a single chunk has kept.
            index, last = indices[0], before.pop() if before else None
            chunk = units if index == slice(0, units.n_units) else units.take(index)
            of_chunk = None if noise is None else noise[units.weight_units(index)]
            start = visit.start(chunk, last, prepared.exploring, prepared.noise, rng)
            step = visit.step(chunk, of_chunk, start)
            return step, None if step.local is None or not prepared.keep else [step.local]

        # Chunks are cut when a worker is free, and steps are merged as they arrive, because the
        # local variables and statistics of all chunks together can be larger than the data.
        def chunks() -> Iterator[tuple]:
            for index in indices:
                chunk = units.part(index)
                of_chunk = None if noise is None else noise[units.weight_units(index)]
                last = before.pop() if before else None
                start = visit.start(chunk, last, prepared.exploring, prepared.noise, rng)
                yield chunk, of_chunk, start

        total = None
        for step in workers.imap(visit.step, chunks()):
            if prepared.keep and step.local is not None:
                found.append(step.local)
            total = step if total is None else visit.merge(total, step)
        return total, found or None

    def in_turn(self, rng: np.random.Generator, workers: Workers) -> Iterator[Callable]:
        """Yield a function for each part of the data that minibatches are drawn from, in turn.

        The function takes a request, and returns ``request.at(part, workers)``. Data in memory are
        one part.
        """
        yield methodcaller("at", self, workers)

    @property
    def example(self) -> Self:
        """Data points in memory that show how all are stored: all, or some of data in parts."""
        return self

    def summary(self, model: Any) -> Any:
        """Return the model's summary of all data points."""
        return model.summary(self).whole()

    def total(self, function: Callable[[Units], Any]) -> Any:
        """Return the sum of a function over the parts of the data; those in memory are one part."""
        return function(self)

    def operations(self, model: Any) -> float:
        """Return the model's estimate of the floating-point operations of one local step."""
        return float(model.operations(self))

    def sample(self, size: int | None, random_state: np.random.RandomState) -> Units:
        """Return data points in memory from which starts are computed: all, or ``size``."""
        return self if size is None else self.subset(size, random_state)

    def together(self, n: int) -> tuple[Units, Any]:
        """Return these data for n restarts that visit them together, and what runs the restarts.

        Only data in parts offer it.
        """
        raise NotImplementedError

    def divided(self, share: float) -> tuple[Units, Units]:
        """Return a share of the data points, at random places, and all others."""
        order = np.random.RandomState(0).permutation(self.n_units)
        n = max(1, round(share * self.n_units))
        return self.take(np.sort(order[:n])), self.take(np.sort(order[n:]))

    def identity(self) -> tuple:
        """Return values that differ for other data points, to be hashed."""
        given = {
            name: value
            for name, value in vars(self).items()
            if name not in self.caches
            and not isinstance(getattr(type(self), name, None), cached_property)
        }
        return type(self).__name__, sorted(given.items())

    def occurring(self, n_columns: int) -> np.ndarray:
        """Return the numbers of the columns with an entry, in ascending order.

        They are all columns, unless data points have entries for some columns only.
        """
        return np.arange(n_columns, dtype=np.int32)

    def marked(self) -> Self:
        """Return the same data points, which say of every cell whether it is missing.

        Data points without missing cells need not say it. But if they are a part of data with
        missing cells, they are treated as the others.
        """
        return self

    @abstractmethod
    def centered(self, summary: Centered) -> Units:
        """Return the same data points, relative to the center that this summary has, if any."""

    def spread(self, size: int) -> Units:
        """Return at most ``size`` data points of positive weight, at equal distances."""
        return self._choose(size, lambda n: np.arange(size) * n // size)

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        """Return at most ``size`` random data points of positive weight, in their order."""

        def draw(n: int) -> np.ndarray:
            # Sorted numbers let a memory-mapped array be read from its beginning to its end.
            return np.sort(sample_without_replacement(n, size, random_state=random_state))

        return self._choose(size, draw)

    def _choose(self, size: int, choose: Callable[[int], np.ndarray]) -> Units:
        """Return ``size`` data points of positive weight; all data points if they are no more.

        ``choose(n)`` returns the positions of those to take among n data points.
        """
        if self.n_units <= size:
            return self
        if self.weights is None:
            return self.take(choose(self.n_units))
        positive = np.flatnonzero(self.weights)
        return self.take(positive if len(positive) <= size else positive[choose(len(positive))])


U = TypeVar("U", bound=Units)
"""The kind of units that an estimator or a model has."""


def _most_chunks(parts: dict[int, int], n_entries: int) -> int:
    return max((n for n, least in parts.items() if n_entries >= least), default=1)


def joined_arrays(
    arrays: Sequence[np.ndarray | None], numbers: Sequence[int], default: Any
) -> np.ndarray | None:
    """Return several arrays one after another; None if all of them are None.

    The ``default`` is in the place of the entries, as many as ``numbers`` says, of those that are
    None.
    """
    given = [array for array in arrays if array is not None]
    if not given:
        return None
    shape, dtype = given[0].shape[1:], given[0].dtype
    pairs = zip(arrays, numbers, strict=True)
    return np.concatenate(
        [np.full((n, *shape), default, dtype) if array is None else array for array, n in pairs]
    )


class Ragged(Units):
    """Data points with different numbers of entries, whose entries are joined in flat arrays.

    Attributes
    ----------
    indptr : ndarray of shape (n_units + 1,)
        The position at which each data point begins, and as the last entry the end.
    """

    indptr: np.ndarray
    _parts: ClassVar[dict[int, int]]

    @property
    def n_units(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_entries(self) -> int:
        """Number of entries of all data points."""
        return int(self.indptr[-1])

    @property
    def _most_chunks(self) -> int:
        """Largest number of chunks, except for those that are halved."""
        return _most_chunks(self._parts, self.n_entries)

    def chunks(self, parts: dict[int, int] | None = None) -> list[slice]:
        """Return contiguous parts with about equal numbers of entries, for parallel work.

        They depend only on the data, and not on the number of workers, so that results do not
        depend on it either. If ``parts`` are given, they are the numbers of chunks with the
        smallest number of entries that are divided into as many.
        """
        n_entries = self.n_entries
        n = self._most_chunks if parts is None else _most_chunks(parts, n_entries)
        if n == 1:
            return [slice(0, self.n_units)]
        ends = np.arange(1, n + 1) * (n_entries / n)
        if n >= _HALVED_FROM:
            # Smaller parts at the end let all workers finish at about the same time.
            halves = ends[-(n // 4) :] - 0.5 * n_entries / n
            ends = np.sort(np.append(ends, halves))
        cuts = np.searchsorted(self.indptr, ends[:-1])
        edges = sorted({0, *cuts.tolist(), self.n_units})
        return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def _cut(self, index: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray | slice]:
        """Return the ``indptr`` of the data points of an index, and the index of their entries."""
        if isinstance(index, slice):
            first, last, _ = index.indices(self.n_units)
            indptr = self.indptr[first : max(first, last) + 1]
            return indptr - indptr[0], slice(indptr[0], indptr[-1])
        starts = self.indptr[:-1][index]
        sizes = self.indptr[1:][index] - starts
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        return indptr, np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes)
