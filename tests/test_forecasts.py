"""Forecasts of hidden Markov models: states and observations after the end of sequences."""

from __future__ import annotations

import numpy as np
import plain_hidden_markov as plain
import pytest
from cases_hidden_markov import (
    ONE_OF_EACH,
    VARIANTS,
    V,
    all_emissions,
    draw,
    fitted,
    mean_logs,
    small,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from sklearn_anneal import AnnealedHMM
from sklearn_anneal.estimators._forecasts import long_run_shares

# Values that a cell can have, each with the width of its part of an integral.
_GRID = {
    "bernoulli": (np.arange(2.0), 1.0),
    "poisson": (np.arange(80.0), 1.0),
    "gaussian": (np.linspace(-45.0, 55.0, 1001), 0.1),
}


def blocks(rng, n):
    """A table of two real columns, one of categories and two binary ones, in a mixed order."""
    z = np.repeat(np.arange(4) % 2, -(-n // 4))[:n]
    real = 3.0 * z[:, None] + rng.standard_normal((n, 2))
    level = (z + (rng.random(n) < 0.3)) % 3
    binary = rng.random((n, 2)) < np.where(z, 0.8, 0.3)[:, None]
    return np.column_stack([real[:, 0], binary[:, 0], level, binary[:, 1], real[:, 1]])


EMISSION = [("real", "gaussian", [0, 4]), ("binary", "bernoulli", [3, 1]),
            ("level", "categorical", [2])]  # fmt: skip


def of_cells(est, X, step, column, values):
    """Log densities of values of one cell, ``step`` frames after X, by scores alone."""
    found = np.full((len(values), len(X) + step, X.shape[1]), np.nan)
    found[:, : len(X)] = X
    found[:, -1, column] = values
    return est.score_sequences(found) - est.score_sequences(X)[0]


def check_moments(est, X, step, column, grid, mean, std):
    values, width = grid
    p = width * np.exp(of_cells(est, X, step, column, values))
    assert p.sum() == pytest.approx(1.0, abs=2e-6)
    assert mean == pytest.approx(p @ values, rel=1e-5)
    assert std == pytest.approx(np.sqrt(p @ (values - p @ values) ** 2), rel=1e-3)


@all_emissions
def test_distributions_of_states_are_sums_over_all_paths(variant, rng):
    est = fitted(variant, rng, 3)
    (X,) = draw(variant, rng, [4], {0: [1]})
    n_steps = 3
    longer = np.vstack([X, np.full((n_steps, X.shape[1]), np.nan)])
    paths = plain.all_paths(len(longer), 3)
    energies = plain.path_energies(paths, *mean_logs(est, longer))
    p = np.exp(energies - logsumexp(energies))
    found = est.predict_next(X, n_steps).state_probabilities
    assert found.shape == (1, n_steps, 3)
    for step in range(n_steps):
        expected = np.bincount(paths[:, len(X) + step], p, minlength=3)
        assert_allclose(found[0, step], expected, atol=1e-12)


@pytest.mark.parametrize("predictive", [True, False])
@pytest.mark.parametrize("variant", [*VARIANTS, "gaussian-independent"])
def test_moments_and_probabilities_are_those_of_scores(variant, predictive, rng):
    """The density of a later cell is the ratio of two scores, one with this cell."""
    how = {"predictive": predictive}
    if variant == "gaussian-independent":
        variant, how = "gaussian-diag", how | {"covariance_type": "independent"}
        est = small(variant, **how).fit(draw(variant, rng, [20, 15]))
    else:
        est = fitted(variant, rng, **how)
    (X,) = draw(variant, rng, [6])
    found = est.predict_next(X, 2)
    if variant == "categorical":
        assert found.mean is None and found.std is None
        expected = np.exp(of_cells(est, X, 2, 0, range(V)))
        assert_allclose(found.probabilities[0, 1], expected, atol=1e-12)
        return
    grid = _GRID[variant.split("-")[0]]
    for column in range(X.shape[1]):
        if variant == "bernoulli":
            assert found.mean is None and found.std is None
            expected = np.exp(of_cells(est, X, 2, column, [1.0]))
            assert_allclose(found.probabilities[0, 1, column], expected, atol=1e-12)
        else:
            assert found.probabilities is None
            at = found.mean[0, 1, column], found.std[0, 1, column]
            check_moments(est, X, 2, column, grid, *at)


def test_tables_of_blocks_have_forecasts_of_each_column(rng):
    how = {"emission": EMISSION, "annealing": "none", "max_iter": 20, "random_state": 0}
    est = AnnealedHMM(2, **how).fit([blocks(rng, 40), blocks(rng, 30)])
    X = blocks(rng, 6)
    found = est.predict_next(X, 2)
    assert list(found.probabilities) == [1, 2, 3]
    assert_array_equal(np.isnan(found.mean[0, 0]), [False, True, True, True, False])
    assert_array_equal(np.isnan(found.std), np.isnan(found.mean))
    for column in (0, 4):
        at = found.mean[0, 1, column], found.std[0, 1, column]
        check_moments(est, X, 2, column, _GRID["gaussian"], *at)
    for column in (1, 3):
        expected = np.exp(of_cells(est, X, 2, column, [1.0]))
        assert_allclose(found.probabilities[column][0, 1], expected, atol=1e-12)
    expected = np.exp(of_cells(est, X, 2, 2, range(3)))
    assert_allclose(found.probabilities[2][0, 1], expected, atol=1e-12)


@all_emissions
def test_every_sequence_has_its_forecast_in_every_form(variant, rng):
    est = fitted(variant, rng, 3)
    sequences = draw(variant, rng, [5, 1, 7], {1: [0], 2: [5, 6]})
    alone = [est.predict_next(X, 4) for X in sequences]
    X = np.concatenate(sequences)
    forms = (
        est.predict_next(sequences, 4),
        est.predict_next(X, 4, lengths=[5, 1, 7]),
        est.predict_next(X, n_steps=4, groups=np.repeat(["b", "a", "c"], [5, 1, 7])),
    )
    for name in ("state_probabilities", "mean", "std", "probabilities"):
        one = [getattr(each, name) for each in alone]
        for found in forms:
            if one[0] is None:
                assert found[name] is None
            else:
                assert_allclose(found[name], np.concatenate(one), atol=1e-12, err_msg=name)


@pytest.mark.parametrize("variant", ONE_OF_EACH)
def test_missing_last_frames_are_steps_of_time(variant, rng):
    est = fitted(variant, rng, 3)
    (X,) = draw(variant, rng, [12])
    gone = X.copy()
    gone[9:] = -1 if variant == "categorical" else np.nan
    earlier, later = est.predict_next(X[:9], 5), est.predict_next(gone, 2)
    for name, value in later.items():
        if value is not None:
            assert_allclose(value, earlier[name][:, 3:], atol=1e-12, err_msg=name)


def test_data_frames_are_forecast(rng):
    pd = pytest.importorskip("pandas")
    (X,) = draw("gaussian-full", rng, [30])
    frame = pd.DataFrame(X, columns=["load", "heat"])
    est = small().fit(frame)
    assert_allclose(est.predict_next(frame, 3).mean, small().fit(X).predict_next(X, 3).mean)
    with pytest.raises(ValueError, match="feature names"):
        est.predict_next(frame[["heat", "load"]])


@pytest.mark.parametrize("n_steps", [0, -1, 1.5, True, "2", None])
def test_numbers_of_steps_that_are_none_are_refused(n_steps, rng):
    est = fitted("gaussian-full", rng)
    with pytest.raises(ValueError, match="the number of frames to forecast, an integer of at leas"):
        est.predict_next(draw("gaussian-full", rng, [5])[0], n_steps)


# The long run


def test_forecasts_tend_to_the_stationary_distribution(rng):
    est = fitted("gaussian-full", rng, 3)
    (X,) = draw("gaussian-full", rng, [5])
    shares = est.stationary_distribution_
    assert_allclose(shares @ est.transmat_, shares, atol=1e-15)
    assert_allclose(est.predict_next(X, 2000).state_probabilities[0, -1], shares, atol=1e-9)


def test_expected_durations_are_those_of_drawn_segments(rng):
    est = small(n_components=3, max_iter=30).fit(draw("gaussian-full", rng, [100]))
    states = est.sample(20_000)[1]
    changes = np.flatnonzero(np.diff(states, prepend=-1, append=-1))
    first, lengths = states[changes[:-1]], np.diff(changes)
    for k, expected in enumerate(est.expected_durations_):
        own = lengths[first == k]
        assert own.mean() == pytest.approx(expected, abs=5 * own.std() / np.sqrt(len(own)))


def test_chains_that_end_somewhere_have_long_run_shares():
    """By the mean of the distributions at many steps, for chains with one end and with two."""
    last = np.array([[0.5, 0.5, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])
    two = np.array([[0.8, 0.1, 0.1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0.3, 0.7, 0],
                    [0, 0, 0.2, 0.8, 0], [0.2, 0.0, 0.5, 0.0, 0.3]])  # fmt: skip
    turns = np.array([[0.0, 1.0], [1.0, 0.0]])
    for transitions in (last, two, turns, np.eye(3), np.ones((1, 1))):
        start = np.linspace(1.0, 2.0, len(transitions))
        start /= start.sum()
        mean = start @ np.mean(
            [np.linalg.matrix_power(transitions, 2**14 + i) for i in range(2)], axis=0
        )
        assert_allclose(long_run_shares(start, transitions), mean, atol=1e-12)


def test_rare_transitions_keep_their_digits():
    """A state that is left once in 1e12 frames, and found as rarely, has half of the time."""
    shares = long_run_shares(np.array([1.0, 0.0]), np.array([[1 - 1e-12, 1e-12], [2e-12, 1.0]]))
    assert_allclose(shares, [2 / 3, 1 / 3], rtol=1e-12)


def test_a_state_that_is_never_left_lasts_for_ever(rng):
    est = small(n_components=3, transmat_prior=np.triu(np.ones((3, 3))))
    est.fit(draw("gaussian-full", rng, [30, 30]))
    assert np.isinf(est.expected_durations_[2]) and np.isfinite(est.expected_durations_[:2]).all()
    assert_allclose(est.stationary_distribution_, [0, 0, 1], atol=1e-15)
