"""Tests of the searches for the prior of Gaussian components, against plain ones."""

from __future__ import annotations

import numpy as np
import plain_learned_gaussians as plain
import pytest
from numpy.testing import assert_allclose

from sklearn_anneal.kernels import gaussian_mixture as kernels
from sklearn_anneal.models.components._determinants import Determinants

D = 7


@pytest.fixture(params=[1, 2, 6])
def n_components(request):
    return request.param


def some_limits(rng, k):
    p = rng.beta(0.7, 0.7, (k, D))
    return np.array(Determinants.of(p.sum(axis=1), (p**2).sum(axis=1), D)[1:])


@pytest.mark.parametrize("kind", ["equal", "different", "nothing decays"])
def test_strength_of_sizes(kind, n_components, rng):
    k = n_components
    now = np.ones(k) if kind == "equal" else np.exp(rng.normal(size=k))
    counts = 0.5 * D * rng.uniform(8.0, 12.0, k)
    certain, slopes = rng.uniform(0.0, 2.0, k), counts / now * np.exp(0.1 * rng.normal(size=k))
    decay = rng.uniform(0.1, 1.0, (2, k)) / now
    if kind == "nothing decays":
        certain, decay = np.zeros(k), np.zeros((2, k))
    table = np.array([counts, slopes, certain, *decay, now])
    grid, found, sizes = np.geomspace(0.5, 1e4, 21), np.empty(1), np.empty((2, k))
    kernels.strength_of_sizes(grid, table, 3.0, 1e-7, found, sizes)
    assert 0.5 <= found[0] <= 1e4
    best = plain.gain_of_strength(found[0], table)
    for a in (*grid, *np.clip(found[0] * np.array([0.99, 1.01]), 0.5, 1e4)):
        assert best >= plain.gain_of_strength(a, table) - 1e-9
    assert_allclose(sizes[0], plain.best_sizes(found[0], table)[0], rtol=1e-9)
    assert_allclose(sizes[1], plain.best_sizes(3.0, table)[0], rtol=1e-9)


@pytest.mark.parametrize("eta", [np.inf, 2.0 * D])
@pytest.mark.parametrize("bounds", [(7.0, 1e3), (7.0, 9.5), (9.0, 9.0)])
def test_dof_and_scale(eta, bounds, n_components, rng):
    """Maxima between the bounds and at one of them, and a given ν₀."""
    k, old = n_components, 9.0
    table = np.array(
        [rng.uniform(0.0, 40.0, k), rng.uniform(0.0, 1.0, k), rng.uniform(0.5, 2.0, k)]
    )
    settings = np.array([old, *bounds, rng.normal() - 4.0, eta, 1.0])
    limits, found = some_limits(rng, k), np.empty(2)
    for floor in (1e-3, 0.999):
        kernels.dof_and_scale(settings, table, limits, D, floor, 1e100, found)
        expected = plain.dof_and_scale(settings, table, limits, D, floor, 1e100)
        assert_allclose(found, expected, rtol=1e-8)


@pytest.fixture
def means(n_components, rng):
    """Products of vectors and of precision matrices W, and the other terms of M = W⁻¹ − h x xᵀ."""
    k = n_components
    counts = rng.uniform(1.0, 9.0, k)
    if k > 2:
        counts[1] = 0.0
    root = rng.normal(size=(k, D, D))
    w = np.linalg.inv(root @ np.swapaxes(root, 1, 2) + 5.0 * np.eye(D))
    moved = counts[:, None] * rng.normal(size=(k, D))
    solved = (w @ moved[:, :, None])[:, :, 0]
    return counts, D + counts, rng.uniform(0.0, 1e-2, k), moved, solved, w


def test_step_of_mean(means, rng):
    counts, dof, factors, moved, solved, w = means
    old = 0.3
    both = np.array([counts * (old + counts) / old, factors])
    for size in (0.02, 1.0):
        change = size * (moved.sum(axis=0) / counts.sum() + 0.1 * rng.normal(size=D))
        along = counts[:, None] * change
        of_along, found = (w @ along[:, :, None])[:, :, 0], np.array([1.0, 100.0])
        given = counts, dof, both, moved, solved, along, of_along, solved
        kernels.step_of_mean(*given, 1e-10, found)
        expected = plain.step_of_mean(*given, 100.0)
        assert found[0] == pytest.approx(expected, abs=6e-3)
        assert 1.0 <= found[0] <= 100.0 * (1.0 + 1e-12)


@pytest.mark.parametrize("most", [1e-3, 50.0])
def test_strength_of_means(means, most):
    counts, dof, factors, moved, solved, _ = means
    found = np.array([0.3, 1e-8])
    given = counts, dof, factors, moved, solved, solved, D, most
    kernels.strength_of_means(*given, found)
    assert found[0] == pytest.approx(plain.strength_of_means(*given, 0.3, 1e-8), rel=1e-8)


def test_strength_of_means_is_the_best_of_several_where_counts_span_decades(rng):
    """Some components determine their mean far better than others, so that there are two maxima."""
    grid = np.exp(np.linspace(np.log(1e-8), np.log(1e6), 200))[:, None]
    for _ in range(300):
        counts = np.array([10.0 ** rng.uniform(1, 6), *10.0 ** rng.uniform(-6, -3, 2)])
        dof, d, most = 10.0 ** rng.uniform(0, 4, 3) + counts, int(rng.integers(1, 6)), counts.sum()
        moved = rng.standard_normal((3, d)) * counts[:, None] * 10.0 ** rng.uniform(-6, 6)
        root = rng.standard_normal((3, d, d))
        scale = 10.0 ** rng.uniform(-6, 3) / np.maximum(counts, 1e-3)[:, None]
        solved = scale * np.einsum("kij,klj,kl->ki", root, root, moved)
        squares = (moved * solved).sum(axis=1)

        def value(x, counts=counts, dof=dof, d=d, squares=squares):
            share = x / (x + counts)
            return (d * np.log(share) - dof * np.log1p(share * squares / counts)).sum(axis=-1)

        found = np.array([min(10.0 ** rng.uniform(-5, 3), most), 1e-8])
        kernels.strength_of_means(counts, dof, np.zeros(3), moved, solved, solved, d, most, found)
        best = value(np.minimum(grid, most)).max()
        assert value(found[0]) >= best - 1e-6 * abs(best)


def test_change_of_means(means, rng):
    counts, _, _, moved, solved, w = means
    k = len(counts)
    both = np.concatenate([moved, 1.1 * moved + 0.1])
    solved = np.concatenate([solved, (w @ both[k:, :, None])[:, :, 0]])
    turned = solved * rng.uniform(0.5, 2.0, D)
    again = np.concatenate([(w @ x[:, :, None])[:, :, 0] for x in (turned[:k], turned[k:])])
    scales = np.tile(np.where(counts > 0.0, 0.3, 0.0), 2) * np.repeat([1.0, 1.2], k)
    found = np.empty((3, k))
    kernels.change_of_means(scales, both, solved, turned, again, found)
    expected = plain.change_of_means(scales, both, solved, turned, again, k)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_factors_of_entries(n_components, rng):
    shares = rng.uniform(0.0, 1.0, (n_components, 40))
    # Columns whose best factors are at a bound.
    shares[:, 0], shares[:, 1] = 1e-9, 1.0
    before = rng.uniform(1.0, 9.0, n_components)
    after, found, rise = before + rng.uniform(1.0, 20.0, n_components), np.empty(40), np.empty(1)
    kernels.factors_of_entries(shares, before, after, 100.0, found, rise)
    expected, gain = plain.factors_of_entries(shares, before, after, 100.0)
    assert_allclose(found, expected, rtol=1e-9)
    assert rise[0] == pytest.approx(gain, rel=1e-10)
    assert found.min() == pytest.approx(0.01)
    assert found.max() == pytest.approx(100.0)
