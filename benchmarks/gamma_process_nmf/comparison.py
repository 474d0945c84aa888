"""Counts into parts, and how many parts there are.

Non-negative matrix factorisation writes every row of counts as a sum of parts. scikit-learn's NMF
has to be told how many. A gamma process over the parts finds out in one fit: it begins with more
than enough, and the weights of those that the counts do not need fall to zero. Here both take
scikit-learn's handwritten digits apart, whose 64 pixels hold counts from 0 to 16.

Run it with ``python -m benchmarks.gamma_process_nmf.comparison``; it takes about a minute.
"""

# Data
#
# A quarter of the images is held out.

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_matrix
from scipy.stats import poisson
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.metrics import split_documents


def load_data(seed=0):
    """Images for fitting and held-out images, as counts."""
    return train_test_split(load_digits().data, random_state=seed)


# Contestants
#
# Three fits with a gamma process: plain variational inference (VI), reheating, which leaves its
# optima again, both with given priors, and the default, which reheats and learns its priors. NMF
# minimises the same Kullback-Leibler divergence, for several numbers of parts.

PLAIN, REHEATED, DEFAULT = "plain VI, given priors", "reheating, given priors", "default"


def contestants(n_components=50, sizes=(5, 10, 20, 30), seed=0):
    """Unfitted estimators by name."""
    given = {"activation_prior": 0.1, "component_prior": 0.1, "concentration": 1.0}
    shared = {"max_iter": 300, "random_state": seed}
    found = {
        PLAIN: AnnealedGammaProcessNMF(n_components, annealing="none", **given, **shared),
        REHEATED: AnnealedGammaProcessNMF(n_components, annealing="reheating", **given, **shared),
        DEFAULT: AnnealedGammaProcessNMF(n_components, **shared),
    }
    for size in sizes:
        found[f"NMF, {size} parts"] = NMF(
            size,
            beta_loss="kullback-leibler",
            solver="mu",
            init="nndsvda",
            max_iter=500,
            random_state=seed,
        )
    return found


# Measures
#
# How well one half of the counts of a held-out image predicts the other, in nats per pixel, which
# is ``score``. For NMF it is computed here: its activations are those of one half. A pixel to which
# NMF gives a rate of 0 could never hold ink, so that its rates are taken to be at least 0.01. NMF
# has no lower bound on the evidence of its counts, by which fits and priors could be compared
# without held-out images.


def score(estimator, X):
    """Log-likelihood of one half of the counts given the other, per pixel."""
    if isinstance(estimator, AnnealedGammaProcessNMF):
        return estimator.score(X)
    observed, held_out = (half.toarray() for half in split_documents(csr_matrix(X)))
    rates = estimator.transform(observed) @ estimator.components_
    return poisson(np.maximum(rates, 0.01)).logpmf(held_out).mean()


def parts_in_use(estimator):
    """The number of parts that a fit uses."""
    if isinstance(estimator, AnnealedGammaProcessNMF):
        return estimator.n_effective_components_
    return len(estimator.components_)


def compare(train, test, **how):
    """Number of parts, bound per image, score, training error and seconds, and fits, by name.

    A first fit, which does not count, compiles the loops.
    """
    results, fits = {}, {}
    with threadpool_limits(1):
        AnnealedGammaProcessNMF(2, annealing="none", tol=1e9).fit(train[:50])
        for name, estimator in contestants(**how).items():
            start = time.perf_counter()
            fits[name] = estimator.fit(train)
            seconds = time.perf_counter() - start
            bound = getattr(estimator, "lower_bound_", np.nan) / len(train)
            error, predicted = estimator.reconstruction_err_, score(estimator, test)
            results[name] = parts_in_use(estimator), bound, predicted, error, seconds
            print(f"  {name}: {seconds:.1f} s", flush=True)
    return results, fits


# Results
#
# Many parts always lower the error of the images that were fitted. The gamma process decides by the
# bound how many are worth their while; NMF needs held-out images for that. Reheating raises the
# bound and leaves fewer parts in use, which is not the same as to predict better.


def print_table(results):
    """Print one line per contestant."""
    print(f"\n{'':24} {'parts':>6} {'bound':>8} {'score':>8} {'error':>8} {'seconds':>8}")
    for name, (n_parts, bound, predicted, error, seconds) in results.items():
        shown = f"{bound:8.2f}" if np.isfinite(bound) else f"{'-':>8}"
        print(f"{name:24} {n_parts:6d} {shown} {predicted:8.3f} {error:8.1f} {seconds:8.1f}")


def best_of_nmf(results):
    """The name of the NMF with the highest score."""
    return max((name for name in results if name.startswith("NMF")), key=lambda n: results[n][2])


def conclusions(results):
    """What the scores say about the gamma process and about NMF."""
    best = best_of_nmf(results)
    for name in (PLAIN, REHEATED, DEFAULT):
        n_parts, bound, predicted, *_ = results[name]
        yield (
            f"One fit ({name}) uses {n_parts} parts, and scores\n"
            f"  {predicted - results[best][2]:+.3f} nats per pixel against {best}, the best of NMF."
        )
    plain, reheated, default = (results[name][1] for name in (PLAIN, REHEATED, DEFAULT))
    yield (
        f"Reheating changes the bound by {reheated - plain:+.2f} nats per image, and the\n"
        f"  learned priors change it by {default - reheated:+.2f} on top of that."
    )


# Parts
#
# The parts that the default fit uses, with their shares of all counts, and below them those of NMF
# with the highest score, most frequent first.


def shares(estimator, X):
    """The share of all expected counts that each part has."""
    counts = estimator.transform(X).sum(axis=0) * estimator.components_.sum(axis=1)
    return counts / counts.sum()


def draw(results, fits, train, n_shown=12):
    """Write parts with their weights as a PNG file into the current directory."""
    names = [DEFAULT, best_of_nmf(results)]
    figure, axes = plt.subplots(
        4, n_shown // 2, figsize=(n_shown // 2, 5), layout="constrained", squeeze=False
    )
    for name, rows in zip(names, (axes[:2], axes[2:]), strict=True):
        weights = shares(fits[name], train)
        order = np.argsort(-weights)[: parts_in_use(fits[name])]
        for ax in rows.flat:
            ax.axis("off")
        for k, ax in zip(order, rows.flat, strict=False):
            ax.imshow(fits[name].components_[k].reshape(8, 8), cmap="Greys", vmin=0)
            ax.text(0.5, -0.02, f"{weights[k]:.0%}", transform=ax.transAxes, fontsize=8,
                    ha="center", va="top")  # fmt: skip
        rows[0, 0].set_title(name, loc="left", fontsize=9)
    path = Path("gamma_process_nmf_comparison.png").resolve()
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
    print(f"\nThe figure is in {draw(results, fits, train)}")


if __name__ == "__main__":
    main()
