"""Missing cells of spike-and-slab factor analysis: their moments, and draws of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit, logit

from ..data.units import Rows
from ..families import Natural
from ._binary_codes import RowBlock, centered_blocks
from ._gaussian_factors import always_on, posterior, posterior_of_each
from ._packed_gaussians import multiplicity, observed_sums, packed, symmetric
from ._predictive_loadings import gains_of_answers

if TYPE_CHECKING:
    from ._factor_rows import Moments
    from .spike_slab_factor_analysis import SpikeSlabFactorAnalysis

# Gibbs sweeps over the factors of a row, which begin at a draw from q, or go on in a round.
_SWEEPS, _FURTHER_SWEEPS = 20, 5
# Entries of matrices of rows, or of columns, in memory at a time.
_ENTRIES = 1 << 20
# The prior precision of the mean of a column, in units of the noise.
_FLAT = 1e-8


class Cells(NamedTuple):
    """The posterior of the cells of rows, in units of the data."""

    means: np.ndarray  # (n_rows, n_features)
    std: np.ndarray  # (n_rows, n_features), or (n_rows, 0) if nobody reads them
    factors: np.ndarray  # the means of the factors of the rows, (n_rows, n_components)


def _parts(block: RowBlock, n_entries: int) -> Iterator[RowBlock]:
    """Yield a block in parts, for arrays in which each of its rows has so many entries."""
    size = max(_ENTRIES // n_entries, 1)
    for begin in range(0, len(block.X), size):
        X = block.X[begin : begin + size]
        first = block.rows.start + begin
        observed = None if block.observed is None else block.observed[begin : begin + size]
        yield RowBlock(slice(first, first + len(X)), X, observed)


def imputed(model: SpikeSlabFactorAnalysis, q: Natural, units: Rows, return_std: bool) -> Cells:
    """Return the posterior means and deviations of all cells.

    Factors u and loadings w are independent in q, and so are the factors of a row that can be off.
    In units of the noise, a cell has the variance
    1 + Σ_kl E[u_k u_l] Cov(w_k, w_l) + Σ_kl Cov(u_k, u_l) E w_k E w_l. Without ``return_std`` there
    are no deviations, of shape (n_rows, 0).
    """
    moments = model.expectations(q, of_columns=units.patterns is not None)
    factors, activations, _ = model.infer(units, q, moments)
    means, noise = moments.means, np.sqrt(model.noise_variance)
    cells = factors @ means * noise + units.center
    if not return_std:
        return Cells(cells, np.empty((len(cells), 0)), factors)
    if always_on(model.activation_prior):
        variance = _variances_by_gaussians(model, q, units, factors, moments)
        return Cells(cells, np.sqrt(variance) * noise, factors)
    covariance = model.standard(q)["covariance"]
    squares = means.T**2 + np.diagonal(covariance, axis1=-2, axis2=-1)
    variance = np.empty(units.X.shape)
    for block in centered_blocks(units):
        u = factors[block.rows]
        spread = _spread_of_sparse(block, u, activations[block.rows], squares)
        second = np.einsum("nk,nl->nkl", u, u)
        places = np.arange(model.n_components)
        second[:, places, places] += spread
        by_loadings = np.tensordot(second, covariance, axes=([1, 2], [-2, -1]))
        by_loadings = by_loadings if by_loadings.ndim == 2 else by_loadings[:, None]
        variance[block.rows] = 1.0 + by_loadings + spread @ means**2
    return Cells(cells, np.sqrt(variance) * noise, factors)


def _spread_of_sparse(
    block: RowBlock, factors: np.ndarray, activations: np.ndarray, squares: np.ndarray
) -> np.ndarray:
    """Return the variances of the factors of rows, which can be off, (n_rows, n_components).

    ``squares`` has E w² of each column, (n_features, n_components).
    """
    a = np.maximum(activations, 1e-300)
    own = squares.sum(axis=0) if block.observed is None else block.observed @ squares
    found: np.ndarray = a * ((factors / a) ** 2 + 1.0 / (1.0 + own)) - factors**2
    return found


def _spread_of_gaussians(block: RowBlock, moments: Moments) -> np.ndarray:
    """Return the covariances of some rows of a block as lower triangles, (n_rows or 1, …)."""
    x, k = np.ones(1), len(moments.means)
    if block.observed is None:
        return packed(posterior(np.zeros((k, 1)), moments.gram, x)[1])
    # The covariances are the second moments of Gaussians with the means 0.
    assert moments.squares is not None
    gram = observed_sums(block.observed, moments.squares)
    return posterior_of_each(np.zeros((k, len(gram))), gram, x).second


def _variances_by_gaussians(
    model: SpikeSlabFactorAnalysis, q: Natural, units: Rows, factors: np.ndarray, moments: Moments
) -> np.ndarray:
    """Return the variances of all cells in units of the noise, if factors are on in all rows.

    Matrices are lower triangles, in whose products entries off the diagonal count twice.
    """
    means, k = moments.means, model.n_components
    often = multiplicity(k)
    of_loadings = (often * packed(model.standard(q)["covariance"])).reshape(-1, len(often)).T
    of_means = (often * packed(np.einsum("kd,ld->dkl", means, means))).T
    variance = np.empty(units.X.shape)
    for block in centered_blocks(units):
        for part in _parts(block, k**2):
            u = factors[part.rows]
            spread = _spread_of_gaussians(part, moments)
            second = packed(u[:, :, None] * u[:, None, :]) + spread
            variance[part.rows] = 1.0 + second @ of_loadings + spread @ of_means
    return variance


def log_predictive(model: SpikeSlabFactorAnalysis, q: Natural, units: Rows) -> np.ndarray:
    """Return lower bounds on the log predictive densities of rows in nats, (n_rows,).

    They are the bounds of the rows, and what these gain as loadings answer to the row alone.
    """
    moments = model.expectations(q, of_columns=units.patterns is not None)
    factors, activations, bounds = model.infer(units, q, moments)
    means, covariance = moments.means, model.standard(q)["covariance"]
    squares = means.T**2 + np.diagonal(covariance, axis1=-2, axis2=-1)
    noise, gaussian = np.sqrt(model.noise_variance), always_on(model.activation_prior)
    k, d = means.shape
    for block in centered_blocks(units):
        for part in _parts(block, k * max(k, d)):
            u = factors[part.rows]
            if gaussian:
                spread = symmetric(_spread_of_gaussians(part, moments), k)
            else:
                spread = _spread_of_sparse(part, u, activations[part.rows], squares)
            answers = gains_of_answers(part.X / noise, part.observed, u, spread, means, covariance)
            bounds[part.rows] += answers
    return bounds


def drawn_factors(
    projections: np.ndarray,
    gram: np.ndarray,
    activation_prior: np.ndarray,
    start: np.ndarray,
    rng: np.random.Generator,
    n_sweeps: int = _SWEEPS,
) -> np.ndarray:
    """Draw the factors u = z s of rows from p(z, s | x, W) by Gibbs sampling.

    With the loadings in units of the noise, the density of a row is ∝ exp{uᵀ p − uᵀ G u / 2}. Given
    the other factors, s_k of an active factor is Gaussian with the precision 1 + G_kk and the mean
    r_k / (1 + G_kk), r = p − Σ_{l≠k} G_kl u_l, and the odds of z_k are
    π / (1 − π) · (1 + G_kk)^(−1/2) exp{r_k² / (2 (1 + G_kk))}. After each sweep all slabs of the
    active factors are drawn at once, because those of similar loadings hardly move one by one.

    Parameters
    ----------
    projections : ndarray of shape (n_rows, n_components)
        p = W x.
    gram : ndarray of shape (n_rows or 1, n_components, n_components)
        G = W Wᵀ over the observed cells of each row, or of all rows.
    activation_prior : ndarray of shape (n_components,)
        π.
    start : ndarray of shape (n_rows, n_components)
        Probabilities of the activations, from which the first ones are drawn.
    rng : numpy.random.Generator
    n_sweeps : int

    Returns
    -------
    factors : ndarray of shape (n_rows, n_components)
    """
    n, k = projections.shape
    precision = 1.0 + np.diagonal(gram, axis1=1, axis2=2)
    odds = logit(activation_prior) - 0.5 * np.log(precision)
    active = rng.random((n, k)) < start
    factors = _slabs(projections, gram, active, rng)
    for _ in range(n_sweeps):
        for j in range(k):
            across = np.einsum("nl,nl->n", np.broadcast_to(gram[:, j], (n, k)), factors)
            left = projections[:, j] - across + gram[:, j, j] * factors[:, j]
            of_slab = precision[:, j]
            on = rng.random(n) < expit(odds[:, j] + 0.5 * left**2 / of_slab)
            slab = left / of_slab + rng.standard_normal(n) / np.sqrt(of_slab)
            active[:, j], factors[:, j] = on, np.where(on, slab, 0.0)
        factors = _slabs(projections, gram, active, rng)
    return factors


def _slabs(
    projections: np.ndarray, gram: np.ndarray, active: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw the slabs of active factors given their activations; others are 0."""
    n, k = active.shape
    both = active[:, :, None] & active[:, None, :]
    precision = np.where(both, gram, 0.0) + np.eye(k)
    return np.where(active, _drawn(precision, np.where(active, projections, 0.0), rng), 0.0)


def _drawn(precision: np.ndarray, natural_mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw from Gaussians P = L Lᵀ: P⁻¹ h + L⁻ᵀ ε = L⁻ᵀ (L⁻¹ h + ε)."""
    root = np.linalg.cholesky(precision)
    noise = rng.standard_normal(natural_mean.shape)
    inner = np.linalg.solve(root, natural_mean[..., None]) + noise[..., None]
    found: np.ndarray = np.linalg.solve(np.swapaxes(root, -1, -2), inner)[..., 0]
    return found


def factors_given(
    model: SpikeSlabFactorAnalysis,
    units: Rows,
    loadings: np.ndarray,
    activations: np.ndarray,
    rng: np.random.Generator,
    n_sweeps: int = _SWEEPS,
) -> np.ndarray:
    """Draw the factors of rows given their observed cells, (n_rows, n_components).

    Parameters
    ----------
    model : SpikeSlabFactorAnalysis
    units : Rows
    loadings : ndarray of shape (n_components, n_features)
        A draw of the loadings, in units of the noise.
    activations : ndarray of shape (n_rows, n_components)
        Probabilities of the activations at which the sampler begins.
    rng : numpy.random.Generator
    n_sweeps : int
    """
    k = model.n_components
    if always_on(model.activation_prior):
        # The slabs of factors that are on are drawn at once, so that no sweep need follow.
        n_sweeps = 0
    products = np.einsum("kd,ld->dkl", loadings, loadings).reshape(-1, k * k)
    found = np.empty((units.n_units, k))
    for block in centered_blocks(units):
        for part in _parts(block, k**2):
            projections = (part.X / np.sqrt(model.noise_variance)) @ loadings.T
            each = part.observed
            gram = products.sum(axis=0)[None] if each is None else each @ products
            found[part.rows] = drawn_factors(
                projections,
                gram.reshape(-1, k, k),
                model.activation_prior,
                activations[part.rows],
                rng,
                n_sweeps,
            )
    return found


def loadings_given(
    model: SpikeSlabFactorAnalysis, units: Rows, factors: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the loadings, and the means of the columns, given factors and observed cells.

    Means have a flat prior. Both are Gaussian in each column: a mean is the loading of a factor
    that is 1 in all rows.

    Returns
    -------
    loadings : ndarray of shape (n_components, n_features)
        In units of the noise.
    means : ndarray of shape (n_features,)
        Relative to the center of the rows, in units of the data.
    """
    k, d = model.n_components, model.n_features
    design = np.column_stack([factors, np.ones(len(factors))])
    products = np.einsum("nk,nl->nkl", design, design).reshape(len(design), -1)
    prior = np.diag(np.append(1.0 / model.loading_variance, _FLAT))
    precision = np.tile(prior.ravel(), (d, 1))
    natural_mean = np.zeros((d, k + 1))
    for block in centered_blocks(units):
        observed = np.ones(block.X.shape) if block.observed is None else block.observed
        precision += observed.T @ products[block.rows]
        natural_mean += (block.X / np.sqrt(model.noise_variance)).T @ design[block.rows]
    drawn = _drawn(precision.reshape(d, k + 1, k + 1), natural_mean, rng)
    return drawn[:, :k].T, drawn[:, k] * np.sqrt(model.noise_variance)


def drawn_cells(
    model: SpikeSlabFactorAnalysis,
    q: Natural,
    units: Rows,
    n_rounds: int,
    rng: np.random.Generator,
    at_means: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw all cells of rows given their observed cells, and their factors.

    The loadings are drawn from q, or are its means. In a round they are drawn again from their
    posterior given the factors that have been drawn, together with the means of the columns.

    Returns
    -------
    cells : ndarray of shape (n_rows, n_features)
        Only cells that are missing have a use for them.
    factors : ndarray of shape (n_rows, n_components)
    """
    _, activations, _ = model.infer(units, q)
    loadings = model.standard(q)["mean"] if at_means else model.expectations(q, rng).means
    means, n_sweeps = np.zeros(model.n_features), _SWEEPS
    for left in range(n_rounds, -1, -1):
        own = Rows(units.X, None, units.center + means, units.patterns)
        factors = factors_given(model, own, loadings, activations, rng, n_sweeps)
        if left:
            loadings, means = loadings_given(model, units, factors, rng)
            activations, n_sweeps = factors != 0, _FURTHER_SWEEPS
    noise = np.sqrt(model.noise_variance)
    cells = factors @ loadings + rng.standard_normal(units.X.shape)
    return cells * noise + units.center + means, factors
