"""The Bernoulli factor model of Altosaar et al. (2018), trained by gradients from given starts.

    x_n ~ N(Σ_k z_nk μ_k, I),  z_nk ~ Bernoulli(p_k),  μ_k ~ N(0, I)

The model has no slab, so that it is no setting of ``AnnealedSpikeSlabFactorAnalysis``. By
coordinate ascent it is ``AnnealedFactorialMixture``. This module has the paper's other way: exact
gradients by the logits of q(z), the means and log standard deviations of q(μ), and the logits of p,
all of which one optimizer moves at once. The loop, the optimizer and proximity are those of the
package.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from sklearn_anneal.annealing import Annealing
from sklearn_anneal.annealing._base import Context
from sklearn_anneal.families import Tempering
from sklearn_anneal.inference import gradient, visits
from sklearn_anneal.inference.gradient import RMSProp
from sklearn_anneal.inference.parallel import SEQUENTIAL
from sklearn_anneal.inference.units import Rows
from sklearn_anneal.models._base import Constraint, GradientModel, LocalStep, Visit

LOGITS, MEANS, LOG_SDS, PRIOR_LOGITS = "logits", "means", "log_sds", "prior_logits"
# The paper's optimizer, learning rate and first p.
_RATE, _FIRST_PRIOR = 0.5, 0.01
_LOG_2PI = float(np.log(2.0 * np.pi))


class BernoulliFactors(GradientModel):
    """The model; its parameters are those of the module's docstring, rows in the last axis."""

    keys = (LOGITS, MEANS, LOG_SDS, PRIOR_LOGITS)
    optimizer = RMSProp(_RATE)

    def capabilities(self) -> dict[str, str | None]:
        return {}

    def summary(self, units: Any) -> SimpleNamespace:
        return SimpleNamespace(weight=units.total_weight)

    def prior(self, summary: Any) -> dict:
        return {}

    def start(self, means: np.ndarray, n_rows: int) -> dict[str, np.ndarray]:
        """Return q with given means of μ, and all else as the paper starts it."""
        first = float(logit(_FIRST_PRIOR))
        k = len(means)
        return {
            LOGITS: np.zeros((k, n_rows)),
            MEANS: means,
            LOG_SDS: np.zeros(means.shape),
            PRIOR_LOGITS: np.full(k, first),
        }

    def init(self, units: Any, summary: Any, prior: Any, random_state: Any) -> dict:
        raise NotImplementedError("Starts are given.")

    random_natural = init

    def kl(self, q: dict, prior: Any, known: Any = None, workers: Any = None) -> float:
        squares = q[MEANS] ** 2 + np.exp(2.0 * q[LOG_SDS])
        return float(0.5 * (squares - 1.0 - 2.0 * q[LOG_SDS]).sum())

    def kl_gradient(self, q: dict, prior: Any) -> dict:
        return {MEANS: q[MEANS], LOG_SDS: np.exp(2.0 * q[LOG_SDS]) - 1.0}

    def visit(self, q: dict, units: Any, *args: Any, constraint: Any = None, **how: Any) -> Visit:
        return _Visit(self, q, Tempering())


@dataclass(frozen=True)
class _Visit(Visit):
    """A visit to all rows: the gradient of their bound, and the entropy of q."""

    def step(self, units: Any, noise: Any = None, local: Any = None) -> LocalStep:
        q, X = self.expected, units.X
        a, m, log_sds, b = (q[key] for key in BernoulliFactors.keys)
        nu, variances, b = expit(a), np.exp(2.0 * log_sds), b[:, None]
        slope = nu * (1.0 - nu)
        residuals = X - nu.T @ m
        squares = (m**2).sum(axis=1)[:, None]
        spread = variances.sum(axis=1)[:, None]
        energy = -0.5 * (X.size * _LOG_2PI + (residuals**2).sum())
        energy -= 0.5 * (slope * squares + nu * spread).sum()
        energy -= (nu * np.logaddexp(0.0, -b) + (1.0 - nu) * np.logaddexp(0.0, b)).sum()
        entropy = (nu * np.logaddexp(0.0, -a) + (1.0 - nu) * np.logaddexp(0.0, a)).sum()
        of_nu = m @ residuals.T + nu * squares - 0.5 * (squares + spread) - (a - b)
        found = {
            LOGITS: slope * of_nu,
            MEANS: nu @ residuals - m * slope.sum(axis=1)[:, None],
            LOG_SDS: -variances * nu.sum(axis=1)[:, None],
            PRIOR_LOGITS: (nu - expit(b)).sum(axis=1),
        }
        total = np.asarray(entropy + (log_sds + 0.5 * (_LOG_2PI + 1.0)).sum())
        of_entropy = {LOGITS: -a * slope, LOG_SDS: np.ones(log_sds.shape)}
        constraint = Constraint(dict.fromkeys(of_entropy, total), of_entropy)
        return LocalStep(found, float(energy), float(entropy), constraints=(constraint,))


def lower_bound(q: dict[str, np.ndarray], X: np.ndarray) -> float:
    """The lower bound, in nats."""
    model = BernoulliFactors()
    return model.visit(q, None).step(Rows(X)).bound - model.kl(q, None)


def climb(
    X: np.ndarray, means: np.ndarray, method: Annealing, n_steps: int
) -> dict[str, np.ndarray]:
    """The parameters after steps along the gradient, from given means of μ."""
    model, units = BernoulliFactors(), Rows(X)
    q, summary = model.start(means, len(X)), model.summary(units)
    ctx = Context(model, {}, summary, np.random.default_rng(0), q)
    ctx.state = {**ctx.state, **method.initial_state(ctx)}
    for _ in range(n_steps):
        visited = visits.visit(ctx, method, units, SEQUENTIAL, keep=False)
        gradient.update(
            ctx, method, units, visited, None, SEQUENTIAL,  # type: ignore[arg-type]
            minibatch=False, passes=1.0,
        )  # fmt: skip
    return ctx.q
