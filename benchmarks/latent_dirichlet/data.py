"""Corpora and a table of ratings from files, and a drawn corpus.

The files are looked for as ``benchmarks/common/data.py`` says: ``ap.npz``, ``nips.npz``,
``newsgroups20.npz`` and ``newsgroups_basehock.npz`` with counts as CSR arrays ``data``,
``indices``, ``indptr`` and ``shape``; ``movielens_100k.npz`` with the arrays ``user``, ``item`` and
``rating``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
from scipy.sparse import csr_matrix

from ..common.data import load, present

FILES = {
    "AP": "ap.npz",
    "NIPS": "nips.npz",
    "20 Newsgroups": "newsgroups20.npz",
    "baseball and hockey": "newsgroups_basehock.npz",
}
RATINGS = "ratings of films"
_ALL = FILES | {RATINGS: "movielens_100k.npz"}


@cache
def corpus(name: str) -> csr_matrix:
    """All documents of a corpus, with the counts from its file; ratings are counts of 1 to 5.

    Parameters
    ----------
    name : str
        A key of ``FILES``, ``RATINGS``, or ``"drawn"`` for a small corpus that needs no file.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    if name == "drawn":
        return _drawn()
    return counts_of(_ALL[name])


def counts_of(file: str) -> csr_matrix:
    """The counts of a file."""
    found = load(file)
    if "rating" in found:
        return csr_matrix((found["rating"], (found["user"], found["item"])))
    return csr_matrix((found["data"], found["indices"], found["indptr"]), shape=found["shape"])


def _drawn() -> csr_matrix:
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.1), 4)
    rates = 30 * rng.dirichlet(np.full(4, 0.2), 80) @ topics
    return csr_matrix(rng.poisson(rates))


def available(names: Iterable[str]) -> list[str]:
    """The corpora whose files are there; a message is printed for each missing file."""
    return present(names, _ALL.get)
