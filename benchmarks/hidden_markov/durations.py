"""Durations of states: shapes that are found, and what they predict.

Chains whose states last negative binomial times are drawn, and real sequences are divided into
training and held-out parts. Geometric durations, shapes that the fit chooses and, where they are
known, true shapes are compared, beside hmmlearn's maximum likelihood with the best of five starts.
``--write`` writes the page ``doc/results/durations.md``; without it the page is printed.
``--quick`` is a small run that shows that everything works and whose figures mean nothing.
``--only`` measures one section alone, and leaves the others of the page as they are.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sklearn_anneal import AnnealedHMM

from ..common.data import DataNotFoundError, load
from ..common.measuring import processor_seconds, progress
from ..common.report import Page, kept, machine, write_or_print

PAGE = Path(__file__).resolve().parents[2] / "doc" / "results" / "durations.md"
SHAPES, MEAN_DURATION = (1, 4, 12), 15.0
N_FRAMES, SEEDS, STARTS = 2000, 3, 5
# Distances of the means of neighbouring states, in standard deviations of their frames.
DISTANCES = {"apart": 3.0, "overlapping": 1.5}
# Pseudo-counts of hmmlearn's probabilities, without which a held-out sequence can be impossible.
SMOOTHING = 1.1
_QUICK: dict[str, Any] = {"max_iter": 5, "effort": 0}


def drawn_states(shapes: tuple[int, ...], n: int, rng: np.random.Generator) -> np.ndarray:
    """States in a random order, of which each segment lasts fifteen frames on average."""
    k, states = len(shapes), []
    state = int(rng.integers(k))
    while len(states) < n:
        shape = shapes[state]
        states += [state] * int(shape + rng.negative_binomial(shape, shape / MEAN_DURATION))
        state = int(state + rng.integers(1, k)) % k
    return np.array(states[:n])


def drawn_frames(states: np.ndarray, distance: float, rng: np.random.Generator) -> np.ndarray:
    """Frames of two real columns, whose means go round a circle."""
    angles = 2.0 * np.pi * states / (states.max() + 1)
    radius = distance / (2.0 * np.sin(np.pi / (states.max() + 1)))
    means = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    return means + rng.standard_normal(means.shape)


class Peer:
    """hmmlearn's maximum likelihood: the start whose training likelihood is the highest."""

    def __init__(self, n_components: int, symbols: int | None, n_starts: int, n_iter: int):
        self.how = n_components, symbols, n_starts, n_iter

    def fit(self, sequences: list[np.ndarray]) -> Peer:
        from hmmlearn import hmm

        logging.getLogger("hmmlearn").setLevel(logging.ERROR)
        k, symbols, n_starts, n_iter = self.how
        X, lengths = np.concatenate(sequences), [len(s) for s in sequences]
        best = -np.inf
        for seed in range(n_starts):
            smooth = {"transmat_prior": SMOOTHING, "startprob_prior": SMOOTHING}
            given = {"n_iter": n_iter, "random_state": seed, **smooth}
            if symbols is None:
                model = hmm.GaussianHMM(k, "full", **given)
            else:
                given |= {"n_features": symbols, "emissionprob_prior": SMOOTHING}
                model = hmm.CategoricalHMM(k, **given)
            score = model.fit(X, lengths).score(X, lengths)
            if score > best:
                best, self.model = score, model
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(X))

    def score_sequences(self, sequences: list[np.ndarray]) -> np.ndarray:
        return np.array([self.model.score(s) for s in sequences])


def accuracy(found: np.ndarray, true: np.ndarray) -> tuple[float, np.ndarray]:
    """The share of frames with the true state, and the number of the fit's for each true state."""
    k = int(max(found.max(), true.max())) + 1
    table = np.zeros((k, k))
    np.add.at(table, (true, found), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(true)), columns


def models(k: int, symbols: int | None, quick: bool) -> dict[str, Any]:
    """The models that are compared on all data."""
    kind = {} if symbols is None else {"emission": "categorical", "n_symbols": symbols}
    how = {"random_state": 0, "max_iter": 100} | kind | (_QUICK if quick else {})
    return {
        "geometric": AnnealedHMM(k, **how),
        "chosen shapes": AnnealedHMM(k, duration="auto", **how),
        "hmmlearn": Peer(k, symbols, 1 if quick else STARTS, 5 if quick else 50),
    }


def drawn(page: Page, quick: bool) -> None:
    rows = []
    n = 200 if quick else N_FRAMES
    for name, distance in DISTANCES.items():
        results: dict[str, list[tuple]] = {}
        for seed in range(1 if quick else SEEDS):
            progress(f"{name}, seed {seed}")
            rng = np.random.default_rng(seed)
            train, test = (drawn_states(SHAPES, n, rng) for _ in range(2))
            X, Y = (drawn_frames(states, distance, rng) for states in (train, test))
            every = models(3, None, quick)
            for how, fit in list(every.items()):
                seconds = processor_seconds(partial(fit.fit, [X]))
                share, order = accuracy(fit.predict(Y), test)
                shapes = getattr(fit, "duration_shapes_", None)
                found = None if shapes is None else shapes[order]
                density = float(fit.score_sequences([Y])[0]) / n
                results.setdefault(how, []).append((share, density, found, seconds))
                if how == "chosen shapes":
                    # The true shapes belong to states in the order in which this fit has them.
                    given = AnnealedHMM(**fit.get_params())
                    true = np.array(SHAPES)[np.argsort(order)]
                    means = {"means": fit.means_}
                    given.set_params(duration=true, emission_init=means)
                    seconds = processor_seconds(partial(given.fit, [X]))
                    own = accuracy(given.predict(Y), test)[0]
                    density = float(given.score_sequences([Y])[0]) / n
                    results.setdefault("true shapes", []).append((own, density, None, seconds))
        base = np.array([r[1] for r in results["geometric"]])
        for how, found in results.items():
            shares, densities = np.array([r[:2] for r in found]).T
            shapes = [r[2] for r in found if r[2] is not None and how == "chosen shapes"]
            cell = "; ".join(", ".join(map(str, s)) for s in shapes) or "–"
            times = np.median([r[3] for r in found])
            difference = densities - base
            rows.append([name, how, f"{shares.mean():.1%}", f"{difference.mean():+.4f}",
                         f"{np.sum(difference > 0)} of {len(found)}", cell,
                         f"{times:.2g} s"])  # fmt: skip
    page.section(
        "Drawn chains",
        f"Three states with two real columns last {MEAN_DURATION:g} frames on average, with the "
        f"shapes {', '.join(map(str, SHAPES))}. Neighbouring means are "
        f"{' or '.join(f'{d:g} ({n})' for n, d in DISTANCES.items())} standard deviations apart. "
        f"Each of {SEEDS} data sets has {N_FRAMES} frames for the fit, and as many others for "
        "everything in the table. *States* is the share of frames whose state the most probable "
        "path has found. The density is the mean log density per frame in nats, minus that of "
        "geometric durations. *Shapes* are those that each fit chose, in the order of the true "
        "ones. hmmlearn is its `GaussianHMM`, the best of "
        f"{STARTS} starts. Fits with the true shapes begin at the means that the fit with chosen "
        "shapes found, so that each state has its own shape. Times are medians of processor time.",
    )
    head = ["data", "model", "states", "density", "higher", "shapes", "time"]
    page.table(head, rows)


class Real(NamedTuple):
    """Real sequences for the fit and held out, numbers of states, and the number of symbols."""

    train: list[np.ndarray]
    test: list[np.ndarray]
    n_components: tuple[int, ...]
    symbols: int | None = None


def motions() -> Real:
    """Recordings of four activities, in the columns' standard deviations."""
    found = load("basic_motions.npz")
    X = found["X"].astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    each = np.split(X, np.cumsum(found["lengths"])[:-1])
    part = [
        [s for s, p in zip(each, found["split"], strict=True) if p == value] for value in (0, 2)
    ]
    return Real(*part, (8,))


def walk() -> Real:
    """One walk, every second frame: three quarters of it, and windows of the rest."""
    X = load("daphnet_s06.npz")["X"].astype(float)[::2]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    cut = 3 * len(X) // 4
    return Real([X[:cut]], np.array_split(X[cut:], 10), (8,))


def lives(name: str) -> Real:
    """Sequences of states of lives, divided so that equal ones are on the same side."""
    X = load("life_sequences.npz")[name]
    different, which = np.unique(X, axis=0, return_inverse=True)
    held = np.random.default_rng(0).random(len(different)) < 0.25
    sides = [[s.astype(int)[:, None] for s in X[held[which.ravel()] == side]] for side in (0, 1)]
    return Real(*sides, (6,), int(X.max()) + 1)


def real_data() -> dict[str, Callable[[], Real]]:
    return {
        "motions": motions,
        "walk": walk,
        "family lives": partial(lives, "biofam"),
        "school to work": partial(lives, "mvad"),
    }


def held_out(page: Page, quick: bool) -> None:
    rows = []
    for name, read in real_data().items():
        try:
            data = read()
        except DataNotFoundError as error:
            progress(str(error))
            continue
        train, test = (side[:3] if quick else side for side in (data.train, data.test))
        if quick:
            train, test = ([s[:40] for s in side] for side in (train, test))
        n = sum(map(len, test))
        for k in data.n_components[: 1 if quick else None]:
            progress(f"{name}, {k} states")
            fits = models(k, data.symbols, quick)
            times = {how: processor_seconds(partial(fit.fit, train)) for how, fit in fits.items()}
            each = {how: fit.score_sequences(test) for how, fit in fits.items()}
            usual, chosen = fits["geometric"], fits["chosen shapes"]
            difference = each["chosen shapes"] - each["geometric"]
            error = np.sqrt(len(test)) * difference.std(ddof=1) / n
            used = chosen.predict_proba(test).sum(axis=0) >= 1
            shapes = np.sort(chosen.duration_shapes_[used])
            rise = (chosen.lower_bound_ - usual.lower_bound_) / sum(map(len, train))
            rows.append([name, str(k), f"{each['geometric'].sum() / n:.3f}",
                         f"{difference.sum() / n:+.4f} ± {error:.4f}",
                         f"{(each['hmmlearn'] - each['geometric']).sum() / n:+.3f}",
                         f"{rise:+.4f}", ", ".join(map(str, shapes)),
                         f"{times['chosen shapes'] / times['geometric']:.2g}",
                         f"{times['hmmlearn'] / times['geometric']:.2g}"])  # fmt: skip
    page.section(
        "Real sequences",
        "Motions are 40 recordings of a watch for the fit and 40 for the test; the walk is every "
        "second frame of one recording, of which the last quarter is the test, in ten windows; "
        "lives are years and months with one of several states, divided so that equal sequences "
        "are on the same side. Real columns have full covariances. Densities are means per "
        "held-out frame in nats: that of geometric durations, and by how much those of chosen "
        f"shapes and of hmmlearn (the best of {STARTS} starts, by its training likelihood) are "
        "higher. The standard error is that over held-out sequences. *Bound* is by how much the "
        "lower bound per frame is higher with chosen shapes. Shapes are those of states that "
        "held-out frames have. Times are ratios to the processor time of the fit with geometric "
        "durations.",
    )
    page.table(
        ["data", "states", "geometric", "chosen shapes", "hmmlearn", "bound", "shapes",
         "time", "hmmlearn's"],
        rows,
    )  # fmt: skip


def others(page: Page, quick: bool) -> None:
    """Say why libraries with durations are not among the models."""
    page.section(
        "Other libraries",
        "hsmmlearn and ssm, which have states with durations, are not measured. pip finds no "
        "version of hsmmlearn for Python 3.11. `pip install ssm` (0.0.1) fails because its build "
        "needs Cython, which it does not declare. Built with Cython 0.29 and NumPy 1.26, it cannot "
        "be imported with autograd 1.9: it needs `autograd.scipy.misc`, which is gone.",
    )


SECTIONS: dict[str, Callable[[Page, bool], None]] = {
    "Drawn chains": drawn,
    "Real sequences": held_out,
    "Other libraries": others,
}


def written(quick: bool = False, only: str | None = None) -> str:
    page = Page()
    page.lines += ["# Durations of states", ""]
    page.lines += [f"Written by `python -m benchmarks.hidden_markov.durations`. {machine()}", ""]
    if quick:
        page.lines += ["A quick run, whose figures mean nothing.", ""]
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        for title, section in SECTIONS.items():
            if only in (None, title):
                section(page, quick)
            else:
                page.lines += kept(PAGE, title)
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    write_or_print(__doc__, PAGE, written, argv, sections=SECTIONS)


if __name__ == "__main__":
    main()
