"""Normal-Wishart factors of Gaussian components of few columns, and the prior that they share.

With few columns, a pass over few rows takes less time than the interpreter needs for a hundred
operations on small arrays. So each of the three steps besides the visit is one kernel here: the
coefficients of the local step, the divergence of q from its prior, and a step of empirical Bayes,
after which the moments of the next q are known. Matrices of K components are stored one below the
other, in arrays of shape (n_components * n_features, n_features). The plain forms are in
``families/normal_wishart.py``, ``models/components/gaussian.py`` and ``_learned_gaussians.py``.

References
----------
Bishop (2006), Pattern Recognition and Machine Learning, Eqs. 2.157 and B.79 to B.82.
"""

from __future__ import annotations

import numpy as np

from ._compile import called, helper, kernel
from ._math import digamma, log, log_gamma
from .empirical_bayes import _PRECISION, _polygammas
from .gaussian_mixture import _best_strength_of_sizes, _next, _polygammas_of_dof, _terms_of_size

_LOG_2, _LOG_PI, _LOG_2PI = np.log(2.0), np.log(np.pi), np.log(2.0 * np.pi)
# The search for the degrees of freedom ends after so many steps.
_STEPS = 200


@called
def _invert(matrix):
    """Replace a matrix by its inverse and return its log-determinant; NaN if it is not positive.

    The pivots of Gauss-Jordan elimination are those of the Cholesky factorisation.
    """
    d, log_det = matrix.shape[0], 0.0
    for k in range(d):
        own = matrix[k]
        pivot = own[k]
        if not 0.0 < pivot < np.inf:
            return np.nan
        log_det += log(pivot)
        for i in range(d):
            if i != k:
                row = matrix[i]
                factor = row[k] / pivot
                for j in range(d):
                    row[j] -= factor * own[j]
                row[k] = -factor
        for j in range(d):
            own[j] /= pivot
        own[k] = 1.0 / pivot
    for i in range(d):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = 0.5 * (matrix[i, j] + matrix[j, i])
    return log_det


@called
def _moments_of(dof, strength, natural_mean, scatter, precision):
    """Write E Λ = ν W to ``precision`` and return E log|Λ|; NaN if W⁻¹ is not positive."""
    d, digammas = natural_mean.shape[0], 0.0
    for i in range(d):
        factor = natural_mean[i] / strength
        for j in range(d):
            precision[i, j] = scatter[i, j] - factor * natural_mean[j]
        digammas += digamma(0.5 * (dof - i))
    log_det = _invert(precision)
    for i in range(d):
        for j in range(d):
            precision[i, j] *= dof
    return digammas + d * _LOG_2 - log_det


@helper
def _dot(left, right):
    total = 0.0
    for j in range(left.shape[0]):
        total += left[j] * right[j]
    return total


@kernel("values vector matrix matrix out2 out1", dtypes=("float64",))
def moments(dof, strength, natural_mean, scatter, precision, log_det):
    """Compute E Λ and E log|Λ| of all components.

    Parameters
    ----------
    dof, strength : arrays of shape (n_components,)
        ν and β.
    natural_mean : array of shape (n_components, n_features)
        β m.
    scatter : array of shape (n_components * n_features, n_features)
    precision : array of the same shape
        Receives E Λ.
    log_det : array of shape (n_components,)
        Receives E log|Λ|, or NaN where W⁻¹ is not positive definite.
    """
    d = natural_mean.shape[1]
    for k in range(dof.shape[0]):
        part = slice(k * d, (k + 1) * d)
        log_det[k] = _moments_of(
            dof[k], strength[k], natural_mean[k], scatter[part], precision[part]
        )


@kernel("rows float out1 out2 out2", dtypes=("float64",))
def statistics(sums, noise, counts, first, scatter):
    """Take statistics apart.

    Parameters
    ----------
    sums : array of shape (n_components, n_features * (n_features + 1) // 2 + n_features + 1)
        Σ R x_i x_j with i ≤ j, Σ R x and Σ R.
    noise : float
        What the scatter has for each row besides.
    counts : array of shape (n_components,)
    first : array of shape (n_components, n_features)
    scatter : array of shape (n_components * n_features, n_features)
    """
    d = first.shape[1]
    for k in range(counts.shape[0]):
        own, p = sums[k], 0
        counts[k] = own[own.shape[0] - 1]
        for i in range(d):
            first[k, i] = own[own.shape[0] - 1 - d + i]
            for j in range(i, d):
                scatter[k * d + i, j] = scatter[k * d + j, i] = own[p]
                p += 1
            scatter[k * d + i, i] += noise * counts[k]


@kernel("values matrix matrix vector vector float out1 out2", dtypes=("float64",))
def coefficients(strength, mean, precision, log_det, log_weights, noise, constants, found):
    """Compute the coefficients of E log p(x, z = k) in quadratic features.

    Parameters
    ----------
    strength : array of shape (n_components,)
        β.
    mean : array of shape (n_components, n_features)
    precision : array of shape (n_components * n_features, n_features)
        E Λ.
    log_det, log_weights : arrays of shape (n_components,)
        E log|Λ| and E log π.
    noise : float
        The variance of the noise of rows.
    constants : array of shape (n_components,)
        Receives E log π + (E log|Λ| − D/β − noise tr E Λ) / 2.
    found : array of shape (n_components, n_features * (n_features + 1) // 2 + n_features + 1)
        Receives the coefficients of x_i x_j with i ≤ j, of x and of 1.
    """
    d = mean.shape[1]
    for k in range(strength.shape[0]):
        own, trace, distance, p = found[k], 0.0, 0.0, 0
        first = own.shape[0] - d - 1
        for i in range(d):
            row = precision[k * d + i]
            trace += row[i]
            own[p] = -0.5 * row[i]
            for j in range(i + 1, d):
                own[p + j - i] = -row[j]
            p += d - i
            linear = _dot(row, mean[k])
            own[first + i] = linear
            distance += linear * mean[k, i]
        constants[k] = log_weights[k] + 0.5 * (log_det[k] - d / strength[k] - noise * trace)
        own[first + d] = constants[k] - 0.5 * (d * _LOG_2PI + distance)


@helper
def _log_normalizer(dof, strength, log_det, d):
    """The log-normaliser of one component, given log|W⁻¹|."""
    total = 0.5 * d * (_LOG_2PI - log(strength)) + 0.5 * dof * (d * _LOG_2 - log_det)
    for i in range(d):
        total += log_gamma(0.5 * (dof - i))
    return total + 0.25 * d * (d - 1) * _LOG_PI


@kernel(
    "values vector matrix matrix vector vector vector matrix matrix vector out1",
    dtypes=("float64",),
)
def divergence(
    dof,
    strength,
    mean,
    precision,
    log_det,
    prior_dof,
    prior_strength,
    prior_mean,
    scale,
    factors,
    found,
):
    """Compute the divergence of q from a prior whose inverse scales are multiples of one matrix.

    Parameters
    ----------
    dof, strength : arrays of shape (n_components,)
    mean : array of shape (n_components, n_features)
    precision : array of shape (n_components * n_features, n_features)
        E Λ under q.
    log_det : array of shape (n_components,)
        E log|Λ| under q.
    prior_dof, prior_strength, prior_mean : arrays
        ν, β and m of the prior.
    scale : array of shape (n_features, n_features)
    factors : array of shape (n_components,)
        W⁻¹ of the prior is ``scale`` multiplied by these.
    found : array of shape (2,)
        Receives the divergence in nats, and by how many observations the strongest prior counts.
    """
    d, total, strongest = mean.shape[1], 0.0, 0.0
    inverse, shift = scale.copy(), np.empty(d)
    log_det_of_scale = _invert(inverse)
    for k in range(dof.shape[0]):
        trace, digammas = 0.0, 0.0
        for i in range(d):
            shift[i] = mean[k, i] - prior_mean[k, i]
        distance, size = 0.0, 0.0
        for i in range(d):
            row = precision[k * d + i]
            trace += _dot(row, scale[i])
            distance += shift[i] * _dot(row, shift)
            size += prior_mean[k, i] * _dot(inverse[i], prior_mean[k])
            digammas += digamma(0.5 * (dof[k] - i))
        q_dof, p_dof, q_beta, p_beta = dof[k], prior_dof[k], strength[k], prior_strength[k]
        strongest = max(strongest, p_dof, p_dof * p_beta * size / factors[k])
        total += 0.5 * (p_beta * distance - d * (q_beta - p_beta) / q_beta)
        # E tr(W⁻¹ Λ) of q is ν D.
        total += 0.5 * ((q_dof - p_dof) * log_det[k] - q_dof * d + factors[k] * trace)
        total -= _log_normalizer(q_dof, q_beta, digammas + d * _LOG_2 - log_det[k], d)
        total += _log_normalizer(p_dof, p_beta, log_det_of_scale + d * log(factors[k]), d)
    found[0], found[1] = total, strongest


@called
def _best_mean(precision, mean, prior_strength, found):
    """The mean of the component means, weighted by their prior precisions; False if it fails."""
    d = mean.shape[1]
    weights, total = np.zeros((d, d)), np.zeros(d)
    for k in range(mean.shape[0]):
        for i in range(d):
            row, target = precision[k * d + i], weights[i]
            for j in range(d):
                target[j] += prior_strength[k] * row[j]
            total[i] += prior_strength[k] * _dot(row, mean[k])
    positive = np.isfinite(_invert(weights))
    for i in range(d):
        found[i] = _dot(weights[i], total)
    return positive


@called
def _best_strength(precision, mean, strength, center, least, most):
    """The inverse mean square of the distances from the prior mean."""
    d, total = mean.shape[1], 0.0
    difference = np.empty(d)
    for k in range(mean.shape[0]):
        for i in range(d):
            difference[i] = mean[k, i] - center[i]
        total += d / strength[k]
        for i in range(d):
            total += difference[i] * _dot(precision[k * d + i], difference)
    return min(max(mean.shape[0] * d / total, least), most)


@called
def _is_above(scale, floor, reference):
    """Return whether the difference of a matrix and a multiple of another one is positive."""
    d = scale.shape[0]
    difference = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            difference[i, j] = scale[i, j] - floor * reference[i, j]
    return np.isfinite(_invert(difference))


@called
def _learn_sizes(precision, scale, dof, grid, precision_of_strength, sizes):
    """Find the strength a of the sizes and their distributions, of mean 1 after a step of V.

    ``sizes`` has the shapes and the rates now, which are replaced. Returned are a, the mean by
    which V is to be multiplied, and the mean of E log s.
    """
    n_components, d = sizes.shape[1], scale.shape[0]
    table = np.zeros((6, n_components))
    for k in range(n_components):
        trace = 0.0
        for i in range(d):
            trace += _dot(precision[k * d + i], scale[i])
        table[0, k], table[1, k] = 0.5 * d * dof, 0.5 * trace
        table[5, k] = sizes[0, k] / sizes[1, k]
    a = _best_strength_of_sizes(grid, table, precision_of_strength)
    mean, mean_log = 0.0, 0.0
    for k in range(n_components):
        size = max(_terms_of_size(a, k, table)[0], 1e-300)
        sizes[0, k] = a + table[0, k]
        sizes[1, k] = sizes[0, k] / size
        mean += size / n_components
    for k in range(n_components):
        sizes[1, k] *= mean
        mean_log += (digamma(sizes[0, k]) - log(sizes[1, k])) / n_components
    return a, mean, mean_log


@called
def _best_dof(old, least, most, constant, shift, eta, n_matrices, d):
    """ν₀ where E log|Λ| − D log 2 + log|W₀⁻¹| = Σ ψ((ν₀ − i) / 2), with W₀⁻¹ = (ν₀ − shift) M.

    ``constant`` is E log|Λ| − D log 2 + log|M|.
    """
    x, lower, upper = min(max(old, least), most), least, most
    for _ in range(_STEPS if least < most else 0):
        value, second = _polygammas_of_dof(x, d)
        slope = constant + d * log(x - shift) - value
        curvature = d / (x - shift) - second
        if eta < np.inf:
            # E log|V| is in the place of log|E V|.
            total = eta + n_matrices * x
            value, second = _polygammas_of_dof(total, d)
            slope += value + d * log(2.0 / total)
            curvature += n_matrices * (second - d / total)
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@called
def _learn_scale(precision, factors, limits, log_det, scale, reference, smallest, eta, shape):
    """Find ν₀ and W₀⁻¹, which replaces ``scale``; ν₀ is NaN if that would be too small.

    ``limits`` has ν₀ now and its bounds, ``factors`` the sizes of the components, and ``shape`` the
    smallest multiple of ``reference`` and whether W₀⁻¹ is a matrix without a prior.
    """
    d, n_components = scale.shape[0], factors.shape[0]
    floor, is_matrix = shape
    mean, shift = np.zeros((d, d)), 0.0
    for k in range(n_components):
        for i in range(d):
            row, target = precision[k * d + i], mean[i]
            for j in range(d):
                target[j] += factors[k] * row[j] / n_components
    if eta < np.inf:
        shift = -eta / n_components
        for i in range(d):
            mean[i, i] -= shift / scale[i, i]
    elif not is_matrix:
        for i in range(d):
            for j in range(d):
                if i != j:
                    mean[i, j] = 0.0
    constant = log_det - d * _LOG_2 - _invert(mean)
    if not np.isfinite(constant):
        return np.nan
    old, least, most = limits
    dof = _best_dof(old, least, most, constant, shift, eta, n_components, d)
    for i in range(d):
        for j in range(d):
            scale[i, j] = (dof - shift) * mean[i, j]
    return dof if _is_above(scale, floor / smallest, reference) else np.nan


@helper
def _write_prior(strength, center, factors, scale, dof, prior):
    """Write λ₀ of all components."""
    mean_precision, natural_mean, scatter, prior_dof = prior
    d, root = scale.shape[0], np.sqrt(strength)
    for k in range(factors.shape[0]):
        mean_precision[k], prior_dof[k] = strength, dof
        for i in range(d):
            natural_mean[k, i] = strength * center[i]
            row = scatter[k * d + i]
            for j in range(d):
                row[j] = factors[k] * scale[i, j] + root * center[i] * (root * center[j])


@helper
def _follow(q, old, new, moved):
    """Write q plus the change of its prior, and return whether all but the scatter is valid."""
    inside, d = True, q[1].shape[1]
    for k in range(q[0].shape[0]):
        moved[0][k] = q[0][k] + (new[0][k] - old[0][k])
        moved[3][k] = q[3][k] + (new[3][k] - old[3][k])
        inside = inside and 0.0 < moved[0][k] < np.inf and d - 1 < moved[3][k] < np.inf
        for i in range(d):
            moved[1][k, i] = q[1][k, i] + (new[1][k, i] - old[1][k, i])
            inside = inside and np.isfinite(moved[1][k, i])
            row = k * d + i
            for j in range(d):
                moved[2][row, j] = q[2][row, j] + (new[2][row, j] - old[2][row, j])
    return inside


@kernel(
    "values vector matrix matrix vector vector matrix matrix vector vector matrix "
    "out1 out1 out2 out2 out1 out1 out2 out2 out1 out1 out2 out2 out2 out1",
    dtypes=("float64",),
)
def learned_prior(
    dof,
    strength,
    natural_mean,
    scatter,
    prior_dof,
    prior_strength,
    prior_natural_mean,
    prior_scatter,
    settings,
    grid,
    reference,
    found,
    center,
    scale,
    sizes,
    new_dof,
    new_strength,
    new_natural_mean,
    new_scatter,
    moved_dof,
    moved_strength,
    moved_natural_mean,
    moved_scatter,
    precision,
    log_det,
):
    """Make a step of empirical Bayes, and let q follow the prior.

    Parameters
    ----------
    dof, strength, natural_mean, scatter : arrays
        The natural parameters of q.
    prior_dof, prior_strength, prior_natural_mean, prior_scatter : arrays
        Those of its prior, whose mean is the same for all components.
    settings : array of shape (9,)
        ν₀ now and its smallest value; β₀ now and its smallest value; the number of rows where V is
        a diagonal or has a prior, and else NaN; by how many times the rows ν₀ exceeds D at most;
        the degrees of freedom of the prior of V, or infinity; the smallest multiple of
        ``reference``; and the relative precision of the strength of sizes.
    grid : array of shape (n_grid,)
        Strengths of sizes with which the search begins.
    reference : array of shape (n_features, n_features)
    found : array of shape (4,)
        Receives whether the step has succeeded (1) or has to be made with more care (0), β₀, ν₀,
        and the strength of sizes.
    center : array of shape (n_features,)
        The prior mean relative to the center of the data, which is replaced.
    scale : array of shape (n_features, n_features)
        V, which is replaced.
    sizes : array of shape (2, n_components) or (2, 0)
        The shapes and rates of the sizes of components, which are replaced; empty without sizes.
    new_dof, new_strength, new_natural_mean, new_scatter : arrays
        Receive the natural parameters of the new prior.
    moved_dof, moved_strength, moved_natural_mean, moved_scatter : arrays
        Receive those of q with the new prior.
    precision, log_det : arrays
        Receive its moments (:func:`moments`).
    """
    n_components, d = natural_mean.shape
    found[0] = 0.0
    mean, rows_each, mean_log_det = np.empty((n_components, d)), 0.0, 0.0
    for k in range(n_components):
        part = slice(k * d, (k + 1) * d)
        own = _moments_of(dof[k], strength[k], natural_mean[k], scatter[part], precision[part])
        mean_log_det += own / n_components
        rows_each += (dof[k] - prior_dof[k]) / n_components
        for i in range(d):
            mean[k, i] = natural_mean[k, i] / strength[k]
    rows_each, is_matrix = max(rows_each, 0.0), np.isnan(settings[4])
    n_rows = max(n_components * rows_each, 1.0) if is_matrix else settings[4]
    if not (_best_mean(precision, mean, prior_strength, center) and np.isfinite(mean_log_det)):
        return
    least, most = settings[3], max(n_rows, settings[2])
    found[1] = _best_strength(precision, mean, strength, center, least, most)
    factors, smallest = np.ones(n_components), 1.0
    if sizes.shape[1] > 0:
        how = grid, settings[8]
        a, size, mean_log = _learn_sizes(precision, scale, settings[0], *how, sizes)
        found[3] = a
        mean_log_det += d * mean_log
        for k in range(n_components):
            factors[k] = sizes[0, k] / sizes[1, k]
        smallest = factors.min()
        for i in range(d):
            for j in range(d):
                scale[i, j] *= size
        if not _is_above(scale, settings[7] / smallest, reference):
            return
    old, least = settings[0], settings[1]
    excess = rows_each if is_matrix else settings[5] * n_rows
    limits = old, min(least, old), max(d + excess, least, old)
    how = mean_log_det, scale, reference, smallest, settings[6], (settings[7], is_matrix)
    found[2] = _learn_scale(precision, factors, limits, *how)
    if np.isnan(found[2]):
        return
    new = new_strength, new_natural_mean, new_scatter, new_dof
    moved = moved_strength, moved_natural_mean, moved_scatter, moved_dof
    _write_prior(found[1], center, factors, scale, found[2], new)
    q = strength, natural_mean, scatter, dof
    before = prior_strength, prior_natural_mean, prior_scatter, prior_dof
    inside = _follow(q, before, new, moved)
    for k in range(n_components):
        part = slice(k * d, (k + 1) * d)
        own = moved_dof[k], moved_strength[k], moved_natural_mean[k], moved_scatter[part]
        log_det[k] = _moments_of(*own, precision[part])
        inside = inside and np.isfinite(log_det[k])
    found[0] = 1.0 if inside else 0.0
