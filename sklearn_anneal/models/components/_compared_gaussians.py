"""How Gaussian components are compared: where they are, and what pairs would gain as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...families import Natural
from ...families.wishart import Precisions

if TYPE_CHECKING:
    from ._moments import Summary
    from .gaussian import GaussianComponents


def coordinates(components: GaussianComponents, q: Natural, summary: Summary) -> np.ndarray:
    """Return the coordinates of the components in units of the spread of each column.

    They are the means and, unless the components share it, the covariance. A variance that all
    columns have in common is in units of their mean variance.
    """
    standard = components.standard(q)
    variance = summary.variance
    units = np.sqrt(np.where(variance > 0, variance, 1.0))
    parts = [standard["mean"] / units]
    if not components.structure.shared:
        scale = components.covariances(standard["inverse_scale"], standard["dof"])
        of_columns = [np.mean(variance), units**2, np.outer(units, units)][scale.ndim - 1]
        scale = scale / np.maximum(of_columns, 1e-300)
        parts.append(scale.reshape(len(scale), -1))
    return np.hstack(parts)


def tied_merge_gains(
    components: GaussianComponents, q: Natural, prior: Natural, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """Return the gain of the bound from the means of pairs that become one, in nats.

    The shared precision matrix stays at its expectation. Given it, the log normaliser of a mean
    with the precision P and the natural mean η is (ηᵀ P⁻¹ η − log|P|) / 2. ``i`` and ``j`` are the
    numbers of the components of the pairs, and have the shape (n_pairs,), as the result has.
    """
    _, _, precision, _ = components.moments(q)
    d = components.n_features
    matrix = np.asarray(
        precision.matrices if isinstance(precision, Precisions) else precision
    ).reshape(d, d)
    if components.joint:
        scales = [natural["mean_precision"][:, None, None] for natural in (q, prior)]
        own, rest = (scale * matrix for scale in scales)
        naturals = [natural["mean_natural"] @ matrix for natural in (q, prior)]
    else:
        own, rest = q["mean_precision"], prior["mean_precision"]
        naturals = [q["mean_natural"], prior["mean_natural"]]

    def normalizer(precisions: np.ndarray, natural: np.ndarray) -> np.ndarray:
        mean = np.linalg.solve(precisions, natural[:, :, None])[:, :, 0]
        found: np.ndarray = (natural * mean).sum(axis=1) - np.linalg.slogdet(precisions)[1]
        return 0.5 * found

    each = normalizer(own, naturals[0]) - normalizer(rest, naturals[1])
    both = own[i] + own[j] - rest[j], naturals[0][i] + naturals[0][j] - naturals[1][j]
    merged = normalizer(*both) - normalizer(rest[i], naturals[1][i])
    return merged - each[i] - each[j]
