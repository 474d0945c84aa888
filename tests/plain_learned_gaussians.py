"""The searches of ``kernels/gaussian_mixture.py`` in numpy and scipy.

Functions have the arguments of the kernels, without the arrays that these write.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, psi, zeta

from sklearn_anneal.families._empirical_bayes import maximizer, wishart_dof


def changes(limits, d, factors):
    """Limits of the changes of determinants, and their first two derivatives by log y."""
    n_above, p_above, n_below, p_below = limits
    larger = factors >= 1.0
    n, p = np.where(larger, n_above, n_below), np.where(larger, p_above, p_below)
    ones = np.where(larger, d - n, 0.0)
    total = (1.0 - p) + factors * p
    share = factors * p / total
    value = ones * np.log(factors) + n * np.log(total)
    return value, ones + n * share, n * share * (1.0 - share)


def best_sizes(a, table):
    """The best expected size of each component for a strength, and m, the rest, and e."""
    n, slopes, certain, above, below, now = table
    larger = a + n > (a + slopes) * now
    m = np.where(larger, certain, 0.0)
    rest, e = np.maximum(slopes - m / now, 0.0), np.where(larger, above, below)
    # a s² e − s (…) − …: the positive root of (n + a − m) / s = a + t / (1 + (s − now) e).
    found = []
    for k in range(len(n)):
        b = a * (1.0 - now[k] * e[k]) + rest[k] - (n[k] + a - m[k]) * e[k]
        c = (n[k] + a - m[k]) * (1.0 - now[k] * e[k])
        roots = np.roots([a * e[k], b, -c]) if e[k] > 0.0 else np.array([c / b])
        found.append(roots.real.max())
    return np.array(found), m, rest, e


def gain_of_strength(a, table):
    """The mean terms of the bound for a strength, at the best sizes for it."""
    n, now = table[0], table[5]
    s, m, rest, e = best_sizes(a, table)
    change = s - now
    with np.errstate(invalid="ignore"):
        ratio = np.where(change * e == 0.0, 1.0, np.log1p(change * e) / (change * e))
    loss = m * np.log(s / now) + rest * change * ratio
    terms = gammaln(a + n) - (a + n) * (np.log((a + n) / s) - 1.0) - a * s - loss
    return a * np.log(a) - gammaln(a) + terms.mean()


def dof_and_scale(settings, table, limits, d, floor, largest):
    old, least, most, constant, eta, _ = settings
    rows, difference, growth = table
    k = len(rows)

    def halves(dof):
        return 0.5 * ((dof + difference + rows)[:, None] - np.arange(d))

    def best_factor(dof):
        before = dof + difference

        def slope(c):
            _, first, second = changes(limits, d, c * growth)
            value = float((d * before - (before + rows) * first).sum())
            return value / c, -(value + float(((before + rows) * second).sum())) / c**2

        return maximizer(slope, min(floor, 1.0), largest, 1.0)

    def log_det(dof):
        c = best_factor(dof)
        grown, first, second = changes(limits, d, c * growth)
        value = (psi(halves(dof)).sum() - psi(halves(old)).sum()) / k - grown.mean()
        derivative = 0.5 * zeta(2.0, halves(dof)).sum() / k
        curvature = float((2.0 * halves(dof)[:, 0] * second).sum())
        if c > floor and curvature > 0.0:
            derivative += (d - first).sum() ** 2 / k / curvature
        value += d * np.log(c)
        if eta < np.inf:
            of_prior = 0.5 * (eta + k * dof - np.arange(d))
            value += psi(of_prior).sum() + d * np.log(2.0 / (eta + k * dof))
            derivative += k * (0.5 * zeta(2.0, of_prior).sum() - d / (eta + k * dof))
        return value, derivative

    own = psi(halves(old)).sum() / k + d * np.log(2.0) + constant
    dof = wishart_dof(d, own, log_det, old, (least, most)) if least < most else old
    return dof, best_factor(dof)


def inner(left, right, solved, factors, means):
    """Products with M⁻¹ of all components, given those of ``right`` with W."""
    own = (left * solved).sum(axis=1)
    return own + factors * (left * means).sum(axis=1) * (right * means).sum(axis=1)


def step_of_mean(counts, dof, factors, moved, solved, along, of_along, means, most):
    some = counts > 0.0
    rest = (factors[0] + inner(moved, moved, solved, factors[1], means))[some]
    mixed = inner(moved, along, of_along, factors[1], means)[some]
    square = inner(along, along, of_along, factors[1], means)[some]

    def value(step):
        return -float(dof[some] @ np.log(rest + step * (step * square - 2.0 * mixed)))

    grid = np.linspace(1.0, most, 20_001)
    return grid[np.argmax([value(step) for step in grid])]


def strength_of_means(counts, dof, factors, moved, solved, means, d, most, old, least):
    some = counts > 0.0
    n, q = counts[some], dof[some]
    squares = inner(moved, moved, solved, factors, means)[some]

    def slope(beta):
        total, grown = beta + n, n**2 + beta * (n + squares)
        rise, loss = d * n / (beta * total), q * n * squares / (grown * total)
        fall = d * n * (beta + total) / (beta * total) ** 2
        second = loss * ((n + squares) / grown + 1.0 / total) - fall
        return float((rise - loss).sum()), float(second.sum())

    return maximizer(slope, least, most, old)


def change_of_means(scales, moved, solved, turned, again, n_components):
    """The results of the kernel, by matrices of two rows for each component."""
    parts = [(scales[:, None] * x).reshape(2, n_components, -1) for x in (moved, solved, turned)]
    u, w, v = (np.moveaxis(x, 0, 1) for x in parts)
    other = np.moveaxis((scales[:, None] * again).reshape(2, n_components, -1), 0, 1)
    signs, found = np.diag([-1.0, 1.0]), np.empty((3, n_components))
    for k in range(n_components):
        small = np.eye(2) + signs @ u[k] @ w[k].T
        lost = np.linalg.solve(small, signs @ w[k] @ v[k].T)
        twice = np.linalg.solve(small, signs @ v[k] @ other[k].T)
        found[:, k] = (
            np.linalg.slogdet(small)[1],
            np.trace(lost),
            np.trace(lost @ lost - 2.0 * twice),
        )
    return found


def factors_of_entries(shares, before, after, largest):
    """The best factors, one column after the other, and the rise."""

    def best(p):
        def slope(x):
            share = p * x / (1.0 + p * (x - 1.0))
            first, second = before.sum() - after @ share, after @ (share * (share - 1.0))
            return first / x, (second - first) / x**2

        return maximizer(slope, 1.0 / largest, largest, 1.0)

    factors = np.array([best(p) for p in shares.T])
    logs = np.log1p(shares * (factors - 1.0))
    return factors, 0.5 * (before.sum() * np.log(factors) - after @ logs).sum()
