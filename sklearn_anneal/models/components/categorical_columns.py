"""Components whose observations are rows of categories."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.tables import Coded, Packing
from ...data.units import Rows
from ...families import Dirichlet, Factor, Natural
from ...families._empirical_bayes import dirichlet_concentration
from .._base import Expected
from .._draws import drawn_labels, holes_of
from ._base import BOUNDS, Draws, Profile, RawStatistics, log_means, moved, multiplied
from ._linear import (
    Levels,
    PackedComponents,
    Table,
    kernels,
    table_of,
)


@dataclass(frozen=True)
class LevelSums(RawStatistics):
    """Σ R over the rows that have each level of each column, (n_levels, n_components)."""

    levels: np.ndarray


class CategoricalColumns(PackedComponents[None, LevelSums]):
    """Distributions of rows of categories, with Dirichlet priors of the probabilities.

    The columns are independent given the component, and each has its own number of levels. The
    natural parameters are one array for each number of levels L that occurs, ``levels_L`` of shape
    (n_components, n_columns_with_L_levels, L).

    Parameters
    ----------
    n_components : int
    n_levels : sequence of int
        The number of levels of each column.
    concentration : list of ndarray of shape (n_components, n_levels)
        Concentrations of the priors of each column.
    learns : bool
        Whether the concentrations are learned, for each column as one number for all components
        and levels. They must then begin as one number.
    """

    profile_names = ("emissionprob",)

    def __init__(
        self,
        n_components: int,
        n_levels: Any,
        concentration: list[np.ndarray],
        learns: bool = False,
    ):
        self.n_components = int(n_components)
        self.n_levels = tuple(int(n) for n in n_levels)
        self.concentration = concentration
        self.learns = learns

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return len(self.n_levels)

    def _groups(self) -> dict[str, list[int]]:
        """Return the columns with each number of levels, by the key of their parameters."""
        groups: dict[str, list[int]] = {}
        for column, n in enumerate(self.n_levels):
            groups.setdefault(f"levels_{n}", []).append(column)
        return groups

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(Factor(Dirichlet(), {"concentration": key}) for key in self._groups())

    def gathered(self, columns: list[np.ndarray]) -> Natural:
        """Return arrays (n_components, n_levels), one for each column, as natural parameters."""
        groups = self._groups().items()
        return {key: np.stack([columns[c] for c in members], axis=1) for key, members in groups}

    def columns(self, natural: Natural) -> list[np.ndarray]:
        """Return natural parameters as arrays (n_components, n_levels), one for each column."""
        found: dict[int, np.ndarray] = {}
        for key, members in self._groups().items():
            found |= {column: natural[key][:, i] for i, column in enumerate(members)}
        return [found[column] for column in range(self.n_features)]

    def prior(self, summary: None) -> Natural:
        return self.gathered(self.concentration)

    def _learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[CategoricalColumns, Natural]:
        logs = self.columns(self._expected_logs(q))
        model = copy(self)
        model.concentration = [
            moved(old, dirichlet_concentration(log, float(old[0, 0]), BOUNDS), rho)
            for old, log in zip(self.concentration, logs, strict=True)
        ]
        return model, model.prior(None)

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: None,
        prior: Natural,
    ) -> Natural:
        found = self.gathered(profile["emissionprob"])
        return {key: prior[key] + counts[:, None, None] * found[key] for key in found}

    def random_natural(
        self, counts: np.ndarray, summary: None, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        result = {}
        for factor in self.factors:
            (key,) = factor.names.values()
            shape = prior[key].shape
            shares = rng.dirichlet(np.ones(shape[2]), size=shape[:2])
            result[key] = prior[key] + counts[:, None, None] * shares
        return result

    def _expected_logs(self, q: Natural) -> Natural:
        return {
            name: value
            for factor in self.factors
            for name, value in factor.rename(factor.family.expectations(factor.pick(q))).items()
        }

    def _by_level(self, logs: Natural) -> np.ndarray:
        """Return logarithms of probabilities of all levels of all columns, (n_levels, K)."""
        return np.concatenate([column.T for column in self.columns(logs)])

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> np.ndarray:
        if rng is None:
            return self._by_level(self._expected_logs(q))
        return self.coefficients(self.draw(q, rng))

    def coefficients(self, draws: Draws) -> np.ndarray:
        """Return the logarithms of probabilities at one draw (:meth:`Components.draw`)."""
        logs = [draw["log_probabilities"] for draw in draws]
        return self._by_level(dict(zip(self._groups(), logs, strict=True)))

    def plug_in(self, q: Natural) -> np.ndarray:
        return self._by_level({key: log_means(q[key]) for key in self.keys})

    def for_rows(self, expected: np.ndarray, rows: Rows) -> Table | Levels:
        return table_of(expected, rows)

    def _density_of_cells(self, rows: Rows, expected: Levels) -> np.ndarray:
        coded: Coded = rows.X  # type: ignore[assignment]
        first_level = coded.packing.first_level
        found: np.ndarray = kernels(plain=True).log_density(
            coded.levels(), first_level, expected.entries
        )
        return found

    def zeros(self, expected: Expected) -> LevelSums:
        return LevelSums(np.zeros((sum(self.n_levels), self.n_components)))

    def add_levels(
        self, levels: np.ndarray, count: np.ndarray, packing: Packing, raw: LevelSums
    ) -> None:
        raw.levels[:] += levels

    def statistics(
        self, raw: LevelSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        ends = np.cumsum(self.n_levels)[:-1]
        return self.gathered([column.T for column in np.split(raw.levels, ends)])

    def probabilities(self, q: Natural) -> list[np.ndarray]:
        """Return the posterior means of the probabilities, (n_components, n_levels) per column."""
        return [np.exp(log_means(column)) for column in self.columns(q)]

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural
    ) -> tuple[np.ndarray, np.ndarray | None]:
        levels = [(shares @ p).argmax(axis=1) for p in self.probabilities(q)]
        return np.column_stack(levels).astype(np.float64), None

    def drawn_rows(
        self, rows: Rows, labels: np.ndarray, expected: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        out = np.zeros(rows.X.shape)
        where, columns = holes_of(rows.X)
        logs = np.split(expected, np.cumsum(self.n_levels)[:-1])
        for column, of_levels in enumerate(logs):
            own = where[columns == column]
            out[own, column] = drawn_labels(of_levels.T[labels[own]], rng)
        return out

    def embedding(self, rows: Rows) -> np.ndarray:
        coded: Coded = rows.X  # type: ignore[assignment]
        levels = coded.levels()
        points = []
        for column, n in zip(levels.T, self.n_levels, strict=True):
            one_hot = np.equal.outer(column, np.arange(n)).astype(np.float64)
            known = max(int((column >= 0).sum()), 1)
            one_hot[column < 0] = one_hot.sum(axis=0) / known
            points.append(one_hot)
        return np.hstack(points)

    @property
    def n_parameters(self) -> int:
        return self.n_components * (sum(self.n_levels) - self.n_features)

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        return {key: multiplied(q[key], size, rng) for key in self.keys}

    def coordinates(self, q: Natural, summary: None) -> np.ndarray:
        return np.hstack(self.probabilities(q))

    def log_volumes(self, x: np.ndarray, summary: None, expected: np.ndarray) -> np.ndarray:
        """Return log Σ_v p(v | z_n = k)^x of each column, (len(x), n_components, n_features)."""
        exponents = np.asarray(x)[:, None, None] * expected
        parts = np.split(exponents, np.cumsum(self.n_levels)[:-1], axis=1)
        return np.stack([np.logaddexp.reduce(part, axis=1) for part in parts], axis=-1)
