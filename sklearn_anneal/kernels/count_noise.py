"""Activations of rows of counts whose cells have gamma noise.

Components come as a table with one row per column of X, which :mod:`counts` describes, and as their
means. A step of a row has three products: counts over rates give the counts of components, shapes
over rates of the noise give the times for which cells count, and the former again, times the share
that the noise takes of each cell.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import digamma, exp, exp_digamma, log
from .counts import TINY
from .gamma_process_nmf import lift
from .simd.products import ratio_update

# The largest factor of a mean whose curvature is unknown; plain.count_noise has it too.
_LONGEST = 4.0


@helper
def _factor(shape, product, held, rest):
    """The factor of a mean, as :func:`plain.count_noise.factors` computes it."""
    c = min(held, (1.0 - rest) * shape)
    left, right = shape - c, product - c
    if right * _LONGEST < left:
        quotient = max(_LONGEST, shape / product)
    else:
        quotient = left / right
    share = c / shape
    away = 1.0 - share
    return 2.0 * quotient / (away + np.sqrt(away * away + 4.0 * share * quotient))


@kernel(
    "rows rows rows vector vector vector float float float float float float int int float float "
    "out2 out2",
    dtypes=("float64",),
)
def noisy_sweeps(
    counts,
    table,
    means,
    first_factor,
    log_weights,
    mean_weights,
    local,
    base,
    base_rate,
    step,
    noise_shape,
    noise_rate,
    given,
    n_sweeps,
    tol,
    rest,
    shape,
    rates,
):
    """Update the activations of rows of counts at most ``n_sweeps`` times, until they converge.

    Parameters
    ----------
    counts : array of shape (n_rows, n_columns)
        NaN is a missing cell.
    table, means : arrays of shape (n_padded, width)
        exp{x (log w − m)} and E w, with zeros in rows and columns that X or the components lack.
        The column of ``means`` after those of the components is ``noise_rate``.
    first_factor : array of shape (n_components,)
        The factors that divide the counts of rows that start anew.
    log_weights, mean_weights : arrays of shape (n_components,)
        E log θ and E θ.
    local, step : float
        The powers x of the local step and of the statistics.
    base, base_rate, noise_shape, noise_rate : float
        The tempered priors of activations and of the noise.
    given : int
        Whether ``shape`` and ``rates`` have a start. Otherwise, the noise of the first sweep is
        that of rates equal to the counts.
    tol, rest : float
        A row has converged when the sum of the changes of its shapes is below ``tol`` times the
        number of components; ``rest`` is explained in :mod:`plain.count_noise`.
    shape, rates : arrays of shape (n_rows, n_components)
        The result.
    """
    n_rows, n_columns = counts.shape
    n_components = shape.shape[1]
    n_padded, width = table.shape
    wide = means.shape[1]
    c = np.zeros(n_padded)
    of_noise = np.zeros(n_padded)
    later = np.zeros(n_padded)
    norms = np.ones(n_padded)
    noisy_rates = np.ones(n_padded)
    powers = np.empty(n_components)
    e = np.zeros(width)
    rate = np.zeros(wide)
    own = np.zeros(width)
    held = np.zeros(width)
    times = np.zeros(wide)
    current = np.empty(n_components)
    logs = np.empty(n_components)
    for n in range(n_rows):
        for v in range(n_columns):
            x = counts[n, v]
            seen = x == x
            c[v] = x if seen else 0.0
            of_noise[v] = noise_shape + step * x if seen else 0.0
        for k in range(n_components):
            current[k] = 1.0
            if given:
                current[k] = shape[n, k] / rates[n, k]
        for sweep in range(n_sweeps):
            anew = sweep == 0 and not given
            rate[n_components] = 1.0
            for k in range(wide):
                times[k] = 0.0
            for k in range(width):
                own[k] = 0.0
                held[k] = 0.0
            if anew:
                for k in range(n_components):
                    e[k] = first_factor[k]
                    rate[k] = 0.0
                for v in range(n_columns):
                    later[v] = of_noise[v] * (noise_rate / (noise_rate + step * c[v]))
                ratio_update(rate, later, TINY, means, n_padded, noisy_rates, times)
            else:
                top = -np.inf
                for k in range(n_components):
                    logs[k] = local * (log_weights[k] - log(rates[n, k]))
                    top = max(top, logs[k])
                if local == 1.0:
                    for k in range(n_components):
                        powers[k] = exp_digamma(shape[n, k])
                else:
                    for k in range(n_components):
                        powers[k] = exp(local * digamma(shape[n, k]))
                lift(shape[n], local, powers)
                for k in range(n_components):
                    e[k] = exp(logs[k] - top) * powers[k]
                    rate[k] = step * mean_weights[k] * current[k]
                ratio_update(rate, of_noise, TINY, means, n_padded, noisy_rates, times)
            ratio_update(e, c, TINY, table, n_padded, norms, own)
            if not anew:
                for v in range(n_columns):
                    later[v] = c[v] * (1.0 - noise_rate / noisy_rates[v])
                ratio_update(e, later, TINY, table, n_padded, norms, held)
            change = 0.0
            for k in range(n_components):
                new = base + step * e[k] * own[k]
                new_rate = base_rate + step * mean_weights[k] * times[k]
                product = new_rate * current[k]
                change += abs(new - product)
                if not anew:
                    taken = step * e[k] * held[k]
                    new_rate = new / (current[k] * _factor(new, product, taken, rest))
                shape[n, k] = new
                rates[n, k] = new_rate
                current[k] = new / new_rate
            if change < tol * n_components:
                break
