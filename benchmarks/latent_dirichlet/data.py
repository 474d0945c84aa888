"""Corpora: four from files, two drawn ones, and their splits.

The files are looked for as ``benchmarks/common/data.py`` says: ``ap.npz``, ``nips.npz``,
``newsgroups20.npz`` and ``newsgroups_basehock.npz`` with counts as CSR arrays ``data``,
``indices``, ``indptr`` and ``shape``. An array ``split``, if a file has one, is 0 for training
documents and 2 for test documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, vstack

from ..common.data import load, present

FILES = {
    "AP": "ap.npz",
    "NIPS": "nips.npz",
    "20 Newsgroups": "newsgroups20.npz",
    "baseball and hockey": "newsgroups_basehock.npz",
}
SHORT = "short documents"


class Generator(NamedTuple):
    """Latent Dirichlet allocation, from which documents are drawn.

    Probabilities of words fall with their rank r as 1 / (r + ``shift``), on average over topics.

    Attributes
    ----------
    n_training, n_test : int
        Number of documents.
    n_topics, n_words : int
    alpha, eta : float
        Sums of the Dirichlet parameters of the proportions of topics, and of the words of a topic.
    shift : float
    mean_length : float
        Mean number of tokens: one, and a Poisson number of further ones.
    """

    n_training: int = 100_000
    n_test: int = 2_000
    n_topics: int = 200
    n_words: int = 10_000
    alpha: float = 1.0
    eta: float = 200.0
    shift: float = 2.7
    mean_length: float = 17.0

    def __str__(self) -> str:
        return (
            f"{self.n_training + self.n_test:,} documents drawn by latent Dirichlet allocation of "
            f"{self.n_topics} topics over {self.n_words:,} words, of which {self.n_test:,} are for "
            f"the test: proportions from a Dirichlet distribution of {self.alpha:g} / "
            f"{self.n_topics} each, topics from one of {self.eta:g} times the probability of the "
            f"word, which falls with its rank r as 1 / (r + {self.shift:g}), lengths of 1 and a "
            f"Poisson number of {self.mean_length - 1:g} on average"
        )


SHORT_DOCUMENTS = Generator()
_CHUNK = 5_000


@cache
def corpus(name: str) -> csr_matrix:
    """All documents of a corpus, with the counts from its file.

    Parameters
    ----------
    name : str
        A key of ``FILES``, ``"drawn"`` for a small corpus that needs no file, or ``SHORT`` for a
        large one of short documents, which needs none either.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    if name == "drawn":
        return _drawn()
    if name == SHORT:
        return _short_documents(SHORT_DOCUMENTS)
    found = load(FILES[name])
    return csr_matrix((found["data"], found["indices"], found["indptr"]), shape=found["shape"])


def _drawn() -> csr_matrix:
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.1), 4)
    rates = 30 * rng.dirichlet(np.full(4, 0.2), 80) @ topics
    return csr_matrix(rng.poisson(rates))


def _short_documents(how: Generator) -> csr_matrix:
    rng = np.random.default_rng(0)
    words = 1.0 / (np.arange(how.n_words) + 1 + how.shift)
    topics = rng.dirichlet(how.eta * words / words.sum(), how.n_topics).cumsum(axis=1)
    total = how.n_training + how.n_test
    chunks = [
        _tokens(how, topics, min(_CHUNK, total - begin), rng) for begin in range(0, total, _CHUNK)
    ]
    return vstack(chunks, format="csr")


def _tokens(
    how: Generator, topics: np.ndarray, n_documents: int, rng: np.random.Generator
) -> csr_matrix:
    """Documents drawn from topics, given the cumulative probabilities of their words."""
    alpha = np.full(how.n_topics, how.alpha / how.n_topics)
    shares = rng.dirichlet(alpha, n_documents).cumsum(axis=1)
    lengths = 1 + rng.poisson(how.mean_length - 1, n_documents)
    document = np.repeat(np.arange(n_documents), lengths)
    levels = rng.random((2, len(document)))
    # Rounding can leave the last cumulative probability below the number that was drawn.
    topic = np.minimum((shares[document] < levels[0][:, None]).sum(axis=1), how.n_topics - 1)
    word = np.empty(len(document), dtype=np.int64)
    for k in np.unique(topic):
        mine = topic == k
        word[mine] = np.searchsorted(topics[k], levels[1][mine])
    np.minimum(word, how.n_words - 1, out=word)
    ones = np.ones(len(document), dtype=np.int32)
    return csr_matrix((ones, (document, word)), shape=(n_documents, how.n_words))


def documents(name: str, every: dict[str, int] | None = None) -> csr_matrix:
    """All documents of a corpus, or every n-th if ``every`` has an n for its name."""
    return corpus(name)[:: (every or {}).get(name, 1)]


def parts(name: str) -> tuple[csr_matrix, csr_matrix]:
    """Training and test documents.

    They are split as the file says or, if it does not, every third document is for the test. Of
    short documents the last ones are.
    """
    X = corpus(name)
    if name == SHORT:
        return X[: SHORT_DOCUMENTS.n_training], X[SHORT_DOCUMENTS.n_training :]
    part = np.where(np.arange(X.shape[0]) % 3 == 2, 2, 0)
    if name != "drawn":
        part = load(FILES[name]).get("split", part)
    return X[part == 0], X[part == 2]


class Limits(NamedTuple):
    """The largest numbers of test documents, and of their tokens, that are evaluated."""

    documents: int
    tokens: float

    def sample(self, X: csr_matrix) -> csr_matrix:
        """The same random documents in every run, in their order, as many as the limits allow."""
        order = np.random.default_rng(0).permutation(X.shape[0])[: self.documents]
        tokens = np.asarray(X.sum(axis=1)).ravel()[order].cumsum()
        return X[np.sort(order[tokens <= self.tokens])]


def completion_parts(name: str, limits: Limits) -> tuple[csr_matrix, csr_matrix]:
    """Training and test documents for document completion, with the words that can be learned.

    Words that no training document has are left out of both, because not every library gives
    them a probability.
    """
    training, test = parts(name)
    known = np.flatnonzero(np.asarray(training.sum(axis=0)).ravel() > 0)
    return training[:, known].tocsr(), limits.sample(test)[:, known].tocsr()


def available(names: Iterable[str]) -> list[str]:
    """The corpora whose files are there; a message is printed for each missing file."""
    return present(names, FILES.get)
