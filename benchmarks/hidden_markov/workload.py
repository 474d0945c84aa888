"""Sequences, models and passes that all measurements of the speed of hidden Markov models use."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans

from sklearn_anneal import AnnealedHMM
from sklearn_anneal.data.units import Sequences
from sklearn_anneal.inference import loop, visits
from sklearn_anneal.inference.stopping import RiseOfBound
from sklearn_anneal.parallel.workers import SEQUENTIAL

from ..common.peers import is_there
from ..common.priors import PEER_OF_SEQUENCES
from .data import trajectories

try:
    from hmmlearn import vhmm
except ImportError:
    vhmm = None

# Number of frames that are joined in one row to give D = 12.
WINDOW = 4
BATCH = loop.Settings(
    max_iter=0, stop=RiseOfBound(0.0), batch_size=None, learning_offset=1.0, learning_decay=0.0
)


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    rounds : int
        Number of interleaved repetitions.
    trained : int
        Number of passes by our estimator before the two libraries are compared.
    passes : int
        Number of passes of hmmlearn's other implementation, and of fits from its own starts.
    components : tuple of int
        Numbers of states (K) for the sections on passes.
    many : int
        Number of states (K) for all other sections.
    symbols : int
        Size of the codebook.
    every : int
        In the section on vectors, hmmlearn gets only every n-th sequence, because it is slow.
    """

    rounds: int = 7
    trained: int = 10
    passes: int = 5
    components: tuple[int, ...] = (5, 10)
    many: int = 10
    symbols: int = 500
    every: int = 8
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
QUICK = Size(1, 3, 2, components=(3,), many=3, symbols=20, every=2, quick=True)


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
        archive = trajectories()
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
    """Our variational inference; each call makes one pass and returns the bound before it."""

    def __init__(self, data: Data, k: int):
        self._est = est = estimator(data, k, max_iter=0)
        est.fit(data.X, lengths=data.lengths)
        self.ctx = est._inference.ctx
        frames = est._validate_data(est._data(data.X, None, data.lengths), reset=False)
        self.units: Sequences = est._make_units(frames, None).centered(self.ctx.summary)
        self.method = loop.PLAIN

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

    def __call__(self) -> float:
        ctx, method, units = self.ctx, self.method, self.units
        seen = visits.visit(ctx, method, units, SEQUENTIAL)
        bound = seen.step.bound - ctx.model.kl(ctx.q, ctx.prior)
        loop.UPDATES["conjugate"](
            ctx, method, units, seen, BATCH, SEQUENTIAL, minibatch=False, passes=1.0
        )
        return bound


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

    def __call__(self) -> float:
        hmm = self.hmm
        statistics, log_probability = hmm._do_estep(self.data.X, self.data.lengths)
        bound = hmm._compute_lower_bound(log_probability)
        hmm._do_mstep(statistics)
        if self.data.n_symbols is None:
            # hmmlearn leaves this constant out.
            bound -= 0.5 * self.data.X.size * np.log(2.0 * np.pi)
        return float(bound)


def peer_is_there() -> bool:
    """Whether hmmlearn is installed; if it is not, a message says so."""
    return is_there("hmmlearn", vhmm)


def kept(run: Callable[[], float], results: list[float]) -> Callable[[], None]:
    """Wrap a call so that its result is kept."""
    return lambda: results.append(run())
