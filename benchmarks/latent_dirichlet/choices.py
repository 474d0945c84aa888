"""Choices behind the defaults of topics, judged by bound and by held-out likelihood.

The documents that judge are split off the training documents of the corpora, so that the test
documents of other benchmarks play no part in the choice. Records of fits are appended to a file,
from which the page is written.

    python -m benchmarks.latent_dirichlet.choices --records FILE --jobs 2   # 45 minutes
    python -m benchmarks.latent_dirichlet.choices --records FILE --write
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ..common import RESULTS
from ..common.report import Page, machine
from ..common.reproduction import Cache, Record, n_seeds, run_missing
from .choice_fits import CHOICES, DEFAULT, Spec
from .data import SHORT, SHORT_DOCUMENTS, available
from .first_prior import BATCH, PRIORS, WAYS, default_of

OUTPUT = "topics_choices.md"
# A corpus, a number of topics and a choice.
Cell = tuple[str, int, str]


@dataclass(frozen=True)
class Size:
    """The corpora, the numbers of topics, and the number of seeds.

    The numbers of topics are those of sampled topics, and those for which streams and other fits
    begin with one prior or another. Some corpora are only for streams.
    """

    corpora: tuple[str, ...] = ("AP", "NIPS", "20 Newsgroups")
    corpora_of_streams: tuple[str, ...] = ("baseball and hockey", SHORT)
    topics: tuple[int, ...] = (50, 200, 500)
    topics_of_streams: tuple[int, ...] = (10, 25, 200, 500)
    topics_of_fits: tuple[int, ...] = (10, 25)
    seeds: int = 2

    def all_corpora(self) -> tuple[str, ...]:
        """The names of all corpora."""
        return (*self.corpora, *self.corpora_of_streams)

    def defaults(self) -> dict[Cell, Spec]:
        """The fits, of one seed, that change the default of sampled topics."""
        return _specs(product(self.corpora, self.topics, CHOICES))

    def first_priors(self) -> dict[Cell, Spec]:
        """The fits, of one seed, that begin with one prior or another."""
        return _specs(
            (corpus, k, f"{name}, {first}")
            for corpus, (name, way) in product(self.all_corpora(), WAYS.items())
            if way.is_stream or corpus in self.corpora
            for k in (self.topics_of_streams if way.is_stream else self.topics_of_fits)
            for first in PRIORS
        )

    def all(self) -> dict[Cell, Spec]:
        """All fits of one seed."""
        return {**self.defaults(), **self.first_priors()}


def _specs(cells: Iterable[Cell]) -> dict[Cell, Spec]:
    return {cell: Spec.of(*cell) for cell in cells}


FULL = Size()
QUICK = Size(
    corpora=("drawn",),
    corpora_of_streams=(),
    topics=(3,),
    topics_of_streams=(3,),
    topics_of_fits=(3,),
    seeds=1,
)


def render(size: Size, cache: Cache) -> str:
    """The page, of the seeds that all fits of a table have."""
    page = Page()
    page.lines += [
        "# Choices behind the defaults of topics",
        "",
        f"{machine()} Written by `python -m benchmarks.latent_dirichlet.choices`.",
        "",
        "Held-out log-likelihood is the completion of documents that were split off the training "
        "documents. It and the lower bound of the training documents are in nats per token, and "
        "means over seeds.",
        "",
    ]
    _add_defaults(page, cache.of_common_seeds(size.defaults(), size.seeds))
    _add_first_priors(page, cache.of_common_seeds(size.first_priors(), size.seeds))
    return "\n".join(page.lines).rstrip() + "\n"


def _add_defaults(page: Page, records: dict[Cell, Record]) -> None:
    choices = "; ".join(f"*{name}*: {choice.words}" for name, choice in CHOICES.items())
    page.section(
        "Sampled topics",
        f"Each row changes the default: {choices}. In brackets is what the default gains over the "
        "row. Bounds of different η are those of different models. Seconds are processor time. "
        f"Seeds: {n_seeds(records)}.",
    )
    rows = [_row(cell, record, records[(*cell[:2], DEFAULT)]) for cell, record in records.items()]
    page.table(["corpus", "words", "K", "choice", "held out", "bound", "seconds"], rows)


def _add_first_priors(page: Page, records: dict[Cell, Record]) -> None:
    ways = "; ".join(f"*{name}*: {way.words}" for name, way in WAYS.items())
    drawn = ""
    if SHORT in {corpus for corpus, _, _ in records}:
        drawn = (
            f"The {SHORT} are {SHORT_DOCUMENTS}. They alone played no part in the choice of the "
            "default. "
        )
    page.section(
        "The first prior of topic proportions",
        "Each α is 0.1 or 5 / K when training begins, and is learned later. The default is in bold "
        f"type; where topics are sampled, it is 0.1. {ways}. A stream has batches of {BATCH} "
        "documents, and its bound, an estimate from the last batch, is left out. "
        f"{drawn}Seeds: {n_seeds(records)}.",
    )
    rows = []
    for corpus, k, name in {(c, k, n.partition(",")[0]): None for c, k, n in records}:
        found = [records[corpus, k, f"{name}, {first}"] for first in PRIORS]
        held_out = [record["held_out"].mean() for record in found]
        words = [f"{mean:.3f}" for mean in held_out]
        chosen = list(PRIORS).index(default_of(name, k))
        words[chosen] = f"**{words[chosen]}**"
        bounds = ["–"] * len(found)
        if not WAYS[name].is_stream:
            bounds = [f"{record['bound'].mean():.3f}" for record in found]
        gain = f"{held_out[chosen] - held_out[1 - chosen]:+.3f}"
        rows.append([corpus, str(k), name, *words, gain, *bounds])
    header = [f"{what}, {first}" for what in ("held out", "bound") for first in PRIORS]
    header.insert(len(PRIORS), "gain of the default")
    page.table(["corpus", "K", "training", *header], rows)


def _row(cell: Cell, record: Record, default: Record) -> list[str]:
    corpus, k, choice = cell
    figures = []
    for name in ("held_out", "bound"):
        mean = record[name].mean()
        gain = "" if choice == DEFAULT else f" ({default[name].mean() - mean:+.3f})"
        figures.append(f"{mean:.3f}{gain}")
    seconds = f"{record['seconds'].mean():.1f}"
    return [corpus, f"{record['words'][0]:,.0f}", str(k), choice, *figures, seconds]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=Path, required=True, help="JSON lines, one per fit")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a small run that tells nothing")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT}, and fit nothing")
    parser.add_argument("--output", type=Path, help="another file for the page")
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.write and arguments.output is None:
        parser.error("--quick needs --output, so that it does not replace the full page")
    size = QUICK if arguments.quick else FULL
    found = Cache(arguments.records, Spec)
    if arguments.write:
        if not found.n_seeds(size.all().values(), size.seeds):
            parser.error(f"{arguments.records} has no seed of all fits")
        page = arguments.output or RESULTS / OUTPUT
        page.write_text(render(size, found), encoding="utf-8")
        return
    there = set(available(size.all_corpora()))
    specs = [spec for spec in size.all().values() if spec.corpus in there]
    run_missing(specs, size.seeds, found, arguments.jobs)


if __name__ == "__main__":
    main()
