"""Data points in parts, as the loop of inference sees them: sizes, summaries, sweeps."""

from __future__ import annotations

import copy
import pickle
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from .checkpoint import fingerprint
from .lockstep import Lockstep
from .parallel import SEQUENTIAL, Workers
from .parts import Errand, Part, Place, copied
from .units import Units


class About(NamedTuple):
    """What a fit needs to know of a part.

    Attributes
    ----------
    n_units, n_weight_units : int
    n_entries : int
        The number of entries of data points that have different numbers of them, and else 0.
    weight, n_observations : float
    patterns : bool
        Whether cells are missing.
    """

    n_units: int
    n_weight_units: int
    n_entries: int
    weight: float
    n_observations: float
    patterns: bool


@dataclass(frozen=True)
class View:
    """The form in which the data points of a part are seen.

    Attributes
    ----------
    center : object
        The summary's center, which data points are seen relative to; None before there is one.
    patterns : bool
        Whether any part has missing cells. All parts are then treated alike.
    share : float or None
        The share of data points that is held out; None: all are seen.
    held_out : bool
        Whether these are seen, and not the others.
    """

    center: Any = None
    patterns: bool = False
    share: float | None = None
    held_out: bool = False

    def of(self, part: Part) -> Units:
        """Return the data points of a part in this form."""
        units: Any = part.units
        if units.n_units == 0:
            return NoUnits()
        if self.share is not None:
            order = np.random.RandomState(part.index).permutation(units.n_units)
            n = max(1, round(self.share * units.n_units))
            units = units.take(np.sort(order[:n] if self.held_out else order[n:]))
        if self.patterns:
            units = units.marked()
        return units if self.center is None else units.centered(self)


class _Described(NamedTuple):
    """What a fit needs to know of several parts.

    Attributes
    ----------
    about : list of About
    met : ndarray of uint8
        The columns with an entry in any of the parts, in one bit each.
    """

    about: list[About]
    met: np.ndarray


@dataclass(frozen=True)
class _Describe(Errand):
    view: View
    n_columns: int

    def at(self, part: Part, workers: Workers) -> _Described:
        units = self.view.of(part)
        patterns = getattr(units, "patterns", None)
        weight = units.total_weight
        sizes = units.n_units, units.n_weight_units, getattr(units, "n_entries", 0)
        about = About(*sizes, weight, units.n_observations, patterns is not None)
        occurs = np.zeros(self.n_columns, dtype=bool)
        occurs[units.met(self.n_columns)] = True
        return _Described([about], np.packbits(occurs))

    def merge(self, a: _Described, b: _Described) -> _Described:
        return _Described(a.about + b.about, a.met | b.met)


@dataclass(frozen=True)
class _Summarize(Errand):
    view: View
    model: Any

    def at(self, part: Part, workers: Workers) -> Any:
        units = self.view.of(part)
        return self.model.summary(units) if units.total_weight > 0 else None

    def merge(self, a: Any, b: Any) -> Any:
        return a.merge(b)


@dataclass(frozen=True)
class _Total(Errand):
    view: View
    function: Callable[[Units], float]

    def at(self, part: Part, workers: Workers) -> float:
        units = self.view.of(part)
        return self.function(units) if units.total_weight > 0 else 0.0


@dataclass(frozen=True)
class _Identify(Errand):
    view: View

    def at(self, part: Part, workers: Workers) -> list[str]:
        return [fingerprint(*self.view.of(part).identity())]


@dataclass(frozen=True)
class _Visit(Errand):
    """An errand of the loop that goes to one part alone."""

    view: View
    errand: Any

    def at(self, part: Part, workers: Workers) -> list[Any]:
        return [self.errand.at(self.view.of(part), workers)]


# After so many visits of a chain, local variables are copied to a second worker. A lost worker then
# costs no more than so many visits to its parts.
_VISITS_BETWEEN_COPIES = 20
# Values whose pickle is larger wait on disk.
_STAYS_IN_MEMORY = 1 << 20


class Aside:
    """A value that waits, as a pickle, until it is asked for; a large one waits on disk."""

    def __init__(self, value: Any):
        self._set(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    def _set(self, pickled: bytes) -> None:
        self._pickled: bytes | None = pickled
        self._path: str | None = None
        if len(pickled) > _STAYS_IN_MEMORY:
            with tempfile.NamedTemporaryFile(prefix="sklearn_anneal-", delete=False) as file:
                file.write(pickled)
            self._pickled, self._path = None, file.name
            weakref.finalize(self, _remove, file.name)

    def __reduce__(self) -> Any:
        return _put_aside, (self._bytes(),)

    def _bytes(self) -> bytes:
        if self._path is None:
            assert self._pickled is not None
            return self._pickled
        return Path(self._path).read_bytes()

    def get(self) -> Any:
        """Return the value."""
        return pickle.loads(self._bytes())


def _put_aside(pickled: bytes) -> Aside:
    aside = Aside.__new__(Aside)
    aside._set(pickled)
    return aside


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


class Token:
    """The name of a chain of visits, which belongs to all copies of the chain."""

    def __init__(self) -> None:
        self.name = uuid4().hex


@dataclass
class Chain:
    """Local variables that stay with the parts, from one visit to the next.

    Attributes
    ----------
    token : Token
        The name under which parts keep them.
    number : int
        Number of visits so far.
    log : list of Aside
        The sweeps since local variables started anew, where a place may forget them. They can then
        be made again, bit for bit.
    values : dict or None
        Local variables by part, in a chain that was read from a checkpoint.
    """

    place: Place | None
    token: Token = field(default_factory=Token)
    number: int = 0
    log: list[Aside] = field(default_factory=list)
    values: dict[int, Any] | None = None

    @classmethod
    def at(cls, place: Place) -> Chain:
        """Begin a chain; when nobody has it any more, the parts drop what they keep for it."""
        chain = cls(place)
        weakref.finalize(chain.token, place.ended.append, chain.token.name)
        return chain

    def following(self, place: Place, logged: _Logged) -> Chain:
        """Return the chain after one more visit."""
        log: list[Aside] = []
        if not place.remembers:
            log = [*([] if logged.sweep.forgets else self.log), Aside(logged)]
        return Chain(place, self.token, self.number + 1, log)

    def __getstate__(self) -> dict[str, Any]:
        state = {**vars(self), "place": None}
        if self.place is not None and self.place.remembers and self.number:
            values = self.place.sum(_Fetch(self.token.name))
            state["values"] = values
        return state


class _Logged(NamedTuple):
    """A sweep with what makes its results: seeds and the totals of random weights."""

    sweep: Any
    seed: Any
    totals: Any

    def rng(self, index: int) -> np.random.Generator:
        """The generator of a part."""
        if isinstance(self.seed, np.random.Generator):
            return copy.deepcopy(self.seed)
        return np.random.default_rng([*self.seed, index])


@dataclass(frozen=True)
class _Fetch(Errand):
    token: str
    reads = False

    def at(self, part: Part, workers: Workers) -> dict[int, Any]:
        return {part.index: part.kept[self.token]} if self.token in part.kept else {}

    def merge(self, a: dict[int, Any], b: dict[int, Any]) -> dict[int, Any]:
        return {**a, **b}


class _Job(NamedTuple):
    """One sweep over all parts, of one restart.

    Attributes
    ----------
    logged : _Logged
    token : str or None
        Where local variables are kept; None if they are not.
    number : int
        Number of visits of the chain before this one.
    replay : list of Aside
        The sweeps since local variables started anew, for a part that has lost them.
    values : dict or None
        Local variables by part, of a chain that was read from a checkpoint.
    """

    logged: _Logged
    token: str | None
    number: int
    replay: list[Aside]
    values: dict[int, Any] | None


class _Swept(NamedTuple):
    """The sum of some parts' local steps of one job.

    Attributes
    ----------
    step : LocalStep or None
    keeps : bool
        Whether local variables were kept.
    rng : numpy.random.Generator or None
        The generator after the visit of a single part, which is that of the fit.
    lost : tuple of int
        The parts that have lost their local variables, so that their steps are missing.
    """

    step: Any
    keeps: bool
    rng: Any
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class _SweepAll(Errand):
    """Sweeps of one or several restarts, for which the data are read once."""

    view: View
    jobs: list[_Job]
    ended: tuple[str, ...] = ()  # type: ignore[assignment]

    @property
    def repeated(self) -> tuple[str, ...]:
        return tuple(job.token for job in self.jobs if job.replay and job.token is not None)

    def failed(self, result: list[_Swept]) -> bool:
        return any(swept.lost for swept in result)

    def at(self, part: Part, workers: Workers) -> list[_Swept]:
        for token in self.ended:
            part.kept.pop(token, None)
            part.kept.pop(copied(token), None)
        units = self.view.of(part)
        if units.total_weight == 0:
            return [_Swept(None, False, None) for _ in self.jobs]
        return [self._one(job, part, units, workers) for job in self.jobs]

    def _one(self, job: _Job, part: Part, units: Units, workers: Workers) -> _Swept:
        local = None
        if job.token is not None and job.number and not job.logged.sweep.forgets:
            local = self._local(job, part, units, workers)
            if local is None:
                return _Swept(None, True, None, (part.index,))
        rng = job.logged.rng(part.index)
        step, found = job.logged.sweep.over(units, rng, local, workers, job.logged.totals)
        if found is not None and job.token is not None:
            part.kept[job.token] = job.number + 1, found
        step = replace(step, local=None, inverse_temperatures=None)
        of_fit = isinstance(job.logged.seed, np.random.Generator)
        return _Swept(step, found is not None, rng if of_fit else None)

    def _local(self, job: _Job, part: Part, units: Units, workers: Workers) -> Any:
        """The local variables that the visit before has left; None if they are gone."""
        assert job.token is not None
        found = [part.kept.get(key) for key in (job.token, copied(job.token))]
        if job.values is not None:
            found.append(job.values.get(part.index))
        known = {number: local for number, local in filter(None, found) if number <= job.number}
        if job.number in known:
            return list(known[job.number])
        if not job.replay:
            return None
        # The log begins where local variables started anew; a copy saves its first entries.
        first = job.number - len(job.replay)
        latest = max((number for number in known if number > first), default=first)
        local = list(known[latest]) if latest > first else None
        for aside in job.replay[latest - first :]:
            logged = aside.get()
            rng = logged.rng(part.index)
            _, local = logged.sweep.over(units, rng, local, workers, logged.totals)
        return local

    def merge(self, a: list[_Swept], b: list[_Swept]) -> list[_Swept]:
        return [
            self._merged(job.logged.sweep.prepared, one, other)
            for job, one, other in zip(self.jobs, a, b, strict=True)
        ]

    @staticmethod
    def _merged(prepared: Any, a: _Swept, b: _Swept) -> _Swept:
        if a.step is None or b.step is None:
            step = b.step if a.step is None else a.step
        else:
            step = prepared.merge(a.step, b.step)
        return _Swept(step, a.keeps or b.keeps, a.rng or b.rng, a.lost + b.lost)


@dataclass(frozen=True)
class _Totals(Errand):
    """The first round of random weights: the totals to which all parts scale theirs."""

    logged: _Logged
    about: list[About]
    reads = False

    def at(self, part: Part, workers: Workers) -> Any:
        about, weights = self.about[part.index], self.logged.sweep.weights
        if about.weight == 0:
            return None
        return weights.draw(about.n_weight_units, self.logged.rng(part.index))[1]

    def merge(self, a: Any, b: Any) -> Any:
        return self.logged.sweep.weights.merge(a, b)


class NoUnits(Units):
    """The data points of an empty part."""

    weights = None
    n_units = 0  # type: ignore[assignment]

    def take(self, index: np.ndarray | slice) -> NoUnits:
        return self

    def centered(self, summary: Any) -> NoUnits:
        return self

    def met(self, n_columns: int) -> np.ndarray:
        return np.empty(0, dtype=np.int32)


class PartedUnits(Units):
    """Data points in parts.

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

    def __init__(self, place: Place, gathered: Units, n_columns: int):
        self.place = place
        self.gathered = gathered
        self.n_columns = n_columns
        self._view = View()
        self._lockstep: Lockstep | None = None
        self._described(SEQUENTIAL)

    def _described(self, workers: Workers) -> None:
        described = self.place.sum(_Describe(self._view, self.n_columns), workers)
        self._about, self._met = described
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
    def patterns(self) -> Any:
        """Not None if any cell is missing."""
        return True if self._view.patterns else None

    def met(self, n_columns: int) -> np.ndarray:
        return np.flatnonzero(np.unpackbits(self._met, count=n_columns)).astype(np.int32)

    @property
    def example(self) -> Units:
        return self.gathered

    # Models look here for the form in which data points are stored.

    @property
    def X(self) -> Any:
        return self.gathered.X  # type: ignore[attr-defined]

    @property
    def center(self) -> Any:
        return self.gathered.center  # type: ignore[attr-defined]

    def rows(self) -> Units:
        return self.gathered.rows()  # type: ignore[attr-defined, no-any-return]

    # What is taken from the data without a visit

    def take(self, index: np.ndarray | slice) -> Units:
        raise NotImplementedError("data in parts have no single data points")

    def spread(self, size: int) -> Units:
        return self.gathered.spread(size)

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        return self.gathered.subset(size, random_state)

    def sample(self, size: int | None, random_state: np.random.RandomState) -> Units:
        return self.gathered

    def operations(self, model: Any) -> float:
        largest = max(about.n_units for about in self._about)
        return float(model.operations(self.gathered)) * largest / max(self.gathered.n_units, 1)

    def centered(self, summary: Any) -> PartedUnits:
        other = copy.copy(self)
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

    # Errands

    def summary(self, model: Any) -> Any:
        return self.place.sum(_Summarize(self._view, model)).whole()

    def total(self, function: Callable[[Units], float]) -> float:
        return float(self.place.sum(_Total(self._view, function)))

    def identity(self) -> Any:
        return "parts", self.place.sum(_Identify(self._view))

    def in_turn(self, rng: np.random.Generator) -> Iterator[Callable[[Any, Any], Any]]:
        filled = [i for i, about in enumerate(self._about) if about.weight > 0]
        order = filled if len(filled) == 1 else rng.permutation(filled).tolist()
        for index in order:
            yield partial(self._at, index)

    def _at(self, index: int, errand: Any, workers: Workers) -> Any:
        return self.place.at(index, _Visit(self._view, errand), workers)

    # Sweeps

    def swept(
        self, sweep: Any, rng: np.random.Generator, local: Any, workers: Workers
    ) -> tuple[Any, Any]:
        chain = None
        if sweep.keep:
            chain = Chain.at(self.place) if local is None else local
        single = sum(about.weight > 0 for about in self._about) == 1
        # The only part draws from the generator of the fit, as data in memory do.
        seed = copy.deepcopy(rng) if single else tuple(rng.integers(2**63, size=2).tolist())
        logged = _Logged(sweep, seed, None)
        if sweep.weights is not None and not single:
            logged = logged._replace(totals=self.place.sum(_Totals(logged, self._about)))
        job = _Job(logged, None, 0, [], None)
        if chain is not None:
            job = _Job(logged, chain.token.name, chain.number, [], chain.values)
        found = self._swept(job, [] if chain is None else chain.log, workers)
        if found.rng is not None:
            rng.bit_generator.state = found.rng.bit_generator.state
        if chain is None or not found.keeps:
            return found.step, None
        chain = chain.following(self.place, logged)
        if chain.log and len(chain.log) % _VISITS_BETWEEN_COPIES == 0:
            self.place.secure(chain.token.name)
        return found.step, chain

    def _swept(self, job: _Job, log: list[Aside], workers: Workers) -> _Swept:
        if self._lockstep is None:
            return self._sweep([(job, log, workers)])[0]
        return self._lockstep.pass_with((job, log, workers))

    def _sweep(self, asked: list[tuple[_Job, list[Aside], Workers]]) -> list[_Swept]:
        """Make the sweeps of several restarts, each given with its log and its workers."""
        ended = tuple(self.place.ended)
        del self.place.ended[: len(ended)]
        errand = _SweepAll(self._view, [job for job, _, _ in asked], ended)
        if not self.place.warm:
            self.place.warm_up(errand, self.gathered.spread(2))
            self.place.warm = True
        # The log goes only to parts that have lost their local variables. They make them anew.
        again = replace(errand, jobs=[job._replace(replay=log) for job, log, _ in asked])
        return list(self.place.sum(errand, asked[0][2], again))

    # Restarts

    def together(self, n: int) -> tuple[PartedUnits, Lockstep]:
        """Return these data for n restarts that visit them together, and what holds them so."""
        other = copy.copy(self)
        other._lockstep = lockstep = Lockstep(n, self._sweep)
        return other, lockstep
