"""Partly labelled data: accuracy of mixtures with known classes, and of scikit-learn.

A share of the training rows of real tables keeps its labels, at least one row of each class. All
classifiers are judged by the same test rows, 30 % of each table. Supervised ones see the rows with
a label alone. ``--write`` writes the page ``doc/results/known_classes.md``; without it the page is
printed. ``--quick`` is a small run that shows that everything works and whose figures mean nothing.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from sklearn_anneal import AnnealedBayesianGaussianMixture

from .common.report import Page, machine, write_or_print

PAGE = Path(__file__).resolve().parents[1] / "doc" / "results" / "known_classes.md"
SHARES = (0.01, 0.05, 0.2)
SPLITS = 5
TABLES: dict[str, Callable[[], Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
Fit = Callable[[np.ndarray, np.ndarray], Any]


def ours(**params: Any) -> AnnealedBayesianGaussianMixture:
    return AnnealedBayesianGaussianMixture(n_components_per_class=1, random_state=0, **params)


def of_labelled(make: Callable[[], Any]) -> Fit:
    """Return a fit to the rows with a label alone."""
    return lambda X, y: make().fit(X[y >= 0], y[y >= 0])


def logistic() -> LogisticRegression:
    return LogisticRegression(max_iter=1000)


SUPERVISED: dict[str, Fit] = {
    "logistic regression": of_labelled(logistic),
    "GaussianNB": of_labelled(GaussianNB),
}
SEMI_SUPERVISED: dict[str, Fit] = {
    "self-training": lambda X, y: SelfTrainingClassifier(logistic()).fit(X, y),
    "spreading, rbf": lambda X, y: LabelSpreading().fit(X, y),
    "spreading, knn": lambda X, y: LabelSpreading(kernel="knn").fit(X, y),
}
OURS: dict[str, Fit] = {"ours": lambda X, y: ours().fit(X, y)}


def hidden(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return labels of which a share stays, among them one of each class; the others are −1."""
    rng = np.random.default_rng(seed)
    first = np.array([rng.choice(np.flatnonzero(y == c)) for c in np.unique(y)])
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), first))
    n = max(round(share * len(y)) - len(first), 0)
    kept = np.append(first, rest[:n])
    found = np.full(len(y), -1)
    found[kept] = y[kept]
    return found


def divided(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """Return standardised rows for training and for the test, and their classes."""
    data = TABLES[name]()
    how: dict[str, Any] = {"test_size": 0.3, "random_state": seed, "stratify": data.target}
    train, test, y_train, y_test = train_test_split(data.data, data.target, **how)
    varies = train.std(axis=0) > 0
    train, test = train[:, varies], test[:, varies]
    mean, scale = train.mean(axis=0), train.std(axis=0)
    return (train - mean) / scale, (test - mean) / scale, y_train, y_test


def accuracies(name: str, share: float, splits: int) -> tuple[int, dict[str, np.ndarray], float]:
    """Return the number of labels, the accuracies of each split, and the seconds of our fit."""
    found: dict[str, list[float]] = {}
    seconds, n_labels = [], 0
    for seed in range(splits):
        train, test, y_train, y_test = divided(name, seed)
        y = hidden(y_train, share, seed)
        n_labels = int((y >= 0).sum())
        for method, fit in {**SUPERVISED, **SEMI_SUPERVISED, **OURS}.items():
            begin = time.process_time()
            predicted = fit(train, y).predict(test)
            if method == "ours":
                seconds.append(time.process_time() - begin)
            found.setdefault(method, []).append(float(np.mean(predicted == y_test)))
    return n_labels, {key: np.array(each) for key, each in found.items()}, float(np.median(seconds))


def section_of_accuracies(page: Page, names: list[str], splits: int) -> None:
    rows, losses, wins, cells = [], [], 0, 0
    for name in names:
        for share in SHARES:
            n_labels, found, seconds = accuracies(name, share, splits)
            means = {method: each.mean() for method, each in found.items()}
            best = max([*SUPERVISED, *SEMI_SUPERVISED], key=lambda method: means[method])
            difference = found["ours"] - found[best]
            error = difference.std(ddof=1) / np.sqrt(splits) if splits > 1 else 0.0
            case = f"{name}, {100 * share:.0f} %"
            if difference.mean() < -2 * error:
                losses.append(f"{case}: {means['ours']:.3f} against {means[best]:.3f} of {best}")
            wins += difference.mean() > 2 * error
            cells += 1
            figures = [f"{means[method]:.3f}" for method in found]
            rows.append([name, f"{100 * share:.0f} %", str(n_labels), *figures, f"{seconds:.2f}"])
            print(*rows[-1], file=sys.stderr, flush=True)
    page.section(
        "Accuracy",
        f"Where ours is below the best of the other five by more than two standard errors of the "
        f"difference ({len(losses)} of {cells} cases, the best one chosen in hindsight): "
        + ("; ".join(losses) if losses else "nowhere")
        + f". Above it by more than two standard errors: {wins} of {cells}.",
        f"Mean accuracy on test rows over {splits} random splits, each with other labels. Columns "
        "are standardised by the training rows. Logistic regression and GaussianNB see the rows "
        "with a label alone; self-training has a logistic regression in it. Settings of "
        "scikit-learn are its defaults. Ours: "
        "`AnnealedBayesianGaussianMixture(n_components_per_class=1)`, other settings at their "
        "defaults. Seconds of processor time of one of our fits, median.",
    )
    header = ["data", "labels", "rows with one", *SUPERVISED, *SEMI_SUPERVISED, *OURS, "seconds"]
    page.table(header, rows)


def section_of_moves(page: Page, names: list[str], quick: bool) -> None:
    page.section(
        "Why moves are left out",
        "With 5 % of labels, the first split: the lower bound and the accuracy of the default, and "
        "of a fit with `effort=4`, the default without classes. Moves keep rows with a label in "
        "their class, and raise the bound.",
    )
    rows = []
    for name in names:
        train, test, y_train, y_test = divided(name, 0)
        y = hidden(y_train, 0.05, 0)
        for effort in ("auto", 0.5 if quick else 4.0):
            fitted = ours(effort=effort).fit(train, y)
            accuracy = f"{fitted.score(test, y_test):.3f}"
            rows.append([name, f"{effort}", f"{fitted.lower_bound_:.0f}", accuracy])
    page.table(["data", "effort", "lower bound", "accuracy"], rows)


def section_of_passes(page: Page, quick: bool) -> None:
    n, passes, repeats = (1000, 2, 1) if quick else (20_000, 10, 5)
    page.section(
        "Time of a pass",
        f"Milliseconds of processor time per pass over {n:,} rows, 10 classes with two components "
        "each, by the share of rows with a label. Rows without a label take the kernel that goes "
        "from rows to statistics at once; the others, an array of log densities.",
    )
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=n)
    rows = []
    for d in (4, 20):
        X = rng.normal(size=(n, d)) + 3.0 * rng.normal(size=(10, d))[labels]
        times = []
        for share in (0.0, 0.05, 0.5, 1.0):
            y = np.where(np.arange(n) < max(share * n, 10), labels, -1)
            y[:10] = range(10)
            short = min(seconds_of(X, y, 2) for _ in range(repeats))
            long = min(seconds_of(X, y, 2 + passes) for _ in range(repeats))
            times.append((long - short) / passes)
        rows.append([f"{d}", *(f"{1e3 * each:.1f}" for each in times)])
    page.table(["columns", "ten rows", "5 %", "50 %", "all"], rows)


def seconds_of(X: np.ndarray, y: np.ndarray, max_iter: int) -> float:
    est = AnnealedBayesianGaussianMixture(
        n_components_per_class=2,
        annealing="none",
        init_params="random_from_data",
        max_iter=max_iter,
        tol=0.0,
        random_state=0,
    )
    begin = time.process_time()
    est.fit(X, y)
    return time.process_time() - begin


def written(quick: bool) -> str:
    page = Page()
    page.lines += ["# Partly labelled data", ""]
    page.lines += [f"Written by `python -m benchmarks.known_classes --write`. {machine()}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        section_of_accuracies(page, list(TABLES)[: 1 if quick else None], 1 if quick else SPLITS)
        section_of_moves(page, ["iris"] if quick else ["wine", "digits"], quick)
        section_of_passes(page, quick)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
