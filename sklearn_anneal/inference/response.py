"""Covariances of parameters by linear response, beyond those of q.

A mean-field q is too narrow: it has the variance of a parameter given all other parameters and all
latent variables. If p(β) is multiplied by exp(tᵀβ), the exact posterior mean changes by its
covariance times t. The means of q change too, and their derivative is a covariance that includes
what latent variables and other parameters leave open [1]_. Where q is narrow, it is the inverse of
the observed information.

A pass maps natural parameters to new ones, λ → Φ(λ), and a tilt adds t to the natural mean. At the
fixed point λ = Φ(λ) + t, so that dλ = (I − J)⁻¹ dt with the Jacobian J of Φ. Products with J are
differences of passes, and a Krylov method needs a few of them for each tilt.

References
----------
.. [1] Giordano, Broderick, Jordan (2018). Covariances, robustness, and variational Bayes. JMLR 19.
.. [2] Meng, Rubin (1991). Using EM to obtain asymptotic variance-covariance matrices. JASA 86.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..annealing._base import Context
from ..data.units import Units
from ..families import Natural, settled
from ..parallel.workers import Workers
from . import visits
from .visits import PLAIN

# The size of a step, in units of the largest parameter of each array, by which J is differenced.
_STEP = 1e-6
# The relative residual at which a solution is close enough, and the largest number of passes.
_TOLERANCE, _MOST_PASSES = 1e-7, 200


def mapped(ctx: Context, q: Natural, units: Units, workers: Workers) -> Natural:
    """Return Φ(λ), the natural parameters after one plain pass from ``q``."""
    trial = replace(ctx, q=q, scale=1.0)
    visited = visits.visit(trial, PLAIN, units, workers, keep=False)
    for i, block in enumerate(ctx.model.blocks):
        if block.refresh and i > 0:
            visited = visits.visit(trial, PLAIN, units, workers, keep=False, block=block)
        found = ctx.model.block_statistics(block, visited.step.statistics, trial.q)
        trial.q = trial.q | {key: ctx.prior[key] + found[key] for key in block.keys}
    return settled(trial.q)


def response(ctx: Context, key: str, units: Units, workers: Workers) -> np.ndarray:
    """Return the derivatives of natural parameters by tilts of those under one key.

    Parameters
    ----------
    ctx : Context
        The context of a fit that has converged. Hyperparameters stay as they are.
    key : str
        The key of natural parameters that multiply β itself.
    units : Units
        The data of the fit.
    workers : Workers

    Returns
    -------
    derivatives : ndarray of shape (n_entries, …)
        One array of the shape of ``ctx.q[key]`` for each of its entries, which was tilted.
    """
    q = ctx.q
    sizes = {name: max(float(np.abs(value).max(initial=0.0)), 1e-300) for name, value in q.items()}
    before = mapped(ctx, q, units, workers)

    def flat(natural: Natural) -> np.ndarray:
        return np.concatenate([np.ravel(natural[name]) / sizes[name] for name in q])

    def natural(vector: np.ndarray) -> Natural:
        ends = np.cumsum([value.size for value in q.values()])[:-1]
        parts = zip(q, np.split(vector, ends), strict=True)
        return {name: sizes[name] * part.reshape(q[name].shape) for name, part in parts}

    def without_echo(vector: np.ndarray) -> np.ndarray:
        """Return (I − J) v."""
        length = float(np.abs(vector).max(initial=0.0))
        if length == 0.0:
            return vector
        step = _STEP / length
        moved = {name: q[name] + step * part for name, part in natural(vector).items()}
        after = mapped(ctx, moved, units, workers)
        echo = flat({name: (after[name] - before[name]) / step for name in q})
        return np.asarray(vector - echo)

    found = []
    for i in range(q[key].size):
        tilt = {name: np.zeros(value.shape) for name, value in q.items()}
        tilt[key].flat[i] = 1.0
        found.append(natural(solved(without_echo, flat(tilt)))[key])
    return np.array(found)


def solved(product: Callable[[np.ndarray], np.ndarray], b: np.ndarray) -> np.ndarray:
    """Return x with A x = b by the generalised minimal residual method (Saad and Schultz, 1986).

    ``product`` returns A v.
    """
    size = float(np.linalg.norm(b))
    basis, columns = [b / size], np.zeros((1, 0))
    for n in range(min(_MOST_PASSES, len(b))):
        w = product(basis[n])
        projections = np.zeros(n + 2)
        for i, v in enumerate(basis):
            projections[i] = w @ v
            w = w - projections[i] * v
        projections[-1] = length = float(np.linalg.norm(w))
        columns = np.column_stack([np.vstack([columns, np.zeros(n)]), projections])
        target = np.append(size, np.zeros(n + 1))
        y = np.linalg.lstsq(columns, target, rcond=None)[0]
        if np.linalg.norm(columns @ y - target) <= _TOLERANCE * size or length == 0.0:
            break
        basis.append(w / length)
    return np.asarray(np.column_stack(basis[: len(y)]) @ y)
