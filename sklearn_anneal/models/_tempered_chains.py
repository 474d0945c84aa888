"""Hidden Markov models in which each sequence has a temperature: local steps and log partitions.

Sequences can have missing frames and cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from ..data.tables import missing_cells
from ..data.units import Sequences
from ..families import Tempering
from ._base import LocalStep, Visit, compiled
from .components._missing_cells import RowVolume, tempered_volume

kernels = partial(compiled, "hidden_markov")

# Largest number of frames with which the gaps of a long stream are represented.
_FRAMES_OF_GAPS = 100_000


@dataclass(frozen=True)
class LocallyTemperedVisit(Visit[Sequences]):
    """A visit whose local steps infer a temperature for each sequence."""

    def step(
        self, units: Sequences, noise: np.ndarray | None = None, local: None = None
    ) -> LocalStep:
        """Infer states and temperatures by turns.

        Each round infers q(z) given the expected inverse temperatures, and then the distribution
        of the temperatures given the energies of q(z). After the last round q(z) is inferred once
        more.
        """
        assert self.unit_temperatures is not None
        model, (grid, log_partition, n_rounds) = self.model, self.unit_temperatures
        partition = log_partition.of(units)
        x, energies = np.full(units.n_units, grid.mean()), np.empty(units.n_units)
        for _ in range(n_rounds):
            model.local_step(units, self.expected, Tempering(local=x), energies=energies)
            exponents = grid * energies[:, None] - partition
            x = softmax(exponents, axis=1) @ grid
        step: LocalStep = model.local_step(
            units, self.expected, Tempering(local=x, statistics=x), noise
        )
        weights = 1.0 if units.weights is None else units.weights
        step.temperature = float(np.sum(weights / x))
        step.inverse_temperatures = x
        return step


class Gaps(NamedTuple):
    """Sequences with missing frames."""

    indptr: np.ndarray  # the first frame of each sequence, (n_sequences + 1,)
    missing: np.ndarray  # 1 where a frame is missing, 0 elsewhere, (n_frames,)
    weights: np.ndarray  # sample weights, (n_sequences,)

    @classmethod
    def of(cls, units: Sequences, chosen: np.ndarray) -> Gaps | None:
        """Return the gaps of the ``chosen`` sequences, given by their numbers; None if none is."""
        if len(chosen) == 0:
            return None
        some = units.take(chosen)
        assert some.missing is not None
        weights = np.ones(len(chosen)) if some.weights is None else some.weights
        indptr = np.ascontiguousarray(some.indptr, dtype=np.int64)
        return cls(indptr, some.missing.astype(np.int32), weights.astype(float))

    def merge(self, other: Gaps) -> Gaps:
        """Return the gaps of both sets of sequences.

        If there are too many frames, only the first sequences are kept. Their weights are
        multiplied by a factor, so that they represent all sequences.
        """
        indptr = np.append(self.indptr, self.indptr[-1] + other.indptr[1:])
        missing = np.append(self.missing, other.missing)
        weights = np.append(self.weights, other.weights)
        n = max(int(np.searchsorted(indptr, _FRAMES_OF_GAPS, "right")) - 1, 1)
        scaled = weights[:n] * (weights.sum() / weights[:n].sum())
        return Gaps(indptr[: n + 1], missing[: indptr[n]], scaled)


class Partition(NamedTuple):
    """log C(x) of sequences on a grid of M inverse temperatures x.

    For sequences without missing frames it is tabulated. For the others it is computed from the
    remaining attributes, of which a kernel takes the product along the sequence.
    """

    # log C(x) of sequences of 0, 1, 2, … frames, (n_lengths, M). For longer sequences, every
    # further frame adds the difference of the last two rows.
    table: np.ndarray
    x: np.ndarray  # inverse temperatures, and 1 as the last entry, (M + 1,)
    # π^x, and the logarithms of the volumes of emissions, (M + 1, K).
    start: np.ndarray
    log_volume: np.ndarray
    transfer: np.ndarray  # A^x, (M + 1, K, K)
    # The volumes of frames in which some cells are missing, for Gaussian frames whose cells depend
    # on each other.
    cells: RowVolume | None = None
    # The loss by each missing cell, on average over the states, for other emissions,
    # (M, n_columns).
    columns: np.ndarray | None = None

    def of_lengths(self, lengths: np.ndarray) -> np.ndarray:
        """Return log C(x) of sequences without gaps, (n_sequences, M)."""
        table, last = self.table, len(self.table) - 1
        beyond = np.maximum(lengths - last, 0)[:, None]
        return table[np.minimum(lengths, last)] + beyond * (table[last] - table[last - 1])

    def of_gaps(self, gaps: Gaps) -> np.ndarray:
        """Return log C(x) of sequences with gaps, (n_sequences, M).

        A missing frame contributes a transition but no emission.
        """
        out = np.empty((len(gaps.weights), len(self.x)))
        transfer = np.ascontiguousarray(self.transfer.reshape(-1, self.transfer.shape[-1]))
        volume = np.ascontiguousarray(self.log_volume)
        kernels().log_partitions(self.start, transfer, volume, gaps.indptr, gaps.missing, out)
        return out[:, :-1] - self.x[:-1] * out[:, -1:]

    def of(self, units: Sequences) -> np.ndarray:
        """Return log C(x) of sequences with or without gaps, (n_sequences, M)."""
        found = self.of_lengths(units.lengths)
        numbers = numbers_with_gaps(units)
        gaps = Gaps.of(units, numbers)
        if gaps is not None:
            found[numbers] = self.of_gaps(gaps)
        holes = holes_of(units)
        if holes is not None:
            found += self._of_cells(units, holes)
        return found

    def _of_cells(self, units: Sequences, holes: np.ndarray) -> np.ndarray:
        """Return the change of log C(x) by frames that are missing in part, (n_sequences, M).

        The volumes of states are taken to be equal, so that each frame adds its own change.
        """
        if self.cells is None:
            assert self.columns is not None
            each = np.vstack([np.zeros(holes.shape[1]), np.cumsum(holes, axis=0)])
            return -(np.diff(each[units.indptr], axis=0) @ self.columns.T)
        n_cells, log_dets = self.cells.of_rows(units.rows())
        changes = [n_cells - units.frames.shape[1], log_dets - self.cells.log_det]
        sums = [np.diff(np.append(0.0, np.cumsum(change))[units.indptr]) for change in changes]
        return tempered_volume(self.x[:-1], sums[0][:, None], sums[1][:, None])


def holes_of(units: Sequences) -> np.ndarray | None:
    """Mark the missing cells of frames that are not missing as a whole; None without any."""
    mask = None if units.frames.ndim == 1 else missing_cells(units.frames)
    if mask is None or units.missing is None:
        return mask
    mask = mask & ~units.missing[:, None]
    return mask if mask.any() else None


def numbers_with_gaps(units: Sequences) -> np.ndarray:
    """Return the numbers of the sequences with missing frames."""
    if units.missing is None:
        return np.empty(0, dtype=np.intp)
    ends = np.concatenate([[0], np.cumsum(units.missing)])
    return np.flatnonzero(np.diff(ends[units.indptr]))
