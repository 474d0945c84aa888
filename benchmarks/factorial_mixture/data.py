"""Data for factorial mixtures: drawn sums of parts, and images of digits.

``mnist.npz`` holds ``images`` (n, 784), bytes. The digits of 8 × 8 pixels are those of
scikit-learn.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ..common.data import load

TOY, DIGITS, MNIST = "drawn parts", "digits 8 × 8", "MNIST 28 × 28"
FILES = {MNIST: "mnist.npz"}
# Eight binary images of 4 × 4 pixels that overlap. The paper drew its own by hand and shows them in
# a figure only.
PARTS = np.array(
    [
        [1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        [1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1],
    ],
    dtype=float,
)
# σ_n, the range of the weights of parts, and π, as in Mandt et al., section 4.2.
_NOISE, _WEIGHTS, _ACTIVE = 0.1, (0.5, 1.0), 0.3
# A part is recovered by a component whose pixels differ from it by no more than this, in root mean
# square.
_NEAR = 0.1


def drawn(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are drawn as in the paper, and the weighted parts."""
    rng = np.random.default_rng(seed)
    parts = PARTS * rng.uniform(*_WEIGHTS, size=(len(PARTS), 1))
    active = rng.random((n_rows, len(PARTS))) < _ACTIVE
    return active @ parts + _NOISE * rng.standard_normal((n_rows, PARTS.shape[1])), parts


def n_recovered(means: np.ndarray, parts: np.ndarray) -> int:
    """Number of parts that some component equals."""
    distances = np.sqrt(((means[:, None] - parts) ** 2).mean(axis=-1))
    return int((distances.min(axis=0) < _NEAR).sum())


@cache
def _images(name: str) -> np.ndarray:
    if name == DIGITS:
        return load_digits().data / 16.0
    return load(FILES[name])["images"] / 255.0


def split(name: str, n_train: int, n_test: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images for fitting and held-out images, with pixels from 0 to 1; the seed draws both."""
    train, test = train_test_split(
        _images(name), train_size=n_train, test_size=n_test, random_state=seed
    )
    return train, test
