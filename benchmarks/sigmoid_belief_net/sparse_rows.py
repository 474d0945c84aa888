"""Sparse binary rows: the cost of an epoch, its memory, and held-out rows of real tables.

The peer is scikit-learn's BernoulliRBM, an undirected net with one hidden layer, which takes sparse
rows too. Its normaliser, which held-out probabilities need, is estimated by annealed importance
sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from scipy.special import expit, logsumexp
from sklearn.neural_network import BernoulliRBM

from sklearn_anneal import AnnealedSigmoidBeliefNet

from ..common.data import load, present

BATCH = 100
# Values of the learning rate of which the best on a fifth of the rows that are fitted is taken.
RATES = (0.01, 0.03)
# Their columns are few: annealed importance sampling of thousands of them misses the normaliser by
# so much that rows get a probability above 1.
FILES = {"words of posts": "newsgroups_w100.npz", "mushrooms": "mushroom.npz"}
_DRAWN = "drawn"


@dataclass(frozen=True)
class Wide:
    """The shape of drawn sparse rows, with as many ones in each on average."""

    n_rows: int
    n_features: int
    ones: int
    hidden: int

    def __str__(self) -> str:
        return f"{self.n_rows:,} × {self.n_features:,}"


def wide_rows(shape: Wide) -> csr_array:
    """Rows with ones at random columns, float32."""
    rng = np.random.default_rng(0)
    places = np.tile(np.arange(shape.n_rows), shape.ones)
    columns = rng.integers(shape.n_features, size=len(places))
    X = csr_array(
        (np.ones(len(places), np.float32), (places, columns)),
        shape=(shape.n_rows, shape.n_features),
    )
    X.data[:] = 1.0
    return X


def timed_fits(shape: Wide) -> dict[str, Callable[[int], Any]]:
    """Functions that make a given number of passes: sparse, dense, and the peer."""
    X = wide_rows(shape)
    dense = X.toarray()

    def net(rows: Any) -> Callable[[int], Any]:
        def fit(n_passes: int) -> Any:
            made = AnnealedSigmoidBeliefNet(
                (shape.hidden,), batch_size=BATCH, max_iter=n_passes, tol=0, random_state=0
            )
            return made.fit(rows)

        return fit

    def machine(n_passes: int) -> Any:
        made = BernoulliRBM(shape.hidden, batch_size=BATCH, n_iter=n_passes, random_state=0)
        return made.fit(csr_matrix(X))

    return {"sparse": net(X), "dense": net(dense), "peer": machine}


def tables(n_rows: tuple[int, int], quick: bool) -> dict[str, csr_array]:
    """The tables as sparse rows in random order: as many as are fitted and held out, at most."""
    names = [_DRAWN] if quick else present(FILES, FILES.get)
    found = {}
    for name in names:
        X = _table(name)
        order = np.random.default_rng(0).permutation(X.shape[0])
        found[name] = X[order[: sum(n_rows)]]
    return found


def _table(name: str) -> csr_array:
    if name == _DRAWN:
        return wide_rows(Wide(300, 20, 4, 5))
    X = load(FILES[name])["X"]
    if name == "mushrooms":
        X = np.hstack([X[:, [j]] == np.arange(X[:, j].max() + 1) for j in range(X.shape[1])])
    return csr_array(X, dtype=np.float32)


def net_of(hidden: int, n_passes: int, rate: float) -> AnnealedSigmoidBeliefNet:
    return AnnealedSigmoidBeliefNet(
        (hidden,), learning_rate_init=rate, max_iter=n_passes, tol=0, random_state=0
    )


def machine_of(hidden: int, n_passes: int, rate: float) -> BernoulliRBM:
    return BernoulliRBM(hidden, learning_rate=rate, batch_size=10, n_iter=n_passes, random_state=0)


def log_probabilities(fit: Any, X: csr_array) -> np.ndarray:
    """Log probabilities of rows: a lower bound for nets, an estimate for machines."""
    if isinstance(fit, AnnealedSigmoidBeliefNet):
        found: np.ndarray = fit.score_samples(X)
        return found
    energy: np.ndarray = fit._free_energy(csr_matrix(X))
    return -energy - log_partition(fit, n_chains=100, seed=0)


def held_out(
    make: Callable[[int, int, float], Any], X: csr_array, test: csr_array, hidden: int, n: int
) -> tuple[np.ndarray, float]:
    """The log probabilities of held-out rows, and the learning rate that was chosen."""
    cut = X.shape[0] * 4 // 5
    scores = {
        rate: log_probabilities(make(hidden, n, rate).fit(X[:cut]), X[cut:]).mean()
        for rate in RATES
    }
    best = max(scores, key=lambda rate: scores[rate])
    return log_probabilities(make(hidden, n, best).fit(X), test), best


def of_columns(X: csr_array, test: csr_array) -> np.ndarray:
    """Log probabilities of rows under independent columns."""
    p = (X.sum(axis=0) + 0.5) / (X.shape[0] + 1.0)
    found: np.ndarray = test @ np.log(p / (1 - p)) + np.log1p(-p).sum()
    return found


def log_partition(rbm: BernoulliRBM, n_chains: int, seed: int, n_steps: int = 500) -> float:
    """Log normaliser of a restricted Boltzmann machine, by annealed importance sampling.

    Chains go from independent visible units with the biases of the machine to the machine itself,
    through inverse temperatures of the couplings (Salakhutdinov and Murray, 2008). The estimate of
    the normaliser is unbiased, so that its logarithm is more often too small than too large, and
    the probabilities of the machine are then too large.
    """
    rng = np.random.default_rng(seed)
    W, b, c = rbm.components_, rbm.intercept_visible_, rbm.intercept_hidden_

    def log_weights(of_visible: np.ndarray, x: float) -> np.ndarray:
        found: np.ndarray = np.logaddexp(0.0, x * of_visible).sum(axis=1)
        return found

    v = (rng.random((n_chains, len(b))) < expit(b)).astype(W.dtype)
    total = np.zeros(n_chains)
    steps = np.linspace(0.0, 1.0, n_steps + 1)
    for before, after in zip(steps, steps[1:], strict=False):
        u = v @ W.T + c
        total += log_weights(u, after) - log_weights(u, before)
        h = (rng.random((n_chains, len(c))) < expit(after * u)).astype(W.dtype)
        v = (rng.random(v.shape, W.dtype) < expit(after * (h @ W) + b)).astype(W.dtype)
    of_base = np.logaddexp(0.0, b).sum() + len(c) * np.log(2.0)
    return float(of_base + logsumexp(total) - np.log(n_chains))
