"""The model with proportions and topics integrated out: collapsed Gibbs sampling of all tokens.

The topic z of a token of word w in document d is drawn given those of all other tokens,

    p(z = k | ·) ∝ (n_dk + α_k) (n_kw + η_w) / Σ_v (n_kv + η_v)

(Griffiths and Steyvers 2004, Finding scientific topics, Eq. 5), where n_dk and n_kw are the numbers
of these by document and by word. λ_kw = n_kw + η_w, so that the tokens are in λ. Several tokens of
a word in a document take Metropolis-Hastings steps with the same stationary distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ...data.units import Documents
from ...families import Factor, Factors, Natural, RepeatedDirichlet, Tempering
from ...parallel import kept_memory
from ...parallel.workers import SEQUENTIAL, Workers
from .._base import LocalStep, compiled
from .collapsed import CollapsedLatentDirichlet
from .model import LatentDirichlet
from .moves import Tokens, move_topics
from .tables import Concentrations, Words, words_of_task
from .visit import NOTHING, TOPICS, Addends, TopicsVisit

# In the mean over passes, a topic loses a word of which it has fewer tokens than this. A token has
# the mean weight of all tokens.
_SMALLEST_MEAN = 0.1
# Smallest mean number of documents in a chunk, if there are several.
_SMALLEST_CHUNK = 4_096
# A chunk that is the only one and has so many tokens is sampled in so many turns. With more turns
# more workers would be of use, but each turn reads all topics again.
_TOKENS_OF_TURNS, _TURNS = 100_000, 2
# How often the blocks of a turn exchange their numbers of tokens.
_MEETINGS = 8
# Topics are moved before the visits that follow so many others, until nothing moves. The chain has
# to settle before, and later moves would make topics of different meanings one mean.
_VISITS_BEFORE_MOVES = (40, 50)

kernels = partial(compiled, "topic_sampler")


class Counts(NamedTuple):
    """λ as the sampler reads it."""

    # λ of the words in a visit, padded with zeros, (n_rows, width). Rows of other words, if there
    # are any, are uninitialised.
    table: np.ndarray
    totals: np.ndarray  # Σ_w λ_kw over all words, (n_topics,)


class Assignments(NamedTuple):
    """The topics of the tokens of some documents, and how to go on from there."""

    # None if the tokens have no topics yet, and are not in λ, (n_tokens,).
    topics: np.ndarray | None
    seed: int
    n_visits: int = 0  # the number of visits that have drawn them
    moves: bool = True  # whether all attempts to move topics so far have moved some


class SampledDirichlet(RepeatedDirichlet):
    """The distributions of topics whose parameters are the sum of η and of the tokens drawn.

    The sampler tries many topics for a word, so that the mean over passes has small fractions of a
    token in most of them. They hardly change predictions, but lower the bound. They go to the other
    topics of the word.

    Parameters
    ----------
    smallest : float
        The smallest count of a word that a topic keeps in the mean.
    n_last : int, default=1
        The number of words that the last entry stands for.
    """

    def __init__(self, smallest: float, n_last: int = 1):
        super().__init__(n_last)
        self.smallest = smallest

    def of_mean(self, mean: Natural, prior_of_mean: Natural, prior: Natural) -> Natural:
        """Return the prior and the mean counts, without those below the smallest."""
        topics, eta_of_mean, eta = (
            np.ascontiguousarray(natural["concentration"].T, dtype=np.float64)
            for natural in (mean, prior_of_mean, prior)
        )
        out = np.empty(topics.shape)
        kernels().move_traces(out, topics, eta_of_mean, eta, float(self.smallest))
        return {"concentration": out.T}


class DocumentsInFewChunks(Documents):
    """Documents in chunks of some thousands or more on average.

    Within a chunk, every draw depends on those before it; of other chunks it uses the result of the
    last visit. Where single documents decide what a topic is, the loss of quality is larger than
    the gain in time by several workers. A single chunk is sampled in turns instead, in which
    several workers are of use too.
    """

    _same: Documents | None = None  # the documents in their own chunks

    @classmethod
    def of(cls, units: Documents) -> DocumentsInFewChunks:
        """Return the same documents, whose words are not sought again."""
        found = cls(units.counts, units.words, units.indptr, units.weights)
        found._occurring, found._same = units._occurring, units
        return found

    @cached_property
    def occurrences(self) -> Any:
        return super().occurrences if self._same is None else self._same.occurrences

    @cached_property
    def _most_chunks(self) -> int:
        return max(1, min(super()._most_chunks, self.n_units // _SMALLEST_CHUNK))


def counts_of(
    expected: Concentrations, n_topics: int, dtype: DTypeLike, workers: Workers
) -> Counts:
    """Return λ of some words as the sampler reads it."""
    columns = kernels().COLUMNS
    shape = expected.n_rows, -(-n_topics // columns) * columns
    table = kept_memory.empty(shape, dtype)

    def fill(part: slice) -> None:
        rows = expected.rows_of(part)
        table[rows, :n_topics] = expected.values(part)
        table[rows, n_topics:] = 0.0

    workers.share(fill, len(expected.rows), words_of_task(table.shape[1]))
    return Counts(table, expected.totals)


@dataclass(frozen=True)
class SampledVisit(TopicsVisit):
    """A visit whose local step draws the topic of each token, given those of all other tokens.

    λ contains the tokens with their topics of the last visit, which are the local variables. Each
    chunk of documents has its own copy of the counts, and changes it as its tokens change their
    topics (approximate distributed LDA, Newman et al., 2009).

    In P turns, documents are cut into P parts, and so are words. Of these P² blocks, P that share
    neither documents nor words are sampled in each turn, by as many workers as there are (Yan, Xu
    and Qi, 2009). A draw then depends on all draws before it except for Σ_w λ_kw, which lacks the
    last ones of the other blocks: the sums are brought together several times in a turn. The first
    visit has one turn: the first tokens of a topic decide its words, and each block of a turn would
    begin the topic in its own way. The draws depend on P, and not on the number of workers. Many
    documents are sampled in pairs within a block, which takes less time.

    Its ``expected`` is of class :class:`Counts`.
    """

    gives_bound = False
    expected: Counts  # type: ignore[assignment]

    def view(self, units: Documents) -> Documents:
        return DocumentsInFewChunks.of(units)

    def start(
        self, units: Documents, local: Any, exploring: bool, noise: float, rng: np.random.Generator
    ) -> Any:
        seed = int(rng.integers(2**62))
        return Assignments(None, seed) if local is None else local._replace(seed=seed)

    def forgets(self, exploring: bool, noise: float) -> bool:
        return False

    def step(
        self, units: Documents, noise: np.ndarray | None = None, local: Any = None
    ) -> LocalStep:
        model, expected = self.model, self.expected
        arrays = self.arrays(units, model.dtype)
        shape = expected.table.shape
        starts, of_rows = np.zeros(units.n_units + 1, np.int64), np.zeros(shape[0] + 1)
        kernels().count_tokens(*arrays, starts, of_rows)
        fresh = local.topics is None
        topics = np.full(starts[-1], -1, np.int32) if fresh else np.array(local.topics)
        if len(topics) != starts[-1]:
            raise ValueError(
                f"The documents have {starts[-1]} tokens, but topics of {len(topics)} are given."
            )
        alone = isinstance(units, DocumentsInFewChunks)
        in_turns = alone and not fresh and starts[-1] >= _TOKENS_OF_TURNS
        n_turns, n_meetings = (_TURNS, _MEETINGS) if in_turns else (1, 1)
        in_pairs = not fresh and starts[-1] >= kernels().TOKENS_OF_PAIRS
        documents = *arrays, starts, NOTHING if units.weights is None else units.weights
        cuts, rows = _cut(starts, n_turns * n_meetings), _cut(of_rows.cumsum(), n_turns)
        table, totals = kept_memory.empty(shape, expected.table.dtype), expected.totals.copy()
        out = kept_memory.empty(shape)

        def begin(rows: slice) -> None:
            table[rows] = expected.table[rows]
            out[rows] = 0.0

        if alone:
            self.workers.share(begin, len(table), words_of_task(shape[1]))
        else:
            begin(slice(None))
        moves = local.moves
        if moves and alone and local.n_visits in _VISITS_BEFORE_MOVES:
            moves = self.move(documents, topics, local.seed, table, totals)
        of_part = kept_memory.zeros_apart(n_turns, model.n_components)
        theta = kept_memory.zeros_apart(n_turns, model.n_components + 2)

        def sample(turn: int, meeting: int, which: slice) -> None:
            for part in range(which.start, which.stop):
                i, j = part * n_meetings + meeting, (part + turn) % n_turns
                of_part[part] = totals
                kernels().sample_topics(
                    *(
                        *documents,
                        *cuts[i : i + 2],
                        *rows[j : j + 2],
                        turn == n_turns - 1,
                        in_pairs,
                    ),
                    *(model.doc_topic_prior, table, of_part[part], topics, fresh, local.seed),
                    *(out, theta[part]),
                )

        for turn, meeting in product(range(n_turns), range(n_meetings)):
            self.workers.share(partial(sample, turn, meeting), n_turns, 1)
            totals += (of_part - totals).sum(axis=0)
        statistics: dict[str, Any] = {TOPICS: Addends([out]), "doc_topic": theta.sum(axis=0)}
        kept = Assignments(topics, local.seed, local.n_visits + 1, moves)
        return LocalStep(statistics, energy=np.nan, entropy=np.nan, local=kept)

    def move(
        self, documents: tuple, topics: np.ndarray, seed: int, table: np.ndarray, totals: np.ndarray
    ) -> bool:
        """Move topics, and change the topics of tokens, λ and its sums accordingly.

        Returns whether something moved.

        There are no moves where topics have priors of their own, so that they cannot take each
        other's place; where tokens are heavier than one, which the sampler cannot divide; or where
        λ is not the sum of η and of these tokens, but remembers earlier ones, or other documents.
        """
        model, rows, n_topics = self.model, self.words.rows, self.model.n_components
        alpha, eta = model.doc_topic_prior, model.topic_word_prior
        if n_topics < 3 or eta.ndim == 2 or (alpha != alpha[0]).any():
            return False
        of_rows, of_all = np.ones(len(table)), float(eta.sum())
        of_rows[rows] = eta[self.words.names]
        tokens = Tokens.of(documents, (float(alpha[0]), of_rows, of_all))
        found = of_all + tokens.counts(topics, n_topics)[0].sum(axis=0)
        light = tokens.masses.max(initial=0.0) <= 1.0
        if not light or not np.allclose(totals, found, rtol=1e-6, atol=0.0):
            return False
        changed = move_topics(tokens, topics, n_topics, seed, self.workers)
        counts = tokens.counts(topics, n_topics)[0][:, changed]
        table[np.ix_(rows, changed)] = of_rows[rows, None] + counts[rows]
        totals[changed] = of_all + counts.sum(axis=0)
        return len(changed) > 0

    def finish(self, step: LocalStep) -> LocalStep:
        self.add_up(step.statistics)
        return super().finish(step)


class SampledLatentDirichlet(CollapsedLatentDirichlet):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, which keeps the topics of tokens.

    Only visits with a generator sample; others, such as those of the bound, are mean-field visits.
    """

    local_step_name = "collapsed_gibbs"
    divides_tokens = False
    recommended = LatentDirichlet.recommended | {
        "structured": {
            "gradient": "approximate",
            "learning_rate": 1.0,
            "n_passes": 300,
            "evaluate_every": 300,
            "learn_priors_after": 0.25,
            "average": True,
            "tol": 0.01,
        }
    }

    def capabilities(self) -> dict[str, str | None]:
        reason = (
            "it weighs the statistics of one draw of the topics, and "
            f"local_step={self.local_step_name!r} integrates over all draws; "
            "local_step='mean_field' does not"
        )
        return super().capabilities() | {"exact_gradient_statistics": reason}

    def factors(self) -> Factors:
        family = SampledDirichlet(_SMALLEST_MEAN * self.mass_of_token, self._n_last)
        return Factors([Factor(family, {"concentration": TOPICS})])

    def operations(self, units: Documents) -> float:
        return 2.0 * self.n_components * units.n_observations

    def visit(
        self,
        q: Natural,
        units: Documents,
        t: Tempering = Tempering(),  # noqa: B008
        *,
        rng: np.random.Generator | None = None,
        separate_noise: bool = False,
        workers: Workers = SEQUENTIAL,
        **how: Any,
    ) -> TopicsVisit:
        how |= {"separate_noise": separate_noise, "workers": workers}
        if rng is None:
            return super().visit(q, units, t, **how)
        words = Words.of(units, q[TOPICS], self.absent)
        expected = Concentrations.of(q[TOPICS], words)
        counts: Any = counts_of(expected, self.n_components, self.dtype, workers)
        return SampledVisit(
            self, counts, t, separate_noise=separate_noise, words=words, workers=workers
        )


def _cut(sums: np.ndarray, n_parts: int) -> np.ndarray:
    """Return where parts with about equal shares of a sum begin, and where the last one ends.

    Entry i of ``sums`` is the sum of all elements before i; the last entry is that of all.
    """
    inner = np.searchsorted(sums, sums[-1] / n_parts * np.arange(1, n_parts))
    return np.array([0, *inner, len(sums) - 1], dtype=np.int64)
