"""Components whose observations are rows of counts with a variance above their mean.

A count has a Poisson distribution whose rate is drawn anew for each cell, from a gamma distribution
of the shape r_d of its column. With the rate integrated out it is negative binomial,

    p(x | z = k) = Γ(x + r_d) / (Γ(r_d) x!) · p_kd^{r_d} (1 − p_kd)^x,    p_kd ~ Beta(r_d w, s),

of mean m = r (1 − p) / p and variance m + m² / r. Given r, the prior is conjugate: rows add their
number to w, and their counts to s. Both therefore mean what the rate and the shape of a gamma prior
of a Poisson rate mean, and the model becomes that of Poisson counts as r → ∞.

The factor of the Γ functions depends on the data and on r alone, and not on z. Given q(z), the
bound at its maximum over q(p) is therefore a function of r that needs no more of the data than how
often each count occurs in each column:

    G(r) = Σ_n [log Γ(x_n + r) − log Γ(r)]
           + Σ_k [log B(r (w + N_k), s + S_k) − log B(r w, s)],

where N_k and S_k are sums of responsibilities and of counts. The shapes r maximise it, one column
at a time.

References
----------
Anscombe (1950), Sampling theory of the negative binomial and logarithmic series distributions;
Johnson, Kemp, Kotz (2005), Univariate Discrete Distributions, for the beta negative binomial
distribution, which is the predictive one.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from ...data.units import Rows
from ...families import (
    Factor,
    Natural,
    ScaledBeta,
    digamma_excess,
    log_beta,
    log_beta_negative_binomial,
    log_multichoose,
    log_negative_binomial,
)
from .._base import compiled
from .._draws import drawn_counts
from ._base import BOUNDS, Draws, moved
from ._gamma_rates import LARGE_RATE, CountRates, Moments, divided
from ._linear import Coefficients, kernels, points_of
from ._predictive_moments import CellMoments

# Bounds of a shape r. At the upper one, which is multiplied by means above 1, the variance exceeds
# that of a Poisson count by a share of 1e-4. At the lower one nearly all cells are zero.
_SHAPES = (1e-3, 1e4)
# How often the shape and the rate of a prior are learned in turns. They are nearly independent.
_TURNS = 3
# The numbers by which the kernel knows what is learned.
_LEARNS = {frozenset({"rate"}): 0, frozenset({"shape"}): 1, frozenset({"shape", "rate"}): 2}
# A variance counts if the beta distribution of p has at least this first parameter; it does not
# exist up to 2.
_SMALLEST_STRENGTH = 2.1
# Odds of p beyond the exponential of this belong to no counts that there are.
_LARGEST_LOG_ODDS = 600.0
# log Γ(x + r) is tabulated for all counts up to the largest if that is below this share of the
# number of rows.
_SHARE_OF_TABLE = 0.25


class Histogram(NamedTuple):
    """How often each count above zero occurs in each column."""

    columns: np.ndarray  # (n_entries,)
    values: np.ndarray  # the counts, in rising order within a column, (n_entries,)
    weights: np.ndarray  # the weight of the cells that have them, (n_entries,)

    @classmethod
    def of(cls, rows: Rows) -> Histogram:
        """Count the cells of rows."""
        X: Any = rows.X
        X = X.tocsc() if issparse(X) else X
        weights = np.ones(X.shape[0]) if rows.weights is None else rows.weights
        found: list[tuple[np.ndarray, ...]] = []
        for d in range(X.shape[1]):
            if issparse(X):
                part = slice(X.indptr[d], X.indptr[d + 1])
                x, own = np.asarray(X.data[part], dtype=np.float64), weights[X.indices[part]]
            else:
                x, own = np.asarray(X[:, d], dtype=np.float64), weights
            seen = x > 0
            values, where = np.unique(x[seen], return_inverse=True)
            total = np.bincount(where.ravel(), own[seen], len(values))
            found.append((np.full(len(values), d), values, total))
        return cls(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def merge(self, other: Histogram) -> Histogram:
        """Return the histogram of both sets of rows together."""
        columns, values, weights = (np.concatenate(pair) for pair in zip(self, other, strict=True))
        order = np.lexsort((values, columns))
        columns, values, weights = columns[order], values[order], weights[order]
        new = np.append(True, (np.diff(columns) > 0) | (np.diff(values) > 0))[: len(values)]
        sums = np.bincount(np.cumsum(new) - 1, weights, int(new.sum()))
        return Histogram(columns[new], values[new], sums)

    def sums(self, of_entries: np.ndarray, n_features: int) -> np.ndarray:
        """Return Σ weight · value of some function of the entries, (n_features,)."""
        return np.bincount(self.columns, self.weights * of_entries, n_features)


class CountMoments(NamedTuple):
    """The moments of some rows, and their counts."""

    # As in :class:`Moments`.
    seen: float
    mean: np.ndarray
    observed: np.ndarray
    counts: Histogram

    def merge(self, other: CountMoments) -> CountMoments:
        """Return the moments of both sets of rows together."""
        moments = Moments(*self[:3]).merge(Moments(*other[:3]))
        return CountMoments(*moments, self.counts.merge(other.counts))


class Shares(NamedTuple):
    """E log p(x | z = k) of columns of small and of large counts.

    Large counts whose shape r is moderate have small terms x E log(1 − p), so that a column is
    large only if its shape is, too.
    """

    # Those of the columns that are not large; of all columns if ``large`` has none.
    coefficients: Any
    large: np.ndarray  # the columns whose r and a mean are above 1e5, (n_large,)
    shapes: np.ndarray  # r of these columns, (n_large,)
    # The odds o of p in these columns, as well as E log(1 − p) + log(1 + o) and
    # r (E log p + log(1 + 1 / o)), (n_large, n_components).
    odds: np.ndarray
    per_count: np.ndarray
    constants: np.ndarray

    @classmethod
    def of(cls, r: np.ndarray, log_odds: np.ndarray, both: Coefficients, excess: Any) -> Shares:
        """Divide the columns, given E log(1 − p) and r E log p as coefficients of all columns.

        ``excess(large)`` returns the last two fields for some columns, transposed.
        """
        log_odds = np.clip(log_odds, -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
        most = r * np.exp(-log_odds.min(axis=0))
        is_large = (r > LARGE_RATE) & (most > LARGE_RATE)
        where, odds = np.flatnonzero(is_large), np.exp(log_odds[:, is_large])
        apart = (np.ascontiguousarray(each.T) for each in (odds, *excess(where)))
        small = Coefficients(*(each[:, ~is_large] for each in both)) if len(where) else both
        return cls(small, where, r[where], *apart)


class Totals(NamedTuple):
    """The prior of each component and what the data add to it, all (n_components, n_features)."""

    # W and s.
    prior_rate: np.ndarray
    prior_shape: np.ndarray
    # W + N_k and s + S_k.
    rate: np.ndarray
    shape: np.ndarray

    def evidence(self, r: np.ndarray) -> np.ndarray:
        """Return Σ_k log B(r (w + N_k), s + S_k) − log B(r w, s), (n_features,)."""
        of_q, of_prior = (r * self.rate, self.shape), (r * self.prior_rate, self.prior_shape)
        return (log_beta(*of_q) - log_beta(*of_prior)).sum(axis=0)


class NegativeBinomialComponents(CountRates):
    """Distributions of vectors of over-dispersed counts, with conjugate priors given their shapes.

    The entries of a vector are independent given its component. The natural parameters ``shape``
    and ``rate`` of q(p) are s + S_k and w + N_k, of shape (n_components, n_features). The other
    parameters are those of :class:`GammaRates`.

    Attributes
    ----------
    count_shapes : ndarray of shape (n_features,)
        r. :meth:`resolved` sets them to those of a single component, and :meth:`learned` to those
        that maximise the bound.
    counts : Histogram
    observed : ndarray of shape (n_features,)
        The weight of the observed cells of each column that ``counts`` describes.
    """

    count_shapes: np.ndarray
    counts: Histogram
    observed: np.ndarray
    why_no_log_volume = (
        "log C(T) sums the tempered density of a row over all possible rows, and no formula for "
        "this sum is known for negative binomial counts"
    )
    why_no_exact_gradient = (
        "the gradient of a draw is not available in the parameters that shapes multiply"
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.learns = True

    # Data and parameters

    def summary(self, rows: Rows) -> Any:
        return CountMoments(*super().summary(rows), Histogram.of(rows))

    def resolved(self, summary: Any) -> NegativeBinomialComponents:
        found: Any = super().resolved(summary)
        found.counts, found.observed = summary.counts, summary.observed
        n, size = summary.observed, (1, self.n_features)
        w, s = (np.broadcast_to(x[:1], size) for x in (found.rate, found.shape))
        found.count_shapes = found._best_count_shapes(
            Totals(w, s, w + n, s + n * summary.mean), np.ones(self.n_features)
        )
        return found

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor(ScaledBeta(self.count_shapes), {"shape": "shape", "rate": "rate"}),)

    # Learned hyperparameters

    def _learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[NegativeBinomialComponents, Natural]:
        learned = copy(self)
        best = self._best_count_shapes(self._totals(q, prior), self.count_shapes)
        learned.count_shapes = moved(self.count_shapes, best, rho)
        if self.learned_names:
            shape, rate = learned._best_prior(q, prior)
            learned.shape, learned.rate = moved(self.shape, shape, rho), moved(self.rate, rate, rho)
        return learned, learned.prior(None)

    def _totals(self, q: Natural, prior: Natural) -> Totals:
        """Return w, s and the sums of rows and counts of q, which add up to those of the data.

        The sums of a noisy update, or of a minibatch, are near those of the data. What they have
        too much would decide about the shape r, of which the data say less than of their mean.
        """
        n = np.maximum(q["rate"] - prior["rate"], 0.0)
        s = np.maximum(q["shape"] - prior["shape"], 0.0)
        total = self.counts.sums(self.counts.values, self.n_features)
        n = n * _ratio(self.observed, n.sum(axis=0))
        s = s * _ratio(total, s.sum(axis=0))
        return Totals(prior["rate"], prior["shape"], prior["rate"] + n, prior["shape"] + s)

    def _best_count_shapes(self, totals: Totals, starts: np.ndarray) -> np.ndarray:
        """Return the r of each column that maximises G(r), or ``starts`` where that is higher."""
        h, d = self.counts, self.n_features
        starts = np.clip(starts, _SHAPES[0], upper := _SHAPES[1] * np.maximum(self.mean, 1.0))

        def height(r: np.ndarray) -> np.ndarray:
            # Without a term that does not depend on r, but is larger than all others.
            return h.sums(log_multichoose(h.values, r[h.columns]), d) + totals.evidence(r)

        of_all = totals.rate, totals.shape, totals.prior_rate, totals.prior_shape
        first = np.searchsorted(h.columns, np.arange(d + 1))
        # Weights of a histogram without entries are integers.
        given = (np.ascontiguousarray(x, np.float64) for x in (*of_all, h.values, h.weights))
        *sums, values, weights = given
        entries, best = (first, values, weights), starts.copy()
        compiled("empirical_bayes").count_shapes(*sums, *entries, _SHAPES[0], upper, best)
        return np.where(height(best) > height(starts), best, starts)

    def _best_prior(self, q: Natural, prior: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Return the shape s and the rate w of each column under which the bound is highest.

        The bound has the terms s E log(1 − p) + w r E log p − log B(r w, s) for each component.
        They are maximised over those that are learned, one after the other: over w given s, and
        over s given the prior's mean s / w, or given w.
        """
        factor = self.factors[0]
        expected = factor.family.expectations(factor.pick(q))
        logs = np.stack([expected["shape"].mean(axis=0), expected["rate"].mean(axis=0)])
        least, most = self._means_allowed(q, prior)
        found = np.stack([self.shape[0], self.rate[0]])
        if "shape" not in self.learned_names:
            found[0] = self.shape.mean(axis=0)
        means = np.stack([least, most, self.mean if self.follows else np.zeros(len(least))])
        learns = _LEARNS[frozenset(self.learned_names)]
        given = logs, self.count_shapes, means, learns, *BOUNDS, _TURNS
        compiled("empirical_bayes").scaled_beta_priors(*given, found)
        return found[0], found[1]

    @property
    def n_parameters(self) -> int:
        return (self.n_components + 1) * self.n_features

    # Rows: log p = x log(1 − p) + r log p + c(x)

    def expected_coefficients(self, q: Natural) -> Shares:
        (factor,) = self.factors
        expected, r = factor.family.expectations(factor.pick(q)), self.count_shapes
        a, b = r * q["rate"], q["shape"]

        def excess(large: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            c, d = a[:, large], b[:, large]
            total = digamma_excess(c + d)
            return digamma_excess(d) - total, r[large] * (digamma_excess(c) - total)

        both = Coefficients(expected["shape"], expected["rate"])
        return Shares.of(r, np.log(a) - np.log(b), both, excess)

    def coefficients(self, draws: Draws) -> Shares:
        (draw,) = draws
        return self._at(draw["log_gamma"][..., 0] - draw["log_gamma"][..., 1])

    def plug_in(self, q: Natural) -> Shares:
        return self._at(np.log(self.count_shapes * q["rate"]) - np.log(q["shape"]))

    def _at(self, log_odds: np.ndarray) -> Shares:
        """Return log p(x | z = k), given the logarithms of the odds of p."""
        r, size = self.count_shapes, self.n_components
        both = Coefficients(-np.logaddexp(0.0, log_odds), -r * np.logaddexp(0.0, -log_odds))
        return Shares.of(r, log_odds, both, lambda large: np.zeros((2, size, len(large))))

    def for_rows(self, expected: Shares, rows: Rows) -> Shares:
        coefficients = super().for_rows(expected.coefficients, rows)
        return expected._replace(coefficients=coefficients)

    def log_density(self, rows: Rows, expected: Shares) -> np.ndarray:
        if len(expected.large) == 0:
            return super().log_density(rows, expected.coefficients)
        small, columns, large = divided(rows, expected.large)
        of_small = copy(self)
        of_small.n_features, of_small.count_shapes = len(columns), self.count_shapes[columns]
        density = super(NegativeBinomialComponents, of_small).log_density
        out = np.ascontiguousarray(density(small, expected.coefficients))
        if rows.plain:
            x, r = large[..., None], expected.shapes[:, None]
            terms = log_negative_binomial(x, r, expected.odds) + x * expected.per_count
            return out + np.nansum(terms + expected.constants, axis=1)
        kernels().add_large_clustered_counts(large, *expected[2:], out)
        return out

    def _carrier(self, X: np.ndarray) -> np.ndarray:
        largest = X.max(initial=0.0)
        if largest >= _SHARE_OF_TABLE * len(X):
            return log_multichoose(X, self.count_shapes).sum(axis=1)
        table = log_multichoose(np.arange(largest + 1.0)[:, None], self.count_shapes)
        return table[X.astype(np.intp), np.arange(X.shape[1])].sum(axis=1)

    def _sparse_carrier(self, X: Any) -> np.ndarray:
        each = log_multichoose(np.nan_to_num(X.data), self.count_shapes[X.indices])
        return np.bincount(np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), each, X.shape[0])

    def embedding(self, rows: Rows) -> Any:
        # Distances of raw counts would be those of the few largest.
        points = points_of(rows)
        return points.log1p() if issparse(points) else np.log1p(points)

    # Predictions, which integrate over p

    def _log_predictive(self, x: np.ndarray, d: int, q: Natural) -> np.ndarray:
        """Return the log densities of beta negative binomial distributions."""
        r = self.count_shapes[d]
        return log_beta_negative_binomial(x, r, r * q["rate"][:, d], q["shape"][:, d])

    def predictive_moments(self, q: Natural) -> CellMoments:
        r, b = self.count_shapes, q["shape"]
        a = r * q["rate"]
        # There is no mean if a is at most 1, and no variance if it is at most 2. The moments at the
        # posterior mean of p take their places.
        plug_in = self.plug_in_moments(q)
        exists = a >= _SMALLEST_STRENGTH
        safe = np.where(exists, a, 3.0)
        mean = np.where(exists, r * b / (safe - 1.0), plug_in.mean)
        variance = (safe + r - 1.0) * (safe + b - 1.0) / ((safe - 1.0) * (safe - 2.0)) * mean
        return CellMoments(mean, np.where(exists, variance, plug_in.variance), exists)

    def plug_in_moments(self, q: Natural) -> CellMoments:
        mean = q["shape"] / q["rate"]
        return CellMoments(mean, mean * (1.0 + mean / self.count_shapes))

    def drawn_cells(
        self,
        labels: np.ndarray,
        columns: np.ndarray,
        expected: Shares,
        rng: np.random.Generator,
    ) -> np.ndarray:
        r, odds = self.count_shapes, np.empty((self.n_features, self.n_components))
        small = np.setdiff1d(np.arange(self.n_features), expected.large)
        slopes, cells = expected.coefficients
        odds[small] = np.exp(cells / r[small] - slopes).T
        odds[expected.large] = expected.odds
        rates = rng.standard_gamma(r[columns]) / odds[columns, labels]
        return drawn_counts(rng, rates).astype(np.float64)


def _ratio(total: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return by what sums have to be multiplied to have a total; 1 where there is none."""
    return np.divide(total, found, out=np.ones(len(total)), where=(found > 0) & (total > 0))
