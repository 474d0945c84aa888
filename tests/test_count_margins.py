"""Counts whose rows and columns are independent: one part explains them, and fits start there."""

from __future__ import annotations

import numpy as np
import pytest
from harness import units_of
from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.models import _count_margins
from sklearn_anneal.models._count_margins import sums_without_parts


def one_part(seed, mean, shape=(150, 12), even=True):
    rng = np.random.default_rng(seed)
    if even:
        return rng.poisson(mean, shape).astype(float)
    rates = rng.gamma(0.5, 1.0, (shape[0], 1)) * rng.dirichlet(np.ones(shape[1])) * shape[1]
    return rng.poisson(mean * rates).astype(float)


def two_parts(seed, shape=(150, 12)):
    rng = np.random.default_rng(seed)
    parts = 15.0 * rng.dirichlet(np.ones(shape[1]), 2)
    return rng.poisson(rng.gamma(0.7, 1.0, (shape[0], 2)) @ parts).astype(float)


def has_one(X, weights=None):
    units = units_of(AnnealedGammaProcessNMF(2), X)
    units.weights = weights
    found = sums_without_parts(units, X.shape[1])
    if found is not None:
        w = np.ones(X.shape[0]) if weights is None else weights
        np.testing.assert_allclose(found, np.asarray(w @ X).ravel())
    return found is not None


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("mean", [0.5, 3.0, 50.0, 2000.0])
def test_independent_counts_have_one_part(mean, even):
    found = [has_one(one_part(seed, mean, even=even)) for seed in range(12)]
    assert sum(found) >= 11


def test_counts_of_two_parts_have_more():
    assert not any(has_one(two_parts(seed, (300, 12))) for seed in range(12))


def test_a_weight_is_a_number_of_copies():
    for X in (one_part(0, 1.0), two_parts(0)):
        weights = np.tile([1.0, 2.0, 3.0], 50)
        copies = np.repeat(X, weights.astype(int), axis=0)
        assert has_one(X, weights) == has_one(copies)
    assert has_one(csr_matrix(one_part(0, 1.0)))


def test_tables_that_say_nothing_have_parts():
    holes = one_part(0, 1.0)
    holes[0, 0] = np.nan
    for X in (holes, np.eye(20), np.ones((1, 5)), np.ones((5, 1))):
        assert not has_one(X)


@pytest.mark.parametrize("n_components", [3, 8])
def test_counts_without_parts_get_one(n_components):
    """Each of several parts would learn the noise of some rows, at a bound far below."""
    X, new = one_part(1, 3.0), one_part(2, 3.0)
    alone = AnnealedGammaProcessNMF(1, random_state=0).fit(X)
    for seed in range(2):
        est = AnnealedGammaProcessNMF(n_components, random_state=seed).fit(X)
        assert est.lower_bound_ > alone.lower_bound_ - 0.02 * abs(alone.lower_bound_)
        assert est.score(new) > alone.score(new) - 0.005
        assert est.n_effective_components_ == 1


def test_a_start_that_is_asked_for_is_made():
    X = one_part(1, 3.0)
    plain = {"annealing": "none", "max_iter": 1, "random_state": 0}
    found = AnnealedGammaProcessNMF(3, init_params="random", **plain).fit(X)
    assert found.n_effective_components_ == 3
    assert AnnealedGammaProcessNMF(3, **plain).fit(X).n_effective_components_ == 1


def test_parts_that_differ_much_are_seen_without_the_moments_of_all_cells(monkeypatch):
    monkeypatch.setattr(_count_margins.np, "interp", None)
    rng = np.random.default_rng(0)
    parts = 200.0 * rng.dirichlet(np.ones(12), 2)
    assert not has_one(rng.poisson(rng.gamma(0.7, 1.0, (150, 2)) @ parts).astype(float))
    with pytest.raises(TypeError):
        has_one(one_part(0, 3.0))
