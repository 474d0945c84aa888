"""Activations of rows of counts whose cells have noise, and the length of their steps.

Given the noise e, the best shape s and rate r of a gamma variable g of the mean g₀ are those of EM,
which multiply the mean by s / (r g₀). That is a short step where counts are large: e and g explain
the same counts, so that given one the other hardly moves, by 1 / (1 + d m) of its way at a
dispersion d and a rate m. The step here is that of the bound with e at its optimum for every g,

    x log m − (a + x) log(a + m) = x log {m / (a + m)} − a log(a + m),    a = 1 / d.

The first term is concave in m, and the second one is at least its tangent. Over the shares φ of the
division of counts, Jensen's inequality makes them a sum of functions of single ρ = g / g₀. Of a
cell, these are x φ log {ρ m / (a + ρ m)} and a linear one, whose slope is the same as that of EM
minus C = Σ x φ m / (a + m). The ρ at which the derivative of the sum is zero solves

    ρ (1 − γ + γ ρ) = (s − C) / (r g₀ − C),    γ = C / s

if the m of all cells are equal, and near there otherwise. As γ → 0, which is weak noise, it is the
step of EM. As γ → 1 it is the square root of the multiplicative step of the Itakura-Saito
divergence (Févotte and Idier, 2011, Algorithms for nonnegative matrix factorization with the
β-divergence, section 4). Both have the same fixed points as EM.
"""

from __future__ import annotations

import numpy as np
from scipy.special import psi

from .gamma_process_nmf import ratios

# If no exp{x ψ(shape)} of a row is above this, they are computed without a common factor.
_FAR_FROM_ZERO = 1e-200
# The shares φ are those of exp(E log), so that r g₀ − C can be small or negative far from a fixed
# point. The right side above is then this, or the quotient of EM if that is larger.
_LONGEST = 4.0
# The least 1 − γ, so that s − C has half of the digits of s.
REST = 1.5e-8


def factors(shape: np.ndarray, product: np.ndarray, held: np.ndarray, rest: float) -> np.ndarray:
    """Return the factors ρ of means, given s, r g₀ and C; 1 − γ is at least ``rest``."""
    c = np.minimum(held, (1.0 - rest) * shape)
    left, right = shape - c, product - c
    unknown = right * _LONGEST < left
    quotient = np.where(
        unknown,
        np.maximum(_LONGEST, shape / product),
        left / np.where(unknown, 1.0, right),
    )
    share = c / shape
    away = 1.0 - share
    return np.asarray(2.0 * quotient / (away + np.sqrt(away**2 + 4.0 * share * quotient)))


def noisy_sweeps(
    counts: np.ndarray,
    table: np.ndarray,
    means: np.ndarray,
    first_factor: np.ndarray,
    log_weights: np.ndarray,
    mean_weights: np.ndarray,
    local: float,
    base: float,
    base_rate: float,
    step: float,
    noise_shape: float,
    noise_rate: float,
    given: bool,
    n_sweeps: int,
    tol: float,
    rest: float,
    shape: np.ndarray,
    rates: np.ndarray,
) -> None:
    """Update the activations of rows of counts at most ``n_sweeps`` times, until they converge."""
    (n, k), n_columns = shape.shape, counts.shape[1]
    table, means = table[:n_columns, :k], means[:n_columns, :k]
    active = np.arange(n)
    for sweep in range(n_sweeps):
        x, anew = counts[active], sweep == 0 and not given
        if anew:
            e, current = np.tile(first_factor, (n, 1)), np.ones((n, k))
            expected = np.nan_to_num(x, nan=0.0)
        else:
            current = shape[active] / rates[active]
            logs = local * (log_weights - np.log(rates[active]))
            logs -= logs.max(axis=1, keepdims=True)
            powers = local * psi(shape[active])
            tops = powers.max(axis=1, keepdims=True)
            e = np.exp(logs + powers - np.where(tops < np.log(_FAR_FROM_ZERO), tops, 0.0))
            expected = (mean_weights * current) @ means.T
        quotients = e @ table.T
        ratios(quotients, x)
        noisy_rates = noise_rate + step * expected
        times = np.nan_to_num((noise_shape + step * x) / noisy_rates, nan=0.0)
        new = base + step * e * (quotients @ table)
        new_rate = base_rate + step * mean_weights * (times @ means)
        change = np.abs(new - new_rate * current).sum(axis=1)
        if not anew:
            taken = quotients * (1.0 - noise_rate / noisy_rates)
            held = step * e * (taken @ table)
            new_rate = new / (current * factors(new, new_rate * current, held, rest))
        shape[active], rates[active] = new, new_rate
        active = active[change >= tol * k]
        if len(active) == 0:
            return
