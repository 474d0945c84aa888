"""Ways to store symmetric positive definite matrices, with the linear algebra for each.

No other module depends on what a covariance type means. A restricted matrix is the projection of a
full one: ``diag`` keeps its diagonal (D,), ``spherical`` keeps trace / D (one number), and ``tied``
keeps the mean (D, D) over the rows that share it. ``common`` keeps the sum (D, D) over the rows,
which have one matrix, and not equal distributions of one each. ``packed`` stores the lower triangle
of a full matrix, row after row: (0, 0), (1, 0), (1, 1), (2, 0), … All functions broadcast over
leading rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dger, dtrmm, dtrsv
from scipy.linalg.lapack import dlauum, dposv, dpotrf, dtrtri

# From this order on LAPACK's routines for symmetric matrices, which take one matrix at a time, are
# faster than numpy's, which take a stack but compute both triangles.
_LARGE = 64
# Number of rows of a block in which a triangle is copied to the other one.
_BLOCK = 64
_BELOW_OR_ON = np.tri(_BLOCK, dtype=bool)


@cache
def lower_triangle(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns of the entries of a packed matrix, in read-only arrays."""
    rows, columns = np.tril_indices(n_features)
    # All callers share them.
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


class Triangle(NamedTuple):
    """The upper triangle of symmetric matrices, whose entries are stored row after row."""

    entries: np.ndarray  # the place of each of them in a matrix, (n_pairs,)
    places: np.ndarray  # the place of each entry of a matrix among them, (D, D)
    # The factors with which entries Λ_ij are the coefficients of x_i x_j in −½ xᵀ Λ x, (n_pairs,).
    # A pair of different columns is in the sum twice and among the features once.
    factors: np.ndarray

    @classmethod
    def of(cls, n_features: int) -> Triangle:
        i, j = np.triu_indices(n_features)
        places = np.empty((n_features, n_features), dtype=np.intp)
        places[i, j] = places[j, i] = np.arange(len(i))
        return cls(i * n_features + j, places, np.where(i == j, -0.5, -1.0))


def lower_root(matrices: np.ndarray, overwrite: bool = False) -> np.ndarray:
    """Return the Cholesky factors of matrices of shape (..., D, D), whose lower halves are read.

    With ``overwrite`` they may be in the memory of the matrices. Raises LinAlgError if a matrix is
    not positive definite.
    """
    d = matrices.shape[-1]
    if d < _LARGE:
        return np.linalg.cholesky(matrices)
    copied = np.ascontiguousarray if overwrite else np.array
    result = copied(matrices, dtype=np.float64)
    for root in result.reshape(-1, d, d):
        # The transpose is in Fortran's order, and the root replaces it without another copy.
        if dpotrf(root.T, clean=True, overwrite_a=True)[1] != 0:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
    return result


def inverse_of_lower(roots: np.ndarray, overwrite: bool = False) -> np.ndarray:
    """Return the inverses of lower triangular matrices of shape (..., D, D).

    It takes a fraction of the time of ``numpy.linalg.inv``, which does not know that the other
    triangles are zero. It raises LinAlgError as that does, if an entry on a diagonal is zero. With
    ``overwrite`` the inverses may be in the memory of the matrices.
    """
    copied = np.ascontiguousarray if overwrite else partial(np.array, order="C")
    result = copied(roots, dtype=np.float64)
    for root in result.reshape(-1, *roots.shape[-2:]):
        _invert_lower(root)
    return result


def _invert_lower(root: np.ndarray) -> None:
    """Replace a lower triangular matrix by its inverse.

    The lower left block of the inverse of (A, 0; B, C) is −C⁻¹ B A⁻¹. With halves for blocks, most
    of the time goes into products of large matrices, which LAPACK's routine does not reach.
    """
    d = len(root)
    if d <= _LARGE:
        # The transpose is upper triangular. If it is in Fortran's order, it is replaced in place.
        inverse, failed = dtrtri(root.T, overwrite_c=True)
        if failed:
            raise np.linalg.LinAlgError("Singular matrix")
        root[:] = inverse.T
        return
    half = d // 16 * 8
    left, right = root[:half, :half], root[half:, half:]
    _invert_lower(left)
    _invert_lower(right)
    product = dtrmm(-1.0, left.T, np.array(root[half:, :half]).T, overwrite_b=True)
    root[half:, :half] = dtrmm(1.0, right.T, product, side=True, overwrite_b=True).T


def in_shape(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return values in a shape to which they broadcast, at once if it is theirs."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def symmetrize(matrices: np.ndarray) -> np.ndarray:
    """Return the symmetric part of matrices of shape (..., D, D)."""
    result = matrices + matrices.swapaxes(-1, -2)
    result *= 0.5
    return result


class Structure(ABC):
    """One way to store symmetric matrices.

    Arguments called ``stored`` have leading rows, followed by `event_ndim` axes for one matrix.

    Attributes
    ----------
    event_ndim : int
        Number of axes of one stored matrix.
    shared : bool
        Whether all rows share one stored matrix.
    alike : bool
        Whether this matrix belongs to equal distributions of independent matrices of the rows.
    """

    event_ndim: int
    shared: bool = False
    alike: bool = False

    def multiplicity(self, n_features: int) -> int | np.ndarray:
        """Return c with tr(A B) = c * sum(A_stored * B_stored), for A or B of this structure."""
        return 1

    def pool(self, stored: np.ndarray) -> np.ndarray:
        """Return the mean of the rows' matrices if the rows share one, and else the matrices.

        If the rows have one matrix in common, the result is the sum of what they say about it.
        """
        return stored

    @abstractmethod
    def outer(self, vectors: np.ndarray) -> np.ndarray:
        """Return the projection of v v^T, stored, for vectors of shape (..., D)."""

    @abstractmethod
    def cross(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the projection of a b^T + b a^T, stored, for vectors of shape (..., D)."""

    def plus_outer(self, stored: np.ndarray, vectors: np.ndarray, sign: float = 1.0) -> np.ndarray:
        """Return the sums of stored matrices and the projections of ± v v^T, in new memory.

        The sign is 1 or −1, and rows that share a matrix add the mean of theirs.
        """
        pooled = self.pool(self.outer(vectors))
        return (np.add if sign > 0 else np.subtract)(stored, pooled, out=pooled)

    @abstractmethod
    def to_full(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        """Return the full matrices of shape (..., D, D) for the given stored ones."""

    @abstractmethod
    def log_det(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        """Return the log-determinants (...).

        Raises LinAlgError if a matrix is not positive definite.
        """

    @abstractmethod
    def inverse(self, stored: np.ndarray) -> np.ndarray:
        """Return the inverses, stored in the same way.

        Raises LinAlgError if a matrix is not positive definite.
        """

    def inverse_and_log_det(
        self, stored: np.ndarray, n_features: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return :meth:`inverse` and :meth:`log_det`, which can share a factorisation."""
        return self.inverse(stored), self.log_det(stored, n_features)

    @abstractmethod
    def multiply(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the products with vectors of shape (..., D)."""

    @abstractmethod
    def solve(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the products of the inverses with vectors of shape (..., D)."""

    def quadratic_and_log_det(
        self, stored: np.ndarray, vectors: np.ndarray, n_features: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return v^T M^{-1} v for vectors v (..., D) and matrices M, and :meth:`log_det` of M."""
        return (vectors * self.solve(stored, vectors)).sum(-1), self.log_det(stored, n_features)

    @abstractmethod
    def solve_root(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return L^{-T} v, with L L^T the matrix, for vectors of shape (..., D)."""

    def relative(self, left: np.ndarray, right: np.ndarray, n_features: int) -> np.ndarray:
        """Return the eigenvalues of `right`^{-1} `left`, (..., D); `right` is positive definite."""
        full, right = self.to_full(left, n_features), self.to_full(right, n_features)
        own = diagonals_alone(right)
        if own is not None:
            units = np.sqrt(_require_positive(own))
            return np.linalg.eigvalsh(full / units[..., None] / units[..., None, :])
        root = inverse_of_lower(lower_root(right))
        return np.linalg.eigvalsh(root @ full @ root.swapaxes(-1, -2))

    @abstractmethod
    def positive(self, stored: np.ndarray) -> np.ndarray:
        """Return, per row, whether the matrix is finite and positive definite."""

    @abstractmethod
    def smallest(self, stored: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """Return the smallest eigenvalue per row, 0 where the matrix is not finite.

        Rows and columns are measured in the units of the diagonal of ``reference``, which is
        stored in the same way and positive.
        """


class _Full(Structure):
    event_ndim = 2

    def outer(self, vectors: np.ndarray) -> np.ndarray:
        return vectors[..., :, None] * vectors[..., None, :]

    def cross(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        product = left[..., :, None] * right[..., None, :]
        return product + product.swapaxes(-1, -2)

    def plus_outer(self, stored: np.ndarray, vectors: np.ndarray, sign: float = 1.0) -> np.ndarray:
        d = vectors.shape[-1]
        if d < _LARGE or vectors.ndim != 2:
            pooled = self.pool(vectors[..., :, None] * vectors[..., None, :])
            return (np.add if sign > 0 else np.subtract)(stored, pooled, out=pooled)
        result = np.array(stored, dtype=np.float64, order="C")
        matrices = result.reshape(-1, d, d)
        factor = sign / len(vectors) if self.alike else sign
        for k, vector in enumerate(vectors):
            # The matrix is symmetric, and its transpose in Fortran's order is changed in place.
            one = matrices[k % len(matrices)]
            dger(factor, vector, vector, a=one.T, overwrite_a=True)
        return result

    def to_full(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        return stored

    def log_det(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        return log_det_of_root(lower_root(stored))

    def inverse(self, stored: np.ndarray) -> np.ndarray:
        return inverse_of_root(lower_root(stored))

    def inverse_and_log_det(
        self, stored: np.ndarray, n_features: int
    ) -> tuple[np.ndarray, np.ndarray]:
        root = lower_root(stored)
        log_det = log_det_of_root(root)
        return inverse_of_root(root), log_det

    def multiply(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return (stored @ vectors[..., None])[..., 0]

    def solve(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        if stored.shape[-1] < _LARGE:
            # NumPy 1 takes right sides of fewer axes than matrices for vectors.
            vectors = vectors[(None,) * (stored.ndim - 1 - vectors.ndim)]
            return np.linalg.solve(stored, vectors[..., None])[..., 0]
        return _solved(stored, vectors, lambda matrix, v: dposv(matrix, v)[1:])

    def quadratic_and_log_det(
        self, stored: np.ndarray, vectors: np.ndarray, n_features: int
    ) -> tuple[np.ndarray, np.ndarray]:
        own = diagonals_alone(stored)
        if own is not None:
            own = _require_positive(own)
            return (vectors**2 / own).sum(-1), np.log(own).sum(-1)
        root = lower_root(stored)
        if n_features < _LARGE:
            vectors = vectors[(None,) * (stored.ndim - 1 - vectors.ndim)]
            halves = np.linalg.solve(root, vectors[..., None])[..., 0]
        else:
            # The transposes are upper triangular. LAPACK's routine is for many vectors at once.
            halves = _solved(root, vectors, lambda upper, v: (dtrsv(upper, v, trans=1), 0))
        return (halves**2).sum(-1), log_det_of_root(root)

    def solve_root(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        root = lower_root(stored)
        vectors = vectors[(None,) * (stored.ndim - 1 - vectors.ndim)]
        return np.linalg.solve(root.swapaxes(-1, -2), vectors[..., None])[..., 0]

    def positive(self, stored: np.ndarray) -> np.ndarray:
        *rows, d, _ = stored.shape
        if np.isfinite(stored).all() and _has_cholesky(stored):
            return np.ones(rows, dtype=bool)
        # If the factorisation of all matrices fails, it does not report which matrix is the cause,
        # so that each has to be factorised alone.
        matrices = _finite_or_zero(stored).reshape(-1, d, d)
        return np.reshape([_has_cholesky(one) for one in matrices], rows)

    def smallest(self, stored: np.ndarray, reference: np.ndarray) -> np.ndarray:
        units = 1.0 / np.sqrt(np.diagonal(reference, axis1=-2, axis2=-1))
        scaled = units[..., :, None] * _finite_or_zero(stored) * units[..., None, :]
        return np.linalg.eigvalsh(scaled)[..., 0]


class _Tied(_Full):
    shared = alike = True

    def pool(self, stored: np.ndarray) -> np.ndarray:
        return stored.mean(0)


class _Common(_Full):
    shared = True

    def pool(self, stored: np.ndarray) -> np.ndarray:
        return stored.sum(0)


class _Packed(Structure):
    event_ndim = 1

    def __init__(self) -> None:
        self._full = _Full()

    def multiplicity(self, n_features: int) -> np.ndarray:
        # An entry off the diagonal is stored once but occurs twice in the matrix.
        rows, columns = lower_triangle(n_features)
        return np.where(rows == columns, 1, 2)

    def pack(self, matrices: np.ndarray) -> np.ndarray:
        """Return the lower triangles of symmetric matrices."""
        rows, columns = lower_triangle(matrices.shape[-1])
        return np.ascontiguousarray(matrices[..., rows, columns])

    def outer(self, vectors: np.ndarray) -> np.ndarray:
        rows, columns = lower_triangle(vectors.shape[-1])
        return vectors[..., rows] * vectors[..., columns]

    def cross(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self.pack(self._full.cross(left, right))

    def to_full(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        rows, columns = lower_triangle(n_features)
        full = np.empty((*stored.shape[:-1], n_features, n_features), dtype=stored.dtype)
        full[..., rows, columns] = stored
        full[..., columns, rows] = stored
        return full

    def _matrices(self, stored: np.ndarray) -> np.ndarray:
        return self.to_full(stored, packed_size(stored.shape[-1]))

    def log_det(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        return self._full.log_det(self.to_full(stored, n_features), n_features)

    def inverse(self, stored: np.ndarray) -> np.ndarray:
        return self.pack(self._full.inverse(self._matrices(stored)))

    def multiply(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return self._full.multiply(self._matrices(stored), vectors)

    def solve(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return self._full.solve(self._matrices(stored), vectors)

    def solve_root(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return self._full.solve_root(self._matrices(stored), vectors)

    def positive(self, stored: np.ndarray) -> np.ndarray:
        return self._full.positive(self._matrices(stored))

    def smallest(self, stored: np.ndarray, reference: np.ndarray) -> np.ndarray:
        # The matrices are precisions of factors, which have no units, and a kernel moves them too.
        return np.linalg.eigvalsh(_finite_or_zero(self._matrices(stored)))[..., 0]


def packed_size(n_entries: int) -> int:
    """Return the order D of a symmetric matrix whose lower triangle has ``n_entries`` entries."""
    return (int(np.sqrt(8 * n_entries + 1)) - 1) // 2


class _Diag(Structure):
    event_ndim = 1

    def outer(self, vectors: np.ndarray) -> np.ndarray:
        return vectors**2

    def cross(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return 2.0 * left * right

    def to_full(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        return stored[..., None] * np.eye(n_features)

    def log_det(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        return np.log(_require_positive(stored)).sum(-1)

    def inverse(self, stored: np.ndarray) -> np.ndarray:
        return 1.0 / _require_positive(stored)

    def multiply(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return stored * vectors

    def solve(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return vectors / stored

    def solve_root(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return vectors / np.sqrt(_require_positive(stored))

    def relative(self, left: np.ndarray, right: np.ndarray, n_features: int) -> np.ndarray:
        return left / _require_positive(right)

    def positive(self, stored: np.ndarray) -> np.ndarray:
        return ((stored > 0.0) & np.isfinite(stored)).all(-1)

    def smallest(self, stored: np.ndarray, reference: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(stored).all(-1), (stored / reference).min(-1), 0.0)


class _Spherical(Structure):
    event_ndim = 0

    def multiplicity(self, n_features: int) -> int:
        return n_features

    def outer(self, vectors: np.ndarray) -> np.ndarray:
        return (vectors**2).mean(-1)

    def cross(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return 2.0 * (left * right).mean(-1)

    def to_full(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        return stored[..., None, None] * np.eye(n_features)

    def log_det(self, stored: np.ndarray, n_features: int) -> np.ndarray:
        return n_features * np.log(_require_positive(stored))

    def inverse(self, stored: np.ndarray) -> np.ndarray:
        return 1.0 / _require_positive(stored)

    def multiply(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return stored[..., None] * vectors

    def solve(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return vectors / stored[..., None]

    def solve_root(self, stored: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return vectors / np.sqrt(_require_positive(stored))[..., None]

    def relative(self, left: np.ndarray, right: np.ndarray, n_features: int) -> np.ndarray:
        return np.repeat((left / _require_positive(right))[..., None], n_features, axis=-1)

    def positive(self, stored: np.ndarray) -> np.ndarray:
        return (stored > 0.0) & np.isfinite(stored)

    def smallest(self, stored: np.ndarray, reference: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(stored), stored / reference, 0.0)


def inverse_of_root(root: np.ndarray) -> np.ndarray:
    """Return the inverse of L L^T, which can be in the memory of L."""
    root = np.ascontiguousarray(root, dtype=np.float64)
    for one in root.reshape(-1, *root.shape[-2:]):
        _invert_lower(one)
    return product_of_lower(root, overwrite=True)


def product_of_lower(roots: np.ndarray, overwrite: bool = False) -> np.ndarray:
    """Return L^T L for lower triangular matrices L of shape (..., D, D).

    With ``overwrite`` the products may be in the memory of the matrices.
    """
    d = roots.shape[-1]
    if d < _LARGE:
        return roots.swapaxes(-1, -2) @ roots
    result = roots if overwrite else roots.copy()
    for one in result.reshape(-1, d, d):
        # The transpose U is upper triangular, and the upper triangle of U U^T replaces it.
        dlauum(one.T, overwrite_c=True)
        mirror(one)
    return result


def mirror(matrices: np.ndarray) -> None:
    """Copy the lower triangles of matrices of shape (..., D, D) to the upper ones."""
    d = matrices.shape[-1]
    turned = matrices.swapaxes(-1, -2)
    for start in range(0, d, _BLOCK):
        part, stop = slice(start, start + _BLOCK), min(start + _BLOCK, d)
        lower = _BELOW_OR_ON[: stop - start, : stop - start]
        block = matrices[..., part, part]
        block[:] = np.where(lower, block, turned[..., part, part])
        matrices[..., part, stop:] = turned[..., part, stop:]


def _solved(
    matrices: np.ndarray, vectors: np.ndarray, routine: Callable[..., tuple[np.ndarray, int]]
) -> np.ndarray:
    """Return what a routine of LAPACK computes of the transpose of each matrix and its vector."""
    shape, d = vectors.shape, vectors.shape[-1]
    if matrices.shape[:-1] != shape:
        shape = np.broadcast_shapes(matrices.shape[:-1], shape)
    each = in_shape(matrices, (*shape, d)).reshape(-1, d, d)
    result = np.array(in_shape(vectors, shape), dtype=np.float64).reshape(-1, d)
    for matrix, vector in zip(each, result, strict=True):
        vector[:], failed = routine(matrix.T, vector)
        if failed:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
    return result.reshape(shape)


def log_det_of_root(root: np.ndarray) -> np.ndarray:
    """Return log|L L^T|."""
    return 2.0 * np.log(root.diagonal(axis1=-2, axis2=-1)).sum(-1)


def diagonals_alone(matrices: np.ndarray) -> np.ndarray | None:
    """Return the diagonals of diagonal matrices of shape (..., D, D), and None for others."""
    own = np.diagonal(matrices, axis1=-2, axis2=-1)
    # Truth values are counted several times as quickly as numbers.
    return own if np.count_nonzero(matrices != 0.0) == np.count_nonzero(own) else None


def _require_positive(stored: np.ndarray) -> np.ndarray:
    # Without this check the result would silently be NaN. The error is the one that a failing
    # Cholesky factorisation raises for full matrices.
    if not (stored > 0.0).all():
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    return stored


def _finite_or_zero(matrices: np.ndarray) -> np.ndarray:
    # A matrix with a NaN or an infinite entry is replaced by zeros, which are not positive
    # definite either, because LAPACK's result for NaN depends on how it was built.
    return np.where(np.isfinite(matrices).all((-2, -1), keepdims=True), matrices, 0.0)


def _has_cholesky(matrices: np.ndarray) -> bool:
    try:
        lower_root(matrices)
    except np.linalg.LinAlgError:
        return False
    return True


_STRUCTURES: dict[str, Structure] = {
    "full": _Full(),
    "diag": _Diag(),
    "spherical": _Spherical(),
    "tied": _Tied(),
    "common": _Common(),
    "packed": _Packed(),
}


def get_structure(name: str, accepted: tuple[str, ...], parameter: str) -> Structure:
    """Return the structure called `name`.

    Parameters
    ----------
    name : str
        Name of the structure.
    accepted : tuple of str
        Names of the structures that the caller accepts.
    parameter : str
        Name of the caller's parameter, for the error message.

    Returns
    -------
    Structure
        One shared, stateless instance.

    Raises
    ------
    ValueError
        If `name` is not one of `accepted`.
    """
    if name not in accepted:
        options = ", ".join(repr(option) for option in accepted)
        raise ValueError(f"{parameter}={name!r} is not known; choose one of {options}.")
    return _STRUCTURES[name]
