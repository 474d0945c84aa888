"""Components whose observations are rows of counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from ...families import Factor, Gamma, Natural
from ...inference.units import Rows
from ._base import Coefficients, LinearComponents


class Moments(NamedTuple):
    """The total weight (``seen``) and the mean of some rows."""

    seen: float
    mean: np.ndarray

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        seen = self.seen + other.seen
        return Moments(seen, self.mean + other.seen / seen * (other.mean - self.mean))


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
    """

    why_no_log_volume = (
        "log C(T) sums the tempered density of a row over all possible rows, and no formula for "
        "this sum is known for Poisson counts"
    )

    def __init__(self, n_components: int, n_features: int, shape: Any, rate: Any):
        super().__init__(n_components, n_features)
        self.shape = shape
        self.rate = rate

    def summary(self, rows: Rows) -> Moments:
        mean = np.average(np.asarray(rows.X, dtype=np.float64), axis=0, weights=rows.weights)
        return Moments(rows.total_weight, mean)

    def resolved(self, summary: Moments) -> PoissonComponents:
        rate = self.rate
        if rate is None:
            # A column of zeros would have an infinite rate. Its mean is therefore taken as if
            # there were about one event in all rows.
            rate = self.shape / np.maximum(summary.mean, 1.0 / (summary.seen + 1.0))
        return PoissonComponents(self.n_components, self.n_features, self.shape, rate)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor(Gamma(), {"shape": "shape", "rate": "rate"}),)

    def prior(self, summary: Any) -> Natural:
        return {"shape": self.shape, "rate": self.rate}

    def random_natural(
        self, counts: np.ndarray, summary: Moments, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        rates = summary.mean * rng.standard_exponential((self.n_components, self.n_features))
        counts = counts[:, None]
        return {"shape": prior["shape"] + counts * rates, "rate": prior["rate"] + counts}

    def _coefficients(self, log_rates: np.ndarray, rates: np.ndarray) -> Coefficients:
        return Coefficients(log_rates, -rates.sum(axis=1))

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Coefficients:
        (factor,) = self.factors
        if rng is None:
            expected = factor.family.expectations(factor.pick(q))
            return self._coefficients(expected["shape"], -expected["rate"])
        draw = factor.family.sample(factor.pick(q), rng)
        return self._coefficients(draw["log_value"], draw["value"])

    def plug_in(self, q: Natural) -> Coefficients:
        rates = q["shape"] / q["rate"]
        return self._coefficients(np.log(rates), rates)

    def coordinates(self, q: Natural, summary: Moments) -> np.ndarray:
        return q["shape"] / q["rate"] / np.maximum(summary.mean, 1e-300)

    def _carrier(self, X: np.ndarray) -> np.ndarray:
        return -gammaln(X + 1.0).sum(axis=1)

    def statistics(
        self, raw: Natural, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"shape": raw["sum"], "rate": np.repeat(raw["count"][:, None], self.n_features, 1)}
