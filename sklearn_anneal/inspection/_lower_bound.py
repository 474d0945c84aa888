"""The lower bound over the passes of one or several fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._plotting import Curve, add_legend, count_passes, draw_curve, new_axes, read_curves, tidy


class LowerBoundDisplay:
    """Lower bound over the passes of one or several fits.

    The bound is that of the untempered problem, in nats, also while a fit anneals, so that curves
    can be compared. A dot marks the last annealed pass. If a method evaluates the bound only every
    few passes, a diamond marks each of these.

    Use :meth:`from_estimator` or :meth:`from_estimators` to make one.

    Parameters
    ----------
    lower_bounds : dict of str to array-like of shape (n_passes,)
        Lower bound after each pass, by the name for the legend; NaN where it was not evaluated.
    n_annealed : dict of str to int, default=None
        How many of the passes were annealed, by the same names; None: none of them.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes that hold the picture.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The curves, in the order of ``lower_bounds``.

    See Also
    --------
    TemperatureDisplay : The temperature over the same passes.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture
    >>> from sklearn_anneal.inspection import LowerBoundDisplay
    >>> X = load_iris().data
    >>> mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
    >>> display = LowerBoundDisplay.from_estimator(mixture.fit(X))
    >>> plt.show()
    >>> display.ax_.get_ylabel()
    'Lower bound (nats)'
    """

    def __init__(
        self,
        *,
        lower_bounds: Mapping[str, Any],
        n_annealed: Mapping[str, int] | None = None,
    ):
        self.lower_bounds = lower_bounds
        self.n_annealed = n_annealed

    def plot(self, ax=None, *, whole_range=False, curve_kwargs=None):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        whole_range : bool, default=False
            Whether the vertical axis spans all values. By default it spans the part in which
            the fits differ when they end; the first passes, whose bounds may be lower by orders of
            magnitude, enter the picture from below.
        curve_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.plot`` for every curve.

        Returns
        -------
        display : LowerBoundDisplay
            This object, with ``ax_``, ``figure_`` and ``lines_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = new_axes(ax, f"{type(self).__name__}.plot")
        counts = self.n_annealed or {}
        curves = {
            name: Curve(np.asarray(values, dtype=float), counts.get(name, 0))
            for name, values in self.lower_bounds.items()
        }
        self.lines_ = [
            draw_curve(ax, name, curve, i, **(curve_kwargs or {}))
            for i, (name, curve) in enumerate(curves.items())
        ]
        if not whole_range:
            _focus(ax, curves.values())
        count_passes(ax)
        ax.set_ylabel("Lower bound (nats)")
        # Bounds are large numbers whose last digits matter, so that all digits are written.
        ax.ticklabel_format(axis="y", style="plain", useOffset=False)
        tidy(ax)
        add_legend(ax, curves)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, name=None, whole_range=False, curve_kwargs=None):
        """Draw the lower bound of one fitted estimator.

        Parameters
        ----------
        estimator : estimator instance
            Fitted estimator of this package.
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        name : str, default=None
            Name in the legend; None: that of the estimator's class.
        whole_range : bool, default=False
            Whether the vertical axis spans all values, see :meth:`plot`.
        curve_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.plot``.

        Returns
        -------
        display : LowerBoundDisplay

        Raises
        ------
        TypeError
            If the estimator is not one of this package.
        sklearn.exceptions.NotFittedError
            If it is not fitted.
        """
        name = type(estimator).__name__ if name is None else name
        return cls.from_estimators(
            {name: estimator}, ax=ax, whole_range=whole_range, curve_kwargs=curve_kwargs
        )

    @classmethod
    def from_estimators(cls, estimators, *, ax=None, whole_range=False, curve_kwargs=None):
        """Draw the lower bounds of several fitted estimators in the same axes.

        Parameters
        ----------
        estimators : dict of str to estimator instance
            Fitted estimators of this package by the name for the legend. Their bounds can be
            compared if they were fitted to the same data.
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        whole_range : bool, default=False
            Whether the vertical axis spans all values, see :meth:`plot`.
        curve_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.plot`` for every curve.

        Returns
        -------
        display : LowerBoundDisplay

        Raises
        ------
        ValueError
            If ``estimators`` is not a dict or is empty.
        TypeError
            If an estimator is not one of this package.
        sklearn.exceptions.NotFittedError
            If one is not fitted.
        """
        curves = read_curves(estimators, "lower_bounds_", cls.__name__)
        display = cls(
            lower_bounds={name: curve.values for name, curve in curves.items()},
            n_annealed={name: curve.n_annealed for name, curve in curves.items()},
        )
        return display.plot(ax, whole_range=whole_range, curve_kwargs=curve_kwargs)


def _focus(ax: Any, curves: Iterable[Curve]) -> None:
    """Set the vertical range so that it cuts off the very low bounds of early passes.

    It includes the values at the ends of the fits and of their annealing, and those of most passes.
    """
    known, landmarks = [], []
    for curve in curves:
        finite = np.isfinite(curve.values)
        if finite.any():
            known.append(curve.values[finite])
            annealed = curve.values[: curve.n_annealed][finite[: curve.n_annealed]]
            landmarks += [known[-1][-1], *annealed[-1:]]
    if not known:
        return
    top = max(values.max() for values in known)
    typical = np.median([np.quantile(values, 0.25) for values in known])
    reach = max(1.2 * (top - min(landmarks)), 2.5 * (top - typical))
    bottom = max(top - reach, min(values.min() for values in known))
    if top > bottom:
        margin = 0.05 * (top - bottom)
        ax.set_ylim(bottom - margin, top + margin)
