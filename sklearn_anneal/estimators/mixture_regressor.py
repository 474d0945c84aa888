"""Regression by a mixture of the regressors and the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, MultiOutputMixin, RegressorMixin, clone
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ._mixture_predictions import MixturePredictions
from ._tables import validated_table


class MixtureRegressor(MultiOutputMixin, RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """Regression by a mixture: the conditional mean of targets given the other columns.

    A mixture is fitted to the table of X and y. Given its component, y is a linear function of X if
    the components are Gaussians with full covariances, and rows are assigned to components by their
    X, so that the regression is a soft switch between linear ones (Gaussian mixture regression
    [1]_). Missing cells of X are integrated out.

    ``predict`` and ``score`` of mixtures themselves are about components and densities. The
    regression is therefore a class of its own, which has the methods of every regressor: R² as its
    score, in :func:`sklearn.model_selection.cross_val_score` too, and parameters of the mixture by
    ``estimator__n_components`` in a grid search. Of a mixture that is fitted already,
    ``impute(X, return_std=True)`` gives the same predictions of columns whose cells are NaN.

    Parameters
    ----------
    estimator : AnnealedBayesianGaussianMixture or AnnealedBayesianMixture
        The mixture, of which a copy is fitted. The targets are its last columns, after those of X.

    Attributes
    ----------
    estimator_ : estimator
        The fitted mixture of the columns of X and the targets.
    n_outputs_ : int
        The number of targets.
    n_features_in_ : int
        The number of columns of X.
    feature_names_in_ : ndarray of str, shape (n_features,)
        Their names, if X had names of columns.

    References
    ----------
    .. [1] Ghahramani, Jordan (1994). Supervised learning from incomplete data via an EM approach.
       NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture, MixtureRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(200, 1))
    >>> y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=200)
    >>> mixture = AnnealedBayesianGaussianMixture(2, random_state=0)
    >>> regressor = MixtureRegressor(mixture).fit(X, y)
    >>> regressor.predict([[-1.0], [1.5]]).round(1)
    array([1. , 1.5])
    >>> round(regressor.score(X, y), 2)
    0.97
    """

    def __init__(self, estimator):
        self.estimator = estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X, y, sample_weight=None):
        """Fit the mixture to the table of X and y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Regressors, in which missing cells are NaN.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self : MixtureRegressor
            The fitted estimator.

        Raises
        ------
        TypeError
            If ``estimator`` is no mixture.
        ValueError
            If a target has categories, which have no mean.
        """
        if not isinstance(self.estimator, MixturePredictions):
            raise TypeError(
                "estimator should be AnnealedBayesianGaussianMixture or AnnealedBayesianMixture, "
                f"but is {self.estimator!r}."
            )
        if y is None:
            raise ValueError("MixtureRegressor requires y to be passed, but the target y is None.")
        X = self._table(X, reset=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(X, y)
        self._flat = y.ndim == 1
        y = y.reshape(len(y), -1)
        self.n_outputs_ = y.shape[1]
        table = np.hstack([X, y])
        self.estimator_ = clone(self.estimator).fit(table, sample_weight=sample_weight)
        _, std = self._filled(np.full((1, X.shape[1]), np.nan))
        if np.isnan(std).any():
            raise ValueError(
                "A target has categories or is binary, and categories have no mean. Fit the "
                "mixture to X and y, and call its impute."
            )
        return self

    def predict(self, X, return_std=False):
        """Conditional mean of the targets, given the observed cells of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, in which missing cells are NaN.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Means of the posterior predictive distribution.
        std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Its standard deviations, which are those of single values of y. Only returned if
            ``return_std`` is True.
        """
        check_is_fitted(self)
        mean, std = self._filled(self._table(X, reset=False))
        if self._flat:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def _table(self, X: Any, reset: bool) -> np.ndarray:
        found: np.ndarray = validated_table(
            self,
            X,
            reset=reset,
            ensure_min_samples=2 if reset else 1,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        return found

    def _filled(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the means and the standard deviations of the targets, (n_rows, n_outputs)."""
        table = np.hstack([X, np.full((len(X), self.n_outputs_), np.nan)])
        found = self.estimator_.impute(table, return_std=True)
        mean, std = (np.asarray(each)[:, X.shape[1] :] for each in found)
        return mean, std
