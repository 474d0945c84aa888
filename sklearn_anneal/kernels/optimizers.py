"""Steps of optimizers in one loop over the parameters, which are many."""

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
