"""The density of data points under the posterior given the others, without fits to those.

The posterior of a conjugate model is the prior plus the statistics of all data points, so that one
is left out by leaving its statistics out. The assignments of the others and the priors that are
learned stay as they are [1]_. Data points are rows, or whole sequences of frames.

Rows can be equal by chance. A row of weight 3 is therefore three of them, which are left out one
after another. Sequences of several frames are equal because they were repeated. One of weight 3 is
left out as a whole, because the rest of it would say what the frames of this part are, and counts
as one where the standard error is computed.

References
----------
.. [1] Geisser, Eddy (1979). A predictive approach to model selection. Journal of the American
   Statistical Association 74.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..families import Natural

# This many parts of the data points are left out, one after another.
N_PARTS = 20
# Fits anew leave out so many parts of the rows, one after another.
N_FOLDS = 5
_TINY = 1e-300
_ROUNDING = 1e-12


class LeftOut(NamedTuple):
    """The log densities of data points, each given those of other parts."""

    log_densities: np.ndarray  # nats, (n_units,)
    weights: np.ndarray  # the weights of these data points, which may be a sample, (n_units,)
    total_weight: float  # the weight of all data
    # Whether the model is right that an observation says no more of another one than both say of
    # the parameters, as rows do. Frames of a sequence resemble each other more than states say.
    # Nor are copies of a sequence other ones.
    independent: bool = True

    @property
    def total(self) -> float:
        """Σ_n w_n log p(x_n | other rows) of all data, nats."""
        return float(self.total_weight * np.average(self.log_densities, weights=self.weights))

    def rise_over(self, other: LeftOut) -> float:
        """Return by how much the total is above another one of the same rows, nats.

        The standard error of the difference is subtracted. Fits that failed leave densities of −∞;
        the rise is −∞ where those of this total did, and else +∞ where those of the other did.
        """
        own, others = (np.isfinite(each.log_densities).all() for each in (self, other))
        if not (own and others):
            return np.inf if own else -np.inf
        difference = self.log_densities - other.log_densities
        mean = np.average(difference, weights=self.weights)
        variance = np.average((difference - mean) ** 2, weights=self.weights)
        return float(self.total_weight * (mean - np.sqrt(variance / self._n_independent)))

    @property
    def _n_independent(self) -> float:
        """The number of independent data points, which for sequences is that of Kish (1965)."""
        total = float(self.weights.sum())
        return total if self.independent else total**2 / float(self.weights @ self.weights)


def left_out(model: Any, units: Any, q: Natural, summary: Any, prior: Natural) -> LeftOut:
    """Return the log densities of data points, each given those of other parts.

    Parameters
    ----------
    model : Mixture or HiddenMarkov
    units : Rows or Sequences
        Data points in memory, which may be a sample.
    q, prior : dict of ndarray
    summary : object
        That of all data.
    """
    units = units.centered(summary)
    weights = np.ones(units.n_units) if units.weights is None else np.asarray(units.weights)
    sums = np.zeros(units.n_units)
    independent = not units.copies_are_one
    for part in dealt(weights, whole=not independent).T:
        rows = np.flatnonzero(part)
        if len(rows):
            kept = 1.0 - part / np.maximum(weights, _TINY)
            others = _posterior(model, units, kept, q, prior, summary.weight / units.total_weight)
            sums[rows] += part[rows] * model.log_predictive(units.take(rows), others)
    return LeftOut(sums / np.maximum(weights, _TINY), weights, float(summary.weight), independent)


def folds(weights: np.ndarray, rng: np.random.Generator, *, whole: bool = False) -> np.ndarray:
    """Deal rows to folds in random order; return the weight of each row in each fold.

    Rows whose order repeats itself, as drawn ones of one group after another do, would lose whole
    groups if they were dealt by turns. The result has the shape (n_rows, N_FOLDS). ``whole`` is
    that of :func:`dealt`.
    """
    order = rng.permutation(len(weights))
    shares = np.empty((len(weights), N_FOLDS))
    dealt_now = dealt(weights[order], whole=whole)
    shares[order] = dealt_now.reshape(len(weights), -1, N_FOLDS).sum(axis=1)
    return shares


def dealt(weights: np.ndarray, *, whole: bool = False) -> np.ndarray:
    """Deal rows to parts by turns; return the weight of each row in each part, (n_rows, N_PARTS).

    A row of weight 3 is three equal rows, which go to three parts, or to one of them if rows remain
    ``whole``. Rows that weigh less than one on average are dealt in pieces of this average.
    """
    if whole:
        return weights[:, None] * np.equal.outer(
            np.arange(len(weights)) % N_PARTS, np.arange(N_PARTS)
        )
    ends = np.cumsum(weights / min(1.0, weights.mean()))
    starts = np.concatenate([[0.0], ends[:-1]])

    def before(x: np.ndarray) -> np.ndarray:
        """Return how much of the interval from 0 to x belongs to each part."""
        rounds = np.floor(x / N_PARTS)[:, None]
        return rounds + np.clip(x[:, None] - N_PARTS * rounds - np.arange(N_PARTS), 0.0, 1.0)

    shares = before(ends) - before(starts)
    return shares * (weights / np.maximum(shares.sum(axis=1), _TINY))[:, None]


def without(units: Any, share: np.ndarray) -> Any:
    """Return the data points less this share of the weight of each, (n_units,)."""
    whole = np.ones(units.n_units) if units.weights is None else np.asarray(units.weights)
    kept = whole - share
    # Differences of fractional weights are not exact.
    index = np.flatnonzero(kept > _ROUNDING * whole)
    rest = units.take(index)
    if not np.array_equal(kept[index], whole[index]):
        rest.weights = kept[index]
    return rest


def _posterior(
    model: Any, units: Any, kept: np.ndarray, q: Natural, prior: Natural, scale: float
) -> Natural:
    """Return the posterior given these shares of data points, assigned as q assigns them."""
    visit = model.visit(q, units)
    step = visit.finish(visit.step(visit.view(units), kept))
    raw = {key: scale * value for key, value in step.statistics.items()}
    for block in model.blocks:
        added = model.block_statistics(block, raw, q)
        q = q | {key: prior[key] + value for key, value in added.items()}
    return q
