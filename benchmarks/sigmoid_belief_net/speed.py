"""Speed of sigmoid belief nets against the matrix products that an epoch needs.

All comparisons are interleaved in this process, and given as medians of the ratios of the same
rounds; processor time of one thread.

    python -m benchmarks.sigmoid_belief_net.speed            # everything, about 6 minutes
    python -m benchmarks.sigmoid_belief_net.speed products size
    python -m benchmarks.sigmoid_belief_net.speed --write    # also the page of results
    python -m benchmarks.sigmoid_belief_net.speed --quick --write --output /tmp/quick.md

The page is ``doc/results/sigmoid_belief_net_speed.md``. Rows that are timed are drawn, and the time
does not depend on what they show. ``held_out`` reads files, and leaves those out that are missing.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedSigmoidBeliefNet

from ..common.measuring import Script, milliseconds, progress, reached, spread
from ..common.report import Page
from ..factorial_mixture.workload import pass_times
from .sparse_rows import (
    RATES,
    Wide,
    held_out,
    machine_of,
    net_of,
    of_columns,
    tables,
    timed_fits,
    wide_rows,
)

# The time of an epoch may be at most this many times that of its matrix products.
TARGET = 2.0
# Time per row may grow by at most this factor from the smallest to the largest number of rows.
LINEAR = 1.25
# Memory beyond the data may be at most this share of the data.
COPY = 0.5
_BATCH = 100


@dataclass(frozen=True)
class Shape:
    """Numbers of rows and of columns, and the hidden layers."""

    n_rows: int
    n_features: int
    hidden: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.n_rows:,} × {self.n_features}"

    @property
    def layers(self) -> str:
        return " – ".join(map(str, self.hidden))


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    images : Shape
        The shape that is compared with its matrix products.
    growing : tuple of Shape
        Shapes that differ in the number of rows.
    methods : Shape
    wide, memory : Wide
        Sparse rows that are fitted in several forms, and more of them for the memory of a fit.
    held_out : tuple of int
        Numbers of rows that are fitted and held out, of hidden units, and of passes.
    n_samples : int
        S, the number of samples per row.
    rounds : int
        Number of interleaved repetitions.
    passes : tuple of int
        Numbers of passes of the two fits whose difference is measured.
    """

    images: Shape = Shape(4_000, 784, (200, 200, 200))
    growing: tuple[Shape, ...] = tuple(Shape(n, 64, (50, 50)) for n in (5_000, 20_000, 80_000))
    methods: Shape = Shape(5_000, 64, (50, 50, 50))
    wide: Wide = Wide(500, 20_000, 20, 50)
    memory: Wide = Wide(5_000, 20_000, 20, 50)
    held_out: tuple[int, int, int, int] = (3_000, 1_000, 50, 20)
    n_samples: int = 5
    rounds: int = 5
    passes: tuple[int, int] = (1, 3)
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
_SMALL = Shape(300, 16, (6, 5))
_THIN = Wide(300, 40, 3, 4)
QUICK = Size(
    images=_SMALL,
    growing=(_SMALL, Shape(600, 16, (6, 5))),
    methods=_SMALL,
    wide=_THIN,
    memory=_THIN,
    held_out=(200, 100, 4, 2),
    n_samples=2,
    rounds=1,
    quick=True,
)


@cache
def rows(shape: Shape, dtype: str = "float32") -> np.ndarray:
    """Binary rows, a fifth of whose entries are 1."""
    rng = np.random.default_rng(0)
    return (rng.random((shape.n_rows, shape.n_features), dtype=np.float32) < 0.2).astype(dtype)


def our_fit(
    shape: Shape, n_samples: int, annealing: str = "none", dtype: str = "float32"
) -> Callable[[int], Any]:
    """A function that makes a given number of passes, without any test of convergence."""
    X = rows(shape, dtype)

    def fit(n_passes: int) -> AnnealedSigmoidBeliefNet:
        made = AnnealedSigmoidBeliefNet(
            shape.hidden, n_samples=n_samples, batch_size=_BATCH, tol=0, random_state=0
        )
        if annealing == "none":
            return made.set_params(max_iter=n_passes).fit(X)
        made.set_params(annealing=annealing, annealing__n_passes=n_passes, max_iter=0)
        return made.fit(X)

    return fit


def products(shape: Shape, n_samples: int, dtype: str = "float32") -> Callable[[], None]:
    """The matrix products of an epoch, on arrays of the shapes and the type of the fit.

    For each batch of B rows and each layer these are the product of the recognition network, that
    of the net, and the gradients of the weights of both. Layers have S B rows, but where the
    recognition network reads the data, one product serves all S samples of a row.
    """
    sizes, rng = (shape.n_features, *shape.hidden), np.random.default_rng(1)

    def random(*size: int) -> np.ndarray:
        return rng.random(size, dtype=np.float32).astype(dtype)

    weights = [random(n, m) for m, n in zip(sizes, sizes[1:], strict=False)]
    many = [random(n_samples * _BATCH, n) for n in sizes]
    few = [random(_BATCH, n) for n in sizes[:2]]

    def run() -> None:
        for _ in range(0, shape.n_rows, _BATCH):
            for layer, W in enumerate(weights):
                below, above = few if layer == 0 else many[layer : layer + 2]
                below @ W.T
                above.T @ below
                many[layer + 1] @ W
                many[layer + 1].T @ many[layer]

    return run


def measure_products(size: Size) -> list[str]:
    """An epoch against its matrix products."""
    shape, page = size.images, Page()
    page.section(
        "An epoch against its matrix products",
        f"{shape} binary rows × columns, hidden layers {shape.layers}, {size.n_samples} samples "
        f"per row, {_BATCH} rows per update, without annealing: a fit of {size.passes[1]} passes "
        f"less one of {size.passes[0]}, divided by the difference. *Products*: those of both "
        "networks, and of the gradients of their weights. What an epoch does besides is to draw "
        "the units, to sum log probabilities, to weight the samples, and to move the parameters by "
        "Adam; the larger part of it grows with the number of units and not of weights. Ratio: "
        f"median and quartiles of {size.rounds} rounds. Target: {TARGET:g}.",
    )
    lines = []
    for dtype in ("float32", "float64"):
        progress(f"products, {dtype}")
        fits = {"ours": our_fit(shape, size.n_samples, dtype=dtype)}
        others = {"products": products(shape, size.n_samples, dtype)}
        times = pass_times(fits, others, size)  # type: ignore[arg-type]
        ratio = times["ours"] / times["products"]
        cells = [milliseconds(times[name]) for name in ("ours", "products")]
        lines.append([dtype, *cells, spread(ratio), reached(bool(np.median(ratio) <= TARGET))])
    page.table(["type", "epoch, ms", "products, ms", "ratio", "target"], lines)
    return page.lines


def beyond_data(fit: Callable[[int], Any]) -> float:
    """The largest memory that a pass takes besides its data, in bytes."""
    fit(1)
    tracemalloc.start()
    try:
        fit(1)
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def measure_size(size: Size) -> list[str]:
    """Time per row, and memory beyond the data, at several numbers of rows."""
    page = Page()
    page.section(
        "Linear in the number of rows, and no copy of the data",
        f"Time of an epoch divided by the number of rows; target: at most {LINEAR:g} times that of "
        "the smallest number of rows. *Beyond the data*: the largest memory of a fit of one pass "
        f"besides the rows, in MB; target: at most {COPY:g} of the data, where there are most "
        f"rows. Hidden layers {size.growing[0].layers}, float32.",
    )
    lines, first = [], None
    for shape in size.growing:
        progress(f"size, {shape}")
        fit = our_fit(shape, size.n_samples)
        times = pass_times({"ours": fit}, {}, size)["ours"]  # type: ignore[arg-type]
        each = 1e6 * times / shape.n_rows
        first = float(np.median(each)) if first is None else first
        memory, data = beyond_data(fit), rows(shape).nbytes
        holds = reached(float(np.median(each)) <= LINEAR * first)
        last = shape is size.growing[-1]
        kept = reached(memory <= COPY * data) if last else "–"
        lines.append(
            [str(shape), milliseconds(times), spread(each), holds]
            + [f"{data / 1e6:.1f}", f"{memory / 1e6:.1f}", kept]
        )
    header = ["rows × columns", "epoch, ms", "µs per row", "target", "data, MB"]
    page.table([*header, "beyond the data, MB", "target"], lines)
    return page.lines


def measure_methods(size: Size) -> list[str]:
    """Time per epoch of every annealing method that nets have, against plain inference."""
    shape, page = size.methods, Page()
    page.section(
        "What annealing costs per epoch",
        'Ratio of the time of an annealed epoch to that of one with `annealing="none"`, each '
        f"method in turns with it; {shape} rows × columns, hidden layers {shape.layers}, float32. "
        f"Median and quartiles of {size.rounds} rounds.",
    )
    lines = []
    for name in ("deterministic", "svi_plus", "proximity"):
        progress(f"methods, {name}")
        fits = {key: our_fit(shape, size.n_samples, key) for key in ("none", name)}
        times = pass_times(fits, {}, size)  # type: ignore[arg-type]
        cells = [milliseconds(times[key]) for key in fits]
        lines.append([name, *cells, spread(times[name] / times["none"])])
    page.table(["method", "none, ms", "ms", "ratio"], lines)
    return page.lines


def measure_sparse(size: Size) -> list[str]:
    """Epochs of sparse rows, their memory, and BernoulliRBM."""
    shape, page = size.wide, Page()
    page.section(
        "Sparse rows",
        f"{shape} binary rows × columns in float32, {shape.ones} ones drawn in each row, "
        f"{shape.hidden} hidden units, {_BATCH} rows per update, 5 samples per row. *Dense*: the "
        "same rows as an array. *BernoulliRBM*: scikit-learn's, of the sparse rows, whose update "
        "has one sample per row. Both nets have a probability for every column and sample, whether "
        "the row is sparse or not; only the recognition network reads the ones alone. Ratio: "
        f"median and quartiles of {size.rounds} rounds.",
    )
    progress("sparse, epochs")
    times = pass_times(timed_fits(shape), {}, size)  # type: ignore[arg-type]
    names = {"sparse": "sparse", "dense": "dense", "peer": "BernoulliRBM"}
    lines = [
        [words, milliseconds(times[name]), spread(times["sparse"] / times[name])]
        for name, words in names.items()
    ]
    page.table(["rows", "epoch, ms", "sparse / this"], lines)
    progress("sparse, memory")
    shape = size.memory
    X = wide_rows(shape)

    def fit(n_passes: int) -> AnnealedSigmoidBeliefNet:
        made = AnnealedSigmoidBeliefNet((shape.hidden,), max_iter=n_passes, tol=0, random_state=0)
        return made.fit(X)

    held = 4e-6 * shape.n_rows * shape.n_features
    page.lines.extend(
        [
            f"A fit of one pass of {shape} such rows needs {beyond_data(fit) / 1e6:.0f} MB at most "
            f"beside them, of which {4e-6 * 2 * shape.hidden * shape.n_features:.0f} MB are the "
            f"weights of both networks; as an array the rows would have {held:.0f} MB.",
            "",
        ]
    )
    return page.lines


def measure_held_out(size: Size) -> list[str]:
    """Held-out rows of sparse tables against BernoulliRBM."""
    n_train, n_test, hidden, n_passes = size.held_out
    page = Page()
    page.section(
        "Held-out rows of sparse tables",
        f"At most {n_train:,} rows are fitted and {n_test:,} held out; {hidden} hidden units, "
        f"{n_passes} passes, and the learning rate ({', '.join(map(str, RATES))}) that is best on "
        "a fifth of the rows that are fitted. Nats per row: of the net the importance-weighted "
        "bound with 100 draws, which is too low; of BernoulliRBM (batches of 10 rows) with the "
        "normaliser by annealed importance sampling with 100 chains of 500 steps, which is more "
        "often too small than too large and so flatters the machine. *Difference*: net − "
        "BernoulliRBM, with the standard error of the mean over held-out rows of one division.",
    )
    lines = []
    for name, X in tables((n_train, n_test), size.quick).items():
        cut = min(n_train, X.shape[0] * 3 // 4)
        train, test = X[:cut], X[cut:]
        progress(f"held out, {name}")
        net, rate = held_out(net_of, train, test, hidden, n_passes)
        machine, other = held_out(machine_of, train, test, hidden, n_passes)
        apart = net - machine
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        lines.append(
            [name, f"{cut:,} × {X.shape[1]:,}", f"{len(apart):,}"]
            + [f"{scores.mean():.2f}" for scores in (of_columns(train, test), machine, net)]
            + [f"{apart.mean():+.2f} ± {error:.2f}", f"{other:g}, {rate:g}"]
        )
    header = ["table", "rows × columns", "held out", "independent columns", "BernoulliRBM", "net"]
    page.table([*header, "difference", "rates"], lines)
    return page.lines


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "products": (measure_products, True),
    "size": (measure_size, True),
    "methods": (measure_methods, True),
    "sparse": (measure_sparse, True),
    "held_out": (measure_held_out, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="sigmoid_belief_net",
        title="Speed of sigmoid belief nets",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        output="sigmoid_belief_net_speed.md",
        peers={},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
