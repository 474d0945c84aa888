"""Draws of topics, of the words in a visit."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...families import Dirichlet, PooledDirichlet, log_standard_gamma
from ...parallel import kept_memory
from ...parallel.workers import Workers
from .._base import compiled
from .lazy_columns import LazyColumns, SparseColumns

# The draws of this many words use one stream of random numbers.
_WORDS = 128
# The rounding error of a draw is far below its standard deviation, whatever the dtype of the data
# is, and single precision takes little more than half of the time.
_PRECISION = np.float32
# If the other words have less than this share of a topic, the difference between the sums of all
# words and of those that are drawn would lose too many digits.
_SMALLEST_SHARE = 1e-6

kernels = partial(compiled, "gamma_draws")


class TopicsDraw(NamedTuple):
    """One draw of the topics, β_k ~ Dir(λ_k), of some words.

    A probability is a gamma variable divided by the sum of the variables of all words. The sum of
    the variables of all other words is a gamma variable, too, and is drawn as one: the Dirichlet
    distribution has the aggregation property. The draw therefore takes as long as the words need,
    however large the vocabulary is.
    """

    words: np.ndarray  # the numbers of the words, in ascending order, (n_drawn,)
    # The logarithms of the gamma variables of these words, (n_drawn, n_topics).
    log_gamma: np.ndarray
    pooled: np.ndarray | None  # Σ λ over all other words, (n_topics,); None if there are none
    # The logarithms of the gamma variables that have these parameters, (n_topics,).
    log_pooled: np.ndarray | None
    log_total: np.ndarray  # the logarithms of the sums of the variables of all words, (n_topics,)

    @classmethod
    def of(
        cls,
        expected: Any,
        words: np.ndarray,
        topics: Any,
        rng: np.random.Generator,
        workers: Workers,
    ) -> TopicsDraw:
        """Draw the given words of all topics.

        Parameters
        ----------
        expected : Concentrations
            λ of these words.
        words : ndarray of int32, shape (n_drawn,)
        topics : ndarray or LazyColumns of shape (n_topics, n_words)
            λ of all words.
        rng : numpy.random.Generator
        workers : Workers
            They share the words. The result does not depend on their number.
        """
        n_topics = len(expected.totals)
        seed = int(rng.integers(2**62))
        log_gamma = kept_memory.empty((len(words), n_topics), _PRECISION)
        n_parts = -(-len(words) // _WORDS)
        log_sums, sums = np.zeros((2, n_parts, n_topics))
        all_words = len(words) == topics.shape[1]
        workers.share_kernel(
            kernels().draw_rows,
            (log_gamma, *expected.arrays, seed, _WORDS, sums, log_sums),
            n_parts,
            1,
        )
        pooled = log_pooled = None
        if not all_words:
            pooled = pooled_sums(expected.totals, sums.sum(axis=0), words, topics)
            log_pooled = log_standard_gamma(pooled, rng)
            log_sums = np.vstack([log_sums, log_pooled])
        log_total = np.empty(n_topics)
        kernels().log_sums(log_sums, log_total)
        return cls(words, log_gamma, pooled, log_pooled, log_total)

    def exact_gradient_statistics(self, concentration: Any, prior: np.ndarray, stats: Any) -> Any:
        """Return the statistics V S for the exact gradient of structured stochastic VI.

        The control variate has the statistics of the drawn words that λ contains now. The other
        words have statistics of 0 at every draw, and keep them.

        Parameters
        ----------
        concentration : ndarray or LazyColumns of shape (n_topics, n_words)
            λ.
        prior : ndarray broadcastable to the shape of λ
            η.
        stats : ndarray or SparseColumns of shape (n_topics, n_words)
            S.

        Returns
        -------
        ndarray or SparseColumns of shape (n_topics, n_words)
            The result of :meth:`Dirichlet.exact_gradient_statistics`, in the form of S.
        """
        concentration = np.asarray(concentration)
        prior = np.broadcast_to(prior, concentration.shape)
        drawn, of_prior = concentration[:, self.words], prior[:, self.words]
        sparse = isinstance(stats, SparseColumns)
        statistics = stats.values.T if sparse else stats[:, self.words]
        family, log_gamma = Dirichlet(), self.log_gamma.T.astype(np.float64)
        if self.pooled is not None and self.log_pooled is not None:
            sums = np.zeros((2, len(concentration)))
            others = np.setdiff1d(
                np.arange(concentration.shape[1], dtype=np.int32), self.words, assume_unique=True
            )
            compiled("gamma").inverse_trigamma_sums(
                np.ascontiguousarray(concentration.T), others, sums
            )
            family = PooledDirichlet(*sums)
            # The control variate has no statistics of these words if the prior has the same size.
            drawn, of_prior = (np.column_stack([a, self.pooled]) for a in (drawn, of_prior))
            statistics = np.column_stack([statistics, np.zeros(len(statistics))])
            log_gamma = np.column_stack([log_gamma, self.log_pooled])
        draw = {
            "log_gamma": log_gamma,
            "probabilities": np.exp(log_gamma - self.log_total[:, None]),
        }
        found = family.exact_gradient_statistics(
            draw,
            {"concentration": drawn},
            {"concentration": of_prior},
            {"concentration": statistics},
        )["concentration"]
        if sparse:
            values = found[:, : len(self.words)].T
            return SparseColumns(
                stats.columns, values, concentration.shape[1], workers=stats.workers
            )
        result = np.zeros(concentration.shape[::-1]).T
        result[:, self.words] = found[:, : len(self.words)]
        return result


def pooled_sums(
    totals: np.ndarray, given: np.ndarray, words: np.ndarray, topics: Any
) -> np.ndarray:
    """Return Σ λ_kw over all words but the given ones, of shape (n_topics,).

    ``totals`` and ``given`` (n_topics,) have Σ λ_kw over all words and over the given ``words``,
    and ``topics`` is λ of all words.
    """
    pooled = totals - given
    if (pooled < _SMALLEST_SHARE * totals).any():
        is_other = np.ones(topics.shape[1], dtype=bool)
        is_other[words] = False
        others = np.flatnonzero(is_other)
        found = topics.take(others) if isinstance(topics, LazyColumns) else topics.T[others]
        pooled = found.sum(axis=0)
    return np.asarray(pooled)
