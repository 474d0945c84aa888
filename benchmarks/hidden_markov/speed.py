"""Speed of hidden Markov models against hmmlearn's, and what annealing costs.

The pen trajectories come from a file, and a quick run draws sequences. hmmlearn is left out with a
message if it is not installed. ``benchmarks/common/speed.py`` says how the command is run.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans

from sklearn_anneal import AnnealedHMM
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.data.units import Sequences
from sklearn_anneal.inference import loop, visits
from sklearn_anneal.inference.stopping import RiseOfBound
from sklearn_anneal.parallel.workers import SEQUENTIAL

from ..common import speed
from ..common.data import load
from ..common.measuring import (
    interleaved,
    milliseconds,
    progress,
    reached,
    spread,
)
from ..common.peers import is_there
from ..common.priors import PEER_OF_SEQUENCES
from ..common.report import Page
from ..common.speed import Fit, Speed, of_passes, pass_times

try:
    from hmmlearn import hmm, vhmm
except ImportError:
    hmm = vhmm = None

FASTER_SYMBOLS, FASTER_VECTORS = 12, 5
# Bounds count as the same if their relative difference is at most this.
SAME = 1e-8
_FILE = "character_trajectories.npz"
# Number of frames that are joined in one row to give D = 12.
WINDOW = 4
BATCH = loop.Settings(
    max_iter=0, stop=RiseOfBound(0.0), batch_size=None, learning_offset=1.0, learning_decay=0.0
)
_MISSING = "Left out: hmmlearn is not installed."


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run.

    Attributes
    ----------
    trained : int
        Number of passes by our estimator before the two libraries are compared.
    further : int
        Number of passes of hmmlearn's other implementation.
    components : tuple of int
        Numbers of states (K) for the section on symbols.
    many : int
        Number of states (K) for all other sections.
    symbols : int
        Size of the codebook.
    every : int
        In the section on vectors, hmmlearn gets only every n-th sequence, because it is slow.
    wide : tuple of (int, int, int)
        D, K and the number of frames of the section on many columns.
    """

    trained: int = 10
    further: int = 5
    components: tuple[int, ...] = (5, 10)
    many: int = 10
    symbols: int = 500
    every: int = 8
    wide: tuple[tuple[int, int, int], ...] = (
        (50, 5, 8_000),
        (100, 5, 6_000),
        (200, 5, 4_000),
        (400, 4, 4_000),
    )


FULL = Size(7)
QUICK = Size(
    rounds=1,
    quick=True,
    trained=3,
    further=2,
    components=(3,),
    many=3,
    symbols=20,
    every=2,
    wide=((12, 2, 300),),
)


# Sequences


@dataclass(frozen=True)
class Data:
    """Sequences of symbols or of vectors.

    Attributes
    ----------
    name : str
    X : ndarray of shape (n_frames, n_columns)
        int64 or float64.
    lengths : ndarray of shape (n_sequences,)
    n_symbols : int or None
        None: vectors.
    """

    name: str
    X: np.ndarray
    lengths: np.ndarray
    n_symbols: int | None = None

    @property
    def n_frames(self) -> int:
        return len(self.X)

    @property
    def emission(self) -> dict[str, Any]:
        """The parameters of our estimator that describe a frame."""
        if self.n_symbols is None:
            return {"emission": "gaussian"}
        return {"emission": "categorical", "n_symbols": self.n_symbols}

    def thinned(self, every: int) -> Data:
        """Keep every n-th sequence."""
        chosen = np.arange(len(self.lengths)) % every == 0
        return replace(
            self, X=self.X[np.repeat(chosen, self.lengths)], lengths=self.lengths[chosen]
        )


@cache
def _frames(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    if not quick:
        archive = load(_FILE)
        return archive["X"].astype(np.float64), archive["lengths"].astype(np.int64)
    rng = np.random.default_rng(0)
    lengths = rng.integers(40, 80, size=160)
    states = np.repeat(rng.integers(4, size=-(-lengths.sum() // 10)), 10)[: lengths.sum()]
    centers = 3.0 * rng.standard_normal((4, 3))
    return centers[states] + rng.standard_normal((len(states), 3)), lengths


@cache
def vectors(size: Size) -> Data:
    """Velocities and force of the pen tip, D = 3, or drawn vectors."""
    X, lengths = _frames(size.quick)
    return Data("D = 3", X, lengths)


@cache
def windows(size: Size) -> Data:
    """Join four consecutive frames in one, D = 12; a rest at the end of a sequence is dropped."""
    X, lengths = _frames(size.quick)
    starts = np.cumsum(lengths) - lengths
    parts = [
        X[start : start + n // WINDOW * WINDOW].reshape(n // WINDOW, -1)
        for start, n in zip(starts, lengths, strict=True)
    ]
    return Data(f"D = {3 * WINDOW}", np.concatenate(parts), lengths // WINDOW)


@cache
def symbols(size: Size) -> Data:
    """Replace every frame by the number of the nearest entry of a codebook."""
    X, lengths = _frames(size.quick)
    codebook = MiniBatchKMeans(size.symbols, batch_size=4096, n_init=1, random_state=0).fit(X)
    codes = codebook.predict(X).astype(np.int64)[:, None]
    return Data("symbols", codes, lengths, size.symbols)


# Models


def estimator(data: Data, k: int, **parameters: Any) -> AnnealedHMM:
    """An estimator without annealing and without any test of convergence."""
    settings = {"annealing": "none", "tol": 0, "reg_covar": 0.0, "random_state": 0}
    return AnnealedHMM(k, **data.emission, **{**PEER_OF_SEQUENCES, **settings, **parameters})


class Ours:
    """Our variational inference; each call makes one pass, and ``bounds`` has those before them."""

    def __init__(self, data: Data, k: int):
        self._est = est = estimator(data, k, max_iter=0)
        est.fit(data.X, lengths=data.lengths)
        self.ctx = est._inference.ctx
        frames = est._validate_data(est._data(data.X, None, data.lengths), reset=False)
        self.units: Sequences = est._make_units(frames, None).centered(self.ctx.summary)
        self.method = loop.PLAIN
        self.bounds: list[float] = []

    @classmethod
    def trained(cls, data: Data, k: int, n_passes: int) -> Ours:
        """Make some passes and return this object."""
        ours = cls(data, k)
        for _ in range(n_passes):
            ours()
        return ours

    def branch(self, annealing: Any = "none") -> Ours:
        """A copy that continues from here, with an annealing method that is at its start."""
        other = copy(self)
        other.bounds = []
        ctx = other.ctx = replace(
            self.ctx, state={"updates": 0, "passes": 0.0}, rng=np.random.default_rng(0)
        )
        if annealing != "none":
            method = clone(self._est).set_params(annealing=annealing)._strategy(ctx.model)
            rehearse = partial(loop.rehearse, ctx, self.units, BATCH)
            other.method = method.calibrate(ctx, self.units, rehearse)
            ctx.state |= other.method.initial_state(ctx)
        return other

    @property
    def attributes(self) -> dict[str, Any]:
        """The current priors and posteriors, by the names of their attributes."""
        return self._est._fitted_attributes(self.ctx)

    def __call__(self) -> None:
        ctx, method, units = self.ctx, self.method, self.units
        seen = visits.visit(ctx, method, units, SEQUENTIAL)
        self.bounds.append(seen.step.bound - ctx.model.kl(ctx.q, ctx.prior))
        loop.UPDATES["conjugate"](
            ctx, method, units, seen, BATCH, SEQUENTIAL, minibatch=False, passes=1.0
        )


class Peer:
    """hmmlearn's inference from given priors and posteriors, by the functions that its fit calls.

    Parameters
    ----------
    data : Data
    k : int
    start : dict
        Attributes of a fitted estimator of ours.
    implementation : {"log", "scaling"}
    """

    def __init__(self, data: Data, k: int, start: dict[str, Any], implementation: str = "log"):
        self.data = data
        how = {"init_params": "", "implementation": implementation}
        names = ["startprob", "transmat"]
        if data.n_symbols is not None:
            self.hmm = vhmm.VariationalCategoricalHMM(k, n_features=data.n_symbols, **how)
            names += ["emissionprob"]
        else:
            self.hmm = vhmm.VariationalGaussianHMM(k, covariance_type="full", **how)
            names += ["means", "beta", "dof", "scale"]
        for name in names:
            for which in ("prior", "posterior"):
                setattr(self.hmm, f"{name}_{which}_", np.array(start[f"{name}_{which}_"]))
        self.hmm._init(data.X, data.lengths)
        self.hmm._check()
        self.bounds: list[float] = []

    def __call__(self) -> None:
        hmm = self.hmm
        statistics, log_probability = hmm._do_estep(self.data.X, self.data.lengths)
        bound = hmm._compute_lower_bound(log_probability)
        hmm._do_mstep(statistics)
        # hmmlearn leaves the constant of vectors out.
        left_out = 0.0 if self.data.n_symbols else 0.5 * self.data.X.size * np.log(2.0 * np.pi)
        self.bounds.append(float(bound - left_out))


# Sections


def corpus(size: Size) -> str:
    """A description of the sequences, in words."""
    data = vectors(size)
    name = "drawn sequences" if size.quick else "pen trajectories"
    return f"{len(data.lengths):,} {name} of {data.n_frames:,} frames"


# Passes against hmmlearn


def compared(data: Data, k: int, size: Size) -> tuple[Ours, list[str]]:
    """Our model after passes of both libraries from the same posterior, and the cells of a row."""
    ours = Ours.trained(data, k, size.trained)
    peer = Peer(data, k, ours.attributes)
    times = interleaved({"ours": ours, "peer": peer}, size.rounds)
    ratios = times["peer"] / times["ours"]
    mine, theirs = (np.array(model.bounds[-size.rounds :]) for model in (ours, peer))
    difference = float(np.max(np.abs(mine - theirs) / np.abs(theirs)))
    cells = [milliseconds(times["peer"]), milliseconds(times["ours"])]
    cells += [f"{1e9 * np.median(times['ours']) / data.n_frames:.0f}", spread(ratios, 1)]
    cells += [f"{difference:.0e}" if difference <= SAME else f"**{difference:.0e}**"]
    target = FASTER_VECTORS if data.n_symbols is None else FASTER_SYMBOLS
    return ours, [*cells, reached(float(np.median(ratios)) >= target)]


HEADER = ["K", "hmmlearn, ms", "ours, ms", "ours, ns per frame", "ratio", "bounds apart"]


def measure_symbols(page: Page, size: Size) -> None:
    page.section(
        "A pass over symbols",
        f"{corpus(size)}, as symbols of a codebook of {size.symbols} by k-means. A pass is the "
        "local step over all sequences, the lower bound and the update; one thread, processor "
        'time. hmmlearn: `VariationalCategoricalHMM(implementation="log")`, its E-step, bound '
        f"and M-step. Both go on from the same posterior, which is ours after {size.trained} "
        f"passes, and make the same passes. Ratio: hmmlearn's time over ours, median and quartiles "
        f"of {size.rounds} rounds. *Bounds apart*: the largest relative difference of the lower "
        "bounds of the passes.",
    )
    data = symbols(size)
    if not is_there("hmmlearn", vhmm):
        page.lines += [_MISSING, ""]
        return
    rows, scaled = [], []
    for k in size.components:
        progress(f"symbols, K = {k}")
        ours, cells = compared(data, k, size)
        rows.append([str(k), *cells])
        scaled.append(_scaling_row(data, k, ours, size))
    page.table([*HEADER, f"target {FASTER_SYMBOLS}"], rows)
    page.lines += [
        'hmmlearn\'s `implementation="scaling"` from the posterior after these passes:',
        "",
    ]
    page.table(["K", "scaling, ms", "ours, ms", "what scaling did"], scaled)


def _scaling_row(data: Data, k: int, ours: Ours, size: Size) -> list[str]:
    scaling = Peer(data, k, ours.attributes, "scaling")
    try:
        times = interleaved({"ours": ours, "scaling": scaling}, size.further)
    except ValueError as error:
        return [str(k), "–", "–", f"stopped in pass {len(scaling.bounds) + 1}: {error}"]
    ratio = spread(times["scaling"] / times["ours"], 1)
    what = f"ran; {ratio} times the time of ours"
    return [str(k), milliseconds(times["scaling"]), milliseconds(times["ours"]), what]


def measure_vectors(page: Page, size: Size) -> None:
    k = size.many
    page.section(
        "A pass over vectors",
        f"The same with Gaussian emissions of full covariance, K = {k}, against "
        '`VariationalGaussianHMM(implementation="log")`: D = 3, velocities and force as they '
        f"are, and D = {3 * WINDOW}, {WINDOW} consecutive frames as one. hmmlearn is so slow that "
        f"both pass over one sequence of {size.every}.",
    )
    if not is_there("hmmlearn", vhmm):
        page.lines += [_MISSING, ""]
        return
    rows = []
    for whole in (vectors(size), windows(size)):
        data = whole.thinned(size.every)
        progress(f"vectors, {data.name}")
        _, cells = compared(data, k, size)
        rows.append([data.name, f"{data.n_frames:,}", str(k), *cells])
    page.table(["data", "frames", *HEADER, f"target {FASTER_VECTORS}"], rows)


# Kinds of covariances, and the share of the cells that are missing from ours.
_WIDE_KINDS = (("full", 0.0), ("tied", 0.0), ("full", 0.1))


def measure_wide(page: Page, size: Size) -> None:
    page.section(
        "Many columns",
        "A pass with the default priors, which are learned, against one of hmmlearn's "
        '`GaussianHMM`, which is EM. Drawn sequences of 500 frames, `annealing="none"`, one '
        "thread, processor time. *Missing*: so many cells of our frames, at random; hmmlearn "
        "cannot read such frames, and gets whole ones. Ratio: hmmlearn's time over ours, median "
        f"and quartiles of {size.rounds} rounds.",
    )
    if not is_there("hmmlearn", hmm):
        page.lines += [_MISSING, ""]
        return
    rows = []
    for d, k, n in size.wide:
        for kind, missing in _WIDE_KINDS:
            progress(f"many columns, D = {d}, {kind}, {missing:.0%} missing")
            times = pass_times(_wide_fits(d, k, n, kind, missing), {}, size)
            cells = [milliseconds(times[name]) for name in ("peer", "ours")]
            about = [str(d), str(k), f"{n:,}", kind, f"{missing:.0%}"]
            rows.append([*about, *cells, spread(times["peer"] / times["ours"])])
    head = ["D", "K", "frames", "covariances", "missing", "hmmlearn, ms", "ours, ms", "ratio"]
    page.table(head, rows)


def _wide_fits(d: int, k: int, n: int, kind: str, missing: float) -> dict[str, Fit]:
    """Fits to drawn sequences, given the numbers of columns, states and frames."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(k, size=-(-n // 50)), 50)[:n]
    X = 0.5 * rng.standard_normal((k, d))[states] + rng.standard_normal((n, d))
    lengths = [min(500, n - start) for start in range(0, n, 500)]
    ours = np.where(rng.random(X.shape) < missing, np.nan, X) if missing else X
    sequences = np.split(ours, np.cumsum(lengths)[:-1])
    return {
        "peer": lambda m: hmm.GaussianHMM(
            k, covariance_type=kind, n_iter=m, tol=-np.inf, random_state=0
        ).fit(X, lengths),
        "ours": lambda m: of_passes(
            AnnealedHMM(k, covariance_type=kind, tol=0, random_state=0), "none", m
        ).fit(sequences),
    }


# Annealing methods


def measure_methods(page: Page, size: Size) -> None:
    k = size.many
    page.section(
        "What annealing costs per pass",
        'Ratio of the time per pass to that of `annealing="none"`, batch mode, all sequences, '
        f"K = {k}, the first passes with the settings that are recommended for hidden Markov "
        "models, from the same posterior; one thread, processor time: median and quartiles of "
        f"{size.rounds} rounds. Local tempering passes over the data three times. Bounds that some "
        "methods need an additional pass for are not counted.",
    )
    cases = (symbols(size), vectors(size))
    cells = []
    for data in cases:
        progress(f"methods, {data.name}")
        trained = Ours.trained(data, k, size.trained)
        runs = {name: trained.branch(name) for name in ANNEALING}
        times = interleaved(runs, size.rounds)
        cells.append(
            {name: (milliseconds(t), spread(t / times["none"])) for name, t in times.items()}
        )
    rows = [[name, *(cell for column in cells for cell in column[name])] for name in ANNEALING]
    header = [f"{data.name}, {what}" for data in cases for what in ("ms", "ratio")]
    page.table(["method", *header], rows)


SPEED = Speed(
    __doc__,
    model="hidden_markov",
    title="Speed of hidden Markov models",
    output="sequences_speed.md",
    sections={
        "symbols": measure_symbols,
        "vectors": measure_vectors,
        "wide": measure_wide,
        "methods": measure_methods,
    },
    full=FULL,
    quick=QUICK,
    peers={"hmmlearn": vhmm},
)
main = SPEED.main

if __name__ == "__main__":
    main()
