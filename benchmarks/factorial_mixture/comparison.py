"""Digits as sums of parts.

A mixture says of an image which *one* of K pictures it is like. A factorial mixture says which of K
parts are in it, so that K parts make 2^K pictures. Here both take scikit-learn's handwritten digits
apart, and put held-out digits together again. How good the parts are depends on how they are
found: plain variational inference (VI) leaves some of them unused, and annealing does not.

Run it with ``python -m benchmarks.factorial_mixture.comparison``; it takes less than a minute.
"""

# Data
#
# A quarter of the images is held out. Pixels go from 0 to 1.

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedFactorialMixture


def load_data(seed=0):
    """Images for fitting and held-out images."""
    return train_test_split(load_digits().data / 16.0, random_state=seed)


# Contestants
#
# All have as many parameters: K pictures of 64 pixels. The noise, the size of the parts and how
# often they are there are learned. The default annealing cools from a high temperature, at which
# all parts are alike, to 1.

ANNEALED, PLAIN, CLUSTERS = "annealed parts", "parts by plain VI", "k-means"


def contestants(n_components, seed):
    """Unfitted estimators by name."""
    shared = {"max_iter": 300, "random_state": seed}
    return {
        ANNEALED: AnnealedFactorialMixture(n_components, **shared),
        PLAIN: AnnealedFactorialMixture(n_components, annealing="none", **shared),
        CLUSTERS: KMeans(n_components, n_init=10, random_state=seed),
    }


# Measures
#
# The mean squared error of held-out pixels, from bits: a part is there or not, and a cluster is the
# nearest one or not. For the parts also the held-out lower bound in nats per image, and how many of
# the parts are in use.


def reconstruct(estimator, X):
    """Images that are put together from bits."""
    if isinstance(estimator, KMeans):
        return estimator.cluster_centers_[estimator.predict(X)]
    return estimator.inverse_transform(np.round(estimator.transform(X)))


def measure(estimator, train, test):
    """Error, score, number of parts in use, and seconds of one fit."""
    start = time.perf_counter()
    estimator.fit(train)
    seconds = time.perf_counter() - start
    error = np.mean((reconstruct(estimator, test) - test) ** 2)
    if isinstance(estimator, KMeans):
        return error, np.nan, len(estimator.cluster_centers_), seconds
    return error, estimator.score(test), estimator.n_effective_components_, seconds


def compare(train, test, n_seeds=3, n_components=16):
    """Measures of shape (n_seeds, 4), and the fits of the first seed, by contestant.

    A first fit, which does not count, compiles the loops.
    """
    results, kept = {}, {}
    with threadpool_limits(1):
        contestants(2, 0)[ANNEALED].fit(train[:50])
        for seed in range(n_seeds):
            for name, estimator in contestants(n_components, seed).items():
                measured = measure(estimator, train, test)
                results.setdefault(name, []).append(measured)
                kept.setdefault(name, estimator)
                print(f"  seed {seed}, {name}: {measured[-1]:.1f} s", flush=True)
    return {name: np.array(runs) for name, runs in results.items()}, kept


# Results
#
# Medians over the seeds.


def print_table(results):
    """Print the medians, one line per contestant."""
    print(f"\n{'':18} {'error':>8} {'score':>8} {'in use':>7} {'seconds':>8}")
    for name, runs in results.items():
        error, score, used, seconds = np.median(runs, axis=0)
        shown = f"{score:8.2f}" if np.isfinite(score) else f"{'-':>8}"
        print(f"{name:18} {error:8.4f} {shown} {used:7.0f} {seconds:8.2f}")


def conclusions(results):
    """What the medians say about the annealed parts."""
    medians = {name: np.median(runs, axis=0) for name, runs in results.items()}
    error, score, used, _ = medians[ANNEALED]
    for name in (PLAIN, CLUSTERS):
        yield f"The error of {ANNEALED} is {error / medians[name][0]:.2f} x that of {name}."
    yield (
        f"Annealing gains {score - medians[PLAIN][1]:+.2f} nats per held-out image on plain VI, "
        f"and uses {used:.0f} parts, plain VI {medians[PLAIN][2]:.0f}."
    )


# Parts, and digits that are made of them
#
# Parts may take ink away as well (blue). The lower rows show held-out digits, and what the two
# kinds of models make of them.


def draw(fits, test, n_shown=8):
    """Write parts and reconstructions as a PNG file into the current directory."""
    parts = {name: fits[name].means_ for name in (ANNEALED, PLAIN)}
    parts[CLUSTERS] = fits[CLUSTERS].cluster_centers_
    shown = test[:n_shown]
    made = {name: reconstruct(fits[name], shown) for name in parts}
    rows = [
        *((name, pictures[:n_shown]) for name, pictures in parts.items()),
        ("held-out digits", shown),
        *((f"from {name}", pictures) for name, pictures in made.items()),
    ]
    figure, axes = plt.subplots(
        len(rows), n_shown, figsize=(n_shown, 1.1 * len(rows)), layout="constrained", squeeze=False
    )
    for (name, pictures), line in zip(rows, axes, strict=True):
        for ax in line:
            ax.axis("off")
        for picture, ax in zip(pictures, line, strict=False):
            ax.imshow(picture.reshape(8, 8), cmap="RdBu_r", vmin=-1, vmax=1)
        line[0].set_title(name, loc="left", fontsize=9)
    path = Path("factorial_mixture_comparison.png").resolve()
    figure.savefig(path, dpi=150)
    return path


def main():
    """Make the fits, print what they say, and draw it."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("The loops are compiled; the first time this takes some seconds.")
    train, test = load_data()
    results, fits = compare(train, test)
    print_table(results)
    print("", *conclusions(results), sep="\n")
    print(f"\nThe figure is in {draw(fits, test)}")


if __name__ == "__main__":
    main()
