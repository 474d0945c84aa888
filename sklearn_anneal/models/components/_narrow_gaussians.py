"""Steps of Gaussian components of few columns, each of which is one call of a kernel.

Moments of q, the coefficients of densities, the divergence from the prior and steps of empirical
Bayes are those of :class:`GaussianComponents`, :class:`NormalWishart` and
``_learned_gaussians.py``, where a step on small arrays takes a hundred calls of NumPy.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...families import STRONG, Natural
from ...families.normal_wishart import MOST_COLUMNS, ORDER, in_order, stacked
from .._base import Known, compiled
from ._base import Next
from ._correlated_scale import SMALLEST_SCALE
from ._features import NOTHING, Features, FeatureSums, Terms
from ._learned_gaussians import (
    GRID_OF_STRENGTHS,
    PRECISION_OF_STRENGTH,
    ROWS_OF_DIAGONAL,
    SMALLEST_STRENGTH,
    Sizes,
)

if TYPE_CHECKING:
    from .gaussian import GaussianComponents

kernels = partial(compiled, "normal_wishart")

Narrow = tuple[np.ndarray, None, np.ndarray, np.ndarray]
"""Moments: E μ, None, E Λ and E log|Λ|."""


def is_narrow(components: GaussianComponents) -> bool:
    """Return whether the kernels take these components."""
    c = components
    few = c.n_features <= MOST_COLUMNS and not c.is_wide(c.form)
    return c.joint and few and c.form in ("full", "diag")


def moments(components: GaussianComponents, q: Natural) -> Narrow:
    """Return the moments of q.

    Raises
    ------
    numpy.linalg.LinAlgError
        If an inverse scale is not positive definite.
    """
    precision, log_det = np.empty(q["scatter"].shape), np.empty(components.n_components)
    kernels().moments(*in_order(q), stacked(precision), log_det)
    if not np.isfinite(log_det).all():
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    return q["mean_natural"] / q["mean_precision"][:, None], None, precision, log_det


def features(
    components: GaussianComponents, q: Natural, found: Narrow, log_weights: np.ndarray
) -> Features:
    """Return the coefficients of E log p(x, z = k), given E log π."""
    k, d, layout = components.n_components, components.n_features, components.form
    n_products = d * (d + 1) // 2 if layout == "full" else d
    constants, own = np.empty(k), np.empty((k, n_products + d + 1))
    mean, _, precision, log_det = found
    kernels().coefficients(
        q["mean_precision"],
        mean,
        stacked(precision),
        log_det,
        log_weights,
        components.noise_variance,
        constants,
        own,
    )
    return Features(layout, own, NOTHING, Terms(mean, constants, log_weights))


def statistics(components: GaussianComponents, raw: FeatureSums) -> Natural:
    """Return what rows add to the natural parameters."""
    k, d = components.n_components, components.n_features
    counts, first = np.empty(k), np.empty((k, d))
    scatter = np.empty((k, *(d,) * components.structure.event_ndim))
    kernels().statistics(raw.own, components.reg_covar, counts, first, stacked(scatter))
    return dict(zip(ORDER, (counts, counts, first, scatter), strict=True))


def divergence(
    components: GaussianComponents, q: Natural, prior: Natural, found: Narrow
) -> float | None:
    """Return KL(q(μ, Λ) ‖ p(μ, Λ)) in nats; None if a sum of terms would lose its digits."""
    if not components.shared_scale:
        return None
    mean, _, precision, log_det = found
    scale, factors = components.shared_scale
    result = np.empty(2)
    kernels().divergence(
        q["dof"],
        q["mean_precision"],
        mean,
        stacked(precision),
        log_det,
        prior["dof"],
        prior["mean_precision"],
        prior["mean_natural"] / prior["mean_precision"][:, None],
        stacked(np.ascontiguousarray(scale)),
        np.full(len(mean), factors) if np.ndim(factors) == 0 else np.asarray(factors),
        result,
        np.empty((stacked(scale).shape[0] + 1, components.n_features)),
    )
    return None if result[1] > STRONG or np.isnan(result[0]) else float(result[0])


def learned(
    components: GaussianComponents, q: Natural, prior: Natural, known: Known | None
) -> tuple[GaussianComponents, Natural] | None:
    """Return the components and their λ₀ after a whole step of empirical Bayes.

    The result is None where the step needs more care: if the covariance prior would be too small,
    or q would leave its domain, and where only some priors are learned.
    """
    if not (is_narrow(components) and components.learns_all):
        return None
    c, sizes = components, components.sizes
    center = np.ascontiguousarray(c.prior_means(prior)[0])
    scale, change = np.array(c.common_scale), -center
    settings = (
        c.degrees_of_freedom_prior,
        c.least_dof,
        c.mean_precision_prior,
        SMALLEST_STRENGTH,
        np.nan if c.learns_matrix else c.n_rows,
        ROWS_OF_DIAGONAL,
        c.scale_prior_dof,
        SMALLEST_SCALE,
        PRECISION_OF_STRENGTH,
    )
    spread = np.empty((2, 0)) if sizes is None else np.array([sizes.shape, sizes.rate])
    found = np.empty(4)
    new, moved = ({key: np.empty(prior[key].shape) for key in ORDER} for _ in range(2))
    k, d = c.n_components, c.n_features
    mean, precision, log_det = np.empty((k, d)), np.empty(q["scatter"].shape), np.empty(k)
    kernels().learned_prior(
        *in_order(q),
        *in_order(prior),
        np.array(settings),
        GRID_OF_STRENGTHS,
        stacked(np.ascontiguousarray(c.reference)),
        found,
        center,
        stacked(scale),
        spread,
        *in_order(new),
        *in_order(moved),
        mean,
        stacked(precision),
        log_det,
        np.empty(k),
        np.empty((6, k)),
        np.empty((stacked(scale).shape[0] + 1, d)),
    )
    if not found[0]:
        return None
    _, strength, dof, of_sizes = found.tolist()
    result = copy(c)
    change += center
    result.mean_prior = c.mean_prior + change
    result.mean_precision_prior, result.degrees_of_freedom_prior = strength, dof
    result.set_scale(scale, None if sizes is None else Sizes(of_sizes, spread[0], spread[1]))
    if known is not None:
        known["next"] = Next(new, moved, (mean, None, precision, log_det))
    return result, new
