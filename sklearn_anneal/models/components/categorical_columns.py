"""Components whose observations are rows of categories."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import psi

from ...data.tables import Coded, Packing
from ...data.units import Rows
from ...families import Dirichlet, Factor, Natural
from ...families._divergence import STRONG
from .._base import Expected, Known, compiled, shallow
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
        # In the order of the levels of all columns, (n_levels, n_components).
        self.concentration = np.concatenate([column.T for column in concentration], dtype=float)
        self.learns = learns

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return len(self.n_levels)

    @cached_property
    def _first_level(self) -> np.ndarray:
        """The place of the first level of each column among those of all, (n_features + 1,)."""
        return np.concatenate([[0], np.cumsum(self.n_levels, dtype=np.int64)])

    @cached_property
    def _places(self) -> dict[str, np.ndarray]:
        """The places of the levels of the columns of each key, (n_columns, n_levels)."""
        groups: dict[str, list[np.ndarray]] = {}
        for first, n in zip(self._first_level, self.n_levels, strict=False):
            groups.setdefault(f"levels_{n}", []).append(np.arange(first, first + n))
        return {key: np.array(levels) for key, levels in groups.items()}

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(Factor(Dirichlet(), {"concentration": key}) for key in self._places)

    def _by_key(self, levels: np.ndarray) -> Natural:
        """Return numbers of all levels of all columns, (n_levels, K), as natural parameters."""
        return {
            key: np.ascontiguousarray(levels[places].transpose(2, 0, 1))
            for key, places in self._places.items()
        }

    def _by_level(self, natural: Natural) -> np.ndarray:
        """Return arrays in the shapes of natural parameters as those of levels, (n_levels, K)."""
        levels = np.empty((sum(self.n_levels), self.n_components))
        for key, places in self._places.items():
            levels[places] = natural[key].transpose(1, 2, 0)
        return levels

    def gathered(self, columns: list[np.ndarray]) -> Natural:
        """Return arrays (n_components, n_levels), one for each column, as natural parameters."""
        return self._by_key(np.concatenate([column.T for column in columns]))

    def columns(self, natural: Natural) -> list[np.ndarray]:
        """Return natural parameters as arrays (n_components, n_levels), one for each column."""
        return np.split(self._by_level(natural).T, self._first_level[1:-1], axis=1)

    def prior(self, summary: None) -> Natural:
        return self._by_key(self.concentration)

    def _learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[CategoricalColumns, Natural]:
        logs, first = self._expected_logs(self._by_level(q)), self._first_level
        best = self.concentration[first[:-1], 0]
        compiled("empirical_bayes").dirichlet_concentrations(logs, first, *BOUNDS, best)
        model = shallow(self)
        each = np.repeat(best, self.n_levels)[:, None]
        model.concentration = moved(self.concentration, each, rho)
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

    def _expected_logs(self, concentration: np.ndarray) -> np.ndarray:
        """Return E log p of all levels, given their concentrations, both (n_levels, K)."""
        logs = np.empty(concentration.shape)
        compiled("divergence").dirichlet_logs(concentration, self._first_level, logs)
        return logs

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> np.ndarray:
        if rng is None:
            # Predictions of few rows import no compiler.
            concentration = self._by_level(q)
            total = np.add.reduceat(concentration, self._first_level[:-1], axis=0)
            return psi(concentration) - np.repeat(psi(total), self.n_levels, axis=0)
        return self.coefficients(self.draw(q, rng))

    def known(self, q: Natural, before: Known | None) -> Known | None:
        concentration = self._by_level(q)
        return {"concentration": concentration, "logs": self._expected_logs(concentration)}

    def expectations_given(self, q: Natural, known: Known) -> np.ndarray:
        logs: np.ndarray = known["logs"]
        return logs

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        arrays = known["concentration"], self._by_level(prior), known["logs"]
        found = np.empty(2)
        compiled("divergence").dirichlet_divergence(*arrays, self._first_level, found)
        return float(found[0]) if found[1] <= STRONG else None

    def coefficients(self, draws: Draws) -> np.ndarray:
        """Return the logarithms of probabilities at one draw (:meth:`Components.draw`)."""
        logs = [draw["log_probabilities"] for draw in draws]
        return self._by_level(dict(zip(self._places, logs, strict=True)))

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
        return self._by_key(raw.levels)

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
