"""Fits of gamma-process factorisations and of what they are compared with, and their figures."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF, MiniBatchNMF
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedGammaProcessNMF, AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.metrics import split_documents

from ..common.priors import PEER_OF_TOPICS, effort_of
from ..common.reproduction import BaseSpec, Settings
from . import data

try:
    import hpfrec
    import pandas
except ImportError:
    hpfrec = None

PEERS = {"hpfrec": hpfrec}
OTHERS = ("NMF", "MiniBatchNMF", "hpfrec", "topics")
CONSENSUS = "consensus of NMF"
# Shares of the mean of a column that are added to rates, which would be zero in places otherwise;
# the best is chosen on rows that are neither fitted nor held out.
FLOORS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_RESTARTS, _MAX_ITER = 10, 200
# A replicate's component is left out of the consensus if its mean distance to its nearest
# neighbours is above this, as in cNMF's documentation; the neighbours are this share of replicates.
_FAR, _NEIGHBOURS = 0.5, 0.3


@dataclass(frozen=True)
class Spec(BaseSpec):
    """A fit.

    Attributes
    ----------
    data : str
        A name in ``data.py``.
    n_components : int
        Number of components of the fit; of NMF without restarts, the largest that is tried.
    n_train, n_test, n_columns : int
        Numbers of rows that are fitted and held out, and of columns.
    truth : int
        Number of components or notes of drawn data.
    mean : float
        The mean of drawn counts.
    method : str
        A name of ``annealing``, one of :data:`OTHERS`, or :data:`CONSENSUS`.
    settings, model : tuple
        Parameters of the annealing method and of the estimator.
    grid : tuple of int
        Numbers of components that NMF chooses from.
    repeats : int
        Number of starts of the same data whose components are compared with each other; 0 if none.
    seed : int
        Seed of the data and of the start.
    """

    data: str
    n_components: int
    n_train: int
    n_test: int = 0
    n_columns: int = 0
    truth: int = 0
    mean: float = 0.0
    method: str = "none"
    settings: Settings = ()
    model: Settings = ()
    grid: tuple[int, ...] = ()
    repeats: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        # The cache reads lists where tuples were written.
        object.__setattr__(self, "grid", tuple(self.grid))

    @property
    def label(self) -> str:
        return f"{self.data}, K = {self.n_components}, {self.method}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if self.repeats:
                return self._stability()
            return self._truth() if self.truth else self._held_out()

    def estimator(self, seed: int) -> AnnealedGammaProcessNMF:
        """The factorisation of this specification."""
        how = ANNEALING[self.method](**dict(self.settings))
        return AnnealedGammaProcessNMF(
            self.n_components,
            annealing=how,
            random_state=seed,
            **{"effort": effort_of(self.method)} | dict(self.model),
        )

    def _truth(self) -> dict[str, Any]:
        if self.data == data.NOTES:
            X, components = data.notes(self.n_train, self.truth, self.seed)
        else:
            size = (self.n_train, self.n_columns, self.truth)
            X, components = data.drawn(*size, self.mean, self.seed)
        start = time.process_time()
        fit = self.estimator(self.seed).fit(X)
        return {
            "seconds": time.process_time() - start,
            "recovered": data.n_recovered(used(fit), components),
            "used": fit.n_effective_components_,
            "bound": fit.lower_bound_,
            "passes": fit.n_passes_,
        }

    def _held_out(self) -> dict[str, Any]:
        size = (self.n_train, self.n_test, self.n_columns)
        train, chosen, test = data.split(self.data, *size, self.seed)
        start = time.process_time()
        if self.method in OTHERS:
            found = self._other(train, chosen, test)
        else:
            fit = self.estimator(self.seed).fit(train)
            found = {
                "score": fit.score(test),
                "used": fit.n_effective_components_,
                "sparsity": sparsity(used(fit)),
                "bound": fit.lower_bound_ / train.shape[0],
            }
        return {"seconds": time.process_time() - start, **found}

    def _other(self, train: Any, chosen: Any, test: Any) -> dict[str, float]:
        if self.method == "topics":
            fit = AnnealedLatentDirichletAllocation(
                self.n_components,
                annealing="deterministic",
                random_state=self.seed,
                **PEER_OF_TOPICS | dict(self.model),
            ).fit(csr_matrix(train))
            topics = fit.components_ / fit.components_.sum(axis=1, keepdims=True)
            used_topics = topics[fit.components_.sum(axis=1) - topics.shape[1] / len(topics) > 1]

            def rates(half: csr_matrix) -> np.ndarray:
                return (fit.transform(half) @ topics) * np.asarray(half.sum(axis=1))

            # Rates of topics are positive, and need no floor.
            return {
                "score": log_predictive(test, rates),
                "used": len(used_topics),
                "sparsity": sparsity(used_topics),
            }
        if self.method == "hpfrec":
            return self._hierarchical(train, test)
        best: Any = None
        column = np.asarray(train.mean(axis=0)).ravel() / 2.0
        for k in self.grid:
            model = self._factorised(k, train, 0)
            scores = self._floors(model, column, chosen)
            if best is None or max(scores) > best[0]:
                best = (max(scores), k, FLOORS[int(np.argmax(scores))])
        _, k, floor = best
        restarts = range(_RESTARTS if self.method == "NMF" else 1)
        fits = [self._factorised(k, train, 1 + i) for i in restarts]
        model = min(fits, key=lambda one: one.reconstruction_err_)
        return {
            "score": log_predictive(test, rates_of(model, floor * column)),
            "used": k,
            "sparsity": sparsity(model.components_),
        }

    def _hierarchical(self, train: Any, test: Any) -> dict[str, float]:
        """Fit hpfrec's hierarchical Poisson factorisation, whose rows are users."""
        k, seed = self.n_components, self.seed + 1
        model = hpfrec.HPF(
            k=k, maxiter=_MAX_ITER, random_seed=seed, reindex=False, ncores=1, verbose=False
        )
        entries = csr_matrix(train).tocoo()
        columns = {"UserId": entries.row, "ItemId": entries.col, "Count": entries.data}
        model.fit(pandas.DataFrame(columns))

        def rates(half: csr_matrix) -> np.ndarray:
            result = np.empty(half.shape)
            for i in range(half.shape[0]):
                row = half[[i]]
                counts = pandas.DataFrame({"ItemId": row.indices, "Count": row.data})
                found = model.predict_factors(counts, random_seed=seed) if row.nnz else 0.0
                result[i] = found @ model.Beta.T if row.nnz else 1e-10
            return result

        return {"score": log_predictive(test, rates), "used": k, "sparsity": sparsity(model.Beta.T)}

    def _floors(self, model: Any, column: np.ndarray, chosen: Any) -> list[float]:
        return [log_predictive(chosen, rates_of(model, floor * column)) for floor in FLOORS]

    def _factorised(self, k: int, train: Any, start: int) -> Any:
        seed = 1000 * self.seed + start
        if self.method == "MiniBatchNMF":
            model = MiniBatchNMF(
                k, beta_loss="kullback-leibler", max_iter=_MAX_ITER, random_state=seed
            )
        else:
            model = kl_nmf(k, seed)
        return model.fit(train.astype(np.float64))

    def _stability(self) -> dict[str, Any]:
        """Fit the same rows from several starts, and compare the components of all pairs."""
        size = (self.n_train, 0, self.n_columns)
        train = data.split(self.data, *size, self.seed)[0].astype(np.float64)
        start = time.process_time()
        found = []
        for repeat in range(self.repeats):
            if self.method == CONSENSUS:
                found.append(consensus(train, self.n_components, repeat))
            elif self.method == "NMF":
                starts = range(repeat * _RESTARTS, (repeat + 1) * _RESTARTS)
                fits = [kl_nmf(self.n_components, seed).fit(train) for seed in starts]
                best = min(fits, key=lambda one: one.reconstruction_err_)
                found.append(best.components_)
            else:
                found.append(used(self.estimator(repeat).fit(train)))
        seconds = (time.process_time() - start) / self.repeats
        pairs = [(a, b) for i, a in enumerate(found) for b in found[:i]]
        similar = [data.cosines(a, b) for a, b in pairs]
        return {
            "seconds": seconds,
            "cosine": float(np.mean([one.mean() for one in similar])),
            "same": float(np.mean([(one >= data.NEAR).mean() for one in similar])),
            "used": float(np.mean([len(one) for one in found])),
        }


def kl_nmf(k: int, seed: int) -> NMF:
    """scikit-learn's factorisation with the Kullback-Leibler loss, from a random start."""
    return NMF(
        k,
        solver="mu",
        beta_loss="kullback-leibler",
        init="random",
        max_iter=_MAX_ITER,
        random_state=seed,
    )


def used(fit: AnnealedGammaProcessNMF) -> np.ndarray:
    """The components that are in use: as many of the largest weights as are effective."""
    order = np.argsort(-fit.component_weights_)[: fit.n_effective_components_]
    return fit.components_[order]


def sparsity(components: np.ndarray) -> float:
    """The share of entries below a hundredth of the largest of their component."""
    return float((components < 0.01 * components.max(axis=1, keepdims=True)).mean())


def rates_of(model: Any, floor: np.ndarray) -> Any:
    """A function that returns the rates of the other half of rows, given one half."""
    return lambda half: model.transform(half.astype(np.float64)) @ model.components_ + floor


def log_predictive(X: Any, rates: Any) -> float:
    """Mean log probability of the cells of one half of each row given the other half."""
    observed, held_out = split_documents(csr_matrix(X))
    expected = np.asarray(rates(observed))
    counts = held_out.toarray()
    logs = np.log(np.maximum(expected, 1e-300))
    return float((counts * logs - expected - gammaln(counts + 1.0)).mean())


def consensus(X: Any, k: int, repeat: int, n_replicates: int = 100) -> np.ndarray:
    """Components on which replicates agree, in the way of cNMF (Kotliar et al., 2019).

    The components of all replicates are scaled to unit length, those far from their neighbours are
    left out, the others are grouped by k-means, and the medians of the groups are the result.
    """
    found = []
    for i in range(n_replicates):
        components = kl_nmf(k, repeat * n_replicates + i).fit(X).components_
        norms = np.linalg.norm(components, axis=1, keepdims=True)
        found.append(components / np.maximum(norms, 1e-300))
    rows = np.concatenate(found)
    distances = np.sqrt(np.maximum(2.0 - 2.0 * rows @ rows.T, 0.0))
    n_near = max(int(_NEIGHBOURS * n_replicates), 1)
    near = np.partition(distances, n_near, axis=1)[:, : n_near + 1].sum(axis=1) / n_near
    kept = rows[near < _FAR]
    if len(kept) < k:
        kept = rows
    labels = KMeans(k, n_init=10, random_state=repeat).fit(kept).labels_
    return np.array([np.median(kept[labels == j], axis=0) for j in range(k)])
