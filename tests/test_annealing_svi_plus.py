"""Tests of stochastic variational inference with random weights."""

from __future__ import annotations

import numpy as np
import pytest
from cases_annealing import MIXTURE, VARIANTS, bare_context, mixture, run, with_defaults
from harness import all_at_once, context_of, one_update

from sklearn_anneal.annealing import SVIPlus

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def definition_one(n, effective):
    """Covariance of 1 + ε_i − ε̄ with ε of variance n/M − 1."""
    variance = n / effective - 1
    return variance * (np.eye(n) - 1 / n)


@pytest.mark.parametrize(("n", "effective"), [(8, 2), (8, 7), (5, 1), (20, 5)])
@pytest.mark.parametrize("noise", ["dirichlet", "gaussian"])
def test_random_weights_have_the_moments_of_definition_one(noise, n, effective, rng):
    method = with_defaults(SVIPlus(effective, noise, "constant", 10))
    weights = method.weights(bare_context(rng), n)
    draws = np.array([all_at_once(weights, n, rng) for _ in range(1_500)], dtype=float)
    # If a method separates the noise, its weights are given as deviations from 1.
    separate = method.visit_options(bare_context(rng))["separate_noise"]
    deviations = draws if separate else draws - 1.0
    assert separate == (noise == "gaussian")
    rounding = 1e-5 if noise == "gaussian" else 1e-12 * n
    np.testing.assert_allclose(deviations.sum(axis=1), 0.0, atol=rounding)
    covariance = definition_one(n, effective)
    error = np.sqrt(covariance[0, 0] / len(draws))
    np.testing.assert_allclose(deviations.mean(axis=0), 0.0, atol=5 * error)
    products = deviations[:, :, None] * deviations[:, None, :]
    errors = products.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(products.mean(axis=0) - covariance) <= 5 * errors).all()
    assert (deviations.min() >= -1) == (noise == "dirichlet")


@pytest.mark.parametrize("noise", ["dirichlet", "gaussian"])
@pytest.mark.parametrize("share", [1e-3, 0.25, 0.5])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_small_batches_have_finite_weights(noise, share, n, rng):
    """A share of a few rows can be less than one row, for which no such weights exist."""
    method = with_defaults(SVIPlus(share, noise, "constant", 10))
    distribution = method.weights(bare_context(rng), n)
    if n == 1:
        assert distribution is None
    else:
        for _ in range(20):
            weights = all_at_once(distribution, n, rng)
            assert np.isfinite(weights).all()
            if noise == "gaussian":
                rounding = 1e-6 * (1.0 + float(np.abs(weights).sum()))
                assert weights.sum() == pytest.approx(0.0, abs=rounding)
            else:
                assert weights.sum() == pytest.approx(n)
            assert noise == "gaussian" or weights.min() >= 0


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_stream_of_few_rows_keeps_valid_parameters(n, rng):
    est = mixture("svi_plus").partial_fit(MIXTURE.data(rng, 40))
    for _ in range(5):
        est.partial_fit(MIXTURE.data(rng, n))
        assert context_of(est).model.factors().valid(context_of(est).q)


def test_effective_size_grows_to_that_of_the_batch(rng):
    expected = {
        "constant": [10, 10, 10, 10, 40],
        "linear": [10, 17.5, 25, 32.5, 40],
        "geometric": [10, 10 * np.sqrt(2), 20, 20 * np.sqrt(2), 40],
    }
    for schedule, sizes in expected.items():
        for start in (10, 0.25):
            method = with_defaults(SVIPlus(start, "dirichlet", schedule, 8))
            found = [
                method.effective_size(bare_context(rng, passes), 40) for passes in (0, 2, 4, 6, 8)
            ]
            np.testing.assert_allclose(found, sizes, rtol=1e-12)


@pytest.mark.parametrize("size", [40, 41, 10**6, 1.0])
def test_no_noise_where_the_batch_is_no_larger_than_its_effective_size(size, rng):
    method = with_defaults(SVIPlus(size, "gaussian", "geometric", 10))
    assert method.weights(bare_context(rng, 3.3), 40) is None


@pytest.mark.parametrize("params", VARIANTS)
def test_gaussian_noise_never_leaves_the_domain(params, rng):
    """With an effective size of one row, and full steps: without backoff it leaves at once."""
    X = MIXTURE.data(rng, 30)
    outside = 0
    for margin in (0.0, 0.2):
        method = SVIPlus(1, "gaussian", "constant", 50, 1.0, margin)
        ctx, method, units = run(method, X, **params)
        for _ in range(15):
            q, state = ctx.q, ctx.rng.bit_generator.state
            one_update(ctx, method, units)
            assert ctx.model.factors().valid(ctx.q)
            result = ctx.q, ctx.model, ctx.prior
            # The same weights are drawn again, and the backoff is left out.
            ctx.q, ctx.rng.bit_generator.state = q, state
            try:
                one_update(ctx, _Rash(**method.get_params()), units)
                outside += not ctx.model.factors().valid(ctx.q)
            except np.linalg.LinAlgError:  # where priors are learned from it
                outside += 1
            ctx.q, ctx.model, ctx.prior = result
    assert outside > 5


def test_margin_keeps_a_share_of_the_size_of_parameters(rng):
    """Deviations that leave less are halved until enough is left."""
    X = MIXTURE.data(rng, 40)
    ctx, _, _ = run(SVIPlus(10, "gaussian", "constant", 10, 1.0), X)
    sticks = {"stick_a", "stick_b"}
    ctx.deviation = {key: -0.9 * value * (key in sticks) for key, value in ctx.q.items()}
    for margin, left in ((0.0, 0.1), (0.5, 0.55)):
        method = SVIPlus(10, "gaussian", "constant", 10, 1.0, margin)
        target = {key: value.copy() for key, value in ctx.q.items()}
        found = method.update(ctx, ctx.q, target, 1.0)
        for key in sticks:
            np.testing.assert_allclose(found[key], left * ctx.q[key])


class _Rash(SVIPlus):
    """Gaussian noise without backoff, where a later block does not fail for it."""

    def update(self, ctx, q, target, rho):
        deviation = ctx.deviation
        ctx.deviation = None
        clean = super().update(ctx, q, target, rho)
        if deviation is None:
            return clean
        noisy = {key: value + rho * deviation[key] for key, value in clean.items()}
        last = ctx.model.blocks[-1].keys
        if set(q) == set(last):
            return noisy
        # Independent factors: the precisions are computed from valid means.
        return ctx.model.factors().replace_invalid(noisy, clean)


def test_random_weights_average_to_plain_inference(rng):
    """E λ̂ = λ₀ + S, within five standard errors."""
    X = MIXTURE.data(rng, 30)
    plain, none, units = run("none", X)
    q = plain.q
    one_update(plain, none, units)
    ctx, method, _ = run(SVIPlus(10, "dirichlet", "constant", 10, 1.0), X)
    draws = []
    for _ in range(400):
        ctx.q = q
        one_update(ctx, method, units)
        ctx.state["passes"] = 0.0
        draws.append(ctx.q)
    for key in q:
        values = np.array([d[key] for d in draws])
        error = values.std(axis=0) / np.sqrt(len(values))
        difference = np.abs(values.mean(axis=0) - plain.q[key])
        assert (difference <= 5 * error + 1e-10 * np.abs(plain.q[key])).all()
