"""Tables of binary columns and categories: surveys, votes, mushrooms and words of posts.

The files are looked for as ``benchmarks/common/data.py`` says. In all of them −1 is a missing cell.
``surveys_polca.npz`` has tables of categories (n_rows, n_columns) by name: ``carcinoma``,
``cheating``, ``gss82``, ``values`` and ``election``. ``mushroom.npz`` and ``votes_1984.npz`` have
``X`` (n_rows, n_columns), and ``newsgroups_w100.npz`` has a binary ``X`` (n_posts, 100).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..common.data import load

SURVEYS, MUSHROOM, VOTES = "surveys_polca.npz", "mushroom.npz", "votes_1984.npz"
WORDS = "newsgroups_w100.npz"
FILES = {
    "mushroom": MUSHROOM,
    "votes": VOTES,
    "words": WORDS,
    **dict.fromkeys(("carcinoma", "cheating", "gss82", "values", "election"), SURVEYS),
}


@lru_cache(maxsize=8)
def table(name: str) -> np.ndarray:
    """The table of a name, (n_rows, n_columns); −1 where a cell is missing.

    Three quarters of the posts are in the table of words, in random order.
    """
    if name == "words":
        X = load(WORDS)["X"].astype(np.int8)
        return X[np.random.default_rng(0).permutation(len(X))[: 3 * len(X) // 4]]
    return _survey(name) if FILES[name] == SURVEYS else load(FILES[name])["X"]


def _survey(name: str) -> np.ndarray:
    X = load(SURVEYS)[name]
    if name == "cheating":
        X = X[:, :4]  # the average of grades is a covariate of the documented models
    if name == "election":
        X = X[:, :12]
        X = X[(X >= 0).all(axis=1)]
    return X
