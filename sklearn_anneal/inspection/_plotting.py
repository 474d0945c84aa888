"""Functions that the displays share: axes, colours, and reading the history of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators._base import BaseAnnealed
from ..estimators._validation import read_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# This is the palette of Okabe and Ito (2008), whose colours readers with any of the three common
# forms of colour blindness can distinguish. Grey takes the place of their yellow, because thin
# yellow lines vanish on white.
COLORS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c8c",
)  # fmt: skip
_STYLES = ("-", (0, (6, 2)), (0, (1.5, 1.5)))
_DOT: dict[str, Any] = {
    "marker": "o", "markersize": 8, "markerfacecolor": "white", "markeredgewidth": 1.8,
}  # fmt: skip


class Curve(NamedTuple):
    """One quantity over the passes of a fit."""

    values: np.ndarray  # after each pass, (n_iter,)
    n_annealed: int  # how many of the passes were annealed


def import_pyplot(caller: str) -> Any:
    """Import matplotlib.pyplot; if it is missing, the error says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} draws with matplotlib, which is not installed; "
            "python -m pip install matplotlib installs it."
        ) from error
    return plt


def new_axes(ax: Axes | None, caller: str) -> Axes:
    """Return the given axes, or the axes of a new figure if ``ax`` is None."""
    plt = import_pyplot(caller)
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def divided(ax: Axes, n_rows: int, n_columns: int, **kwargs: Any) -> Any:
    """Hide axes, and return a grid of places for panels where they are."""
    place = ax.get_subplotspec()
    if place is None:
        raise ValueError(
            "ax should be from a grid of subplots, as plt.subplots() makes them, so that it can be "
            "divided into panels. Give such an axes, or one for each panel."
        )
    ax.set_axis_off()
    return place.subgridspec(n_rows, n_columns, **kwargs)


def appearance(index: int) -> dict[str, Any]:
    """Colour and line style of the curve with this index; 24 combinations are different."""
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": _STYLES[index // len(COLORS) % len(_STYLES)],
    }


def read_curves(estimators: Mapping[str, Any], attribute: str, caller: str) -> dict[str, Curve]:
    """Read the history that each estimator keeps in ``attribute``, by name."""
    if not isinstance(estimators, Mapping) or not estimators:
        kind = type(estimators).__name__
        given = f"an empty {kind}" if isinstance(estimators, Mapping) else f"a {kind}"
        raise ValueError(
            f"{caller}.from_estimators takes a dict with at least one entry, from names for the "
            f"legend to fitted estimators, but got {given}. For a single estimator use "
            "from_estimator."
        )
    return {str(name): _read_curve(e, attribute, caller) for name, e in estimators.items()}


def _read_curve(estimator: BaseAnnealed, attribute: str, caller: str) -> Curve:
    if not isinstance(estimator, BaseAnnealed):
        raise TypeError(
            f"{caller} draws the {attribute} of estimators of sklearn_anneal, but got "
            f"{type(estimator).__name__}. For the algorithm of a scikit-learn class, fit the "
            'estimator that replaces it with annealing="none".'
        )
    check_is_fitted(estimator)
    values = np.array(getattr(estimator, attribute), dtype=float)
    return Curve(values, estimator._inference.annealed)


def draw_curve(ax: Axes, name: str, curve: Curve, index: int, **kwargs: Any) -> Any:
    """Draw one curve over the passes, with a dot at the end of its annealed phase."""
    passes = np.arange(1, len(curve.values) + 1)
    known = np.isfinite(curve.values)
    style: dict[str, Any] = {"linewidth": 1.6, **appearance(index)}
    if not known.all():
        style |= {"marker": "D", "markersize": 3.5}
    (line,) = ax.plot(passes[known], curve.values[known], label=name, **{**style, **kwargs})
    annealed = np.flatnonzero(known[: curve.n_annealed])
    if len(annealed):
        at = annealed[-1]
        ax.plot(
            passes[at],
            curve.values[at],
            **_DOT,
            color=line.get_color(),
            zorder=line.get_zorder() + 1,
        )
    return line


def add_legend(
    ax: Axes, curves: Mapping[str, Curve], marks: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Add a legend with the names and the meaning of the marks, beside the axes to hide nothing.

    ``marks`` has the style of further marks by their meaning.
    """
    handles, labels = ax.get_legend_handles_labels()
    from matplotlib.lines import Line2D

    if any(curve.n_annealed for curve in curves.values()):
        handles.append(Line2D([], [], linestyle="none", color="0.35", **_DOT))
        labels.append("end of annealing")
    for label, style in (marks or {}).items():
        handles.append(Line2D([], [], linestyle="none", color="0.35", **style))
        labels.append(label)
    ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def count_passes(ax: Axes) -> None:
    """Label the horizontal axis of a history, which counts passes in whole numbers."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel("Pass over the data")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def tidy(ax: Axes) -> None:
    """Draw grid lines behind the data, and remove the top and right edges of the box around it."""
    ax.grid(color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def is_positive_int(value: Any) -> bool:
    """Whether a value is an integer of at least 1; a bool does not count as an integer."""
    is_int = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return is_int and bool(value >= 1)


def choose(chosen: Any, counts: np.ndarray, plural: str, unit: str) -> np.ndarray:
    """Numbers of the topics or states to draw.

    ``counts`` holds the number of tokens or frames of each of them. ``chosen`` is an int, for this
    many with the largest counts; or a sequence of numbers; or None, for all with a count above 1.
    """
    largest = np.argsort(-counts, kind="stable")
    if chosen is None:
        used = largest[counts[largest] > 1]
        if len(used) == 0:
            raise ValueError(
                f"None of the {plural} of the model has more than one {unit}. Give {plural}=, the "
                "numbers of those to draw all the same."
            )
        return used
    if is_positive_int(chosen) and chosen <= len(counts):
        return largest[:chosen]
    numbers = read_array(chosen, plural)
    if (
        numbers.ndim != 1
        or len(numbers) == 0
        or numbers.dtype.kind not in "iu"
        or not ((numbers >= 0) & (numbers < len(counts))).all()
    ):
        raise ValueError(
            f"{plural} should be how many of the {len(counts)} {plural} to draw, a sequence of "
            f"their numbers, from 0 to {len(counts) - 1}, or None, but got {chosen!r}."
        )
    return numbers
