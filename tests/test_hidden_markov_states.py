"""Fits of hidden Markov models in which the states of some frames are known."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import plain_hidden_markov as plain
import pytest
from cases_hidden_markov import (
    all_variants,
    assert_parameters,
    assert_same_fit,
    draw,
    plain_state,
    small,
    with_priors,
)
from designs import in_turn
from harness import Fixed, context_of, make_threads_worthwhile, one_update, open_run, quick
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, GroupKFold

from sklearn_anneal import AnnealedHMM, concat_sequences
from sklearn_anneal.annealing import ANNEALING
from sklearn_anneal.data.units import Sequences
from sklearn_anneal.families import Tempering
from sklearn_anneal.models._known_states import add_known_moves
from sklearn_anneal.models._tempered_chains import Gaps

TINY = ([5, 3, 1, 4], {0: [2], 3: [0, 3]})
KNOWN = [np.array(z) for z in ([-1, 2, 0, -1, -1], [-1, -1, -1], [1], [0, -1, -1, 2])]


def far_apart(rng, n_sequences=8, share=0.15, size=10):
    """Sequences of three states far from each other, the states, and a share of them."""
    truth = [np.repeat([2, 0, 1], rng.integers(3, size, size=3)) for _ in range(n_sequences)]
    X = [6.0 * z[:, None] + rng.standard_normal((len(z), 1)) for z in truth]
    return X, truth, [np.where(rng.random(len(z)) < share, z, -1) for z in truth]


def plain_step(emission, q, sequences, states, x=1.0, weights=None):
    """The local step over the paths that have the known states, by their enumeration."""
    given = iter(states)

    def find(log_start, log_transition, log_emission, x):
        z = next(given)
        others = (z >= 0)[:, None] & (z[:, None] != np.arange(len(log_start)))
        masked = np.where(others, plain.NEVER, log_emission)
        return plain.enumerated(log_start, log_transition, masked, x)

    return plain.local_step(emission, q, sequences, x, weights, find)


@pytest.mark.parametrize("x", [1.0, 0.4])
@all_variants
def test_local_step_is_the_sum_over_paths_with_the_known_states(variant, x, rng):
    sequences, weights = draw(variant, rng, *TINY), [1.0, 2.0, 0.5, 3.0]
    est = with_priors(variant, 3)
    ctx, _, units = open_run(est, est._data(sequences, None, None, None, KNOWN), np.array(weights))
    emission, prior, q = plain_state(est, ctx)
    seen = one_update(ctx, Fixed(Tempering(x, x)), units)
    step = plain_step(emission, q, sequences, KNOWN, x, weights)
    assert seen.step.energy == pytest.approx(step.energy, rel=1e-10)
    assert seen.step.entropy == pytest.approx(step.entropy, rel=1e-9, abs=1e-12)
    expected = plain.updated(emission, prior, sequences, step, x, weights)
    assert_parameters(plain_state(est, ctx)[2], expected)


@all_variants
def test_bound_is_that_of_frames_and_known_states_and_never_falls(variant, rng):
    sequences = draw(variant, rng, *TINY)
    est = with_priors(variant, 3, max_iter=20).fit(sequences, states=KNOWN)
    emission, prior, q = plain_state(est, est._context())
    step = plain_step(emission, q, sequences, KNOWN)
    bound = step.energy + step.entropy - plain.kl(emission, q, prior)
    assert est.lower_bound_ == pytest.approx(bound, rel=1e-10)
    assert (np.diff(est.lower_bounds_) > -1e-9 * abs(bound)).all()


@all_variants
def test_fit_with_all_states_known_is_exact(variant, rng):
    """Nothing is latent: counts are added to the priors, and the bound is the evidence."""
    sequences = draw(variant, rng, [5, 4], {1: [1]})
    states = [rng.integers(2, size=len(X)) for X in sequences]
    est = with_priors(variant, 2).fit(sequences, states=states)
    emission, prior, q = plain_state(est, est._context())
    pairs = [(a, b) for z in states for a, b in zip(z[:-1], z[1:], strict=True)]
    counts = np.zeros((2, 2))
    np.add.at(counts, tuple(np.transpose(pairs)), 1)
    assert_allclose(q.transition, prior.transition + counts)
    assert_allclose(q.start, prior.start + np.bincount([z[0] for z in states], minlength=2))
    shares = np.eye(2)[np.concatenate(states)]
    shares[~emission.observed(np.concatenate(sequences))] = 0.0
    expected = emission.update(prior.emission, np.concatenate(sequences), shares)
    for key, value in expected.items():
        assert_allclose(q.emission[key], value, err_msg=key)
    if variant not in ("gaussian-tied", "gaussian-diag", "gaussian-spherical"):
        # The restricted scales of those are no family that contains the posterior.
        evidence = plain.log_evidence(emission, prior, sequences, states)
        assert est.lower_bound_ == pytest.approx(evidence, rel=1e-9)


@in_turn(annealing=ANNEALING, batch_size=(None, 3))
def test_states_have_the_numbers_of_the_user(annealing, batch_size, rng):
    X, truth, known = far_apart(rng)
    names = np.array([1, 2, 0])
    est = small("gaussian-diag", 3, annealing=quick(annealing, 8), batch_size=batch_size, effort=0)
    est.fit(X, states=[np.where(z >= 0, names[z], -1) for z in known])
    assert_allclose(est.means_[names, 0], [0.0, 6.0, 12.0], atol=1.0)
    assert_array_equal(est.predict(X), names[np.concatenate(truth)])


@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_a_few_known_states_order_the_start(init_params, rng):
    X, truth, known = far_apart(rng, share=0.0)
    for state in range(3):
        known[0][np.flatnonzero(truth[0] == state)[0]] = state
    est = small("gaussian-diag", 3, init_params=init_params, max_iter=50).fit(X, states=known)
    assert_array_equal(est.predict(X), np.concatenate(truth))


def test_known_starts_and_transitions_are_counted_with_the_weights_of_their_sequences():
    units = Sequences(
        np.zeros((7, 1)), np.array([0, 3, 3, 7]), states=np.array([1, 0, 0, -1, 1, 0, -1])
    )
    start, transmat = np.zeros(2), np.zeros((2, 2))
    add_known_moves(units, np.array([2.0, 5.0, 3.0]), start, transmat)
    assert_array_equal(start, [0.0, 2.0])
    assert_array_equal(transmat, [[2.0, 0.0], [2.0 + 3.0, 0.0]])


def test_states_of_unlikely_frames_stay_known(rng):
    """Labels are data, however little the frames look like their states."""
    X, truth, _ = far_apart(rng, share=1.0)
    known = [z.copy() for z in truth]
    known[0][0] = 0  # the frame is where state 2 is
    est = small("gaussian-diag", 3, max_iter=20)
    ctx, _, units = open_run(est, est._data(X, None, None, None, known))
    seen = one_update(ctx, Fixed(), units)
    assert seen.step.statistics["startprob"][0] == 1.0
    assert seen.step.entropy == pytest.approx(0.0, abs=1e-9)


def test_every_form_of_states_is_the_same_fit(rng):
    sequences, _, known = far_apart(rng, 3)
    X, groups = concat_sequences(sequences)
    flat = np.concatenate(known)
    ragged = np.empty(3, dtype=object)
    ragged[:] = known
    one = small(n_components=3).fit(sequences, states=known)
    for other in (
        small(n_components=3).fit(sequences, states=flat),
        small(n_components=3).fit(sequences, states=tuple(z.tolist() for z in known)),
        small(n_components=3).fit(sequences, states=ragged),
        small(n_components=3).fit(X, groups=groups, states=flat.tolist()),
        small(n_components=3).fit(X, lengths=[len(z) for z in known], states=flat.astype(np.int8)),
    ):
        assert_same_fit(other, one)
    # A column with unknown states has floating-point numbers, or pandas' NA, in data frames.
    floats = np.where(flat < 0, np.nan, flat)
    nullable = pd.Series(floats).astype("Int64")
    for marked in (
        floats,
        nullable,
        nullable.array,
        nullable.astype(object).to_numpy(),
        [None if z < 0 else z for z in flat.tolist()],
        np.split(floats, np.cumsum([len(z) for z in known])[:-1]),
    ):
        assert_same_fit(small(n_components=3).fit(sequences, states=marked), one)
    nothing = [np.full(len(z), -1) for z in known]
    unlabelled = small(n_components=3).fit(sequences, states=nothing)
    assert_same_fit(unlabelled, small(n_components=3).fit(sequences))
    assert one.lower_bounds_[-1] != unlabelled.lower_bounds_[-1]


def test_results_with_states_follow_from_a_fit_and_frames(rng):
    X, _, known = far_apart(rng, 3)
    est = small(n_components=3)
    assert_array_equal(est.fit_predict(X, states=known), est.predict(X))
    assert_array_equal(est.fit_transform(X, states=known), est.transform(X))


def test_threads_change_nothing(rng, monkeypatch):
    make_threads_worthwhile(monkeypatch)
    X, _, known = far_apart(rng, 400, size=12)
    assert len(open_run(small(), X)[2].chunks()) > 1
    one, two = (
        small(n_components=3, n_init=n, n_jobs=jobs, max_iter=4).fit(X, states=known)
        for n, jobs in ((1, 1), (1, 2))
    )
    assert_same_fit(one, two)


def test_weights_and_missing_frames_of_known_states(rng):
    """A sequence of weight 2 is a repeated one; a missing frame of known state has no emission."""
    X, truth, known = far_apart(rng, 3, share=1.0)
    X[1][3:6] = np.nan
    weights = np.repeat([2.0, 1.0, 0.0], [len(z) for z in truth])
    weighted = small(n_components=3, means_prior=[0.0], scale_prior=[[1.0]])
    repeated = small(n_components=3, means_prior=[0.0], scale_prior=[[1.0]])
    Z, groups = concat_sequences(X)
    weighted.fit(Z, groups=groups, sample_weight=weights, states=np.concatenate(known))
    repeated.fit([X[0], X[0], X[1]], states=[known[0], known[0], known[1]])
    assert_allclose(weighted.transmat_posterior_, repeated.transmat_posterior_)
    assert_allclose(weighted.means_, repeated.means_)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_)


def test_streams_take_states(rng):
    X, truth, known = far_apart(rng, 12)
    stream = small(n_components=3)
    for start in range(0, 12, 4):
        part = slice(start, start + 4)
        states = known[part] if start < 8 else None
        stream.partial_fit(X[part], states=states)
    assert_array_equal(stream.predict(X), np.concatenate(truth))
    with pytest.raises(ValueError, match="states has 7"):
        stream.partial_fit(X[:1], states=[np.full(len(X[0]), 7)])


def test_warm_start_takes_states(rng):
    X, truth, known = far_apart(rng)
    est = small(n_components=3, warm_start=True).fit(X, states=known)
    all_known = est.fit(X, states=truth)
    pairs = sum(len(z) - 1 for z in truth)
    assert (all_known.transmat_posterior_ - all_known.transmat_prior_).sum() == pytest.approx(pairs)


def test_blocks_of_columns_take_states(rng):
    X, truth, known = far_apart(rng)
    tables = [np.hstack([x, z[:, None] == 1]) for x, z in zip(X, truth, strict=True)]
    emission = [("real", "gaussian", [0]), ("bit", "bernoulli", [1])]
    est = small("gaussian-diag", 3).set_params(emission=emission).fit(tables, states=known)
    assert_array_equal(est.predict(tables), np.concatenate(truth))


def test_checkpoint_belongs_to_its_states(tmp_path, rng):
    X, truth, known = far_apart(rng)
    first = small(n_components=3).fit(X, states=known, checkpoint=tmp_path)
    again = small(n_components=3).fit(X, states=known, checkpoint=tmp_path)
    assert_same_fit(first, again)
    with pytest.raises(ValueError, match="differs in the data"):
        small(n_components=3).fit(X, states=truth, checkpoint=tmp_path)


def test_states_are_routed_if_requested(rng):
    sequences, truth, known = far_apart(rng)
    X, groups = concat_sequences(sequences)
    how = {"groups": groups, "states": np.concatenate(known)}
    est = small("gaussian-diag", 3)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(est, {"max_iter": [8, 20]}, cv=GroupKFold(2))
        with pytest.raises(UnsetMetadataPassedError, match="states"):
            search.fit(X, **how)
        est.set_fit_request(states=True)
        search.fit(X, **how)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    found = search.best_estimator_.predict(X, groups=groups)
    assert_array_equal(found, np.concatenate(truth))


@pytest.mark.parametrize("routing", [False, True])
def test_a_search_over_lists_cuts_their_states(routing, rng):
    sequences, truth, known = far_apart(rng)
    est = small("gaussian-diag", 3)
    with config_context(enable_metadata_routing=routing):
        if routing:
            est.set_fit_request(states=True)
        search = GridSearchCV(est, {"max_iter": [8]}, cv=2, error_score="raise")
        search.fit(sequences, states=known)
    by_hand = [
        small("gaussian-diag", 3).fit(sequences[a], states=known[a]).score(sequences[b])
        for a, b in ((slice(4, None), slice(4)), (slice(4), slice(4, None)))
    ]
    assert search.best_score_ == pytest.approx(np.mean(by_hand))
    assert_array_equal(search.best_estimator_.predict(sequences), np.concatenate(truth))


LEFT_TO_RIGHT = {"startprob_prior": [1.0, 0.0, 0.0], "transmat_prior": np.triu(np.ones((3, 3)))}


@pytest.mark.parametrize("wrong", [[1, -1, -1, -1], [0, 2, -1, 1], [-1, 1, 0, -1]])
def test_states_that_the_priors_forbid_are_refused(wrong, rng):
    X = [rng.standard_normal((4, 1)) for _ in range(3)]
    states = [np.array([0, -1, 1, -1]), np.array([-1, -1, 2, 2]), np.array(wrong)]
    est = AnnealedHMM(3, **LEFT_TO_RIGHT, annealing="none", max_iter=2)
    with pytest.raises(ValueError, match=r"Sequence 2 cannot happen.*transmat_prior"):
        est.fit(X, states=states)
    est.partial_fit(X[:2], states=states[:2])
    before = est.transmat_.copy()
    with pytest.raises(ValueError, match="Sequence 0 cannot happen"):
        est.partial_fit(X[2:], states=states[2:])
    assert_array_equal(est.transmat_, before)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([0, 1], "states has 2 entries, but X has 5 rows"),
        ([0, 1, 2, -1, 0], "states has 2, but with n_components=2"),
        ([0, 1, -2, -1, 0], "states has -2"),
        ([0.0, 1.5, -1.0, -1.0, 0.0], "states are integers.*but one of them is 1.5"),
        ([0.0, np.inf, -1.0, -1.0, 0.0], "states are integers.*but one of them is inf"),
        ([0.0, 1e300, -1.0, -1.0, 0.0], r"states are integers.*but one of them is 1e\+300"),
        ([0, 10**30, None, None, 0], "states are integers.*but one of them is 10{30}"),
        (["a", "b", "a", "a", "b"], "states are integers.*<U1"),
        ([0, True, None, None, 0], "states are integers.*object"),
        ([0.0, 2.0, np.nan, np.nan, 0.0], "states has 2, but with n_components=2"),
        (np.zeros((5, 1), int), "states is an array with one dimension"),
        ([np.array([0, 1]), np.array([0, 1])], "2 entries for sequence 0, which has 3 frames"),
        ([np.array([0, 1, 1])], "1 arrays, but there are 2 sequences"),
        ([np.array([0, 1, 1])] * 3, "3 arrays, but there are 2 sequences"),
        (np.ma.masked_array([0, 1, 1, 0, 0], [1, 0, 0, 0, 0]), "states"),
    ],
)
def test_wrong_states_are_refused(states, message, rng):
    X = [rng.standard_normal((3, 1)), rng.standard_normal((2, 1))]
    with pytest.raises(ValueError, match=message):
        small().fit(X, states=states)


def test_states_are_not_named_after_they_were_numbered(rng):
    X, truth = [rng.normal(size=(6, 1)) for _ in range(4)], [np.arange(6) % 2 for _ in range(4)]
    stream = small(n_components=2).partial_fit(X[:2])
    with pytest.raises(ValueError, match="from the first batch"):
        stream.partial_fit(X[2:], states=truth[2:])
    stream.partial_fit(X[2:], states=[np.full(6, -1)] * 2)
    warm = small(n_components=2, warm_start=True).fit(X)
    with pytest.raises(ValueError, match="or fit anew"):
        warm.fit(X, states=truth)
    warm.set_params(warm_start=False).fit(X, states=truth)
    again = pickle.loads(pickle.dumps(warm)).set_params(warm_start=True)
    again.fit(X).fit(X, states=truth)
    again.partial_fit(X, states=truth)


@pytest.mark.parametrize("n_features", [2, 3000])
def test_volumes_of_states_that_cannot_be_reached_do_not_matter(n_features, rng):
    """log C is finite if a forbidden start has a volume larger than a number can hold."""
    X = [(rng.random((8, n_features)) < 0.002).astype(float) for _ in range(6)]
    X = [np.where(np.arange(8)[:, None] < 4, x, rng.random(x.shape) < 0.5) for x in X]
    for annealing in ("local_tempering", "tempering"):
        est = small(
            n_components=2, emission="bernoulli", annealing=quick(annealing),
            startprob_prior=[1.0, 0.0], transmat_prior=np.triu(np.ones((2, 2))),
        ).fit(X)  # fmt: skip
        assert np.isfinite(est.temperatures_).all()


def test_log_partition_of_a_forced_path_is_that_of_the_whole_chain(rng):
    """The growth per frame is constant as long as there is no choice, and not afterwards."""
    free = np.zeros((6, 6))
    free[range(4), range(1, 5)] = 1.0
    free[4:, 4:] = 1.0
    X = [rng.normal(size=(30, 1)) for _ in range(3)]
    est = small(
        n_components=6, annealing="none", startprob_prior=np.eye(6)[0], transmat_prior=free
    ).fit(X)
    ctx = context_of(est)
    partition = ctx.model.unit_log_partition(np.array([0.1, 0.5, 1.0]), ctx.summary, ctx.q)
    gaps = Gaps(np.array([0, 30]), np.zeros(30, np.int32), np.ones(1))
    np.testing.assert_allclose(
        partition.of_lengths(np.array([30])), partition.of_gaps(gaps), rtol=1e-9
    )
