"""Tests of the learned prior of tied covariances, which components of few rows have in common."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest
from cases_gaussian_mixture import FACTORIZATIONS, all_factorizations, complete_bound
from cases_parts import assert_close_fit
from designs import in_turn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedHMM,
    Shards,
)
from sklearn_anneal.families import Factors

PRIORS = ("mean_precision_prior", "mean_prior", "degrees_of_freedom_prior", "covariance_prior")


def wide(seed=0, n=30, d=20, k=3, apart=2.0):
    """Rows of groups that have one covariance, with fewer than two rows for each column."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) / np.sqrt(d) + 0.3 * np.eye(d)
    labels = np.arange(n) % k
    return apart * rng.normal(size=(k, d))[labels] + rng.normal(size=(n, d)) @ root.T, labels


def mixture(n_components=3, **settings):
    settings = {"covariance_type": "tied", "annealing": "none", "random_state": 0, **settings}
    return AnnealedBayesianGaussianMixture(n_components, **settings)


def usual(X):
    """The prior without learning, but with a regular matrix."""
    return {"covariance_prior": np.diag(X.var(axis=0)), "degrees_of_freedom_prior": None}


@all_factorizations
@pytest.mark.parametrize("n", [8, 25, 35])
def test_a_single_component_learns_the_prior_of_a_full_covariance(n, factorization):
    X, _ = wide(1, n)
    if factorization == "independent" and n == 25:
        X = np.column_stack([X[:, 0], X])  # this prior depends on the correlations
    tied, full = (
        mixture(1, covariance_type=kind, factorization=factorization).fit(X)
        for kind in ("tied", "full")
    )
    assert tied.lower_bound_ == pytest.approx(full.lower_bound_, rel=1e-9)
    assert_allclose(tied.covariance_prior_, full.covariance_prior_, rtol=1e-5, atol=1e-12)
    assert_allclose(tied.covariances_, full.covariances_[0], rtol=1e-5, atol=1e-9)
    assert tied.degrees_of_freedom_prior_ == pytest.approx(full.degrees_of_freedom_prior_, rel=1e-5)


@in_turn(
    seed=range(8),
    factorization=FACTORIZATIONS,
    n=(12, 30),
    d=(9, 20, 100),
    k=(2, 5),
    missing=(False, True),
)
def test_the_bound_never_falls_and_is_complete(seed, factorization, n, d, k, missing):
    X, _ = wide(seed, n, max(d, n // 2 + 1), apart=0.5 * (seed % 4))
    if missing:
        X[np.random.default_rng(seed).random(X.shape) < 0.1] = np.nan
    settings = {"factorization": factorization, "tol": 0.0, "max_iter": 60, "reg_covar": 0.0}
    found = mixture(k, **settings).fit(X)
    # Precisions without reg_covar are large, so that terms of the bound lose digits.
    assert np.diff(found.lower_bounds_).min() >= -1e-9 * abs(found.lower_bound_)
    assert found.degrees_of_freedom_ == pytest.approx(found.degrees_of_freedom_prior_ + n)
    if factorization == "joint" and not missing:
        lost = found._context().model.components.hyperparameter_kl()
        bound = complete_bound(found, X) - lost
        assert found.lower_bound_ == pytest.approx(bound, abs=1e-7 * abs(bound))


@in_turn(seed=range(6), n=(12, 30), d=(20, 40), k=(2, 4))
def test_the_bound_is_above_that_of_the_usual_prior(seed, n, d, k):
    X, _ = wide(seed, n, d)
    assert mixture(k).fit(X).lower_bound_ > mixture(k, **usual(X)).fit(X).lower_bound_


@pytest.mark.parametrize("n", [15, 30])
def test_no_neighbour_of_the_learned_priors_is_better(n):
    """The rows stay where they are, and q follows the priors."""
    ctx = mixture(tol=1e-12, max_iter=3000).fit(wide(2, n)[0])._context()
    components, prior = ctx.model.components, ctx.prior
    q = {key: ctx.q[key] for key in components.keys}
    prior = {key: prior[key] for key in q}
    statistics = {key: q[key] - prior[key] for key in q}
    factors = Factors(components.factors)

    def value(center, strength, dof, scale):
        trial = copy(components)
        trial.mean_precision_prior, trial.degrees_of_freedom_prior = strength, dof
        trial.set_scale(scale, None)
        new = trial.natural_prior(center)
        after = {key: new[key] + statistics[key] for key in new}
        rise = sum(
            float(np.sum(f.family.log_normalizer(f.pick(after))))
            - float(np.sum(f.family.log_normalizer(f.pick(new))))
            for f in factors
        )
        return rise - trial.hyperparameter_kl()

    now = {
        "center": components.prior_means(prior)[0],
        "strength": float(components.mean_precision_prior),
        "dof": float(components.degrees_of_freedom_prior),
        "scale": components.common_scale,
    }
    best = value(**now)
    assert best == pytest.approx(value(**now))
    rng = np.random.default_rng(0)
    rises = []
    for factor in (0.98, 1.02):
        for name in ("strength", "dof", "scale"):
            at_most = now["strength"] * factor <= n
            if name != "strength" or at_most:
                rises.append(value(**{**now, name: now[name] * factor}) - best)
        moved = now["center"] + 0.02 * rng.normal(size=now["center"].shape)
        rises.append(value(**{**now, "center": moved}) - best)
        j = rng.integers(len(moved))
        scale = np.array(now["scale"])
        scale[j] *= np.sqrt(factor)
        scale[:, j] *= np.sqrt(factor)
        rises.append(value(**{**now, "scale": scale}) - best)
    assert max(rises) <= 1e-4


def test_many_rows_leave_the_usual_prior():
    """From two rows for each column on, predictions are better with it."""
    X, _ = wide(0, 40)
    priors = {"covariance_prior": None, "degrees_of_freedom_prior": None}
    learned, plain = mixture().fit(X), mixture(**priors).fit(X)
    assert np.array_equal(learned.lower_bounds_, plain.lower_bounds_)
    assert learned.degrees_of_freedom_ == pytest.approx(20 + 40 / 3)
    few = mixture().fit(X[:39])
    assert few.degrees_of_freedom_ == pytest.approx(few.degrees_of_freedom_prior_ + 39)


def test_a_given_prior_is_that_of_scikit_learn_for_few_rows_too():
    X, _ = wide()
    priors = dict.fromkeys((*PRIORS, "weight_concentration_prior"))
    settings = {"reg_covar": 1e-6, "init_params": "random_from_data", "tol": 1e-9}
    ours = mixture(**priors, **settings, max_iter=300).fit(X)
    theirs = BayesianGaussianMixture(
        n_components=3, covariance_type="tied", random_state=0, max_iter=300, **settings
    ).fit(X)
    assert ours.degrees_of_freedom_ == pytest.approx(20 + 30 / 3)
    assert_allclose(ours.covariances_, theirs.covariances_, rtol=1e-3, atol=1e-6)


@all_factorizations
def test_weights_are_copies(factorization):
    X, _ = wide(3, 20, apart=4.0)
    weights = np.random.default_rng(0).integers(1, 3, size=20)
    est = mixture(factorization=factorization)
    weighted = clone(est).fit(X, sample_weight=weights).reorder("weight")
    repeated = clone(est).fit(X.repeat(weights, axis=0)).reorder("weight")
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-9)
    assert_allclose(weighted.covariance_prior_, repeated.covariance_prior_, rtol=1e-5, atol=1e-9)
    assert weighted.degrees_of_freedom_ == pytest.approx(repeated.degrees_of_freedom_)


@all_factorizations
def test_fits_of_parts_are_fits_in_memory(factorization):
    X, _ = wide(4, 36)
    est = mixture(factorization=factorization, init_params="random", max_iter=15, tol=0.0)
    assert_close_fit(clone(est).fit(Shards([X[:11], X[11:14], X[14:]])), clone(est).fit(X))


def test_single_precision_and_streams():
    X, _ = wide(5, apart=4.0)
    double, single = mixture().fit(X), mixture().fit(X.astype(np.float32))
    assert single.lower_bound_ == pytest.approx(double.lower_bound_, rel=1e-5)
    stream = mixture()
    for part in np.split(X, 3):
        stream.partial_fit(part)
    # The first batch had fewer than two rows for each column.
    assert stream.degrees_of_freedom_ > stream.degrees_of_freedom_prior_ + 20
    assert np.isfinite(stream.score(X))


@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (3, 2), (2, 5), (3, 9)])
@pytest.mark.parametrize("n_components", [1, 2])
def test_very_few_rows_have_finite_densities(shape, n_components):
    X = np.random.default_rng(0).normal(size=shape)
    found = mixture(n_components, annealing="reheating").fit(X)
    assert np.isfinite([found.lower_bound_, found.score(X)]).all()
    # Two equal components cost almost nothing.
    assert found.lower_bound_ < mixture(1).fit(X).lower_bound_ + 1.0


def test_groups_of_wide_tables_are_found_and_noise_has_none():
    X, labels = wide(0, 60, 60, k=3, apart=1.5)
    found = mixture(5, annealing="reheating").fit(X)
    assert found.n_effective_components_ == 3
    assert adjusted_rand_score(labels, found.predict(X)) == 1.0
    noise = np.random.default_rng(0).normal(size=(60, 60))
    assert len(mixture("auto", annealing="reheating").fit(noise).weights_) == 1


def test_new_rows_of_wide_tables_have_a_higher_density():
    for seed in range(3):
        X, _ = wide(seed, 400, 60)
        learned = mixture(annealing="reheating").fit(X[:60])
        plain = mixture(annealing="reheating", **usual(X[:60])).fit(X[:60])
        assert learned.score(X[60:]) > plain.score(X[60:]) + 0.2


def test_draws_of_posteriors_have_one_matrix():
    ctx = mixture().fit(wide()[0])._context()
    for factor in ctx.model.components.factors:
        drawn = factor.family.sample(factor.pick(ctx.q), np.random.default_rng(0))
        assert (drawn["precision"] == drawn["precision"][0]).all()


def test_hidden_markov_models_and_blocks_learn_it_too():
    X, labels = wide(6, 36, apart=3.0)
    X = X[np.argsort(labels, kind="stable")]
    chain = AnnealedHMM(
        3, emission="gaussian", covariance_type="tied", annealing="none", random_state=0, tol=0
    ).fit([X[:20], X[20:]])
    assert chain.dof_posterior_ == pytest.approx(chain.dof_prior_ + 36)
    assert np.diff(chain.lower_bounds_).min() >= -1e-9 * abs(chain.lower_bound_)
    binary = np.random.default_rng(0).integers(0, 2, size=(36, 1))
    blocks = [("a", "gaussian", slice(0, 20)), ("b", "bernoulli", [20])]
    settings = {"covariance_type": "tied", "annealing": "none", "random_state": 0}
    both = AnnealedBayesianMixture(3, emission=blocks, **settings)
    both.fit(np.column_stack([X, binary]))
    assert np.diff(both.lower_bounds_).min() >= -1e-9 * abs(both.lower_bound_)
    scale = np.diag(X.var(axis=0))
    plain = clone(both).set_params(scale_prior=scale, dof_prior=None)
    assert both.lower_bound_ > plain.fit(np.column_stack([X, binary])).lower_bound_


def test_some_components_keep_the_matrix_that_all_have_in_common():
    """Searches for a number of components begin with those in use."""
    ctx = mixture().fit(wide()[0])._context()
    components = ctx.model.components
    kept = components.reordered(ctx.q, np.array([2, 0]))
    for key in ("scatter", "dof"):
        assert np.array_equal(kept[key], ctx.q[key])
    assert np.array_equal(kept["mean_natural"], ctx.q["mean_natural"][[2, 0]])
