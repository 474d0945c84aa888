"""Two searches of the literature around EM for Gaussian mixtures, in a plain form.

They say how far a search can get that is not ours: random-swap EM (Zhao, Hautamäki, Kärkkäinen and
Fränti, 2012) and split-and-merge EM (Ueda, Nakano, Ghahramani and Hinton, 2000). Both begin where
scikit-learn's ``GaussianMixture`` ends with one start, and have its full covariances and its
``reg_covar``.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture

from .settings import MAX_ITER, TOL

REG_COVAR = 1e-6
# Swaps are tried so many times for each component, and each is judged after so many iterations.
_SWAPS, _ITERATIONS_OF_SWAP = 2, 5
# The pairs and the components that are tried in each round of splits and merges, as in the paper.
_CANDIDATES, _ROUNDS = 5, 20


class Gaussians(NamedTuple):
    """A Gaussian mixture.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_columns)
    covariances_ : ndarray of shape (n_components, n_columns, n_columns)
    """

    weights_: np.ndarray
    means_: np.ndarray
    covariances_: np.ndarray

    @classmethod
    def of(cls, fitted: GaussianMixture) -> Gaussians:
        return cls(fitted.weights_, fitted.means_, fitted.covariances_)

    def log_joint(self, X: np.ndarray) -> np.ndarray:
        """The log density of every row and component, (n_rows, n_components)."""
        return self.log_densities(X) + np.log(self.weights_)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """The log density of every row given each component, (n_rows, n_components)."""
        result = np.empty((len(X), len(self.weights_)))
        for k, (mean, covariance) in enumerate(zip(self.means_, self.covariances_, strict=True)):
            root = np.linalg.cholesky(covariance)
            distance = (solve_triangular(root, (X - mean).T, lower=True) ** 2).sum(axis=0)
            constant = len(mean) / 2 * np.log(2 * np.pi) + np.log(np.diag(root)).sum()
            result[:, k] = -constant - distance / 2
        return result

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return logsumexp(self.log_joint(X), axis=1)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.log_joint(X).argmax(axis=1)

    def shares(self, X: np.ndarray) -> tuple[np.ndarray, float]:
        """The responsibilities, and the mean log likelihood of the rows."""
        joint = self.log_joint(X)
        each = logsumexp(joint, axis=1)
        return np.exp(joint - each[:, None]), float(each.mean())

    def with_component(self, k: int, *values: Any) -> Gaussians:
        """A copy in which the weight, mean and covariance of a component are replaced."""
        changed = [array.copy() for array in self]
        for array, value in zip(changed, values, strict=True):
            array[k] = value
        weights, means, covariances = changed
        return Gaussians(weights / weights.sum(), means, covariances)


def maximised(X: np.ndarray, shares: np.ndarray) -> Gaussians:
    """The M-step."""
    counts = shares.sum(axis=0) + 10 * np.finfo(float).eps
    means = shares.T @ X / counts[:, None]
    covariances = np.empty((len(counts), X.shape[1], X.shape[1]))
    for k, mean in enumerate(means):
        centred = X - mean
        covariances[k] = (shares[:, k, None] * centred).T @ centred / counts[k]
        covariances[k].flat[:: X.shape[1] + 1] += REG_COVAR
    return Gaussians(counts / counts.sum(), means, covariances)


def em(X: np.ndarray, start: Gaussians, n_iter: int = MAX_ITER) -> tuple[Gaussians, float]:
    """Iterations of EM, and the mean log likelihood of the rows that they reach."""
    mixture = start
    shares, reached = mixture.shares(X)
    for _ in range(n_iter):
        mixture, before = maximised(X, shares), reached
        shares, reached = mixture.shares(X)
        if reached - before < TOL:
            break
    return mixture, reached


def _first(X: np.ndarray, n_components: int, seed: int) -> Gaussians:
    fitted = GaussianMixture(
        n_components, tol=TOL, max_iter=MAX_ITER, reg_covar=REG_COVAR, random_state=seed
    )
    return Gaussians.of(fitted.fit(X))


def random_swap(X: np.ndarray, n_components: int, seed: int) -> Gaussians:
    """EM, after swaps of a random component to a random row that raise the likelihood."""
    rng = np.random.default_rng(seed)
    best, reached = em(X, _first(X, n_components, seed))
    spread = np.cov(X.T).reshape(X.shape[1], -1) / n_components ** (2 / X.shape[1])
    spread.flat[:: X.shape[1] + 1] += REG_COVAR
    for _ in range(_SWAPS * n_components):
        k, row = rng.integers(n_components), rng.integers(len(X))
        swapped = best.with_component(k, 1 / n_components, X[row], spread)
        found, likelihood = em(X, swapped, _ITERATIONS_OF_SWAP)
        if likelihood > reached:
            best, reached = found, likelihood
    return em(X, best)[0]


def split_and_merge(X: np.ndarray, n_components: int, seed: int) -> Gaussians:
    """EM, and after it splits of a component with merges of two others that raise the likelihood.

    The pair to merge shares its rows most, and the component to split is farthest from the rows
    that it has, by the local Kullback-Leibler divergence of the paper.
    """
    rng = np.random.default_rng(seed)
    best, reached = em(X, _first(X, n_components, seed))
    for _ in range(_ROUNDS if n_components > 2 else 0):
        for i, j, k in _candidates(X, best):
            found, likelihood = em(X, _moved(X, best, (i, j, k), rng))
            if likelihood > reached + TOL:
                best, reached = found, likelihood
                break
        else:
            break
    return best


def _candidates(X: np.ndarray, mixture: Gaussians) -> list[tuple[int, int, int]]:
    """The most promising merges of a pair, each with the most promising split of another."""
    shares, _ = mixture.shares(X)
    norms = np.linalg.norm(shares, axis=0)
    alike = shares.T @ shares / np.outer(norms, norms)
    n_components = len(mixture.weights_)
    pairs = sorted(combinations(range(n_components), 2), key=lambda pair: -alike[pair])
    local = shares / shares.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(local > 0, np.log(local), 0.0) - mixture.log_densities(X)
    farthest = np.argsort(-(local * logs).sum(axis=0))
    triples = [
        (i, j, next(int(k) for k in farthest if k not in (i, j))) for i, j in pairs[:_CANDIDATES]
    ]
    others = [(*pairs[0], int(k)) for k in farthest[: _CANDIDATES + 2] if k not in pairs[0]]
    return list(dict.fromkeys([*triples, *others]))


def _moved(
    X: np.ndarray, mixture: Gaussians, which: tuple[int, int, int], rng: np.random.Generator
) -> Gaussians:
    """The mixture after the merge of the first two components and the split of the third."""
    i, j, k = which
    shares, _ = mixture.shares(X)
    shares[:, i] += shares[:, j]
    merged = maximised(X, shares)
    covariance = mixture.covariances_[k]
    root = np.linalg.cholesky(covariance)
    mean = mixture.means_[k]
    away = root @ rng.standard_normal(len(mean)) / np.sqrt(len(mean))
    # The paper's covariance of both halves is spherical with the same determinant.
    half = np.eye(len(mean)) * np.exp(2 * np.log(np.diag(root)).mean())
    weight = mixture.weights_[k] / 2
    once = merged.with_component(j, weight, mean + away, half)
    return once.with_component(k, weight, mean - away, half)
