"""Mixtures whose weights depend on covariates: how these are read, and the coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.utils import Bunch, _safe_indexing, check_array, check_consistent_length
from sklearn.utils.validation import _get_feature_names

from ..annealing import Context
from ..data.units import Rows
from ..inference.response import response
from ..models._covariates import LogitWeights
from ..models._weights import Weights
from ..models.mixture import Mixture
from ..parallel.workers import SEQUENTIAL
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._interface import D
from ._shards import described, in_parts
from ._validation import refuse_masked

USUAL_SCALE = 2.5
"""The default of ``coefficients_prior`` (Gelman, Jakulin, Pittau and Su, 2008)."""

# Covariates beyond these magnitudes have squares that no floating-point number represents.
_LEAST, _MOST = 1e-100, 1e100

NO_SAMPLES = (
    "Rows are drawn given their covariates, which sample does not take: draw components from the "
    "weights that intercepts_ and coefficients_ give, and rows from the components."
)


Columns = tuple[int, tuple[str, ...]]
"""The number of covariates, and their names; none if they have no names."""


@dataclass(frozen=True)
class LabelledTable:
    """A table, and what is known of its rows besides."""

    X: Any
    # The number of the class of each row, −1 where it is unknown; None if all are.
    classes: np.ndarray | None = None
    n_labels: int | None = None  # entries of y
    covariates: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        found: tuple[int, ...] = self.X.shape
        return found

    def take(self, chosen: np.ndarray) -> LabelledTable:
        """Return the rows that a mask chooses; the table must be an array."""
        classes = None if self.classes is None else self.classes[chosen]
        beside = None if self.covariates is None else self.covariates[chosen]
        return LabelledTable(self.X[chosen], classes, None, beside)


class GivenCovariates(BaseAnnealed[D, Rows, Mixture]):
    """Mixin of mixtures whose ``fit`` takes covariates, on which the weights then depend."""

    coefficients_prior: Any
    weight_concentration_prior: Any
    # The number of covariates of the fit, and their names; None without covariates.
    _n_covariates: int | None = None
    _covariate_names: tuple[str, ...] = ()

    _attributes_of_fits = ("intercepts_std_", "coefficients_std_", "coefficients_covariance_")

    # Fits

    def _with_covariates(self, X: Any, covariates: ArrayLike | None, goes_on: bool) -> Any:
        """X together with the covariates of its rows, after a check that they suit the fit.

        The covariates of data in parts are read and checked with their parts.
        """
        if covariates is None:
            if goes_on and self._n_covariates is not None:
                raise ValueError(
                    "The fit goes on with data that had covariates. Give those of these rows too, "
                    "or begin anew with fit and warm_start=False."
                )
            self._check_no_coefficients()
            self._n_covariates, self._covariate_names = None, ()
            return X
        if goes_on and self._n_covariates is None:
            raise ValueError(
                "The fit goes on with data that had no covariates. Leave them out, or begin anew "
                "with fit and warm_start=False."
            )
        if in_parts(X):
            return X
        self._check_covariates_suit()
        Z, names = read_covariates(covariates)
        self._settle_columns((Z.shape[1], names), goes_on)
        return beside_table(X, Z)

    def _settle_columns(self, columns: Columns, goes_on: bool) -> None:
        """Note the number of covariates and their names, or compare them with earlier ones."""
        n_columns, names = columns
        if goes_on:
            self._check_as_fitted(n_columns, names)
            names = names or self._covariate_names
        self._n_covariates, self._covariate_names = n_columns, names

    def _settle_columns_of_parts(self, of_parts: list[Columns | None], goes_on: bool) -> None:
        """Do the same, given those of each part; None for a part without rows."""
        first = next((columns for columns in of_parts if columns is not None), None)
        for i, columns in enumerate(of_parts):
            if columns is not None and columns != first:
                raise ValueError(
                    f"{described(i, None).capitalize()}: covariates has {_in_words(columns)}, but "
                    f"those of other parts {_in_words(first)}."
                )
        if first is not None:
            self._check_covariates_suit()
            self._settle_columns(first, goes_on)

    def _check_no_coefficients(self) -> None:
        if self.coefficients_prior != USUAL_SCALE:
            raise ValueError(
                f"coefficients_prior={self.coefficients_prior!r} is the prior of the coefficients "
                f"of covariates. Give fit covariates, or leave it at {USUAL_SCALE}."
            )

    def _check_covariates_suit(self) -> None:
        """Refuse parameters with which weights cannot depend on covariates."""
        if not self._chooses_number and self._number == 1:
            raise ValueError(
                "covariates change the weights of components, but a single component has the "
                "weight 1 in every row. Give n_components=2 or more, or leave covariates out."
            )
        if self.weight_concentration_prior != "auto":
            raise ValueError(
                f"weight_concentration_prior={self.weight_concentration_prior!r} is the prior of "
                "weights that all rows share. With covariates, the weights have the prior of their "
                "coefficients: give coefficients_prior, and leave this one at 'auto'."
            )

    def _own_weights(self) -> Weights | None:
        """The weights of a new model; None for those that all rows share."""
        if self._n_covariates is None:
            return None
        return LogitWeights(self._number, self._n_covariates, self.coefficients_prior)

    def _make_model_of_stream(self, X: D, units: Rows) -> Mixture:
        model = super()._make_model_of_stream(X, units)
        if model.weights.differ and np.isinf(model.weights.summary(units).scale).any():
            raise ValueError(
                "A covariate is constant in the first batch of the stream, whose standard "
                "deviation is the unit of its coefficients. Begin with more rows."
            )
        return model

    # Predictions

    def _accompanied(self, rows: Rows, covariates: ArrayLike | None) -> Rows:
        """Rows to predict for with their covariates, which are checked."""
        if self._n_covariates is None:
            if covariates is not None:
                raise ValueError(
                    f"This {type(self).__name__} was fitted without covariates, so that weights do "
                    "not depend on them. Leave them out, or fit with covariates."
                )
            return rows
        if covariates is None:
            raise ValueError(
                f"This {type(self).__name__} was fitted with covariates, on which the weights of "
                f"rows depend. Give the {self._n_covariates} covariates of these rows too."
            )
        Z, names = read_covariates(covariates)
        self._check_as_fitted(Z.shape[1], names)
        check_consistent_length(rows.X, Z)
        rows.covariates = Z
        return rows

    def _row_of_covariates(self) -> np.ndarray | None:
        """A row of covariates for an empty part, which has none."""
        return None if self._n_covariates is None else np.zeros((1, self._n_covariates))

    def _counted_beside(
        self, X: Any, sample_weight: ArrayLike | None, covariates: ArrayLike | None
    ) -> tuple[Any, Any, Any]:
        """X, its weights and its covariates, as they were given, without rows of weight zero."""
        found, weights = self._counted(X, sample_weight)
        if covariates is None or weights is None:
            return found, weights, covariates
        check_consistent_length(X, covariates)
        positive = np.flatnonzero(np.asarray(sample_weight))
        return found, weights, _safe_indexing(covariates, positive)

    def _mean_score(
        self, X: Any, sample_weight: ArrayLike | None, covariates: ArrayLike | None
    ) -> tuple[float, float]:
        """The mean log density of rows with covariates, and their total weight."""
        X, weights, covariates = self._counted_beside(X, sample_weight, covariates)
        scores = self.score_samples(X, covariates=covariates)
        total = len(scores) if weights is None else weights.sum()
        return float(np.average(scores, weights=weights)), float(total)

    def _check_as_fitted(self, n_columns: int, names: tuple[str, ...]) -> None:
        if n_columns != self._n_covariates:
            raise ValueError(
                f"covariates has {n_columns} columns, but {type(self).__name__} was fitted with "
                f"{self._n_covariates}."
            )
        if names and self._covariate_names and names != self._covariate_names:
            raise ValueError(
                f"covariates has the columns {list(names)}, but {type(self).__name__} was fitted "
                f"with {list(self._covariate_names)}, in this order."
            )

    def _refuse_covariates(self, what: str) -> None:
        """Refuse what a mixture whose weights depend on covariates cannot do."""
        if self._context().model.weights.differ:
            raise ValueError(f"This mixture was fitted with covariates. {what}")

    # Results

    def _attributes_of_weights(self, ctx: Context) -> Attributes:
        """The fitted attributes of the weights."""
        weights, q = ctx.model.weights, ctx.q
        found = {"weights_": weights.mean(q)}
        own = ("intercepts_", "coefficients_", "coefficients_prior_")
        shared = ("weight_concentration_", "weight_concentration_prior_")
        for name in shared if weights.differ else own:
            self.__dict__.pop(name, None)
        if weights.differ:
            values = weights.coefficients(q)
            scale = float(weights.coefficients_scale)
            return found | {
                "intercepts_": values[:, 0],
                "coefficients_": values[:, 1:],
                "coefficients_prior_": scale,
            }
        concentration = tuple(q[name] for name in weights.factor.names.values())
        return found | {
            "weight_concentration_": concentration if len(concentration) > 1 else concentration[0],
            "weight_concentration_prior_": weights.concentration,
        }

    def _complete_fit(self, ctx: Context, units: Any, given: Any) -> None:
        super()._complete_fit(ctx, units, given)
        weights = ctx.model.weights
        if not weights.differ:
            return
        key = "gate_mean"
        derivatives = response(ctx, key, units.centered(ctx.summary), SEQUENTIAL)
        n_values, k = ctx.q[key].shape
        # dΓ = P⁻¹ dH: the precision P depends on no responsibility.
        change = np.linalg.solve(ctx.q["gate_precision"], derivatives)
        change = change.reshape(n_values, k, n_values, k)
        found = weights.covariance(0.5 * (change + change.transpose(2, 3, 0, 1)))
        self._describe_deviations(found)

    def _describe_deviations(self, covariance: np.ndarray) -> None:
        """Set the attributes that follow from the covariance (K, P, K, P) of the coefficients."""
        std: Any = _deviations(np.einsum("kpkp->kp", covariance))
        std[:, 1:][:, ~np.isfinite(self._inference.ctx.model.weights.scale)] = np.inf
        self._describe(
            {
                "coefficients_covariance_": covariance,
                "intercepts_std_": std[:, 0],
                "coefficients_std_": std[:, 1:],
            }
        )

    def _complete_reorder(self, order: np.ndarray) -> None:
        super()._complete_reorder(order)
        if hasattr(self, "coefficients_covariance_"):
            self._describe_deviations(self.coefficients_covariance_[order][:, :, order])

    def coefficient_intervals(self, level=0.95, *, reference=None):
        """Intervals of the coefficients of covariates.

        The method needs a fit with covariates. The intervals are those of a Gaussian with the
        covariances of ``coefficients_covariance_``.

        Parameters
        ----------
        level : float, default=0.95
            The probability that an interval has.
        reference : int or None, default=None
            None: coefficients as they are in the attributes, which sum to zero over the components.
            An integer: differences from those of this component, whose exponentials are odds
            ratios.

        Returns
        -------
        intervals : :class:`~sklearn.utils.Bunch`
            The arrays ``estimate``, ``std``, ``lower`` and ``upper``, of shape (n_components, 1 +
            n_covariates), with the intercepts in the first column, and the ``names`` of the
            columns. All are 0 for the ``reference``. Deviations and limits are NaN where a fit
            ended so far from its optimum that its response has a negative variance: raise
            ``max_iter``.

        Raises
        ------
        ValueError
            If the fit had no covariates, if the last data were a batch of a stream, or if
            ``level`` or ``reference`` is out of range.
        """
        weights = self._context().model.weights
        if not weights.differ:
            raise ValueError(
                "There are no coefficients: this mixture was fitted without covariates. Give fit "
                "the covariates of the rows."
            )
        if not hasattr(self, "coefficients_covariance_"):
            raise ValueError(
                "Standard deviations of coefficients are derivatives of passes over all rows, "
                "which a stream does not have. Call fit, with warm_start=True to go on from here."
            )
        if isinstance(level, bool) or not isinstance(level, float) or not 0.0 < level < 1.0:
            raise ValueError(f"level is a probability between 0 and 1, but got {level!r}.")
        estimate = np.column_stack([self.intercepts_, self.coefficients_])
        k = len(estimate)
        change = np.eye(k)
        if reference is not None:
            if isinstance(reference, bool) or not isinstance(reference, Integral):
                raise ValueError(f"reference is the number of a component, but got {reference!r}.")
            if not 0 <= int(reference) < k:
                raise ValueError(f"reference={reference}, but components are 0 to {k - 1}.")
            change[:, int(reference)] -= 1.0
        covariance = self.coefficients_covariance_
        variance: Any = np.einsum("ki,ipjp,kj->kp", change, covariance, change)
        std = _deviations(variance)
        unknown = np.isinf(self.coefficients_std_[0])
        std[np.ix_(change.any(axis=1), np.append(False, unknown))] = np.inf
        estimate = change @ estimate
        width = float(norm.ppf(0.5 + 0.5 * level)) * std
        names = self._covariate_names or [f"z{i}" for i in range(estimate.shape[1] - 1)]
        return Bunch(
            names=["intercept", *names],
            estimate=estimate,
            std=std,
            lower=estimate - width,
            upper=estimate + width,
        )


def _deviations(variances: np.ndarray) -> Any:
    """Return square roots; NaN of what is negative by more than rounding.

    The responses of a fit that is far from its optimum are no covariances.
    """
    least = -1e-9 * np.abs(variances).max(initial=0.0)
    return np.sqrt(np.where(variances < least, np.nan, np.maximum(variances, 0.0)))


def beside_table(X: Any, Z: np.ndarray) -> LabelledTable:
    """Return a table, labelled or not, with the covariates of its rows."""
    table = X if isinstance(X, LabelledTable) else LabelledTable(X)
    return replace(table, covariates=Z)


def _in_words(columns: Columns | None) -> str:
    n_columns, names = columns or (0, ())
    return f"the columns {list(names)}" if names else f"{n_columns} columns without names"


def read_covariates(covariates: ArrayLike) -> tuple[np.ndarray, tuple[str, ...]]:
    """Check covariates, and return them as an array with the names of its columns, if it has any.

    Accepted are finite numbers whose squares are numbers too.
    """
    if in_parts(covariates):
        raise ValueError(
            "covariates cannot be data in parts beside an X in memory: they are one array too."
        )
    refuse_masked(covariates, "covariates", nan_is_missing=True)
    names = _get_feature_names(covariates)
    given: Any = covariates
    # The dtypes of a Series are a single one.
    kinds = given.dtypes if hasattr(given, "columns") else [getattr(given, "dtype", "")]
    if any(str(kind).lower().startswith(("date", "time", "duration")) for kind in kinds):
        raise ValueError(
            "covariates are numbers, but have dates or times. Give differences from a date as "
            "numbers, in days or years for example."
        )
    try:
        Z = check_array(
            covariates,
            dtype=np.float64,
            # Data frames are often stored by columns, with which products would round otherwise.
            order="C",
            ensure_all_finite="allow-nan",
            input_name="covariates",
        )
    except ValueError as error:
        if "could not convert" in str(error):
            raise ValueError(
                f"covariates are numbers, but {error}. sklearn.preprocessing.OneHotEncoder("
                "drop='first') makes columns of 0 and 1 of text and of categories."
            ) from None
        raise
    missing = np.isnan(Z).any(axis=1)
    if missing.any():
        raise ValueError(
            f"covariates has missing values, in {missing.sum()} rows: the model has no "
            "distribution of covariates over which it could integrate, as it does for missing "
            "cells of X. Leave these rows out, or fill them in with sklearn.impute."
        )
    largest = np.abs(Z).max(axis=0)
    if ((largest > _MOST) | ((largest > 0) & (largest < _LEAST))).any():
        raise ValueError(
            "covariates has a column of numbers whose squares are too large or too small for "
            "floating-point numbers. Change its unit."
        )
    return Z, () if names is None else tuple(map(str, names))
