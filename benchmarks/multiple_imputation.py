"""Multiple imputation: how often intervals of a regression cover the truth after imputation.

Tables of 150 rows are drawn, in which ``y`` is a linear function of ``x`` and ``z`` with noise.
Some cells of ``z`` are deleted, the more often the larger ``x`` and ``y`` are, or, in tables from a
factor model with more columns, cells of all columns but ``y`` at random. The cells are imputed, the
regression of ``y`` on both is fitted to every imputed table, and the results are pooled by Rubin's
rules. The page has how often the intervals of the three coefficients, which should cover the truth
in 90 % of all tables, do so.

``--write`` writes the page ``doc/results/multiple_imputation.md``; without it the page is printed.
``--quick`` is a small run that shows that everything works and whose figures mean nothing.
``--only "Sparse factors"`` measures that section alone, and leaves the others of the page as they
are.
``miceforest`` is measured where it is installed; its version 6.0.5 runs with LightGBM 4.5 and not
with 4.7. The other libraries take longer and get fewer tables, the first ones.
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

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedSpikeSlabFactorAnalysis

from .common.report import Page, kept, machine, write_or_print

PAGE = Path(__file__).resolve().parents[1] / "doc" / "results" / "multiple_imputation.md"
N_ROWS, N_DRAWS, LEVEL = 150, 20, 0.9
N_TABLES = 500
COEFFICIENTS = np.array([1.0, 1.0, -1.0])
Tables = list[np.ndarray]
# From a table with missing cells, the number of components of ours, and a seed, to the imputed
# tables of each method, by its name.
Imputer = Callable[[np.ndarray, int, int], dict[str, Tables]]


class Case(NamedTuple):
    """How x and z, and other columns, are drawn, what is missing, and the components of ours.

    ``missing`` is the share of cells of z that are deleted at the mean of x and y, or, with other
    columns, of all cells but those of y.
    """

    title: str
    regressors: Callable[[np.random.Generator, int], np.ndarray]
    missing: float
    n_components: int
    n_tables: int


def one_cloud(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two normal variables with the correlation 0.6."""
    return rng.multivariate_normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]], size=n)


def groups(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three groups, along which z first rises with x and then falls."""
    k = rng.integers(3, size=n)
    centers = np.array([[-2.0, -1.0], [0.0, 1.5], [2.0, -1.0]])[k]
    return centers + 0.5 * rng.standard_normal((n, 2))


def factors(rng: np.random.Generator, n: int) -> np.ndarray:
    """x, z and eight more columns: four factors that are on in half of the rows, and noise.

    x and z depend on two factors each, one of which is their own, that y sees through them alone.
    """
    u = rng.standard_normal((n, 4)) * (rng.random((n, 4)) < 0.5)
    xz = u[:, :2] + 0.7 * u[:, 2:] + 0.1 * rng.standard_normal((n, 2))
    others = np.repeat(u[:, :2], 4, axis=1) + 0.5 * rng.standard_normal((n, 8))
    return np.hstack([xz, others])


CASES = (
    Case("One normal distribution", one_cloud, 0.3, 1, N_TABLES),
    Case("Three groups", groups, 0.3, 3, N_TABLES),
    Case("Sparse factors", factors, 0.2, 6, 40),
)


def drawn(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table with the columns x, z, others and y, and the same table with missing cells."""
    rng = np.random.default_rng(seed)
    columns = case.regressors(rng, N_ROWS)
    xz = columns[:, :2]
    y = COEFFICIENTS[0] + xz @ COEFFICIENTS[1:] + rng.standard_normal(N_ROWS)
    table = np.column_stack([columns, y])
    if columns.shape[1] > 2:
        holes = rng.random(columns.shape) < case.missing
        return table, np.column_stack([np.where(holes, np.nan, columns), y])
    score = xz[:, 0] / xz[:, 0].std() + y / y.std()
    odds = case.missing / (1.0 - case.missing) * np.exp(score - score.mean())
    gapped = table.copy()
    gapped[rng.random(N_ROWS) < odds / (1.0 + odds), 1] = np.nan
    return table, gapped


# Rubin's rules


def regression(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of y on 1, x and z by least squares, and their variances."""
    design = np.column_stack([np.ones(len(table)), table[:, :2]])
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


def complete(table: np.ndarray, gapped: np.ndarray) -> dict[str, Tables]:
    """Return what no imputation can better, and what leaves rows out instead."""
    rows = ~np.isnan(gapped).any(axis=1)
    return {"nothing missing": [table], "complete rows only": [table[rows]]}


def ours(gapped: np.ndarray, n_components: int, seed: int) -> dict[str, Tables]:
    """Return the tables of one fit: means, a single draw, and several."""
    mixture = AnnealedBayesianGaussianMixture(
        n_components, tol=1e-4, effort=0, random_state=seed
    ).fit(gapped)
    tables = list(mixture.impute(gapped, n_draws=N_DRAWS))
    return {
        "ours, `impute(X)`": [mixture.impute(gapped)],
        "ours, `impute(X, n_draws=1)`": tables[:1],
        f"ours, `impute(X, n_draws={N_DRAWS})`": tables,
        f"ours, `impute(X, n_draws={N_DRAWS}, n_rounds=5)`": list(
            mixture.impute(gapped, n_draws=N_DRAWS, n_rounds=5)
        ),
    }


def ours_by_factors(gapped: np.ndarray, n_components: int, seed: int) -> dict[str, Tables]:
    """Return the tables of a factor analysis, and of a single Gaussian."""
    model = AnnealedSpikeSlabFactorAnalysis(
        n_components, annealing="none", loading_variance="auto", random_state=seed
    ).fit(gapped)
    gaussian = AnnealedBayesianGaussianMixture(1, tol=1e-4, effort=0, random_state=seed).fit(gapped)
    few, many = {"n_draws": N_DRAWS}, {"n_draws": N_DRAWS, "n_rounds": 5}
    return {
        "factors, `impute(X)`": [model.impute(gapped)],
        f"factors, `impute(X, n_draws={N_DRAWS})`": list(model.impute(gapped, **few)),
        f"factors, `impute(X, n_draws={N_DRAWS}, n_rounds=5)`": list(model.impute(gapped, **many)),
        f"one Gaussian, `impute(X, n_draws={N_DRAWS}, n_rounds=5)`": list(
            gaussian.impute(gapped, **many)
        ),
    }


def iterative(gapped: np.ndarray, n_components: int, seed: int) -> dict[str, Tables]:
    tables = []
    for i in range(N_DRAWS):
        n_rounds = 1 if np.isnan(gapped).any(axis=0).sum() == 1 else 5
        imputer = IterativeImputer(
            sample_posterior=True, max_iter=n_rounds, random_state=1000 * seed + i
        )
        tables.append(imputer.fit_transform(gapped))
    return {f"`IterativeImputer(sample_posterior=True)`, {N_DRAWS} seeds": tables}


def forests(gapped: np.ndarray, n_components: int, seed: int) -> dict[str, Tables]:
    import miceforest
    import pandas as pd

    frame = pd.DataFrame(gapped, columns=[f"c{i}" for i in range(gapped.shape[1])])
    kernel = miceforest.ImputationKernel(frame, num_datasets=N_DRAWS, random_state=seed)
    kernel.mice(iterations=1, num_threads=1)
    tables = [kernel.complete_data(dataset=i).to_numpy() for i in range(N_DRAWS)]
    return {f"miceforest, {N_DRAWS} data sets": tables}


def imputers(case: Case) -> list[tuple[Imputer, float]]:
    """The imputers, and the share of the drawn tables that each gets."""
    own = ours_by_factors if case.regressors is factors else ours
    found: list[tuple[Imputer, float]] = [(own, 1.0), (iterative, 0.25)]
    if importlib.util.find_spec("miceforest"):
        found.append((forests, 0.04))
    return found


class Result(NamedTuple):
    """Coverage, half widths and errors of intervals, (n_tables, 3), and seconds per table."""

    covered: np.ndarray
    widths: np.ndarray
    errors: np.ndarray
    seconds: float


def measured(case: Case, impute: Imputer | None, n_tables: int) -> dict[str, Result]:
    """Return what the intervals of ``n_tables`` tables are worth; None imputes nothing."""
    found: dict[str, list[np.ndarray]] = {}
    seconds = 0.0
    for seed in range(n_tables):
        table, gapped = drawn(case, seed)
        begin = time.process_time()
        each = (
            complete(table, gapped) if impute is None else impute(gapped, case.n_components, seed)
        )
        seconds += time.process_time() - begin
        for name, tables in each.items():
            coefficients, half = pooled(tables)
            found.setdefault(name, []).append(np.array([coefficients - COEFFICIENTS, half]))
    results = {}
    for name, values in found.items():
        errors, widths = np.swapaxes(values, 0, 1)
        covered = np.abs(errors) <= widths
        results[name] = Result(covered, widths, errors, seconds / n_tables)
    return results


def section(page: Page, case: Case, n_tables: int) -> None:
    share = np.mean([np.isnan(drawn(case, seed)[1][:, 1]).mean() for seed in range(n_tables)])
    text = f"{100 * share:.0f} % of the cells of z are missing."
    if case.regressors is factors:
        text = (
            "x, z and eight more columns are made of four factors, each of which is on in half of "
            f"the rows, and noise; {100 * share:.0f} % of their cells are missing, whatever their "
            'values are. Factors: `AnnealedSpikeSlabFactorAnalysis(6, annealing="none", '
            'loading_variance="auto")`. `IterativeImputer` makes five rounds. Time: of the four '
            "first rows together."
        )
    page.section(case.title, text)
    rows = []
    every: list[tuple[Imputer | None, float]] = [(None, 1.0), *imputers(case)]
    for impute, part in every:
        for name, found in measured(case, impute, max(round(part * n_tables), 2)).items():
            each = [f"{100 * share:.1f} %" for share in found.covered.mean(axis=0)]
            total = f"{100 * found.covered.mean():.1f} %"
            width = f"{found.widths.mean():.3f}"
            bias = f"{np.abs(found.errors.mean(axis=0)).max():.3f}"
            cost = "" if impute is None else f"{1e3 * found.seconds:.0f}"
            rows.append([name, *each, total, width, bias, f"{len(found.covered):,}", cost])
            print(case.title, *rows[-1], sep=" | ", file=sys.stderr, flush=True)
    header = ["method", "1", "x", "z", "all", "half width", "largest bias", "tables", "ms"]
    page.table(header, rows)


def written(quick: bool, only: str | None = None) -> str:
    page = Page()
    page.lines += ["# Multiple imputation", ""]
    command = "python -m benchmarks.multiple_imputation --write"
    page.lines += [f"Written by `{command}`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    page.lines += [
        f"Tables of {N_ROWS} rows with y = 1 + x − z + ε, of which cells of z are deleted, the "
        "more often the larger x and y are. How often do 90 % intervals of the coefficients of y "
        "on 1, x and z cover the truth? Several tables are pooled by Rubin's rules (m = "
        f"{N_DRAWS}, degrees of freedom of Barnard and Rubin, 1999). The standard error of a share "
        "of 90 % is 1.3 % with 500 tables, 2.7 % with 125, 4.7 % with 40 and 9.5 % with 10. "
        "Largest bias: that of the three coefficients. Time: milliseconds of the processor per "
        "table, for the fit and "
        "all imputed tables together. Ours: `AnnealedBayesianGaussianMixture(K, tol=1e-4, "
        "effort=0)`, other settings at their defaults, fitted to the table with missing cells; K "
        "is the number of groups that were drawn. The other libraries make one round where only "
        "one column has missing cells.",
        "",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for case in CASES[1:2] if quick else CASES:
            if only in (None, case.title):
                section(page, case, 2 if quick else case.n_tables)
            else:
                page.lines += kept(PAGE, case.title)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv, sections=[case.title for case in CASES])


if __name__ == "__main__":
    main()
