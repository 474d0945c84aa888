"""Held-out likelihood of topic models against processor time, ours and other libraries.

Records of runs are appended to a file, so that an interrupted run goes on; the page and its figure
are written from the file.

    python -m benchmarks.latent_dirichlet.time_to_quality --records FILE
    python -m benchmarks.latent_dirichlet.time_to_quality --records FILE --only corpus=AP K=50
    python -m benchmarks.latent_dirichlet.time_to_quality --records FILE --budget 600
    python -m benchmarks.latent_dirichlet.time_to_quality --records FILE --write

The settings of ours are at the top of ``contestants.py``, those of the peers at the end of
``topic_peers.py``. A run whose settings have changed since it was recorded is made again.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..common import RESULTS
from ..common.reproduction import Cache, run_all
from .runs import Spec
from .time_plan import FILTERS, FULL, QUICK, Filter, Found, chosen, missing
from .time_report import render

OUTPUT = "topics_time.md"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=Path, required=True, help="JSON lines, one per run")
    only = f"NAME=PATTERN, where NAME is one of {', '.join(FILTERS)}"
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME=PATTERN", help=only)
    parser.add_argument("--budget", type=float, help="processor seconds after which a run stops")
    parser.add_argument("--quick", action="store_true", help="a small run that tells nothing")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT}, and fit nothing")
    parser.add_argument("--output", type=Path, help="another file for the page")
    arguments = parser.parse_args(argv)
    if arguments.quick and arguments.write and arguments.output is None:
        parser.error("--quick needs --output, so that it does not replace the full page")
    size = QUICK if arguments.quick else FULL
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
    run_all(missing(chosen(size.specs(), filters), cache, arguments.budget), cache)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
