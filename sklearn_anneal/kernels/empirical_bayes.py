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
from ._math import digamma, exp, log, polygamma_rising

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
def _moved(old, new, rho):
    """A positive number that has moved by the share ρ, on the scale of its logarithm."""
    return new if rho == 1.0 else old * exp(rho * log(new / old))


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


@kernel("rows float float float float out2", dtypes=("float64",))
def learned_rows(old, logs, rho, least, most, new):
    """Make a step of empirical Bayes for the concentration that several Dirichlet rows share.

    The smallest entry is this concentration. What others have in excess of it stays.

    Parameters
    ----------
    old : array of shape (n_rows, n_entries)
        The prior.
    logs : float
        Σ E log p over all entries.
    rho : float
        The share of the way to the best concentration.
    least, most : float
        The bounds of the concentration.
    new : array of shape (n_rows, n_entries)
        Receives the new prior.
    """
    n_rows, n_entries = old.shape
    current = old[0, 0]
    for row in range(n_rows):
        for entry in range(n_entries):
            current = min(current, old[row, entry])
    x, lower, upper = min(max(current, least), most), least, most
    for _ in range(_STEPS):
        slope, curvature = logs, 0.0
        for row in range(n_rows):
            total = n_entries * x
            for entry in range(n_entries):
                excess = old[row, entry] - current
                own, second = _polygammas(excess + x)
                total += excess
                slope -= own
                curvature -= second
            own, second = _polygammas(total)
            slope += n_entries * own
            curvature += n_entries * n_entries * second
        step, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, step
        if abs(x - last) <= _PRECISION * last:
            break
    best = _moved(current, x, rho)
    for row in range(n_rows):
        for entry in range(n_entries):
            new[row, entry] = old[row, entry] - current + best


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


@called
def best_pair(log_v, log_rest, least_mean, first_a, first_b, least, most):
    """Return both parameters of the beta prior of numbers v.

    ``log_v`` and ``log_rest`` are the means of E log v and of E log(1 - v) over all v that share
    the prior, and ``least_mean``, at most a half, is the smallest mean of v and of 1 - v under it.
    Both parameters are between two bounds, and ``first_a`` and ``first_b`` are first guesses.
    """
    a, b, found = _pair_inside(log_v, log_rest, first_a, first_b, least, most)
    if not found:
        a, b, found = _pair_at_bounds(log_v, log_rest, first_a, first_b, least, most)
    if not found:
        a, b = _pair_one_by_one(log_v, log_rest, first_a, first_b, least, most)
    # If the best of all pairs has a mean that is too small, the best of those that are permitted
    # has the smallest mean.
    if a < least_mean * (a + b):
        total = _total_with_mean(least_mean, log_v, log_rest, least, most)
        a, b = least_mean * total, (1.0 - least_mean) * total
    if b < least_mean * (a + b):
        total = _total_with_mean(least_mean, log_rest, log_v, least, most)
        a, b = (1.0 - least_mean) * total, least_mean * total
    return a, b


@kernel("rows matrix matrix matrix float float float out2 out2", dtypes=("float64",))
def learned_betas(a, b, prior_a, prior_b, rho, least, most, new_a, new_b):
    """Make a step of empirical Bayes for the beta priors of numbers v, one pair for each column.

    A pair has a mean of v, and of 1 - v, of at least what the prior of Jeffreys expects after as
    many observations without an event as there are of the column.

    Parameters
    ----------
    a, b, prior_a, prior_b : arrays of shape (n_rows, n_columns)
        The parameters of q and of the prior, which all rows share.
    rho : float
        The share of the way to the best pair.
    least, most : float
        The bounds of both parameters.
    new_a, new_b : arrays of shape (n_rows, n_columns)
        Receive the parameters of the new prior.
    """
    n_rows = a.shape[0]
    for j in range(a.shape[1]):
        log_v = log_rest = observed = 0.0
        for i in range(n_rows):
            of_total = digamma(a[i, j] + b[i, j])
            log_v += digamma(a[i, j]) - of_total
            log_rest += digamma(b[i, j]) - of_total
            observed += a[i, j] - prior_a[i, j] + (b[i, j] - prior_b[i, j])
        least_mean = 0.5 / (max(observed, 0.0) + 1.0)
        old_a, old_b = prior_a[0, j], prior_b[0, j]
        means = log_v / n_rows, log_rest / n_rows
        best_a, best_b = best_pair(means[0], means[1], least_mean, old_a, old_b, least, most)
        best_a, best_b = _moved(old_a, best_a, rho), _moved(old_b, best_b, rho)
        for i in range(n_rows):
            new_a[i, j], new_b[i, j] = best_a, best_b


@kernel("rows matrix pointer float float float out2", dtypes=("float64",))
def learned_dirichlets(q, prior, first_level, rho, least, most, new):
    """Make a step of empirical Bayes for symmetric Dirichlet priors, one for each column.

    Parameters
    ----------
    q, prior : arrays of shape (n_rows, n_levels)
        The concentrations of all levels of all columns. All rows share the prior.
    first_level : array of shape (n_columns + 1,)
        Where the levels of each column begin.
    rho : float
        The share of the way to the best concentrations.
    least, most : float
        The bounds of concentrations. A column of one level keeps its own.
    new : array of shape (n_rows, n_levels)
        Receives the new prior.
    """
    n_rows = q.shape[0]
    for column in range(first_level.shape[0] - 1):
        first, end = first_level[column], first_level[column + 1]
        logs = 0.0
        for row in range(n_rows):
            total = 0.0
            for level in range(first, end):
                total += q[row, level]
                logs += digamma(q[row, level])
            logs -= (end - first) * digamma(total)
        best = prior[0, first]
        if end - first > 1:
            mean = logs / (n_rows * (end - first))
            best = _moved(best, _concentration(mean, float(end - first), best, least, most), rho)
        for row in range(n_rows):
            for level in range(first, end):
                new[row, level] = best


@called
def _best_shape(target, with_rates, start, least, most):
    """The shape of the gamma prior of a column (:func:`gamma_shapes`)."""
    x, lower, upper = min(max(start, least), most), least, most
    for _ in range(_STEPS):
        own, second = _polygammas(x)
        # The slope of a log(a / E λ) - log Γ(a) + a E log λ - a, or with the given rate in it.
        slope, curvature = target - own, -second
        if with_rates:
            slope, curvature = log(x) - own - target, 1.0 / x - second
        new, lower, upper = _next(x, slope, curvature, lower, upper, least, most)
        last, x = x, new
        if abs(x - last) <= _PRECISION * last:
            break
    return x


@kernel("rows matrix matrix matrix vector vector out2 out2", dtypes=("float64",))
def learned_gammas(shape, rate, prior_shape, prior_rate, means, settings, new_shape, new_rate):
    """Make a step of empirical Bayes for the gamma priors of numbers λ, one for each column.

    Parameters
    ----------
    shape, rate, prior_shape, prior_rate : arrays of shape (n_rows, n_columns)
        The parameters of q and of the prior. All rows share what is learned.
    means : array of shape (n_columns,)
        The mean of each column of the data.
    settings : array of shape (8,)
        The share of the way to the best values; the bounds of shapes; the bounds of the mean of a
        prior whose rate is learned, in multiples of those of the data; and 1 or 0 for whether
        shapes are learned, rates are learned, and rates follow shapes.
    new_shape, new_rate : arrays of shape (n_rows, n_columns)
        Receive the parameters of the new prior.
    """
    n_rows, rho, least, most = shape.shape[0], settings[0], settings[1], settings[2]
    learns_shape, learns_rate, follows = settings[5] > 0.0, settings[6] > 0.0, settings[7] > 0.0
    for j in range(shape.shape[1]):
        mean = mean_log = observed = log_rates = shapes = 0.0
        for i in range(n_rows):
            mean += shape[i, j] / rate[i, j]
            mean_log += digamma(shape[i, j]) - log(rate[i, j])
            observed += rate[i, j] - prior_rate[i, j]
            log_rates += log(prior_rate[i, j])
            shapes += prior_shape[i, j]
        mean, mean_log = mean / n_rows, mean_log / n_rows
        # The bound is highest where the prior's mean is that of the rates, whatever the shape.
        of_prior = means[j]
        if learns_rate:
            smallest = max(0.5 / (max(observed, 0.0) + 1.0), settings[3] * means[j])
            largest = max(smallest, settings[4] * means[j])
            of_prior = min(max(mean, smallest), largest)
        best = shapes / n_rows
        if learns_shape:
            # The prior has the mean m and the rate a / m, so that the bound has the terms
            # a log(a / m) - log Γ(a) + a E log λ - a E λ / m. If m is E λ, the last one is -a.
            with_rates = follows or learns_rate
            target = mean_log + log_rates / n_rows
            if with_rates:
                target = log(of_prior) - (mean_log + 1.0 - mean / of_prior)
            best = _best_shape(target, with_rates, prior_shape[0, j], least, most)
        for i in range(n_rows):
            new_shape[i, j], new_rate[i, j] = prior_shape[i, j], prior_rate[i, j]
            if learns_shape:
                new_shape[i, j] = _moved(prior_shape[i, j], best, rho)
                if follows:
                    new_rate[i, j] = new_shape[i, j] / means[j]
            if learns_rate:
                new_rate[i, j] = _moved(prior_rate[i, j], best / of_prior, rho)


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
        start = shapes[column]
        shapes[column] = _best_shape(targets[column], with_rates == 1, start, least, most)


@helper
def _evidence_slopes(r, column, rates, shapes, prior_rates, prior_shapes):
    """The first and second derivatives with respect to r of the evidence of one column.

    It is Σ_k log B(r rate, shape) - log B(r prior rate, prior shape).
    """
    slope, curvature = 0.0, 0.0
    for k in range(rates.shape[0]):
        rate, prior_rate = rates[k, column], prior_rates[k, column]
        rise, second = polygamma_rising(r * rate, shapes[k, column])
        slope -= rate * rise
        curvature -= rate * rate * second
        rise, second = polygamma_rising(r * prior_rate, prior_shapes[k, column])
        slope += prior_rate * rise
        curvature += prior_rate * prior_rate * second
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
            for i in range(first_entry[column], first_entry[column + 1]):
                rise, second = polygamma_rising(x, counts[i])
                slope += weights[i] * rise
                curvature += weights[i] * second
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
        rise, second = polygamma_rising(r * x, s)
        slope, curvature = log_p + r * rise, r * r * second
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
        rise, second = polygamma_rising(x, a)
        slope, curvature = log_rest + rise, second
        if mean > 0.0:
            rise, second = polygamma_rising(a, x)
            slope += log_p / mean + u * rise
            curvature += u * u * second + 2.0 * u * _polygammas(a + x)[1]
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
