"""Tests of variational tempering, of all the data and of every unit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cases_annealing import MIXTURE, mixture, run
from harness import context_of, one_update, open_run, quick, units_of, visit_of
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sklearn_anneal.annealing import ANNEALING, LocalVariationalTempering, VariationalTempering

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return PCA(15, random_state=0).fit_transform(X[y == 0])


# Variational tempering, global


def test_tempering_probabilities_by_enumeration(rng):
    """r_m ∝ exp{x_m E log p(X, z | β) − log C(x_m)}, every sum over z and integral done.

    C(x) is the sum over all assignments of ∫ p(X, z | β)^x dX, at the plugged-in parameters: equal
    weights and the variance of the data.
    """
    X = MIXTURE.tiny["D=1"](rng)[:3]
    n, k = len(X), 2
    ctx, method, units = run(
        VariationalTempering(max_temperature=8.0, n_temperatures=5), X, n_components=k
    )
    joint = ctx.model.log_joint(units, ctx.model.expectations(ctx.q))
    t = method.temper(ctx, units)
    r = softmax(t.local * joint, axis=1)
    energy = sum(
        np.prod(r[range(n), z]) * joint[range(n), z].sum() for z in product(range(k), repeat=n)
    )
    deviation = X.std(ddof=1)
    x = 1 / np.geomspace(1, 8.0, 5)
    log_partition = []
    for power in x:
        density = quad(
            lambda v, p=power: np.exp(p * norm.logpdf(v, scale=deviation)), -np.inf, np.inf
        )[0]
        terms = [n * (np.log(density) - power * np.log(k)) for _ in product(range(k), repeat=n)]
        log_partition.append(logsumexp(terms))
    expected = softmax(x * energy - np.array(log_partition))
    np.testing.assert_allclose(method.posterior_probabilities(ctx, energy), expected, rtol=1e-8)
    # An update moves r towards that by its damping, with the energy of its own local step.
    one_update(ctx, method, units)
    found = ctx.state["temperature_probabilities"]
    np.testing.assert_allclose(found, (1 - method.damping) / 5 + method.damping * expected)


def test_expected_inverse_temperature_starts_uniform_and_rises_to_one(digits):
    est = mixture("tempering", n_components=6, max_iter=0).fit(digits)
    x = 1 / est.temperatures_
    grid = 1 / np.geomspace(1, 10, 100)
    assert x[0] == pytest.approx(grid.mean())
    assert np.diff(x).min() > -1e-3
    assert x[-1] > 0.99
    assert len(x) == est.annealing_.n_passes == 100


def test_without_damping_tempering_jumps_to_one_at_once(digits):
    """Why there is damping: r is a point mass within a few updates."""
    est = mixture(VariationalTempering(damping=1.0), n_components=6, max_iter=0).fit(digits)
    assert est.temperatures_[5] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_stationary_temperature(covariance_type, rng):
    """T* = 1 + (2/D)(ℓ_ref − ℓ/N) maximises x ℓ − log C(x)."""
    X = MIXTURE.data(rng, 60)
    n, d = X.shape
    k = 3
    ctx, method, _ = run("tempering", X, covariance_type=covariance_type)
    covariance = np.cov(X.T)
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    elif covariance_type == "spherical":
        covariance = np.eye(d) * np.trace(covariance) / d
    log_det = -np.linalg.slogdet(covariance)[1]
    reference = -np.log(k) - 0.5 * d * np.log(2 * np.pi) + 0.5 * log_det - 0.5 * d
    for excess in (0.2, 1.0, 4.0):
        energy = n * (reference - excess)
        found = minimize_scalar(
            lambda x, e=energy: ctx.model.log_partition(np.array(x), ctx.summary, ctx.q) - x * e,
            bounds=(1e-3, 1.0),
            method="bounded",
            options={"xatol": 1e-10},
        ).x
        assert 1 / found == pytest.approx(1 + 2 / d * excess, rel=1e-5)


def test_minibatches_scale_the_energy_of_tempering(rng):
    X = MIXTURE.data(rng, 40)
    ctx, method, units = run("tempering", X)
    ctx.scale = 4.0
    seen = one_update(ctx, method, units.take(slice(10)))
    expected = method.posterior_probabilities(ctx, 4.0 * seen.step.energy)
    size = method.n_temperatures
    np.testing.assert_allclose(
        ctx.state["temperature_probabilities"],
        (1 - method.damping) / size + method.damping * expected,
        rtol=1e-12,
    )


# Variational tempering, local


@pytest.mark.parametrize("n_rounds", [1, 2, 4])
def test_local_temperatures_of_new_rows(n_rounds, rng):
    """In numpy: two rounds r ↔ q(z) from uniform r, at the fitted parameters."""
    X = MIXTURE.data(rng, 80)
    method = LocalVariationalTempering(n_temperatures=50, n_rounds=n_rounds, n_passes=3)
    est = mixture(method).fit(X)
    new = np.vstack([MIXTURE.data(rng, 30), [[60.0, -40.0, 10.0]]])
    ctx = context_of(est)
    rows = units_of(est, new).centered(ctx.summary)
    joint = ctx.model.log_joint(rows, ctx.model.expectations(ctx.q))
    x = np.arange(1, 51) / 50
    log_det = np.linalg.slogdet(np.cov(X.T))[1]
    log_c = 1.5 * ((1 - x) * np.log(2 * np.pi) - np.log(x)) + (1 - x) * (np.log(3) + 0.5 * log_det)
    mean = np.full(len(new), x.mean())
    for _ in range(n_rounds):
        energy = (softmax(mean[:, None] * joint, axis=1) * joint).sum(axis=1)
        mean = softmax(np.outer(energy, x) - log_c, axis=1) @ x
    found = est.inverse_temperatures(new)
    np.testing.assert_allclose(found, mean, rtol=1e-9)
    assert found.argmin() == len(new) - 1 and found[-1] == pytest.approx(1 / 50, rel=1e-3)
    assert ((found > 0) & (found <= 1)).all()


def test_only_local_tempering_has_inverse_temperatures(rng):
    X = MIXTURE.data(rng, 40)
    for name in ANNEALING:
        est = mixture(quick(name), max_iter=1)
        assert hasattr(est, "inverse_temperatures") == (name == "local_tempering")
        assert hasattr(est.fit(X), "inverse_temperatures") == (name == "local_tempering")


def test_local_tempering_records_the_mean_temperature(rng):
    X = MIXTURE.data(rng, 40)
    weights = rng.uniform(0.5, 2.0, 40)
    ctx, method, units = open_run(mixture(quick("local_tempering")), X, weights)
    x = visit_of(ctx, method, units).step(units).inverse_temperatures
    seen = one_update(ctx, method, units)
    assert seen.temperature == pytest.approx(np.average(1 / x, weights=weights), rel=1e-12)
