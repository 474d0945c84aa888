"""Maximisation of expected log densities over the parameters of priors, for many columns at once.

The functions are concave in each parameter. Newton's method searches for the zeros of their slopes
on the scale of logarithms, in a bracket that is halved where a step would leave it. A maximum that
is not between the bounds of a parameter is at the nearest one.

References
----------
Minka (2000), Estimating a Dirichlet distribution.
"""

from __future__ import annotations

import numpy as np

from ._compile import called, helper, kernel
from ._math import digamma, exp, log

# Steps of relative size below this are the last ones, as each has about twice the digits of the
# one before. There are at most so many, and so many for pairs of parameters before they are sought
# one given the other.
_PRECISION, _STEPS, _STEPS_OF_PAIRS = 1e-10, 60, 20
# A slope below this, relative to the parameter, counts as zero.
_FLAT = 1e-8
_N_SHIFTS = 8


@called
def _polygammas(x):
    """ψ(x) and ψ'(x) of x > 0, the latter by a series at x + 8 and eight steps back from there."""
    inverse = 1.0 / (x + _N_SHIFTS)
    square = inverse * inverse
    # The coefficients are Bernoulli numbers; the first term left out is below 2e-16 of the sum.
    total = square * (-3617.0 / 510.0) + 7.0 / 6.0
    total = total * square - 691.0 / 2730.0
    total = total * square + 5.0 / 66.0
    total = total * square - 1.0 / 30.0
    total = total * square + 1.0 / 42.0
    total = total * square - 1.0 / 30.0
    total = total * square + 1.0 / 6.0
    total = (total * square + 0.5 * inverse + 1.0) * inverse
    for i in range(_N_SHIFTS):
        step = 1.0 / (x + i)
        total += step * step
    return digamma(x), total


@helper
def _next(x, slope, curvature, lower, upper, least, most):
    """The number that follows x, and the bracket of the zero of the slope, which x has narrowed.

    The slope is f'(x), and the curvature f''(x) < 0. The bracket begins as the two bounds.
    """
    if slope > 0.0:
        lower = x
    else:
        upper = x
    # The slope with respect to log x is x f', and its derivative is x (f' + x f'').
    decline = -(slope + x * curvature)
    if not decline > 0.0:
        decline = -x * curvature
    step = min(max(slope / decline, -5.0), 5.0)
    new = min(max(x * exp(step), least), most)
    if not lower <= new <= upper:
        new = np.sqrt(lower * upper)
    return new, lower, upper


@helper
def _concentration(mean_log, n_entries, start, least, most):
    """The α that maximises log Γ(V α) - V log Γ(α) + α V E log p."""
    x, lower, upper = min(max(start, least), most), least, most
    for _ in range(_STEPS):
        (of_total, second), (own, own_second) = _polygammas(n_entries * x), _polygammas(x)
        slope, curvature = of_total - own + mean_log, n_entries * second - own_second
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@kernel("rows pointer float float out1", dtypes=("float64",))
def dirichlet_concentrations(logs, first_level, least, most, concentrations):
    """Find the concentrations of symmetric Dirichlet priors, one for each column.

    Parameters
    ----------
    logs : array of shape (n_levels, n_rows)
        E log p of all levels of all columns, for each distribution that shares the prior.
    first_level : array of shape (n_columns + 1,)
        Where the levels of each column begin in ``logs``.
    least, most : float
        The bounds of concentrations.
    concentrations : array of shape (n_columns,)
        The first guesses, which are replaced. A column of one level keeps its own.
    """
    n_rows = logs.shape[1]
    for column in range(concentrations.shape[0]):
        first, end = first_level[column], first_level[column + 1]
        if end - first < 2 or n_rows == 0:
            continue
        total = 0.0
        for level in range(first, end):
            for row in range(n_rows):
                total += logs[level, row]
        mean = total / (n_rows * (end - first))
        start = concentrations[column]
        concentrations[column] = _concentration(mean, float(end - first), start, least, most)


@kernel("rows float float float out1", dtypes=("float64",))
def shared_concentration(excess, logs, least, most, concentration):
    """Find the concentration that all entries of several Dirichlet priors share.

    Parameters
    ----------
    excess : array of shape (n_rows, n_entries)
        What the entries have in excess of the concentration.
    logs : float
        Σ E log p over all entries.
    least, most : float
        The bounds of the concentration.
    concentration : array of shape (1,)
        The first guess, which is replaced.
    """
    n_rows, n_entries = excess.shape
    x, lower, upper = min(max(concentration[0], least), most), least, most
    for _ in range(_STEPS):
        slope, curvature = logs, 0.0
        for row in range(n_rows):
            total = n_entries * x
            for entry in range(n_entries):
                own, second = _polygammas(excess[row, entry] + x)
                total += excess[row, entry]
                slope -= own
                curvature -= second
            own, second = _polygammas(total)
            slope += n_entries * own
            curvature += n_entries * n_entries * second
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    concentration[0] = x


@called
def _one_of_pair(other, mean_log, start, least, most):
    """The best parameter of a beta prior given the other one."""
    x, lower, upper = min(max(start, least), most), least, most
    for _ in range(_STEPS):
        (of_total, second), (own, own_second) = _polygammas(other + x), _polygammas(x)
        slope, curvature = of_total - own + mean_log, second - own_second
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@helper
def _pair_inside(log_v, log_rest, a, b, least, most):
    """The best pair by Newton's method for both parameters, and whether it is between the bounds.

    The Hessian is that of two separate numbers plus a constant, so that its inverse has a closed
    form.
    """
    for _ in range(_STEPS_OF_PAIRS):
        of_total, shared = _polygammas(a + b)
        (of_a, curvature_a), (of_b, curvature_b) = _polygammas(a), _polygammas(b)
        step_a = (of_total - of_a + log_v) / curvature_a
        step_b = (of_total - of_b + log_rest) / curvature_b
        common = shared * (step_a + step_b)
        common /= 1.0 - shared / curvature_a - shared / curvature_b
        last_a, last_b = a, b
        a = min(max(a + step_a + common / curvature_a, 0.25 * a), 4.0 * a)
        b = min(max(b + step_b + common / curvature_b, 0.25 * b), 4.0 * b)
        if not (least < a < most and least < b < most):
            return a, b, False
        if abs(a - last_a) <= _PRECISION * last_a and abs(b - last_b) <= _PRECISION * last_b:
            return a, b, True
    return a, b, False


@helper
def _is_best(x, slope, least, most):
    """Whether a parameter is where its slope is zero, or at a bound beyond which it would rise."""
    relative = slope * x
    if x == most:
        return relative >= -_FLAT
    if x == least:
        return relative <= _FLAT
    return abs(relative) <= _FLAT


@helper
def _pair_at_bounds(log_v, log_rest, start_a, start_b, least, most):
    """The best pair with a parameter at a bound, and whether its slopes show that it is the best.

    As the function is concave, slopes that point out of the bounds are enough.
    """
    a, b = start_a, start_b
    for fixed in range(4):
        bound = least if fixed % 2 == 0 else most
        if fixed < 2:
            a, b = bound, _one_of_pair(bound, log_rest, start_b, least, most)
        else:
            a, b = _one_of_pair(bound, log_v, start_a, least, most), bound
        of_total, of_a, of_b = _polygammas(a + b)[0], _polygammas(a)[0], _polygammas(b)[0]
        best = _is_best(a, of_total - of_a + log_v, least, most)
        if best and _is_best(b, of_total - of_b + log_rest, least, most):
            return a, b, True
    return a, b, False


@helper
def _pair_one_by_one(log_v, log_rest, start_a, start_b, least, most):
    """The best pair: for each a the best b is found, and among these pairs the best a."""
    x, lower, upper = min(max(start_a, least), most), least, most
    b = start_b
    for _ in range(_STEPS):
        b = _one_of_pair(x, log_rest, b, least, most)
        (of_total, mixed), (own, own_second) = _polygammas(x + b), _polygammas(x)
        slope, curvature = of_total - own + log_v, mixed - own_second
        if least < b < most:
            curvature += mixed * mixed / (_polygammas(b)[1] - mixed)
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x, _one_of_pair(x, log_rest, b, least, most)


@called
def _total_with_mean(mean, log_v, log_rest, least, most):
    """The best sum of a pair whose prior has a given mean of v, which is at most a half."""
    rest = 1.0 - mean
    smallest = least / mean
    largest = max(most / rest, smallest)
    target = mean * log_v + rest * log_rest
    x, lower, upper = np.sqrt(smallest * largest), smallest, largest
    for _ in range(_STEPS):
        of_total, curvature = _polygammas(x)
        (of_v, second_v), (of_rest, second_rest) = _polygammas(x * mean), _polygammas(x * rest)
        slope = of_total - mean * of_v - rest * of_rest + target
        curvature -= mean * mean * second_v + rest * rest * second_rest
        new, lower, upper = _next(x, slope, curvature, lower, upper, smallest, largest)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@kernel("rows vector float float out2", dtypes=("float64",))
def beta_pairs(logs, least_mean, least, most, pairs):
    """Find both parameters of the beta priors of numbers v, one pair for each column.

    Parameters
    ----------
    logs : array of shape (2, n_columns)
        The means of E log v and of E log(1 - v) over all v that share the prior.
    least_mean : array of shape (n_columns,)
        The smallest means of v and of 1 - v under the prior, at most a half.
    least, most : float
        The bounds of both parameters.
    pairs : array of shape (2, n_columns)
        The first guesses, which are replaced.
    """
    for column in range(pairs.shape[1]):
        log_v, log_rest = logs[0, column], logs[1, column]
        first_a, first_b = pairs[0, column], pairs[1, column]
        a, b, found = _pair_inside(log_v, log_rest, first_a, first_b, least, most)
        if not found:
            a, b, found = _pair_at_bounds(log_v, log_rest, first_a, first_b, least, most)
        if not found:
            a, b = _pair_one_by_one(log_v, log_rest, first_a, first_b, least, most)
        # If the best of all pairs has a mean that is too small, the best of those that are
        # permitted has the smallest mean.
        mean = least_mean[column]
        if a < mean * (a + b):
            total = _total_with_mean(mean, log_v, log_rest, least, most)
            a, b = mean * total, (1.0 - mean) * total
        if b < mean * (a + b):
            total = _total_with_mean(mean, log_rest, log_v, least, most)
            a, b = (1.0 - mean) * total, mean * total
        pairs[0, column] = a
        pairs[1, column] = b


@kernel("values int float float out1", dtypes=("float64",))
def gamma_shapes(targets, with_rates, least, most, shapes):
    """Find the shapes of the gamma priors of numbers λ, one for each column.

    Parameters
    ----------
    targets : array of shape (n_columns,)
        log E λ - E log λ if the rates, the shapes divided by E λ, are learned as well.
        If the rates are given, their logarithms plus E log λ.
    with_rates : int
        1 if the rates are learned as well, and 0 if they are given.
    least, most : float
        The bounds of shapes.
    shapes : array of shape (n_columns,)
        The first guesses, which are replaced.
    """
    for column in range(shapes.shape[0]):
        x, lower, upper = min(max(shapes[column], least), most), least, most
        for _ in range(_STEPS):
            own, second = _polygammas(x)
            # The slope of a log(a / E λ) - log Γ(a) + a E log λ - a, or with the given rate in it.
            slope, curvature = targets[column] - own, -second
            if with_rates == 1:
                slope, curvature = log(x) - own - targets[column], 1.0 / x - second
            new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
            last, x = x, new
            if abs(x - last) <= _PRECISION * last:
                break
        shapes[column] = x


@helper
def _evidence_slopes(r, column, rates, shapes, prior_rates, prior_shapes):
    """The first and second derivatives with respect to r of the evidence of one column.

    It is Σ_k log B(r rate, shape) - log B(r prior rate, prior shape).
    """
    slope, curvature = 0.0, 0.0
    for k in range(rates.shape[0]):
        rate, prior_rate = rates[k, column], prior_rates[k, column]
        own, own_second = _polygammas(r * rate)
        total, total_second = _polygammas(r * rate + shapes[k, column])
        slope += rate * (own - total)
        curvature += rate * rate * (own_second - total_second)
        own, own_second = _polygammas(r * prior_rate)
        total, total_second = _polygammas(r * prior_rate + prior_shapes[k, column])
        slope -= prior_rate * (own - total)
        curvature -= prior_rate * prior_rate * (own_second - total_second)
    return slope, curvature


@kernel(
    "rows matrix matrix matrix pointer vector vector float vector out1",
    dtypes=("float64",),
)
def count_shapes(
    rates,
    shapes,
    prior_rates,
    prior_shapes,
    first_entry,
    counts,
    weights,
    least,
    most,
    count_shapes,
):
    """Find the shapes r of negative binomial columns, given what their components have counted.

    They maximise Σ_n log Γ(x_n + r) - log Γ(r) plus the evidence of the column, which need not be
    concave far from its maximum.

    Parameters
    ----------
    rates, shapes, prior_rates, prior_shapes : arrays of shape (n_components, n_columns)
        Parameters of q and of the prior; those of the beta distributions are r times a rate, and
        a shape.
    first_entry : array of shape (n_columns + 1,)
        Where the different counts of each column begin.
    counts, weights : arrays of shape (n_entries,)
        The different counts above zero, and the weights of the cells that have them.
    least : float
    most : array of shape (n_columns,)
        The bounds of r.
    count_shapes : array of shape (n_columns,)
        The first guesses, which are replaced.
    """
    for column in range(count_shapes.shape[0]):
        upper_bound = most[column]
        x, lower, upper = min(max(count_shapes[column], least), upper_bound), least, upper_bound
        for _ in range(_STEPS):
            slope, curvature = _evidence_slopes(x, column, rates, shapes, prior_rates, prior_shapes)
            of_shape, of_shape_second = _polygammas(x)
            for i in range(first_entry[column], first_entry[column + 1]):
                total, total_second = _polygammas(x + counts[i])
                slope += weights[i] * (total - of_shape)
                curvature += weights[i] * (total_second - of_shape_second)
            # Far from the maximum the curvature can be positive, and the step then goes upwards.
            curvature = min(curvature, -1e-300)
            new, lower, upper = _next(x, slope, curvature, lower, upper, least, upper_bound)
            last, x = x, new
            if abs(x - last) <= _PRECISION * last:
                break
        count_shapes[column] = x


@called
def _best_scaled_rate(r, log_p, s, start, least, most):
    """The w that maximises w log_p - log B(r w, s), where ``log_p`` is r E log p."""
    x, lower, upper = min(max(start, least), most), least, most
    for _ in range(_STEPS):
        (own, own_second), (total, second) = _polygammas(r * x), _polygammas(r * x + s)
        slope, curvature = log_p - r * (own - total), -(r * r) * (own_second - second)
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@called
def _best_scaled_shape(r, log_p, log_rest, mean, w, start, least, most):
    """The s that maximises s E log(1 - p) + w log_p - log B(r w, s), where ``log_p`` is r E log p.

    If a mean is given, w is the shape divided by it; a mean of 0 leaves the given w as it is.
    """
    x, lower, upper = min(max(start, least), most), least, most
    # The first parameter of the beta distribution is u s, or r w.
    u = r / mean if mean > 0.0 else 0.0
    for _ in range(_STEPS):
        a = u * x if mean > 0.0 else r * w
        (total, second), (own, own_second) = _polygammas(a + x), _polygammas(x)
        slope = log_rest - own + (1.0 + u) * total
        curvature = (1.0 + u) * (1.0 + u) * second - own_second
        if mean > 0.0:
            of_first, first_second = _polygammas(a)
            slope += log_p / mean - u * of_first
            curvature -= u * u * first_second
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@kernel("rows vector matrix int float float int out2", dtypes=("float64",))
def scaled_beta_priors(logs, r, means, learns, least, most, turns, priors):
    """Find the shapes s and rates w of the priors p ~ Beta(r w, s), one pair for each column.

    Parameters
    ----------
    logs : array of shape (2, n_columns)
        The means of E log(1 - p) and of r E log p over all p that share the prior.
    r : array of shape (n_columns,)
    means : array of shape (3, n_columns)
        The smallest and the largest mean s / w that the prior may have, and the mean that it keeps
        while its shape is learned. The last one is 0 where w is given.
    learns : int
        0 for rates given the shapes, 1 for shapes, and 2 for both in turns.
    least, most : float
        The bounds of shapes.
    turns : int
        How often both are learned in turns.
    priors : array of shape (2, n_columns)
        The first guesses of the shapes and of the rates, which are replaced.
    """
    for column in range(r.shape[0]):
        log_rest, log_p = logs[0, column], logs[1, column]
        s, w, mean = priors[0, column], priors[1, column], means[2, column]
        for _ in range(turns if learns == 2 else 1):
            if learns != 1:
                w = _best_scaled_rate(
                    r[column], log_p, s, w, s / means[1, column], s / means[0, column]
                )
            if learns == 0:
                continue
            if learns == 2:
                mean = s / w
            s = _best_scaled_shape(r[column], log_p, log_rest, mean, w, s, least, most)
            if mean > 0.0:
                w = s / mean
        priors[0, column] = s
        priors[1, column] = w
