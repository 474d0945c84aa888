"""Local step of Gaussian mixtures as two matrix products per block of rows.

With the quadratic features f(x) = [x_i x_j (i <= j), x, 1] of a centred row, the expected
log joint density of all components is ``coefficients @ f`` and the sufficient statistics are
``responsibilities @ f.T``. Rows are processed in blocks that are small enough for their features
to stay in the cache, and no array of the size rows × components × features ever exists. Features
are float64 for data of any dtype.
"""

from __future__ import annotations

import numpy as np

from ._compile import helper, kernel
from ._math import exp
from .plain.gaussian_mixture import DIAGONAL, FULL


@helper
def _features(x, start, stop, center, kind, out):
    n_features = center.shape[0]
    m = stop - start
    n_quadratic = out.shape[0] - n_features - 1
    for d in range(n_features):
        row = out[n_quadratic + d]
        c = center[d]
        for i in range(m):
            row[i] = np.float64(x[start + i, d]) - c
    out[n_quadratic + n_features, :] = 1.0
    if kind == FULL:
        p = 0
        for d in range(n_features):
            left = out[n_quadratic + d]
            for e in range(d, n_features):
                right = out[n_quadratic + e]
                target = out[p]
                for i in range(m):
                    target[i] = left[i] * right[i]
                p += 1
    elif kind == DIAGONAL:
        for d in range(n_features):
            left = out[n_quadratic + d]
            target = out[d]
            for i in range(m):
                target[i] = left[i] * left[i]
    else:
        target = out[0]
        target[:] = 0.0
        for d in range(n_features):
            left = out[n_quadratic + d]
            for i in range(m):
                target[i] += left[i] * left[i]


@helper
def _log_joint(coefficients, shared, features, out):
    n_shared = shared.shape[1]
    np.dot(coefficients, features[n_shared:], out)
    if n_shared > 0:
        common = np.empty((1, out.shape[1]))
        np.dot(shared, features[:n_shared], common)
        for k in range(out.shape[0]):
            row = out[k]
            for i in range(row.shape[0]):
                row[i] += common[0, i]


@helper
def _column_maximum(values, maximum):
    # numba compiles a message about shapes wherever an array is assigned to a slice, which takes
    # seconds.
    first = values[0]
    for i in range(first.shape[0]):
        maximum[i] = first[i]
    for k in range(1, values.shape[0]):
        row = values[k]
        for i in range(row.shape[0]):
            maximum[i] = max(maximum[i], row[i])


@helper
def _tempered_exponentials(joint, maximum, inverse_temperature, out, total, energy):
    """For each row, exp{x (L - max)}, their sum, and the sum of L - max weighted by them."""
    total[:] = 0.0
    energy[:] = 0.0
    for k in range(joint.shape[0]):
        row = joint[k]
        target = out[k]
        for i in range(row.shape[0]):
            difference = row[i] - maximum[i]
            value = exp(inverse_temperature[i] * difference)
            target[i] = value
            total[i] += value
            energy[i] += value * difference


@helper
def _scale_columns(values, factor):
    for k in range(values.shape[0]):
        row = values[k]
        for i in range(row.shape[0]):
            row[i] *= factor[i]


@helper
def _accumulate(weighted, features, n_shared, per_component, shared):
    product = np.empty(per_component.shape)
    np.dot(weighted, features[n_shared:].T, product)
    per_component += product
    if n_shared > 0:
        total = np.zeros((1, weighted.shape[1]))
        for k in range(weighted.shape[0]):
            row = weighted[k]
            for i in range(row.shape[0]):
                total[0, i] += row[i]
        product = np.empty(shared.shape)
        np.dot(total, features[:n_shared].T, product)
        shared += product


@helper
def _expected_inverse_temperature(energy, reference, coefficients, slope, out):
    """E_r[x] with r_m ∝ a_m z^m and z = exp{(energy - reference)/M}, by two Horner recursions.

    All terms are positive, so that nothing cancels. The common factor z is left out, so that an
    energy of minus infinity gives the smallest x.
    """
    n = coefficients.shape[0]
    m = energy.shape[0]
    z = np.empty(m)
    norm = np.full(m, coefficients[n - 1])
    mean = np.full(m, coefficients[n - 1] * n)
    for i in range(m):
        z[i] = exp(min(slope * (energy[i] - reference), 600.0 * slope))
    for j in range(n - 2, -1, -1):
        a = coefficients[j]
        b = a * (j + 1)
        for i in range(m):
            norm[i] = norm[i] * z[i] + a
            mean[i] = mean[i] * z[i] + b
    for i in range(m):
        out[i] = mean[i] / (norm[i] * n)


@kernel("rows vector int matrix matrix vector vector vector vector int out2 out2 out2 out2 out1")
def local_step(
    x,
    center,
    kind,
    coefficients,
    shared,
    inverse_temperature,
    factor,
    weights,
    noise,
    block,
    statistics,
    shared_statistics,
    clean,
    shared_clean,
    sums,
):
    """Compute tempered responsibilities and add the statistics that follow to the outputs.

    Parameters
    ----------
    x : array of shape (n, n_features)
    center : array of shape (n_features,)
        Subtracted from every row.
    kind : int
        ``FULL``, ``DIAGONAL`` or ``SPHERICAL`` quadratic features.
    coefficients : array of shape (n_components, n_own)
        Coefficients of the last n_own features, which differ between components.
    shared : array of shape (1, n_shared)
        Coefficients of the first n_shared features, which are the same for all components.
    inverse_temperature : array of shape (n,) or (1,)
    factor : array of shape (n,) or (1,)
        Factor of the statistics.
    weights : array of shape (n,) or (0,)
        Weights of the rows in statistics and sums; if empty, all are 1.
    noise : array of shape (n,) or (0,)
        A further factor of the statistics, not of the sums; if empty, all are 1.
    block : int
        Rows per block.
    statistics, shared_statistics : arrays of shape (n_components, n_own) and (1, n_shared)
    clean, shared_clean : arrays of the same shapes, or empty
        If not empty, they receive the statistics without the noise.
    sums : array of shape (2,)
        Σ w Σ_k R L and Σ w H[R].
    """
    n = x.shape[0]
    n_components = coefficients.shape[0]
    n_shared = shared.shape[1]
    n_rows = n_shared + coefficients.shape[1]
    feature_buffer = np.empty(n_rows * min(block, n))
    joint_buffer = np.empty(n_components * min(block, n))
    for start in range(0, n, block):
        stop = min(start + block, n)
        m = stop - start
        features = feature_buffer[: n_rows * m].reshape(n_rows, m)
        joint = joint_buffer[: n_components * m].reshape(n_components, m)
        maximum = np.empty(m)
        total = np.empty(m)
        energy = np.empty(m)
        scale = np.empty(m)
        if inverse_temperature.shape[0] == 1:
            temperature = np.full(m, inverse_temperature[0])
        else:
            temperature = inverse_temperature[start:stop].copy()
        _features(x, start, stop, center, kind, features)
        _log_joint(coefficients, shared, features, joint)
        _column_maximum(joint, maximum)
        # R_k = exp{x (L_k − max L)} / Σ_j exp{x (L_j − max L)}. The energy is
        # Σ R L = max L + Σ R (L − max L), and the entropy
        # H[R] = log Σ_j exp{x (L_j − max L)} − x Σ R (L − max L).
        _tempered_exponentials(joint, maximum, temperature, joint, total, energy)
        for i in range(m):
            mean_energy = energy[i] / total[i]
            w = weights[start + i] if weights.shape[0] > 0 else 1.0
            sums[0] += w * (maximum[i] + mean_energy)
            sums[1] += w * (np.log(total[i]) - temperature[i] * mean_energy)
            f = factor[start + i] if factor.shape[0] > 1 else factor[0]
            scale[i] = w * f / total[i]
        if clean.shape[0] > 0:
            _scale_columns(joint, scale)
            _accumulate(joint, features, n_shared, clean, shared_clean)
            for i in range(m):
                scale[i] = noise[start + i] if noise.shape[0] > 0 else 1.0
        elif noise.shape[0] > 0:
            for i in range(m):
                scale[i] *= noise[start + i]
        _scale_columns(joint, scale)
        _accumulate(joint, features, n_shared, statistics, shared_statistics)


@kernel("rows vector int matrix matrix vector float int vector vector int out2 out2 out1 out1")
def locally_tempered_step(
    x,
    center,
    kind,
    coefficients,
    shared,
    partition,
    reference,
    n_rounds,
    weights,
    noise,
    block,
    statistics,
    shared_statistics,
    inverse_temperatures,
    sums,
):
    """:func:`local_step` where every row has a temperature of its own.

    Parameters
    ----------
    partition : array of shape (n_temperatures,)
        π_m exp{x_m reference − log c(x_m)} for x_m = m / n_temperatures, m = 1, 2, …
    reference : float
        Energy (nats) to which ``partition`` refers.
    n_rounds : int
        Number of rounds in which q(z) and r are updated in turns, from a uniform r.
    inverse_temperatures : array of shape (n,)
        Output: E_r[x] of every row.
    sums : array of shape (3,)
        Σ w Σ_k R L, Σ w H[R] and Σ w / E_r[x].
    """
    n = x.shape[0]
    n_components = coefficients.shape[0]
    n_shared = shared.shape[1]
    n_rows = n_shared + coefficients.shape[1]
    n_temperatures = partition.shape[0]
    feature_buffer = np.empty(n_rows * min(block, n))
    joint_buffer = np.empty(n_components * min(block, n))
    work_buffer = np.empty(n_components * min(block, n))
    for start in range(0, n, block):
        stop = min(start + block, n)
        m = stop - start
        features = feature_buffer[: n_rows * m].reshape(n_rows, m)
        joint = joint_buffer[: n_components * m].reshape(n_components, m)
        work = work_buffer[: n_components * m].reshape(n_components, m)
        maximum = np.empty(m)
        total = np.empty(m)
        energy = np.empty(m)
        temperature = np.full(m, 0.5 * (1.0 + 1.0 / n_temperatures))
        _features(x, start, stop, center, kind, features)
        _log_joint(coefficients, shared, features, joint)
        _column_maximum(joint, maximum)
        # In turns, q(z = k) ∝ exp{E_r[x] L_k} and r_m ∝ exp{x_m Σ_k q(k) L_k − log c(x_m)}.
        for _ in range(n_rounds):
            _tempered_exponentials(joint, maximum, temperature, work, total, energy)
            for i in range(m):
                energy[i] = maximum[i] + energy[i] / total[i]
            _expected_inverse_temperature(
                energy, reference, partition, 1.0 / n_temperatures, temperature
            )
        _tempered_exponentials(joint, maximum, temperature, work, total, energy)
        for i in range(m):
            inverse_temperatures[start + i] = temperature[i]
            mean_energy = energy[i] / total[i]
            w = weights[start + i] if weights.shape[0] > 0 else 1.0
            sums[0] += w * (maximum[i] + mean_energy)
            sums[1] += w * (np.log(total[i]) - temperature[i] * mean_energy)
            sums[2] += w / temperature[i]
            f = noise[start + i] if noise.shape[0] > 0 else 1.0
            energy[i] = w * f * temperature[i] / total[i]
        _scale_columns(work, energy)
        _accumulate(work, features, n_shared, statistics, shared_statistics)


@kernel("rows vector int matrix matrix int out2")
def log_joint(x, center, kind, coefficients, shared, block, out):
    """Write ``coefficients @ f(x)`` of every row to ``out``, of shape (n, n_components)."""
    n = x.shape[0]
    n_components = coefficients.shape[0]
    n_rows = shared.shape[1] + coefficients.shape[1]
    feature_buffer = np.empty(n_rows * min(block, n))
    joint_buffer = np.empty(n_components * min(block, n))
    for start in range(0, n, block):
        stop = min(start + block, n)
        m = stop - start
        features = feature_buffer[: n_rows * m].reshape(n_rows, m)
        joint = joint_buffer[: n_components * m].reshape(n_components, m)
        _features(x, start, stop, center, kind, features)
        _log_joint(coefficients, shared, features, joint)
        for i in range(m):
            for k in range(n_components):
                out[start + i, k] = joint[k, i]


@kernel("rows vector int matrix int out2 out2")
def statistics_of(x, center, kind, responsibilities, block, statistics, shared_statistics):
    """Statistics for given (weighted) responsibilities of shape (n, n_components)."""
    n = x.shape[0]
    n_components = responsibilities.shape[1]
    n_shared = shared_statistics.shape[1]
    n_rows = n_shared + statistics.shape[1]
    feature_buffer = np.empty(n_rows * min(block, n))
    weighted_buffer = np.empty(n_components * min(block, n))
    for start in range(0, n, block):
        stop = min(start + block, n)
        m = stop - start
        features = feature_buffer[: n_rows * m].reshape(n_rows, m)
        weighted = weighted_buffer[: n_components * m].reshape(n_components, m)
        _features(x, start, stop, center, kind, features)
        for i in range(m):
            for k in range(n_components):
                weighted[k, i] = responsibilities[start + i, k]
        _accumulate(weighted, features, n_shared, statistics, shared_statistics)
