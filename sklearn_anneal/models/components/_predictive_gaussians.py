"""Posterior predictive densities of Gaussian components, and of the missing cells of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...data.units import Rows
from ...families import Natural, log_rising
from ...families.wishart import Precisions
from . import _missing_cells as missing_cells
from ._predictive_moments import CellMoments, kept_shares, student_t_spreads

if TYPE_CHECKING:
    from ._features import Features
    from .gaussian import GaussianComponents


def student_t(
    components: GaussianComponents, q: Natural
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the parameters of the posterior predictive density of every component.

    Returns
    -------
    dof : ndarray of shape (n_components,)
    mean : ndarray of shape (n_components, n_features)
        Locations relative to the center of the data.
    scale : ndarray of shape (n_components, n_features, n_features)
    """
    dof, mean, scale = _packed_student_t(components, q)
    return dof, mean, scale if scale.ndim == 3 else scale[..., None] * np.eye(mean.shape[1])


def _packed_student_t(
    components: GaussianComponents, q: Natural
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what :func:`student_t` does, but only the diagonals of diagonal scale matrices.

    These have the shape (n_components, n_features), because matrices of many columns are large.
    """
    # A joint factor has ∫ N(x | μ, Λ⁻¹) q(μ, Λ) = St(x | m, (β + 1) W⁻¹ / (β ν'), ν') with
    # ν' = ν + 1 − D.
    standard = components.standard(q)
    dof = standard["dof"] + 1.0 - components.n_features
    dof = np.broadcast_to(dof, (components.n_components,))
    scale = _packed(components, standard["inverse_scale"])
    each = (slice(None), *[None] * max(components.structure.event_ndim, 1))
    scale = scale / dof[each]
    if components.joint:
        beta = standard["mean_precision"]
        return dof, standard["mean"], scale * ((beta + 1) / beta)[each]
    factor = components.factors[0]
    covariance = factor.family.to_standard(factor.pick(q))["covariance"]
    return dof, standard["mean"], scale + _packed(components, covariance)


def _packed(components: GaussianComponents, stored: np.ndarray) -> np.ndarray:
    """Return matrices as they are, and the diagonals of diagonal ones."""
    if components.structure.event_ndim > 0:
        return stored
    return np.broadcast_to(stored[..., None], (*stored.shape, components.n_features))


def _variances(components: GaussianComponents, packed: np.ndarray) -> np.ndarray:
    """Return the diagonals of what :func:`_packed` returns."""
    matrices = components.structure.event_ndim == 2
    return np.diagonal(packed, axis1=-2, axis2=-1) if matrices else packed


def _features_of_scales(
    components: GaussianComponents, mean: np.ndarray, scale: np.ndarray
) -> tuple[Features, np.ndarray]:
    """Return −½ (x − mean)ᵀ scale⁻¹ (x − mean) as features, and ½ log|scale⁻¹|."""
    constant = np.full(components.n_components, 0.5 * components.n_features * missing_cells.LOG_2PI)
    if scale.ndim == 2:
        precision = 1.0 / scale
        features = components.features_of("diag", precision, mean, constant)
        return features, 0.5 * np.log(precision).sum(axis=1)
    precisions = Precisions(scale.copy(), np.ones(scale.shape[:-2]))
    features = components.features_of("full", precisions, mean, constant)
    return features, -0.5 * precisions.log_dets


def _gaussians_of_scales(
    components: GaussianComponents, mean: np.ndarray, scale: np.ndarray
) -> tuple[missing_cells.Gaussians, np.ndarray]:
    """Return Gaussians with these scale matrices as covariances, and ½ log|scale⁻¹|.

    The precisions are diagonals if the covariance type says that the scale matrices are diagonal.
    """
    features, half_log_det = _features_of_scales(components, mean, scale)
    return components.gaussians_of(features), half_log_det


def log_student_t(components: GaussianComponents, rows: Rows, q: Natural) -> np.ndarray:
    """Return the log predictive densities of the components in nats, (n_rows, n_components).

    The density of a row with missing cells is the marginal one of its observed cells. It is 1 if
    no cell is observed.
    """
    d = components.n_features
    dof, mean, scale = _packed_student_t(components, q)
    if rows.patterns is None:
        features, half_log_det = _features_of_scales(components, mean, scale)
        # The distance of a row from a mean may be slightly below zero because of rounding.
        distance = np.maximum(-2.0 * components.log_density(rows, features), 0.0)
        return _log_density(distance, dof, half_log_det, d)
    complete, some, _ = rows.by_completeness
    out = np.zeros((rows.n_units, components.n_components))
    out[complete] = log_student_t(components, rows.whole(complete), q)
    gaussians, half_log_det = _gaussians_of_scales(components, mean, scale)
    distance, log_dets = missing_cells.marginals(rows, some, gaussians)
    n_observed = d - rows.n_missing[some, None]
    # The determinant of the scale of observed cells is |A_mm| / |A|, with A the inverse scale.
    out[some] = _log_density(distance, dof, half_log_det - 0.5 * log_dets, n_observed)
    return out


def _log_density(
    distance: np.ndarray, dof: np.ndarray, half_log_det: np.ndarray, d: int | np.ndarray
) -> np.ndarray:
    return (
        log_rising(0.5 * dof, 0.5 * d)
        - 0.5 * d * np.log(np.pi * dof)
        + half_log_det
        - 0.5 * (dof + d) * np.log1p(distance / dof)
    )


def cell_moments(components: GaussianComponents, q: Natural) -> CellMoments:
    """Return the moments of the cells of a new row, which have Student-t distributions."""
    dof, mean, scale = _packed_student_t(components, q)
    spreads, exists = student_t_spreads(dof[:, None])
    variance = _variances(components, scale) * spreads
    return CellMoments(mean, variance, np.broadcast_to(exists, mean.shape))


def plug_in_moments(components: GaussianComponents, q: Natural) -> CellMoments:
    """Return the moments of the cells of a new row at the posterior means."""
    mean, covariances = _packed_at_means(components, q)
    return CellMoments(mean, _variances(components, covariances))


def _packed_at_means(components: GaussianComponents, q: Natural) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior means, and the covariances as :func:`_packed` returns them."""
    standard = components.standard(q)
    packed = _packed(components, components.covariances(standard["inverse_scale"], standard["dof"]))
    event = packed.shape[-max(components.structure.event_ndim, 1) :]
    return standard["mean"], np.broadcast_to(packed, (components.n_components, *event))


def impute(
    components: GaussianComponents,
    rows: Rows,
    q: Natural,
    shares: np.ndarray,
    predictive: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the predictive means and variances of missing cells, given the observed ones.

    Given its component, the missing cells of a row have a Student-t distribution. With A the
    inverse of the scale of the component, ν its degrees of freedom, and δ the squared distance of
    the n_o observed cells, their covariance is (ν + δ) / (ν + n_o − 2) · A_mm⁻¹. It does not exist
    if ν + n_o ≤ 2; :mod:`_predictive_moments` says what is returned then.

    Parameters
    ----------
    components : GaussianComponents
    rows : Rows
    q : dict of ndarray
    shares : ndarray of shape (n_rows, n_components)
        The probabilities of the components for each row.
    predictive : bool, default=True
        Whether parameters are integrated out. If not, components are Gaussians with their posterior
        means and covariances.

    Returns
    -------
    means : ndarray of shape (n_rows, n_features)
        The rows, in the coordinates of ``X``, with the means in the place of missing cells.
    variances : ndarray of shape (n_rows, n_features)
        Zero where a cell is observed.
    """
    means = np.array(rows.X, dtype=np.float64)
    variances = np.zeros(means.shape)
    _, some, blank = rows.by_completeness
    order = np.concatenate([some, blank])
    if predictive:
        dof, mean, scale = _packed_student_t(components, q)
    else:
        mean, scale = _packed_at_means(components, q)
    gaussians, _ = _gaussians_of_scales(components, mean, scale)
    factors, exists = np.ones(shares[order].shape), np.ones(shares[order].shape, dtype=bool)
    if predictive:
        distance, _ = missing_cells.marginals(rows, order, gaussians)
        n_observed = components.n_features - rows.n_missing[order, None]
        own = np.broadcast_to(dof + n_observed, distance.shape)
        spreads, exists = student_t_spreads(own)
        factors = (dof + distance) / own * spreads
    found, spread = missing_cells.imputed(rows, order, shares[order], factors, gaussians)
    kept, fewer = kept_shares(shares[order], exists)
    if fewer.any():
        spread[fewer] = missing_cells.imputed(
            rows, order[fewer], kept[fewer], factors[fewer], gaussians
        )[1]
    missing = np.isnan(rows.X[order])
    means[order] = np.where(missing, found + rows.center, means[order])
    variances[order] = np.where(missing, spread, 0.0)
    return means, variances
