"""Speed of topic models: the local step and whole fits against scikit-learn's.

The corpora come from files, and a quick run draws a small one. ``benchmarks/common/speed.py`` says
how the command is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition._lda import _update_doc_distribution
from sklearn.decomposition._online_lda_fast import _dirichlet_expectation_2d

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.data.units import Documents
from sklearn_anneal.models.topics import LatentDirichlet

from ..common import speed
from ..common.measuring import interleaved, milliseconds, progress, reached, spread
from ..common.priors import PEER_OF_TOPICS
from ..common.report import Page
from ..common.speed import Speed
from . import absent, ends, fits, small
from .data import available, corpus

STATES = ("fresh", "trained")
# Only every n-th document of these large corpora is used.
SAMPLED = {"20 Newsgroups": 4}
ITERATIONS = 20

# Plain C with the same loops was this many times faster than scikit-learn's local step on the same
# corpora, by K. The factors are a yardstick from outside and are not measured here.
PLAIN_C = {
    ("20 Newsgroups", "float64"): {20: 14.6, 50: 10.3, 100: 9.2},
    ("AP", "float64"): {20: 8.6, 50: 6.1, 100: 5.9},
    ("NIPS", "float64"): {20: 4.2, 50: 3.2, 100: 3.4},
    ("20 Newsgroups", "float32"): {20: 15.1, 50: 18.0, 100: 16.3},
    ("AP", "float32"): {20: 8.3, 50: 9.8, 100: 7.9},
    ("NIPS", "float32"): {20: 3.9, 50: 5.9, 100: 5.6},
}
SHARE_OF_C = 0.85


@dataclass(frozen=True)
class Size(speed.Size):
    """The size of a run.

    Attributes
    ----------
    topics : tuple of int
        Numbers of topics (K) in the section on the local step.
    dtypes : tuple of type
        Precisions of the counts.
    """

    topics: tuple[int, ...] = (20, 50, 100)
    dtypes: tuple[type, ...] = (np.float64, np.float32)


FULL = Size()
QUICK = Size(rounds=1, quick=True, topics=(8,), dtypes=(np.float64,))


def names(size: Size) -> list[str]:
    """The corpora whose files are there."""
    return available(["drawn"] if size.quick else ("20 Newsgroups", "AP", "NIPS"))


# The local step


@cache
def topics_of(name: str, n_components: int, state: str) -> np.ndarray:
    """The topics λ, either as at the start of every fit or after twenty passes over the corpus."""
    X = corpus(name)
    if state == "fresh":
        random_state = np.random.RandomState(0)
        return random_state.gamma(100.0, 0.01, (n_components, X.shape[1]))
    how = {"max_iter": 20, "max_doc_update_iter": 10, "tol": 0, "random_state": 0}
    how |= PEER_OF_TOPICS | {"annealing": "none", "batch_size": 128}
    lda = AnnealedLatentDirichletAllocation(n_components, **how)
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


def measure_local(page: Page, size: Size) -> None:
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
    target = PLAIN_C.get((name, X.dtype.name), {}).get(k)
    row = [name, f"{X.nnz / X.shape[0]:.0f}", X.dtype.name, str(k)]
    row.append(milliseconds(times["peer", "fresh"]))
    for state in STATES:
        row += [milliseconds(times["ours", state]), spread(ratios[state], 1)]
    if target is None:
        return [*row, "–", "–", "–", "–"]
    verdicts = [reached(np.median(ratios[state]) >= SHARE_OF_C * target) for state in STATES]
    return [*row, f"{target:.1f}", f"{SHARE_OF_C * target:.1f}", *verdicts]


SPEED = Speed(
    __doc__,
    model="latent_dirichlet",
    title="Speed of topic models",
    output="topics_speed.md",
    sections={
        "local": measure_local,
        "tables": fits.measure_tables,
        "absent": absent.measure_absent,
        "empty": fits.measure_empty,
        "passes": fits.measure_passes,
        "ends": ends.measure_ends,
        "small": small.measure_small,
    },
    full=FULL,
    quick=QUICK,
)
main = SPEED.main

if __name__ == "__main__":
    main()
