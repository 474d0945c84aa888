"""The page on held-out likelihood against time, from the records of runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..common.measuring import reached
from ..common.peers import versions
from ..common.report import Page, software
from .contestants import RECOMMENDED, SETTINGS
from .course import INFERENCE, N_ITER, OTHER_INFERENCE, TOL
from .data import SHORT, SHORT_DOCUMENTS
from .runs import CONTESTANTS, LIMITS
from .time_figure import draw
from .time_plan import Found
from .time_verdicts import AS_GOOD, IN_TIME, Comparison, compare, time_to_level
from .topic_peers import (
    ITERATIONS,
    LIBRARIES,
    SAMPLES,
    SPACING,
    TOMOTOPY,
    WORDS,
)

COMMAND = "python -m benchmarks.latent_dirichlet.time_to_quality --write"
# The largest numbers of cells in which the first two verdicts may fail; the third holds in all.
MAY_FAIL = {"never below": 1, "in time": 2}
_NOTHING = "–"


def render(found: Found, figure: Path) -> str:
    """Draw the figure, and return the page in Markdown."""
    draw(found, figure)
    page = Page()
    page.lines += ["# Quality of topics against time", "", _head(found), ""]
    if found.size.quick:
        page.lines += ["**A quick run, whose figures mean nothing.**", ""]
    comparisons = compared(found)
    _verdicts(page, found, comparisons)
    picture = "Held-out log-likelihood against processor time"
    page.section("Courses", _FIGURE, f"![{picture}]({figure.name})")
    _method(page, found)
    _contestants(page)
    _ends(page, found)
    _costs(page, found)
    return "\n".join(page.lines).rstrip() + "\n"


_FIGURE = (
    "Median over seeds, from the first evaluation that all seeds have. Ours has full lines, other "
    "libraries dashed ones; the thick ones, with a band of their range, are those that the "
    "verdicts compare."
)


def _head(found: Found) -> str:
    results = list(found.every())
    minutes = sum(result["seconds"] for result in results) / 60
    planned = len(list(found.size.specs()))
    machines = sorted(set(found.machines.values()))
    return (
        f"{'; '.join(machines)}, one thread used; {software()} {versions(LIBRARIES)}. Written by "
        f"`{COMMAND}` from the records beside this page, {len(results)} of "
        f"{planned} runs (corpora, numbers of topics, contestants and {found.size.seeds} seeds). "
        f"The last fits of these runs took {minutes:.0f} minutes of processor time, evaluations "
        "not counted."
    )


# Verdicts


def compared(found: Found) -> dict[tuple[str, int], Comparison]:
    """The comparisons with tomotopy of the cells in which no run of either was cut."""
    comparisons = {}
    for corpus, k in found.size.cells:
        ours, peers = (found.curves(corpus, k, name) for name in (RECOMMENDED, TOMOTOPY))
        if ours and peers and not found.is_cut(corpus, k, RECOMMENDED, TOMOTOPY):
            comparisons[corpus, k] = compare(ours, peers)
    return comparisons


def _verdicts(page: Page, found: Found, comparisons: dict[tuple[str, int], Comparison]) -> None:
    page.section(
        "Verdicts",
        f'They are about our setting "{RECOMMENDED}" and tomotopy with one worker, on '
        f"{', '.join(found.size.real)}. *Never below*: at none of our evaluations, from the first "
        "pass to the end of our fit, had tomotopy reached a better likelihood in the same "
        "processor time (linear in log time between its evaluations), by more than the tolerance: "
        "the standard deviation of last likelihoods over seeds, pooled over both, or "
        f"{AS_GOOD:g} if that is larger. *Time*: that to tomotopy's likelihood after "
        f"{ITERATIONS} iterations, over the time that tomotopy takes for them; the target is "
        f"{IN_TIME:g}. *Ahead*: our likelihood at the end less tomotopy's then, nats per token. "
        "All are of medians over seeds. A cell in which a run of either was cut is not decided.",
    )
    decided = [c for (corpus, _), c in comparisons.items() if corpus in found.size.real]
    n = len(found.size.real) * len(found.size.topics)
    page.lines += [
        _verdict(
            "never below tomotopy", [c.never_below for c in decided], n - MAY_FAIL["never below"], n
        ),
        _verdict(
            f"tomotopy's likelihood in {IN_TIME:g} of its time",
            [c.in_time for c in decided],
            n - MAY_FAIL["in time"],
            n,
        ),
        _verdict("ends above tomotopy", [c.ends_above for c in decided], n, n),
        "",
    ]
    header = ["corpus", "K", "tolerance", "largest shortfall", "at, s", "never below", "time"]
    header += ["in time", "ahead", "ends above"]
    rows = [_verdict_row(corpus, k, comparisons.get((corpus, k))) for corpus, k in found.size.cells]
    page.table(header, rows)


def _verdict(what: str, holds: list[bool], target: int, n: int) -> str:
    undecided = f", {n - len(holds)} not decided" if len(holds) < n else ""
    met = reached(sum(holds) >= target)
    return f"- {what}: {sum(holds)} of {n} cells{undecided}, target {target}: {met}"


def _verdict_row(corpus: str, k: int, comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return [corpus, str(k), "not decided", *[_NOTHING] * 7]
    c = comparison
    return [
        corpus,
        str(k),
        f"{c.tolerance:.3f}",
        f"{c.shortfall:+.3f}",
        f"{c.where:.1f}",
        reached(c.never_below),
        _ratio(c.ratio),
        reached(c.in_time),
        f"{c.ahead:+.3f}",
        reached(c.ends_above),
    ]


def _ratio(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "never"


# How it is measured


def _method(page: Page, found: Found) -> None:
    page.section(
        "Clock and evaluation",
        "The clock is processor time of all threads of the process (wall time is recorded beside "
        "it, and counts pauses of a process that was stopped meanwhile), "
        "with numerical libraries limited to one thread. It begins before the file of the "
        "training documents is read, so that it counts whatever a library needs to be given them: "
        "lists of tokens, texts or a file. It does not count imports and compiled kernels, which a "
        "small fit has loaded before, and it stands still during evaluations.",
        "Evaluated are the topics that a user would have if the fit ended there. During annealing "
        "these are the topics at the temperature then. A fit of ours with expectations reports a "
        "pass once it knows the bound after it, which takes the first half of the next pass; "
        "sampled topics are reported at once. Of a reheat, only the end is evaluated, with the "
        "topics that are then kept. Fits in minibatches of scikit-learn and gensim are also "
        "evaluated within their first pass, ours only after whole passes.",
        "The evaluation is the same for all: the expected probabilities of words in topics, with "
        "the library's own smoothing, and its own prior α of the proportions, as it is then if it "
        "is learned. The proportions of each test document are inferred from one half of its "
        f"tokens, by at most {N_ITER} iterations of our local step (`{INFERENCE}`, float32; until "
        f"its parameters change by less than {TOL:g} on average), and the other half is predicted. "
        f"At the end this is repeated with the local step `{OTHER_INFERENCE}`. Collapsed inference "
        "(CVB0) predicted better from the topics of every library, and is what our `score` uses "
        "for sampled topics; for others it uses mean-field updates. "
        "Words that no training document has are left out. *Averaged* is the likelihood of "
        f"the mean of {SAMPLES} predictions, from the states of a sampler after every "
        f"{SPACING}th of its last {(SAMPLES - 1) * SPACING + 1} iterations.",
    )
    header = ["corpus", "training documents", "words", "tokens", "test documents", "test tokens"]
    rows = []
    for corpus in found.size.corpora:
        sizes = found.sizes(corpus)
        if sizes is not None:
            names = ("documents", "words", "tokens", "held_out_documents", "held_out_tokens")
            rows.append([corpus, *(f"{sizes[name]:,.0f}" for name in names)])
    page.table(header, rows)
    drawn = f"The {SHORT} are {SHORT_DOCUMENTS}. " if SHORT in found.size.corpora else ""
    page.lines += [
        f"{drawn}Test documents are a sample, drawn once, of at most {LIMITS.documents:,} "
        f"documents and {LIMITS.tokens:,} tokens; test tokens are those that are predicted.",
        "",
    ]


def _contestants(page: Page) -> None:
    page.section(
        "Contestants",
        "Ours are settings of `AnnealedLatentDirichletAllocation`; what they do not say is "
        "default. The defaults of sampled topics were chosen on AP, NIPS and 20 Newsgroups, first "
        "by their test documents and later by a part of their training documents, and not on "
        "baseball and hockey. The step sizes and batches of the peers in minibatches are the best "
        "of a few that were tried on AP with K = 50.",
    )
    rows = []
    for name, contestant in CONTESTANTS.items():
        whose = "ours: " if name in SETTINGS else ""
        words = f"`{contestant.settings}`" if contestant.settings else "defaults"
        rows.append([f"{whose}{name}", words, WORDS.get(name, "")])
    page.table(["name", "settings", "remarks"], rows)


# Ends


def _ends(page: Page, found: Found) -> None:
    page.section(
        "Ends",
        "Medians over seeds (lowest to highest). *Bound*: our lower bound per training token, "
        "nats; for scikit-learn it is evaluated at its topics. *Empty*: topics with less than one "
        "expected token; of Mallet, topics without any. *Time to tomotopy's*: that to the "
        f"likelihood of tomotopy after {ITERATIONS} iterations, over the time that tomotopy takes "
        "for them. A run that was cut by its budget of processor time is marked.",
    )
    header = ["name", "seeds", "iterations or passes", "seconds", "wall, s", "held-out"]
    header += [f"held-out, {OTHER_INFERENCE}", "averaged", "bound", "empty", "time to tomotopy's"]
    machines = set(found.machines.values())
    for corpus, k in found.size.cells:
        names = found.contestants(corpus, k)
        if names:
            where = f" ({found.machines[corpus, k]})" if len(machines) > 1 else ""
            page.lines += [f"**{corpus}, K = {k}**{where}", ""]
            page.table(header, (_end_row(found, corpus, k, name) for name in names))


def _end_row(found: Found, corpus: str, k: int, name: str) -> list[str]:
    results = found.results(corpus, k, name)
    cut = " (cut)" if found.is_cut(corpus, k, name) else ""
    ratio = _NOTHING
    peers = found.curves(corpus, k, TOMOTOPY)
    if peers and not found.is_cut(corpus, k, TOMOTOPY):
        ratio = _ratio(time_to_level(found.curves(corpus, k, name), peers))
    return [
        f"{'ours: ' if name in SETTINGS else ''}{name}",
        str(len(results)),
        f"{_range(results, 'iterations', 0)}{cut}",
        _range(results, "seconds", 1),
        _range(results, "wall", 1),
        _range(results, "held_out", 3),
        _range(results, "other_held_out", 3),
        _range(results, "averaged", 3),
        _range(results, "bound", 3),
        _range(results, "empty", 0),
        ratio,
    ]


def _range(results: Iterable[dict[str, Any]], name: str, digits: int) -> str:
    """The median over seeds and the range, or a dash if a seed has no value."""
    values = [result.get(name) for result in results]
    if any(value is None for value in values):
        return _NOTHING
    low, middle, high = np.min(values), np.median(values), np.max(values)
    text = f"{middle:.{digits}f}"
    if len(values) == 1 or f"{low:.{digits}f}" == f"{high:.{digits}f}":
        return text
    return f"{text} ({low:.{digits}f} to {high:.{digits}f})"


# Costs


def _costs(page: Page, found: Found) -> None:
    topics = found.size.topics
    page.section(
        "Time per token",
        "Nanoseconds per token of the training documents and iteration (ours: pass), at trained "
        "topics: the mean over the later half of a run, median over seeds. *Growth*: that at "
        f"K = {topics[-1]} over that at K = {topics[0]}.",
    )
    header = ["corpus", "name", *(f"K = {k}" for k in topics), "growth"]
    rows = []
    for corpus in found.size.corpora:
        for name in (RECOMMENDED, TOMOTOPY):
            costs = [_nanoseconds(found, corpus, k, name) for k in topics]
            if not np.all(np.isnan(costs)):
                whose = "ours: " if name in SETTINGS else ""
                words = [_NOTHING if np.isnan(cost) else f"{cost:.0f}" for cost in costs]
                growth = costs[-1] / costs[0]
                words.append(_NOTHING if np.isnan(growth) else f"{growth:.1f}")
                rows.append([corpus, f"{whose}{name}", *words])
    page.table(header, rows)


def _nanoseconds(found: Found, corpus: str, k: int, name: str) -> float:
    results = found.results(corpus, k, name)
    if not results:
        return np.nan
    seconds = np.median([curve.per_iteration for curve in found.curves(corpus, k, name)])
    return float(1e9 * seconds / results[0]["tokens"])
