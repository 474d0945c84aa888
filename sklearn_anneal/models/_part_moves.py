"""Moves of the parts of factorial mixtures: other parts for some of them, or for one, or none."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from ._dependence import correlations, drawn_rows, in_order, principal

# Rounds in which a new part is refined: its rows are those that it explains better than nothing.
_ROUNDS = 5
# The activations of a pair of parts, in the order of the numbers of its states.
_STATES_OF_PAIR = np.array([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
# Merges and refits look at so many rows.
_ROWS = 2000
# Merges look at so many pairs for each part, and at so many of these at a time.
_PAIRS, _PAIRS_AT_ONCE = 4, 16
# A refit is tried with these numbers of parts, and with so many starts of each, which are compared
# on so many rows.
_SIZES, _STARTS, _ROWS_OF_STARTS = (2, 3, 4, 5), 8, 300
# Their temperatures, in units of the variance of the rows. Assignments are hard at the last ones.
_TEMPERATURES = np.r_[np.geomspace(0.25, 0.0025, 12), [1e-12] * 3]
# The largest variance of residuals in a direction is so many times that of noise where there is
# something left to explain.
_EXCESS = 1.1
# Regressions add this share of the trace to the diagonal. A smaller one would let rounding errors
# grow where parts are active in the same rows.
_RIDGE = 1e-6
# Differences of losses below this number of nats per row are left to chance.
_CHANCE = 0.005


class Explained(NamedTuple):
    """Rows, and what is known of them."""

    activations: np.ndarray  # E z, (n_rows, n_components)
    X: np.ndarray  # relative to the center of the data and an offset, (n_rows, n_features)
    weights: np.ndarray  # (n_rows,)


class Replaced(NamedTuple):
    """The means of all parts after some of them were replaced."""

    means: np.ndarray  # (n_components, n_features)
    numbers: np.ndarray  # those that were replaced
    shares: np.ndarray  # the shares of the rows in which these are active


def swapped_means(
    means: np.ndarray,
    rows: Explained,
    noise_variance: float,
    rng: np.random.Generator,
    guided: bool,
) -> Replaced | None:
    """Return the means of all parts after one of them was replaced by one found in the residuals.

    The new part comes with the share of the rows in which it is active. In the place of a part that
    is in no row it would otherwise have the distribution of that part, which is as wide as the
    prior, and the rows would do better without it.

    Parameters
    ----------
    means : ndarray of shape (n_components, n_features)
    rows : Explained
    noise_variance : float
    rng : numpy.random.Generator
    guided : bool
        Whether the part that is given up is the one whose loss matters least, up to chance, and
        not any one.
    """
    activations, X, weights = rows
    residuals = X - activations @ means
    k = len(means)
    given_up = int(rng.integers(k))
    if guided:
        lengths = (means**2).sum(axis=1)
        explained = 2.0 * residuals @ means.T + lengths
        losses = weights @ (activations * explained) / (2.0 * noise_variance)
        chance = _CHANCE * weights.sum()
        given_up = int(np.argmin(losses - chance * rng.gumbel(size=k)))
    residuals += np.outer(activations[:, given_up], means[given_up])
    energies = (residuals**2).sum(axis=1)
    total = weights @ energies
    if not (np.isfinite(total) and total > 0):
        return None
    (number,) = drawn_rows(weights * energies, energies, 1, rng)
    found, share = residuals[number], weights[number]
    for _ in range(_ROUNDS):
        active = (residuals @ found > 0.5 * (found @ found)) * weights
        if not active.any():
            break
        share = active.sum()
        found = active @ residuals / share
    result = means.copy()
    result[given_up] = found
    return Replaced(result, np.array([given_up]), np.array([share]) / weights.sum())


def superfluous(
    means: np.ndarray,
    rows: Explained,
    noise_variance: float,
    mean_variance: float,
    rng: np.random.Generator,
) -> int | None:
    """Return the part without which the bound is likely to rise most; None if there is none.

    A part has to explain more of the rows, beyond what one other part would explain in its place,
    than its means cost, which is the divergence of their distribution from the prior. The prior
    variance of means is ``mean_variance``.
    """
    total = rows.weights.sum()
    rows = _some(rows, rng)
    activations, X, weights = rows
    scale = total / weights.sum()
    weights = scale * weights
    gram, along = means @ means.T, (X - activations @ means) @ means.T
    pairs = _dependent_pairs(activations, weights)
    least = np.full(len(means), np.inf)
    for begin in range(0, len(pairs), _PAIRS_AT_ONCE):
        some = pairs[begin : begin + _PAIRS_AT_ONCE]
        losses = _losses_of_pairs(some, gram, along, activations)
        both = losses.min(axis=2)
        for number, left in ((0, [0, 2]), (1, [0, 1])):
            found = (losses[:, :, left].min(axis=2) - both) @ weights / (2.0 * noise_variance)
            np.minimum.at(least, some[:, number], found)
    totals = weights @ activations
    variances = 1.0 / (1.0 / mean_variance + totals / noise_variance)
    ratios = variances / mean_variance
    lengths = np.diagonal(gram) / mean_variance
    costs = 0.5 * (lengths + means.shape[1] * (ratios - 1.0 - np.log(ratios)))
    # Parts that are in no row are not in use.
    gains = np.where(totals > 1.0, costs - least, -np.inf)
    best = int(np.argmax(gains))
    return best if gains[best] > 0.0 else None


def _some(rows: Explained, rng: np.random.Generator) -> Explained:
    """Return some of the rows."""
    if len(rows.X) <= _ROWS:
        return rows
    chosen = np.sort(rng.permutation(len(rows.X))[:_ROWS])
    return Explained(*(part[chosen] for part in rows))


def _dependent_pairs(activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the pairs of parts whose activations have the largest correlations, (n_pairs, 2)."""
    dependence = correlations(activations, weights)
    k = len(dependence)
    pairs = np.column_stack(np.triu_indices(k, 1))
    order = np.argsort(-dependence[pairs[:, 0], pairs[:, 1]], kind="stable")
    return np.asarray(pairs[order[: _PAIRS * k]])


def _losses_of_pairs(
    pairs: np.ndarray, gram: np.ndarray, along: np.ndarray, activations: np.ndarray
) -> np.ndarray:
    """Return squared distances of rows from all sums of pairs, up to what does not depend on these.

    They have the shape (n_pairs, n_rows, 4), where rows are less all other parts.
    """
    of_pairs = gram[pairs[:, :, None], pairs[:, None, :]]
    products = along.T[pairs] + np.einsum("pab,bpn->pan", of_pairs, activations.T[pairs.T])
    squares = np.einsum("sa,pab,sb->ps", _STATES_OF_PAIR, of_pairs, _STATES_OF_PAIR)
    return np.asarray(squares[:, None] - 2.0 * np.einsum("pan,sa->pns", products, _STATES_OF_PAIR))


def refitted_means(
    means: np.ndarray, rows: Explained, noise_variance: float, rng: np.random.Generator
) -> Replaced | None:
    """Return the means of all parts after some were fitted anew to what the others leave.

    Parts a − b and b explain the rows a by both of them, and none by a + b. No step changes the
    activations of nearly all rows at once, as it would take to find a and b, and the same holds for
    three parts that are mixtures of three others. The parts are those along which residuals are
    larger than noise, up to chance. They are fitted with an offset over all of their states, in the
    few dimensions that they span, at falling temperatures from several starts. A part that is on
    where it should be off has then no advantage, and a regression of the rows on all parts decides.
    The arguments are those of :func:`swapped_means`.
    """
    rows = _some(rows, rng)
    activations, X, weights = rows
    residuals, roots = X - activations @ means, np.sqrt(weights / weights.sum())[:, None]
    if not np.isfinite((residuals**2).sum()):
        return None
    variances, directions = principal(residuals * roots, 1)
    shape = 1.0 + np.sqrt(X.shape[1] / weights.sum())
    if not variances[0] > _EXCESS * noise_variance * shape**2:
        return None
    order = _to_refit(means, activations, weights, directions[0], rng)
    k = len(means)
    least, found = (
        _explained_by(activations, rows) - 2.0 * noise_variance * _CHANCE * weights.sum(),
        None,
    )
    for size in sorted({min(size, k) for size in _SIZES}):
        chosen = order[:size]
        rest = residuals + activations[:, chosen] @ means[chosen]
        y = rest @ principal(rest * roots, size + 1)[1].T
        states = np.array(list(product((0.0, 1.0), repeat=size)))
        active = _fitted_anew(y, weights, states, rng)
        for flipped in states:
            every = activations.copy()
            every[:, chosen] = np.where(flipped > 0.0, 1.0 - active, active)
            loss = _explained_by(every, rows)
            if loss < least:
                least, found = loss, (every, chosen)
    if found is None:
        return None
    every, chosen = found
    weighted = every.T * weights
    shares = weighted[chosen].sum(axis=1) / weights.sum()
    return Replaced(_solved(weighted @ every, weighted @ X), chosen, shares)


def _to_refit(
    means: np.ndarray,
    activations: np.ndarray,
    weights: np.ndarray,
    direction: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the numbers of parts in the order in which they are chosen for a refit.

    The first one has the largest coefficient in the regression of a direction on all parts. Others
    have large ones, too, or activations that depend on those of parts before them.
    """
    k = len(means)
    gram = means @ means.T
    # Parts can all be 0, where none is in use.
    ridge = (1e-3 * np.trace(gram) / k + np.finfo(float).tiny) * np.eye(k)
    along = np.abs(np.linalg.solve(gram + ridge, means @ direction))
    along *= np.sqrt(np.diagonal(gram))
    along /= max(along.max(), np.finfo(float).tiny)
    return in_order(along, correlations(activations, weights), max(_SIZES), rng)


def _explained_by(activations: np.ndarray, rows: Explained) -> float:
    """Return the sum of squares that a regression on activations explains, times −1."""
    weighted = activations.T * rows.weights
    first = weighted @ rows.X
    return -float((first * _solved(weighted @ activations, first)).sum())


def _solved(second: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the parts of regressions (…, m, D), some of which may never be active, or always."""
    m = second.shape[-1]
    ridge = _RIDGE * np.trace(second, axis1=-2, axis2=-1) + np.finfo(float).tiny
    return np.asarray(np.linalg.solve(second + ridge[..., None, None] * np.eye(m), first))


def _squares(y: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return ‖c‖² − 2 yᵀ c of rows and centers (…, n_centers, D), (…, n_rows, n_centers)."""
    return np.asarray((centers**2).sum(axis=-1)[..., None, :] - 2.0 * y @ centers.swapaxes(-1, -2))


def _fitted_anew(
    y: np.ndarray, weights: np.ndarray, states: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the activations of parts that were fitted to rows.

    They start at random rows, or at draws from a Gaussian, without an offset.
    """
    m, d = states.shape[1], y.shape[1]
    every = np.column_stack([states, np.ones(len(states))])
    rows = y
    if len(y) > _ROWS_OF_STARTS:
        rows = y[drawn_rows(weights, y[:, 0], _ROWS_OF_STARTS, rng)]
        own = np.full(_ROWS_OF_STARTS, weights.sum() / _ROWS_OF_STARTS)
    else:
        own = weights
    variance = float(own @ (rows**2).sum(axis=1) / own.sum())
    half = _STARTS // 2
    parts = np.zeros((_STARTS, m + 1, d))
    parts[:half, :m] = rows[drawn_rows(own, rows[:, 0], half * m, rng)].reshape(half, m, d)
    parts[half:, :m] = np.sqrt(variance / 4.0) * rng.standard_normal((_STARTS - half, m, d))
    for temperature in _TEMPERATURES * variance:
        losses = _squares(rows, every @ parts)
        shares = np.exp((losses.min(axis=-1, keepdims=True) - losses) / (2.0 * temperature))
        shares *= (own / shares.sum(axis=-1))[..., None]
        second = (every.T * shares.sum(axis=1)[:, None]) @ every
        parts = _solved(second, every.T @ (shares.swapaxes(1, 2) @ rows))
    best = (_squares(rows, every @ parts).min(axis=-1) @ own).argmin()
    return np.asarray(states[_squares(y, every @ parts[best]).argmin(axis=-1)])
