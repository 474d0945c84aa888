"""Deterministic annealing: the posterior is flattened by a temperature that falls to 1."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural, Tempering, mix
from ._base import AUTO, N_PASSES, Annealing, Context, Rehearsal
from .schedules import SCHEDULES

if TYPE_CHECKING:
    from ..data.units import Units

# The powers of x = 1/T that multiply the local step, the statistics and the prior.
FORMS = {"likelihood": (1, 1, 0), "posterior": (1, 1, 1), "local": (1, 0, 0)}

# Constants of the rule for the initial temperature, as they were best on digits, small tables and
# clusters in the plane.
_HOTTEST = 6.0
_LUKEWARM = 1.05
_CERTAIN = 0.05  # below this mean normalised entropy, the assignments of a start are certain
# After so many updates at constant temperature, components that are going to merge have merged.
_REHEARSAL = 20
# Above this mean normalised entropy, a rehearsal has merged the components.
_MERGED = 0.2


class DeterministicAnnealing(Annealing):
    """Deterministic annealing: variational inference at a temperature that falls to 1.

    At temperature T the local step is q(z) ∝ exp{E log p(x, z | β) / T}. Let S be the expected
    sufficient statistics, λ₀ the natural parameters of the prior, and b those of the flat
    density. The natural parameters λ of q(β) are then updated, depending on ``form``, to

    - ``"likelihood"``: λ₀ + S/T (annealed variational inference [1]_);
    - ``"posterior"``: b + (λ₀ + S − b)/T (Katahira et al. [2]_, with the base measure kept);
    - ``"local"``: λ₀ + S (deterministic annealing EM [3]_).

    At fixed T all three are exact coordinate ascent. The first two ascend the bound of a tempered
    likelihood or posterior. The third ascends a bound in which only the entropy of the assignments
    is multiplied by T, so that it does not flatten the distributions of the parameters.

    Parameters
    ----------
    form : {"auto", "likelihood", "posterior", "local"}, default="auto"
        The form of the update, as described above.
    initial_temperature : float or "auto", default="auto"
        T at the first pass, at least 1. ``"auto"`` takes the number that the model recommends, or,
        for models with assignments, applies a rule. The rule begins with T = 6. It rehearses 20
        updates at T on at most 10,000 data points, and halves T − 1 as long as the rehearsal merges
        the components. It takes T = 1 if the initial assignments are uncertain already (a mean
        entropy above 0.05 log K). With a number above the result of the rule, components can merge
        for good; with one below, annealing gains less.
    schedule : {"auto", "geometric", "linear", "constant"}, default="auto"
        How T falls from its initial value T₀ to 1 over n passes: as T₀^(1 − t/n), linearly, or not
        at all until the end of the schedule, where it drops to 1.
    n_passes : int or "auto", default="auto"
        Number of passes over the data until T = 1. More passes reach a better optimum and take more
        time.
    jitter : float or "auto", default="auto"
        Size of a random displacement of the parameters that each update moves to, applied while T >
        1. It breaks the symmetry of equal components, which would otherwise stay equal after the
        cooling.

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
    follows_gradients = True
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
        # Assignments are tempered only above a temperature of 1, and are not needed otherwise.
        local = ("assignments",) if self.form == "local" and self.initial_temperature != 1 else ()
        # Jitter displaces the target of a conjugate update.
        jitter = ("conjugate_update",) if self.jitter != "auto" and self.jitter > 0 else ()
        return rule + local + jitter

    @property
    def moves_absent_alike(self) -> bool:  # type: ignore[override]
        return bool(self.jitter == 0)

    @property
    def calibrates(self) -> bool:
        return self.initial_temperature == "auto"

    def calibrate(self, ctx: Context, units: Units, rehearse: Rehearsal) -> Annealing:
        if not self.calibrates:
            return self
        temperature = _HOTTEST if _uncertainty(ctx, units, ctx.q) < _CERTAIN else 1.0
        trial = clone(self).set_params(schedule="constant", n_passes=_REHEARSAL, jitter=0.0)
        while temperature > 1:
            q = rehearse(trial.set_params(initial_temperature=temperature), _REHEARSAL)
            if _uncertainty(ctx, units, q) < _MERGED:
                break
            temperature = 1 + (temperature - 1) / 2 if temperature > _LUKEWARM else 1.0
        return clone(self).set_params(initial_temperature=float(temperature))

    def schedule_length(self) -> int:
        # If the temperature is 1 from the start, the finish can begin at once.
        return 0 if self.initial_temperature == 1 else super().schedule_length()

    def note(self) -> str | None:
        if self.initial_temperature != 1:
            return f"annealing begins at temperature {self.initial_temperature:.4g}"
        return "the initial temperature is 1: there is no annealed phase"

    def temperature(self, ctx: Context) -> float:
        """T of the coming update."""
        start = float(self.initial_temperature)
        return SCHEDULES[self.schedule](start, 1.0, self.progress(ctx.state))

    def temper(self, ctx: Context, units: Units) -> Tempering:
        x = 1.0 / self.temperature(ctx)
        return Tempering(*(x**power for power in FORMS[self.form]))

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        if self.jitter > 0 and self.temperature(ctx) > 1:
            # The target is displaced, and not its mixture with q: if q were displaced too, the
            # displacements of many small steps would add up.
            target = ctx.model.jitter(target, self.jitter, ctx.rng, ctx.prior)
        return mix(q, target, rho)


def _uncertainty(ctx: Context, units: Units, q: Natural) -> float:
    """The mean entropy of the assignments as a share of log K.

    It is 1 for a single component, so that the rule does not anneal where nothing can be gained.
    """
    if ctx.model.n_components == 1:
        return 1.0
    step = ctx.model.visit(q, units).step(units)
    return step.entropy / units.total_weight / float(np.log(ctx.model.n_components))
