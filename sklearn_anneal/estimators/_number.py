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

Hidden states of chains, and components of counts, are compared by their bounds alone, because there
the data points cannot be left out of a fit that is over.

References
----------
.. [1] Geisser, Eddy (1979). A predictive approach to model selection. Journal of the American
   Statistical Association 74.
.. [2] Fong, Holmes (2020). On the marginal likelihood and cross-validation. Biometrika 107.
.. [3] Kass, Raftery (1995). Bayes factors. Journal of the American Statistical Association 90.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..annealing._base import Context
from ..families import Natural
from ..models._left_out import LeftOut
from ..models._searchable import Searchable
from ._state import same

# What the parameter can be.
NUMBER_OR_AUTO = [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})]
# The search for a larger number ends after this many numbers in a row were no better.
_PATIENCE = 2
# A component has at least this many rows or frames.
_ROWS_EACH = 2
# The layout of data that are read before the number is known suits this many components.
_USUAL = 16
# What a higher evidence has to be above that of the number with the highest bound, nats.
_STRONG = 3.0


class Tried(NamedTuple):
    """What a fit with some number of components has reached.

    Attributes
    ----------
    lower_bound : float
        Nats; −inf for a fit that failed.
    n_used : int
        Number of components that explain more than one data point.
    left_out : LeftOut or None
        The densities of rows given others; None if the model cannot leave rows out.
    """

    lower_bound: float
    n_used: int
    left_out: LeftOut | None = None

    @property
    def evidence(self) -> float:
        """The lower bound plus the density of all rows given others, nats."""
        return self.lower_bound + (0.0 if self.left_out is None else self.left_out.total)

    def advantage_over(self, other: Tried) -> float:
        """Return by how much the evidence is above another one, beyond what can be chance, nats."""
        rise = self.lower_bound - other.lower_bound
        if self.left_out is None or other.left_out is None:
            return rise
        return rise + self.left_out.rise_over(other.left_out) - _STRONG


class Origin(NamedTuple):
    """Components at which a fit can begin, out of those of another fit.

    Attributes
    ----------
    n_components : int
    statistics : dict of ndarray
        What the data add to the natural parameters of the prior.
    """

    n_components: int
    statistics: Natural

    def start(self, prior: Natural) -> Natural:
        """Return the natural parameters, given those of the prior."""
        return {key: prior[key] + added for key, added in self.statistics.items()}


class Choice(NamedTuple):
    """The number of components that a fit has chosen.

    Attributes
    ----------
    n_components : int
    origin : Origin or None
        Where the fit with this number begins; None for its own start.
    results : dict of ndarray
        What was tried, as the attribute ``component_results_`` has it.
    """

    n_components: int
    origin: Origin | None
    results: dict[str, np.ndarray]


def best_number(fit: Callable[[int], Tried], most: int) -> tuple[int, dict[int, Tried]]:
    """Return the number of components that is best by :func:`preferred`, and all that were tried.

    Numbers are doubled from one on until half of the components stay unused, or two numbers in a
    row are no better. The numbers of components in use are tried as well. The gaps on both sides of
    the best number are then halved until its neighbours have been tried.

    Parameters
    ----------
    fit : callable
        Returns what the fit with a number of components reaches.
    most : int
        The largest number.
    """
    tried: dict[int, Tried] = {}

    def attempt(k: int) -> None:
        if k not in tried:
            tried[k] = fit(k)

    k = 1
    while k <= min(most, preferred(tried) * 2**_PATIENCE):
        attempt(k)
        if k > 1 and 2 * tried[k].n_used <= k:
            break
        k *= 2
    for used in {found.n_used for found in tried.values()}:
        attempt(int(np.clip(used, 1, most)))
    while True:
        middle = preferred(tried)
        below = max((k for k in tried if k < middle), default=middle)
        above = min((k for k in tried if k > middle), default=min(2 * middle, most + 1))
        gaps = [k for k in ((below + middle) // 2, (middle + above) // 2) if k not in tried]
        if not gaps:
            return middle, tried
        for k in gaps:
            attempt(k)


def preferred(tried: dict[int, Tried]) -> int:
    """Return the number with the highest bound, or another one if its evidence is so much higher.

    Of equal ones that of fewer components counts; it is 1 if none has been tried.
    """
    by_bound = min(tried, key=lambda k: (-tried[k].lower_bound, k), default=1)
    advantages = {k: tried[k].advantage_over(tried[by_bound]) for k in tried if k != by_bound}
    better = [k for k, advantage in advantages.items() if advantage > 0]
    return min(better, key=lambda k: (-advantages[k], k), default=by_bound)


class ChoosesNumber:
    """Mixin of estimators whose parameter ``n_components`` can be "auto"."""

    n_components: Any
    # The number that a fit tries at the moment, until it has found one.
    _number_of_trial: int | None = None
    random_state: Any
    verbose: int
    _make_model: Callable[..., Any]
    _strategy: Callable[..., Any]
    _plan: Callable[..., Any]
    _start_anew: Callable[..., Any]

    @property
    def _chooses_number(self) -> bool:
        """Whether the number of components is found by the fit."""
        # Nets have layers, and not components.
        return isinstance(vars(self).get("n_components"), str)

    @property
    def _number(self) -> int:
        """The number of components of the model, or that of usual models before it is known."""
        if not self._chooses_number:
            return self.n_components  # type: ignore[no-any-return]
        tried = self._number_of_trial
        found: int = getattr(self, "n_components_", _USUAL) if tried is None else tried
        return found

    @property
    def _least_number(self) -> int:
        """The smallest number of components that the model can have."""
        return 1 if self._chooses_number else self._number

    def _unchanged(self, name: str, old: Any, new: Any) -> bool:
        """Whether two values of a parameter mean the same for the model that has been fitted."""
        # A number that has been found and is then given is the same number.
        if name == "n_components" and "auto" in (old, new):
            found = getattr(self, "n_components_", None)
            return all(value in ("auto", found) for value in (old, new))
        return same(old, new)

    def _refuse_number_with(self, **given: Any) -> None:
        """Refuse what names components by their numbers, before there are any."""
        names = [name for name, value in given.items() if value is not None]
        if names and self._chooses_number:
            raise ValueError(
                f"{names[0]} says something of each component, but n_components='auto' finds out "
                "how many there are. Give a number of components."
            )

    def _choose_number(self, X: Any, units: Any, random_state: np.random.RandomState) -> Choice:
        """Return the number of components with the highest evidence, and these components.

        Whole fits with several numbers are compared. Components of the best one that explain
        nothing are left out if this does not lower the evidence.
        """
        kept: dict[int, Context] = {}
        failures: list[np.linalg.LinAlgError] = []

        def run(k: int, origin: Origin | None = None) -> Tried:
            self._number_of_trial = k
            try:
                model = self._make_model(X, units.example)
                strategy = self._strategy(model)
                plan = self._plan(strategy, units)
                # The fit that is kept draws the same random numbers once more.
                same_state = copy.deepcopy(random_state)
                how = units, None, None, same_state, origin
                found = self._start_anew(model, strategy, plan, *how)
                left_out = _left_out(found.kept.ctx, units)
            except np.linalg.LinAlgError as error:
                failures.append(error)
                return Tried(-np.inf, k)
            except ValueError as error:
                raise ValueError(
                    f"n_components='auto' tries several numbers, of which {k} is refused: {error}"
                ) from error
            ctx, bound = found.kept.ctx, float(found.kept.trace.final)
            if self.verbose:
                of_rows = "" if left_out is None else f", rows left out {left_out.total:.6f}"
                print(f"n_components={k}: lower bound {bound:.6f}{of_rows}", flush=True)
            if origin is None:
                kept[k] = ctx
            return Tried(bound if np.isfinite(bound) else -np.inf, len(_used(ctx)), left_out)

        best, tried = best_number(run, max(units.n_rows // _ROWS_EACH, 1))
        if best not in kept:
            raise failures[-1]
        numbers = sorted(tried)
        every = [tried[k] for k in numbers]
        results = {
            "n_components": np.array(numbers),
            "lower_bound": np.array([found.lower_bound for found in every]),
            "n_effective_components": np.array([found.n_used for found in every]),
        }
        if tried[best].left_out is not None:
            totals = [np.nan if found.left_out is None else found.left_out.total for found in every]
            results["log_density_left_out"] = np.array(totals)
        origin = _reduced(kept[best])
        if origin is not None:
            reduced = run(origin.n_components, origin)
            if reduced.evidence < tried[best].evidence:
                # Components that are no more than one row can be worth their place.
                origin = None
        return Choice(best if origin is None else origin.n_components, origin, results)


def _reduced(ctx: Context) -> Origin | None:
    """Return the components that are in use; None if all are, or if none can be left out."""
    used, model, n_components = _used(ctx), ctx.model, ctx.model.n_components
    if not isinstance(model, Searchable) or not 0 < len(used) < n_components:
        return None
    statistics = model.statistics_of(ctx.q, ctx.prior, used)
    return None if statistics is None else Origin(len(used), statistics)


def _left_out(ctx: Context, units: Any) -> LeftOut | None:
    """Return the densities of rows given others; None if the model cannot leave rows out."""
    if not isinstance(ctx.model, Searchable):
        return None
    return ctx.model.left_out(units, ctx.q, ctx.summary, ctx.prior)


def _used(ctx: Context) -> np.ndarray:
    """Return the numbers of the components that explain more than one data point."""
    return np.flatnonzero(ctx.model.expected_counts(ctx.q, ctx.prior) > 1)
