"""Fits to counts, and the score of held-out ones, for ours, topics and scikit-learn's NMF.

Every held-out row is divided in two halves as ``score`` divides it, and the score is the Poisson
log-likelihood of one half given the other, in nats per token: the tokens are the units of the
counts of the half that is predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln
from sklearn.decomposition import NMF

from sklearn_anneal import AnnealedGammaProcessNMF, AnnealedLatentDirichletAllocation
from sklearn_anneal.metrics import split_documents

# Iterations after which scikit-learn's NMF stops, and the shares of the margins in its rates.
STOPS, SMOOTHINGS = (10, 30, 100, 200), (0.0, 0.1)
# Rates are at least this large, so that no count has the probability zero.
SMALLEST_RATE = 1e-12
DEFAULT, PLAIN, TOPICS = "default", '`annealing="none"`', "topics × totals"


class Table(NamedTuple):
    """Counts for fitting and held-out ones, and the number of components."""

    name: str
    train: Any
    test: Any
    n_components: int


class Held(NamedTuple):
    """Both halves of the held-out rows, and the margins of the table.

    Attributes
    ----------
    given, predicted : csr_matrix of shape (n_rows, n_columns)
    margins : ndarray of shape (n_columns,)
        The share that each column has of all counts for fitting.
    """

    given: csr_matrix
    predicted: csr_matrix
    margins: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        """The sums of the rows that are given, of shape (n_rows,)."""
        return np.asarray(self.given.sum(axis=1)).ravel()

    @classmethod
    def of(cls, table: Table) -> Held:
        margins = np.asarray(table.train.sum(axis=0)).ravel()
        return cls(*split_documents(csr_matrix(table.test)), margins / margins.sum())

    def per_token(self, activations: np.ndarray, parts: np.ndarray, smoothing: float) -> float:
        """The log-likelihood of the predicted half, in nats per token.

        Rates are ``activations @ parts``, of which a share is replaced by the row's total of the
        given half times the margins.
        """
        counts = self.predicted.tocsr()
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        rates = np.einsum("ik,ki->i", activations[rows], parts[:, counts.indices])
        of_margins = self.totals[rows] * self.margins[counts.indices]
        rates = np.maximum((1.0 - smoothing) * rates + smoothing * of_margins, SMALLEST_RATE)
        total = (1.0 - smoothing) * float((activations @ parts.sum(axis=1)).sum())
        total += smoothing * float(self.totals.sum())
        found = counts.data @ np.log(rates) - float(gammaln(counts.data + 1.0).sum()) - total
        return float(found / counts.sum())


def fits(table: Table, seed: int) -> dict[str, Callable[[], Any]]:
    """The fits that are compared, by their names."""
    X, k = table.train, table.n_components
    kinds: dict[str, Any] = {
        DEFAULT: AnnealedGammaProcessNMF(k, random_state=seed),
        PLAIN: AnnealedGammaProcessNMF(
            k, annealing="none", init_params="random", random_state=seed
        ),
        TOPICS: AnnealedLatentDirichletAllocation(k, random_state=seed),
    }
    how = {"solver": "mu", "beta_loss": "kullback-leibler", "init": "random", "tol": 0.0}
    for stop in STOPS:
        kinds[f"NMF, {stop} iterations"] = NMF(k, max_iter=stop, random_state=seed, **how)
    given = {name: X.astype(np.float64) if "NMF," in name else X for name in kinds}
    return {name: partial(kind.fit, given[name]) for name, kind in kinds.items()}


def scores(fitted: Any, table: Table, held: Held) -> list[float]:
    """Nats per held-out token, one figure for ours and one per smoothing for scikit-learn's."""
    if isinstance(fitted, AnnealedGammaProcessNMF):
        cells = float(np.prod(table.test.shape))
        return [fitted.score(table.test) * cells / float(held.predicted.sum())]
    parts = fitted.components_
    if isinstance(fitted, NMF):
        activations = fitted.transform(held.given.astype(np.float64))
        return [held.per_token(activations, parts, smoothing) for smoothing in SMOOTHINGS]
    activations = fitted.transform(held.given) * held.totals[:, None]
    return [held.per_token(activations, parts / parts.sum(axis=1, keepdims=True), 0.0)]
