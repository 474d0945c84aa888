"""The Dirichlet distribution."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, psi

from ._base import Family, Natural
from .gamma import log_standard_gamma


class Dirichlet(Family):
    """Rows of probabilities: ``concentration`` of shape (..., K), base 1, t = log probabilities.

    The standard parameters are the natural ones, ``concentration``. A draw has the keys
    ``log_probabilities`` and ``probabilities``, each of shape (..., K).

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, Eqs. B.16 to B.22.
    """

    keys: ClassVar[tuple[str, ...]] = ("concentration",)

    def base(self, natural: Natural) -> Natural:
        """Return 1, the flat density on the simplex."""
        return {"concentration": np.ones(())}

    def expectations(self, natural: Natural) -> Natural:
        """Return E[log probabilities], of shape (..., K)."""
        concentration = natural["concentration"]
        return {"concentration": psi(concentration) - psi(concentration.sum(-1, keepdims=True))}

    def log_normalizer(self, natural: Natural) -> np.ndarray:
        """Return the log of the multivariate beta function, of shape (...), in nats."""
        concentration = natural["concentration"]
        return gammaln(concentration).sum(-1) - gammaln(concentration.sum(-1))

    def sample(self, natural: Natural, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw every row once, in log space so that concentrations of 1e-3 do not underflow."""
        log_gamma = log_standard_gamma(natural["concentration"], rng)
        log_probabilities = log_gamma - logsumexp(log_gamma, axis=-1, keepdims=True)
        return {
            "log_probabilities": log_probabilities,
            "probabilities": np.exp(log_probabilities),
        }

    def to_standard(self, natural: Natural) -> dict[str, np.ndarray]:
        """Return ``concentration`` of shape (..., K)."""
        return {"concentration": natural["concentration"]}

    def from_standard(self, concentration: np.ndarray) -> Natural:
        """Return the natural parameters of `concentration`, of shape (..., K)."""
        return {"concentration": np.asarray(concentration, dtype=float)}

    def _inside(self, natural: Natural) -> np.ndarray:
        concentration = natural["concentration"]
        return np.asarray(((concentration > 0.0) & np.isfinite(concentration)).all(-1))

    def _sizes(self, natural: Natural) -> tuple[np.ndarray, ...]:
        return (natural["concentration"].min(-1),)
