"""What the loop of inference asks of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import import_module
from operator import add
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..families import Family, Natural, Tempering, backoff

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


class Factor(NamedTuple):
    """One factor of q(β): a family and the arrays of the model that hold its parameters.

    Attributes
    ----------
    family : Family
    names : dict
        The family's key → the model's key.
    """

    family: Family
    names: Mapping[str, str]

    def pick(self, natural: Natural) -> Natural:
        """The family's view of a model's natural parameters."""
        return {key: natural[name] for key, name in self.names.items()}

    def rename(self, natural: Natural) -> Natural:
        """The model's view of a family's natural parameters."""
        return {self.names[key]: value for key, value in natural.items()}


@dataclass
class LocalStep:
    """What the data say, given the global parameters; sums over data points can be added.

    Attributes
    ----------
    statistics : dict of ndarray
        Raw expected statistics, weighted and multiplied by the factors of annealing; without
        noise that comes apart.
    energy : float
        Σ w E_q[log p(x, z | β)], nats; given local parameters too, where there are any.
    entropy : float
        Σ w H[q(z)], nats; of local parameters too.
    log_prior : float
        Σ w E_q[log p(θ)] of local parameters with a conjugate prior, nats.
    deviation : dict of ndarray or None
        What noise that comes apart adds to the statistics.
    temperature : float or None
        Σ w T where every data point has a temperature of its own.
    inverse_temperatures : ndarray of shape (n_units,) or None
        E[1/T] of each data point, likewise. Not kept by sums.
    local : object
        Local variables for warm starts; None for models without. Not kept by sums.
    """

    statistics: Natural
    energy: float
    entropy: float
    log_prior: float = 0.0
    deviation: Natural | None = None
    temperature: float | None = None
    inverse_temperatures: np.ndarray | None = field(default=None, repr=False)
    local: Any = None

    @property
    def bound(self) -> float:
        """What the data add to the lower bound at T = 1."""
        return self.energy + self.log_prior + self.entropy

    def __add__(self, other: LocalStep) -> LocalStep:
        # In place: the arrays of a sum are its own, those of ``self`` are not read again.
        def added(a, b):
            if a is not None:
                for key, value in b.items():
                    a[key] += value
            return a

        def total(a, b):
            return None if a is None else a + b

        return LocalStep(
            statistics=added(self.statistics, other.statistics),  # type: ignore[arg-type]
            energy=self.energy + other.energy,
            entropy=self.entropy + other.entropy,
            log_prior=self.log_prior + other.log_prior,
            deviation=added(self.deviation, other.deviation),
            temperature=total(self.temperature, other.temperature),
        )


class ConjugateModel(ABC):
    """A conditionally conjugate model: hyperparameters, and functions of their arguments.

    Natural parameters, priors and statistics are values that are passed in and returned. What
    only some annealing methods ask for (``sample_expectations``, ``log_partition``,
    ``unit_log_partition``, ``locally_tempered_step``, ``assignments``, ``assignment_entropy``,
    ``exact_gradient_statistics``) is not declared here: a model has it or has not, and a
    combination that lacks one is refused before any work.
    """

    weight_unit: ClassVar[str] = "row"
    kernel_module: ClassVar[str]
    local_variables: ClassVar[bool] = False
    recommended: ClassVar[dict[str, dict[str, Any]]] = {}

    @abstractmethod
    def factors(self) -> tuple[Factor, ...]:
        """The factors of q(β) in their order in the bound."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in the order of their updates."""
        return (Block(tuple(name for f in self.factors() for name in f.names.values())),)

    @abstractmethod
    def summary(self, units: Any) -> Any:
        """Total weight and moments of the data, in one pass over them."""

    def resolved(self, summary: Any) -> ConjugateModel:
        """The model with the hyperparameters that depend on data filled in."""
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
    def random_natural(self, summary: Any, prior: Natural, rng: np.random.Generator) -> Natural:
        """A random initialisation that does not look at single data points."""

    @abstractmethod
    def expectations(self, q: Natural) -> Expected:
        """What the local step needs of q(β)."""

    @abstractmethod
    def local_step(
        self,
        units: Any,
        expected: Expected,
        t: Tempering,
        noise: np.ndarray | None = None,
        local: Any = None,
        apart: bool = False,
    ) -> LocalStep:
        """q(z) ∝ exp{t.local E log p(x, z | β)} and its statistics times t.statistics.

        ``noise`` (n_weight_units,) multiplies the statistics as well. With ``apart``, which is
        for noise alone, those with it are the step's ``deviation``, beside those without.
        """

    # Local variables, for models that have any

    def local_start(self, units: Any, local: Any, exploring: bool, rng: np.random.Generator) -> Any:
        """Where the local variables of a visit start; None for models without any.

        ``local`` has those that the last visit to the same units found, None at the first.
        While ``exploring``, better optima may be worth a start from nowhere.
        """
        return None

    def noisy_local_start(
        self, units: Any, local: Any, share: float, rng: np.random.Generator
    ) -> Any:
        """The same, mixed with a share of random local variables."""
        return self.local_start(units, local, True, rng)

    def holding(self, units: bool) -> ConjugateModel:
        """The model with the parameters of single data points as blocks of q, where asked.

        Otherwise they are local variables. Itself for models that have no choice.
        """
        return self

    def evaluator(self) -> ConjugateModel:
        """The model whose local step tells the bound; itself unless its own one is another's."""
        return self

    # What a visit does once, before and after the chunks of its units

    def visiting(self, block: Block, units: Any) -> tuple[ConjugateModel, Any]:
        """The model and the data points as a visit for the update of a block sees them.

        The model may hold arrays that the local steps of this visit write into.
        """
        return self, units

    def prepared(self, expected: Expected, t: Tempering, workers: Any = None) -> Expected:
        """``expected`` in the form in which the local step reads it at a temperature.

        ``workers`` can share the work; None for the calling thread alone.
        """
        return expected

    def resumed(self, summary: Any, units: Any) -> Any:
        """The summary of the data that a fit goes on with; what priors are made of stays."""
        return summary

    def locally_prepared(self, expected: Expected) -> Expected:
        """``expected`` in the form in which the locally tempered step reads it."""
        return expected

    def total(self, parts: Iterable[LocalStep]) -> LocalStep:
        """The local steps of all chunks, which come in their order, as one."""
        return reduce(add, parts)

    def completed(self, step: LocalStep, expected: Expected, t: Tempering) -> LocalStep:
        """The sum of the local steps of all chunks, with what is done once for all of them."""
        return step

    def learned(
        self, q: Natural, prior: Natural, step: LocalStep, rho: float, scale: float
    ) -> tuple[ConjugateModel, Natural, Natural]:
        """The model, its prior and q after an empirical-Bayes step on the hyperparameters.

        ``q`` are the parameters after an update, ``step`` the local step that led to them,
        ``rho`` is the size of the step, ``scale`` what its batch must be multiplied by to stand
        for all data.
        """
        return self, prior, q

    def block_statistics(self, block: Block, raw: Natural, q: Natural) -> Natural:
        """The statistics of one block, of the shapes of its natural parameters."""
        return {key: raw[key] for key in block.keys}

    @abstractmethod
    def jitter(self, q: Natural, size: float, rng: np.random.Generator, prior: Natural) -> Natural:
        """q with its parameters displaced at random, inside the domain."""

    def base(self, q: Natural) -> Natural:
        """Values of the natural parameters at the flat density, broadcastable to q."""
        result: Natural = {}
        for factor in self.factors():
            result.update(factor.rename(factor.family.base(factor.pick(q))))
        return result

    def operations(self, units: Any) -> float:
        """Floating-point operations of one local step over data points, to plan parallel work."""
        return 0.0

    def coinciding(self, q: Natural, summary: Any, prior: Natural) -> list[tuple[int, int]]:
        """Pairs of used components that cannot be told apart."""
        return []

    def kl(self, q: Natural, prior: Natural) -> float:
        """KL(q(β) ‖ p(β)) in nats, complete."""
        return sum(f.family.kl(f.pick(q), f.pick(prior)) for f in self.factors())

    def entropy(self, q: Natural) -> float:
        """H[q(β)] in nats."""
        return sum(f.family.entropy(f.pick(q)) for f in self.factors())

    def valid(self, q: Natural) -> bool:
        """Whether all natural parameters lie in their domains."""
        return all(bool(np.all(f.family.valid(f.pick(q)))) for f in self.factors())

    def backoff(
        self, clean: Natural, deviation: Natural, share: float, margin: float = 0.0
    ) -> Natural:
        """Per leading row, as much of ``share`` of a deviation as leaves it valid (see families).

        The arrays of ``clean`` may be used for the result.
        """
        result: Natural = {}
        for f in self._within(clean):
            reference = f.pick(clean)

            def valid(natural, family=f.family, reference=reference):
                return family.valid(natural, reference, margin)

            result.update(f.rename(backoff(reference, f.pick(deviation), valid, share)))
        return result

    def replace_invalid(self, candidate: Natural, fallback: Natural) -> Natural:
        """``candidate`` where its rows are valid, ``fallback`` where they are not."""
        result: Natural = {}
        for f in self._within(candidate):
            new, old = f.pick(candidate), f.pick(fallback)
            ok = np.asarray(f.family.valid(new))
            for key, name in f.names.items():
                mask = ok.reshape(ok.shape + (1,) * (new[key].ndim - ok.ndim))
                result[name] = np.where(mask, new[key], old[key])
        return result

    def _within(self, natural: Natural) -> list[Factor]:
        """The factors whose arrays are all in a (partial) set of natural parameters."""
        return [f for f in self.factors() if all(name in natural for name in f.names.values())]
