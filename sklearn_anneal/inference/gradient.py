"""The update of models that are trained by gradients: a noisy gradient of the bound, one step up.

A model takes part if it is a :class:`~sklearn_anneal.models._base.GradientModel`. It then has

- parameters ``q``: arrays without constraints (logits, logarithms of scales, weights), so that
  every step is valid;
- an ``optimizer``: one of the values below;
- visits whose local steps have, as ``statistics``, unbiased gradients: Σ w ∂ℓ(x_n)/∂q over the data
  points of a chunk, with the keys and shapes of ``q``, where Σ w ℓ(x_n) is the bound of the step
  (:attr:`LocalStep.bound`). Random weights and temperatures act there as in conjugate models. If
  the visit was prepared with ``constraint="entropy"`` or another name, the step also has a
  :class:`~sklearn_anneal.models._base.Constraint`;
- ``kl(q, prior)`` and ``kl_gradient(q, prior)`` of parameters that have a distribution; both are 0
  for parameters that are only points;
- ``centered_gradient`` and ``after_step``, by which steps can be taken in a linear function of the
  parameters, and ``decay``, by which weights of that function shrink at each step.

An optimizer with an ``averaging`` also keeps a mean of the parameters of the last steps, which is
what a fit returns: noisy gradients leave the parameters of single steps around the optimum, and
their mean is nearer to it. Passes go on from the last parameters themselves.

The loop and the annealing methods then work as for other models: passes, minibatches, streams,
temperatures, checkpoints, restarts and callbacks are the same code. The moments of the optimizer
are in ``ctx.state``. They are replaced and never changed in place, so that a fit can go on from any
copy of its context. Local draws are seeded in ``Visit.start``, which is called once for every chunk
in the order of the chunks, so that results do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..families import Natural
from ..models._base import Decay, LocalStep, Optimizer, compiled
from ..parallel.workers import Workers
from . import visits
from .conjugate import LearningRates
from .visits import Visited


@dataclass(frozen=True)
class _Optimizer:
    """Base class of the optimizers.

    Parameters
    ----------
    learning_rate : float
        Size of the first step, positive.
    decay : float
        δ ≥ 0. Step t has the size ``learning_rate`` / (1 + δ (t − 1)).
    averaging : float or None
        γ ≥ 0. A fit returns a mean of the parameters, which step t enters with the share
        (γ + 1) / (t + γ) (Shamir and Zhang, 2013, section 4). This is about a mean over the last
        t / (γ + 1) steps. None: a fit returns the last parameters.
    factors : dict of float
        Factors of the sizes of the steps of parameters, by their keys; 1 for those that are absent.
    constrained : float
        Factor of the sizes of the steps that follow a constraint, whose gradient is many times that
        of the data and mostly noise.
    """

    learning_rate: float
    decay: float = 0.0
    averaging: float | None = None
    factors: dict[str, float] = field(default_factory=dict)
    constrained: float = 1.0

    @property
    def gain(self) -> float | None:
        """The sum of the steps that follow a gradient of 1, for a step size of 1.

        It is None if steps are divided by the size of gradients.
        """
        return None

    def rate(self, n_steps: int) -> float:
        """Return the size of step number ``n_steps``."""
        return self.learning_rate / (1.0 + self.decay * (n_steps - 1))

    def _moved(
        self, q: Natural, change: Natural, n_steps: int, decay: Decay | None, constrained: bool
    ) -> Natural:
        """Return the parameters after a change, in the floating-point type of q."""
        size = self.constrained if constrained else 1.0
        decay = decay or {}
        found = {}
        for key, value in q.items():
            before = value
            if key in decay:
                # A share above 1 would turn the signs of weights.
                before = np.maximum(1.0 - self.rate(n_steps) * decay[key], 0.0) * value
            factor = size * self.factors.get(key, 1.0)
            step = change[key] if factor == 1.0 else factor * change[key]
            found[key] = (before + step).astype(value.dtype, copy=False)
        return found


@dataclass(frozen=True)
class SGD(_Optimizer):
    """Stochastic gradient ascent with momentum μ: v ← μ v + g, q ← q + ρ v.

    Parameters
    ----------
    momentum : float
        μ in [0, 1).
    """

    momentum: float = 0.9

    @property
    def gain(self) -> float | None:
        return 1.0 / (1.0 - self.momentum)

    def start(self, q: Natural) -> dict[str, Natural]:
        return {"velocity": _zeros(q)}

    def step(
        self,
        q: Natural,
        gradient: Natural,
        moments: dict[str, Natural],
        n_steps: int,
        decay: Decay | None = None,
        constrained: bool = False,
    ) -> tuple[Natural, dict[str, Natural]]:
        rate = self.rate(n_steps)
        velocity = {
            key: self.momentum * old + gradient[key] for key, old in moments["velocity"].items()
        }
        change = {key: rate * v for key, v in velocity.items()}
        return self._moved(q, change, n_steps, decay, constrained), {"velocity": velocity}


@dataclass(frozen=True)
class RMSProp(_Optimizer):
    """RMSProp (Tieleman and Hinton, 2012): s ← γ s + (1 − γ) g², q ← q + ρ g / (√s + ε).

    Parameters
    ----------
    memory : float
        γ in [0, 1).
    epsilon : float
        ε > 0.
    """

    memory: float = 0.9
    epsilon: float = 1e-8

    def start(self, q: Natural) -> dict[str, Natural]:
        return {"squares": _zeros(q)}

    def step(
        self,
        q: Natural,
        gradient: Natural,
        moments: dict[str, Natural],
        n_steps: int,
        decay: Decay | None = None,
        constrained: bool = False,
    ) -> tuple[Natural, dict[str, Natural]]:
        rate, squares, change = self.rate(n_steps), {}, {}
        for key, old in moments["squares"].items():
            g = gradient[key]
            squares[key] = self.memory * old + (1.0 - self.memory) * np.square(g, dtype=np.float64)
            change[key] = rate * g / (np.sqrt(squares[key]) + self.epsilon)
        return self._moved(q, change, n_steps, decay, constrained), {"squares": squares}


@dataclass(frozen=True)
class Adam(_Optimizer):
    """Adam (Kingma and Ba, 2015), with the correction of both moments for their start at 0.

    Parameters
    ----------
    beta_1, beta_2 : float
        Memories of the mean and of the mean square of the gradients, in [0, 1).
    epsilon : float
        ε > 0, in the denominator √v + ε.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def start(self, q: Natural) -> dict[str, Natural]:
        return {"means": _zeros(q), "squares": _zeros(q)}

    def step(
        self,
        q: Natural,
        gradient: Natural,
        moments: dict[str, Natural],
        n_steps: int,
        decay: Decay | None = None,
        constrained: bool = False,
    ) -> tuple[Natural, dict[str, Natural]]:
        b1, b2 = self.beta_1, self.beta_2
        rate = self.rate(n_steps) / (1.0 - b1**n_steps)
        correction = 1.0 / (1.0 - b2**n_steps)
        means, squares, change = {}, {}, {}
        for key, old in moments["means"].items():
            g = np.ascontiguousarray(gradient[key])
            means[key], squares[key] = np.empty_like(old), np.empty_like(old)
            change[key] = np.empty_like(g)
            compiled("optimizers").adam(
                g.ravel(),
                old.ravel(),
                moments["squares"][key].ravel(),
                *(rate, b1, b2, correction, self.epsilon),
                means[key].ravel(),
                squares[key].ravel(),
                change[key].ravel(),
            )
        moved = self._moved(q, change, n_steps, decay, constrained)
        return moved, {"means": means, "squares": squares}


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adam": Adam, "rmsprop": RMSProp, "sgd": SGD}
"""The class of each name that the parameter ``optimizer`` of the estimators accepts."""


def _zeros(q: Natural) -> Natural:
    return {key: np.zeros(np.shape(value)) for key, value in q.items()}


def _mixed(q: Natural, average: Natural, share: float) -> Natural:
    """Return (1 − share) average + share q in new arrays, of the floating-point type of q."""
    found = {key: value - average[key] for key, value in q.items()}
    for key, value in found.items():
        value *= share
        value += average[key]
    return found


def returned(ctx: Context, q: Natural | None = None) -> Context:
    """Return the context with the parameters that a fit returns, which are the average.

    The last parameters become a moment, from which :func:`resume` goes on. If ``q`` is given, the
    fit returns these parameters, and goes on from them. A context without an average is returned as
    it is, but for ``q``.
    """
    optimizer = ctx.state.get("optimizer")
    if optimizer is None or "average" not in optimizer["moments"]:
        return ctx if q is None else replace(ctx, q=q)
    moments = dict(optimizer["moments"])
    average = moments.pop("average")
    moments["last"], q = (ctx.q, average) if q is None else (q, q)
    return replace(ctx, q=q, state={**ctx.state, "optimizer": {**optimizer, "moments": moments}})


def resume(ctx: Context) -> None:
    """Set the parameters with which the next step begins, after those that a fit has returned."""
    optimizer = ctx.state.get("optimizer")
    if optimizer is None or "last" not in optimizer["moments"]:
        return
    moments = dict(optimizer["moments"])
    last, moments["average"] = moments.pop("last"), ctx.q
    ctx.q = last
    ctx.state = {**ctx.state, "optimizer": {**optimizer, "moments": moments}}


def update(
    ctx: Context,
    method: Annealing,
    units: Units,
    visited: Visited,
    rates: LearningRates,
    workers: Workers,
    *,
    minibatch: bool,
    passes: float,
    seen: float | None = None,
) -> Visited:
    """Take one step along the gradient that a visit found; the call is that of conjugate models.

    The gradient is that of the bound per unit of weight, so that its size depends neither on the
    size of the batch nor on that of the data.

    The arguments and the result are those of :func:`conjugate.update`. The optimizer of the model
    has the step sizes, and not ``rates``, and ``minibatch`` and ``seen`` make no difference.
    """
    weight = units.total_weight
    ctx.q_start, ctx.report = ctx.q, _per_unit(visited.step, weight)

    def look(q: Natural) -> LocalStep:
        seen = visits.visit(replace(ctx, q=q), method, units, workers, keep=False)
        return _per_unit(seen.step, weight)

    of_bound = _of_bound(ctx, visited.step, weight)
    gradient = method.ascent(ctx, of_bound, ctx.report, look)
    optimizer: Optimizer = ctx.model.optimizer
    before = ctx.state.get("optimizer")
    moments = optimizer.start(ctx.q) if before is None else before["moments"]
    n_steps = 1 if before is None else before["n_steps"] + 1
    average = moments.get("average", ctx.q)
    # The data do not hold up what decays while steps follow a constraint, whose gradient is many
    # times theirs, nor afterwards, because optimizers divide by sizes that they remember.
    constrained = gradient is not of_bound
    was_constrained = constrained or (before is not None and before["constrained"])
    decay: Decay = {}
    if not was_constrained:
        decay = ctx.model.decay(ctx.q, ctx.summary, weight / ctx.summary.weight)
    gradient = ctx.model.centered_gradient(ctx.q, gradient)
    stepped, moments = optimizer.step(ctx.q, gradient, moments, n_steps, decay, constrained)
    ctx.q = ctx.model.after_step(ctx.q, stepped)
    if optimizer.averaging is not None:
        share = (optimizer.averaging + 1.0) / (n_steps + optimizer.averaging)
        moments["average"] = _mixed(ctx.q, average, share)
    ctx.state = {
        **method.advance(ctx, ctx.report),
        "optimizer": {
            "moments": moments,
            "n_steps": n_steps,
            "constrained": was_constrained,
        },
        "updates": ctx.state["updates"] + 1,
        "passes": ctx.state["passes"] + passes,
    }
    ctx.q_start, ctx.report = {}, None
    return visited


def _of_bound(ctx: Context, step: LocalStep, weight: float) -> Natural:
    """Return the gradient of the lower bound per unit of weight."""
    of_kl: Natural = ctx.model.kl_gradient(ctx.q, ctx.prior)
    gradient = {key: value / weight for key, value in step.statistics.items()}
    for key, value in of_kl.items():
        gradient[key] = gradient[key] - value / ctx.summary.weight
    return gradient


def _per_unit(step: LocalStep, weight: float) -> LocalStep:
    """Return the local step with its statistics of q per unit of weight."""
    return replace(step, constraints=tuple(c.times(1.0 / weight) for c in step.constraints))
