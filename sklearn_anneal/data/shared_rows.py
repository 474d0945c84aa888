"""Arrays into which tasks in threads and in processes write their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class SharedRows:
    """Arrays with as many rows, into which the tasks of one step write side by side.

    The threads of a process share the arrays, which are made when they are first needed. A task in
    another process writes into arrays of that process, and returns its rows, which are then copied.

    Parameters
    ----------
    n_rows : int
    columns : dict of int
        The number of columns of each array.
    dtype : dtype
    """

    def __init__(self, n_rows: int, columns: dict[str, int], dtype: DTypeLike):
        self._asked = n_rows, columns, dtype
        self._made: dict[str, dict[str, np.ndarray]] = {}

    def __reduce__(self) -> tuple:
        return SharedRows, self._asked

    def _whole(self) -> dict[str, np.ndarray]:
        if not self._made:
            n_rows, columns, dtype = self._asked
            arrays = {key: np.empty((n_rows, n), dtype) for key, n in columns.items()}
            # If several threads come here together, the arrays of the first are everybody's. A
            # lock would do the same, but a fork could leave it locked in the child for ever.
            self._made.setdefault("arrays", arrays)
        return self._made["arrays"]

    def of(self, rows: slice | np.ndarray) -> dict[str, np.ndarray]:
        """Arrays for some rows, to be written: views, or copies if ``rows`` are indices."""
        return {key: array[rows] for key, array in self._whole().items()}

    def joined(self, *parts: tuple[slice, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The rows of consecutive parts, each given as its rows and the arrays of a task."""
        whole = self._whole()
        for rows, part in parts:
            for key, array in whole.items():
                if part[key].base is not array:
                    array[rows] = part[key]
        every = slice(parts[0][0].start, parts[-1][0].stop)
        return {key: array[every] for key, array in whole.items()}
