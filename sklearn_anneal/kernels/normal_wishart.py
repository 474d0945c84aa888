"""Normal-Wishart factors of Gaussian components of few columns, and the prior that they share.

With few columns, a pass over few rows takes less time than the interpreter needs for a hundred
operations on small arrays. So each of the three steps besides the visit is one kernel here: the
coefficients of the local step, the divergence of q from its prior, and a step of empirical Bayes,
after which the moments of the next q are known. Matrices are stored one below the other, in arrays
of shape (n_matrices * n_lines, width). A full matrix has n_features lines of this width. A diagonal
one has one line, which is its diagonal, and a spherical one has one number, which all entries of
its diagonal are. There are as many matrices as components, or there is one, whose factor is that of
K components with equal factors (tied). The plain forms are in ``families/normal_wishart.py``,
``models/components/gaussian.py`` and ``_learned_gaussians.py``.

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

    The pivots of Gauss-Jordan elimination are those of the Cholesky factorisation. A spherical
    matrix has the log-determinant of one entry.
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
        return matrices[k, min(i, matrices.shape[1] - 1)] * vector[i]
    return _dot(matrices[k * n_lines + i], vector)


@helper
def _trace(matrices, k, scale):
    """The trace of the product of matrix k with another one, of one entry if both are spherical."""
    total = 0.0
    for line in range(scale.shape[0]):
        total += _dot(matrices[k * scale.shape[0] + line], scale[line])
    return total


@called
def _mix(target, factors, factor, matrices, line):
    """Write the sum of multiples of one line of matrices, whose entries are equal if spherical."""
    n_lines, width = matrices.shape[0] // factors.shape[0], matrices.shape[1]
    for j in range(target.shape[0]):
        target[j] = 0.0
    for k in range(factors.shape[0]):
        row, own = matrices[k * n_lines + line], factor * factors[k]
        for j in range(target.shape[0]):
            target[j] += own * row[min(j, width - 1)]


@called
def _inverse_scale(m, n_matrices, strength, natural_mean, scatter, target, first):
    """Write W⁻¹ of matrix m, which is its scatter without β m mᵀ, to lines from ``first`` on."""
    (n_components, d), width = natural_mean.shape, scatter.shape[1]
    n_lines, each = scatter.shape[0] // n_matrices, n_components // n_matrices
    for line in range(n_lines):
        for j in range(width):
            target[first + line, j] = scatter[m * n_lines + line, j]
    for k in range(m * each, (m + 1) * each):
        own, factor = natural_mean[k], 1.0 / (strength[k] * (each * (d // width)))
        for line in range(n_lines):
            row = target[first + line]
            for j in range(d):
                other = factor * own[j if n_lines == 1 else line]
                row[j if width == d else 0] -= other * own[j]


@called
def _moments_of(m, dof, strength, natural_mean, scatter, precision):
    """Write E Λ = ν W of matrix m and return E log|Λ|; NaN if W⁻¹ is not positive definite."""
    d, n_lines, digammas = natural_mean.shape[1], scatter.shape[0] // dof.shape[0], 0.0
    _inverse_scale(m, dof.shape[0], strength, natural_mean, scatter, precision, m * n_lines)
    for i in range(d):
        digammas += digamma(0.5 * (dof[m] - i))
    log_det = _invert(precision, m, n_lines) * (d // scatter.shape[1])
    for line in range(m * n_lines, (m + 1) * n_lines):
        row = precision[line]
        for j in range(row.shape[0]):
            row[j] *= dof[m]
    return digammas + d * _LOG_2 - log_det


@kernel("values vector matrix matrix out2 out1", dtypes=("float64",))
def moments(dof, strength, natural_mean, scatter, precision, log_det):
    """Compute E Λ and E log|Λ| of all components.

    Parameters
    ----------
    dof : array of shape (n_matrices,)
        ν.
    strength : array of shape (n_components,)
        β.
    natural_mean : array of shape (n_components, n_features)
        β m.
    scatter : array of shape (n_matrices * n_lines, width)
    precision : array of the same shape
        Receives E Λ.
    log_det : array of shape (n_components,)
        Receives E log|Λ|, or NaN where W⁻¹ is not positive definite.
    """
    each = strength.shape[0] // dof.shape[0]
    for m in range(dof.shape[0]):
        own = _moments_of(m, dof, strength, natural_mean, scatter, precision)
        for k in range(m * each, (m + 1) * each):
            log_det[k] = own


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

    Nor do those change of which less than half of what β adds to its prior would remain. Components
    of one matrix change together, or all of them stay.

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
    work : array of shape (n_lines, width)
        Memory for what is computed on the way.
    """
    (n_components, d), n_matrices = natural_mean.shape, dof.shape[0]
    n_lines, each = scatter.shape[0] // n_matrices, n_components // n_matrices
    for m in range(n_matrices):
        new_dof[m] = dof[m] + of_dof[m]
        inside = d - 1 < new_dof[m] < np.inf
        for k in range(m * each, (m + 1) * each):
            new_strength[k] = strength[k] + of_strength[k]
            inside = inside and 0.0 < new_strength[k] < np.inf
            inside = inside and new_strength[k] >= 0.5 * (prior_strength[k] + strength[k])
            for i in range(d):
                new_mean[k, i] = natural_mean[k, i] + of_mean[k, i]
        for line in range(m * n_lines, (m + 1) * n_lines):
            for j in range(scatter.shape[1]):
                new_scatter[line, j] = scatter[line, j] + of_scatter[line, j]
        if inside:
            _inverse_scale(m, n_matrices, new_strength, new_mean, new_scatter, work, 0)
            if -np.inf < _invert(work, 0, n_lines) < np.inf:
                continue
        new_dof[m] = dof[m]
        for k in range(m * each, (m + 1) * each):
            new_strength[k] = strength[k]
            for i in range(d):
                new_mean[k, i] = natural_mean[k, i]
        for line in range(m * n_lines, (m + 1) * n_lines):
            for j in range(scatter.shape[1]):
                new_scatter[line, j] = scatter[line, j]


@kernel("rows matrix float out1 out1 out2 out2", dtypes=("float64",))
def statistics(sums, shared, noise, dof, counts, first, scatter):
    """Take statistics apart.

    Parameters
    ----------
    sums : array of shape (n_components, n_products + n_features + 1)
        Σ R x_i x_j with i ≤ j, or i = j where matrices are diagonal, or Σ R xᵀx where they are
        spherical, Σ R x and Σ R.
    shared : array of shape (1, n_products) or (1, 0)
        The products of all components together where they have one matrix, and not in ``sums``.
    noise : float
        What the scatter has for each row besides.
    dof : array of shape (n_matrices,)
    counts : array of shape (n_components,)
    first : array of shape (n_components, n_features)
    scatter : array of shape (n_matrices * n_lines, width)
    """
    (n_components, d), n_matrices, width = first.shape, dof.shape[0], scatter.shape[1]
    n_lines, each = scatter.shape[0] // n_matrices, n_components // n_matrices
    for m in range(n_matrices):
        start, total, p = m * n_lines, 0.0, 0
        for k in range(m * each, (m + 1) * each):
            own = sums[k]
            counts[k] = own[own.shape[0] - 1]
            total += counts[k]
            for i in range(d):
                first[k, i] = own[own.shape[0] - 1 - d + i]
        dof[m] = total / each
        products = shared[m] if shared.shape[1] > 0 else sums[m]
        for i in range(width):
            if n_lines == 1:
                scatter[m, i] = products[i] / (each * (d // width)) + noise * dof[m]
                continue
            for j in range(i, d):
                scatter[start + i, j] = scatter[start + j, i] = products[p] / each
                p += 1
            scatter[start + i, i] += noise * dof[m]


@kernel("values matrix matrix vector vector float out1 out2 out2", dtypes=("float64",))
def coefficients(strength, mean, precision, log_det, log_weights, noise, constants, found, shared):
    """Compute the coefficients of E log p(x, z = k) in quadratic features.

    Parameters
    ----------
    strength : array of shape (n_components,)
        β.
    mean : array of shape (n_components, n_features)
    precision : array of shape (n_matrices * n_lines, width)
        E Λ.
    log_det, log_weights : arrays of shape (n_components,)
        E log|Λ| and E log π.
    noise : float
        The variance of the noise of rows.
    constants : array of shape (n_components,)
        Receives E log π + (E log|Λ| − D/β − noise tr E Λ) / 2.
    found : array of shape (n_components, n_products + n_features + 1)
        Receives the coefficients of x_i x_j with i ≤ j, or i = j where matrices are diagonal, or of
        xᵀx where they are spherical, of x and of 1.
    shared : array of shape (1, n_products) or (1, 0)
        Receives those of the products where all components have one matrix, in place of ``found``.
    """
    (n_components, d), width = mean.shape, precision.shape[1]
    n_matrices = 1 if shared.shape[1] > 0 else n_components
    n_lines, each = precision.shape[0] // n_matrices, n_components // n_matrices
    for m in range(n_matrices):
        products, trace, p = shared[0] if shared.shape[1] > 0 else found[m], 0.0, 0
        for i in range(width):
            row = precision[m * n_lines + (0 if n_lines == 1 else i)]
            trace += row[i] * (d // width)
            products[p] = -0.5 * row[i]
            p += 1
            for j in range(i + 1, d if n_lines > 1 else 0):
                products[p] = -row[j]
                p += 1
        for k in range(m * each, (m + 1) * each):
            own, distance = found[k], 0.0
            first = own.shape[0] - d - 1
            for i in range(d):
                linear = _product(precision, m, n_lines, i, mean[k])
                own[first + i] = linear
                distance += linear * mean[k, i]
            constants[k] = log_weights[k] + 0.5 * (log_det[k] - d / strength[k] - noise * trace)
            own[first + d] = constants[k] - 0.5 * (d * _LOG_2PI + distance)


@helper
def _log_normalizer(dof, log_det, d):
    """The log-normaliser of one Wishart distribution, given log|W⁻¹|."""
    total = 0.5 * dof * (d * _LOG_2 - log_det)
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
    dof, strength : arrays of shape (n_matrices,) and (n_components,)
    mean : array of shape (n_components, n_features)
    precision : array of shape (n_matrices * n_lines, width)
        E Λ under q.
    log_det : array of shape (n_components,)
        E log|Λ| under q.
    prior_dof, prior_strength, prior_mean : arrays
        ν, β and m of the prior, of the same shapes.
    scale : array of shape (n_lines, width)
    factors : array of shape (n_matrices,)
        W⁻¹ of the prior is ``scale`` multiplied by these.
    found : array of shape (2,)
        Receives the divergence in nats, and by how many observations the strongest prior counts.
    work : array of shape (n_lines + 1, n_features)
        Memory for what is computed on the way.
    """
    (n_components, d), (n_lines, width), n_matrices = mean.shape, scale.shape, dof.shape[0]
    each, total, strongest, shift = n_components // n_matrices, 0.0, 0.0, work[n_lines]
    for line in range(n_lines):
        for j in range(d):
            work[line, j] = scale[line, min(j, width - 1)]
    log_det_of_scale = _invert(work, 0, n_lines)
    for m in range(n_matrices):
        digammas, q_dof, p_dof, factor = 0.0, dof[m], prior_dof[m], factors[m]
        for k in range(m * each, (m + 1) * each):
            distance, size, q_beta, p_beta = 0.0, 0.0, strength[k], prior_strength[k]
            for i in range(d):
                shift[i] = mean[k, i] - prior_mean[k, i]
            for i in range(d):
                distance += shift[i] * _product(precision, m, n_lines, i, shift)
                size += prior_mean[k, i] * _product(work, 0, n_lines, i, prior_mean[k])
            strongest = max(strongest, max(p_dof, p_dof * p_beta * size / factor))
            total += 0.5 * (p_beta * distance - d * (q_beta - p_beta) / q_beta)
            total += 0.5 * d * (log(q_beta) - log(p_beta))
        for i in range(d):
            digammas += digamma(0.5 * (q_dof - i))
        # E tr(W⁻¹ Λ) of q is ν D.
        log_det_of_q, trace = log_det[m * each], factor * (d // width) * _trace(precision, m, scale)
        own = 0.5 * ((q_dof - p_dof) * log_det_of_q - q_dof * d + trace)
        own -= _log_normalizer(q_dof, digammas + d * _LOG_2 - log_det_of_q, d)
        own += _log_normalizer(p_dof, log_det_of_scale + d * log(factor), d)
        total += each * own
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
        _mix(work[line], prior_strength, 1.0, precision, line)
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
        for j in range(work.shape[1]):
            i = min(j, scale.shape[1] - 1)
            work[line, j] = scale[line, i] - floor * reference[line, i]
    log_det = _invert(work, 0, scale.shape[0])
    return -np.inf < log_det < np.inf


@called
def _learn_sizes(precision, scale, d, dof, grid, precision_of_strength, sizes, table):
    """Find the strength a of the sizes and their distributions, of mean 1 after a step of V.

    ``sizes`` has the shapes and the rates now, which are replaced. Returned are a, the mean by
    which V is to be multiplied, and the mean of E log s.
    """
    n_components, half = sizes.shape[1], 0.5 * (d // scale.shape[1])
    for k in range(n_components):
        table[0, k], table[1, k] = 0.5 * d * dof, half * _trace(precision, k, scale)
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
def _divergence_of_sizes(strength, sizes, dof, d):
    """The term that the bound lacks with the prior of the precisions at the means of sizes."""
    total = 0.0
    for k in range(sizes.shape[1]):
        shape, rate = sizes[0, k], sizes[1, k]
        psi, log_rate = digamma(shape), log(rate)
        total += (shape - strength) * psi + shape * (strength - rate) / rate
        total += strength * (log_rate - log(strength)) + log_gamma(strength) - log_gamma(shape)
        total += 0.5 * d * dof * (log(shape) - psi)
    return total


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
    n_lines, d, n_components = scale.shape[0], work.shape[1], factors.shape[0]
    shift = -eta / n_components if eta < np.inf else 0.0
    for line in range(n_lines):
        target = work[line]
        _mix(target, factors, 1.0 / n_components, precision, line)
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
        for j in range(scale.shape[1]):
            scale[line, j] = (dof - shift) * work[line, j]
    return dof


@called
def _write_prior(
    strength, center, factors, scale, dof, new_dof, new_strength, natural_mean, scatter
):
    """Write λ₀ of all components."""
    (n_lines, width), d, root = scale.shape, center.shape[0], np.sqrt(strength)
    for k in range(factors.shape[0]):
        new_strength[k], new_dof[k] = strength, dof
        for i in range(d):
            natural_mean[k, i] = strength * center[i]
        for line in range(n_lines):
            row = scatter[k * n_lines + line]
            for j in range(width):
                row[j] = factors[k] * scale[line, j]
            for j in range(d):
                other = root * center[j if n_lines == 1 else line]
                row[j if width == d else 0] += other * (root * center[j]) / (d // width)


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
    reference : array of shape (n_lines, width)
    found : array of shape (5,)
        Receives whether the step has succeeded (1) or has to be made with more care (0), β₀, ν₀,
        the strength of sizes, and what the bound lacks because of them.
    center : array of shape (n_features,)
        The prior mean relative to the center of the data, which is replaced.
    scale : array of shape (n_lines, width)
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
        how = d, settings[0], grid, settings[8], sizes, table
        found[3], size, mean_log = _learn_sizes(precision, scale, *how)
        mean_log_det += d * mean_log
        for k in range(n_components):
            factors[k] = sizes[0, k] / sizes[1, k]
            smallest = min(smallest, factors[k])
        for line in range(scale.shape[0]):
            for j in range(scale.shape[1]):
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
    found[4] = _divergence_of_sizes(found[3], sizes, found[2], d)
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


@kernel(
    "values vector matrix matrix vector matrix matrix matrix "
    "out1 out1 out1 out2 out2 out1 out2 out2 out2 out2 out1",
    dtypes=("float64",),
)
def learned_means(
    dof,
    strength,
    natural_mean,
    scatter,
    prior_strength,
    prior_natural_mean,
    prior_scatter,
    scale,
    found,
    center,
    new_strength,
    new_natural_mean,
    new_scatter,
    moved_strength,
    moved_natural_mean,
    moved_scatter,
    mean,
    precision,
    log_det,
):
    """Make a step of empirical Bayes for the prior of the means of components with equal factors.

    Parameters
    ----------
    dof, strength, natural_mean, scatter : arrays
        The natural parameters of q.
    prior_strength, prior_natural_mean, prior_scatter : arrays
        Those of its prior.
    scale : array of shape (n_features, n_features)
        W₀⁻¹.
    found : array of shape (2,)
        The smallest and the largest β₀. Receives whether the step has succeeded (1) or has to be
        made with more care (0), and β₀.
    center : array of shape (n_features,)
        Receives the prior mean relative to the center of the data.
    new_strength, new_natural_mean, new_scatter : arrays
        Those of the prior, which are replaced by those of the new one.
    moved_strength, moved_natural_mean, moved_scatter : arrays
        Receive those of q with the new prior.
    mean, precision, log_det : arrays
        Receive its moments (:func:`moments`).
    """
    (n_components, d), least, most, total = mean.shape, found[0], found[1], 0.0
    found[0] = 0.0
    for step in range(2):
        # The first time, q is as it was.
        for k in range(n_components):
            moved_strength[k] = strength[k] + (new_strength[k] - prior_strength[k])
            if not 0.0 < moved_strength[k] < np.inf:
                return
            for i in range(d):
                change = new_natural_mean[k, i] - prior_natural_mean[k, i]
                moved_natural_mean[k, i] = natural_mean[k, i] + change
                mean[k, i] = moved_natural_mean[k, i] / moved_strength[k]
        for i in range(d):
            for j in range(d):
                change = new_scatter[i, j] - prior_scatter[i, j]
                moved_scatter[i, j] = scatter[i, j] + change
        moved = moved_strength, moved_natural_mean, moved_scatter
        own = _moments_of(0, dof, *moved, precision)
        if not -np.inf < own < np.inf:
            return
        for k in range(n_components):
            log_det[k] = own
        if step == 1:
            break
        square = 0.0
        for k in range(n_components):
            total += prior_strength[k]
            square += d / strength[k]
        for i in range(d):
            center[i] = 0.0
            for k in range(n_components):
                center[i] += prior_strength[k] / total * mean[k, i]
        for k in range(n_components):
            for i in range(d):
                for j in range(d):
                    product = (mean[k, i] - center[i]) * (mean[k, j] - center[j])
                    square += precision[i, j] * product
        found[1] = min(max(n_components * d / square, least), most)
        for i in range(d):
            for k in range(n_components):
                new_strength[k], new_natural_mean[k, i] = found[1], found[1] * center[i]
            for j in range(d):
                new_scatter[i, j] = scale[i, j] + found[1] * center[i] * center[j]
    found[0] = 1.0
