"""Pages of measured results: tables, and claims with verdicts that are computed from figures."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy.stats import wilcoxon

import sklearn_anneal

LEVEL = 0.05


@dataclass
class Claim:
    """A sentence of a paper, its verdict and the figures behind it."""

    source: str
    text: str
    verdict: str
    figures: str


@dataclass
class Page:
    """What the script writes."""

    lines: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def section(self, title: str, *paragraphs: str) -> None:
        self.lines += [f"## {title}", ""]
        for paragraph in paragraphs:
            self.lines += [paragraph, ""]

    def table(self, header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        self.lines += markdown_table(header, rows)
        self.lines.append("")


def markdown_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    header = list(header)
    body = ["| " + " | ".join(c.replace("|", r"\|") for c in row) + " |" for row in rows]
    return ["| " + " | ".join(header) + " |", "|---" * len(header) + "|", *body]


def quartiles(values: np.ndarray, digits: int = 0) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def above(a: np.ndarray, b: np.ndarray) -> tuple[bool, float, float]:
    """Whether a is above b in paired runs; the median difference and the p-value."""
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    median = float(np.median(difference))
    if not np.any(difference):
        return False, median, 1.0
    p = float(wilcoxon(difference, alternative="greater").pvalue)
    return median > 0 and p < LEVEL, median, p


def verdict(holds: Iterable[bool]) -> str:
    holds = list(holds)
    if holds and all(holds):
        return "reproduced"
    return "partly" if any(holds) else "not reproduced"


def compared(
    source: str, text: str, pairs: Iterable[tuple[str, np.ndarray, np.ndarray]], digits: int = 0
) -> Claim:
    """A claim that in every one of some pairs the first is above the second."""
    results = [(name, *above(a, b)) for name, a, b in pairs]
    wins = sum(win for _, win, _, _ in results)
    figures = "; ".join(
        f"{name}: {median:+.{digits}f} (p = {p:.2g})" for name, _, median, p in results
    )
    return Claim(
        source,
        text,
        verdict(win for _, win, _, _ in results),
        f"{wins} of {len(results)} comparisons. Median differences: {figures}",
    )


def machine() -> str:
    """The machine and the versions, in one sentence."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return (
        f"{model}, {os.cpu_count()} logical cores, one thread used; {platform.system()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}, sklearn_anneal {sklearn_anneal.__version__}."
    )
