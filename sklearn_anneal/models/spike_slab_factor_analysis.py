"""The model of spike-and-slab factor analysis."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logit

from ..data.units import Rows
from ..families import Factor, Factors, Gaussian, MatrixGaussian, Natural
from ..parallel.workers import SEQUENTIAL, Workers
from . import _packed_gaussians
from ._base import LOG_2PI, Block, DataSummary, Known, LocalStep, Recommended, coinciding
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
from ._factor_moves import (
    CANDIDATES,
    Residuals,
    evidence,
    given_up,
    kl_of_loadings,
    most_alike,
    sought,
)
from ._factor_refits import refitted
from ._factor_rows import Likelihood, Moments, RowPartition
from ._gaussian_factors import (
    always_on,
    low_rank,
    noise_left,
    scales,
    transformation,
)
from ._loadings import Loadings
from ._searchable import Rearranged, Searchable, SearchOptions

# The factors of q by whether cells are missing, so that columns have precisions of their own.
_FACTORS = {
    missing: Factors([Factor(family, {key: key for key in family.keys})])
    for missing, family in ((False, MatrixGaussian()), (True, Gaussian()))
}
# Learned probabilities of activations stay this far from 0 and 1.
_SMALLEST_PRIOR = 1e-4
# One update of a learned variance shrinks it at most by this factor.
_SMALLEST_FACTOR = 1e-3
# The variance of the noise of a column is at least this share of the variance of the column.
_LEAST_NOISE = 1e-4
# Learned numbers that differ by less than this share are the same.
_NO_CHANGE = 1e-12
# Learned prior variances of loadings are at least this large: a factor with this one explains
# nothing, and its prior precision does not hide what the rows say about the others.
_TINY = 1e-8
# Values at which learning begins: the variance of the noise as a share of that of the column, and
# the probability of an activation.
_NOISE_OF_START, _ACTIVATION_OF_START = 0.4, 0.5


@dataclass
class Summary(DataSummary):
    """Moments of the training data, column by column, over the cells that are observed."""

    weight: float  # N = Σ w of all rows; in a stream, this includes rows that have not arrived yet
    seen: float  # Σ w of the rows from which the moments were computed
    cells: np.ndarray  # Σ w of the rows whose cell is observed, (n_features,)
    # The vector that is subtracted from all rows, which is the mean of the first data,
    # (n_features,).
    center: np.ndarray
    mean: np.ndarray  # (n_features,)
    scatter: np.ndarray  # Σ w (x − mean)², (n_features,)

    @property
    def variances(self) -> np.ndarray:
        """The variances of the columns."""
        return self.scatter / np.maximum(self.cells, 1e-300)

    def merge(self, other: Summary) -> Summary:
        """Return the moments of both data sets together, with the center of this summary."""
        seen, cells = self.seen + other.seen, self.cells + other.cells
        share = other.cells / np.maximum(cells, 1e-300)
        shift = other.mean - self.mean
        scatter = self.scatter + other.scatter + self.cells * share * shift**2
        return replace(
            self,
            weight=seen,
            seen=seen,
            cells=cells,
            mean=self.mean + share * shift,
            scatter=scatter,
        )

    def continued(self, other: Summary) -> Summary:
        """Return the summary of the other data, with the center of this one."""
        return replace(other, center=self.center)

    def whole(self) -> Summary:
        return replace(self, center=self.mean)


class SpikeSlabFactorAnalysis(
    Searchable[Rows, Summary], Componentwise[Summary], BinaryCodes[Summary]
):
    """The model x = Σ_k z_k s_k w_k + ε, z_k ~ Bernoulli(π_k), s_k ~ N(0, 1), ε_d ~ N(0, ψ_d).

    The object holds hyperparameters only. Loadings have the prior w_kd ~ N(0, ψ_d v_k), so that
    everything is computed in units of the noise of each column: w_kd / √ψ_d ~ N(0, v_k). q of these
    is a Gaussian over all factors for each column. Its natural parameters are ``precision`` (K, K)
    and ``natural_mean`` (K, D); where cells are missing, columns have precisions of their own, and
    the parameters have the shapes (D, K, K) and (D, K). Local variables are z and s.

    Parameters
    ----------
    n_components, n_features : int
    noise_variance : float, ndarray of shape (n_features,) or "auto"
        ψ; "auto" learns it by empirical Bayes.
    loading_variance : float, ndarray of shape (n_components,) or "auto"
        v.
    activation_prior : float, ndarray of shape (n_components,) or "auto"
        π.
    missing : bool
        Whether cells of the data may be missing.
    max_sweeps : int or None
    sweep_tol : float

    References
    ----------
    Altosaar, Ranganath and Blei (2018), Proximity variational inference, section 4; Titsias and
    Lázaro-Gredilla (2011), Spike and slab variational inference, for q(z_k, s_k).
    """

    search_options = SearchOptions(refits=True)

    recommended: ClassVar[Recommended] = {
        "deterministic": {
            "form": "likelihood",
            "initial_temperature": 10.0,
            "schedule": "geometric",
            "n_passes": 100,
            "jitter": 0.1,
        },
        "stochastic": {
            "initial_noise": 0.5,
            "schedule": "linear",
            "n_passes": 50,
            "start": "random",
        },
        "tempering": {"max_temperature": 10.0, "n_temperatures": 100, "damping": 0.05},
        "local_tempering": {"n_temperatures": 100, "n_rounds": 2},
        "svi_plus": {"effective_batch_size": 0.25, "noise": "dirichlet", "schedule": "linear"},
        "structured": {"gradient": "approximate"},
        "proximity": {"strength": 1e-5, "lag": 5, "learning_rate": 0.5},
    }

    def __init__(
        self,
        n_components: int,
        n_features: int,
        noise_variance: Any = "auto",
        loading_variance: Any = "auto",
        activation_prior: Any = "auto",
        missing: bool = False,
        max_sweeps: int | None = None,
        sweep_tol: float = 1e-3,
    ):
        self.n_components = int(n_components)
        self.n_features = n_features
        self._asked = {
            "noise_variance": noise_variance,
            "loading_variance": loading_variance,
            "activation_prior": activation_prior,
        }
        self.learns = tuple(name for name, value in self._asked.items() if isinstance(value, str))
        self.missing = missing
        self.max_sweeps = max_sweeps
        self.sweep_tol = sweep_tol
        self.noise_variance = np.ones(n_features)
        self.loading_variance = np.ones(n_components)
        self.activation_prior = np.full(n_components, 0.5)
        # Smallest permitted variances of the noise; :meth:`resolved` computes them from the data.
        self.least_noise = np.zeros(n_features)
        self.column_variances = np.ones(n_features)
        self.init_params = "random"

    def factors(self) -> Factors:
        return _FACTORS[self.missing]

    def operations(self, units: Rows) -> float:
        k, d = self.n_components, self.n_features
        products = 4.0 * k * d * (k if self.missing else 1.0)
        return units.n_units * (products + k * FEW_SWEEPS * (2.0 * k + 30.0))

    # Data, prior and starts

    def summary(self, units: Rows) -> Summary:
        d, origin = self.n_features, np.zeros(self.n_features)
        sums, cells, scatter = np.zeros((3, d))

        def blocks(center: np.ndarray) -> Any:
            for block in centered_blocks(Rows(units.X, None, center, units.patterns)):
                ones = np.ones(len(block.X))
                yield block, ones if units.weights is None else units.weights[block.rows]

        for block, weights in blocks(origin):
            sums += weights @ block.X
            cells += weights.sum() if block.observed is None else weights @ block.observed
        mean = sums / np.maximum(cells, 1e-300)
        with np.errstate(over="ignore"):
            for block, weights in blocks(mean):
                scatter += weights @ block.X**2
        weight = units.total_weight
        return Summary(weight, weight, cells, mean, mean, scatter)

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        variances = summary.variances
        equal = np.sqrt(variances) <= OF_EQUAL_VALUES * np.abs(summary.mean)
        variances = np.where(equal, 0.0, variances)
        check_variances(variances)
        typical = float(variances.mean())
        if not typical > 0:
            # All rows are equal, so that there is no noise to learn from.
            typical, model.learns = 1.0, ()
        # Columns that are constant have as little noise as is permitted elsewhere.
        variances = np.where(variances > 0, variances, _LEAST_NOISE * typical)
        starts: dict[str, Any] = {
            "noise_variance": _NOISE_OF_START * variances,
            "activation_prior": _ACTIVATION_OF_START,
        }
        asked: dict[str, Any] = {
            name: starts.get(name) if isinstance(value, str) else value
            for name, value in self._asked.items()
        }
        k = self.n_components
        model.noise_variance = np.ones(self.n_features) * asked["noise_variance"]
        model.activation_prior = np.ones(k) * asked["activation_prior"]
        loading = asked["loading_variance"]
        if loading is None:
            # The factors explain what the noise leaves of the variance, and a tenth of it at least.
            left = float(np.mean(variances / model.noise_variance))
            loading = max(left - 1.0, 0.1 * left) / float(model.activation_prior.sum())
        model.loading_variance = np.ones(k) * loading
        model.column_variances, model.least_noise = variances, _LEAST_NOISE * variances
        return model

    def prior(self, summary: Summary | None) -> Natural:
        shape = (self.n_components, self.n_features)
        return {
            "precision": np.diag(1.0 / self.loading_variance),
            "natural_mean": np.zeros(shape[::-1] if self.missing else shape),
        }

    def init(
        self, units: Rows, summary: Summary, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """Return a Gaussian around draws from the prior, or around Gaussian factors."""
        if self.starts_assigned:
            loadings = low_rank(
                units,
                self.n_components,
                self.column_variances,
                self.loading_variance,
                self._starts_learn_variances,
                random_state,
            )
            return self._around(loadings / np.sqrt(self.noise_variance), summary)
        return self._around(self._drawn(random_state), summary)

    def _drawn(self, rng: np.random.RandomState | np.random.Generator) -> np.ndarray:
        normal = rng.standard_normal((self.n_components, self.n_features))
        return np.sqrt(self.loading_variance)[:, None] * normal

    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return a Gaussian around the given ``components``, which are in units of the data."""
        return self._around(given["components"] / np.sqrt(self.noise_variance), summary)

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        priors = {
            "activation_prior": self.activation_prior,
            "loading_variance": self.loading_variance,
        }
        given = [value for name, value in priors.items() if name not in self.learns]
        return all(np.array_equal(value[order], value) for value in given)

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        model = self.with_order(order)
        # There is one distribution for each column if cells are missing.
        means = q["natural_mean"][:, order] if self.missing else q["natural_mean"][order]
        moved = {
            "precision": np.ascontiguousarray(q["precision"][..., order, :][..., order]),
            "natural_mean": np.ascontiguousarray(means),
        }
        return model, model.prior(None), moved

    def with_order(self, order: np.ndarray) -> Self:
        """Return the model after a change of the order of the factors."""
        model = copy(self)
        model.activation_prior = self.activation_prior[order]
        model.loading_variance = self.loading_variance[order]
        return model

    def _around(self, means: np.ndarray, summary: Summary) -> Natural:
        """Return a Gaussian around loadings in units of the noise, as narrow as the data allow."""
        prior = self.prior(None)["precision"]
        if not self.missing:
            precision = prior + summary.weight * np.diag(self.activation_prior)
            return {"precision": precision, "natural_mean": precision @ means}
        cells = summary.cells * (summary.weight / summary.seen)
        precision = prior + cells[:, None, None] * np.diag(self.activation_prior)
        return {
            "precision": precision,
            "natural_mean": np.einsum("dkl,ld->dk", precision, means),
        }

    # Moves

    @property
    def starts_assigned(self) -> bool:
        """Whether the start is that of Gaussian factors, which determines the noise as well."""
        return self.init_params == "gaussian" or always_on(self.activation_prior)

    @property
    def _starts_learn_variances(self) -> bool:
        """Whether starts of Gaussian factors learn the prior variances of loadings.

        They learn the noise in any case, and would give up factors that less given noise needs.
        """
        return {"loading_variance", "noise_variance"} <= set(self.learns)

    @property
    def has_one_optimum(self) -> bool:
        """Whether factors are Gaussian, whose optima are rotations of one another as a rule."""
        return always_on(self.activation_prior)

    @property
    def learns_late(self) -> bool:
        """Whether learning waits for the activations, which Gaussian factors do not have."""
        return bool(self.learns) and not always_on(self.activation_prior)

    @property
    def tries_other_start_first(self) -> bool:
        return self.missing

    def cooling(self) -> Self | None:
        return None if always_on(self.activation_prior) else self.with_cooling()

    def other_starts(self) -> tuple[Self, ...]:
        """Return the model itself: other draws of its only kind of start are worth trying.

        Where cells are missing, the loadings of Gaussian factors are another kind.
        """
        if not self.missing:
            return (self,)
        other = copy(self)
        other.init_params = "gaussian"
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
        """Return a Gaussian around the loadings, of which one factor's are sought in residuals."""
        if self.n_components < 2:
            return None
        factors, left = self._explained(units, q)
        number = given_up(self._brought(q, left, factors), rng, guided)
        starts = [left.drawn(rng) for _ in range(CANDIDATES if guided else 1)]
        means = self.standard(q)["mean"].copy()
        return self._with_sought(number, [x for x in starts if x is not None], left, means, summary)

    def merged(
        self,
        units: Rows,
        q: Natural,
        summary: Summary,
        prior: Natural,
        rng: np.random.Generator,
    ) -> Rearranged | None:
        """Return a Gaussian around the loadings after one factor has taken over another one.

        They are the two whose loadings are most alike, up to their signs. The other one has no
        loadings any more, so that swaps find a better use of it.
        """
        found = self.loadings(q)
        means = found.means.copy()
        pair = most_alike(means, self.in_use(found, q, prior))
        if pair is None:
            return None
        factors, left = self._explained(units, q)
        kept, free = sorted(pair, key=lambda k: -float(means[k] @ means[k]))
        both = [kept, free]
        left = left.without(factors[:, both], means[both])
        start = means[kept].copy()
        means[free] = 0.0
        return self._with_sought(kept, [start], left, means, summary)

    def refitted(
        self, units: Rows, q: Natural, summary: Summary, prior: Natural, rng: np.random.Generator
    ) -> Rearranged | None:
        """Return a Gaussian around the loadings, some of which were fitted anew by themselves."""
        if self.n_components < 2 or always_on(self.activation_prior):
            return None
        rows: Any = units.spread(ROWS_FOR_SWAPS)
        factors, activations, _ = self.infer(rows, q, cools=False)
        left, means = self._residuals(rows, q, factors), self.standard(q)["mean"].copy()
        learns = "activation_prior" in self.learns
        own = left.values, left.weights, factors, activations, means, self.activation_prior, learns
        found = refitted(*own, rng)
        if found is None:
            return None
        means[found.numbers] = found.loadings
        model = self.with_order(np.arange(self.n_components))
        model.activation_prior[found.numbers] = found.activation_prior
        if "loading_variance" in self.learns:
            variances = np.maximum((found.loadings**2).mean(axis=1), _TINY)
            model.loading_variance[found.numbers] = variances
        return model, model.prior(None), model._around(means, summary)

    def _with_sought(
        self,
        number: int,
        starts: list[np.ndarray],
        left: Residuals,
        means: np.ndarray,
        summary: Summary,
    ) -> Rearranged | None:
        """Return the model, its prior and q with the best factor that starts lead to."""
        learns_variance = "loading_variance" in self.learns
        learned = "activation_prior" in self.learns
        variance = float(
            self.loading_variance.max() if learns_variance else self.loading_variance[number]
        )
        probability = _ACTIVATION_OF_START if learned else float(self.activation_prior[number])
        least = _SMALLEST_PRIOR if learned else None
        found = [sought(left, start, variance, probability, least) for start in starts]
        if not found:
            return None
        best = max(found, key=lambda factor: factor.gain)
        means[number] = best.loadings
        model = self.with_order(np.arange(self.n_components))
        model.activation_prior[number] = best.activation_prior
        if learns_variance:
            model.loading_variance[number] = max(float(np.mean(best.loadings**2)), _TINY)
        return model, model.prior(None), model._around(means, summary)

    def _explained(self, units: Rows, q: Natural) -> tuple[np.ndarray, Residuals]:
        """Return E u of a sample of the rows, (n_rows, n_components), and what they leave."""
        rows: Any = units.spread(ROWS_FOR_SWAPS)
        factors, _, _ = self.infer(rows, q, cools=False)
        return factors, self._residuals(rows, q, factors)

    def _residuals(self, rows: Rows, q: Natural, factors: np.ndarray) -> Residuals:
        """Return the residuals of rows given their factors, (n_rows, n_components)."""
        means = self.standard(q)["mean"]
        weights = np.ones(rows.n_units) if rows.weights is None else rows.weights
        values = np.empty((rows.n_units, self.n_features))
        observed = None if rows.patterns is None else np.empty(values.shape)
        for block in centered_blocks(rows):
            left = block.X / np.sqrt(self.noise_variance) - factors[block.rows] @ means
            if observed is not None:
                observed[block.rows] = block.observed
                left *= block.observed
            values[block.rows] = left
        return Residuals(values, observed, weights)

    def _brought(self, q: Natural, left: Residuals, factors: np.ndarray) -> np.ndarray:
        """Return the gain of the bound by each factor if all others stay as they are, nats."""
        standard = self.standard(q)
        means, covariance = standard["mean"], standard["covariance"]
        variances = np.diagonal(covariance, axis1=-2, axis2=-1)
        variances = variances if self.missing else np.broadcast_to(variances, means.T.shape)
        drive = left.values @ means.T + factors * left.lengths(means.T**2)
        own = left.lengths(means.T**2 + variances)
        gains, _ = evidence(drive, own, logit(self.activation_prior))
        prior = self.loading_variance
        costs = [kl_of_loadings(*each) for each in zip(means**2, variances.T, prior, strict=True)]
        return left.weights @ gains - np.array(costs)

    # Visits

    def standard(self, q: Natural) -> dict[str, np.ndarray]:
        """Return ``mean`` (K, D) and ``covariance`` (K, K) or (D, K, K), in units of the noise."""
        (factor,) = self.factors()
        found = factor.family.to_standard(factor.pick(q))
        return {**found, "mean": found["mean"].T if self.missing else found["mean"]}

    def loadings(self, q: Natural) -> Loadings:
        """Return the moments of q(W), in units of the noise."""
        if self.missing:
            return Loadings.of_columns(q["precision"], q["natural_mean"])
        standard = self.standard(q)
        return Loadings.sharing(standard["mean"], standard["covariance"])

    def expectations(
        self, q: Natural, rng: np.random.Generator | None = None, of_columns: bool = False
    ) -> Moments:
        """Return moments of q(W), or of a draw; ``of_columns`` adds those of each column."""
        (factor,) = self.factors()
        k, d = self.n_components, self.n_features
        covariance: Any = np.zeros((k, k))
        if rng is not None:
            means = factor.family.sample(factor.pick(q), rng)["value"]
            means = means.T if self.missing else means
        elif self.missing:
            found = self.loadings(q)
            assert found.columns is not None
            return Moments(found.means, found.columns.second, found.gram, found)
        else:
            standard = self.standard(q)
            means, covariance = standard["mean"], standard["covariance"]
        means = np.ascontiguousarray(means)
        gram = means @ means.T + d * covariance
        if not self.missing and not of_columns:
            return Moments(means, None, gram)
        squares = np.einsum("kd,ld->dkl", means, means) + covariance
        return Moments(means, _packed_gaussians.packed(squares), gram)

    def known(self, moments: Moments) -> Known | None:
        return None if moments.loadings is None else {"loadings": moments.loadings}

    def kl(
        self, q: Natural, prior: Natural, known: Known | None = None, workers: Workers = SEQUENTIAL
    ) -> float:
        if not self.missing:
            return super().kl(q, prior)
        found = known["loadings"] if known else self.loadings(q)
        return found.kl(1.0 / np.diagonal(prior["precision"]))

    def for_missing_cells(self, q: Natural) -> tuple[Self, Natural, Natural]:
        """Return the model for data with missing cells, its prior, and q as its parameters."""
        model = copy(self)
        model.missing = True
        shape = (self.n_features, self.n_components, self.n_components)
        precision = np.broadcast_to(q["precision"], shape).copy()
        natural_mean = np.ascontiguousarray(q["natural_mean"].T)
        return model, model.prior(None), {"precision": precision, "natural_mean": natural_mean}

    def likelihood(self, moments: Moments, x: float = 1.0) -> Likelihood:
        return Likelihood(moments, self.noise_variance, self.activation_prior, self.sweep_tol)

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        if not self.missing:
            return {"precision": raw["second"], "natural_mean": raw["first"]}
        # The second moments of rows without missing cells are those of every column.
        whole = _packed_gaussians.symmetric(raw["second"], self.n_components)
        second = np.broadcast_to(whole, q["precision"].shape)
        return {"precision": second, "natural_mean": raw["first"].T}

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

        The optimum of each is in closed form. v_k is the mean square of the loadings of a factor,
        π_k the mean of its activations, and ψ_d a mean of the squared errors of the column and of
        its squared loadings over v_k, since both are measured in units of ψ_d.
        """
        if step is None and self.starts_assigned:
            return self._begun(q)
        moves = self.learns or always_on(self.activation_prior)  # which are rotated at least
        if step is None or not (late and moves):
            return self, prior, q
        model, stats, found = copy(self), step.statistics, self.loadings(q)
        A = self._best_change(found, stats, scale, rho)
        squares = found.squares_after(np.linalg.inv(A).T)
        model.loading_variance = self._followed(squares, rho)
        if "noise_variance" in self.learns:
            # A change of the factors and of their loadings leaves the errors as they are.
            errors = stats["squares"] - 2.0 * (found.means * stats["first"]).sum(axis=0)
            errors = errors + found.explained(stats["second"])
            total = scale * errors + (squares / model.loading_variance[:, None]).sum(axis=0)
            factor = total / (scale * stats["cells"] + self.n_components)
            factor = np.maximum(factor, _SMALLEST_FACTOR)
            model.noise_variance = np.maximum(
                self.noise_variance * (1.0 + rho * (factor - 1.0)), self.least_noise
            )
            # The loadings stay as they are in units of the data.
            squares = squares * (self.noise_variance / model.noise_variance)
            model.loading_variance = self._followed(squares, rho)
        if "activation_prior" in self.learns:
            share = stats["active"] / stats["weight"]
            share = np.clip(share, _SMALLEST_PRIOR, 1.0 - _SMALLEST_PRIOR)
            model.activation_prior = self.activation_prior + rho * (share - self.activation_prior)
        new = model.prior(None)
        # q is its prior plus statistics, of which the second are in units of the noise.
        units = np.sqrt(self.noise_variance / model.noise_variance)
        units = units[:, None] if self.missing else units
        precision = new["precision"] + A @ (q["precision"] - prior["precision"]) @ A.T
        changed = q["natural_mean"] @ A.T if self.missing else A @ q["natural_mean"]
        return model, new, {"precision": precision, "natural_mean": units * changed}

    def _followed(self, squares: np.ndarray, rho: float) -> np.ndarray:
        """Return v given E w² of the loadings, (n_components, n_features), if it is learned."""
        if "loading_variance" not in self.learns:
            return self.loading_variance
        least = np.maximum(_SMALLEST_FACTOR * self.loading_variance, _TINY)
        best = np.clip(squares.mean(axis=1), least, self._most_loading_variance)
        return np.asarray(self.loading_variance + rho * (best - self.loading_variance))

    @property
    def _most_loading_variance(self) -> np.ndarray:
        """The largest v that may be learned, (n_components,).

        Where cells are missing, loadings of v explain the mean variance of a column, and no more. A
        factor that an outlier has nearly alone can be small in other rows, and then explains the
        noise of a column by a huge loading if v has followed it; where the outlier lacks this
        column, its cell is filled in with a multiple of all that has been seen. A v that is above
        the limit may stay there, so that the bound does not fall.
        """
        if not self.missing or always_on(self.activation_prior):
            return np.full(self.n_components, np.inf)
        limit = np.mean(self.column_variances / self.noise_variance)
        return np.maximum(self.loading_variance, limit)

    def _begun(self, q: Natural) -> tuple[Self, Natural, Natural]:
        """Return the model with what loadings leave as noise, for a start of Gaussian factors."""
        model = copy(self)
        # The precisions of starts are diagonal.
        precision = np.diagonal(q["precision"], axis1=-2, axis2=-1)
        means = q["natural_mean"].T if self.missing else q["natural_mean"]
        means = means / (precision.T if self.missing else precision[:, None])
        loadings = means * np.sqrt(self.noise_variance)
        if "noise_variance" in self.learns:
            model.noise_variance = noise_left(loadings, self.column_variances)
        means = loadings / np.sqrt(model.noise_variance)
        if self._starts_learn_variances:
            model.loading_variance = np.maximum(np.mean(means**2, axis=1), _TINY)
        prior = model.prior(None)
        changes = [getattr(model, name) / getattr(self, name) - 1.0 for name in self.learns]
        if all(np.abs(change).max() < _NO_CHANGE for change in changes):
            return self, prior, q
        added = precision - np.diagonal(self.prior(None)["precision"])
        own = added + np.diagonal(prior["precision"])
        if self.missing:
            whole = own[:, :, None] * np.eye(self.n_components)
            return model, prior, {"precision": whole, "natural_mean": own * means.T}
        return model, prior, {"precision": np.diag(own), "natural_mean": own[:, None] * means}

    def _best_change(self, found: Loadings, stats: Natural, scale: float, rho: float) -> np.ndarray:
        """Return the matrix A for which the bound is highest if factors become A u, (K, K).

        It multiplies each factor by a number. Gaussian factors are rotated as well, unless their
        loadings have different given priors.
        """
        learned, given = "loading_variance" in self.learns, self.loading_variance
        active, d = scale * stats["active"], self.n_features
        if rho == 1.0 and always_on(self.activation_prior) and (learned or not np.ptp(given)):
            squares = found.gram if learned else found.gram / given[0]
            return transformation(active, scale * stats["whole"], squares, d, learned)
        lengths, slabs = found.squares.sum(axis=1) / given, scale * stats["slabs"]
        best = scales(active, slabs, None if learned else lengths, d)
        if learned:
            # v follows the loadings, whose lengths are then of no concern, up to its limit.
            held = found.squares.mean(axis=1) / best > self._most_loading_variance
            best[held] = scales(active[held], slabs[held], lengths[held], d)
        return np.diag(1.0 + rho * (np.sqrt(best) - 1.0))

    # Operations that only some annealing methods need

    def unit_log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> RowPartition:
        """Return log c(x) of rows in nats.

        c(x) = Σ_z ∫ p(x, z, s | W)^x ds dx over the observed cells does not depend on W.
        """
        x = np.asarray(x, dtype=np.float64)

        def gaussian(log_variance: np.ndarray | float) -> np.ndarray:
            """log ∫ N(y; 0, σ²)^x dy."""
            scaled = np.multiply.outer(1.0 - x, LOG_2PI + np.asarray(log_variance))
            return 0.5 * (scaled - np.log(x).reshape(x.shape + (1,) * np.ndim(log_variance)))

        with np.errstate(divide="ignore"):
            on, off = np.log(self.activation_prior), np.log1p(-self.activation_prior)
        activations = np.logaddexp(np.multiply.outer(x, on), np.multiply.outer(x, off))
        of_factors = activations.sum(axis=-1) + self.n_components * gaussian(0.0)
        return RowPartition(of_factors, gaussian(np.log(self.noise_variance)))

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) of all rows in nats."""
        of_rows = self.unit_log_partition(x, summary, q)
        cells = summary.cells * (summary.weight / summary.seen)
        return np.asarray(summary.weight * of_rows.of_factors + of_rows.of_cells @ cells)

    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Displace the means at random by ``size`` prior standard deviations."""
        normal = rng.standard_normal((self.n_components, self.n_features))
        shift = size * np.sqrt(self.loading_variance)[:, None] * normal
        if self.missing:
            moved = np.einsum("dkl,ld->dk", q["precision"], shift)
        else:
            moved = q["precision"] @ shift
        return {**q, "natural_mean": q["natural_mean"] + moved}

    # Functions of the fitted parameters

    def infer(
        self, units: Rows, q: Natural, moments: Moments | None = None, cools: bool = True
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Infer the factors of rows at T = 1, from high temperatures too if it ``cools``.

        The moments of q are given if they are known.

        Returns
        -------
        factors, activations : ndarray of shape (n_rows, n_components)
            E z s and E z.
        bounds : ndarray of shape (n_rows,)
            E log p(x, z, s | W) + H[q(z, s)] in nats.
        """
        if moments is None:
            moments = self.expectations(q, of_columns=units.patterns is not None)
        likelihood = self.likelihood(moments)
        factors, activations = np.empty((2, units.n_units, self.n_components))
        bounds = np.empty(units.n_units)
        for block in centered_blocks(units):
            found = inferred_anew(likelihood, block, self.n_sweeps(False), cools)
            activations[block.rows] = found.activations.T
            means = found.local[1] if found.factors is None else found.factors
            factors[block.rows] = (found.activations * means).T
            bounds[block.rows] = found.energies + found.entropies
        return factors, activations, bounds

    def contributions(self, units: Rows, q: Natural) -> np.ndarray:
        factors, _, _ = self.infer(units, q)
        loadings = self.loadings(q).means * np.sqrt(self.noise_variance)
        found: np.ndarray = factors**2 * (loadings**2).sum(axis=1)
        return found

    def expected_counts(self, q: Natural, prior: Natural) -> np.ndarray:
        """Return Σ w E u² of each factor over the rows, (n_components,)."""
        second = q["precision"] - prior["precision"]
        return np.diagonal(second.mean(axis=0) if self.missing else second)

    def in_use(self, found: Loadings, q: Natural, prior: Natural) -> np.ndarray:
        """Return the numbers of the factors that contribute to the rows, given moments of q.

        They are active in at least one row, and their loadings are longer than their uncertainty.
        """
        lengths = (found.means**2).sum(axis=1)
        certain = lengths > found.squares.sum(axis=1) - lengths
        return np.flatnonzero(certain & (self.expected_counts(q, prior) > 1))

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        if always_on(self.activation_prior):
            # Loadings of Gaussian factors can be rotated until they are orthogonal.
            return []
        found = self.loadings(q)
        scaled = found.means / np.sqrt(self.loading_variance)[:, None]
        return coinciding(scaled, self.in_use(found, q, prior))
