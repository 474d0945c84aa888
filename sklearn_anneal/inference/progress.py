"""The settings of the loop, and the history and state that it keeps between two passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..data.units import Units
from ..families import Natural, mix, settled
from ..models._base import Known
from ..parallel.workers import Workers
from . import gradient
from .stopping import Rule
from .visits import PLAIN, Visited

# Pass t = b, b + 1, … enters the mean of the parameters with a weight of a / (t − b + a). After
# many passes, this is about a mean over the last t / a of them. The passes before t = b improve
# the parameters so fast that a mean would lag behind.
_RECENT, _FIRST_OF_MEAN = 5.0, 10


# Momentum: the delay and the largest value of its share, and the share of the bound by which a rise
# can be a rounding error.
_DELAY, _LARGEST_SHARE, _ROUNDING = 3.0, 0.9, 1e-10
# If momentum fails before so many updates, the pause before the next trial doubles up to a limit.
_FAILS_AT_ONCE, _LONGEST_PAUSE = 3, 32


class Settings(NamedTuple):
    """How the loop runs."""

    max_iter: int  # largest number of passes of the finish
    stop: Rule  # the rule that decides when the finish has converged
    batch_size: int | None  # number of data points per update; None means all
    # τ and κ in the step size ρ_t = (τ + t)^(−κ).
    learning_offset: float
    learning_decay: float
    # Number of passes at T = 1, after a schedule, before the rule is tested for the first time. The
    # bound can rise slowly at first, while components that the cooling has just separated move
    # apart.
    passes_before_test: int = 20
    # Data points that are kept from training. Their bound is recorded after every pass. The fit
    # then ends at the parameters with the highest of these bounds since the end of the schedule.
    validation: Units | None = None
    # Whether plain passes over all the data have momentum, in models that accelerate.
    momentum: bool = False
    # A fit in batch mode pauses when the bound rises by less than so many times the rise at which
    # it has converged; 1 for one that does not pause.
    pause_factor: float = 1.0

    # τ, which None leaves as it is, and κ of the updates of a stream that follow a fit; None if
    # both are the same.
    rates_after_fit: tuple[float | None, float] | None = None

    def after_fit(self) -> Settings:
        """The settings of updates that follow a fit."""
        if self.rates_after_fit is None:
            return self
        offset, decay = self.rates_after_fit
        offset = self.learning_offset if offset is None else offset
        return self._replace(learning_offset=offset, learning_decay=decay)

    def learning_rate(self, updates: float) -> float:
        """The step size ρ of the update that follows ``updates`` others."""
        return float((self.learning_offset + updates + 1) ** -self.learning_decay)


@dataclass
class Trace:
    """The history of a fit, one entry per pass."""

    # The bound after each pass, at T = 1 and in nats. It is NaN where it was not evaluated.
    lower_bounds: list[float] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)  # the temperature of each pass
    # The standard error of each lower bound, nats, in models whose bound is an estimate.
    standard_errors: list[float] = field(default_factory=list)
    # The bound of the data for validation after each pass, in nats per unit of weight.
    validation: list[float] = field(default_factory=list)
    initial: float = -np.inf  # the bound of the start; −∞ if the visits do not compute it
    final: float = -np.inf  # the bound of the returned parameters
    # Whether :func:`lower_bound` computed ``final``. If not, it comes from a visit in which local
    # variables continued from the visit before.
    evaluated: bool = True
    converged: bool = False  # whether the stopping rule has ended the fit
    stopped: bool = False  # whether the monitor has ended the fit
    reason: str = ""  # why the fit has ended, as a part of a sentence

    @property
    def last(self) -> float:
        """The bound that was recorded last."""
        return self.lower_bounds[-1] if self.lower_bounds else self.initial


@dataclass
class Momentum:
    """The momentum of plain passes: updates go beyond their targets, and the bound is the judge.

    Where components overlap, coordinate ascent moves its parameters in the same direction for many
    passes, by a little in each. With momentum (Nesterov, 1983), an update goes on in the direction
    from the target of the update before to its own, λ = λ̂_t + s (λ̂_t − λ̂_{t−1}) with the share
    s = k / (k + 3), where k counts the updates since momentum began anew. The next pass computes
    the bound of the result in any case. If that is lower than the bound before, the pass goes back
    to the plain update, and momentum begins anew (O'Donoghue and Candès, 2015). The bound therefore
    falls only where plain updates lower it, as those of scatter matrices to which ``reg_covar`` is
    added may do.

    References
    ----------
    Nesterov (1983), A method for solving the convex programming problem with convergence rate
    O(1/k²). O'Donoghue and Candès (2015), Adaptive restart for accelerated gradient schemes.
    """

    count: int = 0  # k; 0 after a plain update
    share: float = 0.0  # s of the last update
    bound: float = -np.inf  # the bound of the parameters from which the last update began, nats
    target: Natural | None = None  # λ̂ of the last update, before priors were learned
    # The model, the prior and λ̂ of the last update, if that has gone further.
    plain: tuple[Any, Natural, Natural] | None = None
    # The argument of :meth:`Model.learned` in the last update; None if nothing was learned.
    late: bool | None = None
    # Number of plain updates after momentum has failed, and how many of them are to come.
    pause: int = 1
    remaining: int = 0

    def extend(
        self, ctx: Context, late: bool | None, bound: float, wanted: bool
    ) -> Callable[[Context], None] | None:
        """Go beyond the target λ̂ of an update, which is ``ctx.q``, as far as the domain allows.

        The update began at parameters with this bound. Unless more is ``wanted``, or if the bound
        did not rise before, it stays a plain one. If it does not, :meth:`undo` is returned, for the
        case that no priors can be learned from the result.
        """
        last, self.target, self.plain = self.target, ctx.q, None
        rises = bound - self.bound > _ROUNDING * abs(bound)
        self.count = self.count + 1 if wanted and rises and self.remaining == 0 and last else 0
        self.share = min(self.count / (self.count + _DELAY), _LARGEST_SHARE)
        self.remaining = max(self.remaining - 1, 0)
        self.bound, self.late = bound, late
        if self.count > 0 and last is not None:
            self.plain = ctx.model, ctx.prior, ctx.q
            ctx.q = ctx.model.factors().extended(self.target, last, ctx.prior, self.share)
        return None if self.plain is None else self.undo

    def undo(self, ctx: Context) -> None:
        """Go back to the plain update, and begin anew after a pause.

        The pause doubles, up to a limit, if momentum has failed at once.
        """
        assert self.plain is not None
        model, prior, q = self.plain
        if self.late is not None:
            model, prior, q = model.learned(q, prior, None, 1.0, 1.0, self.late)
        ctx.model, ctx.prior, ctx.q = model, prior, q
        self.pause = min(2 * self.pause, _LONGEST_PAUSE) if self.count < _FAILS_AT_ONCE else 1
        self.count, self.share, self.plain, self.remaining = 0, 0.0, None, self.pause


@dataclass
class Progress:
    """The state of a fit between two passes: everything but the data that the next pass needs."""

    ctx: Context  # the parameters, the model, the clocks and the random generator
    strategy: Annealing  # the annealing method, resolved and calibrated
    trace: Trace = field(default_factory=Trace)  # the history of the fit so far
    passes: int = 0  # number of passes so far
    temperature: float = 1.0  # the temperature of the last pass, in batch mode
    local: list | None = None  # local variables with which the next visit starts
    finished: bool = False  # whether the fit has ended
    paused: bool = False  # whether a rule has ended the fit for the time being
    # Quantities of q that the last visit computed, which save work. Pickles have them if the model
    # ``keeps_known``.
    known: Known | None = None
    # The parameters with the highest bound of the data for validation so far, if there are any.
    best: Natural | None = None
    # The momentum of plain passes, if they have any.
    momentum: Momentum = field(default_factory=Momentum)
    # Number of updates that momentum has undone, for each of which a pass visited the data once
    # more.
    undone: int = 0
    # The parameters and local variables before the passes that the model has added to the last one
    # (:meth:`Model.further`), and their number; None if it has added none. Whether it may.
    shorter: tuple[Natural, list] | None = None
    n_further: int = 0
    goes_further: bool = True
    # The same for passes that explore, and the number of those added to all passes so far.
    explores_further: bool = True
    n_explored: int = 0
    # The momentum with which the model makes such passes, once it has begun.
    momentum_of_further: Any = None
    # A mean of the parameters after the passes so far, and the same mean of those of the prior.
    # They are there if the method returns a mean and there have been enough passes.
    mean: Natural | None = None
    prior_of_mean: Natural | None = None
    # The mean with which the next one is compared, and the number of passes after which it was that
    # mean. There is none before priors are learned, nor if the mean does not end the fit.
    earlier: tuple[int, Natural] | None = None

    def as_returned(self) -> Context:
        """The context with the parameters that the fit would return if it ended now.

        Those of a mean are in new arrays, which later passes do not change.
        """
        ctx = self.ctx
        if self.mean is None or self.prior_of_mean is None:
            return gradient.returned(ctx) if "optimizer" in ctx.state else ctx
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

    def mean_is_settled(self, n_observations: float) -> bool:
        """Return whether the mean has hardly changed in the last quarter of the passes.

        As the last fifth of the passes counts most in the mean, about the same number of passes
        decides each of the two means, and few decide both. How far they differ includes the noise
        of both and what the parameters still drift.
        """
        tol, method = self.strategy.tol_of_mean, self.strategy
        if tol == 0 or self.mean is None:
            return False
        if method.progress(self.ctx.state) < method.learn_priors_after:
            return False
        earlier = self.earlier
        if earlier is not None and 3 * self.passes < 4 * earlier[0]:
            return False
        self.earlier = self.passes, {key: value.copy(order="K") for key, value in self.mean.items()}
        if earlier is None:
            return False
        change = self.ctx.model.factors().kl(self.mean, earlier[1])
        return bool(change < tol * n_observations)

    def pause(self, visited: Visited, bound: float) -> None:
        """Pause before an update, after a visit with this bound; :meth:`resumed` goes on."""
        self.paused, self.local, self.known = True, visited.local, visited.visit.known
        self.trace.final = bound
        self.trace.reason = "the bound rises slowly, and only the best fit goes on"

    def resumed(self, ctx: Context) -> Progress:
        """Return a fit by plain passes from the end of this one, at the same parameters in ``ctx``.

        If this one has paused, it goes on with its local variables.
        """
        found = Progress(ctx, PLAIN)
        if self.paused and self.local is not None:
            found.local, found.goes_further = list(self.local), self.goes_further
            found.momentum_of_further = self.momentum_of_further
        return found

    def go_further(self, units: Units, exploring: int = 0) -> int:
        """Let the model add plain passes to the last one, which has left local variables.

        If that explores, so many passes that explore as well follow. The number of those that the
        model has left to the loop is returned.
        """
        self.shorter, self.n_further = None, 0
        if not (self.local and (self.explores_further if exploring else self.goes_further)):
            return 0
        how = units, self.local, self.momentum_of_further
        found = self.ctx.model.further(self.ctx.q, self.ctx.prior, *how, exploring=exploring)
        # A model that adds none now will not add any later: the data are the same.
        if exploring:
            self.explores_further = found is not None
        else:
            self.goes_further = found is not None
        if found is None:
            return 0
        if not exploring:
            self.shorter = self.ctx.q, self.local
        self.ctx.q, self.local, n_made, self.momentum_of_further = found
        self.known, self.n_further = None, max(n_made, exploring)
        self.n_explored += exploring
        return max(exploring - n_made, 0)

    def take_back(self) -> None:
        """Go back to before the passes that the model has added, and let it add no more."""
        assert self.shorter is not None
        self.ctx.q, self.local = self.shorter
        self.shorter, self.n_further, self.known, self.goes_further = None, 0, None, False
        self.momentum_of_further = None
        self.undone += 1

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "known": self.known if self.ctx.model.keeps_known else None}
