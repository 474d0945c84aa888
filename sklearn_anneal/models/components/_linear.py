"""Components with independent columns, of which any cell of a row can be missing."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from ...data.tables import Coded, Packing
from ...data.units import Rows, cell_patterns
from ...families import Natural, Tempering
from .._base import Expected, LocalStep, compiled, vector
from .._draws import holes_of
from ._base import Components, Joint, P, R, RawStatistics, column_sums
from ._predictive_moments import deviations

kernels = partial(compiled, "discrete")

# Tables of so many numbers at most lie anywhere in memory.
_SMALL_TABLE = 4096
# Rows of so many cells at most keep what they are read as.
_FEW_CELLS = 1 << 16
# Terms of cells that are summed over the cells of a row are there for so many cells at a time.
_CELLS_OF_CARRIERS = 1 << 20


class Coefficients(NamedTuple):
    """Coefficients in E log p(x | z = k) = f(x) · slopes_k + Σ_d cells_kd + c(x).

    Missing cells contribute nothing: neither to f(x), nor the constants of their columns.
    """

    slopes: np.ndarray  # (n_components, n_values)
    cells: np.ndarray  # (n_components, n_features)


class Table(NamedTuple):
    """E log p(x | z = k) of every code of packed columns."""

    # The entries of a row are the components and, up to a multiple of four, zeros,
    # (n_values, n_padded).
    entries: np.ndarray
    n_components: int


class Columns(NamedTuple):
    """Coefficients in the order in which sparse rows read them."""

    # (n_features, n_components)
    slopes: np.ndarray
    cells: np.ndarray
    constants: np.ndarray  # (n_components,)


class Levels(NamedTuple):
    """E log p(x | z = k) of every level of every column, which plain kernels read."""

    entries: np.ndarray  # (n_levels, n_components)


def table_of(levels: np.ndarray, rows: Rows) -> Table | Levels:
    """Return the table of packed rows, given E log p of all levels of all columns.

    ``levels`` has shape (n_levels, n_components).
    """
    if rows.plain:
        return Levels(levels)
    coded: Any = rows.X
    p = coded.packing
    entries = _empty_table(p, levels.shape[1])
    kernels().fill_table(
        np.ascontiguousarray(levels), p.first_level, p.radices, p.first_column, p.begins, entries
    )
    return Table(entries, levels.shape[1])


def _empty_table(packing: Packing, n_components: int) -> np.ndarray:
    """Return an array for a table, whose rows are padded to a multiple of four.

    It begins at a cache line, so that no vector of a row lies in two of them, unless it is so small
    that to find this place takes longer.
    """
    shape = int(packing.begins[-1]), -(-n_components // 4) * 4
    if shape[0] * shape[1] <= _SMALL_TABLE:
        return np.empty(shape)
    room = np.empty(shape[0] * shape[1] + 8)
    begin = -(room.ctypes.data // 8) % 8
    return room[begin : begin + shape[0] * shape[1]].reshape(shape)


def filled(X: np.ndarray, center: np.ndarray | None = None) -> tuple[np.ndarray, Any]:
    """Return dense rows with zeros in place of missing cells, and the mask of these cells.

    The mask is None if there are none. Rows are float64 and relative to ``center``.
    """
    X = np.asarray(X, dtype=np.float64)
    if center is not None and center.any():
        X = X - center
    mask = np.isnan(X)
    return (np.where(mask, 0.0, X), mask) if mask.any() else (X, None)


def unpacked(rows: Rows) -> Rows:
    """Return rows as a dense array with NaN for missing cells, however they are stored."""
    X: Any = rows.X
    if isinstance(X, Coded):
        levels = X.levels().astype(np.float64)
        X = np.where(levels < 0, np.nan, levels)
    elif issparse(X):
        X = X.toarray()
    return Rows(X, rows.weights, patterns=cell_patterns(X), plain=rows.plain)


def points_of(rows: Rows) -> Any:
    """Return rows as points for k-means, with column means in missing cells; sparse rows stay so.

    A missing cell of a sparse row counts as zero.
    """
    X: Any = rows.X
    if issparse(X):
        X = X.astype(np.float64)
        X.data = np.nan_to_num(X.data)
        return X
    return unpacked(rows).completed(np.float64)


def scaled(points: Any) -> Any:
    """Return points whose columns are divided by their standard deviations."""
    if issparse(points):
        mean = np.asarray(points.mean(axis=0)).ravel()
        second = np.asarray(points.multiply(points).mean(axis=0)).ravel()
        spread = np.sqrt(np.maximum(second - mean**2, 0.0))
        found = csr_array(points.multiply(1.0 / np.where(spread > 0, spread, 1.0)))
        # k-means of scikit-learn reads no other indices than short ones.
        if max(found.nnz, found.shape[1]) <= np.iinfo(np.int32).max:
            found.indices = found.indices.astype(np.int32, copy=False)
            found.indptr = found.indptr.astype(np.int32, copy=False)
        return found
    spread = points.std(axis=0)
    return points / np.where(spread > 0, spread, 1.0)


class PackedComponents(Components[P, R]):
    """Components with independent columns, which tables can pack into codes."""

    completes = False

    @cached_property
    def keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return super().keys

    @abstractmethod
    def of_levels(self, levels: np.ndarray, count: np.ndarray, packing: Packing) -> R:
        """Return raw statistics, given the sums of shares of all levels of packed columns.

        ``levels`` (n_levels, n_components) has the sums of the rows' shares over the rows that
        have each level of each column; rows whose cell is missing are in none of them.
        ``count`` (n_components,) has the sums over all rows.
        """

    @abstractmethod
    def _density_of_cells(self, rows: Rows, expected: Any) -> np.ndarray:
        """Return the result of :meth:`log_density` where no kernel reads the layout of the rows."""

    def _sums_of_cells(
        self, rows: Rows, shares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return Σ R f(x) and the weight of missing cells, for rows that no kernel reads."""
        raise NotImplementedError

    def _raw(self, count: np.ndarray, sums: np.ndarray, missing: np.ndarray | None) -> R:
        """Return raw statistics, given these and the sums of the shares, ``count``."""
        raise NotImplementedError

    def compiled_expectations(self, q: Natural) -> Expected:
        known = self.known(q, None)
        return self.expectations(q) if known is None else self.expectations_given(q, known)

    def _sparse_carrier(self, X: Any) -> Any:
        """Return c(x) of the rows of a sparse matrix, whose zeros contribute nothing to it."""
        return 0.0

    def log_density(self, rows: Rows, expected: Any) -> np.ndarray:
        X: Any = rows.X
        if isinstance(expected, Table):
            out = np.empty((len(X), expected.n_components))
            codes = np.ascontiguousarray(X.codes)
            kernels().log_density(codes, X.packing.begins, expected.entries, out)
            return out
        if isinstance(expected, Columns):
            out = np.tile(expected.constants, (X.shape[0], 1))
            arrays = X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64)
            kernels(rows.plain).add_sparse_log_density(
                *arrays, expected.slopes, expected.cells, out
            )
            return out + np.reshape(self._sparse_carrier(X), (-1, 1))
        return self._density_of_cells(rows, expected)

    def add(self, rows: Rows, shares: np.ndarray, raw: R, expected: Expected = None) -> None:
        totals = vars(raw)
        for name, value in vars(PackedComponents.sums(self, rows, shares)).items():
            totals[name] += value

    def sums(self, rows: Rows, shares: np.ndarray, expected: Expected = None) -> R:
        X: Any = rows.X
        count, k = column_sums(shares), shares.shape[1]
        if isinstance(X, Coded):
            table, p = _empty_table(X.packing, k), X.packing
            table.fill(0.0)
            codes = np.ascontiguousarray(X.codes)
            kernels().add_shares(codes, p.begins, np.ascontiguousarray(shares), table)
            levels = np.zeros((int(p.first_level[-1]), table.shape[1]))
            kernels().collect_levels(table, *_places_of_levels(p), levels)
            return self.of_levels(levels[:, :k], count, p)
        if issparse(X):
            sums, missing = (np.zeros((X.shape[1], k)) for _ in range(2))
            arrays = X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64)
            kernels().add_sparse_shares(*arrays, np.ascontiguousarray(shares), sums, missing)
            return self._raw(count, sums.T, missing.T)
        return self._raw(count, *self._sums_of_cells(rows, shares))

    def fused_step(
        self,
        rows: Rows,
        joint: Joint,
        t: Tempering,
        noise: np.ndarray | None,
        separate_noise: bool,
    ) -> LocalStep | None:
        table, coded = joint.own, rows.X
        if not isinstance(table, Table) or separate_noise or joint.log_weights is None:
            return None
        assert isinstance(coded, Coded)
        k, p, entries = table.n_components, coded.packing, table.entries
        n_padded, sums = entries.shape[1], np.zeros(2)
        levels, count = np.empty((int(p.first_level[-1]), n_padded)), np.empty(n_padded)
        kernels().local_step(
            np.ascontiguousarray(coded.codes),
            *_places_of_levels(p),
            entries,
            np.ascontiguousarray(joint.log_weights),
            vector(t.local),
            vector(t.statistics),
            vector(rows.weights),
            vector(noise),
            _empty_table(p, k),
            levels,
            count,
            sums,
        )
        number = count[:k]
        raw = self.of_levels(levels[:, :k], number, p)
        statistics: Any = {"components": raw, "rows": number}
        return LocalStep(statistics, float(sums[0]), float(sums[1]))


def _places_of_levels(p: Packing) -> tuple[np.ndarray, ...]:
    """Return from what the kernel finds the entries of a table that each level has."""
    return p.first_level, p.radices, p.first_column, p.begins


@dataclass(frozen=True)
class LinearSums(RawStatistics):
    """Raw statistics of components whose log density is linear in f(x)."""

    count: np.ndarray  # Σ R, the weight of each component's rows, (n_components,)
    sum: np.ndarray  # Σ R f(x), (n_components, n_values)
    # The weight of the missing cells of each column, (n_components, n_features).
    missing: np.ndarray

    @property
    def observed(self) -> np.ndarray:
        """The weight of each component's observed cells, (n_components, n_features)."""
        return self.count[:, None] - self.missing


class _Cells(NamedTuple):
    """Dense rows as linear components read them."""

    values: np.ndarray  # f(x), with zeros for missing cells, (n_rows, n_values)
    # 1 for missing cells and 0 for others, (n_rows, n_features); None if no cell is missing.
    mask: np.ndarray | None
    carriers: np.ndarray | None  # c(x), (n_rows, 1); None if it is 0

    def log_density(self, expected: Coefficients) -> np.ndarray:
        """Return E log p(x | z = k), (n_rows, n_components)."""
        out = self.values @ expected.slopes.T
        out += expected.cells.sum(axis=1)
        if self.mask is not None:
            out -= self.mask @ expected.cells.T
        if self.carriers is not None:
            out += self.carriers
        return out

    def sums(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return Σ R f(x) and the weight of the missing cells of each column, if there are any."""
        return shares.T @ self.values, None if self.mask is None else shares.T @ self.mask


class LinearComponents(PackedComponents[P, LinearSums]):
    """Components with independent columns, whose log density is a linear function of f(x).

    Here f(x) has one or more values for each column of a row x, which depend on that column alone.
    A term c(x) that is the same for all components need not be linear. Raw statistics are
    :class:`LinearSums`.
    """

    # Whether c(x) depends on the row alone, and on no hyperparameter.
    carrier_is_fixed: ClassVar[bool] = False

    def __init__(self, n_components: int, n_features: int):
        self.n_components = int(n_components)
        self.n_features = n_features

    # Methods of subclasses

    @abstractmethod
    def expected_coefficients(self, q: Natural) -> Expected:
        """Return the coefficients of E log p(x | z = k)."""

    def _values(self, X: np.ndarray) -> np.ndarray:
        """Return f(x) of rows without missing cells, (n_rows, n_values)."""
        return X

    def _carrier(self, X: np.ndarray) -> Any:
        """Return the term c(x) that the log densities of all components share, (n_rows,) or 0."""
        return 0.0

    # Log densities

    def expectations(self, q: Natural, rng: np.random.Generator | None = None) -> Expected:
        if rng is None:
            return self.expected_coefficients(q)
        return self.coefficients(self.draw(q, rng))

    def for_rows(self, expected: Expected, rows: Rows) -> Expected:
        if isinstance(rows.X, Coded) and not rows.plain:
            slopes, cells = expected.slopes.T, expected.cells.T
            levels = np.empty((len(cells), 2, self.n_components))
            levels[:, 0] = cells
            np.add(slopes, cells, out=levels[:, 1])
            return table_of(levels.reshape(-1, self.n_components), rows)
        if issparse(rows.X):
            slopes, cells = (np.ascontiguousarray(c.T) for c in expected)
            return Columns(slopes, cells, expected.cells.sum(axis=1))
        return expected

    def _cells(self, rows: Rows) -> _Cells:
        """Return dense rows as the formulas of log densities and statistics read them.

        Few rows keep the result, because to find it takes longer than the formulas.
        """
        kept = vars(rows).get("_cells")
        if kept is not None and kept[0] is type(self):
            cells: _Cells = kept[1]
            return cells
        X, mask = filled(rows.X, rows.center)  # type: ignore[arg-type]
        mask = None if mask is None else mask.astype(np.float64)
        found = _Cells(self._values(X), mask, self._kept_carriers(rows, X))
        if self.carrier_is_fixed and X.size <= _FEW_CELLS:
            vars(rows)["_cells"] = type(self), found
        return found

    def _kept_carriers(self, rows: Rows, X: np.ndarray) -> np.ndarray | None:
        """Return c(x) of rows, (n_rows, 1), given their filled cells; None if it is 0.

        It is one number for each row, which any rows keep.
        """
        kept = vars(rows).get("_carriers")
        if kept is not None and kept[0] is type(self):
            carriers: np.ndarray | None = kept[1]
            return carriers
        step = max(_CELLS_OF_CARRIERS // max(X.shape[1], 1), 1)
        each = [self._carrier(X[i : i + step]) for i in range(0, max(len(X), 1), step)]
        found = np.concatenate(each)[:, None] if np.ndim(each[0]) else None
        if self.carrier_is_fixed:
            vars(rows)["_carriers"] = type(self), found
        return found

    def _density_of_cells(self, rows: Rows, expected: Coefficients) -> np.ndarray:
        cells = self._cells(unpacked(rows) if isinstance(rows.X, Coded) else rows)
        return cells.log_density(expected)

    def _sparse_carrier(self, X: Any) -> Any:
        carrier = self._carrier(np.nan_to_num(X.data)[:, None])
        if np.ndim(carrier) == 0:
            return 0.0
        return np.bincount(np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), carrier, X.shape[0])

    # Statistics

    def zeros(self, expected: Expected) -> LinearSums:
        k, n_values = self.n_components, self._values(np.zeros((1, self.n_features))).shape[1]
        return LinearSums(np.zeros(k), np.zeros((k, n_values)), np.zeros((k, self.n_features)))

    def _sums_of_cells(
        self, rows: Rows, shares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        X = rows.X
        if self.carrier_is_fixed and X.shape[0] * X.shape[1] <= _FEW_CELLS:
            return self._cells(rows).sums(shares)
        values, mask = filled(X, rows.center)  # type: ignore[arg-type]
        return shares.T @ self._values(values), None if mask is None else shares.T @ mask

    def _raw(self, count: np.ndarray, sums: np.ndarray, missing: np.ndarray | None) -> LinearSums:
        if missing is None:
            missing = np.zeros((self.n_components, self.n_features))
        return LinearSums(count, sums, missing)

    def of_levels(self, levels: np.ndarray, count: np.ndarray, packing: Packing) -> LinearSums:
        ones = np.ascontiguousarray(levels[1::2].T)
        if True not in packing.missing:
            return LinearSums(count, ones, np.zeros(ones.shape))
        missing = count[:, None] - ones
        missing -= levels[::2].T
        missing *= packing.has_gaps
        return LinearSums(count, ones, missing)

    # Missing cells

    def imputed(
        self, rows: Rows, shares: np.ndarray, q: Natural, predictive: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        moments = self.predictive_moments(q) if predictive else self.plug_in_moments(q)
        assert moments is not None
        return shares @ moments.mean, deviations(shares, moments)

    def drawn_rows(
        self, rows: Rows, labels: np.ndarray, expected: Expected, rng: np.random.Generator
    ) -> np.ndarray:
        out = np.zeros(rows.X.shape)
        where = holes_of(rows.X)
        out[where] = self.drawn_cells(labels[where[0]], where[1], expected, rng)
        return out

    def drawn_cells(
        self,
        labels: np.ndarray,
        columns: np.ndarray,
        expected: Expected,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Draw cells of new rows, given their components and columns, both (n_cells,)."""
        raise NotImplementedError(
            f"{type(self).__name__} has no draws of missing cells: it lacks drawn_cells."
        )
