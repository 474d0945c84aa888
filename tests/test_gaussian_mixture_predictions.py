"""Tests of what a fitted Gaussian mixture says of rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from cases_gaussian_mixture import (
    all_covariance_types,
    all_factorizations,
    clusters,
)
from peer_priors import PEER_OF_MIXTURES
from sklearn.metrics import roc_auc_score

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.annealing import LocalVariationalTempering

# The predictive density


def few_rows(n_features):
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(24, n_features)) * rng.uniform(0.5, 2, n_features)
    X[::3] += 4
    return X


def small_fit(n_features, covariance_type, weight_prior, factorization):
    return AnnealedBayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance_type,
        weight_concentration_prior_type=weight_prior,
        factorization=factorization,
        random_state=0,
        **PEER_OF_MIXTURES,
    ).fit(few_rows(n_features))


def density_on_line(mixture, n=20_001):
    """Points of the whole line, widths of their cells, and the density at them."""
    angle = (np.arange(n) + 0.5) / n * np.pi - np.pi / 2
    x = mixture.means_.mean() + 2 * np.tan(angle)
    return x, 2 * np.pi / n / np.cos(angle) ** 2, np.exp(mixture.score_samples(x[:, None]))


def density_on_plane(mixture, n_radii=300, n_angles=96):
    """Points of the whole plane in polar coordinates, areas of their cells, and the density."""
    nodes, weights = np.polynomial.legendre.leggauss(n_radii)
    t = (nodes + 1) * np.pi / 4
    radius = 3 * np.tan(t)
    width = 3 / np.cos(t) ** 2 * np.pi / 4 * weights
    angle = 2 * np.pi * np.arange(n_angles) / n_angles
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    points = mixture.weights_ @ mixture.means_ + radius[:, None, None] * direction
    area = np.repeat(radius * width * 2 * np.pi / n_angles, n_angles)
    points = points.reshape(-1, 2)
    return points, area, np.exp(mixture.score_samples(points))


def test_score_is_the_weighted_mean_of_score_samples():
    X = few_rows(2)
    mixture = small_fit(2, "full", "dirichlet_process", "joint")
    weight = np.arange(len(X)) % 3
    each = mixture.score_samples(X)
    assert mixture.score(X) == pytest.approx(each.mean())
    assert mixture.score(X, sample_weight=weight) == pytest.approx(
        (weight * each).sum() / weight.sum()
    )


def distance_of_distributions(mixture, rows):
    """Kolmogorov-Smirnov statistic of rows on a line against the predictive density."""
    x, width, density = density_on_line(mixture)
    inside = np.cumsum(width * density) - 0.5 * width * density
    rows = np.sort(rows[:, 0])
    return np.abs(np.interp(rows, x, inside) - (np.arange(len(rows)) + 0.5) / len(rows)).max()


@all_factorizations
@all_covariance_types
def test_predictive_draws_have_the_predictive_density(covariance_type, factorization):
    mixture = small_fit(1, covariance_type, "dirichlet_process", factorization)
    n = 20_000
    # 1.95 is the 0.1 % quantile of Kolmogorov's distribution; the seed is fixed.
    limit = 1.95 / np.sqrt(n)
    rows, labels = mixture.sample(n, predictive=True)
    assert rows.shape == (n, 1)
    assert labels.shape == (n,)
    assert distance_of_distributions(mixture, rows) < limit
    assert distance_of_distributions(mixture, mixture.sample(n)[0]) > limit


@all_covariance_types
def test_predictive_draws_have_the_predictive_moments(covariance_type):
    X, _ = clusters(1, 30)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, covariance_type=covariance_type, annealing="none", random_state=3
    ).fit(X)
    points, area, density = density_on_plane(mixture)
    mass = area * density
    mean = mass @ points
    covariance = (mass[:, None] * (points - mean)).T @ (points - mean)
    n = 40_000
    rows, _ = mixture.sample(n, predictive=True)
    error = np.sqrt(np.diag(covariance) / n)
    assert np.all(np.abs(rows.mean(axis=0) - mean) < 5 * error)
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.05 * covariance.max())


@pytest.mark.filterwarnings("error")
def test_predictive_draws_of_few_degrees_of_freedom_are_finite(rng):
    """The scale of a draw is a power of a uniform number, which underflows."""
    mixture = AnnealedBayesianGaussianMixture(
        n_components=1,
        degrees_of_freedom_prior=2.001,
        covariance_prior=np.eye(3),
        annealing="none",
        max_iter=0,
        random_state=0,
    )
    with pytest.warns(UserWarning, match="less than one observation"):
        mixture.fit(rng.normal(size=(2, 3)), sample_weight=[1e-4, 1e-4])
    dof, *_ = mixture._context().model.components.student_t(mixture._context().q)
    assert dof < 0.002
    rows, _ = mixture.sample(500, predictive=True)
    assert np.isfinite(rows).all() and np.abs(rows).max() > 1e100


# Local tempering as an outlier score


@pytest.mark.parametrize("seed", range(3))
def test_inverse_temperatures_rank_outliers_first(seed):
    rng = np.random.default_rng(seed)

    def draw(n):
        n_outliers = n // 50
        X, _ = clusters(rng.integers(1000), n // 3, ((0, 0, 0), (5, 0, 1), (0, 5, -1)))
        outliers = rng.uniform(-20, 25, size=(n_outliers, 3))
        X = np.vstack([X, outliers])
        return X, np.arange(len(X)) >= len(X) - n_outliers

    X, is_outlier = draw(600)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3, annealing="local_tempering", random_state=seed
    ).fit(X)
    for rows, truth in ((X, is_outlier), draw(600)):
        x = mixture.inverse_temperatures(rows)
        assert x.shape == (len(rows),)
        assert np.all((x > 0) & (x <= 1))
        assert roc_auc_score(truth, -x) >= 0.95


def test_inverse_temperatures_of_the_last_annealed_pass_are_those_of_the_fit():
    X, _ = clusters(0, 60)
    mixture = AnnealedBayesianGaussianMixture(
        n_components=3,
        annealing=LocalVariationalTempering(n_passes=3),
        max_iter=0,
        random_state=0,
    )
    temperatures = mixture.fit(X).temperatures_
    # T of pass p is that at the parameters which pass p - 1 left behind.
    mixture.set_params(annealing__n_passes=2).fit(X)
    expected = (1 / mixture.inverse_temperatures(X)).mean()
    assert temperatures[2] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_predictions_of_many_independent_columns_need_no_matrices(covariance_type, rng):
    d = 600
    X = rng.standard_normal((20, d))
    one_less = np.where(np.arange(d) == 3, np.nan, X)
    mixture = AnnealedBayesianGaussianMixture(
        2, covariance_type=covariance_type, annealing="none", max_iter=2, random_state=0
    ).fit(X)
    mixture.score(X), mixture.impute(one_less)
    tracemalloc.start()
    mixture.score(X), mixture.score(one_less), mixture.impute(one_less)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * d * d / 2
