"""The equations of factorial mixtures: bounds, partition functions, learned priors, predictions."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from cases_factorial_mixture import STEPS, fitted, small_factorial_mixture
from harness import context_of, lower_bound, one_update, open_run, units_of, visit
from models.factorial_mixture import sums_of_parts
from plain_factorial_mixture import (
    enumerated,
    expected_log_joint,
    log_prior_of_state,
    mean_field,
    states,
)
from quadrature import integral_of_density
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_digits

from sklearn_anneal import AnnealedFactorialMixture
from sklearn_anneal.annealing import NoAnnealing, StructuredVI
from sklearn_anneal.models import _binary_codes

each_step = pytest.mark.parametrize("local_step", STEPS)


def moments_of(ctx):
    standard = ctx.model.standard(ctx.q)
    mean, covariance = standard["mean"], standard["covariance"]
    return mean, mean @ mean.T + mean.shape[1] * covariance


# Statistics and bounds


@each_step
@pytest.mark.parametrize("center", [False, True])
def test_a_visit_sums_the_equations_over_rows(local_step, center, rng):
    est, X = fitted(rng, local_step, center=center)
    ctx = context_of(est)
    ctx = replace(ctx, exploring=False)
    weights = rng.integers(0, 3, size=len(X)).astype(float)
    seen = visit(ctx, NoAnnealing(), units_of(est, X, weights).centered(ctx.summary))
    means, gram = moments_of(ctx)
    first, second, energy, entropy = 0.0, 0.0, 0.0, 0.0
    local = np.full((3, len(X)), np.nan)
    if seen.local is not None:
        local = np.concatenate(seen.local[0], axis=1)
    X = X - ctx.summary.center
    for x, w, logits in zip(X, weights, local.T, strict=True):
        args = (x, means, gram, est.noise_variance_, est.activation_probabilities_, 1.0)
        found = enumerated(*args) if local_step == "enumerate" else mean_field(*args, logits, 0, 0)
        first += w * np.outer(found[0], x)
        second += w * found[1]
        energy += w * found[2]
        entropy += w * found[3]
    np.testing.assert_allclose(seen.step.statistics["first"], first, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(seen.step.statistics["second"], second, rtol=1e-8, atol=1e-8)
    assert seen.step.energy == pytest.approx(energy, rel=1e-9)
    assert seen.step.entropy == pytest.approx(entropy, rel=1e-7)
    error, weight = seen.step.statistics["evidence"]
    squares = weights @ (X**2).sum(axis=1)
    assert error == pytest.approx(squares - 2 * np.sum(means * first) + np.sum(gram * second))
    assert weight == weights.sum()


@each_step
@pytest.mark.parametrize("weighted", [False, True])
def test_fits_do_not_depend_on_the_size_of_blocks(local_step, weighted, rng, monkeypatch):
    """Passes that start anew and passes that continue, with a last block that is smaller."""
    X = rng.standard_normal((330, 5)) + 3.0 * (rng.random((330, 1)) < 0.5)
    weights = rng.random(330) if weighted else None

    def fit():
        est = small_factorial_mixture(local_step=local_step, annealing="none", max_iter=12, tol=0)
        return est.fit(X, sample_weight=weights)

    whole = fit()
    monkeypatch.setattr(_binary_codes, "_BLOCK", 128)
    parts = fit()
    np.testing.assert_allclose(parts.lower_bounds_, whole.lower_bounds_, rtol=1e-10)
    np.testing.assert_allclose(parts.means_, whole.means_, rtol=1e-7, atol=1e-9)


def test_enumeration_has_the_higher_bound(rng):
    """At every q(μ), since independent activations are among all distributions of them."""
    for _ in range(5):
        est, X = fitted(rng, "mean_field", annealing="none", max_iter=2)
        exact = small_factorial_mixture(local_step="enumerate", max_iter=0, annealing="none").fit(X)
        ctx = replace(context_of(est), exploring=False)
        of_exact = replace(context_of(exact), q=ctx.q)
        units = units_of(est, X)
        assert lower_bound(of_exact, units) >= lower_bound(ctx, units) - 1e-9


def test_draws_give_the_exact_posterior_of_activations(rng):
    """Structured inference sees a draw of μ: q(z) is then p(z | x, μ)."""
    est = small_factorial_mixture(local_step="enumerate", annealing=StructuredVI())
    ctx, method, units = open_run(est, sums_of_parts(2)(rng, 5))
    seen = visit(ctx, method, units)
    means, noise = seen.visit.expected.scaled * ctx.model.noise_variance, ctx.model.noise_variance
    first = 0.0
    for x in units.X:
        joint = np.array(
            [
                norm(z @ means, np.sqrt(noise)).logpdf(x).sum()
                + log_prior_of_state(z, ctx.model.activation_prior)
                for z in states(3)
            ]
        )
        first += np.outer(np.exp(joint - logsumexp(joint)) @ states(3), x)
    np.testing.assert_allclose(seen.step.statistics["first"], first, rtol=1e-9)


# Partition functions


@each_step
@pytest.mark.parametrize("x", [1.0, 0.5, 0.03])
def test_partition_function_is_the_integral_of_the_tempered_model(local_step, x, rng):
    """c(x) = ∫ Σ_z p(x, z | μ)^x dx for any μ, by the trapezoidal rule over one column."""
    prior = [0.2, 0.7, 0.4]
    est, _ = fitted(rng, local_step, n_features=1, activation_prior=prior)
    ctx = context_of(est)
    noise = est.noise_variance_
    for means in (np.zeros(3), 3.0 * rng.normal(size=3)):
        reach = 40.0 * np.sqrt(noise / x) + np.abs(means).sum()
        grid, step = np.linspace(-reach, reach, 20_001, retstep=True)
        terms = [
            x
            * (norm(z @ means, np.sqrt(noise)).logpdf(grid) + log_prior_of_state(z, prior_of(est)))
            for z in states(3)
        ]
        expected = logsumexp(terms) + np.log(step)
        found = ctx.model.unit_log_partition(np.array([x]), ctx.summary, ctx.q)
        assert found.shape == (1,)
        assert found[0] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    whole = ctx.model.log_partition(np.array([x]), ctx.summary, ctx.q)
    assert whole == pytest.approx(60 * found)


def prior_of(est):
    return est.activation_probabilities_


def test_partition_function_of_the_paper_lacks_the_normaliser_of_the_noise(rng):
    """Section 4.2 prints D/2 log T + Σ log(π^x + (1 − π)^x)."""
    est, _ = fitted(rng, noise_variance=0.2)
    ctx, x = context_of(est), 0.25
    printed = 2.0 * np.log(1 / x) + 3 * np.log(0.4**x + 0.6**x)
    found = ctx.model.unit_log_partition(np.array([x]), ctx.summary, ctx.q)[0]
    assert found - printed == pytest.approx(2.0 * (1 - x) * np.log(2 * np.pi * 0.2))


# Learned priors


@each_step
def test_parts_beside_an_offset_have_a_canonical_form_with_the_same_bound(local_step, rng):
    X = sums_of_parts(4)(rng, 80) + 1e3
    auto = dict.fromkeys(("noise_variance", "mean_variance", "activation_prior"), "auto")
    est = small_factorial_mixture(local_step=local_step, center=True, max_iter=60, **auto).fit(X)
    ctx = context_of(est)
    assert (est.activation_probabilities_ <= 0.5).all()
    assert ctx.model.canonical(ctx.q, ctx.prior) is None
    # The first component is active in the other rows.
    turned = copy(ctx.model)
    turned.activation_prior = ctx.model.activation_prior.copy()
    turned.activation_prior[0] = 1.0 - turned.activation_prior[0]
    change = np.diag([1.0, -1.0, 1.0, 1.0])
    change[0, 1] = 1.0
    q = {
        "precision": change.T @ ctx.q["precision"] @ change,
        "natural_mean": change.T @ ctx.q["natural_mean"],
    }
    units = units_of(est, X).centered(ctx.summary)
    _, bounds = turned.infer(units, q)
    np.testing.assert_allclose(bounds, ctx.model.infer(units, ctx.q)[1], atol=1e-3)
    assert turned.factors().kl(q, ctx.prior) == pytest.approx(
        turned.factors().kl(ctx.q, ctx.prior), rel=1e-9
    )
    model, _, again = turned.canonical(q, ctx.prior)
    np.testing.assert_allclose(model.activation_prior, ctx.model.activation_prior)
    for key, value in ctx.q.items():
        np.testing.assert_allclose(again[key], value, rtol=1e-9, atol=1e-9)


@each_step
def test_learned_priors_maximise_the_bound_at_fixed_posteriors(local_step, rng):
    names = ("noise_variance", "mean_variance", "activation_prior")
    auto = dict.fromkeys(names, "auto")
    est = small_factorial_mixture(local_step=local_step, annealing="none", **auto)
    ctx, method, units = open_run(est, sums_of_parts(4)(rng, 80))
    one_update(ctx, method, units)
    ctx.exploring = False
    seen = visit(ctx, method, units)
    # Priors are learned after an update, from statistics of the visit before it.
    ctx.q = {"precision": 1.1 * ctx.q["precision"], "natural_mean": 1.2 * ctx.q["natural_mean"]}
    model, _, _ = ctx.model.learned(ctx.q, ctx.prior, seen.step, 1.0, 1.0)
    means, gram = moments_of(ctx)
    stats = seen.step.statistics
    weight = stats["evidence"][1]
    squares = np.sum((units.X - ctx.summary.center) ** 2)
    error = squares - 2 * np.sum(means * stats["first"]) + np.sum(gram * stats["second"])
    counts = np.diagonal(stats["second"])

    def noise(variance):
        return 0.5 * weight * 4 * np.log(variance) + 0.5 * error / variance

    def mean(variance):
        return 0.5 * means.size * np.log(variance) + 0.5 * np.trace(gram) / variance

    assert model.noise_variance == pytest.approx(_minimum(noise), rel=1e-5)
    assert model.mean_variance == pytest.approx(_minimum(mean), rel=1e-5)
    for k in range(3):

        def activation(p, n=counts[k]):
            return -n * np.log(p) - (weight - n) * np.log1p(-p)

        best = minimize_scalar(activation, bounds=(1e-6, 1 - 1e-6), method="bounded").x
        assert model.activation_prior[k] == pytest.approx(best, rel=1e-3)


def _minimum(function):
    found = minimize_scalar(lambda log: function(np.exp(log)), bounds=(-10, 10), method="bounded")
    return np.exp(found.x)


@each_step
def test_learned_posterior_is_that_of_the_learned_prior(local_step, rng):
    """q moves with its prior, so that it is λ₀ + S of the new hyperparameters."""
    names = ("noise_variance", "mean_variance", "activation_prior")
    auto = dict.fromkeys(names, "auto")
    est = small_factorial_mixture(local_step=local_step, annealing="none", **auto)
    ctx, method, units = open_run(est, sums_of_parts(4)(rng, 80))
    ctx.exploring = False
    seen = one_update(ctx, method, units)
    stats = ctx.model.block_statistics(ctx.model.blocks[0], seen.step.statistics, ctx.q)
    for key, value in ctx.q.items():
        np.testing.assert_allclose(value, ctx.prior[key] + stats[key], rtol=1e-9, atol=1e-9)


def test_learned_values_are_near_those_that_drew_the_data(rng):
    parts = np.array([[3.0, 0, 0, 2, 0], [0, 3, 0, 2, 1], [0, 0, 3, 0, 2]])
    Z = rng.random((2000, 3)) < [0.2, 0.5, 0.7]
    X = Z @ parts + 0.3 * rng.standard_normal((2000, 5))
    auto = dict.fromkeys(("noise_variance", "mean_variance", "activation_prior"), "auto")
    for how in STEPS:
        est = small_factorial_mixture(
            local_step=how, annealing="deterministic", max_iter=100, **auto
        ).fit(X)
        assert est.noise_variance_ == pytest.approx(0.09, rel=0.05)
        found = np.sort(est.activation_probabilities_)
        np.testing.assert_allclose(found, [0.2, 0.5, 0.7], atol=0.03)
        assert est.mean_variance_ == pytest.approx((parts**2).mean(), rel=0.05)


def test_learned_values_are_bounded(rng):
    """A component that no row needs, and data without noise."""
    X = np.repeat(np.eye(3), 20, axis=0)
    auto = dict.fromkeys(("noise_variance", "mean_variance", "activation_prior"), "auto")
    est = small_factorial_mixture(n_components=5, max_iter=200, **auto).fit(X)
    assert est.noise_variance_ > 0
    assert (est.activation_probabilities_ >= 1e-4).all()
    assert (est.activation_probabilities_ <= 1 - 1e-4).all()
    assert np.isfinite(est.lower_bound_)


# Predictions


@pytest.mark.parametrize("n_features", [1, 2])
def test_enumerated_density_integrates_to_one(n_features, rng):
    est, _ = fitted(rng, "enumerate", n=12, n_features=n_features)
    assert integral_of_density(est) == pytest.approx(1.0, abs=1e-6)


def test_enumerated_density_is_the_mean_over_draws_of_the_components(rng):
    est, X = fitted(rng, "enumerate", n=8)
    ctx = context_of(est)
    (factor,) = ctx.model.factors()
    draws = [factor.family.sample(ctx.q, rng)["value"] for _ in range(1000)]
    every = states(3)
    log_prior = [log_prior_of_state(z, prior_of(est)) for z in every]
    densities = []
    for means in draws:
        errors = (X[:, None] - every @ means) ** 2 / est.noise_variance_
        logs = -0.5 * (errors + np.log(2 * np.pi * est.noise_variance_)).sum(axis=-1)
        densities.append(logsumexp(logs + log_prior, axis=1))
    found = logsumexp(densities, axis=0) - np.log(len(draws))
    np.testing.assert_allclose(est.score_samples(X), found, atol=0.15)


def test_mean_field_score_is_a_bound_on_the_density(rng):
    est, X = fitted(rng, "mean_field")
    exact = small_factorial_mixture(local_step="enumerate", max_iter=0, annealing="none").fit(X)
    context_of(exact).q = context_of(est).q
    assert (est.score_samples(X) <= exact.score_samples(X) + 1e-9).all()
    means, gram = moments_of(context_of(est))
    args = (means, gram, est.noise_variance_, prior_of(est))
    sums = [logsumexp([expected_log_joint(x, z, *args) for z in states(3)]) for x in X]
    ctx = context_of(est)
    bounds = ctx.model.infer(units_of(est, X).centered(ctx.summary), ctx.q)[1]
    assert (bounds <= np.array(sums) + 1e-9).all()
    assert (est.score_samples(X) >= bounds).all()
    # Most of these rows have one sensible explanation, so that the bound is near.
    assert est.score(X) > np.mean(sums) - 0.2


# Annealing


@each_step
def test_high_temperature_leaves_activations_at_their_prior_odds(local_step, rng):
    est, X = fitted(rng, local_step, activation_prior=0.5)
    ctx = replace(context_of(est), exploring=False)
    method = small_factorial_mixture(annealing="none")._strategy(ctx.model)
    units = units_of(est, X)
    for temperature, spread in ((1.0, 0.3), (1e6, 1e-4)):
        t = type(method.temper(ctx, units))(1 / temperature, 1 / temperature, 1.0)
        seen = ctx.model.visit(ctx.q, units, t)
        step = seen.step(units, None, seen.start(units, None, False, 0.0, rng))
        shares = temperature * np.diagonal(step.statistics["second"]) / len(X)
        near = np.abs(shares - 0.5).max() < spread
        assert near or temperature == 1.0


@each_step
def test_jitter_displaces_means_by_prior_standard_deviations(local_step, rng):
    est, _ = fitted(rng, local_step, n_features=400)
    ctx = context_of(est)
    moved = ctx.model.jitter(ctx.q, 0.5, rng, ctx.prior)
    shift = ctx.model.standard(moved)["mean"] - ctx.model.standard(ctx.q)["mean"]
    assert shift.std() == pytest.approx(0.5 * np.sqrt(est.mean_variance_), rel=0.05)
    assert moved["precision"] is ctx.q["precision"]


def test_a_search_ends_with_rows_that_are_cooled_anew():
    """Passes leave each row in the optimum where it was."""
    X = load_digits().data[:600] / 16.0
    rises = []
    for seed in range(2):
        est = AnnealedFactorialMixture(12, random_state=seed).fit(X)
        found = est.search_results_
        cooled, bounds = found["move"] == "cooling", found["lower_bound"]
        assert 1 <= cooled.sum() <= 4
        others = np.append(bounds[found["kept"] & ~cooled], est.restart_lower_bounds_)
        rises.append(est.lower_bound_ - others.max())
    assert min(rises) > 1.0
    # Nothing is cooled where all states are enumerated, or without a search.
    for params in ({"local_step": "enumerate"}, {"annealing": "none"}):
        est = AnnealedFactorialMixture(3, random_state=0, **params).fit(X[:50])
        assert "cooling" not in est.search_results_["move"]


@pytest.mark.parametrize("seed", [1, 3])
def test_bounds_of_new_rows_are_near_to_sums_over_all_states(seed):
    """Sweeps that start at a linear regression alone end far below for some of them."""
    rng = np.random.default_rng(seed)
    parts = rng.random((9, 20)) < 0.3
    X = (rng.random((600, 9)) < 0.35) @ parts + 0.15 * rng.standard_normal((600, 20))
    est = AnnealedFactorialMixture(9, random_state=0).fit(X[:300])
    ctx, units = est._rows(X[300:])
    exact = ctx.model._summed_densities(units, ctx.q)
    found = est.score_samples(X[300:])
    assert (found < exact + 1e-6).all()
    assert found.mean() > exact.mean() - 0.05
