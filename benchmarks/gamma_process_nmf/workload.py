"""Counts and passes that all measurements of the speed of gamma-process NMF use.

A pass is made by the functions of the loop itself: the visit before the update of the weights, with
one sweep over the activations and the complete lower bound, the visit before the update of the
components, and both updates. scikit-learn's iteration is made as its own loop makes it, by
``_multiplicative_update_w`` and ``_multiplicative_update_h``. Both go on from their last call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.decomposition import NMF
from sklearn.decomposition._nmf import _multiplicative_update_h, _multiplicative_update_w

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.annealing import DeterministicAnnealing, StructuredVI
from sklearn_anneal.annealing._base import Context
from sklearn_anneal.inference import loop, visits
from sklearn_anneal.inference.conjugate import update
from sklearn_anneal.parallel.workers import SEQUENTIAL
from sklearn_anneal.search.problem import prepare

from ..latent_dirichlet.data import available, corpus

DENSE = "dense"
CORPORA = ("AP", "20 Newsgroups")
_NEVER = 10**6


@dataclass(frozen=True)
class Size:
    """The size of the measurements.

    Attributes
    ----------
    dense : tuple of int
        Numbers of rows and columns of the dense counts.
    n_components : int
        K.
    rounds : int
        Number of interleaved repetitions.
    passes : tuple of int
        Numbers of passes of the two fits whose difference is measured.
    """

    dense: tuple[int, int] = (2000, 1000)
    n_components: int = 50
    rounds: int = 7
    passes: tuple[int, int] = (1, 6)
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


FULL = Size()
QUICK = Size((120, 40), 8, 1, (1, 3), quick=True)


def names(size: Size) -> list[str]:
    """The data sets of a section whose files are there."""
    return [DENSE, *available(["drawn"] if size.quick else CORPORA)]


@cache
def dense(n_rows: int, n_columns: int, n_components: int) -> np.ndarray:
    """Counts that follow the model, with a mean of 1."""
    rng = np.random.default_rng(0)
    activations = rng.gamma(0.3, 1 / 0.3, (n_rows, n_components))
    parts = rng.gamma(0.3, 1 / 0.3, (n_components, n_columns))
    return rng.poisson(activations @ parts / n_components).astype(np.float64)


def counts(name: str, size: Size, dtype: Any = np.float64) -> Any:
    X = dense(*size.dense, size.n_components) if name == DENSE else corpus(name)
    return X.astype(dtype)


def n_counted(X: Any) -> int:
    """The number of entries of a sparse matrix, or of cells of an array."""
    return int(X.nnz if issparse(X) else X.size)


class Passes:
    """Passes of plain inference over some counts, one per call, each from the last one's result.

    Parameters
    ----------
    X : {ndarray, sparse matrix}
    n_components : int
    """

    def __init__(self, X: Any, n_components: int):
        estimator = AnnealedGammaProcessNMF(n_components, annealing="none")
        estimator._load_kernels()
        X = estimator._validate_data(X, reset=True)
        units = estimator._make_units(X, None)
        self._settings = loop.Settings(_NEVER, None, None, 1.0, 0.6)  # type: ignore[arg-type]
        problem, start = prepare(
            estimator._make_model(X, units),
            loop.PLAIN,
            units,
            self._settings,
            np.random.RandomState(0),
        )
        self._units = problem.units
        rng, state = np.random.default_rng(0), {"updates": 0, "passes": 0.0}
        self.ctx = Context(
            problem.model, problem.prior, problem.summary, rng, q=start or {}, state=state
        )
        self._local = self._known = None
        self.bound = -np.inf
        self()
        self.ctx.exploring = False
        for _ in range(2):
            self()

    def __call__(self) -> None:
        ctx, units = self.ctx, self._units
        visited = visits.visit(ctx, loop.PLAIN, units, SEQUENTIAL, self._local, self._known)
        self.bound = visited.step.bound - ctx.model.kl(ctx.q, ctx.prior, visited.visit.known)
        how = {"minibatch": False, "passes": 1.0}
        visited = update(ctx, loop.PLAIN, units, visited, self._settings, SEQUENTIAL, **how)
        self._local, self._known = visited.local, visited.visit.known


@cache
def going_on(name: str, size: Size, dtype: Any = np.float64) -> Passes:
    """Passes that go on, which several sections measure."""
    return Passes(counts(name, size, dtype), size.n_components)


class Iterations:
    """Iterations of scikit-learn's multiplicative updates, one per call."""

    def __init__(self, X: Any, n_components: int):
        self._X = X
        nmf = NMF(
            n_components,
            solver="mu",
            beta_loss="kullback-leibler",
            init="random",
            random_state=0,
            max_iter=1,
        )
        self.activations = np.ascontiguousarray(nmf.fit_transform(X))
        self.components = nmf.components_
        self()

    def __call__(self) -> None:
        how = {"beta_loss": 1, "l1_reg_W": 0, "l2_reg_W": 0, "gamma": 1.0}
        self.activations, *_ = _multiplicative_update_w(
            self._X, self.activations, self.components, **how
        )
        how = {"beta_loss": 1, "l1_reg_H": 0, "l2_reg_H": 0, "gamma": 1.0}
        self.components = _multiplicative_update_h(
            self._X, self.activations, self.components, **how
        )


def estimator(k: int, n_passes: int, annealing: str) -> AnnealedGammaProcessNMF:
    """An estimator that makes a given number of passes, without any test of convergence."""
    made = AnnealedGammaProcessNMF(k, random_state=0, tol=0, max_iter=0, effort=0)
    if annealing == "none":
        return made.set_params(annealing="none", effort="auto", max_iter=n_passes)
    if annealing == "reheating":
        return made.set_params(annealing="reheating", max_iter=n_passes)
    if annealing == "structured":
        # The evaluation of its bound takes another pass, which must not be measured.
        how = StructuredVI(n_passes=n_passes, evaluate_every=_NEVER)
        return made.set_params(annealing=how, effort="auto")
    if annealing == "deterministic":
        return made.set_params(annealing=DeterministicAnnealing(n_passes=n_passes))
    return made.set_params(annealing=annealing, annealing__n_passes=n_passes)
