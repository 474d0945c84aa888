"""Scores of rows by factor models: bounds on log predictive densities, which loadings answer to."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from harness import context_of
from models.spike_slab_factor_analysis import few_factors
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from sklearn_anneal import AnnealedFactorialMixture, AnnealedSpikeSlabFactorAnalysis
from sklearn_anneal.data.units import Rows, cell_patterns
from sklearn_anneal.models._predictive_loadings import gains_of_answers


def loadings(rng, n=7, k=3, d=4):
    """Rows in units of the noise, factors, and the moments of loadings."""
    roots = rng.standard_normal((d, k, k))
    return (
        rng.standard_normal((n, d)),
        rng.standard_normal((n, k)),
        rng.standard_normal((k, d)),
        0.3 * np.eye(k) + 0.1 * roots @ roots.swapaxes(1, 2),
    )


def expected_log_densities(x, m, means, covariance):
    """E log N(x; wᵀ m, 1) of each cell over q(w)."""
    c = np.einsum("nk,dkl,nl->nd", m, covariance, m)
    return norm.logpdf(x, m @ means) - 0.5 * c, c


def test_certain_factors_have_the_predictive_density(rng):
    x, m, means, covariance = loadings(rng)
    gains = gains_of_answers(x, None, m, np.zeros(m.shape), means, covariance)
    expected, c = expected_log_densities(x, m, means, covariance)
    exact = norm.logpdf(x, m @ means, np.sqrt(1.0 + c))
    assert_allclose(gains, (exact - expected).sum(axis=1), rtol=1e-10)


def test_gains_are_those_of_the_answers(rng):
    """The bound of a column with the answer in the place of q(w), written out."""
    x, m, means, covariance = loadings(rng, n=5)
    root = rng.standard_normal((5, 3, 3))
    spread = 0.05 * root @ root.swapaxes(1, 2)
    expected = np.zeros(5)
    for n, d in product(range(5), range(4)):
        w, S, V = means[:, d], covariance[d], spread[n]
        second = np.outer(m[n], m[n])
        P = np.linalg.inv(S) + second
        new = np.linalg.solve(P, np.linalg.solve(S, w) + x[n, d] * m[n])

        def value(mean, cov, x=x[n, d], m=m[n], V=V, w=w, S=S):
            away = (x - m @ mean) ** 2 + m @ cov @ m + mean @ V @ mean + np.trace(V @ cov)
            inner = np.linalg.solve(S, cov)
            kl = np.trace(inner) - len(w) - np.linalg.slogdet(inner)[1]
            return -0.5 * (away + kl + (mean - w) @ np.linalg.solve(S, mean - w))

        expected[n] += max(value(new, np.linalg.inv(P)) - value(w, S), 0.0)
    assert_allclose(gains_of_answers(x, None, m, spread, means, covariance), expected, rtol=1e-9)


def test_columns_with_equal_covariances_are_columns_that_share_one(rng):
    x, m, means, covariance = loadings(rng)
    spread = rng.random(m.shape)
    shared = gains_of_answers(x, None, m, spread, means, covariance[0])
    own = np.broadcast_to(covariance[0], covariance.shape)
    assert_allclose(gains_of_answers(x, None, m, spread, means, own), shared, rtol=1e-10)
    matrices = spread[:, :, None] * np.eye(3)
    assert_allclose(gains_of_answers(x, None, m, matrices, means, own), shared, rtol=1e-10)
    observed = np.ones(x.shape)
    observed[:, 2] = 0.0
    part = [0, 1, 3]
    assert_allclose(
        gains_of_answers(x, observed, m, spread, means, covariance),
        gains_of_answers(x[:, part], None, m, spread, means[:, part], covariance[part]),
        rtol=1e-10,
    )


def predictive(est, X, n_draws=1000):
    """Log predictive densities, by draws of the loadings and a sum over activations."""
    ctx, rng = context_of(est), np.random.default_rng(0)
    model, k = ctx.model, ctx.model.n_components
    found = []
    for _ in range(n_draws):
        w = model.expectations(ctx.q, rng).means * np.sqrt(model.noise_variance)
        for z in product((0, 1), repeat=k):
            on, prior = np.array(z, bool), model.activation_prior
            log_prior = np.log(np.where(on, prior, 1.0 - prior)).sum() if (prior < 1).all() else 0.0
            if (prior == 1).all() and not on.all():
                continue
            covariance = np.diag(model.noise_variance) + w[on].T @ w[on]
            found.append(log_prior + multivariate_normal(est.mean_, covariance).logpdf(X))
    return logsumexp(found, axis=0) - np.log(n_draws)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("activation_prior", [0.5, 1.0])
def test_scores_are_between_the_bounds_of_rows_and_predictive_densities(
    activation_prior, missing, rng
):
    X = few_factors(6)(rng, 25)
    X[3] += 4.0  # an outlier
    if missing:
        X[0, 1] = np.nan
    est = AnnealedSpikeSlabFactorAnalysis(
        2, annealing="none", activation_prior=activation_prior, random_state=0
    ).fit(X)
    whole = X[1:]
    exact, scores = predictive(est, whole), est.score_samples(X)[1:]
    ctx = context_of(est)
    units = Rows(X, None, ctx.summary.center, cell_patterns(X))
    bounds = ctx.model.infer(units, ctx.q)[2][1:]
    assert (scores > bounds).all()
    assert (scores < exact + 0.02).all()
    # Factors of six columns are uncertain themselves, and with them what the loadings answer.
    assert (scores - bounds).sum() > 0.3 * (exact - bounds).sum()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_rows_of_columns_without_noise_are_not_scored_below_the_bound_of_the_fit(seed, missing):
    """Binary columns are explained exactly, by factors that have to be on together."""
    rng = np.random.default_rng(seed)
    yes = (rng.random((200, 4)) < [0.1, 0.3, 0.05, 0.5]).astype(float)
    X = np.c_[yes, yes @ rng.standard_normal((4, 4)) + 0.5 * rng.standard_normal((200, 4))]
    if missing:
        X[rng.random(X.shape) < 0.02] = np.nan
    est = AnnealedSpikeSlabFactorAnalysis(random_state=0, activation_prior="learned").fit(X)
    # The bound of the fit includes the divergence of the loadings, and is lower.
    assert est.score(X) > est.lower_bound_ / len(X)


def test_scores_of_an_unknown_row_do_not_depend_on_others(rng):
    X = few_factors(6)(rng, 40)
    X[rng.random(X.shape) < 0.1] = np.nan
    est = AnnealedSpikeSlabFactorAnalysis(2, annealing="none", random_state=0).fit(X)
    together = est.score_samples(X)
    assert_allclose([est.score_samples(x[None])[0] for x in X], together, rtol=1e-6)
    assert est.score_samples(np.full((1, 6), np.nan))[0] == pytest.approx(0.0, abs=1e-9)


def test_scores_of_mean_field_mixtures_near_the_exact_ones(rng):
    """A sum over all states is the density; independent activations bound it closely."""
    z = (rng.random((30, 3)) < 0.5).astype(float)
    X = z @ np.kron(np.eye(3), 2.0 * np.ones(4)) + 0.5 * rng.standard_normal((30, 12))
    fit = {"noise_variance": 0.25, "mean_variance": 2.0}
    est = AnnealedFactorialMixture(3, local_step="mean_field", random_state=0, **fit).fit(X)
    exact = AnnealedFactorialMixture(
        3, local_step="enumerate", max_iter=0, annealing="none", **fit
    ).fit(X)
    context_of(exact).model.activation_prior = context_of(est).model.activation_prior
    context_of(exact).q = context_of(est).q
    ctx = context_of(est)
    bounds = ctx.model.infer(Rows(X, None, ctx.summary.center), ctx.q)[1]
    lacking = (exact.score_samples(X) - bounds).sum()
    assert 0.0 < (exact.score_samples(X) - est.score_samples(X)).sum() < 0.6 * lacking
