"""Collapsed Gibbs sampling of mixtures of Bernoullis, as a reference for variational inference."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp


class CollapsedGibbs:
    """Draw assignments from the posterior, with weights and probabilities integrated out.

    The method is algorithm 3 of Neal (2000) for a finite number of components, Dir(α, …, α) weights
    and uniform priors of the probabilities.

    Parameters
    ----------
    n_components : int
    alpha : float
        The concentration α of each component.
    n_sweeps : int
    random_state : int

    Attributes
    ----------
    labels_ : ndarray of shape (n_rows,)
        The assignments of the last sweep.
    """

    def __init__(self, n_components: int, alpha: float, n_sweeps: int, random_state: int = 0):
        self.n_components = n_components
        self.alpha = alpha
        self.n_sweeps = n_sweeps
        self.random_state = random_state

    def fit(self, X: np.ndarray) -> CollapsedGibbs:
        rng = np.random.default_rng(self.random_state)
        n, k = len(X), self.n_components
        X = X.astype(float)
        z = rng.integers(k, size=n)
        counts, ones = np.bincount(z, minlength=k).astype(float), np.zeros((k, X.shape[1]))
        np.add.at(ones, z, X)
        slope, constant = np.empty_like(ones), np.empty(k)

        def renew(c: int) -> None:
            log_p, log_q = np.log(ones[c] + 1.0), np.log(counts[c] - ones[c] + 1.0)
            slope[c] = log_p - log_q
            total = len(log_q) * np.log(counts[c] + 2.0)
            constant[c] = log_q.sum() - total + np.log(counts[c] + self.alpha)

        for c in range(k):
            renew(c)
        for _ in range(self.n_sweeps):
            for i in rng.permutation(n):
                row, old = X[i], z[i]
                counts[old] -= 1.0
                ones[old] -= row
                renew(old)
                # The largest of log p + Gumbel noise is a draw with probabilities p.
                z[i] = new = np.argmax(slope @ row + constant + rng.gumbel(size=k))
                counts[new] += 1.0
                ones[new] += row
                renew(new)
        self.labels_, self._counts, self._ones = z, counts, ones
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        """Return the log predictive probability of each row, given the last assignments."""
        total = self._counts.sum() + self.n_components * self.alpha
        p = (self._ones + 1.0) / (self._counts[:, None] + 2.0)
        joint = np.log((self._counts + self.alpha) / total) + X @ np.log(p).T
        return logsumexp(joint + (1.0 - X) @ np.log1p(-p).T, axis=1)

    @property
    def n_effective_components_(self) -> int:
        """The number of components that have a row."""
        return int(np.count_nonzero(self._counts))
