"""Refinements of factorisations whose ratings are in memory, all of them at once."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..data.units import Ratings
from ..families import Natural
from ..inference.messages import Messages
from ..models._rating_draws import averaged_items
from ._interface import tempers_units
from ._rating_predictions import RatingPredictions, exact

if TYPE_CHECKING:
    from ..annealing import Context

# Sweeps of Gibbs sampling after fits to ratings in memory. Errors fall little with more of them.
_SWEEPS = 100


class RatingRefinements(RatingPredictions):
    """Methods of :class:`AnnealedPMF` for implicit feedback and averages over Gibbs sampling."""

    _attributes_of_fits = ("_averaged",)

    def _refuse_refinements(self, data: str) -> None:
        """Refuse what reads all ratings at once where they are never together."""
        for name, nothing in (("implicit_feedback", False), ("gibbs_sweeps", 0)):
            given = getattr(self, name)
            if given != "auto" and given:
                raise ValueError(
                    f"{data} are fitted without {name}, because it reads all ratings at once. Give "
                    f'{name}="auto" or {nothing}.'
                )

    def _learns_from_raters(self) -> bool:
        """Whether fits to data in memory learn what the raters of an item tell about it."""
        if self.implicit_feedback == "auto":
            return bool(self.hierarchical)
        if self.implicit_feedback and not self.hierarchical:
            raise ValueError(
                "implicit_feedback=True needs hierarchical=True: users who rated an item move the "
                "mean of its prior, which is zero otherwise."
            )
        return bool(self.implicit_feedback)

    def _sweeps_in_memory(self) -> int:
        """The number of sweeps of Gibbs sampling that follow a fit to data in memory."""
        given, temperatures = self.gibbs_sweeps, tempers_units(self.annealing)
        if given == "auto":
            return _SWEEPS if self.hierarchical and not temperatures else 0
        if given > 0 and temperatures:
            raise ValueError(
                f"gibbs_sweeps={given} cannot be combined with annealing={self.annealing!r}: the "
                "ratings of each user are weighed by a temperature, of which Gibbs sampling knows "
                'nothing. Give gibbs_sweeps="auto" or 0, or another annealing.'
            )
        return int(given)

    def _average(self, ctx: Context, units: Ratings) -> None:
        """Let predictions and attributes read averages of items over Gibbs sampling.

        A start without a pass stays, and equal ratings leave nothing to sample.
        """
        learned = ctx.model.given_variances or not ctx.model.equal_ratings(ctx.summary)
        n_sweeps = self._sweeps_in_memory() if self.n_iter_ and learned else 0
        if n_sweeps == 0:
            return
        messages = Messages(self.verbose, self.verbose_interval)
        messages.say(f"averaging items over {n_sweeps} sweeps of Gibbs sampling")
        # The generator of the context goes on with a stream.
        seed = int(deepcopy(ctx.rng).integers(2**31 - 1))
        with self._workers_for(ctx, units) as workers:
            self._averaged = averaged_items(exact(ctx), ctx.q, units, n_sweeps, seed, workers)
        self._describe(self._fitted_attributes(self._quiet_context()))

    def _quiet_context(self) -> Context:
        """The context of the last fit, with the items that predictions read."""
        ctx, averaged = super()._quiet_context(), getattr(self, "_averaged", None)
        return ctx if averaged is None else replace(ctx, q=ctx.q | averaged)

    def _reorder_averages(self, order: np.ndarray) -> None:
        """Change the order of the factors in the averages of items."""
        averaged: Natural | None = getattr(self, "_averaged", None)
        if averaged is None:
            return
        model = self._inference.ctx.model
        factor = model.items.factor
        self._averaged = factor.rename(model.reordered_rows(factor.pick(averaged), order))
        self._describe(self._fitted_attributes(self._quiet_context()))
