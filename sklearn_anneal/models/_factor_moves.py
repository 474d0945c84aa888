"""Moves of the factors of sparse factor analysis.

A swap gives a factor up and looks for another one in the residuals of the rows. A merge replaces
two factors with the same loadings by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit

# How many new factors are compared in a guided swap.
CANDIDATES = 4
# Rounds of EM by which a new factor is refined.
_ROUNDS = 6
# Factors are merged if the |cosine| of their loadings is larger.
_ALIKE = 0.95
# Differences of what factors bring below this share are left to chance.
_CHANCE = 0.5


@dataclass(frozen=True)
class Residuals:
    """The residuals of some rows: their values less those that the factors predict."""

    values: np.ndarray  # in units of the noise, (n_rows, n_features); 0 where a cell is missing
    # 1 where a cell is observed and 0 where it is missing, (n_rows, n_features); None if none of
    # the data is missing.
    observed: np.ndarray | None
    weights: np.ndarray  # (n_rows,)

    def lengths(self, squares: np.ndarray) -> np.ndarray:
        """Return Σ of squared loadings over the observed cells of rows.

        ``squares`` has shape (n_features,) or (n_features, n_components), and the result one row
        for each row of the data, or one for all.
        """
        return squares.sum(axis=0)[None] if self.observed is None else self.observed @ squares

    def without(self, factors: np.ndarray, loadings: np.ndarray) -> Residuals:
        """Return the residuals without some factors, (n_rows, n), and their loadings."""
        back = factors @ loadings
        values = self.values + (back if self.observed is None else back * self.observed)
        return replace(self, values=values)

    def drawn(self, rng: np.random.Generator) -> np.ndarray | None:
        """Return the residuals of a row, drawn by their squares; None if there are none."""
        energies = self.weights * (self.values**2).sum(axis=1)
        total = energies.sum()
        if not (np.isfinite(total) and total > 0):
            return None
        return self.values[rng.choice(len(self.values), p=energies / total)]


@dataclass(frozen=True)
class NewFactor:
    """A factor that explains residuals."""

    loadings: np.ndarray  # in units of the noise, (n_features,)
    activation_prior: float
    # The log evidence that it adds to the rows, less the KL divergence of its loadings, nats.
    gain: float


def evidence(
    drive: np.ndarray, own: np.ndarray, log_odds: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far a factor raises the log evidence of rows, nats, and its activations.

    ``drive`` (n_rows, …) is E[w]·r, where r is what the other factors leave of a row, ``own``
    (n_rows or 1, …) is E[w·w], and ``log_odds`` is log(π / (1 − π)).
    """
    logits = log_odds + 0.5 * (drive**2 / (1.0 + own) - np.log1p(own))
    return np.logaddexp(0.0, logits) - np.logaddexp(0.0, log_odds), expit(logits)


def sought(
    residuals: Residuals,
    start: np.ndarray,
    variance: float,
    activation_prior: float,
    learned: float | None,
) -> NewFactor:
    """Return the factor to which EM for a single factor leads from given loadings.

    Parameters
    ----------
    residuals : Residuals
    start : ndarray of shape (n_features,)
    variance : float
        The prior variance of its loadings.
    activation_prior : float
    learned : float or None
        How far a learned probability of activations stays from 0 and 1; None if it is given.
    """
    r, w = residuals.values, residuals.weights
    loadings, total = start, w.sum()
    for n in range(_ROUNDS + 1):
        own = residuals.lengths(loadings**2)
        drive = r @ loadings
        gains, active = evidence(drive, own, logit(activation_prior))
        if n == _ROUNDS:
            break
        if learned is not None:
            activation_prior = float(np.clip(w @ active / total, learned, 1.0 - learned))
        means = drive / (1.0 + own)
        squares = w * active * (means**2 + 1.0 / (1.0 + own))
        second = squares.sum() if residuals.observed is None else squares @ residuals.observed
        precision = second + 1.0 / variance
        loadings = (w * active * means) @ r / precision
    gain = float(w @ gains) - kl_of_loadings(loadings**2, 1.0 / precision, variance)
    return NewFactor(loadings, activation_prior, gain)


def kl_of_loadings(squares: np.ndarray, variances: np.ndarray, prior: float | np.ndarray) -> float:
    """Return KL(q(w) ‖ p(w)) of the loadings of one factor, nats."""
    ratio = variances / prior
    return float(0.5 * np.sum(squares / prior + ratio - 1.0 - np.log(ratio)))


def given_up(brought: np.ndarray, rng: np.random.Generator, guided: bool) -> int:
    """Return the factor to give up: the one that brings least, up to chance, or any one.

    ``brought`` (n_components,) is the gain of the bound by each factor, nats.
    """
    if not guided:
        return int(rng.integers(len(brought)))
    # The share that other factors take over is unknown, so that the loss has an error of this size.
    loss = np.log(np.maximum(brought, 1.0))
    return int(np.argmin(loss - _CHANCE * rng.gumbel(size=len(brought))))


def most_alike(loadings: np.ndarray, used: np.ndarray) -> tuple[int, int] | None:
    """Return the two factors whose loadings are most alike, up to signs; None if no two are.

    ``loadings`` has shape (n_components, n_features), and ``used`` the numbers of those compared.
    """
    if len(used) < 2:
        return None
    lengths = np.linalg.norm(loadings[used], axis=1)
    cosines = np.abs(loadings[used] @ loadings[used].T) / np.outer(lengths, lengths)
    first, second = np.triu_indices(len(used), 1)
    best = int(np.argmax(cosines[first, second]))
    if cosines[first[best], second[best]] < _ALIKE:
        return None
    return int(used[first[best]]), int(used[second[best]])
