"""Images of digits, on principal components: scikit-learn's, and those of a data file.

The file is looked for as ``benchmarks/common/data.py`` says: ``mnist.npz`` with ``images``
(n, 784) of 0..255 and ``labels`` (n,).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from ..common.data import load

_ROWS_FOR_PCA = 10_000


@cache
def digits_of(label: int) -> np.ndarray:
    """scikit-learn's digits of one class on the first 15 principal components of that class."""
    X, y = load_digits(return_X_y=True)
    return PCA(15, random_state=0).fit_transform(X[y == label])


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
