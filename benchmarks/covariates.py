"""Classes and other variables: coefficients and means by one step, by three steps, and by StepMix.

The rows are drawn after the design of Bakk and Kuha (2018), which StepMix has among its examples:
three classes, six binary items, whose probabilities are 0.7, 0.8 or 0.9 or their complements. In
one half the class depends on a covariate, in the other an outcome depends on the class. The page
has the bias, the root mean squared error and, of ours, how often intervals of 95 % cover, and what
three bounds of log-sum-exp lose.

``--write`` writes the page ``doc/results/covariates.md``; without it the page is printed.
``--quick`` is a small run that shows that everything works and whose figures mean nothing. StepMix
is measured where it is installed.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.models._covariates import contrasts
from sklearn_anneal.three_step import class_covariates, distal_outcome

from .common.report import Page, machine, write_or_print

PAGE = Path(__file__).resolve().parents[1] / "doc" / "results" / "covariates.md"
N_ROWS, N_TABLES, SEPARATIONS, WIDTH = 1000, 12, (0.7, 0.8, 0.9), 1.96
N_INIT = 5
SLOPES, INTERCEPTS, MEANS = (0.0, -1.0, 1.0), (0.0, 2.345, -3.655), (-1.0, 1.0, 0.0)
CORRECTIONS = {None: "no correction", "bch": "BCH", "ml": "ML"}


class Found(NamedTuple):
    """Estimates, with the classes in the order of the truth, their standard errors, and seconds."""

    values: np.ndarray
    std: np.ndarray
    seconds: float


Estimates = Iterator[tuple[str, Found]]


def items(separation: float) -> np.ndarray:
    """Return the probabilities of ones, (3, 6)."""
    return np.where([[1] * 6, [1] * 3 + [0] * 3, [0] * 6], separation, 1.0 - separation)


def drawn(rng: np.random.Generator, separation: float, n: int) -> tuple[np.ndarray, ...]:
    """Return items and a covariate on which the class depends, and items and an outcome."""
    z = rng.integers(1, 6, size=(n, 1)).astype(float)
    weights = softmax(z * SLOPES + INTERCEPTS, axis=1)
    dependent = (weights.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    free = rng.integers(3, size=n)
    tables = [(rng.random((n, 6)) < items(separation)[c]).astype(int) for c in (dependent, free)]
    return tables[0], z, tables[1], np.take(MEANS, free) + rng.standard_normal(n)


def order_of(probabilities: np.ndarray, separation: float) -> np.ndarray:
    """Return the numbers of the classes in the order of the truth, by their items."""
    cost = ((probabilities[None] - items(separation)[:, None]) ** 2).sum(axis=2)
    return np.asarray(linear_sum_assignment(cost)[1])


def clock(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


# Ours


def ours_of_covariates(X: np.ndarray, z: np.ndarray, separation: float) -> Estimates:
    def one_step() -> Found:
        fit = AnnealedBayesianMixture(3, random_state=0).fit(X, covariates=z)
        order = order_of(fit.emissionprob_, separation)
        found = fit.coefficient_intervals(reference=int(order[0]))
        return found.estimate[order[1:], 1], found.std[order[1:], 1]

    (values, std), seconds = clock(one_step)
    yield "ours, `fit(X, covariates=z)`", Found(values, std, seconds)
    first = time.process_time()
    fit = AnnealedBayesianMixture(3, random_state=0).fit(X)
    order, first = order_of(fit.emissionprob_, separation), time.process_time() - first
    for correction, name in CORRECTIONS.items():
        try:
            found, seconds = clock(
                lambda correction=correction: class_covariates(
                    fit.predict_proba(X)[:, order], z, correction=correction, reference=0
                )
            )
        except ValueError:
            continue
        values, std = found.coefficients[1:, 0], found.coefficients_std[1:, 0]
        yield f"ours, three steps, {name}", Found(values, std, first + seconds)


def ours_of_outcomes(X: np.ndarray, y: np.ndarray, separation: float) -> Estimates:
    def one_step() -> np.ndarray:
        kinds = [("items", "bernoulli", slice(0, 6)), ("outcome", "gaussian", [6])]
        fit = AnnealedBayesianMixture(3, emission=kinds, random_state=0)
        fit.fit(np.column_stack([X, y]))
        order = order_of(fit.blocks_["items"].emissionprob_, separation)
        return fit.blocks_["outcome"].means_[order, 0]

    values, seconds = clock(one_step)
    yield "ours, outcome among the columns", Found(values, np.full(3, np.nan), seconds)
    first = time.process_time()
    fit = AnnealedBayesianMixture(3, random_state=0).fit(X)
    order, first = order_of(fit.emissionprob_, separation), time.process_time() - first
    for correction, name in CORRECTIONS.items():
        try:
            found, seconds = clock(
                lambda correction=correction: distal_outcome(
                    fit.predict_proba(X)[:, order], y, correction=correction
                )
            )
        except ValueError:
            continue
        yield f"ours, three steps, {name}", Found(found.mean, found.std, first + seconds)


# StepMix


def theirs(X: np.ndarray, beside: np.ndarray, separation: float, structural: str) -> Estimates:
    if importlib.util.find_spec("stepmix") is None:
        return
    from stepmix.stepmix import StepMix

    plans = {"one step": (1, None)}
    plans |= {f"three steps, {n}": (3, c and c.upper()) for c, n in CORRECTIONS.items()}
    for name, (n_steps, correction) in plans.items():
        model = StepMix(
            3,
            n_steps=n_steps,
            correction=correction,
            assignment="modal",
            measurement="bernoulli",
            structural=structural,
            structural_params={"max_iter": 1000} if structural == "covariate" else None,
            n_init=N_INIT,
            random_state=0,
            progress_bar=0,
            verbose=0,
        )
        _, seconds = clock(lambda model=model: model.fit(X, beside))
        found = model.get_parameters()
        order = order_of(np.asarray(found["measurement"]["pis"]), separation)
        if structural == "covariate":
            values = np.asarray(found["structural"]["beta"])[order, -1]
            values = values[1:] - values[0]
        else:
            values = np.asarray(found["structural"]["means"])[order, 0]
        yield f"StepMix, {name}", Found(values, np.full(len(values), np.nan), seconds)


# The page


def measured(page: Page, separation: float, n_tables: int, n: int) -> None:
    """Add the tables of one separation."""
    records: dict[str, dict[str, list[Found]]] = {"covariate": {}, "outcome": {}}
    for seed in range(n_tables):
        X, z, other, y = drawn(np.random.default_rng(seed), separation, n)
        pairs = {
            "covariate": (
                ours_of_covariates(X, z, separation),
                theirs(X, z, separation, "covariate"),
            ),
            "outcome": (
                ours_of_outcomes(other, y, separation),
                theirs(other, y[:, None], separation, "gaussian_diag"),
            ),
        }
        for kind, sources in pairs.items():
            for source in sources:
                for name, found in source:
                    records[kind].setdefault(name, []).append(found)
    truths = {"covariate": np.subtract(SLOPES[1:], SLOPES[0]), "outcome": np.array(MEANS)}
    titles = {"covariate": "coefficients −1 and 1", "outcome": "means −1, 1 and 0"}
    for kind, by_name in records.items():
        truth = truths[kind]
        # Shrinkage towards each other is the bias that corrections mend.
        direction = np.sign(truth - truth.mean()) * (truth != truth.mean())
        rows = []
        for name, every in by_name.items():
            apart = np.array([found.values for found in every]) - truth
            std = np.array([found.std for found in every])
            inside = np.abs(apart) < WIDTH * std
            coverage = "–" if np.isnan(std).all() else f"{100 * inside.mean():.0f} %"
            bias = (apart @ direction / np.abs(direction).sum()).mean()
            error = np.sqrt((apart**2).mean())
            seconds = np.median([found.seconds for found in every])
            if len(every) < n_tables:
                name += f" ({len(every)} tables)"
            rows.append([name, f"{bias:+.3f}", f"{error:.3f}", coverage, f"{seconds:.2f}"])
        page.section(f"Separation {separation}: {titles[kind]}")
        page.table(["estimate", "bias", "RMSE", "intervals of 95 % cover", "seconds"], rows)


def losses(k: int, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Return what bounds of Σ E log Σ_l exp η_l lose over n rows of K components, in nats."""
    c, u = contrasts(k), np.column_stack([np.ones(n), rng.standard_normal(n)])
    values = 0.7 * rng.standard_normal((2, k - 1))
    # About the variance of the posterior of known classes.
    covariance = np.linalg.inv(u.T @ u / k + np.eye(2) / 6.0)
    mean, spread = u @ values @ c.T, ((u @ covariance) * u).sum(axis=1)
    draws = np.sqrt(spread)[:, None] * rng.standard_normal((2000, n, k - 1)) @ c.T
    exact = logsumexp(mean + draws, axis=2).mean(axis=0)
    found = {"Böhning": logsumexp(mean, axis=1) + 0.25 * (k - 1) * spread}
    variance = np.outer(spread, (c**2).sum(axis=1))
    shift = mean.mean(axis=1)
    for _ in range(200):
        xi = np.sqrt((mean - shift[:, None]) ** 2 + variance)
        curvature = np.tanh(0.5 * xi) / (4.0 * xi)
        shift = (0.5 * (0.5 * k - 1.0) + (curvature * mean).sum(axis=1)) / curvature.sum(axis=1)
    xi = np.sqrt((mean - shift[:, None]) ** 2 + variance)
    terms = 0.5 * (mean - shift[:, None] - xi) + np.logaddexp(0.0, xi)
    found["Bouchard"] = shift + terms.sum(axis=1)
    if k == 2:
        apart = mean[:, 1] - mean[:, 0]
        xi = np.sqrt(apart**2 + 2.0 * spread)
        found["Jaakkola and Jordan"] = mean[:, 0] + 0.5 * (apart - xi) + np.logaddexp(0.0, xi)
    return {name: float((bound - exact).sum()) for name, bound in found.items()}


def written(quick: bool) -> str:
    """Return the page."""
    n_tables, n = (2, 150) if quick else (N_TABLES, N_ROWS)
    command = "python -m benchmarks.covariates --write"
    page = Page(["# Classes, covariates and outcomes", "", f"Written by `{command}`. {machine()}"])
    page.lines.append("")
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    page.lines += [
        f"{n_tables} tables of {n} rows for each separation of the classes, after the design of "
        "Bakk and Kuha (2018): three classes, six binary items, whose probabilities are the "
        "separation or its complement; a covariate of 1 to 5 with the coefficients 0, −1 and 1, or "
        "a normal outcome with the means −1, 1 and 0. A negative bias shrinks differences between "
        "classes. RMSE is over all coefficients or means. Seconds are processor time, median, of "
        f"all steps. Ours have their default settings, StepMix {N_INIT} starts, and in the last "
        "step Newton's method until it converges. A fit of ours that left a class without rows has "
        "no three steps, which a number of tables says.",
        "",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for separation in SEPARATIONS[-1:] if quick else SEPARATIONS:
            measured(page, separation, n_tables, n)
    page.section(
        "What bounds lose",
        "Nats that a bound of E log Σ exp η loses over all rows together, where coefficients have "
        "about the posterior variance of known classes. The exact value is a mean of 2,000 draws.",
    )
    rng, rows = np.random.default_rng(0), []
    for k in (2, 3, 5, 10):
        for size in (50,) if quick else (50, 500):
            found = losses(k, size, rng)
            names = ("Böhning", "Jaakkola and Jordan", "Bouchard")
            figures = [f"{found[name]:.2f}" if name in found else "–" for name in names]
            rows.append([str(k), str(size), *figures])
    page.table(["components", "rows", "Böhning", "Jaakkola and Jordan", "Bouchard"], rows)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    """Measure, and write or print the page."""
    write_or_print(__doc__, PAGE, written, argv)


if __name__ == "__main__":
    main(sys.argv[1:])
