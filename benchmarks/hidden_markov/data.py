"""Sequences: pen trajectories, and texts.

The file is looked for as ``benchmarks/common/data.py`` says: ``character_trajectories.npz`` with
frames ``X`` (n_frames, 3), ``lengths`` and ``labels`` (n_sequences,) and ``label_names``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn import datasets

from ..common.data import load

_FILE = "character_trajectories.npz"


@dataclass(frozen=True)
class Sequences:
    """Several sequences, one after another.

    Attributes
    ----------
    X : ndarray of shape (n_frames, n_features)
    lengths : ndarray of int, shape (n_sequences,)
    """

    X: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sequences: list[np.ndarray]) -> Sequences:
        return cls(np.concatenate(sequences), np.array([len(s) for s in sequences]))

    def __len__(self) -> int:
        return len(self.lengths)


def _shuffled(sequences: list[np.ndarray]) -> list[np.ndarray]:
    """The sequences in an order that is random, and the same in every run."""
    return [sequences[i] for i in np.random.default_rng(0).permutation(len(sequences))]


@cache
def trajectories() -> dict[str, Any]:
    """The arrays of the file of pen trajectories."""
    return load(_FILE)


def _trimmed(sequence: np.ndarray) -> np.ndarray:
    """Cut off the exact zeros that pad both ends of the sequences."""
    moving = np.flatnonzero(sequence.any(axis=1))
    return sequence[moving[0] : moving[-1] + 1]


@cache
def letter(name: str) -> list[np.ndarray]:
    """The pen trajectories of a letter, without the padding at both ends, in random order.

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    found = trajectories()
    each = np.split(found["X"].astype(np.float64), np.cumsum(found["lengths"])[:-1])
    wanted = list(found["label_names"]).index(name)
    chosen = [s for s, label in zip(each, found["labels"], strict=True) if label == wanted]
    return _shuffled([_trimmed(s) for s in chosen])


@cache
def english() -> list[np.ndarray]:
    """Paragraphs of scikit-learn's descriptions of its data sets, letter by letter.

    They are in random order.
    """
    loaders = ("iris", "wine", "breast_cancer", "diabetes", "linnerud", "digits")
    paragraphs = []
    for name in loaders:
        for text in getattr(datasets, f"load_{name}")().DESCR.split("\n\n"):
            letters = " ".join(re.findall("[a-z]+", text.lower()))
            if len(letters) >= 40:
                codes = np.frombuffer(letters.encode(), dtype=np.uint8).astype(int)
                paragraphs.append(np.where(codes == ord(" "), 26, codes - ord("a"))[:, None])
    return _shuffled(paragraphs)
