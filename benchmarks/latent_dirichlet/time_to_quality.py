"""Held-out likelihood of topic models against processor time, ours and other libraries.

Records of runs are appended to a file, so that an interrupted run goes on; the page and its figure
are written from the file.

    python -m benchmarks.latent_dirichlet.time_to_quality
    python -m benchmarks.latent_dirichlet.time_to_quality --only corpus=AP K=50
    python -m benchmarks.latent_dirichlet.time_to_quality --budget 600 --jobs 2
    python -m benchmarks.latent_dirichlet.time_to_quality --write

The records lie beside the page, so that runs can be added on another day. On another machine, a
cell (a corpus with a number of topics) is run as a whole unless it is complete, because times do
not compare: the page has, for each cell, the records of the machine that made the most of them.
The settings of ours are at the top of ``contestants.py``, those of the peers at the end of
``topic_peers.py``. A run whose settings have changed since it was recorded is made again; for one
whose code has changed, ``--code`` gives the new state of the package another name.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from ..common import RESULTS
from ..common.records import Cache, run_all
from ..common.report import processor
from .runs import Spec
from .time_plan import FILTERS, FULL, QUICK, Filter, Found, chosen, left_to, missing
from .time_report import render

OUTPUT, RECORDS = "topics_time.md", "topics_time.jsonl"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    records = f"JSON lines, one per run (default: {RECORDS} beside the page)"
    parser.add_argument("--records", type=Path, default=RESULTS / RECORDS, help=records)
    only = f"NAME=PATTERN, where NAME is one of {', '.join(FILTERS)}"
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME=PATTERN", help=only)
    budget = "processor seconds after which a run stops, unless it is that of a sampler"
    parser.add_argument("--budget", type=float, help=budget)
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side (default: 1)")
    parser.add_argument("--code", default="", help="name of the measured state of the package")
    parser.add_argument("--quick", action="store_true", help="a small run that tells nothing")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT}, and fit nothing")
    parser.add_argument("--output", type=Path, help="another file for the page")
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.write and arguments.output is None:
        parser.error("--quick needs --output, so that it does not replace the full page")
    if arguments.quick and arguments.records == RESULTS / RECORDS:
        parser.error("--quick needs --records, so that the records of the page stay what they are")
    if arguments.write and arguments.output is None and not arguments.records.exists():
        parser.error(f"no records at {arguments.records}, so that the page would lose all figures")
    size = replace(QUICK if arguments.quick else FULL, code=arguments.code)
    cache = Cache(arguments.records, Spec)
    if arguments.write:
        page = arguments.output or RESULTS / OUTPUT
        figure = page.with_suffix(".svg")
        page.write_text(render(Found(cache, size), figure), encoding="utf-8")
        return
    try:
        filters = [Filter.of(text) for text in arguments.only]
    except ValueError as error:
        parser.error(str(error))
    specs = left_to(processor(), chosen(size.specs(), filters), cache, size)
    run_all(missing(specs, cache, arguments.budget), cache, arguments.jobs)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
