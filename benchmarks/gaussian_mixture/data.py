"""Data sets to which mixtures are fitted: scikit-learn's, drawn ones, and two data files.

The files are looked for as ``benchmarks/common/data.py`` says: ``mnist.npz`` with ``images``
(n, 784) of 0..255 and ``labels`` (n,), and ``pima.npz`` with ``X`` (768, 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from ..common.data import load

_ROWS_FOR_PCA = 10_000


@dataclass(frozen=True)
class Task:
    """A data set with a number of components.

    Attributes
    ----------
    name : str
    group : str
        Kind of data, for summaries.
    X : ndarray of shape (n_samples, n_features)
        All rows.
    n_components : int
    X_more : ndarray of shape (n_more, n_features) or None
        Rows of the same kind that are never fitted, if there are enough of them.
    """

    name: str
    group: str
    X: np.ndarray
    n_components: int
    X_more: np.ndarray | None = None

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and held-out rows: all of X and ``X_more``, or a split of X three to one."""
        if self.X_more is not None:
            return self.X, self.X_more
        order = np.random.default_rng(seed).permutation(len(self.X))
        n_train = 3 * len(order) // 4
        return self.X[order[:n_train]], self.X[order[n_train:]]


@cache
def digits_of(label: int) -> np.ndarray:
    """scikit-learn's digits of one class on the first 15 principal components of that class."""
    X, y = load_digits(return_X_y=True)
    return PCA(15, random_state=0).fit_transform(X[y == label])


@cache
def all_digits() -> np.ndarray:
    """All of scikit-learn's digits on their first 15 principal components."""
    return PCA(15, random_state=0).fit_transform(load_digits().data)


@cache
def _mnist() -> tuple[PCA, np.ndarray, np.ndarray]:
    archive = load("mnist.npz")
    images, labels = archive["images"], archive["labels"]
    rows = np.random.default_rng(0).choice(len(images), _ROWS_FOR_PCA, replace=False)
    return PCA(30, random_state=0).fit(images[rows] / 255.0), images, labels


@cache
def mnist_of(label: int, n_rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Twice ``n_rows`` random MNIST digits of one class, on 30 components of all the digits.

    Returns
    -------
    X, X_more : ndarray of shape (n_rows, 30)
        Pixels are scaled to [0, 1]; the principal components are those of 10,000 random images
        of all classes.
    """
    pca, images, labels = _mnist()
    rows = np.random.default_rng(label).permutation(np.flatnonzero(labels == label))[: 2 * n_rows]
    X = pca.transform(images[rows] / 255.0)
    return X[:n_rows], X[n_rows:]


@cache
def pima(standardised: bool = True) -> np.ndarray:
    """The eight clinical measures of the Pima data, (768, 8)."""
    X = load("pima.npz")["X"]
    return StandardScaler().fit_transform(X) if standardised else X


@cache
def wine() -> np.ndarray:
    """Wine, standardised, (178, 13)."""
    return StandardScaler().fit_transform(load_wine().data)


@cache
def easy_clusters(n_rows: int = 600) -> np.ndarray:
    """Three well-separated round clusters in two dimensions."""
    rng = np.random.default_rng(3)
    centers = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return centers[rng.integers(3, size=n_rows)] + rng.standard_normal((n_rows, 2))


FOUR_CENTERS = np.array([[-3.0, -2.5], [3.0, -2.5], [-2.5, 3.0], [2.5, 2.5]])
_FOUR_SHAPES = np.array(
    [
        [[1.0, 0.5], [0.0, 0.6]],
        [[0.7, -0.5], [0.0, 0.9]],
        [[0.9, 0.0], [0.0, 0.9]],
        [[1.1, 0.4], [0.3, 0.5]],
    ]
)


def four_clusters(seed: int = 0, n_rows: int = 250) -> np.ndarray:
    """Four elongated clusters in two dimensions that touch a little, of unequal size."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, size=n_rows, p=[0.35, 0.3, 0.2, 0.15])
    noise = rng.standard_normal((n_rows, 2, 1))
    return FOUR_CENTERS[labels] + (_FOUR_SHAPES[labels] @ noise)[..., 0]


def synthetic_tasks() -> list[Task]:
    """Tasks that need no file."""
    return [
        Task('digits "0"', "digits", digits_of(0), 6),
        Task('digits "5"', "digits", digits_of(5), 12),
        Task("all digits", "digits, all", all_digits(), 10),
        Task("wine", "low-dimensional", wine(), 4),
        Task("easy 2-D", "low-dimensional", easy_clusters(), 3),
    ]


def mnist_task(label: int, n_components: int, n_rows: int = 1000) -> Task:
    """MNIST digits of one class; as many further rows are held out."""
    X, more = mnist_of(label, n_rows)
    return Task(f'MNIST "{label}"', "MNIST", X, n_components, more)


def pima_task(n_components: int = 4) -> Task:
    """Pima, standardised."""
    return Task("Pima", "low-dimensional", pima(), n_components)
