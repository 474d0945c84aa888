"""Speed of spike-and-slab factor analysis against mofapy2, matrix products and imputation.

The rows are drawn, data sets of scikit-learn, or files that are not shipped: ``mnist.npz`` with
``images`` (n, 784), ``libras.npz`` and ``character_trajectories.npz`` with ``X`` and ``lengths`` of
frames, and ``wine_quality.npz`` (6497, 11), ``vowels_train.npz`` (4274, 12) and
``daphnet_s06.npz`` (7040, 9) with ``X``. ``benchmarks/common/speed.py`` says how the command is
run. mofapy2 is left out with a message where it is not installed.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.decomposition import FactorAnalysis
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedSpikeSlabFactorAnalysis

from ..common import speed
from ..common.data import load, read_each
from ..common.measuring import milliseconds, progress, reached, spread
from ..common.peers import is_there
from ..common.report import Page
from ..common.speed import Fit, Shape, Speed, add_methods, of_passes, pass_times, products

try:
    from mofapy2.run.entry_point import entry_point
except ImportError:
    entry_point = None

PEERS = {"mofapy2": entry_point}
# How many times as fast as an iteration of mofapy2 a pass should be.
TARGET = 5.0
# Share of the cells that are deleted.
_MISSING = 0.1
# Rounds in which factor analysis fills in the missing cells; the last number is a limit for rounds
# that end when the cells move by less than the change, in standard deviations.
_ROUNDS_OF_PEER, _CHANGE = (3, 10, 20), 1e-3
# The settings of factors that are on in all rows, with which cells are filled in quickly.
QUICKLY = {"activation_prior": 1.0, "tol": 1.0}
# The largest number of columns for which a regression of each on the others is waited for, and as
# many factors as columns are.
_FEW_COLUMNS = 60
# Numbers of factors, beside that of the columns, and of Gaussians from which held-out cells choose.
_FACTORS_TO_CHOOSE, _GAUSSIANS_TO_CHOOSE = (2, 5, 10, 20, 40), (1, 5, 10)


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run.

    Attributes
    ----------
    peer : Shape
        The shape that is compared with mofapy2.
    methods : Shape
    iterations : tuple of int
        Numbers of iterations of mofapy2 whose difference is measured.
    dense : tuple of (str, int)
        Names of tables whose cells are filled in quickly and to the end, and K.
    open_numbers : tuple of str
        Names of tables for which held-out cells choose K.
    variances : tuple of (str, int)
        Names of tables that are fitted with learned and given variances of loadings, and K.
    """

    peer: Shape = Shape(2_000, 1_000, 20)
    methods: Shape = Shape(5_000, 64, 16)
    iterations: tuple[int, int] = (2, 7)
    dense: tuple[tuple[str, int], ...] = (
        *(("MNIST", 20), ("MNIST", 80), ("digits", 20), ("smooth pictures", 20)),
        *(("gestures", 15), ("breast cancer", 10), ("wine quality", 5), ("sparse factors", 8)),
    )
    open_numbers: tuple[str, ...] = (
        *("digits", "breast cancer", "wine quality", "wine", "diabetes", "gestures"),
        *("smooth pictures", "sparse factors", "vowels", "walk", "letters", "falling spectrum"),
    )
    tables: tuple[tuple[str, int], ...] = (
        *(("digits", 20), ("smooth pictures", 20), ("breast cancer", 10), ("diabetes", 5)),
        *(("wine", 5), ("sparse factors", 8), ("sparse factors", 30)),
        *(("sparse factors, little noise", 5), ("digits with margins", 20)),
    )
    variances: tuple[tuple[str, int], ...] = (
        *(("digits", 20), ("smooth pictures", 20), ("gestures", 15), ("breast cancer", 8)),
        *(("wine quality", 5), ("wine quality", 11), ("wine", 5), ("diabetes", 5), ("vowels", 6)),
        *(("walk", 4), ("letters", 15), ("falling spectrum", 10), ("sparse factors", 4)),
        *(("sparse factors", 8), ("sparse factors", 16), ("sparse factors, little noise", 5)),
    )
    masks: int = 3
    masks_of_dense: int = 5


FULL = Size()
_SMALL = Shape(200, 16, 4)
QUICK = Size(
    rounds=1,
    passes=(1, 3),
    quick=True,
    peer=_SMALL,
    methods=_SMALL,
    iterations=(1, 2),
    dense=(("wine", 2),),
    open_numbers=("diabetes",),
    tables=(("wine", 2),),
    variances=(("wine", 2),),
    masks=1,
    masks_of_dense=1,
)


@cache
def rows(shape: Shape) -> np.ndarray:
    """Rows with sparse factors and sparse loadings."""
    rng = np.random.default_rng(0)
    size = (shape.n_components, shape.n_features)
    loadings = rng.standard_normal(size) * (rng.random(size) < 0.3)
    size = (shape.n_rows, shape.n_components)
    factors = rng.standard_normal(size) * (rng.random(size) < 0.3)
    return factors @ loadings + rng.standard_normal((shape.n_rows, shape.n_features))


@cache
def with_gaps(shape: Shape) -> np.ndarray:
    """The same with missing cells."""
    X = rows(shape).copy()
    X[np.random.default_rng(1).random(X.shape) < _MISSING] = np.nan
    return X


def our_fit(X: np.ndarray, k: int, annealing: str = "none") -> Fit:
    settings: dict[str, Any] = {"random_state": 0, "tol": 0, "activation_prior": "learned"}
    if annealing == "reheating":
        settings["effort"] = 0
    return lambda n: of_passes(AnnealedSpikeSlabFactorAnalysis(k, **settings), annealing, n).fit(X)


def peer_seconds(X: np.ndarray, k: int, n_iterations: int) -> float:
    """Seconds of iterations of mofapy2 with spike-and-slab weights, without building its model."""
    with contextlib.redirect_stdout(io.StringIO()):
        model = entry_point()
        model.set_data_options()
        model.set_data_matrix([[X]])
        model.set_model_options(factors=k, spikeslab_weights=True, ard_weights=True)
        model.set_train_options(
            iter=n_iterations, convergence_mode="slow", seed=1, verbose=False, quiet=True
        )
        model.build()
        start = time.process_time()
        model.run()
        return time.process_time() - start


def measure_peer(page: Page, size: Size) -> None:
    shape = size.peer
    page.section(
        "A pass against an iteration of mofapy2",
        f"{shape} rows × columns, K = {shape.n_components}, without annealing and with learned "
        "noise and probabilities, complete bound included: a fit of "
        f"{size.passes[1]} passes less one of {size.passes[0]}, divided by the difference. "
        f"*mofapy2*: {size.iterations[1]} iterations of its training less {size.iterations[0]}, "
        "with spike-and-slab weights and one Gaussian view; it computes its bound rarely. *Missing "
        f"cells*: {_MISSING:.0%} of ours are deleted, so that every row has a matrix of its own. "
        "*Products*: those of the loadings and of the factors with X. Ratio: mofapy2's time over "
        f"ours, median and quartiles of {size.rounds} rounds. Target: {TARGET:g}.",
    )
    k, X, gaps = shape.n_components, rows(shape), with_gaps(shape)
    few, many = size.iterations
    there = is_there("mofapy2", entry_point)
    found: dict[str, list[np.ndarray]] = {"complete": [], "missing cells": [], "products": []}
    peers: list[float] = []
    one_round = replace(size, rounds=1)
    loadings = np.random.default_rng(1).random((k, X.shape[1]))
    for i in range(size.rounds):
        progress(f"peer, round {i + 1} of {size.rounds}")
        fits = {"complete": our_fit(X, k), "missing cells": our_fit(gaps, k)}
        times = pass_times(fits, {"products": products(X, loadings)}, one_round)
        for name, values in times.items():
            found[name].append(values)
        if there:
            seconds = peer_seconds(X, k, many) - peer_seconds(X, k, few)
            peers.append(seconds / (many - few))
    lines = []
    for name, values in found.items():
        ours = np.concatenate(values)
        each = 1e9 * float(np.median(ours)) / (X.size * k)
        row = [name, milliseconds(ours), f"{each:.2f}"]
        if there and name == "products":
            row += ["–"] * 3
        elif there:
            ratio = np.array(peers) / ours
            held = reached(bool(np.median(ratio) >= TARGET)) if name == "complete" else "–"
            row += [milliseconds(np.array(peers)), spread(ratio, 1), held]
        lines.append(row)
    header = ["", "ms", "ns per cell and factor"]
    page.table(header + (["mofapy2, ms", "ratio", "target"] if there else []), lines)


def measure_methods(page: Page, size: Size) -> None:
    shape = size.methods
    page.section(
        "What annealing costs per pass",
        'Ratio of the time of an annealed pass to that of one with `annealing="none"`, each method '
        f"in turns with it; {shape} rows × columns, K = {shape.n_components}. In annealed passes "
        "rows start anew, with five sweeps at most. Median and quartiles of "
        f"{size.rounds} rounds.",
    )
    X = rows(shape)
    add_methods(page, lambda name: our_fit(X, shape.n_components, name), size)


@cache
def pictures(name: str) -> np.ndarray:
    """Pictures with columns of variance 1.

    They are 400 of scikit-learn's digits, the middle 16 × 16 cells of 800 digits of MNIST, or 400
    smooth pictures: ten of each of some subjects, whose coefficients in a cosine basis fall with
    the frequency, and noise.
    """
    rng = np.random.default_rng(0)
    if name == "digits":
        X = load_digits().data[:400]
    elif name == "MNIST":
        images = load("mnist.npz")["images"].reshape(-1, 28, 28)
        X = images[rng.permutation(len(images))[:800], 6:22, 6:22].reshape(800, -1) / 255.0
    else:
        side = np.arange(16)
        basis = np.cos(np.pi * np.outer(side + 0.5, side) / 16)
        size = (1.0 + np.hypot.outer(side, side).ravel()) ** -1.6
        subjects = np.repeat(rng.standard_normal((40, 256)), 10, axis=0)
        X = (subjects + 0.7 * rng.standard_normal((400, 256))) * size @ np.kron(basis, basis).T
        X += 0.25 * X.std() * rng.standard_normal(X.shape)
    # The margins of digits are the same in almost all of them.
    X = X[:, X.std(axis=0) > 0.1 * X.std()]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def filled_by_peer(
    X: np.ndarray, k: int, n_rounds: int = _ROUNDS_OF_PEER[0], tol: float = 0.0
) -> np.ndarray:
    """Rows whose missing cells were filled in by rounds of scikit-learn's factor analysis."""
    gone = np.isnan(X)
    filled = np.where(gone, np.nanmean(X, axis=0), X)
    for _ in range(n_rounds):
        peer = FactorAnalysis(k, random_state=0).fit(filled)
        cells = (peer.transform(filled) @ peer.components_ + peer.mean_)[gone]
        moved = np.sqrt(np.mean((cells - filled[gone]) ** 2))
        filled[gone] = cells
        if moved < tol:
            break
    return filled


def filled_by_ours(X: np.ndarray, k: int, **settings: Any) -> np.ndarray:
    """Rows whose missing cells were filled in by a fit of ours."""
    model = AnnealedSpikeSlabFactorAnalysis(k, random_state=0, **settings).fit(X)
    return np.asarray(model.impute(X))


def filled_by_regressions(X: np.ndarray, k: int) -> np.ndarray | None:
    """Rows whose missing cells were filled in by Bayesian regressions on the other columns."""
    if X.shape[1] > _FEW_COLUMNS:
        return None
    return np.asarray(IterativeImputer(random_state=0).fit_transform(X))


def as_code(settings: dict[str, Any]) -> str:
    """Settings as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def measure_dense(page: Page, size: Size) -> None:
    """Errors and times of cells of dense tables that are filled in."""
    few, more, many = _ROUNDS_OF_PEER
    page.section(
        "Missing cells of dense pictures and other tables",
        f"{_MISSING:.0%} of the cells are missing, in {size.masks_of_dense} ways; errors are roots "
        "of the mean square in them, in standard deviations of the columns, and seconds processor "
        "time, means and medians over the ways, in which all run in turns. *FA*: scikit-learn's "
        f"FactorAnalysis, after {few} and {more} rounds of which each fits and fills in, and to "
        f"convergence (cells move by less than {_CHANGE:g}, or {many} rounds). *Regressions*: its "
        f"IterativeImputer, up to {_FEW_COLUMNS} columns. Ours: *quick*, with "
        f"`{as_code(QUICKLY)}`; *Gaussian*, with `activation_prior=1.0` to convergence; "
        "*default*, which compares kinds of factors first. MNIST: the middle 16 × 16 cells of 800 "
        "digits; smooth pictures: drawn, 400 of 16 × 16; gestures: tracks of 360 hands; wine "
        "quality: 1,500 rows; sparse factors: drawn, on in 30 % of the rows. *Quick ratio*: "
        f"quick over FA after {few} rounds, median and quartiles. *In time*: the error of FA after "
        f"{few} rounds, in at most twice its time. *Better*: the error of the default is below "
        "those of all other libraries.",
    )
    ways: dict[str, Callable[[np.ndarray, int], np.ndarray | None]] = {
        f"FA, {few}": filled_by_peer,
        f"FA, {more}": partial(filled_by_peer, n_rounds=more),
        "FA, converged": partial(filled_by_peer, n_rounds=many, tol=_CHANGE),
        "regressions": filled_by_regressions,
        "quick": partial(filled_by_ours, **QUICKLY),
        "Gaussian": partial(filled_by_ours, activation_prior=1.0),
        "default": filled_by_ours,
    }
    lines = []
    for (name, k), X in read_each(size.dense, lambda case: table(case[0])):
        filled_by_ours(np.where(X > X.mean(axis=0) + 1.0, np.nan, X)[:40], 2)  # compiles
        shape = (len(ways), size.masks_of_dense)
        errors, seconds = np.full(shape, np.nan), np.full(shape, np.nan)
        for j in range(size.masks_of_dense):
            progress(f"dense tables, {name}, K = {k}, {j + 1} of {size.masks_of_dense}")
            gone = np.random.default_rng(j).random(X.shape) < _MISSING
            for i, fill in enumerate(ways.values()):
                start = time.process_time()
                filled = fill(np.where(gone, np.nan, X), k)
                if filled is not None:
                    seconds[i, j] = time.process_time() - start
                    errors[i, j] = np.sqrt(np.mean((filled - X)[gone] ** 2))
        mean, middle = errors.mean(axis=1), np.median(seconds, axis=1)
        cells = [
            "–" if np.isnan(error) else f"{error:.4f} in {time_of:.2f} s"
            for error, time_of in zip(mean, middle, strict=True)
        ]
        ratio = seconds[4] / seconds[0]
        in_time = bool(mean[4] <= mean[0] and np.median(ratio) <= 2.0)
        better = bool(mean[6] < np.nanmin(mean[:4]))
        lines.append([name, str(k), *cells, spread(ratio, 1), reached(in_time), reached(better)])
    page.table(["table", "K", *ways, "quick ratio", "in time", "better"], lines)


def filled_by_mixture(X: np.ndarray, k: int) -> np.ndarray:
    """Rows whose missing cells were filled in by a mixture of Gaussians without annealing."""
    mixture = AnnealedBayesianGaussianMixture(k, annealing="none", random_state=0).fit(X)
    return np.asarray(mixture.impute(X))


def filled_by_chosen(
    fill: Callable[..., Any], X: np.ndarray, numbers: tuple[int, ...], seed: int
) -> tuple[float, float, int]:
    """The error of cells that are deleted, the seconds, and the number that was chosen.

    It is the number for which a tenth of the other cells, held out, has the smallest error.
    """
    if not numbers:
        return np.nan, np.nan, 0
    gone, held = (np.random.default_rng(s).random(X.shape) < _MISSING for s in (seed, 100 + seed))
    gaps = np.where(gone, np.nan, X)
    start = time.process_time()
    best, least = numbers[0], np.inf
    for k in numbers if len(numbers) > 1 else ():
        error = np.mean((fill(np.where(held, np.nan, gaps), k) - X)[held & ~gone] ** 2)
        best, least = (k, error) if error < least else (best, least)
    filled = fill(gaps, best)
    seconds = time.process_time() - start
    return float(np.sqrt(np.mean((filled - X)[gone] ** 2))), seconds, best


def measure_numbers(page: Page, size: Size) -> None:
    """Errors of missing cells with the number of factors that held-out cells choose."""
    page.section(
        "Missing cells with a number of factors that held-out cells choose",
        f"{_MISSING:.0%} of the cells are missing, in {size.masks} ways; errors are roots of the "
        "mean square in them, in standard deviations of the columns, and seconds processor time, "
        "choice included; means over the ways. K, in brackets, is the number among "
        f"{', '.join(map(str, _FACTORS_TO_CHOOSE))}, or all columns up to {_FEW_COLUMNS}, with the "
        f"smallest error in a further {_MISSING:.0%} of the cells, held out of fits with each. "
        f"*FA*: scikit-learn's FactorAnalysis, after {_ROUNDS_OF_PEER[1]} rounds. *Regressions*: "
        f"its IterativeImputer, which has no K, up to {_FEW_COLUMNS} columns. Ours: *Gaussian*, "
        "with `activation_prior=1.0`, with that K and with as many factors as columns; *mixture*, "
        '`AnnealedBayesianGaussianMixture` with `annealing="none"` and K among '
        f"{', '.join(map(str, _GAUSSIANS_TO_CHOOSE))}. Vowels: frames of speech; walk: frames of "
        "three sensors of acceleration, 1,500 of each; letters: tracks of 500 letters, of 40 "
        "frames; falling spectrum: drawn, 400 rows of 30 columns whose covariance has the "
        "eigenvalues 1/i. *Better*: the error of Gaussian factors is below those of FA and of "
        "regressions.",
    )
    gaussian = partial(filled_by_ours, activation_prior=1.0)
    ways: dict[str, Callable[..., Any]] = {
        "FA": partial(filled_by_peer, n_rounds=_ROUNDS_OF_PEER[1]),
        "regressions": filled_by_regressions,
        "Gaussian": gaussian,
        "all columns": gaussian,
        "mixture": filled_by_mixture,
    }
    lines = []
    for name, X in read_each(size.open_numbers, table):
        numbers = tuple(k for k in _FACTORS_TO_CHOOSE if k < X.shape[1])
        every = (X.shape[1],) if X.shape[1] <= _FEW_COLUMNS else ()
        choices = {
            "FA": numbers + every,
            "regressions": every,
            "Gaussian": numbers + every,
            "all columns": every,
            "mixture": _GAUSSIANS_TO_CHOOSE,
        }
        cells, means = [], {}
        for way, fill in ways.items():
            progress(f"numbers, {name}, {way}")
            found = [filled_by_chosen(fill, X, choices[way], j) for j in range(size.masks)]
            if choices[way]:
                error, seconds, _ = means[way] = np.mean(found, axis=0)
                taken = ", ".join(str(k) for _, _, k in found)
                which = f" ({taken})" if len(choices[way]) > 1 else ""
                cells.append(f"{error:.4f} in {seconds:.2f} s{which}")
            else:
                cells.append("–")
        others = [means[way][0] for way in ("FA", "regressions") if way in means]
        better = reached(bool(means["Gaussian"][0] < min(others)))
        lines.append([name, f"{len(X):,} × {X.shape[1]}", *cells, better])
    page.table(["table", "rows × columns", *ways, "better"], lines)


def frames(name: str) -> np.ndarray:
    """Some rows of a file, or tracks of its sequences."""
    found, rng = load(name), np.random.default_rng(0)
    X = np.asarray(found["X"], dtype=np.float64)
    if name != "character_trajectories.npz":
        return X[rng.permutation(len(X))[:1500]]
    ends = np.cumsum(found["lengths"])
    some = rng.permutation(len(ends))[:500]
    tracks = [X[ends[i] - found["lengths"][i] : ends[i]] for i in some]
    places = [np.linspace(0, len(track) - 1, 40) for track in tracks]
    tracks = [
        np.concatenate([np.interp(at, np.arange(len(track)), column) for column in track.T])
        for at, track in zip(places, tracks, strict=True)
    ]
    # All tracks begin and end at rest.
    tall = np.array(tracks)
    return tall[:, tall.std(axis=0) > 0.05 * tall.std()]


def table(name: str) -> np.ndarray:
    """A table of numbers with columns of variance 1."""
    files = {
        "wine quality": "wine_quality.npz",
        "vowels": "vowels_train.npz",
        "walk": "daphnet_s06.npz",
        "letters": "character_trajectories.npz",
    }
    if name in ("MNIST", "digits", "smooth pictures"):
        return pictures(name)
    if name == "digits with margins":
        X = load_digits().data[:600]
        X = X[:, X.std(axis=0) > 0]
    elif name == "gestures":
        found = load("libras.npz")
        X = found["X"].reshape(len(found["lengths"]), -1)
    elif name in files:
        X = frames(files[name])
    elif name == "falling spectrum":
        rng = np.random.default_rng(0)
        turned = np.linalg.qr(rng.standard_normal((30, 30)))[0]
        X = (rng.standard_normal((400, 30)) / np.sqrt(np.arange(1, 31))) @ turned
    elif name == "sparse factors":
        X = rows(Shape(400, 30, 8))
    elif name == "sparse factors, little noise":
        rng = np.random.default_rng(0)
        factors = rng.standard_normal((150, 5)) * (rng.random((150, 5)) < 0.2)
        X = factors @ (3.0 * rng.standard_normal((5, 20)))
        X += 0.1 * rng.standard_normal(X.shape)
    else:
        packaged = {
            "breast cancer": load_breast_cancer,
            "diabetes": load_diabetes,
            "wine": load_wine,
        }
        X = packaged[name]().data
    return (X - X.mean(axis=0)) / X.std(axis=0)


def filled_by(X: np.ndarray, k: int, activation_prior: Any) -> tuple[np.ndarray, bool]:
    """Rows whose missing cells were filled in by a plain fit, and whether factors are Gaussian."""
    model = AnnealedSpikeSlabFactorAnalysis(
        k, annealing="none", activation_prior=activation_prior, random_state=0
    ).fit(X)
    return model.impute(X), bool((model.activation_probabilities_ == 1.0).all())


def measure_kinds(page: Page, size: Size) -> None:
    """Errors of missing cells, of both kinds of factors and of the one that is chosen."""
    page.section(
        "Sparse or Gaussian factors where cells are missing",
        f"{_MISSING:.0%} of the cells of each table are missing, in {size.masks} ways; errors are "
        "roots of the mean square in them, in standard deviations of the columns, and seconds "
        "those of a fit, both means over the ways. *FactorAnalysis*: as above. Ours without "
        "annealing: *1*, Gaussian factors; *learned*, learned probabilities; *auto*, the default, "
        "which compares short fits of both on observed cells that it holds out. "
        "*Gaussian*: how often it has taken Gaussian factors. Target: its error is at most 1 % "
        "above the better of both. Sparse factors: 400 drawn rows of 30 columns with 8 factors "
        "that are on in 30 % of the rows; with little noise, 150 rows of 20 columns with 5 factors "
        "that are on in 20 %, and noise of a thirtieth of the deviation of a loading. Digits with "
        "margins: 600 digits with all pixels that vary, some of which are lit in a few digits.",
    )
    lines = []
    for name, k in size.tables:
        X = table(name)
        filled_by(np.where(X > X.mean(axis=0) + 1.0, np.nan, X)[:40], 2, "learned")  # compiles
        errors: dict[Any, list[float]] = {"FactorAnalysis": [], 1.0: [], "learned": [], "auto": []}
        seconds: dict[Any, list[float]] = {way: [] for way in errors}
        taken = 0
        for seed in range(size.masks):
            progress(f"kinds of factors, {name}, {seed + 1} of {size.masks}")
            gone = np.random.default_rng(seed).random(X.shape) < _MISSING
            gaps = np.where(gone, np.nan, X)
            for way in errors:
                start = time.process_time()
                if way == "FactorAnalysis":
                    filled = filled_by_peer(gaps, k)
                else:
                    filled, gaussian = filled_by(gaps, k, way)
                seconds[way].append(time.process_time() - start)
                errors[way].append(float(np.sqrt(np.mean((filled - X)[gone] ** 2))))
            taken += gaussian  # of "auto", which is last
        mean = {way: float(np.mean(of_way)) for way, of_way in errors.items()}
        cells = [f"{mean[way]:.3f} in {np.mean(seconds[way]):.2f} s" for way in errors]
        good = mean["auto"] <= 1.01 * min(mean[1.0], mean["learned"])
        lines.append([name, str(k), *cells, f"{taken} of {size.masks}", reached(good)])
    header = ["table", "K", *map(str, errors), "Gaussian", "target"]
    page.table([h.removesuffix(".0") for h in header], lines)


def by_variances(X: np.ndarray, k: int, seed: int) -> list[float]:
    """The seconds of a default fit, its gains, and errors of missing cells."""
    train, test = np.split(X[np.random.default_rng(seed).permutation(len(X))], [3 * len(X) // 4])
    ours = partial(AnnealedSpikeSlabFactorAnalysis, k, random_state=seed)
    start = time.process_time()
    learned = ours().fit(train)
    seconds = time.process_time() - start
    given = ours(loading_variance=1.0).fit(train)
    ten = ours(annealing="none", n_init=10).fit(train)
    peer = FactorAnalysis(k, random_state=0).fit(train)
    scores, others = learned.score_samples(test), given.score_samples(test)
    gone = np.random.default_rng(seed).random(X.shape) < _MISSING
    gaps = np.where(gone, np.nan, X)
    filled = [
        filled_by_ours(gaps, k, activation_prior=1.0, loading_variance=variance)
        for variance in (1.0, "learned")
    ]
    return [
        seconds,
        (learned.lower_bound_ - given.lower_bound_) / len(train),
        scores.mean() - others.mean(),
        np.median(scores) - np.median(others),
        (learned.lower_bound_ - ten.lower_bound_) / len(train),
        scores.mean() - peer.score(test),
        *(float(np.sqrt(np.mean((cells - X)[gone] ** 2))) for cells in filled),
    ]


def measure_variances(page: Page, size: Size) -> None:
    """Scores of rows and errors of missing cells by the prior variances of loadings."""
    page.section(
        "Learned or given variances of loadings",
        f"Complete rows, {size.masks} divisions: three quarters are fitted, and the others held "
        "out; gains in nats per row, means and ranges, and seconds of processor time. Default fits "
        "learn the variances. *Bound*, *held out* and *median row*: their gain over "
        "`loading_variance=1.0`, also of the median of the held-out rows. *Ten*: gain of the bound "
        "over the best of ten plain starts that learn the variances as well. *FA*: gain of the "
        "held-out score over scikit-learn's FactorAnalysis, whose score is a density and not a "
        f"bound. *Cells*: {_MISSING:.0%} of the cells missing, factors that are on in all rows "
        "(`activation_prior=1.0`), root of the mean squared error with 1.0, the default there, and "
        "with learned variances.",
    )
    lines = []
    for (name, k), X in read_each(size.variances, lambda case: table(case[0])):
        found = []
        for seed in range(size.masks):
            progress(f"variances, {name}, K = {k}, {seed + 1} of {size.masks}")
            found.append(by_variances(X, k, seed))
        each = np.array(found).T
        cells = [f"{x.mean():+.2f} ({x.min():+.2f} to {x.max():+.2f})" for x in each[1:6]]
        errors = [f"{x.mean():.3f}" for x in each[6:]]
        lines.append([name, str(k), f"{np.median(each[0]):.2f}", *cells, *errors])
    gains = ["bound", "held out", "median row", "ten", "FA"]
    page.table(["table", "K", "seconds", *gains, "cells, 1.0", "cells, learned"], lines)


SPEED = Speed(
    __doc__,
    model="spike_slab_factor_analysis",
    title="Speed of spike-and-slab factor analysis",
    output="spike_slab_factor_analysis_speed.md",
    sections={
        "peer": measure_peer,
        "methods": measure_methods,
        "pictures": measure_dense,
        "numbers": measure_numbers,
        "kinds": measure_kinds,
        "variances": measure_variances,
    },
    full=FULL,
    quick=QUICK,
    peers=PEERS,
)
main = SPEED.main

if __name__ == "__main__":
    main()
