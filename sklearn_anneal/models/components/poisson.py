"""Components whose observations are rows of counts."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import gammaln

from ...data.units import Rows
from ...families import (
    Factor,
    Gamma,
    Natural,
    digamma_excess,
    log_negative_binomial,
    log_poisson,
)
from ...families._empirical_bayes import gamma_shape, gamma_shape_given_rate
from ._base import BOUNDS, least_mean, moved
from ._linear import Coefficients, LinearComponents, filled, kernels, points_of, unpacked
from ._predictive_moments import CellMoments

# Bounds of a prior mean that is learned, in multiples of the mean of the data. A component without
# events would otherwise draw it towards zero.
_MEANS = (1e-3, 1e3)
# Above this rate, x log λ − λ − log x! is far smaller than its terms, and loses more than
# their last digits: about 1e-10 nats at this rate, and tens of nats at 1e15.
_LARGE_RATE = 1e5
# The smallest rate that the kernel of large counts takes.
_SMALLEST_RATE = 1e-280


class Rates(NamedTuple):
    """E log p(x | z = k) of columns of small and of large counts.

    Attributes
    ----------
    coefficients : object
        Those of the columns without large rates; of all columns if ``large`` has none.
    large : ndarray of int, shape (n_large,)
        The columns in which the rate of a component is above 1e5.
    means, excess : ndarray of shape (n_large, n_components)
        E λ and E log λ − log E λ of these columns.
    """

    coefficients: Any
    large: np.ndarray
    means: np.ndarray
    excess: np.ndarray

    @classmethod
    def of(cls, means: np.ndarray, logs: np.ndarray, shape: np.ndarray | None = None) -> Rates:
        """Divide the columns, given E λ and E log λ, of shape (n_components, n_features).

        ``shape`` has the shapes of the gamma distributions; None stands for rates that are known.
        """
        is_large = (means > _LARGE_RATE).any(axis=0)
        if not is_large.any():
            nothing = np.empty((0, len(means)))
            return cls(Coefficients(logs, -means), np.flatnonzero(is_large), nothing, nothing)
        floor = np.maximum(means[:, is_large], _SMALLEST_RATE)
        tiny = means[:, is_large] < _SMALLEST_RATE
        excess = 0.0 if shape is None else digamma_excess(shape[:, is_large])
        own = np.where(tiny, logs[:, is_large] - np.log(floor), excess)
        return cls(
            Coefficients(logs[:, ~is_large], -means[:, ~is_large]),
            np.flatnonzero(is_large),
            np.ascontiguousarray(floor.T),
            np.ascontiguousarray(own.T),
        )

    def divided(self, rows: Rows) -> tuple[Rows, np.ndarray]:
        """Return the columns of small counts as rows, and the others as a dense float64 array."""
        X: Any = rows.X
        small = np.setdiff1d(np.arange(X.shape[1]), self.large)
        large = X[:, self.large]
        large = large.toarray() if issparse(X) else large
        return Rows(X[:, small], rows.weights, plain=rows.plain), np.ascontiguousarray(
            large, dtype=np.float64
        )


class Moments(NamedTuple):
    """The moments of some rows.

    Attributes
    ----------
    seen : float
        The total weight of the rows.
    mean : ndarray of shape (n_features,)
        The mean of the observed cells of each column.
    observed : ndarray of shape (n_features,)
        The weight of the rows in which each column is observed.
    """

    seen: float
    mean: np.ndarray
    observed: np.ndarray

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        observed = self.observed + other.observed
        share = other.observed / np.maximum(observed, 1e-300)
        mean = self.mean + share * (other.mean - self.mean)
        return Moments(self.seen + other.seen, mean, observed)


class PoissonComponents(LinearComponents):
    """Distributions of vectors of counts, with gamma priors of their rates.

    The entries of a vector are independent given its component. The natural parameters are
    ``shape`` and ``rate``, of shape (n_components, n_features).

    Parameters
    ----------
    n_components, n_features : int
    shape : ndarray of shape (n_components, n_features)
        Shapes of the gamma priors.
    rate : ndarray of shape (n_components, n_features) or None
        Rates of the gamma priors. None chooses them so that the prior's mean is the data's mean.
    learned_names : tuple of str
        Which of ``"shape"`` and ``"rate"`` are learned, for each column as one value for all
        components. They must begin as one value for all components.
    follows : bool
        Whether the rates follow a shape that is learned, so that the prior's mean stays the data's
        mean. :meth:`resolved` determines it: they do if they were None and are not learned.
    mean : ndarray of shape (n_features,) or None
        The data's mean, which :meth:`resolved` determines.
    """

    profile_names = ("lambdas",)
    waits = False
    why_no_exact_gradient = (
        "the gradient of a draw with respect to both parameters of a "
        "gamma distribution is not available"
    )
    why_no_log_volume = (
        "log C(T) sums the tempered density of a row over all possible rows, and no formula for "
        "this sum is known for Poisson counts"
    )

    def __init__(
        self,
        n_components: int,
        n_features: int,
        shape: Any,
        rate: Any,
        learned_names: tuple[str, ...] = (),
        follows: bool = False,
        mean: Any = None,
    ):
        super().__init__(n_components, n_features)
        self.shape = shape
        self.rate = rate
        self.learned_names = learned_names
        self.learns = bool(learned_names)
        self.follows = follows
        self.mean = mean

    def summary(self, rows: Rows) -> Moments:
        X: Any = rows.X
        if issparse(X):
            weights = np.ones(X.shape[0]) if rows.weights is None else rows.weights
            each = np.repeat(weights, np.diff(X.indptr))
            known = ~np.isnan(X.data)
            n = X.shape[1]
            total = np.bincount(X.indices[known], (each * np.nan_to_num(X.data))[known], n)
            observed = rows.total_weight - np.bincount(X.indices[~known], each[~known], n)
            return Moments(rows.total_weight, total / np.maximum(observed, 1e-300), observed)
        X, mask = filled(X)
        mean = np.average(X, axis=0, weights=rows.weights)
        share = np.ones(X.shape[1])
        if mask is not None:
            share = np.maximum(1.0 - np.average(mask, axis=0, weights=rows.weights), 1e-300)
            mean /= share
        return Moments(rows.total_weight, mean, rows.total_weight * share)

    def resolved(self, summary: Moments) -> PoissonComponents:
        # A column of zeros would have an infinite rate. Its mean is therefore taken as if there
        # were about one event in all rows.
        mean = np.maximum(summary.mean, 1.0 / (summary.seen + 1.0))
        follows = self.rate is None and self.learned_names == ("shape",)
        shape = self.shape
        if "rate" in self.learned_names:
            shape = np.broadcast_to(shape.mean(axis=0), shape.shape)
        rate = shape / mean if self.rate is None else self.rate
        sizes = self.n_components, self.n_features
        return PoissonComponents(*sizes, self.shape, rate, self.learned_names, follows, mean)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor(Gamma(), {"shape": "shape", "rate": "rate"}),)

    def prior(self, summary: Any) -> Natural:
        return {"shape": self.shape, "rate": self.rate}

    def _learned(self, q: Natural, prior: Natural, rho: float) -> tuple[PoissonComponents, Natural]:
        (factor,) = self.factors
        expected = factor.family.expectations(factor.pick(q))
        means, logs = -expected["rate"].mean(axis=0), expected["shape"]
        # The bound is highest where the prior's mean is that of the rates, whatever the shape.
        means_of_prior = self.mean
        if "rate" in self.learned_names:
            least = least_mean((q["rate"] - prior["rate"]).sum(axis=0))
            least = np.maximum(least, _MEANS[0] * self.mean)
            means_of_prior = np.clip(means, least, np.maximum(least, _MEANS[1] * self.mean))
        shape, rate = self.shape, self.rate
        if "shape" in self.learned_names:
            best = self._best_shapes(means, logs, means_of_prior)
            shape = moved(shape, best, rho)
            if self.follows:
                rate = shape / self.mean
        else:
            best = self.shape.mean(axis=0)
        if "rate" in self.learned_names:
            rate = moved(rate, best / means_of_prior, rho)
        learned = copy(self)
        learned.shape, learned.rate = shape, rate
        return learned, learned.prior(None)

    def _best_shapes(
        self, means: np.ndarray, logs: np.ndarray, means_of_prior: np.ndarray
    ) -> np.ndarray:
        """Return the shape of each column under which the bound is highest, (n_features,).

        ``means`` are those of E λ over the components, and ``logs`` is E log λ of each. Rates that
        neither are learned nor follow the shape stay as they are. Otherwise the shape is that of
        the prior with the means ``means_of_prior``.
        """
        starts = self.shape[0]
        if not (self.follows or "rate" in self.learned_names):
            excess = (logs + np.log(self.rate)).mean(axis=0)
            columns = zip(excess, starts, strict=True)
            found = [gamma_shape_given_rate(1.0, log, start, BOUNDS) for log, start in columns]
        else:
            # The prior has the mean m and the rate a / m, so that the bound has the terms
            # a log(a / m) − log Γ(a) + a E log λ − a E λ / m. If m is E λ, the last one is −a.
            logs = logs.mean(axis=0) + 1.0 - means / means_of_prior
            pairs = zip(means_of_prior, logs, starts, strict=True)
            found = [gamma_shape(mean, log, start, BOUNDS) for mean, log, start in pairs]
        return np.array(found)

    def posterior_like(
        self,
        profile: dict[str, Any],
        counts: np.ndarray,
        q: Natural,
        summary: Any,
        prior: Natural,
    ) -> Natural:
        n = counts[:, None]
        return {"shape": prior["shape"] + n * profile["lambdas"], "rate": prior["rate"] + n}

    def random_natural(
        self, counts: np.ndarray, summary: Moments, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        rates = summary.mean * rng.standard_exponential((self.n_components, self.n_features))
        counts = counts[:, None]
        return {"shape": prior["shape"] + counts * rates, "rate": prior["rate"] + counts}

    def expected_coefficients(self, q: Natural) -> Rates:
        (factor,) = self.factors
        expected = factor.family.expectations(factor.pick(q))
        return Rates.of(-expected["rate"], expected["shape"], q["shape"])

    def coefficients(self, draws: Any) -> Rates:
        (draw,) = draws
        return Rates.of(draw["value"], draw["log_value"])

    def plug_in(self, q: Natural) -> Rates:
        rates = q["shape"] / q["rate"]
        return Rates.of(rates, np.log(rates))

    def for_rows(self, expected: Rates, rows: Rows) -> Rates:
        coefficients = super().for_rows(expected.coefficients, rows)
        return expected._replace(coefficients=coefficients)

    def log_density(self, rows: Rows, expected: Rates) -> np.ndarray:
        if len(expected.large) == 0:
            return super().log_density(rows, expected.coefficients)
        small, large = expected.divided(rows)
        out = np.ascontiguousarray(super().log_density(small, expected.coefficients))
        if rows.plain:
            x = large[..., None]
            terms = log_poisson(x, expected.means) + x * expected.excess
            return out + np.nansum(terms, axis=1)
        kernels().add_large_counts(large, expected.means, expected.excess, out)
        return out

    def log_predictive(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return the log densities of negative binomial distributions, one for each column."""
        X = unpacked(rows).X
        out = np.zeros((len(X), self.n_components))
        for d, column in enumerate(X.T):
            shape, rate = q["shape"][:, d], q["rate"][:, d]
            # Columns of counts have few different values.
            counts, where = np.unique(column, return_inverse=True)
            x = counts[:, None]
            each = log_negative_binomial(x, shape, rate)
            out += np.nan_to_num(each, nan=0.0)[where]
        return out

    def predictive_moments(self, q: Natural) -> CellMoments:
        mean = q["shape"] / q["rate"]
        # A variance beyond the largest number is infinite.
        with np.errstate(over="ignore"):
            return CellMoments(mean, mean * (1.0 + 1.0 / q["rate"]))

    def embedding(self, rows: Rows) -> np.ndarray:
        return points_of(rows)

    @property
    def n_parameters(self) -> int:
        return self.n_components * self.n_features

    def coordinates(self, q: Natural, summary: Moments) -> np.ndarray:
        return q["shape"] / q["rate"] / np.maximum(summary.mean, 1e-300)

    def _carrier(self, X: np.ndarray) -> np.ndarray:
        return -gammaln(X + 1.0).sum(axis=1)

    def statistics(
        self, raw: Natural, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"shape": raw["sum"], "rate": self._observed(raw)}
