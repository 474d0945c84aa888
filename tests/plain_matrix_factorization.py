"""A second matrix factorisation: plain numpy, full matrices, one row after another.

Tests compare the compiled model with it. It uses nothing of the package, except fitted priors in
`matrix_factorization_log_evidence`. Ratings are a matrix Y (n_users, n_items) in which unknown ones
are NaN, and weights are a matrix of the same shape. y_ij ~ N(μ + b_i + c_j + u_iᵀ v_j, σ²). A row
of a side is (u, b), or u alone without biases. It has D numbers, with one full Gaussian for all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, roots_genlaguerre
from scipy.stats import wishart

LOG_2PI = np.log(2 * np.pi)


class Hyperparameters(NamedTuple):
    """μ, σ², c and the variance of biases, which is None for a model without biases."""

    intercept: float
    noise: float
    factor: float
    bias: float | None = None

    def prior_variances(self, size):
        """The prior variances of the D parameters of a row."""
        if self.bias is None:
            return np.full(size, self.factor)
        return np.append(np.full(size - 1, self.factor), self.bias)


class Rows(NamedTuple):
    """One Gaussian per row: precisions (n, D, D) and natural means (n, D)."""

    precision: np.ndarray
    natural_mean: np.ndarray

    @property
    def cov(self):
        return np.array([np.linalg.inv(one) for one in self.precision])

    @property
    def mean(self):
        return np.array([
            np.linalg.solve(p, h) for p, h in zip(self.precision, self.natural_mean, strict=True)
        ])  # fmt: skip

    @property
    def second(self):
        """E[z zᵀ]."""
        mean = self.mean
        return self.cov + mean[:, :, None] * mean[:, None, :]


def updated(Y, other, hyper, weights=None, x=1.0, prior_factor=1.0):
    """The rows of the first axis of Y given those of the second, at inverse temperature x.

    ``x`` is one number or one per row; ``prior_factor`` multiplies the prior's precision.
    """
    n, size = len(Y), other.natural_mean.shape[1]
    weights = np.ones(Y.shape) if weights is None else weights
    x = np.broadcast_to(x, n)
    mean, second = other.mean, other.second
    precision = np.empty((n, size, size))
    natural_mean = np.empty((n, size))
    for i in range(n):
        p = prior_factor * np.diag(1 / hyper.prior_variances(size))
        h = np.zeros(size)
        for j in np.flatnonzero(~np.isnan(Y[i])):
            w = weights[i, j] * x[i] / hyper.noise
            y = Y[i, j] - hyper.intercept
            if hyper.bias is None:
                p += w * second[j]
                h += w * y * mean[j]
                continue
            # The design is (v, 1). c is subtracted from the rating, and its covariance with v is
            # taken into account.
            design = np.append(mean[j, :-1], 1.0)
            design_second = np.block([
                [second[j, :-1, :-1], mean[j, :-1, None]], [mean[j, None, :-1], np.ones((1, 1))],
            ])  # fmt: skip
            bias_times_design = np.append(second[j, :-1, -1], mean[j, -1])
            p += w * design_second
            h += w * (y * design - bias_times_design)
        precision[i], natural_mean[i] = p, h
    return Rows(precision, natural_mean)


def squared_errors(Y, users, items, hyper):
    """E(y − μ − f)² of every rating; NaN for unknown ratings."""
    biased = hyper.bias is not None
    # f = z_uᵀ z_v with z_u = (u, b, 1) and z_v = (v, 1, c).
    mean_u, second_u = _extended(users, biased, one_last=True)
    mean_v, second_v = _extended(items, biased, one_last=False)
    result = np.full(Y.shape, np.nan)
    for i, j in zip(*np.nonzero(~np.isnan(Y)), strict=True):
        y = Y[i, j] - hyper.intercept
        f, f_squared = mean_u[i] @ mean_v[j], np.trace(second_u[i] @ second_v[j])
        result[i, j] = y**2 - 2 * y * f + f_squared
    return result


def _extended(rows, biased, one_last):
    """Moments of the rows with a 1 beside the bias."""
    mean, second = rows.mean, rows.second
    if not biased:
        return mean, second
    n, size = mean.shape
    place = [*range(size)] if one_last else [*range(size - 1), size]
    one = size if one_last else size - 1
    new_mean, new_second = np.ones((n, size + 1)), np.ones((n, size + 1, size + 1))
    new_mean[:, place] = mean
    new_second[:, one, place] = mean
    new_second[:, place, one] = mean
    for i in range(n):
        new_second[i][np.ix_(place, place)] = second[i]
    return new_mean, new_second


def log_densities(Y, users, items, hyper):
    """E log p(y) of every rating, in nats; NaN for unknown ratings."""
    errors = squared_errors(Y, users, items, hyper)
    return -0.5 * (LOG_2PI + np.log(hyper.noise)) - errors / (2 * hyper.noise)


def kl(rows, hyper):
    """KL(q ‖ prior) of each row, in nats, by the textbook formula."""
    size = rows.natural_mean.shape[1]
    prior = hyper.prior_variances(size)
    result = []
    for mean, cov in zip(rows.mean, rows.cov, strict=True):
        result.append(
            0.5 * (np.sum(np.diag(cov) / prior) + np.sum(mean**2 / prior) - size)
            + 0.5 * (np.log(prior).sum() - np.linalg.slogdet(cov)[1])
        )
    return np.array(result)


def bound(Y, users, items, hyper, weights=None, user_weights=None):
    """The evidence lower bound in nats, with every constant."""
    weights = np.ones(Y.shape) if weights is None else weights
    user_weights = np.ones(len(Y)) if user_weights is None else user_weights
    energy = np.nansum(weights * log_densities(Y, users, items, hyper))
    return float(energy - user_weights @ kl(users, hyper) - kl(items, hyper).sum())


def predictive(user_mean, user_cov, item_mean, item_cov, hyper):
    """Mean and variance of a rating under q, by the variance of a product, noise included."""
    d = len(user_mean) - (hyper.bias is not None)
    u, v, su, sv = user_mean[:d], item_mean[:d], user_cov[:d, :d], item_cov[:d, :d]
    mean = hyper.intercept + u @ v
    variance = v @ su @ v + u @ sv @ u + np.trace(su @ sv) + hyper.noise
    if hyper.bias is not None:
        mean += user_mean[d] + item_mean[d]
        variance += user_cov[d, d] + item_cov[d, d]
        variance += 2 * user_cov[d, :d] @ v + 2 * item_cov[d, :d] @ u
    return mean, variance


def log_evidence(Y, hyper, n_components, n_nodes=30):
    """log p(Y) with two items, by integration over V Vᵀ, which has three numbers.

    Given the items' factors V, everything else is Gaussian and depends on V Vᵀ alone. By Bartlett's
    decomposition V Vᵀ = c A Aᵀ with A = [[χ_d, 0], [N(0, 1), χ_{d−1}]].
    """
    users, items = np.nonzero(~np.isnan(Y))
    y = Y[users, items] - hyper.intercept
    same_user, same_item = np.equal.outer(users, users), np.equal.outer(items, items)
    d = n_components
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    first, first_weights = roots_genlaguerre(n_nodes, d / 2 - 1)
    if d == 1:
        last, last_weights = np.zeros(1), np.ones(1)
    else:
        last, last_weights = roots_genlaguerre(n_nodes, (d - 1) / 2 - 1)
    chi, normal, other = np.meshgrid(np.sqrt(2 * first), nodes, np.sqrt(2 * last), indexing="ij")
    products = hyper.factor * np.array([
        [chi**2, chi * normal], [chi * normal, normal**2 + other**2]
    ])  # fmt: skip
    products = products[items[:, None], items[None, :]]
    cov = np.where(same_user[:, :, None, None, None], hyper.factor * products, 0.0)
    if hyper.bias is not None:
        shared = hyper.bias * (same_user.astype(float) + same_item)
        cov = cov + shared[:, :, None, None, None]
    cov = np.moveaxis(cov.reshape(len(y), len(y), -1), -1, 0) + hyper.noise * np.eye(len(y))
    quadratic = np.linalg.solve(cov, np.broadcast_to(y, (len(cov), len(y)))[..., None])[..., 0] @ y
    log_density = -0.5 * (len(y) * LOG_2PI + np.linalg.slogdet(cov)[1] + quadratic)
    share = np.einsum(
        "a,b,c->abc",
        first_weights / first_weights.sum(),
        weights / weights.sum(),
        last_weights / last_weights.sum(),
    )
    return float(logsumexp(log_density, b=share.ravel()))


def hyperparameters(estimator: Any) -> Hyperparameters:
    """The hyperparameters of a fitted estimator."""
    bias = estimator.bias_variance_ if estimator.biases else None
    return Hyperparameters(
        estimator.intercept_, estimator.noise_variance_, estimator.factor_variance_, bias
    )


def drawn_log_evidence(Y, hyper, n_components, hierarchical, shape=np.inf, n_draws=20_000):
    """log p(Y) by draws of items and, in a hierarchical model, of the priors of both sides.

    Users are integrated out: given the draws, the ratings of a user are Gaussian, or multivariate t
    if users have precisions under Gamma(a, a) with the given shape a.
    """
    rng, n_biases = np.random.default_rng(0), int(hyper.bias is not None)
    d = n_components + n_biases
    variances = hyper.prior_variances(d)

    def prior():
        if not hierarchical:
            return np.zeros((n_draws, d)), np.tile(np.diag(variances), (n_draws, 1, 1))
        scale = np.diag(1.0 / variances) / (d + 2)
        precision = wishart.rvs(d + 2, scale, n_draws, rng).reshape(n_draws, d, d)
        cov = np.linalg.inv(precision)
        return rows(np.zeros((n_draws, d)), 0.5 * cov, 1)[:, 0], cov

    def rows(mean, cov, n):
        white = rng.standard_normal((n_draws, n, d))
        return mean[:, None] + white @ np.swapaxes(np.linalg.cholesky(cov), 1, 2)

    (mean, cov), of_items = prior(), prior()
    items, total = rows(*of_items, Y.shape[1]), np.zeros(n_draws)
    for y in Y:
        known = np.flatnonzero(~np.isnan(y))
        n = len(known)
        ones = np.ones((n_draws, n, n_biases))
        design = np.concatenate([items[:, known, :n_components], ones], axis=2)
        left = y[known] - hyper.intercept - (design @ mean[..., None])[..., 0]
        left = left - items[:, known, n_components:].sum(axis=2)
        of_y = design @ cov @ np.swapaxes(design, 1, 2) + hyper.noise * np.eye(n)
        squares = (left * np.linalg.solve(of_y, left[..., None])[..., 0]).sum(axis=1)
        total -= 0.5 * np.linalg.slogdet(of_y)[1]
        if np.isinf(shape):
            total -= 0.5 * (n * LOG_2PI + squares)
        else:
            total += gammaln(shape + n / 2) - gammaln(shape) - n / 2 * np.log(2 * shape * np.pi)
            total -= (shape + n / 2) * np.log1p(squares / (2 * shape))
    return float(logsumexp(total) - np.log(n_draws))


def matrix_factorization_log_evidence(estimator: Any, X: Any) -> float:
    """log p(X) of a factorisation of a matrix with two items."""
    data = np.asarray(X), hyperparameters(estimator), estimator.n_components
    if estimator.user_scales:
        return drawn_log_evidence(*data, estimator.hierarchical, estimator.user_precision_shape_)
    return drawn_log_evidence(*data, True) if estimator.hierarchical else log_evidence(*data)
