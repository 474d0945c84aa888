"""Fits to data in memory, against those of the last commit without data in parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..common import ROOT
from ..common.data import left_out
from ..common.interpreters import THREAD_LIMITS
from ..common.measuring import progress, spread
from ..common.passes import PassClock
from ..common.report import Page
from ..latent_dirichlet.data import available, corpus
from ..matrix_factorization import data as rated
from .data import drawn
from .workload import Size, factorization, mixture, ratings, sequences, topics

COMMIT = "583a2fa"
LOWEST, HIGHEST = 0.97, 1.05


class Case(NamedTuple):
    """A fit that is timed in both commits.

    Attributes
    ----------
    name : str
    make : callable
        Returns an estimator, given parameters.
    data : str
        Which data.
    passes : int
        Number of passes.
    parameters : dict
        Parameters of the estimator.
    whole : bool
        Whether the whole fit is timed, and not its passes.
    """

    name: str
    make: Callable[..., Any]
    data: str
    passes: int
    parameters: dict[str, Any] = {}
    whole: bool = False

    def run(self, quick: bool) -> float:
        """Return the seconds of processor time per pass of one fit."""
        arguments = _data(self.data, quick)
        passes = min(self.passes, 3) if quick else self.passes
        model = self.make(max_iter=passes, **self.parameters)
        start = time.process_time()
        with PassClock() as clock:
            model.fit(*arguments)
        if self.whole:
            return (time.process_time() - start) / passes
        return float(np.mean(clock.processor[:-1]))


_ONLINE = {"learning_method": "online", "batch_size": 128}
CASES = (
    Case("Gaussian mixture", mixture, "rows", 30),
    Case("Gaussian mixture, minibatches of 1,000", mixture, "rows", 10, {"batch_size": 1000}),
    Case("Gaussian mixture, SVI+", mixture, "rows", 30, {"annealing": "svi_plus"}),
    Case("Gaussian mixture, 4 restarts, whole fit", mixture, "few rows", 30, {"n_init": 4}, True),
    Case("topics of AP, batch", topics, "AP", 10, {"learning_method": "batch"}),
    Case("topics of AP, online", topics, "AP", 3, _ONLINE),
    Case("hidden Markov model", sequences, "frames", 20),
    Case("ratings of MovieLens 100K", ratings, "ratings", 10, {"input": "pairs"}),
    Case("NMF", factorization, "counts", 20),
)


@cache
def _data(name: str, quick: bool) -> tuple[Any, ...]:
    """The arguments of a fit."""
    if name == "AP":
        return (corpus("drawn" if quick else "AP").astype(np.float64),)
    if name == "ratings":
        found = rated.ratings("drawn" if quick else rated.MOVIELENS)
        return found.X, found.y
    sizes = {"rows": 100_000, "few rows": 20_000, "frames": 50_000, "counts": 5000}
    family = "rows" if name == "few rows" else name
    X = drawn(family, 1, 300 if quick else sizes[name])[0]()
    return (X if isinstance(X, list) else X.astype(np.float64),)


def there(case: Case, quick: bool) -> bool:
    """Whether the data of a case are there."""
    if case.data == "AP":
        return bool(available(["drawn" if quick else "AP"]))
    if case.data == "ratings":
        return bool(rated.available(["drawn" if quick else rated.MOVIELENS]))
    return True


# Two interpreters, each with the package of one commit


def serve() -> None:
    """Make the fits that are asked for on the standard input, and print their seconds."""
    warnings.simplefilter("ignore")
    cases = {case.name: case for case in CASES}
    for line in sys.stdin:
        asked = json.loads(line)
        print(cases[asked["name"]].run(asked["quick"]), flush=True)


class Interpreter:
    """An interpreter that imports the package from a directory.

    Parameters
    ----------
    directory : Path
    """

    def __init__(self, directory: Path):
        env = {key: value for key, value in os.environ.items() if key not in THREAD_LIMITS}
        env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        # The current directory is searched before the others.
        code = "from benchmarks.parts.before import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=directory,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, name: str, quick: bool) -> float:
        """Return the seconds per pass of a fit."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"name": name, "quick": quick}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The interpreter ended while it made the fit {name!r}.")
        return float(answer)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _checked_out(folder: Path) -> bool:
    """Write the package of the earlier commit into a folder; return whether there is one."""
    command = ["git", "archive", "--format=tar", COMMIT, "sklearn_anneal"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return True


def measure_before(size: Size) -> list[str]:
    """Fits to data in memory, in this commit and in an earlier one."""
    page = Page()
    page.section(
        "In memory, against before",
        f"Fits to data in memory, with the package of commit {COMMIT}, the last one without data "
        "in parts, and with this one. Two interpreters make the same fits in turn, one thread "
        "each. Processor time per pass, mean over the passes of a fit but the last, and median of "
        f"{size.rounds} rounds. Ratio: now over before, median and quartiles. Drawn rows: 100,000 "
        "of 10 columns, 20,000 for restarts; 50,000 frames of 10 columns; 5,000 rows of 200 "
        "counts; float64. Without annealing, but for SVI+; of the "
        "restarts, the whole fit over the passes of one restart. The target is a median between "
        f"{LOWEST:g} and {HIGHEST:g}; what is below is faster.",
    )
    with tempfile.TemporaryDirectory(prefix="parts-") as folder:
        old = ROOT if size.quick else Path(folder)
        if not size.quick and not _checked_out(old):
            left_out(f"the commit {COMMIT}, which git does not have here.")
            page.lines += ["Left out: this copy has no history with that commit.", ""]
            return page.lines
        interpreters = {"before": Interpreter(old), "now": Interpreter(ROOT)}
        try:
            rows = [_row(case, interpreters, size) for case in CASES if there(case, size.quick)]
        finally:
            for interpreter in interpreters.values():
                interpreter.close()
    header = ["fit", "before, ms", "now, ms", "ratio", f"{LOWEST:g} to {HIGHEST:g}"]
    page.table(header, rows)
    return page.lines


def _row(case: Case, interpreters: dict[str, Interpreter], size: Size) -> list[str]:
    progress(f"before, {case.name}")
    times: dict[str, list[float]] = {key: [] for key in interpreters}
    for interpreter in interpreters.values():
        interpreter.seconds(case.name, size.quick)  # compiles kernels
    for i in range(size.rounds):
        for key in list(interpreters)[:: 1 if i % 2 == 0 else -1]:
            times[key].append(interpreters[key].seconds(case.name, size.quick))
    before, now = np.array(times["before"]), np.array(times["now"])
    ratio = now / before
    row = [case.name, f"{1e3 * np.median(before):.2f}", f"{1e3 * np.median(now):.2f}"]
    return [*row, spread(ratio, 3), _verdict(float(np.median(ratio)))]


def _verdict(ratio: float) -> str:
    if ratio > HIGHEST:
        return "**not reached**: slower"
    return "reached" if ratio >= LOWEST else "faster than that"
