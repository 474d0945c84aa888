"""Topic models: speed in two threads, first fits of a process, and memory."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI

from ..common.interpreters import in_fresh_interpreter
from ..common.measuring import (
    interleaved,
    milliseconds,
    progress,
    reached,
    spread,
    undisturbed,
    undisturbed_wall_seconds,
    wall_seconds,
)
from ..common.memory import STATUS, Sampler
from ..common.report import Page
from ..common.threads import Independent, machine_words, verdict
from .data import corpus
from .workload import Size, estimator, names

FASTER = 1.7
# The factor by which some rows have more topics than the others.
MORE = 4
SPARE_MEGABYTES = 64.0
COLD_SECONDS, WARM_SECONDS = 15.0, 1.0


# Threads


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


# In fresh interpreters


def task_threads(options: dict[str, Any]) -> dict[str, float]:
    """Wall time, processor time, and that of the calling thread alone, for a fit with one job."""
    X = corpus(options["corpus"]).astype(np.float64)
    lda = estimator(
        options["components"],
        n_jobs=1,
        learning_method=options["method"],
        max_iter=4,
        tol=0,
        max_doc_update_iter=10,
    )
    lda.fit(X[:200])
    clocks = (time.perf_counter, time.process_time, time.thread_time)
    before = [clock() for clock in clocks]
    lda.fit(X)
    spent = [clock() - start for clock, start in zip(clocks, before, strict=True)]
    return dict(zip(("wall", "processor", "thread"), spent, strict=True))


def measure_threads(size: Size) -> list[str]:
    """Whether a fit with one job keeps to one thread."""
    page = Page()
    page.section(
        "One job is one thread",
        f"A fit of four passes with `n_jobs=1`, K = {size.many}, float64, in a fresh interpreter "
        "without limits on the threads of libraries. Processor time is that of all threads; on a "
        "busy machine it is below wall time. *Other threads*: what they used of it.",
    )
    rows = []
    for name in names(size, ("NIPS", "20 Newsgroups")):
        for method in ("batch", "online"):
            progress(f"threads, {name}, {method}")
            found = in_fresh_interpreter(
                "latent_dirichlet.speed",
                "threads",
                corpus=name,
                method=method,
                components=size.many,
            )
            others = found["processor"] - found["thread"]
            row = [name, method, *(f"{found[clock]:.2f}" for clock in ("wall", "processor"))]
            row.append(f"{found['processor'] / found['wall']:.2f}")
            rows.append([*row, f"{others / found['processor']:.1%}"])
    header = ["corpus", "learning_method", "wall time, s", "processor time, s"]
    page.table([*header, "processor over wall", "other threads"], rows)
    return page.lines


def task_start(options: dict[str, Any]) -> dict[str, float]:
    """Seconds of the first fit of a process, and of the first predictions after it."""
    X = csr_matrix(np.random.default_rng(0).poisson(1.0, (50, 30)).astype(options["dtype"]))
    lda = AnnealedLatentDirichletAllocation(3, max_iter=2, random_state=0)
    first = wall_seconds(lambda: lda.fit(X))
    return {"fit": first, "predict": wall_seconds(lambda: (lda.transform(X), lda.score(X)))}


def measure_start(size: Size) -> list[str]:
    """The first fit of a process, with and without compiled kernels on disk."""
    page = Page()
    page.section(
        "The first fit",
        "Wall time of a small fit with default annealing, and of `transform` and `score` after it, "
        "each the first of a fresh interpreter; imports done before are not counted. *Cold*: no "
        f"compiled kernel on disk; *warm*: those of the run before. Medians of {size.starts}.",
    )
    rows = []
    for dtype in ("float64",) if size.quick else ("float64", "float32"):
        found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
        for i in range(size.starts):
            progress(f"first fit, {dtype}, {i}")
            with tempfile.TemporaryDirectory() as folder:
                for kind in found:
                    found[kind].append(
                        in_fresh_interpreter("latent_dirichlet.speed", "start", folder, dtype=dtype)
                    )
        for kind, limit in (("cold", COLD_SECONDS), ("warm", WARM_SECONDS)):
            fit, predict = (
                float(np.median([times[what] for times in found[kind]]))
                for what in ("fit", "predict")
            )
            row = [dtype, kind, f"{fit:.2f}", f"{predict:.2f}", f"{limit:g}"]
            rows.append([*row, reached(fit < limit)])
    page.table(["dtype", "kernels", "fit, s", "predictions, s", "limit of the fit, s", ""], rows)
    return page.lines


def task_memory(options: dict[str, Any]) -> dict[str, float]:
    """Growth of the anonymous memory during a fit.

    X, the imports and the kernels are in memory before it and are not counted.
    """
    X = corpus(options["corpus"]).astype(options["dtype"])
    X = vstack([X] * options["copies"], format="csr")
    k, how = options["components"], options["how"]
    parameters: dict[str, Any] = {"max_iter": options["passes"], "tol": 0}
    if how != "batch":
        parameters["learning_method"] = "online"
    lda = estimator(k, **parameters)
    estimator(2, **parameters).fit(X[:300])
    corpus.cache_clear()
    gc.collect()
    with Sampler() as sampler:
        lda.partial_fit(X) if how == "partial_fit" else lda.fit(X)
    return {
        "growth": sampler.growth,
        "X": (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 1e6,
        "topics": 8e-6 * X.shape[1] * k,
        "documents": 8e-6 * X.shape[0] * k,
    }


def measure_memory(size: Size) -> list[str]:
    """Memory that batch fits and streams take beyond X."""
    k = size.many
    page = Page()
    page.section(
        "Memory",
        f"Growth of a process's anonymous memory (its largest, sampled every 2 ms) during a fit, "
        f"K = {k}, with X, imports and kernels there before; MB of 10⁶ bytes. Limit in batch mode: "
        "one float64 array (words, K), one (documents, K), and "
        f"{SPARE_MEGABYTES:g} MB.",
    )
    if not STATUS.exists():
        return [*page.lines, f"Left out: this system has no {STATUS}.", ""]
    rows = []
    for name in names(size, ("NIPS", "20 Newsgroups")):
        for dtype in ("int32",) if size.quick else ("int32", "float32"):
            progress(f"memory, {name}, {dtype}")
            options = {"corpus": name, "dtype": dtype, "components": k, "copies": 1}
            found = in_fresh_interpreter(
                "latent_dirichlet.speed", "memory", how="batch", passes=4, **options
            )
            limit = found["topics"] + found["documents"] + SPARE_MEGABYTES
            figures = (found["X"], found["topics"], found["documents"], limit, found["growth"])
            cells = [f"{value:.1f}" for value in figures]
            rows.append([name, dtype, *cells, reached(found["growth"] <= limit)])
    header = ["corpus", "counts", "X", "(words, K)", "(documents, K)", "limit", "growth", ""]
    page.table(header, rows)
    page.lines += [
        "Streams: the same with every document four times and eight times. One pass of "
        '`learning_method="online"`, and one call of `partial_fit`, which cuts it into batches. A '
        "(documents, K) array would grow by the size of the fourth column.",
        "",
    ]
    rows = []
    for name in names(size, ("20 Newsgroups",)):
        for how in ("partial_fit", "fit"):
            progress(f"memory of streams, {name}, {how}")
            options = {"corpus": name, "dtype": "float64", "components": k, "passes": 1}
            # A fit of fewer documents has not yet filled the memory that it keeps.
            small, large = (
                in_fresh_interpreter(
                    "latent_dirichlet.speed", "memory", how=how, copies=n, **options
                )
                for n in (4, 8)
            )
            more = large["documents"] - small["documents"]
            growth = large["growth"] - small["growth"]
            cells = [f"{v:.1f}" for v in (small["growth"], large["growth"], more, growth)]
            verdict = "none" if growth < more / 2 else "**there is one**"
            rows.append([name, how, *cells, verdict])
    header = ["corpus", "method", "growth, four times", "growth, eight times"]
    header += ["(documents, K) would add", "difference", "(documents, K) array"]
    page.table(header, rows)
    return page.lines


TASKS = {"threads": task_threads, "start": task_start, "memory": task_memory}
