"""Tests of precision matrices by the rows of components, which are few for their columns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.families.wishart import Precisions
from sklearn_anneal.models.components import _features, _few_rows, _wide_gaussians
from sklearn_anneal.models.components._features import Block, FeatureSums
from sklearn_anneal.models.components._few_rows import FewRows, RowPrecisions

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MADE = AnnealedBayesianGaussianMixture(
    2, annealing="none", effort=0, max_iter=12, tol=0.0, random_state=0
)


def both(rng, n_rows, d=70, unit=1.0):
    """The same precision matrices by rows and by matrices, of which the last has a row of zeros."""
    rows = [*(unit * rng.standard_normal((n, d)) for n in n_rows), np.zeros((1, d))]
    diagonals = unit**2 * rng.uniform(0.5, 2.0, size=(len(rows), d))
    dof = d + np.arange(1.0, len(rows) + 1)
    inverse_scales = np.stack(
        [np.diag(own) + b.T @ b for own, b in zip(diagonals, rows, strict=True)]
    )
    by_rows = RowPrecisions(diagonals, [b.copy() for b in rows], dof)
    return by_rows, Precisions(inverse_scales.copy(), dof), inverse_scales


@pytest.mark.parametrize("unit", [1e-90, 1.0, 1e90])
def test_results_are_those_of_matrices(unit, rng):
    by_rows, by_matrices, inverse_scales = both(rng, (1, 20, 90), unit=unit)
    assert_allclose(by_rows.log_dets, by_matrices.log_dets, rtol=1e-12)
    assert_allclose(
        by_rows.log_dets, np.linalg.slogdet(inverse_scales / unit**2)[1] + 140 * np.log(unit)
    )
    assert_allclose(by_rows.diagonals, by_matrices.diagonals, rtol=1e-10)
    own = unit**2 * rng.uniform(0.5, 2.0, size=(4, 70))
    assert_allclose(by_rows.squares(own), by_matrices.squares(own), rtol=1e-10)
    common = np.diag(own[0])
    assert_allclose(by_rows.traces(common), by_matrices.traces(common), rtol=1e-10)
    columns, x = rng.standard_normal((4, 70, 3)), unit * rng.standard_normal((5, 70))
    for _ in range(2):  # before and after the matrices are known
        expected = by_matrices.multiply(columns)
        assert_allclose(by_rows.multiply(columns) * unit**2, expected * unit**2, atol=1e-9)
        for k in range(4):
            one, other = (p.roots.distances(k, x.copy()) for p in (by_rows, by_matrices))
            assert_allclose(one, other, rtol=1e-10)
            assert_allclose(one, np.einsum("nd,de,ne->n", x, by_matrices.matrices[k], x))
        assert_allclose(by_rows.matrices * unit**2, by_matrices.matrices * unit**2, atol=1e-9)
        full = unit**2 * np.cov(rng.standard_normal((70, 90)))
        assert_allclose(by_rows.traces(full), by_matrices.traces(full), rtol=1e-10)


def test_diagonals_must_be_positive(rng):
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(np.linalg.LinAlgError):
            RowPrecisions(np.array([[1.0, wrong]]), [np.ones((1, 2))], np.ones(1) + 2.0)


def clusters(rng, n, d=80):
    return rng.standard_normal((n, d)) + 3.0 * rng.integers(0, 2, (n, 1)) + 50.0


def counted(monkeypatch):
    """The calls of the precision matrices by rows."""
    calls, made = [], FewRows.precisions

    def precisions(self, *arguments):
        calls.append(self)
        return made(self, *arguments)

    monkeypatch.setattr(FewRows, "precisions", precisions)
    return calls


@pytest.mark.parametrize("form", ["rows", "weights", "float32", "parts"])
@pytest.mark.parametrize("n", [2, 3, 30])
def test_passes_by_rows_are_those_by_matrices(n, form, rng, monkeypatch):
    X = clusters(rng, n)
    weights = rng.uniform(1.0, 1.2, n) if form == "weights" else None
    X = X.astype(np.float32) if form == "float32" else X
    if form == "parts":
        monkeypatch.setattr(_wide_gaussians, "_ENTRIES", 8 * 80)
        monkeypatch.setattr(_wide_gaussians, "_ROWS", 0)
    calls = counted(monkeypatch)
    by_rows = clone(MADE).fit(X, sample_weight=weights)
    assert calls
    monkeypatch.setattr(_features, "SHARE_OF_COLUMNS", 0.0)
    calls.clear()
    by_matrices = clone(MADE).fit(X, sample_weight=weights)
    assert not calls
    assert_allclose(by_rows.lower_bounds_, by_matrices.lower_bounds_, rtol=1e-10)
    assert_allclose(by_rows.means_, by_matrices.means_, rtol=1e-8)
    assert_allclose(by_rows.score_samples(X), by_matrices.score_samples(X), rtol=1e-7)


def test_components_of_many_rows_and_of_none(rng, monkeypatch):
    """One that has more rows than the limit makes all of them matrices."""
    calls = counted(monkeypatch)
    X = clusters(rng, 120)
    clone(MADE).fit(X)
    assert not calls
    bounds = clone(MADE).set_params(n_components=5).fit(clusters(rng, 40)).lower_bounds_
    assert calls
    assert np.diff(bounds).min() > -1e-7


def test_rows_that_are_much_wider_than_their_prior_are_matrices(rng, monkeypatch):
    calls = counted(monkeypatch)
    X = clusters(rng, 30)
    whole = clone(MADE).fit(X)
    monkeypatch.setattr(_few_rows, "_LARGEST_ROOT", 0.0)
    calls.clear()
    found = clone(MADE).fit(X)
    assert calls
    assert_allclose(found.lower_bounds_, whole.lower_bounds_, rtol=1e-10)


def test_rows_that_grow_in_one_direction_are_seen_to_lose_digits(rng):
    """The last one is long, although it adds little to the directions of those before it."""
    direction = rng.standard_normal(120) / np.sqrt(120)
    rows = 10.0 * 100.0 ** np.arange(1, 5)[:, None] * direction
    rows += 0.1 * rng.standard_normal((4, 120))
    for ordered in (rows, rows[::-1]):
        found = RowPrecisions(np.ones((1, 120)), [ordered.copy()], np.array([200.0]))
        assert found.widest > _few_rows._LARGEST_ROOT


def test_missing_cells_are_no_rows(rng, monkeypatch):
    calls = counted(monkeypatch)
    X = clusters(rng, 30)
    X[rng.random(X.shape) < 0.05] = np.nan
    clone(MADE).fit(X)
    assert not calls


def test_sums_keep_the_rows_of_both(rng):
    def sums(*sizes):
        found = FeatureSums("full", np.zeros((2, 3)), np.zeros((1, 0)), [[], []])
        for k, n in enumerate(sizes):
            if n:
                found.keep(k, Block(rng.standard_normal((n, 10)), np.ones(n)))
        return found

    one, other = sums(2, 5), sums(3, 4)
    total = one + other
    assert [len(block.rows) for block in total.kept[0]] == [2, 3]
    assert total.kept[1] is None
    assert [len(one.kept[k]) for k in range(2)] == [1, 1]
    assert (total + other).kept == [None, None]
    assert (2.0 * total).kept is None
