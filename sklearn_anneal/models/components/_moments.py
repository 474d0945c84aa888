"""Moments of rows, from which data-dependent priors and starts of Gaussian components follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...data.units import Rows
from .._base import DataSummary, first_center, with_center

# Number of rows that Python code converts or copies at a time.
CHUNK = 8192
# Largest number of different patterns of missing cells that a summary keeps.
_PATTERNS = 4096
_TINY = float(np.finfo(float).tiny)
# Variances of columns that differ by more than this factor are not decomposed together.
_RANGE_OF_VARIANCES = 1e12


class Cells(NamedTuple):
    """Counts of the observed cells of the data, and the moments that follow from these cells."""

    counts: np.ndarray  # Σ w of the rows in which each column is observed, (n_features,)
    squares: np.ndarray  # Σ w (x − mean)² of the observed cells of each column, (n_features,)
    # The different sets of observed cells of a row, (n_patterns, n_features). If there are too
    # many, the frequent ones and an even choice of the others.
    patterns: np.ndarray
    # Σ w of the rows with each of these sets, (n_patterns,). Those of a choice represent all rows.
    weights: np.ndarray
    # Σ w of the rows in which both of two columns are observed, (n_features, n_features); None if
    # only variances are asked for.
    pairs: np.ndarray | None = None
    # Σ w (x − mean) of the first of two columns, over the rows in which both are observed,
    # (n_features, n_features).
    first: np.ndarray | None = None

    @classmethod
    def of_whole_rows(cls, seen: float, squares: np.ndarray, full: bool) -> Cells:
        """Return the cells of rows without missing ones."""
        d = len(squares)
        of_pairs = (np.full((d, d), seen), np.zeros((d, d))) if full else ()
        patterns = np.ones((1, d), dtype=bool)
        return cls(np.full(d, seen), squares, patterns, np.array([seen]), *of_pairs)

    def about(self, scatter: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return the scatter matrix, and ``first``, about the mean minus ``shift``."""
        if self.pairs is None or self.first is None:
            return self.squares, None
        crossed = self.first * shift
        moved = scatter + crossed + crossed.T + self.pairs * np.outer(shift, shift)
        return moved, self.first + self.pairs * shift[:, None]

    def merge(self, other: Cells, difference: np.ndarray) -> Cells:
        """Return the cells of both data sets, whose means differ by ``difference``."""
        counts = self.counts + other.counts
        between = self.counts * other.counts / np.maximum(counts, _TINY)
        patterns, where = np.unique(
            np.concatenate([self.patterns, other.patterns]), axis=0, return_inverse=True
        )
        weights = np.bincount(where.ravel(), np.concatenate([self.weights, other.weights]))
        squares = self.squares + other.squares + between * difference**2
        pairs = None
        if self.pairs is not None and other.pairs is not None:
            pairs = self.pairs + other.pairs
        return Cells(counts, squares, *_fewer(patterns, weights), pairs)


def _fewer(patterns: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return at most ``_PATTERNS`` of the patterns, with the total of their weights unchanged."""
    if len(weights) <= _PATTERNS:
        return patterns, weights
    order = np.argsort(-weights, kind="stable")
    frequent, others = np.split(order, [_PATTERNS // 2])
    chosen = others[np.arange(_PATTERNS // 2) * len(others) // (_PATTERNS // 2)]
    share = weights[others].sum() / max(weights[chosen].sum(), _TINY)
    kept = np.concatenate([weights[frequent], share * weights[chosen]])
    return patterns[np.concatenate([frequent, chosen])], kept


@dataclass(frozen=True)
class Summary(DataSummary):
    """Moments of the training data."""

    weight: float  # N = Σ w of all data; in a stream, this includes data that have not arrived yet
    seen: float  # Σ w of the data from which the moments were computed
    # The origin of the model's coordinates, (n_features,). NaN in the columns of a part of the data
    # that has no observed cell in them.
    center: np.ndarray
    mean: np.ndarray  # the mean of each column, from its observed cells, (n_features,)
    # Σ w (x − mean)(x − mean)ᵀ, or its diagonal if the covariance type needs no more,
    # (n_features, n_features). Missing cells have the value of the mean.
    scatter: np.ndarray
    cells: Cells | None = None  # the observed cells; None if no cell is missing
    known: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def covariance(self) -> np.ndarray:
        """Covariance (or variances), divided by Σ w − 1, or by Σ w if that is at most 1.

        The variance of a column is that of its observed cells. A matrix has the correlations of
        the rows with the mean in the place of missing cells. They are nearer to zero than those of
        the observed cells, but the matrix is positive semi-definite, which a matrix with a
        correlation for each pair of columns from the rows that have both would not always be.
        """
        if self.cells is None:
            return self.scatter / (self.seen - 1 if self.seen > 1 else self.seen)
        counts = self.cells.counts
        divisors = np.maximum(np.where(counts > 1, counts - 1, counts), _TINY)
        variance = self.cells.squares / divisors
        if self.scatter.ndim == 1:
            return variance
        diagonal = np.diagonal(self.scatter)
        factors = np.sqrt(variance / np.where(diagonal > 0, diagonal, 1.0))
        return self.scatter * np.outer(factors, factors)

    @property
    def variance(self) -> np.ndarray:
        """Variances of the columns."""
        covariance = self.covariance
        return np.diagonal(covariance) if covariance.ndim == 2 else covariance

    @cached_property
    def root(self) -> np.ndarray:
        """A matrix R with R Rᵀ = C, the covariance, which may be singular."""
        units = comparable_units(self.variance, self.mean)
        values, vectors = np.linalg.eigh(self.covariance / units / units[:, None])
        root: np.ndarray = vectors * np.sqrt(np.maximum(values, 0.0)) * units[:, None]
        return root

    def _cells(self) -> Cells:
        if self.cells is not None:
            return self.cells
        full = self.scatter.ndim == 2
        squares = np.diagonal(self.scatter) if full else self.scatter
        return Cells.of_whole_rows(self.seen, squares, full)

    def merge(self, other: Summary) -> Summary:
        """Return the moments of both data sets together, in the coordinates of this summary."""
        seen, center = self.seen + other.seen, first_center(self, other)
        difference = other.mean - self.mean
        if self.cells is None and other.cells is None:
            full = self.scatter.ndim == 2
            outer = np.outer(difference, difference) if full else difference**2
            scatter = self.scatter + other.scatter + self.seen * other.seen / seen * outer
            mean = self.mean + other.seen / seen * difference
            return Summary(seen, seen, center, mean, scatter)
        mine, others = self._cells(), other._cells()
        cells = mine.merge(others, difference)
        mean = self.mean + others.counts / np.maximum(cells.counts, _TINY) * difference
        one, first = mine.about(self.scatter, self.mean - mean)
        two, second = others.about(other.scatter, other.mean - mean)
        if cells.pairs is None:
            scatter = cells.squares
        else:
            cells, scatter = cells._replace(first=first + second), one + two
        return Summary(seen, seen, center, mean, scatter, cells)

    def whole(self) -> Summary:
        return with_center(self)

    def continued(self, other: Summary) -> Summary:
        """Return this summary, as priors and coordinates stay when a fit goes on with new data."""
        return self


def above_rounding(variance: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return which variances are above those that rounding leaves of columns of equal values."""
    return variance > (4.0 * np.finfo(float).eps * mean) ** 2


def comparable_units(variance: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return units of columns in which the eigenvalues of their covariance keep their digits.

    Rounding errors of eigenvalues are proportional to the largest one, so that the smallest ones
    are lost if columns have very different units. Units are powers of 2, which round nothing, and
    1 for all columns unless the variances differ by more than ``_RANGE_OF_VARIANCES``.
    """
    varies = above_rounding(variance, mean)
    some = variance[varies]
    if len(some) == 0 or some.max() <= _RANGE_OF_VARIANCES * some.min():
        return np.ones(len(variance))
    return np.where(varies, np.exp2(np.round(0.5 * np.log2(np.where(varies, variance, 1.0)))), 1.0)


def moments(rows: Rows, full: bool) -> Summary:
    """Return the moments of rows, with a scatter matrix if ``full``.

    One pass over the rows gives them, or two passes if cells are missing.
    """
    if rows.patterns is not None:
        return _moments_of_cells(rows, full)
    found: Summary | None = None
    for start in range(0, rows.n_units, CHUNK):
        chunk = rows.take(slice(start, start + CHUNK))
        x, w, total = np.asarray(chunk.X, dtype=np.float64), chunk.weights, chunk.total_weight
        # Differences to another origin than the weighted mean would leave no digit of the scatter
        # where a row has nearly all the weight.
        origin = (np.ones(len(x)) if w is None else w) @ x / total
        x = x - origin
        weighted = x if w is None else x * w[:, None]
        rest = weighted.sum(axis=0) / total
        scatter: Any = weighted.T @ x if full else (weighted * x).sum(axis=0)
        scatter = scatter - total * (np.outer(rest, rest) if full else rest**2)
        part = Summary(total, total, origin + rest, origin + rest, scatter)
        found = part if found is None else found.merge(part)
    assert found is not None
    return replace(found, center=found.mean)


def _moments_of_cells(rows: Rows, full: bool) -> Summary:
    """Return the moments of rows with missing cells, from two passes over them."""
    d, n = rows.X.shape[1], rows.n_units
    counts, origin, mean = np.zeros(d), np.zeros(d), np.zeros(d)
    weights = np.ones(n) if rows.weights is None else rows.weights
    chunks = [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]
    for chunk in chunks:
        x = np.asarray(rows.X[chunk], dtype=np.float64)
        observed, w = ~np.isnan(x), weights[chunk]
        new = (counts == 0) & observed.any(axis=0)
        if new.any():
            filled = np.where(observed[:, new], x[:, new], 0.0)
            origin[new] = filled.sum(axis=0) / observed[:, new].sum(axis=0)
        counts += w @ observed
        mean += w @ np.where(observed, x - origin, 0.0)
    mean = origin + mean / np.maximum(counts, _TINY)
    scatter: Any = np.zeros((d, d) if full else d)
    pairs: Any = np.zeros((d, d)) if full else None
    first: Any = np.zeros((d, d)) if full else None
    for chunk in chunks:
        x = np.asarray(rows.X[chunk], dtype=np.float64) - mean
        observed = ~np.isnan(x)
        x[~observed] = 0.0
        weighted = x * weights[chunk][:, None]
        scatter += weighted.T @ x if full else (weighted * x).sum(axis=0)
        if full:
            pairs += (observed * weights[chunk][:, None]).T @ observed
            first += weighted.T @ observed
    # Equal numbers of patterns mean equal patterns, except with a probability of about 1e-10.
    assert rows.patterns is not None
    _, where, which = np.unique(rows.patterns, return_index=True, return_inverse=True)
    of_patterns = np.bincount(which.ravel(), weights)
    kept, of_patterns = _fewer(where, of_patterns)
    squares = np.diagonal(scatter).copy() if full else scatter
    known = ~np.isnan(np.asarray(rows.X[kept]))
    cells = Cells(counts, squares, known, of_patterns, pairs, first)
    center = np.where(counts > 0, mean, np.nan)
    return Summary(rows.total_weight, rows.total_weight, center, mean, scatter, cells)
