"""What the loop of inference asks of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..families import Factor, Factors, Natural, Tempering, UnitTemperatures
from ..inference.parallel import SEQUENTIAL, Workers
from ._visit import LocalStep, Visit

__all__ = [
    "Block",
    "ConjugateModel",
    "Expected",
    "Factor",
    "Factors",
    "LocalStep",
    "Model",
    "UnitTemperatures",
    "Visit",
    "coinciding",
    "compiled",
]

Expected = Any
"""What a model's local step needs of the global parameters; the model's own business."""

_COINCIDENCE = 1e-6


@cache
def compiled(name: str) -> Any:
    """The compiled kernels of a module, imported when they are first needed."""
    return import_module(f"..kernels.{name}", __package__)


def coinciding(points: np.ndarray, used: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of the rows ``used`` of ``points`` that cannot be told apart."""
    points = points[used]
    pairs = []
    for i in range(len(used)):
        near = np.abs(points[i + 1 :] - points[i]).max(axis=1) < _COINCIDENCE
        pairs += [(int(used[i]), int(used[i + 1 + j])) for j in np.flatnonzero(near)]
    return pairs


class Block(NamedTuple):
    """Natural parameters that are updated together.

    Attributes
    ----------
    keys : tuple of str
    refresh : bool
        Whether a new local step precedes the update; without one, the statistics of the block
        before are used again.
    """

    keys: tuple[str, ...]
    refresh: bool = True


class Model(ABC):
    """A model with latent variables: hyperparameters, and functions of their arguments.

    Parameters, priors and statistics are values that are passed in and returned. A model keeps
    nothing of a fit: what one look at the data needs is in the :class:`Visit` that it prepares.

    Attributes
    ----------
    n_components : int
        Number of components, topics, states or factors.
    recommended : dict
        Name of an annealing method → the values of its ``"auto"`` parameters for this model.
    """

    n_components: int
    recommended: ClassVar[dict[str, dict[str, Any]]] = {}

    @abstractmethod
    def capabilities(self) -> dict[str, str | None]:
        """What only some annealing methods ask for: None if the model can do it, or why not.

        The names are those of ``sklearn_anneal.annealing.CAPABILITIES``. A name that is absent
        stands for something that the model does not have.
        """

    # Data, prior and starts

    @abstractmethod
    def summary(self, units: Any) -> Any:
        """Total weight and moments of the data, in one pass over them.

        A dataclass with the attribute ``weight``, which streams replace by that of the data to
        come, and with two methods. ``merge(other)`` is the summary of both data sets.
        ``continued(other)`` is that of other data, with which a fit goes on whose priors stay.
        Units that are seen relative to a center (:meth:`Units.centered`) read it from here too.
        """

    def resolved(self, summary: Any, hold_units: bool = False) -> Model:
        """The model with the hyperparameters that depend on data filled in.

        With ``hold_units``, parameters of single data points, where there are any, become blocks
        of q like others; if not, they are local variables, which every visit finds anew.
        """
        return self

    @abstractmethod
    def prior(self, summary: Any) -> Natural:
        """λ₀, broadcastable to λ."""

    @abstractmethod
    def init(
        self, units: Any, summary: Any, prior: Natural, random_state: np.random.RandomState
    ) -> Natural:
        """The start that ``init_params`` asks for, from ``units`` that may be a subset."""

    @abstractmethod
    def random_natural(
        self, summary: Any, prior: Natural, rng: np.random.Generator, block: Block | None = None
    ) -> Natural:
        """A random initialisation that does not look at single data points.

        With a ``block``, at least of its keys and of those of the blocks that follow it without a
        visit of their own.
        """

    # Inference

    @abstractmethod
    def visit(
        self,
        q: Natural,
        units: Any,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        block: Block | None = None,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        evaluation: bool = False,
        known: Any = None,
        workers: Workers = SEQUENTIAL,
    ) -> Visit:
        """Prepare a visit to some data.

        Parameters
        ----------
        q : dict of ndarray
            λ, the current natural parameters.
        units : Units
            The data.
        t : Tempering
            The factors of annealing.
        block : Block or None, default=None
            The block whose update the visit is for; None: the first one.
        rng : numpy.random.Generator or None, default=None
            Local steps see one draw β ~ q(β) from it in the place of expectations.
        unit_temperatures : UnitTemperatures or None, default=None
            Local steps infer a temperature for every data point.
        separate_noise : bool, default=False
            Whether random weights are deviations from 1, whose statistics are kept apart.
        evaluation : bool, default=False
            Whether the visit is there to tell the lower bound, whatever the model is fitted with.
        known : object
            What the last visit found of q (:attr:`Visit.known`); it is used up.
        workers : Workers
            They can share the work.
        """

    def learned(
        self, q: Natural, prior: Natural, step: LocalStep, rho: float, scale: float
    ) -> tuple[Model, Natural, Natural]:
        """The model, its prior and q after an empirical-Bayes step on the hyperparameters.

        ``q`` are the parameters after an update, ``step`` the local step that led to them,
        ``rho`` is the size of the step, ``scale`` the factor by which its batch must be
        multiplied to stand for all data.
        """
        return self, prior, q

    def operations(self, units: Any) -> float:
        """Floating-point operations of one local step over data points, to plan parallel work."""
        return 0.0

    def coinciding(self, q: Natural, summary: Any, prior: Natural) -> list[tuple[int, int]]:
        """Pairs of used components that cannot be told apart."""
        return []


class ConjugateModel(Model):
    """A conditionally conjugate model, whose update adds expected statistics to the prior.

    A plain model defines :meth:`factors`, :meth:`expectations` and :meth:`local_step` besides
    what :class:`Model` asks for. A model with more to do per visit overrides :meth:`visit` and
    returns a :class:`Visit` of its own.
    """

    @abstractmethod
    def factors(self) -> Factors:
        """The factors of q(β) in their order in the bound."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in the order of their updates; by default all parameters are one."""
        return (Block(self.factors().keys),)

    def visit(
        self,
        q: Natural,
        units: Any,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        block: Block | None = None,
        rng: np.random.Generator | None = None,
        unit_temperatures: UnitTemperatures | None = None,
        separate_noise: bool = False,
        evaluation: bool = False,
        known: Any = None,
        workers: Workers = SEQUENTIAL,
    ) -> Visit:
        return Visit(self, self.expectations(q, rng), t, unit_temperatures, separate_noise)

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Expected:
        """What the local step needs of q(β), or, with ``rng``, of one draw β ~ q(β)."""
        raise NotImplementedError

    def local_step(
        self,
        units: Any,
        expected: Expected,
        t: Tempering,
        noise: np.ndarray | None = None,
        separate_noise: bool = False,
    ) -> LocalStep:
        """q(z) ∝ exp{t.local E log p(x, z | β)} and its statistics times t.statistics.

        ``noise`` (n_weight_units,) multiplies the statistics as well. With ``separate_noise``,
        the statistics with noise are the step's ``deviation``, beside those without.
        """
        raise NotImplementedError

    def locally_tempered_step(
        self,
        units: Any,
        expected: Expected,
        temperatures: UnitTemperatures,
        noise: np.ndarray | None = None,
    ) -> LocalStep:
        """The local step with one temperature per data point, which is inferred."""
        raise NotImplementedError

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        """The statistics of one block, of the shapes of its natural parameters."""
        return {key: raw[key] for key in block.keys}

    @abstractmethod
    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """q with its parameters displaced at random, inside the domain."""

    def log_partition(self, x: np.ndarray, summary: Any, q: Natural) -> np.ndarray:
        """log C(x) of all the data at inverse temperatures ``x``, of their shape, in nats."""
        raise NotImplementedError

    def unit_log_partition(self, x: np.ndarray, summary: Any, q: Natural) -> Any:
        """log c(x) of one data point, in the form that :meth:`locally_tempered_step` reads."""
        raise NotImplementedError

    def kl(self, q: Natural, prior: Natural, known: Any = None) -> float:
        """KL(q(β) ‖ p(β)) in nats, complete.

        Parameters of single data points are left to the visits, which tell what they add.
        ``known`` is what a visit found of the same q (:attr:`Visit.known`).
        """
        return self.factors().kl(q, prior)

    def entropy(self, q: Natural, known: Any = None) -> float:
        """H[q(β)] in nats; the arguments are those of :meth:`kl`."""
        return self.factors().entropy(q)
