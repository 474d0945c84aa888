"""The plain hidden Markov model itself, against enumeration, scipy and hmmlearn."""

from __future__ import annotations

import numpy as np
import plain_hidden_markov as plain
import pytest
from scipy.stats import bernoulli, multivariate_normal, multivariate_t, nbinom, poisson

K, D, V = 2, 2, 4
INVERSE_TEMPERATURES = (1.0, 0.4)
EMISSIONS = {
    "categorical": plain.Categorical(),
    "bernoulli": plain.Bernoulli(),
    "poisson": plain.Poisson(),
    **{f"gaussian-{t}": plain.Gaussian(t) for t in ("full", "diag", "spherical", "tied")},
}
all_emissions = pytest.mark.parametrize("name", EMISSIONS)


def frames(name, rng, n, missing=()):
    """A sequence of n frames; those of the index ``missing`` are missing."""
    if name == "categorical":
        X = rng.integers(0, V, size=n).astype(float)
        X[list(missing)] = -1
        return X
    X = {
        "bernoulli": lambda: rng.integers(0, 2, size=(n, D)).astype(float),
        "poisson": lambda: rng.poisson(3.0, size=(n, D)).astype(float),
    }.get(name, lambda: 5.0 + rng.standard_normal((n, D)) * [1.0, 2.0])()
    X[list(missing)] = np.nan
    return X


def priors(name, k=K):
    """Informative ones, different for every state and coordinate where the family allows it."""
    start = np.linspace(0.4, 1.3, k)
    transition = 0.3 + np.eye(k) + 0.1 * np.arange(k)
    if name == "categorical":
        own = {"emissionprob": 0.2 + 0.1 * np.arange(k * V).reshape(k, V)}
    elif name == "bernoulli":
        own = {"a": 0.5 + np.arange(k * D).reshape(k, D), "b": np.full((k, D), 1.5)}
    elif name == "poisson":
        own = {"shape": 1.0 + np.arange(k * D).reshape(k, D), "rate": np.full((k, D), 0.7)}
    else:
        emission = EMISSIONS[name]
        scale = np.array([[2.0, 0.3], [0.3, 1.0]]) * np.linspace(1.0, 2.0, k)[:, None, None]
        own = {
            "mean": np.linspace(4.0, 6.0, k * D).reshape(k, D),
            "beta": np.linspace(0.5, 1.0, k),
            "inverse_scale": emission.project(scale),
            "dof": np.full(k, 3.5),
        }
    return plain.Parameters(start, transition, own)


def random_q(name, rng, k=K):
    """A q that some responsibilities lead to."""
    prior, X = priors(name, k), frames(name, rng, 20)
    weights = rng.dirichlet(np.ones(k), size=20)
    return plain.Parameters(
        rng.gamma(1.0, size=k) + 0.2,
        rng.gamma(1.0, size=(k, k)) + 0.2,
        EMISSIONS[name].update(prior.emission, X, weights),
    )


def assert_paths(found, expected):
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("x", INVERSE_TEMPERATURES)
@pytest.mark.parametrize("n", [1, 2, 6])
def test_forward_backward_is_the_sum_over_all_paths(n, x, rng):
    start, transition = np.log(rng.dirichlet(np.ones(3))), np.log(rng.dirichlet(np.ones(3), 3))
    emission = 3 * rng.standard_normal((n, 3)) - 1
    found = plain.forward_backward(start, transition, emission, x)
    assert_paths(found, plain.enumerated(start, transition, emission, x))
    np.testing.assert_allclose(found.posteriors.sum(axis=1), 1)
    assert found.transitions.sum() == pytest.approx(n - 1)


def test_enumeration_counts_a_chain_of_two_by_hand():
    start, transition = np.log([0.3, 0.7]), np.log([[0.9, 0.1], [0.4, 0.6]])
    emission = np.log([[0.5, 0.2], [0.1, 0.8]])
    p = np.array([[0.3 * 0.5 * 0.9 * 0.1, 0.3 * 0.5 * 0.1 * 0.8],
                  [0.7 * 0.2 * 0.4 * 0.1, 0.7 * 0.2 * 0.6 * 0.8]])  # fmt: skip
    found = plain.enumerated(start, transition, emission)
    assert found.log_norm == pytest.approx(np.log(p.sum()))
    np.testing.assert_allclose(found.transitions, p / p.sum())
    np.testing.assert_allclose(found.posteriors, [(p / p.sum()).sum(1), (p / p.sum()).sum(0)])
    path, energy = plain.best_path(start, transition, emission)
    assert path.tolist() == [1, 1]
    assert energy == pytest.approx(np.log(p.max()))


@all_emissions
def test_marginal_likelihood_of_one_frame_is_the_known_predictive(name, rng):
    emission, prior = EMISSIONS[name], priors(name)
    p, k = prior.emission, 1
    X = frames(name, rng, 1)
    if name == "categorical":
        row = p["emissionprob"][k]
        expected = np.log(row[int(X[0])] / row.sum())
    elif name == "bernoulli":
        mean = p["a"][k] / (p["a"][k] + p["b"][k])
        expected = np.log(np.where(X[0] == 1, mean, 1 - mean)).sum()
    elif name == "poisson":
        rate = p["rate"][k]
        expected = nbinom.logpmf(X[0], p["shape"][k], rate / (rate + 1)).sum()
    else:
        dof = p["dof"][k] - D + 1
        scale = p["inverse_scale"][k] * (p["beta"][k] + 1) / (p["beta"][k] * dof)
        expected = multivariate_t(p["mean"][k], scale, df=dof).logpdf(X[0])
    assert emission.log_marginal(p, k, X) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [n for n in EMISSIONS if n not in ("gaussian-diag",
                                  "gaussian-spherical", "gaussian-tied")])  # fmt: skip
def test_marginal_likelihood_obeys_the_chain_rule(name, rng):
    """p(x_1, …, x_n) = Π p(x_t | x_1 … x_t−1), where the posterior is in the family."""
    emission, p = EMISSIONS[name], priors(name, 1).emission
    X = frames(name, rng, 6)
    total, q = 0.0, p
    for t in range(6):
        total += emission.log_marginal(q, 0, X[t : t + 1])
        q = emission.update(q, X[t : t + 1], np.ones((1, 1)))
    assert emission.log_marginal(p, 0, X) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("name", ["categorical", "bernoulli", "poisson", "gaussian-full"])
def test_plugged_in_density_is_that_of_the_mean_parameters(name, rng):
    """By scipy or by hand; of the Gaussian the precision is the mean one."""
    emission, q, X = EMISSIONS[name], random_q(name, rng), frames(name, rng, 5)
    p = q.emission
    found = emission.log_density(p, X)
    for k in range(K):
        if name == "categorical":
            row = p["emissionprob"][k]
            expected = np.log((row / row.sum())[X.astype(int)])
        elif name == "bernoulli":
            expected = bernoulli(p["a"][k] / (p["a"][k] + p["b"][k])).logpmf(X).sum(axis=1)
        elif name == "poisson":
            expected = poisson(p["shape"][k] / p["rate"][k]).logpmf(X).sum(axis=1)
        else:
            covariance = p["inverse_scale"][k] / p["dof"][k]
            expected = multivariate_normal(p["mean"][k], covariance).logpdf(X)
        np.testing.assert_allclose(found[:, k], expected, rtol=1e-10)
