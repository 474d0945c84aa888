"""Helpers that the modules test_matrix_factorization_*.py share: data, comparisons."""

from __future__ import annotations

import numpy as np
import plain_matrix_factorization as plain
import pytest
from harness import context_of
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from sklearn_anneal import AnnealedPMF

NAN = np.nan
TRUTH = plain.Hyperparameters(3.0, 0.3, 0.6, 0.25)
VARIANTS = {
    "biases": {"n_components": 2},
    "plain": {"n_components": 3, "biases": False, "fit_intercept": False},
    "centred": {"n_components": 1, "biases": False},
    "fixed": {"n_components": 2, "fit_intercept": False, "noise_variance": 0.4},
}
all_variants = pytest.mark.parametrize("variant", VARIANTS)
all_inputs = pytest.mark.parametrize("input", ["matrix", "pairs"])


def draw(rng, n_users, n_items, d=2, hyper=TRUTH, observed=0.5, biases=True):
    """Draw all ratings of all items from the model, and choose those that are known."""
    u, v = (np.sqrt(hyper.factor) * rng.standard_normal((n, d)) for n in (n_users, n_items))
    Y = hyper.intercept + u @ v.T + np.sqrt(hyper.noise) * rng.standard_normal((n_users, n_items))
    if biases:
        b, c = (np.sqrt(hyper.bias) * rng.standard_normal(n) for n in (n_users, n_items))
        Y += b[:, None] + c
    return Y, rng.random(Y.shape) < observed


def ratings(rng, n_users=25, n_items=10, **params):
    """A matrix in which unknown ratings are NaN; its first user has rated nothing."""
    Y, known = draw(rng, n_users, n_items, **params)
    known[0] = False
    known[1, :3] = True
    return np.where(known, Y, NAN)


def pairs_of(Y):
    """The same ratings as pairs and values, user after user."""
    X = np.argwhere(~np.isnan(Y))
    return X, Y[tuple(X.T)]


def sparse_of(Y, make=csr_array):
    X, y = pairs_of(Y)
    return make((y, tuple(X.T)), shape=Y.shape)


GIVEN = {
    "noise_variance": TRUTH.noise,
    "factor_variance": TRUTH.factor,
    "bias_variance": TRUTH.bias,
}
DEFAULT = dict.fromkeys(GIVEN)


PLAIN = {"hierarchical": False, "user_scales": False}


def small(n_components=2, **params):
    settings = {"annealing": "none", "random_state": 0, "max_iter": 8, "tol": 0.0, **GIVEN}
    return AnnealedPMF(n_components, **(PLAIN | settings | params))


def full(packed):
    """Expand lower triangles to symmetric matrices."""
    size = int(np.sqrt(2 * packed.shape[-1]))
    result = np.empty((*packed.shape[:-1], size, size))
    k = 0
    for i in range(size):
        for j in range(i + 1):
            result[..., i, j] = result[..., j, i] = packed[..., k]
            k += 1
    return result


def rows_of(natural, side):
    """One side of q in the form of the plain model."""
    return plain.Rows(full(natural[f"{side}_precision"]), natural[f"{side}_natural_mean"])


def hyper_of(model):
    bias = model.bias_variance if model.biases else None
    return plain.Hyperparameters(model.intercept, model.noise_variance, model.factor_variance, bias)


def assert_rows(natural, side, expected, rtol=1e-10):
    found = rows_of(natural, side)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())


def items_of(est):
    """Mean and covariance of each item of a fitted estimator."""
    rows = rows_of(context_of(est).q, "items")
    return rows.mean, rows.cov


def users_of(est, Y):
    """Mean and covariance of each user with these ratings, by the plain model."""
    items = rows_of(context_of(est).q, "items")
    rows = plain.updated(Y, items, plain.hyperparameters(est))
    return rows.mean, rows.cov
