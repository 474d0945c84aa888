"""The runs that are compared: those that a file of records has, and those still to be made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ..common.records import Cache
from .contestants import RECOMMENDED
from .data import SHORT, available
from .runs import CONTESTANTS, Spec
from .time_verdicts import Curve
from .topic_peers import MALLET, TOMOTOPY, TWO_WORKERS

# Samplers have no budget: the page compares their last states, and averages over some before these.
UNCUT = {"default", RECOMMENDED, TOMOTOPY, TWO_WORKERS, MALLET}
# Names in the filters of --only → the attributes of the specifications.
FILTERS = {
    "corpus": "corpus",
    "K": "n_components",
    "contestant": "contestant",
    "seed": "seed",
}


@dataclass(frozen=True)
class Size:
    """The size of the comparison.

    Attributes
    ----------
    real, others : tuple of str
        Corpora about which the verdicts are, and those beside them.
    topics : tuple of int
        Numbers of topics K.
    seeds : int
    code : str
        The state of the package whose runs are made or reported.
    """

    real: tuple[str, ...] = ("AP", "NIPS", "20 Newsgroups")
    others: tuple[str, ...] = ("baseball and hockey", SHORT)
    topics: tuple[int, ...] = (50, 200, 500)
    seeds: int = 3
    code: str = ""
    quick: bool = False

    @property
    def corpora(self) -> tuple[str, ...]:
        return (*self.real, *self.others)

    @property
    def cells(self) -> list[tuple[str, int]]:
        return [(corpus, k) for corpus in self.corpora for k in self.topics]

    def specs(self) -> Iterator[Spec]:
        """Every run, one cell after the other, because one machine has to complete a cell."""
        for corpus, k in self.cells:
            for seed in range(self.seeds):
                for contestant in CONTESTANTS:
                    yield Spec.of(corpus, k, contestant, seed, self.code)


FULL = Size()
QUICK = Size(real=("drawn",), others=(), topics=(3,), seeds=1, quick=True)


class Filter(NamedTuple):
    """A condition on runs, from the command line: a name of ``FILTERS`` and a pattern."""

    name: str
    pattern: str

    @classmethod
    def of(cls, text: str) -> Filter:
        """Read ``NAME=PATTERN``.

        Raises
        ------
        ValueError
            If the name is not known.
        """
        name, _, pattern = text.partition("=")
        if name not in FILTERS or not pattern:
            raise ValueError(f"not NAME=PATTERN with one of {', '.join(FILTERS)}: {text!r}")
        return cls(name, pattern)

    def holds(self, spec: Spec) -> bool:
        return fnmatchcase(str(getattr(spec, FILTERS[self.name])), self.pattern)


def chosen(specs: Iterable[Spec], filters: Iterable[Filter]) -> list[Spec]:
    """The runs that fulfil, for each name, one of its conditions."""
    conditions: dict[str, list[Filter]] = {}
    for condition in filters:
        conditions.setdefault(condition.name, []).append(condition)
    return [
        spec
        for spec in specs
        if all(any(each.holds(spec) for each in same) for same in conditions.values())
    ]


def missing(specs: Iterable[Spec], cache: Cache, budget: float | None) -> list[Spec]:
    """The runs that the file does not have, or only up to a smaller budget."""
    specs = list(specs)
    there = set(available({spec.corpus: None for spec in specs}))
    budgeted = [
        replace(spec, budget=None if spec.contestant in UNCUT else budget)
        for spec in specs
        if spec.corpus in there
    ]
    return [spec for spec in budgeted if not _is_made(cache.result(spec), spec.budget)]


def _is_made(result: dict[str, Any] | None, budget: float | None) -> bool:
    if result is None:
        return False
    return not result["cut"] or (budget is not None and result["budget"] >= budget)


def by_machine(cache: Cache, size: Size, cell: tuple[str, int]) -> dict[str, list[Spec]]:
    """The runs of a cell, on each of the machines that have made runs."""
    specs = [spec for spec in size.specs() if (spec.corpus, spec.n_components) == cell]
    names = sorted({spec.machine for spec in cache.specs.values()})
    return {name: [replace(spec, machine=name) for spec in specs] for name in names}


def left_to(machine: str, specs: Iterable[Spec], cache: Cache, size: Size) -> list[Spec]:
    """The runs of cells that no other machine has completed."""
    done = {
        cell
        for cell in size.cells
        for name, every in by_machine(cache, size, cell).items()
        if name != machine and all(spec in cache for spec in every)
    }
    return [spec for spec in specs if (spec.corpus, spec.n_components) not in done]


class Found:
    """The records of a file, by corpus, number of topics and contestant.

    Processor times of different machines do not compare. Of each cell, only the records of one
    machine count: of that which has the most.

    Parameters
    ----------
    cache : Cache
    size : Size

    Attributes
    ----------
    machines : dict of str
        The machine of each cell that has records.
    """

    def __init__(self, cache: Cache, size: Size):
        self.size = size
        self.machines: dict[tuple[str, int], str] = {}
        self._results: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
        for cell in size.cells:
            every = by_machine(cache, size, cell)
            made = {name: [s for s in specs if s in cache] for name, specs in every.items()}
            most = max(made, key=lambda name: len(made[name]), default="")
            for spec in made.get(most, []):
                self.machines[cell] = most
                result = cache.result(spec)
                if result is not None:
                    self._results.setdefault((*cell, spec.contestant), []).append(result)

    def results(self, corpus: str, k: int, contestant: str) -> list[dict[str, Any]]:
        """The records of all seeds that there are."""
        return self._results.get((corpus, k, contestant), [])

    def curves(self, corpus: str, k: int, contestant: str) -> list[Curve]:
        return [Curve.of(result) for result in self.results(corpus, k, contestant)]

    def is_cut(self, corpus: str, k: int, *contestants: str) -> bool:
        """Whether a run of one of some contestants was cut by its budget."""
        return any(
            result["cut"] for name in contestants for result in self.results(corpus, k, name)
        )

    def contestants(self, corpus: str, k: int) -> list[str]:
        """The contestants that have records of a cell."""
        return [name for name in CONTESTANTS if (corpus, k, name) in self._results]

    def every(self) -> Iterator[dict[str, Any]]:
        for results in self._results.values():
            yield from results

    def sizes(self, corpus: str) -> dict[str, Any] | None:
        """A record of a corpus, which has its sizes; None if there is none."""
        for (name, _, _), results in self._results.items():
            if name == corpus:
                return results[0]
        return None
