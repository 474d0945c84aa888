"""Mean-field visits: q(θ, z) of documents given q(β), and the statistics S of the words in them.

For a document with counts c_w, and with β̃_kw = exp{x (E log β_kw − m_w)}, the updates are

    e_k  = exp{x E log θ_k} = exp{x (ψ(γ_k) − ψ(Σ_j γ_j))}
    φ_wk = e_k β̃_kw / n_w,  n_w = Σ_k e_k β̃_kw
    γ_k  = b + y (α_k − b) + s Σ_w c_w φ_wk

(Blei, Ng and Jordan 2003, Eqs. 6 and 7, without the factors x, s and y of annealing), and the
statistics are S_kw = s Σ_d w_d c_dw φ_dwk. The kernels of ``kernels/latent_dirichlet.py`` compute γ
document by document, and S word by word. A visit in which each document has a temperature of its
own is here too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from ...data.units import Documents
from ...parallel import kept_memory
from .._base import LocalStep, compiled
from .visit import NO_MATRIX, NOTHING, TOPICS, Addends, TopicsVisit

# Number of chunks → smallest number of entries of documents in so many chunks. Workers share the
# documents of a chunk too, so that chunks are for workers that are processes.
_CHUNKS = {4: 524_288, 8: 2_097_152}
# Workers share blocks of documents and of words. Every block has sums of its own, so that they do
# not depend on who computes them. A block has at least so many documents, and a step has at most so
# many blocks of documents; a block of words has so many words.
_SMALLEST_BLOCK, _MOST_BLOCKS = 8, 256
_WORDS = 32
# A tile of documents has about so many factors of topics, which stay in the cache while words read
# them.
_FACTORS_OF_TILE = 2**18
# A task has at least so many products of a topic and a word in iterations over documents, or
# additions of such a product to a sum over documents. They take about ten microseconds.
_PRODUCTS_OF_TASK, _ADDITIONS_OF_TASK = 2**17, 2**15

kernels = partial(compiled, "latent_dirichlet")
tempered = partial(compiled, "tempered_documents")


class _WordStatistics(NamedTuple):
    """The statistics S of words for one weighting of the documents, which grow tile by tile."""

    weights: np.ndarray  # w_d, (n_documents,); none if all are 1
    out: np.ndarray  # S, which is uninitialised before the first tile, (n_rows, width)
    # Σ S E log β of each block of words, without the factor s, (n_blocks,); none if it is not
    # wanted.
    energies: np.ndarray


@dataclass(frozen=True)
class MeanFieldVisit(TopicsVisit):
    """A visit whose local steps maximise the bound over q(θ_d) and q(z) of each document."""

    def chunks(self, units: Documents) -> list[slice]:
        return units.chunks(_CHUNKS)

    def step(
        self, units: Documents, noise: np.ndarray | None = None, local: Any = None
    ) -> LocalStep:
        """Infer the topics of documents, and then, tile by tile, add their words to S."""
        model, table, n = self.model, self.expected.table, units.n_units
        width = table.shape[1]
        counts, rows, indptr = self.arrays(units, table.dtype)
        gamma, statistics = self.array_of_gamma(units, local), self._word_statistics(units, noise)
        size = max(_SMALLEST_BLOCK, -(-n // _MOST_BLOCKS))
        n_blocks = max(1, -(-n // size))
        per_tile = max(1, _FACTORS_OF_TILE // (size * width)) if statistics else n_blocks
        learns = self.bound or model.learn_doc_topic_prior
        theta = np.zeros((n_blocks, model.n_components + 2 if learns else 0))
        sums = np.zeros((n_blocks, 4 if self.bound else 0))
        # c_w / n_w of every entry, from which S is computed.
        ratios = kept_memory.empty(counts.shape if statistics else (0,), table.dtype)
        for first in range(0, n_blocks, per_tile):
            blocks = slice(first, min(first + per_tile, n_blocks))
            tile = slice(size * blocks.start, min(size * blocks.stop, n))
            ends = indptr[tile.start : tile.stop + 1]
            n_kept = tile.stop - tile.start if statistics else 0
            # e_k of the topics that each document has, the list of these, and their number.
            shares = (
                kept_memory.empty((n_kept, width), table.dtype),
                kept_memory.empty((n_kept * width,), np.int32),
                np.empty(n_kept, np.int32),
            )
            # γ by turns with φ, until it changes by less than the tolerance.
            products = float(ends[-1] - ends[0]) * width * (local.n_iter + 1)
            self.workers.share_kernel(
                kernels().mean_field_of(width),
                (
                    *(counts, rows, ends, *self.expected, model.doc_topic_prior, *self._factors),
                    *(local.gamma is not None, local.n_iter, model.mean_change_tol),
                    *((NOTHING if units.weights is None else units.weights)[tile], gamma[tile]),
                    *(ratios, *shares, theta[blocks], sums[blocks], size),
                ),
                blocks.stop - first,
                _blocks_of_task(blocks.stop - first, products, _PRODUCTS_OF_TASK),
            )
            if statistics:
                # S_kw += s β̃_kw Σ_d w_d (c_dw / n_dw) e_dk
                occurrences = self._by_word(units, rows, ends, per_tile >= n_blocks)
                for each in statistics:
                    self._add_statistics(each, tile, occurrences, (ratios, *shares))
        step = self.result(units, NO_MATRIX, theta.sum(axis=0), sums.sum(axis=0), gamma)
        if statistics:
            addends: list[Any] = [Addends([each.out]) for each in statistics]
            step.energy += float(statistics[0].energies.sum())
            step.statistics[TOPICS] = addends[0 if self.separate_noise else -1]
            if noise is not None and self.separate_noise:
                step.deviation = {TOPICS: addends[1]}
        return step

    @property
    def _factors(self) -> tuple[float, float, float]:
        """x, s and y."""
        return float(self.t.local), float(self.t.statistics), float(self.t.prior)

    def _word_statistics(self, units: Documents, noise: np.ndarray | None) -> list[_WordStatistics]:
        """Return where to add up S, without the noise and with it, as far as they are wanted."""
        if not self.statistics:
            return []
        weights = NOTHING if units.weights is None else units.weights
        # The energy is that of the statistics without noise, even if the result has noise.
        energy = self.bound and (self.energy or self.t.local != 1.0)
        chosen = []
        if noise is None or energy or self.separate_noise:
            chosen.append((weights, energy))
        if noise is not None:
            noise = np.asarray(noise, dtype=np.float64)
            chosen.append((noise if units.weights is None else weights * noise, False))
        shape = self.expected.table.shape
        n_blocks = -(-shape[0] // _WORDS)
        return [
            _WordStatistics(each, kept_memory.empty(shape), np.zeros(n_blocks if wanted else 0))
            for each, wanted in chosen
        ]

    def _add_statistics(
        self,
        statistics: _WordStatistics,
        tile: slice,
        occurrences: tuple[np.ndarray, np.ndarray],
        results: tuple[np.ndarray, ...],
    ) -> None:
        """Add the words of a tile of documents to S, which its first tile sets."""
        weights, out, energies = statistics
        n_rows, width = out.shape
        n_blocks = -(-n_rows // _WORDS)
        additions = (len(occurrences[1]) / 2 + n_rows) * width
        self.workers.share_kernel(
            kernels().word_statistics,
            (
                *(*self.expected, *self._factors[:2], *occurrences, *results, weights[tile]),
                *(int(tile.start > 0), out, _WORDS, energies),
            ),
            n_blocks,
            _blocks_of_task(n_blocks, additions, _ADDITIONS_OF_TASK),
        )

    def _by_word(
        self, units: Documents, rows: np.ndarray, indptr: np.ndarray, all_documents: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return where each row begins in a list of its occurrences in a tile, and this list."""
        n_rows = len(self.expected.table)
        if not (all_documents and self.words.listed_by(units)):
            begins = np.empty(n_rows + 1, np.int64)
            listed = kept_memory.empty((2 * int(indptr[-1] - indptr[0]),), np.uint32)
            compiled("ragged").by_column(listed, begins, rows, indptr)
            return begins, listed
        found = units.occurrences
        if self.words.few:
            return found.begins, found.listed
        # The table has rows for all words.
        begins = np.zeros(n_rows + 1, np.int64)
        begins[self.words.occurring + 1] = np.diff(found.begins)
        return begins.cumsum(), found.listed

    def finish(self, step: LocalStep) -> LocalStep:
        """Add up S, and take Σ S E log β out of the entropy.

        The kernel computes the log normaliser of φ, Σ c log n = H[q(z)] + x Σ c φ E log p(x, z).
        """
        if not self.statistics:
            step = replace(step, statistics={})
        for statistics in (step.statistics, step.deviation or {}):
            self.add_up(cast(dict[str, Any], statistics))
        step.entropy -= float(self.t.local) * step.energy
        return super().finish(step)


@dataclass(frozen=True)
class LocallyTemperedVisit(TopicsVisit):
    """A visit whose mean-field steps infer a temperature for each document, always in float64."""

    def without_bound(self) -> LocallyTemperedVisit:
        # The temperature of a document follows from terms of its bound.
        return self

    def step(
        self, units: Documents, noise: np.ndarray | None = None, local: Any = None
    ) -> LocalStep:
        assert self.unit_temperatures is not None
        model, (_, log_partition, n_rounds) = self.model, self.unit_temperatures
        out = kept_memory.zeros(self.expected.table.shape)
        theta, sums, found = np.zeros(model.n_components + 2), np.zeros(6), np.empty(units.n_units)
        gamma = self.array_of_gamma(units, local)
        tempered().locally_tempered(
            *self.arrays(units, np.float64),
            *(*self.expected, model.doc_topic_prior, log_partition, n_rounds),
            *(local.gamma is not None, local.n_iter, model.mean_change_tol),
            NOTHING if units.weights is None else units.weights,
            NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            *(gamma, out, found, theta, sums),
        )
        step = self.result(units, out, theta, sums, gamma)
        step.energy = float(sums[4])
        step.temperature, step.inverse_temperatures = float(sums[5]), found
        return step


def _blocks_of_task(n_blocks: int, work: float, work_of_task: int) -> int:
    """Return the smallest number of blocks in a task, given the work of all blocks."""
    return max(1, int(np.ceil(work_of_task * n_blocks / max(work, 1.0))))
