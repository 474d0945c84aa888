"""Steps of Gaussian components of few columns, each of which is one call of a kernel.

Moments of q, the coefficients of densities, the divergence from the prior and steps of empirical
Bayes are those of :class:`GaussianComponents`, :class:`NormalWishart` and
``_learned_gaussians.py``, where a step on small arrays takes a hundred calls of NumPy.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...families import STRONG, Natural
from ...families.normal_wishart import MOST_COLUMNS, ORDER, in_order, stacked
from .._base import Known, compiled, shallow
from ._base import Next
from ._correlated_scale import SMALLEST_SCALE
from ._features import NOTHING, Features, FeatureSums, Terms
from ._learned_gaussians import (
    GRID_OF_STRENGTHS,
    OF_MEANS,
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
Learned = tuple[np.ndarray, Natural, Natural, Narrow]
"""The prior mean relative to the center, λ₀, the q that follows it, and the moments of this q."""


def is_narrow(components: GaussianComponents) -> bool:
    """Return whether the kernels take these components."""
    c = components
    few = c.n_features <= MOST_COLUMNS and not c.is_wide(c.form)
    return c.joint and few and c.form != "common"


def _lines(components: GaussianComponents, matrices: np.ndarray) -> np.ndarray:
    """Return matrices as kernels take them."""
    return stacked(matrices, components.n_features if components.structure.event_ndim else 1)


def moments(components: GaussianComponents, q: Natural) -> Narrow:
    """Return the moments of q.

    Raises
    ------
    numpy.linalg.LinAlgError
        If an inverse scale is not positive definite.
    """
    precision, log_det = np.empty(q["scatter"].shape), np.empty(components.n_components)
    kernels().moments(*in_order(q), _lines(components, precision), log_det)
    if not np.isfinite(log_det).all():
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    return q["mean_natural"] / q["mean_precision"][:, None], None, precision, log_det


def features(
    components: GaussianComponents, q: Natural, found: Narrow, log_weights: np.ndarray
) -> Features:
    """Return the coefficients of E log p(x, z = k), given E log π."""
    k, d, layout = components.n_components, components.n_features, components.form
    pairs = d * (d + 1) // 2
    n_products = {"full": pairs, "tied": 0, "diag": d, "spherical": 1}[layout]
    constants, own = np.empty(k), np.empty((k, n_products + d + 1))
    shared = np.empty((1, pairs)) if layout == "tied" else NOTHING
    mean, _, precision, log_det = found
    kernels().coefficients(
        q["mean_precision"],
        mean,
        _lines(components, precision),
        log_det,
        log_weights,
        components.noise_variance,
        constants,
        own,
        shared,
    )
    return Features(layout, own, shared, Terms(mean, constants, log_weights))


def statistics(components: GaussianComponents, raw: FeatureSums) -> Natural:
    """Return what rows add to the natural parameters."""
    k, d = components.n_components, components.n_features
    rows = () if components.structure.shared else (k,)
    dof, counts, first = np.empty(rows), np.empty(k), np.empty((k, d))
    found = dof, counts, first, np.empty(rows + (d,) * components.structure.event_ndim)
    natural = dict(zip(ORDER, found, strict=True))
    kernels().statistics(raw.own, raw.shared, components.reg_covar, *in_order(natural))
    return natural


def divergence(
    components: GaussianComponents, q: Natural, prior: Natural, found: Narrow
) -> float | None:
    """Return KL(q(μ, Λ) ‖ p(μ, Λ)) in nats; None if a sum of terms would lose its digits."""
    if not components.shared_scale:
        return None
    mean, _, precision, log_det = found
    scale, factors = components.shared_scale
    lines, result = _lines(components, scale), np.empty(2)
    kernels().divergence(
        np.ascontiguousarray(q["dof"]),
        q["mean_precision"],
        mean,
        _lines(components, precision),
        log_det,
        np.ascontiguousarray(prior["dof"]),
        prior["mean_precision"],
        prior["mean_natural"] / prior["mean_precision"][:, None],
        lines,
        np.full(len(mean), factors) if np.ndim(factors) == 0 else np.asarray(factors),
        result,
        np.empty((len(lines) + 1, components.n_features)),
    )
    return None if result[1] > STRONG or np.isnan(result[0]) else float(result[0])


def learned(
    components: GaussianComponents, q: Natural, prior: Natural, known: Known | None
) -> tuple[GaussianComponents, Natural] | None:
    """Return the components and their λ₀ after a whole step of empirical Bayes.

    The result is None where the step needs more care: if the covariance prior would be too small,
    or q would leave its domain, and where only some priors are learned. Components with equal
    factors learn the prior of their means alone.
    """
    c, shared = components, components.structure.shared
    if not (is_narrow(c) and (c.auto == OF_MEANS if shared else c.learns_all)):
        return None
    result = shallow(c)
    change = -prior["mean_natural"][0] / prior["mean_precision"][0]
    found = (_learned_means if shared else _learned_all)(result, q, prior, -change)
    if found is None:
        return None
    center, new, moved, following = found
    change += center
    result.mean_prior = c.mean_prior + change
    if known is not None:
        known["next"] = Next(new, moved, following)
    return result, new


def _learned_all(
    c: GaussianComponents, q: Natural, prior: Natural, center: np.ndarray
) -> Learned | None:
    """Set the priors of components but for that of the mean, and return this and what follows.

    ``center`` is the prior mean relative to the center of the data.
    """
    inputs, sizes, (k, d) = (*in_order(q), *in_order(prior)), c.sizes, q["mean_natural"].shape
    # The natural parameters of the new prior and of q with it, and the first moments of q.
    outputs = [np.empty(x.shape) for x in (*inputs, *inputs[2:4])]
    log_det = np.empty(k)
    scale = np.array(c.common_scale, order="C").reshape((d,) * c.structure.event_ndim)
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
    found, lines = np.empty(5), _lines(c, scale)
    kernels().learned_prior(
        *inputs,
        np.array(settings),
        GRID_OF_STRENGTHS,
        _lines(c, np.asarray(c.reference)),
        found,
        center,
        lines,
        spread,
        *outputs,
        log_det,
        np.empty(k),
        np.empty((6, k)),
        np.empty((len(lines) + 1, d)),
    )
    succeeded, c.mean_precision_prior, dof, of_sizes, kl = found.tolist()
    if not succeeded:
        return None
    c.degrees_of_freedom_prior = dof
    c.set_scale(scale, None if sizes is None else Sizes(of_sizes, spread[0], spread[1], (dof, kl)))
    shape = q["scatter"].shape
    new, moved = (
        dict(zip(ORDER, (*arrays[:3], arrays[3].reshape(shape)), strict=True))
        for arrays in (outputs[:4], outputs[4:8])
    )
    return center, new, moved, (outputs[8], None, outputs[9].reshape(shape), log_det)


def _learned_means(
    c: GaussianComponents, q: Natural, prior: Natural, center: np.ndarray
) -> Learned | None:
    """Set the prior of the means as :func:`_learned_all` does, and no other."""
    if not c.shared_scale:
        return None
    k, old = c.n_components, c.mean_precision_prior
    n_rows = max(k * float(q["dof"] - prior["dof"]), 1.0)
    found = np.array([SMALLEST_STRENGTH, max(n_rows, old)])
    inputs, log_det = (*in_order(q), *in_order(prior)[1:]), np.empty(k)
    new = [x.copy() for x in inputs[4:]]
    # The natural parameters of q but for ν, which stays, and its first moments.
    moved = [np.empty(x.shape) for x in (*inputs[1:4], *inputs[2:4])]
    kernels().learned_means(
        *inputs, _lines(c, c.shared_scale[0]), found, center, *new, *moved, log_det
    )
    succeeded, c.mean_precision_prior = found.tolist()
    if not succeeded:
        return None
    of_prior, of_q = (
        dict(zip(ORDER, (x["dof"], *arrays), strict=True))
        for x, arrays in ((prior, new), (q, moved[:3]))
    )
    return center, of_prior, of_q, (moved[3], None, moved[4], log_det)
