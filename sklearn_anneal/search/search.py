"""The search of a fit: restarts, and then moves from the best of them, within a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..annealing._base import Annealing, Context
from ..families import Natural
from ..inference import loop
from ..inference.callbacks import FitMonitor
from ..inference.checkpoint import Checkpoint
from ..inference.progress import Progress, Trace
from ..inference.stopping import Rule
from ..models._base import Model
from ..models._extensible import Extensible
from ..models._searchable import Searchable
from ..parallel.workers import Workers
from .moves import (
    Continuation,
    Cooling,
    Extension,
    FirstStart,
    Merge,
    Move,
    Plain,
    Reduction,
    Refit,
    Reheat,
    Reorder,
    Reshape,
    Start,
    Swap,
    compact,
    kinds_of_starts,
)
from .problem import Problem
from .restarts import Course, completed, raced

# Passes over the data that the proposal of a move takes.
_OF_PROPOSAL = {"guided swap": 6, "random swap": 2, "merge": 2, "start": 2}
# A rise of the bound by less than this, in nats per observation, does not keep the search going.
_LEAST_RISE = 1e-4
# The search ends after each move has been in vain this many times in a row, unless a model says how
# many moves that are.
_PATIENCE = 3
# Bounds differ by rounding errors up to this share of them.
_ROUNDING = 1e-12
# A move that ends a search is made again at most so often while it pays.
_MOST_AT_END = 4
# Shapes are changed at random this many times before moves take turns, and on while it pays.
_RANDOM_SHAPES = 4

# Components that explain no more data points are left out where their number is to be found. Those
# of single data points stay if they are worth their place, and the second limit leaves out others.
_LEAST_IN_USE = (1.0, 0.5)


class Plan(NamedTuple):
    """How a fit searches for the best optimum.

    Attributes
    ----------
    n_init : int
        Number of restarts.
    race : bool
        Whether only the best restart runs to its end.
    effort : float
        The passes that moves may take after the restarts, in multiples of those of one restart.
    effort_without_schedule : float
        The same if the method turns out to have no annealed phase, because it is calibrated to an
        initial temperature of 1. Without moves the fit would be plain inference.
    guards : bool
        Whether a fit with an annealed phase is compared with plain inference from the same start.
    automatic : bool
        Whether the effort is the usual one, which is less after some starts of a model.
    continues : bool
        Whether the best fit goes on if it has not converged. It does in any case if moves pause.
    model_of : callable or None
        Returns the model of a number of components, if those that are not in use are left out at
        the end; None if all stay.
    """

    n_init: int = 1
    race: bool = False
    effort: float = 0.0
    effort_without_schedule: float = 0.0
    guards: bool = False
    automatic: bool = False
    continues: bool = True
    model_of: Callable[[int], Model] | None = None

    def effort_after(self, strategy: Annealing) -> float:
        """Return the effort, given the method as it was calibrated."""
        scheduled = strategy.schedule_length() > 0
        return self.effort if scheduled else max(self.effort, self.effort_without_schedule)

    def allows_moves(self, model: object) -> bool:
        """Return whether moves can follow the restarts, of which a model needs some in any case."""
        extends = isinstance(model, Extensible) and model.waiting
        reshapes = isinstance(model, Searchable) and model.learns_shapes
        effort = max(self.effort, self.effort_without_schedule)
        return effort > 0 or self.guards or self.model_of is not None or extends or reshapes

    def with_effort_up_to(self, most: float) -> Plan:
        """Return the same plan with this effort, or with its own if that is less."""
        efforts = self.effort, self.effort_without_schedule
        effort, without_schedule = (min(effort, most) for effort in efforts)
        return self._replace(effort=effort, effort_without_schedule=without_schedule)


class Attempt(NamedTuple):
    """The result of a move.

    Attributes
    ----------
    move : str
        Its name.
    n_before : int
        Number of passes of the fit from whose end it set out; 0 for a new start.
    n_passes : int
        Number of passes of the fit from what it proposed.
    lower_bound : float
        The bound that this fit reached, nats; NaN if it failed.
    kept : bool
        Whether the bound was higher than that of the best fit before, or high enough.
    """

    move: str
    n_before: int
    n_passes: int
    lower_bound: float
    kept: bool


@dataclass
class Found:
    """The restarts and the moves of a fit, and the best that they have found.

    Attributes
    ----------
    kept : Progress
        The fit with the highest bound.
    strategy : Annealing
        The method of the restart from which it comes, as that restart resolved it.
    restart_lower_bounds : ndarray of shape (n_init,)
        The bound that each restart reached, nats; NaN for one that a callback prevented.
    best_restart : int
        Index of the restart from which ``kept`` comes.
    n_passes : int
        Number of passes of all restarts and moves together, and of updates that were undone.
    pace : list of float
        The bounds of the best restart after each of its passes.
    attempts : list of Attempt
    turn : int
        Number of the turn of moves, which goes on when a move has failed.
    in_vain : int
        Number of attempts since the last one that was worthwhile.
    spent : int
        Number of passes of all moves, those of their proposals included.
    trial : Progress or None
        The fit from a proposal that is running.
    before_end : Found or None
        The state before the moves that end a search; None until these begin.
    other : Found or None
        The search from the first restart if this is the one from the best, or the other way round;
        None if they are the same, or after a race.
    """

    kept: Progress
    strategy: Annealing
    restart_lower_bounds: np.ndarray
    best_restart: int
    n_passes: int
    pace: list[float] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    turn: int = 0
    in_vain: int = 0
    spent: int = 0
    trial: Progress | None = None
    before_end: Found | None = None
    other: Found | None = None

    @classmethod
    def of(cls, found: list[Progress | None], race: bool = False) -> Found:
        """Return the state after the restarts; None stands for one that a callback prevented.

        Moves set out from the best restart and, but for a race, from the first one. A fit with more
        restarts therefore ends no lower than that with one.
        """
        bounds = np.array([np.nan if p is None else _reached(p.trace) for p in found])
        finished = [p is not None and p.finished for p in found]
        best = int(np.argmax(np.where(finished & np.isfinite(bounds), bounds, -np.inf)))
        kept = found[best]
        if kept is None or not np.isfinite(bounds[best]) or not finite(kept.ctx.q):
            raise np.linalg.LinAlgError("results that are not finite")
        n_passes = sum(p.passes + p.undone for p in found if p is not None)
        pace = list(kept.trace.lower_bounds)
        state, first = cls(kept, kept.strategy, bounds, best, n_passes, pace), found[0]
        usable = first is not None and finished[0] and np.isfinite(bounds[0])
        if best != 0 and not race and first is not None and usable and finite(first.ctx.q):
            pace = list(first.trace.lower_bounds)
            # The passes of the restarts are counted once.
            state.other = cls(first, first.strategy, bounds, 0, 0, pace)
        return state

    @property
    def all_passes(self) -> int:
        """Number of passes of all restarts, and of the moves from each of them."""
        return self.n_passes + (0 if self.other is None else self.other.n_passes)

    @property
    def unfinished(self) -> Found:
        """The state from which a search with more effort goes on."""
        state = self if self.before_end is None else self.before_end
        return state if self.other is None else replace(state, other=self.other.unfinished)

    def judge(self, move: Move, stop: Rule, n_observations: float) -> None:
        """Keep the result of a move if its bound is higher, and discard it otherwise.

        A move that has proposed nothing is no attempt.
        """
        trial, before = self.trial, self.kept.trace
        self.trial = None
        if trial is None:
            self._pass_by(move, 0)
            self.turn += 1
            return
        passes, bound, rise = trial.passes, np.nan, -np.inf
        if trial.finished or trial.paused:
            bound = trial.trace.final
            rise = bound - before.final
        self.n_passes += passes + trial.undone
        # Rounding errors, which depend on the order of the rows and on the machine, decide nothing.
        least = _ROUNDING * abs(before.final) - move.tolerance
        kept = least < rise < np.inf and finite(trial.ctx.q)
        n_before = len(before.lower_bounds) if move.continues else 0
        self.attempts.append(Attempt(move.name, n_before, passes, float(bound), kept))
        worthwhile = rise > _LEAST_RISE * n_observations and stop.worthwhile(rise, n_observations)
        again = move.repeats and kept and worthwhile
        self._pass_by(move, passes)
        if again or (kept and worthwhile and move.counts and move.continues):
            self.in_vain = 0
        # A move that has paid is made again.
        self.turn += not again
        if kept:
            if move.continues:
                trial.trace.lower_bounds[:0] = before.lower_bounds
                trial.trace.temperatures[:0] = before.temperatures
                trial.trace.initial = before.initial
            self.kept = trial

    def _pass_by(self, move: Move, passes: int) -> None:
        """Count a move as failed, and its passes as a part of the budget."""
        if move.counts:
            self.spent += passes + _OF_PROPOSAL.get(move.name, 0)
            self.in_vain += 1


def best(
    problem: Problem,
    drawn: list[Natural],
    plan: Plan,
    workers: Callable[[bool], Workers],
    monitor: FitMonitor | None,
    checkpoint: Checkpoint | None = None,
    begun: Found | None = None,
) -> Found:
    """Run the restarts of a fit, and then moves from the best of them.

    Parameters
    ----------
    problem : Problem
    drawn : list of dict
        The start of the first restart. The list is emptied, so that the memory of the start can be
        released. It is empty already for methods that choose their own start.
    plan : Plan
    workers : callable
        Returns the workers for whole restarts if it is called with True, and those for the chunks
        of a pass if it is called with False.
    monitor : FitMonitor or None
    checkpoint : Checkpoint or None, default=None
        Where the state is saved after every pass, and from where it is resumed.
    begun : Found or None, default=None
        A search of the same problem with less effort. The moves go on from there, so that the
        result is that of a single search to the last bit.

    Returns
    -------
    found : Found

    Raises
    ------
    numpy.linalg.LinAlgError
        If the bound or the parameters of the best restart are not finite.
    """
    several = plan.n_init > 1 and not problem.units.in_parts
    course = Course(problem, monitor, checkpoint)
    if begun is not None:
        # The state that has begun stays as it is.
        other = None if begun.other is None else replace(begun.other)
        with workers(False) as pool:
            return _best_after_moves(course, replace(begun, other=other), plan, None, pool)
    # Passes can change the arrays of a start.
    guarded = problem.strategy.finish and problem.strategy.schedule_length() > 0
    first = compact(drawn[0]) if drawn and guarded and plan.guards else None
    with workers(several) as pool:
        run = raced if plan.race else completed
        found = Found.of(run(course, drawn, plan.n_init, pool), plan.race)
        if not several:
            return _best_after_moves(course, found, plan, first, pool)
    if not moves_for(problem, plan, found, first).any:
        _put_in_canonical_form(found.kept.ctx)
        return found
    with workers(False) as pool:
        return _best_after_moves(course, found, plan, first, pool)


def _best_after_moves(
    course: Course, found: Found, plan: Plan, first: Natural | None, workers: Workers
) -> Found:
    """Make moves from the best restart and from the first one; return the better search of both.

    ``first`` is the start of the first restart. The state ``found`` is changed, so that fits which
    moves have replaced are released.
    """
    ended: list[Found] = []
    searches, n_begun = (found,) if found.other is None else (found, found.other), 0
    found.other = None
    for one in searches:
        moves = moves_for(course.problem, plan, one, first)
        name = f"moves-{one.best_restart}"
        ended.append(_moved(course, one, moves, workers, name, n_begun))
        n_begun += len(ended[-1].attempts)
    # The earlier restart counts if bounds are equal, whichever of them has been better before.
    ended.sort(key=lambda one: (-one.kept.trace.final, one.best_restart))
    best, *others = ended
    if others:
        best.other = others[0]
    _put_in_canonical_form(best.kept.ctx)
    return best


class Moves(NamedTuple):
    """The moves of a fit: those that are made once, and those that take turns.

    Attributes
    ----------
    before, turns, after : tuple of Move
        Those of ``before`` and ``after`` are made once, and those of ``turns`` while they pay.
    effort : float
        The passes that moves may take in turns, in multiples of those of one restart.
    automatic : bool
        Whether it is the usual effort, which is less after some starts of a model.
    least_passes : float
        The number of passes as which those of one restart count at least.
    """

    before: tuple[Move, ...] = ()
    turns: tuple[Move, ...] = ()
    after: tuple[Move, ...] = ()
    effort: float = 0.0
    automatic: bool = False
    least_passes: float = 0.0

    @property
    def any(self) -> bool:
        """Whether any move may be made."""
        return self.effort > 0 or bool(self.before or self.after)

    def effort_from(self, model: object) -> float:
        """Return the effort, given the model of the best fit so far."""
        if self.automatic and isinstance(model, Searchable):
            return min(self.effort, model.usual_effort)
        return self.effort

    def patience(self, model: object) -> int:
        """Return how many moves in a row may be in vain, given the model of the best fit."""
        own = model.search_options.patience if isinstance(model, Searchable) else None
        return _PATIENCE * len(self.turns) if own is None else own

    def at(self, turn: int) -> Move:
        """Return the move of a turn."""
        n = len(self.before)
        return self.before[turn] if turn < n else self.turns[(turn - n) % len(self.turns)]


def moves_for(problem: Problem, plan: Plan, found: Found, first: Natural | None) -> Moves:
    """Return the moves of a fit, given its restarts and the start of the first of them."""
    scheduled = found.strategy.finish and found.strategy.schedule_length() > 0
    start = first if found.best_restart == 0 else None
    guard = (Plain(start),) if scheduled and plan.guards else ()
    effort = plan.effort_after(found.strategy)
    # A move that has paused needs to go on, even if others do not that have not converged.
    continues = plan.continues or _pause_factor(problem) > 1.0
    continuation = (Continuation(),) if continues and (effort > 0 or plan.guards) else ()
    if isinstance(problem.model, Searchable) and problem.model.has_one_optimum:
        return Moves(after=continuation, effort=effort)
    waits = isinstance(problem.model, Extensible) and problem.model.waiting
    extension = (Extension(),) if waits and problem.settings.max_iter > 0 else ()
    kinds = len(kinds_of_starts(problem.model))
    how = (problem.model if isinstance(problem.model, Searchable) else Searchable).search_options
    reheats = [Reheat(noise, how.passes_of_reheat) for noise in how.noises]
    starts: list[Move] = [Start(k % kinds) for k in (1, 2)]
    starts = starts if kinds > 1 and how.starts_anew else []
    swaps = [Swap(guided, how.repeats_swaps) for guided in how.swaps] if kinds > 1 else []
    turns: list[Move] = [Refit()] if how.refits else []
    turns += [Merge()] if kinds > 1 else []
    for i in range(2):
        turns += [*swaps[i : i + 1], *reheats[i : i + 1], *starts[i : i + 1]]
    order = (Reorder(),) if effort > 0 and kinds > 1 else ()
    reduction: tuple[Move, ...] = ()
    if plan.model_of is not None and found.strategy.finish:
        reduction = tuple(Reduction(plan.model_of, least) for least in _LEAST_IN_USE)
    tried: tuple[Move, ...] = ()
    if effort > 0 and isinstance(problem.model, Searchable):
        tried = (FirstStart(1),) if problem.model.tries_other_start_first else ()
    shapes: tuple[Move, ...] = ()
    if isinstance(problem.model, Searchable) and problem.model.learns_shapes:
        # Shapes are chosen without any effort too.
        shapes = (Reshape(guided=True), *[Reshape(guided=False)] * _RANDOM_SHAPES)
        turns += [Reshape(guided=True), Reshape(guided=False)]
    before = (*guard, *tried, *shapes, *order)
    cooling = (Cooling(),) if effort > 0 and isinstance(problem.model, Searchable) else ()
    # A fit that is extended converges with the extension.
    after = (*order, *extension, *continuation, *cooling, *reduction)
    fewest = min(how.least_passes, how.least_visits / max(problem.units.n_observations, 1.0))
    return Moves(before, tuple(turns), after, effort, plan.automatic, fewest)


def _pause_factor(problem: Problem) -> float:
    """Return that of the fits from moves, which do not pause over data in parts."""
    if isinstance(problem.model, Searchable) and not problem.units.in_parts:
        return problem.model.search_options.pause_factor
    return 1.0


def _moved(
    course: Course, found: Found, moves: Moves, workers: Workers, name: str, n_begun: int
) -> Found:
    """Make moves until the budget is spent, or all of them have failed for some time.

    The state has a ``name`` in checkpoints. Reports number moves after the ``n_begun`` from another
    restart.
    """
    problem, monitor, checkpoint = course
    if not moves.any:
        return found
    stored = None if checkpoint is None else checkpoint.load(name)
    result: Found = found if stored is None else stored
    settings, stop = problem.settings._replace(passes_before_test=3), problem.settings.stop
    unit = max(len(result.pace), moves.least_passes)
    pause_factor, save = _pause_factor(problem), None
    if checkpoint is not None:

        def save(_: Progress) -> None:
            checkpoint.save(name, result)

    def goes_on() -> bool:
        if result.turn < len(moves.before):
            return True
        model = result.kept.ctx.model
        goes = result.spent < unit * moves.effort_from(model)
        return goes and result.in_vain < moves.patience(model)

    def make(move: Move) -> None:
        number = len(result.attempts)
        try:
            if result.trial is None:
                seeds = (result.best_restart, 2 + number)
                result.trial = move.propose(problem, result.kept, seeds)
            if result.trial is not None:
                after_pass, longest = None, settings.max_iter * move.longest
                if monitor is not None:
                    n_annealed = result.trial.strategy.schedule_length()
                    reported = move.name, n_begun + number
                    after_pass = monitor.begin_phase(*reported, n_annealed, longest)
                own = settings._replace(
                    stop=move.rule(stop, result.kept.trace.final, result.pace),
                    max_iter=longest,
                    momentum=move.has_momentum,
                    pause_factor=pause_factor if move.counts else 1.0,
                )
                loop.fit(result.trial, problem.units, own, workers, after_pass, save)
                if monitor is not None:
                    monitor.end_phase(*reported, result.trial)
        except np.linalg.LinAlgError:
            # The proposal of a move can lead out of the domain of the parameters.
            pass
        result.judge(move, stop, problem.units.n_observations)

    ended = result.before_end
    if ended is None:
        while goes_on() and not course.stopped():
            make(moves.at(result.turn))
        if moves.after:
            result.before_end = replace(result, attempts=list(result.attempts))
    # A search that is resumed may have made some of these moves, each of which was a turn.
    for move in moves.after[0 if ended is None else result.turn - ended.turn :]:
        turn = result.turn
        while result.turn == turn and not course.stopped():
            make(move)
            assert result.before_end is not None
            made = result.attempts[len(result.before_end.attempts) :]
            # A move that has paid would be made again, also by a search that is resumed.
            if result.turn == turn and sum(one.move == move.name for one in made) >= _MOST_AT_END:
                result.turn += 1
    return result


def _put_in_canonical_form(ctx: Context) -> None:
    """Replace parameters by those with the same bound that are the easiest to read."""
    model = ctx.model
    found = model.canonical(ctx.q, ctx.prior) if isinstance(model, Searchable) else None
    if found is not None:
        ctx.model, ctx.prior, ctx.q = found


def _reached(trace: Trace) -> float:
    """The final bound of a restart, or the last one that it reached before the race was over."""
    if np.isfinite(trace.final) or not trace.lower_bounds:
        return trace.final
    return next((b for b in reversed(trace.lower_bounds) if np.isfinite(b)), trace.final)


def finite(q: Natural) -> bool:
    """Return whether all natural parameters are finite."""
    return all(bool(np.isfinite(value).all()) for value in q.values())
