"""Fits of mixtures, ours and other libraries': their specifications, and the figures of each."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix

from sklearn_anneal import AnnealedBayesianMixture
from sklearn_anneal.annealing import DeterministicAnnealing, StochasticAnnealing, StructuredVI

from ..common.priors import effort_of
from ..common.reproduction import BaseSpec, Settings, settings_of
from .data import Table, table
from .gibbs import CollapsedGibbs

try:
    from stepmix import StepMix
except ImportError:
    StepMix = None

OURS, STEPMIX, GIBBS = "ours", "StepMix", "collapsed Gibbs"
CLASSES: dict[str, Any] = {
    "deterministic": DeterministicAnnealing,
    "stochastic": StochasticAnnealing,
    "structured": StructuredVI,
}
# Plain inference and EM end at the same tolerance, in nats per row.
_TOL, _LONGEST = 1e-6, 1000
# EM that follows a fit of a survey ends at this tolerance, in nats of all rows.
_TOL_OF_EM, _LONGEST_EM = 1e-7, 20_000
_SWEEPS = 50

USUAL_PRIORS: Settings = settings_of(weight_concentration_prior=None, emissionprob_prior=None)
FLAT_PRIORS: Settings = settings_of(
    weight_concentration_prior_type="dirichlet_distribution",
    weight_concentration_prior=1.0,
    emissionprob_prior=1.0,
)


@dataclass(frozen=True)
class Spec(BaseSpec):
    """Everything that determines a fit; the key of the fit in the cache.

    Attributes
    ----------
    data : str
    n_components : int
    library : {"ours", "StepMix", "collapsed Gibbs"}
    method : str
        A name of ``annealing=``.
    settings : tuple of (str, value)
        Settings of the annealing method; without any, it has the recommended ones.
    parameters : tuple of (str, value)
        Further parameters of the estimator.
    polish : bool
        Whether EM without priors goes on from the fit, which shows to which maximum of the
        likelihood it belongs.
    seed : int
    """

    data: str
    n_components: int
    library: str = OURS
    method: str = "none"
    settings: Settings = ()
    parameters: Settings = ()
    polish: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        name = self.method if self.library == OURS else self.library
        how = ", ".join(f"{key}={value}" for key, value in (*self.settings, *self.parameters))
        return f"{self.data}, K = {self.n_components}, {name} {how}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        """Fit and measure the result.

        Returns
        -------
        result : dict
            ``seconds`` of processor time and the number of components ``used``; of ours, the
            ``bound`` in nats and the number of ``passes``; where there are held-out rows,
            ``held_out`` in nats per row; where the truth is known, the divergence ``kl`` of the
            predictive distribution from it, in nats per row, and the number of components that the
            truth used; where there are classes, the adjusted Rand index ``rand`` and ``purity``;
            with ``polish``, the ``likelihood`` at the posterior means or estimates, the one that
            ``em`` reaches from there, both in nats, and ``aic`` and ``bic``.
        """
        found = table(self.data, self.seed)
        _warm(found.emission)
        begun = time.process_time()
        fitted = self._fitted(found)
        result: dict[str, Any] = {"seconds": time.process_time() - begun}
        result |= self._counts(fitted, found)
        if found.held_out is not None:
            result["held_out"] = float(np.mean(self._scores(fitted, found.held_out)))
        if found.truth is not None and found.held_out is not None:
            true = float(np.mean(found.truth.log_probability(found.held_out)))
            result["kl"] = true - result["held_out"]
            result["true_components"] = len(np.unique(found.labels))
        elif found.labels is not None:
            labels = self._labels(fitted, found)
            result["rand"] = float(adjusted_rand_score(found.labels, labels))
            result["purity"] = purity(found.labels, labels)
        if self.polish:
            result |= self._likelihoods(fitted, found)
        return result

    def _fitted(self, found: Table) -> Any:
        parameters = dict(self.parameters)
        if self.library == GIBBS:
            fitted: Any = CollapsedGibbs(
                self.n_components, n_sweeps=_SWEEPS, random_state=self.seed, **parameters
            )
            return fitted.fit(found.X)
        if self.library == STEPMIX:
            fitted = StepMix(
                self.n_components,
                measurement=measurement(found.X, found.emission),
                random_state=self.seed,
                abs_tol=_TOL,
                max_iter=_LONGEST,
                progress_bar=0,
                **parameters,
            )
            return _quietly(fitted, cells_of_peer(found.X))
        method: Any = self.method
        if self.settings:
            method = CLASSES[self.method](**dict(self.settings))
        fitted = AnnealedBayesianMixture(
            self.n_components,
            emission=found.emission,
            n_categories=found.n_categories,
            annealing=method,
            effort=effort_of(self.method),
            tol=_TOL,
            max_iter=_LONGEST,
            random_state=self.seed,
            **parameters,
        )
        return _quietly(fitted, found.X)

    def _counts(self, fitted: Any, found: Table) -> dict[str, Any]:
        if self.library == OURS:
            return {
                "used": int(fitted.n_effective_components_),
                "bound": float(fitted.lower_bound_),
                "passes": int(fitted.n_passes_),
            }
        if self.library == GIBBS:
            return {"used": fitted.n_effective_components_}
        used = int((len(found.X) * fitted.weights_ > 1).sum())
        return {"used": used, "passes": int(fitted.n_iter_)}

    def _scores(self, fitted: Any, X: np.ndarray) -> np.ndarray:
        return (
            fitted.score(cells_of_peer(X)) if self.library == STEPMIX else fitted.score_samples(X)
        )

    def _labels(self, fitted: Any, found: Table) -> np.ndarray:
        X = cells_of_peer(found.X) if self.library == STEPMIX else found.X
        return fitted.predict(X)

    def _likelihoods(self, fitted: Any, found: Table) -> dict[str, float]:
        """Likelihoods of a table of categories without missing cells."""
        n_levels = found.n_categories
        assert n_levels is not None
        if self.library == STEPMIX:
            K, n_features = self.n_components, found.X.shape[1]
            pis = fitted.get_parameters()["measurement"]["pis"].reshape(K, n_features, -1)
            columns = [pis[:, c, :n] for c, n in enumerate(n_levels)]
        else:
            columns = fitted.emissionprob_
        start, end = em(found.X, np.asarray(fitted.weights_), columns)
        p = self.n_components - 1 + self.n_components * int((n_levels - 1).sum())
        return {
            "likelihood": start,
            "em": end,
            "aic": 2.0 * p - 2.0 * start,
            "bic": p * float(np.log(len(found.X))) - 2.0 * start,
        }


def measurement(X: np.ndarray, emission: str) -> str:
    """StepMix's name of the emission, which differs if cells are missing."""
    name = {"bernoulli": "binary", "categorical": "categorical"}[emission]
    return f"{name}_nan" if (X < 0).any() else name


def cells_of_peer(X: np.ndarray) -> np.ndarray:
    """The table in the form that StepMix reads, with NaN for missing cells."""
    return np.where(X < 0, np.nan, X.astype(float)) if (X < 0).any() else X.astype(float)


def purity(classes: np.ndarray, labels: np.ndarray) -> float:
    """The share of rows whose class is the most frequent one of their cluster."""
    return float(contingency_matrix(classes, labels).max(axis=0).sum() / len(labels))


def em(X: np.ndarray, weights: np.ndarray, columns: list[np.ndarray]) -> tuple[float, float]:
    """Maximise the likelihood of a latent class model by EM.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Categories, none of them missing.
    weights : ndarray of shape (n_components,)
    columns : list of ndarray of shape (n_components, n_categories)
        The probabilities of the categories of each column, from which EM begins.

    Returns
    -------
    start, end : float
        The log-likelihood at the start and at the end, in nats.
    """
    rows, counts = np.unique(X, axis=0, return_counts=True)
    onehot = np.hstack([np.eye(p.shape[1])[rows[:, c]] for c, p in enumerate(columns)])
    ends = np.cumsum([p.shape[1] for p in columns])[:-1]
    log_p = np.log(np.clip(np.hstack(columns), 1e-300, None))
    log_weights = np.log(np.clip(weights, 1e-300, None))
    found: list[float] = []
    for _ in range(_LONGEST_EM):
        joint = onehot @ log_p.T + log_weights
        each = logsumexp(joint, axis=1)
        found.append(float(counts @ each))
        if len(found) > 1 and found[-1] - found[-2] < _TOL_OF_EM:
            break
        shares = counts[:, None] * np.exp(joint - each[:, None])
        sums = np.clip(shares.T @ onehot, 1e-300, None)
        totals = [p.sum(axis=1, keepdims=True) for p in np.split(sums, ends, axis=1)]
        parts = zip(np.split(sums, ends, axis=1), totals, strict=True)
        log_p = np.log(np.clip(np.hstack([p / t for p, t in parts]), 1e-300, None))
        log_weights = np.log(np.clip(shares.sum(axis=0) / counts.sum(), 1e-300, None))
    return found[0], found[-1]


@cache
def _warm(emission: str) -> None:
    """Load or compile the kernels before a fit is timed."""
    for missing in (False, True):
        X = table("drawn classes" if missing else "drawn survey").X
        mixture = AnnealedBayesianMixture(2, emission="categorical", max_iter=2)
        if emission == "bernoulli":
            mixture, X = AnnealedBayesianMixture(2, max_iter=2), np.minimum(X, 1)
        _quietly(mixture, X)


def _quietly(fitted: Any, X: np.ndarray) -> Any:
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, RuntimeWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)
        return fitted.fit(X)
