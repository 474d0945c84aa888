"""Tests of deterministic annealing."""

from __future__ import annotations

import numpy as np
import pytest
from cases_annealing import MIXTURE, VARIANTS, run
from harness import one_update
from scipy.special import softmax

from sklearn_anneal.annealing import DeterministicAnnealing

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("params", VARIANTS)
@pytest.mark.parametrize("form", ["likelihood", "posterior", "local"])
def test_forms_of_the_first_update(form, params, rng):
    """λ₀ + S/T, b + (λ₀ + S − b)/T, and λ₀ + S, with S of responsibilities at T."""
    X, temperature = MIXTURE.data(rng, 40), 2.5
    method = DeterministicAnnealing(form, temperature, "constant", 10, 0.0)
    ctx, method, units = run(method, X, **params)
    q, block = ctx.q, ctx.model.blocks[0]
    joint = ctx.model.log_joint(units, ctx.model.expectations(q))
    r = softmax(joint / temperature, axis=1)
    counts = r.sum(axis=0)
    one_update(ctx, method, units)
    prior, base = ctx.prior, ctx.model.factors().base(q)
    if "weight_concentration" in prior:
        stats = {"weight_concentration": counts}
    else:
        stats = {"stick_a": counts, "stick_b": counts[::-1].cumsum()[::-1] - counts}
    for key, value in stats.items():
        expected = {
            "likelihood": prior[key] + value / temperature,
            "posterior": base[key] + (prior[key] + value - base[key]) / temperature,
            "local": prior[key] + value,
        }[form]
        assert key in block.keys
        np.testing.assert_allclose(ctx.q[key], expected, rtol=1e-10)
    assert ctx.model.factors().valid(ctx.q)


@pytest.mark.parametrize("params", VARIANTS)
def test_posterior_form_of_high_temperature_is_nearly_flat(params, rng):
    """λ → b: in the raw parameters ν would fall out of its domain."""
    method = DeterministicAnnealing("posterior", 1e4, "constant", 10, 0.0)
    ctx, method, units = run(method, MIXTURE.data(rng, 40), **params)
    one_update(ctx, method, units)
    base = ctx.model.factors().base(ctx.q)
    np.testing.assert_allclose(ctx.q["dof"], base["dof"], atol=0.02)
    assert ctx.model.factors().valid(ctx.q)


@pytest.mark.parametrize("params", VARIANTS)
def test_jitter_breaks_symmetry_and_ends_with_the_schedule(params, rng):
    X = MIXTURE.data(rng, 60)
    moved = {}
    for jitter in (0.0, 0.3):
        method = DeterministicAnnealing("likelihood", 1.5, "linear", 5, jitter)
        ctx, method, units = run(method, X, **params)
        # All components are equal.
        ctx.q = {
            key: (
                np.broadcast_to(value.mean(axis=0), value.shape).copy()
                if value.ndim and len(value) == 3 and not _shared(key, params)
                else value
            )
            for key, value in ctx.q.items()
        }
        for _ in range(5):
            one_update(ctx, method, units)
            assert ctx.model.factors().valid(ctx.q)
        mean = ctx.model.components.standard(ctx.q)["mean"]
        moved[jitter] = np.abs(mean - mean[0]).max()
        state = ctx.rng.bit_generator.state
        one_update(ctx, method, units)
        assert ctx.rng.bit_generator.state == state
    assert moved[0.3] > 1e-2
    # Sticks give equal components unequal counts, hence unequal precisions, which separates them.
    if params["weight_concentration_prior_type"] == "dirichlet_distribution":
        assert moved[0.0] < 1e-8


def _shared(key, params):
    return params["covariance_type"] == "tied" and key in ("scatter", "dof")
