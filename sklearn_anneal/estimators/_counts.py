"""Sparse matrices of counts, as several estimators take them."""

from __future__ import annotations

from typing import Any

import numpy as np


def wide(X: Any) -> Any:
    """The counts as float64 if they are integers, so that their sums do not overflow."""
    return X.astype(np.float64) if X.dtype.kind in "iub" else X


def canonical(X: Any) -> Any:
    """The CSR matrix with the columns of each row sorted and duplicate entries summed."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sort_indices()
    if not X.has_canonical_format:
        X = wide(X)
        X.sum_duplicates()
    return X
