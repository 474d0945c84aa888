"""Parameters of single data points, such as the factors of users, with one row per unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..data.shared_rows import SharedRows
from ..families import Factor, Family, Natural, Tempering, posterior
from ._base import LocalStep

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


@dataclass(frozen=True)
class UnitBlock:
    """Rows of natural parameters, one for each unit, with a conjugate prior.

    If ``held``, these parameters are rows of q, and a block updates them like other parameters.
    If not, they are local variables, which every visit infers anew given the global parameters.

    Parameters
    ----------
    name : str
        Name of the units, which is the prefix of the keys of their arrays.
    family : Family
        The distribution of one row.
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
        """Return the model's key for one of the family's keys."""
        return f"{self.name}_{key}"

    @cached_property
    def factor(self) -> Factor:
        """The rows as a factor of q."""
        return Factor(self.family, {key: self.key(key) for key in self.columns})

    def owns(self, keys: tuple[str, ...]) -> bool:
        """Return whether these keys of the model include all keys of the rows."""
        return all(key in keys for key in self.factor.names.values())

    def rows(self, n_rows: int, dtype: DTypeLike) -> SharedRows:
        """Return arrays for the statistics of all rows; every chunk writes into its own rows."""
        named = {self.key(key): n for key, n in self.columns.items()}
        return SharedRows(n_rows, named, np.dtype(dtype))

    def fold_in(self, statistics: Natural, prior: Natural, t: Tempering) -> Natural:
        """Return the posterior of rows, given their statistics under the family's keys."""
        return posterior(prior, statistics, self.family.base(statistics), t)


@dataclass(frozen=True)
class RowsOfSteps:
    """The arrays into which the local steps of one visit write the statistics of rows.

    Parameters
    ----------
    without_noise, with_noise : SharedRows
        Arrays for the statistics without and with random weights.
    """

    without_noise: SharedRows
    with_noise: SharedRows

    @classmethod
    def of(cls, block: UnitBlock, n_rows: int, dtype: DTypeLike) -> RowsOfSteps:
        """Return arrays for ``n_rows`` rows: of ``dtype`` with noise, of float64 without."""
        return cls(block.rows(n_rows, np.float64), block.rows(n_rows, dtype))

    def merge(self, a: LocalStep, b: LocalStep) -> LocalStep:
        """Return the sum of the steps of two consecutive parts of the rows.

        The rows of the sum are views of the arrays of this object. Rows from other processes are
        copied into these arrays first.
        The steps have neither entropy nor log prior: those of the rows do not depend on the data,
        and a visit adds them when it is finished.
        """
        assert a.rows is not None and b.rows is not None
        rows = slice(a.rows.start, b.rows.stop)
        statistics = self.without_noise.joined((a.rows, a.statistics), (b.rows, b.statistics))
        # Other statistics, which have no row per unit, are added.
        for key, value in a.statistics.items():
            if key not in statistics:
                statistics[key] = value + b.statistics[key]
        deviation = None
        if a.deviation is not None and b.deviation is not None:
            deviation = self.with_noise.joined((a.rows, a.deviation), (b.rows, b.deviation))
        return LocalStep(statistics, a.energy + b.energy, 0.0, deviation=deviation, rows=rows)
