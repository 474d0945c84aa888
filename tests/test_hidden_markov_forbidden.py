"""Hidden Markov models whose prior forbids starts and transitions, which stay impossible."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import plain_hidden_markov as plain
import pytest
from cases_hidden_markov import (
    all_variants,
    assert_parameters,
    draw,
    plain_state,
    run_of,
    small,
    with_priors,
)
from designs import in_turn
from harness import Fixed, one_update, quick
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_anneal import AnnealedHMM
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.families import Tempering

START = np.array([0.6, 0.0, 0.9])
TRANSITIONS = np.array([[0.5, 0.8, 0.0], [0.0, 0.4, 0.7], [0.3, 0.0, 1.1]])
FORBIDDEN = {"n_components": 3, "startprob_prior": START, "transmat_prior": TRANSITIONS}
LEFT_TO_RIGHT = {
    "n_components": 3,
    "startprob_prior": [1.0, 0.0, 0.0],
    "transmat_prior": np.triu(np.ones((3, 3))),
}
TINY = ([5, 3, 1, 4], {0: [2], 3: [0, 3]})


def assert_obeys(est, sequences=()):
    """No forbidden start or transition has any probability, is predicted or is drawn."""
    start, transitions = (np.asarray(p) > 0 for p in (est.startprob_prior, est.transmat_prior))
    assert_array_equal(est.startprob_ > 0, start)
    assert_array_equal(est.transmat_ > 0, transitions)
    assert_array_equal(est.transmat_posterior_ > 0, transitions)
    assert_allclose(est.transmat_.sum(axis=1), 1.0)
    assert np.isfinite(est.lower_bound_)
    paths = [est.predict(X) for X in sequences] + [est.sample(300)[1]]
    for path in paths:
        assert start[path[0]]
        assert all(transitions[a, b] for a, b in pairwise(path))
    for X in sequences:
        assert est.decode(X)[0] > -1e6
        assert not est.predict_proba(X)[0, ~start].any()


@pytest.mark.parametrize("x", [1.0, 0.4])
@all_variants
def test_local_step_and_update_are_those_of_the_allowed_paths(variant, x, rng):
    lengths, missing = TINY
    sequences, weights = draw(variant, rng, lengths, missing), [1.0, 2.0, 0.5, 3.0]
    est = with_priors(variant, **FORBIDDEN, sticky=0.0)
    ctx, _, units, emission, prior, q = run_of(est, sequences, weights)
    seen = one_update(ctx, Fixed(Tempering(x, x)), units)
    step = plain.local_step(emission, q, sequences, x, weights, find=plain.enumerated)
    assert seen.step.energy == pytest.approx(step.energy, rel=1e-10)
    assert seen.step.entropy == pytest.approx(step.entropy, rel=1e-9, abs=1e-12)
    expected = plain.updated(emission, prior, sequences, step, x, weights)
    assert_parameters(plain_state(est, ctx)[2], expected)


@in_turn(annealing=ANNEALING, batch_size=[None, 3])
def test_every_method_leaves_out_what_is_forbidden(annealing, batch_size, rng):
    sequences = draw("gaussian-diag", rng, [12] * 6, {1: [0, 5]})
    how = {"annealing": quick(annealing), "batch_size": batch_size, "max_iter": 4}
    est = small("gaussian-diag", **LEFT_TO_RIGHT, **how)
    assert_obeys(est.fit(sequences), sequences)


@pytest.mark.parametrize("annealing", ["none", "deterministic", "stochastic", "structured"])
def test_streams_leave_out_what_is_forbidden(annealing, rng):
    sequences = draw("categorical", rng, [9] * 12)
    est = small("categorical", **LEFT_TO_RIGHT, annealing=annealing, total_samples=12)
    for start in range(0, 12, 3):
        est.partial_fit(sequences[start : start + 3])
        assert_obeys(est, sequences)
    assert_obeys(pickle.loads(pickle.dumps(est)), sequences)


def test_left_to_right_model_finds_the_segments(rng):
    truth = [np.repeat([0, 1, 2], rng.integers(5, 20, size=3)) for _ in range(10)]
    sequences = [4.0 * z[:, None] + rng.standard_normal((len(z), 1)) for z in truth]
    est = AnnealedHMM(**LEFT_TO_RIGHT, random_state=0).fit(sequences)
    found = [est.predict(X) for X in sequences]
    assert np.mean(np.concatenate(found) == np.concatenate(truth)) > 0.95
    assert_obeys(est, sequences)


def test_a_single_allowed_transition_is_certain(rng):
    """Rows of a cycle have nothing to infer, and no term in the divergence."""
    sequences = draw("categorical", rng, [7, 8])
    cycle = np.roll(np.eye(3), 1, axis=1)
    est = small("categorical", 3, startprob_prior=[1, 0, 0], transmat_prior=cycle)
    est.fit(sequences)
    assert_array_equal(est.transmat_, cycle)
    assert_array_equal(est.predict(sequences[0]), np.arange(7) % 3)
    assert est._context().model.n_parameters == 3 * (est.n_symbols_ - 1)


def test_sticky_allows_staying(rng):
    X = draw("categorical", rng, [20])[0]
    est = small("categorical", 3, transmat_prior=np.roll(np.eye(3), 1, axis=1), sticky=2.0).fit(X)
    assert_array_equal(est.transmat_ > 0, np.eye(3) + np.roll(np.eye(3), 1, axis=1) > 0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"startprob_prior": [0.0, 0.0]}, "All entries of the parameter 'startprob_prior'"),
        ({"transmat_prior": [[1.0, 1.0], [0.0, 0.0]]}, "row 1 of the parameter 'transmat_prior'"),
        ({"transmat_prior": [[1.0, -1.0], [0.0, 1.0]]}, "0 where it forbids something, but got -1"),
        ({"transmat_prior": 0.0}, "transmat_prior"),
        ({"transmat_prior": np.zeros(2)}, "row 0 of the parameter 'transmat_prior'"),
        ({"emissionprob_prior": [0.0, 1.0, 1.0, 1.0, 1.0]}, "'emissionprob_prior' should be"),
    ],
)
def test_priors_that_forbid_everything_are_refused(params, message, rng):
    with pytest.raises(ValueError, match=message):
        small("categorical", 2, **params).fit(draw("categorical", rng, [8]))


def test_chains_in_one_order_start_from_segments(rng):
    means = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    sequences = [
        means[np.repeat(range(3), [5 + i, 6, 9 - i])] + rng.normal(size=(20, 2)) for i in range(4)
    ]
    auto = small(**LEFT_TO_RIGHT, max_iter=0).fit(sequences)
    given = small(**LEFT_TO_RIGHT, max_iter=0, init_params="segments").fit(sequences)
    assert_array_equal(auto.means_, given.means_)
    # Frames are in one segment per state, whose lengths chance decides.
    firsts = auto.startprob_posterior_
    assert firsts[0] == pytest.approx(4 + 1) and (firsts[1:] == 0).all()
    assert (np.diag(auto.transmat_, 1) > 0).all()
    fit = small(**LEFT_TO_RIGHT, max_iter=60).fit(sequences)
    assert np.abs(fit.means_ - means).max() < 1.0
    other = small(n_components=3, max_iter=0).fit(sequences)
    kmeans = small(n_components=3, max_iter=0, init_params="kmeans").fit(sequences)
    assert_array_equal(other.means_, kmeans.means_)


def test_segments_leave_known_states_as_they_are(rng):
    X = rng.normal(size=(12, 2))
    states = np.full(12, -1)
    states[[2, 3]] = 2
    fit = small(**LEFT_TO_RIGHT, max_iter=5).fit(X, states=states)
    assert np.isfinite(fit.lower_bound_)
    # The ten frames from the first known one on are in the last state, which has no way back.
    assert fit.dof_posterior_[2] - fit.dof_prior_[2] >= 10.0 - 1e-9
