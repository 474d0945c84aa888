"""The interface between the loop of inference and the models.

Every model is a :class:`Model`. A :class:`ConjugateModel` is one whose update adds expected
statistics to the prior, and a :class:`GradientModel` one whose update is a step along a gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self

import numpy as np

from ..data.units import U
from ..families import Factor, Factors, Natural, Tempering, UnitTemperatures
from ..parallel.workers import SEQUENTIAL, Workers
from ._summary import S
from ._visit import Constraint, Expected, Known, LocalStep, Visit

__all__ = [
    "Block",
    "Constraint",
    "ConjugateModel",
    "Expected",
    "Factor",
    "Factors",
    "GradientModel",
    "Known",
    "LocalStep",
    "Model",
    "Optimizer",
    "Recommended",
    "UnitTemperatures",
    "Visit",
    "coinciding",
    "compiled",
]

Recommended = Mapping[str, Mapping[str, bool | int | float | str]]
"""Name of an annealing method → the values of its ``"auto"`` parameters for a model."""

# Components whose coordinates all differ by less than this count as equal.
_COINCIDENCE = 1e-6


@cache
def compiled(name: str, plain: bool = False) -> ModuleType:
    """Return a module of kernels, which is imported when it is first needed.

    The kernels are compiled, or, if ``plain``, functions in numpy that take their place.
    """
    return import_module(f"..kernels.{'plain.' if plain else ''}{name}", __package__)


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


class Block(NamedTuple):
    """Natural parameters that are updated together.

    Attributes
    ----------
    keys : tuple of str
    refresh : bool
        Whether a new local step precedes the update. If not, the update uses the statistics that
        the local step of the preceding block has found.
    """

    keys: tuple[str, ...]
    refresh: bool = True


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
    """

    n_components: int
    update_rule: ClassVar[str]

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

    def locally_tempered_step(
        self,
        units: U,
        expected: Expected,
        temperatures: UnitTemperatures,
        noise: np.ndarray | None = None,
    ) -> LocalStep:
        """Return the local step in which every data point has a temperature that is inferred."""
        raise NotImplementedError

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        """Return the statistics of one block, in the shapes of its natural parameters."""
        return {key: raw[key] for key in block.keys}

    @abstractmethod
    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """Return q after a random displacement that stays in the domain of the parameters."""

    def log_partition(self, x: np.ndarray, summary: S, q: Natural) -> np.ndarray:
        """Return the log partition function log C(x) of the tempered model of all data, in nats.

        ``x`` has inverse temperatures, and the result has its shape.
        """
        raise NotImplementedError

    def unit_log_partition(self, x: np.ndarray, summary: S, q: Natural) -> Any:
        """Return log c(x) of one data point, in the form in which the local step reads it.

        The local step in question is :meth:`locally_tempered_step`.
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


class Optimizer(Protocol):
    """An optimizer turns gradients into steps. It is a value without state."""

    def start(self, q: Natural) -> dict[str, Natural]:
        """Return the moments before the first step, by their names, in float64."""

    def step(
        self, q: Natural, gradient: Natural, moments: dict[str, Natural], n_steps: int
    ) -> tuple[Natural, dict[str, Natural]]:
        """Return q and the moments after step number ``n_steps``, which is 1 at the first."""


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
