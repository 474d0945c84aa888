"""The settings of the loop, and the history and state that it keeps between two passes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..families import Natural, mix, settled
from ..models._base import Known
from ..parallel.workers import Workers
from .stopping import Rule
from .visits import Visited

# Pass t = b, b + 1, … enters the mean of the parameters with a weight of a / (t − b + a). After
# many passes, this is about a mean over the last t / a of them. The passes before t = b improve
# the parameters so fast that a mean would lag behind.
_RECENT, _FIRST_OF_MEAN = 5.0, 10


class Settings(NamedTuple):
    """How the loop runs.

    Attributes
    ----------
    max_iter : int
        Largest number of passes of the finish.
    stop : Rule
        The rule that decides when the finish has converged.
    batch_size : int or None
        Number of data points per update; None means all.
    learning_offset, learning_decay : float
        τ and κ in the step size ρ_t = (τ + t)^(−κ).
    passes_before_test : int
        Number of passes at T = 1, after a schedule, before the rule is tested for the first time.
        The bound can rise slowly at first, while components that the cooling has just separated
        move apart.
    validation : Units or None
        Data points that are kept from training. Their bound is recorded after every pass. The fit
        then ends at the parameters with the highest of these bounds since the end of the schedule.
    """

    max_iter: int
    stop: Rule
    batch_size: int | None
    learning_offset: float
    learning_decay: float
    passes_before_test: int = 20
    validation: Units | None = None

    def learning_rate(self, updates: int) -> float:
        """The step size ρ of the update that follows ``updates`` others."""
        return float((self.learning_offset + updates + 1) ** -self.learning_decay)


@dataclass
class Trace:
    """The history of a fit, one entry per pass.

    Attributes
    ----------
    lower_bounds : list of float
        The bound after each pass, at T = 1 and in nats. It is NaN where it was not evaluated.
    temperatures : list of float
        The temperature of each pass.
    initial : float
        The bound of the start; −∞ if the visits do not compute it.
    final : float
        The bound of the returned parameters.
    evaluated : bool
        Whether :func:`lower_bound` computed ``final``. If not, it comes from a visit in which
        local variables continued from the visit before.
    converged : bool
        Whether the stopping rule has ended the fit.
    stopped : bool
        Whether the monitor has ended the fit.
    reason : str
        Why the fit has ended, as a part of a sentence.
    standard_errors : list of float
        The standard error of each lower bound, nats, in models whose bound is an estimate.
    validation : list of float
        The bound of the data for validation after each pass, in nats per unit of weight.
    """

    lower_bounds: list[float] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    standard_errors: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    initial: float = -np.inf
    final: float = -np.inf
    evaluated: bool = True
    converged: bool = False
    stopped: bool = False
    reason: str = ""


@dataclass
class Progress:
    """The state of a fit between two passes: everything but the data that the next pass needs.

    Attributes
    ----------
    ctx : Context
        The parameters, the model, the clocks and the random generator.
    strategy : Annealing
        The annealing method, resolved and calibrated.
    trace : Trace
        The history of the fit so far.
    passes : int
        Number of passes so far.
    temperature : float
        The temperature of the last pass, in batch mode.
    local : list or None
        Local variables with which the next visit starts.
    finished : bool
        Whether the fit has ended.
    known : dict or None
        Quantities of q that the last visit computed. They save work and change no result, so
        that pickles leave them out.
    best : dict of ndarray or None
        The parameters with the highest bound of the data for validation so far, if there are any.
    mean, prior_of_mean : dict of ndarray or None
        A mean of the parameters after the passes so far, and the same mean of those of the prior.
        They are there if the method returns a mean and there have been enough passes.
    """

    ctx: Context
    strategy: Annealing
    trace: Trace = field(default_factory=Trace)
    passes: int = 0
    temperature: float = 1.0
    local: list | None = None
    finished: bool = False
    known: Known | None = None
    best: Natural | None = None
    mean: Natural | None = None
    prior_of_mean: Natural | None = None

    def as_returned(self) -> Context:
        """The context with the parameters that the fit would return if it ended now.

        Those of a mean are in new arrays, which later passes do not change.
        """
        ctx = self.ctx
        if self.mean is None or self.prior_of_mean is None:
            return ctx
        found = ctx.model.factors().of_mean(self.mean, self.prior_of_mean, ctx.prior)
        return replace(ctx, q=found)

    def advance(self, workers: Workers, visited: Visited | None = None) -> None:
        """Count a pass that is over.

        The parameters are added to the mean, if the method returns one. The next visit goes on from
        ``visited``, the last visit of the pass, if the pass was one over all the data at once.
        """
        if visited is not None:
            self.local, self.known = visited.local, visited.visit.known
        if self.strategy.returns_mean:
            q, later = settled(self.ctx.q), self.passes - _FIRST_OF_MEAN
            if later == 0:
                self.mean = {key: value.copy(order="K") for key, value in q.items()}
                self.prior_of_mean = self.ctx.prior
            elif later > 0:
                assert self.mean is not None
                assert self.prior_of_mean is not None
                kept = later / (later + _RECENT)
                self.mean = mix(q, self.mean, kept, overwrite=True, share=workers.share)
                if self.prior_of_mean is not self.ctx.prior:
                    self.prior_of_mean = mix(self.ctx.prior, self.prior_of_mean, kept)
        self.passes += 1

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "known": None}
