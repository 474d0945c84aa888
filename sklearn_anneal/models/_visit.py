"""A visit: one look of the loop at some data, with everything that it needs beside the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..families import Natural, Tempering, UnitTemperatures


@dataclass
class LocalStep:
    """What the data say, given the global parameters; the steps of two sets of data can be added.

    Attributes
    ----------
    statistics : dict of ndarray
        Raw expected statistics, weighted and multiplied by the factors of annealing. Noise whose
        deviation is kept apart is not in them.
    energy : float
        Σ w E_q[log p(x, z | β)], nats; it is given local parameters too, where there are any.
    entropy : float
        Σ w H[q(z)], nats; that of local parameters is included.
    log_prior : float
        Σ w E_q[log p(θ)] of local parameters with a conjugate prior, nats.
    deviation : dict of ndarray or None
        What noise that is kept apart adds to the statistics.
    temperature : float or None
        Σ w T where every data point has a temperature of its own.
    inverse_temperatures : ndarray of shape (n_units,) or None
        E[1/T] of each data point, likewise. Sums do not keep it.
    local : object
        Local variables, with which the next visit can start; None for models without any. Sums do
        not keep them.
    rows : slice or None
        Of which units the statistics are, where they have a row for each.
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

    @property
    def bound(self) -> float:
        """What the data add to the lower bound at T = 1."""
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
        )


def _added(a: Natural, b: Natural) -> Natural:
    return {key: value + b[key] for key, value in a.items()}


@dataclass(frozen=True)
class Visit:
    """One look of the loop at some data, for the update of one block of q(β).

    A visit is prepared once, by :meth:`ConjugateModel.visit`, and is read-only while the chunks of
    its data are worked on, in any order and in any process. The loop calls :meth:`view` once,
    :meth:`start` and :meth:`step` for every chunk, :meth:`merge` in the fixed order of the chunks,
    and :meth:`finish` once. A visit can be pickled, and is all that travels beside the data.

    This class serves models whose local step has nothing to prepare and nothing to complete.

    Parameters
    ----------
    model : ConjugateModel
        Whose ``local_step`` and ``locally_tempered_step`` are called.
    expected : object
        What they read of q(β).
    t : Tempering
        The factors of annealing.
    unit_temperatures : UnitTemperatures or None, default=None
        Asks for local steps with one temperature per data point.
    separate_noise : bool, default=False
        Whether random weights are deviations from 1, whose statistics are kept apart.
    """

    model: Any
    expected: Any
    t: Tempering
    unit_temperatures: UnitTemperatures | None = None
    separate_noise: bool = False

    tells_bound: ClassVar[bool] = True
    """Whether the sum of the local steps at T = 1, as it is, gives the lower bound."""

    known: ClassVar[Any] = None
    """What the visit found of q(β), for the next visit to use again; None for nothing."""

    def view(self, units: Any) -> Any:
        """The data points in the form in which the steps of this visit take them."""
        return units

    def start(
        self, units: Any, local: Any, exploring: bool, noise: float, rng: np.random.Generator
    ) -> Any:
        """Where the local variables of a chunk start; None for models without any.

        Parameters
        ----------
        units : Units
            The data points of the chunk.
        local : object
            The local variables that the last visit found for the same data points; None at the
            first visit.
        exploring : bool
            Whether better optima may be worth a start that forgets them.
        noise : float
            The share of random local variables that is mixed in, from 0 to 1.
        rng : numpy.random.Generator
        """
        return None

    def step(self, units: Any, noise: np.ndarray | None = None, local: Any = None) -> LocalStep:
        """The local step of one chunk.

        Parameters
        ----------
        units : Units
            The data points of the chunk, as :meth:`view` gives them.
        noise : ndarray of shape (n_weight_units,) or None, default=None
            Random factors of the statistics.
        local : object
            The result of :meth:`start`, which is left as it is.
        """
        if self.unit_temperatures is not None:
            return self.model.locally_tempered_step(
                units, self.expected, self.unit_temperatures, noise
            )
        return self.model.local_step(
            units, self.expected, self.t, noise, self.separate_noise and noise is not None
        )

    def merge(self, a: LocalStep, b: LocalStep) -> LocalStep:
        """The local steps of two consecutive chunks as one; neither of them is changed."""
        return a + b

    def finish(self, step: LocalStep) -> LocalStep:
        """What is done once for all chunks; the arrays of ``step`` may be used for the result."""
        return step

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        """V S of structured stochastic VI, where the visit saw a draw of the parameters."""
        raise NotImplementedError
