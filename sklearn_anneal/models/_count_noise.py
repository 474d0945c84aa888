"""Visits to rows of counts whose cells have gamma noise.

Counts are negative binomial, which is Poisson with a noise variable for every cell (Gouvert,
Oberlin, Févotte, 2018, Negative binomial matrix factorization for recommender systems, section 2):

    x_nv ~ Poisson(e_nv m_nv),   m_nv = Σ_k h_nk θ_k w_kv,   e_nv ~ Gamma(a, a),

with mean m and variance m + m² / a given the rates. All factors stay conjugate. A count is divided
among components as without noise, because e_nv is a factor of all of them, and the others are

    q(e_nv) = Gamma(a + x_nv, a + E m_nv),    E e_nv = R_nv = (a + x_nv) / (a + E m_nv),
    q(h_nk) = Gamma(b + Σ_v x_nv φ_nvk, b + E θ_k Σ_v R_nv E w_kv),

and likewise for θ and w: a cell counts as if it had been observed for R_nv units of time. A missing
cell is one of R = 0. Every update maximises the bound over one factor, so that it cannot fall.

The terms of e in the bound, at q(e_nv) = Gamma(s, r), are

    x (ψ(s) − log r) − R E m                                  from the likelihood,
    (a − 1) (ψ(s) − log r) − a R + a log a − log Γ(a)         from the prior,
    s − log r + log Γ(s) + (1 − s) ψ(s)                       the entropy.

A step ends with the update of q(e), so that r = a + E m at T = 1. Their sum is then

    log Γ(a + x) − log Γ(a) − x log a − (a + x) log(1 + E m / a),

in the place of −E m for Poisson counts, which it approaches as a → ∞. At given rates it is
log ∫ p(e) e^x exp(−e m) de: the noise is integrated out.

R differs between all cells, also those without counts. A step therefore takes products of all
cells, dense or sparse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln, polygamma, psi

from ..data.units import DenseCounts, SparseCounts
from ..families import (
    Gamma,
    Natural,
    Tempering,
    log_negative_binomial,
    log_poisson,
    log_rising,
    posterior,
)
from ..families._empirical_bayes import damped, gamma_shape
from ..kernels.plain.count_noise import REST, factors
from ._base import LocalStep, compiled
from ._count_visits import (
    _LANES,
    _NOTHING,
    _SMALLEST,
    Activations,
    CountsVisit,
    _add_counts,
    _Sums,
    kernels,
)

# (5,): over the observed cells, the first two derivatives of the bound with respect to a, the terms
# of e in the bound without −R E m, the same under the proposed dispersion, and the number of cells
NOISE = "noise"
# (n_columns, n_components): Σ w R E h under the proposed dispersion
PROPOSED_EXPOSURE = "proposed_exposure"
# (n_columns, n_components): Σ w x φ m / (a + m), which lengthens the steps of components
HELD = "held"

# Tables are padded to a multiple of this many rows, which kernels process at a time.
_ROWS = 8
# Expected counts are at least this large, so that no shape divided by one overflows.
_SMALLEST_M = 1e-280
# Bounds of the shape a. At the upper one the variance of a count of mean 1 exceeds that of a
# Poisson count by a share of 1e-4.
_SHAPES = (1e-3, 1e4)
# The largest dispersion at which steps are longer than those of EM. Above 50, longer steps lowered
# the bound of some fits to tiny tables.
_STRONGEST = 30.0
# The longest step of log a.
_LONGEST_STEP = 1.5
# The dispersion of exploring passes, as a multiple of the best one.
_EXPLORING = 1.4

sweeps = partial(compiled, "count_noise")


class _Cells(NamedTuple):
    """The observed cells of some rows, in float64.

    Attributes
    ----------
    m : ndarray of shape (n_rows, n_columns)
        E m
    own : ndarray of shape (n_rows, n_columns)
        The weights of the cells; 0 for missing ones.
    number : float
        Their sum.
    filled : ndarray of bool, shape (n_rows, n_columns)
        Which cells have counts above zero.
    x, weights : ndarray of shape (n_filled,)
        These counts, and the weights of their cells.
    """

    m: np.ndarray
    own: np.ndarray
    number: float
    filled: np.ndarray
    x: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, block: _Block, expected: np.ndarray, weights: np.ndarray | None) -> _Cells:
        own = (~np.isnan(block.counts)).astype(np.float64)
        if weights is not None:
            own *= weights[:, None]
        filled = block.counts > 0
        x = block.counts[filled].astype(np.float64)
        return cls(expected.astype(np.float64), own, float(own.sum()), filled, x, own[filled])

    def height(self, a: float) -> float:
        """Return Σ w [log Γ(a + x) − log Γ(a) − x log a − (a + x) log(1 + m / a)]."""
        logs = np.log1p(self.m / a)
        rising = log_rising(np.full(self.x.shape, a), self.x) - self.x * np.log(a)
        of_filled = rising - self.x * logs[self.filled]
        return float(self.weights @ of_filled - a * (self.own * logs).sum())

    def slopes(self, a: float) -> tuple[float, float]:
        """Return the first two derivatives of :meth:`height` .

        They are those of log ∫ p(e) e^x exp(−e m) de with respect to a.
        """
        parts = self.own / (a + self.m)
        of_filled, x = parts[self.filled], self.x
        gaps = parts * self.m
        slope = float(gaps.sum() - (self.own * np.log1p(self.m / a)).sum() - of_filled @ x)
        slope += float(self.weights @ (psi(a + x) - psi(a)))
        total = a + self.m
        curvature = float((gaps * (1.0 / a - 1.0 / total)).sum())
        curvature += float((of_filled / total[self.filled]) @ x)
        return slope, curvature + float(self.weights @ (polygamma(1, a + x) - polygamma(1, a)))


class _Block(NamedTuple):
    """Some rows of counts, all of whose cells stay in the caches.

    Attributes
    ----------
    counts : ndarray of shape (n_rows, n_columns)
        NaN is a missing cell.
    shape : ndarray of shape (n_rows, n_columns)
        The shapes s of q(e); 0 for missing cells, which makes their R zero.
    """

    counts: np.ndarray
    shape: np.ndarray


@dataclass
class _Terms:
    """Sums of the terms of e over the observed cells, times the weights of rows.

    Attributes
    ----------
    exposure : ndarray of shape (n_columns, n_components)
        Σ w R E h under the proposed dispersion.
    energy, log_prior, entropy : float
        The terms of the bound without −R E m.
    exact : float
        Their sum at T = 1, in the form that keeps its digits.
    for_large : float
        What the exact bound of rows of large counts, which is that of Poisson counts, lacks.
    evidence : ndarray of shape (5,)
        The statistic ``NOISE``.
    """

    exposure: np.ndarray
    energy: float = 0.0
    log_prior: float = 0.0
    entropy: float = 0.0
    exact: float = 0.0
    for_large: float = 0.0
    evidence: np.ndarray = field(default_factory=lambda: np.zeros(5))


@dataclass(frozen=True)
class NoisyCountsVisit(CountsVisit):
    """A visit to rows of counts whose cells have noise; the parameters are those of its base."""

    extrapolates: ClassVar[bool] = True

    def without_bound(self) -> NoisyCountsVisit:
        found: Any = super().without_bound()
        return found

    @property
    def _shape(self) -> float:
        """The shape a of the noise."""
        return 1.0 / float(self.model.dispersion)

    def _prior_of_noise(self) -> Natural:
        """The shape and the rate of q(e) without any data."""
        nothing, a = dict.fromkeys(("shape", "rate"), np.zeros(1)), np.array([self._shape])
        return posterior({"shape": a, "rate": a}, nothing, Gamma().base(nothing), self.t)

    def rates_given(self, units: DenseCounts | SparseCounts, means: np.ndarray) -> np.ndarray:
        rate = np.empty(means.shape)
        for rows in self._blocks(units):
            block = self._block(units, rows)
            _, ratios = self._noise(block, means[rows])
            rate[rows] = self._rates(self._exposed(ratios))
        return rate

    # Noise of some rows

    def _block(self, units: DenseCounts | SparseCounts, rows: slice) -> _Block:
        dtype, model = self.model.precision, self.model
        if isinstance(units, SparseCounts):
            counts = units.take(rows).dense(model.n_columns).astype(dtype, copy=False)
        else:
            counts = np.ascontiguousarray(units.X[rows], dtype=dtype)
        first = dtype.type(self._prior_of_noise()["shape"][0])
        shape = first + dtype.type(float(self.t.statistics)) * counts
        np.copyto(shape, 0.0, where=np.isnan(shape))
        return _Block(counts, shape)

    def _noise(self, block: _Block, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return E m and R of some rows, given E h."""
        dtype, expected = self.model.precision, self._expected(means)
        rate = expected * dtype.type(float(self.t.statistics))
        rate += dtype.type(self._prior_of_noise()["rate"][0])
        return expected, np.divide(block.shape, rate, out=rate)

    def _expected(self, means: np.ndarray) -> np.ndarray:
        """Return E m of some rows, given E h, in float64: the bound multiplies it by counts."""
        assert self.expected.means is not None
        return (means * self.mean_weights) @ self.expected.means.astype(np.float64, copy=False).T

    @property
    def _means(self) -> np.ndarray:
        means = self.expected.means
        assert means is not None
        return means.astype(self.model.precision, copy=False)

    def _exposed(self, ratios: np.ndarray) -> np.ndarray:
        """Return Σ_v R_nv E w_kv."""
        return (ratios @ self._means).astype(np.float64, copy=False)

    # Local steps

    def step(
        self,
        units: DenseCounts | SparseCounts,
        noise: np.ndarray | None = None,
        local: Any = None,
    ) -> LocalStep:
        model, start = self.model, local.activations
        (n, k), n_columns = (units.n_units, model.n_components), model.n_columns
        sums = _Sums.of(self, units, noise)
        sums = sums._replace(exposures=np.zeros((2 if len(sums.noise) else 1, n_columns, k)))
        known = start is not None and local.n_sweeps == 0
        counts_only = not self.bound and known and start.evidence is not None
        found = Activations(
            np.empty((n, k)), np.empty((n, k)), evidence=start.evidence if known else None
        )
        terms = _Terms(exposure=np.zeros((n_columns, k)))
        extrapolates = self.counts_components and self._goes_further
        held = np.zeros((n_columns if extrapolates else 0, k))
        slopes = self._needs_slopes
        for rows in self._blocks(units):
            given = None if start is None else start[rows]
            block = self._block(units, rows)
            expected, ratios = self._step_of_block(
                block, rows, given, local.n_sweeps, found, sums, counts_only, held
            )
            own = sums.of_rows(rows)[0]
            if not counts_only:
                self._add_terms(block, expected, ratios, own, terms, len(sums.dividing) > 0)
            if slopes:
                means = found.shape[rows] / found.rate[rows]
                self._add_slopes(block, expected, ratios, means, own, terms)
        if counts_only:
            step = self._as_counts(units, found, sums)
        else:
            step = self._with_terms(self._as_local_step(units, found, sums), units, found, terms)
        if extrapolates:
            step.statistics[HELD] = held * self.expected.table[:, :k]
        if slopes:
            step.statistics |= {NOISE: terms.evidence, PROPOSED_EXPOSURE: terms.exposure}
        return step

    @property
    def _needs_slopes(self) -> bool:
        # Only the visit for the last block is followed by learning, at T = 1.
        learns = "dispersion" in self.model.learns
        return learns and self.counts_components and self.t == Tempering()

    def _step_of_block(
        self,
        block: _Block,
        rows: slice,
        start: Activations | None,
        n_sweeps: int,
        found: Activations,
        sums: _Sums,
        counts_only: bool,
        held: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Make the step of some rows, write their activations, and return their E m and R."""
        dtype, table = self.model.precision, self.expected.table[:, : self.model.n_components]
        shape, rate = self._swept(block, start, n_sweeps)
        e = self._dividing(shape, rate)
        expected, ratios = self._noise(block, shape / rate)
        predicted, divisions = e @ table.T, np.zeros(len(shape))
        if counts_only:
            kernels().ratios(predicted, block.counts)
        else:
            largest = float(self.t.local) * self.expected.largest
            kernels().log_ratios(predicted, block.counts, largest, divisions)
        own, noisy = sums.of_rows(rows)
        if not counts_only:
            assigned = np.multiply(e, predicted @ table, dtype=np.float64)
            divisions -= np.einsum("nk,nk->n", assigned, np.log(np.maximum(e, _SMALLEST[dtype])))
            sums.divisions[0] += divisions.sum() if own is None else own @ divisions
            kernels().activation_sums(
                shape, np.log(rate), assigned, _NOTHING if own is None else own,
                sums.noise[rows] if len(sums.noise) else _NOTHING,
                sums.of_components,
            )  # fmt: skip
        found.shape[rows], found.rate[rows] = shape, rate
        if len(sums.dividing):
            sums.dividing[rows] = e
        _add_counts(predicted, e, noisy, sums.out)
        _add_counts(predicted, e, own, sums.clean_out)
        if len(held):
            taken = predicted * (1.0 - self._shape / (self._shape + expected))
            weights = own if self.separate_noise else noisy
            _add_counts(taken.astype(dtype, copy=False), e, weights, held)
        means = (shape / rate).astype(dtype, copy=False)
        exposures: Any = sums.exposures
        for out, weights in zip(exposures, (own, noisy), strict=False):
            out += ratios.T @ (means if weights is None else means * weights[:, None])
        return expected, ratios

    def _dividing(self, shape: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """The factors that divide the counts, given the activations."""
        powers = np.empty(shape.shape, self.model.precision)
        kernels().activation_powers(powers, shape, float(self.t.local))
        powers *= self._factors(rate)
        return powers

    def _swept(
        self, block: _Block, start: Activations | None, n_sweeps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the shapes and the rates of activations after at most ``n_sweeps`` updates.

        A row is left out of later sweeps when it has converged, whatever other rows do.
        """
        model, prior, noise = self.model, self._tempered_prior, self._prior_of_noise()
        n, k = len(block.counts), model.n_components
        if start is None:
            shape, rate = np.ones((n, k)), np.ones((n, k))
        else:
            shape = np.array(start.shape, order="C")
            rate = np.array(np.broadcast_to(start.rate, (n, k)), order="C")
        table, means = self._padded
        sweeps(self.plain).noisy_sweeps(
            block.counts,
            table,
            means,
            self._factors(None)[0],
            self.log_weights,
            self.mean_weights,
            float(self.t.local),
            float(prior["shape"][0]),
            float(prior["rate"][0]),
            float(self.t.statistics),
            float(noise["shape"][0]),
            float(noise["rate"][0]),
            start is not None,
            n_sweeps,
            model.sweep_tol,
            REST if self._goes_further else 1.0,
            shape,
            rate,
        )
        return shape, rate

    @cached_property
    def _padded(self) -> tuple[np.ndarray, np.ndarray]:
        """The table and the means of the components in the layout of :func:`noisy_sweeps`."""
        (n, width), k = self.expected.table.shape, self.model.n_components
        n_padded, dtype = -(-n // _ROWS) * _ROWS, self.model.precision
        table = np.zeros((n_padded, width), dtype)
        table[:n] = self.expected.table
        means = np.zeros((n_padded, -(-(k + 1) // _LANES) * _LANES), dtype)
        means[:n, :k] = self._means
        means[:n, k] = self._prior_of_noise()["rate"][0]
        return table, means

    def _add_terms(
        self,
        block: _Block,
        expected: np.ndarray,
        ratios: np.ndarray,
        weights: np.ndarray | None,
        terms: _Terms,
        large: bool,
    ) -> None:
        """Add the terms of e in the bound of some rows, some of which may have large counts."""
        a, prior = self._shape, self._prior_of_noise()
        first, rate = float(prior["shape"][0]), float(prior["rate"][0])
        cells = _Cells.of(block, expected, weights)
        # log r = log r₀ + log(1 + m / r₀)
        logs = np.log1p(float(self.t.statistics) / rate * cells.m)
        total = float((cells.own * logs).sum()) + cells.number * np.log(rate)
        x, s = cells.x, block.shape[cells.filled].astype(np.float64)
        # Most cells have no count, and all of these the same shape.
        rest = cells.number - cells.weights.sum()
        log_s, log_gamma = psi(s), gammaln(s)
        expected_logs = float(cells.weights @ log_s) + rest * psi(first) - total
        means = float((cells.own * ratios).sum())
        of_filled = logs[cells.filled] + np.log(rate)
        terms.energy += float(cells.weights @ (x * (log_s - of_filled)))
        constant = cells.number * (a * np.log(a) - gammaln(a))
        terms.log_prior += (a - 1.0) * expected_logs - a * means + constant
        entropy = float(cells.weights @ (s + log_gamma + (1.0 - s) * log_s)) - total
        terms.entropy += entropy + rest * (first + gammaln(first) + (1.0 - first) * psi(first))
        if self.t != Tempering():
            return
        terms.exact += cells.height(a) + float((cells.own * ratios * cells.m).sum())
        if large:
            x, m = np.nan_to_num(block.counts).astype(np.float64), np.maximum(cells.m, _SMALLEST_M)
            each = log_negative_binomial(x, np.full(x.shape, a), a / m) - log_poisson(x, m)
            terms.for_large += float((cells.own * each).sum())

    def _add_slopes(
        self,
        block: _Block,
        expected: np.ndarray,
        current: np.ndarray,
        means: np.ndarray,
        weights: np.ndarray | None,
        terms: _Terms,
    ) -> None:
        """Add what the dispersion is learned from, given E m, R and E h of some rows."""
        cells, a, new = _Cells.of(block, expected, weights), self._shape, 1.0 / self.model.proposed
        # R under the proposed dispersion; the shapes of missing cells are zero.
        shape = np.where(block.shape > 0, block.shape + block.shape.dtype.type(new - a), 0.0)
        ratios = (shape / (new + expected)).astype(shape.dtype, copy=False)
        heights = [
            cells.height(each) + float((cells.own * own * cells.m).sum())
            for each, own in ((a, current), (new, ratios))
        ]
        terms.evidence += *cells.slopes(a), *heights, cells.number
        of_rows = (means if weights is None else means * weights[:, None]).astype(shape.dtype)
        terms.exposure = terms.exposure + ratios.T @ of_rows

    def _with_terms(
        self,
        step: LocalStep,
        units: DenseCounts | SparseCounts,
        found: Activations,
        terms: _Terms,
    ) -> LocalStep:
        """Add the terms of e to a local step, whose energy has −R E m in the place of −E m."""
        exact = None
        if self.t == Tempering() and step.exact_bound is None:
            exact = step.bound + terms.exact
        elif self.t == Tempering():
            exact = step.bound + terms.for_large
        step.energy += terms.energy
        step.entropy += terms.entropy
        step.log_prior += terms.log_prior
        step.exact_bound = exact
        return step

    @property
    def _goes_further(self) -> bool:
        """Whether steps are longer than those of EM."""
        return bool(self.t == Tempering() and self.model.dispersion <= _STRONGEST)

    def extrapolated(self, q: Natural, proposed: Natural, statistics: Natural) -> Natural:
        held = statistics.get(HELD)
        if held is None or "components_shape" not in proposed:
            return proposed
        shape, means = proposed["components_shape"], q["components_shape"] / q["components_rate"]
        found = factors(shape, proposed["components_rate"] * means, held.T, REST)
        return {**proposed, "components_rate": shape / (means * found)}

    def activations(self, units: DenseCounts | SparseCounts, n_sweeps: int) -> Activations:
        n, k = units.n_units, self.model.n_components
        found = Activations(np.empty((n, k)), np.empty((n, k)))
        for rows in self._blocks(units):
            found.shape[rows], found.rate[rows] = self._swept(
                self._block(units, rows), None, n_sweeps
            )
        return found


def better_dispersion(
    old: float, proposed: float, evidence: np.ndarray, rates: list[float], rho: float
) -> tuple[float, float]:
    """Return a dispersion under which the bound is higher, and a proposal for the next step.

    Given q(e), the prior Gamma(a, a) is best where log a − ψ(a) = E e − E log e − 1 on average over
    all cells. Where the noise is weak, q(e) follows the prior, and this step of EM is short. A step
    of Newton's method on the bound, in which q(e) is the optimum for every a, goes further. It can
    lower the bound, so that it is a proposal at first: the next visit also computes the bound
    under the proposed dispersion, with q(e) at its optimum and the other factors as they are. If
    that is higher, after the updates of the other factors, the proposal is taken. Otherwise the
    dispersion makes a step of EM. Neither lowers the bound.

    Parameters
    ----------
    old, proposed : float
        1 / a.
    evidence : ndarray of shape (5,)
        The statistic ``NOISE``.
    rates : list of two floats
        Σ w R E m after the updates of the other factors, under both dispersions.
    rho : float
        The size of the step. Below 1, which is that of a batch, Newton's step is taken in part.
    """
    slope, _, height, other, cells = evidence
    a, lower, upper = 1.0 / old, *_SHAPES
    step = _newton_step(a, evidence)
    if rho < 1.0:
        found = float(np.clip(damped(a, a * np.exp(step), rho), lower, upper))
        return 1.0 / found, 1.0 / found
    if proposed != old and other - rates[1] > height - rates[0]:
        found = 1.0 / proposed
    else:
        gap = np.log(a) - float(psi(a)) - slope / cells
        found = gamma_shape(1.0, -max(gap, 0.0), a, _SHAPES)
    farther = max if step > 0 else min
    new = float(np.clip(farther(a * np.exp(step), found), lower, upper))
    return 1.0 / found, 1.0 / new


def exploring_dispersion(old: float, evidence: np.ndarray) -> float:
    """Return the dispersion with which a fit goes on to explore.

    It is above the best one for the components that have been found, so that bursts are not taken
    for components, and falls as components explain more. Fixed strong noise would join components
    that only the search could divide again.

    Parameters
    ----------
    old : float
        1 / a.
    evidence : ndarray of shape (5,)
        The statistic ``NOISE``.
    """
    a = np.exp(_newton_step(1.0 / old, evidence)) / old
    return 1.0 / float(np.clip(a / _EXPLORING, *_SHAPES))


def _newton_step(a: float, evidence: np.ndarray) -> float:
    """Return a step of Newton's method on the bound as a function of log a."""
    slope, curvature = a * evidence[0], a * evidence[0] + a**2 * evidence[1]
    step = slope / -curvature if curvature < 0 else np.sign(slope) * _LONGEST_STEP
    return float(np.clip(step, -_LONGEST_STEP, _LONGEST_STEP))
