"""Data for spike-and-slab factor analysis: drawn factors and loadings, and scikit-learn's data."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

BOTH, FACTORS = "both sparse", "factors sparse"
DRAWN = (BOTH, FACTORS)
DIGITS, CANCER = "digits 8 × 8", "breast cancer"
# The number of drawn factors, and of their columns.
N_FACTORS, N_COLUMNS = 8, 50
# Shares of factors that are on in a row, and of loadings that are not zero.
_ON, _NOT_ZERO = 0.2, 0.2
# Pixels that are on in fewer rows than this are left out: a Gaussian of a constant says nothing.
_RARE = 0.05


def drawn(kind: str, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of sparse factors with sparse or dense loadings, and the loadings.

    Every factor has the variance 1, and the noise of every column too.
    """
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((N_FACTORS, N_COLUMNS))
    if kind != FACTORS:
        loadings *= rng.random(loadings.shape) < _NOT_ZERO
    factors = rng.standard_normal((n_rows, N_FACTORS))
    factors *= (rng.random(factors.shape) < _ON) / np.sqrt(_ON)
    return factors @ loadings + rng.standard_normal((n_rows, N_COLUMNS)), loadings


@cache
def _real(name: str) -> np.ndarray:
    if name == DIGITS:
        X = load_digits().data
        X = X[:, (X > 0).mean(axis=0) >= _RARE]
        # Pixels have 17 values. Without noise that fills the gaps between them their density has
        # no upper limit.
        return X + np.random.default_rng(0).random(X.shape)
    return load_breast_cancer().data


def split(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are fitted and a quarter that is held out, in units of the former's deviations."""
    train, test = train_test_split(_real(name), test_size=0.25, random_state=seed)
    center, scale = train.mean(axis=0), train.std(axis=0)
    return (train - center) / scale, (test - center) / scale
