"""Held-out densities of fitted models, computed by one code for ours and for other libraries.

Everything is read from public attributes, which the compared classes share by name and meaning.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_matrix
from scipy.special import gammaln, logsumexp

from sklearn_anneal.metrics import document_completion_log_likelihood, split_documents
from sklearn_anneal.models.topics import predictions
from sklearn_anneal.parallel.workers import SEQUENTIAL

from .data import Sequences


def full(matrices: np.ndarray, covariance_type: str, shape: tuple[int, int]) -> np.ndarray:
    """Covariances of any covariance type as full matrices, (n_components, n_columns, n_columns)."""
    k, d = shape
    if covariance_type in ("full", "tied"):
        return np.broadcast_to(matrices, (k, d, d))
    each = matrices[:, None] if covariance_type == "spherical" else matrices
    return each[:, :, None] * np.eye(d)


def log_student_t(
    X: np.ndarray, mean: Any, mean_precision: Any, dof: Any, inverse_scale: np.ndarray
) -> np.ndarray:
    """Log predictive density of every row under every Normal–Wishart posterior.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
    mean : ndarray of shape (n_components, n_columns)
    mean_precision, dof : ndarray of shape (n_components,)
    inverse_scale : ndarray of shape (n_components, n_columns, n_columns)

    Returns
    -------
    log_density : ndarray of shape (n_rows, n_components)
    """
    k, d = mean.shape
    mean_precision, dof = np.broadcast_to(mean_precision, k), np.broadcast_to(dof, k)
    result = np.empty((len(X), k))
    for j in range(k):
        n = dof[j] + 1.0 - d
        scale = (mean_precision[j] + 1.0) / (mean_precision[j] * n) * inverse_scale[j]
        root = np.linalg.cholesky(scale)
        distance = (solve_triangular(root, (X - mean[j]).T, lower=True) ** 2).sum(axis=0)
        constant = gammaln((n + d) / 2) - gammaln(n / 2) - d / 2 * np.log(n * np.pi)
        constant -= np.log(np.diag(root)).sum()
        result[:, j] = constant - (n + d) / 2 * np.log1p(distance / n)
    return result


def mixture_density(fitted: Any, X: np.ndarray) -> np.ndarray:
    """Log predictive density of rows under a fitted Bayesian Gaussian mixture, ours or another."""
    shape = fitted.means_.shape
    dof = np.broadcast_to(fitted.degrees_of_freedom_, shape[0])
    covariances = full(fitted.covariances_, fitted.covariance_type, shape)
    each = log_student_t(
        X, fitted.means_, fitted.mean_precision_, dof, covariances * dof[:, None, None]
    )
    with np.errstate(divide="ignore"):
        return logsumexp(each + np.log(fitted.weights_), axis=1)


def frame_densities(fitted: Any, X: np.ndarray, model: dict[str, Any]) -> np.ndarray:
    """Log predictive densities of frames given each state, (n_frames, n_states)."""
    if model["emission"] == "gaussian":
        kind = model.get("covariance_type", "full")
        return log_student_t(
            X,
            fitted.means_posterior_,
            fitted.beta_posterior_,
            fitted.dof_posterior_,
            full(fitted.scale_posterior_, kind, fitted.means_posterior_.shape),
        )
    counts = fitted.emissionprob_posterior_
    if model["emission"] == "categorical":
        return np.log(counts / counts.sum(axis=1, keepdims=True))[:, X[:, 0]].T
    ones, zeros = np.moveaxis(np.log(counts / counts.sum(axis=-1, keepdims=True)), -1, 0)
    return X @ ones.T + (1.0 - X) @ zeros.T


def sequence_density(fitted: Any, held_out: Sequences, model: dict[str, Any]) -> float:
    """Log density per frame of sequences, by the predictive densities of the states.

    Start and transition probabilities are posterior means.
    """
    start, transitions = (
        counts / counts.sum(axis=-1, keepdims=True)
        for counts in (fitted.startprob_posterior_, fitted.transmat_posterior_)
    )
    densities = frame_densities(fitted, held_out.X, model)
    largest = densities.max(axis=1, keepdims=True)
    emitted = np.exp(densities - largest)
    total, first = float(largest.sum()), 0
    for length in held_out.lengths:
        reached = start
        for frame in emitted[first : first + length]:
            joint = reached * frame
            norm = joint.sum()
            total += float(np.log(norm))
            reached = joint / norm @ transitions
        first += length
    return total / len(held_out.X)


def topic_likelihood(fitted: Any, held_out: csr_matrix) -> float:
    """Log-likelihood per token of one half of each document given the other half.

    The topics of a document are inferred by our estimator, also from topics of other libraries. It
    is collapsed inference (CVB0) for all, whatever local step the estimator was fitted with.
    """
    observed, rest = split_documents(held_out)
    topics = fitted.components_ / fitted.components_.sum(axis=1, keepdims=True)
    ctx, units = fitted._rows(observed)
    model = copy(ctx.model)
    model.collapsed_predictions = True
    proportions = predictions.proportions(model, units, ctx.q, SEQUENTIAL)
    proportions /= proportions.sum(axis=1, keepdims=True)
    likelihood, n_tokens = document_completion_log_likelihood(rest, proportions, topics)
    # A document with fewer than two tokens has nothing to infer its topics from.
    counted = np.asarray(held_out.sum(axis=1)).ravel() >= 2
    return float(likelihood[counted].sum() / n_tokens[counted].sum())
