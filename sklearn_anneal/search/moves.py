"""Moves: ways of looking for a better optimum from the best one that a fit has found so far.

Every move proposes parameters, from which plain inference goes on to the next optimum. The result
is kept only if the lower bound is higher, but for reductions; most proposals are given up after a
few passes, when their optimum is out of reach.

References
----------
Gultekin, Zhang, Paisley (2015). Stochastic annealing for variational inference (reheats).
Zhao, Hautamäki, Kärkkäinen, Fränti (2012). Random swap EM algorithm for Gaussian mixture models.
Hughes, Sudderth (2013). Memoized online variational inference for Dirichlet process mixture models
(merges).
Kurihara, Welling, Teh (2007). Collapsed variational Dirichlet process mixture models (reordering).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..annealing import Annealing, StochasticAnnealing
from ..annealing._base import Context
from ..data.units import Units
from ..families import Natural
from ..inference.loop import PLAIN
from ..inference.progress import Progress
from ..inference.stopping import FewCountAsMany, OutOfReach, Rule
from ..inference.visits import visit
from ..models._base import Model
from ..models._extensible import Extensible
from ..models._searchable import Rearranged, Searchable
from ..parallel.workers import SEQUENTIAL, generator, legacy_generator
from .problem import Problem

# Passes in which the noise of a reheat falls to zero.
PASSES_OF_REHEAT = 10
# Passes before a swap can be out of reach, in which its halves move apart.
_PASSES_OF_SWAP = 8
# Passes after which a new start is compared with the first fit after as many, for the first time.
_PASSES_OF_START = 10


class Move(ABC):
    """A way of proposing parameters."""

    # Whether the passes of the best fit belong to the history of what the move leads to.
    continues = True
    # Whether its passes are a part of the budget of the search.
    counts = True
    # Whether it is made again at once if it has paid.
    repeats = True

    # Whether plain passes have momentum. The first fit has none, so that the result is never below
    # plain inference from the same start.
    has_momentum = True

    # The fall of the bound, in nats, from which on the result is discarded.
    tolerance = 0.0

    # The largest number of passes after its schedule, in multiples of ``max_iter``.
    longest = 1

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the move in messages and results."""

    @abstractmethod
    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress | None:
        """Return the progress from which plain inference goes on; None if there is nothing to try.

        Parameters
        ----------
        problem : Problem
        kept : Progress
            The best fit so far, which is not changed.
        seeds : tuple of int
            The seeds that distinguish the random numbers of this proposal from those of all others.
        """

    def rule(self, stop: Rule, target: float, pace: list[float]) -> Rule:
        """Return the rule that ends the fit from a proposal.

        Parameters
        ----------
        stop : Rule
            The rule that decides when a fit has converged.
        target : float
            The bound of the best fit so far, nats.
        pace : list of float
            The bounds of the first fit after each of its passes.
        """
        return OutOfReach(stop, target)


@dataclass(frozen=True)
class Reheat(Move):
    """A short phase of stochastic annealing (Gultekin et al., 2015) from the best optimum."""

    noise: float
    n_passes: int | None = None

    name = "reheat"

    @property
    def method(self) -> Annealing:
        return StochasticAnnealing(
            initial_noise=self.noise,
            schedule="linear",
            n_passes=PASSES_OF_REHEAT if self.n_passes is None else self.n_passes,
            start="init_params",
        )

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress:
        method = self.method
        ctx = _anew(kept.ctx, generator(problem.seed, *seeds))
        ctx.state |= method.initial_state(ctx)
        return Progress(ctx, method)


class Rearrangement(Move):
    """Other components for the rows of a sample of the data."""

    # How many times the components change before inference goes on, while it is worthwhile.
    rounds = 1

    @abstractmethod
    def rearranged(
        self, model: Searchable, sample: Units, ctx: Context, rng: np.random.Generator
    ) -> Rearranged | None:
        """Return the model, its prior and q of other components; None if nothing is to change."""

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress | None:
        if not isinstance(kept.ctx.model, Searchable):
            return None
        rng = generator(problem.seed, *seeds)
        ctx = _anew(kept.ctx, rng)
        sample = problem.sample.centered(ctx.summary)
        for _ in range(self.rounds):
            model = ctx.model
            found = self.rearranged(model, sample, ctx, rng)
            if found is None:
                break
            ctx.model, ctx.prior, ctx.q = found
            _put_in_order(ctx)
            if self.rounds > 1:
                # Other components have other priors, under which more may be worthwhile.
                problem.learn(ctx)
        return None if ctx.q is kept.ctx.q else Progress(ctx, PLAIN)

    def rule(self, stop: Rule, target: float, pace: list[float]) -> Rule:
        return OutOfReach(stop, target, after=_PASSES_OF_SWAP)


@dataclass(frozen=True)
class Swap(Rearrangement):
    """One component is given up, and another one divided."""

    guided: bool
    repeats: bool = True

    @property
    def name(self) -> str:
        return "guided swap" if self.guided else "random swap"

    def rearranged(
        self, model: Searchable, sample: Units, ctx: Context, rng: np.random.Generator
    ) -> Rearranged | None:
        return model.swapped(sample, ctx.q, ctx.summary, ctx.prior, rng, self.guided)


@dataclass(frozen=True)
class Merge(Rearrangement):
    """Pairs of components become one (Hughes and Sudderth, 2013).

    Those that are given up explain nothing any more, and can be used by swaps.
    """

    name = "merge"
    rounds = 8

    def rearranged(
        self, model: Searchable, sample: Units, ctx: Context, rng: np.random.Generator
    ) -> Rearranged | None:
        return model.merged(sample, ctx.q, ctx.summary, ctx.prior, rng)


@dataclass(frozen=True)
class Refit(Rearrangement):
    """Some of the components that are added are fitted anew to what the others leave."""

    name = "refit"

    def rearranged(
        self, model: Searchable, sample: Units, ctx: Context, rng: np.random.Generator
    ) -> Rearranged | None:
        return model.refitted(sample, ctx.q, ctx.summary, ctx.prior, rng)


@dataclass(frozen=True)
class Reshape(Rearrangement):
    """Other shapes of the distributions of components, such as those of durations.

    They are tried with any effort, of which they are no part.
    """

    guided: bool

    counts = False

    @property
    def name(self) -> str:
        return "guided reshape" if self.guided else "random reshape"

    def rearranged(
        self, model: Searchable, sample: Units, ctx: Context, rng: np.random.Generator
    ) -> Rearranged | None:
        return model.reshaped(sample, ctx.q, ctx.summary, ctx.prior, rng, self.guided)


@dataclass(frozen=True)
class Start(Move):
    """A new start of a certain kind, which has to keep up with the first fit.

    ``number`` is the place of the kind among those that the model offers, and 0 is its own.
    """

    number: int

    name = "start"
    continues = False

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress:
        model = kinds_of_starts(problem.model)[self.number]
        rng = generator(problem.seed, *seeds)
        ctx = Context(model, problem.prior, problem.summary, rng, q={})
        problem.start(ctx, model, legacy_generator(problem.seed, *seeds))
        _put_in_order(ctx)
        return Progress(ctx, PLAIN)

    def rule(self, stop: Rule, target: float, pace: list[float]) -> Rule:
        return OutOfReach(stop, target, after=_PASSES_OF_START, pace=tuple(pace))


@dataclass(frozen=True)
class FirstStart(Start):
    """A start of another kind with which a search begins, beside the start of the fit."""

    repeats = False


@dataclass(frozen=True)
class Reorder(Move):
    """The components in the order that their prior prefers (Kurihara et al., 2007).

    A stick-breaking prior expects the first components to be the largest, so that the bound of the
    same components depends on their order, and no step of plain inference changes it.
    """

    name = "reorder"
    counts = False
    repeats = False

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress | None:
        ctx = _anew(kept.ctx, generator(problem.seed, *seeds))
        _put_in_order(ctx)
        return None if ctx.q is kept.ctx.q else Progress(ctx, PLAIN)


@dataclass(frozen=True)
class Reduction(Move):
    """The components in use alone, if the number of components was to be found.

    Components that explain nothing can only lower the bound, given the same priors. Those that are
    learned are therefore taken over, and a fall of the bound that is no strong evidence (Kass and
    Raftery, 1995) is accepted.

    Attributes
    ----------
    model_of : callable
        Returns the model of a number of components.
    least : float
        Components in use explain more data points than this.
    """

    model_of: Callable[[int], Model]
    least: float

    name = "reduction"
    counts = False
    repeats = False
    tolerance = 3.0

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress | None:
        model, q, prior, summary = kept.ctx.model, kept.ctx.q, kept.ctx.prior, kept.ctx.summary
        used = in_use(kept.ctx, self.least)
        added = None
        if isinstance(model, Searchable) and 0 < len(used) < model.n_components:
            added = model.statistics_of(q, prior, used)
        if added is None:
            return None
        fewer: Any = self.model_of(len(used)).resolved(summary, hold_units=False)
        fewer = fewer.with_priors_of(model, used)
        ctx = _anew(kept.ctx, generator(problem.seed, *seeds))
        ctx.exploring = False
        ctx.model, ctx.prior = fewer, fewer.prior(summary)
        ctx.q = {key: ctx.prior[key] + value for key, value in added.items()}
        _put_in_order(ctx)
        problem.learn(ctx, late=True)
        return Progress(ctx, PLAIN)

    def rule(self, stop: Rule, target: float, pace: list[float]) -> Rule:
        return stop


def in_use(ctx: Context, least: float = 1.0) -> np.ndarray:
    """Return the numbers of the components that explain more data points than some number."""
    model: Any = ctx.model
    return np.flatnonzero(model.expected_counts(ctx.q, ctx.prior) > least)


@dataclass(frozen=True)
class Continuation(Move):
    """More passes of plain inference, if the best fit ended or paused before it converged.

    The bound of rows without structure rises by little for hundreds of passes while a component
    loses its rows, and ``max_iter`` limits each fit of a search for itself. A fit that has paused
    goes on from its local variables.
    """

    name = "continuation"
    counts = False
    repeats = False
    longest = 5

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress | None:
        stop, n_observations = problem.settings.stop, problem.units.n_observations
        # Every rise is worthwhile with tol=0: a fit then makes all its passes, and no more.
        endless = stop.worthwhile(np.finfo(float).tiny, n_observations)
        noisy = problem.in_minibatches or problem.model.update_rule == "gradient"
        if kept.trace.converged or noisy or endless:
            return None
        ctx = _anew(kept.ctx, generator(problem.seed, *seeds))
        ctx.exploring = False
        return kept.resumed(ctx)

    def rule(self, stop: Rule, target: float, pace: list[float]) -> Rule:
        return FewCountAsMany(stop)


@dataclass(frozen=True)
class Cooling(Move):
    """The same parameters, and local variables that are cooled anew, from high temperatures.

    Passes change the local variables of a data point a little, and leave it in its optimum.
    """

    name = "cooling"
    counts = False

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress | None:
        model = kept.ctx.model
        cooling = model.cooling() if isinstance(model, Searchable) else None
        if cooling is None:
            return None
        ctx = _anew(kept.ctx, generator(problem.seed, *seeds))
        ctx.exploring = False
        found = Progress(ctx, PLAIN)
        hot: Any = replace(ctx, model=cooling)
        found.local = visit(hot, PLAIN, problem.units, SEQUENTIAL).local
        return found

    def rule(self, stop: Rule, target: float, pace: list[float]) -> Rule:
        return stop


@dataclass(frozen=True)
class Extension(Move):
    """A part of the model that waits for the end of the search, if the bound is higher with it.

    It is tried with any effort, of which it is no part.
    """

    name = "extension"
    counts = False
    repeats = False

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress | None:
        model = kept.ctx.model
        if not (isinstance(model, Extensible) and model.waiting and kept.strategy.finish):
            return None
        ctx = _anew(kept.ctx, generator(problem.seed, *seeds))
        seen = visit(ctx, PLAIN, problem.units, SEQUENTIAL, keep=False, evaluation=True)
        found = model.extended(ctx.q, ctx.prior, seen.step)
        if found is None:
            return None
        ctx.model, ctx.prior, ctx.q = found
        return Progress(ctx, PLAIN)

    def rule(self, stop: Rule, target: float, pace: list[float]) -> Rule:
        return FewCountAsMany(stop)


@dataclass(frozen=True)
class Plain(Move):
    """Plain inference from the start of the best restart, beside which annealing has to stand.

    The ``start`` is :func:`compact`.
    """

    start: Natural | None = None

    name = "plain"
    continues = False
    has_momentum = False
    counts = False
    repeats = False

    def propose(self, problem: Problem, kept: Progress, seeds: tuple[int, int]) -> Progress:
        start = self.start
        if start is not None:
            start = {
                key: np.ascontiguousarray(value) if _is_one_row(value) else value
                for key, value in start.items()
            }
        return problem.open(seeds[0], start, PLAIN)


def compact(start: Natural) -> Natural:
    """Return a copy of natural parameters, in which equal rows of an array take the memory of one.

    In the starts of some models, very many rows have the same precision.
    """
    found = {}
    for key, value in start.items():
        tall = value.ndim > 1 and len(value) > 1
        if tall and (value[:2] == value[:1]).all() and (value == value[:1]).all():
            found[key] = np.broadcast_to(value[:1].copy(), value.shape)
        else:
            found[key] = copy.deepcopy(value)
    return found


def _is_one_row(value: np.ndarray) -> bool:
    """Return whether an array shows one row many times."""
    return value.ndim > 1 and value.strides[0] == 0


def kinds_of_starts(model: Model) -> tuple[Model, ...]:
    """Return the model and its copies whose starts are of other kinds."""
    return (model, *model.other_starts()) if isinstance(model, Searchable) else (model,)


def _put_in_order(ctx: Context) -> None:
    """Put the components into the order that their prior prefers."""
    model = ctx.model
    order = model.preferred_order(ctx.q, ctx.prior) if isinstance(model, Searchable) else None
    if order is not None:
        ctx.model, ctx.prior, ctx.q = model.reordered(ctx.q, ctx.prior, order)


def _anew(ctx: Context, rng: np.random.Generator) -> Context:
    """Return a copy of a context whose clocks are at zero."""
    return replace(ctx, rng=rng, state={"updates": 0, "passes": 0.0}, exploring=True)
