"""Moments of q of the loadings, whose columns share a covariance or have their own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import _packed_gaussians


class Loadings(NamedTuple):
    """Moments of loadings W, in units of the noise."""

    # E w and E w², (n_components, n_features).
    means: np.ndarray
    squares: np.ndarray
    gram: np.ndarray  # E w_d w_dᵀ, summed over the columns, (n_components, n_components)
    # That of every column, (n_components, n_components); None if columns have their own.
    covariance: np.ndarray | None
    columns: _packed_gaussians.Moments | None  # the moments of the columns that have their own

    @classmethod
    def sharing(cls, means: np.ndarray, covariance: np.ndarray) -> Loadings:
        """Return the moments of columns with a common covariance."""
        squares = means**2 + np.diagonal(covariance)[:, None]
        gram = means @ means.T + means.shape[1] * covariance
        return cls(means, squares, gram, covariance, None)

    @classmethod
    def of_columns(cls, precision: np.ndarray, natural_mean: np.ndarray) -> Loadings:
        """Return those of columns with precisions (D, K, K) and natural means (D, K)."""
        k = natural_mean.shape[1]
        found = _packed_gaussians.moments(_packed_gaussians.packed(precision), natural_mean)
        squares = found.second[:, _packed_gaussians.diagonal(k)].T
        gram = _packed_gaussians.symmetric(found.second.sum(axis=0), k)
        return cls(np.ascontiguousarray(found.means.T), squares, gram, None, found)

    def explained(self, second: np.ndarray) -> np.ndarray:
        """Return Σ_kl S_kl E w_k w_l of each column, (n_features,).

        ``second`` is S, (K, K), or has lower triangles, (D, K (K + 1) / 2), if columns have
        covariances of their own.
        """
        if self.columns is None:
            of_means = (self.means * (second @ self.means)).sum(axis=0)
            return np.asarray(of_means + np.sum(second * self.covariance))
        often = _packed_gaussians.multiplicity(len(self.means))
        return np.asarray((self.columns.second * second) @ often)

    def squares_after(self, change: np.ndarray) -> np.ndarray:
        """Return E (B w)_k² after the loadings w became B w, (n_components, n_features).

        ``change`` is B, (n_components, n_components).
        """
        if self.columns is None:
            own = np.sum((change @ self.covariance) * change, axis=1)
            return np.asarray((change @ self.means) ** 2 + own[:, None])
        products = _packed_gaussians.packed(change[:, :, None] * change[:, None, :])
        products *= _packed_gaussians.multiplicity(len(change))
        return np.asarray(products @ self.columns.second.T)

    def kl(self, variance: np.ndarray) -> float:
        """Return KL(q ‖ p) of columns with precisions of their own, for p(w_k) = N(0, v_k), nats.

        It is a sum over columns of differences of precisions and of squared means, in which no
        log-normalisers cancel.
        """
        assert self.columns is not None
        shares = self.squares / variance[:, None] - 1.0 + np.log(variance)[:, None]
        return float(0.5 * (shares.sum() + self.columns.log_det.sum()))
