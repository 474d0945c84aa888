"""
A net learns from sparse rows
=============================

Every document is about some of six themes, and has some of the words of each. The table of which
words occur is sparse: 93 % of its cells are zeros, which are not stored, and the net reads the ones
without making an array of all cells. The picture shows how its lower bound rises with the passes,
from the log-likelihood of words that do not depend on each other to nearly that of the model which
drew the documents.
"""

import warnings
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedSigmoidBeliefNet

warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is fixed
rng = np.random.default_rng(0)
words = np.kron(np.eye(6), np.full(20, 0.3)) + 0.01
every = np.array(list(product([0, 1], repeat=6)))
occur = 1 - np.exp(every @ np.log(1 - words))  # probabilities given the themes
occur[0] = 0.005
share = 0.2 ** every.sum(axis=1) * 0.8 ** (6 - every.sum(axis=1))
X = csr_array((rng.random((1500, 120)) < occur[rng.choice(64, 1500, p=share)]).astype(float))


def mean_log_likelihood(p, log_share):
    logs = X @ np.log(p / (1 - p)).T + np.log(1 - p).sum(axis=1) + log_share
    return logsumexp(logs, axis=1).mean()


drawn = mean_log_likelihood(occur, np.log(share))
alone = mean_log_likelihood(np.maximum(X.mean(axis=0), 1e-4)[None], 0.0)
net = AnnealedSigmoidBeliefNet(12, max_iter=60, random_state=0).fit(X)
print(f"{X.nnz / np.prod(X.shape):.0%} of the cells are ones")
print(f"words alone {alone:.1f}, net {net.score(X):.1f}, model of the documents {drawn:.1f}")

plt.rc("font", size=16)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(np.arange(1, net.n_iter_ + 1), net.lower_bounds_ / X.shape[0], label="bound of the net")
ax.axhline(drawn, color="k", label="model of the documents")
ax.axhline(alone, color="k", ls=":", label="words alone")
ax.set(xlabel="passes", ylabel="nats per document")
ax.margins(y=0.1)
ax.legend()
plt.show()
