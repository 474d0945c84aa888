"""Base class of summaries of data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from ..data.units import Centered


class DataSummary:
    """Base class of the summaries of data, from which priors and starts are computed.

    A summary is a dataclass with the attribute ``weight``, the total weight of the data.
    """

    weight: float

    def merge(self, other: Any) -> Any:
        """Return the summary of both data sets together.

        The center is that of this one, or of the other one where this one has none because it
        describes no observed cell. Merging is associative, and a summary of data without any
        observed cell adds nothing but their weight.
        """
        raise NotImplementedError

    def continued(self, other: Any) -> Any:
        """Return the summary to use when a fit goes on with other data but keeps its priors."""
        raise NotImplementedError

    def why_not_learned(self, model: Any) -> str | None:
        """Return why the data do not determine the priors that a model learns, and what to do.

        All priors then keep their values, and the sentence becomes a warning. None if the data do
        determine them, or if the model learns none.
        """
        return None

    def why_kept(self, model: Any) -> str | None:
        """Return the same where only some of the priors are not learned."""
        return self.why_not_learned(model)

    def whole(self) -> Any:
        """Return the summary of all data, once those of all parts have been merged.

        It differs from this one in models whose center is a parameter: the mean of all data then
        takes the place of that of the first part. The mean is the center of columns without any
        observed cell, too.
        """
        return self


S = TypeVar("S", bound=DataSummary)
"""The summary that a model makes of data."""


class _Mergeable(Protocol):
    def merge(self, other: Any) -> Any: ...


T = TypeVar("T", bound=_Mergeable)
V = TypeVar("V")


def merged(a: T | None, b: T | None) -> T | None:
    """Return the summary of both data sets together; None has nothing to add."""
    if a is None or b is None:
        return b if a is None else a
    sum_: T = a.merge(b)
    return sum_


def whole(summary: V) -> V:
    """Return :meth:`DataSummary.whole`, or the summary itself if its class has no center."""
    return summary.whole() if isinstance(summary, DataSummary) else summary


def first_center(summary: Centered, other: Centered) -> np.ndarray:
    """Return the center of the first of two summaries in which each column has one.

    A column without any observed cell has the center NaN until all parts have been merged.
    """
    center = summary.center
    unknown = np.isnan(center)
    return np.where(unknown, other.center, center) if unknown.any() else center


def with_center(summary: Any) -> Any:
    """Return a summary in which the mean is the center of the columns that have none."""
    unknown = np.isnan(summary.center)
    if not unknown.any():
        return summary
    return replace(summary, center=np.where(unknown, summary.mean, summary.center))
