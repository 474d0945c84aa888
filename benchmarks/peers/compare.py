"""Compare whole fits of ours and of other libraries, by what they predict and their time.

    python -m benchmarks.peers.compare              # about 10 minutes; prints the page
    python -m benchmarks.peers.compare --write      # also into doc/results/peers.md
    python -m benchmarks.peers.compare --records peers.jsonl --only films papers
    python -m benchmarks.peers.compare --quick      # two small contests that need no file

Every contestant fits the same training data once per seed; the fits of one seed follow one another,
and then those of the next seed. The processor time of the fit is measured on one thread, without
the score of the held-out data. With ``--records`` an interrupted run goes on. Libraries that are
not installed and files that are missing are left out with a message, and named on the page.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ..common import RESULTS
from ..common.data import available, left_out
from ..common.records import BaseSpec, Cache, run_missing
from ..common.report import Page, machine, page_options, parsed
from .contests import OURS, Contest, Contestant, contests, quick_contests

PAGE = RESULTS / "peers.md"
SEEDS = 5
NOT_COMPARED = {
    "hmmlearn, variational": "on the motions, all of ten starts end with a bound that is no number",
    "mclust": "a package of R",
    "pomegranate, mixtures": "on Pima all of five fits end with a covariance that is singular, as "
    "there is no floor of full ones; for classes of GSS 1982, four of five starts by k-means have "
    "a component without rows",
}


@dataclass(frozen=True)
class Spec(BaseSpec):
    """One fit of a contestant."""

    contest: str
    contestant: str
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.contest}, {self.contestant}, seed {self.seed}"

    def run(self) -> dict[str, Any]:
        contestant = contestants_of(self.contest)[self.contestant]
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module(contestant.package)
            if contestant.is_ours and (self.contest, self.contestant) not in _WARM:
                # Kernels are compiled, or read from disk.
                contestant.fit(self.seed)
                _WARM.add((self.contest, self.contestant))
            start = time.process_time()
            score = contestant.fit(self.seed)
            seconds = time.process_time() - start
            return {"seconds": seconds, "score": score()}


_WARM: set[tuple[str, str]] = set()
_MADE: dict[str, dict[str, Contestant]] = {}


def contestants_of(contest: str) -> dict[str, Contestant]:
    """The contestants whose packages are installed."""
    if contest not in _MADE:
        every = (contests() | quick_contests())[contest].make()
        _MADE[contest] = {n: c for n, c in every.items() if is_installed(c.package)}
        for name in every.keys() - _MADE[contest].keys():
            left_out(f"{name}, as {every[name].distribution} is not installed.")
    return _MADE[contest]


def is_installed(package: str) -> bool:
    return find_spec(package.partition(".")[0]) is not None


class Found(NamedTuple):
    """The scores and the seconds of a contestant over the seeds."""

    contestant: Contestant
    scores: np.ndarray
    seconds: np.ndarray

    @property
    def score(self) -> float:
        return float(np.median(self.scores))

    @property
    def time(self) -> float:
        return float(np.median(self.seconds))

    @property
    def row(self) -> list[str]:
        low, high = self.scores.min(), self.scores.max()
        spread = f"{self.score:.4f} ({low:.4f} to {high:.4f})"
        return [self.contestant.settings, spread, f"{self.time:.2g}"]


def results(name: str, cache: Cache, n_seeds: int) -> dict[str, Found]:
    """The recorded results of a contest, by the names of the contestants with all seeds."""
    found = {}
    for contestant, how in contestants_of(name).items():
        record = cache.record(Spec(name, contestant), n_seeds)
        if record is not None:
            found[contestant] = Found(how, record["score"], record["seconds"])
    return found


def losses(contest: Contest, found: dict[str, Found]) -> list[list[str]]:
    """The peers that predict better than our default, or as well in less time."""
    ours, rows = found[OURS], []
    for name, peer in found.items():
        gain = contest.sign * float(np.median(peer.scores - ours.scores))
        less_time = peer.time < ours.time
        if peer.contestant.is_ours or gain < -contest.margin:
            continue
        if gain > contest.margin:
            how = "better, in less time" if less_time else "better"
        elif less_time:
            how = "as good, in less time"
        else:
            continue
        scores = [f"{side.score:.4f}" for side in (peer, ours)]
        times = [f"{side.time:.2g}" for side in (peer, ours)]
        rows.append([contest.title, name, how, f"{gain:+.4f}", *scores, *times])
    return rows


def written(chosen: dict[str, Contest], cache: Cache, n_seeds: int) -> str:
    found = {name: results(name, cache, n_seeds) for name in chosen}
    found = {name: each for name, each in found.items() if OURS in each}
    rows = [row for name, each in found.items() for row in losses(chosen[name], each)]
    lost = sorted(rows, key=lambda row: row[2].startswith("as"))
    peers = {how.contestant.distribution for each in found.values() for how in each.values()}
    named = [
        f"{name} {version(name)}" for name in sorted(peers - {"sklearn-anneal", "scikit-learn"})
    ]
    page = Page(["# Whole fits against other libraries", ""])
    page.lines += [
        f"Written by `python -m benchmarks.peers.compare --write`. "
        f"{' Peers: '.join([machine(), *([', '.join(named) + '.'] if named else [])])}",
        "",
    ]
    page.section(
        "Where a peer is ahead",
        "Our default against each peer: *better* is a score that is better by more than the margin "
        "of the contest in the median of paired differences, *by*, and *as good* one within the "
        "margin. Medians of scores may be the other way round where data are divided anew. "
        f"Scores and seconds are medians over {n_seeds} seeds, which also divide rows, sequences, "
        "documents and ratings into training and held-out ones, but not pictures. Seconds are "
        "processor time of the fit on one thread. "
        f"In {len({r[0] for r in lost if not r[2].startswith('as')})} of {len(found)} contests "
        "some peer predicts better.",
    )
    page.table(["contest", "peer", "it is", "by", "its score", "ours", "its seconds", "ours"], lost)
    for name, each in found.items():
        contest = chosen[name]
        page.section(
            contest.title,
            f"{contest.about} Score: {contest.unit}, "
            f"{'larger' if contest.sign > 0 else 'smaller'} is better; margin "
            f"{contest.margin:g}. In brackets the range over seeds.".strip(),
        )
        best = sorted(each.items(), key=lambda item: -contest.sign * item[1].score)
        page.table(["fit", "settings", "score", "seconds"], [[n, *f.row] for n, f in best])
    absent = {
        how.distribution: "not installed"
        for name in chosen
        for how in chosen[name].make().values()
        if not is_installed(how.package)
    }
    absent |= {chosen[name].title: "not run" for name in chosen if name not in found}
    page.section("Not compared")
    page.lines += [f"- {name}: {why}" for name, why in sorted((NOT_COMPARED | absent).items())]
    return "\n".join(page.lines).rstrip() + "\n"


def main(argv: list[str] | None = None) -> None:
    parser, every = page_options(__doc__, PAGE), contests()
    parser.add_argument("--records", type=Path, help="a file that keeps each fit")
    parser.add_argument("--only", nargs="+", choices=every, help="contests that are run")
    arguments = parsed(parser, argv, PAGE)
    chosen = quick_contests() if arguments.quick else every
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(arguments.records or Path(folder) / "peers.jsonl", Spec)
        there = {n: c for n, c in chosen.items() if c.file is None or available(c.file)}
        for name in chosen.keys() - there.keys():
            left_out(f"{name}, as {chosen[name].file} is missing.")
        n_seeds = 1 if arguments.quick else SEEDS
        for name in arguments.only or there:
            cells = [Spec(name, contestant) for contestant in contestants_of(name)]
            run_missing(cells, n_seeds, cache)
        page = written(there, cache, n_seeds)
    if arguments.quick:
        page = page.replace("## Where", "A quick run, whose figures mean nothing.\n\n## Where", 1)
    if arguments.write:
        arguments.output.write_text(page, encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
