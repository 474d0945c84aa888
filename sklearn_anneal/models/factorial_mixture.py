"""The model of factorial mixtures."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import log_expit, logit, logsumexp

from ..data.units import Rows
from ..families import Factor, Factors, MatrixGaussian, Natural
from ..families._structure import inverse_of_lower
from ._base import LOG_2PI, Block, DataSummary, LocalStep, Recommended, coinciding
from ._binary_codes import (
    FEW_SWEEPS,
    OF_EQUAL_VALUES,
    BinaryCodes,
    centered_blocks,
    check_variances,
    inferred_anew,
)
from ._componentwise import Componentwise, Given
from ._exchangeable import ROWS_FOR_SWAPS
from ._factorial_steps import Likelihood, Moments, States
from ._part_moves import (
    Explained,
    Replaced,
    refitted_means,
    superfluous,
    swapped_means,
)
from ._predictive_loadings import gains_of_answers
from ._searchable import Rearranged, Searchable, SearchOptions

# The least and the largest prior probability of parts that moves have changed.
_SHARES = 0.01, 0.99
_FACTORS = Factors([Factor(MatrixGaussian(), {key: key for key in MatrixGaussian.keys})])
# Rows × states whose predictive densities are in memory at a time.
_ENTRIES = 2**20
# Learned probabilities of activations stay this far from 0 and 1.
_SMALLEST_PRIOR = 1e-4
# One update of a learned variance shrinks it at most by this factor.
_SMALLEST_FACTOR = 1e-3
# The variance of the noise is at least this share of the variance of the data, below which the
# bound would be rounding.
_LEAST_NOISE = 1e-10
# Values of the parameters that are learned, at which learning begins. The variances are shares of
# the variance of the data, the second one after division by the expected number of activations.
_START = {"noise_variance": 0.4, "mean_variance": 1.0, "activation_prior": 0.5}


@dataclass
class Summary(DataSummary):
    """Moments of the training data."""

    weight: float  # N = Σ w of all data; in a stream, this includes data that have not arrived yet
    seen: float  # Σ w of the data from which the moments were computed
    # The vector that is subtracted from all rows: their mean, or zeros, (n_features,).
    center: np.ndarray
    mean: np.ndarray  # (n_features,)
    scatter: float  # Σ w ‖x − mean‖²

    @property
    def variance(self) -> float:
        """Mean of the variances of the columns."""
        return self.scatter / (self.seen * len(self.mean))

    def merge(self, other: Summary) -> Summary:
        """Return the moments of both data sets together, with the center of this summary."""
        seen = self.seen + other.seen
        shift = other.mean - self.mean
        between = self.seen * other.seen / seen * float(shift @ shift)
        return replace(
            self,
            weight=seen,
            seen=seen,
            mean=self.mean + other.seen / seen * shift,
            scatter=self.scatter + other.scatter + between,
        )

    def continued(self, other: Summary) -> Summary:
        """Return the summary of the other data, with the center of this one."""
        return replace(other, center=self.center)

    def whole(self) -> Summary:
        # Without a center there are only zeros.
        return replace(self, center=self.mean) if self.center.any() else self


class FactorialMixture(Searchable[Rows, Summary], Componentwise[Summary], BinaryCodes[Summary]):
    """The model x = Σ_k z_k μ_k + ε with z_k ~ Bernoulli(π_k), μ_k ~ N(0, s I), ε ~ N(0, σ² I).

    The object holds hyperparameters only. q(μ) is one Gaussian over all components, the same for
    every column of the data except for the mean. Its natural parameters are ``precision`` (K, K)
    and ``natural_mean`` (K, D). Local variables are the activations z.

    With ``center``, rows have an offset, x = c + b + Σ_k z_k μ_k + ε, where c is the mean of the
    data. It is a component that is active in every row, and comes first in q(b, μ), whose K + 1
    rows are otherwise as above. The prior b + Σ_k μ_k / 2 ~ N(0, v I), with the variance v of the
    data, has no preference for μ_k or −μ_k: b + z μ = (b + μ) + (1 − z)(−μ).

    Parameters
    ----------
    n_components, n_features : int
    local_step : {"mean_field", "enumerate"}
        Whether q(z) is a product over components, or exact, over all 2^K states.
    noise_variance, mean_variance : float or "auto"
        σ² and s; "auto" learns them by empirical Bayes.
    activation_prior : float, ndarray of shape (n_components,) or "auto"
        π; "auto" learns one number per component.
    center : bool
        Whether the rows have an offset.
    init_params : {"random", "random_from_data"}
    max_sweeps : int or None
        Largest number of sweeps over a row at a visit; None: 5 at visits that start anew in order
        to explore, and 100 at others.
    sweep_tol : float

    References
    ----------
    Ghahramani (1995), Factorial learning and the EM algorithm; Mandt et al. (2016), Variational
    tempering, section 4 and Eq. 12.
    """

    search_options = SearchOptions(noises=(0.1,), refits=True)

    recommended: ClassVar[Recommended] = {
        "deterministic": {
            "form": "likelihood",
            "initial_temperature": 100.0,
            "schedule": "geometric",
            "n_passes": 70,
            "jitter": 0.5,
        },
        "stochastic": {
            "initial_noise": 0.9,
            "schedule": "linear",
            "n_passes": 50,
            "start": "random",
        },
        "tempering": {"max_temperature": 100.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.25, "noise": "dirichlet", "schedule": "linear"},
        "structured": {"gradient": "approximate"},
        "proximity": {"strength": 1e-5, "lag": 5, "learning_rate": 0.5},
    }

    def __init__(
        self,
        n_components: int,
        n_features: int,
        local_step: str = "mean_field",
        noise_variance: float | str = "auto",
        mean_variance: float | str = "auto",
        activation_prior: Any = "auto",
        center: bool = False,
        init_params: str = "random",
        max_sweeps: int | None = None,
        sweep_tol: float = 1e-3,
    ):
        self.n_components = int(n_components)
        self.n_features = n_features
        self.local_step_name = local_step
        self._asked = {
            "noise_variance": noise_variance,
            "mean_variance": mean_variance,
            "activation_prior": activation_prior,
        }
        self.learns = tuple(name for name, value in self._asked.items() if isinstance(value, str))
        self.center = center
        # The rows of the components in q, which begins with the offset if there is one.
        self.switched = slice(int(center), None)
        self.offset_variance = 1.0
        self.init_params = init_params
        self.max_sweeps = max_sweeps
        self.sweep_tol = sweep_tol
        self.noise_variance = self.mean_variance = 1.0
        self.activation_prior = np.full(n_components, 0.5)
        # Smallest permitted variance of the noise; :meth:`resolved` computes it from the data.
        self.least_noise = 0.0

    def factors(self) -> Factors:
        return _FACTORS

    def operations(self, units: Rows) -> float:
        k, d = self.n_components, self.n_features
        if self.local_step_name == "enumerate":
            return units.n_units * (4.0 * k * d + 2.0**k * (4.0 * k + 30.0))
        return units.n_units * k * (4.0 * d + FEW_SWEEPS * (2.0 * k + 30.0))

    # Data, prior and starts

    def summary(self, units: Rows) -> Summary:
        weight = units.total_weight
        origin = np.zeros(self.n_features)
        mean, scatter = origin, 0.0
        for rows, X, *_ in centered_blocks(Rows(units.X, None, origin)):
            mean = mean + (X.sum(axis=0) if units.weights is None else units.weights[rows] @ X)
        mean = mean / weight
        for rows, X, _ in centered_blocks(Rows(units.X, None, mean)):
            weights = 1.0 if units.weights is None else units.weights[rows]
            scatter += float(np.sum(weights * np.einsum("nd,nd->n", X, X)))
        return Summary(weight, weight, mean if self.center else origin, mean, scatter)

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        scale = summary.variance
        check_variances(scale)
        if not scale > OF_EQUAL_VALUES**2 * float(np.mean(summary.mean**2)):
            # All rows are equal, so that there is no noise to learn from.
            scale, model.learns = 1.0, ()
        values = {
            name: _START[name] if isinstance(value, str) else value
            for name, value in self._asked.items()
        }
        model.activation_prior = np.full(self.n_components, 1.0) * values["activation_prior"]
        if "noise_variance" in self.learns:
            values["noise_variance"] *= scale
        if "mean_variance" in self.learns:
            values["mean_variance"] *= scale / float(model.activation_prior.sum())
        model.noise_variance = float(values["noise_variance"])
        model.mean_variance = float(values["mean_variance"])
        model.offset_variance = scale
        model.least_noise = _LEAST_NOISE * scale
        if model.noise_variance < model.least_noise:
            raise ValueError(
                f"noise_variance={model.noise_variance:g} is too small beside the variance of the "
                f"data, {scale:g}: floating-point numbers would keep no digit of the lower bound. "
                f"Give at least {model.least_noise:g}."
            )
        return model

    def prior(self, summary: Summary | None) -> Natural:
        n_fixed = self.switched.start
        precision = np.eye(n_fixed + self.n_components) / self.mean_variance
        if self.center:
            middle = np.r_[1.0, np.full(self.n_components, 0.5)]
            precision[0, 0] = 0.0
            precision += np.outer(middle, middle) / self.offset_variance
        return {"precision": precision, "natural_mean": np.zeros((len(precision), self.n_features))}

    def init(
        self, units: Rows, summary: Summary, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """Return a Gaussian around draws from the prior, or around random rows."""
        k = self.n_components
        if self.init_params == "random":
            return self._around(self._drawn(random_state), summary)
        share = None if units.weights is None else units.weights / units.weights.sum()
        n = units.n_units if share is None else int(np.count_nonzero(share))
        chosen = random_state.choice(units.n_units, size=k, replace=n < k, p=share)
        return self._around(units.X[chosen] - units.center, summary)

    def _drawn(self, rng: np.random.RandomState | np.random.Generator) -> np.ndarray:
        normal = rng.standard_normal((self.n_components, self.n_features))
        return np.sqrt(self.mean_variance) * normal

    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return a Gaussian around the given ``means``."""
        return self._around(given["means"], summary)

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        given = "activation_prior" not in self.learns
        return not given or np.array_equal(self.activation_prior[order], self.activation_prior)

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        model = copy(self)
        model.activation_prior = self.activation_prior[order]
        order = np.r_[: self.switched.start, order + self.switched.start]
        precision = np.ascontiguousarray(q["precision"][np.ix_(order, order)])
        return model, prior, {"precision": precision, "natural_mean": q["natural_mean"][order]}

    def canonical(self, q: Natural, prior: Natural) -> Rearranged | None:
        """Return components of which none is active more often than not, as far as π is learned."""
        often = self.activation_prior > 0.5
        if not (self.center and "activation_prior" in self.learns and often.any()):
            return None
        model = copy(self)
        model.activation_prior = np.where(often, 1.0 - self.activation_prior, self.activation_prior)
        # (b, μ) as a function of the new (b, μ), and the other way round.
        change = np.diag(np.r_[1.0, np.where(often, -1.0, 1.0)])
        change[0, 1:] = often
        precision = change.T @ q["precision"] @ change
        return model, prior, {"precision": precision, "natural_mean": change.T @ q["natural_mean"]}

    def cooling(self) -> Self | None:
        return None if self.local_step_name == "enumerate" else self.with_cooling()

    def other_starts(self) -> tuple[Self, ...]:
        other = copy(self)
        other.init_params = "random_from_data" if self.init_params == "random" else "random"
        return (other,)

    def swapped(
        self,
        units: Rows,
        q: Natural,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
        guided: bool,
    ) -> Rearranged | None:
        """Return a Gaussian around the means, one of which is new, as found in the residuals."""
        return self._replaced(partial(swapped_means, guided=guided), units, q, summary, prior, rng)

    def merged(
        self, units: Rows, q: Natural, summary: Summary, prior: Natural, rng: np.random.Generator
    ) -> Rearranged | None:
        """Return a Gaussian around the means without a part that costs more than it brings.

        The others take over what it explains.
        """
        if self.n_components < 2 or "activation_prior" not in self.learns:
            return None
        every, rows = self._explained(units, q)
        means = every[self.switched].copy()
        scale = summary.weight / rows.weights.sum()
        rows = rows._replace(weights=scale * rows.weights)
        number = superfluous(means, rows, self.noise_variance, self.mean_variance, rng)
        if number is None:
            return None
        means[number] = 0.0
        model = self._with_shares(number, _SHARES[0])
        return model, prior, model._around(means, summary, every[: self.switched.start])

    def refitted(
        self, units: Rows, q: Natural, summary: Summary, prior: Natural, rng: np.random.Generator
    ) -> Rearranged | None:
        """Return a Gaussian around the means, some of which were fitted anew by themselves."""
        return self._replaced(refitted_means, units, q, summary, prior, rng)

    def _replaced(
        self,
        replaced: Callable[..., Replaced | None],
        units: Rows,
        q: Natural,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
    ) -> Rearranged | None:
        """Return a Gaussian around the means after some of them were ``replaced``."""
        if self.n_components < 2:
            return None
        every, rows = self._explained(units, q)
        found = replaced(every[self.switched], rows, self.noise_variance, rng)
        if found is None:
            return None
        model = self._with_shares(found.numbers, found.shares)
        return model, prior, model._around(found.means, summary, every[: self.switched.start])

    def _with_shares(self, numbers: Any, shares: Any) -> Self:
        """Return the model with other probabilities of some activations, if these are learned."""
        if "activation_prior" not in self.learns:
            return self
        model = copy(self)
        model.activation_prior = self.activation_prior.copy()
        model.activation_prior[numbers] = np.clip(shares, *_SHARES)
        return model

    def _explained(self, units: Rows, q: Natural) -> tuple[np.ndarray, Explained]:
        """Return E μ, with an offset if there is one, and what the parts explain of a sample."""
        rows: Any = units.spread(ROWS_FOR_SWAPS)
        activations, _ = self.infer(rows, q, cools=False)
        weights = np.ones(rows.n_units) if rows.weights is None else rows.weights
        every = self.standard(q)["mean"]
        X = np.asarray(rows.X, dtype=np.float64) - rows.center
        X -= every[: self.switched.start].sum(axis=0)
        return every, Explained(activations, X, weights)

    def _around(
        self, means: np.ndarray, summary: Summary, offset: np.ndarray | None = None
    ) -> Natural:
        """Return a Gaussian around some means, as narrow as the data will make it.

        Without a given offset, the mean of the data is the expected row.
        """
        active = self.activation_prior
        if self.center:
            means = np.vstack([-active @ means if offset is None else offset, means])
            active = np.r_[1.0, active]
        second = np.outer(active, active)
        np.fill_diagonal(second, active)
        precision = self.prior(None)["precision"] + summary.weight / self.noise_variance * second
        return {"precision": precision, "natural_mean": precision @ means}

    # Visits

    def standard(self, q: Natural) -> dict[str, np.ndarray]:
        """Return ``mean`` (n_components, n_features) and ``covariance`` (n_components, …) of q."""
        (factor,) = self.factors()
        return factor.family.to_standard(factor.pick(q))

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Moments:
        family = MatrixGaussian()
        if rng is not None:
            means = family.sample(q, rng)["value"]
            return Moments(means, np.zeros((len(means), len(means))), self.center)
        root, means = family.root_and_mean(q)
        return Moments(means, inverse_of_lower(root), self.center)

    def likelihood(self, moments: Moments, x: float = 1.0) -> Likelihood:
        """Return E log p(x, z | μ) as a function of z, given the moments of μ.

        Sweeps will start at the relaxed activations for the inverse temperature ``x``.
        """
        # E log p(x, z | μ) = −‖x‖² / 2σ² + zᵀ (E μ x) / σ² − ½ zᵀ G z + zᵀ logit π + const with
        # G = E μ μᵀ / σ². Relaxed activations are Gaussian with the mean π and the variance
        # π (1 − π), and their mean given x is (G + P)⁻¹ (E μ x / σ² + P π) with the diagonal
        # matrix P of 1 / (π (1 − π)), divided by the inverse temperature.
        of_components = moments.switched
        gram, prior = of_components.gram / self.noise_variance, self.activation_prior
        precision = 1.0 / (prior * (1.0 - prior) * x)
        inverse = np.linalg.inv(gram + np.diag(precision))
        scale = np.sqrt(self.n_features / self.noise_variance)
        states = None
        if self.local_step_name == "enumerate":
            every = self.states()
            constants = every @ logit(prior)
            constants -= 0.5 * ((self.coefficients(every) @ (scale * moments.root).T) ** 2).sum(
                axis=1
            )
            states = States.of(every, of_components.means, constants, self.noise_variance)
        return Likelihood(
            moments,
            of_components.means / self.noise_variance,
            gram,
            self.noise_variance,
            prior,
            inverse,
            inverse @ (precision * prior),
            scale * of_components.root,
            states,
            self.sweep_tol,
        )

    def states(self) -> np.ndarray:
        """Return all states z, of shape (2^K, n_components)."""
        k = self.n_components
        return ((np.arange(2**k)[:, None] >> np.arange(k)) & 1).astype(np.float64)

    def coefficients(self, states: np.ndarray) -> np.ndarray:
        """Return states as coefficients of b and μ, with 1 for the offset if there is one."""
        return np.column_stack([np.ones(len(states)), states]) if self.center else states

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        return {
            "precision": raw["second"] / self.noise_variance,
            "natural_mean": raw["first"] / self.noise_variance,
        }

    # Hyperparameters

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: LocalStep | None,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[Self, Natural, Natural]:
        """Move learned hyperparameters to their optimum for fixed q, and then q to its own.

        The optimum of each is in closed form: σ² is the mean expected squared error, s the mean
        expected square of μ, and π_k the mean activation of component k.
        """
        if step is None or not (late and self.learns):
            return self, prior, q
        model = copy(self)
        moments, stats = self.expectations(q), step.statistics
        first, second = stats["first"], stats["second"]
        error, weight = stats["evidence"]
        # The error changes with μ since the visit. The error itself, as Σ x² − 2 Σ …, would have
        # no correct digit where components are far larger than the noise.
        shift = moments.means - stats["means"]
        error += np.sum(shift * (second @ shift - 2.0 * (first - second @ stats["means"])))
        error += self.n_features * np.sum(second * (moments.covariance - stats["covariance"]))
        best = {
            "noise_variance": error / (weight * self.n_features),
            "mean_variance": np.trace(moments.switched.gram) / moments.switched.means.size,
        }
        for name in best.keys() & set(self.learns):
            old = getattr(self, name)
            new = max(float(best[name]), _SMALLEST_FACTOR * old)
            setattr(model, name, old + rho * (new - old))
        if "noise_variance" in self.learns:
            model.noise_variance = max(model.noise_variance, self.least_noise)
        if "activation_prior" in self.learns:
            share = np.diagonal(second)[self.switched] / weight
            share = np.clip(share, _SMALLEST_PRIOR, 1.0 - _SMALLEST_PRIOR)
            model.activation_prior = self.activation_prior + rho * (share - self.activation_prior)
        new = model.prior(None)
        # q is its prior plus statistics that are divided by σ².
        factor = self.noise_variance / model.noise_variance
        return model, new, {key: new[key] + factor * (q[key] - prior[key]) for key in q}

    # Operations that only some annealing methods need

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log c(x) of one row in nats, of the shape of ``x``.

        It is exact: c(x) = Σ_z ∫ p(x, z | μ)^x dx does not depend on μ. The formula in the paper
        (section 4) lacks the term with log 2πσ².
        """
        # c(x) = (2πσ²)^{(1 − x) D / 2} x^{−D / 2} Π_k {π_k^x + (1 − π_k)^x}
        x = np.asarray(x, dtype=np.float64)
        noise = (1.0 - x) * (LOG_2PI + np.log(self.noise_variance)) - np.log(x)
        on, off = np.log(self.activation_prior), np.log1p(-self.activation_prior)
        activations = np.logaddexp(np.multiply.outer(x, on), np.multiply.outer(x, off))
        return 0.5 * self.n_features * noise + activations.sum(axis=-1)

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) = N log c(x) of all rows in nats."""
        return summary.weight * self.unit_log_partition(x, summary, q)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the means at random by ``size`` prior standard deviations."""
        shift = np.zeros(q["natural_mean"].shape)
        normal = rng.standard_normal((self.n_components, self.n_features))
        shift[self.switched] = size * np.sqrt(self.mean_variance) * normal
        return {**q, "natural_mean": q["natural_mean"] + q["precision"] @ shift}

    # Functions of the fitted parameters

    def infer(self, units: Rows, q: Natural, cools: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Infer the activations of rows at T = 1, from high temperatures too if it ``cools``.

        Returns
        -------
        activations : ndarray of shape (n_rows, n_components)
            E z.
        bounds : ndarray of shape (n_rows,)
            E log p(x, z | μ) + H[q(z)] in nats.
        """
        likelihood = self.likelihood(self.expectations(q))
        activations = np.empty((units.n_units, self.n_components))
        bounds = np.empty(units.n_units)
        for block in centered_blocks(units):
            found = inferred_anew(likelihood, block, self.n_sweeps(False), cools)
            activations[block.rows] = found.activations.T
            bounds[block.rows] = found.energies + found.entropies
        return activations, bounds

    def contributions(self, units: Rows, q: Natural) -> np.ndarray:
        activations, _ = self.infer(units, q)
        return activations * (self.standard(q)["mean"] ** 2).sum(axis=1)

    def log_predictive(self, units: Rows, q: Natural) -> np.ndarray:
        """Return log predictive densities of rows in nats, (n_rows,), or lower bounds on them.

        They are bounds if activations are independent in q: those of the rows, and what these gain
        as the components answer to the row alone.
        """
        if self.local_step_name == "enumerate":
            return self._summed_densities(units, q)
        activations, bounds = self.infer(units, q)
        standard, sd = self.standard(q), np.sqrt(self.noise_variance)
        means, covariance = standard["mean"] / sd, standard["covariance"] / self.noise_variance
        every = self.coefficients(activations)
        # That of an offset is 1.
        spread = every * (1.0 - every)
        for block in centered_blocks(units):
            parts = every[block.rows], spread[block.rows], means, covariance
            bounds[block.rows] += gains_of_answers(block.X / sd, None, *parts)
        return bounds

    def _summed_densities(self, units: Rows, q: Natural) -> np.ndarray:
        """Return the log predictive density of rows in nats, (n_rows,), by a sum over all states.

        Given z, a row is Gaussian with the mean zᵀ E μ and the variance σ² + zᵀ S z of every
        column, S being the covariance of the components. An offset has z = 1.
        """
        standard = self.standard(q)
        states = self.states()
        every = self.coefficients(states)
        variances = ((every @ standard["covariance"]) * every).sum(axis=1) / self.noise_variance
        variances += 1.0
        signs = np.where(states > 0, 1, -1)
        constants = log_expit(signs * logit(self.activation_prior)).sum(axis=1)
        constants -= 0.5 * self.n_features * (LOG_2PI + np.log(self.noise_variance * variances))
        points = States.of(every, standard["mean"], constants, self.noise_variance)
        result = np.empty(units.n_units)
        size = max(1, _ENTRIES // len(every))
        for rows, X, *_ in centered_blocks(units):
            coordinates, rest = points.span(X)
            for begin in range(0, len(X), size):
                part = slice(begin, begin + size)
                distances = cdist(coordinates.T[part], points.centers, "sqeuclidean")
                distances += rest[part, None]
                found = logsumexp(constants - 0.5 * distances / variances, axis=1)
                result[rows][part] = found
        return result

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return the expected number of rows in which each component is active, (n_components,)."""
        added = np.diagonal(q["precision"] - prior["precision"])
        return self.noise_variance * added[self.switched]

    def in_use(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return the numbers of the components that contribute to the rows.

        They are active in at least one row, and their mean is larger than its uncertainty.
        """
        standard = self.standard(q)
        squares = (standard["mean"][self.switched] ** 2).sum(axis=1)
        variances = np.diagonal(standard["covariance"])[self.switched]
        certain = squares > self.n_features * variances
        return np.flatnonzero(certain & (self.expected_counts(q, prior) > 1))

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        means = self.expectations(q).switched.means / np.sqrt(self.mean_variance)
        return coinciding(means, self.in_use(q, prior))
