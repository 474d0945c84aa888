"""Proximity variational inference: steps that keep a statistic of q near its recent value."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln
from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural, mix, settled
from ._base import AUTO, LEARNING_RATE, N_PASSES, Annealing, Context, DampedMixin, State
from .schedules import END, geometric, linear

if TYPE_CHECKING:
    from ..models._base import LocalStep

_LARGEST_PULL = 0.9
# The exponential schedule ends at this share of its start, and then drops to 0.
_LAST_SHARE = 1e-16
# Names of constraints, which local steps of models that are trained by gradients know.
CONSTRAINTS = ("entropy", "kl", "mean_variance", "active_units")


def squared_slope(x: np.ndarray) -> np.ndarray:
    """The derivative of the distance x²."""
    return 2.0 * x


def inverse_huber_slope(x: np.ndarray) -> np.ndarray:
    """The derivative of the distance |x| for |x| ≤ 1, and (x² + 1) / 2 beyond."""
    return np.where(np.abs(x) <= 1.0, np.sign(x), x)


DISTANCES = {"squared": squared_slope, "inverse_huber": inverse_huber_slope}


class ProximityVI(DampedMixin, Annealing):
    """Proximity VI: every step keeps a statistic of q near its recent value (experimental).

    The method adds the term −k d(f_lag, f(q)) to the lower bound, where f is the entropy of q or
    another statistic, f_lag is its value some updates ago, and d is a distance (Altosaar et al.
    [1]_, Eq. 5). k falls to 0.

    In models that are trained by gradients, the optimizer follows the gradient of the bound minus k
    d′(f − f_lag) ∂f/∂q (Eq. 4). Bound and statistic count per unit of weight of the data, that is
    per row. The product is computed in float64, because useful values of k are large. From bad
    starts of sigmoid belief nets, at which plain inference switches all hidden units off, the
    method recovers a part of the bound that a good start reaches.

    In conjugate models f is the entropy H of q and d the square. The natural gradient of the term
    is k d′ (λ − b), with d′ = 2 (H(q_t) − H(q_{t−m})) and b the natural parameters of the flat
    density. A step is therefore

        λ ← (1 − ρ) λ + ρ λ̂ + ρ k d′ (λ − b).

    If the entropy falls, λ is pulled back towards b. k d′ is clipped to ±0.9, and parameters that
    the pull would take out of their domain are updated without it. The gains are small on mixtures,
    but not on topic models. Since k is measured in one over squared nats, a useful value depends on
    the size of the data, and there is no rule for it.

    Parameters
    ----------
    strength : float or "auto", default="auto"
        k at the first pass, for the entropy per squared nat. If it is too large, the fit makes no
        progress.
    lag : int or "auto", default="auto"
        m, the number of updates between the two values that are compared. In models that are
        trained by gradients, the first m updates compare with the first value.
    n_passes : int or "auto", default="auto"
        Number of passes over the data until k = 0.
    learning_rate : float, "decay" or "auto", default="auto"
        The step size ρ in batch mode: a number in (0, 1], or ``"decay"`` for the step size of
        minibatches, (τ + t)^(−κ), with the estimator's ``learning_offset`` τ and ``learning_decay``
        κ. Models that are trained by gradients have step sizes of their own.
    constraint : {"auto", "entropy", "kl", "mean_variance", "active_units"}, default="auto"
        The statistic f: ``"entropy"``, the entropy of q; ``"kl"``, the divergence of q from the
        prior; ``"mean_variance"``, the mean and the mean variance of each latent variable; or
        ``"active_units"``, the variance of the posterior mean of each latent variable among data
        points. All but the entropy need a model that is trained by gradients.
    distance : {"auto", "squared", "inverse_huber"}, default="auto"
        The distance d of two values that differ by x: x²; or the absolute value of x up to 1, and
        (x² + 1) / 2 beyond. The latter also pulls when the statistic moves slowly, and
        needs a model that is trained by gradients.
    average : float, None or "auto", default="auto"
        If it is a number in [0, 1), f_lag is the statistic of an exponential moving average of the
        parameters with this memory, and ``lag`` is not used. Every update then reads its batch
        twice. It needs a model that is trained by gradients.
    schedule : {"auto", "linear", "exponential", "accelerating"}, default="auto"
        How k falls over n passes: linearly, as 10^(−16 t/n), or as k_t = k_{t−1} (1 − t/n)² [1]_.

    References
    ----------
    .. [1] Altosaar, Ranganath, Blei (2018). Proximity variational inference. AISTATS.

    Examples
    --------
    >>> from sklearn_anneal.annealing import ProximityVI
    >>> ProximityVI(strength=0.001)
    ProximityVI(strength=0.001)
    """

    _parameter_constraints: dict = {
        "strength": [Interval(Real, 0, None, closed="left"), AUTO],
        "lag": [Interval(Integral, 1, None, closed="left"), AUTO],
        "n_passes": N_PASSES,
        "learning_rate": LEARNING_RATE,
        "constraint": [StrOptions({"auto", *CONSTRAINTS})],
        "distance": [StrOptions({"auto", *DISTANCES})],
        "average": [Interval(Real, 0, 1, closed="left"), None, AUTO],
        "schedule": [StrOptions({"auto", "linear", "exponential", "accelerating"})],
    }
    reads_entropy = True
    follows_gradients = True
    reads_energy = True
    _defaults = {
        "strength": 0.003,
        "lag": 5,
        "n_passes": 50,
        "learning_rate": 0.5,
        "constraint": "entropy",
        "distance": "squared",
        "average": None,
        "schedule": "linear",
    }

    def __init__(
        self,
        strength="auto",
        lag="auto",
        n_passes="auto",
        learning_rate="auto",
        constraint="auto",
        distance="auto",
        average="auto",
        schedule="auto",
    ):
        self.strength = strength
        self.lag = lag
        self.n_passes = n_passes
        self.learning_rate = learning_rate
        self.constraint = constraint
        self.distance = distance
        self.average = average
        self.schedule = schedule

    @property
    def needs(self) -> tuple[str, ...]:
        closed_form = (
            self.constraint in ("auto", "entropy")
            and self.distance in ("auto", "squared")
            and self.average in ("auto", None)
        )
        return () if closed_form else ("gradient",)

    def magnitude(self, ctx: Context) -> float:
        """k of the coming update."""
        start, u = float(self.strength), self.progress(ctx.state)
        if self.schedule == "linear" or start == 0 or u >= END:
            return linear(start, 0.0, u)
        if self.schedule == "exponential":
            return geometric(start, start * _LAST_SHARE, u)
        # The product of (1 − s/n)² for s = 1, …, t.
        n, t = self.schedule_length(), int(u * self.schedule_length())
        return start * float(np.exp(2.0 * (gammaln(n) - gammaln(n - t) - t * np.log(n))))

    # Models that are trained by gradients

    def visit_options(self, ctx: Context) -> dict[str, Any]:
        return {"constraint": self.constraint} if ctx.model.update_rule == "gradient" else {}

    def ascent(
        self, ctx: Context, gradient: Natural, step: LocalStep, look: Callable[[Natural], LocalStep]
    ) -> Natural:
        now, lagged = step.constraints, self._lagged(ctx, step, look)
        k, slope = self.magnitude(ctx), DISTANCES[self.distance]
        if k == 0.0:
            return gradient
        pulled = {key: value.astype(np.float64) for key, value in gradient.items()}
        for part, before in zip(now, lagged, strict=True):
            for key, direction in part.gradient.items():
                pull = k * slope(np.asarray(part.value[key] - before[key], dtype=np.float64))
                # Part j of the statistic belongs to the entries j along the first axis.
                pull = pull.reshape(pull.shape + (1,) * (np.ndim(direction) - pull.ndim))
                pulled[key] -= pull * direction
        return pulled

    def _lagged(
        self, ctx: Context, step: LocalStep, look: Callable[[Natural], LocalStep]
    ) -> tuple[Natural, ...]:
        """The values with which those of the coming update are compared."""
        if self.average is not None:
            return _values(look(ctx.state.get("average", ctx.q)))
        kept = ctx.state["lagged"]
        return kept[0] if kept else _values(step)

    def _advance_gradient(self, ctx: Context, report: LocalStep) -> State:
        if self.average is None:
            return {**ctx.state, "lagged": (*ctx.state["lagged"], _values(report))[-self.lag :]}
        before, memory = ctx.state.get("average", ctx.q_start), float(self.average)
        average = {
            key: memory * before[key] + (1 - memory) * np.asarray(value, dtype=np.float64)
            for key, value in ctx.q.items()
        }
        return {**ctx.state, "average": average}

    # Conjugate models

    def initial_state(self, ctx: Context) -> State:
        return {"lagged" if ctx.model.update_rule == "gradient" else "entropies": ()}

    def entropy(self, ctx: Context) -> float:
        """The entropy of q, in nats.

        It is that of q(β) at the beginning of the update, plus that of q(z) as the batch of the
        update estimates it.
        """
        return ctx.model.entropy(ctx.q_start, ctx.known) + ctx.scale * ctx.report.entropy

    def pull(self, ctx: Context, entropy: float) -> float:
        """k d′ of the coming step, clipped; 0 until there are enough entropies to compare."""
        lagged = ctx.state["entropies"]
        if len(lagged) < self.lag:
            return 0.0
        k = self.magnitude(ctx)
        return float(np.clip(2 * k * (entropy - lagged[0]), -_LARGEST_PULL, _LARGEST_PULL))

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        # The entropy at the beginning of the update is needed after it.
        new = settled(mix(q, target, rho))
        pull = self.pull(ctx, self.entropy(ctx))
        if pull == 0:
            return new
        factors = ctx.model.factors()
        base = factors.base(ctx.q)
        pulled = {key: new[key] + rho * pull * (q[key] - base[key]) for key in new}
        return factors.replace_invalid(pulled, new)

    def advance(self, ctx: Context, report: LocalStep) -> State:
        if ctx.model.update_rule == "gradient":
            return self._advance_gradient(ctx, report)
        kept = (*ctx.state["entropies"], self.entropy(ctx))[-self.lag :]
        return {**ctx.state, "entropies": kept}


def _values(step: LocalStep) -> tuple[Natural, ...]:
    """The values of the statistics in a local step."""
    return tuple(part.value for part in step.constraints)
