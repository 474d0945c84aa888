"""Steps of optimizers, and steps with momentum, in one loop over the parameters."""

from __future__ import annotations

import numpy as np

from ._compile import kernel


@kernel("values vector vector float float float float float out1 out1 out_values")
def adam(gradient, means, squares, rate, b1, b2, correction, epsilon, new_means, new_squares, out):
    """Write the new moments of Adam and the change of the parameters, all of shape (n,).

    The change is ``rate`` m / (√(``correction`` v) + ε), for the new moments m and v.
    """
    for j in range(len(gradient)):
        g = np.float64(gradient[j])
        m = b1 * means[j] + (1.0 - b1) * g
        v = b2 * squares[j] + (1.0 - b2) * (g * g)
        new_means[j] = m
        new_squares[j] = v
        out[j] = rate * m / (np.sqrt(correction * v) + epsilon)


@kernel("values vector vector float out1", dtypes=("float64",))
def extended(value, last, prior, share, found):
    """Go beyond sums of statistics, of which half of what they add to their prior remains at least.

    Parameters
    ----------
    value, last, prior : arrays of shape (n,)
        The sums now, those before, and those of the prior.
    share : float
        How far the result goes on, as a share of the change from ``last`` to ``value``.
    found : array of shape (n,)
    """
    for i in range(value.shape[0]):
        moved = value[i] + share * (value[i] - last[i])
        found[i] = max(moved, 0.5 * (prior[i] + value[i]))


@kernel("values vector float out1 out1", dtypes=("float64",))
def displaced(value, change, margin, found, inside):
    """Add changes to positive numbers, and say whether all that follow are far enough from zero.

    Parameters
    ----------
    value, change : arrays of shape (n,)
    margin : float
        Numbers may not become smaller than this share of themselves.
    found : array of shape (n,)
    inside : array of shape (1,)
        Receives 1 if all of them are positive, finite and not too small, and 0 otherwise.
    """
    inside[0] = 1.0
    for i in range(value.shape[0]):
        found[i] = value[i] + change[i]
        if not (found[i] > 0.0 and margin * value[i] < found[i] < np.inf):
            inside[0] = 0.0
