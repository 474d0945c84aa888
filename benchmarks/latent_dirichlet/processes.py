"""Topic models: speed in two threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import (
    interleaved,
    milliseconds,
    progress,
    spread,
    undisturbed,
    undisturbed_wall_seconds,
)
from ..common.report import Page
from ..common.threads import Independent, machine_words, verdict
from .data import corpus
from .workload import Size, estimator, names

FASTER = 1.7
# The factor by which some rows have more topics than the others.
MORE = 4


@dataclass(frozen=True)
class Job:
    """Fits whose passes are measured in one thread and in two.

    Without a batch size, all documents are a batch. With ``draws``, topics are drawn for every
    update (structured inference).
    """

    batch_size: int | str | None = None
    draws: bool = False

    def __str__(self) -> str:
        how = "structured" if self.draws else "plain"
        return f"{how}, " + ("batch" if self.batch_size is None else f"online, {self.batch_size}")

    def fit(self, X: csr_matrix, k: int, n_passes: int, n_jobs: int) -> Any:
        options: dict[str, Any] = {"max_doc_update_iter": 10, "max_iter": n_passes, "tol": 0}
        if self.batch_size is not None:
            options |= {"learning_method": "online", "batch_size": self.batch_size}
        lda = estimator(k, n_jobs=n_jobs, **options)
        if self.draws:
            # The bound, which takes more iterations per document, is evaluated at the end alone.
            lda.annealing = StructuredVI(n_passes=n_passes, evaluate_every=1_000_000)
        return lda.fit(X)


def measure_jobs(size: Size) -> list[str]:
    """Passes in two threads against one, and whether both give the same result."""
    few, many = 2, 8
    page = Page()
    page.section(
        "Two jobs",
        "Passes in batch mode and in minibatches of a number of documents (auto: a quarter of "
        "them, at most 1,024), without annealing and "
        f"with structured inference, 10 iterations per document; wall time per pass (a fit of "
        f"{many} passes less one of {few}) with `n_jobs=1` over that with `n_jobs=2`, median and "
        f"quartiles of {size.rounds} rounds. *One update*: the time of a minibatch, or of a pass "
        f"in batch mode, with one job. {undisturbed()}. {machine_words()}.",
    )
    sizes: tuple[int | str | None, ...] = (None, 16) if size.quick else (None, 128, "auto")
    jobs = [Job(batch, draws) for draws in (False, True) for batch in sizes]
    corpora, k = names(size, ("20 Newsgroups", "NIPS", "AP")), size.online_topics
    cells = [(name, dtype, k, job) for name in corpora for dtype in size.dtypes for job in jobs]
    # The same minibatches with more work in each.
    larger = [job for job in jobs if job.batch_size == sizes[-1]]
    cells += [(corpora[0], dtype, MORE * k, job) for dtype in size.dtypes for job in larger]
    rows = [_jobs_row(*cell, few, many, size.rounds) for cell in cells]
    header = ["corpus", "dtype", "K", "fit", "n_jobs=1, ms", "n_jobs=2, ms", "one update, ms"]
    header += ["ratio", "machine", "same bit for bit", f"target {FASTER:g}"]
    page.table(header, rows)
    return page.lines


def _jobs_row(
    name: str, dtype: Any, k: int, job: Job, few: int, many: int, rounds: int
) -> list[str]:
    X = corpus(name).astype(dtype)
    progress(f"jobs, {name}, {X.dtype.name}, K = {k}, {job}")
    job.fit(X, k, 1, 2)
    independent = Independent(0.001 if name == "drawn" else 0.05)
    runs: dict[Any, Callable[[], object]] = {
        (n_jobs, n): partial(job.fit, X, k, n, n_jobs) for n_jobs in (1, 2) for n in (few, many)
    }
    runs |= {"alone": independent.alone, "at once": independent.at_once}
    times = interleaved(runs, rounds, undisturbed_wall_seconds)
    one, two = ((times[j, many] - times[j, few]) / (many - few) for j in (1, 2))
    machine = float(np.median(2 * times["alone"] / times["at once"]))
    first, second = (job.fit(X, k, few, n_jobs) for n_jobs in (1, 2))
    size = first._batch_size_of(first._make_units(X, None)) or X.shape[0]
    n_updates = -(-X.shape[0] // size)
    same = np.array_equal(first.components_, second.components_)
    same &= np.array_equal(first.lower_bounds_, second.lower_bounds_, equal_nan=True)
    ratio = one / two
    row = [name, X.dtype.name, str(k), str(job), milliseconds(one), milliseconds(two)]
    row += [
        milliseconds(one / n_updates),
        spread(ratio),
        f"{machine:.2f}",
        "yes" if same else "**no**",
    ]
    return [*row, verdict(float(np.median(ratio)), machine, FASTER)]
