"""The interface of models whose priors or starts read training data, beside their summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self


class ReadsWholeData(ABC):
    """Mixin of models whose priors or starts read all training data, or rows of them."""

    @abstractmethod
    def with_whole_data(self, units: Any) -> Self:
        """Return the model of a fit to these data.

        It is called after the model has been resolved, but not for streams. Data in parts have an
        ``example`` in memory, of all rows if there are few.
        """
