"""Speed and memory of gamma-process NMF against scikit-learn's multiplicative updates.

All comparisons are interleaved in this process, and given as medians of the ratios of the same
rounds; processor time of one thread, but for the section on two jobs. Memory is measured in a fresh
interpreter.

    python -m benchmarks.gamma_process_nmf.speed            # everything, about 5 minutes
    python -m benchmarks.gamma_process_nmf.speed passes jobs
    python -m benchmarks.gamma_process_nmf.speed --write    # also the page of results
    python -m benchmarks.gamma_process_nmf.speed --quick --write --output /tmp/quick.md

The page is ``doc/results/gamma_process_nmf_speed.md``. Two corpora come from files, see
``benchmarks/latent_dirichlet/data.py``. The dense counts are drawn, and so are all counts of a
quick run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.parallel.thread_limits import one_thread
from sklearn_anneal.parallel.workers import SEQUENTIAL, Workers

from ..common.interpreters import in_fresh_interpreter
from ..common.measuring import (
    Script,
    interleaved,
    milliseconds,
    progress,
    reached,
    spread,
    undisturbed,
    undisturbed_wall_seconds,
)
from ..common.memory import STATUS, Sampler
from ..common.report import Page
from ..common.threads import Independent, machine_words, verdict
from .workload import (
    DENSE,
    FULL,
    QUICK,
    Iterations,
    Passes,
    Size,
    counts,
    estimator,
    going_on,
    many_counts,
    n_counted,
    names,
    products,
)

# How many times as fast as scikit-learn's iteration a pass should be, dense and sparse.
TARGET_DENSE, TARGET_SPARSE = 1.0, 5.0
FASTER = 1.6
# Passes that are shorter than this, in seconds, need not gain from a second job.
LONG = 0.05
LARGEST_GROWTH = 1500.0
DTYPES = (np.float64, np.float32)
# Divisions of the counts in a pass, and floating-point operations of each per entry and component.
_DIVISIONS, _OPERATIONS = 2, 4


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


def measure_limit(size: Size) -> list[str]:
    """The time of a pass per entry and component, and the arithmetic's limit."""
    k, order = size.n_components, 100 if size.quick else 1500
    page = Page()
    page.section(
        "How far from the arithmetic",
        f"Each of the {_DIVISIONS} divisions takes, per non-zero (or cell) and component, two "
        f"multiplications and two additions: {_DIVISIONS * _OPERATIONS} floating-point operations "
        f"per pass. *Peak*: what a product of two square matrices of order {order:,} reaches in "
        "the same process. *Limit*: the time of these operations at the peak. *Products*: the time "
        "of the four matrix products of a dense pass alone, whose inner dimension K is too short "
        "for the peak. A sparse pass gathers rows of tables, and makes only two operations with "
        "every number that it loads: it is bound by loads from the caches, and not by the "
        f"arithmetic. K = {k}, medians of {size.rounds} rounds.",
    )
    rows = []
    for name in names(size):
        for dtype in DTYPES:
            progress(f"limit, {name}, {np.dtype(dtype).name}")
            X = counts(name, size, dtype)
            square = np.random.default_rng(0).random((order, order)).astype(dtype)
            runs: dict[str, Any] = {
                "pass": going_on(name, size, dtype),
                "peak": lambda a=square: a @ a,
            }
            if name == DENSE:
                runs["products"] = products(X, k)
            times = {key: np.median(t) for key, t in _interleaved(runs, size.rounds).items()}
            peak = 2.0 * order**3 / times["peak"]
            each = times["pass"] / (n_counted(X) * k)
            limit = _DIVISIONS * _OPERATIONS / peak
            needed = milliseconds(times["products"]) if name == DENSE else "–"
            rows.append(
                [name, X.dtype.name, f"{1e9 * each:.2f}", f"{peak / 1e9:.0f}"]
                + [f"{1e9 * limit:.2f}", f"{each / limit:.1f}", milliseconds(times["pass"]), needed]
            )
    header = ["counts", "dtype", "ns per entry and component", "peak, GFLOP/s", "limit, ns"]
    page.table([*header, "time over limit", "pass, ms", "products, ms"], rows)
    return page.lines


def measure_exploring(size: Size) -> list[str]:
    """A pass in which activations start anew against one that goes on."""
    k = size.n_components
    page = Page()
    page.section(
        "Passes that explore",
        "Until the bound hardly rises, `fit` lets the activations of every row start anew at each "
        "pass and updates them up to 40 times, until they change by less than `sweep_tol`. Such a "
        f"pass against one that goes on, float64, K = {k}; median and quartiles of {size.rounds} "
        "rounds, from the second pass of a fit on.",
    )
    rows = []
    for name in names(size):
        progress(f"exploring, {name}")
        X = counts(name, size)
        runs = {"exploring": Passes(X, k, exploring=True), "going on": going_on(name, size)}
        times = _interleaved(runs, size.rounds)
        rows.append(
            [name, *(milliseconds(t) for t in times.values())]
            + [spread(times["exploring"] / times["going on"], 1)]
        )
    page.table(["counts", "exploring, ms", "going on, ms", "ratio"], rows)
    return page.lines


def measure_jobs(size: Size) -> list[str]:
    """Passes in two threads against one, and whether both give the same result."""
    k = size.n_components
    page = Page()
    page.section(
        "Two jobs",
        "Wall time of a pass that goes on, with `n_jobs=1` over that with `n_jobs=2`; float64, "
        f"K = {k}, median and quartiles of {size.rounds} rounds. {machine_words()}. "
        f"{undisturbed()}. The target, {FASTER:g}, is for passes of more than {1e3 * LONG:.0f} ms.",
    )
    shape = size.dense if size.quick else (3 * size.dense[0], size.dense[1])
    sets = {name: counts(name, size) for name in names(size)[-1:]}
    larger = Size(shape, k)
    sets = {"dense, more rows": counts(DENSE, larger), **sets}
    machine = Independent(0.001 if size.quick else 0.05)
    machine.at_once()
    rows = []
    for name, X in sets.items():
        progress(f"jobs, {name}")
        with Workers(2) as two:
            runs = {1: Passes(X, k, workers=SEQUENTIAL), 2: Passes(X, k, workers=two)}
            independent = {"alone": machine.alone, "at once": machine.at_once}
            times: dict[Any, np.ndarray] = _interleaved(
                {**runs, **independent}, size.rounds, clock=undisturbed_wall_seconds
            )
        # As many passes of both, from the same start.
        with Workers(2) as two:
            again = [Passes(X, k, workers=SEQUENTIAL), Passes(X, k, workers=two)]
        one, other = (passes.ctx.q for passes in again)
        same = all(np.array_equal(one[key], other[key]) for key in one)
        ratio, own = times[1] / times[2], 2.0 * times["alone"] / times["at once"]
        median = float(np.median(ratio))
        long = float(np.median(times[1])) > LONG
        held = verdict(median, float(np.median(own)), FASTER) if long else "– (short)"
        rows.append(
            [name, f"{X.shape[0]:,} × {X.shape[1]:,}", milliseconds(times[1])]
            + [milliseconds(times[2]), spread(ratio), spread(own)]
            + ["yes" if same else "**no**", held]
        )
    header = ["counts", "rows × columns", "n_jobs=1, ms", "n_jobs=2, ms", "ratio", "machine"]
    page.table([*header, "same bit for bit", f"target {FASTER:g}"], rows)
    return page.lines


def task_memory(options: dict[str, Any]) -> dict[str, float]:
    """Growth of the anonymous memory during a fit and predictions, in MB."""
    X, k = many_counts(options["entries"]), options["components"]
    estimator(k, 1, "none").fit(X[:50])
    nmf = estimator(k, 2, "none").set_params(max_sweeps=options["sweeps"])
    found = {"data": (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 1e6}
    for name, run in {
        "fit": lambda: nmf.fit(X),
        "transform": lambda: nmf.transform(X),
        "score": lambda: nmf.score(X),
    }.items():
        start = time.perf_counter()
        with Sampler() as sampler:
            run()
        found[name], found[f"{name}_seconds"] = sampler.growth, time.perf_counter() - start
    return found


def measure_memory(size: Size) -> list[str]:
    """Memory of a fit, of `transform` and of `score` beyond the data."""
    k, sweeps = size.n_components, 5
    page = Page()
    page.section(
        "Memory",
        f"{size.many:,} non-zeros in a fresh interpreter, a hundred in each row, float64, K = {k}: "
        "the growth of anonymous memory (sampled every 2 ms) from the state before the call, which "
        "includes the data. `fit` makes two passes and computes `reconstruction_err_`; "
        f"`max_sweeps={sweeps}`, which shortens the run and does not change the memory. MB of 10⁶ "
        f"bytes. Target: less than {LARGEST_GROWTH:,.0f} MB.",
    )
    if not STATUS.exists():
        page.lines += [f"Not measured: this system has no `{STATUS}`.", ""]
        return page.lines
    progress("memory")
    found = in_fresh_interpreter(
        "gamma_process_nmf.speed", "memory", entries=size.many, components=k, sweeps=sweeps
    )
    rows = []
    for name in ("fit", "transform", "score"):
        cells = [f"{found['data']:.0f}", f"{found[name]:.0f}", f"{found[f'{name}_seconds']:.1f}"]
        rows.append([f"`{name}`", *cells, reached(found[name] < LARGEST_GROWTH)])
    page.table(["call", "data, MB", "growth, MB", "wall time, s", "target"], rows)
    return page.lines


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
    "limit": (measure_limit, True),
    "exploring": (measure_exploring, True),
    "methods": (measure_methods, True),
    "memory": (measure_memory, False),
    "jobs": (measure_jobs, False),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="gamma_process_nmf",
        title="Speed of gamma-process NMF",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        tasks={"memory": task_memory},
        output="gamma_process_nmf_speed.md",
        peers={},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
