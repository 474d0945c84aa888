"""Sequences of frames."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from ..tables import joined_tables
from ._base import Centered, Ragged, joined_arrays
from ._rows import Rows

# Number of chunks → smallest number of frames of sequences that are divided into as many.
_SEQUENCE_CHUNKS = {2: 4_096, 4: 16_384, 16: 65_536}
# Largest number of frames of a window.
_WINDOW = 100
# Copies are looked for among at most this many sequences.
_COMPARED = 20_000


class Sequences(Ragged):
    """Sequences of frames, which are joined in one array.

    Parameters
    ----------
    frames : ndarray of shape (n_frames, n_features) or (n_frames,)
        The frames in the form in which the emission of a model reads them. Missing frames have
        arbitrary but finite values.
    indptr : ndarray of int64, shape (n_sequences + 1,)
        The position in ``frames`` at which each sequence begins.
    weights : ndarray of shape (n_sequences,) or None, default=None
    missing : ndarray of bool, shape (n_frames,) or None, default=None
        Whether each frame is missing, that is, was not observed; None if no frame is missing.
    center : ndarray of shape (n_features,) or None, default=None
        The vector that models subtract from every frame, as in :class:`Rows`.
    patterns : ndarray of uint64, shape (n_frames,) or None, default=None
        Which cells of each frame are missing, as in :class:`Rows`. It is 0 for frames that are
        missing as a whole.
    states : ndarray of intp, shape (n_frames,) or None, default=None
        The state of each frame where it is known, and −1 elsewhere; None if no state is known.
    """

    _parts = _SEQUENCE_CHUNKS
    copies_are_one = True
    caches = ("_as_rows",)

    def __init__(
        self,
        frames: np.ndarray,
        indptr: np.ndarray,
        weights: np.ndarray | None = None,
        missing: np.ndarray | None = None,
        center: np.ndarray | None = None,
        patterns: np.ndarray | None = None,
        states: np.ndarray | None = None,
    ):
        self.frames = frames
        self.states = states
        self.patterns = patterns
        self.indptr = indptr
        self.weights = weights
        self.missing = missing
        self.center = center

    @property
    def lengths(self) -> np.ndarray:
        """Number of frames of each sequence, of shape (n_sequences,)."""
        return np.diff(self.indptr)

    @property
    def n_rows(self) -> int:
        return len(self.frames)

    @cached_property
    def n_observations(self) -> float:
        """Weighted number of frames."""
        return self._weighted_sum(self.lengths)

    def take(self, index: np.ndarray | slice) -> Sequences:
        indptr, part = self._cut(index)
        return self._chosen_frames(
            part, indptr, None if self.weights is None else self.weights[index]
        )

    @classmethod
    def joined(cls, parts: Sequence[Sequences]) -> Sequences:
        """Return the sequences of several objects, as copies without a center."""
        numbers = [part.n_rows for part in parts]
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(
            joined_tables([part.frames for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]),
            joined_arrays([part.weights for part in parts], [part.n_units for part in parts], 1.0),
            joined_arrays([part.missing for part in parts], numbers, False),
            patterns=joined_arrays([part.patterns for part in parts], numbers, np.uint64(0)),
            states=joined_arrays([part.states for part in parts], numbers, -1),
        )

    def parts(self, n_frames: int) -> Iterator[slice]:
        """Yield contiguous parts of at most ``n_frames`` frames, or of one longer sequence."""
        begin = 0
        while begin < self.n_units:
            stop = int(np.searchsorted(self.indptr, self.indptr[begin] + n_frames, "right")) - 1
            stop = max(stop, begin + 1)
            yield slice(begin, stop)
            begin = stop

    def distinct(self, size: int) -> Sequences:
        """Return at most ``size`` sequences at equal distances, no two of which are equal.

        Each has the weight of all that are equal to it. None of them has weight zero.
        """
        chosen, first = self._first_equal
        kept = np.unique(first)
        if len(kept) == self.n_units:
            return self.spread(size)  # type: ignore[return-value]
        weights = np.ones(self.n_units) if self.weights is None else self.weights
        totals = np.bincount(first, weights[chosen], self.n_units)
        if len(kept) > size:
            kept = kept[np.arange(size) * len(kept) // size]
        found = self.take(kept)
        if self.weights is not None or (totals[kept] != 1.0).any():
            found.weights = totals[kept]
        return found

    @cached_property
    def _first_equal(self) -> tuple[np.ndarray, np.ndarray]:
        """Sequences of positive weight, and the first one among them that is equal to each."""
        weighted = np.arange(self.n_units) if self.weights is None else np.flatnonzero(self.weights)
        n = len(weighted)
        chosen = weighted[np.arange(min(n, _COMPARED)) * n // min(n, _COMPARED)] if n else weighted
        found: dict[bytes, int] = {}
        first = np.empty(len(chosen), dtype=np.intp)
        for i, unit in enumerate(chosen.tolist()):
            first[i] = found.setdefault(self._content(unit), unit)
        return chosen, first

    def _content(self, unit: int) -> bytes:
        """Return bytes that are the same for equal sequences only."""
        part = slice(self.indptr[unit], self.indptr[unit + 1])
        beside = (self.missing, self.patterns, self.states)
        given = self.frames[part], [None if each is None else each[part] for each in beside]
        return hashlib.blake2b(pickle.dumps(given)).digest()

    def windows(self, n_frames: int) -> Sequences:
        """Return at most ``n_frames`` frames, in windows at equal distances, which are sequences.

        All sequences are returned as they are if they have no more frames.
        """
        if self.n_entries <= n_frames:
            return self
        n = max(n_frames // _WINDOW, 1)
        begins = np.arange(n) * self.n_entries // n
        of = np.searchsorted(self.indptr, begins, side="right") - 1
        # A sequence that is shorter than a window is a window itself.
        begins = np.where(self.lengths[of] <= _WINDOW, self.indptr[of], begins)
        begins, first = np.unique(begins, return_index=True)
        of = of[first]
        sizes = np.minimum(begins + _WINDOW, self.indptr[of + 1]) - begins
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        part = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], sizes)
        weights = None if self.weights is None else self.weights[of]
        return self._chosen_frames(part, indptr, weights)

    def _chosen_frames(
        self, part: np.ndarray | slice, indptr: np.ndarray, weights: np.ndarray | None
    ) -> Sequences:
        """Return sequences of some frames."""
        missing = None if self.missing is None else self.missing[part]
        patterns = None if self.patterns is None else self.patterns[part]
        states = None if self.states is None else self.states[part]
        return Sequences(self.frames[part], indptr, weights, missing, self.center, patterns, states)

    def centered(self, summary: Centered) -> Sequences:
        center, also = summary.center, (self.patterns, self.states)
        return Sequences(self.frames, self.indptr, self.weights, self.missing, center, *also)

    def marked(self) -> Self:
        if self.patterns is not None:
            return self
        marked = copy.copy(self)
        marked.patterns = np.zeros(len(self.frames), dtype=np.uint64)
        return marked

    def per_frame(self, values: np.ndarray) -> np.ndarray:
        """Return one value per frame, given one value per sequence."""
        return np.repeat(values, self.lengths)

    def present(self) -> np.ndarray:
        """Return the frames that are not missing."""
        return self.frames if self.missing is None else self.frames[~self.missing]

    def rows(self) -> Rows:
        """Return all frames as rows, including missing frames."""
        kept = vars(self).get("_as_rows")
        # The patterns can have been marked since.
        if kept is None or kept.patterns is not self.patterns:
            kept = self._as_rows = Rows(self.frames, None, self.center, self.patterns)
        return kept

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if key not in self.caches}

    def observed(self) -> Rows:
        """Return the frames that are not missing as rows, with the weights of their sequences."""
        weights = None if self.weights is None else self.per_frame(self.weights)
        rows = Rows(self.frames, weights, self.center, self.patterns)
        return rows if self.missing is None else rows.take(~self.missing)
