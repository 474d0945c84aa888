"""Empirical Bayes for the prior of Gaussian components.

All components share the prior that is learned. The bound depends on it through the expected log
density of its K draws. One step maximises this expectation while q stays fixed: first over the
prior mean, then over the precision of the means, then over the sizes of the components, and then
over the inverse scale and the degrees of freedom of the Wishart prior together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from ...families import Factors, Natural
from ...families._empirical_bayes import damped, scale_root, wishart_dof
from ...families._structure import (
    inverse_of_lower,
    log_det_of_root,
    lower_root,
)
from ...families.wishart import Precisions
from .._base import Known, shallow
from ._base import Next
from ._correlated_scale import SMALLEST_SCALE, kappa
from ._features import kernels
from ._few_rows import FewRows, are_few, is_posterior, moments_inside

if TYPE_CHECKING:
    from .gaussian import GaussianComponents

OF_MEANS = ("mean_precision_prior", "mean_prior")
OF_PRECISIONS = ("degrees_of_freedom_prior", "covariance_prior")

# The smallest permitted precision of the means, in units of the precision of a component.
SMALLEST_STRENGTH = 1e-8
# Degrees of freedom that few rows determine exceed D by so many times the rows at most.
ROWS_OF_DIAGONAL = 10.0
# Bounds of the strength a of sizes. With a smaller one the prior would hardly have a mean. At the
# largest one, sizes are 1 up to a hundredth, as if there were none.
_STRENGTHS = (0.5, 1e4)
# a is searched near the best of these values, up to this relative precision.
GRID_OF_STRENGTHS = np.geomspace(*_STRENGTHS, 21)
PRECISION_OF_STRENGTH = 1e-7


def learned_gaussians(
    components: GaussianComponents,
    q: Natural,
    prior: Natural,
    rho: float,
    late: bool,
    rows_stay: bool = False,
    known: Known | None = None,
) -> tuple[GaussianComponents, Natural]:
    """Return the components and their λ₀ after a step of empirical Bayes.

    The priors move by the share ρ towards those that maximise the bound given q. Precisions and
    degrees of freedom move on a logarithmic scale, the prior mean and the covariance W₀⁻¹ / ν₀ on
    a linear one. The priors stay if q would leave its domain with the new ones, which only random
    numbers in q can cause.
    """
    if not components.learns:
        return components, {key: prior[key] for key in components.keys}
    together = rows_stay and components.joint and components.structure.event_ndim == 2
    together = together and "covariance_prior" in components.auto and not components.learns_matrix
    raw = None if known is None else known.pop("raw", None)
    rows, precisions, exact = None, None, False
    if together and raw is not None:
        assert known is not None
        of_prior, of_raw = known["made_of"]
        same = raw is of_raw and all(prior[key] is of_prior[key] for key in components.keys)
        few = components.scale_prior_dof == np.inf and are_few(raw)
        exact = (same or few) and is_posterior(components, q, prior, raw)
        if exact:
            rows = FewRows.of(components, raw) if few else None
            precisions = known["moments"][2] if same else None
    if rho == 1.0 and not together:
        at_once = components.narrow_step(q, prior, known)
        if at_once is not None:
            return at_once
    new = shallow(components)
    joint = components.joint_step(q, prior, rows, precisions) if together else None
    step: Step = Step(components, q, prior, components.moments(q)) if joint is None else joint
    if joint is not None:
        joint.learn_scale(rho)
        new.n_alike, new.tried = joint.n_alike, joint.tried
    if "mean_prior" in components.auto:
        new.mean_prior = components.mean_prior + step.move_mean(rho)
    if "mean_precision_prior" in components.auto:
        best = step.best_strength()
        new.mean_precision_prior = damped(components.mean_precision_prior, best, rho)
    if set(OF_PRECISIONS) & set(components.auto):
        if joint is not None:
            joint.follow_means(new.mean_precision_prior)
        if components.sizes is not None:
            step.learn_sizes(components.sizes, rho)
        _learn_precisions(step, new, rho)
    natural = new.natural_prior(step.center)
    # Parameters that stay are valid already.
    moved = components.following(q, prior, natural)
    if known is None or components.is_narrow:
        factors = Factors(f for f in components.factors if moved.keys() >= set(f.names.values()))
        inside = factors.valid(moved)
    else:
        moments = moments_inside(new, moved, natural, rows)
        known["next"] = Next(natural, moved, moments, raw, exact)
        inside = moments is not None
    if inside:
        return new, natural
    return components, {key: prior[key] for key in components.keys}


class Step:
    """The maximisation of the bound over the prior while q is fixed.

    ``moments`` are those of q (:meth:`GaussianComponents.moments`).
    """

    def __init__(
        self,
        components: GaussianComponents,
        q: Natural,
        prior: Natural,
        moments: tuple[Any, ...] | None = None,
    ):
        self.components, self.structure = components, components.structure
        self.q, self.prior = q, prior
        if moments is not None:
            self.mean, self.covariance, precision, log_dets = moments
            factored = isinstance(precision, Precisions)
            self.precision = precision.matrices if factored else precision
            self.log_det = float(log_dets.mean())
        self.sizes, self.smallest = components.sizes, 1.0
        self.scale = np.asarray(components.common_scale, dtype=np.float64)
        # The degrees of freedom of the prior of V, which are infinite if V is diagonal.
        self.eta = self.eta_before = components.scale_prior_dof
        # The prior mean of every component.
        self.center = components.prior_means(prior)
        # Each row raises the degrees of freedom of one component by 1.
        self.rows_each = max(float((q["dof"] - prior["dof"]).mean()), 0.0)
        self.n_rows = max(components.n_matrices * self.rows_each, 1.0)
        if not components.learns_matrix:
            # Random numbers in q must not raise limits, or bounds of few rows would prefer more
            # components, whose priors have seen more of them.
            self.n_rows = components.n_rows

    def learn_sizes(self, sizes: Sizes, rho: float) -> None:
        """Learn the sizes of the components; precisions are in units of the sizes from then on."""
        c, d = self.components, self.components.n_features
        scale = self.structure.multiplicity(d) * c.common_scale
        traces = self.precision.reshape(c.n_components, -1) @ scale.reshape(-1)
        none = np.zeros(c.n_components)
        decay = Decay(none, none, none)
        learned = sizes.learned(traces, decay, c.degrees_of_freedom_prior, d, rho)
        if not self.is_above(self.scale * learned.mean.min()):
            # Components that would be too tight have the smallest size that is permitted.
            least = min(SMALLEST_SCALE / self.smallest_of(self.scale), float(sizes.mean.min()))
            learned = sizes.learned(traces, decay, c.degrees_of_freedom_prior, d, rho, least)
        # The bound is highest if V has the mean of the sizes, because the prior expects sizes of 1.
        mean = float(learned.mean.mean())
        sizes = replace(learned, rate=learned.rate * mean)
        self.scale = mean * self.scale
        self.sizes, self.smallest = sizes, float(sizes.mean.min())
        self.log_det += d * float(sizes.mean_log.mean())
        self.precision = c.per_row(sizes.mean) * self.precision

    def is_above(self, scale: np.ndarray) -> bool:
        """Return whether an inverse scale is large enough for all sizes, by one factorisation."""
        floor = SMALLEST_SCALE / self.smallest * np.asarray(self.components.reference)
        return bool(np.all(self.structure.positive(scale - floor)))

    def smallest_of(self, scale: np.ndarray) -> float:
        """Return the smallest eigenvalue of an inverse scale relative to the data's covariance."""
        reference = np.asarray(self.components.reference) / self.smallest
        return float(np.min(self.structure.relative(scale, reference, self.components.n_features)))

    def move_mean(self, rho: float) -> np.ndarray:
        """Move m₀ by the share ρ of the way to the best one, and return by how much it moves."""
        change = rho * (self.best_mean() - self.center[0])
        self.center = self.center + change
        return change

    def best_mean(self) -> np.ndarray:
        """Return m₀, the mean of E μ_k, weighted by the expected prior precisions of the means."""
        if self.components.joint:
            strength = self.components.per_row(self.prior["mean_precision"])
            weights = strength * self.precision
        else:
            weights = self.prior["mean_precision"]
        total = self.structure.multiply(weights, self.mean).sum(axis=0)
        return self.structure.solve(weights.sum(axis=0)[None], total[None])[0]

    def best_strength(self) -> float:
        """Return β₀, the inverse mean square of μ_k − m₀ in units of the prior covariance of μ_k.

        It is not larger than the number of rows, because it has no upper limit if all components
        have the same mean.
        """
        c, old = self.components, self.components.mean_precision_prior
        difference = self.mean - self.center
        if c.joint:
            moved = self.structure.multiply(self.precision, difference)
            squares = c.n_features / self.q["mean_precision"] + (difference * moved).sum(axis=1)
        else:
            products = self.prior["mean_precision"] / old * self.squares
            squares = self.structure.multiplicity(c.n_features) * products
        best = c.n_components * c.n_features / float(squares.sum())
        return min(max(best, SMALLEST_STRENGTH), max(self.n_rows, old))

    @cached_property
    def squares(self) -> np.ndarray:
        """E (μ_k − m₀)(μ_k − m₀)ᵀ with independent factors, stored like the covariance.

        It is first read when m₀ has its new value.
        """
        return self.covariance + self.structure.outer(self.mean - self.center)

    def bounds_of_dof(self, old: float) -> tuple[float, float]:
        """Return the smallest and the largest ν₀.

        ν₀ would have no upper limit if all components were alike. Its limit is D + N / K, so that
        the prior never counts more than the rows that a component has on average, because these
        rows have determined W₀. A diagonal W₀ has few entries, and a matrix with a prior of its
        own does not repeat the rows: both may count ten times all rows.
        """
        d, most = self.components.n_features, self.rows_each
        if not self.components.learns_matrix:
            most = ROWS_OF_DIAGONAL * self.n_rows
        least = self.components.least_dof
        return min(least, old), max(d + most, least, old)

    def best_scale(
        self, strength: np.ndarray | float, old: float, learns_dof: bool
    ) -> tuple[float, np.ndarray]:
        """Return the best ν₀, or the one now if it is not learned, and the best W₀⁻¹ for it."""
        scales = self.scales(strength)
        dof = self.dof(scales.log_det, old) if learns_dof else old
        scale = scales.best(dof)
        if self.is_above(scale):
            return dof, scale
        scale = _kept_above(self, self.scale, scales.best(old))
        return self.dof_given(scale, old) if learns_dof else old, scale

    def dof_given(self, scale: np.ndarray, old: float) -> float:
        """Return the best ν₀ for a given W₀⁻¹."""
        log_det = float(np.mean(self.structure.log_det(scale, self.components.n_features)))
        return self.dof(lambda _: (log_det, 0.0), old)

    def dof(self, log_det_scale: Callable[[float], tuple[float, float]], old: float) -> float:
        """Return ν₀ for the log-determinant of W₀⁻¹ as a function of ν₀, and its derivative."""
        d, bounds = self.components.n_features, self.bounds_of_dof(old)
        if self.eta == np.inf:
            return wishart_dof(d, self.log_det, log_det_scale, old, bounds)

        def expected(dof: float) -> tuple[float, float]:
            # E log|V| is in the place of log|E V|.
            of_scale, k = log_det_scale(dof), self.components.n_matrices
            of_prior = kappa(self.eta + k * dof, d)
            return of_scale[0] + of_prior[0], of_scale[1] + k * of_prior[1]

        return wishart_dof(d, self.log_det, expected, old, bounds)

    def scales(self, strength: np.ndarray | float) -> _Scales:
        """Return the best inverse scales W₀⁻¹ as a function of ν₀, given β₀."""
        c, d = self.components, self.components.n_features
        precision = self.precision
        if not self.structure.shared:
            precision = precision.mean(axis=0)
        squares, shift = np.zeros_like(precision), 0.0
        if not c.joint:
            # W₀⁻¹ / β₀ is then the prior covariance of the means as well, of one or of K of them.
            weights = c.per_row(np.broadcast_to(strength, c.n_components))
            shift = c.n_components / c.n_matrices
            squares = shift * (weights * self.squares).mean(axis=0)
        if self.eta < np.inf:
            each = self.eta / c.n_matrices
            inverse = precision + np.diag(each / np.diagonal(self.scale))
            inverse, log_det = self.structure.inverse_and_log_det(inverse, d)
            return _Scales(np.zeros(1), inverse, -float(log_det), -each, d)
        if not c.learns_matrix:
            own = np.diagonal(precision)
            spread, offset = own * np.diagonal(squares), -float(np.log(own).sum())
            return _Scales(spread, np.diag(1.0 / own), offset, shift, d)
        if self.structure.event_ndim < 2:
            offset = -float(self.structure.log_det(precision, d))
            return _Scales(precision * squares, 1.0 / precision, offset, shift, d)
        if c.joint:
            inverse, log_det = self.structure.inverse_and_log_det(precision, d)
            return _Scales(np.zeros(1), inverse, -float(log_det), shift, d)
        root = lower_root(precision)
        spread, vectors = np.linalg.eigh(root.T @ squares @ root)
        basis, offset = inverse_of_lower(root).T @ vectors, -float(log_det_of_root(root))
        return _Scales(np.maximum(spread, 0.0), basis, offset, shift, d, rotated=True)


class _Scales:
    """The inverse scale W₀⁻¹ that maximises the bound, as a function of ν₀.

    Parameters
    ----------
    spread : ndarray
        The numbers a from which :func:`scale_root` finds the eigenvalues y of W₀⁻¹.
    basis : ndarray
        W₀⁻¹ is y times ``basis``, or B diag(y) Bᵀ if it is ``rotated``, where B is ``basis``.
    offset : float
        log|W₀⁻¹| where all eigenvalues are 1.
    shift : float
        The number that is subtracted from ν₀ to give n.
    n_features : int
    rotated : bool, default=False
    """

    def __init__(
        self,
        spread: np.ndarray,
        basis: np.ndarray,
        offset: float,
        shift: float,
        n_features: int,
        rotated: bool = False,
    ):
        self.spread, self.basis, self.offset, self.shift = spread, basis, offset, shift
        self.multiplicity, self.rotated = n_features / spread.size, rotated

    def log_det(self, dof: float) -> tuple[float, float]:
        """Return log|W₀⁻¹| and its derivative."""
        y, derivative = scale_root(dof - self.shift, self.spread)
        value = self.multiplicity * np.log(y).sum() + self.offset
        return float(value), float(self.multiplicity * (derivative / y).sum())

    def best(self, dof: float) -> np.ndarray:
        """Return W₀⁻¹."""
        y, _ = scale_root(dof - self.shift, self.spread)
        return (self.basis * y) @ self.basis.T if self.rotated else y.reshape(-1) * self.basis


def _learn_precisions(step: Step, new: GaussianComponents, rho: float) -> None:
    """Set the covariance prior and the degrees of freedom of ``new``, or that of both to learn."""
    c, d = step.components, step.components.n_features
    learns_dof = "degrees_of_freedom_prior" in c.auto
    old_dof = dof = c.mean_dof_prior
    old = scale = step.scale
    if "covariance_prior" in c.auto:
        dof, scale = step.best_scale(new.mean_precision_prior, old_dof, learns_dof)
    elif learns_dof:
        dof = step.dof_given(scale, old_dof)
    if learns_dof:
        new.degrees_of_freedom_prior = damped(old_dof, dof, rho, d - 1)
    if "covariance_prior" in c.auto:
        if rho < 1.0:
            now = new.mean_dof_prior
            scale = now * ((1.0 - rho) * old / old_dof + rho * scale / dof)
        new.set_scale(scale, step.sizes)


def _kept_above(step: Step, old: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return the inverse scale nearest to the best one, on the way there, that is large enough.

    For fixed ν₀ the bound is a concave function of W₀⁻¹, so that no point on the way lowers it.
    The smallest eigenvalue of a sum is at least the sum of the smallest eigenvalues.
    """
    before, after = step.smallest_of(old), step.smallest_of(best)
    if after >= before:
        return best if after >= SMALLEST_SCALE else old
    share = (before - SMALLEST_SCALE) / (before - after)
    return old + min(max(share, 0.0), 1.0) * (best - old)


@dataclass(frozen=True)
class Sizes:
    """The distributions of the sizes of all components, and their prior.

    The prior of the precision of component k is a Wishart distribution with the inverse scale
    s_k V. All components share V, and their sizes s_k ~ Gamma(a, a), whose mean is 1, are inferred
    with q(s_k) = Gamma(A_k, B_k). Where all components have the same scale, the learned a is large,
    and V alone is their prior. Where scales differ by orders of magnitude, components still share
    the shape of V, which a single scale could not express.
    """

    strength: float  # a
    # A_k and B_k, (n_components,).
    shape: np.ndarray
    rate: np.ndarray
    # ν and the divergence at this ν, if it has been computed (:meth:`kl`). A changed copy, which
    # :func:`dataclasses.replace` returns, has none.
    known_kl: InitVar[tuple[float, float] | None] = None
    kl_at: tuple[float, float] | None = field(init=False, compare=False)

    def __post_init__(self, known_kl: tuple[float, float] | None) -> None:
        object.__setattr__(self, "kl_at", known_kl)

    @classmethod
    def equal(cls, n_components: int) -> Sizes:
        """Return sizes of 1, with which learning begins."""
        most = np.full(n_components, _STRENGTHS[1])
        return cls(_STRENGTHS[1], most, most)

    @property
    def mean(self) -> np.ndarray:
        """E s_k, of shape (n_components,)."""
        return self.shape / self.rate

    @property
    def described(self) -> dict[str, np.ndarray]:
        """The means and parameters of the distributions, and a, by their names."""
        strength = np.array(self.strength)
        own = {"shape": self.shape.copy(), "rate": self.rate.copy(), "strength": strength}
        return {"mean": self.mean, **own}

    @property
    def mean_log(self) -> np.ndarray:
        """E log s_k, of shape (n_components,)."""
        return psi(self.shape) - np.log(self.rate)

    def kl(self, dof: np.ndarray | float, n_features: int) -> float:
        """Return the term that the bound lacks with the prior of the precisions at E s_k, in nats.

        These are the divergences of the sizes from their prior, and ν D / 2 times the difference of
        log E s_k and E log s_k, because log p(Λ_k | s_k) has the term ν D log(s_k) / 2.
        """
        if self.kl_at is not None and isinstance(dof, float) and dof == self.kl_at[0]:
            return self.kl_at[1]
        gap = np.log(self.shape) - psi(self.shape)
        return float(np.sum(self._divergences() + 0.5 * n_features * dof * gap))

    def _divergences(self) -> np.ndarray:
        """Return KL(q(s_k) ‖ p(s_k)) of all components in nats, of shape (n_components,)."""
        a, shape, rate = self.strength, self.shape, self.rate
        return (
            (shape - a) * psi(shape)
            - gammaln(shape)
            + gammaln(a)
            + a * (np.log(rate) - np.log(a))
            + shape * (a - rate) / rate
        )

    def reordered(self, order: np.ndarray) -> Sizes:
        """Return the sizes of some components, given their numbers in the new order."""
        return replace(self, shape=self.shape[order], rate=self.rate[order])

    def learned(
        self,
        traces: np.ndarray,
        decay: Decay,
        dof: np.ndarray | float,
        n_features: int,
        rho: float,
        least: float = 0.0,
    ) -> Sizes:
        """Return the sizes and their strength that maximise the bound together, after a step ρ.

        ``traces`` has tr(V E Λ_k) of the components, and ``decay`` says how they change with the
        sizes. No expected size is below ``least``, which those of this object are not.
        """
        counts = 0.5 * n_features * (np.zeros(traces.shape) + dof)
        terms = _OfSizes(counts, 0.5 * traces, decay, self.mean)
        table = np.array([terms.counts, terms.slopes, *decay, terms.now])
        # Alternating steps over strength and sizes would take hundreds of passes where sizes
        # are equal.
        strengths, means = np.array([self.strength] * 2), np.empty((2, len(counts)))
        how = self.strength, PRECISION_OF_STRENGTH, strengths[:1], means
        kernels().strength_of_sizes(GRID_OF_STRENGTHS, table, *how)
        shapes = np.add.outer(strengths, counts)
        rates = shapes / np.maximum(means, max(least, 1e-300))
        best, same = map(Sizes, strengths.tolist(), shapes, rates)
        if (means[0] < least).any():
            # The strength that is the best without limits may not be the best with them.
            best = max((best, same, self), key=terms.gain)
        return Sizes(
            damped(self.strength, best.strength, rho),
            (1.0 - rho) * self.shape + rho * best.shape,
            (1.0 - rho) * self.rate + rho * best.rate,
        )


class Decay(NamedTuple):
    """How the slopes of the terms −t(s) of the bound change with the sizes s of components.

    dt/ds is m / s plus a rest that falls as 1 / (1 + (s − now) e), where m is 0 for smaller sizes.
    """

    certain: np.ndarray  # m of larger sizes
    above: np.ndarray  # e of larger sizes, not above 1 / now
    below: np.ndarray  # e of smaller ones


class _OfSizes(NamedTuple):
    """The terms n log s − t(s) of the bound that depend on the sizes of components."""

    counts: np.ndarray  # n
    slopes: np.ndarray  # dt/ds at the sizes now
    decay: Decay
    now: np.ndarray

    def _terms(self, larger: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return m, the other part of the slopes now, and e, of larger sizes or smaller ones."""
        certain = np.where(larger, self.decay.certain, 0.0)
        rest = np.maximum(self.slopes - certain / self.now, 0.0)
        return certain, rest, np.where(larger, self.decay.above, self.decay.below)

    def gain(self, sizes: Sizes) -> float:
        """Return the terms of these sizes, less their divergence from the prior, in nats."""
        terms = self.counts * sizes.mean_log - self._losses(sizes.mean)
        return float(np.sum(terms - sizes._divergences()))

    def _losses(self, sizes: np.ndarray) -> np.ndarray:
        certain, slopes, decay = self._terms(sizes > self.now)
        change = (sizes - self.now) * decay
        # log(1 + x) / x, which is 1 at 0.
        some = np.where(change == 0.0, 1.0, change)
        ratio = np.where(change == 0.0, 1.0, np.log1p(change) / some)
        return certain * np.log(sizes / self.now) + slopes * (sizes - self.now) * ratio
