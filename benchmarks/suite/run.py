"""Compare settings of all estimators with plain starts, the usual priors and EM on many instances.

Records of fits are appended to a file, so that an interrupted run goes on and what ours is compared
with is fitted once; a report on them is printed.

    python -m benchmarks.suite.run --records FILE                          # "default", choose
    python -m benchmarks.suite.run --records FILE --settings default plain --seeds 3
    python -m benchmarks.suite.run --records FILE --instances "mixture/*" "topics/ap*"
    python -m benchmarks.suite.run --records FILE --against "a hundred plain starts" --seeds 2
    python -m benchmarks.suite.run --records FILE --splits 16 --against "ten plain starts"
    python -m benchmarks.suite.run --records FILE --half confirm           # once, at the end
    python -m benchmarks.suite.run --records FILE --half both --report --write

With ``--write``, instances and settings that have no records keep the rows that the page has, so
that a part of the suite can be measured anew.

The settings are in ``settings.py``, where others are added, the instances and the rule of the two
halves in ``instances.py``, and the rules of the report in ``report.py``. The report uses the seeds
that both sides of a comparison have, so that expensive contestants may have fewer of them.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from ..common import RESULTS
from ..common.records import Cache, run_missing
from .fits import Spec
from .instances import EM, HALVES, INSTANCES, Instance, selected, with_files
from .report import render
from .settings import PEER, REFERENCES, TEN, has_peer, is_ours, parameters

OUTPUT = "suite.md"


def planned(
    instances: list[Instance], settings: list[str], against: list[str], code: str
) -> list[Spec]:
    """The fits of all instances: settings, and what they are compared with."""
    cells = []
    for instance in instances:
        names = [name for name in REFERENCES if name in against]
        if not has_peer(instance.family):
            names = [name for name in names if name != PEER]
        names += settings
        if EM in against and instance.labels is not None:
            names.append(EM)
        cells += [Spec.of(instance.name, name, code) for name in dict.fromkeys(names)]
    return cells


def divided(cells: list[Spec], n_splits: int) -> list[Spec]:
    """The fits on further divisions of the data: those of settings and of ten plain starts."""
    known = [cell for cell in cells if cell.setting == TEN or is_ours(cell.setting)]
    return [
        replace(cell, split=split)
        for cell in known
        if INSTANCES[cell.instance].can_be_divided
        for split in range(1, n_splits + 1)
    ]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=Path, required=True, help="JSON lines, one per fit")
    parser.add_argument("--settings", nargs="+", default=["default"], help="names in settings.py")
    contestants = [*REFERENCES, EM]
    parser.add_argument(
        "--against",
        nargs="+",
        choices=contestants,
        default=contestants,
        metavar="NAME",
        help=f"what they are compared with (default: all of {', '.join(contestants)})",
    )
    parser.add_argument("--instances", nargs="+", default=["*"], help="names, with wildcards")
    parser.add_argument("--half", choices=(*HALVES, "both"), default="choose")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument(
        "--splits",
        type=int,
        default=0,
        help="further divisions into training and held-out data, on which settings and ten plain "
        "starts are fitted once each (default: 0)",
    )
    parser.add_argument("--code", default="", help="name of the measured state of the package")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--report", action="store_true", help="fit nothing, only report")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT}, not print")
    parser.add_argument("--output", type=Path, help="another file for the page")
    arguments = parser.parse_args(argv)
    try:
        half = None if arguments.half == "both" else arguments.half
        instances = selected(half, arguments.instances)
        for name in arguments.settings:
            for family in {instance.family for instance in instances}:
                parameters(name, family)
    except ValueError as error:
        parser.error(str(error))
    cache = Cache(arguments.records, Spec)
    if not arguments.report:
        instances = with_files(instances)
        cells = planned(instances, arguments.settings, arguments.against, arguments.code)
        print(f"{len(instances)} instances, {len(cells)} fits for each seed.", flush=True)
        run_missing(cells, arguments.seeds, cache, arguments.jobs)
        run_missing(divided(cells, arguments.splits), 1, cache, arguments.jobs)
    page, earlier = arguments.output or RESULTS / OUTPUT, ""
    if arguments.write and page.exists():
        earlier = page.read_text(encoding="utf-8")
    shown = instances, arguments.settings, arguments.code, cache, arguments.seeds
    text = render(*shown, earlier)
    if arguments.write:
        page.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
