"""Draws of the factors of users and items, and of ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from ..data.units import Ratings
from ..families import Natural
from ..families._structure import lower_triangle
from .matrix_factorization import PACKED

if TYPE_CHECKING:
    from .matrix_factorization import MatrixFactorization

# Entries of precision matrices in memory at a time.
_ENTRIES = 1 << 20


def drawn_rows(
    model: MatrixFactorization,
    side: str,
    ratings: csr_array,
    others: np.ndarray,
    rng: np.random.Generator,
    precisions: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the factors, and biases, of users given those of items, or the other way round.

    A rating less the intercept and the bias of the other side is linear in the parameters of a row,
    with Gaussian noise. Their posterior is therefore Gaussian.

    Parameters
    ----------
    model : MatrixFactorization
    side : {"users", "items"}
        The side that is drawn.
    ratings : csr_array of shape (n_rows, n_others)
        The ratings less the intercept.
    others : ndarray of shape (n_others, D)
        Factors and biases of the other side.
    rng : numpy.random.Generator
    precisions : ndarray of shape (n_others,) or None, default=None
        The precisions τ of the other side, by which its ratings count; None for ones.

    Returns
    -------
    drawn : ndarray of shape (n_rows, D)
        Factors and biases.
    precisions : ndarray of shape (n_rows,)
        The precisions τ of users, which are ones unless users have scales, and of items, ones.
    """
    n, size, d = ratings.shape[0], model.size, model.n_components
    design = np.column_stack([others[:, :d], np.ones((len(others), size - d))])
    left = ratings.data - others[:, d:].sum(axis=1)[ratings.indices]
    products = np.einsum("nk,nl->nkl", design, design).reshape(len(design), -1)
    row = model.row_prior(side)
    prior, prior_mean = PACKED.to_full(row["precision"], size), np.tile(row["natural_mean"], (n, 1))
    if side == "items" and (shifts := model.shifts_of_items()) is not None:
        prior_mean += shifts
    drawn, scales = np.empty((n, size)), np.ones(n)
    each = np.ones(len(left)) if precisions is None else precisions[ratings.indices]
    step = max(_ENTRIES // size**2, 1)
    for begin in range(0, n, step):
        rows = slice(begin, min(begin + step, n))
        own = slice(ratings.indptr[rows.start], ratings.indptr[rows.stop])
        indptr = ratings.indptr[rows.start : rows.stop + 1] - own.start
        shape = (rows.stop - rows.start, ratings.shape[1])
        there = csr_array((each[own], ratings.indices[own], indptr), shape)
        values = csr_array(((each * left)[own], ratings.indices[own], indptr), shape)
        second = (there @ products).reshape(-1, size, size) / model.noise_variance
        precision = prior + second
        root = np.linalg.cholesky(precision)
        # P⁻¹ h + L⁻ᵀ ε = L⁻ᵀ (L⁻¹ h + ε) of P = L Lᵀ.
        natural_mean = (values @ design)[..., None] / model.noise_variance
        natural_mean += prior_mean[rows, :, None]
        inner = np.linalg.solve(root, natural_mean)
        if side == "users" and model.user_scales:
            squares = csr_array((np.square(left[own]), ratings.indices[own], indptr), shape)
            about = np.column_stack([np.diff(indptr), squares.sum(axis=1)])
            mean = np.linalg.solve(np.swapaxes(root, -1, -2), inner)[..., 0]
            lower = np.ascontiguousarray(precision[:, *lower_triangle(size)])
            natural = {"precision": lower, "natural_mean": natural_mean[..., 0]}
            q = model.scales_of(about, natural, mean)
            scales[rows] = rng.gamma(q.shape, 1.0 / q.rate)
        white = rng.standard_normal(natural_mean.shape)
        inner += white / np.sqrt(scales[rows])[:, None, None]
        drawn[rows] = np.linalg.solve(np.swapaxes(root, -1, -2), inner)[..., 0]
    return drawn, scales


def drawn_ratings(
    model: MatrixFactorization,
    q: Natural,
    units: Ratings,
    n_rounds: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw ratings of all items by users, given those that they have rated.

    The items are drawn from q, and the users given the items. In a round the items are drawn again
    given the users, and then the users (Salakhutdinov and Mnih, 2008).

    Returns
    -------
    ratings : ndarray of shape (n_users, n_items)
        With their noise.
    """
    values = units.values.astype(np.float64) - model.intercept
    known = csr_array((values, units.columns, units.indptr), shape=(units.n_units, units.n_columns))
    factor = model.items.factor
    natural = {key: value.astype(np.float64) for key, value in factor.pick(q).items()}
    items = factor.family.sample(natural, rng)["value"]
    for left in range(n_rounds, -1, -1):
        users, scales = drawn_rows(model, "users", known, items, rng)
        if left:
            items, _ = drawn_rows(model, "items", known.T.tocsr(), users, rng, scales)
    d = model.n_components
    means = model.intercept + users[:, :d] @ items[:, :d].T
    means += users[:, d:].sum(axis=1)[:, None] + items[:, d:].sum(axis=1)
    deviations = np.sqrt(model.noise_variance / scales)[:, None]
    noise: np.ndarray = deviations * rng.standard_normal(means.shape)
    return means + noise
