"""Completed rows and marginal densities of Gaussians, against block formulas one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.families import Tempering
from sklearn_anneal.kernels.simd import tiles
from sklearn_anneal.models._mixture_steps import responsibilities_step
from sklearn_anneal.models.components import _missing_cells as cells


@pytest.fixture(
    params=[(False, 6, 0.4), (False, 1, 0.4), (False, 40, 0.4), (False, 40, 0.05), (True, 6, 0.4)],
    ids=["full", "one column", "many columns", "few cells of many", "diagonal"],
)
def problem(request, rng):
    """Gaussians, rows with many and with few patterns of missing cells, and shares."""
    diagonal, d, share = request.param
    k, n = 3, 150
    root = rng.normal(size=(k, d, d))
    precision = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(d)
    X = rng.normal(size=(n, d)) + 5
    mask = rng.random((n, d)) < share
    mask[90:] = rng.random(d) < 1.25 * share
    mask[mask.all(axis=1), 0] = False
    X[mask] = np.nan
    patterns = cell_patterns(X)
    if patterns is None:
        patterns = np.zeros(n, dtype=np.uint64)
    rows = Rows(X, None, np.full(d, 4.9), patterns)
    stored = np.diagonal(precision, axis1=1, axis2=2).copy() if diagonal else precision
    gaussians = cells.Gaussians(rng.normal(size=(k, d)), stored, rng.normal(size=k), np.zeros(k))
    order = rng.permutation(n)[:135]
    return rows, order, gaussians, rng.random((len(order), k))


def plain(x, mean, precision):
    """Squared distance, log|P_mm|, the completed deviation, and the covariance, of one row."""
    m = np.isnan(x)
    deviation = np.where(m, 0.0, x - mean)
    if m.any():
        p_mm = precision[np.ix_(m, m)]
        deviation[m] = -np.linalg.solve(p_mm, precision[m] @ deviation)
    covariance = np.zeros((len(x), len(x)))
    covariance[np.ix_(m, m)] = np.linalg.inv(precision[np.ix_(m, m)])
    log_det = np.linalg.slogdet(precision[np.ix_(m, m)])[1]
    return deviation @ precision @ deviation, log_det, deviation, covariance


@pytest.mark.parametrize("size_of_groups", [10, 10**9])
def test_marginals_moments_and_imputed_cells(problem, size_of_groups, rng, monkeypatch):
    """Of rows that lack the same cells, computed as a group or one by one."""
    monkeypatch.setattr(cells, "_GROUP", size_of_groups)
    rows, order, gaussians, shares = problem
    order = order[np.argsort(rows.patterns[order], kind="stable")]
    k, d = gaussians.mean.shape
    precisions = gaussians.precision
    if gaussians.diagonal:
        precisions = np.array([np.diag(p) for p in precisions])
    distances, log_dets = cells.marginals(rows, order, gaussians)
    moments = cells.completed_moments(rows, order, shares, gaussians)
    p = shares / shares.sum(axis=1, keepdims=True)
    factors = rng.random(shares.shape) + 0.5
    means, variances = cells.imputed(rows, order, p, factors, gaussians)
    first, second = np.zeros((k, d)), np.zeros((k, d, d))
    for i, n in enumerate(order):
        x = rows.X[n] - rows.center
        m = np.isnan(x)
        mean, square = np.zeros(d), np.zeros(d)
        for j in range(k):
            distance, log_det, deviation, covariance = plain(x, gaussians.mean[j], precisions[j])
            np.testing.assert_allclose(distances[i, j], distance, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(log_dets[i, j], log_det, rtol=1e-8, atol=1e-10)
            completed = gaussians.mean[j] + deviation
            first[j] += shares[i, j] * completed
            second[j] += shares[i, j] * (np.outer(completed, completed) + covariance)
            mean += p[i, j] * completed
            square += p[i, j] * (completed**2 + factors[i, j] * np.diag(covariance))
        np.testing.assert_allclose(means[i][m], mean[m], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(variances[i][m], (square - mean**2)[m], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(moments.counts, shares.sum(axis=0))
    np.testing.assert_allclose(moments.first, first, rtol=1e-8, atol=1e-8)
    if gaussians.diagonal:
        second = np.diagonal(second, axis1=1, axis2=2)
    np.testing.assert_allclose(moments.second, second, rtol=1e-8, atol=1e-8)


def test_infinite_variances_are_infinite(problem):
    rows, order, gaussians, shares = problem
    factors = np.ones(shares.shape)
    factors[0, 1] = np.inf
    _, variances = cells.imputed(rows, order, shares, factors, gaussians)
    missing = np.isnan(rows.X[order])
    assert np.isinf(variances[0][missing[0]]).all()
    assert np.isfinite(variances[1:][missing[1:]]).all()


def test_rows_without_a_share_are_left_out(problem):
    """Shares of almost 0 change nothing, and negative ones, which methods can make, count."""
    rows, order, gaussians, shares = problem
    shares[1::4] *= -1.0
    shares[::3, 1] = 0.0
    expected = cells.completed_moments(rows, order, shares, gaussians)
    whole, rest = shares.copy(), np.zeros_like(shares)
    whole[::5], rest[::5] = 0.0, shares[::5]
    parts = [cells.completed_moments(rows, order, r, gaussians) for r in (whole, rest)]
    shares[::3, 1] = 1e-40
    almost = cells.completed_moments(rows, order, shares, gaussians)
    for value, found, one, other in zip(expected, almost, *parts, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one + other, value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size_of_groups", [10, 10**9])
def test_half_solutions_serve_densities_and_statistics(problem, size_of_groups, monkeypatch):
    """Kept from the densities, they make the same statistics as those computed again."""
    monkeypatch.setattr(cells, "_GROUP", size_of_groups)
    rows, order, gaussians, shares = problem
    order = order[np.argsort(rows.patterns[order], kind="stable")]
    again = cells.completed_moments(rows, order, shares, gaussians)
    halves = cells.Halves()
    gaussians = gaussians._replace(halves=halves)
    cells.marginals(rows, order, gaussians)
    if gaussians.diagonal or not rows.n_missing[order].any():
        assert halves.of(order).size == 0
        return
    read = halves._order
    assert halves.of(read).shape[1] == len(gaussians.mean) * rows.n_missing[read].max()
    assert halves.of(read[1:]).size == 0
    kept = cells.completed_moments(rows, order, shares, gaussians)
    for value, expected in zip(kept, again, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(cells, "_KEPT", 1)
    cells.marginals(rows, order, gaussians)
    assert halves.of(read).size == 0


def test_fits_keep_half_solutions_of_many_columns(rng, monkeypatch):
    """Their bounds are those of fits that compute them twice, where no kernel does both."""
    monkeypatch.setattr(cells, "_FACTORS", 0)
    X = rng.normal(size=(80, 45)) @ rng.normal(size=(45, 45))
    X[rng.random(X.shape) < 0.2] = np.nan
    used = []

    def of(self, order):
        found = original(self, order)
        used.append(found.size)
        return found

    original = cells.Halves.of
    monkeypatch.setattr(cells.Halves, "of", of)
    bounds = []
    for most in (1 << 21, 0):
        monkeypatch.setattr(cells, "_KEPT", most)
        mixture = AnnealedBayesianGaussianMixture(2, annealing="none", max_iter=5, random_state=0)
        with pytest.warns(ConvergenceWarning):
            bounds.append(mixture.fit(X).lower_bounds_)
        assert (min(used) > 0) == (most > 0)
        used.clear()
    np.testing.assert_allclose(*bounds, rtol=1e-10)


def test_matrices_fill_the_vectors_of_the_processor(monkeypatch):
    for features, n in (("+avx2,+fma", 4), ("+avx2,+avx512f", 8), ("", 4)):
        monkeypatch.setattr(tiles.config, "CPU_FEATURES", features)
        assert tiles._n_lanes() == n


@pytest.mark.parametrize("spread", [0.01, 1.0, 1e4], ids=["shared", "usual", "certain"])
@pytest.mark.parametrize("with_weights", [False, True])
@pytest.mark.parametrize("one_matrix", [False, True])
def test_local_steps_are_densities_shares_and_moments(
    problem, spread, with_weights, one_matrix, rng, monkeypatch
):
    """Where rows share components, and where others take the places of those that do not."""
    monkeypatch.setattr(cells, "_CELLS", 1)
    rows, order, gaussians, _ = problem
    order = order[np.argsort(rows.n_missing[order], kind="stable")]
    precision = spread * gaussians.precision
    if one_matrix:
        precision = np.broadcast_to(precision[0], precision.shape)
    gaussians = gaussians._replace(precision=precision)
    if not gaussians.diagonal:
        assert len(gaussians.distinct) == (1 if one_matrix else 3) * precision.shape[1]
    if with_weights:
        rows.weights = rng.random(rows.n_units) + 0.5
    local = rng.random(rows.n_units) + 0.1 if with_weights else 0.7
    t = Tempering(local, 0.9)
    found = cells.local_step(rows, order, t, gaussians)
    if gaussians.diagonal or not rows.n_missing[order].any():
        assert found is None
        return
    joint = cells.log_density(rows, order, gaussians)
    weights = rows.weights[order] if with_weights else None
    given = Tempering(local[order] if with_weights else local, 0.9)
    expected = responsibilities_step(joint, given, weights)
    assert found.energy == pytest.approx(expected.energy, rel=1e-10)
    assert found.entropy == pytest.approx(expected.entropy, rel=1e-9, abs=1e-9)
    moments = cells.completed_moments(rows, order, expected.shares, gaussians)
    for one, other in zip(found.moments, moments, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


def test_local_steps_that_need_another_way(problem, monkeypatch):
    rows, order, gaussians, _ = problem
    monkeypatch.setattr(cells, "_CELLS", 1)
    assert cells.local_step(rows, order, Tempering(1.0, -0.5), gaussians) is None
    monkeypatch.setattr(cells, "_CELLS", rows.n_missing[order].max() + 1)
    monkeypatch.setattr(cells, "_COLUMNS", range(0))
    assert cells.local_step(rows, order, Tempering(), gaussians) is None
    monkeypatch.setattr(cells, "_COLUMNS", [rows.X.shape[1]])
    found = cells.local_step(rows, order, Tempering(), gaussians)
    assert (found is None) == gaussians.diagonal
    monkeypatch.setattr(cells, "_COLUMNS", range(0))
    monkeypatch.setattr(cells, "_CELLS", 1)
    monkeypatch.setattr(cells, "_FACTORS", 0)
    assert cells.local_step(rows, order, Tempering(), gaussians) is None
