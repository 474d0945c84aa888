"""Draws of the factors of users and items, and of ratings, by Gibbs sampling.

A rating less the intercept and the bias of the other side is linear in the parameters of a row,
with Gaussian noise. Given items, users are therefore independent Gaussians, and the other way round
(Salakhutdinov and Mnih, 2008, Bayesian probabilistic matrix factorization using Markov chain Monte
Carlo, Eqs. 11 to 13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import orthogonal_procrustes

from ..data.units import Ratings
from ..families import Natural
from ..families._structure import lower_triangle
from ..parallel.workers import SEQUENTIAL, Workers
from ._rating_scales import scales_of
from .matrix_factorization import kernels

if TYPE_CHECKING:
    from .matrix_factorization import MatrixFactorization

# Entries of tables of sums in memory at a time, in each thread.
_ENTRIES = 1 << 18
# Smallest number of rows for which a task of the workers draws.
_ROWS = 256
# Sweeps from the optimum on that are not averaged.
_FIRST_SWEEPS = 5


def drawn_users(
    model: MatrixFactorization,
    units: Ratings,
    items: np.ndarray,
    rng: np.random.Generator,
    workers: Workers = SEQUENTIAL,
    spread: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw users given their ratings and items.

    A user of weight w above 1 stands for w users with the same ratings, who differ. What is drawn
    is then the mean of w draws, and ``spread`` is what their second moments have beyond its square.

    Parameters
    ----------
    model : MatrixFactorization
        With tables of float64.
    units : Ratings
    items : ndarray of shape (n_items, D)
        Factors, and biases as the last column where there are biases.
    rng : numpy.random.Generator
    workers : Workers, default=SEQUENTIAL
        They share the work; draws do not depend on them.
    spread : ndarray or None, default=None
        An array into which the expected spread is written, times the precisions, in the layout of
        the tables of moments.

    Returns
    -------
    users : ndarray of shape (n_users, D)
        Factors and biases.
    precisions : ndarray of shape (n_users,)
        Their precisions τ, which are ones unless users have scales.
    """
    across = model.moments_of_values(items)
    shape = (units.n_units, model.size)
    noise, users, deviations = rng.standard_normal(shape), np.empty(shape), np.empty(shape)
    gammas = np.ones((units.n_units, 2))
    copies = np.ones(units.n_units) if units.weights is None else np.maximum(units.weights, 1.0)

    def draw(rows: slice) -> None:
        some = units.take(rows)
        sums, _ = model.add_up(some, across, some.rating_weights)
        statistics = model.statistics(sums, 1.0, model.empty_statistics(sums))
        natural = model.solution(statistics, known=some.known)
        _draw(natural, noise[rows], users[rows], deviations[rows])
        if spread is not None:
            moments = model.moments_of(natural["precision"], natural["natural_mean"])
            spread[rows] = moments.table - model.moments_of_values(users[rows]).table
            spread[rows] *= (1.0 - 1.0 / copies[rows])[:, None]
        if model.user_scales:
            q = scales_of(model, model.about_items(sums, some.known), natural, users[rows])
            gammas[rows] = np.column_stack([q.shape, q.rate])

    _share(draw, units.n_units, across.table.shape[1], workers)
    precisions = np.ones(units.n_units)
    if model.user_scales:
        # The mean of w gamma variables is one with w times the shape and the rate.
        precisions = rng.gamma(copies * gammas[:, 0], 1.0 / (copies * gammas[:, 1]))
    deviations /= np.sqrt(copies * precisions)[:, None]
    users += deviations
    return users, precisions


def drawn_items(
    model: MatrixFactorization,
    units: Ratings,
    users: np.ndarray,
    precisions: np.ndarray,
    rng: np.random.Generator,
    workers: Workers = SEQUENTIAL,
    spread: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw items given ratings and users; the parameters are those of :func:`drawn_users`.

    Returns
    -------
    items, means : ndarray of shape (n_items, D)
        Factors and biases, and the means of the Gaussians from which they are drawn.
    """
    turned, across = units.by_column, model.moments_of_values(users)
    across.table[...] *= precisions[:, None]
    if spread is not None:
        across.table[...] += spread
    shape = (turned.n_units, model.size)
    noise, means, deviations = rng.standard_normal(shape), np.empty(shape), np.empty(shape)
    prior = model.row_prior("items")
    shifts = model.shifts_of_items()

    def draw(rows: slice) -> None:
        some = turned.take(rows)
        sums, _ = model.add_up(some, across, some.rating_weights)
        statistics = model.statistics(sums, 1.0, model.empty_statistics(sums))
        natural = {key: value + prior[key] for key, value in statistics.items()}
        if shifts is not None:
            natural["natural_mean"] += shifts[rows]
        _draw(natural, noise[rows], means[rows], deviations[rows])

    _share(draw, turned.n_units, across.table.shape[1], workers)
    return means + deviations, means


def _draw(natural: Natural, noise: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> None:
    kernels().draws(natural["precision"], natural["natural_mean"], noise, mean, deviation)
    if not np.isfinite(mean).all():
        raise np.linalg.LinAlgError("Matrix is not positive definite")


def _share(draw: Callable[[slice], None], n: int, width: int, workers: Workers) -> None:
    """Call a function for all rows, a few at a time so that their tables of sums are small."""
    step = max(_ENTRIES // width, 1)

    def of_rows(rows: slice) -> None:
        for start in range(rows.start, rows.stop, step):
            draw(slice(start, min(start + step, rows.stop)))

    workers.share(of_rows, n, _ROWS)


def averaged_items(
    model: MatrixFactorization,
    q: Natural,
    units: Ratings,
    n_sweeps: int,
    seed: int,
    workers: Workers = SEQUENTIAL,
) -> Natural:
    """Return Gaussians of items with means and covariance matrices of Gibbs sampling.

    The Gaussians of the optimum keep users and items apart. They are as narrow as if users were
    known to follow their own Gaussians, and their means are not those of the posterior either.
    Sampling begins at the optimum, with the variances and the priors of the model, which stay. In
    each sweep the mean of an item given users is averaged, which varies less than a draw
    (Gelfand and Smith, 1990), and the variance of these means is added to that of the optimum.

    Turning the factors of users and items together changes no rating, and hardly their priors, so
    that sampled factors turn slowly. Those of each sweep are therefore turned back to the optimum
    first, by the solution of the orthogonal Procrustes problem (Schönemann, 1966). Otherwise their
    means would tend to zero.

    Parameters
    ----------
    model : MatrixFactorization
        With tables of float64.
    q : dict of ndarray
    units : Ratings
        All ratings of the fit.
    n_sweeps : int
        Number of sweeps over users and items.
    seed : int
    workers : Workers, default=SEQUENTIAL
        They share the work; the result does not depend on them.

    Returns
    -------
    items : dict of ndarray
        Natural parameters under the keys of q.
    """
    rng, factor, d = np.random.default_rng(seed), model.items.factor, model.n_components
    start = model.expectations(q).mean
    items, (rows, columns) = start, lower_triangle(model.size)
    first, second = np.zeros(start.shape), np.zeros((len(start), len(rows)))
    weights, spread = units.weights, None
    if weights is not None and weights.max() > 1.0:
        spread = model.empty_moments(units.n_units).table
    for i in range(_FIRST_SWEEPS + n_sweeps):
        users, precisions = drawn_users(model, units, items, rng, workers, spread)
        items, means = drawn_items(model, units, users, precisions, rng, workers, spread)
        if i >= _FIRST_SWEEPS:
            means[:, :d] = means[:, :d] @ orthogonal_procrustes(means[:, :d], start[:, :d])[0]
            # Differences from the start, whose squares keep their digits.
            means -= start
            first += means / n_sweeps
            second += means[:, rows] * means[:, columns] / n_sweeps
    second -= first[:, rows] * first[:, columns]
    found, step = factor.pick(q), max(_ENTRIES // model.size**2, 1)
    result = {key: np.empty(value.shape) for key, value in found.items()}
    for begin in range(0, len(items), step):
        some = slice(begin, begin + step)
        own = {key: value[some].astype(np.float64) for key, value in found.items()}
        covariance = factor.family.to_standard(own)["covariance"] + second[some]
        natural = factor.family.from_standard(start[some] + first[some], covariance)
        for key, value in natural.items():
            result[key][some] = value
    return factor.rename(result)


def drawn_ratings(
    model: MatrixFactorization,
    q: Natural,
    units: Ratings,
    n_rounds: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw ratings of all items by users, given those that they have rated.

    The items are drawn from q, and the users given the items. In a round the items are drawn again
    given the users, and then the users.

    Returns
    -------
    ratings : ndarray of shape (n_users, n_items)
        With their noise.
    """
    factor = model.items.factor
    natural = {key: value.astype(np.float64) for key, value in factor.pick(q).items()}
    items = factor.family.sample(natural, rng)["value"]
    users, precisions = drawn_users(model, units, items, rng)
    for _ in range(n_rounds):
        items, _ = drawn_items(model, units, users, precisions, rng)
        users, precisions = drawn_users(model, units, items, rng)
    d = model.n_components
    means = model.intercept + users[:, :d] @ items[:, :d].T
    means += users[:, d:].sum(axis=1)[:, None] + items[:, d:].sum(axis=1)
    deviations = np.sqrt(model.noise_variance / precisions)[:, None]
    noise: np.ndarray = deviations * rng.standard_normal(means.shape)
    return means + noise
