"""Speed of the Gaussian mixture against scikit-learn's, and the cost of each annealing method.

The rows are drawn. ``benchmarks/common/speed.py`` says how the command is run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture

from ..common import speed
from ..common.measuring import milliseconds, progress, spread, wall_seconds
from ..common.memory import STATUS, Sampler
from ..common.priors import PEER_OF_MIXTURES
from ..common.report import Page
from ..common.speed import METHODS, Fit, Speed, of_passes, pass_times


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run.

    Attributes
    ----------
    n_rows : int
    shapes : tuple of (str, int, int)
        Covariance type, D and K of the passes that are compared with scikit-learn's.
    spaces : tuple of (int, int)
        D and K of the section on annealing.
    annealed_rounds : int
        Number of interleaved repetitions there.
    wide : tuple of (str, int, int, int)
        Covariance type, D, K and the number of rows of the section on many columns.
    """

    n_rows: int = 50_000
    shapes: tuple[tuple[str, int, int], ...] = (
        ("full", 30, 20),
        ("full", 5, 10),
        ("full", 64, 20),
        ("diag", 30, 20),
        ("diag", 5, 10),
        ("tied", 30, 20),
        ("spherical", 30, 20),
    )
    spaces: tuple[tuple[int, int], ...] = ((30, 20), (5, 10))
    annealed_rounds: int = 15
    wide: tuple[tuple[str, int, int, int], ...] = tuple(
        (covariance, d, k, n)
        for covariance in ("full", "tied")
        for d, k, n in (
            (10, 10, 20_000),
            (50, 10, 8_000),
            (100, 10, 6_000),
            (200, 8, 4_000),
            (400, 5, 4_000),
            (1_000, 3, 3_000),
        )
    )

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n, annealed_rounds=n)


FULL = Size(7, (2, 12))
QUICK = Size(
    rounds=1,
    passes=(2, 12),
    quick=True,
    n_rows=500,
    shapes=(("full", 3, 2), ("diag", 3, 2)),
    spaces=((3, 2), (2, 3)),
    annealed_rounds=1,
    wide=(("full", 12, 2, 100),),
)


def blobs(n: int, d: int) -> np.ndarray:
    """Draw rows of eight round clusters."""
    rng = np.random.default_rng(0)
    centers = 2.0 * rng.standard_normal((8, d))
    return centers[rng.integers(8, size=n)] + rng.standard_normal((n, d))


def our_fit(X: np.ndarray, k: int, annealing: str = "none", **parameters: Any) -> Fit:
    """Fits with the priors of scikit-learn."""
    settings = {"tol": 0, "init_params": "random", "random_state": 0, **parameters}

    def fit(n: int) -> AnnealedBayesianGaussianMixture:
        made = AnnealedBayesianGaussianMixture(k, **PEER_OF_MIXTURES | settings)
        of_passes(made, annealing, n)
        if annealing == "deterministic":
            # The recommended temperature is 1, at which there are no annealed passes.
            made.set_params(annealing__initial_temperature=3.0)
        return made.fit(X)

    return fit


def peer_fit(X: np.ndarray, k: int, **parameters: Any) -> Fit:
    settings = {"tol": 0, "init_params": "random", "random_state": 0, **parameters}
    return lambda n: BayesianGaussianMixture(n_components=k, max_iter=n, **settings).fit(X)


def measure_passes(page: Page, size: Size) -> None:
    page.section(
        "Time per pass",
        f'float64, one thread, `annealing="none"`, N = {size.n_rows:,}. Ratio: scikit-learn\'s '
        f"time over ours, median and quartiles of {size.rounds} rounds. Peak memory: growth of the "
        "anonymous memory of this process during a fit of ours, in MB of 10⁶ bytes.",
    )
    rows = []
    for covariance, d, k in size.shapes:
        progress(f"passes, {covariance}, D = {d}, K = {k}")
        X = blobs(size.n_rows, d)
        fits = {
            "peer": peer_fit(X, k, covariance_type=covariance),
            "ours": our_fit(X, k, covariance_type=covariance),
        }
        memory = _growth(fits["ours"])
        times = pass_times(fits, {}, size, wall_seconds)
        cells = [
            *(milliseconds(times[name]) for name in fits),
            spread(times["peer"] / times["ours"]),
        ]
        rows.append([covariance, str(d), str(k), *cells, memory])
    header = ["covariance", "D", "K", "scikit-learn, ms", "ours, ms", "ratio", "peak memory, MB"]
    page.table(header, rows)


def measure_wide(page: Page, size: Size) -> None:
    page.section(
        "Many columns",
        "A pass with the default priors, which are learned, against one of scikit-learn's "
        '`GaussianMixture`, which has none. float64, one thread, `annealing="none"`, processor '
        f"time. Ratio: our time over scikit-learn's, median and quartiles of {size.rounds} rounds. "
        "With few rows for each component, a pass is Cholesky factors and inverses of D³ "
        "operations, of which learning the priors takes about half.",
    )
    rows = []
    for covariance, d, k, n in size.wide:
        progress(f"many columns, {covariance}, D = {d}, N = {n}")
        X = blobs(n, d)
        settings = {"covariance_type": covariance, "tol": 0, "random_state": 0}
        fits: dict[str, Fit] = {
            "peer": lambda m, X=X, k=k, how=settings: GaussianMixture(
                k, max_iter=m, init_params="random_from_data", **how
            ).fit(X),
            "ours": lambda m, X=X, k=k, how=settings: of_passes(
                AnnealedBayesianGaussianMixture(k, **how), "none", m
            ).fit(X),
        }
        times = pass_times(fits, {}, size)
        cells = [milliseconds(times[name]) for name in fits]
        rows.append(
            [covariance, str(d), str(k), f"{n:,}", *cells, spread(times["ours"] / times["peer"])]
        )
    page.table(["covariance", "D", "K", "N", "scikit-learn, ms", "ours, ms", "ratio"], rows)


def _growth(fit: Fit) -> str:
    """Growth of the memory during a fit, in words."""
    if not STATUS.exists():
        return "–"
    fit(1)
    with Sampler() as memory:
        fit(2)
    return f"{memory.growth:.0f}"


def measure_methods(page: Page, size: Size) -> None:
    page.section(
        "What annealing costs per pass",
        f'Ratio of the time per pass to that of `annealing="none"`, N = {size.n_rows:,}, full '
        "covariances, batch mode, one thread: median and quartiles of "
        f"{size.annealed_rounds} ratios.",
    )
    cells: dict[str, list[str]] = {name: [] for name in METHODS}
    for d, k in size.spaces:
        X = blobs(size.n_rows, d)
        for name in METHODS:
            progress(f"methods, D = {d}, K = {k}, {name}")
            fits = {key: our_fit(X, k, key) for key in ("none", name)}
            rounds = replace(size, rounds=size.annealed_rounds)
            times = pass_times(fits, {}, rounds, wall_seconds)
            cells[name].append(spread(times[name] / times["none"]))
    header = ["method", *(f"D = {d}, K = {k}" for d, k in size.spaces)]
    page.table(header, [[name, *cell] for name, cell in cells.items()])


SPEED = Speed(
    __doc__,
    model="gaussian_mixture",
    title="Speed of the Gaussian mixture",
    output="speed.md",
    sections={"passes": measure_passes, "wide": measure_wide, "methods": measure_methods},
    full=FULL,
    quick=QUICK,
)
main = SPEED.main

if __name__ == "__main__":
    main()
