"""Random fits, refusals and streams of all estimators, checked against what has to hold always.

Case number i is a function of the seed and of i alone, so that a failure can be replayed::

    python -m tests.fuzz --cases 1234

A long search is divided into blocks of cases. The file of ``--out`` has a line for each block that
has ended, with what it found. These blocks are not run again if the same command is repeated::

    python -m tests.fuzz --cases 0:100000 --jobs 2 --out fuzz.jsonl

The command prints what it finds and, at the end, how often each kind was found. It returns 1 if
there was anything. Warnings and errors that are not the package's own are findings too.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BLOCK = 100
# A case takes some hundredths of a second; one that takes so many seconds prints where it is.
PATIENCE = 120


def find_modules() -> None:
    """Make the helpers of the tests importable, as pytest does."""
    for folder in ("doc/developers", "tests", "."):
        path = str(ROOT / folder)
        if path not in sys.path:
            sys.path.insert(0, path)


def run_block(seed: int, first: int, last: int) -> dict[str, Any]:
    """Run the cases from ``first`` up to and without ``last``; returns the record of the block."""
    find_modules()
    from fuzzing.run import run_case

    start, findings = time.perf_counter(), []
    for number in range(first, last):
        faulthandler.dump_traceback_later(PATIENCE, repeat=True, file=sys.__stderr__)
        case, found = run_case(seed, number)
        faulthandler.cancel_dump_traceback_later()
        findings += [
            {"case": number, "found": kind, "text": text, **case.described()}
            for kind, text in found
        ]
    seconds = round(time.perf_counter() - start, 1)
    return {"seed": seed, "cases": [first, last], "seconds": seconds, "findings": findings}


def blocks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Divide a range at multiples of the size of a block."""
    while first < last:
        end = min(last, (first // BLOCK + 1) * BLOCK)
        yield first, end
        first = end


def records_of(path: Path | None) -> list[dict[str, Any]]:
    """The records of blocks that have ended; a line that was cut off is not one."""
    if path is None or not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def run_all(seed: int, todo: list[tuple[int, int]], n_jobs: int) -> Iterator[dict[str, Any]]:
    """Run blocks, in other processes if there are several jobs, and yield their records."""
    if n_jobs == 1:
        for block in todo:
            yield run_block(seed, *block)
        return
    left = list(reversed(todo))
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Any, tuple[int, int]] = {}
        while left or running:
            while left and len(running) < n_jobs:
                block = left.pop()
                running[pool.submit(run_block, seed, *block)] = block
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                block = running[future]
                try:
                    yield future.result()
                except BrokenProcessPool:
                    raise SystemExit(
                        f"A process died in one of the blocks {sorted(running.values())}. Run "
                        "them one by one with --jobs 1."
                    ) from None
                del running[future]


def told(finding: dict[str, Any]) -> str:
    odd = f" ({', '.join(finding['odd'])})" if finding["odd"] else ""
    return (
        f"{finding['case']}: {finding['found']}: {finding['model']} × {finding['annealing']}, "
        f"{finding['kind']}, {finding['form']}{odd}: {finding['text']}"
    )


def parsed_cases(text: str) -> tuple[int, int]:
    """Read ``first:last`` or a single number."""
    first, colon, last = text.partition(":")
    return (int(first), int(last)) if colon else (int(first), int(first) + 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=parsed_cases, required=True, metavar="FIRST:LAST")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--out", type=Path, help="file of records, to go on from")
    options = parser.parse_args(arguments)
    records = [r for r in records_of(options.out) if r["seed"] == options.seed]
    ended = {tuple(record["cases"]) for record in records}
    todo = [block for block in blocks(*options.cases) if block not in ended]
    counts = Counter(f["found"] for record in records for f in record["findings"])
    n_cases = sum(last - first for first, last in ended)
    for record in run_all(options.seed, todo, options.jobs):
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        first, last = record["cases"]
        n_cases += last - first
        for finding in record["findings"]:
            print(told(finding), flush=True)
            counts[finding["found"]] += 1
        if len(todo) > 1:
            print(f"cases {first} to {last - 1} in {record['seconds']} s", flush=True)
    print(f"{n_cases} cases, {sum(counts.values())} findings")
    for kind, n in counts.most_common():
        print(f"{n:6d}  {kind}")
    return int(bool(counts))


if __name__ == "__main__":
    raise SystemExit(main())
