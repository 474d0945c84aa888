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
def test_a_missing_frame_leaves_the_path_alone(name, rng):
    emission, q = EMISSIONS[name], random_q(name, rng)
    X = frames(name, rng, 5, missing=[2])
    log_emission = emission.expected_log_density(q.emission, X)
    assert np.all(log_emission[2] == 0)
    assert np.all(log_emission[[0, 1, 3, 4]] != 0)
    # From frame 1 to frame 3 in two steps, without anything in between.
    start, transition = plain.expected_log(q.start), plain.expected_log(q.transition)
    forward = np.exp(start + log_emission[0]) @ np.exp(transition) * np.exp(log_emission[1])
    forward = forward @ np.exp(transition) @ np.exp(transition) * np.exp(log_emission[3])
    forward = forward @ np.exp(transition) * np.exp(log_emission[4])
    found = plain.forward_backward(start, transition, log_emission)
    assert found.log_norm == pytest.approx(np.log(forward.sum()), rel=1e-12)


@all_emissions
def test_statistics_have_no_share_of_missing_frames(name, rng):
    emission, prior = EMISSIONS[name], priors(name)
    X = frames(name, rng, 6, missing=[1, 5])
    weights = rng.dirichlet(np.ones(K), size=6)
    seen = [0, 2, 3, 4]
    found = emission.update(prior.emission, X, weights)
    expected = emission.update(prior.emission, X[seen], weights[seen])
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12)


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


EXACT = [n for n in EMISSIONS if n not in ("gaussian-diag", "gaussian-spherical")]


@pytest.mark.parametrize("name", EXACT)
def test_bound_of_one_state_is_the_evidence(name, rng):
    emission, prior = EMISSIONS[name], priors(name, 1)
    sequences = [frames(name, rng, 3), frames(name, rng, 2, missing=[1]), frames(name, rng, 1)]
    q = plain.one_update(emission, prior, prior, sequences)
    bound = plain.lower_bound(emission, q, prior, sequences)
    assert bound == pytest.approx(plain.log_evidence(emission, prior, sequences), rel=1e-12)


@all_emissions
def test_bound_rises_to_a_value_below_the_evidence(name, rng):
    emission, prior = EMISSIONS[name], priors(name)
    sequences = [frames(name, rng, 4), frames(name, rng, 3, missing=[1]), frames(name, rng, 1)]
    evidence = plain.log_evidence(emission, prior, sequences)
    q = random_q(name, rng)
    bounds = []
    for _ in range(30):
        bounds.append(plain.lower_bound(emission, q, prior, sequences))
        q = plain.one_update(emission, q, prior, sequences)
    assert np.diff(bounds).min() >= -1e-10
    assert bounds[-1] > bounds[0] + 0.1
    assert evidence - 10 < bounds[-1] < evidence


@all_emissions
def test_tempered_updates_ascend_the_tempered_bound(name, rng):
    """x energy + entropy − KL, of the likelihood form."""
    emission, prior, x = EMISSIONS[name], priors(name), 0.4
    sequences = [frames(name, rng, 8), frames(name, rng, 5)]
    q, bounds = random_q(name, rng), []
    for _ in range(20):
        step = plain.local_step(emission, q, sequences, x)
        bounds.append(x * step.energy + step.entropy - plain.kl(emission, q, prior))
        q = plain.updated(emission, prior, sequences, step, x)
    assert np.diff(bounds).min() >= -1e-10
    assert bounds[-1] > bounds[0] + 0.1


@all_emissions
def test_kl_is_zero_at_the_prior_and_positive_elsewhere(name, rng):
    emission, prior = EMISSIONS[name], priors(name)
    assert plain.kl(emission, prior, prior) == pytest.approx(0, abs=1e-12)
    assert plain.kl(emission, random_q(name, rng), prior) > 0.1


@all_emissions
def test_weights_are_numbers_of_sequences(name, rng):
    emission, prior, q = EMISSIONS[name], priors(name), random_q(name, rng)
    sequences = [frames(name, rng, n) for n in (4, 3, 2)]
    weighted = plain.one_update(emission, q, prior, sequences, weights=[2, 0, 1])
    repeated = plain.one_update(emission, q, prior, [sequences[0], sequences[0], sequences[2]])
    for part in ("start", "transition"):
        np.testing.assert_allclose(getattr(weighted, part), getattr(repeated, part))
    for key, value in repeated.emission.items():
        np.testing.assert_allclose(weighted.emission[key], value)
    assert plain.lower_bound(emission, q, prior, sequences, [2, 0, 1]) == pytest.approx(
        plain.lower_bound(emission, q, prior, [sequences[0], sequences[0], sequences[2]])
    )


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


def test_score_of_given_parameters_is_that_of_hmmlearn(rng):
    hmm = pytest.importorskip("hmmlearn.hmm")
    model = hmm.CategoricalHMM(2)
    model.startprob_ = np.array([0.3, 0.7])
    model.transmat_ = np.array([[0.9, 0.1], [0.4, 0.6]])
    model.emissionprob_ = rng.dirichlet(np.ones(V), size=2)
    X = rng.integers(0, V, size=30)
    found = plain.forward_backward(
        np.log(model.startprob_), np.log(model.transmat_), np.log(model.emissionprob_[:, X]).T
    )
    assert found.log_norm == pytest.approx(model.score(X[:, None]), rel=1e-10)
    np.testing.assert_allclose(found.posteriors, model.predict_proba(X[:, None]), atol=1e-10)
