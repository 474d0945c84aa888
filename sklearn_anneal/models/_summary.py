"""What summaries of data have in common."""

from __future__ import annotations

from typing import Any


class DataSummary:
    """Base class of the summaries of data, from which priors and starts are computed.

    A summary is a dataclass with the attribute ``weight``, the total weight of the data.
    """

    def merge(self, other: Any) -> Any:
        """Return the summary of both data sets together; their center is that of this one."""
        raise NotImplementedError

    def continued(self, other: Any) -> Any:
        """Return the summary to use when a fit goes on with other data but keeps its priors."""
        raise NotImplementedError

    def why_not_learned(self, model: Any) -> str | None:
        """Return why the data do not determine the priors that a model learns, and what to do.

        The priors then keep their values, and the sentence becomes a warning. None if the data do
        determine them, or if the model learns none.
        """
        return None

    def whole(self) -> Any:
        """Return the summary of data in parts, once those of all parts have been merged.

        It differs from this one in models whose center is a parameter: the mean of all data then
        takes the place of that of the first part.
        """
        return self
