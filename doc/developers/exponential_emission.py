"""Exponential durations: the worked example of a new emission."""

from __future__ import annotations

import numpy as np

from sklearn_anneal.estimators._emissions import EMISSIONS
from sklearn_anneal.estimators._emissions._base import profile_of_means, refuse_cells
from sklearn_anneal.estimators._emissions._rates import EmissionOfRates
from sklearn_anneal.estimators._given_starts import given_in_range
from sklearn_anneal.models.components._gamma_rates import GammaRates
from sklearn_anneal.models.components._linear import Coefficients
from sklearn_anneal.models.components._predictive_moments import CellMoments

TINY = np.finfo(np.float64).tiny


class ExponentialComponents(GammaRates):
    """Distributions of rows of durations, p(x | z = k) = Π_d λ_kd exp(−λ_kd x_d).

    The rates have gamma priors: of n durations with the sum s, the posterior of a rate adds n to
    the shape and s to the rate. Priors of rates, and how they are learned, are those of counts.
    """

    why_no_log_volume = None

    # Data and parameters

    def rates(self, summary):
        return 1.0 / np.maximum(summary.mean, TINY)

    def posterior_like(self, profile, counts, q, summary, prior):
        n = counts[:, None]
        return {"shape": prior["shape"] + n, "rate": prior["rate"] + n / profile["lambdas"]}

    def random_natural(self, counts, summary, prior, rng):
        size = self.n_components, self.n_features
        rates = self.rates(summary) * rng.standard_exponential(size)
        return self.posterior_like({"lambdas": np.maximum(rates, TINY)}, counts, {}, summary, prior)

    def coordinates(self, q, summary):
        return q["shape"] / q["rate"] / self.rates(summary)

    # Rows: log p = x · slopes + cells

    def expected_coefficients(self, q):
        (factor,) = self.factors
        expected = factor.family.expectations(factor.pick(q))
        return Coefficients(expected["rate"], expected["shape"])

    def coefficients(self, draws):
        (draw,) = draws
        return Coefficients(-draw["value"], draw["log_value"])

    def plug_in(self, q):
        rates = q["shape"] / q["rate"]
        return Coefficients(-rates, np.log(rates))

    def statistics(self, raw, keys=None, q=None):
        return {"shape": raw.observed, "rate": raw.sum}

    # Predictions, which integrate over the rates

    def log_predictive(self, rows, q):
        # ∫ λ exp(−λ x) Gamma(λ; a, b) dλ = (a / b) (1 + x / b)^(−a − 1), a Lomax distribution
        out = np.zeros((len(rows.X), self.n_components))
        for d, x in enumerate(np.asarray(rows.X, dtype=np.float64).T):
            a, b = q["shape"][:, d], q["rate"][:, d]
            each = np.log(a / b) - (a + 1.0) * np.log1p(x[:, None] / b)
            out += np.nan_to_num(each, nan=0.0)  # a cell that is missing
        return out

    def predictive_moments(self, q):
        a, b = q["shape"], q["rate"]
        low, median, high = (b * np.expm1(-np.log1p(-p) / a) for p in (0.16, 0.5, 0.84))
        # There is no mean if the shape is at most 1, and no variance if it is at most 2.
        has_mean, has_variance = a > 1.0, a > 2.0
        mean = np.divide(b, a - 1.0, out=median, where=has_mean)
        variance = ((high - low) / 2.0) ** 2
        np.divide(mean**2 * a, a - 2.0, out=variance, where=has_variance)
        return CellMoments(mean, variance, has_variance)

    def drawn_cells(self, labels, columns, expected, rng):
        return rng.exponential(-1.0 / expected.slopes[labels, columns])

    # Operations that only some annealing methods need

    def log_volumes(self, x, summary, expected):
        powers = np.asarray(x)[:, None, None]
        return powers * expected.cells - np.log(powers) - np.log(-expected.slopes)


class ExponentialEmission(EmissionOfRates):
    """Columns of durations. Priors and fitted attributes are those of rates."""

    title = "Columns of durations"
    positive_only = True
    distributions = ExponentialComponents

    @classmethod
    def check(cls, values):
        refuse_cells(values < 0, values, "Durations are numbers from 0")

    @classmethod
    def given(cls, components, key, value, name):
        return given_in_range(value, (components.n_components, components.n_features), name, TINY)

    @classmethod
    def draw(cls, own, labels, random_state):
        rates = own["lambdas"][labels]
        return random_state.standard_exponential(rates.shape) / rates

    @classmethod
    def drawn_components(cls, wanted, random_state):
        normal = random_state.standard_normal(wanted.size)
        return {"lambdas": np.exp(wanted.separation * normal)}

    @classmethod
    def profile(cls, own, weights):
        means = 1.0 / own["lambdas"]
        return profile_of_means(means, means**2, weights)


EMISSIONS["exponential"] = ExponentialEmission
