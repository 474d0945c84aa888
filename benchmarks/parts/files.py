"""Fits to files that are larger than the memory that a fit takes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklearn_anneal import Shards

from ..common.interpreters import in_fresh_interpreter
from ..common.measuring import progress, reached
from ..common.memory import STATUS, Sampler
from ..common.passes import PassClock
from ..common.report import Page
from .data import N_WORDS, WORDS_OF_DOCUMENT, drawn, written
from .workload import MODELS, Size

LARGEST_GIGABYTES = 1.0
COMPONENTS = {"rows": 10, "documents": 20}


class Case(NamedTuple):
    """One fit out of core.

    Attributes
    ----------
    name : str
    family : str
    parameters : dict
        Parameters of the estimator.
    passes : int or None
        Number of passes; None for that of the size.
    """

    name: str
    family: str
    parameters: dict[str, Any]
    passes: int | None = None


CASES = (
    Case("Gaussian mixture", "rows", {}),
    Case("topics, batch", "documents", {"learning_method": "batch"}),
    # A pass of minibatches takes as long as many passes in batch mode.
    Case("topics, online", "documents", {"learning_method": "online", "batch_size": 128}, 1),
)


def task_files(options: dict[str, Any]) -> dict[str, float]:
    """Time and memory of a fit to files, or to the data of the first file in memory."""
    make = MODELS[options["family"]]
    paths, in_memory = options["paths"], options["in_memory"]
    small = drawn(options["family"], 1, 500)[0]()
    make(max_iter=1, **options["parameters"]).fit(small)
    X = Shards(paths)
    if in_memory:
        found = X.read(0)
        X = found if sparse.issparse(found) else np.array(found)
    model = make(max_iter=options["passes"], **options["parameters"])
    start = time.process_time(), time.perf_counter()
    with Sampler() as memory, PassClock() as clock:
        model.fit(X)
    return {
        "processor": clock.per_pass(clock.processor),
        "wall": clock.per_pass(clock.wall),
        "fit": time.process_time() - start[0],
        "fit wall": time.perf_counter() - start[1],
        "before": memory.before,
        "peak": memory.peak,
    }


def measure_files(size: Size) -> list[str]:
    """Fits to files against fits to what fits in memory."""
    page = Page()
    n_rows, n_documents = size.parts * size.rows, size.parts * size.documents
    page.section(
        "Files larger than memory",
        f"`fit(Shards(paths))` without annealing: {n_rows:,} rows of 10 columns, float32, in "
        f"{size.parts} files `.npy` of {size.rows:,} rows, by a Gaussian mixture of 10 components "
        f"with full covariances; and the counts of {n_documents:,} drawn documents of about "
        f"{WORDS_OF_DOCUMENT} words, {N_WORDS:,} words in the vocabulary, in {size.parts} "
        f"uncompressed files `.npz` of {size.documents:,}, by 20 topics with 10 iterations per "
        "document. *In memory*: the same fit to the data of the first file. Each in a fresh "
        "interpreter, one job. *ns* is processor time of a pass per row or document and component "
        "(median over the passes but the last, which also computes the final bound). *Peak*: the "
        "largest anonymous memory of the process, sampled every 2 ms, with everything that was "
        "there before the fit, which is the next column; a GB is 10⁹ bytes. Pages of mapped files "
        "are not counted; the system takes them back when it needs them. Wall time depends on "
        "what else the machine does. *Whole fit* has all passes, the reading of sizes and of the "
        "20,000 rows for the start, and the final bound.",
    )
    if not STATUS.exists():
        page.section("Memory", f"Left out: this system has no {STATUS}.")
        return page.lines
    rows = []
    with tempfile.TemporaryDirectory(prefix="parts-") as folder:
        for family, per_part in (("rows", size.rows), ("documents", size.documents)):
            progress(f"files, {family}: drawing")
            paths = written(drawn(family, size.parts, per_part), Path(folder))
            gigabytes = sum(Path(path).stat().st_size for path in paths) / 1e9
            for case in CASES:
                if case.family == family:
                    rows.append(_row(case, paths, per_part, gigabytes, size))
            for path in paths:
                Path(path).unlink()
    header = ["fit", "files, GB", "passes", "in memory, ns", "from files, ns", "ratio"]
    header += ["s per pass", "s per pass, wall", "whole fit, s", "whole fit, wall"]
    header += ["peak, GB", "before, GB", f"peak < {LARGEST_GIGABYTES:g} GB"]
    page.table(header, rows)
    return page.lines


def _row(case: Case, paths: list[str], per_part: int, gigabytes: float, size: Size) -> list[str]:
    found = {}
    # In memory before and after, because the machine's speed changes within minutes.
    for turn, in_memory in (("before", True), ("files", False), ("after", True)):
        progress(f"files, {case.name}, {turn}")
        found[turn] = in_fresh_interpreter(
            "parts.speed",
            "files",
            family=case.family,
            parameters=case.parameters,
            passes=case.passes or size.passes,
            paths=paths,
            in_memory=in_memory,
        )
    each = 1e9 / (per_part * COMPONENTS[case.family])
    memory = (found["before"]["processor"] + found["after"]["processor"]) / 2 * each
    files = found["files"]
    ns = files["processor"] * each / len(paths)
    row = [case.name, f"{gigabytes:.2f}", str(case.passes or size.passes)]
    row += [f"{memory:.1f}", f"{ns:.1f}", f"{ns / memory:.2f}"]
    row += [f"{files[key]:.1f}" for key in ("processor", "wall", "fit", "fit wall")]
    row += [f"{files['peak'] / 1e3:.2f}", f"{files['before'] / 1e3:.2f}"]
    return [*row, reached(files["peak"] / 1e3 < LARGEST_GIGABYTES)]


TASKS = {"files": task_files}
