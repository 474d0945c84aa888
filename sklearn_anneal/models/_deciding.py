"""The interface of models that decide in the course of a fit whether they have a certain part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from ..families import Natural
from ._base import LocalStep


class Decision(NamedTuple):
    """Whether the part is there from now on, and the model, its prior and q."""

    taken: bool
    model: Any
    prior: Natural
    q: Natural


class Decides(ABC):
    """Mixin of models with a part that waits until its use can be judged.

    A part that is there from the beginning competes with others for what there is to explain, and
    can lead to a worse optimum. The loop therefore asks for the decision in a plain pass, after a
    number of them, or when the fit would end because it has converged. A fit that ends sooner does
    without the part.

    Attributes
    ----------
    waiting : bool
        Whether the decision is to come.
    passes_before_decision : int
        Number of passes at T = 1 after which it is due.
    """

    waiting: bool = False
    passes_before_decision: int

    @abstractmethod
    def decided(self, q: Natural, prior: Natural, step: LocalStep) -> Decision:
        """Return the decision, after which the model does not wait any more.

        ``step`` is the local step of all data, of a visit to ``q`` for evaluation. The part may be
        taken only if the lower bound is not lower with it.
        """
