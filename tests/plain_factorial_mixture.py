"""The factorial mixture in plain numpy, row by row, and its exact evidence on tiny data.

Everything is written from the generative model x = Σ_k z_k μ_k + ε and uses nothing of the package.
An offset is a first component for which there is no prior probability: it is active in every row.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal

LARGEST_LOGIT = 30.0


def states(n_components):
    """All z in {0, 1}^K, the first component changing fastest."""
    return np.array([z[::-1] for z in product((0.0, 1.0), repeat=n_components)])


def log_prior_of_state(z, prior):
    return float(np.sum(np.where(z > 0, np.log(prior), np.log1p(-prior))))


def expected_log_joint(x, z, means, gram, noise_variance, prior):
    """E log p(x, z | μ) in nats, given E μ (K, D) and E μ μᵀ (K, K), for z in {0, 1}^K."""
    error = x @ x - 2.0 * z @ means @ x + z @ gram @ z
    constant = len(x) * np.log(2.0 * np.pi * noise_variance)
    return -0.5 * (error / noise_variance + constant) + log_prior_of_state(z[-len(prior) :], prior)


def entropy_of_activations(nu):
    return float(-(nu * np.log(nu) + (1.0 - nu) * np.log1p(-nu)).sum())


def mean_field(x, means, gram, noise_variance, prior, temperature, logits, n_sweeps, tol):
    """q(z) of one row as independent activations: E z, E[z zᵀ], energy, entropy."""
    logits = np.array(logits, dtype=float)
    n_fixed = len(means) - len(prior)
    nu = np.r_[np.ones(n_fixed), expit(logits)]
    for _ in range(n_sweeps):
        before = nu.copy()
        for k in range(n_fixed, len(nu)):
            others = sum(gram[k, j] * nu[j] for j in range(len(nu)) if j != k)
            drive = (means[k] @ x - 0.5 * gram[k, k] - others) / noise_variance
            p = prior[k - n_fixed]
            drive += np.log(p / (1.0 - p))
            nu[k] = expit(np.clip(drive / temperature, -LARGEST_LOGIT, LARGEST_LOGIT))
        if np.abs(nu - before).max() <= tol:
            break
    second = np.outer(nu, nu)
    np.fill_diagonal(second, nu)
    error = x @ x - 2.0 * nu @ means @ x + np.sum(gram * second)
    energy = -0.5 * (error / noise_variance + len(x) * np.log(2.0 * np.pi * noise_variance))
    free = nu[n_fixed:]
    energy += free @ np.log(prior) + (1.0 - free) @ np.log1p(-prior)
    return nu, second, float(energy), entropy_of_activations(free)


def enumerated(x, means, gram, noise_variance, prior, temperature):
    """The exact q(z) ∝ exp{E log p(x, z | μ) / T} of one row, as :func:`mean_field` returns it."""
    every = states(len(prior))
    every = np.column_stack([np.ones((len(every), len(means) - len(prior))), every])
    joint = np.array([expected_log_joint(x, z, means, gram, noise_variance, prior) for z in every])
    tempered = joint / temperature
    r = np.exp(tempered - logsumexp(tempered))
    return (
        r @ every,
        np.einsum("s,si,sj->ij", r, every, every),
        float(r @ joint),
        float(-np.sum(r * np.log(np.maximum(r, 1e-300)))),
    )


def factorial_mixture_log_evidence(estimator: Any, X: np.ndarray) -> float:
    """log p(X): a sum over the activations of all rows, with the components integrated out.

    Given all activations Z, the columns of X are independent, and N(0, s Z Zᵀ + σ² I). An offset b
    has b + Σ_k μ_k / 2 ~ N(c, v I), with the mean c of the data and their variance v.
    """
    n, k = len(X), estimator.n_components
    of_middle = 0.0
    if estimator.center:
        X = X - X.mean(axis=0)
        of_middle = np.mean(X**2)
    prior = estimator.activation_probabilities_
    terms = []
    for rows in product(product((0.0, 1.0), repeat=k), repeat=n):
        Z = np.array(rows)
        from_middle = Z - 0.5 * estimator.center
        covariance = estimator.mean_variance_ * from_middle @ from_middle.T + of_middle
        covariance = covariance + estimator.noise_variance_ * np.eye(n)
        columns = multivariate_normal(np.zeros(n), covariance).logpdf(X.T)
        terms.append(sum(log_prior_of_state(z, prior) for z in Z) + np.sum(columns))
    return float(logsumexp(terms))
