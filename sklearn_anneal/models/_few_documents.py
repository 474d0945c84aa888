"""Mean-field steps of a few documents to predict for, without compiled kernels."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi

from ..data.units import Documents
from ..families import dirichlet_divergence
from ._base import compiled

kernels = partial(compiled, "latent_dirichlet", plain=True)
tables = partial(compiled, "counts", plain=True)


class FewDocuments(NamedTuple):
    """The result of a mean-field step.

    Attributes
    ----------
    entries : Entries
        The counts of the documents, and the topics of their words.
    lengths, offsets : ndarray of shape (n_documents,)
        The tokens of the documents, and Σ_w c_w m_w, where m_w is by what the logarithms of the
        topics of a word were reduced.
    alpha : ndarray of shape (n_topics,)
    gamma : ndarray of shape (n_documents, n_topics)
        The Dirichlet parameters of the documents.
    factors : ndarray of shape (n_documents, n_topics)
        exp ψ(γ), with 0 for topics that have left a document.
    """

    entries: Any
    lengths: np.ndarray
    offsets: np.ndarray
    alpha: np.ndarray
    gamma: np.ndarray
    factors: np.ndarray

    @classmethod
    def of(
        cls,
        units: Documents,
        concentrations: np.ndarray,
        means: bool,
        alpha: np.ndarray,
        n_iter: int,
        tol: float,
        dtype: Any,
    ) -> FewDocuments:
        """Make the step.

        Parameters
        ----------
        units : Documents
        concentrations : ndarray of shape (n_topics, n_words)
            The parameters of q(β).
        means : bool
            Whether topics are E β, or exp E log β.
        alpha : ndarray of shape (n_topics,)
        n_iter, tol
            When iterations end.
        dtype : dtype
            The dtype in which documents are iterated.
        """
        indptr = units.indptr
        counts, words = units.counts[: indptr[-1]], units.words[: indptr[-1]]
        met, places = np.unique(words, return_inverse=True)
        values, totals = concentrations.T[met], concentrations.T.sum(axis=0)
        logs = np.log(values / totals) if means else psi(values) - psi(totals)
        largest = logs.max(axis=1)
        table = np.empty(logs.shape, dtype)
        tables().exponentiate(table, logs - largest[:, None], 1.0)
        entries = tables().Entries.of(counts, places, indptr, table)
        start = alpha.astype(dtype) + units.lengths[:, None] / len(alpha)
        gamma, factors = kernels().mean_field(entries, alpha, start, n_iter, tol)
        rows = np.repeat(np.arange(units.n_units), np.diff(indptr))
        offsets = np.bincount(rows, counts * largest[places], units.n_units)
        return cls(entries, units.lengths, offsets, alpha, gamma, factors)

    @property
    def bounds(self) -> np.ndarray:
        """The lower bounds of the documents at T = 1 in nats, of shape (n_documents,)."""
        logs = np.log(self.entries.normalizers(self.factors), dtype=np.float64)
        found = (self.entries.counts * logs).sum(axis=1) + self.offsets
        found -= self.lengths * psi(self.gamma.sum(axis=1))
        return np.asarray(found - dirichlet_divergence(self.gamma, self.alpha))
