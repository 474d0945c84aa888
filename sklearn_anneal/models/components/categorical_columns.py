"""Components whose observations are rows of categories."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...data.tables import Coded, Packing
from ...data.units import Rows
from ...families import DirichletColumns, Factor, Natural
from .._base import Expected, Known, compiled, shallow
from .._dirichlet_rows import divergence_of_rows, logs_of_rows
from .._draws import drawn_labels, holes_of
from ._base import BOUNDS, Draws, Profile, RawStatistics, log_means, multiplied
from ._linear import (
    Levels,
    PackedComponents,
    Table,
    kernels,
    table_of,
)

# Categories of all columns from which on points are sparse.
_MANY_LEVELS = 500


@lru_cache(maxsize=64)
def _columns(n_levels: tuple[int, ...]) -> DirichletColumns:
    """Return the family of columns with these numbers of levels, which has tables of its own."""
    return DirichletColumns(n_levels)


@dataclass(frozen=True)
class LevelSums(RawStatistics):
    """Σ R over the rows that have each level of each column, (n_components, n_levels)."""

    levels: np.ndarray


class CategoricalColumns(PackedComponents[None, LevelSums]):
    """Distributions of rows of categories, with Dirichlet priors of the probabilities.

    The columns are independent given the component, and each has its own number of levels. The
    natural parameters are ``levels`` of shape (n_components, n_levels), with the levels of all
    columns one after the other.

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
        # In the order of the levels of all columns, (n_components, n_levels).
        self.concentration = np.concatenate(concentration, axis=1, dtype=float)
        self.learns = learns

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return len(self.n_levels)

    @property
    def _family(self) -> DirichletColumns:
        return _columns(self.n_levels)

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor(self._family, {"concentration": "levels"}),)

    def gathered(self, columns: list[np.ndarray]) -> Natural:
        """Return arrays (n_components, n_levels), one for each column, as natural parameters."""
        return {"levels": np.concatenate(columns, axis=1)}

    def columns(self, natural: Natural) -> list[np.ndarray]:
        """Return natural parameters as arrays (n_components, n_levels), one for each column."""
        return np.split(natural["levels"], self._family.first_level[1:-1], axis=1)

    def prior(self, summary: None) -> Natural:
        return {"levels": self.concentration}

    def _learned(
        self, q: Natural, prior: Natural, rho: float
    ) -> tuple[CategoricalColumns, Natural]:
        new, old = np.empty(prior["levels"].shape), np.ascontiguousarray(prior["levels"])
        how = self._family.first_level, rho, *BOUNDS, new
        compiled("empirical_bayes").learned_dirichlets(np.ascontiguousarray(q["levels"]), old, *how)
        model = shallow(self)
        model.concentration = new
        return model, {"levels": new}

    def posterior_like(
        self,
        profile: Profile,
        counts: np.ndarray,
        q: Natural,
        summary: None,
        prior: Natural,
    ) -> Natural:
        found = self.gathered(profile["emissionprob"])["levels"]
        return {"levels": prior["levels"] + counts[:, None] * found}

    def random_natural(
        self, counts: np.ndarray, summary: None, prior: Natural, rng: np.random.Generator
    ) -> Natural:
        shapes = [part.shape for part in self._family.parts(prior["levels"])]
        drawn = [rng.dirichlet(np.ones(shape[2]), size=shape[:2]) for shape in shapes]
        return {"levels": prior["levels"] + counts[:, None] * self._family.joined(drawn)}

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return E log p of all levels, or at one draw, (n_levels, n_components)."""
        if rng is not None:
            return self.coefficients(self.draw(q, rng))
        # Predictions of few rows import no compiler.
        logs = self._family.expectations({"concentration": q["levels"]})
        return np.ascontiguousarray(logs["concentration"].T)

    def known(self, q: Natural, before: Known | None) -> Known | None:
        return {"logs": logs_of_rows(q["levels"], self._family.first_level)}

    def expectations_given(self, q: Natural, known: Known) -> np.ndarray:
        logs: np.ndarray = known["logs"]
        return logs

    def kl_given(self, q: Natural, prior: Natural, known: Known) -> float | None:
        first_level = self._family.first_level
        return divergence_of_rows(q["levels"], prior["levels"], known["logs"], first_level)

    def coefficients(self, draws: Draws) -> np.ndarray:
        """Return the logarithms of probabilities at one draw (:meth:`Components.draw`)."""
        (draw,) = draws
        return np.ascontiguousarray(draw["log_probabilities"].T)

    def plug_in(self, q: Natural) -> np.ndarray:
        return np.ascontiguousarray(np.hstack([log_means(x) for x in self.columns(q)]).T)

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
        return LevelSums(np.zeros((self.n_components, sum(self.n_levels))))

    def of_levels(self, levels: np.ndarray, count: np.ndarray, packing: Packing) -> LevelSums:
        return LevelSums(np.ascontiguousarray(levels.T))

    def statistics(
        self, raw: LevelSums, keys: tuple[str, ...] | None = None, q: Natural | None = None
    ) -> Natural:
        return {"levels": raw.levels}

    def probabilities(self, q: Natural) -> list[np.ndarray]:
        """Return the posterior means of the probabilities, (n_components, n_levels) per column."""
        return [np.exp(log_means(column)) for column in self.columns(q)]

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
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

    def embedding(self, rows: Rows) -> Any:
        coded: Coded = rows.X  # type: ignore[assignment]
        levels = coded.levels()
        if sum(self.n_levels) > _MANY_LEVELS:
            return self._sparse_embedding(levels)
        points = []
        for column, n in zip(levels.T, self.n_levels, strict=True):
            one_hot = np.equal.outer(column, np.arange(n)).astype(np.float64)
            known = max(int((column >= 0).sum()), 1)
            one_hot[column < 0] = one_hot.sum(axis=0) / known
            points.append(one_hot)
        return np.hstack(points)

    def _sparse_embedding(self, levels: np.ndarray) -> csr_array:
        """Return the same as a sparse array, in which missing cells have no coordinates.

        A table of all rows and categories would take more memory than the data by far.
        """
        known = levels >= 0
        kind = np.int32 if max(known.sum(), sum(self.n_levels)) < 2**31 else np.int64
        places = levels + np.cumsum([0, *self.n_levels[:-1]])
        pointers = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        one_hot = np.ones(pointers[-1]), places[known].astype(kind), pointers.astype(kind)
        return csr_array(one_hot, shape=(len(levels), sum(self.n_levels)))

    @property
    def n_parameters(self) -> int:
        return self.n_components * (sum(self.n_levels) - self.n_features)

    def multiplied_counts(self, q: Natural, size: float, rng: np.random.Generator) -> Natural:
        parts = self._family.parts(q["levels"])
        return {"levels": self._family.joined([multiplied(x, size, rng) for x in parts])}

    def coordinates(self, q: Natural, summary: None) -> np.ndarray:
        return np.hstack(self.probabilities(q))

    def log_volumes(self, x: np.ndarray, summary: None, expected: np.ndarray) -> np.ndarray:
        """Return log Σ_v p(v | z_n = k)^x of each column, (len(x), n_components, n_features)."""
        exponents = np.asarray(x)[:, None, None] * expected
        parts = np.split(exponents, np.cumsum(self.n_levels)[:-1], axis=1)
        return np.stack([np.logaddexp.reduce(part, axis=1) for part in parts], axis=-1)
