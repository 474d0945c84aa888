"""Components whose observations are rows of counts with more zeros than Poisson counts have.

A cell is zero for a reason of its own with the probability π_kd, and else is a Poisson count,

    p(x | z = k) = π_kd [x = 0] + (1 − π_kd) Poisson(x; λ_kd),

with beta priors of π and gamma priors of λ. Which zeros have such a reason is a latent variable of
each cell that is zero. Given z = k, its optimal distribution is in closed form: the probability is

    ρ_kd = e^{E log π} / (e^{E log π} + e^{E log(1 − π) − E λ}),

and with it the expected log density of a zero, plus the entropy of this variable, is the logarithm
of the denominator. Like cells that are missing, these variables are integrated out before anything
is tempered: a temperature acts on the assignments to components, of which it raises the density of
a cell to the power 1 / T, and ρ does not depend on it.

References
----------
Lambert (1992), Zero-inflated Poisson regression, with an application to defects in manufacturing;
Ghosh, Mukhopadhyay, Lu (2006), Bayesian analysis of zero-inflated regression models.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from ...data.units import Rows
from ...families import Factor, Natural
from .._base import Known
from ._base import Draws, Profile
from ._gamma_rates import Moments
from ._linear import LinearSums
from ._predictive_moments import CellMoments
from .bernoulli import BernoulliComponents
from .poisson import PoissonComponents, Rates


class Inflated(NamedTuple):
    """E log p(x | z = k) of counts with more zeros."""

    rates: Rates  # that of Poisson counts
    log_rest: np.ndarray  # E log(1 − π), which every observed cell adds, (n_components, n_features)
    # A zero adds besides log(1 + exp(E log π − E log(1 − π) + E λ)) = −log(1 − ρ). In columns of
    # large rates it has no log density of Poisson counts, −E λ, which the terms here include.
    gain: np.ndarray  # (n_components, n_features)
    # ρ, the probability that a zero has a reason of its own, (n_components, n_features)
    share: np.ndarray

    @classmethod
    def of(
        cls, rates: Rates, means: np.ndarray, log_zero: np.ndarray, log_rest: np.ndarray
    ) -> Inflated:
        """Return the terms, given E λ, E log π and E log(1 − π)."""
        log_odds = log_zero - log_rest
        gain = np.logaddexp(0.0, log_odds + means)
        gain[:, rates.large] = np.logaddexp(-means, log_odds)[:, rates.large]
        return cls(rates, log_rest, gain, expit(log_odds + means))


@dataclass(frozen=True)
class InflatedSums(LinearSums):
    """Raw statistics of counts with more zeros."""

    # The weight of each component's cells that are zero, (n_components, n_features).
    zeros: np.ndarray
    # The expected weight of those that have a reason of their own, (n_components, n_features).
    structural: np.ndarray


class ZeroInflatedPoissonComponents(PoissonComponents):
    """Distributions of vectors of counts with more zeros, with gamma and beta priors.

    The entries of a vector are independent given its component. The natural parameters are those of
    Poisson counts, ``shape`` and ``rate``, and ``a`` and ``b`` of the beta distributions of π. All
    other parameters are those of :class:`PoissonComponents`.

    Parameters
    ----------
    inflation : BernoulliComponents
        The priors of π, and whether they are learned.
    """

    profile_names = ("lambdas", "zeroprob")
    why_no_log_volume = (
        "log C(T) sums the tempered density of a row over all possible rows, and no formula for "
        "this sum is known for zero-inflated Poisson counts"
    )

    def __init__(self, *args: Any, inflation: BernoulliComponents, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.inflation = inflation
        self.learns = bool(self.learned_names) or inflation.learns

    # Data and parameters

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (*super().factors, *self.inflation.factors)

    def prior(self, summary: Moments | None) -> Natural:
        return super().prior(summary) | self.inflation.prior(None)

    @property
    def learns_early(self) -> bool:
        return bool(self.learned_names)

    @property
    def learns_late(self) -> bool:
        return self.inflation.learns

    def learned(
        self,
        q: Natural,
        prior: Natural,
        rho: float,
        late: bool,
        rows_stay: bool = False,
        known: Known | None = None,
    ) -> tuple[ZeroInflatedPoissonComponents, Natural]:
        learned: Any = self._learned(q, prior, rho)[0] if self.learned_names else copy(self)
        learned.inflation = self.inflation.learned(q, prior, rho, late)[0]
        return learned, learned.prior(None)

    def posterior_like(
        self, profile: Profile, counts: np.ndarray, q: Natural, summary: Moments, prior: Natural
    ) -> Natural:
        n = counts[:, None]
        zero = profile["zeroprob"] if "zeroprob" in profile else q["a"] / (q["a"] + q["b"])
        rates = profile["lambdas"] if "lambdas" in profile else q["shape"] / q["rate"]
        added = {"shape": (1.0 - zero) * rates, "rate": 1.0 - zero, "a": zero, "b": 1.0 - zero}
        return {key: prior[key] + n * value for key, value in added.items()}

    def random_natural(
        self, counts: np.ndarray, summary: Moments, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        size = self.n_components, self.n_features
        rates = summary.mean * rng.standard_exponential(size)
        drawn = {"lambdas": rates, "zeroprob": rng.random(size)}
        return self.posterior_like(drawn, counts, {}, summary, prior)

    def coordinates(self, q: Natural, summary: Moments) -> np.ndarray:
        return np.hstack([super().coordinates(q, summary), q["a"] / (q["a"] + q["b"])])

    @property
    def n_parameters(self) -> int:
        return 2 * self.n_components * self.n_features

    # Rows

    zeros_apart = True

    # The expectations say how many zeros are structural.
    completes = True

    def known(self, q: Natural, before: Known | None) -> Known | None:
        return None

    def expected_coefficients(self, q: Natural) -> Any:
        rates, zeros = (factor.family.expectations(factor.pick(q)) for factor in self.factors)
        return Inflated.of(super().expected_coefficients(q), -rates["rate"], zeros["a"], zeros["b"])

    def coefficients(self, draws: Draws) -> Any:
        rate, zero = draws
        found = super().coefficients([rate])
        return Inflated.of(found, rate["value"], zero["log_value"], zero["log_complement"])

    def plug_in(self, q: Natural) -> Any:
        total = np.log(q["a"] + q["b"])
        logs = np.log(q["a"]) - total, np.log(q["b"]) - total
        return Inflated.of(super().plug_in(q), q["shape"] / q["rate"], *logs)

    def for_rows(self, expected: Any, rows: Rows) -> Any:
        return expected._replace(rates=super().for_rows(expected.rates, rows))

    def log_density(self, rows: Rows, expected: Any) -> np.ndarray:
        out = super().log_density(rows, expected.rates)
        rest, gain = expected.log_rest, expected.gain
        X: Any = rows.X
        if issparse(X):
            # All cells are zeros, but for those that are stored.
            out = out + (rest + gain).sum(axis=1) - _stored(X, X.data > 0) @ gain.T
            missing = np.isnan(X.data)
            return out - _stored(X, missing) @ (rest + gain).T if missing.any() else out
        missing = np.isnan(X)
        out = out + (X == 0).astype(np.float64) @ gain.T + rest.sum(axis=1)
        return out - missing.astype(np.float64) @ rest.T if missing.any() else out

    def zeros(self, expected: Any) -> InflatedSums:
        own, (k, d) = super().zeros(expected), (self.n_components, self.n_features)
        return InflatedSums(own.count, own.sum, own.missing, np.zeros((k, d)), np.zeros((k, d)))

    def sums(self, rows: Rows, shares: np.ndarray, expected: Any = None) -> InflatedSums:
        raw = self.zeros(expected)
        self.add(rows, shares, raw, expected)
        return raw

    def add(self, rows: Rows, shares: np.ndarray, raw: Any, expected: Any = None) -> None:
        super().add(rows, shares, raw, expected.rates)
        X: Any = rows.X
        if issparse(X):
            stored = _stored(X, (X.data > 0) | np.isnan(X.data))
            zeros = shares.sum(axis=0)[:, None] - (stored.T @ shares).T
        else:
            zeros = shares.T @ (X == 0).astype(np.float64)
        raw.zeros[:] += zeros
        raw.structural[:] += expected.share * zeros

    def statistics(
        self, raw: Any, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        rest = raw.observed - raw.structural
        return {"shape": raw.sum, "rate": rest, "a": raw.structural, "b": rest}

    def with_drawn_latents(self, raw: Any, rng: np.random.Generator) -> InflatedSums:
        n = np.maximum(np.rint(raw.zeros), 0.0).astype(np.int64)
        share = np.divide(raw.structural, raw.zeros, out=np.zeros(n.shape), where=n > 0)
        drawn = rng.binomial(n, np.clip(share, 0.0, 1.0)).astype(np.float64)
        return InflatedSums(**{**vars(raw), "structural": drawn})

    # Predictions, which integrate over the parameters

    def _log_predictive(self, x: np.ndarray, d: int, q: Natural) -> np.ndarray:
        """Return the log densities of zero-inflated negative binomial distributions."""
        a, b = q["a"][:, d], q["b"][:, d]
        total = np.log(a + b)
        each = super()._log_predictive(x, d, q) + (np.log(b) - total)
        return np.where(x == 0, np.logaddexp(each, np.log(a) - total), each)

    def predictive_moments(self, q: Natural) -> CellMoments:
        return _with_zeros(super().predictive_moments(q), q)

    def plug_in_moments(self, q: Natural) -> CellMoments:
        return _with_zeros(super().plug_in_moments(q), q)

    def drawn_cells(
        self, labels: np.ndarray, columns: np.ndarray, expected: Any, rng: np.random.Generator
    ) -> np.ndarray:
        counts = super().drawn_cells(labels, columns, expected.rates, rng)
        return counts * (rng.random(len(labels)) < np.exp(expected.log_rest[labels, columns]))


def _stored(X: Any, where: np.ndarray) -> csr_array:
    """Return a sparse matrix with ones in some of the entries that another one stores."""
    return csr_array((where.astype(np.float64), X.indices, X.indptr), shape=X.shape)


def _with_zeros(moments: CellMoments, q: Natural) -> CellMoments:
    """Return the moments of counts that are set to zero with the probability E π."""
    rest = q["b"] / (q["a"] + q["b"])
    with np.errstate(over="ignore"):
        variance = rest * (moments.variance + (1.0 - rest) * moments.mean**2)
    return CellMoments(rest * moments.mean, variance)
