"""Tasks for other processes, each of which imports this module, and hence little else."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from sklearn import get_config


def second(i: int) -> tuple[int, int, bool]:
    """Fail in the second task; otherwise return its number, the thread and a setting."""
    if i == 1:
        raise ValueError("the second task")
    return i, threading.get_ident(), get_config()["assume_finite"]


def count(shared: Any, rows: slice) -> dict[str, np.ndarray]:
    """Write the numbers of some rows into shared arrays."""
    part = shared.of(rows)
    for array in part.values():
        array[:] = np.arange(rows.start, rows.stop)[:, None]
    return part


def itself(x: np.ndarray, out: np.ndarray) -> tuple[dict[str, np.ndarray], bool]:
    """Return arrays in several forms, and whether the first one is read-only."""
    found = {"whole": x, "part": x[1:3], "out": out + 1, "plain": np.asarray(x)}
    return found, not x.flags.writeable
