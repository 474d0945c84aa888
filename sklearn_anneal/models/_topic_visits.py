"""Visits to documents: the topics of the words that they meet, and the local steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.special import gammaln

from ..data.units import Documents
from ..families import STRONG, Natural, SparseColumns, dirichlet_divergence
from ..parallel import kept_memory
from ..parallel.workers import SEQUENTIAL, Workers
from ._base import LocalStep, Visit, compiled
from ._topic_draws import TopicsDraw
from ._topic_mean_field import How, MeanFieldStep, WordStatistics
from ._topic_tables import Words, tables, words_of_task

TOPICS = "topic_word"
_NOTHING = np.empty(0)
_NO_MATRIX = np.empty((0, 0))
_NOISELESS = "topic_word_without_noise"
# Sums over all words have one addend for each part of so many words.
WORDS_OF_PART = 512
# Sweeps of the Gibbs sampler over a document: first those of the burn-in, which are discarded,
# then those whose assignments are averaged.
_GIBBS_SWEEPS = (10, 20)
# Number of chunks → smallest number of entries of documents in so many chunks. Workers share the
# documents of a chunk too, so that chunks are for workers that are processes.
_CHUNKS = {4: 524_288, 8: 2_097_152}


assigned = partial(compiled, "assigned_tokens")
tempered = partial(compiled, "tempered_documents")


class LocalStart(NamedTuple):
    """The initial topic proportions of some documents, and how to iterate from there.

    Attributes
    ----------
    gamma : ndarray of shape (n_documents, n_topics) or None
        The initial Dirichlet parameters γ. None means that the tokens of each document are
        spread evenly over all topics.
    n_iter : int
        Largest number of iterations over a document.
    seed : int
        Seed of local steps that use random numbers.
    """

    gamma: np.ndarray | None
    n_iter: int
    seed: int = 0


class Addends:
    """A sum of arrays that is put off until all of them are there.

    Threads can then share the addition. The result is that of ``((a + b) + c) + …`` in any case.

    Parameters
    ----------
    arrays : list of ndarray
    """

    _MOST = 4

    def __init__(self, arrays: list[np.ndarray]):
        self.arrays = arrays

    def __add__(self, other: Addends) -> Addends:
        if len(self.arrays) < self._MOST:
            return Addends([*self.arrays, other.total()])
        return Addends([self.total(), other.total()])

    def total(self) -> np.ndarray:
        """Return the sum of all arrays."""
        first, *rest = self.arrays
        if not rest:
            return first
        total = first + rest[0]
        for array in rest[1:]:
            total += array
        return total

    def place(self) -> np.ndarray:
        """Return the array, the first of all, into which :meth:`add_up` writes the sum."""
        return self.arrays[0]

    def last(self, rows: slice) -> np.ndarray:
        """Return some rows of the last array; none if it is the only one."""
        return self.arrays[-1][rows] if len(self.arrays) > 1 else _NO_MATRIX

    def add_up(self, rows: slice, but_last: bool = False) -> None:
        """Write some rows of the sum, which may leave out the last array."""
        first, *rest = self.arrays
        for array in rest[:-1] if but_last else rest:
            first[rows] += array[rows]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.total() if dtype is None else self.total().astype(dtype, copy=False)

    def __reduce__(self) -> Any:
        # One array takes less time on the way to another process than several.
        return Addends, ([self.total()],)


@dataclass(frozen=True)
class TopicsVisit(Visit):
    """A visit to documents, which holds the topics of all words of these documents.

    Its ``expected`` is of class :class:`Topics`, prepared for the temperature of the visit.

    Parameters
    ----------
    kind : {"mean_field", "cvb0", "gibbs"}
        The kind of local step.
    words : Words
        The words that occur.
    draw : TopicsDraw or None, default=None
        The draw of the topics, if local steps use one instead of expectations.
    statistics : bool, default=True
        Whether local steps compute statistics. The bound at T = 1 alone does not need them; what
        they would add to the energy is then contained in the entropy.
    workers : Workers, default=SEQUENTIAL
        They share the work on the statistics of all documents.
    bound : bool, default=True
        Whether local steps compute the terms of the lower bound.
    energy : bool, default=True
        Whether they compute the energy apart from the entropy. If not, and if the log-likelihood
        is not tempered, Σ S E log β is left in the entropy of a mean-field step, which has it from
        the start.
    """

    kind: str = "mean_field"
    words: Words = field(kw_only=True)
    draw: TopicsDraw | None = None
    statistics: bool = True
    workers: Workers = SEQUENTIAL
    bound: bool = True
    energy: bool = True

    @property
    def tells_bound(self) -> bool:  # type: ignore[override]
        return self.kind == "mean_field"

    def chunks(self, units: Documents) -> list[slice]:
        if self.kind == "mean_field" and self.unit_temperatures is None:
            return units.chunks(_CHUNKS)
        return units.chunks()

    def without_energy(self) -> TopicsVisit:
        return replace(self, energy=False)

    def without_bound(self) -> TopicsVisit:
        # The temperature of a document follows from terms of its bound.
        return self if self.unit_temperatures is not None else replace(self, bound=False)

    def start(
        self,
        units: Documents,
        local: np.ndarray | None,
        exploring: bool,
        noise: float,
        rng: np.random.Generator,
    ) -> LocalStart:
        model = self.model
        n_iter = model.n_iter(exploring)
        seed = int(rng.integers(2**62)) if self.kind == "gibbs" else 0
        if noise == 0:
            return LocalStart(None if exploring else local, n_iter, seed)
        # The start is (1 − r) γ + r (α + c Dir(1)), r being the share of noise and c the mean
        # length of a document.
        if local is None:
            spread = model.doc_topic_prior + units.lengths[:, None] / model.n_components
            local = np.broadcast_to(spread, (units.n_units, model.n_components))
        random = rng.standard_exponential((units.n_units, model.n_components))
        random *= model.mean_length / random.sum(axis=1, keepdims=True)
        random += model.doc_topic_prior
        return LocalStart((1.0 - noise) * local + noise * random, n_iter, seed)

    def forgets(self, exploring: bool, noise: float) -> bool:
        return exploring and noise == 0

    def step(
        self, units: Documents, noise: np.ndarray | None = None, local: Any = None
    ) -> LocalStep:
        """Make the local step of some documents."""
        if self.unit_temperatures is not None:
            return self._locally_tempered_step(units, noise, local)
        if self.kind == "mean_field":
            return self._mean_field_step(units, noise, local)
        return self._assigned_step(units, noise, local)

    def _mean_field_step(
        self, units: Documents, noise: np.ndarray | None, local: LocalStart
    ) -> LocalStep:
        """Make the mean-field step; its statistics are complete except for other chunks."""
        model, t = self.model, self.t
        how = How(
            self.expected,
            self.words,
            model.doc_topic_prior,
            (float(t.local), float(t.statistics), float(t.prior)),
            local.n_iter,
            model.mean_change_tol,
            self.bound,
            self.bound or model.learn_doc_topic_prior,
            self.workers,
        )
        weights = _NOTHING if units.weights is None else units.weights
        # The energy is that of the statistics without noise, even if the result has noise.
        energy = self.bound and (self.energy or t.local != 1.0)
        found = []
        if self.statistics and (noise is None or energy or self.separate_noise):
            found.append(WordStatistics(how, weights, energy))
        if self.statistics and noise is not None:
            noise = np.asarray(noise, dtype=np.float64)
            noisy = noise if units.weights is None else units.weights * noise
            found.append(WordStatistics(how, noisy, False))
        gamma = self._gamma_array(units, local)
        run = MeanFieldStep(how, units, gamma, local.gamma is not None, found)
        run.run()
        step = self._as_local_step(units, _NO_MATRIX, run.theta, run.sums, gamma)
        if self.statistics:
            sums: list[Any] = [Addends([statistics.sums]) for statistics in found]
            step.energy += found[0].energy
            step.statistics[TOPICS] = sums[0] if self.separate_noise else sums[-1]
            if noise is not None and self.separate_noise:
                step.deviation = {TOPICS: sums[1]}
        return step

    def _assigned_step(
        self, units: Documents, noise: np.ndarray | None, local: LocalStart
    ) -> LocalStep:
        """Make a step that assigns tokens one by one.

        The statistics lack a factor, and the energy lacks a term. Both depend on a word and a
        topic alone, so that :meth:`finish` adds them once, to the sum over all documents.
        """
        model, t = self.model, self.t
        shape = self.expected.table.shape
        out = kept_memory.zeros(shape) if self.statistics else _NO_MATRIX
        # The energy is computed from statistics without noise, even if the result has noise.
        noiseless = _NO_MATRIX if noise is None else kept_memory.zeros(shape)
        theta = sums = _NOTHING
        if self.bound or model.learn_doc_topic_prior:
            theta = kept_memory.zeros_apart(model.n_components + 2)
        if self.bound:
            sums = kept_memory.zeros_apart(4)
        how: tuple[Any, ...] = (local.n_iter, model.mean_change_tol)
        if self.kind == "gibbs":
            how = (*_GIBBS_SWEEPS, local.seed)
        kernel = {"cvb0": assigned().collapsed, "gibbs": assigned().gibbs}[self.kind]
        gamma = self._gamma_array(units, local)
        kernel(
            *self._arrays(units, model.dtype),
            *self.expected,
            model.doc_topic_prior,
            float(t.local),
            float(t.statistics),
            float(t.prior),
            local.gamma is not None,
            *how,
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            gamma,
            out,
            noiseless,
            theta,
            sums,
        )
        step = self._as_local_step(units, Addends([out]), theta, sums, gamma)
        if noise is not None and self.separate_noise:
            step.deviation = {TOPICS: cast(Any, Addends([out]))}
            step.statistics[TOPICS] = cast(Any, Addends([noiseless]))
        elif noise is not None:
            step.statistics[_NOISELESS] = cast(Any, Addends([noiseless]))
        return step

    def _arrays(self, units: Documents, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return counts, rows of words and indptr of some documents, as kernels read them."""
        counts, words, indptr = units.arrays(dtype)
        return counts, self.words.rows_of(units, words), indptr

    def _gamma_array(self, units: Documents, local: LocalStart) -> np.ndarray:
        """Return an array into which a kernel writes γ.

        If a start is given, the array holds a copy of it, which the kernel reads first.
        """
        if local.gamma is not None:
            return np.array(local.gamma, dtype=np.float64, order="C")
        return np.empty((units.n_units, self.model.n_components))

    def finish(self, step: LocalStep) -> LocalStep:
        """Complete the statistics S, and add Σ S E log β to the energy if it is not there yet."""
        if self.unit_temperatures is not None:
            return self._of_all_words(step)
        if not self.statistics:
            step = replace(step, statistics={})
        elif self.kind == "mean_field":
            for statistics in (step.statistics, step.deviation or {}):
                self._add_up(cast(dict[str, Any], statistics))
        else:
            self._complete_all(step)
        if self.kind == "mean_field":
            # So far the entropy holds the log normaliser of φ that the kernel has computed, which
            # is H[q(z)] + x E log p(x, z | θ, β).
            step.entropy -= float(self.t.local) * step.energy
        return self._of_all_words(step)

    def _complete_all(self, step: LocalStep) -> None:
        """Complete the statistics of all chunks together, with noise and without."""
        noiseless = step.statistics.pop(_NOISELESS, None)
        if noiseless is None:
            energy = self._complete(step.statistics)
        else:
            energy = self._complete({TOPICS: noiseless})
            self._complete(step.statistics)
        if step.deviation is not None:
            self._complete(step.deviation)
        step.energy += energy

    def _add_up(self, statistics: dict[str, Any]) -> None:
        """Replace statistics of chunks by their sum."""
        addends = statistics.get(TOPICS)
        if addends is not None:
            n, width = self.expected.table.shape
            if len(addends.arrays) > 1:
                self.workers.share(addends.add_up, n, words_of_task(width))
            statistics[TOPICS] = addends.place()

    def _complete(self, statistics: dict[str, Any]) -> float:
        """Add up the statistics of all chunks, and multiply them by their factor.

        Returns Σ S E log β, or 0 if the bound is not wanted. The threads that share the work do not
        change the order of sums.
        """
        addends, (table, largest) = statistics[TOPICS], self.expected
        total, n = addends.place(), len(table)
        x, factor = float(self.t.local), float(self.t.statistics)
        energies = np.zeros(-(-n // WORDS_OF_PART))

        def complete(parts: slice) -> None:
            rows = slice(WORDS_OF_PART * parts.start, WORDS_OF_PART * parts.stop)
            addends.add_up(rows, but_last=True)
            tables().expected_statistics(
                table[rows],
                largest[rows] if self.bound else _NOTHING,
                x,
                factor,
                0,
                addends.last(rows),
                total[rows],
                WORDS_OF_PART,
                energies[parts],
            )

        at_least = max(1, words_of_task(table.shape[1]) // WORDS_OF_PART)
        self.workers.share(complete, len(energies), at_least)
        statistics[TOPICS] = total
        return float(energies.sum())

    def _of_all_words(self, step: LocalStep) -> LocalStep:
        """Return statistics as matrices of all words, which are sparse if few words occur."""
        if self.words.few:
            met, n_words = self.words.met, self.words.n_words
            parts: tuple[dict[str, Any], ...] = (step.statistics, step.deviation or {})
            for statistics in parts:
                if TOPICS in statistics:
                    statistics[TOPICS] = SparseColumns(
                        met, statistics[TOPICS], n_words, workers=self.workers
                    )
        return step

    def _locally_tempered_step(
        self, units: Documents, noise: np.ndarray | None, local: LocalStart
    ) -> LocalStep:
        """Make the local step with one temperature per document, always in float64."""
        assert self.unit_temperatures is not None
        model, (_, log_partition, n_rounds) = self.model, self.unit_temperatures
        out = kept_memory.zeros(self.expected.table.shape)
        theta, sums, found = np.zeros(model.n_components + 2), np.zeros(6), np.empty(units.n_units)
        gamma = self._gamma_array(units, local)
        tempered().locally_tempered(
            *self._arrays(units, np.float64),
            *self.expected,
            model.doc_topic_prior,
            log_partition,
            n_rounds,
            local.gamma is not None,
            local.n_iter,
            model.mean_change_tol,
            _NOTHING if units.weights is None else units.weights,
            _NOTHING if noise is None else np.asarray(noise, dtype=np.float64),
            gamma,
            out,
            found,
            theta,
            sums,
        )
        step = self._as_local_step(units, out, theta, sums, gamma)
        step.energy = float(sums[4])
        step.temperature, step.inverse_temperatures = float(sums[5]), found
        return step

    def _as_local_step(
        self,
        units: Documents,
        out: Any,
        theta: np.ndarray,
        sums: np.ndarray,
        gamma: np.ndarray,
    ) -> LocalStep:
        """Return the results that the kernels have written into their arrays as a local step."""
        statistics = {TOPICS: out, "doc_topic": theta}
        if not self.bound:
            return LocalStep(statistics, np.nan, np.nan, np.nan, local=gamma)
        alpha = self.model.doc_topic_prior
        if alpha.sum() > STRONG:
            # E log p(θ) + H[q(θ)] is −KL, far smaller than the two that the kernel returns.
            divergence = dirichlet_divergence(gamma, alpha)
            weighted = divergence if units.weights is None else units.weights * divergence
            log_prior = -float(weighted.sum()) - float(sums[3])
        else:
            constant = float(gammaln(alpha.sum()) - gammaln(alpha).sum())
            log_prior = float(sums[2] + constant * theta[-2])
        return LocalStep(
            statistics,
            energy=float(sums[1]),
            entropy=float(sums[0] + sums[3]),
            log_prior=log_prior,
            local=gamma,
        )

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        """Return V S for the exact gradient of structured stochastic VI, kept in bounds."""
        assert self.draw is not None
        exact = self.draw.exact_gradient_statistics(q[TOPICS], prior[TOPICS], stats[TOPICS])
        return {TOPICS: exact}
