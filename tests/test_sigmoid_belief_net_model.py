"""Sigmoid belief nets: kernels, bounds and gradients against the equations in plain numpy."""

from __future__ import annotations

import numpy as np
import plain_sigmoid_belief_net as plain
import pytest
from scipy.special import expit, logsumexp

from sklearn_anneal.annealing.proximity import CONSTRAINTS
from sklearn_anneal.families import Tempering
from sklearn_anneal.inference.gradient import SGD, Adam
from sklearn_anneal.kernels import sigmoid_belief_net as kernels
from sklearn_anneal.models.sigmoid_belief_net import BinaryRows, SigmoidBeliefNet, coefficients

SIZES = (3, 2, 2)
TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


def net(sizes=SIZES, n_samples=2, optimizer=Adam(0.1), **params):  # noqa: B008
    return SigmoidBeliefNet(sizes, n_samples, optimizer, **params)


def drawn_parameters(model, rng, size=1.0):
    return {key: size * rng.normal(size=model.shape(key)) for key in model.keys}


def binary_rows(rng, n, d=SIZES[0]):
    return (rng.random((n, d)) < 0.5).astype(float)


# Kernels


@pytest.mark.parametrize("n_units", [1, 16, 37, 1100])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_log_probabilities_and_residuals(n_units, dtype, rng):
    logits = (4 * rng.normal(size=(6, n_units))).astype(dtype)
    logits[0, 0], logits[1, 0] = 200.0, -200.0
    values = (rng.random((3, n_units)) < 0.5).astype(dtype)
    bias, residuals, found = rng.normal(size=n_units).astype(dtype), logits.copy(), np.ones(6)
    kernels.log_probabilities(values, bias, residuals, found)
    x, g = np.tile(values, (2, 1)).astype(float), (logits + bias).astype(float)
    tol = TOLERANCE[dtype]
    np.testing.assert_allclose(found, 1.0 + plain.log_bernoulli(x, g), rtol=tol)
    np.testing.assert_allclose(residuals, x - expit(g), atol=tol)


@pytest.mark.parametrize("n_units", [1, 16, 37, 1100])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_draws_come_with_their_log_probabilities_and_entropies(n_units, dtype, rng):
    logits = (3 * rng.normal(size=(2, n_units))).astype(dtype)
    keys = rng.integers(2**63, size=2)
    h, r = np.empty((6, n_units), dtype), np.empty((6, n_units), dtype)
    log_q, entropy = np.zeros(6), np.zeros(6)
    kernels.draw(logits, keys, 5, 2000, h, r, log_q, entropy)
    u = np.tile(logits, (3, 1)).astype(float)
    p, tol = expit(u), TOLERANCE[dtype]
    assert np.isin(h, (0, 1)).all()
    np.testing.assert_allclose(r, h - p, atol=tol)
    np.testing.assert_allclose(log_q, plain.log_bernoulli(h, u), rtol=tol, atol=tol)
    np.testing.assert_allclose(entropy, -(p * np.log(p) + (1 - p) * np.log1p(-p)).sum(1), rtol=tol)
    if n_units > 1:
        assert not np.array_equal(h[:2], h[2:4])


def test_draws_have_their_probabilities_and_are_independent(rng):
    p = np.array([1e-3, 0.2, 0.5, 0.97])
    n = 200_000
    model = net((4, 4))
    X = np.zeros((n, 4))
    keys = model.keys_of(X, 7)
    h, r = np.empty((n, 4)), np.empty((n, 4))
    kernels.draw(np.log(p / (1 - p))[None], keys, 0, 4, h, r, np.zeros(n), np.zeros(n))
    z = (h.mean(axis=0) - p) / np.sqrt(p * (1 - p) / n)
    assert np.abs(z).max() < 4
    correlations = np.corrcoef(h, rowvar=False)[np.triu_indices(4, 1)] * np.sqrt(n)
    neighbours = [np.corrcoef(h[:-1, j], h[1:, j])[0, 1] * np.sqrt(n) for j in range(4)]
    shifted = [np.corrcoef(h[:-1, 2], h[1:, 1])[0, 1] * np.sqrt(n)]
    assert np.abs([*correlations, *neighbours, *shifted]).max() < 4
    drawn = np.empty_like(X)
    kernels.draw_values(np.broadcast_to(p, (n, 4)).copy(), keys, 0, drawn)
    assert np.abs((drawn.mean(axis=0) - p) / np.sqrt(p * (1 - p) / n)).max() < 4


def test_streams_of_rows_follow_from_their_content(rng):
    model, X = net((4, 4)), binary_rows(rng, 16, 4)
    X = np.unique(X, axis=0)
    keys = model.keys_of(X, None)
    assert len(set(keys)) == len(X)
    np.testing.assert_array_equal(model.keys_of(X[::-1].astype(np.float32), None), keys[::-1])
    assert len({*model.keys_of(X, 1), *model.keys_of(X, 2), *keys}) == 3 * len(X)


# Bounds and gradients


def test_log_weights_are_those_of_the_equations(rng):
    model, X = net((5, 4, 3, 2), n_samples=3), binary_rows(rng, 7, 5)
    q = drawn_parameters(model, rng)
    drawn = model.infer(q, X, 0, 0, 3)
    log_p, _ = model.generated(q, drawn.values)
    for i in range(21):
        hidden = [layer[i : i + 1] for layer in drawn.values[1:]]
        assert log_p[i] == pytest.approx(plain.log_joint(q, X[i % 7], hidden)[0])
        assert drawn.log_q[i] == pytest.approx(plain.log_recognition(q, X[i % 7], hidden)[0])


def test_coefficients_are_those_of_vimco(rng):
    """The equations 10 to 12 of the paper, sample by sample."""
    log_w = 3 * rng.normal(size=(4, 6))
    of_p, of_q = coefficients(log_w)
    for n in range(6):
        w = log_w[:, n]
        bound = logsumexp(w) - np.log(4)
        for s in range(4):
            others = np.delete(w, s)
            replaced = logsumexp([*others, others.mean()]) - np.log(4)
            share = np.exp(w[s] - logsumexp(w))
            assert of_p[s, n] == pytest.approx(share)
            assert of_q[s, n] == pytest.approx(bound - replaced - share)


@pytest.mark.parametrize("n_samples", [1, 2, 3])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_gradients_for_given_draws_are_finite_differences(n_samples, temperature, rng):
    """Of the bound with respect to the net, and of Σ c log q with respect to the recognition."""
    model, X = net(n_samples=n_samples), binary_rows(rng, 4)
    q, weights = drawn_parameters(model, rng), rng.uniform(0.5, 2.0, size=4)
    x = 1 / temperature
    visit = model.visit(q, None, Tempering(x, x, 1.0))
    step = visit.step(BinaryRows(X, weights), None, 3)
    drawn = model.infer(q, X, 3, 0, n_samples)
    rows = np.tile(np.arange(4), n_samples)

    def log_weights(p):
        joint = [
            plain.log_joint(p, X[n], [h[i : i + 1] for h in drawn.values[1:]])[0]
            for i, n in enumerate(rows)
        ]
        return (x * np.array(joint) - drawn.log_q).reshape(n_samples, 4)

    def tempered_bound(p):
        return weights @ (logsumexp(log_weights(p), axis=0) - np.log(n_samples))

    factors = weights * coefficients(log_weights(q))[1]

    def weighted_log_q(p):
        logs = [
            plain.log_recognition(p, X[n], [h[i : i + 1] for h in drawn.values[1:]])[0]
            for i, n in enumerate(rows)
        ]
        return (factors.ravel() * logs).sum()

    bounds, logs = plain.gradient(tempered_bound, q), plain.gradient(weighted_log_q, q)
    for key, found in step.statistics.items():
        expected = bounds[key] if key[0] in "Wb" else logs[key]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7, err_msg=key)


@pytest.mark.parametrize(("n_samples", "temperature"), [(1, 1.0), (2, 1.0), (3, 1.0), (2, 2.0)])
def test_gradient_is_unbiased(n_samples, temperature, rng):
    """The mean over many draws is the gradient of the exact bound, by enumeration of all states."""
    sizes = (2, 2, 1)
    model, X = net(sizes, n_samples), np.array([[0.0, 1.0], [1.0, 1.0]])
    q, x = drawn_parameters(model, rng), 1 / temperature
    visit = model.visit(q, None, Tempering(x, x, 1.0))
    n_seeds, n_copies = 40, 2000
    rows = BinaryRows(np.repeat(X, n_copies, axis=0))
    steps = [visit.step(rows, None, seed) for seed in range(n_seeds)]
    exact = plain.gradient(lambda p: plain.bound(p, X, sizes, n_samples, x), q)
    z = []
    for key in q:
        drawn = np.array([step.statistics[key] / n_copies for step in steps])
        error = drawn.std(axis=0, ddof=1) / np.sqrt(n_seeds)
        z += list(((drawn.mean(axis=0) - exact[key]) / error).ravel())
    # t-distributed with 39 degrees of freedom, variance 1.05.
    assert np.abs(z).max() < 4.5
    assert np.mean(np.square(z)) < 2.2
    bounds = np.array([step.bound / n_copies for step in steps])
    error = bounds.std(ddof=1) / np.sqrt(n_seeds)
    assert abs(bounds.mean() - plain.bound(q, X, sizes, n_samples)) < 4 * error


def test_a_step_tells_the_spread_of_the_bounds(rng):
    model, X = net(), binary_rows(rng, 6)
    q, weights = drawn_parameters(model, rng), rng.uniform(0.5, 2.0, size=6)
    visit = model.visit(q, None, evaluation=True)
    bounds = [visit.step(BinaryRows(X[i : i + 1])).bound for i in range(6)]
    step = visit.step(BinaryRows(X, weights))
    assert step.bound == pytest.approx(weights @ bounds)
    assert step.squares == pytest.approx(weights @ np.square(bounds))
    assert step.statistics == {}


def test_random_weights_multiply_gradients(rng):
    model, X = net(), binary_rows(rng, 6)
    q, noise = drawn_parameters(model, rng), rng.uniform(0.0, 2.0, size=6)
    steps = [
        model.visit(q, None, separate_noise=separate).step(BinaryRows(X, w), given, 3)
        for separate, w, given in [
            (False, noise, None),
            (False, None, noise),
            (True, None, noise - 1.0),
        ]
    ]
    for key in q:
        for step in steps[1:]:
            np.testing.assert_allclose(step.statistics[key], steps[0].statistics[key])
    assert steps[1].bound != pytest.approx(steps[0].bound)  # the bound that is recorded has none


# What proximity holds


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_gradients_of_constraints_are_finite_differences(name, rng):
    """With one hidden layer, none of these statistics depends on draws."""
    model, X = net((4, 3), n_samples=2), binary_rows(rng, 7, 4)
    q, units = drawn_parameters(model, rng), BinaryRows(X, rng.uniform(0.5, 2.0, size=7))

    def statistics(p):
        visit = model.visit(p, None, constraint=name)
        return visit.finish(visit.step(units, None, 3)).constraints

    for i, part in enumerate(statistics(q)):
        assert part.gradient.keys() == {"V1", "a1"} == part.value.keys()
        parts = np.size(part.value["a1"])
        found = [
            plain.gradient(lambda p, i=i, j=j: np.ravel(statistics(p)[i].value["a1"])[j], q)
            for j in range(parts)
        ]
        for key, gradient in part.gradient.items():
            for j in range(3):
                slopes = [f[key][j] for f in found]
                of_own = slopes[j] if parts == 3 else slopes[0]
                np.testing.assert_allclose(gradient[j], of_own, rtol=1e-6, atol=1e-8)
                if parts == 3:  # no part depends on another unit
                    np.testing.assert_allclose(np.delete(slopes, j, axis=0), 0.0, atol=1e-8)


def test_values_of_constraints(rng):
    model, X = net((4, 3), n_samples=2), binary_rows(rng, 50, 4)
    q, weights = drawn_parameters(model, rng), rng.uniform(0.5, 2.0, size=50)
    p = expit(X @ q["V1"].T + q["a1"])
    prior = expit(q["b1"])
    share = weights / weights.sum()
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).sum(axis=1)
    kl = -entropy - (p * np.log(prior) + (1 - p) * np.log(1 - prior)).sum(axis=1)
    expected = {
        "entropy": [share @ entropy],
        "kl": [share @ kl],
        "mean_variance": [share @ p, share @ (p * (1 - p))],
        "active_units": [share @ p**2 - (share @ p) ** 2],
    }
    for name in CONSTRAINTS:
        visit = model.visit(q, None, constraint=name)
        # In two chunks, which are added.
        steps = [
            visit.step(BinaryRows(X[i], weights[i]), None, 3) for i in (slice(0, 20), slice(20, 50))
        ]
        found = visit.finish(visit.merge(*steps)).constraints
        for part, value in zip(found, expected[name], strict=True):
            for key in ("V1", "a1"):
                np.testing.assert_allclose(part.value[key] / weights.sum(), value, rtol=1e-10)


def test_entropy_and_divergence_of_several_layers_are_means_over_draws(rng):
    """With S draws per row, the entropy is Σ_l H[q(h_l | h_{l-1})] on average."""
    model, X = net((3, 2, 2), n_samples=500), binary_rows(rng, 3)
    q = drawn_parameters(model, rng)
    hidden = plain.states((3, 2, 2))
    entropy = kl = 0.0
    for x in X:
        log_q = plain.log_recognition(q, x, hidden)
        prior = plain.log_bernoulli(hidden[1], q["b2"])
        prior = prior + plain.log_bernoulli(hidden[0], hidden[1] @ q["W2"] + q["b1"])
        entropy -= np.exp(log_q) @ log_q
        kl += np.exp(log_q) @ (log_q - prior)
    for name, expected in {"entropy": entropy, "kl": kl}.items():
        step = model.visit(q, None, constraint=name).step(BinaryRows(X), None, 1)
        assert float(step.constraints[0].value["a1"]) == pytest.approx(expected, abs=0.3)


# Steps


@pytest.mark.parametrize("sizes", [(5, 4), (5, 4, 3, 2)])
def test_steps_of_centered_weights_are_steps_of_the_parameters(sizes, rng):
    """A small change of the bound is the same, and mean log odds move as their parameters do."""
    model = net(sizes)
    q, gradient, step = (drawn_parameters(model, rng) for _ in range(3))
    after = model.after_step(q, {key: q[key] + step[key] for key in q})
    centered = model.centered_gradient(q, gradient)
    rise = sum((gradient[key] * (after[key] - q[key])).sum() for key in q)
    assert rise == pytest.approx(sum((centered[key] * step[key]).sum() for key in q), rel=1e-12)
    means = expit(q[f"b{len(sizes) - 1}"])
    for layer in range(len(sizes) - 1, 0, -1):
        before, moved = (means @ p[f"W{layer}"] + p[f"b{layer - 1}"] for p in (q, after))
        np.testing.assert_allclose(moved - before, step[f"b{layer - 1}"], atol=1e-12)
        means = expit(before)


@pytest.mark.parametrize("optimizer", [Adam(0.1), SGD(0.1, momentum=0.75)])
def test_learned_decay_is_that_of_a_prior_whose_variance_is_learned(optimizer, rng):
    """Element by element; a unit that is always on has the information of a tenth of a row."""
    sizes, n, share = (120, 4, 3), 40, 0.25
    model = net(sizes, weight_decay=None, optimizer=optimizer)
    q = drawn_parameters(model, rng)
    q["b2"][0] = 50.0
    X = binary_rows(rng, n, 120)
    X[:, 0] = 0.0
    found, adam = model.decay(q, model.summary(BinaryRows(X)), share), optimizer.gain is None
    top = expit(q["b2"])
    means = [(X.sum(axis=0) + 0.5) / (n + 1.0), expit(top @ q["W2"] + q["b1"]), top]
    for l, factor in ((1, (96 / 120) ** 0.7), (2, 1.0)):  # noqa: E741
        W, above, below = q[f"W{l}"], means[l], means[l - 1]
        for j in range(len(W)):
            rows = max(n * above[j] * (1 - above[j]), 0.1)
            information = rows * np.maximum(below * (1 - below), 0.5 / (n + 2))
            total = (W[j] ** 2).sum() + (0.5 / information).sum() + 20 * 2.0
            precision = (len(below) + 20) / total
            # A step of Adam follows the gradient over its standard deviation in a batch, and one
            # of SGD four times the gradient: at the mode of the posterior it is α w / n per row.
            per_gradient = np.sqrt(share * n / (information / n)) if adam else 4.0
            of_recognition = 0.16 * np.sqrt(share if adam else information) * (1 if adam else 4 / n)
            expected = factor * precision / n * per_gradient
            np.testing.assert_allclose(found[f"W{l}"][j], expected, rtol=1e-12)
            of_unit = np.broadcast_to(found[f"V{l}"], W.shape)[j]
            np.testing.assert_allclose(of_unit, of_recognition, rtol=1e-12)


def test_given_decay_is_that_of_all_weights(rng):
    summary = net().summary(BinaryRows(binary_rows(rng, 5)))
    for given, expected in ((0.3, {"W1": 0.3, "W2": 0.3, "V1": 0.3, "V2": 0.3}), (0.0, {})):
        model = net(weight_decay=given)
        assert model.decay(drawn_parameters(model, rng), summary, 1.0) == expected
        halves = {key: value / 2.0 for key, value in expected.items()}
        assert model.decay(drawn_parameters(model, rng), summary, 0.25) == halves
