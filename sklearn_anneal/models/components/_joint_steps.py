"""Steps of empirical Bayes for Gaussian components of few rows, in which q follows the prior."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...families import Natural
from ...families._empirical_bayes import maximizer
from ...families._structure import diagonals_alone
from ...families.wishart import Precisions
from ._correlated_scale import SMALLEST_SCALE, learn_entries, least_loss, log_correlation
from ._determinants import Determinants
from ._features import kernels
from ._few_rows import FewRows
from ._learned_gaussians import SMALLEST_STRENGTH, Decay, Sizes, Step

if TYPE_CHECKING:
    from .gaussian import GaussianComponents

# The diagonal stays where the bound would rise by no more than this share of its terms.
_SMALLEST_RISE = 1e-12
# The largest factor of the inverse scale in one step, and of one of its diagonal entries.
_LARGEST_FACTOR, _LARGEST_FACTOR_OF_ENTRY = 1e100, 1e2
# A smaller difference from 1 has no digits left.
_SMALLEST_REST = 1e-13
# The prior mean goes so many times as far as for fixed q at most, up to this relative precision.
_LONGEST_STEP, _PRECISION_OF_STEP = 100.0, 1e-3


def joint_step(
    components: GaussianComponents,
    q: Natural,
    prior: Natural,
    rows: FewRows | None,
    precisions: Precisions | None,
) -> JointStep:
    """Return the step in which q follows the prior, given the rows and E Λ where they are known."""
    if components.structure.shared:
        return SharedStep(components, q, prior)
    return JointStep(components, q, prior, rows, precisions)


class JointStep(Step):
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
        # u and W u as :attr:`_before`, at the m₀ now, if it has moved.
        self._now: tuple[np.ndarray, np.ndarray] | None = None
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
            scales = np.multiply.outer(self.size, self.scale.diagonal())
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
        return float(np.log(self.scale.diagonal()).sum()) + self.log_correlation

    @property
    def shares(self) -> np.ndarray:
        """p_kj = s_k (V (s_k V + S_k)⁻¹)_jj, of shape (n_components, n_features).

        With a diagonal V they are not above 1, and with any V their sums are not above D.
        """
        factors = (self.size / self.after)[:, None]
        if self.eta < np.inf:
            return factors * np.einsum("ij,kij->kj", self.scale, self.precisions.matrices)
        return np.minimum(factors * self.scale.diagonal() * self.precisions.diagonals, 1.0)

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
        p, scale = self.shares, self.scale.diagonal()
        alone, risen = np.empty(scale.shape), np.empty(1)
        kernels().factors_of_entries(p, before, after, _LARGEST_FACTOR_OF_ENTRY, alone, risen)
        floor = SMALLEST_SCALE * np.diagonal(np.asarray(c.reference)) / self.size.min()
        rise = float(risen[0])
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

    def move_mean(self, rho: float) -> np.ndarray:
        """Move m₀ on the line from the one now to the weighted mean of the rows' means.

        Without μ_k, the mean of N_k rows has the precision β₀ N_k / (β₀ + N_k) Λ_k. For fixed Λ_k
        the weighted mean is the best one. As q(Λ_k) follows the means, to go further is better.
        """
        n, old, dof = self.counts, self.old_strength, self.q["dof"]
        moved, solved = self._before
        shares = old / (old + n)
        weights = self._summed(shares * n)
        change = self.structure.solve(weights[None], ((shares * dof) @ solved)[None])[0]
        along = n[:, None] * change
        (mean, factor), of_along = self._of_means, self._solved(along)
        step, factors = np.array([1.0, _LONGEST_STEP]), np.array([n * (old + n) / old, factor])
        how = moved, solved, along, of_along, mean, _PRECISION_OF_STEP, step
        kernels().step_of_mean(n, dof, factors, *how)
        size = rho * step[0]
        self._now = moved - size * along, solved - size * of_along
        self.center = self.center + size * change
        return size * change

    def _summed(self, weights: np.ndarray) -> np.ndarray:
        """Return Σ_k w_k E Λ_k."""
        d = self.components.n_features
        return (weights @ self.precisions.matrices.reshape(len(weights), -1)).reshape(d, d)

    def _multiplied(self, vectors: np.ndarray) -> np.ndarray:
        """Return the products of E Λ_k and vectors, (n_components, n_features)."""
        return self.precisions.multiply(vectors[:, :, None])[:, :, 0]

    def _solved(self, vectors: np.ndarray) -> np.ndarray:
        """Return the products of W_k and vectors, (n_components, n_features)."""
        return self._multiplied(vectors) / self.q["dof"][:, None]

    @cached_property
    def _before(self) -> tuple[np.ndarray, np.ndarray]:
        """u = N_k (x̄_k − m₀), with the means x̄_k of the rows, and W_k u, at the m₀ of q."""
        moved = self.first - self.counts[:, None] * self.old_center
        return moved, self._solved(moved)

    @cached_property
    def _of_means(self) -> tuple[np.ndarray, np.ndarray]:
        """y = W_k u and the number by which y yᵀ is multiplied in M_k⁻¹ − W_k."""
        (moved, solved), n = self._before, np.where(self.counts > 0.0, self.counts, 1.0)
        h = np.where(self.counts > 0.0, self.old_strength / ((self.old_strength + n) * n), 0.0)
        return solved, h / np.maximum(1.0 - h * (moved * solved).sum(axis=1), _SMALLEST_REST)

    def best_strength(self) -> float:
        """Return β₀, which is not larger than the number of rows.

        With the difference x of the rows' mean and m₀ and h = β₀ N / (β₀ + N), the terms of the
        bound are D log(h / N) − (ν₀ + N) log|M + h x xᵀ|, halved. The determinant is that of M
        times 1 + h xᵀ M⁻¹ x.
        """
        moved, solved = self._now or self._before
        mean, factor = self._of_means
        old, d = float(self.old_strength[0]), self.components.n_features
        best = np.array([old, SMALLEST_STRENGTH])
        how = factor, moved, solved, mean, d, max(self.n_rows, old), best
        kernels().strength_of_means(self.counts, self.q["dof"], *how)
        return float(best[0])

    def follow_means(self, strength: float) -> None:
        """Update the traces and the determinants for the new prior of the means.

        The inverse scale has the term β₀ N / (β₀ + N) x xᵀ, of which the old one is taken away and
        the new one is added. So W = (s_k V + S_k)⁻¹ becomes W − W u C uᵀ W.
        """
        d, k = self.components.n_features, len(self.counts)
        some, n = self.counts > 0.0, np.where(self.counts > 0.0, self.counts, 1.0)
        both = self.old_strength, strength
        scales = np.concatenate([some * np.sqrt(beta / ((beta + n) * n)) for beta in both])
        before, now = self._before, self._now or self._before
        moved, solved = map(np.concatenate, zip(before, now, strict=True))
        turned = self._of_scale(solved)
        again = self.precisions.multiply(turned.reshape(2, k, d).transpose(1, 2, 0))
        again = again.transpose(2, 0, 1) / self.q["dof"][:, None]
        change = np.empty((3, k))
        how = np.ascontiguousarray(again).reshape(2 * k, d), change
        kernels().change_of_means(scales, moved, solved, turned, *how)
        self.log_dets = self.precisions.log_dets + change[0]
        # Rounding must not leave the domain of the traces.
        traces = np.minimum(np.maximum(self.shares.sum(axis=1), 0.0), d) / self.size - change[1]
        self.inverse_traces = np.minimum(traces, d / self.size)
        self.limit_determinants(self.squares_of_shares + self.size**2 * change[2])

    def limit_determinants(self, squares: np.ndarray) -> None:
        """Set the limits of the determinants, given tr(P P) of all matrices at the new m₀ and β₀.

        The traces of P and the determinants must be those at the new values.
        """
        if self.eta < np.inf:
            self.least = self.smallest_of(self.scale)
        else:
            reference = np.diagonal(np.asarray(self.components.reference))
            self.least = float((self.scale.diagonal() / reference).min())
        traces, d = self.size * self.inverse_traces, self.components.n_features
        self.determinants = Determinants.of(traces, squares, d)

    def _of_scale(self, vectors: np.ndarray) -> np.ndarray:
        """Return V u of vectors u, the rows of an array."""
        if self.eta < np.inf:
            return vectors @ self.scale
        return vectors * self.scale.diagonal()

    @property
    def squares_of_shares(self) -> np.ndarray:
        """tr(P P) of P = s_k V (s_k V + S_k)⁻¹, of shape (n_components,)."""
        if self.eta < np.inf:
            products = (self.scale @ matrix for matrix in self.precisions.matrices)
            squares = np.array([np.vdot(one, one.T) for one in products])
        else:
            own = np.multiply.outer(np.ones(len(self.after)), self.scale.diagonal())
            squares = self.precisions.squares(own)
        return squares * (self.size / self.after) ** 2

    def learn_sizes(self, sizes: Sizes, rho: float) -> None:
        """Learn the sizes of the components; the size of V is a part of ``scale`` from then on."""
        c, d = self.components, self.components.n_features
        limits, now, traces = self.determinants, sizes.mean, self.q["dof"] * self.inverse_traces
        certain = 0.5 * self.q["dof"] * (d - limits.n_above)
        decay = Decay(certain, limits.p_above / now, limits.p_below / now)
        least = min(self.floor, float(now.min()))
        learned = sizes.learned(traces, decay, c.degrees_of_freedom_prior, d, rho, least)
        new = learned.mean
        mean = float(new.sum()) / len(new)
        self.growth = new / now
        self.sizes = Sizes(learned.strength, learned.shape, learned.rate * mean)
        self.scale, self.least = mean * self.scale, mean * self.least
        self.size = self.sizes.mean
        self.smallest = float(self.size.min())

    @property
    def floor(self) -> float:
        """The smallest number by which ``scale`` may be multiplied."""
        return SMALLEST_SCALE / (self.smallest * self.least)

    def best_scale(
        self, strength: np.ndarray | float, old: float, learns_dof: bool
    ) -> tuple[float, np.ndarray]:
        """Return the best ν₀, or the one now if it is not learned, and the best V for it.

        V is multiplied by the number c that maximises
        Σ_k ν₀ D log c − (ν₀ + N_k) log|c s_k V + S_k|
        given ν₀, where limits are in the place of the determinants.
        """
        mean_log = np.log(self.size) if self.sizes is None else self.sizes.mean_log
        d = self.components.n_features
        # A given ν₀ may differ between components.
        dof = np.zeros(len(self.size)) + self.components.degrees_of_freedom_prior
        table = np.array([self.after - dof, dof - old, self.growth])
        mean = float((d * mean_log - self.log_dets).sum()) / len(self.log_dets)
        constant = self.log_det_of_scale + mean
        bounds = self.bounds_of_dof(old) if learns_dof else (old, old)
        settings, found = np.array([old, *bounds, constant, self.eta, 1.0]), np.empty(2)
        limits = np.array(self.determinants[1:])
        how = d, self.floor, _LARGEST_FACTOR, found
        kernels().dof_and_scale(settings, table, limits, *how)
        return float(found[0]), found[1] * self.scale


class SharedStep(JointStep):
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

    def move_mean(self, rho: float) -> np.ndarray:
        return Step.move_mean(self, rho)

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
        x = self.first[some] / n[:, None] - self.center[some]
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

        return maximizer(slope, SMALLEST_STRENGTH, max(self.n_rows, old), old)

    def follow_means(self, strength: float) -> None:
        """Factorise the matrix for the new prior of the means."""
        self.old_strength = np.full(len(self.counts), strength)
        self.old_center = self.center
        self.precisions = self._precisions()
        self.log_dets = self.precisions.log_dets
        self.inverse_traces = self.shares.sum(axis=1) / self.size
        self.limit_determinants(self.squares_of_shares)
