"""Probabilities of counts, divergences and lower bounds with 50 digits, from their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpmath import exp, fsum, log, loggamma, mp, mpf, psi

mp.dps = 50


def exact(values: Any) -> Any:
    """Numbers as they are, without any rounding: one, or nested lists of them."""
    if np.ndim(values) == 0:
        return mpf(float(values))
    return [exact(value) for value in np.asarray(values, dtype=float)]


def log_poisson(x: Any, mean: Any) -> Any:
    return (x * log(mean) if x else 0) - mean - loggamma(x + 1)


def log_negative_binomial(x: Any, shape: Any, rate: Any) -> Any:
    norm = loggamma(x + shape) - loggamma(shape) - loggamma(x + 1)
    return norm + shape * log(rate / (1 + rate)) - x * log(1 + rate)


def gamma_divergence(shape: Any, rate: Any, prior_shape: Any, prior_rate: Any) -> Any:
    """KL(q || p) of gamma distributions."""
    norms = loggamma(prior_shape) - prior_shape * log(prior_rate)
    norms -= loggamma(shape) - shape * log(rate)
    expected = (shape - prior_shape) * (psi(0, shape) - log(rate))
    return norms + expected - (rate - prior_rate) * shape / rate


def dirichlet_divergence(q: list[Any], p: list[Any]) -> Any:
    """KL(q || p) of Dirichlet distributions; of beta distributions if there are two entries."""

    def norm(concentrations: list[Any]) -> Any:
        return fsum(map(loggamma, concentrations)) - loggamma(fsum(concentrations))

    total = psi(0, fsum(q))
    expected = fsum((a - b) * (psi(0, a) - total) for a, b in zip(q, p, strict=True))
    return norm(p) - norm(q) + expected


def log_sum(values: list[Any]) -> Any:
    """log Σ exp."""
    top = max(values)
    return top + log(fsum(exp(value - top) for value in values))


def expected_log_poisson(x: list[Any], shapes: list[Any], rates: list[Any]) -> Any:
    """Σ_d E log Poisson(x_d; λ_d) under gamma distributions of the rates."""
    return fsum(
        n * (psi(0, a) - log(b)) - a / b - loggamma(n + 1)
        for n, a, b in zip(x, shapes, rates, strict=True)
    )


def expected_log_dirichlet(q: list[Any]) -> list[Any]:
    total = psi(0, fsum(q))
    return [psi(0, a) - total for a in q]


def log_forward(start: list[Any], steps: list[list[Any]], density: list[list[Any]]) -> Any:
    """The log of the sum over all paths of one chain, from logarithms."""
    states = range(len(start))
    ahead = [start[k] + density[0][k] for k in states]
    for now in density[1:]:
        ahead = [log_sum([ahead[j] + steps[j][k] for j in states]) + now[k] for k in states]
    return log_sum(ahead)


def rates_divergence(fitted: Any) -> Any:
    """KL(q || p) of the rates of Poisson components, from the fitted attributes."""
    q = fitted.lambdas_posterior_, fitted.lambdas_weight_posterior_
    p = fitted.lambdas_prior_, fitted.lambdas_weight_prior_
    arrays = [exact(np.broadcast_to(array, np.shape(q[0])).ravel()) for array in (*q, *p)]
    return fsum(gamma_divergence(*row) for row in zip(*arrays, strict=True))
