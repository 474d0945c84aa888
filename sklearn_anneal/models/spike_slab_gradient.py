"""Spike-and-slab factor analysis trained by gradients.

The model is that of ``spike_slab_factor_analysis.py``. q is a product of all its variables: the
loadings have independent Gaussians, and z, s of a row have q(z) q(s | z = 1), with the prior of s
where z = 0. All parameters are free of constraints. Their gradients are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import expit, logit

from ..data.units import Centered, Rows
from ..families import Natural, Tempering
from ..parallel.workers import SEQUENTIAL, Workers
from ._base import (
    LOG_2PI,
    Block,
    Constraint,
    GradientModel,
    Known,
    LocalStep,
    Optimizer,
    Recommended,
    Visit,
)
from ._binary_codes import MANY_SWEEPS, centered_blocks
from ._componentwise import Componentwise, Given
from ._factor_rows import kernels
from ._packed_gaussians import packed
from .spike_slab_factor_analysis import SpikeSlabFactorAnalysis, Summary

# Parameters of rows, of shape (n_components, n_rows), and of loadings, (n_components, n_features).
LOGITS, SLAB_MEANS, SLAB_LOG_SDS = ROWS = ("logits", "slab_means", "slab_log_sds")
MEANS, LOG_SDS = LOADINGS = ("loading_means", "loading_log_sds")
# Learned hyperparameters, by their names in the estimator.
HYPER = {
    "noise_variance": "log_noise",
    "loading_variance": "log_loading_variance",
    "activation_prior": "prior_logits",
}
# The loadings start with standard deviations of this share of those of their prior.
_SHARE_OF_START = 0.1


class WholeRows(Rows):
    """Rows that are not cut into chunks, because they have parameters that the loop holds."""

    def take(self, index: np.ndarray | slice) -> WholeRows:
        weights = None if self.weights is None else self.weights[index]
        patterns = None if self.patterns is None else self.patterns[index]
        return WholeRows(self.X[index], weights, self.center, patterns)

    def centered(self, summary: Centered) -> WholeRows:
        return WholeRows(self.X, self.weights, summary.center, self.patterns)

    def chunks(self) -> list[slice]:
        return [slice(0, self.n_units)]


class Hyper(NamedTuple):
    """ψ (n_features,), v (n_components,) and the logits of π (n_components,)."""

    noise: np.ndarray
    loading: np.ndarray
    logits: np.ndarray


class SpikeSlabByGradients(Componentwise[Summary], GradientModel[Rows, Summary]):
    """Spike-and-slab factor analysis whose parameters follow gradients of the bound.

    In batch mode the logits of q(z), and the means and log standard deviations of q(s | z = 1), of
    all rows are parameters like those of the loadings (Altosaar et al., 2018, section 4). In
    minibatches and streams rows are inferred by sweeps at every visit. The bound is then at its
    maximum over them, so that its gradient by the other parameters is the same.

    Parameters
    ----------
    base : SpikeSlabFactorAnalysis
        The model with its hyperparameters.
    optimizer : Optimizer

    Attributes
    ----------
    holds_rows : bool
        Whether q has the parameters of rows.
    """

    recommended: ClassVar[Recommended] = {
        "deterministic": {"initial_temperature": 10.0, "schedule": "geometric", "n_passes": 100},
        "proximity": {"strength": 1e2, "lag": 5, "n_passes": 100, "schedule": "accelerating"},
        "svi_plus": {"n_passes": 50},
        "tempering": {"n_passes": 100},
    }

    def __init__(self, base: SpikeSlabFactorAnalysis, optimizer: Optimizer):
        self.base = base
        self.optimizer = optimizer
        self.n_components = base.n_components
        self.holds_rows = False

    @property
    def keys(self) -> tuple[str, ...]:  # type: ignore[override]
        learned = (key for name, key in HYPER.items() if name in self.base.learns)
        return (*(ROWS if self.holds_rows else ()), *LOADINGS, *learned)

    def capabilities(self) -> dict[str, str | None]:
        of_rows = "its gradients have no temperatures of single rows; solver='coordinate' has them"
        return {
            "assignments": "its gradients temper the likelihood and not the assignments",
            "assignment_entropy": "its activations do not exclude each other; give a number",
            "draws": "the gradients of its bound are exact, and need no draws",
            "log_partition": None,
            "unit_log_partition": of_rows,
            "locally_tempered_step": of_rows,
        }

    def operations(self, units: Rows) -> float:
        return 2.0 * self.base.operations(units)

    # Data, prior and starts

    def summary(self, units: Rows) -> Summary:
        return self.base.summary(units)

    def resolved(self, summary: Summary, hold_units: bool = False) -> Self:
        model = copy(self)
        model.base, model.holds_rows = self.base.resolved(summary), hold_units
        return model

    def without_rows(self) -> SpikeSlabByGradients:
        """Return the model that infers rows by sweeps."""
        model = copy(self)
        model.holds_rows = False
        return model

    def prior(self, summary: Summary) -> Natural:
        return {}

    def init(
        self,
        units: Rows,
        summary: Summary,
        prior: Natural,
        random_state: np.random.RandomState,
    ) -> Natural:
        q = self._start(random_state)
        return q | self._start_of_rows(units.n_units) if self.holds_rows else q

    def _start(self, random_state: np.random.RandomState) -> Natural:
        """Return random loadings, and hyperparameters as they are given, without rows."""
        base, k = self.base, self.n_components
        scale = np.sqrt(base.loading_variance)[:, None]
        shape = (k, base.n_features)
        q = {
            MEANS: scale * random_state.standard_normal(shape),
            LOG_SDS: np.log(_SHARE_OF_START * scale) * np.ones(shape),
        }
        starts = {
            "noise_variance": np.log(base.noise_variance),
            "loading_variance": np.log(base.loading_variance),
            "activation_prior": logit(base.activation_prior),
        }
        return q | {HYPER[name]: starts[name] for name in starts if name in base.learns}

    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: Summary, prior: Natural
    ) -> Natural:
        """Return the usual start with the given ``components``, in units of the data."""
        return usual() | {MEANS: given["components"] / np.sqrt(self.base.noise_variance)}

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        return self.base.exchangeable(prior, order)

    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        """Return the model, its prior and q, or moments of its gradients, in another order."""
        model = copy(self)
        model.base = self.base.with_order(order)
        of_columns = HYPER["noise_variance"]
        moved = {key: x if key == of_columns else x[order] for key, x in q.items()}
        return model, prior, moved

    def _start_of_rows(self, n: int) -> Natural:
        """Return q(z, s) of rows like their prior."""
        shape = (self.n_components, n)
        logits = logit(self.base.activation_prior)[:, None] * np.ones(shape)
        return {LOGITS: logits, SLAB_MEANS: np.zeros(shape), SLAB_LOG_SDS: np.zeros(shape)}

    def random_natural(
        self, summary: Summary, prior: Natural, rng: np.random.Generator, block: Block | None = None
    ) -> Natural:
        seed = int(rng.integers(2**31))
        return self._start(np.random.RandomState(seed))

    # Inference

    def hyper(self, q: Natural) -> Hyper:
        """Return the hyperparameters: those in q, and the given ones."""
        base = self.base
        noise, loading = base.noise_variance, base.loading_variance
        logits = logit(base.activation_prior)
        if "log_noise" in q:
            noise = base.least_noise + np.exp(q["log_noise"])
        if "log_loading_variance" in q:
            loading = np.exp(q["log_loading_variance"])
        return Hyper(noise, loading, q.get("prior_logits", logits))

    def kl(
        self, q: Natural, prior: Natural, known: Known | None = None, workers: Workers = SEQUENTIAL
    ) -> float:
        """Return KL(q(W) ‖ p(W)) in nats."""
        loading = self.hyper(q).loading[:, None]
        squares = (q[MEANS] ** 2 + np.exp(2.0 * q[LOG_SDS])) / loading
        return float(0.5 * (squares - 1.0 - 2.0 * q[LOG_SDS] + np.log(loading)).sum())

    def kl_gradient(self, q: Natural, prior: Natural) -> Natural:
        loading = self.hyper(q).loading[:, None]
        variances = np.exp(2.0 * q[LOG_SDS])
        gradient = {MEANS: q[MEANS] / loading, LOG_SDS: variances / loading - 1.0}
        if "log_loading_variance" in q:
            squares = (q[MEANS] ** 2 + variances) / loading
            gradient["log_loading_variance"] = 0.5 * (1.0 - squares).sum(axis=1)
        return gradient

    def log_partition(self, x: np.ndarray, summary: Summary, q: Natural) -> np.ndarray:
        """Return log C(x) of the tempered likelihood Π N(x_nd; f_nd, ψ_d)^x of all rows, in nats.

        C is the integral over the data. It does not depend on the factors and on the loadings.
        """
        cells = summary.cells * (summary.weight / summary.seen)
        volume = float(cells @ (LOG_2PI + np.log(self.hyper(q).noise)))
        return 0.5 * ((1.0 - x) * volume - np.log(x) * cells.sum())

    def visit(
        self,
        q: Natural,
        units: Rows,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        separate_noise: bool = False,
        constraint: str | None = None,
        **how: Any,
    ) -> GradientVisit:
        if constraint == "active_units" and LOGITS not in q:
            raise ValueError(
                'ProximityVI(constraint="active_units") needs parameters of single rows, which '
                "this model has in batch mode only. Use batch_size=None, or another constraint."
            )
        return GradientVisit(self, q, t, separate_noise=separate_noise, constraint=constraint)

    # Functions of the fitted parameters

    def coordinate(self, q: Natural) -> tuple[SpikeSlabFactorAnalysis, Natural, Natural]:
        """Return the model of coordinate ascent, its prior and its q, for all predictions."""
        hyper, model = self.hyper(q), copy(self.base)
        model.missing, model.learns = True, ()
        model.noise_variance, model.loading_variance = hyper.noise, hyper.loading
        model.activation_prior = expit(hyper.logits)
        precision = np.exp(-2.0 * q[LOG_SDS])
        natural = {
            "precision": precision.T[:, :, None] * np.eye(self.n_components),
            "natural_mean": np.ascontiguousarray((precision * q[MEANS]).T),
        }
        return model, model.prior(None), natural

    def coinciding(self, q: Natural, summary: Summary, prior: Natural) -> list[tuple[int, int]]:
        model, prior, natural = self.coordinate(q)
        return model.coinciding(natural, summary, prior)


@dataclass(frozen=True)
class GradientVisit(Visit[Rows]):
    """A visit at parameters ``expected``.

    Parameters
    ----------
    constraint : str or None
        The statistic of q that local steps return with its gradient.
    """

    constraint: str | None = None

    def step(self, units: Rows, noise: np.ndarray | None = None, local: Any = None) -> LocalStep:
        model, q = self.model, self.expected
        x, hyper = float(self.t.local), model.hyper(q)
        weights, noisy = self._weights(units, noise)
        means, variances = q[MEANS], np.exp(2.0 * q[LOG_SDS])
        gradient = {key: np.zeros(value.shape) for key, value in q.items()}
        held = LOGITS in q
        found: list[Natural] = []
        bound, entropy, likelihood = 0.0, 0.0, 0.0
        for block in centered_blocks(units):
            w, own = noisy[block.rows], weights[block.rows]
            y = block.X / np.sqrt(hyper.noise)
            cells = np.ones(y.shape) if block.observed is None else block.observed
            if held:
                rows = {key: q[key][:, block.rows] for key in ROWS}
            else:
                rows = self._swept(y, cells, means, variances, hyper, x)
            found.append(rows)
            a, m, log_sd = (rows[key] for key in ROWS)
            nu, v = expit(a), np.exp(2.0 * log_sd)
            u, squares = nu * m, nu * (m**2 + v)
            second = (means**2 + variances) @ cells.T
            mean_squares = means**2 @ cells.T
            residuals = (y - u.T @ means) * cells
            of_u = means @ residuals.T + u * mean_squares
            # The bound of the rows, with all constants.
            log_noise = cells @ (LOG_2PI + np.log(hyper.noise))
            fit = -0.5 * (log_noise + (residuals**2).sum(axis=1))
            fit -= 0.5 * (squares * second - u**2 * mean_squares).sum(axis=0)
            log_on, log_off = -np.logaddexp(0.0, -hyper.logits), -np.logaddexp(0.0, hyper.logits)
            spikes = nu * log_on[:, None] + (1.0 - nu) * log_off[:, None]
            of_z = nu * np.logaddexp(0.0, -a) + (1.0 - nu) * np.logaddexp(0.0, a)
            slabs = 0.5 * nu * (m**2 + v - 1.0 - 2.0 * log_sd)
            likelihood += float(own @ fit)
            bound += float(own @ (fit + (spikes + of_z - slabs).sum(axis=0)))
            h = of_z + 0.5 * (LOG_2PI + 1.0) + nu * log_sd
            entropy += float(own @ h.sum(axis=0))
            # Its gradients, in which the likelihood is tempered.
            gradient[MEANS] += x * ((u * w) @ residuals - means * (((squares - u**2) * w) @ cells))
            gradient[LOG_SDS] -= x * variances * ((squares * w) @ cells)
            if "log_noise" in q:
                slope = 0.5 * x * (w @ (residuals * y - cells))
                gradient["log_noise"] += slope * np.exp(q["log_noise"]) / hyper.noise
            if "prior_logits" in q:
                gradient["prior_logits"] += (nu - expit(hyper.logits)[:, None]) @ w
            if held:
                part = block.rows
                slope = x * (m * of_u - 0.5 * second * (m**2 + v))
                slope -= a - hyper.logits[:, None] + 0.5 * (m**2 + v - 1.0 - 2.0 * log_sd)
                gradient[LOGITS][:, part] = w * nu * (1.0 - nu) * slope
                gradient[SLAB_MEANS][:, part] = w * nu * (x * (of_u - m * second) - m)
                gradient[SLAB_LOG_SDS][:, part] = -w * nu * (x * v * second + v - 1.0)
        constraints: tuple[Constraint, ...] = ()
        if self.constraint is not None:
            rows = {key: np.concatenate([one[key] for one in found], axis=1) for key in ROWS}
            constraints = self._constraints(rows, weights, hyper, entropy, held)
        return LocalStep(
            gradient, bound - entropy, entropy, constraints=constraints, likelihood=likelihood
        )

    def _weights(self, units: Rows, noise: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of the rows, without random factors and with them."""
        weights = np.ones(units.n_units) if units.weights is None else units.weights
        if noise is None:
            return weights, weights
        return weights, weights * (1.0 + noise if self.separate_noise else noise)

    def _swept(
        self,
        y: np.ndarray,
        cells: np.ndarray,
        means: np.ndarray,
        variances: np.ndarray,
        hyper: Hyper,
        x: float,
    ) -> Natural:
        """Return q(z, s) of some rows at its optimum, by sweeps of coordinate ascent."""
        k, n = len(means), len(y)
        squares = np.einsum("kd,ld->dkl", means, means).reshape(-1, k * k)
        squares[:, :: k + 1] += variances.T
        grams = x * (cells @ squares)
        lower = packed(grams.reshape(n, k, k))
        logits, found, activations = np.zeros((k, n)), np.zeros((k, n)), np.empty((k, n))
        unused = np.empty((2, n))
        base = self.model.base
        n_sweeps = MANY_SWEEPS if base.max_sweeps is None else base.max_sweeps
        kernels().mean_field_of_rows(
            x * (means @ y.T), lower, hyper.logits, np.ones(1), 1, n_sweeps, base.sweep_tol,
            logits, found, activations, *unused,
        )  # fmt: skip
        log_sds = -0.5 * np.log1p(grams[:, :: k + 1].T)
        return {LOGITS: logits, SLAB_MEANS: found, SLAB_LOG_SDS: log_sds}

    def _constraints(
        self, rows: Natural, weights: np.ndarray, hyper: Hyper, entropy: float, held: bool
    ) -> tuple[Constraint, ...]:
        """Return the statistics of q; those of rows have gradients only if q holds them."""
        q, w = self.expected, weights
        a, m, log_sd = (rows[key] for key in ROWS)
        nu, v = expit(a), np.exp(2.0 * log_sd)
        sds = np.exp(q[LOG_SDS])
        slope = nu * (1.0 - nu)
        if self.constraint == "entropy":
            total = entropy + float((q[LOG_SDS] + 0.5 * (LOG_2PI + 1.0)).sum())
            gradient = {LOG_SDS: np.ones(sds.shape)}
            of_rows = {LOGITS: w * slope * (log_sd - a), SLAB_LOG_SDS: w * nu}
            return (_one_number(total, gradient | (of_rows if held else {})),)
        if self.constraint == "kl":
            prior = hyper.logits[:, None]
            log_odds = np.logaddexp(0.0, prior) - np.logaddexp(0.0, a) + nu * (a - prior)
            slabs = 0.5 * (m**2 + v - 1.0 - 2.0 * log_sd)
            total = float(((log_odds + nu * slabs) @ w).sum())
            gradient = self.model.kl_gradient(q, {})
            gradient = {key: gradient[key] for key in LOADINGS}
            of_rows = {
                LOGITS: w * slope * (a - prior + slabs),
                SLAB_MEANS: w * nu * m,
                SLAB_LOG_SDS: w * nu * (v - 1.0),
            }
            total += self.model.kl(q, {})
            return (_one_number(total, gradient | (of_rows if held else {})),)
        if self.constraint == "mean_variance":
            # One number for each loading, and for each factor of each row.
            values = {MEANS: q[MEANS], LOG_SDS: sds**2}
            slopes = {MEANS: np.ones(sds.shape), LOG_SDS: 2.0 * sds**2}
            if held:
                values |= {SLAB_MEANS: w * m, SLAB_LOG_SDS: w * v}
                slopes |= {SLAB_MEANS: w * np.ones(m.shape), SLAB_LOG_SDS: 2.0 * w * v}
            return (Constraint(values, slopes),)
        # The variance of the mean of each factor among rows.
        u = nu * m
        away = u - (u @ w / w.sum())[:, None]
        variances = away**2 @ w
        of_u = 2.0 * w * away
        values = dict.fromkeys((LOGITS, SLAB_MEANS), variances)
        return (Constraint(values, {LOGITS: of_u * slope * m, SLAB_MEANS: of_u * nu}),)


def _one_number(value: float, gradient: Natural) -> Constraint:
    return Constraint(dict.fromkeys(gradient, np.asarray(value)), gradient)


def coordinate(ctx: Any) -> tuple[SpikeSlabFactorAnalysis, Natural, Natural]:
    """Return the model of coordinate ascent, its prior and its q, of either solver."""
    if isinstance(ctx.model, SpikeSlabByGradients):
        return ctx.model.coordinate(ctx.q)
    return ctx.model, ctx.prior, ctx.q


def without_rows(ctx: Any) -> Any:
    """Return a context without the parameters of rows, and without moments and memories of them."""
    state = {key: value for key, value in ctx.state.items() if key != "average"}
    if "lagged" in state:
        state["lagged"] = ()
    if "optimizer" in state:
        moments = {
            name: {key: value for key, value in parts.items() if key not in ROWS}
            for name, parts in state["optimizer"]["moments"].items()
        }
        state["optimizer"] = {**state["optimizer"], "moments": moments}
    q = {key: value for key, value in ctx.q.items() if key not in ROWS}
    return replace(ctx, model=ctx.model.without_rows(), q=q, state=state)
