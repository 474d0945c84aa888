"""The scales of activations, weights and components, which fits find at once."""

from __future__ import annotations

import numpy as np
import pytest
from cases_gamma_process_nmf import parameters
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from sklearn_anneal import AnnealedGammaProcessNMF
from sklearn_anneal.datasets import make_gamma_process_nmf
from sklearn_anneal.models._count_scales import with_best_scales
from sklearn_anneal.models._count_visits import EVIDENCE
from sklearn_anneal.models.gamma_process_nmf import GammaProcessNMF


def drawn(seed, shape=(150, 25), k=4):
    rng = np.random.default_rng(seed)
    parts = rng.gamma(0.4, 2.5, (k, shape[1]))
    return rng.poisson(6.0 * rng.gamma(0.5, 2.0, (shape[0], k)) @ parts / k).astype(float)


def model_with(a, b, alpha, mean, k=3, n_columns=8):
    model = GammaProcessNMF(k, n_columns, b, a, alpha)
    model.scale = 1.0 / mean
    return model


@pytest.mark.parametrize(
    ("a", "b", "alpha"), [(0.3, 0.2, 1.0), (1e-4, 1e-4, 1e-4), (1e4, 1e4, 1e4), (0.5, 50.0, 1e6)]
)
@pytest.mark.parametrize("counts", [0.0, 1e-3, 40.0, 1e7])
@pytest.mark.parametrize("observed", [1.0, 0.4])
def test_scales_are_where_the_terms_of_the_bound_are_highest(a, b, alpha, counts, observed):
    n_rows, mean, k, n_columns = 57.0, 3.0, 3, 8
    model = model_with(a, b, alpha, mean)
    q = parameters(np.random.default_rng(0), k, n_columns)
    shares = np.random.default_rng(1).dirichlet(np.ones(n_columns), k)
    n = counts * np.array([1.0, 0.1, 3.0])
    q["components_shape"] = np.asfortranarray(a + n[:, None] * shares)
    found, sums = with_best_scales(model, q, model._prior(), n_rows, np.full(k, observed))
    y = (found["components_shape"] / found["components_rate"]).sum(axis=1)
    z = found["weights_shape"] / found["weights_rate"]

    def lost(logs, n):
        x, y, z = np.exp(logs)
        gained = (b * n_rows + n) * logs[0] + (a * n_columns + n) * logs[1]
        gained += (alpha / k + n) * logs[2]
        return b * x + a * y + alpha * z / mean + observed * x * y * z - gained

    for i in range(k):
        m = a * (y[i] - n_columns)
        x = n_rows + m / b
        assert b * x > 0
        assert_allclose(sums[i], x, rtol=1e-9, atol=1e-9 * n_rows)
        at = np.log([x, y[i], z[i]])
        best = minimize(lost, at, (n[i],), method="Nelder-Mead", options={"fatol": 1e-12}).fun
        here = lost(at, n[i])
        assert here <= best + 1e-9 * abs(best), i


def with_holes(X, seed=0, share=0.2):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def test_rates_of_columns_keep_their_ratios():
    model, rng = model_with(0.3, 0.2, 1.0, 3.0), np.random.default_rng(0)
    q = parameters(rng, 3, 8)
    q["components_rate"] = rng.gamma(3.0, 1.0, (3, 8))
    found, _ = with_best_scales(model, q, model._prior(), 57.0, np.full(3, 0.7))
    ratios = found["components_rate"] / q["components_rate"]
    assert_allclose(ratios, ratios[:, :1] * np.ones(8))


@pytest.mark.parametrize("sparse", [False, True, "missing"])
@pytest.mark.parametrize("prior", ["auto", 0.3])
def test_scales_have_converged_when_a_fit_has(sparse, prior):
    """b (Σ E h − N) = a (Σ E w − V) for each component."""
    X = drawn(0)
    if sparse == "missing":
        X, sparse = with_holes(X), False
    how = {"activation_prior": prior, "component_prior": prior}
    est = AnnealedGammaProcessNMF(4, annealing="none", random_state=0, **how)
    est.fit(csr_matrix(X) if sparse else X)
    ctx = est._inference.ctx
    model, q = ctx.model, ctx.q
    y = (q["components_shape"] / q["components_rate"]).sum(axis=1)
    exposure = y * q["weights_shape"] / q["weights_rate"]
    counts = q["components_shape"].sum(axis=1) - model.n_columns * model.component_prior
    b = model.activation_prior
    x = (b * len(X) + counts) / (b + exposure)
    if np.isnan(X).any():
        x = est.activations_.sum(axis=0)
    m = model.component_prior * (y - model.n_columns)
    assert_allclose(b * (x - len(X)), m, atol=0.05 * b * len(X))


@pytest.mark.parametrize("how", [{}, {"batch_size": 30}, {"n_components": 8}])
def test_rows_of_which_nothing_is_known_have_the_mean_of_the_data(how, rng):
    """Missing cells leave the mean of activations at 1, as complete rows do."""
    X = drawn(0)
    settings = {"n_components": 4, "annealing": "none", "random_state": 0} | how
    est = AnnealedGammaProcessNMF(**settings).fit(with_holes(X))
    assert_allclose(est.inverse_transform(np.ones((1, est.n_components_))).sum(), X.sum() / len(X),
                    rtol=0.1)  # fmt: skip
    assert_allclose(est.impute(np.full((1, 25), np.nan)).sum(), X.sum() / len(X), rtol=0.1)


def test_the_concentration_is_learned_from_weights_with_the_best_scales():
    """Weights that are equal before any scale is found would say that all have to be equal."""
    found = []
    for seed in (3, 7):
        X, _, _ = make_gamma_process_nmf(200, 20, n_components=4, random_state=seed)
        est, given = (
            AnnealedGammaProcessNMF(5, random_state=0, concentration=alpha).fit(X)
            for alpha in ("auto", 1.5)
        )
        found.append(est.lower_bound_ - given.lower_bound_)
        assert est.concentration_ < 10.0 and est.component_weights_.min() < 0.01
    assert min(found) > -0.1


def test_scales_converge_in_minibatches_as_well():
    X = drawn(3, (400, 25))
    est = AnnealedGammaProcessNMF(4, annealing="none", batch_size=50, random_state=0).fit(X)
    ctx = est._inference.ctx
    model, q = ctx.model, ctx.q
    counts = q["components_shape"].sum(axis=1) - model.n_columns * model.component_prior
    used = counts > 1.0
    y = (q["components_shape"] / q["components_rate"]).sum(axis=1)
    z = q["weights_shape"] / q["weights_rate"]
    m = model.component_prior * (y - model.n_columns)
    x = len(X) + m / model.activation_prior
    assert used.any()
    assert_allclose((x * y * z)[used], (counts - m)[used], rtol=0.01)


def test_wrong_scales_of_a_start_are_mended_in_a_few_passes():
    X = drawn(1)
    how = {"annealing": "none", "max_iter": 20, "activation_prior": 0.5, "component_prior": 0.4}
    first = AnnealedGammaProcessNMF(4, random_state=0, **how).fit(X)
    bounds = []
    for factor in (1.0, 20.0):
        est = AnnealedGammaProcessNMF(4, random_state=0, **how, tol=0.0)
        est.set_params(max_iter=0).fit(X)
        ctx, given = est._inference.ctx, first._inference.ctx.q
        ctx.q = {key: value.copy(order="K") for key, value in given.items()}
        ctx.q["components_rate"] *= factor
        ctx.q["weights_rate"] /= factor
        est.set_params(warm_start=True, max_iter=6).fit(X)
        bounds.append(est.lower_bound_)
    assert_allclose(bounds[1], bounds[0], atol=0.01 * len(X))


def test_scales_stay_with_noise_and_with_popularities():
    X = drawn(2, (40, 10))
    for how in ({"dispersion": 0.5}, {"popularity_prior": 0.5}):
        est = AnnealedGammaProcessNMF(3, annealing="none", max_iter=30, random_state=0, **how)
        ctx = est.fit(X)._inference.ctx
        assert ctx.model._scaled(ctx.q, ctx.prior, {EVIDENCE: 0.0}, 1.0)[0] is ctx.q
