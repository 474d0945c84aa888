"""Gaussian components of rows with missing cells, which are integrated out.

Missing cells are latent variables like the component z of a row. Given z = k, their optimal
distribution does not depend on the temperature, because they are integrated out before anything is
tempered: it is proportional to exp E log p(x_o, x_m | z = k), which is a Gaussian in x_m. The log
density of the observed cells is the logarithm of its integral, and the statistics of a row are
those of the row with the moments of this Gaussian in the place of missing cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from ...data.units import Rows
from ...families import Tempering
from ...families._structure import Triangle, mirror
from .._base import LOG_2PI, compiled, vector
from .._mixture_steps import values_at
from ._features import Features
from ._moments import CHUNK, Summary, comparable_units
from ._pattern_groups import Group
from ._wide_gaussians import NO_SHARE

# Rows that a kernel processes at a time.
_BLOCK = 128
# Entries of the completed rows of all components that are in memory at a time, and the least number
# of these rows.
_ENTRIES, _ROWS = 1 << 17, 4 * _BLOCK
# Numbers of half solutions that are kept at most.
_KEPT = 1 << 21
# Rows that lack the same cells are a group of their own if there are so many of them, times the
# number of components.
_GROUP = 4096
# Entries of the largest matrices of missing cells, of all components together, that are factorised
# before they are used.
_FACTORS = 1 << 17
# If no row lacks so many cells, factors take too little time for one kernel to save any of it, but
# for so many columns: there the other work on rows is little as well.
_CELLS, _COLUMNS = 8, range(8, 41)

kernels = partial(compiled, "missing_cells")
_NOTHING = np.empty((0, 0))


class Halves:
    """L⁻¹ v_m of rows, which their densities and their statistics have in common.

    Here P_mm = L Lᵀ is the precision of the missing cells of a row, and v = P (x_o − m_o, 0). These
    vectors have as many numbers as the row has missing cells, while v takes as long as all other
    products of a row if few cells are missing. An object is for one step of some rows.
    """

    def __init__(self) -> None:
        self._order, self._found = np.arange(0), _NOTHING

    def of(self, order: np.ndarray) -> np.ndarray:
        """Return the vectors of these rows, or an empty array if they have not been kept."""
        return self._found if np.array_equal(order, self._order) else _NOTHING

    def space(self, rows: Rows, order: np.ndarray, n_components: int) -> np.ndarray:
        """Return an array for the vectors of rows, which is empty if they are too many."""
        most = int(rows.n_missing[order].max(initial=0))
        self._order, self._found = np.arange(0), _NOTHING
        if 0 < len(order) * n_components * most <= _KEPT:
            self._order, self._found = order, np.empty((len(order), n_components * most))
        return self._found


class Gaussians(NamedTuple):
    """E log p(x | z = k) = constant − D/2 log 2π − ½ (x − mean)ᵀ precision (x − mean)."""

    mean: np.ndarray  # relative to the center of the data, (n_components, n_features)
    # Full matrices, (n_components, n_features, n_features); or the diagonals of diagonal ones, of
    # shape (n_components, n_features).
    precision: np.ndarray
    constant: np.ndarray  # (n_components,)
    log_weights: np.ndarray  # the log density of a row without any observed cell, (n_components,)
    halves: Halves | None = None

    @property
    def diagonal(self) -> bool:
        """Whether columns are independent, so that missing cells say nothing about each other."""
        return self.precision.ndim == 2

    @property
    def stacked(self) -> np.ndarray:
        """The precision matrices below each other, as kernels read them."""
        return np.ascontiguousarray(self.precision.reshape(-1, self.mean.shape[1]))

    @property
    def distinct(self) -> np.ndarray:
        """The precision matrices below each other, but one if all components share it."""
        shared = self.precision.strides[0] == 0
        return np.ascontiguousarray(self.precision[0]) if shared else self.stacked


def gaussians_of(features: Features, triangle: Triangle) -> Gaussians:
    """Return the precision matrices and the other terms of the log densities of features."""
    k, d = features.terms.mean.shape
    if features.roots is not None:
        precision = np.broadcast_to(features.roots.products, (k, d, d))
    elif features.layout in ("diag", "spherical"):
        precision = np.broadcast_to(-2.0 * features.own[:, : -d - 1], (k, d))
    else:
        packed = features.shared if features.layout == "tied" else features.own[:, : -d - 1]
        precision = (packed / triangle.factors).take(triangle.places, axis=1)
        precision = np.broadcast_to(precision, (k, d, d))
    return Gaussians(features.terms.mean, precision, *features.terms[1:])


class Moments(NamedTuple):
    """Statistics of rows: Σ R, Σ R E x, and Σ R E x xᵀ or what the covariance type needs of it."""

    counts: np.ndarray
    first: np.ndarray
    second: np.ndarray


def _parts(rows: Rows, order: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yield the rows of ``order`` as arrays of a limited size, with missing cells as 0.

    The rows are relative to their center, and the second array is 1 where a cell is missing.
    """
    for start in range(0, len(order), CHUNK):
        part = slice(start, start + CHUNK)
        x = rows.X[order[part]] - rows.center
        missing = np.isnan(x)
        x[missing] = 0.0
        yield part, x, missing.astype(np.float64)


def marginals(rows: Rows, order: np.ndarray, gaussians: Gaussians) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared distances of observed cells from the means, and log|P_mm|.

    ``order`` has the numbers of the rows, of which those with the same missing cells should follow
    each other. Both results have the shape (len(order), n_components).
    """
    shape = len(order), len(gaussians.mean)
    distances, log_dets = np.empty(shape), np.empty(shape)
    mean, precision = gaussians.mean, gaussians.precision
    if not gaussians.diagonal:
        groups, others = _grouped(rows, order, len(mean))
        for index in groups:
            group = Group.of(rows.X[order[index]], rows.center, precision)
            distances[index] = group.distances(mean)
            log_dets[index] = group.log_det
        kernel_shape = len(others), len(mean)
        some = (np.empty(kernel_shape), np.empty(kernel_shape)) if groups else (distances, log_dets)
        read = np.ascontiguousarray(order[others] if groups else order, dtype=np.int64)
        halves = _NOTHING
        if gaussians.halves is not None and not rows.plain:
            halves = gaussians.halves.space(rows, read, len(mean))
        kernels(rows.plain).marginals(
            np.ascontiguousarray(rows.X),
            rows.center,
            read,
            gaussians.stacked,
            np.ascontiguousarray(mean),
            _BLOCK,
            *some,
            halves,
        )
        if groups:
            distances[others], log_dets[others] = some
        return distances, log_dets
    scaled = precision * mean
    for part, x, missing in _parts(rows, order):
        found = x**2 @ precision.T
        found -= 2.0 * (x @ scaled.T)
        found += (1.0 - missing) @ (scaled * mean).T
        distances[part] = np.maximum(found, 0.0)
        log_dets[part] = missing @ np.log(precision).T
    return distances, log_dets


def log_density(rows: Rows, order: np.ndarray, gaussians: Gaussians) -> np.ndarray:
    """Return the log density of the observed cells in nats, (len(order), n_components)."""
    distances, log_dets = marginals(rows, order, gaussians)
    n_observed = rows.X.shape[1] - rows.n_missing[order]
    out = gaussians.constant - 0.5 * (distances + log_dets)
    out -= 0.5 * LOG_2PI * n_observed[:, None]
    return out


def completed_moments(
    rows: Rows, order: np.ndarray, shares: np.ndarray, gaussians: Gaussians
) -> Moments:
    """Return the statistics of completed rows, about the center of the data.

    ``shares`` (len(order), n_components) has the weights R of the rows.
    """
    mean, precision = gaussians.mean, gaussians.precision
    k, d = mean.shape
    count, first = np.zeros(k), np.zeros((k, d))
    if gaussians.diagonal:
        second = np.zeros((k, d))
        for part, x, missing in _parts(rows, order):
            r = shares[part]
            absent = r.T @ missing
            count += r.sum(axis=0)
            first += r.T @ x + absent * mean
            second += r.T @ x**2 + absent * (mean**2 + 1.0 / precision)
        return Moments(count, first, second)
    groups, others = _grouped(rows, order, k)
    second = np.zeros((k, d, d))
    some, of_some = (order[others], shares[others]) if groups else (order, shares)
    _add_moments(rows, some, of_some, gaussians, (first, second))
    count += of_some.sum(axis=0)
    _about_center(mean, count, first, second)
    for index in groups:
        group = Group.of(rows.X[order[index]], rows.center, precision)
        found = group.moments(mean, shares[index])
        count, first, second = count + found[0], first + found[1], second + found[2]
    return Moments(count, first, second)


def _about_center(
    mean: np.ndarray, count: np.ndarray, first: np.ndarray, second: np.ndarray
) -> None:
    """Turn moments about the means, of which the lower triangles are read, to the center."""
    mirror(second)
    added = count[:, None] * mean
    shift = (first + 0.5 * added)[:, :, None] * mean[:, None, :]
    second += shift
    second += np.swapaxes(shift, 1, 2)
    first += added


class Step(NamedTuple):
    """The statistics of rows, Σ w Σ_k R L and Σ w H[R], the latter two in nats."""

    moments: Moments
    energy: float
    entropy: float


def local_step(rows: Rows, order: np.ndarray, t: Tempering, gaussians: Gaussians) -> Step | None:
    """Make the local step of a mixture for rows with missing cells, each of them once.

    The matrices of a row are factorised once for its densities and its statistics, which is not
    possible between two kernels: those of all rows take more memory than the caches have. The
    result is None where rows need another way: plain rows, those that lack few cells, large groups
    that lack the same cells, diagonal matrices, those of too many components at once, and factors
    below zero.
    """
    mean, (k, d) = np.ascontiguousarray(gaussians.mean), gaussians.mean.shape
    most = int(rows.n_missing[order].max(initial=0))
    if rows.plain or gaussians.diagonal or (most < _CELLS and d not in _COLUMNS):
        return None
    precision = gaussians.distinct
    if len(precision) // d * most**2 > _FACTORS:
        return None
    if _grouped(rows, order, k)[0] or np.min(t.statistics) < 0.0:
        return None
    count, first, second = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d))
    largest, sums, local = np.zeros(k), np.zeros(2), vector(values_at(t.local, order))
    factor, weights = vector(values_at(t.statistics, order)), vector(values_at(rows.weights, order))
    x, order = np.ascontiguousarray(rows.X), np.ascontiguousarray(order, dtype=np.int64)
    for part, completed, n_completed in _places(len(order), k, d):
        of_rows = (values if len(values) < 2 else values[part] for values in (local, factor))
        kernels().local_step(
            *(x, rows.center, order[part], precision, mean, gaussians.constant),
            *(*of_rows, weights[part], most, _BLOCK, NO_SHARE, largest),
            *(second.reshape(k * d, d), first, completed, n_completed, count, sums),
        )
        _add_completed(second, completed, n_completed, 1.0)
    _about_center(mean, count, first, second)
    return Step(Moments(count, first, second), float(sums[0]), float(sums[1]))


def _places(n: int, k: int, d: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yield parts of n rows, memory for their completed rows, and for the numbers of these."""
    size = min(max(_ENTRIES // (k * d) // _BLOCK * _BLOCK, _ROWS), n)
    completed, n_completed = np.empty((k * size, d)), np.empty(k, dtype=np.int64)
    for start in range(0, n, size or 1):
        part = slice(start, min(start + size, n))
        yield part, completed[: k * (part.stop - start)], n_completed


def _add_completed(
    second: np.ndarray, completed: np.ndarray, n_completed: np.ndarray, sign: float
) -> None:
    """Add the products of completed rows to the lower triangles of second moments."""
    begins = range(0, len(completed), len(completed) // len(second))
    for one, begin, number in zip(second, begins, n_completed, strict=True):
        if number:
            # Transposes are in Fortran's order, and the sum replaces the matrix.
            found = completed[begin : begin + number]
            dsyrk(sign, found.T, beta=1.0, c=one.T, overwrite_c=True)


def _add_moments(
    rows: Rows,
    order: np.ndarray,
    shares: np.ndarray,
    gaussians: Gaussians,
    moments: tuple[np.ndarray, np.ndarray],
) -> None:
    """Add Σ R E (x − m) and the lower triangle of Σ R E (x − m)(x − m)ᵀ of rows, one by one."""
    mean, (first, second) = np.ascontiguousarray(gaussians.mean), moments
    k, d = mean.shape
    x, stacked = np.ascontiguousarray(rows.X), gaussians.stacked
    order, halves = np.ascontiguousarray(order, dtype=np.int64), _NOTHING
    if gaussians.halves is not None:
        halves = gaussians.halves.of(order)
    shares = np.ascontiguousarray(shares, dtype=np.float64)
    least = NO_SHARE * np.abs(shares).max(axis=0, initial=0.0)
    # Factors of an annealing method can make shares negative.
    signs = (1.0, -1.0) if shares.min(initial=0.0) < 0.0 else (1.0,)
    for part, completed, n_completed in _places(len(order), k, d):
        for sign in signs:
            kernels().add_moments(
                *(x, rows.center, order[part], stacked, mean, shares[part], halves[part]),
                *(least, sign, _BLOCK, second.reshape(k * d, d), first, completed, n_completed),
            )
            _add_completed(second, completed, n_completed, sign)


def _grouped(
    rows: Rows, order: np.ndarray, n_components: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return where in ``order`` large groups of rows lack the same cells, and where the rest is."""
    if rows.patterns is None or rows.plain:
        return [], np.arange(len(order))
    n = len(order)
    if n * n_components < _GROUP:
        return [], np.arange(n)
    if order is rows.by_completeness[1]:
        starts, sizes = rows.runs
    else:
        codes = rows.patterns[order]
        starts = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)[:n]
        sizes = np.diff(np.append(starts, n))
    large = sizes * n_components >= _GROUP
    if not large.any():
        return [], np.arange(n)
    groups = [
        np.arange(start, start + size)
        for start, size in zip(starts[large], sizes[large], strict=True)
    ]
    return groups, np.flatnonzero(~np.repeat(large, sizes))


def imputed(
    rows: Rows, order: np.ndarray, shares: np.ndarray, factors: np.ndarray, gaussians: Gaussians
) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and variances of the cells of rows, relative to the center.

    Parameters
    ----------
    rows : Rows
    order : ndarray
        Numbers of the rows.
    shares : ndarray of shape (len(order), n_components)
        The probabilities of the components.
    factors : ndarray of shape (len(order), n_components)
        Given a component, the covariance of missing cells is this factor times P_mm⁻¹.
    gaussians : Gaussians

    Returns
    -------
    means, variances : ndarray of shape (len(order), n_features)
        Those of missing cells; the others have no meaning.
    """
    mean, precision = gaussians.mean, gaussians.precision
    n, d = len(order), mean.shape[1]
    if gaussians.diagonal:
        means, variances = np.empty((n, d)), np.empty((n, d))
        for part, x, missing in _parts(rows, order):
            r = shares[part]
            with np.errstate(invalid="ignore"):
                spread = np.where(r > 0, r * factors[part], 0.0)
            expected = r @ mean
            within = _products(spread, 1.0 / precision)
            between = np.maximum(r @ mean**2 - expected**2, 0.0)
            means[part] = np.where(missing > 0, expected, x)
            variances[part] = missing * np.where(missing > 0, within + between, 0.0)
        return means, variances
    variances = np.zeros((n, d))
    reference = np.zeros((n, d))
    for _ in range(2):
        # The second round measures deviations from the means that the first one has found.
        means, variances = np.zeros((n, d)), np.zeros((n, d))
        kernels(rows.plain).impute(
            np.ascontiguousarray(rows.X),
            rows.center,
            np.ascontiguousarray(order, dtype=np.int64),
            gaussians.stacked,
            np.ascontiguousarray(mean),
            np.ascontiguousarray(shares, dtype=np.float64),
            np.ascontiguousarray(factors, dtype=np.float64),
            reference,
            _BLOCK,
            means,
            variances,
        )
        reference = means
    return means, variances


def _products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return left @ right, in which infinite entries of ``left`` give infinite ones, not NaN."""
    infinite = ~np.isfinite(left)
    if not infinite.any():
        return left @ right
    out = np.where(infinite, 0.0, left) @ right
    out[infinite.any(axis=1)] = np.inf
    return out


class RowVolume(NamedTuple):
    """log ∫ N(y | μ, C)^x dy of the observed cells y of a row, at the covariance C of the data."""

    covariance: np.ndarray  # C, or its diagonal, (n_features, n_features)
    log_det: float  # log|C|
    floor: float  # the smallest eigenvalue that C can have

    @classmethod
    def at_data(cls, summary: Summary, covariance_type: str, reg_covar: float) -> RowVolume:
        """Return the volume at the covariance of a summary, in which ``reg_covar`` is added.

        A constant column has no variance and thus no density; regularisation gives it one.
        """
        covariance, floor = np.array(summary.covariance), max(reg_covar, np.finfo(float).tiny)
        if covariance.ndim == 2:
            units = comparable_units(summary.variance, summary.mean)
            added = floor / units**2
            least = float(added.min())
            scaled = covariance / units / units[:, None] + np.diag(added - least)
            values = np.maximum(np.linalg.eigvalsh(scaled), 0.0) + least
            log_det = np.log(values).sum() + 2.0 * np.log(units).sum()
            np.fill_diagonal(covariance, np.diagonal(covariance) + floor)
            return cls(covariance, log_det, floor)
        if covariance_type == "spherical":
            covariance = np.full_like(covariance, covariance.mean())
        log_det = np.log(np.maximum(covariance, 0.0) + floor).sum()
        return cls(covariance + floor, log_det, floor)

    def whole(self, x: np.ndarray) -> np.ndarray:
        """Return the value of a row without missing cells, of the shape of ``x``."""
        d = len(self.covariance)
        return 0.5 * d * ((1 - x) * LOG_2PI - np.log(x)) - 0.5 * (1 - x) * -self.log_det

    def log_dets(self, observed: np.ndarray) -> np.ndarray:
        """Return log|C_oo| for sets of observed cells, bool of shape (n_sets, n_features)."""
        if self.covariance.ndim == 1:
            return observed @ np.log(self.covariance)
        out = np.empty(len(observed))
        size = max(1, CHUNK // len(self.covariance))
        unit = np.eye(len(self.covariance))
        for start in range(0, len(observed), size):
            o = observed[start : start + size]
            both = o[:, :, None] & o[:, None, :]
            sign, found = np.linalg.slogdet(np.where(both, self.covariance, unit))
            # Among equal columns, rounding can leave nothing of what regularisation has added.
            for i in np.flatnonzero(sign <= 0):
                values = np.linalg.eigvalsh(self.covariance[np.ix_(o[i], o[i])])
                found[i] = np.log(np.maximum(values, self.floor)).sum()
            out[start : start + size] = found
        return out

    def of_rows(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of observed cells and log|C_oo| of each row."""
        n, d = rows.X.shape
        sizes, log_dets = np.full(n, float(d)), np.full(n, self.log_det)
        _, some, blank = rows.by_completeness
        if len(some):
            assert rows.patterns is not None
            _, where, which = np.unique(rows.patterns[some], return_index=True, return_inverse=True)
            observed = ~np.isnan(rows.X[some[where]])
            sizes[some] = observed.sum(axis=1)[which]
            log_dets[some] = self.log_dets(observed)[which]
        sizes[blank] = log_dets[blank] = 0.0
        return sizes, log_dets

    def mean(self, summary: Summary) -> tuple[float, float]:
        """Return the means of both numbers over the rows of a summary."""
        cells = summary.cells
        if cells is None:
            return float(len(self.covariance)), self.log_det
        key = ("volume", self.log_det)
        if key not in summary.known:
            log_det = cells.weights @ self.log_dets(cells.patterns) / cells.weights.sum()
            summary.known[key] = float(cells.counts.sum() / summary.seen), float(log_det)
        return summary.known[key]


def tempered_volume(
    x: np.ndarray, n_cells: np.ndarray | float, log_det: np.ndarray | float
) -> np.ndarray:
    """Return log ∫ N(y | μ, C)^x dy in nats, for the number of cells and for log|C|."""
    return 0.5 * (n_cells * ((1 - x) * LOG_2PI - np.log(x)) + (1 - x) * log_det)
