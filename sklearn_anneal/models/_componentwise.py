"""The interface of models to starts that users give, and to changes of the components' order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from ..families import Natural
from ._base import S

if TYPE_CHECKING:
    from ._exchangeable import Exchangeable
    from .components._base import Components


Given = dict[str, Any]
"""The checked parameters that give a start, by their names in the model."""


class Componentwise(ABC, Generic[S]):
    """Mixin of models whose components can be given at the start, and can exchange their numbers.

    The priors of a model may distinguish components. Exchanges of these are refused before
    :meth:`reordered` is called.
    """

    @abstractmethod
    def started_at(
        self, given: Given, usual: Callable[[], Natural], summary: S, prior: Natural
    ) -> Natural:
        """Return the λ at which a fit begins whose start is given, as a whole or in part.

        Parameters
        ----------
        given : dict
            The parameters that are given, in the forms that the estimator has checked.
        usual : callable
            Returns the start of :meth:`Model.init`, which has the parts that are not given. It is
            called only if some are needed.
        summary : object
        prior : dict of ndarray

        Returns
        -------
        q : dict of ndarray
        """

    @abstractmethod
    def reordered(
        self, q: Natural, prior: Natural, order: np.ndarray
    ) -> tuple[Self, Natural, Natural]:
        """Return the model, its prior and q after a change of the order of the components.

        Learned parameters of each component go with it. ``order`` has the numbers of all
        components, that of the component which comes first at its beginning.
        """

    def assigns_all(self, given: Given) -> bool:
        """Return whether a given start assigns every data point to one component."""
        return "profile" in given

    def exchangeable(self, prior: Natural, order: np.ndarray) -> bool:
        """Return whether components that exchange their numbers have the same given priors."""
        return True

    def gain_of_order(self, q: Natural, reordered: Natural) -> float:
        """Return the gain of the bound of the same assignments by another order, in nats."""
        return 0.0


def aligned(
    model: Exchangeable,
    components: Components,
    begun: Callable[[Natural], Natural],
    q: Natural,
    summary: Any,
    prior: Natural,
) -> Natural:
    """Return a start with its components in the order in which they resemble the given ones most.

    Parameters
    ----------
    model : Exchangeable
    components : Components
        The components of the model.
    begun : callable
        Returns a start after its components have become the given ones, as far as these are given.
    q : dict of ndarray
        The start.
    summary : object
        The part of the summary of the data that the components read.
    prior : dict of ndarray
    """

    def of(chosen: np.ndarray) -> Natural:
        added = model.statistics_of(q, prior, chosen)
        return {key: prior[key] + value for key, value in added.items()}

    # Beside copies of the first component, what is given alone distinguishes the components.
    copies = begun(of(np.zeros(model.n_components, dtype=int)))
    wanted, found = (
        components.coordinates(each, summary).reshape(model.n_components, -1)
        for each in (copies, q)
    )
    distances = cdist(wanted, found, "sqeuclidean")
    if not np.isfinite(distances).all():
        raise ValueError(
            "The given start is so far from the data that squares of distances overflow. Give "
            "numbers of the size of those in X."
        )
    if model.groups is not None:
        distances[np.not_equal.outer(model.groups, model.groups)] = np.inf
    return of(linear_sum_assignment(distances)[1])
