"""The scales of users in matrix factorisation: how widely each of them rates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, polygamma
from scipy.stats import t as student

# The shape at which learning begins, and the limits of learned shapes. The variance of the ratings
# of an unknown user is finite with a shape above 1; users differ little with the largest one.
FIRST_SHAPE = 10.0
_SHAPES = 1.5, 1e4
_STEPS = 50


class Scales(NamedTuple):
    """Gamma distributions of the precisions τ of users, with a shape and a rate for each.

    Attributes
    ----------
    shape, rate : ndarray of shape (n_users,)
    """

    shape: np.ndarray
    rate: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """E[τ], (n_users,)."""
        return self.shape / self.rate

    @property
    def log_mean(self) -> np.ndarray:
        """E[log τ], (n_users,)."""
        found: np.ndarray = digamma(self.shape) - np.log(self.rate)
        return found

    @property
    def inverse_mean(self) -> np.ndarray:
        """E[1/τ], (n_users,)."""
        return self.rate / (self.shape - 1.0)

    @property
    def entropy(self) -> np.ndarray:
        """The entropy of τ in nats, (n_users,)."""
        a = self.shape
        found: np.ndarray = a - np.log(self.rate) + gammaln(a) + (1.0 - a) * digamma(a)
        return found

    @property
    def spread(self) -> np.ndarray:
        """E[log τ − τ], from which the shape of the prior is learned, (n_users,)."""
        return self.log_mean - self.mean

    def log_priors(self, shape: float) -> np.ndarray:
        """Return E log p(τ) under Gamma(a, a) of the given shape in nats, (n_users,)."""
        # E log p(τ) = a log a − log Γ(a) + (a − 1) E[log τ] − a E[τ].
        constant = shape * np.log(shape) - gammaln(shape)
        found: np.ndarray = constant + shape * self.spread - self.log_mean
        return found


def best_shape(spread: float, old: float) -> float:
    """Return the shape a of Gamma(a, a) that maximises the bound.

    ``spread`` is the mean of E[log τ − τ] over users. Newton's method begins at ``old``.
    """
    log_shape, limits = np.log(old), np.log(_SHAPES)
    for _ in range(_STEPS):
        # The derivative of the bound by a is log a + 1 − ψ(a) + E[log τ − τ], which falls with a.
        a = np.exp(log_shape)
        slope = log_shape + 1.0 - digamma(a) + spread
        step = np.clip(slope / (a * polygamma(1, a) - 1.0), -1.0, 1.0)
        moved = np.clip(log_shape + step, *limits)
        if abs(moved - log_shape) < 1e-10:
            break
        log_shape = moved
    return float(np.exp(log_shape))


def log_densities(
    y: np.ndarray, mean: np.ndarray, std: np.ndarray, shape: np.ndarray
) -> np.ndarray:
    """Return log densities of ratings by users whose precisions have gamma distributions.

    They are those of Student's t with 2 a degrees of freedom, where a is the shape, and with the
    given standard deviations. With an infinite shape they are Gaussian.
    """
    found: np.ndarray = student.logpdf(y, 2.0 * shape, mean, std * np.sqrt(1.0 - 1.0 / shape))
    return found
