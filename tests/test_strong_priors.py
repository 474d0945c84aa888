"""Priors that count as many more observations than there are: exact bounds, or a refusal.

With the strength of a prior the fit tends to that of fixed parameters, so that the lower bounds of
strong priors must agree with each other. They must not fall either.
"""

from __future__ import annotations

import numpy as np
import pytest

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
    AnnealedPMF,
)

STRENGTHS = (1e10, 1e14, 1e18)
PLAIN = {"annealing": "none", "max_iter": 10, "random_state": 0}


def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 2)) + np.repeat([[0, 0], [4, 1], [1, 5]], 20, axis=0)


def counts():
    return np.random.default_rng(0).poisson(1.0, (20, 12)).astype(float)


def ratings():
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((30, 20)) < 0.5)
    factors = rng.normal(size=(30, 2)), rng.normal(size=(20, 2))
    exact = (factors[0] @ factors[1].T)[tuple(pairs.T)]
    return pairs, exact + 0.3 * rng.normal(size=len(pairs))


def mixture(**params):
    return AnnealedBayesianGaussianMixture(n_components=3, **PLAIN, **params)


def topics(**params):
    return AnnealedLatentDirichletAllocation(3, **PLAIN, **params)


def chain(**params):
    return AnnealedHMM(3, **PLAIN, **params)


def pmf(**params):
    return AnnealedPMF(2, input="pairs", **PLAIN, **params)


def nmf(**params):
    return AnnealedGammaProcessNMF(3, **PLAIN, **params)


def strong_weights(s):
    return {
        "weight_concentration_prior_type": "dirichlet_distribution",
        "weight_concentration_prior": s,
    }


def strong_covariances(covariance_type):
    scale = {"full": np.eye(2), "tied": np.eye(2), "diag": np.ones(2), "spherical": 1.0}
    return lambda s: {
        "covariance_type": covariance_type,
        "degrees_of_freedom_prior": s + 2,
        "covariance_prior": s * scale[covariance_type],
    }


SYMBOLS = np.random.default_rng(0).poisson(3, (60, 2))
CASES = {
    "weights": (mixture, strong_weights, rows),
    **{
        f"covariances-{kind}": (mixture, strong_covariances(kind), rows)
        for kind in ("full", "tied", "diag", "spherical")
    },
    "means": (mixture, lambda s: {"mean_precision_prior": s}, rows),
    "means-elsewhere": (
        mixture,
        lambda s: {
            "mean_precision_prior": s,
            "mean_prior": [3, 3],
            "factorization": "independent",
        },
        rows,
    ),
    "documents": (topics, lambda s: {"doc_topic_prior": s}, counts),
    "topics": (topics, lambda s: {"topic_word_prior": s}, counts),
    "transitions": (chain, lambda s: {"transmat_prior": s, "startprob_prior": s}, rows),
    "states-covariances": (
        chain,
        lambda s: {"dof_prior": s + 2, "scale_prior": s * np.eye(2)},
        rows,
    ),
    "categorical": (
        chain,
        lambda s: {"emission": "categorical", "emissionprob_prior": s},
        lambda: SYMBOLS[:, :1],
    ),
    "bernoulli": (
        chain,
        lambda s: {"emission": "bernoulli", "emissionprob_prior": s},
        lambda: (SYMBOLS > 2).astype(int),
    ),
    "poisson": (
        chain,
        lambda s: {"emission": "poisson", "lambdas_prior": [s, s]},
        lambda: SYMBOLS,
    ),
    "factors": (pmf, lambda s: {"factor_variance": 1 / s}, ratings),
    "biases": (pmf, lambda s: {"factor_variance": None, "bias_variance": 1 / s}, ratings),
    "parts": (nmf, lambda s: {"component_prior": s}, counts),
    "weights-of-parts": (nmf, lambda s: {"concentration": s}, counts),
}


@pytest.mark.parametrize("case", CASES)
def test_bounds_of_strong_priors_agree_and_do_not_fall(case):
    make, prior, data = CASES[case]
    X = data()
    X = X if isinstance(X, tuple) else (X,)
    fits = [make(**prior(s)).fit(*X) for s in STRENGTHS]
    for fit in fits:
        size = abs(fit.lower_bound_)
        assert np.all(np.diff(fit.lower_bounds_) > -1e-11 * size)
        # A prior of 10^10 is a hundred thousandth of a nat away from a fixed parameter.
        assert fit.lower_bound_ == pytest.approx(fits[-1].lower_bound_, abs=2e-5)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_bounds_of_independent_factors_do_not_fall(covariance_type):
    for s in STRENGTHS:
        prior = strong_covariances(covariance_type)(s)
        fit = mixture(factorization="independent", **prior).fit(rows())
        assert np.all(np.diff(fit.lower_bounds_) > -1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("model", ["mixture", "chain"])
def test_strong_means_far_from_the_data_are_refused(model, covariance_type):
    if model == "mixture":
        name, far = "covariance_prior", {"mean_precision_prior": 1e12, "mean_prior": [3, 3]}
        make = mixture
    else:
        name, far, make = "scale_prior", {"beta_prior": 1e12, "means_prior": [3, 3]}, chain
    with pytest.raises(ValueError, match=f"too strong for its distance .* give a larger {name}"):
        make(covariance_type=covariance_type, **far).fit(rows())


def test_small_noise_is_refused():
    pairs, values = ratings()
    with pytest.raises(ValueError, match=r"noise_variance=1e-12 is too small .* Give at least"):
        pmf(noise_variance=1e-12).fit(pairs, values)
    with pytest.raises(ValueError, match="or ratings of dtype float64"):
        pmf(noise_variance=1e-7).fit(pairs, values.astype(np.float32))
    fit = pmf(noise_variance=1e-7).fit(pairs, values)
    assert np.all(np.diff(fit.lower_bounds_) > -1e-9 * abs(fit.lower_bound_))


def test_strong_priors_of_activations_are_refused():
    """Up to the largest that is accepted, bounds agree with those of weaker priors."""
    given = {"component_prior": 0.5, "concentration": 1.0, "init_params": "random"}
    fits = [nmf(activation_prior=b, **given).fit(counts()) for b in (1e6, 1e7, 1e8)]
    for fit in fits:
        assert np.all(np.diff(fit.lower_bounds_) > -1e-9 * abs(fit.lower_bound_))
        assert fit.lower_bound_ == pytest.approx(fits[-1].lower_bound_, abs=2e-4)
        found = fit.transform(counts())
        # Those of components that explain nothing are 0.
        assert found.any()
        np.testing.assert_allclose(found[:, found.any(axis=0)], 1.0, atol=1e-4)
    for method in ("fit", "partial_fit"):
        with pytest.raises(
            ValueError, match=r"activation_prior=1e\+09 is too large.* at most 1e\+08"
        ):
            getattr(nmf(activation_prior=1e9), method)(counts())


def test_large_variances_of_biases_are_refused():
    with pytest.raises(ValueError, match=r"bias_variance=1e\+15 is too large"):
        pmf(noise_variance=1.0, bias_variance=1e15).fit(*ratings())


def test_strong_priors_of_documents_are_refused_in_single_precision():
    with pytest.raises(ValueError, match="or X of dtype float64"):
        topics(doc_topic_prior=1e15).fit(counts().astype(np.float32))


def test_tempering_agrees_for_strong_priors():
    """The log partition function decides the temperatures, and needs its digits too."""

    def fit(s):
        lda = AnnealedLatentDirichletAllocation(
            3,
            doc_topic_prior=s,
            topic_word_prior=s,
            annealing="tempering",
            max_iter=5,
            random_state=0,
        )
        return lda.fit(counts())

    np.testing.assert_allclose(fit(1e10).temperatures_, fit(1e15).temperatures_, rtol=1e-6)


def test_degrees_of_freedom_whose_square_is_no_number_are_refused_in_words(rng):
    X = rng.normal(size=(40, 3))
    with pytest.raises(ValueError, match="Fitting failed"):
        AnnealedBayesianGaussianMixture(2, degrees_of_freedom_prior=1e300, effort=0).fit(X)
