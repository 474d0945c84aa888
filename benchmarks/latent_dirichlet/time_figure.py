"""The figure of held-out likelihood against processor time: one panel per corpus and K."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from .contestants import RECOMMENDED, SETTINGS
from .runs import CONTESTANTS
from .time_plan import Found
from .time_verdicts import Curve
from .topic_peers import TOMOTOPY

_WIDTH, _HEIGHT = 3.7, 2.8
_TIMES = 16
# The two that the verdicts compare are thick, and have bands.
_COMPARED = {RECOMMENDED: "#d95f02", TOMOTOPY: "black"}
# Panels begin this far below the lowest end of a curve, in nats per token.
_BELOW = 0.15


def draw(found: Found, path: Path) -> None:
    """Draw the figure and save it as SVG."""
    size = found.size
    shape = len(size.corpora), len(size.topics)
    # The file is to change only if the figures do.
    style = {"svg.hashsalt": "topics", "svg.fonttype": "none", "font.size": 10}
    style |= {"font.family": ["DejaVu Sans", "sans-serif"]}
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
        for axis in axes[:, 0]:
            axis.set_ylabel("held-out nats per token")
        for axis in axes[-1]:
            axis.set_xlabel("processor seconds")
        lines = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
        names = [name for name in CONTESTANTS if name in lines]
        figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=4)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)
    path.write_text(_compact(path.read_text(encoding="utf-8")), encoding="utf-8")


def _compact(svg: str) -> str:
    """Return the same picture with short coordinates and names, and one font for all texts."""
    head, svg, rest = svg.partition("<svg")
    svg += rest
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(?<=[\s\"(-])(\d+\.\d)\d+(?=[\s\")])", r"\1", svg)
    svg = re.sub(r"(?<=[\s\"(-])(\d+)\.0(?=[\s\")])", r"\1", svg)
    # Points after the first of a path need no letter.
    svg = re.sub(r"(?<=\d) \nL (?=-?\d)", " ", svg)
    svg = re.sub(r" font-family: [^;\"]*;?", "", svg)
    styles = dict.fromkeys(re.findall(r'style="([^"]+)"', svg))
    classes = {style: f"s{number}" for number, style in enumerate(styles)}
    svg = re.sub(r'style="([^"]+)"', lambda found: f'class="{classes[found[1]]}"', svg)
    rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    font = "text{font-family: 'DejaVu Sans', sans-serif}"
    svg = svg.replace("</style>", f"{font}{rules}</style>", 1)
    names = dict.fromkeys(re.findall(r'id="([mp][0-9a-f]{10})"', svg))
    short = {name: f"{name[0]}{number}" for number, name in enumerate(names)}
    svg = re.sub(r"\b[mp][0-9a-f]{10}\b", lambda found: short[found[0]], svg)
    svg = re.sub(
        r"<g id=\"(line2d|text|[xy]tick|patch|axes|Fill\w+|matplotlib\.axis)_\d+\">", "<g>", svg
    )
    lines = [line.strip() for line in svg.splitlines()]
    return head + "\n".join(line for line in lines if line) + "\n"


def _panel(axis: Axes, found: Found, corpus: str, k: int) -> None:
    axis.set_title(f"{corpus}, K = {k}")
    axis.set_xscale("log")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.spines[["top", "right"]].set_visible(False)
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
    """Draw the median over seeds, and for the two that are compared their range."""
    place = list(CONTESTANTS).index(name)
    first = max(curve.seconds[0] for curve in curves)
    last = max(curve.seconds[-1] for curve in curves)
    times = np.geomspace(first, last, _TIMES)
    values = np.array([curve.at(times) for curve in curves])
    colour = _COMPARED.get(name, f"C{place}")
    if name in _COMPARED:
        band = values.min(axis=0), values.max(axis=0)
        axis.fill_between(times, *band, color=colour, alpha=0.2, lw=0)
    axis.plot(
        times,
        np.median(values, axis=0),
        color=colour,
        label=name,
        linestyle="-" if name in SETTINGS else "--",
        linewidth=2.4 if name in _COMPARED else 0.9,
        zorder=3 if name in _COMPARED else 2,
    )
