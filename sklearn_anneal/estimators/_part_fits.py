"""Fits to data in parts: from what a user gives to the data points that the loop visits."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import _num_samples

from ..data.parted_units import PartedUnits
from ..data.parts import Here, Part, Place, Request
from ..data.units import U
from ..parallel.workers import Workers
from ..search.problem import ROWS_FOR_STARTS
from ._part_sources import (
    Inputs,
    Source,
    columns_of,
    concatenated,
    missing_in,
    named_columns,
    names_of,
    repacked,
    validated,
)
from ._shards import FirstReading, Shards, as_shards, in_parts, naming, size_of
from ._tables import joined_frames
from ._validation import WITHOUT_WEIGHT

if TYPE_CHECKING:
    from ._base import BaseAnnealed
    from ._interface import D, Interface, M


@dataclass(frozen=True)
class _Missing(Request[dict[str, np.ndarray]]):
    """The columns of categories with missing cells, of each part."""

    def at(self, part: Part, workers: Workers) -> dict[str, np.ndarray]:
        return missing_in(part.units)

    def merge(self, a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**a, **b, **{name: a[name] | b[name] for name in a.keys() & b.keys()}}


class _Measured(NamedTuple):
    """Sizes and keys of a part, and facts on it, before any validation."""

    size: tuple[int, ...]
    n_rows: int  # of positive weight
    ends: Any  # the smallest and the largest key, or None
    facts: Any  # the result of :meth:`Interface._facts_of_part`; None without rows


@dataclass(frozen=True)
class _Measure(Request[list["_Measured"]]):
    """The sizes of parts, their keys, and facts on them. Rows of weight zero are not counted."""

    estimator: BaseAnnealed
    reads = False

    def at(self, part: Part, workers: Workers) -> list[_Measured]:
        inputs = part.load.raw()
        size = size_of(inputs.X)
        with naming(part.load.name):
            inputs = inputs.present()
            n = _num_samples(inputs.X)
            keys = self.estimator._keys_of_part(inputs.X) if n else None
            facts = self.estimator._facts_of_part(inputs) if n else None
        ends = None if keys is None else (keys.min(), keys.max())
        return [_Measured(size, n, ends, facts)]


@dataclass(frozen=True)
class _Keys(Request[dict[int, np.ndarray]]):
    """The distinct keys of some parts."""

    estimator: BaseAnnealed
    indices: set[int]
    reads = False

    def at(self, part: Part, workers: Workers) -> dict[int, np.ndarray]:
        if part.index not in self.indices:
            return {}
        keys = self.estimator._keys_of_part(part.load.raw().present().X)
        return {part.index: np.unique(np.asarray(keys))}

    def merge(self, a: dict[int, np.ndarray], b: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        return {**a, **b}


@dataclass(frozen=True)
class _Gather(Request[list[tuple[int, Inputs]]]):
    """Some rows of each part with its index, and with what is known of them."""

    chosen: list[np.ndarray]
    reads = False

    def at(self, part: Part, workers: Workers) -> list[tuple[int, Inputs]]:
        rows = self.chosen[part.index]
        if len(rows) == 0:
            return []
        inputs = part.load.raw()
        with naming(part.load.name):
            inputs = inputs.present()
            if len(rows) < _num_samples(inputs.X):
                inputs = inputs.take(rows)
        return [(part.index, inputs)]


def place_of(shards: Shards, sources: list[Source]) -> Place:
    """Return where the parts are to be visited: on a cluster, or in this process."""
    client = shards.client
    if client is None and any(any(v is not None for v in s.lazy) for s in sources):
        client = _current_client()
    if client is None:
        return Here([source.stays for source in sources])
    try:
        from ..cluster.dask_workers import OnDask
    except ImportError as error:
        raise ImportError(
            "Data in parts on a cluster need Dask: python -m pip install dask distributed "
            f"installs it ({error})."
        ) from error
    return OnDask(client)


def _current_client() -> Any:
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


@contextmanager
def opened(
    estimator: Interface[D, U, M], inputs: Inputs, reset: bool
) -> Iterator[tuple[D, PartedUnits[U]]]:
    """Read data in parts for the time of a fit.

    Yield some rows, or all if they are few, as the estimator validates them; and all data points,
    whose ``gathered`` are those of these rows.
    """
    place, sources = placed(estimator, inputs, estimator._reads_targets)
    try:
        place.put(list(sources))
        pieces, all_rows = _gathered(place, sources, estimator)
        sources = [replace(source, estimator=estimator._reader()) for source in sources]
        some = _together(pieces, sources, as_shards(inputs.X).n_features)
        try:
            data, units = validated(estimator, some, reset=reset)
        except Exception:
            _refuse_alone(pieces, sources)
            raise
        estimator._check_parts()
        columns = columns_of(estimator, some.X, units)
        missing = missing_in(units)
        sources = [replace(source, columns=columns) for source in sources]
        if missing and not all_rows:
            place.put(list(sources))
            missing = place.sum(_Missing())
            units = repacked(units, missing, estimator._number)
        place.put([replace(source, missing=missing) for source in sources])
        yield data, PartedUnits(place, units, columns[0])
    finally:
        place.close()


def placed(
    estimator: BaseAnnealed, inputs: Inputs, reads_targets: bool, streams: bool = False
) -> tuple[Place, list[Source]]:
    """Return the place of parts, which are not put there yet, and where they are read from.

    Without ``reads_targets`` y is ignored. A stream may read other rows at every call, and they are
    not compared with those of earlier readings.
    """
    shards = as_shards(inputs.X)
    template = estimator._reader()
    targets = beside(inputs.y if reads_targets else None, shards, "y")
    weights = beside(inputs.weights, shards, "sample_weight")
    covariates = beside(inputs.covariates, shards, "covariates")
    of_parts = zip(shards.parts, targets, weights, covariates, strict=True)
    sources = [
        Source(
            *(i, template, *of_part),
            dtype=shards.dtype,
            first=FirstReading() if streams else shards._first_reading(i),
        )
        for i, of_part in enumerate(of_parts)
    ]
    return place_of(shards, sources), sources


def _gathered(
    place: Place, sources: list[Source], estimator: Interface[D, U, M]
) -> tuple[list[tuple[int, Inputs]], bool]:
    """Return rows from which starts are computed, by part, and whether these are all rows."""
    found = place.sum(_Measure(sources[0].estimator))
    for source, of_part in zip(sources, found, strict=True):
        source.first.size = of_part.size  # which another process may have read
    sizes = np.array([of_part.n_rows for of_part in found])
    if not sizes.any():
        if any(source.weights is not None for source in sources):
            raise ValueError(WITHOUT_WEIGHT)
        raise ValueError("All parts are empty: there is no row to learn from.")
    needed = estimator._know_facts([of_part.facts for of_part in found])
    _refuse_keys_of_two_parts(place, sources, [of_part.ends for of_part in found])
    # Nothing here may be as long as the data.
    n_rows = int(sizes.sum())
    if n_rows > ROWS_FOR_STARTS:
        chosen = np.sort(sample_without_replacement(n_rows, ROWS_FOR_STARTS, random_state=0))
    else:
        chosen = np.arange(n_rows)
    ends = np.cumsum(sizes)
    if n_rows > ROWS_FOR_STARTS and needed is not None:
        starts = ends - sizes
        first = np.concatenate([at + rows for at, rows in zip(starts, needed, strict=True)])
        rest = np.random.RandomState(0).permutation(np.setdiff1d(chosen, first))
        chosen = np.sort(np.concatenate([first, rest[: max(len(chosen) - len(first), 0)]]))
    of_parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    by_part = [rows - start for rows, start in zip(of_parts, ends - sizes, strict=True)]
    return place.sum(_Gather(by_part)), len(chosen) == sizes.sum()


def _refuse_keys_of_two_parts(place: Place, sources: list[Source], ends: list) -> None:
    """Refuse users whose ratings are in two parts.

    Most divisions of ratings give every part a range of users. The users themselves are compared
    only where ranges overlap.
    """
    groups: list[list[int]] = []
    largest = None
    for first, last, i in sorted((*pair, i) for i, pair in enumerate(ends) if pair is not None):
        if largest is not None and first <= largest:
            groups[-1].append(i)
            largest = max(largest, last)
        else:
            groups.append([i])
            largest = last
    groups = [group for group in groups if len(group) > 1]
    if not groups:
        return
    keys = place.sum(_Keys(sources[0].estimator, {i for group in groups for i in group}))
    for group in groups:
        joined = np.concatenate([keys[i] for i in group])
        owners = np.repeat(group, [len(keys[i]) for i in group])
        order = np.argsort(joined, kind="stable")
        again = np.flatnonzero(np.diff(joined[order]) == 0)
        if len(again):
            i, j = sorted(owners[order[again[0] : again[0] + 2]].tolist())
            raise ValueError(
                f"User {joined[order[again[0]]]} has ratings in {sources[i].name} and in "
                f"{sources[j].name}, but all ratings of a user have to be in one part."
            )


def _together(
    pieces: list[tuple[int, Inputs]], sources: list[Source], n_features: int | None
) -> Inputs:
    """Join rows of several parts, which have to have the same columns."""
    first, (X, *_) = pieces[0]
    width, names = _width_of(X), names_of(X)
    if n_features is not None and width not in (None, n_features):
        raise ValueError(f"n_features={n_features}, but {sources[first].name} has {width} columns.")
    for index, inputs in pieces[1:]:
        X = inputs.X
        if _width_of(X) is None:
            _refuse_alone([(index, inputs)], sources)
        with naming(sources[index].name):
            if _width_of(X) != width:
                raise ValueError(f"it has {_width_of(X)} columns, but others have {width}.")
            if names_of(X) != names:
                raise ValueError(named_columns(names_of(X), names))
    return Inputs(*map(_joined, zip(*(inputs for _, inputs in pieces), strict=True)))


def _width_of(X: Any) -> int | None:
    listed = isinstance(X, list | tuple)
    shape: tuple[int, ...] = getattr(X[0] if listed else X, "shape", ())
    if len(shape) == 1 and listed:
        return 1  # a sequence of one feature
    return shape[1] if len(shape) == 2 else None


def _refuse_alone(pieces: list[tuple[int, Inputs]], sources: list[Source]) -> None:
    """Raise the error of the first part that is refused alone, with its name."""
    for index, inputs in pieces:
        source = sources[index]
        with naming(source.name):
            validated(copy.copy(source.estimator), inputs, ensure_min_samples=1)


@dataclass(frozen=True)
class _Stream(Request[list]):
    """A call of ``partial_fit`` with a part."""

    estimator: BaseAnnealed
    keywords: dict[str, Any]
    reads = False

    def at(self, part: Part, workers: Workers) -> list:
        X, y, weights, covariates = part.load.raw()
        how = self.keywords if covariates is None else self.keywords | {"covariates": covariates}
        with naming(part.load.name):
            if _num_samples(X) > 0:
                if weights is not None:
                    weights = self.estimator._weights_of_part(weights, X)
                self.estimator.partial_fit(X, y, sample_weight=weights, **how)
        return [self.estimator]


def stream(
    estimator: BaseAnnealed,
    X: ArrayLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    covariates: ArrayLike | None = None,
    **keywords: Any,
) -> None:
    """Update an estimator with one part after another, each where it is."""
    inputs = Inputs(X, y, sample_weight, covariates)
    place, sources = placed(estimator, inputs, estimator._reads_targets, streams=True)
    try:
        place.put(list(sources))
        for index in range(len(sources)):
            updated = place.at(index, _Stream(estimator, keywords))
            if updated is not estimator:
                vars(estimator).update(vars(updated))
    finally:
        place.close()


def beside(values: Any, shards: Shards, name: str) -> list:
    """Return one source for each part of what is known of its rows; None if there is nothing."""
    if values is None:
        return [None] * len(shards)
    if in_parts(values):
        values = as_shards(values).parts
    if not isinstance(values, list | tuple) or len(values) != len(shards):
        raise ValueError(
            f"{name} should have one entry for each of the {len(shards)} parts: a list of arrays, "
            "or Shards, or a collection of Dask with the same division."
        )
    for i, value in enumerate(values):
        if value is None:
            raise ValueError(f"{name} has no entry for part {i}, but one is needed for each part.")
    return list(values)


def _joined(values: tuple) -> Any:
    """Join rows of several parts."""
    if len(values) == 1 or values[0] is None:
        return values[0]
    if isinstance(values[0], list):
        return [one for part in values for one in part]
    if len({np.shape(value)[1:] for value in values}) > 1:
        # The parts themselves will say which of them it is.
        return values[0]
    if (joined := joined_frames(values)) is not None:
        return joined
    if all(hasattr(value, "iloc") for value in values):
        import pandas as pd

        return pd.concat(values)
    if any(map(sparse.issparse, values)):
        return sparse.vstack(values, format="csr")
    return concatenated([np.asarray(value) for value in values])
