"""Another order of the components of a fitted estimator."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from designs import each_value_of_each_class
from harness import variants

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedHMM,
    AnnealedPMF,
    AnnealedSigmoidBeliefNet,
    AnnealedSpikeSlabFactorAnalysis,
)
from sklearn_anneal.annealing import DeterministicAnnealing

DIRICHLET = {"weight_concentration_prior_type": "dirichlet_distribution"}


def rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    centers = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [8.0, 8.0]])
    labels = np.repeat(np.arange(4), [n // 2, n // 4, n // 6, n - n // 2 - n // 4 - n // 6])
    return centers[labels] + rng.normal(size=(n, 2))


def mixture(**params):
    settings = {"n_components": 4, "annealing": "none", "random_state": 0, "max_iter": 500}
    return AnnealedBayesianGaussianMixture(**(settings | params))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("factorization", ["joint", "independent"])
def test_predictions_follow_the_order(covariance_type, factorization):
    X = rows()
    est = mixture(
        covariance_type=covariance_type, factorization=factorization, max_iter=20, **DIRICHLET
    ).fit(X)
    before, order = pickle.loads(pickle.dumps(est)), np.array([2, 0, 3, 1])
    assert est.reorder(order) is est
    np.testing.assert_allclose(est.predict_proba(X), before.predict_proba(X)[:, order], atol=1e-9)
    np.testing.assert_allclose(est.score_samples(X), before.score_samples(X), rtol=1e-9)
    assert (order[est.predict(X)] == before.predict(X)).all()
    assert est.lower_bound_ == before.lower_bound_
    for name in ("weights_", "means_", "mean_precision_"):
        np.testing.assert_allclose(getattr(est, name), getattr(before, name)[order], rtol=1e-9)
    if covariance_type != "tied":
        np.testing.assert_allclose(est.covariances_, before.covariances_[order], rtol=1e-9)
    loaded = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(loaded.predict(X), est.predict(X))
    # The stream goes on alike, whatever the order.
    more = rows(30, 1)
    np.testing.assert_allclose(
        est.partial_fit(more).means_, before.partial_fit(more).means_[order], rtol=1e-6, atol=1e-6
    )
    draws, labels = est.sample(500)
    assert np.linalg.norm(draws - est.means_[labels], axis=1).mean() < 3.0


@pytest.mark.parametrize("concentration", ["auto", 0.3, 5.0])
def test_sticks_become_those_of_the_same_assignments(concentration):
    X = rows(400)
    est = mixture(weight_concentration_prior=concentration, tol=1e-10, max_iter=3000).fit(X)
    before, order = pickle.loads(pickle.dumps(est)), np.array([3, 2, 0, 1])
    ctx = before._inference.ctx
    counts = ctx.model.expected_counts(ctx.q, ctx.prior)[order]
    est.reorder(order)
    a, b = est.weight_concentration_
    np.testing.assert_allclose(a, 1.0 + counts)
    alpha = np.full(4, est.weight_concentration_prior_)
    alpha[-1] = b[-1]
    np.testing.assert_allclose(b, alpha + np.append(np.cumsum(counts[:0:-1])[::-1], 0.0))
    np.testing.assert_allclose(est.means_, before.means_[order])
    np.testing.assert_allclose(est.weights_, before.weights_[order], atol=2.0 / 400)
    np.testing.assert_allclose(est.predict_proba(X), before.predict_proba(X)[:, order], atol=0.02)
    # The bound is that of the same assignments: new ones raise it, and by very little.
    bound = est.lower_bound_
    assert est.lower_bounds_[-1] == bound != before.lower_bound_
    true = est.set_params(warm_start=True, max_iter=0).fit(X).lower_bound_
    assert bound - 1e-6 < true < bound + 0.02


def test_components_are_sorted_by_weight_or_by_an_array():
    X = rows(300)
    est = mixture(**DIRICHLET).fit(X).reorder([1, 3, 0, 2])
    assert (np.diff(est.reorder("weight").weights_) <= 0).all()
    first = est.means_[:, 0].copy()
    np.testing.assert_allclose(est.reorder(np.argsort(first)).means_[:, 0], np.sort(first))
    names = est.get_feature_names_out()
    assert list(est.reorder([0, 1, 2, 3]).get_feature_names_out()) == list(names)


@pytest.mark.parametrize(
    "order", [[0, 1], [0, 1, 2, 2], [0, 1, 2, 4], [0.0, 1.0, 2.0, 3.0], "size", None, [[0]]]
)
def test_what_is_no_order_is_refused(order):
    est = mixture(max_iter=5).fit(rows())
    means = est.means_.copy()
    with pytest.raises(ValueError, match="order"):
        est.reorder(order)
    np.testing.assert_array_equal(est.means_, means)


def test_an_estimator_that_is_not_fitted_has_no_order():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        mixture().reorder([0, 1, 2, 3])


def test_the_annealing_of_a_stream_ends_first():
    X = rows(200)[np.random.default_rng(0).permutation(200)]
    method = DeterministicAnnealing(initial_temperature=5.0)
    est = mixture(annealing=method, total_samples=10_000, max_iter=1).partial_fit(X)
    with pytest.raises(ValueError, match="annealing of this stream has not ended"):
        est.reorder([1, 0, 2, 3])


def evaluated(est, X):
    """The bound of the fitted parameters, from another pass over the data."""
    return clone_of(est).set_params(warm_start=True, max_iter=0).fit(X).lower_bound_


def clone_of(est):
    return pickle.loads(pickle.dumps(est))


# Forms whose given priors differ between components, and a model without the interface.
REFUSED = (
    "asymmetric",
    "sticky",
    "forbidding",
    "lasting",
    "markov_blocks-full",
    "centered",
    "each",
    "geometric",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("entry", "params"), each_value_of_each_class(variants()))
def test_every_model_is_the_same_in_another_order(entry, params, rng, request):
    X = entry.data(rng, 25)
    before = entry.make(**(params | entry.converged), effort=0).fit(X)
    order = np.roll(np.arange(before._inference.ctx.model.n_components), 1)
    if any(name in request.node.callspec.id for name in REFUSED):
        with pytest.raises(ValueError, match=r"exchange (their )?numbers"):
            before.reorder(order)
        return
    est = clone_of(before).reorder(order)
    moved = before.transform(X)[:, order]
    if "stick_a" in before._inference.ctx.q:
        # Weights that depend on the order change by a few rows, and nothing else does.
        assert evaluated(est, X) > est.lower_bound_ - 1.0
        np.testing.assert_allclose(est.transform(X), moved, atol=0.3)
    else:
        assert evaluated(est, X) == pytest.approx(evaluated(before, X), rel=1e-6)
        np.testing.assert_allclose(est.transform(X), moved, atol=1e-4)
        assert est.lower_bound_ == before.lower_bound_
        largest_first = clone_of(est).reorder("weight")
        weights = largest_first._weights_for_order(largest_first._inference.ctx)
        assert (np.diff(weights) <= 1e-9 * np.abs(weights).max()).all()
    np.testing.assert_allclose(
        est.reorder(np.argsort(order)).transform(X), before.transform(X), atol=1e-9
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "est",
    [
        AnnealedSigmoidBeliefNet((3, 2), max_iter=3, random_state=0),
        AnnealedSpikeSlabFactorAnalysis(
            3, solver="gradient", annealing="none", max_iter=5, random_state=0
        ),
        AnnealedPMF(3, annealing="none", max_iter=5, random_state=0),
    ],
)
def test_fits_by_gradients_and_ratings_go_on_alike_in_another_order(est, rng):
    X = (rng.random((60, 6)) < 0.4).astype(float)
    before = est.fit(X)
    order = np.array([2, 0, 1])
    est = clone_of(before).reorder(order)
    np.testing.assert_allclose(est.transform(X), before.transform(X)[:, order], atol=1e-4)
    if isinstance(est, AnnealedSigmoidBeliefNet):
        np.testing.assert_array_equal(est.coefs_[0], before.coefs_[0][order])
        np.testing.assert_array_equal(est.coefs_[1], before.coefs_[1][:, order])
        np.testing.assert_array_equal(
            est.recognition_coefs_[1], before.recognition_coefs_[1][:, order]
        )
        # All parameters have moments, which move with them.
        moments, old = (e._inference.ctx.state["optimizer"]["moments"] for e in (est, before))
        for name, arrays in moments.items():
            np.testing.assert_array_equal(arrays["W1"], old[name]["W1"][order])
        return
    if isinstance(est, AnnealedPMF):
        np.testing.assert_allclose(est.user_factors_, before.user_factors_[:, order])
        turned = before.user_factors_cov_[:, order[:, None], order]
        np.testing.assert_allclose(est.user_factors_cov_, turned, atol=1e-12)
        np.testing.assert_allclose(
            est.inverse_transform(est.transform(X)), before.inverse_transform(before.transform(X))
        )
    after = [e.partial_fit(X).components_ for e in (est, before)]
    np.testing.assert_allclose(after[0], after[1][order], atol=1e-3)


def test_states_that_are_known_keep_their_numbers(rng):
    states = np.repeat([0, 1, 0], 20)
    X = rng.normal(5.0 * states[:, None], 1.0)
    est = AnnealedHMM(2, annealing="none", random_state=0).fit(X, states=states)
    with pytest.raises(ValueError, match="numbers of the known ones"):
        est.reorder([1, 0])
    free = AnnealedHMM(2, annealing="none", random_state=0).fit(X)
    found = free.predict(X)
    np.testing.assert_array_equal(free.reorder([1, 0]).predict(X), 1 - found)
