"""Priors of Gaussian components that depend on the data, before anything is learned.

They decide how a covariance prior is learned: as the best matrix from many rows for each column,
and from few rows as a diagonal that can become a matrix (``_correlated_scale``).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from ._learned_gaussians import OF_MEANS, Sizes
from ._moments import Summary, above_rounding

if TYPE_CHECKING:
    from .gaussian import GaussianComponents

# Every entry of the covariance prior is learned from so many rows for each column on, and where a
# diagonal cannot become a matrix, with independent factors, already from so many.
_ROWS_OF_MATRIX, _ROWS_OF_INDEPENDENT = 10, 2
# Components with a tied covariance have one matrix in common, whose prior is learned, from fewer
# rows for each column than this. With more rows new rows would be predicted worse: groups of real
# data have longer tails than Gaussians, and equal factors of K matrices leave more uncertainty.
_ROWS_OF_TIED = 2
# The statistics of a stream count rows that have not come only from so many rows on for each
# component and column, if full covariances learn their prior. The first batch would otherwise be
# taken for the whole stream, and components of a few rows, which are flat in some directions, would
# teach the prior that all are: other rows then join the few wide components.
_ROWS_OF_STREAM = 5
# From so many columns on, a pass over them takes about a second. With fewer than so many rows for
# each, a search is short.
_COLUMNS_OF_SHORT_SEARCH, _ROWS_OF_SHORT_SEARCH, _EFFORT_OF_SHORT_SEARCH = 750, 2, 1.0


def resolved_gaussians(components: GaussianComponents, summary: Summary) -> GaussianComponents:
    """Return components in which the priors that depend on data have their values.

    Raises
    ------
    ValueError
        If the covariance of the data overflows. If ``covariance_prior`` is not given, also if the
        sample weights sum to less than 2 rows, and if the covariance, or its diagonal where only
        this is learned, is not positive definite and ``reg_covar`` is 0.
    """
    if not np.all(np.isfinite(summary.covariance)):
        raise ValueError(
            "The covariance of X overflows: its values are too large for sums of their "
            "squares. Rescale X, for example with StandardScaler."
        )

    def given(name, default):
        value = getattr(components, name)
        return default if value is None or isinstance(value, str) else value

    resolved, few = copy(components), _few(components, summary)
    if components.structure.shared and few and "covariance_prior" in components.auto:
        resolved = components = resolved.with_one_matrix()
    elif components.structure.shared:
        resolved.learn(OF_MEANS)
    covariance, sizes = components.covariance_prior, None
    learned = isinstance(covariance, str)
    if covariance is None or learned:
        resolved.covariance_prior = _default_covariance(components, summary, learned and few)
    if "covariance_prior" in resolved.auto:
        resolved.reference = resolved.covariance_prior
        resolved.learns_matrix, resolved.n_rows = not few, max(summary.weight, 1.0)
        resolved.correlates = few and components.joint and not _singular(components, summary)
        if components.structure.event_ndim == 2 and not components.structure.shared:
            cells = components.n_components * components.n_features
            resolved.least_rows = float(_ROWS_OF_STREAM * cells)
        very_few = few and summary.seen < _ROWS_OF_SHORT_SEARCH * components.n_features
        if very_few and components.n_features >= _COLUMNS_OF_SHORT_SEARCH:
            resolved.usual_effort = _EFFORT_OF_SHORT_SEARCH
        if components.joint and components.n_matrices > 1:
            sizes = Sizes.equal(components.n_matrices)
    resolved.mean_precision_prior = given("mean_precision_prior", 1.0)
    resolved.mean_prior = given("mean_prior", summary.mean)
    resolved.degrees_of_freedom_prior = given("degrees_of_freedom_prior", components.n_features)
    if "degrees_of_freedom_prior" in resolved.auto and not resolved.learns_matrix:
        resolved.degrees_of_freedom_prior = resolved.least_dof = _least_dof(resolved)
    resolved.set_scale(resolved.covariance_prior, sizes)
    return resolved


def _least_dof(components: GaussianComponents) -> float:
    """Return the smallest ν₀ that is learned from few rows, which is D N / (N − K).

    As V shrinks, Σ_k ν₀ log|V| − (ν₀ + N_k) log|V + S_k| grows without limit if ν₀ Σ_k r_k is less
    than Σ_k N_k (D − r_k). Here r_k is the rank of S_k, which is N_k − 1 if the mean of the
    component is its own. So this would happen to few rows in very many columns.
    """
    n = components.n_rows
    return components.n_features * max(n / max(n - components.n_components, 1.0), 1.0)


def _default_covariance(
    components: GaussianComponents, summary: Summary, diagonal: bool
) -> np.ndarray:
    """Return the covariance of the data, which is the covariance prior if none is given."""
    name, reg_covar = components.covariance_prior_name, components.reg_covar
    if summary.seen < 2:
        raise ValueError(
            f"The default {name} needs at least 2 rows, but there is "
            f"{summary.seen:.6g} (the number of rows, or the sum of the sample weights). "
            "Sample weights count as numbers of rows; if only their proportions matter, "
            "multiply them by len(sample_weight) / sum(sample_weight). Otherwise add rows, or "
            f"give {name}."
        )
    covariance = components.shaped(summary.covariance)
    if diagonal:
        covariance = np.diag(np.diagonal(covariance))
    if not _singular(components, summary, diagonal):
        return covariance
    if reg_covar == 0:
        raise ValueError(
            "The covariance of the data is not positive definite (constant or linearly "
            "dependent columns, or fewer distinct rows than columns), so it cannot be the "
            f"default {name}. Give {name}, or set reg_covar above 0."
        )
    full = covariance.ndim == 2
    return covariance + reg_covar * (np.eye(len(covariance)) if full else 1.0)


def _few(components: GaussianComponents, summary: Summary) -> bool:
    """Return whether the rows are too few for the best matrix as the covariance prior."""
    if components.structure.event_ndim < 2:
        return False
    if components.structure.shared:
        return bool(summary.seen < _ROWS_OF_TIED * components.n_features)
    regular = not (components.joint or _singular(components, summary))
    least = _ROWS_OF_INDEPENDENT if regular else _ROWS_OF_MATRIX
    return bool(summary.seen < least * components.n_features)


def _singular(components: GaussianComponents, summary: Summary, diagonal: bool = False) -> bool:
    """Return whether the covariance of the data, or its diagonal, is singular up to rounding.

    The units of columns do not matter: correlations are judged, and each variance by the rounding
    errors of its own column.
    """
    covariance = components.shaped(summary.covariance)
    varies = above_rounding(summary.variance, summary.mean)
    if not (varies.any() if components.covariance_type == "spherical" else varies.all()):
        return True
    if diagonal or covariance.ndim < 2:
        return False
    spread = np.sqrt(np.diagonal(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance / spread / spread[:, None])
    return not eigenvalues.min() > len(spread) * np.finfo(float).eps * eigenvalues.max()
