"""Topics of more documents than a fit holds in memory, with a progress bar."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.callback import ProgressBar

from sklearn_anneal import AnnealedLatentDirichletAllocation, Shards
from sklearn_anneal.annealing import StructuredVI

from ..common.interpreters import in_fresh_interpreter
from ..common.measuring import progress
from ..common.memory import STATUS, Sampler
from ..common.report import Page
from ..parts.data import N_WORDS, WORDS_OF_DOCUMENT, Part, drawn, written
from .workload import Size

_TEST = 5_000


def task_million(options: dict[str, Any]) -> dict[str, float]:
    """Time, memory and held-out likelihood of the default fit to files, with a progress bar."""
    *paths, test = options["paths"]

    def make(n_passes: int) -> AnnealedLatentDirichletAllocation:
        annealing = StructuredVI(n_passes=n_passes)
        return AnnealedLatentDirichletAllocation(
            options["components"], annealing=annealing, n_jobs=options["n_jobs"], random_state=0
        ).set_callbacks(ProgressBar())

    held_out = Shards([test]).read(0)
    with redirect_stdout(sys.stderr):
        make(1).fit(held_out)
    lda = make(options["passes"])
    start = time.process_time(), time.perf_counter()
    # The standard output is for the result.
    with Sampler() as memory, redirect_stdout(sys.stderr):
        lda.fit(Shards(paths))
    return {
        "processor": time.process_time() - start[0],
        "wall": time.perf_counter() - start[1],
        "before": memory.before,
        "peak": memory.peak,
        "score": lda.score(held_out),
    }


def measure_million(size: Size) -> list[str]:
    """A million documents out of core."""
    k, n, passes = size.online_topics, size.many_documents, size.passes_of_many
    files, n_test = 20, min(_TEST, size.many_documents)
    page = Page()
    page.section(
        "A million documents out of core",
        f"The default fit with K = {k} and `StructuredVI(n_passes={passes})` to `Shards(paths)`: "
        f"{n:,} drawn documents of about {WORDS_OF_DOCUMENT} words, {N_WORDS:,} words in the "
        f"vocabulary, float32, in {files} uncompressed files `.npz`, with "
        "scikit-learn's `ProgressBar`. Each line in a fresh interpreter. *Peak* is the largest "
        "anonymous memory of the process, sampled every 2 ms, with everything that was there "
        f"before the fit, which is the next column. The score is that of {n_test:,} other "
        "documents, in nats per token.",
    )
    if not STATUS.exists():
        return [*page.lines, f"Left out: this system has no {STATUS}.", ""]
    rows = []
    with tempfile.TemporaryDirectory(prefix="million-") as folder:
        progress("a million documents: drawing")
        paths = written(drawn("documents", files, n // files), Path(folder))
        (test,) = written([Part("documents", files, n_test)], Path(folder))
        gigabytes = sum(Path(path).stat().st_size for path in paths) / 1e9
        for n_jobs in (1, 2):
            progress(f"a million documents, n_jobs={n_jobs}")
            found = in_fresh_interpreter(
                "latent_dirichlet.speed",
                "million",
                paths=[*paths, test],
                components=k,
                passes=passes,
                n_jobs=n_jobs,
            )
            each = np.array([found["processor"], found["wall"]])
            row = [str(n_jobs), f"{gigabytes:.2f}", *(f"{s:.0f}" for s in each)]
            row += [f"{s:.1f}" for s in each / passes]
            row += [f"{found[key] / 1e3:.2f}" for key in ("peak", "before")]
            rows.append([*row, f"{found['score']:.3f}"])
    header = ["n_jobs", "files, GB", "processor time, s", "wall time, s", "s per pass"]
    page.table([*header, "s per pass, wall", "peak, GB", "before, GB", "score"], rows)
    return page.lines


TASKS = {"million": task_million}
