"""Specifications of fits, and their results in a file, so that an interrupted run goes on."""

from __future__ import annotations

import json
import os
import sys
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed

Record = dict[str, np.ndarray]


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
    """

    def __init__(self, path: Path, spec: type[Any]):
        self.path = path
        self._found: dict[str, dict[str, Any]] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                print(f"{path}, line {number}: incomplete, left out.", file=sys.stderr)
                continue
            self._found[spec(**row["spec"]).key] = row["result"]
        # If the last line was cut off, a new line must begin before the next result is appended.
        self._separator = "" if not text or text.endswith("\n") else "\n"

    def __contains__(self, spec: BaseSpec) -> bool:
        return spec.key in self._found

    def __len__(self) -> int:
        return len(self._found)

    def add(self, spec: BaseSpec, result: dict[str, Any]) -> None:
        """Keep a result, and append it to the file."""
        self._found[spec.key] = result
        line = json.dumps({"spec": asdict(spec), "result": result})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{self._separator}{line}\n")
        self._separator = ""

    def result(self, spec: BaseSpec) -> dict[str, Any] | None:
        """Return the stored figures of one fit; None if they are missing."""
        return self._found.get(spec.key)

    def record(self, spec: BaseSpec, n_seeds: int) -> Record | None:
        """Each quantity over the seeds, of shape (n_seeds,); None if a seed's fit is missing."""
        specs = spec.seeded(n_seeds)
        if not all(s in self for s in specs):
            return None
        rows = [self._found[s.key] for s in specs]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def n_seeds(self, cells: Iterable[Any], at_most: int) -> int:
        """The number of seeds, counted from the first, for which all the cells are complete."""
        cells = list(cells)
        for n in range(at_most if cells else 0):
            if not all(replace(spec, seed=n) in self for spec in cells):
                return n
        return at_most if cells else 0


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
