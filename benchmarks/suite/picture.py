"""The picture of README: one fit against ten plain starts, on every instance of the suite.

It is drawn from the page ``doc/results/suite.md``, and written to ``doc/_static/one_fit.svg``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from .page import rows_of, tables
from .report import BOUND_MARGIN, HELD_OUT_MARGIN, Row, heading
from .settings import TEN

DOC = Path(__file__).resolve().parents[2] / "doc"
PAGE, PICTURE = DOC / "results" / "suite.md", DOC / "_static" / "one_fit.svg"
FAMILIES = {
    "mixture": "mixtures, real data",
    "groups": "mixtures, drawn groups",
    "columns": "any columns",
    "factorial": "factorial mixtures",
    "sequence": "hidden Markov models",
    "counts": "counts into parts",
    "factors": "sparse factors",
    "topics": "topics",
    "ratings": "ratings",
}
_LEVELS = {"below": 0, "not below": 1, "better": 2}
_COLORS = np.array(["#c0504d", "#9aa0a6", "#2e7d32"])


class Gain(NamedTuple):
    """The gains of one fit on an instance, in nats per observation, and what they amount to.

    A level is 0 for below, 1 for level and 2 for better.
    """

    family: str
    bound: tuple[float, int]
    held_out: tuple[float, int]


def gains(page: str) -> Iterator[Gain]:
    """Yield the gains over ten plain starts with the same priors.

    Held-out gains are means over further divisions of the data where there are any.
    """
    known, title = tables(page), heading("default", TEN)
    of_splits = rows_of(known, title, "splits")
    for name, row in rows_of(known, title, "time").items():
        c = Row.of(known[title][1].header, row, of_splits.get(name))
        bound, held_out = c.figures["bound"], c.figures["held_out"]
        if c.over_splits is None:
            judged = _judged(held_out, HELD_OUT_MARGIN)
        else:
            judged = c.over_splits[0], _LEVELS[of_splits[name][5]]
        yield Gain(c.instance.family, _judged(bound, BOUND_MARGIN), judged)


def _judged(gain: float, margin: float) -> tuple[float, int]:
    return gain, 2 if gain > margin else 1 if gain >= -margin else 0


def draw(found: list[Gain]) -> plt.Figure:
    """Return two panels of dots, one row per family."""
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), sharey=True, layout="constrained")
    panels = [("bound", "lower bound"), ("held_out", "held-out score")]
    for ax, (what, title) in zip(axes, panels, strict=True):
        for row, family in enumerate(FAMILIES):
            pairs = sorted(getattr(gain, what) for gain in found if gain.family == family)
            values, levels = (np.array(each) for each in zip(*pairs, strict=True))
            shift = 0.6 * (np.arange(len(values)) / max(len(values) - 1, 1) - 0.5)
            ax.scatter(values, row + shift, c=_COLORS[levels], s=16, linewidths=0, clip_on=False)
        ax.axvline(0.0, color="0.7", lw=0.8, zorder=0)
        ax.set_xscale("symlog", linthresh=0.01)
        ax.set_xticks(
            [-1, -0.1, -0.01, 0, 0.01, 0.1, 1], ["−1", "−.1", "−.01", "0", ".01", ".1", "1"]
        )
        ax.set_title(f"{title}: one fit minus the best of ten starts", fontsize=10)
        ax.set_xlabel("nats per observation")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(FAMILIES)), FAMILIES.values())
    axes[0].invert_yaxis()
    return figure


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=PICTURE, help="another file")
    arguments = parser.parse_args(argv)
    plt.rcParams["svg.hashsalt"] = "one fit"
    figure = draw(list(gains(PAGE.read_text(encoding="utf-8"))))
    figure.savefig(arguments.output, metadata={"Date": None})


if __name__ == "__main__":
    main()
