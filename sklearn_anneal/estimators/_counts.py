"""Sparse matrices of counts, as several estimators take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils.validation import check_non_negative

from ._validation import check_sparse


def checked_counts(X: Any, given: Any, owner: str) -> Any:
    """Check a CSR matrix of counts, which scikit-learn has made from ``given``, and return it.

    The columns of each row are sorted in the result, duplicate entries are summed, and stored zeros
    are left out: they are no occurrences of a word. Negative entries are refused, in the name of
    the estimator that is their ``owner``.
    """
    if issparse(given) and given.format in ("coo", "bsr") and X.nnz < given.nnz:
        # SciPy has summed duplicate entries in their own integer type, where sums can overflow.
        X = _wide(given).tocsr()
    check_sparse(X)
    check_non_negative(X, owner)
    return _without_zeros(_canonical(X))


def as_native(X: np.ndarray) -> np.ndarray:
    """Return an array with a dtype that a sparse matrix can have.

    Neither half precision nor the byte order of other machines, in which files of NetCDF and FITS
    are written, is among these.
    """
    if X.dtype.kind == "f" and X.dtype.itemsize == 2:
        return X.astype(np.float32)
    return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))


def _wide(X: Any) -> Any:
    """The counts as float64 if they are integers, so that their sums do not overflow."""
    return X.astype(np.float64) if X.dtype.kind in "iub" else X


def _canonical(X: Any) -> Any:
    """The CSR matrix with the columns of each row sorted and duplicate entries summed."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sort_indices()
    if not X.has_canonical_format:
        X = _wide(X)
        X.sum_duplicates()
    return X


def _without_zeros(X: Any) -> Any:
    """The CSR matrix without entries that are stored but zero; the same object if it has none."""
    if np.count_nonzero(X.data) == len(X.data):
        return X
    X = X.copy()
    X.eliminate_zeros()
    return X


def refuse_texts(X: ArrayLike, owner: str) -> None:
    """Raise a ValueError if X contains strings instead of counts of words."""
    first = X.to_numpy() if hasattr(X, "to_numpy") else X
    # A column of texts and a list of tokenised texts have their strings at the second level.
    for _ in range(2):
        if isinstance(first, np.ndarray):
            first = first.ravel()[:1].tolist()
        if isinstance(first, list | tuple) and first:
            first = first[0]
    if isinstance(first, str | bytes):
        raise ValueError(
            f"X holds texts, but {owner} reads counts of words, documents by words. "
            "sklearn.feature_extraction.text.CountVectorizer counts the words of texts: put it "
            "before the estimator with sklearn.pipeline.make_pipeline."
        ) from None
