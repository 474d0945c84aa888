"""The hooks by which an annealing method modifies the loop of variational inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions

from ..families import Natural, Tempering, mix
from ._documentation import LinkedDocumentation
from .schedules import END

if TYPE_CHECKING:
    from ..data.units import Units
    from ..models._base import Block, Known, LocalStep

State = dict[str, Any]

AUTO = StrOptions({"auto"})
N_PASSES = [Interval(Integral, 0, None, closed="left"), AUTO]
LEARNING_RATE = [Interval(Real, 0, 1, closed="right"), StrOptions({"auto", "decay"})]

CAPABILITIES = {
    "draws": "draws of the global parameters instead of their expectations",
    "exact_gradient_statistics": (
        "the exact natural gradient of a draw of the global parameters (the matrix V of "
        "structured stochastic variational inference)"
    ),
    "log_partition": "a log partition function of the tempered model, log C(T)",
    "unit_log_partition": "a log partition function per data point, log c(T)",
    "locally_tempered_step": "a local step with one temperature per data point",
    "assignments": (
        'assignments of data points, because form="local" tempers nothing else (form="likelihood" '
        'and form="posterior" do not need them)'
    ),
    "assignment_entropy": (
        "the entropy of its assignments, from which an initial temperature could be determined"
    ),
}
"""The optional capabilities of models that methods can need, described for error messages."""

UPDATES = {
    "conjugate_update": "an update λ ← (1 − ρ) λ + ρ λ̂ of natural parameters, which it changes",
    "gradient": "gradients of the lower bound, to which it adds a term",
}
"""The kinds of update that methods can need of a model, described for error messages."""

OF_UPDATE_RULES: dict[str, dict[str, str | None]] = {
    "conjugate": {"conjugate_update": None, "gradient": "the updates of this model are conjugate"},
    "gradient": {"conjugate_update": "this model is trained by gradients", "gradient": None},
}
"""By ``Model.update_rule``: None for the kind of update that it has, and why it lacks the other."""


@dataclass
class Context:
    """The state of a fit, which every hook receives.

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
        λ at the beginning of the current update, before its first block was changed. It is empty
        unless the method reads the entropy (``reads_entropy``), so that its memory is released.
    state : dict
        The values that are kept from one update to the next: the clocks ``updates`` and
        ``passes``, and those that the method adds in :meth:`Annealing.initial_state`.
    scale : float
        N/|S|, the total weight of the data divided by the weight of the current batch.
    exploring : bool
        Whether local variables start anew at every visit, because that finds better optima, and
        whether models that learn their priors late wait for it. It becomes False when the fit has
        nearly converged.
    report : LocalStep or None
        The latest local step.
    known : dict or None
        Quantities of q that the latest visit computed (:attr:`Visit.known`), kept to save work.
    deviation : dict of ndarray or None
        The difference that random weights make to the current target λ̂, for methods in which
        it is kept separate from the target (``separate_noise`` of a visit). Hooks must not change
        it.
    extend : callable or None
        Lets the current update go beyond its target (``Momentum.extend``), given the argument
        ``late`` of :meth:`Model.learned` that follows, and returns what undoes that, or None. It
        is None in a plain update.
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
    known: Known | None = None
    deviation: Natural | None = None
    extend: Callable[[Context, bool | None], Callable[[Context], None] | None] | None = None


Rehearsal = Callable[["Annealing", int], Natural]


W = TypeVar("W")
"""The totals of random factors."""


class RandomWeights(Protocol[W]):
    """A joint distribution of random factors, which can be drawn in several parts.

    The factors of all parts depend on each other through totals alone, such as their sum. Every
    part is drawn from a generator of its own, and then scaled to the totals of all.
    """

    def draw(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, W]:
        """Return what is drawn for ``size`` weight units, and its totals."""

    def merge(self, a: W, b: W) -> W:
        """Return the totals of two parts together."""

    def scaled(self, drawn: np.ndarray, own: W, totals: W) -> np.ndarray:
        """Return the factors of a part, given its totals and those of all parts.

        The array ``drawn`` may be reused.
        """


class Annealing(LinkedDocumentation, BaseEstimator):
    """Base class of the annealing methods. Its own hooks are those of plain inference.

    A method has hyperparameters only, so that one instance can be used in many fits and threads.
    Everything that changes during a fit is in the :class:`Context` that every hook receives.

    Attributes
    ----------
    needs : tuple of str
        Names of the model's capabilities without which the method cannot work.
    finish : bool
        Whether plain variational inference at T = 1 follows the schedule.
    exact_bound : bool
        Whether the local steps yield the lower bound of the current q. If not, an extra pass
        evaluates it every ``evaluate_every`` passes.
    reads_entropy : bool
        Whether the method reads the entropy of q(z) before every block, and not only before the
        first one.
    reads_energy : bool
        Whether the method reads the energy or the entropy of local steps, and not only their sum.
    has_unit_temperatures : bool
        Whether every data point has a temperature of its own.
    moves_absent_alike : bool
        Whether parameters without statistics move alike, apart from noise of which only the sum
        matters. Those of columns that the data do not have can then be one in a fit.
    draws_weights : bool
        Whether every weight unit gets a random weight of its own, so that equal ones must not be
        merged.
    holds_units : bool
        Whether the parameters of single data points, in models that have such, may be blocks of q
        in batch mode. If not, they are local variables in batch mode too.
    learn_priors_after : float
        The share of the passes after which priors are learned by a method without a finish.
    returns_mean : bool
        Whether a fit returns a mean of the parameters after its passes, without the first ten,
        instead of the last ones. It is for methods whose parameters go on moving at random.
    tol_of_mean : float
        A fit in batch mode without bounds ends once that mean has changed by less than this in the
        last quarter of its passes, in nats per observation.
    follows_gradients : bool
        Whether the method also works with models that are trained by gradients. There the loop
        calls :meth:`ascent` in the place of :meth:`target`, :meth:`batch_step`,
        :meth:`minibatch_step` and :meth:`update`; all other hooks are the same.
    """

    _parameter_constraints: dict = {}
    _defaults: dict[str, object] = {}

    finish = True
    exact_bound = True
    evaluate_every = 1
    learn_priors_after: float = 0.5
    reads_entropy = False
    reads_energy = False
    has_unit_temperatures = False
    holds_units = True
    moves_absent_alike: Any = False
    draws_weights = False
    follows_gradients = False
    returns_mean: Any = False
    tol_of_mean: Any = 0.0

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the model's capabilities without which the method cannot work."""
        return ()

    def resolve(self, recommended: Mapping[str, object]) -> Annealing:
        """A new instance with every ``"auto"`` replaced by the model's recommended value.

        Parameters
        ----------
        recommended : dict
            The model's values by parameter name. Absent ones take the method's default.

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
        """Whether :meth:`calibrate` has any parameter to determine."""
        return False

    def calibrate(self, ctx: Context, units: Units, rehearse: Rehearsal) -> Annealing:
        """A copy of the method with the parameters that depend on the data and the start.

        ``rehearse(method, n)`` returns the natural parameters after ``n`` batch updates of the
        given method from the start. It does not change the start.
        """
        return self

    def schedule_length(self) -> int:
        """Number of passes before the finish."""
        return int(getattr(self, "n_passes", 0))

    def note(self) -> str | None:
        """The line that ``verbose`` prints about the calibrated method; None for no line."""
        return None

    def progress(self, state: State) -> float:
        """The share of the schedule that has passed; 1 or more after its end."""
        n = self.schedule_length()
        return 1.0 if n == 0 else state["passes"] / n

    def is_annealing(self, state: State) -> bool:
        """Whether the schedule is still running."""
        return self.progress(state) < END

    @property
    def needs_start(self) -> bool:
        """Whether the fit starts as the model's ``init_params`` says."""
        return True

    def initial_natural(self, ctx: Context) -> Natural:
        """The natural parameters to start from, for methods that do not need a start."""
        raise NotImplementedError

    def initial_state(self, ctx: Context) -> State:
        """The values that the method adds to the clocks in ``ctx.state``."""
        return {}

    def temper(self, ctx: Context, units: Units) -> Tempering:
        """The factors of the local step, the statistics and the prior in this update."""
        return Tempering()

    def visit_options(self, ctx: Context) -> dict[str, Any]:
        """Further arguments of the model's ``visit``, by which a visit is prepared otherwise.

        With ``separate_noise`` random weights are deviations from 1. The difference that they make
        to the target is then in ``ctx.deviation``, and :meth:`update` has to add ρ times this
        difference.
        """
        return {}

    def draw(self, ctx: Context, block: Block) -> Any:
        """Random numbers that are drawn once for the visit before the update of a block."""
        return None

    def weights(self, ctx: Context, size: int) -> RandomWeights | None:
        """The distribution of random factors of the statistics, or None for no noise.

        There is one factor for each of ``size`` weight units. Their mean is 1, or 0 with
        ``separate_noise``.
        """
        return None

    def local_start(self, ctx: Context) -> tuple[bool, float]:
        """How local variables start: the arguments ``exploring`` and ``noise`` of `Visit.start`."""
        return ctx.exploring, 0.0

    def target(self, ctx: Context, target: Natural, stats: Natural, visited: Any) -> Natural:
        """The target λ̂ of the method, given that of the conjugate update.

        ``visited`` has the visit that computed the statistics, and the draw that was made for it.
        """
        return target

    def batch_step(self, decaying: float) -> float:
        """The step size ρ of an update that sees all the data.

        ``decaying`` is the step size of a minibatch at this time. The result is 1 by default,
        which is coordinate ascent.
        """
        return 1.0

    def check_minibatches(self) -> None:
        """Refuse settings that need updates from all the data, with a ValueError."""

    def minibatch_step(self, decaying: float, share: float) -> float:
        """The step size ρ of an update that sees a share of the data, by default ``decaying``.

        In a stream of unknown length it is the share of the data so far.
        """
        return decaying

    def update(self, ctx: Context, q: Natural, target: Natural, rho: float) -> Natural:
        """The new λ for the keys of ``q``, by default (1 − ρ) λ + ρ λ̂.

        The result may overwrite the arrays of ``target``.
        """
        return mix(q, target, rho, overwrite=True)

    def ascent(
        self, ctx: Context, gradient: Natural, step: LocalStep, look: Callable[[Natural], LocalStep]
    ) -> Natural:
        """The gradient that the optimizer follows, in models that are trained by gradients.

        ``gradient`` is that of the lower bound per unit of weight, and ``step`` the local step from
        which it comes, whose statistics of q are per unit of weight too. ``look(q)`` returns the
        local step for the same data at other parameters. A method that adds nothing returns
        ``gradient`` itself.
        """
        return gradient

    def advance(self, ctx: Context, report: LocalStep) -> State:
        """The new ``ctx.state`` after an update whose local step was ``report``."""
        return ctx.state


class DampedMixin:
    """Mixin of methods that damp their batch updates, by the parameter ``learning_rate``."""

    learning_rate: float | str

    def batch_step(self, decaying: float) -> float:
        """``learning_rate``, or the step size of minibatches if it is ``"decay"``."""
        return decaying if self.learning_rate == "decay" else float(self.learning_rate)
