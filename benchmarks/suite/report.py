"""The report on the suite: its goals, and every instance against plain starts and EM.

Instances without records keep the rows of an earlier page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import iqr

from ..common.records import Cache, Record
from ..common.report import Page, machine, quartiles, retired
from .fits import Spec
from .instances import EM, FAMILIES, HALVES, INSTANCES, Instance, halves
from .page import Table, rows_of, tables
from .settings import HUNDRED, PEER, REFERENCES, SETTINGS, TEN

BOUND_MARGIN, HELD_OUT_MARGIN = 0.002, 0.010
"""A figure is *not below* another if it is lower by at most this, in nats per observation."""

LEAST_SPLITS = 10
"""From so many further splits on, held-out figures are judged by these."""

TOLERANCE = 1e-4
"""Held-out densities that differ by at most this many nats per observation are equal."""

_DIGITS = 4

TEN_SHARE, TEN_TIME, WEAKEST = 0.9, 0.5, 0.8
HUNDRED_SHARE, HUNDRED_TIME = 0.6, 0.1
FOUND_SHARE = 0.9
SEPARATED = "groups/separated "
CHOSEN_FOR_PREDICTIONS = ("topics",)
"""Families whose defaults are chosen by held-out figures; their bounds are no part of a goal."""

RULES = (
    "One fit of ours, unless the setting says otherwise, is compared with several others. *Ten "
    "plain starts* and *a hundred plain starts* are the best of so many starts of plain inference "
    "by the same class with the same priors, which are learned where ours are: this comparison is "
    "about the search alone. The *peer* is the best of ten starts of plain inference with the "
    "usual priors of its class: scikit-learn's `BayesianGaussianMixture` and "
    "`LatentDirichletAllocation`, and our own classes for other columns, sequences, counts and "
    "ratings. Factorial mixtures and sparse factors have no usual priors, and so no peer.",
    "Figures are medians over the seeds that both sides have; the data and their split do not "
    "depend on the seed. Bounds are complete, at the priors of each fit, in nats per observation "
    "of the training data. Against the peer there is also the gain at the peer's priors, which is "
    "that of the same posterior of ours. Held-out densities are in nats per observation too, by "
    "the same code for both sides: predictive densities of Gaussian mixtures and of the states of "
    "hidden Markov models, one half of each document given the other half, and otherwise what our "
    "`score` returns. That is a predictive density for other columns and ratings, the log "
    "probability of one half of each row of counts given the other, and a lower bound for "
    "factorial mixtures and sparse factors. "
    "An observation is "
    + ", ".join(f"a {unit} ({family})" for family, unit in FAMILIES.items())
    + ". A gain is the difference of two medians.",
    f"*Not below* means lower by at most {1000 * BOUND_MARGIN:g} millinats per observation in the "
    f"bound, and by at most {1000 * HELD_OUT_MARGIN:g} held out; *better* means higher by more "
    "than that. *Time* is the ratio of processor times on one thread, where all starts of the "
    "other side count. scikit-learn's topics make all their passes, because their class tests "
    "convergence only where it computes a bound, so that the ratios of topics to the peer flatter "
    "ours.",
    f"Where an instance was also divided anew, {LEAST_SPLITS} times or more, into training and "
    "held-out data, and ours and ten plain starts were fitted once to each, these splits decide "
    "about the held-out figure: it is *not below* unless the mean of the paired differences is "
    "lower than the margin by more than two of its standard errors, and *better* if it is higher "
    "by more than two of them. One split of few rows differs from another by more than the margin.",
    "The bounds of topics are in the tables and no part of a goal: their default assigns single "
    "words by sampling, which predicts better than what has the highest bound.",
    "Instances are real data, and drawn data of known truth. *Found* is the number of components "
    "with more than one row, and *matched* counts the drawn groups that have a component of their "
    "own among the held-out rows: more than half of the group is in the component, and the other "
    "way round. As many components are fitted as there are groups, so that a component can be "
    "lost but none too many be found. *Noise* is half the interquartile range of held-out "
    "densities over seeds of both sides combined (the root of the sum of the squares of the two "
    f"ranges), and at least {TOLERANCE:g} nats.",
)


class Pair(NamedTuple):
    """Figures of ours and of something else on an instance, each over the seeds.

    ``splits`` has the held-out gain on each further split of the data.
    """

    instance: Instance
    ours: Record
    other: Record
    splits: np.ndarray = np.empty(0)

    def gain(self, figure: str, of_ours: str | None = None) -> float:
        """The median of a figure of ours, whose name may differ, less that of the other."""
        found = np.median(self.ours[of_ours or figure]) - np.median(self.other[figure])
        return round(float(found), _DIGITS)

    @property
    def noise(self) -> float:
        """Half the interquartile range of the held-out density over seeds, of both combined."""
        ranges = [iqr(record["held_out"]) for record in (self.ours, self.other)]
        return max(float(np.hypot(*ranges)) / 2, TOLERANCE)

    @property
    def time(self) -> float:
        return float(np.median(self.ours["seconds"]) / np.median(self.other["seconds"]))


@dataclass(frozen=True)
class Row:
    """A setting against something else on one instance, as a row of the page.

    It is judged by the digits that the page has, so that a page that keeps a row keeps its verdict.

    Attributes
    ----------
    instance : Instance
    cells : list of str
    figures : dict
        The gains, the noise and the ratio of the times.
    of_splits : list of str or None
        Its row in the table of further splits.
    fits : dict or None
        Figures of ours over the seeds; None for a row of an earlier page.
    """

    instance: Instance
    cells: list[str]
    figures: dict[str, float]
    of_splits: list[str] | None = None
    fits: Record | None = None

    @classmethod
    def of(
        cls,
        header: Sequence[str],
        cells: list[str],
        of_splits: list[str] | None = None,
        fits: Record | None = None,
    ) -> Row:
        """Return the comparison of a row of a table with this header."""
        named = list(zip(header, cells, strict=True))
        gains = [float(cell) for name, cell in named if name in ("gain", "held-out gain")]
        figures = {name: float(cell) for name, cell in named if name in ("noise", "time")}
        figures |= {"bound": gains[0], "held_out": gains[-1]}
        return cls(INSTANCES[cells[0]], cells, figures, of_splits, fits)

    @classmethod
    def measured(cls, pair: Pair, against: str) -> Row:
        """Return the row of a comparison that has records."""
        made = cls.of(header_of(against), _cells(pair, against), fits=pair.ours)
        n = len(pair.splits)
        if n < LEAST_SPLITS:
            return made
        error = float(pair.splits.std(ddof=1) / np.sqrt(n))
        cells = [*made.cells[:2], str(n), f"{pair.splits.mean():+.4f}", f"{error:.4f}"]
        made = replace(made, of_splits=cells)
        verdict = "better" if made.held_out_is_better else "not below"
        return replace(made, of_splits=[*cells, verdict if made.held_out_is_not_below else "below"])

    @property
    def over_splits(self) -> tuple[float, float] | None:
        """The mean held-out gain over further splits, and its standard error, if they decide."""
        if self.of_splits is None:
            return None
        return float(self.of_splits[3]), float(self.of_splits[4])

    @property
    def bound_is_not_below(self) -> bool:
        return self.figures["bound"] >= -BOUND_MARGIN

    @property
    def bound_is_better(self) -> bool:
        return self.figures["bound"] > BOUND_MARGIN

    @property
    def held_out_is_not_below(self) -> bool:
        mean, error = self.over_splits or (self.figures["held_out"], 0.0)
        return mean + 2.0 * error >= -HELD_OUT_MARGIN

    @property
    def held_out_is_better(self) -> bool:
        mean, error = self.over_splits or (self.figures["held_out"], 0.0)
        return mean - 2.0 * error > HELD_OUT_MARGIN

    @property
    def is_within_noise(self) -> bool:
        """Whether held out is not below the other by more than the noise."""
        return self.figures["held_out"] >= -self.figures["noise"]


def header_of(against: str) -> tuple[str, ...]:
    """The header of the table of instances against something else."""
    begin = ("instance", "half", "seeds")
    if against == EM:
        counts = ("found", "found by EM", "matched", "matched by EM")
        return (*begin, "held-out gain", "noise", "groups", *counts, "time")
    at_peer = ("gain at the peer's priors",) if against == PEER else ()
    gains = ("bound", "gain", *at_peer, "held out", "gain")
    return (*begin, *gains, "passes", "seconds", "time")


def _cells(pair: Pair, against: str) -> list[str]:
    """The cells below that header."""
    instance, ours = pair.instance, pair.ours
    begin = [instance.name, halves()[instance.name], str(len(ours["held_out"]))]
    if against == EM:
        counts = [record[name] for name in ("found", "matched") for record in pair[1:3]]
        begin += [f"{pair.gain('held_out'):+.4f}", f"{pair.noise:.4f}", str(instance.n_components)]
        return [*begin, *(quartiles(values) for values in counts), f"{pair.time:.2f}"]
    gains = [f"{pair.gain('bound'):+.4f}"]
    if against == PEER:
        gain = pair.gain("bound", "bound_at_peer")
        gains.append("–" if np.isnan(gain) else f"{gain:+.4f}")
    median = {name: float(np.median(values)) for name, values in ours.items()}
    return [
        *(*begin, f"{median['bound']:.4f}", *gains),
        *(f"{median['held_out']:.4f}", f"{pair.gain('held_out'):+.4f}"),
        *(f"{median['passes']:.0f}", f"{median['seconds']:.2f}", f"{pair.time:.2f}"),
    ]


Rows = Sequence[Row]
PageTables = dict[str, list[Table]]
Question = Callable[[Row], bool]
_SHARES: dict[str, Question] = {
    "bound not below": lambda c: c.bound_is_not_below,
    "bound better": lambda c: c.bound_is_better,
    "held out not below": lambda c: c.held_out_is_not_below,
    "held out better": lambda c: c.held_out_is_better,
}
_QUESTIONS = {name: _SHARES[f"{name} not below"] for name in ("bound", "held out")}


def asked(question: str, comparisons: Rows) -> Rows:
    """The comparisons that decide about a question, by its name."""
    if question != "bound":
        return comparisons
    return [c for c in comparisons if c.instance.family not in CHOSEN_FOR_PREDICTIONS]


def compared(
    instances: Iterable[Instance], setting: str, other: str, code: str, cache: Cache, n_seeds: int
) -> list[Pair]:
    """The comparisons whose records are in the file, from at most so many seeds."""
    found = []
    for instance in instances:
        specs = Spec.of(instance.name, setting, code), Spec.of(instance.name, other, code)
        n = cache.n_seeds(specs, n_seeds)
        if n:
            ours, theirs = (cache.record(spec, n) for spec in specs)
            assert ours is not None
            assert theirs is not None
            found.append(Pair(instance, ours, theirs, _over_splits(*specs, cache)))
    return found


def completed(found: Rows, page: PageTables, heading: str) -> Rows:
    """The comparisons, and those of an earlier page on the instances that have no records.

    All are in the order of the instances.
    """
    measured = {row.instance.name for row in found}
    of_splits = rows_of(page, heading, "splits")
    kept = [
        Row.of(table.header, cells, of_splits.get(cells[0]))
        for table in page.get(heading, [])
        if table.header[0] == "instance" and "time" in table.header
        for cells in table.rows
        if cells[0] in INSTANCES and cells[0] not in measured
    ]
    names = list(INSTANCES)
    return sorted([*found, *kept], key=lambda row: names.index(row.instance.name))


def _over_splits(ours: Spec, other: Spec, cache: Cache) -> np.ndarray:
    """The held-out gains on the further splits, counted from the first, that both sides have."""
    gains: list[float] = []
    while True:
        split = len(gains) + 1
        pair = [cache.result(replace(spec, split=split)) for spec in (ours, other)]
        if pair[0] is None or pair[1] is None:
            return np.array(gains)
        gains.append(pair[0]["held_out"] - pair[1]["held_out"])


def share(comparisons: Rows, holds: Question) -> float | None:
    """The share of comparisons for which an answer holds; None if there are none."""
    return float(np.mean([holds(c) for c in comparisons])) if comparisons else None


def _median_time(comparisons: Rows) -> float:
    return float(np.median([c.figures["time"] for c in comparisons]))


# Goals


_VERDICTS = {True: "**reached**", False: "**not reached**", None: "not measured"}


@dataclass(frozen=True)
class Goal:
    """A goal against something else, the figure that was measured, and whether that reaches it.

    ``reached`` is None if nothing was measured.
    """

    against: str
    text: str
    figure: str = "–"
    reached: bool | None = None

    @property
    def verdict(self) -> str:
        return _VERDICTS[self.reached]


def _at_least(against: str, what: str, least: float, measured: float | None) -> Goal:
    goal = Goal(against, f"{what} at least {least:.0%}")
    if measured is None:
        return goal
    return replace(goal, figure=f"{measured:.0%}", reached=measured >= least)


def _time_goal(against: str, most: float, comparisons: Rows) -> Goal:
    goal = Goal(against, f"median time ratio at most {most:g}")
    if not comparisons:
        return goal
    time = _median_time(comparisons)
    return replace(goal, figure=f"{time:.2f}", reached=time <= most)


def goals(against: dict[str, Rows], kept: dict[str, Goal] | None = None) -> list[Goal]:
    """The goals of the suite, decided by the comparisons of one setting with each reference.

    ``kept`` has those of an earlier page by their texts.
    """
    ten, hundred = against.get(TEN, []), against.get(HUNDRED, [])
    separated = [c for c in against.get(EM, []) if c.instance.name.startswith(SEPARATED)]
    return [
        *(
            _at_least(TEN, f"{name} not below on", TEN_SHARE, share(asked(name, ten), holds))
            for name, holds in _QUESTIONS.items()
        ),
        _time_goal(TEN, TEN_TIME, ten),
        _weakest_goal(ten),
        _at_least(
            HUNDRED,
            "bound not below on",
            HUNDRED_SHARE,
            share(asked("bound", hundred), _QUESTIONS["bound"]),
        ),
        _time_goal(HUNDRED, HUNDRED_TIME, hundred),
        *_goals_on_groups(separated, kept or {}),
    ]


def _weakest_goal(comparisons: Rows) -> Goal:
    text = f"in no family bound or held out not below on less than {WEAKEST:.0%}"
    if not comparisons:
        return Goal(TEN, text)
    of_family = {f: [c for c in comparisons if c.instance.family == f] for f in FAMILIES}
    weakest, where = min(
        (measured, f"{family}, {question}")
        for family, some in of_family.items()
        for question, holds in _QUESTIONS.items()
        if (measured := share(asked(question, some), holds)) is not None
    )
    return Goal(TEN, text, f"{weakest:.0%} ({where})", weakest >= WEAKEST)


def _goals_on_groups(separated: Rows, kept: dict[str, Goal]) -> list[Goal]:
    """Goals on separated groups; shares of groups found are those of all fits, not of medians.

    A page does not have single fits, so that goals on groups none of which was measured anew stay
    as they are, and those on groups some of which were are not measured.
    """
    held_out = "held out below by more than the noise on no separated groups"
    texts = {
        "found": "as many components found as there are separated groups, in a share of fits of",
        "matched": "all separated groups matched, in a share of fits of",
    }
    fits = [(c.fits, c.instance.n_components) for c in separated if c.fits is not None]
    shares = []
    for figure, text in texts.items():
        reached = [found[figure] == n for found, n in fits if len(fits) == len(separated)]
        measured = float(np.concatenate(reached).mean()) if reached else None
        goal = _at_least(EM, text, FOUND_SHARE, measured)
        shares.append(goal if fits else kept.get(goal.text, goal))
    if not separated:
        return [Goal(EM, held_out), *shares]
    below = [c.instance.name for c in separated if not c.is_within_noise]
    return [Goal(EM, held_out, f"{len(below)} of {len(separated)}", not below), *shares]


# Pages


def _of_half(comparisons: Rows, half: str) -> Rows:
    return [c for c in comparisons if halves()[c.instance.name] == half]


def _kept_goals(earlier: PageTables, setting: str, half: str) -> dict[str, Goal]:
    """The goals of a setting on a half of an earlier page, by their texts."""
    reached = {verdict: known for known, verdict in _VERDICTS.items()}
    found = {}
    for table in earlier.get(f"Setting: {setting}", []):
        at = table.header.index(f"{half}: measured")
        for row in table.rows:
            found[row[1]] = Goal(row[0], row[1], row[at], reached[row[at + 1]])
    return found


def add_setting(page: Page, setting: str, against: dict[str, Rows], earlier: PageTables) -> None:
    """The sections of one setting: its goals, and one section for each reference."""
    given = SETTINGS[setting]
    said = "defaults only" if not given else f"`{given}`"
    page.section(f"Setting: {setting}", f"Parameters by family: {said}.")
    # The goals are those of *confirm*; *choose*, on which the settings were chosen, is beside it.
    found = {
        half: goals(
            {name: _of_half(some, half) for name, some in against.items()},
            _kept_goals(earlier, setting, half),
        )
        for half in reversed(HALVES)
    }
    page.table(
        ("against", "goal", *(f"{half}: {w}" for half in found for w in ("measured", "verdict"))),
        [
            (row[0].against, row[0].text, *(cell for g in row for cell in (g.figure, g.verdict)))
            for row in zip(*found.values(), strict=True)
        ],
    )
    for name in REFERENCES:
        if against.get(name):
            add_reference(page, setting, name, against[name])
    groups = [c for c in against.get(EM, []) if c.instance.labels is not None]
    if groups:
        # Held-out densities and numbers of components.
        _begin(page, setting, EM, groups)
        page.table(header_of(EM), [c.cells for c in groups])


def heading(setting: str, name: str) -> str:
    """The heading of the section on a setting against something else."""
    title = {
        TEN: f"{TEN}, same priors",
        HUNDRED: f"{HUNDRED}, same priors",
        PEER: "the peer",
        EM: "one start of EM, on drawn groups",
    }
    return f"{setting} against {title[name]}"


def _of_runs(measured: list[str], n_rows: int) -> list[str]:
    """A sentence on the runs that rows come from, if they are not all of the last one."""
    if len(measured) == n_rows:
        return []
    if not measured:
        return ["All rows are of earlier runs, perhaps on other machines.", ""]
    return [
        f"Rows of {', '.join(measured)} are of the last run, and all others of earlier ones, "
        "perhaps on another machine.",
        "",
    ]


def _begin(page: Page, setting: str, name: str, comparisons: Rows) -> None:
    """The heading of the section on a setting against something else, and where rows are from."""
    measured = [c.instance.name for c in comparisons if c.fits is not None]
    page.lines += [f"### {heading(setting, name)}", "", *_of_runs(measured, len(comparisons))]


def add_reference(page: Page, setting: str, name: str, comparisons: Rows) -> None:
    """The families and the instances of a setting against plain starts or the peer."""
    _begin(page, setting, name, comparisons)
    page.table(
        ("family", "instances", *_SHARES, "time"),
        [_family_row(family, comparisons) for family in [*FAMILIES, "all"]],
    )
    page.table(header_of(name), [c.cells for c in comparisons])
    divided = [c.of_splits for c in comparisons if c.of_splits is not None]
    if divided:
        page.table(
            ("instance", "half", "splits", "mean held-out gain", "standard error", "held out"),
            divided,
        )


def _family_row(family: str, comparisons: Rows) -> list[str]:
    some = [c for c in comparisons if family in ("all", c.instance.family)]
    if not some:
        return [family, "0", *["–"] * 5]
    shares = [f"{share(some, question):.0%}" for question in _SHARES.values()]
    return [family, str(len(some)), *shares, f"{_median_time(some):.2f}"]


def render(
    instances: list[Instance],
    settings: list[str],
    code: str,
    cache: Cache,
    n_seeds: int,
    earlier: str = "",
) -> str:
    """The page, in Markdown, from the records that the file has.

    What has no records is taken from an ``earlier`` page.
    """
    known = tables(earlier)
    of_page = [title.removeprefix("Setting: ") for title in known if title.startswith("Setting: ")]
    settings = list(dict.fromkeys([*settings, *(name for name in of_page if name in SETTINGS)]))
    page = Page()
    page.lines += ["# The suite: one fit against plain starts, EM and the usual priors", ""]
    page.lines += [f"Written by `python -m benchmarks.suite.run`. {machine()}", ""]
    page.section("Rules", *RULES)
    for setting in settings:
        against = {}
        for name in (*REFERENCES, EM):
            pairs = compared(instances, setting, name, code, cache, n_seeds)
            found = [Row.measured(pair, name) for pair in pairs]
            against[name] = completed(found, known, heading(setting, name))
        if any(against.values()):
            add_setting(page, setting, against, known)
        else:
            page.section(f"Setting: {setting}", "There are no records of it.")
    page.lines += retired(earlier.splitlines())
    return "\n".join(page.lines).rstrip() + "\n"
