"""Speed and memory of matrix factorisation against alternating least squares.

All comparisons are interleaved in this process, and given as medians of the ratios of the same
rounds. Work in a single thread is measured in processor time, which other work on the machine
changes less than wall time. Memory is measured in fresh interpreters.

    python -m benchmarks.matrix_factorization.speed            # everything, about 40 minutes
    python -m benchmarks.matrix_factorization.speed passes jobs
    python -m benchmarks.matrix_factorization.speed --write    # also doc/results/ratings_speed.md
    python -m benchmarks.matrix_factorization.speed --quick --write --output /tmp/quick.md

Ratings are drawn with the shape of MovieLens, so that no file is needed. cmfrec and implicit are
left out with a message if they are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.annealing import ANNEALING

from ..common.measuring import (
    Script,
    interleaved,
    milliseconds,
    processor_seconds,
    progress,
    reached,
    spread,
)
from ..common.priors import PEER_OF_RATINGS
from ..common.report import Page
from .data import draw
from .processes import TASKS, measure_jobs, measure_large
from .workload import (
    FULL,
    QUICK,
    Size,
    estimator,
    libraries,
    our_fit,
    pass_times,
    peers,
    warm,
)

SLOWER = 2.0
# For the methods with a target, the time per pass may be at most this multiple of the time without
# annealing. Five percent are left for the noise of the measurement.
COSTS = {"deterministic": 1.05, "svi_plus": 1.25}
# Bounds count as the same if their relative difference is at most this.
SAME = 1e-6


def data_words(size: Size) -> str:
    """A description of the ratings, in words."""
    shape = size.shape
    return (
        f"{shape.n_ratings:,} drawn ratings of the shape of {shape.name}, {shape.n_users:,} users "
        f"and {shape.n_items:,} items, activity and popularity skewed as there"
    )


def measure_passes(size: Size) -> list[str]:
    """One of our passes against a sweep of alternating least squares."""
    few, many = size.passes
    page = Page()
    page.section(
        "A pass against a sweep of alternating least squares",
        f"{data_words(size)}. Ours: all users, then all items, full covariances and the lower "
        "bound; with biases. cmfrec: `CMF`, explicit ratings, with biases, `use_cg=False`. "
        "implicit: `AlternatingLeastSquares`, implicit feedback, which is another model, "
        "`use_cg=False`. The same d, the same width of floating-point numbers, one thread. "
        f"A fit of {many} passes less one of {few}, divided by {many - few}; processor time. "
        f"Ratio: time of ours over theirs, median and quartiles of {size.rounds} rounds.",
    )
    there = peers()
    rows = []
    for d in size.components:
        for dtype in (np.float32, np.float64):
            name = np.dtype(dtype).name
            progress(f"passes, d = {d}, {name}")
            X = draw(size.shape).astype(dtype)
            warm(X, estimator(d, 1))
            fits = {"ours": our_fit(X, d)} | {p: fit(X, d) for p, fit in there.items()}
            times, _ = pass_times(fits, size.passes, size.rounds)
            ours = times["ours"]
            row = [str(d), name, milliseconds(ours)]
            row += [f"{1e9 * np.median(ours) / size.shape.n_ratings:.0f}"]
            for peer in ("cmfrec", "implicit"):
                found = peer in times
                row.append(milliseconds(times[peer]) if found else "–")
                row.append(spread(ours / times[peer]) if found else "–")
            if "cmfrec" in times:
                row.append(reached(float(np.median(ours / times["cmfrec"])) <= SLOWER))
            else:
                row.append("cmfrec is not installed")
            rows.append(row)
    header = ["d", "ratings", "ours, ms", "ours, ns per rating", "cmfrec, ms", "ratio to cmfrec"]
    page.table([*header, "implicit, ms", "ratio to implicit", f"target {SLOWER:g}"], rows)
    return page.lines


def measure_methods(size: Size) -> list[str]:
    """Time per pass of every annealing method against plain inference."""
    d = size.many
    few, many = _long(size)
    page = Page()
    page.section(
        "What annealing costs per pass",
        'Ratio of the time of an annealed pass to that of one with `annealing="none"`, each '
        "method in turns with it, the same ratings as float32, "
        f"d = {d}, with the settings that are recommended for ratings; one thread, processor time, "
        f"a fit of {many} passes less one of {few}: median and quartiles of {size.rounds} rounds. "
        "Local tempering and structured inference see users as local variables. Bounds that some "
        "methods need an additional pass for are not counted.",
    )
    X = draw(size.shape).astype(np.float32)
    rows = []
    for name in ANNEALING:
        if name != "none":
            progress(f"methods, {name}")
            rows.append([name, *_cost(X, d, name, size)[0]])
    page.table(["method", "none, ms", "ms", "ratio"], rows)
    return page.lines


def measure_costs(size: Size) -> list[str]:
    """Annealed passes and whole fits of the methods that should cost almost nothing."""
    page = Page()
    few, many = _long(size)
    page.section(
        "What deterministic annealing and SVI+ cost",
        f"The same for all d and both precisions; a fit of {many} passes less one of {few}, all of "
        "them annealed, in turns with `none`. *Nothing* is a ratio of at most "
        f"{COSTS['deterministic']:g}.",
    )
    rows = []
    for d in size.components:
        for dtype in (np.float32, np.float64):
            name = np.dtype(dtype).name
            X = draw(size.shape).astype(dtype)
            for method in COSTS:
                progress(f"costs, d = {d}, {name}, {method}")
                cells, ratio = _cost(X, d, method, size)
                rows.append([str(d), name, method, *cells, _verdict(method, ratio)])
    page.table(["d", "ratings", "method", "none, ms", "ms", "ratio", "target"], rows)
    page.section(
        "What they cost in a whole fit",
        "Fits with the default settings, from the reading of X to the test that ends them; the "
        "passes after the schedule are plain ones. The same ratings as float32, one thread, "
        "processor time. Ratio: time per pass of one over that of the other, median and quartiles "
        f"of {size.rounds} rounds; what a fit does once counts more where passes are few.",
    )
    rows = [row for d in size.components for row in _whole_fits(d, size)]
    header = ["d", "method", "passes", "s", "passes of none", "s of none", "ratio per pass"]
    page.table([*header, "target"], rows)
    return page.lines


def _long(size: Size) -> tuple[int, int]:
    """Numbers of passes of two fits, long enough that differences of a few percent are visible."""
    few, many = size.passes
    return few, few + 4 * (many - few)


def _cost(X: csr_matrix, d: int, method: str, size: Size) -> tuple[list[str], float]:
    """Times of passes without and with a method, and their ratio, in words; and the ratio."""
    warm(X, estimator(d, 1, method))
    fits = {name: our_fit(X, d, name) for name in ("none", method)}
    times, _ = pass_times(fits, _long(size), size.rounds)
    ratios = times[method] / times["none"]
    cells = [*(milliseconds(times[name]) for name in fits), spread(ratios)]
    return cells, float(np.median(ratios))


def _verdict(method: str, ratio: float) -> str:
    target = "nothing" if method == "deterministic" else f"{COSTS[method]:g}"
    return f"{target}: {reached(ratio <= COSTS[method])}"


def _whole_fits(d: int, size: Size) -> list[list[str]]:
    """Rows of the table on whole fits with default settings, which are timed in turns."""
    X = draw(size.shape).astype(np.float32)
    passes: dict[str, int] = {}

    def fit(name: str) -> None:
        passes[name] = (
            AnnealedPMF(d, annealing=name, random_state=0, **PEER_OF_RATINGS).fit(X).n_iter_
        )

    methods = ["none", *COSTS]
    for name in methods:
        warm(X, estimator(d, 1, name))
    progress(f"costs, d = {d}, whole fits")
    runs = {name: partial(fit, name) for name in methods}
    times = interleaved(runs, size.rounds, processor_seconds)
    each = {name: times[name] / passes[name] for name in methods}
    rows = []
    for name in COSTS:
        ratios = each[name] / each["none"]
        row = [str(d), name]
        for key in (name, "none"):
            row += [str(passes[key]), f"{np.median(times[key]):.2f}"]
        rows.append([*row, spread(ratios), _verdict(name, float(np.median(ratios)))])
    return rows


def measure_precision(size: Size) -> list[str]:
    """Compare the bounds for ratings in single and in double precision."""
    _, n = size.passes
    page = Page()
    page.section(
        "Single precision",
        "The same ratings as float32 and as float64, which is the type of the tables of second "
        "moments too, from the same start: the largest relative difference of the lower bounds of "
        f"{n} passes, and the largest difference of predicted ratings in the end. All else is "
        "float64 in both.",
    )
    rows = []
    for d in size.components:
        progress(f"precision, d = {d}")
        X = draw(size.shape)
        single, double = (our_fit(X.astype(t), d)(n) for t in (np.float32, np.float64))
        bounds = np.abs(single.lower_bounds_ / double.lower_bounds_ - 1)
        users, items = X[:200].nonzero()
        ratings = [fit.predict_ratings(users, items) for fit in (single, double)]
        row = [str(d), f"{bounds.max():.0e}", f"{np.abs(ratings[0] - ratings[1]).max():.0e}"]
        rows.append([*row, reached(float(bounds.max()) <= SAME)])
    page.table(["d", "bounds apart", "ratings apart", f"target {SAME:g}"], rows)
    return page.lines


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "passes": (measure_passes, True),
    "methods": (measure_methods, True),
    "costs": (measure_costs, True),
    "precision": (measure_precision, True),
    "jobs": (measure_jobs, False),
    "large": (measure_large, False),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="matrix_factorization",
        title="Speed of matrix factorisation",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        tasks=TASKS,
        output="ratings_speed.md",
        peers=libraries(),
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
