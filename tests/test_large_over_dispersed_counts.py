"""Negative binomial counts from 1 to 10^15: densities, bounds and shapes keep their digits.

The right values are computed from the definitions with 50 digits.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from designs import in_turn
from exact_counts import dirichlet_divergence, exact, expected_log_dirichlet, log_forward, log_sum
from harness import context_of, units_of
from mpmath import fsum, log, loggamma, psi
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from sklearn_anneal import AnnealedBayesianMixture, AnnealedHMM
from sklearn_anneal import families as f
from sklearn_anneal.data.units import Rows
from sklearn_anneal.models.components.negative_binomial import NegativeBinomialComponents

RATES = (1.0, 1e3, 1e6, 1e9, 1e12, 1e14, 1e15)
# Shapes r of the data: as clustered as times between events, moderately, and hardly at all.
SHAPES = (0.3, 3.0, 1e6, np.inf)
OF_ROW = {"abs": 1e-7, "rel": 1e-9}


def number(value):
    return float(value)


def log_beta(a, b):
    return loggamma(a) + loggamma(b) - loggamma(a + b)


def log_choices(x, r):
    return loggamma(x + r) - loggamma(r) - loggamma(x + 1)


def log_predictive(x, r, a, b):
    return log_choices(x, r) + log_beta(a + r, b + x) - log_beta(a, b)


def expected_log(x, r, a, b):
    """E log p(x) under p ~ Beta(a, b)."""
    total = psi(0, a + b)
    return x * (psi(0, b) - total) + r * (psi(0, a) - total) + log_choices(x, r)


# Functions


@pytest.mark.parametrize("x", [1e-15, 1e-6, 0.3, 1.0, 7.9, 8.1, 65.0, 1e3, 1e8, 1e15])
@pytest.mark.parametrize("n", [0.0, 1e-18, 1e-9, 0.5, 20.0, 1e6, 1e17])
def test_differences_of_digamma_functions_have_their_digits(x, n):
    right = psi(0, exact(x) + exact(n)) - psi(0, exact(x))
    found = f.digamma_rising(np.array(x), np.array(n))
    assert found == pytest.approx(number(right), rel=1e-13)


@pytest.mark.parametrize("a", [1e-6, 0.3, 5.0, 1e4, 1e9, 1e15])
@pytest.mark.parametrize("b", [1e-6, 5.0, 70.0, 1e7, 1e15])
def test_beta_functions_have_their_digits(a, b):
    right = number(log_beta(exact(a), exact(b)))
    assert f.log_beta(np.array(a), np.array(b)) == pytest.approx(right, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("mean", RATES)
@pytest.mark.parametrize("shape", [1e-3, 0.5, 30.0, 1e6, 1e12, 1e18])
def test_predictive_probabilities_have_their_digits(mean, shape):
    for rows in (0.1, 3.0, 1e4):
        a, b = shape * rows, mean * rows
        for x in np.rint(mean * np.array([0.0, 1e-3, 1.0 - 1e-8, 1.0 + 1e-4, 30.0])):
            found = f.log_beta_negative_binomial(*map(np.array, (x, shape, a, b)))
            right = log_predictive(*map(exact, (x, shape, a, b)))
            assert found == pytest.approx(number(right), **OF_ROW)


# Densities of rows


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_densities_of_rows_have_their_digits(plain, container):
    """Columns of all shapes and means, also with counts that no component expects."""
    r = np.array([0.4, 2e4, 3e5, 1e9, 1e13, 1e16, 7.0])
    means = np.array(
        [[1e14, 1e12, 1e12, 1e11, 1e13, 1e15, 4.0], [3.0, 1e9, 2e5, 1e12, 30, 9e14, 1]]
    )
    rows = np.array([[3.0], [20.0]])
    X = np.vstack([np.rint(means), [0.0, 3.0, 1e12, 1e6, 0.0, 1.0, 1e9]])
    components = NegativeBinomialComponents(2, 7, np.ones((2, 7)), np.ones((2, 7)))
    components.count_shapes = r
    q = {"shape": rows * means, "rate": np.broadcast_to(rows, means.shape)}
    data = Rows(container(X), None, plain=plain)
    draws = components.draw(q, np.random.default_rng(0))
    odds = np.exp(draws[0]["log_gamma"][..., 0] - draws[0]["log_gamma"][..., 1])
    found = {
        "expected": components.expected_coefficients(q),
        "plug-in": components.plug_in(q),
        "drawn": components.coefficients(draws),
    }
    for name, expected in found.items():
        density = components.log_density(data, components.for_rows(expected, data))
        for n, k in np.ndindex(density.shape):
            terms = []
            for d, x in enumerate(exact(X[n])):
                s, a, b = map(exact, (r[d], (r * q["rate"])[k, d], q["shape"][k, d]))
                if name == "expected":
                    terms.append(expected_log(x, s, a, b))
                    continue
                o = a / b if name == "plug-in" else exact(odds[k, d])
                terms.append(log_choices(x, s) + s * log(o / (1 + o)) - x * log(1 + o))
            # Odds that are drawn have the rounding errors of their logarithms.
            at = OF_ROW if name != "drawn" else {"abs": 1e-4, "rel": 1e-9}
            assert density[n, k] == pytest.approx(number(fsum(terms)), **at)


def test_drawn_cells_have_the_fitted_means(rng):
    means = np.array([[1e14, 1e12, 4.0], [1e3, 1e11, 1.0]])
    components = NegativeBinomialComponents(2, 3, np.ones((2, 3)), np.ones((2, 3)))
    components.count_shapes = np.array([3.0, 1e9, 5.0])
    expected = components.plug_in({"shape": means * 10.0, "rate": np.full((2, 3), 10.0)})
    labels, columns = np.indices(means.shape).reshape(2, -1).repeat(2000, axis=1)
    drawn = components.drawn_cells(labels, columns, expected, rng).reshape(2, 3, -1)
    assert_allclose(drawn.mean(axis=2), means, rtol=0.1)
    assert_allclose(drawn.std(axis=2)[:, :2] / means[:, :2], [[3**-0.5, 1e9**-0.5]] * 2, rtol=0.1)


# Fits


def groups(rate, shape, rng, n=16):
    """Rows of three columns from two groups, whose third column has small counts."""
    rates = np.array([[rate, 3.0 * rate / 4.0, 2.0], [rate / 30.0, 3.0 * rate, 5.0]])
    rates = rates[np.arange(n) % 2]
    if np.isfinite(shape):
        rates = rates * rng.gamma(shape, 1.0 / shape, rates.shape)
    return rng.poisson(np.minimum(rates, 9e15)).astype(float)


def posterior(est):
    """r, and a and b of each component, with all digits."""
    r = exact(est.count_shapes_)
    rates, b = exact(est.lambdas_weight_posterior_), exact(est.lambdas_posterior_)
    return r, [[x * y for x, y in zip(r, row, strict=True)] for row in rates], b


def divergence(est):
    """KL(q || p) of the probabilities of all components."""
    r, a, b = posterior(est)
    size = est.lambdas_.shape
    w, s = (np.broadcast_to(x, size) for x in (est.lambdas_weight_prior_, est.lambdas_prior_))
    return fsum(
        dirichlet_divergence([a[k][d], b[k][d]], [r[d] * exact(w[k, d]), exact(s[k, d])])
        for k, d in np.ndindex(size)
    )


def density(of_cell, est, x, k):
    r, a, b = posterior(est)
    return fsum(map(of_cell, x, r, a[k], b[k]))


def mixture(**params):
    return AnnealedBayesianMixture(
        2,
        emission="negative_binomial",
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=0.8,
        effort=0,
        max_iter=30,
        random_state=0,
        **params,
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@in_turn(rate=RATES, shape=SHAPES, container=(np.asarray, csr_array))
def test_mixtures_of_large_counts(rate, shape, container, rng):
    X = groups(rate, shape, rng)
    est = mixture().fit(container(X))
    weights = exact(np.asarray(est.weight_concentration_))
    logs, of_rows = expected_log_dirichlet(weights), partial(density, expected_log, est)
    rows = fsum(log_sum([logs[k] + of_rows(x, k) for k in range(2)]) for x in exact(X))
    of_weights = dirichlet_divergence(weights, [exact(est.weight_concentration_prior_)] * 2)
    right = rows - of_weights - divergence(est)
    assert est.lower_bound_ == pytest.approx(number(right), rel=1e-9)
    falls = np.diff(est.lower_bounds_[est.temperatures_ == 1]).min(initial=0.0)
    assert falls > (-1e-6 if rate < 1e13 else -1.0)  # shapes have few digits there
    logs, of_rows = [log(x) for x in exact(est.weights_)], partial(density, log_predictive, est)
    right = [number(log_sum([logs[k] + of_rows(x, k) for k in range(2)])) for x in exact(X)]
    assert_allclose(est.score_samples(container(X)), right, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("shape", [3.0, np.inf])
def test_groups_and_shapes_do_not_depend_on_the_size_of_counts(shape):
    for rate in (1e6, 1e12, 1e15):
        X = groups(rate, shape, np.random.default_rng(1), 60)
        est = mixture().fit(X)
        labels = est.predict(X) == np.arange(60) % 2
        assert max(labels.mean(), 1.0 - labels.mean()) > 0.95
        if np.isfinite(shape):
            assert_allclose(est.count_shapes_[:2], shape, rtol=0.4)


@pytest.mark.parametrize("rate", [1e9, 1e13])
def test_shapes_of_large_counts_maximise_the_bound(rate, rng):
    X = groups(rate, 3.0, rng, 80)
    est = mixture(annealing="none", tol=1e-10).set_params(max_iter=200).fit(X)
    ctx, units, best = context_of(est), units_of(est, X), est.count_shapes_
    for factor in (0.99, 1.01):
        bounds = []
        for r in (best, best * factor):
            ctx.model.components.count_shapes = r
            visit = ctx.model.visit(ctx.q, units)
            step = visit.finish(visit.step(visit.view(units)))
            bounds.append(step.bound - ctx.model.kl(ctx.q, ctx.prior))
        assert bounds[0] > bounds[1]


@pytest.mark.parametrize("rate", [1e6, 1e12])
def test_missing_large_counts_are_left_out(rate, rng):
    est = mixture().fit(groups(rate, 3.0, rng, 40))
    r, a, b = posterior(est)
    X = groups(rate, 3.0, rng, 4)
    X[:2, 0] = X[1:3, 2] = np.nan
    right = []
    for row in X:
        seen = [(d, exact(row[d])) for d in np.flatnonzero(~np.isnan(row))]
        each = (
            log(exact(est.weights_[k]))
            + fsum(log_predictive(x, r[d], a[k][d], b[k][d]) for d, x in seen)
            for k in range(2)
        )
        right.append(number(log_sum(list(each))))
    for container in (np.asarray, csr_array):
        assert_allclose(est.score_samples(container(X)), right, rtol=1e-9)


@pytest.mark.parametrize("rate", RATES[1::2])
def test_chains_of_large_counts(rate, rng):
    sequences = [groups(rate, 3.0, rng, n) for n in (7, 5)]
    est = AnnealedHMM(2, emission="negative_binomial", effort=0, random_state=0).fit(sequences)
    start, moves = [log(p) for p in exact(est.startprob_)], exact(est.transmat_)
    moves = [[log(p) for p in row] for row in moves]
    of_rows = partial(density, log_predictive, est)
    frames = [[[of_rows(x, k) for k in range(2)] for x in exact(X)] for X in sequences]
    right = [number(log_forward(start, moves, each)) for each in frames]
    assert_allclose(est.score_sequences(sequences), right, atol=1e-5, rtol=1e-9)
