"""Tables and the division of counts among components, which models of counts share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Numbers below the first are set to 0, and the second is added to normalisers, as compiled kernels
# do, by the number of bytes of a number.
_SMALLEST = {8: 2.3e-308, 4: 1.2e-38}
TINY = {8: 1e-280, 4: 1e-33}


def exponentiate(table: np.ndarray, logs: np.ndarray, factor: float) -> None:
    """``table = exp(factor * logs)``."""
    np.exp(factor * logs, out=table, casting="same_kind")
    table[table <= _SMALLEST[table.itemsize]] = 0.0


class Entries(NamedTuple):
    """The counts of some rows, and the rows of the table that they belong to.

    Attributes
    ----------
    counts : ndarray of shape (n, longest)
        Padded with zeros.
    rows : ndarray of shape (n, longest, n_components)
    """

    counts: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(
        cls, counts: np.ndarray, indices: np.ndarray, indptr: np.ndarray, table: np.ndarray
    ) -> Entries:
        """Return the entries of the rows of a sparse matrix."""
        lengths = np.diff(indptr)
        stored = np.arange(lengths.max(initial=0)) < lengths[:, None]
        padded = np.zeros(stored.shape, table.dtype)
        padded[stored] = counts[: indptr[-1]]
        places = np.zeros(stored.shape, np.intp)
        places[stored] = indices[: indptr[-1]]
        return cls(padded, table[places])

    def take(self, index: np.ndarray) -> Entries:
        """Return the entries of some rows."""
        return Entries(self.counts[index], self.rows[index])

    def normalizers(self, e: np.ndarray) -> np.ndarray:
        """Return n_v = Σ_k e_k table_vk of each entry, given the factors e of the components."""
        found = np.matmul(self.rows, e[..., None])[..., 0]
        found += found.dtype.type(TINY[found.itemsize])
        return found

    def divided(self, e: np.ndarray) -> np.ndarray:
        """Return Σ_v (x_v / n_v) table_vk, which are the counts of components divided by e."""
        if len(e) == 1:
            # Products of single vectors take less time than those of stacks of matrices.
            predicted = np.dot(self.rows[0], e[0])
            predicted += TINY[predicted.itemsize]
            return np.dot(np.divide(self.counts[0], predicted, out=predicted), self.rows[0])[None]
        quotients = self.counts / self.normalizers(e)
        return np.matmul(quotients[:, None], self.rows)[:, 0]
