"""Predictions of a fitted mixture."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if

from ..inference.units import Rows
from ._base import BaseAnnealed, has_unit_temperatures
from ._validation import explains, finite

OVERFLOW = (
    "X has rows so far from the training data that their squared distances overflow. Check their "
    "units, or rescale X before fitting and predicting."
)


class MixturePredictions(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseAnnealed
):
    """Methods of all mixtures that assign rows to components."""

    @abstractmethod
    def _again(self, X: Any) -> tuple[Rows, Any]:
        """Rows to predict for, as the model reads them, and the dtype of their responsibilities."""

    @abstractmethod
    def _expected(self, rows: Rows) -> Any:
        """The expectations that ``log_joint`` of the model reads for these rows."""

    @abstractmethod
    def score_samples(self, X):
        """Log of the posterior predictive density of each row."""

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model and return the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training data.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Component labels.
        """
        return self.fit(X, y, sample_weight=sample_weight).predict(X)

    def predict(self, X):
        """Most probable component of each row, by the variational responsibilities at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Component labels.
        """
        return self._log_joint(self._again(X)[0]).argmax(axis=1)

    def predict_proba(self, X):
        """Variational responsibilities of the components for each row, at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            They sum to 1 over the components. They are float32 if X is, else float64.
        """
        rows, dtype = self._again(X)
        return self._responsibilities(rows).astype(dtype, copy=False)

    def transform(self, X):
        """Responsibilities of the components for each row, as :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            One column per component.
        """
        return self.predict_proba(X)

    def score(self, X, y=None, sample_weight=None):
        """Mean log predictive density per row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights with which the rows enter the mean.

        Returns
        -------
        log_density : float
            The mean in nats per row; higher is better.
        """
        scores = self.score_samples(X)
        weights = self._check_weights(sample_weight, np.asarray(scores))
        return float(np.average(scores, weights=weights))

    @available_if(has_unit_temperatures)
    @explains("Prediction")
    def inverse_temperatures(self, X):
        """Expected inverse temperature of each row, low for outliers.

        The method is available with ``annealing="local_tempering"``. The inverse temperature is
        the factor by which the fitted model would multiply the log-likelihood of the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_samples,)
            E[1/T], in (0, 1].
        """
        rows, _ = self._again(X)
        return self.annealing_.inverse_temperatures(self._context(), rows)

    @explains("Prediction")
    def _log_joint(self, rows: Rows) -> np.ndarray:
        joint = self._context().model.log_joint(rows, self._expected(rows))
        return finite(joint, OVERFLOW)

    def _responsibilities(self, rows: Rows) -> np.ndarray:
        joint = self._log_joint(rows)
        joint -= joint.max(axis=1, keepdims=True)
        np.exp(joint, out=joint)
        joint /= joint.sum(axis=1, keepdims=True)
        return joint
