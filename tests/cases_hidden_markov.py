"""Helpers that the modules test_hidden_markov_*.py share: data, estimators, comparisons."""

from __future__ import annotations

import numpy as np
import plain_hidden_markov as plain
import pytest
from harness import attributes_of, context_of, open_run
from numpy.testing import assert_allclose, assert_array_equal
from peer_priors import PEER_OF_SEQUENCES

from sklearn_anneal import AnnealedHMM

V, D = 5, 2
COVARIANCE_TYPES = ("full", "diag", "spherical", "tied")
VARIANTS = {
    "categorical": {"emission": "categorical", "n_symbols": V},
    "bernoulli": {"emission": "bernoulli"},
    "poisson": {"emission": "poisson"},
    **{f"gaussian-{t}": {"covariance_type": t} for t in COVARIANCE_TYPES},
}
ONE_OF_EACH = ("categorical", "bernoulli", "poisson", "gaussian-full")
GIVEN_PRIORS = {
    "categorical": {"emissionprob_prior": [0.3, 0.6, 0.2, 1.1, 0.5]},
    "bernoulli": {"emissionprob_prior": 0.7},
    "poisson": {"lambdas_prior": 1.3, "lambdas_weight": [0.4, 0.8]},
    "gaussian": {"means_prior": [4.0, 5.5], "beta_prior": 0.6, "dof_prior": 3.5},
}

all_variants = pytest.mark.parametrize("variant", VARIANTS)
all_emissions = pytest.mark.parametrize("variant", ONE_OF_EACH)


def draw_states(rng, length, k=3, stay=0.8):
    """Draw a chain of states that stays in its state with probability ``stay``."""
    states = np.empty(length, dtype=int)
    states[0] = rng.integers(k)
    for t in range(1, length):
        states[t] = states[t - 1] if rng.random() < stay else rng.integers(k)
    return states


def draw(variant, rng, lengths, missing=None):
    """Draw sequences of three states; ``missing`` maps a sequence to its missing frames."""
    sequences = []
    for length in lengths:
        z = draw_states(rng, length)
        if variant == "categorical":
            usual = rng.random(length) < 0.7
            X = np.where(usual, z, rng.integers(V, size=length)).astype(float)[:, None]
        elif variant == "bernoulli":
            p = np.array([[0.9, 0.1], [0.2, 0.9], [0.1, 0.2]])
            X = (rng.random((length, D)) < p[z]).astype(float)
        elif variant == "poisson":
            X = rng.poisson(np.array([[1.0, 8.0], [6.0, 2.0], [15.0, 15.0]])[z]).astype(float)
        else:
            centers = np.array([[4.0, 4.0], [6.0, 5.0], [5.0, 8.0]])
            X = centers[z] + rng.standard_normal((length, D)) * [0.5, 0.8]
        sequences.append(X)
    for i, frames in (missing or {}).items():
        sequences[i][frames] = -1.0 if variant == "categorical" else np.nan
    return sequences


def small(variant="gaussian-full", n_components=2, **params):
    settings = {"annealing": "none", "random_state": 0, "max_iter": 8, "reg_covar": 0.0}
    settings |= PEER_OF_SEQUENCES | VARIANTS[variant]
    return AnnealedHMM(n_components, **(settings | params))


def with_priors(variant, n_components=2, **params):
    """Parameters that give every prior, asymmetric where this is possible."""
    given = {
        "startprob_prior": np.linspace(0.5, 1.0, n_components),
        "transmat_prior": 0.4 + 0.1 * np.arange(n_components**2).reshape(n_components, -1),
        "sticky": 0.7,
        **GIVEN_PRIORS[variant.split("-")[0]],
    }
    if variant.startswith("gaussian"):
        full = np.array([[1.2, 0.3], [0.3, 0.8]])
        given["scale_prior"] = {
            "full": full,
            "tied": full,
            "diag": np.diag(full),
            "spherical": 0.9,
        }[VARIANTS[variant]["covariance_type"]]
    return small(variant, n_components, **(given | params))


def sequence_weights(weights, sequences):
    """Repeat the weight of each sequence for each of its rows."""
    return None if weights is None else np.repeat(weights, [len(X) for X in sequences])


def run_of(est, sequences, weights=None):
    """The result of ``open_run``, with the plain emission, prior and q at the start."""
    given = weights if weights is None else np.array(weights)
    ctx, method, units = open_run(est, sequences, given)
    return ctx, method, units, *plain_state(est, ctx)


def plain_state(est, ctx):
    attributes = attributes_of(est, ctx)
    prior, q = (plain.parameters_of(est, which, attributes) for which in ("prior", "posterior"))
    return plain.emission_of(est), prior, q


def assert_parameters(found, expected, rtol=1e-9):
    assert_allclose(found.start, expected.start, rtol=rtol)
    assert_allclose(found.transition, expected.transition, rtol=rtol)
    assert found.emission.keys() == expected.emission.keys()
    for key, value in expected.emission.items():
        assert_allclose(
            found.emission[key], value, rtol=rtol, atol=rtol * np.abs(value).max(), err_msg=key
        )


def fitted(variant, rng, n_components=2, **params):
    est = with_priors(variant, n_components, **params)
    return est.fit(draw(variant, rng, [20, 15, 1]))


def discounted(est, q):
    """The posterior of an emission, of whose frames each counts 1 / ``est.design_effect_``."""
    if est.design_effect_ == 1.0:
        return q
    prior, emission = plain.parameters_of(est, "prior").emission, plain.emission_of(est)

    def outer(p):
        return emission.project(np.einsum("k,ki,kj->kij", p["beta"], p["mean"], p["mean"]))

    def between(one, other):
        return one + (other - one) / est.design_effect_

    beta, dof = (between(prior[key], q[key]) for key in ("beta", "dof"))
    sums = between(*(p["beta"][:, None] * p["mean"] for p in (prior, q)))
    found = {"beta": beta, "dof": dof, "mean": sums / beta[:, None]}
    scatter = between(*(p["inverse_scale"] + outer(p) for p in (prior, q)))
    return found | {"inverse_scale": scatter - outer(found)}


def mean_logs(est, X):
    """log π and log A at the posterior means, and log p(x | z) of one sequence.

    The last one is that at the posterior means, or the log marginal density of each frame alone,
    as ``est.predictive`` says.
    """
    q, emission = plain.parameters_of(est), plain.emission_of(est)
    density = emission.log_density(q.emission, X)
    if est.predictive:
        q = q._replace(emission=discounted(est, q.emission))
        for t in np.flatnonzero(density.any(axis=1)):  # a missing frame has the density 1
            for k in range(density.shape[1]):
                density[t, k] = emission.log_marginal(q.emission, k, X[t : t + 1])
    return (
        np.log(q.start / q.start.sum()),
        np.log(q.transition / q.transition.sum(axis=1, keepdims=True)),
        density,
    )


def assert_same_fit(one, other):
    assert_array_equal(one.lower_bounds_, other.lower_bounds_)
    q = context_of(other).q
    for key, value in context_of(one).q.items():
        assert_array_equal(value, q[key], err_msg=key)
    assert one.n_sequences_ == other.n_sequences_


def symbols(*sequences):
    return [np.array(s, dtype=int) for s in sequences]


READERS = ("predict", "predict_proba", "transform", "score", "score_sequences", "decode",
           "predict_next")  # fmt: skip


def assert_sound(est, sequences):
    for name, value in vars(est).items():
        # Some methods evaluate the bound only every few passes.
        if name.endswith("_") and name != "lower_bounds_" and isinstance(value, np.ndarray):
            assert np.all(np.isfinite(value)), name
    assert np.isfinite(est.lower_bound_)
    assert not np.any(np.isinf(est.lower_bounds_))
    assert np.all(np.isfinite(est.score_sequences(sequences)))
    assert_allclose(est.predict_proba(sequences).sum(axis=1), 1)
    assert est.startprob_.sum() == pytest.approx(1)
    assert_allclose(est.transmat_.sum(axis=1), 1)
