"""Predictions for rows that several estimators make in the same way."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from ..annealing import Context
from ..data.units import U
from ._base import BaseAnnealed
from ._interface import D, M, has_unit_temperatures
from ._part_predictions import by_parts
from ._validation import OVERFLOW, explains, finite


class ScoresRows(BaseAnnealed[D, U, M]):
    """Mixin of estimators whose score is the mean of ``score_samples``."""

    def score(self, X, y=None, sample_weight=None):
        """Mean of :meth:`score_samples`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Rows, as :meth:`score_samples` takes them.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights with which the rows enter the mean. With data in parts, one array for each part.

        Returns
        -------
        score : float
            The mean log density or log probability per row, or the mean of lower bounds on it, in
            nats; higher is better.
        """
        return self._score(X, y, sample_weight)


class UnitTemperatures(BaseAnnealed[D, U, M]):
    """Mixin of estimators whose data points can have temperatures of their own."""

    # The error of rows whose numbers overflow.
    _overflow: str = OVERFLOW

    def _rows(self, X: ArrayLike) -> tuple[Context, U]:
        """The context of the fit, and rows to predict for as the model reads them."""
        ctx = self._context()
        rows = self._validate_data(X, reset=False, ensure_min_samples=1)
        units: Any = self._make_units(rows, None)
        return ctx, units.centered(ctx.summary)

    @available_if(has_unit_temperatures)
    @by_parts
    @explains("Prediction")
    def inverse_temperatures(self, X):
        """Expected inverse temperature of each row, low for outliers.

        The method is available with ``annealing="local_tempering"``. The inverse temperature is
        the factor by which the fitted model would multiply the log-likelihood of the row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Rows, as :meth:`fit` takes them.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_samples,)
            E[1/T], in (0, 1].
        """
        ctx, units = self._rows(X)
        if not units.plain:
            self._load_kernels()
        return finite(self.annealing_.inverse_temperatures(ctx, units), self._overflow)
