"""Predictions for documents at fitted topics.

They are made by compiled kernels, or, for a few documents, by plain ones in numpy, so that a
process that predicts for few documents at a time does not import numba.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import psi

from ...data.units import Documents
from ...families import Natural, Tempering, dirichlet_divergence
from ...parallel.workers import Workers
from .._base import compiled
from .collapsed import CVB0Visit
from .lazy_columns import LazyColumns
from .mean_field import MeanFieldVisit
from .model import LatentDirichlet
from .tables import Concentrations, Words, mean_topics
from .visit import TOPICS, TopicsVisit, gamma_of, steps_from_anew

# Plain kernels take documents with at most so many products of a word and a topic, if all were as
# long as the longest. Up to here they take hardly longer than compiled ones, except that CVB0 goes
# word by word: it takes about five microseconds per word and iteration, and so many words at most.
_MOST_PRODUCTS, _MOST_WORDS = 2**13, 128
# Compiled kernels of single precision take documents of this many tokens, and refuse larger ones.
_MOST_SINGLE = 1e12

plain_tables = partial(compiled, "counts", plain=True)


def proportions(
    model: LatentDirichlet, units: Documents, q: Natural, workers: Workers
) -> np.ndarray:
    """Return the Dirichlet parameters γ of documents, of shape (n_documents, n_topics).

    They are those of the lower bound, or, with ``collapsed_predictions``, α and the expected
    tokens of each topic by CVB0 at the expected topics.
    """
    if model.collapsed_predictions:
        visit: TopicsVisit = _visit_of_means(CVB0Visit, model, units, q, workers)
    else:
        visit = model.visit(q, units, evaluation=True, workers=workers)
    return gamma_of(visit, units, workers)


def lower_bound(model: LatentDirichlet, units: Documents, q: Natural, workers: Workers) -> float:
    """Return a lower bound on log p(documents | α, E β) at T = 1, in nats.

    It is the mean-field bound with the expected topics in the place of exp(E log β), under which
    words that a topic has hardly seen would be far too improbable.
    """
    visit = _visit_of_means(MeanFieldVisit, model, units, q, workers)
    # These steps are not completed by `finish`, so that the entropy includes the energy.
    steps = steps_from_anew(visit, units, workers)
    return float(sum(step.entropy + step.log_prior for _, step in steps))


def _visit_of_means(
    kind: type[TopicsVisit], model: LatentDirichlet, units: Documents, q: Natural, workers: Workers
) -> TopicsVisit:
    """Return a visit at the expected topics E β, without statistics."""
    words = Words.of(units, q[TOPICS], model.absent)
    topics = mean_topics(Concentrations.of(q[TOPICS], words), model.dtype, workers)
    return kind(model, topics, Tempering(), words=words, statistics=False)


# Few documents


def are_few(
    model: LatentDirichlet, units: Documents, q: Natural, word_by_word: bool = False
) -> bool:
    """Return whether plain kernels predict for documents, so that none has to be compiled.

    ``word_by_word`` is whether they have to update the words of a document one after another.
    """
    if isinstance(q[TOPICS], LazyColumns):
        return False
    if units.counts.dtype.itemsize == 4 and units.lengths.max(initial=0.0) >= _MOST_SINGLE:
        # Compiled kernels refuse documents that overflow, however many there are.
        return False
    longest = int(np.diff(units.indptr).max(initial=0))
    if word_by_word and longest > _MOST_WORDS:
        return False
    return units.n_units * longest * model.n_components <= _MOST_PRODUCTS


def proportions_of_few(model: LatentDirichlet, units: Documents, q: Natural) -> np.ndarray:
    """Return the :func:`proportions` of a few documents."""
    collapses, alpha = model.collapsed_predictions, model.doc_topic_prior
    entries, _ = _entries(units, q[TOPICS], collapses, model.dtype)
    how = model.n_iter(exploring=False), model.mean_change_tol
    if collapses:
        return np.asarray(compiled("assigned_tokens", plain=True).collapsed(entries, alpha, *how))
    return _mean_field(units, entries, alpha, *how)[0]


def lower_bound_of_few(model: LatentDirichlet, units: Documents, q: Natural) -> float:
    """Return the :func:`lower_bound` of a few documents, in nats."""
    alpha, how = model.doc_topic_prior, (model.n_iter(exploring=False), model.mean_change_tol)
    entries, offsets = _entries(units, q[TOPICS], True, model.dtype)
    gamma, factors, tops = _mean_field(units, entries, alpha, *how)
    logs = np.log(entries.normalizers(factors), dtype=np.float64)
    # Σ_w c_w log n_w − N ψ(Σ γ) − KL(q(θ) ‖ p(θ))
    found = (entries.counts * logs).sum(axis=1) + offsets
    found += units.lengths * (tops - psi(gamma.sum(axis=1)))
    return float((found - dirichlet_divergence(gamma, alpha)).sum())


def _entries(
    units: Documents, topics: np.ndarray, means: bool, dtype: DTypeLike
) -> tuple[Any, np.ndarray]:
    """Return documents with B, the topics of their words, and Σ_w c_w m_w of each document.

    B is E β if ``means``, and else exp E log β. m_w is by what log B of a word is reduced, so that
    the largest B of every word is 1.
    """
    indptr = units.indptr
    counts, words = units.counts[: indptr[-1]], units.words[: indptr[-1]]
    occurring, places = np.unique(words, return_inverse=True)
    values, totals = topics.T[occurring], topics.T.sum(axis=0)
    logs = np.log(values / totals) if means else psi(values) - psi(totals)
    largest = logs.max(axis=1)
    table = np.empty(logs.shape, dtype)
    plain_tables().exponentiate(table, logs - largest[:, None], 1.0)
    rows = np.repeat(np.arange(units.n_units), np.diff(indptr))
    offsets = np.bincount(rows, counts * largest[places], units.n_units)
    return plain_tables().Entries.of(counts, places, indptr, table), offsets


def _mean_field(
    units: Documents, entries: Any, alpha: np.ndarray, n_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return γ, exp{ψ(γ) − t} with 0 for topics that have left a document, and t."""
    start = alpha.astype(entries.rows.dtype) + units.lengths[:, None] / len(alpha)
    kernel = compiled("latent_dirichlet", plain=True).mean_field
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = kernel(entries, alpha, start, n_iter, tol)
    return found
