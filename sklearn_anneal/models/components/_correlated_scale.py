"""The prior of a covariance prior whose entries outside the diagonal are learned.

Components share V, the inverse scale of the Wishart prior of their precisions. A matrix V that
maximised the bound would repeat the data where rows are few for their columns. So V is a random
matrix, V ~ Wishart(η, mean diag(λ)), with q(V) = Wishart(a, A⁻¹), where a = η + Σ_k ν₀. E V takes
the place of V everywhere, and the bound loses −½ Σ_k ν₀ κ(a) + KL(q(V) ‖ p(V)), where κ(a) is
E log|V| − log|E V|. The best λ is the diagonal of E V. The loss then depends on this matrix through
log|R| alone, where R has its correlations: it is

    h(a) − h(η) − η/2 log|R|,  h(x) = x D/2 (log(x/2) − 1) − log Γ_D(x/2).

It is 0 if E V is diagonal, where η is infinite. Its derivative by log|R| is −η/2 at the best η.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, psi

from ...families._empirical_bayes import maximizer, trigamma
from ...families._structure import (
    inverse_of_lower,
    log_det_of_root,
    lower_root,
    product_of_lower,
)

# η − D + 1 is between these bounds. With the larger one, V is as good as diagonal.
_SMALLEST, _LARGEST = 1e-6, 1e8
# The fixed point of a matrix and its diagonal is sought in so many steps; each raises the bound.
_STEPS = 3


def log_correlation(scale: np.ndarray) -> float:
    """Return log|R| of the correlations R of a matrix, which is 0 if the matrix is diagonal."""
    variances = np.diagonal(scale)
    if np.count_nonzero(scale) == np.count_nonzero(variances):
        return 0.0
    # Products of two variances can overflow.
    spread = np.sqrt(variances)
    return float(log_det_of_root(lower_root(scale / spread / spread[:, None])))


def kappa(a: float, n_features: int) -> tuple[float, float]:
    """Return κ(a) = E log|V| − log|E V| of a Wishart distribution, and its derivative."""
    halves = 0.5 * (a - np.arange(n_features))
    value = psi(halves).sum() + n_features * np.log(2.0 / a)
    return float(value), 0.5 * float(trigamma(halves).sum()) - n_features / a


def least_loss(
    log_det: float, total_dof: float, n_features: int, start: float = np.inf
) -> tuple[float, float]:
    """Return the loss in nats and the best η, given log|R|, Σ_k ν₀ and D.

    The derivative by η is 0 where κ(a) − κ(η) = −log|R|. The search begins at ``start``, unless
    this is infinite.
    """
    if log_det == 0.0:
        return 0.0, np.inf
    d = n_features

    def slope(excess: float) -> tuple[float, float]:
        eta = d - 1.0 + excess
        after, before = kappa(eta + total_dof, d), kappa(eta, d)
        return after[0] - before[0] + log_det, after[1] - before[1]

    excess = start - (d - 1.0) if start < np.inf else float(d)
    eta = d - 1.0 + maximizer(slope, _SMALLEST, _LARGEST, excess)
    a = eta + total_dof
    logs = [gammaln(0.5 * (x - np.arange(d))).sum() for x in (a, eta)]
    own = [0.5 * x * d * (np.log(0.5 * x) - 1.0) for x in (a, eta)]
    return float(own[0] - logs[0] - own[1] + logs[1] - 0.5 * eta * log_det), eta


def learned_matrix(precision: np.ndarray, scale: np.ndarray, dof: float, eta: float) -> np.ndarray:
    """Return E V after a step for fixed q(Λ), given Σ_k s_k E Λ_k and Σ_k ν₀.

    It maximises Σ_k ν₀ log|V| − tr(V Σ_k s_k E Λ_k) + η log|R|, halved. As −log V_jj is convex, its
    tangent at the diagonal now takes its place, which is never higher.
    """
    own, root = np.diagonal(scale), np.empty((0, 0))
    for _ in range(_STEPS):
        rest = precision.copy()
        np.einsum("ii->i", rest)[:] += eta / own
        # The squares of the inverse factor have the diagonal of the inverse matrix as their sums.
        root = inverse_of_lower(lower_root(rest, overwrite=True), overwrite=True)
        own = (dof + eta) * np.einsum("ij,ij->j", root, root)
    found = product_of_lower(root, overwrite=True)
    found *= dof + eta
    return found
