"""Code that reproductions share: specifications of fits, their results in a file, the script."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from joblib import Parallel, delayed

from . import RESULTS
from .report import Claim, Page, verdict_page

Record = dict[str, np.ndarray]
Settings = tuple[tuple[str, Any], ...]
Key = TypeVar("Key", bound=Hashable)


def settings_of(**settings: Any) -> Settings:
    """Settings in a form that can be part of the key by which the cache finds a fit."""
    return tuple(sorted(settings.items()))


@dataclass(frozen=True)
class BaseSpec:
    """Everything that determines a fit, including the ``seed``; the key of the fit in the cache."""

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def seeded(self, n_seeds: int) -> list[Self]:
        """Copies of this specification, one for each seed."""
        return [replace(self, seed=seed) for seed in range(n_seeds)]  # type: ignore[call-arg]

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of the fit in messages about progress."""

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """Fit and measure the result; ``seconds`` of processor time are among the figures."""


class Cache:
    """Results of fits in a file, one JSON line each; those of an interrupted run are kept.

    Parameters
    ----------
    path : Path
        The file; it need not exist.
    spec : type
        The class of the specifications of its fits.

    Attributes
    ----------
    specs : dict
        The specifications of the fits that it has, by their keys.
    """

    def __init__(self, path: Path, spec: type[Any]):
        self.path = path
        self.specs: dict[str, Any] = {}
        self._found: dict[str, dict[str, Any]] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                print(f"{path}, line {number}: incomplete, left out.", file=sys.stderr)
                continue
            made = spec(**row["spec"])
            self.specs[made.key], self._found[made.key] = made, row["result"]
        # If the last line was cut off, a new line must begin before the next result is appended.
        self._separator = "" if not text or text.endswith("\n") else "\n"

    def __contains__(self, spec: BaseSpec) -> bool:
        return spec.key in self._found

    def __len__(self) -> int:
        return len(self._found)

    def add(self, spec: BaseSpec, result: dict[str, Any]) -> None:
        """Keep a result, and append it to the file."""
        self.specs[spec.key], self._found[spec.key] = spec, result
        line = json.dumps({"spec": asdict(spec), "result": result})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{self._separator}{line}\n")
        self._separator = ""

    def result(self, spec: BaseSpec) -> dict[str, Any] | None:
        """What was kept of one fit; None if it is missing."""
        return self._found.get(spec.key)

    def record(self, spec: BaseSpec, n_seeds: int) -> Record | None:
        """Each quantity over the seeds, of shape (n_seeds,); None if a seed's fit is missing."""
        specs = spec.seeded(n_seeds)
        if not all(s in self for s in specs):
            return None
        rows = [self._found[s.key] for s in specs]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def records(self, cells: dict[Key, Any], n_seeds: int) -> dict[Key, Record]:
        """The records of all cells that are complete."""
        found = {key: self.record(spec, n_seeds) for key, spec in cells.items()}
        return {key: record for key, record in found.items() if record is not None}

    def of_common_seeds(self, cells: dict[Key, Any], at_most: int) -> dict[Key, Record]:
        """The records of the seeds that all cells have."""
        n = self.n_seeds(cells.values(), at_most)
        return self.records(cells, n) if n else {}

    def n_seeds(self, cells: Iterable[Any], at_most: int) -> int:
        """The number of seeds, counted from the first, for which all the cells are complete."""
        cells = list(cells)
        for n in range(at_most if cells else 0):
            if not all(replace(spec, seed=n) in self for spec in cells):
                return n
        return at_most if cells else 0

    @property
    def seconds(self) -> float:
        """Processor time of all fits."""
        return sum(row["seconds"] for row in self._found.values())


def n_seeds(records: dict[Any, Record]) -> int:
    """The largest number of seeds that a record has."""
    return max(len(record["seconds"]) for record in records.values())


def run_missing(cells: Iterable[BaseSpec], n_seeds: int, cache: Cache, jobs: int = 1) -> None:
    """Run all fits that the cache does not have, seed by seed, and keep each when it ends."""
    seeded = [spec.seeded(n_seeds) for spec in cells]
    every = [spec for one_seed in zip(*seeded, strict=True) for spec in one_seed]
    run_all((spec for spec in every if spec not in cache), cache, jobs)


def run_all(specs: Iterable[BaseSpec], cache: Cache, jobs: int = 1) -> None:
    """Run fits, each once, and keep each when it ends."""
    todo = list({spec.key: spec for spec in specs}.values())
    begun = time.perf_counter()
    for done, (spec, result) in enumerate(_results(todo, jobs), 1):
        cache.add(spec, result)
        print(
            f"{time.perf_counter() - begun:6.0f} s  {done} of {len(todo)}: {spec.label}",
            file=sys.stderr,
            flush=True,
        )


def _results(specs: list[BaseSpec], jobs: int) -> Iterator[tuple[BaseSpec, dict[str, Any]]]:
    if jobs == 1 or len(specs) < 2:
        yield from map(_with_result, specs)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the processes
    pool = Parallel(n_jobs=jobs, backend="loky", batch_size=1, return_as="generator_unordered")
    yield from pool(delayed(_with_result)(spec) for spec in specs)


def _with_result(spec: BaseSpec) -> tuple[BaseSpec, dict[str, Any]]:
    return spec, spec.run()


class Reproduction(NamedTuple):
    """A script that makes fits, keeps their results in a cache, and writes a page from the cache.

    Attributes
    ----------
    model : str
        The folder of the script, which is called ``reproduce.py``.
    title, description : str
        The title of the page, and the description of the script.
    rules : str
        The meaning of the verdicts on the page.
    plan : module
        It defines the measurements: ``PARTS``, the sizes ``FULL`` and ``QUICK``, and
        ``measure(parts, size, cache, jobs)``, which makes the fits that a cache does not have.
    spec : type
        The class of the specifications of fits.
    sections : callable
        ``sections(page, size, cache)`` adds the sections after the verdicts and returns the claims.
    output : str
        Name of the page.
    """

    model: str
    title: str
    description: str
    rules: str
    plan: Any
    spec: type[Any]
    sections: Callable[[Page, Any, Cache], list[Claim]]
    output: str

    def run(self, argv: list[str] | None) -> None:
        """Run the script with the options of the command line."""
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--parts", nargs="+", choices=self.plan.PARTS, default=self.plan.PARTS)
        parser.add_argument("--quick", action="store_true", help="a small run that tells nothing")
        parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
        parser.add_argument("--cache", type=Path, required=True, help="JSON lines, one per fit")
        parser.add_argument("--write", action="store_true", help="write the page, and fit nothing")
        output = f"file to write (default: {self.output})"
        parser.add_argument("--output", type=Path, help=output)
        arguments = parser.parse_args(argv)
        if arguments.quick and arguments.write and arguments.output is None:
            parser.error("--quick needs --output, so that it does not replace the full page")
        size = self.plan.QUICK if arguments.quick else self.plan.FULL
        cache = Cache(arguments.cache, self.spec)
        if not arguments.write:
            self.plan.measure(arguments.parts, size, cache, arguments.jobs)
            return
        text = self.render(cache, size)
        (arguments.output or RESULTS / self.output).write_text(text, encoding="utf-8")

    def render(self, cache: Cache, size: Any) -> str:
        """The page, in Markdown, from the results in the cache."""
        body = Page()
        body.claims += self.sections(body, size, cache)
        cost = f"The {len(cache)} fits took {cache.seconds / 60:.0f} minutes of processor time."
        return verdict_page(self.model, self.title, self.rules, body, cost, size.quick)
