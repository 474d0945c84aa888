"""Hidden Markov models: speed in two threads, and memory in fresh interpreters."""

from __future__ import annotations

import gc
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_anneal.parallel.workers import Workers

from ..common.interpreters import in_fresh_interpreter
from ..common.measuring import (
    interleaved,
    milliseconds,
    progress,
    spread,
    undisturbed,
    undisturbed_wall_seconds,
)
from ..common.memory import STATUS, Sampler
from ..common.report import Page
from ..common.threads import Independent, machine_words, verdict
from .workload import Data, Ours, Size, estimator, symbols, vectors

FASTER = 1.7
# Number of passes in one measurement of wall time.
PASSES = 5


# Threads


def measure_jobs(size: Size) -> list[str]:
    """Batch passes in two threads against one, and whether both give the same result."""
    k = size.many
    page = Page()
    page.section(
        "Two jobs",
        f"Batch passes over all sequences as above, K = {k}; wall time per pass with `n_jobs=1` "
        f"over that with `n_jobs=2`, median and quartiles of {size.rounds} rounds of {PASSES} "
        f"passes. {machine_words()}. {undisturbed()}.",
    )
    rows = []
    for data in (symbols(size), vectors(size)):
        progress(f"jobs, {data.name}")
        trained = Ours.trained(data, k, size.trained)
        with Workers(2) as workers:
            models = {1: trained.branch(), 2: trained.branch(workers=workers)}

            def passes(n_jobs: int, models: dict = models) -> list[float]:
                return [models[n_jobs]() for _ in range(PASSES)]

            same = passes(1) == passes(2)
            q = models[2].ctx.q
            same &= all(np.array_equal(value, q[key]) for key, value in models[1].ctx.q.items())
            independent = Independent(0.001 if size.quick else 0.05)
            runs: dict[Any, Any] = {jobs: partial(passes, jobs) for jobs in models}
            runs |= {"alone": independent.alone, "at once": independent.at_once}
            times = interleaved(runs, size.rounds, undisturbed_wall_seconds)
        one, two = times[1] / PASSES, times[2] / PASSES
        machine = 2 * times["alone"] / times["at once"]
        row = [data.name, milliseconds(one), milliseconds(two), spread(one / two)]
        row += [spread(machine), "yes" if same else "**no**"]
        rows.append([*row, verdict(float(np.median(one / two)), float(np.median(machine)), FASTER)])
    header = ["data", "n_jobs=1, ms", "n_jobs=2, ms", "ratio", "machine", "same bit for bit"]
    page.table([*header, f"target {FASTER:g}"], rows)
    return page.lines


# Memory


def task_memory(options: dict[str, Any]) -> dict[str, float]:
    """Growth of the anonymous memory during a fit.

    X, the imports and the kernels are in memory before it and are not counted.
    """
    with np.load(options["path"]) as archive:
        X, lengths = archive["X"], archive["lengths"]
    data = Data("", X, lengths, options["n_symbols"])
    k = options["components"]
    # A first small fit does the imports, the compilation and the allocations that are made once.
    estimator(data, k, max_iter=2).fit(X[: lengths[:9].sum()], lengths=lengths[:9])
    X, lengths = np.tile(X, (options["copies"], 1)), np.tile(lengths, options["copies"])
    est = estimator(data, k, max_iter=options["passes"], n_jobs=options["n_jobs"])
    gc.collect()
    with Sampler() as sampler:
        est.fit(X, lengths=lengths)
    return {
        "frames": float(len(X)),
        "growth": sampler.growth,
        "X": X.nbytes / 1e6,
        "states": 8e-6 * len(X) * k,
    }


def measure_memory(size: Size) -> list[str]:
    """Memory of fits beyond X, for increasing numbers of frames."""
    k = size.many
    page = Page()
    page.section(
        "Memory",
        f"Growth of a process's anonymous memory (its largest, sampled every 2 ms) during a fit of "
        f"four passes in a fresh interpreter, K = {k}, with X, imports and kernels there before; "
        "MB of 10⁶ bytes. The sequences are there once or several times. An array (frames, K) of "
        "all frames would alone take what that column says; what grows is copies of X that are "
        "one column of symbols in another type, and masks. *Per frame*: bytes per frame that are "
        "added from the fewest frames to the most, beside those of a row of K numbers.",
    )
    if not STATUS.exists():
        return [*page.lines, f"Left out: this system has no {STATUS}.", ""]
    rows = []
    for data in (symbols(size), vectors(size)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sequences.npz"
            np.savez(path, X=data.X, lengths=data.lengths)
            for n_jobs in (2,) if size.quick else (1, 2):
                rows.append(_memory_row(data, str(path), n_jobs, size))
    figures = [f"{copies} ×" for copies in size.copies]
    header = ["data", "n_jobs", "frames", "(frames, K)", *(f"growth, {f}" for f in figures)]
    page.table([*header, "per frame", "of (frames, K)", "array (frames, K)"], rows)
    return page.lines


def _memory_row(data: Data, path: str, n_jobs: int, size: Size) -> list[str]:
    found = []
    for copies in size.copies:
        progress(f"memory, {data.name}, n_jobs = {n_jobs}, {copies} times")
        options = {"path": path, "n_symbols": data.n_symbols, "n_jobs": n_jobs}
        options |= {"components": size.many, "copies": copies, "passes": 4}
        found.append(in_fresh_interpreter("hidden_markov.speed", "memory", **options))
    first, last = found[0], found[-1]
    slope = 1e6 * (last["growth"] - first["growth"]) / (last["frames"] - first["frames"])
    row = [data.name, str(n_jobs), f"{first['frames']:,.0f}", f"{first['states']:.1f}"]
    row += [f"{task['growth']:.1f}" for task in found]
    each = 8 * size.many
    array = "none" if slope < each / 2 else "**there is one**"
    return [*row, f"{slope:.0f}", str(each), array]


TASKS = {"memory": task_memory}
