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

from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, psi

from ...families._empirical_bayes import maximizer, trigamma
from ...families._structure import (
    diagonals_alone,
    inverse_of_lower,
    log_det_of_root,
    lower_root,
    product_of_lower,
)

if TYPE_CHECKING:
    from ._joint_steps import JointStep

# The inverse scale of every component stays above this multiple of the covariance of the data.
# Otherwise components of equal rows could let it shrink towards zero, where the bound is infinite.
SMALLEST_SCALE = 1e-6
# η − D + 1 is between these bounds. With the larger one, V is as good as diagonal.
_SMALLEST, _LARGEST = 1e-6, 1e8
# The fixed point of a matrix and its diagonal is sought in so many steps; each raises the bound.
_STEPS = 3
# A diagonal V gives way to a matrix if the bound is higher after so many steps. This is tried again
# when the value has changed by so many times the difference, and changes in a pass by at most this
# share of that.
_STEPS_OF_START, _CHANGE_OF_TRY, _SHARE_OF_SETTLED = 3, 20.0, 0.1


def log_correlation(scale: np.ndarray) -> float:
    """Return log|R| of the correlations R of a matrix, which is 0 if the matrix is diagonal."""
    variances = np.diagonal(scale)
    if diagonals_alone(scale) is not None:
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


def learn_entries(step: JointStep) -> None:
    """Learn all entries of V, or begin or cease to do so, where the bound is higher then.

    The first matrix is some steps below the one to which they lead. These are broken off if they
    would not reach the value of the diagonal if all of them raised the value as the last one did.
    The longer V has been a matrix, the more seldom the diagonal is tried.
    """
    best, now = step, step.value()
    highest, diagonal = now, step.eta == np.inf
    if diagonal and not _tries_a_matrix(step, now):
        return
    if not diagonal and step.n_alike & (step.n_alike - 1) == 0:
        trial = copy(step)
        if trial.move_to(np.diag(np.diagonal(step.scale))) and trial.value() > highest:
            best, highest = trial, trial.value()
    n_steps, trial, value = 1, copy(step), highest
    if diagonal:
        n_steps, value, trial.eta = _STEPS_OF_START, -np.inf, float(step.components.n_features)
    for left in range(n_steps - 1, -1, -1):
        found, before = _next_matrix(trial, value), value
        if found is None:
            break
        trial, value = found
        if value > highest:
            best, highest = trial, value
        elif left * (value - before) < now - value:
            # Each step raises the value by about half as much as the one before.
            value += 0.5 * (value - before) if left else 0.0
            break
    if diagonal:
        difference = now - value if value > -np.inf else 0.0
        best.tried = (now, difference, now) if best is step else None
    vars(step).update(vars(best))


def _tries_a_matrix(step: JointStep, now: float) -> bool:
    """Return whether to try a matrix in the place of the diagonal, whose value is ``now``.

    A try takes as long as some passes. After one that has failed, the difference of both values
    changes by a small share of the change of either of them. So the next one waits until the
    value has changed by some times the difference, and hardly changes any more in a pass.
    """
    if step.tried is None:
        return True
    at_try, difference, last = step.tried
    step.tried, changed = (at_try, difference, now), abs(now - at_try)
    enough = changed > _CHANGE_OF_TRY * difference
    return enough and abs(now - last) <= _SHARE_OF_SETTLED * changed


def _next_matrix(step: JointStep, value: float) -> tuple[JointStep, float] | None:
    """Return the state after a change of all entries of V and its value, or None if not valid.

    Given q(Λ), the best V is only a part of the way, because q repeats V. Where components are
    alike, this part is 1 − p, with the mean p of the eigenvalues of s_k V (s_k V + S_k)⁻¹,
    which is Σ_k ν₀ / Σ_k (ν₀ + N_k) at the best V. So the way is made longer by this factor, if
    the value is higher then than it is now.
    """
    total, after = float(step.before.sum()), float(step.after.sum())
    precision = np.tensordot(step.size, step.precisions.matrices, axes=1)
    change = learned_matrix(precision, step.scale, total, step.eta) - step.scale
    further = (total + step.eta) / (total * (1.0 - total / after) + step.eta)
    floor = SMALLEST_SCALE / float(step.size.min()) * np.asarray(step.components.reference)
    for factor in (further, 1.0) if value > -np.inf else (1.0,):
        there, scale = copy(step), step.scale + factor * change
        if step.structure.positive(scale - floor) and there.move_to(scale):
            found = there.value()
            if found > value or factor == 1.0:
                return there, found
    return None
