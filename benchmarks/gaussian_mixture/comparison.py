"""Annealing instead of restarts.

Variational inference of a mixture stops at the optimum next to its start. The usual remedy is to
start ten times and to keep the best. Here *one* fit with the defaults of this package meets ten
restarts of scikit-learn's class, and one start of plain variational inference (VI), on
scikit-learn's handwritten digits: each digit alone, and all of them together, with six components.

Run it with ``python -m benchmarks.gaussian_mixture.comparison``; it takes less than a minute. With
``--methods`` the other methods of annealing compete as well, which takes a few minutes.
"""

# Data
#
# A quarter of the images is held out. Fifteen principal components of the others are the features.

import argparse
import time
import warnings
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import betaln, logsumexp, multigammaln
from scipy.stats import multivariate_t
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedBayesianGaussianMixture


def load_data():
    """Rows for fitting and held-out rows, by the name of the data set."""
    images, digits = load_digits(return_X_y=True)
    data = {}
    for name in [*range(10), "all"]:
        rows = images if name == "all" else images[digits == name]
        train, test = train_test_split(rows, test_size=0.25, random_state=0)
        pca = PCA(n_components=15, random_state=0).fit(train)
        data[f"digit {name}" if name != "all" else "all digits"] = (
            pca.transform(train),
            pca.transform(test),
        )
    return data


# Contestants
#
# The default fit begins with plain VI. Short annealed phases, called reheats, then try to leave the
# first optimum, and the priors are learned from the data. One start of plain VI has the same
# priors, so that it shows what the reheats add. scikit-learn keeps its own priors, which are fixed.
# All stop on the same rise of the bound, which scikit-learn measures in total and this package per
# row.

DEFAULT, SKLEARN, SINGLE = "one default fit", "scikit-learn, 10 starts", "plain VI, 1 start"
METHODS = (
    "deterministic", "stochastic", "tempering", "local_tempering",
    "svi_plus", "structured", "proximity",
)  # fmt: skip


def contestants(n_rows, n_components, seed, methods=()):
    """Unfitted estimators by name."""
    shared = {"n_components": n_components, "random_state": seed}
    default = AnnealedBayesianGaussianMixture(**shared)
    return {
        DEFAULT: default,
        SKLEARN: BayesianGaussianMixture(n_init=10, tol=default.tol * n_rows, **shared),
        **{
            name: AnnealedBayesianGaussianMixture(annealing=method, **shared)
            for name, method in {SINGLE: "none", **{m: m for m in methods}}.items()
        },
    }


# Measures
#
# The lower bound and the log density of held-out rows, both in nats per row, and the time of the
# fit. Each bound is the one of its own priors: learned priors raise it, so that a part of the gain
# is theirs and not that of a better optimum. The held-out density knows no prior, and therefore has
# the last word.
#
# scikit-learn's bound leaves constants out, and the density that its ``score`` reports does not
# integrate to one; so both are computed from its fitted posterior the way this package does.


def complete_bound(mixture, n_rows):
    """Bound of a fitted ``BayesianGaussianMixture`` with the constants that it leaves out."""
    k, d = mixture.means_.shape
    dof = mixture.degrees_of_freedom_prior_
    log_det = np.linalg.slogdet(mixture.covariance_prior_)[1]
    log_wishart = 0.5 * dof * (d * np.log(2) - log_det) + multigammaln(0.5 * dof, d)
    return (
        mixture.lower_bound_
        - k * betaln(1, mixture.weight_concentration_prior_)
        - k * (log_wishart - 0.25 * d * (d - 1) * np.log(np.pi))
        + 0.5 * k * d * np.log(mixture.mean_precision_prior_)
        - 0.5 * n_rows * d * np.log(2 * np.pi)
    )


def predictive_score(mixture, X):
    """Mean log posterior predictive density of a fitted ``BayesianGaussianMixture``."""
    dof = mixture.degrees_of_freedom_ + 1 - X.shape[1]
    spread = (1 + 1 / mixture.mean_precision_) * mixture.degrees_of_freedom_ / dof
    scales = spread[:, None, None] * mixture.covariances_
    components = [
        multivariate_t(mean, scale, nu).logpdf(X)
        for mean, scale, nu in zip(mixture.means_, scales, dof, strict=True)
    ]
    return logsumexp(np.transpose(components) + np.log(mixture.weights_), axis=1).mean()


def measure(mixture, train, test):
    """Lower bound per row, held-out log density per row, and seconds of one fit."""
    start = time.perf_counter()
    mixture.fit(train)
    seconds = time.perf_counter() - start
    if isinstance(mixture, BayesianGaussianMixture):
        bound, density = complete_bound(mixture, len(train)), predictive_score(mixture, test)
    else:
        bound, density = mixture.lower_bound_, mixture.score(test)
    return bound / len(train), density, seconds


# The work
#
# The contestants take turns within each seed and have one thread each, so that their times compare.
# A first fit of each, which does not count, compiles the loops that it needs.


def compare(data, n_seeds=3, n_components=6, methods=()):
    """Measures of shape (n_seeds, 3) by contestant, for one data set after the other."""
    with threadpool_limits(1), warnings.catch_warnings():
        # Some fits end at ``max_iter``, which is 100 passes by default in both packages.
        warnings.simplefilter("ignore", ConvergenceWarning)
        train, test = next(iter(data.values()))
        for mixture in contestants(len(train), n_components, 0, methods).values():
            measure(mixture, train, test)
        for data_name, (train, test) in data.items():
            results = defaultdict(list)
            for seed in range(n_seeds):
                fits = contestants(len(train), n_components, seed, methods)
                for name, mixture in fits.items():
                    results[name].append(measure(mixture, train, test))
            yield data_name, {name: np.array(runs) for name, runs in results.items()}


# Results
#
# A line is printed as soon as its data set is done.

COLUMNS = {"default": DEFAULT, "sklearn": SKLEARN, "plain": SINGLE}
WIDTHS = {"default": 8, "sklearn": 8, "plain": 7}


def medians(rows):
    """Median bound, density and seconds over the seeds, by contestant."""
    return {name: np.median(runs, axis=0) for name, runs in rows.items()}


def print_table(results):
    """Print medians over the seeds, line by line as they come, and return all results."""
    print(*(f"{column}: {name}" for column, name in COLUMNS.items()), sep="\n")
    heads = ("lower bound", "held-out density", "seconds")
    print(f"\n{'':10}", *(f"{head:>23}" for head in heads), sep="")
    print(
        f"{'':10}", *(f"{name:>{width}}" for _ in heads for name, width in WIDTHS.items()), sep=""
    )
    kept = {}
    for data_name, rows in results:
        kept[data_name] = rows
        values = np.array([medians(rows)[name] for name in COLUMNS.values()])
        cells = [
            f"{value:{width}.{digits}f}"
            for column, digits in zip(values.T, (2, 2, 3), strict=True)
            for width, value in zip(WIDTHS.values(), column, strict=True)
        ]
        print(f"{data_name:10}", *cells, sep="", flush=True)
    return kept


def conclusions(results):
    """What the medians say about each contestant against ten starts of scikit-learn."""
    table = [medians(rows) for rows in results.values()]
    peer = np.array([row[SKLEARN] for row in table])
    yield f"Against {SKLEARN}, on {len(table)} data sets:"
    for name in table[0]:
        if name != SKLEARN:
            values = np.array([row[name] for row in table])
            bounds, densities, _ = (values > peer).sum(axis=0)
            ratio = np.median(values[:, 2] / peer[:, 2])
            yield (
                f"  {name:17} bound better on {bounds}, density better on {densities}, "
                f"in {ratio:.2f} x the time"
            )


# The gains, data set by data set
#
# Bars show what the default fit gained on ten starts of scikit-learn's class, and points what one
# start of plain VI did. Lines are the ranges of the bars over the seeds.


def draw(results):
    """Write the gains in bound and held-out density as a PNG file into the current directory."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), sharey=True, layout="constrained")
    places = np.arange(len(results))
    for column, (ax, title) in enumerate(
        zip(axes, ("Lower bound, each at its own priors", "Held-out log density"), strict=True)
    ):
        peer = np.array([medians(rows)[SKLEARN][column] for rows in results.values()])
        ours = np.array([medians(rows)[DEFAULT][column] for rows in results.values()]) - peer
        single = np.array([medians(rows)[SINGLE][column] for rows in results.values()]) - peer
        runs = np.array([rows[DEFAULT][:, column] for rows in results.values()]) - peer[:, None]
        ax.barh(places, ours, color="#2166ac", label=DEFAULT)
        ax.hlines(places, runs.min(axis=1), runs.max(axis=1), color="black", linewidth=1)
        ax.scatter(single, places, color="#f4a582", edgecolors="black", zorder=3, label=SINGLE)
        ax.axvline(0, color="0.2", linewidth=0.8)
        ax.set(title=title, xlabel="Gain on ten starts, nats per row")
    axes[0].set_yticks(places, results)
    axes[0].invert_yaxis()
    axes[1].legend()
    path = Path("gaussian_mixture_comparison.png").resolve()
    figure.savefig(path, dpi=150)
    return path


def main():
    """Make the fits, print what they say, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", action="store_true", help="compare all annealing methods")
    methods = METHODS if parser.parse_args().methods else ()
    print("The loops are compiled; the first time this takes some seconds.\n")
    results = print_table(compare(load_data(), methods=methods))
    print("", *conclusions(results), sep="\n")
    print(f"\nThe figure is in {draw(results)}")


if __name__ == "__main__":
    main()
