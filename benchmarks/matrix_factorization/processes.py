"""Ratings: speed in two threads, and time and memory for large data in fresh interpreters."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from ..common.interpreters import in_fresh_interpreter
from ..common.measuring import (
    milliseconds,
    progress,
    reached,
    spread,
    undisturbed,
    undisturbed_wall_seconds,
)
from ..common.memory import STATUS, largest_resident_megabytes
from ..common.report import Page
from ..common.threads import Independent, machine_words, verdict
from .data import draw
from .workload import Size, estimator, our_fit, pass_times, warm

FASTER = 1.6
LIMIT = 1500.0
LARGE_ROUNDS = 3
# Paisley et al. report this many seconds per iteration for MovieLens 10M.
PAPER = 8.9


# Threads


def measure_jobs(size: Size) -> list[str]:
    """Passes in two threads against one, and whether both give the same result."""
    page = Page()
    page.section(
        "Two jobs",
        "The same ratings, and those of the section after this one; wall time per pass with "
        "`n_jobs=1` over that with `n_jobs=2`, median and quartiles of "
        f"{size.rounds} rounds, {LARGE_ROUNDS} of the larger ones. {machine_words()}. "
        f"{undisturbed()}.",
    )
    rows = []
    for shape, rounds in ((size.shape, size.rounds), (size.large, LARGE_ROUNDS)):
        for d in size.components:
            for dtype in (np.float32, np.float64):
                name = np.dtype(dtype).name
                progress(f"jobs, {shape.name}, d = {d}, {name}")
                X = draw(shape).astype(dtype)
                warm(X, estimator(d, 1))
                cells = _two_jobs(X, d, size.passes, rounds, size.quick)
                rows.append([f"{shape.n_ratings:,}", str(d), name, *cells])
    header = ["ratings", "d", "type", "n_jobs=1, ms", "n_jobs=2, ms", "ratio", "machine"]
    page.table([*header, "same bit for bit", f"target {FASTER:g}"], rows)
    return page.lines


def _two_jobs(
    X: csr_matrix, d: int, passes: tuple[int, int], rounds: int, quick: bool
) -> list[str]:
    """A row of the table, in words.

    It has the times per pass, their ratio, the machine's own ratio, whether the results are the
    same, and the verdict.
    """
    fits = {n_jobs: our_fit(X, d, n_jobs=n_jobs) for n_jobs in (1, 2)}
    independent = Independent(0.001 if quick else 0.05)
    others = {"alone": independent.alone, "at once": independent.at_once}
    times, machine = pass_times(fits, passes, rounds, undisturbed_wall_seconds, others)
    ratios = times[1] / times[2]
    free = 2 * machine["alone"] / machine["at once"]
    one, two = (fit(passes[0]) for fit in fits.values())
    same = np.array_equal(one.lower_bounds_, two.lower_bounds_)
    same &= np.array_equal(one.components_, two.components_)
    row = [milliseconds(times[1]), milliseconds(times[2]), spread(ratios), spread(free)]
    row += ["yes" if same else "**no**"]
    return [*row, verdict(float(np.median(ratios)), float(np.median(free)), FASTER)]


# Large data


def task_large(options: dict[str, Any]) -> dict[str, float]:
    """Seconds per pass, and memory of this process after a fit to ratings from a file."""
    with np.load(options["path"]) as archive:
        values = archive["data"].astype(options["dtype"], copy=False)
        X = csr_matrix((values, archive["indices"], archive["indptr"]), shape=archive["shape"])
    d, annealing = options["components"], options["annealing"]
    warm(X, estimator(d, 1, annealing))
    # A single difference of two fits is too noisy.
    fits = {annealing: our_fit(X, d, annealing)}
    times, _ = pass_times(fits, options["passes"], LARGE_ROUNDS)
    return {
        "seconds": float(np.median(times[annealing])),
        "resident": largest_resident_megabytes(),
        "X": (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 1e6,
    }


def measure_large(size: Size) -> list[str]:
    """Time and memory of fits to ten times as many ratings."""
    page = Page()
    shape = size.large
    few, many = size.large_passes
    page.section(
        "Ten million ratings",
        f"{shape.n_ratings:,} drawn ratings of the shape of {shape.name}, {shape.n_users:,} users "
        f"and {shape.n_items:,} items. Each fit in a fresh interpreter, one thread, processor "
        f"time: a fit of {many} passes less one of {few}, median of {LARGE_ROUNDS}. Paisley et "
        f"al. quote {PAPER} s per iteration of this size on a desktop, for d = 5 or 10 without "
        "biases. *Resident*: the largest resident memory of the process until its end, "
        "interpreter, libraries and X included, in MB of 10⁶ bytes.",
    )
    if not STATUS.exists():
        return [*page.lines, f"Left out: this system has no {STATUS}.", ""]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.npz"
        X = draw(shape)
        np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape)
        for annealing in size.large_methods:
            for d in size.components:
                for dtype in ("float32", "float64"):
                    progress(f"large, {annealing}, d = {d}, {dtype}")
                    options = {"path": str(path), "components": d, "dtype": dtype}
                    options |= {"annealing": annealing, "passes": size.large_passes}
                    found = in_fresh_interpreter("matrix_factorization.speed", "large", **options)
                    rows.append([annealing, str(d), dtype, *_large_cells(found, shape.n_ratings)])
    header = ["method", "d", "ratings", "s per pass", "ns per rating", f"{PAPER} s over it"]
    page.table([*header, "X, MB", "resident, MB", f"under {LIMIT:,.0f} MB"], rows)
    return page.lines


def _large_cells(found: dict[str, float], n_ratings: int) -> list[str]:
    seconds, resident = found["seconds"], found["resident"]
    cells = [f"{seconds:.2f}", f"{1e9 * seconds / n_ratings:.0f}", f"{PAPER / seconds:.1f}"]
    return [*cells, f"{found['X']:.0f}", f"{resident:.0f}", reached(resident < LIMIT)]


TASKS = {"large": task_large}
