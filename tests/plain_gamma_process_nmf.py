"""Gamma-process factorisation in plain numpy, row by row and with every missing cell left out.

Everything is written from the generative model x_nv ~ Poisson(Σ_k h_nk θ_k w_kv) and uses nothing
of the package. Components are arrays of shape (K, V).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi
from scipy.stats import gamma, multinomial, poisson


class Step(NamedTuple):
    """What the rows of a local step add up to, and the activations that were inferred.

    ``evidence`` is Σ w (E log h − E h); ``exposure`` has one row per column of X.
    """

    counts: np.ndarray
    exposure: np.ndarray
    evidence: float
    energy: float
    entropy: float
    log_prior: float
    shape: np.ndarray
    rate: np.ndarray


def expectations(shape, rate):
    """E log x and E x of gamma distributions, by their definitions."""
    return psi(shape) - np.log(rate), shape / rate


def divided(logs_of_row, logs, factor):
    """φ_kv ∝ exp{f (E log h_k + E log θ_k w_kv)} of the columns of a row, shape (K, n_columns)."""
    exponents = factor * (logs_of_row[:, None] + logs)
    weights = np.exp(exponents - exponents.max(axis=0))
    return weights / weights.sum(axis=0)


def infer_row(x, logs, means, b, t, start, n_sweeps, tol):
    """The gamma distribution of one row's activations, and how its counts are divided at the end.

    ``logs`` and ``means`` are E log θ w and E θ w of the observed cells; ``start`` is a pair of
    shape and rate, or None for equal activations. ``t`` has the factors of the local step, of the
    statistics and of the prior. The activations are those that belong to the last division.
    """
    local, statistics, prior = t
    base, rate = 1.0 + prior * (b - 1.0), prior * b + statistics * means.sum(axis=1)
    k = len(logs)
    shape = np.ones(k) if start is None else np.array(start[0], dtype=float)
    of_row = np.zeros(k) if start is None else expectations(*start)[0]
    for _ in range(n_sweeps - 1):
        new = base + statistics * divided(of_row, logs, local) @ x
        change = np.abs(new - shape).sum()
        shape, of_row = new, psi(new) - np.log(rate)
        if change < tol * k:
            break
    shares = divided(of_row, logs, local)
    if n_sweeps == 0:
        return shape, start[1], shares
    return base + statistics * shares @ x, rate, shares


def local_step(
    X, q, b, t=(1.0, 1.0, 1.0), start=None, n_sweeps=40, tol=1e-3, weights=None, noise=None
):
    """The local step of all rows of X, in which NaN is a missing cell."""
    n, v = X.shape
    log_weights, mean_weights = expectations(q["weights_shape"], q["weights_rate"])
    logs, means = expectations(q["components_shape"], q["components_rate"])
    logs, rates = logs + log_weights[:, None], means * mean_weights[:, None]
    k = len(logs)
    weights = np.ones(n) if weights is None else weights
    noisy = weights if noise is None else weights * noise
    counts, exposure = np.zeros((k, v)), np.zeros((v, k))
    shapes, all_rates = np.empty((n, k)), np.empty((n, k))
    evidence = energy = entropy = log_prior = 0.0
    for i in range(n):
        seen = ~np.isnan(X[i])
        x = X[i, seen]
        given = None if start is None else (start[0][i], start[1][i])
        shape, rate, shares = infer_row(
            x, logs[:, seen], rates[:, seen], b, t, given, n_sweeps, tol
        )
        shapes[i], all_rates[i] = shape, rate
        log_h, h = expectations(shape, rate)
        counts[:, seen] += noisy[i] * t[1] * shares * x
        exposure[seen] += noisy[i] * t[1] * h
        evidence += weights[i] * (log_h - h).sum()
        joint = np.sum(shares * x * (log_h[:, None] + logs[:, seen]))
        joint -= h @ rates[:, seen].sum(axis=1) + gammaln(x + 1.0).sum()
        energy += weights[i] * joint
        positive = np.where(shares > 0, shares, 1.0)
        divisions = -np.sum(x * shares * np.log(positive))
        entropy += weights[i] * (divisions + gamma(shape, scale=1.0 / rate).entropy().sum())
        constant = k * (b * np.log(b) - gammaln(b))
        log_prior += weights[i] * (np.sum((b - 1.0) * log_h - b * h) + constant)
    return Step(counts, exposure, evidence, energy, entropy, log_prior, shapes, all_rates)


def kl_of_gammas(q_shape, q_rate, p_shape, p_rate):
    """Σ KL(Gamma(q) ‖ Gamma(p)), by the expectation of the difference of the log densities."""
    log_x, x = expectations(q_shape, q_rate)

    def expected(shape, rate):
        return shape * np.log(rate) - gammaln(shape) + (shape - 1.0) * log_x - rate * x

    return float(np.sum(expected(q_shape, q_rate) - expected(p_shape, p_rate)))


def draws_of_bound(X, q, shape, rate, priors, scale, rng, n_draws):
    """log p(X, z, h, θ, w) − log q(z, h, θ, w) of draws from q, whose mean is the lower bound.

    Every count x_nv is a sum of z_nkv ~ Poisson(h_nk θ_k w_kv). ``shape`` and ``rate`` (N, K) are
    those of q(h), and ``priors`` are b, a and α.
    """
    b, a, alpha = priors
    k = len(q["weights_shape"])
    log_weights, _ = expectations(q["weights_shape"], q["weights_rate"])
    logs, _ = expectations(q["components_shape"], q["components_rate"])
    log_h, _ = expectations(shape, rate)
    result = np.zeros(n_draws)

    def drawn(q_shape, q_rate, p_shape, p_rate):
        values = rng.gamma(q_shape, 1.0 / q_rate, (n_draws, *np.shape(q_shape)))
        difference = gamma(p_shape, scale=1.0 / p_rate).logpdf(values)
        difference -= gamma(q_shape, scale=1.0 / q_rate).logpdf(values)
        result[:] += difference.reshape(n_draws, -1).sum(axis=1)
        return values

    theta = drawn(q["weights_shape"], q["weights_rate"], alpha / k, alpha * scale)
    rates = np.broadcast_to(q["components_rate"], logs.shape)
    w = drawn(q["components_shape"], rates, a, a)
    h = drawn(shape, rate, b, b)
    for i, row in enumerate(X):
        seen = ~np.isnan(row)
        shares = divided(log_h[i], (logs + log_weights[:, None])[:, seen], 1.0)
        for j, v in enumerate(np.flatnonzero(seen)):
            z = rng.multinomial(int(row[v]), shares[:, j], n_draws)
            result += poisson(h[:, i] * theta * w[:, :, v]).logpmf(z).sum(axis=1)
            result -= multinomial(int(row[v]), shares[:, j]).logpmf(z)
    return result


def divergence(X, expected):
    """The generalised Kullback-Leibler divergence of the observed cells."""
    seen = ~np.isnan(X)
    x, y = X[seen], expected[seen]
    positive = np.where(x > 0, x, 1.0)
    return float(np.sum(x * np.log(positive / y) - x + y))


def collapsed(x, shares, b, n_sweeps):
    """n = Σ_v x_v φ_v of a row, after updates of all φ_v ∝ (n − min(x_v, 1) φ_v + b) B_v at once.

    Momentum moves n beyond the result of an update, unless that turns back, and halves it at most.
    ``shares`` has B, of shape (n_columns, n_components).
    """
    phi = shares / shares.sum(axis=1, keepdims=True)
    n = earlier = x @ phi
    since = 0
    for _ in range(n_sweeps):
        others = np.maximum(n - np.minimum(x, 1.0)[:, None] * phi, 0.0)
        phi = (others + b) * shares
        phi /= phi.sum(axis=1, keepdims=True)
        new = x @ phi
        if (new - n) @ (new - earlier) < 0.0:
            since = 0
        n = np.maximum(new + since / (since + 3.0) * (new - earlier), new / 2.0)
        earlier, since = new, since + 1
    return new
