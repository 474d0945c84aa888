"""Sequences: pen trajectories, rows of images, texts, and drawn ones; training and held out.

The files are looked for as ``benchmarks/common/data.py`` says: ``character_trajectories.npz`` with
frames ``X`` (n_frames, 3), ``lengths`` and ``labels`` (n_sequences,) and ``label_names``, and
``mnist.npz`` with ``images`` (n, 784) of 0..255 and ``labels`` (n,).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.cluster import KMeans

from ..common.data import load, present

LETTERS, ROWS = "character_trajectories.npz", "mnist.npz"
N_SYMBOLS, N_ROW_SYMBOLS = 500, 256
_FRAMES_FOR_CODEBOOK = 50_000


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


@dataclass(frozen=True)
class Split:
    """Training and held-out sequences, the same in every run.

    Attributes
    ----------
    training, held_out : Sequences
    emission : str
    n_symbols : int or None
    """

    training: Sequences
    held_out: Sequences
    emission: str
    n_symbols: int | None = None


def _third_held_out(sequences: list[np.ndarray], emission: str, n_symbols: int | None) -> Split:
    order = np.random.default_rng(0).permutation(len(sequences))
    n_training = len(order) - len(order) // 3
    return Split(
        Sequences.of([sequences[i] for i in order[:n_training]]),
        Sequences.of([sequences[i] for i in order[n_training:]]),
        emission,
        n_symbols,
    )


def _codes(X: np.ndarray, n_symbols: int) -> np.ndarray:
    """Replace each row by the number of the nearest k-means centre.

    The centres are found from at most 50,000 of the rows.
    """
    rng = np.random.default_rng(0)
    some = rng.choice(len(X), min(len(X), _FRAMES_FOR_CODEBOOK), replace=False)
    codebook = KMeans(n_symbols, n_init=1, max_iter=50, random_state=0).fit(X[some])
    return codebook.predict(X)


@cache
def trajectories() -> dict[str, Any]:
    """The arrays of the file of pen trajectories."""
    return load(LETTERS)


@cache
def _symbols() -> np.ndarray:
    return _codes(trajectories()["X"], N_SYMBOLS)


def _of_letter(letter: str, frames: np.ndarray) -> list[np.ndarray]:
    found = trajectories()
    each = np.split(frames, np.cumsum(found["lengths"])[:-1])
    wanted = list(found["label_names"]).index(letter)
    return [s for s, label in zip(each, found["labels"], strict=True) if label == wanted]


def _trimmed(sequence: np.ndarray) -> np.ndarray:
    """Cut off the exact zeros that pad both ends of the sequences."""
    moving = np.flatnonzero(sequence.any(axis=1))
    return sequence[moving[0] : moving[-1] + 1]


@cache
def _images() -> tuple[np.ndarray, np.ndarray]:
    found = load(ROWS)
    return found["images"].reshape(-1, 28, 28), found["labels"]


@cache
def _row_symbols() -> list[np.ndarray]:
    """750 images as sequences of 28 symbols, from a codebook of the rows of 5,000 images."""
    images, _ = _images()
    chosen = np.random.default_rng(0).choice(len(images), 5000, replace=False)
    rows = images[chosen].reshape(-1, 28) / 255.0
    codes = _codes(rows, N_ROW_SYMBOLS)[: 750 * 28]
    return list(codes.reshape(750, 28, 1))


def _digit_rows(digit: int) -> list[np.ndarray]:
    """300 images of a digit as sequences of 28 binary rows."""
    images, labels = _images()
    return [image > 127 for image in images[labels == digit][:300]]


@cache
def _english() -> list[np.ndarray]:
    """Paragraphs of scikit-learn's descriptions of its data sets, as sequences of letters."""
    loaders = ("iris", "wine", "breast_cancer", "diabetes", "linnerud", "digits")
    paragraphs = []
    for name in loaders:
        for text in getattr(datasets, f"load_{name}")().DESCR.split("\n\n"):
            letters = " ".join(re.findall("[a-z]+", text.lower()))
            if len(letters) >= 40:
                codes = np.frombuffer(letters.encode(), dtype=np.uint8).astype(int)
                paragraphs.append(np.where(codes == ord(" "), 26, codes - ord("a"))[:, None])
    return paragraphs


def _drawn(letter: int, emission: str) -> list[np.ndarray]:
    """Draw eighteen short sequences for quick runs; every letter has another small chain."""
    rng = np.random.default_rng(letter)
    transmat = 0.7 * np.eye(3) + 0.1
    levels = 4.0 * rng.permutation(3)
    sequences = []
    for _ in range(18):
        states = [int(rng.integers(3))]
        while len(states) < 15:
            states.append(int(rng.choice(3, p=transmat[states[-1]])))
        values = levels[states, None] + rng.standard_normal((15, 2))
        coded = np.clip(values[:, :1].round(), 0, 11).astype(int)
        sequences.append({"categorical": coded, "gaussian": values}.get(emission, values > 4))
    return sequences


@cache
def split(name: str, emission: str) -> Split:
    """Two thirds of the sequences of a data set, and the other third.

    Parameters
    ----------
    name : str
        ``"letter a"`` and so on: pen trajectories of a letter, either as symbols of a codebook of
        500 or as vectors without the padding at both ends. ``"image rows"``: the 28 rows of images
        of digits, as symbols of a codebook of 256. ``"digit 3"``: binary rows of images of a
        digit. ``"English"``: letters of texts. ``"drawn 0"``: drawn sequences, without a file.
    emission : str

    Raises
    ------
    DataNotFoundError
        If the file is missing.
    """
    kind, _, which = name.partition(" ")
    if kind == "letter" and emission == "categorical":
        return _third_held_out(_of_letter(which, _symbols()[:, None]), emission, N_SYMBOLS)
    if kind == "letter":
        frames = trajectories()["X"].astype(np.float64)
        return _third_held_out([_trimmed(s) for s in _of_letter(which, frames)], emission, None)
    if kind == "image":
        return _third_held_out(_row_symbols(), emission, N_ROW_SYMBOLS)
    if kind == "digit":
        return _third_held_out(_digit_rows(int(which)), emission, None)
    if kind == "English":
        return _third_held_out(_english(), emission, 27)
    n_symbols = 12 if emission == "categorical" else None
    return _third_held_out(_drawn(int(which), emission), emission, n_symbols)


def available(names: Iterable[str]) -> list[str]:
    """The data sets whose files are there; a message is printed for each missing file."""
    files = {"letter": LETTERS, "image": ROWS, "digit": ROWS}
    return present(names, lambda name: files.get(name.partition(" ")[0]))
