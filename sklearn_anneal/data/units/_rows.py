"""Rows of a dense array, and which of their cells are missing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from ..tables import joined_tables, merged_rows
from ._base import Centered, Units, joined_arrays

# Rows are divided into at most this many chunks. They have at least the given size, and consist of
# whole blocks of the kernels.
_MOST_CHUNKS = 16
_SMALLEST_CHUNK = 1024
_BLOCK = 256
# Number of entries of an array that are read at a time.
CELLS_AT_A_TIME = 1 << 20
# Rows of at most so many cells keep copies of those with and without missing cells.
_MOST_KEPT = 1 << 17
# A random subset has at least so many rows of each known class, if there are so many.
ROWS_OF_A_CLASS = 20


def cell_patterns(X: np.ndarray) -> np.ndarray | None:
    """Return a number for each row that says which of its cells are missing, that is NaN.

    The number is 0 where no cell is missing, and not 0 elsewhere. Rows in which the same cells are
    missing have the same number. Different numbers mean different cells, and so do equal numbers
    only with up to 64 columns.

    Returns
    -------
    patterns : ndarray of uint64, shape (n_rows,), or None
        None if no cell of ``X`` is missing, which takes no more than a sum to find out.
    """
    if X.ndim != 2 or X.dtype.kind != "f":
        return None
    n, d = X.shape
    size = max(CELLS_AT_A_TIME // max(d, 1), 1)
    parts = [X[start : start + size] for start in range(0, n, size)]
    with np.errstate(over="ignore", invalid="ignore"):
        suspects = [bool(np.isnan(part.sum())) for part in parts]
    if not any(suspects):
        return None
    factors = np.ones(1, dtype=np.uint64)
    if d > 64:
        factors = np.random.default_rng(0).integers(1, 2**63, size=d // 64 + 1, dtype=np.uint64)
        factors = 2 * factors + np.uint64(1)
    patterns = np.zeros(n, dtype=np.uint64)
    for i, part in enumerate(parts):
        missing = np.isnan(part) if suspects[i] else None
        if missing is None or not missing.any():
            continue
        packed = np.packbits(missing, axis=1, bitorder="little")
        words = np.zeros((len(part), -(-d // 64) * 8), dtype=np.uint8)
        words[:, : packed.shape[1]] = packed
        codes = (words.view(np.uint64) * factors[: words.shape[1] // 8]).sum(axis=1)
        codes[missing.any(axis=1) & (codes == 0)] = 1
        patterns[i * size : i * size + len(part)] = codes
    return patterns if patterns.any() else None


class Rows(Units):
    """Rows of a dense array, which models read relative to a center.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        float64 or float32; a memory-mapped array is never copied whole.
    weights : ndarray of shape (n_samples,) or None, default=None
    center : ndarray of shape (n_features,) or None, default=None
        A vector that models subtract from every row when they read it, so that sums of squares
        do not lose digits; None for zeros.
    patterns : ndarray of uint64, shape (n_samples,) or None, default=None
        The result of :func:`cell_patterns` for these rows, or for more rows of which these are a
        part; None if no cell is missing.
    n_merged : int, default=0
        The number of rows of which these are the distinct ones; 0 if none were merged.
    plain : bool, default=False
        Whether plain kernels read these rows (:mod:`sklearn_anneal.kernels.plain`).
    classes : ndarray of intp, shape (n_samples,) or None, default=None
        The number of the class of each row where it is known, and −1 elsewhere; None if no class is
        known.
    covariates : ndarray of shape (n_samples, n_covariates) or None, default=None
        Columns on which the weights of a mixture depend, and not its components.
    """

    caches = ("_blank", "_cells", "_carriers", "_copies", "_parts", "_points", "_sum_of_weights")

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        center: np.ndarray | None = None,
        patterns: np.ndarray | None = None,
        n_merged: int = 0,
        plain: bool = False,
        classes: np.ndarray | None = None,
        covariates: np.ndarray | None = None,
    ):
        self.n_merged = n_merged
        self.plain = plain
        self.X = X
        self.weights = weights
        self.patterns = patterns
        self.classes = classes
        self.covariates = covariates
        self.center = np.zeros(X.shape[1:]) if center is None else center

    @property
    def n_units(self) -> int:
        return self.X.shape[0]

    @property
    def are_one_chunk(self) -> bool:
        return 0 < self.n_units <= _SMALLEST_CHUNK or super().are_one_chunk

    def chunks(self) -> list[slice]:
        n = self.n_units
        if n <= _SMALLEST_CHUNK:
            return [slice(0, n)] if n else []
        most = getattr(self.X, "most_chunks", _MOST_CHUNKS)
        # Chunks consist of whole blocks of the kernels; only the last one may end with a part.
        size = max(_SMALLEST_CHUNK, -(-n // (most * _BLOCK)) * _BLOCK)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def take(self, index: np.ndarray | slice) -> Rows:
        weights = None if self.weights is None else self.weights[index]
        patterns = None if self.patterns is None else self.patterns[index]
        also = None if self.classes is None else self.classes[index]
        own = self.X[index], weights, self.center, patterns
        beside = None if self.covariates is None else self.covariates[index]
        return Rows(*own, plain=self.plain, classes=also, covariates=beside)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Return the rows of several objects, one after another, as copies without a center."""
        numbers = [part.n_units for part in parts]
        X = joined_tables([part.X for part in parts])
        weights = joined_arrays([part.weights for part in parts], numbers, 1.0)
        classes = joined_arrays([part.classes for part in parts], numbers, -1)
        n_merged = 0
        if any(part.n_merged for part in parts):
            n_merged = sum(part.n_merged or part.n_units for part in parts)
            # Rows of different parts can be equal as well, but equal rows can differ in class.
            merged = merged_rows(X, weights) if classes is None else None
            X, weights = (X, weights) if merged is None else merged
        return cls(
            X,
            weights,
            patterns=joined_arrays([part.patterns for part in parts], numbers, np.uint64(0)),
            n_merged=n_merged,
            plain=parts[0].plain,
            classes=classes,
            covariates=joined_arrays([part.covariates for part in parts], numbers, 0.0),
        )

    def part(self, index: slice) -> Rows:
        given = self.X, self.weights, self.patterns, self.classes, self.covariates, self.plain
        kept: Any = vars(self).get("_parts")
        # Weights, for example, can have been changed since.
        if kept is None or any(old is not new for old, new in zip(kept[0], given, strict=True)):
            kept = vars(self)["_parts"] = given, {}
        place, found = (index.start, index.stop), kept[1]
        if place not in found:
            found[place] = self.take(index)
        part: Rows = found[place]
        return part

    def __getstate__(self) -> dict[str, object]:
        # Other processes read the rows anew.
        dropped = {*self.caches, "of_blocks"}
        return {key: value for key, value in vars(self).items() if key not in dropped}

    def centered(self, summary: Centered) -> Rows:
        if self._has_center(summary.center):
            # The same object keeps what was read of it.
            return self
        own = self.X, self.weights, summary.center, self.patterns
        return Rows(*own, plain=self.plain, classes=self.classes, covariates=self.covariates)

    def _has_center(self, center: Any) -> bool:
        """Return whether models subtract this center already."""
        own: Any = self.center
        if isinstance(own, dict) or isinstance(center, dict):
            both = isinstance(own, dict) and isinstance(center, dict)
            return both and all(own[name] is center[name] for name in center)
        return own is center or (center is None and not own.any())

    def unlabelled(self, index: np.ndarray) -> Rows:
        """Return the rows of an index without their classes."""
        rows = self.take(index)
        rows.classes = None
        return rows

    def subset(self, size: int, random_state: np.random.RandomState) -> Units:
        """Return random rows as :meth:`Units.subset` does, among them some of each known class."""
        if self.classes is None or self.n_units <= size:
            return super().subset(size, random_state)
        weighted = np.ones(self.n_units, bool) if self.weights is None else self.weights > 0
        order = random_state.permutation(np.flatnonzero(weighted))
        labels = self.classes[order]
        found = [
            np.flatnonzero(labels == c)[:ROWS_OF_A_CLASS] for c in np.unique(labels[labels >= 0])
        ]
        first = np.concatenate([*found, np.empty(0, dtype=np.intp)])[:size]
        rest = np.delete(np.arange(len(order)), first)
        return self.take(np.sort(order[np.append(first, rest)[:size]]))

    def marked(self) -> Self:
        if self.patterns is not None:
            return self
        marked = copy.copy(self)
        marked.patterns = np.zeros(self.n_units, dtype=np.uint64)
        for found in ("by_completeness", "of_blocks", "runs"):
            vars(marked).pop(found, None)
        return marked

    def whole(self, index: np.ndarray | slice) -> Rows:
        """Return the rows of an index, in which no cell may be missing."""
        weights = None if self.weights is None else self.weights[index]
        return Rows(self.X[index], weights, self.center, plain=self.plain)

    @property
    def complete(self) -> Rows:
        """The rows without missing cells, in their order."""
        return self._copy("complete", lambda: self.whole(self.by_completeness[0]))

    def _copy(self, name: Any, make: Callable[[], Any]) -> Any:
        """Return what was made of these rows before, or make it, which large rows do each time.

        Passes over few rows take hardly more time than copies of them.
        """
        if self.X.size > _MOST_KEPT:
            return make()
        given = self.X, self.weights, self.center, self.patterns, self.classes, self.covariates
        kept: Any = vars(self).get("_copies")
        if kept is None or any(old is not new for old, new in zip(kept[0], given, strict=True)):
            kept = vars(self)["_copies"] = given, {}
        if name not in kept[1]:
            kept[1][name] = make()
        return kept[1][name]

    @cached_property
    def of_blocks(self) -> dict[str, Rows]:
        """The columns of each block of a table, by its name, as far as they have been read."""
        return {}

    @cached_property
    def n_missing(self) -> np.ndarray:
        """The number of missing cells of each row, (n_rows,)."""
        found = np.zeros(self.n_units, dtype=np.intp)
        if self.patterns is not None:
            affected = np.flatnonzero(self.patterns)
            found[affected] = np.count_nonzero(np.isnan(self.X[affected]), axis=1)
        return found

    @cached_property
    def by_completeness(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of the rows without missing cells, with some, and with nothing else.

        Rows with the same missing cells follow each other among those with some, which are in the
        order of the number of missing cells.
        """
        if self.patterns is None:
            return np.arange(self.n_units), np.empty(0, dtype=int), np.empty(0, dtype=int)
        affected = np.flatnonzero(self.patterns)
        n_missing = self.n_missing[affected]
        blank = n_missing == self.X.shape[1]
        some = affected[~blank]
        order = np.lexsort((self.patterns[some], n_missing[~blank]))
        return np.flatnonzero(self.patterns == 0), some[order], affected[blank]

    @cached_property
    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        """The first of each run of rows that lack the same cells, and their numbers."""
        some = self.by_completeness[1]
        codes = np.empty(0) if self.patterns is None else self.patterns[some]
        starts = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)[: len(codes)]
        return starts, np.diff(np.append(starts, len(codes)))

    def incomplete(self, size: int) -> Iterable[tuple[np.ndarray, Rows]]:
        """Return the numbers of ``size`` rows with missing cells each time, and these rows."""
        if self.X.size > _MOST_KEPT:
            return self._incomplete(size)
        found: list[Any] = self._copy(size, lambda: list(self._incomplete(size)))
        return found

    def _incomplete(self, size: int) -> Iterator[tuple[np.ndarray, Rows]]:
        _, some, blank = self.by_completeness
        order = np.append(some, blank)
        for start in range(0, len(order), size):
            index = order[start : start + size]
            part, n = self.take(index), min(max(len(some) - start, 0), len(index))
            found = np.arange(0), np.arange(n), np.arange(n, len(index))
            vars(part)["by_completeness"] = found
            vars(part)["n_missing"] = self.n_missing[index]
            yield index, part

    def completed(self, dtype: DTypeLike | None = None) -> np.ndarray:
        """Return the rows with the column's mean in the place of missing cells.

        The mean of a column is the weighted one of its observed cells. The result is ``X`` itself
        if no cell is missing and the dtype is right, and a copy otherwise.
        """
        if self.patterns is None:
            return np.asarray(self.X, dtype=dtype)
        X = np.array(self.X, dtype=dtype)
        missing = np.isnan(X)
        X[missing] = 0.0
        weights = np.ones(len(X)) if self.weights is None else self.weights
        observed = np.maximum(weights @ ~missing, np.finfo(np.float64).tiny)
        means = weights @ X / observed
        return np.where(missing, means.astype(X.dtype), X)
