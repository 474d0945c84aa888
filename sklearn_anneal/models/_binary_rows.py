"""Rows of zeros and ones as networks read them, dense and sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, issparse

from ..data.units import Rows

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Rows of a chunk, each of which has S samples in memory.
_ROWS = 256


class BinaryRows(Rows):
    """Rows of zeros and ones, or of probabilities of ones, in the small chunks of networks.

    ``X`` is an array, or a CSR array in which cells that are not stored are zeros.
    """

    def take(self, index: np.ndarray | slice) -> BinaryRows:
        weights = None if self.weights is None else self.weights[index]
        return BinaryRows(self.X[index], weights)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> BinaryRows:
        """Return the rows of several objects, one after another, as copies.

        They are sparse if some of them are.
        """
        if any(issparse(part.X) for part in parts):
            parts = [cls(csr_array(part.X), part.weights) for part in parts]
        found = super().joined(parts)
        assert isinstance(found, cls)
        return found

    def centered(self, summary: object) -> BinaryRows:
        return self

    def chunks(self) -> list[slice]:
        n = self.n_units
        return [slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)]


class SparseBits:
    """Rows of zeros and ones of which the places of the ones are stored.

    They are multiplied as an array is, ``x @ A`` and ``A @ x``, at a cost that is proportional to
    the number of ones. An array that they multiply is read, and one that they make is filled, at
    the columns in which ones occur only.

    Parameters
    ----------
    X : csr_array of shape (n_rows, n_columns)
    ones : ndarray of bool, shape (nnz,)
        Which of the stored entries are ones.
    dtype : dtype
        float64 or float32, the type of products.
    """

    # Arrays leave the product A @ x to the method of this class.
    __array_ufunc__ = None

    def __init__(self, X: csr_array, ones: np.ndarray, dtype: DTypeLike):
        indptr = np.concatenate([[0], np.cumsum(ones)])[X.indptr]
        columns = X.indices[: len(ones)][ones]
        self.columns, places = np.unique(columns, return_inverse=True)
        values = np.ones(len(columns), dtype)
        self.shape = X.shape
        self.dtype = values.dtype
        self._occurring = csr_array((values, places, indptr), shape=(X.shape[0], len(self.columns)))

    def __len__(self) -> int:
        return self.shape[0]

    def __matmul__(self, A: np.ndarray) -> np.ndarray:
        product: np.ndarray = self._occurring @ A[self.columns]
        return product

    def __rmatmul__(self, A: np.ndarray) -> np.ndarray:
        product = np.zeros((len(A), self.shape[1]), self.dtype)
        product[:, self.columns] = A @ self._occurring
        return product

    def dense(self, rows: slice) -> np.ndarray:
        """Return some of the rows as an array."""
        found = np.zeros((rows.stop - rows.start, self.shape[1]), self.dtype)
        entries = slice(*self._occurring.indptr[[rows.start, rows.stop]])
        numbers = np.repeat(
            np.arange(len(found)), np.diff(self._occurring.indptr[rows.start : rows.stop + 1])
        )
        found[numbers, self.columns[self._occurring.indices[entries]]] = 1
        return found
