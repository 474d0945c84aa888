"""The interface of models whose priors read the training data themselves, beside their summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self


class ReadsWholeData(ABC):
    """Mixin of models whose priors read all training data, where these are in memory."""

    @abstractmethod
    def with_whole_data(self, units: Any) -> Self:
        """Return the model of a fit to these data.

        It is called after the model has been resolved, but neither for streams nor for data in
        parts.
        """
