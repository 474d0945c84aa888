"""Mean-field steps of documents, all of which are iterated at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import psi

from .._few_topics import FEW, FEW_SINGLE, SHARE_OF_TOLERANCE, repays
from .counts import Entries

# Compiled kernels pad topics to a multiple of this number, by which they decide when topics leave.
_LANES = 8
# If no exp ψ(γ) of a document can be above this, they are computed without a common factor, by the
# number of bytes of a number.
_FAR_FROM_ZERO = {8: 1e-200, 4: 1e-20}
# Documents that have ended are left out as soon as this share of the others is left.
_GOING_ON = 0.75


def mean_field(
    entries: Entries, alpha: np.ndarray, start: np.ndarray, n_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Iterate over documents at T = 1.

    Topics leave documents by the rule of the compiled kernel, because those that have left have
    exactly their prior in the result.

    Parameters
    ----------
    entries : Entries
        The counts of the documents, and exp E log β of their words.
    alpha : ndarray of shape (n_topics,)
    start : ndarray of shape (n, n_topics)
        The first γ.
    n_iter : int
        Largest number of iterations.
    tol : float
        A document ends when the mean change of its γ is smaller.

    Returns
    -------
    gamma : ndarray of shape (n, n_topics)
    factors : ndarray of shape (n, n_topics)
        exp{ψ(γ) − t}, with 0 for topics that have left.
    tops : ndarray of shape (n,)
        t, which is 0 unless all exp ψ(γ) of the document would underflow.
    """
    n, k = len(entries.counts), len(alpha)
    dtype, width = entries.rows.dtype, -(-k // _LANES) * _LANES
    share, most = FEW_SINGLE if dtype.itemsize == 4 else FEW
    cut = np.maximum(np.minimum(share * alpha**2, most), SHARE_OF_TOLERANCE * tol)
    base = alpha.astype(dtype)
    current = start.astype(dtype)
    e = np.empty_like(current)
    gamma, factors, tops = np.empty((n, k)), np.empty((n, k), dtype), np.zeros(n)
    # The mean of γ stays, and its largest entry is no smaller.
    vanish = psi(start.mean(axis=1)) < np.log(_FAR_FROM_ZERO[dtype.itemsize])
    light = vanish if vanish.any() else None
    kept, has_left, some_have_left = np.ones((n, k), bool), np.zeros(n, bool), False
    active, going_on = np.arange(n), np.ones(n, bool)
    if n_iter == 0:
        gamma[:] = current
        factors[:], tops[:] = _weights(current, light)
    for left in range(n_iter - 1, -1, -1):
        if light is None:
            psi(current, out=e)
            np.exp(e, out=e)
        else:
            e = _weights(current, light)[0]
        if some_have_left:
            e *= kept
        found = entries.divided(e)
        found *= e
        new = found + base
        current -= new
        done = going_on & (np.add.reduce(np.abs(current, out=current), axis=1) < tol * k)
        current = new
        if width >= 2 * _LANES and n_iter - left > 2:
            few = found <= cut
            n_kept = k - np.add.reduce(few, axis=1)
            if 2 * n_kept.min() <= width:
                after = -(-n_kept // _LANES) * _LANES
                leave = repays(left, width, after) & ~done & ~has_left & (n_kept > 0)
                kept[leave] = ~few[leave]
                has_left |= leave
                current = np.where(kept, current, base)
                some_have_left = bool(has_left.any())
        if left == 0:
            done = going_on
        elif not done.any():
            continue
        elif some_have_left:
            # Topics that have left may have tokens by now.
            e = _weights(current, light)[0]
            others = ~kept & ~(entries.divided(e) * e <= 10.0 * cut)
            back = done & others.any(axis=1)
            kept[back] = True
            done &= ~back
        gamma[active[done]] = current[done]
        last, tops[active[done]] = _weights(current[done], None if light is None else light[done])
        factors[active[done]] = last * kept[done]
        going_on = going_on & ~done
        n_left = np.count_nonzero(going_on)
        if n_left == 0:
            break
        if n_left <= _GOING_ON * len(active):
            entries, current, kept = entries.take(going_on), current[going_on], kept[going_on]
            light = None if light is None else light[going_on]
            has_left, active, going_on = has_left[going_on], active[going_on], going_on[going_on]
            e = np.empty_like(current)
    return gamma, factors, tops


def _weights(gamma: np.ndarray, light: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """Return exp{ψ(γ) − t} of documents, and t, which is the largest ψ(γ) of the ``light`` ones."""
    if light is None:
        return np.exp(psi(gamma)), 0.0
    logs = psi(gamma.astype(np.float64))
    tops = np.where(light, logs.max(axis=1), 0.0)
    return np.exp(logs - tops[:, None]).astype(gamma.dtype), tops
