"""Log densities and statistics of Gaussians in the layout of the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...data.units import Rows
from ...kernels.plain.gaussian_mixture import DIAGONAL, FULL, SPHERICAL
from .._base import compiled
from ._base import RawStatistics

# Number of rows that a kernel processes at a time, and that of rows with so many columns, whose
# products would leave the nearest caches before they are used again.
_ROWS_PER_BLOCK, _ROWS_OF_COLUMNS, _COLUMNS = 256, 64, 32
# Coefficients that no components share.
NOTHING = np.empty((1, 0))


def rows_per_block(n_features: int, layout: str = "full") -> int:
    """Return the number of rows that a kernel processes at a time."""
    many = layout in ("full", "tied") and n_features >= _COLUMNS
    return _ROWS_OF_COLUMNS if many else _ROWS_PER_BLOCK


class Terms(NamedTuple):
    """The means, the constants, and the log weights of which these are made, of all components."""

    mean: np.ndarray
    constant: np.ndarray
    log_weights: np.ndarray


class Features(NamedTuple):
    """Coefficients of log p(x, z = k) in the quadratic features [x_i x_j, x, 1] of the kernel."""

    # The set of quadratic features. With ``"tied"`` it is the same as with ``"full"``, but all
    # components share the coefficients of these features.
    layout: str
    own: np.ndarray  # the coefficients that each component has for itself, (n_components, n_own)
    # The coefficients that all components share, (1, n_shared); empty unless the layout is
    # ``"tied"``.
    shared: np.ndarray
    terms: Terms  # further values for rows with missing cells
    # The ``Gaussians`` that rows with missing cells read, if there are such rows.
    gaussians: Any = None
    # The factors of the precision matrices of many columns, which take the place of all
    # coefficients: ``Roots`` or ``RowPrecisions``.
    roots: Any = None
    # The ``LastSums`` of many columns; None if the next visit is to other rows.
    last: Any = None
    # The ``Origin`` of q: the prior and the statistics of which it is made, where they are known.
    origin: Any = None

    def for_other_rows(self) -> Features:
        """Return these coefficients without what the next visit to the same rows would need."""
        return self._replace(last=None, origin=None)


# The rows of components are kept if they are at most so many for each column. With more, products
# of matrices take as long as those of the rows.
SHARE_OF_COLUMNS = 0.6


class Block(NamedTuple):
    """Rows times the square roots of their weights, (n_rows, n_features), and these, (n_rows,)."""

    rows: np.ndarray
    roots: np.ndarray


@dataclass(frozen=True)
class FeatureSums(RawStatistics):
    """Raw statistics: Σ R f(x) of the quadratic features, laid out as :class:`Features` are."""

    layout: str
    # The sums of the features whose coefficients each component has for itself,
    # (n_components, n_own). The last feature is 1, and its sums are Σ R.
    own: np.ndarray
    # The sums over all components of the features whose coefficients they share, (1, n_shared).
    shared: np.ndarray

    # A list for each component of many columns with the blocks of its rows, or None if these are
    # not few (``_few_rows``).
    kept: list[Any] | None = None
    # The changes of parameters that follow from these sums, if they will be read again.
    derived: ClassVar[dict[str, Any] | None] = None

    def __add__(self, other: FeatureSums) -> FeatureSums:
        own, shared = self.own + other.own, self.shared + other.shared
        if self.kept is None or other.kept is None:
            return FeatureSums(self.layout, own, shared)
        total = FeatureSums(
            self.layout, own, shared, [None if x is None else [*x] for x in self.kept]
        )
        for k, blocks in enumerate(other.kept):
            for block in [None] if blocks is None else blocks:
                total.keep(k, block)
        return total

    def __rmul__(self, factor: float) -> FeatureSums:
        return FeatureSums(self.layout, factor * self.own, factor * self.shared)

    def keep(self, k: int, block: Block | None) -> None:
        """Keep more rows of a component, or none of it any more if they are too many, or None."""
        assert self.kept is not None
        some, self.kept[k] = self.kept[k], None
        if some is not None and block is not None:
            if sum(len(x.roots) for x in (*some, block)) <= SHARE_OF_COLUMNS * block.rows.shape[1]:
                self.kept[k] = [*some, Block(block.rows.copy(), block.roots)]


class LastSums:
    """The statistics of the last visit, which the next one finds again if no share has changed.

    With many columns the shares of most rows are 0 and 1, up to a rounding error. So statistics are
    the same from one visit to the next long before the priors are.
    """

    def __init__(self) -> None:
        # The rows are None after a pickle, which a fit to the same rows goes on from.
        self._last: tuple[np.ndarray | None, np.ndarray, np.ndarray, FeatureSums] | None = None
        # True at the only component of each row; empty if a row has two.
        self._is_own: np.ndarray | None = None
        self._noted: Any = None

    def __getstate__(self) -> dict[str, Any]:
        last = None if self._last is None else (None, *self._last[1:])
        return {**vars(self), "_last": last}

    def of(self, rows: Rows, shares: np.ndarray) -> FeatureSums | None:
        """Return the statistics if these are the same rows with the same shares."""
        if self._last is None:
            return None
        _, center, before, found = self._last
        if shares.shape != before.shape or not self._has(rows):
            return None
        rounding = np.finfo(float).eps * np.abs(before).max(axis=0, initial=0.0)
        if (np.abs(shares - before) > rounding).any():
            return None
        if found.derived is None:
            object.__setattr__(found, "derived", {})
        self._last = rows.X, center, before, found
        return found

    def _has(self, rows: Rows) -> bool:
        """Return whether the rows are those of the last visit."""
        assert self._last is not None
        x, center, before, _ = self._last
        # Chunks are views that every visit makes anew. This one keeps the memory from other arrays.
        place = x is None or x.__array_interface__ == rows.X.__array_interface__
        same = center is rows.center or np.array_equal(center, rows.center)
        return bool(place and same and len(before) == rows.n_units)

    def note(self, rows: Rows, features: Features, log_joint: np.ndarray) -> None:
        """Note log densities, if each row has one component alone (``_settled_rows``)."""
        if features.origin is None or self._last is None:
            return
        if self._is_own is None:
            shares = self._last[2]
            largest = shares.max(axis=1, keepdims=True, initial=0.0)
            rest = (1.0 if rows.weights is None else rows.weights[:, None]) - largest
            alone = (np.abs(rest) <= np.finfo(float).eps * largest) & (shares >= 0.0)
            own = (shares == largest) & (largest > 0.0)
            self._is_own = own if alone.all() else np.empty((0, 0), dtype=bool)
        if len(self._is_own):
            self._noted = features.origin.noted(features.terms, log_joint, self._is_own)

    def noted(self, rows: Rows, raw: FeatureSums) -> Any:
        """Return what was noted of the same rows and their statistics; None if nothing was."""
        if self._last is None or self._last[3] is not raw or not self._has(rows):
            return None
        return self._noted

    def keep(self, rows: Rows, shares: np.ndarray, found: FeatureSums) -> None:
        """Keep statistics, which must not be changed from now on, nor the shares."""
        self._last = rows.X, rows.center, shares, found
        self._is_own = self._noted = None


kernels = partial(compiled, "gaussian_mixture")

FEATURE_KINDS = {"full": FULL, "tied": FULL, "diag": DIAGONAL, "spherical": SPHERICAL}
"""The numbers by which kernels know the quadratic features, by the layout."""
