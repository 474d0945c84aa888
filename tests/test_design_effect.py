"""Tests of the design effect of sequences, by which frames count in predictions."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_anneal import AnnealedHMM, Shards

PLAIN = {"annealing": "none", "max_iter": 30, "random_state": 0, "tol": 1e-3}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def panel(rng, n_sequences, level, n_frames=12, n_features=2):
    """Sequences with two regimes, and levels of their own with the standard deviation ``level``."""
    regimes = np.repeat([0.0, 8.0], n_frames // 2)[:, None]
    shape = (n_frames, n_features)
    each = level * rng.standard_normal((n_sequences, 1, n_features))
    return [regimes + own + rng.standard_normal(shape) for own in each]


def fitted(sequences, n_components=2, **params):
    return AnnealedHMM(n_components, **PLAIN | params).fit(sequences)


def test_it_is_the_variance_of_means_over_that_of_independent_frames(rng):
    """Frames of which a share ρ of the variance is common: 1 + (n − 1) ρ, with n = 6 and ρ = ½."""
    found = [fitted(panel(rng, 60, 1.0)).design_effect_ for _ in range(8)]
    assert np.mean(found) == pytest.approx(1 + 5 * 0.5, abs=0.4)
    found = [fitted(panel(rng, 60, 0.0)).design_effect_ for _ in range(8)]
    assert np.mean(found) == pytest.approx(1.0, abs=0.1)
    assert min(found) >= 1.0


def test_new_levels_are_no_surprise(rng):
    """Few sequences, each at a level of its own: few of the new ones lie where states are."""
    train, test = panel(rng, 10, 4.0), panel(rng, 200, 4.0)
    for priors in ({}, dict.fromkeys(("means_prior", "beta_prior", "dof_prior", "scale_prior"))):
        est = fitted(train, 6, **priors)
        certain = AnnealedHMM(6, **PLAIN | priors | {"predictive": False}).fit(train)
        assert certain.design_effect_ == est.design_effect_ > 2.0
        all_frames = pickle.loads(pickle.dumps(est))
        all_frames._describe({"design_effect_": 1.0})
        assert est.score(test) > all_frames.score(test) + 0.1


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_parts_weights_and_gaps_count_as_they_should(covariance_type, rng):
    sequences = panel(rng, 12, 2.0)
    params = {"covariance_type": covariance_type, "max_iter": 0, "init_params": "segments"}
    reference = fitted(sequences, **params)
    assert reference.design_effect_ > 1.5
    twice = fitted(sequences + sequences, **params)
    doubled = AnnealedHMM(2, **PLAIN | params)
    doubled.fit(sequences, sample_weight=np.full(12 * 12, 2.0))
    assert doubled.design_effect_ == pytest.approx(twice.design_effect_, rel=1e-6)
    # Missing frames at the end, and cells, are no frames.
    gap = [np.vstack([x, np.full((3, 2), np.nan)]) for x in sequences]
    assert fitted(gap, **params | {"init_params": "kmeans"}).design_effect_ > 1.0


def test_data_in_parts_have_that_of_data_in_memory(rng):
    sequences = panel(rng, 12, 2.0)
    start = {"emission_init": {"means": [[0.0, 0.0], [8.0, 8.0]]}, "effort": 0}
    start |= {"startprob_init": [0.9, 0.1], "transmat_init": [[0.8, 0.2], [0.2, 0.8]]}
    one = fitted(sequences, **start)
    other = fitted(Shards([sequences[:5], sequences[5:]]), **start)
    assert one.design_effect_ > 1.5
    assert other.design_effect_ == pytest.approx(one.design_effect_, rel=1e-4)
    assert_allclose(other.score_sequences(sequences), one.score_sequences(sequences), rtol=1e-3)


def test_it_is_1_where_it_is_not_known(rng):
    sequences = panel(rng, 6, 2.0)
    assert fitted([np.concatenate(sequences)]).design_effect_ == 1.0
    assert fitted(sequences, covariance_type="independent").design_effect_ == 1.0
    assert fitted([x > 4 for x in sequences], emission="bernoulli").design_effect_ == 1.0
    updates = AnnealedHMM(2, annealing="none", max_iter=1, random_state=0)
    assert updates.partial_fit(sequences).design_effect_ == 1.0
    est = fitted(sequences)
    before = est.design_effect_
    copied = pickle.loads(pickle.dumps(est))
    assert copied.design_effect_ == before > 1.0
    assert_array_equal(copied.predict_proba(sequences), est.predict_proba(sequences))
    assert est.partial_fit(sequences).design_effect_ == before


@pytest.mark.parametrize("predictive", [True, False])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "independent"])
def test_imputed_cells_have_the_density_of_scores(covariance_type, predictive, rng):
    """The density of a cell is proportional to that of its sequence with this cell."""
    params = {"covariance_type": covariance_type, "predictive": predictive}
    est = fitted(panel(rng, 12, 2.0), **params)
    assert (est.design_effect_ > 1.5) == (covariance_type != "independent")
    X = panel(rng, 1, 2.0)[0]
    X[4, 1] = np.nan
    X[7] = np.nan
    mean, std = est.impute(X, return_std=True)
    values = np.linspace(-60.0, 70.0, 6501)
    for frame, column in ((4, 1), (7, 0)):
        each = np.repeat(X[None], len(values), axis=0)
        each[:, frame, column] = values
        logs = est.score_sequences(each)
        p = np.exp(logs - logs.max())
        p /= p.sum()
        expected = p @ values
        assert mean[frame, column] == pytest.approx(expected, rel=1e-6)
        deviation = np.sqrt(p @ (values - expected) ** 2)
        assert std[frame, column] == pytest.approx(deviation, rel=1e-4)


def test_draws_and_forecasts_are_those_of_imputed_frames(rng):
    """The frame after the last one has the moments of a missing last frame, and of its draws."""
    est = fitted(panel(rng, 6, 4.0))
    assert est.design_effect_ > 2.0
    X = panel(rng, 1, 1.0)[0]
    later = est.predict_next(X)
    blank = np.vstack([X, np.full((1, 2), np.nan)])
    mean, std = est.impute(blank, return_std=True)
    assert_allclose(mean[-1], later.mean[0, 0], rtol=1e-12)
    assert_allclose(std[-1], later.std[0, 0], rtol=1e-12)
    # Parameters of few frames are drawn from heavy tails.
    drawn = est.impute(blank, n_draws=2000)[:, -1]
    assert_allclose(np.median(drawn, axis=0), mean[-1], atol=5 * std[-1].max() / np.sqrt(2000))
    assert_allclose(drawn.std(axis=0), std[-1], rtol=0.15)
