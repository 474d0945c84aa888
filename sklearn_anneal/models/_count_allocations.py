"""Starts of factorised counts by collapsed Gibbs sampling.

Given the sums of the rows, the model of the counts is a topic model: each of the x_nv counts of a
cell belongs to one part, and rows have shares of parts in the place of activations. The parts of
all counts are drawn one after another, given those of all other counts (Griffiths and Steyvers
2004, Finding scientific topics, Eq. 5), as :mod:`.topics.sampled` draws the topics of tokens.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ._base import compiled

# Visits to all counts, and how many of the last ones are averaged.
_SWEEPS, _AVERAGED = 200, 100


def allocated(
    counts: csr_array,
    weights: np.ndarray | None,
    n_components: int,
    priors: tuple[float, float],
    seed: int,
) -> np.ndarray:
    """Return the expected counts of each part in each column, (n_components, n_columns).

    Parameters
    ----------
    counts : csr_array of shape (n_rows, n_columns)
        Positive counts. Of a cell, at most 1024 equal portions are drawn.
    weights : ndarray of shape (n_rows,) or None
    n_components : int
    priors : tuple of (float, float)
        The parameters of the symmetric Dirichlet distributions of the shares of rows, and of the
        profiles of parts.
    seed : int
    """
    kernels = compiled("topic_sampler")
    (n_rows, n_columns), (alpha, eta) = counts.shape, priors
    width = -(-n_components // kernels.COLUMNS) * kernels.COLUMNS
    arrays = counts.data, counts.indices.astype(np.int32), counts.indptr.astype(np.int64)
    starts, of_columns = np.zeros(n_rows + 1, np.int64), np.zeros(n_columns + 1)
    kernels.count_tokens(*arrays, starts, of_columns)
    parts = np.full(starts[-1], -1, np.int32)
    table, totals = np.zeros((n_columns, width)), np.full(n_components, eta * n_columns)
    table[:, :n_components] = eta
    mean, out = np.zeros((n_columns, width)), np.empty((n_columns, width))
    alphas, theta = np.full(n_components, alpha), np.zeros(n_components + 2)
    rng = np.random.default_rng(seed)
    for n in range(_SWEEPS):
        out[:] = 0.0
        kernels.sample_topics(
            *(*arrays, starts, np.empty(0) if weights is None else weights),
            *(0, n_rows, 0, n_columns, False),
            *(alphas, table, totals, parts, n == 0, int(rng.integers(2**62)), out, theta),
        )
        if n >= _SWEEPS - _AVERAGED:
            mean += out / _AVERAGED
    return mean[:, :n_components].T
