"""Data points in parts, as the loop of inference sees them: sizes, summaries, visits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple

import numpy as np

from ..parallel.lockstep import Lockstep
from ..parallel.workers import SEQUENTIAL, Workers
from .fingerprints import fingerprint
from .part_views import About, View
from .part_visits import Aside, Chain, Job, Logged, StepOfParts, Totals, VisitAll
from .parts import Part, Place, Request
from .units import Centered, U, Units

# After so many visits of a chain, local variables are copied to a second worker. A lost worker then
# costs no more than so many visits to its parts.
_VISITS_BETWEEN_COPIES = 20


class _Described(NamedTuple):
    """The sizes and totals of several parts that a fit needs."""

    about: list[About]
    occurring: np.ndarray  # the columns with an entry in any of the parts, in one bit each


@dataclass(frozen=True)
class _Describe(Request[_Described]):
    view: View
    n_columns: int

    def at(self, part: Part, workers: Workers) -> _Described:
        units = self.view.of(part)
        patterns = getattr(units, "patterns", None)
        weight = units.total_weight
        entries = getattr(units, "n_entries", 0)
        sizes = units.n_units, units.n_rows, units.n_weight_units, entries
        about = About(*sizes, weight, units.n_observations, patterns is not None)
        occurs = np.zeros(self.n_columns, dtype=bool)
        occurs[units.occurring(self.n_columns)] = True
        return _Described([about], np.packbits(occurs))

    def merge(self, a: _Described, b: _Described) -> _Described:
        return _Described(a.about + b.about, a.occurring | b.occurring)


@dataclass(frozen=True)
class _Summarize(Request[Any]):
    view: View
    model: Any

    def at(self, part: Part, workers: Workers) -> Any:
        units = self.view.of(part)
        return self.model.summary(units) if units.total_weight > 0 else None

    def merge(self, a: Any, b: Any) -> Any:
        return a.merge(b)


@dataclass(frozen=True)
class _Total(Request[Any]):
    view: View
    function: Callable[[Units], Any]

    def at(self, part: Part, workers: Workers) -> Any:
        units = self.view.of(part)
        return self.function(units) if units.total_weight > 0 else 0.0


@dataclass(frozen=True)
class _Identify(Request[list[str]]):
    view: View

    def at(self, part: Part, workers: Workers) -> list[str]:
        return [fingerprint(*self.view.of(part).identity())]


@dataclass(frozen=True)
class _ToOnePart(Request[list]):
    """A request of the loop that goes to one part alone."""

    view: View
    request: Any

    def at(self, part: Part, workers: Workers) -> list:
        return [self.request.at(self.view.of(part), workers)]


_Asked = tuple[Job, list[Aside], Workers]


class PartedUnits(Units, Generic[U]):
    """Data points in parts, of which each has units of the kind U.

    Parameters
    ----------
    place : Place
        Where the parts are.
    gathered : Units
        Some of the data points, in memory: all if they are few.
    n_columns : int
        Number of columns that data points can have.
    """

    in_parts = True
    weights = None

    def __init__(self, place: Place, gathered: U, n_columns: int):
        self.place = place
        self.gathered: U = gathered
        self.n_columns = n_columns
        self._view = View()
        self._lockstep: Lockstep[_Asked, StepOfParts] | None = None
        self._described(SEQUENTIAL)

    def _described(self, workers: Workers) -> None:
        described = self.place.sum(_Describe(self._view, self.n_columns), workers)
        self._about, self._occurring = described
        if any(about.patterns for about in self._about):
            self._view = replace(self._view, patterns=True)
            self.gathered = self.gathered.marked()

    # Sizes

    @property
    def n_units(self) -> int:
        return sum(about.n_units for about in self._about)

    @property
    def n_weight_units(self) -> int:
        return sum(about.n_weight_units for about in self._about if about.weight > 0)

    @property
    def n_rows(self) -> int:
        return sum(about.n_rows for about in self._about)

    @property
    def n_entries(self) -> int:
        return sum(about.n_entries for about in self._about)

    @property
    def total_weight(self) -> float:
        return self._sum_of("weight")

    @property
    def n_observations(self) -> float:
        return self._sum_of("n_observations")

    def _sum_of(self, name: str) -> float:
        return float(sum(getattr(about, name) for about in self._about))

    @property
    def patterns(self) -> bool | None:
        """Not None if any cell is missing."""
        return True if self._view.patterns else None

    def occurring(self, n_columns: int) -> np.ndarray:
        return np.flatnonzero(np.unpackbits(self._occurring, count=n_columns)).astype(np.int32)

    @property
    def example(self) -> U:  # type: ignore[override]
        return self.gathered

    # Models look here for the form in which data points are stored.

    @property
    def X(self) -> Any:
        return self.gathered.X  # type: ignore[attr-defined]

    @property
    def center(self) -> Any:
        return self.gathered.center  # type: ignore[attr-defined]

    def rows(self) -> Units:
        return self.gathered.rows()  # type: ignore[attr-defined]

    # Access to the data without a visit

    def take(self, index: np.ndarray | slice) -> Units:
        raise NotImplementedError("data in parts have no single data points")

    def spread(self, size: int) -> Units:
        return self.gathered.spread(size)

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        return self.gathered.subset(size, random_state)

    def sample(self, size: int | None, random_state: np.random.RandomState) -> U:
        return self.gathered

    def operations(self, model: Any) -> float:
        largest = max(about.n_units for about in self._about)
        return float(model.operations(self.gathered)) * largest / max(self.gathered.n_units, 1)

    def centered(self, summary: Centered) -> PartedUnits[U]:
        other: PartedUnits = copy.copy(self)
        other._view = replace(self._view, center=getattr(summary, "center", None))
        other.gathered = self.gathered.centered(summary)
        return other

    def divided(self, share: float) -> tuple[PartedUnits, PartedUnits]:
        found = []
        for held_out in (True, False):
            other = copy.copy(self)
            other._view = replace(self._view, share=share, held_out=held_out)
            other._described(SEQUENTIAL)
            found.append(other)
        return found[0], found[1]

    # Requests

    def summary(self, model: Any) -> Any:
        return self.place.sum(_Summarize(self._view, model)).whole()

    def total(self, function: Callable[[Units], Any]) -> Any:
        return self.place.sum(_Total(self._view, function))

    def identity(self) -> tuple:
        return "parts", self.place.sum(_Identify(self._view))

    def in_turn(self, rng: np.random.Generator, workers: Workers) -> Iterator[Callable]:
        filled = [i for i, about in enumerate(self._about) if about.weight > 0]
        order = filled if len(filled) == 1 else rng.permutation(filled).tolist()
        for index in order:
            yield partial(self._at, index, workers)

    def _at(self, index: int, workers: Workers, request: Any) -> Any:
        return self.place.at(index, _ToOnePart(self._view, request), workers)

    # Visits

    def visit(
        self,
        prepared: Any,
        rng: np.random.Generator,
        local: Any,
        workers: Workers,
        totals: Any = None,
    ) -> tuple[Any, Any]:
        assert totals is None, "data in parts are no part of others"
        chain = None
        if prepared.keep:
            chain = Chain.at(self.place) if local is None else local
        single = sum(about.weight > 0 for about in self._about) == 1
        # The only part draws from the generator of the fit, as data in memory do.
        seed = copy.deepcopy(rng) if single else tuple(rng.integers(2**63, size=2).tolist())
        logged = Logged(prepared, seed, None)
        if prepared.weights is not None and not single:
            logged = logged._replace(totals=self.place.sum(Totals(logged, self._about)))
        job = Job(logged, None, 0, [], None)
        if chain is not None:
            job = Job(logged, chain.token.name, chain.number, [], chain.values)
        found = self._visited(job, [] if chain is None else chain.log, workers)
        if found.rng is not None:
            rng.bit_generator.state = found.rng.bit_generator.state
        if chain is None or not found.keeps:
            return found.step, None
        chain = chain.following(self.place, logged)
        if chain.log and len(chain.log) % _VISITS_BETWEEN_COPIES == 0:
            self.place.secure(chain.token.name)
        return found.step, chain

    def _visited(self, job: Job, log: list[Aside], workers: Workers) -> StepOfParts:
        if self._lockstep is None:
            return self._visit_all([(job, log, workers)])[0]
        return self._lockstep.pass_with((job, log, workers))

    def _visit_all(self, asked: list[_Asked]) -> list[StepOfParts]:
        """Make the visits of several restarts, each given with its log and its workers."""
        ended = tuple(self.place.ended)
        del self.place.ended[: len(ended)]
        request = VisitAll(self._view, [job for job, _, _ in asked], ended)
        if not self.place.warm:
            self.place.warm_up(request, self.gathered.spread(2))
            self.place.warm = True
        # The log goes only to parts that have lost their local variables. They make them anew.
        again = replace(request, jobs=[job._replace(replay=log) for job, log, _ in asked])
        found: list[StepOfParts] = self.place.sum(request, asked[0][2], again)
        return list(found)

    # Restarts

    def together(self, n: int) -> tuple[PartedUnits, Lockstep]:
        """Return these data for n restarts that visit them together, and what synchronises them."""
        other = copy.copy(self)
        other._lockstep = lockstep = Lockstep(n, self._visit_all)
        return other, lockstep
