"""Spike-and-slab factor analysis in plain numpy, row by row, and its evidence on tiny data.

Everything is written from the generative model x_d = Σ_k z_k s_k w_kd + ε_d with
z_k ~ Bernoulli(π_k), s_k ~ N(0, 1), ε_d ~ N(0, ψ_d) and w_kd ~ N(0, ψ_d v_k), and uses nothing of
the package. Missing cells are left out.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, logsumexp
from scipy.stats import bernoulli, norm

LARGEST_LOGIT = 30.0


def mean_field(x, means, covariances, psi, prior, temperature, start, n_sweeps, tol):
    """q(z, s) of one row, whose missing cells are NaN.

    ``means`` (K, D) and ``covariances`` (D, K, K) are those of q(w) in the units of the data, and
    ``start`` has logits and E[s | z = 1]. Returns ν, E[s | z = 1], E[u uᵀ], energy and entropy.
    """
    seen = ~np.isnan(x)
    x, means, covariances, psi = x[seen], means[:, seen], covariances[seen], psi[seen]
    gram = (means / psi) @ means.T + np.einsum("dkl,d->kl", covariances, 1.0 / psi)
    projections = (means / psi) @ x
    logits, m = (np.array(part, dtype=float) for part in start)
    nu, k = expit(logits), len(prior)
    for _ in range(n_sweeps):
        before = nu.copy(), (nu * m).copy()
        for i in range(k):
            others = sum(gram[i, j] * nu[j] * m[j] for j in range(k) if j != i)
            m[i] = (projections[i] - others) / (1.0 + gram[i, i])
            # log ∫ p(x, s, z = 1)^(1/T) ds − log ∫ p(x, s, z = 0)^(1/T) ds
            evidence = 0.5 * (1.0 + gram[i, i]) * m[i] ** 2 / temperature
            evidence -= 0.5 * np.log(1.0 + gram[i, i])
            odds = np.log(prior[i] / (1.0 - prior[i])) / temperature
            logits[i] = np.clip(odds + evidence, -LARGEST_LOGIT, LARGEST_LOGIT)
            nu[i] = expit(logits[i])
        if max(np.abs(nu - before[0]).max(), np.abs(nu * m - before[1]).max()) <= tol:
            break
    on, off = temperature / (1.0 + np.diagonal(gram)), temperature * np.ones(k)
    u, squares = nu * m, nu * (m**2 + on)
    second = np.outer(u, u)
    np.fill_diagonal(second, squares)
    error = (x**2 / psi).sum() - 2.0 * u @ projections + np.sum(gram * second)
    energy = -0.5 * (error + np.log(2.0 * np.pi * psi).sum())
    energy += nu @ np.log(prior) + (1.0 - nu) @ np.log1p(-prior)
    energy -= 0.5 * np.sum(np.log(2.0 * np.pi) + squares + (1.0 - nu) * off)
    entropy = bernoulli(nu).entropy().sum()
    entropy += nu @ norm(scale=np.sqrt(on)).entropy() + (1.0 - nu) @ norm(scale=off**0.5).entropy()
    return nu, m, second, float(energy), float(entropy)


def log_evidence(estimator: Any, X: np.ndarray) -> float:
    """log p(X): quadrature over the slabs, a sum over the activations, and the loadings integrated.

    Given all factors U, the columns of X are independent, and N(0, ψ_d (v U Uᵀ + I)).
    """
    X = X - estimator.mean_
    n, k = len(X), estimator.n_components
    prior, v = estimator.activation_probabilities_, estimator.loading_variance_
    psi = estimator.noise_variance_
    nodes, weights = hermegauss(12)
    weights = np.log(weights / weights.sum())
    terms = []
    for z in product((0.0, 1.0), repeat=n * k):
        on = np.flatnonzero(z)
        of_z = np.where(np.reshape(z, (n, k)) > 0, prior, 1.0 - prior)
        if not of_z.all():
            continue
        log_prior = np.log(of_z).sum()
        grid = np.array(list(product(range(len(nodes)), repeat=len(on))), dtype=int)
        U = np.zeros((len(grid), n * k))
        U[:, on] = nodes[grid]
        U = U.reshape(-1, n, k)
        covariance = np.einsum("gik,k,gjk->gij", U, v, U) + np.eye(n)
        found = weights[grid].sum(axis=1) + log_prior
        for x, noise in zip(X.T, psi, strict=True):
            seen = ~np.isnan(x)
            part = covariance[:, seen][:, :, seen] * noise
            quadratic = np.einsum("i,gij,j->g", x[seen], np.linalg.inv(part), x[seen])
            log_det = np.linalg.slogdet(2.0 * np.pi * part)[1]
            found = found - 0.5 * (quadratic + log_det)
        terms.append(logsumexp(found))
    return float(logsumexp(terms))
