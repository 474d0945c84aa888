"""The kernels of hidden Markov models against sums over messages, and over all paths, in numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import plain_hidden_markov as plain
import pytest
from scipy.special import logsumexp

from sklearn_anneal.kernels import hidden_markov as kernels

NO_SCALE = np.empty(0)
LENGTHS = [1, 2, 3, 50]


def pointer_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def problem(rng, n_states, lengths, spread=3.0, concentration=0.5):
    """Log emissions, pointer, log start and log transition probabilities."""
    log_emission = spread * rng.standard_normal((sum(lengths), n_states)) - 5.0
    start = np.log(rng.dirichlet(np.full(n_states, concentration)) + 1e-12)
    transition = np.log(rng.dirichlet(np.full(n_states, concentration), n_states) + 1e-12)
    return log_emission, pointer_of(lengths), start, transition


def run(
    log_emission, pointer, log_start, log_transition, x=1.0, scale=NO_SCALE,
    kernel=kernels.forward_backward,
):  # fmt: skip
    n, k = log_emission.shape
    n_sequences = len(pointer) - 1
    posteriors, starts, transitions = np.full((n, k), np.nan), np.zeros(k), np.zeros((k, k))
    log_norms, energies = np.full(n_sequences, np.nan), np.full(n_sequences, np.nan)
    kernel(
        log_emission, pointer, log_start, log_transition, np.atleast_1d(np.float64(x)), scale,
        posteriors, starts, transitions, log_norms, energies,
    )  # fmt: skip
    return posteriors, starts, transitions, log_norms, energies


def sequences_posteriors(log_emission, pointer, log_start, log_transition, x, scale):
    n_sequences = len(pointer) - 1
    x, scale = np.broadcast_to(x, n_sequences), np.broadcast_to(scale, n_sequences)
    parts = [
        plain.forward_backward(log_start, log_transition, log_emission[a:b], x[s])
        for s, (a, b) in enumerate(itertools.pairwise(pointer))
    ]
    gamma = np.concatenate([w * part.posteriors for w, part in zip(scale, parts, strict=True)])
    starts = gamma[pointer[:-1]].sum(axis=0)
    pairs = sum(w * part.transitions for w, part in zip(scale, parts, strict=True))
    log_norms, energies = np.array([(part.log_norm, part.energy) for part in parts]).T
    return gamma, starts, pairs, log_norms, energies


def all_paths(log_emission, log_start, log_transition, x):
    """The same by enumeration; the terms of each path are added without rounding."""
    n, k = log_emission.shape
    paths = list(itertools.product(range(k), repeat=n))
    terms = [
        [log_start[p[0]]]
        + [log_transition[a, b] for a, b in itertools.pairwise(p)]
        + [log_emission[t, state] for t, state in enumerate(p)]
        for p in paths
    ]
    values = [math.fsum(one) for one in terms]
    best = terms[int(np.argmax(values))]
    differences = np.array([math.fsum([*one, *(-b for b in best)]) for one in terms])
    weights = np.exp(x * differences)
    log_norm = x * max(values) + np.log(weights.sum())
    weights /= weights.sum()
    gamma, pairs = np.zeros((n, k)), np.zeros((k, k))
    for p, w in zip(paths, weights, strict=True):
        for t, state in enumerate(p):
            gamma[t, state] += w
        for a, b in itertools.pairwise(p):
            pairs[a, b] += w
    return gamma, pairs, log_norm, weights @ values


def assert_close(found, expected, rtol=1e-10):
    names = ("posteriors", "starts", "transitions", "log_norms", "energies")
    for name, a, b in zip(names, found, expected, strict=True):
        # Probabilities are compared absolutely too: what is 1e-30 in one may be 0 in the other.
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13, err_msg=name)


@pytest.mark.parametrize(
    ("n_states", "x"),
    [
        pytest.param(n_states, x, marks=() if x in (1.0, other) else pytest.mark.exhaustive)
        for n_states, other in zip(
            (1, 3, 4, 5, 8, 10, 13, 26), itertools.cycle((0.4, "per sequence")), strict=False
        )
        for x in (1.0, 0.4, "per sequence")
    ],
)
def test_forward_backward(n_states, x, rng):
    lengths = [*LENGTHS, 129, 1, 300]
    plain = x == 1.0
    arguments = problem(rng, n_states, lengths)
    # Missing frames.
    arguments[0][[2, 20, 21, 60]] = 0.0
    if x == "per sequence":
        x = rng.uniform(0.1, 1.0, len(lengths))
    scale = NO_SCALE if plain else rng.uniform(0.0, 3.0, len(lengths))
    expected = sequences_posteriors(*arguments, x, scale if len(scale) else 1.0)
    assert_close(run(*arguments, x, scale), expected)


@pytest.fixture
def with_logarithms(monkeypatch):
    """The sequences at which kernels with logarithms have begun, and the numbers of sequences."""
    begun = []

    def watched(kernel):
        def call(*arguments):
            begun.append((arguments[-2], len(arguments[1]) - 1))
            kernel(*arguments)

        return call

    for key, kernel in kernels._KERNELS.items():
        if key[1]:
            monkeypatch.setitem(kernels._KERNELS, key, watched(kernel))
    return begun


@pytest.mark.parametrize("n_states", [1, 4, 5, 10, 13])
@pytest.mark.parametrize("x", [1.0, 0.3])
def test_ordinary_sequences_need_no_logarithms(n_states, x, with_logarithms, rng):
    """Whatever the emissions are down to 1e-200, and however far all states are from a frame."""
    lengths = [*LENGTHS, 2000]
    _, pointer, start, transition = problem(rng, n_states, lengths)
    log_emission = rng.uniform(np.log(1e-200), 0.0, (sum(lengths), n_states))
    log_emission -= rng.exponential(1e4, (sum(lengths), 1))
    found = run(log_emission, pointer, start, transition, x)
    assert all(np.isfinite(part).all() for part in found)
    assert with_logarithms == []


def test_what_underflows_needs_logarithms(with_logarithms, rng):
    """The kernel begins with the first sequence that does; what comes before it is done once."""
    start = np.array([0.0, -800.0])
    transition = np.full((2, 2), np.log(0.5))
    log_emission = np.array([[0.0, 0.0], [0.0, 0.0], [-800.0, 0.0], [0.0, 0.0]])
    pointer = np.array([0, 2, 3, 4])
    found = run(log_emission, pointer, start, transition)
    assert with_logarithms == [(1, 3)]
    assert_close(found, sequences_posteriors(log_emission, pointer, start, transition, 1.0, 1.0))


def without_logarithms(log_emission, log_start, log_transition, x):
    """Whether no sum of a plain forward recursion is small."""
    alpha = np.exp(x * log_start)
    smallest = 1.0
    for row in log_emission:
        alpha = alpha * np.exp(x * (row - row.max()))
        smallest = min(smallest, alpha.sum())
        alpha = alpha / max(alpha.sum(), 1e-300) @ np.exp(x * log_transition)
    return smallest > 1e-75


@pytest.mark.parametrize("large", [-300.0, -700.0, -1e5, -1e300])
def test_extreme_probabilities_by_enumeration(large, rng):
    """Paths may have to take what underflows, in one step or little by little."""
    n, n_states = 5, 3
    n_fast = 0
    for trial in range(24):
        log_emission, pointer, start, transition = problem(rng, n_states, [n])
        # A best path of moderate terms exists with -1e300: doubles cannot add moderate terms to it.
        transition[rng.uniform(size=transition.shape) < 0.7] = large
        if large == -1e300:
            transition[np.arange(n_states), rng.permutation(n_states)] = -0.5
        if trial % 2:
            start[rng.integers(n_states)] = large
        log_emission[rng.uniform(size=log_emission.shape) < 0.6] = -220.0 if trial % 4 else -400.0
        if trial % 3 == 0:
            log_emission[rng.uniform(size=log_emission.shape) < 0.4] = -1e6
        for x in (1.0, 0.4):
            found = run(log_emission, pointer, start, transition, x)
            gamma, pairs, log_norm, energy = all_paths(log_emission, start, transition, x)
            assert_close(found, (gamma, gamma[0], pairs, [log_norm], [energy]), 1e-9)
            n_fast += without_logarithms(log_emission, start, transition, x)
    assert 0 < n_fast < 48


def test_small_steps_of_underflow():
    """What underflows at once, or in both directions, wins at the end; no single sum is tiny."""
    step = -80.0
    transition = np.array([[-1.0, -1e5], [-1.0, -1e-3]])
    start = np.array([0.0, -400.0])
    log_emission = np.array([[0.0, -400.0]] + [[step, 0.0]] * 30)
    rare_moves = np.array([[-1.0, -1e5], [-1e5, -1.0]])
    halves = np.array([[0.0, step]] * 15 + [[step, 0.0]] * 16)
    pointer = pointer_of([31])
    for arguments in (
        (log_emission, start, transition),
        (halves, np.array([-1.0, -0.5]), rare_moves),
    ):
        assert without_logarithms(*arguments, 1.0)
        expected = sequences_posteriors(arguments[0], pointer, *arguments[1:], 1.0, 1.0)
        assert expected[0][:, 1].min() > 0.5
        assert_close(run(arguments[0], pointer, *arguments[1:]), expected)


def test_impossible_everywhere():
    """Nothing but -1e300, in different places."""
    k = 3
    low = np.full((k, k), -1e300)
    for log_emission in (np.zeros((4, k)), np.full((4, k), -1e300), np.full((4, k), -1e6)):
        for start in (np.full(k, -1e300), np.full(k, -np.log(k))):
            posteriors, starts, transitions, log_norms, energies = run(
                log_emission, pointer_of([4]), start, low
            )
            np.testing.assert_allclose(posteriors, 1 / k, rtol=1e-12)
            np.testing.assert_allclose(starts, 1 / k, rtol=1e-12)
            np.testing.assert_allclose(transitions, 3 / k**2, rtol=1e-12)
            total = 3 * low[0, 0] + start[0] + log_emission[:, 0].sum()
            np.testing.assert_allclose(log_norms, total, rtol=1e-12)
            np.testing.assert_allclose(energies, total, rtol=1e-12)


def test_impossible_transitions_do_not_hide_emissions(rng):
    """What all paths share cancels, however large it is."""
    k = 4
    log_emission = rng.standard_normal((6, k))
    start = np.full(k, -np.log(k))
    found = run(log_emission, pointer_of([6]), start, np.full((k, k), -1e300))
    expected = np.exp(log_emission - logsumexp(log_emission, axis=1)[:, None])
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)
    np.testing.assert_allclose(found[2], expected[:-1].T @ expected[1:], rtol=1e-12)


@pytest.mark.parametrize("hard", [False, True])
def test_long_sequence(hard, rng):
    n_states = 3
    arguments = problem(rng, n_states, [6_000])
    start, transition = arguments[2:]
    if hard:
        arguments[0][rng.uniform(size=arguments[0].shape) < 0.3] = -1e6
        transition[0, 1] = -700.0
    found = run(*arguments)
    # The derivative of log Z with respect to x is the energy.
    h = 1e-4
    norms = [run(*arguments, x)[3][0] for x in (1.0 - 2 * h, 1.0 - h, 1.0)]
    slope = (3 * norms[2] - 4 * norms[1] + norms[0]) / (2 * h)
    assert found[4][0] == pytest.approx(slope, rel=1e-6)
    if not hard:
        log_norm, message = 0.0, np.exp(start)
        for row in np.exp(arguments[0]):
            message = message * row
            log_norm += math.log(message.sum())
            message = message / message.sum() @ np.exp(transition)
        assert found[3][0] == pytest.approx(log_norm, rel=1e-12)
    np.testing.assert_allclose(found[0].sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found[2].sum(), 5_999, rtol=1e-12)
    np.testing.assert_allclose(found[2].sum(axis=0), found[0][1:].sum(axis=0), rtol=1e-9)
    # Frames far from both ends do not feel them.
    middle = slice(2_800, 3_200)
    around = arguments[0][2_000:4_000]
    part = plain.forward_backward(start, transition, around).posteriors[800:1200]
    np.testing.assert_allclose(found[0][middle], part, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("n_states", [4, 5, 10])
def test_sequences_do_not_feel_each_other(n_states, rng):
    """Bit by bit, also next to sequences that need logarithms."""
    log_emission, pointer, start, transition = problem(rng, n_states, [7, 200, 1, 30, 12])
    log_emission[207:237][rng.uniform(size=(30, n_states)) < 0.9] = -1e6
    transition[:, 0] = -800.0
    x = np.array([0.5, 1.0, 1.0, 0.7, 0.5])
    together = run(log_emission, pointer, start, transition, x)
    for s in range(5):
        frames = slice(pointer[s], pointer[s + 1])
        one = np.array([0, pointer[s + 1] - pointer[s]])
        alone = run(log_emission[frames].copy(), one, start, transition, x[s])
        np.testing.assert_array_equal(together[0][frames], alone[0])
        assert together[3][s] == alone[3][0]
        assert together[4][s] == alone[4][0]


def test_empty_sequences_and_added_sums(rng):
    log_emission, _, start, transition = problem(rng, 3, [5, 4])
    with_empty = run(log_emission, np.array([0, 0, 5, 5, 9]), start, transition)
    without = run(log_emission, np.array([0, 5, 9]), start, transition)
    for a, b in zip(with_empty[:3], without[:3], strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(with_empty[3:], without[3:], strict=True):
        np.testing.assert_array_equal(a, [0.0, b[0], 0.0, b[1]])
    posteriors, starts, transitions = np.empty((9, 3)), np.ones(3), np.ones((3, 3))
    kernels.forward_backward(
        log_emission, np.array([0, 5, 9]), start, transition, np.ones(1), NO_SCALE,
        posteriors, starts, transitions, np.empty(2), np.empty(2),
    )  # fmt: skip
    np.testing.assert_allclose(starts, 1 + without[1], rtol=1e-14)
    np.testing.assert_allclose(transitions, 1 + without[2], rtol=1e-14)


def best_paths(log_emission, pointer, log_start, log_transition):
    n = len(log_emission)
    states, values = np.full(n, -7), np.full(len(pointer) - 1, np.nan)
    kernels.viterbi(log_emission, pointer, log_start, log_transition, states, values)
    return states, values


@pytest.mark.parametrize("n_states", [1, 2, 3, 5])
def test_viterbi_against_all_paths(n_states, rng):
    lengths = [1, 2, 4, 0, 5]
    log_emission, pointer, start, transition = problem(rng, n_states, lengths)
    transition[0, -1] = -1e5
    states, values = best_paths(log_emission, pointer, start, transition)
    for s, (a, b) in enumerate(itertools.pairwise(pointer)):
        if a == b:
            assert values[s] == 0.0
            continue
        found = {
            p: start[p[0]]
            + sum(transition[i, j] for i, j in itertools.pairwise(p))
            + sum(log_emission[a + t, k] for t, k in enumerate(p))
            for p in itertools.product(range(n_states), repeat=int(b - a))
        }
        best = max(found, key=found.get)
        assert tuple(states[a:b]) == best
        assert values[s] == pytest.approx(found[best], rel=1e-12)


def test_viterbi_of_long_and_tied_sequences(rng):
    k = 10
    log_emission, pointer, start, transition = problem(rng, k, [1000, 3])
    states, values = best_paths(log_emission, pointer, start, transition)
    path = states[:1000]
    value = start[path[0]] + transition[path[:-1], path[1:]].sum()
    value += log_emission[np.arange(1000), path].sum()
    assert values[0] == pytest.approx(value, rel=1e-12)
    # Message by message: no path is better.
    best = start + log_emission[0]
    for row in log_emission[1:1000]:
        best = (best[:, None] + transition).max(axis=0) + row
    assert values[0] == pytest.approx(best.max(), rel=1e-12)
    tied = np.zeros((6, k))
    assert (best_paths(tied, pointer_of([6]), np.zeros(k), np.zeros((k, k)))[0] == 0).all()
    tied[3, [2, 5]] = 1.0
    states = best_paths(tied, pointer_of([6]), np.zeros(k), np.zeros((k, k)))[0]
    np.testing.assert_array_equal(states, [0, 0, 0, 2, 0, 0])


@pytest.mark.parametrize("n_states", [1, 5, 8])
def test_categorical(n_states, rng):
    n, n_symbols = 200, 7
    table = rng.standard_normal((n_symbols, n_states))
    symbols = rng.integers(-1, n_symbols, n).astype(np.int32)
    present = symbols >= 0
    assert 0 < present.sum() < n
    out = np.full((n, n_states), np.nan)
    kernels.categorical_log_density(table, symbols, out)
    np.testing.assert_array_equal(out, np.where(present[:, None], table[symbols], 0.0))
    posteriors = rng.uniform(size=(n, n_states))
    out = rng.uniform(size=(n_symbols, n_states))
    expected = out.copy()
    np.add.at(expected, symbols[present], posteriors[present])
    kernels.categorical_statistics(posteriors, symbols, out)
    np.testing.assert_allclose(out, expected, rtol=1e-13)
