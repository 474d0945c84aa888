"""Drawn data in parts. Every part is drawn from a generator of its own, from shared parameters.

A part is a function without arguments, which can be pickled, so that a cluster's workers draw their
parts themselves; :func:`written` writes parts to files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

N_COLUMNS, N_WORDS, N_TOPICS, WORDS_OF_DOCUMENT = 10, 10_000, 20, 20
N_COUNT_COLUMNS = 200
N_ITEMS, RATINGS_OF_USER, N_FACTORS = 20_000, 50, 10
FRAMES_OF_SEQUENCE, N_STATES = 100, 10


@dataclass(frozen=True)
class Part:
    """A part of drawn data.

    Attributes
    ----------
    family : str
        A key of ``DRAW``.
    index : int
    size : int
        Number of rows, documents, users or frames.
    """

    family: str
    index: int
    size: int

    def __call__(self) -> Any:
        return DRAW[self.family](np.random.default_rng([1, self.index]), self.size)


def drawn(family: str, n_parts: int, size: int) -> list[Part]:
    """Return parts of equal sizes."""
    return [Part(family, i, size) for i in range(n_parts)]


@cache
def _centers() -> np.ndarray:
    return np.random.default_rng(0).normal(0.0, 3.0, (10, N_COLUMNS)).astype(np.float32)


def _rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Rows around ten centers, float32."""
    X = rng.standard_normal((n, N_COLUMNS), dtype=np.float32)
    X += _centers()[rng.integers(10, size=n)]
    return X


@cache
def _words_of_topics() -> np.ndarray:
    """The cumulative probabilities of all topics, one after another: topic k from k to k + 1."""
    words = np.random.default_rng(0).dirichlet(np.full(N_WORDS, 0.05), size=N_TOPICS)
    sums = words.cumsum(axis=1)
    sums /= sums[:, -1:]
    return (sums + np.arange(N_TOPICS)[:, None]).ravel()


def _documents(rng: np.random.Generator, n: int) -> sparse.csr_matrix:
    """Counts of about twenty words per document, float32."""
    lengths = rng.poisson(WORDS_OF_DOCUMENT, n)
    shares = rng.standard_gamma(0.1, (n, N_TOPICS)) + 1e-12
    shares /= shares.sum(axis=1, keepdims=True)
    counts = rng.multinomial(lengths, shares)
    topics = np.repeat(np.tile(np.arange(N_TOPICS), n), counts.ravel())
    found = np.searchsorted(_words_of_topics(), topics + rng.random(len(topics)))
    words = np.minimum(found - topics * N_WORDS, N_WORDS - 1).astype(np.int32)
    of_document = np.repeat(np.arange(n, dtype=np.int32), lengths)
    ones = np.ones(len(words), dtype=np.float32)
    return sparse.coo_matrix((ones, (of_document, words)), shape=(n, N_WORDS)).tocsr()


@cache
def _count_components() -> np.ndarray:
    return np.random.default_rng(0).gamma(0.3, 1 / 0.3, (10, N_COUNT_COLUMNS))


def _counts(rng: np.random.Generator, n: int) -> np.ndarray:
    """Counts that follow a factorization with ten components."""
    rates = rng.gamma(0.3, 0.1 / 0.3, (n, 10)) @ _count_components()
    return rng.poisson(rates).astype(np.float64)


@cache
def _items() -> np.ndarray:
    return np.random.default_rng(0).normal(0.0, 0.5, (N_ITEMS, N_FACTORS))


def _ratings(rng: np.random.Generator, n: int) -> sparse.csr_matrix:
    """Ratings of some items by every user, as a sparse matrix."""
    items = np.sort(rng.integers(N_ITEMS // RATINGS_OF_USER, size=(n, RATINGS_OF_USER)), axis=1)
    items = items + np.arange(RATINGS_OF_USER) * (N_ITEMS // RATINGS_OF_USER)
    users = rng.normal(0.0, 1.0, (n, N_FACTORS))
    scores = np.einsum("uk,urk->ur", users, _items()[items]) + 3.5
    scores += rng.normal(0.0, 0.5, scores.shape)
    indptr = np.arange(0, items.size + 1, RATINGS_OF_USER)
    return sparse.csr_matrix((scores.ravel(), items.ravel(), indptr), shape=(n, N_ITEMS))


def _frames(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Sequences whose states stay for about ten frames, with vectors around ten centers."""
    moves = rng.random(n) < 0.1
    states = np.cumsum(np.where(moves, rng.integers(1, N_STATES, size=n), 0)) % N_STATES
    frames = _centers()[states] + rng.standard_normal((n, N_COLUMNS), dtype=np.float32)
    return np.split(frames, np.arange(FRAMES_OF_SEQUENCE, n, FRAMES_OF_SEQUENCE))


DRAW: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "rows": _rows,
    "documents": _documents,
    "counts": _counts,
    "ratings": _ratings,
    "frames": _frames,
}


def written(parts: Sequence[Part], folder: Path) -> list[str]:
    """Draw parts into files: ``.npy`` of arrays, and ``.npz`` of sparse matrices, uncompressed."""
    paths = []
    for part in parts:
        X = part()
        stem = folder / f"{part.family}-{part.index}"
        if sparse.issparse(X):
            path = stem.with_suffix(".npz")
            sparse.save_npz(path, X, compressed=False)
        else:
            path = stem.with_suffix(".npy")
            np.save(path, X)
        paths.append(str(path))
    return paths
