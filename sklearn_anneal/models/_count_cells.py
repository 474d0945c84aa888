"""Missing counts of factorisations: their moments, and draws of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..data.units import DenseCounts
from ..families import Natural
from ..families.gamma import log_standard_gamma
from ._draws import drawn_counts

if TYPE_CHECKING:
    from .gamma_process_nmf import GammaProcessNMF

# Gibbs sweeps over the activations of rows, which begin at their posterior means, or go on in a
# round.
_SWEEPS, _FURTHER_SWEEPS = 20, 5
# Shares of counts in memory at a time.
_ENTRIES = 1 << 20


class _Cells(NamedTuple):
    """The observed cells with counts, row by row."""

    rows: np.ndarray
    columns: np.ndarray
    counts: np.ndarray


class _Allocated(NamedTuple):
    """Counts of each component, in rows (n_rows, K) and in columns (n_columns, K)."""

    rows: np.ndarray
    columns: np.ndarray


def _allocated(
    cells: _Cells, log_activations: np.ndarray, log_rates: np.ndarray, rng: np.random.Generator
) -> _Allocated:
    """Draw how many of the counts of each cell are of each component, a multinomial number.

    ``log_rates`` are log θ_k w_kv, of shape (n_columns, n_components).
    """
    (n, k), n_columns = log_activations.shape, len(log_rates)
    of_rows, of_columns = np.zeros((n, k)), np.zeros((n_columns, k))
    size = max(_ENTRIES // k, 1)
    for begin in range(0, len(cells.rows), size):
        part = slice(begin, begin + size)
        rows, columns = cells.rows[part], cells.columns[part]
        shares = log_activations[rows] + log_rates[columns]
        shares = np.exp(shares - shares.max(axis=1, keepdims=True))
        drawn = rng.multinomial(cells.counts[part], shares / shares.sum(axis=1, keepdims=True))
        np.add.at(of_rows, rows, drawn)
        np.add.at(of_columns, columns, drawn)
    return _Allocated(of_rows, of_columns)


def _log_gamma(shape: np.ndarray, rate: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw logarithms of gamma variables, which are finite where these underflow."""
    return np.asarray(log_standard_gamma(np.broadcast_to(shape, rate.shape), rng) - np.log(rate))


def _noise_given(
    counts: np.ndarray, rates: np.ndarray, dispersion: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw the noise of cells given their counts and their rates without noise."""
    return rng.standard_gamma(1.0 / dispersion + counts) / (1.0 / dispersion + rates)


def imputed(
    model: GammaProcessNMF,
    q: Natural,
    components: np.ndarray,
    units: DenseCounts,
    activations: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and the deviations of new counts, both (n_rows, n_columns).

    ``components`` are the means of θ_k w_kv from which the activations were inferred. A Poisson
    count of the rate λ = Σ_k h_nk θ_k w_kv has the variance E λ + Var λ. All factors are
    independent in q, and a gamma variable x of the shape s has E x² = (E x)² (1 + 1 / s). So has
    the noise of the cell, by which λ is multiplied.
    """
    noise = model.dispersion
    observed = (~np.isnan(units.X)).astype(np.float64)
    if noise is not None:
        # Cells count as if they had been observed for E e = (a + x) / (a + m) units of time.
        observed *= (1.0 + noise * np.nan_to_num(units.X)) / (
            1.0 + noise * activations @ components
        )
    shape = activations * (model.activation_prior + observed @ components.T)
    squares = components**2
    more = (1.0 + 1.0 / q["weights_shape"])[:, None] * (1.0 + 1.0 / q["components_shape"])
    of_rows = activations**2 * (1.0 + 1.0 / np.maximum(shape, 1e-300))
    means = activations @ components
    variance = means + of_rows @ (squares * more) - activations**2 @ squares
    if noise is not None:
        variance += noise * (variance - means + means**2)
    return means, np.sqrt(variance)


def drawn_cells(
    model: GammaProcessNMF,
    q: Natural,
    prior: Natural,
    units: DenseCounts,
    activations: np.ndarray,
    n_rounds: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw the missing cells of rows given their observed ones.

    Weights θ and components w are drawn from q. The activations of rows given both are drawn by
    Gibbs sampling: the counts of each observed cell are divided among components, in proportion to
    h_nk θ_k w_kv, and h_nk ~ Gamma(b + Σ_v z_nvk, b + θ_k Σ_v w_kv) follows from the division. In a
    round, components and weights follow from it likewise. The noise of an observed cell, which
    multiplies all of its rates, is drawn from Gamma(a + x_nv, a + m_nv) before each division, and
    that of a missing one from its prior.

    Parameters
    ----------
    model : GammaProcessNMF
    q, prior : dict of ndarray
    units : DenseCounts
    activations : ndarray of shape (n_rows, n_components)
        E h by q, where the sampler begins.
    n_rounds : int
    rng : numpy.random.Generator

    Returns
    -------
    cells : ndarray of shape (n_rows, n_columns)
        Only cells that are missing have a use for them; others are 0.
    """
    missing = np.isnan(units.X)
    counts = np.where(missing, 0, units.X).astype(np.int64)
    rows, columns = np.nonzero(counts)
    observed, noise = (~missing).astype(np.float64), model.dispersion
    cells = _Cells(rows, columns, counts[rows, columns])
    draws = {f.names["shape"]: f.family.sample(f.pick(q), rng) for f in model.factors()}
    log_weights = draws["weights_shape"]["log_value"]
    log_components = draws["components_shape"]["log_value"]
    with np.errstate(divide="ignore"):
        h, n_sweeps, b = np.log(activations), _SWEEPS, model.activation_prior
    for left in range(n_rounds, -1, -1):
        log_rates = (log_weights[:, None] + log_components).T
        times, totals = observed, observed @ np.exp(log_rates)
        for _ in range(n_sweeps):
            if noise is not None:
                times = observed * _noise_given(counts, np.exp(h) @ np.exp(log_rates).T, noise, rng)
                totals = times @ np.exp(log_rates)
            found = _allocated(cells, h, log_rates, rng)
            h = _log_gamma(b + found.rows, b + totals, rng)
        if left:
            exposure = times.T @ np.exp(h)
            shape = prior["components_shape"] + found.columns.T
            rate = prior["components_rate"] + (exposure * np.exp(log_weights)).T
            log_components = _log_gamma(shape, rate, rng)
            rate = prior["weights_rate"] + (np.exp(log_components) * exposure.T).sum(axis=1)
            log_weights = _log_gamma(prior["weights_shape"] + found.rows.sum(axis=0), rate, rng)
            n_sweeps = _FURTHER_SWEEPS
    where = np.nonzero(missing)
    rates = np.einsum("ik,ik->i", np.exp(h)[where[0]], np.exp(log_rates)[where[1]])
    if noise is not None:
        rates *= noise * rng.standard_gamma(1.0 / noise, len(rates))
    drawn = np.zeros(units.X.shape)
    drawn[where] = drawn_counts(rng, rates)
    return drawn
