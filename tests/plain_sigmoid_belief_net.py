"""Sigmoid belief nets in plain numpy: all states of all hidden units, and their probabilities.

Parameters are dictionaries with the names of the model: W1, b0, V1, a1 and so on.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import logsumexp


def log_bernoulli(values, logits):
    """Σ_j log Bernoulli(value_j | logit_j) along the last axis."""
    return (values * logits - np.logaddexp(0.0, logits)).sum(axis=-1)


def states(sizes):
    """All states of the hidden layers: one array of shape (n_states, n_l) for each layer."""
    every = [np.array(list(product((0.0, 1.0), repeat=n))) for n in sizes[1:]]
    index = np.array(list(product(*(range(len(layer)) for layer in every))))
    return [layer[index[:, i]] for i, layer in enumerate(every)]


def log_joint(q, x, hidden):
    """log p(x, h) for each row of the hidden layers."""
    depth = len(hidden)
    layers = [np.broadcast_to(x, (len(hidden[0]), len(x))), *hidden]
    total = log_bernoulli(layers[-1], q[f"b{depth}"])
    for i in range(1, depth + 1):
        total = total + log_bernoulli(layers[i - 1], layers[i] @ q[f"W{i}"] + q[f"b{i - 1}"])
    return total


def log_recognition(q, x, hidden):
    """log q(h | x) for each row of the hidden layers."""
    layers = [np.broadcast_to(x, (len(hidden[0]), len(x))), *hidden]
    return sum(
        log_bernoulli(layers[i], layers[i - 1] @ q[f"V{i}"].T + q[f"a{i}"])
        for i in range(1, len(layers))
    )


def log_likelihoods(q, X, sizes):
    """log p(x) of each row."""
    hidden = states(sizes)
    return np.array([logsumexp(log_joint(q, x, hidden)) for x in X])


def bound(q, X, sizes, n_samples, x_inverse=1.0):
    """The multi-sample bound of all rows: its expectation over all draws of all samples.

    ``x_inverse`` is 1/T, the power of p(x, h).
    """
    hidden, total = states(sizes), 0.0
    for x in X:
        log_p, log_q = x_inverse * log_joint(q, x, hidden), log_recognition(q, x, hidden)
        drawn = np.array(list(product(range(len(log_p)), repeat=n_samples)))
        weights = np.exp(log_q[drawn].sum(axis=1))
        total += weights @ (logsumexp((log_p - log_q)[drawn], axis=1) - np.log(n_samples))
    return total


def gradient(of, q, eps=1e-5):
    """Finite differences of a function of the parameters."""
    found = {}
    for key, value in q.items():
        found[key] = np.empty(value.shape)
        for index in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = {name: array.copy() for name, array in q.items()}
                moved[key][index] += sign * eps
                ends.append(of(moved))
            found[key][index] = (ends[0] - ends[1]) / (2 * eps)
    return found
