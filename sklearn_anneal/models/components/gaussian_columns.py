"""Gaussian components whose columns are independent, each with a mean and a precision."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import psi

from ...data.units import Rows
from ...families import STRONG, Factor, Natural, NormalWishart, log_rising
from ...families._empirical_bayes import trigamma
from ...families.normal_wishart import in_order
from .._base import LOG_2PI, DataSummary, Expected, Known, first_center, with_center
from ._base import Draws, Profile, moved
from ._linear import Coefficients, LinearComponents, LinearSums, filled
from ._narrow_gaussians import kernels
from ._predictive_moments import CellMoments, student_t_spreads

# Rows whose predictive densities are computed at a time.
_CHUNK = 8192
# The inverse scale that is learned stays above this multiple of the variance of the column.
_SMALLEST_SCALE = 1e-6
# The smallest permitted precision of the means, in units of the precision of a component.
_SMALLEST_STRENGTH = 1e-8
_ONE = np.ones((1, 1))
# Newton's method for all columns stops at this relative precision, or after so many steps.
_PRECISION, _STEPS = 1e-12, 50


@dataclass(frozen=True)
class ColumnMoments(DataSummary):
    """Moments of the observed cells of each column."""

    weight: float  # N = Σ w of all data; in a stream, this includes data that have not arrived yet
    seen: np.ndarray  # Σ w of the observed cells of each column, (n_features,)
    # The origin of the model's coordinates, (n_features,). NaN in the columns of a part of the data
    # that has no observed cell in them.
    center: np.ndarray
    # The means, and Σ w (x − mean)², (n_features,).
    mean: np.ndarray
    scatter: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Variances of the columns, divided by Σ w − 1, or by Σ w if that is at most 1."""
        return self.scatter / np.where(self.seen > 1, self.seen - 1, np.maximum(self.seen, 1e-300))

    def merge(self, other: ColumnMoments) -> ColumnMoments:
        """Return the moments of both data sets together, in the coordinates of this summary."""
        seen = np.maximum(self.seen + other.seen, 1e-300)
        difference = other.mean - self.mean
        return ColumnMoments(
            weight=self.weight + other.weight,
            seen=self.seen + other.seen,
            center=first_center(self, other),
            mean=self.mean + other.seen / seen * difference,
            scatter=self.scatter + other.scatter + self.seen * other.seen / seen * difference**2,
        )

    def whole(self) -> ColumnMoments:
        return with_center(self)


class GaussianColumns(LinearComponents[ColumnMoments]):
    """Gaussians with independent columns, and Normal–Gamma priors of means and precisions.

    With one column, a Normal–Wishart distribution is a Normal–Gamma distribution, with the shape
    ν / 2 and the rate W⁻¹ / 2. The natural parameters are those of one Normal–Wishart distribution
    for each column d of each component k, in the row k · n_features + d: ``mean_precision`` and
    ``dof`` (K D,), ``mean_natural`` and ``scatter`` (K D, 1). They refer to coordinates whose
    origin is the center of the data.

    Parameters
    ----------
    n_components, n_features : int
    mean_precision_prior, degrees_of_freedom_prior : float, ndarray or "auto"
        β₀ and ν₀, broadcastable to (n_components, n_features).
    mean_prior : ndarray, "auto" or None
        m₀; None stands for the means of the columns.
    scale_prior : ndarray, "auto" or None
        W₀⁻¹; None stands for the variances of the columns. ``"auto"`` stands for a value for each
        column that all components share, that begins at the value of None, and that is learned if
        there are two components or more.
    reg_covar : float
        The number that is added to the variance of a constant column.

    Attributes
    ----------
    noise_variance : float
        The variance of the noise that rows have in the bound (``GaussianComponents``).
    """

    why_no_exact_gradient = (
        "the gradient of a draw with respect to the parameters of a "
        "Normal–Gamma distribution is not available"
    )

    profile_names = ("means", "covars")
    waits = False

    def __init__(
        self,
        n_components: int,
        n_features: int,
        mean_precision_prior: Any = "auto",
        mean_prior: Any = "auto",
        degrees_of_freedom_prior: Any = "auto",
        scale_prior: Any = "auto",
        reg_covar: float = 1e-6,
    ):
        super().__init__(n_components, n_features)
        self.reg_covar = reg_covar
        given = {
            "mean_precision_prior": mean_precision_prior,
            "mean_prior": mean_prior,
            "degrees_of_freedom_prior": degrees_of_freedom_prior,
            "scale_prior": scale_prior,
        }
        auto = [name for name, value in given.items() if isinstance(value, str)]
        self.learned_names = tuple(auto)
        self.learns = bool(self.learned_names)
        self.noise_variance = reg_covar if self.learns else 0.0
        self.given = {k: None if isinstance(v, str) else v for k, v in given.items()}
        self.priors: dict[str, np.ndarray] = {}
        self.reference: np.ndarray = np.ones(n_features)

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        family = NormalWishart("diag", self.n_components * self.n_features, 1)
        return (Factor(family, {key: key for key in NormalWishart.keys}),)

    # Data and priors

    def summary(self, rows: Rows) -> ColumnMoments:
        seen, first, second = (np.zeros(self.n_features) for _ in range(3))
        origin = None
        for start in range(0, rows.n_units, _CHUNK):
            chunk = rows.take(slice(start, start + _CHUNK))
            X = np.asarray(chunk.X, dtype=np.float64)
            if origin is None:
                _, mask = filled(X)
                known = np.ones(X.shape) if mask is None else ~mask
                origin = filled(X)[0].sum(axis=0) / np.maximum(known.sum(axis=0), 1)
            values, mask = filled(X, origin)
            w = np.ones(len(X)) if chunk.weights is None else chunk.weights
            seen += w.sum() if mask is None else w @ ~mask
            first += w @ values
            second += w @ values**2
        assert origin is not None
        mean = first / np.maximum(seen, 1e-300)
        scatter = np.maximum(second - seen * mean**2, 0.0)
        mean = origin + mean
        center = np.where(seen > 0, mean, np.nan)
        return ColumnMoments(rows.total_weight, seen, center, mean, scatter)

    def resolved(self, summary: ColumnMoments) -> GaussianColumns:
        if not np.all(np.isfinite(summary.variance)):
            raise ValueError(
                "The variances of X overflow: its values are too large for sums of their squares. "
                "Rescale X, for example with StandardScaler."
            )
        variance = summary.variance
        variance = np.where(variance > 0, variance, variance + max(self.reg_covar, 1e-12))
        defaults: dict[str, Any] = {
            "mean_precision_prior": 1.0,
            "mean_prior": summary.mean,
            "degrees_of_freedom_prior": 1.0,
            "scale_prior": variance,
        }
        model = copy(self)
        shape = self.n_components, self.n_features
        for name, default in defaults.items():
            value = default if self.given[name] is None else self.given[name]
            array = np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
            model.priors = model.priors | {name: array.copy()}
        model.reference = variance
        return model

    def prior(self, summary: ColumnMoments) -> Natural:
        return self._natural(self.priors["mean_prior"] - summary.center)

    def _natural(self, mean: np.ndarray) -> Natural:
        """Return λ₀ at the prior means ``mean`` relative to the center."""
        (factor,) = self.factors
        standard = {
            "mean": mean.reshape(-1, 1),
            "mean_precision": self.priors["mean_precision_prior"].ravel(),
            "inverse_scale": self.priors["scale_prior"].reshape(-1, 1),
            "dof": self.priors["degrees_of_freedom_prior"].ravel(),
        }
        return factor.rename(factor.family.from_standard(**standard))

    def standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``mean`` (relative to the center), ``mean_precision``, ``inverse_scale``, ``dof``.

        All have shape (n_components, n_features).
        """
        (factor,) = self.factors
        standard = factor.family.to_standard(factor.pick(natural))
        shape = self.n_components, self.n_features
        return {key: value.reshape(shape) for key, value in standard.items()}

    def _learned(self, q: Natural, prior: Natural, rho: float) -> tuple[GaussianColumns, Natural]:
        """Maximise the bound over the priors of each column for fixed q.

        The prior mean comes first, then the precision of the means, and then the inverse scale and
        the degrees of freedom of the precisions together.
        """
        model = copy(self)
        now = self.standard(q)
        precision, log_precision = _expected_precisions(now)
        center = (prior["mean_natural"] / prior["mean_precision"][:, None]).reshape(precision.shape)
        priors, dof = dict(self.priors), prior["dof"].reshape(precision.shape)
        rows = np.maximum((now["dof"] - dof).mean(axis=0), 0.0)
        if "mean_prior" in self.learned_names:
            best = (precision * now["mean"]).sum(axis=0) / precision.sum(axis=0)
            change = rho * (best - center[0])
            center = center + change
            priors["mean_prior"] = priors["mean_prior"] + change
        if "mean_precision_prior" in self.learned_names:
            squares = 1.0 / now["mean_precision"] + precision * (now["mean"] - center) ** 2
            strength = self.priors["mean_precision_prior"]
            most = np.maximum(np.maximum(self.n_components * rows, 1.0), strength[0])
            best = np.clip(1.0 / squares.mean(axis=0), _SMALLEST_STRENGTH, most)
            priors["mean_precision_prior"] = moved(strength, best, rho)
        dof, scale = self._best_precisions(precision.mean(axis=0), log_precision.mean(axis=0), rows)
        if "degrees_of_freedom_prior" in self.learned_names:
            priors["degrees_of_freedom_prior"] = moved(priors["degrees_of_freedom_prior"], dof, rho)
        if "scale_prior" in self.learned_names:
            priors["scale_prior"] = moved(priors["scale_prior"], scale, rho)
        model.priors = priors
        return model, model._natural(center)

    def _best_precisions(
        self, mean: np.ndarray, mean_log: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ν₀ and W₀⁻¹ of each column that maximise the bound; one of them may be given.

        ``mean`` and ``mean_log`` are those of E λ and E log λ over the components. The degrees of
        freedom are between 1, or their given value, and one more than the rows of a component.
        """
        old_dof = self.priors["degrees_of_freedom_prior"][0]
        old_scale = self.priors["scale_prior"][0]
        least = _SMALLEST_SCALE * self.reference
        lower = np.minimum(1.0, old_dof)
        upper = np.maximum(1.0 + rows, old_dof)
        dof = old_dof
        if "degrees_of_freedom_prior" in self.learned_names:
            if "scale_prior" in self.learned_names:
                # W⁻¹ is ν / E λ, so that the shape a = ν / 2 has log a − ψ(a) = log E λ − E log λ.
                dof = 2.0 * _gamma_shapes(np.log(mean) - mean_log, True, 0.5 * old_dof)
            else:
                target = np.log(0.5 * old_scale) + mean_log
                dof = 2.0 * _gamma_shapes(target, False, 0.5 * old_dof)
            dof = np.clip(dof, lower, upper)
        scale = old_scale
        if "scale_prior" in self.learned_names:
            # The bound is concave in W⁻¹ for fixed ν. Where the limit is in the way, ν stays, and
            # the limit is then the best permitted value.
            dof = np.where(dof / mean < least, old_dof, dof)
            scale = np.maximum(dof / mean, np.minimum(least, old_scale))
        return dof, scale

    def random_natural(
        self, counts: np.ndarray, summary: ColumnMoments, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        shape = self.n_components, self.n_features
        noise = rng.standard_normal(shape) * np.sqrt(summary.variance)
        centers = summary.mean - summary.center + noise
        return self._posterior_given(counts, centers, summary.variance, prior)

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: ColumnMoments,
        prior: Natural,
    ) -> Natural:
        now = self.standard(q) if q else {}
        centers = profile["means"] - summary.center if "means" in profile else now["mean"]
        variances = profile.get("covars")
        if variances is None:
            variances = now["inverse_scale"] / now["dof"]
        return self._posterior_given(counts, centers, variances, prior)

    def _posterior_given(
        self, counts: np.ndarray, centers: np.ndarray, variances: np.ndarray, prior: Natural
    ) -> Natural:
        """Return the posterior given rows with these moments; centers are relative to the center.

        All but ``counts`` broadcast to (n_components, n_features).
        """
        n = np.broadcast_to(counts[:, None], (self.n_components, self.n_features))
        each = {
            "mean_precision": n.ravel(),
            "mean_natural": (n * centers).reshape(-1, 1),
            "scatter": (n * (variances + centers**2)).reshape(-1, 1),
            "dof": n.ravel(),
        }
        return {key: prior[key] + value for key, value in each.items()}

    # Log densities

    carrier_is_fixed = True

    def _values(self, X: np.ndarray) -> np.ndarray:
        return np.concatenate([X * X, X], axis=1)

    def _coefficients(
        self, mean: np.ndarray, precision: np.ndarray, log_precision: Any, spread: Any
    ) -> Coefficients:
        cells = 0.5 * (log_precision - LOG_2PI - spread - precision * mean**2)
        slopes = np.concatenate([-0.5 * precision, precision * mean], axis=1)
        return Coefficients(slopes, cells)

    def expected_coefficients(self, q: Natural) -> Coefficients:
        now = self.standard(q)
        precision, log_precision = _expected_precisions(now)
        spread = 1.0 / now["mean_precision"] + self.noise_variance * precision
        return self._coefficients(now["mean"], precision, log_precision, spread)

    def known(self, q: Natural, before: Known | None) -> Known | None:
        """Return E μ, E λ and E log λ, of the shapes (K D, 1), (K D, 1) and (K D,).

        Each column of each component is a normal-Wishart distribution of one feature.
        """
        arrays = in_order(q)
        precision, log_precision = np.empty(q["scatter"].shape), np.empty(q["dof"].shape)
        kernels().moments(*arrays, precision, log_precision)
        mean = q["mean_natural"] / q["mean_precision"][:, None]
        return {"moments": (mean, precision, log_precision)}

    def expectations_given(self, q: Natural, known: Known) -> Coefficients:
        shape = self.n_components, self.n_features
        mean, precision, log_precision = (each.reshape(shape) for each in known["moments"])
        spread = 1.0 / q["mean_precision"].reshape(shape) + self.noise_variance * precision
        return self._coefficients(mean, precision, log_precision, spread)

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        found = np.empty(2)
        arrays = q["dof"], q["mean_precision"], *known["moments"]
        of_prior = prior["dof"], prior["mean_precision"]
        mean = prior["mean_natural"] / prior["mean_precision"][:, None]
        scales = np.ascontiguousarray(self.priors["scale_prior"], dtype=np.float64).ravel()
        kernels().divergence(*arrays, *of_prior, mean, _ONE, scales, found, np.empty((2, 1)))
        return float(found[0]) if found[1] <= STRONG else None

    def coefficients(self, draws: Draws) -> Coefficients:
        (draw,) = draws
        shape = self.n_components, self.n_features
        precision = draw["precision"].reshape(shape)
        log_precision = draw["log_det_precision"].reshape(shape)
        noise = self.noise_variance * precision
        return self._coefficients(draw["mean"].reshape(shape), precision, log_precision, noise)

    def plug_in(self, q: Natural) -> Coefficients:
        now = self.standard(q)
        precision = now["dof"] / now["inverse_scale"]
        return self._coefficients(now["mean"], precision, np.log(precision), 0.0)

    def student_t(self, q: Natural) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return degrees of freedom, means and squared scales of the predictive densities.

        All have shape (n_components, n_features); the means are relative to the center.
        """
        now = self.standard(q)
        beta = now["mean_precision"]
        return now["dof"], now["mean"], now["inverse_scale"] / now["dof"] * (beta + 1.0) / beta

    def log_predictive(self, rows: Rows, q: Natural) -> np.ndarray:
        """Return the log densities of Student-t distributions, one for each column."""
        dof, mean, scale = self.student_t(q)
        constants = log_rising(0.5 * dof, 0.5)
        constants -= 0.5 * np.log(np.pi * dof * scale)
        out = np.zeros((rows.n_units, self.n_components))
        for start in range(0, rows.n_units, _CHUNK):
            X, mask = filled(rows.X[start : start + _CHUNK], rows.center)
            part = out[start : start + _CHUNK]
            for d in range(self.n_features):
                distance = (X[:, d, None] - mean[:, d]) ** 2 / (dof * scale)[:, d]
                each = constants[:, d] - 0.5 * (dof[:, d] + 1.0) * np.log1p(distance)
                if mask is not None:
                    each[mask[:, d]] = 0.0
                part += each
        return out

    def predictive_moments(self, q: Natural) -> CellMoments:
        dof, mean, scale = self.student_t(q)
        spreads, exists = student_t_spreads(dof)
        return CellMoments(mean, scale * spreads, exists)

    def plug_in_moments(self, q: Natural) -> CellMoments:
        return CellMoments(self.standard(q)["mean"], self.covariances(q))

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        mean, std = super().imputed(rows, shares, q, predictive)
        return mean + rows.center, std

    def drawn_rows(
        self, rows: Rows, labels: np.ndarray, expected: Coefficients, rng: np.random.Generator
    ) -> np.ndarray:
        return super().drawn_rows(rows, labels, expected, rng) + rows.center

    def drawn_cells(
        self,
        labels: np.ndarray,
        columns: np.ndarray,
        expected: Coefficients,
        rng: np.random.Generator,
    ) -> np.ndarray:
        precision = -2.0 * expected.slopes[labels, columns]
        mean = expected.slopes[labels, self.n_features + columns] / precision
        return mean + rng.standard_normal(len(labels)) / np.sqrt(precision)

    @property
    def n_parameters(self) -> int:
        return 2 * self.n_components * self.n_features

    def covariances(self, q: Natural) -> np.ndarray:
        """Return W⁻¹ / ν of each column, (n_components, n_features)."""
        now = self.standard(q)
        return now["inverse_scale"] / now["dof"]

    def coordinates(self, q: Natural, summary: ColumnMoments) -> np.ndarray:
        spread = np.sqrt(np.where(summary.variance > 0, summary.variance, 1.0))
        return np.hstack([self.standard(q)["mean"] / spread, self.covariances(q) / spread**2])

    def statistics(
        self, raw: LinearSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        n, d = raw.observed.ravel(), self.n_features
        return {
            "mean_precision": n,
            "mean_natural": raw.sum[:, d:].reshape(-1, 1),
            "scatter": raw.sum[:, :d].reshape(-1, 1) + self.reg_covar * n[:, None],
            "dof": n,
        }

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the means at random by ``size`` prior standard deviations, and nothing else."""
        (factor,) = self.factors
        before = self.standard(prior)
        variance = before["inverse_scale"] / before["dof"] / before["mean_precision"]
        standard = factor.family.to_standard(factor.pick(q))
        noise = rng.standard_normal(variance.shape)
        standard["mean"] = standard["mean"] + size * (np.sqrt(variance) * noise).reshape(-1, 1)
        return q | factor.rename(factor.family.from_standard(**standard))

    def log_volumes(self, x: np.ndarray, summary: ColumnMoments, expected: Expected) -> np.ndarray:
        """Return log ∫ N(y | μ, σ²)^x dy, at the variances of the columns."""
        tiny = max(self.reg_covar, np.finfo(float).tiny)
        log_variance = np.log(summary.variance + tiny)
        powers = np.asarray(x)[:, None]
        each = 0.5 * (1 - powers) * (LOG_2PI + log_variance) - 0.5 * np.log(powers)
        return np.repeat(each[:, None], self.n_components, axis=1)


def _expected_precisions(now: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return E λ and E log λ, given standard parameters."""
    scale = now["inverse_scale"]
    return now["dof"] / scale, psi(0.5 * now["dof"]) + np.log(2.0) - np.log(scale)


def _gamma_shapes(gap: np.ndarray, free_rate: bool, starts: np.ndarray) -> np.ndarray:
    """Return the shapes a of gamma priors, one for each column, by Newton's method in log a.

    If the rate is free, they solve log a − ψ(a) = gap; if not, ψ(a) = gap.
    """
    log_a = np.log(starts)
    if free_rate:
        gap = np.maximum(gap, 1e-9)
        # Minka's start, from which Newton's method needs four or five steps.
        root = np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)
        log_a = np.log((3.0 - gap + root) / (12.0 * gap))
    for _ in range(_STEPS):
        a = np.exp(log_a)
        value = (log_a - psi(a) if free_rate else psi(a)) - gap
        slope = 1.0 - a * trigamma(a) if free_rate else a * trigamma(a)
        step = (-value / slope).clip(-3.0, 3.0)
        log_a = log_a + step
        if (np.abs(step) <= _PRECISION).all():
            break
    return np.exp(log_a)
