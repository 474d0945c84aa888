"""Deterministic annealing: the posterior is flattened by a temperature that falls to 1."""

from __future__ import annotations

from numbers import Real
from typing import Any

from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural, Tempering, mix
from ._base import AUTO, N_PASSES, Annealing, Context, Rehearsal
from .schedules import SCHEDULES

# Powers of x = 1/T on the local step, the statistics and the prior.
FORMS = {"likelihood": (1, 1, 0), "posterior": (1, 1, 1), "local": (1, 0, 0)}

# The rule for the initial temperature; benchmarks/gaussian_mixture/tuning.py measures it.
_HOTTEST = 6.0
_LUKEWARM = 1.05
_CERTAIN = 0.05  # mean normalised entropy of a start whose assignments are not in doubt
# Updates at constant temperature after which components that are going to merge have done so.
_REHEARSAL = 20
_MERGED = 0.2


class DeterministicAnnealing(Annealing):
    """Deterministic annealing: variational inference at a temperature that falls to 1.

    At temperature T the local step is q(z) ∝ exp{E log p(x, z | β) / T}, and the natural
    parameters λ of q(β) are updated, with b their value at the flat density, to

    - ``"likelihood"``: λ₀ + S/T (annealed variational inference [1]_);
    - ``"posterior"``: b + (λ₀ + S − b)/T (Katahira et al. [2]_, with the base measure kept);
    - ``"local"``: λ₀ + S (deterministic annealing EM [3]_).

    At fixed T all three are exact coordinate ascent: the first two on the bound of a tempered
    likelihood or posterior, the third on the bound in which the entropy of the assignments alone
    is multiplied by T, which leaves all other parameters as sharp as ever.

    Parameters
    ----------
    form : {"auto", "likelihood", "posterior", "local"}, default="auto"
        What the temperature acts on.
    initial_temperature : float or "auto", default="auto"
        T at the first pass, at least 1. ``"auto"`` is the model's recommended number, or a rule
        for models with assignments: 6, with T − 1 halved for as long as a rehearsal of 20
        updates at T, on at most 10,000 data points, merges the components; 1 where the initial
        assignments are in doubt already (mean entropy above 0.05 log K). A number above what
        the rule finds can merge components for good; one below gains less.
    schedule : {"auto", "geometric", "linear", "constant"}, default="auto"
        How T falls: T₀^(1 − t/n), linearly, or not at all until the end of the schedule.
    n_passes : int or "auto", default="auto"
        Passes over the data until T = 1. More passes give a better optimum for more time.
    jitter : float or "auto", default="auto"
        Size of the random displacement, at T > 1, of the parameters that each update moves to. It
        breaks the symmetry of equal components, which would otherwise survive the cooling.

    References
    ----------
    .. [1] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational tempering. AISTATS,
       section 3.
    .. [2] Katahira, Watanabe, Okada (2008). Deterministic annealing variant of variational
       Bayes method. Journal of Physics: Conference Series 95.
    .. [3] Ueda, Nakano (1998). Deterministic annealing EM algorithm. Neural Networks 11.

    Examples
    --------
    >>> from sklearn_anneal.annealing import DeterministicAnnealing
    >>> DeterministicAnnealing(initial_temperature=5, schedule="linear")
    DeterministicAnnealing(initial_temperature=5, schedule='linear')
    """

    _parameter_constraints: dict = {
        "form": [StrOptions({*FORMS, "auto"})],
        "initial_temperature": [Interval(Real, 1, None, closed="left"), AUTO],
        "schedule": [StrOptions({*SCHEDULES, "auto"})],
        "n_passes": N_PASSES,
        "jitter": [Interval(Real, 0, None, closed="left"), AUTO],
    }
    _defaults = {"form": "likelihood", "schedule": "geometric", "n_passes": 50, "jitter": 0.0}

    def __init__(
        self,
        form="auto",
        initial_temperature="auto",
        schedule="auto",
        n_passes="auto",
        jitter="auto",
    ):
        self.form = form
        self.initial_temperature = initial_temperature
        self.schedule = schedule
        self.n_passes = n_passes
        self.jitter = jitter

    @property
    def needs(self) -> tuple[str, ...]:
        rule = ("assignment_entropy",) if self.initial_temperature == "auto" else ()
        # At a temperature of 1 there is nothing to temper.
        local = ("assignments",) if self.form == "local" and self.initial_temperature != 1 else ()
        return rule + local

    @property
    def calibrates(self) -> bool:
        return self.initial_temperature == "auto"

    def calibrate(self, ctx: Context, units: Any, rehearse: Rehearsal) -> Annealing:
        if not self.calibrates:
            return self
        uncertain = ctx.model.assignment_entropy(units, ctx.q)
        temperature = _HOTTEST if uncertain < _CERTAIN else 1.0
        trial = clone(self).set_params(schedule="constant", n_passes=_REHEARSAL, jitter=0.0)
        while temperature > 1:
            q = rehearse(trial.set_params(initial_temperature=temperature), _REHEARSAL)
            if ctx.model.assignment_entropy(units, q) < _MERGED:
                break
            temperature = 1 + (temperature - 1) / 2 if temperature > _LUKEWARM else 1.0
        return clone(self).set_params(initial_temperature=float(temperature))

    def schedule_length(self) -> int:
        # At a temperature of 1 from the start there is nothing to wait for.
        return 0 if self.initial_temperature == 1 else super().schedule_length()

    def temperature(self, ctx: Context) -> float:
        """T of the coming update."""
        start = float(self.initial_temperature)
        return SCHEDULES[self.schedule](start, 1.0, self.progress(ctx.state))

    def temper(self, ctx: Context, units: Any) -> Tempering:
        x = 1.0 / self.temperature(ctx)
        return Tempering(*(x**power for power in FORMS[self.form]))

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        if self.jitter > 0 and self.temperature(ctx) > 1:
            # Not of the mixture: displacements of old values would pile up in small steps.
            target = ctx.model.jitter(target, self.jitter, ctx.rng, ctx.prior)
        return mix(q, target, rho)
