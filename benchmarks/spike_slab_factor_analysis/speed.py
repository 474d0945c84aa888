"""Speed of spike-and-slab factor analysis against mofapy2 and the matrix products of a pass.

All comparisons are interleaved in this process, and given as medians of the ratios of the same
rounds; processor time of one thread.

    python -m benchmarks.spike_slab_factor_analysis.speed            # everything, about 3 minutes
    python -m benchmarks.spike_slab_factor_analysis.speed peer size
    python -m benchmarks.spike_slab_factor_analysis.speed --write    # also the page of results
    python -m benchmarks.spike_slab_factor_analysis.speed --quick --write --output /tmp/quick.md

The page is ``doc/results/spike_slab_factor_analysis_speed.md``. The rows are drawn, so that no file
is needed. mofapy2 is left out with a message where it is not installed.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis
from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing, StructuredVI
from sklearn_anneal.parallel.thread_limits import one_thread

from ..common.measuring import Script, milliseconds, progress, reached, spread
from ..common.peers import is_there
from ..common.report import Page
from ..factorial_mixture.workload import Shape, pass_times

try:
    from mofapy2.run.entry_point import entry_point
except ImportError:
    entry_point = None

PEERS = {"mofapy2": entry_point}
# How many times as fast as an iteration of mofapy2 a pass should be.
TARGET = 5.0
# Time per row may grow by at most this factor from the smallest to the largest number of rows.
LINEAR = 1.25
_NEVER = 10**6
# Share of the cells that are deleted.
_MISSING = 0.1


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    peer : Shape
        The shape that is compared with mofapy2.
    growing : tuple of Shape
        Shapes that differ in the number of rows.
    methods : Shape
    rounds : int
        Number of interleaved repetitions.
    passes : tuple of int
        Numbers of passes of the two fits whose difference is measured.
    iterations : tuple of int
        The same for mofapy2.
    """

    peer: Shape = Shape(2_000, 1_000, 20)
    growing: tuple[Shape, ...] = (
        Shape(5_000, 64, 16),
        Shape(20_000, 64, 16),
        Shape(80_000, 64, 16),
    )
    methods: Shape = Shape(5_000, 64, 16)
    rounds: int = 5
    passes: tuple[int, int] = (4, 24)
    iterations: tuple[int, int] = (2, 7)
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
_SMALL = Shape(200, 16, 4)
QUICK = Size(_SMALL, (_SMALL, Shape(400, 16, 4)), _SMALL, 1, (1, 3), (1, 2), quick=True)


@cache
def rows(shape: Shape) -> np.ndarray:
    """Rows with sparse factors and sparse loadings."""
    rng = np.random.default_rng(0)
    size = (shape.n_components, shape.n_features)
    loadings = rng.standard_normal(size) * (rng.random(size) < 0.3)
    size = (shape.n_rows, shape.n_components)
    factors = rng.standard_normal(size) * (rng.random(size) < 0.3)
    return factors @ loadings + rng.standard_normal((shape.n_rows, shape.n_features))


@cache
def with_gaps(shape: Shape) -> np.ndarray:
    """The same with missing cells."""
    X = rows(shape).copy()
    X[np.random.default_rng(1).random(X.shape) < _MISSING] = np.nan
    return X


def estimator(k: int, n_passes: int, annealing: str) -> AnnealedSpikeSlabFactorAnalysis:
    """An estimator that makes a given number of passes, without any test of convergence."""
    made = AnnealedSpikeSlabFactorAnalysis(k, random_state=0, tol=0, max_iter=0)
    if annealing == "none":
        return made.set_params(annealing="none", max_iter=n_passes)
    if annealing == "reheating":
        return made.set_params(annealing="reheating", effort=0, max_iter=n_passes)
    if annealing == "structured":
        # The evaluation of its bound takes another pass, which must not be measured.
        how = StructuredVI(n_passes=n_passes, evaluate_every=_NEVER)
        return made.set_params(annealing=how)
    if annealing == "deterministic":
        return made.set_params(annealing=DeterministicAnnealing(n_passes=n_passes))
    return made.set_params(annealing=annealing, annealing__n_passes=n_passes)


def our_fit(X: np.ndarray, k: int, annealing: str = "none") -> Callable[[int], Any]:
    return lambda n: estimator(k, n, annealing).fit(X)


def peer_seconds(X: np.ndarray, k: int, n_iterations: int) -> float:
    """Seconds of iterations of mofapy2 with spike-and-slab weights, without building its model."""
    with contextlib.redirect_stdout(io.StringIO()):
        model = entry_point()
        model.set_data_options()
        model.set_data_matrix([[X]])
        model.set_model_options(factors=k, spikeslab_weights=True, ard_weights=True)
        model.set_train_options(
            iter=n_iterations, convergence_mode="slow", seed=1, verbose=False, quiet=True
        )
        model.build()
        start = time.process_time()
        model.run()
        return time.process_time() - start


def products(X: np.ndarray, k: int) -> Callable[[], None]:
    """The matrix products that a pass cannot do without: W Xᵀ and E[u] X."""
    loadings = np.random.default_rng(1).random((k, X.shape[1]))

    def run() -> None:
        for begin in range(0, len(X), 1024):
            part = X[begin : begin + 1024]
            (loadings @ part.T) @ part

    return run


def measure_peer(size: Size) -> list[str]:
    """One pass against an iteration of mofapy2 and against the products."""
    shape, page = size.peer, Page()
    page.section(
        "A pass against an iteration of mofapy2",
        f"{shape} rows × columns, K = {shape.n_components}, without annealing and with learned "
        "noise and probabilities, complete bound included: a fit of "
        f"{size.passes[1]} passes less one of {size.passes[0]}, divided by the difference. "
        f"*mofapy2*: {size.iterations[1]} iterations of its training less {size.iterations[0]}, "
        "with spike-and-slab weights and one Gaussian view; it computes its bound rarely. *Missing "
        f"cells*: {_MISSING:.0%} of ours are deleted, so that every row has a matrix of its own. "
        "*Products*: those of the loadings and of the factors with X. Ratio: mofapy2's time over "
        f"ours, median and quartiles of {size.rounds} rounds. Target: {TARGET:g}.",
    )
    k, X, gaps = shape.n_components, rows(shape), with_gaps(shape)
    few, many = size.iterations
    there = is_there("mofapy2", entry_point)
    found: dict[str, list[np.ndarray]] = {"complete": [], "missing cells": [], "products": []}
    peers: list[float] = []
    one_round = replace(size, rounds=1)
    for i in range(size.rounds):
        progress(f"peer, round {i + 1} of {size.rounds}")
        fits = {"complete": our_fit(X, k), "missing cells": our_fit(gaps, k)}
        times = pass_times(fits, {"products": products(X, k)}, one_round)  # type: ignore[arg-type]
        for name, values in times.items():
            found[name].append(values)
        if there:
            seconds = peer_seconds(X, k, many) - peer_seconds(X, k, few)
            peers.append(seconds / (many - few))
    lines = []
    for name, values in found.items():
        ours = np.concatenate(values)
        each = 1e9 * float(np.median(ours)) / (X.size * k)
        row = [name, milliseconds(ours), f"{each:.2f}"]
        if there and name == "products":
            row += ["–"] * 3
        elif there:
            ratio = np.array(peers) / ours
            held = reached(bool(np.median(ratio) >= TARGET)) if name == "complete" else "–"
            row += [milliseconds(np.array(peers)), spread(ratio, 1), held]
        lines.append(row)
    header = ["", "ms", "ns per cell and factor"]
    page.table(header + (["mofapy2, ms", "ratio", "target"] if there else []), lines)
    return page.lines


def measure_size(size: Size) -> list[str]:
    """Time per row at several numbers of rows."""
    page = Page()
    page.section(
        "Linear in the number of rows",
        "Time of a pass divided by the number of rows. Target: at most "
        f"{LINEAR:g} times that of the smallest number of rows.",
    )
    lines, first = [], None
    for shape in size.growing:
        progress(f"size, {shape}")
        fit = {"ours": our_fit(rows(shape), shape.n_components)}
        times = pass_times(fit, {}, size)["ours"]  # type: ignore[arg-type]
        each = 1e9 * times / shape.n_rows
        first = float(np.median(each)) if first is None else first
        lines.append(
            [str(shape), milliseconds(times), spread(each, 0)]
            + [reached(float(np.median(each)) <= LINEAR * first)]
        )
    page.table(["rows × columns", "pass, ms", "ns per row", "target"], lines)
    return page.lines


def measure_methods(size: Size) -> list[str]:
    """Time per pass of every annealing method against plain inference."""
    shape, page = size.methods, Page()
    page.section(
        "What annealing costs per pass",
        'Ratio of the time of an annealed pass to that of one with `annealing="none"`, each method '
        f"in turns with it; {shape} rows × columns, K = {shape.n_components}. In annealed passes "
        "rows start anew, with five sweeps at most. Median and quartiles of "
        f"{size.rounds} rounds.",
    )
    lines = []
    for name in ANNEALING:
        if name != "none":
            progress(f"methods, {name}")
            fits = {key: our_fit(rows(shape), shape.n_components, key) for key in ("none", name)}
            times = pass_times(fits, {}, size)  # type: ignore[arg-type]
            cells = [milliseconds(times[key]) for key in fits]
            lines.append([name, *cells, spread(times[name] / times["none"])])
    page.table(["method", "none, ms", "ms", "ratio"], lines)
    return page.lines


def _of_one_thread(measure: Callable[[Size], list[str]]) -> Callable[[Size], list[str]]:
    def run(size: Size) -> list[str]:
        with one_thread():
            return measure(size)

    return run


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "peer": (_of_one_thread(measure_peer), True),
    "size": (measure_size, True),
    "methods": (measure_methods, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="spike_slab_factor_analysis",
        title="Speed of spike-and-slab factor analysis",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        tasks={},
        output="spike_slab_factor_analysis_speed.md",
        peers=PEERS,
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
