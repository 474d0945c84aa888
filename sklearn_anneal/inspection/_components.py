"""Lower bound and held-out score by the number of components."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.parallel import Parallel, delayed

from ..estimators._base import BaseAnnealed
from ._plotting import COLORS, import_pyplot, tidy


class ComponentsDisplay:
    """Lower bound and held-out score of fits with different numbers of components.

    The complete lower bound on the evidence falls when components are added that the data do not
    need, so that its maximum chooses a number without any held-out data. The cross-validated score
    says how well new data are predicted. The best number by each is marked.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    n_components : array-like of int, shape (n_values,)
        The numbers of components.
    lower_bounds : array-like of shape (n_values,)
        Lower bound of the fit to all data, nats.
    scores : array-like of shape (n_values, n_folds)
        Score of the data of each fold by the fit to the other folds.
    param_name : str, default="n_components"
        The parameter with these values, for the label of the axis.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (2,)
        The axes of the bounds and of the scores.
    figure_ : matplotlib Figure
        The figure of these axes.

    See Also
    --------
    sklearn.model_selection.ValidationCurveDisplay : The training and held-out scores over the
        values of any parameter.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.model_selection import KFold
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture
    >>> from sklearn_anneal.inspection import ComponentsDisplay
    >>> X, _ = make_blobs(75, centers=3, random_state=1)
    >>> mixture = AnnealedBayesianGaussianMixture(random_state=0)
    >>> folds = KFold(3, shuffle=True, random_state=0)
    >>> display = ComponentsDisplay.from_estimator(mixture, X, n_components=range(2, 5), cv=folds)
    >>> plt.show()
    >>> int(display.n_components[display.lower_bounds.argmax()])
    3
    """

    def __init__(self, *, n_components, lower_bounds, scores, param_name="n_components"):
        self.n_components = n_components
        self.lower_bounds = lower_bounds
        self.scores = scores
        self.param_name = param_name

    def plot(self, axes=None):
        """Draw the bounds, and below them the mean scores with their standard errors.

        Parameters
        ----------
        axes : array-like of two matplotlib Axes, default=None
            The axes for bounds and scores; None: a new figure.

        Returns
        -------
        display : ComponentsDisplay
            This object, with ``axes_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If ``axes`` are not two.
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        if axes is None:
            axes = plt.subplots(2, sharex=True, layout="constrained")[1]
        axes = np.ravel(axes)
        if len(axes) != 2:
            raise ValueError(f"The picture has two axes, for bounds and scores; got {len(axes)}.")
        numbers, scores = np.asarray(self.n_components), np.asarray(self.scores)
        errors = scores.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
        rows = [
            ("Lower bound (nats)", np.asarray(self.lower_bounds), None),
            ("Held-out score", scores.mean(axis=1), errors),
        ]
        for i, (ax, (label, values, spread)) in enumerate(zip(axes, rows, strict=True)):
            ax.errorbar(numbers, values, spread, color=COLORS[i], marker="o", capsize=3)
            if np.isfinite(values).any():
                best = int(np.nanargmax(values))
                ax.axvline(numbers[best], color="0.6", linestyle=":")
                ax.set_title(f"best: {numbers[best]}", fontsize="medium", loc="right")
            ax.set_ylabel(label)
            tidy(ax)
        axes[1].set_xlabel(self.param_name)
        axes[1].set_xticks(numbers)
        self.axes_, self.figure_ = axes, axes[0].figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        n_components,
        cv=None,
        param_name="n_components",
        n_jobs=None,
        axes=None,
    ):
        """Fit an estimator with several numbers of components, and draw the bounds and scores.

        Parameters
        ----------
        estimator : estimator instance
            Estimator of this package; it is cloned and not changed.
        X : array-like, sparse matrix or list of sequences
            The data, as ``fit`` takes them.
        y : array-like, default=None
            The ratings of pairs; other estimators have none.
        n_components : sequence of int
            Numbers of components to compare.
        cv : int, cross-validation generator or iterable, default=None
            How held-out data are split, as in :func:`sklearn.model_selection.cross_val_score`;
            None: five folds of neighbouring rows. Shuffle rows that are sorted.
        param_name : str, default="n_components"
            Name of the parameter that has the number of components.
        n_jobs : int, default=None
            Number of fits that run at the same time.
        axes : array-like of two matplotlib Axes, default=None
            The axes to draw on; None: a new figure.

        Returns
        -------
        display : ComponentsDisplay

        Raises
        ------
        TypeError
            If the estimator is not one of this package.
        ValueError
            If ``n_components`` is empty, or not all of them are integers.
        """
        if not isinstance(estimator, BaseAnnealed):
            raise TypeError(
                f"{cls.__name__} compares lower bounds of estimators of sklearn_anneal, but got "
                f"{type(estimator).__name__}."
            )
        numbers = np.array(list(n_components))
        if len(numbers) == 0:
            raise ValueError("n_components has no number of components to compare.")
        if numbers.dtype.kind not in "iu":
            raise ValueError(f"n_components must be integers; got {n_components!r}.")
        import_pyplot(f"{cls.__name__}.from_estimator")
        models = [clone(estimator).set_params(**{param_name: int(k)}) for k in numbers]
        bounds = Parallel(n_jobs=n_jobs)(delayed(_bound)(model, X, y) for model in models)
        scores = [cross_val_score(model, X, y, cv=cv, n_jobs=n_jobs) for model in models]
        display = cls(
            n_components=numbers,
            lower_bounds=np.array(bounds),
            scores=np.array(scores),
            param_name=param_name,
        )
        return display.plot(axes)


def _bound(model: BaseAnnealed, X: ArrayLike, y: ArrayLike | None) -> float:
    return float(clone(model).fit(X, y).lower_bound_)
