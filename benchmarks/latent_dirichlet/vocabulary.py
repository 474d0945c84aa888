"""Minibatches of topic models: their cost against the vocabulary's size, and that of draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix

from sklearn_anneal import AnnealedLatentDirichletAllocation
from sklearn_anneal.annealing import StructuredVI

from ..common.measuring import interleaved, milliseconds, progress, reached, spread
from ..common.passes import BatchClock, PassClock
from ..common.priors import PEER_OF_TOPICS
from ..common.report import Page
from .workload import Size

WORDS_OF_DOCUMENT, TOPICS_OF_DOCUMENTS = 30, 50
# Words of the language, of which a topic has its own, but for the most frequent ones.
N_RANKS, N_SHARED = 1_000_000, 1000
BATCH_OF_HASHED, BATCH_OF_STRUCTURED = 256, 128
# The first minibatches are not counted: they still have the start to go through.
FIRST_BATCHES = 3
# A time counts as no growth up to so many times that of the smallest vocabulary: a batch of a large
# one has more words, and their parameters lie farther apart in memory. Work on all words would take
# tens of times as long.
NO_GROWTH = 1.5
COST_OF_DRAWS = 1.5

METHODS = {"plain": "none", "structured": StructuredVI(n_passes=1, evaluate_every=1000)}


# Documents and models


@cache
def hashed(n_documents: int, n_words: int) -> csr_matrix:
    """Documents whose words are hashed into a vocabulary of some size.

    They are the same documents in every vocabulary. The frequency of a word is one over its rank;
    every document has one topic, and every topic its own words, but for the most frequent ones.
    """
    rng = np.random.default_rng(0)
    lengths = rng.poisson(WORDS_OF_DOCUMENT, n_documents)
    of_document = np.repeat(np.arange(n_documents, dtype=np.int32), lengths)
    topics = rng.integers(TOPICS_OF_DOCUMENTS, size=n_documents)[of_document]
    ranks = ((N_RANKS + 1.0) ** rng.random(len(topics))).astype(np.uint64)
    names = ranks + np.where(ranks > N_SHARED, topics, 0).astype(np.uint64) * np.uint64(N_RANKS)
    # Multiplicative hashing: the upper bits of the product depend on all bits of the name.
    codes = (names * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    words = (codes % np.uint64(n_words)).astype(np.int32)
    ones = np.ones(len(words), dtype=np.float32)
    return coo_matrix((ones, (of_document, words)), shape=(n_documents, n_words)).tocsr()


def model(name: str, k: int, batch_size: int, n_passes: int) -> AnnealedLatentDirichletAllocation:
    """An online fit of some passes, plain or structured, with 10 iterations per document."""
    annealing = METHODS[name]
    if isinstance(annealing, StructuredVI):
        annealing = StructuredVI(**annealing.get_params() | {"n_passes": n_passes})
    return AnnealedLatentDirichletAllocation(
        k,
        annealing=annealing,
        learning_method="online",
        batch_size=batch_size,
        max_doc_update_iter=10,
        max_iter=n_passes,
        tol=0,
        random_state=0,
        **PEER_OF_TOPICS,
    )


# A large vocabulary


def measure_vocabulary(size: Size) -> list[str]:
    """The time of a minibatch's visit and update while the vocabulary grows."""
    n_documents = size.hashed_batches * BATCH_OF_HASHED
    page = Page()
    page.section(
        "A large vocabulary",
        f"Online passes over {n_documents:,} drawn documents of about {WORDS_OF_DOCUMENT} words, "
        f"which are hashed into V words; K = {size.online_topics}, batches of {BATCH_OF_HASHED}, "
        "10 iterations per document, float64, one thread, processor time. The documents are the "
        "same for every V. Structured inference draws the topics of the words that a batch meets. "
        "*Words met*: different words in a batch. *Visit* and *update* of a "
        f"batch: median over the batches of a pass but the first {FIRST_BATCHES}, and over "
        f"{size.rounds} rounds, in which all take turns. *Against smallest V*: visit and update "
        "together, over those with the smallest vocabulary, where words share numbers more often, "
        "so that fewer are met; median and quartiles. A batch should cost what its documents and "
        f"words cost, whatever V is: the target is at most {NO_GROWTH:g}. The start and the last "
        "bound of a fit, which look at all of λ once, are not counted.",
    )
    rows = []
    for name in METHODS:
        progress(f"vocabulary, {name}")
        runs = {v: _batches(name, n_documents, v, size.online_topics) for v in size.vocabularies}
        _warm_up(name, size)
        times: dict[int, list[np.ndarray]] = {v: [] for v in runs}
        for i in range(size.rounds):
            for v in list(runs)[:: 1 if i % 2 == 0 else -1]:
                times[v].append(runs[v]())
        first: np.ndarray | None = None
        for v in runs:
            met = _words_met(hashed(n_documents, v))
            visit, update = np.array(times[v]).T
            each = visit + update
            first = each if first is None else first
            ratio = each / first
            row = [name, f"{v:,}", f"{met:,.0f}", milliseconds(visit), milliseconds(update)]
            rows.append([*row, spread(ratio), reached(float(np.median(ratio)) <= NO_GROWTH)])
    header = ["inference", "V", "words met", "visit, ms", "update, ms", "against smallest V"]
    page.table([*header, f"≤ {NO_GROWTH:g}"], rows)
    return page.lines


def _batches(name: str, n_documents: int, n_words: int, k: int) -> Callable[[], np.ndarray]:
    """A function that makes a fit, and returns the median seconds of a visit and of an update."""

    def run() -> np.ndarray:
        X = hashed(n_documents, n_words).astype(np.float64)
        with BatchClock() as clock:
            model(name, k, BATCH_OF_HASHED, 1).fit(X)
        found = np.array([clock.visits, clock.updates])[:, FIRST_BATCHES:]
        return np.median(found, axis=1)

    return run


def _warm_up(name: str, size: Size) -> None:
    """Compile the kernels, and those of structured inference."""
    for dtype in size.dtypes:
        model(name, 4, 16, 1).fit(hashed(64, min(size.vocabularies)).astype(dtype))


def _words_met(X: csr_matrix) -> float:
    """The mean number of different words in a batch."""
    starts = range(0, X.shape[0], BATCH_OF_HASHED)
    return float(np.mean([len(np.unique(X[i : i + BATCH_OF_HASHED].indices)) for i in starts]))


# Costs of draws


def measure_structured(size: Size) -> list[str]:
    """A pass of structured inference online, against a plain one."""
    v, k, n_passes = size.structured_words, size.online_topics, 3
    n_documents = size.hashed_batches * BATCH_OF_STRUCTURED
    page = Page()
    page.section(
        "Structured inference online",
        f"Passes over {n_documents:,} drawn documents of about {WORDS_OF_DOCUMENT} words, V = "
        f"{v:,}, K = {k}, batches of {BATCH_OF_STRUCTURED}, 10 iterations per document; one "
        "thread, processor time. Structured inference draws the topics anew for every batch. Pass: "
        f"median over the passes of a fit of {n_passes} but the last, and over {size.rounds} "
        "rounds. Ratio: structured over plain, median and quartiles; the target is at most "
        f"{COST_OF_DRAWS:g}.",
    )
    rows = []
    for dtype in size.dtypes:
        X = hashed(n_documents, v).astype(dtype)
        progress(f"structured, {X.dtype.name}")
        runs: dict[str, Callable[[], Any]] = {}
        for name in METHODS:
            _warm_up(name, size)
            lda = model(name, k, BATCH_OF_STRUCTURED, n_passes)
            runs[name] = lambda lda=lda, X=X: lda.fit(X)  # type: ignore[misc]
        times = interleaved(runs, size.rounds, _seconds_of_a_pass)
        ratio = times["structured"] / times["plain"]
        row = [X.dtype.name, *(milliseconds(times[name]) for name in METHODS), spread(ratio)]
        rows.append([*row, reached(float(np.median(ratio)) <= COST_OF_DRAWS)])
    page.table(["dtype", "plain, ms", "structured, ms", "ratio", f"≤ {COST_OF_DRAWS:g}"], rows)
    return page.lines


def _seconds_of_a_pass(fit: Callable[[], object]) -> float:
    with PassClock() as clock:
        fit()
    return clock.per_pass(clock.processor)
