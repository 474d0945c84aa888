"""The number of components that the lower bound chooses, and what ``n_components="auto"`` finds.

Tables and chains of no groups and of three groups that are apart are drawn anew for each seed. Real
tables, sequences and counts are divided into training and held-out parts, and ``"auto"`` is
compared with a search by cross-validation. ``--write`` writes the page ``doc/results/numbers.md``;
without it the page is printed. ``--quick`` is a small run that shows that everything works and
whose figures mean nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
)

from .common.measuring import processor_seconds, progress
from .common.report import Page, machine, write_or_print

PAGE = Path(__file__).resolve().parents[1] / "doc" / "results" / "numbers.md"
SIZES = (200, 1000)
# Parameters of the fits of a quick run.
_QUICK = {"max_iter": 5, "effort": 0}
NUMBERS = {1: (1, 2, 3), 3: (2, 3, 4, 6)}
MOST_BY_FOLDS = 15
SPLITS = 10
AUTO = "auto"

_RATES = np.array([[2, 20, 5, 9], [20, 2, 9, 5], [9, 9, 30, 2]], dtype=float)
_ANSWERS = np.array([[0.05] * 4 + [0.95] * 4, [0.95] * 4 + [0.05] * 4, [0.05, 0.95] * 4])
_CATEGORIES = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])


def drawn(emission: str, group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows or frames of the groups with these numbers, of which there are three at most."""
    n = len(group)
    if emission == "gaussian":
        return 8.0 * np.eye(3)[group] + rng.normal(size=(n, 3))
    if emission == "poisson":
        return rng.poisson(_RATES[group])
    if emission == "bernoulli":
        return (rng.random((n, 8)) < _ANSWERS[group]).astype(int)
    # Every column of a group has another favourite, so that groups differ in most columns.
    favourites = (group[:, None] + np.arange(6) * (group[:, None] + 1)) % 3
    below = np.cumsum(_CATEGORIES[favourites], axis=-1)
    return np.minimum((rng.random((n, 6, 1)) > below).sum(axis=-1), 2)


def symbols(group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One column of symbols, of which each group prefers another one."""
    below = np.cumsum(_CATEGORIES[group], axis=-1)
    return np.minimum((rng.random((len(group), 1)) > below).sum(axis=-1), 2)[:, None]


def independent(n: int, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """The groups of rows."""
    return rng.integers(0, n_groups, n)


def lasting(n: int, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """The states of frames, which last ten frames on average."""
    group = independent(n, n_groups, rng)
    stays = rng.random(n) < 0.9
    for i in range(1, n):
        if stays[i]:
            group[i] = group[i - 1]
    return group


def cases() -> dict[str, tuple[Any, Callable, Callable]]:
    """An estimator, how groups are drawn, and how data are drawn given groups, by name."""
    found: dict[str, tuple[Any, Callable, Callable]] = {
        "mixture of full Gaussians": (
            AnnealedBayesianGaussianMixture(),
            independent,
            lambda group, rng: drawn("gaussian", group, rng),
        )
    }
    for emission in ("gaussian", "categorical", "bernoulli", "poisson"):

        def rows(group: np.ndarray, rng: np.random.Generator, emission: str = emission) -> Any:
            return drawn(emission, group, rng)

        frames = symbols if emission == "categorical" else rows
        table, chain = AnnealedBayesianMixture(), AnnealedHMM()
        found[f"mixture, {emission}"] = (table.set_params(emission=emission), independent, rows)
        found[f"chain, {emission}"] = (chain.set_params(emission=emission), lasting, frames)
    return found


def chosen(estimator: Any, X: np.ndarray, truth: int) -> dict[str, bool]:
    """Return for each way to choose the number of components whether it finds the truth."""
    fits = {k: clone(estimator).set_params(n_components=k).fit(X) for k in NUMBERS[truth]}
    last = fits[max(fits)]
    found = {
        "bound": max(fits, key=lambda k: fits[k].lower_bound_),
        "BIC": min(fits, key=lambda k: fits[k].bic(X)),
        "in use": last.n_effective_components_,
        "auto": clone(estimator).set_params(n_components="auto").fit(X).n_components_,
    }
    return {how: k == truth for how, k in found.items()}


def drawn_tables(page: Page, quick: bool) -> None:
    n_seeds, sizes = (1, (60,)) if quick else (10, SIZES)
    settings = {"random_state": 0, **(_QUICK if quick else {})}
    rows = []
    for name, (estimator, grouped, data) in cases().items():
        for n in sizes:
            for truth in NUMBERS:
                progress(f"{name}, {n} rows, {truth}")
                results = []
                for seed in range(n_seeds):
                    rng = np.random.default_rng([seed, n, truth])
                    X = data(grouped(n, truth, rng), rng)
                    results.append(chosen(clone(estimator).set_params(**settings), X, truth))
                shares = [f"{sum(r[how] for r in results)} of {n_seeds}" for how in results[0]]
                rows.append([name, str(n), str(truth), *shares])
    page.section(
        "Drawn tables and chains",
        "Numbers 1, 2 and 3 were compared where there are no groups, and 2, 3, 4 and 6 where there "
        "are three groups that are apart. The columns count the data sets in which the number with "
        "the highest lower bound, the number with the lowest BIC, `n_effective_components_` of the "
        'largest fit, and `n_components="auto"` are the true number. Chains that stay in a state '
        "for ten frames on average have the groups as states.",
    )
    page.table(["model", "rows", "groups", "bound", "BIC", "in use", "auto"], rows)


class Real(NamedTuple):
    """Real data, and what is fitted to them.

    Attributes
    ----------
    estimator : estimator instance
    X : ndarray of shape (n_units, ...)
        Rows, or sequences of the same length.
    densities : callable
        Returns the log densities of the rows or sequences of some data by a fit, nats.
    """

    estimator: Any
    X: np.ndarray
    densities: Callable[[Any, np.ndarray], np.ndarray]


def real_data() -> dict[str, Real]:
    """Standardised tables of real columns, sequences and counts."""
    digits, digit = load_digits(return_X_y=True)
    threes = digits[digit == 3]
    tables = {
        "iris": load_iris().data,
        "wine": load_wine().data,
        "breast cancer, 10 columns": load_breast_cancer().data[:, :10],
        "diabetes": load_diabetes().data,
        "digit 3, 15 components": PCA(15, random_state=0).fit_transform(threes),
    }
    mixture = AnnealedBayesianGaussianMixture(random_state=0)
    found = {
        name: Real(mixture, (X - X.mean(axis=0)) / X.std(axis=0), type(mixture).score_samples)
        for name, X in tables.items()
    }
    pixels = (threes >= 8).astype(np.int64).reshape(-1, 8, 8)
    chain = AnnealedHMM(emission="bernoulli", random_state=0)
    found["digit 3, sequences of rows"] = Real(chain, pixels, of_sequences)
    found["digits, counts"] = Real(AnnealedGammaProcessNMF(random_state=0), digits[:300], of_counts)
    return found


def of_sequences(fit: Any, sequences: np.ndarray) -> np.ndarray:
    """The log-likelihoods of sequences, nats."""
    return np.asarray(fit.score_sequences(list(sequences)))


def of_counts(fit: Any, rows: np.ndarray) -> np.ndarray:
    """The log-likelihoods of one half of each row given the other, nats."""
    return np.array([fit.score(row[None]) for row in rows]) * rows.shape[1]


def held_out(page: Page, quick: bool) -> None:
    rows = []
    for name, data in real_data().items():
        if quick and name not in ("iris", "digit 3, sequences of rows", "digits, counts"):
            continue
        splits = []
        for seed in range(1 if quick else SPLITS):
            progress(f"{name}, split {seed}")
            splits.append(compared(data, seed, quick))
        named = [name, " × ".join(map(str, data.X.shape))]
        rows += [[*named, other, *cells] for other, cells in summary_of(splits).items()]
    page.section(
        "Real data",
        f"Three quarters of the rows or sequences, drawn {SPLITS} times, were fitted: standardised "
        "tables by Gaussian mixtures, the rows of images by hidden Markov models of binary frames, "
        'and counts by gamma-process factorisations. `"auto"` is compared with the best number '
        f"from 1 to {MOST_BY_FOLDS} by cross-validation with five folds, of default fits and of "
        "fits without a search (`effort=0`), and with one default fit with 20 components, of which "
        "some remain in use. *Found* is the median of the numbers, with the smallest and the "
        "largest. Differences of held-out densities, that of "
        '`"auto"` minus the other, are medians in nats per row or sequence; of counts, one half of '
        "each row was predicted from the other. A split counts as lower or higher if the "
        "difference, which is a mean over the held-out part, is more than two of its standard "
        "errors. The mean over splits is given with its standard error. Times are medians of "
        'ratios of processor times, that of `"auto"` over that of the other.',
    )
    head = ["data", "size", "against", "found by auto", "by the other", "difference", "mean"]
    page.table([*head, "lower", "higher", "time"], rows)


class Split(NamedTuple):
    """Held-out densities with the numbers of components that two ways find.

    Attributes
    ----------
    number : int
        The number that is found, or that of components in use.
    densities : ndarray of shape (n_units,)
        Log densities of the held-out rows or sequences, nats.
    seconds : float
        Processor time.
    """

    number: int
    densities: np.ndarray
    seconds: float


def compared(data: Real, seed: int, quick: bool) -> dict[str, Split]:
    """Find the number of components of some data by ``"auto"`` first, and in other ways."""
    estimator = clone(data.estimator).set_params(**(_QUICK if quick else {}))
    order = np.random.default_rng(seed).permutation(len(data.X))
    train, test = np.split(data.X[order], [int(0.75 * len(data.X))])
    given = list(train) if train.ndim == 3 else train
    grid = {"n_components": list(range(1, 3 if quick else MOST_BY_FOLDS + 1))}
    without = clone(estimator).set_params(effort=0)
    fits = {
        AUTO: clone(estimator).set_params(n_components="auto"),
        "folds": GridSearchCV(clone(estimator), grid, cv=5),
        "folds without search": GridSearchCV(without, grid, cv=5),
        "20 components": clone(estimator).set_params(n_components=20),
    }
    splits = {}
    for name, fit in fits.items():
        seconds = processor_seconds(partial(fit.fit, given))
        best = getattr(fit, "best_estimator_", fit)
        # Only a fit with a given number leaves some of its components without rows.
        given_one = name == "20 components"
        number = best.n_effective_components_ if given_one else best.n_components_
        splits[name] = Split(number, data.densities(best, test), seconds)
    return splits


def summary_of(splits: list[dict[str, Split]]) -> dict[str, list[str]]:
    """The cells of ``"auto"`` against each other way, without their names."""
    rows = {}
    for other in splits[0]:
        if other == AUTO:
            continue
        pairs = [(split[AUTO], split[other]) for split in splits]
        cells = []
        for numbers in zip(*((one.number, two.number) for one, two in pairs), strict=True):
            cells.append(f"{np.median(numbers):.3g} ({min(numbers)} to {max(numbers)})")
        differences = [one.densities - two.densities for one, two in pairs]
        means = np.array([d.mean() for d in differences])
        errors = np.array([d.std(ddof=1) / np.sqrt(len(d)) for d in differences])
        error = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
        cells += [f"{np.median(means):+.3f}", f"{means.mean():+.3f} ± {error:.3f}"]
        cells += [str(int(np.sum(side * means > 2 * errors))) for side in (-1, 1)]
        ratio = np.median([one.seconds / two.seconds for one, two in pairs])
        rows[other] = [*cells, f"{ratio:.2g}"]
    return rows


def written(quick: bool = False) -> str:
    page = Page()
    page.lines += ["# The number of components", ""]
    page.lines += [f"Written by `python -m benchmarks.numbers`. {machine()}", ""]
    if quick:
        page.lines += ["A quick run, whose figures mean nothing.", ""]
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        drawn_tables(page, quick)
        held_out(page, quick)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main()
