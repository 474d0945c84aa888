"""Visits to data in parts, and the local variables that stay with the parts between them."""

from __future__ import annotations

import copy
import pickle
import tempfile
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..parallel.workers import Workers
from .part_views import About, View
from .parts import Part, Place, Request, copied
from .units import Units

# Values whose pickle is larger wait on disk.
_STAYS_IN_MEMORY = 1 << 20


class Aside:
    """A value that is stored as a pickle until it is needed; a large one is stored on disk."""

    def __init__(self, value: object):
        self._set(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    def _set(self, pickled: bytes) -> None:
        self._pickled: bytes | None = pickled
        self._path: str | None = None
        if len(pickled) > _STAYS_IN_MEMORY:
            with tempfile.NamedTemporaryFile(prefix="sklearn_anneal-", delete=False) as file:
                file.write(pickled)
            self._pickled, self._path = None, file.name
            weakref.finalize(self, _remove, file.name)

    def __reduce__(self) -> tuple:
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
    """Local variables that stay with the parts, from one visit to the next."""

    place: Place | None
    token: Token = field(default_factory=Token)  # the name under which parts keep them
    number: int = 0  # number of visits so far
    # The visits since local variables started anew, where a place may forget them. They can then be
    # made again, bit for bit.
    log: list[Aside] = field(default_factory=list)
    # Local variables by part, in a chain that was read from a checkpoint.
    values: dict[int, Any] | None = None

    @classmethod
    def at(cls, place: Place) -> Chain:
        """Begin a chain; when nobody has it any more, the parts drop what they keep for it."""
        chain = cls(place)
        weakref.finalize(chain.token, place.ended.append, chain.token.name)
        return chain

    def following(self, place: Place, logged: Logged) -> Chain:
        """Return the chain after one more visit."""
        log: list[Aside] = []
        if not place.remembers:
            log = [*([] if logged.prepared.forgets else self.log), Aside(logged)]
        return Chain(place, self.token, self.number + 1, log)

    def __getstate__(self) -> dict[str, object]:
        state = {**vars(self), "place": None}
        if self.place is not None and self.place.remembers and self.number:
            values = self.place.sum(_Fetch(self.token.name))
            state["values"] = values
        return state


class Logged(NamedTuple):
    """A visit with what makes its results: seeds and the totals of random weights."""

    prepared: Any
    seed: Any
    totals: Any

    def rng(self, index: int) -> np.random.Generator:
        """The generator of a part."""
        if isinstance(self.seed, np.random.Generator):
            return copy.deepcopy(self.seed)
        return np.random.default_rng([*self.seed, index])


@dataclass(frozen=True)
class _Fetch(Request[dict[int, Any]]):
    token: str
    reads = False

    def at(self, part: Part, workers: Workers) -> dict[int, Any]:
        return {part.index: part.kept[self.token]} if self.token in part.kept else {}

    def merge(self, a: dict[int, Any], b: dict[int, Any]) -> dict[int, Any]:
        return {**a, **b}


class Job(NamedTuple):
    """One visit to all parts, of one restart."""

    logged: Logged
    token: str | None  # the place of local variables; None if they are not kept
    number: int  # number of visits of the chain before this one
    # The visits since local variables started anew, for a part that has lost them.
    replay: list[Aside]
    # Local variables by part, of a chain that was read from a checkpoint.
    values: dict[int, Any] | None


class StepOfParts(NamedTuple):
    """The sum of some parts' local steps of one job."""

    step: Any
    keeps: bool  # whether local variables were kept
    # The generator after the visit of a single part, which is that of the fit.
    rng: np.random.Generator | None
    # The parts that have lost their local variables, so that their steps are missing.
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class VisitAll(Request[list[StepOfParts]]):
    """Visits of one or several restarts, for which the data are read once."""

    view: View
    jobs: list[Job]
    ended: tuple[str, ...] = ()

    @property
    def repeated(self) -> tuple[str, ...]:
        return tuple(job.token for job in self.jobs if job.replay and job.token is not None)

    def failed(self, result: list[StepOfParts]) -> bool:
        return any(step.lost for step in result)

    def at(self, part: Part, workers: Workers) -> list[StepOfParts]:
        for token in self.ended:
            part.kept.pop(token, None)
            part.kept.pop(copied(token), None)
        units = self.view.of(part)
        if units.total_weight == 0:
            return [StepOfParts(None, False, None) for _ in self.jobs]
        return [self._one(job, part, units, workers) for job in self.jobs]

    def _one(self, job: Job, part: Part, units: Units, workers: Workers) -> StepOfParts:
        local = None
        if job.token is not None and job.number and not job.logged.prepared.forgets:
            local = self._local(job, part, units, workers)
            if local is None:
                return StepOfParts(None, True, None, (part.index,))
        rng = job.logged.rng(part.index)
        step, found = units.visit(job.logged.prepared, rng, local, workers, job.logged.totals)
        if found is not None and job.token is not None:
            part.kept[job.token] = job.number + 1, found
        step = replace(step, local=None, inverse_temperatures=None)
        of_fit = isinstance(job.logged.seed, np.random.Generator)
        return StepOfParts(step, found is not None, rng if of_fit else None)

    def _local(self, job: Job, part: Part, units: Units, workers: Workers) -> Any:
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
            _, local = units.visit(logged.prepared, rng, local, workers, logged.totals)
        return local

    def merge(self, a: list[StepOfParts], b: list[StepOfParts]) -> list[StepOfParts]:
        return [
            self._merged(job.logged.prepared.visit, one, other)
            for job, one, other in zip(self.jobs, a, b, strict=True)
        ]

    @staticmethod
    def _merged(visit: Any, a: StepOfParts, b: StepOfParts) -> StepOfParts:
        if a.step is None or b.step is None:
            step = b.step if a.step is None else a.step
        else:
            step = visit.merge(a.step, b.step)
        return StepOfParts(step, a.keeps or b.keeps, a.rng or b.rng, a.lost + b.lost)


@dataclass(frozen=True)
class Totals(Request[Any]):
    """The first round of random weights: the totals to which all parts scale theirs."""

    logged: Logged
    about: list[About]
    reads = False

    def at(self, part: Part, workers: Workers) -> Any:
        about, weights = self.about[part.index], self.logged.prepared.weights
        if about.weight == 0:
            return None
        return weights.draw(about.n_weight_units, self.logged.rng(part.index))[1]

    def merge(self, a: Any, b: Any) -> Any:
        return self.logged.prepared.weights.merge(a, b)
