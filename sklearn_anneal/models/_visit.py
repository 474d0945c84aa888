"""Visits: passes over some data, each with everything that it needs besides the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np

from ..data.units import U
from ..families import Natural, Tempering, UnitTemperatures

Expected = Any
"""The form in which a local step reads the global parameters; every model has its own."""

Known = dict[str, Any]
"""Results about q(β), by names, which one visit leaves to the next; every model has its own."""


class Constraint(NamedTuple):
    """A statistic f of q that proximity keeps near its recent value, and the gradient of f.

    A statistic can have several parts, such as the mean activation of each unit of a network.
    The part j must then depend only on the entries j, along the first axis, of the parameters.

    Attributes
    ----------
    value : dict of ndarray
        Σ w f(x_n) by parameter: a number, or the parts of f in the shape of the leading axes of
        the parameter. If f is one number, it is the same for all parameters.
    gradient : dict of ndarray
        ∂f/∂q by parameter, in the shape of the parameter. Entry j is the gradient of part j.
    """

    value: Natural
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

    Attributes
    ----------
    statistics : dict of ndarray
        Raw expected statistics, weighted and multiplied by the factors of annealing. They include
        the effect of random weights, unless that is in ``deviation``.
    energy : float
        Σ w E_q[log p(x, z | β)], nats. In a model with local parameters θ it is
        Σ w E_q[log p(x, z | θ, β)].
    entropy : float
        Σ w H[q(z)], nats. It includes the entropy of local parameters.
    log_prior : float
        Σ w E_q[log p(θ)] of local parameters with a conjugate prior, nats.
    deviation : dict of ndarray or None
        The change of the statistics by random weights, if ``separate_noise`` keeps it apart.
    temperature : float or None
        Σ w T, if every data point has a temperature of its own.
    inverse_temperatures : ndarray of shape (n_units,) or None
        E[1/T] of each data point, if every data point has a temperature of its own.
    local : object
        Local variables, from which the next visit can start; None for models without any.
    rows : slice or None
        The units to which the rows of the statistics belong, if there is one row per unit.
    constraints : tuple of Constraint
        The statistics of q that proximity needs, in models that are trained by gradients.
    likelihood : float or None
        Σ w E_q[log p(x | z, β)], nats, of models in which annealing tempers nothing else.
    squares : float or None
        Σ w ℓ², the squares of the bounds ℓ of single data points, for models whose bound is an
        estimate from draws.
    exact_bound : float or None
        The sum of ``energy``, ``entropy`` and ``log_prior`` without their rounding errors, where
        these are so large that the sum loses its digits.
    """

    statistics: Natural
    energy: float
    entropy: float
    log_prior: float = 0.0
    deviation: Natural | None = None
    temperature: float | None = None
    inverse_temperatures: np.ndarray | None = field(default=None, repr=False)
    local: Any = None
    rows: Any = None
    constraints: tuple[Constraint, ...] = ()
    likelihood: float | None = None
    squares: float | None = None
    exact_bound: float | None = None

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
        The model whose ``local_step`` and ``locally_tempered_step`` are called.
    expected : object
        The expectations under q(β), in the form in which these two methods read them.
    t : Tempering
        The factors by which annealing changes the update.
    unit_temperatures : UnitTemperatures or None, default=None
        If given, local steps infer a temperature for every data point.
    separate_noise : bool, default=False
        Whether random weights are deviations from 1. The statistics that they produce are then
        returned separately from those of the data.
    learns_late : bool, default=False
        Whether the model learns hyperparameters, and should do so only when the lower bound
        hardly rises any more.
    known : dict or None, default=None
        Results about q(β) that the next visit can reuse, if q(β) is still the same.
    """

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
        if self.unit_temperatures is not None:
            return self.model.locally_tempered_step(
                units, self.expected, self.unit_temperatures, noise
            )
        return self.model.local_step(
            units, self.expected, self.t, noise, self.separate_noise and noise is not None
        )

    def merge(self, a: LocalStep, b: LocalStep) -> LocalStep:
        """Return the sum of the local steps of two consecutive chunks, and change neither."""
        return a + b

    def finish(self, step: LocalStep) -> LocalStep:
        """Complete the merged local step of all chunks; the arrays of ``step`` may be reused."""
        return step

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        """Return V S of structured stochastic VI, after a visit with a draw of the parameters.

        V is a random matrix whose expectation is the identity, and S are the statistics ``stats``.
        """
        raise NotImplementedError
