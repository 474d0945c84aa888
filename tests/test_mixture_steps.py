"""Responsibilities from arrays of log joint densities, against their definition in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax, xlogy

from sklearn_anneal.families import Tempering, UnitTemperatures
from sklearn_anneal.models._mixture_steps import (
    locally_tempered_responsibilities_step,
    responsibilities_step,
)


@pytest.fixture(params=[(1, 1), (5, 3), (300, 20)], ids=str)
def joint(request):
    """L of rows and components; differences are large in some rows."""
    rng = np.random.default_rng(0)
    n_rows, n_components = request.param
    scale = rng.choice([0.1, 3.0, 300.0], size=(n_rows, 1))
    return scale * rng.normal(size=(n_rows, n_components)) - 1e3


@pytest.mark.parametrize("per_row", [False, True])
def test_responsibilities_are_the_tempered_softmax(joint, per_row):
    rng = np.random.default_rng(1)
    n = len(joint)
    x, factor = (rng.random((2, n)) if per_row else rng.random(2)) + 0.1
    weights, noise = rng.random(n), rng.normal(size=n)
    found = responsibilities_step(joint, Tempering(x, factor), weights, noise)
    column = np.atleast_1d(x)[:, None]
    r = softmax(column * joint, axis=1)
    scale = weights * np.atleast_1d(factor)
    np.testing.assert_allclose(found.shares, (scale * noise)[:, None] * r, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(found.energy, weights @ (r * joint).sum(axis=1), rtol=1e-12)
    entropy = -weights @ xlogy(r, r).sum(axis=1)
    np.testing.assert_allclose(found.entropy, entropy, rtol=1e-9, atol=1e-12)
    assert found.noisy is None

    apart = responsibilities_step(joint, Tempering(x, factor), weights, noise, True)
    np.testing.assert_allclose(apart.shares, scale[:, None] * r, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(apart.noisy, found.shares, rtol=1e-14, atol=1e-300)
    assert (apart.energy, apart.entropy) == (found.energy, found.entropy)


@pytest.mark.parametrize("n_partitions", [1, 4])
def test_temperatures_of_rows_are_inferred_in_turns(joint, n_partitions):
    rng = np.random.default_rng(2)
    n, grid = len(joint), np.arange(1, 41) / 40
    log_partition = np.array([-np.log(grid) * d + d * grid for d in range(1, n_partitions + 1)])
    which = rng.integers(n_partitions, size=n)
    weights, noise = rng.random(n), rng.normal(size=n)
    found = locally_tempered_responsibilities_step(
        joint, UnitTemperatures(grid, None, 3), log_partition, which, weights, noise
    )
    x = np.full(n, grid.mean())
    for _ in range(3):
        energies = (softmax(x[:, None] * joint, axis=1) * joint).sum(axis=1)
        x = softmax(grid * energies[:, None] - log_partition[which], axis=1) @ grid
    r = softmax(x[:, None] * joint, axis=1)
    np.testing.assert_allclose(found.inverse_temperatures, x, rtol=1e-11)
    shares = (weights * noise * x)[:, None] * r
    np.testing.assert_allclose(found.shares, shares, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found.energy, weights @ (r * joint).sum(axis=1), rtol=1e-11)
    np.testing.assert_allclose(found.temperature, (weights / x).sum(), rtol=1e-11)
