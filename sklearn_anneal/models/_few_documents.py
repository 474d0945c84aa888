"""Predictions for a few documents, without compiled kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.special import psi

from ..data.units import Documents
from ..families import LazyColumns, dirichlet_divergence
from ._base import compiled

# Plain kernels take documents with at most so many products of a word and a topic, if all were as
# long as the longest. Up to here they take hardly longer than compiled ones, except that CVB0 goes
# word by word: it takes about five microseconds per word and iteration, and so many words at most.
_MOST_PRODUCTS, _MOST_WORDS = 2**13, 128
# Compiled kernels of single precision take documents of this many tokens, and refuse larger ones.
_MOST_SINGLE = 1e12

tables = partial(compiled, "counts", plain=True)


def are_few(model: Any, units: Documents, topics: Any, word_by_word: bool = False) -> bool:
    """Return whether plain kernels predict for documents, so that none has to be compiled.

    Parameters
    ----------
    model : LatentDirichlet
    units : Documents
    topics : ndarray or LazyColumns of shape (n_topics, n_words)
        λ.
    word_by_word : bool, default=False
        Whether the prediction is :func:`proportions` of a model that collapses them.
    """
    if isinstance(topics, LazyColumns):
        return False
    if units.counts.dtype.itemsize == 4 and units.lengths.max(initial=0.0) >= _MOST_SINGLE:
        # Compiled kernels refuse documents that overflow, however many there are.
        return False
    longest = int(np.diff(units.indptr).max(initial=0))
    if word_by_word and longest > _MOST_WORDS:
        return False
    return units.n_units * longest * model.n_components <= _MOST_PRODUCTS


def proportions(model: Any, units: Documents, topics: np.ndarray) -> np.ndarray:
    """Return what :meth:`LatentDirichlet.proportions` does, of shape (n_documents, n_topics)."""
    collapses, alpha = model.collapsed_predictions, model.doc_topic_prior
    entries, _ = _entries(units, topics, collapses, model.dtype)
    how = model.n_iter(exploring=False), model.mean_change_tol
    if collapses:
        return np.asarray(compiled("assigned_tokens", plain=True).collapsed(entries, alpha, *how))
    return _mean_field(units, entries, alpha, *how)[0]


def bound(model: Any, units: Documents, topics: np.ndarray) -> float:
    """Return what :meth:`LatentDirichlet.infer` does, in nats."""
    alpha, how = model.doc_topic_prior, (model.n_iter(exploring=False), model.mean_change_tol)
    entries, offsets = _entries(units, topics, True, model.dtype)
    gamma, factors = _mean_field(units, entries, alpha, *how)
    logs = np.log(entries.normalizers(factors), dtype=np.float64)
    found = (entries.counts * logs).sum(axis=1) + offsets
    found -= units.lengths * psi(gamma.sum(axis=1))
    return float((found - dirichlet_divergence(gamma, alpha)).sum())


def _entries(
    units: Documents, topics: np.ndarray, means: bool, dtype: Any
) -> tuple[Any, np.ndarray]:
    """Return documents with B, the topics of their words, and Σ_w c_w m_w of each document.

    B is E β if ``means``, and else exp E log β. m_w is by what log B of a word is reduced, so that
    the largest B of every word is 1.
    """
    indptr = units.indptr
    counts, words = units.counts[: indptr[-1]], units.words[: indptr[-1]]
    met, places = np.unique(words, return_inverse=True)
    values, totals = topics.T[met], topics.T.sum(axis=0)
    logs = np.log(values / totals) if means else psi(values) - psi(totals)
    largest = logs.max(axis=1)
    table = np.empty(logs.shape, dtype)
    tables().exponentiate(table, logs - largest[:, None], 1.0)
    rows = np.repeat(np.arange(units.n_units), np.diff(indptr))
    offsets = np.bincount(rows, counts * largest[places], units.n_units)
    return tables().Entries.of(counts, places, indptr, table), offsets


def _mean_field(
    units: Documents, entries: Any, alpha: np.ndarray, n_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return γ, and exp ψ(γ) with 0 for topics that have left a document."""
    start = alpha.astype(entries.rows.dtype) + units.lengths[:, None] / len(alpha)
    found: tuple[np.ndarray, np.ndarray] = compiled("latent_dirichlet", plain=True).mean_field(
        entries, alpha, start, n_iter, tol
    )
    return found
