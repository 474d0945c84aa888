"""Lines of a photograph cut into states.

A hidden Markov model reads a photograph of the Summer Palace in Beijing, which comes with
scikit-learn, line by line: a line is a sequence, a pixel a frame of three colour values. Its states
become sky, roofs, walls and trees, without having been told of any. Plain variational inference
(VI) with one start and with ten meets one annealed fit of each kind.

Run it with ``python -m benchmarks.hidden_markov.comparison``; it takes less than a minute.
"""

# Lines
#
# Squares of five times five pixels are averaged. Every fourth line is held out.

import argparse
import time
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedHMM, split_sequences
from sklearn_anneal.inspection import (
    LowerBoundDisplay,
    StateSequenceDisplay,
    TransitionMatrixDisplay,
)


def load_lines(size=5):
    """All lines of the photograph, from 0 to 1, of shape (n_lines, n_pixels, 3)."""
    photograph = load_sample_image("china.jpg") / 255.0
    height, width = (n // size for n in photograph.shape[:2])
    squares = photograph[: height * size, : width * size].reshape(height, size, width, size, 3)
    return squares.mean(axis=(1, 3))


def split_lines(lines):
    """The lines to fit and those held out, as two lists of sequences."""
    held_out = np.arange(len(lines)) % 4 == 2
    return list(lines[~held_out]), list(lines[held_out])


# Contestants
#
# All have the same model, eight states of colours with full covariances, and the same starts. They
# learn the same priors from the lines. The default, ``"reheating"``, begins with plain VI; short
# annealed phases, called reheats, then try to leave the first optimum.

RESTARTS, SINGLE = "plain VI, 10 starts", "plain VI, 1 start"
ANNEALED = ("reheating", "deterministic", "stochastic", "tempering")


def contestants(n_components, seed):
    """Unfitted estimators by name."""
    ours = {
        RESTARTS: {"annealing": "none", "n_init": 10},
        SINGLE: {"annealing": "none"},
        **{name: {"annealing": name} for name in ANNEALED},
    }
    return {
        name: AnnealedHMM(n_components, max_iter=500, tol=1e-5, random_state=seed, **settings)
        for name, settings in ours.items()
    }


# Measures
#
# The lower bound per frame, the log-likelihood per frame of the lines held out (both in nats), and
# the time of the fit.


def measure(hmm, train, test):
    """Lower bound and held-out log-likelihood per frame, and seconds of one fit."""
    start = time.perf_counter()
    hmm.fit(train)
    seconds = time.perf_counter() - start
    return hmm.lower_bound_ / sum(map(len, train)), hmm.score(test), seconds


# The work
#
# The methods take turns within each seed and have one thread each, so that their times compare.
# First fits to a few lines, which do not count, compile the loops that each of them needs. A line
# is printed as soon as a fit is done.


def compare(train, test, n_seeds=3, n_components=8):
    """Measures of shape (n_seeds, 3) by method, and the fits of the first seed."""
    results, first_fits = defaultdict(list), {}
    with threadpool_limits(1):
        for hmm in contestants(n_components, 0).values():
            hmm.fit(train[:5])
        for seed in range(n_seeds):
            for method, hmm in contestants(n_components, seed).items():
                results[method].append(measure(hmm, train, test))
                first_fits.setdefault(method, hmm)
                seconds = results[method][-1][-1]
                print(f"seed {seed + 1} of {n_seeds}: {method:21}{seconds:7.2f} s", flush=True)
    return {method: np.array(runs) for method, runs in results.items()}, first_fits


# Results
#
# The best bound and the best likelihood have a star.


def print_table(results):
    """Medians over the seeds, and the range of the bounds."""
    medians = {method: np.median(runs, axis=0) for method, runs in results.items()}
    best = np.max(list(medians.values()), axis=0)
    print(f"\n{'':21}{'bound':>8}{'range':>18}{'held-out':>11}{'s':>9}")
    for method, values in medians.items():
        bound, score, seconds = values
        stars = np.where(values == best, "*", " ")
        bounds = results[method][:, 0]
        print(
            f"{method:21}{bound:8.3f}{stars[0]}{f'{bounds.min():.3f} .. {bounds.max():.3f}':>17}"
            f"{score:11.3f}{stars[1]}{seconds:8.2f}"
        )


def conclusions(results):
    """What the medians say about each method against ten starts of plain VI."""
    medians = {method: np.median(runs, axis=0) for method, runs in results.items()}
    yield f"Against {RESTARTS}, medians of {len(results[RESTARTS])} seeds:"
    for method, values in medians.items():
        if method != RESTARTS:
            bound, score = (values - medians[RESTARTS])[:2]
            yield (
                f"  {method:19}bound {bound:+.3f}, held-out {score:+.3f}, "
                f"in {values[2] / medians[RESTARTS][2]:.2f} x the time"
            )


# The states, drawn
#
# Fits of the first seed. Each pixel has the mean colour of its state on the most probable path; the
# lines know nothing of each other. The line that is marked follows as a series over its states,
# then the bounds pass by pass and the transitions, most of which are none: a state stays.


def paint(hmm, lines):
    """The picture of the states, each in its mean colour."""
    states = hmm.predict(list(lines))
    return np.stack(split_sequences(hmm.means_.clip(0, 1)[states], [lines.shape[1]] * len(lines)))


def draw(fits, lines, method="reheating", line=46):
    """Write the segmentations and what is behind them as a PNG file into the current directory."""
    figure = plt.figure(figsize=(12, 10.5), layout="constrained")
    above, middle, below = figure.subfigures(3, height_ratios=(2.3, 2, 3))
    pictures = {"photograph": lines} | {
        f"{name}: bound {fits[name].lower_bound_:,.0f} nats": paint(fits[name], lines)
        for name in (SINGLE, method)
    }
    for ax, (title, picture) in zip(above.subplots(1, 3), pictures.items(), strict=True):
        ax.imshow(picture)
        ax.axhline(line, color="black", linewidth=1, linestyle="--")
        ax.set_title(title)
        ax.set_axis_off()
    inks = {"red": "#d7191c", "green": "#1a9641", "blue": "#2166ac"}
    series = StateSequenceDisplay.from_estimator(
        fits[method],
        lines[line],
        ax=middle.subplots(),
        colors=fits[method].means_.clip(0, 1),
        line_kwargs=[{"label": name, "color": color} for name, color in inks.items()],
        band_kwargs={"alpha": 0.75},
    )
    series.ax_.set(xlabel="Pixel of the marked line", ylabel="Colour value")
    left, right = below.subplots(1, 2, width_ratios=(3, 2))
    LowerBoundDisplay.from_estimators({m: fits[m] for m in (SINGLE, *ANNEALED)}, ax=left)
    TransitionMatrixDisplay.from_estimator(fits[method], ax=right)
    path = Path("hidden_markov_comparison.png").resolve()
    figure.savefig(path, dpi=150)
    return path


def main():
    """Make the fits, print what they say, and draw it."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    began = time.perf_counter()
    lines = load_lines()
    train, test = split_lines(lines)
    print(
        f"{len(lines)} lines of {lines.shape[1]} pixels: {len(train)} to fit, {len(test)} held out"
    )
    print("The loops are compiled; the first time this takes some seconds.\n", flush=True)
    results, fits = compare(train, test)
    print_table(results)
    print("", *conclusions(results), sep="\n")
    print(f"\nThe figure is in {draw(fits, lines)}")
    print(f"All of it took {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
