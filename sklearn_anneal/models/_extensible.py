"""The interface of models with a part that waits for the end of the search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..families import Natural
from ._base import LocalStep


class Extensible(ABC):
    """Mixin of models with a part that waits until its use can be judged.

    A part that is there from the beginning competes with others for what there is to explain, and
    fits that lack these others can then have the highest bound. The fit is therefore searched for
    without the part.

    Attributes
    ----------
    waiting : bool
        Whether there is such a part that the model does not have yet.
    """

    waiting: bool = False

    @abstractmethod
    def extended(
        self, q: Natural, prior: Natural, step: LocalStep
    ) -> tuple[Any, Natural, Natural] | None:
        """Return the model with the part, its prior and q; None if the bound is no higher with it.

        ``step`` is the local step of all data, of a visit to ``q`` for evaluation. With optimal
        local variables and hyperparameters of the part, and all else as it is, its bound is to be
        above that of ``q``.
        """
