"""Speed of gamma-process NMF against scikit-learn's multiplicative updates.

All comparisons are interleaved in this process, and given as medians of the ratios of the same
rounds; processor time of one thread.

    python -m benchmarks.gamma_process_nmf.speed            # everything, about 2 minutes
    python -m benchmarks.gamma_process_nmf.speed passes
    python -m benchmarks.gamma_process_nmf.speed --write    # also the page of results
    python -m benchmarks.gamma_process_nmf.speed --quick --write --output /tmp/quick.md

The page is ``doc/results/gamma_process_nmf_speed.md``. Two corpora come from files, see
``benchmarks/latent_dirichlet/data.py``. The dense counts are drawn, and so are all counts of a
quick run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.parallel.thread_limits import one_thread

from ..common.measuring import (
    Script,
    interleaved,
    milliseconds,
    progress,
    reached,
    spread,
)
from ..common.report import Page
from .workload import (
    DENSE,
    FULL,
    QUICK,
    Iterations,
    Size,
    counts,
    estimator,
    going_on,
    n_counted,
    names,
)

# How many times as fast as scikit-learn's iteration a pass should be, dense and sparse.
TARGET_DENSE, TARGET_SPARSE = 1.0, 5.0
DTYPES = (np.float64, np.float32)


def measure_passes(size: Size) -> list[str]:
    """A pass that goes on from the last one against an iteration of scikit-learn's."""
    k = size.n_components
    page = Page()
    page.section(
        "A pass against an iteration of scikit-learn",
        "*Pass*: it goes on from the activations of the last pass, and makes one sweep over them, "
        "the updates of weights and components, all expectations and the complete lower bound. "
        '*Iteration*: of `NMF(solver="mu", beta_loss="kullback-leibler")`, by '
        "`_multiplicative_update_w` and `_multiplicative_update_h` as in its own loop, without its "
        f"error. K = {k}, one thread, processor time. Ratio: scikit-learn's time over ours, median "
        f"and quartiles of {size.rounds} rounds. The targets are {TARGET_DENSE:g} for dense counts "
        f"and {TARGET_SPARSE:g} for sparse ones, in float64. A pass divides the counts "
        "twice, once for the activations and the weights and once for the components, and so does "
        "an iteration.",
    )
    rows = []
    for name in names(size):
        for dtype in DTYPES:
            progress(f"passes, {name}, {np.dtype(dtype).name}")
            X = counts(name, size, dtype)
            times = _interleaved(
                {"ours": going_on(name, size, dtype), "peer": Iterations(X, k)}, size.rounds
            )
            ratio = times["peer"] / times["ours"]
            target = TARGET_DENSE if name == DENSE else TARGET_SPARSE
            held = reached(bool(np.median(ratio) >= target)) if dtype is np.float64 else "–"
            rows.append(
                [name, f"{X.shape[0]:,} × {X.shape[1]:,}", f"{n_counted(X):,}", X.dtype.name]
                + [milliseconds(times["peer"]), milliseconds(times["ours"])]
                + [spread(ratio), f"{target:g}: {held}" if held != "–" else "–"]
            )
    header = ["counts", "rows × columns", "cells or non-zeros", "dtype", "iteration, ms"]
    page.table([*header, "pass, ms", "ratio", "target"], rows)
    return page.lines


def _interleaved(runs: dict[str, Callable[[], object]], rounds: int, **how: Any) -> dict[str, Any]:
    with one_thread():
        return interleaved(runs, rounds, **how)


def measure_methods(size: Size) -> list[str]:
    """Time per pass of every annealing method against plain inference."""
    k, (few, many) = size.n_components, size.passes
    (name,) = names(size)[1:2] or [DENSE]
    page = Page()
    page.section(
        "What annealing costs per pass",
        f"{name}, K = {k}, float64, with `max_sweeps=1`, so that all methods make as many sweeps: "
        f"a fit of {many} passes less one of {few}, divided by {many - few}. Ratio of the time of "
        'an annealed pass to that of one with `annealing="none"`, each method in turns with it; '
        f"median and quartiles of {size.rounds} rounds. At a temperature above 1 the bound needs "
        "the counts of components, so that passes add them up twice. `proximity` reads the entropy "
        "before both updates, where the others need it once.",
    )
    X = counts(name, size)
    rows = []
    for method in ANNEALING:
        if method in ("none", "tempering", "local_tempering"):
            continue
        progress(f"methods, {method}")
        runs = {
            (key, n): lambda key=key, n=n: estimator(k, n, key).set_params(max_sweeps=1).fit(X)
            for key in ("none", method)
            for n in size.passes
        }
        runs[method, few]()
        found = _interleaved(runs, size.rounds)
        times = [(found[key, many] - found[key, few]) / (many - few) for key in ("none", method)]
        rows.append([method, *(milliseconds(t) for t in times), spread(times[1] / times[0])])
    page.table(["method", "none, ms", "ms", "ratio"], rows)
    return page.lines


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "passes": (measure_passes, True),
    "methods": (measure_methods, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="gamma_process_nmf",
        title="Speed of gamma-process NMF",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        output="gamma_process_nmf_speed.md",
        peers={},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
