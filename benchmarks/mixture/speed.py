"""Speed of mixtures of binary columns and categories against StepMix's, and memory.

All comparisons are interleaved in this process and given as medians of the ratios of neighbouring
runs. They use one thread, and processor time.

    python -m benchmarks.mixture.speed            # everything
    python -m benchmarks.mixture.speed passes
    python -m benchmarks.mixture.speed --write    # also into doc/results/mixtures_speed.md
    python -m benchmarks.mixture.speed --quick --write --output /tmp/quick.md

All tables are drawn, so that no file is needed. Without StepMix, only ours is measured.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np

from sklearn_anneal.annealing import (
    DeterministicAnnealing,
    LocalVariationalTempering,
    ProximityVI,
    StochasticAnnealing,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
)

from ..common.measuring import (
    Script,
    milliseconds,
    processor_seconds,
    progress,
    reached,
    spread,
)
from ..common.peers import is_there
from ..common.report import Page
from .workload import FULL, OURS, PEER, QUICK, Make, Size, StepMix, draw, ours, pass_times, peer

_PASSES_OF_PEER = 3
# The aim for the memory of a fit beyond its data, in MB.
_MEMORY = 100
_PASSES_OF_FIT = 100


def measure_passes(size: Size) -> list[str]:
    """Time per pass against StepMix, and of a whole fit of given length."""
    page = Page()
    page.section(
        "Time per pass",
        f"N = {size.n_rows:,}, float64 arrays with NaN for missing cells, one thread, processor "
        'time. Ours: `annealing="none"`, fixed priors; StepMix: `binary`, `categorical`, or '
        "their variants with `_nan` where cells are missing. Ratio: StepMix's time over ours, "
        f"median and quartiles of {size.rounds} rounds. Ours finds rows that are equal once per "
        "fit and processes them once per pass; this and other work that is done once is not in the "
        f"time of a pass, but in that of a fit of {_PASSES_OF_FIT} passes, which is the time of a "
        f"fit of one pass and {_PASSES_OF_FIT - 1} times that of a pass.",
    )
    there = is_there("stepmix", StepMix)
    rows = []
    for case in size.cases:
        progress(f"passes, {case.name}")
        X = draw(case, size.n_rows)
        runs: dict[str, tuple[Make, int]] = {OURS: (ours(case), case.passes)}
        if there:
            runs[PEER] = peer(case), _PASSES_OF_PEER
        for make, _ in runs.values():
            make(1).fit(X)
        times = pass_times(runs, X, size.rounds)
        once = {n: processor_seconds(lambda m=m: m(1).fit(X)) for n, (m, _) in runs.items()}
        whole = {n: once[n] + (_PASSES_OF_FIT - 1) * float(np.median(times[n])) for n in runs}
        shape = f"{case.n_features} × {case.n_levels}"
        cells = [case.name, shape, str(case.n_components), milliseconds(times[OURS])]
        if there:
            ratios = times[PEER] / times[OURS]
            holds = reached(bool(np.median(ratios) >= case.target))
            cells += [milliseconds(times[PEER]), spread(ratios, 1), f"{case.target:g}: {holds}"]
            cells += [f"{whole[OURS]:.2f}", f"{whole[PEER]:.2f}"]
        else:
            cells += ["–", "–", "–", f"{whole[OURS]:.2f}", "–"]
        rows.append(cells)
    header = ["table", "columns × levels", "K", "ours, ms", "StepMix, ms", "ratio", "target"]
    fits = [f"ours, {_PASSES_OF_FIT} passes, s", f"StepMix, {_PASSES_OF_FIT} passes, s"]
    page.table([*header, *fits], rows)
    return page.lines


def measure_memory(size: Size) -> list[str]:
    """Peak memory of a fit beyond its data."""
    page = Page()
    page.section(
        "Memory",
        "The most memory that Python and NumPy take at a time during a fit of two passes, beyond "
        "what is there before, which includes the table; in MB of 10⁶ bytes. The small buffers "
        "of compiled code are not counted. The aim is less than "
        f"{_MEMORY} MB for ours.",
    )
    there = is_there("stepmix", StepMix)
    rows = []
    for case in size.cases:
        progress(f"memory, {case.name}")
        X = draw(case, size.n_rows)
        grown = [_growth(ours(case), X)]
        cells = [case.name, f"{X.nbytes / 1e6:.0f}", f"{grown[0]:.0f}"]
        cells += [f"{_growth(peer(case), X):.0f}" if there else "–", reached(grown[0] < _MEMORY)]
        rows.append(cells)
    page.table(["table", "the table, MB", "ours, MB", "StepMix, MB", "aim"], rows)
    return page.lines


def _growth(make: Make, X: np.ndarray) -> float:
    make(2).fit(X)
    tracemalloc.start()
    try:
        make(2).fit(X)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


METHODS = {
    "deterministic": lambda n: DeterministicAnnealing(n_passes=n),
    "stochastic": lambda n: StochasticAnnealing(n_passes=n),
    "svi_plus": lambda n: SVIPlus(n_passes=n),
    "tempering": lambda n: VariationalTempering(n_passes=n),
    "proximity": lambda n: ProximityVI(n_passes=n),
    "local_tempering": lambda n: LocalVariationalTempering(n_passes=n),
    "structured": lambda n: StructuredVI(n_passes=n, evaluate_every=1000),
}


def measure_methods(size: Size) -> list[str]:
    """Time per pass of every annealing method against plain inference."""
    case = size.cases[0]
    page = Page()
    page.section(
        "What annealing costs per pass",
        f'Ratio of the time per pass to that of `annealing="none"`, N = {size.n_rows:,}, binary '
        f"columns as above, one thread, processor time: median and quartiles of {size.rounds} "
        "rounds.",
    )
    X = draw(case, size.n_rows)
    runs = {"none": (ours(case), case.passes)}
    runs |= {name: (ours(case, method), case.passes) for name, method in METHODS.items()}
    for name, (make, _) in runs.items():
        progress(f"methods, {name}")
        make(1).fit(X)
    times = pass_times(runs, X, size.rounds)
    rows = [[n, milliseconds(t), spread(t / times["none"])] for n, t in times.items()]
    page.table(["method", "ms", "ratio"], rows)
    return page.lines


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "passes": (measure_passes, True),
    "memory": (measure_memory, True),
    "methods": (measure_methods, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="mixture",
        title="Speed of mixtures of binary columns and categories",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        output="mixtures_speed.md",
        peers={"stepmix": StepMix},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
