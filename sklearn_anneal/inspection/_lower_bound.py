"""The lower bound over the passes of one or several fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._plotting import Curve, add_legend, count_passes, draw_curve, new_axes, read_curves, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The name of each move in the legend, and its mark.
_MARKS = {
    "reheat": ("reheat of the result", "^"),
    "guided swap": ("swap of components", "s"),
    "random swap": ("swap of components", "s"),
    "merge": ("merge of components", "P"),
    "refit": ("refit of some components", "8"),
    "start": ("new start", "v"),
    "plain": ("start without annealing", "<"),
    "reorder": ("other order of components", "X"),
    "cooling": ("rows cooled anew", "d"),
    "continuation": ("more passes", ">"),
    "extension": ("another part of the model", "h"),
    "reduction": ("components in use alone", "p"),
    "guided reshape": ("other durations of states", "D"),
    "random reshape": ("other durations of states", "D"),
}


class LowerBoundDisplay:
    """Lower bound over the passes of one or several fits.

    The bound is that of the untempered problem, in nats, also while a fit anneals, so that curves
    can be compared. A dot marks the last annealed pass. If a method evaluates the bound only every
    few passes, a diamond marks each of these.

    A curve has the passes that led to the result. After the first fit, a search tries moves: it
    reheats the result, exchanges, merges or sorts components, or starts anew. A mark says what a
    move was, where it ended, and by being filled that it was kept. The curve goes through the marks
    of moves that are a part of it: it may fall where one begins, and is higher at its end. An
    empty mark is the end of a move that was given up because its bound was no higher.

    Use :meth:`from_estimator` or :meth:`from_estimators` to make one.

    Parameters
    ----------
    lower_bounds : dict of str to array-like of shape (n_passes,)
        Lower bound after each pass, by the name for the legend; NaN where it was not evaluated.
    n_annealed : dict of str to int, default=None
        How many of the passes were annealed, by the same names; None: none of them.
    moves : dict of str to dict, default=None
        The moves of each search, by the same names, as ``search_results_`` of estimators has them;
        None: no moves are marked.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes that hold the picture.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The curves, in the order of ``lower_bounds``.
    marks_ : dict of tuple to list of matplotlib Line2D
        The marks of moves, by the name of the move and whether it was kept.

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
        moves: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        self.lower_bounds = lower_bounds
        self.n_annealed = n_annealed
        self.moves = moves

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
            This object, with ``ax_``, ``figure_``, ``lines_`` and ``marks_``.

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
        self.marks_ = {}
        for name, line in zip(curves, self.lines_, strict=True):
            self._mark_moves(ax, (self.moves or {}).get(name, {}), line)
        if not whole_range:
            _focus(ax, curves.values())
        count_passes(ax)
        ax.set_ylabel("Lower bound (nats)")
        # Bounds are large numbers whose last digits matter, so that all digits are written.
        ax.ticklabel_format(axis="y", style="plain", useOffset=False)
        tidy(ax)
        add_legend(ax, curves, self._meanings(ax))
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _mark_moves(self, ax: Axes, moves: Mapping[str, Any], line: Any) -> None:
        """Draw a mark where each move of a fit ended, in the colour of its curve."""
        names = np.asarray(moves.get("move", []), dtype=object)
        for name in dict.fromkeys(names):
            for kept in (True, False):
                chosen = (names == name) & (np.asarray(moves["kept"]) == kept)
                if not chosen.any():
                    continue
                passes = np.asarray(moves["n_before"]) + np.asarray(moves["n_passes"])
                (marks,) = ax.plot(
                    passes[chosen],
                    np.asarray(moves["lower_bound"], dtype=float)[chosen],
                    linestyle="none",
                    color=line.get_color(),
                    zorder=line.get_zorder() + 2,
                    **_style(name, kept),
                )
                self.marks_.setdefault((name, kept), []).append(marks)

    def _meanings(self, ax: Axes) -> dict[str, dict[str, Any]]:
        """The styles of the marks that are in view, by their meaning."""
        low, high = ax.get_ylim()
        found = {}
        for (name, kept), lines in self.marks_.items():
            bounds = np.concatenate([line.get_ydata() for line in lines])
            if ((bounds >= low) & (bounds <= high)).any():
                meaning = _MARKS.get(name, (name, "d"))[0]
                found[f"{meaning}, {'kept' if kept else 'given up'}"] = _style(name, kept)
        return found

    @classmethod
    def from_estimator(
        cls,
        estimator,
        *,
        ax=None,
        name=None,
        whole_range=False,
        show_moves=True,
        curve_kwargs=None,
    ):
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
        show_moves : bool, default=True
            Whether the moves of the search are marked.
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
            {name: estimator},
            ax=ax,
            whole_range=whole_range,
            show_moves=show_moves,
            curve_kwargs=curve_kwargs,
        )

    @classmethod
    def from_estimators(
        cls, estimators, *, ax=None, whole_range=False, show_moves=True, curve_kwargs=None
    ):
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
        show_moves : bool, default=True
            Whether the moves of the search are marked.
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
            moves={str(name): each.search_results_ for name, each in estimators.items()}
            if show_moves
            else None,
        )
        return display.plot(ax, whole_range=whole_range, curve_kwargs=curve_kwargs)


def _style(move: str, kept: bool) -> dict[str, Any]:
    """The style of the marks of a move, filled if it was kept."""
    style = {"marker": _MARKS.get(move, (move, "d"))[1], "markersize": 6.5, "markeredgewidth": 1.1}
    return style if kept else {**style, "markerfacecolor": "none"}


def _focus(ax: Axes, curves: Iterable[Curve]) -> None:
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
