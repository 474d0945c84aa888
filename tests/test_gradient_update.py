"""Tests of the update of models that are trained by gradients: optimizers and their steps."""

from __future__ import annotations

import numpy as np
import pytest

from sklearn_anneal.inference.gradient import OPTIMIZERS, SGD, Adam, RMSProp


def ascent(optimizer, gradient, q, n_steps):
    """The parameters after steps along ``gradient(q)``."""
    moments = optimizer.start(q)
    for t in range(1, n_steps + 1):
        q, moments = optimizer.step(q, gradient(q), moments, t)
    return q


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_optimizers_find_the_top_of_a_parabola(name, dtype, rng):
    top = {"a": rng.standard_normal((3, 2)), "b": rng.standard_normal(4)}
    start = {key: np.zeros(value.shape, dtype) for key, value in top.items()}
    optimizer = OPTIMIZERS[name](learning_rate=0.02, decay=0.002)
    found = ascent(optimizer, lambda q: {key: top[key] - q[key] for key in q}, start, 2000)
    for key in top:
        assert found[key].dtype == dtype
        np.testing.assert_allclose(found[key], top[key], atol=5e-3)


def test_first_steps_are_those_of_the_papers():
    q, g = {"a": np.array([1.0, 2.0])}, {"a": np.array([0.5, -4.0])}
    sign = np.sign(g["a"])
    moved, _ = Adam(0.1).step(q, g, Adam(0.1).start(q), 1)
    np.testing.assert_allclose(moved["a"], q["a"] + 0.1 * sign, rtol=1e-7)
    moved, _ = RMSProp(0.1).step(q, g, RMSProp(0.1).start(q), 1)
    np.testing.assert_allclose(moved["a"], q["a"] + 0.1 * sign / np.sqrt(0.1), rtol=1e-7)
    moved, moments = SGD(0.1, 0.5, momentum=0.5).step(q, g, SGD(0.1).start(q), 1)
    np.testing.assert_allclose(moved["a"], q["a"] + 0.1 * g["a"])
    moved, _ = SGD(0.1, 0.5, momentum=0.5).step(q, g, moments, 2)
    np.testing.assert_allclose(moved["a"], q["a"] + 0.1 / 1.5 * 1.5 * g["a"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_leave_their_arguments_alone(name, rng):
    """A fit goes on from copies of its context, which share their arrays."""
    optimizer = OPTIMIZERS[name](0.1)
    q, g = {"a": rng.standard_normal(5)}, {"a": rng.standard_normal(5)}
    moments = optimizer.start(q)
    _, moments = optimizer.step(q, g, moments, 1)
    before = [part["a"].copy() for part in (q, g, *moments.values())]
    optimizer.step(q, g, moments, 2)
    for part, copy in zip((q, g, *moments.values()), before, strict=True):
        np.testing.assert_array_equal(part["a"], copy)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_have_factors_and_shrink_what_decays(name, rng):
    """A step moves each parameter by its factor, and then adds nothing but the decay."""
    q = {"A": rng.standard_normal((3, 2)), "B": rng.standard_normal((2, 2)), "c": np.ones(4)}
    g = {key: rng.standard_normal(value.shape) for key, value in q.items()}
    plain, other = OPTIMIZERS[name](0.1), OPTIMIZERS[name](0.1, factors={"A": 0.25})
    moved = plain.step(q, g, plain.start(q), 1)[0]
    decay = {"A": 0.15, "B": np.array([[0.5, 0.0], [1.0, 2.0]])}
    found = other.step(q, g, other.start(q), 1, decay)[0]
    of_b = np.array([[0.95, 1.0], [0.9, 0.8]])
    for key, kept, factor in (("A", 0.985, 0.25), ("B", of_b, 1.0), ("c", 1.0, 1.0)):
        expected = kept * q[key] + factor * (moved[key] - q[key])
        np.testing.assert_allclose(found[key], expected, rtol=1e-12)


def test_decay_follows_the_size_of_steps():
    optimizer = Adam(0.2, decay=1.0)
    q, still = {"A": np.ones((1, 1))}, {"A": np.zeros((1, 1))}
    moments = optimizer.start(q)
    for t, kept in ((1, 0.9), (2, 0.9 * 0.95)):
        q, moments = optimizer.step(q, still, moments, t, {"A": 0.5})
        assert q["A"] == pytest.approx(kept, rel=1e-12)


def test_decay_by_more_than_all_leaves_nothing():
    optimizer = Adam(0.2)
    q, still = {"A": np.ones((1, 1))}, {"A": np.zeros((1, 1))}
    assert optimizer.step(q, still, optimizer.start(q), 1, {"A": 50.0})[0]["A"] == 0.0


def test_steps_that_follow_a_constraint_have_a_factor():
    optimizer = Adam(0.1, constrained=0.25)
    q, g = {"a": np.zeros(3)}, {"a": np.ones(3)}
    moved, _ = optimizer.step(q, g, optimizer.start(q), 1, constrained=True)
    np.testing.assert_allclose(moved["a"], 0.025, rtol=1e-6)
