"""Predictions of gamma-process factorisation: transform and back, score, errors, draws."""

from __future__ import annotations

from itertools import product

import numpy as np
import plain_gamma_process_nmf as plain
import plain_topics
import pytest
from cases_gamma_process_nmf import drawn_counts, nmf, sparse
from harness import context_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix, vstack
from scipy.special import gammaln, softmax
from scipy.stats import poisson
from sklearn.decomposition._nmf import _beta_divergence

from sklearn_anneal import AnnealedGammaProcessNMF, Shards
from sklearn_anneal.metrics import split_documents

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# The same number of sweeps over every row, here and in the plain step.
SWEEPS = {"max_sweeps": 15, "sweep_tol": 0.0}


@pytest.fixture
def X(rng):
    return drawn_counts(rng)


@pytest.fixture
def gapped(rng):
    return drawn_counts(rng, missing=0.2)


# Transform and back


def collapsed(est, X, exposure=1.0):
    """E h of rows, by the plain division of their counts and parts divided by the rates."""
    b, parts = est.activation_prior_, exposure * est.components_
    result = []
    for row in X:
        rate = b + parts[:, ~np.isnan(row)].sum(axis=1)
        filled = np.flatnonzero(row > 0)
        shares = parts[:, filled] / rate[:, None]
        n = plain.collapsed(row[filled], shares.T, b, est.max_sweeps) if len(filled) else 0.0
        result.append((b + n) / rate)
    return np.array(result)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_transform_returns_the_expected_activations(missing, rng):
    X = drawn_counts(rng, missing=missing)
    est = nmf(**SWEEPS).fit(X)
    assert_allclose(est.transform(X), collapsed(est, X), rtol=1e-9)


def test_threads_of_blas_are_limited_where_predictions_multiply_matrices(rng, monkeypatch):
    """Setting the limit takes longer than the activations of a small table."""
    full, missing = (drawn_counts(rng, n=400, missing=share) for share in (0.0, 0.2))
    limited, usual = [], AnnealedGammaProcessNMF._workers_for

    def workers_for(*args):
        limited.append(args)
        return usual(*args)

    monkeypatch.setattr(AnnealedGammaProcessNMF, "_workers_for", workers_for)
    for X, n in ((full, 0), (missing, 1)):
        est = nmf(**SWEEPS).fit(X)
        limited.clear()
        est.transform(X)
        assert len(limited) == n


def test_rows_converge_to_a_fixed_point_of_collapsed_topics(rng):
    """Topics with a prior b and parts divided by the rates, whose words are updated in turn."""
    X = drawn_counts(rng, size=20.0)
    est = nmf(max_sweeps=2000, sweep_tol=1e-10).fit(X)
    b, parts = est.activation_prior_, est.components_
    rate = b + parts.sum(axis=1)
    for row, found in zip(X[:12], est.transform(X)[:12], strict=True):
        filled = np.flatnonzero(row > 0)
        shares = parts[:, filled] / rate[:, None]
        n = plain_topics.cvb0(row[filled], shares, b, 500)[1]
        assert_allclose(found * rate, b + n, atol=1e-4)


def test_a_hundred_updates_come_nearer_to_the_fixed_point_than_those_word_by_word(rng):
    X = drawn_counts(rng, n=20, n_columns=30, size=1000.0)
    est = nmf(n_components=6).fit(X)
    b, parts = est.activation_prior_, est.components_
    rate, one_by_one = b + parts.sum(axis=1), []
    for row in X:
        filled = np.flatnonzero(row > 0)
        shares = parts[:, filled] / rate[:, None]
        n = plain_topics.cvb0(row[filled], shares, b, 100)[1] if len(filled) else 0.0
        one_by_one.append((b + n) / rate)
    found = est.transform(X)
    context_of(est).model.max_sweeps = 20_000
    limit = est.transform(X)
    assert np.abs(found - limit).mean() < 0.5 * np.abs(np.array(one_by_one) - limit).mean()


def test_a_single_count_has_the_exact_posterior(X):
    """It belongs to one part, and its row has no other counts that would say to which."""
    est = nmf().fit(X)
    b, parts = est.activation_prior_, est.components_
    rate = b + parts.sum(axis=1)
    shares = parts / rate[:, None]
    expected = (b + (shares / shares.sum(axis=0)).T) / rate
    assert_allclose(est.transform(np.eye(7)), expected, rtol=1e-9)


def test_few_counts_are_nearer_to_the_exact_posterior_than_in_the_mean_field(rng):
    """All ways of dividing five counts among three parts are enumerated."""
    est = nmf(component_prior=1.0).fit(drawn_counts(rng))
    rows = np.array([rng.multinomial(5, np.full(7, 1.0 / 7)) for _ in range(12)], dtype=float)
    b, parts = est.activation_prior_, est.components_
    rate = b + parts.sum(axis=1)
    exact = np.empty((len(rows), 3))
    ways = np.array(list(product(range(3), repeat=5)))
    numbers = np.array([np.bincount(way, minlength=3) for way in ways])
    for row, result in zip(rows, exact, strict=True):
        columns = np.repeat(np.arange(7), row.astype(int))
        logs = np.log(parts[ways, columns]).sum(axis=1)
        logs += (gammaln(b + numbers) - (b + numbers) * np.log(rate)).sum(axis=1)
        result[:] = (b + softmax(logs) @ numbers) / rate
    step = plain.local_step(rows, context_of(est).q, b, n_sweeps=500, tol=1e-8)
    errors = [np.abs(h - exact).sum() for h in (est.transform(rows), step.shape / step.rate)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transform_and_back_keep_the_dtype(dtype, X):
    est = nmf().fit(X.astype(dtype))
    codes = est.transform(X.astype(dtype))
    assert codes.dtype == est.components_.dtype == dtype
    again = est.inverse_transform(codes)
    assert again.dtype == dtype and again.shape == X.shape
    assert_allclose(again, codes @ est.components_, rtol=1e-5)
    assert_array_equal(est.fit_transform(X), est.fit(X).transform(X))


def test_expected_counts_have_the_sums_of_the_data(X):
    """At an optimum the columns of the reconstruction have the sums of X, but for the prior.

    The usual ``tol`` ends fits of such large counts sooner.
    """
    est = nmf(max_iter=1000, tol=1e-8).fit(1000 * X)
    expected = est.inverse_transform(est.transform(1000 * X))
    assert_allclose(expected.sum(axis=0), 1000 * X.sum(axis=0), rtol=5e-4)


def three_parts(rng, scale=1.0):
    """Counts of three parts, and a factorisation of up to twenty."""
    X = rng.poisson(rng.gamma(0.5, size=(80, 3)) @ rng.gamma(0.3, size=(3, 30)) * 5)
    return X * scale, AnnealedGammaProcessNMF(20, random_state=0)


@pytest.mark.parametrize(
    "container", [np.asarray, pytest.param(csr_matrix, marks=pytest.mark.exhaustive)]
)
def test_components_that_are_not_in_use_have_no_activations(container, rng):
    X, est = three_parts(rng)
    activations = est.set_params(effort=6).fit_transform(container(X))
    assert_array_equal(activations, est.transform(container(X)))
    ctx = context_of(est)
    counts = ctx.q["weights_shape"] - ctx.prior["weights_shape"]
    used = counts > 1
    assert used.sum() == est.n_effective_components_ == 3
    assert not activations[:, ~used].any()
    # All the others have the posterior means of the activations.
    means = est._infer(ctx, est._make_units(container(X), None))
    assert_array_equal(activations[:, used], means[:, used])
    assert_allclose(means[:, ~used], 1.0, rtol=0.01)
    # The sum of a row's activations, its largest one, and the reconstruction are about parts.
    assert used[activations.argmax(axis=1)].all()
    expected = est.inverse_transform(activations)
    assert_allclose(expected, activations @ est.components_)
    everything = means @ est.components_
    assert (expected <= everything).all()
    assert expected.sum() > 0.999 * everything.sum()


@pytest.mark.parametrize("scale", [1e-3, 1e-6])
def test_components_of_tiny_numbers_are_in_use(scale, rng):
    """All of them together have an expected count below 1, and what they explain is kept."""
    X, est = three_parts(rng, scale)
    est.fit(X)
    ctx = context_of(est)
    everything = est._infer(ctx, est._make_units(X, None)) @ est.components_
    assert est.inverse_transform(est.transform(X)).sum() > 0.5 * everything.sum()


def test_the_only_component_is_in_use(rng):
    """Its prior was learned, and says as much as its counts."""
    X = rng.poisson(1.0, size=(8, 5))
    est = AnnealedGammaProcessNMF(1, random_state=0).fit(X)
    assert est.inverse_transform(est.transform(X)).sum() == pytest.approx(X.sum(), rel=0.05)


def test_rows_without_any_cell_have_the_prior(gapped):
    est = nmf().fit(gapped)
    assert_allclose(est.transform(np.full((2, 7), np.nan)), 1.0)
    zeros = est.transform(np.zeros((2, 7)))
    assert (zeros < 0.1).all()


def test_threads_change_nothing(gapped, monkeypatch):
    from harness import make_threads_worthwhile

    make_threads_worthwhile(monkeypatch)
    large = np.tile(gapped, (20, 1))
    est = nmf().fit(large)
    one = est.transform(large)
    assert_array_equal(est.set_params(n_jobs=2).transform(large), one)
    assert est.score(large) == est.set_params(n_jobs=1).score(large)


# Score


def plain_score(est, X, weights=None):
    """The score from the split of the counts, the plain step, and scipy's Poisson distribution."""
    missing = np.isnan(X)
    observed, held_out = (
        half.toarray().astype(float) for half in split_documents(csr_matrix(np.nan_to_num(X)))
    )
    observed[missing] = np.nan
    # Half of the exposure is half of all rates.
    rates = 0.5 * collapsed(est, observed, exposure=0.5) @ est.components_
    logs = np.where(missing, 0.0, poisson(rates).logpmf(held_out)).sum(axis=1)
    weights = np.ones(len(X)) if weights is None else weights
    return weights @ logs / (weights @ (~missing).sum(axis=1))


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_score_predicts_one_half_from_the_other(missing, rng):
    X = drawn_counts(rng, missing=missing)
    est = nmf(**SWEEPS).fit(X)
    assert est.score(X) == pytest.approx(plain_score(est, X), rel=1e-9)
    weights = rng.uniform(0.0, 2.0, len(X))
    expected = plain_score(est, X, weights)
    assert est.score(X, sample_weight=weights) == pytest.approx(expected, rel=1e-9)


def test_missing_cells_do_not_count(X):
    """The score without a column, here the last, is that of components without it."""
    est = nmf(**SWEEPS).fit(X)
    hidden = X.copy()
    hidden[:, 6] = np.nan
    kept = slice(6)
    q = context_of(est).q
    narrow = nmf(**SWEEPS).fit(X[:, kept])
    context_of(narrow).q = {
        **q, "components_shape": np.asfortranarray(q["components_shape"][:, kept])
    }  # fmt: skip
    assert est.score(hidden) == pytest.approx(narrow.score(X[:, kept]), rel=1e-9)


def test_rows_of_zeros_have_a_score(X):
    est = nmf().fit(X)
    for zeros in (np.zeros((3, 7)), csr_matrix((3, 7))):
        activations = est.transform(zeros)
        assert est.score(zeros) <= 0.0
        assert np.isfinite(activations).all()
    assert est.score(vstack([csr_matrix(X), csr_matrix((3, 7))])) == pytest.approx(
        est.score(np.vstack([X, np.zeros((3, 7))]))
    )


# The error of the reconstruction


@pytest.mark.parametrize("kind", [np.asarray, sparse])
def test_the_error_is_that_of_scikit_learn(kind, X):
    est = nmf(max_iter=20).fit(kind(X))
    expected = _beta_divergence(
        kind(X), est.transform(kind(X)), est.components_, 1, square_root=True
    )
    assert est.reconstruction_err_ == pytest.approx(expected, rel=1e-6)


def test_the_error_is_that_of_observed_cells(gapped, rng):
    weights = rng.integers(0, 3, 60)
    est = nmf().fit(gapped, sample_weight=weights)
    expected = est.inverse_transform(est.transform(gapped))
    repeated = plain.divergence(
        np.repeat(gapped, weights, axis=0), np.repeat(expected, weights, axis=0)
    )
    assert est.reconstruction_err_ == pytest.approx(np.sqrt(2.0 * repeated), rel=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse])
def test_the_error_of_many_rows_of_zeros(kind, X):
    """Whole chunks of rows have no entry."""
    tall = np.vstack([X, np.zeros((2000, 7)), X])
    est = nmf().fit(kind(tall))
    expected = plain.divergence(tall, est.inverse_transform(est.transform(tall)))
    assert est.reconstruction_err_ == pytest.approx(np.sqrt(2.0 * expected), rel=1e-9)


# Draws


def test_samples_have_the_mean_of_the_model(rng):
    X = drawn_counts(rng, size=20.0)
    est = nmf(activation_prior=0.8).fit(X).set_params(random_state=0)
    drawn, activations = est.sample(40_000)
    assert drawn.shape == (40_000, 7) and activations.shape == (40_000, 3)
    assert drawn.dtype == np.int64
    error = activations.std(axis=0) / 200.0
    assert (np.abs(activations.mean(axis=0) - 1.0) < 4.0 * error).all()
    error = drawn.std(axis=0) / 200.0
    assert (np.abs(drawn.mean(axis=0) - est.components_.sum(axis=0)) < 4.0 * error).all()
    # Counts vary around the rates of their rows by the square root of these.
    rates = activations @ est.components_
    variance = (drawn - rates).var(axis=0) / rates.mean(axis=0)
    assert_allclose(variance, 1.0, atol=0.05)
    assert_array_equal(est.sample(40_000)[0], drawn)


def test_activations_of_draws_have_the_variance_of_the_prior(X):
    est = nmf(activation_prior=4.0).fit(X).set_params(random_state=1)
    _, activations = est.sample(50_000)
    assert_allclose(activations.var(axis=0), 1.0 / 4.0, rtol=0.05)


# Fitted attributes


def test_attributes_are_those_of_the_posterior(X):
    est = nmf().fit(X)
    q = context_of(est).q
    assert_allclose(est.component_weights_, q["weights_shape"] / q["weights_rate"])
    assert_allclose(est.component_weights_std_**2, q["weights_shape"] / q["weights_rate"] ** 2)
    means = q["components_shape"] / q["components_rate"]
    assert_allclose(est.components_, est.component_weights_[:, None] * means)
    counts = q["weights_shape"] - 1.0 / 3
    assert counts.sum() == pytest.approx(X.sum(), rel=1e-9)
    assert est.n_effective_components_ == (counts > 1).sum()


# Recommendations


@pytest.mark.parametrize("container", [np.asarray, csr_matrix])
def test_recommendations_are_in_the_order_of_expected_counts(container, rng):
    X = drawn_counts(rng)
    est = nmf().fit(container(X))
    n_items = X.shape[1]
    rates = [
        [sum(h * w for h, w in zip(row, column, strict=True)) for column in est.components_.T]
        for row in est.transform(X)
    ]
    items, scores = est.recommend(container(X), n=n_items + 2, return_scores=True)
    assert items.shape == scores.shape == (len(X), n_items + 2)
    for row, expected, found, score in zip(X, np.array(rates), items, scores, strict=True):
        unseen = [v for v in np.argsort(-expected, kind="stable") if row[v] == 0]
        assert found.tolist() == unseen + [-1] * (n_items + 2 - len(unseen))
        assert_allclose(score[: len(unseen)], expected[unseen], rtol=1e-10)
        assert np.isnan(score[len(unseen) :]).all()
    every = est.recommend(container(X), n=3, exclude_seen=False)
    assert_array_equal(every, np.argsort(-np.array(rates), axis=1, kind="stable")[:, :3])
    with pytest.raises(ValueError, match="1 or more; got 0"):
        est.recommend(X, n=0)


def test_recommendations_for_rows_of_the_training_data(X):
    weights = np.ones(len(X))
    weights[[1, 4]] = 0.0
    est = nmf().fit(X, sample_weight=weights)
    # Rows of weight zero keep their places.
    assert_allclose(est.activations_, est.transform(X), rtol=1e-10)
    users, seen = [4, 0, 4], X[[4, 0, 4]] > 0
    expected = est.recommend(X[users], n=5)
    for exclude in (seen, csr_matrix(seen), [np.flatnonzero(row) for row in seen]):
        assert_array_equal(est.recommend_for(users, n=5, exclude=exclude), expected)
    everything, scores = est.recommend_for(users, n=5, return_scores=True)
    assert_array_equal(everything, est.recommend(X[users], n=5, exclude_seen=False))
    rates = est.inverse_transform(est.transform(X[users]))
    assert_allclose(scores, np.take_along_axis(rates, everything, axis=1), rtol=1e-10)


def test_recommendations_that_are_equal_begin_with_the_lower_column(X):
    X[:, [2, 5]] = 0.0
    order = nmf().fit(X).recommend(np.zeros((1, X.shape[1])), n=X.shape[1])[0].tolist()
    assert order.index(5) == order.index(2) + 1


def test_missing_cells_can_be_recommended_and_say_nothing(gapped):
    est = nmf().fit(gapped)
    items = est.recommend(gapped, n=gapped.shape[1])
    for row, found in zip(gapped, items, strict=True):
        assert set(found[found >= 0]) == set(np.flatnonzero(~(row > 0)))
    codes = est.transform(gapped)
    assert_allclose(est.activations_, codes, rtol=1e-10)


def test_unknown_users_are_refused_with_a_way_out(X):
    est = nmf().fit(X)
    for unknown in (len(X), -1):
        with pytest.raises(ValueError, match=f"users has {unknown}, .*counts of new users"):
            est.recommend_for([0, unknown])
    with pytest.raises(ValueError, match="one dimension"):
        est.recommend_for([[0]])
    assert not hasattr(est.partial_fit(X), "activations_")
    parts = nmf().fit(Shards([X[:10], X[10:]]))
    for streamed in (est, parts):
        with pytest.raises(ValueError, match="not kept. Call recommend.X. with"):
            streamed.recommend_for([0])
        assert streamed.recommend(X[:2], n=1).shape == (2, 1)


def test_reordered_components_keep_their_activations(X):
    est = nmf().fit(X)
    before, order = est.recommend_for([0, 1, 2], n=4), np.roll(np.arange(est.n_components_), 1)
    est.reorder(order)
    assert_array_equal(est.recommend_for([0, 1, 2], n=4), before)
    assert_allclose(est.activations_, est.transform(X), rtol=1e-10)


def test_components_to_which_draws_moved_counts_are_in_use(rng):
    """Components of a single column are alike, so that draws divide its counts among all."""
    X = rng.poisson(2.3, (60, 1))
    nmf = AnnealedGammaProcessNMF(4, random_state=0).fit(X)
    assert nmf._averaged is not None
    assert_allclose(nmf.inverse_transform(nmf.transform(X)).mean(), X.mean(), rtol=0.02)
