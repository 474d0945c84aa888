"""Time that `import sklearn_anneal` adds to `import sklearn.mixture`.

Every measurement uses a fresh interpreter. The two statements alternate, and so does the order in
which they come in a round, so that a machine that slows down for a while slows both. The script
prints the medians of both times and the median of their differences in the same round.

    python -m benchmarks.package.import_time --rounds 15
"""

from __future__ import annotations

import argparse
import statistics

from ..common.interpreters import seconds_in_fresh_interpreter

LIMIT = 0.3

BASE = "import sklearn.mixture"
WITH_PACKAGE = "import sklearn.mixture, sklearn_anneal"

TIMED = """
from time import perf_counter
start = perf_counter()
{statement}
print(perf_counter() - start)
"""


def import_seconds(statement: str) -> float:
    """Seconds that `statement` takes in a fresh interpreter, without the start of that."""
    return seconds_in_fresh_interpreter(TIMED.format(statement=statement))


def measure(rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of both statements, one pair per round."""
    for statement in (BASE, WITH_PACKAGE):
        import_seconds(statement)  # fills the disk cache and writes bytecode; not counted
    base, with_package = [], []
    for i in range(rounds):
        pair = [(BASE, base), (WITH_PACKAGE, with_package)]
        for statement, seconds in pair if i % 2 == 0 else reversed(pair):
            seconds.append(import_seconds(statement))
    return base, with_package


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    base, with_package = measure(parser.parse_args(argv).rounds)
    differences = [b - a for a, b in zip(base, with_package, strict=True)]
    beyond = statistics.median(differences)
    print(f"rounds: {len(base)}, fresh interpreters, interleaved")
    print(f"{BASE}: median {statistics.median(base):.3f} s")
    print(f"{WITH_PACKAGE}: median {statistics.median(with_package):.3f} s")
    print(
        f"beyond sklearn.mixture: median {beyond:.3f} s "
        f"(smallest {min(differences):.3f}, largest {max(differences):.3f})"
    )
    print(f"limit {LIMIT} s: {'met' if beyond < LIMIT else 'MISSED'}")


if __name__ == "__main__":
    main()
