"""Collapsed local steps of documents, whose words are updated one after another."""

from __future__ import annotations

import numpy as np

from .counts import TINY, Entries


def collapsed(entries: Entries, alpha: np.ndarray, n_iter: int, tol: float) -> np.ndarray:
    """Collapsed variational Bayes of order zero (CVB0) at T = 1, of all documents at once.

    The update φ_wk ∝ (n_k − min(c_w, 1) φ_wk + α_k) B_wk is done word after word, and the counts
    n_k = Σ_w c_w φ_wk change in place, as in the compiled kernel.

    Parameters
    ----------
    entries : Entries
        The counts of the documents, and B, the topics of their words.
    alpha : ndarray of shape (n_topics,)
    n_iter : int
        Largest number of iterations.
    tol : float
        A document ends when the mean change of its n is smaller.

    Returns
    -------
    gamma : ndarray of shape (n, n_topics)
        α + n.
    """
    dtype, n_topics = entries.rows.dtype, len(alpha)
    # Every word has a topic with B = 1, so that no normaliser is 0 if no α is.
    base = np.maximum(alpha, TINY[dtype.itemsize]).astype(dtype)
    zero, ones = dtype.type(0), np.ones((n_topics, 1), dtype)
    # The first axis is that of words: B, c, and the share of the tokens of a word that its update
    # leaves in the counts, which is None if it is nothing.
    rows = np.ascontiguousarray(entries.rows.swapaxes(0, 1))
    counts = np.ascontiguousarray(entries.counts.T)[..., None]
    left = [1.0 - 1.0 / np.maximum(c, 1.0) if c.max() > 1.0 else None for c in counts]
    expected = rows * (counts / rows.sum(axis=-1, keepdims=True))
    held = expected.sum(axis=0)
    weights, norms = np.empty_like(held), np.empty((len(held), 1), dtype)
    tokens = expected.sum(axis=0, dtype=np.float64)
    going_on = np.ones(len(held), bool)
    for _ in range(n_iter):
        before = held.copy()
        for row, c, share, own in zip(rows, counts, left, expected, strict=True):
            held -= own
            if share is None:
                np.maximum(held, zero, out=weights)
            else:
                np.multiply(own, share, out=weights)
                weights += held
                np.maximum(weights, zero, out=weights)
            weights += base
            weights *= row
            np.dot(weights, ones, out=norms)
            np.divide(c, norms, out=norms)
            np.multiply(weights, norms, out=own)
            held += own
        # A fresh sum has no rounding errors of the many small changes.
        held = expected.sum(axis=0)
        tokens[going_on] = expected[:, going_on].sum(axis=0, dtype=np.float64)
        going_on &= ~(np.abs(held - before).sum(axis=1) < tol * n_topics)
        if not going_on.any():
            break
    return base + tokens
