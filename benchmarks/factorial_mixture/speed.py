"""Speed of factorial mixtures against the matrix products that a pass cannot do without.

The rows are drawn. ``benchmarks/common/speed.py`` says how the command is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sklearn_anneal import AnnealedFactorialMixture

from ..common import speed
from ..common.measuring import milliseconds, progress, reached, spread
from ..common.report import Page
from ..common.speed import Fit, Shape, Speed, add_methods, of_passes, pass_times, products

# A pass may take at most this multiple of the time of its products.
TARGET = 4.0
# Sweeps over a row that starts anew, and the numbers of sweeps of the two passes whose difference
# is the time of sweeps.
FEW_SWEEPS = 5
SWEEPS = (1, 5)
_NOISE, _ACTIVE, _SHARE = 0.2, 0.3, 0.3


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run: the shapes that are compared with products, and that of the methods."""

    shapes: tuple[Shape, ...] = (
        Shape(20_000, 16, 8),
        Shape(20_000, 64, 16),
        Shape(20_000, 64, 32),
        Shape(10_000, 784, 32),
        Shape(10_000, 784, 64),
    )
    methods: Shape = Shape(20_000, 64, 16)


FULL = Size()
_SMALL = Shape(200, 16, 4)
QUICK = Size(1, (1, 3), quick=True, shapes=(_SMALL,), methods=_SMALL)


@cache
def rows(shape: Shape) -> np.ndarray:
    """Sums of sparse parts, and noise."""
    rng = np.random.default_rng(0)
    size = (shape.n_components, shape.n_features)
    parts = rng.random(size) * (rng.random(size) < _SHARE)
    active = rng.random((shape.n_rows, shape.n_components)) < _ACTIVE
    return active @ parts + _NOISE * rng.standard_normal((shape.n_rows, shape.n_features))


def our_fit(shape: Shape, annealing: str, **parameters: Any) -> Fit:
    """Fits at given priors, because the data are drawn from them."""
    settings = {"noise_variance": _NOISE**2, "mean_variance": 0.1, "activation_prior": _ACTIVE}
    settings |= {"random_state": 0, "tol": 0, "effort": 0, **parameters}

    def fit(n: int) -> AnnealedFactorialMixture:
        made = AnnealedFactorialMixture(shape.n_components, **settings)
        return of_passes(made, annealing, n).fit(rows(shape))

    return fit


def measure_passes(page: Page, size: Size) -> None:
    few, many = size.passes
    page.section(
        "A pass against its matrix products",
        "*Products*: X E[μ]ᵀ and E[z]ᵀX, without which no pass can do, by BLAS in blocks of rows. "
        "*Annealed pass*: of the default schedule, in which rows start anew, with "
        f"{FEW_SWEEPS} sweeps at most. *Plain pass*: T = 1; rows start anew in the first half of "
        "the passes, and from the last pass in the second. Both with their bound; a fit of "
        f"{many} passes less one of {few}, divided by {many - few}. Ratio: median and quartiles "
        f"of {size.rounds} rounds. Sums of sparse parts (30 % of the pixels, 30 % active) with "
        "noise of standard deviation 0.2. "
        f"*A sweep*: an annealed pass of exactly {SWEEPS[1]} sweeps less one of {SWEEPS[0]}, "
        f"divided by {SWEEPS[1] - SWEEPS[0]}. A sweep updates each of the K activations of a row "
        "from all others, which takes K² multiplications per row and K exponentials, and these "
        "weigh more where K is small. The products take 2 D K multiplications per row, so that "
        f"the ratio of {FEW_SWEEPS} sweeps to them grows with K / D, and a pass comes near to its "
        "products only where the columns are many.",
    )
    header = ["rows × columns", "K", "products, ms", "annealed pass, ms", "ratio"]
    header += ["plain pass, ms", "ratio", f"target {TARGET:g}"]
    header += [f"ratio of {FEW_SWEEPS} sweeps", "a sweep, ns per row and K²"]
    page.table(header, [_against_products(shape, size) for shape in size.shapes])


def _against_products(shape: Shape, size: Size) -> list[str]:
    progress(f"{shape}, K = {shape.n_components}")
    fits = {name: our_fit(shape, name) for name in ("deterministic", "none")}
    for n in SWEEPS:
        fits[f"{n} sweeps"] = our_fit(shape, "deterministic", max_sweeps=n, sweep_tol=0.0)
    means = np.random.default_rng(1).random((shape.n_components, shape.n_features))
    times = pass_times(fits, {"products": products(rows(shape), means)}, size)
    ratios = {name: times[name] / times["products"] for name in ("deterministic", "none")}
    worst = max(float(np.median(values)) for values in ratios.values())
    few, many = SWEEPS
    one = (times[f"{many} sweeps"] - times[f"{few} sweeps"]) / (many - few)
    each = 1e9 * one / (shape.n_rows * shape.n_components**2)
    return [
        str(shape),
        str(shape.n_components),
        milliseconds(times["products"]),
        *(cell for n in ratios for cell in (milliseconds(times[n]), spread(ratios[n], 1))),
        reached(worst <= TARGET),
        spread(FEW_SWEEPS * one / times["products"], 1),
        spread(each, 3),
    ]


def measure_methods(page: Page, size: Size) -> None:
    shape = size.methods
    page.section(
        "What annealing costs per pass",
        'Ratio of the time of an annealed pass to that of one with `annealing="none"`, each method '
        f"in turns with it; {shape} rows × columns, K = {shape.n_components}, with the settings "
        f"that are recommended. Median and quartiles of {size.rounds} rounds.",
    )
    add_methods(page, lambda name: our_fit(shape, name), size)


SPEED = Speed(
    __doc__,
    model="factorial_mixture",
    title="Speed of factorial mixtures",
    output="factorial_mixture_speed.md",
    sections={"passes": measure_passes, "methods": measure_methods},
    full=FULL,
    quick=QUICK,
)
main = SPEED.main

if __name__ == "__main__":
    main()
