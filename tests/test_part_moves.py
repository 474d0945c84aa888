"""Tests of moves of the parts of factorial mixtures."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment

from sklearn_anneal import AnnealedFactorialMixture
from sklearn_anneal.models._part_moves import (
    Explained,
    refitted_means,
    superfluous,
)

NOISE = 0.05


def drawn(rng, parts, n=400, noise=NOISE):
    active = rng.random((n, len(parts))) < 0.4
    return active @ parts + noise * rng.standard_normal((n, parts.shape[1]))


def explained(X, means):
    """Rows, and their most probable activations."""
    states = np.array(list(product((0.0, 1.0), repeat=len(means))))
    distances = ((X[:, None] - (states @ means)[None]) ** 2).sum(axis=2)
    return Explained(states[distances.argmin(axis=1)], X, np.ones(len(X)))


def distance(found, parts):
    """The largest distance between parts and those that were found, one to one."""
    distances = np.sqrt(((found[:, None] - parts[None]) ** 2).sum(axis=2))
    rows, columns = linear_sum_assignment(distances)
    return distances[rows, columns].max()


@pytest.mark.parametrize(
    "mixing",
    [
        [[1, -1, 0], [0, 1, 0], [0, 0, 1]],
        [[1, 1, 0], [0, 1, 0], [0, 0, 1]],
        [[1, 0, 0], [0, 1, 0], [0, -1, 1]],
        [[1, 0, 0], [0, 1, 0], [1, 0, 1]],
    ],
)
def test_a_refit_takes_sums_and_differences_apart(mixing, rng):
    parts = rng.standard_normal((3, 12))
    X, means = drawn(rng, parts), np.array(mixing, dtype=float) @ parts
    found = refitted_means(means, explained(X, means), NOISE**2, rng)
    assert distance(found.means, parts) < 0.1
    # The shares are those of the rows in which the parts are active.
    assert_allclose(found.shares, 0.4, atol=0.1)


def test_a_refit_finds_parts_that_others_are_mixtures_of(rng):
    parts = rng.standard_normal((6, 20))
    mixing = np.eye(6)
    mixing[:3, :3] = [[-0.6, 0.6, 0.4], [0.6, 0.4, -0.3], [0.5, -0.5, 0.5]]
    X, means = drawn(rng, parts), mixing @ parts
    found = refitted_means(means, explained(X, means), 0.1, rng)
    assert distance(found.means, parts) < 0.1
    assert {0, 1, 2} <= set(found.numbers)


def test_a_refit_gives_parts_the_right_sign(rng):
    """Other parts have taken over a share of the part that is off where it should be on."""
    parts = rng.standard_normal((5, 20))
    means = parts + 0.25 * parts[0]
    means[0] = -0.8 * parts[0]
    X = drawn(rng, parts)
    found = refitted_means(means, explained(X, means), 0.1, rng)
    assert distance(found.means, parts) < 0.1


def test_a_refit_finds_parts_where_none_is_in_use(rng):
    parts = rng.standard_normal((3, 12))
    X = drawn(rng, parts)
    rows = Explained(np.full((len(X), 3), 0.5), X, np.ones(len(X)))
    assert distance(refitted_means(np.zeros((3, 12)), rows, 0.1, rng).means, parts) < 0.1


def test_there_is_nothing_to_move_where_residuals_are_noise(rng):
    parts = rng.standard_normal((4, 15))
    rows = explained(drawn(rng, parts), parts)
    assert refitted_means(parts, rows, NOISE**2, rng) is None


def test_fits_find_the_parts_of_sums_with_little_noise():
    """Half of these fits ended where some parts were mixtures of others."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        parts = rng.standard_normal((12, 30)) * (rng.random((12, 30)) < 0.5)
        X = drawn(rng, parts, noise=0.1)
        est = AnnealedFactorialMixture(12, random_state=0).fit(X)
        assert np.sqrt(est.noise_variance_) < 0.11
        assert distance(est.means_, parts) < 0.2


@pytest.mark.parametrize(
    "params", [{"center": True}, {"activation_prior": 0.4}, {"batch_size": 50}]
)
def test_moves_serve_all_forms_of_the_model(params, rng):
    parts = rng.standard_normal((4, 12))
    X = drawn(rng, parts, 150) + 3.0 * bool(params.get("center"))
    est = AnnealedFactorialMixture(4, random_state=0, **params).fit(X)
    assert np.isfinite(est.score(X))
    if "batch_size" not in params:
        assert np.sqrt(est.noise_variance_) < 1.1 * NOISE


def test_a_part_that_another_one_explains_as_well_is_left_out(rng):
    parts = rng.standard_normal((3, 200))
    twice = np.vstack([parts, parts[:1]])
    rows = explained(drawn(rng, parts, 100), parts)
    # The rows of the first part are divided between two parts that are the same.
    active = np.column_stack([rows.activations, np.zeros(100)])
    moved = np.flatnonzero(active[:, 0])[::2]
    active[moved, 0], active[moved, 3] = 0.0, 1.0
    found = superfluous(twice, rows._replace(activations=active), NOISE**2, 1.0, rng)
    assert found in (0, 3)
    assert superfluous(parts, rows, NOISE**2, 1.0, rng) is None


def test_parts_that_nothing_needs_are_left_out():
    rng = np.random.default_rng(0)
    parts = 2.0 * rng.standard_normal((4, 300))
    X = drawn(rng, parts, 150, 0.3)
    est = AnnealedFactorialMixture(6, random_state=0).fit(X)
    lengths = np.sort(np.linalg.norm(est.means_, axis=1))
    assert lengths[1] < 1.0 < 20.0 < lengths[2]
