"""Predictions and scores of data in parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import _check_feature_names, _num_samples

from ..data.parts import Part, Request
from ..parallel.workers import Workers, owned
from ._part_fits import beside, placed
from ._part_sources import Inputs
from ._shards import FirstReading, Shards, as_shards, described, in_parts, naming, read

if TYPE_CHECKING:
    from ._base import BaseAnnealed


@dataclass(frozen=True)
class _Prediction:
    """The prediction of one part: a function that a new collection has in the place of a part."""

    estimator: BaseAnnealed
    method: str
    source: Any
    dtype: DTypeLike | None
    name: str
    first: FirstReading
    how: dict[str, object]
    covariates: ArrayLike | None = None

    def __call__(self) -> Any:
        X, how = read(self.source, self.dtype, self.name), self.how
        self.first.compare(X, self.name)
        if self.covariates is not None:
            how = how | {"covariates": read(self.covariates, None, self.name)}
        with naming(self.name):
            return _prediction(self.estimator, self.method, X, how, self.dtype)


def _prediction(
    estimator: BaseAnnealed,
    method: str,
    X: Any,
    how: dict[str, object],
    dtype: DTypeLike | None = None,
) -> Any:
    """Return the prediction of a part, which has no rows if the part has none."""
    if _num_samples(X) > 0:
        return getattr(estimator, method)(X, **how)
    # No method takes an array without rows, as in scikit-learn, so that one row is made up.
    if how.get("covariates") is not None:
        how = how | {"covariates": estimator._row_of_covariates()}
    shape: tuple[int, ...] = getattr(X, "shape", ())
    width = shape[1] if len(shape) == 2 else 0
    if width > 0:
        _check_feature_names(estimator, X, reset=False)
        dtype = check_array(X, accept_sparse=True, dtype=None, ensure_min_samples=0).dtype
    else:
        width, dtype = estimator.n_features_in_, getattr(X, "dtype", dtype)
    row = np.zeros((1, width), dtype if np.dtype(dtype).kind in "biuf" else np.float64)
    if hasattr(X, "columns"):
        # Results that are frames have the names of the others.
        names = {"columns" if hasattr(X, "iloc") else "schema": list(X.columns)}
        found = getattr(estimator, method)(type(X)(row, **names), **how)
    else:
        nameless = copy.copy(estimator)
        vars(nameless).pop("feature_names_in_", None)
        rows = sparse.csr_matrix(row) if sparse.issparse(X) else row
        found = getattr(nameless, method)(rows, **how)
    return tuple(map(_without_rows, found)) if isinstance(found, tuple) else _without_rows(found)


def _without_rows(found: Any) -> Any:
    """Return a prediction without its rows, or 0 in the place of a sum over them."""
    return found[:0] if np.ndim(found) else 0.0


def predicted(estimator: BaseAnnealed, method: str, X: ArrayLike, how: dict[str, object]) -> Any:
    """Return the predictions of data in parts, lazily: Shards of Shards, Dask of Dask."""
    parts = as_shards(X)
    covariates = beside(how.get("covariates"), parts, "covariates")
    if isinstance(X, Shards):
        how = {name: value for name, value in how.items() if name != "covariates"}
        return Shards(
            [
                _Prediction(
                    *(estimator, method, source, X.dtype, described(i, source)),
                    first=X._first_reading(i),
                    how=how,
                    covariates=covariates[i],
                )
                for i, source in enumerate(X.parts)
            ],
            client=X.client,
        )
    import dask
    import dask.array as da

    call = dask.delayed(_of_block, pure=True)
    sketch = _of_block(estimator, method, _nothing_of(X), how)
    model = dask.delayed(estimator)
    blocks = []
    for block, length, own in zip(parts.parts, _lengths(X), covariates, strict=True):
        shape = (length, *sketch.shape[1:])
        of_block = how if own is None else how | {"covariates": own}
        blocks.append(da.from_delayed(call(model, method, block, of_block), shape, sketch.dtype))
    return da.concatenate(blocks, axis=0, allow_unknown_chunksizes=True)


def _of_block(estimator: BaseAnnealed, method: str, block: Any, how: dict[str, object]) -> Any:
    found = _prediction(estimator, method, owned(block), how)
    if isinstance(found, tuple):
        raise TypeError(
            f"{method} returns several arrays here, but a collection of Dask is one array. Give "
            "Shards of its blocks, Shards(X.to_delayed().ravel()), whose parts can be tuples."
        )
    return np.asarray(found)


def _nothing_of(X: Any) -> Any:
    """Return a table without rows that looks like the blocks of a collection of Dask."""
    meta = X._meta
    if hasattr(meta, "iloc"):
        return meta
    nothing = np.empty((0, X.shape[1]), X.dtype)
    return sparse.csr_matrix(nothing) if sparse.issparse(meta) else nothing


def _lengths(X: Any) -> tuple[float, ...]:
    return tuple(X.chunks[0]) if hasattr(X, "chunks") else (np.nan,) * X.npartitions


class NothingToScore(ValueError):
    """The error of data in which there is nothing to predict; other parts may have something."""


def score_of(estimator: BaseAnnealed, given: Inputs) -> float:
    """Return the score of data in parts: the mean of those of the parts, by their weights."""
    place, sources = placed(estimator, given, estimator._scores_targets)
    try:
        place.put(list(sources))
        total, weight = place.sum(_Score(estimator))
    finally:
        place.close()
    if weight == 0:
        raise ValueError("The parts have nothing of positive weight to score.")
    return float(total / weight)


@dataclass(frozen=True)
class _Score(Request):
    estimator: BaseAnnealed
    reads = False

    def at(self, part: Part, workers: Workers) -> np.ndarray:
        X, y, weights, covariates = part.load.raw()
        how = {} if covariates is None else {"covariates": covariates}
        with naming(part.load.name):
            nothing = weights is not None and not np.any(weights)
            if _num_samples(X) == 0 or (nothing and len(weights) == _num_samples(X)):
                return np.zeros(2)
            try:
                mean, weight = self.estimator._scored(X, y, weights, **how)
            except NothingToScore:
                return np.zeros(2)
        return np.array([mean * weight, weight])


def by_parts(method: Callable) -> Callable:
    """Decorate a prediction so that it also takes data in parts, and is then lazy."""

    @wraps(method)
    def call(self: Any, X: ArrayLike, *args: Any, **kwargs: Any) -> Any:
        if in_parts(X):
            if args:
                raise TypeError(f"With data in parts, {method.__name__} takes keywords after X.")
            self._context()
            return predicted(self, method.__name__, X, kwargs)
        return method(self, X, *args, **kwargs)

    return call
