"""Weights and levels of mixtures by kernels, against the families."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from sklearn.datasets import load_iris

from sklearn_anneal import AnnealedBayesianGaussianMixture
from sklearn_anneal.data.units import Rows
from sklearn_anneal.families import Dirichlet
from sklearn_anneal.families._empirical_bayes import LARGEST, SMALLEST
from sklearn_anneal.models._weights import StickBreakingWeights
from sklearn_anneal.models.components._moments import moments
from sklearn_anneal.models.components.categorical_columns import CategoricalColumns


def sticks(rng, k, least=-4.0, most=6.0):
    return {key: 10.0 ** rng.uniform(least, most, size=k) for key in ("stick_a", "stick_b")}


@pytest.mark.parametrize("k", [1, 2, 7])
def test_weights_of_kernels_are_those_of_the_families(k, rng):
    weights = StickBreakingWeights(k, 1.0)
    for _ in range(20):
        q, p = sticks(rng, k), sticks(rng, k)
        p["stick_b"] = np.where(rng.random(k) < 0.3, q["stick_b"], p["stick_b"])
        known = weights.known(q)
        np.testing.assert_allclose(
            weights.log_weights(q, known=known), weights.log_weights(q), rtol=1e-11, atol=1e-11
        )
        # Log-normalisers are about as large as the parameters times their logarithms.
        assert weights.kl(q, p, known) == pytest.approx(weights.kl(q, p), rel=1e-10, abs=1e-7)
        assert weights.kl(q, q, known) == 0.0


@pytest.mark.parametrize("strong", [0, 1])
def test_divergence_of_strong_weights_is_left_to_the_family(strong, rng):
    weights, both = StickBreakingWeights(3, 1.0), [sticks(rng, 3), sticks(rng, 3)]
    for value in both[strong].values():
        value *= 1e12
    q, p = both
    assert weights.kl(q, p, weights.known(q)) == weights.kl(q, p)


@pytest.mark.parametrize("counts", [[40.0, 30.0, 20.0], [90.0, 0.0, 0.0], [3.0, 4.0, 500.0]])
def test_the_learned_concentration_of_weights_maximises_their_bound(counts):
    """Given the rows of the components, the sticks follow the concentration.

    A step for fixed sticks leads towards the maximum, and to a limit where the maximum is there.
    """
    weights = StickBreakingWeights(3, "auto")
    rows = weights.statistics(np.array(counts))
    for _ in range(200):
        prior = weights.prior()
        q = {key: prior[key] + rows[key] for key in prior}
        weights, _ = weights.learned(q, prior, 1.0, True)
    a, rest = rows["stick_a"][:-1] + 1.0, rows["stick_b"][:-1]

    def bound(log_alpha):
        alpha = np.exp(log_alpha)
        return -np.sum(np.log(alpha) + gammaln(alpha + rest) - gammaln(alpha + rest + a))

    limits = np.log(SMALLEST), np.log(LARGEST)
    best = minimize_scalar(bound, bounds=limits, method="bounded", options={"xatol": 1e-9}).x
    assert np.log(weights.concentration) == pytest.approx(best, abs=1e-3)


def test_expected_logarithms_of_levels_are_those_of_the_family(rng):
    n_levels = [2, 5, 3]
    components = CategoricalColumns(4, n_levels, [np.ones((4, n)) for n in n_levels])
    columns = [10.0 ** rng.uniform(-4.0, 6.0, size=(4, n)) for n in n_levels]
    found = np.split(components.expectations(components.gathered(columns)), [2, 7])
    for logs, column in zip(found, columns, strict=True):
        expected = Dirichlet().expectations({"concentration": column})["concentration"]
        np.testing.assert_allclose(logs.T, expected, rtol=1e-11, atol=1e-11)


def test_the_weight_of_rows_is_that_of_their_weights_now(rng):
    rows = Rows(rng.normal(size=(5, 2)), rng.random(5))
    assert rows.total_weight == rows.weights.sum() == rows.total_weight
    rows.weights = rng.random(5)
    assert rows.total_weight == rows.weights.sum()
    rows.weights = None
    assert rows.total_weight == 5.0


@pytest.mark.parametrize("weight", [1e9, 1e12, 1e15])
@pytest.mark.parametrize("row", [0, 1500])
@pytest.mark.parametrize("full", [True, False])
def test_moments_keep_their_digits_if_one_row_has_nearly_all_the_weight(weight, row, full, rng):
    """The mean is that row, so that the scatter is that of the others around it."""
    X, weights = 5.0 + rng.normal(size=(2000, 3)), np.ones(2000)
    weights[row] = weight
    found = moments(Rows(X, weights), full)
    exact, ones = X.astype(np.longdouble), weights.astype(np.longdouble)
    mean = ones @ exact / ones.sum()
    scatter = (exact - mean).T @ ((exact - mean) * ones[:, None])
    np.testing.assert_allclose(found.mean, mean.astype(float), rtol=1e-14)
    expected = (scatter if full else np.diagonal(scatter)).astype(float)
    np.testing.assert_allclose(found.scatter, expected, rtol=1e-8, atol=1e-8 * expected.max())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:reg_covar:UserWarning")
@pytest.mark.parametrize("weight", [1e9, 1e12, 1e15])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_mixtures_fit_where_one_row_has_nearly_all_the_weight(weight, covariance_type):
    """It was refused, because of a prior of the means that nobody had given."""
    X, weights = load_iris().data, np.ones(150)
    weights[0] = weight
    how = {"covariance_type": covariance_type, "max_iter": 10, "random_state": 0}
    est = AnnealedBayesianGaussianMixture(3, **how).fit(X, sample_weight=weights)
    assert np.isfinite(est.lower_bound_)
    heaviest = est.means_[est.weights_.argmax()]
    np.testing.assert_allclose(heaviest, X[0], rtol=1e-6)
