"""Gamma-process factorisation as users meet it: streams, searches, pickles, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from cases_gamma_process_nmf import drawn_counts, nmf, sparse
from harness import context_of
from numpy.testing import assert_allclose
from scipy.sparse import bsr_matrix, coo_matrix, csr_matrix

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.inference import loop
from sklearn_anneal.inference.progress import Progress, Settings
from sklearn_anneal.inference.stopping import RiseOfBound
from sklearn_anneal.inference.visits import PLAIN
from sklearn_anneal.models import gamma_process_nmf
from sklearn_anneal.models._count_visits import CountsVisit
from sklearn_anneal.parallel.workers import SEQUENTIAL

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
both_fits = pytest.mark.parametrize("method", ["fit", "partial_fit"])


@pytest.fixture
def X(rng):
    return drawn_counts(rng)


# Passes that explore


def test_fits_to_full_tables_explore_until_the_bound_rises_little(monkeypatch, rng):
    X, explored = drawn_counts(rng, n=200, n_columns=20, size=20.0), []
    assert (X > 0).mean() > 0.25

    def start(self, units, local, exploring, *rest, usual=CountsVisit.start):
        if self.sweeps:
            explored.append(exploring)
        return usual(self, units, local, exploring, *rest)

    monkeypatch.setattr(CountsVisit, "start", start)
    # Small tables explore in passes between those of the loop as well, whose rises add up.
    for most, together in ((0, 1), (X.size * 3, 1 + loop.EXPLORING_PASSES)):
        monkeypatch.setattr(gamma_process_nmf, "SMALL", most)
        explored.clear()
        est = nmf(max_iter=400, tol=1e-5).fit(X)
        rises = np.abs(np.diff(est.lower_bounds_)) / X.sum()
        limit = gamma_process_nmf._EXPLORING_FACTOR * together * est.tol
        n_passes = 1 + np.flatnonzero(rises < limit)[0]
        # The first visit precedes all bounds, and the next one shows the first.
        assert explored.index(False) == n_passes + 2
        assert rises[n_passes - 1] > est.tol


def test_only_full_tables_without_noise_explore_for_fewer_passes(rng):
    full = drawn_counts(rng, n=200, n_columns=20, size=20.0)
    few, light = np.hstack([full, np.zeros((200, 400))]), np.minimum(full, 2.0)

    def factor(X, **params):
        return context_of(nmf(max_iter=1, **params).fit(X)).model.exploring_factor

    assert factor(full) == factor(sparse(full)) > 1.0
    assert factor(few) == factor(light) == factor(full, dispersion=0.5) == 1.0
    assert factor(full, init_params="collapsed_gibbs") == 1.0


# Searches of full tables


def test_moves_over_full_tables_pause_and_only_the_best_goes_on(monkeypatch, rng):
    """Those that pause have a bound, and the search ends with a fit that has converged."""
    X, ends = drawn_counts(rng, n=200, n_columns=20, size=20.0), []

    def fit(progress, *rest, usual=loop.fit, **how):
        usual(progress, *rest, **how)
        ends.append((progress.paused, progress.finished, progress.trace.final))
        return progress

    monkeypatch.setattr(loop, "fit", fit)
    how = {"n_components": 6, "annealing": "reheating", "max_iter": 100, "effort": "auto"}
    est = AnnealedGammaProcessNMF(**how, random_state=0).fit(X)
    found = est.search_results_
    moves = {"guided swap", "random swap", "merge", "reheat"}
    assert set(found["move"][:-1]) <= moves
    assert found["move"][-1] == "continuation" and found["kept"][-1]
    assert any(paused for paused, *_ in ends[:-1])
    assert all(paused != finished for paused, finished, _ in ends)
    assert ends[-1][1] and est.converged_
    _, *bounds = (bound for *_, bound in ends)
    assert_allclose(found["lower_bound"], bounds)
    assert est.lower_bound_ == max(bounds)
    monkeypatch.undo()
    first = AnnealedGammaProcessNMF(**how | {"effort": 0}, random_state=0).fit(X)
    assert est.lower_bound_ > first.lower_bound_


def test_a_fit_that_has_paused_ends_where_it_would_have_ended_at_once(rng):
    X = drawn_counts(rng, n=200, n_columns=20, size=20.0)
    ends = []
    for factor in (1.0, 50.0):
        est = nmf(n_components=6, max_iter=0).fit(X)
        units = est._make_units(X, None)
        progress = Progress(context_of(est), PLAIN)
        settings = Settings(200, RiseOfBound(1e-7), None, 1.0, 0.6, pause_factor=factor)
        loop.fit(progress, units, settings, SEQUENTIAL)
        assert progress.paused == (factor > 1.0) != progress.finished
        paused_at = progress.trace.final
        if progress.paused:
            assert not progress.trace.converged
            assert len(progress.trace.lower_bounds) == progress.passes
            assert progress.trace.lower_bounds[-1] == paused_at
            progress = progress.resumed(progress.ctx)
            settings = settings._replace(pause_factor=1.0)
            loop.fit(progress, units, settings, SEQUENTIAL)
        assert progress.trace.converged
        ends.append(progress.trace.final)
    assert ends[1] > paused_at + 1e-7 * X.sum()
    assert_allclose(ends[1], ends[0], atol=1e-6 * X.sum())


def test_the_last_bound_is_that_of_the_result_if_a_search_is_stopped_after_a_pause(rng):
    pytest.importorskip("sklearn.callback", reason="scikit-learn has them since 1.9")
    X = drawn_counts(rng, n=200, n_columns=20, size=20.0)

    class Stop:
        max_propagation_depth = None

        def __init__(self, name):
            self.name = name

        def setup(self, estimator, context): ...

        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context):
            return context.task_name == self.name

    est = AnnealedGammaProcessNMF(
        n_components=6, annealing="reheating", effort="auto", random_state=0
    )
    est.set_callbacks(Stop("merge")).fit(X)
    found = est.search_results_
    assert list(found["move"]) == ["merge"] and found["kept"].all() and not est.converged_
    assert est.lower_bounds_[-1] == est.lower_bound_ == found["lower_bound"][-1]
    assert est.n_iter_ == found["n_before"][-1] + found["n_passes"][-1] == est.n_passes_


# Streams


def test_a_stream_takes_sparse_and_dense_batches(rng):
    X = drawn_counts(rng, n=400)
    gapped = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    est = nmf()
    est.partial_fit(sparse(X[:100])).partial_fit(X[100:200]).partial_fit(gapped[200:300])
    est.partial_fit(sparse(X[300:]))
    assert est.n_iter_ == 4 and est.lower_bounds_.shape == (4,)
    assert (est.temperatures_ == 1.0).all()
    assert np.isfinite(est.components_).all()
    assert context_of(est).summary.rows == 400
    one = nmf().partial_fit(X[:100])
    assert est.score(X) > one.score(X)


def test_the_scale_of_a_stream_is_that_of_its_first_batch(X):
    """Updates alone keep it, and a fit to all rows so far finds theirs."""
    grown = nmf().partial_fit(X).partial_fit(10 * X)
    assert context_of(grown).model.scale == pytest.approx(1.0 / (5.5 * X.mean()))
    est = nmf().set_params(max_iter=1).partial_fit(X)
    scale = context_of(est).model.scale
    assert scale == pytest.approx(1.0 / X.mean())
    est.partial_fit(10 * X)
    assert context_of(est).model.scale == scale


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_batches_of_zeros_come_later_than_the_first(kind, X):
    zeros = kind(np.zeros((5, 7)))
    with pytest.raises(ValueError, match="All counts of X .* are zero"):
        nmf().partial_fit(zeros)
    est = nmf().partial_fit(X)
    before = est.components_
    est.partial_fit(zeros)
    assert est.n_iter_ == 2
    assert np.isfinite(est.lower_bound_)
    assert est.components_.sum() < before.sum()


def test_a_batch_without_any_cell_is_accepted_later(X):
    est = nmf().partial_fit(X).partial_fit(np.full((3, 7), np.nan))
    assert np.isfinite(est.components_).all()


def test_a_column_may_be_missing_in_a_later_batch(X):
    hidden = X.copy()
    hidden[:, 2] = np.nan
    with pytest.raises(ValueError, match="Column 2 of X has no observed value"):
        nmf().partial_fit(hidden)
    assert np.isfinite(nmf().partial_fit(X).partial_fit(hidden).components_).all()


def test_the_error_of_a_fit_does_not_outlive_it(X):
    """A batch of a stream changes the components, to which the error would not belong."""
    est = nmf().fit(X)
    assert est.reconstruction_err_ > 0
    assert not hasattr(est.partial_fit(X), "reconstruction_err_")
    assert est.fit(X).reconstruction_err_ > 0


# Fits that go on


def test_starts_differ(X):
    """At random numbers and at means of rows, each with two seeds, dense and sparse alike."""
    for start in ("random", "random_from_data"):
        for seed in (0, 1):
            how = {"init_params": start, "random_state": seed, "max_sweeps": 5, "sweep_tol": 0.0}
            dense, compressed = nmf(**how).fit(X), nmf(**how).fit(sparse(X))
            assert dense.lower_bounds_[0] == pytest.approx(compressed.lower_bounds_[0], rel=1e-10)
    bounds = {
        nmf(init_params=start, random_state=seed).fit(X).lower_bounds_[0]
        for start in ("random", "random_from_data")
        for seed in (0, 1)
    }
    assert len(bounds) == 4


def test_components_that_start_from_rows_are_means_of_rows(rng):
    """Two groups of rows that share no column."""
    X = np.kron(np.eye(2), np.ones((30, 4))) * 50.0
    est = nmf(n_components=8, init_params="random_from_data", max_iter=0).fit(X)
    shares = est.components_[:, :4].sum(axis=1) / est.components_.sum(axis=1)
    assert shares.std() > 0.05
    gapped = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    start = nmf(n_components=8, init_params="random_from_data", max_iter=0).fit(gapped)
    assert (start.components_ > 0).all()


def test_more_components_than_rows_or_columns():
    X = np.array([[3, 0, 1], [0, 5, 2]])
    est = nmf(n_components=40, max_iter=50).fit(X)
    assert est.components_.shape == (40, 3)
    assert np.isfinite(est.lower_bound_)
    for small in (X[:1], X[:, :1]):
        assert np.isfinite(nmf().fit(small).transform(small)).all()


# In the tools of scikit-learn


def test_missing_cells_of_data_frames(X):
    pandas = pytest.importorskip("pandas")
    gapped = X.copy()
    gapped[3, 2] = np.nan
    frame = pandas.DataFrame(gapped).astype("Int64")
    assert_allclose(nmf().fit(frame).components_, nmf().fit(gapped).components_)


# Refusals


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.0, "Negative values in data passed to AnnealedGammaProcessNMF"),
        (np.inf, "infinity"),
        (1e18, r"largest number of X is 1e\+18, .* up to 2\*\*53.* Divide X by a constant"),
        (1e308, r"largest number of X is 1e\+308, .* Divide X by a constant"),
    ],
)
def test_numbers_that_are_no_counts_are_refused(value, message, kind, X):
    est = nmf().fit(X)
    X[3, 2] = value
    calls = nmf().fit, nmf().partial_fit, est.partial_fit, est.transform, est.score
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call(kind(X))


def test_the_largest_count_is_accepted(X):
    X[3, 2] = 2.0**53
    assert np.isfinite(nmf().fit(X).lower_bound_)
    assert np.isfinite(nmf().fit(sparse(X)).score(X))


def test_nan_in_sparse_matrices_is_refused(X):
    est = nmf().fit(X)
    given = sparse(X)
    given.data[4] = np.nan
    for call in (nmf().fit, nmf().partial_fit, est.transform, est.score):
        with pytest.raises(ValueError, match=r"sparse matrix with NaN.* Give X.toarray\(\)"):
            call(given)


def test_masked_cells_are_refused(X):
    est = nmf().fit(X)
    masked = np.ma.array(X, mask=X > 9)
    for call in (nmf().fit, nmf().partial_fit, est.transform, est.score):
        with pytest.raises(ValueError, match=r"masked array.* X.filled\(numpy.nan\)"):
            call(masked)
    with pytest.raises(ValueError, match="masked array"):
        est.inverse_transform(np.ma.array(np.ones((2, 3)), mask=np.eye(2, 3)))
    nmf().fit(np.ma.array(X, mask=False))


@both_fits
def test_data_that_tell_nothing_are_refused(method, X):
    for nothing in (0 * X, sparse(0 * X), np.full((3, 7), np.nan)):
        with pytest.raises(ValueError, match="All counts of X .* are zero"):
            getattr(nmf(), method)(nothing)
    weights = (np.arange(60) < 2).astype(float)
    with pytest.raises(ValueError, match=r"\(or their weights\) are zero"):
        getattr(nmf(), method)(X, sample_weight=weights)
    X[:, 4] = np.nan
    with pytest.raises(ValueError, match="Column 4 of X has no observed value"):
        getattr(nmf(), method)(X)


def test_scores_of_nothing_are_refused(X):
    est = nmf().fit(X)
    with pytest.raises(ValueError, match="no observed cell"):
        est.score(np.full((2, 7), np.nan))
    with pytest.raises(ValueError, match="All sample weights are zero"):
        est.score(X, sample_weight=np.zeros(60))


def test_other_widths_are_refused(X):
    est = nmf().fit(X)
    for call in (est.transform, est.score, est.partial_fit):
        with pytest.raises(ValueError, match="X has 5 features, but .* expecting 7"):
            call(X[:, :5])
    with pytest.raises(ValueError, match="X has 7 columns, .* each of the 3 components"):
        est.inverse_transform(X)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"activation_prior": 0.0}, "'activation_prior' parameter"),
        ({"component_prior": -1.0}, "'component_prior' parameter"),
        ({"concentration": "learned"}, "'concentration' parameter"),
        ({"init_params": "nndsvd"}, "'init_params' parameter"),
        ({"max_sweeps": 0}, "'max_sweeps' parameter"),
        ({"sweep_tol": -1e-3}, "'sweep_tol' parameter"),
    ],
)
@both_fits
def test_bad_parameters_are_refused(method, params, message, X):
    with pytest.raises(ValueError, match=message):
        getattr(nmf(**params), method)(X)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("container", [coo_matrix, bsr_matrix])
def test_repeated_entries_add_up_whatever_their_type_is(container, dtype):
    """Two entries of 100 are a count of 200, which int8 does not hold."""
    if container is bsr_matrix:
        given = bsr_matrix(
            (np.full((2, 1, 2), 100, dtype), [0, 0], [0, 2, 2]), shape=(2, 2), dtype=dtype
        )
    else:
        given = coo_matrix((np.full(4, 100, dtype), ([0, 0, 0, 0], [0, 0, 1, 1])), shape=(2, 2))
    est = nmf().fit(given)
    # The precision decides when a fit to so few counts ends and, where it is single, the kind of
    # table too: its bound is so flat that roundings move parts by 1e-4.
    single = dtype is np.float32
    counts = np.array([[200.0, 200.0], [0.0, 0.0]], dtype=np.float32 if single else np.float64)
    expected = nmf().fit(csr_matrix(counts) if single else counts)
    assert_allclose(est.components_, expected.components_, rtol=1e-6 if single else 1e-4)


@pytest.mark.parametrize("prior", [1e-40, 1e-50, 1e-300])
def test_the_sparsest_priors_fit_single_precision(X, prior):
    """Shapes that small are 0 in float32, and a distribution with the shape 0 has no bound.

    Further passes, which single precision cannot make here, would lead to another optimum.
    """
    expected = nmf(activation_prior=prior, max_sweeps=16).fit(X)
    for single in (X.astype(np.float32), sparse(X.astype(np.float32))):
        assert np.isfinite(nmf(activation_prior=prior).fit(single).lower_bound_)
        est = nmf(activation_prior=prior, max_sweeps=16).fit(single)
        assert est.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-5)
        assert_allclose(est.transform(single), expected.transform(X), rtol=1e-3, atol=1e-6)
        assert np.isfinite(est.partial_fit(single).components_).all()


def test_bool_counts(X):
    expected = nmf().fit((X > 1).astype(float)).lower_bound_
    for other in (X > 1, csr_matrix(X > 1)):
        assert nmf().fit(other).lower_bound_ == pytest.approx(expected, rel=1e-9)


def test_words_of_components_in_use(rng):
    """Those with the largest expected counts; components without use have none, and a warning."""
    X = np.zeros((60, 6))
    X[:30, :2], X[30:, 3:5] = rng.poisson(20, (30, 2)), rng.poisson(20, (30, 2))
    names = np.array(list("abcdef"))
    nmf = AnnealedGammaProcessNMF(6, random_state=0).fit(X)
    unused = 6 - nmf.n_effective_components_
    assert unused > 0
    with pytest.warns(UserWarning, match=f"{unused} of 6 components are not in use"):
        words = nmf.top_words(names, 2)
    assert {frozenset(row) for row in words if len(row)} == {frozenset("ab"), frozenset("de")}
    for row, means in zip(words, nmf.components_, strict=True):
        if len(row):
            assert list(row) == list(names[np.argsort(-means)[:2]])
    with pytest.raises(ValueError, match=r"each of the 6 words.*\(2,\)"):
        nmf.top_words(["a", "b"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1e-3, 1e-6])
@pytest.mark.parametrize("k", [3, 16])
@pytest.mark.parametrize("max_sweeps", [None, 4])
def test_light_counts_under_sparse_priors_belong_to_components(scale, k, max_sweeps, rng):
    """Exponentials of all expected logarithms of a row underflow, and it has parts all the same."""
    X = scale * rng.poisson(2.0, (20, 6))
    how = {"activation_prior": 1e-3, "max_iter": 100, "tol": 0, "max_sweeps": max_sweeps}
    bounds = []
    for kind in (np.asarray, csr_matrix):
        for dtype in (np.float64, np.float32):
            est = nmf(n_components=k, **how).fit(kind(X.astype(dtype)))
            ctx = est._inference.ctx
            assigned = ctx.model.expected_counts(ctx.q, ctx.prior).sum()
            assert_allclose(assigned, X.sum(), rtol=1e-5)
            bounds.append(est.lower_bound_)
    assert_allclose(bounds, bounds[0], rtol=1e-2)
