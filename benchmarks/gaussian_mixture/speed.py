"""Speed of the Gaussian mixture against scikit-learn's, and what each annealing method costs.

All comparisons are interleaved in this process, one thread each unless said otherwise, and given
as medians of the ratios of neighbouring runs.

    python -m benchmarks.gaussian_mixture.speed            # everything, some ten minutes
    python -m benchmarks.gaussian_mixture.speed passes methods
    python -m benchmarks.gaussian_mixture.speed --write    # also into doc/results/speed.md
"""

from __future__ import annotations

import argparse
import platform
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

import sklearn_anneal
from benchmarks import _data
from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import (
    DeterministicAnnealing,
    LocalVariationalTempering,
    ProximityVI,
    StochasticAnnealing,
    StructuredVI,
    SVIPlus,
    VariationalTempering,
)

OUTPUT = Path(__file__).resolve().parents[2] / "doc" / "results" / "speed.md"
FEW, MANY = 2, 12


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def per_pass(make: Callable[[int], object], X: np.ndarray) -> float:
    """Seconds per pass: the difference of a long and a short fit, starts not counted."""
    short = seconds(lambda: make(FEW).fit(X))
    return (seconds(lambda: make(MANY).fit(X)) - short) / (MANY - FEW)


def ratios(
    first: Callable[[], float], second: Callable[[], float], rounds: int
) -> tuple[float, float, list[float]]:
    """Medians of two times, and the ratios first/second of neighbouring runs."""
    pairs = []
    for i in range(rounds):
        a, b = (first(), second()) if i % 2 == 0 else (second(), first())[::-1]
        pairs.append((a, b))
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    return a, b, [x / y for x, y in pairs]


def quartiles(values: list[float]) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def ours(annealing: object, k: int, **kwargs: object) -> Callable[[int], object]:
    """An estimator that makes exactly n passes."""

    def make(n: int) -> AnnealedBayesianGaussianMixture:
        method, finish = annealing, n
        if annealing != "none":
            method, finish = annealing(n), 0
        settings = {"n_components": k, "tol": 0, "init_params": "random", "random_state": 0}
        return AnnealedBayesianGaussianMixture(
            annealing=method, max_iter=finish, **{**settings, **kwargs}
        )

    return make


def peer(k: int, **kwargs: object) -> Callable[[int], object]:
    def make(n: int) -> BayesianGaussianMixture:
        return BayesianGaussianMixture(
            n_components=k, max_iter=n, tol=0, init_params="random", random_state=0, **kwargs
        )

    return make


def blobs(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = 2.0 * rng.standard_normal((8, d))
    return centers[rng.integers(8, size=n)] + rng.standard_normal((n, d))


class PeakMemory:
    """The largest resident anonymous memory while a block runs, sampled, in MB above its start."""

    def __enter__(self) -> PeakMemory:
        self.start = self.peak = _anonymous_megabytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.peak = max(self.peak, _anonymous_megabytes())

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def megabytes(self) -> float:
        return self.peak - self.start


def _anonymous_megabytes() -> float:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    import psutil

    return psutil.Process().memory_info().rss / 2**20


def bench_passes(rounds: int) -> list[str]:
    """Time per pass against scikit-learn, and peak memory beyond the data."""
    rows = [
        "## Time per pass",
        "",
        'float64, one thread, `annealing="none"`, N = 50,000. Ratio: scikit-learn\'s time over '
        "ours, median and quartiles.",
        "",
        "| covariance | D | K | scikit-learn, ms | ours, ms | ratio | peak memory, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    cases = [("full", 30, 20), ("full", 5, 10), ("full", 64, 20), ("diag", 30, 20)]
    cases += [("diag", 5, 10), ("tied", 30, 20), ("spherical", 30, 20)]
    for covariance, d, k in cases:
        X = blobs(50_000, d)
        theirs = peer(k, covariance_type=covariance)
        mine = ours("none", k, covariance_type=covariance)
        mine(1).fit(X)
        with PeakMemory() as memory:
            mine(2).fit(X)
        a, b, r = ratios(lambda: per_pass(theirs, X), lambda: per_pass(mine, X), rounds)
        rows.append(
            f"| {covariance} | {d} | {k} | {1e3 * a:.1f} | {1e3 * b:.1f} | {quartiles(r)} | "
            f"{memory.megabytes:.0f} |"
        )
    return rows


METHODS = {
    "deterministic": lambda n: DeterministicAnnealing(initial_temperature=3, n_passes=n),
    "stochastic": lambda n: StochasticAnnealing(n_passes=n, start="init_params"),
    "svi_plus": lambda n: SVIPlus(n_passes=n),
    "tempering": lambda n: VariationalTempering(n_passes=n),
    "proximity": lambda n: ProximityVI(n_passes=n),
    "local_tempering": lambda n: LocalVariationalTempering(n_passes=n),
    "structured": lambda n: StructuredVI(n_passes=n, evaluate_every=1000),
}


def bench_methods(rounds: int) -> list[str]:
    """Time per pass of every annealing method against none."""
    rows = [
        "## What annealing costs per pass",
        "",
        'Ratio of the time per pass to that of `annealing="none"`, N = 50,000, full '
        f"covariances, batch mode, one thread: median and quartiles of {rounds} ratios.",
        "",
        "| method | D = 30, K = 20 | D = 5, K = 10 |",
        "|---|---|---|",
    ]
    cells = {name: [] for name in METHODS}
    for d, k in [(30, 20), (5, 10)]:
        X = blobs(50_000, d)
        plain = ours("none", k)
        plain(1).fit(X)
        for name, method in METHODS.items():
            annealed = ours(method, k)
            annealed(1).fit(X)
            _, _, r = ratios(lambda: per_pass(annealed, X), lambda: per_pass(plain, X), rounds)
            cells[name].append(quartiles(r))
    return rows + [f"| {name} | {' | '.join(cell)} |" for name, cell in cells.items()]


def bench_restarts_replaced(seeds: int) -> list[str]:
    """One stochastic fit against ten restarts of scikit-learn's class, on MNIST digits."""
    rows = [
        "## One annealed fit against ten restarts",
        "",
        "MNIST digits of one class, PCA 30, 1,000 rows, K = 12, Dirichlet weights: one fit with "
        '`annealing="stochastic"` against scikit-learn\'s `n_init=10` at the same tolerance per '
        f"row and at most 1,000 passes; medians over {seeds} seeds, fits interleaved. The bound "
        "is complete for both.",
        "",
        "| digit | bound, n_init=10 | bound, stochastic | time, n_init=10, s | "
        "time, stochastic, s | time ratio |",
        "|---|---|---|---|---|---|",
    ]
    won = 0
    digits = range(6)
    for digit in digits:
        X, _ = _data.mnist_of(digit, 1000)
        shared = {
            "n_components": 12,
            "max_iter": 1000,
            "weight_concentration_prior_type": "dirichlet_distribution",
        }
        pairs = []
        for seed in range(seeds):
            theirs = BayesianGaussianMixture(
                **shared, tol=1e-6 * len(X), n_init=10, random_state=seed
            )
            mine = AnnealedBayesianGaussianMixture(
                **shared, tol=1e-6, annealing="stochastic", random_state=seed
            )
            runs = [lambda m=theirs: seconds(lambda: m.fit(X))]
            runs.append(lambda m=mine: seconds(lambda: m.fit(X)))
            order = (0, 1) if seed % 2 == 0 else (1, 0)
            spent = {i: runs[i]() for i in order}
            pairs.append((complete_bound(theirs, X), mine.lower_bound_, spent[0], spent[1]))
        a, b, s, t = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(p[3] / p[2] for p in pairs)
        won += b > a and ratio < 1
        rows.append(f"| {digit} | {a:.0f} | {b:.0f} | {s:.2f} | {t:.2f} | {ratio:.2f} |")
    rows += ["", f"Less time and a better bound on {won} of {len(digits)} digits."]
    return rows


def complete_bound(fitted: BayesianGaussianMixture, X: np.ndarray) -> float:
    """The complete lower bound of scikit-learn's fitted parameters, in nats."""
    names = ("n_components", "covariance_type", "reg_covar", "weight_concentration_prior_type")
    settings = {name: getattr(fitted, name) for name in names}
    model = AnnealedBayesianGaussianMixture(annealing="none", max_iter=0, **settings).fit(X)
    ctx = model._inference.ctx
    joint = {
        "mean": fitted.means_ - ctx.summary.center,
        "mean_precision": fitted.mean_precision_,
        "inverse_scale": fitted.covariances_ * fitted.degrees_of_freedom_[:, None, None],
        "dof": fitted.degrees_of_freedom_,
    }
    weights = {"weight_concentration": fitted.weight_concentration_}
    ctx.q = weights | ctx.model.components.factors[0].family.from_standard(**joint)
    from sklearn_anneal.inference.engine import lower_bound
    from sklearn_anneal.inference.parallel import SEQUENTIAL
    from sklearn_anneal.inference.units import Rows

    return lower_bound(ctx, Rows(X, None, ctx.summary.center), SEQUENTIAL)


def bench_jobs(rounds: int) -> list[str]:
    """Restarts in two threads against one."""
    rows = [
        "## Two jobs",
        "",
        "`n_init=8`: time with `n_jobs=1` over time with `n_jobs=2`; the fits are the same bit "
        "for bit.",
        "",
        "| N | D | K | n_jobs=1, s | n_jobs=2, s | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for n, d, k, passes in [
        (50_000, 30, 20, 20),
        (50_000, 5, 10, 30),
        (2_000, 15, 8, 50),
        (300, 5, 4, 50),
    ]:
        X = blobs(n, d)

        def fit(jobs: int, X: np.ndarray = X, k: int = k, passes: int = passes) -> float:
            model = AnnealedBayesianGaussianMixture(
                n_components=k,
                annealing="none",
                max_iter=passes,
                tol=0,
                n_init=8,
                init_params="random",
                random_state=0,
                n_jobs=jobs,
            )
            return seconds(lambda: model.fit(X))

        fit(2)
        a, b, r = ratios(lambda f=fit: f(1), lambda f=fit: f(2), rounds)
        rows.append(f"| {n} | {d} | {k} | {a:.2f} | {b:.2f} | {quartiles(r)} |")
    return rows


def bench_where(rounds: int) -> list[str]:
    """Where the time of a pass goes, against the machine's rate of matrix products."""
    from sklearn_anneal.models._gaussian import ROWS_PER_BLOCK as BLOCK

    rows = [
        "## Where the time goes",
        "",
        "Full covariances, N = 50,000, one thread. *Products* are the two matrix products per "
        f"block of {BLOCK} rows alone, *rate* what they reach; the machine's rate is that of a "
        "product of two 1,500 × 1,500 matrices.",
        "",
        "| D | K | pass, ms | products, ms | share | rate, GFLOP/s | machine, GFLOP/s |",
        "|---|---|---|---|---|---|---|",
    ]
    square = np.random.default_rng(0).standard_normal((1500, 1500))
    for d, k in [(30, 20), (5, 10), (64, 20)]:
        X = blobs(50_000, d)
        p = d * (d + 1) // 2 + d + 1
        rng = np.random.default_rng(0)
        coefficients = rng.standard_normal((k, p))
        features = rng.standard_normal((p, BLOCK))
        joint = np.empty((k, BLOCK))

        def products() -> None:
            for _ in range(len(X) // BLOCK):
                np.dot(coefficients, features, out=joint)
                np.dot(joint, features.T)

        mine = ours("none", k)
        mine(1).fit(X)
        measured = [
            (per_pass(mine, X), seconds(products), seconds(lambda: square @ square))
            for _ in range(rounds)
        ]
        whole, part, machine = (statistics.median(c) for c in zip(*measured, strict=True))
        rate = 4e-9 * len(X) * p * k / part
        peak = 2e-9 * 1500**3 / machine
        rows.append(
            f"| {d} | {k} | {1e3 * whole:.1f} | {1e3 * part:.1f} | {part / whole:.0%} | "
            f"{rate:.0f} | {peak:.0f} |"
        )
    return rows


BENCHMARKS: dict[str, tuple[Callable[[int], list[str]], int, bool]] = {
    "passes": (bench_passes, 7, True),
    "methods": (bench_methods, 15, True),
    "restarts": (bench_restarts_replaced, 5, True),
    "jobs": (bench_jobs, 5, False),
    "where": (bench_where, 5, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "names",
        nargs="*",
        default=list(BENCHMARKS),
        metavar="NAME",
        help=f"which of {', '.join(BENCHMARKS)}",
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds (or seeds) of each")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT.name}")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    page = [
        "# Speed of the Gaussian mixture",
        "",
        f"Python {platform.python_version()}, scikit-learn {sklearn.__version__}, numpy "
        f"{np.__version__}, numba {numba.__version__}, sklearn_anneal "
        f"{sklearn_anneal.__version__}; {platform.machine()}. Written by "
        "`python -m benchmarks.gaussian_mixture.speed --write`.",
    ]
    for name in arguments.names:
        bench, rounds, one_thread = BENCHMARKS[name]
        with threadpool_limits(1 if one_thread else None):
            section = bench(arguments.rounds or rounds)
        print("\n".join(["", *section]), flush=True)
        page += ["", *section]
    if arguments.write:
        OUTPUT.write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
