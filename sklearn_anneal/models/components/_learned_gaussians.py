"""Empirical Bayes for the prior of Gaussian components.

All components share the prior that is learned. The bound depends on it through the expected log
density of its K draws. One step maximises this expectation while q stays fixed: first over the
prior mean, then over the precision of the means, then over the sizes of the components, and then
over the inverse scale and the degrees of freedom of the Wishart prior together.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import psi

from ...families import Factors, Natural
from ...families._empirical_bayes import damped, maxima, maximizer, scale_root, wishart_dof
from ...families._structure import (
    diagonals_alone,
    inverse_of_lower,
    log_det_of_root,
    lower_root,
)
from ...families.wishart import Precisions
from .._base import Known
from ._correlated_scale import SMALLEST_SCALE, kappa, learn_entries, least_loss, log_correlation
from ._determinants import Determinants, OneScale
from ._few_rows import FewRows, are_few, is_posterior, moments_inside
from ._sizes import Decay, Sizes

if TYPE_CHECKING:
    from .gaussian import GaussianComponents

OF_MEANS = ("mean_precision_prior", "mean_prior")
OF_PRECISIONS = ("degrees_of_freedom_prior", "covariance_prior")

# The smallest permitted precision of the means, in units of the precision of a component.
_SMALLEST_STRENGTH = 1e-8
# Degrees of freedom that few rows determine exceed D by so many times the rows at most.
_ROWS_OF_DIAGONAL = 10.0
# The diagonal stays where the bound would rise by no more than this share of its terms.
_SMALLEST_RISE = 1e-12
# The largest factor of the inverse scale in one step, and of one of its diagonal entries.
_LARGEST_FACTOR, _LARGEST_FACTOR_OF_ENTRY = 1e100, 1e2
# A smaller difference from 1 has no digits left.
_SMALLEST_REST = 1e-13
# The prior mean goes so many times as far as for fixed q at most, up to this relative precision.
_LONGEST_STEP, _PRECISION_OF_STEP = 100.0, 1e-3


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
    rows = precisions = None
    if together and raw is not None:
        assert known is not None
        of_prior, of_raw = known["made_of"]
        same = raw is of_raw and all(prior[key] is of_prior[key] for key in components.keys)
        few = components.scale_prior_dof == np.inf and are_few(raw)
        if (same or few) and is_posterior(components, q, prior, raw):
            rows = FewRows.of(components, raw) if few else None
            precisions = known["moments"][2] if same else None
    new, how = copy(components), (components, q, prior)
    if together:
        shared = components.structure.shared
        step: _Step = _SharedStep(*how) if shared else _JointStep(*how, rows, precisions)
    else:
        step = _Step(*how, components.moments(q))
    if isinstance(step, _JointStep):
        step.learn_scale(rho)
        new.n_alike, new.tried = step.n_alike, step.tried
    if "mean_prior" in components.auto:
        change = rho * (step.best_mean() - step.center[0])
        new.mean_prior = components.mean_prior + change
        step.center = step.center + change
    if "mean_precision_prior" in components.auto:
        best = step.best_strength()
        new.mean_precision_prior = damped(components.mean_precision_prior, best, rho)
    if set(OF_PRECISIONS) & set(components.auto):
        if isinstance(step, _JointStep):
            step.follow_means(new.mean_precision_prior)
        _learn_precisions(step, new, rho)
    natural = new.natural_prior(step.center)
    # Parameters that stay are valid already.
    moved = components.following(q, prior, natural)
    if known is None:
        factors = Factors(f for f in components.factors if moved.keys() >= set(f.names.values()))
        inside = factors.valid(moved)
    else:
        moments = moments_inside(new, moved, natural, rows)
        known["next"] = natural, moved, moments, raw
        inside = moments is not None
    if inside:
        return new, natural
    return components, {key: prior[key] for key in components.keys}


class _Step:
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
        return min(max(best, _SMALLEST_STRENGTH), max(self.n_rows, old))

    @cached_property
    def squares(self) -> np.ndarray:
        """E (μ_k − m₀)(μ_k − m₀)ᵀ with independent factors, stored like the covariance.

        It is first read when m₀ has its new value.
        """
        return self.covariance + self.structure.outer(self.mean - self.center)

    def dof(self, log_det_scale: Callable[[float], tuple[float, float]], old: float) -> float:
        """Return ν₀ for the log-determinant of W₀⁻¹ as a function of ν₀, and its derivative.

        It would have no upper limit if all components were alike. Its limit is D + N / K, so that
        the prior never counts more than the rows that a component has on average, because these
        rows have determined W₀. A diagonal W₀ has few entries, and a matrix with a prior of its
        own does not repeat the rows: both may count ten times all rows.
        """
        d, most = self.components.n_features, self.rows_each
        if not self.components.learns_matrix:
            most = _ROWS_OF_DIAGONAL * self.n_rows
        least = self.components.least_dof
        bounds = min(least, old), max(d + most, least, old)
        if self.eta == np.inf:
            return wishart_dof(d, self.log_det, log_det_scale, old, bounds)

        def expected(dof: float) -> tuple[float, float]:
            # E log|V| is in the place of log|E V|.
            of_scale, k = log_det_scale(dof), self.components.n_matrices
            of_prior = kappa(self.eta + k * dof, d)
            return of_scale[0] + of_prior[0], of_scale[1] + k * of_prior[1]

        return wishart_dof(d, self.log_det, expected, old, bounds)

    def scales(self, strength: np.ndarray | float) -> _Scales | OneScale:
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


class _JointStep(_Step):
    """The maximisation of the bound over the prior and q together, while rows stay where they are.

    With the log-normaliser A, the bound is then A(λ₀ + S) − A(λ₀), because q is the prior plus the
    statistics S. Where rows are few for their columns, q repeats most of its prior, so that steps
    for fixed q are short: components without rows would leave the prior as it is.

    The entries of V are learned first, then m₀ and β₀, then the sizes s of the components, and then
    the size of V together with ν₀. Sizes multiply s V by a factor, with which the determinant of
    the posterior inverse scale s V + S_k changes. Its logarithm is replaced by limits that are not
    below it, and equal it up to second order (``_determinants``). As −log|s V + S_k| is a term of
    the bound, sizes that raise the bound with the limits raise the bound.
    """

    def __init__(
        self,
        components: GaussianComponents,
        q: Natural,
        prior: Natural,
        rows: FewRows | None,
        precisions: Precisions | None,
    ):
        super().__init__(components, q, prior)
        # ν₀ and ν of each matrix.
        self.before, self.after = np.atleast_1d(prior["dof"]), np.atleast_1d(q["dof"])
        self.size = np.ones(len(self.after))
        self.n_alike, self.tried = components.n_alike, components.tried
        # The factors of s_k V in this step, but for the one that is learned with ν₀.
        self.growth = np.ones(len(self.after))
        if self.sizes is not None:
            self.size = self.sizes.mean
        # The loss of the bound by the prior of V, and log|R| of the correlations of V.
        self.loss, self.log_correlation = components.scale_loss, 0.0
        if self.eta < np.inf:
            self.log_correlation = log_correlation(self.scale)
        self.old_strength = prior["mean_precision"]
        self.counts = np.maximum(q["mean_precision"] - self.old_strength, 0.0)
        self.first = q["mean_natural"] - prior["mean_natural"]
        self.old_center = self.center
        self.rows, self.start = rows, self.scale
        self.products: list[tuple[Precisions, np.ndarray, np.ndarray]] = []
        self.precisions = self._precisions() if precisions is None else precisions

    def learn_scale(self, rho: float) -> None:
        """Learn V for the sizes as they are: its diagonal, or all entries if that is better."""
        if rho == 1.0 and self.components.correlates:
            diagonal = self.eta == np.inf
            learn_entries(self)
            self.n_alike = self.n_alike + 1 if diagonal == (self.eta == np.inf) else 0
        if self.eta == np.inf:
            self.learn_diagonal(rho)

    def move_to(self, scale: np.ndarray) -> bool:
        """Change V; return False if this is not valid."""
        if diagonals_alone(scale) is not None:
            self.loss, self.eta, self.log_correlation = 0.0, np.inf, 0.0
        else:
            self.log_correlation, total = log_correlation(scale), float(self.before.sum())
            how = total, self.components.n_features, self.eta_before
            self.loss, self.eta = least_loss(self.log_correlation, *how)
        self.scale, self.eta_before = scale, self.eta
        try:
            self.precisions = self._precisions()
        except np.linalg.LinAlgError:
            return False
        # LAPACK may factorise matrices that are not finite.
        return bool(np.isfinite(self.precisions.log_dets).all())

    def _precisions(self) -> Precisions:
        """Return E Λ of q after the move of V from its value in q to the one now."""
        if self.rows is not None and self.eta == np.inf:
            scales = np.multiply.outer(self.size, np.diagonal(self.scale))
            how = self.old_strength, self.old_center, self.q["dof"]
            found = self.rows.precisions(scales, *how)
            if found is not None:
                return found
        moved = self._inverse_scales.copy()
        if self.scale is not self.start:
            change = self.scale - self.start
            own = diagonals_alone(change)
            if own is not None:
                np.einsum("kii->ki", moved)[:] += self.size[:, None] * own
            else:
                moved += self.size[:, None, None] * change
        return Precisions(moved, self.q["dof"])

    @cached_property
    def _inverse_scales(self) -> np.ndarray:
        """W⁻¹ of q."""
        return self.components.inverse_scales(self.q)

    def value(self) -> float:
        """Return the terms of the bound that change with V, in nats."""
        before, after = self.before.sum(), self.after @ self.precisions.log_dets
        return float(0.5 * (before * self.log_det_of_scale - after) - self.loss)

    @property
    def log_det_of_scale(self) -> float:
        """log|V|."""
        return float(np.log(np.diagonal(self.scale)).sum()) + self.log_correlation

    @property
    def shares(self) -> np.ndarray:
        """p_kj = s_k (V (s_k V + S_k)⁻¹)_jj, of shape (n_components, n_features).

        With a diagonal V they are not above 1, and with any V their sums are not above D.
        """
        factors = (self.size / self.after)[:, None]
        if self.eta < np.inf:
            return factors * np.einsum("ij,kij->kj", self.scale, self.precisions.matrices)
        return np.minimum(factors * np.diagonal(self.scale) * self.precisions.diagonals, 1.0)

    def learn_diagonal(self, rho: float) -> None:
        """Learn the entries v_j of V, for the sizes and ν₀ as they are.

        The bound has the terms Σ_k ν₀ Σ_j log v_j − (ν₀ + N_k) log|s_k V + S_k|, halved. The
        determinant is a sum over sets of columns of products of their v_j, so that the factors
        exp(δ_j) of the v_j multiply it by the mean of Π_j exp(δ_j) over the columns of a random
        set. Column j is in this set of a determinantal process with the probability p_kj. As the
        columns are negatively associated (Borcea, Brändén and Liggett 2009), the mean of such a
        product is at most the product of the means if all δ_j have the same sign. By the inequality
        of Cauchy and Schwarz, applied to those of either sign, the logarithm is always at most
        ½ Σ_j log(1 + p_kj (exp(2 δ_j) − 1)), with the same slope at 0. So the bound rises if each
        2 δ_j is the best change of v_j alone. Twice this step is taken where it is better still.
        """
        c, before, after = self.components, self.before, self.after
        p, scale = self.shares, np.diagonal(self.scale)

        def slope(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            # Derivatives by the factors; the second one is right where the first one is 0.
            share = p * factor / (1.0 + p * (factor - 1.0))
            first, second = before.sum() - after @ share, after @ (share * (share - 1.0))
            return first / factor, second / factor**2

        largest = np.full(scale.shape, _LARGEST_FACTOR_OF_ENTRY)
        alone = maxima(slope, np.ones(scale.shape), 1.0 / largest, largest)
        floor = SMALLEST_SCALE * np.diagonal(np.asarray(c.reference)) / self.size.min()
        rise = 0.5 * (before.sum() * np.log(alone) - after @ np.log1p(p * (alone - 1.0))).sum()
        if rise <= _SMALLEST_RISE * abs(self.value()):
            return
        for share in (rho, 0.5 * rho):
            best = np.maximum(scale * alone**share, np.minimum(scale, floor))
            trial = copy(self)
            if not trial.move_to(np.diag(best)):
                return
            gain = before.sum() * np.log(best / scale).sum()
            gain -= after @ (trial.precisions.log_dets - self.precisions.log_dets)
            if share < rho or gain > rise:
                break
        vars(self).update(vars(trial))

    def best_mean(self) -> np.ndarray:
        """Return m₀, on the line from the one now to the weighted mean of the rows' means.

        Without μ_k, the mean of N_k rows has the precision β₀ N_k / (β₀ + N_k) Λ_k. For fixed Λ_k
        the weighted mean is the best one. As q(Λ_k) follows the means, to go further is better.
        """
        shares = self.old_strength / (self.old_strength + self.counts)
        weights = np.tensordot(shares * self.counts, self.precisions.matrices, axes=1)
        total = self._multiplied(shares[:, None] * self.first).sum(axis=0)
        change = self.structure.solve(weights[None], total)[0] - self.center[0]
        n, old, some = self.counts, self.old_strength, self.counts > 0.0
        moved, solved = self._moved(self.center), self._solved(self.center)
        along, dof = n[:, None] * change, self.q["dof"][some]
        of_along = self._multiplied(along) / self.q["dof"][:, None]
        rest = (n * (old + n) / old + self.inner(moved, moved, solved))[some]
        mixed = self.inner(moved, along, of_along)[some]
        square = self.inner(along, along, of_along)[some]

        def slope(step: float) -> tuple[float, float]:
            total = rest + step * (step * square - 2.0 * mixed)
            first = 2.0 * (mixed - step * square) / total
            return float(dof @ first), float(dof @ (first**2 - 2.0 * square / total))

        def value(step: float) -> float:
            return -float(dof @ np.log(rest + step * (step * square - 2.0 * mixed)))

        # For small steps the value is a quadratic function.
        rise, curvature = slope(1.0)
        start = 1.0 - rise / curvature if curvature < 0.0 else 1.0
        further = maximizer(slope, 1.0, _LONGEST_STEP, start, _PRECISION_OF_STEP)
        return self.center[0] + max(1.0, further, key=value) * change

    def _multiplied(self, vectors: np.ndarray) -> np.ndarray:
        """Return the products of E Λ_k and vectors, (n_components, n_features)."""
        return self.precisions.multiply(vectors[:, :, None])[:, :, 0]

    def _moved(self, center: np.ndarray) -> np.ndarray:
        """Return N_k (x̄_k − m₀), with the means x̄_k of the rows of components."""
        return self.first - self.counts[:, None] * center

    def _solved(self, center: np.ndarray) -> np.ndarray:
        """Return W_k N_k (x̄_k − m₀), which is computed once for each m₀."""
        for precisions, of_center, found in self.products:
            if precisions is self.precisions and of_center is center:
                return found
        found = self._multiplied(self._moved(center)) / self.q["dof"][:, None]
        self.products = [*self.products, (self.precisions, center, found)]
        return found

    @cached_property
    def _of_means(self) -> tuple[np.ndarray, np.ndarray]:
        """y = W_k N_k (x̄_k − m₀) and the number by which y yᵀ is multiplied in M_k⁻¹ − W_k."""
        moved, n = self._moved(self.old_center), np.where(self.counts > 0.0, self.counts, 1.0)
        solved = self._solved(self.old_center)
        h = np.where(self.counts > 0.0, self.old_strength / ((self.old_strength + n) * n), 0.0)
        return solved, h / np.maximum(1.0 - h * (moved * solved).sum(axis=1), _SMALLEST_REST)

    def inner(self, left: np.ndarray, right: np.ndarray, solved: np.ndarray) -> np.ndarray:
        """Return leftᵀ M_k⁻¹ right of all components, M_k being W_k⁻¹ without the term of m₀.

        ``solved`` has the products W_k right.
        """
        mean, factor = self._of_means
        return (left * solved).sum(axis=1) + factor * (left * mean).sum(1) * (right * mean).sum(1)

    def best_strength(self) -> float:
        """Return β₀, which is not larger than the number of rows.

        With the difference x of the rows' mean and m₀ and h = β₀ N / (β₀ + N), the terms of the
        bound are D log(h / N) − (ν₀ + N) log|M + h x xᵀ|, halved. The determinant is that of M
        times 1 + h xᵀ M⁻¹ x.
        """
        some, moved = self.counts > 0.0, self._moved(self.center)
        n, dof, d = self.counts[some], self.q["dof"][some], self.components.n_features
        squares = self.inner(moved, moved, self._solved(self.center))[some]
        old = float(self.old_strength[0])

        def slope(beta: float) -> tuple[float, float]:
            total, grown = beta + n, n**2 + beta * (n + squares)
            rise, loss = d * n / (beta * total), dof * n * squares / (grown * total)
            fall = d * n * (beta + total) / (beta * total) ** 2
            second = loss * ((n + squares) / grown + 1.0 / total) - fall
            return float((rise - loss).sum()), float(second.sum())

        return maximizer(slope, _SMALLEST_STRENGTH, max(self.n_rows, old), old)

    def follow_means(self, strength: float) -> None:
        """Update the traces and the determinants for the new prior of the means.

        The inverse scale has the term β₀ N / (β₀ + N) x xᵀ, of which the old one is taken away and
        the new one is added. So W = (s_k V + S_k)⁻¹ becomes W − W u C uᵀ W.
        """
        vectors, products = [], []
        d, dof = self.components.n_features, self.q["dof"][:, None, None]
        n = np.where(self.counts > 0.0, self.counts, 1.0)
        for beta, center in ((self.old_strength, self.old_center), (strength, self.center)):
            scale = np.where(self.counts > 0.0, np.sqrt(beta / ((beta + n) * n)), 0.0)
            vectors.append(scale[:, None] * self._moved(center))
            products.append(scale[:, None] * self._solved(center))
        u, solved = np.stack(vectors, axis=-1), np.stack(products, axis=-1)  # (K, D, 2)
        signs = np.diag([-1.0, 1.0])
        small = np.eye(2) + signs @ np.swapaxes(u, 1, 2) @ solved
        self.log_dets = self.precisions.log_dets + np.linalg.slogdet(small)[1]
        turned = self._of_scale(solved)
        lost = np.linalg.solve(small, signs @ np.swapaxes(solved, 1, 2) @ turned)  # C uᵀ W V W u
        # Rounding must not leave the domain of the traces.
        traces = np.clip(self.shares.sum(axis=1), 0.0, d) / self.size
        traces = traces - np.trace(lost, axis1=1, axis2=2)
        self.inverse_traces = np.minimum(traces, d / self.size)
        again = signs @ np.swapaxes(turned, 1, 2) @ (self.precisions.multiply(turned) / dof)
        change = np.trace(lost @ lost - 2.0 * np.linalg.solve(small, again), axis1=1, axis2=2)
        self.limit_determinants(self.squares_of_shares + self.size**2 * change)

    def limit_determinants(self, squares: np.ndarray) -> None:
        """Set the limits of the determinants, given tr(P P) of all matrices at the new m₀ and β₀.

        The traces of P and the determinants must be those at the new values.
        """
        if self.eta < np.inf:
            self.least = self.smallest_of(self.scale)
        else:
            reference = np.diagonal(np.asarray(self.components.reference))
            self.least = float((np.diagonal(self.scale) / reference).min())
        traces, d = self.size * self.inverse_traces, self.components.n_features
        self.determinants = Determinants.of(traces, squares, d)

    def _of_scale(self, vectors: np.ndarray) -> np.ndarray:
        """Return V u of columns u, whose shape is (n_components, n_features, n_columns)."""
        if self.eta < np.inf:
            return self.scale @ vectors
        return np.diagonal(self.scale)[:, None] * vectors

    @property
    def squares_of_shares(self) -> np.ndarray:
        """tr(P P) of P = s_k V (s_k V + S_k)⁻¹, of shape (n_components,)."""
        if self.eta < np.inf:
            products = (self.scale @ matrix for matrix in self.precisions.matrices)
            squares = np.array([np.vdot(one, one.T) for one in products])
        else:
            own = np.tile(np.diagonal(self.scale), (len(self.after), 1))
            squares = self.precisions.squares(own)
        return squares * (self.size / self.after) ** 2

    def learn_sizes(self, sizes: Sizes, rho: float) -> None:
        """Learn the sizes of the components; the size of V is a part of ``scale`` from then on."""
        c, d = self.components, self.components.n_features
        limits, now, traces = self.determinants, sizes.mean, self.q["dof"] * self.inverse_traces
        certain = 0.5 * self.q["dof"] * (d - limits.n_above)
        decay = Decay(certain, limits.p_above / now, limits.p_below / now)
        least = min(self.floor, float(sizes.mean.min()))
        learned = sizes.learned(traces, decay, c.degrees_of_freedom_prior, d, rho, least)
        mean = float(learned.mean.mean())
        self.growth = learned.mean / now
        self.sizes = replace(learned, rate=learned.rate * mean)
        self.scale, self.least = mean * self.scale, mean * self.least
        self.size = self.sizes.mean
        self.smallest = float(self.size.min())

    @property
    def floor(self) -> float:
        """The smallest number by which ``scale`` may be multiplied."""
        return SMALLEST_SCALE / (self.smallest * self.least)

    def is_above(self, scale: np.ndarray) -> bool:
        """Return True, because learned scales are limited."""
        return True

    def scales(self, strength: np.ndarray | float) -> OneScale:
        """Return the best size of V as a function of ν₀."""
        mean_log = np.log(self.size) if self.sizes is None else self.sizes.mean_log
        d = self.components.n_features
        halves = 0.5 * (self.after[:, None] - np.arange(d))
        mean_logs = psi(halves).sum(axis=1) + d * np.log(2.0) - self.log_dets
        self.log_det = float((mean_logs + d * mean_log).mean())
        return OneScale(self)


class _SharedStep(_JointStep):
    """The same maximisation where all components have one precision matrix in common.

    With the distances x_k of the rows' means from m₀ and h_k = β₀ N_k / (β₀ + N_k), this matrix is
    M + Σ_k h_k x_k x_kᵀ, where M has the inverse scale of the prior and the scatter of rows around
    their means.
    """

    def __init__(self, components: GaussianComponents, q: Natural, prior: Natural):
        super().__init__(components, q, prior, None, None)

    @cached_property
    def _within(self) -> np.ndarray:
        """The scatter of the rows around the means of their components."""
        some = self.counts > 0.0
        roots = self.first / np.sqrt(np.where(some, self.counts, np.inf))[:, None]
        return self.structure.plus_outer(self.q["scatter"] - self.prior["scatter"], roots, -1.0)

    def _precisions(self) -> Precisions:
        n, beta = self.counts, self.old_strength
        x = self.first - n[:, None] * self.old_center
        roots = np.sqrt(beta / (beta + n) / np.where(n > 0.0, n, np.inf))[:, None] * x
        moved = self.structure.plus_outer(self.scale + self._within, roots)
        return Precisions(moved[None], self.after)

    def best_mean(self) -> np.ndarray:
        """Return m₀, the mean of the rows' means with the weights h_k, for any matrix M."""
        shares = self.old_strength / (self.old_strength + self.counts)
        total = float(shares @ self.counts)
        if total == 0.0:
            return self.center[0]
        return shares @ self.first / total

    def best_strength(self) -> float:
        """Return β₀, which is not larger than the number of rows.

        The determinant is that of M times |I + diag(h) G|, with G = X M⁻¹ Xᵀ of the distances.
        """
        some, d = self.counts > 0.0, self.components.n_features
        old = float(self.old_strength[0])
        if not some.any():
            return old
        n = self.counts[some]
        x = self._moved(self.center)[some] / n[:, None]
        solved = self.structure.solve((self.scale + self._within)[None], x)
        gram, total = x @ solved.T, float(self.after[0])

        def slope(beta: float) -> tuple[float, float]:
            after = beta + n
            roots, first = np.sqrt(beta * n / after), (n / after) ** 2
            # P = (G⁻¹ + diag(h))⁻¹
            inner = roots[:, None] * gram * roots + np.eye(len(n))
            p = np.linalg.solve(inner, roots[:, None] * gram) / roots[:, None]
            own = np.diagonal(p)
            rise, fall = d * n / (beta * after), d * n * (beta + after) / (beta * after) ** 2
            second = -2.0 * first @ (own / after) - first @ p**2 @ first
            return float(rise.sum() - total * (first @ own)), float(-fall.sum() - total * second)

        return maximizer(slope, _SMALLEST_STRENGTH, max(self.n_rows, old), old)

    def follow_means(self, strength: float) -> None:
        """Factorise the matrix for the new prior of the means."""
        self.old_strength = np.full(len(self.counts), strength)
        self.old_center = self.center
        self.precisions = self._precisions()
        self.log_dets = self.precisions.log_dets
        self.inverse_traces = self.shares.sum(axis=1) / self.size
        self.limit_determinants(self.squares_of_shares)


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


def _learn_precisions(step: _Step, new: GaussianComponents, rho: float) -> None:
    """Set the covariance prior and the degrees of freedom of ``new``, or that of both to learn."""
    c, d = step.components, step.components.n_features
    learns_dof = "degrees_of_freedom_prior" in c.auto
    old_dof = dof = float(np.mean(c.degrees_of_freedom_prior))
    if c.sizes is not None:
        step.learn_sizes(c.sizes, rho)
    old = scale = step.scale
    given = "covariance_prior" not in c.auto
    if not given:
        scales = step.scales(new.mean_precision_prior)
        dof = step.dof(scales.log_det, old_dof) if learns_dof else old_dof
        scale = scales.best(dof)
        if not step.is_above(scale):
            scale, given = _kept_above(step, old, scales.best(old_dof)), True
    if given and learns_dof:
        log_det = float(np.mean(step.structure.log_det(scale, d)))
        dof = step.dof(lambda _: (log_det, 0.0), old_dof)
    if learns_dof:
        new.degrees_of_freedom_prior = damped(old_dof, dof, rho, d - 1)
    if "covariance_prior" in c.auto:
        if rho < 1.0:
            now = float(np.mean(new.degrees_of_freedom_prior))
            scale = now * ((1.0 - rho) * old / old_dof + rho * scale / dof)
        new.set_scale(scale, step.sizes)


def _kept_above(step: _Step, old: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return the inverse scale nearest to the best one, on the way there, that is large enough.

    For fixed ν₀ the bound is a concave function of W₀⁻¹, so that no point on the way lowers it.
    The smallest eigenvalue of a sum is at least the sum of the smallest eigenvalues.
    """
    before, after = step.smallest_of(old), step.smallest_of(best)
    if after >= before:
        return best if after >= SMALLEST_SCALE else old
    share = (before - SMALLEST_SCALE) / (before - after)
    return old + min(max(share, 0.0), 1.0) * (best - old)
