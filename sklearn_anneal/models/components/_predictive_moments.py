"""Standard deviations of mixtures of which some components have none.

A Student-t distribution of at most two degrees of freedom has no variance, and so has none the
mixture to which it belongs, however small its share is. Slightly above two, as they are in
components without data, the variance is that of numbers that hardly ever occur. Where there are
fewer than 2.1 degrees of freedom, the standard deviations that predictions return are therefore
those of the other components, as long as these have half of the share. If they have less, half the
width of the central 68 % interval takes the place of such a standard deviation. For a Gaussian
distribution the two are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

# Components without a variance are left out if the others have at least this share.
_SHARE_OF_OTHERS = 0.5
# Below these degrees of freedom the variance of a Student-t distribution does not exist, or is more
# than twenty times its squared scale.
_SMALLEST_DOF = 2.1


class CellMoments(NamedTuple):
    """The moments of the cells of a new row, given its component."""

    mean: np.ndarray  # (n_components, n_features)
    # The square of half the width of an interval where there is no variance,
    # (n_components, n_features).
    variance: np.ndarray
    # Whether there is a variance that counts, (n_components, n_features); None if always.
    exists: np.ndarray | None = None


def student_t_spreads(dof: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the spreads of standard Student-t distributions, and which of them are variances.

    They are the variances ν / (ν − 2), or the squares of half the widths of the central intervals
    that have the probability of those between −1 and 1 of a standard Gaussian. Both results have
    the shape of the degrees of freedom, ``dof``.
    """
    exists = np.asarray(dof >= _SMALLEST_DOF)
    spreads = np.divide(dof, dof - 2.0, out=np.empty(exists.shape), where=exists)
    spreads[~exists] = stdtrit(dof[~exists], ndtr(1.0)) ** 2
    return spreads, exists


def kept_shares(shares: np.ndarray, exists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave components without a variance out, where the others have enough of the share.

    ``exists`` has the shape of the ``shares``, (n_rows, n_components). The results are the shares
    among the components that are kept, which are all where too few have a variance, and the mask
    (n_rows,) of the rows in which not all of them are kept.
    """
    others = np.where(exists, shares, 0.0)
    total = others.sum(axis=1)
    fewer = (others < shares).any(axis=1) & (total >= _SHARE_OF_OTHERS)
    divisor = np.where(fewer, total, 1.0)[:, None]
    return np.where(fewer[:, None], others / divisor, shares), fewer


def deviations(shares: np.ndarray, moments: CellMoments) -> np.ndarray:
    """Return the standard deviations of the cells of rows, of shape (n_rows, n_features).

    ``shares`` (n_rows, n_components) has the probabilities of the components.
    """
    result = np.empty((len(shares), moments.mean.shape[1]))
    everywhere = moments.exists is None or moments.exists.all()
    for d in range(result.shape[1]):
        kept, mean, variance = shares, moments.mean[:, d], moments.variance[:, d]
        if not everywhere:
            assert moments.exists is not None
            kept, _ = kept_shares(shares, np.broadcast_to(moments.exists[:, d], shares.shape))
        # Deviations are measured from the mean before they are squared, so that large means do not
        # take the digits of small variances.
        with np.errstate(over="ignore"):
            squares = (mean - (kept @ mean)[:, None]) ** 2 + variance
        # A component that a row does not have contributes nothing, be its variance infinite.
        terms = np.multiply(kept, squares, out=np.zeros(kept.shape), where=kept > 0)
        result[:, d] = np.sqrt(terms.sum(axis=1))
    return result
