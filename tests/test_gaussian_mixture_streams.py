"""Tests of Gaussian mixtures of streams and in minibatches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from cases_gaussian_mixture import (
    FACTORIZATIONS,
    STARTS,
    all_factorizations,
    all_methods,
    clusters,
    parameters_of,
)
from designs import in_turn
from harness import quick
from peer_priors import PEER_OF_MIXTURES
from sklearn.base import clone

from sklearn_anneal import AnnealedBayesianGaussianMixture, AnnealedBayesianMixture, AnnealedHMM
from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing, StochasticAnnealing


def test_batch_of_weight_zero_changes_nothing():
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(n_components=3, annealing="svi_plus", random_state=0)
    mixture.partial_fit(X[:100])
    before = pickle.dumps(mixture)
    mixture.partial_fit(X[100:200], sample_weight=np.zeros(100))
    assert pickle.dumps(mixture) == before


@pytest.mark.parametrize(
    ("batch", "weight"),
    [
        ([[1.0, np.inf]], None),
        ([[1.0, 2.0, 3.0]], None),
        ([[1.0, 2.0]], [-1.0]),
        ([[1.0, 2.0]], [1.0, 1.0]),
        (np.empty((0, 2)), None),
    ],
)
@pytest.mark.parametrize("fitted", [False, True])
def test_refused_batch_leaves_the_estimator_as_it_was(batch, weight, fitted):
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="stochastic", random_state=np.random.RandomState(0)
    )
    if fitted:
        mixture.partial_fit(X)
    before = pickle.dumps(mixture)
    with pytest.raises(ValueError):
        mixture.partial_fit(batch, sample_weight=weight)
    assert pickle.dumps(mixture) == before


@all_methods
def test_partial_fit_after_fit_goes_on_without_annealing(annealing):
    if annealing == "structured":
        pytest.skip("has no end of a schedule")
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing=quick(annealing), max_iter=10, random_state=0
    ).fit(X)
    history, parameters = mixture.lower_bounds_, parameters_of(mixture)
    mixture.partial_fit(X[:50])
    assert mixture.temperatures_[-1] == 1
    np.testing.assert_array_equal(mixture.lower_bounds_[:-1], history)
    np.testing.assert_allclose(parameters_of(mixture), parameters, rtol=0.3, atol=0.5)
    assert not np.array_equal(parameters_of(mixture), parameters)


def test_first_batch_has_to_fix_the_priors():
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(n_components=4, random_state=0)
    with pytest.raises(ValueError, match="4 distinct rows are needed; it has 3"):
        mixture.partial_fit(np.repeat(X[:3], 5, axis=0))
    mixture.partial_fit(X[:4])
    # Rows that follow many equal ones count too.
    clone(mixture).partial_fit(np.vstack([np.repeat(X[:1], 60, axis=0), X[1:4]]))
    with pytest.raises(ValueError, match="2 distinct rows are needed; it has 1"):
        clone(mixture).set_params(n_components=1).partial_fit(X[:1])


@in_turn(annealing=ANNEALING, init_params=STARTS)
def test_first_batch_may_be_one_row_where_the_priors_are_given(annealing, init_params):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=annealing,
        init_params=init_params,
        mean_prior=[2.0, 2.0],
        covariance_prior=np.eye(2),
        random_state=0,
    )
    for row in X[:6]:
        mixture.partial_fit(row[None])
    assert np.all(np.isfinite(parameters_of(mixture)))
    assert mixture.n_iter_ == 6


def test_total_samples_is_the_size_that_statistics_are_scaled_to():
    X, _ = clusters(0, 100)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="none", learning_decay=0, random_state=0
    )
    counts = []
    for total in (None, 3000):
        fitted = clone(mixture).set_params(total_samples=total).partial_fit(X)
        counts.append(fitted.mean_precision_.sum() - 3 * fitted.mean_precision_prior_)
    np.testing.assert_allclose(counts, [300, 3000], rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", ["gaussian mixture", "mixture", "chain"])
def test_known_length_of_a_stream_keeps_groups_that_its_first_batch_has_few_rows_of(model, seed):
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-20.0, 20.0, size=(8, 4))
    X = centers[rng.integers(0, 8, 2000)] + rng.standard_normal((2000, 4))
    stream, same = (
        {
            "gaussian mixture": AnnealedBayesianGaussianMixture(10, random_state=seed),
            "mixture": AnnealedBayesianMixture(
                10, emission="gaussian", covariance_type="full", random_state=seed
            ),
            "chain": AnnealedHMM(10, random_state=seed),
        }[model]
        for _ in range(2)
    )
    size = 1 if model == "chain" else 50
    batches = np.array_split(X[:1600], 32)
    stream.set_params(total_samples=32 * size)
    for i, batch in enumerate(batches):
        stream.partial_fit([batch] if model == "chain" else batch)
        same.partial_fit([batch] if model == "chain" else batch)
        # Fewer than five rows for each component and column represent themselves alone.
        assert (stream.lower_bound_ == same.lower_bound_) == (i < 3)
    assert stream.score(X[1600:]) > same.score(X[1600:]) - 0.1


@pytest.mark.parametrize("total_samples", [None, 2000])
def test_stream_begins_with_a_fit_to_enough_rows(total_samples):
    """It has 25 rows for each component, so that groups that overlap are told apart."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = 1.5 * rng.normal(size=(5, 6))[rng.integers(0, 5, 2400)]
        X += rng.standard_normal(X.shape)
        mixture = AnnealedBayesianGaussianMixture(5, random_state=0)
        for n, begins in ((124, False), (125, True)):
            whole, stream = clone(mixture).fit(X[:n]), clone(mixture).partial_fit(X[:n])
            same = abs(stream.lower_bound_ - whole.lower_bound_) < 1e-8 * abs(whole.lower_bound_)
            assert same == begins
        stream, whole = clone(mixture).set_params(total_samples=total_samples), clone(mixture)
        for batch in np.array_split(X[:2000], 4):
            stream.partial_fit(batch)
        assert stream.score(X[2000:]) > whole.fit(X[:2000]).score(X[2000:]) - 0.1


@pytest.mark.parametrize("annealing", ANNEALING)
def test_stream_of_known_length_is_fitted_with_every_method(annealing):
    """Updates that ran a schedule instead were far behind, the fewer rows the further."""
    rng = np.random.default_rng(0)
    X = 4.0 * rng.normal(size=(5, 4))[rng.integers(0, 5, 1000)]
    X += rng.standard_normal(X.shape)
    make = AnnealedBayesianGaussianMixture(5, annealing=annealing, random_state=0)
    fit, stream = clone(make).fit(X[:600]), clone(make).set_params(total_samples=600)
    for batch in np.split(X[:600], 20):
        stream.partial_fit(batch)
    assert stream.score(X[600:]) > fit.score(X[600:]) - 0.05
    # The method is that of the last fit, with all its settings, and updates are at T = 1.
    assert type(stream.annealing_) is ANNEALING[annealing]
    assert "auto" not in map(str, stream.annealing_.get_params().values())
    if stream.annealing_.finish:
        assert (stream.temperatures_ == 1).all()


def test_step_of_a_batch_depends_on_the_rows_so_far_in_batches_of_its_size(rng):
    """A batch of m rows after n others has ρ = (τ + 1 + n / m)^−κ, whatever the other sizes are."""
    X = rng.normal(size=(200, 3))
    mixture = AnnealedBayesianGaussianMixture(learning_offset=2.0, learning_decay=0.7)
    weight, seen = 0.0, 0
    for batch in np.split(X, [7, 60, 61, 190]):
        mixture.partial_fit(batch)
        rho = (3.0 + seen / len(batch)) ** -0.7
        seen += len(batch)
        # The first update replaces a start that has no rows at all.
        weight = seen if seen == len(batch) else (1.0 - rho) * weight + rho * seen
        counts = mixture.mean_precision_ - mixture.mean_precision_prior_
        np.testing.assert_allclose(counts, weight, rtol=1e-9)


@pytest.mark.parametrize("begins", ["fit", "stream", "updates"])
@pytest.mark.parametrize("model", ["gaussian mixture", "mixture", "chain"])
def test_steps_of_a_stream_are_smaller_after_a_fit(model, begins, rng):
    X = rng.normal(size=(500, 2)) + 3.0 * rng.integers(0, 3, (500, 1))
    made = {
        "gaussian mixture": AnnealedBayesianGaussianMixture(3, random_state=0),
        "mixture": AnnealedBayesianMixture(3, emission="gaussian", random_state=0),
        "chain": AnnealedHMM(3, random_state=0),
    }[model]
    found = []
    for decay in ("auto", 0.6, 0.8):
        est = clone(made).set_params(learning_decay=decay)
        if begins == "updates":
            est.set_params(max_iter=1)
        getattr(est, "fit" if begins == "fit" else "partial_fit")(X[:400])
        for batch in np.split(X[400:], 4):
            est.partial_fit(batch)
        found.append(est.score(X))
    assert (found[0] == found[1]) == (begins == "updates")
    assert (found[0] == found[2]) == (begins != "updates")


def test_small_batches_do_not_replace_the_fit_with_which_a_stream_begins():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = 2.0 * rng.normal(size=(6, 5))[rng.integers(0, 6, 3000)]
        X += rng.standard_normal(X.shape)
        stream = AnnealedBayesianGaussianMixture(6, random_state=0).partial_fit(X[:1000])
        before = stream.score(X[2000:])
        for batch in np.split(X[1000:1200], 10):
            stream.partial_fit(batch)
        assert stream.score(X[2000:]) > before - 0.02


@pytest.mark.parametrize("total_samples", [None, 1800])
def test_stream_reaches_nearly_the_quality_of_batches(total_samples):
    X, _ = clusters(0, 300, [(0, 0), (8, 0), (0, 8), (8, 8), (4, 14), (14, 4)])
    rng = np.random.default_rng(0)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=6, annealing="none", total_samples=total_samples, random_state=0
    )
    plain = clone(mixture).fit(X)
    for _ in range(3):
        for batch in np.array_split(rng.permutation(X), 30):
            mixture.partial_fit(batch)
    assert mixture.score(X) > plain.score(X) - 0.01


@in_turn(annealing=ANNEALING, factorization=FACTORIZATIONS)
def test_minibatches_reach_nearly_the_bound_of_batches(factorization, annealing):
    X, _ = clusters(0, 100, ((0, 0), (6, 0), (0, 6)))
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        factorization=factorization,
        annealing=annealing,
        init_params="kmeans",
        max_iter=20,
        effort=0,
        random_state=0,
        **PEER_OF_MIXTURES,
    )
    # Noise and temperature are milder than by default, because the defaults lead to another optimum
    # than the one next to the start.
    if annealing == "stochastic":
        mixture.set_params(annealing=StochasticAnnealing(start="init_params", initial_noise=0.1))
    if annealing == "deterministic":
        mixture.set_params(annealing=DeterministicAnnealing(initial_temperature=1.5))
    plain = clone(mixture).set_params(annealing="none").fit(X)
    mixture.set_params(batch_size=100).fit(X)
    assert mixture.lower_bound_ > plain.lower_bound_ - 0.01 * len(X)
    assert mixture.lower_bound_ == mixture.lower_bounds_[-1]
    assert len(mixture.lower_bounds_) == len(mixture.temperatures_) == mixture.n_iter_


@all_factorizations
def test_batch_size_of_all_rows_is_batch_mode(factorization):
    X, _ = clusters()
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, factorization=factorization, random_state=0, **PEER_OF_MIXTURES
    )
    batch = clone(mixture).fit(X)
    mixture.set_params(batch_size=len(X)).fit(X)
    np.testing.assert_array_equal(mixture.lower_bounds_, batch.lower_bounds_)
    np.testing.assert_array_equal(parameters_of(mixture), parameters_of(batch))
