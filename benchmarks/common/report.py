"""Pages of measured results: sections, tables, and the machine that measured them."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy
import sklearn

import sklearn_anneal


@dataclass
class Page:
    """The lines of a page."""

    lines: list[str] = field(default_factory=list)

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


def quartiles(values: np.ndarray) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.0f} ({low:.0f} … {high:.0f})"


def renewed(page: Sequence[str], measured: Sequence[str], circumstances: str) -> list[str]:
    """Return a page in which the sections that were measured again replace the old ones.

    Sections that the page does not have yet follow its last one. Each section that was measured
    ends with the circumstances of its run, because those at the top of the page are not its own.
    """
    old, new = _sections(page), _sections(measured)
    for title, lines in new.items():
        if title:
            old[title] = [*lines, f"Measured apart from the other sections. {circumstances}", ""]
    return [line for lines in old.values() for line in lines]


def retired(page: Sequence[str]) -> list[str]:
    """The sections of a page that name the commit that has their code, and stay as they are."""
    each = list(_sections(page).values())[1:]
    return [line for lines in each if any("as of commit" in s for s in lines) for line in lines]


def _sections(page: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines of each section by its title, with those before the first under ""."""
    sections: dict[str, list[str]] = {"": []}
    for line in page:
        if line.startswith("## "):
            sections[line] = []
        sections[list(sections)[-1]].append(line)
    last = list(sections)[-1]
    if sections[last] and sections[last][-1]:
        sections[last].append("")
    return sections


def page_options(about: str | None, page: Path) -> argparse.ArgumentParser:
    """The options of the command of a page, described by the first line of a docstring."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {page.name}")
    parser.add_argument("--quick", action="store_true", help="a small run that means nothing")
    parser.add_argument("--output", type=Path, default=page, help="another file for the page")
    return parser


def parsed(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, page: Path
) -> argparse.Namespace:
    """The arguments, among which are not those that would replace a page by a quick run."""
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.write and arguments.output == page:
        parser.error("a quick run does not replace the page: give --output")
    return arguments


def write_or_print(
    about: str | None, page: Path, written: Callable[[bool], str], argv: list[str] | None
) -> None:
    """Run the command of a page that is written in one go.

    ``written`` returns the page; called with True, that of a small run whose figures mean nothing.
    """
    arguments = parsed(page_options(about, page), argv, page)
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
