"""Ratings, and how much they tell.

Few ratings say little about a user, and a model of ratings should know it. Here ratings are drawn
from known factors and biases, most users rate little, and matrix factorisation has to find the
truth back, with standard deviations of what it predicts. It does so by plain variational inference
(VI) and by annealed fits, with biases in the model and without.

Run it with ``python -m benchmarks.matrix_factorization.comparison``; it takes less
than half a minute.
"""

# Ratings from a known truth
#
# A rating is a mean, a bias of the user, a bias of the item, the product of their factors, and
# noise. A user rates from 3 to 100 items; a tenth of all ratings is held out.

import argparse
import time
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import NullLocator
from scipy.linalg import orthogonal_procrustes
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedPMF
from sklearn_anneal.inspection import LowerBoundDisplay

NOISE = 0.6


def draw_ratings(n_users=600, n_items=200, most=100, seed=0):
    """Ids (user, item) of ratings, the ratings, and the true factors and biases."""
    rng = np.random.default_rng(seed)
    truth = {
        "users": rng.standard_normal((n_users, 2)),
        "items": 0.7 * rng.standard_normal((n_items, 2)),
        "user_biases": 0.4 * rng.standard_normal(n_users),
        "item_biases": 0.4 * rng.standard_normal(n_items),
    }
    popularity = rng.lognormal(0.0, 1.0, n_items)
    counts = np.geomspace(3, most, n_users).round().astype(int)
    pairs = [
        (user, item)
        for user, count in enumerate(rng.permutation(counts))
        for item in rng.choice(n_items, count, replace=False, p=popularity / popularity.sum())
    ]
    X = np.array(pairs)
    users, items = X.T
    y = 3.5 + truth["user_biases"][users] + truth["item_biases"][items]
    y += np.sum(truth["users"][users] * truth["items"][items], axis=1)
    return X, y + NOISE * rng.standard_normal(len(y)), truth


def split_ratings(X, y, seed=0):
    """The ratings to fit and those held out, each as pairs of ids with ratings."""
    held_out = np.random.default_rng(seed).random(len(y)) < 0.1
    return (X[~held_out], y[~held_out]), (X[held_out], y[held_out])


# Contestants
#
# All are told the noise. Without biases two more factors take their place, and have to find the
# level of each user and item by a product, the hard way, on which plain VI is slow.

PLAIN, NO_BIASES = "plain VI", ", no biases"
ANNEALED = ("deterministic", "stochastic", "svi_plus")


def contestants(n_components, seed):
    """Unfitted estimators by name."""
    models = {
        "": {"n_components": n_components, "factor_variance": 0.7, "bias_variance": 0.16},
        NO_BIASES: {
            "n_components": n_components + 2,
            "factor_variance": 1.0,
            "biases": False,
            "fit_intercept": False,
        },
    }
    return {
        name + model: AnnealedPMF(
            input="pairs",
            annealing="none" if name == PLAIN else name,
            noise_variance=NOISE**2,
            max_iter=1000,
            random_state=seed,
            **parameters,
        )
        for model, parameters in models.items()
        for name in (PLAIN, *ANNEALED)
    }


# Measures
#
# The lower bound per rating and the log density of held-out ratings in nats, their root mean
# squared error, the percentage of them inside intervals of 90 %, passes and seconds. The methods
# take turns within each seed and have one thread each, so that their times compare. First fits to a
# few ratings, which do not count, compile the loops that each of them needs. A line is printed as
# soon as a fit is done.


def measure(pmf, train, test):
    """Bound, log density, error, coverage in percent, passes and seconds of one fit."""
    start = time.perf_counter()
    pmf.fit(*train)
    seconds = time.perf_counter() - start
    X, y = test
    mean, std = pmf.predict(X, return_std=True)
    error = np.sqrt(np.mean((y - mean) ** 2))
    covered = 100 * np.mean(np.abs(y - mean) < 1.645 * std)
    bound = pmf.lower_bound_ / len(train[1])
    return bound, pmf.score(X, y), error, covered, pmf.n_iter_, seconds


def compare(train, test, n_seeds=3, n_components=2):
    """Measures of shape (n_seeds, 6) by method, and the fits of the first seed."""
    results, first_fits = defaultdict(list), {}
    with threadpool_limits(1):
        for pmf in contestants(n_components, 0).values():
            pmf.fit(*(part[:100] for part in train))
        for seed in range(n_seeds):
            for method, pmf in contestants(n_components, seed).items():
                results[method].append(measure(pmf, train, test))
                first_fits.setdefault(method, pmf)
                seconds = results[method][-1][-1]
                print(f"seed {seed + 1} of {n_seeds}: {method:25}{seconds:7.2f} s", flush=True)
    return {method: np.array(runs) for method, runs in results.items()}, first_fits


# Results
#
# The best bound, density and error of each model have a star.


def print_table(results):
    """Medians over the seeds."""
    medians = {method: np.median(runs, axis=0) for method, runs in results.items()}
    print(f"\n{'':25}{'bound':>8}{'density':>9}{'RMSE':>9}{'in 90 %':>10}{'passes':>8}{'s':>7}")
    for method, values in medians.items():
        bound, density, error, covered, passes, seconds = values
        model = [
            v for m, v in medians.items() if m.endswith(NO_BIASES) == method.endswith(NO_BIASES)
        ]
        best = [max(v[0] for v in model), max(v[1] for v in model), min(v[2] for v in model)]
        stars = np.where(values[:3] == best, "*", " ")
        print(
            f"{method:25}{bound:8.4f}{stars[0]}{density:8.4f}{stars[1]}{error:8.4f}{stars[2]}"
            f"{covered:7.1f} %{passes:8.0f}{seconds:7.2f}"
        )


def conclusions(results):
    """What the medians say about each method against plain VI of the same model."""
    medians = {method: np.median(runs, axis=0) for method, runs in results.items()}
    yield f"Against {PLAIN} of the same model, medians of {len(results[PLAIN])} seeds:"
    for method, values in medians.items():
        plain = medians[PLAIN + NO_BIASES if method.endswith(NO_BIASES) else PLAIN]
        if not method.startswith(PLAIN):
            bound, _, error = (values - plain)[:3]
            yield (
                f"  {method:25}bound {bound:+.4f}, RMSE {error:+.4f}, "
                f"in {values[4] / plain[4]:.2f} x the passes"
            )
    yield f"The noise alone has a root mean square of {NOISE}."


# Truth and estimate, drawn
#
# Fits of the first seed. Factors are known up to a rotation and a stretch of one side against the
# other, so that the estimates are rotated to the truth first. Each line leads from the true factors
# of an item to the estimated ones; those of items with few ratings stay nearer to 0. Beside it,
# what a user's number of ratings does: standard deviations of predicted ratings, and the errors
# against the true means, in groups of users. Then the bounds pass by pass, of the models without
# biases.


def aligned(pmf, truth):
    """Estimated factors of items, rotated and stretched to the true ones."""
    estimate = pmf.components_.T
    true = truth["items"][: len(estimate)]
    rotation, scale = orthogonal_procrustes(estimate, true)
    return estimate @ rotation * scale / np.sum(estimate**2)


def by_number_of_ratings(pmf, train, truth, n_groups=8):
    """Mean number of ratings, standard deviation and error of all predictions, of groups."""
    n_users, n_items = len(pmf.user_factors_), pmf.n_items_
    counts = np.bincount(train[0][:, 0], minlength=n_users)
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    mean, std = pmf.predict_ratings(users, items, return_std=True)
    true = 3.5 + truth["user_biases"][users] + truth["item_biases"][items]
    true += np.sum(truth["users"][users] * truth["items"][items], axis=1)
    # The noise of a rating is no error of the model.
    variance = (std**2 - pmf.noise_variance_).reshape(n_users, n_items).mean(axis=1)
    error = ((mean - true) ** 2).reshape(n_users, n_items).mean(axis=1)
    groups = np.array_split(np.argsort(counts, kind="stable"), n_groups)
    return np.array(
        [(counts[g].mean(), np.sqrt(variance[g].mean()), np.sqrt(error[g].mean())) for g in groups]
    )


def draw(fits, train, truth, method="deterministic"):
    """Write truth, uncertainty and bounds as a PNG file into the current directory."""
    pmf = fits[method]
    figure = plt.figure(figsize=(12, 9.5), layout="constrained")
    above, below = figure.subfigures(2, height_ratios=(5, 4))
    left, right = above.subplots(1, 2)
    estimate = aligned(pmf, truth)
    true = truth["items"][: len(estimate)]
    counts = np.bincount(train[0][:, 1], minlength=len(estimate))
    for ends in zip(true, estimate, strict=True):
        left.plot(*np.transpose(ends), color="0.75", linewidth=0.8, zorder=1)
    left.scatter(*true.T, s=14, facecolors="none", edgecolors="black", label="true")
    shades = LogNorm(max(1, counts.min()), max(2, counts.max()))
    points = left.scatter(*estimate.T, s=18, c=counts, cmap="viridis_r", norm=shades, zorder=3)
    above.colorbar(points, ax=left, label="Ratings of the item", format="{x:.0f}")
    left.set(title="Factors of items", xlabel="First factor", ylabel="Second factor")
    left.set_aspect("equal", "datalim")
    left.legend(loc="upper right")
    numbers, deviations, errors = by_number_of_ratings(pmf, train, truth).T
    right.plot(numbers, deviations, "o-", color="#2166ac", label="standard deviation, predicted")
    right.plot(numbers, errors, "s--", color="#d7191c", label="error, against the truth")
    right.set_xscale("log")
    right.set_xticks([n for n in (3, 5, 10, 20, 50, 100) if numbers[0] <= n <= numbers[-1]])
    right.xaxis.set_major_formatter("{x:.0f}")
    right.xaxis.set_minor_locator(NullLocator())
    right.set_ylim(bottom=0)
    right.set(
        title="What is not known of a user's ratings",
        xlabel="Ratings of the user",
        ylabel="Root mean square",
    )
    right.legend()
    hard = {name: fit for name, fit in fits.items() if name.endswith(NO_BIASES)}
    LowerBoundDisplay.from_estimators(hard, ax=below.subplots())
    path = Path("matrix_factorization_comparison.png").resolve()
    figure.savefig(path, dpi=150)
    return path


def main():
    """Make the fits, print what they say, and draw it."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    began = time.perf_counter()
    X, y, truth = draw_ratings()
    train, test = split_ratings(X, y)
    print(
        f"{len(y)} ratings of {len(truth['items'])} items by {len(truth['users'])} users: "
        f"{len(train[1])} to fit, {len(test[1])} held out"
    )
    print("The loops are compiled; the first time this takes some seconds.\n", flush=True)
    results, fits = compare(train, test)
    print_table(results)
    print("", *conclusions(results), sep="\n")
    print(f"\nThe figure is in {draw(fits, train, truth)}")
    print(f"All of it took {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
