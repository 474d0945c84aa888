"""Base class of the visits to documents: their start, and the form of their results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import gammaln

from ...data.units import Documents
from ...families import STRONG, Natural, dirichlet_divergence
from ...parallel.workers import SEQUENTIAL, Workers
from .._base import LocalStep, Visit
from .draws import TopicsDraw
from .lazy_columns import SparseColumns
from .tables import Topics, Words, words_of_task

TOPICS = "topic_word"
NOTHING, NO_MATRIX = np.empty(0), np.empty((0, 0))


class LocalStart(NamedTuple):
    """The initial topic proportions of some documents, and how to iterate from there."""

    # The initial Dirichlet parameters γ, (n_documents, n_topics). None means that the tokens of
    # each document are spread evenly over all topics.
    gamma: np.ndarray | None
    n_iter: int  # largest number of iterations over a document
    seed: int = 0  # seed of local steps that use random numbers


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
        return self.arrays[-1][rows] if len(self.arrays) > 1 else NO_MATRIX

    def add_up(self, rows: slice, but_last: bool = False) -> None:
        """Write some rows of the sum, which may leave out the last array."""
        first, *rest = self.arrays
        for array in rest[:-1] if but_last else rest:
            first[rows] += array[rows]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self.total() if dtype is None else self.total().astype(dtype, copy=False)

    def __reduce__(self) -> Any:
        # One array takes less time on the way to another process than several.
        return Addends, ([self.total()],)


@dataclass(frozen=True)
class TopicsVisit(Visit):
    """A visit to documents, which holds the topics of all words of these documents.

    Its ``expected`` is of class :class:`~.tables.Topics`, prepared for the temperature of the
    visit. How tokens get their topics is left to subclasses.

    Parameters
    ----------
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

    expected: Topics
    words: Words = field(kw_only=True)
    draw: TopicsDraw | None = field(default=None, kw_only=True)
    statistics: bool = field(default=True, kw_only=True)
    workers: Workers = field(default=SEQUENTIAL, kw_only=True)
    bound: bool = field(default=True, kw_only=True)
    energy: bool = field(default=True, kw_only=True)

    def without_bound(self) -> TopicsVisit:
        return replace(self, bound=False)

    def without_energy(self) -> TopicsVisit:
        return replace(self, energy=False)

    def start(
        self,
        units: Documents,
        local: np.ndarray | None,
        exploring: bool,
        noise: float,
        rng: np.random.Generator,
    ) -> Any:
        """Return γ, or (1 − r) γ + r (α + c Dir(1)) with a share r of noise.

        c is the mean length of a document.
        """
        model = self.model
        n_iter = model.n_iter(exploring)
        if noise == 0:
            return LocalStart(None if exploring else local, n_iter)
        if local is None:
            spread = model.doc_topic_prior + units.lengths[:, None] / model.n_components
            local = np.broadcast_to(spread, (units.n_units, model.n_components))
        random = rng.standard_exponential((units.n_units, model.n_components))
        random *= model.mean_length / random.sum(axis=1, keepdims=True)
        random += model.doc_topic_prior
        return LocalStart((1.0 - noise) * local + noise * random, n_iter)

    def forgets(self, exploring: bool, noise: float) -> bool:
        return exploring and noise == 0

    def arrays(
        self, units: Documents, dtype: DTypeLike
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return counts, rows of words and indptr of some documents, as kernels read them."""
        counts, words, indptr = units.arrays(dtype)
        return counts, self.words.rows_of(units, words), indptr

    def array_of_gamma(self, units: Documents, local: LocalStart) -> np.ndarray:
        """Return an array into which a kernel writes γ.

        If a start is given, the array holds a copy of it, which the kernel reads first.
        """
        if local.gamma is not None:
            return np.array(local.gamma, dtype=np.float64, order="C")
        return np.empty((units.n_units, self.model.n_components))

    def result(
        self,
        units: Documents,
        out: Any,
        theta: np.ndarray,
        sums: np.ndarray,
        gamma: np.ndarray,
    ) -> LocalStep:
        """Return the arrays that kernels have filled as a local step.

        Its ``log_prior`` is Σ w E log p(θ) = Σ w {log Γ(Σ α) − Σ log Γ(α) + Σ (α − 1) E log θ}.
        """
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

    def add_up(self, statistics: dict[str, Any]) -> None:
        """Replace statistics of chunks by their sum."""
        addends = statistics.get(TOPICS)
        if addends is not None:
            n, width = self.expected.table.shape
            if len(addends.arrays) > 1:
                self.workers.share(addends.add_up, n, words_of_task(width))
            statistics[TOPICS] = addends.place()

    def finish(self, step: LocalStep) -> LocalStep:
        """Return statistics as matrices of all columns, which are sparse if few words occur."""
        if self.words.few:
            occurring, n_columns = self.words.occurring, self.words.n_columns
            parts: tuple[dict[str, Any], ...] = (step.statistics, step.deviation or {})
            for statistics in parts:
                if TOPICS in statistics:
                    statistics[TOPICS] = SparseColumns(
                        occurring, statistics[TOPICS], n_columns, workers=self.workers
                    )
        return step

    def exact_gradient_statistics(self, q: Natural, prior: Natural, stats: Natural) -> Natural:
        """Return V S for the exact gradient of structured stochastic VI, kept in bounds."""
        assert self.draw is not None
        exact = self.draw.exact_gradient_statistics(q[TOPICS], prior[TOPICS], stats[TOPICS])
        return {TOPICS: exact}


def steps_from_anew(
    visit: TopicsVisit, units: Documents, workers: Workers
) -> Iterator[tuple[slice, LocalStep]]:
    """Yield the documents of each chunk, and their local step from a new start."""
    chunks = units.chunks()
    start = LocalStart(None, visit.model.n_iter(exploring=False))
    tasks = ((units.take(index), None, start) for index in chunks)
    return zip(chunks, workers.imap(visit.step, tasks), strict=True)


def gamma_of(visit: TopicsVisit, units: Documents, workers: Workers) -> np.ndarray:
    """Return the Dirichlet parameters γ of documents, of shape (n_documents, n_topics)."""
    gamma = np.empty((units.n_units, visit.model.n_components))
    for index, step in steps_from_anew(visit.without_bound(), units, workers):
        gamma[index] = step.local
    return gamma
