"""What the records of the suite say: every instance against its peer, shares, and the goals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import iqr

from ..common.report import Page, machine, quartiles
from ..common.reproduction import Cache, Record
from .fits import Spec
from .instances import FAMILIES, HALVES, Instance, halves
from .settings import REFERENCE, SETTINGS

TOLERANCE = 1e-4
"""Differences of at most this many nats per observation are ties: fits stop at such a distance."""

BETTER_BOUND, NOT_WORSE, BETTER, TIME, WEAKEST = 0.9, 0.9, 0.6, 0.5, 0.8

RULES = (
    "The peer is the best of ten restarts of plain inference at its own default priors: "
    "scikit-learn's `BayesianGaussianMixture` and `LatentDirichletAllocation`, and our own classes "
    "for sequences and ratings. Ours is one fit, unless the setting says otherwise. Figures are "
    "medians over seeds with quartiles; the data and their split do not depend on the seed. "
    "Bounds are complete, at the priors of each fit, in nats per observation of the training data; "
    "the gain at the peer's priors is that of the same posterior of ours (left out for ratings, "
    "whose fits keep the posterior of the items only). Held-out densities are in nats per "
    "observation too, by the same code for both: predictive densities of mixtures and of the "
    "states of hidden Markov models, one half of each document given the other, and predictive "
    "densities of ratings. A gain is the difference of the two medians.",
    f"*Better* means above the peer by more than {TOLERANCE:g} nats, a *tie* at most that far from "
    "it. *Not worse* held out means below the peer by no more than the noise, which is half the "
    "interquartile range over seeds of both combined (the root of the sum of the squares of the "
    "two ranges), and at least that tolerance. *Time* is the ratio of processor times on one "
    "thread, where all ten restarts of the peer count. scikit-learn's topics make all their "
    "passes, because their class tests convergence only where it computes a bound, so that the "
    "ratios of topics flatter ours.",
)


@dataclass(frozen=True)
class Comparison:
    """A setting against the peer on one instance.

    Attributes
    ----------
    instance : Instance
    ours, peer : dict
        Each figure over the seeds.
    """

    instance: Instance
    ours: Record
    peer: Record

    def gain(self, figure: str, ours: str | None = None) -> float:
        """The median of a figure of ours less that of the peer; ``ours`` if its name differs."""
        return float(np.median(self.ours[ours or figure]) - np.median(self.peer[figure]))

    @property
    def noise(self) -> float:
        """Half the interquartile range of the held-out density over seeds, of both combined."""
        ranges = [iqr(record["held_out"]) for record in (self.ours, self.peer)]
        return max(float(np.hypot(*ranges)) / 2, TOLERANCE)

    @property
    def bound_is_better(self) -> bool:
        return self.gain("bound") > TOLERANCE

    @property
    def bound_ties(self) -> bool:
        return abs(self.gain("bound")) <= TOLERANCE

    @property
    def is_not_worse(self) -> bool:
        return self.gain("held_out") >= -self.noise

    @property
    def predicts_better(self) -> bool:
        return self.gain("held_out") > TOLERANCE

    @property
    def time(self) -> float:
        return float(np.median(self.ours["seconds"]) / np.median(self.peer["seconds"]))


def compared(
    instances: Iterable[Instance], setting: str, code: str, cache: Cache, n_seeds: int
) -> list[Comparison]:
    """The comparisons of a setting whose records are in the file, from at most so many seeds."""
    found = []
    for instance in instances:
        ours = Spec.of(instance.name, setting, code)
        peer = Spec.of(instance.name, REFERENCE)
        n = cache.n_seeds([ours, peer], n_seeds)
        if n:
            records = cache.record(ours, n), cache.record(peer, n)
            found.append(Comparison(instance, *(r for r in records if r is not None)))
    return found


def share(comparisons: list[Comparison], holds: Callable[[Comparison], bool]) -> float:
    return float(np.mean([holds(c) for c in comparisons]))


@dataclass(frozen=True)
class Goal:
    """A goal of the suite, what was measured, and whether that reaches the goal."""

    text: str
    figure: str
    reached: bool


def goals(comparisons: list[Comparison]) -> list[Goal]:
    """The goals of the suite, decided by the comparisons of one setting."""
    of_family = {
        family: [c for c in comparisons if c.instance.family == family] for family in FAMILIES
    }
    questions: dict[str, Callable[[Comparison], bool]] = {
        "bound": lambda c: c.bound_is_better,
        "held out": lambda c: c.is_not_worse,
    }
    weakest, where = min(
        (share(some, holds), f"{family}, {question}")
        for family, some in of_family.items()
        if some
        for question, holds in questions.items()
    )
    bound = share(comparisons, questions["bound"])
    not_worse = share(comparisons, questions["held out"])
    better = share(comparisons, lambda c: c.predicts_better)
    time = float(np.median([c.time for c in comparisons]))
    return [
        Goal(f"bound better on at least {BETTER_BOUND:.0%}", f"{bound:.0%}", bound >= BETTER_BOUND),
        Goal(
            f"held out not worse on at least {NOT_WORSE:.0%}",
            f"{not_worse:.0%}",
            not_worse >= NOT_WORSE,
        ),
        Goal(f"held out better on at least {BETTER:.0%}", f"{better:.0%}", better >= BETTER),
        Goal(f"median time ratio at most {TIME}", f"{time:.2f}", time <= TIME),
        Goal(
            f"in no family bound better, or held out not worse, on less than {WEAKEST:.0%}",
            f"{weakest:.0%} ({where})",
            weakest >= WEAKEST,
        ),
    ]


# Pages


def add_setting(page: Page, setting: str, comparisons: list[Comparison]) -> None:
    """The sections of one setting: its goals, its families, and its instances."""
    given = SETTINGS[setting]
    said = "defaults only" if not given else f"`{given}`"
    page.section(f"Setting: {setting}", f"Parameters by family: {said}.")
    # The goals are those of *confirm*; *choose*, on which the settings were chosen, is beside it.
    of_half = {
        half: [c for c in comparisons if halves()[c.instance.name] == half] for half in HALVES
    }
    found = {half: goals(some) for half, some in reversed(of_half.items()) if some}
    page.table(
        ("goal", *(f"{half}: {what}" for half in found for what in ("measured", "verdict"))),
        [
            (row[0].text, *(cell for g in row for cell in (g.figure, _verdict(g))))
            for row in zip(*found.values(), strict=True)
        ],
    )
    page.table(
        (
            "family",
            "instances",
            "bound better",
            "bound ties",
            "held out not worse",
            "held out better",
            "time",
        ),
        [_family_row(family, comparisons) for family in [*FAMILIES, "all"]],
    )
    page.table(
        (
            "instance",
            "half",
            "seeds",
            "bound",
            "of the peer",
            "gain",
            "gain at the peer's priors",
            "held out",
            "of the peer",
            "gain",
            "noise",
            "passes",
            "seconds",
            "of the peer",
            "time",
        ),
        [_instance_row(c) for c in comparisons],
    )


def _verdict(goal: Goal) -> str:
    return "**reached**" if goal.reached else "**not reached**"


def _family_row(family: str, comparisons: list[Comparison]) -> list[str]:
    some = [c for c in comparisons if family in ("all", c.instance.family)]
    if not some:
        return [family, "0", *["–"] * 5]
    holds: list[Callable[[Comparison], bool]] = [
        lambda c: c.bound_is_better,
        lambda c: c.bound_ties,
        lambda c: c.is_not_worse,
        lambda c: c.predicts_better,
    ]
    shares = [f"{share(some, question):.0%}" for question in holds]
    return [family, str(len(some)), *shares, f"{np.median([c.time for c in some]):.2f}"]


def _instance_row(c: Comparison) -> list[str]:
    at_peer = c.gain("bound", "bound_at_peer")
    return [
        c.instance.name,
        halves()[c.instance.name],
        str(len(c.ours["bound"])),
        quartiles(c.ours["bound"], 4),
        quartiles(c.peer["bound"], 4),
        f"{c.gain('bound'):+.4f}",
        "–" if np.isnan(at_peer) else f"{at_peer:+.4f}",
        quartiles(c.ours["held_out"], 4),
        quartiles(c.peer["held_out"], 4),
        f"{c.gain('held_out'):+.4f}",
        f"{c.noise:.4f}",
        f"{np.median(c.ours['passes']):.0f}",
        quartiles(c.ours["seconds"], 2),
        quartiles(c.peer["seconds"], 2),
        f"{c.time:.2f}",
    ]


def add_others(
    page: Page, instances: list[Instance], settings: list[str], code: str, cache: Cache, n: int
) -> None:
    """The section on other libraries, whose figures decide about no goal."""
    rows = []
    for instance in instances:
        named = [(REFERENCE, ""), *((name, code) for name in settings)]
        named += [(library, "") for library in instance.also]
        specs = {name: Spec.of(instance.name, name, state) for name, state in named}
        records = cache.of_common_seeds(specs, n) if instance.also else {}
        rows += [_library_row(instance, name, record) for name, record in records.items()]
    if not rows:
        return
    page.section(
        "Other libraries",
        "They decide about no goal. hmmlearn's classes are the best of ten restarts at their own "
        "default priors, without restarts that end with a bound of NaN. cmfrec's ridge is tuned on "
        "a tenth of the training ratings; it is compared by the root mean square error, because it "
        "has neither a bound nor a density. The times of both include the tuning and the "
        "measurement.",
    )
    page.table(("instance", "fit", "bound", "held out", "RMSE", "seconds"), rows)


def _library_row(instance: Instance, name: str, record: Record) -> list[str]:
    def cell(figure: str, digits: int) -> str:
        values = record[figure]
        return "–" if np.isnan(values).any() else quartiles(values, digits)

    return [
        instance.name,
        name,
        *(cell(figure, 4) for figure in ("bound", "held_out", "rmse")),
        cell("seconds", 2),
    ]


def render(
    instances: list[Instance], settings: list[str], code: str, cache: Cache, n_seeds: int
) -> str:
    """The page, in Markdown, from the records that the file has."""
    page = Page()
    page.lines += ["# The suite: one fit against the best of ten restarts", ""]
    page.lines += [f"Written by `python -m benchmarks.suite.run`. {machine()}", ""]
    page.section("Rules", *RULES)
    for setting in settings:
        comparisons = compared(instances, setting, code, cache, n_seeds)
        if comparisons:
            add_setting(page, setting, comparisons)
        else:
            page.section(f"Setting: {setting}", "There are no records of it.")
    add_others(page, instances, settings, code, cache, n_seeds)
    return "\n".join(page.lines).rstrip() + "\n"
