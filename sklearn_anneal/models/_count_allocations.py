"""Starts of factorised counts by collapsed Gibbs sampling, and at means of rows.

Given the sums of the rows, the model of the counts is a topic model: each of the x_nv counts of a
cell belongs to one part, and rows have shares of parts in the place of activations. The parts of
all counts are drawn one after another, given those of all other counts (Griffiths and Steyvers
2004, Finding scientific topics, Eq. 5), as :mod:`.topics.sampled` draws the topics of tokens.

Sampling can also go on from the optimum of a fit. The mean of the parts over allocations is what
the posterior predicts rows from, where the optimum of the lower bound has one division of the
counts alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..data.units import DenseCounts, SparseCounts
from ._base import compiled

# Visits to all counts, and how many of the last ones are averaged.
_SWEEPS, _AVERAGED = 200, 100
# Number of random rows whose mean a component starts from, where nothing is allocated.
_ROWS_OF_START = 5
# Visits that go on from an optimum, all of which are averaged.
_FURTHER_SWEEPS = 50


def allocated(
    counts: csr_array,
    weights: np.ndarray | None,
    n_components: int,
    priors: tuple[float, float],
    seed: int,
    begun: np.ndarray | None = None,
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
    begun : ndarray of shape (n_components, n_columns) or None, default=None
        Counts of parts from which sampling goes on; None begins without any.
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
    n_sweeps, n_averaged = _SWEEPS, _AVERAGED
    if begun is not None:
        n_sweeps = n_averaged = _FURTHER_SWEEPS
        table[:, :n_components] += begun.T
        totals = table[:, :n_components].sum(axis=0)
    mean, out = np.zeros((n_columns, width)), np.empty((n_columns, width))
    alphas, theta = np.full(n_components, alpha), np.zeros(n_components + 2)
    rng = np.random.default_rng(seed)
    in_pairs = starts[-1] >= kernels.TOKENS_OF_PAIRS
    for n in range(n_sweeps):
        out[:] = 0.0
        kernels.sample_topics(
            *(*arrays, starts, np.empty(0) if weights is None else weights),
            *(0, n_rows, 0, n_columns, False, n > 0 and in_pairs),
            *(alphas, table, totals, parts, n == 0, int(rng.integers(2**62)), out, theta),
        )
        if n == 0 and begun is not None:
            # The table had the given counts beside those drawn.
            table[:, :n_components] = eta + out[:, :n_components]
            totals = table[:, :n_components].sum(axis=0)
        if n >= n_sweeps - n_averaged:
            mean += out / n_averaged
    return mean[:, :n_components].T


def means_of_rows(
    units: DenseCounts | SparseCounts,
    n_components: int,
    n_columns: int,
    random_state: np.random.RandomState,
) -> np.ndarray:
    """Return means of a few random rows for each component, relative to the mean of X.

    One half is the mean of all rows that were drawn, so that no entry is far from any data.
    """
    drawn: Any = units.subset(_ROWS_OF_START * n_components, random_state)
    group = random_state.randint(n_components, size=drawn.n_units)
    sums = np.zeros((n_components, n_columns))
    if isinstance(drawn, SparseCounts):
        rows = np.repeat(group, np.diff(drawn.indptr))
        stop = drawn.indptr[-1]
        np.add.at(sums, (rows, drawn.words[:stop]), drawn.counts[:stop])
    else:
        np.add.at(sums, group, drawn.completed(np.float64))
    mass = sums.mean(axis=1, keepdims=True)
    overall = sums.sum(axis=0) / max(sums.mean(axis=1).sum(), 1e-300)
    own = np.where(mass > 0, sums / np.maximum(mass, 1e-300), overall)
    return 0.5 * (own + overall) + 1e-3


def mean_parts(own: np.ndarray, a: float, weight: float) -> np.ndarray:
    """Return E θ_k w_kv given the counts of each part, for activations with the mean 1.

    Σ_v θ_k w_kv is the mean count of the part in a row, of which there are ``weight``, and the
    prior of its profile is that of w ~ Gamma(a, a) given its sum, a Dirichlet distribution.
    """
    profiles = own + a
    sizes = own.sum(axis=1, keepdims=True) / weight
    return np.asarray(sizes * profiles / profiles.sum(axis=1, keepdims=True))


def positive_counts(rows: DenseCounts | SparseCounts, n_columns: int) -> csr_array:
    """Return the positive counts of observed cells, in float64."""
    if isinstance(rows, SparseCounts):
        stop = rows.indptr[-1]
        arrays = rows.counts[:stop].astype(np.float64), rows.words[:stop], rows.indptr
        found = csr_array(arrays, shape=(rows.n_units, n_columns))
        if not found.data.all():
            # The copy keeps the columns of the rows, which would be changed in place.
            found = found.copy()
            found.eliminate_zeros()
        return found
    X = np.ascontiguousarray(rows.X)
    kind = np.int32 if X.size < 2**31 else np.int64
    # NaN, a missing cell, is not above zero. A matrix from its parts takes a third of the time.
    positive = X > 0
    places = np.flatnonzero(positive)
    indptr = np.zeros(len(X) + 1, kind)
    np.cumsum(np.count_nonzero(positive, axis=1), out=indptr[1:])
    arrays = X.reshape(-1)[places].astype(np.float64), (places % n_columns).astype(kind), indptr
    return csr_array(arrays, shape=X.shape)
