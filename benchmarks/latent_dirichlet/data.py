"""Corpora: four from files, and a drawn one.

The files are looked for as ``benchmarks/common/data.py`` says: ``ap.npz``, ``nips.npz``,
``newsgroups20.npz`` and ``newsgroups_basehock.npz`` with counts as CSR arrays ``data``,
``indices``, ``indptr`` and ``shape``.
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
    return counts_of(FILES[name])


def counts_of(file: str) -> csr_matrix:
    """The counts of a file."""
    found = load(file)
    return csr_matrix((found["data"], found["indices"], found["indptr"]), shape=found["shape"])


def _drawn() -> csr_matrix:
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.1), 4)
    rates = 30 * rng.dirichlet(np.full(4, 0.2), 80) @ topics
    return csr_matrix(rng.poisson(rates))


def available(names: Iterable[str]) -> list[str]:
    """The corpora whose files are there; a message is printed for each missing file."""
    return present(names, FILES.get)
