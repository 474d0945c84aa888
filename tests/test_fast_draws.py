"""Draws that are faster than numpy's have the same distributions, and mixing in place is mixing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sklearn_anneal.families import fast_normal, fast_standard_gamma, mix


@pytest.mark.parametrize("shape", [1.0, 1.01, 4 / 3, 3.0, 50.0])
def test_fast_gamma_draws_have_the_distribution(shape):
    rng = np.random.default_rng(5)
    draws = fast_standard_gamma(shape, 200_001, rng)
    assert draws.dtype == np.float32 and draws.shape == (200_001,)
    assert stats.kstest(draws, "gamma", args=(shape,)).pvalue > 1e-3
    assert draws.min() > 0
    error = np.sqrt(shape / len(draws))
    assert abs(draws.mean(dtype=float) - shape) < 4 * error
    # The two draws of a pair share a radius, but have to be independent all the same.
    first, second = draws[:100_000], draws[100_001:]
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(100_000)
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 4 / np.sqrt(100_000)


def test_mixing_of_large_arrays_in_place(rng):
    """Part by part, whatever the shape and the order in memory."""
    for shape in ((150_000,), (7, 20_000), (3, 1, 100_000), (80_000, 2)):
        for order in ("C", "F"):
            a, b = ({"x": np.asarray(rng.standard_normal(shape), order=order)} for _ in range(2))
            expected = mix(a, b, 0.3)
            np.testing.assert_array_equal(mix(a, b, 0.3, overwrite=True)["x"], expected["x"])


def test_fast_normal_draws_have_the_distribution():
    rng = np.random.default_rng(6)
    draws = fast_normal(200_001, rng)
    assert draws.dtype == np.float32 and draws.shape == (200_001,)
    assert 4.0 < np.abs(draws).max() < 5.4
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    for power, moment, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        error = np.sqrt(variance / len(draws))
        assert abs(np.mean(draws.astype(float) ** power) - moment) < 4 * error
    # The two draws of a pair share bits, but have to be independent. There are three whole blocks.
    for start, stop in ((0, 65_536), (65_536, 131_072), (131_072, 196_608)):
        first, second = np.split(draws[start:stop], 2)
        for power in (1, 2):
            correlation = np.corrcoef(first**power, second**power)[0, 1]
            assert abs(correlation) < 4 / np.sqrt(len(first))
    again = fast_normal(200_001, np.random.default_rng(6))
    np.testing.assert_array_equal(draws, again)
    assert not np.array_equal(draws, fast_normal(200_001, rng))
    scaled = fast_normal(200_001, np.random.default_rng(6), 40.0)
    np.testing.assert_allclose(scaled, 40 * draws, rtol=1e-6)
