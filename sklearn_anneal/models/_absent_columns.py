"""The interface of models that need not store columns without data one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..families import Natural


class OmitsColumns(ABC):
    """Mixin of models that can be fitted without parameters of each column that data do not have.

    A vocabulary can be many times as large as the number of words that occur, and the cost of a
    fit should not depend on it.
    """

    @abstractmethod
    def without_absent(self, units: Any) -> Any:
        """Return the model of a fit to these data, or the model itself if they have most columns.

        It is called after the model has been resolved. The prior, starts and all else that has the
        shape of q then have the columns of the fit.
        """

    @abstractmethod
    def with_absent(self, q: Natural, prior: Natural) -> tuple[Any, Natural, Natural]:
        """Return the model, q and its prior with all columns, after a fit."""
