"""Expectation–maximisation with moves: random-swap EM and split-and-merge EM, in a plain form.

They are the anchors of the literature for Gaussian mixtures with full covariances. Both try moves
from an optimum of EM, run EM again, and keep what has the higher likelihood.

References
----------
Ueda, Nakano, Ghahramani, Hinton (2000). SMEM algorithm for mixture models. Neural Computation 12.
Zhao, Hautamäki, Kärkkäinen, Fränti (2012). Random swap EM algorithm for Gaussian mixture models.
Pattern Recognition Letters 33.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

# Swaps of the first algorithm, and passes of EM after each of them.
_SWAPS, _PASSES_OF_SWAP = 50, 5
# Candidates that the second algorithm tries from one optimum before it ends.
_CANDIDATES = 5


def em(X: np.ndarray, n_components: int, seed: int, n_init: int = 1) -> GaussianMixture:
    """scikit-learn's class with its default settings, with some starts."""
    return _fitted(GaussianMixture(n_components, n_init=n_init, random_state=seed), X)


def random_swap(X: np.ndarray, n_components: int, seed: int) -> GaussianMixture:
    """Random-swap EM: a component begins anew at a random row, a few passes, kept if better."""
    rng = np.random.default_rng(seed)
    best = em(X, n_components, seed)
    likelihood = best.score(X)
    width = np.cov(X.T).reshape(X.shape[1], -1) / n_components
    for _ in range(_SWAPS):
        means, weights = best.means_.copy(), best.weights_.copy()
        precisions = best.precisions_.copy()
        swapped = rng.integers(n_components)
        means[swapped] = X[rng.integers(len(X))]
        precisions[swapped] = np.linalg.inv(width)
        weights[swapped] = 1.0 / n_components
        trial = _from(X, means, precisions, weights, _PASSES_OF_SWAP)
        if trial is not None and trial.score(X) > likelihood:
            best, likelihood = trial, trial.score(X)
    return _from(X, best.means_, best.precisions_, best.weights_, 100) or best


def split_and_merge(X: np.ndarray, n_components: int, seed: int) -> GaussianMixture:
    """Split-and-merge EM: the most similar pair becomes one component, the worst one becomes two.

    Pairs are ranked by the products of their responsibilities, components to divide by how far
    the density near them is from their own. The algorithm ends when no candidate of an optimum
    leads to a higher likelihood.
    """
    rng = np.random.default_rng(seed)
    best = em(X, n_components, seed)
    while n_components >= 3:
        for pair, divided in _candidates(best, X):
            trial = _divided(best, X, pair, divided, rng)
            if trial is not None and trial.score(X) > best.score(X) + 1e-6:
                best = trial
                break
        else:
            return best
    return best


def _candidates(fit: GaussianMixture, X: np.ndarray) -> list[tuple[tuple[int, int], int]]:
    """The pairs to merge and the components to divide that promise most, best first."""
    r = fit.predict_proba(X)
    norms = np.maximum(np.linalg.norm(r, axis=0), 1e-300)
    overlap = np.triu((r.T @ r) / np.outer(norms, norms), 1)
    own = fit._estimate_log_prob(X)
    # The Kullback–Leibler divergence of the rows of a component from its own density.
    shares = r / np.maximum(r.sum(axis=0), 1e-300)
    misfit = (shares * (np.log(np.maximum(shares, 1e-300)) - own)).sum(axis=0)
    found = []
    for flat in np.argsort(-overlap, axis=None)[:_CANDIDATES]:
        i, j = np.unravel_index(flat, overlap.shape)
        rest = [k for k in np.argsort(-misfit) if k not in (i, j)]
        found += [((int(i), int(j)), int(k)) for k in rest[:2]]
    return found[: 2 * _CANDIDATES]


def _divided(
    fit: GaussianMixture,
    X: np.ndarray,
    pair: tuple[int, int],
    divided: int,
    rng: np.random.Generator,
) -> GaussianMixture | None:
    """The optimum of EM after a merge and a division."""
    (i, j), means, weights = pair, fit.means_.copy(), fit.weights_.copy()
    covariances = fit.covariances_.copy()
    total = weights[i] + weights[j]
    shares = weights[[i, j]] / total
    means[i] = shares @ means[[i, j]]
    covariances[i] = np.tensordot(shares, covariances[[i, j]], 1)
    weights[i] = total
    root = np.linalg.cholesky(covariances[divided])
    step = 0.5 * root @ rng.standard_normal(X.shape[1])
    means[j], means[divided] = means[divided] + step, means[divided] - step
    covariances[j] = covariances[divided]
    weights[j] = weights[divided] = 0.5 * weights[divided]
    return _from(X, means, np.linalg.inv(covariances), weights, 100)


def _from(
    X: np.ndarray, means: np.ndarray, precisions: np.ndarray, weights: np.ndarray, passes: int
) -> GaussianMixture | None:
    """EM from some parameters; None where a covariance collapses."""
    start = GaussianMixture(
        len(means),
        means_init=means,
        precisions_init=precisions,
        weights_init=weights / weights.sum(),
        max_iter=passes,
    )
    try:
        return _fitted(start, X)
    except ValueError:
        return None


def _fitted(mixture: GaussianMixture, X: np.ndarray) -> GaussianMixture:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return mixture.fit(X)
