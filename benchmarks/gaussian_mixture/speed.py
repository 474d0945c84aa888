"""Speed of the Gaussian mixture against scikit-learn's, and the cost of each annealing method.

The rows are drawn. ``benchmarks/common/speed.py`` says how the command is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture

from ..common import speed
from ..common.measuring import (
    milliseconds,
    processor_seconds,
    progress,
    spread,
    wall_seconds,
)
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
    small : tuple of (str, int, int, int)
        Covariance type, D, K and the number of rows of the section on small tables.
    passes_of_small : tuple of int
        The numbers of passes there, each of which takes little time.
    spaces : tuple of (int, int)
        D and K of the section on annealing.
    annealed_rounds : int
        Number of interleaved repetitions there.
    wide : tuple of (str, int, int, int)
        Covariance type, D, K and the number of rows of the section on many columns.
    missing : tuple of (int, int)
        D and the number of rows of the section on missing cells.
    shares : tuple of float
        Shares of missing cells there.
    few_rows : tuple of (int, int, tuple of int)
        Numbers of rows, columns and components of the section on few rows.
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
    small: tuple[tuple[str, int, int, int], ...] = tuple(
        (covariance, d, k, n)
        for covariance in ("full", "tied", "diag", "spherical")
        for d, k, n in (
            (4, 3, 150),
            (13, 3, 180),
            (2, 5, 1_000),
            (5, 8, 2_000),
            (30, 4, 570),
            (30, 10, 570),
        )
    )
    passes_of_small: tuple[int, int] = (10, 110)
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
    ) + (
        ("full", 35, 2, 300),
        ("full", 50, 2, 300),
        ("full", 64, 2, 100),
        ("full", 64, 10, 300),
        ("full", 80, 10, 300),
        ("full", 80, 20, 1_000),
        ("tied", 64, 2, 100),
        ("full", 100, 2, 300),
        ("full", 200, 2, 300),
        ("full", 200, 2, 500),
        ("full", 200, 5, 900),
        ("full", 400, 2, 300),
        ("full", 400, 3, 700),
        ("full", 1_000, 2, 500),
        ("full", 1_000, 5, 900),
    )
    missing: tuple[tuple[int, int], ...] = ((100, 1_500), (200, 1_500), (400, 1_500))
    shares: tuple[float, ...] = (0.02, 0.2)
    few_rows: tuple[int, int, tuple[int, ...]] = (500, 1_001, (2, 3, 4))

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n, annealed_rounds=n)


FULL = Size(7, (2, 12))
QUICK = Size(
    rounds=1,
    passes=(2, 12),
    quick=True,
    n_rows=500,
    shapes=(("full", 3, 2), ("diag", 3, 2)),
    small=(("full", 3, 2, 30),),
    passes_of_small=(2, 12),
    spaces=((3, 2), (2, 3)),
    annealed_rounds=1,
    wide=(("full", 12, 2, 100),),
    missing=((12, 100),),
    few_rows=(20, 24, (2,)),
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


def learned_fit(X: np.ndarray, k: int, covariance_type: str) -> Fit:
    """Fits with the default priors, which are learned."""
    made = AnnealedBayesianGaussianMixture(
        k, covariance_type=covariance_type, tol=0, random_state=0
    )
    return lambda n: of_passes(made, "none", n).fit(X)


def maximum_likelihood_fit(X: np.ndarray, k: int, covariance_type: str) -> Fit:
    settings = {"init_params": "random_from_data", "tol": 0, "random_state": 0}
    return lambda n: GaussianMixture(
        k, covariance_type=covariance_type, max_iter=n, **settings
    ).fit(X)


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


def measure_small(page: Page, size: Size) -> None:
    page.section(
        "Small tables",
        "A pass with the default priors, which are learned, against one of scikit-learn's "
        "`GaussianMixture`, which has no priors, and one of its `BayesianGaussianMixture`, whose "
        'priors stay. float64, one thread, `annealing="none"`, processor time. Passes over so few '
        "rows take the time of the interpreter. Ratios: our time over that of each, median and "
        f"quartiles of {size.rounds} rounds.",
    )
    rows = []
    for covariance, d, k, n in size.small:
        progress(f"small tables, {covariance}, D = {d}, N = {n}")
        X = blobs(n, d)
        fits = {
            "maximum likelihood": maximum_likelihood_fit(X, k, covariance),
            "given priors": peer_fit(X, k, covariance_type=covariance),
            "ours": learned_fit(X, k, covariance),
        }
        times = pass_times(fits, {}, replace(size, passes=size.passes_of_small))
        ratios = [spread(times["ours"] / times[name]) for name in list(fits)[:2]]
        cells = [f"{1e3 * np.median(times[name]):.2f}" for name in fits]
        rows.append([covariance, str(d), str(k), f"{n:,}", *cells, *ratios])
    page.table(
        [
            *("covariance", "D", "K", "N", "`GaussianMixture`, ms"),
            *("`BayesianGaussianMixture`, ms", "ours, ms", "over the first", "over the second"),
        ],
        rows,
    )


def measure_wide(page: Page, size: Size) -> None:
    page.section(
        "Many columns",
        "A pass with the default priors, which are learned, against one of scikit-learn's "
        '`GaussianMixture`, which has none. float64, one thread, `annealing="none"`, processor '
        f"time. Ratio: our time over scikit-learn's, median and quartiles of {size.rounds} rounds. "
        "Rows here have one component each, as is usual with many columns; only these rows count "
        "in the second moments of a component. The next section has rows that two components "
        "share, whole and with missing cells. With few rows for each component, a pass is "
        "Cholesky factors and inverses of D³ operations, of which learning the priors takes about "
        "half, and about a millisecond of the interpreter. Where no component has more than 0.6 "
        "rows for each column, n² D operations take their place, with the n rows of a component. "
        "Once the shares of rows do not change any more, statistics and factors of the last pass "
        "are kept. A pass over up to 1,024 rows then computes no densities either, as long as the "
        "change of the priors is too small to move a row, and is learning the priors alone.",
    )
    rows = []
    for covariance, d, k, n in size.wide:
        progress(f"many columns, {covariance}, D = {d}, N = {n}")
        X = blobs(n, d)
        fits = {"peer": maximum_likelihood_fit, "ours": learned_fit}
        times = pass_times({name: fit(X, k, covariance) for name, fit in fits.items()}, {}, size)
        cells = [milliseconds(times[name]) for name in fits]
        rows.append(
            [covariance, str(d), str(k), f"{n:,}", *cells, spread(times["ours"] / times["peer"])]
        )
    page.table(["covariance", "D", "K", "N", "scikit-learn, ms", "ours, ms", "ratio"], rows)


def measure_missing(page: Page, size: Size) -> None:
    page.section(
        "Many columns with missing cells",
        "A pass over the rows of five factors and noise, of which a share of the cells is missing "
        'at random. Default priors, K = 2, full covariances, float64, one thread, `annealing="none"'
        "`, processor time. The rows without missing cells are given to scikit-learn's "
        "`GaussianMixture`, which refuses the others, and to our class as well. Ratio: our time "
        "with missing cells over either, median and quartiles of "
        f"{size.rounds} rounds.",
    )
    rows = []
    for d, n in size.missing:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, 5)) @ rng.standard_normal((5, d))
        X += rng.standard_normal((n, d))
        for share in size.shares:
            progress(f"missing cells, D = {d}, {share:.0%}")
            Y = np.where(rng.random(X.shape) < share, np.nan, X)
            fits = {
                "peer": maximum_likelihood_fit(X, 2, "full"),
                "whole": learned_fit(X, 2, "full"),
                "missing": learned_fit(Y, 2, "full"),
            }
            times = pass_times(fits, {}, size)
            cells = [milliseconds(times[name]) for name in fits]
            ratios = [spread(times["missing"] / times[name]) for name in ("peer", "whole")]
            rows.append([str(d), f"{n:,}", f"{share:.0%}", *cells, *ratios])
    page.table(
        [
            *("D", "N", "missing", "scikit-learn, whole rows, ms", "ours, whole rows, ms"),
            *("ours, ms", "over scikit-learn's", "over ours of whole rows"),
        ],
        rows,
    )


def measure_few_rows(page: Page, size: Size) -> None:
    n, d, counts = size.few_rows
    page.section(
        "More columns than rows",
        f"Whole fits to {n} × {d:,} numbers, which are two clusters whose centers differ in each "
        "column by a third of the noise or so. Full covariances, float64, one thread, processor "
        "time of one fit each. *Held out*: log density of as many other rows, in nats per row. "
        "These rows have directions that no fitted row has. The variance there is about "
        "`reg_covar` in scikit-learn's classes, and comes from a learned diagonal in ours.",
    )
    rng = np.random.default_rng(0)
    centers = 0.35 * rng.standard_normal((2, d))
    X = centers[rng.integers(2, size=2 * n)] + rng.standard_normal((2 * n, d))
    AnnealedBayesianGaussianMixture(2, max_iter=2, random_state=0).fit(X[:, :3])  # loads kernels
    rows = []
    for k in counts:
        makers: dict[str, Callable[[], Any]] = {
            "default": lambda k=k: AnnealedBayesianGaussianMixture(k, random_state=0),
            '`annealing="none"`': lambda k=k: AnnealedBayesianGaussianMixture(
                k, annealing="none", random_state=0
            ),
            "`BayesianGaussianMixture`": lambda k=k: BayesianGaussianMixture(
                n_components=k, random_state=0
            ),
            "`GaussianMixture`, `reg_covar=1e-6`": lambda k=k: GaussianMixture(k, random_state=0),
            "`GaussianMixture`, `reg_covar=0.1`": lambda k=k: GaussianMixture(
                k, reg_covar=0.1, random_state=0
            ),
        }
        for name, make in makers.items():
            progress(f"few rows, K = {k}, {name}")
            made = make()
            seconds = processor_seconds(lambda made=made: made.fit(X[:n]))
            passes = getattr(made, "n_passes_", made.n_iter_)
            used = len(np.unique(made.predict(X[:n])))
            row = [str(k), name, f"{seconds:.1f}", str(passes), str(used)]
            rows.append([*row, f"{made.score(X[n:]):,.0f}"])
    page.table(["K", "fit", "time, s", "passes", "components of rows", "held out"], rows)


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
    sections={
        "passes": measure_passes,
        "small": measure_small,
        "wide": measure_wide,
        "missing": measure_missing,
        "few_rows": measure_few_rows,
        "methods": measure_methods,
    },
    full=FULL,
    quick=QUICK,
)
main = SPEED.main

if __name__ == "__main__":
    main()
