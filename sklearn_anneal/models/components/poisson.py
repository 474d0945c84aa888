"""Components whose observations are rows of counts."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln

from ...data.units import Rows
from ...families import (
    STRONG,
    Natural,
    digamma_excess,
    log_negative_binomial,
    log_poisson,
)
from .._base import Known, compiled
from .._draws import drawn_counts
from ._base import Draws
from ._gamma_rates import LARGE_RATE, CountRates, divided
from ._linear import Coefficients, kernels, points_of
from ._predictive_moments import CellMoments

# The smallest rate that the kernel of large counts takes.
_SMALLEST_RATE = 1e-280
# log 0!, log 1!, …
_LOG_FACTORIALS = gammaln(np.arange(1.0, 1025.0))


@cache
def _none_large(n_components: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the last fields of :class:`Rates` where no column has large rates."""
    nothing = np.empty((0, n_components))
    return np.empty(0, dtype=np.intp), nothing, nothing


class Rates(NamedTuple):
    """E log p(x | z = k) of columns of small and of large counts."""

    # Those of the columns without large rates; of all columns if ``large`` has none.
    coefficients: Any
    large: np.ndarray  # the columns in which the rate of a component is above 1e5, (n_large,)
    # E λ and E log λ − log E λ of these columns, (n_large, n_components).
    means: np.ndarray
    excess: np.ndarray

    @classmethod
    def of(cls, means: np.ndarray, logs: np.ndarray, shape: np.ndarray | None = None) -> Rates:
        """Divide the columns, given E λ and E log λ, of shape (n_components, n_features).

        ``shape`` has the shapes of the gamma distributions; None stands for fixed rates.
        """
        is_large = (means > LARGE_RATE).any(axis=0)
        if not is_large.any():
            return cls(Coefficients(logs, -means), *_none_large(len(means)))
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


class PoissonComponents(CountRates):
    """Distributions of vectors of counts, with gamma priors of their rates.

    The entries of a vector are independent given its component.
    """

    why_no_log_volume = (
        "log C(T) sums the tempered density of a row over all possible rows, and no formula for "
        "this sum is known for Poisson counts"
    )

    carrier_is_fixed = True

    # Whether zeros have no log density in columns of large rates, but one that a subclass adds.
    zeros_apart: ClassVar[bool] = False

    def expected_coefficients(self, q: Natural) -> Rates:
        factor = self.factors[0]
        expected = factor.family.expectations(factor.pick(q))
        return Rates.of(-expected["rate"], expected["shape"], q["shape"])

    def known(self, q: Natural, before: Known | None) -> Known | None:
        shape, rate = np.ascontiguousarray(q["shape"]), np.ascontiguousarray(q["rate"])
        logs, negatives, largest = np.empty(shape.shape), np.empty(shape.shape), np.empty(1)
        compiled("divergence").gamma_moments(shape, rate, logs, negatives, largest)
        return {"logs": logs, "negatives": negatives, "largest": float(largest[0])}

    def expectations_given(self, q: Natural, known: Known) -> Rates:
        if known["largest"] > LARGE_RATE:
            return Rates.of(-known["negatives"], known["logs"], q["shape"])
        coefficients = Coefficients(known["logs"], known["negatives"])
        return Rates(coefficients, *_none_large(self.n_components))

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        found = np.empty(2)
        arrays = (np.ascontiguousarray(x[key]) for x in (q, prior) for key in ("shape", "rate"))
        compiled("divergence").gamma_divergence(*arrays, known["logs"], found)
        return float(found[0]) if found[1] <= STRONG else None

    def coefficients(self, draws: Draws) -> Rates:
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
        small, _, large = divided(rows, expected.large)
        if self.zeros_apart:
            large = np.where(large == 0.0, np.nan, large)
        out = np.ascontiguousarray(super().log_density(small, expected.coefficients))
        if rows.plain:
            x = large[..., None]
            terms = log_poisson(x, expected.means) + x * expected.excess
            return out + np.nansum(terms, axis=1)
        kernels().add_large_counts(large, expected.means, expected.excess, out)
        return out

    def _log_predictive(self, x: np.ndarray, d: int, q: Natural) -> np.ndarray:
        """Return the log densities of negative binomial distributions."""
        return log_negative_binomial(x, q["shape"][:, d], q["rate"][:, d])

    def predictive_moments(self, q: Natural) -> CellMoments:
        mean = q["shape"] / q["rate"]
        # A variance beyond the largest number is infinite.
        with np.errstate(over="ignore"):
            return CellMoments(mean, mean * (1.0 + 1.0 / q["rate"]))

    def plug_in_moments(self, q: Natural) -> CellMoments:
        rates = q["shape"] / q["rate"]
        return CellMoments(rates, rates)

    def drawn_cells(
        self,
        labels: np.ndarray,
        columns: np.ndarray,
        expected: Rates,
        rng: np.random.Generator,
    ) -> np.ndarray:
        rates = np.empty((self.n_features, self.n_components))
        small = np.setdiff1d(np.arange(self.n_features), expected.large)
        rates[small], rates[expected.large] = -expected.coefficients.cells.T, expected.means
        return drawn_counts(rng, rates[columns, labels]).astype(np.float64)

    def embedding(self, rows: Rows) -> np.ndarray:
        return points_of(rows)

    def _carrier(self, X: np.ndarray) -> np.ndarray:
        return -_log_factorials(X).sum(axis=1)


def _log_factorials(X: np.ndarray) -> np.ndarray:
    """Return log x! of counts. Whole ones that are not large are looked up, which is quicker."""
    if X.size and X.max() < len(_LOG_FACTORIALS):
        whole = X.astype(np.intp)
        if np.array_equal(whole, X):
            return _LOG_FACTORIALS[whole]
    return gammaln(X + 1.0)
