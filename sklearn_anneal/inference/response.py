"""Covariances of parameters by linear response, beyond those of q.

A mean-field q is too narrow: it has the variance of a parameter given all other parameters and all
latent variables. If p(β) is multiplied by exp(tᵀβ), the exact posterior mean changes by its
covariance times t. The means of q change too, and their derivative is a covariance that includes
what latent variables and other parameters leave open [1]_. Where q is narrow, it is the inverse of
the observed information.

A pass maps natural parameters to new ones, λ → Φ(λ), and a tilt adds t to the natural mean. At the
fixed point λ = Φ(λ) + t, so that dλ = (I − J)⁻¹ dt with the Jacobian J of Φ. Products with J are
differences of passes, and a Krylov method needs few of them, as all tilts share its directions.

References
----------
.. [1] Giordano, Broderick, Jordan (2018). Covariances, robustness, and variational Bayes. JMLR 19.
.. [2] Meng, Rubin (1991). Using EM to obtain asymptotic variance-covariance matrices. JASA 86.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

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
# The share of a product beside those of other directions below which it is rounding.
_LOST = 1e-10


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
    sizes = {name: float(np.abs(value).max(initial=0.0)) for name, value in q.items()}
    # Parameters that are zero have no size of their own.
    sizes = {name: size if size > 1e-100 else 1.0 for name, size in sizes.items()}
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

    n, place = q[key].size, sum(q[name].size for name in takewhile(key.__ne__, q))
    solver = Recycling(without_echo, slice(place, place + n))
    found = []
    for i in range(n):
        tilt = {name: np.zeros(value.shape) for name, value in q.items()}
        tilt[key].flat[i] = 1.0
        found.append(sizes[key] * solver.solved(flat(tilt)).reshape(q[key].shape))
    return np.reshape(found, (n, *q[key].shape))


class Recycling:
    """A solver of A x = b for one b after another, by generalised conjugate residuals.

    Each b begins with the directions that those before it have left, as the solutions of several
    tilts have much in common. Of a direction, A p is kept whole, and p where x is needed alone.

    Parameters
    ----------
    product : callable
        It returns A v, at the cost of a pass.
    wanted : slice
        The entries of x that are returned.

    References
    ----------
    Eisenstat, Elman, Schultz (1983). Variational iterative methods for nonsymmetric systems of
    linear equations. SIAM Journal on Numerical Analysis 20.
    """

    def __init__(self, product: Callable[[np.ndarray], np.ndarray], wanted: slice):
        self._product, self._wanted = product, wanted
        self._directions: list[np.ndarray] = []
        # Orthonormal.
        self._products: list[np.ndarray] = []

    def solved(self, b: np.ndarray) -> np.ndarray:
        """Return the wanted entries of x."""
        size, rest = float(np.linalg.norm(b)), b.copy()
        x = np.zeros(len(b[self._wanted]))
        for direction, product in zip(self._directions, self._products, strict=True):
            x += self._step(rest, direction, product)
        for _ in range(_MOST_PASSES):
            if np.linalg.norm(rest) <= _TOLERANCE * size:
                break
            direction, product = rest[self._wanted].copy(), self._product(rest)
            length = float(np.linalg.norm(product))
            # Twice, because the first differences of near vectors have lost digits.
            for _ in range(2):
                for p, c in zip(self._directions, self._products, strict=True):
                    share = float(c @ product)
                    direction -= share * p
                    product = product - share * c
            left = float(np.linalg.norm(product))
            if left <= _LOST * length:
                break
            self._directions.append(direction / left)
            self._products.append(product / left)
            x += self._step(rest, self._directions[-1], self._products[-1])
        return x

    @staticmethod
    def _step(rest: np.ndarray, direction: np.ndarray, product: np.ndarray) -> np.ndarray:
        """Take the part of a direction out of the residual, and return what it adds to x."""
        share = float(product @ rest)
        rest -= share * product
        return share * direction
