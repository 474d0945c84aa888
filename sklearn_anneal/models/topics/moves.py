"""Moves of sampled topics: two topics become one, and the free one takes a part of a third.

A sampler that changes one token at a time hardly ever divides a topic that holds two, or joins two
that share one. A move is made if it clearly raises the log joint of words and topics of tokens,

    Σ_k Σ_w log Γ(n_kw + η_w)/Γ(η_w) − Σ_k log Γ(n_k + Ση)/Γ(Ση) + Σ_d Σ_k log Γ(n_dk + α)/Γ(α)

up to a constant, with proportions and topics integrated out. With one α for all topics it is a sum
over topics, so that the gains of moves of different topics add up. As in split-merge samplers (Jain
and Neal, 2004, A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture
model), a topic is divided by a short run of the sampler over its own tokens. There is no reverse
move with its probability: this is a search during the first passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
from scipy.special import gammaln

from ...parallel.workers import Workers
from .._base import compiled

# Passes of the sampler that divide a topic. With half as many, divisions are often missed.
_PASSES = 12
# Topics with which each topic may be joined: those whose words are most alike.
_PARTNERS = 2
# Moves gain at least so many nats per token of their topics, times the mean number of tokens of a
# word in a document. Smaller gains, which texts that follow no true topics have many of, do not
# last, and other documents lose by them. The log joint counts a word that a document repeats as
# if each time were a reason of its own, which is true of draws from the model alone.
_LEAST_GAIN = 0.03

kernels = partial(compiled, "topic_sampler")


@dataclass(frozen=True)
class Tokens:
    """The tokens of documents, one after another, and the priors of their topics.

    Parameters
    ----------
    documents, rows : ndarray of shape (n_tokens,)
        The document of each token, and the row of its word.
    masses : ndarray of shape (n_tokens,)
    weights : ndarray of shape (n_documents,)
    alpha : float
    eta : ndarray of shape (n_rows,)
        η of the word of each row.
    eta_of_all : float
        Σ η over all words, which are more than the rows if some do not occur.
    repeats : float
        The mean number of tokens of a word in a document that has it, or 1 if that is more.
    """

    documents: np.ndarray
    rows: np.ndarray
    masses: np.ndarray
    weights: np.ndarray
    alpha: float
    eta: np.ndarray
    eta_of_all: float
    repeats: float

    @classmethod
    def of(cls, documents: tuple, priors: tuple[float, np.ndarray, float]) -> Tokens:
        """Return the tokens of documents as the sampler numbers them.

        ``documents`` are counts, rows and indptr, where the tokens of each document begin, and
        weights; ``priors`` are the fields from α on.
        """
        counts, rows, _, starts, weights = documents
        counts, most = counts.astype(np.float64), compiled("document_steps").MOST_TOKENS
        numbers = np.ceil(np.minimum(counts, most)).astype(np.int64)
        masses = np.repeat(np.maximum(counts / most, 1.0), numbers)
        # The last token of a count is its fraction.
        some = numbers > 0
        masses[numbers.cumsum()[some] - 1] += np.minimum(counts - numbers, 0.0)[some]
        of_tokens = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        weights = weights if len(weights) else np.ones(len(starts) - 1)
        repeats = max(1.0, float(counts.sum()) / max(int(some.sum()), 1))
        return cls(of_tokens, np.repeat(rows, numbers), masses, weights, *priors, repeats)

    def some(self, which: np.ndarray) -> Tokens:
        """Return some of the tokens."""
        documents, rows, masses = self.documents[which], self.rows[which], self.masses[which]
        return replace(self, documents=documents, rows=rows, masses=masses)

    def counts(self, topics: np.ndarray, n_topics: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how much tokens of each word, and of each document, belong to each topic.

        The shapes are (n_rows, n_topics) and (n_documents, n_topics). Words count with the weights
        of their documents.
        """
        parts = (
            (self.rows, self.masses * self.weights[self.documents], len(self.eta)),
            (self.documents, self.masses, len(self.weights)),
        )
        of_words, of_documents = (
            np.bincount(
                first.astype(np.int64) * n_topics + topics, masses, size * n_topics
            ).reshape(size, n_topics)
            for first, masses, size in parts
        )
        return of_words, of_documents

    def parts(
        self, of_rows: np.ndarray, of_documents: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The counts of words and of documents, with the prior and the weight of each row."""
        yield of_rows, self.eta, np.ones(len(of_rows))
        yield of_documents, np.full(len(of_documents), self.alpha), self.weights

    def log_joint(self, of_rows: np.ndarray, of_documents: np.ndarray) -> np.ndarray:
        """Return the part of each topic in the log joint, given its counts, (n_topics,)."""
        totals = of_rows.sum(axis=0)
        found = gammaln(self.eta_of_all) - gammaln(totals + self.eta_of_all)
        for counts, prior, weights in self.parts(of_rows, of_documents):
            found += [_sum_of_gains(of_topic, prior, weights) for of_topic in counts.T]
        return found

    def divided(self, seed: int) -> np.ndarray:
        """Return one of two topics for each token, by a run of the sampler over these alone."""
        ends = np.searchsorted(self.documents, np.arange(len(self.weights) + 1)).astype(np.int64)
        table = np.zeros((len(self.eta), kernels().COLUMNS))
        table[:, :2] = self.eta[:, None]
        topics, alpha = np.full(len(self.rows), -1, np.int32), np.full(2, self.alpha)
        totals, out, theta = np.full(2, self.eta_of_all), np.zeros(table.shape), np.zeros(4)
        for i in range(_PASSES):
            kernels().sample_topics(
                *(self.masses, self.rows, ends, ends, self.weights),
                *(0, len(self.weights), 0, len(table), False, i > 0),
                *(alpha, table, totals, topics, i == 0, seed + i, out, theta),
            )
        return topics


def move_topics(
    tokens: Tokens, topics: np.ndarray, n_topics: int, seed: int, workers: Workers
) -> np.ndarray:
    """Change the topics of tokens by all moves that clearly raise the log joint.

    Returns the topics that have changed. The result does not depend on the number of workers,
    which share the topics to divide.
    """
    of_rows, of_documents = tokens.counts(topics, n_topics)
    totals = of_rows.sum(axis=0)
    before = tokens.log_joint(of_rows, of_documents)
    order = np.argsort(topics, kind="stable")
    edges = np.searchsorted(topics[order], np.arange(n_topics + 1))
    seeds = np.random.default_rng(seed).integers(2**62, size=n_topics)
    own = [order[edges[k] : edges[k + 1]] for k in range(n_topics)]
    gains, second = np.full(n_topics, -np.inf), [order[:0]] * n_topics

    def divide(which: slice) -> None:
        for k in range(which.start, which.stop):
            if len(own[k]) < 2:
                continue
            some = tokens.some(own[k])
            halves = some.divided(int(seeds[k]))
            gains[k] = tokens.log_joint(*some.counts(halves, 2)).sum() - before[k]
            second[k] = own[k][halves == 1]

    workers.share(divide, n_topics, 1)
    merges = _merges(tokens, of_rows, of_documents)
    changed: set[int] = set()
    least = _LEAST_GAIN * tokens.repeats
    for k in map(int, np.argsort(-gains, kind="stable")):
        for gain, i, j in merges:
            if gain + gains[k] <= 0.0:
                break
            enough = gain + gains[k] >= least * (totals[i] + totals[j] + totals[k])
            if enough and len({i, j, k} - changed) == 3:
                topics[topics == j] = i
                topics[second[k]] = j
                changed |= {i, j, k}
                break
    return np.array(sorted(changed), dtype=np.int64)


def _merges(
    tokens: Tokens, of_rows: np.ndarray, of_documents: np.ndarray
) -> list[tuple[float, int, int]]:
    """Return gains in the log joint by joining two topics, the largest first, and the topics."""
    lengths = np.sqrt((of_rows**2).sum(axis=0))
    alike = of_rows.T @ of_rows / np.maximum(np.outer(lengths, lengths), 1e-300)
    np.fill_diagonal(alike, -1.0)
    partners = np.argsort(-alike, axis=1, kind="stable")[:, : min(_PARTNERS, len(alike) - 1)]
    found = []
    totals, all_words = of_rows.sum(axis=0), tokens.eta_of_all
    pairs = {
        (max(pair), min(pair)) for k in range(len(alike)) for pair in product([k], partners[k])
    }
    for i, j in sorted(pairs):
        gain = gammaln(totals[[i, j]] + all_words).sum() - gammaln(all_words)
        gain -= gammaln(totals[i] + totals[j] + all_words)
        for counts, prior, weights in tokens.parts(of_rows, of_documents):
            # Nothing changes where one of the two has no tokens.
            both = np.flatnonzero((counts[:, i] > 0) & (counts[:, j] > 0))
            a, b, of_both = counts[both, i], counts[both, j], (prior[both], weights[both])
            gain += _sum_of_gains(a + b, *of_both)
            gain -= _sum_of_gains(a, *of_both) + _sum_of_gains(b, *of_both)
        found.append((float(gain), int(i), int(j)))
    return sorted(found, key=lambda merge: -merge[0])


def _sum_of_gains(counts: np.ndarray, prior: np.ndarray, weights: np.ndarray) -> float:
    """Return Σ w log Γ(n + a)/Γ(a) over counts n and parameters a."""
    some = np.flatnonzero(counts)
    a = prior[some]
    return float((gammaln(counts[some] + a) - gammaln(a)) @ weights[some])
