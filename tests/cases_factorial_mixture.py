"""Helpers that the modules test_factorial_mixture_*.py share: data, models, comparisons."""

from __future__ import annotations

import numpy as np
from models.factorial_mixture import GIVEN, small_factorial_mixture, sums_of_parts

from sklearn_anneal.models._factorial_steps import Moments
from sklearn_anneal.models.factorial_mixture import FactorialMixture

__all__ = ["GIVEN", "PARTS", "drawn_parts", "fitted", "n_recovered", "small_factorial_mixture"]

STEPS = ("mean_field", "enumerate")

# Eight binary images of 4 × 4 pixels that overlap, as in Mandt et al. (2016), section 4.2.
PARTS = np.array(
    [
        [1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        [1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1],
    ],
    dtype=float,
)
# The settings of the paper: σ_n = 0.1, σ_μ = 0.35 and π = 0.3.
PAPER = {"noise_variance": 0.01, "mean_variance": 0.35**2, "activation_prior": 0.3}


def drawn_parts(rng, n):
    """Rows drawn as the paper does, the parts, and the activations."""
    means = PARTS * rng.uniform(0.5, 1.0, size=(8, 1))
    activations = rng.random((n, 8)) < 0.3
    return activations @ means + 0.1 * rng.standard_normal((n, 16)), means, activations


def n_recovered(found, means, tol=0.1):
    """Number of parts that some component equals, up to a root mean square difference."""
    differences = np.sqrt(((found[:, None] - means[None]) ** 2).mean(axis=-1))
    return int((differences.min(axis=0) < tol).sum())


def fitted(rng, local_step="mean_field", n=60, n_features=4, **params):
    """A small estimator and its training data."""
    X = sums_of_parts(n_features)(rng, n)
    return small_factorial_mixture(local_step=local_step, **params).fit(X), X


def drawn_moments(rng, k, d):
    """Random E μ and E μ μᵀ, the latter larger than the square of the former."""
    means = rng.normal(size=(k, d))
    root = 0.3 * rng.normal(size=(k, k + 1))
    return means, means @ means.T + root @ root.T


def likelihood_of(means, gram, noise_variance, prior, local_step, tol=0.0):
    model = FactorialMixture(len(means), means.shape[1], local_step, sweep_tol=tol)
    model.noise_variance, model.activation_prior = noise_variance, np.asarray(prior)
    covariance = (gram - means @ means.T) / means.shape[1]
    root = np.zeros_like(covariance)
    if np.abs(covariance).max() > 1e-9 * np.abs(gram).max():
        root = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(covariance)))
    return model.likelihood(Moments(means, root))
