"""Normal-Wishart factors of Gaussian components of few columns, and the prior that they share.

With few columns, a pass over few rows takes less time than the interpreter needs for a hundred
operations on small arrays. So each of the three steps besides the visit is one kernel here: the
coefficients of the local step, the divergence of q from its prior, and a step of empirical Bayes,
after which the moments of the next q are known. Matrices of K components are stored one below the
other, in arrays of shape (n_components * n_lines, n_features): a full matrix has n_features lines,
and a diagonal one has one line, which is its diagonal. The plain forms are in
``families/normal_wishart.py``, ``models/components/gaussian.py`` and ``_learned_gaussians.py``.

References
----------
Bishop (2006), Pattern Recognition and Machine Learning, Eqs. 2.157 and B.79 to B.82.
"""

from __future__ import annotations

import numpy as np

from ._compile import called, helper, kernel
from ._math import digamma, log, log_gamma
from .empirical_bayes import _PRECISION
from .gaussian_mixture import _best_strength_of_sizes, _next, _polygammas_of_dof, _terms_of_size

_LOG_2, _LOG_PI, _LOG_2PI = np.log(2.0), np.log(np.pi), np.log(2.0 * np.pi)
# The search for the degrees of freedom ends after so many steps.
_STEPS = 200


@called
def _invert(matrices, k, n_lines):
    """Replace matrix k by its inverse and return its log-determinant; NaN if it is not positive.

    The pivots of Gauss-Jordan elimination are those of the Cholesky factorisation.
    """
    d, log_det, first = matrices.shape[1], 0.0, k * n_lines
    for m in range(d):
        own = matrices[first if n_lines == 1 else first + m]
        pivot = own[m]
        if not 0.0 < pivot < np.inf:
            return np.nan
        log_det += log(pivot)
        if n_lines == 1:
            own[m] = 1.0 / pivot
            continue
        for i in range(d):
            if i != m:
                row = matrices[first + i]
                factor = row[m] / pivot
                for j in range(d):
                    row[j] -= factor * own[j]
                row[m] = -factor
        for j in range(d):
            own[j] /= pivot
        own[m] = 1.0 / pivot
    for i in range(n_lines):
        for j in range(i):
            mean = 0.5 * (matrices[first + i, j] + matrices[first + j, i])
            matrices[first + i, j] = matrices[first + j, i] = mean
    return log_det


@called
def _moments_of(k, dof, strength, natural_mean, scatter, precision):
    """Write E Λ = ν W of component k and return E log|Λ|; NaN if W⁻¹ is not positive definite."""
    d, n_lines, digammas = natural_mean.shape[1], scatter.shape[0] // dof.shape[0], 0.0
    for line in range(n_lines):
        row, of_scatter = precision[k * n_lines + line], scatter[k * n_lines + line]
        for j in range(d):
            other = natural_mean[k, j if n_lines == 1 else line] / strength[k]
            row[j] = of_scatter[j] - other * natural_mean[k, j]
    for i in range(d):
        digammas += digamma(0.5 * (dof[k] - i))
    log_det = _invert(precision, k, n_lines)
    for line in range(n_lines):
        row = precision[k * n_lines + line]
        for j in range(d):
            row[j] *= dof[k]
    return digammas + d * _LOG_2 - log_det


@helper
def _dot(left, right):
    total = 0.0
    for j in range(left.shape[0]):
        total += left[j] * right[j]
    return total


@helper
def _product(matrices, k, n_lines, i, vector):
    """Entry i of the product of matrix k with a vector."""
    if n_lines == 1:
        return matrices[k, i] * vector[i]
    return _dot(matrices[k * n_lines + i], vector)


@helper
def _trace(matrices, k, scale):
    """The trace of the product of matrix k with another symmetric one."""
    total = 0.0
    for line in range(scale.shape[0]):
        total += _dot(matrices[k * scale.shape[0] + line], scale[line])
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
    scatter : array of shape (n_components * n_lines, n_features)
    precision : array of the same shape
        Receives E Λ.
    log_det : array of shape (n_components,)
        Receives E log|Λ|, or NaN where W⁻¹ is not positive definite.
    """
    for k in range(dof.shape[0]):
        log_det[k] = _moments_of(k, dof, strength, natural_mean, scatter, precision)


@kernel(
    "values vector matrix matrix vector vector matrix matrix vector out1 out1 out2 out2 out2",
    dtypes=("float64",),
)
def extended(
    dof,
    strength,
    natural_mean,
    scatter,
    of_dof,
    of_strength,
    of_mean,
    of_scatter,
    prior_strength,
    new_dof,
    new_strength,
    new_mean,
    new_scatter,
    work,
):
    """Add a change to natural parameters, but for components that would leave their domain.

    Nor do those change of which less than half of what β adds to its prior would remain.

    Parameters
    ----------
    dof, strength, natural_mean, scatter : arrays
        The natural parameters.
    of_dof, of_strength, of_mean, of_scatter : arrays
        Their changes.
    prior_strength : array of shape (n_components,)
        β of the prior.
    new_dof, new_strength, new_mean, new_scatter : arrays
        Receive the result.
    work : array of shape (n_lines, n_features)
        Memory for what is computed on the way.
    """
    n_components, d = natural_mean.shape
    n_lines = scatter.shape[0] // n_components
    for k in range(n_components):
        beta, nu = strength[k] + of_strength[k], dof[k] + of_dof[k]
        inside = 0.0 < beta < np.inf and d - 1 < nu < np.inf
        inside = inside and beta >= 0.5 * (prior_strength[k] + strength[k])
        for i in range(d):
            new_mean[k, i] = natural_mean[k, i] + of_mean[k, i]
        for line in range(n_lines):
            row, own = k * n_lines + line, work[line]
            for j in range(d):
                new_scatter[row, j] = scatter[row, j] + of_scatter[row, j]
                other = new_mean[k, j if n_lines == 1 else line] / beta
                own[j] = new_scatter[row, j] - other * new_mean[k, j]
        log_det = _invert(work, 0, n_lines) if inside else np.nan
        inside = -np.inf < log_det < np.inf
        new_dof[k], new_strength[k] = nu if inside else dof[k], beta if inside else strength[k]
        if not inside:
            for i in range(d):
                new_mean[k, i] = natural_mean[k, i]
            for line in range(k * n_lines, (k + 1) * n_lines):
                for j in range(d):
                    new_scatter[line, j] = scatter[line, j]


@kernel("rows float out1 out2 out2", dtypes=("float64",))
def statistics(sums, noise, counts, first, scatter):
    """Take statistics apart.

    Parameters
    ----------
    sums : array of shape (n_components, n_products + n_features + 1)
        Σ R x_i x_j with i ≤ j, or i = j where matrices are diagonal, Σ R x and Σ R.
    noise : float
        What the scatter has for each row besides.
    counts : array of shape (n_components,)
    first : array of shape (n_components, n_features)
    scatter : array of shape (n_components * n_lines, n_features)
    """
    d, n_lines = first.shape[1], scatter.shape[0] // counts.shape[0]
    for k in range(counts.shape[0]):
        own, p, start = sums[k], 0, k * n_lines
        counts[k] = own[own.shape[0] - 1]
        for i in range(d):
            first[k, i] = own[own.shape[0] - 1 - d + i]
            if n_lines == 1:
                scatter[k, i] = own[i] + noise * counts[k]
                continue
            for j in range(i, d):
                scatter[start + i, j] = scatter[start + j, i] = own[p]
                p += 1
            scatter[start + i, i] += noise * counts[k]


@kernel("values matrix matrix vector vector float out1 out2", dtypes=("float64",))
def coefficients(strength, mean, precision, log_det, log_weights, noise, constants, found):
    """Compute the coefficients of E log p(x, z = k) in quadratic features.

    Parameters
    ----------
    strength : array of shape (n_components,)
        β.
    mean : array of shape (n_components, n_features)
    precision : array of shape (n_components * n_lines, n_features)
        E Λ.
    log_det, log_weights : arrays of shape (n_components,)
        E log|Λ| and E log π.
    noise : float
        The variance of the noise of rows.
    constants : array of shape (n_components,)
        Receives E log π + (E log|Λ| − D/β − noise tr E Λ) / 2.
    found : array of shape (n_components, n_products + n_features + 1)
        Receives the coefficients of x_i x_j with i ≤ j, or i = j where matrices are diagonal, of x
        and of 1.
    """
    d, n_lines = mean.shape[1], precision.shape[0] // strength.shape[0]
    for k in range(strength.shape[0]):
        own, trace, distance, p = found[k], 0.0, 0.0, 0
        first = own.shape[0] - d - 1
        for i in range(d):
            row = precision[k if n_lines == 1 else k * d + i]
            trace += row[i]
            own[p] = -0.5 * row[i]
            p += 1
            for j in range(i + 1, d if n_lines > 1 else 0):
                own[p] = -row[j]
                p += 1
            linear = _product(precision, k, n_lines, i, mean[k])
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
    "values vector matrix matrix vector vector vector matrix matrix vector out1 out2",
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
    work,
):
    """Compute the divergence of q from a prior whose inverse scales are multiples of one matrix.

    Parameters
    ----------
    dof, strength : arrays of shape (n_components,)
    mean : array of shape (n_components, n_features)
    precision : array of shape (n_components * n_lines, n_features)
        E Λ under q.
    log_det : array of shape (n_components,)
        E log|Λ| under q.
    prior_dof, prior_strength, prior_mean : arrays
        ν, β and m of the prior.
    scale : array of shape (n_lines, n_features)
    factors : array of shape (n_components,)
        W⁻¹ of the prior is ``scale`` multiplied by these.
    found : array of shape (2,)
        Receives the divergence in nats, and by how many observations the strongest prior counts.
    work : array of shape (n_lines + 1, n_features)
        Memory for what is computed on the way.
    """
    (n_lines, d), total, strongest = scale.shape, 0.0, 0.0
    shift = work[n_lines]
    for line in range(n_lines):
        for j in range(d):
            work[line, j] = scale[line, j]
    log_det_of_scale = _invert(work, 0, n_lines)
    for k in range(dof.shape[0]):
        for i in range(d):
            shift[i] = mean[k, i] - prior_mean[k, i]
        distance, size, digammas, trace = 0.0, 0.0, 0.0, _trace(precision, k, scale)
        for i in range(d):
            distance += shift[i] * _product(precision, k, n_lines, i, shift)
            size += prior_mean[k, i] * _product(work, 0, n_lines, i, prior_mean[k])
            digammas += digamma(0.5 * (dof[k] - i))
        q_dof, p_dof, q_beta, p_beta = dof[k], prior_dof[k], strength[k], prior_strength[k]
        strongest = max(strongest, max(p_dof, p_dof * p_beta * size / factors[k]))
        total += 0.5 * (p_beta * distance - d * (q_beta - p_beta) / q_beta)
        # E tr(W⁻¹ Λ) of q is ν D.
        total += 0.5 * ((q_dof - p_dof) * log_det[k] - q_dof * d + factors[k] * trace)
        total -= _log_normalizer(q_dof, q_beta, digammas + d * _LOG_2 - log_det[k], d)
        total += _log_normalizer(p_dof, p_beta, log_det_of_scale + d * log(factors[k]), d)
    found[0], found[1] = total, strongest


@called
def _best_mean(precision, mean, prior_strength, center, work):
    """Write the mean of the component means, weighted by their prior precisions, to ``center``.

    The log-determinant of the sum of these is returned, or NaN if it is not positive definite.
    """
    n_components, d = mean.shape
    n_lines = precision.shape[0] // n_components
    total = work[n_lines]
    for line in range(n_lines):
        target = work[line]
        for j in range(d):
            target[j] = 0.0
        for k in range(n_components):
            row = precision[k * n_lines + line]
            for j in range(d):
                target[j] += prior_strength[k] * row[j]
    for i in range(d):
        total[i] = 0.0
        for k in range(n_components):
            total[i] += prior_strength[k] * _product(precision, k, n_lines, i, mean[k])
    log_det = _invert(work, 0, n_lines)
    for i in range(d):
        center[i] = _product(work, 0, n_lines, i, total)
    return log_det


@called
def _mean_square(precision, mean, strength, center, difference):
    """The sum of E (μ − m₀)ᵀ Λ (μ − m₀) over the components."""
    n_components, d = mean.shape
    n_lines, total = precision.shape[0] // n_components, 0.0
    for k in range(n_components):
        for i in range(d):
            difference[i] = mean[k, i] - center[i]
        total += d / strength[k]
        for i in range(d):
            total += difference[i] * _product(precision, k, n_lines, i, difference)
    return total


@called
def _is_above(scale, floor, reference, work):
    """Return whether the difference of a matrix and a multiple of another one is positive."""
    for line in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            work[line, j] = scale[line, j] - floor * reference[line, j]
    log_det = _invert(work, 0, scale.shape[0])
    return -np.inf < log_det < np.inf


@called
def _learn_sizes(precision, scale, dof, grid, precision_of_strength, sizes, table):
    """Find the strength a of the sizes and their distributions, of mean 1 after a step of V.

    ``sizes`` has the shapes and the rates now, which are replaced. Returned are a, the mean by
    which V is to be multiplied, and the mean of E log s.
    """
    n_components, d = sizes.shape[1], scale.shape[1]
    for k in range(n_components):
        table[0, k], table[1, k] = 0.5 * d * dof, 0.5 * _trace(precision, k, scale)
        table[2, k] = table[3, k] = table[4, k] = 0.0
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
def _learn_scale(precision, factors, old, least, most, log_det, scale, eta, is_matrix, work):
    """Find ν₀, which is returned, and W₀⁻¹, which replaces ``scale``; ν₀ is NaN if it fails.

    ``old``, ``least`` and ``most`` are ν₀ now and its bounds, ``factors`` the sizes of the
    components, and ``is_matrix`` says whether W₀⁻¹ is a matrix without a prior.
    """
    (n_lines, d), n_components = scale.shape, factors.shape[0]
    shift = -eta / n_components if eta < np.inf else 0.0
    for line in range(n_lines):
        target = work[line]
        for j in range(d):
            target[j] = 0.0
        for k in range(n_components):
            row, factor = precision[k * n_lines + line], factors[k] / n_components
            for j in range(d):
                target[j] += factor * row[j]
        if eta < np.inf:
            target[line] -= shift / scale[line, line]
        elif not is_matrix and n_lines > 1:
            for j in range(d):
                target[j] = target[j] if line == j else 0.0
    constant = log_det - d * _LOG_2 - _invert(work, 0, n_lines)
    if not -np.inf < constant < np.inf:
        return np.nan
    dof = _best_dof(old, least, most, constant, shift, eta, n_components, d)
    for line in range(n_lines):
        for j in range(d):
            scale[line, j] = (dof - shift) * work[line, j]
    return dof


@called
def _write_prior(
    strength, center, factors, scale, dof, new_dof, new_strength, natural_mean, scatter
):
    """Write λ₀ of all components."""
    (n_lines, d), root = scale.shape, np.sqrt(strength)
    for k in range(factors.shape[0]):
        new_strength[k], new_dof[k] = strength, dof
        for i in range(d):
            natural_mean[k, i] = strength * center[i]
        for line in range(n_lines):
            row = scatter[k * n_lines + line]
            for j in range(d):
                other = root * center[j if n_lines == 1 else line]
                row[j] = factors[k] * scale[line, j] + other * (root * center[j])


@called
def _follow(q, old, new, moved):
    """Write q plus the change of its prior, each of them a tuple of the four natural parameters."""
    for k in range(q[0].shape[0]):
        moved[0][k] = q[0][k] + (new[0][k] - old[0][k])
        moved[1][k] = q[1][k] + (new[1][k] - old[1][k])
        for i in range(q[2].shape[1]):
            moved[2][k, i] = q[2][k, i] + (new[2][k, i] - old[2][k, i])
    for i in range(q[3].shape[0]):
        for j in range(q[3].shape[1]):
            moved[3][i, j] = q[3][i, j] + (new[3][i, j] - old[3][i, j])


@kernel(
    "values vector matrix matrix vector vector matrix matrix vector vector matrix "
    "out1 out1 out2 out2 out1 out1 out2 out2 out1 out1 out2 out2 out2 out2 out1 out1 out2 out2",
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
    mean,
    precision,
    log_det,
    factors,
    table,
    work,
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
    reference : array of shape (n_lines, n_features)
    found : array of shape (4,)
        Receives whether the step has succeeded (1) or has to be made with more care (0), β₀, ν₀,
        and the strength of sizes.
    center : array of shape (n_features,)
        The prior mean relative to the center of the data, which is replaced.
    scale : array of shape (n_lines, n_features)
        V, which is replaced.
    sizes : array of shape (2, n_components) or (2, 0)
        The shapes and rates of the sizes of components, which are replaced; empty without sizes.
    new_dof, new_strength, new_natural_mean, new_scatter : arrays
        Receive the natural parameters of the new prior.
    moved_dof, moved_strength, moved_natural_mean, moved_scatter : arrays
        Receive those of q with the new prior.
    mean, precision, log_det : arrays
        Receive its moments (:func:`moments`).
    factors : array of shape (n_components,)
        Receives the expected sizes.
    table, work : arrays of shape (6, n_components) and (n_lines + 1, n_features)
        Memory for what is computed on the way.
    """
    n_components, d = natural_mean.shape
    found[0], rows_each, mean_log_det, smallest = 0.0, 0.0, 0.0, 1.0
    for k in range(n_components):
        own = _moments_of(k, dof, strength, natural_mean, scatter, precision)
        mean_log_det += own / n_components
        rows_each += (dof[k] - prior_dof[k]) / n_components
        factors[k] = 1.0
        for i in range(d):
            mean[k, i] = natural_mean[k, i] / strength[k]
    rows_each, is_matrix = max(rows_each, 0.0), np.isnan(settings[4])
    n_rows = max(n_components * rows_each, 1.0) if is_matrix else settings[4]
    log_det_of_weights = _best_mean(precision, mean, prior_strength, center, work)
    if not (-np.inf < mean_log_det < np.inf and -np.inf < log_det_of_weights < np.inf):
        return
    square = _mean_square(precision, mean, strength, center, work[scale.shape[0]])
    best = max(n_components * d / square, settings[3])
    found[1] = min(best, max(n_rows, settings[2]))
    if sizes.shape[1] > 0:
        how = grid, settings[8], sizes, table
        found[3], size, mean_log = _learn_sizes(precision, scale, settings[0], *how)
        mean_log_det += d * mean_log
        for k in range(n_components):
            factors[k] = sizes[0, k] / sizes[1, k]
            smallest = min(smallest, factors[k])
        for line in range(scale.shape[0]):
            for j in range(d):
                scale[line, j] *= size
        if not _is_above(scale, settings[7] / smallest, reference, work):
            return
    old, least = settings[0], settings[1]
    most = max(d + (rows_each if is_matrix else settings[5] * n_rows), max(least, old))
    limits = old, min(least, old), most
    rest = mean_log_det, scale, settings[6], is_matrix, work
    found[2] = _learn_scale(precision, factors, *limits, *rest)
    if np.isnan(found[2]) or not _is_above(scale, settings[7] / smallest, reference, work):
        return
    new = new_dof, new_strength, new_natural_mean, new_scatter
    _write_prior(found[1], center, factors, scale, found[2], *new)
    before = prior_dof, prior_strength, prior_natural_mean, prior_scatter
    moved = moved_dof, moved_strength, moved_natural_mean, moved_scatter
    _follow((dof, strength, natural_mean, scatter), before, new, moved)
    inside = True
    for k in range(n_components):
        log_det[k] = _moments_of(k, *moved, precision)
        inside = inside and -np.inf < log_det[k] < np.inf
        inside = inside and moved_dof[k] > d - 1 and 0.0 < moved_strength[k] < np.inf
        for i in range(d):
            mean[k, i] = moved_natural_mean[k, i] / moved_strength[k]
            inside = inside and -np.inf < mean[k, i] < np.inf
    found[0] = 1.0 if inside else 0.0
