"""Refits of sparse factors: some of them are fitted anew to what the others leave of the rows."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from ._dependence import correlations, drawn_rows, in_order, principal

# So many rows are fitted.
_ROWS = 500
# A refit is tried with these numbers of factors, with so many starts for each of them but one, and
# by rounds of EM, in the first of which evidence counts by these shares.
_SIZES, _STARTS, _ROUNDS = (2, 3), 6, 15
_SHARES = np.geomspace(0.1, 1.0, 7)
# Rounds after the best of these.
_LAST = 40
# Activations depend on each other if their correlation is larger than so many standard deviations.
_DEPENDENT = 4.0
# Gains below this number of nats per row are left to chance.
_CHANCE = 0.005
# A learned probability of activations stays so far from 0 and 1.
_LEAST = 0.01


class Refitted(NamedTuple):
    """Factors that were fitted anew."""

    numbers: np.ndarray
    loadings: np.ndarray  # in units of the noise, (len(numbers), n_features)
    activation_prior: np.ndarray  # (len(numbers),)


class _Fit(NamedTuple):
    """Factors of rows in a few dimensions, their log evidence and moments of each row."""

    loadings: np.ndarray
    activation_prior: np.ndarray
    log_evidence: float
    means: np.ndarray  # E u, (n_rows, n_factors)
    second: np.ndarray  # Σ w E u uᵀ


def refitted(
    values: np.ndarray,
    weights: np.ndarray,
    factors: np.ndarray,
    activations: np.ndarray,
    loadings: np.ndarray,
    activation_prior: np.ndarray,
    learns: bool,
    rng: np.random.Generator,
) -> Refitted | None:
    """Return some factors as fitted anew to what the others leave; None if none are better.

    Two factors whose loadings are mixtures of those of two others explain as much of the rows, but
    both of them in rows that one of the others would explain alone. Their activations therefore
    depend on each other, and such factors are chosen, up to chance. They are fitted over all of
    their states, in the few dimensions that they span, from loadings along random rows.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_features)
        The residuals of the rows, in units of the noise.
    weights : ndarray of shape (n_rows,)
    factors, activations : ndarray of shape (n_rows, n_components)
        E u and E z.
    loadings : ndarray of shape (n_components, n_features)
        In units of the noise.
    activation_prior : ndarray of shape (n_components,)
    learns : bool
        Whether it is learned.
    rng : numpy.random.Generator
    """
    if len(values) > _ROWS:
        some = np.sort(rng.permutation(len(values))[:_ROWS])
        values, weights, factors, activations = (
            part[some] for part in (values, weights, factors, activations)
        )
    if not np.isfinite((values**2).sum() + (factors**2).sum() + (loadings**2).sum()):
        return None
    dependence = correlations(activations, weights)
    if dependence.max() * np.sqrt(weights.sum()) < _DEPENDENT:
        return None
    order = in_order(dependence.max(axis=1), dependence, max(_SIZES), rng)
    gain, found = 2.0 * _CHANCE * weights.sum(), None
    for size in sorted({min(size, len(loadings)) for size in _SIZES}):
        chosen = order[:size]
        rest = values + factors[:, chosen] @ loadings[chosen]
        roots = np.sqrt(weights / weights.sum())[:, None]
        basis = principal(rest * roots, size)[1]
        y, states = rest @ basis.T, np.array(list(product((0.0, 1.0), repeat=size)))
        own = activation_prior[chosen]
        before = _fitted(y, weights, loadings[chosen] @ basis.T, own, states, learns, np.ones(3))
        for _ in range(_STARTS * (size - 1)):
            energies = (y**2).sum(axis=1)
            start = y[drawn_rows(weights * energies, energies, size, rng)]
            shares = np.append(_SHARES, np.ones(_ROUNDS - len(_SHARES)))
            fit = _fitted(y, weights, start, own, states, learns, shares)
            if fit.log_evidence - before.log_evidence > gain:
                gain = fit.log_evidence - before.log_evidence
                found = chosen, rest, (y, weights, fit.loadings, fit.activation_prior, states)
    if found is None:
        return None
    chosen, rest, best = found
    fit = _fitted(*best, learns, np.ones(_LAST))
    wide = np.linalg.solve(fit.second + np.eye(len(chosen)), (fit.means.T * weights) @ rest)
    return Refitted(chosen, wide, fit.activation_prior)


def _fitted(
    y: np.ndarray,
    weights: np.ndarray,
    loadings: np.ndarray,
    activation_prior: np.ndarray,
    states: np.ndarray,
    learns: bool,
    shares: np.ndarray,
) -> _Fit:
    """Return the factors to which EM over all states leads from given loadings."""
    m = states.shape[1]
    for share in shares:
        # E s given a state, and its precision, where factors that are off have u = 0.
        gram = loadings @ loadings.T
        precisions = np.eye(m) + states[:, :, None] * gram * states[:, None, :]
        covariances = np.linalg.inv(precisions)
        drive = (y @ loadings.T)[:, None] * states
        means = np.einsum("nza,zab->nzb", drive, covariances) * states
        scores = 0.5 * (means * drive).sum(axis=2) - 0.5 * np.linalg.slogdet(precisions)[1]
        scores += states @ np.log(activation_prior) + (1 - states) @ np.log1p(-activation_prior)
        evidence = logsumexp(scores, axis=1)
        odds = share * scores
        odds = np.exp(odds - logsumexp(odds, axis=1, keepdims=True)) * weights[:, None]
        spread = states[:, :, None] * covariances * states[:, None, :]
        second = np.einsum("nz,nza,nzb->ab", odds, means, means, optimize=True)
        second += np.einsum("z,zab->ab", odds.sum(axis=0), spread)
        expected = np.einsum("nz,nza->na", odds, means) / weights[:, None]
        loadings = np.linalg.solve(second + np.eye(m), (expected.T * weights) @ y)
        if learns:
            active = (odds.sum(axis=0) @ states) / weights.sum()
            activation_prior = active.clip(_LEAST, 1.0 - _LEAST)
    return _Fit(loadings, activation_prior, float(weights @ evidence), expected, second)
