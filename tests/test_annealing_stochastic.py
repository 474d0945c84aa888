"""Tests of stochastic annealing."""

from __future__ import annotations

import numpy as np
import pytest
from cases_annealing import MIXTURE, VARIANTS, bare_context, mixture, run, with_defaults
from harness import context_of, largest_difference, one_update

from sklearn_anneal.annealing import NoAnnealing, StochasticAnnealing

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("params", VARIANTS)
def test_random_initialisations_are_valid(params, rng):
    for n in (5, 40):
        ctx, _, _ = run("none", MIXTURE.data(rng, n), **params)
        for _ in range(15):
            eta = ctx.model.random_natural(ctx.summary, ctx.prior, rng)
            assert ctx.model.factors().valid(eta)
            assert {k: v.shape for k, v in eta.items()} == {
                k: v.shape for k, v in ctx.prior.items()
            }
            counts = ctx.model.weights.expected_counts(eta, ctx.prior)
            assert counts.sum() == pytest.approx(n)


def test_random_initialisation_is_the_posterior_of_pseudo_data(rng):
    """Counts N Dir(1), centres ~ N(mean, Cov) and scatter Cov about them."""
    X = MIXTURE.data(rng, 40)
    params = {"weight_concentration_prior_type": "dirichlet_distribution"}
    ctx, _, _ = run("none", X, **params)
    covariance = np.cov(X.T)
    shares, centers = [], []
    for i in range(1500):
        eta = ctx.model.random_natural(ctx.summary, ctx.prior, rng)
        counts = eta["weight_concentration"] - ctx.prior["weight_concentration"]
        center = (eta["mean_natural"] - ctx.prior["mean_natural"]) / counts[:, None]
        scatter = eta["scatter"] - ctx.prior["scatter"]
        spread = scatter - counts[:, None, None] * center[:, :, None] * center[:, None, :]
        if i < 50:  # equalities need no more draws, unlike moments
            np.testing.assert_allclose(
                spread, counts[:, None, None] * covariance, atol=1e-8 * np.abs(scatter).max()
            )
            np.testing.assert_allclose(eta["mean_precision"] - ctx.prior["mean_precision"], counts)
            np.testing.assert_allclose(eta["dof"] - ctx.prior["dof"], counts)
        shares.append(counts / 40)
        centers.append(center[0])
    shares, centers = np.array(shares), np.array(centers)
    # Dir(1, 1, 1): mean 1/3, variance 1/18.
    np.testing.assert_allclose(shares.mean(axis=0), 1 / 3, atol=5 * np.sqrt(1 / 18 / 1500))
    np.testing.assert_allclose(shares.var(axis=0), 1 / 18, rtol=0.1)
    np.testing.assert_allclose(np.cov(centers.T), covariance, atol=0.1 * covariance.max())
    error = 5 * np.sqrt(np.diag(covariance) / 1500)
    assert (np.abs(centers.mean(axis=0) + ctx.summary.center - X.mean(axis=0)) < error).all()


@pytest.mark.parametrize("params", VARIANTS)
def test_stochastic_annealing_mixes_the_target_with_a_fresh_draw(params, rng):
    X = MIXTURE.data(rng, 40)
    method = StochasticAnnealing(0.6, "linear", 4, "init_params")
    ctx, method, units = run(method, X, **params)
    for passes in range(6):
        q, state = ctx.q, ctx.rng.bit_generator.state
        model, prior = ctx.model, ctx.prior
        share = max(0.6 * (1 - passes / 4), 0.0)
        one_update(ctx, method, units)
        found = ctx.q
        rng_of_noise = np.random.default_rng()
        rng_of_noise.bit_generator.state = state
        plain, none, _ = run("none", X, **params)
        plain.q, plain.model, plain.prior = q, model, prior
        # One draw for all blocks.
        expected = _mixed_update(plain, none, units, share, rng_of_noise)
        assert largest_difference(found, expected) < 1e-12
        assert ctx.model.factors().valid(found)


def _mixed_update(ctx, none, units, share, rng):
    eta = ctx.model.random_natural(ctx.summary, ctx.prior, rng)

    class Mixed(NoAnnealing):
        def is_annealing(self, state):
            return share > 0

        def target(self, ctx, target, stats, draw):
            if share == 0:
                return target
            return {k: (1 - share) * v + share * eta[k] for k, v in target.items()}

    one_update(ctx, Mixed(), units)
    return ctx.q


def test_noise_shares(rng):
    linear = with_defaults(StochasticAnnealing(0.8, "linear", 10))
    exponential = with_defaults(StochasticAnnealing(0.8, "exponential", 10))
    for passes in range(10):
        ctx = bare_context(rng, passes)
        assert linear.noise_share(ctx) == pytest.approx(0.8 * (1 - passes / 10))
        assert exponential.noise_share(ctx) == pytest.approx(0.8 * 10 ** (-3 * passes / 10))
    for passes in (10, 11.5):
        ctx = bare_context(rng, passes)
        assert linear.noise_share(ctx) == exponential.noise_share(ctx) == 0.0


def test_start_of_stochastic_annealing(rng):
    """A draw of η, or what ``init_params`` says; the schedule changes nothing in it."""
    X = MIXTURE.data(rng, 40)

    def start(method, **params):
        return context_of(mixture(method, max_iter=0, **params).fit(X)).q

    first = start(StochasticAnnealing(n_passes=0, start="random"))
    assert largest_difference(first, start(StochasticAnnealing(n_passes=0))) == 0
    plain = start("none")
    assert (
        largest_difference(start(StochasticAnnealing(n_passes=0, start="init_params")), plain) == 0
    )
    assert largest_difference(start(StochasticAnnealing(0.0, n_passes=0)), plain) == 0
    assert largest_difference(first, plain) > 1e-3
    other = start(StochasticAnnealing(n_passes=0), init_params="random")
    assert largest_difference(first, other) == 0
