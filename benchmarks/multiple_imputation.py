"""Multiple imputation: how often intervals of a regression cover the truth after imputation.

Tables of 150 rows are drawn, in which ``y`` is a linear function of ``x`` and ``z`` with noise. Some
cells of ``z`` are deleted, the more often the larger ``x`` and ``y`` are. The cells are imputed, the
regression of ``y`` on both is fitted to every imputed table, and the results are pooled by Rubin's
rules. The page has how often the intervals of the three coefficients, which should cover the truth
in 90 % of all tables, do so.

``--write`` writes the page ``doc/results/multiple_imputation.md``; without it the page is printed.
``--quick`` is a small run that shows that everything works and whose figures mean nothing.
``miceforest`` is measured where it is installed, on fewer tables, because it takes longer.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from sklearn_anneal import AnnealedBayesianGaussianMixture

from .common.report import Page, machine, write_or_print

PAGE = Path(__file__).resolve().parents[1] / "doc" / "results" / "multiple_imputation.md"
N_ROWS, N_DRAWS, LEVEL = 150, 20, 0.9
COEFFICIENTS = np.array([1.0, 1.0, -1.0])
Tables = list[np.ndarray]
Imputer = Callable[[np.ndarray, int], Tables]


class Case(NamedTuple):
    """How x and z of the rows are drawn, and how likely the cells of z are missing."""

    title: str
    regressors: Callable[[np.random.Generator, int], np.ndarray]
    missing: float


def one_cloud(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two normal variables with the correlation 0.6."""
    return rng.multivariate_normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]], size=n)


def groups(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three groups, along which z first rises with x and then falls."""
    k = rng.integers(3, size=n)
    centers = np.array([[-2.0, -1.0], [0.0, 1.5], [2.0, -1.0]])[k]
    return centers + 0.5 * rng.standard_normal((n, 2))


CASES = (
    Case("one normal distribution, 30 % missing", one_cloud, 0.3),
    Case("one normal distribution, 50 % missing", one_cloud, 0.5),
    Case("three groups, 30 % missing", groups, 0.3),
    Case("three groups, 50 % missing", groups, 0.5),
)


def drawn(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table with the columns x, z and y, and the same table with missing cells of z."""
    rng = np.random.default_rng(seed)
    xz = case.regressors(rng, N_ROWS)
    y = COEFFICIENTS[0] + xz @ COEFFICIENTS[1:] + rng.standard_normal(N_ROWS)
    table = np.column_stack([xz, y])
    score = xz[:, 0] / xz[:, 0].std() + y / y.std()
    odds = case.missing / (1.0 - case.missing) * np.exp(score - score.mean())
    gapped = table.copy()
    gapped[rng.random(N_ROWS) < odds / (1.0 + odds), 1] = np.nan
    return table, gapped


# Rubin's rules


def regression(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of y on 1, x and z by least squares, and their variances."""
    design = np.column_stack([np.ones(len(table)), table[:, :-1]])
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ (design.T @ table[:, -1])
    residuals = table[:, -1] - design @ found
    noise = residuals @ residuals / (len(table) - len(found))
    return found, noise * np.diagonal(inverse)


def pooled(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Return the pooled coefficients, and the half widths of their intervals.

    The variance is W + (1 + 1/m) B, of the mean W of the variances within tables and the variance B
    between them. The degrees of freedom are those of Barnard and Rubin (1999) for small samples.
    """
    each = [regression(table) for table in tables]
    found = np.mean([coefficients for coefficients, _ in each], axis=0)
    within = np.mean([variances for _, variances in each], axis=0)
    m, complete = len(tables), len(tables[0]) - len(found)
    dof, total = np.full(len(found), float(complete)), within
    if m > 1:
        between = (1.0 + 1.0 / m) * np.var([b for b, _ in each], axis=0, ddof=1)
        total = within + between
        share = np.maximum(between / total, 1e-12)
        observed = (complete + 1.0) / (complete + 3.0) * complete * (1.0 - share)
        dof = 1.0 / (share**2 / (m - 1.0) + 1.0 / observed)
    return found, student_t.ppf(0.5 + 0.5 * LEVEL, dof) * np.sqrt(total)


# Methods


def mixture(seed: int) -> AnnealedBayesianGaussianMixture:
    return AnnealedBayesianGaussianMixture(3, tol=1e-4, effort=0, random_state=seed)


def ours_by_means(gapped: np.ndarray, seed: int) -> Tables:
    return [mixture(seed).fit(gapped).impute(gapped)]


def ours_by_one_draw(gapped: np.ndarray, seed: int) -> Tables:
    return list(mixture(seed).fit(gapped).impute(gapped, n_draws=1))


def ours(gapped: np.ndarray, seed: int) -> Tables:
    return list(mixture(seed).fit(gapped).impute(gapped, n_draws=N_DRAWS))


def iterative(gapped: np.ndarray, seed: int) -> Tables:
    return [
        IterativeImputer(
            sample_posterior=True, skip_complete=True, random_state=1000 * seed + i
        ).fit_transform(gapped)
        for i in range(N_DRAWS)
    ]


def forests(gapped: np.ndarray, seed: int) -> Tables:
    import miceforest
    import pandas as pd

    frame = pd.DataFrame(gapped, columns=["x", "z", "y"])
    kernel = miceforest.ImputationKernel(frame, num_datasets=N_DRAWS, random_state=seed)
    kernel.mice(iterations=5, num_threads=1)
    return [kernel.complete_data(dataset=i).to_numpy() for i in range(N_DRAWS)]


def methods() -> dict[str, tuple[Imputer, int]]:
    """The methods by their names, each with the share of the tables that it gets."""
    found: dict[str, tuple[Imputer, int]] = {
        "complete rows only": (lambda gapped, _: [gapped[~np.isnan(gapped).any(axis=1)]], 1),
        "ours, means: `impute(X)`": (ours_by_means, 1),
        "ours, one draw: `n_draws=1`": (ours_by_one_draw, 1),
        f"ours: `impute(X, n_draws={N_DRAWS})`": (ours, 1),
        f"`IterativeImputer(sample_posterior=True)`, {N_DRAWS} seeds": (iterative, 1),
    }
    if importlib.util.find_spec("miceforest"):
        found[f"miceforest, {N_DRAWS} data sets, 5 iterations"] = (forests, 10)
    return found


class Outcome(NamedTuple):
    """Results of a method: its tables, covered coefficients, half widths, errors and seconds."""

    n_tables: int
    covered: np.ndarray
    widths: np.ndarray
    errors: np.ndarray
    seconds: float


def measured(case: Case, impute: Imputer | None, n_tables: int) -> Outcome:
    """Return what intervals of ``n_tables`` tables are worth; None leaves no cell missing."""
    covered, widths, errors, seconds = [], [], [], 0.0
    for seed in range(n_tables):
        table, gapped = drawn(case, seed)
        begin = time.process_time()
        tables = [table] if impute is None else impute(gapped, seed)
        seconds += time.process_time() - begin
        found, half = pooled(tables)
        covered.append(np.abs(found - COEFFICIENTS) <= half)
        widths.append(half)
        errors.append(found - COEFFICIENTS)
    means = (np.mean(values, axis=0) for values in (covered, widths, errors))
    return Outcome(n_tables, *means, seconds / n_tables)


def section(page: Page, case: Case, n_tables: int) -> None:
    page.section(case.title, "")
    rows = []
    every: dict[str, tuple[Imputer | None, int]] = {"nothing missing": (None, 1)}
    for name, (impute, fewer) in (every | methods()).items():
        found = measured(case, impute, max(n_tables // fewer, 2))
        covered = [f"{100 * share:.1f} %" for share in found.covered]
        numbers = f"{100 * found.covered.mean():.1f} %", f"{found.widths.mean():.3f}"
        bias = f"{np.abs(found.errors).max():.3f}"
        count, cost = f"{found.n_tables:,}", f"{1e3 * found.seconds:.0f}"
        rows.append([name, *covered, *numbers, bias, count, cost])
        print(case.title, *rows[-1], sep=" | ", file=sys.stderr, flush=True)
    header = ["method", "1", "x", "z", "all", "half width", "largest bias", "tables", "ms"]
    page.table(header, rows)


def written(quick: bool) -> str:
    n_tables = 2 if quick else 1000
    page = Page()
    page.lines += ["# Multiple imputation", ""]
    command = "python -m benchmarks.multiple_imputation --write"
    page.lines += [f"Written by `{command}`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    page.lines += [
        f"Tables of {N_ROWS} rows with y = 1 + x − z + ε, of which cells of z are deleted, the more "
        "often the larger x and y are. How often do 90 % intervals of the coefficients of y on 1, x "
        f"and z cover the truth? Several tables are pooled by Rubin's rules (m = {N_DRAWS}, degrees "
        "of freedom of Barnard and Rubin, 1999). With 1,000 tables, the standard error of a share of "
        "90 % is 0.95 %. Largest bias: that of the three coefficients. Time: milliseconds of the "
        "processor per table. Ours: `AnnealedBayesianGaussianMixture(5)`, other settings at their "
        "defaults, fitted to the table with missing cells.",
        "",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for case in CASES[-1:] if quick else CASES:
            section(page, case, n_tables)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
