"""Code that the measurements of speed share: clocks, words for figures, and the script.

A clock calls a function without arguments and returns the seconds that it took. Work in a single
thread is measured in processor time, which other work on the machine changes less than wall time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from . import RESULTS
from .peers import versions
from .report import machine

# A call counts as undisturbed if the host takes at most this share of a processor during it. It is
# made at most this many times until one is undisturbed.
UNDISTURBED = 0.02
ATTEMPTS = 8


# Clocks


def processor_seconds(run: Callable[[], object]) -> float:
    """Processor time of one call, all threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


def wall_seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def undisturbed_wall_seconds(run: Callable[[], object]) -> float:
    """Wall time of one call, repeated while other machines of the host take processor time.

    The operating system may report the time that the host took from this machine ("steal", on Linux
    in a virtual machine). If all calls were disturbed, the least disturbed one counts.
    """
    import psutil

    def stolen() -> float:
        return getattr(psutil.cpu_times(), "steal", 0.0)

    found = []
    for _ in range(ATTEMPTS):
        before = stolen()
        elapsed = wall_seconds(run)
        share = (stolen() - before) / elapsed
        found.append((share, elapsed))
        if share <= UNDISTURBED:
            break
    return min(found)[1]


def interleaved(
    runs: Mapping[Any, Callable[[], object]],
    rounds: int,
    clock: Callable[[Callable[[], object]], float] = processor_seconds,
) -> dict[Any, np.ndarray]:
    """Times of several calls, each made once per round.

    The order is reversed in every other round, so that no call always follows the same other one.
    """
    times: dict[Any, list[float]] = {key: [] for key in runs}
    keys = list(runs)
    for i in range(rounds):
        for key in keys if i % 2 == 0 else keys[::-1]:
            times[key].append(clock(runs[key]))
    return {key: np.array(values) for key, values in times.items()}


# Words


def spread(values: np.ndarray, digits: int = 2) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def undisturbed() -> str:
    """The explanation, for pages, of the clock of that name."""
    return (
        f"Runs during which the host took more than {UNDISTURBED:.0%} of a processor for others "
        f"are repeated, {ATTEMPTS} times at most"
    )


def milliseconds(values: np.ndarray) -> str:
    return f"{1e3 * np.median(values):.1f}"


def reached(holds: bool) -> str:
    return "reached" if holds else "**not reached**"


def progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {what}", file=sys.stderr, flush=True)


def load() -> str:
    """How busy the machine is, in words."""
    try:
        one, five, _ = os.getloadavg()
    except (AttributeError, OSError):
        return "unknown"
    return f"{one:.1f} (mean of one minute), {five:.1f} (of five)"


# Scripts


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


class Script(NamedTuple):
    """A script of measurements.

    Attributes
    ----------
    model : str
        The folder of the script, which is called ``speed.py``.
    title, description : str
        The title of the page, and the description of the script.
    benchmarks : mapping of str to (callable, bool)
        Functions that take a size and return the lines of a section; the bool says whether they
        run in one thread.
    output : str
        Name of the page.
    peers : mapping of str to object
        Libraries that are compared, by the name of the distribution; None for one that is not
        installed.
    full, quick : object
        Sizes, with a method ``with_rounds(n)``.
    """

    model: str
    title: str
    description: str
    benchmarks: Mapping[str, tuple[Callable[[Any], list[str]], bool]]
    output: str
    peers: Mapping[str, Any]
    full: Any
    quick: Any

    def run(self, argv: Sequence[str] | None) -> None:
        """Run the script with the options of the command line."""
        parser = argparse.ArgumentParser(description=self.description)
        choice = f"which of {', '.join(self.benchmarks)}"
        every = list(self.benchmarks)
        parser.add_argument("names", nargs="*", default=every, metavar="NAME", help=choice)
        parser.add_argument("--rounds", type=int, help="interleaved rounds of each")
        parser.add_argument("--write", action="store_true", help=f"write {self.output}")
        full = RESULTS / self.output
        parser.add_argument("--output", type=Path, default=full, help="the page to write")
        parser.add_argument("--quick", action="store_true", help="small, on drawn data")
        arguments = parser.parse_args(argv)
        unknown = sorted(set(arguments.names) - set(self.benchmarks))
        if unknown:
            parser.error(f"no benchmark {unknown[0]!r}: {choice}")
        if arguments.quick and arguments.write and arguments.output == full:
            parser.error("a quick run would replace the full page; give it another --output")
        size = self.quick if arguments.quick else self.full
        if arguments.rounds is not None:
            size = size.with_rounds(arguments.rounds)
        page = self.page(arguments.names, size)
        if arguments.quick:
            page[2] += " A quick run, whose figures mean nothing."
        if arguments.write:
            if arguments.output.exists():
                before = arguments.output.read_text(encoding="utf-8").splitlines()
                if set(arguments.names) < set(self.benchmarks):
                    page = renewed(before, page, page[2].replace(f" {self.author}", ""))
                else:
                    page += retired(before)
            text = "\n".join(page).rstrip("\n")
            arguments.output.write_text(f"{text}\n", encoding="utf-8")

    @property
    def author(self) -> str:
        """The sentence that says which command writes the page."""
        return f"Written by `python -m benchmarks.{self.model}.speed --write`."

    def page(self, names: Sequence[str], size: Any) -> list[str]:
        """Run some sections and print each as soon as it is complete."""
        libraries = ", ".join(filter(None, (f"numba {version('numba')}", versions(self.peers))))
        page = [f"# {self.title}", "", f"{machine()} {libraries}. {self.author}", ""]
        before = load()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for name in names:
                bench, one_thread = self.benchmarks[name]
                with threadpool_limits(1 if one_thread else None):
                    section = bench(size)
                print("\n".join(["", *section]), flush=True)
                page += section
        page[2] += f" Load average at the start {before}, at the end {load()}."
        return page
