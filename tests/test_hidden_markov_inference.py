"""Tests of updates, bounds and predictions of hidden Markov models."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import pairwise, product

import numpy as np
import plain_hidden_markov as plain
import pytest
from cases_hidden_markov import (
    VARIANTS,
    D,
    V,
    all_emissions,
    all_variants,
    assert_parameters,
    assert_sound,
    draw,
    fitted,
    mean_logs,
    plain_state,
    run_of,
    sequence_weights,
    small,
    symbols,
    with_priors,
)
from designs import in_turn
from harness import Fixed, one_update, open_run, quick, units_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.families import Tempering
from sklearn_anneal.models._tempered_chains import Gaps

INVERSE_TEMPERATURES = (1.0, 0.4)


# Enumeration of all paths

TINY = ([5, 3, 1, 4], {0: [2], 3: [0, 3]})


@pytest.mark.parametrize("x", INVERSE_TEMPERATURES)
@all_variants
def test_local_step_is_the_sum_over_all_paths(variant, x, rng):
    """Log normalisers, statistics, energy and entropy, with missing frames and weights."""
    lengths, missing = TINY
    sequences = draw(variant, rng, lengths, missing)
    weights = [1.0, 2.0, 0.5, 3.0]
    est = with_priors(variant)
    ctx, _, units, emission, prior, q = run_of(est, sequences, weights)
    seen = one_update(ctx, Fixed(Tempering(x, x)), units)
    step = plain.local_step(emission, q, sequences, x, weights, find=plain.enumerated)
    assert seen.step.energy == pytest.approx(step.energy, rel=1e-10)
    assert seen.step.entropy == pytest.approx(step.entropy, rel=1e-9)
    log_norm = np.dot(weights, [paths.log_norm for paths in step.paths])
    assert x * seen.step.energy + seen.step.entropy == pytest.approx(log_norm, rel=1e-10)
    expected = plain.updated(emission, prior, sequences, step, x, weights)
    assert_parameters(plain_state(est, ctx)[2], expected)


@all_variants
def test_each_sequence_may_have_a_temperature(variant, rng):
    lengths, missing = TINY
    sequences = draw(variant, rng, lengths, missing)
    est = with_priors(variant)
    ctx, _, units, emission, prior, q = run_of(est, sequences)
    x = np.array([1.0, 0.3, 0.7, 0.01])
    seen = one_update(ctx, Fixed(Tempering(x, x)), units)
    steps = [
        plain.local_step(emission, q, [X], power, find=plain.enumerated)
        for X, power in zip(sequences, x, strict=True)
    ]
    assert seen.step.energy == pytest.approx(sum(s.energy for s in steps), rel=1e-10)
    assert seen.step.entropy == pytest.approx(sum(s.entropy for s in steps), rel=1e-9)
    # The factor x of the statistics of a sequence acts as its weight does.
    together = plain.Step([s.paths[0] for s in steps], *(
        sum(p * getattr(s, name) for p, s in zip(x, steps, strict=True))
        for name in ("start", "transition", "energy", "entropy")
    ))  # fmt: skip
    expected = plain.updated(emission, prior, sequences, together, 1.0, x)
    assert_parameters(plain_state(est, ctx)[2], expected)


@pytest.mark.parametrize("n_components", [1, 4])
@all_variants
def test_several_updates_are_the_plain_ones(variant, n_components, rng):
    sequences = draw(variant, rng, [9, 1, 7, 2, 4], {0: [0, 7], 2: slice(4, None), 1: [0]})
    weights = [1.0, 0.5, 2.0, 0.0, 1.0]
    est = with_priors(variant, n_components)
    ctx, method, units, emission, prior, q = run_of(est, sequences, weights)
    for _ in range(3):
        before = ctx.q
        seen = one_update(ctx, method, units)
        bound = seen.step.bound - ctx.model.kl(before, ctx.prior)
        assert bound == pytest.approx(
            plain.lower_bound(emission, q, prior, sequences, weights), rel=1e-10
        )
        q = plain.one_update(emission, q, prior, sequences, weights=weights)
        assert_parameters(plain_state(est, ctx)[2], q, rtol=1e-8)


@in_turn(
    gaps=([], [0], [2], [1, 2], [4], [0, 4], [0, 1, 2, 3, 4]), variant=("categorical", "bernoulli")
)
def test_log_partition_is_the_sum_over_paths_and_observations(variant, gaps, rng):
    """By enumeration; what is missing takes a state, and is not summed over."""
    sequences = draw(variant, rng, [7, 3, 9])
    est = small(variant).fit(sequences)
    ctx, _, _ = open_run(est, sequences)
    sequence = draw(variant, rng, [5], {0: gaps})
    x = np.array([0.3, 0.7, 1.0])
    found = ctx.model.unit_log_partition(x, ctx.summary, ctx.q).of(units_of(est, sequence))
    expected = ctx.model.expectations(ctx.q)
    every = np.arange(V)[:, None] if variant == "categorical" else list(product([0, 1], repeat=D))
    emission = ctx.model.log_density(units_of(est, np.array(every, dtype=float)), expected)
    sums = []
    for power in (*x, 1.0):
        paths = []
        for path in product(range(2), repeat=5):
            log_p = expected.startprob[path[0]]
            log_p += sum(expected.transmat[i, j] for i, j in pairwise(path))
            total = power * log_p
            for t, k in enumerate(path):
                if t not in gaps:
                    total += logsumexp(power * emission[:, k])
            paths.append(total)
        sums.append(logsumexp(paths))
    assert_allclose(found, [np.array(sums[:-1]) - x * sums[-1]], rtol=1e-9, atol=1e-9)
    # All data: by number of sequences, complete or not.
    weights = np.array([1.0, 1.0, 1.0, 2.0, 0.0])
    both, _, _ = open_run(est, sequences + sequence * 2, weights, q=ctx.q)
    whole = ctx.model.log_partition(x, ctx.summary, ctx.q) + 2 * found[0]
    assert_allclose(both.model.log_partition(x, both.summary, ctx.q), whole, rtol=1e-9, atol=1e-9)


def test_log_partition_of_long_sequences_is_that_of_all_their_frames(rng):
    """The growth by a frame settles after some, and goes on like that."""
    sequences = draw("categorical", rng, [400, 3])
    ctx, _, _ = open_run(small("categorical").fit(sequences), sequences)
    partition = ctx.model.unit_log_partition(np.array([0.3, 0.7, 1.0]), ctx.summary, ctx.q)
    assert len(partition.table) < 300
    no_gap = Gaps(np.array([0, 400]), np.zeros(400, np.int32), np.ones(1))
    found = partition.of_lengths(np.array([400]))
    assert_allclose(found, partition.of_gaps(no_gap), rtol=1e-9)


# Prediction


@all_variants
@pytest.mark.parametrize("predictive", [True, False])
def test_predictions_are_those_of_all_paths(predictive, variant, rng):
    est = fitted(variant, rng, 3, predictive=predictive)
    lengths, missing = TINY
    sequences = draw(variant, rng, lengths, missing)
    best = [plain.best_path(*mean_logs(est, X)) for X in sequences]
    paths = [plain.enumerated(*mean_logs(est, X)) for X in sequences]
    assert_array_equal(est.predict(sequences), np.concatenate([z for z, _ in best]))
    log_probability, states = est.decode(sequences)
    assert_array_equal(states, est.predict(sequences))
    assert log_probability == pytest.approx(sum(energy for _, energy in best), rel=1e-10)
    proba = np.concatenate([p.posteriors for p in paths])
    assert_allclose(est.predict_proba(sequences), proba, atol=1e-10)
    assert_array_equal(est.transform(sequences), est.predict_proba(sequences))
    found = est.score_sequences(sequences)
    assert_allclose(found, [p.log_norm for p in paths], rtol=1e-10)
    log_likelihood, posteriors = est.score_samples(sequences)
    assert log_likelihood == pytest.approx(found.sum(), rel=1e-12)
    assert_array_equal(posteriors, est.predict_proba(sequences))
    assert est.score(sequences) == pytest.approx(found.sum() / sum(lengths), rel=1e-12)


@pytest.mark.parametrize("form", ["one", "list", "lengths", "groups"])
def test_fit_predict_predicts_the_training_sequences(form, rng):
    sequences = draw("gaussian-full", rng, [12, 9])
    X = sequences if form == "list" else np.concatenate(sequences)
    how = {"lengths": {"lengths": [12, 9]}, "groups": {"groups": np.repeat(["b", "a"], [12, 9])}}
    how = how.get(form, {})
    weights = np.repeat([2.0, 2.0], [12, 9])
    found = small(n_components=3).fit_predict(X, sample_weight=weights, **how)
    again = small(n_components=3).fit(X, sample_weight=weights, **how).predict(X, **how)
    assert_array_equal(found, again)


def test_viterbi_is_not_the_sequence_of_the_most_probable_states(rng):
    """Where the most probable states do not make a path; else the tests above tell little."""
    est = fitted("categorical", rng, 3)
    differing = 0
    for _ in range(30):
        X = rng.integers(V, size=(6, 1))
        differing += np.any(est.predict(X) != est.predict_proba(X).argmax(axis=1))
    assert differing


def test_weighted_score_is_the_weighted_mean_over_frames(rng):
    est, sequences = fitted("gaussian-full", rng), draw("gaussian-full", rng, [4, 7, 2])
    weights = np.array([1.0, 0.0, 2.5])
    expected = weights @ est.score_sequences(sequences) / (weights @ [4, 7, 2])
    found = est.score(sequences, sample_weight=sequence_weights(weights, sequences))
    assert found == pytest.approx(expected, rel=1e-12)


@all_emissions
def test_sample_has_the_frequencies_of_the_model(variant, rng):
    est = fitted(variant, rng, 3)
    n = 6000
    X, states = est.sample(n)
    assert X.shape == (n, 1 if variant == "categorical" else D)
    assert states.shape == (n,)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (states[:-1], states[1:]), 1)
    assert_allclose(pairs / pairs.sum(axis=1, keepdims=True), est.transmat_, atol=0.04)
    for k in range(3):
        frames = X[states == k]
        error = 5 / np.sqrt(len(frames))
        if variant == "categorical":
            found = np.bincount(frames[:, 0].astype(int), minlength=V) / len(frames)
            assert_allclose(found, est.emissionprob_[k], atol=error)
        elif variant == "bernoulli":
            assert_allclose(frames.mean(axis=0), est.emissionprob_[k], atol=error)
        elif variant == "poisson":
            scale = np.sqrt(est.lambdas_[k])
            assert_allclose((frames.mean(axis=0) - est.lambdas_[k]) / scale, 0, atol=error)
        else:
            scale = np.sqrt(np.diag(est.covars_[k]))
            assert_allclose((frames.mean(axis=0) - est.means_[k]) / scale, 0, atol=error)
            assert_allclose(np.cov(frames.T), est.covars_[k], atol=0.1 * est.covars_[k].max())
    for one, other in zip(est.sample(300), est.sample(300), strict=True):
        assert_array_equal(one, other)
    starts = Counter(int(clone_with_seed(est, seed).sample(1)[1][0]) for seed in range(200))
    found = np.array([starts[k] for k in range(3)]) / 200
    assert_allclose(found, est.startprob_, atol=0.13)
    assert np.isfinite(est.score(X))


def clone_with_seed(est, seed):
    return pickle.loads(pickle.dumps(est)).set_params(random_state=seed)


# Extreme data


@in_turn(variant=VARIANTS, annealing=("none", "deterministic", "stochastic"))
def test_a_state_that_dies_gets_its_prior_back(variant, annealing, rng):
    sequences = draw(variant, rng, [12, 8])
    n_states = 18 if variant == "gaussian-tied" else 12
    est = small(variant, n_states, annealing=annealing, max_iter=300, tol=1e-12)
    if variant == "categorical":
        est.set_params(emissionprob_prior=1.0)
    est.fit(sequences)
    assert_sound(est, sequences)
    prior, q = (plain.parameters_of(est, which) for which in ("prior", "posterior"))
    arrivals = (q.transition - prior.transition).sum(axis=0) + q.start - prior.start
    dead = np.flatnonzero(arrivals < 1e-6)
    assert len(dead), "every state is in use: the test tests nothing"
    assert est.n_effective_components_ <= n_states - len(dead)
    assert_allclose(q.transition[dead], prior.transition[dead], rtol=1e-4)
    for key, value in q.emission.items():
        if variant == "gaussian-tied" and key in ("inverse_scale", "dof"):
            continue  # shared with the living
        assert_allclose(value[dead], prior.emission[key][dead], rtol=1e-3, atol=1e-3, err_msg=key)


@in_turn(annealing=ANNEALING, variant=("gaussian-full", "categorical", "poisson", "bernoulli"))
def test_constant_data(variant, annealing):
    if variant == "poisson" and "tempering" in annealing:
        pytest.skip("refused")
    value = {"categorical": [[2.0]], "gaussian-full": [[3.0, -4.0]]}.get(variant, [[1.0, 0.0]])
    sequences = [np.repeat(value, n, axis=0) for n in (10, 1, 5)]
    est = small(variant, 3, annealing=quick(annealing), effort=0)
    if variant == "gaussian-full":
        with pytest.raises(ValueError, match="scale_prior.*reg_covar"):
            est.fit(sequences)
        est.set_params(scale_prior=np.eye(2), reg_covar=1e-6)
    assert_sound(est.fit(sequences), sequences)


@pytest.mark.parametrize("tiny", [1e-5, 1e-100, 1e-300])
def test_probabilities_near_zero(tiny, rng):
    """Symbols and transitions that were never seen, of prior weight next to nothing."""
    est = small("categorical", n_symbols=4, emissionprob_prior=tiny, transmat_prior=tiny)
    train = symbols([0, 1] * 10, [0, 0, 1, 1])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        est.fit(train)
        test = symbols([3, 0, 3, 3, 1], [2], [1, 1, 1, 2])
        found = est.score_sequences(test)
    assert_sound(est, test)
    expected = [plain.forward_backward(*mean_logs(est, X[:, None])).log_norm for X in test]
    assert_allclose(found, expected, rtol=1e-10)
    assert np.all(found < np.log(tiny))
    paths = [plain.best_path(*mean_logs(est, X[:, None])) for X in test]
    assert est.decode(test)[0] == pytest.approx(sum(energy for _, energy in paths), rel=1e-10)


def test_frames_far_from_every_state(rng):
    """Densities that underflow: e^-1e6 per frame, in scaled recursions and in logarithms."""
    est = fitted("gaussian-full", rng, 3, predictive=False)
    X = np.array([[5.0, 5.0], [3000.0, -2000.0], [4.0, 4.0], [-5000.0, 0.0]])
    paths = plain.forward_backward(*mean_logs(est, X))
    assert paths.log_norm < -1e6
    assert est.score_sequences(X)[0] == pytest.approx(paths.log_norm, rel=1e-10)
    assert_allclose(est.predict_proba(X), paths.posteriors, atol=1e-8)
    # A predictive density knows that states of few frames may lie elsewhere, or be wider.
    paths = plain.forward_backward(*mean_logs(est.set_params(predictive=True), X))
    assert est.score_sequences(X)[0] == pytest.approx(paths.log_norm, rel=1e-10)
    assert paths.log_norm > -1e3
