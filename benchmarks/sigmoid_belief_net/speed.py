"""Speed of sigmoid belief nets against the matrix products that an epoch needs, and sizes of steps.

Where times are compared, rows are drawn, and the time does not depend on what they show.
``benchmarks/common/speed.py`` says how the command is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.datasets import load_breast_cancer, load_digits

from sklearn_anneal import AnnealedSigmoidBeliefNet

from ..common import speed
from ..common.data import load, read_each
from ..common.measuring import milliseconds, progress, reached, spread
from ..common.report import Page
from ..common.speed import Fit, Speed, add_methods, of_passes, pass_times
from ..suite import data
from .features import measure_features

# The time of an epoch may be at most this many times that of its matrix products.
TARGET = 2.0
_BATCH = 100
# Sizes of steps that are compared; None stands for the default.
_STEPS = (0.01, 0.03, None, 0.3)
_HEAD = ["table", "rows × columns", "hidden", "columns alone"]
# Sparse tables: rows that are fitted, columns, and hidden units of the net that draws them.
_SPARSE = {
    "drawn, wide": (100, 800, 5),
    "drawn, sparse": (300, 300, 10),
    "noise": (200, 300, 0),
    "noise, wide": (60, 800, 0),
}


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
class Size(speed.Size):
    """The size of a run.

    Attributes
    ----------
    images : Shape
        The shape that is compared with its matrix products.
    methods : Shape
    n_samples : int
        S, the number of samples per row.
    steps : tuple of (str, tuple of int)
        Names of binary tables that are fitted with steps of several sizes, and the hidden layers.
    divisions : int
        The number of their divisions.
    labelled, units, labelled_divisions
        Names of tables with classes, numbers of hidden units that are their features, and the
        number of divisions of these tables.
    """

    images: Shape = Shape(4_000, 784, (200, 200, 200))
    methods: Shape = Shape(5_000, 64, (50, 50, 50))
    n_samples: int = 5
    steps: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("drawn", (8,)),
        ("drawn", (200,)),
        ("votes", (16,)),
        ("300 digits", (64,)),
        ("300 digits", (200,)),
        ("1,200 digits", (64,)),
        ("1,200 digits", (200,)),
        ("1,200 digits", (50, 50, 50)),
        ("words", (100,)),
        ("words", (50, 50)),
        ("images", (200,)),
    )
    few: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("100 wide digits", (20,)),
        ("100 digits", (20,)),
        ("50 tumours", (20,)),
        ("films", (64,)),
        ("drawn, wide", (20,)),
        ("drawn, sparse", (20,)),
        ("noise", (20,)),
        ("noise, wide", (20,)),
    )
    divisions: int = 2
    labelled: tuple[str, ...] = (
        *("votes", "tumours", "300 digits", "1,200 digits", "mushrooms", "words", "images"),
    )
    units: tuple[int, ...] = (16, 64, 128)
    labelled_divisions: int = 2


FULL = Size(5, (1, 3))
_SMALL = Shape(300, 16, (6, 5))
QUICK = Size(
    rounds=1,
    passes=(1, 3),
    quick=True,
    images=_SMALL,
    methods=_SMALL,
    n_samples=2,
    steps=(("drawn", (3,)),),
    few=(("noise", (3,)),),
    divisions=1,
    labelled=("tumours",),
    units=(3,),
    labelled_divisions=1,
)


@cache
def rows(shape: Shape, dtype: str = "float32") -> np.ndarray:
    """Binary rows, a fifth of whose entries are 1."""
    rng = np.random.default_rng(0)
    return (rng.random((shape.n_rows, shape.n_features), dtype=np.float32) < 0.2).astype(dtype)


def our_fit(shape: Shape, n_samples: int, annealing: str = "none", dtype: str = "float32") -> Fit:
    settings = {"n_samples": n_samples, "batch_size": _BATCH, "tol": 0, "random_state": 0}

    def fit(n: int) -> AnnealedSigmoidBeliefNet:
        made = AnnealedSigmoidBeliefNet(shape.hidden, **settings)
        return of_passes(made, annealing, n).fit(rows(shape, dtype))

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


def measure_products(page: Page, size: Size) -> None:
    shape = size.images
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
        times = pass_times(fits, others, size)
        ratio = times["ours"] / times["products"]
        cells = [milliseconds(times[name]) for name in ("ours", "products")]
        lines.append([dtype, *cells, spread(ratio), reached(bool(np.median(ratio) <= TARGET))])
    page.table(["type", "epoch, ms", "products, ms", "ratio", "target"], lines)


def measure_methods(page: Page, size: Size) -> None:
    shape = size.methods
    page.section(
        "What annealing costs per epoch",
        'Ratio of the time of an annealed epoch to that of one with `annealing="none"`, each '
        f"method in turns with it; {shape} rows × columns, hidden layers {shape.layers}, float32. "
        f"Median and quartiles of {size.rounds} rounds.",
    )
    methods = ("deterministic", "svi_plus", "proximity")
    add_methods(page, lambda name: our_fit(shape, size.n_samples, name), size, methods)


def sparse_rows(n: int, columns: int, units: int, rng: np.random.Generator) -> np.ndarray:
    """Binary rows of a net of hidden units, each of which changes a fifth of the columns.

    A column is on in a twentieth of the rows in which all units are off.
    """
    changed = rng.random((units, columns)) < 0.2
    weights = np.where(changed, rng.normal(scale=3.0, size=changed.shape), 0.0)
    on = rng.random((n, units)) < 0.3
    return rng.random((n, columns)) < expit(on @ weights + logit(0.05))


def of_columns(X: np.ndarray, Y: np.ndarray) -> float:
    """Log probability of rows Y by independent columns with the frequencies of X, per row."""
    p = (X.sum(axis=0) + 0.5) / (len(X) + 1.0)
    return float((Y * np.log(p) + (1.0 - Y) * np.log1p(-p)).sum(axis=1).mean())


def binary_table(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Binary rows that are fitted, and others, which differ between seeds."""
    rng = np.random.default_rng(seed)
    if name == "drawn":
        on = rng.random((1000, 8)) < 0.3
        logits = on @ rng.normal(scale=3.0, size=(8, 40)) - 2.0
        X, n = rng.random(logits.shape) < expit(logits), 500
    elif name in _SPARSE:
        n, columns, units = _SPARSE[name]
        X = sparse_rows(n + 1000, columns, units, rng)
    elif name == "films":
        seen = load("movielens_100k.npz")
        X = np.zeros((seen["user"].max() + 1, seen["item"].max() + 1))
        X[seen["user"], seen["item"]] = 1.0
        # The 250 films that most people have rated.
        X, n = X[:, np.argsort(-X.sum(axis=0), kind="stable")[:250]], 650
    elif name == "100 wide digits":
        # Each pixel becomes four by four.
        pictures = (load_digits().data >= 8).reshape(-1, 8, 8)
        X, n = np.kron(pictures, np.ones((1, 4, 4))).reshape(len(pictures), -1), 100
    elif name == "50 tumours":
        measures = load_breast_cancer().data
        X, n = measures > np.median(measures, axis=0), 50
    elif name == "votes":
        X, n = load("votes_1984.npz")["X"] > 0, 300
    elif name == "words":
        X, n = load(data.WORDS)["X"] > 0, 3000
    elif name == "images":
        X, n = load(data.MNIST)["images"] > 127, 2000
    else:
        X, n = load_digits().data >= 8, int(name.split()[0].replace(",", ""))
    X = X[rng.permutation(len(X))[: n + 1000]].astype(np.float64)
    return X[:n], X[n:]


def measure_steps(page: Page, size: Size) -> None:
    page.section(
        "Sizes of steps",
        "Held-out scores, which bound the log probability of a row, in nats, with steps of several "
        "sizes (`learning_rate_init`; the default is 0.15) and everything else at its default. "
        "*Constant*: with the default size and `learning_rate_decay=0`. *No decay*: with the "
        "default size and `weight_decay=0`. *Columns alone*: independent "
        "columns with their frequencies. *Last step*: with `average=False`, so that the fit "
        "returns the parameters after its last step and not a mean over steps. Means over "
        f"{size.divisions} divisions of the rows, whose nets start differently too; the highest of "
        "each line is in bold. A fit makes 100 passes at most, and one update for 100 rows.",
    )
    settings: dict[str, dict[str, Any]] = {
        "default" if step is None else f"{step:g}": {"learning_rate_init": step or "auto"}
        for step in _STEPS
    }
    settings["constant"] = {"learning_rate_decay": 0.0}
    settings["no decay"] = {"weight_decay": 0.0}
    settings["last step"] = {"average": False}
    page.table(_HEAD + list(settings), compared(size.steps, settings, size))


def measure_few(page: Page, size: Size) -> None:
    page.section(
        "Few rows and many columns",
        "Held-out scores as in the section before. *Default*: a decay of the weights that is "
        "learned. *0.16* and *0.5*: `weight_decay` of these. *Early stopping*: with "
        "`early_stopping=True`. Rows of *drawn, wide* and *drawn, sparse* come from a net of few "
        "units and sparse columns, those of *noise* from sparse columns that do not depend on each "
        "other. *Wide digits* have each pixel sixteen times, *tumours* are those of the breast "
        "cancer data with columns that are on above their median, and *films* are the 250 that "
        "most people have rated, on if a person has.",
    )
    settings: dict[str, dict[str, Any]] = {
        "default": {},
        "0.16": {"weight_decay": 0.16},
        "0.5": {"weight_decay": 0.5},
        "no decay": {"weight_decay": 0.0},
        "early stopping": {"early_stopping": True},
    }
    page.table(_HEAD + list(settings), compared(size.few, settings, size))


def compared(
    cases: tuple[tuple[str, tuple[int, ...]], ...], settings: dict[str, dict[str, Any]], size: Size
) -> list[list[str]]:
    """The lines of held-out scores with each of the settings, of which the best is in bold."""
    lines = []

    def divisions(case: tuple[str, tuple[int, ...]]) -> list[tuple[np.ndarray, np.ndarray]]:
        return [binary_table(case[0], seed) for seed in range(size.divisions)]

    for (name, layers), tables in read_each(cases, divisions):
        scores = []
        for called, setting in settings.items():
            progress(f"scores, {name}, {layers}, {called}")
            net = AnnealedSigmoidBeliefNet(layers, **setting)
            fits = [
                net.set_params(random_state=i).fit(X).score(Y) for i, (X, Y) in enumerate(tables)
            ]
            scores.append(float(np.mean(fits)))
        rows, columns = tables[0][0].shape
        cells = [f"**{x:.2f}**" if x == max(scores) else f"{x:.2f}" for x in scores]
        independent = np.mean([of_columns(*table) for table in tables])
        shape = f"{rows:,} × {columns}", " – ".join(map(str, layers)), f"{independent:.2f}"
        lines.append([name, *shape, *cells])
    return lines


SPEED = Speed(
    __doc__,
    model="sigmoid_belief_net",
    title="Speed of sigmoid belief nets",
    output="sigmoid_belief_net_speed.md",
    sections={
        "products": measure_products,
        "methods": measure_methods,
        "steps": measure_steps,
        "few": measure_few,
        "features": lambda page, size: measure_features(
            page, size.labelled, size.units, size.labelled_divisions
        ),
    },
    full=FULL,
    quick=QUICK,
)
main = SPEED.main

if __name__ == "__main__":
    main()
