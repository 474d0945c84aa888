"""Numbers of groups where data are few, and where columns say nothing new.

Tables and series without structure, and others of two groups, are fitted with
``n_components="auto"``, and by scikit-learn's ``GaussianMixture`` with the number of the lowest
BIC. In the last section, groups are compared with known ones before and after a column is added
that depends on the others.

``--write`` writes the page ``doc/results/few_rows.md``; without it the page is printed. ``--quick``
is a small run that shows that everything works and whose figures mean nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture, AnnealedHMM

from ..common.measuring import progress
from ..common.report import Page, machine, write_or_print

PAGE = Path(__file__).resolve().parents[2] / "doc" / "results" / "few_rows.md"
# Rows and columns of white noise, and the number of tables of each.
SIZES = (
    *((10, 1), (10, 2), (20, 2), (30, 2), (20, 5), (40, 5)),
    *((25, 20), (40, 15), (40, 30), (40, 61), (100, 30)),
)
N_TABLES, MOST = 3, 8
# Rows of the data of other kinds, how many there are of each, and how far groups are apart.
N_ROWS, N_DATA, APART = 30, 5, 3.5
MIXED = [("real", "gaussian", [0, 1]), ("kinds", "categorical", [2])]
Data = Any


def by_bic(X: np.ndarray, covariance_type: str = "full") -> int:
    """Return the number of components with the lowest BIC, of one to eight or two rows each."""
    fits = [
        GaussianMixture(k, covariance_type=covariance_type, n_init=10, random_state=0).fit(X)
        for k in range(1, min(MOST, len(X) // 2) + 1)
    ]
    return 1 + int(np.argmin([fitted.bic(X) for fitted in fits]))


def data_of(kind: str, n_groups: int, rng: np.random.Generator) -> tuple[Data, np.ndarray]:
    """Return data of one or two groups, and the groups of rows."""
    labels = np.arange(N_ROWS) % n_groups
    second = labels[:, None] == 1
    normal = rng.normal(size=(N_ROWS, 3)) + APART * (second & [True, True, False])
    if kind in ("full covariances", "gaussian"):
        return normal, labels
    if kind == "series":
        level = 3.0 * (np.arange(N_ROWS) // 10 % n_groups == 1)[:, None]
        return [level + 0.6 * rng.normal(size=(N_ROWS, 1))], labels
    if kind == "bernoulli":
        alone = 0.5 * np.ones(10)
        p = alone if n_groups == 1 else np.where(second, 0.8, 0.2)
        return (rng.random((N_ROWS, 10)) < p).astype(int), labels
    if kind == "poisson":
        means = 2.0 * np.ones(4) if n_groups == 1 else np.where(second, 6.0, 1.5) * np.ones(4)
        return rng.poisson(means, size=(N_ROWS, 4)), labels
    kinds = rng.integers(3, size=N_ROWS)
    if n_groups == 2:
        kinds = np.where(rng.random(N_ROWS) < 0.85, labels, 2)
    return np.column_stack([normal[:, :2], kinds]), labels


def automatic(kind: str) -> Any:
    """An estimator that chooses its number of components."""
    if kind == "full covariances":
        return AnnealedBayesianGaussianMixture("auto", random_state=0)
    if kind == "series":
        return AnnealedHMM("auto", random_state=0)
    emission: Any = MIXED if kind == "mixed" else kind
    return AnnealedBayesianMixture("auto", emission=emission, random_state=0)


KINDS = ("full covariances", "gaussian", "bernoulli", "poisson", "mixed", "series")


def add_noise(page: Page, quick: bool) -> None:
    page.section(
        "White noise",
        f"{N_TABLES} tables of each size. Tables of which one group is found, by "
        '`AnnealedBayesianGaussianMixture("auto")` and by the lowest BIC of `GaussianMixture` with '
        f"ten starts and up to {MOST} components.",
    )
    rows, totals = [], np.zeros(2, dtype=int)
    n_tables = 1 if quick else N_TABLES
    for n, d in SIZES[:2] if quick else SIZES:
        progress(f"white noise, {n} x {d}")
        found = np.zeros(2, dtype=int)
        for seed in range(n_tables):
            X = np.random.default_rng(seed).normal(size=(n, d))
            ours = automatic("full covariances").fit(X).n_components_
            found += [ours == 1, by_bic(X) == 1]
        totals += found
        rows.append([str(n), str(d), *(f"{one} of {n_tables}" for one in found)])
    every = f"of {len(rows) * n_tables}"
    rows.append(["all", "", *(f"{one} {every}" for one in totals)])
    page.table(["rows", "columns", "ours", "lowest BIC"], rows)


def add_kinds(page: Page, quick: bool) -> None:
    page.section(
        "Thirty rows of other kinds",
        f"{N_DATA} data sets of {N_ROWS} rows without structure, and as many of two groups or "
        "states. The columns count those in which the true number is found.",
    )
    rows = []
    n_data = 1 if quick else N_DATA
    for kind in KINDS[:2] if quick else KINDS:
        progress(f"thirty rows, {kind}")
        cells = []
        for n_groups in (1, 2):
            numbers = [
                automatic(kind)
                .fit(data_of(kind, n_groups, np.random.default_rng(seed))[0])
                .n_components_
                for seed in range(n_data)
            ]
            cells.append(f"{numbers.count(n_groups)} of {n_data}")
        rows.append([kind, *cells])
    page.table(["data", "one group", "two groups"], rows)


# Rows and columns of tables of many columns, the columns in which their groups differ.
MANY = ((40, 40), (100, 40), (200, 60))
DIFFERENT = 8


def many_columns(kind: str, n: int, d: int, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Return a table of one or two groups, which differ in some of its columns."""
    second = np.outer(np.arange(n) % n_groups == 1, np.arange(d) < DIFFERENT)
    if kind == "gaussian":
        return rng.normal(size=(n, d)) + 2.5 * second
    if kind == "bernoulli":
        p = 0.5 if n_groups == 1 else 0.5 + 0.35 * (2 * second - 1.0) * (np.arange(d) < DIFFERENT)
        return (rng.random((n, d)) < p).astype(int)
    if kind == "poisson":
        return rng.poisson(np.where(second, 5.0, 2.0))
    kinds = rng.integers(3, size=(n, d))
    own = (rng.random((n, d)) < 0.6) & (np.arange(d) < DIFFERENT) & (n_groups == 2)
    return np.where(own, second.astype(int), kinds)


def add_many_columns(page: Page, quick: bool) -> None:
    page.section(
        "Many columns",
        f"{N_DATA} tables of each kind without structure, and as many of two groups that differ in "
        f"{DIFFERENT} columns. The columns count those in which the true number is found by "
        '`AnnealedBayesianMixture("auto")`, and by the lowest BIC of `GaussianMixture` with '
        f"diagonal covariances, ten starts and up to {MOST} components.",
    )
    rows = []
    n_data = 1 if quick else N_DATA
    for kind in ("gaussian", "bernoulli", "categorical", "poisson"):
        for n, d in ((20, 20),) if quick else MANY:
            progress(f"{kind}, {n} x {d}")
            ours, peer = [0, 0], [0, 0]
            for n_groups, seed in product((1, 2), range(n_data)):
                X = many_columns(kind, n, d, n_groups, np.random.default_rng(seed))
                ours[n_groups - 1] += automatic(kind).fit(X).n_components_ == n_groups
                if kind == "gaussian":
                    peer[n_groups - 1] += by_bic(X, "diag") == n_groups
            cells = [f"{number} of {n_data}" for number in (*ours, *peer)]
            rows.append(
                [kind, f"{n}", f"{d}", *(cells if kind == "gaussian" else cells[:2] + ["", ""])]
            )
    header = ["data", "rows", "columns", "one group", "two groups"]
    page.table([*header, "one group, lowest BIC", "two groups, lowest BIC"], rows)


# Frames and columns of ten sequences.
SEQUENCES = ((25, 3), (25, 6), (25, 12), (40, 16))
N_STATES, STAYS = 3, 0.9


def sequences(n_frames: int, d: int, n_states: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return ten sequences of frames around the means of states, which stay or are drawn anew."""
    means = 2.0 * rng.normal(size=(n_states, d)) * (n_states > 1)
    found = []
    for _ in range(10):
        states = rng.integers(n_states, size=n_frames)
        for t in np.flatnonzero(rng.random(n_frames - 1) < STAYS) + 1:
            states[t] = states[t - 1]
        found.append(means[states] + rng.normal(size=(n_frames, d)))
    return found


def add_sequences(page: Page, quick: bool) -> None:
    page.section(
        "Ten sequences",
        f"{N_DATA} sets of ten sequences without states, and as many of {N_STATES} states, of "
        "which a frame has that of the frame before with a probability of "
        f"{STAYS + (1 - STAYS) / N_STATES:.2f}. The columns count those in which "
        '`AnnealedHMM("auto")` finds the true number.',
    )
    rows = []
    n_data = 1 if quick else N_DATA
    for n_frames, d in ((10, 2),) if quick else SEQUENCES:
        progress(f"ten sequences, {n_frames} x {d}")
        cells = []
        for n_states in (1, N_STATES):
            numbers = [
                automatic("series")
                .fit(sequences(n_frames, d, n_states, np.random.default_rng(seed)))
                .n_components_
                for seed in range(n_data)
            ]
            cells.append(f"{numbers.count(n_states)} of {n_data}")
        rows.append([f"{n_frames}", f"{d}", *cells])
    page.table(["frames of each", "columns", "one state", f"{N_STATES} states"], rows)


def _drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(120) < 60
    X = np.random.default_rng(seed).normal(size=(120, 4))
    X[labels, :2] += 4.0
    return X, labels


TABLES: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "two drawn groups": _drawn,
    "iris": lambda seed: load_iris(return_X_y=True),
    "wine": lambda seed: load_wine(return_X_y=True),
}
ADDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda X: X,
    "constant": lambda X: np.column_stack([X, np.full(len(X), 2.0)]),
    "repeated": lambda X: np.column_stack([X, X[:, 0]]),
    "sum of two": lambda X: np.column_stack([X, X[:, 0] + X[:, 1]]),
}


def add_columns(page: Page, quick: bool) -> None:
    page.section(
        "Columns that say nothing new",
        "Adjusted Rand index of the groups and the known ones, means of four seeds. One more "
        "component than there are groups, full covariances. Ours: the default; scikit-learn's "
        "classes with ten starts and up to 500 iterations.",
    )
    rows = []
    for name, table in list(TABLES.items())[: 1 if quick else None]:
        for added, change in ADDED.items():
            progress(f"{name}, added column: {added}")
            found = []
            for seed in range(1 if quick else 4):
                X, labels = table(seed)
                k = len(np.unique(labels)) + 1
                how = {"n_init": 1 if quick else 10, "max_iter": 500, "random_state": seed}
                fits = (
                    AnnealedBayesianGaussianMixture(k, random_state=seed),
                    BayesianGaussianMixture(n_components=k, **how),
                    GaussianMixture(k, **how),
                )
                found.append([adjusted_rand_score(labels, f.fit_predict(change(X))) for f in fits])
            rows.append([name, added, *(f"{mean:.2f}" for mean in np.mean(found, axis=0))])
    header = ["table", "added column", "ours", "BayesianGaussianMixture", "GaussianMixture"]
    page.table(header, rows)


def written(quick: bool) -> str:
    page = Page()
    page.lines += ["# Few rows, and columns that depend on each other", ""]
    if quick:
        page.lines += ["A quick run, whose figures mean nothing.", ""]
    page.lines += [f"Written by `python -m benchmarks.mixture.numbers --write`. {machine()}", ""]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for add in (add_noise, add_kinds, add_many_columns, add_sequences, add_columns):
            add(page, quick)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
