"""The hooks through which an annealing method bends the loop of inference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural, Tempering, mix
from .schedules import finished

State = dict[str, Any]

AUTO = StrOptions({"auto"})
N_PASSES = [Interval(Integral, 0, None, closed="left"), AUTO]
LEARNING_RATE = [Interval(Real, 0, 1, closed="right"), StrOptions({"auto", "decay"})]

CAPABILITIES = {
    "draws": "draws of the global parameters in the place of their expectations",
    "exact_gradient_statistics": (
        "the exact natural gradient of a draw of the global parameters (the matrix V of "
        "structured stochastic variational inference)"
    ),
    "log_partition": "a log partition function of the tempered model, log C(T)",
    "unit_log_partition": "a log partition function per data point, log c(T)",
    "locally_tempered_step": "a local step with one temperature per data point",
    "assignments": (
        'assignments of data points, which are all that form="local" tempers; form="likelihood" '
        'and form="posterior" do without'
    ),
    "assignment_entropy": (
        "the entropy of its assignments, from which an initial temperature could be told"
    ),
}
"""What a method can ask of a model beyond the obligatory, in words for error messages."""


@dataclass
class Context:
    """What every hook sees of the fit that it takes part in.

    Attributes
    ----------
    model : ConjugateModel
    prior : dict of ndarray
        λ₀, the natural parameters of the prior.
    summary : object
        The model's summary of the training data.
    rng : numpy.random.Generator
    q : dict of ndarray
        λ, the current natural parameters.
    q_start : dict of ndarray
        λ as the current update found it, before the first of its blocks.
    state : dict
        What has to survive from one update to the next: the clocks ``updates`` and ``passes``
        and whatever the method adds in :meth:`Annealing.initial_state`.
    scale : float
        N/|S|: total weight over the weight of the current batch.
    exploring : bool
        Whether local variables start anew at every visit, to find better optima; False once
        only the last digits are missing.
    report : LocalStep or None
        The latest local step.
    known : object
        What the latest visit found of q (:attr:`Visit.known`), which can save work.
    deviation : dict of ndarray or None
        What random weights add to the current target λ̂, for methods that keep it apart
        (``separate_noise``). Hooks must not change it.
    """

    model: Any
    prior: Natural
    summary: Any
    rng: np.random.Generator
    q: Natural
    q_start: Natural = field(default_factory=dict)
    state: State = field(default_factory=lambda: {"updates": 0, "passes": 0.0})
    scale: float = 1.0
    exploring: bool = True
    report: Any = None
    known: Any = None
    deviation: Natural | None = None


Rehearsal = Callable[["Annealing", int], Natural]


class Annealing(BaseEstimator):
    """Base class of the annealing methods; as it stands, the absence of annealing.

    A method holds hyperparameters only, so that one instance may serve many fits and threads.
    All that changes during a fit is in the :class:`Context` that every hook receives.

    Attributes
    ----------
    needs : tuple of str
        Names of the model's capabilities without which the method cannot work.
    finish : bool
        Whether plain variational inference at T = 1 follows the schedule.
    separate_noise : bool
        Whether random weights are deviations from 1, and what they add to the target is kept
        apart from it: :meth:`update` has to add ρ times ``ctx.deviation``.
    exact_bound : bool
        Whether the lower bound of the current q can be read off its local steps; if not, it is
        evaluated by an extra pass every ``evaluate_every`` passes.
    has_unit_temperatures : bool
        Whether every data point has a temperature of its own.
    holds_units : bool
        Whether parameters of single data points, where a model has any, may be blocks of q like
        others in batch mode; if not, they are local variables there too.
    """

    _parameter_constraints: dict = {}
    _defaults: dict[str, Any] = {}

    finish = True
    exact_bound = True
    evaluate_every = 1
    has_unit_temperatures = False
    holds_units = True

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the model's capabilities without which the method cannot work."""
        return ()

    @property
    def separate_noise(self) -> bool:
        """Whether random weights are deviations from 1 whose statistics are kept apart."""
        return False

    def resolve(self, recommended: dict[str, Any]) -> Annealing:
        """A new instance with every ``"auto"`` replaced by the model's recommended value.

        Parameters
        ----------
        recommended : dict
            The model's values by parameter name; what is absent takes the method's default.

        Returns
        -------
        method : Annealing
        """
        values = {**self._defaults, **recommended}
        changes = {
            name: values[name]
            for name, value in self.get_params(deep=False).items()
            if isinstance(value, str) and value == "auto" and name in values
        }
        return clone(self).set_params(**changes)

    @property
    def calibrates(self) -> bool:
        """Whether :meth:`calibrate` has anything to find out."""
        return False

    def calibrate(self, ctx: Context, units: Any, rehearse: Rehearsal) -> Annealing:
        """The method with what only the data and the start can tell filled in.

        ``rehearse(method, n)`` returns the natural parameters that ``n`` batch updates of
        another method would lead to from the start, which stays as it is.
        """
        return self

    def schedule_length(self) -> int:
        """Number of passes before the finish."""
        return int(getattr(self, "n_passes", 0))

    def progress(self, state: State) -> float:
        """Share of the schedule that is over, 1 or more after its end."""
        n = self.schedule_length()
        return 1.0 if n == 0 else state["passes"] / n

    def is_annealing(self, state: State) -> bool:
        """Whether the schedule is still running."""
        return not finished(self.progress(state))

    @property
    def needs_start(self) -> bool:
        """Whether the fit starts where the model's ``init_params`` says."""
        return True

    def initial_natural(self, ctx: Context) -> Natural:
        """The natural parameters to start from, for methods that do not need a start."""
        raise NotImplementedError

    def initial_state(self, ctx: Context) -> State:
        """What the method keeps in the state, besides the clocks."""
        return {}

    def temper(self, ctx: Context, units: Any) -> Tempering:
        """The factors on local step, statistics and prior for this update."""
        return Tempering()

    def visit(self, ctx: Context, units: Any, **how: Any) -> Any:
        """Prepare a visit to some data; ``how`` has further arguments of the model's ``visit``."""
        t = self.temper(ctx, units)
        return ctx.model.visit(ctx.q, units, t, separate_noise=self.separate_noise, **how)

    def draw(self, ctx: Context, block: Any) -> Any:
        """What the method draws once for a visit that precedes the update of a block."""
        return None

    def weights(self, ctx: Context, units: Any) -> np.ndarray | None:
        """Random factors of the statistics, one per weight unit; None for no noise.

        Their mean is 1, or 0 with ``separate_noise``.
        """
        return None

    def local_start(self, ctx: Context, visit: Any, units: Any, local: Any) -> Any:
        """Where the local variables of a chunk start; ``local`` are those of the last visit."""
        return visit.start(units, local, ctx.exploring, 0.0, ctx.rng)

    def target(self, ctx: Context, target: Natural, stats: Natural, visited: Any) -> Natural:
        """λ̂, given what the conjugate update proposes.

        ``visited`` has the visit that the statistics are of, and the draw that was made for it.
        """
        return target

    def batch_step(self, decaying: float) -> float:
        """The step ρ of an update that sees all the data.

        ``decaying`` is the learning rate that a minibatch would have; the default of 1 is
        coordinate ascent.
        """
        return 1.0

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        """The new λ of the keys of ``q``: by default (1 − ρ) λ + ρ λ̂.

        The arrays of ``target`` may be used for the result.
        """
        return mix(q, target, rho)

    def advance(self, ctx: Context, report: Any) -> State:
        """The method's own state after an update whose local step was ``report``."""
        return ctx.state


class DampedMixin:
    """Methods whose batch updates take steps below 1, set by their ``learning_rate``."""

    learning_rate: Any

    def batch_step(self, decaying: float) -> float:
        """``learning_rate``, or the decaying one of minibatches where that is asked for."""
        return decaying if self.learning_rate == "decay" else float(self.learning_rate)
