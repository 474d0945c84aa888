"""Spike-and-slab factor analysis whose factors are on in all rows: against exact Gaussians."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits
from sklearn.decomposition import FactorAnalysis

from sklearn_anneal import AnnealedSpikeSlabFactorAnalysis
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.families import Gaussian
from sklearn_anneal.models import _gaussian_factors
from sklearn_anneal.models._binary_codes import RowBlock
from sklearn_anneal.models._factor_rows import Likelihood, Moments
from sklearn_anneal.models._gaussian_factors import independent, low_rank, transformation
from sklearn_anneal.models._loadings import Loadings
from sklearn_anneal.models._packed_gaussians import column_sums, observed_sums, packed, symmetric

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def gaussian(k, **params):
    settings = {"activation_prior": 1.0, "random_state": 0}
    return AnnealedSpikeSlabFactorAnalysis(k, **(settings | params))


def rows(rng, n=150, d=8, k=3, missing=0.0):
    X = 2.0 + rng.standard_normal((n, k)) @ rng.standard_normal((k, d))
    X += 0.5 * rng.standard_normal((n, d))
    X[rng.random(X.shape) < missing] = np.nan
    return X


@pytest.mark.parametrize("missing", [False, True])
def test_bounds_of_rows_are_densities_given_the_loadings(missing, rng):
    """The q(s) of a row is its posterior, so that nothing is lost but for uncertain loadings."""
    k, d, n = 3, 6, 5
    loadings, noise = rng.normal(size=(k, d)), rng.uniform(0.3, 2.0, d)
    X = 1.5 * rng.normal(size=(n, d))
    observed = (rng.random(X.shape) < 0.6).astype(float) if missing else None
    means = loadings / np.sqrt(noise)
    squares = np.einsum("kd,ld->dkl", means, means)
    moments = Moments(means, squares[:, *np.tril_indices(k)], squares.sum(axis=0))
    block = RowBlock(slice(0, n), X * observed if missing else X, observed)
    likelihood = Likelihood(moments, noise, np.ones(k), 1e-3)
    found = likelihood.infer(block, 1.0, [np.ones(1)], None, 1)
    covariance = loadings.T @ loadings + np.diag(noise)
    for i, x in enumerate(X):
        seen = np.ones(d, dtype=bool) if observed is None else observed[i] > 0
        own = covariance[np.ix_(seen, seen)]
        expected = multivariate_normal(np.zeros(seen.sum()), own).logpdf(x[seen])
        assert found.energies[i] + found.entropies[i] == pytest.approx(expected)
        factors = loadings[:, seen] @ np.linalg.solve(own, x[seen])
        assert_allclose(found.factors[:, i], factors, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("learned", [False, True])
def test_no_other_change_of_the_factors_has_a_higher_bound(learned, rng):
    """The terms of the bound are N log |A| − tr(A S Aᵀ) / 2 − D log |A| − tr(A⁻ᵀ Q A⁻¹) / 2.

    The last one is D Σ_k log (A⁻ᵀ Q A⁻¹)_kk / 2 if the variances of loadings follow them.
    """
    k, n, d = 3, 40.0, 15
    root = rng.normal(size=(2, k, 2 * k))
    S, Q = root @ root.transpose(0, 2, 1) * np.array([n, d])[:, None, None] / (2 * k)

    def bound(A):
        back = np.linalg.inv(A)
        squares = np.diagonal(back.T @ Q @ back)
        lengths = d * np.log(squares).sum() if learned else squares.sum()
        return (n - d) * np.linalg.slogdet(A)[1] - 0.5 * (np.trace(A @ S @ A.T) + lengths)

    best = transformation(np.full(k, n), S, Q, d, learned)
    back = np.linalg.inv(best)
    assert (np.diff(np.diagonal(back.T @ Q @ back)) < 0).all()
    for size in (1e-3, 0.03, 0.3):
        for _ in range(20):
            other = best @ (np.eye(k) + size * rng.normal(size=(k, k)))
            assert bound(other) < bound(best)


def test_missing_cells_of_pictures_are_filled_in_as_well_as_by_factor_analysis(rng):
    X = load_digits().data[:200]
    X = X[:, X.std(axis=0) > 1.0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    gone = rng.random(X.shape) < 0.1
    gaps = np.where(gone, np.nan, X)
    filled = np.where(gone, 0.0, X)
    for _ in range(3):
        peer = FactorAnalysis(15).fit(filled)
        filled[gone] = (peer.transform(filled) @ peer.components_ + peer.mean_)[gone]
    ours = gaussian(15, tol=1e-2).fit(gaps).impute(gaps)
    assert_allclose(ours[~gone], X[~gone])
    errors = [np.sqrt(np.mean((each - X)[gone] ** 2)) for each in (filled, ours)]
    assert errors[1] < errors[0] < 0.8


def test_predictions_are_those_of_gaussians(rng):
    X = rows(rng, n=400, missing=0.2)
    est = gaussian(3).fit(X)
    assert_allclose(est.inclusion_probabilities(X), 1.0)
    gaps = np.isnan(X)
    row = X[gaps.sum(axis=1) == 2][:1]
    seen = ~np.isnan(row[0])
    covariance, away = est.get_covariance(), (row[0] - est.mean_)[seen]
    solved = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, ~seen)])
    own = covariance[np.ix_(~seen, ~seen)] - covariance[np.ix_(~seen, seen)] @ solved
    cells, std = est.impute(row, return_std=True)
    deviations = np.sqrt(np.diagonal(own))
    assert_allclose(cells[0, ~seen], est.mean_[~seen] + away @ solved, atol=0.1)
    assert_allclose(std[0, ~seen], deviations, rtol=0.1)
    draws = est.impute(np.repeat(row, 50, axis=0), n_draws=20, random_state=0)[:, :, ~seen]
    drawn = draws.reshape(-1, 2)
    assert_allclose(drawn.mean(axis=0), cells[0, ~seen], atol=0.15)
    assert_allclose(drawn.std(axis=0), deviations, rtol=0.1)
    # Nearly known loadings leave the density of a Gaussian.
    density = multivariate_normal(est.mean_[seen], covariance[np.ix_(seen, seen)]).logpdf(
        row[0, seen]
    )
    assert est.score_samples(row)[0] == pytest.approx(density, abs=0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_prior": [1.0, 0.5]}, "below 1 everywhere, or 1 for all"),
        ({"solver": "gradient", "annealing": "none"}, "needs solver='coordinate'"),
    ],
)
def test_factors_that_are_not_all_gaussian_are_refused(change, message, rng):
    with pytest.raises(ValueError, match=message):
        gaussian(2).set_params(**change).fit(rows(rng, n=20))


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_learned_variances_of_loadings_converge_at_once(missing, rng):
    """Also with more factors than have drawn the rows, whose variances go to their limit."""
    X = rows(rng, k=3, missing=missing)
    est = gaussian(6, loading_variance="learned").fit(X)
    assert est.converged_ and est.n_iter_ < 60
    assert np.diff(est.lower_bounds_).min() > -1e-7 * abs(est.lower_bound_)
    few = est.loading_variance_ < 1e-3 * est.loading_variance_.max()
    assert few.sum() == 3 and est.n_effective_components_ == 3


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_learned_variances_keep_factors_that_the_given_noise_needs(missing, rng):
    """Three factors have drawn the rows, but with so little noise all columns need some."""
    X = rows(rng, k=3, missing=missing)
    noise = 0.003 * np.nanvar(X, axis=0)
    learned, given = (
        gaussian(5, noise_variance=noise, loading_variance=v).fit(X) for v in ("learned", 1.0)
    )
    assert learned.n_effective_components_ == 5
    assert learned.lower_bound_ > given.lower_bound_


def test_variances_of_loadings_by_default(rng):
    """They are learned with factors that can be off, and 1 with Gaussian ones."""
    X = rows(rng, n=60)
    given, learned = gaussian(2, max_iter=2).fit(X), gaussian(2, loading_variance="learned")
    assert_allclose(given.loading_variance_, 1.0)
    assert np.ptp(learned.fit(X).loading_variance_) > 0
    off = gaussian(2, activation_prior="auto").fit(X)
    assert_allclose(
        off.lower_bounds_, off.set_params(loading_variance="learned").fit(X).lower_bounds_
    )
    assert np.ptp(off.loading_variance_) > 0


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_factors_are_rotated_where_nothing_is_learned(missing, rng):
    X = rows(rng, d=6, k=2, missing=missing)
    est = gaussian(2, noise_variance=0.001).fit(X)
    assert est.converged_ and est.n_iter_ < 20
    assert np.diff(est.lower_bounds_).min() > -1e-7 * abs(est.lower_bound_)


def test_a_start_does_not_depend_on_the_unit_of_weights(rng):
    rows_of = [
        Rows(rows(np.random.default_rng(0)), np.full(150, weight)) for weight in (1.0, 1e-12)
    ]
    how = 3, np.ones(8), np.ones(3), False
    starts = [low_rank(each, *how, np.random.RandomState(0)) for each in rows_of]
    assert_allclose(*starts, rtol=1e-9)


def test_moments_of_columns_are_those_of_whole_matrices(rng):
    """Nineteen Gaussians, so that the last group of the kernel is not full."""
    d, k = 19, 5
    root = rng.normal(size=(d, k, 2 * k))
    q = {"precision": root @ root.transpose(0, 2, 1), "natural_mean": rng.normal(size=(d, k))}
    v = rng.uniform(0.5, 2.0, k)
    found = Loadings.of_columns(**q)
    covariances = np.linalg.inv(q["precision"])
    means = np.einsum("dkl,dl->dk", covariances, q["natural_mean"])
    second = covariances + means[:, :, None] * means[:, None, :]
    assert_allclose(found.means, means.T)
    assert_allclose(found.squares, np.diagonal(second, axis1=1, axis2=2).T)
    assert_allclose(found.gram, second.sum(axis=0))
    prior = {"precision": np.diag(1.0 / v), "natural_mean": np.zeros((d, k))}
    assert found.kl(v) == pytest.approx(Gaussian().kl(q, prior))
    S = root[::-1] @ root[::-1].transpose(0, 2, 1)
    assert_allclose(found.explained(packed(S)), (S * second).sum(axis=(1, 2)))
    change = rng.normal(size=(k, k))
    changed = np.diagonal(change @ second @ change.T, axis1=1, axis2=2).T
    assert_allclose(found.squares_after(change), changed)
    common = Loadings.sharing(means.T, covariances[0])
    own = np.diagonal(change @ covariances[0] @ change.T)
    assert_allclose(common.squares_after(change), (change @ means.T) ** 2 + own[:, None])
    assert_allclose(symmetric(packed(S), k), S)
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        Loadings.of_columns(q["precision"] - 50.0 * np.eye(k), q["natural_mean"])


@pytest.mark.parametrize("loading_variance", ["learned", 1.0])
def test_a_pass_computes_the_moments_of_the_loadings_once(loading_variance, monkeypatch, rng):
    """Those of the bound, of the rows and of the last pass are the same."""
    counted, compute = [], Loadings.of_columns

    def count(*args):
        counted.append(args)
        return compute(*args)

    X = rows(rng, missing=0.2)
    monkeypatch.setattr(Loadings, "of_columns", count)
    few, many = (gaussian(2, max_iter=n, tol=0, loading_variance=loading_variance) for n in (2, 5))
    few.fit(X)
    before = len(counted)
    many.fit(X)
    # Once when the visit begins, and once after the update, for what is learned.
    assert len(counted) - 2 * before == 2 * (many.n_passes_ - few.n_passes_)


@pytest.mark.parametrize("weights", [np.ones(1), np.linspace(0.1, 3.0, 60)])
@pytest.mark.parametrize("k", [3, 25])
def test_sums_over_observed_cells_are_products(k, weights, rng):
    """Those of many factors are differences from the sum over all cells."""
    size = k * (k + 1) // 2
    vectors = rng.normal(size=(60, k))
    # Triangles are the first columns of a wider table, or lie column after column in memory.
    wide = np.hstack([packed(vectors[:, :, None] * vectors[:, None, :]), np.ones((60, 5))])
    for triangles in (wide[:, :size], np.asfortranarray(wide[:, :size])):
        observed = (rng.random((60, 40)) > 0.1).astype(float)
        observed[:, 3] = 1.0
        expected = observed.T @ (weights[:, None] * triangles)
        assert_allclose(column_sums(observed, triangles, weights), expected, atol=1e-11)
        of_rows = observed[:, :7] @ triangles[:7]
        assert_allclose(observed_sums(observed[:, :7], triangles[:7]), of_rows, atol=1e-11)


def test_sums_over_observed_cells_keep_digits(rng):
    """The difference from the sum over all cells would be noise if one cell has nearly all."""
    k = 20
    vectors = rng.normal(size=(30, k))
    vectors[0] *= 1e7
    triangles = packed(vectors[:, :, None] * vectors[:, None, :])
    observed = np.ones((4, 30))
    observed[1:, 0] = 0.0
    assert_allclose(observed_sums(observed, triangles), observed @ triangles, rtol=1e-9)


def test_independent_factors_are_found_in_a_rotation(rng):
    """Weights are numbers of copies."""
    factors = rng.standard_normal((300, 4)) * (rng.random((300, 4)) < 0.2)
    loadings = rng.normal(size=(4, 9))
    turned = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    found = independent(factors @ turned, turned.T @ loadings, None)
    cosines = found @ loadings.T
    cosines /= np.linalg.norm(found, axis=1)[:, None] * np.linalg.norm(loadings, axis=1)
    assert_allclose(np.sort(np.abs(cosines).max(axis=0)), 1.0, atol=0.02)
    number = rng.integers(1, 3, 300)
    copies = independent(np.repeat(factors @ turned, number, axis=0), turned.T @ loadings, None)
    weighted = independent(factors @ turned, turned.T @ loadings, number.astype(float))
    assert_allclose(weighted, copies, rtol=1e-6)


def test_factors_without_variance_have_no_loadings(rng):
    assert np.isfinite(independent(np.zeros((9, 3)), rng.normal(size=(3, 5)), None)).all()


def test_longer_steps_save_rounds_of_the_start(monkeypatch, rng):
    """They lead where many rounds would, whose last changes are small long before the end."""
    X = rows(rng, n=200, d=20, k=6, missing=0.1)
    units = Rows(X - np.nanmean(X, axis=0), patterns=cell_patterns(X))
    variances, counted = np.nanvar(X, axis=0), []
    after_round = _gaussian_factors._FilledRows.after_round

    def count(self, at):
        counted.append(at)
        return after_round(self, at)

    monkeypatch.setattr(_gaussian_factors._FilledRows, "after_round", count)

    def start(**settings):
        counted.clear()
        for name, value in settings.items():
            monkeypatch.setattr(_gaussian_factors, name, value)
        W = low_rank(units, 6, variances, np.ones(6), False, np.random.RandomState(0))
        return W.T @ W, len(counted)

    quick, n_quick = start()
    plain, n_plain = start(_LONGEST_STEP=1.0)
    best, _ = start(_SETTLED=1e-6)
    assert n_quick < 0.7 * n_plain
    assert np.abs(quick - best).max() < np.abs(plain - best).max()
