"""Tests of variational inference with a proximity constraint."""

from __future__ import annotations

import numpy as np
import pytest
from cases_annealing import MIXTURE, VARIANTS, run
from harness import largest_difference, one_update

from sklearn_anneal.annealing import ProximityVI
from sklearn_anneal.annealing.proximity import DISTANCES
from sklearn_anneal.models._base import LocalStep

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def entropy_terms(params, rng, **settings):
    """A context after some updates, with its method, and a direction in natural parameters."""
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run(ProximityVI(**settings), X, **params)
    for _ in range(3):
        one_update(ctx, method, units)
    return ctx, method, units


@pytest.mark.parametrize("params", VARIANTS)
def test_pull_is_the_natural_gradient_of_the_constraint(params, rng):
    """d[−k (H(q) − H_lag)²] = gᵀ dE[t] with g = 2k (H − H_lag)(λ − b), along random directions."""
    k, gap = 0.003, 1.7
    ctx, method, _ = entropy_terms(params, rng, strength=k, lag=2, n_passes=10, learning_rate=0.5)
    q, model = ctx.q, ctx.model
    entropy = model.entropy(q)
    ctx.state = {**ctx.state, "passes": 0.0, "entropies": (entropy + gap, 0.0)}
    ctx.q_start, ctx.report = q, LocalStep({}, 0.0, 0.0)
    new = method.update(ctx, q, q, 0.5)
    gradient = {key: (new[key] - q[key]) / 0.5 for key in q}
    base, eps = model.factors().base(q), 1e-5
    for key in q:
        np.testing.assert_allclose(gradient[key], -2 * k * gap * (q[key] - base[key]), atol=1e-9)
    for _ in range(4):
        other = model.random_natural(ctx.summary, ctx.prior, rng)
        direction = {key: rng.standard_normal() * (other[key] - q[key]) for key in q}
        values, expectations = [], []
        for sign in (1, -1):
            moved = {key: q[key] + sign * eps * direction[key] for key in q}
            values.append(-k * (model.entropy(moved) - entropy - gap) ** 2)
            expected = {}
            for factor in model.factors():
                expected |= factor.rename(factor.family.expectations(factor.pick(moved)))
            expectations.append(expected)
        slope = (values[0] - values[1]) / (2 * eps)
        terms = [gradient[key] * (expectations[0][key] - expectations[1][key]) for key in q]
        size = sum(np.abs(term).sum() for term in terms) / (2 * eps)
        assert slope == pytest.approx(sum(t.sum() for t in terms) / (2 * eps), abs=1e-5 * size)


def test_pull_compares_entropies_a_lag_apart_and_fades(rng):
    ctx, method, units = run(ProximityVI(0.01, 3, 20, 0.5), MIXTURE.data(rng, 40))
    entropies = []
    for update in range(25):
        q = ctx.q
        seen = one_update(ctx, method, units)
        entropies.append(ctx.model.entropy(q) + seen.step.entropy)
        ctx.q_start, ctx.report = q, seen.step
        assert ctx.state["entropies"] == pytest.approx(entropies[-3:], rel=1e-12)
        plain, none, _ = run("none", MIXTURE.data(np.random.default_rng(0), 40))
        plain.q = q
        one_update(plain, none, units)
        gap = entropies[-1] - entropies[-4] if update >= 3 else 0.0
        pull = np.clip(2 * 0.01 * max(1 - update / 20, 0.0) * gap, -0.9, 0.9)
        base = ctx.model.factors().base(q)
        expected = {
            key: 0.5 * q[key] + 0.5 * plain.q[key] + 0.5 * pull * (q[key] - base[key]) for key in q
        }
        assert largest_difference(ctx.q, expected) < 1e-10
    assert pull == 0.0


def test_pull_is_clipped_and_stays_in_the_domain(rng):
    for gap in (1e6, -1e6):
        ctx, method, units = entropy_terms(
            MIXTURE.first, rng, strength=1.0, lag=1, n_passes=1000, learning_rate=1.0
        )
        ctx.state["entropies"] = (gap,)
        ctx.q_start, ctx.report = ctx.q, LocalStep({}, 0.0, 0.0)
        assert method.pull(ctx, 0.0) == (-0.9 if gap > 0 else 0.9)
        one_update(ctx, method, units)
        assert ctx.model.factors().valid(ctx.q)


# Values that only models trained by gradients can follow


@pytest.mark.parametrize(
    "settings",
    [
        {"constraint": "kl"},
        {"constraint": "mean_variance"},
        {"constraint": "active_units"},
        {"distance": "inverse_huber"},
        {"average": 0.9},
    ],
    ids=str,
)
def test_values_without_a_closed_form_are_refused_by_conjugate_models(settings, rng):
    estimator = MIXTURE.make(annealing=ProximityVI(**settings))
    with pytest.raises(ValueError, match="the updates of this model are conjugate"):
        estimator.fit(MIXTURE.data(rng, 40))


def test_schedules_of_the_strength_end_at_zero(rng):
    X = MIXTURE.data(rng, 40)
    for schedule in ("linear", "exponential", "accelerating"):
        ctx, method, _ = run(ProximityVI(2.0, 3, 8, 0.5, schedule=schedule), X)
        sizes = []
        for t in range(9):
            ctx.state = {**ctx.state, "passes": float(t)}
            sizes.append(method.magnitude(ctx))
        assert sizes[0] == 2.0 and sizes[-1] == 0.0
        assert all(a > b for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        if schedule == "accelerating":
            expected = 2.0 * np.cumprod([(1 - t / 8) ** 2 for t in range(9)])
            np.testing.assert_allclose(sizes, expected, rtol=1e-12)


def test_slopes_of_distances_are_their_derivatives():
    x = np.array([-3.0, -0.4, 0.3, 2.0])
    distances = {
        "squared": lambda x: x**2,
        "inverse_huber": lambda x: np.where(np.abs(x) <= 1, np.abs(x), (x**2 + 1) / 2),
    }
    assert distances.keys() == DISTANCES.keys()
    for name, distance in distances.items():
        slope = (distance(x + 1e-6) - distance(x - 1e-6)) / 2e-6
        np.testing.assert_allclose(DISTANCES[name](x), slope, atol=1e-8)
        assert DISTANCES[name](np.zeros(1)) == 0
