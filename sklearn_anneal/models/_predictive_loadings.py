"""Lower bounds on log predictive densities of rows that are sums of uncertain loadings.

The bound of a row under the fit, E log p(x, u | W) + H[q(u)], averages the log density over q(W),
although the log predictive density is that of an average over W. It is lower by half a nat for each
loading that a row could change much, as if the row paid for all that is not known of W. A tighter
bound lets each column answer to the row: its loadings w have, in the place of q(w), the posterior
that the row gives them if its factors are at their means, less the divergence of this from q(w).
If the factors are certain, that is the log predictive density itself, in which a column has the
variance 1 + uᵀ Σ u. No column has to answer, so that the bound is never the lower one of the two.
"""

from __future__ import annotations

import numpy as np


def gains_of_answers(
    rows: np.ndarray,
    observed: np.ndarray | None,
    factors: np.ndarray,
    spread: np.ndarray,
    means: np.ndarray,
    covariance: np.ndarray,
) -> np.ndarray:
    """Return by how much the bounds of rows rise if loadings answer to each row alone.

    With u ~ (m, V), w ~ N(w̄, Σ), r = x − w̄ᵀ m, a = Σ m, c = mᵀ a and t = 1 / (1 + c), the answer
    of a column to a row is N(w̄ + t r a, Σ − t a aᵀ), and the gain is
    (c − log(1 + c)) / 2 + r² c t / 2 − t r aᵀ V w̄ + aᵀ V a t (1 − t r²) / 2, or 0 if that is more.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Rows in units of the noise.
    observed : ndarray of shape (n_rows, n_features) or None
        1 where a cell is observed, and 0 where it is missing.
    factors : ndarray of shape (n_rows, n_components)
        The means m of the factors.
    spread : ndarray of shape (n_rows, n_components) or (n_rows or 1, n_components, n_components)
        Their variances, if they are independent, or their covariances V.
    means : ndarray of shape (n_components, n_features)
        The means w̄ of the loadings, in units of the noise.
    covariance : ndarray of shape (n_components, n_components) or (n_features, …)
        Their covariance Σ in each column, in the same units.

    Returns
    -------
    gains : ndarray of shape (n_rows,)
        In nats, not negative.
    """
    # Vectors a of each row, or of each cell: (n_rows, 1 or n_features, n_components).
    shape = len(rows), -1, len(means)
    a = np.tensordot(factors, covariance, axes=(1, -1)).reshape(shape)
    along = a * spread[:, None] if spread.ndim == 2 else a @ spread
    c, own = (a @ factors[:, :, None])[..., 0], (a * along).sum(axis=-1)
    shared = covariance.ndim == 2
    across = along[:, 0] @ means if shared else (along * means.T).sum(axis=-1)
    left, t = rows - factors @ means, 1.0 / (1.0 + c)
    found = 0.5 * (c - np.log1p(c) + left**2 * c * t + own * t * (1.0 - t * left**2))
    found = np.maximum(found - t * left * across, 0.0)
    return np.asarray((found if observed is None else found * observed).sum(axis=1))
