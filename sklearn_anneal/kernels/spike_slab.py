"""Local step of spike-and-slab factor analysis: mean-field sweeps over the factors of rows.

A factor of a row is u_k = z_k s_k. Given z_k = 1, q(s_k) is Gaussian with the mean m_k and the
variance 1 / (x (1 + G_kk)), and given z_k = 0 it has the mean 0 and the variance 1 / x, where x is
the inverse temperature. Arrays have one row per factor and one column per data point, so that loops
over data points are loops over neighbouring numbers, as in :mod:`factorial_mixture`.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import exp, log
from .factorial_mixture import _entropies
from .simd.rows import subtract_rows

# Number of data points that are processed at a time.
_LANES = 64
# The same where every data point has a matrix of its own; so few of these stay in the caches.
_LANES_OF_GRAMS = 8
# Number of columns of a table that :func:`subtract_missing` reads at a time.
_COLUMNS = 256
# Activations are kept this far from certainty, so that every factor can be switched again.
_LARGEST_LOGIT = 30.0
_LOG_2PI = np.log(2.0 * np.pi)


@helper
def _gaussian_terms(nu, m, own, x):
    """The parts of the energy and of the entropy of one factor that belong to s.

    ``own`` is G_kk. They are −E u² G_kk / 2 + E log N(s; 0, 1) and H[q(s | z)].
    """
    precision = x * (1.0 + own)
    square = nu * (m * m + 1.0 / precision)
    energy = -0.5 * (square * own + square + (1.0 - nu) / x + _LOG_2PI)
    return energy, 0.5 * (_LOG_2PI + 1.0 - log(x) - nu * log(1.0 + own))


@kernel("rows matrix vector vector int int float out2 out2 out2 out1 out1", dtypes=("float64",))
def mean_field(
    projections,
    gram,
    log_odds,
    inverse_temperature,
    relaxed,
    n_sweeps,
    tol,
    logits,
    means,
    activations,
    energies,
    entropies,
):
    """Update q(z, s) of all factors in turn, for every data point until it has converged.

    Parameters
    ----------
    projections : array of shape (n_components, n)
        E[w_k]·x of every data point x, both in units of the noise.
    gram : array of shape (n_components, n_components)
        E[w_k·w_l], in units of the noise.
    log_odds : array of shape (n_components,)
        log(π / (1 − π)).
    inverse_temperature : array of shape (n,) or (1,)
    relaxed : int
        1 if ``means`` has E u at the beginning, and ``logits`` nothing. There must be a sweep then.
    n_sweeps : int
        Largest number of updates of each factor; with 0 the given distributions are kept.
    tol : float
        The sweeps over a data point end after one in which neither an activation nor an E u has
        changed by more.
    logits, means : array of shape (n_components, n)
        Input and output: the logits of the activations, and E[s | z = 1].
    activations : array of shape (n_components, n)
        Output: the probabilities ν of the activations.
    energies, entropies : array of shape (n,)
        Output: E log p(z, s) + E[log p(x | z, s)], the latter without its terms without z, and
        H[q(z, s)] in nats.
    """
    n_components, n = projections.shape
    inputs = np.zeros((n_components, _LANES))
    u = np.zeros((n_components, _LANES))
    nu = np.zeros((n_components, _LANES))
    m = np.zeros((n_components, _LANES))
    a = np.zeros((n_components, _LANES))
    drive = np.zeros(_LANES)
    energy = np.zeros(_LANES)
    entropy = np.zeros(_LANES)
    change = np.empty(_LANES)
    active = np.empty(_LANES)
    x = np.empty(_LANES)
    x[:] = inverse_temperature[0]
    for start in range(0, n, _LANES):
        count = min(start + _LANES, n) - start
        if inverse_temperature.shape[0] > 1:
            for i in range(count):
                x[i] = inverse_temperature[start + i]
        for k in range(n_components):
            for i in range(count):
                inputs[k, i] = projections[k, start + i]
                m[k, i] = means[k, start + i]
                a[k, i] = logits[k, start + i]
            for i in range(_LANES):
                nu[k, i] = 1.0 / (1.0 + exp(-a[k, i]))
                u[k, i] = m[k, i] if relaxed else nu[k, i] * m[k, i]
        active[:] = 0.0
        active[:count] = 1.0
        for _ in range(n_sweeps):
            change[:] = 0.0
            for k in range(n_components):
                own = gram[k, k]
                scale = 1.0 / (1.0 + own)
                half_log = 0.5 * log(1.0 + own)
                for i in range(_LANES):
                    drive[i] = inputs[k, i] + own * u[k, i]
                subtract_rows(gram, k, n_components, u, drive)
                for i in range(_LANES):
                    mean = drive[i] * scale
                    new = x[i] * (log_odds[k] + 0.5 * mean * drive[i]) - half_log
                    new = min(max(new, -_LARGEST_LOGIT), _LARGEST_LOGIT)
                    probability = 1.0 / (1.0 + exp(-new))
                    product = probability * mean
                    moved = max(abs(probability - nu[k, i]), abs(product - u[k, i]))
                    move = active[i] > 0.0
                    change[i] = max(change[i], moved) if move else change[i]
                    a[k, i] = new if move else a[k, i]
                    m[k, i] = mean if move else m[k, i]
                    nu[k, i] = probability if move else nu[k, i]
                    u[k, i] = product if move else u[k, i]
            moving = 0.0
            for i in range(_LANES):
                active[i] = 1.0 if change[i] > tol else 0.0
                moving += active[i]
            if moving == 0.0:
                break
        _entropies(a, nu, entropy)
        energy[:] = 0.0
        for k in range(n_components):
            for i in range(_LANES):
                drive[i] = inputs[k, i]
            subtract_rows(gram, k, k, u, drive)
            own = gram[k, k]
            for i in range(_LANES):
                of_energy, of_entropy = _gaussian_terms(nu[k, i], m[k, i], own, x[i])
                energy[i] += u[k, i] * drive[i] + nu[k, i] * log_odds[k] + of_energy
                entropy[i] += of_entropy
            for i in range(count):
                logits[k, start + i] = a[k, i]
                means[k, start + i] = m[k, i]
                activations[k, start + i] = nu[k, i]
        for i in range(count):
            energies[start + i] = energy[i]
            entropies[start + i] = entropy[i]


@kernel("rows matrix vector vector int int float out2 out2 out2 out1 out1", dtypes=("float64",))
def mean_field_of_rows(
    projections,
    grams,
    log_odds,
    inverse_temperature,
    relaxed,
    n_sweeps,
    tol,
    logits,
    means,
    activations,
    energies,
    entropies,
):
    """Do the same as :func:`mean_field` where every data point has a matrix ``gram`` of its own.

    Other cells are missing in other rows. ``grams`` has the lower triangles of the matrices, row
    after row, of shape (n, n_components (n_components + 1) / 2).
    """
    n_components, n = projections.shape
    gram = np.zeros((n_components, n_components, _LANES_OF_GRAMS))
    inputs = np.zeros((n_components, _LANES_OF_GRAMS))
    precision = np.zeros((n_components, _LANES_OF_GRAMS))
    half_log = np.zeros((n_components, _LANES_OF_GRAMS))
    u = np.zeros((n_components, _LANES_OF_GRAMS))
    nu = np.zeros((n_components, _LANES_OF_GRAMS))
    m = np.zeros((n_components, _LANES_OF_GRAMS))
    a = np.zeros((n_components, _LANES_OF_GRAMS))
    drive = np.zeros(_LANES_OF_GRAMS)
    energy = np.zeros(_LANES_OF_GRAMS)
    entropy = np.zeros(_LANES_OF_GRAMS)
    change = np.empty(_LANES_OF_GRAMS)
    active = np.empty(_LANES_OF_GRAMS)
    x = np.empty(_LANES_OF_GRAMS)
    x[:] = inverse_temperature[0]
    for start in range(0, n, _LANES_OF_GRAMS):
        count = min(start + _LANES_OF_GRAMS, n) - start
        if inverse_temperature.shape[0] > 1:
            for i in range(count):
                x[i] = inverse_temperature[start + i]
        for i in range(count):
            for k in range(n_components):
                row = k * (k + 1) // 2
                for j in range(k + 1):
                    gram[k, j, i] = grams[start + i, row + j]
                    gram[j, k, i] = grams[start + i, row + j]
        for k in range(n_components):
            for i in range(count):
                inputs[k, i] = projections[k, start + i]
                m[k, i] = means[k, start + i]
                a[k, i] = logits[k, start + i]
            for i in range(_LANES_OF_GRAMS):
                own = gram[k, k, i]
                precision[k, i] = 1.0 + own
                half_log[k, i] = 0.5 * log(1.0 + own)
                nu[k, i] = 1.0 / (1.0 + exp(-a[k, i]))
                u[k, i] = m[k, i] if relaxed else nu[k, i] * m[k, i]
        active[:] = 0.0
        active[:count] = 1.0
        for _ in range(n_sweeps):
            change[:] = 0.0
            for k in range(n_components):
                for i in range(_LANES_OF_GRAMS):
                    drive[i] = inputs[k, i] + gram[k, k, i] * u[k, i]
                for j in range(n_components):
                    for i in range(_LANES_OF_GRAMS):
                        drive[i] -= gram[k, j, i] * u[j, i]
                for i in range(_LANES_OF_GRAMS):
                    mean = drive[i] / precision[k, i]
                    new = x[i] * (log_odds[k] + 0.5 * mean * drive[i]) - half_log[k, i]
                    new = min(max(new, -_LARGEST_LOGIT), _LARGEST_LOGIT)
                    probability = 1.0 / (1.0 + exp(-new))
                    product = probability * mean
                    moved = max(abs(probability - nu[k, i]), abs(product - u[k, i]))
                    move = active[i] > 0.0
                    change[i] = max(change[i], moved) if move else change[i]
                    a[k, i] = new if move else a[k, i]
                    m[k, i] = mean if move else m[k, i]
                    nu[k, i] = probability if move else nu[k, i]
                    u[k, i] = product if move else u[k, i]
            moving = 0.0
            for i in range(_LANES_OF_GRAMS):
                active[i] = active[i] if change[i] > tol else 0.0
                moving += active[i]
            if moving == 0.0:
                break
        energy[:] = 0.0
        entropy[:] = 0.0
        for k in range(n_components):
            for i in range(_LANES_OF_GRAMS):
                drive[i] = inputs[k, i]
            for j in range(k):
                for i in range(_LANES_OF_GRAMS):
                    drive[i] -= gram[k, j, i] * u[j, i]
            for i in range(_LANES_OF_GRAMS):
                own = gram[k, k, i]
                of_energy, of_entropy = _gaussian_terms(nu[k, i], m[k, i], own, x[i])
                energy[i] += u[k, i] * drive[i] + nu[k, i] * log_odds[k] + of_energy
                likely = max(nu[k, i], 1.0 - nu[k, i])
                entropy[i] += of_entropy + abs(a[k, i]) * (1.0 - likely) - log(likely)
            for i in range(count):
                logits[k, start + i] = a[k, i]
                means[k, start + i] = m[k, i]
                activations[k, start + i] = nu[k, i]
        for i in range(count):
            energies[start + i] = energy[i]
            entropies[start + i] = entropy[i]


@kernel("values int vector pointer pointer out2", dtypes=("float64",))
def subtract_missing(table, width, total, places, ends, out):
    """``out[i] = total − Σ_p table[p]`` over ``places[ends[i] : ends[i + 1]]``.

    A row of the flat table begins ``width`` numbers after the one before, and has as many as
    ``total``. Few columns at a time are read, so that these parts of all rows stay in the caches.
    """
    n_columns = total.shape[0]
    for start in range(0, n_columns, _COLUMNS):
        n = min(start + _COLUMNS, n_columns) - start
        for i in range(out.shape[0]):
            row = out[i, start:]
            for c in range(n):
                row[c] = total[start + c]
            at, end = ends[i], ends[i + 1]
            while at + 4 <= end:
                first = table[places[at] * width + start :]
                second = table[places[at + 1] * width + start :]
                third = table[places[at + 2] * width + start :]
                fourth = table[places[at + 3] * width + start :]
                for c in range(n):
                    row[c] -= (first[c] + second[c]) + (third[c] + fourth[c])
                at += 4
            while at < end:
                first = table[places[at] * width + start :]
                for c in range(n):
                    row[c] -= first[c]
                at += 1
