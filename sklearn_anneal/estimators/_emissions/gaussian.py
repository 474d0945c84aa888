"""Columns of real numbers, independent or with a covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from ...families import Natural
from ...models.components._base import Profile
from ...models.components.fused_gaussian import FactoredGaussian
from ...models.components.gaussian import GaussianComponents
from ...models.components.gaussian_columns import GaussianColumns
from .._attributes import Attributes
from .._given_starts import given_array, given_matrices
from .._priors import (
    auto_as_none,
    check_first_rows,
    checked_covariance_prior,
    checked_prior,
    is_auto,
    numbers_of,
    refuse_indefinite,
)
from ._base import Emission, Wanted, profile_of_means


class GaussianEmission(Emission[Any]):
    """Columns of real numbers, which are independent given their component or have a covariance."""

    title = "Gaussian columns"
    prior_parameters = {
        "means_prior": False,
        "beta_prior": True,
        "dof_prior": True,
        "scale_prior": False,
    }
    fitted_attributes = (
        "means_",
        "covars_",
        *(f"{name}_posterior_" for name in ("means", "beta", "dof", "scale")),
        *(f"{name}_prior_" for name in ("means", "beta", "dof", "scale")),
        "scale_prior_sizes_",
    )
    priors_of_data = True
    regularised = True

    @classmethod
    def check_first_batch(cls, estimator: BaseEstimator, rows: Any) -> None:
        if any(auto_as_none(p) is None for p in (estimator.means_prior, estimator.scale_prior)):
            check_first_rows(rows, estimator._number, "means_prior and scale_prior")

    @classmethod
    def components(
        cls, estimator: BaseEstimator, rows: Any
    ) -> GaussianComponents | GaussianColumns:
        if estimator.covariance_type == "independent":
            return _independent(estimator, rows)
        return _dependent(estimator, rows)

    @classmethod
    def given(cls, components: Any, key: str, value: object, name: str) -> np.ndarray:
        k, d = components.n_components, components.n_features
        if key == "means":
            return given_array(value, (k, d), name)
        if isinstance(components, GaussianComponents):
            return given_matrices(value, components.covariance_type, k, d, name)
        variances = given_array(value, (k, d), name)
        refuse_indefinite(variances, "diag", name, "independent")
        return variances

    @classmethod
    def attributes(cls, components: Any, q: Natural, prior: Natural, summary: Any) -> Attributes:
        now, before = components.standard(q), components.standard(prior)
        if isinstance(components, GaussianColumns):
            covariances = components.covariances(q)
            sizes = {"mean": np.ones(components.n_components)}
        else:
            covariances = components.covariances(now["inverse_scale"], now["dof"])
            sizes = components.described_sizes
        return {
            "means_": now["mean"] + summary.center,
            "covars_": covariances,
            "means_posterior_": now["mean"] + summary.center,
            "beta_posterior_": now["mean_precision"],
            "dof_posterior_": now["dof"],
            "scale_posterior_": now["inverse_scale"],
            "means_prior_": before["mean"] + summary.center,
            "beta_prior_": before["mean_precision"],
            "dof_prior_": before["dof"],
            "scale_prior_": before["inverse_scale"],
            "scale_prior_sizes_": sizes,
        }

    @classmethod
    def described(cls, components: Any, fitted: Any) -> Profile:
        """Return means, and variances or the covariance matrices of all components."""
        own = super().described(components, fitted)
        if isinstance(components, GaussianComponents):
            k, d, covars = components.n_components, components.n_features, own["covars"]
            if components.covariance_type in ("full", "tied"):
                own["covars"] = np.broadcast_to(covars, (k, d, d))
            elif components.covariance_type == "spherical":
                own["covars"] = np.broadcast_to(covars[:, None], (k, d))
        return own

    @classmethod
    def draw(
        cls, own: Profile, labels: np.ndarray, random_state: np.random.RandomState
    ) -> np.ndarray:
        means, covars = own["means"], own["covars"]
        noise = random_state.standard_normal((len(labels), means.shape[1]))
        if covars.ndim == 2:
            return means[labels] + noise * np.sqrt(covars[labels])
        roots = np.linalg.cholesky(covars)
        return means[labels] + (roots[labels] @ noise[..., None])[..., 0]

    @classmethod
    def drawn_components(cls, wanted: Wanted, random_state: np.random.RandomState) -> Profile:
        means = 2.0 * wanted.separation * random_state.standard_normal(wanted.size)
        return {"means": means, "covars": np.ones(wanted.size)}

    @classmethod
    def profile(cls, own: Profile, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        covars = own["covars"]
        variances = covars if covars.ndim == 2 else np.diagonal(covars, axis1=1, axis2=2)
        return profile_of_means(own["means"], variances, weights)


def _dependent(estimator: BaseEstimator, rows: Any) -> GaussianComponents:
    """Make components with a covariance of the columns, of whatever type."""
    d, k = rows.shape[1], estimator._number
    tied = estimator.covariance_type == "tied"
    mean = estimator.means_prior
    if not (mean is None or is_auto(mean)):
        mean = check_array(mean, dtype=np.float64, ensure_2d=False, input_name="means_prior")
        if mean.shape not in ((d,), (k, d)):
            raise ValueError(
                f"The parameter 'means_prior' should have shape {(d,)} or {(k, d)}, but has "
                f"shape {mean.shape}."
            )
    beta: Any = estimator.beta_prior
    if not is_auto(beta):
        beta = checked_prior(beta, 1.0, (k,), "beta_prior")
    dof: Any = estimator.dof_prior
    if not is_auto(dof):
        dof = checked_prior(dof, d, () if tied else (k,), "dof_prior")
    if not is_auto(dof) and not (dof > d - 1).all():
        raise ValueError(
            f"The parameter 'dof_prior' should be greater than {d - 1}, but got {dof.min():g}."
        )
    return FactoredGaussian(
        k,
        d,
        estimator.covariance_type,
        reg_covar=estimator.reg_covar,
        mean_precision_prior=beta,
        mean_prior=mean,
        degrees_of_freedom_prior=dof,
        covariance_prior=checked_covariance_prior(
            estimator.scale_prior, estimator.covariance_type, d, "scale_prior", k
        ),
        covariance_prior_name="scale_prior",
    )


def _independent(estimator: BaseEstimator, rows: Any) -> GaussianColumns:
    """Make components whose columns have a mean and a precision of their own."""
    k, d = estimator._number, rows.shape[1]
    given = {}
    for name, default in (("beta_prior", 1.0), ("dof_prior", 1.0), ("scale_prior", 1.0)):
        value = getattr(estimator, name)
        if value is None or is_auto(value):
            given[name] = value
        else:
            given[name] = checked_prior(value, default, (k, d), name)
    mean = estimator.means_prior
    if not (mean is None or is_auto(mean)):
        mean = numbers_of(mean, "means_prior")
        try:
            mean = np.broadcast_to(mean, (k, d))
        except ValueError:
            raise ValueError(
                f"The parameter 'means_prior' should have shape {(d,)} or {(k, d)}, but has "
                f"shape {mean.shape}."
            ) from None
    return GaussianColumns(
        k,
        d,
        given["beta_prior"],
        mean,
        given["dof_prior"],
        given["scale_prior"],
        estimator.reg_covar,
    )
