"""`aic` and `bic`: the likelihood at the posterior means, and the peers' counts of parameters."""

from __future__ import annotations

import numpy as np
import pytest
from cases_hidden_markov import COVARIANCE_TYPES, all_variants, draw, small
from hmmlearn import hmm as hmmlearn
from sklearn.mixture import GaussianMixture

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedHMM


def scikit_learn_mixture_at(fitted):
    """scikit-learn's mixture with the parameters of a fitted one of ours."""
    peer = GaussianMixture(fitted.n_components, covariance_type=fitted.covariance_type)
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        setattr(peer, name, getattr(fitted, name))
    return peer


@pytest.mark.parametrize("factorization", ["joint", "independent"])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_criteria_of_gaussian_mixtures_are_those_of_scikit_learn(
    covariance_type, factorization, rng
):
    X = rng.standard_normal((60, 3)) + 4.0 * rng.integers(2, size=(60, 1))
    how = {"covariance_type": covariance_type, "factorization": factorization, "effort": 0}
    fitted = AnnealedBayesianGaussianMixture(n_components=3, random_state=0, tol=1e-3, **how).fit(X)
    peer = scikit_learn_mixture_at(fitted)
    assert fitted._context().model.n_parameters == peer._n_parameters()
    assert fitted.aic(X) == pytest.approx(peer.aic(X), rel=1e-9)
    assert fitted.bic(X) == pytest.approx(peer.bic(X), rel=1e-9)


def test_weighted_rows_count_as_often_as_their_weight(rng):
    X = rng.standard_normal((30, 2))
    fitted = AnnealedBayesianGaussianMixture(2, effort=0, random_state=0, tol=1e-3).fit(X)
    weights = rng.integers(3, size=30)
    repeated = np.repeat(X, weights, axis=0)
    assert fitted.aic(X, sample_weight=weights) == pytest.approx(fitted.aic(repeated))
    assert fitted.bic(X, sample_weight=weights) == pytest.approx(fitted.bic(repeated))


def hmmlearn_count(variant, fitted):
    """The number of free parameters that hmmlearn counts."""
    k = fitted.n_components
    if variant == "categorical":
        peer = hmmlearn.CategoricalHMM(k)
        peer.n_features = fitted.n_symbols_
    elif variant == "poisson":
        peer = hmmlearn.PoissonHMM(k)
        peer.n_features = fitted.n_features_in_
    elif variant == "bernoulli":
        return k - 1 + k * (k - 1) + k * fitted.n_features_in_
    else:
        peer = hmmlearn.GaussianHMM(k, covariance_type=fitted.covariance_type)
        peer.n_features = fitted.n_features_in_
    return sum(peer._get_n_fit_scalars_per_param().values())


@all_variants
def test_criteria_of_sequences_are_those_of_hmmlearn(variant, rng):
    sequences = draw(variant, rng, [20, 15, 1])
    fitted = small(variant, 3, predictive=False).fit(sequences)
    p = fitted._context().model.n_parameters
    assert p == hmmlearn_count(variant, fitted)
    log_likelihood = fitted.score_sequences(sequences).sum()
    assert fitted.aic(sequences) == pytest.approx(2 * p - 2 * log_likelihood)
    assert fitted.bic(sequences) == pytest.approx(p * np.log(36) - 2 * log_likelihood)
    weights = np.repeat([2.0, 0.0, 1.0], [20, 15, 1])
    X, groups = np.concatenate(sequences), np.repeat([0, 1, 2], [20, 15, 1])
    again = [sequences[0], sequences[0], sequences[2]]
    found = fitted.bic(X, groups=groups, sample_weight=weights)
    assert found == pytest.approx(fitted.bic(again))


def test_criteria_of_blocks_add_the_parameters_of_the_blocks(rng):
    X = np.hstack([rng.standard_normal((40, 2)), rng.integers(3, size=(40, 1))])
    emission = [("real", "gaussian", [0, 1]), ("level", "categorical", [2])]
    settings = {"covariance_type": "diag", "annealing": "none", "max_iter": 5, "random_state": 0}
    fitted = AnnealedHMM(2, emission=emission, **settings).fit(X)
    assert fitted._context().model.n_parameters == 1 + 2 + 2 * (2 + 2) + 2 * 2
    assert fitted.bic(X) - fitted.aic(X) == pytest.approx(15 * (np.log(40) - 2))
