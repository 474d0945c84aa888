"""Helpers that the modules test_gaussian_mixture_*.py share: data, estimators, comparisons."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from peer_priors import PEER_OF_MIXTURES
from scipy.special import betaln, digamma, gammaln, logsumexp, multigammaln
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import ANNEALING

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
WEIGHT_PRIORS = ("dirichlet_process", "dirichlet_distribution")
FACTORIZATIONS = ("joint", "independent")
STARTS = ("kmeans", "k-means++", "random", "random_from_data")
PEER_ATTRIBUTES = (
    "weights_",
    "means_",
    "covariances_",
    "precisions_",
    "precisions_cholesky_",
    "weight_concentration_",
    "mean_precision_",
    "degrees_of_freedom_",
)

all_covariance_types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
all_weight_priors = pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
all_factorizations = pytest.mark.parametrize("factorization", FACTORIZATIONS)
all_methods = pytest.mark.parametrize("annealing", ANNEALING)


def as_scikit_learn(**settings):
    """An estimator that does what scikit-learn's class does."""
    return AnnealedBayesianGaussianMixture(**PEER_OF_MIXTURES | {"annealing": "none"} | settings)


@cache
def real_data(name):
    if name == "iris":
        return load_iris().data
    if name == "wine":
        return load_wine().data
    return PCA(8, random_state=0).fit_transform(load_digits().data)[::4]


def clusters(seed=0, n=40, centers=((0, 0), (6, 0), (0, 6)), scale=1.0):
    """Rows around well-separated centers, in random order, and their labels."""
    rng = np.random.default_rng(seed)
    centers = np.asarray(centers, dtype=float)
    labels = rng.permutation(np.repeat(np.arange(len(centers)), n))
    return centers[labels] + scale * rng.normal(size=(len(labels), centers.shape[1])), labels


def parameters_of(mixture):
    """All fitted parameters in one vector."""
    parts = []
    for name in PEER_ATTRIBUTES:
        value = getattr(mixture, name)
        parts += value if isinstance(value, tuple) else [value]
    return np.concatenate([np.ravel(part) for part in parts])


def full_matrix(mixture, matrices):
    """Expand matrices of a covariance type to full ones, one per component unless they are tied."""
    n_features = mixture.n_features_in_
    matrices = np.asarray(matrices, dtype=float)
    if mixture.covariance_type == "diag":
        return matrices[..., None] * np.eye(n_features)
    if mixture.covariance_type == "spherical":
        return matrices[..., None, None] * np.eye(n_features)
    return matrices


def divergence_of_sizes(sizes, dof, d):
    """What a bound with the covariance priors E s_k V lacks, from the public attribute, in nats."""
    if "shape" not in sizes:
        return 0.0
    a, shape, rate = sizes["strength"], sizes["shape"], sizes["rate"]
    mean_log = digamma(shape) - np.log(rate)
    own = shape * np.log(rate) - gammaln(shape) + (shape - 1) * mean_log - shape
    prior = a * np.log(a) - gammaln(a) + (a - 1) * mean_log - a * shape / rate
    return (own - prior + dof * d / 2 * (np.log(shape / rate) - mean_log)).sum()


def one_matrix(mixture):
    """Whether all rows, and not a share of them, are degrees of freedom of a tied covariance."""
    n_rows = mixture.mean_precision_ - mixture.mean_precision_prior_
    added = np.mean(mixture.degrees_of_freedom_) - mixture.degrees_of_freedom_prior_
    return mixture.covariance_type == "tied" and added == pytest.approx(n_rows.sum())


def complete_bound(mixture, X, responsibilities=None):
    """F by Bishop's equations 10.71-10.77, from public attributes, in nats.

    It is taken at the given responsibilities or, without any, at the best ones. The model is a
    mixture with full precision matrices for every covariance type; the type only restricts the
    scale of their Wishart factors. Components with one matrix in common have shares of its terms.
    """
    k, d = mixture.means_.shape
    dof = np.broadcast_to(mixture.degrees_of_freedom_, k)
    shape = np.shape(mixture.degrees_of_freedom_) + (1, 1)
    inverse_scale = full_matrix(mixture, mixture.covariances_)
    inverse_scale = inverse_scale * np.reshape(mixture.degrees_of_freedom_, shape)
    inverse_scale = np.broadcast_to(inverse_scale, (k, d, d))
    # scikit-learn's class has none.
    sizes = getattr(mixture, "covariance_prior_sizes_", {"mean": np.ones(k)})
    prior_scales = sizes["mean"][:, None, None] * full_matrix(mixture, mixture.covariance_prior_)
    prior_dof = mixture.degrees_of_freedom_prior_
    expected_precision = dof[:, None, None] * np.linalg.inv(inverse_scale)
    log_det = digamma((dof[:, None] - np.arange(d)) / 2).sum(axis=1) + d * np.log(2)
    log_det = log_det - np.linalg.slogdet(inverse_scale)[1]

    if mixture.weight_concentration_prior_type == "dirichlet_process":
        a, b = mixture.weight_concentration_
        a0, b0 = np.ones(k), np.full(k, mixture.weight_concentration_prior_)
        # Nothing is left of the last stick, whose prior is that with which the fit ends.
        b0[-1] = b[-1]
        log_v, log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        log_weights = log_v + np.append(0, np.cumsum(log_rest)[:-1])
        kl = ((a - a0) * log_v + (b - b0) * log_rest - betaln(a, b) + betaln(a0, b0)).sum()
    else:
        a = mixture.weight_concentration_
        a0 = np.full(k, mixture.weight_concentration_prior_)
        log_weights = digamma(a) - digamma(a.sum())
        kl = ((a - a0) * log_weights).sum() + gammaln(a.sum()) - gammaln(a0.sum())
        kl -= (gammaln(a) - gammaln(a0)).sum()

    def log_normalizer(scale, nu):
        log_scale = np.linalg.slogdet(scale)[1]
        return nu * d / 2 * np.log(2) - nu / 2 * log_scale + multigammaln(nu / 2, d)

    beta, beta0 = mixture.mean_precision_, mixture.mean_precision_prior_
    kl += divergence_of_sizes(sizes, prior_dof, d)
    n_alike = k if one_matrix(mixture) else 1
    for j, prior_scale in enumerate(prior_scales):
        of_matrix = (dof[j] - prior_dof) / 2 * log_det[j]
        of_matrix -= np.sum((inverse_scale[j] - prior_scale) * expected_precision[j]) / 2
        of_matrix += log_normalizer(prior_scale, prior_dof)
        kl += (of_matrix - log_normalizer(inverse_scale[j], dof[j])) / n_alike
        shift = mixture.means_[j] - mixture.mean_prior_
        kl += d / 2 * (beta0 / beta[j] - 1 - np.log(beta0 / beta[j]))
        kl += beta0 / 2 * shift @ expected_precision[j] @ shift

    priors = (f"{name}_prior" for name in ("mean", "mean_precision", "degrees_of_freedom"))
    if any(getattr(mixture, name, None) == "auto" for name in (*priors, "covariance_prior")):
        # Rows have noise where priors are learned.
        traces = np.trace(expected_precision, axis1=1, axis2=2)
        log_det = log_det - mixture.reg_covar * traces

    difference = X[:, None, :] - mixture.means_
    distance = np.einsum("nki,kij,nkj->nk", difference, expected_precision, difference)
    joint = log_weights + (log_det - d * np.log(2 * np.pi) - d / beta - distance) / 2
    if responsibilities is None:
        return logsumexp(joint, axis=1).sum() - kl
    r = responsibilities
    log_r = np.log(np.where(r > 0, r, 1.0))
    return (r * (joint - log_r)).sum() - kl
