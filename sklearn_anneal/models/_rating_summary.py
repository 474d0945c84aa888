"""The summary of the training ratings of matrix factorisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..data.units import Ratings
from ._base import DataSummary


@dataclass(frozen=True)
class Summary(DataSummary):
    """Moments of the training ratings.

    Attributes
    ----------
    weight : float
        Σ w of all users, or of all ratings if data are counted in ratings. In a stream it
        includes data that have not arrived yet.
    seen : float
        Σ w of the data that the other attributes describe.
    ratings : float
        Σ w of the ratings.
    n_users : int
    mean, variance : float
        Weighted mean and variance of the ratings.
    low, high : float
        The smallest and the largest rating.
    """

    weight: float
    seen: float
    ratings: float
    n_users: int
    mean: float
    variance: float
    low: float
    high: float

    @classmethod
    def of(cls, units: Ratings) -> Self:
        """Return the summary of the ratings of some users."""
        weights = units.entry_weights()
        total = units.n_observations
        if total == 0:
            sizes = units.total_weight, units.total_weight, 0.0, units.n_units
            return cls(*sizes, *[0.0] * 4)
        values = units.values
        if weights is not None:
            # Ratings of weight zero are treated as absent, and do not widen the range either.
            values, weights = values[weights > 0], weights[weights > 0]
        shares = np.ones(1) if weights is None else weights
        mean = float(np.sum(values * shares, dtype=np.float64) / total)
        deviations = values - values.dtype.type(mean)
        variance = float(np.sum(deviations**2 * shares, dtype=np.float64) / total)
        return cls(
            units.total_weight,
            units.total_weight,
            total,
            units.n_units,
            mean,
            variance,
            float(values.min()),
            float(values.max()),
        )

    @property
    def n_ratings(self) -> float:
        """Weighted number of ratings of all data, including data that have not arrived yet."""
        return self.ratings * self.weight / self.seen

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both data sets together."""
        ratings = self.ratings + other.ratings
        if other.ratings == 0 or self.ratings == 0:
            one = self if other.ratings == 0 else other
            total = self.seen + other.seen
            n_users = self.n_users + other.n_users
            return replace(one, weight=total, seen=total, n_users=n_users)
        share = other.ratings / ratings
        difference = other.mean - self.mean
        variance = (1 - share) * self.variance + share * other.variance
        return Summary(
            self.seen + other.seen,
            self.seen + other.seen,
            ratings,
            self.n_users + other.n_users,
            self.mean + share * difference,
            variance + share * (1 - share) * difference**2,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    def continued(self, other: Summary) -> Summary:
        """Return the summary of other ratings, but with the mean and the variance of these.

        The variances of the model were computed from them, and stay when a fit goes on.
        """
        low, high = min(self.low, other.low), max(self.high, other.high)
        return replace(other, low=low, high=high, mean=self.mean, variance=self.variance)
