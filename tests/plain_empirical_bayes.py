"""The kernels of empirical Bayes in numpy and scipy, one column after the other."""

from __future__ import annotations

import numpy as np
from scipy.special import psi, zeta

from sklearn_anneal.families._empirical_bayes import maximizer


def trigamma(x):
    return zeta(2.0, x)


def concentration(mean_log, n_levels, start, bounds):
    """The α that maximises log Γ(V α) − V log Γ(α) + α V E log p."""
    if n_levels == 1:
        return start

    def slope(x):
        value = psi(n_levels * x) - psi(x) + mean_log
        return value, n_levels * trigamma(n_levels * x) - trigamma(x)

    return maximizer(slope, *bounds, start)


def pair(mean_log, mean_log_rest, start, bounds):
    """The best parameters of a beta prior: for each a the best b, and among these the best a."""
    lower, upper = bounds
    b = start[1]

    def slope(own, other, target):
        total = own + other
        return psi(total) - psi(own) + target, trigamma(total) - trigamma(own)

    def profile(a):
        nonlocal b
        b = maximizer(lambda x: slope(x, a, mean_log_rest), lower, upper, b)
        value, curvature = slope(a, b, mean_log)
        if lower < b < upper:
            mixed = trigamma(a + b)
            curvature -= mixed * mixed / slope(b, a, mean_log_rest)[1]
        return value, curvature

    a = maximizer(profile, lower, upper, start[0])
    return a, maximizer(lambda x: slope(x, a, mean_log_rest), lower, upper, b)


def pair_with_mean(mean, mean_log, mean_log_rest, bounds):
    """The best parameters of a beta prior with a given mean, which is at most a half."""
    shares, logs = np.array([mean, 1.0 - mean]), np.array([mean_log, mean_log_rest])
    lower = bounds[0] / mean
    upper = max(bounds[1] / (1.0 - mean), lower)

    def slope(total):
        value = psi(total) - shares @ psi(total * shares) + shares @ logs
        return value, trigamma(total) - shares**2 @ trigamma(total * shares)

    return shares * maximizer(slope, lower, upper, np.sqrt(lower * upper))


def permitted_pair(mean_log, mean_log_rest, least_mean, bounds):
    """The best parameters of a beta prior none of whose means, of v and of 1 − v, is too small."""
    a, b = pair(mean_log, mean_log_rest, (1.0, 1.0), bounds)
    if a < least_mean * (a + b):
        return pair_with_mean(least_mean, mean_log, mean_log_rest, bounds)
    if b < least_mean * (a + b):
        return pair_with_mean(least_mean, mean_log_rest, mean_log, bounds)[::-1]
    return np.array([a, b])
