"""Latent classes of tables with missing cells.

A mixture of binary columns describes handwritten digits whose pixels are black or white, and of
which a tenth of the pixels was lost. One fit with the defaults meets plain variational inference
(VI) with one start and with ten, and the pixels that it fills in meet those of scikit-learn's
imputers. A second mixture, of categories and real numbers at once, finds classes of wines, and a
display shows what distinguishes them.

Run it with ``python -m benchmarks.mixture.comparison``; it takes less than a minute.
"""

# Images with holes
#
# A pixel is white from half the largest grey value on. The cells to delete are drawn at random, so
# that nothing can be learned from where they are. A quarter of the images is held out.

import argparse
import time
import warnings
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import KBinsDiscretizer
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.datasets import delete_cells
from sklearn_anneal.inspection import ComponentProfilesDisplay


def load_images(share=0.1):
    """Images with holes to fit, images with holes that are held out, and the latter complete."""
    complete = (load_digits().data >= 8).astype(float)
    holes = delete_cells(complete, share, random_state=0)
    train, test = train_test_split(np.arange(len(holes)), test_size=0.25, random_state=0)
    return holes[train], holes[test], complete[test]


# Contestants
#
# All have the same model, forty components at most, and learn the same priors from the images. The
# default is deterministic annealing, which begins at a high temperature of the assignments and
# lowers it to 1. ``annealing="reheating"`` begins with plain VI; short annealed phases then try to
# leave the first optimum, and are kept if the bound is higher. All start from images that are drawn
# as components.

DEFAULT, REHEATING = "one default fit", "one fit, reheating"
RESTARTS, SINGLE = "plain VI, 10 starts", "plain VI, 1 start"


def contestants(n_components, seed):
    """Unfitted estimators by name."""
    settings = {
        RESTARTS: {"annealing": "none", "n_init": 10},
        SINGLE: {"annealing": "none"},
        DEFAULT: {},
        REHEATING: {"annealing": "reheating"},
    }
    return {
        name: AnnealedBayesianMixture(n_components, random_state=seed, **parameters)
        for name, parameters in settings.items()
    }


# Measures
#
# The lower bound per image, the log probability of the observed pixels of a held-out image (both in
# nats), the share of the deleted pixels of held-out images that are filled in wrongly, and the time
# of the fit.


def wrong_share(filled, holes, complete):
    """Share of the missing cells whose value, rounded to 0 or 1, is not the true one."""
    missing = np.isnan(holes)
    return np.mean((filled[missing] > 0.5) != complete[missing])


def measure(mixture, train, test, complete):
    """Bound and held-out log probability per image, share of wrong pixels, seconds of one fit."""
    start = time.perf_counter()
    mixture.fit(train)
    seconds = time.perf_counter() - start
    wrong = wrong_share(mixture.impute(test), test, complete)
    return mixture.lower_bound_ / len(train), mixture.score(test), wrong, seconds


# The work
#
# The contestants take turns within each seed and have one thread each, so that their times compare.
# A first fit, which does not count, compiles the loops. A line is printed as soon as a fit is done.


def compare(train, test, complete, n_seeds=3, n_components=40):
    """Measures of shape (n_seeds, 4) by contestant, and the fits of the first seed."""
    results, first_fits = defaultdict(list), {}
    with threadpool_limits(1), warnings.catch_warnings():
        # Most fits end at ``max_iter``, which is 100 passes by default.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for mixture in contestants(2, 0).values():
            measure(mixture, train[:50], test, complete)
        for seed in range(n_seeds):
            for name, mixture in contestants(n_components, seed).items():
                results[name].append(measure(mixture, train, test, complete))
                first_fits.setdefault(name, mixture)
                seconds = results[name][-1][-1]
                print(f"seed {seed + 1} of {n_seeds}: {name:22}{seconds:6.2f} s", flush=True)
    return {name: np.array(runs) for name, runs in results.items()}, first_fits


IMPUTERS = {
    "most frequent": SimpleImputer(strategy="most_frequent"),
    "KNNImputer": KNNImputer(),
    "IterativeImputer": IterativeImputer(random_state=0, max_iter=5),
}


def impute(train, test, complete):
    """Share of wrong pixels by imputer."""
    shares = {}
    for name, imputer in IMPUTERS.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            filled = imputer.fit(train).transform(test)
        shares[name] = wrong_share(filled, test, complete)
        print(f"{name:33}{time.perf_counter() - start:7.2f} s", flush=True)
    return shares


# Results
#
# The bound decides between fits of one model, and the held-out probability between models. Neither
# has to agree with the pixels that are filled in wrongly.


def print_table(results, imputed):
    """Medians over the seeds, and the range of the bounds; then the imputers."""
    print(f"\n{'':22}{'bound':>9}{'range':>19}{'held-out':>10}{'wrong':>8}{'s':>7}")
    for name, runs in results.items():
        bound, score, wrong, seconds = np.median(runs, axis=0)
        between = f"{runs[:, 0].min():.3f} .. {runs[:, 0].max():.3f}"
        print(f"{name:22}{bound:9.3f}{between:>19}{score:10.3f}{wrong:8.3f}{seconds:7.2f}")
    for name, wrong in imputed.items():
        print(f"{name:22}{wrong:46.3f}")


def conclusions(results, imputed):
    """What the medians say about each contestant against ten starts of plain VI."""
    medians = {name: np.median(runs, axis=0) for name, runs in results.items()}
    yield f"Against {RESTARTS}, medians of {len(results[RESTARTS])} seeds:"
    for name, values in medians.items():
        if name != RESTARTS:
            bound, score = (values - medians[RESTARTS])[:2]
            yield (
                f"  {name:21}bound {bound:+.3f}, held-out {score:+.3f}, "
                f"in {values[3] / medians[RESTARTS][3]:.2f} x the time"
            )
    wrong = {name: values[2] for name, values in medians.items()} | imputed
    yield f"Fewest pixels wrong: {min(wrong, key=wrong.get)}."


# Wines, by categories and numbers
#
# Every other of the thirteen measurements is cut into three levels, as if it had been estimated by
# eye, and the rest are numbers; a tenth of the cells is missing. Blocks of columns say which are
# which. Nothing is known of the three cultivars, which the classes are compared with.


def load_wines(share=0.1):
    """Table with missing cells, blocks of its columns, names of the columns, and cultivars."""
    wine = load_wine()
    X = wine.data.copy()
    levels, numbers = np.arange(0, X.shape[1], 2), np.arange(1, X.shape[1], 2)
    bins = KBinsDiscretizer(3, encode="ordinal", quantile_method="averaged_inverted_cdf")
    X[:, levels] = bins.fit_transform(X[:, levels])
    blocks = [("levels", "categorical", levels), ("numbers", "gaussian", numbers)]
    return delete_cells(X, share, random_state=0), blocks, wine.feature_names, wine.target


def fit_wines(X, blocks, n_components=3):
    """The mixture of a default fit."""
    return AnnealedBayesianMixture(n_components, emission=blocks, random_state=0).fit(X)


# Components, holes and profiles
#
# Above, the components of the digits, the largest first: the probability that a pixel is white.
# Below them, held-out images with their holes in grey, and what the mixture puts there. Then the
# profiles of the wines, one picture for each block.


def draw(mixture, test, wines, names, n_images=12):
    """Write all pictures as a PNG file into the current directory."""
    figure = plt.figure(figsize=(12, 11), layout="constrained")
    above, below = figure.subfigures(2, height_ratios=(1, 1.5))
    largest = np.argsort(-mixture.weights_, kind="stable")[:n_images]
    rows = {
        "components": mixture.emissionprob_[largest],
        "with holes": np.where(np.isnan(test), 0.5, test)[:n_images],
        "filled in": mixture.impute(test)[:n_images],
    }
    axes = above.subplots(len(rows), n_images, squeeze=False)
    for panels, (title, images) in zip(axes, rows.items(), strict=True):
        for panel in panels:
            panel.set_axis_off()
        for panel, image in zip(panels, images, strict=False):
            panel.imshow(image.reshape(8, 8), cmap="gray", vmin=0, vmax=1)
        panels[0].set_title(title, loc="left", fontsize="medium")
    for ax, block in zip(below.subplots(1, 2), wines.blocks_, strict=True):
        ComponentProfilesDisplay.from_estimator(wines, block=block, feature_names=names, ax=ax)
        ax.set_title(f"wines: {block}")
    path = Path("mixture_comparison.png").resolve()
    figure.savefig(path, dpi=120)
    return path


def main():
    """Make the fits, print what they say, and draw it."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    images = load_images()
    print(f"{len(images[0])} images to fit, {len(images[1])} held out, a tenth of pixels missing")
    print("The loops are compiled; the first time this takes some seconds.\n", flush=True)
    results, fits = compare(*images)
    imputed = impute(*images)
    print_table(results, imputed)
    print("", *conclusions(results, imputed), sep="\n")

    X, blocks, names, cultivars = load_wines()
    wines = fit_wines(X, blocks)
    agreement = adjusted_rand_score(cultivars, wines.predict(X))
    print(f"\nWines: adjusted Rand index of classes and cultivars {agreement:.2f}")
    print(f"       entropy R² of the classes {wines.relative_entropy(X):.2f}")
    print(f"\nThe figure is in {draw(fits[DEFAULT], images[1], wines, names)}")


if __name__ == "__main__":
    main()
