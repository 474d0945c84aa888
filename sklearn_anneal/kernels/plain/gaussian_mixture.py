"""Log densities of Gaussians as one matrix product."""

from __future__ import annotations

import numpy as np

FULL, DIAGONAL, SPHERICAL = 0, 1, 2


def _features(x: np.ndarray, center: np.ndarray, kind: int, out: np.ndarray) -> None:
    d = len(center)
    linear = out[-d - 1 : -1]
    np.subtract(x.T, center[:, None], out=linear, dtype=np.float64)
    out[-1] = 1.0
    if kind == FULL:
        start = 0
        for i in range(d):
            stop = start + d - i
            np.multiply(linear[i], linear[i:], out=out[start:stop])
            start = stop
    elif kind == DIAGONAL:
        np.multiply(linear, linear, out=out[:d])
    else:
        np.einsum("dn,dn->n", linear, linear, out=out[0])


def log_joint(
    x: np.ndarray,
    center: np.ndarray,
    kind: int,
    coefficients: np.ndarray,
    shared: np.ndarray,
    block: int,
    out: np.ndarray,
) -> None:
    """Write ``coefficients @ f(x)`` of every row to ``out``, as the compiled kernel does.

    Rows are so few that the features of all of them stay in the caches, whatever ``block`` is.
    """
    n_shared = shared.shape[1]
    features = np.empty((n_shared + coefficients.shape[1], len(x)))
    _features(x, center, kind, features)
    joint = coefficients @ features[n_shared:]
    if n_shared > 0:
        joint += shared @ features[:n_shared]
    out[:] = joint.T
