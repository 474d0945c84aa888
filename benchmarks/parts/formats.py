"""The same rows in each of the formats that parts can have: what reading them adds to a pass."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_anneal import Shards

from ..common.measuring import interleaved, milliseconds, processor_seconds, progress, spread
from ..common.passes import PassClock
from ..common.peers import is_there
from ..common.report import Page
from .data import drawn
from .workload import MODELS, Size

try:
    import pyarrow
except ImportError:
    pyarrow = None

N_PARTS = 4
N_COMPONENTS = 4
MEMORY = "in memory"


def _parquet(path: Path, X: np.ndarray) -> None:
    import pandas as pd

    pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).to_parquet(path)


# The names in the table, the ends of file names, and the functions that write an array.
FORMATS: dict[str, tuple[str, Callable[[Path, np.ndarray], object]]] = {
    "`.npy`, mapped": (".npy", np.save),
    "`.npz`": (".npz", np.savez),
    "parquet": (".parquet", _parquet),
    "`.npz`, compressed": (".npz", np.savez_compressed),
}


def written(parts: list[np.ndarray], folder: Path) -> dict[str, list[Any]]:
    """Write the parts in every format that can be read here; return all sources by their names."""
    sources: dict[str, list[Any]] = {MEMORY: list(parts)}
    for i, (name, (suffix, write)) in enumerate(FORMATS.items()):
        if name == "parquet" and not is_there("pyarrow", pyarrow):
            continue
        paths = [folder / f"{i}-{k}{suffix}" for k in range(len(parts))]
        for path, X in zip(paths, parts, strict=True):
            write(path, X)
        sources[name] = [str(path) for path in paths]
    return sources


def _looked_at(shards: Shards) -> None:
    """Read the first part and add up its cells, which a mapped file is read for."""
    np.asarray(shards.read(0)).sum()


def _seconds_of_a_pass(fit: Callable[[], object]) -> float:
    with PassClock() as clock:
        fit()
    return clock.per_pass(clock.processor)


def measure_formats(size: Size) -> list[str]:
    """The same fit to the same rows in every format."""
    page = Page()
    page.section(
        "Formats of files",
        f"`fit(Shards(paths))` without annealing: {N_PARTS * size.format_rows:,} rows of 10 "
        f"columns, float32, in {N_PARTS} parts, by a Gaussian mixture of {N_COMPONENTS} components "
        "with full covariances, which is little work per row. The same rows are in arrays in "
        f"memory and in files of each format. Processor time, medians of {size.rounds} rounds in "
        "which the formats take turns. *Reading*: the first part is read and its cells are added "
        "up. *Pass*: a pass over all parts (median over the passes of a fit but the last). "
        "*Against memory*: ratio of the passes, median and quartiles. The files have just been "
        "written, so that the system has them in memory: what a disk takes comes on top.",
    )
    # Windows keeps files that are still mapped.
    with tempfile.TemporaryDirectory(prefix="parts-", ignore_cleanup_errors=True) as folder:
        arrays = [part() for part in drawn("rows", N_PARTS, size.format_rows)]
        sources = written(arrays, Path(folder))
        shards = {name: Shards(parts) for name, parts in sources.items()}
        model = MODELS["rows"](max_iter=size.passes).set_params(n_components=N_COMPONENTS)
        progress("formats, reading")
        runs = {name: lambda X=X: _looked_at(X) for name, X in shards.items()}
        reading = interleaved(runs, size.rounds, processor_seconds)
        progress("formats, passes")
        fits = {name: lambda X=X: model.fit(X) for name, X in shards.items()}
        model.fit(arrays[0])  # compiles kernels
        passes = interleaved(fits, size.rounds, _seconds_of_a_pass)
        rows = [
            [
                name,
                f"{_megabytes(parts[0]):.1f}",
                milliseconds(reading[name]),
                milliseconds(passes[name]),
                spread(passes[name] / passes[MEMORY]),
            ]
            for name, parts in sources.items()
        ]
    page.table(["part", "MB each", "reading, ms", "pass, ms", "against memory"], rows)
    return page.lines


def _megabytes(part: Any) -> float:
    n_bytes = Path(part).stat().st_size if isinstance(part, str) else part.nbytes
    return n_bytes / 1e6
