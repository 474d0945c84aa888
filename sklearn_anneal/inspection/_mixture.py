"""Ellipses of a Gaussian mixture in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from ..estimators._base import BaseAnnealed
from ._plotting import COLORS, new_axes, tidy

_COLORS = COLORS[:6]  # black and grey would look like data or emphasis


class MixtureEllipseDisplay:
    """Components of a Gaussian mixture of two features, as ellipses over the data.

    Each component in use has ellipses at the given numbers of standard deviations, darker and
    with a larger dot at the mean the more weight it has. Components whose expected count of rows
    is below 1 are left out.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    means : ndarray of shape (n_components, 2)
        Means of the components.
    covariances : ndarray of shape (n_components, 2, 2)
        Their covariance matrices.
    weights : ndarray of shape (n_components,)
        Their weights.
    X : ndarray of shape (n_samples, 2), default=None
        Rows to draw behind the ellipses; None: no rows.
    feature_names : sequence of two str, default=None
        Labels of the axes; None: "Feature 0" and "Feature 1".

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes that hold the picture.
    figure_ : matplotlib Figure
        The figure of these axes.
    ellipses_ : list of list of matplotlib Ellipse
        The ellipses of each component, one per entry of ``n_std``.

    See Also
    --------
    LowerBoundDisplay : The lower bound over the passes of the fit.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture
    >>> from sklearn_anneal.inspection import MixtureEllipseDisplay
    >>> X = load_iris().data[:, 2:]
    >>> mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0).fit(X)
    >>> display = MixtureEllipseDisplay.from_estimator(mixture, X)
    >>> plt.show()
    >>> len(display.ellipses_) == mixture.n_effective_components_
    True
    """

    def __init__(self, *, means, covariances, weights, X=None, feature_names=None):
        self.means = means
        self.covariances = covariances
        self.weights = weights
        self.X = X
        self.feature_names = feature_names

    def plot(self, ax=None, *, n_std=(1.0, 2.0), scatter_kwargs=None, ellipse_kwargs=None):
        """Draw the ellipses over the data.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        n_std : float or sequence of float, default=(1.0, 2.0)
            Radii of the ellipses in standard deviations, positive.
        scatter_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.scatter`` for the rows.
        ellipse_kwargs : dict, default=None
            Passed to ``matplotlib.patches.Ellipse`` for every ellipse.

        Returns
        -------
        display : MixtureEllipseDisplay
            This object, with ``ax_``, ``figure_`` and ``ellipses_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If ``n_std`` is empty or not positive.
        """
        radii = np.sort(np.atleast_1d(np.asarray(n_std, dtype=float)))[::-1]
        if radii.ndim != 1 or radii.size == 0 or not np.all(radii > 0):
            raise ValueError(
                f"n_std should be a positive number or a sequence of them, but got {n_std!r}."
            )
        ax = new_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.patches import Ellipse

        if self.X is not None:
            dots = {"s": 9, "color": "0.6", "linewidths": 0, "zorder": 1}
            ax.scatter(self.X[:, 0], self.X[:, 1], **{**dots, **(scatter_kwargs or {})})
        weights = np.asarray(self.weights, dtype=float)
        shares = weights / max(weights.max(initial=0.0), np.finfo(float).tiny)
        self.ellipses_ = []
        for k, (mean, covariance, share) in enumerate(
            zip(self.means, self.covariances, shares, strict=True)
        ):
            variances, axes = np.linalg.eigh(covariance)
            color = _COLORS[k % len(_COLORS)]
            shape = {
                "angle": np.degrees(np.arctan2(axes[1, 1], axes[0, 1])),
                "facecolor": (color, 0.06 + 0.22 * share),
                "edgecolor": (color, 0.35 + 0.65 * share),
                "linewidth": 1.4,
                "zorder": 2,
            }
            patches = [
                Ellipse(
                    mean,
                    2 * r * np.sqrt(variances[1]),
                    2 * r * np.sqrt(variances[0]),
                    **{**shape, **(ellipse_kwargs or {})},
                )
                for r in radii
            ]
            for patch in patches:
                ax.add_patch(patch)
            ax.scatter(*mean, s=12 + 70 * share, color=color, edgecolors="white", zorder=3)
            self.ellipses_.append(patches)
        key = Ellipse((0, 0), 1, 1, facecolor="0.93", edgecolor="0.4")
        counts = " and ".join(f"{r:g}" for r in radii[::-1])
        plural = "" if list(radii) == [1.0] else "s"
        ax.legend([key], [f"{counts} standard deviation{plural}"], framealpha=0.9, fontsize="small")
        names = ("Feature 0", "Feature 1") if self.feature_names is None else self.feature_names
        ax.set_xlabel(names[0])
        ax.set_ylabel(names[1])
        tidy(ax)
        ax.autoscale_view()
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X=None,
        *,
        ax=None,
        n_std=(1.0, 2.0),
        scatter_kwargs=None,
        ellipse_kwargs=None,
    ):
        """Draw the components of a fitted mixture of two features.

        Parameters
        ----------
        estimator : estimator instance
            Fitted Gaussian mixture: of this package, or a
            :class:`sklearn.mixture.BayesianGaussianMixture`.
        X : array-like of shape (n_samples, 2), default=None
            Rows to draw behind the ellipses; None: no rows.
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        n_std : float or sequence of float, default=(1.0, 2.0)
            Radii of the ellipses in standard deviations.
        scatter_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.scatter`` for the rows.
        ellipse_kwargs : dict, default=None
            Passed to ``matplotlib.patches.Ellipse`` for every ellipse.

        Returns
        -------
        display : MixtureEllipseDisplay

        Raises
        ------
        TypeError
            If the estimator is no Bayesian Gaussian mixture.
        ValueError
            If the mixture, or X, does not have two features.
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        """
        check_is_fitted(estimator)
        ours = isinstance(estimator, BaseAnnealed)
        if not (
            hasattr(estimator, "covariances_")
            and (ours or hasattr(estimator, "weight_concentration_"))
        ):
            raise TypeError(
                f"{cls.__name__} draws components of AnnealedBayesianGaussianMixture or "
                "sklearn.mixture.BayesianGaussianMixture, but got "
                f"{type(estimator).__name__}. Give means=, covariances= and weights= to the class "
                "itself for those of any other mixture."
            )
        _check_two_features("the mixture was fitted to", estimator.n_features_in_)
        names = getattr(estimator, "feature_names_in_", None)
        if X is not None:
            X = check_array(X, dtype=float)
            _check_two_features("X has", X.shape[1])
        used = _expected_counts(estimator) >= 1
        display = cls(
            means=estimator.means_[used],
            covariances=_matrices(estimator)[used],
            weights=estimator.weights_[used],
            X=X,
            feature_names=names,
        )
        return display.plot(
            ax, n_std=n_std, scatter_kwargs=scatter_kwargs, ellipse_kwargs=ellipse_kwargs
        )


def _check_two_features(who: str, n_features: int) -> None:
    if n_features != 2:
        raise ValueError(
            f"MixtureEllipseDisplay draws mixtures of 2 features, but {who} {n_features}. Choose "
            "two columns, or reduce the data first, for example by "
            "sklearn.decomposition.PCA(n_components=2), and fit the mixture to the result."
        )


def _expected_counts(estimator: Any) -> np.ndarray:
    """The expected number of rows of each component, which our mixtures know.

    In others, the rows add it to the prior concentration of the component's weight.
    """
    if isinstance(estimator, BaseAnnealed):
        ctx = estimator._quiet_context()
        return ctx.model.weights.expected_counts(ctx.q, ctx.prior)
    concentration = estimator.weight_concentration_
    if isinstance(concentration, tuple):
        return concentration[0] - 1.0
    return concentration - estimator.weight_concentration_prior_


def _matrices(estimator: BaseAnnealed) -> np.ndarray:
    """Covariance matrices of shape (n_components, 2, 2), for every covariance type."""
    c = estimator.covariances_
    if estimator.covariance_type == "full":
        return c
    if estimator.covariance_type == "tied":
        return np.broadcast_to(c, (len(estimator.means_), 2, 2))
    return np.reshape(c, (len(c), -1, 1)) * np.eye(2)
