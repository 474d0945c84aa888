"""Dirichlet rows of chains and of categories, by kernels that take all rows at once."""

from __future__ import annotations

from functools import cache

import numpy as np

from ..families import Dirichlet, Factor, Factors
from ..families._divergence import STRONG
from ..families._empirical_bayes import LARGEST
from ._base import compiled

# A learned concentration of start or transition probabilities is at least this share of 1 / K.
# Below it, states practically exclude every transition that they have not made so far.
_LEAST_SHARE = 0.1


@cache
def free_chain(keys: tuple[str, ...]) -> Factors:
    """Return the factors of a chain in which nothing is forbidden, given their keys."""
    return Factors([Factor(Dirichlet(), {"concentration": key}) for key in keys])


@cache
def one_column(n_levels: int) -> np.ndarray:
    """Return where the levels of a single column begin and end, for kernels of several columns."""
    return np.array([0, n_levels])


def logs_of_rows(concentration: np.ndarray, first_level: np.ndarray | None = None) -> np.ndarray:
    """Return E log p of Dirichlet rows, with a column for each row.

    Rows can consist of the levels of several columns. ``first_level`` says where those of each
    column begin and where the last ones end, and None stands for one column.
    """
    rows = np.ascontiguousarray(np.atleast_2d(concentration))
    logs = np.empty(rows.shape[::-1])
    first_level = one_column(rows.shape[1]) if first_level is None else first_level
    compiled("divergence").dirichlet_logs(rows, first_level, logs)
    return logs


def divergence_of_rows(
    q: np.ndarray, prior: np.ndarray, logs: np.ndarray, first_level: np.ndarray | None = None
) -> float | None:
    """Return KL(q ‖ p) of Dirichlet rows in nats, given the result of :func:`logs_of_rows` for q.

    The result is None where a sum of terms would lose its digits.
    """
    found, both = np.empty(2), (np.ascontiguousarray(np.atleast_2d(x)) for x in (q, prior))
    first_level = one_column(q.shape[-1]) if first_level is None else first_level
    compiled("divergence").dirichlet_divergence(*both, logs, first_level, found)
    return float(found[0]) if found[1] <= STRONG else None


def learned_rows(old: np.ndarray, logs: float, rho: float) -> np.ndarray:
    """Return Dirichlet priors after a step that learns the concentration that all entries share.

    The smallest entry of ``old`` is this concentration, and what other entries have in excess of
    it is a constant. The expected log density is a concave function of the concentration. ``logs``
    is the sum of the expected log probabilities.
    """
    n_entries = old.shape[-1]
    if n_entries == 1:
        return old
    new, rows = np.empty(old.shape), np.ascontiguousarray(old).reshape(-1, n_entries)
    how = logs, rho, _LEAST_SHARE / n_entries, LARGEST, new.reshape(-1, n_entries)
    compiled("empirical_bayes").learned_rows(rows, *how)
    return new
