"""Fits of factorial mixtures and of what they are compared with, and what is measured of each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import BernoulliRBM

from sklearn_anneal import AnnealedFactorialMixture
from sklearn_anneal.annealing import ANNEALING

from ..common.priors import effort_of
from ..common.reproduction import BaseSpec, Settings
from . import data

# σ_n = 0.1, σ_μ = 0.35 and π = 0.3 of Mandt et al., section 4.2.
PAPER = {"noise_variance": 0.01, "mean_variance": 0.35**2, "activation_prior": 0.3}
# Settings of the other estimators: the best of several for one split of the digits, by the error of
# held-out rows. For the penalty of dictionary learning 0.02, 0.05, 0.1, 0.2 and 0.5 were tried, for
# the learning rate 0.01, 0.05 and 0.1, and for the batch size 10 and 50.
_PENALTY, _RATE, _BATCH = 0.02, 0.05, 10


@dataclass(frozen=True)
class Spec(BaseSpec):
    """A fit.

    Attributes
    ----------
    data : str
        A name in ``data.py``.
    n_components : int
    n_train, n_test : int
        Numbers of rows that are fitted and held out.
    method : str
        A name of ``annealing``, or of another estimator in :data:`OTHERS`.
    settings, model : tuple
        Parameters of the annealing method and of the estimator.
    stream : int
        Number of rows per batch, if ``partial_fit`` gets the rows once, in batches; 0 if ``fit``
        gets all of them.
    seed : int
        Seed of the start, and of the data.
    """

    data: str
    n_components: int
    n_train: int
    n_test: int = 0
    method: str = "none"
    settings: Settings = ()
    model: Settings = ()
    stream: int = 0
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.data}, K = {self.n_components}, {self.method}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self._toy() if self.data == data.TOY else self._images()

    def estimator(self) -> AnnealedFactorialMixture:
        """The factorial mixture of this specification."""
        how = ANNEALING[self.method](**dict(self.settings))
        return AnnealedFactorialMixture(
            self.n_components,
            annealing=how,
            random_state=self.seed,
            **{"effort": effort_of(self.method)} | dict(self.model),
        )

    def _toy(self) -> dict[str, Any]:
        X, parts = data.drawn(self.n_train, self.seed)
        fit = self.estimator()
        start = time.process_time()
        if self.stream:
            for first in range(0, len(X), self.stream):
                fit.partial_fit(X[first : first + self.stream])
        else:
            fit.fit(X)
        found = {
            "seconds": time.process_time() - start,
            "recovered": data.n_recovered(fit.means_, parts),
        }
        if not self.stream:  # The bound of a stream is that of its last batch.
            found |= {"bound": fit.lower_bound_, "passes": fit.n_passes_}
        return found

    def _images(self) -> dict[str, Any]:
        train, test = data.split(self.data, self.n_train, self.n_test, self.seed)
        start = time.process_time()
        if self.method in OTHERS:
            found = OTHERS[self.method](self.n_components, self.seed, train, test)
        else:
            found = self._reconstruct(train, test)
        return {"seconds": time.process_time() - start, **found}

    def _reconstruct(self, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
        fit = self.estimator().fit(train)
        codes = fit.transform(test)
        return {
            "error": mean_square(fit.inverse_transform(np.round(codes)), test),
            "soft": mean_square(fit.inverse_transform(codes), test),
            "bound": fit.lower_bound_ / len(train),
            "score": fit.score(test),
        }


def mean_square(found: np.ndarray, rows: np.ndarray) -> float:
    return float(np.mean((found - rows) ** 2))


# Other estimators. Each returns the error of a reconstruction from K bits per row, or from the
# number of one of K centres, and the error from real codes or activations if it has any.


def k_means(k: int, seed: int, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    fit = KMeans(k, n_init=10, random_state=seed).fit(train)
    return {"error": mean_square(fit.cluster_centers_[fit.predict(test)], test)}


def restricted_boltzmann(
    k: int, seed: int, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    fit = BernoulliRBM(
        k, learning_rate=_RATE, batch_size=_BATCH, n_iter=100, random_state=seed
    ).fit(train)

    def visible(hidden: np.ndarray) -> np.ndarray:
        drive = hidden @ fit.components_ + fit.intercept_visible_
        return 1.0 / (1.0 + np.exp(-drive))

    codes = fit.transform(test)
    return {
        "error": mean_square(visible(np.round(codes)), test),
        "soft": mean_square(visible(codes), test),
    }


def dictionary(k: int, seed: int, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Codes are cut in two at half of their mean where they are positive, and atoms refitted."""
    fit = MiniBatchDictionaryLearning(
        k,
        alpha=_PENALTY,
        positive_code=True,
        fit_algorithm="cd",
        transform_algorithm="lasso_cd",
        transform_alpha=_PENALTY,
        max_iter=100,
        random_state=seed,
    ).fit(train)
    codes, held_out = fit.transform(train), fit.transform(test)
    positive = np.where(codes > 0, codes, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        cut = 0.5 * np.nan_to_num(np.nanmean(positive, axis=0), nan=np.inf)
    atoms = np.linalg.lstsq((codes > cut) * 1.0, train, rcond=None)[0]
    return {
        "error": mean_square((held_out > cut) @ atoms, test),
        "soft": mean_square(held_out @ fit.components_, test),
    }


OTHERS: dict[str, Callable[[int, int, np.ndarray, np.ndarray], dict[str, float]]] = {
    "k-means": k_means,
    "BernoulliRBM": restricted_boltzmann,
    "DictionaryLearning": dictionary,
}
