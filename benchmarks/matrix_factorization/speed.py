"""Speed of matrix factorisation against alternating least squares.

Ratings are drawn with the shape of MovieLens. ``benchmarks/common/speed.py`` says how the command
is run. cmfrec and implicit are left out with a message if they are not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedPMF

from ..common import speed
from ..common.measuring import milliseconds, progress, reached, spread
from ..common.peers import is_there
from ..common.priors import PEER_OF_RATINGS
from ..common.report import Page
from ..common.speed import Fit, Speed, add_methods, of_passes, pass_times
from .data import Shape, draw

try:
    from cmfrec import CMF
except ImportError:
    CMF = None
try:
    from implicit.cpu.als import AlternatingLeastSquares
except ImportError:
    AlternatingLeastSquares = None

SLOWER = 2.0
# The noise variance divided by the prior variance of factors, from our defaults for stars from 1
# to 5.
_RIDGE = 8.0


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run.

    Attributes
    ----------
    shape : Shape
    components : tuple of int
        Numbers of factors (d) in the section on passes.
    many : int
        Number of factors in the section on methods.
    """

    shape: Shape = Shape("MovieLens 1M", 6040, 3706, 1_000_209, 1.05, 1.25)
    components: tuple[int, ...] = (5, 10, 20)
    many: int = 10


FULL = Size(5, (2, 12))
QUICK = Size(
    rounds=1,
    passes=(1, 3),
    quick=True,
    shape=Shape("a small shape", 100, 60, 1500, 1.0, 1.2),
    components=(3,),
    many=3,
)


def our_fit(X: csr_matrix, d: int, annealing: str = "none") -> Fit:
    settings = PEER_OF_RATINGS | {"tol": 0, "random_state": 0}
    if annealing != "none":
        settings["effort"] = 0
    return lambda n: of_passes(AnnealedPMF(d, **settings), annealing, n).fit(X)


def cmfrec_fit(X: csr_matrix, d: int) -> Fit:
    """Alternating least squares of explicit ratings, with biases, by Cholesky's method."""
    ratings = X.tocoo()
    model = {
        "k": d,
        "lambda_": _RIDGE,
        "method": "als",
        "use_cg": False,
        "user_bias": True,
        "item_bias": True,
        "center": True,
        "use_float": X.dtype == np.float32,
        "precompute_for_predictions": False,
        "verbose": False,
        "nthreads": 1,
    }
    return lambda n: CMF(niter=n, **model).fit(ratings)


def implicit_fit(X: csr_matrix, d: int) -> Fit:
    """Alternating least squares of implicit feedback, by Cholesky's method."""
    how = {
        "regularization": _RIDGE,
        "dtype": X.dtype.type,
        "use_cg": False,
        "num_threads": 1,
        "random_state": 0,
    }

    def fit(n: int) -> Any:
        model = AlternatingLeastSquares(factors=d, iterations=n, **how)
        model.fit(X, show_progress=False)
        return model

    return fit


PEERS: dict[str, Callable[[csr_matrix, int], Fit]] = {
    "cmfrec": cmfrec_fit,
    "implicit": implicit_fit,
}


def libraries() -> dict[str, Any]:
    """The other libraries by name; None for one that is not installed."""
    return {"cmfrec": CMF, "implicit": AlternatingLeastSquares}


def measure_passes(page: Page, size: Size) -> None:
    (few, many), shape = size.passes, size.shape
    page.section(
        "A pass against a sweep of alternating least squares",
        f"{shape.n_ratings:,} drawn ratings of the shape of {shape.name}, {shape.n_users:,} users "
        f"and {shape.n_items:,} items, activity and popularity skewed as there. Ours: all users, "
        "then all items, full covariances and the lower "
        "bound; with biases. cmfrec: `CMF`, explicit ratings, with biases, `use_cg=False`. "
        "implicit: `AlternatingLeastSquares`, implicit feedback, which is another model, "
        "`use_cg=False`. The same d, the same width of floating-point numbers, one thread. "
        f"A fit of {many} passes less one of {few}, divided by {many - few}; processor time. "
        f"Ratio: time of ours over theirs, median and quartiles of {size.rounds} rounds.",
    )
    there = [name for name, found in libraries().items() if is_there(name, found)]
    header = ["d", "ratings", "ours, ms", "ours, ns per rating", "cmfrec, ms", "ratio to cmfrec"]
    page.table(
        [*header, "implicit, ms", "ratio to implicit", f"target {SLOWER:g}"],
        [
            _passes_row(d, dtype, there, size)
            for d in size.components
            for dtype in (np.float32, np.float64)
        ],
    )


def _passes_row(d: int, dtype: Any, there: list[str], size: Size) -> list[str]:
    name = np.dtype(dtype).name
    progress(f"passes, d = {d}, {name}")
    X = draw(size.shape).astype(dtype)
    times = pass_times({"ours": our_fit(X, d)} | {p: PEERS[p](X, d) for p in there}, {}, size)
    ours = times["ours"]
    row = [str(d), name, milliseconds(ours), f"{1e9 * np.median(ours) / X.nnz:.0f}"]
    for peer in PEERS:
        found = peer in there
        row += [milliseconds(times[peer]), spread(ours / times[peer])] if found else ["–", "–"]
    if "cmfrec" not in there:
        return [*row, "cmfrec is not installed"]
    return [*row, reached(float(np.median(ours / times["cmfrec"])) <= SLOWER)]


def measure_methods(page: Page, size: Size) -> None:
    few, many = size.passes
    # Fits are so long that differences of a few percent are visible.
    longer = replace(size, passes=(few, few + 4 * (many - few)))
    page.section(
        "What annealing costs per pass",
        'Ratio of the time of an annealed pass to that of one with `annealing="none"`, each '
        "method in turns with it, the same ratings as float32, "
        f"d = {size.many}, with the settings that are recommended for ratings; one thread, "
        f"processor time, a fit of {longer.passes[1]} passes less one of {few}: median and "
        f"quartiles of {size.rounds} rounds. "
        "Local tempering and structured inference see users as local variables. Bounds that some "
        "methods need an additional pass for are not counted.",
    )
    X = draw(size.shape).astype(np.float32)
    add_methods(page, lambda name: our_fit(X, size.many, name), longer)


SPEED = Speed(
    __doc__,
    model="matrix_factorization",
    title="Speed of matrix factorisation",
    output="ratings_speed.md",
    sections={"passes": measure_passes, "methods": measure_methods},
    full=FULL,
    quick=QUICK,
    peers=libraries(),
)
main = SPEED.main

if __name__ == "__main__":
    main()
