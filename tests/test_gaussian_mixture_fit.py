"""Tests of weights, restarts and warm starts of Gaussian mixtures."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from cases_gaussian_mixture import (
    COVARIANCE_TYPES,
    WEIGHT_PRIORS,
    clusters,
    complete_bound,
    parameters_of,
    real_data,
)
from designs import in_turn
from harness import change_models, context_of
from peer_priors import PEER_OF_MIXTURES
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import ANNEALING, DeterministicAnnealing, StochasticAnnealing

# Weights of rows


def test_weights_reach_the_k_means_start():
    X, labels = clusters(5, 60, ((0, 0), (6, 0), (0, 6), (6, 6)))
    weights = np.where(labels == 3, 0.0, 1.0)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="none", max_iter=0, random_state=0
    ).fit(X, sample_weight=weights)
    distance = np.linalg.norm(mixture.means_ - (6, 6), axis=1)
    assert distance.min() > 4


def test_equal_weights_lead_to_the_start_without_weights():
    X, _ = clusters(5)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="none", max_iter=2, init_params="random_from_data", random_state=0
    )
    expected = clone(mixture).fit(X).lower_bounds_
    assert mixture.fit(X, sample_weight=np.ones(len(X))).lower_bounds_ == pytest.approx(expected)


def test_score_and_fit_take_weights_through_a_pipeline():
    X, _ = clusters(5)
    weights = np.arange(len(X)) % 4.0
    with config_context(enable_metadata_routing=True):
        mixture = AnnealedBayesianGaussianMixture(n_components=3, effort=0, random_state=0)
        mixture.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, mixture).fit(X, sample_weight=weights)
        score = pipeline.score(X, sample_weight=weights)
    scaled = StandardScaler().fit_transform(X)
    alone = clone(mixture).fit(scaled, sample_weight=weights)
    assert pipeline[-1].lower_bound_ == alone.lower_bound_
    assert score == alone.score(scaled, sample_weight=weights)
    assert score != alone.score(scaled)


# Restarts, warm starts, the end of a fit


@pytest.mark.parametrize("annealing", ["none", "stochastic"])
def test_best_restart_is_kept(annealing):
    X = real_data("wine")[:, :4]
    mixture = AnnealedBayesianGaussianMixture(
        n_components=4,
        annealing=annealing,
        init_params="random",
        n_init=4,
        effort=0,
        max_iter=10,
        random_state=0,
    ).fit(X)
    bounds = mixture.restart_lower_bounds_
    assert bounds.shape == (4,)
    assert len(np.unique(bounds)) > 1, "all restarts are alike"
    assert mixture.best_restart_ == np.argmax(bounds)
    assert mixture.lower_bound_ == bounds.max() == mixture.lower_bounds_[-1]
    single = clone(mixture).set_params(n_init=1).fit(X)
    assert single.lower_bound_ == bounds[0]


def test_warm_start_goes_on_at_temperature_1():
    X = real_data("wine")[:, :4]
    mixture = AnnealedBayesianGaussianMixture(
        n_components=4,
        annealing=DeterministicAnnealing(initial_temperature=3, n_passes=5),
        max_iter=7,
        tol=0,
        reg_covar=0,
        random_state=0,
        warm_start=True,
        **PEER_OF_MIXTURES,
    ).fit(X)
    bounds, temperatures = mixture.lower_bounds_, mixture.temperatures_
    parameters = parameters_of(mixture)
    mixture.fit(X)
    assert mixture.n_iter_ == 12 + 7
    np.testing.assert_array_equal(mixture.lower_bounds_[:12], bounds)
    np.testing.assert_array_equal(mixture.temperatures_, [*temperatures, *np.ones(7)])
    assert np.all(np.diff(mixture.lower_bounds_[11:]) >= -1e-9)
    assert not np.array_equal(parameters_of(mixture), parameters)
    straight = clone(mixture).set_params(max_iter=14).fit(X)
    np.testing.assert_allclose(parameters_of(mixture), parameters_of(straight), rtol=1e-10)


def test_warm_start_refuses_another_shape():
    X = real_data("iris")
    params = {"n_components": 3, "effort": 0, "random_state": 0}
    mixture = AnnealedBayesianGaussianMixture(warm_start=True, **params).fit(X)
    before = mixture.lower_bound_
    with pytest.raises(ValueError, match="n_components=3, but n_components=4 now"):
        mixture.set_params(n_components=4).fit(X)
    with pytest.raises(ValueError, match="X has 3 features, but .* is expecting 4"):
        mixture.set_params(n_components=3).fit(X[:, :3])
    assert mixture.lower_bound_ == before


def test_max_iter_0_only_starts_or_anneals():
    X = real_data("iris")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        start = AnnealedBayesianGaussianMixture(
            n_components=3, annealing="none", max_iter=0, random_state=0
        ).fit(X)
        annealed = AnnealedBayesianGaussianMixture(
            n_components=3, annealing=StochasticAnnealing(n_passes=6), max_iter=0, random_state=0
        ).fit(X)
    assert start.n_iter_ == len(start.lower_bounds_) == len(start.temperatures_) == 0
    assert start.lower_bound_ == pytest.approx(complete_bound(start, X), rel=1e-10)
    assert annealed.n_iter_ == len(annealed.lower_bounds_) == 6
    assert annealed.lower_bound_ == pytest.approx(complete_bound(annealed, X), rel=1e-10)
    assert not start.converged_
    assert not annealed.converged_


def test_max_iter_counts_the_finish_alone():
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=DeterministicAnnealing(initial_temperature=2, n_passes=30),
        max_iter=4,
        effort=0,
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=4"):
        mixture.fit(real_data("iris"))
    assert mixture.n_iter_ == 34
    assert mixture.temperatures_[0] == 2
    assert np.all(np.diff(mixture.temperatures_[:30]) < 0)
    assert np.all(mixture.temperatures_[30:] == 1)


def test_tol_is_the_rise_per_row():
    X = real_data("wine")[:, :4]
    mixture = AnnealedBayesianGaussianMixture(
        n_components=4, annealing="none", tol=1e-4, max_iter=500, random_state=0, **PEER_OF_MIXTURES
    ).fit(X)
    rises = np.abs(np.diff(mixture.lower_bounds_)) / len(X)
    assert mixture.converged_
    assert rises[-1] < 1e-4
    assert rises[:-1].min() >= 1e-4


def test_coinciding_components_warn_and_say_what_to_change():
    # At this temperature all components become equal, and without jitter they remain equal.
    hot = DeterministicAnnealing(initial_temperature=50, n_passes=100, jitter=0)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=hot,
        effort=0,
        weight_concentration_prior_type="dirichlet_distribution",
        covariance_prior=None,  # a learned one has a size for each component
        random_state=0,
    )
    X, _ = clusters(0, 100, ((0, 0), (3, 0), (0, 3)))
    with pytest.warns(ConvergenceWarning, match="Components coincide") as caught:
        mixture.fit(X)
    message = next(str(w.message) for w in caught if "coincide" in str(w.message))
    for way_out in ("temperature", "jitter", "init_params", "random_state", "fewer components"):
        assert way_out in message
    assert np.ptp(mixture.means_, axis=0).max() < 1e-6
    for way_out in ({"annealing": "none"}, {"annealing__jitter": 1.0}):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Components coincide")
            free = clone(mixture).set_params(**way_out).fit(X)
        assert free.lower_bound_ > mixture.lower_bound_ + 10


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_whether_components_coincide_does_not_depend_on_units(covariance_type, factor, rng):
    """Components that differ in the variance of one column differ in any unit of it."""
    X = rng.normal(size=(400, 2)) * np.repeat([[1.0, 0.1], [1.0, 3.0]], 200, axis=0)
    settings = {"weight_concentration_prior_type": "dirichlet_distribution", "reg_covar": 0.0}
    mixture = AnnealedBayesianGaussianMixture(
        n_components=2,
        covariance_type=covariance_type,
        max_iter=1,
        effort=0,
        random_state=0,
        **settings,
    )
    ctx = context_of(mixture.fit(X * [1.0, factor]))
    components, pairs = ctx.model.components, []
    # The means are made equal, so that only variances tell the components apart.
    for variances in ([[1.0, 0.01], [1.0, 9.0]], [[1.0, 4.0], [1.0, 4.0]]):
        standard = components.standard(ctx.q)
        diagonals = np.array(variances) * np.array([1.0, factor**2])
        if covariance_type == "full":
            diagonals = diagonals[:, :, None] * np.eye(2)
        dof = standard["dof"].reshape((2,) + (1,) * (diagonals.ndim - 1))
        standard |= {"mean": np.zeros((2, 2)), "inverse_scale": diagonals * dof}
        natural = components.factors[0].family.from_standard(**standard)
        q = {**ctx.q, **components.factors[0].rename(natural)}
        pairs.append(ctx.model.coinciding(q, ctx.summary, ctx.prior))
    assert pairs == [[], [(0, 1)]]


@in_turn(annealing=ANNEALING, covariance_type=COVARIANCE_TYPES, weight_prior=WEIGHT_PRIORS)
def test_one_component(covariance_type, weight_prior, annealing):
    X = real_data("iris")
    priors = ["covariance_prior", "degrees_of_freedom_prior", "mean_prior", "mean_precision_prior"]
    mixture = AnnealedBayesianGaussianMixture(
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        annealing=annealing,
        random_state=0,
        **dict.fromkeys(priors),
    ).fit(X)
    assert mixture.weights_ == pytest.approx([1])
    np.testing.assert_array_equal(mixture.transform(X), np.ones((len(X), 1)))
    if annealing != "structured":  # which ends without plain inference
        expected = BayesianGaussianMixture(
            covariance_type=covariance_type,
            weight_concentration_prior_type=weight_prior,
            random_state=0,
        ).fit(X)
        np.testing.assert_allclose(mixture.means_, expected.means_, rtol=1e-6)
        np.testing.assert_allclose(mixture.covariances_, expected.covariances_, rtol=1e-6)


@pytest.mark.parametrize(
    ("how", "n_seen"), [("batch", 21_000), ("minibatches", 20_000), ("stream", 21_000)]
)
def test_starts_look_at_all_rows_except_in_minibatches(how, n_seen, monkeypatch):
    X = np.random.default_rng(0).normal(size=(21_000, 2))
    seen = []

    def change(model):
        original = model.init

        def init(units, *args):
            seen.append(units.n_units)
            return original(units, *args)

        model.init = init
        return model

    change_models(monkeypatch, AnnealedBayesianGaussianMixture, change)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=2, init_params="random", annealing="none", max_iter=1, batch_size=200
    )
    if how == "batch":
        mixture.set_params(batch_size=None)
    (mixture.partial_fit if how == "stream" else mixture.fit)(X)
    assert seen == [n_seen]
