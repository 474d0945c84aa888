"""The forms in which requests read the data points of parts, and their sizes for a fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .parts import Part
from .units import Units


class About(NamedTuple):
    """The sizes and totals of a part that a fit needs."""

    n_units: int
    n_rows: int
    n_weight_units: int
    # The number of entries of data points that have different numbers of them, and else 0.
    n_entries: int
    weight: float
    n_observations: float
    patterns: bool  # whether cells are missing


@dataclass(frozen=True)
class View:
    """The form in which the data points of a part are seen."""

    # The summary's center, which data points are seen relative to; None before there is one.
    center: Any = None
    # Whether any part has missing cells. All parts are then treated alike.
    patterns: bool = False
    share: float | None = None  # the share of data points that is held out; None: all are seen
    held_out: bool = False  # whether these are seen, and not the others

    def of(self, part: Part) -> Units:
        """Return the data points of a part in this form."""
        units: Any = part.units
        if units.n_units == 0:
            return NoUnits()
        if self.share is not None:
            order = np.random.RandomState(part.index).permutation(units.n_units)
            n = max(1, round(self.share * units.n_units))
            units = units.take(np.sort(order[:n] if self.held_out else order[n:]))
        if self.patterns:
            units = units.marked()
        return units if self.center is None else units.centered(self)


class NoUnits(Units):
    """The data points of an empty part."""

    weights = None

    @property
    def n_units(self) -> int:
        return 0

    def take(self, index: np.ndarray | slice) -> NoUnits:
        return self

    def centered(self, summary: object) -> NoUnits:
        return self

    def occurring(self, n_columns: int) -> np.ndarray:
        return np.empty(0, dtype=np.int32)
