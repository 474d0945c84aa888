"""Fits of spike-and-slab factor analysis and of what it is compared with, and their figures."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import PCA, FactorAnalysis, SparsePCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import average_precision_score

from sklearn_anneal import AnnealedFactorialMixture, AnnealedSpikeSlabFactorAnalysis
from sklearn_anneal.annealing import ANNEALING

from ..common.priors import effort_of
from ..common.reproduction import BaseSpec, Settings
from . import data, starts

try:
    from mofapy2.run.entry_point import entry_point
except ImportError:
    entry_point = None

GRADIENT, COORDINATE = "gradients", "coordinates"
BERNOULLI = "Bernoulli factors"
FACTORS, SPARSE, MOFA, PROBABILISTIC = "FactorAnalysis", "SparsePCA", "mofapy2", "PCA"
PEERS = {MOFA: entry_point}
# A component recovers loadings whose cosine with its own is at least this.
NEAR = 0.95
PENALTIES = (0.3, 1.0, 2.0, 3.0, 10.0)
MOFA_ITERATIONS = 500


@dataclass(frozen=True)
class Spec(BaseSpec):
    """A fit.

    Attributes
    ----------
    data : str
        :data:`BERNOULLI`, or a name in ``data.py``.
    n_components : tuple of int
        Of several, peers take the best; ours has one.
    n_rows : int
        Number of rows of drawn data; real data have a fixed number.
    method : str
        A name of ``annealing`` or of a peer.
    solver : str
        Of Bernoulli factors: :data:`GRADIENT` or :data:`COORDINATE`.
    distance : float
        Distance of the start of each mean of Bernoulli factors from the truth, before noise of
        variance 1, by gradients.
    n_steps : int
        Number of these.
    settings, model : tuple
        Parameters of the annealing method and of the estimator.
    seed : int
        Seed of the data and of the start.
    """

    data: str
    n_components: tuple[int, ...]
    n_rows: int = 0
    method: str = "none"
    solver: str = ""
    distance: float = 0.0
    n_steps: int = 0
    settings: Settings = ()
    model: Settings = ()
    seed: int = 0

    def __post_init__(self) -> None:
        # The cache reads lists where tuples were written.
        object.__setattr__(self, "n_components", tuple(self.n_components))

    @property
    def label(self) -> str:
        return f"{self.data}, {self.method} {self.solver} {self.distance:g}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", RuntimeWarning)  # divisions in mofapy2
            if self.data == BERNOULLI:
                found = self._from_start()
            elif self.data in data.DRAWN:
                found = self._recovered()
            else:
                found = self._scored()
        return {"seconds": time.process_time() - start, **found}

    def _from_start(self) -> dict[str, float]:
        X, means = data.bernoulli_factors(self.n_rows, self.seed)
        how = ANNEALING[self.method](**dict(self.settings))
        if self.solver == GRADIENT:
            rng = np.random.default_rng([self.seed, 1])
            first = means + self.distance + rng.standard_normal(means.shape)
            q = starts.climb(X, first, how, self.n_steps)
            return {"error": distance(q[starts.MEANS], means), "bound": starts.lower_bound(q, X)}
        fit = AnnealedFactorialMixture(
            len(means),
            annealing=how,
            random_state=self.seed,
            **{"effort": effort_of(self.method)} | dict(self.model),
        ).fit(X)
        return {"error": distance(fit.means_, means), "bound": fit.lower_bound_}

    def estimator(self) -> AnnealedSpikeSlabFactorAnalysis:
        """The estimator of this specification."""
        how = ANNEALING[self.method](**dict(self.settings))
        return AnnealedSpikeSlabFactorAnalysis(
            self.n_components[0],
            annealing=how,
            random_state=self.seed,
            **{"effort": effort_of(self.method)} | dict(self.model),
        )

    def _recovered(self) -> dict[str, float]:
        """Figures of the loadings; those of a peer are the best of its settings by the cosine."""
        X, loadings = data.drawn(self.data, self.n_rows, self.seed)
        if self.method in ANNEALING:
            fit = self.estimator().fit(X)
            extra = {"used": fit.n_effective_components_, "bound": fit.lower_bound_ / len(X)}
            return compared(fit.components_, loadings) | extra
        every = [compared(found, loadings) for found in self._of_peer(X)]
        return max(every, key=lambda figures: figures["cosine"])

    def _of_peer(self, X: np.ndarray) -> Iterator[np.ndarray]:
        """The loadings that a peer finds with each of its settings."""
        for k in self.n_components:
            if self.method == FACTORS:
                for rotation in ("varimax", "quartimax"):
                    fit = FactorAnalysis(k, rotation=rotation, max_iter=5000, tol=1e-4)
                    yield fit.fit(X).components_
            elif self.method == SPARSE:
                for alpha in PENALTIES:
                    fit = SparsePCA(k, alpha=alpha, method="cd", random_state=self.seed)
                    yield fit.fit(X).components_
            else:
                for both in (False, True):
                    yield mofa(X, k, both, self.seed)

    def _scored(self) -> dict[str, float]:
        """Held-out scores; the number of components of a peer is the best on held-out rows."""
        train, test = data.split(self.data, self.seed)
        if self.method in ANNEALING:
            fit = self.estimator().fit(train)
            return {
                "score": fit.score(test),
                "bound": fit.lower_bound_ / len(train),
                "used": fit.n_effective_components_,
            }
        kinds = {FACTORS: FactorAnalysis, PROBABILISTIC: PCA}
        n_chosen = len(train) // 5
        part, chosen = train[n_chosen:], train[:n_chosen]

        def fitted(k: int, X: np.ndarray) -> Any:
            return kinds[self.method](k, random_state=self.seed).fit(X)

        possible = [k for k in self.n_components if k < min(train.shape[1], len(part))]
        best = max(possible, key=lambda k: fitted(k, part).score(chosen))
        return {"score": fitted(best, train).score(test), "used": best}


def mofa(X: np.ndarray, k: int, both: bool, seed: int) -> np.ndarray:
    """Loadings of mofapy2 with sparse loadings, and with sparse factors too if asked for."""
    with contextlib.redirect_stdout(io.StringIO()):
        model = entry_point()
        model.set_data_options()
        model.set_data_matrix([[X]])
        model.set_model_options(
            factors=k, spikeslab_weights=True, ard_weights=True, spikeslab_factors=both
        )
        model.set_train_options(
            iter=MOFA_ITERATIONS, convergence_mode="slow", seed=seed, verbose=False, quiet=True
        )
        model.build()
        model.run()
    return np.asarray(model.model.nodes["W"].getExpectations()[0]["E"]).T


def distance(found: np.ndarray, means: np.ndarray) -> float:
    """The norm of the difference of all means, in the best assignment."""
    squares = ((found[:, None] - means) ** 2).sum(axis=-1)
    return float(np.sqrt(squares[linear_sum_assignment(squares)].sum()))


def compared(found: np.ndarray, loadings: np.ndarray) -> dict[str, float]:
    """How well loadings are found, up to their order, signs and lengths.

    Returns
    -------
    figures : dict of float
        ``cosine``, the mean of the absolute cosines with the true loadings in the best assignment;
        ``recovered``, the number of them that are at least :data:`NEAR`; and ``support``, the mean
        average precision of the absolute values as a ranking of the entries that are not zero.
    """
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    unit = found / np.where(lengths > 0, lengths, 1.0)
    true = loadings / np.linalg.norm(loadings, axis=1, keepdims=True)
    cosines = np.abs(true @ unit.T)
    rows, columns = linear_sum_assignment(-cosines)
    own = np.zeros(len(loadings))
    own[rows] = cosines[rows, columns]
    precision = [
        average_precision_score(loadings[i] != 0, np.abs(unit[j]))
        for i, j in zip(rows, columns, strict=True)
    ]
    return {
        "cosine": float(own.mean()),
        "recovered": int((own >= NEAR).sum()),
        "support": float(np.mean(precision)),
    }
