"""Pages of measured results: tables, and claims with verdicts that are computed from figures."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy.stats import wilcoxon

import sklearn_anneal

LEVEL = 0.05


@dataclass
class Claim:
    """A claim of a paper, the verdict on it, and the figures behind the verdict."""

    source: str
    text: str
    verdict: str
    figures: str


@dataclass
class Page:
    """The lines of a page, and the claims about which its figures decide."""

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


def above(a: np.ndarray, b: np.ndarray, digits: int = 1) -> tuple[float, float, float]:
    """How far a is above b in paired runs.

    Differences are first rounded to ``digits``, because a difference that would be printed as zero
    is not larger than the tolerance of the convergence test and does not count.

    Returns
    -------
    median : float
    p_above, p_below : float
        One-sided p-values of Wilcoxon's signed-rank test.
    """
    difference = np.round(np.asarray(a, dtype=float) - np.asarray(b, dtype=float), digits)
    median = float(np.median(difference))
    if not np.any(difference):
        return median, 1.0, 1.0
    p_above, p_below = (
        float(wilcoxon(difference, alternative=side).pvalue) for side in ("greater", "less")
    )
    return median, p_above, p_below


def holm(p: Iterable[float]) -> np.ndarray:
    """Adjust p-values for the number of tests by Holm's method."""
    values = np.asarray(list(p), dtype=float)
    order = np.argsort(values)
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    return np.minimum(adjusted, 1.0)


OWN_QUESTION = "own question"
_ANSWERS = {"reproduced": "yes", "partly": "partly", "not reproduced": "no"}


def answered(claims: Iterable[Claim]) -> list[Claim]:
    """The claims, with "yes", "partly" or "no" as the verdict on questions of our own.

    Such a question is not the claim of a paper, so that "reproduced" would be the wrong word.
    """
    return [
        replace(c, verdict=_ANSWERS[c.verdict]) if c.source == OWN_QUESTION else c for c in claims
    ]


def verdict(holds: Iterable[bool]) -> str:
    """The verdict on a claim with several parts, of which all, some or none hold."""
    holds = list(holds)
    if holds and all(holds):
        return "reproduced"
    return "partly" if any(holds) else "not reproduced"


def outcomes(
    pairs: Iterable[tuple[str, np.ndarray, np.ndarray]], digits: int = 0
) -> tuple[list[bool], list[bool], str]:
    """Decide for each pair whether it is won or lost, and write the figures in words.

    The p-values are adjusted for the number of pairs, separately for wins and for losses.
    """
    results = [(name, *above(a, b, digits)) for name, a, b in pairs]
    better = holm(p for _, _, p, _ in results)
    worse = holm(p for _, _, _, p in results)
    medians = [median for _, median, _, _ in results]
    wins = [bool(m > 0 and p < LEVEL) for m, p in zip(medians, better, strict=True)]
    losses = [bool(m < 0 and p < LEVEL) for m, p in zip(medians, worse, strict=True)]
    each = []
    for (name, median, _, _), up, down in zip(results, better, worse, strict=True):
        p = up if median >= 0 else down
        each.append(f"{name}: {median:+.{digits}f} (p = {p:.2g})")
    return wins, losses, "; ".join(each)


def compared(
    source: str, text: str, pairs: Iterable[tuple[str, np.ndarray, np.ndarray]], digits: int = 0
) -> Claim:
    """Decide the claim that in each of several pairs the first is above the second."""
    wins, losses, figures = outcomes(pairs, digits)
    count = f"{sum(wins)} won, {sum(losses)} lost of {len(wins)}."
    return Claim(source, text, verdict(wins), f"{count} Median differences: {figures}")


def write_or_print(
    about: str | None, page: Path, written: Callable[[bool], str], argv: list[str] | None
) -> None:
    """Run the command of a page that is written in one go.

    Parameters
    ----------
    about : str
        The docstring of the module, whose first line describes the command.
    page : Path
    written : callable
        Returns the page; called with True, that of a small run whose figures mean nothing.
    argv : list of str or None
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--quick", action="store_true", help="a small run that means nothing")
    parser.add_argument("--output", type=Path, default=page, help="another file for the page")
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.write and arguments.output == page:
        parser.error("a quick run does not replace the page: give --output")
    text = written(arguments.quick)
    if arguments.write:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text)


def processor() -> str:
    """The processor, as the operating system names it, its cache, and the number of its cores.

    Virtual machines on different processors may name them alike; their caches often differ.
    """
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    found = {name.strip(): value.strip() for name, _, value in (s.partition(":") for s in lines)}
    model = found.get("model name") or platform.processor() or platform.machine()
    if "cache size" in found:
        model += f" with {found['cache size']} of cache"
    return f"{model}, {os.cpu_count()} logical cores"


def machine() -> str:
    """The machine and the versions, in one sentence."""
    return f"{processor()}, one thread used; {software()}"


def software() -> str:
    """The operating system and the versions, in one sentence."""
    return (
        f"{platform.system()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}, sklearn_anneal {sklearn_anneal.__version__}."
    )


def verdict_page(model: str, title: str, rules: str, body: Page, cost: str, quick: bool) -> str:
    """The page of a reproduction in Markdown: verdicts on its claims first, then its sections.

    Parameters
    ----------
    model : str
        The folder of the script that writes it.
    title, rules : str
        The title of the page, and the meaning of its verdicts.
    body : Page
        The sections and the claims.
    cost : str
        The cost of all fits, in one sentence.
    quick : bool
        Whether the figures are those of a quick run.
    """
    page = Page()
    page.lines += [f"# {title}", ""]
    by = f"Written by `python -m benchmarks.{model}.reproduce`; see there for the rules of the"
    page.lines += [f"{by} verdicts. {machine()} {cost}", ""]
    if quick:
        page.lines += ["**A quick run: far too small to tell anything.**", ""]
    page.section("Verdicts", rules)
    rows = [(c.source, c.text, f"**{c.verdict}**", c.figures) for c in body.claims]
    page.table(("source", "claim", "verdict", "figures"), rows)
    return "\n".join(page.lines + body.lines).rstrip() + "\n"
