"""Data in parts: files larger than memory, formats of files, and clusters.

    python -m benchmarks.parts.speed            # everything
    python -m benchmarks.parts.speed files
    python -m benchmarks.parts.speed --write    # also into doc/results/parts.md
    python -m benchmarks.parts.speed --quick --write --output /tmp/quick.md

Files of several gigabytes are written to the directory for temporary files, which the environment
variable ``TMPDIR`` names, and deleted at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from ..common.measuring import Script
from .cluster import distributed, measure_cluster
from .files import TASKS, measure_files
from .formats import measure_formats, pyarrow
from .workload import FULL, QUICK, Size

BENCHMARKS: dict[str, tuple[Callable[[Size], list[str]], bool]] = {
    "files": (measure_files, True),
    "formats": (measure_formats, True),
    "cluster": (measure_cluster, False),
}


def main(argv: list[str] | None = None) -> None:
    Script(
        model="parts",
        title="Data in parts",
        description=(__doc__ or "").partition("\n")[0],
        benchmarks=BENCHMARKS,
        tasks=TASKS,
        output="parts.md",
        peers={"distributed": distributed, "pyarrow": pyarrow},
        full=FULL,
        quick=QUICK,
    ).run(argv)


if __name__ == "__main__":
    main()
