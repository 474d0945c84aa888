"""The interface between the loop of inference and the models.

A model makes a :class:`DataSummary` of the data, and prepares a :class:`Visit` for every look at
them. The visit makes a :class:`LocalStep` of each chunk of the data. Every model is a
:class:`Model`. A :class:`ConjugateModel` is one whose update adds expected statistics to the prior,
and a :class:`GradientModel` one whose update is a step along a gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from ..data.units import Centered, U
from ..families import Factors, Natural, Tempering, UnitTemperatures
from ..parallel.workers import SEQUENTIAL, Workers

Recommended = Mapping[str, Mapping[str, bool | int | float | str]]
"""Name of an annealing method → the values of its ``"auto"`` parameters for a model."""

LOG_2PI = float(np.log(2.0 * np.pi))
# Components whose coordinates all differ by less than this count as equal.
_COINCIDENCE = 1e-6
_NOTHING, _ONE = np.empty(0), np.ones(1)


@cache
def compiled(name: str, plain: bool = False) -> ModuleType:
    """Return a module of kernels, which is imported when it is first needed.

    The kernels are compiled, or, if ``plain``, functions in numpy that take their place.
    """
    return import_module(f"..kernels.{'plain.' if plain else ''}{name}", __package__)


def vector(values: np.ndarray | float | None) -> np.ndarray:
    """Return an array for kernels, which take an empty one as ones."""
    if values is None:
        return _NOTHING
    if isinstance(values, float) and values == 1.0:
        return _ONE
    return np.ascontiguousarray(values, dtype=np.float64)


def shallow(original: Copied) -> Copied:
    """Return a shallow copy, in a fraction of the time of :func:`copy.copy`.

    Models and components that learn their priors are copied in every pass.
    """
    found: Copied = object.__new__(type(original))
    vars(found).update(vars(original))
    return found


def coinciding(
    points: np.ndarray, used: np.ndarray, tolerance: float = _COINCIDENCE
) -> list[tuple[int, int]]:
    """Return the pairs of rows of ``points`` that are equal up to a tolerance.

    Only the rows whose numbers are in ``used`` are compared.
    """
    points = points[used]
    pairs = []
    for i in range(len(used)):
        near = np.abs(points[i + 1 :] - points[i]).max(axis=1) < tolerance
        pairs += [(int(used[i]), int(used[i + 1 + j])) for j in np.flatnonzero(near)]
    return pairs


class DataSummary:
    """Base class of the summaries of data, from which priors and starts are computed.

    A summary is a dataclass with the attribute ``weight``, the total weight of the data.
    """

    weight: float

    def merge(self, other: Any) -> Any:
        """Return the summary of both data sets together.

        The center is that of this one, or of the other one where this one has none because it
        describes no observed cell. Merging is associative, and a summary of data without any
        observed cell adds nothing but their weight.
        """
        raise NotImplementedError

    def continued(self, other: Any) -> Any:
        """Return the summary to use when a fit goes on with other data but keeps its priors."""
        raise NotImplementedError

    def why_not_learned(self, model: Any) -> str | None:
        """Return why the data do not determine the priors that a model learns, and what to do.

        All priors then keep their values, and the sentence becomes a warning. None if the data do
        determine them, or if the model learns none.
        """
        return None

    def why_kept(self, model: Any) -> str | None:
        """Return the same where only some of the priors are not learned."""
        return self.why_not_learned(model)

    def whole(self) -> Any:
        """Return the summary of all data, once those of all parts have been merged.

        It differs from this one in models whose center is a parameter: the mean of all data then
        takes the place of that of the first part. The mean is the center of columns without any
        observed cell, too.
        """
        return self


S = TypeVar("S", bound=DataSummary)
"""The summary that a model makes of data."""


class _Mergeable(Protocol):
    def merge(self, other: Any) -> Any: ...


T = TypeVar("T", bound=_Mergeable)
V = TypeVar("V")
Copied = TypeVar("Copied")


def merged(a: T | None, b: T | None) -> T | None:
    """Return the summary of both data sets together; None has nothing to add."""
    if a is None or b is None:
        return b if a is None else a
    sum_: T = a.merge(b)
    return sum_


def whole(summary: V) -> V:
    """Return :meth:`DataSummary.whole`, or the summary itself if its class has no center."""
    return summary.whole() if isinstance(summary, DataSummary) else summary


def first_center(summary: Centered, other: Centered) -> np.ndarray:
    """Return the center of the first of two summaries in which each column has one.

    A column without any observed cell has the center NaN until all parts have been merged.
    """
    center = summary.center
    unknown = np.isnan(center)
    return np.where(unknown, other.center, center) if unknown.any() else center


def with_center(summary: Any) -> Any:
    """Return a summary in which the mean is the center of the columns that have none."""
    unknown = np.isnan(summary.center)
    if not unknown.any():
        return summary
    return replace(summary, center=np.where(unknown, summary.mean, summary.center))


Expected = Any
"""The form in which a local step reads the global parameters; every model has its own."""

Known = dict[str, Any]
"""Results about q(β), by names, which one visit leaves to the next; every model has its own."""


class Constraint(NamedTuple):
    """A statistic f of q that proximity keeps near its recent value, and the gradient of f.

    A statistic can have several parts, such as the mean activation of each unit of a network.
    The part j must then depend only on the entries j, along the first axis, of the parameters.
    """

    # Σ w f(x_n) by parameter: a number, or the parts of f in the shape of the leading axes of the
    # parameter. If f is one number, it is the same for all parameters.
    value: Natural
    # ∂f/∂q by parameter, in the shape of the parameter. Entry j is the gradient of part j.
    gradient: Natural

    def plus(self, other: Constraint) -> Constraint:
        """Return the statistic of both sets of data points."""
        return Constraint(_added(self.value, other.value), _added(self.gradient, other.gradient))

    def times(self, factor: float) -> Constraint:
        """Return the statistic with another weight of the data points."""
        return Constraint(*({key: factor * a for key, a in part.items()} for part in self))


@dataclass
class LocalStep:
    """The result of inferring local variables given the global parameters.

    The local steps of two sets of data can be added. The sum has the statistics and the bound of
    both, but neither ``inverse_temperatures`` nor ``local``, which belong to single data points.
    """

    # Raw expected statistics, weighted and multiplied by the factors of annealing. They include the
    # effect of random weights, unless that is in ``deviation``.
    statistics: Natural
    # Σ w E_q[log p(x, z | β)], nats. In a model with local parameters θ it is Σ w E_q[log p(x, z |
    # θ, β)].
    energy: float
    # Σ w H[q(z)], nats. It includes the entropy of local parameters.
    entropy: float
    log_prior: float = 0.0  # Σ w E_q[log p(θ)] of local parameters with a conjugate prior, nats
    # The change of the statistics by random weights, if ``separate_noise`` keeps it apart.
    deviation: Natural | None = None
    temperature: float | None = None  # Σ w T, if every data point has a temperature of its own
    # E[1/T] of each data point, if every data point has a temperature of its own, (n_units,).
    inverse_temperatures: np.ndarray | None = field(default=None, repr=False)
    # Local variables, from which the next visit can start; None for models without any.
    local: Any = None
    # The units to which the rows of the statistics belong, if there is one row per unit.
    rows: Any = None
    # The statistics of q that proximity needs, in models that are trained by gradients.
    constraints: tuple[Constraint, ...] = ()
    # Σ w E_q[log p(x | z, β)], nats, of models in which annealing tempers nothing else.
    likelihood: float | None = None
    # Σ w ℓ², the squares of the bounds ℓ of single data points, for models whose bound is an
    # estimate from draws.
    squares: float | None = None
    # The sum of ``energy``, ``entropy`` and ``log_prior`` without their rounding errors, where
    # these are so large that the sum loses its digits.
    exact_bound: float | None = None
    known: Any = None  # :attr:`Visit.known`, if learning priors can use it

    @property
    def bound(self) -> float:
        """The data's contribution to the lower bound at T = 1, in nats."""
        if self.exact_bound is not None:
            return self.exact_bound
        return self.energy + self.log_prior + self.entropy

    def __add__(self, other: LocalStep) -> LocalStep:
        def total(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None else a + b

        return LocalStep(
            statistics=_added(self.statistics, other.statistics),
            energy=self.energy + other.energy,
            entropy=self.entropy + other.entropy,
            log_prior=self.log_prior + other.log_prior,
            deviation=(
                None
                if self.deviation is None or other.deviation is None
                else _added(self.deviation, other.deviation)
            ),
            temperature=total(self.temperature, other.temperature),
            constraints=tuple(
                a.plus(b) for a, b in zip(self.constraints, other.constraints, strict=True)
            ),
            likelihood=total(self.likelihood, other.likelihood),
            squares=total(self.squares, other.squares),
            exact_bound=(
                None
                if self.exact_bound is None and other.exact_bound is None
                else self.bound + other.bound
            ),
        )


def _added(a: Natural, b: Natural) -> Natural:
    return {key: value + b[key] for key, value in a.items()}


@dataclass(frozen=True)
class Visit(Generic[U]):
    """One pass over some data, for the update of one block of q(β).

    A visit is prepared once, by :meth:`ConjugateModel.visit`. It does not change while the chunks
    of its data are processed, so that they can be processed in any order and in any process. The
    loop calls :meth:`view` once, :meth:`start` and :meth:`step` for every chunk, :meth:`merge` in
    the fixed order of the chunks, and :meth:`finish` once. A visit can be pickled: a worker
    receives the visit and the data, and needs nothing else.

    This class serves models whose local steps need no preparation before the first chunk and no
    completion after the last.

    Parameters
    ----------
    model : ConjugateModel
        The model whose ``local_step`` is called.
    expected : object
        The expectations under q(β), in the form in which this method reads them.
    t : Tempering
        The factors by which annealing changes the update.
    unit_temperatures : UnitTemperatures or None, default=None
        If given, local steps infer a temperature for every data point. Models that can do so have
        a subclass for it.
    separate_noise : bool, default=False
        Whether random weights are deviations from 1. The statistics that they produce are then
        returned separately from those of the data.
    learns_late : bool, default=False
        Whether the model learns hyperparameters, and should do so only when the lower bound
        hardly rises any more.
    known : dict or None, default=None
        Results about q(β) that the next visit can reuse, if q(β) is still the same.
    """

    # Whether :meth:`extrapolated` does anything.
    extrapolates: ClassVar[bool] = False

    model: Any
    expected: Expected
    t: Tempering
    unit_temperatures: UnitTemperatures | None = None
    separate_noise: bool = False
    learns_late: bool = field(default=False, kw_only=True)
    known: Known | None = field(default=None, kw_only=True)

    gives_bound: ClassVar[bool] = True
    """Whether the lower bound can be computed from the sum of the local steps at T = 1."""

    def without_bound(self) -> Visit:
        """Return a visit whose local steps need not compute the terms of the lower bound.

        The loop takes the bound from the visit for the first block, unless the method evaluates it
        by extra visits. It calls this method for visits for later blocks, whose local variables
        start from those of the visit before, and for all visits of such a method. Models that save
        time without the bound override it; its terms are then NaN.
        """
        return self

    def without_energy(self) -> Visit:
        """Return a visit whose steps may give the sum of energy and entropy alone.

        Models that save time in this way override it; the entropy then has a part of the energy.
        """
        return self

    def view(self, units: U) -> Any:
        """Return the data points in the form in which :meth:`step` takes them."""
        return units

    def chunks(self, units: U) -> list[slice]:
        """Return the parts of the data points of which each is a task for a worker."""
        return list(units.chunks())

    def start(
        self, units: U, local: Any, exploring: bool, noise: float, rng: np.random.Generator
    ) -> Any:
        """Return the initial local variables of a chunk; None for models without any.

        Parameters
        ----------
        units : Units
            The data points of the chunk.
        local : object
            The result of the last visit for the same data points; None at the first visit.
        exploring : bool
            Whether the start may ignore ``local``, because starting anew can lead to better
            optima.
        noise : float
            The share of random local variables in the mixture with the given ones, from 0 to 1.
        rng : numpy.random.Generator
        """
        return None

    def forgets(self, exploring: bool, noise: float) -> bool:
        """Return whether :meth:`start` ignores ``local``, given these arguments."""
        return True

    def step(self, units: U, noise: np.ndarray | None = None, local: Any = None) -> LocalStep:
        """Make the local step of one chunk.

        Parameters
        ----------
        units : Units
            The data points of the chunk, as :meth:`view` gives them.
        noise : ndarray of shape (n_weight_units,) or None, default=None
            Random factors of the statistics.
        local : object
            The result of :meth:`start`. It is not changed.
        """
        return self.model.local_step(
            units, self.expected, self.t, noise, self.separate_noise and noise is not None
        )

    def merge(self, a: LocalStep, b: LocalStep) -> LocalStep:
        """Return the sum of the local steps of two consecutive chunks, and change neither."""
        return a + b

    def extrapolated(self, q: Natural, proposed: Natural, statistics: Natural) -> Natural:
        """Return the result of a longer step of one block, or ``proposed`` itself.

        Steps of EM, which lead from ``q`` to ``proposed``, are short where local variables and
        parameters explain the same data. Longer ones must not lower the bound of all data, and must
        leave fixed points of EM as they are. ``statistics`` are those of the visit, scaled from a
        minibatch to all the data; updates with a step size below 1 go a part of the way.
        """
        return proposed

    def finish(self, step: LocalStep) -> LocalStep:
        """Complete the merged local step of all chunks; the arrays of ``step`` may be reused."""
        return step

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        """Return V S of structured stochastic VI, after a visit with a draw of the parameters.

        V is a random matrix whose expectation is the identity, and S are the statistics ``stats``.
        """
        raise NotImplementedError


class Block(NamedTuple):
    """Natural parameters that are updated together."""

    keys: tuple[str, ...]
    # Whether a new local step precedes the update. If not, the update uses the statistics that the
    # local step of the preceding block has found.
    refresh: bool = True
    # Whether its update may write into the arrays of its statistics, which nothing reads later.
    overwrites: bool = False


class Model(ABC, Generic[U, S]):
    """A model with latent variables, which holds hyperparameters only.

    U is the kind of its units, and S the class of its summary of data.

    Parameters, priors and statistics are values that are passed in and returned. A model keeps
    no state of a fit: the :class:`Visit` that it prepares holds everything that one pass over
    data needs.

    Attributes
    ----------
    n_components : int
        Number of components, topics, states or factors.
    recommended : dict
        Name of an annealing method → the values of its ``"auto"`` parameters for this model.
    update_rule : str
        ``"conjugate"`` or ``"gradient"``: the rule by which the loop updates q.
    accelerates : bool
        Whether plain passes over all the data can have momentum (``Momentum`` of the loop). The
        model then has one visit per update and no local variables, and learns its priors from q
        alone.
    exploring_factor : float
        Local variables start anew at every visit, and hyperparameters wait, until the bound rises
        by less than this many times the rise at which a fit has converged.
    keeps_known : bool
        Whether the rounding errors of a fit depend on what a visit leaves to the next one as
        known, so that a fit which is resumed needs it. Else it saves work alone.
    """

    n_components: int
    update_rule: ClassVar[str]
    keeps_known: ClassVar[bool] = False
    accelerates: Any = False
    exploring_factor: float = 1.0

    @property
    def recommended(self) -> Recommended:
        """The values of the ``"auto"`` parameters of annealing methods, by their names."""
        return {}

    @abstractmethod
    def capabilities(self) -> dict[str, str | None]:
        """Return which operations the model supports, of those that only some methods need.

        The keys are names in ``sklearn_anneal.annealing.CAPABILITIES``. A value is None if the
        model supports the operation; otherwise it is the reason why not, which error messages
        quote. An operation whose name is absent is not supported either.
        """

    # Data, prior and starts

    @abstractmethod
    def summary(self, units: U) -> S:
        """Return the total weight and the moments of the data, from one pass over them.

        The summary is a dataclass with the attribute ``weight``, which streams replace by the
        weight of the data to come, and with two methods. ``merge(other)`` returns the summary of
        both data sets together. ``continued(other)`` returns the summary to use when a fit goes on
        with other data but keeps its priors. Units that are seen relative to a center
        (:meth:`Units.centered`) read it from the summary too.
        """

    def resolved(self, summary: S, hold_units: bool = False) -> Self:
        """Return a model in which the hyperparameters that depend on data have their values.

        Some models have parameters of single data points, such as the factors of a user. With
        ``hold_units`` these are blocks of q like other parameters. Without it they are local
        variables, which every visit infers anew.
        """
        return self

    @abstractmethod
    def prior(self, summary: S) -> Natural:
        """Return λ₀, the natural parameters of the prior, broadcastable to λ."""

    @abstractmethod
    def init(
        self, units: U, summary: S, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """Return the initial λ of ``init_params``; ``units`` may be a subset."""

    @abstractmethod
    def random_natural(
        self, summary: S, prior: Natural, rng: np.random.Generator, block: Block | None = None
    ) -> Natural:
        """Return random natural parameters, drawn without looking at single data points.

        With a ``block``, the result must have the keys of this block and of the blocks after it
        that are updated without a new local step; other keys may be missing.
        """

    # Inference

    @abstractmethod
    def visit(
        self,
        q: Natural,
        units: U,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        block: Block | None = None,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        evaluation: bool = False,
        known: Known | None = None,
        workers: Workers = SEQUENTIAL,
    ) -> Visit[U]:
        """Prepare a visit to some data.

        Parameters
        ----------
        q : dict of ndarray
            λ, the current natural parameters.
        units : Units
            The data.
        t : Tempering
            The factors by which annealing changes the update.
        block : Block or None, default=None
            The block whose update needs the visit; None for the first block.
        rng : numpy.random.Generator or None, default=None
            If given, local steps use one draw β ~ q(β) from this generator instead of
            expectations under q(β).
        unit_temperatures : UnitTemperatures or None, default=None
            If given, local steps infer a temperature for every data point.
        separate_noise : bool, default=False
            Whether random weights are deviations from 1. The statistics that they produce are
            then returned separately from those of the data.
        evaluation : bool, default=False
            Whether the visit serves to compute the lower bound. It then uses the local step
            whose sum is the bound, even if the model is fitted with another local step.
        known : object
            Results about q that the last visit computed (:attr:`Visit.known`). This visit may
            reuse them and may empty the object.
        workers : Workers
            Workers among which the preparation can be divided.
        """

    def learned(
        self,
        q: Natural,
        prior: Natural,
        step: LocalStep | None,
        rho: float,
        scale: float,
        late: bool = True,
    ) -> tuple[Self, Natural, Natural]:
        """Return the model, its prior and q after an empirical-Bayes step.

        Such a step changes hyperparameters that are learned from the data. ``q`` has the
        parameters after an update, and ``step`` is the local step from which they were computed.
        ``rho`` is the step size. ``scale`` is the total weight of all data divided by the weight
        of the batch, which statistics of the batch must be multiplied by. ``late`` is whether
        the bound hardly rises any more; before, only what need not wait is learned, and ``step``
        is None if there has been no update yet.
        """
        return self, prior, q

    def operations(self, units: U) -> float:
        """Return how many floating-point operations one local step over data points takes.

        The estimate decides whether parallel work is worth its overhead.
        """
        return 0.0

    def coinciding(self, q: Natural, summary: S, prior: Natural) -> list[tuple[int, int]]:
        """Return the pairs of components that have data but the same parameters."""
        return []


class ConjugateModel(Model[U, S]):
    """A conditionally conjugate model, whose update adds expected statistics to the prior.

    Besides the abstract methods of :class:`Model`, a plain model defines :meth:`factors`,
    :meth:`expectations` and :meth:`local_step`. A model whose visits need more preparation
    overrides :meth:`visit` and returns a subclass of :class:`Visit`.
    """

    update_rule = "conjugate"

    @abstractmethod
    def factors(self) -> Factors:
        """Return the factors of q(β), in the order in which the bound adds their terms."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in the order of their updates; by default one block has all parameters."""
        return (Block(self.factors().keys),)

    def visit(
        self,
        q: Natural,
        units: U,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        block: Block | None = None,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        evaluation: bool = False,
        known: Known | None = None,
        workers: Workers = SEQUENTIAL,
    ) -> Visit[U]:
        return Visit(self, self.expectations(q, rng), t, unit_temperatures, separate_noise)

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Expected:
        """Return the expectations under q(β) that the local step reads.

        With ``rng``, the same functions are taken of one draw β ~ q(β).
        """
        raise NotImplementedError

    def local_step(
        self,
        units: U,
        expected: Expected,
        t: Tempering,
        noise: np.ndarray | None = None,
        separate_noise: bool = False,
    ) -> LocalStep:
        """Infer q(z) ∝ exp{t.local E log p(x, z | β)} and return its expected statistics.

        The statistics are multiplied by ``t.statistics`` and by ``noise`` (n_weight_units,), if
        there is any. With ``separate_noise``, the statistics without noise are returned as
        ``statistics`` and those with noise as ``deviation``.
        """
        raise NotImplementedError

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        """Return the statistics of one block, in the shapes of its natural parameters."""
        return {key: raw[key] for key in block.keys}

    def further(
        self,
        q: Natural,
        prior: Natural,
        units: U,
        local: Any,
        momentum: Any,
        exploring: int = 0,
    ) -> tuple[Natural, Any, int, Any] | None:
        """Return q and the local variables after more plain passes, and how many these were.

        The loop makes them after a plain pass over all the data, and takes them back if the next
        visit finds a lower bound than that of the pass. They compute no bound and learn no priors.
        After a pass that explores, ``exploring`` passes explore as well, and stay. If the model
        returns fewer, the loop makes the others. Whether there are any depends on no more of the
        data than their summary, so that fits to parts and to weighted rows make the same passes.
        ``local`` has the local variables of each chunk, which do not change. ``momentum`` is what
        the last call in the same fit has returned in addition, and None at first. None stands for
        data for which the model makes no such passes.
        """
        return None

    @abstractmethod
    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Return q after a random displacement that stays in the domain of the parameters."""

    def log_partition(self, x: np.ndarray, summary: S, q: Natural) -> np.ndarray:
        """Return the log partition function log C(x) of the tempered model of all data, in nats.

        ``x`` has inverse temperatures, and the result has its shape.
        """
        raise NotImplementedError

    def unit_log_partition(self, x: np.ndarray, summary: S, q: Natural) -> Any:
        """Return log c(x) of one data point, in the form in which visits with temperatures read it.

        These are visits that infer a temperature for every data point.
        """
        raise NotImplementedError

    def kl(
        self, q: Natural, prior: Natural, known: Known | None = None, workers: Workers = SEQUENTIAL
    ) -> float:
        """Return KL(q(β) ‖ p(β)) in nats, with every constant.

        Parameters of single data points are not included, because visits add their terms to the
        local step. ``known`` has results about the same q that a visit computed
        (:attr:`Visit.known`). The ``workers`` may share the work.
        """
        return self.factors().kl(q, prior)

    def entropy(self, q: Natural, known: Known | None = None) -> float:
        """Return the entropy H[q(β)] in nats; :meth:`kl` explains the arguments."""
        return self.factors().entropy(q)


Decay = Mapping[str, float | np.ndarray]
"""Parameters that shrink at steps, by their keys, with λ of them all or of each entry."""


class Optimizer(Protocol):
    """An optimizer turns gradients into steps. It is a value without state."""

    @property
    def averaging(self) -> float | None:
        """γ of the mean of the parameters that a fit returns; None for the last parameters."""

    @property
    def gain(self) -> float | None:
        """The sum of the steps that follow a gradient of 1; None if they do not grow with it."""

    def start(self, q: Natural) -> dict[str, Natural]:
        """Return the moments before the first step, by their names, in float64."""

    def step(
        self,
        q: Natural,
        gradient: Natural,
        moments: dict[str, Natural],
        n_steps: int,
        decay: Decay | None = None,
        constrained: bool = False,
    ) -> tuple[Natural, dict[str, Natural]]:
        """Return q and the moments after step number ``n_steps``, which is 1 at the first.

        A step of size ρ also shrinks the parameters that have a ``decay`` λ by the share ρ λ of
        themselves (Loshchilov and Hutter, 2019, "Decoupled weight decay regularization").
        ``constrained`` says whether the step follows a constraint.
        """


class GradientModel(Model[U, S]):
    """A model that is trained by unbiased gradients of its lower bound.

    ``sklearn_anneal.inference.gradient`` describes the results of its visits. ``q`` has parameters
    without constraints. The ``visit`` of such a model takes the further argument ``constraint``:
    the name of a statistic of q that the local steps return as :attr:`LocalStep.constraints`, or
    None.

    Attributes
    ----------
    optimizer : Optimizer
        One of ``sklearn_anneal.inference.gradient.OPTIMIZERS``, with its settings.
    keys : tuple of str
        The names of the parameters.
    """

    update_rule = "gradient"
    optimizer: Optimizer
    keys: tuple[str, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """One block with all parameters, because every step moves all of them."""
        return (Block(self.keys),)

    def kl(
        self, q: Natural, prior: Natural, known: Known | None = None, workers: Workers = SEQUENTIAL
    ) -> float:
        """Return KL(q(β) ‖ p(β)) in nats; 0 for parameters that are points."""
        return 0.0

    def kl_gradient(self, q: Natural, prior: Natural) -> Natural:
        """Return the gradient of :meth:`kl`; parameters on which it does not depend are absent."""
        return {}

    def centered_gradient(self, q: Natural, gradient: Natural) -> Natural:
        """Return the gradient with respect to the parameters in which steps are taken.

        They are ``q`` itself here. A model can take steps in a linear function of it instead, in
        which gradients of different parameters have less to do with each other.
        """
        return gradient

    def after_step(self, before: Natural, after: Natural) -> Natural:
        """Return ``q`` after a step that led from ``before`` to ``after`` in those parameters."""
        return after

    def decay(self, q: Natural, summary: S, share: float) -> Decay:
        """Return λ of the parameters that decay at a step; others are absent.

        The step follows a batch that is this ``share`` of the data.
        """
        return {}
