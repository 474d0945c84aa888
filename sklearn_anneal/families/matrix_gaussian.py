"""The Gaussian distribution of a matrix whose columns share a covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg.lapack import dpotrs

from ._base import Family, Natural
from ._divergence import STRONG, log1p_excess
from ._structure import Structure, get_structure, inverse_of_root, log_det_of_root

_FULL: Structure = get_structure("full", ("full",), "structure")


@dataclass(frozen=True)
class MatrixGaussian(Family):
    """The Gaussian distribution of a matrix of K rows and D columns, with one precision P (K, K).

    The columns are independent vectors of length K with the common precision P and the means M
    (K, D). As they share parameters, all of them are one leading row of shape (). The natural
    parameters are ``precision``, P (K, K), and ``natural_mean``, H = P M (K, D). Their base is 0,
    and t = (-x x^T / 2, x). The standard parameters are ``mean`` (K, D) and ``covariance`` (K, K).
    A draw has the key ``value`` (K, D).

    Raises
    ------
    numpy.linalg.LinAlgError
        Raised by the methods, except ``valid``, if the precision is not positive definite.
    """

    keys: ClassVar[tuple[str, ...]] = ("precision", "natural_mean")

    def base(self, natural: Natural) -> Natural:
        """Return 0 for both arrays."""
        return {"precision": np.zeros(()), "natural_mean": np.zeros(())}

    def expectations(self, natural: Natural) -> Natural:
        """Return (-E[x x^T] / 2, E[x]) under the keys of the natural arrays."""
        standard = self.to_standard(natural)
        mean = standard["mean"]
        second = mean.shape[1] * standard["covariance"] + mean @ mean.T
        return {"precision": -0.5 * second, "natural_mean": mean}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return (tr H^T P^{-1} H - D log|P| + K D log 2 pi) / 2, of shape (), in nats."""
        natural_mean = natural["natural_mean"]
        root, mean = self.root_and_mean(natural)
        n_columns = mean.shape[1]
        quadratic, log_det = (natural_mean * mean).sum(), log_det_of_root(root)
        return 0.5 * (quadratic - n_columns * log_det + natural_mean.size * np.log(2.0 * np.pi))

    def entropy(self, natural: Natural) -> float:
        """Return the differential entropy in nats, which does not depend on the mean."""
        n_rows, n_columns = natural["natural_mean"].shape
        log_det = float(_FULL.log_det(natural["precision"], n_rows))
        return 0.5 * n_columns * (n_rows * (1.0 + np.log(2.0 * np.pi)) - log_det)

    def kl(self, q: Natural, p: Natural) -> float:
        """Return KL(q || p) in nats.

        It is a sum of squares of differences of means, and of a function of the precisions alone.
        The log-normalisers, which have the squares of the means, would cancel.
        """
        root_of_p, mean_of_p = self.root_and_mean(p)
        if (p["natural_mean"] * mean_of_p).sum() > STRONG:
            return float(self._divergence(q, p))
        root, mean = self.root_and_mean(q)
        shift = mean - mean_of_p
        n_rows, n_columns = shift.shape
        log_det = log_det_of_root(root) - log_det_of_root(root_of_p)
        excess = (p["precision"] * inverse_of_root(root)).sum() - n_rows + log_det
        return float(0.5 * (n_columns * excess + (shift * (p["precision"] @ shift)).sum()))

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw the matrix once."""
        root, mean = self.root_and_mean(natural)
        return {"value": mean + np.linalg.solve(root.T, rng.standard_normal(mean.shape))}

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``mean`` (K, D) and ``covariance`` (K, K)."""
        root, mean = self.root_and_mean(natural)
        return {"mean": mean, "covariance": inverse_of_root(root)}

    def root_and_mean(self, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Return the Cholesky factor of P, (K, K), and the mean P^{-1} H, (K, D)."""
        root = np.linalg.cholesky(natural["precision"])
        # A product with the covariance would be wrong in all columns of an ill-conditioned P, and
        # not only along the directions that P hardly determines.
        mean, _ = dpotrs(root, natural["natural_mean"], lower=True)
        return root, mean

    def from_standard(self, mean: np.ndarray, covariance: np.ndarray) -> Natural:
        """Return the natural parameters of `mean` (K, D) and `covariance` (K, K)."""
        precision = _FULL.inverse(np.asarray(covariance, dtype=float))
        return {"precision": precision, "natural_mean": precision @ np.asarray(mean, dtype=float)}

    def _inside(self, natural: Natural) -> np.ndarray:
        finite = np.isfinite(natural["natural_mean"]).all()
        return _FULL.positive(natural["precision"]) & finite

    def _strength(self, natural: Natural) -> np.ndarray:
        return (natural["natural_mean"] * self.root_and_mean(natural)[1]).sum()

    def _divergence(self, q: Natural, p: Natural) -> np.ndarray:
        shift = self.root_and_mean(q)[1] - self.root_and_mean(p)[1]
        n_rows, n_columns = shift.shape
        r = _FULL.relative(p["precision"] - q["precision"], q["precision"], n_rows)
        distance = (shift * (p["precision"] @ shift)).sum()
        return 0.5 * (n_columns * log1p_excess(r).sum() + distance)

    def _sizes(self, natural: Natural, reference: Natural) -> tuple[np.ndarray, ...]:
        return (_FULL.smallest(natural["precision"], reference["precision"]),)
