"""``n_components="auto"``: the number of components with the highest evidence.

The number with the highest lower bound is taken, unless another one has a higher evidence of the
data X and of as many new rows X*,

    log p(X, X*) = log p(X) + log p(X* | X),

in which the lower bound stands for the first term, and the density of every row of X given the
others for the second one [1]_. The bound says how well a model predicts the rows one after another,
beginning without any [2]_. It charges a component for all that had to be learned of it, also where
later rows gain by it. The density of rows that are left out charges for nothing: the largest number
would often win by chance, where a few rows happen to be alike. The standard error of its rise is
therefore subtracted, and 3 nats have to remain, which is strong evidence [3]_.

Frames of a sequence resemble each other more than their states imply, so that the bound rises with
every state that learns the peculiarities of one sequence. For several sequences, only the density
of those that are left out counts, by the same standard. For few sequences, and for counts, there is
only the bound: their data points cannot be left out of a fit that is over.

Rows are left out with the assignments and priors of the others as they are, which were learned with
these rows. With many columns they fit each row so closely that every component raises its density,
in white noise by tens of nats in a table. Where columns outnumber rows, these densities do not
count at all. The bound, too, rises by chance, because priors of each column are learned with it.
For tables of ten columns or more, and for ten sequences or more, numbers between which this leaves
doubt are compared by cross-validation: that of the highest bound, that of the highest evidence, and
one component if several exceed its bound by little. Plain fits from new starts leave out a fifth of
the rows or sequences each and predict it. The number that predicts best is taken, and one component
unless several are better by the standard error and 3 nats. The number of states for which other
densities speak gives way to another one only if that is better by the standard error. The bounds of
few sequences have to rise by more than by chance.

A single component learns its priors from many data alone, because predictions from few would be too
certain. In the comparison it learns them from however few, as two components do: the bounds of
learned and of given priors are not comparable.

Fits are compared after a search of little effort. The best one goes on with the effort of the
estimator, so that its result is that of one fit with this number. Components that this search
empties are then left out. Numbers larger than the best one begin at its components, some of which
are divided, and components that a fit does not use are left out. A number is therefore not rejected
because its own start has ended at a poor optimum.

References
----------
.. [1] Geisser, Eddy (1979). A predictive approach to model selection. Journal of the American
   Statistical Association 74.
.. [2] Fong, Holmes (2020). On the marginal likelihood and cross-validation. Biometrika 107.
.. [3] Kass, Raftery (1995). Bayes factors. Journal of the American Statistical Association 90.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from ..annealing import NoAnnealing
from ..annealing._base import Context
from ..data.units import Units
from ..families import Natural
from ..inference.callbacks import FitMonitor
from ..models._left_out import LeftOut, folds, without
from ..parallel.workers import generator, seed_sequence
from ..search.moves import in_use
from ..search.problem import Problem
from ..search.search import Found, Plan
from ._state import same

# Values that the parameter can have.
NUMBER_OR_AUTO = [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})]
# Numbers up to this one are tried by doubling, and larger ones as long as they are better.
_ALWAYS = 8
# A component has at least this many rows or frames.
_ROWS_EACH = 2
# The layout of data that are read before the number is chosen suits this many components.
_USUAL = 16
# Another number has to exceed the evidence of the number with the highest bound by this, in nats.
_STRONG = 3.0
# The effort of fits that are compared. Only the best one goes on with that of the estimator.
_EFFORT = 1.0


class Tried(NamedTuple):
    """The result of a fit with some number of components."""

    lower_bound: float  # nats; −inf for a fit that failed
    n_used: int  # components that explain more than one data point
    # The densities of data points given others; None if the model cannot leave them out.
    left_out: LeftOut | None = None
    # By how much the bounds of several components can exceed this one without groups, nats; None
    # if none does. Only a single component has it.
    by_chance: float | None = None

    @property
    def of_sequences(self) -> bool:
        """Whether densities of sequences that are left out count, and not the bound."""
        return self.left_out is not None and not self.left_out.independent

    def evidence_over(self, other: Tried) -> float:
        """Return by how much the evidence is above another one, beyond what can be chance, nats."""
        rise = self.lower_bound - other.lower_bound
        if self.left_out is None or other.left_out is None:
            return rise
        return rise + self.left_out.rise_over(other.left_out) - _STRONG

    def advantage_over(self, other: Tried) -> float:
        """Return the same, or the rise of densities of sequences alone, where only these count."""
        if self.left_out is None or other.left_out is None or self.left_out.independent:
            return self.evidence_over(other)
        return self.left_out.rise_over(other.left_out) - _STRONG


class Origin(NamedTuple):
    """Components of another fit, at which a fit with another number of components begins.

    If that number is smaller, it is the number of components in use, and the others are left out.
    If it is larger, some are divided.
    """

    n_components: int
    ctx: Context  # of the other fit

    def start(self, problem: Problem) -> Natural | None:
        """Return the natural parameters; None if the model has no such start."""
        model, q, prior = self.ctx.model, self.ctx.q, self.ctx.prior
        target: Any = problem.model
        if self.n_components > model.n_components:
            rng = generator(problem.seed, 0, 1)
            units = problem.sample.centered(problem.summary)
            given = (model, prior, q), units, problem.summary, problem.prior
            start: Natural | None = target.start_from(*given, rng)
            return start
        added = model.statistics_of(q, prior, in_use(self.ctx))
        return {key: problem.prior[key] + value for key, value in added.items()}


class Choice(NamedTuple):
    """The number of components that a fit has chosen."""

    n_components: int
    origin: Origin | None  # the start of the fit with this number; None for its own one
    results: dict[str, np.ndarray]  # all trials, as the attribute ``component_results_`` has them
    begun: Found | None  # the search with this number, which goes on if the fit has more effort


def best_number(
    fit: Callable[[int, int | None], dict[int, Tried]],
    most: int,
    predicted: Callable[[list[int]], dict[int, LeftOut]] = lambda numbers: {},
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[int, dict[int, Tried]]:
    """Return the number of components that is best by :func:`decided`, and all that were tried.

    Numbers are doubled from one to eight, and on while this is better, until a third of the
    components stay unused. If it is in doubt then whether there are groups, and one component
    predicts best, this is the best number. Otherwise the gaps on both sides of the number of
    :func:`preferred` are halved until its neighbours have been tried. Larger numbers begin at its
    components, the next one in any case.

    ``fit`` returns what the fit with a number of components reaches, and what a fit with those in
    use reaches if some are not. Its second argument is the number whose components it begins at;
    None stands for a start of its own. Of two fits with the same number that of the higher bound
    counts. ``most`` is the largest number. ``predicted`` is that of :func:`decided`. Once
    ``stopped`` returns True no other number is tried, and the best of those before is returned.
    """
    tried: dict[int, Tried] = {}
    # The numbers of each origin; those with starts of their own have none.
    begun: dict[int | None, set[int]] = {}

    def attempt(k: int, near: int | None = None) -> Tried:
        begun.setdefault(near, set()).add(k)
        found = fit(k, near)
        for number, reached in found.items():
            if number not in tried or reached.lower_bound > tried[number].lower_bound:
                tried[number] = reached
        return found[k]

    k = 1
    while k <= min(most, max(_ALWAYS, 2 * preferred(tried))) and not (tried and stopped()):
        if 3 * attempt(k).n_used <= 2 * k and k > 1:
            break
        k *= 2
    if most > 1 and _rise_is_chance(tried) and not stopped():
        attempt(2, 1)
        if decided(tried, predicted) == 1:
            return 1, tried
    while not stopped():
        middle = _middle(tried, predicted)
        larger = [k for numbers in begun.values() for k in numbers if k > middle]
        above = min(larger, default=min(2 * middle, most + 1))
        below = max((k for k in begun[None] if k < middle), default=middle)
        low, high = (below + middle) // 2, max((middle + above) // 2, middle + 1)
        lower = low > below
        higher = high <= most and high not in begun.get(middle, set())
        if lower:
            attempt(low)
        if higher and not stopped():
            attempt(high, middle)
        if not (lower or higher):
            break
    return decided(tried, predicted), tried


def preferred(tried: dict[int, Tried]) -> int:
    """Return the number with the highest bound, or another one if its evidence is so much higher.

    Of equal ones that of fewer components counts; it is 1 if none has been tried. Where only the
    densities of sequences count, it is the smallest number that none is so much better than.
    """
    by_bound = _by_bound(tried)

    def advantages(over: int) -> dict[int, float]:
        return {k: tried[k].advantage_over(tried[over]) for k in tried if k != over}

    if by_bound in tried and tried[by_bound].of_sequences:
        unbeaten = (k for k in sorted(tried) if not any(a > 0 for a in advantages(k).values()))
        return next(unbeaten, by_bound)
    found = advantages(by_bound)
    # Among fits that use equally many components, the bound alone decides.
    others = (k for k in found if tried[k].n_used != tried[by_bound].n_used)
    better = [k for k in others if found[k] > 0]
    return min(better, key=lambda k: (-found[k], k), default=by_bound)


def _middle(tried: dict[int, Tried], predicted: Callable[[list[int]], dict[int, LeftOut]]) -> int:
    """Return the number around which others are tried, which is that of :func:`preferred`.

    The densities of sequences would lead the search to numbers that are too large. There it is that
    of :func:`decided`.
    """
    best = preferred(tried)
    return decided(tried, predicted) if tried[best].of_sequences else best


def _by_bound(tried: dict[int, Tried]) -> int:
    """Return the number with the highest bound; 1 if none has been tried."""
    by_bound = min(tried, key=lambda k: (-tried[k].lower_bound, k), default=1)
    if by_bound in tried:
        # Components without use can only lower the bound, but for what priors have learned so far.
        used = tried[by_bound].n_used
        if used in tried and tried[used].lower_bound > tried[by_bound].lower_bound - _STRONG:
            return used
    return by_bound


def _rise_is_chance(tried: dict[int, Tried]) -> bool:
    """Whether several components exceed the bound of one by no more than they can by chance."""
    alone = tried.get(1)
    if alone is None or alone.by_chance is None:
        return False
    highest = max(reached.lower_bound for reached in tried.values())
    return not highest - alone.lower_bound > alone.by_chance + _STRONG


def contenders(tried: dict[int, Tried]) -> list[int]:
    """Return the numbers between which fits that leave rows out have to decide, in their order.

    They are that of :func:`preferred`, that of the highest bound, and 1 if the bounds of several
    components rise as by chance. Where the densities of sequences count, the number of the highest
    bound competes if it is smaller and its evidence is not so much lower. A larger one does not:
    even its densities, which are too high, are not so much better.
    """
    best, by_bound = preferred(tried), _by_bound(tried)
    found = {best}
    if best in tried:
        fewer = by_bound < best and not tried[best].evidence_over(tried[by_bound]) > 0
        if fewer or not tried[best].of_sequences:
            found.add(by_bound)
    if _rise_is_chance(tried):
        found.add(1)
    return sorted(found)


def decided(tried: dict[int, Tried], predicted: Callable[[list[int]], dict[int, LeftOut]]) -> int:
    """Return the one of the :func:`contenders` that predicts rows best.

    ``predicted`` returns the densities of rows that other fits with each of some numbers have left
    out. One component gives way only to numbers that are better by strong evidence, beyond the
    standard error, and of equal ones the smallest counts. The number of :func:`preferred` does so
    where the densities of sequences count, to numbers that are better beyond the standard error.
    If rows cannot be left out, nothing is returned: one component then counts if the bound rises as
    by chance, and else the number of :func:`preferred`.
    """
    numbers = contenders(tried)
    found = predicted(numbers) if len(numbers) > 1 else {}
    if not found:
        return 1 if _rise_is_chance(tried) else preferred(tried)
    if 1 in numbers:
        numbers = [k for k in numbers if k == 1 or found[k].rise_over(found[1]) > _STRONG]
    best = preferred(tried)
    if best in numbers and tried[best].of_sequences:
        # Few sequences are left out, and others predict them from fewer than there are.
        numbers = [k for k in numbers if k == best or found[k].rise_over(found[best]) > 0]
    return max(numbers, key=lambda k: (k > 1, found[k].total, -k))


class ChoosesNumber:
    """Mixin of estimators whose parameter ``n_components`` can be "auto"."""

    n_components: Any
    # The number that a fit tries at the moment, until it has found one.
    _number_of_trial: int | None = None
    random_state: Any
    _make_model: Callable
    _strategy: Callable
    _plan: Callable
    _start_anew: Callable
    _words_for: Callable

    @property
    def _chooses_number(self) -> bool:
        """Whether the number of components is found by the fit."""
        # Nets have layers, and not components.
        return isinstance(vars(self).get("n_components"), str)

    @property
    def _number(self) -> int:
        """The number of components of the model, or a usual number before it is chosen."""
        if not self._chooses_number:
            given: int = self.n_components
            return given
        tried = self._number_of_trial
        found: int = getattr(self, "n_components_", _USUAL) if tried is None else tried
        return found

    @property
    def _least_number(self) -> int:
        """The smallest number of components that the model can have."""
        return 1 if self._chooses_number else self._number

    @contextmanager
    def _quiet_starts(self) -> Iterator[None]:
        """Silence k-means where a number that the fit has chosen exceeds that of distinct rows."""
        if not self._chooses_number:
            yield
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
            yield

    def _unchanged(self, name: str, old: object, new: object) -> bool:
        """Whether two values of a parameter mean the same for the model that has been fitted."""
        # A number that has been found and is then given is the same number.
        if name == "n_components" and "auto" in (old, new):
            found = getattr(self, "n_components_", None)
            return all(value in ("auto", found) for value in (old, new))
        return same(old, new)

    def _refuse_number_with(self, **given: object) -> None:
        """Refuse arguments that name components by their numbers, before there are any."""
        names = [name for name, value in given.items() if value is not None]
        if names and self._chooses_number:
            raise ValueError(
                f"{names[0]} says something of each component, but n_components='auto' finds out "
                "how many there are. Give a number of components."
            )

    def _choose_number(
        self,
        X: Any,
        units: Units,
        random_state: np.random.RandomState,
        monitor: FitMonitor | None,
    ) -> Choice:
        """Return the number of components with the highest evidence, and where its fit begins.

        Fits with several numbers are compared. If some components of a fit explain nothing, it is
        compared with a fit that begins at the others. If a callback asks to stop, the comparison
        ends with what it has: the fit that was running counts as it is.
        """
        fits: dict[int, tuple[Found, Tried, Origin | None]] = {}

        def stopped() -> bool:
            return monitor is not None and monitor.stopped

        failures: list[np.linalg.LinAlgError] = []

        def run(k: int, origin: Origin | None) -> tuple[Tried, Origin | None]:
            try:
                found, reached = self._fitted_with(k, origin, X, units, random_state, monitor)
            except np.linalg.LinAlgError as error:
                failures.append(error)
                return Tried(-np.inf, k), None
            if k not in fits or reached.lower_bound > fits[k][1].lower_bound:
                fits[k] = found, reached, origin
            return reached, _reduced(found.kept.ctx)

        def fit(k: int, near: int | None) -> dict[int, Tried]:
            origin = Origin(k, fits[near][0].kept.ctx) if near in fits else None
            if origin is None and k in fits:
                return {k: fits[k][1]}
            reached, reduced = run(k, origin)
            every = {k: reached}
            if reduced is not None and not stopped():
                every[reduced.n_components], _ = run(reduced.n_components, reduced)
            return every

        left_out: dict[int, LeftOut] = {}

        def predicted(numbers: list[int]) -> dict[int, LeftOut]:
            added = [k for k in numbers if k not in left_out]
            if added and not stopped():
                left_out.update(self._predicted_by_folds(added, X, units, random_state, monitor))
            return left_out if all(k in left_out for k in numbers) else {}

        most = max(units.n_rows // _ROWS_EACH, 1)
        best, tried = best_number(fit, most, predicted, stopped)
        if best not in fits:
            raise failures[-1]
        found, _, origin = fits[best]
        # A single component that was compared may have learned from too few data for predictions.
        # There is no time for another one after a request to stop.
        begun = found.unfinished if best > 1 or stopped() else None
        return Choice(best, origin, _results(tried, left_out), begun)

    def _predicted_by_folds(
        self,
        numbers: list[int],
        X: Any,
        units: Any,
        random_state: np.random.RandomState,
        monitor: FitMonitor | None,
    ) -> dict[int, LeftOut]:
        """Return the densities of rows that fits with each number leave out.

        They are −∞ if such a fit fails. Nothing is returned if the model has no rows that can be
        left out, or refuses the rows of a fold although it takes all of them together, or if a
        callback asks to stop.
        """
        rows = self._smaller_model(numbers[0], X, units.example).rows_of_folds(units)
        if rows is None:
            return {}
        weights = np.ones(rows.n_units) if rows.weights is None else np.asarray(rows.weights)
        shares = folds(
            weights,
            generator(seed_sequence(copy.deepcopy(random_state))),
            whole=rows.copies_are_one,
        )

        def predicted(k: int, share: np.ndarray, fold: int) -> np.ndarray:
            self._number_of_trial = k
            model = self._make_model(X, units.example).compared()
            others, run, plan = without(rows, share), monitor, Plan()
            if monitor is not None:
                what = f"n_components={k}, fold {fold}", others, plan.n_init
                run = monitor.run(*what, plan.allows_moves(model))
            # A start at the components of another fit would know the rows that are left out.
            how = others, run, None, copy.deepcopy(random_state)
            found = self._start_anew(model, NoAnnealing(), plan, *how)
            if run is not None:
                run.end_run(found.kept)
            ctx = found.kept.ctx
            left_out = rows.take(np.flatnonzero(share)).centered(ctx.summary)
            densities: np.ndarray = ctx.model.log_predictive(left_out, ctx.q)
            return densities

        result = {}
        for k in numbers:
            sums = np.zeros(rows.n_units)
            for fold, share in enumerate(shares.T):
                if monitor is not None and monitor.stopped:
                    return {}
                part = share > 0
                try:
                    if part.any():
                        sums[part] += share[part] * predicted(k, share, fold)
                except np.linalg.LinAlgError:
                    sums[part] = -np.inf
                except ValueError:
                    # The covariance of these rows is singular, or their weights are too small.
                    return {}
            sums[~np.isfinite(sums)] = -np.inf
            means = sums / np.maximum(weights, np.finfo(np.float64).tiny)
            counted = float(units.total_weight), not rows.copies_are_one
            result[k] = LeftOut(means, weights, *counted)
            if monitor is not None:
                total = result[k].total
                monitor.say(f"n_components={k}: rows left out of other fits {total:.6f}")
        return result

    def _smaller_model(self, k: int, X: Any, example: Any) -> Any:
        """Return the model with some number of components."""
        before, self._number_of_trial = self._number_of_trial, k
        try:
            return self._make_model(X, example)
        finally:
            self._number_of_trial = before

    def _fitted_with(
        self,
        k: int,
        origin: Origin | None,
        X: Any,
        units: Units,
        random_state: np.random.RandomState,
        monitor: FitMonitor | None,
    ) -> tuple[Found, Tried]:
        """Fit the model with some number of components; return the fit and what it has reached."""
        self._number_of_trial = k
        try:
            model = self._make_model(X, units.example).compared()
            strategy = self._strategy(model)
            plan = self._plan(strategy, units).with_effort_up_to(_EFFORT)
            plan, run = plan._replace(continues=False), monitor
            if monitor is not None:
                monitor.begin(self._words_for(units), strategy, plan.n_init, plan.effort)
                what = f"n_components={k}", units, plan.n_init
                run = monitor.run(*what, plan.allows_moves(model))
            # The fit that is kept draws the same random numbers.
            how = units, run, None, copy.deepcopy(random_state), origin
            found = self._start_anew(model, strategy, plan, *how)
            if run is not None:
                run.end_run(found.kept)
            ctx = found.kept.ctx
            left_out = ctx.model.left_out(units, ctx.q, ctx.summary, ctx.prior)
            by_chance = ctx.model.gain_by_chance(units, ctx.summary) if k == 1 else None
        except np.linalg.LinAlgError:
            raise
        except ValueError as error:
            raise ValueError(
                f"n_components='auto' tries several numbers, of which {k} is refused: {error}"
            ) from error
        bound = float(found.kept.trace.final)
        if monitor is not None:
            of_rows = "" if left_out is None else f", rows left out {left_out.total:.6f}"
            monitor.say(f"n_components={k}: lower bound {bound:.6f}{of_rows}")
        n_used = len(in_use(ctx))
        bound = bound if np.isfinite(bound) else -np.inf
        return found, Tried(bound, n_used, left_out, by_chance)


def _results(tried: dict[int, Tried], predicted: dict[int, LeftOut]) -> dict[str, np.ndarray]:
    """Return the numbers that were tried and their results, as ``component_results_`` has them."""
    every = [tried[k] for k in sorted(tried)]
    results = {
        "n_components": np.array(sorted(tried)),
        "lower_bound": np.array([found.lower_bound for found in every]),
        "n_effective_components": np.array([found.n_used for found in every]),
    }
    if any(found.left_out is not None for found in every):
        totals = [np.nan if found.left_out is None else found.left_out.total for found in every]
        results["log_density_left_out"] = np.array(totals)
    if predicted:
        of_folds = [predicted[k].total if k in predicted else np.nan for k in sorted(tried)]
        results["log_density_of_folds"] = np.array(of_folds)
    return results


def _reduced(ctx: Context) -> Origin | None:
    """Return the components that are in use; None if all are, or if none can be left out."""
    used, n_components = in_use(ctx), ctx.model.n_components
    if not 0 < len(used) < n_components:
        return None
    if ctx.model.statistics_of(ctx.q, ctx.prior, used) is None:
        return None
    return Origin(len(used), ctx)
