"""Weights of mixtures that depend on covariates of the rows, by a multinomial logit.

A row with the covariates z belongs to component k with probability

    π_k(z) = exp(uᵀ b_k) / Σ_l exp(uᵀ b_l),   u = (1, z),

where z is standardised by the mean and the standard deviation of the training rows, so that units
do not matter, and b_k ~ N(0, D₀⁻¹) independently. Only differences of the b_k count. Their mean
over components keeps its prior, and is left out: coefficients sum to zero over the components,
which identifies them and treats all components alike. With orthonormal contrasts C (K, K − 1), for
which 1ᵀC = 0, the coefficients are B = Γ Cᵀ, and the columns of Γ (P, K − 1) have the prior
N(0, D₀⁻¹) too.

q(Γ) is Gaussian. Its expectation of log Σ_l exp η_l, η = Bᵀu, has no closed form. Böhning's bound
[1]_ replaces it by the quadratic function that touches it at ψ and whose curvature, A = (I −
11ᵀ/K) / 2, no log-sum-exp exceeds. At its best ψ, which is the mean m = E η,

    E log Σ_l exp η_l ≤ log Σ_l exp m_l + tr(A Cov η) / 2,

so that the bound is exact in the mean and loses by the variance alone. As the curvature is fixed,
the update is closed and Gaussian, all columns of Γ share one precision, and the bound of the
mixture never falls:

    precision of q      D₀ + ½ Σ w u uᵀ
    mean of q           precision × mean = Σ w u (r − softmax(m))ᵀ C + ½ Σ w u uᵀ Γ,

with the responsibilities r of the row, and Γ of the pass before. The bounds of Jaakkola and Jordan
[2]_ for K = 2, and of Bouchard [3]_ for any K, adapt their curvature to the row. Over 500 drawn
rows of 2, 3, 5 and 10 components, Böhning's bound lost 0.2, 1.3, 7.5 and 36 nats in all, about as
many as over 50 rows, since the loss of a row shrinks with the variance of the coefficients.
Bouchard's lost 320 to 471 nats, since it is not exact even for known coefficients, and that of
Jaakkola and Jordan 0.1, which serves two components alone (``doc/results/covariates.md``).

The variance of q is that of coefficients whose classes were known and at the largest curvature, and
so too small. Standard deviations for users are those of linear response
(:mod:`sklearn_anneal.inference.response`).

References
----------
.. [1] Böhning (1992). Multinomial logistic regression algorithm. Annals of the Institute of
   Statistical Mathematics 44.
.. [2] Jaakkola, Jordan (2000). Bayesian parameter estimation via variational methods. Statistics
   and Computing 10.
.. [3] Bouchard (2007). Efficient bounds for the softmax function. NIPS workshop.
.. [4] Dayton, Macready (1988). Concomitant-variable latent-class models. JASA 83.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from ..data.units import Rows
from ..families import Factor, Natural
from ..families._empirical_bayes import damped
from ..families.matrix_gaussian import MatrixGaussian
from ._base import Known
from ._weights import Weights
from .components._base import RawStatistics

# Prior standard deviation of intercepts.
SCALE_OF_INTERCEPTS = 5.0
# Bounds of a scale of coefficients that is learned.
_BOUNDS_OF_SCALE = (1e-2, 1e2)
# A column whose standard deviation is below this share of its mean is constant.
_CONSTANT = 1e-10
# Steps by which coefficients follow responsibilities that a move of the search has made.
_STEPS = 8
# The smallest share of a component whose logarithm an intercept begins at.
_LEAST_SHARE = 1e-3


@cache
def contrasts(n_components: int) -> np.ndarray:
    """Return C (K, K − 1), whose columns are orthonormal and sum to zero."""
    j = np.arange(1, n_components)
    rows = np.arange(n_components)[:, None]
    matrix = np.where(rows < j, 1.0, np.where(rows == j, -1.0 * j, 0.0))
    matrix = matrix / np.sqrt(j * (j + 1.0))
    matrix.flags.writeable = False
    return matrix


@dataclass(frozen=True)
class Moments:
    """The first two moments of covariates."""

    weight: float
    mean: np.ndarray  # (n_covariates,)
    scatter: np.ndarray  # Σ w (z − mean)(z − mean)ᵀ, (n_covariates, n_covariates)

    @classmethod
    def of(cls, rows: Rows) -> Moments:
        """Return the moments of some rows."""
        Z, w = _covariates(rows), rows.weights
        w = np.ones(len(Z)) if w is None else w
        mean = w @ Z / w.sum()
        apart = Z - mean
        return cls(float(w.sum()), mean, (w[:, None] * apart).T @ apart)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        if not (self.weight and other.weight):
            return self if self.weight else other
        weight, apart = self.weight + other.weight, other.mean - self.mean
        share = other.weight / weight
        between = self.weight * share * np.outer(apart, apart)
        return Moments(weight, self.mean + share * apart, self.scatter + other.scatter + between)

    @property
    def scale(self) -> np.ndarray:
        """The standard deviation of each column; infinite for columns that are constant."""
        scale = np.sqrt(np.diag(self.scatter) / self.weight)
        return np.where(scale > _CONSTANT * np.abs(self.mean), scale, np.inf)


@dataclass(frozen=True)
class GateSums(RawStatistics):
    """The raw statistics of the coefficients."""

    precision: np.ndarray  # ½ Σ w u uᵀ, (P, P)
    natural_mean: np.ndarray  # Σ w u (r − softmax(m))ᵀ C + ½ Σ w u uᵀ Γ, (P, K − 1)


@dataclass(frozen=True)
class Gate:
    """The weights of rows, given their covariates, at q or at a draw from q."""

    # They standardise the covariates, (n_covariates,).
    center: np.ndarray
    scale: np.ndarray
    values: np.ndarray  # Γ: its mean, or the draw, (P, K − 1)
    # The covariance of each column of Γ, (P, P); None for a draw.
    covariance: np.ndarray | None = None

    def design(self, Z: np.ndarray) -> np.ndarray:
        """Return the rows u = (1, z) with standardised z, (n_rows, P)."""
        return np.column_stack([np.ones(len(Z)), (Z - self.center) / self.scale])

    def log_means(self, rows: Rows) -> np.ndarray:
        """Return log softmax(m) of rows, (n_rows, K)."""
        return self._log_softmax(self.design(_covariates(rows)))

    def log_weights(self, rows: Rows) -> np.ndarray:
        """Return E log π of rows by Böhning's bound, or log π of a draw, (n_rows, K), in nats."""
        u = self.design(_covariates(rows))
        found = self._log_softmax(u)
        if self.covariance is not None:
            loss = 0.25 * self.values.shape[1] * ((u @ self.covariance) * u).sum(axis=1)
            found -= loss[:, None]
        return found

    def sums(self, rows: Rows, shares: np.ndarray) -> GateSums:
        """Return the raw statistics of rows, given their weights times responsibilities."""
        u, total = self.design(_covariates(rows)), shares.sum(axis=1)
        precision = 0.5 * (u * total[:, None]).T @ u
        rest = shares - total[:, None] * np.exp(self._log_softmax(u))
        return GateSums(
            precision, u.T @ rest @ contrasts(shares.shape[1]) + precision @ self.values
        )

    def _log_softmax(self, u: np.ndarray) -> np.ndarray:
        eta = u @ (self.values @ contrasts(self.values.shape[1] + 1).T)
        eta -= eta.max(axis=1, keepdims=True)
        eta -= np.log(np.exp(eta).sum(axis=1, keepdims=True))
        return eta


@dataclass(frozen=True)
class TalliedMatrixGaussian(MatrixGaussian):
    """The Gaussian of Γ, and beside it the numbers of rows of the components.

    The natural parameters ``counts`` (K,) follow the data as the others do, by every method, but no
    density has them: they say how many rows a component has, which coefficients alone do not.
    """

    keys: ClassVar[tuple[str, ...]] = ("precision", "natural_mean", "counts")

    def base(self, natural: Natural) -> Natural:
        """Return 0 for all arrays."""
        return {**super().base(natural), "counts": np.zeros(())}

    def expectations(self, natural: Natural) -> Natural:
        """Return those of the Gaussian, and zeros, on which no density depends."""
        return {**super().expectations(natural), "counts": np.zeros_like(natural["counts"])}

    def _inside(self, natural: Natural) -> np.ndarray:
        return super()._inside(natural) & np.isfinite(natural["counts"]).all()


class LogitWeights(Weights):
    """π_k(z) ∝ exp(uᵀ b_k), with the natural parameters ``gate_precision``, ``gate_mean`` of q(Γ).

    ``gate_counts`` (K,) has the numbers of rows.

    Parameters
    ----------
    n_components : int
        K.
    n_covariates : int
    scale : float or "auto"
        Prior standard deviation of the coefficients of standardised covariates. ``"auto"``:
        learned, one for all of them.
    """

    factor = Factor(
        TalliedMatrixGaussian(),
        {"precision": "gate_precision", "natural_mean": "gate_mean", "counts": "gate_counts"},
    )

    def __init__(self, n_components: int, n_covariates: int, scale: float | str):
        self.n_components = int(n_components)
        self.learns = isinstance(scale, str)
        self.coefficients_scale = 1.0 if isinstance(scale, str) else float(scale)
        self.center, self.scale = np.zeros(n_covariates), np.ones(n_covariates)
        # E u uᵀ of the training rows.
        self.moment = np.eye(n_covariates + 1)

    @property
    def differ(self) -> bool:
        return True

    @property
    def n_parameters(self) -> int:
        return (self.n_components - 1) * len(self.moment)

    def summary(self, rows: Rows) -> Moments:
        return Moments.of(rows)

    def resolved(self, summary: Moments) -> Self:
        weights = copy(self)
        weights.center, weights.scale = summary.mean, summary.scale
        weights.moment = np.eye(len(summary.mean) + 1)
        within = summary.scatter / summary.weight
        weights.moment[1:, 1:] = within / np.outer(summary.scale, summary.scale)
        return weights

    # Prior

    @property
    def _prior_precision(self) -> np.ndarray:
        slopes = np.full(len(self.scale), float(self.coefficients_scale) ** -2)
        return np.diag(np.append(SCALE_OF_INTERCEPTS**-2, slopes))

    def prior(self) -> Natural:
        return {
            "gate_precision": self._prior_precision,
            "gate_mean": np.zeros((len(self.moment), self.n_components - 1)),
            "gate_counts": np.zeros(self.n_components),
        }

    def learned(
        self, q: Natural, prior: Natural, rho: float, late: bool
    ) -> tuple[Weights, Natural]:
        if not (self.learns and late):
            return self, {name: prior[name] for name in self.factor.names.values()}
        standard = self._standard(q)
        # Constant columns say nothing, and nothing depends on covariates in a single component.
        varied = np.append(False, np.isfinite(self.scale))
        if not varied.any() or self.n_components == 1:
            return self, {name: prior[name] for name in self.factor.names.values()}
        squares = standard["mean"] ** 2 + np.diag(standard["covariance"])[:, None]
        weights = copy(self)
        best = float(np.clip(np.sqrt(squares[varied].mean()), *_BOUNDS_OF_SCALE))
        weights.coefficients_scale = damped(self.coefficients_scale, best, rho)
        return weights, weights.prior()

    # Statistics

    def _of_values(self, counts: np.ndarray, precision: np.ndarray, values: np.ndarray) -> Natural:
        """Return statistics with which q has the mean ``values``."""
        return {
            "gate_precision": precision,
            "gate_mean": (self._prior_precision + precision) @ values,
            "gate_counts": counts,
        }

    def _values_of(self, counts: np.ndarray) -> np.ndarray:
        """Return Γ without slopes at which the components have these shares."""
        k = len(counts)
        shares = (counts + _LEAST_SHARE * counts.mean()) / max(counts.sum(), 1e-300)
        values = np.zeros((len(self.moment), k - 1))
        values[0] = np.log(np.maximum(shares, 1e-300)) @ contrasts(k)
        return values

    def statistics(self, counts: np.ndarray, gated: GateSums | None = None) -> Natural:
        """Return the statistics of a local step.

        Without one, they are those of rows whose components do not depend on covariates.
        """
        if gated is None:
            precision = 0.5 * counts.sum() * self.moment
            return self._of_values(counts, precision, self._values_of(counts))
        return {
            "gate_precision": gated.precision,
            "gate_mean": gated.natural_mean,
            "gate_counts": counts,
        }

    def statistics_of_rows(
        self, counts: np.ndarray, rows: Rows, shares: np.ndarray, scale: float
    ) -> Natural:
        """Return statistics of which q has the coefficients that the shares of the rows have.

        The halves of a component that a move divides, for example, share its covariates, and so
        begin at its coefficients, but for the intercept.
        """
        prior, gate = self._prior_precision, Gate(self.center, self.scale, self._values_of(counts))
        for _ in range(_STEPS):
            found = gate.sums(rows, scale * shares)
            total = prior + found.precision
            gate = Gate(self.center, self.scale, np.linalg.solve(total, found.natural_mean))
        return self._of_values(counts, gate.sums(rows, scale * shares).precision, gate.values)

    def chosen(self, q: Natural, prior: Natural, chosen: np.ndarray) -> Natural:
        of_each = (q["gate_mean"] - prior["gate_mean"]) @ contrasts(self.n_components).T
        return {
            "gate_precision": q["gate_precision"] - prior["gate_precision"],
            "gate_mean": of_each[:, chosen] @ contrasts(len(chosen)),
            "gate_counts": self.expected_counts(q, prior)[chosen],
        }

    # Weights

    def _standard(self, q: Natural) -> dict[str, np.ndarray]:
        return self.factor.family.to_standard(self.factor.pick(q))

    def gate(self, q: Natural, rng: np.random.Generator | None = None) -> Gate:
        if rng is not None:
            value = self.factor.family.sample(self.factor.pick(q), rng)["value"]
            return Gate(self.center, self.scale, value)
        standard = self._standard(q)
        return Gate(self.center, self.scale, standard["mean"], standard["covariance"])

    def log_weights(
        self, q: Natural, rng: np.random.Generator | None = None, known: Known | None = None
    ) -> np.ndarray:
        """Return zeros, to which :meth:`gate` adds."""
        return np.zeros(self.n_components)

    def drawn_log_weights(self, draw: dict[str, np.ndarray]) -> np.ndarray:
        return np.zeros(self.n_components)

    def log_weights_of(self, rows: Rows, q: Natural) -> np.ndarray:
        return self.gate(q).log_weights(rows)

    def log_means_of(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return log π at the posterior means of the coefficients."""
        return self.gate(q).log_means(rows)

    def mean(self, q: Natural) -> np.ndarray:
        """Return the mean weights of the training rows."""
        return np.asarray(q["gate_counts"] / max(float(q["gate_counts"].sum()), 1e-300))

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        return np.asarray(q["gate_counts"] - prior["gate_counts"])

    # Coefficients in the units of the user's columns

    def _units(self) -> np.ndarray:
        """Return the matrix (P, P) by which standardised coefficients become those of columns."""
        back = np.diag(np.append(1.0, 1.0 / self.scale))
        back[0, 1:] = -self.center / self.scale
        return back

    def coefficients(self, q: Natural) -> np.ndarray:
        """Return the intercepts and coefficients of each component, (K, P)."""
        values = self._standard(q)["mean"]
        return np.asarray(contrasts(self.n_components) @ (self._units() @ values).T)

    def covariance(self, of_values: np.ndarray) -> np.ndarray:
        """Return the covariance of :meth:`coefficients`, (K, P, K, P), given that of Γ.

        ``of_values`` has shape (P, K − 1, P, K − 1).
        """
        c, units = contrasts(self.n_components), self._units()
        found: Any = np.einsum("pa,ki,aibj,qb,lj->kplq", units, c, of_values, units, c)
        return np.asarray(found)


def _covariates(rows: Rows) -> np.ndarray:
    assert rows.covariates is not None
    return rows.covariates
