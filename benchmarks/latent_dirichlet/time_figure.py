"""The figure of held-out likelihood against processor time: one panel per corpus and K."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from .contestants import RECOMMENDED, SETTINGS
from .runs import CONTESTANTS
from .time_plan import Found
from .time_verdicts import Curve

_WIDTH, _HEIGHT = 4.2, 3.0
_TIMES = 60
# Panels begin this far below the lowest end of a curve, in nats per token.
_BELOW = 0.15


def draw(found: Found, path: Path) -> None:
    """Draw the figure and save it as SVG."""
    size = found.size
    shape = len(size.corpora), len(size.topics)
    # The file is to change only if the figures do.
    style = {"svg.hashsalt": "topics", "svg.fonttype": "none", "font.size": 9}
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            *shape,
            figsize=(_WIDTH * shape[1], _HEIGHT * shape[0] + 1.0),
            squeeze=False,
            layout="constrained",
        )
        for row, corpus in zip(axes, size.corpora, strict=True):
            for axis, k in zip(row, size.topics, strict=True):
                _panel(axis, found, corpus, k)
        lines = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
        names = [name for name in CONTESTANTS if name in lines]
        figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=4)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def _panel(axis: Axes, found: Found, corpus: str, k: int) -> None:
    axis.set_title(f"{corpus}, K = {k}")
    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("processor seconds")
    axis.set_ylabel("held-out nats per token")
    axis.grid(alpha=0.3)
    names = found.contestants(corpus, k)
    if not names:
        axis.set(xticks=[], yticks=[])
        axis.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axis.transAxes)
        return
    ends = []
    for name in names:
        curves = found.curves(corpus, k, name)
        _line(axis, curves, name)
        ends += [curve.held_out[-1] for curve in curves]
    best = max(curve.held_out.max() for name in names for curve in found.curves(corpus, k, name))
    bottom = min(ends) - _BELOW
    axis.set_ylim(bottom, best + 0.05 * (best - bottom))


def _line(axis: Axes, curves: list[Curve], name: str) -> None:
    """The median over seeds, with a band of their range, between times that all of them have."""
    place = list(CONTESTANTS).index(name)
    first = max(curve.seconds[0] for curve in curves)
    last = max(curve.seconds[-1] for curve in curves)
    times = np.geomspace(first, last, _TIMES)
    values = np.array([curve.at(times) for curve in curves])
    colour = f"C{place}"
    axis.fill_between(times, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, lw=0)
    axis.plot(
        times,
        np.median(values, axis=0),
        color=colour,
        label=name,
        linestyle="-" if name in SETTINGS else "--",
        linewidth=2.2 if name == RECOMMENDED else 1.2,
    )
