"""Compare one fit of every estimator with many plain starts, on real and drawn instances.

Records of fits are appended to a file, so that an interrupted run goes on and the peers are fitted
once; a report on them is printed.

    python -m benchmarks.suite.run --records FILE                          # choose
    python -m benchmarks.suite.run --records FILE --settings default race --seeds 3
    python -m benchmarks.suite.run --records FILE --instances "mixture/*" "topics/ap*"
    python -m benchmarks.suite.run --records FILE --half confirm           # once, at the end
    python -m benchmarks.suite.run --records FILE --half both --report --write

The settings are in ``settings.py``, where others are added, the instances and the rule of the two
halves in ``instances.py``, and the rules of the report in ``report.py``.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from ..common import RESULTS
from ..common.data import left_out
from ..common.reproduction import Cache, run_missing
from .fits import Spec
from .instances import HALVES, INSTANCES, Instance, selected, with_files
from .report import render
from .settings import PACKAGES, REFERENCE, SETTINGS, parameters

OUTPUT = "suite.md"


# Seconds that one fit takes, roughly, for fits of which the file has none: the peer, ours.
_COSTS = {
    "mixture": (1.5, 0.2),
    "groups": (1.0, 0.3),
    "columns": (1.0, 0.4),
    "factorial": (2.0, 0.5),
    "counts": (4.0, 1.0),
    "factors": (2.0, 0.5),
    "sequence": (1.0, 0.3),
    "topics": (30.0, 0.3),
    "ratings": (2.0, 0.3),
}
_COST_OF_OTHERS = 8.0


def estimate(cells: list[Spec], n_seeds: int, cache: Cache) -> float:
    """Roughly how many minutes the fits take that the file does not have.

    Fits of a kind that the file has are taken to need the time that the first of them did.
    """
    seconds = 0.0
    for cell in cells:
        missing = sum(spec not in cache for spec in cell.seeded(n_seeds))
        known = cache.record(cell, 1)
        peer, ours = _COSTS[INSTANCES[cell.instance].family]
        usual = {REFERENCE: peer}.get(cell.setting, _COST_OF_OTHERS)
        usual = ours if cell.setting in SETTINGS else usual
        seconds += missing * (usual if known is None else float(known["seconds"][0]))
    return seconds / 60


def planned(instances: list[Instance], settings: list[str], code: str) -> list[Spec]:
    """The fits of all instances: peers, settings, and other libraries where they are installed."""
    others = sorted({library for instance in instances for library in instance.also})
    there = {library for library in others if find_spec(PACKAGES[library]) is not None}
    for library in others:
        if library not in there:
            left_out(f"{library}, which is not installed (pip install {PACKAGES[library]}).")
    return [
        Spec.of(instance.name, name, code)
        for instance in instances
        for name in (REFERENCE, *settings, *(o for o in instance.also if o in there))
    ]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=Path, required=True, help="JSON lines, one per fit")
    parser.add_argument("--settings", nargs="+", default=["default"], help="names in settings.py")
    parser.add_argument("--instances", nargs="+", default=["*"], help="names, with wildcards")
    parser.add_argument("--half", choices=(*HALVES, "both"), default="choose")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument("--code", default="", help="name of the measured state of the package")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--report", action="store_true", help="fit nothing, only report")
    parser.add_argument("--write", action="store_true", help=f"write the page {OUTPUT}, not print")
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
        cells = planned(instances, arguments.settings, arguments.code)
        minutes = estimate(cells, arguments.seeds, cache)
        print(f"{len(instances)} instances, about {minutes:.0f} minutes on one core.", flush=True)
        run_missing(cells, arguments.seeds, cache, arguments.jobs)
    text = render(instances, arguments.settings, arguments.code, cache, arguments.seeds)
    if arguments.write:
        (arguments.output or RESULTS / OUTPUT).write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
