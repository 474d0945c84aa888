"""Moments of rows, from which data-dependent priors and starts of Gaussian components follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...inference.units import Rows
from .._summary import DataSummary

# Number of rows that Python code converts or copies at a time.
CHUNK = 8192
# Largest number of different patterns of missing cells that a summary keeps.
_PATTERNS = 4096


class Cells(NamedTuple):
    """Which cells of the data are observed, and the moments that follow from these cells.

    Attributes
    ----------
    counts : ndarray of shape (n_features,)
        Σ w of the rows in which each column is observed.
    squares : ndarray of shape (n_features,)
        Σ w (x − mean)² of the observed cells of each column.
    patterns : ndarray of bool, shape (n_patterns, n_features)
        The different sets of observed cells of a row. If there are too many, the frequent ones and
        an even choice of the others.
    weights : ndarray of shape (n_patterns,)
        Σ w of the rows with each of these sets. Those of a choice represent all rows.
    """

    counts: np.ndarray
    squares: np.ndarray
    patterns: np.ndarray
    weights: np.ndarray

    @classmethod
    def of_whole_rows(cls, seen: float, squares: np.ndarray) -> Cells:
        """Return the cells of rows without missing ones."""
        counts = np.full(len(squares), seen)
        return cls(counts, squares, np.ones((1, len(squares)), dtype=bool), np.array([seen]))

    def merge(self, other: Cells, difference: np.ndarray) -> Cells:
        """Return the cells of both data sets, whose means differ by ``difference``."""
        counts = self.counts + other.counts
        between = self.counts * other.counts / np.maximum(counts, np.finfo(float).tiny)
        patterns, where = np.unique(
            np.concatenate([self.patterns, other.patterns]), axis=0, return_inverse=True
        )
        weights = np.bincount(where.ravel(), np.concatenate([self.weights, other.weights]))
        squares = self.squares + other.squares + between * difference**2
        return Cells(counts, squares, *_fewer(patterns, weights))


def _fewer(patterns: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return at most ``_PATTERNS`` of the patterns, with the total of their weights unchanged."""
    if len(weights) <= _PATTERNS:
        return patterns, weights
    order = np.argsort(-weights, kind="stable")
    frequent, others = np.split(order, [_PATTERNS // 2])
    chosen = others[np.arange(_PATTERNS // 2) * len(others) // (_PATTERNS // 2)]
    share = weights[others].sum() / max(weights[chosen].sum(), np.finfo(float).tiny)
    kept = np.concatenate([weights[frequent], share * weights[chosen]])
    return patterns[np.concatenate([frequent, chosen])], kept


@dataclass(frozen=True)
class Summary(DataSummary):
    """Moments of the training data.

    Attributes
    ----------
    weight : float
        N = Σ w of all data; in a stream, this includes data that have not arrived yet.
    seen : float
        Σ w of the data from which the moments were computed.
    center : ndarray of shape (n_features,)
        The origin of the model's coordinates.
    mean : ndarray of shape (n_features,)
        The mean of each column, from its observed cells.
    scatter : ndarray of shape (n_features, n_features) or (n_features,)
        Σ w (x − mean)(x − mean)ᵀ, or its diagonal if the covariance type needs no more. Missing
        cells have the value of the mean.
    cells : Cells or None
        Which cells are observed; None if no cell is missing.
    """

    weight: float
    seen: float
    center: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray
    cells: Cells | None = None
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        divisors = np.maximum(np.where(counts > 1, counts - 1, counts), np.finfo(float).tiny)
        variance = self.cells.squares / divisors
        if self.scatter.ndim == 1:
            return variance
        diagonal = np.diagonal(self.scatter)
        factors = np.sqrt(variance / np.where(diagonal > 0, diagonal, 1.0))
        return self.scatter * np.outer(factors, factors)

    def _cells(self) -> Cells:
        if self.cells is not None:
            return self.cells
        squares = np.diagonal(self.scatter) if self.scatter.ndim == 2 else self.scatter
        return Cells.of_whole_rows(self.seen, squares)

    def merge(self, other: Summary) -> Summary:
        """Return the moments of both data sets together, in the coordinates of this summary."""
        seen = self.seen + other.seen
        difference = other.mean - self.mean
        outer = np.outer(difference, difference) if self.scatter.ndim == 2 else difference**2
        share: Any = other.seen / seen
        cells = None
        if not (self.cells is None and other.cells is None):
            mine, others = self._cells(), other._cells()
            cells = mine.merge(others, difference)
            share = others.counts / np.maximum(cells.counts, np.finfo(float).tiny)
        return replace(
            self,
            weight=seen,
            seen=seen,
            mean=self.mean + share * difference,
            scatter=self.scatter + other.scatter + self.seen * other.seen / seen * outer,
            cells=cells,
        )

    def continued(self, other: Summary) -> Summary:
        """Return this summary, as priors and coordinates stay when a fit goes on with new data."""
        return self


def moments(rows: Rows, full: bool) -> Summary:
    """Return the moments of rows, with a scatter matrix if ``full``.

    One pass over the rows gives them, or two passes if cells are missing.
    """
    if rows.patterns is not None:
        return _moments_of_cells(rows, full)
    total = rows.total_weight
    origin = np.zeros(rows.X.shape[1])
    first: Any = 0.0
    second: Any = 0.0
    for start in range(0, rows.n_units, CHUNK):
        chunk = rows.take(slice(start, start + CHUNK))
        x = np.asarray(chunk.X, dtype=np.float64)
        if start == 0:
            origin = x.mean(axis=0)
        x = x - origin
        weighted = x if chunk.weights is None else x * chunk.weights[:, None]
        first = first + weighted.sum(axis=0)
        second = second + (weighted.T @ x if full else (weighted * x).sum(axis=0))
    mean = first / total
    scatter = second - total * (np.outer(mean, mean) if full else mean**2)
    return Summary(total, total, origin + mean, origin + mean, scatter)


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
    mean = origin + mean / np.maximum(counts, np.finfo(float).tiny)
    scatter: Any = np.zeros((d, d) if full else d)
    for chunk in chunks:
        x = np.asarray(rows.X[chunk], dtype=np.float64) - mean
        x[np.isnan(x)] = 0.0
        weighted = x * weights[chunk][:, None]
        scatter += weighted.T @ x if full else (weighted * x).sum(axis=0)
    # Equal numbers of patterns mean equal patterns, but for a probability of about 1e-10.
    assert rows.patterns is not None
    _, where, which = np.unique(rows.patterns, return_index=True, return_inverse=True)
    of_patterns = np.bincount(which.ravel(), weights)
    kept, of_patterns = _fewer(where, of_patterns)
    squares = np.diagonal(scatter).copy() if full else scatter
    cells = Cells(counts, squares, ~np.isnan(np.asarray(rows.X[kept])), of_patterns)
    return Summary(rows.total_weight, rows.total_weight, mean, mean, scatter, cells)
