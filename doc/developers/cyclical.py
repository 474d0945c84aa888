"""Annealing in cycles: the worked example of a new annealing method."""

from __future__ import annotations

from numbers import Integral, Real

from sklearn.utils._param_validation import Interval

from sklearn_anneal.annealing import Annealing
from sklearn_anneal.annealing._base import AUTO, N_PASSES
from sklearn_anneal.annealing.schedules import linear
from sklearn_anneal.families import Tempering, mix


class CyclicalAnnealing(Annealing):
    """Annealing in cycles: the temperature falls to 1 several times, each time from lower.

    Cycle c = 0, …, C − 1 begins at the temperature 1 + (T₀ − 1)(1 − c/C) and falls linearly to 1.
    The fit can leave an optimum in which one cycle ends, because the next one heats it again, but
    the later the cycle, the nearer it stays. Temperatures act on the likelihood, as in the form
    ``"likelihood"`` of deterministic annealing, which is the same as one cycle.

    Parameters
    ----------
    initial_temperature : float or "auto", default="auto"
        T₀, the temperature of the first pass, at least 1.
    n_cycles : int or "auto", default="auto"
        C.
    n_passes : int or "auto", default="auto"
        Passes over the data in all cycles together.
    jitter : float or "auto", default="auto"
        Size of the random displacement, at T > 1, of the parameters that each update moves to.
        Without it, components that a cycle has merged stay equal in all later ones.

    References
    ----------
    Fu et al. (2019), Cyclical annealing schedule: a simple approach to mitigating KL vanishing.
    """

    _parameter_constraints = {
        "initial_temperature": [Interval(Real, 1, None, closed="left"), AUTO],
        "n_cycles": [Interval(Integral, 1, None, closed="left"), AUTO],
        "n_passes": N_PASSES,
        "jitter": [Interval(Real, 0, None, closed="left"), AUTO],
    }
    _defaults = {"initial_temperature": 2.0, "n_cycles": 4, "n_passes": 60, "jitter": 0.0}

    def __init__(self, initial_temperature="auto", n_cycles="auto", n_passes="auto", jitter="auto"):
        self.initial_temperature = initial_temperature
        self.n_cycles = n_cycles
        self.n_passes = n_passes
        self.jitter = jitter

    def schedule_length(self):
        # There is nothing to wait for if the temperature is 1 from the start.
        return 0 if self.initial_temperature == 1 else super().schedule_length()

    def temperature(self, ctx):
        """T of the coming update."""
        position = self.n_cycles * self.progress(ctx.state)
        # The clock of a stream is a sum of fractions, which can stay a little below a whole cycle.
        cycle = int(position + 1e-9)
        top = linear(float(self.initial_temperature), 1.0, cycle / self.n_cycles)
        return linear(top, 1.0, position - cycle)

    def temper(self, ctx, units):
        x = 1.0 / self.temperature(ctx)
        return Tempering(local=x, statistics=x)

    def update(self, ctx, q, target, rho):
        if self.jitter > 0 and self.temperature(ctx) > 1:
            target = ctx.model.jitter(target, self.jitter, ctx.rng, ctx.prior)
        return mix(q, target, rho)
