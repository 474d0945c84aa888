"""Tests of the lower bound of Gaussian mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from cases_gaussian_mixture import (
    COVARIANCE_TYPES,
    WEIGHT_PRIORS,
    as_scikit_learn,
    clusters,
    complete_bound,
    full_matrix,
    real_data,
)
from designs import in_turn, pairwise
from harness import quick
from scipy.special import betaln, gammaln, multigammaln
from sklearn.base import clone
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import ANNEALING


def constant_of_scikit_learn(mixture, n_rows):
    """What the lower bound of scikit-learn's class leaves out, in nats."""
    k, d = mixture.means_.shape
    a0 = mixture.weight_concentration_prior_
    if mixture.weight_concentration_prior_type == "dirichlet_process":
        weights = -k * betaln(1, a0)
    else:
        weights = gammaln(k * a0) - k * gammaln(a0)
    nu = mixture.degrees_of_freedom_prior_
    log_scale = np.linalg.slogdet(full_matrix(mixture, mixture.covariance_prior_))[1]
    log_z = nu * d / 2 * np.log(2) - nu / 2 * log_scale + multigammaln(nu / 2, d)
    return (
        weights
        - k * (log_z - d * (d - 1) / 4 * np.log(np.pi))
        + k * d / 2 * np.log(mixture.mean_precision_prior_)
        - n_rows * d / 2 * np.log(2 * np.pi)
    )


@pairwise(covariance_type=COVARIANCE_TYPES, weight_prior=WEIGHT_PRIORS, name=("iris", "wine"))
def test_scikit_learns_bound_is_the_complete_one_but_for_a_constant(
    name, covariance_type, weight_prior
):
    X = real_data(name)
    settings = {
        "n_components": 4,
        "covariance_type": covariance_type,
        "weight_concentration_prior_type": weight_prior,
        "reg_covar": 0,
        "random_state": 2,
        "tol": 0,
    }
    # Its bound after n passes takes the responsibilities before the last M-step.
    before = BayesianGaussianMixture(**settings, max_iter=4).fit(X).predict_proba(X)
    peer = BayesianGaussianMixture(**settings, max_iter=5).fit(X)
    expected = peer.lower_bound_ + constant_of_scikit_learn(peer, len(X))
    assert complete_bound(peer, X, before) == pytest.approx(expected, rel=1e-10)
    ours = as_scikit_learn(**settings, max_iter=5).fit(X)
    assert ours.lower_bound_ == pytest.approx(complete_bound(peer, X), rel=1e-10)
    assert ours.lower_bound_ > expected, "the best responsibilities are no better than others"


@pairwise(annealing=ANNEALING, covariance_type=COVARIANCE_TYPES, weight_prior=WEIGHT_PRIORS)
def test_anyone_can_recompute_the_bound(covariance_type, weight_prior, annealing):
    X = real_data("iris")
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        annealing=quick(annealing, 2),
        mean_precision_prior=0.3,
        degrees_of_freedom_prior=7.5,
        weight_concentration_prior=0.8,
        max_iter=5,
        effort=0,
        random_state=0,
    ).fit(X)
    assert mixture.lower_bound_ == mixture.lower_bounds_[-1]
    assert mixture.lower_bound_ == pytest.approx(complete_bound(mixture, X), rel=1e-10)


@in_turn(seed=range(2), true_number=(2, 4))
def test_bound_picks_the_number_of_components(true_number, seed):
    centers = [(0, 0), (10, 0), (0, 10), (10, 10)][:true_number]
    X, _ = clusters(seed, 30, centers)
    bounds = [
        AnnealedBayesianGaussianMixture(
            n_components=k,
            annealing="none",
            weight_concentration_prior_type="dirichlet_distribution",
            weight_concentration_prior=1.0,
            n_init=3,
            tol=1e-4,
            random_state=seed,
        )
        .fit(X)
        .lower_bound_
        for k in range(1, 7)
    ]
    assert 1 + int(np.argmax(bounds)) == true_number


@in_turn(annealing=ANNEALING, scale=(1.0, 1e6))
def test_bound_keeps_its_digits_far_from_the_origin(annealing, scale):
    # Multiples of 2^-10 stay exact under the offset, so that both fits have the same data.
    rows, _ = clusters(3, 50, ((0, 0), (5, 1), (1, 6)))
    X = scale * np.round(rows * 1024) / 1024
    X -= np.round(X.mean(axis=0))
    far = X + np.round(1e6 * X.std(axis=0))
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing=quick(annealing), max_iter=10, effort=0, random_state=0
    )
    centred = clone(mixture).fit(X)
    mixture.fit(far)
    assert mixture.lower_bound_ == pytest.approx(centred.lower_bound_, rel=1e-9)
    np.testing.assert_allclose(
        mixture.score_samples(far), centred.score_samples(X), rtol=0, atol=1e-6
    )


@in_turn(n_features=(2, 5), separation=(8, 12))
def test_default_finds_separated_clusters(separation, n_features):
    X, _ = clusters(0, 100, separation * np.eye(3, n_features))
    mixture = AnnealedBayesianGaussianMixture(n_components=3, random_state=0).fit(X)
    plain = clone(mixture).set_params(annealing="none").fit(X)
    assert mixture.lower_bound_ > plain.lower_bound_ - 0.01 * len(X)
