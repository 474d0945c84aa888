"""The Gaussian of a matrix whose columns share a precision, against one Gaussian per column."""

from __future__ import annotations

import numpy as np
import pytest

from sklearn_anneal.families import Gaussian, MatrixGaussian

FAMILY = MatrixGaussian()
K, D = 3, 5


def member(rng, scale=1.0):
    root = rng.normal(size=(K, K + 3))
    return {
        "precision": scale * (root @ root.T + 0.3 * np.eye(K)),
        "natural_mean": scale * rng.normal(size=(K, D)),
    }


def by_columns(natural):
    """The same distribution as independent Gaussians, one for each column."""
    return {
        "precision": np.repeat(natural["precision"][None], D, axis=0),
        "natural_mean": natural["natural_mean"].T,
    }


def test_columns_are_independent_gaussians(rng):
    q, p = member(rng), member(rng)
    columns = Gaussian("full")
    pairs = [
        (FAMILY.kl(q, p), columns.kl(by_columns(q), by_columns(p))),
        (FAMILY.entropy(q), columns.entropy(by_columns(q))),
        (FAMILY.log_normalizer(q), columns.log_normalizer(by_columns(q)).sum()),
        (FAMILY._divergence(q, p), columns._divergence(by_columns(q), by_columns(p)).sum()),
        (FAMILY._strength(q), columns._strength(by_columns(q)).sum()),
    ]
    for found, expected in pairs:
        assert np.shape(found) == ()
        assert found == pytest.approx(expected, rel=1e-12)
    expected = columns.expectations(by_columns(q))
    found = FAMILY.expectations(q)
    np.testing.assert_allclose(found["precision"], expected["precision"].sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["natural_mean"], expected["natural_mean"].T, rtol=1e-12)


def test_standard_parameters_and_back(rng):
    q = member(rng)
    standard = FAMILY.to_standard(q)
    np.testing.assert_allclose(standard["covariance"] @ q["precision"], np.eye(K), atol=1e-12)
    again = FAMILY.from_standard(**standard)
    for key in FAMILY.keys:
        np.testing.assert_allclose(again[key], q[key], rtol=1e-9)


def test_expectations_are_the_gradient_of_the_log_normalizer(rng):
    q, eps = member(rng), 1e-6
    expected = FAMILY.expectations(q)
    for _ in range(5):
        other = member(rng)
        step = {key: other[key] - q[key] for key in q}
        high, low = (
            FAMILY.log_normalizer({key: q[key] + sign * eps * step[key] for key in q})
            for sign in (1, -1)
        )
        slope = sum(np.sum(expected[key] * step[key]) for key in q)
        assert (high - low) / (2 * eps) == pytest.approx(slope, rel=1e-6)


def test_draws_have_the_moments(rng):
    q = member(rng)
    standard = FAMILY.to_standard(q)
    # Columns are independent, so that further copies of them are further draws.
    copies = q | {"natural_mean": np.tile(q["natural_mean"], 20)}
    draws = np.concatenate(
        [np.split(FAMILY.sample(copies, rng)["value"], 20, axis=1) for _ in range(1_000)]
    )
    error = np.sqrt(np.diag(standard["covariance"]) / len(draws))[:, None]
    assert (np.abs(draws.mean(axis=0) - standard["mean"]) < 5 * error).all()
    centered = draws - standard["mean"]
    second = np.einsum("nkd,nld->kl", centered, centered) / (len(draws) * D)
    np.testing.assert_allclose(second, standard["covariance"], atol=0.02)


def test_divergence_keeps_its_digits_under_a_strong_prior(rng):
    """q differs from a prior of huge precision by a few data points."""
    p = member(rng, 1e13)
    q = {key: p[key] + value for key, value in member(rng).items()}
    shift = FAMILY.to_standard(q)["mean"] - FAMILY.to_standard(p)["mean"]
    r = np.linalg.eigvals(np.linalg.solve(p["precision"], q["precision"] - p["precision"])).real
    # To second order in the tiny differences.
    expected = 0.25 * D * np.sum(r**2) + 0.5 * np.sum(shift * (p["precision"] @ shift))
    assert FAMILY.kl(q, p) == pytest.approx(expected, rel=1e-2)


def test_domain(rng):
    q = member(rng)
    assert FAMILY.valid(q).shape == ()
    assert FAMILY.valid(q)
    assert not FAMILY.valid({**q, "precision": -q["precision"]})
    assert not FAMILY.valid({**q, "natural_mean": np.full((K, D), np.nan)})
    half = {key: 0.5 * value for key, value in q.items()}
    assert FAMILY.valid(half, q, margin=0.4)
    assert not FAMILY.valid(half, q, margin=0.6)
    with pytest.raises(np.linalg.LinAlgError):
        FAMILY.to_standard({**q, "precision": -q["precision"]})
