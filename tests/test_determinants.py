"""Tests of the limits of log-determinants, by which the size of a covariance prior is learned."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from plain_learned_gaussians import changes

from sklearn_anneal.models.components._determinants import Determinants

SPECTRA = {
    "even": np.linspace(0.0, 1.0, 7),
    "equal": np.full(7, 0.3),
    "ends": np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.5]),
    "nearly 1": 1.0 - np.geomspace(1e-9, 1e-3, 7),
    "nearly 0": np.geomspace(1e-90, 1e-3, 7),
    "all 0": np.zeros(7),
    "all 1": np.ones(7),
}
FACTORS = np.concatenate([np.geomspace(1e-8, 0.999, 40), [1.0], np.geomspace(1.001, 1e90, 40)])


def of(p):
    return Determinants.of(np.array([p.sum()]), np.array([(p**2).sum()]), len(p))


@pytest.mark.parametrize("name", SPECTRA)
def test_limits_are_above_and_equal_up_to_second_order(name):
    p = SPECTRA[name]
    limits = of(p)
    for y in FACTORS:
        total = (1.0 - p) + y * p
        exact = np.log(total[total > 0]).sum()
        value, first, second = (float(x[0]) for x in changes(limits[1:], 7, np.array([y])))
        assert value >= exact - 1e-7 * max(abs(exact), 1.0)
        assert 0.0 <= first <= 7.0 + 1e-12
        assert 0.0 <= second
    value, first, second = (float(x[0]) for x in changes(limits[1:], 7, np.ones(1)))
    assert value == 0.0
    assert first == pytest.approx(p.sum(), abs=1e-12)
    assert second == pytest.approx((p - p**2).sum(), abs=1e-12)


@pytest.mark.parametrize("y", [0.2, 0.9, 1.1, 30.0])
def test_slopes_are_those_of_the_values(y):
    limits, step = of(SPECTRA["even"]), 1e-5
    low, middle, high = (
        changes(limits[1:], 7, np.array([y * np.exp(s)])) for s in (-step, 0.0, step)
    )
    assert_allclose((high[0] - low[0]) / (2 * step), middle[1], rtol=1e-8)
    assert_allclose((high[1] - low[1]) / (2 * step), middle[2], rtol=1e-7)


def test_rounding_errors_leave_no_other_numbers():
    """Sums that no eigenvalues between 0 and 1 have are moved to the nearest that some have."""
    first, second = np.array([7.0 + 1e-9, 3.0, 3.0, -1e-9]), np.array([7.0 + 1e-8, 3.1, 1.0, 1e-9])
    limits = Determinants.of(first, second, 7)
    for values in limits[1:]:
        assert np.isfinite(values).all()
        assert (values >= 0.0).all()
    assert (limits.p_above <= 1.0).all()
    assert (limits.p_below <= 1.0).all()
    assert (limits.n_above <= 7.0 * (1.0 + 1e-12)).all()
    assert (limits.n_below <= 7.0 * (1.0 + 1e-12)).all()
