"""The forms in which the same data can be given to an estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from sklearn_anneal import concat_sequences

Given = tuple[Any, dict[str, Any]]
"""Data as they are given, and the arguments that belong to them (``y``, ``lengths``, …)."""


def _read_only(X: Any) -> Any:
    X = X.copy()
    X.flags.writeable = False
    return X


def _strided(X: np.ndarray) -> np.ndarray:
    wide = np.full((2 * X.shape[0], X.shape[1] + 3), -7.0)
    wide[::2, 1:-2] = X
    return wide[::2, 1:-2]


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])])


def _observed(X: np.ndarray, make: Callable[[Any], Any]) -> Any:
    """A sparse matrix of the cells that are not NaN, zeros among them."""
    rows, columns = np.nonzero(~np.isnan(X))
    return make(sparse.coo_matrix((X[rows, columns], (rows, columns)), shape=X.shape))


def _read_only_entries(X: Any) -> Any:
    X = sparse.csr_matrix(X, copy=True)
    for part in (X.data, X.indices, X.indptr):
        part.flags.writeable = False
    return X


def _integers(X: np.ndarray) -> np.ndarray:
    return X.astype(np.int64)


DENSE: dict[str, Callable[[np.ndarray], Any]] = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "read-only": _read_only,
    "strided": _strided,
    "big-endian": lambda X: X.astype(">f8"),
    "data frame": frame,
    "nested lists": lambda X: X.tolist(),
    "float32": lambda X: X.astype(np.float32),
    "integers": _integers,
}
SPARSE: dict[str, Callable[[Any], Any]] = {
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_array,
    "csr of read-only arrays": _read_only_entries,
    "csr of float32": lambda X: sparse.csr_array(X, dtype=np.float32),
}


def _grouped(X: Any) -> Given:
    frames, groups = concat_sequences(X)
    return frames, {"groups": groups}


def _with_lengths(X: Any) -> Given:
    return np.concatenate(X), {"lengths": [len(sequence) for sequence in X]}


SEQUENCES: dict[str, Callable[[Any], Given]] = {
    "list": lambda X: (list(X), {}),
    "tuple": lambda X: (tuple(X), {}),
    "groups": _grouped,
    "lengths": _with_lengths,
    "list of data frames": lambda X: ([frame(sequence) for sequence in X], {}),
    "list of Fortran arrays": lambda X: ([np.asfortranarray(sequence) for sequence in X], {}),
    "list of float32": lambda X: ([sequence.astype(np.float32) for sequence in X], {}),
}


def values_of(X: Any) -> np.ndarray:
    """All cells as a dense array; sequences one after another."""
    if sparse.issparse(X):
        return X.toarray().astype(float)
    return np.concatenate(X) if isinstance(X, list) else X


def forms_of(X: Any, estimator: Any) -> list[str]:
    """The forms in which these data can be given to an estimator without changing their meaning."""
    values = values_of(X)
    sizes = np.abs(values[np.isfinite(values)])
    in_single = sizes.max(initial=0.0) < 1e30 and sizes[sizes > 0].min(initial=1.0) > 1e-30
    whole = len(sizes) == values.size and (values == np.round(values)).all()
    left_out = set() if whole and sizes.max(initial=0.0) < 2**53 else {"integers"}

    def among(names: Iterable[str]) -> list[str]:
        return [n for n in names if n not in left_out and (in_single or "float32" not in n)]

    if isinstance(X, list):
        return among(SEQUENCES)
    if sparse.issparse(X):
        return among([*SPARSE, *DENSE])
    # Missing cells can be left out of sparse matrices of ratings alone.
    takes_sparse = estimator.__sklearn_tags__().input_tags.sparse
    are_ratings = hasattr(estimator, "predict_ratings")
    can_be_sparse = takes_sparse and (are_ratings or len(sizes) == values.size)
    return among([*DENSE, *(SPARSE if can_be_sparse else ())])


def given(X: Any, form: str) -> Given:
    """Data in a form of this name."""
    if form == "pairs":
        users, items = np.nonzero(~np.isnan(X))
        return np.column_stack([users, items]), {"y": X[users, items]}
    if form in SEQUENCES:
        # Without sequences there are no frames either, and nothing to put together.
        return SEQUENCES[form](X) if len(X) else ([], {})
    if form in DENSE:
        return DENSE[form](X.toarray() if sparse.issparse(X) else X), {}
    return (SPARSE[form](X) if sparse.issparse(X) else _observed(X, SPARSE[form])), {}
