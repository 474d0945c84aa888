"""Speed of topic models: the local step against scikit-learn's, and passes in two threads.

The corpora come from files, and a quick run draws a small one. ``benchmarks/common/speed.py`` says
how the command is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition._lda import _update_doc_distribution
from sklearn.decomposition._online_lda_fast import _dirichlet_expectation_2d

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI
from sklearn_anneal.data.units import Documents
from sklearn_anneal.models.topics import LatentDirichlet

from ..common import speed
from ..common.measuring import (
    interleaved,
    milliseconds,
    progress,
    reached,
    spread,
    undisturbed,
    undisturbed_wall_seconds,
)
from ..common.priors import PEER_OF_TOPICS
from ..common.report import Page
from ..common.speed import NEVER, Speed, pass_times
from ..common.threads import Independent, machine_words, verdict
from .data import available, corpus

STATES = ("fresh", "trained")
# Only every n-th document of these large corpora is used.
SAMPLED = {"20 Newsgroups": 4}
ITERATIONS = 20

# Plain C with the same loops was this many times faster than scikit-learn's local step on the same
# corpora, for K = 20, 50, 100. The factors are a yardstick from outside and are not measured here.
PLAIN_C = {
    ("20 Newsgroups", "float64"): (14.6, 10.3, 9.2),
    ("AP", "float64"): (8.6, 6.1, 5.9),
    ("NIPS", "float64"): (4.2, 3.2, 3.4),
    ("20 Newsgroups", "float32"): (15.1, 18.0, 16.3),
    ("AP", "float32"): (8.3, 9.8, 7.9),
    ("NIPS", "float32"): (3.9, 5.9, 5.6),
}
TOPICS_OF_C = (20, 50, 100)
SHARE_OF_C = 0.85
# How many times as fast two jobs should be, and by which factor some rows have more topics.
FASTER = 1.7
MORE = 4


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run.

    Attributes
    ----------
    topics : tuple of int
        Numbers of topics (K) in the section on the local step.
    topics_of_jobs : int
        K in the section on two jobs.
    dtypes : tuple of type
        Precisions of the counts.
    """

    topics: tuple[int, ...] = (20, 50, 100)
    topics_of_jobs: int = 50
    dtypes: tuple[type, ...] = (np.float64, np.float32)


FULL = Size(5, (2, 8))
QUICK = Size(1, (2, 8), quick=True, topics=(8,), topics_of_jobs=8, dtypes=(np.float64,))


def names(size: Size, wanted: tuple[str, ...] = ("20 Newsgroups", "AP", "NIPS")) -> list[str]:
    """The corpora of a section whose files are there."""
    return available(["drawn"] if size.quick else wanted)


def estimator(n_components: int, **parameters: Any) -> AnnealedLatentDirichletAllocation:
    """An estimator without annealing, with the priors and the batches of scikit-learn."""
    usual = {**PEER_OF_TOPICS, "batch_size": 128, "random_state": 0}
    return AnnealedLatentDirichletAllocation(
        n_components, annealing="none", **{**usual, **parameters}
    )


# The local step


@cache
def topics_of(name: str, n_components: int, state: str) -> np.ndarray:
    """The topics λ, either as at the start of every fit or after twenty passes over the corpus."""
    X = corpus(name)
    if state == "fresh":
        random_state = np.random.RandomState(0)
        return random_state.gamma(100.0, 0.01, (n_components, X.shape[1]))
    lda = estimator(n_components, max_iter=20, max_doc_update_iter=10, tol=0)
    return lda.fit(X.astype(np.float64)).components_


def our_step(X: csr_matrix, topics: np.ndarray, n_iter: int) -> Callable[[], Any]:
    """Our local step over documents at given topics, including the final work on its statistics."""
    (k, n_words), share = topics.shape, 1.0 / len(topics)
    priors = np.full(k, share), np.full(n_words, share)
    how = {"max_doc_update_iter": n_iter, "mean_change_tol": 0.0, "dtype": X.dtype}
    model = LatentDirichlet(k, n_words, *priors, **how)
    units = Documents(X.data, X.indices, X.indptr)
    visit = model.visit({"topic_word": np.asfortranarray(topics)}, units)

    def run() -> Any:
        start = visit.start(units, None, True, 0.0, None)
        return visit.finish(visit.step(units, None, start))

    return run


def peer_step(X: csr_matrix, topics: np.ndarray, n_iter: int) -> Callable[[], Any]:
    """scikit-learn's local step, including the work of its E-step on the statistics."""
    table = np.exp(_dirichlet_expectation_2d(topics.astype(X.dtype)))
    prior = 1.0 / len(topics)

    def run() -> Any:
        gamma, sums = _update_doc_distribution(X, table, prior, n_iter, 0.0, True, None)
        sums *= table
        return gamma, sums

    return run


def measure_local(size: Size) -> list[str]:
    """The local step at a fixed number of iterations, against scikit-learn's."""
    page = Page()
    page.section(
        "The local step",
        f"{ITERATIONS} iterations over every document, whatever has converged, and the "
        "statistics of the topics; one thread, processor time. scikit-learn: "
        f"`_update_doc_distribution` with `max_doc_update_iter={ITERATIONS}` and "
        "`mean_change_tol=0`, and the product with the topics that its E-step ends with. Neither "
        "counts the preparation of the topics. The topics are *fresh*, as a fit starts, or "
        "*trained* by twenty passes. Ratio: scikit-learn's time over ours, median and quartiles "
        f"of {size.rounds} rounds. *C* is the ratio that plain C with the same loops reached on "
        "the same corpora, which knows no topics to leave out; the target is "
        f"{SHARE_OF_C:.0%} of it.",
    )
    rows = []
    for name in names(size):
        for dtype in size.dtypes:
            X = corpus(name)[:: SAMPLED.get(name, 1)].astype(dtype)
            for k in size.topics:
                progress(f"local step, {name}, {np.dtype(dtype).name}, K = {k}")
                rows.append(_local_row(name, X, k, size.rounds))
    header = ["corpus", "types", "dtype", "K", "scikit-learn, ms", "ours, fresh, ms"]
    header += ["ratio, fresh", "ours, trained, ms", "ratio, trained", "C", "85 % of C"]
    header += ["fresh", "trained"]
    page.table(header, rows)
    return page.lines


def _local_row(name: str, X: csr_matrix, k: int, rounds: int) -> list[str]:
    runs: dict[Any, Callable[[], object]] = {}
    for state in STATES:
        topics = topics_of(name, k, state)
        runs["peer", state] = peer_step(X, topics, ITERATIONS)
        runs["ours", state] = our_step(X, topics, ITERATIONS)
    for state in STATES:
        runs["ours", state]()
    times = interleaved(runs, rounds)
    ratios = {state: times["peer", state] / times["ours", state] for state in STATES}
    of_c = PLAIN_C.get((name, X.dtype.name))
    target = of_c[TOPICS_OF_C.index(k)] if of_c is not None and k in TOPICS_OF_C else None
    row = [name, f"{X.nnz / X.shape[0]:.0f}", X.dtype.name, str(k)]
    row.append(milliseconds(times["peer", "fresh"]))
    for state in STATES:
        row += [milliseconds(times["ours", state]), spread(ratios[state], 1)]
    if target is None:
        return [*row, "–", "–", "–", "–"]
    verdicts = [reached(np.median(ratios[state]) >= SHARE_OF_C * target) for state in STATES]
    return [*row, f"{target:.1f}", f"{SHARE_OF_C * target:.1f}", *verdicts]


# Two jobs


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

    def fit(self, X: csr_matrix, k: int, n_jobs: int, n_passes: int) -> Any:
        options: dict[str, Any] = {"max_doc_update_iter": 10, "max_iter": n_passes, "tol": 0}
        if self.batch_size is not None:
            options |= {"learning_method": "online", "batch_size": self.batch_size}
        lda = estimator(k, n_jobs=n_jobs, **options)
        if self.draws:
            # The bound, which takes more iterations per document, is evaluated at the end alone.
            lda.annealing = StructuredVI(n_passes=n_passes, evaluate_every=NEVER)
        return lda.fit(X)


def measure_jobs(size: Size) -> list[str]:
    """Passes in two threads against one, and whether both give the same result."""
    few, many = size.passes
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
    corpora, k = names(size, ("20 Newsgroups", "NIPS", "AP")), size.topics_of_jobs
    cells = [(name, dtype, k, job) for name in corpora for dtype in size.dtypes for job in jobs]
    # The same minibatches with more work in each.
    larger = [job for job in jobs if job.batch_size == sizes[-1]]
    cells += [(corpora[0], dtype, MORE * k, job) for dtype in size.dtypes for job in larger]
    rows = [_jobs_row(*cell, size) for cell in cells]
    header = ["corpus", "dtype", "K", "fit", "n_jobs=1, ms", "n_jobs=2, ms", "one update, ms"]
    header += ["ratio", "machine", "same bit for bit", f"target {FASTER:g}"]
    page.table(header, rows)
    return page.lines


def _jobs_row(name: str, dtype: Any, k: int, job: Job, size: Size) -> list[str]:
    X = corpus(name).astype(dtype)
    progress(f"jobs, {name}, {X.dtype.name}, K = {k}, {job}")
    independent = Independent(0.001 if size.quick else 0.05)
    fits = {n_jobs: partial(job.fit, X, k, n_jobs) for n_jobs in (1, 2)}
    others = {"alone": independent.alone, "at once": independent.at_once}
    times = pass_times(fits, others, size, undisturbed_wall_seconds)
    machine = float(np.median(2 * times["alone"] / times["at once"]))
    first, second = (fit(size.passes[0]) for fit in fits.values())
    n_documents = first._batch_size_of(first._make_units(X, None)) or X.shape[0]
    n_updates = -(-X.shape[0] // n_documents)
    same = np.array_equal(first.components_, second.components_)
    same &= np.array_equal(first.lower_bounds_, second.lower_bounds_, equal_nan=True)
    ratio = times[1] / times[2]
    return [
        *(name, X.dtype.name, str(k), str(job), milliseconds(times[1]), milliseconds(times[2])),
        *(milliseconds(times[1] / n_updates), spread(ratio), f"{machine:.2f}"),
        "yes" if same else "**no**",
        verdict(float(np.median(ratio)), machine, FASTER),
    ]


SPEED = Speed(
    __doc__,
    model="latent_dirichlet",
    title="Speed of topic models",
    output="topics_speed.md",
    sections={"local": measure_local, "jobs": measure_jobs},
    full=FULL,
    quick=QUICK,
    threaded=("jobs",),
)
main = SPEED.main

if __name__ == "__main__":
    main()
