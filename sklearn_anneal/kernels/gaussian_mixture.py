"""Local step of Gaussian mixtures as two matrix products per block of rows.

With the quadratic features f(x) = [x_i x_j (i <= j), x, 1] of a centred row, the expected
log joint density of all components is ``coefficients @ f`` and the sufficient statistics are
``responsibilities @ f.T``. Rows are processed in blocks that are small enough for their features
to stay in the cache, and no array of the size rows × components × features ever exists. Features
are float64 for data of any dtype.

The other kernels search for the numbers of the prior of the components that maximise the bound.
Each searches for one number or two by Newton's method, as those for many columns do
(``empirical_bayes.py``). The formulas are derived in ``models/components/_joint_steps.py``,
``_learned_gaussians.py`` and ``_determinants.py``. Arrays of one number for each component have the
shape (n_components,).
"""

from __future__ import annotations

import numpy as np

from ._compile import called, helper, kernel
from ._math import exp, log, log_gamma
from .empirical_bayes import _PRECISION, _polygammas
from .plain.gaussian_mixture import DIAGONAL, FULL

# There are at most so many steps.
_STEPS = 200
# A difference from 1 is at least this, so that sizes are positive.
_ROUNDING = 2.0**-53
# Numbers of rows that differ by more than this factor leave a strength more than one maximum, of
# which the highest is sought in steps of the second factor.
_MANY_DECADES, _STEP_BETWEEN = 1e4, 10.0**0.5


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


@helper
def _next(x, slope, curvature, lower, upper, least, most):
    """The number that follows x, and the bracket of the zero of the slope, which x has narrowed.

    The slope f'(x) changes its sign at most once, and f''(x) may have any sign. Where a step would
    leave the bracket, a bound is tried once, and then the bracket is halved.
    """
    if slope >= 0.0:
        lower = x if x > least else np.nextafter(least, np.inf)
    if slope <= 0.0:
        upper = x if x < most else np.nextafter(most, 0.0)
    if lower >= upper:
        return x, lower, upper
    # The slope with respect to log x is x f', and its derivative is x (f' + x f'').
    decline = -(slope + x * curvature)
    step = slope / decline if decline > 0.0 else np.inf
    new = x * exp(step) if abs(step) < 50.0 else np.inf
    if not lower < new < upper:
        if slope > 0.0 and upper == most:
            new = most
        elif slope < 0.0 and lower == least:
            new = least
        else:
            new = np.sqrt(lower) * np.sqrt(upper)
    return new, lower, upper


@helper
def _log1p_ratio(x):
    """log(1 + x) / x, which is 1 at 0."""
    return np.log1p(x) / x if x != 0.0 else 1.0


@helper
def _terms_of_size(a, k, table):
    """The best expected size of a component if their strength is a, and m, dt/ds and e for it."""
    n, slope, certain, above, below, now = table[:, k]
    larger = a + n > (a + slope) * now
    m = certain if larger else 0.0
    rest_slope = max(slope - m / now, 0.0)
    e = above if larger else below
    # (n + a − m) / s = a + t / (1 + (s − now) e) is a quadratic equation.
    total, rest = a + n - m, max(1.0 - now * e, _ROUNDING)
    linear = a * rest + rest_slope - total * e
    root = np.sqrt(linear * linear + 4.0 * a * e * total * rest)
    if linear > 0.0:
        return 2.0 * total * rest / (linear + root), m, rest_slope, e
    return 0.5 * (root - linear) / (a * e), m, rest_slope, e


@called
def _gain_of_strength(a, table):
    """The mean terms of the bound for a strength, at the best sizes for it."""
    gain, k = 0.0, table.shape[1]
    for i in range(k):
        s, m, slope, e = _terms_of_size(a, i, table)
        now, total = table[5, i], a + table[0, i]
        change = s - now
        loss = m * log(s / now) + slope * change * _log1p_ratio(change * e)
        gain += log_gamma(total) - total * (log(total / s) - 1.0) - a * s - loss
    return a * log(a) - log_gamma(a) + gain / k


@called
def _slope_of_strength(a, table):
    """The derivative of :func:`_gain_of_strength`, and the derivative of that."""
    first, second, k = 0.0, 0.0, table.shape[1]
    for i in range(k):
        s, m, slope, e = _terms_of_size(a, i, table)
        now, total = table[5, i], a + table[0, i]
        decline = slope * e / (1.0 + (s - now) * e) ** 2
        of_total, of_total_second = _polygammas(total)
        first += of_total - log(total / s) - s
        second += of_total_second - 1.0 / total
        second += (1.0 / s - 1.0) ** 2 / ((total - m) / (s * s) - decline)
    own, own_second = _polygammas(a)
    return log(a) + 1.0 - own + first / k, 1.0 / a - own_second + second / k


@called
def _best_strength_of_sizes(grid, table, precision):
    """The strength of the sizes whose terms are in ``table``, near the best value of a grid."""
    best, highest = 0, -np.inf
    for i in range(grid.shape[0]):
        gain = _gain_of_strength(grid[i], table)
        if gain > highest:
            best, highest = i, gain
    least, most = grid[max(best - 1, 0)], grid[min(best + 1, grid.shape[0] - 1)]
    x, lower, upper = grid[best], least, most
    for _ in range(_STEPS):
        slope, curvature = _slope_of_strength(x, table)
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= precision * last:
            break
    return x


@kernel("values matrix float float out1 out2", dtypes=("float64",))
def strength_of_sizes(grid, table, old, precision, strength, sizes):
    """Find the strength a of the sizes s of components, and their best expected sizes.

    Parameters
    ----------
    grid : array of shape (n_grid,)
        Strengths in ascending order, near the best of which the search begins. The first and the
        last one are the bounds.
    table : array of shape (6, n_components)
        n, dt/ds now, m, e of larger and of smaller sizes, and the sizes now, of the terms
        n log s − t(s).
    old : float
        The strength now.
    precision : float
        The search ends with a step of this relative size.
    strength : array of shape (1,)
        Receives the best strength.
    sizes : array of shape (2, n_components)
        Receives the best expected sizes for this strength, and for the one now.
    """
    strength[0] = _best_strength_of_sizes(grid, table, precision)
    for k in range(table.shape[1]):
        sizes[0, k] = _terms_of_size(strength[0], k, table)[0]
        sizes[1, k] = _terms_of_size(old, k, table)[0]


@helper
def _change_of_determinant(y, k, limits, d):
    """The limit of the change of log|W⁻¹| at a factor y, and its first two derivatives by log y."""
    larger = y >= 1.0
    n = limits[0, k] if larger else limits[2, k]
    p = limits[1, k] if larger else limits[3, k]
    ones = d - n if larger else 0.0
    total = (1.0 - p) + y * p
    share = y * p / total
    value = ones * log(y) + n * log(total)
    return value, ones + n * share, n * share * (1.0 - share)


@called
def _best_factor(dof, table, limits, d, floor, largest, start):
    """The factor c of V, given ν₀, which maximises Σ ν₀ D log c − (ν₀ + N) log|c s V + S|."""
    least = min(floor, 1.0)
    x, lower, upper = min(max(start, least), largest), least, largest
    for _ in range(_STEPS):
        value, fall = 0.0, 0.0
        for k in range(table.shape[1]):
            rows, difference, growth = table[:, k]
            before = dof + difference
            after = before + rows
            _, first, second = _change_of_determinant(x * growth, k, limits, d)
            value += d * before - after * first
            fall += after * second
        new, lower, upper = _next(
            x, value / x, -(value + fall) / (x * x), lower, upper, least, largest
        )
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@called
def _polygammas_of_dof(dof, d):
    """Σ_i ψ((ν − i) / 2) for i = 0, …, D − 1, and its derivative."""
    value, derivative = 0.0, 0.0
    for i in range(d):
        own, second = _polygammas(0.5 * (dof - i))
        value += own
        derivative += second
    return value, 0.5 * derivative


@called
def _change_of_expectations(dof, c, before, table, limits, d, floor):
    """The mean change of E log|Λ| from q now, given ν₀ and c, and its derivative by ν₀."""
    k = table.shape[1]
    change, derivative, curvature, rest = 0.0, 0.0, 0.0, 0.0
    for i in range(k):
        rows, difference, growth = table[:, i]
        after = dof + difference + rows
        value, second = _polygammas_of_dof(after, d)
        grown, first, fall = _change_of_determinant(c * growth, i, limits, d)
        change += value - grown
        derivative += second
        curvature += after * fall
        rest += d - first
    derivative /= k
    if c > floor and curvature > 0.0:
        derivative += rest * rest / k / curvature
    return (change - before) / k, derivative


@kernel("values matrix matrix int float float out1", dtypes=("float64",))
def dof_and_scale(settings, table, limits, n_features, floor, largest, found):
    """Find ν₀ and the factor c by which the covariance prior is multiplied.

    Parameters
    ----------
    settings : array of shape (6,)
        ν₀ now; its bounds; log|V| minus the mean of D log s − log|W⁻¹| + D log 2; the degrees of
        freedom of the prior of V, which may be infinite; and the factor with which the search
        begins.
    table : array of shape (3, n_components)
        The numbers of rows, what is added to ν₀ for each component, and the factors of V in this
        step so far.
    limits : array of shape (4, n_components)
        Those of ``Determinants``.
    n_features : int
    floor, largest : float
        The bounds of c.
    found : array of shape (2,)
        Receives ν₀ and c.
    """
    d, n_components = n_features, table.shape[1]
    old, least, most, constant, eta, c = settings
    now = 0.0
    for k in range(n_components):
        now += _polygammas_of_dof(old + table[1, k] + table[0, k], d)[0]
    constant += now / n_components
    x, lower, upper = min(max(old, least), most), least, most
    for _ in range(_STEPS if least < most else 0):
        c = _best_factor(x, table, limits, d, floor, largest, c)
        slope, curvature = _change_of_expectations(x, c, now, table, limits, d, floor)
        # E log|Λ| − Σ ψ((ν + 1 − i) / 2) − D log 2 + log|c V|.
        value, second = _polygammas_of_dof(x, d)
        slope += constant + d * log(c) - value
        curvature -= second
        if eta < np.inf:
            total = eta + n_components * x
            value, second = _polygammas_of_dof(total, d)
            slope += value + d * log(2.0 / total)
            curvature += n_components * (second - d / total)
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    found[0] = x
    found[1] = _best_factor(x, table, limits, d, floor, largest, c)


@helper
def _dot(left, right):
    total = 0.0
    for j in range(left.shape[0]):
        total += left[j] * right[j]
    return total


@helper
def _slope_of_step(step, dof, counts, terms):
    """The derivative of −Σ (ν + N) log of a quadratic function of a step, and of that."""
    first, second = 0.0, 0.0
    for k in range(dof.shape[0]):
        if counts[k] > 0.0:
            rest, mixed, square = terms[0, k], terms[1, k], terms[2, k]
            total = rest + step * (step * square - 2.0 * mixed)
            own = 2.0 * (mixed - step * square) / total
            first += dof[k] * own
            second += dof[k] * (own * own - 2.0 * square / total)
    return first, second


@helper
def _value_of_step(step, dof, counts, terms):
    value = 0.0
    for k in range(dof.shape[0]):
        if counts[k] > 0.0:
            square, mixed = terms[2, k], terms[1, k]
            value -= dof[k] * log(terms[0, k] + step * (step * square - 2.0 * mixed))
    return value


@kernel("values vector matrix matrix matrix matrix matrix matrix float out1", dtypes=("float64",))
def step_of_mean(counts, dof, factors, moved, solved, along, of_along, means, precision, step):
    """Find how far the prior mean goes on the way to the best one for fixed precisions.

    Parameters
    ----------
    counts, dof : arrays of shape (n_components,)
        N, and the degrees of freedom of q.
    factors : array of shape (2, n_components)
        N (β₀ + N) / β₀, and the number by which y yᵀ is multiplied in M⁻¹ − W.
    moved, solved : arrays of shape (n_components, n_features)
        N (x̄ − m₀), and W times that.
    along, of_along : arrays of shape (n_components, n_features)
        N times the change of m₀, and W times that.
    means : array of shape (n_components, n_features)
        y.
    precision : float
        The search ends with a step of this relative size.
    step : array of shape (2,)
        The largest one in the second place; the first one receives the best, which is at least 1.
    """
    terms = np.zeros((3, counts.shape[0]))
    for k in range(counts.shape[0]):
        of_moved, of_change = _dot(moved[k], means[k]), _dot(along[k], means[k])
        factor = factors[1, k]
        terms[0, k] = factors[0, k] + _dot(moved[k], solved[k]) + factor * of_moved * of_moved
        terms[1, k] = _dot(moved[k], of_along[k]) + factor * of_moved * of_change
        terms[2, k] = _dot(along[k], of_along[k]) + factor * of_change * of_change
    least, most = 1.0, step[1]
    slope, curvature = _slope_of_step(1.0, dof, counts, terms)
    # For small steps the value is a quadratic function.
    x = 1.0 - slope / curvature if curvature < 0.0 else 1.0
    x, lower, upper = min(max(x, least), most), least, most
    for _ in range(_STEPS):
        slope, curvature = _slope_of_step(x, dof, counts, terms)
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= precision * last:
            break
    further = _value_of_step(x, dof, counts, terms) > _value_of_step(1.0, dof, counts, terms)
    step[0] = x if further else 1.0


@helper
def _value_of_strength(x, d, dof, counts, squares):
    value = 0.0
    for k in range(dof.shape[0]):
        n = counts[k]
        if n > 0.0:
            value += d * log(x / (x + n)) - dof[k] * np.log1p(x / (x + n) * squares[k] / n)
    return value


@kernel("values vector vector matrix matrix matrix int float out1", dtypes=("float64",))
def strength_of_means(counts, dof, factors, moved, solved, means, n_features, most, strength):
    """Find β₀ given the prior mean.

    Where the numbers of rows of components span many decades, the value can have two maxima. The
    search begins again at the highest of some numbers, if that is above where it has ended.

    The arguments are those of :func:`step_of_mean`, but for some.

    Parameters
    ----------
    factors : array of shape (n_components,)
        The number by which y yᵀ is multiplied in M⁻¹ − W.
    n_features : int
    most : float
        The largest β₀.
    strength : array of shape (2,)
        The one now, which is replaced by the best, and the least one.
    """
    squares, d = np.zeros(counts.shape[0]), n_features
    for k in range(counts.shape[0]):
        of_mean = _dot(moved[k], means[k])
        squares[k] = _dot(moved[k], solved[k]) + factors[k] * of_mean * of_mean
    least = strength[1]
    x, lower, upper = min(max(strength[0], least), most), least, most
    fewest, largest = np.inf, 0.0
    for k in range(counts.shape[0]):
        fewest = min(fewest, counts[k]) if counts[k] > 0.0 else fewest
        largest = max(largest, counts[k])
    n_starts = 2 if largest > _MANY_DECADES * fewest else 1
    for start in range(n_starts):
        for _ in range(_STEPS):
            slope, curvature = 0.0, 0.0
            for k in range(counts.shape[0]):
                n, square = counts[k], squares[k]
                if n > 0.0:
                    total, grown = x + n, n * n + x * (n + square)
                    loss = dof[k] * n * square / (grown * total)
                    slope += d * n / (x * total) - loss
                    curvature += loss * ((n + square) / grown + 1.0 / total)
                    curvature -= d * n * (x + total) / (x * total) ** 2
            new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
            last, x = x, new
            if abs(x - last) <= _PRECISION * last:
                break
        if start < n_starts - 1:
            highest, value = x, _value_of_strength(x, d, dof, counts, squares)
            other = least
            while other < most:
                of_other = _value_of_strength(other, d, dof, counts, squares)
                if of_other > value:
                    highest, value = other, of_other
                other *= _STEP_BETWEEN
            if highest == x:
                break
            lower, upper = max(highest / _STEP_BETWEEN, least), min(highest * _STEP_BETWEEN, most)
            x = highest
    strength[0] = x


@helper
def _solved_trace(small, matrix):
    """The trace of A⁻¹ B for matrices of two rows."""
    det = small[0, 0] * small[1, 1] - small[0, 1] * small[1, 0]
    total = small[1, 1] * matrix[0, 0] - small[0, 1] * matrix[1, 0]
    return (total + small[0, 0] * matrix[1, 1] - small[1, 0] * matrix[0, 1]) / det


@kernel("values matrix matrix matrix matrix out2", dtypes=("float64",))
def change_of_means(scales, moved, solved, turned, again, found):
    """Find how determinants and traces change with the prior of the means.

    Parameters
    ----------
    scales : array of shape (2 * n_components,)
        √(β₀ / ((β₀ + N) N)), the old ones and then the new ones.
    moved, solved, turned, again : arrays of shape (2 * n_components, n_features)
        u = N (x̄ − m₀), W u, V W u and W V W u, likewise.
    found : array of shape (3, n_components)
        Receives the change of log|W⁻¹|, what tr(V W) / V loses, and the change of tr(V W V W).
    """
    n_components = found.shape[1]
    small, lost, other = np.empty((2, 2)), np.empty((2, 2)), np.empty((2, 2))
    for k in range(n_components):
        for i in range(2):
            sign, a = (-1.0, 1.0)[i], i * n_components + k
            for j in range(2):
                b = j * n_components + k
                factor = sign * scales[a] * scales[b]
                small[i, j] = factor * _dot(moved[a], solved[b]) + (1.0 if i == j else 0.0)
                lost[i, j] = factor * _dot(solved[a], turned[b])
                other[i, j] = factor * _dot(turned[a], again[b])
        det = small[0, 0] * small[1, 1] - small[0, 1] * small[1, 0]
        found[0, k] = log(abs(det))
        of_other = _solved_trace(small, other)
        # C uᵀ W V W u
        one = (small[1, 1] * lost[0, 0] - small[0, 1] * lost[1, 0]) / det
        two = (small[1, 1] * lost[0, 1] - small[0, 1] * lost[1, 1]) / det
        three = (small[0, 0] * lost[1, 0] - small[1, 0] * lost[0, 0]) / det
        four = (small[0, 0] * lost[1, 1] - small[1, 0] * lost[0, 1]) / det
        found[1, k] = one + four
        found[2, k] = one * one + 2.0 * two * three + four * four - 2.0 * of_other


@kernel("rows vector vector float out1 out1", dtypes=("float64",))
def factors_of_entries(shares, before, after, largest, factors, rise):
    """Find the best factor of each entry of a diagonal V if it changed alone.

    Parameters
    ----------
    shares : array of shape (n_components, n_features)
        p.
    before, after : arrays of shape (n_components,)
        ν₀ and ν₀ + N.
    largest : float
        Factors are between its inverse and this number.
    factors : array of shape (n_features,)
        Receives them.
    rise : array of shape (1,)
        Receives the rise of the bound if the logarithms of all changes are halved.
    """
    n_components, total = before.shape[0], 0.0
    for k in range(n_components):
        total += before[k]
    rise[0] = 0.0
    for j in range(factors.shape[0]):
        x, lower, upper = 1.0, 1.0 / largest, largest
        for _ in range(_STEPS):
            first, second = total, 0.0
            for k in range(n_components):
                share = shares[k, j] * x / (1.0 + shares[k, j] * (x - 1.0))
                first -= after[k] * share
                second += after[k] * share * (share - 1.0)
            # By log x. The curvature is right where the slope is 0.
            new, lower, upper = _next(
                x, first / x, (second - first) / (x * x), lower, upper, 1.0 / largest, largest
            )
            last, x = x, new
            if abs(x - last) <= _PRECISION * last:
                break
        factors[j] = x
        gain = total * log(x)
        for k in range(n_components):
            gain -= after[k] * np.log1p(shares[k, j] * (x - 1.0))
        rise[0] += 0.5 * gain
