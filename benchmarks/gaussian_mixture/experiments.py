"""The experiments of the papers with Gaussian mixtures: the fits and their tables.

The priors, sizes and settings are those of the papers if these state them. If a paper does not
state one, or if it cannot be taken literally, the text of the section says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from sklearn_anneal.annealing import (
    DeterministicAnnealing,
    ProximityVI,
    StochasticAnnealing,
)

from ..common.data import DataNotFoundError, left_out
from ..common.measuring import progress
from ..common.report import Page, quartiles
from .claims import (
    claims_of_clusters,
    claims_of_digits,
    claims_of_forms,
    claims_of_objective,
    claims_of_two_gaussians,
)
from .data import Task, digits_of, four_clusters, mnist_of, mnist_task, pima
from .fits import (
    DrawnDeterministicAnnealing,
    DrawnProximityVI,
    DrawnSVIPlus,
    drawn_start,
    fit,
)
from .plan import Size

_SMALLEST_CLUSTER = 0.01  # share of the rows that a component has to win to count as one

# Gultekin, Zhang and Paisley (2015), section 4.3


GULTEKIN = {
    "VI": drawn_start,
    # The temperature of the paper, 5/(1 − r), stays above 5; the schedule here ends at 1.
    "detAVI": lambda: DrawnDeterministicAnnealing(
        form="posterior", initial_temperature=5, schedule="geometric", n_passes=66, jitter=0.0
    ),
    # After 66 passes the noise 0.9^t has fallen to 1/1000.
    "stochAVI": lambda: StochasticAnnealing(initial_noise=0.9, schedule="exponential", n_passes=66),
    "stochAVI, linear 200": lambda: StochasticAnnealing(
        initial_noise=0.9, schedule="linear", n_passes=200
    ),
}


def section_gultekin(page: Page, size: Size) -> None:
    """MNIST digits of every class, independent factors, as in section 4.3 of the paper."""
    labels = range(2) if size.quick else range(10)
    numbers = (3,) if size.quick else (3, 6, 12)
    n_seeds = 1
    try:
        sets = [mnist_of(label, size.n_rows) for label in labels]
    except DataNotFoundError as error:
        return left_out(error)
    bounds = {k: {name: [] for name in GULTEKIN} for k in numbers}
    accuracy = {k: {name: [] for name in GULTEKIN} for k in numbers}
    test = np.concatenate([more[:100] for _, more in sets])
    truth = np.repeat(labels, [len(more[:100]) for _, more in sets])
    for k in numbers:
        progress(f"classes of MNIST, K = {k}")
        for seed in range(n_seeds):
            scores = {name: [] for name in GULTEKIN}
            for X, _ in sets:
                for name, make in GULTEKIN.items():
                    mixture = fit(X, k, seed, make(), factorization="independent")
                    bounds[k][name].append(mixture.lower_bound_)
                    scores[name].append(mixture.score_samples(test))
            for name, densities in scores.items():
                hit = np.argmax(densities, axis=0) == truth
                accuracy[k][name].append(hit.mean())
    page.section(
        "Digits of every class (Gultekin et al. 2015, section 4.3)",
        f"Independent q(μ) q(Λ), {size.n_rows} rows of each class, 30 principal components, "
        "one seed. Gain of the bound over plain inference from the same kind of start, nats, "
        "and accuracy of a classifier by the predictive densities on 100 rows of each class.",
    )
    rows = []
    for k in numbers:
        base = np.array(bounds[k]["VI"])
        gains = [quartiles(np.array(bounds[k][m]) - base) for m in list(GULTEKIN)[1:]]
        rows.append([str(k), *gains, *(f"{np.mean(accuracy[k][m]):.3f}" for m in GULTEKIN)])
    gains = [f"gain of {m}" for m in list(GULTEKIN)[1:]]
    page.table(["K", *gains, *(f"accuracy, {m}" for m in GULTEKIN)], rows)
    page.claims += claims_of_digits(bounds, accuracy)


# The SVI+ paper, sections IV-D and IV-E


def paper_prior(n_features: int) -> dict[str, Any]:
    """The priors N(0, 10 I) and Wishart(D, I), with independent factors as in the paper."""
    return {
        "factorization": "independent",
        "mean_prior": np.zeros(n_features),
        "mean_precision_prior": 0.1,
        "covariance_prior": np.eye(n_features),
        "degrees_of_freedom_prior": float(n_features),
    }


def svi_plus_run(
    X: np.ndarray,
    k: int,
    seed: int,
    batch: int | None,
    effective: int | None,
    passes: int,
    **more: Any,
) -> tuple[float, float, Any]:
    """Bounds at the end of the schedule and after further plain batch inference; the estimator."""
    if effective is None:
        annealing: Any = drawn_start()
        length = passes if batch is not None else 300
    else:
        annealing = DrawnSVIPlus(
            effective_batch_size=effective,
            noise="dirichlet",
            schedule="constant",
            n_passes=passes,
            learning_rate="decay",
            margin=0.0,
        )
        length = 0
    tol = 1e-6 if batch is None else 0.0
    mixture = fit(X, k, seed, annealing, batch_size=batch, max_iter=length, tol=tol, **more)
    end = mixture.lower_bound_
    if batch is not None:
        mixture.set_params(warm_start=True, batch_size=None, max_iter=300, tol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mixture.fit(X)
    return end, mixture.lower_bound_, mixture


def section_objective(page: Page, size: Size) -> None:
    """Bounds of batch inference, SVI and SVI+ with the paper's priors."""
    page.section(
        "Objective of batch inference, SVI and SVI+ (Paisley et al., section IV-D)",
        "Priors of the paper: weights Dirichlet(0.5), means N(0, 10 I), precisions Wishart(D, I); "
        f"independent factors; drawn starts; ρ_t = (1 + t)^(−0.6); {size.passes} passes, "
        f"{size.seeds} seeds. *polished*: after plain batch inference from there, which tells the "
        "optimum apart from the noise of the last steps. The paper's α has two entries, so K = 2; "
        "K = 4 and K = 8 are added, since two components leave few optima to choose from.",
    )
    four = four_clusters()
    settings = [("synthetic", four, k, 50, (10,)) for k in (2, 4, 8)]
    try:
        settings += [("Pima", pima(), k, 200, (50, 100, 150)) for k in (2, 4, 8)]
    except DataNotFoundError as error:
        left_out(error)
    if size.quick:
        settings = [s for s in settings if s[2] == 2]
    rows = []
    bounds: dict[tuple[str, int, str], tuple[np.ndarray, np.ndarray]] = {}
    for name, X, k, batch, effective in settings:
        progress(f"objective, {name}, K = {k}")
        variants = {"batch": (None, None), "SVI": (batch, None)}
        variants |= {f"SVI+, M = {m}": (batch, m) for m in effective}
        found: dict[str, list] = {v: [] for v in variants}
        prior = paper_prior(X.shape[1]) | {"weight_concentration_prior": 0.5}
        for seed in range(size.seeds):
            for variant, (s, m) in variants.items():
                found[variant].append(svi_plus_run(X, k, seed, s, m, size.passes, **prior)[:2])
        for variant, values in found.items():
            end, polished = np.array(values).T
            bounds[name, k, variant] = end, polished
            rows.append((f"{name}, K = {k}", variant, quartiles(end, 1), quartiles(polished, 1)))
    page.table(("data", "method", "bound at the end", "polished"), rows)
    page.claims += claims_of_objective(bounds)


def n_clusters(mixture: Any, X: np.ndarray) -> int:
    """The number of components that are the most probable one for at least 1 % of the rows."""
    counts = np.bincount(mixture.predict(X))
    return int((counts >= _SMALLEST_CLUSTER * len(X)).sum())


def section_clusters(page: Page, size: Size) -> None:
    """The number of clusters that an approximate Dirichlet process finds."""
    k = 10 if size.quick else 50
    prior = {"weight_concentration_prior": 1.0 / k, **paper_prior(2)}
    sizes = (10, 20, 30, 40, 50)
    single: dict[str, tuple[Any, dict]] = {
        "batch, drawn start": (drawn_start, {}),
        "batch, random responsibilities": (lambda: "none", {"init_params": "random"}),
        "batch, k-means": (lambda: "none", {}),
        "deterministic, default": (lambda: "deterministic", {}),
        "stochastic, default": (lambda: "stochastic", {}),
        "stochastic, 200": (lambda: StochasticAnnealing(n_passes=200), {}),
    }
    found: dict[str, list[int]] = {name: [] for name in single}
    bounds: dict[str, list[float]] = {name: [] for name in single}
    names = ["SVI"] + [f"SVI+, M = {share} S" for share in (0.2, 0.4, 0.6)]
    grid = [(names[0], s, None) for s in sizes]
    grid += [
        (f"SVI+, M = {share} S", s, int(share * s)) for s in sizes for share in (0.2, 0.4, 0.6)
    ]
    grid = grid[:1] + grid[-1:] if size.quick else grid
    streamed: dict[tuple[str, int], list[int]] = {(name, s): [] for name, s, _ in grid}
    for seed in range(size.seeds):
        progress(f"four clusters, seed {seed}")
        X = four_clusters(seed)
        for name, (make, more) in single.items():
            mixture = fit(X, k, seed, make(), **prior, **more)
            found[name].append(n_clusters(mixture, X))
            bounds[name].append(mixture.lower_bound_)
        for name, s, effective in grid:
            *_, mixture = svi_plus_run(X, k, seed, s, effective, size.passes // 2, **prior)
            streamed[name, s].append(n_clusters(mixture, X))
    page.section(
        "Four clusters, Dirichlet(1/K), K = 50 (Paisley et al., section IV-E)",
        "250 points from four Gaussians in two dimensions, drawn anew for every seed; the paper's "
        "priors; a component counts as a cluster if it is the most probable one of at least 1 % of "
        f"the points. {size.seeds} seeds; SVI and SVI+ make {size.passes // 2} passes and are "
        "polished by plain batch inference.",
    )
    rows = []
    for name, counts in found.items():
        rows.append((name, *describe_counts(counts), quartiles(np.array(bounds[name]), 1)))
    for (name, s), counts in streamed.items():
        rows.append((f"{name}, S = {s}", *describe_counts(counts), ""))
    page.table(("method", "four clusters", "mean number", "numbers found", "bound"), rows)
    page.claims += claims_of_clusters(found, streamed)


def describe_counts(counts: list[int]) -> tuple[str, str, str]:
    values, times = np.unique(counts, return_counts=True)
    table = ", ".join(f"{v}: {t}" for v, t in zip(values, times, strict=True))
    return f"{counts.count(4)} of {len(counts)}", f"{np.mean(counts):.2f}", table


# Mandt et al. (2016), section 2.2, and Altosaar et al. (2018)


def two_gaussians(seed: int, n_rows: int = 200) -> np.ndarray:
    """Draw rows of two overlapping Gaussians of unequal weight, in one dimension."""
    rng = np.random.default_rng(seed)
    means = np.where(rng.random(n_rows) < 0.3, -2.0, 2.0)
    return (means + rng.standard_normal(n_rows))[:, None]


def section_two_gaussians(page: Page, size: Size) -> None:
    """The annealed objective of a mixture of two Gaussians in one dimension."""
    hot = (20.0, 13.0, 8.5, 4.0, 2.0, 1.0)
    X = two_gaussians(0)
    spread, rows = {}, []
    for temperature in hot:
        fixed = [
            fit(
                X,
                2,
                seed,
                DrawnDeterministicAnnealing(
                    form="likelihood",
                    initial_temperature=temperature,
                    schedule="constant",
                    n_passes=300,
                    jitter=0.0,
                ),
                max_iter=300 if temperature == 1 else 0,
            )
            for seed in range(size.seeds)
        ]
        means = np.sort([m.means_[:, 0] for m in fixed], axis=1)
        spread[temperature] = float(np.ptp(means, axis=0).max())
        separation = float(np.mean(means[:, 1] - means[:, 0]))
        rows.append((f"{temperature:g}", f"{spread[temperature]:.3f}", f"{separation:.3f}"))
    page.section(
        "Two Gaussians in one dimension (Mandt et al. 2016, figure 1)",
        f"200 points from 0.3 N(−2, 1) + 0.7 N(2, 1), {size.seeds} drawn starts, 300 passes at a "
        "fixed T: the largest difference between runs of the sorted means, and the mean distance "
        "of the two means. The paper's example has known variances; here they are inferred.",
    )
    page.table(("T", "spread over runs", "distance of the means"), rows)
    page.claims += claims_of_two_gaussians(spread)


def section_forms(page: Page, size: Size) -> None:
    """Forms of annealing, speeds of cooling and bad starts, on one set of digits of each kind."""
    tasks = [Task('digits "0"', "digits", digits_of(0), 6)]
    if not size.quick:
        tasks.append(Task('digits "5"', "digits", digits_of(5), 12))
        try:
            tasks.append(mnist_task(3, 6, size.n_rows))
        except DataNotFoundError as error:
            left_out(error)
    variants: dict[str, tuple[Callable[[], Any], dict]] = {
        f"{form}, T₀ = 6, {n} passes": (
            lambda form=form, n=n: DeterministicAnnealing(
                form=form, initial_temperature=6, n_passes=n
            ),
            {},
        )
        for form, n in (
            ("likelihood", 10),
            ("likelihood", 50),
            ("likelihood", 100),
            ("posterior", 50),
        )
    }
    for name, strength in (("without constraint", 0.0), ("proximity", "auto")):
        variants[f"{name}, random responsibilities"] = (
            lambda strength=strength: ProximityVI(strength=strength),
            {"init_params": "random"},
        )
        variants[f"{name}, drawn start"] = (
            lambda strength=strength: DrawnProximityVI(strength=strength),
            {},
        )
    n_seeds = size.seeds if size.quick else size.seeds // 2
    found: dict[str, dict[str, np.ndarray]] = {}
    for task in tasks:
        progress(f"forms and starts, {task.name}")
        bounds: dict[str, list[float]] = {name: [] for name in variants}
        for seed in range(n_seeds):
            for name, (make, more) in variants.items():
                mixture = fit(task.X, task.n_components, seed, make(), **more)
                bounds[name].append(mixture.lower_bound_)
        found[task.name] = {name: np.array(values) for name, values in bounds.items()}
    page.section(
        "Forms, speed of cooling, and bad starts",
        f"Bounds, medians and quartiles of {n_seeds} seeds. *without constraint*: proximity VI of "
        "strength 0, that is, damped plain inference with the same steps.",
    )
    page.table(
        ("method", *found),
        [(v, *(quartiles(found[t][v]) for t in found)) for v in variants],
    )
    page.claims += claims_of_forms(found)
