"""Speed of matrix factorisation against alternating least squares.

All comparisons are interleaved in this process, and given as medians of the ratios of the same
rounds. Work in a single thread is measured in processor time, which other work on the machine
changes less than wall time.

    python -m benchmarks.matrix_factorization.speed            # everything, about 15 minutes
    python -m benchmarks.matrix_factorization.speed passes
    python -m benchmarks.matrix_factorization.speed --write    # also doc/results/ratings_speed.md
    python -m benchmarks.matrix_factorization.speed --quick --write --output /tmp/quick.md

Ratings are drawn with the shape of MovieLens, so that no file is needed. cmfrec and implicit are
left out with a message if they are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from sklearn_anneal.annealing import ANNEALING

from ..common.measuring import (
    Script,
    milliseconds,
    progress,
    reached,
    spread,
)
from ..common.report import Page
from .data import draw
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
            rows.append([name, *_cost(X, d, name, size)])
    page.table(["method", "none, ms", "ms", "ratio"], rows)
    return page.lines


def _long(size: Size) -> tuple[int, int]:
    """Numbers of passes of two fits, long enough that differences of a few percent are visible."""
    few, many = size.passes
    return few, few + 4 * (many - few)


def _cost(X: csr_matrix, d: int, method: str, size: Size) -> list[str]:
    """Times of passes without and with a method, and their ratio, in words."""
    warm(X, estimator(d, 1, method))
    fits = {name: our_fit(X, d, name) for name in ("none", method)}
    times, _ = pass_times(fits, _long(size), size.rounds)
    return [*(milliseconds(times[name]) for name in fits), spread(times[method] / times["none"])]


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "passes": (measure_passes, True),
    "methods": (measure_methods, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="matrix_factorization",
        title="Speed of matrix factorisation",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        output="ratings_speed.md",
        peers=libraries(),
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
