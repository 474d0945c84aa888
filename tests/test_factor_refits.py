"""Tests of refits of sparse factors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis
from sklearn_anneal.models._factor_refits import refitted


def drawn(rng, loadings, n, noise=0.1, share=0.15):
    k, d = loadings.shape
    factors = (rng.random((n, k)) < share) * rng.standard_normal((n, k))
    return factors, factors @ loadings + noise * rng.standard_normal((n, d))


def alike(found, loadings):
    """The smallest |cosine| between loadings and those that were found, one to one."""
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (found, loadings))
    cosines = np.abs(a @ b.T)
    return cosines[linear_sum_assignment(cosines, maximize=True)].min()


def mixed_rows(rng, n_mixed):
    """Loadings, and what is known of rows whose first factors are mixtures of the true ones."""
    loadings = rng.standard_normal((6, 20))
    factors, X = drawn(rng, loadings, 500)
    mixing = np.eye(6)
    for k in range(n_mixed - 1):
        turn = np.eye(6)
        turn[k : k + 2, k : k + 2] = [[np.cos(0.7), np.sin(0.7)], [-np.sin(0.7), np.cos(0.7)]]
        mixing = mixing @ turn
    mixed = mixing @ loadings
    own = factors @ np.linalg.inv(mixing)
    residuals = (X - own @ mixed) / 0.1
    active = (np.abs(own) > 1e-9).astype(float)
    return loadings, mixed, (residuals, np.ones(len(X)), own, active, mixed / 0.1)


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("n_mixed", [2, 3])
def test_a_refit_finds_factors_that_others_are_mixtures_of(n_mixed, learns):
    n_found = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        loadings, mixed, given = mixed_rows(rng, n_mixed)
        found = refitted(*given, np.full(6, 0.15), learns, rng)
        assert set(range(n_mixed)) <= set(found.numbers)
        result = mixed.copy()
        result[found.numbers] = 0.1 * found.loadings
        is_found = alike(result, loadings) > 0.99
        n_found += is_found
        if not learns:
            assert (found.activation_prior == 0.15).all()
        elif is_found:
            assert np.abs(found.activation_prior - 0.15).max() < 0.05
    # Each refit has few starts, and a search makes several.
    assert n_found >= 3


def test_independent_factors_are_left_as_they_are(rng):
    *_, given = mixed_rows(rng, 1)
    assert refitted(*given, np.full(6, 0.15), True, rng) is None


def test_fits_find_sparse_factors_where_some_were_mixtures_of_others():
    moves = []
    for k, d, noise, share, seed in ((12, 40, 0.1, 0.15, 500), (20, 64, 0.2, 0.1, 501)):
        rng = np.random.default_rng(seed)
        loadings, n = rng.standard_normal((k, d)), max(400, 30 * k)
        _, X = drawn(rng, loadings, 2 * n, noise, share)
        est = AnnealedSpikeSlabFactorAnalysis(k, random_state=seed - 500).fit(X[:n])
        assert alike(est.components_, loadings) > 0.98
        found = est.search_results_
        moves += list(found["move"][found["kept"]])
    assert "refit" in moves


@pytest.mark.parametrize("params", [{"activation_prior": 1.0}, {"activation_prior": 0.2}, {}])
@pytest.mark.parametrize("missing", [False, True])
def test_refits_serve_all_forms_of_the_model(params, missing, rng):
    _, X = drawn(rng, rng.standard_normal((4, 10)), 150)
    if missing:
        X[rng.random(X.shape) < 0.05] = np.nan
    est = AnnealedSpikeSlabFactorAnalysis(4, random_state=0, **params).fit(X)
    assert np.isfinite(est.score(X))
    if params.get("activation_prior") == 1.0:
        assert "refit" not in est.search_results_["move"]
