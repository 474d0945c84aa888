"""``activation_prior="auto"``: held-out cells decide between sparse and Gaussian factors."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import norm
from sklearn.datasets import load_digits

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis, Shards
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.estimators._kinds_of_factors import (
    _EARLY_CLEAR,
    _EARLY_PASSES,
    _PASSES,
    _TOL,
    _advantage,
    _drawn,
    _spread,
    _Trial,
    compared,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def deleted(X):
    gaps = X.astype(float)
    gaps[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    return gaps


def dense():
    """Pictures, whose factors are on in most rows."""
    X = load_digits().data[:150]
    return deleted(X[:, X.std(axis=0) > 2.0])


def many_pictures():
    X = load_digits().data[:400]
    X = X[:, X.std(axis=0) > 0.1 * X.std()]
    return np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)


def sparse():
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((150, 5)) * (rng.random((150, 5)) < 0.2)
    return deleted(factors @ (3.0 * rng.standard_normal((5, 20))) + rng.standard_normal((150, 20)))


def sparse_with_little_noise():
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((150, 5)) * (rng.random((150, 5)) < 0.2)
    X = factors @ (3.0 * rng.standard_normal((5, 20))) + 0.1 * rng.standard_normal((150, 20))
    return deleted(X)


def fitted(X, k=None, **params):
    k = k or (5 if getattr(X, "shape", (0, 0))[1] == 20 else 15)
    settings = {"annealing": "none", "max_iter": 15, "random_state": 0}
    return AnnealedSpikeSlabFactorAnalysis(k, **(settings | params)).fit(X)


def assert_same(a, b):
    assert_array_equal(a.components_, b.components_)
    assert_array_equal(a.lower_bounds_, b.lower_bounds_)
    assert_array_equal(a.activation_probabilities_, b.activation_probabilities_)


@pytest.mark.parametrize(("X", "chosen"), [(dense(), 1.0), (sparse(), "learned")])
def test_the_fit_is_that_of_the_kind_that_predicts_better(X, chosen):
    est = fitted(X)
    assert_same(est, fitted(X, activation_prior=chosen))
    scores = est.held_out_scores_
    better, worse = ("gaussian", "learned") if chosen == 1.0 else ("learned", "gaussian")
    assert scores[f"{better}_error"] < scores[f"{worse}_error"]
    assert scores[f"{better}_log_density"] > scores[f"{worse}_log_density"]
    assert (scores["advantage"] > 2.0) == (chosen == 1.0)
    assert est.activation_prior == "auto"
    assert pickle.loads(pickle.dumps(est)).held_out_scores_ == scores


def test_scores_are_those_of_fits_that_do_not_see_the_cells(rng):
    X = sparse()
    held = ~np.isnan(X) & (rng.random(X.shape) < 0.1)
    units = Rows(X, patterns=cell_patterns(X))
    estimator = AnnealedSpikeSlabFactorAnalysis(5, noise_variance=0.5)
    squares, log_densities = _Trial(estimator, units, held, 7).scores()
    gaps = np.where(held, np.nan, X)
    for i, prior in enumerate(("learned", 1.0)):
        short = fitted(gaps, activation_prior=prior, random_state=7, noise_variance=0.5,
                       max_iter=_PASSES, tol=_TOL)  # fmt: skip
        means, std = short.impute(gaps, return_std=True)
        errors = np.where(held, (means - X) / np.nanstd(X, axis=0), 0.0) ** 2
        np.testing.assert_allclose(squares[i], errors.sum(axis=1), rtol=1e-8)
        # The deviations of cells that are observed are 0.
        cells = norm(means, np.where(held, std, 1.0)).logpdf(X)
        expected = np.where(held, cells, 0.0).sum(axis=1)
        np.testing.assert_allclose(log_densities[i], expected, rtol=1e-8)


def test_pictures_need_only_the_fits_that_start_alike(monkeypatch):
    """Sparse factors that start at Gaussian ones decide for these alone, and only if far ahead."""

    def undecided(self):
        raise AssertionError

    monkeypatch.setattr(_Trial, "scores", undecided)
    scores = fitted(many_pictures(), 20, max_iter=2).held_out_scores_
    assert scores["advantage"] > _EARLY_CLEAR
    for X in (sparse(), sparse_with_little_noise()):
        with pytest.raises(AssertionError):
            fitted(X, max_iter=2)


def test_sparse_factors_start_at_rotated_gaussian_ones(rng):
    """A few passes from there predict better than many from a draw of the prior."""
    X = sparse()
    held = ~np.isnan(X) & (rng.random(X.shape) < 0.1)
    units = Rows(X, patterns=cell_patterns(X))
    trial = _Trial(AnnealedSpikeSlabFactorAnalysis(5), units, held, 0)
    early, usual = trial.early_scores(), trial.scores()
    assert_array_equal(early[:, 1], usual[:, 1])
    totals = [scores[:, 0].sum(axis=1) for scores in (early, usual)]
    assert totals[0][0] < totals[1][0]
    assert totals[0][1] > totals[1][1]


def test_fits_that_start_alike_do_not_see_the_cells(monkeypatch, rng):
    X = sparse()
    held = ~np.isnan(X) & (rng.random(X.shape) < 0.1)
    fit, seen = AnnealedSpikeSlabFactorAnalysis._cells_after_fit, []

    def watched(self, units, *args):
        seen.append((self.activation_prior, self.max_iter, args[-1] is None, units.X))
        return fit(self, units, *args)

    monkeypatch.setattr(AnnealedSpikeSlabFactorAnalysis, "_cells_after_fit", watched)
    units = Rows(X, patterns=cell_patterns(X))
    _Trial(AnnealedSpikeSlabFactorAnalysis(5), units, held, 0).early_scores()
    assert [each[:3] for each in seen] == [(1.0, _PASSES, True), ("learned", _EARLY_PASSES, False)]
    for *_, given in seen:
        assert_array_equal(given, np.where(held, np.nan, X))


def test_the_advantage_is_that_of_the_clearer_score(rng):
    """A score that contradicts the other one leaves the question open until the last trials."""
    ahead, further, behind = (rng.standard_normal(50) + shift for shift in (0.3, 2.0, -2.0))
    nothing = np.zeros(50)

    def advantage(of_errors, of_densities, last=True):
        # The usual squared error of a row is 1, or nearly so.
        squares = np.array([np.expm1(np.log(2.0) + 0.1 * of_errors), np.ones(50)])
        return _advantage(np.array([squares, [nothing, of_densities]]), np.ones(50), last)

    clear = pytest.approx(further.sum() / np.sqrt(np.sum(further**2)), rel=0.02)
    assert advantage(ahead, further) == clear == advantage(further, ahead)
    assert advantage(behind, -further) < -3
    assert advantage(further, behind, last=False) == 0
    assert advantage(further, behind) + 1 == clear
    assert advantage(behind, further) == advantage(nothing, further) == 0


def test_a_few_rows_with_outliers_do_not_leave_the_question_open(rng):
    """Their squared errors are as large as those of all others, and vary as much."""
    squares = np.full(200, 4.0)
    worse = squares * rng.uniform(1.1, 1.3, 200)
    worse[:2], squares[2] = 1000.0, 800.0
    nothing, weights = np.zeros(200), np.ones(200)
    densities = rng.standard_normal(200) + 0.5
    for last in (False, True):
        ahead = _advantage(np.array([[worse, squares], [nothing, densities]]), weights, last)
        behind = _advantage(np.array([[squares, worse], [densities, nothing]]), weights, last)
        assert ahead > 4.0 > -4.0 > behind


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [10, 20])
def test_gaussian_factors_are_taken_for_digits_in_units_of_deviations(k, seed):
    """Nearly constant pixels have outliers, which sparse factors take for whole factors."""
    X = load_digits().data[:600]
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    gaps = np.where(np.random.default_rng(seed).random(X.shape) < 0.1, np.nan, X)
    assert (fitted(gaps, k, max_iter=1).activation_probabilities_ == 1.0).all()


def test_few_passes_of_the_fit_do_not_shorten_the_comparison():
    X, scores = sparse(), fitted(sparse()).held_out_scores_
    assert fitted(X, annealing="deterministic", max_iter=1).held_out_scores_ == scores


def test_units_and_order_in_memory_do_not_matter():
    X = sparse()
    scores = fitted(X, max_iter=2).held_out_scores_
    assert fitted(np.asfortranarray(X), max_iter=2).held_out_scores_ == scores
    single = fitted((1e18 * X).astype(np.float32), max_iter=2).held_out_scores_
    for name in ("learned_error", "gaussian_error", "advantage"):
        assert single[name] == pytest.approx(scores[name], rel=1e-3)


def test_what_is_refused_leaves_no_checkpoint(tmp_path):
    X = sparse()
    with pytest.raises(ValueError, match="effort"):
        AnnealedSpikeSlabFactorAnalysis(5, annealing="none", effort=3.0).fit(X, checkpoint=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_column_without_cells_among_the_drawn_rows_raises_no_warning(monkeypatch):
    monkeypatch.setattr("sklearn_anneal.estimators._kinds_of_factors._ROWS", 60)
    X = sparse()
    X[2:, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert fitted(X, max_iter=2).held_out_scores_


def test_a_column_with_two_cells_keeps_them():
    X = sparse()
    X[2:, 0] = np.nan
    assert fitted(X).held_out_scores_


@pytest.mark.parametrize(
    "change",
    [{"components_init": np.eye(5, 20)}, {"solver": "gradient"}, {"activation_prior": "learned"}],
)
def test_other_fits_compare_nothing(change):
    assert not hasattr(fitted(sparse(), max_iter=2, **change), "held_out_scores_")


def test_only_fits_to_enough_missing_cells_compare():
    X = sparse()
    complete = np.where(np.isnan(X), 0.0, X)
    est = fitted(X, max_iter=2)
    assert est.held_out_scores_
    # What an earlier fit has compared says nothing of other data.
    assert not hasattr(est.fit(complete), "held_out_scores_")
    assert not hasattr(fitted(X[:30], max_iter=2), "held_out_scores_")
    stream = AnnealedSpikeSlabFactorAnalysis(5, annealing="none", random_state=0).partial_fit(X)
    assert not hasattr(stream, "held_out_scores_")
    assert stream.activation_probabilities_.max() < 1


def test_batches_go_on_with_the_kind_that_was_chosen():
    X = dense()
    est = fitted(X).partial_fit(X[:50])
    assert_array_equal(est.activation_probabilities_, 1.0)


def test_workers_parts_and_checkpoints_change_nothing(tmp_path):
    X = sparse()
    est = fitted(X, max_iter=4)
    for other in (fitted(X, max_iter=4, n_jobs=2), fitted(Shards([X]), 5, max_iter=4)):
        assert_same(est, other)
        assert est.held_out_scores_ == other.held_out_scores_
    state = np.random.RandomState(0)
    kept = AnnealedSpikeSlabFactorAnalysis(5, annealing="none", max_iter=4, random_state=state)
    first = kept.fit(X, checkpoint=tmp_path).held_out_scores_
    # The state has moved on, but the checkpoint has that of the first call.
    assert kept.fit(X, checkpoint=tmp_path).held_out_scores_ == first
    assert_same(est, kept)


def test_rows_that_are_compared_are_drawn(rng, monkeypatch):
    monkeypatch.setattr("sklearn_anneal.estimators._kinds_of_factors._ROWS", 100)
    X = sparse()
    units = Rows(X, 1.0 + (np.arange(150) < 75), patterns=cell_patterns(X))
    estimator = AnnealedSpikeSlabFactorAnalysis(3)
    found = [compared(estimator, units, np.random.RandomState(seed)) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def test_rows_are_drawn_in_proportion_to_their_weights(rng, monkeypatch):
    """Rows that hold most of the weight decide, however few they are; those without are absent."""
    monkeypatch.setattr("sklearn_anneal.estimators._kinds_of_factors._ROWS", 60)
    X = sparse()
    weights = rng.gamma(0.3, 1.0, 150)
    weights[:40] = 0.0
    weights[40:45] = 50.0
    units, means = Rows(X, weights, patterns=cell_patterns(X)), np.zeros(20)
    for seed in range(400):
        rows = _drawn(units, np.random.RandomState(seed))
        assert rows.n_units <= 60
        assert rows.weights.sum() == pytest.approx(60 * weights[weights > 0].mean())
        assert {*X[40:45, 1]} <= {*rows.X[:, 1]}
        means += np.nan_to_num(rows.weights @ np.nan_to_num(rows.X)) / rows.weights.sum() / 400
    expected = weights @ np.nan_to_num(X) / weights.sum()
    np.testing.assert_allclose(means, expected, atol=0.01)


def test_rows_without_weight_are_left_out():
    """A column that has cells in such rows alone made both short fits seem to have failed."""
    X, weights = sparse(), 1.0 + np.arange(150) % 2
    weights[120:] = 0.0
    X[:120, 0] = np.nan
    given = (X, weights), (X[:120], weights[:120])
    estimator = AnnealedSpikeSlabFactorAnalysis(3)
    found = []
    for cells, own in given:
        units = Rows(cells, own, patterns=cell_patterns(cells))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.append(compared(estimator, units, np.random.RandomState(0)))
    assert found[0] == found[1]
    assert np.isfinite(found[0].learned_error)


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_equal_weights_draw_the_rows_that_no_weights_draw(monkeypatch, weight):
    monkeypatch.setattr("sklearn_anneal.estimators._kinds_of_factors._ROWS", 60)
    X = sparse()
    drawn = [
        _drawn(Rows(X, weights, patterns=cell_patterns(X)), np.random.RandomState(0))
        for weights in (None, np.full(150, weight))
    ]
    assert_array_equal(drawn[0].X, drawn[1].X)


def test_errors_are_in_weighted_deviations_of_the_columns():
    """Otherwise a row that hardly counts would decide what a large error is."""
    X = sparse()
    weights = 1.0 + np.arange(150) % 3
    repeated = Rows(np.repeat(X, weights.astype(int), axis=0))
    np.testing.assert_allclose(_spread(Rows(X, weights)), _spread(repeated), rtol=1e-12)


@pytest.mark.parametrize("random_state", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_more_cells_are_held_out_while_gaussian_factors_are_ahead(random_state, monkeypatch):
    """Three tenths of these cells do not decide for some starts of the short fits."""
    monkeypatch.setattr("sklearn_anneal.estimators._kinds_of_factors._EARLY_CLEAR", np.inf)
    settings = {"annealing": "none", "max_iter": 1, "random_state": random_state}
    est = AnnealedSpikeSlabFactorAnalysis(20, **settings).fit(many_pictures())
    assert est.held_out_scores_["advantage"] > 2


def test_a_kind_whose_short_fit_fails_is_not_compared():
    """Spikes and slabs cannot be fitted with so little noise, but Gaussian factors can.

    Learned variances of loadings, which are in units of the noise, would be as large.
    """
    X, priors = sparse(), {"noise_variance": 1e-300, "loading_variance": 1.0}
    with pytest.warns(UserWarning, match="Gaussian factors without a comparison.*learned prob"):
        est = fitted(X, **priors, max_iter=2)
    assert_same(est, fitted(X, **priors, max_iter=2, activation_prior=1.0))
    scores = est.held_out_scores_
    assert scores["advantage"] == np.inf
    assert np.isnan(scores["learned_error"])
    assert scores["gaussian_error"] < 1
    with pytest.raises(ValueError, match="not positive definite"):
        fitted(X, **priors, activation_prior="learned")


@pytest.mark.parametrize("both", [True, False])
def test_short_fits_that_fail_do_not_stop_the_fit(monkeypatch, both):
    fit = AnnealedSpikeSlabFactorAnalysis._cells_after_fit

    def fails(self, *args):
        if both or self.activation_prior == 1.0:
            raise np.linalg.LinAlgError
        return fit(self, *args)

    monkeypatch.setattr(AnnealedSpikeSlabFactorAnalysis, "_cells_after_fit", fails)
    with pytest.warns(UserWarning, match="takes learned probabilities without"):
        est = fitted(dense(), max_iter=2)
    assert_same(est, fitted(dense(), max_iter=2, activation_prior="learned"))
    assert est.held_out_scores_["advantage"] == (0.0 if both else -np.inf)


def test_verbose_fits_say_what_was_decided(capsys):
    fitted(dense(), verbose=1, max_iter=2)
    said = capsys.readouterr().out
    assert "with Gaussian factors; the fit takes Gaussian factors" in said


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="'activation_prior' parameter"):
        fitted(sparse(), activation_prior="gaussian")
