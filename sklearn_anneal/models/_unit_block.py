"""Parameters of single data points: users' factors, and other things with a row per unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..families import Factor, Family, Natural, Tempering, posterior
from ..inference.parallel import SharedRows
from ._visit import LocalStep


@dataclass(frozen=True)
class UnitBlock:
    """Rows of natural parameters, one for each unit, with a conjugate prior.

    Such parameters are rows of q, which a block updates as it does other parameters (``held``),
    or local variables, which every visit finds anew given the global parameters.

    Parameters
    ----------
    name : str
        What the rows belong to; it precedes the keys of their arrays.
    family : Family
    columns : dict of int
        The family's key → number of columns of its array.
    held : bool, default=True
        Whether the rows are in q.
    """

    name: str
    family: Family
    columns: Mapping[str, int]
    held: bool = True

    def key(self, key: str) -> str:
        """The model's key of one of the family's."""
        return f"{self.name}_{key}"

    @property
    def factor(self) -> Factor:
        """The rows as a factor of q."""
        return Factor(self.family, {key: self.key(key) for key in self.columns})

    def owns(self, keys: tuple[str, ...]) -> bool:
        """Whether these keys of the model are those of the rows."""
        return all(key in keys for key in self.factor.names.values())

    def rows(self, n_rows: int, dtype: Any) -> SharedRows:
        """Room for the statistics of rows, into which chunks write side by side."""
        named = {self.key(key): n for key, n in self.columns.items()}
        return SharedRows(n_rows, named, np.dtype(dtype))

    def fold_in(self, statistics: Natural, prior: Natural, t: Tempering) -> Natural:
        """Natural parameters of rows with these statistics; keys are the family's."""
        return posterior(prior, statistics, self.family.base(statistics), t)


@dataclass(frozen=True)
class RowsOfSteps:
    """Where the steps of one visit write the statistics of rows, without and with noise.

    Parameters
    ----------
    without_noise, with_noise : SharedRows
    """

    without_noise: SharedRows
    with_noise: SharedRows

    @classmethod
    def of(cls, block: UnitBlock, n_rows: int, dtype: Any) -> RowsOfSteps:
        """Room for ``n_rows``; statistics with noise are of ``dtype``, others of float64."""
        return cls(block.rows(n_rows, np.float64), block.rows(n_rows, dtype))

    def merge(self, a: LocalStep, b: LocalStep) -> LocalStep:
        """The steps of two consecutive parts of the rows as one, with arrays of these rooms."""
        assert a.rows is not None and b.rows is not None
        rows = slice(a.rows.start, b.rows.stop)
        statistics = self.without_noise.joined((a.rows, a.statistics), (b.rows, b.statistics))
        # What is not a row adds up.
        for key, value in a.statistics.items():
            if key not in statistics:
                statistics[key] = value + b.statistics[key]
        deviation = None
        if a.deviation is not None and b.deviation is not None:
            deviation = self.with_noise.joined((a.rows, a.deviation), (b.rows, b.deviation))
        return LocalStep(
            statistics,
            a.energy + b.energy,
            a.entropy + b.entropy,
            a.log_prior + b.log_prior,
            deviation,
            rows=rows,
        )
