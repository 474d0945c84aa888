"""The scales of users in matrix factorisation: how widely each of them rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, polygamma
from scipy.stats import t as student

from ..families import Natural
from ._base import compiled

if TYPE_CHECKING:
    from ._rating_visits import Moments
    from .matrix_factorization import MatrixFactorization

# The shape at which learning begins, and the limits of learned shapes. The variance of the ratings
# of an unknown user is finite with a shape above 1; users differ little with the largest one.
FIRST_SHAPE = 10.0
_LIMITS = 1.5, 1e4
_STEPS = 50
# The shapes at which scales can begin in the course of a fit, and the key of the statistics that
# say how much higher the bound is with each of them.
SHAPES, GAINS = np.geomspace(*_LIMITS, 16), "gains"


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
    log_shape, limits = np.log(old), np.log(_LIMITS)
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


def _rest_of_squares(
    model: MatrixFactorization, squares: np.ndarray, natural: Natural, mean: np.ndarray
) -> np.ndarray:
    """Return R, (n_users,), given squares about items and the Gaussians of users at τ = 1.

    With x = (u, b), E log p(y, x | τ) is ½ (n + D) log τ − ½ τ {(x − m)ᵀ P (x − m) + R}, and terms
    without x and τ.
    """
    # R = Σ E(r − c)² / σ² + E[μᵀ Λ μ] + mᵀ (P m − 2 h), where h = P m, at τ = 1. In this form
    # rounding errors of m enter by their squares; −hᵀ m would magnify them.
    product = -2.0 * natural["natural_mean"]
    compiled("matrix_factorization").add_matrix_products(natural["precision"], mean, product)
    quadratic = 0.0 if model.hierarchy is None else model.hierarchy.of_side("users").quadratic
    rest = squares / model.noise_variance + quadratic + np.einsum("nk,nk->n", product, mean)
    return np.maximum(rest, 0.0)


def scales_of(
    model: MatrixFactorization, ratings: np.ndarray, natural: Natural, mean: np.ndarray
) -> Scales:
    """Return q(τ) of users, given their ratings about items and their Gaussians at τ = 1."""
    count, squares = ratings.T
    rest = _rest_of_squares(model, squares, natural, mean)
    return Scales(model.shape + 0.5 * count, model.shape + 0.5 * rest)


def scaled(model: MatrixFactorization, own: Moments, scales: Scales) -> Moments:
    """Return moments of users times τ, given their moments at τ = 1."""
    # E[τ x xᵀ] = E[τ] m mᵀ + P⁻¹
    more, parts = (scales.mean - 1.0)[:, None], np.split(own.mean, [model.n_components], axis=1)
    squares = np.column_stack([np.square(part).sum(axis=1) for part in parts])
    table = own.table + (more * model.table_of(own.mean)).astype(model.dtype)
    log_det = own.log_det + model.size * scales.log_mean
    return own._replace(table=table, log_det=log_det, squares=own.squares + more * squares)


def gains_of_scales(
    model: MatrixFactorization,
    ratings: np.ndarray,
    natural: Natural,
    mean: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Return by how much the bound would rise if users had scales, for each of some shapes.

    The arguments are those of :func:`scales_of` at τ = 1, and the weights of users. Items and
    variances stay as they are, and q(τ) and the users given τ are optimal, so that the bound has
    the logarithm of ∫ Gamma(τ; a, a) τ^(n / 2) exp(−τ R / 2) dτ in the place of −R / 2.
    """
    a, half = SHAPES[:, None], 0.5 * ratings[:, 0]
    rest = 0.5 * _rest_of_squares(model, ratings[:, 1], natural, mean)
    each = a * np.log(a) - gammaln(a) + gammaln(a + half) - (a + half) * np.log(a + rest) + rest
    found: np.ndarray = each @ weights
    return found


def log_densities(
    y: np.ndarray, mean: np.ndarray, std: np.ndarray, shape: np.ndarray
) -> np.ndarray:
    """Return log densities of ratings by users whose precisions have gamma distributions.

    They are those of Student's t with 2 a degrees of freedom, where a is the shape, and with the
    given standard deviations. With an infinite shape they are Gaussian.
    """
    found: np.ndarray = student.logpdf(y, 2.0 * shape, mean, std * np.sqrt(1.0 - 1.0 / shape))
    return found
