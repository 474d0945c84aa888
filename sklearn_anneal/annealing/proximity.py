"""Proximity variational inference: steps that keep the entropy of q near its recent value."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval

from ..families import Natural, mix
from ._base import AUTO, LEARNING_RATE, N_PASSES, Annealing, Context, DampedMixin, State
from .schedules import linear

_LARGEST_PULL = 0.9


class ProximityVI(DampedMixin, Annealing):
    """Proximity VI with the entropy constraint (experimental).

    The method adds the term −k (H(q) − H_lag)² to the lower bound, where H_lag is the entropy of
    q some updates ago (Altosaar et al. [1]_). For conjugate models the natural gradient of this
    term is k d′ (λ − b), with d′ = 2 (H(q_t) − H(q_{t−m})) and b the natural parameters of the
    flat density. A step is therefore

        λ ← (1 − ρ) λ + ρ λ̂ + ρ k d′ (λ − b).

    If the entropy falls, λ is pulled back towards b. k falls linearly to 0, and k d′ is clipped
    to ±0.9. Parameters that the pull would take out of their domain are updated without it. The
    gains are small on mixtures, but not on topic models. Since k is measured in one over squared
    nats, a useful value depends on the size of the data, and no rule for it is known.

    Parameters
    ----------
    strength : float or "auto", default="auto"
        k at the first pass, per squared nat. If it is too large, the fit makes no progress.
    lag : int or "auto", default="auto"
        m, the number of updates between the two entropies that are compared.
    n_passes : int or "auto", default="auto"
        Number of passes over the data until k = 0.
    learning_rate : float, "decay" or "auto", default="auto"
        The step size ρ in batch mode: a number in (0, 1], or ``"decay"`` for the step size of
        minibatches, (τ + t)^(−κ), with the estimator's ``learning_offset`` τ and ``learning_decay``
        κ.

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
    }
    reads_entropy = True
    _defaults = {"strength": 0.003, "lag": 5, "n_passes": 50, "learning_rate": 0.5}

    def __init__(self, strength="auto", lag="auto", n_passes="auto", learning_rate="auto"):
        self.strength = strength
        self.lag = lag
        self.n_passes = n_passes
        self.learning_rate = learning_rate

    def initial_state(self, ctx: Context) -> State:
        return {"entropies": ()}

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
        k = linear(float(self.strength), 0.0, self.progress(ctx.state))
        return float(np.clip(2 * k * (entropy - lagged[0]), -_LARGEST_PULL, _LARGEST_PULL))

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        new = mix(q, target, rho)
        pull = self.pull(ctx, self.entropy(ctx))
        if pull == 0:
            return new
        factors = ctx.model.factors()
        base = factors.base(ctx.q)
        pulled = {key: new[key] + rho * pull * (q[key] - base[key]) for key in new}
        return factors.replace_invalid(pulled, new)

    def advance(self, ctx: Context, report: Any) -> State:
        kept = (*ctx.state["entropies"], self.entropy(ctx))[-self.lag :]
        return {**ctx.state, "entropies": kept}
