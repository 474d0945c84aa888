"""Speed of factorial mixtures against the matrix products that a pass cannot do without.

All comparisons are interleaved in this process, and given as medians of the ratios of the same
rounds; processor time of one thread.

    python -m benchmarks.factorial_mixture.speed            # everything, about 3 minutes
    python -m benchmarks.factorial_mixture.speed passes
    python -m benchmarks.factorial_mixture.speed --write    # also the page of results
    python -m benchmarks.factorial_mixture.speed --quick --write --output /tmp/quick.md

The page is ``doc/results/factorial_mixture_speed.md``. The rows are drawn, so that no file is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sklearn_anneal.annealing import ANNEALING

from ..common.measuring import Script, milliseconds, progress, reached, spread
from ..common.report import Page
from .workload import FULL, QUICK, Size, our_fit, pass_times, products

# A pass may take at most this multiple of the time of its products.
TARGET = 4.0
# Sweeps over a row that starts anew, and the numbers of sweeps of the two passes whose difference
# is the time of sweeps.
FEW_SWEEPS = 5
SWEEPS = (1, 5)


def _against_products(size: Size) -> list[list[str]]:
    rows = []
    for shape in size.shapes:
        progress(f"{shape}, K = {shape.n_components}")
        fits = {name: our_fit(shape, name) for name in ("deterministic", "none")}
        for n in SWEEPS:
            fits[f"{n} sweeps"] = our_fit(shape, "deterministic", max_sweeps=n, sweep_tol=0.0)
        times = pass_times(fits, {"products": products(shape)}, size)
        ratios = {name: times[name] / times["products"] for name in ("deterministic", "none")}
        worst = max(float(np.median(values)) for values in ratios.values())
        few, many = SWEEPS
        one = (times[f"{many} sweeps"] - times[f"{few} sweeps"]) / (many - few)
        each = 1e9 * one / (shape.n_rows * shape.n_components**2)
        rows.append(
            [
                str(shape),
                str(shape.n_components),
                milliseconds(times["products"]),
                *(cell for n in ratios for cell in (milliseconds(times[n]), spread(ratios[n], 1))),
                reached(worst <= TARGET),
                spread(FEW_SWEEPS * one / times["products"], 1),
                spread(each, 3),
            ]
        )
    return rows


def measure_passes(size: Size) -> list[str]:
    """One pass of mean-field inference against its products."""
    few, many = size.passes
    page = Page()
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
    page.table(header, _against_products(size))
    return page.lines


def measure_methods(size: Size) -> list[str]:
    """Time per pass of every annealing method against plain inference."""
    shape = size.methods
    page = Page()
    page.section(
        "What annealing costs per pass",
        'Ratio of the time of an annealed pass to that of one with `annealing="none"`, each method '
        f"in turns with it; {shape} rows × columns, K = {shape.n_components}, with the settings "
        f"that are recommended. Median and quartiles of {size.rounds} rounds.",
    )
    rows = []
    for name in ANNEALING:
        if name != "none":
            progress(f"methods, {name}")
            fits = {key: our_fit(shape, key) for key in ("none", name)}
            times = pass_times(fits, {}, size)
            cells = [milliseconds(times[key]) for key in fits]
            rows.append([name, *cells, spread(times[name] / times["none"])])
    page.table(["method", "none, ms", "ms", "ratio"], rows)
    return page.lines


BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "passes": (measure_passes, True),
    "methods": (measure_methods, True),
}


def main(argv: Sequence[str] | None = None) -> None:
    Script(
        model="factorial_mixture",
        title="Speed of factorial mixtures",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        output="factorial_mixture_speed.md",
        peers={},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
