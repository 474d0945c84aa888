"""Components whose columns have rates with gamma priors, and how these priors are learned."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csc_array, issparse

from ...data.units import Rows
from ...families import Factor, Gamma, Natural
from .._base import compiled, shallow
from ._base import BOUNDS, Profile, least_mean
from ._linear import LinearComponents, LinearSums, filled, unpacked

# Bounds of a prior mean that is learned, in multiples of the mean of the data. A component without
# events would otherwise draw it towards zero.
_MEANS = (1e-3, 1e3)
_RATES = (Factor(Gamma(), {"shape": "shape", "rate": "rate"}),)

# Log densities of zeros that are larger, in absolute terms, are not subtracted from those of
# counts.
_LARGE = 1e4


# Above this rate, terms of log densities that are linear in counts are far larger than their sum,
# which loses more than its last digits: about 1e-10 nats at this rate, and tens of nats at 1e15.
LARGE_RATE = 1e5


def divided(rows: Rows, large: np.ndarray) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Return columns of small counts as rows, their numbers, and ``large`` ones as dense float64.

    ``large`` has the numbers of the others.
    """
    X: Any = rows.X
    small, apart = np.setdiff1d(np.arange(X.shape[1]), large), X[:, large]
    apart = apart.toarray() if issparse(X) else apart
    others = Rows(X[:, small], rows.weights, plain=rows.plain)
    return others, small, np.ascontiguousarray(apart, dtype=np.float64)


class Moments(NamedTuple):
    """The moments of some rows."""

    seen: float  # the total weight of the rows
    mean: np.ndarray  # the mean of the observed cells of each column, (n_features,)
    observed: np.ndarray  # the weight of the rows in which each column is observed, (n_features,)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        observed = self.observed + other.observed
        share = other.observed / np.maximum(observed, 1e-300)
        mean = self.mean + share * (other.mean - self.mean)
        return Moments(self.seen + other.seen, mean, observed)


class GammaRates(LinearComponents[Moments]):
    """Distributions of rows whose columns have one rate each, with gamma priors of the rates.

    The natural parameters are ``shape`` and ``rate`` of the gamma distributions, of shape
    (n_components, n_features).

    Parameters
    ----------
    n_components, n_features : int
    shape : ndarray of shape (n_components, n_features)
        Shapes of the gamma priors.
    rate : ndarray of shape (n_components, n_features) or None
        Rates of the gamma priors. None chooses them so that the prior's mean is that of the data
        (:meth:`rates`).
    learned_names : tuple of str
        Which of ``"shape"`` and ``"rate"`` are learned, for each column as one value for all
        components. They must begin as one value for all components.
    follows : bool
        Whether the rates follow a shape that is learned, so that the prior's mean stays that of the
        data. :meth:`resolved` determines it: they do if they were None and are not learned.
    mean : ndarray of shape (n_features,) or None
        The rates of the data, which :meth:`resolved` determines.
    """

    profile_names: ClassVar[tuple[str, ...]] = ("lambdas",)
    waits = False
    why_no_exact_gradient = (
        "the gradient of a draw with respect to both parameters of a "
        "gamma distribution is not available"
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

    @abstractmethod
    def rates(self, summary: Moments) -> np.ndarray:
        """Return the rates of all data together, positive, of shape (n_features,)."""

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

    def resolved(self, summary: Moments) -> GammaRates:
        mean = self.rates(summary)
        follows = self.rate is None and self.learned_names == ("shape",)
        shape = self.shape
        if "rate" in self.learned_names:
            shape = np.broadcast_to(shape.mean(axis=0), shape.shape)
        found = copy(self)
        found.rate = shape / mean if self.rate is None else self.rate
        found.follows, found.mean = follows, mean
        return found

    @property
    def factors(self) -> tuple[Factor, ...]:
        return _RATES

    def prior(self, summary: Moments | None) -> Natural:
        return {"shape": self.shape, "rate": self.rate}

    def _learned(self, q: Natural, prior: Natural, rho: float) -> tuple[GammaRates, Natural]:
        names = self.learned_names
        flags = "shape" in names, "rate" in names, self.follows
        settings = np.array([rho, *BOUNDS, *_MEANS, *flags], dtype=np.float64)
        arrays = (np.ascontiguousarray(x[key]) for x in (q, prior) for key in ("shape", "rate"))
        new = np.empty(q["shape"].shape), np.empty(q["shape"].shape)
        mean = np.ascontiguousarray(self.mean, dtype=np.float64)
        compiled("empirical_bayes").learned_gammas(*arrays, mean, settings, *new)
        learned = shallow(self)
        learned.shape, learned.rate = new
        return learned, learned.prior(None)

    def _means_allowed(self, q: Natural, prior: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest mean that a learned prior may have, (n_features,)."""
        least = least_mean((q["rate"] - prior["rate"]).sum(axis=0))
        least = np.maximum(least, _MEANS[0] * self.mean)
        return least, np.maximum(least, _MEANS[1] * self.mean)

    @property
    def n_parameters(self) -> int:
        return self.n_components * self.n_features


class CountRates(GammaRates):
    """Distributions of vectors of counts: what Poisson and over-dispersed counts have in common.

    Rows add their number to the rate of a prior, and their counts to its shape.
    """

    def rates(self, summary: Moments) -> np.ndarray:
        # A column of zeros would have an infinite rate of the prior. Its mean is therefore taken as
        # if there were about one event in all rows.
        return np.maximum(summary.mean, 1.0 / (summary.seen + 1.0))

    def posterior_like(
        self, profile: Profile, counts: np.ndarray, q: Natural, summary: Moments, prior: Natural
    ) -> Natural:
        n = counts[:, None]
        return {"shape": prior["shape"] + n * profile["lambdas"], "rate": prior["rate"] + n}

    def random_natural(
        self, counts: np.ndarray, summary: Moments, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        rates = summary.mean * rng.standard_exponential((self.n_components, self.n_features))
        return self.posterior_like({"lambdas": rates}, counts, {}, summary, prior)

    def statistics(
        self, raw: LinearSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"shape": raw.sum, "rate": raw.observed}

    def coordinates(self, q: Natural, summary: Moments) -> np.ndarray:
        return q["shape"] / q["rate"] / np.maximum(summary.mean, 1e-300)

    def log_predictive(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return the sums of the log predictive densities of the observed cells."""
        if issparse(rows.X):
            return self._log_predictive_of_sparse(csc_array(rows.X), q)
        X = unpacked(rows).X
        out = np.zeros((len(X), self.n_components))
        for d, column in enumerate(X.T):
            # Columns of counts have few different values.
            counts, where = np.unique(column, return_inverse=True)
            out += np.nan_to_num(self._log_predictive(counts[:, None], d, q), nan=0.0)[where]
        return out

    def _log_predictive_of_sparse(self, X: csc_array, q: Natural) -> np.ndarray:
        """Do the same for sparse counts: rows are zeros, from which few cells of them differ.

        Where zeros are hardly possible, differences from them would have few correct digits.
        """
        X.sum_duplicates()
        of_zeros, out = np.zeros(self.n_components), np.zeros((X.shape[0], self.n_components))
        for d, (begin, end) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True)):
            cells = np.concatenate([[0.0], X.data[begin:end]])
            counts, where = np.unique(cells, return_inverse=True)
            each = np.nan_to_num(self._log_predictive(counts[:, None], d, q), nan=0.0)[where]
            if np.abs(each[0]).max() > _LARGE:
                column = np.tile(each[0], (X.shape[0], 1))
                column[X.indices[begin:end]] = each[1:]
                out += column
            else:
                of_zeros += each[0]
                out[X.indices[begin:end]] += each[1:] - each[0]
        return out + of_zeros

    @abstractmethod
    def _log_predictive(self, x: np.ndarray, d: int, q: Natural) -> np.ndarray:
        """Return the log predictive densities of counts of column d, (n_counts, n_components).

        ``x`` has shape (n_counts, 1).
        """
