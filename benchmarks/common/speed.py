"""The harness of the measurements of speed: sizes, the time of a pass, and the command of a page.

A family declares in its ``speed.py`` what is timed: its sizes, its peers and its sections, as a
:class:`Speed`. All comparisons of a section are interleaved in one process, and given as medians of
the ratios of neighbouring runs. Work of one thread is measured in processor time, which other work
on the machine changes less than wall time. Peers that are not installed and data files that are not
there are left out with a message, and a quick run needs no file::

    python -m benchmarks.mixture.speed            # all sections, printed
    python -m benchmarks.mixture.speed passes     # some of them
    python -m benchmarks.mixture.speed --write    # also the page in doc/results
    python -m benchmarks.mixture.speed --quick --write --output /tmp/quick.md
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sklearn_anneal.annealing import ANNEALING, StructuredVI
from sklearn_anneal.parallel.thread_limits import one_thread

from . import RESULTS
from .measuring import interleaved, load, milliseconds, processor_seconds, progress, spread
from .peers import versions
from .report import Page, machine, page_options, parsed, renewed, retired

Key = TypeVar("Key", bound=Hashable)
Fit = Callable[[int], Any]
"""A function of a number of passes, which makes a fit of exactly as many."""

METHODS = (
    *("deterministic", "stochastic", "svi_plus", "tempering", "proximity", "local_tempering"),
    "structured",
)
"""The methods that have a number of passes, in the order of the pages of mixtures."""

NEVER = 10**6
# Rows whose products are in memory at a time, about as many as in the package.
_BLOCK = 1024


# Passes


@dataclass(frozen=True)
class Size:
    """The size of a run; families add what else differs between a full and a quick one.

    Attributes
    ----------
    rounds : int
        Number of interleaved repetitions.
    passes : tuple of int
        Numbers of passes of the two fits whose difference is measured.
    quick : bool
    """

    rounds: int = 5
    passes: tuple[int, int] = (4, 24)
    quick: bool = False

    def with_rounds(self, n: int) -> Size:
        return replace(self, rounds=n)


@dataclass(frozen=True)
class Shape:
    """Numbers of rows, columns and components."""

    n_rows: int
    n_features: int
    n_components: int

    def __str__(self) -> str:
        return f"{self.n_rows:,} × {self.n_features}"


def of_passes(estimator: Any, annealing: str, n: int) -> Any:
    """Set an estimator to n passes with a method, and to none at T = 1 after them.

    The estimator has to have ``tol=0``, so that no test of convergence ends a fit earlier.
    """
    if annealing in ("none", "reheating"):
        return estimator.set_params(annealing=annealing, max_iter=n)
    if annealing == "structured":
        # The evaluation of its bound takes another pass, which must not be measured.
        method = StructuredVI(n_passes=n, evaluate_every=NEVER)
        return estimator.set_params(annealing=method, max_iter=0)
    return estimator.set_params(annealing=annealing, annealing__n_passes=n, max_iter=0)


def products(X: np.ndarray, parts: np.ndarray) -> Callable[[], None]:
    """The matrix products that no pass can do without, in blocks of rows.

    They are those of K parts with the rows, and of what is found for each row with the rows.
    """

    def run() -> None:
        for begin in range(0, len(X), _BLOCK):
            some = X[begin : begin + _BLOCK]
            (parts @ some.T) @ some

    return run


def pass_times(
    fits: Mapping[Key, Fit],
    others: Mapping[Any, Callable[[], object]],
    size: Size,
    clock: Callable[[Callable[[], object]], float] = processor_seconds,
    passes: Mapping[Key, tuple[int, int]] | None = None,
) -> dict[Any, np.ndarray]:
    """Seconds of one pass of several fits, and of other calls, once per round.

    The time of a pass is the difference of the times of two fits, one of many and one of few
    passes, divided by the difference of their numbers of passes. Work that a fit does once thus
    does not count, whichever the library is. ``passes`` has the numbers of fits that differ from
    those of the size.
    """
    counts = {name: (passes or {}).get(name, size.passes) for name in fits}
    runs: dict[Any, Callable[[], object]] = dict(others)
    for name, fit in fits.items():
        fit(1)  # loads or compiles the kernels
        runs |= {(name, n): (lambda fit=fit, n=n: fit(n)) for n in counts[name]}
    times = interleaved(runs, size.rounds, clock)
    found = {name: times[name] for name in others}
    for name, (few, many) in counts.items():
        found[name] = (times[name, many] - times[name, few]) / (many - few)
    return found


def add_methods(
    page: Page, fit_of: Callable[[str], Fit], size: Size, methods: Iterable[str] = ANNEALING
) -> None:
    """Add the table of what annealing costs: a pass of each method in turns with a plain one."""
    rows = []
    for name in methods:
        if name != "none":
            progress(f"methods, {name}")
            times = pass_times({key: fit_of(key) for key in ("none", name)}, {}, size)
            cells = [milliseconds(times[key]) for key in ("none", name)]
            rows.append([name, *cells, spread(times[name] / times["none"])])
    page.table(["method", "none, ms", "ms", "ratio"], rows)


# Pages


@dataclass(frozen=True)
class Speed:
    """The measurements of the speed of a family, and the command that makes them.

    Attributes
    ----------
    about : str
        The docstring of the script, whose first line describes the command.
    model : str
        The folder of the script, which is called ``speed.py``.
    title, output : str
        The title of the page, and the name of its file.
    sections : mapping of str to callable
        Functions that add a section to a page, at a size, by short names. They have one thread.
    full, quick : Size
    peers : mapping of str to object
        Libraries that are compared, by the name of the distribution; None for one that is not
        installed.
    """

    about: str | None
    model: str
    title: str
    output: str
    sections: Mapping[str, Callable[[Page, Any], None]]
    full: Any
    quick: Any
    peers: Mapping[str, Any] = field(default_factory=dict)

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run the script with the options of the command line."""
        full = RESULTS / self.output
        parser = page_options(self.about, full)
        choice = f"which of {', '.join(self.sections)}"
        every = list(self.sections)
        parser.add_argument("names", nargs="*", default=every, metavar="NAME", help=choice)
        parser.add_argument("--rounds", type=int, help="interleaved rounds of each")
        arguments = parsed(parser, argv, full)
        unknown = sorted(set(arguments.names) - set(self.sections))
        if unknown:
            parser.error(f"no section {unknown[0]!r}: {choice}")
        size = self.quick if arguments.quick else self.full
        if arguments.rounds is not None:
            size = size.with_rounds(arguments.rounds)
        page = self.page(arguments.names, size)
        if arguments.quick:
            page[2] += " A quick run, whose figures mean nothing."
        if arguments.write:
            self.write(arguments.output, page, arguments.names)

    @property
    def author(self) -> str:
        """The sentence that says which command writes the page."""
        return f"Written by `python -m benchmarks.{self.model}.speed --write`."

    def page(self, names: Sequence[str], size: Any) -> list[str]:
        """Run some sections and print each as soon as it is complete."""
        libraries = ", ".join(filter(None, (f"numba {version('numba')}", versions(self.peers))))
        top = [f"# {self.title}", "", f"{machine()} {libraries}. {self.author}", ""]
        page, before = Page(top), load()
        with warnings.catch_warnings(), threadpool_limits(1), one_thread():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for name in names:
                begin = len(page.lines)
                self.sections[name](page, size)
                print("\n".join(["", *page.lines[begin:]]), flush=True)
        page.lines[2] += f" Load average at the start {before}, at the end {load()}."
        return page.lines

    def write(self, output: Path, page: list[str], names: Sequence[str]) -> None:
        """Write the page, or put the sections that were measured into the one that there is."""
        if output.exists():
            before = output.read_text(encoding="utf-8").splitlines()
            if set(names) < set(self.sections):
                page = renewed(before, page, page[2].replace(f" {self.author}", ""))
            else:
                page += retired(before)
        text = "\n".join(page).rstrip("\n")
        output.write_text(f"{text}\n", encoding="utf-8")
