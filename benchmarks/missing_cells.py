"""Missing cells: errors of imputed values, their standard deviations, and the time of a pass.

Cells of real tables are deleted at random, and imputed by scikit-learn's imputers and by mixtures
of ours at fixed settings. Errors are those of deleted cells, in units of the column's standard
deviation. Of the numbers of neighbours, the page has the best one in hindsight.
``--write`` writes the page ``doc/results/missing_cells.md``; without it the page is printed.
``--quick`` is a small run that shows that everything works and whose figures mean nothing.

The files ``pima.npz`` and ``geyser.npz`` have the rows ``X`` of a table, ``basic_motions.npz`` has
frames ``X``, of which the first 3,000 are taken as rows.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from sklearn_anneal import AnnealedBayesianGaussianMixture

from .common.data import load
from .common.report import Page, machine, write_or_print

PAGE = Path(__file__).resolve().parents[1] / "doc" / "results" / "missing_cells.md"
SHARES = (0.1, 0.2, 0.4)
SEEDS = range(3)
NEIGHBORS = (5, 10, 20)
COMPONENTS = (1, 5, 10)


def standardised(X: np.ndarray) -> np.ndarray:
    """Return the columns that vary, with mean 0 and variance 1."""
    X = np.asarray(X, dtype=np.float64)
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


TABLES: dict[str, Callable[[], np.ndarray]] = {
    "iris": lambda: datasets.load_iris().data,
    "wine": lambda: datasets.load_wine().data,
    "breast cancer": lambda: datasets.load_breast_cancer().data,
    "diabetes": lambda: datasets.load_diabetes().data,
    "Pima": lambda: load("pima.npz")["X"],
    "geyser": lambda: load("geyser.npz")["X"],
    "motions": lambda: load("basic_motions.npz")["X"][:3000],
}


def deleted(X: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a copy in which each cell is missing with the given probability."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(X.shape) < share, np.nan, X)


def mixture(n_components: int, quick: bool = False) -> AnnealedBayesianGaussianMixture:
    few = {"max_iter": 5, "effort": 0} if quick else {}
    return AnnealedBayesianGaussianMixture(n_components=n_components, random_state=0, **few)


def imputers(quick: bool) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The methods by their names in the table; each maps a table to the completed one."""
    methods = {"column means": SimpleImputer().fit_transform}
    for n in NEIGHBORS:
        methods[f"neighbours {n}"] = KNNImputer(n_neighbors=n).fit_transform
    iterative = IterativeImputer(max_iter=2 if quick else 50, random_state=0)
    methods["regressions"] = iterative.fit_transform
    for k in COMPONENTS:
        methods[f"mixture {k}"] = lambda X, k=k: mixture(k, quick).fit(X).impute(X)
    return methods


def error(found: np.ndarray, truth: np.ndarray, missing: np.ndarray) -> float:
    """Return the root mean squared error of the deleted cells."""
    return float(np.sqrt(np.mean((found - truth)[missing] ** 2)))


def section_of_errors(page: Page, tables: dict[str, np.ndarray], quick: bool) -> None:
    page.section(
        "Errors of imputed cells",
        "Root mean squared error of deleted cells in units of the column's standard deviation, "
        f"mean over {len(SEEDS)} draws of the deleted cells (one in a quick run). `KNNImputer`: "
        f"the best of {NEIGHBORS} neighbours in hindsight, for each row of the table. "
        "`IterativeImputer`: its default, Bayesian ridge regression, with up to 50 rounds. "
        "Ours: `AnnealedBayesianGaussianMixture(n_components=K, random_state=0)`, other settings "
        "at their defaults, fitted to the table with missing cells.",
    )
    rows, wins = [], 0
    shares = SHARES[1:2] if quick else SHARES
    for name, X in tables.items():
        for share in shares:
            found: dict[str, list[float]] = {}
            for seed in SEEDS if not quick else (0,):
                Y = deleted(X, share, seed)
                for method, impute in imputers(quick).items():
                    each = error(impute(Y), X, np.isnan(Y))
                    found.setdefault(method, []).append(each)
            means = {method: float(np.mean(values)) for method, values in found.items()}
            neighbours = min(means[f"neighbours {n}"] for n in NEIGHBORS)
            peers = means["column means"], neighbours, means["regressions"]
            ours = [means[f"mixture {k}"] for k in COMPONENTS]
            wins += means["mixture 5"] < min(peers)
            size = f"{len(X):,} × {X.shape[1]}"
            figures = [f"{value:.3f}" for value in (*peers, *ours)]
            rows.append([name, size, f"{100 * share:.0f} %", *figures])
            print(*rows[-1], file=sys.stderr, flush=True)
    header = ["data", "rows × columns", "deleted", "column means", "KNNImputer", "IterativeImputer"]
    page.table([*header, *(f"ours, K = {k}" for k in COMPONENTS)], rows)
    found = f"in {wins} of {len(rows)} rows."
    page.lines += [f"With K = 5 the error is below those of all three imputers {found}", ""]


def section_of_spreads(page: Page, tables: dict[str, np.ndarray], quick: bool) -> None:
    page.section(
        "Standard deviations of imputed cells",
        "Share of deleted cells (20 %) whose true value is within one and within two standard "
        "deviations of `impute(X, return_std=True)` around the mean, K = 5. A Gaussian would have "
        "68 % and 95 %.",
    )
    rows = []
    for name, X in tables.items():
        one, two = [], []
        for seed in SEEDS if not quick else (0,):
            Y = deleted(X, 0.2, seed)
            means, spreads = mixture(5, quick).fit(Y).impute(Y, return_std=True)
            ratio = (np.abs(means - X) / np.where(spreads > 0, spreads, 1.0))[np.isnan(Y)]
            one.append(np.mean(ratio < 1))
            two.append(np.mean(ratio < 2))
        rows.append([name, f"{100 * np.mean(one):.0f} %", f"{100 * np.mean(two):.0f} %"])
    page.table(["data", "within one", "within two"], rows)


def seconds_per_pass(X: np.ndarray, covariance_type: str, passes: int, repeats: int) -> float:
    """Return the processor time of a pass, from the difference of a long and a short fit."""

    def fit(n: int) -> float:
        est = AnnealedBayesianGaussianMixture(
            n_components=10,
            covariance_type=covariance_type,
            annealing="none",
            init_params="random_from_data",
            max_iter=n,
            tol=0.0,
            random_state=0,
        )
        # The time of the processor, because other work on the machine does not add to it.
        start = time.process_time()
        est.fit(X)
        return time.process_time() - start

    short = min(fit(2) for _ in range(repeats))
    return (min(fit(2 + passes) for _ in range(repeats)) - short) / passes


def section_of_passes(page: Page, quick: bool) -> None:
    n, passes, repeats = (500, 2, 1) if quick else (100_000, 10, 5)
    page.section(
        "Time of a pass",
        f"Milliseconds of processor time per pass over {n:,} rows of Gaussian noise, 10 "
        "components. Few patterns: half of the rows lack the first fifth of the columns, and a "
        "quarter the next fifth. Rows without missing cells take the same kernels in all tables.",
    )
    rng = np.random.default_rng(0)
    rows = []
    for covariance_type, d in (("full", 10), ("tied", 10), ("diag", 20), ("spherical", 20)):
        X = rng.normal(size=(n, d))
        few = X.copy()
        few[: n // 2, : d // 5] = np.nan
        few[n // 2 : 3 * n // 4, d // 5 : 2 * d // 5] = np.nan
        tables = [X, deleted(X, 0.01, 0), deleted(X, 0.2, 0), few]
        times = [1e3 * seconds_per_pass(Y, covariance_type, passes, repeats) for Y in tables]
        rows.append([covariance_type, str(d), *(f"{t:.0f}" for t in times)])
    page.table(["covariance", "columns", "none missing", "1 %", "20 %", "few patterns"], rows)


def tables_at_hand(quick: bool) -> dict[str, np.ndarray]:
    """The tables whose files are there, standardised."""
    found = {}
    for name, read in list(TABLES.items())[: 2 if quick else None]:
        try:
            found[name] = standardised(read())
        except FileNotFoundError as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
    return found


def written(quick: bool) -> str:
    page = Page()
    page.lines += ["# Missing cells", ""]
    page.lines += [f"Written by `python -m benchmarks.missing_cells --write`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    tables = tables_at_hand(quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        section_of_errors(page, tables, quick)
        section_of_spreads(page, tables, quick)
        section_of_passes(page, quick)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
