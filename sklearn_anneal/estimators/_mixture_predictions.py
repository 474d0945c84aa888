"""Predictions of a fitted mixture."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if

from ..data.units import Rows
from ..models.mixture import Mixture
from ._base import BaseAnnealed
from ._information_criteria import akaike_criterion, bayesian_criterion
from ._interface import D, has_unit_temperatures
from ._part_predictions import by_parts
from ._validation import explains, finite

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

OVERFLOW = (
    "X has rows so far from the training data that their squared distances overflow. Check their "
    "units, or rescale X before fitting and predicting."
)
# Plain kernels read rows with at most so many terms. Up to here a prediction takes about as long
# with them as with compiled ones.
_MOST_PLAIN = 60_000


class MixturePredictions(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    DensityMixin,
    BaseAnnealed[D, Rows, Mixture],
):
    """Methods of all mixtures that assign rows to components."""

    @abstractmethod
    def _again(self, X: ArrayLike) -> tuple[Rows, DTypeLike]:
        """Rows to predict for, as the model reads them, and the dtype of their responsibilities."""

    @abstractmethod
    @by_parts
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

    @by_parts
    def predict(self, X):
        """Most probable component of each row, by the variational responsibilities at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Component labels.
        """
        return self._log_joint(self._again(X)[0]).argmax(axis=1)

    @by_parts
    def predict_proba(self, X):
        """Variational responsibilities of the components for each row, at T = 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            They sum to 1 over the components. They are float32 if X is, else float64.
        """
        rows, dtype = self._again(X)
        return self._responsibilities(rows).astype(dtype, copy=False)

    @by_parts
    def transform(self, X):
        """Responsibilities of the components for each row, as :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
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
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights with which the rows enter the mean. With data in parts, one array for each part.

        Returns
        -------
        log_density : float
            The mean in nats per row; higher is better.
        """
        return self._score(X, y, sample_weight)

    def aic(self, X, sample_weight=None):
        """Akaike's information criterion at the posterior means.

        It counts the parameters as if each were one number that was fitted freely. ``lower_bound_``
        takes into account how well the data determine them, and the prior; it is the better
        criterion for the number of components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows. A sparse matrix is for estimators that are fitted to one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        aic : float
            2 p − 2 log L, where L is the likelihood and p the number of free parameters; the lower
            the better.
        """
        log_likelihood, _ = self._log_likelihood(X, sample_weight)
        return akaike_criterion(log_likelihood, self._context().model.n_parameters)

    def bic(self, X, sample_weight=None):
        """Bayesian information criterion at the posterior means.

        It approximates −2 times the log evidence as if each parameter were one number that all
        rows determine. ``lower_bound_`` bounds that evidence without this approximation, with the
        prior that was used, and is the better criterion for the number of components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows. A sparse matrix is for estimators that are fitted to one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        bic : float
            p log N − 2 log L, where L is the likelihood, p the number of free parameters and N the
            number of rows, or the sum of their weights; the lower the better.
        """
        log_likelihood, n_rows = self._log_likelihood(X, sample_weight)
        return bayesian_criterion(log_likelihood, self._context().model.n_parameters, n_rows)

    @available_if(has_unit_temperatures)
    @by_parts
    @explains("Prediction")
    def inverse_temperatures(self, X):
        """Expected inverse temperature of each row, low for outliers.

        The method is available with ``annealing="local_tempering"``. The inverse temperature is
        the factor by which the fitted model would multiply the log-likelihood of the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or data in parts
            Rows.

        Returns
        -------
        inverse_temperatures : ndarray of shape (n_samples,)
            E[1/T], in (0, 1].
        """
        rows, _ = self._again(X)
        return self.annealing_.inverse_temperatures(self._context(), rows)

    def _plain_if_few(self, rows: Rows) -> Rows:
        """Let plain kernels read the rows if they are few, so that none has to be compiled."""
        rows.plain = self._context().model.components.n_terms(rows) <= _MOST_PLAIN
        return rows

    @explains("Prediction")
    def _log_joint(self, rows: Rows) -> np.ndarray:
        ctx = self._context()
        expected = ctx.model.for_rows(ctx.model.expectations(ctx.q), rows)
        return finite(ctx.model.log_joint(rows, expected), OVERFLOW)

    def _responsibilities(self, rows: Rows) -> np.ndarray:
        joint = self._log_joint(rows)
        joint -= joint.max(axis=1, keepdims=True)
        np.exp(joint, out=joint)
        joint /= joint.sum(axis=1, keepdims=True)
        return joint

    @explains("Prediction")
    def _log_likelihood(self, X: ArrayLike, sample_weight: ArrayLike | None) -> tuple[float, float]:
        """The log-likelihood of all rows at the posterior means, and the sum of their weights."""
        ctx = self._context()
        X, weights = self._counted(X, sample_weight)
        rows, _ = self._again(X)
        each = finite(ctx.model.log_likelihood(rows, ctx.q), OVERFLOW)
        if weights is None:
            return float(each.sum()), float(len(each))
        return float(weights @ each), float(weights.sum())
