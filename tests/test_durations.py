"""States that last a negative binomial number of frames."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, permutations

import numpy as np
import plain_hidden_markov as plain
import pytest
from cases_hidden_markov import all_emissions, draw, fitted, small, with_priors
from harness import open_run
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import nbinom

from sklearn_anneal import AnnealedHMM, Shards
from sklearn_anneal.kernels import hidden_markov as geometric
from sklearn_anneal.kernels import hidden_semi_markov as kernels
from sklearn_anneal.models._known_states import IMPOSSIBLE

SHAPES = np.array([2, 1, 3])


def chain_of(rng, k=3, forbidden=()):
    """Log factors of starts, jumps, stays and leaves, which need not sum to 1."""
    start, jump = np.log(rng.dirichlet(np.ones(k))), np.log(rng.random((k, k)))
    np.fill_diagonal(jump, IMPOSSIBLE)
    for i, j in forbidden:
        jump[i, j] = IMPOSSIBLE
    return start, jump, np.log(rng.random(k)), np.log(rng.random(k))


def aggregated(paths, states, k):
    """Posteriors of states, and expected numbers of jumps, stays and leaves, of `plain.Paths`."""
    one_hot = np.equal.outer(states, np.arange(k)).astype(float)
    moves = paths.transitions
    jumps = one_hot.T @ moves @ one_hot
    stays = one_hot.T @ np.diagonal(moves)
    leaves = one_hot.T @ (moves.sum(axis=1) - np.diagonal(moves))
    return paths.posteriors @ one_hot, jumps - np.diag(np.diagonal(jumps)), stays, leaves


def run(emissions, chain, shapes, x=(1.0,), scale=(), kernel=None):
    lengths = [len(each) for each in emissions]
    pointer = np.concatenate([[0], np.cumsum(lengths)])
    n, k = len(lengths), len(shapes)
    out = {
        "posteriors": np.empty((pointer[-1], k)), "starts": np.zeros(k), "jumps": np.zeros((k, k)),
        "stays": np.zeros(k), "leaves": np.zeros(k), "ends": np.empty((n, shapes.sum())),
        "log_norms": np.empty(n), "energies": np.empty(n),
    }  # fmt: skip
    how = np.array(x, float), np.array(scale, float)
    arguments = np.concatenate(emissions), pointer, *chain, shapes, *how, *out.values()
    if kernel is None:
        kernels.forward_backward(*arguments)
    else:
        for s in range(n):
            kernel(*arguments, s)
    return out


@pytest.mark.parametrize("kernel", [None, kernels._in_logarithms])
@pytest.mark.parametrize("x", [1.0, 0.4])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_both_kernels_are_the_sums_over_all_paths(length, x, kernel, rng):
    """Of all sub-states of all frames, of which most paths are impossible."""
    chain = chain_of(rng, forbidden=[(0, 2)])
    emission = rng.normal(size=(length, 3)) - 2.0
    start, table, states = plain.expanded(*chain, SHAPES)
    paths = plain.enumerated(start, table, emission[:, states], x)
    posteriors, jumps, stays, leaves = aggregated(paths, states, 3)
    found = run([emission], chain, SHAPES, [x], kernel=kernel)
    assert_allclose(found["posteriors"], posteriors, atol=1e-12)
    assert_allclose(found["starts"], posteriors[0], atol=1e-12)
    assert_allclose(found["jumps"], jumps, atol=1e-12)
    assert_allclose(found["stays"], stays, atol=1e-12)
    assert_allclose(found["leaves"], leaves, atol=1e-12)
    assert_allclose(found["ends"][0], paths.posteriors[-1], atol=1e-12)
    assert found["log_norms"][0] == pytest.approx(paths.log_norm, rel=1e-12)
    assert found["energies"][0] == pytest.approx(paths.energy, rel=1e-10)


def test_long_sequences_are_those_of_the_plain_chain(rng):
    """Weights, temperatures of their own, an empty sequence, and one whose sums underflow."""
    chain, lengths = chain_of(rng), [60, 0, 1, 90, 40]
    emissions = [3.0 * rng.normal(size=(n, 3)) for n in lengths]
    # Every state is by far the best one in some frames that are too few for its sub-states.
    emissions[3][::2, 2] += 2000.0
    emissions[3][1::2, 0] += 2000.0
    x, scale = [1.0, 1.0, 0.3, 0.9, 1.0], [1.0, 1.0, 2.5, 0.5, 0.0]
    start, table, states = plain.expanded(*chain, SHAPES)
    found = run(emissions, chain, SHAPES, x, scale)
    totals = {name: 0.0 for name in ("jumps", "stays", "leaves")}
    pointer = np.concatenate([[0], np.cumsum(lengths)])
    for s, emission in enumerate(emissions):
        if len(emission) == 0:
            assert found["log_norms"][s] == found["energies"][s] == 0.0
            continue
        paths = plain.forward_backward(start, table, emission[:, states], x[s])
        posteriors, *counts = aggregated(paths, states, 3)
        own = slice(pointer[s], pointer[s + 1])
        assert_allclose(found["posteriors"][own], scale[s] * posteriors, atol=1e-9)
        assert found["log_norms"][s] == pytest.approx(paths.log_norm, rel=1e-10)
        assert found["energies"][s] == pytest.approx(paths.energy, rel=1e-9)
        for name, count in zip(totals, counts, strict=True):
            totals[name] = totals[name] + scale[s] * count
    for name, total in totals.items():
        assert_allclose(found[name], total, atol=1e-8, err_msg=name)


def best_paths(emissions, chain, shapes):
    pointer = np.cumsum([0, *map(len, emissions)])
    path, found = np.empty(pointer[-1], np.int64), np.empty(len(emissions))
    kernels.viterbi(np.concatenate(emissions), pointer, *chain, shapes, path, found)
    return np.split(path, pointer[1:-1]), found


@pytest.mark.parametrize("length", [1, 3, 5])
def test_best_path_sums_over_the_ways_through_sub_states(length, rng):
    chain = chain_of(rng, forbidden=[(0, 2)])
    emission = 2.0 * rng.normal(size=(length, 3))
    path, energy = plain.best_states(*chain, SHAPES, emission)
    others = plain.best_segments(*chain, SHAPES, emission), best_paths([emission], chain, SHAPES)
    for found, value in others:
        assert_array_equal(np.ravel(found), path)
        assert np.ravel(value)[0] == pytest.approx(energy, rel=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_best_paths_are_those_of_all_segments(spread, rng):
    """Known states, outliers, and shapes of one and of more frames than a sequence has."""
    lengths, several = [40, 0, 1, 20, 6], np.array([4, 1, 9])
    for forbidden in ([], [(0, 2), (2, 1)]):
        chain = chain_of(rng, forbidden=forbidden)
        emissions = [spread * rng.normal(size=(n, 3)) for n in lengths]
        for t in (10, 30, 31):
            emissions[0][t, np.arange(3) != 1] = IMPOSSIBLE
        emissions[3] += np.where(rng.random((20, 3)) < 0.2, -1e7, 0.0)
        paths, values = best_paths(emissions, chain, several)
        for emission, path, value in zip(emissions, paths, values, strict=True):
            if len(emission) > 0:
                expected, energy = plain.best_segments(*chain, several, emission)
                assert_array_equal(path, expected)
                assert value == pytest.approx(energy, rel=1e-9)


def test_best_paths_of_geometric_durations_are_those_of_the_usual_kernel(rng):
    start, jump, *_ = chain_of(rng, 4)
    leave = rng.random(4) / 4.0
    usual = np.log(leave)[:, None] + jump
    np.fill_diagonal(usual, np.log1p(-leave))
    emission = rng.normal(size=(500, 4))
    path, value = np.empty(500, np.int64), np.empty(1)
    geometric.viterbi(emission, np.array([0, 500]), start, usual, path, value)
    chain = start, jump, np.log1p(-leave), np.log(leave)
    (found,), own = best_paths([emission], chain, np.ones(4, np.int64))
    assert_array_equal(found, path)
    assert own[0] == pytest.approx(value[0], rel=1e-12)


# The model


def frames(variant, rng, lengths=(20, 15, 1)):
    return draw(variant, rng, list(lengths))


@all_emissions
def test_likelihood_is_the_sum_over_all_segmentations(variant, rng):
    """Every segment but the last has a negative binomial number of frames."""
    est = with_priors(variant, 3, duration=SHAPES).fit(frames(variant, rng))
    (X,) = draw(variant, rng, [6], {0: [2]})
    ctx, _, units = est._units(X, None, None)
    ((_, _, density),) = ctx.model.densities(units, ctx.q, est.predictive)
    p, n = est.leaveprob_, len(X)
    with np.errstate(divide="ignore"):
        log_start, log_jump = np.log(est.startprob_), np.log(est.transmat_)

    @cache
    def log_duration(k, longer, last):
        of = nbinom.logsf if last else nbinom.logpmf
        return of(longer - last, SHAPES[k], p[k])

    terms = []
    for cuts in range(2 ** (n - 1)):
        ends = [t + 1 for t in range(n - 1) if cuts >> t & 1] + [n]
        bounds = list(pairwise([0, *ends]))
        for labels in np.ndindex(*[3] * len(bounds)):
            term = log_start[labels[0]]
            term += sum(log_jump[a, b] for a, b in pairwise(labels))
            for i, (k, (a, b)) in enumerate(zip(labels, bounds, strict=True)):
                term += density[a:b, k].sum()
                # Frames beyond one for each sub-state.
                term += log_duration(k, b - a - SHAPES[k], i == len(bounds) - 1)
            terms.append(term)
    assert est.score_sequences(X)[0] == pytest.approx(logsumexp(terms), rel=1e-9)


@all_emissions
def test_bound_never_falls(variant, rng):
    """With missing frames, forbidden jumps, a state that is not left, and one without staying."""
    prior = np.array([[0.5, 0.3, 0.0], [0.4, 0.0, 0.7], [0.0, 0.0, 1.0]])
    sequences = draw(variant, rng, [30, 20], {0: slice(12, 15)})
    for forbidding in (False, True):
        how = {"transmat_prior": prior} if forbidding else {}
        est = small(variant, 3, duration=SHAPES, max_iter=25, tol=0.0, **how).fit(sequences)
        assert (np.diff(est.lower_bounds_) > -1e-9 * np.abs(est.lower_bounds_[1:])).all()
        if forbidding:
            assert_array_equal(est.transmat_ > 0, [[0, 1, 0], [1, 0, 1], [0, 0, 1]])
            assert_allclose(est.leaveprob_[1:], [1.0, 0.0])
            assert est.expected_durations_[1] == est.duration_shapes_[1]
            assert np.isinf(est.expected_durations_[2])


@pytest.mark.parametrize("learned", [False, True])
def test_shape_one_is_the_usual_model(learned, rng):
    """With the same priors, and with priors that are learned: the optimum has the same bound."""
    sequences = draw("gaussian-full", rng, [60, 40])
    prior = {"startprob_prior": "auto", "transmat_prior": "auto"} if learned else {}
    given = {"emission_init": {"means": [[4.0, 4.0], [6.0, 5.0], [5.0, 8.0]]}}
    how = {"max_iter": 500, "tol": 1e-13, "sticky": 0.3} | prior | given
    one = small(n_components=3, duration=1, **how).fit(sequences)
    usual = small(n_components=3, **how).fit(sequences)
    assert one.lower_bound_ == pytest.approx(usual.lower_bound_, rel=1e-8)
    assert_allclose(one.leaveprob_posterior_, usual.leaveprob_posterior_, rtol=1e-3)
    assert_allclose(one.leaveprob_prior_, usual.leaveprob_prior_, rtol=1e-3)
    assert_allclose(one.expected_durations_, usual.expected_durations_, rtol=1e-3)
    assert_allclose(one.stationary_distribution_, usual.stationary_distribution_, rtol=1e-3)
    assert_allclose(one.score_sequences(sequences), usual.score_sequences(sequences), rtol=1e-5)
    assert_allclose(one.predict_proba(sequences), usual.predict_proba(sequences), atol=1e-3)
    found, expected = (est.predict_next(sequences, 5) for est in (one, usual))
    assert_allclose(found.mean, expected.mean, rtol=1e-3)


def test_forecasts_are_sums_over_all_paths_of_sub_states(rng):
    est = fitted("gaussian-full", rng, 3, duration=SHAPES)
    (X,) = draw("gaussian-full", rng, [3])
    n_steps = 3
    longer = np.vstack([X, np.full((n_steps, 2), np.nan)])
    ctx, _, units = est._units(longer, None, None)
    ((_, _, density),) = ctx.model.densities(units, ctx.q, est.predictive)
    with np.errstate(divide="ignore"):
        logs = [np.maximum(np.log(a), plain.NEVER) for a in (est.startprob_, est.transmat_)]
        start, table, states = plain.expanded(
            *logs, np.log1p(-est.leaveprob_), np.log(est.leaveprob_), SHAPES
        )
    paths = plain.forward_backward(start, table, density[:, states])
    expected, *_ = aggregated(paths, states, 3)
    assert_allclose(est.predict_next(X, n_steps).state_probabilities[0], expected[3:], atol=1e-12)
    assert_allclose(est.predict_proba(longer), expected, atol=1e-12)


def test_drawn_segments_last_as_long_as_they_should(rng):
    est = fitted("gaussian-full", rng, 3, duration=[2, 1, 6], transmat_prior=1.0)
    states = est.sample(30_000)[1]
    at = np.flatnonzero(np.diff(states, prepend=-1))
    first, lengths = states[at[:-1]], np.diff(at)
    for k in range(3):
        own = lengths[first == k]
        r, p = est.duration_shapes_[k], est.leaveprob_[k]
        error = 5 * own.std() / np.sqrt(len(own))
        assert own.min() >= r
        assert own.mean() == pytest.approx(est.expected_durations_[k], abs=error)
        assert own.var() == pytest.approx(r * (1 - p) / p**2, rel=0.2)
    shares = np.bincount(states) / len(states)
    assert_allclose(shares, est.stationary_distribution_, atol=0.05)


def lasting(rng, shapes, n, means=6.0):
    """Frames of three levels, which last 10 frames on average, in a random order."""
    states: list[int] = []
    k = 0
    while len(states) < n:
        states += [k] * (shapes[k] + rng.negative_binomial(shapes[k], shapes[k] / 12.0))
        k = (k + rng.integers(1, 3)) % 3
    z = np.array(states[:n])
    return (means * z + rng.standard_normal(n))[:, None], z


def test_shapes_are_found_and_raise_the_bound(rng):
    X, z = lasting(rng, [1, 3, 12], 1500)
    how = {"annealing": "none", "random_state": 0, "max_iter": 50}
    est = AnnealedHMM(3, duration="auto", **how).fit(X)
    usual = AnnealedHMM(3, **how).fit(X)
    order = np.argsort(est.means_[:, 0])
    r = est.duration_shapes_[order]
    assert r[0] <= 2 and 2 <= r[1] <= 5 and 8 <= r[2] <= 18
    assert est.lower_bound_ > usual.lower_bound_ + 10.0
    assert {"guided reshape"} <= set(est.search_results_["move"])
    # The shapes that were found, given, lead to the same bound.
    given = AnnealedHMM(3, duration=est.duration_shapes_, warm_start=False, **how)
    given.set_params(emission_init={"means": est.means_}).fit(X)
    assert given.lower_bound_ == pytest.approx(est.lower_bound_, abs=0.05)


def test_known_durations_find_states_that_frames_do_not_tell_apart(rng):
    """Frames of neighbouring states overlap by half; every segment has twelve of them."""
    X, z = lasting(rng, [12, 12, 12], 600, means=1.3)

    def accuracy(**how):
        states = AnnealedHMM(3, random_state=0, **how).fit(X).predict(X)
        return max(np.mean(np.array(p)[states] == z) for p in permutations(range(3)))

    assert accuracy(duration=12) > 0.95 > 0.9 > accuracy()


# Everything else at the level of states


def test_known_states_are_data_and_short_segments_are_refused(rng):
    X, z = lasting(rng, [4, 4, 4], 200)
    known = np.where(rng.random(200) < 0.2, z, -1)
    est = small(n_components=3, duration=[4, 4, 4], max_iter=20).fit(X, states=known)
    assert np.mean(est.predict(X) == z) > 0.97
    known = np.full(200, -1)
    known[[10, 11, 12]] = 0, 1, 0
    with pytest.raises(ValueError, match="Sequence 0 cannot happen: .* fewer frames than duration"):
        small(n_components=3, duration=4).fit(X, states=known)
    small(n_components=3, duration=1, max_iter=1).fit(X, states=known)


def test_states_are_put_in_another_order_with_their_shapes(rng):
    X, _ = lasting(rng, [1, 3, 12], 600)
    est = AnnealedHMM(3, duration="auto", annealing="none", random_state=0).fit(X)
    before, score, shapes = est.means_.copy(), est.score(X), est.duration_shapes_
    est.reorder([2, 0, 1])
    assert_array_equal(est.means_, before[[2, 0, 1]])
    assert_array_equal(est.duration_shapes_, shapes[[2, 0, 1]])
    assert est.score(X) == pytest.approx(score, rel=1e-12)
    given = AnnealedHMM(3, duration=[1, 3, 12], annealing="none", random_state=0).fit(X)
    with pytest.raises(ValueError, match="prior"):
        given.reorder([2, 0, 1])


def test_parts_and_streams_have_durations(rng):
    sequences = [lasting(rng, [3, 3, 3], 60)[0] for _ in range(4)]
    whole = small(n_components=3, duration=3).fit(sequences)
    parts = small(n_components=3, duration=3).fit(Shards([sequences[:2], sequences[2:]]))
    assert parts.lower_bound_ == pytest.approx(whole.lower_bound_, abs=30.0)
    stream = small(n_components=3, duration=3)
    for X in sequences:
        stream.partial_fit(X)
    assert_array_equal(stream.duration_shapes_, [3, 3, 3])
    with pytest.raises(ValueError, match="partial_fit does not choose shapes"):
        small(n_components=3, duration="auto").partial_fit(sequences[0])
    chosen = small(n_components=3, duration="auto", max_iter=30).fit(sequences)
    shapes = chosen.duration_shapes_
    assert_array_equal(chosen.partial_fit(sequences[0]).duration_shapes_, shapes)


@pytest.mark.parametrize("variant", ["bernoulli", "gaussian-full"])
def test_log_partition_is_the_sum_over_paths_of_sub_states(variant, rng):
    """The volumes of emissions take the place of the densities of frames that are not missing."""
    sequences = draw(variant, rng, [5, 3], {0: [2]})
    est = with_priors(variant, 3, duration=SHAPES)
    ctx, _, _ = open_run(est, sequences)
    x = np.array([0.3, 0.8])
    expected = ctx.model.expectations(ctx.q)
    volume = ctx.model.emission.log_volume(
        np.append(x, 1.0), ctx.summary.emission, expected.emission
    )
    leave, stay = expected.durations.T
    start, table, states = plain.expanded(
        expected.startprob, expected.transmat, stay, leave, SHAPES
    )
    total = np.zeros(3)
    for sequence in sequences:
        for m, power in enumerate([*x, 1.0]):
            # The factors of frames are not raised to the power, because volumes are not.
            emission = np.tile(volume[m][states] / power, (len(sequence), 1))
            emission[np.isnan(sequence).any(axis=1)] = 0.0
            total[m] += plain.forward_backward(start, table, emission, power).log_norm
    found = ctx.model.log_partition(x, ctx.summary, ctx.q)
    assert_allclose(found, total[:2] - x * total[2], rtol=1e-9)


def test_numbers_of_states_and_shapes_are_found_together(rng):
    X = [lasting(rng, [1, 3, 12], 50)[0] for _ in range(10)]
    how = {"annealing": "none", "random_state": 0, "max_iter": 15}
    est = AnnealedHMM("auto", duration="auto", **how).fit(X)
    assert est.n_components_ == len(est.duration_shapes_) in (3, 4)
    assert est.duration_shapes_.max() > 4
    with pytest.raises(ValueError, match=r"give one number for all of them"):
        AnnealedHMM("auto", duration=[1, 3, 12], annealing="none").fit(X)


def test_one_state_has_no_duration(rng):
    (X,) = draw("gaussian-full", rng, [30])
    one = small(n_components=1, duration=3).fit(X)
    assert one.lower_bound_ == pytest.approx(small(n_components=1).fit(X).lower_bound_, rel=1e-12)
    assert np.isinf(one.expected_durations_[0])


@pytest.mark.parametrize(
    ("duration", "message"),
    [
        (0, "duration"),
        ("long", "duration"),
        ([1, 2], r"there are 3 states: give one number"),
        ([1.0, 2.0, 3.0], "integers of at least 1"),
        ([1, 0, 2], "integers of at least 1"),
    ],
)
def test_durations_that_are_none_are_refused(duration, message, rng):
    with pytest.raises(ValueError, match=message):
        small(n_components=3, duration=duration).fit(draw("gaussian-full", rng, [30])[0])


def test_display_shows_transitions_of_frames(rng):
    pytest.importorskip("matplotlib")
    from sklearn_anneal.inspection import TransitionMatrixDisplay

    X, _ = lasting(rng, [4, 4, 4], 300)
    est = small(n_components=3, duration=4, max_iter=30).fit(X)
    display = TransitionMatrixDisplay.from_estimator(est)
    assert_allclose(display.transitions.sum(axis=1), 1.0)
    stays = np.diagonal(display.transitions)
    assert_allclose(stays, 1.0 - 1.0 / est.expected_durations_[display.numbers])
    counts = est.predict_proba(X).mean(axis=0)[display.numbers]
    assert_allclose(display.shares, counts, atol=1e-3)


@pytest.mark.parametrize("how", [{"annealing": "structured"}, {"max_iter": 0}])
def test_shapes_are_not_chosen_without_comparable_bounds(how, rng):
    with pytest.raises(ValueError, match="duration='auto' cannot be combined with"):
        small(n_components=3, duration="auto", **how).fit(draw("gaussian-full", rng, [30])[0])
