"""Speed and memory of topic models against scikit-learn's and gensim's, and where the time goes.

All comparisons are interleaved in this process, one thread each unless said otherwise, and given
as medians of the ratios of neighbouring runs. Cold starts and memory are those of fresh
interpreters.

    python -m benchmarks.bench_lda                     # everything, about half an hour
    python -m benchmarks.bench_lda local jobs
    python -m benchmarks.bench_lda --write             # also into doc/results/topics_speed.md
    python -m benchmarks.bench_lda --quick --write --output /tmp/quick.md

The corpora are files that are looked for as ``benchmarks/_data.py`` says; a quick run draws a small
corpus and needs none. gensim is left out with a message where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
from scipy.sparse import csr_matrix, vstack
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.decomposition._lda import _update_doc_distribution
from sklearn.decomposition._online_lda_fast import _dirichlet_expectation_2d
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks import _data
from benchmarks._report import Page, machine
from benchmarks.bench_memory import STATUS, Sampler, anonymous_megabytes
from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.families import Tempering
from sklearn_anneal.inference import engine
from sklearn_anneal.inference.parallel import SEQUENTIAL
from sklearn_anneal.inference.units import Documents
from sklearn_anneal.kernels import latent_dirichlet as kernels
from sklearn_anneal.kernels._compile import Kernel
from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents
from sklearn_anneal.models import latent_dirichlet
from sklearn_anneal.models.latent_dirichlet import LatentDirichlet

try:
    from gensim.models import LdaModel
except ImportError:
    LdaModel = None

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "doc" / "results" / "topics_speed.md"
DTYPES = (np.float64, np.float32)
STATES = ("fresh", "trained")
ITERATIONS = 20

# How many times faster than scikit-learn's local step plain C with the same loops was on the same
# corpora, for K = 20, 50, 100: a yardstick from outside, not measured here.
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

FASTER_ONLINE = 8.0
FASTER_JOBS = 1.7
SPARE_MEGABYTES = 64.0
COLD_SECONDS, WARM_SECONDS = 15.0, 1.0
# Held-out likelihoods nearer than this, in nats per token, are equal: restarts differ by more.
EQUAL = 0.005

ONLINE = {
    "learning_method": "online",
    "learning_decay": 0.7,
    "learning_offset": 10.0,
    "random_state": 0,
}


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes
    ----------
    rounds : int
        Interleaved repetitions.
    online_rounds : int
        The same for whole online fits; each has a seed of its own.
    topics : tuple of int
        K of the local step.
    many, online_topics : int
        K of the sections on threads and memory, and of the online fits.
    """

    rounds: int = 5
    online_rounds: int = 3
    topics: tuple[int, ...] = TOPICS_OF_C
    many: int = 100
    online_topics: int = 50
    quick: bool = False


FULL = Size()
QUICK = Size(rounds=2, online_rounds=1, topics=(8,), many=16, online_topics=8, quick=True)


# Corpora


@dataclass(frozen=True)
class Corpus:
    """Counts of words, and for each document whether a fit may see it."""

    name: str
    X: csr_matrix
    training: np.ndarray

    @property
    def types(self) -> float:
        """Different words per document."""
        return self.X.nnz / self.X.shape[0]

    def every(self, n: int) -> csr_matrix:
        """Every n-th document."""
        return self.X[::n]


@cache
def corpus(name: str) -> Corpus:
    """A corpus by its name.

    Raises
    ------
    DataNotFoundError
        If its file is missing.
    """
    if name == "drawn":
        return Corpus(name, drawn(300, 200), np.arange(300) % 3 > 0)
    files = {"20 Newsgroups": "newsgroups20.npz", "AP": "ap.npz", "NIPS": "nips.npz"}
    found = _data._load(files[name])
    X = csr_matrix((found["data"], found["indices"], found["indptr"]), shape=tuple(found["shape"]))
    split = found.get("split", np.zeros(X.shape[0]))
    return Corpus(name, X, split == 0)


def drawn(n_documents: int, n_words: int) -> csr_matrix:
    """Documents of five topics with a Zipf distribution each."""
    rng = np.random.default_rng(0)
    zipf = 1.0 / (1.0 + np.arange(n_words))
    topics = np.array([rng.permutation(zipf / zipf.sum()) for _ in range(5)])
    proportions = rng.dirichlet(np.full(5, 0.2), n_documents)
    rates = rng.integers(40, 120, (n_documents, 1)) * (proportions @ topics)
    return csr_matrix(rng.poisson(rates).astype(np.int32))


def names(size: Size) -> list[str]:
    """The corpora of a run."""
    return ["drawn"] if size.quick else ["20 Newsgroups", "AP", "NIPS"]


def sample(name: str) -> csr_matrix:
    """Documents for the local step: all, or every fourth of the many short ones."""
    return corpus(name).every(4 if name == "20 Newsgroups" else 1)


# Measuring


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleaved(runs: dict[Any, Callable[[], object]], rounds: int) -> dict[Any, np.ndarray]:
    """Wall times of several calls, each once per round, in turning order."""
    times: dict[Any, list[float]] = {key: [] for key in runs}
    keys = list(runs)
    for i in range(rounds):
        for key in keys if i % 2 == 0 else keys[::-1]:
            times[key].append(seconds(runs[key]))
    return {key: np.array(values) for key, values in times.items()}


def spread(values: np.ndarray, digits: int = 2) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def milliseconds(values: np.ndarray) -> str:
    return f"{1e3 * np.median(values):.1f}"


def reached(holds: bool) -> str:
    return "reached" if holds else "**not reached**"


def progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {what}", file=sys.stderr, flush=True)


# The local step


@cache
def topics_of(name: str, n_components: int, state: str) -> np.ndarray:
    """λ, fresh as every fit starts, or after twenty passes over the corpus."""
    X = corpus(name).X
    if state == "fresh":
        random_state = np.random.RandomState(0)
        return random_state.gamma(100.0, 0.01, (n_components, X.shape[1]))
    lda = estimator(n_components, max_iter=20, max_doc_update_iter=10, tol=0)
    return lda.fit(X.astype(np.float64)).components_


def estimator(n_components: int, **parameters: Any) -> AnnealedLatentDirichletAllocation:
    """An estimator without annealing."""
    return AnnealedLatentDirichletAllocation(
        n_components, annealing="none", **{"random_state": 0, **parameters}
    )


def model_of(
    n_components: int, n_words: int, n_iter: int, dtype: Any, tol: float = 0.0
) -> LatentDirichlet:
    """The model with priors of 1/K and as many iterations per document as said."""
    share = 1.0 / n_components
    return LatentDirichlet(
        n_components,
        n_words,
        np.full(n_components, share),
        np.full(n_words, share),
        max_doc_update_iter=n_iter,
        mean_change_tol=tol,
        dtype=dtype,
    )


def our_step(X: csr_matrix, topics: np.ndarray, n_iter: int) -> Callable[[], Any]:
    """Our local step over documents, with its statistics completed, at given topics."""
    model = model_of(*topics.shape, n_iter, X.dtype)
    units = Documents(X.data, X.indices, X.indptr)
    t = Tempering()
    expected = model.prepared(model.expectations({"topic_word": np.asfortranarray(topics)}), t)

    def run() -> Any:
        start = model.local_start(units, None, True, None)
        return model.completed(model.local_step(units, expected, t, local=start), expected, t)

    return run


def peer_step(X: csr_matrix, topics: np.ndarray, n_iter: int) -> Callable[[], Any]:
    """scikit-learn's, with what its E-step does to the statistics."""
    table = np.exp(_dirichlet_expectation_2d(topics.astype(X.dtype)))
    prior = 1.0 / len(topics)

    def run() -> Any:
        gamma, sums = _update_doc_distribution(X, table, prior, n_iter, 0.0, True, None)
        sums *= table
        return gamma, sums

    return run


def bench_local(size: Size) -> list[str]:
    """The local step at a fixed number of iterations, against scikit-learn's."""
    page = Page()
    page.section(
        "The local step",
        f"{ITERATIONS} iterations over every document, whatever has converged, and the "
        "statistics of the topics; one thread. scikit-learn: `_update_doc_distribution` with "
        f"`max_doc_update_iter={ITERATIONS}` and `mean_change_tol=0`, and the product with the "
        "topics that its E-step ends with. Neither counts the preparation of the topics. The "
        "topics are *fresh*, as a fit starts, or *trained* by twenty passes. Ratio: "
        f"scikit-learn's time over ours, median and quartiles of {size.rounds} rounds. *C* is "
        "the ratio that plain C with the same loops reached on the same corpora, which knows no "
        f"topics to leave out; the target is {SHARE_OF_C:.0%} of it.",
    )
    rows = []
    for name in names(size):
        for dtype in DTYPES:
            X = sample(name).astype(dtype)
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
    row = [name, f"{corpus(name).types:.0f}", X.dtype.name, str(k)]
    row.append(milliseconds(times["peer", "fresh"]))
    for state in STATES:
        row += [milliseconds(times["ours", state]), spread(ratios[state], 1)]
    if target is None:
        return [*row, "–", "–", "–", "–"]
    verdicts = [reached(np.median(ratios[state]) >= SHARE_OF_C * target) for state in STATES]
    return [*row, f"{target:.1f}", f"{SHARE_OF_C * target:.1f}", *verdicts]


# Topics without tokens in a document


@contextmanager
def all_topics_visited() -> Iterator[None]:
    """The kernels as they would be without leaving topics out of documents.

    A second copy of their module with that turned off, compiled into a directory of its own:
    numba's cache does not tell compiled functions by the constants of their module.
    """
    name = f"{kernels.__package__}._all_topics"
    spec = importlib.util.spec_from_file_location(name, kernels.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._ITERATIONS_TO_REPAY = np.iinfo(np.int64).max  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        with patch.object(numba.config, "CACHE_DIR", folder):
            for dtype in DTYPES:
                module.mean_field.compile(np.dtype(dtype).name)
        with patch.object(latent_dirichlet, "kernels", lambda: module):
            yield


def bench_sparse(size: Size) -> list[str]:
    """What it gains to leave out the topics that have no tokens in a document."""
    k = max(size.topics)
    page = Page()
    page.section(
        "Topics that a document does not have",
        "The local step leaves a topic out of a document once its weight there is negligible. "
        f"Gain: time of the same kernel with that turned off over its time, K = {k}, fixed numbers "
        f"of iterations, medians of {size.rounds} rounds; every third document of NIPS, every "
        "twelfth of 20 Newsgroups. *Topics* is the mean number of topics with more than a "
        "thousandth of a token in a document after 100 iterations.",
    )
    rows = []
    for name in names(size):
        for dtype in DTYPES:
            X = corpus(name).every({"20 Newsgroups": 12, "NIPS": 3}.get(name, 2)).astype(dtype)
            for state in STATES:
                progress(f"topics left out, {name}, {X.dtype.name}, {state}")
                rows.append(_sparse_row(name, X, k, state, size.rounds))
    gains = [f"gain, {n} iterations" for n in (10, 20, 100)]
    page.table(["corpus", "dtype", "state", "topics", *gains], rows)
    return page.lines


def _sparse_row(name: str, X: csr_matrix, k: int, state: str, rounds: int) -> list[str]:
    topics = topics_of(name, k, state)
    gains = []
    for n_iter in (10, 20, 100):
        pairs = _with_and_without(our_step(X, topics, n_iter), rounds)
        gains.append(spread(np.array([whole / sparse for sparse, whole in pairs])))
    gamma = our_step(X, topics, 100)().local
    n_topics = float((gamma - 1.0 / k > 1e-3).sum(axis=1).mean())
    return [name, X.dtype.name, state, f"{n_topics:.1f}", *gains]


_ALL_TOPICS: list[ModuleType] = []


def _with_and_without(run: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    """Times of a local step as it is, and with all topics visited."""
    if not _ALL_TOPICS:
        with all_topics_visited():
            _ALL_TOPICS.append(latent_dirichlet.kernels())
    module = _ALL_TOPICS[0]
    run()
    pairs = []
    for i in range(rounds):
        found = {}
        for whole in (False, True) if i % 2 == 0 else (True, False):
            if whole:
                with patch.object(latent_dirichlet, "kernels", lambda: module):
                    found[whole] = seconds(run)
            else:
                found[whole] = seconds(run)
        pairs.append((found[False], found[True]))
    return pairs


if __name__ == "__main__":
    main()
