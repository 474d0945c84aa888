"""Corpora: four from files, a drawn one, and their splits.

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
from scipy.sparse import csr_matrix

from ..common.data import load, present

FILES = {
    "AP": "ap.npz",
    "NIPS": "nips.npz",
    "20 Newsgroups": "newsgroups20.npz",
    "baseball and hockey": "newsgroups_basehock.npz",
}


@cache
def corpus(name: str) -> csr_matrix:
    """All documents of a corpus, with the counts from its file.

    Parameters
    ----------
    name : str
        A key of ``FILES``, or ``"drawn"`` for a small corpus that needs no file.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    if name == "drawn":
        return _drawn()
    found = load(FILES[name])
    return csr_matrix((found["data"], found["indices"], found["indptr"]), shape=found["shape"])


def _drawn() -> csr_matrix:
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.1), 4)
    rates = 30 * rng.dirichlet(np.full(4, 0.2), 80) @ topics
    return csr_matrix(rng.poisson(rates))


def documents(name: str, every: dict[str, int] | None = None) -> csr_matrix:
    """All documents of a corpus, or every n-th if ``every`` has an n for its name."""
    return corpus(name)[:: (every or {}).get(name, 1)]


def parts(name: str) -> tuple[csr_matrix, csr_matrix]:
    """Training and test documents.

    They are split as the file says or, if it does not, every third document is for the test.
    """
    X = corpus(name)
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
