"""Fits of sigmoid belief nets and of what they are compared with, and their figures."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import BernoulliRBM

from sklearn_anneal import AnnealedSigmoidBeliefNet
from sklearn_anneal.annealing import ANNEALING

from ..common.reproduction import BaseSpec, Settings
from . import data

MARGINALS, RBM = "independent columns", "BernoulliRBM"
_BATCH = 100


@dataclass(frozen=True)
class Spec(BaseSpec):
    """A fit.

    Attributes
    ----------
    data : str
        A name in ``data.py``.
    n_train, n_test : int
        Numbers of rows that are fitted and held out.
    sizes : tuple of int
        Numbers of hidden units, from the first layer to the top.
    n_passes : int
        Number of passes, those of the schedule among them.
    rates : tuple of float
        Learning rates; of several, the best on rows that are neither fitted nor held out is taken.
    method : str
        A name of ``annealing``, :data:`MARGINALS` or :data:`RBM`.
    settings, model : tuple
        Parameters of the annealing method and of the estimator.
    n_scored : int
        Number of draws, or of chains, by which log probabilities are estimated.
    seed : int
        Seed of the data and of the start.
    """

    data: str
    n_train: int
    n_test: int
    sizes: tuple[int, ...] = ()
    n_passes: int = 100
    rates: tuple[float, ...] = (0.01,)
    method: str = "none"
    settings: Settings = ()
    model: Settings = ()
    n_scored: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        # The cache reads lists where tuples were written.
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "rates", tuple(self.rates))

    @property
    def label(self) -> str:
        shape = " × ".join(map(str, self.sizes))
        return f"{self.data}, {self.method} {shape} {dict(self.settings)}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        train, test = data.split(self.data, self.n_train, self.n_test, self.seed)
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = self._fitted(train, test)
        return {"seconds": time.process_time() - start, **found}

    def _fitted(self, train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
        if self.method == MARGINALS:
            p = (train.sum(axis=0) + 0.5) / (len(train) + 1.0)
            score = (test * np.log(p) + (1 - test) * np.log1p(-p)).sum(axis=1).mean()
            return {"score": float(score), "error": error(test, p), "rate": 0.0}
        rate = self.rates[0]
        if len(self.rates) > 1:
            n_held_out = len(train) // 5
            part, chosen = train[n_held_out:], train[:n_held_out]
            scores = [self._scores(self.estimator(r).fit(part), chosen) for r in self.rates]
            rate = self.rates[int(np.argmax([one["score"] for one in scores]))]
        fit = self.estimator(rate).fit(train)
        found = self._scores(fit, test) | {"rate": rate}
        if self.method != RBM:
            found["bound"] = fit.lower_bound_ / len(train)
        return found

    def estimator(self, rate: float) -> Any:
        """The model of this specification, with a learning rate."""
        if self.method == RBM:
            return BernoulliRBM(
                self.sizes[0],
                learning_rate=rate,
                batch_size=_BATCH // 10,
                n_iter=self.n_passes,
                random_state=self.seed,
            )
        how = ANNEALING[self.method](**dict(self.settings))
        annealed = how.get_params().get("n_passes", 0)
        return AnnealedSigmoidBeliefNet(
            self.sizes,
            annealing=how,
            learning_rate_init=rate,
            batch_size=_BATCH,
            max_iter=self.n_passes - annealed,
            tol=0.0,
            n_score_samples=self.n_scored,
            random_state=self.seed,
            **dict(self.model),
        )

    def _scores(self, fit: Any, X: np.ndarray) -> dict[str, float]:
        if self.method == RBM:
            constant = log_partition(fit, self.n_scored, self.seed)
            p = expit(X @ fit.components_.T + fit.intercept_hidden_)
            mean = expit(p @ fit.components_ + fit.intercept_visible_)
            return {
                "score": float((-fit._free_energy(X) - constant).mean()),
                "error": error(X, mean),
            }
        return {"score": fit.score(X), "error": error(X, fit.reconstruct(X))}


def error(X: np.ndarray, means: np.ndarray) -> float:
    """The mean of |x − E x′| over all entries."""
    return float(np.abs(X - means).mean())


def log_partition(rbm: BernoulliRBM, n_chains: int, seed: int, n_steps: int = 1000) -> float:
    """Log normaliser of a restricted Boltzmann machine, by annealed importance sampling.

    Chains go from independent visible units with the biases of the machine to the machine itself,
    through inverse temperatures of the couplings (Salakhutdinov and Murray, 2008). The estimate of
    the normaliser is unbiased, so that its logarithm is more often too small than too large, and
    the probabilities of the machine are then too large.
    """
    rng = np.random.default_rng(seed)
    W, b, c = rbm.components_, rbm.intercept_visible_, rbm.intercept_hidden_

    def log_weights(v: np.ndarray, x: float) -> np.ndarray:
        return v @ b + np.logaddexp(0.0, x * (v @ W.T + c)).sum(axis=1)

    v = (rng.random((n_chains, len(b))) < expit(b)).astype(float)
    total = np.zeros(n_chains)
    steps = np.linspace(0.0, 1.0, n_steps + 1)
    for before, after in zip(steps, steps[1:], strict=False):
        total += log_weights(v, after) - log_weights(v, before)
        h = rng.random((n_chains, len(c))) < expit(after * (v @ W.T + c))
        v = (rng.random(v.shape) < expit(after * (h @ W) + b)).astype(float)
    of_base = np.logaddexp(0.0, b).sum() + len(c) * np.log(2.0)
    return float(of_base + logsumexp(total) - np.log(n_chains))
