"""Merges of exchangeable components: which of them would gain if they were one.

Given the responsibilities, the best bound of a model in the exponential family is a sum over its
components of differences of log normalisers. The change by a merge is computed without a pass over
the data [1]_.

References
----------
.. [1] Hughes, Sudderth (2013). Memoized online variational inference for Dirichlet process mixture
   models. NIPS 26.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, xlogy

from ..families import Natural
from .components._base import Components

# Components with less than this many rows have nothing to merge.
_LEAST_ROWS = 0.1
# Pairs whose parameters are about this many numbers are merged at a time.
_NUMBERS_AT_A_TIME = 2**19
# For this many pairs per component, the loss of entropy is computed, which takes a pass over rows.
_PAIRS_PER_COMPONENT = 3


def merge_gains(
    components: Components,
    q: Natural,
    prior: Natural,
    responsibilities: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Return by how much the bound would rise if two components were one, in nats.

    Learned priors stay as they are, and so do the rows of all other components. The weights count
    as Dirichlet weights, and the transitions of chains are left out, so that the gains serve to
    choose pairs and not to judge them.

    Parameters
    ----------
    components : Components
    q, prior : dict of ndarray
    responsibilities : ndarray of shape (n_rows, n_components)
    weights : ndarray of shape (n_rows,)
        The weights of the rows, which sum to that of all rows if these are a sample.

    Returns
    -------
    gains : ndarray of shape (n_components, n_components)
        Above the diagonal; −inf elsewhere, for components without rows, and for pairs that cannot
        gain.
    """
    r, w = responsibilities, weights
    counts = w @ r
    used = np.flatnonzero(counts >= _LEAST_ROWS)
    i, j = (used[side] for side in np.triu_indices(len(used), 1))
    gains = np.full((len(counts),) * 2, -np.inf)
    if len(i) == 0:
        return gains
    share = 1.0 / len(counts)
    rise = gammaln(counts[i] + counts[j] + share) + gammaln(share)
    rise -= gammaln(counts[i] + share) + gammaln(counts[j] + share)
    shared = components.shared_keys
    sizes = [q[key].size // (1 if key in shared else len(counts)) for key in components.keys]
    block = max(_NUMBERS_AT_A_TIME // sum(sizes), 1)
    for n in range(0, len(i), block):
        part = slice(n, n + block)
        rise[part] += components.merge_gains(q, prior, i[part], j[part])
    best = np.argsort(-rise, kind="stable")[: _PAIRS_PER_COMPONENT * len(counts)]
    of_each = w @ xlogy(r, r)
    for n in best:
        a, b = i[n], j[n]
        both = r[:, a] + r[:, b]
        gains[a, b] = rise[n] + of_each[a] + of_each[b] - w @ xlogy(both, both)
    return np.where(np.isfinite(gains), gains, -np.inf)


def disjoint_pairs(gains: np.ndarray, least: float) -> list[tuple[int, int]]:
    """Return the pairs with the largest gains, none of which shares a component with another."""
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for n in np.argsort(-gains, axis=None, kind="stable"):
        a, b = divmod(int(n), len(gains))
        if gains[a, b] < least:
            break
        if not taken & {a, b}:
            pairs.append((a, b))
            taken |= {a, b}
    return pairs


def shared_rows(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> float:
    """Return the share of the rows of the smaller component that both components have.

    ``first`` and ``second`` are their responsibilities, of shape (n_rows,).
    """
    smaller = min(float(weights @ first), float(weights @ second))
    return float(weights @ np.minimum(first, second)) / max(smaller, 1e-300)
