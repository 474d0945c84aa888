"""The scales of activations, weights and components of gamma-process factorisation, found at once.

Counts depend on h_nk θ_k w_kv, and their division does not change if one factor of a component is
multiplied by a number and another one divided by it. Only the priors, all of which have a given
mean, say which scales are best. Updates of one factor after another approach them slowly: with n
counts of a component in N rows, Σ_n E h moves by the share bN / (bN + n) of its way in each pass.

Given the shapes of q and the division of the counts, let x = Σ_n E h, y = Σ_v E w and z = E θ of a
component. The lower bound depends on them as

    (bN + n) log x − b x + (aV + n) log y − a y + (α/K + n) log z − α c z − x y z,

which is highest where b (x − N) = a (y − V) = α (c z − 1/K) = n − x y z. This number m is the zero
of an increasing function of one variable. Where cells are missing, only the share r of x y z that
observed cells have takes its place; r does not change with the scales.

Changes of variables that leave the likelihood as it is make coordinate ascent faster in other
models as well (Qi and Jaakkola 2007, Parameter expanded variational Bayesian methods; for sampling,
Liu and Wu 1999).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..families import Natural
from ._count_visits import kernels

if TYPE_CHECKING:
    from .gamma_process_nmf import GammaProcessNMF


# Counts beside a prior of so many times their number have lost half of their digits. Scales stay.
_STRONGEST_PRIOR = 1e8


def with_best_scales(
    model: GammaProcessNMF, q: Natural, prior: Natural, n_rows: float, observed: np.ndarray
) -> tuple[Natural, np.ndarray | None]:
    """Return q with the best scales of weights and components, and Σ_n E h of activations.

    Shapes stay as they are. Local steps that go on from the last activations find their scale given
    these. The sums are None where scales stay.

    Parameters
    ----------
    model : GammaProcessNMF
        The model with the priors for which the scales are best.
    q : dict of ndarray
    prior : dict of ndarray
        The prior that the shapes of q have besides counts.
    n_rows : float
        N, the total weight of all rows.
    observed : ndarray of shape (n_components,)
        r, the share of observed cells.
    """
    a, shapes = model.component_prior, q["components_shape"].sum(axis=1)
    of_prior = model.n_columns * float(prior["components_shape"][0, 0])
    counts = np.maximum(shapes - of_prior, 0.0)
    if of_prior > _STRONGEST_PRIOR * max(counts.max(), 1.0):
        return q, None
    scales = np.empty((3, model.n_components))
    kernels().joint_scales(
        counts, observed, n_rows, model.n_columns, model.activation_prior, a, model.concentration,
        model.scale, scales,
    )  # fmt: skip
    if not (scales.min() > 0.0 and scales.max() < np.inf):
        return q, None
    rate = q["components_rate"]
    # The rates of columns keep their ratios.
    totals = shapes if rate.shape[1] == 1 else (q["components_shape"] / rate).sum(axis=1)
    rate = (totals / scales[0])[:, None] * (1.0 if rate.shape[1] == 1 else rate)
    found = {
        **q,
        "components_rate": rate,
        "weights_rate": q["weights_shape"] / scales[1],
    }
    return found, scales[2]
