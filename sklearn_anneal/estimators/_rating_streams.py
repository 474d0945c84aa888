"""Streams of ratings: what a fit leaves to updates, and statistics of users who come again."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..data.parted_units import PartedUnits
from ..data.units import Ratings
from ..families import Natural
from ..models._rating_rotations import turned_towards
from ._rating_refinements import RatingRefinements
from ._ratings import RatingData
from ._state import Inference

if TYPE_CHECKING:
    from ..annealing import Annealing, Context


def users_of(units: Ratings | PartedUnits[Ratings]) -> Ratings:
    """The users who are attributes of a fit: all of a matrix, but none of data in parts."""
    if isinstance(units, PartedUnits):
        # The users of data in parts stay with them.
        return units.example.take(slice(0))
    return units.everyone or units


def of_items(ctx: Context) -> Context:
    """A copy of the context without the parameters of the training users.

    Users are local variables in it, so that it serves for the training data and for other users.
    """
    model = copy(ctx.model)
    # Arrays whose size grows with the number of training users are dropped.
    model.holds_users = False
    if model.raters is not None:
        model.raters = model.raters.fixed()
    (items,) = model.blocks
    q, prior = ({key: natural[key] for key in items.keys} for natural in (ctx.q, ctx.prior))
    return replace(ctx, model=model, q=q, prior=prior)


class RatingStreams(RatingRefinements):
    """Methods of :class:`AnnealedPMF` for streams."""

    def _unchanged(self, name: str, old: object, new: object) -> bool:
        # No sweeps follow updates, so that a stream can say so at any time.
        return (name == "gibbs_sweeps" and new in ("auto", 0)) or super()._unchanged(name, old, new)

    def _context_of_stream(self, ctx: Context, units: Ratings) -> Context:
        ctx = of_items(super()._context_of_stream(ctx, units))
        if self.total_samples is not None:
            # Priors have been learned since items were updated. What ratings add to those of now
            # can be multiplied until it is what the whole stream adds.
            statistics = ctx.model.visit(ctx.q, units).step(units).statistics
            ctx.q = {key: ctx.prior[key] + statistics[key] for key in ctx.q}
        return ctx

    def _fitted_again(
        self, X: RatingData, inference: Inference
    ) -> tuple[Inference, Annealing, Ratings]:
        opened, method, units = self._begun_anew(X, inference)
        ctx, before = opened.ctx, inference.ctx
        means = before.model.expectations(before.q).mean
        ctx.model, ctx.prior, ctx.q = turned_towards(ctx.model, ctx.q, means)
        return opened, method, units

    def _complete_update(self, batch: Ratings, units: Ratings, follows_fit: bool) -> None:
        ids = units.ids
        # After a fit, all ratings of pairs so far are among the data. Users of a matrix do not
        # come again.
        found = self._solved(self._inference.ctx, users_of(batch) if ids is None else units)
        if ids is not None:
            known = self._known(np.arange(self._n_known(ids.max() + 1)))
            for key, value in found.items():
                known[key][ids] = value
            found = known
        self._set_users(found)

    def _n_known(self, at_least: int) -> int:
        kept = getattr(self, "_user_statistics", None)
        return max(at_least, self.n_users or 0, 0 if kept is None else len(kept["natural_mean"]))

    def _known(self, users: np.ndarray) -> Natural:
        """Statistics of the earlier ratings of these users (of pairs); zeros for new users."""
        model = self._inference.ctx.model if hasattr(self, "_inference") else None
        size = self.n_components + bool(self.biases) if model is None else model.size
        kept = getattr(self, "_user_statistics", None)
        known = {
            "precision": np.zeros((len(users), size * (size + 1) // 2)),
            "natural_mean": np.zeros((len(users), size)),
            "ratings": np.zeros((len(users), 2)),
        }
        if kept is not None:
            old = users < len(kept["natural_mean"])
            for key, value in known.items():
                value[old] = kept[key][users[old]]
        return known
