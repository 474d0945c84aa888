"""Counts and shapes from 1 to 10^16: probabilities, divergences and bounds keep their digits.

All of them are differences of log-gamma functions, which are near 10^17 where the results are below
100. The right values are computed from the definitions with 50 digits.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from designs import in_turn
from exact_counts import (
    dirichlet_divergence,
    exact,
    expected_log_dirichlet,
    expected_log_poisson,
    gamma_divergence,
    log_forward,
    log_negative_binomial,
    log_poisson,
    log_sum,
    rates_divergence,
)
from mpmath import exp, fsum, log, loggamma, psi
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
)
from sklearn_anneal import families as f
from sklearn_anneal.data.units import Rows
from sklearn_anneal.metrics import split_documents
from sklearn_anneal.models._count_visits import Start
from sklearn_anneal.models.components.poisson import PoissonComponents

RATES = (1.0, 1e3, 1e5, 1e6, 1e9, 1e12, 1e15, 8e15)
# Absolute and relative: what a log probability of one row may be wrong by.
OF_ROW = {"abs": 1e-7, "rel": 1e-9}
OF_BOUND = {"rel": 1e-9}


def number(value):
    return float(value)


# Functions


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-4, 0.02, 0.5, -0.5, 3.0])
@pytest.mark.parametrize("exponent", range(17))
def test_probabilities_of_counts_have_their_digits(exponent, distance):
    x = float(round(10.0**exponent))
    mean = x * (1.0 + distance) + 0.3
    assert f.log_poisson(np.array(x), np.array(mean)) == pytest.approx(
        number(log_poisson(exact(x), exact(mean))), abs=1e-8, rel=1e-12
    )
    for rate in (1e-12, 1e-3, 1.0, 40.0, 1e6, 1e12):
        shape = mean * rate
        assert f.log_negative_binomial(*map(np.array, (x, shape, rate))) == pytest.approx(
            number(log_negative_binomial(exact(x), exact(shape), exact(rate))), **OF_ROW
        )


@pytest.mark.parametrize("shape", [1e-3, 0.5, 20.0])
def test_counts_of_zero_and_fractions_have_probabilities(shape):
    for x in (0.0, 1e-8, 0.5, 63.9, 64.0, 64.1):
        assert f.log_poisson(np.array(x), np.array(shape)) == pytest.approx(
            number(log_poisson(exact(x), exact(shape))), rel=1e-12
        )
        for rate in (1e-6, 2.0, 1e9):
            assert f.log_negative_binomial(*map(np.array, (x, shape, rate))) == pytest.approx(
                number(log_negative_binomial(exact(x), exact(shape), exact(rate))), rel=1e-11
            )


@pytest.mark.parametrize("x", [1e-4, 1.0, 70.0, 1e4, 1e8, 1e12, 1e16])
@pytest.mark.parametrize("n", [1e-3, 0.5, 1.0, 7.0, 1e3, 1e9])
def test_rising_factorials_have_their_digits(x, n):
    right = loggamma(exact(x) + exact(n)) - loggamma(exact(x))
    assert f.log_rising(np.array(x), np.array(n)) == pytest.approx(number(right), rel=1e-12)


@pytest.mark.parametrize("x", [1e-3, 1.0, 63.9, 64.1, 1e5, 1e16])
def test_excess_of_the_digamma_function(x):
    right = number(psi(0, exact(x)) - log(exact(x)))
    assert f.digamma_excess(np.array(x)) == pytest.approx(right, rel=1e-11)


# Divergences


@pytest.mark.parametrize("prior", [1e-3, 0.5, 30.0, 1e4, 1e7, 1e10, 1e15])
@pytest.mark.parametrize("strength", [1e-2, 3.0, 1e5, 1e9, 1e12, 1e18])
def test_divergences_of_gamma_beta_and_dirichlet_distributions(strength, prior):
    rng = np.random.default_rng(0)
    for _ in range(3):
        shape, prior_shape = strength * rng.gamma(3.0), prior * rng.gamma(3.0)
        rate, prior_rate = shape / 1e6, prior_shape / 1e6 * rng.uniform(0.5, 2.0)
        q = {"shape": np.array([shape]), "rate": np.array([rate])}
        p = {"shape": np.array([prior_shape]), "rate": np.array([prior_rate])}
        right = gamma_divergence(*map(exact, (shape, rate, prior_shape, prior_rate)))
        assert f.Gamma().kl(q, p) == pytest.approx(number(right), rel=1e-9, abs=1e-6)
        a, b = strength * rng.gamma(1.0, size=4), prior * rng.gamma(1.0, size=4)
        right = number(dirichlet_divergence(exact(a), exact(b)))
        found = f.Dirichlet().kl({"concentration": a[None]}, {"concentration": b[None]})
        assert found == pytest.approx(right, rel=1e-9, abs=1e-6)
        right = number(dirichlet_divergence(exact(a[:2]), exact(b[:2])))
        keys = ("a", "b")
        q, p = (dict(zip(keys, x[:2, None], strict=True)) for x in (a, b))
        assert f.Beta().kl(q, p) == pytest.approx(right, rel=1e-9, abs=1e-6)


def test_divergences_of_partial_dirichlet_distributions():
    support = np.array([[True, False, True], [True, True, True]])
    q = np.where(support, [[3e15, 0, 2e14], [1e16, 4.0, 1e9]], 0.0)
    p = np.where(support, 0.7, 0.0)
    right = fsum(
        dirichlet_divergence(exact(a[s]), exact(b[s]))
        for a, b, s in zip(q, p, support, strict=True)
    )
    found = f.PartialDirichlet(support).kl({"concentration": q}, {"concentration": p})
    assert found == pytest.approx(number(right), rel=1e-10)


# Mixtures


def groups(rate, rng, n=16):
    """Rows of three columns from two groups, whose third column has small counts."""
    rates = np.array([[rate, 3.0 * rate / 4.0, 2.0], [rate / 3.0, rate, 5.0]])
    return rng.poisson(rates[np.arange(n) % 2]).astype(float)


def mixture(**params):
    return AnnealedBayesianMixture(
        2,
        emission="poisson",
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=0.8,
        effort=0,
        random_state=0,
        **params,
    )


def mixture_bound(est, X):
    """The bound that belongs to the fitted q of weights and rates."""
    prior = [exact(est.weight_concentration_prior_)] * 2
    weights = exact(np.asarray(est.weight_concentration_))
    shapes, rates = exact(est.lambdas_posterior_), exact(est.lambdas_weight_posterior_)
    logs = expected_log_dirichlet(weights)
    rows = fsum(
        log_sum([logs[k] + expected_log_poisson(x, shapes[k], rates[k]) for k in range(2)])
        for x in exact(X)
    )
    return rows - dirichlet_divergence(weights, prior) - rates_divergence(est)


@in_turn(rate=RATES, container=(np.asarray, csr_array))
def test_mixtures_of_large_counts(rate, container, rng):
    X = groups(rate, rng)
    est = mixture().fit(container(X))
    assert est.lower_bound_ == pytest.approx(number(mixture_bound(est, X)), **OF_BOUND)
    if container is np.asarray:
        assert np.diff(est.lower_bounds_[est.temperatures_ == 1]).min() > -1e-6
    weights = exact(est.weights_)
    shapes, rates = exact(est.lambdas_posterior_), exact(est.lambdas_weight_posterior_)
    right = [
        log_sum(
            [
                log(weights[k]) + fsum(map(log_negative_binomial, x, shapes[k], rates[k]))
                for k in range(2)
            ]
        )
        for x in exact(X)
    ]
    for found, value in zip(est.score_samples(container(X)), right, strict=True):
        assert found == pytest.approx(number(value), **OF_ROW)
    assert est.score(container(X)) == pytest.approx(number(fsum(right) / len(X)), **OF_ROW)


@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_tables_of_large_counts_alone(container, rng):
    X = groups(1e14, rng)[:, :2]
    X[3] = 0.0
    est = mixture().fit(container(X))
    assert est.lower_bound_ == pytest.approx(number(mixture_bound(est, X)), **OF_BOUND)


@pytest.mark.parametrize("rate", [1e3, 1e12])
def test_missing_large_counts_are_left_out(rate, rng):
    X = groups(rate, rng, 40)
    est = mixture().fit(X)
    gapped = X.copy()
    gapped[::3, 0] = gapped[1::4, 2] = np.nan
    weights = exact(est.weights_)
    shapes, rates = exact(est.lambdas_posterior_), exact(est.lambdas_weight_posterior_)
    for row, found in zip(gapped, est.score_samples(gapped), strict=True):
        seen = np.flatnonzero(~np.isnan(row))
        terms = [
            log(weights[k])
            + fsum(log_negative_binomial(exact(row[d]), shapes[k][d], rates[k][d]) for d in seen)
            for k in range(2)
        ]
        assert found == pytest.approx(number(log_sum(terms)), **OF_ROW)
    again = mixture().fit(gapped)
    assert np.diff(again.lower_bounds_[again.temperatures_ == 1]).min() > -1e-6
    assert (again.predict(gapped)[::2] == again.predict(gapped)[0]).all()


@pytest.mark.parametrize("container", [np.asarray, csr_array])
@pytest.mark.parametrize("rate", RATES[2:-1])
def test_zeros_beside_large_counts_have_their_digits(rate, container, rng):
    """Their log density under Poisson counts, −λ, was added and subtracted again."""
    X = groups(rate, rng) * (rng.random((16, 3)) > 0.3)
    X[0, 0] = np.nan
    est = mixture().set_params(emission="zero_inflated_poisson").fit(container(X))
    q, components = est._context().q, est._context().model.components
    for plain in (False, True):
        rows = Rows(container(X), None, plain=plain)
        found = components.log_density(rows, components.for_rows(components.expectations(q), rows))
        for n, k in np.ndindex(found.shape):
            terms = []
            for d in np.flatnonzero(~np.isnan(X[n])):
                zero, other = expected_log_dirichlet([exact(q[key][k, d]) for key in "ab"])
                gamma = ([exact(q[key][k, d])] for key in ("shape", "rate"))
                counted = expected_log_poisson([exact(X[n, d])], *gamma) + other
                terms.append(counted if X[n, d] else log_sum([zero, counted]))
            assert found[n, k] == pytest.approx(number(fsum(terms)), **OF_ROW)
    assert np.diff(est.lower_bounds_[est.temperatures_ == 1]).min() > -1e-6


def test_large_and_small_counts_have_one_bound(rng):
    """What is computed apart for columns of large rates is what the product of matrices gives."""
    X = np.column_stack([rng.poisson(9.9e4, 30), rng.poisson(3.0, 30)]).astype(float)
    one = mixture(annealing="none").fit(X)
    other = mixture(annealing="none").fit(np.column_stack([X[:, 0] + 3e3, X[:, 1]]))
    for est, rows in ((one, X), (other, X + [3e3, 0])):
        assert est.lower_bound_ == pytest.approx(number(mixture_bound(est, rows)), rel=1e-10)


def test_weights_are_repeated_rows_of_large_counts(rng):
    X = groups(1e12, rng)
    w = np.arange(len(X)) % 3.0
    weighted = mixture(annealing="none", max_iter=3, tol=0)
    weighted.fit(X, sample_weight=w)
    repeated = mixture(annealing="none", max_iter=3, tol=0).fit(np.repeat(X, w.astype(int), axis=0))
    assert_allclose(np.sort(weighted.lambdas_, axis=0), np.sort(repeated.lambdas_, axis=0))


@pytest.mark.parametrize("method", ["structured", "deterministic", "stochastic", "svi_plus"])
def test_every_method_has_the_bound_of_large_counts(method, rng):
    X = groups(1e13, rng)
    est = mixture(annealing=method).fit(X)
    assert est.lower_bound_ == pytest.approx(number(mixture_bound(est, X)), **OF_BOUND)


# Hidden Markov models


@pytest.mark.parametrize("rate", RATES[1::2])
def test_chains_of_large_counts(rate, rng):
    sequences = [groups(rate, rng, n) for n in (7, 5)]
    est = AnnealedHMM(2, emission="poisson", effort=0, random_state=0).fit(sequences)
    start, steps = exact(est.startprob_posterior_), exact(est.transmat_posterior_)
    shapes, rates = exact(est.lambdas_posterior_), exact(est.lambdas_weight_posterior_)
    logs = expected_log_dirichlet(start), [expected_log_dirichlet(row) for row in steps]
    bound = -rates_divergence(est)
    for q, p in zip([start, *steps], [est.startprob_prior_, *est.transmat_prior_], strict=True):
        bound -= dirichlet_divergence(q, exact(np.broadcast_to(p, 2)))
    predictive, first = [], [log(p) for p in exact(est.startprob_)]
    moves = [[log(p) for p in row] for row in exact(est.transmat_)]
    for X in sequences:
        frames = [
            [expected_log_poisson(x, shapes[k], rates[k]) for k in range(2)] for x in exact(X)
        ]
        bound += log_forward(*logs, frames)
        frames = [
            [fsum(map(log_negative_binomial, x, shapes[k], rates[k])) for k in range(2)]
            for x in exact(X)
        ]
        predictive.append(log_forward(first, moves, frames))
    assert est.lower_bound_ == pytest.approx(number(bound), **OF_BOUND)
    assert est.score(sequences) == pytest.approx(number(fsum(predictive) / 12), abs=1e-6, rel=1e-9)
    found = est.score_sequences(sequences)
    assert_allclose(found, [number(value) for value in predictive], atol=1e-5, rtol=1e-9)


# Factorisations


def parts(rate, rng, n_parts=1):
    """Rows with one part, which a fit finds at once, or more."""
    activations, components = rng.gamma(3.0, size=(8, n_parts)), rng.gamma(3.0, size=(n_parts, 5))
    return rng.poisson(rate * (activations @ components) / 9.0).astype(float)


def nmf(n_components=1, **params):
    return AnnealedGammaProcessNMF(n_components, annealing="none", random_state=0, **params)


def block_divergence(ctx):
    """KL(q || p) of weights and components."""
    result = 0
    for block in ("weights", "components"):
        keys = [f"{block}_{name}" for name in ("shape", "rate")]
        shape = np.shape(ctx.q[keys[0]])
        arrays = [
            exact(np.broadcast_to(values[key], shape).ravel())
            for values in (ctx.q, ctx.prior)
            for key in keys
        ]
        result += fsum(gamma_divergence(*row) for row in zip(*arrays, strict=True))
    return result


def local_bound(model, q, X, before):
    """The bound of rows after one division of the counts by the activations of shapes ``before``.

    The new activations have the shapes b + Σ_v of the divided counts.
    """
    k, v = model.n_components, X.shape[1]
    weights = list(zip(exact(q["weights_shape"]), exact(q["weights_rate"]), strict=True))
    rates = exact(np.broadcast_to(q["components_rate"], (k, 1))[:, 0])
    shapes = exact(q["components_shape"])
    fixed = [
        [psi(0, a) - log(b) + psi(0, shapes[j][c]) - log(rates[j]) for c in range(v)]
        for j, (a, b) in enumerate(weights)
    ]
    means = [
        [a / b * shapes[j][c] / rates[j] for c in range(v)] for j, (a, b) in enumerate(weights)
    ]
    b = exact(model.activation_prior)
    rate = [b + fsum(row) for row in means]
    total = 0
    for row, old in zip(exact(X), exact(before), strict=True):
        logs = [psi(0, a) - log(r) for a, r in zip(old, rate, strict=True)]
        divided = []
        for c, x in enumerate(row):
            joint = [logs[j] + fixed[j][c] for j in range(k)]
            norm = log_sum(joint)
            divided.append([x * exp(value - norm) for value in joint])
        new = [b + fsum(counts[j] for counts in divided) for j in range(k)]
        found = [psi(0, a) - log(r) for a, r in zip(new, rate, strict=True)]
        for c, x in enumerate(row):
            total -= loggamma(x + 1)
            for j in range(k):
                count = divided[c][j]
                total += count * (found[j] + fixed[j][c] - log(count / x)) if count else 0
                total -= new[j] / rate[j] * means[j][c]
        total -= fsum(gamma_divergence(a, r, b, b) for a, r in zip(new, rate, strict=True))
    return total


@in_turn(rate=RATES[:-1], container=(np.asarray, csr_array))
def test_bounds_of_factorisations(rate, container, rng):
    """All counts belong to the only component, so that q(h) follows from that of the rest."""
    X = parts(rate, rng)
    est = nmf().fit(container(X))
    ctx = est._context()
    right = local_bound(ctx.model, ctx.q, X, np.ones((len(X), 1))) - block_divergence(ctx)
    assert est.lower_bound_ == pytest.approx(number(right), **OF_BOUND)
    assert np.diff(est.lower_bounds_).min() > -1e-6
    assert ctx.model.kl(ctx.q, ctx.prior) == pytest.approx(number(block_divergence(ctx)), abs=1e-6)


def scaled(q, factor):
    """The q of rates that are larger by a factor, with the certainty that such counts give."""
    keys = ("components_shape", "components_rate", "weights_shape")
    return {key: value * factor if key in keys else value for key, value in q.items()}


@in_turn(factor=(1.0, 1e3, 1e6, 1e9, 1e12), container=(np.asarray, csr_array))
def test_bounds_of_divided_rows(factor, container, rng):
    X = parts(1e3, rng, 2)
    est = nmf(2, max_iter=300).fit(X)
    ctx, q = est._context(), scaled(est._context().q, factor)
    X = rng.poisson(est.inverse_transform(est.transform(X)) * factor).astype(float)
    X[0, 1] = 0.0
    units = est._make_units(container(X), None)
    visit = ctx.model.visit(q, units, evaluation=True)
    local = visit.step(units, None, Start(None, 10_000)).local
    before = np.array(local.shape)
    step = visit.finish(visit.step(units, None, Start(local, 1)))
    # The first row has a count of zero where it should be large.
    right = number(local_bound(ctx.model, q, X, before))
    assert step.bound == pytest.approx(right, **OF_BOUND)
    rest = units.take(slice(1, None))
    step = visit.finish(visit.step(rest, None, Start(local[1:], 1)))
    right = number(local_bound(ctx.model, q, X[1:], before[1:]))
    assert -1000 < right and step.bound == pytest.approx(right, rel=1e-9)
    assert (step + step).bound == pytest.approx(2 * right, rel=1e-9)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("rate", RATES[:-1])
def test_scores_and_errors_of_factorisations(rate, missing, rng):
    X = parts(rate, rng)
    X[:, 1] = rng.poisson(0.4, len(X))  # cells of small rates beside large ones
    if missing:
        X[::3, 2] = np.nan
    est = nmf().fit(X)
    observed, held_out = (
        half.toarray().astype(float) for half in split_documents(np.nan_to_num(X))
    )
    observed[np.isnan(X)] = np.nan
    ctx = est._context()
    activations = exact(est._infer(ctx, est._make_units(observed, None), exposure=0.5))
    components = exact(ctx.model.means(ctx.q))

    def expected(h, c):
        return h[0] * components[0][c]

    cells = [(n, c) for n, c in np.argwhere(~np.isnan(X))]
    terms = (log_poisson(exact(held_out[n, c]), expected(activations[n], c) / 2) for n, c in cells)
    right = number(fsum(terms) / len(cells))
    # The product of activations and components is rounded.
    assert est.score(X) == pytest.approx(right, abs=1e-6, rel=1e-9)
    activations = exact(est.transform(X))
    error = 0
    for n, c in cells:
        x, mean = exact(X[n, c]), expected(activations[n], c)
        error += x * log(x / mean) - x + mean if x else mean
    assert est.reconstruction_err_ == pytest.approx(number((2 * error) ** 0.5), rel=1e-7)


# Student-t densities


@pytest.mark.parametrize("dof", [5.0, 1e6, 1e10, 1e14])
def test_densities_of_many_degrees_of_freedom(dof, rng):
    """With known covariances the predictive density tends to a Gaussian one."""
    X = rng.normal(size=(30, 2))
    mixtures = (
        AnnealedBayesianGaussianMixture(
            n_components=1,
            degrees_of_freedom_prior=dof,
            covariance_prior=dof * np.eye(2),
            random_state=0,
        ),
        AnnealedBayesianMixture(
            1, emission="gaussian", dof_prior=dof, scale_prior=dof, random_state=0
        ),
    )
    for est in mixtures:
        est.fit(X)
        components = est._context().model.components
        degrees, mean, scale = components.student_t(est._context().q)
        mean = mean + est._context().summary.center if hasattr(est, "covariances_") else None
        right = []
        for x in X:
            if mean is not None:
                right.append(log_student_t(x, degrees[0], mean[0], scale[0]))
            else:
                at = est.means_[0]
                right.append(
                    fsum(
                        log_student_t(x[d : d + 1], degrees[0, d], at[d : d + 1], scale[0, d])
                        for d in range(2)
                    )
                )
        assert_allclose(est.score_samples(X), [number(value) for value in right], rtol=1e-8)


def log_student_t(x, dof, mean, scale):
    scale = np.atleast_2d(scale)
    d, dof = len(x), exact(dof)
    difference = x - mean
    distance = exact(difference @ np.linalg.solve(scale, difference))
    norm = loggamma((dof + d) / 2) - loggamma(dof / 2) - exact(d) / 2 * log(dof)
    norm -= exact(d * 0.5 * np.log(np.pi) + 0.5 * np.linalg.slogdet(scale)[1])
    return norm - (dof + d) / 2 * log(1 + distance / dof)


def test_variances_beyond_the_largest_number_are_infinite_without_a_warning():
    components = PoissonComponents(2, 2, np.ones((2, 2)), np.ones((2, 2)))
    q = {"shape": np.full((2, 2), 1e300), "rate": np.full((2, 2), 1e-7)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        moments = components.predictive_moments(q)
    assert np.isfinite(moments.mean).all()
    assert np.isinf(moments.variance).all()
