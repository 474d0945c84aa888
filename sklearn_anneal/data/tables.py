"""Rows of tables: columns of categories packed into codes, and blocks of different columns.

Both can be in the place of the array of :class:`Rows` and of the frames of :class:`Sequences`,
because they have a length, a shape, and parts like an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

# A code has at most this many values, unless a single column has more.
_LARGEST_CODE = 256
# Tables with an entry for every value of every code should not be larger than this, in bytes.
_TABLE_SIZE = 1 << 20
# Every chunk of packed rows needs tables of its own, which take as long as about a thousand rows.
# Fewer rows than this have fewer chunks.
_MANY_ROWS = 65_536


@dataclass(frozen=True)
class Packing:
    """The way in which columns of categories are packed into codes.

    A code is a number whose digits are the levels of consecutive columns; the digits of a column
    have its own radix. A missing cell is one more level, the last, of a column that has any.
    """

    n_levels: tuple[int, ...]  # the number of levels of each column
    missing: tuple[bool, ...]  # whether each column can have missing cells
    # The first column of each code, (n_codes + 1,).
    first_column: np.ndarray = field(repr=False, compare=False)
    radices: np.ndarray = field(repr=False, compare=False)  # (n_columns,)
    # The first level of each column, if the levels of all columns are joined, (n_columns + 1,).
    first_level: np.ndarray = field(repr=False, compare=False)
    # The first value of each code, if the values of all codes are joined, (n_codes + 1,).
    begins: np.ndarray = field(repr=False, compare=False)
    # The smallest unsigned integers that can hold all codes.
    dtype: np.dtype = field(repr=False, compare=False)
    n_components: int = field(repr=False, compare=False)  # the numbers per value that tables have

    @classmethod
    def of(cls, n_levels: Any, missing: Any, n_components: int) -> Packing:
        """Return the packing that suits tables of ``n_components`` numbers per value."""
        radices = np.asarray(n_levels, dtype=np.int64) + np.asarray(missing, dtype=np.int64)
        largest = _LARGEST_CODE
        first_column = _groups(radices, largest)
        width = -(-n_components // 4) * 32
        while largest > 16 and _sizes(radices, first_column).sum() * width > _TABLE_SIZE:
            largest //= 2
            first_column = _groups(radices, largest)
        # As many codes can have fewer values if these are shared out among them.
        while largest > 2 and len(shared := _groups(radices, largest // 2)) == len(first_column):
            first_column, largest = shared, largest // 2
        sizes = _sizes(radices, first_column)
        return cls(
            tuple(int(n) for n in n_levels),
            tuple(bool(m) for m in missing),
            first_column,
            radices,
            np.concatenate([[0], np.cumsum(n_levels)]).astype(np.int64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.min_scalar_type(int(sizes.max(initial=1)) - 1),
            n_components,
        )

    @cached_property
    def places(self) -> np.ndarray:
        """The place value of each column's digit in its code, int64 of shape (n_columns,)."""
        places = np.ones(len(self.radices), dtype=np.int64)
        for first, last in zip(self.first_column[:-1], self.first_column[1:], strict=True):
            places[first : last - 1] = np.cumprod(self.radices[last - 1 : first : -1])[::-1]
        return places

    @cached_property
    def has_gaps(self) -> np.ndarray:
        """1 for columns that can have missing cells and 0 for others, (n_columns,)."""
        return np.array(self.missing, dtype=np.float64)

    @property
    def n_codes(self) -> int:
        """The number of codes of a row."""
        return len(self.begins) - 1

    def pack(self, levels: np.ndarray) -> np.ndarray:
        """Return the codes of rows; ``levels`` (n, n_columns) has −1 for missing cells."""
        codes = np.empty((len(levels), self.n_codes), dtype=self.dtype)
        for g in range(self.n_codes):
            code = np.zeros(len(levels), dtype=np.int64)
            for c in range(self.first_column[g], self.first_column[g + 1]):
                level = levels[:, c].astype(np.int64)
                if self.missing[c]:
                    level[level < 0] = self.n_levels[c]
                code = code * self.radices[c] + level
            codes[:, g] = code
        return codes

    def unpack(self, codes: np.ndarray) -> np.ndarray:
        """Return the levels of rows, int64 of shape (n, n_columns), with −1 for missing cells."""
        levels = np.repeat(codes.astype(np.int64), np.diff(self.first_column), axis=1)
        levels //= self.places
        levels %= self.radices
        if any(self.missing):
            levels[levels == self.n_levels] = -1
        return levels


def _groups(radices: np.ndarray, largest: int) -> np.ndarray:
    """Return the first column of each group of columns whose radices multiply to ``largest``."""
    first, size = [0], 1
    for c, radix in enumerate(radices.tolist()):
        if c > first[-1] and size * radix > largest:
            first.append(c)
            size = 1
        size *= radix
    return np.array([*first, len(radices)] if len(radices) else [0], dtype=np.int64)


def _sizes(radices: np.ndarray, first_column: np.ndarray) -> np.ndarray:
    """Return the number of values of each code, int64."""
    return np.multiply.reduceat(radices, first_column[:-1]) if len(radices) else radices


@dataclass(frozen=True)
class Coded:
    """Rows of categories, packed into codes."""

    codes: np.ndarray  # (n_rows, n_codes)
    packing: Packing

    @classmethod
    def of_chunks(
        cls, chunks: list[np.ndarray], n_levels: Any, missing: Any, n_components: int
    ) -> Coded:
        """Pack levels, (n_rows, n_columns) in several chunks, in which missing cells are −1.

        ``missing`` says which columns have such cells.
        """
        packing = Packing.of(n_levels, missing, n_components)
        codes = np.empty((sum(map(len, chunks)), packing.n_codes), dtype=packing.dtype)
        start = 0
        for chunk in chunks:
            codes[start : start + len(chunk)] = packing.pack(chunk)
            start += len(chunk)
        return cls(codes, packing)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return len(self.codes), len(self.packing.n_levels)

    @property
    def most_chunks(self) -> int:
        """The largest number of chunks for parallel work."""
        return 8 if len(self) >= _MANY_ROWS else 4

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Coded:
        return Coded(self.codes[index], self.packing)

    def levels(self) -> np.ndarray:
        """Return the levels, int64 of shape (n_rows, n_columns), with −1 for missing cells."""
        return self.packing.unpack(self.codes)

    @classmethod
    def joined(cls, tables: Sequence[Coded]) -> Coded:
        """Return the rows of several tables of the same columns, one table after another."""
        first = tables[0].packing
        if all(table.packing == first for table in tables):
            return cls(np.concatenate([table.codes for table in tables]), first)
        missing = np.any([table.packing.missing for table in tables], axis=0)
        levels = [table.levels() for table in tables]
        return cls.of_chunks(levels, first.n_levels, missing, first.n_components)


@dataclass(frozen=True)
class Blocks:
    """Rows whose columns are divided into blocks, each in a form of its own."""

    # The name of each block → its rows: an array, :class:`Coded`, or a sparse array.
    parts: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        shapes = [part.shape for part in self.parts.values()]
        return shapes[0][0], sum(shape[1] for shape in shapes)

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Blocks:
        return Blocks({name: part[index] for name, part in self.parts.items()})


def joined_tables(tables: Sequence[Any]) -> Any:
    """Return the rows of several tables of the same form, one table after another, as a copy."""
    first = tables[0]
    if isinstance(first, Blocks):
        of_blocks = {name: [table.parts[name] for table in tables] for name in first.parts}
        return Blocks({name: joined_tables(parts) for name, parts in of_blocks.items()})
    if isinstance(first, Coded):
        return Coded.joined(tables)
    if issparse(first):
        return csr_array(vstack(tables, format="csr"))
    return np.concatenate([np.asarray(table) for table in tables])


def missing_cells(X: Any) -> Any:
    """Mark the missing cells of an array, :class:`Coded` or :class:`Blocks`; None without any.

    The mask is a bool array of the shape of ``X``. A missing cell of a sparse matrix is an entry
    that is stored as NaN, and its mask is sparse.
    """
    if isinstance(X, Blocks):
        masks = [missing_cells(part) for part in X.parts.values()]
        if all(mask is None for mask in masks):
            return None
        shapes = [part.shape for part in X.parts.values()]
        pairs = zip(masks, shapes, strict=True)
        return np.hstack([np.zeros(s, dtype=bool) if m is None else m for m, s in pairs])
    if isinstance(X, Coded):
        return X.levels() < 0 if any(X.packing.missing) else None
    if issparse(X):
        mask = np.isnan(X.data)
        return csr_array((mask, X.indices, X.indptr), shape=X.shape) if mask.any() else None
    mask = np.isnan(X)
    return mask if mask.any() else None


def merged_rows(X: Any, weights: np.ndarray | None) -> tuple[Any, np.ndarray] | None:
    """Return the distinct rows of packed categories, and the sum of the weights of each.

    The result is None if this would not halve the number of rows, or if columns are not packed.
    """
    parts = list(X.parts.values()) if isinstance(X, Blocks) else [X]
    if not all(isinstance(part, Coded) for part in parts) or len(X) == 0:
        return None
    rng = np.random.default_rng(0)
    keys = np.zeros(len(X), dtype=np.uint64)
    for part in parts:
        for code in part.codes.T:
            # Different rows get the same key very seldom; this is checked below.
            keys ^= code + rng.integers(2**63, dtype=np.uint64)
            keys *= rng.integers(2**62, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
            keys ^= keys >> np.uint64(29)
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    if 2 * len(first) > len(X):
        return None
    if not all(np.array_equal(part.codes[first][where], part.codes) for part in parts):
        return None
    return X[first], np.bincount(where, weights, len(first))
