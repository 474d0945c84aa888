"""The temperature over the passes of one or several fits."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._plotting import Curve, add_legend, count_passes, draw_curve, new_axes, read_curves, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class TemperatureDisplay:
    """Temperature over the passes of one or several fits.

    The temperature is a pure number, 1 for the untempered problem; with local tempering it is
    the mean over the data points. A dot marks the last annealed pass. Methods that anneal by
    noise and not by temperature are at 1 throughout; they share a grey line.

    Use :meth:`from_estimator` or :meth:`from_estimators` to make one.

    Parameters
    ----------
    temperatures : dict of str to array-like of shape (n_passes,)
        Temperature of each pass, at least 1, by the name for the legend.
    n_annealed : dict of str to int, default=None
        How many of the passes were annealed, by the same names; None: none of them.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes that hold the picture.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The curves, in the order of ``temperatures``; those at 1 throughout are one line at the
        end.

    See Also
    --------
    LowerBoundDisplay : The lower bound over the same passes.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_anneal import AnnealedBayesianGaussianMixture
    >>> from sklearn_anneal.inspection import TemperatureDisplay
    >>> X = load_iris().data
    >>> mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0)
    >>> display = TemperatureDisplay.from_estimator(mixture.fit(X))
    >>> plt.show()
    >>> display.ax_.get_ylabel()
    'Temperature'
    """

    def __init__(
        self,
        *,
        temperatures: Mapping[str, Any],
        n_annealed: Mapping[str, int] | None = None,
    ):
        self.temperatures = temperatures
        self.n_annealed = n_annealed

    def plot(self, ax=None, *, yscale="auto", curve_kwargs=None):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        yscale : {"auto", "linear", "log"}, default="auto"
            Scale of the temperature; "auto": logarithmic if a temperature reaches 10.
        curve_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.plot`` for every curve.

        Returns
        -------
        display : TemperatureDisplay
            This object, with ``ax_``, ``figure_`` and ``lines_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If ``yscale`` is none of the three.
        """
        if yscale not in ("auto", "linear", "log"):
            raise ValueError(
                f"yscale should be 'auto', 'linear' or 'log', but got {yscale!r}; other scales "
                "can be set on ax_ after plotting."
            )
        ax = new_axes(ax, f"{type(self).__name__}.plot")
        kwargs = curve_kwargs or {}
        counts = self.n_annealed or {}
        curves = {
            name: Curve(np.asarray(values, dtype=float), counts.get(name, 0))
            for name, values in self.temperatures.items()
        }
        flat = [name for name, curve in curves.items() if np.all(curve.values == 1.0)]
        hot = {name: curve for name, curve in curves.items() if name not in flat}
        # Curves at 1 throughout are counted too, so that a name has the same colour here as in
        # LowerBoundDisplay.
        self.lines_ = [
            draw_curve(ax, name, curve, i, **kwargs)
            for i, (name, curve) in enumerate(curves.items())
            if name in hot
        ]
        if flat:
            longest = max(len(curves[name].values) for name in flat)
            style = {"color": "0.55", "linewidth": 4.0, "alpha": 0.6, "zorder": 1.5}
            label = textwrap.fill("always 1: " + ", ".join(flat), 26)
            self.lines_ += ax.plot(
                np.arange(1, longest + 1), np.ones(longest), label=label, **(style | kwargs)
            )
        hottest = max((curve.values.max() for curve in hot.values()), default=1.0)
        if yscale == "log" or (yscale == "auto" and hottest >= 10):
            _plain_log_axis(ax)
        count_passes(ax)
        ax.set_ylabel("Temperature")
        tidy(ax)
        add_legend(ax, hot)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, name=None, yscale="auto", curve_kwargs=None):
        """Draw the temperature of one fitted estimator.

        Parameters
        ----------
        estimator : estimator instance
            Fitted estimator of this package.
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        name : str, default=None
            Name in the legend; None: that of the estimator's class.
        yscale : {"auto", "linear", "log"}, default="auto"
            Scale of the temperature, see :meth:`plot`.
        curve_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.plot``.

        Returns
        -------
        display : TemperatureDisplay

        Raises
        ------
        TypeError
            If the estimator is not one of this package.
        sklearn.exceptions.NotFittedError
            If it is not fitted.
        """
        name = type(estimator).__name__ if name is None else name
        return cls.from_estimators(
            {name: estimator}, ax=ax, yscale=yscale, curve_kwargs=curve_kwargs
        )

    @classmethod
    def from_estimators(cls, estimators, *, ax=None, yscale="auto", curve_kwargs=None):
        """Draw the temperatures of several fitted estimators in the same axes.

        Parameters
        ----------
        estimators : dict of str to estimator instance
            Fitted estimators of this package by the name for the legend.
        ax : matplotlib Axes, default=None
            The axes to draw on; None: a new figure.
        yscale : {"auto", "linear", "log"}, default="auto"
            Scale of the temperature, see :meth:`plot`.
        curve_kwargs : dict, default=None
            Passed to ``matplotlib.pyplot.plot`` for every curve.

        Returns
        -------
        display : TemperatureDisplay

        Raises
        ------
        ValueError
            If ``estimators`` is not a dict or is empty.
        TypeError
            If an estimator is not one of this package.
        sklearn.exceptions.NotFittedError
            If one is not fitted.
        """
        curves = read_curves(estimators, "temperatures_", cls.__name__)
        display = cls(
            temperatures={name: curve.values for name, curve in curves.items()},
            n_annealed={name: curve.n_annealed for name, curve in curves.items()},
        )
        return display.plot(ax, yscale=yscale, curve_kwargs=curve_kwargs)


def _plain_log_axis(ax: Axes) -> None:
    """A logarithmic axis labelled 1, 2, 5, 10, … instead of by powers."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    ax.yaxis.set_minor_formatter(NullFormatter())
