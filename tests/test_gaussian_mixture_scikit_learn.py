"""Tests of Gaussian mixtures in the place of scikit-learn's class."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from cases_gaussian_mixture import (
    COVARIANCE_TYPES,
    PEER_ATTRIBUTES,
    STARTS,
    WEIGHT_PRIORS,
    all_covariance_types,
    all_weight_priors,
    as_scikit_learn,
    clusters,
    real_data,
)
from designs import pairwise
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture


def assert_same_parameters(mixture, other, relative):
    for name in PEER_ATTRIBUTES:
        ours, theirs = np.asarray(getattr(mixture, name)), np.asarray(getattr(other, name))
        assert ours.shape == theirs.shape, name
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        assert error <= relative, f"{name}: relative error {error:.1e}"


# What scikit-learn's class computes


@pairwise(
    name=("iris", "wine", "digits"),
    covariance_type=COVARIANCE_TYPES,
    weight_prior=WEIGHT_PRIORS,
    init_params=STARTS,
)
def test_parameters_are_those_of_scikit_learn(name, covariance_type, weight_prior, init_params):
    settings = {
        "n_components": 5,
        "covariance_type": covariance_type,
        "weight_concentration_prior_type": weight_prior,
        "init_params": init_params,
        "random_state": 3,
        "tol": 0,
    }
    peer = BayesianGaussianMixture(**settings, max_iter=20).fit(real_data(name))
    ours = as_scikit_learn(**settings, max_iter=20).fit(real_data(name))
    assert ours.n_iter_ == len(ours.lower_bounds_) == 20
    assert_same_parameters(ours, peer, 1e-6)


@all_weight_priors
@all_covariance_types
def test_predictions_and_draws_are_those_of_scikit_learn(covariance_type, weight_prior):
    X = real_data("wine")
    settings = {
        "n_components": 4,
        "covariance_type": covariance_type,
        "weight_concentration_prior_type": weight_prior,
        "random_state": 1,
        "max_iter": 30,
        "tol": 0,
    }
    peer = BayesianGaussianMixture(**settings).fit(X[::2])
    ours = as_scikit_learn(**settings).fit(X[::2])
    np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), rtol=0, atol=1e-8)
    rows, labels = ours.sample(50)
    peer_rows, peer_labels = peer.sample(50)
    np.testing.assert_array_equal(labels, peer_labels)
    np.testing.assert_allclose(rows, peer_rows, rtol=1e-6)


@pytest.mark.parametrize("init_params", STARTS)
def test_max_iter_0_is_the_start_of_scikit_learn(init_params):
    settings = {"n_components": 3, "init_params": init_params, "random_state": 5, "max_iter": 0}
    peer = BayesianGaussianMixture(**settings).fit(real_data("iris"))
    ours = as_scikit_learn(**settings).fit(real_data("iris"))
    assert_same_parameters(ours, peer, 1e-9)


# A transformer among scikit-learn's


# Copies


def test_nothing_of_the_size_of_the_rows_stays():
    X, _ = clusters(0, 3000)
    for annealing in ("none", "local_tempering", "svi_plus"):
        mixture = AnnealedBayesianGaussianMixture(
            n_components=3, annealing=annealing, max_iter=2, random_state=0
        ).fit(X)
        assert len(pickle.dumps(mixture)) < len(X), annealing


def test_the_prior_of_dependent_columns_is_regularised_on_its_diagonal(rng):
    X = rng.normal(size=(30, 2))
    X = np.column_stack([X, X[:, 0]])
    est = as_scikit_learn(n_components=1, reg_covar=1e-3, max_iter=1).fit(X)
    np.testing.assert_allclose(est.covariance_prior_, np.cov(X.T) + 1e-3 * np.eye(3))
