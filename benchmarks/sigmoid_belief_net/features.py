"""Hidden units as features of a classifier: those of nets, of ``BernoulliRBM``, and the columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_anneal import AnnealedSigmoidBeliefNet

from ..common.data import load, read_each
from ..common.measuring import progress
from ..common.report import Page
from ..suite import data

Labelled = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
# Its passes, and the size of its steps, which is small enough for so many.
_MACHINE = {"n_iter": 100, "learning_rate": 0.02}
_GRADED = 2.0


def labelled_table(name: str, seed: int) -> Labelled:
    """Binary rows to fit and their classes, and at most 1,000 others, which differ by seed."""
    rng = np.random.default_rng(seed)
    if name == "votes":
        seen, n = load("votes_1984.npz"), 300
        X, y = seen["X"] > 0, seen["labels"]
    elif name == "mushrooms":
        seen, n = load("mushroom.npz"), 1000
        X, y = OneHotEncoder(sparse_output=False).fit_transform(seen["X"]), seen["labels"]
    elif name == "words":
        seen, n = load(data.WORDS), 3000
        X, y = seen["X"] > 0, seen["labels"]
    elif name == "images":
        seen, n = load(data.MNIST), 2000
        pictures = seen["images"].reshape(-1, 28, 28)[:, ::2, ::2]
        X, y = pictures.reshape(len(pictures), -1) > 127, seen["labels"]
    elif name == "tumours":
        measures, n = load_breast_cancer(), 300
        X, y = measures.data > np.median(measures.data, axis=0), measures.target
    else:
        (X, y), n = load_digits(return_X_y=True), int(name.split()[0].replace(",", ""))
        X = X >= 8
    order = rng.permutation(len(X))[: n + 1000]
    X, y = X[order].astype(np.float64), y[order]
    return X[:n], y[:n], X[n:], y[n:]


def accuracies(transform: Callable[[np.ndarray], np.ndarray], table: Labelled) -> list[float]:
    """Shares of held-out rows in their class, by a logistic regression on features.

    The first is that on the features themselves, and the second that on standardised ones.
    """
    X, y, X_test, y_test = table
    regression = LogisticRegression(max_iter=1000)
    train, test = transform(X), transform(X_test)
    return [
        float(classifier.fit(train, y).score(test, y_test))
        for classifier in (regression, make_pipeline(StandardScaler(), regression))
    ]


def compared(table: Labelled, n_units: int, seed: int) -> list[list[float]]:
    """Accuracies on the columns, on units of a net, on graded ones, and on those of a machine."""
    X = table[0]
    net = AnnealedSigmoidBeliefNet((n_units,), random_state=seed).fit(X)
    means = accuracies(net.transform, table)
    net.set_params(transform_temperature=_GRADED)
    machine = BernoulliRBM(n_units, random_state=seed, **_MACHINE).fit(X)
    return [
        accuracies(lambda X: X, table),
        means,
        accuracies(net.transform, table),
        accuracies(machine.transform, table),
    ]


def measure_features(
    page: Page, tables: tuple[str, ...], units: tuple[int, ...], divisions: int
) -> None:
    """Write the section that compares units as features."""
    page.section(
        "Units as features",
        "Shares of held-out rows in their class, by a logistic regression on hidden units, which "
        "were fitted without classes: on the units themselves / on standardised ones. *Columns*: "
        "the regression has the columns in the place of units. *Means*: `transform` of a net with "
        f"default settings. *Graded*: with `transform_temperature={_GRADED:g}`. *BernoulliRBM*: "
        f"scikit-learn's, in {_MACHINE['n_iter']} passes with "
        f"`learning_rate={_MACHINE['learning_rate']:g}`. Means over {divisions} divisions of the "
        "rows, whose fits start differently too; the highest share of each line is in bold. "
        "*Mushrooms* have a column for each category, *tumours* one for each measure, which is on "
        "above its median, and *images* are every second pixel of every second row.",
    )

    def divided(name: str) -> list[Labelled]:
        return [labelled_table(name, seed) for seed in range(divisions)]

    lines = []
    for name, parts in read_each(tables, divided):
        rows, columns = parts[0][0].shape
        for n_units in units:
            progress(f"features, {name}, {n_units} units")
            found = [compared(part, n_units, seed) for seed, part in enumerate(parts)]
            shares = np.mean(found, axis=0)
            best = shares.max()
            cells = [
                " / ".join(f"**{x:.3f}**" if x == best else f"{x:.3f}" for x in pair)
                for pair in shares
            ]
            lines.append([name, f"{rows:,} × {columns}", str(n_units), *cells])
    head = ["table", "rows × columns", "units", "columns", "means", "graded", "BernoulliRBM"]
    page.table(head, lines)
