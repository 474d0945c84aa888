"""Starts of gamma-process factorisation by collapsed Gibbs sampling."""

from __future__ import annotations

import pickle
from copy import deepcopy
from itertools import product

import numpy as np
import pytest
from harness import AfterPass
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix
from scipy.special import gammaln

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.datasets import make_gamma_process_nmf
from sklearn_anneal.models import _count_allocations
from sklearn_anneal.models._count_allocations import allocated


def log_joint(parts, counts, alpha, eta):
    """log p(parts of all counts) up to a constant, with shares and profiles integrated out."""
    rows, columns = np.nonzero(counts)
    (n, v), result = counts.shape, 0.0
    of_rows, of_parts = np.zeros((n, 2)), np.zeros((2, v))
    np.add.at(of_rows, (rows, parts), 1.0)
    np.add.at(of_parts, (parts, columns), 1.0)
    result += gammaln(of_rows + alpha).sum() + gammaln(of_parts + eta).sum()
    return result - gammaln(of_parts.sum(axis=1) + v * eta).sum()


def test_many_sweeps_have_the_mean_of_the_exact_posterior(monkeypatch):
    """All parts of five single counts are enumerated; parts are told apart by their sizes."""
    counts = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]])
    every = np.array(list(product((0, 1), repeat=5)))
    logs = np.array([log_joint(parts, counts, 0.4, 0.3) for parts in every])
    probabilities = np.exp(logs - logs.max())
    probabilities /= probabilities.sum()
    # How probable it is that two counts are in the same part does not depend on the names of parts.
    sizes = every.sum(axis=1)
    exact = probabilities @ (sizes**2 + (5 - sizes) ** 2)
    monkeypatch.setattr(_count_allocations, "_SWEEPS", 3)
    monkeypatch.setattr(_count_allocations, "_AVERAGED", 1)
    found = [
        allocated(csr_array(counts.astype(float)), None, 2, (0.4, 0.3), seed).sum(axis=1)
        for seed in range(2000)
    ]
    # Three sweeps from a random allocation are near the posterior, but for a few percent.
    assert np.mean(np.square(found).sum(axis=1)) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.3, 40.0])
def test_all_counts_are_allocated(weighted, factor, rng):
    counts = csr_array(factor * rng.poisson(2.0, size=(20, 9)))
    counts.eliminate_zeros()
    weights = rng.integers(1, 4, size=20).astype(float) if weighted else None
    own = allocated(counts, weights, 3, (0.1, 0.1), 0)
    assert own.shape == (3, 9)
    assert own.min() >= 0
    expected = counts.T @ (np.ones(20) if weights is None else weights)
    assert_allclose(own.sum(axis=0), expected, rtol=1e-9)


def test_a_fit_begins_with_the_allocated_parts():
    """Before any pass, the parts of a fit are those from which the counts were drawn."""
    X, _, truth = make_gamma_process_nmf(
        200, 30, n_components=4, mean_count=2.0, activation_prior=0.3, component_prior=0.2,
        random_state=0,
    )  # fmt: skip
    settings = {"init_params": "collapsed_gibbs", "annealing": "none", "random_state": 1}
    start = AnnealedGammaProcessNMF(4, max_iter=0, **settings).fit(X)
    profiles, drawn = (
        each / np.linalg.norm(each, axis=1, keepdims=True)
        for each in (start.components_, truth.components)
    )
    assert (drawn @ profiles.T).max(axis=1).min() > 0.97
    # The counts that are expected are those that there are.
    assert_allclose(start.components_.sum(axis=0), X.mean(axis=0), atol=0.3)
    sparse = AnnealedGammaProcessNMF(4, max_iter=0, **settings).fit(csr_matrix(X))
    assert_array_equal(sparse.components_, start.components_)


def test_texts_of_many_parts_have_a_higher_bound_after_a_few_passes():
    X, _, _ = make_gamma_process_nmf(
        300, 400, n_components=25, mean_count=0.15, activation_prior=0.05, component_prior=0.05,
        random_state=0,
    )  # fmt: skip
    few = AnnealedGammaProcessNMF(
        25, init_params="collapsed_gibbs", annealing="none", max_iter=10, random_state=0
    ).fit(csr_matrix(X))
    many = AnnealedGammaProcessNMF(25, init_params="random", annealing="none", random_state=0).fit(
        csr_matrix(X)
    )
    assert few.lower_bound_ > many.lower_bound_ + 0.01 * X.sum()


def test_zeros_that_are_stored_change_nothing(rng):
    """Allocations and moves leave them out, and the columns of the other counts stay."""
    X = rng.poisson(0.4, size=(40, 12)).astype(float)
    stored = csr_matrix(X + 1.0)
    stored.data -= 1.0
    how = {"max_iter": 10, "random_state": 0}
    found, expected = (
        AnnealedGammaProcessNMF(3, **how).fit(each) for each in (stored, csr_matrix(X))
    )
    assert list(found.search_results_["move"]) == list(expected.search_results_["move"])
    assert_allclose(found.components_, expected.components_, rtol=1e-6)


def test_rows_with_missing_cells_begin_too():
    X = np.random.default_rng(0).poisson(2.0, size=(40, 8)).astype(float)
    X[::3, 2] = np.nan
    est = AnnealedGammaProcessNMF(
        3, init_params="collapsed_gibbs", annealing="none", random_state=0
    )
    bounds = est.fit(X).lower_bounds_
    assert np.isfinite(bounds).all()
    assert bounds[-1] == max(bounds)


def test_one_large_count_does_not_blur_the_allocation_of_single_ones():
    X, _, _ = make_gamma_process_nmf(
        150, 60, n_components=3, mean_count=0.6, activation_prior=0.2, component_prior=0.1,
        random_state=0,
    )  # fmt: skip
    counts = csr_array(X.astype(float))
    counts.eliminate_zeros()
    largest = csr_array(counts)
    largest.data[0] = 400.0
    pure = []
    for each in (counts, largest):
        own = np.delete(allocated(each, None, 3, (0.1, 0.1), 0), counts.indices[0], axis=1)
        # How much of the counts of a column belongs to the part that has most of them.
        pure.append(own.max(axis=0).sum() / own.sum())
    assert pure[0] > 0.75
    assert pure[1] > pure[0] - 0.05


def kept_start(X, **how):
    """The moves of a default search, and the kind of start that the best fit comes from."""
    est = AnnealedGammaProcessNMF(3, max_iter=1, random_state=0).fit(X, **how)
    return list(est.search_results_["move"]), est._context().model


@pytest.mark.filterwarnings("ignore:X holds fractions of counts")
@pytest.mark.parametrize("sparse", [False, True])
def test_a_search_begins_with_an_allocation_if_cells_hold_few_counts(sparse, rng):
    few, many = (rng.poisson(mean, size=(40, 12)).astype(float) for mean in (0.4, 9.0))
    for X, allocates in ((few, True), (many, False), (0.3 * few, False)):
        moves, model = kept_start(csr_matrix(X) if sparse else X)
        assert model.allocates == allocates
        assert (moves[0] == "start") == allocates
    # Weights count: the mean is that of the heavier rows.
    for heavy, allocates in ((slice(0, 20), True), (slice(20, 40), False)):
        weights = np.full(40, 1e-3)
        weights[heavy] = 2.0
        _, model = kept_start(np.vstack([few[:20], many[20:]]), sample_weight=weights)
        assert model.allocates == allocates


def test_plain_inference_begins_at_random_numbers(rng):
    """Without a search nothing is allocated, where the counts have parts."""
    X = rng.poisson(rng.gamma(0.3, size=(40, 3)) @ np.kron(np.eye(3), np.full(4, 1.5)))
    auto, random = (
        AnnealedGammaProcessNMF(3, annealing="none", init_params=name, random_state=0).fit(X)
        for name in ("auto", "random")
    )
    assert_array_equal(auto.components_, random.components_)


def test_texts_of_many_parts_keep_the_allocation_and_then_search_little():
    X, _, _ = make_gamma_process_nmf(
        150, 300, n_components=20, mean_count=0.2, activation_prior=0.05, component_prior=0.05,
        random_state=0,
    )  # fmt: skip
    how = {"max_iter": 30, "random_state": 0}
    usual, longer = (
        AnnealedGammaProcessNMF(20, effort=effort, **how).fit(csr_matrix(X))
        for effort in ("auto", 4.0)
    )
    for est in (usual, longer):
        # The allocation has paid, and is not repeated for that.
        assert est.search_results_["move"][0] == "start"
        assert est.search_results_["kept"][0]
        assert "start" not in est.search_results_["move"][1:3]
        assert est._context().model.init_params == "collapsed_gibbs"
    assert usual.n_passes_ < longer.n_passes_


def test_a_table_of_few_parts_keeps_its_number_of_them():
    """An allocation uses all parts that there may be, and its bound is lower for that."""
    X, _, _ = make_gamma_process_nmf(
        300, 40, n_components=4, mean_count=0.4, activation_prior=0.2, component_prior=0.2,
        random_state=1,
    )  # fmt: skip
    est = AnnealedGammaProcessNMF(15, random_state=0).fit(X)
    assert est.search_results_["move"][0] == "start"
    assert not est.search_results_["kept"][0]
    assert 3 <= est.n_effective_components_ <= 6


# Means over allocations


@pytest.fixture(scope="module")
def texts():
    X, _, _ = make_gamma_process_nmf(
        240, 120, n_components=8, mean_count=0.15, activation_prior=0.1, component_prior=0.1,
        random_state=0,
    )  # fmt: skip
    X = csr_matrix(X)
    return X, AnnealedGammaProcessNMF(8, random_state=0).fit(X[:160])


def test_sampling_that_goes_on_keeps_all_counts_and_the_parts(rng):
    own = rng.poisson(40.0 * np.eye(3).repeat(3, axis=1)).astype(float)
    counts = csr_array(np.concatenate([np.diag(each) for each in own]))
    counts.eliminate_zeros()
    found = allocated(counts, None, 3, (0.1, 0.1), 0, own)
    assert_allclose(found.sum(axis=0), own.sum(axis=0), rtol=1e-9)
    # Counts in rows of their own know nothing of each other but their columns.
    assert (np.argmax(found, axis=0) == np.argmax(own, axis=0)).all()


def test_predictions_of_texts_are_by_means_over_allocations(texts):
    X, est = texts
    ctx = est._inference.ctx
    of_bound = ctx.model.means(ctx.q)
    assert np.abs(est.components_ - of_bound).max() > 1e-3
    # The counts that a row of mean activations expects are those that there are; the prior of
    # profiles moves a few of them from one column to another.
    assert_allclose(est.components_.sum(), X[:160].sum() / 160)
    assert_allclose(est.components_.sum(axis=0), X[:160].toarray().mean(axis=0), atol=0.05)
    assert_array_equal(est.inverse_transform(est.activations_), est.activations_ @ est.components_)
    assert_allclose(est.transform(X[:160]), est.activations_)
    averaged = est.score(X[160:])
    other = deepcopy(est)
    del other._averaged
    assert_array_equal(other.components_, of_bound)
    assert averaged > other.score(X[160:])


def test_bounds_and_numbers_do_not_depend_on_the_mean(texts, monkeypatch):
    X, est = texts
    monkeypatch.setattr(_count_allocations, "_FURTHER_SWEEPS", 1)
    other = AnnealedGammaProcessNMF(8, random_state=0).fit(X[:160])
    assert np.abs(other.components_ - est.components_).max() > 1e-3
    assert_array_equal(other.lower_bounds_, est.lower_bounds_)
    assert other.n_effective_components_ == est.n_effective_components_
    assert_array_equal(other.component_weights_, est.component_weights_)


def test_means_over_allocations_are_saved_and_end_with_a_stream(texts):
    X, est = texts
    again = pickle.loads(pickle.dumps(est))
    assert_array_equal(again.components_, est.components_)
    assert again.score(X[160:]) == est.score(X[160:])
    ctx = again.partial_fit(X[160:])._inference.ctx
    assert_array_equal(again.components_, ctx.model.means(ctx.q))


def test_callbacks_of_another_fit_see_its_own_components(texts):
    pytest.importorskip("sklearn.callback", reason="scikit-learn has them since 1.9")
    differences = []

    def noted(fitted):
        ctx = fitted._inference.ctx
        means = ctx.model.means(ctx.q)
        differences.append(np.abs(fitted.components_ - means).max())

    X, est = texts
    again = deepcopy(est).set_params(max_iter=2, effort=0).set_callbacks(AfterPass(noted))
    again.fit(X[:160])
    assert differences
    assert max(differences) == 0.0


def test_weights_are_copies_for_means_over_allocations(texts):
    X, est = texts
    twice = AnnealedGammaProcessNMF(8, random_state=0).fit(X[:160], np.full(160, 2.0))
    assert_allclose(twice.components_.sum(), est.components_.sum())


@pytest.mark.parametrize(
    "how", [{"annealing": "none"}, {"popularity_prior": 1.0}, {"init_params": "random"}]
)
def test_other_fits_predict_by_the_means_of_their_posterior(how, texts):
    X, _ = texts
    est = AnnealedGammaProcessNMF(8, random_state=0, max_iter=5, **how).fit(X[:160])
    ctx = est._inference.ctx
    assert_array_equal(est.components_, ctx.model.means(ctx.q))
