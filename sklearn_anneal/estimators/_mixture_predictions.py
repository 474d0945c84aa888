"""Predictions of a fitted mixture."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import DensityMixin
from sklearn.utils import ClassifierTags
from sklearn.utils._param_validation import Interval, StrOptions

from ..annealing import Context
from ..data.units import Rows
from ..models.components._base import Components
from ..models.mixture import Mixture
from ._attributes import Attributes
from ._base import BaseAnnealed
from ._interface import D
from ._known_classes import CONSTRAINTS_OF_ROWS, KnownClasses
from ._number import NUMBER_OR_AUTO
from ._part_predictions import by_parts
from ._row_predictions import UnitTemperatures
from ._validation import OVERFLOW, explains, finite

# The constraints of priors that are positive numbers.
POSITIVE = [None, Interval(Real, 0.0, None, closed="neither"), StrOptions({"auto"})]
# Plain kernels read rows with at most so many terms. Up to here a prediction takes about as long
# with them as with compiled ones.
_MOST_PLAIN = 60_000


class MixturePredictions(UnitTemperatures[D, Rows, Mixture], DensityMixin, KnownClasses[D]):
    """Parameters that all mixtures have, and their predictions for rows."""

    _parameter_constraints: dict = {
        **BaseAnnealed._parameter_constraints,
        "n_components": NUMBER_OR_AUTO,
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "init_params": [StrOptions({"kmeans", "k-means++", "random", "random_from_data"})],
        "weights_init": ["array-like", None],
        "weight_concentration_prior_type": [
            StrOptions({"dirichlet_process", "dirichlet_distribution"})
        ],
        "weight_concentration_prior": POSITIVE,
        **CONSTRAINTS_OF_ROWS,
    }
    _advice_coinciding = (
        "Ask for fewer components, start from another init_params or random_state, or, if the "
        "method anneals, lower its initial temperature or give it jitter."
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        if self._classifies:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
            tags.target_tags.required = True
        return tags

    def _mixture_of(self, components: Components) -> Mixture:
        return Mixture(
            components,
            self.weight_concentration_prior_type,
            self.init_params,
            self.weight_concentration_prior,
            self._component_classes,
            self._own_weights(),
        )

    def _attributes_of_mixture(self, ctx: Context) -> Attributes:
        """The fitted attributes of all mixtures, which say nothing of their components."""
        weights, k = ctx.model.weights, ctx.model.n_components
        return {
            **self._attributes_of_weights(ctx),
            "n_components_": k,
            "n_effective_components_": int((weights.expected_counts(ctx.q, ctx.prior) > 1).sum()),
            **self._attributes_of_classes(ctx),
        }

    @abstractmethod
    def _again(self, X: ArrayLike, covariates: ArrayLike | None = None) -> tuple[Rows, DTypeLike]:
        """Rows to predict for, as the model reads them, and the dtype of their responsibilities."""

    def fit_predict(self, X, y=None, sample_weight=None, *, covariates=None):
        """Fit the model and return the result of :meth:`predict` for the training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data, as :meth:`fit` takes it.
        y : array-like of shape (n_samples,), default=None
            Ignored unless ``n_components_per_class`` is given; :meth:`fit` explains it.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Columns on which the weights of the components depend; :meth:`fit` explains them.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Component labels, or classes.
        """
        how = {} if covariates is None else {"covariates": covariates}
        return self.fit(X, y, sample_weight=sample_weight, **how).predict(X, **how)

    def fit_transform(self, X, y=None, sample_weight=None, *, covariates=None):
        """Fit the model and return the result of :meth:`transform` for the training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data, as :meth:`fit` takes it.
        y : array-like of shape (n_samples,), default=None
            Ignored unless ``n_components_per_class`` is given; :meth:`fit` explains it.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Columns on which the weights of the components depend; :meth:`fit` explains them.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            One column per component.
        """
        how = {} if covariates is None else {"covariates": covariates}
        return self.fit(X, y, sample_weight=sample_weight, **how).transform(X, **how)

    @by_parts
    def predict(self, X, *, covariates=None):
        """Most probable component of each row, by the variational responsibilities at T = 1.

        With ``n_components_per_class`` it is the most probable class of :meth:`predict_proba`;
        ``transform(X).argmax(axis=1)`` has the components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Rows, as :meth:`fit` takes them.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then. With data in parts,
            one array for each part.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Component labels, or elements of ``classes_``.
        """
        rows, _ = self._again(X, covariates)
        if (of := self._fitted_classes) is not None:
            of_classes = self._sums_of_classes(self._predictive_shares(rows), of)
            return self.classes_[of_classes.argmax(axis=1)]
        return self._log_joint(rows).argmax(axis=1)

    @by_parts
    @explains("Prediction")
    def predict_proba(self, X, *, covariates=None):
        """Variational responsibilities of the components for each row, at T = 1.

        With ``n_components_per_class`` there are probabilities of classes instead, given the row
        and the data of the fit: the parameters are integrated out, as in :meth:`score_samples`.
        Responsibilities, which :meth:`transform` has, are surer of themselves than they should be.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Rows, as :meth:`fit` takes them.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            They sum to 1 over the components. They are float32 if X is, else float64. With
            ``n_components_per_class`` there is one column for each of ``classes_``.
        """
        rows, dtype = self._again(X, covariates)
        if (of := self._fitted_classes) is None:
            shares = self._responsibilities(rows)
        else:
            shares = self._sums_of_classes(self._predictive_shares(rows), of)
        return shares.astype(dtype, copy=False)

    @by_parts
    @explains("Prediction")
    def transform(self, X, *, covariates=None):
        """Responsibilities of the components for each row, at T = 1.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Rows, as :meth:`fit` takes them.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            One column per component; ``component_classes_`` has their classes, if there are any.
        """
        rows, dtype = self._again(X, covariates)
        return self._responsibilities(rows).astype(dtype, copy=False)

    @by_parts
    @explains("Prediction")
    def score_samples(self, X, *, covariates=None):
        """Log of the posterior predictive density (or probability) of each row.

        The parameters of the components are integrated out, so that the density integrates to 1,
        and the values of binary columns and categories have probabilities that sum to 1. Gaussian
        components become Student-t densities; with ``factorization="independent"`` of Gaussian
        mixtures these are an approximation, whose scale adds the uncertainty of the mean. Of a row
        with missing cells it is the density of the observed ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Rows, as :meth:`fit` takes them.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then. The weights of a row
            are those of the posterior means of the coefficients.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Log densities in nats.
        """
        rows, _ = self._again(X, covariates)
        ctx = self._context()
        return finite(ctx.model.log_predictive(rows, ctx.q), OVERFLOW)

    def score(self, X, y=None, sample_weight=None, *, covariates=None):
        """Mean log predictive density per row, or the accuracy of a classifier.

        With ``n_components_per_class`` it is the share of the rows with a label whose class
        :meth:`predict` finds. The mean log density is then ``score_samples(X).mean()``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in parts
            Rows, as :meth:`fit` takes them.
        y : array-like of shape (n_samples,), default=None
            Ignored unless ``n_components_per_class`` is given. Then it has the classes of rows;
            rows whose class is unknown (−1, None or NaN) do not count.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights with which the rows enter the mean. With data in parts, one array for each part.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then. With data in parts,
            one array for each part.

        Returns
        -------
        score : float
            The mean in nats per row, or the accuracy; higher is better.
        """
        how = {} if covariates is None else {"covariates": covariates}
        return self._score(X, y, sample_weight, **how)

    def aic(self, X, sample_weight=None, *, covariates=None):
        """Akaike's information criterion at the posterior means.

        It counts the parameters as if each were one number that was fitted freely. ``lower_bound_``
        takes into account how well the data determine them, and the prior; it is the better
        criterion for the number of components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, as :meth:`fit` takes them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then.

        Returns
        -------
        aic : float
            2 p − 2 log L, where L is the likelihood and p the number of free parameters; the lower
            the better.
        """
        log_likelihood, _ = self._log_likelihood(X, sample_weight, covariates)
        return float(2.0 * self._context().model.n_parameters - 2.0 * log_likelihood)

    def bic(self, X, sample_weight=None, *, covariates=None):
        """Bayesian information criterion at the posterior means.

        It approximates −2 times the log evidence as if each parameter were one number that all
        rows determine. ``lower_bound_`` bounds that evidence without this approximation, with the
        prior that was used, and is the better criterion for the number of components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, as :meth:`fit` takes them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        covariates : array-like of shape (n_samples, n_covariates), default=None
            Covariates of the rows, if the fit had covariates, and only then.

        Returns
        -------
        bic : float
            p log N − 2 log L, where L is the likelihood, p the number of free parameters and N the
            number of rows, or the sum of their weights; the lower the better.
        """
        log_likelihood, n_rows = self._log_likelihood(X, sample_weight, covariates)
        return float(self._context().model.n_parameters * np.log(n_rows) - 2.0 * log_likelihood)

    def _rows(self, X: ArrayLike) -> tuple[Context, Rows]:
        return self._context(), self._again(X)[0]

    def _plain_if_few(self, rows: Rows) -> Rows:
        """Let plain kernels read the rows if they are few, so that none has to be compiled."""
        rows.plain = self._context().model.components.n_terms(rows) <= _MOST_PLAIN
        return rows

    @explains("Prediction")
    def _log_joint(self, rows: Rows) -> np.ndarray:
        ctx = self._context()
        expected = ctx.model.expectations(ctx.q)
        own = ctx.model.components.for_rows(expected.own, rows)
        return finite(ctx.model.log_joint(rows, expected._replace(own=own)), OVERFLOW)

    @explains("Prediction")
    def _responsibilities(self, rows: Rows) -> np.ndarray:
        """Return q(z_n = k), which follows from expected log densities, (n_rows, n_components)."""
        return _normalised(self._log_joint(rows))

    @explains("Prediction")
    def _predictive_shares(self, rows: Rows) -> np.ndarray:
        """Return p(z_n = k | x_n, data), which follows from predictive densities."""
        ctx = self._context()
        return _normalised(finite(ctx.model.log_joint_predictive(rows, ctx.q), OVERFLOW))

    @explains("Prediction")
    def _log_likelihood(
        self, X: ArrayLike, sample_weight: ArrayLike | None, covariates: ArrayLike | None
    ) -> tuple[float, float]:
        """The log-likelihood of all rows at the posterior means, and the sum of their weights."""
        ctx = self._context()
        X, weights, covariates = self._counted_beside(X, sample_weight, covariates)
        rows, _ = self._again(X, covariates)
        each = finite(ctx.model.log_likelihood(rows, ctx.q), OVERFLOW)
        if weights is None:
            return float(each.sum()), float(len(each))
        return float(weights @ each), float(weights.sum())


def _normalised(log_joint: np.ndarray) -> np.ndarray:
    """Return the shares of components that are proportional to exp(``log_joint``), in its place."""
    log_joint -= log_joint.max(axis=1, keepdims=True)
    np.exp(log_joint, out=log_joint)
    log_joint /= log_joint.sum(axis=1, keepdims=True)
    return log_joint
